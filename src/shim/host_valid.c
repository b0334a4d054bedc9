/* Host valid: see host_valid.h. The marks are a sorted list without overlaps. */
#include "shim/host_valid.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/lock.h"
#include "shim/shim.h"

typedef struct host_mark {
  cu_addr addr, end;
  const uint8_t *host; /* the byte that equals the one at addr */
} host_mark;

static lock marks_lock = LOCK_INIT(LOCK_MARKS);
static host_mark *marks; /* guarded by marks_lock, like the next two */
static size_t mark_capacity;
static _Atomic size_t mark_count; /* read without the lock to see that there are none */

static void after_fork(void) {
  lock_init(&marks_lock, LOCK_MARKS);
}
SHIM_AFTER_FORK(after_fork);

/* Returns the first mark that ends after addr; mark_count if there is none. */
static size_t first_after(cu_addr addr) {
  size_t low = 0, high = mark_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (marks[middle].end > addr)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Makes room for two more marks: a removed range can split one, and one is added. */
static bool make_room(void) {
  if (mark_count + 2 <= mark_capacity) return true;
  size_t capacity = mark_capacity > 0 ? mark_capacity * 2 : 64;
  host_mark *more = realloc(marks, capacity * sizeof *more);
  if (more == NULL) return false;
  marks = more;
  mark_capacity = capacity;
  return true;
}

/* Replaces `old` marks from index `at` with `count` others. */
static void replace(size_t at, size_t old, const host_mark *with, size_t count) {
  ASSERT(at + old <= mark_count);
  memmove(marks + at + count, marks + at + old, (mark_count - at - old) * sizeof *marks);
  if (count > 0) memcpy(marks + at, with, count * sizeof *marks);
  mark_count = mark_count - old + count;
}

/* Removes the marks of a range. Returns where one of the range belongs. */
static size_t clear(cu_addr addr, cu_addr end) {
  size_t at = first_after(addr), old = 0, left = 0;
  host_mark rest[2];
  for (; at + old < mark_count && marks[at + old].addr < end; old++) {
    host_mark m = marks[at + old];
    if (m.addr < addr) rest[left++] = (host_mark){m.addr, addr, m.host};
    if (m.end > end) rest[left++] = (host_mark){end, m.end, m.host + (end - m.addr)};
  }
  bool before = left > 0 && rest[0].addr < addr;
  replace(at, old, rest, left);
  return at + before;
}

bool host_valid_mark(cu_addr addr, uint64_t bytes, const void *host) {
  cu_addr end = addr + bytes;
  if (bytes == 0 || end < addr) return false;
  if (host == NULL && mark_count == 0) return true;
  lock_acquire(&marks_lock);
  bool room = make_room();
  if (room) {
    size_t at = clear(addr, end);
    host_mark one = {addr, end, host};
    bool joins = host != NULL && at > 0 && marks[at - 1].end == addr &&
                 marks[at - 1].host + (addr - marks[at - 1].addr) == one.host;
    if (joins)
      marks[at - 1].end = end;
    else if (host != NULL)
      replace(at, 0, &one, 1);
  } else
    mark_count = 0; /* old marks of the range cannot be removed alone */
  lock_release(&marks_lock);
  return room;
}

/* Returns the end of the part of [addr, end) that begins at addr and is marked throughout, or not
 * at all; *mark is its mark, or NULL. */
static cu_addr part_at(cu_addr addr, cu_addr end, const host_mark **mark) {
  ASSERT(addr < end);
  ASSERT(mark != NULL);
  size_t i = first_after(addr);
  bool inside = i < mark_count && marks[i].addr <= addr;
  *mark = inside ? &marks[i] : NULL;
  cu_addr stop = inside ? marks[i].end : i < mark_count ? marks[i].addr : end;
  return stop < end ? stop : end;
}

uint64_t host_valid_bytes(cu_addr addr, uint64_t bytes) {
  uint64_t sum = 0;
  const host_mark *mark;
  if (mark_count == 0) return 0;
  lock_acquire(&marks_lock);
  for (cu_addr at = addr, next; at < addr + bytes; at = next) {
    next = part_at(at, addr + bytes, &mark);
    if (mark != NULL) sum += next - at;
  }
  lock_release(&marks_lock);
  return sum;
}

/* Copies memory that may have vanished: reading a mapped file past its new end raises SIGBUS, but
 * the kernel reports it as an error. */
static bool copy(void *to, const void *from, uint64_t bytes) {
  ASSERT(to != NULL && from != NULL);
  while (bytes > 0) {
    struct iovec in = {(void *)(uintptr_t)from, (size_t)bytes}, out = {to, (size_t)bytes};
    ssize_t got = process_vm_readv(getpid(), &out, 1, &in, 1, 0);
    if (got <= 0) return false;
    to = (uint8_t *)to + got;
    from = (const uint8_t *)from + got;
    bytes -= (uint64_t)got;
  }
  return true;
}

uint64_t host_valid_copy(cu_addr addr, uint64_t bytes, void *to, host_valid_gap *gap, void *user) {
  uint64_t sum = 0;
  const host_mark *mark;
  lock_acquire(&marks_lock);
  for (cu_addr at = addr, next; at < addr + bytes; at = next) {
    next = part_at(at, addr + bytes, &mark);
    uint64_t offset = at - addr, length = next - at;
    if (mark != NULL && copy((uint8_t *)to + offset, mark->host + (at - mark->addr), length))
      sum += length;
    else
      gap(user, offset, length);
  }
  lock_release(&marks_lock);
  return sum;
}
