/* Host records made by hand: checks which cause each kind of evidence leads to. tests/shim/host.sh
 * runs real programs. */
#include "advise/host.h"

#include <stdio.h>
#include <stdlib.h>

#include "advise/host_case.h"
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
  CHECK(first(r) == CAUSE_HOST_COPIES);
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
             "cache: a list of 49 arrays, 882.0 MiB, grows by 18.0 MiB per turn at "
             "line 5 of train.py");
  explanation_free(&x);
  free(r);
}

TEST(memory_without_a_name_that_grows_while_the_program_goes_on_is_native)
{
  host_record *r = blank();
  r->inside_bytes = 1000 * MIB;
  at_line(r, "decode.py", "frame = decoder.next()");
  CHECK(first(r) == CAUSE_HOST_LIMIT); /* one value that the line creates */
  r->inside_turns = 3;
  CHECK(first(r) == CAUSE_HOST_NATIVE);
  holds(r, &picture, "photos", 600 * MIB);
  CHECK(first(r) == CAUSE_HOST_LIMIT); /* most of it has a name */
  free(r);
}

TEST(shared_and_pinned_memory_are_told_apart)
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
  free(r);
}

TEST_MAIN
