/* Sampler: device times of single launches, measured with a pair of events each. Called with a lock
 * of the caller's held; the second event is recorded by the launching thread behind its launch. */
#ifndef SHIM_SAMPLER_H
#define SHIM_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda_driver.h"

enum { SAMPLES_MAX = 64 };

typedef struct sampler {
  struct sample {
    _Atomic int state; /* ENDED is set by the launching thread */
    cu_stream stream;
    cu_event begin, end;
  } list[SAMPLES_MAX];
  /* Samples are numbered as they begin. Those from `oldest` to before `next` are in use, each at
   * its number modulo SAMPLES_MAX. */
  uint32_t oldest, next;
} sampler;

/* Times the launch that the calling thread is about to make (it is in a gate_visit). Returns its
 * number, or -1: none is free, or the driver refuses. */
int sampler_begin(sampler *s, cu_stream stream);
/* Returns the number of a launch that has ended, with its time, and frees it; -1: none has. Not
 * while a graph is captured: asking for an event would spoil the capture. */
int sampler_take(sampler *s, uint64_t *ns);
/* Returns how many of SAMPLES_MAX are in use. */
static inline uint32_t sampler_busy(const sampler *s) {
  return s->next - s->oldest;
}
/* Waits until a launch has ended, at most `most_ns`, and as long again if it has begun by then
 * (*began); returns whether it has ended. Not while a graph is captured, and not by the thread that
 * is about to make the launch. */
bool sampler_wait(const sampler *s, int number, uint64_t most_ns, bool *began);

#endif
