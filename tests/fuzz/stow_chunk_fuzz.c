/* Fuzzes the contents of the chunks of a .stow trace. The input is a sequence of payloads; they get
 * valid compression and checksums, which random bytes would never have.
 *
 *   kind (1 byte)  length (2 bytes, little-endian)  payload … */
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "reader_fuzz.h"

static void put_le(uint8_t *to, uint64_t value, size_t count) {
  for (size_t i = 0; i < count; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static void put_chunk(buffer *file, unsigned kind, const uint8_t *payload, size_t count) {
  size_t room = ZSTD_compressBound(count);
  size_t at = file->length;
  uint8_t *head = buffer_extend(file, STOWFILE_CHUNK_HEADER + room);
  fuzz_insist(head != NULL);
  size_t stored = ZSTD_compress(head + STOWFILE_CHUNK_HEADER, room, payload, count, 1);
  put_le(head, STOWFILE_CHUNK_MAGIC, 4);
  put_le(head + 4, kind, 2);
  put_le(head + 6, 0, 2);
  put_le(head + 8, stored, 4);
  put_le(head + 12, count, 4);
  put_le(head + 16, 0, 4);
  uLong crc = crc32(crc32(0, head, 20), head + STOWFILE_CHUNK_HEADER, (uInt)stored);
  put_le(head + 20, crc, 4);
  file->length = at + STOWFILE_CHUNK_HEADER + stored;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  buffer file = BUFFER_INIT;
  uint8_t header[STOWFILE_HEADER_BYTES] = STOWFILE_MAGIC;
  put_le(header + 8, STOWFILE_VERSION, 2);
  put_le(header + 10, STOWFILE_HEADER_BYTES, 2);
  put_le(header + 12, crc32(0, header, 12), 4);
  buffer_append(&file, header, sizeof header);
  while (size >= 3) {
    size_t count = data[1] | (size_t)data[2] << 8;
    unsigned kind = data[0];
    data += 3;
    size -= 3;
    if (count > size) count = size;
    put_chunk(&file, kind, data, count);
    data += count;
    size -= count;
  }
  fuzz_reader((const uint8_t *)file.data, file.length, KIND_STOW);
  buffer_free(&file);
  return 0;
}
