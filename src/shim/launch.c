/* Launch: reading the arguments of driver calls. See launch.h. */
#include "shim/launch.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "shim/shim.h"

/* ---- which call has what ---- */

typedef enum call_kind {
  UNKNOWN = 0, /* may touch anything; older forms too */
  NOTHING,     /* touches no memory of ours */
  KERNEL,      /* cuLaunchKernel's arguments */
  COOPERATIVE, /* the same without `extra` */
  KERNEL_EX,   /* (config, function, parameters, extra) */
  ADDRESSES,   /* addresses among the first four arguments */
  TO_DEVICE,   /* the same, and the second address is host memory */
  COPY_2D,     /* a description of 16 words */
  COPY_3D,     /* a description of 25 words or more */
  GRAPH,       /* an executable graph */
} call_kind;

enum { NO_STREAM = 15 }; /* the call has none: the default one */

typedef struct call_form {
  uint8_t kind : 4;
  uint8_t stream : 4; /* index of the argument, from 0 */
  bool per_thread;    /* the default stream is the thread's own */
  uint8_t width;      /* bytes that the third argument counts; 0: it counts none */
} call_form;

#define WIDE(name, k, s, w)                                                                        \
  [SYMBOL_##name] = {k, s, false, w}, [SYMBOL_##name##_ptsz] = {k, s, true, w}
#define SYNC_WIDE(name, k, w)                                                                      \
  [SYMBOL_##name] = {k, NO_STREAM, false, w}, [SYMBOL_##name##_ptds] = {k, NO_STREAM, true, w}
#define BOTH(name, k, s) WIDE(name, k, s, 0)
#define SYNC(name, k)    SYNC_WIDE(name, k, 0)

static const call_form forms[SYMBOL_COUNT] = {
    BOTH(cuLaunchKernel, KERNEL, 8),
    BOTH(cuLaunchCooperativeKernel, COOPERATIVE, 8),
    BOTH(cuLaunchKernelEx, KERNEL_EX, NO_STREAM),
    WIDE(cuMemcpyAsync, ADDRESSES, 3, 1),
    WIDE(cuMemcpyDtoDAsync_v2, ADDRESSES, 3, 1),
    WIDE(cuMemcpyDtoHAsync_v2, ADDRESSES, 3, 1),
    BOTH(cuMemcpyHtoDAsync_v2, TO_DEVICE, 3),
    BOTH(cuMemcpyPeerAsync, ADDRESSES, 5),
    SYNC_WIDE(cuMemcpy, ADDRESSES, 1),
    SYNC_WIDE(cuMemcpyDtoD_v2, ADDRESSES, 1),
    SYNC_WIDE(cuMemcpyDtoH_v2, ADDRESSES, 1),
    SYNC(cuMemcpyHtoD_v2, TO_DEVICE),
    SYNC(cuMemcpyPeer, ADDRESSES),
    BOTH(cuMemcpy2DAsync_v2, COPY_2D, 1),
    SYNC(cuMemcpy2D_v2, COPY_2D),
    SYNC(cuMemcpy2DUnaligned_v2, COPY_2D),
    BOTH(cuMemcpy3DAsync_v2, COPY_3D, 1),
    SYNC(cuMemcpy3D_v2, COPY_3D),
    BOTH(cuMemcpy3DPeerAsync, COPY_3D, 1),
    SYNC(cuMemcpy3DPeer, COPY_3D),
    WIDE(cuMemsetD8Async, ADDRESSES, 3, 1),
    WIDE(cuMemsetD16Async, ADDRESSES, 3, 2),
    WIDE(cuMemsetD32Async, ADDRESSES, 3, 4),
    BOTH(cuMemsetD2D8Async, ADDRESSES, 5),
    BOTH(cuMemsetD2D16Async, ADDRESSES, 5),
    BOTH(cuMemsetD2D32Async, ADDRESSES, 5),
    SYNC_WIDE(cuMemsetD8_v2, ADDRESSES, 1),
    SYNC_WIDE(cuMemsetD16_v2, ADDRESSES, 2),
    SYNC_WIDE(cuMemsetD32_v2, ADDRESSES, 4),
    SYNC(cuMemsetD2D8_v2, ADDRESSES),
    SYNC(cuMemsetD2D16_v2, ADDRESSES),
    SYNC(cuMemsetD2D32_v2, ADDRESSES),
    BOTH(cuMemcpyAtoHAsync_v2, NOTHING, 4),
    BOTH(cuMemcpyHtoAAsync_v2, NOTHING, 4),
    SYNC(cuMemcpyAtoH_v2, NOTHING),
    SYNC(cuMemcpyHtoA_v2, NOTHING),
    SYNC(cuMemcpyAtoA_v2, NOTHING),
    SYNC(cuMemcpyAtoD_v2, ADDRESSES),
    SYNC(cuMemcpyDtoA_v2, ADDRESSES),
    BOTH(cuLaunchHostFunc, NOTHING, 0),
    BOTH(cuGraphLaunch, GRAPH, 1),
    WIDE(cuMemcpyWithAttributesAsync, ADDRESSES, 4, 1),
    BOTH(cuMemcpy3DWithAttributesAsync, UNKNOWN, 2),
    BOTH(cuLaunchHostFunc_v2, NOTHING, 0),
    BOTH(cuMemcpyBatchAsync, UNKNOWN, 8),
    BOTH(cuMemcpyBatchAsync_v2, UNKNOWN, 7),
    BOTH(cuMemcpy3DBatchAsync, UNKNOWN, 4),
    BOTH(cuMemcpy3DBatchAsync_v2, UNKNOWN, 3),
    BOTH(cuMemBatchDecompressAsync, UNKNOWN, 4),
};

#if defined(__x86_64__)
enum { REGISTERS = 6 };
#else
enum { REGISTERS = 8 };
#endif

typedef struct call {
  const uint64_t *registers, *stack;
} call;

static uint64_t argument(const call *c, unsigned i) {
  ASSERT(i < 16);
  return i < REGISTERS ? c->registers[i] : c->stack[i - REGISTERS];
}

/* Returns a number for a grid; y and z are at most 65535. It is not the number of blocks: one
 * kernel multiplies matrices of different shapes with grids that have equally many. */
static uint64_t grid(uint64_t x, uint64_t y, uint64_t z) {
  return (uint32_t)x | (y & 0xffff) << 32 | (z & 0xffff) << 48;
}

/* ---- layouts of parameters ---- */

typedef struct layout {
  uint32_t count;
  struct {
    uint32_t index, bytes; /* for a parameter that can hold an address */
  } parameters[];
} layout;

static map layouts; /* function to layout */

bool launch_known(void) {
  const cuda_driver *driver = shim_driver();
  return driver->cuFuncGetParamInfo != NULL || driver->cuKernelGetParamInfo != NULL;
}

enum { PARAMETERS_MAX = 4096 };

/* Functions and kernels (of libraries) are different handles in one argument. */
static bool parameter(void *function, size_t index, size_t *bytes) {
  const cuda_driver *driver = shim_driver();
  size_t offset;
  return (driver->cuFuncGetParamInfo != NULL &&
          driver->cuFuncGetParamInfo(function, index, &offset, bytes) == CU_OK) ||
         (driver->cuKernelGetParamInfo != NULL &&
          driver->cuKernelGetParamInfo(function, index, &offset, bytes) == CU_OK);
}

static const layout *layout_of(void *function) {
  const uint64_t *found = map_get(&layouts, (uintptr_t)function);
  if (found != NULL) return (const layout *)(uintptr_t)*found;
  size_t bytes = 0, count = 0, wide = 0;
  while (count < PARAMETERS_MAX && parameter(function, count, &bytes)) {
    wide += bytes >= sizeof(uint64_t);
    count++;
  }
  layout *l = malloc(sizeof *l + wide * sizeof l->parameters[0]);
  if (l == NULL) return NULL;
  l->count = 0;
  for (size_t i = 0; i < count && l->count < wide; i++) {
    if (!parameter(function, i, &bytes) || bytes < sizeof(uint64_t)) continue;
    l->parameters[l->count].index = (uint32_t)i;
    l->parameters[l->count++].bytes = (uint32_t)bytes;
  }
  if (map_put(&layouts, (uintptr_t)function, (uintptr_t)l) == STOW_OK) return l;
  free(l);
  return NULL;
}

void launch_forget(void) {
  uint64_t function, value;
  for (size_t at = 0; map_next(&layouts, &at, &function, &value);) free((void *)(uintptr_t)value);
  map_free(&layouts);
  layouts = (map){0};
}

/* ---- words ---- */

typedef struct range {
  uint64_t low, size;
} range;

static inline void keep(launch *l, uint64_t word, range in) {
  if (word - in.low >= in.size) return;
  if (l->count < LAUNCH_WORDS_MAX)
    l->words[l->count++] = word;
  else
    l->opaque = true;
}

static void scan(launch *l, const void *from, size_t bytes, range in) {
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, (const char *)from + at, sizeof word);
    keep(l, word, in);
  }
}

/* CU_LAUNCH_PARAM_… of `extra`, a list of pairs that ends with a zero. */
enum { EXTRA_END = 0, EXTRA_BUFFER = 1, EXTRA_BYTES = 2 };

static void scan_extra(launch *l, void *const *extra, range in) {
  ASSERT(extra != NULL);
  const void *buffer = NULL;
  size_t bytes = 0;
  for (int i = 0; i < 8 && extra[i] != (void *)EXTRA_END; i += 2) {
    if (extra[i] == (void *)EXTRA_BUFFER) buffer = extra[i + 1];
    if (extra[i] == (void *)EXTRA_BYTES) memcpy(&bytes, extra[i + 1], sizeof bytes);
  }
  if (buffer != NULL) scan(l, buffer, bytes, in);
}

static void read_kernel(launch *l, void *function, void *const *parameters, void *const *extra,
                        range in) {
  if (parameters == NULL) {
    if (extra != NULL) scan_extra(l, extra, in);
    return;
  }
  const layout *shape = layout_of(function);
  l->opaque |= shape == NULL;
  for (uint32_t i = 0; shape != NULL && i < shape->count; i++) {
    const void *at = parameters[shape->parameters[i].index];
    if (shape->parameters[i].bytes == sizeof(uint64_t)) {
      uint64_t word;
      memcpy(&word, at, sizeof word);
      keep(l, word, in);
    } else
      scan(l, at, shape->parameters[i].bytes, in);
  }
}

void launch_add_kernel(launch *l, void *function, void *const *parameters, void *const *extra,
                       uint64_t low, uint64_t high) {
  ASSERT(low <= high);
  read_kernel(l, function, parameters, extra, (range){low, high - low});
}

void launch_add_words(launch *l, const void *from, size_t bytes, uint64_t low, uint64_t high) {
  ASSERT(from != NULL);
  scan(l, from, bytes, (range){low, high - low});
}

/* A table of pointers is small; weights are not searched. */
#define HIDDEN_BYTES ((uint64_t)16 << 10)

static void read_copied(launch *l, const void *from, uint64_t bytes, range in) {
  if (from == NULL || bytes > HIDDEN_BYTES || (uint64_t)(uintptr_t)from - in.low < in.size) return;
  for (uint64_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, (const char *)from + at, sizeof word);
    if (word - in.low < in.size && l->hidden_count < LAUNCH_HIDDEN_MAX)
      l->hidden[l->hidden_count++] = word;
  }
}

typedef struct launch_config { /* CUlaunchConfig */
  unsigned grid[3], block[3], shared;
  cu_stream stream;
} launch_config;

bool launch_read(launch *l, unsigned symbol, const uint64_t *registers, const uint64_t *stack,
                 uint64_t low, uint64_t high) {
  ASSERT(symbol < SYMBOL_COUNT);
  ASSERT(low <= high);
  const call c = {registers, stack};
  const range in = {low, high - low};
  call_form form = forms[symbol];
  l->function = symbol;
  l->stream = form.stream == NO_STREAM ? NULL : (cu_stream)(uintptr_t)argument(&c, form.stream);
  l->graph = NULL;
  l->work = l->to = l->to_bytes = 0;
  l->opaque = false;
  l->count = l->hidden_count = 0;
  switch ((call_kind)form.kind) {
  case KERNEL:
    l->function = argument(&c, 0);
    l->work = grid(argument(&c, 1), argument(&c, 2), argument(&c, 3));
    read_kernel(l, (void *)(uintptr_t)argument(&c, 0), (void **)(uintptr_t)argument(&c, 9),
                (void **)(uintptr_t)argument(&c, 10), in);
    break;
  case COOPERATIVE:
    l->function = argument(&c, 0);
    l->work = grid(argument(&c, 1), argument(&c, 2), argument(&c, 3));
    read_kernel(l, (void *)(uintptr_t)argument(&c, 0), (void **)(uintptr_t)argument(&c, 9), NULL,
                in);
    break;
  case KERNEL_EX: {
    const launch_config *config = (const launch_config *)(uintptr_t)argument(&c, 0);
    if (config == NULL) return false; /* the driver will report it */
    l->stream = config->stream;
    l->function = argument(&c, 1);
    l->work = grid(config->grid[0], config->grid[1], config->grid[2]);
    read_kernel(l, (void *)(uintptr_t)argument(&c, 1), (void **)(uintptr_t)argument(&c, 2),
                (void **)(uintptr_t)argument(&c, 3), in);
    break;
  }
  case TO_DEVICE:
    read_copied(l, (const void *)(uintptr_t)argument(&c, 1), argument(&c, 2), in);
    l->work = l->to_bytes = argument(&c, 2);
    l->to = argument(&c, 0);
    keep(l, argument(&c, 0), in);
    break;
  case ADDRESSES:
    l->work = l->to_bytes = form.width * argument(&c, 2);
    l->to = argument(&c, 0);
    for (unsigned i = 0; i < 4; i++) keep(l, argument(&c, i), in);
    break;
  case COPY_2D:
  case COPY_3D: {
    const void *what = (const void *)(uintptr_t)argument(&c, 0);
    if (what == NULL) return false;
    scan(l, what, (form.kind == COPY_2D ? 16 : 25) * sizeof(uint64_t), in);
    break;
  }
  case GRAPH: l->graph = (void *)(uintptr_t)argument(&c, 0); /* fall through */
  case UNKNOWN: l->opaque = true; break;
  case NOTHING: break;
  }
  bool own = (uintptr_t)l->stream == 2 || ((uintptr_t)l->stream == 0 && form.per_thread);
  l->kernel = form.kind >= KERNEL && form.kind <= KERNEL_EX;
  l->timed = (l->kernel || l->graph != NULL) && !own;
  /* The legacy and the per-thread default stream: an event in the default one comes after the work
   * of both. */
  if ((uintptr_t)l->stream <= 2) l->stream = NULL;
  return true;
}
