/* Diagnosis array: fixes for host memory that a text's own numbers and lines make: large arrays and
 * tables of all pairs, pinned memory, evicted containers, and units that systemd-oomd killed. */
#include <stdio.h>
#include <string.h>

#include "advise/diagnosis_parts.h"
#include "advise/host_way.h"

#define SHAPE_LEAST ((uint64_t)32 << 30)  /* an array of which few programs need the whole */
#define HALF_MOST   (UINT64_C(128) << 30) /* if the machine's RAM is not known: few have more */
#define PINNED_MOST (UINT64_C(1) << 45)   /* larger limits are errors of reading */

bool diagnosis_is_service(const message *m) {
  size_t length = strlen(m->what), end = strlen(".service");
  return (m->details & MESSAGE_OOMD) != 0 && length > end && strncmp(m->what, "user@", 5) != 0 &&
         strcmp(m->what + length - end, ".service") == 0;
}

/* Names what an evicted container should request: what it used and a tenth more, in whole GiB. 16
 * if that is unknown. */
static void add_request(explanation *x) {
  const message *m = &x->evidence.message;
  char text[240];
  recipe r = {.change = text, .cost = "the pod may wait for such a node"};
  if (m->host != HOST_EVICTED) return;
  unsigned long long gib = 16;
  if (known(m->process_bytes) && m->process_bytes < UINT64_C(1) << 50)
    gib = (m->process_bytes + m->process_bytes / 10 + (1 << 30) - 1) >> 30;
  snprintf(text, sizeof text,
           "request what it needs: resources: requests: memory: %lluGi, limits: memory: %lluGi; "
           "then it runs on a node that has as much, and others are evicted first",
           gib, gib);
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
}

/* Doubles the limit of TensorFlow's pool of pinned host memory, in the variable of its version. */
static void add_pinned(explanation *x) {
  const message *m = &x->evidence.message;
  char text[240];
  recipe r = {.change = text, .cost = "RAM that cannot be paged out"};
  if (m->host != HOST_PINNED || m->what[0] == '\0') return;
  bool old = strcmp(m->what, "cuda_host_bfc") == 0, sized = m->limit_bytes < PINNED_MOST;
  unsigned long long limit = sized ? m->limit_bytes >> 20 : 0;
  snprintf(text, sizeof text,
           "raise its limit, if the host has the RAM: export TF_%s_HOST_MEM_LIMIT_IN_MB=%llu "
           "(MiB%s",
           old ? "CUDA" : "GPU", sized ? 2 * limit : 262144, sized ? "; it was " : ")");
  size_t used = strlen(text);
  if (sized) snprintf(text + used, sizeof text - used, "%llu)", limit);
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
}

/* "shape (87000, 227, 227, 3) and data type uint8": the same array in a file. `named` is the
 * type. */
static void add_file(explanation *x, const char *named) {
  const char *open = strchr(x->evidence.message.what, '(');
  const char *close = open != NULL ? strchr(open, ')') : NULL;
  char text[280];
  recipe r = {.change = text, .cost = "slower: disk"};
  if (close == NULL || close - open > 80) return;
  /* pandas makes the array itself. */
  if (context_any(&x->evidence.message.context, CONTEXT_BIT(PANDAS))) return;
  snprintf(text, sizeof text,
           "keep it in a file and fill it part by part: x = np.lib.format.open_memmap(\"x.npy\", "
           "mode=\"w+\", dtype=np.%.*s, shape=%.*s)",
           (int)strspn(named, "abcdefghijklmnopqrstuvwxyz0123456789"), named,
           (int)(close + 1 - open), open);
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
}

/* "data type float64": the type that needs half, and what the array then takes. An array of which
 * half is still more than a machine has must not exist as a whole. */
static void add_type(explanation *x) {
  static const struct {
    const char *from, *to;
    double part;
  } types[] = {{"float64", "float32", 0.5},
               {"int64", "int32", 0.5},
               {"complex128", "complex64", 0.5},
               {"float32", "float16", 0.5},
               {"int32", "int16", 0.5}};
  const message *m = &x->evidence.message;
  const char *named = strstr(m->what, "data type ");
  char text[240];
  recipe r = {.change = text, .cost = "less precision, or a smaller range"};
  if (m->host != HOST_NUMPY || named == NULL || !known(m->asked_bytes) ||
      diagnosis_absurd(&x->evidence.n))
    return;
  if (strncmp(named, "data type object", strlen("data type object")) == 0) {
    r.change = "columns of numbers or categories instead of Python objects: "
               "pd.to_numeric(df[c], downcast=\"float\"), df[c].astype(\"category\"), before they "
               "are joined; and only the columns that are used";
    r.cost = "a change of the program";
    diagnosis_add(x, &r, MESSAGE_UNKNOWN);
    return;
  }
  uint64_t most = known(m->host_bytes) ? m->host_bytes : HALF_MOST;
  named += strlen("data type ");
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (strncmp(named, types[i].from, strlen(types[i].from)) != 0) continue;
    if ((double)m->asked_bytes * types[i].part > (double)most) break;
    snprintf(text, sizeof text,
             "a smaller type: dtype=np.%s takes %s instead of %s (np.uint8 for pictures, "
             "scipy.sparse for mostly zeros)",
             types[i].to, cause_size((uint64_t)((double)m->asked_bytes * types[i].part)),
             cause_size(m->asked_bytes));
    diagnosis_add(x, &r, MESSAGE_UNKNOWN);
    return;
  }
  if (m->asked_bytes / 2 <= most) {
    add_file(x, named);
    return;
  }
  snprintf(text, sizeof text,
           "do not make it as a whole: keep mostly zeros sparse (no .toarray(), .todense() or "
           ".to_numpy()), or work on parts of the rows, written to a file (np.memmap)");
  r.cost = "a change of the program";
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
}

#define CHUNK_BYTES (UINT64_C(1) << 30) /* of distances at a time */

/* Returns of how many rows the array has a number for every pair: "(4999950000,)" of pdist,
 * "(100000, 100000)" of a square table. 0: of none. */
static uint64_t paired_rows(const message *m) {
  const char *open = strchr(m->what, '(');
  unsigned long long first = 0, second = 0;
  int count = open != NULL ? sscanf(open, "(%19llu, %19llu)", &first, &second) : 0;
  if (count == 2) return first == second ? first : 0;
  if (count != 1 || first < 3 || first > UINT64_C(1) << 60) return 0;
  uint64_t low = 1, high = UINT64_C(1) << 31; /* n (n - 1) / 2 = first */
  while (low < high) {
    uint64_t middle = (low + high) / 2;
    if (middle * (middle - 1) / 2 < first)
      low = middle + 1;
    else
      high = middle;
  }
  return low * (low - 1) / 2 == first ? low : 0;
}

/* Returns whether the user's own line makes a table of distances or similarities of all pairs. */
static bool calls_pairs(const context *c) {
  static const char *const calls[] = {"pdist(",
                                      "cdist(",
                                      "squareform(",
                                      "pairwise_distances(",
                                      "cosine_similarity(",
                                      "euclidean_distances(",
                                      "cosine_distances(",
                                      "manhattan_distances(",
                                      "rbf_kernel("};
  scan_text code = {c->code, c->code + strlen(c->code)};
  return scan_has_any(code, calls, sizeof calls / sizeof *calls);
}

/* Returns whether the array has 64 bits whatever the type of the input is. */
static bool is_always_double(const context *c) {
  scan_text code = {c->code, c->code + strlen(c->code)};
  return (c->traits & TRAIT_PDIST) != 0 || scan_has(code, "cdist(") ||
         scan_has(code, "squareform(");
}

/* Suggests to make the table in blocks of rows, or not at all. */
static void add_blocks(explanation *x, unsigned long long n) {
  const context *c = &x->evidence.message.context;
  char text[400];
  unsigned long long part = CHUNK_BYTES / (8 * n);
  recipe r = {.change = text, .cost = "a loop over the blocks"};
  scan_text code = {c->code, c->code + strlen(c->code)};
  if (part == 0) part = 1;
  snprintf(text, sizeof text,
           "1 GiB of it at a time, %llu of the %llu rows: for d in "
           "sklearn.metrics.pairwise_distances_chunked(X%s, working_memory=1024): use(d), and keep "
           "only what is needed (the nearest ten: d.argpartition(10)[:, :10])",
           part, n, scan_has(code, "cosine") ? ", metric=\"cosine\"" : "");
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
  snprintf(text, sizeof text,
           "only the neighbours: sklearn.neighbors.NearestNeighbors(n_neighbors=10).fit(X)"
           ".kneighbors(X) keeps 10 for each row: %s",
           cause_size(n * 10 * 16));
  r.cost = "no distances between rows that are far apart";
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
  if (!scan_has(code, "cosine_similarity(")) return;
  snprintf(text, sizeof text,
           "if the rows are sparse (TF-IDF): cosine_similarity(x[i:i + %llu], x, "
           "dense_output=False) for each block, which stays sparse",
           part);
  r.cost = "a loop over the blocks";
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
}

/* Suggests what to do about a number for every pair of rows. Returns whether it did. */
static bool add_pairs(explanation *x) {
  const message *m = &x->evidence.message;
  const context *c = &m->context;
  bool calls = calls_pairs(c), scipy = (c->traits & TRAIT_PDIST) != 0;
  unsigned long long n = m->host == HOST_NUMPY && (calls || scipy) ? paired_rows(m) : 0;
  char text[320];
  recipe r = {.change = text, .cost = "less exact"};
  if (n < 2 || !known(m->asked_bytes)) return false;
  if (calls) add_blocks(x, n);
  if (calls && !scipy) return true;
  snprintf(text, sizeof text, "fewer rows: half of the %llu rows (X[::2]) need a quarter, %s", n,
           cause_size(m->asked_bytes / 4));
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
  if (calls) return true;
  snprintf(text, sizeof text,
           "a method without such a table: AgglomerativeClustering(linkage=\"ward\", "
           "connectivity=sklearn.neighbors.kneighbors_graph(X, 10)), MiniBatchKMeans or HDBSCAN");
  r.cost = "other clusters";
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
  return true;
}

void diagnosis_unit_fix(explanation *x) {
  const message *m = &x->evidence.message;
  char text[320];
  recipe r = {.change = text, .cost = "something else is killed"};
  if ((m->details & MESSAGE_OOMD) == 0) return;
  if (diagnosis_is_service(m)) {
    snprintf(text, sizeof text,
             "spare the service: sudo systemctl edit %.60s, with [Service] and "
             "ManagedOOMPreference=avoid below it; then sudo systemctl restart %.60s",
             m->what, m->what);
  } else {
    snprintf(text, sizeof text,
             "start it in a unit of its own with a limit, so that no other program is killed with "
             "it: systemd-run --user --scope -p MemoryMax=12G %s",
             diagnosis_python(m) ? "python train.py" : "COMMAND");
    r.cost = "it ends at that limit";
  }
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
}

/* A very large array is often a wrong bound, index or unit. */
static void add_shape(explanation *x) {
  const message *m = &x->evidence.message;
  const char *open = strchr(m->what, '('), *close = open != NULL ? strchr(open, ')') : NULL;
  char text[240];
  recipe r = {.change = text, .cost = "none"};
  if (m->host != HOST_NUMPY || close == NULL || close - open > 80 || !known(m->asked_bytes) ||
      m->asked_bytes < SHAPE_LEAST || diagnosis_absurd(&x->evidence.n))
    return;
  snprintf(
      text, sizeof text,
      "check the shape %.*s: print what it is computed from; a wrong bound, index or unit often "
      "multiplies",
      (int)(close + 1 - open), open);
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
}

/* Suggests another way to do what the user's own line calls. */
static void add_way(explanation *x) {
  const message *m = &x->evidence.message;
  const host_way *way = host_way_of(m->context.code);
  bool request = m->host == HOST_NUMPY || m->host == HOST_TORCH || m->host == HOST_PYTHON;
  if (way == NULL || !request) return;
  recipe r = {.change = way->change, .cost = way->cost};
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
}

bool diagnosis_host_fixes(explanation *x) {
  const message *m = &x->evidence.message;
  diagnosis_limit_fixes(x);
  add_request(x);
  add_pinned(x);
  bool named = diagnosis_killed_program(x);
  if (!diagnosis_is_service(m)) diagnosis_unit_fix(x);
  bool pairs = add_pairs(x);
  if (!pairs) add_way(x);
  bool larger = known(m->asked_bytes) && known(m->host_bytes) && m->asked_bytes > m->host_bytes &&
                (m->details & MESSAGE_BEYOND) == 0;
  bool limit = x->findings.list[0].id == CAUSE_HOST_LIMIT;
  /* pandas makes such arrays itself: neither their type nor their shape is the program's. */
  const host_way *way = host_way_of(m->context.code);
  bool inside = way != NULL &&
                (context_any(&m->context, CONTEXT_BIT(PANDAS)) || strcmp(way->calls, "merge") == 0);
  if ((!limit || larger) && !is_always_double(&m->context) && !inside) add_type(x);
  if (!pairs && !inside) add_shape(x);
  return named;
}
