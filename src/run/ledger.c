/* Ledger: slots, sums and limits. ledger.h explains how it works without a lock. */
#include "run/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/newfile.h"
#include "base/process.h"

#define LEDGER_MAGIC   UINT64_C(0x52454744454c5753) /* "SWLEDGER" */
#define LEDGER_VERSION 17
/* How often a request retries after a collision with another. Each retry yields the processor, so
 * this takes milliseconds at most, and a stopped process does not block others for long. */
#define TRIES_MAX  1000
#define REAP_AFTER 8
/* How often a sum is repeated because a slot changed during it. */
#define STEADY_TRIES 64

static const char *const KIND_NAMES[] = {"plain",  "pages",   "pools",   "arrays", "managed",
                                         "graphs", "context", "spilled", "pinned", "ipc"};
_Static_assert(sizeof KIND_NAMES / sizeof KIND_NAMES[0] == LEDGER_KIND_COUNT, "a name each");

const char *ledger_kind_name(ledger_kind kind) {
  return (unsigned)kind < LEDGER_KIND_COUNT ? KIND_NAMES[kind] : "unknown";
}

/* ---- creating and mapping ---- */

static size_t ledger_bytes(void) {
  size_t head = (sizeof(ledger_header) + 63) / 64 * 64;
  return head + LEDGER_SLOTS_MAX * sizeof(ledger_slot);
}

static void set_up(ledger *l, void *at, size_t bytes) {
  ASSERT(at != NULL);
  l->header = at;
  l->slots = (ledger_slot *)((char *)at + (bytes - LEDGER_SLOTS_MAX * sizeof(ledger_slot)));
  l->mapped_bytes = bytes;
  l->own = 0;
}

/* Writes a name for this boot of this machine and this PID namespace. */
static void name_machine(char name[96]) {
  char space[48] = "", boot[40] = "";
  /* No stdio: if its buffer could not be allocated, a process would conclude that it runs on
   * another machine and ignore the run's limit. */
  int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  ssize_t got = file >= 0 ? read(file, boot, 36) : 0;
  if (file >= 0) close(file);
  boot[got > 0 ? got : 0] = '\0';
  ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  space[length > 0 ? length : 0] = '\0';
  snprintf(name, 96, "%s %s", boot, space);
}

stow_status ledger_create(ledger *l, const char *path) {
  size_t bytes = ledger_bytes();
  *l = (ledger){0};
  int fd = -1;
  if (path != NULL) {
    fd = newfile_create(path, 0600);
    /* Allocates all blocks now, so that a full file system is an error here and not a SIGBUS later.
     */
    int error = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
    if (error != 0) {
      if (fd >= 0) close(fd);
      return stow_fail(STOW_ERR_IO, "creating the ledger %s: %s", path, strerror(error));
    }
  }
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  int error = errno;
  if (fd >= 0) close(fd);
  if (at == MAP_FAILED)
    return stow_fail(STOW_ERR_HOST_MEMORY, "mapping the ledger: %s", strerror(error));
  /* Without this, the kernel fills in the whole sparse file at the first access. */
  (void)madvise(at, bytes, MADV_RANDOM);
  set_up(l, at, bytes);
  l->header->version = LEDGER_VERSION;
  l->header->slot_count = LEDGER_SLOTS_MAX;
  l->header->total_bytes = bytes;
  for (int i = 0; i < LEDGER_DEVICES_MAX; i++) {
    l->header->vram_limit_bytes[i] = LEDGER_UNLIMITED;
    l->header->others_bytes[i] = LEDGER_UNLIMITED;
  }
  name_machine(l->header->machine);
  /* Last: from here on a reader accepts the file as a ledger. */
  atomic_thread_fence(memory_order_release);
  l->header->magic = LEDGER_MAGIC;
  return STOW_OK;
}

stow_status ledger_open(ledger *l, const char *path) {
  ASSERT(path != NULL);
  *l = (ledger){0};
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return stow_fail(STOW_ERR_IO, "opening the ledger %s: %s", path, strerror(errno));
  struct stat info;
  size_t bytes = ledger_bytes();
  bool right = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (size_t)info.st_size == bytes;
  void *at = right ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  int error = errno;
  if (at != MAP_FAILED) (void)madvise(at, bytes, MADV_RANDOM);
  close(fd);
  if (!right) return stow_fail(STOW_ERR_FORMAT, "%s: not a ledger of this version", path);
  if (at == MAP_FAILED)
    return stow_fail(STOW_ERR_HOST_MEMORY, "mapping the ledger %s: %s", path, strerror(error));
  set_up(l, at, bytes);
  const ledger_header *h = l->header;
  if (h->magic == LEDGER_MAGIC && h->version == LEDGER_VERSION &&
      h->slot_count == LEDGER_SLOTS_MAX && h->total_bytes == bytes)
    return STOW_OK;
  ledger_close(l);
  return stow_fail(STOW_ERR_FORMAT, "%s: not a ledger of this version", path);
}

/* Reads `bytes` at the offset. Returns false if the file ends before. */
static bool read_whole(int fd, void *to, size_t bytes, off_t from) {
  for (size_t done = 0; done < bytes;) {
    ssize_t got = pread(fd, (char *)to + done, bytes - done, from + (off_t)done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += (size_t)got;
  }
  return true;
}

stow_status ledger_copy(ledger *l, const char *path) {
  ASSERT(path != NULL);
  *l = (ledger){0};
  size_t bytes = ledger_bytes();
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return stow_fail(STOW_ERR_IO, "opening the ledger %s: %s", path, strerror(errno));
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    close(fd);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a copy of the ledger %s", path);
  }
  set_up(l, at, bytes);
  ledger_header *h = l->header;
  bool right = read_whole(fd, h, sizeof *h, 0) && h->magic == LEDGER_MAGIC &&
               h->version == LEDGER_VERSION && h->slot_count == LEDGER_SLOTS_MAX &&
               h->total_bytes == bytes;
  /* Slots that were never used are all zero. */
  size_t high = right ? (size_t)atomic_load(&h->slots_high) : 0;
  if (high > LEDGER_SLOTS_MAX) high = LEDGER_SLOTS_MAX;
  right = right && read_whole(fd, l->slots, high * sizeof *l->slots,
                              (off_t)((char *)l->slots - (char *)l->header));
  close(fd);
  if (right) return STOW_OK;
  ledger_close(l);
  return stow_fail(STOW_ERR_FORMAT, "%s: not a ledger of this version", path);
}

void ledger_close(ledger *l) {
  ledger_unguard(l);
  if (l->header != NULL) munmap(l->header, l->mapped_bytes);
  *l = (ledger){0};
}

stow_status ledger_part_elsewhere(ledger *l) {
  ASSERT(l->header != NULL);
  char here[96];
  ledger own;
  name_machine(here);
  if (strncmp(here, l->header->machine, sizeof here) == 0) return STOW_OK;
  STOW_TRY(ledger_create(&own, NULL));
  for (int i = 0; i < LEDGER_DEVICES_MAX; i++)
    own.header->vram_limit_bytes[i] = ledger_limit(l, (unsigned)i);
  own.header->spill_limit_bytes = ledger_spill_limit(l);
  memcpy(own.header->visible_devices, l->header->visible_devices,
         sizeof own.header->visible_devices);
  /* No process measures here what other programs hold on a device. */
  own.header->devices_known = 1;
  ledger_close(l);
  *l = own;
  return STOW_OK;
}

/* ---- which processes live ---- */

/* Returns the start time of a running process; 0 if it has exited or is a zombie; 1 if unknown. */
static uint64_t start_time(uint32_t pid) {
  process p;
  switch (process_read(&p, (pid_t)pid)) {
  case PROCESS_LIVES: return p.start;
  case PROCESS_DEAD: return 0;
  default: return 1;
  }
}

static uint64_t owner_of(uint32_t pid, uint64_t start) {
  ASSERT(pid != 0);
  return (uint64_t)pid << 32 | (uint32_t)start;
}

static bool lives(uint64_t owner) {
  owner &= ~LEDGER_TAKING;
  uint32_t pid = (uint32_t)(owner >> 32);
  uint64_t start = start_time(pid);
  return start == 1 || (start != 0 && owner_of(pid, start) == owner);
}

unsigned ledger_reap(ledger *l) {
  ASSERT(l->header != NULL);
  ASSERT(l->own <= LEDGER_SLOTS_MAX);
  unsigned gone = 0;
  uint64_t high = atomic_load(&l->header->slots_high);
  for (uint64_t i = 0; i < high && i < LEDGER_SLOTS_MAX; i++) {
    uint64_t owner = atomic_load(&l->slots[i].owner);
    /* Changes only the owner word; the next owner clears the rest. */
    if (owner != 0 && i + 1 != l->own && !lives(owner) &&
        atomic_compare_exchange_strong(&l->slots[i].owner, &owner, 0))
      gone++;
  }
  return gone;
}

static void clear(ledger_slot *slot) {
  for (int d = 0; d < LEDGER_DEVICES_MAX; d++) {
    ledger_device *device = &slot->devices[d];
    for (int k = 0; k < LEDGER_KIND_COUNT; k++) atomic_store(&device->bytes[k], 0);
    atomic_store(&device->wanted_vram, 0);
    atomic_store(&device->wanted_spill, 0);
    atomic_store(&device->idle_vram, 0);
    atomic_store(&device->idle_spill, 0);
    atomic_store(&device->unused_spill, 0);
    atomic_store(&device->begun, 0);
  }
}

static bool claim(ledger *l, uint64_t self) {
  ASSERT(l->own == 0);
  ASSERT((self & LEDGER_TAKING) == 0);
  for (uint32_t i = 0; i < LEDGER_SLOTS_MAX; i++) {
    uint64_t owner = atomic_load(&l->slots[i].owner);
    /* Reuse our own slot from before an exec: the old program's memory is gone. */
    if (owner != 0 && (owner & ~LEDGER_TAKING) != self) continue;
    /* Bytes of the previous owner must never count as ours. */
    if (!atomic_compare_exchange_strong(&l->slots[i].owner, &owner, self | LEDGER_TAKING)) continue;
    uint64_t high = atomic_load(&l->header->slots_high);
    while (high < i + 1 &&
           !atomic_compare_exchange_weak(&l->header->slots_high, &high, (uint64_t)i + 1)) {
    }
    clear(&l->slots[i]);
    atomic_store(&l->slots[i].owner, self);
    l->own = i + 1;
    return true;
  }
  return false;
}

stow_status ledger_join(ledger *l) {
  ASSERT(l->header != NULL);
  uint32_t pid = (uint32_t)getpid();
  uint64_t self = owner_of(pid, start_time(pid));
  /* Processes before us that have exited released their memory. */
  ledger_reap(l);
  if (!claim(l, self))
    return stow_fail(STOW_ERR_BUDGET, "all %d slots of the ledger are in use by running processes",
                     LEDGER_SLOTS_MAX);
  atomic_fetch_add(&l->header->processes, 1);
  return STOW_OK;
}

/* ---- sums ---- */

/* Returns whether the owner of the slot holds the bytes in it. */
static bool counts(const ledger_slot *slot) {
  uint64_t owner = atomic_load(&slot->owner);
  return owner != 0 && (owner & LEDGER_TAKING) == 0;
}

uint64_t ledger_limit(const ledger *l, unsigned device) {
  ASSERT(l->header != NULL);
  return device < LEDGER_DEVICES_MAX ? atomic_load(&l->header->vram_limit_bytes[device])
                                     : LEDGER_UNLIMITED;
}

uint64_t ledger_spill_limit(const ledger *l) {
  ASSERT(l->header != NULL);
  return atomic_load(&l->header->spill_limit_bytes);
}

void ledger_sum(const ledger *l, unsigned device, ledger_totals *totals) {
  ASSERT(l->header != NULL && totals != NULL);
  *totals = (ledger_totals){0};
  if (device >= LEDGER_DEVICES_MAX) return;
  uint64_t high = atomic_load(&l->header->slots_high);
  for (uint64_t i = 0; i < high && i < LEDGER_SLOTS_MAX; i++) {
    const ledger_slot *slot = &l->slots[i];
    if (!counts(slot)) continue;
    const ledger_device *d = &slot->devices[device];
    totals->processes++;
    /* Read the announced bytes first: they become held bytes, so they may be counted twice but
     * never missed. */
    totals->wanted_bytes += atomic_load(&d->wanted_vram);
    totals->idle_vram_bytes += atomic_load(&d->idle_vram);
    totals->idle_spill_bytes += atomic_load(&d->idle_spill);
    totals->unused_spill_bytes += atomic_load(&d->unused_spill);
    totals->begun += atomic_load(&d->begun);
    for (int k = 0; k < LEDGER_KIND_COUNT; k++) totals->bytes[k] += atomic_load(&d->bytes[k]);
  }
  for (int k = 0; k < LEDGER_VRAM_KINDS; k++) totals->vram_bytes += totals->bytes[k];
}

uint64_t ledger_spilled(const ledger *l) {
  uint64_t used = 0;
  for (unsigned device = 0; device < LEDGER_DEVICES_MAX; device++) {
    ledger_totals totals;
    ledger_sum(l, device, &totals);
    if (totals.bytes[LEDGER_SPILLED] > totals.idle_spill_bytes)
      used += totals.bytes[LEDGER_SPILLED] - totals.idle_spill_bytes;
  }
  return used;
}

void ledger_report_memory(ledger *l, unsigned device, uint64_t spill_bytes, uint64_t *free_bytes,
                          uint64_t *total_bytes) {
  ASSERT(free_bytes != NULL && total_bytes != NULL);
  uint64_t limit = ledger_limit(l, device);
  ledger_totals totals;
  ledger_reap(l);
  ledger_sum(l, device, &totals);
  uint64_t held =
      totals.vram_bytes > totals.idle_vram_bytes ? totals.vram_bytes - totals.idle_vram_bytes : 0;
  uint64_t spilled = spill_bytes > 0 ? ledger_spilled(l) : 0;
  *free_bytes += totals.idle_vram_bytes;
  if (limit < *total_bytes) {
    uint64_t left = held < limit ? limit - held : 0;
    if (left < *free_bytes) *free_bytes = left;
    *total_bytes = limit;
  }
  if (spill_bytes > UINT64_MAX - *total_bytes) spill_bytes = UINT64_MAX - *total_bytes;
  *total_bytes += spill_bytes;
  if (spill_bytes > spilled) *free_bytes += spill_bytes - spilled;
}

/* Sums spilled and announced bytes over all devices, which share one budget. */
static void sum_spill(const ledger *l, uint64_t *held, uint64_t *wanted) {
  uint64_t high = atomic_load(&l->header->slots_high);
  *held = *wanted = 0;
  for (uint64_t i = 0; i < high && i < LEDGER_SLOTS_MAX; i++) {
    const ledger_slot *slot = &l->slots[i];
    if (!counts(slot)) continue;
    for (int d = 0; d < LEDGER_DEVICES_MAX; d++) {
      *wanted += atomic_load(&slot->devices[d].wanted_spill);
      *held += atomic_load(&slot->devices[d].bytes[LEDGER_SPILLED]);
    }
  }
}

static void raise_to(_Atomic uint64_t *peak, uint64_t value) {
  uint64_t old = atomic_load_explicit(peak, memory_order_relaxed);
  while (old < value && !atomic_compare_exchange_weak(peak, &old, value)) {
  }
}

static uint64_t changes(const ledger *l) {
  uint64_t sum = 0, high = atomic_load(&l->header->slots_high);
  for (uint64_t i = 0; i < high && i < LEDGER_SLOTS_MAX; i++)
    sum += atomic_load(&l->slots[i].changes);
  return sum;
}

/* Sums the slots until nothing changed during the sum. Otherwise bytes that one process frees and
 * another takes during the sum would count twice. ledger_charge changes its slot only after it has
 * seen enough space, so a change in progress before and after the sum cannot hide such a pair. If
 * the slots never stop changing, uses the smallest sum. */
static void sum_steady(const ledger *l, unsigned device, ledger_totals *totals) {
  ledger_sum(l, device, totals);
  for (int tries = 0; tries < STEADY_TRIES; tries++) {
    ledger_totals now;
    uint64_t before = changes(l);
    ledger_sum(l, device, &now);
    bool steady = changes(l) == before;
    if (steady || now.vram_bytes < totals->vram_bytes) *totals = now;
    if (steady) return;
  }
}

static uint64_t excess_of(const ledger_totals *t) {
  uint64_t spilled = t->bytes[LEDGER_SPILLED];
  return spilled > t->unused_spill_bytes ? spilled - t->unused_spill_bytes : 0;
}

static uint64_t other_of(const ledger_totals *t) {
  uint64_t pages = t->bytes[LEDGER_PAGES];
  return t->vram_bytes > pages ? t->vram_bytes - pages : 0;
}

/* Raises the peaks to what is held. `allowed`: the caller's bytes were granted within the limits,
 * so the peak cannot exceed them. */
static void raise_peaks(ledger *l, unsigned device, bool allowed) {
  ASSERT(l != NULL);
  ledger_totals now;
  if (l->header == NULL || device >= LEDGER_DEVICES_MAX) return;
  ledger_sum(l, device, &now);
  if (now.vram_bytes <= atomic_load(&l->header->peak_vram_bytes[device]) &&
      other_of(&now) <= atomic_load(&l->header->peak_other_bytes[device]) &&
      now.bytes[LEDGER_SPILLED] <= atomic_load(&l->header->peak_spilled_bytes[device]) &&
      excess_of(&now) <= atomic_load(&l->header->peak_excess_bytes[device]))
    return;
  /* A peak is permanent, so exclude what dead processes held. */
  ledger_reap(l);
  sum_steady(l, device, &now);
  uint64_t vram = now.vram_bytes, spilled = now.bytes[LEDGER_SPILLED], excess = excess_of(&now);
  uint64_t vram_most = allowed ? ledger_limit(l, device) : UINT64_MAX;
  uint64_t spill_most = allowed ? ledger_spill_limit(l) : UINT64_MAX;
  raise_to(&l->header->peak_vram_bytes[device], vram < vram_most ? vram : vram_most);
  raise_to(&l->header->peak_other_bytes[device], other_of(&now));
  if (spill_most == 0) return;
  raise_to(&l->header->peak_spilled_bytes[device], spilled < spill_most ? spilled : spill_most);
  raise_to(&l->header->peak_excess_bytes[device], excess < spill_most ? excess : spill_most);
}

void ledger_note_peak(ledger *l, unsigned device) {
  raise_peaks(l, device, true);
}

/* ---- taking and releasing ---- */

/* Called before and after every change of the caller's bytes (see ledger_slot). */
static void changing(ledger *l) {
  atomic_fetch_add(&l->slots[l->own - 1].changes, 1);
}

static ledger_device *own_device(const ledger *l, unsigned device) {
  ASSERT(l->own <= LEDGER_SLOTS_MAX);
  return l->own == 0 || device >= LEDGER_DEVICES_MAX ? NULL : &l->slots[l->own - 1].devices[device];
}

/* `d` is a device of the caller's slot. */
static void count(ledger *l, ledger_device *d, ledger_kind kind, uint64_t bytes) {
  ASSERT((unsigned)kind < LEDGER_KIND_COUNT);
  changing(l);
  atomic_fetch_add(&d->bytes[kind], bytes);
  changing(l);
}

void ledger_add(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes) {
  ledger_device *d = own_device(l, device);
  if (d == NULL) return;
  count(l, d, kind, bytes);
  raise_peaks(l, device, false);
}

void ledger_uncharge(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes) {
  ASSERT((unsigned)kind < LEDGER_KIND_COUNT);
  ledger_device *d = own_device(l, device);
  if (d == NULL) return;
  uint64_t old = atomic_load(&d->bytes[kind]);
  changing(l);
  while (!atomic_compare_exchange_weak(&d->bytes[kind], &old, old > bytes ? old - bytes : 0)) {
  }
  changing(l);
}

void ledger_set(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes) {
  ASSERT((unsigned)kind < LEDGER_KIND_COUNT);
  ledger_device *d = own_device(l, device);
  if (d == NULL) return;
  changing(l);
  uint64_t old = atomic_exchange(&d->bytes[kind], bytes);
  changing(l);
  if (old < bytes) raise_peaks(l, device, false);
}

void ledger_set_idle(ledger *l, unsigned device, uint64_t vram_bytes, uint64_t spill_bytes) {
  ledger_device *d = own_device(l, device);
  if (d == NULL) return;
  atomic_store(&d->idle_vram, vram_bytes);
  atomic_store(&d->idle_spill, spill_bytes);
}

void ledger_set_unused(ledger *l, unsigned device, uint64_t spill_bytes) {
  ledger_device *d = own_device(l, device);
  if (d != NULL && atomic_exchange(&d->unused_spill, spill_bytes) > spill_bytes)
    raise_peaks(l, device, true);
}

void ledger_count_saved(ledger *l, uint64_t out_bytes, uint64_t home_bytes) {
  if (l->header == NULL) return;
  atomic_fetch_add(&l->header->moved_out_bytes, out_bytes);
  atomic_fetch_add(&l->header->moved_home_bytes, home_bytes);
}

void ledger_count_copies(ledger *l, uint64_t bytes) {
  if (l->header != NULL) atomic_fetch_add(&l->header->copies_bytes, bytes);
}

void ledger_note_need(ledger *l, unsigned device, uint64_t bytes, uint64_t lasting_bytes) {
  if (l->header == NULL || device >= LEDGER_DEVICES_MAX) return;
  raise_to(&l->header->peak_need_bytes[device], bytes);
  raise_to(&l->header->lasting_bytes, lasting_bytes);
}

void ledger_set_begun(ledger *l, unsigned device, bool begun) {
  ledger_device *d = own_device(l, device);
  if (d != NULL) atomic_store(&d->begun, begun);
}

uint64_t ledger_own(const ledger *l, unsigned device, ledger_kind kind) {
  ASSERT((unsigned)kind < LEDGER_KIND_COUNT);
  const ledger_device *d = own_device(l, device);
  return d == NULL ? 0 : atomic_load(&d->bytes[kind]);
}

/* Returns what is held and what is announced against the limit that `kind` counts for. */
static void look(const ledger *l, unsigned device, ledger_kind kind, uint64_t *held,
                 uint64_t *wanted) {
  if (kind == LEDGER_SPILLED) {
    sum_spill(l, held, wanted);
    return;
  }
  ledger_totals totals;
  ledger_sum(l, device, &totals);
  *held = totals.vram_bytes;
  *wanted = totals.wanted_bytes;
}

/* Returns whether `bytes` fit beside what is held, ignoring announcements. */
static bool fits(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes, uint64_t limit) {
  ASSERT(l->header != NULL);
  uint64_t held, wanted;
  look(l, device, kind, &held, &wanted);
  if (bytes <= limit && held <= limit - bytes) return true;
  /* Dead processes may still be counted. */
  if (ledger_reap(l) == 0) return false;
  look(l, device, kind, &held, &wanted);
  return bytes <= limit && held <= limit - bytes;
}

static _Atomic uint64_t *wanted_of(ledger_device *d, ledger_kind kind) {
  return kind == LEDGER_SPILLED ? &d->wanted_spill : &d->wanted_vram;
}

/* In both directions the bytes are added before they are subtracted: a sum in between counts them
 * twice, but never misses them. */
void ledger_announce(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes) {
  ledger_device *d = own_device(l, device);
  if (d == NULL) return;
  atomic_fetch_add(wanted_of(d, kind), bytes);
  ledger_uncharge(l, device, kind, bytes);
}

void ledger_charge_announced(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes) {
  ledger_device *d = own_device(l, device);
  if (d == NULL) return;
  count(l, d, kind, bytes);
  ledger_withdraw(l, device, kind, bytes);
}

void ledger_withdraw(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes) {
  ASSERT((unsigned)kind < LEDGER_KIND_COUNT);
  ledger_device *d = own_device(l, device);
  if (d != NULL) atomic_fetch_sub(wanted_of(d, kind), bytes);
}

bool ledger_charge(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes) {
  ASSERT((unsigned)kind < LEDGER_KIND_COUNT);
  if (l->header == NULL || device >= LEDGER_DEVICES_MAX) return true;
  ledger_device *d = own_device(l, device);
  uint64_t limit = kind == LEDGER_SPILLED     ? ledger_spill_limit(l)
                   : kind < LEDGER_VRAM_KINDS ? ledger_limit(l, device)
                                              : LEDGER_UNLIMITED;
  if (d == NULL) return limit == LEDGER_UNLIMITED;
  if (limit == LEDGER_UNLIMITED) {
    count(l, d, kind, bytes);
    return true;
  }
  /* Also covers a lost file: it shows no slots, and the limit is 0. */
  if (bytes > limit) return false;
  _Atomic uint64_t *wanted = wanted_of(d, kind);
  for (int tries = 0; tries < TRIES_MAX; tries++) {
    uint64_t held, announced;
    atomic_fetch_add(wanted, bytes);
    look(l, device, kind, &held, &announced);
    if (announced <= limit && held <= limit - announced) {
      ledger_charge_announced(l, device, kind, bytes);
      return true;
    }
    atomic_fetch_sub(wanted, bytes);
    if (!fits(l, device, kind, bytes, limit)) return false;
    /* Others announced at the same moment, or one did and then died. */
    if (tries == REAP_AFTER) ledger_reap(l);
    sched_yield();
  }
  return false;
}

/* ---- refusals ---- */

void ledger_refuse(ledger *l, const ledger_refusal *refusal) {
  uint64_t number = atomic_fetch_add(&l->header->refused_count, 1);
  size_t at = number % LEDGER_REFUSALS_MAX;
  /* The serial is odd while the entry is written, so a reader can detect a torn entry. */
  atomic_store(&l->header->refusals[at].serial, 2 * number + 1);
  l->header->refusals[at].what = *refusal;
  atomic_thread_fence(memory_order_release);
  atomic_store(&l->header->refusals[at].serial, 2 * number + 2);
}

bool ledger_ran_out(const ledger *l) {
  uint64_t served = ledger_spill_limit(l) > 0 ? atomic_load(&l->header->retried_count) : 0;
  return atomic_load(&l->header->refused_count) > served;
}

bool ledger_last_refusal(const ledger *l, ledger_refusal *refusal) {
  uint64_t best = 0;
  for (size_t i = 0; i < LEDGER_REFUSALS_MAX; i++) {
    uint64_t serial = atomic_load(&l->header->refusals[i].serial);
    if (serial == 0 || serial % 2 != 0 || serial <= best) continue;
    ledger_refusal copy = l->header->refusals[i].what;
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load(&l->header->refusals[i].serial) != serial) continue;
    best = serial;
    *refusal = copy;
  }
  return best != 0;
}
