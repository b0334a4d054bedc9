/* Output: what every verb prints with. Colours only on a terminal, never with NO_COLOR; errors as
 * "stowage VERB: message" on standard error. Tables are base/table.h, sizes stow_size_format,
 * JSON base/json.h. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdarg.h>
#include <stdbool.h>

#include "base/buffer.h"

/* Returns the columns of the terminal on standard output, 0 if it is not one. Lines that are longer
 * are wrapped between words, under the column they began in. */
size_t output_width(void);
/* Writes what was printed of a line that has not ended yet. */
void output_flush(void);
/* Is standard output a terminal that wants colours? */
bool output_color(void);
/* Returns a name, path or URL from outside as it may be printed: one line, no control characters,
 * no password and no query (base/text.h). Good until four more calls. */
const char *output_name(const char *text);
/* The same in bold if colours are wanted. Good until four more calls. */
const char *output_bold(const char *text);
/* Print to standard output and to standard error. Verbs print with these and with output_buffer
 * only (tests/guards/terminal.sh checks that): whatever a terminal would obey in a name from a file
 * becomes
 * '?', except '\n', '\t' and our own colours. Pass names through output_name, where '\n' is unsafe
 * too. */
void output_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
void output_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void output_verror(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
/* Erases the line that the cursor is on, of standard error. */
void output_erase(void);
/* Moves to the upper left corner of the terminal on standard output, and writes a frame there: each
 * line erases what was behind it, the last what was below. Frees the buffer. */
void output_home(void);
stow_status output_frame(buffer *b);
/* Writes `text` to standard output byte for byte, for a shell to read. */
void output_exact(const char *text);
/* Writes the buffer and a newline if it does not end in one, and frees it. STOW_ERR_IO, or why the
 * buffer could not be filled. */
stow_status output_buffer(buffer *b);

#endif
