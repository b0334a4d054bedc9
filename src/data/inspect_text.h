/* What inspect found, as a table for people and as JSON.
 *
 * Called by `stowage inspect` and by the public API (stowage/inspect.h). */
#ifndef DATA_INSPECT_TEXT_H
#define DATA_INSPECT_TEXT_H

#include "base/buffer.h"
#include "base/json.h"
#include "data/inspect.h"

/* A headline and a table. `bold`: with escape sequences. */
stow_status inspect_text(buffer *out, const char *path, const file_facts *f, bool bold);
/* One object. `peak_bytes` is the memory the process took; 0: left out. */
void inspect_json(json *j, const char *path, const file_facts *f, uint64_t peak_bytes);

/* The rows of a table, how many columns, and whether the first row names them. */
void inspect_rows_text(buffer *to, const file_facts *f);
void inspect_rows_json(json *j, const file_facts *f);

#endif
