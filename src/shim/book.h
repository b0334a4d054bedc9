/* Book: what the driver handed out to the program, by what names it, so that it can be given back
 * to the ledger when it is freed. Any thread may call anything. */
#ifndef SHIM_BOOK_H
#define SHIM_BOOK_H

#include "shim/account.h"

/* Things the driver hands out, by what names them. */
typedef enum book_space {
  BOOK_ADDRESS, /* device addresses of allocations */
  BOOK_PAGE,    /* handles of cuMemCreate */
  BOOK_MAPPING, /* addresses pages are mapped at; `link` is the page's handle */
  BOOK_ARRAY,
  BOOK_HOST,    /* pinned host memory */
  BOOK_CONTEXT, /* that the program made; they hold no bytes here */
  BOOK_SPACES
} book_space;

typedef struct holding {
  uint64_t bytes; /* as counted */
  ledger_kind kind;
  unsigned device;    /* as the run counts */
  cu_context context; /* it goes with */
  uint64_t link;      /* BOOK_MAPPING: the page; a spilled BOOK_ADDRESS: its page */
  uint32_t uses;      /* of a page: handles and mappings that keep it */
  bool pinned;        /* a spilled BOOK_ADDRESS that is pinned memory; `link` is its host address */
} holding;

/* Adds it. False without host memory: the bytes then stay counted until the process ends. */
bool book_add(book_space space, uint64_t key, const holding *what);
/* Takes it out, before the driver is asked to free it: its name may be given out again at once. */
bool book_remove(book_space space, uint64_t key, holding *what);
/* Adds to `uses`. Returns the new number, or -1 if it is not in the book. At 0 it is taken out and
 * its bytes are given back. */
int book_use(book_space space, uint64_t key, int more, holding *what);
/* Takes out everything that went with a context (NULL: with any of the device). Spilled allocations
 * are passed to `drop_spilled`; the bytes of the rest are given back. */
void book_drop(unsigned device, cu_context context,
               void (*drop_spilled)(cu_addr addr, const holding *what));

#endif
