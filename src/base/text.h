/* Text: makes strings from outside safe to print (names in files, server replies, process names,
 * URLs).
 *
 * Two dangers: bytes that a terminal interprets, and secrets. text_clean removes the first,
 * text_hide the second. Both work in place and never make a string longer, so they need no memory
 * and cannot fail. stow_fail applies both to every message; cli/output.h applies them to everything
 * a verb prints. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for a path or a URL as text_show leaves it; a longer one is cut. */
#define TEXT_PATH_MAX 4096

/* Returns true if a terminal shows the code point and does nothing else with it. False for C0, DEL
 * and C1 controls, bidirectional controls, line and paragraph separators, and tag characters. */
bool text_safe(uint32_t point);

/* Replaces every unsafe code point and every byte that is not UTF-8 with '?'. Keeps '\n' and '\t'
 * if `lines`. Returns the new length, at most `length`; does not write a '\0'. */
size_t text_clean(char *text, size_t length, bool lines);
/* Copies `text` into `to`, cleaned and with secrets hidden, cut to `size` bytes with its '\0'.
 * Returns `to`. */
char *text_show(char *to, size_t size, const char *text);

/* Removes user names, passwords, queries and fragments from every URL in the string. */
void text_hide(char *text);
/* Makes a string one line that is safe to print: text_hide, then text_clean. */
void text_line(char *text);
/* text_hide for a command line of *length bytes. Each word ends with '\0' as in /proc/PID/cmdline;
 * one more '\0' follows the last. Also replaces the value of options that are named after a secret
 * (--header, --password, --token …) with "…". Sets *length to the new length, without a '\0' at the
 * end. */
void text_hide_command(char *words, size_t *length);

/* Returns the ending of a counted word: "" for 1, "s" otherwise. */
static inline const char *text_s(uint64_t count) {
  return count == 1 ? "" : "s";
}

/* Returns whether the text ends with the other one. */
bool text_ends(const char *text, const char *end);
/* The same for the first `length` bytes of `text`, in any case. */
bool text_ends_case(const char *text, size_t length, const char *end);
/* Returns whether a word of `length` bytes is in a list of words between single spaces. */
bool text_lists(const char *list, const char *word, size_t length);
/* Returns true for http:// and https://, in any case. */
bool text_is_url(const char *text);
/* Returns true if both URLs have the same scheme, host and port (RFC 6454, section 4). */
bool text_same_origin(const char *a, const char *b);

#endif
