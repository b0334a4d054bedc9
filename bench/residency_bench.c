/* Residency bench: what the engine and the reading of parameters cost a launch when nothing is
 * missing, which every launch of a spilled program pays. The bound is 300 ns for a launch of up to
 * 32 words and 10 ns for each further word. */
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "residency/residency.h"
#include "shim/launch.h"
#include "shim/shim.h"

#define UNIT (UINT64_C(20) << 20)
#define BASE (UINT64_C(0x7f) << 32)

enum { UNITS = 4000, LAUNCHES = 2000, WORDS_MAX = 256 };

/* Measures a step of 2000 launches over 80 GiB, each with `blocks` words that name blocks among
 * `count` words. */
static void bench(size_t count, size_t blocks) {
  residency *r;
  residency_options o = {.capacity_bytes = (UNITS + 100) * UNIT};
  uint32_t unit;
  static uint64_t words[LAUNCHES][WORDS_MAX];
  uint64_t seed = 1;
  if (residency_open(&r, &o) != STOW_OK) exit(1);
  for (uint64_t i = 0; i < UNITS; i++)
    if (residency_unit_add(r, BASE + i * UNIT, UNIT, true, &unit) != STOW_OK) exit(1);
  for (uint64_t i = 0; i < UNITS * 4; i++)
    if (residency_block_add(r, BASE + i * (UNIT / 4), UNIT / 4) != STOW_OK) exit(1);
  for (size_t i = 0; i < LAUNCHES; i++)
    for (size_t k = 0; k < count; k++) {
      seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
      uint64_t block = (i * 8 + (seed >> 33) % 64) % (UNITS * 4);
      words[i][k] = k < blocks ? BASE + block * (UNIT / 4) : seed >> 40; /* sizes, strides */
    }
  uint64_t best = UINT64_MAX;
  for (int round = 0; round < 30; round++) {
    uint64_t start = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (size_t i = 0; i < LAUNCHES; i++) {
      residency_launch_info l = {.function = i % 40,
                                 .words = words[i],
                                 .word_count = count,
                                 .device_ns = 10000,
                                 .host_ns = 5000,
                                 .now_ns = start};
      if (residency_launch(r, &l) != RESIDENCY_GO) exit(1);
    }
    uint64_t took = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID) - start;
    if (round > 3 && took < best) best = took;
  }
  printf("residency, launch of %3zu words, %2zu of them blocks: %4llu ns\n", count, blocks,
         (unsigned long long)(best / LAUNCHES));
  residency_close(r);
}

/* ---- reading parameters ---- */

static cu_result parameter(void *function, size_t index, size_t *offset, size_t *bytes) {
  *offset = index * 8;
  *bytes = 8;
  return index < (uintptr_t)function ? CU_OK : CU_ERROR_INVALID_VALUE;
}
const cuda_driver *shim_driver(void) {
  static cuda_driver driver;
  driver.cuFuncGetParamInfo = parameter;
  return &driver;
}

/* Returns the instructions of this thread so far; 0 if they cannot be counted. */
static uint64_t instructions(void) {
  static int file = -2;
  uint64_t count;
  if (file == -2) {
    struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_HW_INSTRUCTIONS,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    file = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
  }
  return file >= 0 && read(file, &count, sizeof count) == sizeof count ? count : 0;
}

/* Measures cuLaunchKernel with `count` parameters, half of them addresses in range. */
static void bench_read(size_t count) {
  enum { ROUNDS = 30, CALLS = 2000 };
  static launch l;
  static uint64_t values[WORDS_MAX];
  static void *parameters[WORDS_MAX];
  uint64_t arguments[16] = {count, 1, 1, 1, 1, 1, 1, 0, 64, (uintptr_t)parameters, 0};
  for (size_t i = 0; i < count; i++) {
    values[i] = i % 2 ? i : BASE + i * UNIT;
    parameters[i] = &values[i];
  }
#if defined(__x86_64__)
  const uint64_t *stack = arguments + 6;
#else
  const uint64_t *stack = arguments + 8;
#endif
  uint64_t best = UINT64_MAX, steps = 0;
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t before = instructions(), start = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < CALLS; i++)
      if (!launch_read(&l, SYMBOL_cuLaunchKernel, arguments, stack, BASE, BASE + UNITS * UNIT))
        exit(1);
    uint64_t took = clock_read_ns(CLOCK_PROCESS_CPUTIME_ID) - start;
    steps = instructions() - before;
    if (took < best) best = took;
  }
  if (l.count != (count + 1) / 2) exit(1);
  char words[48] = "not counted here";
  if (steps > 0) snprintf(words, sizeof words, "%llu", (unsigned long long)(steps / CALLS));
  printf("reading a launch of %3zu parameters: %4llu ns, instructions %s\n", count,
         (unsigned long long)(best / CALLS), words);
}

int main(void) {
  bench_read(4);
  bench_read(32);
  bench_read(256);
  bench(4, 2);
  bench(8, 4);
  bench(32, 6);
  bench(32, 32);
  bench(256, 32);
  return 0;
}
