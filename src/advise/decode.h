/* Decode: makes a pasted text UTF-8 with plain spaces, so that every reader sees the same words.
 *
 * Windows PowerShell writes UTF-16. Web pages, chats and word processors put no-break spaces
 * between a number and its unit. message.c calls this before anything else. */
#ifndef ADVISE_DECODE_H
#define ADVISE_DECODE_H

#include "advise/scan.h"
#include "base/buffer.h"

/* Returns whether the text is UTF-16, by its byte order mark or by its first 512 bytes. */
bool decode_is_utf16(scan_text raw);
/* Appends the text as UTF-8. All of Unicode's spaces become spaces, its line ends line ends;
 * marks without a width are left out. Returns false if the text needs no change, or if there is no
 * memory for the copy: then the original is to be read. */
bool decode_text(buffer *out, scan_text raw);

#endif
