/* Disk shuffle, filling the scratch file: groups are read block by block, then mixed and written
 * piece by piece.
 *
 * Rows of MAPPED_LEAST bytes and more of files in the page cache are not read into memory: the
 * files are mapped, and the kernel copies each row from the page cache to its place in the scratch
 * file. That saves one of two copies. Only the kernel touches the mapping, so a file that is
 * truncated meanwhile is an error of the write, not a signal. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/huge_alloc.h"
#include "base/status.h"
#include "data/disk_shuffle_parts.h"
#include "data/workers.h"
#include "files/source.h"

#define PIECE_LEAST (UINT64_C(32) << 10) /* smaller ones go through the page cache */
#define SYNC_BYTES  (UINT64_C(256) << 20)
#define MAPPED_LEAST                                                                               \
  1024 /* the kernel's work for each row costs more than the copy of a smaller one */
#define ROWS_AT_ONCE 1024 /* IOV_MAX */

/* ---- where rows come from and go to ---- */

static uint64_t rows_of_group(const disk_shuffle *d, uint64_t group) {
  uint64_t first = group * d->options.group_rows, left = d->rows - first;
  return left < d->options.group_rows ? left : d->options.group_rows;
}

/* Returns the rows of a group of `count` rows that come before piece `piece`. */
static uint64_t piece_first(const disk_shuffle *d, uint64_t count, uint64_t piece) {
  if (piece == d->layout.stripes) return count;
  uint64_t first = (uint64_t)((unsigned __int128)count * piece / d->layout.stripes);
  return first - first % d->step_rows;
}

/* Returns the place of a group within each stripe. Groups of a file that is read from front to back
 * are neighbours in the file, so they are spread. The last group, which may be short, is last. */
static uint64_t group_place(const disk_shuffle *d, uint64_t group) {
  uint64_t full = d->groups - 1;
  if (!d->layout.forward || group == full || full < 3) return group;
  uint64_t step = full * 5 / 8;
  for (;; step++) {
    uint64_t a = step, b = full;
    while (b != 0) {
      uint64_t rest = a % b;
      a = b, b = rest;
    }
    if (a == 1) return (uint64_t)((unsigned __int128)group * step % full);
  }
}

/* Returns the row of the scratch file at which that piece of the group begins. */
static uint64_t piece_row(const disk_shuffle *d, uint64_t group, uint64_t piece) {
  uint64_t full = d->options.group_rows, last = rows_of_group(d, d->groups - 1);
  uint64_t before = piece_first(d, full, piece);
  uint64_t width = piece_first(d, full, piece + 1) - before;
  return (d->groups - 1) * before + piece_first(d, last, piece) + group_place(d, group) * width;
}

/* Rows that are mixed together: read block by block, then mixed and written piece by piece. */
typedef struct group {
  uint64_t number;          /* d->groups: none */
  uint64_t first, count;    /* positions in the order of the files' blocks */
  uint64_t claimed, loaded; /* rows */
  bool drawing, drawn;      /* its permutation */
  uint64_t piece, written;  /* pieces claimed; written */
  char *memory[STOW_BATCHES_FILES_MAX];
  char *rows[STOW_BATCHES_FILES_MAX]; /* in `memory`, with the same page alignment as in the file */
  uint32_t *permutation;
  /* Of mapped files: addresses for the runs, how many runs are claimed, where each row is. */
  char *area[STOW_BATCHES_FILES_MAX];
  uint64_t runs;
  const char **places[STOW_BATCHES_FILES_MAX];
} group;

/* What all threads share, guarded by `guard` except the contents of groups. */
typedef struct build_state {
  disk_shuffle *d;
  pthread_mutex_t guard;
  pthread_mutex_t writing; /* through the page cache: the kernel lets one thread write, and the
                            * others would spin */
  pthread_cond_t changed;
  group groups[DISK_SHUFFLE_GROUPS];
  uint32_t group_count;
  uint64_t next;    /* group to claim */
  uint32_t reading; /* threads that read */
} build_state;

/* What one thread needs. */
typedef struct worker {
  rows *parts;                      /* d->first, or `own` */
  rows own[STOW_BATCHES_FILES_MAX]; /* opened by this thread */
  char *piece;
  struct iovec *mapped; /* ROWS_AT_ONCE mapped rows, to be written */
  void *bounce;
} worker;

static stow_status no_memory(uint64_t count) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to shuffle %" PRIu64 " rows", count);
}

/* ---- mapped files ---- */

/* Returns whether the rows of a file can be mapped: not where a limit on addresses would count
 * them. */
static bool can_map(const disk_shuffle *d, uint32_t part) {
  struct rlimit addresses;
  return d->options.bounce_bytes == 0 && d->row_bytes[part] >= MAPPED_LEAST &&
         rows_reads_parts(&d->first[part]) && getrlimit(RLIMIT_AS, &addresses) == 0 &&
         addresses.rlim_cur == RLIM_INFINITY;
}

static size_t page_bytes(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}

/* Returns the addresses that the rows of a group may take: each run begins and ends within a page.
 */
static size_t area_bytes(const disk_shuffle *d, uint32_t part, uint64_t count) {
  uint64_t runs =
      count / d->options.block_rows + 4; /* one may be cut at each end, and a last block */
  return (size_t)round_up(count * d->row_bytes[part] + runs * 2 * page_bytes(), page_bytes());
}

/* Reserves addresses, or removes all mappings there. */
static char *clear_area(char *area, size_t bytes) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (area != NULL ? MAP_FIXED : 0);
  char *at = mmap(area, bytes, PROT_NONE, flags, -1, 0);
  return at != MAP_FAILED ? at : NULL;
}

/* Maps run number `number` of a group, and makes sure that its rows are in the page cache. A run
 * has a mapping of its own: the kernel maps pages around the requested ones too, which would count
 * as memory of the process. */
static stow_status map_run(const disk_shuffle *d, const group *h, uint32_t part, uint64_t number,
                           uint64_t done, uint64_t row, uint64_t run) {
  const array *from = &d->first[part].from;
  size_t width = (size_t)d->row_bytes[part], page = page_bytes();
  uint64_t offset = from->offset + row * width;
  size_t within = (size_t)(offset % page), bytes = (size_t)run * width + within;
  char *to = h->area[part] + round_down(done * width, page) + number * 2 * page;
  ASSERT(to + bytes <= h->area[part] + area_bytes(d, part, h->count));
  char *at = mmap(to, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE | MAP_FIXED, from->from->fd,
                  (off_t)(offset - within));
  if (at == MAP_FAILED)
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: %zu bytes cannot be mapped: %s", from->name, bytes,
                     strerror(errno));
  for (uint64_t j = 0; j < run; j++) h->places[part][done + j] = at + within + j * width;
  return STOW_OK;
}

static void unmap_group(const disk_shuffle *d, const group *h) {
  for (uint32_t i = 0; i < d->options.parts; i++)
    if (d->mapped[i]) clear_area(h->area[i], area_bytes(d, i, h->count));
}

/* Writes mapped rows one after another. Modifies `mapped`. */
static stow_status write_mapped(disk_shuffle *d, uint32_t part, struct iovec *mapped, size_t count,
                                uint64_t offset) {
  while (count > 0) {
    ssize_t put = pwritev(d->fds[part], mapped, (int)count, (off_t)offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EFAULT)
      return stow_fail(STOW_ERR_IO,
                       "%s: cannot be read: it was truncated, or its disk has an error",
                       d->first[part].from.name);
    if (put == 0) errno = ENOSPC;
    if (put <= 0) return disk_shuffle_refuse(d, "cannot be written");
    offset += (uint64_t)put;
    size_t left = (size_t)put;
    for (; count > 0 && left >= mapped->iov_len; mapped++, count--) left -= mapped->iov_len;
    if (count == 0) break;
    mapped->iov_base = (char *)mapped->iov_base + left;
    mapped->iov_len -= left;
  }
  return STOW_OK;
}

/* Writes the rows `first` to `end` of a mixed group, from row `to` of the scratch file on. */
static stow_status write_mapped_piece(build_state *g, const worker *w, const group *h,
                                      uint32_t part, uint64_t first, uint64_t end, uint64_t to) {
  size_t width = (size_t)g->d->row_bytes[part];
  uint64_t some;
  for (uint64_t at = first; at < end; at += some) {
    some = end - at < ROWS_AT_ONCE ? end - at : ROWS_AT_ONCE;
    for (uint64_t j = 0; j < some; j++) {
      const char *row = h->places[part][h->permutation[at + j]];
      w->mapped[j] = (struct iovec){(void *)(uintptr_t)row, width};
    }
    pthread_mutex_lock(&g->writing);
    stow_status status =
        write_mapped(g->d, part, w->mapped, (size_t)some, (to + at - first) * width);
    pthread_mutex_unlock(&g->writing);
    STOW_TRY(status);
  }
  return STOW_OK;
}

/* ---- groups ---- */

static stow_status open_groups(build_state *g) {
  const disk_shuffle *d = g->d;
  uint64_t count = rows_of_group(d, 0);
  for (uint32_t k = 0; k < g->group_count; k++) {
    group *h = &g->groups[k];
    h->number = d->groups;
    h->permutation = huge_alloc(count * sizeof *h->permutation);
    bool there = h->permutation != NULL;
    for (uint32_t i = 0; i < d->options.parts; i++) {
      if (d->mapped[i]) {
        h->area[i] = clear_area(NULL, area_bytes(d, i, count));
        h->places[i] = malloc(count * sizeof *h->places[i]);
      } else {
        h->memory[i] = huge_alloc(count * d->row_bytes[i] + SOURCE_DIRECT_UNIT);
      }
      there = there && (h->memory[i] != NULL || (h->places[i] != NULL && h->area[i] != NULL));
    }
    if (!there) return no_memory(count);
  }
  return STOW_OK;
}

static void close_groups(build_state *g) {
  const disk_shuffle *d = g->d;
  uint64_t count = rows_of_group(d, 0);
  for (uint32_t k = 0; k < g->group_count; k++) {
    group *h = &g->groups[k];
    free(h->permutation);
    for (uint32_t i = 0; i < d->options.parts; i++) {
      if (h->area[i] != NULL) munmap(h->area[i], area_bytes(d, i, count));
      free((void *)h->places[i]);
      free(h->memory[i]);
    }
  }
}

static stow_status open_worker(disk_shuffle *d, worker *w, unsigned member) {
  uint64_t piece = d->options.group_rows / d->layout.stripes + 1 + d->step_rows, widest = 0;
  w->parts = member == 0 ? d->first : w->own;
  for (uint32_t i = 0; i < d->options.parts; i++)
    if (d->row_bytes[i] > widest) widest = d->row_bytes[i];
  w->mapped = malloc(ROWS_AT_ONCE * sizeof *w->mapped);
  w->piece = huge_alloc(piece * widest + SOURCE_DIRECT_UNIT);
  if (d->options.bounce_bytes > 0) w->bounce = huge_alloc(d->options.bounce_bytes);
  if (w->piece == NULL || w->mapped == NULL || (d->options.bounce_bytes > 0 && w->bounce == NULL))
    return no_memory(piece);
  for (uint32_t i = 0; i < d->options.parts; i++) {
    if (w->parts[i].opened_from == NULL) STOW_TRY(rows_open(&w->parts[i], &d->options.origins[i]));
    STOW_TRY(rows_same(&w->parts[i], &d->first[i]));
    source *from = w->parts[i].from.from;
    if (from->fd < 0 || d->options.bounce_bytes == 0) continue;
    from->drop = true;
    source_go_direct(from, w->bounce, (size_t)d->options.bounce_bytes);
  }
  return STOW_OK;
}

static void close_worker(disk_shuffle *d, worker *w) {
  for (uint32_t i = 0; i < d->options.parts; i++)
    if (w->parts == w->own && w->own[i].opened_from != NULL) rows_close(&w->own[i]);
  if (w->parts == d->first)
    d->bounce = w->bounce;
  else
    free(w->bounce);
  free(w->mapped);
  free(w->piece);
}

static void claim_group(build_state *g, group *h) {
  const disk_shuffle *d = g->d;
  uint64_t row;
  h->number = g->next++;
  h->first = h->number * d->options.group_rows;
  h->count = rows_of_group(d, h->number);
  h->claimed = h->loaded = h->runs = h->piece = h->written = 0;
  h->drawing = h->drawn = false;
  sequence_run(&d->order, h->first, &row);
  for (uint32_t i = 0; i < d->options.parts; i++) {
    if (d->mapped[i]) continue;
    uint64_t offset = d->first[i].from.offset + row * d->row_bytes[i];
    h->rows[i] = h->memory[i] + offset % SOURCE_DIRECT_UNIT;
  }
}

/* Reads or maps `run` rows at `done` rows of the group, the group's run number `number`. */
static stow_status read_run(disk_shuffle *d, worker *w, const group *h, uint64_t number,
                            uint64_t done, uint64_t row, uint64_t run) {
  for (uint32_t i = 0; i < d->options.parts; i++) {
    if (d->mapped[i])
      STOW_TRY(map_run(d, h, i, number, done, row, run));
    else /* as in the file: converted when read again */
      STOW_TRY(array_read_rows(&w->parts[i].from, row, run, h->rows[i] + done * d->row_bytes[i]));
  }
  return STOW_OK;
}

/* Writes the whole units of a piece directly. Its ends share units with other pieces and go through
 * the page cache. `bytes` has the same page alignment as `offset`. */
static stow_status write_piece(disk_shuffle *d, uint32_t part, const char *bytes, uint64_t count,
                               uint64_t offset) {
  bool direct = d->direct[part] >= 0 && count >= PIECE_LEAST;
  while (count > 0) {
    uint64_t within = offset % SOURCE_DIRECT_UNIT, now = count;
    bool whole = direct && within == 0 && count >= SOURCE_DIRECT_UNIT;
    if (whole)
      now = round_down(count, SOURCE_DIRECT_UNIT);
    else if (direct && SOURCE_DIRECT_UNIT - within < count)
      now = SOURCE_DIRECT_UNIT - within;
    ssize_t put = pwrite(whole ? d->direct[part] : d->fds[part], bytes, (size_t)now, (off_t)offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && whole && errno == EINVAL) { /* the file system has other alignment rules */
      direct = false;
      continue;
    }
    if (put == 0) errno = ENOSPC;
    if (put <= 0) return disk_shuffle_refuse(d, "cannot be written");
    bytes += put, offset += (uint64_t)put, count -= (uint64_t)put;
  }
  return STOW_OK;
}

static stow_status write_one(build_state *g, worker *w, const group *h, uint64_t piece) {
  disk_shuffle *d = g->d;
  uint64_t first = piece_first(d, h->count, piece), end = piece_first(d, h->count, piece + 1);
  uint64_t row = piece_row(d, h->number, piece);
  for (uint32_t i = 0; i < d->options.parts; i++) {
    if (d->mapped[i]) {
      STOW_TRY(write_mapped_piece(g, w, h, i, first, end, row));
      continue;
    }
    size_t bytes = (size_t)d->row_bytes[i];
    char *mixed = w->piece + row * bytes % SOURCE_DIRECT_UNIT;
    shuffle_gather(mixed, h->rows[i], h->permutation + first, end - first, bytes);
    bool alone = d->direct[i] < 0;
    if (alone) pthread_mutex_lock(&g->writing);
    stow_status status = write_piece(d, i, mixed, (end - first) * bytes, row * bytes);
    if (alone) pthread_mutex_unlock(&g->writing);
    STOW_TRY(status);
  }
  return STOW_OK;
}

/* In a small container, pages must reach the disk before they can be reclaimed. Not more often: the
 * pieces of neighbouring groups are neighbours, and are written together. */
static void sync_some(const disk_shuffle *d, uint64_t number) {
  uint64_t every = SYNC_BYTES / (d->options.group_rows * (disk_shuffle_bytes(d) / d->rows));
  for (uint32_t i = 0; i < d->options.parts && d->options.bounce_bytes > 0; i++)
    if (every == 0 || number % every == 0) sync_file_range(d->fds[i], 0, 0, SYNC_FILE_RANGE_WRITE);
}

/* The tasks. The lock is held before and after. */

static stow_status run_read(build_state *g, worker *w, group *h) {
  disk_shuffle *d = g->d;
  uint64_t done = h->claimed, row, run = sequence_run(&d->order, h->first + done, &row);
  if (run > h->count - done) run = h->count - done;
  if (run > d->options.block_rows) run = d->options.block_rows;
  uint64_t number = h->runs++;
  h->claimed += run;
  g->reading++;
  pthread_mutex_unlock(&g->guard);
  stow_status status = read_run(d, w, h, number, done, row, run);
  pthread_mutex_lock(&g->guard);
  g->reading--;
  h->loaded += run;
  return status;
}

static stow_status run_draw(build_state *g, group *h) {
  h->drawing = true;
  pthread_mutex_unlock(&g->guard);
  shuffle_draw(h->permutation, (uint32_t)h->count,
               shuffle_key(g->d->options.seed, UINT64_MAX, h->number + 1));
  pthread_mutex_lock(&g->guard);
  h->drawn = true;
  return STOW_OK;
}

static stow_status run_write(build_state *g, worker *w, group *h) {
  uint64_t piece = h->piece++;
  pthread_mutex_unlock(&g->guard);
  stow_status status = write_one(g, w, h, piece);
  pthread_mutex_lock(&g->guard);
  if (++h->written < g->d->layout.stripes || status != STOW_OK) return status;
  pthread_mutex_unlock(&g->guard);
  unmap_group(g->d, h);
  sync_some(g->d, h->number);
  pthread_mutex_lock(&g->guard);
  h->number = g->d->groups;
  return STOW_OK;
}

/* Runs a task, or waits for one. *done: none will come. One thread reads, so that the disk both
 * reads and writes; the others write if they can. */
static stow_status run_task(build_state *g, worker *w, bool *done) {
  group *to_read = NULL, *to_write = NULL, *to_draw = NULL;
  bool busy = false;
  for (uint32_t k = 0; k < g->group_count; k++) {
    group *h = &g->groups[k];
    if (h->number == g->d->groups && g->next < g->d->groups) claim_group(g, h);
    if (h->number == g->d->groups) continue;
    busy = true;
    if (h->claimed < h->count) to_read = h;
    if (!h->drawing) to_draw = h;
    if (h->drawn && h->loaded == h->count && h->piece < g->d->layout.stripes) to_write = h;
  }
  if (to_read != NULL && (g->reading == 0 || (to_write == NULL && to_draw == NULL)))
    return run_read(g, w, to_read);
  if (to_draw != NULL) return run_draw(g, to_draw);
  if (to_write != NULL) return run_write(g, w, to_write);
  *done = !busy;
  if (busy) pthread_cond_wait(&g->changed, &g->guard);
  return STOW_OK;
}

static stow_status work(void *context, unsigned member) {
  build_state *g = context;
  disk_shuffle *d = g->d;
  worker w = {0};
  bool done = false;
  stow_status status = open_worker(d, &w, member);
  pthread_mutex_lock(&g->guard);
  while (status == STOW_OK && !done) {
    if (atomic_load(&d->cancelled) || atomic_load(&d->failed))
      status = stow_fail(STOW_ERR_INTERRUPTED, "the shuffle on disk was stopped");
    else
      status = run_task(g, &w, &done);
    if (status != STOW_OK) atomic_store(&d->failed, true);
    pthread_cond_broadcast(&g->changed);
  }
  if (status != STOW_OK) atomic_store(&d->failed, true);
  pthread_cond_broadcast(&g->changed);
  pthread_mutex_unlock(&g->guard);
  for (uint32_t i = 0; i < d->options.parts && status == STOW_OK; i++)
    status = rows_check(&w.parts[i]);
  close_worker(d, &w);
  return status;
}

stow_status disk_shuffle_fill(disk_shuffle *d) {
  for (uint32_t i = 0; i < d->options.parts; i++) d->mapped[i] = can_map(d, i);
  build_state g = {.d = d, .group_count = disk_shuffle_groups_for(d->first, d->options.parts)};
  pthread_mutex_init(&g.guard, NULL);
  pthread_mutex_init(&g.writing, NULL);
  pthread_cond_init(&g.changed, NULL);
  stow_status status = open_groups(&g);
  atomic_store(&d->failed, false);
  if (status == STOW_OK) status = workers_run(d->members, work, &g);
  close_groups(&g);
  pthread_cond_destroy(&g.changed);
  pthread_mutex_destroy(&g.writing);
  pthread_mutex_destroy(&g.guard);
  return status;
}
