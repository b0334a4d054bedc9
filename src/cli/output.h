/* Output: what every verb prints with. Colours only on a terminal, never with NO_COLOR; errors as
 * "stowage VERB: message" on standard error. Tables are base/table.h, sizes stow_size_format,
 * JSON base/json.h. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdbool.h>

#include "base/buffer.h"

/* Is standard output a terminal that wants colours? */
bool output_color(void);
/* `text` in bold if colours are wanted. Good until four more calls. */
const char *output_bold(const char *text);
/* Writes the buffer and a newline if it does not end in one, and frees it. STOW_ERR_IO, or why the
 * buffer could not be filled. */
stow_status output_buffer(buffer *b);

#endif
