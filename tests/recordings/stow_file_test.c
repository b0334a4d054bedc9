/* The .stow trace file: everything is read back, and what a crash or damage leaves is used. */
#include <stdlib.h>

#include "base/buffer.h"
#include "recordings/recording_file.h"
#include "recordings/same.h"
#include "recordings/stow_recording.h"

static stow_status to_buffer(void *context, const void *bytes, size_t count) {
  return buffer_append(context, bytes, count);
}

static stow_status read_bytes(recording *r, const void *bytes, size_t count) {
  input in;
  recording_init(r, 0);
  CHECK_OK(input_open_memory(&in, bytes, count, "trace", NULL));
  stow_status status = recording_read_input(r, &in, KIND_AUTO, 0);
  input_close(&in);
  return status;
}

static void load(recording *r, const char *name) {
  recording_init(r, 0);
  CHECK_OK(recording_read(r, harness_data(name), KIND_AUTO, NULL));
}

TEST(a_recording_comes_back_whole)
{
  static const char *const files[] = {"leak.pickle.gz", "oom_gpt_15gib_stacks.pickle.gz",
                                      "gpt_varlen_limit36.5.pickle.gz",
                                      "gpt_varlen_expandable.pickle.gz"};
  for (size_t i = 0; i < 4; i++) {
    recording a, b;
    load(&a, files[i]);
    CHECK_OK(recording_add_fact(&a, "pid", "4711"));
    a.device_bytes = 16ull << 30;
    buffer file = BUFFER_INIT;
    CHECK_OK(recording_write_stow(&a, to_buffer, &file));
    CHECK_OK(read_bytes(&b, file.data, file.length));
    check_same_events(&a, &b);
    check_same_segments(&a, &b);
    check_same_settings(&a, &b);
    CHECK(b.source == SOURCE_TORCH);
    CHECK_TEXT(recording_text(&b, b.error_id), recording_text(&a, a.error_id));
    CHECK_TEXT(recording_fact(&b, "pid"), "4711");
    CHECK_U64(b.device_bytes, 16ull << 30);
    CHECK(b.ended);
    CHECK_U64(b.torn_bytes + b.damaged_chunks + b.bad_values, 0);
    if (i == 2) {
      CHECK(file.length < 4 * a.event_count);
      harness_note("%.2f bytes an event", (double)file.length / (double)a.event_count);
    }
    buffer_free(&file);
    recording_free(&a);
    recording_free(&b);
  }
}

static uint64_t count_touches(const recording *r) {
  uint64_t count = 0;
  for (size_t i = 0; i < r->event_count; i++) count += event_is_touch(r->events[i].kind);
  return count;
}

/* The carried traces were written from the document by tests/touches/stow_writer.py. */
TEST(launches_and_touches_come_back)
{
  recording a, b;
  load(&a, "touches/lora.stow");
  CHECK_U64(a.skipped_events + a.bad_values + a.damaged_chunks + a.torn_bytes, 0);
  CHECK(a.ended);
  uint64_t touches = count_touches(&a), launches = 0, device_ns = 0;
  for (size_t i = 0; i < a.event_count; i++) {
    if (a.events[i].kind != EVENT_LAUNCH) continue;
    launches++;
    device_ns += a.events[i].bytes;
    CHECK(recording_text(&a, event_origin(&a, &a.events[i])->tag_id)[0] == 'f');
  }
  CHECK_U64(launches, 922);
  CHECK(touches > 3 * launches);
  CHECK(device_ns > 5000000 && device_ns < 21000000);
  buffer file = BUFFER_INIT;
  CHECK_OK(recording_write_stow(&a, to_buffer, &file));
  CHECK(file.length < 3 * touches); /* compact */
  CHECK_OK(read_bytes(&b, file.data, file.length));
  check_same_events(&a, &b);
  buffer_free(&file);
  recording_free(&b);
  /* Formats without such an event omit and count them. */
  static const recording_kind kinds[] = {KIND_PERFETTO, KIND_TENSORBOARD, KIND_SNAPSHOT};
  char path[512];
  snprintf(path, sizeof path, "%s/out", harness_folder());
  for (size_t i = 0; i < 3; i++) {
    uint64_t left_out = 0;
    CHECK_OK(recording_write(&a, path, kinds[i], &left_out));
    CHECK(left_out >= touches && left_out <= touches + 2); /* some also lack marks */
  }
  recording_free(&a);
}

/* Simulates a reader that knows fewer kinds: it skips events of later kinds, and reads the others
 * correctly. */
TEST(events_of_a_later_kind_are_passed_over_and_the_rest_is_right)
{
  stowfile_writer w;
  buffer file = BUFFER_INIT;
  origin of = {.thread = 1};
  CHECK_OK(stowfile_begin(&w, to_buffer, &file, NULL));
  for (uint64_t i = 0; i < 100; i++) {
    event e = {.time_ns = i, .addr = 4096 * (i + 1), .bytes = i, .kind = i % 2 != 0 ? 15 : 0};
    CHECK_OK(stowfile_add_event(&w, &e, &of));
  }
  CHECK_OK(stowfile_end(&w, 0));
  recording b;
  CHECK_OK(read_bytes(&b, file.data, file.length));
  CHECK_U64(b.event_count, 50);
  CHECK_U64(b.skipped_events, 50);
  for (uint64_t i = 0; i < 50; i++) CHECK_U64(b.events[i].addr, 4096 * (2 * i + 1));
  stowfile_free(&w);
  buffer_free(&file);
  recording_free(&b);
}

/* Whatever byte the writer died at, every whole chunk before it is read. */
TEST(a_file_cut_anywhere_is_readable_up_to_the_cut)
{
  recording a, b;
  load(&a, "leak.pickle.gz");
  buffer file = BUFFER_INIT;
  CHECK_OK(recording_write_stow(&a, to_buffer, &file));
  size_t last = 0;
  for (size_t cut = STOWFILE_HEADER_BYTES; cut < file.length;) {
    CHECK_OK(read_bytes(&b, file.data, cut));
    CHECK(!b.ended);
    CHECK(b.event_count >= last && b.event_count <= a.event_count);
    CHECK(b.event_count % STOWFILE_CHUNK_EVENTS == 0 || b.event_count == a.event_count);
    last = b.event_count;
    recording_free(&b);
    cut = cut + 97 < file.length || cut == file.length - 1 ? cut + 97 : file.length - 1;
  }
  CHECK_U64(last, a.event_count);
  buffer_free(&file);
  recording_free(&a);
}

TEST(a_flushed_writer_loses_nothing_when_it_dies)
{
  stowfile_writer w;
  buffer file = BUFFER_INIT;
  CHECK_OK(stowfile_begin(&w, to_buffer, &file, NULL));
  CHECK_OK(stowfile_add_fact(&w, "command", "python train.py"));
  uint32_t name = stowfile_add_name(&w, "optimizer", 9),
           file_name = stowfile_add_name(&w, "a.py", 4);
  uint32_t where = stowfile_add_frame(&w, &(frame){name, file_name, 7});
  uint32_t stack_id = stowfile_add_stack(&w, &where, 1);
  CHECK_U64(name, 1);
  CHECK_U64(stack_id, 1);
  event e = {.time_ns = 5, .addr = 4096, .bytes = 64, .stack_id = stack_id};
  origin of = {.stream = 77, .thread = 3, .tag_id = name, .device = 2, .tier = 1};
  CHECK_OK(stowfile_add_event(&w, &e, &of));
  CHECK_OK(stowfile_flush(&w));
  size_t flushed = file.length;
  e.time_ns = 6;
  CHECK_OK(stowfile_add_event(&w, &e, &of)); /* never flushed */
  CHECK_U64(file.length, flushed);
  recording b;
  CHECK_OK(read_bytes(&b, file.data, file.length));
  CHECK_U64(b.event_count, 1);
  const origin *got = event_origin(&b, &b.events[0]);
  CHECK_TEXT(recording_text(&b, got->tag_id), "optimizer");
  CHECK_U64(b.frames[b.stack_frames[b.stacks[b.events[0].stack_id - 1].first] - 1].line, 7);
  CHECK_U64(got->thread, 3);
  CHECK_U64(got->device, 2);
  CHECK_U64(got->tier, 1);
  CHECK_U64(got->stream, 77);
  CHECK_TEXT(recording_fact(&b, "command"), "python train.py");
  CHECK(!b.ended);
  stowfile_free(&w);
  buffer_free(&file);
  recording_free(&b);
}

TEST(a_damaged_chunk_is_dropped_and_counted)
{
  recording a, b;
  load(&a, "leak.pickle.gz");
  buffer file = BUFFER_INIT;
  CHECK_OK(recording_write_stow(&a, to_buffer, &file));
  uint64_t seed = 3;
  for (int i = 0; i < 200; i++) {
    size_t at = STOWFILE_HEADER_BYTES + harness_random(&seed) % (file.length - 16);
    file.data[at] ^= 0x10;
    CHECK_OK(read_bytes(&b, file.data, file.length));
    CHECK(b.damaged_chunks == 1 || b.torn_bytes > 0);
    CHECK(b.event_count <= a.event_count);
    recording_free(&b);
    file.data[at] ^= 0x10;
  }
  buffer_free(&file);
  recording_free(&a);
}

TEST(what_is_no_trace_is_refused_with_its_place)
{
  recording r;
  recording_init(&r, 0);
  buffer file = BUFFER_INIT;
  CHECK_OK(recording_write_stow(&r, to_buffer, &file));
  file.data[12] ^= 1;
  CHECK_STATUS(read_bytes(&r, file.data, file.length), STOW_ERR_FORMAT);
  CHECK_MESSAGE("byte 12");
  CHECK_STATUS(read_bytes(&r, file.data, 10), STOW_ERR_FORMAT);
  CHECK_STATUS(read_bytes(&r, "", 0), STOW_ERR_FORMAT);
  CHECK_MESSAGE("empty");
  CHECK_STATUS(read_bytes(&r, "hello", 5), STOW_ERR_FORMAT);
  CHECK_MESSAGE("0x68");
  buffer_free(&file);
}

TEST_MAIN
