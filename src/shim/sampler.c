/* Sampler: pairs of events. See sampler.h. */
#include "shim/sampler.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/assert.h"
#include "shim/gate.h"
#include "shim/shim.h"

enum { NONE = 0, BEGUN, ENDED };

static _Thread_local struct sample *mine;

/* Behind the launch, on the thread that made it. */
static void ends(void) {
  struct sample *s = mine;
  bool good = shim_driver()->cuEventRecord(s->end, s->stream) == CU_OK;
  atomic_store(&s->state, good ? ENDED : NONE);
}

int sampler_begin(sampler *s, cu_stream stream) {
  ASSERT(s != NULL);
  const cuda_driver *driver = shim_driver();
  if (driver->cuEventElapsedTime == NULL) return -1;
  for (int i = 0; i < SAMPLES_MAX; i++) {
    struct sample *one = &s->list[i];
    if (atomic_load(&one->state) != NONE) continue;
    if (one->begin == NULL && (driver->cuEventCreate(&one->begin, 0) != CU_OK ||
                               driver->cuEventCreate(&one->end, 0) != CU_OK)) {
      one->begin = NULL;
      return -1;
    }
    one->stream = stream;
    if (driver->cuEventRecord(one->begin, stream) != CU_OK) return -1;
    atomic_store(&one->state, BEGUN);
    mine = one;
    gate_after(ends);
    return i;
  }
  return -1;
}

int sampler_take(sampler *s, uint64_t *ns) {
  ASSERT(ns != NULL);
  const cuda_driver *driver = shim_driver();
  for (int i = 0; i < SAMPLES_MAX; i++) {
    struct sample *one = &s->list[i];
    float milliseconds;
    if (atomic_load(&one->state) != ENDED || driver->cuEventQuery(one->end) == CU_ERROR_NOT_READY)
      continue;
    bool good = driver->cuEventElapsedTime(&milliseconds, one->begin, one->end) == CU_OK;
    atomic_store(&one->state, NONE);
    if (!good) continue;
    *ns = (uint64_t)((double)milliseconds * 1e6);
    return i;
  }
  return -1;
}
