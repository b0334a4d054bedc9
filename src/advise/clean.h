/* Clean: a pasted log without what terminals, loggers and launchers put around its lines.
 *
 * Removes colour codes, timestamps, rank and container prefixes, quotation marks and padding, and
 * joins lines that a terminal wrapped. The lines of an allocator's dump are left out: message_bfc.c
 * reads them from the original. Of a long log, lines before its last MiB are kept only if they
 * hold a word of a failure, so that all tables can be asked in about a second. */
#ifndef ADVISE_CLEAN_H
#define ADVISE_CLEAN_H

#include "advise/scan.h"
#include "base/buffer.h"

/* Appends the cleaned text to `out`, each line trimmed and ended with '\n'. */
stow_status clean_text(buffer *out, scan_text raw);

#endif
