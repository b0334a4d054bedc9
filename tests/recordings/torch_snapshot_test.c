/* PyTorch snapshots: what is read from real recordings, counted independently with Python. */
#include <stdlib.h>

#include "harness.h"
#include "recordings/recording_file.h"
#include "recordings/recording_write.h"

typedef struct known {
  const char *file;
  uint64_t events, allocs, frees, fails, marks, segments, blocks, segment_bytes, frames, stacks;
  uint64_t alloc_bytes;
} known;

static const known in_project[] = {
    {"cache_held.pickle.gz", 520, 130, 130, 0, 0, 130, 130, 139586437120, 2, 1, 139586437120},
    {"fragmentation.pickle.gz", 851, 281, 281, 1, 0, 7, 7, 3758096384, 4, 3, 7205814272},
    {"gpt_varlen_expandable.pickle.gz", 100904, 33580, 33577, 0, 84, 2, 8, 32658948096, 0, 0,
     1059045830840},
    {"gpt_varlen_limit36.5.pickle.gz", 100895, 33580, 33577, 0, 84, 137, 141, 34089205760, 0, 0,
     1059045830840},
    {"leak.pickle.gz", 15106, 5020, 5017, 1, 230, 39, 41, 3177185280, 18, 10, 233394823832},
    {"one_spike.pickle.gz", 15, 4, 3, 1, 0, 4, 4, 4523556864, 3, 2, 4523556864},
    {"oom_gpt_15gib_stacks.pickle.gz", 1764, 563, 561, 1, 0, 76, 78, 16057892864, 71, 35,
     36068307024},
    {"weights_too_big.pickle.gz", 79, 22, 22, 1, 0, 12, 12, 2954887168, 6, 1, 2953150464},
};

static void check_known(const recording *r, const known *k) {
  uint64_t kinds[EVENT_KIND_COUNT] = {0}, alloc_bytes = 0, segment_bytes = 0, last = 0;
  for (size_t i = 0; i < r->event_count; i++) {
    const event *e = &r->events[i];
    CHECK(e->kind < EVENT_KIND_COUNT);
    CHECK(e->stack_id <= r->stack_count);
    CHECK(e->time_ns >= last);
    last = e->time_ns;
    kinds[e->kind]++;
    if (e->kind == EVENT_ALLOC) alloc_bytes += e->bytes;
  }
  for (size_t i = 0; i < r->segment_count; i++) {
    const segment *s = &r->segments[i];
    segment_bytes += s->bytes;
    uint64_t at = s->addr;
    for (uint32_t b = 0; b < s->block_count; b++) {
      CHECK_U64(r->blocks[s->first_block + b].addr, at);
      at += r->blocks[s->first_block + b].bytes;
    }
    CHECK_U64(at, s->addr + s->bytes);
  }
  uint64_t marks = kinds[EVENT_MARK_BEGIN] + kinds[EVENT_MARK_END];
  CHECK_U64(r->event_count - marks, k->events);
  CHECK_U64(kinds[EVENT_ALLOC], k->allocs);
  CHECK_U64(kinds[EVENT_FREE], k->frees);
  CHECK_U64(kinds[EVENT_FREE_REQUESTED], k->frees);
  CHECK_U64(kinds[EVENT_FAIL], k->fails);
  CHECK_U64(marks, k->marks);
  CHECK_U64(r->segment_count, k->segments);
  CHECK_U64(r->block_count, k->blocks);
  CHECK_U64(segment_bytes, k->segment_bytes);
  CHECK_U64(r->frame_count, k->frames);
  CHECK_U64(r->stack_count, k->stacks);
  CHECK_U64(alloc_bytes, k->alloc_bytes);
  CHECK_U64(r->setting_count, 9);
  CHECK_U64(r->skipped_events + r->unknown_fields + r->bad_values, 0);
}

TEST(real_snapshots_are_read_whole)
{
  for (size_t i = 0; i < sizeof in_project / sizeof *in_project; i++) {
    recording r;
    recording_init(&r, 0);
    CHECK_OK(recording_read(&r, harness_data(in_project[i].file), KIND_AUTO, NULL));
    check_known(&r, &in_project[i]);
    recording_free(&r);
  }
}

TEST(a_snapshot_keeps_settings_error_and_frames)
{
  recording r;
  recording_init(&r, 0);
  CHECK_OK(recording_read(&r, harness_data("leak.pickle.gz"), KIND_AUTO, NULL));
  CHECK(r.source == SOURCE_TORCH);
  CHECK_TEXT(recording_setting(&r, "max_split_size"), "-1");
  CHECK_TEXT(recording_setting(&r, "garbage_collection_threshold"), "0.0");
  CHECK_TEXT(recording_setting(&r, "expandable_segments"), "False");
  CHECK_TEXT(recording_setting(&r, "roundup_power2_divisions"),
             "[1:0,2:0,4:0,8:0,16:0,32:0,64:0,128:0,256:0,512:0,1024:0,2048:0,4096:0,8192:0,"
             "16384:0,32768:0]");
  CHECK(strstr(recording_text(&r, r.error_id), "Tried to allocate 128.00 MiB") != NULL);
  const event *first = &r.events[0];
  CHECK(first->kind == EVENT_SEGMENT_ALLOC);
  CHECK_U64(first->addr, 140592206053376);
  CHECK_U64(first->time_ns, UINT64_C(1794707036833822000));
  const stack *s = &r.stacks[first->stack_id - 1];
  CHECK_U64(s->count, 7);
  const frame *inner = &r.frames[r.stack_frames[s->first] - 1];
  const frame *outer = &r.frames[r.stack_frames[s->first + 6] - 1];
  CHECK_TEXT(recording_text(&r, inner->name_id), "<lambda>");
  CHECK_TEXT(recording_text(&r, inner->file_id), "site-packages/torch/nn/modules/module.py");
  CHECK_U64(inner->line, 1097);
  CHECK_TEXT(recording_text(&r, outer->file_id), "train.py");
  recording_free(&r);
}

/* 4 TiB of 2 MiB granules in one event would take two million steps; a file of such events,
 * hours. */
TEST(a_mapping_that_no_device_can_hold_is_not_rebuilt)
{
  recording r;
  rebuilt all;
  recording_init(&r, 0);
  const event events[] = {
      {.kind = EVENT_SEGMENT_MAP, .addr = UINT64_C(1) << 30, .bytes = UINT64_C(4) << 40},
      {.kind = EVENT_SEGMENT_MAP, .addr = UINT64_C(1) << 45, .bytes = UINT64_C(6) << 20},
      {.kind = EVENT_ALLOC, .addr = UINT64_C(1) << 45, .bytes = 512}};
  for (size_t i = 0; i < 3; i++) CHECK_OK(recording_add_event(&r, &events[i], &(origin){0}));
  CHECK_OK(segments_rebuild(&all, &r));
  CHECK_U64(all.segment_count, 1);
  CHECK_U64(all.segments[0].bytes, UINT64_C(6) << 20);
  free(all.segments);
  free(all.blocks);
  recording_free(&r);
}

/* The dicts of a snapshot are recognized by their names, so no setting may have one of them. */
TEST(a_setting_named_like_a_part_of_a_snapshot_is_left_out)
{
  recording r, again;
  char *bytes = NULL;
  size_t count = 0;
  uint64_t left_out;
  outfile out = {.file = open_memstream(&bytes, &count)};
  input in;
  recording_init(&r, 0);
  recording_init(&again, 0);
  CHECK_OK(recording_add_setting(&r, "real_size", "x"));
  CHECK_OK(recording_add_setting(&r, "max_split_size", "-1"));
  CHECK_OK(recording_add_setting(&r, "roundup_power2_divisions", "[256:1,state:2,512:4]"));
  CHECK_OK(torch_snapshot_write(&r, &out, &left_out));
  fclose(out.file);
  CHECK_OK(input_open_memory(&in, bytes, count, "again", NULL));
  CHECK_OK(recording_read_input(&again, &in, KIND_SNAPSHOT, 0));
  CHECK_U64(again.setting_count, 2);
  CHECK_TEXT(recording_setting(&again, "max_split_size"), "-1");
  CHECK_TEXT(recording_setting(&again, "roundup_power2_divisions"), "[256:1,512:4]");
  input_close(&in);
  recording_free(&r);
  recording_free(&again);
  free(bytes);
}

TEST_MAIN
