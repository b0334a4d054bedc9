/* Text: see text.h. */
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"

/* ---- terminals ---- */

bool text_safe(uint32_t point) {
  if (point < 0x20 || (point >= 0x7f && point < 0xa0)) return false; /* C0, DEL, C1 */
  if (point < 0x61c) return true;
  /* Bidirectional controls: Unicode Standard Annex 9, table 4. */
  if (point == 0x61c || point == 0x200e || point == 0x200f) return false;
  if (point >= 0x2028 && point <= 0x202e) return false; /* separators too */
  if (point >= 0x2066 && point <= 0x2069) return false;
  if (point >= 0xfff9 && point <= 0xfffb) return false; /* interlinear annotations */
  return point < 0xe0000 || point > 0xe007f;            /* tags: invisible text */
}

size_t text_clean(char *text, size_t length, bool lines) {
  size_t to = 0;
  for (size_t at = 0; at < length;) {
    uint32_t point = 0;
    size_t step = utf8_take((const unsigned char *)text + at, length - at, &point);
    bool kept = step > 0 && (text_safe(point) || (lines && (text[at] == '\n' || text[at] == '\t')));
    if (kept) {
      memmove(text + to, text + at, step);
      to += step;
    } else {
      text[to++] = '?';
    }
    at += step > 0 ? step : 1;
  }
  return to;
}

/* ---- URLs ---- */

/* Finds the part of the `count` bytes after "://" that may be shown: from *from up to *to. */
static void shown_part(const char *rest, size_t count, size_t *from, size_t *to) {
  size_t authority = 0;
  while (authority < count && strchr("/?#", rest[authority]) == NULL) authority++;
  *from = 0;
  for (size_t i = 0; i < authority; i++)
    if (rest[i] == '@') *from = i + 1;
  const char *colon = rest[0] != '[' ? memchr(rest, ':', authority) : NULL;
  if (*from == 0 && colon != NULL && !isdigit((unsigned char)colon[1]))
    /* Not a port but a password that contains '/' or '?'. It ends at the last '@'. */
    for (size_t i = authority; i < count; i++)
      if (rest[i] == '@') *from = i + 1;
  *to = *from;
  while (*to < count && rest[*to] != '?' && rest[*to] != '#') (*to)++;
}

/* Returns the length of a URL inside a sentence, without the punctuation after it. */
static size_t url_extent(const char *rest) {
  size_t count = 0;
  while ((unsigned char)rest[count] > ' ' && strchr("\"'<>`", rest[count]) == NULL) count++;
  while (count > 0 && strchr(":,;.)", rest[count - 1]) != NULL) count--;
  return count;
}

/* Removes the secrets of the URL whose text after "://" is at `rest`. Returns the end of what
 * stays. */
static char *hide_url(char *rest, size_t count) {
  size_t from, to;
  shown_part(rest, count, &from, &to);
  size_t kept = to - from;
  memmove(rest, rest + from, kept);
  memmove(rest + kept, rest + count, strlen(rest + count) + 1);
  return rest + kept;
}

/* Returns whether the text that ends at `end` ends with http or https. */
static bool ends_with_http(const char *text, const char *end) {
  if (end > text && (end[-1] == 's' || end[-1] == 'S')) end--;
  return end - text >= 4 && strncasecmp(end - 4, "http", 4) == 0;
}

/* A mistyped http:/user:password@host is a file name, but what it hides is as secret. */
void text_hide(char *text) {
  for (char *at = text; (at = strstr(at, ":/")) != NULL;) {
    bool url = at[2] == '/';
    bool hide = url ? at > text && isalnum((unsigned char)at[-1]) : ends_with_http(text, at);
    at += url ? 3 : 2;
    if (hide) at = hide_url(at, url_extent(at));
  }
}

void text_line(char *text) {
  text_hide(text);
  text[text_clean(text, strlen(text), false)] = '\0';
}

/* text_hide for a string that is one URL: its password may hold spaces and quotes. */
static void hide_whole(char *url) {
  char *rest = strstr(url, "://") + 3;
  hide_url(rest, strlen(rest));
}

char *text_show(char *to, size_t size, const char *text) {
  if (size == 0) return to;
  snprintf(to, size, "%s", text);
  if (text_is_url(to))
    hide_whole(to);
  else
    text_hide(to);
  size_t length = strlen(to);
  /* Cut inside a character: drop its first bytes. */
  if (length + 1 == size)
    for (int back = 0; back < 3 && length > 0 && ((unsigned char)to[length - 1] & 0x80) != 0;
         back++)
      if (utf8_prefix(to, length) < length) length--;
  to[text_clean(to, length, false)] = '\0';
  return to;
}

bool text_ends(const char *text, const char *end) {
  size_t a = strlen(text), b = strlen(end);
  return a >= b && strcmp(text + a - b, end) == 0;
}

bool text_lists(const char *list, const char *word, size_t length) {
  if (length == 0) return false;
  for (const char *at = list; *at != '\0';) {
    size_t here = strcspn(at, " ");
    if (here == length && memcmp(at, word, length) == 0) return true;
    at += here + (at[here] == ' ');
  }
  return false;
}

bool text_ends_case(const char *text, size_t length, const char *end) {
  size_t count = strlen(end);
  return length >= count && strncasecmp(text + length - count, end, count) == 0;
}

bool text_is_url(const char *text) {
  return strncasecmp(text, "http://", 7) == 0 || strncasecmp(text, "https://", 8) == 0;
}

/* Finds the host and the port of an http(s) URL. */
static const char *host_of(const char *url, size_t *length, long *port) {
  const char *host = strstr(url, "://") + 3, *end = host + strcspn(host, "/?#\\");
  for (const char *at = host; at < end; at++)
    if (*at == '@') host = at + 1;
  const char *name_end = end;
  *port = strncasecmp(url, "https", 5) == 0 ? 443 : 80;
  const char *bracket = host[0] == '[' ? memchr(host, ']', (size_t)(end - host)) : NULL;
  const char *from = bracket != NULL ? bracket : host;
  const char *colon = memchr(from, ':', (size_t)(end - from));
  if (colon != NULL) {
    name_end = colon;
    if (colon + 1 < end) *port = strtol(colon + 1, NULL, 10);
  }
  if (name_end > host && name_end[-1] == '.') name_end--; /* a trailing dot names the same host */
  *length = (size_t)(name_end - host);
  return host;
}

bool text_same_origin(const char *a, const char *b) {
  if (!text_is_url(a) || !text_is_url(b)) return false;
  size_t a_length, b_length;
  long a_port, b_port;
  const char *a_host = host_of(a, &a_length, &a_port), *b_host = host_of(b, &b_length, &b_port);
  bool a_tls = strncasecmp(a, "https", 5) == 0, b_tls = strncasecmp(b, "https", 5) == 0;
  return a_tls == b_tls && a_port == b_port && a_length == b_length &&
         strncasecmp(a_host, b_host, a_length) == 0;
}

/* ---- command lines ---- */

/* Returns true if the option's name, up to a '=' or the end, names a secret. */
static bool names_secret(const char *word) {
  static const char *const names[] = {"header",        "password",  "passwd", "token",
                                      "secret",        "api-key",   "apikey", "api_key",
                                      "authorization", "credential"};
  if (word[0] != '-') return false;
  char name[64];
  size_t length = strcspn(word, "=");
  if (length >= sizeof name) return false;
  for (size_t i = 0; i < length; i++) name[i] = (char)tolower((unsigned char)word[i]);
  name[length] = '\0';
  if (strcmp(name, "-h") == 0) return word[1] == 'H'; /* curl's and ours */
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strstr(name, names[i]) != NULL) return true;
  return false;
}

/* Replaces the word's bytes from `at` on, up to its end, with "…" or "*" where that is too long. */
static void mask(char *at) {
  size_t length = strlen(at);
  if (length >= 3)
    strcpy(at, "\xe2\x80\xa6");
  else
    memset(at, '*', length);
}

void text_hide_command(char *words, size_t *length) {
  size_t to = 0;
  bool hide_next = false;
  for (size_t at = 0; at < *length;) {
    char *word = words + at;
    size_t count = strlen(word); /* words[*length] ends the last */
    bool secret = names_secret(word);
    char *equals = secret ? strchr(word, '=') : NULL;
    if (hide_next)
      mask(word);
    else if (equals != NULL)
      mask(equals + 1);
    else
      text_hide(word);
    hide_next = !hide_next && secret && equals == NULL;
    size_t now = strlen(word);
    memmove(words + to, word, now);
    at += count + 1;
    to += now;
    words[to++] = '\0';
  }
  while (to > 0 && words[to - 1] == '\0') to--;
  *length = to;
}
