/* Output: printing for all verbs. Colours only on a terminal, never with NO_COLOR. Errors are
 * "stowage VERB: message" on standard error. Tables: base/table.h; sizes: stow_size_format; JSON:
 * base/json.h. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdarg.h>
#include <stdbool.h>

#include "base/buffer.h"

/* Returns the number of columns of the terminal on standard output; 0 if it is not a terminal.
 * Longer lines are wrapped between words and indented to the column they began in. */
size_t output_width(void);
/* Writes out an unfinished line. */
void output_flush(void);
/* Returns whether standard output is a terminal that supports colours. */
bool output_color(void);
/* Returns a name, path or URL from outside in a printable form: one line, no control characters, no
 * password and no query (base/text.h). Valid until four more calls. */
const char *output_name(const char *text);
/* Returns it in bold if colours are enabled. Valid until four more calls. */
const char *output_bold(const char *text);
/* Print to standard output and to standard error. Verbs print with these and with output_buffer
 * only (tests/guards/terminal.sh checks that): control characters in a name from a file become '?',
 * except '\n', '\t' and our own colours. Pass names through output_name, where '\n' is unsafe
 * too. */
void output_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
void output_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void output_verror(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
/* Erases the cursor's line on standard error. */
void output_erase(void);
/* Move to the upper left corner of the terminal on standard output, and write a frame there. Each
 * line erases the rest of its line, the last one everything below. Frees the buffer. */
void output_home(void);
stow_status output_frame(buffer *b);
/* Writes `text` to standard output unchanged, for a shell to read. */
void output_exact(const char *text);
/* Writes the buffer, adds a newline if it does not end in one, and frees it. Returns STOW_ERR_IO,
 * or why the buffer could not be filled. */
stow_status output_buffer(buffer *b);

#endif
