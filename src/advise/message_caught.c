/* Caught failures: a training loop that skips the batch, or tries again with a smaller one.
 *
 *   WARNING: ran out of memory with exception: CUDA out of memory. Tried to allocate 1.20 GiB …
 *   skipping batch 119
 *   …
 *   torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 148.00 MiB …
 *
 * The program went on after the first; the last one ended it. message.c reads the text without the
 * caught ones if another failure is left, and counts them. Tries that fail one after the other are
 * one failure: between them nothing worked. */
#include <ctype.h>
#include <string.h>

#include "advise/message_parts.h"

#define LINES_AFTER 3    /* lines after a failure in which the program says that it goes on */
#define LINE_MOST   1000 /* characters of one line that are examined */

static const char *const failures[] = {"out of memory", "OutOfMemory", "RESOURCE_EXHAUSTED",
                                       "OOM when", "OUT_OF_MEMORY"};
static const char *const retries[] = {
    "retrying", "retry with",  "trying again", "try again with", "reducing ",
    "reduced ", "decreasing ", "halving ",     "falling back",   "lowering "};
static const char *const skips[] = {"skipping",        "skipped batch",         "skip batch",
                                    "skip this batch", "attempting to recover", "oom caught",
                                    "caught oom",      "ignoring batch"};

/* Returns where the words begin that say how the program goes on, or NULL. */
static const char *mark_in(scan_text line, bool *retry) {
  const char *mark = scan_last_case(line, retries, sizeof retries / sizeof *retries);
  *retry = mark != NULL;
  return mark != NULL ? mark : scan_last_case(line, skips, sizeof skips / sizeof *skips);
}

static scan_text clipped(scan_text line) {
  if (line.end - line.at > LINE_MOST) line.end = line.at + LINE_MOST;
  return line;
}

static void blank(char *data, scan_text all, scan_text part) {
  for (const char *at = part.at; at < part.end; at++)
    if (*at != '\n') data[at - all.at] = ' ';
}

uint32_t message_blank_caught(char *data, size_t count, const char **end, bool *retried) {
  scan_text all = {data, data + count}, rest = all, line;
  uint32_t caught = 0;
  const char *done = data; /* everything before is blank */
  *end = NULL;
  while (scan_next_line(&rest, &line)) {
    scan_text failed = line, next = line, after = rest;
    if (!scan_has_any(clipped(line), failures, sizeof failures / sizeof *failures)) continue;
    bool retry = false;
    const char *mark = mark_in(clipped(line), &retry);
    for (int i = 0; i < LINES_AFTER && mark == NULL && scan_next_line(&after, &next); i++) {
      /* Another traceback, or a handler of this error, is not a program that goes on. */
      if (scan_has(next, "Traceback") || scan_has(next, "During handling") ||
          message_is_error(next))
        break;
      mark = mark_in(clipped(next), &retry);
    }
    if (mark == NULL) continue;
    caught++;
    *end = next.end;
    *retried = retry;
    rest = (scan_text){next.end < all.end ? next.end + 1 : all.end, all.end};
    /* With a new batch the settings before it no longer count. */
    scan_text part = {retry ? done : message_frames_before((scan_text){done, failed.at}), mark};
    if (next.at != failed.at && !retry) part.end = next.end;
    blank(data, all, part);
    if (retry) done = mark;
    if (next.at != failed.at)
      for (const char *at = next.at; at < mark; at++) data[at - all.at] = ' ';
    scan_text tail = {mark, next.end}; /* "skipping batch 119 (out of memory)" */
    if (scan_has_any(tail, failures, sizeof failures / sizeof *failures)) blank(data, all, tail);
  }
  return caught;
}
