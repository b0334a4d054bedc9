/* Pickle parts: the machine's stack, strings, containers and errors. */
#include "files/pickle_parts.h"

#include <stdlib.h>

const char *pickle_tag_name(uint8_t tag) {
  static const char *const names[] = {
      [PICKLE_NONE] = "None",
      [PICKLE_BOOL] = "a bool",
      [PICKLE_INT] = "an int",
      [PICKLE_UINT] = "an int",
      [PICKLE_FLOAT] = "a float",
      [PICKLE_STRING] = "a str",
      [PICKLE_OPAQUE] = "an unsupported value",
      [PICKLE_EMPTY_LIST] = "an empty list",
      [PICKLE_EMPTY_DICT] = "an empty dict",
  };
  return tag < sizeof names / sizeof *names && names[tag] != NULL ? names[tag] : "a list or dict";
}

stow_status pickle_broken(const pickle_machine *m, const char *what) {
  return stow_fail(STOW_ERR_FORMAT, "%s: corrupt pickle at byte %llu: %s", m->in->name,
                   (unsigned long long)m->op_offset, what);
}

stow_status pickle_cut_short(const pickle_machine *m) {
  return stow_fail(STOW_ERR_FORMAT,
                   "%s: the pickle is truncated: it ends at byte %llu, inside the opcode at byte "
                   "%llu; copy or record it again",
                   m->in->name,
                   (unsigned long long)(m->in->base + (uint64_t)(m->in->end - m->in->window)),
                   (unsigned long long)m->op_offset);
}

/* Adds file and byte to the message of a lower layer. */
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

stow_status pickle_grow(pickle_machine *m, void **table, size_t *capacity, size_t size) {
  size_t wanted = *capacity == 0 ? 256 : *capacity * 2;
  STOW_TRY(charge(m, (wanted - *capacity) * size));
  void *bigger = realloc(*table, wanted * size);
  if (bigger == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a table of %zu values", wanted);
  *table = bigger;
  *capacity = wanted;
  return STOW_OK;
}

stow_status pickle_widen(pickle_machine *m, uint32_t *word, const pickle_value *v) {
  uint64_t key = hash_u64(v->v, v->tag);
  for (uint64_t *have; (have = map_get(&m->wide_index, key)) != NULL; key++) {
    if (m->wide[*have].v == v->v && m->wide[*have].tag == v->tag) {
      *word = PICKLE_WIDE << WORD_SHIFT | (uint32_t)*have;
      return STOW_OK;
    }
  }
  if (m->wide_count > WORD_MAX) return stow_fail(STOW_ERR_OVERFLOW, "too many values to remember");
  if (m->wide_count == m->wide_capacity)
    STOW_TRY(pickle_grow(m, (void **)&m->wide, &m->wide_capacity, sizeof *m->wide));
  STOW_TRY(charge(m, 2 * sizeof(map_slot)));
  STOW_TRY(map_put(&m->wide_index, key, m->wide_count));
  *word = PICKLE_WIDE << WORD_SHIFT | (uint32_t)m->wide_count;
  m->wide[m->wide_count++] = (pickle_value){.tag = v->tag, .v = v->v};
  return STOW_OK;
}

stow_status pickle_string(pickle_machine *m, pickle_value *to, const char *text, size_t count) {
  uint32_t number = 0, before = m->strings.count;
  STOW_TRY(intern_add(&m->strings, &number, text, count));
  if (m->strings.count != before) {
    STOW_TRY(charge(m, count + 1 + 16)); /* bytes, offset, table */
    if (number >= m->codes_capacity)
      STOW_TRY(pickle_grow(m, (void **)&m->codes, &m->codes_capacity, sizeof *m->codes));
    m->codes[number] = m->sink->code(m->sink->context, text, count);
  }
  *to = (pickle_value){.tag = PICKLE_STRING, .aux = m->codes[number], .v = number};
  return STOW_OK;
}

/* Passes the items above `first` to the sink as contents of the container below them. */
stow_status pickle_fill(pickle_machine *m, size_t first, bool dict) {
  if (first == 0 || first > m->count)
    return stow_fail(STOW_ERR_FORMAT, "items without a list or dict to hold them");
  pickle_value *holder = &m->stack[first - 1];
  const pickle_value *items = holder + 1;
  size_t count = m->count - first;
  m->count = first;
  if (count == 0 || holder->tag == PICKLE_OPAQUE) return STOW_OK;
  if (holder->flags & PICKLE_SHARED)
    return stow_fail(STOW_ERR_FORMAT, "adds to a list or dict that is already used elsewhere");
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
    STOW_TRY(pickle_grow(m, (void **)&m->stack, &m->capacity, sizeof *m->stack));
  m->stack[m->count++] = value;
  return STOW_OK;
}

stow_status pickle_pop_mark(pickle_machine *m, size_t *first) {
  if (m->mark_count == 0) return stow_fail(STOW_ERR_FORMAT, "no mark on the stack");
  *first = m->marks[--m->mark_count];
  return *first <= m->count ? STOW_OK : stow_fail(STOW_ERR_FORMAT, "a mark above the stack");
}
