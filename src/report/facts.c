/* The report as one JSON object, with everything that the text report shows. */
#include <stdlib.h>

#include "base/json.h"
#include "report/difference.h"
#include "report/report.h"

static void json_holders(json *j, const report *r) {
  json_key(j, "holders");
  json_begin_array(j);
  for (uint32_t i = 0; i < r->peak.holder_count; i++) {
    const holder *h = &r->peak.holders[i];
    char label[1024];
    json_begin_object(j);
    json_key(j, "label");
    json_text(j, census_label(label, sizeof label, &r->time, &r->sites, r->group, h->key));
    json_number(j, "bytes", h->bytes);
    json_number(j, "count", h->count);
    json_end_object(j);
  }
  json_end_array(j);
}

static void json_peak(json *j, const report *r) {
  static const char *const groups[] = {"site", "tag", "size"};
  json_key(j, "peak");
  json_begin_object(j);
  json_number(j, "event", r->peak.tick);
  json_number(j, "time_ns", timeline_time_ns(&r->time, r->peak.tick));
  json_number(j, "live_bytes", r->peak.live_bytes);
  json_number(j, "live_count", r->peak.live_count);
  json_number(j, "reserved_bytes", r->peak.reserved_bytes);
  json_number(j, "hole_bytes", r->peak.hole_bytes);
  json_number(j, "hole_count", r->peak.hole_count);
  json_number(j, "largest_hole_bytes", r->peak.largest_hole_bytes);
  json_key(j, "grouped_by"), json_text(j, groups[r->group]);
  json_holders(j, r);
  json_end_object(j);
}

static void json_failures(json *j, const report *r) {
  json_number(j, "failure_count", r->failure_count);
  json_key(j, "failures");
  json_begin_array(j);
  for (uint32_t i = 0; i < r->failures_kept; i++) {
    const failure *f = &r->failures[i];
    json_begin_object(j);
    json_number(j, "event", f->tick);
    json_number(j, "time_ns", timeline_time_ns(&r->time, f->tick));
    json_number(j, "asked_bytes", f->asked_bytes);
    json_number(j, "device_free_bytes", f->device_free_bytes);
    json_number(j, "live_bytes", f->live_bytes);
    json_number(j, "reserved_bytes", f->reserved_bytes);
    json_number(j, "hole_bytes", f->hole_bytes);
    json_number(j, "largest_hole_bytes", f->largest_hole_bytes);
    json_end_object(j);
  }
  json_end_array(j);
}

static void json_iterations(json *j, const report *r) {
  static const char *const how[] = {"none", "marks", "guessed"};
  const iterations *all = &r->iterations;
  uint32_t last = all->count - all->last_is_partial;
  json_key(j, "iterations_from"), json_text(j, how[all->how]);
  json_key(j, "iterations_mark"), json_text(j, recording_text(r->time.source, all->name_id));
  json_key(j, "growth_bytes"), json_i64(j, all->growth_bytes);
  json_key(j, "iterations");
  json_begin_array(j);
  for (uint32_t i = all->first_is_setup; i < last; i++) {
    const iteration *it = &all->list[i];
    json_begin_object(j);
    json_number(j, "first_event", it->start);
    json_number(j, "end_event", it->end);
    json_number(j, "alloc_count", it->allocs);
    json_number(j, "peak_live_bytes", it->peak_bytes);
    json_number(j, "end_live_bytes", it->end_bytes);
    json_end_object(j);
  }
  json_end_array(j);
}

static void json_policies(json *j, const report *r) {
  json_key(j, "policies");
  json_begin_array(j);
  for (uint32_t i = 0; i < r->policy_count; i++) {
    const replay_result *p = &r->policies[i];
    json_begin_object(j);
    json_key(j, "policy"), json_text(j, p->policy->name);
    json_key(j, "finishes"), json_bool(j, p->finishes);
    json_number_or_null(j, "failed_at_event", !p->finishes, p->failed_at_event);
    json_number_or_null(j, "failed_bytes", !p->finishes, p->failed_bytes);
    json_number(j, "peak_live_bytes", p->peak_live_bytes);
    json_number(j, "peak_reserved_bytes", p->stats.peak_reserved_bytes);
    json_number(j, "largest_hole_bytes", p->stats.largest_hole_bytes);
    json_number(j, "page_calls", p->stats.page_calls);
    json_number(j, "page_time_us", p->stats.page_time_ns / 1000);
    json_number_or_null(j, "min_limit_bytes", p->min_limit_bytes != 0, p->min_limit_bytes);
    json_end_object(j);
  }
  if (r->policy_missing != NULL) {
    json_begin_object(j);
    json_key(j, "policy"), json_text(j, r->policy_missing->name);
    json_key(j, "error"), json_text(j, "address space is limited (ulimit -v)");
    json_end_object(j);
  }
  json_end_array(j);
}

static void json_run(json *j, const report *r) {
  const timeline *t = &r->time;
  json_begin_object(j);
  json_key(j, "file"), json_text(j, r->file);
  json_number(j, "device", t->device);
  json_number(j, "events", t->tick_count);
  json_number(j, "time_ns", timeline_time_ns(t, t->tick_count));
  json_number(j, "alloc_count", r->alloc_count);
  json_number(j, "free_count", r->free_count);
  json_number(j, "peak_live_bytes", r->peak.live_bytes);
  json_key(j, "reserved_known"), json_bool(j, t->reserved_known);
  json_number(j, "peak_reserved_bytes", r->peak_reserved_bytes);
  json_number(j, "peak_reserved_event", r->peak_reserved_tick);
  json_number(j, "end_live_bytes", r->end_live_bytes);
  json_peak(j, r);
  json_failures(j, r);
  json_iterations(j, r);
  json_policies(j, r);
  if (r->host != NULL && r->host->count > 0) {
    json_number(j, "peak_host_bytes", r->host->peak_bytes);
    json_number_or_null(j, "host_limit_bytes", r->host->limit_bytes != 0, r->host->limit_bytes);
  }
  if (r->why != NULL && r->why->length > 0)
    json_key(j, "why"), json_raw(j, r->why->data, r->why->length);
  json_number(j, "live_before_recording", t->before_count);
  json_number(j, "unknown_frees", t->unknown_frees + t->source->unknown_frees);
  json_number(j, "doubled_allocs", t->doubled_allocs);
  json_number(j, "passed_over",
              t->bad_sizes + t->bad_extents + t->source->bad_values + t->source->skipped_events);
  json_end_object(j);
}

static stow_status json_difference(json *j, const report *a, const report *b) {
  difference_row *rows = NULL;
  size_t count;
  stow_status status = difference_build(&rows, &count, a, b);
  json_key(j, "difference");
  json_begin_array(j);
  for (size_t i = 0; i < count && status == STOW_OK; i++) {
    json_begin_object(j);
    json_key(j, "label"), json_text(j, rows[i].label);
    json_number(j, "first_bytes", rows[i].bytes[0]);
    json_number(j, "second_bytes", rows[i].bytes[1]);
    json_end_object(j);
  }
  json_end_array(j);
  free(rows);
  return status;
}

stow_status report_json(const report *all, size_t count, buffer *out) {
  json j = JSON_PRETTY(out);
  stow_status status = STOW_OK;
  json_begin_object(&j);
  json_key(&j, "runs");
  json_begin_array(&j);
  for (size_t i = 0; i < count; i++) json_run(&j, &all[i]);
  json_end_array(&j);
  if (count == 2) status = json_difference(&j, &all[0], &all[1]);
  json_end_object(&j);
  return status != STOW_OK ? status : out->status;
}
