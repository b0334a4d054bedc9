/* The bytes of the simulated device: one sparse memfd, mapped at fixed addresses.
 *
 * Called by sim_range.c and sim_page.c after all checks; this file has only the system calls and
 * their messages. Each page has an offset in the file that is never reused. Releasing it punches a
 * hole, so only touched bytes of live pages cost RAM. Pages created and mapped in order are in
 * order in the file, so Linux merges them into one mapping. With options.paper, addresses come from
 * a counter and no system call is made. */
#include "device/sim_state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/checked.h"

#define FILE_BYTES (UINT64_C(1) << 62)
/* First paper address: beyond any process's address space, so that an access faults. */
#define PAPER_BASE (UINT64_C(1) << 57)
/* Paper reserves no more than a process could: 128 TiB, the lower half of 48 bits. */
#define PAPER_MAX (UINT64_C(1) << 47)

stow_status sim_memory_open(sim *s) {
  s->fd = -1;
  s->paper_next = PAPER_BASE;
  if (s->options.paper) return STOW_OK;
  s->file_bytes = FILE_BYTES;
  struct rlimit limit; /* growing a file past it would raise a signal, not an error */
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < s->file_bytes)
    s->file_bytes = round_down(limit.rlim_cur, UINT64_C(1) << 21);
  s->fd = memfd_create("stowage-sim", MFD_CLOEXEC);
  if (s->fd < 0)
    return stow_fail(
        STOW_ERR_DEVICE,
        "simulated device: no memfd (%s); add the word paper if bytes need not be kept",
        strerror(errno));
  if (ftruncate(s->fd, (off_t)s->file_bytes) != 0) {
    int reason = errno;
    sim_memory_close(s);
    return stow_fail(
        STOW_ERR_DEVICE,
        "simulated device: cannot create a sparse memfd of that size (%s); add the word "
        "paper if bytes need not be kept",
        strerror(reason));
  }
  return STOW_OK;
}

void sim_memory_close(sim *s) {
  if (s->fd >= 0) close(s->fd);
  s->fd = -1;
}

static stow_status system_refused(const char *what, stow_addr addr, uint64_t bytes, int reason) {
  char size[STOW_SIZE_TEXT_MAX];
  stow_size_format(size, bytes);
  if (reason == ENOMEM)
    return stow_fail(
        STOW_ERR_DEVICE,
        "%s %s at 0x%llx on the simulated device: the process has reached Linux's limit of "
        "mappings (vm.max_map_count, usually 65530); use larger pages, map neighbours in the order "
        "they were created, or open the device with the word paper",
        what, size, (unsigned long long)addr);
  return stow_fail(STOW_ERR_DEVICE, "%s %s at 0x%llx on the simulated device: %s", what, size,
                   (unsigned long long)addr, strerror(reason));
}

static stow_status no_range(uint64_t bytes, uint64_t align) {
  char size[STOW_SIZE_TEXT_MAX], step[STOW_SIZE_TEXT_MAX];
  return stow_fail(STOW_ERR_OUT_OF_MEMORY,
                   "no %s of addresses aligned to %s is left; free ranges or reserve less",
                   stow_size_format(size, bytes), stow_size_format(step, align));
}

static stow_status reserve_on_paper(sim *s, stow_addr *addr, uint64_t bytes, uint64_t align) {
  uint64_t at, end;
  if (s->reserved_bytes > PAPER_MAX || bytes > PAPER_MAX - s->reserved_bytes ||
      !checked_round_up(&at, s->paper_next, align) || !checked_add(&end, at, bytes) ||
      end > UINT64_MAX - PAPER_BASE)
    return no_range(bytes, align);
  s->paper_next = end;
  *addr = at;
  return STOW_OK;
}

stow_status sim_memory_reserve(sim *s, stow_addr *addr, uint64_t bytes, uint64_t align) {
  if (s->options.paper) return reserve_on_paper(s, addr, bytes, align);
  uint64_t whole; /* space to cut an aligned range from */
  if (!checked_add(&whole, bytes, align) || whole > PAPER_MAX * 2) return no_range(bytes, align);
  char *base = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return no_range(bytes, align);
  uint64_t at = round_up((uint64_t)(uintptr_t)base, align), head = at - (uint64_t)(uintptr_t)base;
  if (head > 0) munmap(base, head);
  munmap(base + head + bytes, whole - head - bytes);
  *addr = at;
  return STOW_OK;
}

void sim_memory_unreserve(sim *s, stow_addr addr, uint64_t bytes) {
  if (!s->options.paper) munmap((void *)(uintptr_t)addr, bytes);
}

stow_status sim_memory_offset(sim *s, uint64_t *offset, uint64_t bytes) {
  *offset = s->file_next;
  if (s->options.paper) return STOW_OK;
  if (bytes > s->file_bytes - s->file_next)
    return stow_fail(STOW_ERR_DEVICE, "the simulated device's file is used up; open the device "
                                      "again, or with a larger file size limit (ulimit -f)");
  s->file_next += bytes;
  return STOW_OK;
}

stow_status sim_memory_map(sim *s, stow_addr addr, uint64_t bytes, uint64_t offset) {
  if (s->options.paper) return STOW_OK;
  void *at = mmap((void *)(uintptr_t)addr, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                  s->fd, (off_t)offset);
  return at == MAP_FAILED ? system_refused("mapping", addr, bytes, errno) : STOW_OK;
}

/* At the limit of mappings Linux creates no new one, even in place of others. Then the old ones
 * stay, without access: a touch still faults, and since their part of the file is never reused,
 * there is no visible difference. */
stow_status sim_memory_unmap(sim *s, stow_addr addr, uint64_t bytes) {
  if (s->options.paper) return STOW_OK;
  void *at = mmap((void *)(uintptr_t)addr, bytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (at != MAP_FAILED || mprotect((void *)(uintptr_t)addr, bytes, PROT_NONE) == 0) return STOW_OK;
  return system_refused("unmapping", addr, bytes, errno);
}

stow_status sim_memory_access(sim *s, stow_addr addr, uint64_t bytes) {
  if (s->options.paper) return STOW_OK;
  if (mprotect((void *)(uintptr_t)addr, bytes, PROT_READ | PROT_WRITE) != 0)
    return system_refused("granting access to", addr, bytes, errno);
  return STOW_OK;
}

stow_status sim_memory_drop(sim *s, uint64_t offset, uint64_t bytes) {
  if (s->options.paper) return STOW_OK;
  if (fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes) !=
      0)
    return stow_fail(STOW_ERR_DEVICE,
                     "the simulated device could not return a page's memory to the system: %s",
                     strerror(errno));
  return STOW_OK;
}
