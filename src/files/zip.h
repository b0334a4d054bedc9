/* Zip: the members of a ZIP archive (an .npz) from its central directory, and their bytes.
 *
 * Every local header is checked against the central directory. Rejected, with offset and reason:
 * members that overlap, are duplicated, encrypted or spread over several disks; absolute names;
 * names with '..', '\\' or NUL; sizes past the end of the file; methods other than stored and
 * deflated; a wrong checksum; members that inflate to another size than declared. Supports ZIP64.
 * Memory: the directory (bounded by the caller) and one window per open member. */
#ifndef FILES_ZIP_H
#define FILES_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "files/source.h"
#include "files/zip_sums.h"

#define ZIP_NAME_MAX 512

/* Returns whether a part of a member's name, between slashes, begins at `at` and is "..", which
 * leads out of its folder. A name may contain two dots ("No..npy"). */
bool zip_name_leads_out(const char *name, const char *at);
#define ZIP_STORED   0
#define ZIP_DEFLATED 8

typedef struct zip_entry {
  const char *name; /* terminated with '\0' */
  uint16_t method;
  uint32_t crc;
  uint64_t stored_bytes, bytes; /* size in the archive; size after inflating */
  uint64_t offset;              /* offset of the member's bytes, after its local header */
  uint64_t header_offset;
} zip_entry;

typedef struct zip {
  source *from;
  zip_entry *entries;
  size_t count;
  char *names;
  const zip_entry **by_name; /* `all` of them, sorted; for zip_find */
  size_t all;
} zip;

/* Reads and checks the directory with at most `max_bytes` of memory. The caller owns the source,
 * which must outlive the zip. Names may
 * have folders; one that begins with '/' or contains ".." or '\\' is refused. */
stow_status zip_open(zip *z, source *from, uint64_t max_bytes);
void zip_close(zip *z);
/* Returns NULL if there is no such member. */
const zip_entry *zip_find(const zip *z, const char *name);

/* One member's bytes, at any offset. Going back in a deflated member restarts at its beginning. */
typedef struct zip_member {
  source *from;
  const zip_entry *entry;
  void *inflater; /* z_stream; NULL for a stored member */
  uint8_t *window;
  uint64_t window_at; /* next stored byte to read into the window, from the member's start */
  uint64_t at;        /* next byte that inflating yields */
  uint64_t summed;    /* bytes from the start that `crc` covers; checked at the end */
  unsigned long crc;
  zip_sums *sums; /* owned by the caller; NULL: `summed` and `crc` instead */
} zip_member;

stow_status zip_member_open(zip_member *m, source *from, const zip_entry *entry);
void zip_member_close(zip_member *m);
/* Checks a stored member together with its other readers, from now on. */
void zip_member_share(zip_member *m, zip_sums *sums);
stow_status zip_member_read(zip_member *m, uint64_t offset, void *to, size_t count);

#endif
