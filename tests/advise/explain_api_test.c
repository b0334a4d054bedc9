/* The public explanation API: structured causes and fixes, from a recording, a message and a
 * run. */
#include "harness.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <stowage/explain.h>
#include <stowage/trace.h>

static stow_recording *open_data(const char *name) {
  stow_recording *r;
  CHECK_OK(stow_recording_open(&r, harness_data(name), NULL));
  return r;
}

TEST(a_recording_gives_causes_with_evidence_and_fixes_with_savings)
{
  stow_recording *r = open_data("fragmentation.pickle.gz");
  stow_explanation *x;
  CHECK_OK(stow_explain_recording(&x, r, NULL));
  stow_recording_close(r); /* the explanation does not need it any more */
  stow_explanation_info info = STOW_EXPLANATION_INFO_INIT;
  CHECK_OK(stow_explanation_get_info(x, &info));
  CHECK_U64(info.out_of_memory, 1);
  CHECK(info.headline[0] != '\0' && info.requested_bytes > 0 && info.live_bytes > 0);
  CHECK(info.cause_count > 0 && info.fix_count > 0);
  stow_cause cause = STOW_CAUSE_INIT;
  CHECK_OK(stow_explanation_get_cause(x, 0, &cause));
  CHECK_TEXT(cause.id, "fragmentation");
  CHECK(cause.confidence > 0.5 && cause.confidence <= 1);
  CHECK(cause.evidence_count > 0 && cause.evidence[cause.evidence_count] == NULL);
  for (uint32_t i = 0; i < cause.evidence_count; i++)
    CHECK(cause.evidence[i][0] != '\0' && strchr(cause.evidence[i], '\n') == NULL);
  stow_fix fix = STOW_FIX_INIT;
  CHECK_OK(stow_explanation_get_fix(x, 0, &fix));
  CHECK(fix.change[0] != '\0' && fix.cost[0] != '\0');
  CHECK(fix.replayed == 1 && fix.fits == 1 && fix.saves_bytes > 0 &&
        fix.saves_bytes != STOW_BYTES_UNKNOWN);
  CHECK_STATUS(stow_explanation_get_cause(x, info.cause_count, &cause), STOW_ERR_NOT_FOUND);
  CHECK_STATUS(stow_explanation_get_fix(x, info.fix_count, &fix), STOW_ERR_NOT_FOUND);
  CHECK(stow_explanation_note(x, info.note_count) == NULL);
  CHECK(strstr(stow_explanation_text(x), fix.change) != NULL);
  CHECK(stow_explanation_json(x)[0] == '{' && strstr(stow_explanation_json(x), "\"causes\""));
  CHECK(strstr(stow_explanation_line(x), "fragmentation") != NULL);
  stow_explanation_close(x);
}

TEST(the_error_text_beside_a_recording_reports_what_it_lacks)
{
  static const char TEXT[] =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
      "GPU 0 has a total capacity of 14.74 GiB of which 1.00 GiB is free.";
  stow_recording *r = open_data("one_spike.pickle.gz");
  stow_explain_options options = STOW_EXPLAIN_OPTIONS_INIT;
  options.message = TEXT;
  options.message_bytes = sizeof TEXT - 1;
  stow_explanation *alone, *with;
  CHECK_OK(stow_explain_recording(&alone, r, NULL));
  CHECK_OK(stow_explain_recording(&with, r, &options));
  stow_explanation_info info = STOW_EXPLANATION_INFO_INIT;
  CHECK_OK(stow_explanation_get_info(with, &info));
  CHECK(info.device_bytes > UINT64_C(14) << 30 && info.device_bytes < UINT64_C(15) << 30);
  stow_explanation_close(with);
  stow_explanation_close(alone);
  stow_recording_close(r);
}

TEST(a_message_alone_is_explained)
{
  static const char TEXT[] = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.";
  stow_explanation *x;
  CHECK_OK(stow_explain_message(&x, TEXT, sizeof TEXT - 1));
  stow_explanation_info info = STOW_EXPLANATION_INFO_INIT;
  CHECK_OK(stow_explanation_get_info(x, &info));
  CHECK_U64(info.out_of_memory, 1);
  CHECK_U64(info.requested_bytes, UINT64_C(2) << 30);
  CHECK_U64(info.device_bytes, STOW_BYTES_UNKNOWN);
  stow_explanation_close(x);
  CHECK_OK(stow_explain_message(&x, "all is well", 11));
  CHECK_OK(stow_explanation_get_info(x, &info));
  CHECK_U64(info.out_of_memory, 0);
  stow_explanation_close(x);
}

TEST(a_run_is_explained_from_its_folder)
{
  char path[4096];
  stow_explanation *x = (stow_explanation *)1;
  CHECK_STATUS(stow_explain_run(&x, harness_folder()), STOW_ERR_NOT_FOUND);
  CHECK(x == NULL);
  snprintf(path, sizeof path, "%s/end", harness_folder());
  FILE *end = fopen(path, "w");
  CHECK(end != NULL && fputs("code 1\nsignal 0\ncommand python train.py\nkernel 0\n", end) >= 0);
  fclose(end);
  CHECK_OK(stow_explain_run(&x, harness_folder()));
  stow_explanation_info info = STOW_EXPLANATION_INFO_INIT;
  CHECK_OK(stow_explanation_get_info(x, &info));
  CHECK_U64(info.out_of_memory, 0);
  CHECK(strstr(info.headline, "python train.py") != NULL);
  stow_explanation_close(x);
  snprintf(path, sizeof path, "%s/none", harness_folder());
  CHECK(setenv("XDG_STATE_HOME", path, 1) == 0);
  CHECK_STATUS(stow_explain_run(&x, NULL), STOW_ERR_NOT_FOUND);
}

TEST(wrong_arguments_are_refused)
{
  stow_explanation *x;
  stow_recording *r = open_data("one_spike.pickle.gz");
  stow_explain_options options = STOW_EXPLAIN_OPTIONS_INIT;
  options.struct_bytes = 0;
  CHECK_STATUS(stow_explain_recording(&x, r, &options), STOW_ERR_INVALID);
  CHECK(x == NULL);
  CHECK_STATUS(stow_explain_recording(NULL, r, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(stow_explain_recording(&x, NULL, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(stow_explain_message(&x, NULL, 0), STOW_ERR_INVALID);
  CHECK_STATUS(stow_explanation_get_info(NULL, NULL), STOW_ERR_INVALID);
  stow_explanation_close(NULL);
  stow_recording_close(r);
}

static void write_text(const char *name, const char *text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", harness_folder(), name);
  FILE *file = fopen(path, "w");
  CHECK(file != NULL);
  fputs(text, file);
  fclose(file);
}

/* The first request of a run, 5.7 GiB, is refused before there are stacks. The traceback shows
 * that it is a weight. */
TEST(one_huge_request_while_a_model_is_made_is_a_weight)
{
  char path[512];
  snprintf(path, sizeof path, "%s/77.stow", harness_folder());
  stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
  options.record_path = path;
  stow_trace *trace;
  CHECK_OK(stow_trace_open(&trace, &options));
  stow_trace_record fail = {.kind = STOW_TRACE_FAIL, .bytes = 6144000000, .addr = 3600000000};
  stow_trace_event(trace, &fail);
  CHECK_OK(stow_trace_close(trace));
  write_text("end", "code 1\nsignal 0\ncommand python rank.py\nkernel 0\n");
  stow_explanation *x;
  stow_cause cause = STOW_CAUSE_INIT;
  CHECK_OK(stow_explain_run(&x, harness_folder()));
  CHECK_OK(stow_explanation_get_cause(x, 0, &cause));
  CHECK_TEXT(cause.id, "one_spike");
  stow_explanation_close(x);
  write_text(
      "77.error",
      "Traceback (most recent call last):\n"
      "  File \"rank.py\", line 17, in __init__\n"
      "    self.items = nn.Embedding(items, width, device=\"cuda\")\n"
      "  File \"/x/site-packages/torch/nn/modules/sparse.py\", line 167, in __init__\n"
      "    torch.empty((num_embeddings, embedding_dim), **factory_kwargs),\n"
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.72 GiB. GPU 0 has a "
      "total capacity of 4.00 GiB of which 3.44 GiB is free. Of the allocated memory 0 "
      "bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.\n");
  CHECK_OK(stow_explain_run(&x, harness_folder()));
  CHECK_OK(stow_explanation_get_cause(x, 0, &cause));
  CHECK_TEXT(cause.id, "weights_too_big");
  stow_explanation_close(x);
  write_text("77.error",
             "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.72 GiB.\n");
  CHECK_OK(stow_explain_run(&x, harness_folder()));
  CHECK_OK(stow_explanation_get_cause(x, 0, &cause));
  CHECK_TEXT(cause.id, "one_spike");
  stow_explanation_close(x);
}

TEST_MAIN
