/* Spill advice: arithmetic over the figures of the ledger. See spill_advice.h. */
#include "advise/spill_advice.h"

#include <string.h>

#include <stowage/size.h>

/* What an 8-bit optimizer saves compared with 32-bit state: it uses one byte instead of four, and a
 * scale for each block of 256 values. */
#define SAVED_BY_8BIT(bytes) ((bytes) / 4 * 3 - (bytes) / 256)

/* Returns the device that spilled most. */
static unsigned fullest(const ledger *l) {
  unsigned found = 0;
  for (unsigned d = 1; d < LEDGER_DEVICES_MAX; d++)
    if (atomic_load(&l->header->peak_excess_bytes[d]) >
        atomic_load(&l->header->peak_excess_bytes[found]))
      found = d;
  return found;
}

static void write_moved(buffer *out, const ledger *l) {
  char size[STOW_SIZE_TEXT_MAX];
  uint64_t steps = atomic_load(&l->header->steps[0]) + atomic_load(&l->header->steps[1]);
  uint64_t moved =
      atomic_load(&l->header->moved_out_bytes) + atomic_load(&l->header->moved_home_bytes);
  if (steps > 0 && moved / steps > 0)
    buffer_printf(out, ", %s is moved in each step", stow_size_format(size, moved / steps));
}

static bool is_adam(const char *name) {
  return strstr(name, "Adam") != NULL && strstr(name, "8bit") == NULL;
}

/* Returns what did not fit, and stores what the program needed at once. Pages on the host may hold
 * what PyTorch keeps for later, or the unused part of JAX's pool, so what the program needs counts,
 * if that is known; 0: that fits. */
static uint64_t excess_of(const ledger *l, unsigned device, uint64_t *peak) {
  uint64_t vram = atomic_load(&l->header->peak_vram_bytes[device]);
  uint64_t limit = ledger_limit(l, device), most = limit < vram ? limit : vram;
  uint64_t need = atomic_load(&l->header->peak_need_bytes[device]);
  uint64_t all = need + atomic_load(&l->header->peak_other_bytes[device]);
  bool moved =
      atomic_load(&l->header->moved_out_bytes) > 0 || atomic_load(&l->header->moved_home_bytes) > 0;
  *peak = need;
  if (need > 0 && all > most) return all - most;
  if (need > 0 && !moved) return 0;
  uint64_t excess = atomic_load(&l->header->peak_excess_bytes[device]);
  *peak = excess + vram;
  return excess;
}

void spill_advice(buffer *out, const ledger *l) {
  char a[STOW_SIZE_TEXT_MAX], b[STOW_SIZE_TEXT_MAX];
  if (l->header == NULL) return;
  unsigned device = fullest(l);
  uint64_t peak, excess = excess_of(l, device, &peak);
  uint64_t lasting = atomic_load(&l->header->lasting_bytes);
  uint64_t weights = atomic_load(&l->header->weight_bytes);
  uint64_t gradients = atomic_load(&l->header->gradient_bytes);
  uint64_t state = atomic_load(&l->header->state_bytes);
  char name[sizeof l->header->optimizer];
  memcpy(name, l->header->optimizer, sizeof name);
  name[sizeof name - 1] = '\0';
  if (atomic_load(&l->header->peak_excess_bytes[device]) == 0 &&
      atomic_load(&l->header->moved_out_bytes) == 0)
    return;
  if (excess == 0) {
    buffer_printf(out, "%s is on the host, but what is used at once (%s) fits in vram",
                  stow_size_format(a, atomic_load(&l->header->peak_excess_bytes[device])),
                  stow_size_format(b, peak));
    return;
  }
  buffer_printf(out, "%s did not fit in vram", stow_size_format(a, excess));
  write_moved(out, l);
  uint64_t known = weights + gradients + state;
  /* What lasts is exact: it includes frozen weights. */
  uint64_t kept = lasting > 0 && known > 0 ? lasting : known, rest = peak > kept ? peak - kept : 0;
  uint64_t frozen = kept > known ? kept - known : 0;
  if (state > 0 && is_adam(name) && state >= rest) {
    uint64_t saved = SAVED_BY_8BIT(state);
    buffer_printf(out, "; the state of %s is %s: an 8-bit Adam (bitsandbytes) saves %s%s", name,
                  stow_size_format(a, state), stow_size_format(b, saved),
                  saved >= excess ? ", which avoids it" : " of it");
  } else if (known > 0 && rest > excess)
    buffer_printf(
        out,
        "; %s is activations and other tensors of a step: a batch of %u%% of this one, or "
        "gradient checkpointing, avoids it",
        stow_size_format(a, rest), (unsigned)((rest - excess) * 100 / rest));
  else if (frozen > kept / 2)
    buffer_printf(out,
                  "; %s stays on the device between steps, and %s of it is not trained: frozen "
                  "weights in 8 or 4 bits (bitsandbytes) take less",
                  stow_size_format(a, kept), stow_size_format(b, frozen));
  else if (known > 0)
    buffer_printf(out, "; weights %s, with gradients and optimizer state %s",
                  stow_size_format(a, weights), stow_size_format(b, known));
  buffer_printf(out, "; %s more vram would avoid it", stow_size_format(a, excess));
}
