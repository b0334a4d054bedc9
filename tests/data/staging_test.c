/* Staging: batches sent to a device arrive whole and in order, their memory is reused only after
 * its copy, and failures are sent again. Uses the simulated device, whose copies happen only as its
 * time passes: memory reused too early shows as wrong rows. */
#include <stowage/batches.h>
#include <stowage/sys/device.h>

#include <stdlib.h>

#include "arrays/npy.h"
#include "base/buffer.h"
#include "base/dtype.h"
#include "device/device.h"
#include "harness.h"

#define MIB (UINT64_C(1) << 20)
enum { ROWS = 20000, ITEMS = 100, BATCH = 64, BATCHES = (ROWS + BATCH - 1) / BATCH };

static stow_device *open_device(void) {
  stow_sim_options o = STOW_SIM_OPTIONS_INIT;
  o.vram_bytes = 256 * MIB, o.host_bytes = 256 * MIB;
  stow_device *d;
  CHECK_OK(stow_sim_open(&d, &o));
  return d;
}

/* Writes two files: row i of x.npy holds i, i + 1, …; row i of y.npy holds -i. */
static void write_files(stow_array_options files[2]) {
  static char paths[2][256];
  for (int file = 0; file < 2; file++) {
    snprintf(paths[file], sizeof paths[0], "%s/%s.npy", harness_folder(), file == 0 ? "x" : "y");
    FILE *f = fopen(paths[file], "wb");
    buffer b = BUFFER_INIT;
    uint64_t shape[2] = {ROWS, ITEMS};
    CHECK_OK(npy_write_header(&b, DTYPE_I64, false, shape, file == 0 ? 2 : 1));
    CHECK(f != NULL && fwrite(b.data, 1, b.length, f) == b.length);
    for (int64_t row = 0; row < ROWS; row++)
      for (int64_t i = 0; i < (file == 0 ? ITEMS : 1); i++) {
        int64_t value = file == 0 ? row + i : -row;
        CHECK(fwrite(&value, sizeof value, 1, f) == 1);
      }
    CHECK(fclose(f) == 0);
    buffer_free(&b);
    files[file] = (stow_array_options)STOW_ARRAY_OPTIONS_INIT;
    files[file].path = paths[file];
  }
}

static stow_batches *open_within(stow_device *d, bool shuffle, uint64_t memory_bytes) {
  stow_array_options files[2];
  write_files(files);
  stow_batches_options o = STOW_BATCHES_OPTIONS_INIT;
  const stow_array_options *both[2] = {&files[0], &files[1]};
  o.files = both, o.file_count = 2, o.batch_rows = BATCH, o.world = 1;
  o.shuffle = shuffle, o.memory_bytes = memory_bytes, o.device = d;
  stow_batches *b;
  CHECK_OK(stow_batches_open(&b, &o));
  return b;
}

static stow_batches *open_batches(stow_device *d, bool shuffle) {
  return open_within(d, shuffle, 4 * MIB);
}

static void places(stow_device *d, uint64_t to[2]) {
  CHECK_OK(device_plain_alloc(d, &to[0], BATCH * ITEMS * 8, STOW_TIER_VRAM));
  CHECK_OK(device_plain_alloc(d, &to[1], BATCH * 8, STOW_TIER_VRAM));
}

/* Checks the device's memory after the stream: rows match labels, each once. */
static void expect(stow_device *d, const uint64_t at[2], uint64_t rows, stow_stream stream,
                   uint8_t seen[ROWS]) {
  static int64_t x[BATCH * ITEMS], y[BATCH];
  CHECK_OK(device_copy(d, (stow_addr)(uintptr_t)x, at[0], rows * ITEMS * 8, stream));
  CHECK_OK(device_copy(d, (stow_addr)(uintptr_t)y, at[1], rows * 8, stream));
  CHECK_OK(device_stream_sync(d, stream));
  for (uint64_t i = 0; i < rows; i++) {
    int64_t row = x[i * ITEMS];
    CHECK(row >= 0 && row < ROWS && y[i] == -row && seen[row]++ == 0);
    for (int64_t k = 1; k < ITEMS; k++) CHECK(x[i * ITEMS + (uint64_t)k] == row + k);
  }
}

TEST(every_batch_arrives_whole_sequential_and_shuffled)
{
  for (int shuffle = 0; shuffle < 2; shuffle++) {
    stow_device *d = open_device();
    stow_batches *b = open_batches(d, shuffle);
    stow_stream stream;
    uint64_t to[2], rows, total = 0;
    static uint8_t seen[ROWS];
    memset(seen, 0, sizeof seen);
    CHECK_OK(device_stream_create(d, &stream));
    places(d, to);
    for (;;) {
      CHECK_OK(stow_batches_send(b, to, stream, &rows));
      if (rows == 0) break;
      expect(d, to, rows, stream, seen);
      if (!shuffle) CHECK(seen[total] == 1 && seen[total + rows - 1] == 1);
      total += rows;
    }
    CHECK_U64(total, ROWS);
    stow_batches_close(b);
    for (int i = 0; i < 2; i++) CHECK_OK(device_plain_free(d, to[i]));
    CHECK_OK(device_stream_destroy(d, stream));
    CHECK_OK(stow_device_close(d)); /* nothing pinned is left, and no event */
  }
}

/* The caller's stream does not advance: copies are submitted and wait, while readers continue as
 * far as they may. */
TEST(memory_is_read_into_again_only_when_its_copy_is_done)
{
  stow_device *d = open_device();
  stow_batches *b = open_batches(d, false);
  stow_stream stream;
  static uint64_t to[BATCHES][2], rows[BATCHES];
  uint64_t all;
  static uint8_t seen[ROWS];
  CHECK_OK(device_stream_create(d, &stream));
  CHECK_OK(
      device_plain_alloc(d, &all, (uint64_t)BATCHES * BATCH * (ITEMS + 1) * 8, STOW_TIER_VRAM));
  for (int i = 0; i < BATCHES; i++) {
    to[i][0] = all + (uint64_t)i * BATCH * (ITEMS + 1) * 8;
    to[i][1] = to[i][0] + BATCH * ITEMS * 8;
    CHECK_OK(stow_batches_send(b, to[i], stream, &rows[i]));
    CHECK_OK(stow_batches_wait(b, 1000000)); /* gives the readers time */
  }
  stow_sim_counts counts = STOW_SIM_COUNTS_INIT;
  CHECK_OK(stow_sim_get_counts(d, &counts));
  CHECK(counts.event_waits >= BATCHES - 2); /* two in flight, the third waited */
  CHECK_U64(counts.violations, 0);
  for (int i = 0; i < BATCHES; i++) expect(d, to[i], rows[i], stream, seen);
  for (int i = 0; i < ROWS; i++) CHECK(seen[i] == 1);
  stow_batches_close(b);
  CHECK_OK(device_plain_free(d, all));
  CHECK_OK(device_stream_destroy(d, stream));
  CHECK_OK(stow_device_close(d));
}

TEST(pinned_memory_stays_within_the_plan_and_goes_back)
{
  stow_device *d = open_device();
  stow_batches *b = open_batches(d, false);
  stow_batches_info info = STOW_BATCHES_INFO_INIT;
  stow_sim_counts counts = STOW_SIM_COUNTS_INIT;
  uint64_t to[2], rows;
  places(d, to);
  CHECK_OK(stow_batches_get_info(b, &info));
  do CHECK_OK(stow_batches_send(b, to, NULL, &rows));
  while (rows > 0);
  CHECK_OK(stow_sim_get_counts(d, &counts));
  CHECK(counts.host_used_bytes > 0);
  CHECK(counts.host_peak_bytes <= info.planned_bytes + 2 * 2 * MIB); /* a page of each file */
  stow_batches_close(b);
  CHECK_OK(stow_sim_get_counts(d, &counts));
  CHECK_U64(counts.host_used_bytes, 0);
  for (int i = 0; i < 2; i++) CHECK_OK(device_plain_free(d, to[i]));
  CHECK_OK(stow_device_close(d));
}

/* The copies and events of a batch fail, at the first batch and at later ones: the failure is
 * reported, and sending again delivers exactly what was left. */
TEST(a_batch_whose_copy_fails_is_sent_again)
{
  static const struct {
    stow_fault_kind kind;
    uint64_t nth;
  } faults[] = {{STOW_FAULT_COPY, 1}, {STOW_FAULT_COPY, 2}, {STOW_FAULT_EVENT, 1}};
  static uint8_t seen[ROWS];
  for (size_t k = 0; k < 3; k++)
    for (uint64_t at = 0; at < 5; at++) {
      stow_device *d;
      CHECK_OK(stow_fault_open(&d, open_device()));
      stow_batches *b = open_batches(d, false);
      uint64_t to[2], rows = 1, sent = 0;
      memset(seen, 0, sizeof seen);
      places(d, to);
      while (rows > 0) {
        if (sent == at) {
          stow_batches_state state = STOW_BATCHES_STATE_INIT;
          CHECK_OK(stow_fault_arm(d, faults[k].kind, faults[k].nth, false, STOW_ERR_DEVICE));
          CHECK_STATUS(stow_batches_send(b, to, NULL, &rows), STOW_ERR_DEVICE);
          CHECK_OK(stow_batches_get_state(b, &state));
          CHECK_U64(state.next_batch, at);
        }
        CHECK_OK(stow_batches_send(b, to, NULL, &rows));
        if (rows > 0) expect(d, to, rows, NULL, seen);
        sent++;
      }
      for (int i = 0; i < ROWS; i++) CHECK(seen[i] == 1);
      stow_batches_close(b);
      for (int i = 0; i < 2; i++) CHECK_OK(device_plain_free(d, to[i]));
      CHECK_OK(stow_device_close(d));
    }
}

TEST(going_elsewhere_after_a_failed_copy_loses_no_buffer)
{
  stow_device *d;
  CHECK_OK(stow_fault_open(&d, open_device()));
  stow_batches *b = open_batches(d, false);
  static uint8_t seen[ROWS];
  uint64_t to[2], rows;
  places(d, to);
  CHECK_OK(stow_fault_arm(d, STOW_FAULT_COPY, 2, false, STOW_ERR_DEVICE));
  CHECK_STATUS(stow_batches_send(b, to, NULL, &rows), STOW_ERR_DEVICE);
  CHECK_OK(stow_batches_set_epoch(b, 1));
  CHECK_OK(stow_batches_send(b, to, NULL, &rows));
  expect(d, to, rows, NULL, seen);
  CHECK(seen[0] == 1 && seen[BATCH - 1] == 1);
  stow_batches_close(b);
  for (int i = 0; i < 2; i++) CHECK_OK(device_plain_free(d, to[i]));
  CHECK_OK(stow_device_close(d));
}

/* Room for no batch, for one and for two: not for the many that a reader would fill at a time. */
TEST(a_device_that_pins_nothing_is_reported_and_little_is_enough)
{
  for (uint64_t room = 0; room <= 2; room++) {
    stow_sim_options so = STOW_SIM_OPTIONS_INIT;
    so.vram_bytes = 256 * MIB, so.host_bytes = 2 * MIB;
    stow_device *d;
    uint64_t others[256], taken = 256 - room * ((BATCH * ITEMS * 8) / 8192 + 1);
    CHECK_OK(stow_sim_open(&d, &so));
    for (uint64_t i = 0; i < taken; i++)
      CHECK_OK(device_plain_alloc(d, &others[i], 8192, STOW_TIER_HOST));
    stow_batches *b = open_within(d, false, 8 * MIB);
    static uint8_t seen[ROWS];
    uint64_t to[2], rows = 1, total = 0;
    memset(seen, 0, sizeof seen);
    places(d, to);
    if (room == 0) {
      CHECK_STATUS(stow_batches_send(b, to, NULL, &rows), STOW_ERR_HOST_MEMORY);
      CHECK_MESSAGE("host");
    }
    while (room > 0 && rows > 0) {
      CHECK_OK(stow_batches_send(b, to, NULL, &rows));
      if (rows > 0) expect(d, to, rows, NULL, seen);
      total += rows;
    }
    CHECK_U64(total, room == 0 ? 0 : ROWS);
    stow_batches_close(b);
    for (uint64_t i = 0; i < taken; i++) CHECK_OK(device_plain_free(d, others[i]));
    for (int i = 0; i < 2; i++) CHECK_OK(device_plain_free(d, to[i]));
    CHECK_OK(stow_device_close(d));
  }
}

TEST(sending_without_a_device_and_two_kinds_of_memory_are_refused)
{
  stow_array_options files[2];
  write_files(files);
  stow_batches_options o = STOW_BATCHES_OPTIONS_INIT;
  const stow_array_options *both[2] = {&files[0], &files[1]};
  o.files = both, o.file_count = 2, o.world = 1, o.memory_bytes = 4 * MIB;
  stow_batches *b;
  uint64_t to[2] = {0}, rows;
  CHECK_OK(stow_batches_open(&b, &o));
  CHECK_STATUS(stow_batches_send(b, to, NULL, &rows), STOW_ERR_INVALID);
  CHECK_MESSAGE("without a device");
  stow_batches_close(b);
  stow_device *d = open_device();
  o.device = d;
  o.memory.allocate = (void *(*)(void *, size_t))(uintptr_t)calloc;
  o.memory.release = (void (*)(void *, void *, size_t))(uintptr_t)free;
  CHECK_STATUS(stow_batches_open(&b, &o), STOW_ERR_INVALID);
  CHECK_OK(stow_device_close(d));
}

TEST_MAIN
