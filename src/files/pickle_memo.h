/* Pickle memo: the values a pickle may refer to by number, in four bytes or one per entry.
 *
 * A snapshot of 1 GB puts tens of millions of values in its memo and refers to few of them. Entries
 * live in pages of 4096. A full page with at most 256 distinct values (rows of the same few frames,
 * or consumed entries) is packed to one byte per entry. */
#ifndef FILES_PICKLE_MEMO_H
#define FILES_PICKLE_MEMO_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MEMO_PAGE 4096

typedef struct memo_page {
  uint32_t *slots;  /* MEMO_PAGE entries; NULL while packed or unused */
  uint8_t *packed;  /* MEMO_PAGE bytes, indexes into `values`; NULL while unpacked */
  uint32_t *values; /* the distinct values */
  uint32_t value_count;
} memo_page;

typedef struct pickle_memo {
  memo_page *pages;
  size_t page_count;
  uint64_t count;      /* entries; where MEMOIZE puts the next one */
  uint64_t held_bytes; /* for the owner's budget */
} pickle_memo;

void memo_free(pickle_memo *m);
/* Makes sure that the page of `index` has slots. STOW_ERR_BUDGET if that would exceed max_bytes. */
stow_status memo_open(pickle_memo *m, uint64_t index, uint64_t max_bytes);

/* Stores any 32-bit word except 0. */
static inline stow_status memo_put(pickle_memo *m, uint64_t index, uint32_t word,
                                   uint64_t max_bytes) {
  size_t page = (size_t)(index / MEMO_PAGE);
  if (page >= m->page_count || m->pages[page].slots == NULL)
    STOW_TRY(memo_open(m, index, max_bytes));
  uint32_t *slot = &m->pages[page].slots[index % MEMO_PAGE];
  m->count += *slot == 0;
  *slot = word;
  return STOW_OK;
}

/* Returns 0 if nothing was put. */
static inline uint32_t memo_get(const pickle_memo *m, uint64_t index) {
  size_t page = (size_t)(index / MEMO_PAGE), at = index % MEMO_PAGE;
  if (page >= m->page_count) return 0;
  const memo_page *p = &m->pages[page];
  if (p->slots != NULL) return p->slots[at];
  return p->packed != NULL ? p->values[p->packed[at]] : 0;
}

#endif
