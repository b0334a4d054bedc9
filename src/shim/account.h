/* Account: what this process holds on each device, told to the run's ledger, and the limits that
 * stand there.
 *
 * Every hook goes through it: take before asking the driver, add to the book when it gave, give
 * back when it is gone. Devices are numbered as the run's command line numbers them, whatever
 * CUDA_VISIBLE_DEVICES became in this process. Any thread may call anything; nothing is locked
 * while the driver is called. */
#ifndef SHIM_ACCOUNT_H
#define SHIM_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "run/ledger.h"
#include "shim/shim.h"

/* A pool grows by so much at a time (seen on an H200, driver 580: docs/policies.md). */
#define POOL_STEP ((uint64_t)32 << 20)

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

/* The run's ledger, this process joined; never NULL (without a run, one of its own without limits).
 */
ledger *account_ledger(void);

/* Waits until it is known what others hold of the cards: called before the process makes its first
 * context, whose share is the difference to that. */
void account_wait_cards(void);

/* The run's number of a card of this process. */
unsigned account_device(cu_device card);
/* Of the card of the calling thread's context, and the context; false if it has none. */
bool account_here(unsigned *device, cu_context *context, cu_device *card);

/* Counts `bytes` that are about to be asked of the driver. False: the limit has no room (after
 * everything measured was measured anew). */
bool account_take(unsigned device, ledger_kind kind, uint64_t bytes);
/* The two halves of that around a ledger_take of the caller's: measures what is due to be, and
 * after one that found no room sees whether there is some (true: try again). */
void account_look(unsigned device, uint64_t bytes);
/* The driver's own share has changed: it is measured at the next look. */
void account_look_soon(void);
bool account_make_room(unsigned device);
/* The card itself is full: gives back to it what is kept for later here. True: ask again. */
bool account_trim(unsigned device, uint64_t bytes);
void account_give(unsigned device, ledger_kind kind, uint64_t bytes);
/* Bytes of vram given up by this process so far. */
uint64_t account_released(void);
/* Adds what a program gave up that is kept for it. */
void account_note_released(uint64_t bytes);

/* Notes a request turned down, for whoever explains it. */
void account_refused(unsigned device, uint64_t asked_bytes);
/* What is left of the limit; 0 where there is none, too. */
uint64_t account_room(unsigned device);

/* ---- the book ---- */

/* True if noted; without host memory it is not, and the bytes stay counted until the end. */
bool book_add(book_space space, uint64_t key, const holding *what);
/* Takes it out, before the driver is asked to free it: its name may be given out again at once. */
bool book_remove(book_space space, uint64_t key, holding *what);
/* Adds to `uses`; the new number, or -1 if there is no such thing. At 0 it is taken out and its
 * bytes are given back. */
int book_use(book_space space, uint64_t key, int more, holding *what);
/* Everything that went with a context (NULL: with any of the device). */
void book_drop(unsigned device, cu_context context);

/* ---- measure.c: what is measured, not counted ---- */

/* Pools, graphs and the driver's own share of the card of the calling thread's context. */
void measure_device(unsigned device, cu_device card);
/* This process is about to make a context there, has or could not, or has ended one. */
void measure_context_begins(unsigned device);
void measure_context_made(unsigned device, bool made);
void measure_context_ended(unsigned device);
/* Is the card's primary context there, whoever made it? */
bool measure_primary_active(cu_device card);
/* One pool's reserve, after something was taken from it. */
void measure_pool(unsigned device, void *pool);
/* Counts what a pool is about to grow by, on a device with a limit; false where that has no room.
 * What was announced so is no longer once the pool is measured. */
bool measure_pool_grows(unsigned device, uint64_t bytes);
void measure_pool_grown(unsigned device, void *pool, uint64_t announced_bytes);
/* What the driver says of a pool (CUmemPool_attribute); 0 where it does not. */
enum { POOL_RESERVED = 5, POOL_USED = 7 };
uint64_t measure_pool_figure(void *pool, int which);
/* A pool that was destroyed lives on until its last block is freed: how much of it was used, asked
 * before, and that it ended. */
void measure_pool_ended(void *pool, uint64_t used_bytes);
/* What is about to be freed, if it may be of such a pool (else nothing), and that it was. */
typedef struct pool_block {
  void *pool;
  uint64_t bytes;
} pool_block;
pool_block measure_block(cu_addr addr);
void measure_block_gone(const pool_block *block);
/* A pool that the program made: of a device, or of the host, which is no device's
 * (LEDGER_DEVICES_MAX). Of one that can be exported the blocks must be its own, so it is never
 * spilled. */
void measure_note_pool(unsigned device, void *pool, bool shared);
bool measure_pool_shared(void *pool);
/* Whose it is; `otherwise` where that was not noted. */
unsigned measure_pool_device(void *pool, unsigned otherwise);
/* Bytes this process holds that cannot be spilled: graphs' memory and such pools. */
uint64_t measure_fixed(unsigned device);
/* Gives what this process's pools hold idle back to the driver. */
void measure_trim_pools(unsigned device);
/* In a child of fork, which has no pools. */
void measure_after_fork(void);

/* ---- hooks_info.c ---- */

/* In a child of fork, which has no contexts. */
void context_after_fork(void);

#endif
