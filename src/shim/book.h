/* Book: what the driver returned to the program, by handle or address, so that its bytes can be
 * returned to the ledger when it is freed. Thread-safe. */
#ifndef SHIM_BOOK_H
#define SHIM_BOOK_H

#include "shim/account.h"

/* Kinds of objects that the driver returns. */
typedef enum book_space {
  BOOK_ADDRESS, /* device addresses of allocations */
  BOOK_PAGE,    /* handles of cuMemCreate */
  BOOK_MAPPING, /* addresses at which pages are mapped; `link` is the page's handle */
  BOOK_ARRAY,
  BOOK_HOST,    /* pinned host memory */
  BOOK_CONTEXT, /* contexts that the program created; they hold no bytes here */
  BOOK_SPACES
} book_space;

typedef struct holding {
  uint64_t bytes; /* as counted */
  ledger_kind kind;
  unsigned device;    /* the run's number */
  cu_context context; /* the context that it belongs to */
  uint64_t link;      /* BOOK_MAPPING: the page; spilled BOOK_ADDRESS: its page */
  uint32_t uses;      /* for a page: handles and mappings that keep it */
  bool pinned;        /* a spilled BOOK_ADDRESS in pinned memory; `link` is its host address */
} holding;

/* Adds an entry. Returns false without host memory: the bytes then stay counted until the process
 * ends. */
bool book_add(book_space space, uint64_t key, const holding *what);
/* Removes an entry, before the driver is asked to free it: the driver may reuse its handle at
 * once. */
bool book_remove(book_space space, uint64_t key, holding *what);
/* Adds to `uses`. Returns the new number, or -1 if there is no entry. At 0 the entry is removed and
 * its bytes are returned. */
int book_use(book_space space, uint64_t key, int more, holding *what);
/* Removes everything that belongs to a context (NULL: to any context of the device). Passes spilled
 * allocations to `drop_spilled`; returns the bytes of the others. */
void book_drop(unsigned device, cu_context context,
               void (*drop_spilled)(cu_addr addr, const holding *what));

#endif
