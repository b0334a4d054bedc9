/* Explanation: the answer that explain.h, diagnosis.h and host.h fill in and explain_text.c prints.
 */
#ifndef ADVISE_EXPLANATION_H
#define ADVISE_EXPLANATION_H

#include "advise/fixes.h"

typedef struct explanation {
  evidence evidence; /* of a recording; otherwise only message and n are filled */
  bool from_message;
  findings findings;
  fixes fixes;
  buffer headline; /* one sentence */
  buffer memory;   /* rows, of host memory; where there are none the device's numbers are shown */
  buffer notes;    /* lines: what weakens the answer, what is missing to know more */
} explanation;

/* One that knows nothing yet, for whoever fills it: no numbers, no causes, no words. */
void explanation_blank(explanation *x);
void explanation_free(explanation *x);

/* STOW_OK, or why a part of the explanation could not be kept. The three calls below fail with it
 * rather than print an explanation that lacks something. */
stow_status explanation_status(const explanation *x);
/* Makes the headline of the surest finding, if there is one, that of the explanation. */
void explanation_head(explanation *x);

#endif
