/* Text: makes text from outside (names in files, URLs, server responses) safe to print. */
#ifndef STOWAGE_TEXT_H
#define STOWAGE_TEXT_H

#include <stddef.h>

#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Copies `text` into `to` as one line that is safe for a terminal and a log. Control characters
 * (C0, C1), bidirectional controls and bytes that are not UTF-8 become '?'. URLs lose user name,
 * password, query and fragment. Cuts to `size` bytes with the '\0'; strlen(text) + 1 is always
 * enough. Returns `to`. */
STOW_API char *stow_text_show(char *to, size_t size, const char *text);

#ifdef __cplusplus
}
#endif
#endif
