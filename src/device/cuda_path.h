/* Cuda path: where NVIDIA's driver library lies, found without asking the loader by name.
 *
 * The shim calls it: in its process the name libcuda.so.1 means the shim itself, so the real one
 * has to be opened by path. `stowage run` calls it to see whether there is a driver at all. The
 * order is the loader's own: $STOWAGE_LIBCUDA alone if set, LD_LIBRARY_PATH, the loader's cache,
 * the folders distributions and containers use. */
#ifndef DEVICE_CUDA_PATH_H
#define DEVICE_CUDA_PATH_H

#include <stdbool.h>
#include <stddef.h>

#define CUDA_PATH_MAX 4096

/* Called with the path of each file that may be it, best first; returns true to stop there. */
typedef bool (*cuda_path_visit)(void *user, const char *path);

/* True if a visit said to stop. Only files that exist are shown; a file may be shown twice. */
bool cuda_path_each(cuda_path_visit visit, void *user);

/* The same for the file `name` in the folder of each driver library: what NVIDIA ships with it. */
bool cuda_path_beside(const char *name, cuda_path_visit visit, void *user);

/* The same over a loader's cache held in memory: for tests, and used by the above. Bytes that are
 * no cache show nothing. */
bool cuda_path_in_cache(const void *bytes, size_t size, cuda_path_visit visit, void *user);

/* Do both name the same file, links followed? The shim must not take itself for the driver. */
bool cuda_path_same(const char *a, const char *b);

#endif
