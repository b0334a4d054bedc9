/* Explain: why a program ran out of memory, and what to change.
 *
 *   explanation x;
 *   explain_recording(&x, &recording, NULL);   or  explain_message(&x, text, length)
 *   explanation_text(&x, &out, false);         or  explanation_json, explanation_short
 *   explanation_free(&x);
 *
 * The command, the run verb and the Python package call it. It reads no files and prints nothing.
 * All its numbers come from the recording or the text; what is unknown is reported as unknown.
 * */
#ifndef ADVISE_EXPLAIN_H
#define ADVISE_EXPLAIN_H

#include "advise/explanation.h"

typedef struct explain_options {
  const char *device; /* name of the device, if the recording does not have it; NULL: unknown */
  /* The error text, if the recording does not have it; NULL: none. */
  const char *message;
  size_t message_bytes;
  uint64_t device_bytes; /* size of another device to answer for; 0: as recorded */
} explain_options;

/* Explains a recording, which must outlive the explanation. `options` may be NULL. Free the
 * explanation even after a failure. */
stow_status explain_recording(explanation *x, const recording *r, const explain_options *options);
/* Explains an error text alone. */
stow_status explain_message(explanation *x, const char *text, size_t count);

stow_status explanation_text(const explanation *x, buffer *out, bool bold);
stow_status explanation_json(const explanation *x, buffer *out);
/* Writes the explanation as one line. */
stow_status explanation_short(const explanation *x, buffer *out);

#endif
