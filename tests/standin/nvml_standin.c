/* Stand-in NVML: two devices. The first has STANDIN_PROCESSES programs (2): the first has the PID
 * STANDIN_PID, and the memory of the second is unknown. With STANDIN_NVML_OWN the first is the
 * process that asks, and holds so many bytes. STANDIN_NVML_FAIL is what nvmlInit returns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

typedef struct process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
} process;

static int number(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text != NULL ? (int)strtol(text, NULL, 10) : otherwise;
}

int nvmlInit_v2(void) {
  return number("STANDIN_NVML_FAIL", 0);
}
int nvmlShutdown(void) {
  return 0;
}
const char *nvmlErrorString(int code) {
  return code == 9 ? "Driver Not Loaded" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  snprintf(text, size, "580.95.05");
  return 0;
}
int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
  snprintf(text, size, "13.580.95.05");
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  static char handles[2];
  *device = &handles[index];
  return index < 2 ? 0 : 2;
}
static int index_of(void *device) {
  void *first;
  nvmlDeviceGetHandleByIndex_v2(0, &first);
  return (int)((char *)device - (char *)first);
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
  snprintf(text, size, "GPU-abababab-abab-abab-abab-ababababab%02x", (unsigned)index_of(device));
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  char text[64];
  for (unsigned i = 0; i < 2; i++) {
    nvmlDeviceGetHandleByIndex_v2(i, device);
    nvmlDeviceGetUUID(*device, text, sizeof text);
    if (strcmp(text, uuid) == 0) return 0;
  }
  return 6;
}
int nvmlDeviceGetName(void *device, char *text, unsigned size) {
  snprintf(text, size, "Stand-in %d", index_of(device));
  return 0;
}
/* Returns what programs hold on the first device: STANDIN_NVML_USED bytes, or the number in that
 * file. */
static unsigned long long used(void) {
  const char *text = getenv("STANDIN_NVML_USED");
  unsigned long long bytes = 5ull << 30;
  FILE *file = text != NULL && text[0] == '/' ? fopen(text, "re") : NULL;
  if (text != NULL && text[0] != '/') bytes = strtoull(text, NULL, 10);
  if (file != NULL) {
    if (fscanf(file, "%llu", &bytes) != 1) bytes = 0; /* NOLINT(cert-err34-c): the test's own */
    fclose(file);
  }
  return bytes;
}
int nvmlDeviceGetMemoryInfo_v2(void *device, void *out) {
  struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
  } *memory = out;
  if (memory->version != (sizeof *memory | (2u << 24))) return 25;
  if (index_of(device) != 0) return 3;
  memory->total = 16ull << 30;
  memory->reserved = 1ull << 30;
  memory->used = used();
  memory->free = (15ull << 30) - memory->used;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, void *out) {
  unsigned long long *memory = out;
  if (index_of(device) != 0) return 3;
  memory[0] = 16ull << 30;
  memory[1] = (15ull << 30) - used();
  memory[2] = (1ull << 30) + used();
  return 0;
}
/* Returns KiB per second over the last twenty milliseconds: STANDIN_BUS, or none. */
int nvmlDeviceGetPcieThroughput(void *device, int counter, unsigned *rate) {
  (void)device;
  *rate = counter == 1 ? (unsigned)number("STANDIN_BUS", 0) : 0;
  return getenv("STANDIN_BUS") != NULL ? 0 : 3;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *infos) {
  unsigned there = index_of(device) == 0 ? (unsigned)number("STANDIN_PROCESSES", 2) : 0;
  unsigned room = *count;
  *count = there;
  if (there > room) return 7;
  for (unsigned i = 0; i < there; i++)
    infos[i] = (process){i == 0 ? (unsigned)number("STANDIN_PID", 1) : 1000 + i,
                         i == 1 ? ~0ull : 3ull << 30, 0, 0};
  const char *own = getenv("STANDIN_NVML_OWN");
  if (own != NULL && there > 0)
    infos[0] = (process){(unsigned)getpid(), strtoull(own, NULL, 10), 0, 0};
  return 0;
}
