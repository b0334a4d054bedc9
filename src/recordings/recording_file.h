/* Recording files: reads any supported recording by path into the common model.
 *
 * Called by every verb that takes a trace. The contents determine the kind, not the name; `kind`
 * overrides it for ambiguous contents. */
#ifndef RECORDINGS_RECORDING_FILE_H
#define RECORDINGS_RECORDING_FILE_H

#include "files/input.h"
#include "recordings/recording.h"

typedef enum recording_kind {
  KIND_AUTO = 0,
  KIND_STOW,        /* .stow */
  KIND_SNAPSHOT,    /* .pickle, .pkl, .pickle.gz: PyTorch */
  KIND_RMM,         /* .csv with RMM's header */
  KIND_MINIMALLOC,  /* .csv: id,lower,upper,size */
  KIND_PERFETTO,    /* .json, written only */
  KIND_PFTRACE,     /* .pftrace, .perfetto-trace, written only */
  KIND_TENSORBOARD, /* events.out.tfevents.*, .tfevents, written only */
  KIND_CSV,         /* .csv, written only */
  KIND_COUNT
} recording_kind;

/* Bounds for one file; a zero field means the default. */
typedef struct recording_limits {
  input_limits input;
  uint64_t max_work_bytes; /* in addition to the recording itself; default 512 MiB */
} recording_limits;

/* Reads `path` ("-": standard input) into `r`, which must be empty (recording_init; its max_bytes
 * bounds it). On failure `r` is empty again and the message names the position. */
stow_status recording_read(recording *r, const char *path, recording_kind kind,
                           const recording_limits *limits);
/* Reads from an open input, which stays the caller's. */
stow_status recording_read_input(recording *r, input *in, recording_kind kind,
                                 uint64_t max_work_bytes);

/* Detects the kind from the first bytes of an open input; KIND_AUTO if it is not a recording.
 * Consumes nothing. */
stow_status recording_sniff(recording_kind *kind, input *in);

/* Writes `r` to `path` ("-": standard output; a name ending in .gz is compressed). The result is
 * the old file or the complete new one. *left_out (may be NULL) counts events that the format
 * cannot express. */
stow_status recording_write(const recording *r, const char *path, recording_kind kind,
                            uint64_t *left_out);

/* Return "snapshot", "stow", …; KIND_COUNT if there is no such name. */
const char *recording_kind_name(recording_kind kind);
recording_kind recording_kind_named(const char *name);
/* Returns the kind for the ending of a file name; KIND_AUTO if unknown. */
recording_kind recording_kind_of_path(const char *path);

#endif
