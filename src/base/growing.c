/* Public structs that can grow: the checks (growing.h). */
#include "base/growing.h"

#include <stdint.h>
#include <string.h>

/* No struct will reach this size: a caller that passes more has not set struct_bytes. */
#define STRUCT_BYTES_MAX 65536

static stow_status size_of(uint32_t *bytes, const void *given, const char *name) {
  memcpy(bytes, given, sizeof *bytes);
  if (*bytes >= sizeof *bytes && *bytes <= STRUCT_BYTES_MAX) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID, "%s: struct_bytes is %u; set it to sizeof(%s)", name, *bytes,
                   name);
}

stow_status growing_read(void *known, size_t known_bytes, const void *given, const char *name) {
  if (given == NULL) return STOW_OK;
  uint32_t bytes;
  STOW_TRY(size_of(&bytes, given, name));
  for (size_t i = known_bytes; i < bytes; i++)
    if (((const uint8_t *)given)[i] != 0)
      return stow_fail(STOW_ERR_UNSUPPORTED,
                       "%s: byte %zu is set, but this library knows %zu bytes: use a newer library",
                       name, i, known_bytes);
  memcpy(known, given, bytes < known_bytes ? bytes : known_bytes);
  return STOW_OK;
}

stow_status growing_write(void *to, const void *full, size_t full_bytes, const char *name) {
  if (to == NULL) return stow_fail(STOW_ERR_INVALID, "%s: the result is NULL", name);
  uint32_t bytes;
  STOW_TRY(size_of(&bytes, to, name));
  size_t copied = bytes < full_bytes ? bytes : full_bytes;
  memcpy((uint8_t *)to + sizeof bytes, (const uint8_t *)full + sizeof bytes, copied - sizeof bytes);
  if (bytes > copied) memset((uint8_t *)to + copied, 0, bytes - copied);
  return STOW_OK;
}
