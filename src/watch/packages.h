/* Packages: the frameworks that the python3 on PATH would import, found in its folders. Imports
 * nothing: asking Python for its path takes tens of milliseconds, importing torch takes seconds. */
#ifndef WATCH_PACKAGES_H
#define WATCH_PACKAGES_H

#include <stddef.h>

#include "base/status.h"

#define PACKAGES_MAX 8

typedef struct package {
  char name[32]; /* as installed: "torch", "cupy_cuda12x" */
  char version[48];
} package;

typedef struct packages {
  char python[16];             /* "3.11.7" */
  char interpreter[256];       /* sys.executable */
  package found[PACKAGES_MAX]; /* those of torch, jax, tensorflow, cupy, numpy that are installed */
  size_t count;
} packages;

/* Finds the packages. STOW_ERR_NOT_FOUND: no python3 on PATH. STOW_ERR_IO: python3 did not respond
 * within five seconds, or its answer cannot be parsed. */
stow_status packages_find(packages *all);

#endif
