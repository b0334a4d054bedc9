/* Pickle run: the main loop. One switch over opcodes; containers go to the sink as they fill.
 *
 * The loop executes the frequent opcodes (memo, marks, small integers, short strings, filling dicts
 * and lists); pickle_cold.c the rest. Opcodes are numbered as in Python's pickletools. */
#include "files/pickle_parts.h"

#include <stdlib.h>
#include <string.h>

enum { STEP_BYTES = 16 };

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

/* ---- memo: a value as one word ---- */

/* Stores the top of the stack in the memo; a container that may still be filled records its
 * index. */
static inline stow_status memo_top(pickle_machine *m, pickle_value *top, uint64_t index) {
  if (top < m->stack) return stow_fail(STOW_ERR_FORMAT, "nothing on the stack to remember");
  if ((top->tag == PICKLE_EMPTY_LIST || top->tag == PICKLE_EMPTY_DICT) && index < UINT32_MAX)
    top->aux = (uint32_t)index + 1;
  return memo_set(m, index, top);
}

static inline stow_status memo_fetch(pickle_machine *m, pickle_value *to, uint64_t index) {
  if (memo_value(m, to, memo_get(&m->memo, index))) return STOW_OK;
  return stow_fail(STOW_ERR_FORMAT, "refers to memo entry %llu, which was never set",
                   (unsigned long long)index);
}

/* ---- the loop ---- */

/* Little-endian, like all supported machines. */
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
  bits = __builtin_bswap64(bits); /* BINFLOAT is big-endian; supported machines are little-endian */
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

/* The loop keeps the position in the window (p) and the top of the stack (sp) in locals, and
 * updates the machine (LEAVE) only before calls. A short opcode reads its argument before checking
 * that it is there: zeros follow the window, and the next iteration detects p past the end. */
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
      m->op_offset = input_offset(in); /* each of these last few opcodes may be the truncated one */
      if (p == end) return pickle_cut_short(m);
    }
    if (sp == top) {
      LEAVE();
      status = pickle_grow(m, (void **)&m->stack, &m->capacity, sizeof *m->stack);
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
  /* If the argument is missing, report the truncation rather than the failure it caused. */
  return end - p < 1 + argument_size(p[0]) ? pickle_cut_short(m) : pickle_placed(m, status);
}

stow_status pickle_run(pickle_machine *m, input *in, const pickle_sink *sink,
                       uint64_t max_work_bytes, pickle_value *result) {
  *m = (pickle_machine){.in = in, .sink = sink, .max_work_bytes = max_work_bytes};
  m->strings.max_bytes = max_work_bytes;
  STOW_TRY(input_fill(in, STEP_BYTES));
  if (input_left(in) == 0)
    return stow_fail(STOW_ERR_FORMAT, "%s: empty file, no pickle in it", in->name);
  return run(m, result);
}
