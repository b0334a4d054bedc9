/* Controls of the simulated device: its clock, its counters, and work submitted to it. */
#include "base/checked.h"
#include "base/growing.h"
#include "device/fault.h"
#include "device/sim_state.h"

sim *sim_of(stow_device *device) {
  while (device != NULL && device->ops != &sim_ops) device = fault_inner(device);
  return (sim *)(void *)device;
}

stow_status stow_sim_advance(stow_device *device, uint64_t us) {
  sim *s = sim_of(device);
  if (s == NULL) return stow_fail(STOW_ERR_INVALID, "advancing time: not a simulated device");
  lock_acquire(&s->lock);
  uint64_t ns, then;
  stow_status status = STOW_OK;
  if (!checked_mul(&ns, us, 1000) || !checked_add(&then, s->counts.now_ns, ns))
    status =
        stow_fail(STOW_ERR_OVERFLOW,
                  "advancing time by %llu us exceeds the simulated clock, which holds 584 years",
                  (unsigned long long)us);
  else
    s->counts.now_ns = then;
  return sim_unlock(s, status);
}

stow_status stow_sim_get_counts(stow_device *device, stow_sim_counts *counts) {
  sim *s = sim_of(device);
  if (s == NULL || counts == NULL)
    return stow_fail(STOW_ERR_INVALID,
                     "counts: not a simulated device, or the result pointer is NULL");
  lock_acquire(&s->lock);
  return sim_unlock(s, growing_write(counts, &s->counts, sizeof s->counts, "stow_sim_counts"));
}

stow_status stow_sim_submit(stow_device *device, stow_stream stream, stow_addr addr, uint64_t bytes,
                            stow_sim_use how, uint64_t us) {
  sim *s = sim_of(device);
  if (s == NULL) return stow_fail(STOW_ERR_INVALID, "submitting work: not a simulated device");
  lock_acquire(&s->lock);
  return sim_unlock(s, sim_work_submit(s, stream, addr, bytes, how, us));
}
