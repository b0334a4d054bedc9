/* Elsewhere: one replay with another limit, and memory that is unused. */
#include "advise/elsewhere.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "advise/fitting.h"
#include "advise/whatif.h"
#include "replay/replay_job.h"

#define WASTE_PART 0.15 /* least fraction of the peak that is reported … */
/* Least size of a cache at the end, and at least half of the peak. */
#define CACHE_LEAST (UINT64_C(1) << 30)
#define WASTE_LEAST (UINT64_C(256) << 20) /* … and so much at least */

/* Copies the events and inserts a refused request before the one that did not fit. Drops other
 * failures, which belong to another device. */
static stow_status put_failure(elsewhere *w, const recording *r, const whatif_result *at) {
  event *events = malloc((r->event_count + 1) * sizeof *events);
  if (events == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu events", r->event_count);
  size_t count = 0;
  for (size_t i = 0; i < r->event_count; i++) {
    if (i == at->failed_at_event) {
      event refused = r->events[i];
      refused.kind = EVENT_FAIL;
      refused.bytes = at->failed_bytes;
      refused.addr = 0;
      events[count++] = refused;
    }
    if (r->events[i].kind != EVENT_FAIL) events[count++] = r->events[i];
  }
  w->view.events = events;
  w->view.event_count = count;
  w->view.error_id = 0;
  return STOW_OK;
}

stow_status elsewhere_open(elsewhere *w, const evidence *e, uint64_t device_bytes) {
  *w = (elsewhere){.view = *e->source};
  w->view.events = NULL;
  replay_job_options options = {.device_bytes = device_bytes};
  STOW_TRY(replay_job_check(&options));
  w->given.limit_bytes = device_bytes - REPLAY_CONTEXT_BYTES;
  whatif what;
  whatif_result r = {0};
  stow_status status = whatif_open(&what, e);
  if (status == STOW_OK && what.base.alloc_count == 0)
    status = stow_fail(STOW_ERR_INVALID, "--vram: the recording has no allocation to replay");
  what.device_is_full = true;
  if (status == STOW_OK) status = whatif_run(&what, &r, false, w->given.limit_bytes);
  whatif_close(&what);
  if (status != STOW_OK) return status;
  w->fits = r.finishes;
  w->peak_reserved_bytes = r.peak_reserved_bytes;
  w->peak_live_bytes = r.peak_live_bytes;
  w->given.reserved_bytes = r.reserved_bytes;
  w->given.largest_hole_bytes = r.largest_hole_bytes;
  if (r.finishes) return STOW_OK;
  STOW_TRY(fitting_part(&w->given, e, device_bytes));
  w->given.samples = e->program.batch == w->given.of;
  evidence_given given = w->given;
  given.to_end = true;
  STOW_TRY(evidence_gather(&w->whole, e->source, &given));
  w->given.whole = &w->whole;
  return put_failure(w, e->source, &r);
}

void elsewhere_close(elsewhere *w) {
  evidence_free(&w->whole);
  free(w->view.events);
  w->view.events = NULL;
}

void elsewhere_say_fits(explanation *x, const elsewhere *w, uint64_t device_bytes) {
  uint64_t limit = w->given.limit_bytes;
  buffer_printf(&x->headline,
                "Fits a device of %s: at most %s live and %s held by the allocator, %s to spare",
                cause_size(device_bytes), cause_size(w->peak_live_bytes),
                cause_size(w->peak_reserved_bytes),
                cause_size(limit > w->peak_reserved_bytes ? limit - w->peak_reserved_bytes : 0));
  buffer_printf(&x->notes,
                "a device of %s leaves %s: %" PRIu64
                " MiB is taken for the CUDA context (measured on an H200; an assumption here)\n",
                cause_size(device_bytes), cause_size(limit), REPLAY_CONTEXT_BYTES >> 20);
  if (x->evidence.failed)
    buffer_text(&x->notes, "the recording ends with a failure on its own device: what the program "
                           "would have requested after it is not known\n");
}

/* ---- waste ---- */

static bool is_waste(uint64_t bytes, uint64_t peak) {
  return bytes >= WASTE_LEAST && (double)bytes >= WASTE_PART * (double)peak;
}

/* Returns the most bytes that were freed and waiting for another stream while something else was
 * requested. */
static uint64_t most_pending(const timeline *t) {
  uint64_t pending = 0, most = 0;
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    const event *at = timeline_event(t, tick);
    if (at->kind == EVENT_FREE_REQUESTED) pending += at->bytes;
    if (at->kind == EVENT_FREE) pending -= at->bytes < pending ? at->bytes : pending;
    if (at->kind == EVENT_ALLOC && pending > most) most = pending;
  }
  return most;
}

/* Returns what is reserved and not live after the last event. */
static uint64_t cached_at_end(const timeline *t) {
  uint64_t live = 0, reserved = 0;
  for (uint32_t i = 0; i < t->lifetime_count; i++)
    live += t->lifetimes[i].end == TIMELINE_OPEN ? t->lifetimes[i].bytes : 0;
  for (uint32_t i = 0; i < t->extent_count; i++)
    reserved += t->extents[i].end == EXTENT_OPEN ? t->extents[i].bytes : 0;
  return reserved > live ? reserved - live : 0;
}

static stow_status say_pieces(explanation *x, uint64_t idle) {
  const evidence *e = &x->evidence;
  whatif w;
  whatif_result r = {0};
  buffer_printf(&x->headline, "; %s of that was never in use at once", cause_size(idle));
  buffer_printf(&x->notes,
                "%s more was reserved than was ever live: free memory in pieces, or a cache. "
                "stowage tune FILE finds the settings that need the least\n",
                cause_size(idle));
  if (e->expandable) return STOW_OK;
  stow_status status = whatif_open(&w, e);
  if (status == STOW_OK) status = whatif_run(&w, &r, true, 0);
  whatif_close(&w);
  STOW_TRY(status);
  uint64_t saves = e->peak_reserved_bytes > r.peak_reserved_bytes
                       ? e->peak_reserved_bytes - r.peak_reserved_bytes
                       : 0;
  if (is_waste(saves, e->peak_reserved_bytes))
    buffer_printf(&x->notes,
                  "with expandable_segments:True it would have reserved %s less (by "
                  "replay)\n",
                  cause_size(saves));
  return STOW_OK;
}

stow_status elsewhere_say_waste(explanation *x) {
  const evidence *e = &x->evidence;
  uint64_t peak = e->peak_reserved_bytes, live = e->peak_live_bytes;
  if (!e->time.reserved_known || peak == 0) return STOW_OK;
  uint64_t pending = most_pending(&e->time), kept = cached_at_end(&e->time);
  if (peak > live && is_waste(peak - live, peak)) STOW_TRY(say_pieces(x, peak - live));
  if (kept >= CACHE_LEAST && kept >= peak / 2)
    buffer_printf(&x->notes,
                  "at the end %s was cached and not in use: torch.cuda.empty_cache() gives it "
                  "to other processes\n",
                  cause_size(kept));
  if (is_waste(pending, peak))
    buffer_printf(&x->notes,
                  "up to %s was freed late: it waited for another stream (record_stream, "
                  "side streams)\n",
                  cause_size(pending));
  return STOW_OK;
}
