/* Zip writer: archives that NumPy and SciPy read: members stored or deflated, ZIP64 throughout.
 *
 * A deflated member consists of blocks of 16 MiB, each an independent stream that ends at a byte
 * boundary (as in pigz). The output of a block depends only on its bytes, so an interrupted run
 * resumes at the start of a block and produces the same bytes.
 *
 * A stored member's size is given first, so that several can be filled in parallel (the columns
 * of a table). A deflated one must be the last added and is filled before the next. Called by
 * shrink. */
#ifndef FILES_ZIP_WRITE_H
#define FILES_ZIP_WRITE_H

#include "base/hash.h"
#include "files/writer.h"
#include "files/zip.h"

/* The progress of a member. */
typedef struct zip_out_mark {
  uint64_t filled, stored_bytes; /* bytes received; bytes in the file */
  uint64_t crc;                  /* checksum of the bytes received */
} zip_out_mark;

typedef struct zip_out_member {
  char *name;
  uint64_t header_offset, offset;
  uint64_t bytes; /* declared; for a deflated member, received */
  uint64_t filled, stored_bytes;
  uint32_t crc;
  uint64_t behind;    /* for a resumed member: bytes already in the file that will be passed
                       * again */
  zip_out_mark block; /* for a deflated member: the end of its last complete block */
  void *deflater;     /* z_stream while open */
  bool deflated;
} zip_out_member;

typedef struct zip_out {
  writer *to;
  zip_out_member *members;
  intern names; /* names of the members */
  size_t count, capacity;
  uint64_t end;                /* where the next member begins */
  int level;                   /* zlib level for deflated members, 1 to 9 */
  const zip_out_mark *resumed; /* members that an interrupted process had started; owned by the
                                * caller */
  size_t resumed_count;
  bool mute; /* another process writes the bytes given to zip_out_write; this one only counts */
} zip_out;

void zip_out_begin(zip_out *z, writer *to);
/* Adds a member of exactly `bytes`; *number names it in the calls below. STOW_ERR_INVALID for a
 * duplicate name. */
stow_status zip_out_add(zip_out *z, size_t *number, const char *name, uint64_t bytes, bool deflate);
/* Appends the next bytes. In a resumed archive, skips those already in the file. */
stow_status zip_out_write(zip_out *z, size_t number, const void *bytes, size_t count);
/* Skips `count` bytes that need not be passed: at most `behind`. */
void zip_out_pass(zip_out *z, size_t number, uint64_t count);
/* Returns a member's progress, for a process that resumes: the elements of `resumed`. */
zip_out_mark zip_out_marked(const zip_out *z, size_t number);
/* Writes bytes at offset `at` of a stored member. Several processes may fill the same members, each
 * with its own zip_out. The bytes are not counted yet. */
stow_status zip_out_put(const zip_out *z, size_t number, uint64_t at, const void *bytes,
                        size_t count);
/* Counts `count` bytes with this checksum that are already in the file; they must be the next
 * ones. */
stow_status zip_out_took(zip_out *z, size_t number, uint64_t count, uint32_t crc);
/* Ends every member and writes the directory. STOW_ERR_STATE if one is incomplete. */
stow_status zip_out_finish(zip_out *z);
void zip_out_free(zip_out *z);

#endif
