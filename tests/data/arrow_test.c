/* Arrow: files become streams, streams get smaller types, and every struct is released once. */
#include <stowage/arrow.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/arrow_parts.h"
#include "harness.h"

/* ---- a stream of two columns: int64 with nulls, float64 ---- */

enum { ROWS = 10, OFFSET = 3 };

typedef struct made {
  int batches;     /* left */
  int64_t most;    /* the last value of the first column */
  int fails_after; /* batches; -1: never */
} made;

static int live; /* arrays made and not released */
static void (*free_array)(struct ArrowArray *);

static void count_release(struct ArrowArray *a) {
  live--;
  a->release = free_array;
  a->release(a);
}

static int made_schema(struct ArrowArrayStream *s, struct ArrowSchema *out) {
  (void)s;
  if (arrow_schema_make(out, "+s", "", 0, 2) != STOW_OK) return ENOMEM;
  arrow_schema_make(out->children[0], "l", "whole", ARROW_FLAG_NULLABLE, 0);
  arrow_schema_make(out->children[1], "g", "real", 0, 0);
  return 0;
}

/* Makes batches whose first column begins at an offset inside its buffers; the bytes under its
 * nulls would need 64 bits. */
static int made_next(struct ArrowArrayStream *s, struct ArrowArray *out) {
  made *m = s->private_data;
  *out = (struct ArrowArray){0};
  if (m->fails_after-- == 0) return EIO;
  if (m->batches-- == 0) return 0;
  arrow_array_make(out, ROWS, 1, 2);
  struct ArrowArray *whole = out->children[0], *real = out->children[1];
  arrow_array_make(whole, ROWS, 2, 0);
  arrow_array_make(real, ROWS, 2, 0);
  whole->offset = OFFSET;
  whole->null_count = -1; /* not counted, which producers may do */
  uint8_t *bits = arrow_buffer(whole, 0, 2);
  int64_t *values = arrow_buffer(whole, 1, (ROWS + OFFSET) * sizeof *values);
  double *reals = arrow_buffer(real, 1, ROWS * sizeof *reals);
  bits[0] = bits[1] = 0xff;
  for (int i = 0; i < ROWS + OFFSET; i++) values[i] = i;
  for (int i = 0; i < ROWS; i++) reals[i] = i * 0.5;
  values[OFFSET + 2] = INT64_MAX;
  bits[0] &= (uint8_t) ~(1u << (OFFSET + 2));
  values[0] = INT64_MIN; /* before the offset: no value */
  values[OFFSET + ROWS - 1] = m->most;
  free_array = whole->release;
  for (int i = 0; i < 2; i++) out->children[i]->release = count_release;
  live += 2;
  return 0;
}

static const char *made_error(struct ArrowArrayStream *s) {
  (void)s;
  return "the disk is gone";
}

static void made_release(struct ArrowArrayStream *s) {
  live--;
  s->release = NULL;
}

static struct ArrowArrayStream stream_of(made *m) {
  live++;
  return (struct ArrowArrayStream){made_schema, made_next, made_error, made_release, m};
}

static stow_arrow_plan *plan_of(int batches, int64_t most) {
  made m = {batches, most, -1};
  struct ArrowArrayStream s = stream_of(&m);
  stow_arrow_plan *plan = NULL;
  CHECK(stow_arrow_plan_make(&plan, &s, NULL) == STOW_OK);
  CHECK(s.release == NULL);
  return plan;
}

/* ---- plans ---- */

TEST(nulls_and_rows_before_the_offset_do_not_count)
{
  stow_arrow_plan *plan = plan_of(2, 100);
  stow_arrow_column c = STOW_ARROW_COLUMN_INIT;
  CHECK(stow_arrow_plan_get_column(plan, 0, &c) == STOW_OK);
  CHECK(strcmp(c.name, "whole") == 0 && strcmp(c.from_type, "int64") == 0);
  CHECK(strcmp(c.to_type, "int8") == 0);
  CHECK(c.rows == 2 * ROWS && c.nulls == 2 && c.least == 3 && c.most == 100);
  CHECK(c.bytes == 2 * ROWS * 8 && c.bytes_after == 2 * ROWS);
  CHECK(stow_arrow_plan_get_column(plan, 1, &c) == STOW_OK);
  CHECK(strcmp(c.to_type, "float32") == 0);
  CHECK(stow_arrow_plan_get_column(plan, 2, &c) == STOW_ERR_NOT_FOUND);
  stow_arrow_plan_close(plan);
  CHECK(live == 0);
}

TEST(a_stream_in_smaller_types_has_the_same_values)
{
  stow_arrow_plan *plan = plan_of(2, 100);
  made again = {2, 100, -1};
  struct ArrowArrayStream from = stream_of(&again), to;
  CHECK(stow_arrow_plan_apply(plan, &to, &from) == STOW_OK);
  CHECK(from.release == NULL);
  stow_arrow_plan_close(plan); /* the stream keeps it */
  struct ArrowSchema schema;
  CHECK(to.get_schema(&to, &schema) == 0);
  CHECK(strcmp(schema.children[0]->format, "c") == 0 &&
        strcmp(schema.children[1]->format, "f") == 0);
  CHECK(schema.children[0]->flags == ARROW_FLAG_NULLABLE);
  schema.release(&schema);
  for (int batch = 0; batch < 2; batch++) {
    struct ArrowArray a;
    CHECK(to.get_next(&to, &a) == 0 && a.release != NULL && a.length == ROWS);
    struct ArrowArray child = *a.children[0]; /* moved out of its parent */
    a.children[0]->release = NULL;
    const float *reals = a.children[1]->buffers[1];
    CHECK(reals[9] == 4.5f);
    a.release(&a);
    const int8_t *values = (const int8_t *)child.buffers[1] + child.offset;
    const uint8_t *bits = child.buffers[0];
    for (int i = 0; i < ROWS; i++) {
      bool valid = (bits[(child.offset + i) / 8] >> ((child.offset + i) % 8) & 1) != 0;
      CHECK(valid == (i != 2));
      if (valid) CHECK(values[i] == (i == ROWS - 1 ? 100 : i + OFFSET));
    }
    child.release(&child);
  }
  struct ArrowArray end;
  CHECK(to.get_next(&to, &end) == 0 && end.release == NULL);
  to.release(&to);
  CHECK(live == 0);
}

TEST(a_second_reading_that_differs_is_an_error)
{
  stow_arrow_plan *plan = plan_of(1, 100);
  made larger = {1, 1000, -1}, fewer = {0, 100, -1}, broken = {1, 100, 0};
  made *all[] = {&larger, &fewer, &broken};
  for (int i = 0; i < 3; i++) {
    struct ArrowArrayStream from = stream_of(all[i]), to;
    struct ArrowArray a;
    CHECK(stow_arrow_plan_apply(plan, &to, &from) == STOW_OK);
    CHECK(to.get_next(&to, &a) != 0 && a.release == NULL);
    CHECK(strlen(to.get_last_error(&to)) > 0);
    to.release(&to);
  }
  stow_arrow_plan_close(plan);
  CHECK(live == 0);
}

TEST(a_stream_that_fails_is_reported_with_its_own_words)
{
  made m = {3, 1, 1};
  struct ArrowArrayStream s = stream_of(&m);
  stow_arrow_plan *plan;
  CHECK(stow_arrow_plan_make(&plan, &s, NULL) == STOW_ERR_IO && plan == NULL);
  CHECK(strstr(stow_status_message(), "the disk is gone") != NULL);
  CHECK(s.release == NULL && live == 0);
  CHECK(stow_arrow_plan_make(&plan, &s, NULL) == STOW_ERR_INVALID);
}

TEST(a_tolerance_allows_rounding)
{
  made m = {1, 1, -1};
  struct ArrowArrayStream s = stream_of(&m);
  stow_arrow_plan_options o = STOW_ARROW_PLAN_OPTIONS_INIT;
  stow_arrow_column c = STOW_ARROW_COLUMN_INIT;
  stow_arrow_plan *plan;
  o.purpose = 1; /* training */
  o.tolerance = 1e-2;
  CHECK(stow_arrow_plan_make(&plan, &s, &o) == STOW_OK);
  CHECK(stow_arrow_plan_get_column(plan, 1, &c) == STOW_OK);
  CHECK(strcmp(c.to_type, "float16") == 0 && c.error == 0);
  stow_arrow_plan_close(plan);
  o.tolerance = -1;
  s = stream_of(&m);
  CHECK(stow_arrow_plan_make(&plan, &s, &o) == STOW_ERR_INVALID && s.release == NULL);
  CHECK(live == 0);
}

/* ---- files ---- */

static void write_npy(const char *path, const char *descr, const char *shape, const void *data,
                      size_t bytes) {
  char header[118];
  snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr,
           shape);
  size_t length = strlen(header);
  memset(header + length, ' ', sizeof header - length);
  header[sizeof header - 1] = '\n';
  FILE *f = fopen(path, "wb");
  CHECK(f != NULL);
  fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, f);
  fwrite(header, 1, sizeof header, f);
  fwrite(data, 1, bytes, f);
  fclose(f);
}

TEST(an_array_of_two_dimensions_is_a_column_of_lists)
{
  float values[6] = {1, 2, 3, 4, 5, 6};
  char path[512];
  snprintf(path, sizeof path, "%s/x.npy", harness_folder());
  write_npy(path, "<f4", "(3, 2)", values, sizeof values);
  struct ArrowArrayStream s;
  struct ArrowSchema schema;
  struct ArrowArray a;
  CHECK(stow_arrow_open(&s, path, 16) == STOW_OK);
  CHECK(s.get_schema(&s, &schema) == 0);
  CHECK(strcmp(schema.children[0]->format, "+w:2") == 0);
  CHECK(strcmp(schema.children[0]->children[0]->format, "f") == 0);
  schema.release(&schema);
  CHECK(s.get_next(&s, &a) == 0 && a.length == 2); /* two rows of 8 bytes */
  CHECK(((const float *)a.children[0]->children[0]->buffers[1])[3] == 4);
  a.release(&a);
  CHECK(s.get_next(&s, &a) == 0 && a.length == 1);
  a.release(&a);
  CHECK(s.get_next(&s, &a) == 0 && a.release == NULL);
  s.release(&s);
  CHECK(stow_arrow_open(&s, "nowhere.npz", 0) == STOW_ERR_NOT_FOUND && s.release == NULL);
  write_npy(path, "<c8", "(3,)", values, sizeof values);
  CHECK(stow_arrow_open(&s, path, 0) == STOW_ERR_UNSUPPORTED && s.release == NULL);
}

TEST_MAIN
