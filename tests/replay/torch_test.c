/* Tests PyTorch's rules one by one, with numbers computed by hand. */
#include "replay/policies/torch.h"

#include "harness.h"

#define KIB UINT64_C(1024)
#define MIB UINT64_C(1048576)

static const policy_lane lanes[2] = {{.stream = 0}, {.stream = 7}};

static policy *open_with(const policy_ops *ops, const char *settings, uint64_t limit) {
  policy_options o = {.limit_bytes = limit,
                      .limit_in_framework = true,
                      .settings = POLICY_SETTINGS_INIT,
                      .lanes = lanes,
                      .lane_count = 2,
                      .id_count = 64};
  CHECK_OK(policy_settings_parse(&o.settings, settings));
  policy *p;
  CHECK_OK(ops->open(&p, &o));
  return p;
}

static void give(policy *p, uint32_t id, uint64_t bytes) {
  CHECK(p->ops->alloc(p, id, bytes, 0) == POLICY_DONE);
}

static void take(policy *p, uint32_t id) {
  CHECK(p->ops->release(p, id) == POLICY_DONE);
}

static uint64_t at(policy *p, uint32_t id) {
  return p->ops->address(p, id);
}

static policy_stats stats(policy *p) {
  policy_stats s;
  p->ops->stats(p, &s);
  return s;
}

TEST(sizes_round_as_pytorch_rounds_them)
{
  policy_settings s = POLICY_SETTINGS_INIT;
  CHECK_U64(torch_round(&s, 0), 512);
  CHECK_U64(torch_round(&s, 1), 512);
  CHECK_U64(torch_round(&s, 513), 1024);
  CHECK_U64(torch_round(&s, MIB + 1), MIB + 512);
  CHECK_OK(policy_settings_parse(&s, "roundup_power2_divisions:4"));
  CHECK_U64(torch_round(&s, 1200), 1536);             /* too small for divisions: 512 steps */
  CHECK_U64(torch_round(&s, 1200 * KIB), 1280 * KIB); /* between 1024 and 2048: steps of 256 */
  CHECK_U64(torch_round(&s, 1280 * KIB), 1280 * KIB);
  CHECK_U64(torch_round(&s, 2 * MIB), 2 * MIB);
  CHECK_U64(torch_round(&s, 1281 * KIB), 1536 * KIB);
  CHECK_OK(policy_settings_parse(&s, "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"));
  CHECK_U64(torch_round(&s, 300 * MIB + 1), 300 * MIB + 512); /* 1 division: off */
  CHECK_U64(torch_round(&s, 600 * MIB), 768 * MIB);
  CHECK_U64(torch_round(&s, 1100 * MIB), 1280 * MIB);
  CHECK_U64(torch_round(&s, 2049 * MIB), 2304 * MIB);
}

TEST(segments_are_as_large_as_pytorch_makes_them)
{
  CHECK_U64(torch_segment_bytes(512), 2 * MIB);
  CHECK_U64(torch_segment_bytes(MIB), 2 * MIB);
  CHECK_U64(torch_segment_bytes(MIB + 512), 20 * MIB);
  CHECK_U64(torch_segment_bytes(10 * MIB - 512), 20 * MIB);
  CHECK_U64(torch_segment_bytes(10 * MIB), 10 * MIB);
  CHECK_U64(torch_segment_bytes(11 * MIB), 12 * MIB);
}

TEST(settings_that_cannot_be_right_are_refused)
{
  static const char *const bad[] = {"max_split_size_mb",
                                    "max_split_size_mb:",
                                    "max_split_size_mb:20",
                                    "max_split_size_mb:-5",
                                    "what:1",
                                    "max_split_size_mb:x",
                                    "roundup_power2_divisions:3",
                                    "garbage_collection_threshold:1.5",
                                    "garbage_collection_threshold:nan",
                                    "roundup_power2_divisions:[256]",
                                    "roundup_power2_divisions:[a:2]"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    policy_settings s = POLICY_SETTINGS_INIT, before = s;
    stow_status status = policy_settings_parse(&s, bad[i]);
    if (status != STOW_ERR_INVALID) FAIL("%s was taken", bad[i]);
    CHECK(memcmp(&s, &before, sizeof s) == 0);
  }
  policy_settings s = POLICY_SETTINGS_INIT;
  CHECK_OK(policy_settings_parse(
      &s, "expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.8"));
  CHECK_U64(s.max_split_bytes, 64 * MIB);
  CHECK(s.gc_threshold == 0.8);
}

TEST(large_blocks_split_only_when_more_than_1_mib_is_left)
{
  policy *p = open_with(&policy_torch_default, "", POLICY_NO_LIMIT);
  give(p, 0, 19 * MIB); /* a 20 MiB segment, since 19 rounds to it; exactly 1 MiB left: not split */
  give(p, 1, 512 * KIB);
  give(p, 2, MIB);
  CHECK(at(p, 2) == at(p, 1) + 512 * KIB);
  CHECK_U64(stats(p).reserved_bytes, 22 * MIB);
  give(p, 3, 2 * MIB);
  CHECK_U64(stats(p).reserved_bytes, 42 * MIB);
  give(p, 4, 2 * MIB);
  CHECK(at(p, 4) == at(p, 3) + 2 * MIB);
  p->ops->close(p);
}

TEST(the_smallest_block_that_fits_is_taken_the_lower_of_two)
{
  policy *p = open_with(&policy_torch_default, "", POLICY_NO_LIMIT);
  give(p, 0, 40 * MIB);
  give(p, 1, 30 * MIB);
  give(p, 2, 30 * MIB);
  uint64_t low = at(p, 1) < at(p, 2) ? at(p, 1) : at(p, 2);
  take(p, 0), take(p, 1), take(p, 2);
  give(p, 3, 29 * MIB + 512);
  CHECK_U64(at(p, 3), low);
  p->ops->close(p);
}

TEST(streams_do_not_share_blocks)
{
  policy *p = open_with(&policy_torch_default, "", POLICY_NO_LIMIT);
  give(p, 0, 40 * MIB);
  take(p, 0);
  CHECK(p->ops->alloc(p, 1, 40 * MIB, 1) == POLICY_DONE);
  CHECK_U64(stats(p).reserved_bytes, 80 * MIB);
  p->ops->close(p);
}

TEST(max_split_size_keeps_large_blocks_whole_and_small_requests_off_them)
{
  policy *p = open_with(&policy_torch_default, "max_split_size_mb:64", POLICY_NO_LIMIT);
  give(p, 0, 100 * MIB);
  take(p, 0);
  give(p, 1, 40 * MIB); /* under the size: must not use the oversize block */
  CHECK_U64(stats(p).reserved_bytes, 140 * MIB);
  give(p, 2, 70 * MIB); /* oversize, but 100 is not less than 70 + 20 */
  CHECK_U64(stats(p).reserved_bytes, 210 * MIB);
  take(p, 2);
  give(p, 3, 66 * MIB); /* 70 is close enough, and is not split */
  CHECK_U64(stats(p).reserved_bytes, 210 * MIB);
  p->ops->close(p);
}

TEST(max_split_size_frees_only_as_many_oversize_blocks_as_needed)
{
  policy *p = open_with(&policy_torch_default, "max_split_size_mb:64", 400 * MIB);
  give(p, 0, 100 * MIB), give(p, 1, 100 * MIB), give(p, 2, 70 * MIB), give(p, 3, 100 * MIB);
  take(p, 0), take(p, 1), take(p, 2);
  give(p, 4, 130 * MIB); /* no single block is that large: the two of 100 are freed, the 70 stays */
  CHECK_U64(stats(p).reserved_bytes, 300 * MIB);
  CHECK_U64(stats(p).retries, 0);
  p->ops->close(p);
}

TEST(at_the_limit_whole_free_segments_go_and_split_ones_stay)
{
  policy *p = open_with(&policy_torch_default, "", 100 * MIB);
  give(p, 0, 5 * MIB); /* 20 MiB segment, split */
  give(p, 1, 40 * MIB);
  give(p, 2, 20 * MIB);
  take(p, 1), take(p, 2);
  give(p, 3, 70 * MIB);
  CHECK_U64(stats(p).reserved_bytes, 90 * MIB);
  CHECK_U64(stats(p).retries, 1);
  CHECK(p->ops->alloc(p, 4, 40 * MIB, 0) == POLICY_FULL);
  CHECK_U64(stats(p).largest_hole_bytes, 15 * MIB);
  give(p, 5, 14 * MIB); /* a refusal changes nothing */
  p->ops->close(p);
}

/* A block's age is the number of searches of its pool since it was freed. Four whole free segments,
 * freed one search apart, have ages 3, 2, 1 and 0 when a request finds none that fits (its own
 * search makes them 4, 3, 2, 1). The mean is 2.5, so the two older ones are freed, although one
 * would have sufficed. */
TEST(garbage_collection_frees_blocks_older_than_the_mean)
{
  policy *p = open_with(&policy_torch_default, "garbage_collection_threshold:0.5", 400 * MIB);
  for (uint32_t i = 0; i < 4; i++) give(p, i, (50 + 10 * i) * MIB); /* 50, 60, 70, 80 */
  give(p, 9, 11 * MIB);
  for (uint32_t i = 0; i < 4; i++) {
    take(p, i);
    if (i == 3) break;
    take(p, 9); /* found again immediately: one search, no driver call */
    give(p, 9, 11 * MIB);
  }
  CHECK_U64(stats(p).reserved_bytes, (50 + 60 + 70 + 80 + 12) * MIB); /* over 200: 72 too many */
  give(p, 10, 100 * MIB);
  CHECK_U64(stats(p).reserved_bytes, (70 + 80 + 12 + 100) * MIB);
  CHECK_U64(stats(p).retries, 0);
  p->ops->close(p);
}

TEST(garbage_collection_needs_a_limit_in_the_framework)
{
  policy *p = open_with(&policy_torch_default, "garbage_collection_threshold:0.1", POLICY_NO_LIMIT);
  give(p, 0, 50 * MIB);
  take(p, 0);
  give(p, 1, 100 * MIB);
  CHECK_U64(stats(p).reserved_bytes, 150 * MIB);
  p->ops->close(p);
}

TEST(expandable_ranges_grow_by_pages_and_in_place)
{
  policy *p = open_with(&policy_torch_expandable, "", POLICY_NO_LIMIT);
  give(p, 0, 5 * MIB);
  CHECK_U64(stats(p).reserved_bytes, 20 * MIB);
  give(p, 1, 30 * MIB); /* 15 are free at the end: 15 more, so one page */
  CHECK_U64(stats(p).reserved_bytes, 40 * MIB);
  CHECK_U64(at(p, 1), at(p, 0) + 5 * MIB);
  give(p, 2, 512);
  CHECK_U64(stats(p).reserved_bytes, 42 * MIB);
  uint64_t base = at(p, 0);
  take(p, 0), take(p, 1);
  give(p, 3, 50 * MIB);
  CHECK_U64(at(p, 3), base);
  CHECK_U64(stats(p).reserved_bytes, 62 * MIB);
  p->ops->close(p);
}

TEST(expandable_ranges_unmap_free_pages_at_the_limit_and_refill_the_gap)
{
  policy *p = open_with(&policy_torch_expandable, "", 120 * MIB);
  give(p, 0, 30 * MIB), give(p, 1, 40 * MIB), give(p, 2, 30 * MIB); /* 100 MiB: five pages */
  CHECK_U64(stats(p).reserved_bytes, 100 * MIB);
  uint64_t base = at(p, 0);
  take(p, 1); /* [30, 70) free: page [40, 60) is whole */
  CHECK(p->ops->alloc(p, 3, 60 * MIB, 0) == POLICY_FULL);
  CHECK_U64(stats(p).reserved_bytes, 80 * MIB);
  give(p, 4, 38 * MIB); /* over the gap again: free 10, map one page, free 10 */
  CHECK_U64(at(p, 4), base + 30 * MIB);
  CHECK_U64(stats(p).reserved_bytes, 100 * MIB);
  p->ops->close(p);
}

TEST(an_emptied_range_is_dropped_and_a_new_one_works)
{
  policy *p = open_with(&policy_torch_expandable, "", POLICY_NO_LIMIT);
  for (int round = 0; round < 20; round++) {
    give(p, 0, 33 * MIB), give(p, 1, 100);
    take(p, 0), take(p, 1);
    CHECK(p->ops->trim(p) == POLICY_DONE);
    CHECK_U64(stats(p).reserved_bytes, 0);
  }
  p->ops->close(p);
}

TEST_MAIN
