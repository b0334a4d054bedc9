/* What shrink did to a model, as text for people and as JSON. */
#ifndef DATA_WEIGHTS_TEXT_H
#define DATA_WEIGHTS_TEXT_H

#include "data/weights/weights.h"

/* Writes the report. `bold`: with escape sequences. */
stow_status weights_text(buffer *to, const weights_result *r, const char *in, const char *out,
                         const weights_options *o, bool bold);
stow_status weights_json(buffer *to, const weights_result *r, const char *in, const char *out,
                         const weights_options *o, uint64_t peak_bytes);
/* Returns the name of the type that a tensor gets: "float16", "Q4_K", "int8". */
const char *weights_becomes(const weights_item *item);
/* Returns the root of the mean square error over that of the values; 0 if there are none. */
double weights_relative_error(const quant_error *e);

#endif
