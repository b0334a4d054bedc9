/* Watch: memory in use now, from the kernel and NVIDIA's management library.
 *
 *   stow_watch *watch;
 *   stow_watch_open(&watch);
 *   stow_watch_host host = STOW_WATCH_HOST_INIT;
 *   stow_watch_device device = STOW_WATCH_DEVICE_INIT;
 *   stow_watch_read_host(watch, &host);
 *   for (int i = 0; i < stow_watch_device_count(watch); i++) stow_watch_read_device(watch, i,
 * &device); stow_watch_close(watch);
 *
 * Opens no device and creates no CUDA context, so it uses no device memory and is cheap enough to
 * call many times a second.
 *
 * Threads: a watch is for one thread at a time. Fork: a child opens its own. */
#ifndef STOWAGE_WATCH_H
#define STOWAGE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_watch stow_watch;

typedef struct stow_watch_host {
  uint32_t struct_bytes; /* sizeof(stow_watch_host), set by the caller */
  uint32_t reserved;
  uint64_t total_bytes;    /* the most that this process could hold: the limit of the machine or the
                            * cgroup */
  uint64_t usable_bytes;   /* what it can still allocate */
  uint64_t held_bytes;     /* held by this process and not reclaimable: anonymous and shared
                            * memory */
  uint64_t resident_bytes; /* resident memory of this process, files included */
  uint64_t peak_resident_bytes; /* peak since the start, or since the last reset in the kernel */
  uint64_t data_bytes;          /* memory that counts against RLIMIT_DATA, touched or not */
  uint64_t group_kills;         /* processes of the cgroup that were killed for lack of memory */
} stow_watch_host;
#define STOW_WATCH_HOST_INIT                                                                       \
  { sizeof(stow_watch_host), 0, 0, 0, 0, 0, 0, 0, 0 }

typedef struct stow_watch_device {
  uint32_t struct_bytes; /* sizeof(stow_watch_device), set by the caller */
  uint32_t own_known;    /* 1: own_bytes is known */
  char uuid[48];         /* "GPU-…" */
  char name[64];
  uint64_t total_bytes, used_bytes; /* held by all processes */
  uint64_t own_bytes;               /* held by this process; unknown in most containers */
} stow_watch_device;
#define STOW_WATCH_DEVICE_INIT                                                                     \
  { sizeof(stow_watch_device), 0, "", "", 0, 0, 0 }

/* Opens a watch. Without NVML there are no devices; that is not an error. */
STOW_API stow_status stow_watch_open(stow_watch **watch);
/* Closes a watch; NULL is allowed. */
STOW_API stow_status stow_watch_close(stow_watch *watch);

STOW_API stow_status stow_watch_read_host(stow_watch *watch, stow_watch_host *host);
/* Returns the number of devices of the machine. Ignores CUDA_VISIBLE_DEVICES, so match devices by
 * UUID. The first call loads NVML, which may load the CUDA driver; reading the host never does. */
STOW_API int stow_watch_device_count(stow_watch *watch);
/* Reads one device. STOW_ERR_NOT_FOUND: no such device; STOW_ERR_UNSUPPORTED: it does not report
 * its memory. */
STOW_API stow_status stow_watch_read_device(stow_watch *watch, int index,
                                            stow_watch_device *device);

#ifdef __cplusplus
}
#endif
#endif
