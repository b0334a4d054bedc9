/* Page table: definitions that page*.c, token.c and room.c share.
 *
 * A program that maps its own memory creates a page, maps it, unmaps it and releases it. Here the
 * program's handle and the driver's page are separate:
 *
 *   token   what the program holds: a handle for a page that it created
 *   page    what the driver returned: a handle in vram or on the host, mapped at an address or not;
 *           a very large one may have one of each (page_split.c)
 *
 * A token gets a page when it is first mapped. Until then it is only promised one, and the table
 * has a free page (of its class and tier) for each promise. A page without a token is free and
 * stays mapped where it last was ("kept"). A new token mapped at the same address gets that page
 * without a driver call.
 *
 *   asked ──► promised ──map──► held ──unmap──► held, lazily mapped ──release──► free, kept
 *                    ▲                              │ mapped again                   │
 *                    └────── by address, else the free page at the highest ─────────┘
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

/* Smaller pages are not moved as launches need them: a page call would take longer than the copy.
 */
#define PAGE_MOVES_LEAST ((uint64_t)8 << 20)

typedef struct page_class page_class;
typedef struct token token;

typedef struct page {
  cu_handle real;
  cu_handle rest;      /* page in both tiers: its second handle, after the first `vram_bytes`; 0: it
                        * is in one tier */
  uint64_t vram_bytes; /* page in both tiers: bytes in vram */
  cu_addr at;          /* where it is mapped; 0: nowhere */
  cu_addr stage;       /* host page: a second mapping of our own for copies; 0: none yet */
  token *owner;        /* NULL: free */
  page_class *class;
  int tier;
  bool granted;  /* its device may read and write it at `at` */
  bool borrowed; /* the handle belongs to another page: it is mapped here and never released */
  size_t slot;   /* free page: its position in the list */
} page;

struct token {
  cu_handle name;
  page_class *class;
  page *page;       /* NULL: promised */
  cu_addr addr;     /* where the program has it mapped; 0: nowhere; otherwise the page's `at` */
  uint32_t handles; /* the program's handles, from cuMemCreate and cuMemRetainAllocationHandle */
  uint32_t aliases; /* further mappings of its page, which also keep it */
  int tier;         /* tier of the promised page */
  bool pinned;      /* exported, mapped twice, or granted to others: never moved, never kept */
  bool reported;    /* live_blocks.c has the blocks in it; otherwise all of it is one block */
  uint32_t unit;    /* number in resident.c + 1; 0: none */
};

/* Pages that can replace each other. */
struct page_class {
  uint64_t bytes;
  cu_prop prop;
  unsigned device;
  page **free[TIER_COUNT];
  size_t free_count[TIER_COUNT], free_capacity[TIER_COUNT];
  size_t promised[TIER_COUNT];
  size_t tokens; /* 0: another class may use this entry */
};

/* The most page sizes that a program may use at the same time; further pages go to the driver. */
#define CLASSES_MAX 128

extern lock pages_lock;
extern map pages_at; /* address to page, for all mapped pages */
extern map tokens;   /* handle to token */
extern page_class classes[CLASSES_MAX];
extern size_t class_count;

/* ---- page_table.c: pages and the driver ---- */

/* Logs the driver calls since the last log entry. */
void page_table_log(const char *when);

/* Creates and releases a vram handle with the properties of a class, of any size, counted as
 * LEDGER_PAGES. Neither measures nor reclaims, because pages_lock is held. */
cu_result page_vram_create(const page_class *class, cu_handle *real, uint64_t bytes);
cu_result page_vram_release(const page_class *class, cu_handle real, uint64_t bytes);

/* Returns how many bytes of host pages no token has, on the device of a class. */
uint64_t *page_host_unused(const page_class *class);

page *page_new(page_class *class, cu_handle real, int tier);
/* Unmaps a page and releases it. It must not be in a list. */
void page_drop(page *p);
cu_result page_map_at(page *p, cu_addr addr);
cu_result page_unmap(page *p);
cu_result page_grant(page *p);
/* Grants access to adjacent pages in one call. */
cu_result page_grant_run(cu_addr addr, uint64_t bytes, const cu_access *access);
/* Maps a page at a second address of our own for as long as it exists. Granting access to a host
 * page of 20 MiB takes 240 us, to one in vram 30 us (H200, driver 580), and copies must not wait
 * for that. */
cu_result page_stage(page *p);
/* Returns whether the program may no longer use the page at its address: it is free, or the program
 * has unmapped it. */
bool page_is_lazy(const page *p);
/* Really unmaps what is lazily mapped anywhere in a range. */
cu_result page_evict(cu_addr addr, uint64_t bytes);

/* Adds a page to the free ones; drops it if there is no host memory for that. */
void page_free_put(page *p);
/* Removes and returns the free page at `addr` (NULL if there is none of that tier) or, for 0, the
 * one that is least likely to be needed where it is. */
page *page_free_take(page_class *class, int tier, cu_addr addr);
/* Unmaps the free pages of a tier, which stay free. */
void page_free_loosen(page_class *class, int tier);
/* Returns the number of free pages that are not promised to a token. */
size_t page_free_spare(const page_class *class, int tier);
/* Drops all pages of a class that has no tokens. */
void page_free_end(page_class *class);
/* Drops free pages of a device and tier until `bytes` are released. Returns how many were. */
uint64_t page_free_trim(unsigned device, int tier, uint64_t bytes, const page_class *except);

/* ---- token.c ---- */

extern _Atomic size_t token_held_on_host; /* tokens' pages on the host */
extern _Thread_local bool token_trimming; /* this thread releases memory because it was asked to */

/* Acquire and release pages_lock; page_leave publishes the free bytes in the ledger. */
void page_enter(void);
void page_leave(void);

/* Returns the class of a request; NULL if there are too many. */
page_class *page_class_for(uint64_t bytes, const cu_prop *prop);
token *token_find(cu_handle name);
token *token_new(page_class *class);
/* Give a token the page it was promised; replace the page of a token. */
void token_have(token *t, page *p);
void token_exchange(token *t, page *p);
/* Removes a token that has no page. */
void token_forget(token *t);
/* Ends a token if the program has neither a handle nor a mapping of it. */
void token_end(token *t);
/* Returns whether no other process of the run has memory on the device. */
bool token_alone(const ledger *l, unsigned device);
/* Returns whether memory that the program releases should be kept for it. */
bool token_keeping(const token *t);
/* Marks a token as never to be moved or kept, because it is shared with another process, device or
 * address; returns whether there ever was one. */
void token_pin(token *t);
bool token_shared(void);

/* ---- page_make.c ---- */

/* Creates one more free page of a class and tier, counted. CU_ERROR_OUT_OF_MEMORY: there is no
 * space. */
cu_result page_make(page_class *class, int tier);
/* Returns how much vram pages that move should give up, so that the next small pages fit; 0 while
 * there is enough. */
uint64_t page_small_lack(unsigned device);

/* ---- page_split.c ---- */

/* Gives a token that was promised nothing a page in both tiers: in vram what is available, except
 * for a part that is left to others (`all`: everything). CU_ERROR_OUT_OF_MEMORY if both tiers
 * together are too small, and for pages that are not on a whole device. */
cu_result page_split(token *t, bool all);

#endif
