/* Libraries and servers whose texts have their own numbers: one short reader each, in one table.
 *
 * A reader is called if one of its signs is in the text. It may decline by returning false. */
#include <ctype.h>
#include <string.h>

#include "advise/message_parts.h"

#define LIVE_MOST   (UINT64_C(8) << 40) /* no device has as much */
#define TOKENS_SURE 0.97                /* of the estimate; the sizes are rounded */
#define TOKENS_MOST (UINT64_C(1) << 40)

/* Returns the part of one whose digits after "0." begin at `at`, or 0 if there are none. */
static double share_at(scan_text t, const char *at) {
  double share = 0, scale = 10;
  for (; at != NULL && at < t.end && *at >= '0' && *at <= '9' && scale < 1e6; at++, scale *= 10)
    share += (*at - '0') / scale;
  return share;
}

/* Older versions give the sizes alone: a cache grows with its tokens. */
static void estimate_tokens(message *m) {
  if (known(m->cache_tokens) || !known(m->wanted_tokens) || !known(m->asked_bytes) ||
      !known(m->free_bytes) || m->free_bytes >= m->asked_bytes)
    return;
  double part = (double)m->free_bytes / (double)m->asked_bytes;
  uint64_t tokens = (uint64_t)((double)m->wanted_tokens * part * TOKENS_SURE) / 256 * 256;
  if (m->wanted_tokens > TOKENS_MOST || tokens == 0) return;
  m->cache_tokens = tokens;
  m->details |= MESSAGE_ABOUT;
}

/* "Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization
 * (0.95, 45.01 GiB)"; "max seq len (4096) is larger than … stored in KV cache (3664)"; "4.00 GiB KV
 * cache is needed, which is larger than the available KV cache memory (1.62 GiB)". */
static bool read_vllm(message *m, scan_text t) {
  /* "Initial free memory 39.20 GiB, current free memory 41.50 GiB"; bytes in older versions */
  const char *measured = scan_find(t, "Error in memory profiling.");
  if (measured != NULL) {
    m->before_bytes = scan_size_after(scan_from(t, measured), "Initial free memory ");
    m->free_bytes = scan_size_after(scan_from(t, measured), "current free memory ");
    return known(m->before_bytes) && known(m->free_bytes);
  }
  const char *start = scan_find(t, "Free memory on device");
  const char *open = start != NULL ? scan_find(scan_from(t, start), "(") : NULL;
  if (open != NULL) {
    const char *slash = scan_find(scan_from(t, open), "/");
    const char *wanted = scan_find(scan_from(t, open), "utilization (");
    const char *comma = wanted != NULL ? scan_find(scan_from(t, wanted), ", ") : NULL;
    m->device_bytes = scan_size(t, slash);
    m->asked_bytes = scan_size(t, comma);
    uint64_t whole = scan_number(t, open);
    const char *dot = scan_find(scan_from(t, open), ".");
    /* Only the second number has a unit. */
    if (known(whole) && dot != NULL && slash != NULL && dot < slash) {
      double part = 0, scale = 1;
      for (const char *p = dot; p < slash && *p >= '0' && *p <= '9'; p++, scale *= 10)
        part = part * 10 + (*p - '0');
      double gib = (double)whole + part / scale;
      m->free_bytes = gib < 1e6 ? (uint64_t)(gib * 0x1p30 + 0.5) : MESSAGE_UNKNOWN;
    }
    m->details |= MESSAGE_START;
    return true;
  }
  m->details |= MESSAGE_KV_CACHE;
  /* "total_gpu_memory (8.00GiB) x gpu_memory_utilization (0.70) = 5.60GiB" */
  m->device_bytes = scan_size_after(t, "total_gpu_memory (");
  m->share = share_at(t, scan_find(t, "gpu_memory_utilization (0."));
  m->wanted_tokens = scan_number_after(t, "max seq len (");
  m->cache_tokens = scan_number_after(t, "stored in KV cache (");
  if (scan_has(t, "KV cache is needed")) {
    m->asked_bytes = scan_size_before(t, " KV cache is needed");
    m->free_bytes = scan_size_after(t, "available KV cache memory (");
  }
  if (!known(m->cache_tokens)) m->cache_tokens = scan_number_after(t, "maximum model length is ");
  estimate_tokens(m);
  return true;
}

/* "CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try
 * lowering `max_num_seqs` or `gpu_memory_utilization`" */
static bool read_warm_up(message *m, scan_text t) {
  (void)t;
  m->details |= MESSAGE_COMPUTE;
  return true;
}

/* "Current value: self.server_args.mem_fraction_static=0.2"; "under --mem-fraction-static=0.88.
 * Raise --mem-fraction-static to at least 0.9113" */
static bool read_sglang(message *m, scan_text t) {
  /* "Load weight end. type=…, avail mem=21.73 GB, mem usage=166.59 GB."; its GB are 1024 MB */
  const char *loaded = scan_find(t, "Load weight end");
  if (loaded != NULL) {
    m->free_bytes = scan_size_binary_after(scan_line(t, loaded), "avail mem=");
    m->live_bytes = scan_size_binary_after(scan_line(t, loaded), "mem usage=");
  }
  const char *begin = scan_find(t, "Load weight begin");
  if (begin != NULL && known(m->live_bytes)) {
    uint64_t whole = scan_size_binary_after(scan_line(t, begin), "avail mem=");
    if (known(whole) && m->live_bytes < whole)
      m->share_needed = (double)m->live_bytes / (double)whole;
  }
  m->share = share_at(t, scan_find(t, "mem_fraction_static=0."));
  if (m->share == 0) m->share = share_at(t, scan_find(t, "--mem-fraction-static=0."));
  double least = share_at(t, scan_find(t, "at least 0."));
  if (least > 0) m->share_needed = least;
  /* Its pool of tokens is full, not the device: "Try to allocate 8192 tokens. Available full
   * tokens: 7936"; "alloc_token_slots runs out of memory. … Available tokens: 16" */
  bool tokens = scan_has(t, "refill out of memory") || scan_has(t, "ecode out of memory") ||
                scan_has(t, "token_slots runs out of memory");
  bool requests = scan_has(t, "req_slots runs out of memory");
  m->details |= tokens ? MESSAGE_POOL : requests ? MESSAGE_COMPUTE : MESSAGE_KV_CACHE;
  if (!tokens) return true;
  m->wanted_tokens = scan_number_after(t, "ry to allocate ");
  m->cache_tokens = scan_number_after(t, "vailable full tokens: ");
  if (!known(m->cache_tokens)) m->cache_tokens = scan_number_after(t, "vailable tokens: ");
  return true;
}

/* "Failed to allocate memory for batch_prefill_tmp_v with size 435814400 and alignment 16 in
 * AlignedAllocator": FlashInfer divides a buffer of a fixed size, and this step needs more. */
static bool read_workspace(message *m, scan_text t) {
  const char *at = scan_find(t, "Failed to allocate memory for ");
  if (at == NULL) at = scan_find(t, "Out of workspace memory");
  if (at == NULL) return false;
  const context *c = &m->context;
  m->kind = context_any(c, CONTEXT_BIT(SGLANG)) ? MESSAGE_SGLANG
            : context_any(c, CONTEXT_BIT(VLLM)) ? MESSAGE_VLLM
                                                : MESSAGE_CUDA;
  m->asked_bytes = scan_size_after(scan_from(t, at), " size ");
  m->details |= MESSAGE_WORKSPACE;
  m->context.seen |= CONTEXT_BIT(NVIDIA);
  return true;
}

/* "Not enough memory to handle 16000 total tokens with 4096 prefill tokens." */
static bool read_tgi(message *m, scan_text t) {
  m->details |= MESSAGE_KV_CACHE;
  message_serve_tokens(m, t);
  m->details &= ~(uint32_t)MESSAGE_COMPUTE;
  return true;
}

static bool read_onnx(message *m, scan_text t) {
  m->asked_bytes = scan_size_after(t, "requested buffer of size ");
  bool device = scan_has(t, "CUDA") || scan_has(t, "Tensorrt") || scan_has(t, "ROCM") ||
                scan_has(t, "Dml") || scan_has(t, "OpenVINO");
  /* The arena of the host; only its provider makes nodes with a name in "_nchwc". */
  if ((scan_has(t, "CPUExecutionProvider") || scan_has(t, "_nchwc'")) && !device) {
    m->kind = MESSAGE_HOST;
    m->host = HOST_TORCH;
  }
  return true;
}

/* Returns whether an engine was being read from its file: what did not fit are its weights. */
static bool loads_engine(scan_text t) {
  static const char *const signs[] = {"ailed to deserialize",
                                      "[deserialize.cpp::", "deserializeCudaEngine"};
  return scan_has_any(t, signs, sizeof signs / sizeof *signs);
}

static bool read_tensorrt(message *m, scan_text t) {
  static const char *const signs[] = {"OutOfMemory",
                                      "out of memory",
                                      "could not be allocated",
                                      "insufficient memory",
                                      "insufficient to use tactic",
                                      "insuficient memory"}; /* as 8.2 spells it */
  bool memory = false;
  for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) memory |= scan_has(t, signs[i]);
  if (!memory) return false;
  m->asked_bytes =
      FIRST_SIZE(t, "amount of GPU memory (", "amount of memory (", "on requested size of ",
                 "allocator error allocating ", "OutOfMemory (Requested size was ");
  if (scan_has(t, "Tactic Device request: ")) { /* "538MB Available: 166MB", powers of 1024 */
    m->asked_bytes = scan_size_binary_after(t, "Tactic Device request: ");
    m->free_bytes = scan_size_binary_after(t, "Available: ");
    if (!scan_has(t, "OutOfMemory") && !scan_has(t, "could not be allocated"))
      m->details |= MESSAGE_WARNING;
  }
  if (scan_has(t, "orkspace") || scan_has(t, "tactic"))
    m->details |= MESSAGE_WORKSPACE;
  else if (loads_engine(t))
    m->details |= MESSAGE_WEIGHTS;
  /* A layer for which every kernel was skipped: their workspace may not be so large. */
  bool refused = scan_has(t, "OutOfMemory") || scan_has(t, "could not be allocated") ||
                 scan_has(t, "out of memory");
  if (!refused && scan_has(t, "Could not find any implementation")) m->details |= MESSAGE_POOL;
  return true;
}

/* Parses a number that is followed by no unit, because its name gives it: "memory (GiB): 79.11". */
static uint64_t gib_after(scan_text t, const char *words) {
  const char *at = scan_find(t, words);
  uint64_t whole = scan_number(t, at);
  if (!known(whole) || whole > 1 << 20) return MESSAGE_UNKNOWN;
  while (at < t.end && *at != '.' && *at != '\n') at++;
  double part = at < t.end && *at == '.' ? share_at(t, at + 1) : 0;
  return (uint64_t)(((double)whole + part) * 0x1p30);
}

/* "Some GPUs may be occupied by other processes. min_per_gpu_memory=5.43, local_gpu_memory=23.09",
 * in GiB: what is free on the fullest device, and on this one */
static bool read_unbalanced(message *m, scan_text t) {
  m->details |= MESSAGE_START;
  m->free_bytes = gib_after(t, "min_per_gpu_memory=");
  if (!known(m->free_bytes)) m->free_bytes = gib_after(t, "pre_model_load_memory=");
  m->device_bytes = gib_after(t, " local_gpu_memory=");
  return true;
}

/* TensorRT-LLM: "Executor creation failed due to insufficient GPU memory. The following component
 * could not be created: KV cache Total GPU memory (GiB): 79.11 Free GPU memory before component
 * creation attempt (GiB): 12.30"; in other logs CUDA's words only. */
static bool read_trtllm(message *m, scan_text t) {
  if (!scan_has(t, "out of memory") && !scan_has(t, "insufficient GPU memory") &&
      !scan_has(t, "OutOfMemory"))
    return false;
  m->details |= MESSAGE_KV_CACHE;
  m->device_bytes = gib_after(t, "Total GPU memory (GiB): ");
  m->free_bytes = gib_after(t, "Free GPU memory before component creation attempt (GiB): ");
  m->asked_bytes = FIRST_SIZE(t, "Tried to allocate ", "Requested amount of GPU memory (",
                              "OutOfMemory (Requested size was ");
  if (loads_engine(t)) m->details |= MESSAGE_WEIGHTS;
  /* "paged kv cache: total: 15.77 GiB, available: 5.31 GiB", then "Allocated 4.78 GiB for max
   * tokens in paged KV cache": what was left for the buffers of requests. */
  const char *pool = scan_find(t, "max tokens in paged kv cache: ");
  if (pool == NULL) return true;
  scan_text line = {pool, scan_line(t, pool).end};
  uint64_t cache = scan_size_before(t, " for max tokens in paged KV cache");
  if (!known(m->device_bytes)) m->device_bytes = scan_size_after(line, "total: ");
  if (!known(m->free_bytes)) m->free_bytes = scan_size_after(line, "available: ");
  if (known(m->free_bytes) && known(cache) && cache <= m->free_bytes) m->free_bytes -= cache;
  return true;
}

/* "Cannot allocate 98.000244MB memory on GPU 0, 6.000000GB memory has been allocated and available
 * memory is only 0.000000B"; its units are powers of 1024. */
static bool read_paddle(message *m, scan_text t) {
  m->asked_bytes = scan_size_binary_after(t, "Cannot allocate ");
  m->live_bytes = scan_size_binary_before(t, " memory has been allocated");
  m->free_bytes = scan_size_binary_after(t, "available memory is only ");
  /* "127.994262TB memory has been allocated": a count below zero, as an unsigned number */
  if (known(m->live_bytes) && m->live_bytes >= LIVE_MOST) {
    m->live_bytes = MESSAGE_UNKNOWN;
    m->details |= MESSAGE_MISCOUNT;
  }
  const char *pair = scan_find(t, "allocating <= available failed, ");
  if (pair != NULL) {
    m->asked_bytes = scan_size(t, pair);
    m->free_bytes = scan_size_after(scan_from(t, pair), "> ");
  }
  return true;
}

/* "a model that requires 33280 MB which is close to the maximum recommended size of 27648 MB"; its
 * MB are 1024 KiB. */
static void read_mlx_model(message *m, scan_text t) {
  uint64_t model = scan_size_binary_after(t, "a model that requires ");
  uint64_t most = scan_size_binary_after(t, "maximum recommended size of ");
  if (!known(model) || !known(most) || known(m->asked_bytes) || known(m->limit_bytes)) return;
  m->limit_bytes = most;
  if (model <= most) {
    m->live_bytes = model;
    return;
  }
  m->asked_bytes = model;
  m->details |= MESSAGE_WEIGHTS;
}

/* "[metal::malloc] Attempting to allocate 40 bytes which is greater than the maximum allowed buffer
 * size of 30 bytes." */
static bool read_mlx(message *m, scan_text t) {
  m->asked_bytes = FIRST_SIZE(t, "Attempting to allocate ", "] Unable to allocate ");
  m->limit_bytes = scan_size_after(t, "allowed buffer size of ");
  if (known(m->limit_bytes)) m->details |= MESSAGE_ONE_BUFFER;
  read_mlx_model(m, t);
  m->context.seen |= CONTEXT_BIT(APPLE) | CONTEXT_BIT(MAC);
  return true;
}

/* E_OUTOFMEMORY, which Windows words in its own language, of DirectML's provider: its allocator
 * could not make a buffer on the device, or in the RAM that the device may use. */
static bool read_dml_provider(message *m, scan_text t) {
  if (!scan_has(t, "8007000E") && !scan_has(t, "8007000e") && !scan_has(t, "E_OUTOFMEMORY"))
    return false;
  m->details |= MESSAGE_STATUS;
  m->context.seen |= CONTEXT_BIT(WINDOWS) | CONTEXT_BIT(ANY_VENDOR);
  return true;
}

static bool read_directml(message *m, scan_text t) {
  m->asked_bytes = scan_size_after(t, "Could not allocate tensor with ");
  m->context.seen |= CONTEXT_BIT(WINDOWS);
  return true;
}

/* Computes the bytes of an array that the user's own line makes with a shape in numbers: "d =
 * cuda.device_array((40000, 40000, 3), dtype=np.float32)". Both libraries make 64-bit numbers if
 * the line names no type. */
static void read_code_shape(message *m) {
  static const char *const makers[] = {"device_array((", "mapped_array((", "managed_array((",
                                       "zeros((",        "ones((",         "empty((",
                                       "full(("};
  static const struct {
    const char *type;
    double width;
  } widths[] = {{"complex128", 16}, {"complex64", 8}, {"64", 8},   {"float32", 4}, {"int32", 4},
                {"float16", 2},     {"int16", 2},     {"int8", 1}, {"bool", 1}};
  scan_text code = {m->context.code, m->context.code + strlen(m->context.code)};
  const char *at = NULL;
  for (size_t i = 0; i < sizeof makers / sizeof *makers && at == NULL; i++)
    at = scan_find(code, makers[i]);
  if (at == NULL || known(m->asked_bytes)) return;
  const char *open = at;
  double bytes = 1;
  while (at < code.end && *at != ')') {
    uint64_t dim = scan_number(code, at);
    if (!known(dim)) return; /* a name, whose value the text does not give */
    bytes *= (double)dim;
    while (at < code.end && (*at == ' ' || isdigit((unsigned char)*at))) at++;
    if (at < code.end && *at != ',' && *at != ')') return;
    while (at < code.end && (*at == ',' || *at == ' ')) at++;
  }
  double width = 8;
  const char *type = scan_find(scan_from(code, at), "dtype=");
  for (size_t i = 0; i < sizeof widths / sizeof *widths && type != NULL; i++)
    if (scan_has(scan_from(code, type), widths[i].type)) {
      width = widths[i].width;
      break;
    }
  if (at >= code.end || at == open || !(bytes * width < 0x1p62)) return;
  m->asked_bytes = (uint64_t)(bytes * width);
}

/* Returns the size behind the words where they have one: a traceback shows the line that raises the
 * error, with the words and no size, before the error. */
static uint64_t size_behind_any(scan_text t, const char *words) {
  uint64_t bytes = MESSAGE_UNKNOWN;
  for (const char *at; !known(bytes) && (at = scan_find(t, words)) != NULL; t.at = at)
    bytes = scan_size(t, at);
  return bytes;
}

/* "Out of memory allocating 25,600,000 bytes (allocated so far: 3,635,267,072 bytes, limit set to:
 * …)"; before 2018 "out of memory to allocate 1 bytes (total 2 bytes)". The pool frees its free
 * blocks before it fails, so what remains is in use. */
static bool read_cupy(message *m, scan_text t) {
  if (scan_has(t, "RESOURCE_EXHAUSTED")) return false;
  m->asked_bytes = size_behind_any(t, "Out of memory allocating ");
  if (!known(m->asked_bytes)) m->asked_bytes = size_behind_any(t, "out of memory to allocate ");
  if (!known(m->asked_bytes) && !scan_has(t, "cupy")) return false; /* another program's words */
  read_code_shape(m);
  m->live_bytes = FIRST_SIZE(t, "allocated so far: ", "bytes (total ");
  m->reserved_bytes = m->live_bytes;
  m->limit_bytes = scan_size_after(t, "limit set to: ");
  return true;
}

/* "Out of GPU memory trying to allocate 4.000 GiB. Effective GPU memory usage: 97.29% (7.6 GiB/7.8
 * GiB). Memory pool usage: 6.1 GiB (6.3 GiB reserved)". */
static bool read_julia(message *m, scan_text t) {
  m->asked_bytes = scan_size_after(t, "trying to allocate ");
  const char *usage = scan_find(t, "GPU memory usage: ");
  if (usage != NULL) m->device_bytes = scan_size_after(scan_from(t, usage), "/");
  m->live_bytes = scan_size_after(t, "Memory pool usage: ");
  m->limit_bytes = scan_size_after(t, "(capped at ");
  if (!known(m->live_bytes)) m->live_bytes = scan_size_after(t, "CUDA allocator usage: ");
  m->reserved_bytes = scan_size_before(t, " reserved)");
  if (known(m->reserved_bytes) && known(m->live_bytes) && m->reserved_bytes >= m->live_bytes)
    m->cached_bytes = m->reserved_bytes - m->live_bytes;
  return true;
}

static bool read_numba(message *m, scan_text t) {
  if (!scan_has(t, "CUDA_ERROR_OUT_OF_MEMORY")) return false;
  read_code_shape(m);
  if (scan_has(t, "Call to cuInit") || scan_has(t, "Call to cuDevicePrimaryCtxRetain") ||
      scan_has(t, "Call to cuCtxCreate"))
    m->details |= MESSAGE_INIT;
  return true;
}

/* Thrust reports what CUDA refused in words that RMM uses too: "bad allocation:
 * cudaErrorMemoryAllocation: out of memory". It is RAPIDS only where the text names it. */
static bool read_thrust(message *m, scan_text t) {
  static const char *const signs[] = {"rmm",    "RMM",    "cudf",    "cuDF",      "cuml", "cuML",
                                      "RAPIDS", "rapids", "cugraph", "cuspatial", "cuvs", "raft"};
  m->asked_bytes =
      FIRST_SIZE(t, "failed to allocate ", "Failed to allocate ", "trying to allocate ");
  if (scan_has_any(t, signs, sizeof signs / sizeof *signs)) return true;
  m->kind = MESSAGE_CUDA;
  m->context.seen |= CONTEXT_BIT(NVIDIA);
  return true;
}

static bool read_rmm(message *m, scan_text t) {
  if (scan_has(t, "Maximum pool size exceeded")) m->details |= MESSAGE_POOL;
  m->asked_bytes =
      FIRST_SIZE(t, "failed to allocate ", "Failed to allocate ", "trying to allocate ");
  /* "current/max/try size = 20.000000 GiB, 22.000000 GiB, 38.146973 GiB" */
  const char *sizes = scan_find(t, "current/max/try size = ");
  if (sizes == NULL) return true;
  scan_text line = {sizes, scan_line(t, sizes).end};
  m->reserved_bytes = scan_size(line, sizes);
  /* A pool that has memory was made before. */
  if (known(m->reserved_bytes) && m->reserved_bytes > 0)
    m->context.traits &= ~(uint64_t)TRAIT_POOL_START;
  m->limit_bytes = scan_size_after(line, ", ");
  return true;
}

static bool read_plain(message *m, scan_text t) {
  (void)m;
  (void)t;
  return true;
}

void message_share(message *m, scan_text t) {
  static const char *const vllm[] = {"gpu-memory-utilization 0.",   "gpu-memory-utilization=0.",
                                     "gpu_memory_utilization=0.",   "gpu_memory_utilization = 0.",
                                     "gpu_memory_utilization': 0.", "gpu_memory_utilization\": 0.",
                                     "gpu_memory_utilization: 0.",  NULL};
  static const char *const sglang[] = {"mem-fraction-static 0.", "mem-fraction-static=0.", NULL};
  const char *const *words = m->kind == MESSAGE_VLLM     ? vllm
                             : m->kind == MESSAGE_SGLANG ? sglang
                                                         : NULL;
  for (size_t i = 0; words != NULL && m->share == 0 && words[i] != NULL; i++)
    m->share = share_at(t, scan_find(t, words[i]));
}

static const struct {
  const char *sign;
  message_kind kind;
  bool (*read)(message *, scan_text);
} table[] = {
    {"less than desired GPU memory utilization", MESSAGE_VLLM, read_vllm},
    {"No available memory for the cache blocks", MESSAGE_VLLM, read_vllm},
    {"that can be stored in KV cache", MESSAGE_VLLM, read_vllm},
    {"KV cache is needed, which is larger than", MESSAGE_VLLM, read_vllm},
    {"increasing `gpu_memory_utilization`", MESSAGE_VLLM, read_vllm},
    {"Error in memory profiling. Initial free memory", MESSAGE_VLLM, read_vllm},
    {"occurred when warming up sampler", MESSAGE_VLLM, read_warm_up},
    {"lowering `max_num_seqs`", MESSAGE_VLLM, read_warm_up},
    {"increase --mem-fraction-static", MESSAGE_SGLANG, read_sglang},
    {"increase mem_fraction_static", MESSAGE_SGLANG, read_sglang},
    {"AlignedAllocator", MESSAGE_SGLANG, read_workspace},
    {"Out of workspace memory", MESSAGE_SGLANG, read_workspace},
    {"leave no GPU memory for the KV cache", MESSAGE_SGLANG, read_sglang},
    {"Prefill out of memory", MESSAGE_SGLANG, read_sglang},
    {"alloc_req_slots runs out of memory", MESSAGE_SGLANG, read_sglang},
    {"alloc_token_slots runs out of memory", MESSAGE_SGLANG, read_sglang},
    {"The memory capacity is unbalanced", MESSAGE_SGLANG, read_unbalanced},
    {"need to decrease `--max-batch-", MESSAGE_TGI, read_tgi},
    {"Decode out of memory", MESSAGE_SGLANG, read_sglang},
    {"[metal::malloc]", MESSAGE_MLX, read_mlx},
    {"[malloc_or_wait] Unable to allocate", MESSAGE_MLX, read_mlx},
    {"[malloc] Unable to allocate", MESSAGE_MLX, read_mlx},
    {"[METAL] Command buffer execution failed: Insufficient Memory", MESSAGE_MLX, read_mlx},
    {"requires more system memory", MESSAGE_LLAMA, message_llama},
    {"model request too large for system", MESSAGE_LLAMA, message_llama_ollama},
    {"model requires ", MESSAGE_LLAMA, message_llama_requires},
    {"stopped due to insufficient system resources", MESSAGE_LLAMA, message_llama_guardrail},
    {"cuda_buffer_type_alloc_buffer", MESSAGE_LLAMA, message_llama},
    {"ggml_gallocr_reserve", MESSAGE_LLAMA, message_llama},
    {"alloc_tensor_range: failed", MESSAGE_LLAMA, message_llama},
    {"unable to allocate backend buffer", MESSAGE_LLAMA, message_llama},
    {"unable to allocate CUDA", MESSAGE_LLAMA, message_llama},
    {"unable to allocate ROCm", MESSAGE_LLAMA, message_llama},
    {"unable to allocate Vulkan", MESSAGE_LLAMA, message_llama},
    {"unable to allocate Metal", MESSAGE_LLAMA, message_llama},
    {"unable to allocate CPU", MESSAGE_LLAMA, message_llama},
    {"failed to allocate CUDA0 buffer", MESSAGE_LLAMA, message_llama},
    {"ggml_vulkan: Device memory allocation", MESSAGE_LLAMA, message_llama},
    {"ggml_metal_add_buffer: error: failed to allocate", MESSAGE_LLAMA, message_llama},
    {" is larger than buffer maximum of ", MESSAGE_LLAMA, message_llama},
    {"ggml_backend_metal_buffer_type_alloc_buffer: error", MESSAGE_LLAMA, message_llama},
    {"ggml_aligned_malloc: insufficient memory", MESSAGE_LLAMA, message_llama},
    {"kIOGPUCommandBufferCallbackErrorOutOfMemory", MESSAGE_LLAMA, message_llama},
    {"llama runner process", MESSAGE_LLAMA, message_llama_runner},
    {"enough available memory to run this model", MESSAGE_LLAMA, message_llama},
    {"cuda_host_malloc: failed to allocate", MESSAGE_LLAMA, message_llama_pinned},
    {"requested buffer of size ", MESSAGE_ONNX, read_onnx},
    {"Executor creation failed due to insufficient GPU memory", MESSAGE_TENSORRT, read_trtllm},
    {"[TensorRT-LLM]", MESSAGE_TENSORRT, read_trtllm},
    {"[TRT-LLM]", MESSAGE_TENSORRT, read_trtllm},
    {"[TRT]", MESSAGE_TENSORRT, read_tensorrt},
    {"nvinfer1::", MESSAGE_TENSORRT, read_tensorrt},
    {"safeRuntime.cpp", MESSAGE_TENSORRT, read_tensorrt},
    {"[defaultAllocator.cpp::", MESSAGE_TENSORRT, read_tensorrt},
    {"[virtualMemoryBuffer.cpp::", MESSAGE_TENSORRT, read_tensorrt},
    {"Could not find any implementation for node", MESSAGE_TENSORRT, read_tensorrt},
    {"[TensorRT]", MESSAGE_TENSORRT, read_tensorrt},
    {"Requested amount of GPU memory", MESSAGE_TENSORRT, read_tensorrt},
    {"CUDA failed with error out of memory", MESSAGE_CTRANSLATE, read_plain},
    {"Out of memory error on GPU", MESSAGE_PADDLE, read_paddle},
    {"enforce allocating <= available failed", MESSAGE_PADDLE, read_paddle},
    {"not enough GPU video memory available", MESSAGE_DIRECTML, read_directml},
    {"DML allocator out of memory", MESSAGE_DIRECTML, read_directml},
    {"DmlExecutionProvider", MESSAGE_DIRECTML, read_dml_provider},
    {"BucketizedBufferAllocator", MESSAGE_DIRECTML, read_dml_provider},
    {"DmlFusedNode", MESSAGE_DIRECTML, read_dml_provider},
    {"Out of memory allocating ", MESSAGE_CUPY, read_cupy},
    {"out of memory to allocate ", MESSAGE_CUPY, read_cupy},
    {"Out of GPU memory trying to allocate", MESSAGE_JULIA, read_julia},
    {"OutOfGPUMemoryError", MESSAGE_JULIA, read_julia},
    {"ERROR_OUT_OF_MEMORY) Stacktrace:", MESSAGE_JULIA, read_julia},
    {"numba.cuda", MESSAGE_NUMBA, read_numba},
    {"numba/cuda", MESSAGE_NUMBA, read_numba},
    {"results in CUDA_ERROR_OUT_OF_MEMORY", MESSAGE_NUMBA, read_numba},
    {"GpuSplitAndRetryOOM", MESSAGE_RMM, read_rmm}, /* Spark with RAPIDS */
    {"GpuRetryOOM", MESSAGE_RMM, read_rmm},
    {"GpuOOM", MESSAGE_RMM, read_rmm},
    {"rapids.jni.SplitAndRetryOOM", MESSAGE_RMM, read_rmm},
    {"rapids.jni.RetryOOM", MESSAGE_RMM, read_rmm},
    {"GPU OutOfMemory", MESSAGE_RMM, read_rmm},
    {"RMM_ERROR_OUT_OF_MEMORY", MESSAGE_RMM, read_rmm},
    {"RMM failure", MESSAGE_RMM, read_rmm},
    {"std::bad_alloc: out_of_memory", MESSAGE_RMM, read_rmm},
    {"std::bad_alloc: CUDA error", MESSAGE_RMM, read_rmm},
    {"bad_alloc: cudaErrorMemoryAllocation", MESSAGE_RMM, read_thrust},
    {"bad allocation: cudaErrorMemoryAllocation", MESSAGE_RMM, read_thrust},
    {"thrust::system::detail::bad_alloc", MESSAGE_RMM, read_thrust},
    {"Some modules are dispatched on the CPU or the disk", MESSAGE_DISPATCH, read_plain},
    {"had weights offloaded to the disk", MESSAGE_DISPATCH, read_plain},
    {"We need an `offload_dir` to dispatch this model", MESSAGE_DISPATCH, read_plain},
    {"not enough GPU RAM to fit the quantized model", MESSAGE_DISPATCH, read_plain},
};

bool message_serve(message *m, scan_text t, const char **where) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const char *start = NULL;
    if (scan_find_at(t, table[i].sign, &start) == NULL) continue;
    m->kind = table[i].kind;
    m->failures = 1;
    if (table[i].read(m, t)) {
      /* Of several refusals the first one is the failure, whichever words the table has first. */
      if (m->kind == MESSAGE_LLAMA)
        scan_find_at((scan_text){t.at, start}, "alloc_buffer: allocating ", &start);
      if (where != NULL) *where = start;
      return true;
    }
    m->kind = MESSAGE_NONE;
    m->failures = 0;
    m->host = HOST_NONE;
  }
  return false;
}

uint32_t message_serve_kinds(scan_text t) {
  uint32_t kinds = 0;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if ((kinds >> table[i].kind & 1) == 0 && scan_has(t, table[i].sign))
      kinds |= UINT32_C(1) << table[i].kind;
  return (uint32_t)__builtin_popcount(kinds);
}

void message_serve_tokens(message *m, scan_text t) {
  m->total = scan_has(t, "--max-batch-total-tokens");
  m->wanted_tokens = scan_number_after(t, "Not enough memory to handle ");
  if (known(m->wanted_tokens))
    m->details = (m->details & ~(uint32_t)MESSAGE_WEIGHTS) | MESSAGE_COMPUTE;
}

/* A server's own flags decide what its PyTorch may hold; a training loop's changes do not apply. An
 * error without numbers at its first step on the device may be another process's. */
void message_serve_on_torch(message *m) {
  const context *c = &m->context;
  uint32_t other = MESSAGE_STATUS | MESSAGE_INIT | MESSAGE_MIG;
  bool bare = m->kind == MESSAGE_CUDA && (m->details & other) == 0 &&
              (!context_any(c, CONTEXT_BIT(PLACING) | CONTEXT_BIT(LOADING)) ||
               context_any(c, CONTEXT_BIT(FORWARD))) &&
              (c->traits & TRAIT_NCCL) == 0;
  if ((m->kind != MESSAGE_TORCH && !bare) ||
      (!context_any(c, CONTEXT_BIT(VLLM) | CONTEXT_BIT(SGLANG)) &&
       (c->programs & PROGRAM_TGI) == 0) ||
      context_any(c, CONTEXT_BIT(BACKWARD) | CONTEXT_BIT(OPTIMIZER) | CONTEXT_BIT(TRAINER)))
    return;
  m->kind = (c->programs & PROGRAM_TGI) != 0      ? MESSAGE_TGI
            : context_any(c, CONTEXT_BIT(SGLANG)) ? MESSAGE_SGLANG
                                                  : MESSAGE_VLLM;
  m->details |= context_any(c, CONTEXT_BIT(LOADING)) ? MESSAGE_WEIGHTS : MESSAGE_COMPUTE;
}
