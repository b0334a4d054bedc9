/* Host way: the table, and the cause of a value that one line of the program makes. */
#include "advise/host_way.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "advise/host_case.h"
#include "advise/host_line.h"
#include "advise/host_read.h"

#define QUARTER 0.25 /* of a process: PyTorch itself takes 200 MiB and more */

static const char EVERY_ROW[] = "it keeps a Python object (a list, a text) for every row";
static const char USE_ROWS[] = "use the result of each row as it is made: for x in column: "
                               "total.update(f(x)); or keep numbers "
                               "of it (a length, category codes) instead of lists and texts";
/* The first row that matches counts: a call inside list(…) comes before list itself. */
static const host_way ways[] = {
    {"toarray todense to_dense", CAUSE_HOST_COPIES,
     "it makes a dense array of a sparse one, with all the zeros",
     "keep it sparse (scipy.sparse and scikit-learn compute with sparse matrices), or make a block "
     "of rows dense at a time: x[i:i + 1000].toarray()",
     "a loop over the blocks"},
    {"merge", CAUSE_HOST_LIMIT,
     "a merge pairs every row with every row of the same key, in a new table of all columns beside "
     "both",
     "merge only the columns that are used (usecols=[…] when they are read, text as "
     "astype(\"category\")); if it has more rows than its parts, make the keys of one side unique "
     "first (drop_duplicates, or groupby(key).agg); merge(…, validate=\"many_to_one\") checks "
     "that; or merge a block of rows at a time and reduce it",
     "other columns cannot be used later"},
    {"join join_asof", CAUSE_HOST_LIMIT,
     "a join pairs every row with every row of the same key, in a new table of all columns beside "
     "both",
     "if it has more rows than its parts, add up each side by the key first, and join the sums: "
     "a.group_by(key).agg(…) (drop_duplicates if one row of a key is enough); select only the "
     "columns that are used; in polars a.lazy().join(b.lazy(), on=…).group_by(…).agg(…)"
     ".collect(engine=\"streaming\") never makes the whole table",
     "other columns cannot be used later"},
    {"get_dummies", CAUSE_HOST_LIMIT, "it makes one column for every value",
     "pandas.get_dummies(…, sparse=True); but look first: a column with thousands of values is "
     "often "
     "numbers read as text (pd.to_numeric), a date or an identifier (drop it); or category codes "
     "(astype(\"category\").cat.codes)",
     "not every library takes sparse columns"},
    {"pivot pivot_table unstack crosstab", CAUSE_HOST_LIMIT,
     "a wide table has a cell for every pair of row and column, most of them empty",
     "keep the long form and use groupby; or a sparse matrix: scipy.sparse.coo_matrix((values, "
     "(row_codes, column_codes)))",
     "a change of the lines that use it"},
    {"meshgrid mgrid indices", CAUSE_HOST_LIMIT, "full grids repeat every axis along the others",
     "np.meshgrid(…, sparse=True) or np.ogrid: axes that broadcast instead of full grids; then "
     "work "
     "a block of rows at a time",
     "a loop over the blocks"},
    {"repeat tile kron", CAUSE_HOST_COPIES, "it repeats data that broadcasting can share",
     "do not repeat it: broadcast (x[:, None], np.broadcast_to), or repeat a batch at a time",
     "a loop over the batches"},
    {"one_hot to_categorical eye", CAUSE_HOST_LIMIT, "a one-hot row has one number per class",
     "keep the class numbers (integers), which losses and embeddings take; or one-hot rows of one "
     "batch at a time, or scipy.sparse",
     "a change of the lines that use it"},
    {"fetchall", CAUSE_HOST_DATASET_WHOLE, "it reads all rows of the query at once",
     "read a part at a time: while rows := cursor.fetchmany(10000): for row in rows: …; let SQL "
     "filter and sum (WHERE, GROUP BY)",
     "a loop over the rows"},
    {"read_sql read_sql_query read_sql_table", CAUSE_HOST_DATASET_WHOLE,
     "it reads all rows of the query at once",
     "for part in pandas.read_sql(…, chunksize=100000); let SQL filter and sum (WHERE, GROUP BY)",
     "a loop over the parts"},
    {"[[0] * [[0]* [[0.0] * [[None] * [[False] * [[float(", CAUSE_HOST_OBJECTS,
     "a list of lists has a reference of 8 bytes for each cell, and an object for each number",
     "numpy.zeros((rows, columns), numpy.int32): 4 bytes a cell (float32, bool); or only the rows "
     "that are still read: two, if each row needs the one before it alone",
     "single cells are read more slowly"},
    {"[json.loads(", CAUSE_HOST_DATASET_WHOLE, "it keeps an object for every line of the file",
     "use each line's object as it is read: for line in file: use(json.loads(line)); or keep only "
     "the fields that are used, as numbers in arrays",
     "a change of the lines that use it"},
    {"json.loads json.load", CAUSE_HOST_DATASET_WHOLE,
     "it makes a Python object for every value of the text",
     "one record at a time: ijson.items(file, \"item\"), or JSON Lines (json.loads of one line "
     "each)",
     "a loop over the records"},
    {"ET.parse etree.parse ElementTree.parse ET.fromstring etree.fromstring minidom.parse "
     "minidom.parseString BeautifulSoup",
     CAUSE_HOST_DATASET_WHOLE, "it makes an object for every element of the document",
     "one element at a time: for _, x in ET.iterparse(file): if x.tag == \"…\": use(x); x.clear()",
     "a loop over the elements"},
    {"from_tensor_slices", CAUSE_HOST_DATASET_WHOLE,
     "it makes one tensor of the whole dataset, beside the array that it is made from",
     "keep the data in files and read it batch by batch: tf.data.Dataset.from_generator(…), "
     "keras.utils.image_dataset_from_directory(folder), or TFRecord files; pictures as uint8, "
     "which are a quarter of float32",
     "a change of the lines that load it"},
    {"pickle.loads", CAUSE_HOST_DATASET_WHOLE,
     "it makes the objects while their bytes are still there",
     "pickle.load(file) from the open file, without the bytes beside it; save arrays with "
     "numpy.save "
     "and open them with numpy.load(…, mmap_mode=\"r\")",
     "the file must be written once more"},
    {"findall", CAUSE_HOST_OBJECTS, "it makes a list of all matches, a Python string each",
     "one match at a time: for m in re.finditer(…), or read the text line by line",
     "a loop over the matches"},
    {"product permutations combinations combinations_with_replacement", CAUSE_HOST_OBJECTS,
     "it makes all combinations at once",
     "do not make a list: for c in itertools.product(…): they come one at a time",
     "it can be read only once; its length must be computed"},
    {"sorted", CAUSE_HOST_OBJECTS, "sorting makes a list of everything first",
     "heapq.nlargest(k, …) or heapq.nsmallest(k, …) if only the first are needed; otherwise sort a "
     "numpy array (numpy.sort), which takes 8 bytes a number",
     "none"},
    {"b64encode b64decode hexlify unhexlify", CAUSE_HOST_COPIES,
     "it makes another copy of all the bytes, as text a third larger",
     "encode a block at a time, a multiple of 3 bytes, into a file: while block := "
     "file.read(3 << 18): out.write(base64.b64encode(block)); send that file",
     "a temporary file"},
    {"dumps", CAUSE_HOST_COPIES, "it makes one text or bytes of the whole object",
     "write it to the file as it is made: json.dump(…, file), pickle.dump(…, file)", "none"},
    {"tolist to_pylist to_pydict iterrows itertuples to_dict", CAUSE_HOST_OBJECTS,
     "it makes a Python object for every value",
     "stay with arrays and columns, or take a block of rows at a time",
     "a change of the lines that use it"},
    {".str.split(", CAUSE_HOST_OBJECTS,
     "it makes a Python list for every row, and a string for every piece",
     "split a row's text when it is used, or keep only the piece that is needed: "
     ".str.split(…).str[0], "
     ".str.extract(…)",
     "the text is split each time"},
    {"split splitlines readlines", CAUSE_HOST_OBJECTS,
     "it makes a Python string for every piece of the text",
     "read line by line: for line in open(path): …; and keep numbers in arrays "
     "(pandas.read_csv(…, chunksize=…), numpy.loadtxt)",
     "a loop over the lines"},
    {"[:, None", CAUSE_HOST_LIMIT, "it pairs every row with every other",
     "work on a block of rows at a time: for i in range(0, n, 500): f(x[i:i + 500], x); "
     "scipy.spatial.distance.cdist needs no array of differences",
     "a loop over the blocks"},
    {"[:, np.newaxis", CAUSE_HOST_LIMIT, "it pairs every row with every other",
     "work on a block of rows at a time: for i in range(0, n, 500): f(x[i:i + 500], x); "
     "scipy.spatial.distance.cdist needs no array of differences",
     "a loop over the blocks"},
    {"linkage fclusterdata fastcluster.linkage", CAUSE_HOST_LIMIT,
     "it needs a table with one number for every pair of rows",
     "cluster a sample, and give each other row the cluster of its nearest neighbour: i = "
     "numpy.random.default_rng(0).choice(len(x), 2000, replace=False); "
     "linkage(x[i], method=\"average\"); or a method without such a table: "
     "sklearn.cluster.Birch, MiniBatchKMeans, HDBSCAN",
     "less exact"},
    {"cdist pdist outer pairwise_distances cosine_similarity", CAUSE_HOST_LIMIT,
     "it has one number for every pair of rows",
     "a block of rows at a time: for i in range(0, n, 500): f(x[i:i + 500], x), and keep only what "
     "is needed of it (the nearest ten)",
     "a loop over the blocks"},
    {"Adam AdamW NAdam RAdam Adamax Adadelta", CAUSE_HOST_LIMIT,
     "it keeps two numbers for every parameter, beside the parameter and its gradient",
     "an optimizer that keeps less: torch.optim.SGD(…), or Adafactor; for large embeddings "
     "nn.Embedding(…, sparse=True) with torch.optim.SparseAdam, whose gradients have only the rows "
     "that were used",
     "another learning rate; it may train more slowly"},
    {"svd", CAUSE_HOST_LIMIT,
     "its first result is a square matrix with a row and a column for every row of the data",
     "numpy.linalg.svd(x, full_matrices=False), which has as many columns as the smaller side; or "
     "scipy.sparse.linalg.svds(x, k) for the k largest only",
     "nothing, if only the first columns are used"},
    {"OneHotEncoder", CAUSE_HOST_LIMIT,
     "a one-hot row has one number for every value of the column",
     "a sparse matrix: OneHotEncoder(sparse_output=True), its default; or only frequent values: "
     "min_frequency=…, max_categories=…; or category codes: OrdinalEncoder",
     "not every model takes sparse input"},
    {"RandomForestClassifier RandomForestRegressor ExtraTreesClassifier ExtraTreesRegressor "
     "BaggingClassifier BaggingRegressor",
     CAUSE_HOST_LIMIT, "each of its trees may have a node for almost every row",
     "smaller trees: min_samples_leaf=20 or max_depth=12, and fewer (n_estimators=100); "
     "max_samples=0.2 gives each tree a part of the rows",
     "a coarser model"},
    {"lightgbm.Dataset lgb.Dataset", CAUSE_HOST_LIMIT,
     "LightGBM makes bins of the data beside it, one byte or two for each value, and a copy in "
     "rows or of another type first if it needs one",
     "give it float32 in rows (x.astype(np.float32)), and drop the array once the bins are made: "
     "d = lgb.Dataset(x, y, free_raw_data=True).construct(); del x; or let it read the file "
     "itself: lgb.Dataset(\"train.csv\", params={\"two_round\": True, \"max_bin\": 63})",
     "slightly coarser splits"},
    {"xgboost.DMatrix xgb.DMatrix", CAUSE_HOST_LIMIT,
     "XGBoost keeps all values as float32 beside the data",
     "xgboost.QuantileDMatrix(x, y, max_bin=64) instead of DMatrix, with float32 or sparse input; "
     "then del x",
     "slightly coarser splits"},
    {"PolynomialFeatures", CAUSE_HOST_LIMIT, "it has a column for every product of columns",
     "fewer columns: interaction_only=True, a lower degree, or products of chosen columns only",
     "the model sees fewer products"},
    {"GaussianProcessRegressor GaussianProcessClassifier AgglomerativeClustering "
     "AffinityPropagation SpectralClustering TSNE MDS Isomap",
     CAUSE_HOST_LIMIT, "it needs a table with one number for every pair of rows",
     "fit fewer rows: i = rng.choice(len(x), 2000, replace=False); fit(x[i], y[i]); or a method "
     "without such a table: kernel_approximation.Nystroem, MiniBatchKMeans, HDBSCAN",
     "less exact"},
    {".apply(", CAUSE_HOST_OBJECTS, EVERY_ROW, USE_ROWS, "a loop over the rows"},
    {"].map(", CAUSE_HOST_OBJECTS, EVERY_ROW, USE_ROWS, "a loop over the rows"},
    {"list tuple set dict Counter", CAUSE_HOST_OBJECTS,
     "it collects everything before anything is used",
     "go through it one at a time: for item in …; if numbers of all are needed at the end, keep "
     "those alone: array.array(\"d\") for each field, 8 bytes a number",
     "it can be read only once"},
    {".astype(np.float64) .astype(numpy.float64) .astype(float) .astype('float64') "
     ".astype(\"float64\")",
     CAUSE_HOST_COPIES, "it makes a second array of 8 bytes a number",
     "float32, 4 bytes a number, with the next step in place: y = x.astype(np.float32); y /= 255; "
     "or convert a batch when it is used: x[i:i + 100].astype(…)",
     "7 digits instead of 15"},
    {"np.array numpy.array np.asarray np.stack", CAUSE_HOST_COPIES,
     "it copies all parts into one array",
     "fill one array instead of a list and its copy: x = numpy.empty((n, …), dtype), x[i] = part; "
     "or in a file: numpy.lib.format.open_memmap(path, \"w+\", dtype, shape); or work on a batch "
     "at a time",
     "the number of parts must be known"},
};

/* Returns whether the first ".split(" of a line follows the name of a library of arrays: it splits
 * an array or a random key. */
static bool splits_array(const char *source, const char *at) {
  static const char *const modules[] = {"random", "np", "numpy", "jnp",  "jax", "lax",
                                        "torch",  "tf", "cp",    "cupy", "mx"};
  for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
    size_t length = strlen(modules[i]);
    const char *begin = at - length;
    if ((size_t)(at - source) < length || strncmp(begin, modules[i], length) != 0) continue;
    if (begin == source || (!isalnum((unsigned char)begin[-1]) && begin[-1] != '_')) return true;
  }
  return false;
}

/* Returns whether a line joins tables, and not texts, paths or threads. */
static bool joins_tables(const char *source) {
  return strstr(source, "on=") != NULL || strstr(source, "how=") != NULL ||
         strstr(source, "_on=") != NULL;
}

static bool collects(const char *name) {
  static const char *const names[] = {"list", "tuple", "set", "dict", "Counter"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], name) == 0) return true;
  return false;
}

/* Returns whether the value of a line is that call, or another one of it alone: "n = len(set(x))",
 * but not "draw(x, tuple(y))". */
static bool is_outermost(const char *name, const char *source) {
  size_t length = strlen(name);
  for (const char *at = source; (at = strstr(at, name)) != NULL; at += length) {
    const char *begin = at;
    while (begin > source &&
           (isalnum((unsigned char)begin[-1]) || strchr("_.(", begin[-1]) != NULL))
      begin--;
    if (at[length] == '(' && (begin == source || begin[-1] == ' ' || begin[-1] == '=') &&
        memchr(source, '(', (size_t)(begin - source)) == NULL)
      return true;
  }
  return false;
}

/* Returns whether a line calls `name` in a way that needs little memory. */
static bool calls_with_care(const char *name, const char *source) {
  if (strcmp(name, "split") == 0) { /* a tensor into parts of a size; a text is split at a text */
    const char *at = strstr(source, ".split(");
    return at != NULL && ((at[7] >= '0' && at[7] <= '9') || splits_array(source, at));
  }
  if (strchr(name, '.') == NULL && collects(name)) return !is_outermost(name, source);
  if (strcmp(name, "dumps") == 0) return strstr(source, " for ") != NULL; /* of one part each */
  if (strcmp(name, "join") == 0) return !joins_tables(source);
  return strcmp(name, "svd") == 0 && strstr(source, "full_matrices=False") != NULL;
}

/* Returns whether a line contains one of these texts, which begin with a sign. A text may contain
 * spaces: the next one begins behind " [" or " .". */
static bool has_text(const char *source, const char *texts) {
  char one[48];
  for (const char *at = texts; *at != '\0';) {
    const char *end = at + 1;
    while (*end != '\0' && !(end[0] == ' ' && strchr("[.", end[1]) != NULL && end[1] != '\0'))
      end++;
    snprintf(one, sizeof one, "%.*s", (int)(end - at), at);
    if (strstr(source, one) != NULL) return true;
    at = end + (*end == ' ');
  }
  return false;
}

/* Returns whether a line multiplies a matrix with itself, "x @ x.T": a number for every pair of
 * rows. */
static bool pairs_rows(const char *source) {
  for (const char *at = source; (at = strstr(at, " @ ")) != NULL; at += 3) {
    const char *begin = at;
    while (begin > source && (isalnum((unsigned char)begin[-1]) || strchr("_.", begin[-1]) != NULL))
      begin--;
    size_t length = (size_t)(at - begin);
    if (length > 0 && strncmp(at + 3, begin, length) == 0 && strncmp(at + 3 + length, ".T", 2) == 0)
      return true;
  }
  return false;
}

const host_way *host_way_of(const char *source) {
  if (source != NULL && pairs_rows(source)) return host_way_of("pdist()");
  for (size_t i = 0; source != NULL && i < sizeof ways / sizeof *ways; i++) {
    if (strchr("[.]", ways[i].calls[0]) != NULL) {
      if (has_text(source, ways[i].calls)) return &ways[i];
      continue;
    }
    char name[48];
    for (const char *at = ways[i].calls; *at != '\0';) {
      size_t length = strcspn(at, " ");
      snprintf(name, sizeof name, "%.*s", (int)length, at);
      if (host_line_calls(source, name) && !calls_with_care(name, source)) return &ways[i];
      at += length + strspn(at + length, " ");
    }
  }
  return NULL;
}

/* Where libraries do what a line does not name, as model.fit(x): part of the file, and the call
 * whose row says more. The first row that matches any frame counts. */
static const struct {
  const char *path, *call;
} inner[] = {{"/lightgbm/basic.py", "lightgbm.Dataset()"},
             {"/xgboost/core.py", "xgboost.DMatrix()"},
             {"/xgboost/data.py", "xgboost.DMatrix()"},
             {"/sklearn/preprocessing/_encoders.py", "OneHotEncoder()"},
             {"/sklearn/preprocessing/_polynomial.py", "PolynomialFeatures()"},
             {"/sklearn/gaussian_process/", "GaussianProcessRegressor()"},
             {"/sklearn/manifold/", "TSNE()"},
             {"/sklearn/cluster/_agglomerative.py", "AgglomerativeClustering()"},
             {"/sklearn/cluster/_affinity_propagation.py", "AffinityPropagation()"},
             {"/sklearn/cluster/_spectral.py", "SpectralClustering()"},
             {"/scipy/cluster/hierarchy.py", "linkage()"},
             {"/sklearn/ensemble/_forest.py", "RandomForestRegressor()"},
             {"/sklearn/ensemble/_bagging.py", "BaggingRegressor()"},
             {"/scipy/spatial/distance.py", "pdist()"},
             {"/sklearn/metrics/pairwise.py", "pairwise_distances()"},
             {"/pandas/core/reshape/merge.py", "merge()"},
             {"/pandas/core/reshape/pivot.py", "pivot_table()"},
             {"/pandas/core/reshape/encoding.py", "get_dummies()"},
             {"/pandas/core/reshape/reshape.py", "unstack()"}};

const host_way *host_way_of_library(const host_record *r) {
  for (size_t k = 0; k < sizeof inner / sizeof *inner; k++)
    for (size_t i = 0; i < r->frame_count && !host_line_is_own(&r->frames[i]); i++)
      if (strstr(r->frames[i].file, inner[k].path) != NULL) return host_way_of(inner[k].call);
  return NULL;
}

/* A line works on a whole mapped file: every element is copied into memory. */
static const host_object *find_mapped(const host_record *r, const char *source) {
  for (size_t i = 0; source != NULL && i < r->object_count; i++)
    if (strcmp(r->objects[i].mark, "mapped") == 0 && host_line_has(source, r->objects[i].name))
      return &r->objects[i];
  return NULL;
}

/* Returns how many rows of an array take about 64 MiB, in one digit: 200 of "(2000, 40000)" of
 * float64. */
static unsigned rows_at_once(const host_object *o) {
  double bytes = 1;
  const char *digits = o->of + strcspn(o->of, "0123456789");
  unsigned bits = 0;
  sscanf(digits, "%u", &bits);
  bytes *= bits >= 8 && bits <= 256 ? bits / 8 : 1;
  for (const char *at = strchr(o->shape, ','); at != NULL; at = strchr(at + 1, ',')) {
    double dim = 0;
    if (sscanf(at + 1, "%lf", &dim) == 1 && dim > 0) bytes *= dim;
  }
  double rows = (double)(64 << 20) / bytes, scale = 1;
  while (rows >= 10 && scale < 1e6) rows /= 10, scale *= 10;
  return rows < 1 ? 1 : (unsigned)(rows < 10 ? rows : 9) * (unsigned)scale;
}

static cause *add_mapped(host_case *c, const host_object *mapped, const char *what,
                         uint64_t bytes) {
  cause *to = host_add(c, CAUSE_HOST_COPIES, 0.94);
  cause_head(to, "%s: %s, which is a mapped file, is copied into memory", what, mapped->name);
  cause_say(to, "%s: a %s %s of %s: it takes no memory until a copy is made", mapped->name,
            mapped->type, mapped->shape, mapped->of);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  char change[400];
  unsigned rows = rows_at_once(mapped);
  snprintf(change, sizeof change,
           "work on slices, without a copy of the whole: for i in range(0, len(%s), %u): part = "
           "%s[i:i + %u]; compute with part (astype, / 255), and keep only the results",
           mapped->name, rows, mapped->name, rows);
  host_add_fix(c, bytes - bytes / 8, change, "a loop over the slices");
  return to;
}

/* The line that makes a value without a name: where a generator runs, the line that consumes it. */
typedef struct making {
  const char *source;
  char where[160];
} making;

static making making_line(const host_record *r) {
  making m = {.source = host_line_own(r)};
  host_line_where(r, m.where, sizeof m.where);
  for (size_t i = 0; i < r->object_count; i++)
    if (strcmp(r->objects[i].mark, "nameless") == 0 && r->objects[i].source[0] != '\0') {
      m.source = r->objects[i].source;
      host_place(m.where, sizeof m.where, &r->objects[i]);
      break;
    }
  return m;
}

/* Writes "Line 6 of a.py makes merged, 304.0 MiB so far", or "makes temporary values, 304.0 MiB".
 */
static void say_making(const host_record *r, const making *m, char *out, size_t size,
                       uint64_t bytes) {
  char target[64];
  if (host_line_makes_temporaries(m->source)) {
    snprintf(out, size, "%s makes temporary values, %s",
             m->where[0] != '\0' ? m->where : "the line", cause_size(bytes));
    if (out[0] == 'l') out[0] = 'L';
    return;
  }
  host_line_result(r, m->source, target, sizeof target);
  snprintf(out, size, "%s makes %s%s%s so far", m->where[0] != '\0' ? m->where : "the line", target,
           target[0] != '\0' ? ", " : "", cause_size(bytes));
  if (out[0] == 'l') out[0] = 'L';
}

/* Returns whether that line adds to a container with a name that is much of what is held: what has
 * no name is then the rest of it, whose size is an estimate. */
static bool fills(const host_object *o, const making *m, uint64_t held) {
  char place[160];
  host_place(place, sizeof place, o);
  return o->grows && host_is_container(o) && !host_is_unnamed(o) && strcmp(place, m->where) == 0 &&
         evidence_share(o->bytes, held) >= MUCH;
}

/* Returns whether what has no name can be Python objects that such a line makes. Beside a framework
 * that compiles and computes in C code, the report has to show objects or texts. A report that is
 * late was made before the call, which holds the interpreter's lock: it shows nothing of it. */
static bool shows_objects(const host_record *r, uint64_t made) {
  uint64_t sum = 0;
  for (size_t i = 0; i < r->object_count; i++) {
    const host_object *o = &r->objects[i];
    bool text = strcmp(o->type, "str") == 0 || strncmp(o->type, "byte", 4) == 0;
    if (text || strcmp(o->mark, "nameless") == 0 || strcmp(o->mark, "uncollected") == 0 ||
        host_is_container(o) || o->text_bytes > 0)
      sum += o->bytes;
  }
  return r->late || !host_has_framework(r) || sum >= made / 8;
}

/* Returns whether what a line joins are parts of one array: "np.array([x[i:i + n] for …])". */
static bool joins_windows(const host_record *r, const char *source) {
  for (size_t i = 0; i < r->object_count; i++)
    if (strcmp(r->objects[i].mark, "view") == 0 && host_line_has(source, r->objects[i].name))
      return true;
  for (const char *at = source; (at = strchr(at, '[')) != NULL; at++) {
    size_t length = strcspn(at + 1, "[](,");
    bool of_name = at > source && (isalnum((unsigned char)at[-1]) || at[-1] == '_');
    if (of_name && at[1 + length] == ']' && memchr(at + 1, ':', length) != NULL) return true;
  }
  return false;
}

static void add_way_fix(host_case *c, uint64_t saves_bytes, const host_way *way,
                        const char *source) {
  char change[400];
  bool pairs = strncmp(way->calls, "[:, ", 4) == 0 || strncmp(way->calls, "cdist ", 6) == 0;
  snprintf(change, sizeof change, "%s%s", way->change,
           pairs && !host_is_narrow(c->r, source) ? "; float32 halves it" : "");
  if (strncmp(way->calls, "json.", 5) == 0) host_read_json(change, sizeof change, c->r, "");
  if (strncmp(way->calls, "np.array ", 9) == 0 && joins_windows(c->r, source))
    snprintf(change, sizeof change,
             "windows of one array need no copy: numpy.lib.stride_tricks.sliding_window_view(x, "
             "n)[::step]; or work on a batch of them at a time");
  host_add_fix(c, saves_bytes, change, way->cost);
}

/* Returns the rows of a table: 12 of "(12, 3)". */
static uint64_t rows_of(const host_object *o) {
  unsigned long long rows = 0;
  return sscanf(o->shape, "(%llu", &rows) == 1 ? rows : 0;
}

/* Says that a join has more rows than the tables of its line together: keys repeat on both sides.
 */
static void say_rows(const host_record *r, cause *to, const host_object *o) {
  char parts[160] = "";
  uint64_t sum = 0;
  size_t length = 0;
  for (size_t i = 0; i < r->object_count; i++) {
    const host_object *p = &r->objects[i];
    if (p == o || !host_is_table(p) || !host_line_has(o->source, p->name)) continue;
    sum += rows_of(p);
    if (length + 90 < sizeof parts)
      length += (size_t)snprintf(parts + length, sizeof parts - length, "%s%.40s %" PRIu64,
                                 length > 0 ? ", " : "", p->name, rows_of(p));
  }
  if (sum > 0 && rows_of(o) > 2 * sum)
    buffer_printf(&to->headline,
                  "; %.40s has %" PRIu64 " rows, its parts fewer (%s): a key repeats "
                  "on both sides",
                  o->name, rows_of(o), parts);
}

/* The line that the program is at makes a value that is most of what is held. */
static bool find_making(host_case *c) {
  const host_record *r = c->r;
  making m = making_line(r);
  uint64_t made = host_made_bytes(c);
  if (!r->from_inside || c->stale || m.source == NULL ||
      evidence_share(made, c->reported_bytes) < MUCH)
    return false;
  /* Saved activations have no name either. A larger object with a name comes first. */
  for (size_t i = 0; i < r->object_count; i++)
    if (fills(&r->objects[i], &m, c->reported_bytes) || strcmp(r->objects[i].mark, "graph") == 0 ||
        strcmp(r->objects[i].mark, "carried") == 0 ||
        (r->objects[i].bytes > made && !host_is_array(&r->objects[i]) &&
         !host_line_has(m.source, r->objects[i].name)))
      return false;
  char what[280];
  const host_object *mapped = find_mapped(r, m.source);
  if (mapped != NULL && host_line_target_is_new(m.source)) {
    say_making(r, &m, what, sizeof what, made);
    add_mapped(c, mapped, what, made)->names_line = m.where[0] != '\0';
    return true;
  }
  const host_way *way = host_way_of(m.source);
  if (way == NULL) way = host_way_of_library(r);
  if (way == NULL || host_line_reads(r) != NULL) return false;
  if (way->id == CAUSE_HOST_OBJECTS && !shows_objects(r, made)) return false;
  say_making(r, &m, what, sizeof what, made);
  cause *to = host_add(c, way->id, 0.92);
  cause_head(to, "%s: %s", what, way->what);
  to->names_line = m.where[0] != '\0';
  cause_say(to, "the line: %s", m.source);
  for (size_t i = 0; i < r->object_count && i < 3; i++) host_say_object(to, &r->objects[i]);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  add_way_fix(c, made - made / 4, way, m.source);
  return true;
}

/* Returns the bytes of everything made by the line that made this. */
static uint64_t made_with(const host_record *r, const host_object *o) {
  uint64_t sum = 0;
  for (size_t i = 0; i < r->object_count; i++)
    if (strcmp(r->objects[i].place, o->place) == 0) sum += r->objects[i].bytes;
  return sum;
}

/* A value that is most of what is held was made by such a call before. */
static void find_made(host_case *c) {
  const host_record *r = c->r;
  for (size_t i = 0; i < r->object_count && i < 2; i++) {
    const host_object *o = &r->objects[i];
    if (o->source[0] == '\0' || o->grows ||
        evidence_share(made_with(r, o), c->reported_bytes) < QUARTER || host_is_unnamed(o))
      continue;
    char text[480];
    const host_object *mapped = find_mapped(r, o->source);
    host_describe(text, sizeof text, o);
    if (mapped != NULL && host_is_array(o) && o != mapped) {
      add_mapped(c, mapped, text, o->bytes);
      return;
    }
    const host_way *way = host_way_of(o->source);
    if (way == NULL || (way->id == CAUSE_HOST_OBJECTS && !host_is_container(o))) continue;
    cause *to = host_add(c, way->id, 0.91);
    cause_head(to, "%s: %s", text, way->what);
    cause_say(to, "the line: %s", o->source);
    if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
    if (strncmp(way->calls, "merge", 5) == 0 || strncmp(way->calls, "join", 4) == 0)
      say_rows(r, to, o);
    add_way_fix(c, o->bytes - o->bytes / 4, way, o->source);
    return;
  }
}

void host_find_made(host_case *c) {
  if (!find_making(c)) find_made(c);
}

void host_say_making(host_case *c, cause *to, uint64_t bytes) {
  char what[280];
  making m = making_line(c->r);
  say_making(c->r, &m, what, sizeof what, bytes);
  cause_head(to, "%s", what);
  to->names_line = m.where[0] != '\0';
}
