/* Diagnosis: explains an error message without a recording.
 *
 * A message has no history. A cause that the numbers do not prove is a guess: its confidence stays
 * below 0.6 and its sentence says "probably". */
#ifndef ADVISE_DIAGNOSIS_H
#define ADVISE_DIAGNOSIS_H

#include "advise/explanation.h"

/* Fills `x` from x->evidence.message. */
void diagnosis_explain(explanation *x);

#endif
