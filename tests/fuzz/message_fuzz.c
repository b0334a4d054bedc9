/* Fuzzes the reading of pasted texts: cleaning, notebooks, every family's reader, the answer. Every
 * answer about memory has a fix, an unknown cause ends with a command, and all of it fits a screen.
 */
#include <stdlib.h>
#include <string.h>

#include "advise/clean.h"
#include "advise/explain.h"
#include "advise/notebook.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void insist(bool so) {
  if (!so) abort();
}

static void check_answer(const explanation *x) {
  buffer out = BUFFER_INIT;
  insist(explanation_text(x, &out, false) == STOW_OK);
  size_t lines = 0;
  for (size_t i = 0; i < out.length; i++) lines += out.data[i] == '\n';
  insist(lines <= 40);
  insist(explanation_short(x, &out) == STOW_OK && explanation_json(x, &out) == STOW_OK);
  buffer_free(&out);
  message_kind kind = x->evidence.message.kind;
  bool ours = kind != MESSAGE_NONE && kind != MESSAGE_FOREIGN;
  insist((x->findings.count > 0) == ours && (x->fixes.count > 0) == ours);
  for (uint32_t i = 0; i < x->findings.count; i++)
    insist(x->findings.list[i].confidence >= 0 && x->findings.list[i].confidence <= 1 &&
           (i == 0 || x->findings.list[i].confidence <= x->findings.list[i - 1].confidence));
  if (ours && x->findings.list[0].id == CAUSE_UNKNOWN)
    insist(x->notes.data != NULL && strstr(x->notes.data, "to find out: ") != NULL);
}

static void explain(const char *text, size_t size) {
  explanation x;
  insist(explain_message(&x, text, size) == STOW_OK);
  check_answer(&x);
  explanation_free(&x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *text = (const char *)data;
  explain(text, size);
  buffer out = BUFFER_INIT;
  insist(notebook_outputs(&out, (scan_text){text, text + size}) == STOW_OK);
  buffer_clear(&out);
  /* Cleaning a clean text again never makes it longer. */
  insist(clean_text(&out, (scan_text){text, text + size}) == STOW_OK);
  buffer again = BUFFER_INIT;
  if (out.length > 0)
    insist(clean_text(&again, (scan_text){out.data, out.data + out.length}) == STOW_OK);
  insist(again.length <= out.length);
  buffer_free(&again);
  buffer_clear(&out);
  /* The same bytes as the output of a notebook cell. */
  buffer_text(&out, "{\"cells\": [{\"outputs\": [{\"text\": [\"");
  buffer_append(&out, data, size);
  buffer_text(&out, "\"]}]}]}");
  explain(out.data, out.length);
  buffer_free(&out);
  return 0;
}
