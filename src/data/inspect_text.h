/* The result of inspect, as a table for people and as JSON.
 *
 * Called by `stowage inspect` and by the public API (stowage/inspect.h). */
#ifndef DATA_INSPECT_TEXT_H
#define DATA_INSPECT_TEXT_H

#include "base/buffer.h"
#include "base/json.h"
#include "data/inspect.h"

/* Writes a headline and a table. `bold`: with escape sequences. */
stow_status inspect_text(buffer *out, const char *path, const file_facts *f, bool bold);
/* Writes one object. `peak_bytes` is the memory the process used; 0: omitted. */
void inspect_json(json *j, const char *path, const file_facts *f, uint64_t peak_bytes);

/* Writes the number of rows and columns, and whether the first row names them. */
void inspect_rows_text(buffer *to, const file_facts *f);
void inspect_rows_json(json *j, const file_facts *f);

#endif
