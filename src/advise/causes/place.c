/* Place: where the memory is: in holes, in the cache, with others, or behind a limit. */
#include "advise/causes.h"
#include "advise/whatif.h"

/* The most that a CUDA context and its kernels take in a process before its first request. Measured
 * on an H200 with PyTorch 2.11: 0.6 to 0.7 GiB; libraries (NCCL, cuDNN) add some. */
#define CACHE_LEAST   (UINT64_C(64) << 20) /* a smaller cache matters only to a smaller request */
#define CONTEXT_BYTES (UINT64_C(1) << 30)

#define GROWN_LEAST 1.3 /* times what it was before: the batch explains it */

/* Returns how many bytes the device lacked for the request. */
static uint64_t lacking(const evidence *e) {
  uint64_t asked = known(e->n.asked_bytes) ? e->n.asked_bytes : 0;
  uint64_t free = known(e->n.free_bytes) ? e->n.free_bytes : 0;
  return asked > free ? asked - free : 0;
}

/* Returns how much PyTorch requests from the driver for a request of that size. */
static uint64_t segment_bytes(uint64_t asked) {
  const uint64_t mib = UINT64_C(1) << 20;
  return asked <= mib       ? 2 * mib
         : asked < 10 * mib ? 20 * mib
                            : (asked + 2 * mib - 1) / (2 * mib) * (2 * mib);
}

/* ---- holes ---- */

static bool holes_would_do(const evidence *e) {
  return e->failed && known(e->n.asked_bytes) && known(e->n.hole_bytes) &&
         e->n.hole_bytes >= e->n.asked_bytes && e->n.largest_hole_bytes < e->n.asked_bytes;
}

stow_status fragmentation_find(findings *f, const evidence *e) {
  if (!holes_would_do(e) || e->expandable) return STOW_OK;
  uint64_t capacity = evidence_capacity(e);
  whatif w;
  stow_status status = whatif_open(&w, e);
  if (status == STOW_OK && capacity > 0) {
    whatif_result r;
    status = whatif_run(&w, &r, true, capacity);
    f->fits_expandable = status == STOW_OK && r.finishes;
  }
  if (status == STOW_OK) {
    whatif_result r;
    status = whatif_run(&w, &r, true, 0);
    if (status == STOW_OK) f->expandable_bytes = r.peak_reserved_bytes;
  }
  whatif_close(&w);
  return status;
}

/* Returns whether the whole iteration with the larger batch would need more than there is. Then the
 * holes only show how far it got. */
static bool outgrown(const evidence *e, const findings *f) {
  uint64_t capacity = evidence_capacity(e);
  if (f->bigger < GROWN_LEAST || e->loop.count < 2 || capacity == 0) return false;
  uint32_t peak = evidence_peak_of(e, &e->loop.list[e->loop.count - 2]);
  double work = 0, rest = 0;
  for (uint32_t i = 0; i < e->time.lifetime_count; i++) {
    phase p = e->phase_of[i];
    if (!lifetime_live(&e->time.lifetimes[i], peak)) continue;
    *(p == PHASE_FORWARD || p == PHASE_USER ? &work : &rest) += (double)e->time.lifetimes[i].bytes;
  }
  return work * f->bigger + rest > (double)capacity;
}

void cause_fragmentation(cause *c, const evidence *e, const findings *f) {
  if (!holes_would_do(e)) return;
  double part = evidence_share(e->n.hole_bytes, e->n.reserved_bytes);
  /* A batch as large as the memory leaves holes too. With few holes, and if it is unknown whether
   * the program ever needed less, the confidence is lower; lower still if the batch has grown. */
  double some = f->bigger >= GROWN_LEAST ? 0.7 : f->bigger > 0 ? 0.86 : 0.78;
  double sure = part >= CAUSE_HOLES ? 0.96 : part >= 0.15 ? some : part >= 0.08 ? 0.55 : 0.3;
  if (!e->has_stacks && part < CAUSE_HOLES) sure *= 0.88;
  if (e->expandable || (!f->fits_expandable && evidence_capacity(e) > 0)) sure *= 0.95;
  if (outgrown(e, f)) sure *= 0.7;
  c->confidence = sure;
  cause_head(c,
             "Enough memory is free, but not in one piece: %s free inside the cache, the largest "
             "piece %s, %s requested",
             cause_size(e->n.hole_bytes), cause_size(e->n.largest_hole_bytes),
             cause_size(e->n.asked_bytes));
  cause_say(c, "%.0f%% of what PyTorch holds is free in pieces too small", part * 100);
  if (f->fits_expandable)
    cause_say(c, "replayed with expandable segments it fits: at most %s is held",
              cause_size(f->expandable_bytes));
  else if (!e->expandable && evidence_capacity(e) > 0)
    cause_say(c, "replayed with expandable segments it does not fit either");
}

void cause_cache_held(cause *c, const evidence *e) {
  if (!e->foreign || !known(e->n.cached_bytes)) return;
  uint64_t asked = known(e->n.asked_bytes) ? e->n.asked_bytes : 0;
  double part = evidence_share(e->n.cached_bytes, e->n.reserved_bytes);
  bool enough = asked == 0 || e->n.cached_bytes >= asked / 2;
  if (e->n.cached_bytes < CACHE_LEAST && (asked == 0 || e->n.cached_bytes < asked)) return;
  c->confidence = enough ? (part >= 0.3 ? 0.96 : 0.75) : 0.4;
  cause_head(c,
             "PyTorch caches memory that another part of the program needs: %s cached, %s in use",
             cause_size(e->n.cached_bytes), cause_size(e->n.live_bytes));
  cause_say(c, "the failed request%s%s did not come from PyTorch", asked > 0 ? " of " : "",
            asked > 0 ? cause_size(asked) : "");
  cause_say(c, "PyTorch had reserved %s from the driver; %s of it was in use",
            cause_size(e->n.reserved_bytes), cause_size(e->n.live_bytes));
}

/* ---- others ---- */

void cause_other_process(cause *c, const evidence *e) {
  uint64_t other = e->n.other_process_bytes;
  if (!known(other) || other == 0 || !known(e->n.device_bytes) || evidence_limit_bound(e)) return;
  double part = evidence_share(other, e->n.device_bytes);
  if (other < lacking(e)) part *= 0.3; /* without it the request would still not fit */
  c->confidence = part >= 0.3 ? 0.97 : part >= 0.1 ? 0.8 : part >= 0.03 ? 0.4 : 0.1;
  cause_head(c, "Another process holds %s of the device's %s", cause_size(other),
             cause_size(e->n.device_bytes));
  for (uint32_t i = 0; i < e->message.process_count; i++)
    cause_say(c, "process %u holds %s", e->message.processes[i].pid,
              cause_size(e->message.processes[i].bytes));
  cause_say(c, "this program itself had %s, and %s was free", cause_size(e->n.reserved_bytes),
            known(e->n.free_bytes) ? cause_size(e->n.free_bytes) : "an unknown amount");
}

void cause_outside_framework(cause *c, const evidence *e) {
  uint64_t outside = e->n.outside_framework_bytes;
  if (!known(outside) || outside <= CONTEXT_BYTES || evidence_limit_bound(e)) return;
  if (!known(e->n.device_bytes)) return;
  uint64_t excess = outside - CONTEXT_BYTES;
  double part = evidence_share(excess, e->n.device_bytes);
  if (excess < lacking(e)) part *= 0.3;
  c->confidence = part >= 0.3 ? 0.97 : part >= 0.1 ? 0.8 : part >= 0.03 ? 0.4 : 0.1;
  cause_head(c, "%s of this process was allocated outside PyTorch", cause_size(outside));
  cause_say(c, "the process holds %s; PyTorch's allocator only %s of it",
            cause_size(outside + e->n.reserved_bytes), cause_size(e->n.reserved_bytes));
  cause_say(c,
            "a CUDA context and its kernels take up to about %s; the rest belongs to another "
            "library in the process, or to direct CUDA calls",
            cause_size(CONTEXT_BYTES));
}

void cause_limit(cause *c, const evidence *e) {
  if (e->elsewhere) return; /* no limit was set: it is the size of a device */
  /* The device had free memory and refused the request: some limit, reported or not, is too low. */
  bool unstated = e->failed && !known(e->n.limit_bytes) && known(e->n.free_bytes) &&
                  known(e->n.asked_bytes) && e->n.free_bytes > 2 * segment_bytes(e->n.asked_bytes);
  if (!e->failed || (!evidence_limit_bound(e) && !unstated)) return;
  uint64_t had = e->peak_reserved_bytes;
  uint64_t limit =
      unstated ? e->n.reserved_bytes + segment_bytes(e->n.asked_bytes) : e->n.limit_bytes;
  /* It held more before: the same work succeeded until the limit was lowered. */
  bool lowered = had > limit + limit / 50 + (UINT64_C(16) << 20);
  c->confidence = lowered ? 0.98 : 0.25;
  if (lowered)
    cause_head(c, "The limit of %s is below the %s the same program held before", cause_size(limit),
               cause_size(had));
  else
    cause_head(c, unstated ? "A limit below %s is set" : "A limit of %s is set", cause_size(limit));
  if (known(e->n.free_bytes) && known(e->n.asked_bytes))
    cause_say(c, "the device had %s free when %s was refused", cause_size(e->n.free_bytes),
              cause_size(e->n.asked_bytes));
  cause_say(c, lowered ? "it was lowered while the program ran"
                       : "the recording does not show whether the program fits without it");
}
