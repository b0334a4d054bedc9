/* Host: the causes that a host record shows.
 *
 * From outside: which processes hold how much, how it grew, how many bytes were read, which files
 * are open. From inside, where the process is Python: what its variables hold and which line it is
 * at. Each cause is one function that gives a confidence; docs/explain.md says when it is wrong.
 */
#include "advise/host.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "advise/host_case.h"
#include "advise/host_line.h"

/* ---- what an object is ---- */

/* A table, or tables, mostly of columns of Python strings. */
static bool is_text_table(const host_object *o) {
  return o->text_bytes > o->bytes / 2;
}

/* Many Python objects, each with its header and its reference. */
static bool is_objects(const host_object *o) {
  bool small = o->objects > 0 ? o->objects >= 1000 && o->bytes / o->objects < SMALL_ELEMENT
                              : o->count >= 1000 && o->element_bytes < SMALL_ELEMENT;
  return (host_is_container(o) && small) || (host_is_array(o) && strcmp(o->of, "object") == 0);
}

/* A collection of large things, as a list of arrays is. */
static bool is_collection(const host_object *o) {
  return host_is_container(o) && o->count >= 4 && o->element_bytes >= LARGE_ELEMENT;
}

/* ---- the causes ---- */

/* A DataFrame whose columns of text are Python strings. */
static bool find_text(host_case *c) {
  const host_record *r = c->r;
  const host_object *o = NULL;
  for (size_t i = 0; i < r->object_count && o == NULL; i++)
    if (is_text_table(&r->objects[i])) o = &r->objects[i];
  double share = o != NULL ? evidence_share(o->text_bytes, c->reported_bytes) : 0;
  if (o == NULL || share < MUCH) return false;
  char column[64] = "column";
  snprintf(column, sizeof column, "%.*s", (int)strcspn(o->words, ","), o->words);
  cause *to = host_add(c, CAUSE_HOST_OBJECTS, share >= MOST ? 0.92 : 0.7);
  cause_head(to, "%s holds %s as Python strings, one object per cell, in %s", o->name,
             cause_size(o->text_bytes), o->words);
  host_say_object(to, o);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  char change[400];
  snprintf(change, sizeof change,
           "store text compactly: %s[\"%s\"] = %s[\"%s\"].astype(\"category\") for values that "
           "repeat, astype(\"string[pyarrow]\") for others (read_csv(dtype=…) at once)",
           o->name, column, o->name, column);
  host_add_fix(c, o->text_bytes - o->text_bytes / 4, change, "one pass over the column");
  return true;
}

static void find_objects(host_case *c) {
  const host_record *r = c->r;
  uint64_t sum = 0, lean = 0;
  const host_object *first = NULL;
  for (size_t i = 0; i < r->object_count; i++)
    if (is_objects(&r->objects[i])) {
      if (first == NULL) first = &r->objects[i];
      sum += r->objects[i].bytes;
      /* A number, or a short text, for each element and each word of it. */
      lean += r->objects[i].objects > 0
                  ? r->objects[i].objects * 8
                  : r->objects[i].count * (r->objects[i].element_bytes > 200 ? 32 : 8);
    }
  double share = evidence_share(sum, c->reported_bytes);
  if (find_text(c) || first == NULL || share < MUCH) return;
  cause *to = host_add(c, CAUSE_HOST_OBJECTS, share >= MOST ? 0.9 : 0.55);
  char text[480];
  host_describe(text, sizeof text, first);
  cause_head(to, "%s; made of small Python objects", text);
  for (size_t i = 0; i < r->object_count; i++)
    if (is_objects(&r->objects[i])) host_say_object(to, &r->objects[i]);
  cause_say(to, "about %" PRIu64 " bytes for each, where an array needs 1 to 8 a number",
            first->element_bytes);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  char change[400];
  snprintf(change, sizeof change,
           "keep %s as arrays: one numpy array (or a column of a table) for each field, filled in "
           "place or with numpy.fromiter",
           first->name);
  host_add_fix(c, sum > lean ? sum - lean : 0, change,
               "the values have one type; single ones are read more slowly");
}

/* Does it rise without ever giving much back? */
static bool rises_steadily(const host_record *r) {
  uint64_t high = 0;
  unsigned rises = 0;
  for (size_t i = 0; i < r->sample_count; i++) {
    uint64_t now = r->samples[i].bytes;
    if (now > high) {
      high = now;
      rises++;
    } else if (now + high / 5 < high)
      return false;
  }
  return rises >= 4;
}

static void find_leak(host_case *c) {
  const host_record *r = c->r;
  const host_object *most = NULL;
  for (size_t i = 0; i < r->object_count && most == NULL; i++)
    if (is_collection(&r->objects[i])) most = &r->objects[i];
  if (most == NULL) return;
  double share = evidence_share(most->bytes, c->reported_bytes);
  bool steady = rises_steadily(r);
  if (share < MUCH) return;
  cause *to = host_add(c, CAUSE_HOST_LEAK, share >= MOST ? (steady ? 0.9 : 0.75) : 0.5);
  char text[480];
  host_describe(text, sizeof text, most);
  cause_head(to, "%s", text);
  cause_say(to, "%s keeps them all, %s each", most->name, cause_size(most->element_bytes));
  if (steady && r->growth_bytes_s > 0)
    cause_say(to, "what the command holds rose by %s a second and never fell",
              cause_size((uint64_t)r->growth_bytes_s));
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  char change[400];
  snprintf(change, sizeof change,
           "drop each when it is done with, keep only what is needed of it (a number, a row), or "
           "give %s a bound: %s",
           most->name,
           strncmp(most->name, "the cache of ", 13) == 0 ? "functools.lru_cache(maxsize=…)"
                                                         : "collections.deque(maxlen=…)");
  host_add_fix(c, most->bytes - most->element_bytes, change,
               "what is dropped cannot be looked at later");
}

static void find_limit(host_case *c) {
  const host_record *r = c->r;
  bool ours = strcmp(r->limit_from, "given") == 0;
  uint64_t room = r->held_bytes + r->usable_bytes;
  if (r->total_bytes > 0 && room > r->total_bytes) room = r->total_bytes;
  bool fits = ours && r->total_bytes > r->limit_bytes && room > r->limit_bytes + r->limit_bytes / 4;
  bool alone = c->x->findings.count == 0;
  if (!ours && strcmp(r->limit_from, "cgroup") != 0 && !alone) return;
  cause *to = host_add(c, CAUSE_HOST_LIMIT, alone ? (fits ? 0.7 : 0.4) : 0.25);
  if (ours)
    cause_head(to, "The command holds %s and may hold %s; the host has %s more",
               cause_size(r->held_bytes), cause_size(r->limit_bytes), cause_size(r->usable_bytes));
  else
    cause_head(to, "The command holds %s of the %s %s allows", cause_size(r->held_bytes),
               cause_size(r->limit_bytes),
               strcmp(r->limit_from, "cgroup") == 0   ? "its control group"
               : strcmp(r->limit_from, "python") == 0 ? "stowage.limit(ram=…)"
                                                      : "the machine");
  uint64_t named = host_named_bytes(r);
  uint64_t bare = c->reported_bytes > named ? c->reported_bytes - named : 0;
  bool making = alone && r->from_inside && c->place[0] != '\0' &&
                evidence_share(bare, c->reported_bytes) >= MUCH;
  if (making) {
    cause_head(to, "The line the program is at makes %s so far: %s", cause_size(bare), c->place);
    const char *source = host_line_own(r);
    if (source != NULL && source[0] != '\0') cause_say(to, "the line: %s", source);
    host_add_fix(c, bare / 2,
                 "make it in parts (a loop over rows or blocks), in place (out=), or in a smaller "
                 "type (float32)",
                 "a loop over the parts");
  }
  if (alone && r->object_count > 0) host_say_object(to, &r->objects[0]);
  if (alone && c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  if (alone && !r->from_inside)
    cause_say(to, "what fills it is only known from outside: it is no Python process, or it did "
                  "not answer in time");
  if (ours && fits && alone) {
    char change[128];
    snprintf(change, sizeof change, "raise --ram-limit: the host had %s for it", cause_size(room));
    host_add_fix(c, MESSAGE_UNKNOWN, change, "less is left for others on the host");
  }
}

/* ---- together ---- */

/* The fixes of the likeliest cause first. */
static void rank_fixes(host_case *c) {
  fixes *all = &c->x->fixes;
  for (uint32_t i = 1; i < all->count; i++)
    for (uint32_t j = i; j > 0 && c->sure[j] > c->sure[j - 1]; j--) {
      fix swap = all->list[j];
      double sure = c->sure[j];
      all->list[j] = all->list[j - 1], c->sure[j] = c->sure[j - 1];
      all->list[j - 1] = swap, c->sure[j - 1] = sure;
    }
}

static void row(buffer *out, const char *name, uint64_t bytes, const char *note) {
  buffer_printf(out, "  %-28s %10s%s%s\n", name, cause_size(bytes), note[0] != '\0' ? "  " : "",
                note);
}

static void memory_rows(const host_case *c) {
  const host_record *r = c->r;
  buffer *out = &c->x->memory;
  char note[128];
  bool here = strcmp(r->limit_from, "python") == 0;
  row(out, here ? "held by this process" : "held by the command", r->held_bytes, "");
  row(out, "at its peak", r->peak_bytes, "");
  for (size_t i = 0; i < r->process_count && i < 6; i++) {
    const tree_process *p = &r->processes[i];
    if (i > 0 && evidence_share(p->held_bytes, r->held_bytes) < 0.02) break;
    snprintf(note, sizeof note, "%s, process %d", p->name, (int)p->pid);
    row(out, i == 0 ? "  of it" : "", p->held_bytes, note);
  }
  static const char *const NAMES[TREE_MAP_KINDS] = {"    heap", "    anonymous mappings",
                                                    "    shared memory", "    files mapped"};
  for (int k = 0; k < TREE_MAP_KINDS; k++)
    if (r->kinds[k] > 0) row(out, NAMES[k], r->kinds[k], "");
  if (r->cache_bytes > 0)
    row(out, "file cache of the container", r->cache_bytes,
        "counts as used, and is dropped when memory is needed");
  row(out, "left on the host", r->usable_bytes, "");
  row(out, "the limit", r->limit_bytes,
      strcmp(r->limit_from, "given") == 0    ? "by --ram-limit"
      : strcmp(r->limit_from, "python") == 0 ? "by stowage.limit(ram=…)"
      : strcmp(r->limit_from, "cgroup") == 0 ? "of the control group"
                                             : "the machine's memory");
}

stow_status explain_host(explanation *x, const host_record *r) {
  static const tree_process nobody = {.name = "?"};
  explanation_blank(x);
  host_case c = {.r = r, .x = x, .main = r->process_count > 0 ? &r->processes[0] : &nobody};
  c.main_bytes = c.main->held_bytes > 0 ? c.main->held_bytes : r->held_bytes;
  /* If memory more than doubled after the report, most of it is missing from the report. */
  bool recent = r->from_inside && r->inside_bytes >= c.main_bytes / 2 && r->inside_bytes > 0;
  c.reported_bytes = recent ? r->inside_bytes : c.main_bytes;
  x->evidence.n.live_bytes = r->held_bytes;
  x->evidence.n.limit_bytes = r->limit_bytes;
  x->evidence.n.free_bytes = r->usable_bytes;
  host_line_place(r, c.place, sizeof c.place);
  memory_rows(&c);
  host_find_workers(&c);
  host_find_graph(&c);
  host_find_pinned(&c);
  host_find_shared(&c);
  find_objects(&c);
  find_leak(&c);
  host_find_copies(&c);
  host_find_dataset(&c);
  host_find_native(&c);
  find_limit(&c);
  findings_rank(&x->findings);
  rank_fixes(&c);
  explanation_head(x);
  if (!r->from_inside)
    buffer_text(&x->notes, "no view from inside: variables and lines are not known\n");
  return explanation_status(x);
}
