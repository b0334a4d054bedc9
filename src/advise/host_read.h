/* Host read: how a program reads less of a file at a time, by the call that reads it or by the name
 * of the file. */
#ifndef ADVISE_HOST_READ_H
#define ADVISE_HOST_READ_H

#include <stdbool.h>
#include <stddef.h>

#include "run/host_record.h"

/* Writes how to read JSON one record at a time. The prefix of ijson depends on where the list is.
 * path: the file, "" if it is not known. */
void host_read_json(char *out, size_t size, const host_record *r, const char *path);
/* Writes how to read less of a file, by the call in `source` that reads it, else by the end of its
 * name. source: a line of the program, or NULL. */
void host_read_in_parts(char *out, size_t size, const host_record *r, const char *path,
                        const char *source);
/* Returns whether a line calls one of those. */
bool host_read_is_known(const char *source);
/* Returns whether `stowage inspect` reads such a file, as far as its name shows. */
bool host_read_inspected(const char *path);

#endif
