/* Churn: threads that allocate, write, check and free plain memory of many sizes, at the same time.
 * The stand-in driver's memory can be written, so a block that two threads get at once is detected.
 * Meanwhile the device's streams are busy and idle in turn.
 *
 *   churn THREADS ROUNDS [ends]   "ROUNDS taken, REFUSED refused, WRONG wrong"; with `ends`,
 *                                 the context of a second device is created, used and destroyed
 * meanwhile */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_driver.h"
#include "shim/hooks.h"

#define HELD 24

static void *library;
static cu_context context;
static int rounds;
static _Atomic long taken, refused, wrong;
static _Atomic int running;

#define DRIVER(name, type) ((type)(uintptr_t)dlsym(library, name))
#define HOOKED(name)       ((__typeof__(&name))(uintptr_t)dlsym(library, #name))

typedef struct block {
  cu_addr addr;
  size_t bytes;
  uint64_t mark;
} block;

static uint64_t next(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  return z ^ (z >> 31);
}

/* Marks both ends and a line in the middle of every 64 KiB. */
static void each_mark(const block *b, int check) {
  for (size_t at = 0; at + 8 <= b->bytes; at += 65536) {
    uint64_t *word = (uint64_t *)(uintptr_t)(b->addr + at);
    if (check && *word != b->mark) atomic_fetch_add(&wrong, 1);
    *word = b->mark;
  }
}

static void give(block *b) {
  each_mark(b, 1);
  if (HOOKED(cuMemFree_v2)(b->addr) != CU_OK) atomic_fetch_add(&wrong, 1);
  *b = (block){0};
}

static void take(block *b, uint64_t *state, uint64_t mark) {
  size_t bytes = (size_t)8 << (next(state) % 22); /* to 16 MiB */
  bytes += next(state) % bytes;
  *b = (block){.bytes = bytes, .mark = mark};
  if (HOOKED(cuMemAlloc_v2)(&b->addr, bytes) != CU_OK) {
    atomic_fetch_add(&refused, 1);
    *b = (block){0};
    return;
  }
  atomic_fetch_add(&taken, 1);
  if (b->addr % 256 != 0) atomic_fetch_add(&wrong, 1);
  each_mark(b, 0);
}

static void *churn(void *user) {
  uint64_t self = (uintptr_t)user, state = self * 77;
  block held[HELD] = {{0}};
  DRIVER("cuCtxSetCurrent", cu_result(*)(cu_context))(context);
  for (int i = 0; i < rounds; i++) {
    block *b = &held[next(&state) % HELD];
    if (b->addr != 0)
      give(b);
    else
      take(b, &state, self << 32 | (unsigned)i);
  }
  for (int i = 0; i < HELD; i++)
    if (held[i].addr != 0) give(&held[i]);
  atomic_fetch_sub(&running, 1);
  return NULL;
}

/* Creates a context on the first device, with a block that belongs to it, and destroys it. */
static void live_and_end(void) {
  cu_context other;
  cu_addr addr;
  if (HOOKED(cuDevicePrimaryCtxRetain)(&other, 0) != CU_OK ||
      DRIVER("cuCtxSetCurrent", cu_result(*)(cu_context))(other) != CU_OK ||
      HOOKED(cuMemAlloc_v2)(&addr, 4096) != CU_OK ||
      HOOKED(cuDevicePrimaryCtxRelease_v2)(0) != CU_OK)
    atomic_fetch_add(&wrong, 1);
}

int main(int argc, char **argv) {
  enum { THREADS_MAX = 16 };
  pthread_t threads[THREADS_MAX];
  int count = argc > 2 ? (int)strtol(argv[1], NULL, 10) : 4;
  rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 1000;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL || count > THREADS_MAX ||
      DRIVER("cuInit", cu_result(*)(unsigned))(0) != CU_OK ||
      HOOKED(cuDevicePrimaryCtxRetain)(&context, argc > 3) != CU_OK)
    return 3;
  void *(*real)(const char *) = DRIVER("stow_shim_real", void *(*)(const char *));
  void (*hold)(int) = (void (*)(int))(uintptr_t)real("standin_hold");
  atomic_store(&running, count);
  for (int i = 0; i < count; i++)
    pthread_create(&threads[i], NULL, churn, (void *)(uintptr_t)(i + 1));
  for (int on = 1; atomic_load(&running) > 0; on = !on) {
    hold(on);
    if (argc > 3) live_and_end();
    for (int i = 0; argc <= 3 && i < 2000 && atomic_load(&running) > 0; i++) sched_yield();
  }
  hold(0);
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
  printf("%ld taken, %ld refused, %ld wrong\n", atomic_load(&taken), atomic_load(&refused),
         atomic_load(&wrong));
  return 0;
}
