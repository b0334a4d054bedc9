/* Hints: recognizes texts that are in no table.
 *
 * A line that mentions memory and a failure is an out-of-memory error of some program, and a
 * process that ended with 137 or -9 was killed. Letter case does not matter here. Called last: a
 * library's own words say more. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "advise/message_parts.h"

#define LINE_MOST 2000 /* most characters of one line that are examined */

#define HAS_ANY(t, ...)                                                                            \
  scan_has_any_case(t, (const char *const[]){__VA_ARGS__},                                         \
                    sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* Returns the place of "memory" or "vram" in a line, or NULL. */
static const char *memory_at(scan_text line) {
  for (const char *at = line.at; line.end - at >= 4; at++)
    if (strncasecmp(at, "vram", 4) == 0 ||
        (line.end - at >= 6 && strncasecmp(at, "memory", 6) == 0))
      return at;
  return NULL;
}

/* Returns whether a line has "memory" and a word for failure, or the letters OOM. */
static bool is_shortage(scan_text line) {
  const char *start = NULL;
  if (scan_find_word(line, "OOM", &start) != NULL) return !message_only_warns(line, start);
  const char *memory = memory_at(line);
  if (memory == NULL || message_only_warns(line, memory)) return false;
  bool asked = HAS_ANY(line, "alloc", "reserve", "mmap", "require", "need", "request");
  bool refused =
      HAS_ANY(line, "fail", "unable", "cannot", "can't", "could not", "couldn't", "not enough",
              "insufficient", "exceed", "exhaust", "ran out", "larger than", "smaller than",
              "less than", "greater than", "too large", "too small");
  return HAS_ANY(line, "out of memory", "out of vram", "not enough memory", "insufficient memory",
                 "insuficient memory", "low on memory", "exceed", "memory is full", "memory full",
                 "vram is full") ||
         (asked && refused);
}

static bool names_device(scan_text t) {
  return HAS_ANY(t, "gpu", "cuda", "vram", "device memory", "hip", "rocm", "vulkan", "opencl",
                 "metal", "video memory", "directx", "dxgi", "texture", "gfx", "shader",
                 "framebuffer", "render target");
}

/* Returns whether a number that means "killed" follows a word for a program's end: "exitcode
 * '137'", "exit code (137)", "returned -9". */
static bool ended_by_kill(scan_text t, const char **where) {
  static const char *const numbers[] = {"137", "-9"};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const char *start = NULL;
    for (scan_text rest = t; scan_find_at(rest, numbers[i], &start) != NULL; rest.at = start + 1) {
      const char *after = start + strlen(numbers[i]);
      bool part = (after < t.end && isalnum((unsigned char)*after)) ||
                  (start > t.at && isalnum((unsigned char)start[-1]));
      scan_text before = {start - t.at > 24 ? start - 24 : t.at, start};
      if (part || !HAS_ANY(before, "code", "exit", "status", "returned", "signal")) continue;
      *where = start;
      return true;
    }
  }
  return false;
}

bool message_hint(message *m, scan_text t, bool shortages, const char **where) {
  scan_text rest = t, line;
  m->failures = 1;
  while (scan_next_line(&rest, &line)) {
    if (line.end - line.at > LINE_MOST) line.end = line.at + LINE_MOST;
    if (!is_shortage(line)) continue;
    *where = line.at;
    bool device =
        names_device(line) || (names_device(t) && !HAS_ANY(line, "system memory", "ram", "host"));
    m->kind = device ? MESSAGE_CUDA : MESSAGE_HOST;
    m->host = device ? HOST_NONE : HOST_PYTHON;
    if (device && HAS_ANY(line, "texture", "gfx", "shader", "framebuffer", "render target"))
      m->context.seen |= CONTEXT_BIT(ANY_VENDOR), m->details |= MESSAGE_UNNAMED;
    scan_copy(m->what, sizeof m->what, t, line.at, "\n");
    return true;
  }
  if (shortages || !ended_by_kill(t, where)) return false;
  m->kind = MESSAGE_HOST;
  m->host = HOST_KILLED;
  return true;
}
