/* Sizes such as "8G", "512 MiB", "1.5GiB", "4096". K, M, G, T are powers of 1024. */
#ifndef STOWAGE_SIZE_H
#define STOWAGE_SIZE_H

#include <stddef.h>
#include <stdint.h>

#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Parses the whole `text` as a size. Accepts digits with an optional fraction, then optionally
 * one of B K M G T P, each also as KB/KiB and so on, in any letter case, with or without a space
 * before it. Rejects (STOW_ERR_INVALID, or STOW_ERR_OVERFLOW above 2^64-1): empty text, a sign, an
 * unknown unit, a fraction of a byte when no unit is given, anything after the unit. `*bytes` is
 * written only on success. */
STOW_API stow_status stow_size_parse(uint64_t *bytes, const char *text);

/* Buffer size for stow_size_format, with the '\0'. */
#define STOW_SIZE_TEXT_MAX 24

/* Formats `bytes` for people: "0 B", "1023 B", "1.5 KiB", "2.0 MiB", "15.9 GiB". Returns `text`. */
STOW_API const char *stow_size_format(char text[STOW_SIZE_TEXT_MAX], uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
