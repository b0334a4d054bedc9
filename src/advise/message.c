/* Message: cleans the text, calls the readers in order, adds the circumstances.
 *
 * Order: device errors with specific words, then unambiguous words about host memory, then a
 * device's status, then errors that are about something else, then words that only suggest memory
 * (message_hint.c last). A text with failures of several libraries is first cut down to the first
 * one (message_first.c). If one text has a device's and a host's error, the earlier one is the
 * cause; the later one is a consequence. */
#include "advise/message.h"

#include <string.h>

#include "advise/clean.h"
#include "advise/decode.h"
#include "advise/message_parts.h"
#include "advise/notebook.h"

#define CONTEXT_BYTES  (4 << 20)
#define MENTIONS_BYTES (64 << 10)
#define MENTIONS_MOST  32
#define BLOCKS_MOST    100 /* failures of different libraries that are counted */

/* Of a loop that works. */
static const char *const progress_words[] = {"loss", "it/s",    "s/it", "runtime",
                                             "poch", "inished", "aved"};

static bool read_device(message *m, scan_text clean, scan_text raw, const char **where) {
  context blank = m->context;
  if (message_torch(m, clean, where)) {
    message_serve_on_torch(m);
    if (m->kind == MESSAGE_TGI) message_serve_tokens(m, clean);
    return true;
  }
  if (scan_has(raw, "InUse") || scan_has(raw, "Chunk") || scan_has(raw, "memory_limit_"))
    message_bfc(m, raw);
  if (message_xla(m, clean, where)) return true;
  *m = message_blank();
  m->context = blank;
  if (message_serve(m, clean, where)) return true;
  *m = message_blank();
  m->context = blank;
  return false;
}

/* Returns whether a host's words beside a device's failure are a failure of their own. A pool that
 * lost a worker, and a worker whose line does not mention memory, are consequences. */
static bool is_separate(scan_text t, const char *at, const char *device_at) {
  message m = message_blank();
  scan_text line = scan_line(t, at);
  if (device_at != NULL && device_at >= line.at && device_at < line.end) return false;
  return message_host_memory(&m, line, true, NULL) && !message_only_word(m.host) &&
         (m.details & (MESSAGE_EXECUTOR | MESSAGE_NO_SIGN)) == 0;
}

/* Returns whether the line that failed pins host memory: "return data.pin_memory()". The driver
 * reports a refusal as an error of the device. `at`: the place of that error. */
static bool pins_host(scan_text t, const char *at) {
  scan_text before = {t.at, scan_line(t, at).at}, line = before;
  while (before.end > before.at) {
    line = scan_line(before, before.end - 1);
    while (line.end > line.at && (line.end[-1] == ' ' || line.end[-1] == '\r')) line.end--;
    if (line.end > line.at) break;
    before.end = line.at;
  }
  static const char *const calls[] = {".pin_memory(", "cudaHostAlloc", "cudaHostRegister"};
  return scan_has_any(line, calls, sizeof calls / sizeof *calls);
}

/* Returns the place of the failure, or NULL. */
static const char *read_clean(message *m, scan_text t, scan_text raw) {
  const char *device_at = NULL, *host_at = NULL;
  message host = *m, status = *m;
  if (message_warning(m, t)) return NULL;
  bool device = read_device(m, t, raw, &device_at);
  bool sure = message_host_memory(&host, t, true, &host_at);
  if (device && sure && !message_only_word(host.host) && host_at < device_at) {
    host.failures += m->failures;
    *m = host;
    return host_at;
  }
  if (!device && message_lookalike(m, t)) return NULL;
  if (device) {
    m->failures += sure && is_separate(t, host_at, device_at);
    return device_at;
  }
  /* "CUDA error: out of memory" and a MemoryError of the same failure are the device's. */
  if (message_device(&status, t, &device_at) &&
      (!sure || message_only_word(host.host) || device_at < host_at) && host.host != HOST_TORCH) {
    *m = status;
    message_serve_on_torch(m);
    m->failures += sure && is_separate(t, host_at, device_at);
    if (m->kind == MESSAGE_CUDA && pins_host(t, device_at)) {
      m->kind = MESSAGE_HOST;
      m->host = HOST_PINNING;
    }
    return device_at;
  }
  if (sure) {
    *m = host;
    return host_at;
  }
  message foreign = *m;
  if (message_foreign(&foreign, t, &device_at)) {
    /* A program that goes on after a refused request crashes later: the request is the cause. */
    scan_text before = {t.at, scan_line(t, device_at).at};
    if (message_hint(m, before, true, &host_at)) return host_at;
    *m = foreign;
    return NULL;
  }
  if (message_host_memory(m, t, false, &host_at) || message_hint(m, t, false, &host_at)) {
    message_serve_on_torch(m);
    return host_at;
  }
  m->failures = 0;
  message_other(m, t);
  return NULL;
}

/* Returns the end of the text: circumstances are near the failure, which is near the end of a long
 * log. */
static scan_text last_part(scan_text t) {
  return t.end - t.at > CONTEXT_BYTES ? (scan_text){t.end - CONTEXT_BYTES, t.end} : t;
}

/* Returns whether the reader of this text knows every number in its texts. */
static bool reads_all(const message *m) {
  /* TensorRT-LLM's log names sizes of steps before the failure. */
  bool served = m->kind == MESSAGE_TENSORRT && (m->details & MESSAGE_KV_CACHE) != 0;
  return m->kind == MESSAGE_TORCH || m->kind == MESSAGE_XLA || m->kind == MESSAGE_TENSORFLOW ||
         m->kind == MESSAGE_CUPY || served || (m->details & MESSAGE_MACHINE) != 0;
}

/* A kill because the machine ran out has no limit; and what is killed at one holds no more than it:
 * such a number belongs to another kill. */
static void without_other_limit(message *m) {
  if (m->host != HOST_KERNEL || m->limit_bytes == MESSAGE_UNKNOWN) return;
  bool more = m->process_bytes != MESSAGE_UNKNOWN &&
              m->process_bytes > m->limit_bytes + m->limit_bytes / 20;
  if (!m->grouped || more) m->limit_bytes = MESSAGE_UNKNOWN;
}

/* Reads a text without other failures. Returns the place of the failure, or NULL. */
static const char *read_whole(message *m, scan_text t, scan_text raw) {
  const char *where = read_clean(m, t, raw);
  /* What follows the first of several failures is not of it. */
  const char *second = m->failures < 2            ? NULL
                       : m->kind == MESSAGE_LLAMA ? message_serve_second(t)
                       : m->host == HOST_KERNEL   ? message_second_kill(t)
                                                  : NULL;
  if (second != NULL && where != NULL && second > where) t.end = second;
  if (!reads_all(m)) message_quantities(m, t, where);
  without_other_limit(m);
  bool sum = m->host == HOST_MODEL && (m->details & MESSAGE_WEIGHTS) != 0; /* one number is all */
  if (m->kind != MESSAGE_TORCH && !sum) message_said(m, t, where);
  message_share(m, t);
  return where;
}

/* Returns whether the failure was read with a size: then it happened. */
static bool has_numbers(const message *m) {
  return m->asked_bytes != MESSAGE_UNKNOWN || m->live_bytes != MESSAGE_UNKNOWN ||
         m->device_bytes != MESSAGE_UNKNOWN || m->process_bytes != MESSAGE_UNKNOWN;
}

static uint32_t count_failures(scan_text block, message_kind *kind) {
  message m = message_blank();
  read_clean(&m, block, block);
  *kind = m.kind;
  return m.failures > 0 ? m.failures : 1;
}

/* Reads a batch that later failures of the same library name: a program that tries again with a
 * smaller one, and fails again. `later`: from the first failure on. */
static void read_failed_batch(message *m, scan_text later) {
  static const char *const signs[] = {"ut of memory", "OutOfMemory", "RESOURCE_EXHAUSTED",
                                      "OOM when"};
  const char *last = later.at;
  for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
    for (const char *at = last; at != NULL; at = scan_find(scan_from(later, at), signs[i]))
      last = at;
  m->failed_batch = context_smaller_batch((scan_text){later.at, last}, m->context.batch);
  if (m->failed_batch > 0 && m->kind == MESSAGE_TORCH)
    m->held_bytes = message_torch_held((scan_text){last, later.end});
}

/* Reads the batch with which the program went on after its last failure: it tried again with
 * smaller ones until one fitted. `later`: from the first failure to the end of the text. */
static void read_passed_batch(message *m, scan_text later) {
  static const char *const signs[] = {"ut of memory", "OutOfMemory", "RESOURCE_EXHAUSTED", "OOM"};
  static const char *const ends[] = {"Error", "illed", "Traceback", "Aborted", "FAILED"};
  scan_text tail = later;
  for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
    for (const char *at; (at = scan_find(tail, signs[i])) != NULL;) tail.at = at;
  uint32_t tried = m->failed_batch > 0 ? m->failed_batch : m->context.batch;
  if (scan_has_any(tail, ends, sizeof ends / sizeof *ends) ||
      !scan_has_any(tail, progress_words, sizeof progress_words / sizeof *progress_words))
    return;
  m->passed_batch = context_smaller_batch(tail, tried);
}

/* Recognizes a program that drops the batch that did not fit, and goes on. */
static void read_skipped(message *m, scan_text t) {
  static const char *const words[] = {"kipping batch", "kipping this batch", "kip this batch",
                                      "kipping step", "attempting to recover from OOM"};
  if (m->kind == MESSAGE_TORCH && scan_has_any(t, words, sizeof words / sizeof *words))
    m->details |= MESSAGE_SKIPPED;
}

/* Reads the first of several failures, and counts the others. Returns false if the text has only
 * one, or several that cannot be separated. */
static bool read_first(message *m, scan_text t, scan_text raw) {
  scan_text block, first, own;
  if (!message_is_mixed(t) || !message_next_block(&t, &block, &first)) return false;
  if (t.at >= t.end && first.end == block.end) return false;
  message_kind kind, other;
  uint32_t failures = count_failures(block, &kind);
  const char *last = block.end; /* of the failures of the first one's library */
  message next = message_blank();
  read_clean(&next, (scan_text){first.end, t.end}, (scan_text){first.end, t.end});
  for (int i = 0; i < BLOCKS_MOST && message_next_block(&t, &block, &own); i++) {
    failures += count_failures(block, &other);
    if (other == kind) last = block.end;
  }
  *m = message_blank();
  context_read(&m->context, last_part(first), last_part(first));
  const char *where = read_whole(m, first, raw);
  m->failures = failures;
  m->next_bytes = next.asked_bytes;
  m->next_kind = next.kind;
  m->next_host = next.host;
  if (where != NULL && failures > 1) read_failed_batch(m, (scan_text){where, last});
  if (where != NULL) read_passed_batch(m, (scan_text){where, t.end});
  return true;
}

/* Overwrites what only mentions a failure: prose, comments and source code. What is left is read. A
 * long text is a log. */
static void without_mentions(buffer *clean) {
  scan_text t = {clean->data, clean->data + clean->length};
  if (clean->length > MENTIONS_BYTES) return;
  for (int i = 0; i < MENTIONS_MOST; i++) {
    message m = message_blank();
    const char *where = read_clean(&m, t, t);
    if (where == NULL || has_numbers(&m)) return;
    scan_text part = message_mention(t, where, &m);
    if (part.at == part.end) return;
    memset(clean->data + (part.at - t.at), ' ', (size_t)(part.end - part.at));
  }
}

#define HARMLESS "this is not a failure"

/* Overwrites TensorFlow's lines about a request that it can do without: "ran out of memory trying
 * to allocate 2.13GiB … The caller indicates that this is not a failure". Returns how many there
 * are; *bytes receives the largest request. */
static uint32_t without_harmless(buffer *clean, uint64_t *bytes) {
  scan_text t = {clean->data, clean->data + clean->length};
  uint32_t count = 0;
  *bytes = MESSAGE_UNKNOWN;
  for (const char *at; (at = scan_find(t, HARMLESS)) != NULL; t.at = at) {
    scan_text line = scan_line((scan_text){clean->data, t.end}, at);
    uint64_t asked = scan_size_after(line, "trying to allocate ");
    if (asked != MESSAGE_UNKNOWN && (*bytes == MESSAGE_UNKNOWN || asked > *bytes)) *bytes = asked;
    at = line.end;
    memset(clean->data + (line.at - clean->data), ' ', (size_t)(line.end - line.at));
    count++;
  }
  return count;
}

static scan_text whole(const buffer *b) {
  return (scan_text){b->data, b->data + b->length};
}

/* Returns the text as UTF-8 with plain spaces; of a notebook only the outputs. */
static scan_text decoded(buffer *first, buffer *outputs, buffer *second, scan_text raw) {
  if (decode_text(first, raw)) raw = whole(first);
  if (!notebook_is(raw) || notebook_outputs(outputs, raw) != STOW_OK || outputs->data == NULL)
    return raw;
  /* A notebook writes other spaces as escapes, which are characters only now. */
  return decode_text(second, whole(outputs)) ? whole(second) : whole(outputs);
}

/* Overwrites failures that the program caught, if a later one ended it. Returns how many. */
static uint32_t without_caught(buffer *clean) {
  buffer copy = BUFFER_INIT;
  if (clean->length > CONTEXT_BYTES) return 0;
  buffer_append(&copy, clean->data, clean->length);
  if (copy.data == NULL || copy.length != clean->length) {
    buffer_free(&copy);
    return 0;
  }
  const char *end = NULL, *where = NULL;
  bool retried = false;
  uint32_t caught = message_blank_caught(copy.data, copy.length, &end, &retried);
  message m = message_blank();
  if (caught > 0) where = read_clean(&m, whole(&copy), whole(&copy));
  bool kill = m.host == HOST_KILLED || m.host == HOST_KERNEL || m.host == HOST_CONTAINER ||
              m.host == HOST_JOB;
  bool fatal = where != NULL && where > end && m.kind != MESSAGE_FOREIGN &&
               (kill || message_is_error(scan_line(whole(&copy), where)));
  /* What was tried again must have worked for a while. */
  if (fatal && retried) {
    const char *line = scan_line(whole(&copy), where).at;
    scan_text between = {end, message_frames_before((scan_text){end, line})};
    fatal = scan_has_any(between, progress_words, sizeof progress_words / sizeof *progress_words);
  }
  if (fatal) memcpy(clean->data, copy.data, copy.length);
  buffer_free(&copy);
  return fatal ? caught : 0;
}

/* Returns whether only lines of TensorFlow's allocator without a refusal are left. */
static bool is_harmless(const message *m, scan_text t) {
  static const char *const failures[] = {"xhausted", "XHAUSTED",      "OOM when",  "OUT_OF_MEMORY",
                                         "rror:",    "out of memory", "Dst tensor"};
  return !scan_has_any(t, failures, sizeof failures / sizeof *failures) &&
         (m->kind == MESSAGE_TENSORFLOW || m->kind == MESSAGE_XLA) &&
         m->asked_bytes == MESSAGE_UNKNOWN && m->details == 0;
}

/* Reads what a notebook shows besides its outputs: the source of the cell that failed. */
static void read_source(message *m, scan_text file) {
  buffer source = BUFFER_INIT;
  bool failed = false;
  if (notebook_source(&source, file, &failed) == STOW_OK && source.data != NULL)
    context_read_source(&m->context, whole(&source));
  if (!failed && m->kind == MESSAGE_NONE) m->details |= MESSAGE_CLEAN;
  buffer_free(&source);
}

void message_read(message *m, const char *text, size_t count) {
  buffer first = BUFFER_INIT, outputs = BUFFER_INIT, second = BUFFER_INIT, clean = BUFFER_INIT;
  *m = message_blank();
  if (count == 0) return;
  scan_text raw = decoded(&first, &outputs, &second, (scan_text){text, text + count});
  /* Without memory for a copy, the original is parsed. */
  bool copied = clean_text(&clean, raw) == STOW_OK && clean.data != NULL;
  scan_text t = copied ? whole(&clean) : raw;
  uint64_t harmless_bytes = MESSAGE_UNKNOWN;
  uint32_t harmless = copied ? without_harmless(&clean, &harmless_bytes) : 0;
  uint32_t caught = copied ? without_caught(&clean) : 0;
  if (copied) without_mentions(&clean);
  if (!read_first(m, t, raw)) {
    context_read(&m->context, last_part(t), last_part(raw));
    const char *where = read_whole(m, t, raw);
    if (where != NULL && m->failures > 1) read_failed_batch(m, (scan_text){where, t.end});
    if (where != NULL && message_is_device(m->kind))
      read_passed_batch(m, (scan_text){where, t.end});
  }
  scan_text file = first.data != NULL ? whole(&first) : (scan_text){text, text + count};
  if (notebook_is(file)) read_source(m, file);
  if (caught == 0) read_skipped(m, t); /* else a later failure ended the program */
  if (caught > 0 && m->kind != MESSAGE_NONE && m->kind != MESSAGE_FOREIGN) {
    m->failures = (m->failures > 0 ? m->failures : 1) + caught;
    m->caught = caught;
  }
  if (harmless > 0 && (m->kind == MESSAGE_NONE || is_harmless(m, t))) {
    m->kind = MESSAGE_FOREIGN;
    m->host = HOST_NONE;
    m->details = MESSAGE_WARNING;
    m->asked_bytes = harmless_bytes;
    m->failures = 0;
    m->name = "TensorFlow tried a faster way that needs more memory, and went on without it";
    m->help = "nothing must be changed; a smaller batch, or nobody else on the device "
              "(nvidia-smi), may make it faster; TF_CPP_MIN_LOG_LEVEL=2 hides such warnings";
  }
  buffer_free(&clean);
  buffer_free(&second);
  buffer_free(&outputs);
  buffer_free(&first);
}

bool message_device_is_limit(const message *m) {
  uint64_t held = m->process_bytes == MESSAGE_UNKNOWN ? 0 : m->process_bytes;
  for (uint32_t i = 0; i < m->process_count; i++) held += m->processes[i].bytes;
  /* The numbers are rounded. */
  return m->device_bytes != MESSAGE_UNKNOWN && m->process_count > 0 &&
         held > m->device_bytes + m->device_bytes / 50;
}

bool message_is_device(message_kind kind) {
  return kind != MESSAGE_NONE && kind != MESSAGE_HOST && kind != MESSAGE_FOREIGN;
}

const char *message_reporter(const message *m) {
  scan_text what = {m->what, m->what + strlen(m->what)};
  uint64_t traits = m->context.traits;
  bool own = m->kind == MESSAGE_CUDA || m->kind == MESSAGE_RMM;
  if (own && (traits & TRAIT_XGBOOST) != 0) return "XGBoost";
  if (own && (traits & TRAIT_LIGHTGBM) != 0) return "LightGBM";
  if (own && (traits & TRAIT_FAISS) != 0) return "Faiss";
  if ((m->details & MESSAGE_UNNAMED) != 0) return "The program";
  if (m->kind != MESSAGE_CUDA || context_any(&m->context, CONTEXT_BIT(NVIDIA)))
    return message_kind_name(m->kind);
  return context_any(&m->context, CONTEXT_BIT(AMD))          ? "HIP"
         : context_any(&m->context, CONTEXT_BIT(MATLAB))     ? "MATLAB"
         : (m->context.programs & PROGRAM_WGPU) != 0         ? "wgpu"
         : (m->context.programs & PROGRAM_HASHCAT) != 0      ? "hashcat"
         : context_any(&m->context, CONTEXT_BIT(INTEL))      ? "Level Zero"
         : context_any(&m->context, CONTEXT_BIT(NPU))        ? "The NPU's driver"
         : (traits & TRAIT_OPENCL) != 0                      ? "OpenCL"
         : context_any(&m->context, CONTEXT_BIT(ANY_VENDOR)) ? "Vulkan or DirectX"
         : context_any(&m->context, CONTEXT_BIT(TORCH))      ? "PyTorch"
         : scan_has(what, "CUDA") || scan_has(what, "cuda")  ? "CUDA"
                                                             : "The program";
}

const char *message_kind_name(message_kind kind) {
  static const char *const names[MESSAGE_KIND_COUNT] = {
      [MESSAGE_NONE] = "unknown",      [MESSAGE_TORCH] = "PyTorch",
      [MESSAGE_XLA] = "JAX or XLA",    [MESSAGE_TENSORFLOW] = "TensorFlow",
      [MESSAGE_CUPY] = "CuPy",         [MESSAGE_CUDA] = "CUDA",
      [MESSAGE_ONNX] = "ONNX Runtime", [MESSAGE_NUMBA] = "Numba",
      [MESSAGE_RMM] = "RAPIDS",        [MESSAGE_PADDLE] = "Paddle",
      [MESSAGE_TENSORRT] = "TensorRT", [MESSAGE_CTRANSLATE] = "CTranslate2",
      [MESSAGE_LLAMA] = "llama.cpp",   [MESSAGE_VLLM] = "vLLM",
      [MESSAGE_SGLANG] = "SGLang",     [MESSAGE_TGI] = "Text Generation Inference",
      [MESSAGE_MLX] = "MLX",           [MESSAGE_DIRECTML] = "DirectML",
      [MESSAGE_JULIA] = "CUDA.jl",     [MESSAGE_DISPATCH] = "Transformers",
      [MESSAGE_HOST] = "the host",     [MESSAGE_FOREIGN] = "another error"};
  return kind < MESSAGE_KIND_COUNT ? names[kind] : "unknown";
}
