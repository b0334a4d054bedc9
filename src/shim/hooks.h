/* The hooks: every function of hooks.def, declared as the driver does, and what a tool may ask a
 * built shim. Types are ours, of the same shape as the driver's (cuda_driver.h). */
#ifndef SHIM_HOOKS_H
#define SHIM_HOOKS_H

#include "shim/shim.h"

typedef struct CUmemPoolHandle_st *cu_pool;
typedef struct CUarray_st *cu_array; /* of plain and of mipmapped arrays */

typedef struct cu_pool_props { /* the beginning of CUmemPoolProps */
  int type;
  int handle_types; /* not 0: the pool can be exported to another process */
  cu_location location;
} cu_pool_props;

typedef struct cu_ipc_handle { /* CUipcMemHandle, passed by value */
  char bytes[64];
} cu_ipc_handle;

typedef struct cu_array_size { /* CUDA_ARRAY_DESCRIPTOR */
  size_t width, height;
  int format;
  unsigned channels;
} cu_array_size;

typedef struct cu_array3d_size { /* CUDA_ARRAY3D_DESCRIPTOR */
  size_t width, height, depth;
  int format;
  unsigned channels, flags;
} cu_array3d_size;

typedef struct cu_array_map { /* CUarrayMapInfo, as far as it is looked at */
  char where[60];
  int handle_type; /* 0: `handle` is a page's */
  cu_handle handle;
  char rest[24];
} cu_array_map;
_Static_assert(sizeof(cu_array_map) == 96, "CUarrayMapInfo is 96 bytes");

#define HOOK(name, parameters) SHIM_HOOK cu_result name parameters;
#include "shim/hooks.def"
#undef HOOK

/* The driver's own function behind a hook; NULL where this driver has none. */
#define REAL(name) ((__typeof__(&name))(uintptr_t)shim_real(SYMBOL_##name))

/* The name of hook `i`, NULL past the last. */
SHIM_HOOK const char *stow_shim_hook(size_t i);
/* Bytes this process holds of a kind ("pages", "spilled", …; NULL: all that is vram) on a device as
 * the run counts it; what is measured is measured anew for the calling thread's device. */
SHIM_HOOK uint64_t stow_shim_bytes(unsigned device, const char *kind);
/* For a program that has steps, as trim.py has it for PyTorch: 0 asks whether it should let go of
 * the pages it caches now (1: yes), 1 says that it begins to, 2 that it has, 3 that it has within a
 * step. */
SHIM_HOOK int stow_shim_trim(int what);
/* Puts the shim, loaded into a process that has the driver at that path already, beneath it. NULL:
 * done. Otherwise why not, and nothing was changed. */
SHIM_HOOK const char *stow_shim_adopt(const char *driver_path);
/* The path of the driver behind the shim, "" while none is open. */
SHIM_HOOK const char *stow_shim_driver(void);
/* The driver's own function of that name, past the shim; NULL if it has none. */
SHIM_HOOK void *stow_shim_real(const char *name);
/* The version of the shim; how another copy of it is told from a driver. */
SHIM_HOOK const char *stow_shim_version(void);

#endif
