/* Cuda device id: finds a device by name. */
#include "device/cuda_device_id.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/text.h"

int cuda_device_attribute(const cuda_driver *driver, cu_device handle, int which, int otherwise) {
  ASSERT(driver != NULL);
  int value;
  return driver->cuDeviceGetAttribute(&value, which, handle) == CU_OK ? value : otherwise;
}

void cuda_device_uuid(char uuid[CUDA_UUID_MAX], const cuda_driver *driver, cu_device handle) {
  cu_uuid id;
  uuid[0] = '\0';
  /* cuDeviceGetUuid_v2 distinguishes MIG slices; the first version returns one UUID for all. */
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

static stow_status id_at(cuda_device_id *id, const cuda_driver *driver, int index) {
  cu_result code = driver->cuDeviceGet(&id->handle, index);
  if (code != CU_OK) return cuda_driver_fail(driver, code, "device \"%d\"", index);
  id->index = index;
  cuda_device_uuid(id->uuid, driver, id->handle);
  return STOW_OK;
}

static stow_status find_uuid(cuda_device_id *id, const cuda_driver *driver, const char *name,
                             int count) {
  const char *wanted = without_word(name);
  size_t length = strlen(wanted);
  if (length == 0 || strspn(wanted, "0123456789abcdefABCDEF-") != length)
    return stow_fail(STOW_ERR_NOT_FOUND,
                     "device \"%s\": not a device index (0 to %d), a UUID (GPU-…) or sim:SIZE; "
                     "`stowage info` lists the devices",
                     name, count - 1);
  int found = 0;
  for (int i = 0; i < count; i++) {
    cuda_device_id other;
    STOW_TRY(id_at(&other, driver, i));
    if (strncasecmp(without_word(other.uuid), wanted, length) != 0) continue;
    if (found++ == 0) *id = other;
  }
  if (found == 1) return STOW_OK;
  if (found > 1)
    return stow_fail(
        STOW_ERR_NOT_FOUND,
        "device \"%s\": %d devices have a UUID that starts with it; give more characters", name,
        found);
  return stow_fail(STOW_ERR_NOT_FOUND,
                   "device \"%s\": none of the %d devices has a UUID that starts with it; `stowage "
                   "info` lists them",
                   name, count);
}

stow_status cuda_device_find(cuda_device_id *id, const cuda_driver *driver, const char *name) {
  ASSERT(driver != NULL && name != NULL);
  int count = 0;
  cu_result code = driver->cuDeviceGetCount(&count);
  if (code != CU_OK) return cuda_driver_fail(driver, code, "counting the devices");
  if (count == 0)
    return stow_fail(STOW_ERR_NOT_FOUND,
                     "device \"%s\": the driver shows no device; check CUDA_VISIBLE_DEVICES", name);
  /* An index is short. A UUID without its prefix may be all digits, but is longer. */
  size_t length = strlen(name);
  if (length == 0 || length > 4 || strspn(name, "0123456789") != length)
    return find_uuid(id, driver, name, count);
  int index = 0;
  for (const char *at = name; *at != '\0'; at++) index = index * 10 + (*at - '0');
  if (index >= count)
    return stow_fail(
        STOW_ERR_NOT_FOUND,
        "device \"%s\": the driver shows %d device%s, 0 to %d; check CUDA_VISIBLE_DEVICES", name,
        count, text_s((uint64_t)count), count - 1);
  return id_at(id, driver, index);
}
