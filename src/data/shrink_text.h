/* What shrink did, as a table for people and as JSON.
 *
 * Called by `stowage shrink` and by the public API (stowage/shrink.h). */
#ifndef DATA_SHRINK_TEXT_H
#define DATA_SHRINK_TEXT_H

#include "base/buffer.h"
#include "data/shrink.h"

/* `in` and `out` are the paths, `o` what was asked. `bold`: with escape sequences. */
stow_status shrink_text(buffer *to, const shrink_result *r, const char *in, const char *out,
                        const shrink_options *o, bool bold);
/* One object. `peak_bytes` is the memory the process took; 0: left out. */
stow_status shrink_json(buffer *to, const shrink_result *r, const char *in, const char *out,
                        const shrink_options *o, uint64_t peak_bytes);

/* Item `i`: its name ("-" where the file is one array), and its type in the input. */
const char *shrink_name(const shrink_result *r, size_t i);
const char *shrink_type(const shrink_result *r, size_t i);

#endif
