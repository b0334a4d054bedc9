/* Sampler: which allocations are sampled, and what is known about each sampled block.
 *
 * hooks.c counts every allocation down with sampler_due, and calls sampler_note for the few that
 * are due. Frees call sampler_may_hold first: one byte of a table, 0 for nearly every block.
 *
 * One lock guards everything except the threads' counters. It is never held while the interpreter,
 * the loader or the program runs. Nothing here may allocate from the program's allocator. */
#ifndef SHIM_PROFILE_SAMPLER_H
#define SHIM_PROFILE_SAMPLER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sampler_thread {
  int64_t left;     /* bytes until sampler_note is due */
  int64_t chunk;    /* the initial value of `left` */
  int64_t distance; /* bytes until the next sample, at the start of the chunk */
  uint64_t random;
  bool busy; /* inside the sampler: its own requests are not counted */
} sampler_thread;

extern __thread sampler_thread sampler_here __attribute__((tls_model("initial-exec")));

#define SAMPLER_FILTER (1u << 18)
extern _Atomic uint8_t sampler_filter[SAMPLER_FILTER];

static inline uint32_t sampler_slot(const void *block) {
  uintptr_t a = (uintptr_t)block;
  return (uint32_t)((a >> 4) ^ (a >> 22)) & (SAMPLER_FILTER - 1);
}

/* Counts an allocation. Returns true if sampler_note must be called once it succeeded. */
static inline bool sampler_due(size_t bytes) {
  return (sampler_here.left -= (int64_t)bytes) < 0;
}

/* Returns false if the block is not sampled. */
static inline bool sampler_may_hold(const void *block) {
  return atomic_load_explicit(&sampler_filter[sampler_slot(block)], memory_order_relaxed) != 0;
}

/* Samples the block if a sample is due. block NULL: the request failed. */
void sampler_note(void *block, size_t bytes);

/* Forgets a block that is about to be freed. Returns whether it was sampled. sampler_restore undoes
 * this if the block was not freed after all. */
typedef struct sampler_block {
  uintptr_t address; /* 0: an empty slot */
  uint64_t bytes;
  uint32_t site;
} sampler_block;
bool sampler_forget(const void *block, sampler_block *kept);
void sampler_restore(const sampler_block *kept);

/* Starts sampling in a running process, into a file in `folder`, until sampler_stop. Returns false
 * if it is already profiled. Requires the interpreter's lock. */
bool sampler_start(const char *folder);
void sampler_stop(void);

#endif
