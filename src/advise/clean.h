/* Clean: a pasted log without what terminals, loggers and launchers put around its lines.
 *
 * Removes colour codes, timestamps, rank and container prefixes, quotation marks and padding, and
 * joins lines that a terminal wrapped. The lines of an allocator's dump are left out: message_bfc.c
 * reads them from the original. Of a long log, a line before its last MiB is kept only if it has a
 * word of a failure, and at most 1000 lines that differ in digits alone: 57 MB take 0.3 s. */
#ifndef ADVISE_CLEAN_H
#define ADVISE_CLEAN_H

#include "advise/scan.h"
#include "base/buffer.h"

/* The side of a box that Rich draws around a traceback. */
#define CLEAN_BOX "\xe2\x94\x82"

/* Appends the cleaned text to `out`, each line trimmed and ended with '\n'. */
stow_status clean_text(buffer *out, scan_text raw);

/* Returns a line of the original without the prefixes that loggers and quotations put before it. */
scan_text clean_line(scan_text line);

#endif
