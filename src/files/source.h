/* Source: the bytes of one file, read at any offset with explicit reads (never a mapping).
 *
 * Called by every reader of data files. Guarantees: exactly the requested bytes, or an error that
 * names the offset. Detects a file that is truncated or changed while being read. Drops the page
 * cache that our reads filled if the file is large compared to the host's memory. */
#ifndef FILES_SOURCE_H
#define FILES_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Bytes that are neither in a file nor in memory: on a server, or from a program's own reader. The
 * functions set the thread's message when they fail. */
typedef struct source_reader {
  stow_status (*read)(void *user, uint64_t offset, void *to, size_t count);
  stow_status (*check)(void *user); /* is it still what was opened? NULL: unknown */
  void (*close)(void *user);        /* NULL: the caller closes */
  /* Sets *count to the number of bytes from `offset` on that repeat one item, and copies the item;
   * 0: not known to be constant. NULL: never known. */
  stow_status (*repeats)(void *user, uint64_t offset, uint64_t *count, uint8_t item[8]);
  void *user;
} source_reader;

typedef struct source {
  int fd;                /* -1: reads from memory, or through `reader` */
  const uint8_t *memory; /* owned by the caller */
  source_reader reader;
  uint64_t bytes;
  const char *name;            /* for messages; owned by the caller */
  bool drop;                   /* drop page cache after reading */
  uint64_t drop_from, drop_to; /* read contiguously since the last drop */
  uint64_t drop_bytes;         /* dropped in pieces of this size */
  int direct_fd;               /* for direct reads; -1: none */
  uint8_t *bounce;             /* owned by the caller; NULL: no direct reads */
  size_t bounce_bytes;
  bool room; /* a read may overwrite the memory around its destination: see below */
  uint64_t device, inode, changed_ns;
  struct source_views *views; /* behind the end of the file: source_view.h. NULL: none */
} source;

/* Opens the regular file at `path`, which must outlive the source, or an http(s) URL
 * (source_open.c, remote.h). STOW_ERR_NOT_FOUND, STOW_ERR_IO; STOW_ERR_INVALID if it is not a
 * regular file (a folder or a pipe cannot be read twice). */
stow_status source_open(source *s, const char *path);
/* Opens a file only: `path` is never treated as a URL. */
stow_status source_open_file(source *s, const char *path);
/* Opens bytes in memory (tests, fuzzing). */
void source_open_memory(source *s, const void *bytes, size_t count, const char *name);
/* Opens a reader that has `bytes` bytes. */
void source_open_reader(source *s, const source_reader *reader, uint64_t bytes, const char *name);
void source_close(source *s);
/* Alignment of direct reads (offset, length, address): the largest block size of disks. */
#define SOURCE_DIRECT_UNIT UINT64_C(4096)
/* Makes larger reads bypass the page cache from now on, through `bounce`. The caller owns `bounce`,
 * aligns it to the unit, and makes it two units larger than its largest read (otherwise the ends
 * take a separate read). This is faster than filling the cache and dropping it, and no cache is
 * charged to the container. Does nothing if the file system does not support it. */
void source_go_direct(source *s, void *bounce, size_t bounce_bytes);
/* Smaller reads cost less through the page cache. */
#define SOURCE_DIRECT_LEAST (UINT64_C(128) << 10)
/* A direct read whose memory and offset have the same alignment goes straight to its destination.
 * While `room` is set, it overwrites the whole units that hold its first and last byte. */
/* Returns about `rows` rows that fill whole units; `rows` if that takes more than `most_bytes`. */
uint64_t source_whole_rows(uint64_t rows, uint64_t most_bytes, uint64_t row_bytes);
/* Reads through the other source's open file, which must be the same file. The kernel reads ahead
 * per open file, so it sees one sequential reader instead of several that jump. */
void source_share(source *s, const source *with);
/* Returns whether a file would fill more than half of the memory the host can still give: reading
 * it leaves nothing cached. */
bool source_too_large_to_cache(uint64_t bytes);

/* Adds a view, whose values are then read at offset *at, behind the end of the file. */
struct source_view;
stow_status source_add_view(source *s, const struct source_view *view, uint64_t *at);
/* Returns the end of the file and its views. */
uint64_t source_end(const source *s);
/* Reads exactly `count` bytes at `offset`, of the file or of one view. Past the end is
 * STOW_ERR_FORMAT with both numbers. */
stow_status source_read(source *s, uint64_t offset, void *to, size_t count);
/* Starts reading what the caller reads next into the page cache. Where several threads read pieces
 * of one open file, the kernel's readahead sees jumps and stops: loading a model from a disk takes
 * twice as long. */
void source_expect(const source *s, uint64_t offset, uint64_t bytes);
/* Reads the bytes at `offset` of a file (not of memory, nor of a reader) into several places, at
 * most SOURCE_PARTS_MAX, through the page cache. Modifies `parts`. */
#define SOURCE_PARTS_MAX 256
struct iovec;
stow_status source_read_parts(source *s, uint64_t offset, struct iovec *parts, size_t count);
/* Returns STOW_ERR_IO if the file is no longer the one that was opened: grown, truncated or written
 * to. Call it after the last read. */
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
