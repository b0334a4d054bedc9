/* Host native: memory that no Python object holds, seen by its mappings: shared memory, and memory
 * of C code. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "advise/host_case.h"
#include "advise/host_line.h"
#include "advise/recipes.h"

/* Returns the first object with that mark, or NULL; the largest comes first. "shared": a container
 * or array of shared memory. "database": a connection to a database that may be in memory.
 * "library": a C library that the program calls through ctypes or cffi. */
static const host_object *marked(const host_record *r, const char *mark) {
  for (size_t i = 0; i < r->object_count; i++)
    if (strcmp(r->objects[i].mark, mark) == 0) return &r->objects[i];
  return NULL;
}

/* Writes what to do about mappings that a container keeps: how many of them fit a quarter of the
 * limit, at most half of them. */
static void keep_mappings(const host_case *c, const host_object *o, char *out, size_t size) {
  static const char file[] =
      "or map a file (mmap.mmap(file.fileno(), 0)), which takes no memory for good";
  uint64_t each = o->bytes / (o->count > 0 ? o->count : 1);
  uint64_t most = each > 0 ? c->r->limit_bytes / 4 / each : 0;
  if (most > o->count / 2) most = o->count / 2;
  if (!host_is_container(o) || most == 0) {
    snprintf(out, size, "close() each mapping after its last use; %s", file);
    return;
  }
  snprintf(out, size,
           "close() each mapping after its last use, or keep the last %" PRIu64
           " (%s): if len(%.40s) > %" PRIu64 ": %.40s.pop(%s%.40s%s).close(); %s",
           most, cause_size(most * each), o->name, most, o->name,
           strstr(o->type, "dict") != NULL ? "next(iter(" : "0",
           strstr(o->type, "dict") != NULL ? o->name : "",
           strstr(o->type, "dict") != NULL ? "))" : "", file);
}

void host_find_shared(host_case *c) {
  const host_record *r = c->r;
  uint64_t most = r->kinds[TREE_SHARED], sum = 0;
  for (size_t i = 0; i < r->process_count; i++) {
    if (r->processes[i].shared_bytes > most) most = r->processes[i].shared_bytes;
    sum += r->processes[i].shared_bytes;
  }
  const host_object *o = marked(r, "shared");
  /* Workers fill a part of one block each. */
  if (o != NULL && o->bytes > most && sum > most) most = o->bytes < sum ? o->bytes : sum;
  double share = evidence_share(most, r->held_bytes);
  if (share < MUCH || c->pinned) return;
  char text[480] = "", path[160] = "";
  unsigned segments = 0;
  bool torch = false;
  for (size_t i = 0; i < r->map_count; i++)
    if (r->maps[i].kind == TREE_SHARED) {
      if (segments++ == 0) snprintf(path, sizeof path, "%.150s", r->maps[i].path);
      torch = torch || strstr(r->maps[i].path, "torch_") != NULL;
    }
  bool one = o != NULL && strcmp(o->type, "multiprocessing.SharedMemory") == 0 &&
             evidence_share(o->bytes, most) >= MOST;
  cause *to = host_add(c, CAUSE_HOST_SHARED, share >= MOST || o != NULL ? 0.94 : 0.6);
  if (o != NULL) host_describe(text, sizeof text, o);
  /* mmap.mmap(-1, n): no file, and no name that another process could open. */
  bool mapped = o != NULL && (strcmp(o->of, "mmap.mmap") == 0 || strcmp(o->type, "mmap.mmap") == 0);
  cause_head(to, "%s hold%s %s%s%s",
             mapped ? "Anonymous mappings (mmap)" : "Shared memory (/dev/shm)", mapped ? "" : "s",
             cause_size(most), text[0] != '\0' ? ": " : "", text);
  cause_say(to, mapped ? "a mapping without a file is memory until it is closed, or nothing refers "
                         "to it"
                       : "shared memory counts as RAM until every process has closed it and it is "
                         "unlinked");
  if (segments > 0 && !mapped)
    cause_say(to, "%u of its segments are mapped, such as %s", segments, path);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  if (mapped) {
    char change[400];
    keep_mappings(c, o, change, sizeof change);
    host_add_fix(c, most - most / 4, change, "a mapping that was closed cannot be read again");
    return;
  }
  host_add_fix(c, one ? MESSAGE_UNKNOWN : most - most / 4, /* all of one block may be needed */
               torch ? "drop tensors of shared memory after their last use (del batch, no list "
                       "of batches); clone() what must stay; fewer workers and prefetch_factor=1"
               : one
                   ? "a smaller type in the block (float32 instead of float64), or no block of all "
                     "results: let each worker reduce its part and return only what is needed"
                   : "close() and unlink() each block after its last use, or reuse one block for "
                     "all iterations",
               "an unlinked block can no longer be opened by name");
}

/* A database in memory is C memory: SQLite and DuckDB allocate it themselves. */
static void find_database(host_case *c, const host_object *o, uint64_t bare) {
  bool sure = strstr(o->source, ":memory:") != NULL;
  bool duck = strstr(o->type, "DuckDB") != NULL;
  char place[160], change[400];
  host_place(place, sizeof place, o);
  cause *to = host_add(c, CAUSE_HOST_NATIVE, sure ? 0.9 : 0.6);
  cause_head(to, "%s, a %s, %s a database of about %s in memory%s%s", o->name, o->type,
             sure ? "holds" : "probably holds", cause_size(bare),
             place[0] != '\0' ? ", opened at " : "", place);
  cause_say(to, "no Python object accounts for %s of the %s held: the database is C memory",
            cause_size(bare), cause_size(c->reported_bytes));
  if (o->source[0] != '\0') cause_say(to, "the line: %s", o->source);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  snprintf(change, sizeof change,
           duck ? "keep the database in a file: %s = duckdb.connect(\"data.duckdb\") instead of "
                  "\":memory:\"; it then keeps in memory what fits SET memory_limit = '1GB'"
                : "keep the database in a file: %s = sqlite3.connect(\"data.db\") instead of "
                  "\":memory:\"; it then holds 2 MB of pages in memory (PRAGMA cache_size)",
           o->name);
  host_add_fix(c, bare - bare / 20, change, "slower: disk; commit() many rows at once");
  snprintf(change, sizeof change,
           "keep fewer rows: insert only what is asked for later, or delete old ones: "
           "%s.execute(\"DELETE FROM …\"); the freed pages are used again",
           o->name);
  host_add_fix(c, bare / 2, change, "rows that are gone cannot be asked for");
}

/* What CUDA and its libraries keep in host memory: a context 0.2 to 0.5 GiB, with cuDNN and cuBLAS
 * 1 to 3 GiB, with XLA's compiler up to 4 GiB. More than that is something else. */
#define CUDA_MOST ((uint64_t)4 << 30)

static bool uses_cuda(const host_record *r) {
  for (size_t i = 0; i < r->map_count; i++)
    if (tree_map_is_driver(&r->maps[i])) return true;
  return false;
}

/* Returns the name of a library that keeps code and tables in host memory for a device; NULL for
 * any other mapping. */
static const char *device_library(const tree_map *m) {
  static const struct {
    const char *part, *name;
  } known[] = {{"xla_cuda", "XLA"},
               {"xla_extension", "XLA"},
               {"jaxlib", "XLA"},
               {"libcudnn", "cuDNN"},
               {"libcublas", "cuBLAS"},
               {"libcufft", "cuFFT"},
               {"libcusparse", "cuSPARSE"},
               {"libcusolver", "cuSOLVER"},
               {"libnvrtc", "NVRTC"},
               {"libnccl", "NCCL"},
               {"libtorch_cuda", "PyTorch's kernels"},
               {"libcuda.so", "the driver"}};
  for (size_t i = 0; m->kind == TREE_FILE && i < sizeof known / sizeof *known; i++)
    if (strstr(m->path, known[i].part) != NULL) return known[i].name;
  return NULL;
}

bool host_has_framework(const host_record *r) {
  static const char *const folders[] = {"/torch/",      "/jax/",  "/jaxlib/",
                                        "/tensorflow/", "/cupy/", "/xla_cuda"};
  for (size_t k = 0; k < sizeof folders / sizeof *folders; k++) {
    for (size_t i = 0; i < r->frame_count; i++)
      if (strstr(r->frames[i].file, folders[k]) != NULL) return true;
    for (size_t i = 0; i < r->map_count; i++)
      if (r->maps[i].kind == TREE_FILE && strstr(r->maps[i].path, folders[k]) != NULL) return true;
  }
  return uses_cuda(r);
}

/* Writes "cuDNN, cuBLAS", those with the most memory first. */
static void list_libraries(const host_record *r, char *out, size_t size) {
  out[0] = '\0';
  for (size_t i = 0; i < r->map_count; i++) {
    const char *name = device_library(&r->maps[i]);
    if (name == NULL || strstr(out, name) != NULL) continue;
    size_t used = strlen(out);
    snprintf(out + used, size - used, "%s%s", used > 0 ? ", " : "", name);
  }
}

/* Arrays and activations of such a program are on the device, so they explain no host memory. */
static void find_cuda(host_case *c, uint64_t bare) {
  char libraries[200];
  list_libraries(c->r, libraries, sizeof libraries);
  cause *to = host_add(c, CAUSE_HOST_NATIVE, 0.6);
  cause_head(to,
             "about %s is memory of C code, most of it probably of CUDA: its context and the "
             "libraries it uses%s%s%s",
             cause_size(bare), libraries[0] != '\0' ? " (" : "", libraries,
             libraries[0] != '\0' ? ")" : "");
  cause_say(to,
            "of the %s held, Python variables account for %s; arrays on the device take no "
            "host memory",
            cause_size(c->reported_bytes), cause_size(c->reported_bytes - bare));
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
}

enum { PASS_NONE, PASS_INFERENCE, PASS_TRAINING };

/* Returns whether it is known that the layers that run record nothing for a backward pass: they
 * compute under torch.no_grad(), or nothing in them has a gradient. */
static bool records_nothing(const host_record *r) {
  return r->tensors > 0 && r->tensors_graph == 0;
}

/* Returns in what pass of a PyTorch model the program is. A forward pass counts as training if a
 * function that calls it says so. */
static int pass_of(const host_record *r) {
  int pass = PASS_NONE;
  for (size_t i = 0; i < r->frame_count; i++) {
    const host_frame *f = &r->frames[i];
    if (strstr(f->file, "/torch/autograd/") != NULL || strstr(f->file, "/torch/optim/") != NULL)
      return PASS_TRAINING;
    if (strstr(f->file, "/torch/nn/modules/") != NULL) pass = PASS_INFERENCE;
    if (pass == PASS_INFERENCE && host_line_is_own(f) && !records_nothing(r) &&
        (strstr(f->name, "train") != NULL || strstr(f->name, "fit") != NULL))
      return PASS_TRAINING;
  }
  return pass;
}

/* A training step keeps the activations of its forward pass until the backward pass. */
static void find_training(host_case *c, uint64_t bare) {
  cause *to = host_add(c, CAUSE_BATCH_TOO_BIG, 0.6);
  char where[160] = "";
  host_line_where(c->r, where, sizeof where);
  cause_head(to,
             "PyTorch holds %s in a training step%s%s: probably activations, which the backward "
             "pass needs, and gradients",
             cause_size(bare), where[0] != '\0' ? " at " : "", where);
  to->names_line = where[0] != '\0';
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  host_add_fix(c, bare / 2, RECIPE_HALF_BATCH,
               "the same result, unless layers use the batch's statistics");
  host_add_fix(c, bare / 2,
               "checkpoint the layers: torch.utils.checkpoint.checkpoint(layer, x, "
               "use_reentrant=False)",
               "their forward pass is computed twice");
}

/* Layers that record nothing hold what they compute, and free it. */
static void find_layers(host_case *c, uint64_t bare) {
  cause *to = host_add(c, CAUSE_BATCH_TOO_BIG, 0.7);
  char where[160] = "";
  host_line_where(c->r, where, sizeof where);
  cause_head(to, "PyTorch's layers hold %s%s%s: what they compute for the whole batch",
             cause_size(bare), where[0] != '\0' ? " at " : "", where);
  to->names_line = where[0] != '\0';
  cause_say(to, "no tensor of theirs is in an autograd graph, so nothing is kept for a backward "
                "pass");
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  host_add_fix(c, bare / 2,
               "a smaller batch: for part in x.split(8): y.append(model(part)); or layers in half "
               "the size: model.bfloat16(), x.bfloat16()",
               "more calls of the model");
}

/* A forward pass keeps what its backward pass would need. */
static void find_activations(host_case *c, uint64_t bare) {
  cause *to = host_add(c, CAUSE_NO_GRAD_MISSING, 0.5);
  char where[160] = "";
  host_line_where(c->r, where, sizeof where);
  cause_head(to,
             "PyTorch's layers hold %s%s%s: probably activations that a backward pass would need",
             cause_size(bare), where[0] != '\0' ? " at " : "", where);
  to->names_line = where[0] != '\0';
  cause_say(to, "model.eval() does not switch that off");
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  host_add_fix(
      c, bare / 2,
      "if nothing is trained: with torch.inference_mode(): (or torch.no_grad()) around the "
      "calls of the model; and a smaller batch",
      "no gradients are computed");
}

/* Returns the list of tensors that grows at a line of the program, if it is a tenth of what is
 * held: what each pass computes beside its result is freed, but lies between results that are kept,
 * so malloc cannot give it back. NULL if there is none. */
static const host_object *find_kept(const host_record *r) {
  for (size_t i = 0; i < r->object_count; i++) {
    const host_object *o = &r->objects[i];
    if (o->grows && host_is_container(o) && strcmp(o->of, "torch.Tensor") == 0 && o->count >= 8 &&
        evidence_share(o->bytes, r->held_bytes) >= 0.1)
      return o;
  }
  return NULL;
}

static void add_kept(host_case *c, const host_object *o, uint64_t bare) {
  cause *to = host_add(c, CAUSE_HOST_LEAK, 0.75);
  char text[480], change[400];
  host_describe(text, sizeof text, o);
  cause_head(to, "%s; with what the passes free between them %s", text,
             cause_size(o->bytes + bare));
  cause_say(to, "no tensor is in an autograd graph: these are results, not activations");
  cause_say(to, "memory that a pass frees lies between results that are kept: malloc keeps it");
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  snprintf(change, sizeof change,
           "make one tensor for all results before the loop, and fill it: %.40s = torch.empty((n, "
           "…)); %.40s[i] = …; or keep of each only what is needed (a mean, .half()), or write it "
           "to a file (torch.save)",
           o->name, o->name);
  host_add_fix(c, bare, change, "the number of results must be known");
}

/* Returns whether a queue or a deque is a fifth of what is held: it held more before, and what it
 * freed stays with the allocator. */
static bool empties(const host_record *r) {
  const host_object *o = &r->objects[0];
  return r->object_count > 0 && o->grows && evidence_share(o->bytes, r->inside_bytes) >= 0.2 &&
         (strstr(o->type, "Queue") != NULL || strstr(o->type, "deque") != NULL);
}

/* Returns whether a quarter of that memory was freed meanwhile, or more: temporary values come and
 * go. What C code keeps stays. */
static bool comes_and_goes(const host_record *r, uint64_t bare) {
  uint64_t high = 0;
  for (size_t i = 0; i < r->sample_count; i++) {
    uint64_t now = r->samples[i].bytes;
    bool ends = i + 1 == r->sample_count; /* the end of the program frees everything */
    if (!ends && now + bare / 4 < high && now > r->peak_bytes / 4) return true;
    if (now > high) high = now;
  }
  return false;
}

/* Memory without a name grew repeatedly while the program continued: this is not one value that a
 * line is making, but memory that C calls leave behind. */
void host_find_native(host_case *c) {
  const host_record *r = c->r;
  uint64_t named = host_named_bytes(r);
  uint64_t bare = c->reported_bytes > named ? c->reported_bytes - named : 0;
  double share = evidence_share(bare, c->reported_bytes);
  if (!r->from_inside || share < MOST || c->x->findings.count > 0) return;
  const host_object *connection = marked(r, "database");
  if (connection != NULL) {
    find_database(c, connection, bare);
    return;
  }
  if (empties(r)) return;
  int pass = pass_of(r);
  if (uses_cuda(r) && bare <= CUDA_MOST) {
    find_cuda(c, bare);
    return;
  }
  const host_object *kept = pass != PASS_NONE && records_nothing(r) ? find_kept(r) : NULL;
  if (kept != NULL) {
    add_kept(c, kept, bare);
    return;
  }
  if (pass != PASS_NONE) {
    (pass == PASS_TRAINING ? find_training
     : records_nothing(r)  ? find_layers
                           : find_activations)(c, bare);
    return;
  }
  const host_object *library = marked(r, "library");
  char called[160] = "";
  if (library != NULL) host_place(called, sizeof called, library);
  if (r->inside_turns < (called[0] != '\0' ? 1 : 2)) return;
  if (called[0] == '\0' && comes_and_goes(r, bare)) return;
  cause *to = host_add(c, CAUSE_HOST_NATIVE, r->inside_turns >= 3 ? 0.85 : 0.7);
  if (called[0] != '\0')
    cause_head(to,
               "C code holds %s that no Python object accounts for; it is called through %s at %s",
               cause_size(bare), library->name, called);
  else
    cause_head(to, "C code holds %s that no Python object accounts for%s%s", cause_size(bare),
               c->place[0] != '\0' ? ", and it grows at " : "", c->place);
  to->names_line = called[0] != '\0' || c->place[0] != '\0';
  if (called[0] != '\0' && c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  const char *source = called[0] != '\0' ? library->source : host_line_own(r);
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
