/* Crc32: the checksum of zip members, as zlib's crc32() gives it, at the speed of memory where the
 * machine multiplies without carries. */
#ifndef FORMATS_CRC32_H
#define FORMATS_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` covers (0: nothing) and these bytes. */
uint32_t crc32_add(uint32_t crc, const void *bytes, size_t count);

#endif
