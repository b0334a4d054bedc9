/* Top holders: what the selected process holds, by line or tag (top.h). Its trace is in the folder
 * of its run; without one, a Python process of a run with --ram-limit may have named its largest
 * objects. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/top.h"
#include "recordings/run_trace.h"
#include "replay/census.h"
#include "run/host_record.h"

#define TRACE_BYTES (UINT64_C(512) << 20) /* limit in memory: about 6 million events */
#define REST_NS     UINT64_C(1000000000)

static void add(top_chosen *c, const char *label, uint64_t bytes, uint32_t count) {
  if (c->count == TOP_HOLDERS_MAX) {
    c->left_out++;
    return;
  }
  top_holder *h = &c->list[c->count++];
  text_show(h->label, sizeof h->label, label);
  h->bytes = bytes;
  h->count = count;
}

static stow_status from_device(top_chosen *c, const recording *r, uint16_t device,
                               const site_table *sites) {
  timeline time = {0};
  census now = {0};
  group_by by = c->by == TOP_BY_TAG ? GROUP_TAG : GROUP_SITE;
  stow_status status = timeline_build(&time, r, device);
  if (status == STOW_OK && time.tick_count > 0)
    status = census_take(&now, &time, sites, by, time.tick_count - 1);
  for (uint32_t i = 0; status == STOW_OK && i < now.holder_count; i++) {
    char label[160];
    census_label(label, sizeof label, &time, sites, by, now.holders[i].key);
    add(c, label, now.holders[i].bytes, now.holders[i].count);
  }
  c->live_bytes += now.live_bytes;
  census_free(&now);
  timeline_free(&time);
  return status;
}

static void from_trace(top_chosen *c, const char *folder, const top_process *p) {
  recording r;
  site_table sites = {0};
  uint16_t devices[4];
  recording_init(&r, TRACE_BYTES);
  stow_status status = run_trace_read(&r, folder, p->trace);
  if (status == STOW_OK) status = site_table_build(&sites, &r);
  size_t count = status == STOW_OK ? timeline_devices(&r, devices, 4) : 0;
  for (size_t i = 0; i < count && i < 4 && status == STOW_OK; i++)
    status = from_device(c, &r, devices[i], &sites);
  if (status != STOW_OK)
    snprintf(c->note, sizeof c->note, "its trace cannot be read: %.110s", stow_status_message());
  else if (c->count == 0)
    snprintf(c->note, sizeof c->note, "%s",
             p->held_bytes > 0 ? "its trace has no allocation: it takes whole pages from the driver"
                               : "it holds no device memory now");
  site_table_free(&sites);
  recording_free(&r);
}

static bool from_objects(top_chosen *c, const char *folder, pid_t pid) {
  static host_record h; /* tens of KiB */
  memset(&h, 0, sizeof h);
  if (!host_record_read_inside(&h, folder, pid)) return false;
  for (size_t i = 0; i < h.object_count; i++) {
    const host_object *o = &h.objects[i];
    const char *file = strrchr(o->place, '/');
    const char *line = file != NULL ? file + 1 : o->place;
    char label[256];
    snprintf(label, sizeof label, "%s  %s  %s%s%s", o->name, line[0] != '\0' ? line : o->where,
             o->type, o->of[0] != '\0' ? " of " : "", o->of);
    add(c, label, o->bytes, 1);
    c->live_bytes += o->bytes;
  }
  c->host = true;
  return h.object_count > 0;
}

void top_holders(top_chosen *c, const top_look *t, const top_process *p, top_by by) {
  if (p == NULL) {
    *c = (top_chosen){.by = by};
    return;
  }
  if (c->pid == p->pid && c->by == by && t->time_ns < c->next_ns) return;
  *c = (top_chosen){.pid = p->pid, .by = by};
  uint64_t began = clock_ns();
  if (p->run < 0)
    snprintf(c->note, sizeof c->note, "holders are not known: start it with stowage run");
  else if (p->trace[0] != '\0')
    from_trace(c, t->runs[p->run].folder, p);
  else if (!from_objects(c, t->runs[p->run].folder, p->pid))
    snprintf(c->note, sizeof c->note,
             "it holds no device memory; with run --ram-limit, Python names its largest objects");
  uint64_t took = clock_ns() - began;
  c->next_ns = t->time_ns + (20 * took > REST_NS ? 20 * took : REST_NS);
}
