/* Pickle memo: pages, packed when a later page is opened. */
#include "files/pickle_memo.h"

#include <stdlib.h>
#include <string.h>

enum { DISTINCT_MAX = 256, PROBE = 1024 };

void memo_free(pickle_memo *m) {
  for (size_t i = 0; i < m->page_count; i++) {
    memo_page *p = &m->pages[i];
    if (p->slots == NULL && p->packed == NULL)
      continue; /* most pages of a pickle with one odd index */
    free(p->slots);
    free(p->packed);
    free(p->values);
  }
  free(m->pages);
  *m = (pickle_memo){0};
}

static stow_status charge(pickle_memo *m, uint64_t bytes, uint64_t max_bytes) {
  if (m->held_bytes + bytes > max_bytes)
    return stow_fail(STOW_ERR_BUDGET, "the pickle's memo needs more than the %llu MiB allowed",
                     (unsigned long long)(max_bytes >> 20));
  m->held_bytes += bytes;
  return STOW_OK;
}

static stow_status no_memory(void) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the pickle's memo");
}

/* Packs the page if possible; otherwise (too many values, no memory) leaves it unpacked. */
static void pack(pickle_memo *m, memo_page *p) {
  uint32_t values[DISTINCT_MAX];
  uint16_t probe[PROBE]; /* value number + 1 */
  uint8_t packed[MEMO_PAGE];
  unsigned distinct = 0;
  memset(probe, 0, sizeof probe);
  for (size_t i = 0; i < MEMO_PAGE; i++) {
    uint32_t word = p->slots[i];
    unsigned at = (word * UINT32_C(2654435761)) >> 22;
    while (probe[at] != 0 && values[probe[at] - 1] != word) at = (at + 1) % PROBE;
    if (probe[at] == 0) {
      if (distinct == DISTINCT_MAX) return;
      values[distinct++] = word;
      probe[at] = (uint16_t)distinct;
    }
    packed[i] = (uint8_t)(probe[at] - 1);
  }
  uint8_t *bytes = malloc(MEMO_PAGE);
  uint32_t *table = malloc(distinct * sizeof *table);
  if (bytes == NULL || table == NULL) {
    free(bytes);
    free(table);
    return;
  }
  memcpy(bytes, packed, MEMO_PAGE);
  memcpy(table, values, distinct * sizeof *table);
  free(p->slots);
  *p = (memo_page){NULL, bytes, table, distinct};
  m->held_bytes -= MEMO_PAGE * sizeof(uint32_t);
  m->held_bytes += MEMO_PAGE + distinct * sizeof *table;
}

stow_status memo_open(pickle_memo *m, uint64_t index, uint64_t max_bytes) {
  size_t page = (size_t)(index / MEMO_PAGE);
  if (page >= m->page_count) {
    size_t count = m->page_count + m->page_count / 2 + 16;
    if (count <= page) count = page + 1;
    STOW_TRY(charge(m, (count - m->page_count) * sizeof *m->pages, max_bytes));
    memo_page *pages = realloc(m->pages, count * sizeof *pages);
    if (pages == NULL) return no_memory();
    memset(pages + m->page_count, 0, (count - m->page_count) * sizeof *pages);
    m->pages = pages;
    m->page_count = count;
  }
  memo_page *p = &m->pages[page];
  STOW_TRY(charge(m, MEMO_PAGE * sizeof *p->slots, max_bytes));
  uint32_t *slots = calloc(MEMO_PAGE, sizeof *slots);
  if (slots == NULL) return no_memory();
  if (p->packed != NULL) { /* a put into a packed page is rare, so the page is simply unpacked */
    for (size_t i = 0; i < MEMO_PAGE; i++) slots[i] = p->values[p->packed[i]];
    free(p->packed);
    free(p->values);
    m->held_bytes -= MEMO_PAGE + p->value_count * sizeof *p->values;
  }
  *p = (memo_page){slots, NULL, NULL, 0};
  /* Containers are put again when they are filled, so the previous page stays unpacked. */
  if (page >= 2 && m->pages[page - 2].slots != NULL) pack(m, &m->pages[page - 2]);
  return STOW_OK;
}
