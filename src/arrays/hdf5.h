/* Hdf5: the datasets of an HDF5 file, read by libhdf5 in a separate process.
 *
 *   hdf5 *h; hdf5_open(&h, "x.h5", NULL, budget_bytes); … hdf5_source(&s, h, 0, false); …
 * hdf5_close(h);
 *
 *   this process                         the worker: `stowage hdf5-reader` (hdf5_worker.c)
 *   hdf5.c       list, parts, messages
 *   hdf5_child.c ── hdf5_wire.h, a socket ──► hdf5_file.c ── libhdf5, found at run time
 *                ◄── values, shared memory ──
 *
 * libhdf5 crashes on some damaged files, and allocates as much memory as a file declares. The
 * worker has a memory limit, a limit on CPU time without progress, and no right to start programs,
 * to write files or to use the network. Its end is an error message here. Every answer of the
 * worker is checked, as the bytes of a file are.
 *
 * Called by the array reader and by inspect. Values are read in parts that follow the chunks. If
 * a dataset is stored contiguously, or in chunks without a filter, libhdf5 reports only the
 * offsets, and this process reads it (hdf5_grid.h). No file makes us open another one. One handle
 * is for one thread at a time; several handles can be used in parallel. A handle that a forked
 * child inherits works there with a worker of its own. */
#ifndef ARRAYS_HDF5_H
#define ARRAYS_HDF5_H

#include "arrays/hdf5_dataset.h"
#include "files/source.h"

typedef struct hdf5 hdf5;

/* Sets *found if an HDF5 file begins at byte 0 or behind a user block. */
stow_status hdf5_find(bool *found, source *from);

/* Opens the file and lists its datasets, or only the one called `only`; NULL: all. Of
 * `budget_bytes`, at most an eighth goes to the list, a quarter to a part of the values, and a half
 * to the worker, which also holds libhdf5 (about 10 MiB). STOW_ERR_UNSUPPORTED without libhdf5,
 * with what to install; STOW_ERR_FORMAT for a file that libhdf5 refuses or fails on;
 * STOW_ERR_NOT_FOUND if there is no dataset `only`. */
stow_status hdf5_open(hdf5 **h, const char *path, const char *only, uint64_t budget_bytes);
void hdf5_close(hdf5 *h);

size_t hdf5_count(const hdf5 *h);
const hdf5_dataset *hdf5_get(const hdf5 *h, size_t number);

/* Returns why datasets of a type that is not read (hdf5_dataset.type_name) are left out, and what
 * to do. */
const char *hdf5_reason(const char *type_name);

/* Opens the values of dataset `number`, item after item in C order and the machine's byte order, as
 * a source that lives no longer than `h`; with `owns_file` closing it closes `h`. STOW_ERR_BUDGET,
 * with the budget that suffices, if a chunk is too large to decode. */
stow_status hdf5_source(source *s, hdf5 *h, size_t number, bool owns_file);
/* Returns the memory that reading dataset `number` takes: a part of the values, and the chunks that
 * libhdf5 unpacks. */
uint64_t hdf5_held(const hdf5 *h, size_t number);
/* Returns the number of rows that are best read together, from a multiple of it on: whole chunks.
 * It does not depend on the budget. 0: any number. */
uint64_t hdf5_band_rows(const hdf5_dataset *d);

/* Returns the largest peak of resident memory of a worker that has ended. */
uint64_t hdf5_worker_peak(void);

#endif
