/* Cuda card: finding one by name. */
#include "device/cuda_card.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"

int cuda_card_attribute(const cuda_driver *driver, cu_device handle, int which, int otherwise) {
  ASSERT(driver != NULL);
  int value;
  return driver->cuDeviceGetAttribute(&value, which, handle) == CU_OK ? value : otherwise;
}

void cuda_card_uuid(char uuid[CUDA_UUID_MAX], const cuda_driver *driver, cu_device handle) {
  cu_uuid id;
  uuid[0] = '\0';
  /* The second form tells the slices of a divided card apart; the first gives them all one UUID. */
  cu_result code = driver->cuDeviceGetUuid_v2 != NULL ? driver->cuDeviceGetUuid_v2(&id, handle)
                                                      : driver->cuDeviceGetUuid(&id, handle);
  if (code != CU_OK) return;
  int at = snprintf(uuid, CUDA_UUID_MAX, "GPU-");
  for (int i = 0; i < 16; i++) {
    bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    at += snprintf(uuid + at, (size_t)(CUDA_UUID_MAX - at), "%s%02x", dash ? "-" : "", id.bytes[i]);
  }
}

static const char *without_word(const char *uuid) {
  return strncasecmp(uuid, "GPU-", 4) == 0 || strncasecmp(uuid, "MIG-", 4) == 0 ? uuid + 4 : uuid;
}

static stow_status card_at(cuda_card *card, const cuda_driver *driver, int index) {
  cu_result code = driver->cuDeviceGet(&card->handle, index);
  if (code != CU_OK) return cuda_driver_fail(driver, code, "device \"%d\"", index);
  card->index = index;
  cuda_card_uuid(card->uuid, driver, card->handle);
  return STOW_OK;
}

static stow_status find_uuid(cuda_card *card, const cuda_driver *driver, const char *name,
                             int count) {
  const char *wanted = without_word(name);
  size_t length = strlen(wanted);
  if (length == 0 || strspn(wanted, "0123456789abcdefABCDEF-") != length)
    return stow_fail(STOW_ERR_NOT_FOUND,
                     "device \"%s\": neither a card's index (0 to %d) nor a UUID (GPU-…) nor "
                     "sim:SIZE; `stowage info` lists the cards",
                     name, count - 1);
  int found = 0;
  for (int i = 0; i < count; i++) {
    cuda_card other;
    STOW_TRY(card_at(&other, driver, i));
    if (strncasecmp(without_word(other.uuid), wanted, length) != 0) continue;
    if (found++ == 0) *card = other;
  }
  if (found == 1) return STOW_OK;
  if (found > 1)
    return stow_fail(STOW_ERR_NOT_FOUND,
                     "device \"%s\": %d cards have a UUID that begins so; write more of it", name,
                     found);
  return stow_fail(STOW_ERR_NOT_FOUND,
                   "device \"%s\": none of the %d cards has a UUID that begins so; `stowage info` "
                   "lists them",
                   name, count);
}

stow_status cuda_card_find(cuda_card *card, const cuda_driver *driver, const char *name) {
  ASSERT(driver != NULL && name != NULL);
  int count = 0;
  cu_result code = driver->cuDeviceGetCount(&count);
  if (code != CU_OK) return cuda_driver_fail(driver, code, "counting the cards");
  if (count == 0)
    return stow_fail(STOW_ERR_NOT_FOUND,
                     "device \"%s\": the driver shows no card; look at CUDA_VISIBLE_DEVICES", name);
  /* An index is short; a UUID without its word may be all digits, but is longer. */
  size_t length = strlen(name);
  if (length == 0 || length > 4 || strspn(name, "0123456789") != length)
    return find_uuid(card, driver, name, count);
  int index = 0;
  for (const char *at = name; *at != '\0'; at++) index = index * 10 + (*at - '0');
  if (index >= count)
    return stow_fail(STOW_ERR_NOT_FOUND,
                     "device \"%s\": the driver shows %d card%s, 0 to %d; look at "
                     "CUDA_VISIBLE_DEVICES",
                     name, count, count == 1 ? "" : "s", count - 1);
  return card_at(card, driver, index);
}
