/* Nvml: what NVIDIA's management library says about the cards and who uses them.
 *
 * For `info`, `doctor` and what watches a running machine. Found at run time (libnvidia-ml.so.1, or
 * the file $STOWAGE_LIBNVML names); where it is missing or too old the answer is "not known" with
 * the reason, never a failure of anything else. Needs no CUDA context, so asking costs no memory on
 * a card. Cards are counted here as the machine has them; CUDA_VISIBLE_DEVICES changes nothing, so
 * match them to devices by UUID. */
#ifndef WATCH_NVML_H
#define WATCH_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct nvml nvml;

/* Opens it. STOW_ERR_NOT_FOUND: not here, or it could not start; the message says why. */
stow_status nvml_open(nvml **n);
void nvml_close(nvml *n);

/* The kernel driver's version ("580.95.05") and the library's own; "" where not told. */
const char *nvml_driver_version(const nvml *n);
const char *nvml_library_version(const nvml *n);

int nvml_count(const nvml *n);

typedef struct nvml_card {
  char uuid[96]; /* "GPU-…" */
  char name[96];
  bool memory_known;
  uint64_t total_bytes, used_bytes, free_bytes;
  uint64_t reserved_bytes; /* by the driver itself; 0 where an old library counts it as used */
} nvml_card;

stow_status nvml_card_at(nvml *n, int index, nvml_card *card);
/* The index of the card with that UUID; STOW_ERR_NOT_FOUND if there is none. */
stow_status nvml_find(nvml *n, const char *uuid, int *index);

/* Bytes a second over a card's bus, both ways together, during the last twenty milliseconds (which
 * it takes, twice). STOW_ERR_UNSUPPORTED: the library or the card does not tell. */
stow_status nvml_bus_rate(nvml *n, int index, uint64_t *bytes_s);

typedef struct nvml_process {
  unsigned pid;  /* as the machine's first namespace counts; see name */
  char name[32]; /* from /proc; "" where not known, as inside a container, where pids differ */
  bool bytes_known;
  uint64_t bytes; /* held on the card */
} nvml_process;

/* Programs that compute on a card now. Writes at most `max`, and how many there are to `*count`. */
stow_status nvml_processes(nvml *n, int index, nvml_process *processes, int max, int *count);

#endif
