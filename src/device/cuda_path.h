/* Cuda path: finds NVIDIA's driver library without asking the loader by name.
 *
 * The shim calls it: in its process the name libcuda.so.1 means the shim itself, so the real
 * library must be opened by path. `stowage run` calls it to check whether there is a driver at all.
 * The order is the loader's: only $STOWAGE_LIBCUDA if set, LD_LIBRARY_PATH, the loader's cache, the
 * folders that distributions and containers use. */
#ifndef DEVICE_CUDA_PATH_H
#define DEVICE_CUDA_PATH_H

#include <stdbool.h>
#include <stddef.h>

#define CUDA_PATH_MAX 4096

/* Called with the path of each candidate, best first; returns true to stop. */
typedef bool (*cuda_path_visit)(void *user, const char *path);

/* Calls `visit` for each candidate. Returns whether a visit stopped. Visits only existing files;
 * may visit a file twice. */
bool cuda_path_each(cuda_path_visit visit, void *user);

/* Does the same for the file `name` in the folder of each driver library, where NVIDIA ships
 * related files. */
bool cuda_path_beside(const char *name, cuda_path_visit visit, void *user);

/* Does the same for a loader cache in memory; for tests, and used by the functions above. Invalid
 * bytes yield nothing. */
bool cuda_path_in_cache(const void *bytes, size_t size, cuda_path_visit visit, void *user);

/* Returns whether both paths are the same file, following links. The shim must not load itself as
 * the driver. */
bool cuda_path_same(const char *a, const char *b);

#endif
