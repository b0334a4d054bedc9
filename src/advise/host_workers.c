/* Host workers: child processes that hold a copy each, or are being sent one. */
#include <string.h>

#include "advise/host_case.h"

/* Workers that are being sent their tasks: what they are to hold is still in the parent, in the
 * arguments and once more as the bytes on their way. */
static void find_tasks(host_case *c) {
  const host_record *r = c->r;
  unsigned children = 0;
  bool waits = false;
  for (size_t i = 0; i < r->process_count; i++) children += r->processes[i].parent == c->main->pid;
  for (size_t i = 0; i < r->frame_count; i++)
    waits = waits || strstr(r->frames[i].file, "/multiprocessing/") != NULL ||
            strstr(r->frames[i].file, "/concurrent/futures/") != NULL ||
            strstr(r->frames[i].file, "/joblib/") != NULL;
  if (children < 2 || !waits) return;
  cause *to = host_add(c, CAUSE_HOST_WORKERS, 0.75);
  cause_head(to, "%u child processes are given a copy each of what they work on: %s held so far",
             children, cause_size(r->held_bytes));
  cause_say(to, "the parent waits for them and holds %s, its arguments and their copies on the way",
            cause_size(c->main_bytes));
  for (size_t i = 0; i < r->object_count && i < 2; i++) host_say_object(to, &r->objects[i]);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  host_add_fix(c, r->object_count > 0 ? r->objects[0].bytes * children : MESSAGE_UNKNOWN,
               "send names instead of data: each worker opens the file itself (stowage.open(path), "
               "numpy.load(path, mmap_mode=\"r\")), or all share multiprocessing.shared_memory",
               "the data must lie in a file or in shared memory");
}

void host_find_workers(host_case *c) {
  const host_record *r = c->r;
  uint64_t sum = 0, least = UINT64_MAX, most = 0;
  unsigned count = 0;
  pid_t parent = 0;
  for (size_t i = 0; i < r->process_count; i++) {
    const tree_process *p = &r->processes[i];
    if (evidence_share(p->held_bytes, r->held_bytes) < 0.05) continue;
    /* Brothers: of the same parent as the first that has one among the processes. */
    bool child = false;
    for (size_t j = 0; j < r->process_count; j++) child |= r->processes[j].pid == p->parent;
    if (!child || (parent != 0 && p->parent != parent)) continue;
    parent = p->parent;
    sum += p->held_bytes;
    count++;
    if (p->held_bytes < least) least = p->held_bytes;
    if (p->held_bytes > most) most = p->held_bytes;
  }
  double share = evidence_share(sum, r->held_bytes);
  if (count < 2 || share < MUCH) {
    find_tasks(c);
    return;
  }
  cause *to = host_add(c, CAUSE_HOST_WORKERS, share >= MOST ? 0.92 : 0.6);
  cause_head(to, "%u worker processes hold %s together, %s to %s each", count, cause_size(sum),
             cause_size(least), cause_size(most));
  cause_say(to, "that is %.0f%% of the %s held by the whole command", share * 100,
            cause_size(r->held_bytes));
  cause_say(to, "each worker has its own copy of what it builds or writes to; with fork even a "
                "Python list that is only read becomes a copy, by its reference counts");
  host_add_fix(
      c, sum - most,
      "fewer workers (num_workers, Pool(processes)), or give them one array they share: "
      "stowage.open(path), numpy.load(path, mmap_mode=\"r\"), multiprocessing.shared_memory",
      "less is done at once; or the data must lie in a file or in shared memory");
}
