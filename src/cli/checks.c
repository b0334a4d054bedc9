/* The doctor's checks. Each adds one finding or more. A check tries things out where it can,
 * instead of looking them up. Checks that fork come first, before a driver is loaded. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <stowage/size.h>

#include "base/clock.h"
#include "base/hostmem.h"
#include "base/text.h"
#include "base/variables.h"
#include "cli/doctor.h"
#include "cli/installed.h"
#include "device/cuda_probe.h"
#include "device/device.h"
#include "watch/nvml.h"
#include "watch/packages.h"
#include "watch/pidfd.h"
#include "watch/proc.h"

#define SIM_HINT "a simulated device needs no driver: --device sim:16G"

/* Adds a finding and returns it, so that `next` can be added to it. */
static finding *found(findings *into, const char *name, finding_verdict verdict, const char *format,
                      ...) __attribute__((format(printf, 4, 5)));
static finding *found(findings *into, const char *name, finding_verdict verdict, const char *format,
                      ...) {
  /* When the list is full, the last finding is overwritten; eight checks and a dozen devices
   * fit. */
  if (into->count == FINDINGS_MAX) into->count--;
  finding *f = &into->list[into->count++];
  *f = (finding){.verdict = verdict};
  snprintf(f->name, sizeof f->name, "%s", name);
  va_list args;
  va_start(args, format);
  vsnprintf(f->reason, sizeof f->reason, format, args);
  va_end(args);
  return f;
}

static void next(finding *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void next(finding *f, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(f->next, sizeof f->next, format, args);
  va_end(args);
}

/* ---- devices ---- */

/* Creates one page on `tier`, maps, fills, reads back and frees it; `*us` receives the time. */
static stow_status try_mapped(stow_device *d, stow_addr at, stow_page page, uint64_t bytes) {
  unsigned char back[4096];
  STOW_TRY(device_map(d, at, bytes, page));
  stow_status status = device_access(d, at, bytes);
  if (status == STOW_OK) status = device_fill(d, at, 0xa5, bytes, NULL);
  if (status == STOW_OK)
    status =
        device_copy(d, (stow_addr)(uintptr_t)back, at + bytes - sizeof back, sizeof back, NULL);
  if (status == STOW_OK) status = device_stream_sync(d, NULL);
  for (size_t i = 0; i < sizeof back && status == STOW_OK; i++)
    if (back[i] != 0xa5)
      status = stow_fail(STOW_ERR_DEVICE, "a page filled with 0xa5 reads back as 0x%02x", back[i]);
  stow_status undone = device_unmap(d, at, bytes);
  return status != STOW_OK ? status : undone;
}

static stow_status try_page(stow_device *d, uint64_t bytes, stow_tier tier, uint64_t *us) {
  uint64_t started = clock_ns();
  stow_addr at;
  stow_page page;
  STOW_TRY(device_reserve(d, &at, bytes, 0));
  stow_status status = device_page_create(d, &page, bytes, tier);
  if (status == STOW_OK) {
    status = try_mapped(d, at, page, bytes);
    stow_status released = device_page_release(d, page);
    if (status == STOW_OK) status = released;
  }
  stow_status undone = device_unreserve(d, at, bytes);
  *us = (clock_ns() - started) / 1000;
  return status != STOW_OK ? status : undone;
}

static void check_pages(findings *into, stow_device *d, const stow_device_props *props) {
  char size[STOW_SIZE_TEXT_MAX];
  uint64_t us;
  if (!props->has_vmm) {
    next(found(into, "pages", FINDING_NOTE,
               "this driver cannot create and map pages; plain allocations work, spilling and "
               "migrating do not"),
         "install a driver for CUDA 10.2 or newer");
    return;
  }
  stow_size_format(size, props->page_bytes);
  if (try_page(d, props->page_bytes, STOW_TIER_VRAM, &us) == STOW_OK)
    found(into, "pages", FINDING_OK,
          "a page of %s was created, mapped, filled and read back in %llu us", size,
          (unsigned long long)us);
  else
    next(found(into, "pages", FINDING_BROKEN, "a page of %s: %s", size, stow_status_message()),
         "see whether the device is full: stowage info");
}

/* Appends how the backing was found, and whether the result is cached. */
static void add_path(finding *f, const cuda_probe *path) {
  size_t length = strlen(f->reason);
  if (path->reason[0] != '\0')
    snprintf(f->reason + length, sizeof f->reason - length, "; %s%s", path->reason,
             path->from_cache ? " (found earlier; --probe tries again)" : "");
}

/* Describes the backing of the host tier, for people. */
static const char *path_words(stow_host_backing path) {
  switch (path) {
  case STOW_HOST_NONE: return "no path to host memory";
  case STOW_HOST_PINNED: return "whole pinned allocations";
  case STOW_HOST_LOCATION: return "pages at the host";
  case STOW_HOST_NUMA: return "pages at a NUMA node of the host";
  case STOW_HOST_SIMULATED: return "simulated host memory";
  }
  return "unknown";
}

#define HOST_NEXT                                                                                  \
  "a driver for CUDA 12.6 or newer; in Docker also --cap-add SYS_NICE; then stowage doctor "       \
  "--probe"

static void check_host_tier(findings *into, stow_device *d, const stow_device_props *props,
                            const cuda_probe *path) {
  bool sim = strcmp(props->kind, "sim") == 0;
  const char *words = path_words(props->host_backing);
  uint64_t us;
  finding *f;
  if (props->host_backing == STOW_HOST_NONE) {
    f = found(into, "host tier", FINDING_NONE, "%s: nothing can spill", words);
    next(f, "%s", sim ? "name one: --device sim:16G,host=32G" : HOST_NEXT);
  } else if (props->host_backing == STOW_HOST_PINNED) {
    f = found(into, "host tier", FINDING_NOTE,
              "%s only: pages cannot move to host memory while a program runs", words);
    next(f, "%s", HOST_NEXT);
  } else if (try_page(d, props->page_bytes, STOW_TIER_HOST, &us) == STOW_OK) {
    f = found(into, "host tier", FINDING_OK,
              "%s: one created, mapped, filled and read back in %llu us", words,
              (unsigned long long)us);
  } else {
    f = found(into, "host tier", FINDING_BROKEN, "%s: %s", words, stow_status_message());
    next(f, "see how much memory the host has: stowage info");
  }
  add_path(f, path);
}

static void check_device(findings *into, const char *name, bool probe) {
  stow_device *d;
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  cuda_probe path = {.reason = ""};
  char size[STOW_SIZE_TEXT_MAX];
  /* Opening a device uses the cached result, so probe first. Other kinds of devices have no paths
   * to try, and their failure here means nothing. */
  if (probe) (void)cuda_probe_get(&path, name != NULL ? name : getenv(ENV_DEVICE), true);
  stow_status status = stow_device_open(&d, name);
  if (status == STOW_OK) status = stow_device_get_props(d, &props);
  if (status != STOW_OK) {
    next(found(into, "device", FINDING_BROKEN, "%s", stow_status_message()), SIM_HINT);
    return;
  }
  stow_size_format(size, props.vram_bytes);
  if (strcmp(props.kind, "cuda") == 0) {
    found(into, "device", FINDING_OK, "%s, %s, %s, compute capability %d.%d", props.name,
          props.uuid, size, props.compute_major, props.compute_minor);
    if (!probe) (void)cuda_probe_get(&path, props.uuid, false);
  } else {
    found(into, "device", FINDING_OK, "%s, %s", props.name, size);
    path.reason[0] = '\0';
  }
  check_pages(into, d, &props);
  check_host_tier(into, d, &props, &path);
  if (stow_device_close(d) != STOW_OK)
    found(into, "device", FINDING_BROKEN, "closing it: %s", stow_status_message());
}

/* Checks the simulated device, which needs memfd and fixed mappings; a sandbox may forbid them. */
static void check_simulator(findings *into) {
  stow_device *d;
  uint64_t us = 0;
  stow_status status = stow_device_open(&d, "sim:64M");
  if (status == STOW_OK) {
    status = try_page(d, UINT64_C(2) << 20, STOW_TIER_VRAM, &us);
    stow_status closed = stow_device_close(d);
    if (status == STOW_OK) status = closed;
  }
  if (status == STOW_OK)
    found(into, "simulator", FINDING_OK, "works without a GPU");
  else
    next(found(into, "simulator", FINDING_BROKEN, "%s", stow_status_message()),
         "it needs memfd_create and mmap at fixed addresses; check the sandbox's rules");
}

static void check_driver(findings *into, int count) {
  nvml *watch;
  if (nvml_open(&watch) == STOW_OK) {
    found(into, "driver", FINDING_OK, "%s, %d device%s", nvml_driver_version(watch), count,
          text_s((uint64_t)count));
    nvml_close(watch);
    return;
  }
  found(into, "driver", FINDING_OK, "%d device%s", count, text_s((uint64_t)count));
  found(into, "nvml", FINDING_NOTE, "the processes that hold device memory are unknown: %s",
        stow_status_message());
}

/* Returns true if the texts differ only in numbers: two devices rarely take the same microseconds.
 */
static bool same_but_numbers(const char *a, const char *b) {
  while (*a != '\0' && *b != '\0') {
    size_t digits_a = strspn(a, "0123456789"), digits_b = strspn(b, "0123456789");
    if ((digits_a > 0) != (digits_b > 0)) return false;
    if (digits_a == 0 && *a != *b) return false;
    a += digits_a > 0 ? digits_a : 1;
    b += digits_b > 0 ? digits_b : 1;
  }
  return *a == *b;
}

/* Merges findings since `first` that say the same about several devices into one that states their
 * number. Findings that name a device ("device") differ by its UUID and stay. */
static void say_once(findings *into, size_t first) {
  for (size_t i = first; i < into->count; i++) {
    finding *f = &into->list[i];
    size_t devices = 1;
    if (strcmp(f->name, "device") == 0) continue;
    for (size_t k = i + 1; k < into->count;) {
      const finding *other = &into->list[k];
      if (strcmp(other->name, f->name) != 0 || other->verdict != f->verdict ||
          !same_but_numbers(other->reason, f->reason) || strcmp(other->next, f->next) != 0) {
        k++;
        continue;
      }
      memmove(&into->list[k], &into->list[k + 1], (--into->count - k) * sizeof *other);
      devices++;
    }
    size_t length = strlen(f->reason);
    if (devices > 1)
      snprintf(f->reason + length, sizeof f->reason - length, "; the same on %zu devices", devices);
  }
}

static void check_devices(findings *into, bool probe) {
  int count = 0;
  if (stow_device_count(&count) != STOW_OK) {
    next(found(into, "driver", FINDING_BROKEN, "%s", stow_status_message()), SIM_HINT);
    return;
  }
  if (count == 0) {
    /* The message of a failed open repeats the advice below; the loader's own reason is enough. */
    stow_device *none;
    char why[256] = "";
    if (stow_device_open(&none, "0") == STOW_OK) {
      stow_device_close(none);
    } else {
      const char *said = stow_status_message(), *open = strchr(said, '('), *end = strchr(said, ')');
      if (open != NULL && end != NULL && end > open)
        snprintf(why, sizeof why, "%.*s", (int)(end - open + 1), open);
    }
    next(found(into, "driver", FINDING_NONE, "no GPU: no CUDA driver%s%s",
               why[0] != '\0' ? " " : "", why),
         "install NVIDIA's driver; in a container, start it with the GPUs (docker run --gpus all); "
         "or use the simulated device: --device sim:16G");
    return;
  }
  check_driver(into, count);
  size_t first = into->count;
  for (int i = 0; i < count; i++) {
    char index[16];
    snprintf(index, sizeof index, "%d", i);
    check_device(into, index, probe);
  }
  say_once(into, first);
}

/* ---- the machine and the container ---- */

static void check_memory(findings *into) {
  hostmem memory;
  char limit[STOW_SIZE_TEXT_MAX], used[STOW_SIZE_TEXT_MAX], total[STOW_SIZE_TEXT_MAX];
  if (hostmem_read(&memory) != STOW_OK) {
    found(into, "host memory", FINDING_BROKEN, "%s", stow_status_message());
    return;
  }
  found(into, "host memory", FINDING_OK, "%s of %s may be used",
        stow_size_format(used, memory.usable_bytes),
        stow_size_format(total, memory.machine_total_bytes));
  if (!memory.limited) {
    if (memory.cgroup_version == 0)
      found(into, "container", FINDING_NONE,
            "no memory cgroup is visible, so nothing limits memory");
    else
      found(into, "container", FINDING_OK, "no memory limit (cgroup v%d)", memory.cgroup_version);
    return;
  }
  next(found(into, "container", FINDING_NOTE, "memory limited to %s, %s of it in use (cgroup v%d)",
             stow_size_format(limit, memory.limit_bytes),
             stow_size_format(used, memory.limit_used_bytes), memory.cgroup_version),
       "pinned host memory counts against it; raise it with docker run --memory, or the limit of"
       " the pod or job");
}

static void check_locked_memory(findings *into) {
  struct rlimit limit;
  char size[STOW_SIZE_TEXT_MAX];
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return;
  if (limit.rlim_cur == RLIM_INFINITY)
    found(into, "locked memory", FINDING_OK, "no limit");
  else
    next(found(into, "locked memory", FINDING_NOTE,
               "at most %s may be locked (mlock, registered I/O buffers)",
               stow_size_format(size, limit.rlim_cur)),
         "ulimit -l unlimited; in Docker --ulimit memlock=-1");
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    next(found(into, "address space", FINDING_NOTE,
               "limited to %s; reserving addresses for a device needs more than it holds",
               stow_size_format(size, limit.rlim_cur)),
         "ulimit -v unlimited");
}

static void check_kernel(findings *into) {
  uint64_t number;
  if (proc_number(&number, "", "/proc/sys/vm/max_map_count") == STOW_OK) {
    finding *f = found(into, "mappings", number < 65530 ? FINDING_NOTE : FINDING_OK,
                       "a process may have %llu (vm.max_map_count)", (unsigned long long)number);
    if (number < 65530) next(f, "sysctl -w vm.max_map_count=65530, or more");
  }
  if (proc_number(&number, "", "/proc/sys/vm/overcommit_memory") == STOW_OK && number == 2)
    next(found(into, "overcommit", FINDING_NOTE,
               "the kernel does not overcommit memory (vm.overcommit_memory = 2): large"
               " reservations of other programs may be refused"),
         "sysctl -w vm.overcommit_memory=0");
  struct statvfs shm;
  if (statvfs("/dev/shm", &shm) == 0) {
    uint64_t bytes = (uint64_t)shm.f_blocks * shm.f_frsize;
    char size[STOW_SIZE_TEXT_MAX];
    finding *f = found(into, "shared memory", bytes < UINT64_C(1) << 30 ? FINDING_NOTE : FINDING_OK,
                       "/dev/shm holds %s", stow_size_format(size, bytes));
    if (f->verdict == FINDING_NOTE)
      next(f, "data loader workers need more: docker run --shm-size 8g");
  }
}

static void check_pidfd(findings *into) {
  static const char name[] = "pidfd_getfd";
  pidfd_answer answer;
  pidfd_try(&answer);
  if (answer.from_child == 0 && answer.from_parent == 0) {
    found(into, name, FINDING_OK, "processes may share device memory made of pages");
  } else if (answer.from_child == ENOSYS) {
    next(found(into, name, FINDING_NOTE,
               "this kernel does not have it: device memory made of pages"
               " cannot be shared between processes that way"),
         "Linux 5.6 or newer");
  } else if (answer.from_child == 0) {
    next(found(into, name, FINDING_NOTE,
               "only a parent may take a file descriptor from its child (%s the other way):"
               " processes may fail to share device memory made of pages",
               strerror(answer.from_parent)),
         "sysctl -w kernel.yama.ptrace_scope=0, or in Docker --cap-add SYS_PTRACE");
  } else {
    next(found(into, name, FINDING_NOTE,
               "refused (%s): device memory made of pages cannot be"
               " shared between processes that way",
               strerror(answer.from_child)),
         "in Docker --cap-add SYS_PTRACE, or a seccomp profile that allows it");
  }
}

static void check_frameworks(findings *into) {
  packages all;
  if (packages_find(&all) != STOW_OK) {
    found(into, "python", FINDING_NONE, "%s", stow_status_message());
    return;
  }
  found(into, "python", FINDING_OK, "%s (%s)%s", all.python, all.interpreter,
        all.count == 0 ? "; no torch, jax, tensorflow, cupy or numpy there" : "");
  for (size_t i = 0; i < all.count; i++)
    found(into, all.found[i].name, FINDING_OK, "%s", all.found[i].version);
}

/* Checks for another program of the same name, and for an incomplete installation of this one. */
static void check_install(findings *into) {
  installed answer;
  installed_look(&answer);
  if (answer.foreign_command[0] != '\0')
    next(found(into, "install", FINDING_NOTE,
               "%s is another program called stowage (a dotfile linker on PyPI has that name), and "
               "the PATH finds it first",
               answer.foreign_command),
         "pip uninstall stowage, then pip install stowage-memory; or put %s first in PATH",
         answer.own_folder);
  if (answer.foreign_package[0] != '\0')
    next(found(into, "install", FINDING_NOTE,
               "%s is another package called stowage (a dotfile linker on PyPI); it replaces the "
               "command or the module of this one",
               answer.foreign_package),
         "pip uninstall stowage, then pip install --force-reinstall stowage-memory");
  if (answer.missing[0] != '\0')
    next(found(into, "install", FINDING_BROKEN, "%s is missing", answer.missing),
         "install again: make install, the .deb, or pip install --force-reinstall stowage-memory");
  if (answer.foreign_command[0] == '\0' && answer.foreign_package[0] == '\0' &&
      answer.missing[0] == '\0')
    found(into, "install", FINDING_OK, "complete, in %s", answer.own_folder);
}

/* Rejects an invalid device name: that is the caller's mistake, not a finding. */
static stow_status check_name(const char *device) {
  stow_device *d;
  stow_status status = stow_device_open(&d, device);
  if (status == STOW_OK) return stow_device_close(d);
  bool mistake =
      status == STOW_ERR_INVALID || status == STOW_ERR_OVERFLOW || status == STOW_ERR_NOT_FOUND;
  return mistake ? status : STOW_OK;
}

stow_status checks_run(findings *into, const char *device, bool probe) {
  check_pidfd(into);
  finding pidfd = into->list[--into->count]; /* made first, shown with its kind */
  const char *environment = getenv(ENV_DEVICE);
  if ((device != NULL && device[0] != '\0') || (environment != NULL && environment[0] != '\0')) {
    STOW_TRY(check_name(device));
    check_device(into, device, probe);
  } else {
    check_devices(into, probe);
  }
  check_simulator(into);
  check_memory(into);
  check_locked_memory(into);
  check_kernel(into);
  into->list[into->count++] = pidfd;
  check_frameworks(into);
  check_install(into);
  return STOW_OK;
}
