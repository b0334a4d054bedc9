/* Stand-in libcuda: the knobs a test has beside the driver's own functions.
 *
 * Environment, read by cuInit:
 *   STANDIN_VERSION=13000   the CUDA version it claims (else that of its exports); below 12020 it
 *                           has no host locations
 *   STANDIN_CARDS=1         how many cards
 *   STANDIN_VRAM=1073741824 bytes of each card
 *   STANDIN_CONTEXT=0       bytes a context takes of them
 *   STANDIN_NO_VMM=1        attribute 102 is 0 and page calls answer NOT_SUPPORTED
 *   STANDIN_HOST=words      of page creation on the host: crash, hang, refuse (any location),
 *                           no-numa (HOST_NUMA refused, HOST works), node1 (only node 1 works),
 *                           no-pinned (cuMemHostAlloc refused too)
 *   STANDIN_ALIGN=loose     cuMemAddressReserve takes no notice of the alignment
 *   STANDIN_HOLES=1         pools grow with every request
 *   STANDIN_MEET=2          so many requests of pools meet in the driver, or wait a second for it
 *   STANDIN_MODE=3          the compute mode it tells
 *   STANDIN_ASYNC=SEED      streams are queues that threads run (queue.h)
 *   STANDIN_FAIL=NAME:CODE[:N[:once]]  the Nth call of that function (1), and those after it
 *                           unless once, answer CODE; a code of -9 kills the process there
 */
#ifndef CUDA_STANDIN_H
#define CUDA_STANDIN_H

/* How many contexts are on the calling thread's stack, and its capture mode. */
int standin_depth(void);
int standin_capture_mode(void);
/* While on, events recorded are not reached; off lets them be, and wakes who waits. */
void standin_hold(int on);
/* Fails calls of `name` (NULL: none) with `code` from the `nth` from now on. A code of 700 to 799
 * stays: every later call answers it. */
void standin_fail(const char *name, int code, int nth);
/* The same for `times` calls, without any that stay. */
void standin_fail_some(const char *name, int code, int nth, int times);
/* What is still there: contexts, pages, ranges, mappings, allocations, streams, events. */
int standin_live(void);
/* How often a function was called since the start. */
int standin_calls(const char *name);

/* CU_LOCATION_… of the page mapped at an address; 0: none. */
int standin_location(unsigned long long addr);

/* ---- driver_names.c: the names that only answer ---- */

/* What such a function answers; -1 for a name the stand-in does not have. */
int standin_number(const char *name);
/* What the calling thread's latest call of one carried. */
typedef struct standin_words {
  unsigned long long words[10];
  double numbers[8];
} standin_words;
const standin_words *standin_last(void);

#endif
