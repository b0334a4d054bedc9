/* Capacity of the simulated device: which tiers it has, and how much of each is used. */
#include <stowage/size.h>

#include "device/sim_state.h"

stow_status sim_check_tier(const sim *s, stow_tier tier) {
  if (tier == STOW_TIER_VRAM || (tier == STOW_TIER_HOST && s->options.host_bytes > 0))
    return STOW_OK;
  if (tier == STOW_TIER_HOST)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "this simulated device has no host tier; open it like sim:16G,host=32G");
  if (tier == STOW_TIER_DISK)
    return stow_fail(STOW_ERR_UNSUPPORTED, "a device has no disk tier; use vram or host");
  return stow_fail(STOW_ERR_INVALID, "%d is not a tier; use vram or host", (int)tier);
}

stow_status sim_check_vmm(const sim *s, const char *what) {
  if (!s->options.no_vmm) return STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "%s: this simulated device was opened without pages (no-vmm); use plain blocks",
                   what);
}

static uint64_t tier_total(const sim *s, stow_tier tier) {
  return tier == STOW_TIER_VRAM ? s->options.vram_bytes : s->options.host_bytes;
}

stow_status sim_charge(sim *s, stow_tier tier, uint64_t bytes) {
  bool vram = tier == STOW_TIER_VRAM;
  uint64_t *used = vram ? &s->counts.vram_used_bytes : &s->counts.host_used_bytes;
  uint64_t *peak = vram ? &s->counts.vram_peak_bytes : &s->counts.host_peak_bytes;
  uint64_t left = tier_total(s, tier) - *used;
  if (bytes > left) {
    char requested[STOW_SIZE_TEXT_MAX], there[STOW_SIZE_TEXT_MAX], total[STOW_SIZE_TEXT_MAX];
    return stow_fail(STOW_ERR_OUT_OF_MEMORY,
                     "requested %s of %s, but %s of %s is left on the simulated device; release "
                     "pages or open a larger device",
                     stow_size_format(requested, bytes), stow_tier_name(tier),
                     stow_size_format(there, left), stow_size_format(total, tier_total(s, tier)));
  }
  *used += bytes;
  if (*used > *peak) *peak = *used;
  return STOW_OK;
}

void sim_uncharge(sim *s, stow_tier tier, uint64_t bytes) {
  *(tier == STOW_TIER_VRAM ? &s->counts.vram_used_bytes : &s->counts.host_used_bytes) -= bytes;
}

stow_status sim_memory(stow_device *device, stow_tier tier, uint64_t *free_bytes,
                       uint64_t *total_bytes) {
  sim *s = sim_lock(device);
  stow_status status = sim_check_tier(s, tier);
  if (status != STOW_OK) return sim_unlock(s, status);
  uint64_t used = tier == STOW_TIER_VRAM ? s->counts.vram_used_bytes : s->counts.host_used_bytes;
  if (free_bytes != NULL) *free_bytes = tier_total(s, tier) - used;
  if (total_bytes != NULL) *total_bytes = tier_total(s, tier);
  return sim_unlock(s, STOW_OK);
}
