/* JAX, XLA and TensorFlow: RESOURCE_EXHAUSTED in its spellings, shapes, TPU memory, buffer lists.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "advise/message_parts.h"

#define KERNEL_MOST    11  /* AlexNet's first layer; larger kernels are rare */
#define WARNING_WITHIN 300 /* characters after a size in which a warning says that it is one */
#define NODE_WITHIN    400 /* characters after the shape in which the node begins, and of its text */

static uint64_t dtype_width(scan_text t) {
  static const struct {
    const char *word;
    uint64_t width;
  } widths[] = {{"type double", 8},   {"type float64", 8}, {"type int64", 8}, {"type half", 2},
                {"type bfloat16", 2}, {"type float16", 2}, {"type bool", 1},  {"type uint8", 1},
                {"type int8", 1},     {"type complex", 8}};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    if (scan_has(t, widths[i].word)) return widths[i].width;
  return 4;
}

/* Recognizes a tensor that is no result of a batch by the node that makes it: "[[Node:
 * vgg_16/fc6/weights/Initializer/random_uniform = …]]", "[[{{node embeddings/Adam/…}}]]". */
static void read_node(message *m, scan_text t) {
  static const char *const variables[] = {"/Initializer/", "/weights/Assign", "/kernel/Assign",
                                          "VariableV2", "VarHandleOp"};
  static const char *const slots[] = {"/Adam", "/Momentum", "/RMSProp", "/Adagrad", "/Ftrl"};
  const char *open = scan_find(t, "[[");
  if (open == NULL || open - t.at > NODE_WITHIN) return;
  scan_text node = {open, open + NODE_WITHIN < t.end ? open + NODE_WITHIN : t.end};
  const char *close = NULL;
  if (scan_find_at(node, "]]", &close) != NULL) node.end = close;
  scan_text name = node;
  if (scan_find_at(node, " = ", &close) != NULL || scan_find_at(node, "}}", &close) != NULL)
    name.end = close;
  bool cpu = scan_has(node, "/cpu:0\"") || scan_has(node, "device:CPU:0\"");
  if (cpu && !scan_has(node, "gpu:") && !scan_has(node, "GPU:")) m->host = HOST_TORCH;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    if (scan_has(node, variables[i])) m->details |= MESSAGE_WEIGHTS;
  /* Keras names the backward pass after the optimizer as well: "training/Adam/gradients/…". */
  bool update = (m->details & MESSAGE_WEIGHTS) != 0 || !scan_has(name, "gradients");
  for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
    if (update && scan_has(name, slots[i])) m->context.seen |= CONTEXT_BIT(OPTIMIZER);
}

/* Parses "OOM when allocating tensor with shape[1000,1000,1000] and type float on …". */
static void read_shape(message *m, scan_text t) {
  const char *at = scan_find(t, "tensor with shape[");
  if (at == NULL) at = scan_find(t, "tensor with shape [");
  if (at == NULL) at = scan_find(t, "tensor of shape [");
  if (at == NULL) return;
  scan_copy(m->what, sizeof m->what, t, at, "]");
  uint32_t dims[2] = {0, 0};
  double bytes = (double)dtype_width((scan_text){at, at + 200 < t.end ? at + 200 : t.end});
  for (const char *p = at; p < t.end && *p != ']' && p - at < 200;) {
    if (!isdigit((unsigned char)*p)) {
      p++;
      continue;
    }
    double dim = 0;
    for (; p < t.end && isdigit((unsigned char)*p); p++) dim = dim * 10 + (*p - '0');
    bytes *= dim;
    if (m->rank < 2) dims[m->rank] = dim < UINT32_MAX ? (uint32_t)dim : UINT32_MAX;
    m->rank++;
  }
  /* "3,3,512,1024" is a convolution's kernel (height, width, channels in and out): no batch. */
  bool kernel = m->rank == 4 && dims[0] == dims[1] && dims[0] % 2 == 1 && dims[0] <= KERNEL_MOST;
  m->first_dim = kernel ? 0 : dims[0];
  if (m->rank > 0 && bytes < 0x1p62) m->shape_bytes = (uint64_t)bytes;
  read_node(m, scan_from(t, at));
  if (!known(m->asked_bytes)) m->asked_bytes = m->shape_bytes;
}

/* "Peak buffers: Buffer 1: Size: 2.00GiB  Operator: op_name="jit(f)/dot" source_file="f.py"
 * source_line=17": the largest comes first. */
static void read_buffers(message *m, scan_text t) {
  m->temporary_bytes = scan_size_after(t, "preallocated temp allocation:");
  if (!known(m->temporary_bytes)) m->temporary_bytes = scan_size_after(t, "HLO temp ");
  uint64_t in = scan_size_after(t, "parameter allocation:");
  uint64_t out = scan_size_after(t, "maybe_live_out allocation:");
  if (known(in)) m->given_bytes = in + (known(out) ? out : 0);
  m->out_bytes = out;
  uint64_t whole = scan_size_after(t, "total allocation:");
  if (known(whole)) m->whole_bytes = whole;
  const char *first = scan_find(t, "Buffer 1:");
  if (first == NULL) first = scan_find(t, "Largest program allocations in hbm: 1.");
  if (first == NULL) return;
  const char *second = scan_find(scan_from(t, first), "Buffer 2:");
  scan_text buffer = {first, second != NULL ? second : t.end};
  m->largest_bytes = scan_size_after(buffer, "Size:");
  const char *name = scan_find(buffer, "op_name=\"");
  if (name == NULL) return;
  scan_copy(m->what, sizeof m->what, t, name, "\"[");
  const char *file = scan_find(buffer, "source_file=\"");
  uint64_t line = scan_number_after(buffer, "source_line=");
  size_t length = strlen(m->what);
  int place = 0;
  while (file != NULL && file + place < buffer.end && file[place] != '"' && place < 4096) place++;
  if (file != NULL && line < UINT32_MAX)
    snprintf(m->what + length, sizeof m->what - length, " at %.*s:%u", place, file, (unsigned)line);
}

/* Returns the place after the first `words` whose sentence is no warning of TensorFlow's allocator:
 * "ran out of memory trying to allocate 2.13GiB … The caller indicates that this is not a
 * failure". */
static const char *find_refused(scan_text t, const char *words) {
  for (const char *at; (at = scan_find(t, words)) != NULL; t.at = at) {
    scan_text tail = {at, at + WARNING_WITHIN < t.end ? at + WARNING_WITHIN : t.end};
    tail.end = scan_line(tail, at).end;
    if (!scan_has(tail, "this is not a failure")) return at;
  }
  return NULL;
}

/* Parses the requested size by the words before it. A number of bytes in brackets is exact:
 * "1.53GiB (rounded to 1644167168)", "190.31M (199557120 bytes)". */
static void read_requested(message *m, scan_text t) {
  static const char *const words[] = {"while trying to allocate ",
                                      "Failed to allocate request for ",
                                      "an out of memory trying to allocate ",
                                      "Attempting to allocate ",
                                      "Attempting to reserve ",
                                      "cuMemAllocAsync failed to allocate ",
                                      "failed to allocate ",
                                      "Failed to allocate ",
                                      "failed to alloc "};
  for (size_t i = 0; i < sizeof words / sizeof *words && !known(m->asked_bytes); i++) {
    const char *at = find_refused(t, words[i]);
    m->asked_bytes = scan_size(t, at);
    if (!known(m->asked_bytes)) continue;
    scan_text tail = {at, at + 60 < t.end ? at + 60 : t.end};
    const char *bracket = scan_find(tail, "(rounded to ");
    if (bracket == NULL) bracket = scan_find(tail, "(");
    uint64_t exact = scan_size(tail, bracket);
    /* The two numbers are the same size in two spellings. */
    if (known(exact) && exact > m->asked_bytes / 10 * 9 && exact / 11 * 10 < m->asked_bytes + 1024)
      m->asked_bytes = exact;
  }
}

/* Reads requests of the pool's own start, each a tenth smaller than the one before: "failed to
 * allocate 59.32GiB (63694176256 bytes) from device: …", then 53.39GiB. The device has less free
 * than the last of them. */
static void read_falling(message *m, scan_text t) {
  static const char words[] = "failed to allocate ";
  /* A pool that grows on demand asks in the same way when the program's own data fills it. */
  static const char *const grows[] = {"PREALLOCATE=false", "ALLOW_GROWTH=true", "allow_growth",
                                      "set_memory_growth"};
  if (scan_has_any(t, grows, sizeof grows / sizeof *grows)) return;
  uint64_t last = MESSAGE_UNKNOWN;
  for (const char *at; (at = scan_find(t, words)) != NULL; t.at = at) {
    scan_text line = {at, scan_line(t, at).end};
    if (!scan_has(line, "from device") && !scan_has(line, "retry")) continue;
    const char *bracket = scan_find(line, "(");
    uint64_t bytes = scan_size(line, bracket != NULL ? bracket : at);
    if (!known(bytes)) continue;
    if (m->falling_count == 0) m->falling_bytes = bytes;
    /* A retry later in the log begins again at the top. */
    if (known(last) && bytes >= last) continue;
    m->falling_count++;
    m->least_bytes = last = bytes;
  }
}

/* Parses "Used 9.08G of 7.48G hbm", and what TensorFlow reports about the device at start. */
static void read_device(message *m, scan_text t) {
  const char *hbm = scan_find(t, "in memory space hbm");
  if (hbm != NULL) {
    scan_text rest = scan_from(t, hbm);
    const char *used = scan_find(rest, "Used ");
    if (used != NULL) m->device_bytes = scan_size_after(scan_from(rest, used), " of ");
    m->whole_bytes = scan_size(rest, used);
    m->context.seen |= CONTEXT_BIT(TPU);
    return;
  }
  /* The driver's pool (cuda_malloc_async): what is free at the failure, not at the start. */
  const char *both = scan_find(t, "Free memory/Total memory: ");
  if (both != NULL) {
    scan_text pair = {both, scan_line(t, both).end};
    m->free_bytes = scan_size(pair, both);
    m->device_bytes = scan_size_after(pair, "/");
    m->async = true;
    return;
  }
  static const char *const totals[] = {"Total memory: ", "totalMemory: "};
  static const char *const frees[] = {"Free memory: ", "freeMemory: "};
  for (size_t i = 0; i < sizeof totals / sizeof *totals && !known(m->device_bytes); i++) {
    m->device_bytes = scan_size_after(t, totals[i]);
    m->free_bytes = scan_size_after(t, frees[i]);
  }
  if (!known(m->free_bytes) && scan_has(t, "That was not possible. There are "))
    m->free_bytes = scan_size_after(t, "That was not possible. There are ");
}

/* Recognizes a pool of pinned host memory, and the CPU's own allocators. */
static void read_host_side(message *m, scan_text t) {
  uint64_t on_host = scan_size_after(t, "RESOURCE_EXHAUSTED: Out of memory allocating ");
  if (known(on_host) || m->host == HOST_TORCH || scan_has(t, "device:CPU:0 by allocator ")) {
    if (known(on_host)) m->asked_bytes = on_host;
    m->kind = MESSAGE_HOST;
    m->host = HOST_TORCH; /* as a framework's tensors are */
  }
  uint64_t pinned = scan_size_after(t, "pinned host memory of size: ");
  if (known(pinned)) m->asked_bytes = pinned;
  if (known(pinned) || scan_has(t, "cuda_host_bfc") || scan_has(t, "gpu_host_bfc")) {
    m->kind = MESSAGE_HOST;
    m->host = HOST_PINNED;
    snprintf(m->what, sizeof m->what, "%s",
             scan_has(t, "cuda_host_bfc")  ? "cuda_host_bfc"
             : scan_has(t, "gpu_host_bfc") ? "gpu_host_bfc"
                                           : "");
  }
}

bool message_xla(message *m, scan_text t, const char **where) {
  static const struct {
    const char *words;
    bool tensorflow;
  } signs[] = {{"OOM when allocating tensor", true},
               {"ResourceExhaustedError", true},
               {"Dst tensor is not initialized", true},
               {"in memory space hbm", false},
               {"RESOURCE_EXHAUSTED: Out of memory", false},
               {"Resource exhausted: Out of memory", false},
               {"RESOURCE_EXHAUSTED: Attempting to", false},
               {"RESOURCE_EXHAUSTED: Error allocating", false},
               {"RESOURCE_EXHAUSTED: Failed to allocate", false},
               {"RESOURCE_EXHAUSTED: Ran out of memory", false},
               {"RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory", false},
               {"BufferAssignment OOM Debugging", false},
               {"INTERNAL: Failed to allocate", false},
               {"bytes for new constant", false},
               {"bytes) from device: CUDA_ERROR_OUT_OF_MEMORY", true},
               {"_bfc) ran out of memory", true},
               {"bfc_allocator.cc", true},
               {"cuMemAllocAsync failed to allocate ", true},
               {"BFC", true},
               {"RESOURCE_EXHAUSTED", false},
               {"Resource exhausted", false},
               {"gpu_device.cc", true},
               {"cuda_driver.cc", true},
               {"rocm_driver.cc", true}};
  const char *start = NULL;
  bool tensorflow = false, found = false;
  for (size_t i = 0; i < sizeof signs / sizeof *signs && !found; i++) {
    found = scan_find_at(t, signs[i].words, &start) != NULL;
    tensorflow = found && signs[i].tensorflow;
  }
  if (!found || scan_has(t, "BFCArena") || scan_has(t, "Out of memory error on GPU") ||
      scan_has(t, "Fail to alloc memory of "))
    return false;
  if (scan_has(t, "paddle") && !scan_has(t, "tensorflow")) return false;
  /* Both sources also print lines that are not about memory. */
  bool memory = scan_has(t, "emory") || scan_has(t, "OOM") || scan_has(t, "llocate") ||
                m->chunks.found || known(m->limit_bytes);
  if (!memory && !scan_has(t, "Dst tensor")) return false;
  if (scan_has(t, "gpu_device.cc") && !scan_has(t, "OUT_OF_MEMORY") &&
      !scan_has(t, "out of memory") && !scan_has(t, "OOM") && !scan_has(t, "xhausted"))
    return false;
  if (where != NULL) *where = start;
  /* In some versions XLA's files are in a folder of TensorFlow. TensorFlow builds its own copy of
   * XLA ("external/local_xla/xla/"), JAX takes another one ("external/xla/xla/"). */
  bool foreign = scan_has(t, "jax") || scan_has(t, "pjrt") || scan_has(t, "org_tensorflow");
  bool local = scan_has(t, "external/local_xla/") || scan_has(t, "external/local_tsl/");
  bool jax = foreign || (scan_has(t, "xla/") && !scan_has(t, "tensorflow/") && !local);
  bool flow = scan_has(t, "OOM when allocating tensor") || scan_has(t, "ResourceExhaustedError") ||
              ((scan_has(t, "tensorflow") || local) && !jax);
  m->kind = (tensorflow && !jax) || flow ? MESSAGE_TENSORFLOW : MESSAGE_XLA;
  m->failures = 1;
  if (scan_has(t, "bytes) from device: ") && !scan_has(t, "ran out of memory") &&
      !scan_has(t, "OOM when"))
    m->details |= MESSAGE_POOL; /* it is the pool that could not grow, not one tensor */
  if (m->kind == MESSAGE_TENSORFLOW && scan_has(t, "_EagerConst")) m->details |= MESSAGE_INPUT;
  read_device(m, t);
  read_requested(m, t);
  read_falling(m, t);
  read_buffers(m, t);
  read_shape(m, t);
  read_host_side(m, t);
  if (m->chunks.found && !known(m->live_bytes)) m->live_bytes = m->chunks.used_bytes;
  if (m->chunks.found) m->cached_bytes = m->chunks.free_bytes;
  /* A pool that may not grow: what it holds and is not in use. */
  bool whole = known(m->reserved_bytes) && known(m->limit_bytes) && known(m->live_bytes) &&
               m->reserved_bytes >= m->limit_bytes / 100 * 99 && m->reserved_bytes > m->live_bytes;
  if (whole && !m->async && !known(m->cached_bytes))
    m->cached_bytes = m->reserved_bytes - m->live_bytes;
  return true;
}
