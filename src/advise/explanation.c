/* Explanation: its state (explanation.h). */
#include "advise/explanation.h"

#include <stdlib.h>
#include <string.h>

stow_status explanation_status(const explanation *x) {
  if (x->headline.status != STOW_OK) return x->headline.status;
  if (x->memory.status != STOW_OK) return x->memory.status;
  if (x->notes.status != STOW_OK) return x->notes.status;
  return findings_status(&x->findings);
}

void explanation_head(explanation *x) {
  if (x->findings.count > 0) buffer_join(&x->headline, &x->findings.list[0].headline);
}

void explanation_blank(explanation *x) {
  *x = (explanation){
      .from_message = true, .headline = BUFFER_INIT, .memory = BUFFER_INIT, .notes = BUFFER_INIT};
  message_read(&x->evidence.message, "", 0);
  memset(&x->evidence.n, 0xff, sizeof x->evidence.n);
}

void explanation_free(explanation *x) {
  findings_free(&x->findings);
  evidence_free(&x->evidence);
  buffer_free(&x->headline);
  buffer_free(&x->memory);
  buffer_free(&x->notes);
  *x = (explanation){0};
}
