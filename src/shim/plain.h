/* Plain: serves plain requests (cuMemAlloc), and stream-ordered ones whose pool is full, from our
 * own heap, one per device, in the device's primary context.
 *
 * The driver's cuMemFree lets everything submitted so far pass before the memory is used again, and
 * programs rely on it. So freed memory waits: it returns to the heap only when an event over the
 * whole context, recorded after the free, has passed. Querying an event is expensive compared with
 * the heap, so frees wait in batches, with one event per batch.
 *
 * Blocks of the heap can be neither exported by cuIpcGetMemHandle nor reached by a peer, so a
 * process that uses either gets the driver's own blocks from then on. */
#ifndef SHIM_PLAIN_H
#define SHIM_PLAIN_H

#include "shim/account.h"

/* Returns whether plain requests on this device should come from the heap before the driver is
 * called. With --fast-malloc always; with a limit or spilling if no framework has its own cache. */
bool plain_serves(unsigned device);

/* Allocates a block from the heap of the calling thread's context. With `host`, its pages may be
 * host pages if vram is full; `*kind` receives which they are. CU_ERROR_OUT_OF_MEMORY: no space.
 * CU_ERROR_NOT_SUPPORTED: this context has no heap; call the driver. */
cu_result plain_alloc(cu_addr *addr, size_t bytes, bool host, ledger_kind *kind, unsigned device,
                      cu_device ordinal, cu_context context);

/* Frees a block of a heap. Returns false if addr is not a live heap block; `*ours` is then true if
 * it lies in a heap. `*bytes` receives the requested size. */
bool plain_free(cu_addr addr, bool *ours, uint64_t *bytes, unsigned *device, ledger_kind *kind);

/* The live block that contains an address. */
typedef struct plain_block {
  cu_addr base;
  uint64_t bytes;
  cu_context context;
  cu_device ordinal;
} plain_block;
bool plain_find(cu_addr addr, plain_block *block);

/* Returns the idle vram of a device's heap to the driver, and with `host` its idle host pages;
 * waits for freed memory. Does nothing while a graph is captured, or from within the heap itself.
 * Returns whether something was released. */
bool plain_trim(unsigned device, bool host);

/* Sends plain requests to the driver from now on, because the process uses `why`. */
void plain_pass(const char *why);

/* Called when the primary context of a device ends, with all its memory. */
void plain_end(cu_device ordinal);

#endif
