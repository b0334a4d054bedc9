/* Library: shared libraries that are loaded at run time if they are installed.
 *
 * Used for liblzma, libcurl, libhdf5, MPI, NVML and ncurses. The CUDA driver has its own loader
 * (device/cuda_driver.c), because its functions depend on the driver's version. */
#ifndef BASE_LIBRARY_H
#define BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

enum { LIBRARY_REASON_BYTES = 256 };

typedef struct library_symbol {
  const char *name;
  void *to; /* the address of the function pointer, or of the pointer to the object */
} library_symbol;

/* Opens the library that the environment variable `variable` names. If it is not set, opens the
 * first of `names` (which ends with NULL) that loads. `variable` may be NULL. A setuid program
 * ignores the variable: its caller must not choose what it loads. With `global`, libraries that are
 * loaded later can use its symbols. Returns a handle for dlclose, or NULL and the loader's reason.
 */
void *library_open(const char *variable, const char *const *names, bool global,
                   char reason[LIBRARY_REASON_BYTES]);

/* Writes the address of `name` to the pointer at `to`, or NULL if the library does not have it.
 * Returns whether it was found. */
bool library_find(void *library, const char *name, void *to);

/* Finds all symbols. Stops at the first one that is missing, names it in `reason` and returns
 * false. */
bool library_find_all(void *library, const library_symbol *symbols, size_t count,
                      char reason[LIBRARY_REASON_BYTES]);

#endif
