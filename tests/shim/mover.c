/* Mover: a program that uses more pages than the limit allows, drawn from a seed.
 *
 *   mover SEED   runs it, and prints "equal N words" or the first difference (code 1)
 *
 * Up to three threads each have pages of 8 MiB and blocks of a framework (c10.c), and steps of
 * kernels, copies and fills in several streams with events between them. Steps repeat, drift, and
 * give way to others. Some kernels write through tables of addresses: copied from the host, or made
 * by a kernel. Between steps pages are released and made again, blocks are freed and taken again,
 * streams are destroyed while they are busy, graphs are captured and launched, pages are exported,
 * the context is reset. Every word is kept on the host too, worked out by the same arithmetic.
 *
 * MOVER_FAIL=NAME:CODE:N:TIMES  from the Nth call of that driver function after the beginning on,
 * TIMES calls answer CODE. The program repeats a call of its own that failed so.
 * MOVER_CALLS=NAME,NAME  prints how often each was called after the beginning. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda_driver.h"

#define PAGE_BYTES ((size_t)8 << 20)
enum { WORDS = 256, ACTORS = 3, SLOTS = 64, OPS = 48, STREAMS = 4, TABLE = 8, PAGES_MAX = 40 };
enum { TABLE_AT = 64 << 10 }; /* position of a page's table, after the slot's words */

/* ---- the driver ---- */

static void *library;
#define CALLS(X)                                                                                   \
  X(cuInit, (unsigned))                                                                            \
  X(cuDevicePrimaryCtxRetain, (cu_context *, cu_device))                                           \
  X(cuDevicePrimaryCtxReset_v2, (cu_device))                                                       \
  X(cuCtxSetCurrent, (cu_context))                                                                 \
  X(cuCtxSynchronize, (void))                                                                      \
  X(cuModuleLoadData, (void **, const void *))                                                     \
  X(cuModuleGetFunction, (void **, void *, const char *))                                          \
  X(cuMemAddressReserve, (cu_addr *, size_t, size_t, cu_addr, unsigned long long))                 \
  X(cuMemCreate, (cu_handle *, size_t, const cu_prop *, unsigned long long))                       \
  X(cuMemMap, (cu_addr, size_t, size_t, cu_handle, unsigned long long))                            \
  X(cuMemUnmap, (cu_addr, size_t))                                                                 \
  X(cuMemRelease, (cu_handle))                                                                     \
  X(cuMemSetAccess, (cu_addr, size_t, const cu_access *, size_t))                                  \
  X(cuMemExportToShareableHandle, (void *, cu_handle, int, unsigned long long))                    \
  X(cuMemcpyAsync, (cu_addr, cu_addr, size_t, cu_stream))                                          \
  X(cuMemcpyHtoDAsync_v2, (cu_addr, const void *, size_t, cu_stream))                              \
  X(cuMemsetD8Async, (cu_addr, unsigned char, size_t, cu_stream))                                  \
  X(cuStreamCreate, (cu_stream *, unsigned))                                                       \
  X(cuStreamDestroy_v2, (cu_stream))                                                               \
  X(cuStreamSynchronize, (cu_stream))                                                              \
  X(cuStreamWaitEvent, (cu_stream, cu_event, unsigned))                                            \
  X(cuStreamBeginCapture_v2, (cu_stream, int))                                                     \
  X(cuStreamEndCapture, (cu_stream, void **))                                                      \
  X(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))                            \
  X(cuGraphLaunch, (void *, cu_stream))                                                            \
  X(cuGraphExecDestroy, (void *))                                                                  \
  X(cuEventCreate, (cu_event *, unsigned))                                                         \
  X(cuEventDestroy_v2, (cu_event))                                                                 \
  X(cuEventRecord, (cu_event, cu_stream))                                                          \
  X(cuEventSynchronize, (cu_event))                                                                \
  X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     cu_stream, void **, void **))
#define DECLARE(name, parameters) static cu_result(*p_##name) parameters;
CALLS(DECLARE)

static int fail_code;

/* Ends the program if a call fails; repeats a call that a test made fail. */
#define MUST(name, ...)                                                                            \
  do {                                                                                             \
    cu_result answer_ = p_##name(__VA_ARGS__);                                                     \
    for (int again = 0; again < 3 && answer_ != CU_OK && answer_ == fail_code; again++)            \
      answer_ = p_##name(__VA_ARGS__);                                                             \
    if (answer_ != CU_OK) {                                                                        \
      printf("line %d: " #name " answers %d\n", __LINE__, answer_);                                \
      exit(3);                                                                                     \
    }                                                                                              \
  } while (0)

static cu_context context;
static void *k_mix, *k_fill, *k_through, *k_stamp, *k_point;

static void launch3(void *kernel, uint64_t a, uint64_t b, uint64_t c, cu_stream stream) {
  void *parameters[] = {&a, &b, &c};
  MUST(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

/* ---- the framework ---- */

typedef struct device {
  int8_t kind, index;
} device;
static void (*report)(void *, int64_t, size_t, size_t, device);
static int (*ask_through)(int (*ask)(unsigned long long *, size_t), unsigned long long *, size_t);

/* ---- what an actor has ---- */

/* Words that are in use: of a page, or of a framework's block. */
typedef struct slot {
  cu_addr addr;
  int page;      /* a page that can be created again; -1: a framework's block */
  bool hidden;   /* accessed only through tables that a kernel makes */
  cu_addr block; /* a framework's block and its bytes */
  uint64_t block_bytes;
  cu_event event;
  int stream;  /* the stream that used it last; -1: none, so the event covers it */
  bool marked; /* the event was recorded */
  uint64_t model[WORDS];
} slot;

typedef enum op_kind { MIX, FILL, SET, COPY, SEND, TABLED, POINTED, LOOK, KINDS } op_kind;
typedef struct op {
  op_kind kind;
  int to, from, stream, count, others[TABLE];
  uint64_t value;
} op;

typedef struct actor {
  uint64_t random;
  cu_addr base;
  cu_handle handles[PAGES_MAX];
  int pages, slots, hidden;
  slot *slot;
  cu_stream streams[STREAMS]; /* 0: the default one; 1: blocking; the others are not */
  op ops[OPS];
  int op_count;
  uint64_t checked;
} actor;

static int capture_mode; /* 0: while it lasts no thread may wait; 1: only this thread may not */
static bool exports, resets, captures, tables, points, many_streams;

static uint64_t draw(actor *a, uint64_t below) {
  a->random ^= a->random << 13, a->random ^= a->random >> 7, a->random ^= a->random << 17;
  return (a->random >> 11) % below;
}

/* ---- order between streams ---- */

static void mark(actor *a, slot *s) {
  if (s->stream < 0) return;
  MUST(cuEventRecord, s->event, a->streams[s->stream]);
  s->stream = -1;
  s->marked = true;
}

/* Orders the next work of a stream after earlier uses of the slot. */
static void use(actor *a, slot *s, int stream) {
  if (s->stream == stream) return;
  bool by_itself = s->stream >= 0 && s->stream + stream == 1; /* default and blocking */
  if (!by_itself || draw(a, 2)) {
    mark(a, s);
    if (s->marked) MUST(cuStreamWaitEvent, a->streams[stream], s->event, 0);
  }
  s->stream = stream;
}

static void wait_slot(actor *a, slot *s) {
  mark(a, s);
  if (s->marked) MUST(cuEventSynchronize, s->event);
}

/* ---- operations, on the device and in the model ---- */

static void fill(actor *a, slot *s, int stream, uint64_t value) {
  use(a, s, stream);
  launch3(k_fill, s->addr, WORDS, value, a->streams[stream]);
  for (int i = 0; i < WORDS; i++) s->model[i] = value + (uint64_t)i;
}

static void look(actor *a, slot *s, int stream) {
  uint64_t seen[WORDS];
  use(a, s, stream);
  MUST(cuMemcpyAsync, (cu_addr)(uintptr_t)seen, s->addr, sizeof seen, a->streams[stream]);
  MUST(cuStreamSynchronize, a->streams[stream]);
  a->checked += WORDS;
  for (int i = 0; i < WORDS; i++) {
    if (seen[i] == s->model[i]) continue;
    printf("slot %d%s at 0x%llx: word %d is %llx, not %llx\n", (int)(s - a->slot),
           s->hidden ? " (hidden)" : "", (unsigned long long)s->addr, i,
           (unsigned long long)seen[i], (unsigned long long)s->model[i]);
    fflush(stdout);
    _exit(1);
  }
}

static void look_at_all(actor *a, bool hidden_too) {
  for (int i = 0; i < a->slots; i++)
    if (a->slot[i].addr != 0 && (hidden_too || !a->slot[i].hidden)) look(a, &a->slot[i], 0);
}

/* Writes through the table on the page of slot `from`. */
static void through(actor *a, const op *o, bool made_by_kernel, void *kernel) {
  slot *table = &a->slot[o->from];
  cu_stream stream = a->streams[o->stream];
  cu_addr at = table->addr + TABLE_AT;
  uint64_t addresses[TABLE];
  use(a, table, o->stream);
  for (int k = 0; k < o->count; k++) {
    slot *s = &a->slot[o->others[k]];
    use(a, s, o->stream);
    addresses[k] = s->addr;
    if (made_by_kernel)
      launch3(k_point, at + (uint64_t)k * 8, s->addr >> 32, s->addr & UINT32_MAX, stream);
    for (int i = 0; i < WORDS; i++) {
      uint64_t more = (uint64_t)k + (uint64_t)i;
      s->model[i] = kernel == k_stamp ? more : s->model[i] + more;
    }
  }
  if (!made_by_kernel) MUST(cuMemcpyHtoDAsync_v2, at, addresses, (size_t)o->count * 8, stream);
  launch3(kernel, at, (uint64_t)o->count, WORDS, stream);
}

static void run(actor *a, const op *o) {
  slot *to = &a->slot[o->to], *from = &a->slot[o->from];
  cu_stream stream = a->streams[o->stream];
  if (to->addr == 0 || from->addr == 0) return;
  switch (o->kind) {
  case MIX:
    use(a, to, o->stream);
    use(a, from, o->stream);
    launch3(k_mix, to->addr, from->addr, WORDS, stream);
    for (uint64_t i = 0; i < WORDS; i++) to->model[i] = to->model[i] * 3 + from->model[i] + i;
    break;
  case FILL: fill(a, to, o->stream, o->value); break;
  case SET:
    use(a, to, o->stream);
    MUST(cuMemsetD8Async, to->addr, (unsigned char)o->value, sizeof to->model, stream);
    memset(to->model, (int)(o->value & 255), sizeof to->model);
    break;
  case COPY:
    if (to == from) break;
    use(a, to, o->stream);
    use(a, from, o->stream);
    MUST(cuMemcpyAsync, to->addr, from->addr, sizeof to->model, stream);
    memcpy(to->model, from->model, sizeof to->model);
    break;
  case SEND:
    use(a, to, o->stream);
    for (uint64_t i = 0; i < WORDS; i++) to->model[i] = o->value * i;
    MUST(cuMemcpyHtoDAsync_v2, to->addr, to->model, sizeof to->model, stream);
    break;
  case TABLED:
    for (int k = 0; k < o->count; k++)
      if (a->slot[o->others[k]].addr == 0) return;
    through(a, o, false, k_through);
    break;
  case POINTED: through(a, o, true, k_through); break;
  case LOOK: look(a, to, o->stream); break;
  default: break;
  }
}

/* ---- pages and blocks ---- */

static _Thread_local cu_handle asked;
static _Thread_local const cu_prop *asked_prop;
static int ask(unsigned long long *addr, size_t bytes) {
  (void)addr;
  return p_cuMemCreate(&asked, bytes, asked_prop, 0);
}

static void make_page(actor *a, int i, bool framework) {
  cu_prop prop = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, 0}};
  cu_access access = {{CU_LOCATION_DEVICE, 0}, CU_ACCESS_READ_WRITE};
  cu_addr addr = a->base + (uint64_t)i * PAGE_BYTES;
  unsigned long long none;
  prop.handle_types = exports && !framework;
  asked_prop = &prop;
  int code = CU_OK;
  for (int again = 0; again < 4; again++) { /* a framework retries */
    code = framework ? ask_through(ask, &none, PAGE_BYTES) : ask(&none, PAGE_BYTES);
    if (code == CU_OK || (code != CU_ERROR_OUT_OF_MEMORY && code != fail_code)) break;
  }
  if (code != CU_OK) {
    printf("cuMemCreate answers %d\n", code);
    exit(3);
  }
  a->handles[i] = asked;
  MUST(cuMemMap, addr, PAGE_BYTES, 0, asked, 0);
  MUST(cuMemSetAccess, addr, PAGE_BYTES, &access, 1);
}

static slot *add_slot(actor *a, cu_addr addr, int page) {
  slot *s = &a->slot[a->slots++];
  *s = (slot){.addr = addr, .page = page, .stream = -1};
  MUST(cuEventCreate, &s->event, CU_EVENT_NO_TIMING);
  return s;
}

static void take_block(slot *s) {
  report((void *)(uintptr_t)s->block, (int64_t)s->block_bytes, 0, 0, (device){1, 0});
}
static void give_block(slot *s) {
  report((void *)(uintptr_t)s->block, -(int64_t)s->block_bytes, 0, 0, (device){1, 0});
}

static void add_block(actor *a, cu_addr block, uint64_t bytes, cu_addr words) {
  slot *s = add_slot(a, words, -1);
  s->block = block;
  s->block_bytes = bytes;
  take_block(s);
  fill(a, s, 0, draw(a, 1u << 30));
}

/* Makes two neighbouring pages with three blocks, one of which is in both. */
static void make_framework(actor *a) {
  cu_addr at = a->base + (uint64_t)a->pages * PAGE_BYTES;
  const uint64_t half = PAGE_BYTES / 2;
  make_page(a, a->pages++, true);
  make_page(a, a->pages++, true);
  add_block(a, at, half, at);
  add_block(a, at + half, 2 * half, at + PAGE_BYTES - WORDS * 4);
  add_block(a, at + 3 * half, half, at + 2 * PAGE_BYTES - TABLE_AT - PAGE_BYTES / 4);
}

static void make_slots(actor *a, int pages, bool framework) {
  MUST(cuMemAddressReserve, &a->base, PAGES_MAX * PAGE_BYTES, 0, 0, 0);
  static const uint64_t offsets[] = {0, 4096, 1 << 20, PAGE_BYTES - (1 << 20)};
  while (a->pages < pages) {
    if (framework && a->pages > 0 && a->pages + 2 <= pages && draw(a, 2)) {
      make_framework(a);
      continue;
    }
    make_page(a, a->pages, false);
    slot *s =
        add_slot(a, a->base + (uint64_t)a->pages * PAGE_BYTES + offsets[draw(a, 4)], a->pages);
    a->pages++;
    if (points && a->slots > 2 && draw(a, 8) == 0) {
      s->hidden = true;
      op o = {.from = 0, .stream = 0, .count = 1, .others = {a->slots - 1}};
      through(a, &o, true, k_stamp);
    } else
      fill(a, s, 0, draw(a, 1u << 30));
  }
}

static void make_again(actor *a, slot *s) {
  cu_addr at = a->base + (uint64_t)s->page * PAGE_BYTES;
  wait_slot(a, s);
  MUST(cuMemUnmap, at, PAGE_BYTES);
  MUST(cuMemRelease, a->handles[s->page]);
  make_page(a, s->page, false);
  fill(a, s, (int)draw(a, STREAMS), draw(a, 1u << 30));
}

static void export_page(actor *a, const slot *s) {
  int fd = -1;
  MUST(cuMemExportToShareableHandle, &fd, a->handles[s->page], 1, 0);
  close(fd);
}

/* ---- streams ---- */

static void make_stream(actor *a, int i) {
  MUST(cuStreamCreate, &a->streams[i], i == 1 ? 0 : 1);
}

static void replace_stream(actor *a, int i) {
  for (int k = 0; k < a->slots; k++)
    if (a->slot[k].stream == i) mark(a, &a->slot[k]);
  MUST(cuStreamDestroy_v2, a->streams[i]);
  make_stream(a, i);
}

/* Captures a graph of kernels over two slots and launches it a few times. */
static void run_graph(actor *a) {
  static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
  slot *x = &a->slot[draw(a, (uint64_t)a->slots)], *y = &a->slot[draw(a, (uint64_t)a->slots)];
  if (x->addr == 0 || y->addr == 0 || x->hidden || y->hidden) return;
  int stream = 2;
  void *graph = NULL, *executable = NULL;
  use(a, x, stream);
  use(a, y, stream);
  pthread_mutex_lock(&one);
  MUST(cuStreamBeginCapture_v2, a->streams[stream], capture_mode);
  launch3(k_mix, x->addr, y->addr, WORDS, a->streams[stream]);
  launch3(k_mix, y->addr, x->addr, WORDS, a->streams[stream]);
  usleep(200 + (unsigned)draw(a, 2000)); /* Stowage's thread runs meanwhile */
  MUST(cuStreamEndCapture, a->streams[stream], &graph);
  pthread_mutex_unlock(&one);
  MUST(cuGraphInstantiateWithFlags, &executable, graph, 0);
  for (uint64_t n = 1 + draw(a, 3); n > 0; n--) {
    MUST(cuGraphLaunch, executable, a->streams[stream]);
    for (uint64_t i = 0; i < WORDS; i++) x->model[i] = x->model[i] * 3 + y->model[i] + i;
    for (uint64_t i = 0; i < WORDS; i++) y->model[i] = y->model[i] * 3 + x->model[i] + i;
  }
  if (draw(a, 2)) MUST(cuGraphExecDestroy, executable);
}

/* ---- steps ---- */

static int any_slot(actor *a, bool hidden) {
  for (int tries = 0; tries < 1000; tries++) {
    int i = (int)draw(a, (uint64_t)a->slots);
    if (a->slot[i].hidden == hidden) return i;
  }
  return -1;
}

static op make_op(actor *a, int at) {
  op o = {.kind = draw(a, 3) ? MIX : (op_kind)draw(a, KINDS), .value = draw(a, 1u << 30)};
  o.stream = many_streams ? (int)draw(a, STREAMS) : 0;
  /* Mostly in order, like a network. */
  o.to = draw(a, 4) ? at % a->slots : (int)draw(a, (uint64_t)a->slots);
  o.from = draw(a, 2) ? (o.to + 1) % a->slots : (int)draw(a, (uint64_t)a->slots);
  if (a->slot[o.to].hidden) o.to = any_slot(a, false);
  if (a->slot[o.from].hidden) o.from = any_slot(a, false);
  if (o.kind == POINTED || o.kind == TABLED) {
    bool hidden = o.kind == POINTED;
    while (a->slot[o.from].page < 0) o.from = any_slot(a, false);
    o.count = 1 + (int)draw(a, 3);
    for (int k = 0; k < o.count; k++) o.others[k] = any_slot(a, hidden);
    if (o.others[0] < 0 || (hidden ? !points : !tables)) o.kind = MIX;
  }
  return o;
}

static void make_step(actor *a) {
  a->op_count = 12 + (int)draw(a, OPS - 12);
  for (int i = 0; i < a->op_count; i++) a->ops[i] = make_op(a, i);
}

/* Frees and allocates blocks; a freed block is unused until it is allocated again, perhaps steps
 * later. */
static void block_turn(actor *a) {
  slot *s = &a->slot[draw(a, (uint64_t)a->slots)];
  if (s->block == 0) return;
  if (s->addr != 0) {
    wait_slot(a, s);
    give_block(s);
    s->addr = 0;
    return;
  }
  take_block(s);
  uint64_t half = PAGE_BYTES / 2;
  s->addr = s->block_bytes > half ? s->block + half - WORDS * 4 : s->block + 512 * draw(a, 64);
  fill(a, s, (int)draw(a, STREAMS), draw(a, 1u << 30));
}

static void between(actor *a) {
  slot *s = &a->slot[draw(a, (uint64_t)a->slots)];
  switch (draw(a, 12)) {
  case 0: MUST(cuCtxSynchronize); break;
  case 1: look_at_all(a, false); break;
  case 2:
    if (s->page >= 0 && !s->hidden) make_again(a, s);
    break;
  case 3:
  case 4: block_turn(a); break;
  case 5: replace_stream(a, 1 + (int)draw(a, STREAMS - 1)); break;
  case 6:
  case 8:
    if (captures) run_graph(a);
    break;
  case 7:
    if (exports && s->page >= 0 && draw(a, 4) == 0) export_page(a, s);
    break;
  default: break;
  }
}

static void *act(void *user) {
  actor *a = user;
  MUST(cuCtxSetCurrent, context);
  for (int phase = 0; phase < 2; phase++) {
    make_step(a);
    for (int step = 0; step < 8; step++) {
      for (int i = 0; i < a->op_count; i++) run(a, &a->ops[i]);
      if (phase == 1 && draw(a, 2)) { /* it drifts */
        int i = (int)draw(a, (uint64_t)a->op_count);
        a->ops[i] = make_op(a, i);
      }
      if (draw(a, 2)) between(a);
    }
  }
  MUST(cuCtxSynchronize);
  look_at_all(a, true);
  return NULL;
}

/* ---- beginning ---- */

static void find_kernels(void) {
  void *module;
  MUST(cuModuleLoadData, &module, "kernels");
  MUST(cuModuleGetFunction, &k_mix, module, "mix");
  MUST(cuModuleGetFunction, &k_fill, module, "fill");
  MUST(cuModuleGetFunction, &k_through, module, "through");
  MUST(cuModuleGetFunction, &k_stamp, module, "stamp");
  MUST(cuModuleGetFunction, &k_point, module, "point");
}

static void start(void) {
  library = dlopen("libcuda.so.1", RTLD_NOW);
  const char *c10 = getenv("MOVER_C10");
#define FIND(name, parameters) p_##name = (cu_result(*) parameters)(uintptr_t)dlsym(library, #name);
  if (library == NULL) exit(3);
  CALLS(FIND)
  void *framework = c10 != NULL ? dlopen(c10, RTLD_NOW | RTLD_GLOBAL) : NULL;
  if (framework != NULL) {
    *(void **)&ask_through = dlsym(framework, "ask_through");
    *(void **)&report =
        dlsym(RTLD_DEFAULT, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
  }
  MUST(cuInit, 0);
  MUST(cuDevicePrimaryCtxRetain, &context, 0);
  MUST(cuCtxSetCurrent, context);
  find_kernels();
}

/* Returns a function of the stand-in, which is behind the shim or, without a shim, the driver
 * itself. */
static void *standin(const char *name) {
  void *(*real)(const char *) =
      (void *(*)(const char *))(uintptr_t)dlsym(library, "stow_shim_real");
  return real != NULL ? real(name) : dlsym(library, name);
}

static int calls_of(const char *name) {
  int (*calls)(const char *) = (int (*)(const char *))(uintptr_t)standin("standin_calls");
  return calls(name);
}

static void begin_failing(void) {
  char text[128], *rest;
  const char *said = getenv("MOVER_FAIL");
  if (said == NULL) return;
  snprintf(text, sizeof text, "%s", said);
  const char *name = strtok_r(text, ":", &rest);
  fail_code = atoi(strtok_r(NULL, ":", &rest));
  int nth = atoi(strtok_r(NULL, ":", &rest)), times = atoi(strtok_r(NULL, ":", &rest));
  ((void (*)(const char *, int, int, int))(uintptr_t)standin("standin_fail_some"))(name, fail_code,
                                                                                   nth, times);
}

/* Resets the context: nothing of it is left, except its pages. */
static void reset(actor *actors, int count) {
  MUST(cuCtxSynchronize);
  MUST(cuDevicePrimaryCtxReset_v2, 0);
  find_kernels();
  for (int n = 0; n < count; n++) {
    actor *a = &actors[n];
    for (int i = 1; i < STREAMS; i++) make_stream(a, i);
    for (int i = 0; i < a->slots; i++) {
      MUST(cuEventCreate, &a->slot[i].event, CU_EVENT_NO_TIMING);
      a->slot[i].stream = -1;
      a->slot[i].marked = false;
    }
  }
}

static void run_all(actor *actors, int count) {
  pthread_t threads[ACTORS];
  for (int n = 1; n < count; n++) pthread_create(&threads[n], NULL, act, &actors[n]);
  act(&actors[0]);
  for (int n = 1; n < count; n++) pthread_join(threads[n], NULL);
}

/* A framework that holds much more than it uses: a request is refused once, so that it releases
 * what it does not use. One that uses all it holds is served on the host. */
static int scattered(void) {
  enum { PAGES = 24, UNUSED = 12 };
  static actor a;
  cu_prop prop = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, 0}};
  unsigned long long none;
  size_t live = 0;
  MUST(cuMemAddressReserve, &a.base, PAGES_MAX * PAGE_BYTES, 0, 0, 0);
  for (int i = 0; i < PAGES; i++) {
    cu_addr at = a.base + (uint64_t)i * PAGE_BYTES;
    make_page(&a, i, true);
    live += PAGE_BYTES;
    report((void *)(uintptr_t)at, (int64_t)PAGE_BYTES, live, 0, (device){1, 0});
    launch3(k_fill, at, 1, WORDS, NULL);
  }
  MUST(cuCtxSynchronize);
  asked_prop = &prop;
  int served = ask_through(ask, &none, PAGE_BYTES);
  MUST(cuMemRelease, asked);
  for (int i = 0; i < UNUSED; i++) {
    live -= PAGE_BYTES;
    report((void *)(uintptr_t)(a.base + (uint64_t)i * PAGE_BYTES), -(int64_t)PAGE_BYTES, live, 0,
           (device){1, 0});
  }
  int refused = ask_through(ask, &none, PAGE_BYTES), made = calls_of("cuMemCreate");
  for (int i = 0; i < UNUSED; i++) {
    MUST(cuMemUnmap, a.base + (uint64_t)i * PAGE_BYTES, PAGE_BYTES);
    MUST(cuMemRelease, a.handles[i]);
  }
  make_page(&a, 0, true);
  printf("served %d, refused %d, then %d new pages\n", served, refused,
         calls_of("cuMemCreate") - made);
  return 0;
}

int main(int argc, char **argv) {
  static actor actors[ACTORS];
  actor dice = {.random = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) * 0x9e3779b97f4a7c15u + 1};
  for (int i = 0; i < 8; i++) draw(&dice, 2);
  start();
  if (argc > 1 && strcmp(argv[1], "scattered") == 0) return scattered();
  int count = draw(&dice, 2) ? 1 : 1 + (int)draw(&dice, ACTORS);
  capture_mode = count > 1;
  exports = draw(&dice, 4) == 0, resets = draw(&dice, 8) == 0, captures = draw(&dice, 2);
  tables = draw(&dice, 2), points = draw(&dice, 3) == 0, many_streams = draw(&dice, 3) > 0;
  bool framework = ask_through != NULL && report != NULL && !exports && draw(&dice, 2);
  int pages = 22 + (int)draw(&dice, 14);
  for (int n = 0; n < count; n++) {
    actor *a = &actors[n];
    a->random = dice.random + (uint64_t)n * 0x1234567u + 7;
    a->slot = calloc(SLOTS, sizeof *a->slot);
    for (int i = 1; i < STREAMS; i++) make_stream(a, i);
    make_slots(a, pages / count, framework);
  }
  char names[256], *rest = NULL;
  snprintf(names, sizeof names, "%s", getenv("MOVER_CALLS") != NULL ? getenv("MOVER_CALLS") : "");
  int first[32], listed = 0;
  const char *list[32];
  for (char *name = strtok_r(names, ",", &rest); name != NULL && listed < 32;
       name = strtok_r(NULL, ",", &rest)) {
    list[listed] = name;
    first[listed++] = calls_of(name);
  }
  begin_failing();
  run_all(actors, count);
  if (resets) {
    reset(actors, count);
    run_all(actors, count);
  }
  uint64_t words = 0;
  for (int n = 0; n < count; n++) words += actors[n].checked;
  for (int i = 0; i < listed; i++) printf("calls %s %d\n", list[i], calls_of(list[i]) - first[i]);
  printf("equal %llu words\n", (unsigned long long)words);
  return 0;
}
