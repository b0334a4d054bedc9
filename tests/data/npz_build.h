/* Builds zip archives byte by byte, valid or with one error, for the tests of their reader. */
#ifndef NPZ_BUILD_H
#define NPZ_BUILD_H

#include <string.h>
#include <zlib.h>

#include "arrays/npy.h"
#include "base/buffer.h"
#include "harness.h"

typedef struct member_build {
  const char *name;
  size_t name_length; /* 0: strlen */
  const void *bytes;  /* before deflating */
  size_t count;
  bool deflate;
  uint16_t flags, method_override, disk;
  uint32_t crc_xor;
  int64_t declared_more; /* added to the declared size */
  int64_t stored_more;   /* added to the declared stored size */
  bool local_name_differs, local_size_differs, zip64;
  int64_t header_offset; /* offset in the directory entry; 0: the correct one */
} member_build;

static inline void put_le(buffer *b, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) buffer_char(b, (char)(value >> (8 * i)));
}

static inline void build_deflate(buffer *to, const member_build *m) {
  z_stream z = {0};
  uLong bound = compressBound(m->count) + 64;
  char *room = buffer_extend(to, bound);
  CHECK(room != NULL && deflateInit2(&z, 6, Z_DEFLATED, -15, 8, 0) == Z_OK);
  z.next_in = (Bytef *)(uintptr_t)m->bytes;
  z.avail_in = (uInt)m->count;
  z.next_out = (Bytef *)room;
  z.avail_out = (uInt)bound;
  CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
  to->length -= z.avail_out;
  deflateEnd(&z);
}

static inline void build_entry(buffer *to, buffer *directory, const member_build *m) {
  buffer stored = BUFFER_INIT;
  size_t name = m->name_length > 0 ? m->name_length : strlen(m->name);
  if (m->deflate)
    build_deflate(&stored, m);
  else
    buffer_append(&stored, m->bytes, m->count);
  uint32_t crc = (uint32_t)crc32(0, m->bytes, (uInt)m->count) ^ m->crc_xor;
  uint64_t bytes = (uint64_t)((int64_t)m->count + m->declared_more);
  uint64_t kept = (uint64_t)((int64_t)stored.length + m->stored_more);
  uint16_t method = m->method_override != 0 ? m->method_override : m->deflate ? 8 : 0;
  uint64_t at = to->length;
  put_le(to, 0x04034b50, 4), put_le(to, 20, 2), put_le(to, m->flags, 2), put_le(to, method, 2);
  put_le(to, 0, 4), put_le(to, crc, 4);
  put_le(to, m->zip64 ? UINT32_MAX : kept + (m->local_size_differs ? 1 : 0), 4);
  put_le(to, m->zip64 ? UINT32_MAX : bytes, 4);
  put_le(to, name, 2), put_le(to, m->zip64 ? 20 : 0, 2);
  buffer_append(to, m->name, name);
  if (m->local_name_differs) to->data[to->length - name] ^= 1;
  if (m->zip64) put_le(to, 1, 2), put_le(to, 16, 2), put_le(to, bytes, 8), put_le(to, kept, 8);
  buffer_append(to, stored.data, stored.length);
  buffer *d = directory;
  put_le(d, 0x02014b50, 4), put_le(d, 45, 2), put_le(d, 20, 2), put_le(d, m->flags, 2);
  put_le(d, method, 2), put_le(d, 0, 4), put_le(d, crc, 4);
  put_le(d, m->zip64 ? UINT32_MAX : kept, 4), put_le(d, m->zip64 ? UINT32_MAX : bytes, 4);
  put_le(d, name, 2), put_le(d, m->zip64 ? 28 : 0, 2), put_le(d, 0, 2), put_le(d, m->disk, 2);
  put_le(d, 0, 6);
  if (m->header_offset != 0) at = (uint64_t)m->header_offset;
  put_le(d, m->zip64 ? UINT32_MAX : at, 4);
  buffer_append(d, m->name, name);
  if (m->zip64) {
    put_le(d, 1, 2), put_le(d, 24, 2);
    put_le(d, bytes, 8), put_le(d, kept, 8), put_le(d, at, 8);
  }
  buffer_free(&stored);
}

/* Builds the archive in `to` (empty). */
static inline void build_zip(buffer *to, const member_build *members, size_t count) {
  buffer directory = BUFFER_INIT;
  for (size_t i = 0; i < count; i++) build_entry(to, &directory, &members[i]);
  uint64_t at = to->length;
  buffer_append(to, directory.data, directory.length);
  put_le(to, 0x06054b50, 4), put_le(to, 0, 4), put_le(to, count, 2), put_le(to, count, 2);
  put_le(to, directory.length, 4), put_le(to, at, 4), put_le(to, 0, 2);
  buffer_free(&directory);
  CHECK_OK(to->status);
}

/* Builds a one-dimensional npy file of `count` values. */
static inline void build_npy(buffer *to, dtype type, const void *values, uint64_t count) {
  CHECK_OK(npy_write_header(to, type, false, &count, 1));
  CHECK_OK(buffer_append(to, values, count * dtype_bytes(type)));
}

#endif
