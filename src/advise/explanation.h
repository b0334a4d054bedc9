/* Explanation: the answer that explain.h, diagnosis.h and host.h fill in and explain_text.c prints.
 */
#ifndef ADVISE_EXPLANATION_H
#define ADVISE_EXPLANATION_H

#include "advise/fixes.h"

typedef struct explanation {
  evidence evidence; /* for a recording; otherwise only message and n are filled */
  bool from_message;
  findings findings;
  fixes fixes;
  buffer headline; /* one sentence */
  buffer memory;   /* rows about host memory; without rows, the device's figures are shown */
  buffer notes;    /* lines about what makes the answer less certain, or what is missing */
} explanation;

/* Initializes an empty explanation: no numbers, no causes, no texts. */
void explanation_blank(explanation *x);
void explanation_free(explanation *x);

/* Returns STOW_OK, or why a part of the explanation could not be stored. The three calls below then
 * fail with it rather than print an incomplete explanation. */
stow_status explanation_status(const explanation *x);
/* Uses the headline of the most certain finding, if there is one. */
void explanation_head(explanation *x);

#endif
