/* Explain: why a program ran out of memory, and what to change.
 *
 *   explanation x;
 *   explain_recording(&x, &recording, NULL);   or  explain_message(&x, text, length)
 *   explanation_text(&x, &out, false);         or  explanation_json, explanation_short
 *   explanation_free(&x);
 *
 * The command, the run verb and the Python face call it. It reads no files and prints nothing; what
 * it says of numbers is in the recording or the text, what it does not know it says is not known.
 */
#ifndef ADVISE_EXPLAIN_H
#define ADVISE_EXPLAIN_H

#include "advise/fixes.h"

typedef struct explain_options {
  const char *card; /* its name, where the recording does not tell; NULL not known */
  /* The error text, where it did not come with the recording; NULL none. */
  const char *message;
  size_t message_bytes;
} explain_options;

typedef struct explanation {
  evidence evidence; /* of a recording; otherwise only told and n are filled */
  bool from_message;
  findings findings;
  fixes fixes;
  buffer headline; /* one sentence */
  buffer memory;   /* rows, of host memory; where there are none the card's numbers are shown */
  buffer notes;    /* lines: what weakens the answer, what is missing to know more */
} explanation;

/* `r` must outlive it. `options` may be NULL. Free in any case. */
stow_status explain_recording(explanation *x, const recording *r, const explain_options *options);
/* From an error text alone. */
stow_status explain_message(explanation *x, const char *text, size_t count);
void explanation_free(explanation *x);

/* STOW_OK, or why a part of the explanation could not be kept. The three calls below fail with it
 * rather than print an explanation that lacks something. */
stow_status explanation_status(const explanation *x);
/* Makes the headline of the surest finding, if there is one, that of the explanation. */
void explanation_head(explanation *x);

stow_status explanation_text(const explanation *x, buffer *out, bool bold);
stow_status explanation_json(const explanation *x, buffer *out);
/* One line. */
stow_status explanation_short(const explanation *x, buffer *out);

/* One that knows nothing yet, for whoever fills it: no numbers, no causes, no words. */
void explanation_blank(explanation *x);

#endif
