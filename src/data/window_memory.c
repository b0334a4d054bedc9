/* Window memory: see window_memory.h. */
#include "data/window_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "data/huge_alloc.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

uint64_t window_memory_page(void) {
  return (uint64_t)sysconf(_SC_PAGESIZE);
}

bool window_memory_open(window_memory *m, uint64_t bytes, bool maps) {
  *m = (window_memory){0};
  if (!maps) {
    m->bytes = huge_alloc(bytes);
    return m->bytes != NULL;
  }
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  size_t whole = (size_t)round_up(bytes > 0 ? bytes : 1, window_memory_page());
  void *memory = mmap(NULL, whole, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) return false;
  *m = (window_memory){.bytes = memory, .mapped_bytes = whole};
  return true;
}

void window_memory_close(window_memory *m) {
  if (m->mapped_bytes > 0)
    munmap(m->bytes, m->mapped_bytes);
  else
    free(m->bytes);
  *m = (window_memory){0};
}

/* The mapping is private and writable: a later read into the same memory copies the page and does
 * not change the file. Populating it reports an error of the disk here; a page that is reclaimed
 * before its rows are copied is read again by the kernel. */
bool window_memory_map(char *to, int fd, uint64_t offset, uint64_t bytes, bool begins, bool ends) {
  uint64_t page = window_memory_page(), within = offset % page;
  if ((uintptr_t)to % page != within || (within != 0 && !begins)) return false;
  if ((offset + bytes) % page != 0 && !ends) return false;
  int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
  size_t count = (size_t)(bytes + within);
  posix_fadvise(fd, (off_t)(offset - within), (off_t)count, POSIX_FADV_WILLNEED);
  void *made =
      mmap(to - within, count, PROT_READ | PROT_WRITE, flags, fd, (off_t)(offset - within));
  return made != MAP_FAILED && madvise(made, count, MADV_POPULATE_READ) == 0;
}
