/* CRC-32 as zip and zlib define it, at the speed of memory where the machine has carry-less
 * products. */
#ifndef BASE_CRC32_H
#define BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Returns the checksum of what `crc` covers (0: nothing) followed by these bytes. */
uint32_t crc32_add(uint32_t crc, const void *bytes, size_t count);

#endif
