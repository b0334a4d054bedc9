/* Told: the explanation of an error text alone.
 *
 *   told.c        the numbers, then the parts in order; told_parts.c is what they share
 *   told_card.c   causes on the card: what the numbers prove, then what the phase suggests
 *   told_host.c   causes in host memory
 *   told_fix.c    fixes by cause, library, version, platform and phase (recipes.h)
 *
 * A text has no history, so a cause that the numbers do not prove is a guess; its confidence stays
 * below 0.6 and its sentence says "probably". */
#ifndef ADVISE_TOLD_H
#define ADVISE_TOLD_H

#include "advise/explain.h"

/* Fills `x` from x->evidence.told. */
void told_explain(explanation *x);

/* ---- told_parts.c ---- */

/* Adds a cause; the caller writes its sentence. */
cause *told_cause(explanation *x, cause_id id, double confidence);
static inline bool told_known(uint64_t bytes) {
  return bytes != MESSAGE_UNKNOWN;
}
/* Was so much more free than asked that the card was not full? */
bool told_had_room(const numbers *n);
/* A size no machine has. */
bool told_absurd(const numbers *n);

/* ---- the parts ---- */
void told_card(explanation *x);
void told_host(explanation *x);
/* Adds the fixes for the first cause, and the command that finds out more. */
void told_fixes(explanation *x);

#endif
