/* Host native: memory that no Python object holds, seen by its mappings: shared memory, and memory
 * of C code. */
#include <stdio.h>
#include <string.h>

#include "advise/host_case.h"
#include "advise/host_line.h"

/* Returns the largest container or array of shared memory, or NULL. */
static const host_object *shared_object(const host_record *r) {
  for (size_t i = 0; i < r->object_count; i++)
    if (strcmp(r->objects[i].mark, "shared") == 0) return &r->objects[i];
  return NULL;
}

void host_find_shared(host_case *c) {
  const host_record *r = c->r;
  uint64_t most = r->kinds[TREE_SHARED];
  for (size_t i = 0; i < r->process_count; i++)
    if (r->processes[i].shared_bytes > most) most = r->processes[i].shared_bytes;
  double share = evidence_share(most, r->held_bytes);
  if (share < MUCH || c->pinned) return;
  const host_object *o = shared_object(r);
  char text[480] = "", path[160] = "";
  unsigned segments = 0;
  bool torch = false;
  for (size_t i = 0; i < r->map_count; i++)
    if (r->maps[i].kind == TREE_SHARED) {
      if (segments++ == 0) snprintf(path, sizeof path, "%.150s", r->maps[i].path);
      torch = torch || strstr(r->maps[i].path, "torch_") != NULL;
    }
  cause *to = host_add(c, CAUSE_HOST_SHARED, share >= MOST || o != NULL ? 0.94 : 0.6);
  if (o != NULL) host_describe(text, sizeof text, o);
  cause_head(to, "Shared memory (/dev/shm) holds %s%s%s", cause_size(most),
             text[0] != '\0' ? ": " : "", text);
  cause_say(to, "shared memory counts as RAM until every process has closed it and it is unlinked");
  if (segments > 0) cause_say(to, "%u of its segments are mapped, such as %s", segments, path);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  host_add_fix(c, most - most / 4,
               torch ? "drop tensors of shared memory after their last use (del batch, no list "
                       "of batches); clone() what must stay; fewer workers and prefetch_factor=1"
                     : "close() and unlink() each block after its last use, or reuse one block for "
                       "all iterations",
               "an unlinked block can no longer be opened by name");
}

/* Memory without a name grew repeatedly while the program continued: this is not one value that a
 * line is making, but memory that C calls leave behind. */
void host_find_native(host_case *c) {
  const host_record *r = c->r;
  uint64_t named = host_named_bytes(r);
  uint64_t bare = c->reported_bytes > named ? c->reported_bytes - named : 0;
  double share = evidence_share(bare, c->reported_bytes);
  if (!r->from_inside || r->inside_turns < 2 || share < MOST || c->x->findings.count > 0) return;
  char place[300] = "";
  snprintf(place, sizeof place, "%s", c->place);
  cause *to = host_add(c, CAUSE_HOST_NATIVE, r->inside_turns >= 3 ? 0.85 : 0.7);
  cause_head(to, "C code holds %s that no Python object accounts for%s%s", cause_size(bare),
             place[0] != '\0' ? ", and it grows at " : "", place);
  const char *source = host_line_own(r);
  if (source != NULL && source[0] != '\0') cause_say(to, "the line: %s", source);
  cause_say(to, "of the %s held, Python variables account for %s", cause_size(c->reported_bytes),
            cause_size(named));
  cause_say(to, "heap (malloc) %s, anonymous mappings %s", cause_size(r->kinds[TREE_HEAP]),
            cause_size(r->kinds[TREE_ANONYMOUS]));
  for (size_t i = 0, shown = 0; i < r->map_count && shown < 3; i++)
    if (r->maps[i].kind == TREE_FILE && strstr(r->maps[i].path, ".so") != NULL) {
      cause_say(to, "a native library in use: %s", r->maps[i].path);
      shown++;
    }
  host_add_fix(c, bare / 2,
               "free what the calls at that line return (close(), release(), free(), a with "
               "block), or update the library",
               "a change of the program");
  host_add_fix(c, bare / 2,
               "run that part in a child process that ends: multiprocessing.Pool(1, "
               "maxtasksperchild=100)",
               "arguments and results are copied");
}
