/* Explains a recording for a device other than its own, and one that holds memory it does not
 * use. */
#include "recordings/recording_file.h"
#include "replay/replay_job.h"
#include "subject.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static void read_sample(recording *r, const char *name) {
  recording_init(r, UINT64_C(1) << 30);
  CHECK_OK(recording_read(r, harness_data(name), KIND_AUTO, NULL));
}

static void explain_on(explanation *x, const recording *r, uint64_t device_bytes) {
  explain_options options = {.device_bytes = device_bytes};
  CHECK_OK(explain_recording(x, r, &options));
}

/* The answer agrees with the replay: the recording fits from the smallest limit that `stowage
 * replay` finds. */
TEST(a_recording_fits_another_device_where_its_replay_does)
{
  static const char *const names[] = {"gpt_varlen_expandable.pickle.gz", "loop/plain.pickle.gz"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    recording r;
    replay_job job;
    replay_result result;
    read_sample(&r, names[i]);
    CHECK_OK(replay_job_open(&job, &r, names[i], &(replay_job_options){.device_bytes = 128 * GIB}));
    const policy_ops *which =
        steps_expandable(&r) ? &policy_torch_expandable : &policy_torch_default;
    CHECK_OK(replay_job_run(&job, which, REPLAY_MIN_LIMIT, &result));
    CHECK(result.min_limit_bytes > 100 * MIB);
    explanation x;
    explain_on(&x, &r, result.min_limit_bytes + REPLAY_CONTEXT_BYTES);
    CHECK_U64(x.findings.count, 0);
    CHECK(strncmp(x.headline.data, "Fits a device of", 16) == 0);
    explanation_free(&x);
    explain_on(&x, &r, result.min_limit_bytes + REPLAY_CONTEXT_BYTES - 20 * MIB);
    CHECK(x.findings.count > 0);
    CHECK(x.evidence.n.asked_bytes > 0 && x.evidence.n.asked_bytes != MESSAGE_UNKNOWN);
    CHECK(x.evidence.n.reserved_bytes <= result.min_limit_bytes - 20 * MIB);
    CHECK(strncmp(x.headline.data, "On a device of", 14) == 0);
    explanation_free(&x);
    replay_job_close(&job);
    recording_free(&r);
  }
}

/* A training pass that is larger than the device: memory that its backward pass frees is not
 * growth. */
TEST(a_pass_that_ends_well_elsewhere_is_not_taken_for_growth)
{
  recording r;
  explanation x;
  read_sample(&r, "gpt_varlen_expandable.pickle.gz");
  explain_on(&x, &r, 16 * GIB);
  CHECK_TEXT(cause_name(x.findings.list[0].id), "batch_too_big");
  explanation_free(&x);
  recording_free(&r);
}

/* The recording has whole steps: the part of the batch that is named was replayed through all of
 * them, with 5% of the limit to spare. 28.9 GiB were live, 15.3 GiB are left: about half fits. */
TEST(the_part_of_the_batch_that_fits_another_device_is_named)
{
  recording r;
  explanation x;
  read_sample(&r, "gpt_varlen_expandable.pickle.gz");
  explain_on(&x, &r, 16 * GIB);
  unsigned part = 0;
  CHECK(x.fixes.count > 0 && sscanf(x.fixes.list[0].change, "use %u%% of the batch", &part) == 1);
  CHECK(part >= 40 && part <= 53);
  CHECK(x.fixes.list[0].fits);
  explanation_free(&x);
  recording_free(&r);
}

/* A recording that failed on its own device: for a larger device the answer says that it is enough,
 * as far as the recording goes. */
TEST(a_recording_that_failed_fits_a_larger_device)
{
  recording r;
  explanation x;
  read_sample(&r, "causes/batch_too_big-cnn.pickle.gz");
  explain_on(&x, &r, 80 * GIB);
  CHECK_U64(x.findings.count, 0);
  CHECK(strstr(x.notes.data, "after it is not known") != NULL);
  explanation_free(&x);
  explain_options small = {.device_bytes = 100 * MIB};
  CHECK(explain_recording(&x, &r, &small) == STOW_ERR_INVALID);
  explanation_free(&x);
  recording_free(&r);
}

TEST(memory_held_for_nothing_is_reported_with_its_size)
{
  recording r;
  explanation x;
  char names[2][64] = {"loop/plain.pickle.gz", "gpt_varlen_expandable.pickle.gz"};
  for (int i = 0; i < 2; i++) {
    read_sample(&r, names[i]);
    CHECK_OK(explain_recording(&x, &r, NULL));
    CHECK(!x.evidence.failed);
    uint64_t idle = x.evidence.peak_reserved_bytes - x.evidence.peak_live_bytes;
    bool waste = idle >= 256 * MIB && (double)idle >= 0.15 * (double)x.evidence.peak_reserved_bytes;
    CHECK((strstr(x.headline.data, "never in use at once") != NULL) == waste);
    CHECK((x.notes.data != NULL && strstr(x.notes.data, "stowage tune") != NULL) == waste);
    CHECK(waste == (i == 0));
    explanation_free(&x);
    recording_free(&r);
  }
}

TEST_MAIN
