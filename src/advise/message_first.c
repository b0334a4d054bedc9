/* Finds the first of several failures of different libraries, so that its numbers and circumstances
 * do not mix with those of the others.
 *
 * A log is cut into segments: at empty lines, at tracebacks and at shell prompts. Each segment is
 * read by itself. Segments of one library, and those without an error between them, form a block.
 * An exception that was raised while another was handled belongs to it: no cut is made there. A
 * traceback that ends with a bare status ("CUDA error: out of memory", "MemoryError") is a failure
 * of its own if another program's traceback follows. A text with one block is read as a whole. */
#include <ctype.h>
#include <string.h>

#include "advise/message_parts.h"

#define SEGMENTS_MOST 4096 /* the rest of a longer text is one segment */
_Static_assert(MESSAGE_KIND_COUNT + HOST_KIND_COUNT <= 64, "kinds are bits of one number");
#define SEGMENT_BYTES (16 << 10) /* a longer one is cut at a line: a split reads it again */
#define PROMPT_MOST   100        /* characters of a shell's prompt */

static bool is_chain(scan_text line) {
  return scan_has(line, "During handling of the above exception") ||
         scan_has(line, "The above exception was the direct cause");
}

static bool is_empty(scan_text line) {
  while (line.at < line.end && isspace((unsigned char)*line.at)) line.at++;
  return line.at == line.end;
}

/* Recognizes "$ python train.py" and "ann@box:~/x$ python train.py". */
static bool is_prompt(scan_text line) {
  if (scan_starts(line, "$ ")) return true;
  bool host = false;
  for (const char *p = line.at; p + 1 < line.end && p - line.at < PROMPT_MOST; p++) {
    host = host || *p == '@';
    if (host && (*p == '$' || *p == '#') && p[1] == ' ') return true;
  }
  return false;
}

/* Returns whether another program's output, or another failure, begins with the line. */
static bool is_start(scan_text line) {
  return scan_starts(line, "Traceback (most recent call last)") ||
         scan_starts(line, "terminate called after throwing") || is_prompt(line);
}

/* Recognizes the last line of a traceback: "RuntimeError: …", "MemoryError". */
static bool is_error(scan_text line) {
  static const char word[] = "Error";
  const char *p = line.at;
  while (p < line.end && (scan_is_word(*p) || *p == '.')) p++;
  size_t length = (size_t)(p - line.at), tail = sizeof word - 1;
  return length >= tail && memcmp(p - tail, word, tail) == 0 && (p == line.end || *p == ':');
}

/* Removes the next segment from `t`. Returns false at the end. */
static bool next_segment(scan_text *t, scan_text *segment) {
  const char *start = t->at;
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
    bool error = is_error(line); /* a traceback has one */
    bool cut = gap || is_start(line) || (error && failed) || here - start > SEGMENT_BYTES;
    if (full && cut && !chain && !chained) {
      t->at = here;
      break;
    }
    full = true;
    failed = failed || error;
    gap = false;
    chained = chain;
  }
  *segment = (scan_text){start, t->at};
  return true;
}

/* Returns whether one failure may be reported by both. `near`: in one segment, where a server's
 * words follow those of its framework. */
static bool related(message_kind a, message_kind b, bool near) {
  static const struct {
    uint64_t kinds;
    bool near;
  } families[] = {
      {UINT64_C(1) << MESSAGE_TORCH | UINT64_C(1) << MESSAGE_TGI | UINT64_C(1) << MESSAGE_TENSORRT,
       false},
      {UINT64_C(1) << MESSAGE_XLA | UINT64_C(1) << MESSAGE_TENSORFLOW, false},
      {UINT64_C(1) << MESSAGE_RMM | UINT64_C(1) << MESSAGE_NUMBA | UINT64_C(1) << MESSAGE_CUPY,
       false},
      {UINT64_C(1) << MESSAGE_ONNX | UINT64_C(1) << MESSAGE_TENSORRT |
           UINT64_C(1) << MESSAGE_DIRECTML,
       false},
      {UINT64_C(1) << MESSAGE_TORCH | UINT64_C(1) << MESSAGE_TGI | UINT64_C(1) << MESSAGE_TENSORRT |
           UINT64_C(1) << MESSAGE_VLLM | UINT64_C(1) << MESSAGE_SGLANG |
           UINT64_C(1) << MESSAGE_DISPATCH,
       true}};
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if ((near || !families[i].near) && (families[i].kinds >> a & 1) != 0 &&
        (families[i].kinds >> b & 1) != 0)
      return true;
  return a == b;
}

/* TensorFlow's logs have lines of its allocator that are no failure. */
static bool is_exhausted(scan_text s) {
  static const char *const signs[] = {"RESOURCE_EXHAUSTED", "esource exhausted",
                                      "ResourceExhausted", "OOM when", "ran out of memory"};
  return scan_has_any(s, signs, sizeof signs / sizeof *signs);
}

/* Returns the segment up to the line with the first sign, if it has signs of several libraries. */
static scan_text to_first_server(scan_text s) {
  scan_text rest = s, line;
  if (message_serve_kinds(s) < 2) return s;
  while (scan_next_line(&rest, &line))
    if (message_serve_kinds(line) > 0) return (scan_text){s.at, line.end};
  return s;
}

/* Returns the library that reports a failure in the segment, and where; MESSAGE_NONE if none does.
 * A status of the driver may belong to any library's failure, so it does not count. *asked
 * receives what PyTorch requested. */
static message_kind library_of(scan_text s, const char **where, uint64_t *asked) {
  message m = message_blank();
  message_kind kind = MESSAGE_NONE;
  const char *at = NULL;
  context_read(&m.context, s, s);
  if (message_torch(&m, s, where)) {
    message_serve_on_torch(&m);
    kind = m.kind;
    *asked = m.asked_bytes;
  }
  m = message_blank();
  if (is_exhausted(s) && message_xla(&m, s, &at)) {
    message_kind xla = m.kind == MESSAGE_HOST ? MESSAGE_XLA : m.kind;
    if (kind == MESSAGE_NONE || at < *where) {
      kind = xla;
      *where = at;
    }
  }
  m = message_blank();
  if (message_serve(&m, to_first_server(s), &at)) {
    message_kind serve = m.kind != MESSAGE_HOST ? m.kind
                         : m.host == HOST_MODEL ? MESSAGE_LLAMA
                                                : MESSAGE_ONNX;
    if (kind == MESSAGE_NONE || (at < *where && !related(kind, serve, true))) {
      kind = serve;
      *where = at;
    }
  }
  return kind;
}

/* Does the same, also for host memory. A request that failed on the host is a kind by its words. */
static message_kind kind_of(scan_text s, const char **where, uint64_t *asked) {
  const char *at = NULL;
  *asked = MESSAGE_UNKNOWN;
  message_kind kind = library_of(s, where, asked);
  message m = message_blank();
  if (!message_host_memory(&m, s, true, &at)) return kind;
  scan_text line = scan_line(s, at);
  bool word = message_only_word(m.host);
  /* A bare MemoryError may be a device's, and a person's own words may name one. */
  bool own = m.asked_bytes != MESSAGE_UNKNOWN ||
             scan_has(line, "terminate called after throwing") || scan_starts(line, "what():");
  if (kind != MESSAGE_NONE ? !word || !own || line.end > *where : word && !own) return kind;
  *where = at;
  return word ? (message_kind)(MESSAGE_KIND_COUNT + m.host) : MESSAGE_HOST;
}

/* ---- errors without numbers ---- */

/* Returns the end of a traceback whose last line, in the segment, is a status without numbers; NULL
 * if there is none. *frame receives the line of its outermost frame; empty if it has none. *open:
 * the traceback began in an earlier segment, as IPython's does, which has empty lines. */
static const char *bare_ending(scan_text s, scan_text *frame, bool *open) {
  static const char *const statuses[] = {"CUDA error: out of memory", "cuda runtime error (2)",
                                         "HIP error: out of memory", "MemoryError",
                                         "std::bad_alloc"};
  scan_text rest = s, line;
  if (!*open) *frame = (scan_text){s.at, s.at};
  while (scan_next_line(&rest, &line)) {
    bool begins = scan_has(line, "Traceback (most recent call last)") &&
                  !scan_has(line, "C++ Traceback"); /* Paddle's, of the same error */
    if (begins)
      *frame = (scan_text){line.end, line.end};
    else if (*open && frame->at == frame->end)
      *frame = line;
    *open = *open || begins;
    if (!*open || begins || !is_error(line)) continue;
    *open = false;
    if (line.end[-1] == ':' && rest.at < rest.end) return NULL; /* the message follows */
    return scan_has_any(line, statuses, sizeof statuses / sizeof *statuses) ? rest.at : NULL;
  }
  return NULL;
}

/* Returns whether two tracebacks are of different programs: the ranks of one program have the same
 * outermost frame. */
static bool is_elsewhere(scan_text a, scan_text b) {
  size_t size = (size_t)(a.end - a.at);
  return size > 0 && (size != (size_t)(b.end - b.at) || memcmp(a.at, b.at, size) != 0);
}

/* Returns whether an empty line is directly before `at`. */
static bool follows_gap(const char *start, const char *at) {
  return at - start < 2 || at[-2] == '\n';
}

/* Ends the segment before the first line of an unrelated library's failure, for logs without empty
 * lines. */
static void end_before_other(scan_text *t, scan_text *segment, message_kind kind,
                             const char *where) {
  const char *at = NULL;
  uint64_t asked;
  scan_text rest = {scan_line(*segment, where).end, segment->end};
  if (rest.at < rest.end) rest.at++; /* the line's end: the next library begins on another line */
  message_kind other = library_of(rest, &at, &asked);
  if (other == MESSAGE_NONE || related(kind, other, true)) return;
  segment->end = t->at = scan_line(*segment, at).at;
}

/* Returns whether both are known and differ by more than rounding. */
static bool differ(uint64_t a, uint64_t b) {
  return a != MESSAGE_UNKNOWN && b != MESSAGE_UNKNOWN && (a < b ? b - a > b / 12 : a - b > a / 12);
}

bool message_next_block(scan_text *t, scan_text *block, scan_text *own) {
  const char *start = t->at, *end = t->at, *own_end = NULL, *where = NULL;
  uint64_t first_asked = MESSAGE_UNKNOWN, asked;
  message_kind kind = MESSAGE_NONE; /* of a library; bare: without numbers */
  scan_text segment, frame = {t->at, t->at}, first_frame = frame;
  bool other = false, bare = false, open = false;
  for (int i = 0; i < SEGMENTS_MOST && !other && next_segment(t, &segment); i++) {
    message_kind now = kind_of(segment, &where, &asked);
    const char *ends = bare_ending(segment, &frame, &open);
    if (ends != NULL && now != MESSAGE_NONE && where >= ends) { /* another program's output */
      segment.end = t->at = ends;
      now = MESSAGE_NONE;
    }
    bool ending = ends != NULL && now == MESSAGE_NONE;
    other = is_elsewhere(first_frame, frame) && (bare ? ending || now != MESSAGE_NONE : ending);
    if (other) {
      t->at = segment.at;
      break;
    }
    if (first_frame.at == first_frame.end && kind == MESSAGE_NONE) first_frame = frame;
    if (ending && kind == MESSAGE_NONE) {
      bare = true;
      end = segment.end;
    }
    if (now == MESSAGE_NONE) { /* a traceback printed after its error */
      if (kind != MESSAGE_NONE && !follows_gap(start, segment.at) &&
          scan_starts(segment, "Traceback (most recent call last)"))
        end = segment.end;
      continue;
    }
    other = kind != MESSAGE_NONE && !related(kind, now, false);
    if (other) {
      t->at = segment.at;
      break;
    }
    end_before_other(t, &segment, now, where);
    if (kind == MESSAGE_NONE) kind = now;
    bare = false; /* it belongs to this failure */
    if (own_end == NULL && differ(first_asked, asked)) own_end = end;
    if (first_asked == MESSAGE_UNKNOWN) first_asked = asked;
    end = segment.end;
  }
  if (!other) end = t->at = t->end;
  *block = (scan_text){start, end};
  *own = (scan_text){start, own_end != NULL ? own_end : end};
  return kind != MESSAGE_NONE || bare;
}

/* Returns how many tracebacks the text has, up to two. */
static uint32_t tracebacks(scan_text t) {
  static const char words[] = "Traceback (most recent call last)";
  const char *first = scan_find(t, words);
  return first == NULL ? 0 : scan_has(scan_from(t, first), words) ? 2 : 1;
}

bool message_is_mixed(scan_text t) {
  message m = message_blank();
  uint32_t found = message_torch(&m, t, NULL) ? m.failures : 0;
  m = message_blank();
  found += is_exhausted(t) && message_xla(&m, t, NULL);
  m = message_blank();
  if (message_host_memory(&m, t, true, NULL))
    found += scan_has(t, "terminate called after throwing") ? 2 : 1;
  return found + message_serve_kinds(t) + tracebacks(t) > 1;
}
