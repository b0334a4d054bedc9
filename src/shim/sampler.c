/* Sampler: pairs of events. See sampler.h. */
#include "shim/sampler.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/assert.h"
#include "base/clock.h"
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
  int i = (int)(s->next % SAMPLES_MAX);
  struct sample *one = &s->list[i];
  if (driver->cuEventElapsedTime == NULL || s->next - s->oldest == SAMPLES_MAX) return -1;
  if (one->begin == NULL && (driver->cuEventCreate(&one->begin, 0) != CU_OK ||
                             driver->cuEventCreate(&one->end, 0) != CU_OK)) {
    one->begin = NULL;
    return -1;
  }
  one->stream = stream;
  if (driver->cuEventRecord(one->begin, stream) != CU_OK) return -1;
  atomic_store(&one->state, BEGUN);
  s->next++;
  mine = one;
  gate_after(ends);
  return i;
}

/* Returns whether a sample is over, with its time; 0: it failed. */
static bool is_over(struct sample *one, uint64_t *ns) {
  const cuda_driver *driver = shim_driver();
  float milliseconds;
  int state = atomic_load(&one->state);
  *ns = 0;
  if (state == BEGUN || (state == ENDED && driver->cuEventQuery(one->end) == CU_ERROR_NOT_READY))
    return false;
  if (state == ENDED && driver->cuEventElapsedTime(&milliseconds, one->begin, one->end) == CU_OK)
    *ns = (uint64_t)((double)milliseconds * 1e6) + 1;
  atomic_store(&one->state, NONE);
  return true;
}

int sampler_take(sampler *s, uint64_t *ns) {
  ASSERT(ns != NULL);
  /* The first that has not ended holds up the others, which is rare: launches of one stream end in
   * order. */
  while (s->oldest != s->next) {
    int i = (int)(s->oldest % SAMPLES_MAX);
    if (!is_over(&s->list[i], ns)) return -1;
    s->oldest++;
    if (*ns > 0) return i;
  }
  return -1;
}

bool sampler_wait(const sampler *s, int number, uint64_t most_ns, bool *began) {
  ASSERT(number >= 0 && number < SAMPLES_MAX);
  ASSERT(began != NULL);
  const cuda_driver *driver = shim_driver();
  const struct sample *one = &s->list[number];
  uint64_t start = clock_ns();
  *began = false;
  while (atomic_load(&one->state) == ENDED &&
         driver->cuEventQuery(one->end) == CU_ERROR_NOT_READY) {
    if (clock_ns() - start > most_ns) {
      if (*began || driver->cuEventQuery(one->begin) != CU_OK) return false;
      *began = true;
      start = clock_ns();
    }
  }
  return true;
}
