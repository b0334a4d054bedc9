/* Page table: what page*.c, token.c and room.c share.
 *
 * A program that maps its own memory asks for a page, maps it, unmaps it and lets it go. Here the
 * two ends of that are apart:
 *
 *   token   what the program holds: a name it was given for a page it asked for
 *   page    what the driver gave: a handle in vram or on the host, mapped at an address or loose;
 *           a very large one may have one of each (page_split.c)
 *
 * A token has a page from when it is first mapped; before that it is only owed one, and the table
 * has as many free pages (of its class and tier) as it owes. A page without a token is free, and
 * stays mapped where it last was: "kept". A new token mapped at the same address gets the page that
 * is there, without a call to the driver.
 *
 *   asked ──► owed ──map──► held ──unmap──► held, lazily mapped ──release──► free, kept
 *                ▲                              │ mapped again                   │
 *                └────── by address, else the free page at the highest ─────────┘
 *
 * Everything is guarded by pages_lock, which is held across the driver's page calls: they are all
 * short, and the driver never calls back from them. */
#ifndef SHIM_PAGE_TABLE_H
#define SHIM_PAGE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/lock.h"
#include "shim/account.h"

enum { TIER_VRAM = 0, TIER_HOST = 1, TIER_COUNT };

typedef struct page_class page_class;
typedef struct token token;

typedef struct page {
  cu_handle real;
  cu_handle rest;      /* of one in both tiers, behind the first `vram_bytes`; 0: it is in one */
  uint64_t vram_bytes; /* of one in both */
  cu_addr at;          /* where it is mapped, 0: nowhere */
  cu_addr stage;       /* of a host page: a second mapping, ours, that copies go by; 0: none yet */
  token *owner;        /* NULL: free */
  page_class *class;
  int tier;
  bool granted;  /* its device may read and write it at `at` */
  bool borrowed; /* the handle is another's: it is mapped here, and never released */
  size_t slot;   /* of a free one: its place in the list */
} page;

struct token {
  cu_handle name;
  page_class *class;
  page *page;       /* NULL: owed */
  cu_addr addr;     /* where the program has it mapped, 0: nowhere; else the page's `at` */
  uint32_t handles; /* the program's, of cuMemCreate and cuMemRetainAllocationHandle */
  uint32_t aliases; /* further mappings of its page, which keep it too */
  int tier;         /* of what is owed */
  bool pinned;      /* exported, mapped twice, granted to others: never moved, never kept */
  bool reported;    /* the blocks in it are in the block book; else all of it is one */
  uint32_t unit;    /* and 1, of resident.c; 0: none */
  bool settled;     /* was there when the program had let go of all that it could: no activation */
};

/* Pages that can stand for each other. */
struct page_class {
  uint64_t bytes;
  cu_prop prop;
  unsigned device;
  page **free[TIER_COUNT];
  size_t free_count[TIER_COUNT], free_capacity[TIER_COUNT];
  size_t owed[TIER_COUNT];
  size_t tokens; /* none: another class may have its place */
};

/* Sizes that a program has pages of at one time; beyond that pages are the driver's. */
#define CLASSES_MAX 128

extern lock pages_lock;
extern map pages_at; /* address to page, all that are mapped */
extern map tokens;   /* name to token */
extern page_class classes[CLASSES_MAX];
extern size_t class_count;

/* ---- page_table.c: pages and the driver ---- */

/* Logs the driver calls since the last log entry. */
void page_table_log(const char *when);

/* A handle of vram with the properties of a class, of any size, counted as LEDGER_PAGES. Neither
 * measures nor reclaims: pages_lock is held. */
cu_result page_vram_create(const page_class *class, cu_handle *real, uint64_t bytes);
cu_result page_vram_release(const page_class *class, cu_handle real, uint64_t bytes);

page *page_new(page_class *class, cu_handle real, int tier);
/* Unmaps it and gives it back to the driver. It must be in no list. */
void page_drop(page *p);
cu_result page_map_at(page *p, cu_addr addr);
cu_result page_unmap(page *p);
cu_result page_grant(page *p);
/* The same for pages that lie together, in one call. */
cu_result page_grant_run(cu_addr addr, uint64_t bytes, const cu_access *access);
/* Maps it at an address of ours besides, for as long as it lives. Granting access to a host page of
 * 20 MiB takes 240 us, to one in vram 30 us (H200, driver 580): copies must not wait for it. */
cu_result page_stage(page *p);
/* Where the program may not use it any more: of a free page, or of one it has unmapped. */
bool page_is_lazy(const page *p);
/* Really unmaps what is lazily mapped anywhere in a range. */
cu_result page_evict(cu_addr addr, uint64_t bytes);

/* Puts a page among the free ones; without host memory for that it is dropped. */
void page_free_put(page *p);
/* Takes out the one at `addr` (NULL if there is none of that tier), or, with 0, the one that is
 * least likely to be wanted where it is. */
page *page_free_take(page_class *class, int tier, cu_addr addr);
/* Unmaps the free pages of a tier, which stay free. */
void page_free_loosen(page_class *class, int tier);
/* Free pages that nobody is owed. */
size_t page_free_spare(const page_class *class, int tier);
/* Drops all of a class that nobody has tokens of. */
void page_free_end(page_class *class);
/* Drops free pages of a device and tier until `bytes` are given back; how many were. */
uint64_t page_free_trim(unsigned device, int tier, uint64_t bytes, const page_class *except);

/* ---- token.c ---- */

extern _Atomic size_t token_held_on_host; /* tokens' pages there */
extern _Thread_local bool token_trimming; /* this thread lets go because it was asked to */

/* Acquire and release pages_lock; page_leave publishes the free bytes in the ledger. */
void page_enter(void);
void page_leave(void);

/* The class of a request; NULL: there are too many. */
page_class *page_class_for(uint64_t bytes, const cu_prop *prop);
token *token_find(cu_handle name);
token *token_new(page_class *class);
/* Gives it the page it is owed; has it take another in the place of the one it has. */
void token_have(token *t, page *p);
void token_exchange(token *t, page *p);
/* Takes out one that has no page. */
void token_forget(token *t);
/* Ends it if the program has neither a handle of it nor a mapping. */
void token_end(token *t);
/* Has no other process of the run memory on the device? */
bool token_alone(const ledger *l, unsigned device);
/* Shall what the program lets go of be kept for it? */
bool token_keeping(const token *t);
/* Never to be moved or kept: shared with another process, device or address. Was one ever? */
void token_pin(token *t);
bool token_shared(void);

/* ---- page_make.c ---- */

/* Makes one more free page of a class and tier, counted. CU_ERROR_OUT_OF_MEMORY: there is no room.
 */
cu_result page_make(page_class *class, int tier);

/* ---- page_split.c ---- */

/* Gives a token that is owed nothing a page in both tiers: of vram what there is, but for a part
 * that is left to others, or `all`. CU_ERROR_OUT_OF_MEMORY where both together have no room, and
 * for pages that are none of a whole device's. */
cu_result page_split(token *t, bool all);

/* ---- page_move.c ---- */

/* Makes free pages of a class in vram by moving what will not be used soon to the host.
 * `limit_bytes` is what the run may hold of the device (LEDGER_UNLIMITED: all of it). Returns the
 * bytes moved, 0 if nothing can be moved now. */
uint64_t page_move_out(page_class *class, uint64_t limit_bytes);
/* Brings what is on the host to vram, as far as there is room; within a step it leaves some.
 * Returns the bytes moved. */
uint64_t page_move_home(page_class *class, uint64_t limit_bytes, bool last);
/* A context ended (NULL: one of the device that is not known). */
void page_move_context_ended(unsigned device, cu_context context);

#endif
