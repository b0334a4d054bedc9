/* Fault sweep: run a scenario with no fault to count its device calls, then once for each call and
 * each error, with that call failing.
 *
 * A sweep checks four things. The scenario neither crashes nor hangs. It returns the armed error,
 * or reports that it did not need the call. The message is the fault device's own or wraps it.
 * After the scenario has cleaned up, the simulated device inside closes without leaks and
 * violations.
 *
 *   static sweep_result scenario(stow_device *d) { … }   does the job, cleans up, whatever fails
 *   sweep_run(&(sweep){.scenario = scenario});
 *
 * No call fails during cleanup, because a single fault has passed by then. With `every`, all calls
 * of the kind fail from the nth on, also during cleanup. Then leaks and violations are allowed
 * (memory that cannot be unmapped stays), but crashes are not. */
#ifndef SWEEP_H
#define SWEEP_H

#include <stdlib.h>

#include <stowage/sys/device.h>

#include "harness.h"

typedef struct sweep_result {
  stow_status status; /* STOW_OK: the job was done, even if a fault was armed */
  char message[256];  /* the thread's message at the time of the failure */
} sweep_result;

typedef struct sweep {
  const char *device; /* device name; NULL: "sim:1G,host=1G,paper" */
  sweep_result (*scenario)(stow_device *device);
  stow_fault_kind kind; /* STOW_FAULT_ANY (0): every call in turn */
  bool every;           /* fail all calls from the nth on */
  bool may_do_without;  /* the scenario may succeed although a call failed */
  bool (*passes)(stow_status armed, const sweep_result *got); /* checks the result; NULL: it must be
                                                               * the armed status */
} sweep;

/* The errors with which each call fails in turn. */
static const stow_status sweep_statuses[] = {STOW_ERR_OUT_OF_MEMORY, STOW_ERR_DEVICE,
                                             STOW_ERR_DEVICE_LOST, STOW_ERR_HOST_MEMORY};
#define SWEEP_STATUSES (sizeof sweep_statuses / sizeof sweep_statuses[0])

static inline sweep_result sweep_result_of(stow_status status) {
  sweep_result result = {.status = status};
  if (status != STOW_OK)
    snprintf(result.message, sizeof result.message, "%s", stow_status_message());
  return result;
}

static inline stow_device *sweep_open(const sweep *s) {
  stow_device *inner = NULL, *device = NULL;
  CHECK_OK(stow_device_open(&inner, s->device != NULL ? s->device : "sim:1G,host=1G,paper"));
  CHECK_OK(stow_fault_open(&device, inner));
  return device;
}

static inline void sweep_close(const sweep *s, stow_device *device, uint64_t nth) {
  stow_sim_counts counts = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(device, &counts));
  if (counts.violations != 0 && !s->every)
    FAIL("call %" PRIu64 " failed: %" PRIu64 " violations caught", nth, counts.violations);
  stow_status status = stow_device_close(device);
  if (status != STOW_OK && !(s->every && status == STOW_ERR_STATE))
    FAIL("call %" PRIu64 " failed: closing: %s", nth, stow_status_message());
}

/* Does one run in which call `nth` fails with `armed`. Returns whether the fault occurred. */
static inline bool sweep_one(const sweep *s, uint64_t nth, stow_status armed) {
  stow_device *device = sweep_open(s);
  uint64_t failed = 0;
  CHECK_OK(stow_fault_arm(device, s->kind, nth, s->every, armed));
  sweep_result got = s->scenario(device);
  CHECK_OK(stow_fault_count(device, s->kind, NULL, &failed));
  if (failed > 0) {
    bool fine = s->passes != NULL
                    ? s->passes(armed, &got)
                    : got.status == armed || (s->may_do_without && got.status == STOW_OK);
    if (!fine)
      FAIL("call %" PRIu64 " failed with \"%s\": the scenario ended with \"%s\" (%s)", nth,
           stow_status_name(armed), stow_status_name(got.status), got.message);
    if (got.status == armed && strstr(got.message, "on purpose") == NULL)
      FAIL("call %" PRIu64 " failed: its message was lost; there is \"%s\"", nth, got.message);
  }
  CHECK_OK(stow_fault_arm(device, s->kind, 0, false, STOW_OK));
  if (!s->every) { /* the device does the whole job now, whatever failed before */
    got = s->scenario(device);
    if (got.status != STOW_OK)
      FAIL("after call %" PRIu64 " failed the device no longer works: %s", nth, got.message);
  }
  sweep_close(s, device, nth);
  return failed > 0;
}

/* Runs the sweep. Returns how many faults occurred. Each call fails with two of the errors, in a
 * sanitizer build with one; STOWAGE_TEST_SEED chooses which. `make test-long` tries all. */
static inline uint64_t sweep_run(const sweep *s) {
  stow_device *device = sweep_open(s);
  uint64_t calls = 0, faults = 0;
  sweep_result clean = s->scenario(device);
  if (clean.status != STOW_OK) FAIL("with no fault: %s", clean.message);
  CHECK_OK(stow_fault_count(device, s->kind, &calls, NULL));
  CHECK(calls > 0);
  sweep_close(&(sweep){.every = false}, device, 0);
  const char *seed = getenv("STOWAGE_TEST_SEED");
  uint64_t statuses = harness_long() ? SWEEP_STATUSES : harness_rounds(SWEEP_STATUSES / 2, 1);
  uint64_t from = statuses * (seed != NULL ? strtoull(seed, NULL, 10) % SWEEP_STATUSES : 0);
  for (uint64_t nth = 1; nth <= calls; nth++)
    for (uint64_t i = 0; i < statuses; i++)
      faults += sweep_one(s, nth, sweep_statuses[(from + nth + i) % SWEEP_STATUSES]) ? 1 : 0;
  if (faults < calls * statuses)
    FAIL("%" PRIu64 " calls, but only %" PRIu64 " faults were met", calls, faults);
  return faults;
}

#endif
