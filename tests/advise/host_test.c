/* Host records made by hand: checks which cause each kind of evidence leads to. tests/shim/host.sh
 * runs real programs. */
#include "advise/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise/host_case.h"
#include "advise/host_peak.h"
#include "advise/host_way.h"
#include "harness.h"

#define MIB (UINT64_C(1) << 20)

static const host_object picture = {.bytes = 600 * MIB,
                                    .count = 2000,
                                    .name = "photos",
                                    .where = "module train.py",
                                    .type = "numpy.ndarray",
                                    .of = "float64",
                                    .shape = "(2000, 40000)",
                                    .element_bytes = 300 << 10};

/* Returns a Python process of 1000 MiB with a limit of 1000 MiB, on a host with 20 GiB more. */
static host_record *blank(void) {
  host_record *r = calloc(1, sizeof *r);
  CHECK(r != NULL);
  r->limit_bytes = r->held_bytes = r->peak_bytes = 1000 * MIB;
  r->total_bytes = 24576 * MIB;
  r->usable_bytes = 20480 * MIB;
  snprintf(r->limit_from, sizeof r->limit_from, "given");
  r->processes[0] =
      (tree_process){.pid = 10, .parent = 1, .name = "python", .held_bytes = 1000 * MIB};
  r->process_count = 1;
  r->from_inside = true;
  return r;
}

static void at_line(host_record *r, const char *file, const char *source) {
  host_frame *f = &r->frames[r->frame_count++];
  snprintf(f->file, sizeof f->file, "%s", file);
  snprintf(f->name, sizeof f->name, "f");
  snprintf(f->source, sizeof f->source, "%s", source);
  f->line = 7;
}

static void holds(host_record *r, const host_object *o, const char *name, uint64_t bytes) {
  host_object *to = &r->objects[r->object_count++];
  *to = *o;
  to->bytes = bytes;
  snprintf(to->name, sizeof to->name, "%s", name);
}

static cause_id first(const host_record *r) {
  explanation x;
  CHECK_OK(explain_host(&x, r));
  cause_id id = x.findings.list[0].id;
  explanation_free(&x);
  return id;
}

TEST(a_line_that_makes_another_array_is_a_copy)
{
  static const struct {
    const char *source;
    cause_id id;
  } lines[] = {{"photos = photos / 255.0", CAUSE_HOST_COPIES},
               {"scaled = (photos - photos.mean()) / photos.std()", CAUSE_HOST_COPIES},
               {"return np.log(photos)", CAUSE_HOST_COPIES},
               {"photos /= 255.0", CAUSE_HOST_LIMIT},
               {"return (photos.T @ photos) / rows", CAUSE_HOST_LIMIT},
               {"spectrum = np.fft.rfft(photos)", CAUSE_HOST_LIMIT},
               {"scores = photos.dot(photos.T) + 1", CAUSE_HOST_LIMIT},
               {"other_photos = more / 255", CAUSE_HOST_LIMIT},
               {"photos[\"key\"] = photos[\"a\"] + photos[\"b\"]", CAUSE_HOST_LIMIT},
               {"answer = input()", CAUSE_HOST_LIMIT}};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    host_record *r = blank();
    holds(r, &picture, "photos", 600 * MIB);
    at_line(r, "train.py", lines[i].source);
    if (first(r) != lines[i].id) FAIL("%s", lines[i].source);
    free(r);
  }
}

TEST(a_line_of_several_steps_makes_several_copies)
{
  host_record *r = blank();
  holds(r, &picture, "depth", 400 * MIB);
  at_line(r, "depth.py", "inverse = 1 / (depth + 1e-6)");
  CHECK(first(r) == CAUSE_HOST_COPIES);
  snprintf(r->frames[0].source, sizeof r->frames[0].source, "model.fit(depth)");
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  free(r);
}

TEST(a_copy_that_is_made_is_partly_there)
{
  host_record *r = blank();
  holds(r, &picture, "maps", 950 * MIB);
  at_line(r, "sky.py", "return max(m.max() for m in maps)");
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  free(r);
}

/* The process holds 1000 MiB at the end; earlier reports are compared with what it held then. */
TEST(an_answer_is_judged_by_what_was_held_when_it_was_given)
{
  static const host_object pages = {
      .count = 290, .where = "serve", .type = "list", .of = "bytes", .element_bytes = 1 << 20};
  host_record *r = blank();
  holds(r, &pages, "pages", 290 * MIB);
  CHECK(first(r) == CAUSE_HOST_LIMIT); /* reported as a part of the whole */
  r->inside_bytes = 560 * MIB;
  CHECK(first(r) == CAUSE_HOST_LEAK);
  r->inside_bytes = 310 * MIB; /* since then it has more than doubled, by memory that was not
                                * reported */
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  free(r);
}

/* Bytes of 400 MiB, a file of 900 MiB read to that point, and as much again without a name. */
TEST(bytes_joined_part_by_part_are_copies)
{
  static const host_object text = {.count = 1, .where = "download", .type = "bytes"};
  host_record *r = blank();
  holds(r, &text, "body", 400 * MIB);
  r->processes[0].read_bytes = 410 * MIB;
  r->files[0] = (tree_file){.bytes = 900 * MIB, .read_bytes = 410 * MIB};
  snprintf(r->files[0].path, sizeof r->files[0].path, "/data/chunks.bin");
  r->file_count = 1;
  at_line(r, "get.py", "while part := file.read(1 << 20):");
  CHECK(first(r) == CAUSE_HOST_COPIES);
  r->files[0].read_bytes = 900 * MIB; /* read to its end */
  CHECK(first(r) == CAUSE_HOST_DATASET_WHOLE);
  r->file_count = 0; /* a socket */
  r->processes[0].read_bytes = 0;
  snprintf(r->frames[0].source, sizeof r->frames[0].source, "body += part");
  explanation x;
  CHECK_OK(explain_host(&x, r));
  CHECK(x.findings.list[0].id == CAUSE_HOST_COPIES);
  CHECK(strstr(x.headline.data, "joined to it at line 7 of get.py") != NULL);
  explanation_free(&x);
  snprintf(r->frames[0].source, sizeof r->frames[0].source, "wait(part)");
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  free(r);
}

TEST(memory_filled_beside_an_open_file_is_the_file_where_nobody_answers)
{
  host_record *r = blank();
  r->from_inside = false;
  r->files[0] = (tree_file){.bytes = 1200 * MIB};
  snprintf(r->files[0].path, sizeof r->files[0].path, "/data/sky.h5");
  r->file_count = 1;
  r->maps[0] = (tree_map){.kind = TREE_ANONYMOUS, .bytes = 700 * MIB};
  r->map_count = 1;
  r->kinds[TREE_ANONYMOUS] = 730 * MIB;
  CHECK(first(r) == CAUSE_HOST_DATASET_WHOLE);
  r->from_inside = true; /* it answers, and is not at a line that reads */
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  r->from_inside = false;
  r->maps[0].bytes = 100 * MIB; /* many pieces */
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  r->maps[0].bytes = 700 * MIB;
  r->files[0].bytes = 600 * MIB; /* smaller than what is filled, and not read at all */
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  free(r);
}

TEST(arrays_of_one_shape_are_no_copies_for_that_alone)
{
  host_record *r = blank();
  holds(r, &picture, "density", 300 * MIB);
  holds(r, &picture, "velocity", 300 * MIB);
  holds(r, &picture, "pressure", 300 * MIB);
  at_line(r, "model.py", "velocity -= 1");
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  snprintf(r->objects[2].of, sizeof r->objects[2].of, "float32"); /* made by astype */
  CHECK(first(r) == CAUSE_HOST_COPIES);
  free(r);
}

TEST(workers_that_wait_for_their_data_are_workers)
{
  host_record *r = blank();
  for (int i = 1; i <= 3; i++)
    r->processes[r->process_count++] =
        (tree_process){.pid = 10 + i, .parent = 10, .name = "python", .held_bytes = 15 * MIB};
  holds(r, &picture, "data", 200 * MIB);
  at_line(r, "/usr/lib/python3.11/multiprocessing/pool.py", "");
  at_line(r, "train.py", "pool.map(train, tasks)");
  CHECK(first(r) == CAUSE_HOST_WORKERS);
  r->frames[0] = r->frames[--r->frame_count]; /* not inside multiprocessing: idle children */
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  free(r);
}

TEST(what_a_worker_reads_may_come_from_its_parent)
{
  host_record *r = blank();
  r->processes[0] = (tree_process){
      .pid = 11, .parent = 10, .name = "python", .held_bytes = 500 * MIB, .read_bytes = 490 * MIB};
  r->processes[1] =
      (tree_process){.pid = 12, .parent = 10, .name = "python", .held_bytes = 300 * MIB};
  r->processes[2] =
      (tree_process){.pid = 10, .parent = 1, .name = "python", .held_bytes = 200 * MIB};
  r->process_count = 3;
  CHECK(first(r) == CAUSE_HOST_WORKERS);
  free(r);
}

TEST(text_may_be_a_tenth_of_what_it_becomes)
{
  host_record *r = blank();
  r->files[0] = (tree_file){.bytes = 150 * MIB};
  snprintf(r->files[0].path, sizeof r->files[0].path, "clicks.csv");
  r->file_count = 1;
  at_line(r, "train.py", "df = pd.read_csv(path)");
  CHECK(first(r) == CAUSE_HOST_DATASET_WHOLE);
  explanation x;
  CHECK_OK(explain_host(&x, r));
  CHECK(strstr(x.fixes.list[0].change, "pandas.read_csv(\"clicks.csv\", chunksize=") != NULL);
  explanation_free(&x);
  r->frames[0].source[0] = '\0'; /* only open */
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  free(r);
}

TEST(fixes_of_the_first_cause_come_first)
{
  host_record *r = blank();
  host_object kept = {
      .count = 40, .where = "f", .type = "list", .of = "numpy.ndarray", .element_bytes = 10 * MIB};
  holds(r, &kept, "results", 400 * MIB);
  r->processes[0].read_bytes = 900 * MIB;
  at_line(r, "train.py", "results.append(np.load(path))");
  explanation x;
  CHECK_OK(explain_host(&x, r));
  CHECK(x.findings.list[0].id == CAUSE_HOST_DATASET_WHOLE &&
        x.findings.list[1].id == CAUSE_HOST_LEAK);
  CHECK(strncmp(x.fixes.list[0].change, "read it in parts", 16) == 0);
  explanation_free(&x);
  free(r);
}

TEST(graphs_that_a_list_keeps_are_the_cause)
{
  static const host_object losses = {.bytes = 4096,
                                     .count = 200,
                                     .where = "validate at train.py:9",
                                     .type = "list",
                                     .of = "torch.Tensor",
                                     .place = "/data/train.py:12",
                                     .grows = true,
                                     .mark = "graph",
                                     .graphs = 200};
  host_record *r = blank();
  holds(r, &losses, "losses", 4096);
  r->inside_bytes = 1000 * MIB;
  at_line(r, "/data/train.py", "losses.append(loss)");
  explanation x;
  CHECK_OK(explain_host(&x, r));
  CHECK(x.findings.list[0].id == CAUSE_GRAPH_KEPT);
  CHECK(strstr(x.headline.data, "at line 12 of train.py") != NULL);
  CHECK(strstr(x.fixes.list[0].change, "losses.append(loss.item())") != NULL);
  CHECK(x.fixes.list[0].saves_bytes == 995 * MIB);
  explanation_free(&x);
  r->objects[0].graphs = 3; /* a step's own graphs */
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  free(r);
}

TEST(a_container_and_the_line_that_grows_it_are_the_headline)
{
  static const host_object cache = {.count = 49,
                                    .where = "module train.py",
                                    .type = "list",
                                    .of = "numpy.ndarray",
                                    .element_bytes = 18 * MIB,
                                    .place = "train.py:5",
                                    .grows = true};
  host_record *r = blank();
  holds(r, &cache, "cache", 882 * MIB);
  explanation x;
  CHECK_OK(explain_host(&x, r));
  CHECK(x.findings.list[0].id == CAUSE_HOST_LEAK);
  CHECK_TEXT(x.headline.data,
             "cache: a list of 49 arrays, 882.0 MiB, grows by 18.0 MiB per iteration at "
             "line 5 of train.py");
  explanation_free(&x);
  free(r);
}

TEST(memory_without_a_name_that_grows_while_the_program_continues_is_native)
{
  host_record *r = blank();
  r->inside_bytes = 1000 * MIB;
  at_line(r, "decode.py", "frame = decoder.next()");
  CHECK(first(r) == CAUSE_HOST_LIMIT); /* one value that the line creates */
  r->inside_turns = 3;
  CHECK(first(r) == CAUSE_HOST_NATIVE);
  r->copies_bytes =
      r->peak_bytes - r->peak_bytes / 8; /* most are copies of what did not fit in vram */
  CHECK(first(r) != CAUSE_HOST_NATIVE);
  r->copies_bytes = 0;
  holds(r, &picture, "photos", 600 * MIB);
  CHECK(first(r) == CAUSE_HOST_LIMIT); /* most of it has a name */
  free(r);
}

TEST(shared_and_pinned_memory_are_distinguished)
{
  host_record *r = blank();
  r->processes[0].shared_bytes = 700 * MIB;
  CHECK(first(r) == CAUSE_HOST_SHARED);
  r->processes[0].shared_bytes = 0;
  holds(r, &picture, "batches", 700 * MIB);
  snprintf(r->objects[0].mark, sizeof r->objects[0].mark, "pinned");
  CHECK(first(r) == CAUSE_HOST_PINNED);
  r->object_count = 0; /* by its mappings: the driver's are anonymous shared memory */
  r->processes[0].shared_bytes = 700 * MIB;
  r->maps[0] = (tree_map){.kind = TREE_SHARED, .bytes = 700 * MIB, .path = "/dev/zero (deleted)"};
  r->map_count = 1;
  CHECK(first(r) == CAUSE_HOST_SHARED);
  r->maps[r->map_count++] =
      (tree_map){.kind = TREE_FILE, .bytes = 70 * MIB, .path = "/dev/nvidiactl"};
  CHECK(first(r) == CAUSE_HOST_PINNED);
  free(r);
}

TEST(objects_without_a_name_are_no_list_of_a_type)
{
  host_record *r = blank();
  char text[480];
  host_object o = {.count = 3591360, .objects = 3591360, .type = "list", .mark = "nameless"};
  holds(r, &o, "what line 7 makes", 600 * MIB);
  host_describe(text, sizeof text, &r->objects[0]);
  CHECK(strstr(text, "what line 7 makes: about 3591360 Python objects, 600.0 MiB") == text);
  CHECK(strstr(text, " list") == NULL);
  CHECK(first(r) == CAUSE_HOST_OBJECTS);
  free(r);
}

TEST(columns_of_text_are_python_objects)
{
  static const host_object table = {.count = 1000000,
                                    .where = "module train.py",
                                    .type = "pandas.DataFrame",
                                    .of = "int64 object",
                                    .shape = "(1000000, 3)",
                                    .mark = "text",
                                    .text_bytes = 600 * MIB,
                                    .words = "address, city"};
  host_record *r = blank();
  holds(r, &table, "df", 620 * MIB);
  explanation x;
  CHECK_OK(explain_host(&x, r));
  CHECK(x.findings.list[0].id == CAUSE_HOST_OBJECTS);
  CHECK(strstr(x.fixes.list[0].change, "df[\"address\"].astype(\"category\")") != NULL);
  explanation_free(&x);
  snprintf(r->objects[0].source, sizeof r->objects[0].source, "df = pd.read_csv(path)");
  CHECK_OK(explain_host(&x, r));
  CHECK(strstr(x.fixes.list[0].change, "dtype={\"address\": \"category\", \"city\": ") != NULL);
  CHECK(strstr(x.fixes.list[1].change, "chunksize=") != NULL);
  explanation_free(&x);
  free(r);
}

/* ---- advice that fits what is kept ---- */

/* Explains; returns true if the first cause is `id`, the headline has `head` and the first fix has
 * `change`, and not `never`. */
static bool answers(const host_record *r, cause_id id, const char *head, const char *change,
                    const char *never) {
  explanation x;
  CHECK_OK(explain_host(&x, r));
  const fix *f = &x.fixes.list[0];
  bool right = x.findings.list[0].id == id && strstr(x.headline.data, head) != NULL &&
               x.fixes.count > 0 && strstr(f->change, change) != NULL &&
               (never == NULL || strstr(f->change, never) == NULL);
  if (!right)
    fprintf(stderr, "cause %d: %s\nfix: %s\n", (int)x.findings.list[0].id, x.headline.data,
            x.fixes.count > 0 ? f->change : "none");
  explanation_free(&x);
  return right;
}

TEST(what_bounds_a_container_fits_its_type)
{
  static const struct {
    const char *type, *of, *change, *never;
  } kinds[] = {
      {"dict", "numpy.ndarray", "shelve", "deque"},
      {"queue.Queue", "numpy.ndarray", "queue.Queue(maxsize=", "deque"},
      {"collections.deque", "numpy.ndarray", "deque(maxlen=", NULL},
      {"list", "function", "remove each from kept", "deque"},
      {"list", "torch.Tensor", "if all are needed, write each to a file (torch.save)", NULL},
      {"list", "numpy.ndarray", "if all are needed, write each to a file", NULL}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    host_object o = {.count = 90, .where = "f", .element_bytes = 10 * MIB, .place = "a.py:5"};
    host_record *r = blank();
    snprintf(o.type, sizeof o.type, "%s", kinds[i].type);
    snprintf(o.of, sizeof o.of, "%s", kinds[i].of);
    o.grows = true;
    holds(r, &o, "kept", 900 * MIB);
    if (!answers(r, CAUSE_HOST_LEAK, "at line 5 of a.py", kinds[i].change, kinds[i].never))
      FAIL("%s of %s", kinds[i].type, kinds[i].of);
    free(r);
  }
}

TEST(a_bound_has_a_number)
{
  host_object o = {.count = 90,
                   .where = "f",
                   .type = "list",
                   .of = "numpy.ndarray",
                   .element_bytes = 10 * MIB,
                   .place = "a.py:5",
                   .grows = true};
  host_record *r = blank();
  holds(r, &o, "the cache of render", 900 * MIB);
  CHECK(answers(r, CAUSE_HOST_LEAK, "at line 5 of a.py",
                "lru_cache(maxsize=20) keeps about 200.0 MiB", "…"));
  explanation x;
  CHECK_OK(explain_host(&x, r));
  CHECK_U64(x.fixes.list[0].saves_bytes, 700 * MIB);
  explanation_free(&x);
  snprintf(r->objects[0].type, sizeof r->objects[0].type, "queue.Queue");
  snprintf(r->objects[0].name, sizeof r->objects[0].name, "frames");
  CHECK(answers(r, CAUSE_HOST_LEAK, "at line 5 of a.py", "queue.Queue(maxsize=20), about 200.0 MiB",
                "…"));
  CHECK_OK(explain_host(&x, r));
  CHECK_U64(x.fixes.list[0].saves_bytes, 700 * MIB);
  explanation_free(&x);
  snprintf(r->objects[0].type, sizeof r->objects[0].type, "dict");
  snprintf(r->objects[0].name, sizeof r->objects[0].name, "pages");
  CHECK(answers(r, CAUSE_HOST_LEAK, "at line 5 of a.py",
                "if len(pages) > 20: pages.pop(next(iter(pages)))", "…"));
  /* small results: 450 bytes each */
  r->objects[0] = (host_object){.bytes = 900 * MIB,
                                .count = 2000000,
                                .name = "the cache of align",
                                .where = "f",
                                .type = "list",
                                .of = "tuple",
                                .element_bytes = 471,
                                .objects = 6000000};
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "the cache of align", "lru_cache(maxsize=500000)", "…"));
  free(r);
}

TEST(structures_and_nodes_of_trees_are_named)
{
  host_record *r = blank();
  r->objects[r->object_count++] = (host_object){.bytes = 900 * MIB,
                                                .count = 4,
                                                .name = "G",
                                                .where = "f",
                                                .type = "networkx.Graph",
                                                .of = "networkx.Graph",
                                                .element_bytes = 225 * MIB,
                                                .place = "a.py:3",
                                                .objects = 9000000};
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "a networkx.Graph of about 9000000 Python objects",
                "scipy.sparse", "--ram-limit"));
  r->objects[0] = (host_object){.bytes = 900 * MIB,
                                .count = 900,
                                .name = "titles",
                                .where = "f",
                                .type = "list",
                                .of = "bs4.Tag",
                                .element_bytes = MIB,
                                .place = "a.py:9",
                                .grows = true,
                                .mark = "tree",
                                .objects = 9000000};
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "each keeps everything that it is a part of",
                "titles.append(str(x))", "--ram-limit"));
  free(r);
}

TEST(a_database_in_memory_is_named_by_its_connection)
{
  host_record *r = blank();
  r->objects[r->object_count++] = (host_object){.bytes = 232,
                                                .count = 1,
                                                .name = "db",
                                                .where = "f",
                                                .type = "sqlite3.Connection",
                                                .place = "a.py:2",
                                                .mark = "database",
                                                .source = "db = sqlite3.connect(\":memory:\")"};
  at_line(r, "a.py", "db.execute(\"INSERT INTO log VALUES (?)\", row)");
  CHECK(answers(r, CAUSE_HOST_NATIVE, "db, a sqlite3.Connection, holds a database of about",
                "sqlite3.connect(\"data.db\")", "C code"));
  /* Other memory has a name: the connection is not the reason. */
  holds(r, &picture, "photos", 900 * MIB);
  CHECK(first(r) != CAUSE_HOST_NATIVE);
  free(r);
}

/* Returns whether the second fix has these words. */
static bool second_fix(const host_record *r, const char *words) {
  explanation x;
  CHECK_OK(explain_host(&x, r));
  bool has = x.fixes.count > 1 && strstr(x.fixes.list[1].change, words) != NULL;
  explanation_free(&x);
  return has;
}

TEST(garbage_in_cycles_is_named_by_its_reference)
{
  static const host_object trees = {.bytes = 900 * MIB,
                                    .count = 900,
                                    .name = "Node.parent",
                                    .where = "module a.py",
                                    .type = "Node",
                                    .of = "numpy.ndarray",
                                    .element_bytes = MIB,
                                    .place = "a.py:4",
                                    .mark = "garbage",
                                    .words = "Node.parent -> Node.children",
                                    .objects = 1};
  host_record *r = blank();
  host_object *o = &r->objects[r->object_count++];
  *o = trees;
  CHECK(answers(r, CAUSE_HOST_LEAK,
                "Node objects that refer to each other (Node.parent -> Node.children), made at "
                "line 4 of a.py",
                "gc.collect()", "--ram-limit"));
  CHECK(second_fix(r, "weakref.ref(…) in Node.parent"));
  snprintf(o->mark, sizeof o->mark, "uncollected");
  CHECK(answers(r, CAUSE_HOST_LEAK, "not freed", "gc.enable()", "--ram-limit"));
  snprintf(o->name, sizeof o->name, "kept in load()");
  CHECK(second_fix(r, "kept = None"));
  snprintf(o->name, sizeof o->name, "torch.SquareBackward.keep");
  snprintf(o->type, sizeof o->type, "torch.SquareBackward");
  CHECK(second_fix(r, "ctx.save_for_backward(keep)"));
  /* The collector has just run: little garbage is left, and nothing larger is known. */
  *o = trees;
  o->bytes = 150 * MIB;
  CHECK(answers(r, CAUSE_HOST_LEAK, "150.0 MiB that nothing uses", "gc.collect()", NULL));
  o->bytes = 500 * MIB;
  snprintf(o->mark, sizeof o->mark, "collected");
  CHECK(answers(r, CAUSE_HOST_LEAK, "Up to 500.0 MiB that nothing uses any more waits to be freed",
                "gc.collect()", NULL));
  o->bytes = 150 * MIB;
  holds(r, &picture, "photos", 600 * MIB);
  CHECK(first(r) != CAUSE_HOST_LEAK);
  r->object_count = 1;
  *o = trees;
  snprintf(o->mark, sizeof o->mark, "linked");
  CHECK(answers(r, CAUSE_HOST_LEAK, "Node.parent: 900 arrays, 900.0 MiB", "let go of", "gc."));
  /* Of small objects only the number is known. */
  *o = (host_object){.bytes = 900 * MIB,
                     .count = 19000000,
                     .name = "what line 9 makes",
                     .where = "f at a.py:9",
                     .type = "list",
                     .place = "a.py:9",
                     .mark = "uncollected",
                     .objects = 19000000};
  CHECK(answers(r, CAUSE_HOST_LEAK, "about 19000000 objects are alive, probably garbage",
                "gc.enable()", "numpy.fromiter"));
  free(r);
}

/* Pages of text, for example: neither small objects nor arrays. */
TEST(a_queue_of_medium_objects_is_bounded)
{
  host_object o = {.count = 40000, .where = "f", .element_bytes = 22 << 10, .place = "a.py:5"};
  host_record *r = blank();
  snprintf(o.type, sizeof o.type, "queue.Queue");
  snprintf(o.of, sizeof o.of, "dict");
  o.grows = true;
  holds(r, &o, "tasks", 860 * MIB);
  CHECK(answers(r, CAUSE_HOST_LEAK, "at line 5 of a.py", "queue.Queue(maxsize=", "--ram-limit"));
  free(r);
}

/* Returns whether the advice for the line that makes a value contains a text, and lacks another. */
static bool advises(const char *source, const char *has, const char *lacks) {
  host_record *r = blank();
  at_line(r, "/x/a.py", source);
  explanation x;
  CHECK_OK(explain_host(&x, r));
  const char *change = x.fixes.count > 0 ? x.fixes.list[0].change : "";
  bool good = strstr(change, has) != NULL && strstr(change, lacks) == NULL;
  if (!good) printf("%s: %s\n", source, change);
  explanation_free(&x);
  free(r);
  return good;
}

TEST(a_line_gets_advice_that_it_can_use)
{
  CHECK(advises("z = linkage(pdist(x), method=\"ward\")", "cluster a sample", "block of rows"));
  CHECK(advises("d = pdist(x)", "a block of rows at a time", "sample"));
  CHECK(advises("out = json.dumps(table)", "json.dump(", "for each"));
  CHECK(!advises("out = {k: json.dumps(v) for k, v in rows}", "json.dump(…, file)", "—"));
  CHECK(advises("j = a.join(b, on=\"key\")", "each side by the key first", "smaller type"));
  CHECK(!advises("text = \", \".join(words)", "each side by the key", "—"));
  CHECK(advises("table = [[0] * m for _ in range(n)]", "numpy.zeros((rows, columns)", "out="));
  CHECK(advises("d = lgb.Dataset(x, y)", "free_raw_data", "read_csv"));
  CHECK(advises("y = x.astype(np.float64) / 255", ".astype(np.float32)", "full size"));
}

TEST(results_that_are_kept_without_gradients_are_no_activations)
{
  host_object o = {.count = 87,
                   .where = "f",
                   .element_bytes = 2 * MIB,
                   .place = "a.py:9",
                   .type = "list",
                   .of = "torch.Tensor",
                   .grows = true};
  host_record *r = blank();
  at_line(r, "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", "");
  at_line(r, "/x/a.py", "feats.append(net(x))");
  r->tensors = 2;
  holds(r, &o, "feats", 180 * MIB);
  CHECK(answers(r, CAUSE_HOST_LEAK, "feats: a list of 87 tensors", "feats = torch.empty((n,",
                "smaller batch"));
  free(r);
}

TEST(what_a_comprehension_keeps_is_used_as_it_is_made)
{
  host_object o = {.count = 50,
                   .name = "groups",
                   .where = "f",
                   .type = "dict",
                   .of = "pandas.DataFrame",
                   .element_bytes = 18 * MIB,
                   .place = "a.py:5",
                   .source = "groups = {k: g for k, g in df.groupby(\"key\")}"};
  host_record *r = blank();
  holds(r, &o, "groups", 900 * MIB);
  CHECK(answers(r, CAUSE_HOST_LEAK, "line 5 of a.py", "for k, g in df.groupby(\"key\"): …",
                "drop the oldest"));
  free(r);
  host_object text = {.count = 3000000,
                      .objects = 6000000,
                      .name = "encoded",
                      .where = "f",
                      .type = "dict",
                      .of = "str",
                      .element_bytes = 300,
                      .place = "a.py:5",
                      .source = "encoded = {k: json.dumps(v) for k, v in rows()}"};
  r = blank();
  holds(r, &text, "encoded", 900 * MIB);
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "line 5 of a.py", "for k, v in rows(): file.write(",
                "as a cache"));
  free(r);
  host_object subsets = {.count = 3000000,
                         .objects = 3000001,
                         .name = "subsets",
                         .where = "f",
                         .type = "list",
                         .of = "tuple",
                         .element_bytes = 300,
                         .place = "a.py:5",
                         .source = "subsets += [s + (item,) for s in subsets]",
                         .grows = true};
  r = blank();
  holds(r, &subsets, "subsets", 900 * MIB);
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "line 5 of a.py", "itertools.combinations(", "column"));
  free(r);
}

TEST(a_part_of_an_array_is_copied_in_the_words_of_its_line)
{
  static const char *const lines[][2] = {
      {"gallery.append(frame[:16, :16])", "keep copies: gallery.append(frame[:16, :16].copy());"},
      {"gallery[key] = frame[:16]", "keep copies: gallery[key] = frame[:16].copy();"},
      {"gallery.append(frame[:16, # a comment", "keep copies: gallery.append(part.copy())"}};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    host_object o = {.count = 500,
                     .where = "f",
                     .element_bytes = 2 * MIB,
                     .place = "a.py:5",
                     .type = "list",
                     .of = "numpy.ndarray",
                     .mark = "view",
                     .grows = true};
    snprintf(o.source, sizeof o.source, "%s", lines[i][0]);
    host_record *r = blank();
    holds(r, &o, "gallery", 900 * MIB);
    CHECK(answers(r, CAUSE_HOST_LEAK, "at line 5 of a.py", lines[i][1], "deque"));
    free(r);
  }
}

TEST(parts_of_arrays_are_to_be_copied)
{
  static const char *const kinds[][2] = {{"list", "gallery.append(part.copy())"},
                                         {"dict", "gallery[key] = part.copy()"}};
  for (int i = 0; i < 2; i++) {
    host_object o = {.count = 500, .where = "f", .element_bytes = 2 * MIB, .place = "a.py:5"};
    host_record *r = blank();
    snprintf(o.type, sizeof o.type, "%s", kinds[i][0]);
    snprintf(o.of, sizeof o.of, "numpy.ndarray");
    snprintf(o.mark, sizeof o.mark, "view");
    o.grows = true;
    holds(r, &o, "gallery", 900 * MIB);
    CHECK(answers(r, CAUSE_HOST_LEAK, "at line 5 of a.py", kinds[i][1], "deque"));
    free(r);
  }
}

TEST(advice_for_small_objects_fits_their_container)
{
  static const struct {
    const char *type, *of, *change;
  } kinds[] = {{"set", "tuple", "one integer"},
               {"dict", "float", "sqlite3"},
               {"collections.deque", "tuple", "deque(maxlen="},
               {"list", "list", "yield"},
               {"list", "str", "file.write"},
               {"list", "Node", "WeakSet"},
               {"list", "logging.LogRecord",
                "write each to a file instead of keeping it: logging.FileHandler"},
               {"list", "dict", "one numpy array"}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    host_object o = {.count = 3000000,
                     .objects = 9000000,
                     .where = "f",
                     .element_bytes = 300,
                     .place = "a.py:5",
                     .grows = true};
    host_record *r = blank();
    snprintf(o.type, sizeof o.type, "%s", kinds[i].type);
    snprintf(o.of, sizeof o.of, "%s", kinds[i].of);
    holds(r, &o, "kept", 900 * MIB);
    if (!answers(r, CAUSE_HOST_OBJECTS, "at line 5 of a.py", kinds[i].change, NULL))
      FAIL("%s of %s", kinds[i].type, kinds[i].of);
    free(r);
  }
}

TEST(advice_for_small_objects_fits_the_line_that_makes_them)
{
  static const struct {
    const char *type, *of, *source, *change;
  } kinds[] = {
      {"dict", "list", "table[word] = [float(v) for v in values]", "numpy.float32"},
      {"list", "dict", "acts = json.load(file)", "ijson"},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    host_object o = {.count = 100000,
                     .objects = 9000000,
                     .where = "f",
                     .element_bytes = 3000,
                     .place = "a.py:5",
                     .grows = true};
    host_record *r = blank();
    snprintf(o.type, sizeof o.type, "%s", kinds[i].type);
    snprintf(o.of, sizeof o.of, "%s", kinds[i].of);
    snprintf(o.source, sizeof o.source, "%s", kinds[i].source);
    holds(r, &o, "kept", 900 * MIB);
    if (!answers(r, CAUSE_HOST_OBJECTS, "at line 5 of a.py", kinds[i].change, NULL))
      FAIL("%s", kinds[i].source);
    free(r);
  }
}

TEST(futures_keep_their_results)
{
  host_record *r = blank();
  host_object jobs = {.count = 620,
                      .objects = 1300,
                      .where = "f",
                      .type = "dict",
                      .of = "concurrent.Future",
                      .element_bytes = 1 << 20,
                      .place = "a.py:17",
                      .grows = true};
  holds(r, &jobs, "jobs", 900 * MIB);
  CHECK(
      answers(r, CAUSE_HOST_LEAK, "at line 17 of a.py", "a future keeps its result", "lru_cache"));
  free(r);
}

TEST(a_few_small_arrays_beside_a_large_one_are_no_small_objects)
{
  host_record *r = blank();
  host_object worlds = {.count = 766,
                        .objects = 300000, /* 3 KiB each: an array of 320 KiB, and small ones */
                        .where = "f",
                        .type = "list",
                        .of = "World",
                        .element_bytes = 326 << 10,
                        .place = "a.py:17",
                        .grows = true};
  holds(r, &worlds, "history", 900 * MIB);
  CHECK(answers(r, CAUSE_HOST_LEAK, "at line 17 of a.py", "deque(maxlen=", "fromiter"));
  free(r);
}

TEST(a_text_that_grows_is_named_with_its_line)
{
  static const host_object text = {.count = 230741777,
                                   .where = "build at a.py:6",
                                   .type = "str",
                                   .place = "/x/a.py:6",
                                   .grows = true,
                                   .source = "html += render(case)"};
  host_record *r = blank();
  holds(r, &text, "html", 950 * MIB);
  at_line(r, "/x/a.py", "return head + body");
  CHECK(answers(r, CAUSE_HOST_LEAK, "html: a str, 950.0 MiB, grows at line 6 of a.py",
                "file.write(part)", "ram-limit"));
  snprintf(r->objects[0].type, sizeof r->objects[0].type, "_io.BytesIO");
  r->objects[0].count = 1;
  CHECK(answers(r, CAUSE_HOST_LEAK, "html: a BytesIO, ", "SpooledTemporaryFile", "ram-limit"));
  free(r);
}

/* ---- one line that makes much ---- */

/* One object of each kind that is most of what is held, and what is said about it. */
TEST(holders_that_keep_more_than_they_list_have_their_own_advice)
{
  static const struct {
    host_object o;
    cause_id id;
    const char *head, *change, *never;
  } cases[] = {
      {{.count = 3000000, .name = "second", .type = "itertools._tee", .objects = 3000000},
       CAUSE_HOST_OBJECTS,
       "second, an iterator of itertools.tee, made at line 7 of a.py, keeps 3000000 values",
       "make the iterator twice",
       "fromiter"},
      {{.count = 900,
        .name = "failed",
        .type = "list",
        .of = "ValueError",
        .mark = "error",
        .element_bytes = 1 << 20,
        .objects = 2000000,
        .grows = true},
       CAUSE_HOST_OBJECTS,
       "each error keeps its traceback",
       "failed.append(str(error))",
       "get_text"},
      {{.count = 9000,
        .name = "heads",
        .type = "list",
        .of = "memoryview",
        .mark = "view",
        .element_bytes = 100 << 10,
        .grows = true},
       CAUSE_HOST_LEAK,
       "a list of 9000 memoryview objects",
       "heads.append(bytes(part))",
       "part.copy()"},
      {{.count = 9000,
        .name = "recent",
        .type = "collections.deque",
        .of = "numpy.ndarray",
        .element_bytes = 100 << 10,
        .grows = true},
       CAUSE_HOST_LEAK,
       "a deque of 9000 arrays",
       "recent = collections.deque(maxlen=2000)",
       "numpy.save"},
      {{.count = 2,
        .name = "outputs",
        .type = "collections.defaultdict",
        .of = "list",
        .element_bytes = 450 << 20,
        .objects = 900,
        .grows = true},
       CAUSE_HOST_LEAK,
       "a defaultdict of 2 lists, 900.0 MiB, grows at line 7 of a.py",
       "use each as it arrives",
       "raise --ram-limit"},
      {{.count = 50000,
        .name = "df",
        .type = "pandas.DataFrame",
        .of = "object",
        .shape = "(50000, 3)",
        .mark = "cells",
        .text_bytes = 800 * MIB,
        .words = "tokens"},
       CAUSE_HOST_OBJECTS,
       "df holds 800.0 MiB as Python objects, a list or the like in every cell, in tokens",
       "use the result of each row as it is made",
       "category"},
      {{.count = 400000,
        .name = "Cell.children",
        .type = "Cell",
        .of = "Cell",
        .mark = "linked",
        .words = "children, parent",
        .element_bytes = 2400,
        .grows = true},
       CAUSE_HOST_LEAK,
       "Cell.children: 400000 Cell objects, 900.0 MiB",
       "cut the references that keep old objects (children, parent of Cell)",
       "numpy.fromiter"},
      {{.count = 128,
        .name = "state",
        .type = "torch.Tensor",
        .of = "torch.float32",
        .shape = "(128, 256)",
        .mark = "carried",
        .graphs = 300},
       CAUSE_GRAPH_KEPT,
       "state keeps the autograd graphs of 300 iterations, about 1000.0 MiB",
       "state = state.detach()",
       ".item()"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    host_record *r = blank();
    bool small = cases[i].o.graphs > 0; /* the graphs have no name */
    holds(r, &cases[i].o, cases[i].o.name, small ? 128 << 10 : 900 * MIB);
    snprintf(r->objects[0].where, sizeof r->objects[0].where, "load at /x/a.py:9");
    snprintf(r->objects[0].place, sizeof r->objects[0].place, "/x/a.py:7");
    at_line(r, "/x/a.py", "step(number)");
    if (!answers(r, cases[i].id, cases[i].head, cases[i].change, cases[i].never))
      FAIL("%s", cases[i].o.name);
    free(r);
  }
}

/* A counter is a dict; frames that come through a pipe are kept by the list, not read as a file. */
TEST(counters_and_lists_of_what_a_pipe_brings_are_containers)
{
  static const host_object pairs = {.count = 3000000,
                                    .where = "f at /x/a.py:9",
                                    .type = "collections.Counter",
                                    .of = "int",
                                    .element_bytes = 120,
                                    .objects = 6000000,
                                    .place = "/x/a.py:9",
                                    .grows = true};
  static const host_object shots = {.count = 1700,
                                    .where = "f at /x/a.py:9",
                                    .type = "list",
                                    .of = "numpy.ndarray",
                                    .element_bytes = 500 << 10,
                                    .place = "/x/a.py:9",
                                    .grows = true};
  host_record *r = blank();
  at_line(r, "/x/a.py", "raw = process.stdout.read(size)");
  holds(r, &pairs, "model.pairs", 900 * MIB);
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "model.pairs: a Counter of 3000000 ints", "sqlite3",
                "raise --ram-limit"));
  r->object_count = 0;
  r->processes[0].read_bytes = 950 * MIB;
  holds(r, &shots, "stack", 900 * MIB);
  CHECK(
      answers(r, CAUSE_HOST_LEAK, "stack: a list of 1700 arrays", "use each as it arrives", NULL));
  free(r);
}

/* Mappings without a file are shared memory for the kernel, but not in /dev/shm. */
TEST(anonymous_mappings_are_to_be_closed)
{
  static const host_object parts = {.count = 90,
                                    .where = "f at /x/a.py:9",
                                    .type = "dict",
                                    .of = "mmap.mmap",
                                    .mark = "shared",
                                    .element_bytes = 10 << 20};
  host_record *r = blank();
  holds(r, &parts, "parts", 900 * MIB);
  r->kinds[TREE_SHARED] = 900 * MIB;
  CHECK(answers(r, CAUSE_HOST_SHARED,
                "Anonymous mappings (mmap) hold 900.0 MiB: parts: a dict of 90",
                "close() each mapping after its last use", "unlink"));
  free(r);
}

/* "model.fit(x)" does not say what it makes; the library's own frames do. */
TEST(the_frames_of_a_library_tell_what_a_line_makes)
{
  static const struct {
    const char *file, *source, *head, *change;
  } calls[] = {
      {"/x/site-packages/sklearn/preprocessing/_encoders.py", "x = encoder.fit_transform(table)",
       "makes x, 1000.0 MiB so far: a one-hot row", "OneHotEncoder(sparse_output=True)"},
      {"/x/site-packages/scipy/spatial/distance.py", "model.fit(places, heat)",
       "one number for every pair of rows", "a block of rows at a time"},
      {"/x/site-packages/sklearn/gaussian_process/_gpr.py", "model.fit(places, heat)",
       "one number for every pair of rows", "fit fewer rows"},
      {"/x/site-packages/sklearn/ensemble/_forest.py", "forest.fit(x, y)",
       "a node for almost every row", "min_samples_leaf"},
      {"/usr/lib/python3.11/xml/etree/ElementTree.py", "tree = ET.parse(path)",
       "makes tree, 1000.0 MiB so far: it makes an object for every element", "ET.iterparse"},
      {"/x/site-packages/pandas/core/reshape/merge.py", "both = orders.join(prices)",
       "a merge pairs every row", "drop_duplicates"},
      {"/x/site-packages/pandas/core/apply.py", "df[\"words\"] = df.text.apply(split)",
       "makes df[\"words\"], 1000.0 MiB so far: it keeps a Python object", "for x in column"},
  };
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    host_record *r = blank();
    at_line(r, "/x/site-packages/numpy/_core/numeric.py", "");
    at_line(r, calls[i].file, "");
    at_line(r, "/x/a.py", calls[i].source);
    explanation x;
    CHECK_OK(explain_host(&x, r));
    if (strstr(x.headline.data, calls[i].head) == NULL ||
        strstr(x.fixes.list[0].change, calls[i].change) == NULL)
      FAIL("%s: %s: %s", calls[i].file, x.headline.data, x.fixes.list[0].change);
    explanation_free(&x);
    free(r);
  }
}

/* The program is already at the next line when it is asked. */
TEST(an_array_joined_in_a_loop_is_named_wherever_the_program_is)
{
  host_record *r = blank();
  holds(r, &picture, "features", 450 * MIB);
  host_object *o = &r->objects[0];
  o->grows = true;
  snprintf(o->place, sizeof o->place, "/x/a.py:9");
  snprintf(o->source, sizeof o->source, "features = np.concatenate([features, block])");
  at_line(r, "/x/a.py", "index = np.arange(window)[None, :] + hop * np.arange(count)[:, None]");
  CHECK(answers(r, CAUSE_HOST_COPIES,
                "concatenate makes a new copy of features (450.0 MiB) at line 9 of a.py",
                "features[i:j] = part", "cdist"));
  o->bytes = 200 * MIB; /* something else takes the rest */
  CHECK(first(r) != CAUSE_HOST_COPIES);
  free(r);
}

/* Sizes of containers are estimates: what is missing is the container's too. */
TEST(a_line_that_adds_to_a_container_makes_no_other_value)
{
  static const host_object events = {.count = 400000,
                                     .where = "f at /x/a.py:7",
                                     .type = "list",
                                     .of = "dict",
                                     .element_bytes = 1300,
                                     .objects = 4000000,
                                     .place = "/x/a.py:7",
                                     .grows = true};
  host_record *r = blank();
  holds(r, &events, "self.events", 550 * MIB);
  at_line(r, "/x/a.py", "self.events.append(json.loads(line))");
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "self.events: a list of 400000 dicts",
                "use each one as it arrives", "ijson"));
  free(r);
}

TEST(a_call_that_makes_much_at_once_has_its_own_way_out)
{
  static const struct {
    const char *source;
    cause_id id;
    const char *head, *change;
  } lines[] = {
      {"X = docs.toarray()", CAUSE_HOST_COPIES, "Line 7 of a.py makes X, ", "keep it sparse"},
      {"merged = a.merge(b, on=\"k\")", CAUSE_HOST_LIMIT, "makes merged, ", "validate="},
      {"X = pd.get_dummies(df)", CAUSE_HOST_LIMIT, "makes X, ", "sparse=True"},
      {"wide = df.pivot(index=\"u\", columns=\"i\")", CAUSE_HOST_LIMIT, "wide", "coo_matrix"},
      {"xx, yy = np.meshgrid(a, a)", CAUSE_HOST_LIMIT, "xx, yy", "sparse=True"},
      {"rows = cur.fetchall()", CAUSE_HOST_DATASET_WHOLE, "rows", "cursor.fetchmany(10000)"},
      {"words = re.findall(p, text)", CAUSE_HOST_OBJECTS, "words", "finditer"},
      {"configs = list(itertools.product(a, b))", CAUSE_HOST_OBJECTS, "configs",
       "itertools.product"},
      {"top = sorted(scores(n))[:10]", CAUSE_HOST_OBJECTS, "top", "heapq.nlargest"},
      {"tokens = list(read_tokens(n))", CAUSE_HOST_OBJECTS, "tokens", "one at a time"},
      {"diff = x[:, None, :] - x[None, :, :]", CAUSE_HOST_LIMIT, "diff", "block of rows"},
      {"return pickle.loads(raw)", CAUSE_HOST_DATASET_WHOLE, "Line 7 of a.py makes ",
       "pickle.load(file)"},
      {"self.grid = solve(a)", CAUSE_HOST_LIMIT, "Line 7 of a.py makes self.grid, ", "in parts"}};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    host_record *r = blank();
    r->inside_bytes = 1000 * MIB;
    at_line(r, "/x/a.py", lines[i].source);
    if (!answers(r, lines[i].id, lines[i].head, lines[i].change, NULL)) FAIL("%s", lines[i].source);
    free(r);
  }
}

/* What came after the report may be anything, and is not what the line makes. */
TEST(a_line_does_not_make_what_came_after_the_report)
{
  host_record *r = blank();
  r->inside_bytes = 300 * MIB;
  at_line(r, "/x/a.py", "merged = a.merge(b)");
  explanation x;
  CHECK_OK(explain_host(&x, r));
  CHECK(x.findings.list[0].id == CAUSE_HOST_LIMIT);
  CHECK(strstr(x.headline.data, "makes") == NULL);
  explanation_free(&x);
  free(r);
}

TEST(a_value_made_by_such_a_call_before_has_the_same_way_out)
{
  host_record *r = blank();
  host_object grid = picture;
  snprintf(grid.place, sizeof grid.place, "/x/a.py:5");
  snprintf(grid.source, sizeof grid.source, "xx, yy = np.meshgrid(axis, axis)");
  holds(r, &grid, "xx", 250 * MIB);
  holds(r, &grid, "yy", 250 * MIB);
  at_line(r, "/x/a.py", "r2 = xx ** 2 + yy ** 2");
  CHECK(answers(r, CAUSE_HOST_LIMIT, "made at line 5 of a.py", "sparse=True", NULL));
  free(r);
}

/* A generator runs inside of the line that collects from it: that line is named. */
TEST(the_line_that_collects_is_named_and_not_the_generator)
{
  host_record *r = blank();
  host_object o = {.count = 3591360,
                   .objects = 3591360,
                   .type = "list",
                   .mark = "nameless",
                   .place = "/x/a.py:11",
                   .source = "tokens = list(read_tokens(n))"};
  holds(r, &o, "what line 11 makes", 600 * MIB);
  at_line(r, "/x/a.py", "yield line.lower()");
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "Line 11 of a.py makes tokens, ", "one at a time", NULL));
  snprintf(r->objects[0].source, sizeof r->objects[0].source,
           "df[\"city\"] = [\"city \" + str(i) for i in range(n)]");
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "df[\"city\"]", "df[\"city\"] = pandas.Categorical", NULL));
  free(r);
}

TEST(a_copy_of_a_mapped_file_is_no_reason_to_map_it)
{
  host_record *r = blank();
  host_object mapped = picture;
  snprintf(mapped.mark, sizeof mapped.mark, "mapped");
  snprintf(mapped.type, sizeof mapped.type, "numpy.memmap");
  holds(r, &mapped, "frames", 0);
  r->files[0] = (tree_file){.bytes = 900 * MIB};
  snprintf(r->files[0].path, sizeof r->files[0].path, "/data/frames.dat");
  r->file_count = 1;
  r->inside_bytes = 1000 * MIB;
  at_line(r, "/x/a.py", "images = np.array(frames)");
  CHECK(answers(r, CAUSE_HOST_COPIES, "Line 7 of a.py", "part = frames[i:i + 200]", "memmap"));
  /* complete, and the program has gone on */
  r->object_count = 0;
  host_object made = picture;
  snprintf(made.place, sizeof made.place, "/x/a.py:14");
  snprintf(made.source, sizeof made.source, "images = np.array(frames)");
  holds(r, &made, "images", 900 * MIB);
  holds(r, &mapped, "frames", 0);
  snprintf(r->frames[0].source, sizeof r->frames[0].source, "images -= images.mean(axis=0)");
  CHECK(answers(r, CAUSE_HOST_COPIES, "made at line 14 of a.py", "part = frames[", "memmap"));
  free(r);
}

TEST(numbers_of_one_byte_become_eight)
{
  host_record *r = blank();
  host_object images = picture;
  snprintf(images.of, sizeof images.of, "uint8");
  holds(r, &images, "images", 120 * MIB);
  r->inside_bytes = 1000 * MIB;
  at_line(r, "/x/a.py", "normalized = images / 255.0");
  CHECK(answers(r, CAUSE_HOST_COPIES, "Line 7 of a.py makes normalized, 880.0 MiB so far",
                "float32", NULL));
  free(r);
}

TEST(arrays_that_a_line_computes_with_are_not_copies_of_each_other)
{
  host_record *r = blank();
  host_object a = picture;
  snprintf(a.source, sizeof a.source, "a = np.random.rand(n)");
  holds(r, &a, "a", 180 * MIB);
  snprintf(a.source, sizeof a.source, "b = np.random.rand(n)");
  holds(r, &a, "b", 180 * MIB);
  r->inside_bytes = 1000 * MIB;
  at_line(r, "/x/a.py", "score = np.sqrt((a - b) ** 2) + np.exp(-(a * b))");
  CHECK(answers(r, CAUSE_HOST_COPIES, "Line 7 of a.py makes score", "in place", NULL));
  explanation x;
  CHECK_OK(explain_host(&x, r));
  CHECK(strstr(x.headline.data, "twice") == NULL);
  explanation_free(&x);
  free(r);
}

/* What pandas holds on the way is the line's, and not a table of the program's. */
TEST(a_table_joined_in_a_loop_is_named_and_not_the_inside_of_pandas)
{
  host_record *r = blank();
  host_object table = picture;
  snprintf(table.type, sizeof table.type, "pandas.DataFrame");
  holds(r, &picture, "what line 7 makes", 450 * MIB);
  holds(r, &table, "table", 430 * MIB);
  at_line(r, "/usr/lib/python3/dist-packages/pandas/core/reshape/concat.py", "");
  snprintf(r->frames[0].name, sizeof r->frames[0].name, "concat");
  at_line(r, "/x/a.py", "table = pd.concat([table, chunk])");
  CHECK(answers(r, CAUSE_HOST_COPIES, "a new copy of table (430.0 MiB) at line 7 of a.py",
                "reduce each part as it arrives", NULL));
  CHECK(
      answers(r, CAUSE_HOST_COPIES, "a new copy of table", "twice their size for a moment", NULL));
  free(r);
}

/* ---- pipes ---- */

static void give_workers(host_record *r, uint64_t bytes) {
  for (int i = 1; i <= 3; i++)
    r->processes[r->process_count++] =
        (tree_process){.pid = 10 + i, .parent = 10, .name = "python", .held_bytes = bytes};
}

TEST(results_of_a_pool_are_no_file_read_whole)
{
  host_record *r = blank();
  give_workers(r, 15 * MIB);
  r->processes[0].read_bytes = 950 * MIB;
  at_line(r, "/usr/lib/python3.11/multiprocessing/pool.py", "");
  at_line(r, "/x/a.py", "results = pool.map(simulate, seeds)");
  CHECK(answers(r, CAUSE_HOST_WORKERS, "at line 7 of a.py", "pool.imap_unordered", NULL));
  explanation x;
  CHECK_OK(explain_host(&x, r));
  for (uint32_t i = 0; i < x.findings.count; i++)
    CHECK(x.findings.list[i].id != CAUSE_HOST_DATASET_WHOLE);
  explanation_free(&x);
  free(r);
}

/* The parent holds the results; the workers have their libraries, which count as well. */
TEST(a_parent_that_holds_more_than_its_workers_collects_results)
{
  static const host_object none = {.count = 240,
                                   .where = "movie at /x/a.py:7",
                                   .type = "list",
                                   .of = "numpy.ndarray",
                                   .element_bytes = 2 << 20,
                                   .place = "/x/a.py:7",
                                   .grows = true};
  host_record *r = blank();
  r->processes[0].held_bytes = r->inside_bytes = 600 * MIB;
  r->processes[0].read_bytes = 500 * MIB;
  give_workers(r, 130 * MIB);
  holds(r, &none, "what line 7 makes", 450 * MIB);
  at_line(r, "/usr/lib/python3.11/multiprocessing/pool.py", "");
  at_line(r, "/x/a.py", "rendered = pool.map(render, range(frames))");
  CHECK(answers(r, CAUSE_HOST_WORKERS,
                "collects the results of 3 worker processes in rendered at line 7 of a.py",
                "pool.imap_unordered", NULL));
  free(r);
}

/* The largest process is a worker; its frames go on with those of the program that forked it. */
TEST(workers_are_named_with_the_line_that_started_them)
{
  host_record *r = blank();
  r->processes[0] = (tree_process){.pid = 10, .parent = 1, .name = "python"};
  give_workers(r, 300 * MIB);
  tree_process parent = r->processes[0];
  memmove(&r->processes[0], &r->processes[1], 3 * sizeof parent);
  r->processes[3] = parent;
  r->inside_bytes = 300 * MIB;
  at_line(r, "/x/a.py", "s = (data[k::8] ** 2).sum()");
  at_line(r, "/usr/lib/python3.11/multiprocessing/pool.py", "");
  at_line(r, "/x/a.py", "with mp.Pool(3) as pool:");
  r->frames[2].line = 12;
  holds(r, &picture, "data", 250 * MIB);
  snprintf(r->objects[0].where, sizeof r->objects[0].where, "work at /x/a.py:7");
  CHECK(answers(r, CAUSE_HOST_WORKERS, "started at line 12 of a.py", "send names instead of data",
                NULL));
  /* a chunk's results, in no variable of the function, or an array that it is making */
  snprintf(r->objects[0].name, sizeof r->objects[0].name, "what line 7 makes");
  snprintf(r->frames[1].name, sizeof r->frames[1].name, "mapstar");
  CHECK(answers(r, CAUSE_HOST_WORKERS, "what each computes with, or results", "imap_unordered",
                NULL));
  CHECK(answers(r, CAUSE_HOST_WORKERS, "results", "fewer workers", NULL));
  free(r);
}

/* Wherever the worker is at that moment: waiting for indices, in the dataset, or sending. */
TEST(a_loaders_workers_get_one_answer)
{
  static const char *const inner[] = {"get", "__getitem__", "put"};
  for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
    host_record *r = blank();
    r->processes[0] = (tree_process){.pid = 10, .parent = 1, .name = "python"};
    give_workers(r, 300 * MIB);
    tree_process parent = r->processes[0];
    memmove(&r->processes[0], &r->processes[1], 3 * sizeof parent);
    r->processes[3] = parent;
    r->inside_bytes = 300 * MIB;
    bool data = strcmp(inner[i], "__getitem__") == 0;
    at_line(r, data ? "/x/a.py" : "/usr/lib/python3.11/multiprocessing/queues.py",
            data ? "s = self.samples[i]" : "");
    snprintf(r->frames[0].name, sizeof r->frames[0].name, "%s", inner[i]);
    at_line(r, "/x/site-packages/torch/utils/data/_utils/worker.py", "");
    snprintf(r->frames[1].name, sizeof r->frames[1].name, "_worker_loop");
    at_line(r, "/usr/lib/python3.11/multiprocessing/process.py", "");
    at_line(r, "/x/a.py", "for batch in loader:");
    host_object rows = {.count = 400000,
                        .where = "module a",
                        .type = "list",
                        .of = "dict",
                        .element_bytes = 300,
                        .objects = 1600000};
    holds(r, &rows, "ds.samples", 60 * MIB);
    if (!answers(r, CAUSE_HOST_WORKERS, "each with its own ds.samples",
                 "DataLoader(num_workers=1) instead of 3; or hold ds.samples as arrays",
                 "imap_unordered"))
      FAIL("%s", inner[i]);
    free(r);
  }
}

/* What each worker builds for itself is named, and the line that builds it. */
TEST(what_workers_build_for_themselves_is_named)
{
  host_record *r = blank();
  r->processes[0] = (tree_process){.pid = 10, .parent = 1, .name = "python"};
  give_workers(r, 300 * MIB);
  tree_process parent = r->processes[0];
  memmove(&r->processes[0], &r->processes[1], 3 * sizeof parent);
  r->processes[3] = parent;
  r->inside_bytes = 300 * MIB;
  at_line(r, "/x/a.py", "return {key(i): i for i in range(count)}");
  at_line(r, "/x/a.py", "TABLE = load_table(count)");
  at_line(r, "/usr/lib/python3.11/multiprocessing/pool.py", "");
  host_object table = {.count = 6000000,
                       .where = "load_table at /x/a.py:7",
                       .type = "list",
                       .mark = "nameless",
                       .element_bytes = 48,
                       .place = "/x/a.py:7",
                       .source = "return {key(i): i for i in range(count)}",
                       .objects = 6000000};
  holds(r, &table, "what line 7 makes", 280 * MIB);
  CHECK(answers(r, CAUSE_HOST_WORKERS, "each with its own TABLE, which line 7 of a.py makes",
                "fewer workers", "send names"));
  snprintf(r->objects[0].name, sizeof r->objects[0].name, "TABLE");
  r->objects[0].mark[0] = '\0';
  CHECK(answers(r, CAUSE_HOST_WORKERS, "each with its own TABLE, made at line 7 of a.py", "",
                "raise"));
  /* Asked while it made it, and not since. */
  r->object_count = 0;
  CHECK(answers(r, CAUSE_HOST_WORKERS, "each with its own TABLE, which line 7 of a.py makes",
                "fewer workers", "send names"));
  holds(r, &table, "what line 7 makes", 280 * MIB);
  /* A cache that a dataset fills in each worker. */
  r->frame_count = 0;
  at_line(r, "/x/a.py", "image = decode(index)");
  at_line(r, "/x/site-packages/torch/utils/data/_utils/worker.py", "");
  snprintf(r->frames[1].name, sizeof r->frames[1].name, "_worker_loop");
  r->objects[0] = (host_object){.bytes = 200 * MIB,
                                .count = 800,
                                .where = "module a",
                                .type = "dict",
                                .of = "tuple",
                                .mark = "fetched",
                                .element_bytes = 256 << 10,
                                .place = "/x/a.py:7",
                                .grows = true};
  snprintf(r->objects[0].name, sizeof r->objects[0].name, "Images.cache");
  CHECK(answers(r, CAUSE_HOST_WORKERS, "each with its own Images.cache, filled at line 7 of a.py",
                "keep less in Images.cache, which every worker fills for itself", "num_workers"));
  free(r);
}

TEST(the_output_of_a_command_is_no_file)
{
  host_record *r = blank();
  r->processes[0].read_bytes = 900 * MIB;
  at_line(r, "/usr/lib/python3.11/subprocess.py", "");
  snprintf(r->frames[0].name, sizeof r->frames[0].name, "communicate");
  at_line(r, "/x/a.py", "result = subprocess.run(words, capture_output=True)");
  CHECK(answers(r, CAUSE_HOST_DATASET_WHOLE, "captured whole at line 7 of a.py", "subprocess.Popen",
                "stowage.batches"));
  free(r);
}

TEST(a_file_read_whole_is_named_with_its_line_and_read_as_its_call_needs)
{
  static const struct {
    const char *source, *path, *change;
  } lines[] = {{"data = json.load(f)", "/data/a.json", "ijson.items(open(\"/data/a.json\""},
               {"data = f.readlines()", "/data/a.csv", "for line in open(\"/data/a.csv\")"},
               {"data = f.read()", "/data/a.jsonl", "for line in open(\"/data/a.jsonl\")"}};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    host_record *r = blank();
    r->files[0] = (tree_file){.bytes = 400 * MIB, .read_bytes = 400 * MIB};
    snprintf(r->files[0].path, sizeof r->files[0].path, "%s", lines[i].path);
    r->file_count = 1;
    at_line(r, "/x/a.py", lines[i].source);
    if (!answers(r, CAUSE_HOST_DATASET_WHOLE, "is read whole into data at line 7 of a.py",
                 lines[i].change, "stowage.batches("))
      FAIL("%s", lines[i].source);
    free(r);
  }
}

TEST(a_python_process_that_does_not_answer_runs_one_call)
{
  host_record *r = blank();
  r->from_inside = false;
  CHECK(answers(r, CAUSE_HOST_LIMIT, "is limited to", "re.finditer", NULL));
  free(r);
}

/* A list that a line fills was 290 of the 310 MiB held when asked; 1000 MiB are held now. */
TEST(a_list_that_a_line_fills_keeps_growing_after_the_report)
{
  static const host_object pages = {.count = 290,
                                    .where = "serve",
                                    .type = "list",
                                    .of = "bytes",
                                    .element_bytes = 1 << 20,
                                    .place = "/x/serve.py:12",
                                    .grows = true};
  host_record *r = blank();
  holds(r, &pages, "pages", 290 * MIB);
  r->inside_bytes = 310 * MIB;
  explanation x;
  CHECK_OK(explain_host(&x, r));
  CHECK(x.findings.list[0].id == CAUSE_HOST_LEAK);
  CHECK(x.findings.list[0].confidence <= 0.6);
  CHECK(strstr(x.headline.data, "line 12 of serve.py") != NULL);
  CHECK(strstr(x.findings.list[0].evidence.data, "held 310.0 MiB") != NULL);
  explanation_free(&x);
  r->objects[0].bytes = 100 * MIB; /* less than half of what was held then */
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  free(r);
}

/* The process did not answer again; its frames were read from outside of Python. */
TEST(a_line_read_without_an_answer_made_what_the_report_lacks)
{
  host_record *r = blank();
  holds(r, &picture, "photos", 100 * MIB);
  r->inside_bytes = 120 * MIB;
  at_line(r, "/x/a.py", "merged = a.merge(b)");
  r->late = true;
  CHECK(answers(r, CAUSE_HOST_LIMIT, "Line 7 of a.py makes merged, 900.0 MiB so far",
                "drop_duplicates", NULL));
  r->late = false;
  CHECK(answers(r, CAUSE_HOST_LIMIT, "is limited to", "raise --ram-limit", NULL));
  free(r);
}

static void write_file(const char *folder, const char *name, const char *text) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  CHECK(file != NULL);
  fputs(text, file);
  fclose(file);
}

TEST(frames_of_a_later_request_replace_those_of_the_report)
{
  const char *folder = harness_folder();
  host_record *r = calloc(1, sizeof *r);
  CHECK(r != NULL);
  write_file(folder, "7.objects",
             "asked\t3\t1000\t1\t5\t0\n"
             "object\t500\t1\twhat line 5 makes\tmain\tlist\tint\t\t8\t\t0\t\t0\t0\t\t0\t\n"
             "object\t400\t1\tkept\tmain\tlist\tint\t\t8\t\t0\t\t0\t0\t\t0\t\n"
             "frame\t/x/a.py\t5\tmain\tone()\n");
  write_file(folder, "7.frames", "silent\t2\nframe\t/x/a.py\t4\tmain\tearlier()\n");
  CHECK(host_record_read_inside(r, folder, 7));
  CHECK(!r->late && r->frames[0].line == 5 && r->object_count == 2);
  write_file(folder, "7.frames", "silent\t4\nframe\t/x/a.py\t6\tmain\tdata = json.load(f)\n");
  CHECK(host_record_read_inside(r, folder, 7));
  CHECK(r->late && r->frame_count == 1 && r->frames[0].line == 6);
  CHECK_TEXT(r->frames[0].source, "data = json.load(f)");
  CHECK(r->object_count == 1 && strcmp(r->objects[0].name, "kept") == 0);
  write_file(folder, "8.frames", "silent\t1\nframe\t/x/b.py\t9\tmain\tx = sorted(y)\n");
  CHECK(host_record_read_inside(r, folder, 8)); /* it never answered */
  CHECK(r->late && r->object_count == 0 && r->frames[0].line == 9);
  write_file(folder, "9.frames", "nonsense\n");
  CHECK(!host_record_read_inside(r, folder, 9));
  free(r);
}

/* A run that ended well: three workers hold most of it, and no variable a fifth. */
TEST(workers_are_the_largest_holder_of_a_run_that_ended)
{
  host_record *r = blank();
  r->processes[0] = (tree_process){.pid = 10, .parent = 1, .name = "python"};
  give_workers(r, 50 * MIB);
  r->held_bytes = r->peak_bytes = 150 * MIB;
  tree_process parent = r->processes[0];
  memmove(&r->processes[0], &r->processes[1], 3 * sizeof parent);
  r->processes[3] = parent;
  r->inside_bytes = 50 * MIB;
  at_line(r, "/usr/lib/python3.11/multiprocessing/pool.py", "");
  at_line(r, "/x/a.py", "with mp.Pool(3) as pool:");
  host_peak p;
  CHECK_OK(host_peak_find(&p, r));
  CHECK(strstr(p.holder, "3 worker processes, started at line 7 of a.py, hold 150.0 MiB") != NULL);
  /* A worker that waits inside multiprocessing was started further out. */
  r->frame_count = 0;
  at_line(r, "/usr/lib/python3.11/multiprocessing/synchronize.py", "");
  at_line(r, "/x/a.py", "barrier.wait()");
  at_line(r, "/usr/lib/python3.11/multiprocessing/process.py", "");
  snprintf(r->frames[2].name, sizeof r->frames[2].name, "_bootstrap");
  at_line(r, "/x/a.py", "worker.start()");
  r->frames[3].line = 12;
  CHECK_OK(host_peak_find(&p, r));
  CHECK(strstr(p.holder, "started at line 12 of a.py") != NULL);
  free(r);
}

TEST(a_line_that_widens_an_array_is_named_with_the_type_it_makes)
{
  host_record *r = blank();
  r->held_bytes = r->peak_bytes = r->inside_bytes = 700 * MIB;
  r->objects[r->object_count++] = (host_object){.bytes = 75 * MIB,
                                                .count = 400,
                                                .name = "images",
                                                .type = "numpy.ndarray",
                                                .of = "uint8",
                                                .shape = "(400, 256, 256, 3)"};
  at_line(r, "/x/a.py", "scaled = images / 255.0");
  CHECK(answers(r, CAUSE_HOST_COPIES, "float64 takes 8 times as much as uint8 of images",
                "in float32 takes half", NULL));
  r->frame_count = 0;
  at_line(r, "/x/a.py", "scaled = images.astype(\"float32\") / 255.0");
  CHECK(answers(r, CAUSE_HOST_COPIES, "float32 takes 4 times as much as uint8 of images",
                "convert one batch at a time", NULL));
  free(r);
}

/* A run that held much for a moment, in which it was not asked. */
TEST(an_object_of_another_moment_is_not_called_the_largest)
{
  host_record *r = blank();
  r->held_bytes = r->inside_bytes = 170 * MIB;
  r->peak_bytes = r->largest_bytes = 400 * MIB;
  r->objects[r->object_count++] =
      (host_object){.bytes = 150 * MIB, .count = 1, .name = "keep", .type = "bytearray"};
  host_peak p;
  CHECK_OK(host_peak_find(&p, r));
  CHECK_U64(p.seen_bytes, 170 * MIB);
  CHECK(strncmp(p.holder, "keep: ", 6) == 0 && p.cause[0] == '\0');
  /* Asked near the peak; or the object is the largest whatever else there was. */
  r->inside_bytes = 320 * MIB;
  CHECK_OK(host_peak_find(&p, r));
  CHECK_U64(p.seen_bytes, 0);
  r->inside_bytes = 260 * MIB;
  r->objects[0].bytes = 240 * MIB;
  CHECK_OK(host_peak_find(&p, r));
  CHECK_U64(p.seen_bytes, 0);
  CHECK(strncmp(p.holder, "keep: ", 6) == 0);
  free(r);
}

/* A program that Python started, which has no variables, held most. */
TEST(a_process_without_variables_is_the_largest_holder)
{
  host_record *r = blank();
  r->held_bytes = r->peak_bytes = 300 * MIB;
  r->inside_bytes = 70 * MIB;
  r->from_inside = true;
  r->inside_pid = 10;
  r->processes[0] =
      (tree_process){.pid = 11, .parent = 10, .name = "sort", .held_bytes = 230 * MIB};
  r->processes[1] =
      (tree_process){.pid = 10, .parent = 1, .name = "python", .held_bytes = 70 * MIB};
  r->process_count = 2;
  r->objects[r->object_count++] =
      (host_object){.bytes = 62 * MIB, .count = 1, .name = "keep", .type = "bytearray"};
  host_peak p;
  CHECK_OK(host_peak_find(&p, r));
  CHECK_TEXT(p.holder, "sort, a process that the command started, 230.0 MiB");
  CHECK_U64(p.seen_bytes, 0);
  /* One of several that answered for all of them. */
  r->inside_pid = 12;
  r->objects[0].bytes = 200 * MIB;
  CHECK_OK(host_peak_find(&p, r));
  CHECK(strncmp(p.holder, "keep: ", 6) == 0);
  free(r);
}

TEST(one_large_holder_comes_with_a_way_to_use_less)
{
  host_record *r = blank();
  r->held_bytes = r->peak_bytes = r->inside_bytes = 600 * MIB;
  r->objects[r->object_count++] = (host_object){.bytes = 364 * MIB,
                                                .count = 23,
                                                .element_bytes = 16 * MIB,
                                                .name = "figures of pyplot",
                                                .type = "dict",
                                                .of = "matplotlib.Figure",
                                                .place = "/x/a.py:25",
                                                .grows = true};
  host_peak p;
  CHECK_OK(host_peak_find(&p, r));
  CHECK(p.cause[0] == '\0' && strstr(p.fix, "plt.close(fig)") != NULL);
  r->objects[0].bytes = 100 * MIB; /* not most of it */
  CHECK_OK(host_peak_find(&p, r));
  CHECK(p.fix[0] == '\0');
  r->held_bytes = r->peak_bytes = r->inside_bytes = 120 * MIB; /* not much */
  CHECK_OK(host_peak_find(&p, r));
  CHECK(p.fix[0] == '\0');
  free(r);
}

/* A layer that goes through a sequence uses its weights often; a list of losses keeps the graphs.
 */
TEST(a_list_that_keeps_graphs_comes_before_a_state)
{
  host_record *r = blank();
  r->objects[r->object_count++] = (host_object){.bytes = 2 * MIB,
                                                .count = 1,
                                                .name = "out",
                                                .type = "torch.Tensor",
                                                .shape = "(48, 72)",
                                                .mark = "carried",
                                                .graphs = 72};
  r->objects[r->object_count++] = (host_object){
      .bytes = 900, .count = 9, .name = "curve", .type = "list", .mark = "graph", .graphs = 9};
  CHECK(answers(r, CAUSE_GRAPH_KEPT, "curve keeps the autograd graphs of 9 iterations",
                "curve.append(loss.item())", "out.detach"));
  free(r);
}

TEST(activations_without_a_name_are_not_a_leak_of_c_code)
{
  host_record *r = blank();
  r->held_bytes = r->peak_bytes = r->inside_bytes = 600 * MIB;
  r->inside_turns = 3;
  at_line(r, "/x/site-packages/torch/nn/modules/conv.py", "");
  at_line(r, "/x/a.py", "return self.head(self.body(x))");
  at_line(r, "/x/a.py", "logits = model(batch)");
  CHECK(answers(r, CAUSE_NO_GRAD_MISSING, "activations", "torch.inference_mode()", "free()"));
  snprintf(r->frames[2].name, sizeof r->frames[2].name, "train_epoch");
  CHECK(answers(r, CAUSE_BATCH_TOO_BIG, "in a training step at line 7 of a.py", "half the batch",
                "inference_mode"));
  free(r);
  r = blank();
  r->held_bytes = r->peak_bytes = r->inside_bytes = 600 * MIB;
  r->inside_turns = 3;
  at_line(r, "/x/site-packages/torch/autograd/__init__.py", "");
  at_line(r, "/x/a.py", "loss.backward()");
  CHECK(answers(r, CAUSE_BATCH_TOO_BIG, "activations", "half the batch", "free()"));
  free(r);
}

static void maps_file(host_record *r, const char *path, uint64_t bytes) {
  tree_map *m = &r->maps[r->map_count++];
  *m = (tree_map){.kind = TREE_FILE, .bytes = bytes};
  snprintf(m->path, sizeof m->path, "%s", path);
}

TEST(memory_of_cuda_libraries_is_no_activation)
{
  static const char *const lines[] = {"return self.head(self.body(x))", "logits = model(batch)"};
  host_record *r = blank();
  r->held_bytes = r->peak_bytes = r->inside_bytes = r->largest_bytes = 642 * MIB;
  r->inside_turns = 3;
  at_line(r, "/x/site-packages/torch/nn/modules/conv.py", "");
  for (size_t i = 0; i < 2; i++) at_line(r, "/x/a.py", lines[i]);
  maps_file(r, "/x/nvidia/cudnn/lib/libcudnn_engines_precompiled.so.9", 80 * MIB);
  maps_file(r, "/x/nvidia/cublas/lib/libcublasLt.so.12", 60 * MIB);
  maps_file(r, "/usr/lib/libcuda.so.580.1", 9 * MIB);
  explanation x;
  CHECK_OK(explain_host(&x, r));
  CHECK(x.findings.list[0].id == CAUSE_HOST_NATIVE && x.fixes.count == 0);
  CHECK(strstr(x.findings.list[0].headline.data, "(cuDNN, cuBLAS, the driver)") != NULL);
  explanation_free(&x);
  host_peak p;
  CHECK_OK(host_peak_find(&p, r));
  CHECK(strstr(p.holder, "CUDA") != NULL && strstr(p.holder, "642.0 MiB") != NULL);
  CHECK(p.fix[0] == '\0' && p.cause[0] == '\0');
  free(r);
}

/* jax.random.split() is no text's, and what XLA's compiler holds is no string. */
TEST(memory_of_a_compiler_is_no_text)
{
  static const char *const lines[] = {"key, sub = jax.random.split(key)", "a, b = split(key)",
                                      "xs = list(step(params))"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    host_record *r = blank();
    r->inside_bytes = r->largest_bytes = 1000 * MIB;
    at_line(r, "/x/site-packages/jax/_src/compiler.py", "");
    at_line(r, "/x/a.py", lines[i]);
    maps_file(r, "/x/site-packages/jaxlib/libjax_common.so", 200 * MIB);
    CHECK(first(r) != CAUSE_HOST_OBJECTS);
    host_peak p;
    CHECK_OK(host_peak_find(&p, r));
    CHECK(p.wasted_bytes == 0 && p.cause[0] == '\0' && strstr(p.fix, "line by line") == NULL);
    free(r);
  }
  host_record *r = blank(); /* beside such a library, texts are evidence */
  r->inside_bytes = 1000 * MIB;
  at_line(r, "/x/a.py", "words = text.split()");
  maps_file(r, "/x/site-packages/jaxlib/libjax_common.so", 200 * MIB);
  r->objects[r->object_count++] =
      (host_object){.bytes = 150 * MIB, .count = 150 * MIB, .name = "text", .type = "str"};
  CHECK(first(r) == CAUSE_HOST_OBJECTS);
  free(r);
}

TEST(output_of_a_command_is_named_by_the_line_that_captures_it)
{
  host_record *r = blank();
  r->held_bytes = r->inside_bytes = 300 * MIB;
  r->peak_bytes = r->largest_bytes = 600 * MIB; /* decoded as text after the question */
  r->processes[0].read_bytes = 280 * MIB;
  r->processes[0].held_bytes = 300 * MIB;
  at_line(r, "/usr/lib/python3.11/subprocess.py", "");
  at_line(r, "/x/a.py", "proc = subprocess.run(command, capture_output=True, text=True)");
  host_peak p;
  CHECK_OK(host_peak_find(&p, r));
  CHECK(strstr(p.holder, "captured whole at line 7 of a.py") != NULL);
  CHECK(strstr(p.fix, "for line in p.stdout") != NULL);
  free(r);
}

/* Memory of C code has no variable. The line that calls the library says more than the line at
 * which the program waits. */
TEST(memory_of_a_library_is_named_by_the_line_that_calls_it)
{
  host_record *r = blank();
  r->held_bytes = r->peak_bytes = r->inside_bytes = 600 * MIB;
  r->inside_turns = 2;
  at_line(r, "/x/a.py", "time.sleep(0.1)");
  host_peak p;
  CHECK_OK(host_peak_find(&p, r));
  CHECK(strstr(p.holder, "grows at /x/a.py:7") != NULL);
  r->objects[r->object_count++] = (host_object){.bytes = 64,
                                                .count = 1,
                                                .name = "libc",
                                                .type = "ctypes.CDLL",
                                                .mark = "library",
                                                .place = "/x/a.py:16",
                                                .source = "self.ptr = libc.malloc(n)"};
  CHECK_OK(host_peak_find(&p, r));
  CHECK(strstr(p.holder, "it is called through libc at line 16 of a.py") != NULL);
  CHECK(strstr(p.fix, "free what the calls at that line return") != NULL);
  /* Asked long before the peak: it had grown until then. */
  r->peak_bytes = r->largest_bytes = 900 * MIB;
  CHECK_OK(host_peak_find(&p, r));
  CHECK_U64(p.seen_bytes, 600 * MIB);
  CHECK(strstr(p.holder, "called through libc at line 16") != NULL);
  free(r);
}

TEST(a_copy_of_a_mapped_file_has_the_name_of_its_variable)
{
  host_record *r = blank();
  r->objects[r->object_count++] = (host_object){.count = 2600,
                                                .name = "stack",
                                                .type = "numpy.memmap",
                                                .of = "uint8",
                                                .shape = "(2600, 192, 192)",
                                                .mark = "mapped"};
  at_line(r, "/x/a.py", "images = np.array(stack, dtype=np.float64)");
  CHECK(answers(r, CAUSE_HOST_COPIES,
                "Line 7 of a.py makes images, 1000.0 MiB so far: stack, which is a mapped",
                "for i in range(0, len(stack), 1000)", NULL));
  free(r);
}

/* What the advice does decides, not its words: a file may be called "ram-limit". */
TEST(advice_is_dropped_if_it_raises_a_limit_and_not_for_its_words)
{
  host_record *r = blank();
  r->held_bytes = r->peak_bytes = r->inside_bytes = 600 * MIB;
  holds(r, &picture, "table", 500 * MIB);
  r->processes[0].read_bytes = 600 * MIB;
  r->files[r->file_count++] = (tree_file){
      .bytes = 600 * MIB, .read_bytes = 600 * MIB, .path = "/data/ram-limit/orders.csv"};
  at_line(r, "/x/a.py", "table = pandas.read_csv(path)");
  host_peak p;
  CHECK_OK(host_peak_find(&p, r));
  CHECK(strstr(p.fix, "/data/ram-limit/orders.csv") != NULL);
  /* Nothing but a limit is known. */
  r->file_count = 0;
  r->frame_count = 0;
  r->processes[0].read_bytes = 0;
  r->limit_bytes = 700 * MIB;
  r->objects[0] = (host_object){.bytes = 500 * MIB, .count = 1, .name = "x", .type = "bytearray"};
  CHECK_OK(host_peak_find(&p, r));
  CHECK(strncmp(p.holder, "x: ", 3) == 0);
  CHECK(strstr(p.fix, "del x after its last use") != NULL && strstr(p.fix, "--ram") == NULL);
  free(r);
}

/* A tensor is split by a size, a text at another text. */
TEST(parts_of_a_tensor_are_not_pieces_of_a_text)
{
  CHECK(host_way_of("for part in data.split(64):") == NULL);
  CHECK(host_way_of("key, sub = jax.random.split(key)") == NULL);
  CHECK(host_way_of("parts = np.split(x, 8)") == NULL);
  CHECK(host_way_of("parts = input_np.split()") != NULL);
  CHECK(host_way_of("words = text.split()") != NULL);
  CHECK(host_way_of("words = text.split(\",\")") != NULL);
}

static void host_event(recording *r, event_kind kind, uint64_t addr, uint64_t bytes,
                       const char *name, uint32_t line) {
  uint32_t tag_id, file_id, frame_id, stack_id;
  CHECK_OK(recording_name(r, &tag_id, name, strlen(name)));
  CHECK_OK(recording_name(r, &file_id, "/x/a.py", 7));
  CHECK_OK(recording_frame(r, &frame_id, tag_id, file_id, line));
  CHECK_OK(recording_stack(r, &stack_id, &frame_id, 1));
  event e = {.kind = (uint8_t)kind, .addr = addr, .bytes = bytes, .stack_id = stack_id};
  CHECK_OK(recording_add_event(r, &e, &(origin){.tag_id = tag_id}));
}

/* What is in no variable is freed on a later line than it was made. */
TEST(temporaries_of_a_host_recording_have_the_line_that_makes_them)
{
  recording r;
  explanation x;
  recording_init(&r, 0);
  CHECK_OK(recording_add_fact(&r, "memory", "host"));
  host_event(&r, EVENT_ALLOC, 1 << 20, 300 * MIB, "rows", 7);
  host_event(&r, EVENT_ALLOC, 2 << 20, 600 * MIB, "other", 9);
  host_event(&r, EVENT_FREE, 2 << 20, 600 * MIB, "other", 10);
  host_event(&r, EVENT_ALLOC, 3 << 20, 2 * MIB, "other", 11);
  CHECK_OK(explain_host_recording(&x, &r));
  CHECK_TEXT(x.headline.data, "Host memory: at most 900.0 MiB was held; most by what is in no "
                              "variable, 600.0 MiB, made at line 9 of a.py");
  CHECK(strstr(x.memory.data, "rows                          300.0 MiB  line 7 of a.py") != NULL);
  explanation_free(&x);
  recording_free(&r);
}

/* The tuples of a memo are its keys: its values are numbers. */
TEST(a_dict_of_large_keys_is_advised_on_its_keys)
{
  host_record *r = blank();
  host_object memo = {.count = 4000000,
                      .type = "dict",
                      .of = "tuple",
                      .mark = "keys",
                      .grows = true,
                      .element_bytes = 160,
                      .objects = 12000000,
                      .place = "/x/a.py:9",
                      .source = "memo[i, j] = cost"};
  r->inside_bytes = 900 * MIB;
  holds(r, &memo, "memo", 640 * MIB);
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "a dict with 4000000 tuples as keys", "smaller keys in memo",
                "store less under each key"));
  free(r);
}

/* A dict of a few deques grows by what is in them: to drop one of them breaks the program. */
TEST(the_deques_of_a_dict_are_limited_not_dropped)
{
  host_record *r = blank();
  host_object readings = {.count = 6,
                          .type = "dict",
                          .of = "collections.deque",
                          .grows = true,
                          .element_bytes = 100 * MIB,
                          .objects = 4000000,
                          .place = "/x/a.py:4",
                          .source = "readings[name].append(value)"};
  r->inside_bytes = 900 * MIB;
  holds(r, &readings, "readings", 640 * MIB);
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "a dict of 6 collections.deque objects",
                "limit each deque in readings: collections.deque(maxlen=", NULL));
  free(r);
}

/* What a library keeps has no line of the program's; the line that called it has. */
TEST(a_line_comes_before_what_a_library_keeps)
{
  host_record *r = blank();
  host_object output = {.count = 1,
                        .type = "subprocess.Popen",
                        .of = "list",
                        .where = "module subprocess",
                        .mark = "linked"};
  r->inside_bytes = 1000 * MIB;
  r->processes[0].read_bytes = 900 * MIB;
  at_line(r, "/usr/lib/python3.11/subprocess.py", "");
  snprintf(r->frames[0].name, sizeof r->frames[0].name, "communicate");
  at_line(r, "/x/a.py", "out = subprocess.run(command, capture_output=True)");
  holds(r, &output, "subprocess.Popen._fileobj2output", 700 * MIB);
  host_peak p;
  CHECK_OK(host_peak_find(&p, r));
  CHECK(strstr(p.holder, "captured whole at line 7 of a.py") != NULL);
  CHECK(strstr(p.fix, "for line in p.stdout") != NULL);
  free(r);
}

/* The parent answers: it has the list that forked workers copy by touching it. */
TEST(what_workers_copy_of_their_parent_is_named)
{
  host_record *r = blank();
  host_object samples = {.count = 60000,
                         .type = "list",
                         .of = "tuple",
                         .grows = true,
                         .element_bytes = 1500,
                         .objects = 2000000,
                         .place = "/x/a.py:17",
                         .where = "main at /x/a.py:30"};
  r->processes[0] =
      (tree_process){.pid = 10, .parent = 1, .name = "python", .held_bytes = 400 * MIB};
  give_workers(r, 200 * MIB);
  r->inside_bytes = 400 * MIB;
  at_line(r, "/x/site-packages/torch/optim/sgd.py", "");
  at_line(r, "/x/a.py", "opt.step()");
  holds(r, &samples, "ds.samples", 100 * MIB);
  CHECK(answers(r, CAUSE_HOST_WORKERS,
                "probably with its own ds.samples, filled at line 17 of a.py",
                "hold ds.samples as arrays", NULL));
  /* It waits for a batch. */
  r->frame_count = r->object_count = 0;
  at_line(r, "/x/site-packages/torch/utils/data/dataloader.py", "");
  at_line(r, "/x/a.py", "for x, y in loader:");
  CHECK(answers(r, CAUSE_HOST_WORKERS, "worker processes, used at line 7 of a.py",
                "DataLoader(num_workers=", NULL));
  free(r);
}

/* Each of three workers has filled a part of one block. */
TEST(one_block_of_shared_memory_is_not_advised_to_be_closed)
{
  host_record *r = blank();
  host_object memory = {.count = 1,
                        .type = "multiprocessing.SharedMemory",
                        .mark = "shared",
                        .where = "main at /x/a.py:30",
                        .place = "/x/a.py:27"};
  r->processes[0] = (tree_process){.pid = 10, .parent = 1, .name = "python"};
  give_workers(r, 300 * MIB);
  for (int i = 1; i <= 3; i++) r->processes[i].shared_bytes = 280 * MIB;
  holds(r, &memory, "shm", 840 * MIB);
  CHECK(
      answers(r, CAUSE_HOST_SHARED, "line 27 of a.py", "a smaller type in the block", "unlink()"));
  host_peak p;
  CHECK_OK(host_peak_find(&p, r));
  CHECK(p.cause[0] == '\0' && strstr(p.fix, "a smaller type in the block") != NULL);
  free(r);
}

/* text = buf.getvalue() is as large as buf. */
TEST(a_file_in_memory_is_found_beside_its_text)
{
  host_record *r = blank();
  host_object text = {.count = 1, .type = "str", .place = "/x/a.py:26"};
  host_object buf = {.count = 1, .type = "_io.StringIO", .place = "/x/a.py:20", .grows = true};
  r->inside_bytes = 1000 * MIB;
  holds(r, &text, "text", 400 * MIB);
  holds(r, &buf, "buf", 390 * MIB);
  CHECK(answers(r, CAUSE_HOST_LEAK, "buf: a StringIO", "instead of StringIO", NULL));
  free(r);
}

/* PyTorch itself takes much of a small process. */
TEST(an_optimizer_gets_advice_from_a_quarter_of_the_process_on)
{
  host_record *r = blank();
  host_object adam = {.count = 4,
                      .type = "torch.Adam",
                      .of = "torch.Adam",
                      .objects = 36,
                      .place = "/x/a.py:20",
                      .source = "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)"};
  r->inside_bytes = 1000 * MIB;
  holds(r, &adam, "optimizer", 280 * MIB);
  host_peak p;
  CHECK_OK(host_peak_find(&p, r));
  CHECK(strstr(p.holder, "line 20 of a.py") != NULL && strstr(p.fix, "SparseAdam") != NULL);
  free(r);
}

TEST(a_decomposition_names_its_square_result)
{
  static const char *const lines[2] = {"u, s, vt = np.linalg.svd(x)",
                                       "u, s, vt = np.linalg.svd(x, full_matrices=False)"};
  for (int careful = 0; careful < 2; careful++) {
    host_record *r = blank();
    host_object u = {.count = 1, .type = "numpy.ndarray", .of = "float64", .place = "/x/a.py:7"};
    snprintf(u.source, sizeof u.source, "%s", lines[careful]);
    r->inside_bytes = 1000 * MIB;
    holds(r, &u, "u", 800 * MIB);
    CHECK(answers(r, CAUSE_HOST_LIMIT, "", "full_matrices=False", NULL) == !careful);
    free(r);
  }
}

TEST(a_column_of_texts_made_of_other_columns_is_named_once)
{
  host_record *r = blank();
  host_object key = {.count = 1,
                     .type = "pandas.Series",
                     .mark = "text",
                     .words = "meter",
                     .text_bytes = 850 * MIB,
                     .place = "/x/a.py:17"};
  r->inside_bytes = 1000 * MIB;
  holds(r, &key, "frame[\"key\"]", 900 * MIB);
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "", "groupby take several", "[\"meter\"]"));
  free(r);
}

TEST(results_of_tasks_are_used_inside_them)
{
  host_record *r = blank();
  host_object tasks = {.count = 22000,
                       .objects = 88000,
                       .type = "list",
                       .of = "_asyncio.Task",
                       .mark = "tree",
                       .element_bytes = 18000,
                       .place = "/x/a.py:14"};
  r->inside_bytes = 1000 * MIB;
  holds(r, &tasks, "what line 14 makes", 900 * MIB);
  CHECK(answers(r, CAUSE_HOST_LEAK, "", "inside the task", "what line 14 makes.append"));
  free(r);
}

/* The call says which option reads less; no option of another library helps. */
TEST(a_file_is_read_as_the_library_that_reads_it_can)
{
  static const struct {
    const char *source, *path, *change, *never;
  } lines[] = {
      {"df = pl.read_csv(PATH)", "", "pl.scan_csv(path)", "stowage"},
      {"t = pq.read_table(PATH)", "", "read_table(path, columns=[…]", "chunksize"},
      {"t = pandas.read_table(PATH)", "/d/a.txt", "chunksize=100_000", "columns=[…]"},
      {"df = pl.read_csv(PATH)", "/d/a.csv", "pl.scan_csv(\"/d/a.csv\")", "pandas"},
      {"df = pd.read_csv(PATH)", "", "usecols=[", "stowage"},
      {"t = pd.read_parquet(PATH)", "/d/a.parquet", "columns=[", "stowage"},
      {"x = np.loadtxt(PATH)", "/d/a.txt", "usecols=[", "mmap"},
      {"data = json.load(f)", "/d/a.json", "pip install ijson", "stowage"},
      {"data = f.read()", "/d/a.xml", "iterparse(", "for line in"},
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    host_record *r = blank();
    r->processes[0].read_bytes = 900 * MIB;
    if (lines[i].path[0] != '\0') {
      r->files[0] = (tree_file){.bytes = 900 * MIB, .read_bytes = 900 * MIB};
      snprintf(r->files[0].path, sizeof r->files[0].path, "%s", lines[i].path);
      r->file_count = 1;
    }
    at_line(r, "/x/a.py", lines[i].source);
    if (!answers(r, CAUSE_HOST_DATASET_WHOLE, "", lines[i].change, lines[i].never))
      FAIL("%s %s", lines[i].source, lines[i].path);
    free(r);
  }
}

TEST(the_prefix_of_a_json_list_is_its_key_and_one_fix_says_so)
{
  host_record *r = blank();
  host_object list = {.count = 900000,
                      .objects = 9000000,
                      .type = "list",
                      .of = "dict",
                      .place = "/x/a.py:6",
                      .source = "data = json.load(f)"};
  r->inside_bytes = 1000 * MIB;
  holds(r, &list, "data['events']", 950 * MIB);
  r->files[0] = (tree_file){.bytes = 200 * MIB, .read_bytes = 200 * MIB};
  snprintf(r->files[0].path, sizeof r->files[0].path, "/d/events.json");
  r->file_count = 1;
  at_line(r, "/x/a.py", "data = json.load(f)");
  explanation x;
  CHECK_OK(explain_host(&x, r));
  unsigned said = 0;
  for (uint32_t i = 0; i < x.fixes.count; i++)
    said += strstr(x.fixes.list[i].change, "ijson") != NULL;
  CHECK(said == 1 && strstr(x.fixes.list[0].change, "\"events.item\"") != NULL);
  explanation_free(&x);
  r->file_count = 0; /* closed: the line alone is known */
  CHECK_OK(explain_host(&x, r));
  CHECK(strstr(x.fixes.list[0].change, "\"events.item\"") != NULL);
  explanation_free(&x);
  free(r);
}

TEST(what_a_list_keeps_decides_how_to_keep_less)
{
  static const struct {
    const char *of, *words, *mark, *source, *change, *never;
    uint64_t element_bytes;
  } kinds[] = {
      {"str", "", "", "kept.append(line)", "collections.deque(maxlen=", NULL, 1300},
      {"numpy.ndarray", "float64 from uint8", "", "kept.append(f(x))", "keep them as uint8",
       "deque", MIB},
      {"numpy.ndarray", "float64", "", "kept.append(x.copy())", "open_memmap", "every tenth", MIB},
      {"numpy.ndarray", "int64 as uint8", "", "kept.append(x.copy())",
       "keep them as uint8, 8 times smaller than int64, and exact", "every tenth", MIB},
      {"numpy.ndarray", "float64", "", "kept.append(f(x))", "float32 takes half", NULL, MIB},
      {"tuple", "torch.float32", "ahead", "kept.append((x, y))", "in __getitem__", "deque", MIB},
      {"ctypes.Array", "", "", "kept.append(buffer)", "reuse a few buffers", "numpy", MIB},
      {"_asyncio.Task", "", "", "kept = await asyncio.gather(*tasks)", "inside its task",
       "as_completed", MIB},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    host_record *r = blank();
    host_object o = {.type = "list", .grows = true, .place = "/x/a.py:7"};
    o.element_bytes = kinds[i].element_bytes;
    o.count = 900 * MIB / o.element_bytes;
    o.objects = o.count + 1;
    snprintf(o.of, sizeof o.of, "%s", kinds[i].of);
    snprintf(o.words, sizeof o.words, "%s", kinds[i].words);
    snprintf(o.mark, sizeof o.mark, "%s", kinds[i].mark);
    snprintf(o.source, sizeof o.source, "%s", kinds[i].source);
    r->inside_bytes = 1000 * MIB;
    holds(r, &o, "kept", 900 * MIB);
    if (!answers(r, CAUSE_HOST_LEAK, "at line 7 of a.py", kinds[i].change, kinds[i].never))
      FAIL("%s %s", kinds[i].of, kinds[i].words);
    free(r);
  }
}

/* 13 anonymous mappings of 32 MiB, which the bytes that the process gives for itself leave out. */
TEST(anonymous_mappings_are_dropped_as_their_container_allows)
{
  for (int dict = 0; dict < 2; dict++) {
    host_record *r = blank();
    host_object o = {.count = 30,
                     .of = "mmap.mmap",
                     .mark = "shared",
                     .grows = true,
                     .element_bytes = 32 * MIB,
                     .place = "/x/a.py:13"};
    snprintf(o.type, sizeof o.type, "%s", dict ? "dict" : "list");
    r->inside_bytes = 4 * MIB;
    r->processes[0].shared_bytes = r->kinds[TREE_SHARED] = 960 * MIB;
    holds(r, &o, "segments", 960 * MIB);
    r->maps[0] = (tree_map){.kind = TREE_SHARED, .bytes = 960 * MIB, .path = "/dev/zero (deleted)"};
    r->map_count = 1;
    CHECK(answers(r, CAUSE_HOST_SHARED, "Anonymous mappings",
                  dict ? "if len(segments) > 7: segments.pop(next(iter(segments))).close()"
                       : "if len(segments) > 7: segments.pop(0).close()",
                  NULL));
    explanation x;
    CHECK_OK(explain_host(&x, r));
    CHECK(x.findings.list[0].confidence > 0.9); /* the report is about all of it */
    CHECK(strstr(x.findings.list[0].evidence.data, "/dev/zero") == NULL);
    CHECK(strstr(x.fixes.list[0].cost, "unlinked") == NULL);
    explanation_free(&x);
    free(r);
  }
}

TEST(a_memo_of_a_recursion_needs_smaller_entries)
{
  host_record *r = blank();
  host_object memo = {.count = 200000,
                      .objects = 4000000,
                      .type = "dict",
                      .of = "list",
                      .grows = true,
                      .element_bytes = 4900,
                      .place = "/x/a.py:20"};
  r->inside_bytes = 1000 * MIB;
  holds(r, &memo, "memo", 950 * MIB);
  at_line(r, "/x/a.py", "result = any(wins(n) for n in moves(piles))");
  at_line(r, "/x/a.py", "result = any(wins(n) for n in moves(piles))");
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "", "a recursion needs its results", "pop("));
  free(r);
}

TEST(a_program_in_another_language_is_named_with_the_tools_for_it)
{
  host_record *r = blank();
  r->from_inside = false;
  snprintf(r->processes[0].name, sizeof r->processes[0].name, "indexer");
  CHECK(answers(r, CAUSE_HOST_LIMIT, "indexer (process 10)", "heaptrack", NULL));
  r->limit_bytes = r->total_bytes;
  snprintf(r->limit_from, sizeof r->limit_from, "machine");
  host_peak p;
  CHECK_OK(host_peak_find(&p, r));
  CHECK(strstr(p.holder, "indexer (process 10)") != NULL);
  free(r);
}

/* A consumer has emptied most of it since; the allocator keeps that memory. */
TEST(a_queue_that_empties_is_no_c_code)
{
  host_record *r = blank();
  host_object queue = {.count = 555,
                       .type = "asyncio.Queue",
                       .of = "tuple",
                       .grows = true,
                       .element_bytes = MIB / 2,
                       .place = "/x/a.py:6"};
  r->inside_bytes = 1000 * MIB;
  r->inside_turns = 3;
  at_line(r, "/x/a.py", "asyncio.run(main())");
  holds(r, &queue, "queue", 270 * MIB);
  CHECK(first(r) != CAUSE_HOST_NATIVE);
  r->object_count = 0;
  CHECK(first(r) == CAUSE_HOST_NATIVE);
  free(r);
}

TEST(dicts_in_each_other_get_another_layout)
{
  host_record *r = blank();
  host_object trie = {.count = 26,
                      .type = "dict",
                      .of = "dict",
                      .mark = "nested",
                      .objects = 4000000,
                      .element_bytes = 25 * MIB};
  at_line(r, "/x/a.py", "node = node.setdefault(letter, {})");
  holds(r, &trie, "words", 800 * MIB);
  CHECK(answers(r, CAUSE_HOST_OBJECTS, "words: a dict of dicts, nested: about 4000000",
                "one flat dict", "under each key"));
  free(r);
}

/* Arrays of one size are one array twice only if their numbers are equal. */
TEST(arrays_with_different_numbers_are_not_the_same_data)
{
  host_record *r = blank();
  host_object ids = {.count = 40000000,
                     .type = "numpy.ndarray",
                     .of = "int32",
                     .shape = "(40000000,)",
                     .source = "ids = rng.integers(0, 9, n, dtype=np.int32)",
                     .values = "a1"};
  host_object scores = {.count = 20000000,
                        .type = "numpy.ndarray",
                        .of = "float64",
                        .shape = "(20000000,)",
                        .source = "w = weights()",
                        .values = "b2"};
  at_line(r, "/x/a.py", "print(ids.sum())");
  holds(r, &ids, "ids", 450 * MIB);
  holds(r, &scores, "w", 450 * MIB);
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  snprintf(r->objects[1].values, sizeof r->objects[1].values, "a1");
  CHECK(answers(r, CAUSE_HOST_COPIES, "ids and w hold the same data twice", "once", NULL));
  for (int i = 0; i < 2; i++)
    snprintf(r->objects[i].values, sizeof r->objects[i].values, "-"); /* buffers of zeros */
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  r->objects[0].values[0] = r->objects[1].values[0] = '\0'; /* not known: other shapes and types */
  CHECK(first(r) == CAUSE_HOST_LIMIT);
  free(r);
}

TEST(layers_that_record_nothing_hold_no_activations)
{
  host_record *r = blank();
  r->held_bytes = r->peak_bytes = r->inside_bytes = 600 * MIB;
  at_line(r, "/x/site-packages/torch/nn/modules/conv.py", "");
  at_line(r, "/x/a.py", "logits = model(batch)");
  snprintf(r->frames[1].name, sizeof r->frames[1].name, "train_epoch");
  r->tensors = 3;
  CHECK(answers(r, CAUSE_BATCH_TOO_BIG, "what they compute for the whole batch", "a smaller batch",
                "backward()"));
  r->tensors_graph = 1;
  CHECK(answers(r, CAUSE_BATCH_TOO_BIG, "probably activations", "half the batch", NULL));
  free(r);
}

/* The steps of an expression make tables that are freed at its end. */
TEST(memory_that_comes_and_goes_is_what_a_line_makes_for_a_moment)
{
  static const uint64_t seen[] = {100, 300, 600, 580, 420, 590, 600, 20};
  host_record *r = blank();
  r->held_bytes = r->peak_bytes = r->inside_bytes = 600 * MIB;
  r->inside_turns = 3;
  at_line(r, "/x/a.py", "total += left.join(right, on=\"key\").group_by(\"key\").sum()");
  for (size_t i = 0; i < 8; i++)
    r->samples[r->sample_count++] = (host_sample){i * 100, seen[i] * MIB};
  CHECK(answers(r, CAUSE_HOST_LIMIT, "Line 7 of a.py makes temporary values, 600.0 MiB",
                "each side by the key first", "free()"));
  host_peak p;
  CHECK_OK(host_peak_find(&p, r));
  CHECK(strstr(p.holder, "Line 7 of a.py makes temporary values") != NULL);
  r->samples[4].bytes = 580 * MIB;     /* nothing was freed before the end: */
  CHECK(first(r) == CAUSE_HOST_LIMIT); /* a join is no leak of C code */
  snprintf(r->frames[0].source, sizeof r->frames[0].source, "total += step(left)");
  CHECK(first(r) == CAUSE_HOST_NATIVE);
  free(r);
}

TEST(each_large_holder_comes_with_what_to_change)
{
  static const struct {
    host_object of;
    const char *words;
  } holders[] = {
      {{.type = "numpy.ndarray", .of = "float64", .shape = "(9, 9)"}, "float32 or int32"},
      {{.type = "numpy.ndarray", .of = "uint8", .shape = "(9, 9)"}, "a block of rows"},
      {{.type = "polars.DataFrame", .shape = "(9, 9)"}, "only the columns of rows"},
      {{.type = "pyarrow.Table", .shape = "(9, 9)"}, "only the columns of rows"},
      {{.type = "bytes"}, "make rows in parts"},
      {{.type = "sqlalchemy.Session"}, "the part of rows that is needed"},
      {{.type = "list", .of = "numpy.ndarray", .count = 9, .element_bytes = 20 * MIB},
       "numpy.save"}};
  for (size_t i = 0; i < sizeof holders / sizeof *holders; i++) {
    host_record *r = blank();
    r->held_bytes = r->peak_bytes = r->inside_bytes = 400 * MIB;
    holds(r, &holders[i].of, "rows", 100 * MIB); /* a quarter of it */
    r->inside_turns = 3;
    at_line(r, "/x/a.py", "step()");
    host_peak p;
    CHECK_OK(host_peak_find(&p, r));
    if (strstr(p.fix, holders[i].words) == NULL) FAIL("%s: %s", holders[i].of.type, p.fix);
    free(r);
  }
}

/* What the interpreter and its libraries hold belongs to no variable of the line. */
TEST(imported_libraries_are_not_what_a_line_makes)
{
  static const host_object table = {.count = 900000,
                                    .where = "main",
                                    .type = "pandas.DataFrame",
                                    .of = "float64 int64 str",
                                    .shape = "(900000, 8)",
                                    .place = "/x/a.py:5",
                                    .source = "orders = pd.read_csv(path)"};
  host_record *r = blank();
  r->inside_bytes = r->processes[0].held_bytes = r->held_bytes = 208 * MIB;
  holds(r, &table, "orders", 96 * MIB);
  at_line(r, "/x/a.py", "report = build(done)");
  r->inside_modules = 800; /* 50 MiB */
  CHECK(answers(r, CAUSE_HOST_LIMIT, "orders: a pandas.DataFrame", "usecols=", "float32"));
  r->object_count = 0;
  CHECK(answers(r, CAUSE_HOST_LIMIT, "Line 7 of a.py makes report, 158.0 MiB", "in parts", NULL));
  r->inside_modules = 1u << 30; /* a report can be wrong */
  CHECK(answers(r, CAUSE_HOST_LIMIT, "Line 7 of a.py makes report, 104.0 MiB", "in parts", NULL));
  free(r);
}

TEST(a_smaller_type_is_not_advised_for_what_has_it)
{
  static const struct {
    const char *of, *source, *change, *never;
  } lines[] = {
      {"float32", "near = emb @ emb.T", "block of rows", "float32"},
      {"float64", "near = emb @ emb.T", "float32 halves it", NULL},
      {"float32", "near = solve(emb)", "in parts", "float32"},
      {"float64", "near = solve(emb)", "float32", NULL},
      {"float32", "near = emb[:, None] - emb[None]", "block of rows", "float32"},
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    host_record *r = blank();
    host_object o = picture;
    snprintf(o.of, sizeof o.of, "%s", lines[i].of);
    r->inside_bytes = 1000 * MIB;
    holds(r, &o, "emb", 4 * MIB);
    at_line(r, "/x/a.py", lines[i].source);
    if (!answers(r, CAUSE_HOST_LIMIT, "makes near, ", lines[i].change, lines[i].never))
      FAIL("%s %s", lines[i].of, lines[i].source);
    free(r);
  }
}

TEST(a_join_with_more_rows_than_its_parts_says_so)
{
  host_record *r = blank();
  r->inside_bytes = 1000 * MIB;
  holds(r,
        &(host_object){.type = "polars.DataFrame",
                       .shape = "(12000000, 3)",
                       .place = "/x/a.py:8",
                       .source = "both = clicks.join(buys, on=\"user\")"},
        "both", 700 * MIB);
  holds(r, &(host_object){.type = "polars.DataFrame", .shape = "(200000, 2)"}, "buys", 3 * MIB);
  holds(r, &(host_object){.type = "polars.DataFrame", .shape = "(120000, 2)"}, "clicks", 2 * MIB);
  at_line(r, "/x/a.py", "per_user = both.group_by(\"user\").agg(pl.len())");
  CHECK(answers(r, CAUSE_HOST_LIMIT, "both has 12000000 rows", "each side by the key first",
                "/= 255"));
  explanation x;
  CHECK_OK(explain_host(&x, r));
  for (uint32_t i = 0; i < x.fixes.count; i++)
    if (strstr(x.fixes.list[i].change, "out=") != NULL) FAIL("%s", x.fixes.list[i].change);
  explanation_free(&x);
  free(r);
}

TEST(parts_of_a_list_fill_an_array_and_windows_need_no_copy)
{
  static const struct {
    const char *source, *change, *never;
  } lines[] = {{"x = np.array(images)", "x[i] = part", "sliding_window_view"},
               {"x = np.array([load(p) for p in paths])", "x[i] = part", "sliding_window_view"},
               {"x = np.array([wave[i:i + n] for i in starts])", "sliding_window_view", "x[i]"},
               {"pairs = list(pairs_of(users))", "array.array", "fromiter"}};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    host_record *r = blank();
    r->inside_bytes = 1000 * MIB;
    at_line(r, "/x/a.py", lines[i].source);
    explanation x;
    CHECK_OK(explain_host(&x, r));
    const char *change = x.fixes.list[0].change;
    if (strstr(change, lines[i].change) == NULL || strstr(change, lines[i].never) != NULL)
      FAIL("%s: %s", lines[i].source, change);
    explanation_free(&x);
    free(r);
  }
}

TEST(fewer_workers_comes_with_their_number)
{
  host_record *r = blank();
  r->processes[0] = (tree_process){.pid = 10, .parent = 1, .name = "python"};
  give_workers(r, 300 * MIB);
  explanation x;
  CHECK_OK(explain_host(&x, r));
  bool found = false;
  for (uint32_t i = 0; i < x.fixes.count; i++)
    found =
        found || strstr(x.fixes.list[i].change, "fewer workers: 1 instead of 3 (Pool(1)") != NULL;
  CHECK(found);
  explanation_free(&x);
  free(r);
}

TEST(a_call_inside_another_collects_little)
{
  CHECK(advises("pairs = list(pairs_of(users))", "one at a time", "out="));
  CHECK(advises("n = len(set(words(path)))", "one at a time", "out="));
  CHECK(
      advises("return Image.new(\"RGB\", size, tuple(x for x in y))", "in parts", "one at a time"));
}

/* What a library links inside is what the line makes that has called it. */
TEST(objects_inside_a_library_are_no_leak)
{
  host_record *r = blank();
  r->inside_bytes = 1000 * MIB;
  holds(r,
        &(host_object){.count = 24,
                       .where = "module xarray.core.dataset",
                       .type = "xarray.Variable",
                       .of = "xarray.Variable",
                       .mark = "linked",
                       .element_bytes = 16 * MIB},
        "xarray.Dataset._variables", 400 * MIB);
  at_line(r, "/x/a.py", "temps = xr.concat_days(days)");
  CHECK(answers(r, CAUSE_HOST_LIMIT, "Line 7 of a.py makes temps", "in parts", "chain"));
  snprintf(r->objects[0].where, sizeof r->objects[0].where, "module /x/a.py");
  CHECK(answers(r, CAUSE_HOST_LEAK, "xarray.Dataset._variables", "chain", NULL));
  free(r);
}

TEST(results_that_a_parent_collects_are_no_copies_of_workers)
{
  host_record *r = blank();
  r->held_bytes = 160 * MIB;
  r->processes[0] = (tree_process){
      .pid = 10, .parent = 1, .name = "python", .held_bytes = 78 * MIB, .read_bytes = 17 * MIB};
  for (int i = 1; i < 3; i++)
    r->processes[i] = (tree_process){
        .pid = 10 + i, .parent = 10, .name = "python", .held_bytes = (uint64_t)(70 - i * 20) * MIB};
  r->processes[2].held_bytes = 34 * MIB;
  r->process_count = 3;
  r->inside_bytes = 78 * MIB;
  holds(r,
        &(host_object){.count = 1500000,
                       .where = "<module> at /x/a.py:7",
                       .type = "list",
                       .element_bytes = 48,
                       .mark = "nameless",
                       .place = "/x/a.py:7",
                       .grows = true,
                       .source = "paths = pool.map(simulate, range(300))",
                       .objects = 1500000},
        "what line 7 makes", 72 * MIB);
  at_line(r, "/usr/lib/python3.11/multiprocessing/pool.py", "");
  at_line(r, "/x/a.py", "paths = pool.map(simulate, range(300))");
  CHECK(answers(r, CAUSE_HOST_WORKERS, "collects the results of 2 worker processes in paths",
                "imap", NULL));
  free(r);
}

TEST(a_limit_that_was_passed_for_a_moment_is_reported)
{
  host_record *r = blank();
  char text[240];
  r->peak_bytes = 1020 * MIB;
  for (size_t i = 0; i < 4; i++)
    r->samples[r->sample_count++] = (host_sample){i * 40 + 10, (900 + i * 30) * MIB};
  CHECK(host_peak_say_limit(text, sizeof text, r));
  CHECK(strstr(text, "by 20.0 MiB for a moment, and ended by itself") != NULL);
  CHECK(strstr(text, "the highest: 990.0 MiB; at most 40 ms between two") != NULL);
  r->samples[3].bytes = 1010 * MIB;
  CHECK(host_peak_say_limit(text, sizeof text, r));
  CHECK(strstr(text, "about 40 ms") != NULL);
  snprintf(r->ended, sizeof r->ended, "limit");
  CHECK(!host_peak_say_limit(text, sizeof text, r));
  r->ended[0] = '\0';
  r->peak_bytes = 1000 * MIB;
  CHECK(!host_peak_say_limit(text, sizeof text, r));
  free(r);
}

TEST_MAIN
