/* CRC-32 as defined by zip and zlib; runs at memory speed on machines with carry-less
 * multiplication. */
#ifndef BASE_CRC32_H
#define BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Returns the checksum of the data that `crc` covers (0: none) followed by these bytes. */
uint32_t crc32_add(uint32_t crc, const void *bytes, size_t count);

#endif
