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

#include "advise/explanation.h"

typedef struct explain_options {
  const char *device; /* its name, where the recording does not have it; NULL: unknown */
  /* The error text, where it did not come with the recording; NULL none. */
  const char *message;
  size_t message_bytes;
  uint64_t
      device_bytes; /* of a device to answer for, other than the recorded one; 0: as recorded */
} explain_options;

/* `r` must outlive it. `options` may be NULL. Free in any case. */
stow_status explain_recording(explanation *x, const recording *r, const explain_options *options);
/* From an error text alone. */
stow_status explain_message(explanation *x, const char *text, size_t count);

stow_status explanation_text(const explanation *x, buffer *out, bool bold);
stow_status explanation_json(const explanation *x, buffer *out);
/* One line. */
stow_status explanation_short(const explanation *x, buffer *out);

#endif
