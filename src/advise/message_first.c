/* Finds the first of several failures, so that its numbers and circumstances do not mix with those
 * of the others.
 *
 * A log is cut into segments: at empty lines, at tracebacks and at commands. Each segment is read
 * by itself. Segments of one library, and those without an error between them, form a block. A text
 * with one block is read as a whole. What else begins a block:
 *
 *   - A failure after a command that started another program, even of the same library. A command
 *     that only shows logs ("$ dmesg") starts none: it belongs to the failure before it.
 *   - A kill after such a command, or of a command that the first failure does not name. Without
 *     that a kill is a consequence: launchers kill the other ranks after a failure.
 *   - A failure in the handler of another exception. A handler that only raises the error again, in
 *     its own words, has the same failure.
 *   - A traceback of another program, if one of the two ends with a bare status ("MemoryError",
 *     "CUDA error: out of memory"). */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "advise/language.h"
#include "advise/message_parts.h"

#define SEGMENTS_MOST 4096 /* the rest of a longer text is one segment */
#define EARLIER_MOST  8    /* failures of the host before the one that the table names first */

/* Kinds that only this file has: a language's own words for host memory. A program has one
 * language, so two of them are two failures. */
enum {
  KIND_R = MESSAGE_KIND_COUNT + HOST_KIND_COUNT,
  KIND_MATLAB,
  KIND_JULIA,
  KIND_GO,
  KIND_JAX, /* in these libraries' own words; MESSAGE_XLA may be either's */
  KIND_TF,
  KIND_COUNT
};
_Static_assert(KIND_COUNT <= 64, "kinds are bits of one number");

/* Returns whether one failure may be reported by both. `near`: in one segment, where a server's
 * words follow those of its framework. */
static bool related(message_kind a, message_kind b, bool near) {
  static const struct {
    uint64_t kinds;
    bool near;
  } families[] = {
      {UINT64_C(1) << MESSAGE_TORCH | UINT64_C(1) << MESSAGE_TGI | UINT64_C(1) << MESSAGE_TENSORRT,
       false},
      {UINT64_C(1) << MESSAGE_XLA | UINT64_C(1) << MESSAGE_TENSORFLOW | UINT64_C(1) << KIND_JAX,
       false},
      {UINT64_C(1) << MESSAGE_XLA | UINT64_C(1) << MESSAGE_TENSORFLOW | UINT64_C(1) << KIND_TF,
       false},
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

/* Returns the kind of an error of JAX or TensorFlow if the segment has a word of one of them alone,
 * `kind` otherwise. */
static message_kind exact_kind(scan_text s, message_kind kind) {
  static const char *const jax[] = {"jaxlib.", "jax.errors.", "jax._src"};
  static const char *const tf[] = {"tensorflow.python", "errors_impl.",
                                   "OOM when allocating tensor"};
  bool is_jax = scan_has_any(s, jax, sizeof jax / sizeof *jax);
  bool is_tf = scan_has_any(s, tf, sizeof tf / sizeof *tf);
  if (is_jax == is_tf) return kind;
  return (message_kind)(is_jax ? KIND_JAX : KIND_TF);
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
    message_kind xla = exact_kind(s, m.kind == MESSAGE_HOST ? MESSAGE_XLA : m.kind);
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

/* Returns the kind of a line about host memory by the language whose words it has, MESSAGE_NONE if
 * it has none of them. */
static message_kind language_of(scan_text line) {
  static const struct {
    const char *words;
    int kind;
  } table[] = {{"cannot allocate vector of size", KIND_R},
               {"vector memory exhausted", KIND_R},
               {"vector memory limit of", KIND_R},
               {"exceeds maximum array size preference", KIND_MATLAB},
               {"Type \"help memory\" for your options", KIND_MATLAB},
               {"OutOfMemoryError()", KIND_JULIA},
               {"runtime: out of memory", KIND_GO},
               {"runtime: cannot allocate memory", KIND_GO}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (scan_has(line, table[i].words)) return (message_kind)table[i].kind;
  return language_r_vector(line, NULL) != SCAN_UNKNOWN ? (message_kind)KIND_R : MESSAGE_NONE;
}

/* A failure of host memory in a segment. */
typedef struct host_failure {
  message_kind kind;
  bool word; /* frameworks of a device use these words for their own errors too … */
  bool own;  /* … but this one is the host's */
  scan_text line;
  const char *at;
} host_failure;

/* Finds the host's failure whose words are first in the table of message_host.c. */
static bool find_host(scan_text s, host_failure *f) {
  message m = message_blank();
  if (!message_host_memory(&m, s, true, &f->at)) return false;
  f->line = scan_line(s, f->at);
  message_kind language = language_of(f->line);
  f->word = message_only_word(m.host);
  /* A bare MemoryError may be a device's, and a person's own words may name one. */
  f->own = m.asked_bytes != MESSAGE_UNKNOWN || language != MESSAGE_NONE ||
           scan_has(f->line, "terminate called after throwing") ||
           scan_starts(f->line, "what():") ||
           (m.host == HOST_COMPILER && message_names_kill(f->line));
  f->kind = language != MESSAGE_NONE ? language
            : f->word                ? (message_kind)(MESSAGE_KIND_COUNT + m.host)
                                     : MESSAGE_HOST;
  return true;
}

/* Finds the first of the host's failures in the segment. */
static bool find_first_host(scan_text s, host_failure *f) {
  host_failure earlier;
  if (!find_host(s, f)) return false;
  scan_text before = {s.at, f->line.at};
  for (int i = 0; i < EARLIER_MOST && find_host(before, &earlier);
       i++, before.end = earlier.line.at)
    if (earlier.word && earlier.own) *f = earlier;
  return true;
}

/* Does the same as library_of, also for host memory. */
static message_kind kind_of(scan_text s, const char **where, uint64_t *asked) {
  host_failure host;
  *asked = MESSAGE_UNKNOWN;
  message_kind kind = library_of(s, where, asked);
  if (!find_first_host(s, &host)) return kind;
  if (kind != MESSAGE_NONE ? !host.word || !host.own || host.line.end > *where
                           : host.word && !host.own)
    return kind;
  *where = host.at;
  return host.kind;
}

/* ---- errors without numbers ---- */

/* Returns whether the line, the last one of a traceback, is a status without numbers. */
static bool is_status(scan_text s, scan_text line) {
  static const char *const statuses[] = {"CUDA error: out of memory",
                                         "cuda runtime error (2)",
                                         "HIP error: out of memory",
                                         "MemoryError",
                                         "std::bad_alloc",
                                         "Allocation on device"};
  if (scan_has_any(line, statuses, sizeof statuses / sizeof *statuses)) return true;
  /* A library's status, unless the lines before it show another reason. */
  message m = message_blank();
  const char *at = NULL;
  return message_device(&m, (scan_text){s.at, line.end}, &at) && at >= line.at &&
         (m.details & MESSAGE_STATUS) != 0;
}

/* Returns the end of a traceback whose last line, in the segment, is a status without numbers; NULL
 * if there is none. *frame receives the line of its outermost frame; empty if it has none. *open:
 * the traceback began in an earlier segment, as IPython's does, which has empty lines. */
static const char *bare_ending(scan_text s, scan_text *frame, bool *open) {
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
    if (!*open || begins || !message_is_error(line)) continue;
    *open = false;
    if (line.end[-1] == ':' && rest.at < rest.end) return NULL; /* the message follows */
    return is_status(s, line) ? rest.at : NULL;
  }
  return NULL;
}

/* Returns whether a line of the segment is an error with such a status. Each error is read with the
 * lines since the one before it: a chain of handlers may have thousands. */
static bool has_status(scan_text s) {
  scan_text rest = s, line;
  while (scan_next_line(&rest, &line)) {
    if (!message_is_error(line)) continue;
    if (is_status(s, line)) return true;
    s.at = line.end;
  }
  return false;
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

/* ---- kills ---- */

/* Returns whether the system ended a process for its memory, or a program with a limit of its own
 * reached it. Other hosts' words may follow a failure as its consequence: a pool of workers that
 * lost one. */
static bool is_ended(scan_text s) {
  message m = message_blank();
  return message_host_memory(&m, s, true, NULL) &&
         (m.host == HOST_JOB || m.host == HOST_KERNEL || m.host == HOST_CONTAINER ||
          m.host == HOST_EVICTED || m.host == HOST_DATABASE || m.host == HOST_GIT);
}

/* Returns whether the host's words in the segment are a consequence of a failure before it: a pool
 * lost a worker, or a worker ended without a sign of memory. */
static bool is_consequence(scan_text s) {
  message m = message_blank();
  return message_host_memory(&m, s, true, NULL) &&
         (m.details & (MESSAGE_EXECUTOR | MESSAGE_NO_SIGN)) != 0;
}

/* Ends the segment before the first line of an unrelated failure, for logs without empty lines.
 * `start`: of the block. */
static void end_before_other(scan_text *t, scan_text *segment, message_kind kind, const char *where,
                             const char *start) {
  const char *at = NULL, *host_at = NULL;
  uint64_t asked;
  scan_text rest = {scan_line(*segment, where).end, segment->end};
  if (rest.at < rest.end) rest.at++; /* the line's end: the next library begins on another line */
  message_kind other = library_of(rest, &at, &asked), host = kind_of(rest, &host_at, &asked);
  if (other == MESSAGE_NONE || related(kind, other, true)) at = NULL;
  bool ended = host != MESSAGE_NONE && host != other && !related(kind, host, true) &&
               (host != MESSAGE_HOST || is_ended(rest));
  if (ended && (at == NULL || host_at < at)) at = host_at;
  const char *kill = message_kill_in(rest);
  bool killed =
      kill != NULL && message_kills_other(scan_line(rest, kill), kill, (scan_text){start, rest.at});
  if (killed && (at == NULL || kill < at)) at = kill;
  if (at == NULL) return;
  segment->end = t->at = message_frames_before((scan_text){rest.at, scan_line(*segment, at).at});
}

/* ---- blocks ---- */

/* What message_next_block knows of the block that it reads. */
typedef struct first_failure {
  message_kind kind; /* of a library, or of the host; MESSAGE_NONE: none yet */
  bool bare;         /* the failure has no numbers */
  bool killed;       /* … and is a kill that may be a launcher's */
  bool exited;       /* … of a container: it ended before any other failure */
  bool started;      /* another program was started after it */
  uint64_t asked;
  scan_text before; /* from the start of the block to the failure */
} first_failure;

static bool has_failure(const first_failure *f) {
  return f->kind != MESSAGE_NONE || f->bare || f->killed;
}

/* Returns whether both are known and differ by more than rounding. */
static bool differ(uint64_t a, uint64_t b) {
  return a != MESSAGE_UNKNOWN && b != MESSAGE_UNKNOWN && (a < b ? b - a > b / 12 : a - b > a / 12);
}

/* Returns whether a failure of kind `now` is another one: after a command or in a handler
 * (`apart`) all are, except one that repeats the first one's numbers. */
static bool is_other(const first_failure *f, message_kind now, uint64_t asked, bool apart) {
  if (!apart) return f->kind != MESSAGE_NONE && !related(f->kind, now, false);
  return has_failure(f) && (f->kind != now || f->asked == MESSAGE_UNKNOWN ||
                            asked == MESSAGE_UNKNOWN || differ(f->asked, asked));
}

/* Returns whether the segment, which has no other failure, has a kill of another program. */
static bool is_other_kill(const first_failure *f, scan_text segment) {
  const char *at = has_failure(f) ? message_kill_in(segment) : NULL;
  return at != NULL && (f->started || message_kills_other(scan_line(segment, at), at, f->before));
}

bool message_next_block(scan_text *t, scan_text *block, scan_text *own) {
  const char *start = t->at, *end = t->at, *own_end = NULL, *where = NULL;
  uint64_t asked;
  first_failure f = {.kind = MESSAGE_NONE, .asked = MESSAGE_UNKNOWN};
  scan_text segment, frame = {t->at, t->at}, first_frame = frame;
  bool other = false, open = false;
  for (int i = 0; i < SEGMENTS_MOST && !other && message_next_segment(t, &segment); i++) {
    scan_text head = message_first_line(segment);
    f.started = f.started || (has_failure(&f) && message_starts_program(head));
    bool apart = f.started || scan_has(head, MESSAGE_HANDLING);
    message_kind now = kind_of(segment, &where, &asked);
    if (now == MESSAGE_HOST && has_failure(&f) && !apart && is_consequence(segment))
      now = MESSAGE_NONE;
    const char *ends = bare_ending(segment, &frame, &open);
    if (ends != NULL && now != MESSAGE_NONE && where >= ends) { /* another program's output */
      segment.end = t->at = ends;
      now = MESSAGE_NONE;
    }
    bool program = f.started || message_starts_program(head);
    if (ends == NULL && now == MESSAGE_NONE && program && has_status(segment)) ends = segment.end;
    bool ending = ends != NULL && now == MESSAGE_NONE, failure = ending || now != MESSAGE_NONE;
    other = ((apart && has_failure(&f)) || is_elsewhere(first_frame, frame)) &&
            (f.bare ? failure : ending);
    bool device = ending || (now != MESSAGE_NONE && now < MESSAGE_HOST);
    other = other || (f.killed && f.kind == MESSAGE_NONE &&
                      ((f.started && failure) || (f.exited && device)));
    other = other || (now != MESSAGE_NONE && is_other(&f, now, asked, apart));
    other = other || (!failure && is_other_kill(&f, segment));
    if (other) {
      t->at = segment.at;
      break;
    }
    if (first_frame.at == first_frame.end && f.kind == MESSAGE_NONE) first_frame = frame;
    if (ending && f.kind == MESSAGE_NONE) {
      f.bare = true;
      f.before = (scan_text){start, ends};
      end = segment.end;
    }
    if (now == MESSAGE_NONE) { /* a traceback printed after its error */
      if (f.kind != MESSAGE_NONE && !follows_gap(start, segment.at) &&
          scan_starts(segment, "Traceback (most recent call last)"))
        end = segment.end;
      if (!has_failure(&f) && message_kill_in(segment) != NULL) {
        f.killed = true;
        f.exited = message_ends_container(segment);
        f.before = (scan_text){start, segment.end};
        end = segment.end;
      }
      continue;
    }
    end_before_other(t, &segment, now, where, start);
    if (f.kind == MESSAGE_NONE) {
      f.kind = now;
      f.before = (scan_text){start, scan_line(segment, where).end};
    }
    f.bare = false; /* it belongs to this failure */
    if (own_end == NULL && differ(f.asked, asked)) own_end = end;
    if (f.asked == MESSAGE_UNKNOWN) f.asked = asked;
    end = segment.end;
  }
  if (!other) end = t->at = t->end;
  *block = (scan_text){start, end};
  *own = (scan_text){start, own_end != NULL ? own_end : end};
  return has_failure(&f);
}

/* Returns how many tracebacks the text has, up to two. */
static uint32_t tracebacks(scan_text t) {
  static const char words[] = "Traceback (most recent call last)";
  const char *first = scan_find(t, words);
  return first == NULL ? 0 : scan_has(scan_from(t, first), words) ? 2 : 1;
}

/* Returns whether a command starts a program after the first line. */
static bool starts_again(scan_text t) {
  scan_text line;
  for (scan_next_line(&t, &line); scan_next_line(&t, &line);)
    if (message_starts_program(line)) return true;
  return false;
}

/* Returns whether two languages report a shortage of host memory, or a compiler and a program do.
 */
static bool has_two_hosts(scan_text t) {
  host_failure first, next;
  return find_first_host(t, &first) && first.word && first.own &&
         find_first_host((scan_text){first.line.end, t.end}, &next) && next.own &&
         next.kind != first.kind;
}

bool message_is_mixed(scan_text t) {
  message m = message_blank();
  uint32_t found = message_torch(&m, t, NULL) ? m.failures : 0;
  m = message_blank();
  found += is_exhausted(t) && message_xla(&m, t, NULL);
  m = message_blank();
  if (message_host_memory(&m, t, true, NULL))
    found += scan_has(t, "terminate called after throwing") ? 2 : 1;
  found += message_serve_kinds(t) + tracebacks(t);
  return found > 1 || (found > 0 && message_kill_in(t) != NULL) || starts_again(t) ||
         has_two_hosts(t);
}
