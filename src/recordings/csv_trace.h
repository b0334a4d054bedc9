/* CSV traces: reads RMM's replay log and minimalloc's problems into a recording.
 *
 * Both are read line by line. A row that makes the whole file unusable is an error with its line
 * number; other bad rows are counted and skipped. */
#ifndef RECORDINGS_CSV_TRACE_H
#define RECORDINGS_CSV_TRACE_H

#include "files/input.h"
#include "recordings/recording.h"

#define CSV_TRACE_FIELDS 16

/* One row, split at commas; quotes ("a ""b""") are removed in place. */
typedef struct csv_row {
  char text[1024];
  char *fields[CSV_TRACE_FIELDS];
  size_t count;
  uint64_t line; /* line of the file, from 1 */
} csv_row;

/* Reads the next non-empty row; *more is false at the end. */
stow_status csv_row_next(csv_row *row, input *in, bool *more);
/* Returns the field with this heading, ignoring case; -1 if none. */
int csv_row_find(const csv_row *row, const char *heading);
/* Parses a whole number, decimal or 0x…; returns false for anything else. */
bool csv_number(const char *text, uint64_t *value);

/* Thread,Time,Action,Pointer,Size,Stream. */
stow_status rmm_log_read(recording *r, input *in, uint64_t max_work_bytes);
/* Reads id,lower,upper,size[,offset…]: each row is one buffer, live in [lower, upper). */
stow_status minimalloc_read(recording *r, input *in, uint64_t max_work_bytes);

#endif
