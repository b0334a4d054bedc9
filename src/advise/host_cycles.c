/* Host cycles: objects that refer to each other. Python frees those that nothing uses any more only
 * when its cycle collector runs, which it does after a number of new objects, however large they
 * are. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "advise/host_case.h"

static const host_object *marked(const host_record *r, const char *mark) {
  for (size_t i = 0; i < r->object_count; i++)
    if (strcmp(r->objects[i].mark, mark) == 0) return &r->objects[i];
  return NULL;
}

/* Returns the bytes of all objects with that mark. */
static uint64_t marked_bytes(const host_record *r, const char *mark) {
  uint64_t sum = 0;
  for (size_t i = 0; i < r->object_count; i++)
    if (strcmp(r->objects[i].mark, mark) == 0) sum += r->objects[i].bytes;
  return sum;
}

/* Writes how to make the objects without the cycle. */
static void break_cycle(char *out, size_t size, const host_object *o) {
  const char *name = o->name, *dot = strrchr(name, '.');
  size_t function = strcspn(name, " ");
  if (strstr(name, " in ") != NULL)
    snprintf(out, size,
             "let go of the error at the end: %.*s = None (or keep str(error)); an error keeps its "
             "traceback, and that all variables of the function",
             (int)function, name);
  else if (strstr(o->type, "Backward") != NULL && dot != NULL)
    snprintf(out, size,
             "ctx.save_for_backward(%s) instead of ctx.%s = …: an output that ctx keeps refers to "
             "ctx again",
             dot + 1, dot + 1);
  else if (dot != NULL)
    snprintf(out, size,
             "make no cycle: keep weakref.ref(…) in %s (call it to get the object), or set %s = "
             "None when the object is no longer needed",
             name, dot);
  else
    snprintf(out, size, "make no cycle: keep weakref.ref(…) in one of the objects");
}

/* Garbage whose objects were found. */
static void find_garbage(host_case *c, const host_object *o, uint64_t bytes, bool on) {
  char place[160], change[400];
  double share = evidence_share(bytes, c->reported_bytes);
  host_place(place, sizeof place, o);
  cause *to = host_add(c, CAUSE_HOST_LEAK, share >= MOST ? 0.93 : share >= MUCH ? 0.7 : 0.65);
  bool before = strcmp(o->mark, "collected") == 0;
  cause_head(to, "%s%s that nothing uses any more %s: %s objects that refer to each other",
             before ? "Up to " : "", cause_size(bytes),
             before ? "waits to be freed" : "is not freed", o->type);
  if (o->words[0] != '\0') buffer_printf(&to->headline, " (%s)", o->words);
  if (place[0] != '\0') buffer_printf(&to->headline, ", made at %s", place);
  host_say_object(to, o);
  cause_say(to, on ? "Python frees such a cycle when its collector runs: after some hundred new "
                     "objects, however large they are"
                   : "Python frees such a cycle when its collector runs, and the program has "
                     "switched it off (gc.disable())");
  if (share < MUCH)
    cause_say(to,
              "most of the %s held was probably such garbage before: the collector has run, and "
              "the allocator keeps what it freed",
              cause_size(c->reported_bytes));
  if (o->source[0] != '\0') cause_say(to, "the line: %s", o->source);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  host_add_fix(c, bytes,
               on ? "collect at the end of each iteration: import gc; gc.collect()"
                  : "let the collector run: gc.enable(), or gc.collect() at the end of each "
                    "iteration",
               "a few milliseconds per call, more with millions of objects");
  break_cycle(change, sizeof change, o);
  host_add_fix(c, bytes, change, "a change of the class");
}

/* Many small objects, of which only the number is known, while the collector is off. */
static void find_uncollected(host_case *c, const host_object *o) {
  double share = evidence_share(o->bytes, c->reported_bytes);
  cause *to = host_add(c, CAUSE_HOST_LEAK, share >= MOST ? 0.75 : 0.5);
  cause_head(to,
             "The program has switched Python's cycle collector off (gc.disable()); about %" PRIu64
             " objects are alive, probably garbage that refers to itself",
             o->count);
  cause_say(to, "no variable leads to %s of the %s held", cause_size(o->bytes),
            cause_size(c->reported_bytes));
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  host_add_fix(c, o->bytes - o->bytes / 8,
               "let the collector run: gc.enable(), or gc.collect() at the end of each iteration",
               "a few milliseconds per call, more with millions of objects");
}

/* Objects in use that are found only one from another, as in a linked list. */
static void find_linked(host_case *c, const host_object *o) {
  double share = evidence_share(o->bytes, c->reported_bytes);
  char text[480], change[400];
  /* Inside a library, they are what the program's line makes. */
  bool inside = strncmp(o->where, "module ", 7) == 0 && strchr(o->where, '/') == NULL;
  if (share < MUCH || (inside && c->place[0] != '\0')) return;
  host_describe(text, sizeof text, o);
  cause *to = host_add(c, CAUSE_HOST_LEAK, share >= MOST ? 0.8 : 0.5);
  cause_head(to, "%s", text);
  cause_say(to, "%s each; something still refers to these objects", cause_size(o->element_bytes));
  if (o->source[0] != '\0') cause_say(to, "the line: %s", o->source);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  if (o->words[0] != '\0' && strstr(o->words, "->") == NULL)
    snprintf(change, sizeof change,
             "cut the references that keep old objects (%.60s of %.40s): take an object out of the "
             "others when it is no longer needed, or keep weakref.ref(x) in them; or keep only its "
             "numbers, in arrays",
             o->words, o->type);
  else
    snprintf(
        change, sizeof change,
        "let go of the objects that are no longer needed (cut the chain that leads to them), or "
        "of their data: set %s = None when it has been used",
        strrchr(o->name, '.') != NULL ? strrchr(o->name, '.') : o->name);
  host_add_fix(c, o->bytes - o->bytes / 8, change, "dropped values cannot be used later");
}

void host_find_cycles(host_case *c) {
  const host_object *o = marked(c->r, "garbage"), *before = marked(c->r, "collected");
  if (before != NULL && (o == NULL || o->bytes < before->bytes)) o = before;
  bool on = o != NULL;
  if (o == NULL) o = marked(c->r, "uncollected");
  if (o != NULL) {
    uint64_t bytes = marked_bytes(c->r, o->mark);
    /* Less if the collector ran just before, and nothing else is known to be larger. */
    bool chief = bytes > host_named_bytes(c->r) / 2;
    if (evidence_share(bytes, c->reported_bytes) < (chief ? LITTLE : MUCH)) return;
    if (host_is_unnamed(o))
      find_uncollected(c, o);
    else
      find_garbage(c, o, bytes, on);
  } else if ((o = marked(c->r, "linked")) != NULL)
    find_linked(c, o);
}
