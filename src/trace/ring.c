/* Ring: creates the mapping, takes and seals chunks, appends texts. */
#include "trace/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/newfile.h"

/* Disk space for texts is allocated in steps of this many bytes. */
#define TEXT_STEP UINT64_C(262144)

uint64_t text_check(const text_entry *entry, uint64_t offset, const void *payload) {
  return hash_bytes(payload, entry->length, hash_u64(offset, entry->kind));
}

void ring_quiet_begin(ring_quiet *q) {
  sigset_t limit;
  sigemptyset(&limit);
  sigaddset(&limit, SIGXFSZ);
  sigpending(&q->pending);
  pthread_sigmask(SIG_BLOCK, &limit, &q->before);
}

void ring_quiet_end(const ring_quiet *q) {
  sigset_t limit;
  sigemptyset(&limit);
  sigaddset(&limit, SIGXFSZ);
  /* Removes our own pending signal; one that was pending before stays. */
  if (!sigismember(&q->pending, SIGXFSZ))
    while (sigtimedwait(&limit, NULL, &(struct timespec){0}) == SIGXFSZ) {
    }
  pthread_sigmask(SIG_SETMASK, &q->before, NULL);
}

/* The path comes last: `stowage run` shows only the first 159 bytes. */
static stow_status ring_refused(const char *path, const char *what, uint64_t bytes) {
  int why = errno;
  return stow_fail(
      STOW_ERR_IO, "cannot %s a ring of %llu KiB: %s; choose another folder or a smaller ring: %s",
      what, (unsigned long long)(bytes >> 10), strerror(why), path != NULL ? path : "in memory");
}

/* Opens the file. Accepts an empty file (such as a memfd of another process), but not one with
 * contents: it may be all that is left of a run that was killed. */
static stow_status ring_open_file(ring *r, const char *path, uint64_t bytes) {
  r->file = descriptor_keep(path == NULL ? memfd_create("stowage-ring", MFD_CLOEXEC)
                                         : newfile_own(AT_FDCWD, path, 0, 0600));
  if (r->file.fd < 0) return ring_refused(path, "make", bytes);
  struct stat info;
  if (fstat(r->file.fd, &info) != 0) return ring_refused(path, "look at", bytes);
  if (!S_ISREG(info.st_mode))
    return stow_fail(STOW_ERR_INVALID, "the ring %s is not a regular file", path);
  if (info.st_size != 0)
    return stow_fail(STOW_ERR_STATE,
                     "the ring %s already exists, with %lld bytes; read it, then remove it", path,
                     (long long)info.st_size);
  return STOW_OK;
}

static stow_status ring_back(ring *r, const char *path, uint64_t bytes, uint64_t text_offset,
                             uint64_t chunks_offset) {
  if (ftruncate(r->file.fd, (off_t)bytes) != 0) return ring_refused(path, "size", bytes);
  r->text_backed = r->text_max < TEXT_STEP ? r->text_max : TEXT_STEP;
  int why = posix_fallocate(r->file.fd, 0, (off_t)(text_offset + r->text_backed));
  if (why == 0)
    why = posix_fallocate(r->file.fd, (off_t)chunks_offset, (off_t)(bytes - chunks_offset));
  if (why != 0) {
    errno = why;
    return ring_refused(path, "find room for", bytes);
  }
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->file.fd, 0);
  if (at == MAP_FAILED) return ring_refused(path, "map", bytes);
  /* Without this, the kernel fills in the whole sparse file at the first access. */
  (void)madvise(at, bytes, MADV_RANDOM);
  r->mapped_bytes = bytes;
  r->header = at;
  r->control = (_Atomic uint64_t *)(void *)((char *)at + RING_PAGE);
  r->texts = (char *)at + text_offset;
  r->chunks = (ring_chunk *)(void *)((char *)at + chunks_offset);
  return STOW_OK;
}

static void ring_random(uint64_t id[2]) {
  if (getrandom(id, 16, GRND_NONBLOCK) == 16) return;
  id[0] = hash_u64(clock_wall_ns(), (uint64_t)getpid());
  id[1] = hash_u64(clock_ns(), (uint64_t)(uintptr_t)id);
}

stow_status ring_create(ring *r, const char *path, uint64_t ring_bytes, uint64_t text_bytes) {
  *r = (ring){.file = DESCRIPTOR_NONE};
  r->chunk_count = ring_bytes / RING_CHUNK_BYTES;
  r->text_max = round_up(text_bytes, RING_PAGE);
  uint64_t text_offset = RING_PAGE + round_up(r->chunk_count * sizeof(uint64_t), RING_PAGE);
  uint64_t chunks_offset = text_offset + r->text_max;
  uint64_t bytes = chunks_offset + r->chunk_count * RING_CHUNK_BYTES;
  stow_status status = ring_open_file(r, path, bytes);
  bool ours = status == STOW_OK; /* the file was empty, so its contents from here on are ours */
  if (status == STOW_OK) status = ring_back(r, path, bytes, text_offset, chunks_offset);
  if (status != STOW_OK) {
    if (ours && path != NULL && ftruncate(r->file.fd, 0) == 0) unlink(path);
    descriptor_close(&r->file);
    return status;
  }
  ring_header *h = r->header;
  h->version = RING_VERSION;
  h->byte_order = RING_BYTE_ORDER;
  h->total_bytes = bytes;
  h->control_offset = RING_PAGE;
  h->text_offset = text_offset;
  h->text_max = r->text_max;
  h->chunks_offset = chunks_offset;
  h->chunk_count = r->chunk_count;
  ring_random(h->id);
  h->pid = (uint64_t)getpid();
  h->start_ns = clock_ns();
  h->start_wall_ns = clock_wall_ns();
  atomic_store(&h->next_ticket, 1);
  h->magic = RING_MAGIC; /* written last: a file without it is not a valid ring */
  return STOW_OK;
}

void ring_detach(ring *r) {
  if (r->header != NULL) {
    /* If this fails, the old mapping stays, which is no worse than before. */
    void *apart = mmap(r->header, r->mapped_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    (void)apart;
  }
  descriptor_close(&r->file);
}

/* Orders all earlier stores before all later stores. ThreadSanitizer does not support fences; all
 * words of a chunk are atomics, so it does not need this one. */
static void ring_fence(void) {
#if !defined(__SANITIZE_THREAD__)
  atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Opens a chunk whose control word this thread has just acquired. Sets the ticket to 0 before it
 * changes anything else, and to the new ticket last: a reader that sees a ticket sees the data that
 * belongs to it. */
static void ring_open_chunk(ring_chunk *c, uint64_t ticket, uint32_t thread, uint64_t first_seq) {
  atomic_store_explicit(&c->ticket, 0, memory_order_relaxed);
  ring_fence();
  atomic_store_explicit(&c->count, 0, memory_order_relaxed);
  atomic_store_explicit(&c->thread, thread, memory_order_relaxed);
  atomic_store_explicit(&c->first_seq, first_seq, memory_order_relaxed);
  atomic_store_explicit(&c->ticket, ticket, memory_order_release);
  ring_fence();
}

ring_chunk *ring_take(ring *r, uint32_t thread, uint64_t first_seq, bool may_take_sealed,
                      uint64_t *ticket) {
  for (uint64_t tries = 0; tries < r->chunk_count; tries++) {
    uint64_t t = atomic_fetch_add_explicit(&r->header->next_ticket, 1, memory_order_relaxed);
    uint64_t i = t % r->chunk_count;
    uint64_t was = atomic_load_explicit(&r->control[i], memory_order_acquire);
    uint64_t state = was & 3;
    if (state != CHUNK_FREE && !(state == CHUNK_SEALED && may_take_sealed)) continue;
    if (!atomic_compare_exchange_strong_explicit(&r->control[i], &was, t << 2 | CHUNK_OPEN,
                                                 memory_order_acq_rel, memory_order_relaxed))
      continue;
    ring_open_chunk(&r->chunks[i], t, thread, first_seq);
    *ticket = t;
    return &r->chunks[i];
  }
  return NULL;
}

void ring_seal(ring *r, ring_chunk *c, uint64_t ticket, bool for_file) {
  atomic_store_explicit(&r->control[c - r->chunks],
                        ticket << 2 | (for_file ? CHUNK_SEALED : CHUNK_FREE), memory_order_release);
}

static stow_status ring_back_texts(ring *r) {
  uint64_t step = r->text_max - r->text_backed;
  if (step > TEXT_STEP) step = TEXT_STEP;
  ring_quiet quiet;
  ring_quiet_begin(&quiet);
  off_t at = (off_t)(r->header->text_offset + r->text_backed);
  int why = descriptor_ours(&r->file) ? posix_fallocate(r->file.fd, at, (off_t)step) : EBADF;
  ring_quiet_end(&quiet);
  if (why != 0)
    return stow_fail(STOW_ERR_IO,
                     "no disk space for %llu KiB more of the trace's names and stacks: %s",
                     (unsigned long long)(step >> 10), strerror(why));
  r->text_backed += step;
  return STOW_OK;
}

stow_status ring_text(ring *r, text_kind kind, const void *payload, uint32_t length) {
  uint64_t at = atomic_load_explicit(&r->header->text_length, memory_order_relaxed);
  uint64_t end = at + sizeof(text_entry) + round_up(length, 8);
  if (end > r->text_max)
    return stow_fail(STOW_ERR_BUDGET,
                     "the trace's names and stacks have used up their %llu KiB; open the trace "
                     "with more text_bytes",
                     (unsigned long long)(r->text_max >> 10));
  while (end > r->text_backed) STOW_TRY(ring_back_texts(r));
  text_entry entry = {.kind = (uint32_t)kind, .length = length};
  entry.check = text_check(&entry, at, payload);
  memcpy(r->texts + at, &entry, sizeof entry);
  if (length > 0) memcpy(r->texts + at + sizeof entry, payload, length);
  atomic_store_explicit(&r->header->text_length, end, memory_order_release);
  return STOW_OK;
}
