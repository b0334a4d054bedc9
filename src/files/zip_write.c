/* Zip writer: writes local headers last, when the checksums are known. */
#include "files/zip_write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/buffer.h"
#include "base/crc32.h"
#include "base/utf8.h"

#define LOCAL_BYTES  30
#define EXTRA_BYTES  20 /* zip64: id, length, two sizes */
#define NAME_IS_UTF8 0x800
#define DOS_DAY      33 /* 1980-01-01, so that the same input gives the same bytes */
enum { DEFLATED_BYTES = 32 << 10 };
#define BLOCK_BYTES (UINT64_C(16) << 20)

static void put(buffer *b, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) buffer_char(b, (char)(value >> (8 * i)));
}

void zip_out_begin(zip_out *z, writer *to) {
  *z = (zip_out){.to = to, .level = 6};
}

static stow_status no_memory(const zip_out *z) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory for another member", z->to->out.path);
}

static stow_status close_member(zip_out *z, zip_out_member *m);

static void go_on(zip_out_member *m, const zip_out_mark *mark) {
  m->filled = m->behind = mark->filled;
  m->stored_bytes = mark->stored_bytes;
  m->crc = (uint32_t)mark->crc;
  m->block = *mark;
}

void zip_out_pass(zip_out *z, size_t number, uint64_t count) {
  zip_out_member *m = &z->members[number];
  m->behind -= count < m->behind ? count : m->behind;
}

/* Returns the mark of a member. A deflated member is complete in the file only after it is
 * closed. */
zip_out_mark zip_out_marked(const zip_out *z, size_t number) {
  const zip_out_member *m = &z->members[number];
  if (m->deflater != NULL) return m->block;
  return (zip_out_mark){m->filled, m->stored_bytes, m->crc};
}

stow_status zip_out_add(zip_out *z, size_t *number, const char *name, uint64_t bytes,
                        bool deflate) {
  uint32_t named;
  if (intern_find(&z->names, &named, name, strlen(name)))
    return stow_fail(STOW_ERR_INVALID, "%s: two arrays would be named %.200s", z->to->out.path,
                     name);
  STOW_TRY(intern_add(&z->names, &named, name, strlen(name)));
  /* Only the last one can be open: zip_out_add closed the earlier ones. */
  if (z->count > 0 && z->members[z->count - 1].deflater != NULL)
    STOW_TRY(close_member(z, &z->members[z->count - 1]));
  if (z->count == z->capacity) {
    zip_out_member *more = realloc(z->members, (z->capacity * 2 + 8) * sizeof *more);
    if (more == NULL) return no_memory(z);
    z->members = more;
    z->capacity = z->capacity * 2 + 8;
  }
  zip_out_member *m = &z->members[z->count];
  *m = (zip_out_member){.name = strdup(name), .bytes = bytes, .deflated = deflate};
  if (m->name == NULL) return no_memory(z);
  if (z->count++ < z->resumed_count) go_on(m, &z->resumed[z->count - 1]);
  bool open = deflate && !(m->filled > 0 && m->filled == bytes);
  if (open) {
    z_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL ||
        deflateInit2(stream, z->level, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
      free(stream);
      return no_memory(z);
    }
    m->deflater = stream;
  }
  m->header_offset = z->end;
  m->offset = z->end + LOCAL_BYTES + EXTRA_BYTES + strlen(name);
  z->end = m->offset + (deflate ? m->stored_bytes : bytes);
  *number = z->count - 1;
  return STOW_OK;
}

static stow_status deflate_some(zip_out *z, zip_out_member *m, int flush) {
  z_stream *stream = m->deflater;
  unsigned char made[DEFLATED_BYTES];
  do {
    stream->next_out = made;
    stream->avail_out = sizeof made;
    deflate(stream, flush);
    size_t count = sizeof made - stream->avail_out;
    STOW_TRY(writer_write(z->to, m->offset + m->stored_bytes, made, count));
    m->stored_bytes += count;
  } while (stream->avail_out == 0);
  z->end = m->offset + m->stored_bytes;
  return STOW_OK;
}

static stow_status close_member(zip_out *z, zip_out_member *m) {
  if (m->filled != m->bytes)
    return stow_fail(STOW_ERR_STATE, "%s: %.200s received %" PRIu64 " of its %" PRIu64 " bytes",
                     z->to->out.path, m->name, m->filled, m->bytes);
  if (m->deflater == NULL) return STOW_OK;
  stow_status status = deflate_some(z, m, Z_FINISH);
  deflateEnd(m->deflater);
  free(m->deflater);
  m->deflater = NULL;
  return status;
}

static stow_status too_much(const zip_out *z, const zip_out_member *m) {
  return stow_fail(STOW_ERR_STATE, "%s: %.200s received more than its %" PRIu64 " bytes",
                   z->to->out.path, m->name, m->bytes);
}

stow_status zip_out_put(const zip_out *z, size_t number, uint64_t at, const void *bytes,
                        size_t count) {
  const zip_out_member *m = &z->members[number];
  if (at > m->bytes || count > m->bytes - at) return too_much(z, m);
  return writer_put(z->to, m->offset + at, bytes, count);
}

stow_status zip_out_took(zip_out *z, size_t number, uint64_t count, uint32_t crc) {
  zip_out_member *m = &z->members[number];
  if (count > m->bytes - m->filled) return too_much(z, m);
  m->crc = (uint32_t)crc32_combine(m->crc, crc, (z_off_t)count);
  m->filled += count;
  m->stored_bytes += count;
  return STOW_OK;
}

/* Ends a block; the next one is compressed independently of it. */
static stow_status end_block(zip_out *z, zip_out_member *m) {
  STOW_TRY(deflate_some(z, m, Z_FULL_FLUSH));
  deflateReset(m->deflater);
  m->block = (zip_out_mark){m->filled, m->stored_bytes, m->crc};
  return STOW_OK;
}

stow_status zip_out_write(zip_out *z, size_t number, const void *bytes, size_t count) {
  zip_out_member *m = &z->members[number];
  const unsigned char *at = bytes;
  size_t known = count < m->behind ? count : (size_t)m->behind;
  m->behind -= known;
  at += known;
  count -= known;
  if (count > m->bytes - m->filled) return too_much(z, m);
  for (size_t part; count > 0; at += part, count -= part) {
    uint64_t left = BLOCK_BYTES - m->filled % BLOCK_BYTES;
    part = count < left ? count : (size_t)left;
    m->crc = crc32_add(m->crc, at, part);
    if (m->deflated) {
      ((z_stream *)m->deflater)->next_in = (Bytef *)(uintptr_t)at;
      ((z_stream *)m->deflater)->avail_in = (uInt)part;
      STOW_TRY(deflate_some(z, m, Z_NO_FLUSH));
    } else {
      if (!z->mute) STOW_TRY(writer_write(z->to, m->offset + m->filled, at, part));
      m->stored_bytes += part;
    }
    m->filled += part;
    if (m->deflated && part == left && m->filled < m->bytes) STOW_TRY(end_block(z, m));
  }
  return STOW_OK;
}

/* Returns the member's flags. Without the UTF-8 flag, readers decode the name as code page 437
 * (PKWARE APPNOTE, appendix D). */
static uint64_t flags_of(const zip_out_member *m) {
  size_t length = strlen(m->name);
  bool plain = true;
  for (size_t i = 0; i < length; i++) plain = plain && (unsigned char)m->name[i] < 0x80;
  return !plain && utf8_prefix(m->name, length) == length ? NAME_IS_UTF8 : 0;
}

static void put_shared(buffer *b, const zip_out_member *m, size_t extra) {
  put(b, 45, 2), put(b, flags_of(m), 2), put(b, m->deflated ? ZIP_DEFLATED : ZIP_STORED, 2);
  put(b, 0, 2), put(b, DOS_DAY, 2), put(b, m->crc, 4);
  put(b, UINT32_MAX, 4), put(b, UINT32_MAX, 4);
  put(b, strlen(m->name), 2), put(b, extra, 2);
}

static stow_status write_local(zip_out *z, const zip_out_member *m) {
  buffer b = BUFFER_INIT;
  put(&b, 0x04034b50, 4);
  put_shared(&b, m, EXTRA_BYTES);
  buffer_text(&b, m->name);
  put(&b, 1, 2), put(&b, 16, 2), put(&b, m->bytes, 8), put(&b, m->stored_bytes, 8);
  stow_status status = b.status;
  if (status == STOW_OK) status = writer_write(z->to, m->header_offset, b.data, b.length);
  buffer_free(&b);
  return status;
}

static void put_directory(buffer *b, const zip_out *z) {
  for (size_t i = 0; i < z->count; i++) {
    const zip_out_member *m = &z->members[i];
    put(b, 0x02014b50, 4), put(b, 45, 2);
    put_shared(b, m, 28);
    put(b, 0, 6); /* comment, disk, kind */
    put(b, UINT32_C(0600) << 16, 4), put(b, UINT32_MAX, 4);
    buffer_text(b, m->name);
    put(b, 1, 2), put(b, 24, 2);
    put(b, m->bytes, 8), put(b, m->stored_bytes, 8), put(b, m->header_offset, 8);
  }
}

stow_status zip_out_finish(zip_out *z) {
  for (size_t i = 0; i < z->count; i++) {
    STOW_TRY(close_member(z, &z->members[i]));
    STOW_TRY(write_local(z, &z->members[i]));
  }
  buffer b = BUFFER_INIT;
  put_directory(&b, z);
  uint64_t directory = b.length, at = z->end;
  if (z->count > 0) { /* NumPy recognizes an empty archive by the plain end record at its start */
    put(&b, 0x06064b50, 4), put(&b, 44, 8), put(&b, 45, 2), put(&b, 45, 2), put(&b, 0, 8);
    put(&b, z->count, 8), put(&b, z->count, 8), put(&b, directory, 8), put(&b, at, 8);
    put(&b, 0x07064b50, 4), put(&b, 0, 4), put(&b, at + directory, 8), put(&b, 1, 4);
  }
  uint64_t few = z->count < 0xffff ? z->count : 0xffff;
  put(&b, 0x06054b50, 4), put(&b, 0, 4), put(&b, few, 2), put(&b, few, 2);
  put(&b, directory < UINT32_MAX ? directory : UINT32_MAX, 4);
  put(&b, at < UINT32_MAX ? at : UINT32_MAX, 4), put(&b, 0, 2);
  stow_status status = b.status;
  if (status == STOW_OK) status = writer_write(z->to, at, b.data, b.length);
  if (status == STOW_OK) status = writer_end(z->to, at + b.length);
  buffer_free(&b);
  return status;
}

void zip_out_free(zip_out *z) {
  for (size_t i = 0; i < z->count; i++) {
    if (z->members[i].deflater != NULL) deflateEnd(z->members[i].deflater);
    free(z->members[i].deflater);
    free(z->members[i].name);
  }
  free(z->members);
  intern_free(&z->names);
  *z = (zip_out){0};
}
