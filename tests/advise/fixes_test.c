/* Compares the fixes with measurements on a GPU: what each saves, that the first is enough, and
 * that none is already applied. */
#include <stdlib.h>

#include "subject.h"

/* Peaks of the same programs on an H200 without a limit, as they are and with the fix applied
 * (record_causes.py --measure). `iterations`: both ran that many iterations of a loop that grows,
 * so bytes per iteration are compared. `in_proportion`: the recording stopped early, so shares of
 * the whole are compared. */
static const struct measured {
  const char *file;
  uint64_t broken_bytes, fixed_bytes;
  uint32_t iterations;
  bool in_proportion;
} measured[] = {
    {"weights_too_big-mlp", 534635520, 266817536, 0, true},
    {"batch_too_big-transformer", 27982683648, 14086430208, 0, true},
    {"batch_too_big-unet-expandable", 12886360064, 6569705472, 0, true},
    {"one_spike-mlp", 6504247296, 264314880, 0, false},
    {"graph_kept-cnn", 1911934464, 325187584, 19, false}, /* the fixed program holds one graph */
    {"no_grad_missing-cnn", 1861112320, 211911680, 20, false},
    {"no_grad_missing-transformer-expandable", 3106708992, 731528704, 20, false},
    {"leak-mlp", 348247552, 147805696, 25, false},
    {"leak-cnn", 555269632, 344505856, 25, false},
    {"loaded_twice-transformer", 1867783168, 1567837696, 0, false},
    {"loaded_twice-mlp-expandable", 1683312640, 1414125568, 0, false},
};

TEST(replayed_savings_are_within_a_tenth_of_the_device)
{
  double worst = 0;
  for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
    const struct measured *m = &measured[i];
    char name[256];
    snprintf(name, sizeof name, "causes/%s.pickle.gz", m->file);
    subject s;
    open_subject(&s, harness_data(name), NULL);
    CHECK(s.x.fixes.count > 0);
    const fix *f = &s.x.fixes.list[0];
    CHECK(f->replayed);
    double estimated = (double)f->saves_bytes, real = (double)(m->broken_bytes - m->fixed_bytes);
    if (m->iterations > 0) {
      estimated /= s.x.findings.growth.whole;
      real /= m->iterations;
    }
    if (m->in_proportion) {
      estimated /= (double)(s.x.evidence.n.live_bytes + s.x.evidence.n.asked_bytes);
      real /= (double)m->broken_bytes;
      /* Half of the batch was measured; the part that depends on the batch is twice what half of it
       * saves. */
      const char *part = strstr(f->change, "use 1/");
      if (strstr(m->file, "batch") != NULL) {
        CHECK(part != NULL);
        real *= 2 * (1 - 1 / strtod(part + strlen("use 1/"), NULL));
      }
    }
    double off = estimated > real ? estimated / real - 1 : 1 - estimated / real;
    if (off > worst) worst = off;
    if (off > 0.1) FAIL("%s: estimated %.3g, measured %.3g", m->file, estimated, real);
    close_subject(&s);
  }
  harness_note("%zu fixes, at most %.1f%% off", sizeof measured / sizeof *measured, worst * 100);
}

/* The first fix must be enough, as far as a replay can show. */
typedef struct first_fixes {
  unsigned all, enough;
} first_fixes;

static void count_first_fix(void *user, const char *name, subject *s) {
  first_fixes *n = user;
  bool fits = s->x.fixes.count > 0 && s->x.fixes.list[0].fits;
  if (!fits) printf("%s: %s\n", name, s->x.fixes.count > 0 ? s->x.fixes.list[0].change : "none");
  n->all++;
  n->enough += fits;
}

TEST(the_first_fix_gets_past_the_failure)
{
  static const char *const sets[] = {"first", "second", "fourth"};
  first_fixes n = {0};
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
    each_of_set(sets[i], "", count_first_fix, &n);
  harness_note("%u of %u", n.enough, n.all);
  CHECK_U64(n.enough, n.all);
}

/* For these recordings a GPU showed that the change alone only moves the failure: to the
 * temporaries of the step, the next forward pass, or holes that expandable segments leave. */
TEST(a_fix_that_only_moves_the_failure_names_the_rest)
{
  static const struct {
    const char *file, *words;
  } expected[] = {
      {"loaded_twice-gpt.stow", "map_location=\"cpu\""},
      {"loaded_twice-gpt.stow", "; and make the optimizer with fused=True"},
      {"loaded_twice-unet-expandable.stow", "; and make the optimizer with fused=True"},
      {"loaded_twice-wide-nostacks.stow", "; and make the optimizer with fused=True"},
      {"optimizer_state-vit.stow", "keep the state on the host"},
      {"fragmentation-mlp.pickle.gz", "max_split_size_mb:256"},
      {"fragmentation-transformer.pickle.gz", "expandable_segments:True"},
      {"leak+loaded_twice-mlp.pickle.gz", "makes on the device"},
      {"no_grad_missing+other_process-vit.stow", "torch.no_grad()"},
  };
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    char name[256];
    snprintf(name, sizeof name, "causes/%s", expected[i].file);
    subject s;
    open_subject(&s, harness_data(name), NULL);
    CHECK(s.x.fixes.count > 0);
    if (strstr(s.x.fixes.list[0].change, expected[i].words) == NULL)
      FAIL("%s: %s", expected[i].file, s.x.fixes.list[0].change);
    close_subject(&s);
  }
}

/* Shares of the peak on the same device (record_causes.py --estimates). */
TEST(estimated_savings_are_within_three_tenths_of_the_device)
{
  static const struct {
    const char *file, *change;
    double saved;
  } expected[] = {{"batch_too_big-cnn", "autocast", 0.497},
                  {"batch_too_big-cnn", "recompute", 0.390},
                  {"batch_too_big-transformer", "autocast", 0.169},
                  {"batch_too_big-transformer", "recompute", 0.513}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    char name[256];
    snprintf(name, sizeof name, "causes/%s.pickle.gz", expected[i].file);
    subject s;
    open_subject(&s, harness_data(name), NULL);
    const fix *found = NULL;
    for (uint32_t k = 0; k < s.x.fixes.count && found == NULL; k++)
      if (strstr(s.x.fixes.list[k].change, expected[i].change) != NULL) found = &s.x.fixes.list[k];
    CHECK(found != NULL && !found->replayed);
    double estimated = (double)found->saves_bytes /
                       (double)(s.x.evidence.n.live_bytes + s.x.evidence.n.asked_bytes);
    if (estimated > 1.3 * expected[i].saved || estimated < 0.7 * expected[i].saved)
      FAIL("%s, %s: estimated %.2f, measured %.2f", expected[i].file, expected[i].change, estimated,
           expected[i].saved);
    close_subject(&s);
  }
}

/* Checks that a setting that is already on is not suggested: expandable segments in a recording
 * made with them. */
static void check_not_suggested(void *user, const char *name, subject *s) {
  (void)name;
  for (uint32_t i = 0; i < s->x.fixes.count; i++)
    CHECK(strstr(s->x.fixes.list[i].change, "expandable_segments") == NULL);
  *(unsigned *)user += 1;
}

TEST(a_program_that_runs_no_backward_pass_has_no_optimizer)
{
  static const char *const files[] = {"no_grad_missing-unet-2.stow", "no_grad_missing-bert.stow"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char name[256];
    snprintf(name, sizeof name, "causes/%s", files[i]);
    subject s;
    open_subject(&s, harness_data(name), NULL);
    bool smaller = false;
    for (uint32_t k = 0; k < s.x.fixes.count; k++) {
      CHECK(strstr(s.x.fixes.list[k].change, "optimizer") == NULL);
      smaller |= strstr(s.x.fixes.list[k].change, "of the batch at") != NULL;
    }
    CHECK(smaller);
    close_subject(&s);
  }
}

TEST(nothing_that_is_on_is_suggested)
{
  unsigned seen = 0;
  each_of_set("first", "-expandable", check_not_suggested, &seen);
  CHECK(seen > 10);
}

/* A T4 has no bfloat16, and a program under autocast does not need it. */
TEST(half_precision_fits_the_device)
{
  const char *file = harness_data("causes/batch_too_big-cnn.pickle.gz");
  recording r;
  recording_init(&r, UINT64_C(1) << 30);
  CHECK_OK(recording_read(&r, file, KIND_AUTO, NULL));
  static const struct {
    const char *device, *has, *lacks;
  } all[] = {{"Tesla T4", "float16", "bfloat16)"},
             {"NVIDIA A100-SXM4-40GB", "bfloat16", "GradScaler"}};
  for (size_t i = 0; i < 2; i++) {
    explanation x;
    explain_options options = {.device = all[i].device};
    CHECK_OK(explain_recording(&x, &r, &options));
    bool found = false;
    for (uint32_t k = 0; k < x.fixes.count; k++)
      if (strstr(x.fixes.list[k].change, "autocast") != NULL) {
        found = strstr(x.fixes.list[k].change, all[i].has) != NULL;
        if (i == 0) CHECK(strstr(x.fixes.list[k].change, "dtype=torch.bfloat16") == NULL);
        if (i == 1) CHECK(strstr(x.fixes.list[k].change, all[i].lacks) == NULL);
      }
    CHECK(found);
    explanation_free(&x);
  }
  recording_free(&r);
}

TEST_MAIN
