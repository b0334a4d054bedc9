/* One recording through explain. Whatever it holds, there is an answer, in every form (choice.h),
 * and findings are sorted by confidence. Pasted texts have a target of their own
 * (message_fuzz.c). */
#ifndef EXPLAIN_FUZZ_H
#define EXPLAIN_FUZZ_H

#include <stdlib.h>

#include "advise/explain.h"
#include "fuzz/choice.h"
#include "recordings/recording_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void explain_insist(bool so) {
  if (!so) abort();
}

static inline void explain_show(const explanation *x, const uint8_t *data, size_t size) {
  buffer out = BUFFER_INIT;
  if (fuzz_does(0, 3, data, size)) explain_insist(explanation_text(x, &out, false) == STOW_OK);
  if (fuzz_does(1, 3, data, size)) explain_insist(explanation_short(x, &out) == STOW_OK);
  if (fuzz_does(2, 3, data, size)) explain_insist(explanation_json(x, &out) == STOW_OK);
  buffer_free(&out);
  for (uint32_t i = 0; i < x->findings.count; i++)
    explain_insist(x->findings.list[i].confidence >= 0 && x->findings.list[i].confidence <= 1);
  for (uint32_t i = 1; i < x->findings.count; i++)
    explain_insist(x->findings.list[i].confidence <= x->findings.list[i - 1].confidence);
}

/* The limits are small: a memo of 64 MiB costs a thousand other inputs. */
static inline void explain_snapshot(const uint8_t *data, size_t size) {
  explanation x;
  recording r;
  input in;
  recording_init(&r, UINT64_C(16) << 20);
  input_limits limits = {.max_bytes = UINT64_C(1) << 20};
  if (input_open_memory(&in, data, size, "fuzz", &limits) != STOW_OK) return;
  stow_status status = recording_read_input(&r, &in, KIND_SNAPSHOT, UINT64_C(1) << 20);
  input_close(&in);
  if (status == STOW_OK) {
    if (explain_recording(&x, &r, NULL) == STOW_OK) explain_show(&x, data, size);
    explanation_free(&x);
  }
  recording_free(&r);
}

#endif
