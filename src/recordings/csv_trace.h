/* CSV traces: RMM's replay log and minimalloc's problems, into a recording.
 *
 * Both are read a line at a time; a row that is not understood is an error with its line number
 * where the file cannot be what it says, and is counted where the rest is usable. */
#ifndef RECORDINGS_CSV_TRACE_H
#define RECORDINGS_CSV_TRACE_H

#include "files/input.h"
#include "recordings/recording.h"

#define CSV_TRACE_FIELDS 16

/* One row, split at commas; quotes ("a ""b""") are taken off in place. */
typedef struct csv_row {
  char text[1024];
  char *fields[CSV_TRACE_FIELDS];
  size_t count;
  uint64_t line; /* of the file, from 1 */
} csv_row;

/* The next row that is not empty; *more false at the end. */
stow_status csv_row_next(csv_row *row, input *in, bool *more);
/* Which field has this heading, in any case; -1 if none. */
int csv_row_find(const csv_row *row, const char *heading);
/* A whole number, decimal or 0x…; false if it is anything else. */
bool csv_number(const char *text, uint64_t *value);

/* Thread,Time,Action,Pointer,Size,Stream. */
stow_status rmm_log_read(recording *r, input *in, uint64_t max_work_bytes);
/* id,lower,upper,size[,offset…]: each row is one buffer, live in [lower, upper). */
stow_status minimalloc_read(recording *r, input *in, uint64_t max_work_bytes);

#endif
