/* Python stack: reads the frames of the calling thread. */
#include "shim/python_stack.h"

#include <stdatomic.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "shim/python.h"
#include "shim/python_layout.h"
#include "shim/shim.h"

typedef python_layout layout;

/* Offsets in a text. Its state is interned:2 kind:3 compact:1 ascii:1, from the lowest bit. */
enum { TEXT_LENGTH = 16, TEXT_STATE = 32 };

static const layout *_Atomic known; /* NULL until checked */
static void *(*thread_here)(void);  /* set before `known` */
static int (*line_of)(const void *code, int at);

static const char *pointer(const char *base, size_t offset) {
  const char *p;
  memcpy(&p, base + offset, sizeof p);
  return p;
}

static int number(const char *base, size_t offset) {
  int n;
  memcpy(&n, base + offset, sizeof n);
  return n;
}

static const char *thread_frame(const layout *l, const char *thread) {
  const char *frame = pointer(thread, l->thread_frame);
  return l->inner_frame < 0 || frame == NULL ? frame : pointer(frame, (size_t)l->inner_frame);
}

static python_place place_of(const layout *l, const char *frame) {
  ASSERT(l != NULL && frame != NULL);
  python_place p = {pointer(frame, l->code), 0};
  if (l->instructions == 0)
    p.at = number(frame, l->at) * l->unit;
  else
    p.at = (int)(pointer(frame, l->at) - (p.code + l->instructions));
  return p;
}

/* Mixes two values; only one of the two multiplications depends on the previous key. */
static uint64_t mix(uint64_t key, uint64_t place, uint64_t code) {
  key = (key ^ place ^ code * UINT64_C(0xd6e8feb86659fd93)) * UINT64_C(0x9e3779b97f4a7c15);
  return key ^ key >> 29;
}

/* Returns the length of a Python text and its last bytes, mixed. Returns 0 if there is none. */
static uint64_t text_key(const layout *l, const char *object) {
  if (object == NULL) return 0;
  unsigned state = (unsigned)number(object, TEXT_STATE), kind = state >> 2 & 7;
  size_t length = (size_t)(uintptr_t)pointer(object, TEXT_LENGTH);
  size_t bytes = (state >> 5 & 1) != 0 ? length * kind : 0;
  const char *from = object + ((state >> 6 & 1) != 0 ? l->ascii : l->wide);
  uint64_t key = mix(1, length, 0), word = 0;
  for (size_t at = bytes > 16 ? bytes - 16 : 0; at < bytes; at += sizeof word) {
    size_t rest = bytes - at;
    word = 0;
    memcpy(&word, from + at, rest < sizeof word ? rest : sizeof word);
    key = mix(key, word, at);
  }
  return key;
}

static void walk(const layout *of, const char *frame, python_stack *s) {
  const layout own = *of, *l = &own; /* what is written to `s` cannot be it */
  uint64_t key = 1;
  size_t count = 0;
  for (; frame != NULL && count < PYTHON_STACK_MAX; frame = pointer(frame, l->back)) {
    if (l->owner != 0 && frame[l->owner] >= PYTHON_OWNER_C) continue;
    python_place p = place_of(l, frame);
    if (p.code == NULL) continue;
    s->places[count++] = p;
    /* Another code object may have been allocated at the same address: include its name, file and
     * line. The code of a notebook's cell ends with the cell: the next one's has the same name and
     * line, and its file may be a new text at the same address. */
    uint32_t line = (uint32_t)number(p.code, l->line);
    const char *file = pointer(p.code, l->file);
    key = mix(key, (uint64_t)(uintptr_t)p.code + (uint64_t)(uint32_t)p.at,
              (uint64_t)(uintptr_t)pointer(p.code, l->name) + 2 * (uint64_t)(uintptr_t)file + line);
    if (line <= 1) key = mix(key, text_key(l, file), 0);
  }
  s->count = count;
  s->key = key != 0 ? key : 1;
}

bool python_stack_walk(python_stack *s) {
  ASSERT(s != NULL);
  const layout *l = atomic_load_explicit(&known, memory_order_acquire);
  if (l == NULL || !python_here()) return false;
  const char *thread = thread_here();
  const char *frame = thread != NULL ? thread_frame(l, thread) : NULL;
  if (frame == NULL) return false;
  walk(l, frame, s);
  return s->count > 0;
}

/* ---- texts ---- */

typedef struct writer {
  char *to, *end;
} writer;

static void put(writer *w, uint32_t character) {
  char bytes[4];
  size_t count = utf8_put(bytes, character);
  if ((size_t)(w->end - w->to) <= count) return;
  memcpy(w->to, bytes, count);
  w->to += count;
}

/* Writes a Python text, which never changes, as UTF-8 with a zero byte. */
static const char *text_of(const layout *l, const char *object, writer *w) {
  const char *begin = w->to;
  if (object == NULL || w->end - w->to < 2) return "";
  unsigned state = (unsigned)number(object, TEXT_STATE), kind = state >> 2 & 7;
  bool compact = state >> 5 & 1, ascii = state >> 6 & 1;
  size_t length = (size_t)(uintptr_t)pointer(object, TEXT_LENGTH);
  const char *from = object + (ascii ? l->ascii : l->wide);
  if (!compact) length = 0; /* code objects have no such names */
  if (length > 512) length = 512;
  if (ascii && length < (size_t)(w->end - w->to)) { /* nearly always: these are the bytes */
    memcpy(w->to, from, length);
    w->to += length;
    length = 0;
  }
  for (size_t i = 0; i < length; i++) {
    uint32_t c = 0;
    memcpy(&c, from + i * kind, kind);
    put(w, c);
  }
  *w->to++ = '\0';
  return begin;
}

size_t python_stack_frames(const python_stack *s, stow_trace_frame frames[PYTHON_STACK_MAX],
                           char text[PYTHON_STACK_TEXT]) {
  const layout *l = atomic_load_explicit(&known, memory_order_acquire);
  writer w = {text, text + PYTHON_STACK_TEXT};
  if (l == NULL) return 0;
  for (size_t i = 0; i < s->count; i++) {
    const python_place *p = &s->places[i];
    int line = line_of(p->code, p->at);
    frames[i] = (stow_trace_frame){.name = text_of(l, pointer(p->code, l->name), &w),
                                   .file = text_of(l, pointer(p->code, l->file), &w),
                                   .line = line > 0 ? (uint32_t)line : 0};
  }
  return s->count;
}

const char *python_stack_file(const python_place *p, char text[PYTHON_STACK_FILE]) {
  const layout *l = atomic_load_explicit(&known, memory_order_acquire);
  writer w = {text, text + PYTHON_STACK_FILE};
  return l != NULL ? text_of(l, pointer(p->code, l->file), &w) : NULL;
}

/* ---- checking ---- */

static void *symbol(const char *name) {
  return python_symbol(name);
}

static bool same_text(const layout *l, const char *object, const char *expected) {
  char text[1024];
  writer w = {text, text + sizeof text};
  return expected != NULL && strcmp(text_of(l, object, &w), expected) == 0;
}

/* Texts of each width, made for this. */
static bool texts_agree(const layout *l) {
  static const char *const TEXTS[] = {"train.py", "caf\xc3\xa9.py", "\xe5\x88\x97\xe8\xbb\x8a.py",
                                      "\xf0\x9f\x9a\x86.py"};
  char *(*make)(const char *) = (char *(*)(const char *))(uintptr_t)symbol("PyUnicode_FromString");
  void (*release)(char *) = (void (*)(char *))(uintptr_t)symbol("Py_DecRef");
  bool agree = make != NULL && release != NULL;
  for (size_t i = 0; agree && i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
    char *object = make(TEXTS[i]);
    agree = object != NULL && same_text(l, object, TEXTS[i]);
    if (object != NULL) release(object);
  }
  return agree;
}

/* Checks the frame of the Python function that called us, its code and its line. */
static bool frame_agrees(const layout *l, const char *thread) {
  const char *(*get_frame)(void) = (const char *(*)(void))(uintptr_t)symbol("PyEval_GetFrame");
  int (*get_line)(const char *) = (int (*)(const char *))(uintptr_t)symbol("PyFrame_GetLineNumber");
  const char *object = get_frame != NULL ? get_frame() : NULL;
  if (object == NULL || get_line == NULL) return false;
  const char *frame = l->object_frame != 0 ? pointer(object, l->object_frame) : object;
  if (frame == NULL || thread_frame(l, thread) != frame) return false;
  python_place p = place_of(l, frame);
  /* Since 3.9. Older versions no longer change, so their offsets are trusted. */
  char *(*get_code)(const char *) = (char *(*)(const char *))(uintptr_t)symbol("PyFrame_GetCode");
  void (*release)(char *) = (void (*)(char *))(uintptr_t)symbol("Py_DecRef");
  if (get_code != NULL) {
    char *code = get_code(object);
    release(code);
    if (code != p.code) return false;
  }
  return line_of(p.code, p.at) == get_line(object) &&
         same_text(l, pointer(p.code, l->file), "<stowage inside.py>");
}

bool python_stack_check(void) {
  const layout *l = python_layout_here();
  thread_here = (void *(*)(void))(uintptr_t)symbol("PyGILState_GetThisThreadState");
  line_of = (int (*)(const void *, int))(uintptr_t)symbol("PyCode_Addr2Line");
  const char *thread = thread_here != NULL ? thread_here() : NULL;
  bool agree =
      l != NULL && line_of != NULL && thread != NULL && texts_agree(l) && frame_agrees(l, thread);
  shim_log("python: frames %s", agree ? "known" : "not known");
  if (agree) atomic_store_explicit(&known, l, memory_order_release);
  return agree;
}
