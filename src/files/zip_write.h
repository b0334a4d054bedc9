/* Zip writer: archives that NumPy and SciPy read: members stored or deflated, ZIP64 throughout.
 *
 * Deflated members are made of blocks of 16 MiB, each a stream of its own that ends at a byte (as
 * pigz does it): what is made of a block depends on its bytes alone, so one that was stopped goes
 * on from a block's start to the same bytes.
 *
 * A stored member's size is given first, so that several can be filled side by side (the columns of
 * a table); a deflated one must be the last begun and is filled before the next. Called by shrink.
 */
#ifndef FILES_ZIP_WRITE_H
#define FILES_ZIP_WRITE_H

#include "base/hash.h"
#include "files/writer.h"
#include "files/zip.h"

/* How far a member is. */
typedef struct zip_out_mark {
  uint64_t filled, stored_bytes; /* bytes given; bytes in the file */
  uint64_t crc;                  /* of those given */
} zip_out_mark;

typedef struct zip_out_member {
  char *name;
  uint64_t header_offset, offset;
  uint64_t bytes; /* declared; what came, for a deflated one */
  uint64_t filled, stored_bytes;
  uint32_t crc;
  uint64_t behind;    /* of a resumed one: bytes that stand in the file already and come again */
  zip_out_mark block; /* of a deflated one: where its last whole block ended */
  void *deflater;     /* z_stream while it is open */
  bool deflated;
} zip_out_member;

typedef struct zip_out {
  writer *to;
  zip_out_member *members;
  intern names; /* theirs */
  size_t count, capacity;
  uint64_t end;                /* where the next member begins */
  int level;                   /* of deflated members: zlib's, 1 to 9 */
  const zip_out_mark *resumed; /* of the members a stopped process had begun; the caller's */
  size_t resumed_count;
  bool mute; /* another process writes what zip_out_write is given; this one counts along */
} zip_out;

void zip_out_begin(zip_out *z, writer *to);
/* A member of exactly `bytes`; *number names it in the calls below. STOW_ERR_INVALID for a name
 * that stands already. */
stow_status zip_out_add(zip_out *z, size_t *number, const char *name, uint64_t bytes, bool deflate);
/* Its next bytes. Those that stand there already, in a resumed archive, are passed over. */
stow_status zip_out_write(zip_out *z, size_t number, const void *bytes, size_t count);
/* `count` of those need not be given: not more than `behind` says. */
void zip_out_pass(zip_out *z, size_t number, uint64_t count);
/* How far the member is for a process that resumes: `resumed` of its zip_out, from the first on. */
zip_out_mark zip_out_marked(const zip_out *z, size_t number);
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
