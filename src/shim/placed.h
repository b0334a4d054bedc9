/* Placed: large plain requests (one big cudaMalloc, the pools of TensorFlow and CuPy) in runs with
 * a spill, each a range of its own that is mapped with a run of pages (page_run.h), as a program
 * that maps its own memory would do it, so that resident.c moves them. */
#ifndef SHIM_PLACED_H
#define SHIM_PLACED_H

#include "shim/account.h"

/* Returns whether a request of this size on this device is made of pages. */
bool placed_wanted(unsigned device, uint64_t bytes);

/* CU_ERROR_OUT_OF_MEMORY: neither tier has room. CU_ERROR_NOT_SUPPORTED: another way is needed. */
cu_result placed_alloc(cu_addr *addr, uint64_t bytes, unsigned device, cu_device ordinal,
                       cu_context context);

typedef struct placed_block {
  cu_addr base;
  uint64_t bytes; /* as asked for */
  unsigned device;
  cu_device ordinal;
  cu_context context;
} placed_block;

/* Frees the block that begins there, after the work of its context. False: there is none. */
bool placed_free(cu_addr addr, placed_block *gone, cu_result *code);
/* The block an address lies in. Cheap while there is none. */
bool placed_find(cu_addr addr, placed_block *block);
/* A context ended, and its memory with it (NULL: all of the device). */
void placed_context_ended(unsigned device, cu_context context);

#endif
