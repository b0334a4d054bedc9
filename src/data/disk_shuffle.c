/* Disk shuffle: see disk_shuffle.h. */
#include "data/disk_shuffle.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/hash.h"
#include "base/huge_alloc.h"
#include "base/newfile.h"
#include "base/status.h"
#include "data/disk_shuffle_share.h"
#include "data/shuffle.h"
#include "data/workers.h"

enum {
  GROUPS = 2,  /* at the same time: one is read, one is written */
  WRITERS = 4, /* threads: as many direct reads and writes keep a disk busy */
};
#define PIECE_BYTES (UINT64_C(256) << 10) /* at most */
#define PIECE_LEAST (UINT64_C(32) << 10)  /* smaller ones go through the page cache */
#define PIECES_WANTED                                                                              \
  10000 /* of a group, divided by its blocks: rows of one block are then 1 in 10,000 of a window   \
         */
#define BLOCKS_WANTED  400                   /* of a group: the fewer, the smaller the pieces */
#define BLOCKS_FEW     100                   /* enough, where more make slow reads */
#define BLOCK_SLOW     (UINT64_C(144) << 10) /* smaller reads are slower: they are not direct */
#define BLOCK_LEAST    (UINT64_C(64) << 10)  /* smaller ones are too slow */
#define STEP_BYTES     (UINT64_C(64) << 10)  /* the page cache then holds a piece in large pages */
#define SYNC_BYTES     (UINT64_C(256) << 20)
#define PERMUTED_BYTES sizeof(uint32_t)

struct disk_shuffle {
  disk_shuffle_options options;
  const char *folder;
  rows first[STOW_BATCHES_FILES_MAX]; /* of the first member; closed when the scratch file is built
                                       */
  uint64_t row_bytes[STOW_BATCHES_FILES_MAX];
  disk_shuffle_layout layout;
  uint64_t rows, groups;
  uint64_t step_rows; /* pieces begin at multiples: at whole units of the scratch file */
  uint32_t members;   /* threads that read and write */
  sequence order;     /* of the files' blocks */
  atomic_bool cancelled, failed;
  int fds[STOW_BATCHES_FILES_MAX], direct[STOW_BATCHES_FILES_MAX]; /* -1: none */
  origin origins[STOW_BATCHES_FILES_MAX];
  void *bounce;              /* of the first member, which the sources in `first` use */
  disk_shuffle_share *share; /* NULL: not shared */
  bool built;
};

/* ---- sizes ---- */

static uint64_t all_row_bytes(const rows *files, uint32_t parts) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < parts; i++) bytes += files[i].file_row_bytes;
  return bytes;
}

static uint32_t groups_for(const rows *files, uint32_t parts) {
  for (uint32_t i = 0; i < parts; i++)
    if (rows_one_reader(&files[i])) return 1;
  return GROUPS;
}

static uint64_t held_bytes(const rows *files, uint32_t parts) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < parts; i++) bytes += files[i].from.held_bytes;
  return bytes;
}

/* A quarter of the budget is left for pieces and direct reads. Depends on nothing that may differ
 * between runs: the order follows from it. */
uint64_t disk_shuffle_group_rows(uint64_t memory_bytes, const rows *files, uint32_t parts,
                                 uint64_t unit_rows) {
  uint64_t usable = memory_bytes / 4 * 3, held = held_bytes(files, parts);
  if (usable <= held) return 0;
  uint64_t row = all_row_bytes(files, parts) + PERMUTED_BYTES;
  uint64_t group = (usable - held) / groups_for(files, parts) / row;
  if (group > UINT32_MAX) group = UINT32_MAX;
  return group >= unit_rows ? group / unit_rows * unit_rows : group;
}

/* A small group takes smaller blocks of the files, so that it has rows of many places; but whole
 * chunks. Follows from the group alone, so that a state with another group gives the same order. */
static uint64_t choose_block(const disk_shuffle_options *o, uint64_t row_bytes, uint64_t widest) {
  uint64_t block = o->group_rows / BLOCKS_WANTED, few = o->group_rows / BLOCKS_FEW;
  uint64_t slow = BLOCK_SLOW / (row_bytes + 1), small = BLOCK_LEAST / (row_bytes + 1);
  if (block < slow) block = few < slow ? few : slow;
  if (block < small) block = small;
  if (o->chunked || block > o->block_rows) return o->block_rows;
  return source_whole_rows(block < 1 ? 1 : block, BLOCK_LEAST, widest);
}

/* Groups that are neighbours in the file, and those of few blocks, need more pieces. */
static uint64_t count_stripes(const disk_shuffle_layout *l, uint64_t row_bytes) {
  uint64_t group = l->group_rows, blocks = l->forward ? 1 : group / l->block_rows;
  uint64_t stripes = group * row_bytes / PIECE_BYTES, wanted = PIECES_WANTED / (blocks + 1);
  if (stripes < wanted) stripes = wanted;
  return stripes < 1 ? 1 : stripes > group ? group : stripes;
}

static uint64_t widest_row(const rows *files, uint32_t parts) {
  uint64_t widest = 0;
  for (uint32_t i = 0; i < parts; i++)
    if (files[i].file_row_bytes > widest) widest = files[i].file_row_bytes;
  return widest;
}

disk_shuffle_layout disk_shuffle_lay_out(const disk_shuffle_options *o, const rows *files) {
  disk_shuffle_layout l = {.group_rows = o->group_rows};
  uint64_t row_bytes = all_row_bytes(files, o->parts);
  for (uint32_t i = 0; i < o->parts; i++) l.forward = l.forward || rows_forward_only(&files[i]);
  l.block_rows = choose_block(o, row_bytes, widest_row(files, o->parts));
  l.stripes = count_stripes(&l, row_bytes);
  l.run_rows = l.forward ? l.group_rows : l.block_rows;
  return l;
}

double disk_shuffle_places(const disk_shuffle_layout *l, uint64_t block_rows) {
  double group = (double)l->group_rows, piece = group / (double)l->stripes;
  if (piece > (double)block_rows) piece = (double)block_rows;
  return group / (double)l->run_rows / piece;
}

disk_shuffle_layout disk_shuffle_layout_of(const disk_shuffle *d) {
  return d->layout;
}

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

uint64_t disk_shuffle_bytes(const disk_shuffle *d) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < d->options.parts; i++) bytes += d->rows * d->row_bytes[i];
  return bytes;
}

/* ---- opening ---- */

static const char *default_folder(void) {
  const char *folder = getenv("TMPDIR");
  return folder != NULL && folder[0] != '\0' ? folder : "/var/tmp";
}

static char *copy_text(const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = malloc(bytes);
  return copy != NULL ? memcpy(copy, text, bytes) : NULL;
}

/* Returns the rows that fill whole units, if a piece has several times as many; else 1. */
static uint64_t choose_step(const disk_shuffle *d, uint64_t widest) {
  uint64_t step = source_whole_rows(1, PIECE_BYTES, widest),
           piece = d->options.group_rows / d->layout.stripes;
  while (step * widest < STEP_BYTES && step <= piece / 8) step *= 2;
  return step <= piece / 4 ? step : 1;
}

stow_status disk_shuffle_open(disk_shuffle **out, const disk_shuffle_options *options,
                              rows *first) {
  disk_shuffle *d = calloc(1, sizeof *d);
  if (d == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a shuffle on disk");
  d->options = *options;
  d->rows = first[0].count;
  for (uint32_t i = 0; i < options->parts; i++) {
    d->fds[i] = d->direct[i] = -1;
    d->row_bytes[i] = first[i].file_row_bytes;
    d->options.shared = d->options.shared && first[i].from.from->fd >= 0;
  }
  d->layout = disk_shuffle_lay_out(options, first);
  d->options.block_rows = d->layout.block_rows;
  d->members = groups_for(first, options->parts);
  if (d->members > 1 && options->bounce_bytes > 0) d->members = WRITERS;
  d->groups = (d->rows + options->group_rows - 1) / options->group_rows;
  d->step_rows = choose_step(d, widest_row(first, options->parts));
  memcpy(d->first, first, options->parts * sizeof *first);
  memset(first, 0, options->parts * sizeof *first);
  d->folder = copy_text(options->folder != NULL ? options->folder : default_folder());
  stow_status status =
      d->folder != NULL
          ? sequence_open(&d->order, d->rows, d->layout.forward ? 0 : d->options.block_rows)
          : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  if (status == STOW_OK) {
    sequence_draw(&d->order, shuffle_key(options->seed, UINT64_MAX, 0));
    *out = d;
  } else {
    disk_shuffle_close(d);
  }
  return status;
}

static void close_direct(disk_shuffle *d) {
  for (uint32_t i = 0; i < d->options.parts; i++) {
    if (d->direct[i] >= 0) close(d->direct[i]);
    d->direct[i] = -1;
  }
}

static void close_files(disk_shuffle *d) {
  close_direct(d);
  for (uint32_t i = 0; i < d->options.parts; i++) {
    if (d->fds[i] >= 0) close(d->fds[i]);
    d->fds[i] = -1;
  }
  disk_shuffle_share_close(d->share, d->options.parts);
  d->share = NULL;
}

void disk_shuffle_close(disk_shuffle *d) {
  if (d == NULL) return;
  close_files(d);
  for (uint32_t i = 0; i < d->options.parts; i++) {
    if (d->first[i].opened_from != NULL) rows_close(&d->first[i]);
    origin_close(&d->origins[i]);
  }
  sequence_close(&d->order);
  free((void *)(uintptr_t)d->folder);
  free(d);
}

void disk_shuffle_cancel(disk_shuffle *d, bool cancel) {
  atomic_store(&d->cancelled, cancel);
}

const origin *disk_shuffle_origin(const disk_shuffle *d, uint32_t part) {
  return &d->origins[part];
}

/* ---- reading, mixing, writing ---- */

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
} group;

/* What all threads share, guarded by `guard` except the contents of groups. */
typedef struct build_state {
  disk_shuffle *d;
  pthread_mutex_t guard;
  pthread_mutex_t writing; /* through the page cache: the kernel lets one thread write, and the
                            * others would spin */
  pthread_cond_t changed;
  group groups[GROUPS];
  uint32_t group_count;
  uint64_t next;    /* group to claim */
  uint32_t reading; /* threads that read */
} build_state;

/* What one thread needs. */
typedef struct worker {
  rows *parts;                      /* d->first, or `own` */
  rows own[STOW_BATCHES_FILES_MAX]; /* opened by this thread */
  char *piece;
  void *bounce;
} worker;

static stow_status refuse(const disk_shuffle *d, const char *what) {
  char bytes[STOW_SIZE_TEXT_MAX];
  return stow_fail(STOW_ERR_IO,
                   "shuffling on disk needs %s in %s, which %s: %s; set TMPDIR (in Python: "
                   "scratch=) to another folder, or shuffle within windows",
                   stow_size_format(bytes, disk_shuffle_bytes(d)), d->folder, what,
                   newfile_reason(errno));
}

static stow_status no_memory(uint64_t count) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to shuffle %" PRIu64 " rows", count);
}

static stow_status open_groups(build_state *g) {
  const disk_shuffle *d = g->d;
  uint64_t count = d->options.group_rows < d->rows ? d->options.group_rows : d->rows;
  for (uint32_t k = 0; k < g->group_count; k++) {
    group *h = &g->groups[k];
    h->number = d->groups;
    h->permutation = huge_alloc(count * sizeof *h->permutation);
    bool there = h->permutation != NULL;
    for (uint32_t i = 0; i < d->options.parts; i++) {
      h->memory[i] = huge_alloc(count * d->row_bytes[i] + SOURCE_DIRECT_UNIT);
      there = there && h->memory[i] != NULL;
    }
    if (!there) return no_memory(count);
  }
  return STOW_OK;
}

static void close_groups(build_state *g) {
  for (uint32_t k = 0; k < g->group_count; k++) {
    free(g->groups[k].permutation);
    for (uint32_t i = 0; i < g->d->options.parts; i++) free(g->groups[k].memory[i]);
  }
}

static stow_status open_worker(disk_shuffle *d, worker *w, unsigned member) {
  uint64_t piece = d->options.group_rows / d->layout.stripes + 1 + d->step_rows, widest = 0;
  w->parts = member == 0 ? d->first : w->own;
  for (uint32_t i = 0; i < d->options.parts; i++)
    if (d->row_bytes[i] > widest) widest = d->row_bytes[i];
  w->piece = huge_alloc(piece * widest + SOURCE_DIRECT_UNIT);
  if (d->options.bounce_bytes > 0) w->bounce = huge_alloc(d->options.bounce_bytes);
  if (w->piece == NULL || (d->options.bounce_bytes > 0 && w->bounce == NULL))
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
  free(w->piece);
}

static void claim_group(build_state *g, group *h) {
  const disk_shuffle *d = g->d;
  uint64_t row;
  h->number = g->next++;
  h->first = h->number * d->options.group_rows;
  h->count = rows_of_group(d, h->number);
  h->claimed = h->loaded = h->piece = h->written = 0;
  h->drawing = h->drawn = false;
  sequence_run(&d->order, h->first, &row);
  for (uint32_t i = 0; i < d->options.parts; i++) {
    uint64_t offset = d->first[i].from.offset + row * d->row_bytes[i];
    h->rows[i] = h->memory[i] + offset % SOURCE_DIRECT_UNIT;
  }
}

/* Reads `run` rows at `done` rows of the group. */
static stow_status read_run(disk_shuffle *d, worker *w, const group *h, uint64_t done, uint64_t row,
                            uint64_t run) {
  for (uint32_t i = 0; i < d->options.parts; i++) /* as in the file: converted when read again */
    STOW_TRY(array_read_rows(&w->parts[i].from, row, run, h->rows[i] + done * d->row_bytes[i]));
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
    if (put <= 0) return refuse(d, "cannot be written");
    bytes += put, offset += (uint64_t)put, count -= (uint64_t)put;
  }
  return STOW_OK;
}

static stow_status write_one(build_state *g, worker *w, const group *h, uint64_t piece) {
  disk_shuffle *d = g->d;
  uint64_t first = piece_first(d, h->count, piece), end = piece_first(d, h->count, piece + 1);
  uint64_t row = piece_row(d, h->number, piece);
  for (uint32_t i = 0; i < d->options.parts; i++) {
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
  h->claimed += run;
  g->reading++;
  pthread_mutex_unlock(&g->guard);
  stow_status status = read_run(d, w, h, done, row, run);
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
  uint64_t piece = h->piece++, number = h->number;
  pthread_mutex_unlock(&g->guard);
  stow_status status = write_one(g, w, h, piece);
  pthread_mutex_lock(&g->guard);
  if (++h->written < g->d->layout.stripes || status != STOW_OK) return status;
  h->number = g->d->groups;
  pthread_mutex_unlock(&g->guard);
  sync_some(g->d, number);
  pthread_mutex_lock(&g->guard);
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

static stow_status write_all(disk_shuffle *d) {
  build_state g = {.d = d, .group_count = groups_for(d->first, d->options.parts)};
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

/* ---- the scratch file ---- */

/* Opens the file once more, to bypass the page cache; -1: not possible. */
static int open_direct(int fd) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return open(path, O_WRONLY | O_CLOEXEC | O_DIRECT);
}

static stow_status make_files(disk_shuffle *d) {
  for (uint32_t i = 0; i < d->options.parts; i++) {
    d->fds[i] =
        d->share != NULL ? disk_shuffle_share_file(d->share, i, true) : newfile_unnamed(d->folder);
    if (d->fds[i] < 0) return refuse(d, "cannot be written");
    uint64_t bytes = d->rows * d->row_bytes[i];
    /* Reserves the space: fails now and not at the end, and keeps neighbours together on disk. */
    if (bytes > 0 && fallocate(d->fds[i], 0, 0, (off_t)bytes) != 0 && errno == ENOSPC)
      return refuse(d, "has no space for it");
    if (ftruncate(d->fds[i], (off_t)bytes) != 0) return refuse(d, "has no space for it");
    if (d->options.bounce_bytes > 0) d->direct[i] = open_direct(d->fds[i]);
  }
  return STOW_OK;
}

/* Identifies what the scratch file holds: the files as they are now, and the order. */
static uint64_t identity(const disk_shuffle *d) {
  uint64_t key = shuffle_key(d->options.seed, d->options.group_rows, d->options.block_rows);
  key = shuffle_key(key, d->layout.stripes, d->step_rows);
  for (uint32_t i = 0; i < d->options.parts; i++) {
    const rows *r = &d->first[i];
    const source *s = r->from.from;
    const uint64_t facts[] = {s->device, s->inode, s->changed_ns,   s->bytes,
                              r->count,  r->items, d->row_bytes[i], r->from.offset};
    key = hash_bytes(facts, sizeof facts, key);
    key = hash_bytes(r->from.name, strlen(r->from.name), key);
  }
  return key;
}

/* Opens what another rank has built. Returns false if it is not there in full. */
static bool open_built(disk_shuffle *d) {
  bool there = true;
  for (uint32_t i = 0; i < d->options.parts && there; i++) {
    struct stat found;
    d->fds[i] = disk_shuffle_share_file(d->share, i, false);
    there = d->fds[i] >= 0 && fstat(d->fds[i], &found) == 0 &&
            (uint64_t)found.st_size == d->rows * d->row_bytes[i];
  }
  for (uint32_t i = 0; i < d->options.parts && !there; i++) {
    if (d->fds[i] >= 0) close(d->fds[i]);
    d->fds[i] = -1;
  }
  return there;
}

/* The scratch file is raw values where they are converted, else rows of bytes. */
static stow_status make_origins(disk_shuffle *d) {
  for (uint32_t i = 0; i < d->options.parts; i++) {
    char path[64];
    const origin *from = &d->options.origins[i];
    const rows *r = &d->first[i];
    snprintf(path, sizeof path, "/proc/self/fd/%d", d->fds[i]);
    uint64_t shape[2] = {d->rows, r->cast ? r->items : d->row_bytes[i]};
    stow_array_options options = STOW_ARRAY_OPTIONS_INIT;
    options.path = path;
    options.raw_dtype = r->cast ? dtype_name(r->from.type) : "uint8";
    options.raw_shape = shape;
    options.raw_dims = 2;
    dtype to = r->cast ? from->to : DTYPE_NONE;
    origin_close(&d->origins[i]);
    STOW_TRY(origin_open(&d->origins[i], &options));
    d->origins[i].to = to;
  }
  return STOW_OK;
}

/* Opens the files again after a build that failed. */
static stow_status open_again(disk_shuffle *d) {
  for (uint32_t i = 0; i < d->options.parts; i++) {
    rows *r = &d->first[i];
    if (r->opened_from != NULL) continue;
    STOW_TRY(rows_open(r, &d->options.origins[i]));
    if (r->count != d->rows || r->file_row_bytes != d->row_bytes[i])
      return stow_fail(STOW_ERR_IO, "%s: was replaced or modified; open the batches again",
                       r->from.name);
  }
  return STOW_OK;
}

static void close_first(disk_shuffle *d) {
  for (uint32_t i = 0; i < d->options.parts; i++)
    if (d->first[i].opened_from != NULL) rows_close(&d->first[i]);
  free(d->bounce);
  d->bounce = NULL;
}

static stow_status build(disk_shuffle *d) {
  STOW_TRY(open_again(d));
  if (d->options.shared) {
    STOW_TRY(disk_shuffle_share_open(&d->share, d->folder, identity(d), &d->cancelled));
    if (disk_shuffle_share_complete(d->share) && open_built(d)) {
      STOW_TRY(make_origins(d));
      return disk_shuffle_share_ready(d->share);
    }
  }
  STOW_TRY(make_files(d));
  STOW_TRY(make_origins(d));
  STOW_TRY(write_all(d));
  return d->share != NULL ? disk_shuffle_share_ready(d->share) : STOW_OK;
}

stow_status disk_shuffle_build(disk_shuffle *d) {
  if (d->built) return STOW_OK;
  stow_status status = build(d);
  close_first(d);
  close_direct(d);
  if (status == STOW_OK)
    d->built = true;
  else
    close_files(d);
  return status;
}
