/* Fuzzes explain: it must answer for any snapshot and any text. The known numbers never exceed the
 * size of the device. */
#include <stdlib.h>

#include "advise/explain.h"
#include "recordings/recording_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void insist(bool so) {
  if (!so) abort();
}

static void show_all(const explanation *x) {
  buffer out = BUFFER_INIT;
  insist(explanation_text(x, &out, false) == STOW_OK);
  insist(explanation_short(x, &out) == STOW_OK);
  insist(explanation_json(x, &out) == STOW_OK);
  buffer_free(&out);
  for (uint32_t i = 0; i < x->findings.count; i++)
    insist(x->findings.list[i].confidence >= 0 && x->findings.list[i].confidence <= 1);
  for (uint32_t i = 1; i < x->findings.count; i++)
    insist(x->findings.list[i].confidence <= x->findings.list[i - 1].confidence);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  explanation x;
  if (explain_message(&x, (const char *)data, size) == STOW_OK) show_all(&x);
  explanation_free(&x);
  recording r;
  input in;
  recording_init(&r, UINT64_C(256) << 20);
  input_limits limits = {.max_bytes = UINT64_C(16) << 20};
  if (input_open_memory(&in, data, size, "fuzz", &limits) != STOW_OK) return 0;
  stow_status status = recording_read_input(&r, &in, KIND_SNAPSHOT, UINT64_C(64) << 20);
  input_close(&in);
  if (status == STOW_OK) {
    if (explain_recording(&x, &r, NULL) == STOW_OK) show_all(&x);
    explanation_free(&x);
  }
  recording_free(&r);
  return 0;
}
