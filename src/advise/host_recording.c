/* Host recording: what a recording of host memory (fact memory=host) shows: its peak, and what held
 * how much of it then. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise/host.h"
#include "base/hash.h"

#define ROWS_MAX   8
#define SHARES_MAX 512 /* further ones count to the last */

/* What one name had from one line. Memory in no variable has the name REST. */
typedef struct share {
  uint32_t tag_id, stack_id;
  uint64_t live, at_peak;
} share;
#define REST "other" /* as run_host_trace.c writes it */

bool host_recording_is(const recording *r) {
  const char *memory = recording_fact(r, "memory");
  return memory != NULL && strcmp(memory, "host") == 0;
}

/* Returns the index of the share of a name and a line. */
static size_t share_of(share *all, size_t *count, uint32_t tag_id, uint32_t stack_id) {
  for (size_t i = 0; i < *count; i++)
    if (all[i].tag_id == tag_id && all[i].stack_id == stack_id) return i;
  if (*count == SHARES_MAX) return SHARES_MAX - 1;
  all[*count] = (share){.tag_id = tag_id, .stack_id = stack_id};
  return (*count)++;
}

static int by_peak(const void *a, const void *b) {
  const share *one = a, *other = b;
  return one->at_peak > other->at_peak ? -1 : one->at_peak < other->at_peak;
}

/* Computes the bytes held at the peak. `all` has room for SHARES_MAX shares. A piece is freed from
 * the share that it was added to, whatever line the program has reached. */
static stow_status measure(const recording *r, share *all, size_t *count, uint64_t *peak) {
  map owner = {0};
  uint64_t live = 0;
  stow_status status = STOW_OK;
  *peak = 0;
  for (size_t i = 0; i < r->event_count && status == STOW_OK; i++) {
    const event *e = &r->events[i];
    if (e->kind == EVENT_ALLOC) {
      size_t at = share_of(all, count, event_origin(r, e)->tag_id, e->stack_id);
      all[at].live += e->bytes;
      live += e->bytes;
      status = map_put(&owner, e->addr, at);
    } else if (e->kind == EVENT_FREE) {
      uint64_t at;
      if (!map_remove(&owner, e->addr, &at)) continue;
      all[at].live -= e->bytes < all[at].live ? e->bytes : all[at].live;
      live -= e->bytes < live ? e->bytes : live;
    } else {
      continue;
    }
    /* The last of about equal ones: more of it may have a name by then. */
    if (live + live / 64 < *peak) continue;
    if (live > *peak) *peak = live;
    for (size_t k = 0; k < *count; k++) all[k].at_peak = all[k].live;
  }
  map_free(&owner);
  return status;
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
  share *all = calloc(SHARES_MAX, sizeof *all);
  size_t count = 0;
  char where[160];
  if (all == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to read a recording");
  uint64_t peak;
  stow_status status = measure(r, all, &count, &peak);
  if (status != STOW_OK) {
    free(all);
    return status;
  }
  qsort(all, count, sizeof *all, by_peak);
  x->evidence.n.live_bytes = peak;
  buffer_printf(&x->headline, "Host memory: at most %s was held", cause_size(peak));
  if (count > 0 && all[0].at_peak >= peak / 5 && recording_text(r, all[0].tag_id)[0] != '\0') {
    place(where, sizeof where, r, all[0].stack_id);
    bool rest = strcmp(recording_text(r, all[0].tag_id), REST) == 0;
    buffer_printf(&x->headline, "; most by %s, %s",
                  rest ? "what is in no variable" : recording_text(r, all[0].tag_id),
                  cause_size(all[0].at_peak));
    if (where[0] != '\0') buffer_printf(&x->headline, ", %s %s", rest ? "made at" : "at", where);
  }
  for (size_t i = 0; i < count && i < ROWS_MAX && all[i].at_peak > 0; i++) {
    place(where, sizeof where, r, all[i].stack_id);
    bool rest = strcmp(recording_text(r, all[i].tag_id), REST) == 0;
    buffer_printf(&x->memory, "  %-28.28s %10s%s%s\n",
                  rest ? "in no variable" : recording_text(r, all[i].tag_id),
                  cause_size(all[i].at_peak), where[0] != '\0' ? "  " : "", where);
  }
  buffer_text(&x->notes, "host memory is sampled: what came and went between two samples is not "
                         "in the recording\n");
  free(all);
  return explanation_status(x);
}
