/* Zip members: reads stored ones in place, inflates deflated ones forward through one window.
 * Sequential reads update the checksum, which is checked at the end; readers that share a member
 * check it when they have read all of it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "files/zip.h"

#include "base/crc32.h"

enum { WINDOW_BYTES = 64 << 10, SKIP_BYTES = 16 << 10, PART_BYTES = 256 << 10 };

static stow_status refuse(const zip_member *m, uint64_t stored_at, const char *why) {
  return stow_fail(STOW_ERR_FORMAT, "%s: member %s, at byte %" PRIu64 " of the zip file: %s",
                   m->from->name, m->entry->name, m->entry->offset + stored_at, why);
}

stow_status zip_member_open(zip_member *m, source *from, const zip_entry *entry) {
  *m = (zip_member){.from = from, .entry = entry};
  if (entry->method == ZIP_STORED) return STOW_OK;
  z_stream *z = calloc(1, sizeof *z);
  m->window = malloc(WINDOW_BYTES);
  if (z == NULL || m->window == NULL || inflateInit2(z, -15) != Z_OK) {
    free(z);
    zip_member_close(m);
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory to inflate %s", from->name,
                     entry->name);
  }
  m->inflater = z;
  return STOW_OK;
}

void zip_member_close(zip_member *m) {
  if (m->inflater != NULL) inflateEnd(m->inflater);
  free(m->inflater);
  free(m->window);
  *m = (zip_member){0};
}

/* Adds bytes just read at `offset` to the checksum, if they are the next ones. */
static stow_status sum(zip_member *m, uint64_t offset, const void *bytes, size_t count) {
  if (offset != m->summed) return STOW_OK;
  const unsigned char *at = bytes;
  m->summed += count;
  for (size_t part; count > 0; at += part, count -= part) {
    part = count < (1u << 30) ? count : 1u << 30;
    m->crc = crc32_add((uint32_t)m->crc, at, part);
  }
  if (m->summed == m->entry->bytes && m->crc != m->entry->crc)
    return refuse(m, m->entry->stored_bytes, "wrong checksum; copy the file again");
  return STOW_OK;
}

void zip_member_share(zip_member *m, zip_sums *sums) {
  m->sums = sums;
  zip_sums_add(sums, 0, m->summed, (uint32_t)m->crc); /* fails at the next read */
}

/* Reads bytes of a stored member whose readers share its checksum. */
static stow_status read_shared(zip_member *m, uint64_t offset, char *to, size_t count) {
  uint64_t from = offset;
  uint32_t crc = 0;
  bool sums = zip_sums_wants(m->sums);
  if (!sums) return source_read(m->from, m->entry->offset + offset, to, count);
  /* A part is still in the processor's cache when it is summed. */
  for (size_t left = count, part; left > 0; to += part, offset += part, left -= part) {
    part = m->from->bounce == NULL && left > PART_BYTES ? PART_BYTES : left;
    STOW_TRY(source_read(m->from, m->entry->offset + offset, to, part));
    crc = crc32_add(crc, to, part);
  }
  if (zip_sums_add(m->sums, from, count, crc)) return STOW_OK;
  STOW_TRY(source_check(m->from));
  return refuse(m, 0, "wrong checksum; copy the file again");
}

static stow_status fill(zip_member *m) {
  z_stream *z = m->inflater;
  uint64_t left = m->entry->stored_bytes - m->window_at;
  if (left == 0) return refuse(m, m->window_at, "the deflated data ends before the declared size");
  size_t count = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
  STOW_TRY(source_read(m->from, m->entry->offset + m->window_at, m->window, count));
  m->window_at += count;
  z->next_in = m->window;
  z->avail_in = (uInt)count;
  return STOW_OK;
}

/* Called when all declared bytes were returned: the deflated stream, and with it the member, must
 * end here. */
static stow_status finish(zip_member *m) {
  z_stream *z = m->inflater;
  unsigned char extra;
  for (;;) {
    z->next_out = &extra;
    z->avail_out = 1;
    int code = inflate(z, Z_NO_FLUSH);
    if (z->avail_out == 0)
      return refuse(m, m->window_at, "inflates to more than the declared size");
    if (code == Z_STREAM_END) break;
    if (code != Z_OK && code != Z_BUF_ERROR)
      return refuse(m, m->window_at - z->avail_in, "the deflated data is corrupt");
    if (z->avail_in == 0) STOW_TRY(fill(m));
  }
  if (z->avail_in > 0 || m->window_at != m->entry->stored_bytes)
    return refuse(m, m->window_at - z->avail_in, "extra bytes after the deflated data");
  return STOW_OK;
}

/* Inflates the next `count` bytes. The inflater may hold output when it has taken all input: only
 * an inflater that makes nothing without more input has reached the end. */
static stow_status inflate_next(zip_member *m, void *to, size_t count) {
  z_stream *z = m->inflater;
  uint64_t start = m->at;
  z->next_out = to;
  for (size_t left = count; left > 0;) {
    uInt room = left < (1u << 30) ? (uInt)left : 1u << 30;
    z->avail_out = room;
    int code = inflate(z, Z_NO_FLUSH);
    left -= room - z->avail_out;
    m->at += room - z->avail_out;
    if (code == Z_STREAM_END && left > 0)
      return refuse(m, m->window_at - z->avail_in, "inflates to less than the declared size");
    if (code != Z_OK && code != Z_BUF_ERROR && code != Z_STREAM_END)
      return refuse(m, m->window_at - z->avail_in, "the deflated data is corrupt");
    if (code == Z_STREAM_END) break;
    if (z->avail_in == 0 && z->avail_out > 0) STOW_TRY(fill(m));
  }
  if (m->at == m->entry->bytes) STOW_TRY(finish(m));
  return sum(m, start, to, count);
}

static stow_status rewind_member(zip_member *m) {
  inflateReset(m->inflater);
  ((z_stream *)m->inflater)->avail_in = 0;
  m->window_at = m->at = 0;
  return STOW_OK;
}

stow_status zip_member_read(zip_member *m, uint64_t offset, void *to, size_t count) {
  if (count > m->entry->bytes || offset > m->entry->bytes - count)
    return refuse(m, m->entry->stored_bytes, "read past the end of the member");
  if (count == 0) return STOW_OK;
  if (m->sums != NULL) return read_shared(m, offset, to, count);
  if (m->inflater == NULL) {
    STOW_TRY(source_read(m->from, m->entry->offset + offset, to, count));
    return sum(m, offset, to, count);
  }
  if (offset < m->at) STOW_TRY(rewind_member(m));
  while (m->at < offset) {
    unsigned char passed[SKIP_BYTES];
    uint64_t gap = offset - m->at;
    STOW_TRY(inflate_next(m, passed, gap < SKIP_BYTES ? (size_t)gap : SKIP_BYTES));
  }
  return inflate_next(m, to, count);
}
