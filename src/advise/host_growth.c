/* Host growth: containers and texts that grow, and small Python objects. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "advise/host_kind.h"
#include "advise/host_less.h"
#include "advise/host_line.h"
#include "advise/host_way.h"

/* Returns why elements keep more than the container lists. */
static const char *why_trees(const host_object *o) {
  return host_is_of_errors(o)
             ? "each error keeps its traceback, and that the variables of its functions"
             : "each keeps everything that it is a part of";
}

/* ---- columns of Python strings ---- */

static bool find_columns(host_case *c) {
  const host_record *r = c->r;
  const host_object *o = NULL;
  for (size_t i = 0; i < r->object_count && o == NULL; i++)
    if (host_is_text_table(&r->objects[i])) o = &r->objects[i];
  double share = o != NULL ? evidence_share(o->text_bytes, c->reported_bytes) : 0;
  if (o == NULL || share < MUCH) return false;
  char place[160], name[64], change[400];
  host_place(place, sizeof place, o);
  host_name(name, sizeof name, o);
  cause *to = host_add(c, CAUSE_HOST_OBJECTS, share >= MOST ? 0.92 : 0.7);
  cause_head(to, "%s holds %s as Python %s%s%s%s%s", name, cause_size(o->text_bytes),
             host_is_of_cells(o) ? "objects, a list or the like in every cell"
                                 : "strings, one object per cell",
             o->words[0] != '\0' ? ", in " : "", o->words, place[0] != '\0' ? ", made at " : "",
             place);
  host_say_object(to, o);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  host_less_text(change, sizeof change, o);
  host_add_fix(c, o->text_bytes - o->text_bytes / 4, change, "one pass over the column");
  if (host_is_read(o))
    host_add_fix(c, o->bytes - o->bytes / 16,
                 "read it in parts and keep only the result of each: for part in read_csv(…, "
                 "chunksize=100_000): …",
                 "a loop over the parts");
  return true;
}

/* ---- small Python objects ---- */

void host_find_objects(host_case *c) {
  const host_record *r = c->r;
  uint64_t sum = 0;
  const host_object *first = NULL;
  for (size_t i = 0; i < r->object_count; i++)
    if (host_is_of_objects(&r->objects[i])) {
      if (first == NULL) first = &r->objects[i];
      sum += r->objects[i].bytes;
    }
  double share = evidence_share(sum, c->reported_bytes);
  if (find_columns(c) || first == NULL || share < MUCH) return;
  cause *to = host_add(c, CAUSE_HOST_OBJECTS, share >= MOST ? 0.9 : 0.55);
  char text[480];
  host_describe(text, sizeof text, first);
  cause_head(to, "%s; %s", text,
             host_is_of_trees(first) ? why_trees(first) : "made of small Python objects");
  for (size_t i = 0; i < r->object_count; i++)
    if (host_is_of_objects(&r->objects[i])) host_say_object(to, &r->objects[i]);
  if (!host_is_of_trees(first) && !host_is_whole_structure(first))
    cause_say(to, "about %" PRIu64 " bytes for each, where an array needs 1 to 8 a number",
              first->element_bytes);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  char change[400];
  host_less_objects(c, change, sizeof change, first);
  /* The first one, less a number or a short text for each element. */
  uint64_t lean = first->objects > 0 ? first->objects * 8
                                     : first->count * (first->element_bytes > 200 ? 32 : 8);
  if (host_less_is_bound(first)) host_less_entries(c, first, &lean);
  host_add_fix(c, first->bytes > lean ? first->bytes - lean : 0, change,
               host_is_unnamed(first)
                   ? "they can be read only once"
                   : "the values have one type; single ones are read more slowly");
}

/* ---- a collection of large things ---- */

/* Returns whether it rises and never falls much. */
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

/* ---- what an error keeps ---- */

/* Returns whether a variable belongs to a function that an earlier error ended. */
static bool is_of_error(const host_object *o) {
  static const char end[] = " of an earlier error";
  size_t length = strlen(o->name);
  return length >= sizeof end && strcmp(o->name + length - (sizeof end - 1), end) == 0;
}

/* A notebook keeps the last error for %debug, and the error all variables of its functions. */
void host_find_errors(host_case *c) {
  const host_record *r = c->r;
  const host_object *most = NULL;
  uint64_t sum = 0;
  for (size_t i = 0; i < r->object_count; i++)
    if (is_of_error(&r->objects[i])) {
      if (most == NULL) most = &r->objects[i];
      sum += r->objects[i].bytes;
    }
  if (most == NULL || evidence_share(sum, c->reported_bytes) < MUCH) return;
  char text[480];
  host_describe(text, sizeof text, most);
  cause *to = host_add(c, CAUSE_HOST_LEAK, 0.96);
  cause_head(to, "%s; the error's traceback keeps the variables of its functions", text);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  host_add_fix(c, sum,
               "drop the earlier error before the cell runs again: %release, or "
               "sys.last_value = sys.last_traceback = None; then make less at once in it",
               "%debug and %tb no longer show that error");
}

void host_find_leak(host_case *c) {
  const host_record *r = c->r;
  const host_object *most = NULL;
  for (size_t i = 0; i < r->object_count && most == NULL; i++)
    if (host_is_collection(&r->objects[i])) most = &r->objects[i];
  if (most == NULL) return;
  double share = evidence_share(most->bytes, c->reported_bytes);
  bool steady = rises_steadily(r);
  if (share < MUCH) return;
  cause *to = host_add(c, CAUSE_HOST_LEAK, share >= MOST ? (steady ? 0.9 : 0.75) : 0.5);
  char text[480];
  host_describe(text, sizeof text, most);
  cause_head(to, "%s", text);
  char name[64];
  host_name(name, sizeof name, most);
  cause_say(to, "%s keeps them all, %s each%s", name, cause_size(most->element_bytes),
            host_is_of_views(most) ? ": small parts of arrays, which keep the arrays" : "");
  if (host_is_of_trees(most)) buffer_printf(&to->headline, "; %s", why_trees(most));
  if (steady && r->growth_bytes_s > 0)
    cause_say(to, "what %s holds rose by %s a second and never fell",
              strcmp(c->r->limit_from, "python") == 0 ? "this process" : "the command",
              cause_size((uint64_t)r->growth_bytes_s));
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  char change[400];
  unsigned times = host_less_times(most);
  uint64_t kept = times > 1 ? most->bytes / times : most->element_bytes;
  host_less_collection(c, change, sizeof change, most);
  if (host_less_is_bound(most) && !host_is_of_views(most)) host_less_entries(c, most, &kept);
  host_add_fix(c, most->bytes > kept ? most->bytes - kept : 0, change,
               host_is_of_views(most) ? "one copy of each part"
               : host_is_queue(most)  ? "the producer waits"
                                      : "dropped values cannot be used later");
}

/* ---- an iterator that others are ahead of ---- */

void host_find_tee(host_case *c) {
  const host_record *r = c->r;
  const host_object *o = NULL;
  for (size_t i = 0; i < r->object_count && o == NULL; i++)
    if (host_is_tee(&r->objects[i])) o = &r->objects[i];
  double share = o != NULL ? evidence_share(o->bytes, c->reported_bytes) : 0;
  if (o == NULL || share < MUCH) return;
  char place[160];
  host_place(place, sizeof place, o);
  cause *to = host_add(c, CAUSE_HOST_OBJECTS, share >= MOST ? 0.94 : 0.7);
  cause_head(to,
             "%s, an iterator of itertools.tee%s%s, keeps %" PRIu64
             " values (%s) that another one has read and it has not",
             o->name, place[0] != '\0' ? ", made at " : "", place, o->count, cause_size(o->bytes));
  if (o->source[0] != '\0') cause_say(to, "the line: %s", o->source);
  cause_say(to, "tee keeps every value until all of its iterators have read it");
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  host_add_fix(
      c, o->bytes - o->bytes / 16,
      "make the iterator twice instead of tee (call the generator function again, open the "
      "file again), or read both together: for a, b in zip(first, second); if it can be "
      "read only once, compute everything in one pass",
      "the values are made twice");
}

/* ---- a text that grows ---- */

/* Returns the text that grows, or the file in memory, among the three largest objects: a text that
 * was read from such a file can be larger than it. NULL if there is none. */
static const host_object *text_that_grows(const host_record *r) {
  for (size_t i = 0; i < r->object_count && i < 3 && host_is_text(&r->objects[i]); i++)
    if (r->objects[i].grows || host_is_memory_file(&r->objects[i])) return &r->objects[i];
  return NULL;
}

void host_find_text(host_case *c) {
  const host_record *r = c->r;
  const host_object *o = text_that_grows(r);
  double share = o != NULL ? evidence_share(o->bytes, c->reported_bytes) : 0;
  if (share < MUCH || c->joined) return;
  bool file = host_is_memory_file(o);
  char text[480], where[160], change[400];
  host_describe(text, sizeof text, o);
  host_line_where(r, where, sizeof where);
  cause *to = host_add(c, CAUSE_HOST_LEAK, share >= MOST ? 0.9 : 0.6);
  bool asked = file && !o->grows && where[0] != '\0';
  cause_head(to, "%s%s%s%s", text, asked ? "; the program was at " : "", asked ? where : "",
             o->grows ? "; it grows in memory until it is complete" : "");
  if (o->source[0] != '\0') cause_say(to, "the line: %s", o->source);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  if (file)
    snprintf(change, sizeof change,
             "write to a file on disk instead of %s: open(path, \"w%s\"), or "
             "tempfile.SpooledTemporaryFile(max_size=2**26), which moves to disk when it is large",
             o->type + 4, strstr(o->type, "Bytes") != NULL ? "b" : "");
  else
    snprintf(change, sizeof change,
             "write each part to a file as it is made: file.write(part), instead of adding it to "
             "%s; if it must be one %s, keep the parts in a list and join them once",
             o->name, o->type);
  host_add_fix(c, o->bytes, change, "it is on disk, not in memory");
}
