/* Recording: the memory requests of a program, read from a file.
 *
 *   stow_recording *recording;
 *   stow_recording_open(&recording, "snapshot.pickle", NULL);
 *   stow_recording_info info = STOW_RECORDING_INFO_INIT;
 *   stow_recording_get_info(recording, &info);
 *   stow_recording_close(recording);
 *
 * Reads PyTorch memory snapshots (never executes them), .stow traces, RMM logs and minimalloc
 * problems, plain or gzipped; the contents decide the kind. A recording does not change once open:
 * any number of threads may read it, and a child of fork may use its copy.
 *
 * Link with -lstowage-analysis. */
#ifndef STOWAGE_RECORDING_H
#define STOWAGE_RECORDING_H

#include <stdint.h>

#include <stowage/status.h>
#include <stowage/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_recording stow_recording;

typedef struct stow_recording_options {
  uint32_t struct_bytes; /* sizeof(stow_recording_options) */
  uint32_t reserved;     /* 0 */
  uint64_t max_bytes;    /* limit on host memory for the recording; 0: 16 GiB */
} stow_recording_options;
#define STOW_RECORDING_OPTIONS_INIT                                                                \
  { sizeof(stow_recording_options), 0, 0 }

/* Reads a whole recording; NULL options are the defaults. STOW_ERR_NOT_FOUND: no such file;
 * STOW_ERR_FORMAT: not a recording, the message names the byte; STOW_ERR_BUDGET: larger than
 * max_bytes. `*recording` is NULL on failure. */
STOW_API stow_status stow_recording_open(stow_recording **recording, const char *path,
                                         const stow_recording_options *options);
/* Makes a recording from events in memory, in their order: what a program requests, without a file.
 * `events` may be freed afterwards. Kinds: STOW_TRACE_ALLOC, STOW_TRACE_FREE_REQUESTED and
 * STOW_TRACE_FREE; `stack` and `tag` are 0. STOW_ERR_INVALID: another kind, or no events.
 * `*recording` is NULL on failure. */
STOW_API stow_status stow_recording_make(stow_recording **recording,
                                         const stow_trace_record *events, uint64_t count);
/* Closes a recording; NULL is allowed. */
STOW_API void stow_recording_close(stow_recording *recording);

typedef struct stow_recording_info {
  uint32_t struct_bytes;   /* sizeof(stow_recording_info), set by the caller */
  uint32_t complete;       /* 1: the writer finished; 0: it was stopped, or is still writing */
  uint64_t events;         /* events in the recording */
  uint64_t skipped_events; /* events that were lost before they reached the file, or not
                            * understood */
  uint64_t damaged_chunks; /* damaged chunks of a .stow file, which are dropped */
  uint64_t failures;       /* requests that ran out of memory */
  uint64_t device_bytes;   /* the size of the device; 0: unknown */
  const char *device_name; /* "": unknown; valid until the recording is closed */
  const char *error;       /* the out-of-memory message that came with it; "": none */
} stow_recording_info;
#define STOW_RECORDING_INFO_INIT                                                                   \
  { sizeof(stow_recording_info), 0, 0, 0, 0, 0, 0, NULL, NULL }

STOW_API stow_status stow_recording_get_info(const stow_recording *recording,
                                             stow_recording_info *info);

/* Writes a recording: the ending of `path` chooses the format (.stow, .pickle, .json for Perfetto,
 * .csv, .tfevents; with .gz compressed). On failure the old file stays. */
STOW_API stow_status stow_recording_save(const stow_recording *recording, const char *path);

#ifdef __cplusplus
}
#endif
#endif
