/* Message: one pass for each framework's words, the most particular first. */
#include "advise/message.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *message_find(message_text t, const char *words) {
  size_t length = strlen(words);
  if ((size_t)(t.end - t.at) < length) return NULL;
  const char *found = memmem(t.at, (size_t)(t.end - t.at), words, length);
  return found != NULL ? found + length : NULL;
}

static const char *skip_spaces(message_text t, const char *at) {
  while (at < t.end && (*at == ' ' || *at == '\t')) at++;
  return at;
}

/* The factor of a unit, and past it; 1 where none is written. */
static double unit_factor(message_text t, const char **at) {
  static const struct {
    const char *name;
    double factor;
  } units[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"PiB", 0x1p50},
               {"EiB", 0x1p60}, {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
               {"Ki", 0x1p10},  {"Mi", 0x1p20},  {"Gi", 0x1p30},  {"K", 0x1p10},   {"M", 0x1p20},
               {"G", 0x1p30},   {"kB", 0x1p10}, /* the kernel's */
               {"bytes", 1},    {"Bytes", 1},    {"byte", 1},     {"B", 1},        {"b", 1}};
  const char *p = skip_spaces(t, *at);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    size_t length = strlen(units[i].name);
    if ((size_t)(t.end - p) < length || memcmp(p, units[i].name, length) != 0) continue;
    if (p + length < t.end && isalpha((unsigned char)p[length])) continue;
    *at = p + length;
    return units[i].factor;
  }
  return 1;
}

uint64_t message_size(message_text t, const char *at) {
  if (at == NULL) return MESSAGE_UNKNOWN;
  at = skip_spaces(t, at);
  if (at >= t.end || !isdigit((unsigned char)*at)) return MESSAGE_UNKNOWN;
  double value = 0, scale = 1;
  bool fraction = false;
  for (; at < t.end; at++) {
    if (isdigit((unsigned char)*at)) {
      value = value * 10 + (*at - '0');
      if (fraction) scale *= 10;
    } else if (*at == '.' && !fraction && at + 1 < t.end && isdigit((unsigned char)at[1])) {
      fraction = true;
    } else if (*at != ',' || fraction || at + 1 >= t.end || !isdigit((unsigned char)at[1])) {
      break;
    }
  }
  if (at + 1 < t.end && *at == '.' && at[1] == ' ') at++; /* NumPy writes "745. GiB" */
  double bytes = value / scale * unit_factor(t, &at);
  return bytes < 0x1p62 ? (uint64_t)(bytes + 0.5) : MESSAGE_UNKNOWN;
}

uint64_t message_size_after(message_text t, const char *words) {
  return message_size(t, message_find(t, words));
}

/* A whole number at `at`; UINT32_MAX if there is none. */
static uint32_t number_at(message_text t, const char *at) {
  if (at == NULL || at >= t.end || !isdigit((unsigned char)*at)) return UINT32_MAX;
  uint64_t value = 0;
  for (; at < t.end && isdigit((unsigned char)*at) && value < UINT32_MAX; at++)
    value = value * 10 + (uint64_t)(*at - '0');
  return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

/* The text from `at` to one of `ends`, at most what fits. */
static void copy_until(message *m, message_text t, const char *at, const char *ends) {
  size_t length = 0;
  while (at + length < t.end && length + 1 < sizeof m->what && strchr(ends, at[length]) == NULL &&
         (unsigned char)at[length] >= ' ')
    length++;
  memcpy(m->what, at, length);
  m->what[length] = '\0';
}

/* ---- PyTorch ---- */

/* "Process 728 has 120.51 GiB memory in use." for each other process. */
static void torch_processes(message *m, message_text t) {
  const char *at = t.at;
  while ((at = message_find((message_text){at, t.end}, "Process ")) != NULL) {
    uint32_t pid = number_at(t, at);
    const char *has = message_find((message_text){at, t.end}, " has ");
    if (pid == UINT32_MAX || has == NULL || has - at > 16) continue;
    uint64_t bytes = message_size(t, has);
    if (bytes == MESSAGE_UNKNOWN || m->process_count == MESSAGE_PROCESSES_MAX) continue;
    m->processes[m->process_count++] = (message_process){pid, bytes};
  }
}

/* The size that stands just before `words`: back over its unit, a space, its digits. */
static uint64_t size_before(message_text t, const char *words) {
  const char *at = message_find(t, words);
  if (at == NULL) return MESSAGE_UNKNOWN;
  at -= strlen(words);
  while (at > t.at && isalpha((unsigned char)at[-1])) at--;
  while (at > t.at && at[-1] == ' ') at--;
  while (at > t.at && (isdigit((unsigned char)at[-1]) || at[-1] == '.')) at--;
  return message_size(t, at);
}

/* In a container the process does not know its own number, and stands among the others: it is the
 * one that holds what PyTorch has reserved, and least besides. */
static void torch_own_process(message *m) {
  if (m->process_bytes != MESSAGE_UNKNOWN || m->live_bytes == MESSAGE_UNKNOWN ||
      m->cached_bytes == MESSAGE_UNKNOWN)
    return;
  uint32_t own = UINT32_MAX;
  for (uint32_t i = 0; i < m->process_count; i++)
    if (m->processes[i].bytes >= m->live_bytes + m->cached_bytes &&
        (own == UINT32_MAX || m->processes[i].bytes < m->processes[own].bytes))
      own = i;
  if (own == UINT32_MAX) return;
  m->process_bytes = m->processes[own].bytes;
  m->processes[own] = m->processes[--m->process_count];
}

/* "MPS backend out of memory (MPS allocated: 17.21 GiB, other allocations: 412.33 MiB, max allowed:
 * 18.13 GiB). Tried to allocate 1.22 GiB on private pool." */
static void read_apple(message *m, message_text t) {
  m->no_history = true;
  m->live_bytes = message_size_after(t, "MPS allocated: ");
  m->limit_bytes = message_size_after(t, "max allowed: ");
}

static bool read_torch(message *m, message_text t) {
  const char *tried = message_find(t, "Tried to allocate ");
  bool device = message_find(t, "out of memory") != NULL || message_find(t, "OutOfMemory") != NULL;
  if (tried == NULL || !device || message_find(t, "you tried to allocate") != NULL) return false;
  m->kind = MESSAGE_TORCH;
  m->asked_bytes = message_size(t, tried);
  m->device = number_at(t, message_find(t, "GPU "));
  if (message_find(t, "MPS backend out of memory") != NULL) {
    read_apple(m, t);
    return true;
  }
  m->card_bytes = message_size_after(t, "has a total capacity of ");
  if (m->card_bytes == MESSAGE_UNKNOWN) /* as 2.0 to 2.2 spell it */
    m->card_bytes = message_size_after(t, "has a total capacty of ");
  m->free_bytes = message_size_after(t, " of which ");
  m->process_bytes = message_size_after(t, "this process has ");
  m->live_bytes = message_size_after(t, "Of the allocated memory ");
  /* "…, with 512.00 MiB allocated in private pools (e.g., CUDA Graphs), and …" may come between. */
  m->cached_bytes = size_before(t, " is reserved by PyTorch but unallocated");
  torch_processes(m, t);
  torch_own_process(m);
  m->limit_bytes = size_before(t, " allowed; Of the");
  if (m->card_bytes != MESSAGE_UNKNOWN) return true;
  /* Before 2.1: "(GPU 0; 15.78 GiB total capacity; 14.21 GiB already allocated; 24.75 MiB free;
   * 14.42 GiB reserved in total by PyTorch)". */
  const char *paren = message_find(t, "(GPU ");
  const char *semicolon = paren != NULL ? message_find((message_text){paren, t.end}, "; ") : NULL;
  if (semicolon == NULL) return true;
  m->device = number_at(t, paren);
  m->card_bytes = message_size(t, semicolon);
  const char *next = message_find((message_text){semicolon, t.end}, "capacity; ");
  m->live_bytes = message_size(t, next);
  next = next != NULL ? message_find((message_text){next, t.end}, "allocated; ") : NULL;
  m->free_bytes = message_size(t, next);
  next = next != NULL ? message_find((message_text){next, t.end}, "free; ") : NULL;
  if (message_find(t, "B cached)") != NULL) { /* before 1.4: only what is not allocated */
    m->cached_bytes = message_size(t, next);
    return true;
  }
  m->reserved_bytes = message_size(t, next);
  if (m->reserved_bytes != MESSAGE_UNKNOWN && m->live_bytes != MESSAGE_UNKNOWN &&
      m->reserved_bytes >= m->live_bytes)
    m->cached_bytes = m->reserved_bytes - m->live_bytes;
  return true;
}

/* ---- JAX, XLA, TensorFlow ---- */

static uint64_t dtype_width(message_text t) {
  static const struct {
    const char *word;
    uint64_t width;
  } widths[] = {{"type double", 8},   {"type float64", 8}, {"type int64", 8}, {"type half", 2},
                {"type bfloat16", 2}, {"type float16", 2}, {"type bool", 1},  {"type uint8", 1},
                {"type int8", 1},     {"type complex", 8}};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    if (message_find(t, widths[i].word) != NULL) return widths[i].width;
  return 4;
}

/* "OOM when allocating tensor with shape[1000,1000,1000] and type float on …" */
static void tensorflow_shape(message *m, message_text t) {
  const char *at = message_find(t, "tensor with shape[");
  if (at == NULL) at = message_find(t, "tensor with shape [");
  if (at == NULL) return;
  copy_until(m, t, at, "]");
  double bytes = (double)dtype_width((message_text){at, t.end});
  for (const char *p = at; p < t.end && *p != ']';) {
    if (!isdigit((unsigned char)*p)) {
      p++;
      continue;
    }
    double dim = 0;
    for (; p < t.end && isdigit((unsigned char)*p); p++) dim = dim * 10 + (*p - '0');
    bytes *= dim;
    if (m->rank++ == 0) m->first_dim = dim < UINT32_MAX ? (uint32_t)dim : UINT32_MAX;
  }
  if (bytes < 0x1p62) m->shape_bytes = (uint64_t)bytes;
  if (m->asked_bytes == MESSAGE_UNKNOWN) m->asked_bytes = m->shape_bytes;
}

/* "Peak buffers: Buffer 1: Size: 2.00GiB  Operator: op_name="jit(f)/dot" source_file="f.py"
 * source_line=17": the largest comes first. */
static void xla_buffers(message *m, message_text t) {
  m->temporary_bytes = message_size_after(t, "preallocated temp allocation:");
  uint64_t in = message_size_after(t, "parameter allocation:");
  uint64_t out = message_size_after(t, "maybe_live_out allocation:");
  if (in != MESSAGE_UNKNOWN) m->given_bytes = in + (out != MESSAGE_UNKNOWN ? out : 0);
  const char *first = message_find(t, "Buffer 1:");
  if (first == NULL) return;
  const char *second = message_find((message_text){first, t.end}, "Buffer 2:");
  message_text buffer = {first, second != NULL ? second : t.end};
  m->largest_bytes = message_size_after(buffer, "Size:");
  const char *name = message_find(buffer, "op_name=\"");
  if (name == NULL) return;
  copy_until(m, t, name, "\"");
  const char *file = message_find(buffer, "source_file=\"");
  uint32_t line = number_at(t, message_find(buffer, "source_line="));
  size_t length = strlen(m->what);
  int place = 0;
  while (file != NULL && file + place < buffer.end && file[place] != '"') place++;
  if (file != NULL && line != UINT32_MAX)
    snprintf(m->what + length, sizeof m->what - length, " at %.*s:%u", place, file, line);
}

static bool read_xla(message *m, message_text t) {
  bool exhausted = message_find(t, "RESOURCE_EXHAUSTED") != NULL ||
                   message_find(t, "ResourceExhaustedError") != NULL;
  bool dump = message_find(t, "BFC") != NULL || message_find(t, "bfc_allocator") != NULL;
  /* XLA's files lie in a folder of TensorFlow's in some versions. */
  bool jax = message_find(t, "jax") != NULL || message_find(t, "pjrt") != NULL;
  bool tensorflow = message_find(t, "OOM when allocating tensor") != NULL ||
                    (message_find(t, "tensorflow") != NULL && !jax) ||
                    message_find(t, "ResourceExhaustedError") != NULL;
  if (!exhausted && !dump) return false;
  m->kind = tensorflow ? MESSAGE_TENSORFLOW : MESSAGE_XLA;
  m->asked_bytes = message_size_after(t, "while trying to allocate ");
  if (m->asked_bytes == MESSAGE_UNKNOWN)
    m->asked_bytes = message_size_after(t, "Failed to allocate request for ");
  if (m->asked_bytes == MESSAGE_UNKNOWN) {
    const char *ran = message_find(t, "ran out of memory trying to allocate ");
    m->asked_bytes = message_size(t, ran);
    /* "1.53GiB (rounded to 1644167168)": the second is exact to an allocation's grain. */
    uint64_t exact = ran != NULL ? message_size_after(t, "(rounded to ") : MESSAGE_UNKNOWN;
    if (exact != MESSAGE_UNKNOWN) m->asked_bytes = exact;
  }
  xla_buffers(m, t);
  tensorflow_shape(m, t);
  message_bfc(m, t);
  /* On the processor: TensorFlow names the allocator, XLA's client there has words of its own. */
  uint64_t on_host = message_size_after(t, "RESOURCE_EXHAUSTED: Out of memory allocating ");
  if (on_host != MESSAGE_UNKNOWN || message_find(t, "device:CPU:0 by allocator ") != NULL) {
    if (on_host != MESSAGE_UNKNOWN) m->asked_bytes = on_host;
    m->kind = MESSAGE_HOST;
    m->host = HOST_TORCH; /* as a framework's tensors are */
  }
  return true;
}

/* ---- CuPy and CUDA itself ---- */

static bool read_cupy(message *m, message_text t) {
  const char *at = message_find(t, "Out of memory allocating ");
  if (at == NULL || message_find(t, "RESOURCE_EXHAUSTED") != NULL) return false;
  m->kind = MESSAGE_CUPY;
  m->asked_bytes = message_size(t, at);
  /* The pool gives its free blocks back before it gives up: what it has left is in use. */
  m->live_bytes = m->reserved_bytes = message_size_after(t, "allocated so far: ");
  m->limit_bytes = message_size_after(t, "limit set to: ");
  return true;
}

/* "Failed to allocate memory for requested buffer of size 536870912", by its BFCArena. */
static bool read_onnx(message *m, message_text t) {
  const char *at = message_find(t, "memory for requested buffer of size ");
  if (at == NULL) return false;
  m->kind = MESSAGE_ONNX;
  m->asked_bytes = message_size(t, at);
  return true;
}

static bool read_cuda(message *m, message_text t) {
  static const char *const words[] = {"CUDA_ERROR_OUT_OF_MEMORY",
                                      "CUBLAS_STATUS_ALLOC_FAILED",
                                      "CUDNN_STATUS_ALLOC_FAILED",
                                      "CUFFT_ALLOC_FAILED",
                                      "cudaErrorMemoryAllocation",
                                      "CUDA out of memory",
                                      "CUDA error: out of memory",
                                      "cuda error: out of memory",
                                      "cudaMalloc failed: out of memory",
                                      "std::bad_alloc: out_of_memory",
                                      "cuMemAlloc",
                                      "cuMemCreate",
                                      "cudaMalloc"};
  const char *at = NULL;
  size_t i = 0;
  while (i < sizeof words / sizeof *words && (at = message_find(t, words[i])) == NULL) i++;
  if (at == NULL) return false;
  bool only_name = i + 3 >= sizeof words / sizeof *words; /* the call's name: it must have failed */
  if (only_name && message_find(t, "failed") == NULL && message_find(t, "error") == NULL)
    return false;
  m->kind = MESSAGE_CUDA;
  static const char *const sizes[] = {"cuMemAlloc of ",      "failed to allocate ",
                                      "Failed to allocate ", "tried to allocate ",
                                      "allocating ",         "allocate "};
  for (i = 0; i < sizeof sizes / sizeof *sizes && m->asked_bytes == MESSAGE_UNKNOWN; i++)
    m->asked_bytes = message_size_after(t, sizes[i]);
  return true;
}

/* ---- the host ---- */

/* "Killed process 8123 (python3) total-vm:21474836kB, anon-rss:8123456kB, …" */
static void read_killed(message *m, message_text t) {
  m->process_bytes = message_size_after(t, "anon-rss:");
  m->grouped = message_find(t, "Memory cgroup out of memory") != NULL ||
               message_find(t, "CONSTRAINT_MEMCG") != NULL;
  const char *process = message_find(t, "Killed process ");
  const char *name = process != NULL ? message_find((message_text){process, t.end}, "(") : NULL;
  if (name != NULL && name - process < 16) copy_until(m, t, name, ")");
}

static bool read_host(message *m, message_text t) {
  static const struct {
    const char *words;
    message_host host;
  } all[] = {
      {"DefaultCPUAllocator", HOST_TORCH},
      {"Unable to allocate ", HOST_NUMPY},
      {"session crashed after using all available RAM", HOST_NOTEBOOK},
      {"tried to allocate more memory than is available", HOST_NOTEBOOK}, /* Kaggle's */
      {"DataLoader worker (pid", HOST_WORKER},
      {"insufficient shared memory", HOST_WORKER},
      {"unable to allocate shared memory", HOST_WORKER},
      {"ut of memory: Kill", HOST_KILLED}, /* "Memory cgroup out of memory: Killed process" */
      {"oom-kill", HOST_KILLED},
      {"MemoryError", HOST_PYTHON},
      {"std::bad_alloc", HOST_PYTHON},
      {"Cannot allocate memory", HOST_PYTHON},
      {"The kernel appears to have died", HOST_DIED},
      {"exit code 137", HOST_KILLED},
      {"signal 9", HOST_KILLED},
      {"SIGKILL", HOST_KILLED},
      {"Killed", HOST_KILLED}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const char *at = message_find(t, all[i].words);
    if (at == NULL) continue;
    m->kind = MESSAGE_HOST;
    m->host = all[i].host;
    if (all[i].host == HOST_NUMPY) {
      m->asked_bytes = message_size(t, at);
      const char *shape = message_find((message_text){at, t.end}, "for an array with ");
      if (shape != NULL) copy_until(m, t, shape, "\n");
    }
    if (all[i].host == HOST_TORCH) m->asked_bytes = message_size_after(t, "you tried to allocate ");
    if (all[i].host == HOST_KILLED) read_killed(m, t);
    /* the Python package's own line */
    m->host_bytes = message_size_after(t, "host memory in all: ");
    /* report.py's own line, after the error of a program that stowage run watched */
    m->limit_bytes = message_size_after(t, " of the process is limited to ");
    return true;
  }
  return false;
}

void message_read(message *m, const char *text, size_t count) {
  *m = (message){.asked_bytes = MESSAGE_UNKNOWN,
                 .card_bytes = MESSAGE_UNKNOWN,
                 .free_bytes = MESSAGE_UNKNOWN,
                 .process_bytes = MESSAGE_UNKNOWN,
                 .limit_bytes = MESSAGE_UNKNOWN,
                 .host_bytes = MESSAGE_UNKNOWN,
                 .live_bytes = MESSAGE_UNKNOWN,
                 .cached_bytes = MESSAGE_UNKNOWN,
                 .reserved_bytes = MESSAGE_UNKNOWN,
                 .shape_bytes = MESSAGE_UNKNOWN,
                 .temporary_bytes = MESSAGE_UNKNOWN,
                 .given_bytes = MESSAGE_UNKNOWN,
                 .largest_bytes = MESSAGE_UNKNOWN,
                 .device = UINT32_MAX};
  message_text t = {text, text + count};
  if (read_torch(m, t) || read_cupy(m, t) || read_onnx(m, t) || read_xla(m, t)) return;
  if (message_find(t, "DefaultCPUAllocator") == NULL && read_cuda(m, t)) return;
  read_host(m, t);
}

bool message_card_is_limit(const message *m) {
  uint64_t held = m->process_bytes == MESSAGE_UNKNOWN ? 0 : m->process_bytes;
  for (uint32_t i = 0; i < m->process_count; i++) held += m->processes[i].bytes;
  /* The numbers are rounded. */
  return m->card_bytes != MESSAGE_UNKNOWN && m->process_count > 0 &&
         held > m->card_bytes + m->card_bytes / 50;
}

const char *message_kind_name(message_kind kind) {
  switch (kind) {
  case MESSAGE_TORCH: return "PyTorch";
  case MESSAGE_XLA: return "JAX or XLA";
  case MESSAGE_TENSORFLOW: return "TensorFlow";
  case MESSAGE_CUPY: return "CuPy";
  case MESSAGE_CUDA: return "CUDA";
  case MESSAGE_ONNX: return "ONNX Runtime";
  case MESSAGE_HOST: return "the host";
  case MESSAGE_NONE: break;
  }
  return "unknown";
}
