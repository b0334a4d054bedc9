/* NVML: reads from a stand-in library, and works without NVML. */
#include "watch/nvml.h"

#include <stdlib.h>
#include <unistd.h>

#include "harness.h"

#define STANDIN STOW_BUILD_DIR "/tests/standin/libnvidia-ml.so.1"

static nvml *open_standin(void) {
  nvml *n;
  setenv("STOWAGE_LIBNVML", STANDIN, 1);
  CHECK_OK(nvml_open(&n));
  return n;
}

TEST(its_absence_is_reported_with_the_reason)
{
  nvml *n;
  setenv("STOWAGE_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
  CHECK_STATUS(nvml_open(&n), STOW_ERR_NOT_FOUND);
  CHECK(n == NULL);
  CHECK_MESSAGE("/nowhere/libnvidia-ml.so.1");
}

TEST(a_library_that_cannot_start_is_reported_in_its_own_words)
{
  nvml *n;
  setenv("STOWAGE_LIBNVML", STANDIN, 1);
  setenv("STANDIN_NVML_FAIL", "9", 1);
  CHECK_STATUS(nvml_open(&n), STOW_ERR_NOT_FOUND);
  CHECK_MESSAGE("Driver Not Loaded");
}

TEST(a_library_that_is_not_nvml_is_refused)
{
  nvml *n;
  setenv("STOWAGE_LIBNVML", STOW_BUILD_DIR "/tests/standin/libcuda.so.1", 1);
  CHECK_STATUS(nvml_open(&n), STOW_ERR_NOT_FOUND);
  CHECK_MESSAGE("not NVML");
}

TEST(devices_tell_name_uuid_and_memory)
{
  nvml *n = open_standin();
  nvml_device device;
  CHECK_TEXT(nvml_driver_version(n), "580.95.05");
  CHECK_TEXT(nvml_library_version(n), "13.580.95.05");
  CHECK(nvml_count(n) == 2);
  CHECK_OK(nvml_device_at(n, 0, &device));
  CHECK_TEXT(device.uuid, "GPU-abababab-abab-abab-abab-ababababab00");
  CHECK(device.memory_known);
  CHECK_U64(device.reserved_bytes, UINT64_C(1) << 30);
  CHECK_U64(device.used_bytes, UINT64_C(5) << 30);
  CHECK_OK(
      nvml_device_at(n, 1, &device)); /* a device that does not report its memory is still listed */
  CHECK(!device.memory_known);
  CHECK_STATUS(nvml_device_at(n, 2, &device), STOW_ERR_NOT_FOUND);
  int index = -1;
  CHECK_OK(nvml_find(n, "gpu-abababab-abab-abab-abab-ababababab01", &index));
  CHECK(index == 1);
  CHECK_STATUS(nvml_find(n, "GPU-0", &index), STOW_ERR_NOT_FOUND);
  nvml_close(n);
}

TEST(processes_tell_pid_bytes_and_name)
{
  char pid[16], space[64] = "";
  snprintf(pid, sizeof pid, "%d", (int)getpid());
  setenv("STANDIN_PID", pid, 1);
  nvml *n = open_standin();
  nvml_process processes[8];
  int count;
  CHECK_OK(nvml_processes(n, 0, processes, 8, &count));
  CHECK(count == 2 && processes[0].pid == (unsigned)getpid());
  CHECK(processes[0].bytes_known && processes[0].bytes == UINT64_C(3) << 30);
  CHECK(!processes[1].bytes_known);
  /* Names are reported only if pids are the machine's own. */
  if (readlink("/proc/self/ns/pid", space, sizeof space - 1) > 0 &&
      strcmp(space, "pid:[4026531836]") == 0)
    CHECK_TEXT(processes[0].name, "nvml_test");
  else
    CHECK_TEXT(processes[0].name, "");
  CHECK_OK(nvml_processes(n, 1, processes, 8, &count));
  CHECK(count == 0);
  nvml_close(n);
}

TEST(more_processes_than_room_are_counted_and_not_overrun)
{
  setenv("STANDIN_PROCESSES", "300", 1);
  nvml *n = open_standin();
  nvml_process processes[4];
  int count;
  CHECK_OK(nvml_processes(n, 0, processes, 4, &count));
  CHECK(count == 300 && processes[3].pid == 1003);
  nvml_close(n);
}

TEST_MAIN
