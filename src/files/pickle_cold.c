/* Pickle: the rare opcodes, and those that are rejected. */
#include <string.h>

#include "files/pickle_parts.h"

/* ---- counted texts and integers ---- */

/* Takes a counted string or bytes whose length was just read; skips it unless `keep`. */
static stow_status take_text(pickle_machine *m, uint64_t count, bool keep) {
  if (!keep || count > PICKLE_TEXT_MAX) {
    stow_status status = input_skip(m->in, count);
    if (status == STOW_ERR_FORMAT && input_left(m->in) == 0) return pickle_cut_short(m);
    STOW_TRY(status);
    return pickle_push(m, (pickle_value){.tag = PICKLE_OPAQUE});
  }
  STOW_TRY(input_fill(m->in, (size_t)count));
  if (input_left(m->in) < count) return pickle_cut_short(m);
  pickle_value value = {0};
  STOW_TRY(pickle_placed(m, pickle_string(m, &value, (const char *)m->in->at, (size_t)count)));
  m->in->at += count;
  return pickle_placed(m, pickle_push(m, value));
}

static uint64_t little(const uint8_t *p, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; i++) value |= (uint64_t)p[i] << (8 * i);
  return value;
}

/* Reads LONG1 or LONG4: two's complement of variable length. Above 64 bits the value is opaque. */
static stow_status take_long(pickle_machine *m, uint64_t count) {
  if (count > 9) return take_text(m, count, false);
  STOW_TRY(input_fill(m->in, (size_t)count));
  if (input_left(m->in) < count) return pickle_cut_short(m);
  const uint8_t *p = m->in->at;
  m->in->at += count;
  pickle_value value = {.tag = PICKLE_INT};
  if (count == 9) {
    value.v = little(p, 8);
    bool negative = p[8] == 0xff && p[7] >= 0x80;
    if (p[8] == 0)
      value.tag = value.v > INT64_MAX ? PICKLE_UINT : PICKLE_INT;
    else if (!negative)
      value = (pickle_value){.tag = PICKLE_OPAQUE};
  } else if (count > 0) {
    unsigned unused = 64 - 8 * (unsigned)count;
    value.i = (int64_t)(little(p, (size_t)count) << unused) >> unused;
  }
  return pickle_push(m, value);
}

/* ---- tuples, and containers made in one step ---- */

/* Replaces the top `count` values with a tuple of them. */
static stow_status make_tuple(pickle_machine *m, size_t count) {
  if (count > m->count)
    return stow_fail(STOW_ERR_FORMAT, "a tuple of more values than the stack holds");
  pickle_value value = {.tag = PICKLE_OPAQUE};
  m->count -= count;
  STOW_TRY(m->sink->tuple(m->sink->context, &value, m->stack + m->count, count));
  return pickle_push(m, value);
}

/* Handles LIST and DICT: creates a container with the items above the mark. */
static stow_status make_marked(pickle_machine *m, size_t first, bool dict) {
  STOW_TRY(pickle_push(m, (pickle_value){.tag = PICKLE_NONE})); /* reserve a slot; then shift the
                                                                 * items up */
  memmove(m->stack + first + 1, m->stack + first, (m->count - 1 - first) * sizeof *m->stack);
  m->stack[first] = (pickle_value){.tag = dict ? PICKLE_EMPTY_DICT : PICKLE_EMPTY_LIST};
  return pickle_fill(m, first + 1, dict);
}

/* ---- rejected opcodes ---- */

static const char *refused_name(uint8_t op) {
  switch (op) {
  case 'c': return "GLOBAL";
  case 'R': return "REDUCE";
  case 'b': return "BUILD";
  case 'i': return "INST";
  case 'o': return "OBJ";
  case 'P': return "PERSID";
  case 'Q': return "BINPERSID";
  case 0x81: return "NEWOBJ";
  case 0x82: return "EXT1";
  case 0x83: return "EXT2";
  case 0x84: return "EXT4";
  case 0x92: return "NEWOBJ_EX";
  case 0x93: return "STACK_GLOBAL";
  default: return NULL;
  }
}

static stow_status refuse(const pickle_machine *m, uint8_t op) {
  unsigned long long at = (unsigned long long)m->op_offset;
  const char *name = refused_name(op);
  if (name != NULL)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: opcode %s at byte %llu: this pickle would run code when loaded, and no "
                     "memory snapshot needs that; it was not executed. Save the plain dict that "
                     "torch.cuda.memory._snapshot() returns",
                     m->in->name, name, at);
  if (op != 0 && strchr("IFLSVpg", op) != NULL)
    return stow_fail(
        STOW_ERR_UNSUPPORTED,
        "%s: a text pickle (protocol 0) at byte %llu; save it with protocol 2 or later",
        m->in->name, at);
  if (op == 0x97 || op == 0x98)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: out-of-band buffers (byte %llu) are not supported in a snapshot; save it "
                     "with protocol 2 to 4",
                     m->in->name, at);
  return stow_fail(STOW_ERR_FORMAT, "%s: not a pickle: byte %llu is 0x%02x, which is not an opcode",
                   m->in->name, at, op);
}

/* ---- opcodes ---- */

static stow_status from_mark(pickle_machine *m, uint8_t op) {
  size_t first = 0;
  STOW_TRY(pickle_pop_mark(m, &first));
  switch (op) {
  case 't': return make_tuple(m, m->count - first);
  case 'l': return make_marked(m, first, false);
  case 'd': return make_marked(m, first, true);
  case 0x90: /* ADDITEMS: sets are opaque */ m->count = first; return STOW_OK;
  case 0x91: /* FROZENSET */
    m->count = first;
    return pickle_push(m, (pickle_value){.tag = PICKLE_OPAQUE});
  default: /* POP_MARK */ m->count = first; return STOW_OK;
  }
}

/* Reads a counted text. The opcode is consumed; its argument is not. */
static stow_status cold_text(pickle_machine *m, uint8_t op) {
  size_t width = op == 'U' || op == 'C' || op == 0x8a || op == 0x8c ? 1 : op >= 0x8d ? 8 : 4;
  STOW_TRY(input_fill(m->in, width));
  if (input_left(m->in) < width) return pickle_cut_short(m);
  uint64_t count = little(m->in->at, width);
  m->in->at += width;
  switch (op) {
  case 0x8a: return take_long(m, count);
  case 0x8b: /* LONG4 */
  case 'T':  /* BINSTRING */
    if (count > INT32_MAX) return pickle_broken(m, "a negative length");
    return op == 'T' ? take_text(m, count, true) : take_long(m, count);
  case 0x8c: /* SHORT_BINUNICODE */
  case 'X':
  case 0x8d:
  case 'U': return take_text(m, count, true);
  default: return take_text(m, count, false); /* bytes */
  }
}

stow_status pickle_cold(pickle_machine *m, uint8_t op) {
  pickle_value top = m->count > 0 ? m->stack[m->count - 1] : (pickle_value){0};
  size_t size = op == 0x80 ? 1 : op == 0x95 ? 8 : 0;
  if (size > 0) { /* PROTO; FRAME, which only says how far to read ahead */
    STOW_TRY(input_fill(m->in, size));
    if (input_left(m->in) < size) return pickle_cut_short(m);
    uint8_t version = m->in->at[0];
    m->in->at += size;
    if (op == 0x80 && (version < 2 || version > 5))
      return stow_fail(STOW_ERR_UNSUPPORTED, "%s: pickle protocol %u is not supported; use 2 to 5",
                       m->in->name, version);
    return STOW_OK;
  }
  switch (op) {
  case 's': return pickle_placed(m, pickle_fill(m, m->count >= 2 ? m->count - 2 : 0, true));
  case 'a': return pickle_placed(m, pickle_fill(m, m->count >= 1 ? m->count - 1 : 0, false));
  case 0x86: return pickle_placed(m, make_tuple(m, 2));
  case 0x8c:
  case 'U':
  case 'T':
  case 'X':
  case 0x8d: /* strings */
  case 'C':
  case 'B':
  case 0x8e:
  case 0x96: /* bytes */
  case 0x8a:
  case 0x8b: /* longs */ return cold_text(m, op);
  case 't':
  case 'l':
  case 'd':
  case '1':
  case 0x90:
  case 0x91: return pickle_placed(m, from_mark(m, op));
  case ')': return pickle_placed(m, make_tuple(m, 0));
  case 0x85: return pickle_placed(m, make_tuple(m, 1));
  case 0x87: return pickle_placed(m, make_tuple(m, 3));
  case 0x8f:
    return pickle_placed(m, pickle_push(m, (pickle_value){.tag = PICKLE_OPAQUE})); /* EMPTY_SET */
  case '0':                                                                        /* POP */
    if (m->mark_count > 0 && m->marks[m->mark_count - 1] == m->count)
      m->mark_count--;
    else if (m->count > 0)
      m->count--;
    else
      return pickle_broken(m, "nothing on the stack to pop");
    return STOW_OK;
  case '2': /* DUP */
    if (m->count == 0) return pickle_broken(m, "nothing on the stack to duplicate");
    top.flags |= PICKLE_SHARED;
    return pickle_placed(m, pickle_push(m, top));
  default: return refuse(m, op);
  }
}
