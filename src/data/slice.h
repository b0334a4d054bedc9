/* Slice: arrays of an archive whose directory was read once. Called by arrow, which opens all
 * columns of a table; stowage/array.h has the rest. */
#ifndef DATA_SLICE_H
#define DATA_SLICE_H

#include <stowage/array.h>

#include "files/zip.h"

/* Opens a member of an archive; both must outlive the array. One thread at a time may use the
 * arrays of an archive. */
stow_status slice_open_member(stow_array **out, source *from, const zip_entry *entry);

#endif
