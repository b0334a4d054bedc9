/* Cuts a log into segments, each of which is read by itself: at empty lines, at tracebacks, at
 * commands, and where an exception in the handler of another one is a failure of its own. */
#include <ctype.h>
#include <string.h>

#include "advise/message_parts.h"

#define PROMPT_MOST   100        /* characters of a shell's prompt */
#define SEGMENT_BYTES (16 << 10) /* a longer one is cut at a line: a split reads it again */

static bool is_chain(scan_text line) {
  return scan_has(line, MESSAGE_HANDLING) ||
         scan_has(line, "The above exception was the direct cause");
}

static bool is_empty(scan_text line) {
  while (line.at < line.end && isspace((unsigned char)*line.at)) line.at++;
  return line.at == line.end;
}

/* ---- commands ---- */

/* Returns the command after "C:\\Users\\ann>" and "PS C:\\x> ", or NULL. */
static const char *windows_command(scan_text line) {
  const char *drive = scan_find(line, ":\\");
  if (drive == NULL || drive - line.at > PROMPT_MOST) return NULL;
  for (const char *p = drive; p + 1 < line.end && p - line.at < PROMPT_MOST; p++) {
    if (*p == '"' || *p == ',' || *p == '<') return NULL; /* a frame of a traceback */
    if (*p == '>') return p + 1;
  }
  return NULL;
}

/* Returns the command of "$ python train.py", "ann@box:~/x$ python train.py" and "+ python
 * train.py" (of set -x), or NULL if the line shows none. */
static const char *command_of(scan_text line) {
  const char *at = line.at;
  while (at < line.end && *at == '+') at++;
  if (at > line.at && at + 1 < line.end && *at == ' ' &&
      (isalpha((unsigned char)at[1]) || at[1] == '.' || at[1] == '/'))
    return at + 1;
  if (scan_starts(line, "$ ")) return line.at + 2;
  const char *group = "##[group]Run "; /* GitHub Actions */
  if (scan_starts(line, group)) return line.at + strlen(group);
  if (scan_starts(line, "\xe2\x9d\xaf ")) return line.at + 4;
  bool host = false;
  for (const char *p = line.at; p + 1 < line.end && p - line.at < PROMPT_MOST; p++) {
    host = host || *p == '@';
    if (!host || p[1] != ' ') continue;
    if (*p == '$' || *p == '#' || (*p == '%' && p[-1] == ' ')) return p + 2; /* not "45% " */
  }
  return windows_command(line);
}

/* Returns whether a server's line begins another job: what failed in the one before is over. */
static bool begins_job(scan_text line) {
  return scan_starts(line, "got prompt") && line.end - line.at <= (long)strlen("got prompt ");
}

/* Returns whether the line starts a program of the user's, or a job of a server. */
bool message_starts_program(scan_text line) {
  static const char *const shows[] = {
      "dmesg",    "journalctl", "cat",    "tail", "head",  "less",  "grep", "nvidia-smi",
      "rocm-smi", "free",       "top",    "htop", "ps",    "df",    "ls",   "cd",
      "echo",     "export",     "exit",   "seff", "sacct", "set",   "git",  "which",
      "ulimit",   "kubectl",    "squeue", "pwd",  "uname", "docker"};
  const char *at = command_of(line);
  if (begins_job(line)) return true;
  if (at == NULL) return false;
  while (at < line.end && *at == ' ') at++;
  scan_text command = {at, line.end};
  if (scan_starts(command, "sudo ")) command.at += strlen("sudo ");
  if (command.at >= command.end || *command.at == '#') return false;
  for (size_t i = 0; i < sizeof shows / sizeof *shows; i++) {
    size_t length = strlen(shows[i]);
    if (!scan_starts(command, shows[i])) continue;
    if (command.at + length == command.end || command.at[length] == ' ')
      return scan_starts(command, "docker run") || scan_starts(command, "docker compose up");
  }
  return true;
}

/* ---- segments ---- */

/* Skips "[export] ", with which a launcher names the program of each line. */
static scan_text without_tag(scan_text line) {
  const char *at = line.at;
  if (at >= line.end || *at++ != '[') return line;
  while (at < line.end && (scan_is_word(*at) || *at == '-' || *at == '.')) at++;
  bool tag = at - line.at > 1 && at + 1 < line.end && at[0] == ']' && at[1] == ' ';
  return tag ? (scan_text){at + 2, line.end} : line;
}

/* Returns whether another program's output, or another failure, begins with the line. */
static bool is_start(scan_text line) {
  line = without_tag(line);
  return scan_starts(line, "Traceback (most recent call last)") || begins_job(line) ||
         scan_starts(line, "terminate called after throwing") || command_of(line) != NULL;
}

/* Recognizes the last line of a traceback: "RuntimeError: …", "MemoryError"; and the first one of
 * Ray's: "RayTaskError(OutOfMemoryError): …". */
bool message_is_error(scan_text line) {
  static const char word[] = "Error";
  const char *p = line.at;
  while (p < line.end && (scan_is_word(*p) || *p == '.')) p++;
  size_t length = (size_t)(p - line.at), tail = sizeof word - 1;
  if (length < tail || memcmp(p - tail, word, tail) != 0) return false;
  if (p < line.end && *p == '(') {
    while (++p < line.end && scan_is_word(*p)) continue;
    return p + 1 < line.end && *p == ')' && p[1] == ':';
  }
  return p == line.end || *p == ':';
}

/* Returns the start of the frames directly before the end of `t`, or its end if there are none. */
const char *message_frames_before(scan_text t) {
  const char *start = t.end;
  bool code = false; /* a line that is code only if a frame is before it */
  while (t.end > t.at) {
    scan_text line = scan_line(t, t.end - 1);
    bool frame = scan_starts(line, "File \"");
    if (!frame && code) break;
    code = !frame;
    if (frame) start = line.at;
    t.end = line.at;
  }
  return start;
}

/* Returns whether the line reports a shortage of memory by itself. */
static bool is_shortage(scan_text line) {
  message m = message_blank();
  if (message_torch(&m, line, NULL)) return true;
  m = message_blank();
  if (message_serve(&m, line, NULL) || message_device(&m, line, NULL)) return true;
  m = message_blank();
  return message_host_memory(&m, line, true, NULL);
}

/* Returns whether the exception that was raised while another was handled is a failure of its own:
 * a shortage that the handler ran into, not the first error in other words ("raise …"). Reads up to
 * the next such line. */
static bool is_own_failure(scan_text rest) {
  scan_text line, code = {rest.at, rest.at};
  while (scan_next_line(&rest, &line) && !is_chain(line)) {
    if (message_is_error(line))
      return !scan_starts(code, "raise ") && !scan_has(code, " raise ") && is_shortage(line);
    if (!is_empty(line)) code = line;
  }
  return false;
}

/* Removes the next segment from `t`. Returns false at the end. */
bool message_next_segment(scan_text *t, scan_text *segment) {
  const char *start = t->at, *last_error = t->at;
  scan_text line;
  bool gap = false, chained = false, full = false, failed = false;
  if (t->at >= t->end) return false;
  while (t->at < t->end) {
    const char *here = t->at;
    scan_next_line(t, &line);
    if (is_empty(line)) {
      gap = true;
      continue;
    }
    bool chain = is_chain(line);
    if (chain && failed && scan_has(line, MESSAGE_HANDLING) && is_own_failure(*t)) {
      t->at = here;
      break;
    }
    bool error = message_is_error(line); /* a traceback has one */
    bool cut = gap || is_start(line) || (error && failed) || here - start > SEGMENT_BYTES;
    if (full && cut && !chain && !chained) {
      bool headless = error && failed && !gap;
      t->at = headless ? message_frames_before((scan_text){last_error, here}) : here;
      break;
    }
    full = true;
    if (error) last_error = t->at;
    failed = failed || error;
    gap = false;
    chained = chain;
  }
  *segment = (scan_text){start, t->at};
  return true;
}

/* Returns the first line of a segment that is not empty. */
scan_text message_first_line(scan_text segment) {
  scan_text line;
  while (scan_next_line(&segment, &line))
    if (!is_empty(line)) return line;
  return segment;
}
