/* Host: the causes that a host record shows.
 *
 * From outside: which processes hold how much, how it grew, how many bytes were read, which files
 * are open. From inside a Python process: what its variables hold and which line it is at. Each
 * cause is one function that returns a confidence; docs/explain.md describes when it can be wrong.
 */
#include "advise/host.h"

#include <stdio.h>
#include <string.h>

#include "advise/host_case.h"
#include "advise/host_line.h"

/* The maximum confidence of a cause from a report that is out of date. */
#define OLD_MOST 0.6
/* A part of what this process holds that is not shown: its row would say the same again. */
#define SAME 0.98

/* ---- nothing but a limit ---- */

/* Tools that name the calls of a program in C or another language that allocate. */
static const char TOOLS[] =
    "see which calls allocate it: heaptrack PROGRAM (then heaptrack_print), "
    "or valgrind --tool=massif PROGRAM";

/* Returns whether no Python process was asked: the largest one is a program in another language. */
static bool is_foreign(const host_case *c) {
  return c->main->name[0] != '?' && strncmp(c->main->name, "python", 6) != 0 &&
         (!c->r->from_inside || (c->r->inside_pid != 0 && c->r->inside_pid != c->main->pid));
}

/* A Python process cannot answer while one call of C code runs: list(…), sorted, split, findall. */
static void say_outside(host_case *c, cause *to) {
  if (strncmp(c->main->name, "python", 6) != 0) {
    cause_say(to, "only the total is known: it is not a Python process");
    return;
  }
  cause_say(to,
            "Python did not answer: probably one call fills the memory (list(…), sorted, split, "
            "re.findall, json.loads, read), and nothing else runs until it returns");
  host_add_fix(c, MESSAGE_UNKNOWN,
               "replace the one large call with a loop: for x in … instead of list(…), re.finditer "
               "instead of findall, for line in file instead of read().split(), ijson for JSON",
               "a loop over the parts");
}

/* The line makes a value that has no name yet. */
static bool say_making(host_case *c, cause *to) {
  const host_record *r = c->r;
  uint64_t made = host_made_bytes(c);
  const char *source = host_line_own(r);
  /* Beside a table that is more, it is a part of that table, or what a step on it needs. */
  if (!r->from_inside || c->stale || c->place[0] == '\0' ||
      evidence_share(made, c->reported_bytes) < MUCH ||
      (r->object_count > 0 && host_is_table(&r->objects[0]) && r->objects[0].bytes >= made))
    return false;
  host_say_making(c, to, made);
  if (source != NULL && source[0] != '\0') cause_say(to, "the line: %s", source);
  bool narrow = host_is_narrow(r, source);
  host_add_fix(c, made / 2,
               narrow ? "make it in parts (a loop over rows or blocks), and keep only what is "
                        "needed of each"
                      : "make it in parts (a loop over rows or blocks), in place (out=), or in a "
                        "smaller type (float32)",
               "a loop over the parts");
  return true;
}

/* One object is most of it, and all of it may be needed. */
static void say_one(host_case *c, cause *to) {
  const host_record *r = c->r;
  const host_object *o = &r->objects[0];
  uint64_t imported = host_imported_bytes(r);
  if (r->object_count == 0 || evidence_share(o->bytes, c->reported_bytes - imported) < MOST) return;
  char text[480], change[400];
  host_describe(text, sizeof text, o);
  cause_head(to, "%s; that is most of the %s held%s", text, cause_size(r->held_bytes),
             imported >= c->reported_bytes / 8 ? " apart from imported libraries" : "");
  if (host_is_table(o)) {
    host_use_less(r, change, sizeof change, o);
    host_add_fix(c, o->bytes / 2, change, "a change of the lines that read it");
    return;
  }
  if (!host_is_array(o)) return;
  host_add_fix(c, o->bytes / 2,
               strstr(o->of, "64") != NULL
                   ? "a smaller type (float32, uint8 for 0 and 1), a sparse matrix "
                     "(scipy.sparse) if most of it is zero, or parts: a loop over blocks of rows"
                   : "work on parts: a loop over blocks of rows; a sparse matrix (scipy.sparse) if "
                     "most of it is zero",
               "less precision; or a loop over the parts");
}

/* A program that is not Python: its name, and what shows its calls. */
static void say_foreign(host_case *c, cause *to) {
  const host_record *r = c->r;
  if (evidence_share(c->main->held_bytes, r->held_bytes) < MOST) return;
  cause_head(to, "%.31s (process %d), which is not a Python program, holds %s%s", c->main->name,
             (int)c->main->pid, cause_size(c->main->held_bytes),
             r->growth_bytes_s > 1 << 20 ? " and grows" : "");
  to->names_line = true; /* as near as it can be named */
  host_add_fix(c, MESSAGE_UNKNOWN, TOOLS, "it runs several times as slowly");
}

static void find_limit(host_case *c) {
  const host_record *r = c->r;
  bool ours = strcmp(r->limit_from, "given") == 0;
  uint64_t room = r->held_bytes + r->usable_bytes;
  if (r->total_bytes > 0 && room > r->total_bytes) room = r->total_bytes;
  bool fits = ours && r->total_bytes > r->limit_bytes && room > r->limit_bytes + r->limit_bytes / 4;
  bool alone = c->x->findings.count == 0;
  if (!ours && strcmp(r->limit_from, "cgroup") != 0 && !alone) return;
  for (uint32_t i = 0; i < c->x->findings.count; i++)
    if (c->x->findings.list[i].id == CAUSE_HOST_LIMIT) return;
  cause *to = host_add(c, CAUSE_HOST_LIMIT, alone ? (fits ? 0.7 : 0.4) : 0.25);
  if (ours)
    cause_head(to, "The command holds %s and is limited to %s; the host has %s more",
               cause_size(r->held_bytes), cause_size(r->limit_bytes), cause_size(r->usable_bytes));
  else
    cause_head(to, "The command holds %s of the %s %s allows", cause_size(r->held_bytes),
               cause_size(r->limit_bytes),
               strcmp(r->limit_from, "cgroup") == 0   ? "its control group"
               : strcmp(r->limit_from, "python") == 0 ? "stowage.limit(ram=…)"
                                                      : "the machine");
  if (alone && is_foreign(c))
    say_foreign(c, to);
  else if (alone && !say_making(c, to))
    say_one(c, to);
  if (alone && r->object_count > 0) host_say_object(to, &r->objects[0]);
  if (alone && c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  if (alone && !r->from_inside) say_outside(c, to);
  if (ours && fits && alone) {
    char change[128];
    snprintf(change, sizeof change, "raise --ram-limit: the host had %s for it", cause_size(room));
    fix *more = host_add_fix(c, MESSAGE_UNKNOWN, change, "less is left for others on the host");
    if (more != NULL) more->raises_limit = true;
  }
}

/* ---- together ---- */

/* Drops the fixes of one way in which a cause was found: they say the same again. */
static void drop_fixes(host_case *c, cause_id id, double confidence) {
  fixes *all = &c->x->fixes;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < all->count; i++)
    if (c->of[i] != id || c->sure[i] != confidence) {
      all->list[kept] = all->list[i];
      c->sure[kept] = c->sure[i], c->of[kept++] = c->of[i];
    }
  if (kept > 0) all->count = kept;
}

/* One cause may be found in two ways: the surer one is reported. */
static void drop_repeated(host_case *c) {
  findings *f = &c->x->findings;
  for (uint32_t i = 1; i < f->count; i++)
    for (uint32_t j = 0; j < i; j++)
      if (f->list[i].id == f->list[j].id) {
        if (f->list[i].confidence != f->list[j].confidence)
          drop_fixes(c, f->list[i].id, f->list[i].confidence);
        buffer_free(&f->list[i].headline);
        buffer_free(&f->list[i].evidence);
        memmove(&f->list[i], &f->list[i + 1], (f->count - i - 1) * sizeof *f->list);
        f->count--;
        i--;
        break;
      }
}

/* The fixes of the most likely cause come first. */
static void rank_fixes(host_case *c) {
  fixes *all = &c->x->fixes;
  for (uint32_t i = 1; i < all->count; i++)
    for (uint32_t j = i; j > 0 && c->sure[j] > c->sure[j - 1]; j--) {
      fix swap = all->list[j];
      double sure = c->sure[j];
      cause_id of = c->of[j];
      all->list[j] = all->list[j - 1], c->sure[j] = c->sure[j - 1], c->of[j] = c->of[j - 1];
      all->list[j - 1] = swap, c->sure[j - 1] = sure, c->of[j - 1] = of;
    }
}

/* Returns whether two fixes name the same way to read less. */
static bool is_same_way(const fix *a, const fix *b) {
  static const char *const calls[] = {"ijson.items(", "iterparse(", "fetchmany(", "re.finditer("};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if (strstr(a->change, calls[i]) != NULL && strstr(b->change, calls[i]) != NULL) return true;
  return false;
}

/* Drops fixes that repeat one before them: two causes may lead to the same call. */
static void drop_same_fixes(fixes *all) {
  for (uint32_t i = 1; i < all->count; i++)
    for (uint32_t j = 0; j < i; j++)
      if (is_same_way(&all->list[j], &all->list[i])) {
        memmove(&all->list[i], &all->list[i + 1], (all->count - i - 1) * sizeof *all->list);
        all->count--;
        i--;
        break;
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
  if (!here || evidence_share(r->held_bytes, r->peak_bytes) < SAME)
    row(out, "at its peak", r->peak_bytes, "");
  for (size_t i = 0; i < r->process_count && i < 6; i++) {
    const tree_process *p = &r->processes[i];
    double share = evidence_share(p->held_bytes, r->held_bytes);
    if ((i > 0 && share < 0.02) || (here && share >= SAME)) break;
    snprintf(note, sizeof note, "%s, process %d", p->name, (int)p->pid);
    row(out, i == 0 ? "  of it" : "", p->held_bytes, note);
  }
  static const char *const NAMES[TREE_MAP_KINDS] = {"    heap", "    anonymous mappings",
                                                    "    shared memory", "    files mapped"};
  for (int k = 0; k < TREE_MAP_KINDS; k++)
    if (r->kinds[k] > 0 && (!here || evidence_share(r->kinds[k], r->held_bytes) < SAME))
      row(out, NAMES[k], r->kinds[k], "");
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

/* Returns whether a container that a line keeps filling was most of what was held when it was
 * reported. Then it is probably also most of what came after. */
static bool grew_on(const host_record *r) {
  const host_object *o = &r->objects[0];
  return r->object_count > 0 && o->grows && evidence_share(o->bytes, r->inside_bytes) >= MOST;
}

/* Lowers the confidence of causes found in a report that is out of date, and says so. */
static void say_old(const host_case *c) {
  findings *f = &c->x->findings;
  for (uint32_t i = 0; i < f->count; i++)
    if (f->list[i].confidence > OLD_MOST) f->list[i].confidence = OLD_MOST;
  if (f->count > 0)
    cause_say(&f->list[0], "reported when the process held %s; it holds %s now",
              cause_size(c->r->inside_bytes), cause_size(c->main_bytes));
}

/* Returns the shared memory that the process held when it reported its objects, which the bytes it
 * gives for itself leave out. */
static uint64_t shared_then(const host_record *r, const tree_process *p) {
  uint64_t sum = 0;
  for (size_t i = 0; i < r->object_count; i++)
    if (strcmp(r->objects[i].mark, "shared") == 0) sum += r->objects[i].bytes;
  return sum < p->shared_bytes ? sum : p->shared_bytes;
}

stow_status explain_host(explanation *x, const host_record *r) {
  static const tree_process nobody = {.name = "?"};
  explanation_blank(x);
  host_case c = {.r = r, .x = x, .main = r->process_count > 0 ? &r->processes[0] : &nobody};
  c.main_bytes = c.main->held_bytes > 0 ? c.main->held_bytes : r->held_bytes;
  /* If memory more than doubled after the report, most of it is missing from the report. */
  uint64_t inside = r->inside_bytes > 0 ? r->inside_bytes + shared_then(r, c.main) : 0;
  bool recent = r->from_inside && inside >= c.main_bytes / 2 && inside > 0;
  /* Newer frames name the line that made what is missing from the report. */
  if (r->late) recent = false;
  c.reported_bytes = recent ? inside : c.main_bytes;
  c.stale = !recent && !r->late && r->from_inside && r->inside_bytes > 0;
  bool old = c.stale && grew_on(r);
  if (old) c.reported_bytes = r->inside_bytes;
  x->evidence.n.live_bytes = r->held_bytes;
  x->evidence.n.limit_bytes = r->limit_bytes;
  x->evidence.n.free_bytes = r->usable_bytes;
  host_line_place(r, c.place, sizeof c.place);
  memory_rows(&c);
  host_find_errors(&c);
  host_find_workers(&c);
  host_find_graph(&c);
  host_find_pinned(&c);
  host_find_shared(&c);
  host_find_cycles(&c);
  host_find_made(&c);
  host_find_tee(&c);
  host_find_objects(&c);
  host_find_leak(&c);
  host_find_copies(&c);
  host_find_text(&c);
  host_find_dataset(&c);
  host_find_native(&c);
  if (old) say_old(&c);
  find_limit(&c);
  findings_rank(&x->findings);
  drop_repeated(&c);
  rank_fixes(&c);
  drop_same_fixes(&x->fixes);
  explanation_head(x);
  if (!r->from_inside)
    buffer_text(&x->notes,
                "Stowage could not look inside the process: variables and lines are not known\n");
  return explanation_status(x);
}
