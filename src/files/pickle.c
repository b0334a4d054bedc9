/* Pickle: the machine. One switch over opcodes; containers go to the sink as they fill.
 *
 * The hot opcodes (memo, marks, small integers, short strings, dict and list filling) are obeyed in
 * the loop; the rest in pickle_cold.c. Opcodes are those of Python's pickletools, by number. */
#include "files/pickle_parts.h"

#include <stdlib.h>
#include <string.h>

enum { WORD_SHIFT = 27, WORD_MAX = (1 << WORD_SHIFT) - 1, STEP_BYTES = 16 };

void pickle_free(pickle_machine *m) {
  free(m->stack);
  free(m->wide);
  free(m->codes);
  memo_free(&m->memo);
  map_free(&m->wide_index);
  intern_free(&m->strings);
  *m = (pickle_machine){0};
}

const char *pickle_text(const pickle_machine *m, uint64_t string, size_t *count) {
  return intern_get(&m->strings, (uint32_t)string, count);
}

const char *pickle_tag_name(uint8_t tag) {
  static const char *const names[] = {
      [PICKLE_NONE] = "None",
      [PICKLE_BOOL] = "a bool",
      [PICKLE_INT] = "an int",
      [PICKLE_UINT] = "an int",
      [PICKLE_FLOAT] = "a float",
      [PICKLE_STRING] = "a str",
      [PICKLE_OPAQUE] = "something of no known use",
      [PICKLE_EMPTY_LIST] = "an empty list",
      [PICKLE_EMPTY_DICT] = "an empty dict",
  };
  return tag < sizeof names / sizeof *names && names[tag] != NULL ? names[tag] : "a list or dict";
}

stow_status pickle_broken(const pickle_machine *m, const char *what) {
  return stow_fail(STOW_ERR_FORMAT, "%s: broken pickle at byte %llu: %s", m->in->name,
                   (unsigned long long)m->op_offset, what);
}

stow_status pickle_cut_short(const pickle_machine *m) {
  return stow_fail(STOW_ERR_FORMAT,
                   "%s: the pickle is cut short: it ends at byte %llu, inside what began at byte "
                   "%llu; copy or record it again",
                   m->in->name,
                   (unsigned long long)(m->in->base + (uint64_t)(m->in->end - m->in->window)),
                   (unsigned long long)m->op_offset);
}

/* Adds the place to the words of a lower layer. */
stow_status pickle_placed(const pickle_machine *m, stow_status status) {
  if (status == STOW_OK) return status;
  return stow_fail(status, "%s: %s (at byte %llu)", m->in->name, stow_status_message(),
                   (unsigned long long)m->op_offset);
}

static stow_status charge(pickle_machine *m, uint64_t bytes) {
  if (m->work_bytes + bytes > m->max_work_bytes)
    return stow_fail(STOW_ERR_BUDGET,
                     "reading it needs more than the %llu MiB of working memory allowed",
                     (unsigned long long)(m->max_work_bytes >> 20));
  m->work_bytes += bytes;
  return STOW_OK;
}

static stow_status grow(pickle_machine *m, void **table, size_t *capacity, size_t size) {
  size_t wanted = *capacity == 0 ? 256 : *capacity * 2;
  STOW_TRY(charge(m, (wanted - *capacity) * size));
  void *bigger = realloc(*table, wanted * size);
  if (bigger == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a table of %zu values", wanted);
  *table = bigger;
  *capacity = wanted;
  return STOW_OK;
}

/* ---- memo: a value as one word ---- */

static stow_status widen(pickle_machine *m, uint32_t *word, const pickle_value *v) {
  uint64_t key = hash_u64(v->v, v->tag);
  for (uint64_t *have; (have = map_get(&m->wide_index, key)) != NULL; key++) {
    if (m->wide[*have].v == v->v && m->wide[*have].tag == v->tag) {
      *word = PICKLE_WIDE << WORD_SHIFT | (uint32_t)*have;
      return STOW_OK;
    }
  }
  if (m->wide_count > WORD_MAX) return stow_fail(STOW_ERR_OVERFLOW, "too many values to remember");
  if (m->wide_count == m->wide_capacity)
    STOW_TRY(grow(m, (void **)&m->wide, &m->wide_capacity, sizeof *m->wide));
  STOW_TRY(charge(m, 2 * sizeof(map_slot)));
  STOW_TRY(map_put(&m->wide_index, key, m->wide_count));
  *word = PICKLE_WIDE << WORD_SHIFT | (uint32_t)m->wide_count;
  m->wide[m->wide_count++] = (pickle_value){.tag = v->tag, .v = v->v};
  return STOW_OK;
}

/* A word as the value it stands for; false if it stands for none. */
static bool memo_value(const pickle_machine *m, pickle_value *to, uint32_t word) {
  unsigned tag = word >> WORD_SHIFT;
  *to = (pickle_value){.tag = (uint8_t)tag, .flags = PICKLE_SHARED, .v = word & WORD_MAX};
  if (tag == PICKLE_WIDE) {
    *to = m->wide[to->v];
    to->flags = PICKLE_SHARED;
  }
  if (to->tag == PICKLE_STRING) to->aux = m->codes[to->v];
  if (tag == PICKLE_CONSUMED)
    to->tag = PICKLE_OPAQUE; /* a row in a second place: of no use there */
  return tag != 0;
}

static inline stow_status memo_set(pickle_machine *m, uint64_t index, const pickle_value *v) {
  uint32_t word = 0;
  if (m->sink->forget >> v->tag & 1)
    word = PICKLE_CONSUMED << WORD_SHIFT;
  else if (v->v <= WORD_MAX)
    word = (uint32_t)v->tag << WORD_SHIFT | (uint32_t)v->v;
  else
    STOW_TRY(widen(m, &word, v));
  STOW_TRY(memo_put(&m->memo, index, word, m->max_work_bytes));
  if (index < 256) memo_value(m, &m->first[index], word);
  return STOW_OK;
}

/* Remembers the top of the stack; a container that may still be filled notes where. */
static inline stow_status memo_top(pickle_machine *m, pickle_value *top, uint64_t index) {
  if (top < m->stack) return stow_fail(STOW_ERR_FORMAT, "nothing on the stack to remember");
  if ((top->tag == PICKLE_EMPTY_LIST || top->tag == PICKLE_EMPTY_DICT) && index < UINT32_MAX)
    top->aux = (uint32_t)index + 1;
  return memo_set(m, index, top);
}

static inline stow_status memo_fetch(pickle_machine *m, pickle_value *to, uint64_t index) {
  if (memo_value(m, to, memo_get(&m->memo, index))) return STOW_OK;
  return stow_fail(STOW_ERR_FORMAT, "refers to entry %llu, which was never put",
                   (unsigned long long)index);
}

/* ---- strings ---- */

stow_status pickle_string(pickle_machine *m, pickle_value *to, const char *text, size_t count) {
  uint32_t number = 0, before = m->strings.count;
  STOW_TRY(intern_add(&m->strings, &number, text, count));
  if (m->strings.count != before) {
    STOW_TRY(charge(m, count + 1 + 16)); /* bytes, offset, table */
    if (number >= m->codes_capacity)
      STOW_TRY(grow(m, (void **)&m->codes, &m->codes_capacity, sizeof *m->codes));
    m->codes[number] = m->sink->code(m->sink->context, text, count);
  }
  *to = (pickle_value){.tag = PICKLE_STRING, .aux = m->codes[number], .v = number};
  return STOW_OK;
}

/* ---- containers ---- */

/* Hands the items above `first` to the sink as contents of the container below them. */
stow_status pickle_fill(pickle_machine *m, size_t first, bool dict) {
  if (first == 0 || first > m->count)
    return stow_fail(STOW_ERR_FORMAT, "items without a list or dict to hold them");
  pickle_value *holder = &m->stack[first - 1];
  const pickle_value *items = holder + 1;
  size_t count = m->count - first;
  m->count = first;
  if (count == 0 || holder->tag == PICKLE_OPAQUE) return STOW_OK;
  if (holder->flags & PICKLE_SHARED)
    return stow_fail(STOW_ERR_FORMAT, "adds to a list or dict that was already used elsewhere");
  if (holder->tag < PICKLE_SINK_FIRST &&
      holder->tag != (dict ? PICKLE_EMPTY_DICT : PICKLE_EMPTY_LIST))
    return stow_fail(STOW_ERR_FORMAT, "%s items added to %s", dict ? "dict" : "list",
                     pickle_tag_name(holder->tag));
  if (dict && count % 2 != 0) return stow_fail(STOW_ERR_FORMAT, "a dict key without a value");
  STOW_TRY(dict ? m->sink->dict(m->sink->context, holder, items, count / 2)
                : m->sink->list(m->sink->context, holder, items, count));
  return holder->aux != 0 ? memo_set(m, holder->aux - 1, holder) : STOW_OK;
}

stow_status pickle_push(pickle_machine *m, pickle_value value) {
  if (m->count == m->capacity)
    STOW_TRY(grow(m, (void **)&m->stack, &m->capacity, sizeof *m->stack));
  m->stack[m->count++] = value;
  return STOW_OK;
}

stow_status pickle_pop_mark(pickle_machine *m, size_t *first) {
  if (m->mark_count == 0) return stow_fail(STOW_ERR_FORMAT, "an end without a beginning (no mark)");
  *first = m->marks[--m->mark_count];
  return *first <= m->count ? STOW_OK : stow_fail(STOW_ERR_FORMAT, "a mark above the stack");
}

/* ---- the loop ---- */

/* Little-endian, as the machines we build for are. */
static uint32_t load32(const uint8_t *p) {
  uint32_t value;
  memcpy(&value, p, 4);
  return value;
}

static uint16_t load16(const uint8_t *p) {
  uint16_t value;
  memcpy(&value, p, 2);
  return value;
}

static stow_status too_deep(void) {
  return stow_fail(STOW_ERR_FORMAT, "nested deeper than %d levels; no snapshot is",
                   PICKLE_DEPTH_MAX);
}

static stow_status fill_from_mark(pickle_machine *m, bool dict) {
  size_t first = 0;
  STOW_TRY(pickle_pop_mark(m, &first));
  return pickle_fill(m, first, dict);
}

static double read_double(const uint8_t *p) {
  uint64_t bits;
  memcpy(&bits, p, 8);
  bits = __builtin_bswap64(bits); /* BINFLOAT is big-endian; the machines we build for are little */
  double value;
  memcpy(&value, &bits, 8);
  return value;
}

static stow_status stop(pickle_machine *m, pickle_value *result) {
  if (m->count != 1 || m->mark_count != 0)
    return pickle_broken(m, m->count == 0 ? "ends with nothing on the stack"
                                          : "ends with more than one value on the stack");
  *result = m->stack[0];
  return STOW_OK;
}

static int argument_size(uint8_t op) {
  return op == 'h' || op == 'q' || op == 0x8c ? 1 : op == 'j' || op == 'r' ? 4 : 0;
}

#define INT_VALUE(n) ((pickle_value){.tag = PICKLE_INT, .i = (n)})

/* The loop keeps the place in the window (p) and the top of the stack (sp) to itself, and brings
 * the machine up to date (LEAVE) only for what is done elsewhere. A short opcode reads its argument
 * before anybody looks whether it is there: behind the window are zeros, and the next turn finds p
 * past the end. */
#define LEAVE() (in->at = p, m->op_offset = input_offset(in), m->count = (size_t)(sp - m->stack))
#define ENTER() (p = in->at, end = in->end, sp = m->stack + m->count, top = m->stack + m->capacity)

static stow_status run(pickle_machine *m, pickle_value *result) {
  input *in = m->in;
  const uint8_t *p = in->at, *end = in->end;
  pickle_value *sp = m->stack, *top = m->stack;
  stow_status status = STOW_OK;
  for (;;) {
    if (end - p < STEP_BYTES) {
      if (p > end) return pickle_cut_short(m);
      in->at = p;
      STOW_TRY(input_fill(in, STEP_BYTES));
      p = in->at, end = in->end;
      m->op_offset = input_offset(in); /* of these last few, each may be the one that is cut */
      if (p == end) return pickle_cut_short(m);
    }
    if (sp == top) {
      LEAVE();
      status = grow(m, (void **)&m->stack, &m->capacity, sizeof *m->stack);
      if (status != STOW_OK) break;
      ENTER();
    }
    switch (p[0]) {
    case 'h': /* BINGET */
      *sp = m->first[p[1]];
      if (sp->tag == 0) goto get;
      sp++, p += 2;
      continue;
    case 'j': /* LONG_BINGET */
    get:
      status = memo_fetch(m, sp, p[0] == 'h' ? p[1] : load32(p + 1));
      if (status != STOW_OK) break;
      sp++, p += p[0] == 'h' ? 2 : 5;
      continue;
    case 0x94: /* MEMOIZE */
      status = memo_top(m, sp - 1, m->memo.count);
      if (status != STOW_OK) break;
      p++;
      continue;
    case 'q': /* BINPUT */
    case 'r': /* LONG_BINPUT */
      status = memo_top(m, sp - 1, p[0] == 'q' ? p[1] : load32(p + 1));
      if (status != STOW_OK) break;
      p += p[0] == 'q' ? 2 : 5;
      continue;
    case '(': /* MARK */
      if (m->mark_count == PICKLE_DEPTH_MAX) {
        status = too_deep();
        break;
      }
      m->marks[m->mark_count++] = (size_t)(sp - m->stack);
      p++;
      continue;
    case '}': *sp++ = (pickle_value){.tag = PICKLE_EMPTY_DICT}, p++; continue;
    case ']': *sp++ = (pickle_value){.tag = PICKLE_EMPTY_LIST}, p++; continue;
    case 'K': *sp++ = INT_VALUE(p[1]), p += 2; continue;
    case 'M': *sp++ = INT_VALUE(load16(p + 1)), p += 3; continue;
    case 'J': *sp++ = INT_VALUE((int32_t)load32(p + 1)), p += 5; continue;
    case 0x8a: { /* LONG1: addresses and times, nearly always 5 to 8 bytes */
      unsigned count = p[1];
      if (count == 0 || count > 8) break;
      uint64_t raw;
      memcpy(&raw, p + 2, 8);
      raw <<= 64 - 8 * count;
      *sp++ = INT_VALUE((int64_t)raw >> (64 - 8 * count));
      p += 2 + count;
      continue;
    }
    case 'G':
      *sp++ = (pickle_value){.tag = PICKLE_FLOAT, .f = read_double(p + 1)}, p += 9;
      continue;
    case 'N': *sp++ = (pickle_value){.tag = PICKLE_NONE}, p++; continue;
    case 0x88: *sp++ = (pickle_value){.tag = PICKLE_BOOL, .v = 1}, p++; continue;
    case 0x89: *sp++ = (pickle_value){.tag = PICKLE_BOOL}, p++; continue;
    case 0x8c: /* SHORT_BINUNICODE */
      if (end - p < 2 + p[1]) break;
      status = pickle_string(m, sp, (const char *)p + 2, p[1]);
      if (status != STOW_OK) break;
      sp++, p += 2 + p[1];
      continue;
    case 'u': /* SETITEMS */
    case 'e': /* APPENDS */
      LEAVE();
      status = fill_from_mark(m, p[0] == 'u');
      if (status != STOW_OK) break;
      sp = m->stack + m->count, p++;
      continue;
    default: break;
    }
    if (status != STOW_OK) break;
    LEAVE();
    if (p[0] == '.') return stop(m, result);
    in->at++;
    STOW_TRY(pickle_cold(m, p[0]));
    ENTER();
  }
  LEAVE();
  /* What was obeyed with an argument that is not there is no fault of its own. */
  return end - p < 1 + argument_size(p[0]) ? pickle_cut_short(m) : pickle_placed(m, status);
}

stow_status pickle_run(pickle_machine *m, input *in, const pickle_sink *sink,
                       uint64_t max_work_bytes, pickle_value *result) {
  *m = (pickle_machine){.in = in, .sink = sink, .max_work_bytes = max_work_bytes};
  m->strings.max_bytes = max_work_bytes;
  STOW_TRY(input_fill(in, STEP_BYTES));
  if (input_left(in) == 0)
    return stow_fail(STOW_ERR_FORMAT, "%s: empty: no pickle in it", in->name);
  return run(m, result);
}
