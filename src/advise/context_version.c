/* Versions of PyTorch: what a text states, and what its paths and frames show. A fix is not offered
 * that the version does not have. */
#include <ctype.h>
#include <string.h>

#include "advise/context_parts.h"

#define BUILD_DIGITS 13 /* of a time in milliseconds */

/* Parses "torch==2.1.2", "PyTorch Version: 2.10.0", "torch 1.13.1" to 201, 210, 113. */
static bool read_stated(context *c, scan_text raw) {
  static const char *const words[] = {
      "torch==",  "PyTorch Version: ", "PyTorch version: ", "pytorch version: ",
      "PyTorch ", "torch version: ",   "torch: ",           "Torch "};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const char *at = scan_find(raw, words[i]);
    while (at != NULL && at < raw.end && (*at == '*' || *at == ' ')) at++;
    uint64_t major = scan_number(raw, at);
    if (at == NULL || (major != 1 && major != 2) || at + 2 >= raw.end || at[1] != '.') continue;
    uint64_t minor = scan_number(raw, at + 2);
    if (minor > 30) continue;
    c->torch_from = c->torch_to = (uint16_t)(major * 100 + minor);
    return true;
  }
  return false;
}

static void at_least(context *c, uint16_t version) {
  if (c->torch_from < version && version <= c->torch_to) c->torch_from = version;
}

static void at_most(context *c, uint16_t version) {
  if (c->torch_to > version && version >= c->torch_from) c->torch_to = version;
}

/* Reads the version of Python from the path of a library: each has wheels of some versions of
 * PyTorch alone (the tables of its release notes). */
static void read_python(context *c, scan_text raw) {
  static const struct {
    const char *words;
    uint16_t from, to;
  } table[] = {{"python2.7/", 0, 104},  {"python3.5/", 0, 105},  {"python3.6/", 0, 110},
               {"python3.7/", 0, 113},  {"python3.10/", 111, 0}, {"python3.11/", 113, 0},
               {"python3.12/", 202, 0}, {"python3.13/", 205, 0}, {"Python311\\", 113, 0},
               {"Python312\\", 202, 0}, {"Python313\\", 205, 0}, {"Python36\\", 0, 110},
               {"Python37\\", 0, 113},  {"Python310\\", 111, 0}};
  if (!scan_has(raw, "torch")) return;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (!scan_has(raw, table[i].words)) continue;
    if (table[i].from > 0) at_least(c, table[i].from);
    if (table[i].to > 0) at_most(c, table[i].to);
    return;
  }
}

/* Reads the day on which conda's package was built: "/conda-bld/pytorch_1532582123400/work". Such
 * a version is no newer than the last one released a month after it. */
static void read_build(context *c, scan_text raw) {
  static const struct {
    uint64_t before_s; /* a month before the release of the next version */
    uint16_t to;
  } table[] = {{1541376000, 4},    /* 1.0: December 2018 */
               {1593216000, 105},  /* 1.6: July 2020 */
               {1632096000, 109},  /* 1.10: October 2021 */
               {1676246400, 113},  /* 2.0: March 2023 */
               {1693785600, 200}}; /* 2.1: October 2023 */
  const char *at = scan_find(raw, "conda-bld/pytorch_"), *end = at;
  while (end != NULL && end < raw.end && isdigit((unsigned char)*end)) end++;
  if (at == NULL || end - at != BUILD_DIGITS) return;
  uint64_t built_s = scan_number(raw, at) / 1000;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (built_s < table[i].before_s) {
      at_most(c, table[i].to);
      return;
    }
}

/* Reads the frames of a module's call, whose function has another name from version to version. */
static void read_frames(context *c, scan_text text) {
  scan_text line;
  while (scan_next_line(&text, &line)) {
    if (line.end - line.at > 400) line.end = line.at + 400;
    if (!scan_has(line, "modules/module.py\"") && !scan_has(line, "modules\\module.py\"")) continue;
    if (scan_has(line, "in __call__"))
      at_most(c, 105);
    else if (scan_has(line, "in _wrapped_call_impl"))
      at_least(c, 201);
    else if (scan_has(line, "in _call_impl"))
      at_least(c, 106);
  }
}

void context_read_version(context *c, scan_text text, scan_text raw) {
  if (read_stated(c, raw)) return;
  read_python(c, raw);
  read_build(c, raw);
  read_frames(c, text);
}
