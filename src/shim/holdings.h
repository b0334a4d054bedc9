/* Holdings: the objects that the driver returned to the program, by handle or address, so that
 * their bytes are returned to the ledger when they are freed. Thread-safe. */
#ifndef SHIM_HOLDINGS_H
#define SHIM_HOLDINGS_H

#include "shim/account.h"

/* Kinds of objects that the driver returns. */
typedef enum holding_space {
  HOLDING_ADDRESS, /* device addresses of allocations */
  HOLDING_PAGE,    /* handles of cuMemCreate */
  HOLDING_MAPPING, /* addresses at which pages are mapped; `link` is the page's handle */
  HOLDING_ARRAY,
  HOLDING_HOST,    /* pinned host memory */
  HOLDING_CONTEXT, /* contexts that the program created; they hold no bytes here */
  HOLDING_SPACES
} holding_space;

typedef struct holding {
  uint64_t bytes; /* as counted */
  ledger_kind kind;
  unsigned device;    /* the run's number */
  cu_context context; /* the context that it belongs to */
  uint64_t link;      /* HOLDING_MAPPING: the page; spilled HOLDING_ADDRESS: its page */
  uint32_t uses;      /* for a page: handles and mappings that keep it */
  bool pinned;        /* a spilled HOLDING_ADDRESS in pinned memory; `link` is its host address */
} holding;

/* Adds an entry. Returns false without host memory: the bytes then stay counted until the process
 * ends. */
bool holdings_add(holding_space space, uint64_t key, const holding *what);
/* Removes an entry, before the driver is asked to free it: the driver may reuse its handle at
 * once. */
bool holdings_remove(holding_space space, uint64_t key, holding *what);
/* Adds to `uses`. Returns the new number, or -1 if there is no entry. At 0 the entry is removed and
 * its bytes are returned. */
int holdings_use(holding_space space, uint64_t key, int more, holding *what);
/* Removes everything that belongs to a context (NULL: to any context of the device). Passes spilled
 * allocations to `drop_spilled`; returns the bytes of the others. */
void holdings_drop(unsigned device, cu_context context,
                   void (*drop_spilled)(cu_addr addr, const holding *what));

#endif
