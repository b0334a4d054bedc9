/* Source: the bytes of one file, read at any offset with explicit reads (never a mapping).
 *
 * Called by every reader of data files. Guarantees: exactly the bytes asked for or an error that
 * names the offset; a file that was cut or changed while it was read is noticed; page cache that
 * our reading filled is given back behind us where the file is large beside the host's memory. */
#ifndef FILES_SOURCE_H
#define FILES_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Bytes that are neither in a file nor in memory: behind a server, behind a program's own reader.
 * The functions fill the thread's message when they fail. */
typedef struct source_reader {
  stow_status (*read)(void *user, uint64_t offset, void *to, size_t count);
  stow_status (*check)(void *user); /* still what was opened? NULL: cannot be asked */
  void (*close)(void *user);        /* NULL: the caller closes */
  /* Sets *count to the number of bytes from `offset` on that repeat one item, and copies the item;
   * 0: not known to be constant. NULL: never known. */
  stow_status (*repeats)(void *user, uint64_t offset, uint64_t *count, uint8_t item[8]);
  void *user;
} source_reader;

typedef struct source {
  int fd;                /* -1: reads from memory, or through `reader` */
  const uint8_t *memory; /* the caller keeps it */
  source_reader reader;
  uint64_t bytes;
  const char *name;            /* for messages; the caller keeps it */
  bool drop;                   /* give page cache back behind what is read */
  uint64_t drop_from, drop_to; /* read since it was last given back, without a gap */
  uint64_t drop_bytes;         /* given back in pieces of this size */
  int direct_fd;               /* reads past the page cache; -1: none */
  uint8_t *bounce;             /* the caller's; NULL: no direct reads */
  size_t bounce_bytes;
  bool room; /* what lies around the bytes asked for is the reader's to overwrite: see below */
  uint64_t device, inode, changed_ns;
} source;

/* Opens the regular file at `path`, which must outlive the source, or an http(s) URL
 * (source_open.c, remote.h). STOW_ERR_NOT_FOUND, STOW_ERR_IO; STOW_ERR_INVALID for what is no
 * regular file (a folder, a pipe: it could not be read twice). */
stow_status source_open(source *s, const char *path);
/* The same for a file only: `path` is never taken for a URL. */
stow_status source_open_file(source *s, const char *path);
/* The same over bytes in memory (tests, fuzzing). */
void source_open_memory(source *s, const void *bytes, size_t count, const char *name);
/* The same through a reader, which has `bytes` bytes. */
void source_open_reader(source *s, const source_reader *reader, uint64_t bytes, const char *name);
void source_close(source *s);
/* Offsets, lengths and addresses of direct reads are multiples of this: the largest block that
 * disks have. */
#define SOURCE_DIRECT_UNIT UINT64_C(4096)
/* Reads of some size go past the page cache from now on, through `bounce`, which is the caller's,
 * at a multiple of the unit, and of two units more than is read at a time (or the ends take a read
 * of their own): faster than filling the cache and giving it back, and nothing is ever charged for
 * it. Where the file system does not allow that, everything stays as it was. */
void source_go_direct(source *s, void *bounce, size_t bounce_bytes);
/* A smaller read costs less through the page cache. */
#define SOURCE_DIRECT_LEAST (UINT64_C(128) << 10)
/* While `room` is set, a direct read whose memory lies to a multiple of the unit as its offset does
 * goes straight there: the whole units that hold its first and its last byte are overwritten. */
/* Reads through the other's open file, which is the same file: the kernel, which reads ahead for
 * each open file, sees one reader go through it instead of several that jump. */
void source_share(source *s, const source *with);
/* True for a file that would fill more than half of what the host may still give: reading it leaves
 * nothing cached. */
bool source_too_large_to_cache(uint64_t bytes);

/* Reads exactly `count` bytes at `offset`. Past the end is STOW_ERR_FORMAT with both numbers. */
stow_status source_read(source *s, uint64_t offset, void *to, size_t count);
/* STOW_ERR_IO if the file is no longer the one that was opened: grown, cut or written to. Ask after
 * the last read. */
stow_status source_check(const source *s);

static inline uint16_t source_u16(const uint8_t *at) {
  return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t source_u32(const uint8_t *at) {
  return source_u16(at) | (uint32_t)source_u16(at + 2) << 16;
}

static inline uint64_t source_u64(const uint8_t *at) {
  return source_u32(at) | (uint64_t)source_u32(at + 4) << 32;
}

#endif
