/* Stand-in libcuda: controls for tests, in addition to the driver's own functions.
 *
 * Environment, read by cuInit:
 *   STANDIN_VERSION=13000   the CUDA version it reports (default: that of its exports); below 12020
 * it has no host locations STANDIN_DEVICES=1         how many devices STANDIN_VRAM=1073741824 bytes
 * of each device STANDIN_CONTEXT=0       bytes that a context uses STANDIN_NO_VMM=1 attribute 102
 * is 0 and page calls return NOT_SUPPORTED STANDIN_HOST=words      of page creation on the host:
 * crash, hang, refuse (any location), no-numa (HOST_NUMA refused, HOST works), node1 (only node 1
 * works), no-pinned (cuMemHostAlloc refused too) STANDIN_ALIGN=loose     cuMemAddressReserve
 * ignores the alignment STANDIN_HOLES=1         pools grow with every request STANDIN_MEET=2 this
 * many requests of pools wait for each other in the driver, at most a second STANDIN_MODE=3 the
 * compute mode it reports STANDIN_ASYNC=SEED      streams are queues that threads run (queue.h)
 *   STANDIN_FAIL=NAME:CODE[:N[:once]]  the Nth call of that function (1), and those after it
 *                           unless once, return CODE; a code of -9 kills the process there
 *   STANDIN_TURNS=FILE      two processes create and release pages in turn; read by those calls
 * */
#ifndef CUDA_STANDIN_H
#define CUDA_STANDIN_H

/* Return the number of contexts on the calling thread's stack, and its capture mode. */
int standin_depth(void);
int standin_capture_mode(void);
/* While on, recorded events stay pending; turning it off completes them and wakes waiters. */
void standin_hold(int on);
/* Makes calls of `name` (NULL: none) fail with `code` from the `nth` from now on. A code of 700 to
 * 799 is sticky: every later call returns it. */
void standin_fail(const char *name, int code, int nth);
/* Does the same for `times` calls, never sticky. */
void standin_fail_some(const char *name, int code, int nth, int times);
/* Returns how many objects exist: contexts, pages, ranges, mappings, allocations, streams,
 * events. */
int standin_live(void);
/* Returns how often a function was called since the start. */
int standin_calls(const char *name);

/* Returns the CU_LOCATION_… of the page mapped at an address; 0: none. */
int standin_location(unsigned long long addr);

/* ---- driver_names.c: functions that only return a number ---- */

/* Returns what such a function returns; -1 for a name that the stand-in does not have. */
int standin_number(const char *name);
/* The arguments of the calling thread's latest call of such a function. */
typedef struct standin_words {
  unsigned long long words[10];
  double numbers[8];
} standin_words;
const standin_words *standin_last(void);

#endif
