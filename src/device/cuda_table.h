/* Cuda table: what of a card is in our hands: ranges, pages, which page is mapped where, plain
 * allocations, streams and events.
 *
 * The cuda backend keeps it so that the contract's preconditions are checked before the driver is
 * asked (the driver lets a mapped page be released, and tells little when it refuses), and so that
 * closing can give back what was forgotten. Guarantees: a call that fails changes nothing. Not
 * locked: the backend holds its lock around each call, never around the driver. */
#ifndef DEVICE_CUDA_TABLE_H
#define DEVICE_CUDA_TABLE_H

#include <stdbool.h>

#include <stowage/sys/device.h>

#include "base/hash.h"
#include "base/status.h"

/* One live page. Freed by table_page_remove only, which wants `mapped` to be 0. */
typedef struct table_page {
  stow_page handle;
  uint64_t bytes;
  stow_tier tier;
  uint32_t mapped; /* at how many addresses */
} table_page;

/* One reserved range. `slots` has one entry per granule (page_bytes) of it:
 *   0            nothing is mapped
 *   page         a mapping of that page begins here
 *   page | 1     the mapping goes on (records are aligned, so the lowest bit is free)
 * It is allocated zeroed, so a large range that is little used costs little. */
typedef struct table_range {
  stow_addr addr;
  uint64_t bytes;
  stow_addr outer_addr; /* what the driver gave: wider where it would not align */
  uint64_t outer_bytes;
  uint64_t mapped_bytes;
  uintptr_t *slots;
} table_range;

typedef struct table_plain {
  uint64_t bytes;
  stow_tier tier;
  void *pointer; /* the host's own address of a host allocation */
} table_plain;

typedef struct cuda_table {
  uint64_t granule;
  table_range *ranges; /* sorted by address */
  size_t range_count, range_capacity;
  map pages;  /* handle -> table_page * */
  map plains; /* address -> table_plain * */
  map streams, events;
  uint64_t page_bytes[STOW_TIER_COUNT]; /* live, by tier */
} cuda_table;

void table_init(cuda_table *t, uint64_t granule);
/* Frees the table itself; what it names is the caller's to give back first. */
void table_free(cuda_table *t);

stow_status table_range_add(cuda_table *t, const table_range *range);
/* Takes it out if it is exactly that range with nothing mapped; STOW_ERR_STATE otherwise. `*range`
 * is then the caller's, slots included: table_range_free, or table_range_back if the driver
 * refused. */
stow_status table_range_take(cuda_table *t, stow_addr addr, uint64_t bytes, table_range *range);
void table_range_back(cuda_table *t, const table_range *range);
void table_range_free(table_range *range);

stow_status table_page_add(cuda_table *t, stow_page handle, uint64_t bytes, stow_tier tier);
/* Takes out a page that is mapped nowhere; STOW_ERR_STATE otherwise. `*page` is a copy for
 * table_page_add should the driver refuse. */
stow_status table_page_take(cuda_table *t, stow_page handle, table_page *page);

/* Notes the mapping before the driver makes it; STOW_ERR_INVALID, STOW_ERR_STATE as the contract
 * has it. */
stow_status table_map(cuda_table *t, stow_addr addr, uint64_t bytes, stow_page handle);
/* STOW_OK if [addr, addr+bytes) is one or more whole mappings with no gap; `what` begins the
 * message. */
stow_status table_check_mapped(const cuda_table *t, stow_addr addr, uint64_t bytes,
                               const char *what);
/* Forgets the mappings in it; it was checked before. */
void table_unmap(cuda_table *t, stow_addr addr, uint64_t bytes);
/* Walks the mappings of a range, for closing: true with the next one at or after granule `*at`. */
bool table_next_mapping(const cuda_table *t, const table_range *range, size_t *at, stow_addr *addr,
                        uint64_t *bytes);

stow_status table_plain_add(cuda_table *t, stow_addr addr, uint64_t bytes, stow_tier tier,
                            void *pointer);
stow_status table_plain_take(cuda_table *t, stow_addr addr, table_plain *plain);

#endif
