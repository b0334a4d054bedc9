/* Host recording: what a recording of host memory (fact memory=host) shows: its peak, and what held
 * how much of it then. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise/host.h"

#define ROWS_MAX 8

typedef struct share {
  uint32_t tag_id, stack_id;
  uint64_t live, at_peak;
} share;

bool host_recording_is(const recording *r) {
  const char *memory = recording_fact(r, "memory");
  return memory != NULL && strcmp(memory, "host") == 0;
}

static share *share_of(share *all, size_t *count, uint32_t tag_id) {
  for (size_t i = 0; i < *count; i++)
    if (all[i].tag_id == tag_id) return &all[i];
  all[*count] = (share){.tag_id = tag_id};
  return &all[(*count)++];
}

static int by_peak(const void *a, const void *b) {
  const share *one = a, *other = b;
  return one->at_peak > other->at_peak ? -1 : one->at_peak < other->at_peak;
}

/* Returns the bytes held at the peak. `all` has room for as many shares as there are names. */
static uint64_t measure(const recording *r, share *all, size_t *count) {
  uint64_t live = 0, peak = 0;
  for (size_t i = 0; i < r->event_count; i++) {
    const event *e = &r->events[i];
    if (e->kind != EVENT_ALLOC && e->kind != EVENT_FREE) continue;
    share *s = share_of(all, count, event_origin(r, e)->tag_id);
    if (e->kind == EVENT_ALLOC) {
      s->live += e->bytes;
      live += e->bytes;
      if (e->stack_id != 0) s->stack_id = e->stack_id;
    } else {
      s->live -= e->bytes < s->live ? e->bytes : s->live;
      live -= e->bytes < live ? e->bytes : live;
    }
    /* The last of about equal ones: more of it may have a name by then. */
    if (live + live / 64 < peak) continue;
    if (live > peak) peak = live;
    for (size_t k = 0; k < *count; k++) all[k].at_peak = all[k].live;
  }
  return peak;
}

static void place(char *out, size_t size, const recording *r, uint32_t stack_id) {
  out[0] = '\0';
  if (stack_id == 0 || stack_id > r->stack_count || r->stacks[stack_id - 1].count == 0) return;
  const frame *f = &r->frames[r->stack_frames[r->stacks[stack_id - 1].first] - 1];
  const char *file = recording_text(r, f->file_id), *slash = strrchr(file, '/');
  snprintf(out, size, "line %u of %.120s", f->line, slash != NULL ? slash + 1 : file);
}

stow_status explain_host_recording(explanation *x, const recording *r) {
  explanation_blank(x);
  share *all = calloc(r->event_count + 1, sizeof *all);
  size_t count = 0;
  char where[160];
  if (all == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to read a recording");
  uint64_t peak = measure(r, all, &count);
  qsort(all, count, sizeof *all, by_peak);
  x->evidence.n.live_bytes = peak;
  buffer_printf(&x->headline, "Host memory: at most %s were held", cause_size(peak));
  if (count > 0 && all[0].at_peak >= peak / 5 && recording_text(r, all[0].tag_id)[0] != '\0') {
    place(where, sizeof where, r, all[0].stack_id);
    buffer_printf(&x->headline, "; most by %s, %s", recording_text(r, all[0].tag_id),
                  cause_size(all[0].at_peak));
    if (where[0] != '\0') buffer_printf(&x->headline, ", at %s", where);
  }
  for (size_t i = 0; i < count && i < ROWS_MAX && all[i].at_peak > 0; i++) {
    place(where, sizeof where, r, all[i].stack_id);
    buffer_printf(&x->memory, "  %-28.28s %10s%s%s\n", recording_text(r, all[i].tag_id),
                  cause_size(all[i].at_peak), where[0] != '\0' ? "  " : "", where);
  }
  buffer_text(&x->notes, "host memory is sampled: what came and went between two samples is not "
                         "in the recording\n");
  free(all);
  return explanation_status(x);
}
