/* Watch: the figures of the process itself and of the devices. */
#include <stowage/watch.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define STANDIN STOW_BUILD_DIR "/tests/standin/libnvidia-ml.so.1"

TEST(a_process_sees_what_it_takes)
{
  stow_watch *watch;
  stow_watch_host before = STOW_WATCH_HOST_INIT, after = STOW_WATCH_HOST_INIT;
  CHECK_OK(stow_watch_open(&watch));
  CHECK_OK(stow_watch_read_host(watch, &before));
  size_t bytes = (size_t)32 << 20;
  volatile char *taken = malloc(bytes);
  for (size_t i = 0; i < bytes; i += 4096) taken[i] = 1;
  CHECK_OK(stow_watch_read_host(watch, &after));
  CHECK(taken[0] == 1);
  CHECK(after.held_bytes >= before.held_bytes + bytes / 2);
  CHECK(after.data_bytes >= before.data_bytes + bytes / 2);
  CHECK(after.peak_resident_bytes >= after.resident_bytes);
  CHECK(after.total_bytes >= after.usable_bytes && after.usable_bytes > 0);
  free((void *)taken);
  CHECK_OK(stow_watch_close(watch));
}

TEST(devices_are_those_of_nvml_and_none_without_it)
{
  stow_watch *watch;
  stow_watch_device device = STOW_WATCH_DEVICE_INIT;
  stow_watch_host host = STOW_WATCH_HOST_INIT;
  setenv("STOWAGE_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
  CHECK_OK(stow_watch_open(&watch));
  CHECK(stow_watch_device_count(watch) == 0);
  CHECK_STATUS(stow_watch_read_device(watch, 0, &device), STOW_ERR_NOT_FOUND);
  CHECK_OK(stow_watch_close(watch));
  setenv("STOWAGE_LIBNVML", STANDIN, 1);
  CHECK_OK(stow_watch_open(&watch));
  CHECK_OK(stow_watch_read_host(watch, &host));
  CHECK(dlopen(STANDIN, RTLD_NOW | RTLD_NOLOAD) == NULL); /* the host is read without NVML */
  CHECK(stow_watch_device_count(watch) == 2);
  CHECK_OK(stow_watch_read_device(watch, 0, &device));
  CHECK_U64(device.used_bytes, UINT64_C(5) << 30);
  CHECK(strncmp(device.uuid, "GPU-", 4) == 0);
  CHECK_STATUS(stow_watch_read_device(watch, 1, &device), STOW_ERR_UNSUPPORTED);
  CHECK_STATUS(stow_watch_read_device(watch, 2, &device), STOW_ERR_NOT_FOUND);
  CHECK_OK(stow_watch_close(watch));
  CHECK_OK(stow_watch_close(NULL));
}

TEST_MAIN
