/* Host less: the change that fits an object: its type, what it holds and the line that fills it. */
#include "advise/host_less.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "advise/host_kind.h"
#include "advise/host_line.h"
#include "advise/host_read.h"
#include "advise/host_way.h"

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

void host_less_text(char *out, size_t size, const host_object *o) {
  char name[64], column[64], types[240];
  if (host_is_of_cells(o)) {
    snprintf(
        out, size,
        "do not keep them: use the result of each row as it is made (for x in column: "
        "total.update(f(x))); or keep numbers, not lists and texts: one numpy array beside the "
        "table, a row of it for each row if all have one length (float32), otherwise one of "
        "all values and one of where each row begins");
    return;
  }
  if (host_is_read(o) && o->words[0] != '\0') {
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
uint64_t host_less_entries(const host_case *c, const host_object *o, uint64_t *bytes) {
  uint64_t each = o->bytes / (o->count > 0 ? o->count : 1), unit = 1;
  uint64_t most = each > 0 ? c->r->limit_bytes / 4 / each : 0;
  if (most == 0 || most > o->count / 2) most = o->count / 2;
  while (most / unit >= 10) unit *= 10;
  most = most / unit * unit;
  *bytes = most * each;
  return most > 0 ? most : 1;
}

/* Returns whether its fix is a bound on the number of entries. */
bool host_less_is_bound(const host_object *o) {
  return strncmp(o->name, "the cache of ", 13) == 0 || strstr(o->type, "deque") != NULL ||
         host_is_queue(o) ||
         (host_is_dict(o) && !host_is_made_of(o, "int float ") && !host_is_grouped(o));
}

/* Returns the bytes of a number of a type of NumPy or PyTorch: 8 of "float64". */
static unsigned width(const char *of) {
  unsigned bits = 0;
  const char *digits = of + strcspn(of, "0123456789 ");
  return sscanf(digits, "%u", &bits) == 1 && bits >= 16 ? bits / 8 : 1;
}

unsigned host_less_times(const host_object *o) {
  const char *from = strstr(o->words, " from "), *as = strstr(o->words, " as ");
  const char *small = from != NULL ? from + 6 : as != NULL ? as + 4 : NULL;
  return small != NULL && width(o->words) > width(small) ? width(o->words) / width(small) : 1;
}

/* Returns whether an object was made at once by a comprehension that keeps what each call returns:
 * "{k: f(v) for k, v in items}". */
static bool is_comprehended(const host_object *o) {
  const char *made = strstr(o->source, " = ");
  return made != NULL && (made[3] == '{' || made[3] == '[') && strstr(made, " for ") != NULL &&
         strcspn(o->source, " .[(") == (size_t)(made - o->source);
}

/* Writes the loop of a comprehension, "for k, v in items"; "for … in …" if the text is cut. */
static void write_loop(char *out, size_t size, const host_object *o) {
  const char *begin = strstr(o->source, " for "), *end = strrchr(o->source, ']');
  const char *close = strrchr(o->source, '}');
  if (end == NULL || (close != NULL && close > end)) end = close;
  bool plain = begin != NULL && end != NULL && end > begin && (size_t)(end - begin) < 60 &&
               strstr(begin + 1, " for ") == NULL && strstr(begin, " if ") == NULL &&
               end[1] == '\0';
  if (plain)
    snprintf(out, size, "%.*s", (int)(end - begin - 1), begin + 1);
  else
    snprintf(out, size, "for … in …");
}

/* Returns whether a line adds to a list what it makes of the list itself, as all subsets are. */
static bool is_doubled(const host_object *o) {
  char again[80];
  snprintf(again, sizeof again, " in %.63s]", o->name);
  return strstr(o->source, "+= [") != NULL && strstr(o->source, again) != NULL;
}

/* Writes what to keep of objects that each keep everything they are a part of. */
static void keep_values(char *out, size_t size, const host_object *o) {
  const char *list = host_is_unnamed(o) ? "the list" : o->name;
  if (strstr(o->of, "Task") != NULL || strstr(o->of, "Future") != NULL)
    snprintf(out, size,
             "use the result inside the task, and return what is needed of it (a count, a number); "
             "or take results as they come, a few at a time: asyncio.Semaphore(100) in the task, "
             "for done in asyncio.as_completed(tasks)");
  else if (host_is_of_errors(o))
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

static void limit_queue(const host_case *c, char *out, size_t size, const host_object *o) {
  uint64_t kept, entries = host_less_entries(c, o, &kept);
  snprintf(out, size,
           "limit the queue: %s(maxsize=%" PRIu64
           "), about %s; put() then waits until the consumer "
           "has caught up",
           o->type, entries, cause_size(kept));
}

/* Writes what to do instead of keeping so many objects. */
void host_less_objects(const host_case *c, char *out, size_t size, const host_object *o) {
  const char *name = o->name;
  char target[64];
  uint64_t kept;
  host_name(target, sizeof target, o);
  const host_way *way = host_way_of(o->source);
  if (host_is_of_trees(o))
    keep_values(out, size, o);
  else if (is_doubled(o))
    snprintf(out, size,
             "do not keep them, make one at a time, in the same order: for n in range(1 << "
             "len(items)): s = tuple(x for i, x in enumerate(items) if n >> i & 1); or by size: "
             "itertools.combinations(items, k) (items: what the outer loop goes through)");
  else if (host_is_nested(o) && host_is_dict(o))
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
  else if (host_is_dict(o) && host_is_made_of(o, "list tuple ") &&
           strstr(o->source, "float") != NULL)
    snprintf(out, size,
             "put the numbers of %s into one array: numpy.empty((n, width), dtype=numpy.float32), "
             "4 bytes a number instead of 32, and keep only the row of each key: {key: row}",
             name);
  else if (host_is_whole_structure(o) && strncmp(o->type, "networkx.", 9) == 0)
    snprintf(out, size,
             "keep the edges as arrays: numpy arrays of both ends and the weights, and "
             "scipy.sparse.csr_array((w, (a, b))) with scipy.sparse.csgraph; igraph and networkit "
             "hold graphs in arrays as well (%s: %" PRIu64 " Python objects)",
             name, o->objects);
  else if (host_is_whole_structure(o) && strncmp(o->type, "openpyxl.", 9) == 0)
    snprintf(
        out, size,
        "let the rows pass through: openpyxl.Workbook(write_only=True) writes each row that is "
        "appended (create_sheet() makes the sheet); load_workbook(path, read_only=True) reads "
        "them one at a time");
  else if (host_is_whole_structure(o))
    snprintf(out, size,
             "hold the values of %s in arrays or tables (numpy, pandas) instead of one Python "
             "object each, or only the part of it that is needed",
             name);
  else if (strncmp(name, "the cache of ", 13) == 0) {
    uint64_t entries = host_less_entries(c, o, &kept);
    snprintf(out, size,
             "limit %s: @lru_cache(maxsize=%" PRIu64 ") keeps the last %" PRIu64 " of %" PRIu64
             " results, about %s (functools.cache has no limit); or empty it: "
             "%s.cache_clear()",
             name, entries, entries, o->count, cause_size(kept), name + 13);
  } else if (host_is_unnamed(o) && is_comprehended(o)) {
    char loop[80];
    write_loop(loop, sizeof loop, o);
    snprintf(
        out, size,
        "use each as it is made instead of keeping all in %s: %s: … (a number, a count, "
        "file.write(…)); or keep only the numbers that are needed: array.array(\"d\"), 8 bytes "
        "each",
        target, loop);
  } else if (host_is_unnamed(o) && strchr(target, '[') != NULL)
    snprintf(out, size,
             "fill the column from an array, not from a list of Python objects: %s = "
             "pandas.Categorical.from_codes(codes, names) for text that repeats, a numpy array for "
             "numbers",
             target);
  else if (host_is_unnamed(o))
    snprintf(
        out, size,
        "use each value as it arrives instead of collecting all (for … in …, a generator), or "
        "keep only the numbers that are needed of each: array.array(\"d\") for a field, 8 bytes "
        "a number");
  else if (host_is_queue(o))
    limit_queue(c, out, size, o);
  else if (host_is_made_of(o, "logging.LogRecord "))
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
  else if (host_is_dict(o) && host_is_made_of(o, "int float "))
    snprintf(
        out, size,
        "keep %s on disk (sqlite3: INSERT … ON CONFLICT DO UPDATE adds to a count; shelve), or "
        "keys and values as arrays (numpy.unique(…, return_counts=True) of one part at a "
        "time); or drop rare keys now and then",
        name);
  else if (host_is_dict(o) && host_is_made_of(o, "set "))
    snprintf(
        out, size,
        "keep the pairs of key and value of %s as two arrays of numbers, sorted by key (numpy, "
        "scipy.sparse.csr_array), or on disk (sqlite3)",
        name);
  else if (host_is_dict(o) && is_recursive(c->r) && !host_is_grouped(o))
    snprintf(out, size,
             "make the entries of %s smaller, because a recursion needs them again: one small "
             "integer as key (numbers packed into it, the same one for symmetric cases) and one "
             "number as value",
             name);
  else if (host_is_dict(o) && host_is_made_of(o, "list tuple ") && is_recursive(c->r))
    snprintf(out, size,
             "store less under each key of %s: only the result, not a %s, and no key that is never "
             "read again; a recursion needs its results, so do not limit their number, but make "
             "keys smaller (numbers packed into one integer)",
             name, o->of);
  else if (host_is_dict(o) && host_is_made_of(o, "list tuple "))
    snprintf(out, size,
             "store less under each key of %s: one value (the last, the one before it, a count) "
             "instead of a %s; if all are needed, on disk (sqlite3, shelve)",
             name, o->of);
  else if (host_is_dict(o) && host_is_made_of(o, "collections.deque "))
    snprintf(
        out, size,
        "limit each deque in %s: %s, as many as are read later, drops the oldest; or write each to "
        "a file (sqlite3) and keep only sums",
        name,
        strstr(o->type, "defaultdict") != NULL
            ? "collections.defaultdict(lambda: collections.deque(maxlen=…))"
            : "collections.deque(maxlen=…)");
  else if (host_is_grouped(o))
    snprintf(out, size,
             "keep less under each key of %s: only what is needed later (a count, a sum, the last "
             "one), or all of it on disk (sqlite3, shelve)",
             name);
  else if (host_is_dict(o) && is_comprehended(o) && host_is_made_of(o, "str bytes ")) {
    char loop[80];
    write_loop(loop, sizeof loop, o);
    snprintf(out, size,
             "use each text as it is made instead of keeping all in %s: %s: file.write(…), or what "
             "is needed of it (a length, a count)",
             name, loop);
  } else if (host_is_dict(o)) {
    uint64_t entries = host_less_entries(c, o, &kept);
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
  else if (strstr(o->source, "heappush") != NULL)
    snprintf(
        out, size,
        "if only the first are needed, keep those: heapq.nsmallest(k, …) of a generator, or "
        "heapq.heappushpop(%s, x) once %s has k entries; otherwise sort arrays (numpy.argsort)",
        name, name);
  else if (host_is_made_of(o, "list set frozenset "))
    snprintf(out, size,
             "use each as it is made (yield it instead of adding it to %s), or write it to a file; "
             "if all are needed, one numpy array of all values and one of where each begins",
             name);
  else if (host_is_made_of(o, "str bytes ") && is_comprehended(o)) {
    char loop[80];
    write_loop(loop, sizeof loop, o);
    snprintf(out, size,
             "use each text as it is made instead of keeping all in %s: %s: file.write(…), or what "
             "is needed of it (a length, a count)",
             name, loop);
  } else if (host_is_made_of(o, "str bytes ") && o->grows)
    snprintf(out, size,
             "write each text to a file as it is made (file.write) instead of keeping it in %s; or "
             "keep them compactly: pandas.array(…, dtype=\"string[pyarrow]\")",
             name);
  else if (host_is_made_of(o, "str bytes "))
    snprintf(out, size,
             "use each text as it arrives (for line in file) instead of keeping %s, or keep them "
             "compactly: pandas.array(…, dtype=\"string[pyarrow]\"), numpy.array(…, dtype=\"S\")",
             name);
  else if (o->grows && isupper((unsigned char)o->of[0]))
    snprintf(
        out, size,
        "keep their values as arrays: one numpy array for each field of %s; or only the objects "
        "that are still needed, as the last ones: collections.deque(maxlen=…) (a weakref.WeakSet "
        "lets go of those that nothing else uses)",
        name);
  else
    snprintf(out, size,
             "keep %s as arrays: one numpy array (or a column of a table) for each field that is "
             "needed, made once and filled in place%s",
             name,
             o->grows ? "; or use each one as it arrives (a count, a sum) and keep none" : "");
}

/* Writes "previews.append(frame[:16].copy())" from the line that fills it, if it is complete. */
static void keep_copies(char *out, size_t size, const host_object *o) {
  static const char why[] = "a part of an array (a slice) keeps the whole array it was cut from";
  size_t length = strlen(o->source);
  const char *appends = strstr(o->source, ".append("), *sets = strstr(o->source, "] = ");
  bool plain = length > 0 && length < 110 && strchr(o->source, '#') == NULL;
  if (plain && appends != NULL && o->source[length - 1] == ')' && o->source[length - 2] == ']')
    snprintf(out, size, "keep copies: %.*s.copy()); %s", (int)length - 1, o->source, why);
  else if (plain && appends == NULL && sets != NULL && o->source[length - 1] == ']')
    snprintf(out, size, "keep copies: %s.copy(); %s", o->source, why);
  else
    snprintf(out, size, "keep copies: %s%s; %s", o->name,
             host_is_dict(o) ? "[key] = part.copy()" : ".append(part.copy())", why);
}

/* Writes how to keep such a container small. */
void host_less_collection(const host_case *c, char *out, size_t size, const host_object *given) {
  host_object named = *given, *o = &named;
  if (host_is_unnamed(given)) {
    host_name(named.name, sizeof named.name, given);
    if (host_is_unnamed(&named)) snprintf(named.name, sizeof named.name, "it");
  }
  char name[sizeof o->name]; /* "kept of load": a variable of a function */
  snprintf(name, sizeof name, "%.63s", o->name);
  char *of = strstr(name, " of ");
  if (of != NULL) *of = '\0';
  uint64_t kept, entries = host_less_entries(c, o, &kept);
  bool wide = strstr(o->words, "float64") != NULL; /* arrays of such numbers */
  if (strncmp(o->name, "the cache of ", 13) == 0)
    snprintf(out, size,
             "limit %s: @lru_cache(maxsize=%" PRIu64 ") keeps about %s (maxsize=None and "
             "functools.cache have no limit); or empty it: %s.cache_clear()",
             o->name, entries, cause_size(kept), o->name + 13);
  else if (host_is_made_of(o, "matplotlib.Figure "))
    snprintf(out, size,
             "close each figure once it is saved or shown: plt.close(fig), or plt.close(\"all\"); "
             "pyplot keeps every figure until then");
  else if (host_is_of_trees(o))
    keep_values(out, size, o);
  else if (host_is_of_views(o) && host_is_made_of(o, "memoryview "))
    snprintf(out, size,
             "keep copies: %s%s; a memoryview keeps the whole object that it shows a part of",
             o->name, host_is_dict(o) ? "[key] = bytes(part)" : ".append(bytes(part))");
  else if (host_is_of_views(o))
    keep_copies(out, size, o);
  else if (host_is_made_of(o, "mmap.mmap "))
    snprintf(out, size,
             host_is_dict(o) ? "close() each mapping after its last use, or keep %" PRIu64
                               " of them, about %s: if len(%s) > %" PRIu64
                               ": %s.pop(next(iter(%s))).close()"
                             : "close() each mapping after its last use, or keep %" PRIu64
                               " of them, about %s: if len(%s) > %" PRIu64 ": %s.pop(0).close()",
             entries, cause_size(kept), name, entries, name, name);
  else if (host_is_made_of(o, "ctypes.Array ctypes.Structure "))
    snprintf(out, size,
             "reuse a few buffers: give each back after its last use (%s.remove(buffer), and take "
             "that one next), or drop it: a buffer of ctypes is freed when nothing refers to it",
             name);
  else if (host_is_queue(o))
    limit_queue(c, out, size, o);
  else if (host_is_made_of(o, "concurrent.Future asyncio.Future _asyncio.Future "))
    snprintf(out, size,
             "a future keeps its result: let the function return only what is needed of it (a "
             "number, a path), or submit a few at a time and drop each after its result() "
             "(%s)",
             host_is_dict(o) ? "pop" : "del");
  else if (is_comprehended(o)) {
    char loop[80];
    write_loop(loop, sizeof loop, o);
    snprintf(out, size,
             "use each as it is made instead of keeping all of them in %s: %s: … (a number, a row "
             "of it); or write each to a file, and read back what is needed",
             name, loop);
  } else if (host_is_dict(o) && !host_is_grouped(o))
    snprintf(out, size,
             "drop the oldest: if len(%s) > %" PRIu64 ": %s.pop(next(iter(%s))), about %s stay; or "
             "functools.lru_cache(maxsize=%" PRIu64 ") on the function that makes the values; or "
             "on disk: shelve, sqlite3",
             name, entries, name, name, cause_size(kept), entries);
  else if (host_is_made_of(o, "logging.LogRecord "))
    snprintf(out, size,
             "log a short text (str(x), x.shape) instead of the object: a record keeps what it was "
             "given; or write each to a file: logging.FileHandler(path)");
  else if (strstr(o->type, "deque") != NULL)
    snprintf(out, size,
             "limit it: %s = collections.deque(maxlen=%" PRIu64 ") drops the oldest, about %s stay",
             o->name, entries, cause_size(kept));
  else if (host_is_made_of(o, "_asyncio.Task asyncio.Task "))
    snprintf(
        out, size,
        "use each result inside its task and return only what is needed of it (a number, a path "
        "of a file): all results are kept until the last task is done; fewer tasks at once "
        "(asyncio.Semaphore) alone do not help");
  else if (host_is_made_of(o, "function method functools.partial "))
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
  else if (host_is_made_of(o, "str bytes ") && !host_is_dict(o))
    snprintf(out, size,
             "keep only the last ones: %s = collections.deque(maxlen=%" PRIu64
             "), about %s (list(%s)[-n:] reads them); or write each to a file as it arrives "
             "(file.write, logging.FileHandler)",
             name, entries, cause_size(kept), name);
  else if (strstr(o->words, " from ") != NULL)
    snprintf(
        out, size,
        "keep them as %.20s, as they come, and convert each when it is used: %.*s takes %u times "
        "as much; or as float32: x.astype(numpy.float32)",
        strstr(o->words, " from ") + 6, (int)strcspn(o->words, " "), o->words, host_less_times(o));
  else if (strstr(o->words, " as ") != NULL)
    snprintf(out, size,
             "keep them as %.20s, %u times smaller than %.*s, and exact for all numbers seen: "
             "x.astype(numpy.%.20s); if that is not enough, as rows of one file: "
             "numpy.lib.format.open_memmap(\"%.30s.npy\", \"w+\", \"%.20s\", (n, …)), or only what "
             "is needed of each (a sum, a row)",
             strstr(o->words, " as ") + 4, host_less_times(o), (int)strcspn(o->words, " "),
             o->words, strstr(o->words, " as ") + 4, name, strstr(o->words, " as ") + 4);
  else if (strstr(o->source, ".copy()") != NULL &&
           host_is_made_of(o, "numpy.ndarray torch.Tensor "))
    snprintf(out, size,
             "if all are needed, keep them as rows of one file: %s = "
             "numpy.lib.format.open_memmap(\"%.30s.npy\", \"w+\", %s, (n, …)), and %s[i] = …; "
             "otherwise what is needed of each (a mean, a row)%s",
             name, name, wide ? "\"float64\"" : "dtype", name, wide ? "; float32 takes half" : "");
  else if (wide)
    snprintf(out, size,
             "use each as it arrives and keep only what is needed of it (a number, a row); "
             "float32 takes half: x.astype(numpy.float32); if all are needed, write each to a file "
             "(%s)",
             host_is_made_of(o, "torch.Tensor ") ? "torch.save"
                                                 : "numpy.save, or rows of one open_memmap");
  else
    snprintf(out, size,
             "use each as it arrives and keep only what is needed of it (a number, a row); of the "
             "last ones: collections.deque(maxlen=…); if all are needed, write each to a file (%s)",
             host_is_made_of(o, "torch.Tensor ")       ? "torch.save"
             : host_is_made_of(o, "pandas.DataFrame ") ? "to_parquet"
                                                       : "numpy.save, or rows of one open_memmap");
}

void host_use_less(const host_record *r, char *out, size_t size, const host_object *o) {
  host_case c = {.r = r};
  char name[64];
  host_name(name, sizeof name, o);
  if (host_is_unnamed(o) && strcmp(name, o->name) == 0) snprintf(name, sizeof name, "it");
  if (host_is_text_table(o))
    host_less_text(out, size, o);
  else if (host_is_table(o) && o->source[0] != '\0' && host_read_is_known(o->source))
    host_read_in_parts(out, size, r, "", o->source);
  else if (host_is_table(o))
    snprintf(
        out, size,
        "read and keep only the columns of %s that are used, in smaller types (float32, int32, "
        "category), or a part of the rows at a time",
        name);
  else if (host_is_of_objects(o))
    host_less_objects(&c, out, size, o);
  else if (host_is_collection(o))
    host_less_collection(&c, out, size, o);
  else if (host_is_array(o))
    snprintf(out, size, "%swork on a block of rows of %s at a time; del %s after its last use",
             strstr(o->of, "64") != NULL ? "a smaller type takes half: float32 or int32; or " : "",
             name, name);
  else if (host_is_memory_file(o))
    snprintf(out, size, "write to a file on disk instead of %s (tempfile.TemporaryFile())", name);
  else if (host_is_text(o))
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
