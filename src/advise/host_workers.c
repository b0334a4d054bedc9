/* Host workers: child processes that hold a copy each, are sent one, or send back what they made.
 */
#include <stdio.h>
#include <string.h>

#include "advise/host_case.h"
#include "advise/host_line.h"

#define OBJECTS_LEAST 10000 /* of a dataset that is made of Python objects */

static bool in_pool(const host_frame *f) {
  return strstr(f->file, "/multiprocessing/") != NULL ||
         strstr(f->file, "/concurrent/futures/") != NULL || strstr(f->file, "/joblib/") != NULL;
}

/* The frames of a forked worker continue below those of multiprocessing with those of the program
 * that started it. Returns the first of them; the frame count if there is none. The worker's own
 * function may call multiprocessing too (a barrier, a queue), so the search starts where the
 * process began. */
static size_t starter(const host_record *r) {
  size_t i = 0;
  while (i < r->frame_count &&
         !(in_pool(&r->frames[i]) && strcmp(r->frames[i].name, "_bootstrap") == 0))
    i++;
  if (i == r->frame_count) i = 0;
  while (i < r->frame_count && !in_pool(&r->frames[i])) i++;
  while (i < r->frame_count && !host_line_is_own(&r->frames[i])) i++;
  return i;
}

/* Returns whether a worker runs the program's function, or the pool's own code (it sends a result).
 */
static bool at_work(const host_record *r) {
  for (size_t i = 0; i < r->frame_count && !in_pool(&r->frames[i]); i++)
    if (host_line_is_own(&r->frames[i])) return true;
  return false;
}

/* Returns whether a frame waits for a task. */
static bool waits_for_task(const host_frame *f) {
  return strcmp(f->name, "get") == 0 || strcmp(f->name, "recv") == 0 ||
         strcmp(f->name, "recv_bytes") == 0 || strcmp(f->name, "poll") == 0;
}

/* Returns whether the process is a worker of a PyTorch DataLoader. It sends each batch as soon as
 * it is made. */
static bool in_loader(const host_record *r) {
  for (size_t i = 0; i < r->frame_count; i++)
    if (strcmp(r->frames[i].name, "_worker_loop") == 0 &&
        strstr(r->frames[i].file, "torch/utils/data") != NULL)
      return true;
  return false;
}

/* Returns whether the process reads from a PyTorch DataLoader. */
static bool reads_loader(const host_record *r) {
  for (size_t i = 0; i < r->frame_count && !host_line_is_own(&r->frames[i]); i++)
    if (strstr(r->frames[i].file, "torch/utils/data/dataloader.py") != NULL) return true;
  return false;
}

/* Returns the first frame of the program in a process that waits for its workers; the frame count
 * if it does something else. */
static size_t consumer(const host_record *r) {
  bool waits = reads_loader(r);
  for (size_t i = 0; i < r->frame_count; i++) {
    if (host_line_is_own(&r->frames[i])) return waits ? i : r->frame_count;
    waits = waits || in_pool(&r->frames[i]);
  }
  return r->frame_count;
}

/* Results that wait for the rest of their chunk, or are being sent, are in no variable of the
 * program. */
static bool keeps_results(const host_case *c) {
  const host_record *r = c->r;
  bool pooled = false, waits = false;
  if (in_loader(r)) return false;
  for (size_t i = 0; i < r->frame_count; i++) {
    bool pool = in_pool(&r->frames[i]);
    pooled = pooled || (pool && (strcmp(r->frames[i].name, "mapstar") == 0 ||
                                 strcmp(r->frames[i].name, "starmapstar") == 0));
    waits = waits || (pool && waits_for_task(&r->frames[i]));
  }
  bool sends = !at_work(r) && starter(r) > 0 && !waits;
  bool bare = host_made_bytes(c) > c->reported_bytes / 2;
  return r->from_inside && bare && (pooled || sends);
}

static const char RESULTS[] =
    "take results one at a time and reduce each: for result in pool.imap_unordered(f, items, "
    "chunksize=1); and let f return only what is needed (a number, a path of a file it wrote)";
/* A worker that is inside the program's function may hold either. */
static const char BOTH[] =
    "fewer workers, and results one at a time: with Pool(2) as pool: for result in "
    "pool.imap_unordered(f, items, chunksize=1): …; f needs its memory once for each worker, and "
    "should return only what is needed (a number, a path of a file it wrote)";
static const char NAMES[] =
    "send names instead of data: each worker opens the file itself (stowage.open(path), "
    "numpy.load(path, mmap_mode=\"r\")), or all share multiprocessing.shared_memory";

/* Returns whether the process waits for a pool, and most of what it holds are objects that this
 * line collects: numbers take four times as much as in the bytes that were sent. */
static bool collects_results(const host_case *c) {
  const host_record *r = c->r;
  const host_object *o = &r->objects[0];
  return r->frame_count > 0 && r->object_count > 0 && strcmp(o->mark, "nameless") == 0 &&
         evidence_share(o->bytes, c->reported_bytes) >= MOST && host_line_own(r) != NULL &&
         strcmp(o->source, host_line_own(r)) == 0;
}

/* Workers that receive their tasks, or whose results arrive: both pass through pipes, and the
 * parent holds them once more as bytes. */
static bool find_tasks(host_case *c) {
  const host_record *r = c->r;
  unsigned children = 0;
  bool waits = false;
  char where[260] = "", line[160], target[64];
  for (size_t i = 0; i < r->process_count; i++) children += r->processes[i].parent == c->main->pid;
  for (size_t i = 0; i < r->frame_count; i++) waits = waits || in_pool(&r->frames[i]);
  if (children < 2 || !waits) return false;
  host_line_where(r, line, sizeof line);
  host_line_result(r, host_line_own(r), target, sizeof target);
  if (line[0] != '\0')
    snprintf(where, sizeof where, "%s%s at %s", target[0] != '\0' ? " in " : "", target, line);
  /* The bytes it read came from the workers, unless an open file has as many. */
  bool results =
      evidence_share(c->main->read_bytes, c->main_bytes) >= (collects_results(c) ? LITTLE : MUCH);
  for (size_t i = 0; i < r->file_count; i++)
    results = results && r->files[i].read_bytes < c->main->read_bytes / 2;
  bool made = evidence_share(host_made_bytes(c), c->reported_bytes) >= MOST;
  const host_object *o = &r->objects[0];
  bool kept = r->object_count > 0 && o->grows && host_is_container(o) && !host_is_unnamed(o) &&
              evidence_share(o->bytes, c->reported_bytes) >= MOST; /* host_growth.c */
  cause *to = host_add(c, CAUSE_HOST_WORKERS, results && made ? 0.94 : kept ? 0.6 : 0.75);
  if (results)
    cause_head(to, "The parent collects the results of %u worker processes%s: %s so far", children,
               where, cause_size(c->main->read_bytes));
  else
    cause_head(to, "%u child processes each get a copy of their data%s: %s held so far", children,
               where, cause_size(r->held_bytes));
  cause_say(to,
            "the parent holds %s; arguments and results pass through pipes, pickled, which takes "
            "the same amount again",
            cause_size(c->main_bytes));
  for (size_t i = 0; i < r->object_count && i < 2; i++) host_say_object(to, &r->objects[i]);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  if (results)
    host_add_fix(c, c->main->read_bytes / 2, RESULTS, "results come in any order");
  else
    host_add_fix(c, r->object_count > 0 ? r->objects[0].bytes * children : MESSAGE_UNKNOWN, NAMES,
                 "the data must be in a file or in shared memory");
  return true;
}

/* Names the number of workers that fits, at most half of them. In the end each has copied the whole
 * dataset, and the parent shares none of its memory with them. */
static void add_loader_fix(host_case *c, const host_object *o, unsigned count, uint64_t most,
                           uint64_t sum) {
  const host_record *r = c->r;
  uint64_t usable = r->limit_bytes / 20 * 19, each = o != NULL && o->bytes > 0 ? o->bytes : most;
  uint64_t fits = usable > c->reported_bytes ? (usable - c->reported_bytes) / each : 0;
  char change[400];
  if (o != NULL && strcmp(o->mark, "fetched") == 0) {
    snprintf(change, sizeof change,
             "keep less in %s, which every worker fills for itself: no cache, or a small one "
             "(functools.lru_cache(maxsize=%llu) on the function that makes an item); or prepare "
             "all items once in one file that the workers map: numpy.load(path, mmap_mode=\"r\")",
             o->name, (unsigned long long)(o->count / 8 > 0 ? o->count / 8 : 1));
    host_add_fix(c, o->bytes / 8 * 7 * count, change, "items are made again");
    return;
  }
  if (fits > count / 2) fits = count / 2;
  snprintf(
      change, sizeof change,
      "fewer workers: DataLoader(num_workers=%llu) instead of %u; or hold %s as arrays (numpy, "
      "pyarrow, a memory-mapped file), which the workers share: of Python objects each copies "
      "what it touches",
      (unsigned long long)fits, count, o != NULL ? o->name : "the dataset");
  host_add_fix(c, sum - sum / count * fits, change, "slower loading; or a change of the dataset");
}

/* Writes what each worker has of its own: "cache, filled at line 7 of a.py", "index, made at line 9
 * of a.py", "table, which line 7 of a.py makes". */
static void say_own(const host_record *r, const host_object *o, char *out, size_t size) {
  char name[64], place[160];
  host_place(place, sizeof place, o);
  if (!host_is_unnamed(o))
    snprintf(out, size, "%s%s%s", o->name,
             place[0] == '\0' ? ""
             : o->grows       ? ", filled at "
                              : ", made at ",
             place);
  else {
    host_line_result(r, o->source, name, sizeof name);
    snprintf(out, size, "%s%s%s makes", name, name[0] != '\0' ? ", which " : "copy of what ",
             place[0] != '\0' ? place : "it");
  }
}

/* Writes what the line makes that a worker was at when most of what it held had no name: "grid,
 * which line 6 of a.py makes". It may have grown since. */
static void say_making(const host_record *r, char *out, size_t size) {
  uint64_t named = host_named_bytes(r);
  const char *source = host_line_own(r);
  char where[160], name[64];
  if (source == NULL || !host_line_target_is_new(source) || named > r->inside_bytes / 2) return;
  host_line_where(r, where, sizeof where);
  host_line_result(r, source, name, sizeof name);
  if (name[0] != '\0') snprintf(out, size, "%s, which %s makes", name, where);
}

#define BOTH_HEAD ": what each computes with, or results that wait to be sent"

/* Writes the line that a worker is at: "; one is at line 7 of a.py (field = f(x))". */
static void say_line(const host_record *r, char *out, size_t size) {
  char where[160];
  const char *source = host_line_own(r);
  host_line_where(r, where, sizeof where);
  if (where[0] != '\0')
    snprintf(out, size, "; one is at %s%s%.60s%s", where,
             source != NULL && source[0] != '\0' ? " (" : "", source != NULL ? source : "",
             source != NULL && source[0] != '\0' ? ")" : "");
}

/* Returns how many workers fit: three quarters of the limit, because they may still grow, and at
 * most half of them. */
static unsigned workers_that_fit(const host_record *r, unsigned count, uint64_t each) {
  uint64_t fits = each > 0 ? r->limit_bytes / 4 * 3 / each : 1;
  if (fits > count / 2) fits = count / 2;
  return fits > 0 ? (unsigned)fits : 1;
}

void host_find_workers(host_case *c) {
  const host_record *r = c->r;
  uint64_t sum = 0, least = UINT64_MAX, most = 0;
  unsigned count = 0;
  pid_t parent = 0;
  for (size_t i = 0; i < r->process_count; i++) {
    const tree_process *p = &r->processes[i];
    if (evidence_share(p->held_bytes, r->held_bytes) < 0.05) continue;
    /* Siblings: processes with the same parent as the first one whose parent is in the list. */
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
  bool worker = c->main->parent == parent;
  if (count < 2 || share < MUCH) {
    find_tasks(c);
    return;
  }
  bool collects = collects_results(c) && c->main_bytes >= most;
  if (!worker && (share < MOST || collects) && c->main->pid == parent && find_tasks(c)) return;
  bool results = worker && keeps_results(c), working = worker && at_work(r);
  bool above = !worker && c->main->pid == parent && r->from_inside; /* the parent has answered */
  size_t from = worker ? starter(r) : above ? consumer(r) : r->frame_count;
  char where[180] = "", line[160], text[480] = "";
  if (from < r->frame_count) {
    host_line_say(&r->frames[from], line, sizeof line);
    snprintf(where, sizeof where, ", %s at %s,", worker ? "started" : "used", line);
  }
  bool loader = worker ? in_loader(r) : above && reads_loader(r);
  /* Forked workers copy the Python objects of their parent that they touch. */
  bool copied = above && r->objects[0].objects >= OBJECTS_LEAST && r->objects[0].bytes <= least;
  const host_object *o = (worker || copied) && r->object_count > 0 ? &r->objects[0] : NULL;
  double part = o != NULL ? evidence_share(o->bytes, c->reported_bytes) : 0;
  /* Of a dataset a worker has copied what it has touched so far. */
  if (o != NULL && part < (loader || copied ? LITTLE : MUCH)) o = NULL;
  if (o != NULL && host_is_unnamed(o) && (results || loader)) o = NULL;
  char own[260] = "", at[260] = "";
  if (results && working) say_line(r, at, sizeof at);
  if (o != NULL)
    say_own(r, o, own, sizeof own);
  else if (working && !results && !loader)
    say_making(r, own, sizeof own);
  if (o != NULL) host_describe(text, sizeof text, o);
  cause *to = host_add(c, CAUSE_HOST_WORKERS, share >= MOST ? 0.92 : 0.6);
  cause_head(to, "%u worker processes%s hold %s together, %s to %s each%s%s", count, where,
             cause_size(sum), cause_size(least), cause_size(most),
             results && working ? BOTH_HEAD
             : results          ? ": results that wait to be sent"
             : own[0] != '\0' ? (worker ? ", each with its own " : ", each probably with its own ")
                              : "",
             results ? at : own);
  cause_say(to, "that is %.0f%% of the %s held by the whole command", share * 100,
            cause_size(r->held_bytes));
  if (o != NULL) cause_say(to, "in %s: %s", worker ? "one of them" : "the parent", text);
  if (working && c->place[0] != '\0') cause_say(to, "one of them was at %s", c->place);
  if (results)
    cause_say(to, "pool.map gives a worker a chunk of the items, and sends all results of a chunk "
                  "at once, pickled");
  else
    cause_say(to, "each worker has its own copy of what it builds or writes to; with fork even a "
                  "Python list that is only read becomes a copy, by its reference counts");
  if (loader) add_loader_fix(c, o, count, most, sum);
  if (results)
    host_add_fix(c, sum / 2, working ? BOTH : RESULTS,
                 working ? "less is done at once; results come in any order"
                         : "results come in any order");
  /* A variable of the function that a worker runs came with its task. */
  if (o != NULL && !results && !loader && working && strncmp(o->where, "module ", 7) != 0 &&
      !host_is_unnamed(o))
    host_add_fix(c, sum - sum / count, NAMES, "the data must be in a file or in shared memory");
  if (loader) return;
  if (copied && o != NULL) {
    char change[400];
    snprintf(change, sizeof change,
             "hold %s as arrays (one numpy array of all values and one of where each begins, or a "
             "memory-mapped file), which the workers share: of Python objects each copies what it "
             "touches; or fewer workers (num_workers, Pool(processes))",
             o->name);
    host_add_fix(c, o->bytes * count, change, "a change of the data; or less is done at once");
    return;
  }
  unsigned fits = workers_that_fit(r, count, most);
  char change[400];
  snprintf(
      change, sizeof change,
      "fewer workers: %u instead of %u (Pool(%u), max_workers=%u, n_jobs=%u); or give them one "
      "array they share: stowage.open(path), numpy.load(path, mmap_mode=\"r\"), "
      "multiprocessing.shared_memory",
      fits, count, fits, fits, fits);
  host_add_fix(c, sum - sum / count * fits, change,
               "less is done at once; or the data must be in a file or in shared memory");
}
