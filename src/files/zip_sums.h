/* Zip sums: the checksum of a stored member that several threads read, in any order.
 *
 * Holds the ranges that were read, joined where they touch. When they cover the member, its
 * checksum is compared with the archive's. Called by zip_member. Thread-safe. A range that overlaps
 * an earlier one is ignored. A member read in more than ZIP_SUMS_MOST separate ranges at a time is
 * not checked. */
#ifndef FILES_ZIP_SUMS_H
#define FILES_ZIP_SUMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define ZIP_SUMS_MOST 16384 /* 384 KiB */

typedef struct zip_sums zip_sums;

stow_status zip_sums_open(zip_sums **sums, uint64_t bytes, uint32_t crc);
void zip_sums_close(zip_sums *sums);
/* Returns whether the checksum of a range is of use: false once the member is checked. */
bool zip_sums_wants(zip_sums *sums);
/* Adds the checksum of bytes that were read. Returns false if the member's checksum is wrong; then
 * and for every later range. */
bool zip_sums_add(zip_sums *sums, uint64_t offset, uint64_t count, uint32_t crc);

#endif
