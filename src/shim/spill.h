/* Spill: what to do with a request that vram has no room for.
 *
 * A framework that drops its cache and asks again when it is told "out of memory" (PyTorch) is told
 * so once for a request, and served from the host only if asking again did not help; everybody else
 * is served at once, other libraries in the same process too: it is the caller that counts. Never
 * refused are requests while a graph is captured, where no cache is dropped, and, for a growing
 * while, those after a refusal that freed nothing. */
#ifndef SHIM_SPILL_H
#define SHIM_SPILL_H

#include "shim/account.h"

/* Is a framework at work that drops its cache and asks again when refused? */
bool spill_retry_known(void);

/* Called at the beginning of each request for vram by this thread, before anything is taken. */
void spill_asked(void);
/* Called when one was served: the request (of as many pages as it has) is over. */
void spill_served(void);

/* Was the calling thread's latest request refused, and does it ask again? */
bool spill_refused(void);

/* There is no room in vram for `bytes`: true if they shall come from the host, false if the request
 * is refused (which is noted). */
bool spill_wanted(unsigned device, cu_device card, uint64_t bytes);

/* Is a spill asked for in this run, whether or not the driver can? */
bool spill_on(void);

/* What may be spilled, once it is known that this driver can; 0 if not. */
uint64_t spill_budget(cu_device card);

/* Makes a page on the host. CU_ERROR_OUT_OF_MEMORY where the budget, the host or the driver has
 * none; it is the caller who notes a refusal. Counted as LEDGER_SPILLED. */
cu_result spill_page(cu_handle *handle, size_t bytes, unsigned device, cu_device card);

/* The same, neither counted nor in the book: what the heap's card counts itself. */
cu_result spill_make_page(cu_handle *handle, size_t bytes, cu_device card);
/* Would the host be left enough to live? Asked each time: others take of it too. */
bool spill_host_has(uint64_t bytes);
/* What vram has room for, within the limit, on the card of the calling thread's context, and how
 * much there is of it altogether; 0 while a graph is captured. Of what is in both tiers one part of
 * so many is left in vram to requests that can be nowhere else (code, cuBLAS): JAX leaves a quarter
 * of the card to them. */
#define SPILL_LEAVES_PART 8
uint64_t spill_vram_room(unsigned device, uint64_t *whole);

/* Makes a whole allocation of host pages, for the calling thread's context. */
cu_result spill_plain(cu_addr *addr, size_t bytes, unsigned device, cu_device card,
                      cu_context context);
/* Ends one: `what` was taken out of the book. Waits for the work of its context first. */
cu_result spill_plain_free(cu_addr addr, const holding *what);
/* Of a context that has ended: nothing uses it any more. */
void spill_plain_drop(cu_addr addr, const holding *what);

/* A graph's capture begins and ends. */
void spill_capture(int more);
bool spill_capturing(void);
/* The framework begins and ends to take its memory from a pool of the program's: until then it does
 * not ask again, by whatever thread. */
void spill_private_pool(int more);

/* The part of the limit that pages leave to requests of other kinds while there is a spill: those
 * of libraries that ask once and give up. 0 where nothing is left to them on purpose. */
uint64_t spill_reserve(unsigned device);

/* In a child of fork, where other threads are gone with what they were at. */
void spill_after_fork(void);
void retry_after_fork(void); /* retry.c's part of it */

#endif
