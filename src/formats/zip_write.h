/* Zip writer: archives that NumPy and SciPy read: members stored or deflated, ZIP64 throughout.
 *
 * A stored member's size is given first, so that several can be filled side by side (the columns of
 * a table); a deflated one must be the last begun and is filled before the next. Called by shrink.
 */
#ifndef FORMATS_ZIP_WRITE_H
#define FORMATS_ZIP_WRITE_H

#include "formats/writer.h"
#include "formats/zip.h"

typedef struct zip_out_member {
  char *name;
  uint64_t header_offset, offset;
  uint64_t bytes; /* declared; what came, for a deflated one */
  uint64_t filled, stored_bytes;
  uint32_t crc;
  void *deflater; /* z_stream while it is open */
  bool deflated;
} zip_out_member;

typedef struct zip_out {
  writer *to;
  zip_out_member *members;
  size_t count, capacity;
  uint64_t end; /* where the next member begins */
  int level;    /* of deflated members: zlib's, 1 to 9 */
  bool mute;    /* another process writes what zip_out_write is given; this one counts along */
} zip_out;

void zip_out_begin(zip_out *z, writer *to);
/* A member of exactly `bytes`; *number names it in the calls below. STOW_ERR_INVALID for a name
 * that stands already. */
stow_status zip_out_add(zip_out *z, size_t *number, const char *name, uint64_t bytes, bool deflate);
/* Its next bytes. */
stow_status zip_out_write(zip_out *z, size_t number, const void *bytes, size_t count);
/* For stored members that several processes fill, each with a zip_out of its own that was told of
 * the same members: bytes at `at` of it, which do not count yet… */
stow_status zip_out_put(const zip_out *z, size_t number, uint64_t at, const void *bytes,
                        size_t count);
/* …until they are its next ones: so many, with this checksum, stand there already. */
stow_status zip_out_took(zip_out *z, size_t number, uint64_t count, uint32_t crc);
/* Ends every member and writes the directory. STOW_ERR_STATE if one was not filled. */
stow_status zip_out_finish(zip_out *z);
void zip_out_free(zip_out *z);

#endif
