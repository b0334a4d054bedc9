/* Host case: adds causes and fixes to the case of one run, and describes its objects. */
#include "advise/host_case.h"

#include "advise/host_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

cause *host_add(host_case *c, cause_id id, double confidence) {
  cause *to = &c->x->findings.list[c->x->findings.count++];
  *to =
      (cause){.id = id, .confidence = confidence, .headline = BUFFER_INIT, .evidence = BUFFER_INIT};
  return to;
}

fix *host_add_fix(host_case *c, uint64_t saves_bytes, const char *change, const char *cost) {
  fixes *all = &c->x->fixes;
  if (all->count == FIXES_MAX) return NULL;
  const findings *found = &c->x->findings; /* a fix is for the cause added last */
  c->sure[all->count] = found->count > 0 ? found->list[found->count - 1].confidence : 0;
  c->of[all->count] = found->count > 0 ? found->list[found->count - 1].id : CAUSE_HOST_LIMIT;
  fix *f = &all->list[all->count++];
  *f = (fix){.saves_bytes = saves_bytes};
  snprintf(f->change, sizeof f->change, "%s", change);
  snprintf(f->cost, sizeof f->cost, "%s", cost);
  return f;
}

/* ---- an object in words ---- */

/* "arrays" for numpy.ndarray. */
static void plural(char *out, size_t size, const char *of) {
  static const struct {
    const char *of, *words;
  } known[] = {{"numpy.ndarray", "arrays"},
               {"torch.Tensor", "tensors"},
               {"pandas.DataFrame", "DataFrames"},
               {"dict", "dicts"},
               {"list", "lists"},
               {"tuple", "tuples"},
               {"str", "strings"},
               {"int", "ints"},
               {"float", "floats"},
               {"bytes", "bytes objects"},
               {"", "elements"}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].of, of) == 0) {
      snprintf(out, size, "%s", known[i].words);
      return;
    }
  snprintf(out, size, "%.60s objects", of);
}

static const char *article(const char *noun) {
  return noun[0] != '\0' && strchr("aeiouAEIO", noun[0]) != NULL ? "an" : "a";
}

void host_place(char *out, size_t size, const host_object *o) {
  const char *colon = strrchr(o->place, ':'), *slash = strrchr(o->place, '/');
  out[0] = '\0';
  if (colon == NULL) return;
  const char *file = slash != NULL && slash < colon ? slash + 1 : o->place;
  snprintf(out, size, "line %.10s of %.*s", colon + 1, (int)(colon - file), file);
}

bool host_is_unnamed(const host_object *o) {
  return strncmp(o->name, "what line ", 10) == 0;
}

void host_name(char *out, size_t size, const host_object *o) {
  out[0] = '\0';
  /* What a line that sums it up makes is not what it assigns. */
  if (host_is_unnamed(o) && !host_line_makes_temporaries(o->source))
    host_line_target(o->source, out, size);
  if (out[0] == '\0') snprintf(out, size, "%s", o->name);
}

void host_describe(char *out, size_t size, const host_object *o) {
  char what[200], parts[80], place[160], where[220] = "", texts[180] = "";
  const char *type = strncmp(o->type, "collections.", 12) == 0 ? o->type + 12 : o->type;
  bool text = strcmp(o->type, "str") == 0 || strncmp(o->type, "byte", 4) == 0;
  bool many = o->shape[0] == '\0' && o->count > 1 && !text;
  if (strncmp(type, "_io.", 4) == 0) type += 4;
  plural(parts, sizeof parts, o->of);
  bool unused = strcmp(o->mark, "garbage") == 0 || strcmp(o->mark, "uncollected") == 0 ||
                strcmp(o->mark, "collected") == 0;
  if (strcmp(o->mark, "nameless") == 0 || (unused && o->of[0] == '\0'))
    snprintf(what, sizeof what, "about %" PRIu64 " Python objects", o->count);
  else if (unused)
    snprintf(what, sizeof what, "%" PRIu64 " %s of %s objects that nothing uses", o->count, parts,
             o->type);
  else if (strcmp(o->mark, "linked") == 0)
    snprintf(what, sizeof what, "%" PRIu64 " %s", o->count, parts);
  else if (host_is_structure(o) && o->objects > 0)
    snprintf(what, sizeof what, "%s %s of about %" PRIu64 " Python objects", article(type), type,
             o->objects);
  else if (host_is_nested(o))
    snprintf(what, sizeof what, "%s %s of %s, nested: about %" PRIu64 " Python objects",
             article(type), type, parts, o->objects);
  else if (many && host_is_of_keys(o))
    snprintf(what, sizeof what, "%s %s with %" PRIu64 " %s as keys", article(type), type, o->count,
             parts);
  else if (many)
    snprintf(what, sizeof what, "%s %s of %" PRIu64 " %s", article(type), type, o->count, parts);
  else
    snprintf(what, sizeof what, "%s %s%s%s%s%s", article(type), type, o->shape[0] ? " " : "",
             o->shape, o->of[0] != '\0' && o->shape[0] ? " of " : "", o->shape[0] ? o->of : "");
  host_place(place, sizeof place, o);
  if (place[0] == '\0')
    snprintf(where, sizeof where, ", in %.150s", o->where);
  else if (o->grows && many && o->element_bytes >= 1024 && !host_is_grouped(o))
    snprintf(where, sizeof where, ", grows by %s per iteration at %s", cause_size(o->element_bytes),
             place);
  else
    snprintf(where, sizeof where, ", %s at %s", o->grows ? "grows" : "made", place);
  if (o->text_bytes > o->bytes / 4 && o->words[0] != '\0')
    snprintf(texts, sizeof texts, " (%s of it Python %s in %.100s)", cause_size(o->text_bytes),
             strcmp(o->mark, "cells") == 0 ? "objects" : "strings", o->words);
  char name[64];
  host_name(name, sizeof name, o);
  snprintf(out, size, "%s: %s, %s%s%s", name, what, cause_size(o->bytes), texts, where);
}

void host_say_object(cause *to, const host_object *o) {
  char text[480];
  host_describe(text, sizeof text, o);
  cause_say(to, "%s", text);
}

uint64_t host_named_bytes(const host_record *r) {
  uint64_t sum = r->copies_bytes;
  for (size_t i = 0; i < r->object_count; i++) sum += r->objects[i].bytes;
  return sum;
}

/* What a module takes: code, docstrings, classes, tables of C code. Measured on Python 3.11,
 * private memory after the import: numpy 70 KiB each (174 modules), pandas 83 (611), polars 66,
 * pyarrow 88, scikit-learn 71 (1423), networkx 49; PyTorch 245. */
#define MODULE_BYTES ((uint64_t)64 << 10)

uint64_t host_imported_bytes(const host_record *r) {
  uint64_t bytes = r->inside_modules * MODULE_BYTES;
  return bytes < r->inside_bytes / 2 ? bytes : r->inside_bytes / 2;
}

bool host_is_table(const host_object *o) {
  return strstr(o->type, "DataFrame") != NULL || strstr(o->type, "Table") != NULL;
}

bool host_is_narrow(const host_record *r, const char *source) {
  bool known = false;
  for (size_t i = 0; source != NULL && i < r->object_count; i++) {
    const host_object *o = &r->objects[i];
    if (!host_is_array(o) || o->of[0] == '\0' || !host_line_has(source, o->name)) continue;
    if (strstr(o->of, "64") != NULL || strstr(o->of, "128") != NULL) return false;
    known = true;
  }
  return known;
}

uint64_t host_made_bytes(const host_case *c) {
  const host_record *r = c->r;
  uint64_t named = r->copies_bytes + host_imported_bytes(r);
  for (size_t i = 0; i < r->object_count; i++)
    if (!host_is_unnamed(&r->objects[i])) named += r->objects[i].bytes;
  return c->reported_bytes > named ? c->reported_bytes - named : 0;
}

bool host_is_container(const host_object *o) {
  return strcmp(o->type, "list") == 0 || strcmp(o->type, "dict") == 0 ||
         strcmp(o->type, "set") == 0 || strcmp(o->type, "tuple") == 0 ||
         strstr(o->type, "deque") != NULL || strstr(o->type, "dict") != NULL ||
         strstr(o->type, "Queue") != NULL || strcmp(o->type, "collections.Counter") == 0;
}

bool host_is_of_keys(const host_object *o) {
  return strcmp(o->mark, "keys") == 0;
}

bool host_is_nested(const host_object *o) {
  return strcmp(o->mark, "nested") == 0;
}

bool host_is_grouped(const host_object *o) {
  static const char *const inner[] = {
      "list", "set", "dict", "collections.deque", "collections.defaultdict", "collections.Counter"};
  bool held = false;
  for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
    held = held || strcmp(o->of, inner[i]) == 0;
  return held && strstr(o->type, "dict") != NULL;
}

bool host_is_structure(const host_object *o) {
  return !host_is_container(o) && !host_is_array(o) && strcmp(o->type, o->of) == 0;
}

bool host_is_array(const host_object *o) {
  return o->shape[0] != '\0';
}
