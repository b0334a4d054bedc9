/* The result of shrink, as a table for people and as JSON.
 *
 * Called by `stowage shrink` and by the public API (stowage/shrink.h). */
#ifndef DATA_SHRINK_TEXT_H
#define DATA_SHRINK_TEXT_H

#include "base/buffer.h"
#include "data/shrink.h"

/* Writes the report. `in` and `out` are the paths, `o` the options. `bold`: with escape
 * sequences. */
stow_status shrink_text(buffer *to, const shrink_result *r, const char *in, const char *out,
                        const shrink_options *o, bool bold);
/* Writes one object. `peak_bytes` is the memory the process used; 0: omitted. */
stow_status shrink_json(buffer *to, const shrink_result *r, const char *in, const char *out,
                        const shrink_options *o, uint64_t peak_bytes);

/* Returns the name of item `i` ("-" if the file is one array), and its type in the input. */
const char *shrink_name(const shrink_result *r, size_t i);
const char *shrink_type(const shrink_result *r, size_t i);

#endif
