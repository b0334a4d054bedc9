/* Host growth: containers and texts that grow, and small Python objects; with advice that fits
 * their type. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "advise/host_case.h"
#include "advise/host_line.h"
#include "advise/host_way.h"

#define OBJECT_SMALL    ((uint64_t)1 << 10) /* bytes of a Python object on average, at most */
#define STRUCTURE_LEAST 10000               /* objects */

/* ---- what an object is ---- */

/* A table or an array, mostly of Python strings. */
static bool is_text_table(const host_object *o) {
  return o->text_bytes > o->bytes / 2;
}

/* An object of a class that consists of many others, such as a graph of networkx. */
static bool is_structure(const host_object *o) {
  return host_is_structure(o) && o->objects >= STRUCTURE_LEAST;
}

/* Each element keeps much that the container does not list: a tag of a page keeps the page. */
static bool is_of_trees(const host_object *o) {
  return strcmp(o->mark, "tree") == 0 || strcmp(o->mark, "error") == 0;
}

/* Exceptions. */
static bool is_of_errors(const host_object *o) {
  return strcmp(o->mark, "error") == 0;
}

/* Returns why elements keep more than the container lists. */
static const char *why_trees(const host_object *o) {
  return is_of_errors(o) ? "each error keeps its traceback, and that the variables of its functions"
                         : "each keeps everything that it is a part of";
}

/* What one iterator of itertools.tee has not read yet. */
static bool is_tee(const host_object *o) {
  return strcmp(o->type, "itertools._tee") == 0;
}

/* Many Python objects, each with its header and its reference. */
static bool is_objects(const host_object *o) {
  if (strcmp(o->mark, "uncollected") == 0 || strcmp(o->mark, "linked") == 0)
    return false; /* host_cycles.c */
  bool small = o->objects > 0 ? o->objects >= 1000 && o->bytes / o->objects < OBJECT_SMALL
                              : o->count >= 1000 && o->element_bytes < SMALL_ELEMENT;
  return ((host_is_container(o) || is_structure(o)) && small) ||
         (host_is_array(o) && strcmp(o->of, "object") == 0);
}

static bool made_of(const host_object *o, const char *types) {
  const char *found = o->of[0] != '\0' ? strstr(types, o->of) : NULL;
  return found != NULL && strchr(" ", found[strlen(o->of)]) != NULL;
}

/* A collection of large objects, such as a list of arrays, or a dict of a few lists of them; or of
 * long texts. */
static bool is_collection(const host_object *o) {
  uint64_t least = made_of(o, "str bytes ") ? OBJECT_SMALL : SMALL_ELEMENT;
  return host_is_container(o) && (o->count >= 4 || (host_is_grouped(o) && o->objects >= 8)) &&
         o->element_bytes >= least && !is_objects(o);
}

static bool is_dict(const host_object *o) {
  return strstr(o->type, "dict") != NULL || strcmp(o->type, "collections.Counter") == 0;
}

static bool is_queue(const host_object *o) {
  return strstr(o->type, "Queue") != NULL;
}

/* A collection of small parts of large arrays. */
static bool is_of_views(const host_object *o) {
  return strcmp(o->mark, "view") == 0;
}

/* io.StringIO, io.BytesIO */
static bool is_memory_file(const host_object *o) {
  return strncmp(o->type, "_io.", 4) == 0;
}

/* A text, bytes or a file in memory. */
static bool is_text(const host_object *o) {
  return strcmp(o->type, "str") == 0 || strcmp(o->type, "bytes") == 0 ||
         strcmp(o->type, "bytearray") == 0 || is_memory_file(o);
}

/* ---- columns of Python strings ---- */

/* Returns whether the line that made it reads a file with pandas. */
static bool is_read(const host_object *o) {
  return strstr(o->source, "read_csv(") != NULL || strstr(o->source, "read_table(") != NULL;
}

/* Writes "{"street": "category", "city": "category"}" for the columns in o->words. */
static void write_types(char *out, size_t size, const host_object *o) {
  size_t length = (size_t)snprintf(out, size, "{");
  for (const char *at = o->words; *at != '\0' && length + 80 < size;) {
    size_t word = strcspn(at, ",");
    length += (size_t)snprintf(out + length, size - length, "%s\"%.*s\": \"category\"",
                               at > o->words ? ", " : "", (int)(word < 40 ? word : 40), at);
    at += word;
    at += strspn(at, ", ");
  }
  snprintf(out + length, size - length, "}");
}

/* Columns of lists and other objects, not of strings. */
static bool is_of_cells(const host_object *o) {
  return strcmp(o->mark, "cells") == 0;
}

static void store_compactly(char *out, size_t size, const host_object *o) {
  char name[64], column[64], types[240];
  if (is_of_cells(o)) {
    snprintf(out, size,
             "do not keep them: use the result of each row as it is made (for x in column: "
             "total.update(f(x))); or keep numbers, not lists and texts: one numpy array of codes "
             "for all rows, and one of where each row begins");
    return;
  }
  if (is_read(o) && o->words[0] != '\0') {
    write_types(types, sizeof types, o);
    snprintf(out, size,
             "read text compactly: read_csv(…, dtype=%s) where values repeat, \"string[pyarrow]\" "
             "for others; and only columns that are used: usecols=[…]",
             types);
    return;
  }
  snprintf(column, sizeof column, "%.*s", (int)strcspn(o->words, ","), o->words);
  host_name(name, sizeof name, o);
  if (strncmp(name, "what line ", 10) == 0) snprintf(name, sizeof name, "table");
  if (strchr(name, '[') != NULL) /* a column that the line makes of others */
    snprintf(out, size,
             "do not make a text of other columns: duplicated, merge and groupby take several "
             "(subset=[…], on=[…]); or %s = one integer for each row (a * n + b, "
             "pandas.factorize(x)[0])",
             name);
  else if (column[0] != '\0')
    snprintf(out, size,
             "store text compactly: %s[\"%s\"] = %s[\"%s\"].astype(\"category\") for values that "
             "repeat, astype(\"string[pyarrow]\") for others (read_csv(dtype=…) at once)",
             name, column, name, column);
  else
    snprintf(out, size,
             "store text compactly: %s = pandas.Categorical(…) for values that repeat (a number "
             "each), dtype=\"string[pyarrow]\" for others; not one Python string per cell",
             name);
}

static bool find_columns(host_case *c) {
  const host_record *r = c->r;
  const host_object *o = NULL;
  for (size_t i = 0; i < r->object_count && o == NULL; i++)
    if (is_text_table(&r->objects[i])) o = &r->objects[i];
  double share = o != NULL ? evidence_share(o->text_bytes, c->reported_bytes) : 0;
  if (o == NULL || share < MUCH) return false;
  char place[160], name[64], change[400];
  host_place(place, sizeof place, o);
  host_name(name, sizeof name, o);
  cause *to = host_add(c, CAUSE_HOST_OBJECTS, share >= MOST ? 0.92 : 0.7);
  cause_head(
      to, "%s holds %s as Python %s%s%s%s%s", name, cause_size(o->text_bytes),
      is_of_cells(o) ? "objects, a list or the like in every cell" : "strings, one object per cell",
      o->words[0] != '\0' ? ", in " : "", o->words, place[0] != '\0' ? ", made at " : "", place);
  host_say_object(to, o);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  store_compactly(change, sizeof change, o);
  host_add_fix(c, o->text_bytes - o->text_bytes / 4, change, "one pass over the column");
  if (is_read(o))
    host_add_fix(c, o->bytes - o->bytes / 16,
                 "read it in parts and keep only the result of each: for part in read_csv(…, "
                 "chunksize=100_000): …",
                 "a loop over the parts");
  return true;
}

/* ---- small Python objects ---- */

/* Returns whether a function that the program is in calls itself. */
static bool is_recursive(const host_record *r) {
  for (size_t i = 0; i < r->frame_count; i++)
    for (size_t j = i + 1; j < r->frame_count && host_line_is_own(&r->frames[i]); j++)
      if (r->frames[i].name[0] != '<' && strcmp(r->frames[i].name, r->frames[j].name) == 0 &&
          strcmp(r->frames[i].file, r->frames[j].file) == 0)
        return true;
  return false;
}

/* A bound for a container used as a cache, and what it then holds: the entries that fit a quarter
 * of the limit, at most half of them, with one digit other than 0. */
static uint64_t fewer_entries(const host_case *c, const host_object *o, uint64_t *bytes) {
  uint64_t each = o->bytes / (o->count > 0 ? o->count : 1), unit = 1;
  uint64_t most = each > 0 ? c->r->limit_bytes / 4 / each : 0;
  if (most == 0 || most > o->count / 2) most = o->count / 2;
  while (most / unit >= 10) unit *= 10;
  most = most / unit * unit;
  *bytes = most * each;
  return most > 0 ? most : 1;
}

/* Returns whether its fix is a bound on the number of entries. */
static bool is_bounded(const host_object *o) {
  return strncmp(o->name, "the cache of ", 13) == 0 || strstr(o->type, "deque") != NULL ||
         (is_dict(o) && !made_of(o, "int float ") && !host_is_grouped(o));
}

/* Writes what to keep of objects that each keep everything they are a part of. */
static void keep_values(char *out, size_t size, const host_object *o) {
  const char *list = host_is_unnamed(o) ? "the list" : o->name;
  if (strstr(o->of, "Task") != NULL || strstr(o->of, "Future") != NULL)
    snprintf(out, size,
             "use the result inside the task, and return what is needed of it (a count, a number); "
             "or take results as they come, a few at a time: asyncio.Semaphore(100) in the task, "
             "for done in asyncio.as_completed(tasks)");
  else if (is_of_errors(o))
    snprintf(out, size,
             "keep the text of each error: %s.append(str(error)), or drop its traceback first: "
             "error.with_traceback(None); the traceback keeps the variables of its functions, %s "
             "each",
             list, cause_size(o->element_bytes));
  else
    snprintf(out, size,
             "keep the text or the numbers of each, not the object: %s.append(str(x)), "
             "x.get_text(), x.copy(); each %.60s keeps all that it is a part of, %s",
             list, o->of, cause_size(o->element_bytes));
}

/* Writes what to do instead of keeping so many objects. */
static void keep_less(const host_case *c, char *out, size_t size, const host_object *o) {
  const char *name = o->name;
  char target[64];
  uint64_t kept;
  host_name(target, sizeof target, o);
  const host_way *way = host_way_of(o->source);
  if (is_of_trees(o))
    keep_values(out, size, o);
  else if (host_is_nested(o) && is_dict(o))
    snprintf(
        out, size,
        "keep whole keys instead of a dict for each level of %s: one flat dict "
        "{(a, b, c): value}; for prefixes of words a sorted list and bisect, or a compact trie "
        "(marisa_trie, datrie)",
        name);
  else if (way != NULL && way->id == CAUSE_HOST_DATASET_WHOLE)
    snprintf(out, size, "%s", way->change);
  else if (host_is_of_keys(o))
    snprintf(out, size,
             "smaller keys in %s: one integer (i * n + j, or a number for each word) instead of a "
             "%s; a numpy array instead of the dict if the range is known, or only its last rows; "
             "or drop what is rare or old now and then; or on disk (sqlite3)",
             name, o->of);
  else if (is_dict(o) && made_of(o, "list tuple ") && strstr(o->source, "float") != NULL)
    snprintf(out, size,
             "put the numbers of %s into one array: numpy.empty((n, width), dtype=numpy.float32), "
             "4 bytes a number instead of 32, and keep only the row of each key: {key: row}",
             name);
  else if (is_structure(o) && strncmp(o->type, "networkx.", 9) == 0)
    snprintf(out, size,
             "keep the edges as arrays: numpy arrays of both ends and the weights, and "
             "scipy.sparse.csr_array((w, (a, b))) with scipy.sparse.csgraph; igraph and networkit "
             "hold graphs in arrays as well (%s: %" PRIu64 " Python objects)",
             name, o->objects);
  else if (is_structure(o))
    snprintf(out, size,
             "hold the values of %s in arrays or tables (numpy, pandas) instead of one Python "
             "object each, or only the part of it that is needed",
             name);
  else if (strncmp(name, "the cache of ", 13) == 0) {
    uint64_t entries = fewer_entries(c, o, &kept);
    snprintf(out, size,
             "limit %s: @functools.lru_cache(maxsize=%" PRIu64 ") keeps the last %" PRIu64
             " of %" PRIu64 " results, about %s; or empty it: %s.cache_clear()",
             name, entries, entries, o->count, cause_size(kept), name + 13);
  } else if (host_is_unnamed(o) && strchr(target, '[') != NULL)
    snprintf(out, size,
             "fill the column from an array, not from a list of Python objects: %s = "
             "pandas.Categorical.from_codes(codes, names) for text that repeats, a numpy array for "
             "numbers",
             target);
  else if (host_is_unnamed(o))
    snprintf(out, size,
             "use each value as it arrives instead of collecting all (for … in …, a generator), or "
             "put them into arrays as they arrive: numpy.fromiter(…, dtype=…)");
  else if (is_queue(o))
    snprintf(out, size, "limit the queue: %s(maxsize=…); put() then waits for the consumer",
             o->type);
  else if (made_of(o, "logging.LogRecord "))
    snprintf(out, size,
             "write each to a file instead of keeping it: logging.FileHandler(path), or "
             "MemoryHandler(capacity=1000, target=…), which passes them on");
  else if (strstr(o->type, "deque") != NULL)
    snprintf(
        out, size,
        "limit %s: collections.deque(maxlen=…), or one numpy array for each field whose oldest "
        "row is overwritten; in a search, add nothing twice (a set of what was visited), and "
        "keep where each came from, not its whole path",
        name);
  else if (strstr(o->type, "set") != NULL)
    snprintf(out, size,
             "store a smaller value for each: one integer (x * n + y) instead of a tuple or text; "
             "or arrays: flags for a known range (numpy.zeros(n, bool)), sorted numbers "
             "(numpy.unique of hash(x)); or on disk: sqlite3 with a UNIQUE column");
  else if (is_dict(o) && made_of(o, "int float "))
    snprintf(
        out, size,
        "keep %s on disk (sqlite3: INSERT … ON CONFLICT DO UPDATE adds to a count; shelve), or "
        "keys and values as arrays (numpy.unique(…, return_counts=True) of one part at a "
        "time); or drop rare keys now and then",
        name);
  else if (is_dict(o) && made_of(o, "set "))
    snprintf(
        out, size,
        "keep the pairs of key and value of %s as two arrays of numbers, sorted by key (numpy, "
        "scipy.sparse.csr_array), or on disk (sqlite3)",
        name);
  else if (is_dict(o) && is_recursive(c->r) && !host_is_grouped(o))
    snprintf(out, size,
             "make the entries of %s smaller, because a recursion needs them again: one small "
             "integer as key (numbers packed into it, the same one for symmetric cases) and one "
             "number as value",
             name);
  else if (is_dict(o) && made_of(o, "list tuple ") && is_recursive(c->r))
    snprintf(out, size,
             "store less under each key of %s: only the result, not a %s, and no key that is never "
             "read again; a recursion needs its results, so do not limit their number, but make "
             "keys smaller (numbers packed into one integer)",
             name, o->of);
  else if (is_dict(o) && made_of(o, "list tuple "))
    snprintf(out, size,
             "store less under each key of %s: one value (the last, the one before it, a count) "
             "instead of a %s; if all are needed, on disk (sqlite3, shelve)",
             name, o->of);
  else if (is_dict(o) && made_of(o, "collections.deque "))
    snprintf(
        out, size,
        "limit each deque in %s: collections.deque(maxlen=…), as many as are read later, drops "
        "the oldest; or write each to a file (sqlite3) and keep only sums",
        name);
  else if (host_is_grouped(o))
    snprintf(out, size,
             "keep less under each key of %s: only what is needed later (a count, a sum, the last "
             "one), or all of it on disk (sqlite3, shelve)",
             name);
  else if (is_dict(o)) {
    uint64_t entries = fewer_entries(c, o, &kept);
    snprintf(out, size,
             "as a cache, limit it: if len(%s) > %" PRIu64 ": %s.pop(next(iter(%s))), about %s; if "
             "all are needed, on disk (sqlite3, shelve), or keys and values as arrays",
             name, entries, name, name, cause_size(kept));
  } else if (o->grows && strchr(o->of, '.') != NULL && strcmp(o->of, "numpy.ndarray") != 0)
    snprintf(
        out, size,
        "write each to a file as it arrives instead of keeping it in %s, keep only what is needed "
        "of it, or only the last ones: collections.deque(maxlen=…)",
        name);
  else if (made_of(o, "list set frozenset "))
    snprintf(out, size,
             "use each as it is made (yield it instead of adding it to %s), or write it to a file; "
             "if all are needed, one numpy array of all values and one of where each begins",
             name);
  else if (made_of(o, "str bytes ") && o->grows)
    snprintf(out, size,
             "write each text to a file as it is made (file.write) instead of keeping it in %s; or "
             "keep them compactly: pandas.array(…, dtype=\"string[pyarrow]\")",
             name);
  else if (made_of(o, "str bytes "))
    snprintf(out, size,
             "use each text as it arrives (for line in file) instead of keeping %s, or keep them "
             "compactly: pandas.array(…, dtype=\"string[pyarrow]\"), numpy.array(…, dtype=\"S\")",
             name);
  else if (o->grows && isupper((unsigned char)o->of[0]))
    snprintf(
        out, size,
        "keep only the objects that are still needed, as the last ones: "
        "collections.deque(maxlen=…) "
        "(a weakref.WeakSet lets go of those that nothing else uses); or their values as arrays: "
        "one numpy array for each field of %s",
        name);
  else
    snprintf(out, size,
             "keep %s as arrays: one numpy array (or a column of a table) for each field that is "
             "needed, filled in place or with numpy.fromiter%s",
             name,
             o->grows ? "; or use each one as it arrives (a count, a sum) and keep none" : "");
}

void host_find_objects(host_case *c) {
  const host_record *r = c->r;
  uint64_t sum = 0;
  const host_object *first = NULL;
  for (size_t i = 0; i < r->object_count; i++)
    if (is_objects(&r->objects[i])) {
      if (first == NULL) first = &r->objects[i];
      sum += r->objects[i].bytes;
    }
  double share = evidence_share(sum, c->reported_bytes);
  if (find_columns(c) || first == NULL || share < MUCH) return;
  cause *to = host_add(c, CAUSE_HOST_OBJECTS, share >= MOST ? 0.9 : 0.55);
  char text[480];
  host_describe(text, sizeof text, first);
  cause_head(to, "%s; %s", text,
             is_of_trees(first) ? why_trees(first) : "made of small Python objects");
  for (size_t i = 0; i < r->object_count; i++)
    if (is_objects(&r->objects[i])) host_say_object(to, &r->objects[i]);
  if (!is_of_trees(first) && !is_structure(first))
    cause_say(to, "about %" PRIu64 " bytes for each, where an array needs 1 to 8 a number",
              first->element_bytes);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  char change[400];
  keep_less(c, change, sizeof change, first);
  /* The first one, less a number or a short text for each element. */
  uint64_t lean = first->objects > 0 ? first->objects * 8
                                     : first->count * (first->element_bytes > 200 ? 32 : 8);
  if (is_bounded(first)) fewer_entries(c, first, &lean);
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

/* Writes how to keep such a container small. */
static void bound(const host_case *c, char *out, size_t size, const host_object *given) {
  host_object named = *given, *o = &named;
  if (host_is_unnamed(given)) {
    host_name(named.name, sizeof named.name, given);
    if (host_is_unnamed(&named)) snprintf(named.name, sizeof named.name, "it");
  }
  char name[sizeof o->name]; /* "kept of load": a variable of a function */
  snprintf(name, sizeof name, "%.63s", o->name);
  char *of = strstr(name, " of ");
  if (of != NULL) *of = '\0';
  uint64_t kept, entries = fewer_entries(c, o, &kept);
  bool wide = strstr(o->words, "float64") != NULL; /* arrays of such numbers */
  if (strncmp(o->name, "the cache of ", 13) == 0)
    snprintf(out, size,
             "limit %s: @functools.lru_cache(maxsize=%" PRIu64 ") keeps about %s (maxsize=None and "
             "functools.cache have no limit); or empty it: %s.cache_clear()",
             o->name, entries, cause_size(kept), o->name + 13);
  else if (made_of(o, "matplotlib.Figure "))
    snprintf(out, size,
             "close each figure once it is saved or shown: plt.close(fig), or plt.close(\"all\"); "
             "pyplot keeps every figure until then");
  else if (is_of_trees(o))
    keep_values(out, size, o);
  else if (is_of_views(o) && made_of(o, "memoryview "))
    snprintf(out, size,
             "keep copies: %s%s; a memoryview keeps the whole object that it shows a part of",
             o->name, is_dict(o) ? "[key] = bytes(part)" : ".append(bytes(part))");
  else if (is_of_views(o))
    snprintf(
        out, size,
        "keep copies: %s%s; a part of an array (a slice) keeps the whole array it was cut from",
        o->name, is_dict(o) ? "[key] = part.copy()" : ".append(part.copy())");
  else if (made_of(o, "mmap.mmap "))
    snprintf(out, size,
             is_dict(o) ? "close() each mapping after its last use, or keep %" PRIu64
                          " of them, about %s: if len(%s) > %" PRIu64
                          ": %s.pop(next(iter(%s))).close()"
                        : "close() each mapping after its last use, or keep %" PRIu64
                          " of them, about %s: if len(%s) > %" PRIu64 ": %s.pop(0).close()",
             entries, cause_size(kept), name, entries, name, name);
  else if (made_of(o, "ctypes.Array ctypes.Structure "))
    snprintf(out, size,
             "reuse a few buffers: give each back after its last use (%s.remove(buffer), and take "
             "that one next), or drop it: a buffer of ctypes is freed when nothing refers to it",
             name);
  else if (is_queue(o))
    snprintf(out, size,
             "limit the queue: %s(maxsize=…); put() then waits until the consumer has caught "
             "up",
             o->type);
  else if (made_of(o, "concurrent.Future asyncio.Future _asyncio.Future "))
    snprintf(out, size,
             "a future keeps its result: let the function return only what is needed of it (a "
             "number, a path), or submit a few at a time and drop each after its result() "
             "(%s)",
             is_dict(o) ? "pop" : "del");
  else if (is_dict(o) && !host_is_grouped(o))
    snprintf(out, size,
             "drop the oldest: if len(%s) > %" PRIu64 ": %s.pop(next(iter(%s))), about %s stay; or "
             "functools.lru_cache(maxsize=%" PRIu64 ") on the function that makes the values; or "
             "on disk: shelve, sqlite3",
             name, entries, name, name, cause_size(kept), entries);
  else if (made_of(o, "logging.LogRecord "))
    snprintf(out, size,
             "log a short text (str(x), x.shape) instead of the object: a record keeps what it was "
             "given; or write each to a file: logging.FileHandler(path)");
  else if (strstr(o->type, "deque") != NULL)
    snprintf(out, size,
             "limit it: %s = collections.deque(maxlen=%" PRIu64 ") drops the oldest, about %s stay",
             o->name, entries, cause_size(kept));
  else if (made_of(o, "_asyncio.Task asyncio.Task "))
    snprintf(
        out, size,
        "use each result inside its task and return only what is needed of it (a number, a path "
        "of a file): all results are kept until the last task is done; fewer tasks at once "
        "(asyncio.Semaphore) alone do not help");
  else if (made_of(o, "function method functools.partial "))
    snprintf(out, size,
             "remove each from %s when it has run; and let it hold only what it needs (a number), "
             "not the data around it",
             o->name);
  else if (strcmp(o->mark, "ahead") == 0)
    snprintf(out, size,
             "make each item in __getitem__ instead of all in __init__: keep only what it is made "
             "of in %s (paths, offsets, the bytes as they come: uint8), and decode it when it is "
             "asked for",
             name);
  else if (made_of(o, "str bytes ") && !is_dict(o))
    snprintf(out, size,
             "keep only the last ones: %s = collections.deque(maxlen=%" PRIu64
             "), about %s (list(%s)[-n:] reads them); or write each to a file as it arrives "
             "(file.write, logging.FileHandler)",
             name, entries, cause_size(kept), name);
  else if (strstr(o->words, " from ") != NULL)
    snprintf(out, size,
             "keep them as %.20s, as they come, and convert each when it is used: %.*s takes %s as "
             "much; or as float32: x.astype(numpy.float32)",
             strstr(o->words, " from ") + 6, (int)strcspn(o->words, " "), o->words,
             strstr(o->words, "float64 from uint8") != NULL ? "8 times" : "several times");
  else if (strstr(o->source, ".copy()") != NULL && made_of(o, "numpy.ndarray torch.Tensor "))
    snprintf(out, size,
             "keep every tenth (if step %% 10 == 0: %.60s) or what is needed of each (a mean, a "
             "row)%s; if all are needed, as rows of one file: numpy.lib.format.open_memmap",
             o->source, wide ? "; float32 takes half: x.astype(numpy.float32)" : "");
  else if (wide)
    snprintf(out, size,
             "use each as it arrives and keep only what is needed of it (a number, a row); "
             "float32 takes half: x.astype(numpy.float32); if all are needed, write each to a file "
             "(%s)",
             made_of(o, "torch.Tensor ") ? "torch.save" : "numpy.save, or rows of one open_memmap");
  else
    snprintf(out, size,
             "use each as it arrives and keep only what is needed of it (a number, a row); of the "
             "last ones: collections.deque(maxlen=…); if all are needed, write each to a file (%s)",
             made_of(o, "torch.Tensor ")       ? "torch.save"
             : made_of(o, "pandas.DataFrame ") ? "to_parquet"
                                               : "numpy.save, or rows of one open_memmap");
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

void host_use_less(const host_record *r, char *out, size_t size, const host_object *o) {
  host_case c = {.r = r};
  char name[64];
  host_name(name, sizeof name, o);
  if (host_is_unnamed(o) && strcmp(name, o->name) == 0) snprintf(name, sizeof name, "it");
  bool table = strstr(o->type, "DataFrame") != NULL || strstr(o->type, "Table") != NULL;
  if (is_text_table(o))
    store_compactly(out, size, o);
  else if (table)
    snprintf(
        out, size,
        "read and keep only the columns of %s that are used, in smaller types (float32, int32, "
        "category), or a part of the rows at a time",
        name);
  else if (is_objects(o))
    keep_less(&c, out, size, o);
  else if (is_collection(o))
    bound(&c, out, size, o);
  else if (host_is_array(o))
    snprintf(out, size,
             "%s for %s, or work on a block of rows at a time; del %s after its last use",
             strstr(o->of, "64") != NULL ? "a smaller type takes half: float32 or int32"
                                         : "a smaller type",
             name, name);
  else if (is_memory_file(o))
    snprintf(out, size, "write to a file on disk instead of %s (tempfile.TemporaryFile())", name);
  else if (is_text(o))
    snprintf(out, size,
             "read or make %s in parts, and use each before the next (for part in …); mmap shows a "
             "file without a copy; del %s after its last use",
             name, name);
  else
    snprintf(
        out, size,
        "keep only the part of %s that is needed, or write it to a file; del %s after its last "
        "use",
        name, name);
}

void host_find_leak(host_case *c) {
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
  char name[64];
  host_name(name, sizeof name, most);
  cause_say(to, "%s keeps them all, %s each%s", name, cause_size(most->element_bytes),
            is_of_views(most) ? ": small parts of arrays, which keep the arrays" : "");
  if (is_of_trees(most)) buffer_printf(&to->headline, "; %s", why_trees(most));
  if (steady && r->growth_bytes_s > 0)
    cause_say(to, "what %s holds rose by %s a second and never fell",
              strcmp(c->r->limit_from, "python") == 0 ? "this process" : "the command",
              cause_size((uint64_t)r->growth_bytes_s));
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  char change[400];
  uint64_t kept = most->element_bytes;
  bound(c, change, sizeof change, most);
  if (is_bounded(most) && !is_of_views(most)) fewer_entries(c, most, &kept);
  host_add_fix(c, most->bytes > kept ? most->bytes - kept : 0, change,
               is_of_views(most) ? "one copy of each part"
               : is_queue(most)  ? "the producer waits"
                                 : "dropped values cannot be used later");
}

/* ---- an iterator that others are ahead of ---- */

void host_find_tee(host_case *c) {
  const host_record *r = c->r;
  const host_object *o = NULL;
  for (size_t i = 0; i < r->object_count && o == NULL; i++)
    if (is_tee(&r->objects[i])) o = &r->objects[i];
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
  for (size_t i = 0; i < r->object_count && i < 3 && is_text(&r->objects[i]); i++)
    if (r->objects[i].grows || is_memory_file(&r->objects[i])) return &r->objects[i];
  return NULL;
}

void host_find_text(host_case *c) {
  const host_record *r = c->r;
  const host_object *o = text_that_grows(r);
  double share = o != NULL ? evidence_share(o->bytes, c->reported_bytes) : 0;
  if (share < MUCH || c->joined) return;
  bool file = is_memory_file(o);
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
