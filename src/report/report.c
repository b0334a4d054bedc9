/* Report: the facts of one device, computed once. */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

/* Finds the first tick with the most live bytes, and what is live at the end. */
static uint32_t find_peak(report *r) {
  const timeline *t = &r->time;
  uint64_t live = 0, most = 0;
  uint32_t at = 0;
  for (uint32_t i = 0; i < t->before_count; i++) live += t->lifetimes[i].bytes;
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    live += (uint64_t)timeline_change(t, tick);
    if (t->lifetime[tick] != TIMELINE_NONE) {
      bool alloc = timeline_event(t, tick)->kind == EVENT_ALLOC;
      r->alloc_count += alloc;
      r->free_count += !alloc;
    }
    if (live > most) {
      most = live;
      at = tick;
    }
  }
  r->end_live_bytes = live;
  return at;
}

typedef struct change {
  uint32_t tick;
  int64_t bytes;
} change;

static int by_tick(const void *a, const void *b) {
  const change *x = a, *y = b;
  if (x->tick != y->tick) return x->tick < y->tick ? -1 : 1;
  /* Within a tick, ends come before starts: an unmap that cuts a piece must not count its rest
   * twice. */
  return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static stow_status find_peak_reserved(report *r) {
  const timeline *t = &r->time;
  change *changes = malloc(((size_t)t->extent_count * 2 + 1) * sizeof *changes);
  if (changes == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u segments", t->extent_count);
  size_t count = 0;
  for (uint32_t i = 0; i < t->extent_count; i++) {
    const extent *e = &t->extents[i];
    changes[count++] = (change){e->start, (int64_t)e->bytes};
    if (e->end != EXTENT_OPEN) changes[count++] = (change){e->end, -(int64_t)e->bytes};
  }
  qsort(changes, count, sizeof *changes, by_tick);
  int64_t now = 0;
  for (size_t i = 0; i < count; i++) {
    now += changes[i].bytes;
    if (now > (int64_t)r->peak_reserved_bytes) {
      r->peak_reserved_bytes = (uint64_t)now;
      r->peak_reserved_tick = changes[i].tick;
    }
  }
  free(changes);
  return STOW_OK;
}

static stow_status look_at_failures(report *r) {
  const timeline *t = &r->time;
  for (uint32_t tick = 0; tick < t->tick_count; tick++)
    r->failure_count += timeline_event(t, tick)->kind == EVENT_FAIL;
  if (r->failure_count == 0) return STOW_OK;
  r->failures = calloc(REPORT_FAILURES_MAX, sizeof *r->failures);
  if (r->failures == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for failures");
  /* Each census reads the whole trace: make a few complete ones, and only locate the other
   * failures. */
  enum { CENSUS_MAX = 16 };
  for (uint32_t tick = 0; tick < t->tick_count && r->failures_kept < REPORT_FAILURES_MAX; tick++) {
    const event *e = timeline_event(t, tick);
    if (e->kind != EVENT_FAIL) continue;
    failure *f = &r->failures[r->failures_kept];
    *f = (failure){.tick = tick, .asked_bytes = e->bytes, .device_free_bytes = e->addr};
    if (r->failures_kept++ < CENSUS_MAX) {
      census c;
      stow_status status = census_take(&c, t, &r->sites, r->group, tick);
      f->live_bytes = c.live_bytes;
      f->reserved_bytes = c.reserved_bytes;
      f->hole_bytes = c.hole_bytes;
      f->largest_hole_bytes = c.largest_hole_bytes;
      census_free(&c);
      STOW_TRY(status);
    }
  }
  return STOW_OK;
}

stow_status report_build(report *r, const recording *source, const char *file, uint16_t device) {
  *r = (report){.file = file};
  STOW_TRY(timeline_build(&r->time, source, device));
  STOW_TRY(site_table_build(&r->sites, source));
  STOW_TRY(iterations_find(&r->iterations, &r->time));
  r->group = census_default_group(&r->time);
  uint32_t peak = find_peak(r);
  STOW_TRY(census_take(&r->peak, &r->time, &r->sites, r->group, peak));
  STOW_TRY(find_peak_reserved(r));
  return look_at_failures(r);
}

uint64_t report_wall_start_ns(const report *r) {
  const timeline *t = &r->time;
  const char *clock = recording_fact(t->source, "clock");
  const char *offset = recording_fact(t->source, "clock_wall_offset_ns");
  if (t->tick_count == 0) return 0;
  uint64_t first = timeline_event(t, 0)->time_ns;
  if (clock == NULL || strcmp(clock, "monotonic") != 0) return first;
  return offset != NULL ? first + (uint64_t)strtoll(offset, NULL, 10) : 0;
}

void report_free(report *r) {
  timeline_free(&r->time);
  site_table_free(&r->sites);
  iterations_free(&r->iterations);
  census_free(&r->peak);
  free(r->failures);
  free(r->policies);
  *r = (report){0};
}
