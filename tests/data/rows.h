/* Files of rows whose values are their numbers, and batches of them drained and counted: for the
 * tests of batches, their order and their memory. */
#ifndef ROWS_H
#define ROWS_H

#include <stowage/batches.h>

#include <pthread.h>
#include <unistd.h>

#include "arrays/npy.h"
#include "base/buffer.h"
#include "base/dtype.h"
#include "harness.h"

#define MIB (UINT64_C(1) << 20)

/* Writes a .npy file whose row i holds i in its first item, then i + 1, i + 2, … */
static inline const char *write_rows(const char *name, uint64_t count, uint64_t items, dtype type) {
  static char paths[8][256];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", harness_folder(), name);
  FILE *f = fopen(path, "wb");
  CHECK(f != NULL);
  buffer b = BUFFER_INIT;
  uint64_t shape[2] = {count, items};
  CHECK_OK(npy_write_header(&b, type, false, shape, items == 0 ? 1 : 2));
  CHECK(fwrite(b.data, 1, b.length, f) == b.length);
  for (uint64_t row = 0; row < count; row++)
    for (uint64_t i = 0; i < (items == 0 ? 1 : items); i++) {
      int64_t whole = (int64_t)(row + i);
      double real = (double)whole;
      if (type == DTYPE_I64) CHECK(fwrite(&whole, 8, 1, f) == 1);
      if (type == DTYPE_F64) CHECK(fwrite(&real, 8, 1, f) == 1);
    }
  CHECK(fclose(f) == 0);
  buffer_free(&b);
  return path;
}

static inline stow_batches_options plain(const stow_array_options *files, uint32_t count) {
  enum { LISTS = 8 }; /* valid until as many more calls */
  static const stow_array_options *lists[LISTS][STOW_BATCHES_FILES_MAX];
  static unsigned next;
  const stow_array_options **list = lists[next++ % LISTS];
  stow_batches_options o = STOW_BATCHES_OPTIONS_INIT;
  for (uint32_t i = 0; i < count; i++) list[i] = &files[i];
  o.files = list;
  o.file_count = count;
  o.world = 1;
  o.memory_bytes = 4 * MIB;
  return o;
}

static inline stow_array_options file_of(const char *path) {
  stow_array_options f = STOW_ARRAY_OPTIONS_INIT;
  f.path = path;
  return f;
}

/* Opens batches of a file of 1000 rows; the first was taken into *data and released. */
static inline stow_batches *taken_from(void **data) {
  stow_array_options f = file_of(write_rows("rows.npy", 1000, 100, DTYPE_I64));
  stow_batches_options o = plain(&f, 1);
  stow_batches *b;
  uint64_t rows;
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_OK(stow_batches_next(b, data, &rows));
  CHECK_OK(stow_batches_release(*data));
  return b;
}

/* Takes batches to the end of the epoch; stores each row's number in order, if `order` is given. */
static inline uint64_t drain(stow_batches *b, int64_t *order, uint64_t most, uint64_t stop_after) {
  uint64_t rows = 0, total = 0, batches = 0;
  stow_array_info info = STOW_ARRAY_INFO_INIT;
  CHECK_OK(stow_batches_get_file(b, 0, &info));
  while (batches < stop_after) {
    void *data[STOW_BATCHES_FILES_MAX];
    CHECK_OK(stow_batches_next(b, data, &rows));
    if (rows == 0) break;
    CHECK(((uintptr_t)data[0] & 63) == 0);
    const int64_t *values = data[0];
    for (uint64_t i = 0; i < rows; i++, total++) {
      CHECK(total < most);
      order[total] = values[i * info.row_items];
      for (uint64_t k = 1; k < info.row_items; k++)
        CHECK(values[i * info.row_items + k] == order[total] + (int64_t)k);
    }
    CHECK_OK(stow_batches_release(data[0]));
    batches++;
  }
  return total;
}

static inline void count_rows(uint8_t *seen, const int64_t *order, uint64_t count, uint64_t rows) {
  for (uint64_t i = 0; i < count; i++) {
    CHECK(order[i] >= 0 && (uint64_t)order[i] < rows);
    CHECK(seen[order[i]]++ == 0);
  }
}

/* Writes a file that is sparse after its header: only what is read or stays resident matters. */
static inline const char *write_hole(uint64_t rows, uint64_t items) {
  static char path[256];
  snprintf(path, sizeof path, "%s/hole.npy", harness_folder());
  buffer b = BUFFER_INIT;
  uint64_t shape[2] = {rows, items};
  CHECK_OK(npy_write_header(&b, DTYPE_F64, false, shape, 2));
  FILE *f = fopen(path, "wb");
  CHECK(f != NULL && fwrite(b.data, 1, b.length, f) == b.length && fclose(f) == 0);
  CHECK(truncate(path, (off_t)(b.length + rows * items * 8)) == 0);
  buffer_free(&b);
  return path;
}

/* Bytes in memory, read through the caller's own function. */
typedef struct flaky {
  const char *bytes;
  uint64_t length;
  pthread_mutex_t guard;
  int reads, fail_at; /* the nth read fails, once */
} flaky;

static inline int read_flaky(void *user, uint64_t offset, void *to, uint64_t count) {
  flaky *f = user;
  pthread_mutex_lock(&f->guard);
  bool fail = f->reads++ == f->fail_at;
  pthread_mutex_unlock(&f->guard);
  if (fail) return STOW_ERR_IO;
  if (offset + count > f->length) return -99;
  memcpy(to, f->bytes + offset, count);
  return 0;
}

#endif
