/* Plain: plain requests (cuMemAlloc) and stream-ordered ones that found their pool full, served
 * from a heap of our own, one for each device, in the device's primary context.
 *
 * The driver's cuMemFree lets everything submitted so far pass before the memory is used again, and
 * programs rely on it. So what is freed here waits: it goes back to the heap only when an event
 * over the whole context, recorded after the free, has passed. Asking is dear beside the heap, so
 * frees wait in batches, and one event does for all of a batch.
 *
 * Blocks of the heap can be neither exported by cuIpcGetMemHandle nor reached by a peer, so a
 * process that is seen to use either gets the driver's own blocks from then on. */
#ifndef SHIM_PLAIN_H
#define SHIM_PLAIN_H

#include "shim/account.h"

/* Shall plain requests on this device come from the heap before the driver is asked? With
 * --fast-malloc always; with a limit or spill where no framework keeps a cache of its own. */
bool plain_serves(unsigned device);

/* A block from the heap of the calling thread's context. With `host` its pages may be host pages
 * where vram has none; `*kind` says which they are. CU_ERROR_OUT_OF_MEMORY: there is none.
 * CU_ERROR_NOT_SUPPORTED: this context has no heap; ask the driver. */
cu_result plain_alloc(cu_addr *addr, size_t bytes, bool host, ledger_kind *kind, unsigned device,
                      cu_device ordinal, cu_context context);

/* Frees a block of a heap. Returns false if addr is not a live heap block; `*ours` is then true if
 * it lies in a heap. `*bytes` receives the requested size. */
bool plain_free(cu_addr addr, bool *ours, uint64_t *bytes, unsigned *device, ledger_kind *kind);

/* The live block an address lies in. */
typedef struct plain_block {
  cu_addr base;
  uint64_t bytes;
  cu_context context;
  cu_device ordinal;
} plain_block;
bool plain_find(cu_addr addr, plain_block *block);

/* Gives back to the driver what the heap of a device holds idle in vram, and with `host` its idle
 * host pages, waiting for what was freed. Does nothing while a graph is captured, or from within
 * the heap itself. True: something went. */
bool plain_trim(unsigned device, bool host);

/* The process was seen to use `why`: plain requests go to the driver from now on. */
void plain_pass(const char *why);

/* The primary context of a device ends, with all its memory. */
void plain_end(cu_device ordinal);

#endif
