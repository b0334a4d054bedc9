/* Host peak: which causes to report when nothing failed. */
#include "advise/host_peak.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "advise/host.h"
#include "advise/host_case.h"
#include "advise/host_line.h"

#define WASTE_LEAST  ((uint64_t)128 << 20)
#define GRAPH_LEAST  ((uint64_t)64 << 20)
#define SURE         0.8
#define UNSURE       0.6
#define MISSED_LEAST ((uint64_t)32 << 20)
#define MUCH_LEAST   ((uint64_t)200 << 20) /* from here on a run gets a line on how to use less */

/* Returns what the process held when it was asked, if it held more than a third more at another
 * moment, in which another object may have been the largest. 0: it was asked near its peak, or the
 * line that makes the rest is known. */
static uint64_t seen_away_from_peak(const host_record *r) {
  uint64_t seen = r->inside_bytes, most = r->largest_bytes;
  if (!r->from_inside || r->late || seen == 0 || most <= seen) return 0;
  uint64_t named = 0, largest = r->object_count > 0 ? r->objects[0].bytes : 0;
  for (size_t i = 0; i < r->object_count; i++) named += r->objects[i].bytes;
  bool another = most > named && most - named > largest;
  if (most - seen < MISSED_LEAST || most - seen <= most / 4 || !another) return 0;
  return seen > named ? seen : named; /* the program went on while its objects were weighed */
}

/* A program that keeps what it makes may want it. It is clearly wrong if it would fill the machine
 * soon, or if the same result needs much less. */
static bool clearly_wrong(const cause *c, const fix *f, const host_record *r) {
  uint64_t saves = f->saves_bytes == MESSAGE_UNKNOWN ? 0 : f->saves_bytes;
  bool much = saves >= WASTE_LEAST && saves >= r->peak_bytes / 4;
  switch (c->id) {
  case CAUSE_GRAPH_KEPT: return c->confidence >= 0.7 && saves >= GRAPH_LEAST;
  case CAUSE_HOST_OBJECTS:
  case CAUSE_HOST_COPIES:
  case CAUSE_HOST_PINNED:
  case CAUSE_HOST_SHARED: return c->confidence >= SURE && much;
  case CAUSE_HOST_WORKERS: /* each needs its own memory: that is how a program uses several CPUs */
  case CAUSE_HOST_LEAK:
  case CAUSE_HOST_NATIVE:
    return c->confidence >= SURE && much && r->peak_bytes >= r->total_bytes / 4;
  default: return false;
  }
}

/* Returns whether such memory belongs to no single variable, so that the cause itself names it. */
static bool no_variable(cause_id id) {
  return id == CAUSE_HOST_WORKERS || id == CAUSE_HOST_SHARED || id == CAUSE_HOST_NATIVE;
}

/* Writes how to use less, although nothing is clearly wrong: the first fix, or else what such an
 * object needs. A higher limit is no way to use less. what: the holder; NULL if it is no object. */
static void advise(host_peak *p, const fix *f, const host_record *r, const host_object *what) {
  if (p->holder[0] == '\0' || r->peak_bytes < MUCH_LEAST) return;
  if (f != NULL && !f->raises_limit)
    snprintf(p->fix, sizeof p->fix, "%s", f->change);
  else if (what != NULL)
    host_use_less(r, p->fix, sizeof p->fix, what);
}

/* Returns whether the largest object belongs to a library, which no line of the program fills. */
static bool is_inside_library(const host_record *r) {
  const host_object *o = &r->objects[0];
  return r->object_count > 0 && o->place[0] == '\0' && strncmp(o->where, "module ", 7) == 0 &&
         strchr(o->where, '/') == NULL;
}

/* Returns the largest process if another one answered, or none did, and no object that was reported
 * is comparable: a program that Python started, which has no variables. */
static const tree_process *other_process(const host_record *r, uint64_t of) {
  if (r->process_count < 2) return NULL;
  const tree_process *p = &r->processes[0];
  uint64_t named = r->object_count > 0 ? r->objects[0].bytes : 0;
  if ((r->from_inside && r->inside_pid == p->pid) || p->held_bytes < of / 5) return NULL;
  return p->held_bytes > 2 * named ? p : NULL;
}

stow_status host_peak_find(host_peak *p, const host_record *r) {
  explanation x;
  const tree_process *other = other_process(r, r->peak_bytes);
  *p = (host_peak){.seen_bytes = other == NULL ? seen_away_from_peak(r) : 0};
  uint64_t of = p->seen_bytes > 0 ? p->seen_bytes : r->peak_bytes;
  if (other == NULL && r->object_count > 0 && r->objects[0].bytes >= of / 5)
    host_describe(p->holder, sizeof p->holder, &r->objects[0]);
  stow_status status = explain_host(&x, r);
  const char *said = status == STOW_OK && x.headline.data != NULL ? x.headline.data : "";
  const cause *first = status == STOW_OK && x.findings.count > 0 ? &x.findings.list[0] : NULL;
  const fix *advice = status == STOW_OK && x.fixes.count > 0 ? &x.fixes.list[0] : NULL;
  bool workers = first != NULL && first->id == CAUSE_HOST_WORKERS;
  bool whole = workers;             /* the holder is no object */
  if (workers && p->seen_bytes > 0) /* seen from outside, at the peak */
    p->seen_bytes = 0, p->holder[0] = '\0';
  if (p->seen_bytes > 0) { /* causes are those of another moment, but its line may be the same */
    if (first != NULL && first->names_line) {
      snprintf(p->holder, sizeof p->holder, "%s", said);
      whole = true;
    }
  } else if (first != NULL && first->names_line && p->holder[0] != '\0' && is_inside_library(r)) {
    snprintf(p->holder, sizeof p->holder, "%s", said);
    whole = true;
  } else if (first != NULL && advice != NULL && clearly_wrong(first, advice, r)) {
    p->wasted_bytes = advice->saves_bytes == MESSAGE_UNKNOWN ? 0 : advice->saves_bytes;
    /* The holder is reported first. */
    const char *head = said;
    size_t same = strlen(p->holder);
    if (same > 0 && strncmp(head, p->holder, same) == 0) head += same + strspn(head + same, ":; ");
    snprintf(p->cause, sizeof p->cause, "%s", head[0] != '\0' ? head : "all of it is kept");
    snprintf(p->fix, sizeof p->fix, "%s", advice->change);
  } else if (first != NULL && p->holder[0] == '\0' && no_variable(first->id)) {
    snprintf(p->holder, sizeof p->holder, "%s", said);
    whole = true;
  }
  if (p->holder[0] == '\0' && other != NULL)
    snprintf(p->holder, sizeof p->holder, "%.31s, a process that the command started, %s",
             other->name, cause_size(other->held_bytes));
  else if (p->holder[0] == '\0' && first != NULL && first->names_line) {
    snprintf(p->holder, sizeof p->holder, "%s", said);
    whole = true;
  }
  bool object = !whole && r->object_count > 0;
  /* A fix of something else than what is named as the holder. */
  if (object && first != NULL && !host_is_unnamed(&r->objects[0]) &&
      (first->id == CAUSE_HOST_NATIVE || first->confidence < UNSURE) &&
      !host_line_has(said, r->objects[0].name))
    advice = NULL;
  if (p->cause[0] == '\0' && other == NULL) advise(p, advice, r, object ? &r->objects[0] : NULL);
  explanation_free(&x);
  return status;
}

bool host_peak_say_limit(char *out, size_t size, const host_record *r) {
  uint64_t highest = 0, gap_ms = 0, over_ms = 0;
  if (strcmp(r->limit_from, "given") != 0 || r->peak_bytes <= r->limit_bytes || r->ended[0] != '\0')
    return false;
  for (size_t i = 0; i < r->sample_count; i++) {
    const host_sample *s = &r->samples[i];
    uint64_t since = i > 0 ? s->time_ms - r->samples[i - 1].time_ms : s->time_ms;
    if (s->bytes > highest) highest = s->bytes;
    if (since > gap_ms) gap_ms = since;
    if (s->bytes > r->limit_bytes) over_ms += since;
  }
  int length = snprintf(out, size, "the command exceeded the %s of --ram-limit by %s for a moment",
                        cause_size(r->limit_bytes), cause_size(r->peak_bytes - r->limit_bytes));
  if (over_ms > 0)
    snprintf(out + length, size - (size_t)length, ", about %" PRIu64 " ms, and ended by itself",
             over_ms);
  else
    snprintf(out + length, size - (size_t)length,
             ", and ended by itself: no reading saw it (the highest: %s; at most %" PRIu64
             " ms between two)",
             cause_size(highest), gap_ms);
  return true;
}
