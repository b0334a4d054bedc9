/* Zip: the members of a ZIP archive (an .npz), by its central directory, and their bytes.
 *
 * The central directory is believed, then held against every local header. Refused, with the offset
 * and the reason: members that overlap, stand twice, are encrypted or spread over several disks,
 * names with '/', '..' or NUL, sizes past the end of the file, methods other than stored and
 * deflated, a wrong checksum, and members that inflate to another size than they declare. ZIP64
 * throughout. Memory: the directory (bounded by the caller) and one window for each open member. */
#ifndef FILES_ZIP_H
#define FILES_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "files/source.h"

#define ZIP_NAME_MAX 512
#define ZIP_STORED   0
#define ZIP_DEFLATED 8

typedef struct zip_entry {
  const char *name; /* ended with '\0' */
  uint16_t method;
  uint32_t crc;
  uint64_t stored_bytes, bytes; /* in the archive; after inflating */
  uint64_t offset;              /* of the member's bytes, behind its local header */
  uint64_t header_offset;
} zip_entry;

typedef struct zip {
  source *from;
  zip_entry *entries;
  size_t count;
  char *names;
  bool folders; /* names may have folders */
} zip;

/* Reads and checks the directory, using at most `max_bytes` of memory. The source is the caller's
 * and must outlive the zip. */
stow_status zip_open(zip *z, source *from, uint64_t max_bytes);
/* The same for archives whose names have folders ("archive/data/0"), as PyTorch writes them. Names
 * that begin with '/' or contain ".." or '\\' are still refused. */
stow_status zip_open_folders(zip *z, source *from, uint64_t max_bytes);
void zip_close(zip *z);
/* NULL if there is none. */
const zip_entry *zip_find(const zip *z, const char *name);

/* One member's bytes, at any offset. Going back in a deflated one begins again at its start. */
typedef struct zip_member {
  source *from;
  const zip_entry *entry;
  void *inflater; /* z_stream; NULL for a stored member */
  uint8_t *window;
  uint64_t window_at; /* next stored byte to bring into the window, from the member's start */
  uint64_t at;        /* next byte that inflating gives */
  uint64_t summed;    /* bytes from the start that `crc` covers; the end is checked once reached */
  unsigned long crc;
} zip_member;

stow_status zip_member_open(zip_member *m, source *from, const zip_entry *entry);
void zip_member_close(zip_member *m);
stow_status zip_member_read(zip_member *m, uint64_t offset, void *to, size_t count);

#endif
