/* Peek: reads frames, code objects and tables of lines through /proc/self/mem. */
#include "shim/host/peek.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "shim/python.h"
#include "shim/python_layout.h"
#include "shim/shim.h"

#define TABLE_MAX   ((size_t)64 << 10) /* bytes of a table of lines that are read */
#define STEPS_MAX   (8 * PEEK_FRAMES_MAX)
#define THREADS_MAX 65536
#define TEXT_LENGTH 16 /* in a text and in bytes: offset of the length … */
#define TEXT_STATE  32 /* … in a text: of its kind … */
#define BYTES_BEGIN 32 /* … in bytes: of the first one */
#define OBJECT_TYPE 8  /* offset in an object, and in a thread's state of the … */
#define THREAD_NEXT 8  /* … next older thread … */
#define THREAD_OF   16 /* … and the interpreter */

static _Atomic bool differs;            /* from what the interpreter reports */
static const char *_Atomic main_thread; /* its PyThreadState; NULL until set up */

/* ---- reading ---- */

static bool fetch(int fd, void *to, const char *from, size_t bytes) {
  ASSERT(fd >= 0);
  ASSERT(to != NULL);
  return from != NULL && pread(fd, to, bytes, (off_t)(uintptr_t)from) == (ssize_t)bytes;
}

/* Appends a character as UTF-8. Returns false if it does not fit. */
static bool put(char *out, size_t size, size_t *used, uint32_t c) {
  ASSERT(*used < size);
  char bytes[4];
  size_t count = utf8_put(bytes, c);
  if (*used + count >= size) return false;
  memcpy(out + *used, bytes, count);
  *used += count;
  return true;
}

/* Reads a pointer at `from`, to an object of the type with that symbol. Frames may be read before
 * anything was compared with the interpreter, so the types show that the layout is right. */
static bool fetch_object(int fd, const char **to, const char *from, const char *type) {
  const char *found;
  return fetch(fd, to, from, sizeof *to) && fetch(fd, &found, *to + OBJECT_TYPE, sizeof found) &&
         found == python_symbol(type);
}

/* Copies a Python text. If it is too long, its end is kept: that of a path names the file. */
static bool read_text(int fd, const python_layout *l, const char *object, char *out, size_t size) {
  ASSERT(size > 1);
  char head[TEXT_STATE + 4], raw[4 * 512];
  size_t length, used = 0;
  uint32_t state;
  if (!fetch(fd, head, object, sizeof head)) return false;
  memcpy(&length, head + TEXT_LENGTH, sizeof length);
  memcpy(&state, head + TEXT_STATE, sizeof state);
  unsigned kind = state >> 2 & 7;
  bool compact = state >> 5 & 1, ascii = state >> 6 & 1;
  if (!compact || (kind != 1 && kind != 2 && kind != 4) || length > 4096) return false;
  size_t room = ascii ? size - 1 : (size - 1) / 4;
  if (room > 512) room = 512;
  size_t skip = length > room ? length - room : 0;
  const char *from = object + (ascii ? l->ascii : l->wide) + skip * kind;
  length -= skip;
  if (length > 0 && !fetch(fd, raw, from, length * kind)) return false;
  for (size_t i = 0; i < length; i++) {
    uint32_t c = 0;
    memcpy(&c, raw + i * kind, kind);
    if (c == 0 || c > 0x10ffff || !put(out, size, &used, c < ' ' ? '?' : c)) break;
  }
  out[used] = '\0';
  return used > 0;
}

/* ---- lines ---- */

/* One number of a table since 3.11: six bits in a byte, the lowest first; bit 6: more follow. */
static int varint(const uint8_t *t, size_t size, size_t *at) {
  unsigned value = 0, shift = 0, byte;
  do {
    if (*at >= size || shift > 24) return 0;
    byte = t[(*at)++];
    value |= (byte & 63) << shift;
    shift += 6;
  } while (byte & 64);
  return (int)value;
}

/* PEP 626 and Objects/locations.md of 3.11: entries that start with a byte above 127. */
static int line_of_311(const uint8_t *t, size_t size, int line, int wanted) {
  int begin = 0;
  for (size_t at = 0; at < size;) {
    unsigned head = t[at++], code = head >> 3 & 15;
    int units = (int)(head & 7) + 1;
    if ((head & 128) == 0) return 0;
    if (code == 13 || code == 14) {
      unsigned by = (unsigned)varint(t, size, &at);
      line += by & 1 ? -(int)(by >> 1) : (int)(by >> 1);
    } else if (code >= 10 && code <= 12)
      line += (int)code - 10;
    if (wanted >= begin && wanted < begin + 2 * units) return code == 15 ? 0 : line;
    begin += 2 * units;
    while (at < size && (t[at] & 128) == 0) at++;
  }
  return 0;
}

/* 3.10: pairs of increments, of the offset and of the line; -128: no line. */
static int line_of_310(const uint8_t *t, size_t size, int line, int wanted) {
  int begin = 0;
  for (size_t at = 0; at + 1 < size; at += 2) {
    int by = (int8_t)t[at + 1], end = begin + t[at];
    if (by != -128) line += by;
    if (wanted >= begin && wanted < end) return by == -128 ? 0 : line;
    begin = end;
  }
  return 0;
}

/* Before 3.10: pairs of increments, of the offset and of the line from there on. */
static int line_of_308(const uint8_t *t, size_t size, int line, int wanted) {
  int begin = 0;
  for (size_t at = 0; at + 1 < size; at += 2) {
    begin += t[at];
    if (begin > wanted) break;
    line += (int8_t)t[at + 1];
  }
  return line;
}

static int read_line(int fd, const python_layout *l, const char *code, int at) {
  ASSERT(l != NULL);
  static uint8_t table[TABLE_MAX]; /* one caller at a time */
  const char *object;
  size_t size;
  int first;
  if (at < 0 || !fetch(fd, &first, code + l->line, sizeof first) ||
      !fetch_object(fd, &object, code + l->table, "PyBytes_Type") ||
      !fetch(fd, &size, object + TEXT_LENGTH, sizeof size))
    return 0;
  if (size > sizeof table) size = sizeof table;
  if (!fetch(fd, table, object + BYTES_BEGIN, size)) return 0;
  int line = l->version >= 311   ? line_of_311(table, size, first, at)
             : l->version == 310 ? line_of_310(table, size, first, at)
                                 : line_of_308(table, size, first, at);
  return line > 0 ? line : 0;
}

/* ---- frames ---- */

static bool read_frame(int fd, const python_layout *l, const char *frame, peek_frame *to) {
  ASSERT(to != NULL);
  const char *code, *text, *position;
  int at;
  if (!fetch_object(fd, &code, frame + l->code, "PyCode_Type")) return false;
  if (l->instructions == 0) {
    if (!fetch(fd, &at, frame + l->at, sizeof at)) return false;
    at *= l->unit;
  } else {
    if (!fetch(fd, &position, frame + l->at, sizeof position)) return false;
    at = (int)(position - (code + l->instructions));
  }
  to->name[0] = '\0';
  if (!fetch_object(fd, &text, code + l->file, "PyUnicode_Type") ||
      !read_text(fd, l, text, to->file, sizeof to->file))
    return false;
  if (fetch_object(fd, &text, code + l->name, "PyUnicode_Type"))
    read_text(fd, l, text, to->name, sizeof to->name);
  to->line = (uint32_t)read_line(fd, l, code, at);
  return true;
}

static size_t read_thread(const python_layout *l, const char *thread, peek_frame *frames) {
  ASSERT(l != NULL && frames != NULL);
  size_t count = 0;
  const char *frame = NULL;
  int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  memset(frames, 0, PEEK_FRAMES_MAX * sizeof *frames);
  bool good = fetch(fd, &frame, thread + l->thread_frame, sizeof frame);
  if (good && frame != NULL && l->inner_frame >= 0)
    good = fetch(fd, &frame, frame + l->inner_frame, sizeof frame);
  for (size_t step = 0; good && frame != NULL && count < PEEK_FRAMES_MAX; step++) {
    uint8_t owner = 0;
    good = step < STEPS_MAX && (l->owner == 0 || fetch(fd, &owner, frame + l->owner, 1));
    if (good && owner < PYTHON_OWNER_C && read_frame(fd, l, frame, &frames[count])) count++;
    good = good && fetch(fd, &frame, frame + l->back, sizeof frame);
  }
  close(fd);
  return good || count == PEEK_FRAMES_MAX ? count : 0;
}

/* ---- threads ---- */

/* Returns the first thread of the first interpreter, with or without the lock. New ones come before
 * it in the list. */
static const char *first_thread(void) {
  void *(*get)(void) = (void *(*)(void))(uintptr_t)python_symbol("PyInterpreterState_Main");
  char *(*head)(void *) =
      (char *(*)(void *))(uintptr_t)python_symbol("PyInterpreterState_ThreadHead");
  int fd = get != NULL && head != NULL ? open("/proc/self/mem", O_RDONLY | O_CLOEXEC) : -1;
  const char *thread = fd >= 0 ? head(get()) : NULL, *after = thread, *of;
  for (size_t step = 0; after != NULL; step++) {
    thread = after;
    if (step == THREADS_MAX || !fetch(fd, &of, thread + THREAD_OF, sizeof of) || of != get() ||
        !fetch(fd, &after, thread + THREAD_NEXT, sizeof after))
      thread = after = NULL;
  }
  if (fd >= 0) close(fd);
  return thread;
}

static const char *this_thread(void) {
  char *(*get)(void) = (char *(*)(void))(uintptr_t)python_symbol("PyGILState_GetThisThreadState");
  return get != NULL ? get() : NULL;
}

bool peek_check(const char *file) {
  static peek_frame own[PEEK_FRAMES_MAX];
  const python_layout *l = python_layout_here();
  char *(*get_frame)(void) = (char *(*)(void))(uintptr_t)python_symbol("PyEval_GetFrame");
  int (*get_line)(char *) = (int (*)(char *))(uintptr_t)python_symbol("PyFrame_GetLineNumber");
  const char *here = this_thread();
  char *frame = get_frame != NULL ? get_frame() : NULL;
  bool agree = l != NULL && here != NULL && frame != NULL && get_line != NULL &&
               read_thread(l, here, own) == 2 && own[0].line == (uint32_t)get_line(frame) &&
               own[1].line > 0 && strcmp(own[0].file, file) == 0 && strcmp(own[1].file, file) == 0;
  shim_log("peek: frames %s", agree ? "known" : "not known");
  if (agree) atomic_store(&main_thread, first_thread());
  atomic_store(&differs, !agree);
  return agree;
}

void peek_forked(void) {
  atomic_store(&main_thread, this_thread());
}

size_t peek_main(peek_frame frames[PEEK_FRAMES_MAX]) {
  static peek_frame again[PEEK_FRAMES_MAX]; /* one caller at a time */
  const python_layout *l = python_layout_here();
  const char *thread = atomic_load(&main_thread);
  if (thread == NULL) thread = first_thread();
  if (l == NULL || thread == NULL || atomic_load(&differs)) return 0;
  size_t count = read_thread(l, thread, frames);
  if (count == 0 || read_thread(l, thread, again) != count ||
      memcmp(frames, again, count * sizeof *frames) != 0)
    return 0;
  return count;
}
