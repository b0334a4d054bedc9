/* Fuzzes the text after "sim:": it is refused with a message, or gives a device that opens, reports
 * its properties and closes cleanly. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/device.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *name = malloc(size + 5);
  if (name == NULL) return 0;
  memcpy(name, "sim:", 4);
  memcpy(name + 4, data, size);
  name[size + 4] = '\0';
  stow_device *device = NULL;
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  if (stow_device_open(&device, name) != STOW_OK) {
    if (device != NULL || stow_status_message()[0] == '\0') abort();
  } else {
    uint64_t free_bytes, total_bytes;
    if (stow_device_get_props(device, &props) != STOW_OK || props.page_bytes == 0) abort();
    if (stow_device_memory(device, STOW_TIER_VRAM, &free_bytes, &total_bytes) != STOW_OK) abort();
    if (free_bytes != total_bytes || total_bytes != props.vram_bytes) abort();
    if (stow_device_close(device) != STOW_OK) abort();
  }
  free(name);
  return 0;
}
