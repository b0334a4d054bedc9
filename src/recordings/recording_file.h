/* Recording files: any recording this software reads, by path, into the one model.
 *
 * Called by every verb that takes a trace. The kind is told by the contents, not the name; `kind`
 * overrides where the contents cannot tell. */
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

/* Bounds for one file; zero fields mean the defaults. */
typedef struct recording_limits {
  input_limits input;
  uint64_t max_work_bytes; /* beyond the recording itself; default 512 MiB */
} recording_limits;

/* Reads `path` ("-": standard input) into `r`, which is empty (recording_init; its max_bytes
 * bounds it). On failure `r` is empty again and the message names the place. */
stow_status recording_read(recording *r, const char *path, recording_kind kind,
                           const recording_limits *limits);
/* The same from an open input, which stays the caller's. */
stow_status recording_read_input(recording *r, input *in, recording_kind kind,
                                 uint64_t max_work_bytes);

/* What the first bytes of an open input say; KIND_AUTO if it is no recording. The input stays where
 * it is. */
stow_status recording_sniff(recording_kind *kind, input *in);

/* Writes `r` to `path` ("-": standard output; a name ending in .gz is compressed). The file is the
 * old one or the complete new one. *left_out (may be NULL): events the format has no word for. */
stow_status recording_write(const recording *r, const char *path, recording_kind kind,
                            uint64_t *left_out);

/* "snapshot", "stow", …; KIND_COUNT if there is none of that name. */
const char *recording_kind_name(recording_kind kind);
recording_kind recording_kind_named(const char *name);
/* By the ending of a file's name; KIND_AUTO if it says nothing. */
recording_kind recording_kind_of_path(const char *path);

#endif
