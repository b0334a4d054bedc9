/* Line profile: sums over the processes of a run (line_profile.h). */
#include "report/line_profile.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/list.h"
#include "recordings/run_trace.h"
#include "run/protocol.h"

#define TRACE_BYTES_MAX ((uint64_t)4 << 30)

/* ---- places ---- */

static stow_status place_of(line_places *p, line_place **out, const char *file,
                            const char *function, uint32_t line) {
  for (size_t i = 0; i < p->count; i++) {
    line_place *each = &p->list[i];
    *out = each;
    if (each->line == line && strcmp(each->file, file) == 0 &&
        strcmp(each->function, function) == 0)
      return STOW_OK;
  }
  STOW_TRY(LIST_ROOM(p->list, p->count, p->capacity, 64, "lines"));
  line_place fresh = {.file = strdup(file), .function = strdup(function), .line = line};
  if (fresh.file == NULL || fresh.function == NULL) {
    free(fresh.file);
    free(fresh.function);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the profile");
  }
  p->list[p->count] = fresh;
  *out = &p->list[p->count++];
  return STOW_OK;
}

static void places_free(line_places *p) {
  for (size_t i = 0; i < p->count; i++) {
    free(p->list[i].file);
    free(p->list[i].function);
  }
  free(p->list);
}

static void add(profile_amount *to, profile_amount more) {
  to->bytes += more.bytes;
  to->variance += more.variance;
}

void line_place_add(line_place *to, const line_place *from) {
  for (int kind = 0; kind < PROFILE_KINDS; kind++) {
    add(&to->allocated[kind], from->allocated[kind]);
    add(&to->held[kind], from->held[kind]);
    add(&to->at_peak[kind], from->at_peak[kind]);
  }
}

double line_place_weight(const line_place *p) {
  return p->at_peak[PROFILE_HOST].bytes + p->at_peak[PROFILE_DEVICE].bytes;
}

static int heavier(const void *a, const void *b) {
  const line_place *x = a, *y = b;
  double by_peak = line_place_weight(y) - line_place_weight(x);
  double by_all = y->allocated[PROFILE_HOST].bytes + y->allocated[PROFILE_DEVICE].bytes -
                  x->allocated[PROFILE_HOST].bytes - x->allocated[PROFILE_DEVICE].bytes;
  if (by_peak != 0) return by_peak > 0 ? 1 : -1;
  if (by_all != 0) return by_all > 0 ? 1 : -1;
  int order = strcmp(x->file, y->file);
  return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

/* ---- host memory ---- */

/* Adds the profile of one process; `f` is scratch memory. */
static stow_status add_host(line_profile *p, profile_file *f, const char *path) {
  STOW_TRY(profile_read(f, path));
  for (uint32_t i = 0; i < f->site_count; i++) {
    const profile_site *s = &f->sites[i];
    line_place *to, more = {.allocated[PROFILE_HOST] = s->allocated, .held[PROFILE_HOST] = s->held};
    more.at_peak[PROFILE_HOST] = profile_at_peak(f, s);
    STOW_TRY(place_of(&p->lines, &to, s->file, s->function, s->line));
    line_place_add(to, &more);
  }
  p->peak[PROFILE_HOST] += f->held_peak;
  p->period = f->period;
  p->dropped += f->dropped;
  p->processes++;
  return STOW_OK;
}

/* ---- device memory ---- */

/* One trace, and the place of each of its stacks: its number in the lines plus 1; 0: not known yet.
 */
typedef struct device_sum {
  line_profile *p;
  const recording *r;
  uint32_t *places;
} device_sum;

/* Returns the innermost frame that is not a library's, or the innermost one; NULL: no stack. */
static const frame *own_frame(const recording *r, uint32_t stack_id) {
  if (stack_id == 0 || stack_id > r->stack_count) return NULL;
  const stack *s = &r->stacks[stack_id - 1];
  for (uint32_t i = 0; i < s->count; i++) {
    const frame *each = &r->frames[r->stack_frames[s->first + i] - 1];
    if (profile_is_own(recording_text(r, each->file_id))) return each;
  }
  return s->count > 0 ? &r->frames[r->stack_frames[s->first] - 1] : NULL;
}

/* Finds the place of an allocation. It is valid until the next place is found. */
static stow_status place_of_stack(device_sum *d, line_place **out, uint32_t stack_id) {
  line_places *lines = &d->p->lines;
  uint32_t *known = &d->places[stack_id <= d->r->stack_count ? stack_id : 0];
  if (*known == 0) {
    const frame *f = own_frame(d->r, stack_id);
    STOW_TRY(place_of(lines, out, f != NULL ? recording_text(d->r, f->file_id) : "",
                      f != NULL ? recording_text(d->r, f->name_id) : "", f != NULL ? f->line : 0));
    *known = (uint32_t)(*out - lines->list) + 1;
  }
  *out = &lines->list[*known - 1];
  return STOW_OK;
}

/* The time of the peak of all devices: the number of events until it. */
static stow_status find_peak(const recording *r, size_t *until, uint64_t *peak) {
  map live = {0};
  uint64_t held = 0, bytes = 0;
  stow_status status = STOW_OK;
  *until = 0;
  *peak = 0;
  for (size_t i = 0; i < r->event_count && status == STOW_OK; i++) {
    const event *e = &r->events[i];
    if (e->kind == EVENT_ALLOC) {
      if (map_remove(&live, e->addr, &bytes)) held -= bytes;
      status = map_put(&live, e->addr, e->bytes);
      held += e->bytes;
    } else if (e->kind == EVENT_FREE && map_remove(&live, e->addr, &bytes))
      held -= bytes;
    if (held > *peak) {
      *peak = held;
      *until = i + 1;
    }
  }
  map_free(&live);
  return status;
}

/* Adds what the blocks in `live` (address → event) hold, for the peak or for the end. */
static stow_status add_live(device_sum *d, const map *live, bool at_peak) {
  size_t at = 0;
  uint64_t address, number;
  while (map_next(live, &at, &address, &number)) {
    const event *e = &d->r->events[number];
    line_place *to;
    STOW_TRY(place_of_stack(d, &to, e->stack_id));
    (at_peak ? to->at_peak : to->held)[PROFILE_DEVICE].bytes += (double)e->bytes;
  }
  return STOW_OK;
}

static stow_status add_events(device_sum *d, map *live, size_t until) {
  for (size_t i = 0; i < d->r->event_count; i++) {
    const event *e = &d->r->events[i];
    line_place *to;
    if (e->kind == EVENT_ALLOC) {
      STOW_TRY(place_of_stack(d, &to, e->stack_id));
      to->allocated[PROFILE_DEVICE].bytes += (double)e->bytes;
      STOW_TRY(map_put(live, e->addr, i));
      d->p->device = true;
    } else if (e->kind == EVENT_FREE)
      map_remove(live, e->addr, NULL);
    if (i + 1 == until) STOW_TRY(add_live(d, live, true));
  }
  return add_live(d, live, false);
}

static stow_status add_trace(line_profile *p, const recording *r) {
  const char *of = recording_fact(r, "memory");
  if (of != NULL && strcmp(of, "host") == 0) return STOW_OK;
  size_t until = 0;
  uint64_t peak = 0;
  map live = {0};
  STOW_TRY(find_peak(r, &until, &peak));
  device_sum d = {.p = p, .r = r, .places = calloc(r->stack_count + 1, sizeof *d.places)};
  stow_status status = d.places != NULL
                           ? add_events(&d, &live, until)
                           : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the profile");
  p->peak[PROFILE_DEVICE] += (double)peak;
  map_free(&live);
  free(d.places);
  return status;
}

static stow_status add_device(line_profile *p, const char *path) {
  recording r;
  recording_init(&r, TRACE_BYTES_MAX);
  stow_status status = run_trace_file(&r, path, KIND_STOW);
  if (status == STOW_OK) status = add_trace(p, &r);
  recording_free(&r);
  return status;
}

/* ---- reading a run ---- */

stow_status line_profile_read(line_profile *p, const char *folder) {
  *p = (line_profile){0};
  struct dirent **entries;
  profile_file *f = malloc(sizeof *f);
  stow_status status =
      f != NULL ? STOW_OK : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the profile");
  int count = scandir(folder, &entries, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    char path[PATH_MAX];
    const char *name = entries[i]->d_name;
    if (status == STOW_OK && run_path(path, folder, name)) {
      if (run_has_ending(name, RUN_PROFILE)) status = add_host(p, f, path);
      if (run_has_ending(name, RUN_STOW)) status = add_device(p, path);
      if (status == STOW_ERR_FORMAT) status = STOW_OK; /* of a process that was killed early */
    }
    free(entries[i]);
  }
  if (count >= 0) free(entries);
  free(f);
  for (size_t i = 0; i < p->lines.count && status == STOW_OK; i++) {
    const line_place *line = &p->lines.list[i];
    line_place *to;
    status = place_of(&p->functions, &to, line->file, line->function, 0);
    if (status == STOW_OK) line_place_add(to, line);
  }
  if (p->lines.count > 0) qsort(p->lines.list, p->lines.count, sizeof(line_place), heavier);
  if (p->functions.count > 0)
    qsort(p->functions.list, p->functions.count, sizeof(line_place), heavier);
  return status;
}

void line_profile_free(line_profile *p) {
  places_free(&p->lines);
  places_free(&p->functions);
}

/* ---- amounts ---- */

uint64_t line_profile_bytes(double bytes) {
  return bytes > 0 ? (uint64_t)(bytes + 0.5) : 0;
}

uint64_t line_profile_error(profile_amount a) {
  double x = a.variance, root = x > 1 ? x : 1; /* Newton's method: libm is not linked */
  if (x <= 0) return 0;
  for (int i = 0; i < 600 && root * root > x * (1 + 1e-12); i++) root = (root + x / root) / 2;
  return line_profile_bytes(root);
}
