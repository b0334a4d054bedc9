/* Host: the causes that a host record shows.
 *
 * From outside: which processes hold how much, how it grew, how many bytes were read, which files
 * are open. From inside, where the process is Python: what its variables hold and which line it is
 * at. Each cause is one function that gives a confidence; docs/explain.md tells when it is wrong.
 */
#include "advise/host.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "advise/host_line.h"

/* Parts of all that is held, from which on something can be called the reason. */
#define MOST   0.5
#define MUCH   0.3
#define LITTLE 0.1
#define LARGE_ELEMENT                                                                              \
  ((uint64_t)64 << 10) /* an array, a picture: not a Python object of its own                      \
                        */
#define SMALL_ELEMENT ((uint64_t)4 << 10)

typedef struct host_case {
  const host_record *r;
  explanation *x;
  const tree_process *main; /* the one that holds most */
  uint64_t main_bytes;
  char place[300];        /* the program's own line, "" if it is not known */
  double sure[FIXES_MAX]; /* of the cause that each fix is for */
} host_case;

static double part(uint64_t bytes, uint64_t whole) {
  return whole > 0 ? (double)bytes / (double)whole : 0;
}

static cause *add(host_case *c, cause_id id, double confidence) {
  cause *to = &c->x->findings.list[c->x->findings.count++];
  *to =
      (cause){.id = id, .confidence = confidence, .headline = BUFFER_INIT, .evidence = BUFFER_INIT};
  return to;
}

static void add_fix(host_case *c, uint64_t saves_bytes, const char *change, const char *cost) {
  fixes *all = &c->x->fixes;
  if (all->count == FIXES_MAX) return;
  const findings *found = &c->x->findings; /* a fix is for the cause added last */
  c->sure[all->count] = found->count > 0 ? found->list[found->count - 1].confidence : 0;
  fix *f = &all->list[all->count++];
  *f = (fix){.saves_bytes = saves_bytes};
  snprintf(f->change, sizeof f->change, "%s", change);
  snprintf(f->cost, sizeof f->cost, "%s", cost);
}

/* "rows, a list of 3000000 dict, about 410.2 MiB, in build at objects.py:7" */
static void say_object(cause *to, const host_object *o) {
  char shape[80] = "", of[80] = "";
  if (o->shape[0] != '\0') snprintf(shape, sizeof shape, " %s", o->shape);
  if (o->of[0] != '\0') snprintf(of, sizeof of, " of %s", o->of);
  if (o->shape[0] == '\0' && o->count > 1)
    cause_say(to, "%s, a %s of %" PRIu64 "%s%s, about %s, in %s", o->name, o->type, o->count,
              o->of[0] != '\0' ? " " : "", o->of, cause_size(o->bytes), o->where);
  else
    cause_say(to, "%s, a %s%s%s, about %s, in %s", o->name, o->type, shape, of,
              cause_size(o->bytes), o->where);
}

/* ---- what an object is ---- */

static bool is_container(const host_object *o) {
  return strcmp(o->type, "list") == 0 || strcmp(o->type, "dict") == 0 ||
         strcmp(o->type, "set") == 0 || strcmp(o->type, "tuple") == 0 ||
         strstr(o->type, "deque") != NULL || strstr(o->type, "dict") != NULL;
}

static bool is_array(const host_object *o) {
  return o->shape[0] != '\0';
}

/* Many objects of Python's own, each with its head and its reference. */
static bool is_objects(const host_object *o) {
  return (is_container(o) && o->count >= 1000 && o->element_bytes < SMALL_ELEMENT) ||
         (is_array(o) && strcmp(o->of, "object") == 0);
}

/* A collection of large things, as a list of arrays is. */
static bool is_collection(const host_object *o) {
  return is_container(o) && o->count >= 4 && o->element_bytes >= LARGE_ELEMENT;
}

/* ---- the causes ---- */

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
  cause *to = add(c, CAUSE_HOST_WORKERS, 0.75);
  cause_head(to, "%u child processes are given a copy each of what they work on: %s held so far",
             children, cause_size(r->held_bytes));
  cause_say(to, "the parent waits for them and holds %s, its arguments and their copies on the way",
            cause_size(c->main_bytes));
  for (size_t i = 0; i < r->object_count && i < 2; i++) say_object(to, &r->objects[i]);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  add_fix(c, r->object_count > 0 ? r->objects[0].bytes * children : MESSAGE_UNKNOWN,
          "send names instead of data: each worker opens the file itself (stowage.open(path), "
          "numpy.load(path, mmap_mode=\"r\")), or all share multiprocessing.shared_memory",
          "the data must lie in a file or in shared memory");
}

static void find_workers(host_case *c) {
  const host_record *r = c->r;
  uint64_t sum = 0, least = UINT64_MAX, most = 0;
  unsigned count = 0;
  pid_t parent = 0;
  for (size_t i = 0; i < r->process_count; i++) {
    const tree_process *p = &r->processes[i];
    if (part(p->held_bytes, r->held_bytes) < 0.05) continue;
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
  double share = part(sum, r->held_bytes);
  if (count < 2 || share < MUCH) {
    find_tasks(c);
    return;
  }
  cause *to = add(c, CAUSE_HOST_WORKERS, share >= MOST ? 0.92 : 0.6);
  cause_head(to, "%u worker processes hold %s together, %s to %s each", count, cause_size(sum),
             cause_size(least), cause_size(most));
  cause_say(to, "that is %.0f%% of the %s held by the whole command", share * 100,
            cause_size(r->held_bytes));
  cause_say(to, "each worker has its own copy of what it builds or writes to; with fork even a "
                "Python list that is only read becomes a copy, by its reference counts");
  add_fix(c, sum - most,
          "fewer workers (num_workers, Pool(processes)), or give them one array they share: "
          "stowage.open(path), numpy.load(path, mmap_mode=\"r\"), multiprocessing.shared_memory",
          "less is done at once; or the data must lie in a file or in shared memory");
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
      lean += r->objects[i].count * (r->objects[i].element_bytes > 200 ? 32 : 8);
    }
  double share = part(sum, c->main_bytes);
  if (first == NULL || share < MUCH) return;
  cause *to = add(c, CAUSE_HOST_OBJECTS, share >= MOST ? 0.9 : 0.55);
  cause_head(to, "%s is made of Python objects, about %s for %" PRIu64 " of them", first->name,
             cause_size(first->bytes), first->count);
  for (size_t i = 0; i < r->object_count; i++)
    if (is_objects(&r->objects[i])) say_object(to, &r->objects[i]);
  cause_say(to, "about %" PRIu64 " bytes for each, where an array needs 1 to 8 a number",
            first->element_bytes);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  char change[400];
  snprintf(change, sizeof change,
           "keep %s as arrays: one numpy array (or a column of a table) for each field, filled in "
           "place or with numpy.fromiter",
           first->name);
  add_fix(c, sum > lean ? sum - lean : 0, change,
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
  double share = part(most->bytes, c->main_bytes);
  bool steady = rises_steadily(r);
  if (share < MUCH) return;
  cause *to = add(c, CAUSE_HOST_LEAK, share >= MOST ? (steady ? 0.9 : 0.75) : 0.5);
  cause_head(to, "%s keeps %" PRIu64 " of what the program makes, %s so far", most->name,
             most->count, cause_size(most->bytes));
  say_object(to, most);
  cause_say(to, "%s each", cause_size(most->element_bytes));
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
  add_fix(c, most->bytes - most->element_bytes, change,
          "what is dropped cannot be looked at later");
}

/* Two arrays of one shape, but for a few rows more or less, or of about as many bytes. */
static bool look_alike(const host_object *a, const host_object *b) {
  if (!is_array(a) || !is_array(b)) return false;
  const char *rest = strchr(a->shape, ','), *other = strchr(b->shape, ',');
  uint64_t rows = a->count > b->count ? a->count : b->count;
  uint64_t fewer = a->count > b->count ? b->count : a->count;
  if (rest != NULL && other != NULL && strcmp(rest, other) == 0 && rows - fewer < rows / 4)
    return true;
  uint64_t more = a->bytes > b->bytes ? a->bytes : b->bytes;
  uint64_t less = a->bytes > b->bytes ? b->bytes : a->bytes;
  return more - less < more / 10;
}

/* Are they told to be copies by more than their shape: another type, or a line that makes the one
 * from the other? A model of weather has many arrays of one shape too. */
static bool told_apart(const host_record *r, const host_object *a, const host_object *b) {
  return strcmp(a->of, b->of) != 0 || host_line_makes_another(r, a->name) ||
         host_line_makes_another(r, b->name);
}

static void find_copies(host_case *c) {
  const host_record *r = c->r;
  uint64_t sum = 0;
  unsigned alike = 0;
  bool told = false;
  const host_object *first = NULL, *second = NULL;
  for (size_t i = 0; i < r->object_count; i++) {
    const host_object *o = &r->objects[i];
    if (!is_array(o) || part(o->bytes, c->main_bytes) < 0.08) continue;
    if (first == NULL) {
      first = o;
      sum = o->bytes;
    } else if (look_alike(first, o)) {
      if (second == NULL) second = o;
      told = told || told_apart(r, first, o);
      alike++;
      sum += o->bytes;
    }
  }
  if (first == NULL) return;
  const char *copying = host_line_copies(r);
  /* A copy that is being made has no name yet. */
  bool made = second == NULL && copying == NULL && part(first->bytes, c->main_bytes) >= MOST &&
              host_line_makes_another(r, first->name);
  double share = part(second == NULL && copying != NULL ? 2 * sum : sum, c->main_bytes);
  if ((second == NULL && copying == NULL && !made) || share < MUCH) return;
  told = told || copying != NULL;
  if (second != NULL && !told && alike >= 2) return;
  cause *to = add(c, CAUSE_HOST_COPIES,
                  second != NULL && told && share >= MOST ? 0.9
                  : copying != NULL                       ? 0.85
                  : made                                  ? 0.8
                                                          : 0.5);
  if (second != NULL)
    cause_head(to, "%s and %s are the same data twice: %s and %s", first->name, second->name,
               cause_size(first->bytes), cause_size(second->bytes));
  else
    cause_head(to, "%s makes a new copy of %s (%s) while the old one is still there",
               made ? "the line" : copying, first->name, cause_size(first->bytes));
  for (size_t i = 0; i < r->object_count; i++)
    if (&r->objects[i] == first || look_alike(first, &r->objects[i]))
      say_object(to, &r->objects[i]);
  if (copying != NULL) cause_say(to, "the program was inside %s", copying);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  add_fix(c, second != NULL ? sum - first->bytes : first->bytes,
          made ? "work in place (x /= 255, out=x), or in parts; and in the smallest type that will "
                 "do (float32 instead of float64)"
               : "make it once at its full size and fill it part by part (out=, a[i:j] = …), "
                 "convert in parts, and drop the old name (del) before the next step",
          made ? "the old values are gone" : "the full size must be known beforehand");
}

/* How a file of that ending is read in parts: the words before its path, and after it. */
static void read_in_parts(char *out, size_t size, const char *path) {
  static const struct {
    const char *endings, *before, *after;
  } ways[] = {{".csv .tsv", "for part in pandas.read_csv(",
               ", chunksize=…); or once stowage shrink, then stowage.batches"},
              {".parquet", "for part in pyarrow.parquet.ParquetFile(", ").iter_batches()"},
              {".txt .log .jsonl .json .xml", "for line in open(", ")"},
              {".bin .raw .dat", "for part in stowage.batches(",
               ", raw_dtype=…, raw_shape=…), or numpy.memmap"},
              {".pkl .pickle", "save the arrays of ",
               " once with numpy.save, then for part in stowage.batches(…), or numpy.load(…, "
               "mmap_mode=\"r\")"},
              {".pt .pth", "torch.load(", ", mmap=True)"},
              {"", "for part in stowage.batches(",
               ", …), or stowage.open(path)[a:b], or numpy.load(path, mmap_mode=\"r\")"}};
  const char *dot = strrchr(path, '.');
  size_t length = dot != NULL ? strlen(dot) : 0, at = sizeof ways / sizeof *ways - 1;
  for (size_t i = 0; i < at && length > 1; i++) {
    const char *found = strstr(ways[i].endings, dot);
    if (found != NULL && (found[length] == ' ' || found[length] == '\0')) at = i;
  }
  const char *quote = path[0] != '\0' ? "\"" : "";
  snprintf(out, size, "read it in parts: %s%s%.200s%s%s", ways[at].before, quote,
           path[0] != '\0' ? path : "path", quote, ways[at].after);
}

static void find_dataset(host_case *c) {
  const host_record *r = c->r;
  uint64_t largest = 0;
  const tree_file *file = NULL;
  const char *reading = host_line_reads(r);
  /* How far it was read is told when a read has come to its end; and text of short numbers is
   * several times as large in memory as in its file. */
  for (size_t i = 0; i < r->file_count; i++)
    if ((r->files[i].read_bytes > 0 || reading != NULL) &&
        part(r->files[i].bytes, c->main_bytes) >= (reading != NULL ? LITTLE : MUCH)) {
      file = &r->files[i];
      break;
    }
  for (size_t i = 0; i < r->object_count; i++)
    if (!is_container(&r->objects[i])) {
      largest = r->objects[i].bytes;
      break;
    }
  double read = part(c->main->read_bytes, c->main_bytes);
  if (read < MUCH && file == NULL && reading == NULL) return;
  if (read < MUCH && reading != NULL && part(largest, c->main_bytes) < MUCH && file == NULL) return;
  double sure = read >= 0.7 || (file != NULL && reading != NULL) ? 0.93 : read >= MOST ? 0.8 : 0.5;
  /* What a worker has read may have come from its parent. */
  for (size_t i = 0; i < r->process_count; i++)
    if (r->processes[i].pid == c->main->parent && file == NULL && reading == NULL) sure = 0.5;
  cause *to = add(c, CAUSE_HOST_DATASET_WHOLE, sure);
  if (file != NULL)
    cause_head(to, "%s is read whole: %s", file->path, cause_size(file->bytes));
  else
    cause_head(to, "A file is read whole: %s were read and %s are held",
               cause_size(c->main->read_bytes), cause_size(c->main_bytes));
  cause_say(to, "%s read by the process that holds %s", cause_size(c->main->read_bytes),
            cause_size(c->main_bytes));
  if (reading != NULL) cause_say(to, "the program was inside %s", reading);
  for (size_t i = 0; i < r->object_count && i < 3; i++) say_object(to, &r->objects[i]);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  char change[400];
  read_in_parts(change, sizeof change, file != NULL ? file->path : "");
  uint64_t whole = file != NULL ? file->bytes : c->main->read_bytes;
  add_fix(c, whole > ((uint64_t)64 << 20) ? whole - ((uint64_t)64 << 20) : whole / 2, change,
          "a loop over the parts");
  add_fix(c, MESSAGE_UNKNOWN,
          "stowage inspect FILE: the smallest types that hold it exactly, and "
          "stowage shrink to write it so",
          "one pass over the file");
}

static void find_limit(host_case *c) {
  const host_record *r = c->r;
  bool ours = strcmp(r->limit_from, "given") == 0;
  uint64_t room = r->held_bytes + r->usable_bytes;
  if (r->total_bytes > 0 && room > r->total_bytes) room = r->total_bytes;
  bool fits = ours && r->total_bytes > r->limit_bytes && room > r->limit_bytes + r->limit_bytes / 4;
  bool alone = c->x->findings.count == 0;
  if (!ours && strcmp(r->limit_from, "cgroup") != 0 && !alone) return;
  cause *to = add(c, CAUSE_HOST_LIMIT, alone ? (fits ? 0.7 : 0.4) : 0.25);
  if (ours)
    cause_head(to, "The command holds %s and may hold %s; the host has %s more",
               cause_size(r->held_bytes), cause_size(r->limit_bytes), cause_size(r->usable_bytes));
  else
    cause_head(to, "The command holds %s of the %s %s allows", cause_size(r->held_bytes),
               cause_size(r->limit_bytes),
               strcmp(r->limit_from, "cgroup") == 0 ? "its control group" : "the machine");
  if (alone && r->object_count > 0) say_object(to, &r->objects[0]);
  if (alone && c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  if (alone && !r->from_inside)
    cause_say(to, "what fills it is only known from outside: it is no Python process, or it did "
                  "not answer in time");
  if (ours && fits && alone) {
    char change[128];
    snprintf(change, sizeof change, "raise --ram-limit: the host had %s for it", cause_size(room));
    add_fix(c, 0, change, "less is left for others on the host");
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
  row(out, "held by the command", r->held_bytes, "");
  row(out, "at its peak", r->peak_bytes, "");
  for (size_t i = 0; i < r->process_count && i < 6; i++) {
    const tree_process *p = &r->processes[i];
    if (i > 0 && part(p->held_bytes, r->held_bytes) < 0.02) break;
    snprintf(note, sizeof note, "%s, process %d", p->name, (int)p->pid);
    row(out, i == 0 ? "  of it" : "", p->held_bytes, note);
  }
  static const char *const NAMES[TREE_MAP_KINDS] = {"    heap", "    anonymous mappings",
                                                    "    shared memory", "    files mapped"};
  for (int k = 0; k < TREE_MAP_KINDS; k++)
    if (r->kinds[k] > 0) row(out, NAMES[k], r->kinds[k], "");
  row(out, "left on the host", r->usable_bytes, "");
  row(out, "the limit", r->limit_bytes,
      strcmp(r->limit_from, "given") == 0    ? "by --ram-limit"
      : strcmp(r->limit_from, "cgroup") == 0 ? "of the control group"
                                             : "the machine's memory");
}

stow_status explain_host(explanation *x, const host_record *r) {
  static const tree_process nobody = {.name = "?"};
  explanation_blank(x);
  host_case c = {.r = r, .x = x, .main = r->process_count > 0 ? &r->processes[0] : &nobody};
  c.main_bytes = c.main->held_bytes > 0 ? c.main->held_bytes : r->held_bytes;
  x->evidence.n.live_bytes = r->held_bytes;
  x->evidence.n.limit_bytes = r->limit_bytes;
  x->evidence.n.free_bytes = r->usable_bytes;
  host_line_place(r, c.place, sizeof c.place);
  memory_rows(&c);
  find_workers(&c);
  find_objects(&c);
  find_leak(&c);
  find_copies(&c);
  find_dataset(&c);
  find_limit(&c);
  findings_rank(&x->findings);
  rank_fixes(&c);
  if (x->findings.count > 0) buffer_text(&x->headline, x->findings.list[0].headline.data);
  if (!r->from_inside)
    buffer_text(&x->notes, "no view from inside: variables and lines are not known\n");
  return x->headline.status;
}
