/* Texts of llama.cpp and of the programs around it: Ollama, LM Studio, whisper.cpp. message_serve.c
 * calls these readers by a table of signs. */
#include <string.h>

#include "advise/message_parts.h"

#define REFUSALS_MOST 16 /* requests that were refused and are counted */

/* Counts the sizes that were refused: a program that tries again asks for less. One refusal is
 * reported by several layers, in the same size. */
static uint32_t count_refused(scan_text t) {
  static const char words[] = "alloc_buffer: allocating ";
  uint64_t sizes[REFUSALS_MOST];
  uint32_t count = 0;
  for (const char *at; count < REFUSALS_MOST && (at = scan_find(t, words)) != NULL; t.at = at) {
    uint64_t bytes = scan_size(t, at);
    bool same = !known(bytes);
    for (uint32_t i = 0; i < count && !same; i++) same = sizes[i] == bytes;
    if (!same) sizes[count++] = bytes;
  }
  return count > 0 ? count : 1;
}

/* Returns whether a device refused a request before `at`: a program that then tried with fewer
 * layers ran out of host memory later. */
static bool refused_before(scan_text t, const char *at) {
  return at != NULL && scan_has((scan_text){t.at, at}, "alloc_buffer: allocating ");
}

/* Reads what macOS recommends as the most for the GPU, in MB: llama.cpp wrote powers of 1024, newer
 * versions write powers of 1000. macOS gives two thirds or three quarters of the RAM, so a third of
 * a whole number of GiB shows which. */
static uint64_t working_set(scan_text t) {
  const char *at = scan_find(t, "recommendedMaxWorkingSetSize");
  while (at != NULL && at < t.end && (*at == ' ' || *at == '=')) at++;
  uint64_t binary = at != NULL ? scan_size_binary(t, at) : MESSAGE_UNKNOWN;
  if (!known(binary) || binary > UINT64_C(1) << 50) return MESSAGE_UNKNOWN;
  uint64_t rest = 3 * binary % (UINT64_C(1) << 30), near = UINT64_C(1) << 20;
  bool whole = rest < near || rest > (UINT64_C(1) << 30) - near;
  return whole ? binary : scan_size(t, at);
}

/* "buffer 'data' size 18300780544 is larger than buffer maximum of 17179869184"; "allocated 'data'
 * buffer, size = 3533.78 MB, offs = 4160536576, ( 7630.41 / 5461.34)": in MiB, all that it
 * holds of what macOS recommends. The last such pair counts. */
static void read_metal(message *m, scan_text t) {
  const char *at = scan_find(t, " is larger than buffer maximum of "), *pair = NULL;
  if (at != NULL) {
    scan_text line = scan_line(t, at);
    m->asked_bytes = scan_size_after(line, "' size ");
    m->limit_bytes = scan_size(line, at);
    m->details |= MESSAGE_ONE_BUFFER;
    return;
  }
  m->limit_bytes = working_set(t);
  for (scan_text rest = t; (at = scan_find(rest, "offs =")) != NULL; rest.at = at) {
    const char *open = scan_find(scan_line(t, at), ", (");
    while (open != NULL && open < t.end && *open == ' ') open++;
    if (open != NULL) pair = open;
  }
  double held = 0;
  for (; pair != NULL && pair < t.end && isdigit((unsigned char)*pair) && held < 1e9; pair++)
    held = held * 10 + (*pair - '0');
  if (held <= 0) return;
  m->live_bytes = (uint64_t)(held * 0x1p20);
  if (known(m->limit_bytes) && m->live_bytes > m->limit_bytes) m->details |= MESSAGE_WEIGHTS;
}

/* "allocating 279356.51 MiB on device 0: cudaMalloc failed", "failed to allocate CUDA0 buffer of
 * size 292926534144", "model requires more system memory (5.6 GiB) than is available (4.1 GiB)". */
bool message_llama(message *m, scan_text t) {
  const char *system = scan_find(t, "requires more system memory");
  if (system != NULL && !refused_before(t, system)) {
    m->kind = MESSAGE_HOST;
    m->host = HOST_MODEL;
    m->asked_bytes = scan_size_after(scan_from(t, system), "(");
    m->free_bytes = scan_size_after(scan_from(t, system), "available (");
    return true;
  }
  if (scan_has(t, "kIOGPUCommandBuffer") || scan_has(t, "ggml_metal") ||
      scan_has(t, "allocate Metal")) {
    m->context.seen |= CONTEXT_BIT(APPLE) | CONTEXT_BIT(MAC);
    read_metal(m, t);
    if ((m->details & (MESSAGE_ONE_BUFFER | MESSAGE_WEIGHTS)) != 0) return true;
  }
  if (scan_has(t, "exceeds device memory allocation limit") ||
      scan_has(t, "exceeds device buffer size limit"))
    m->details |= MESSAGE_ONE_BUFFER;
  m->asked_bytes =
      FIRST_SIZE(t, "buffer of size ", "alloc_buffer: allocating ",
                 "Device memory allocation of size ", "failed to allocate buffer, size = ");
  m->failures = count_refused(t) + (system != NULL);
  const char *buffer = scan_find(t, "alloc_buffer: allocating ");
  uint64_t device = buffer != NULL ? scan_number_after(scan_line(t, buffer), "on device ") : 0;
  if (buffer != NULL && device < UINT32_MAX) m->device = (uint32_t)device;
  if (scan_has(t, "insufficient memory (attempted to allocate")) {
    m->kind = MESSAGE_HOST;
    m->host = HOST_MODEL;
    m->asked_bytes = scan_size_after(t, "(attempted to allocate");
    return true;
  }
  bool weights = scan_has(t, "alloc_tensor_range") || scan_has(t, "error loading model") ||
                 scan_has(t, "failed to load model") || scan_has(t, "unable to load model") ||
                 scan_has(t, "exception loading model");
  bool compute = scan_has(t, "ggml_gallocr_reserve") || scan_has(t, "kv_cache") ||
                 scan_has(t, "compute buffers") || scan_has(t, "KV self size") ||
                 scan_has(t, "failed to create context") ||
                 scan_has(t, "failed to initialize the context");
  /* The cache comes after the weights; what is said of the model after that is its consequence. */
  bool cache = scan_has(t, "for kv cache") || scan_has(t, "kv_cache_init() failed") ||
               scan_has(t, "failed to allocate KV cache") ||
               scan_has(t, "for self-attention cache");
  m->wanted_tokens = scan_number_after(t, "n_ctx =");
  if (m->wanted_tokens == MESSAGE_UNKNOWN)
    m->wanted_tokens = scan_number_after(t, "n_ctx_per_seq =");
  if (cache)
    m->details |= MESSAGE_COMPUTE | MESSAGE_KV_CACHE;
  else
    m->details |= weights && !scan_has(t, "ggml_gallocr_reserve") ? MESSAGE_WEIGHTS
                  : compute                                       ? MESSAGE_COMPUTE
                                                                  : 0;
  return true;
}

/* msg="model request too large for system" requested="20.4 GiB" available="14.1 GiB" total="15.5
 * GiB" free="13.9 GiB" */
bool message_llama_ollama(message *m, scan_text t) {
  const char *at = scan_find(t, "model request too large for system");
  scan_text line = {at, scan_line(t, at).end};
  if (refused_before(t, at)) return message_llama(m, t);
  m->kind = MESSAGE_HOST;
  m->host = HOST_MODEL;
  m->asked_bytes = scan_size_after(line, "requested=\"");
  m->free_bytes = scan_size_after(line, "available=\"");
  m->device_bytes = scan_size_after(line, "total=\"");
  return true;
}

/* Ollama: "model requires 20.4 GiB but only 11.3 GiB are available (after 512.0 MiB overhead)",
 * checked before anything is loaded. */
bool message_llama_requires(message *m, scan_text t) {
  const char *at = scan_find(t, "model requires ");
  scan_text line = {at, scan_line(t, at).end};
  const char *only = scan_find(line, " but only ");
  if (only == NULL || !scan_has(scan_from(line, only), "available")) return false;
  m->kind = MESSAGE_HOST;
  m->host = HOST_MODEL;
  m->context.seen |= CONTEXT_BIT(OLLAMA);
  m->asked_bytes = scan_size(line, at);
  m->free_bytes = scan_size(line, only);
  return known(m->asked_bytes) && known(m->free_bytes);
}

/* "ggml_cuda_host_malloc: failed to allocate 1900.00 MiB of pinned memory" */
bool message_llama_pinned(message *m, scan_text t) {
  m->kind = MESSAGE_HOST;
  m->host = HOST_MODEL;
  m->asked_bytes = scan_size_after(t, "host_malloc: failed to allocate ");
  return true;
}

/* LM Studio: "Model loading was stopped due to insufficient system resources. Under the current
 * settings, this model requires approximately 26.31 GB of memory". */
bool message_llama_guardrail(message *m, scan_text t) {
  m->kind = MESSAGE_HOST;
  m->host = HOST_MODEL;
  m->context.traits |= TRAIT_LMSTUDIO;
  m->details |= MESSAGE_WEIGHTS;
  m->asked_bytes = scan_size_after(t, "requires approximately ");
  return true;
}

/* Recognizes "llama runner process has terminated: …", which may have any reason. */
bool message_llama_runner(message *m, scan_text t) {
  if (scan_has(t, "terminated: signal: killed")) {
    m->kind = MESSAGE_HOST;
    m->host = HOST_MODEL;
    return true;
  }
  return (scan_has(t, "out of memory") || scan_has(t, "allocate")) && message_llama(m, t);
}

const char *message_serve_second(scan_text t) {
  static const char words[] = "alloc_buffer: allocating ";
  static const char *const host[] = {"model request too large for system",
                                     "requires more system memory"};
  const char *start = NULL, *second = NULL, *at = scan_find(t, words);
  if (at == NULL) return NULL;
  uint64_t first = scan_size(t, at);
  scan_text rest = scan_from(t, at);
  for (; second == NULL && (at = scan_find_at(rest, words, &start)) != NULL; rest.at = at)
    if (scan_size(t, at) != first) second = start;
  rest = scan_from(t, scan_find(t, words));
  for (size_t i = 0; i < sizeof host / sizeof *host; i++)
    if (scan_find_at(rest, host[i], &start) != NULL && (second == NULL || start < second))
      second = start;
  return second != NULL ? scan_line(t, second).at : NULL;
}
