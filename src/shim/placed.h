/* Placed: large plain requests (one big cudaMalloc, the pools of TensorFlow and CuPy) in runs with
 * spilling. Each is a separate range mapped with a run of pages (page_run.h), as in a program that
 * maps its own memory, so that resident.c can move them. */
#ifndef SHIM_PLACED_H
#define SHIM_PLACED_H

#include "shim/account.h"

/* Returns whether a request of this size on this device is built from pages. */
bool placed_wanted(unsigned device, uint64_t bytes);

/* Allocates a block. CU_ERROR_OUT_OF_MEMORY: neither tier has space. CU_ERROR_NOT_SUPPORTED: use
 * another way. */
cu_result placed_alloc(cu_addr *addr, uint64_t bytes, unsigned device, cu_device ordinal,
                       cu_context context);

typedef struct placed_block {
  cu_addr base;
  uint64_t bytes; /* as requested */
  unsigned device;
  cu_device ordinal;
  cu_context context;
} placed_block;

/* Frees the block that begins there, after the work of its context. Returns false if there is
 * none. */
bool placed_free(cu_addr addr, placed_block *gone, cu_result *code);
/* Finds the block that contains an address. Cheap while there are no blocks. */
bool placed_find(cu_addr addr, placed_block *block);
/* Called when a context ended, with its memory (NULL: all of the device). */
void placed_context_ended(unsigned device, cu_context context);

#endif
