/* Cuda table: everything that we hold on a device: ranges, pages, mappings, plain allocations,
 * streams and events.
 *
 * The cuda backend uses it to check the contract's preconditions before it calls the driver (which
 * allows the release of a mapped page, and reports little when it refuses), and to free leftovers
 * on close. A call that fails changes nothing. Not locked: the backend holds its lock around each
 * call, never around the driver. */
#ifndef DEVICE_CUDA_TABLE_H
#define DEVICE_CUDA_TABLE_H

#include <stdbool.h>

#include <stowage/sys/device.h>

#include "base/hash.h"
#include "base/status.h"

/* One live page. Freed only by table_page_remove, which requires `mapped` to be 0. */
typedef struct table_page {
  stow_page handle;
  uint64_t bytes;
  stow_tier tier;
  uint32_t mapped; /* number of addresses it is mapped at */
} table_page;

/* One reserved range. `slots` has one entry per granule (page_bytes):
 *   0            nothing is mapped
 *   page         a mapping of that page begins here
 *   page | 1     the mapping continues (records are aligned, so the lowest bit is free)
 * Allocated zeroed, so a large range that is little used costs little. */
typedef struct table_range {
  stow_addr addr;
  uint64_t bytes;
  stow_addr outer_addr; /* as returned by the driver; larger if the driver did not align it */
  uint64_t outer_bytes;
  uint64_t mapped_bytes;
  uintptr_t *slots;
} table_range;

typedef struct table_plain {
  uint64_t bytes;
  stow_tier tier;
  void *pointer; /* the host address of a host allocation */
} table_plain;

typedef struct cuda_table {
  uint64_t granule;
  table_range *ranges; /* sorted by address */
  size_t range_count, range_capacity;
  map pages;  /* handle -> table_page * */
  map plains; /* address -> table_plain * */
  map streams, events;
  uint64_t page_bytes[STOW_TIER_COUNT]; /* bytes of live pages by tier */
} cuda_table;

void table_init(cuda_table *t, uint64_t granule);
/* Frees the table itself; the caller must first free what it lists. */
void table_free(cuda_table *t);

stow_status table_range_add(cuda_table *t, const table_range *range);
/* Removes exactly that range if nothing is mapped in it; STOW_ERR_STATE otherwise. The caller then
 * owns `*range` with its slots: table_range_free, or table_range_back if the driver refused. */
stow_status table_range_take(cuda_table *t, stow_addr addr, uint64_t bytes, table_range *range);
void table_range_back(cuda_table *t, const table_range *range);
void table_range_free(table_range *range);

stow_status table_page_add(cuda_table *t, stow_page handle, uint64_t bytes, stow_tier tier);
/* Removes a page that is not mapped; STOW_ERR_STATE otherwise. `*page` is a copy for table_page_add
 * in case the driver refuses. */
stow_status table_page_take(cuda_table *t, stow_page handle, table_page *page);

/* Records the mapping before the driver makes it. Returns STOW_ERR_INVALID or STOW_ERR_STATE as the
 * contract says. */
stow_status table_map(cuda_table *t, stow_addr addr, uint64_t bytes, stow_page handle);
/* Returns STOW_OK if [addr, addr+bytes) is one or more whole mappings without a gap; `what` begins
 * the message. */
stow_status table_check_mapped(const cuda_table *t, stow_addr addr, uint64_t bytes,
                               const char *what);
/* Removes the mappings in the range, which must have been checked. */
void table_unmap(cuda_table *t, stow_addr addr, uint64_t bytes);
/* Iterates over the mappings of a range, for closing. Returns true and the next mapping at or after
 * granule `*at`. */
bool table_next_mapping(const cuda_table *t, const table_range *range, size_t *at, stow_addr *addr,
                        uint64_t *bytes);

stow_status table_plain_add(cuda_table *t, stow_addr addr, uint64_t bytes, stow_tier tier,
                            void *pointer);
stow_status table_plain_take(cuda_table *t, stow_addr addr, table_plain *plain);

#endif
