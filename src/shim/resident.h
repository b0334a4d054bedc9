/* Resident: keeps the pages that kernels use next in vram, by the plans of src/residency.
 *
 * Starts when a page has to be on the host for the first time. From then on every launch is
 * reported to the engine before it starts. If the engine requests an exchange, the launching thread
 * closes the gate, waits until the device is idle, and changes the pages at the program's
 * addresses. Our own thread copies pages ahead while kernels run.
 *
 * Rules that keep results correct:
 *   - An address is remapped only while the gate is closed and all streams of the program are idle.
 *   - A page leaves vram only if its fingerprint equals that of its host copy, else it is copied
 *     then. A copy ahead is made of a snapshot, and the fingerprint is the snapshot's.
 *   - A copy in begins only when every launch that named the page has ended, and is made again if a
 *     launch names it before the page is exchanged.
 *   - Pages that were shared, exported or captured in a graph are not moved.
 *
 * All functions require pages_lock unless they say otherwise. */
#ifndef SHIM_RESIDENT_H
#define SHIM_RESIDENT_H

#include "shim/page_table.h"

/* Called when a page of this class has to be on the host. Returns whether pages of its device are
 * moved. */
bool resident_begin(page_class *class);
/* Returns whether pages of a device are moved. Needs no lock. */
bool resident_on(unsigned device);
/* Returns whether pages of any device are moved. */
bool resident_anywhere(void);

/* Pages that are too small to move need vram: at the next launch, pages that move give up as much.
 */
void resident_lend(unsigned device, uint64_t bytes);
/* Called when such a page is on the host all the same: it comes to vram at the next launch. */
void resident_small_on_host(unsigned device, uint64_t bytes);

/* Called when no host page can be made: pages in vram give up those that they keep for their return
 * to the host. Returns the bytes that are free then. */
uint64_t resident_give_hosts(unsigned device, uint64_t bytes);
/* Returns how many bytes that could be. Takes the lock. */
uint64_t resident_kept_hosts(unsigned device);

/* Takes a host page that nothing uses, for good. Returns its address for copies and its size; 0:
 * there is none. Takes the lock. */
cu_addr resident_take_host(unsigned device, uint64_t *bytes);
/* Returns the bytes of such pages. Takes the lock. */
uint64_t resident_idle_hosts(unsigned device);

/* Called when a token was mapped; its page may move from now on. */
void resident_add(token *t);
/* Called when a token is about to be unmapped, or must not move any more. Waits for copies of
 * it. */
void resident_remove(token *t);

/* Returns how many bytes of a range are in pages that are on the host now. Takes the lock. */
uint64_t resident_host_bytes(uint64_t addr, uint64_t bytes);
/* Returns how many of these bytes, from the first on, are in pages of the same tier, and whether
 * that is the host. Takes the lock. */
uint64_t resident_run(uint64_t addr, uint64_t bytes, bool *on_host);
/* Passes residency_passed on. Takes the lock. */
void resident_passed(uint64_t addr, uint64_t bytes);
/* Returns a number that changes when a launch may have written to the range. 0: not known, or a
 * launch that may write there has not ended. Takes the lock. */
uint64_t resident_written(uint64_t addr, uint64_t bytes);

/* Returns how long the program has waited so far because pages of a device were on the host: for
 * exchanges, and for kernels that read there. Takes the lock. */
uint64_t resident_cost_us(unsigned device);

/* Called when the program destroys a stream, or unloads functions. These take the lock. */
void resident_stream_destroyed(cu_stream stream);
void resident_functions_gone(void);
/* Called when a capture begins: returns when none of our work is running in any stream. Takes the
 * lock. */
void resident_capture_begins(void);
/* Called when a context ended (NULL: an unknown one). */
void resident_context_ended(unsigned device, cu_context context);

#endif
