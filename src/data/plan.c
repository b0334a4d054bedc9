/* Plan: see plan.h. Divides the budget in this order: the readers' scratch buffers, the order of
 * the blocks, batches ahead and with the caller, windows. */
#include "data/plan.h"

#include <inttypes.h>

#include <stowage/size.h>

#include "base/checked.h"
#include "base/huge_alloc.h"
#include "base/status.h"
#include "data/buffer_pool.h"
#include "data/workers.h"
#include "files/source.h"

enum {
  WITH_CALLER = 2, /* batches the caller is assumed to hold */
  AHEAD_LEAST = 2, /* buffers: one ready, one being filled */
  AHEAD_MOST = 1024,
  READERS_MOST = 64,
};
/* More readahead than this does not hide a disk's latency. */
#define AHEAD_LOCAL    (UINT64_C(16) << 20)
#define AHEAD_REMOTE   (UINT64_C(64) << 20)
#define READERS_SHARE  8  /* the readers' scratch gets at most one part in this many */
#define ORDER_SHARE    16 /* the order of the blocks may use this share too */
#define LARGE_BUDGET   (UINT64_C(32) << 20)
#define SCRATCH_LARGE  (UINT64_C(1) << 20)
#define SCRATCH_SMALL  (UINT64_C(256) << 10)
#define BLOCK_MOST     (UINT64_C(1) << 20) /* upper bound, and the size of one read */
#define BLOCK_LEAST    (UINT64_C(64) << 10)
#define BLOCKS_WANTED  (UINT64_C(1) << 10) /* enough to shuffle a small file well */
#define BLOCKS_RANDOM  (UINT64_C(1) << 12) /* the same for rows in random order: smaller windows */
#define PLACES_WANTED  3000                /* of a window of those: 0.97 of uniform */
#define WINDOW_BLOCKS  16 /* of a window, at least: other rows come together in each epoch */
#define BLOCKS_MOST    (UINT64_C(1) << 20) /* their order takes 4 MiB */
#define ROWS_MOST      (UINT64_C(1) << 22) /* permuted one by one: 16 MiB */
#define PERMUTED_BYTES sizeof(uint32_t)    /* a row's position in a window */
/* Of files that ranks share. All ranks need the same blocks, so these depend on nothing else. */
#define SHARED_BLOCKS (UINT64_C(1) << 16)  /* at most: their order fits in the smallest budget */
#define SHARED_SMALL  (UINT64_C(16) << 20) /* bytes: a smaller file has as many as that */
#define REMOTE_WANTED 1000                 /* of a share: each is a request */
#define SCATTER_LEAST 1024                 /* bytes: smaller rows cost less through a window */

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

static uint64_t all_row_bytes(const plan *p) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < p->parts; i++) bytes += p->row_bytes[i];
  return bytes;
}

/* Returns whether whole batches are read directly as stored in the file: not converted, not through
 * a window or a stage. */
bool plan_room(const plan *p, uint32_t part) {
  return p->drop_cache && !p->shuffle && !p->foreign && p->scratch_least[part] == 0 &&
         p->batch_rows * p->row_bytes[part] >= SOURCE_DIRECT_LEAST;
}

/* Returns the bytes of one batch: a buffer per file. */
static uint64_t batch_bytes(const plan *p) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < p->parts; i++)
    bytes += buffer_pool_buffer_bytes(p->batch_rows * p->row_bytes[i], plan_room(p, i));
  return bytes;
}

uint64_t plan_buffers(const plan *p) {
  return (uint64_t)p->ahead + WITH_CALLER;
}

uint64_t plan_shift(const plan *p) {
  return p->bounce_bytes > 0 ? SOURCE_DIRECT_UNIT : 0;
}

static uint64_t window_row_bytes(const plan *p) {
  return all_row_bytes(p) + PERMUTED_BYTES;
}

static uint64_t order_bytes(const plan *p, uint64_t block_rows) {
  return block_rows == 0 ? 0 : (p->rows / block_rows + 1) * sizeof(uint32_t);
}

static stow_status too_small(const plan *p, uint64_t needed) {
  char budget[STOW_SIZE_TEXT_MAX], batch[STOW_SIZE_TEXT_MAX], need[STOW_SIZE_TEXT_MAX];
  return stow_fail(STOW_ERR_BUDGET,
                   "batches of %" PRIu64 " rows take %s each and need %s in all; the budget is %s. "
                   "Give more memory, or use a smaller batch",
                   p->batch_rows, stow_size_format(batch, batch_bytes(p)),
                   stow_size_format(need, needed), stow_size_format(budget, p->memory_bytes));
}

/* ---- readers ---- */

static uint64_t reader_bytes(const plan *p) {
  uint64_t bytes = p->stage_bytes + p->cache_bytes + p->bounce_bytes;
  for (uint32_t i = 0; i < p->parts; i++)
    if (p->scratch_least[i] > 0) bytes += most(p->scratch_bytes, p->scratch_least[i]);
  return bytes;
}

/* Chooses the number of readers. A deflated file and HDF5 have one reader. A remote file has
 * several, because each waits for answers. A local file has one per processor, at most four: then
 * the disk is the limit. Direct reads are limited by the disk from the start, and four readers keep
 * it busy. A budget of 8 MiB allows one. */
static void choose_readers(plan *p) {
  unsigned processors = workers_default();
  uint64_t wanted = p->readers_wanted;
  if (wanted == 0) {
    uint64_t machine = least(processors, 4);
    if (p->drop_cache) machine = 4;
    if (p->remote) machine = 8;
    wanted = most(1, least(machine, p->memory_bytes / (UINT64_C(8) << 20)));
  }
  if (p->one_reader) wanted = 1;
  p->readers = (uint32_t)least(wanted, READERS_MOST);
  while (p->readers > 1 && p->readers * reader_bytes(p) > p->memory_bytes / READERS_SHARE)
    p->readers--;
  p->caller_reads = !p->one_reader && !p->remote && !p->drop_cache &&
                    (p->readers + 1) * reader_bytes(p) <= p->memory_bytes / READERS_SHARE;
  p->one_core = processors == 1;
}

static uint64_t all_readers_bytes(const plan *p) {
  return (p->readers + p->caller_reads) * reader_bytes(p);
}

/* ---- batches ahead ---- */

static void choose_ahead(plan *p, uint64_t bytes) {
  uint64_t batch = most(batch_bytes(p), 1), fit = bytes / batch;
  uint64_t ahead = fit > WITH_CALLER ? fit - WITH_CALLER : 0;
  ahead = least(ahead, most((p->remote ? AHEAD_REMOTE : AHEAD_LOCAL) / batch, 4));
  ahead = least(least(ahead, p->batch_count), AHEAD_MOST);
  p->ahead = (uint32_t)most(AHEAD_LEAST, ahead);
  uint64_t group = p->window_rows == 0 ? p->stage_bytes / batch : SCRATCH_SMALL / batch;
  p->group = (uint32_t)most(1, least(group, p->ahead / (2 * p->readers)));
  if (p->group == 1) p->stage_bytes = 0;
}

/* ---- blocks and windows ---- */

/* Returns whether rows are read one by one: large rows, unless several of them are unpacked
 * together. */
static bool one_by_one(const plan *p) {
  return p->file_row_bytes >= PLAN_LARGE_ROW && p->chunk_rows <= 1;
}

/* Returns the bytes of a row in the file that dominates, of those that are not converted. */
static uint64_t widest_row(const plan *p) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < p->parts; i++)
    if (p->scratch_least[i] == 0) bytes = most(bytes, p->row_bytes[i]);
  return bytes;
}

/* Depends only on the files, so that all ranks use the same blocks whatever memory each has. A
 * block is whole chunks: each chunk is unpacked once an epoch. */
uint64_t plan_block(const plan *p, bool random) {
  if (one_by_one(p)) return p->rows / ROWS_MOST + 1;
  uint64_t row = most(p->file_row_bytes, 1), all = p->rows * row;
  uint64_t wanted = random ? BLOCKS_RANDOM : BLOCKS_WANTED;
  uint64_t bytes = least(most(all / wanted, BLOCK_LEAST), BLOCK_MOST);
  if (random) bytes = bytes / BLOCK_LEAST * BLOCK_LEAST; /* whole pages of a large size */
  uint64_t block = most(most(bytes, all / BLOCKS_MOST) / row, 1);
  if (p->chunk_rows <= 1 || p->chunk_rows >= p->rows)
    return source_whole_rows(block, BLOCK_MOST, widest_row(p));
  return (block + p->chunk_rows - 1) / p->chunk_rows * p->chunk_rows;
}

/* A share of PLACES_WANTED blocks mixes as well as rows of everywhere. The reads are smaller than
 * those of one process, down to single rows of a small file, which the page cache holds. */
uint64_t plan_share_block(const plan *p, bool random) {
  uint64_t usual = plan_block(p, random), row = most(p->file_row_bytes, 1), wanted = SHARED_BLOCKS;
  if (p->ranks < 2 || one_by_one(p)) return usual;
  if (p->rows * row > SHARED_SMALL || p->remote)
    wanted = p->ranks * (p->remote ? REMOTE_WANTED : PLACES_WANTED);
  if (random) wanted = most(wanted, BLOCKS_RANDOM);
  wanted = least(wanted, SHARED_BLOCKS);
  uint64_t block = most(p->rows / wanted + (p->rows % wanted != 0), 1);
  if (p->remote) block = most(block, BLOCK_LEAST / row);
  if (p->chunk_rows > 1 && p->chunk_rows < p->rows)
    block = (block + p->chunk_rows - 1) / p->chunk_rows * p->chunk_rows;
  return least(block, usual);
}

bool plan_uniform(const plan *p) {
  return p->window_rows == 0 || p->block_rows <= 1;
}

/* Returns whether the rank has all rows and they fit in memory. */
static bool fits_whole(const plan *p, uint64_t left) {
  uint64_t bytes, batches = 6 * batch_bytes(p);
  return p->rank_rows == p->rows && p->rows <= UINT32_MAX &&
         checked_mul(&bytes, p->rows, window_row_bytes(p)) && batches < left &&
         bytes <= left - batches;
}

/* Returns the rows that a window needs. If they are in random order, few do, which stay in the
 * processor's cache until they are copied to their batches. */
static uint64_t random_rows(const plan *p) {
  if (p->places_per_row <= 0) return UINT64_MAX;
  double rows = PLACES_WANTED / p->places_per_row;
  if (rows >= (double)UINT32_MAX) return UINT32_MAX;
  return most((uint64_t)rows, WINDOW_BLOCKS * p->block_rows) + p->batch_rows; /* rounded up */
}

static void choose_window(plan *p, uint64_t left) {
  p->windows = 1;
  p->block_rows = plan_share_block(p, p->places_per_row > 0);
  if (one_by_one(p)) return;
  if (fits_whole(p, left)) {
    p->block_rows = 0;
    p->window_rows = most(p->rows, 1);
    return;
  }
  p->windows = 2;
  uint64_t ring = least(most(left / 4, 6 * batch_bytes(p)), left / 2);
  uint64_t fit = least((left - ring) / 2 / window_row_bytes(p), UINT32_MAX);
  p->window_rows = least(fit, random_rows(p)) / p->batch_rows * p->batch_rows;
}

bool plan_scatters(const plan *p, uint32_t part) {
  return p->own_windows && p->scratch_least[part] == 0 && p->row_bytes[part] >= SCATTER_LEAST;
}

uint64_t plan_own_rows_bytes(const plan *p) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < p->parts; i++)
    if (!plan_scatters(p, i)) bytes = most(bytes, p->row_bytes[i]);
  return round_up(bytes * p->window_rows, BUFFER_POOL_ALIGN);
}

uint64_t plan_own_bytes(const plan *p) {
  return plan_own_rows_bytes(p) + p->window_rows * PLAN_OWN_ORDER_BYTES;
}

static uint64_t windows_bytes(const plan *p) {
  if (p->own_windows) return (p->readers + p->caller_reads) * plan_own_bytes(p);
  return p->windows * (p->window_rows * window_row_bytes(p) + p->parts * plan_shift(p));
}

static uint64_t fixed_bytes(const plan *p) {
  return all_readers_bytes(p) + order_bytes(p, p->block_rows) + windows_bytes(p) + p->outside_bytes;
}

/* Gives each reader a window of its own, if the windows are small and in the page cache: the rows
 * then stay in the cache of the reader's processor until they are in their batches. A reader waits
 * for the buffers of a whole window, so there must be buffers for two. On one core, small rows are
 * copied batch by batch instead, into the buffer that the caller just returned. */
static void choose_own_windows(plan *p) {
  p->own_windows = p->places_per_row > 0 && p->windows == 2 && !p->drop_cache &&
                   (!p->one_core || widest_row(p) >= SCATTER_LEAST);
  if (!p->own_windows) return;
  uint64_t fixed = fixed_bytes(p), window = (p->window_rows + p->batch_rows - 1) / p->batch_rows;
  if (fixed < p->memory_bytes) choose_ahead(p, p->memory_bytes - fixed);
  p->own_windows = fixed + (AHEAD_LEAST + 1) * batch_bytes(p) <= p->memory_bytes &&
                   p->ahead >= least(2 * window, p->batch_count);
}

static stow_status finish(plan *p) {
  uint64_t needed = fixed_bytes(p) + (AHEAD_LEAST + 1) * batch_bytes(p);
  bool unmixed = p->shuffle && p->window_rows == 0 && !one_by_one(p);
  if (unmixed) needed += 2 * p->batch_rows * window_row_bytes(p);
  if (needed > p->memory_bytes || unmixed) return too_small(p, most(needed, p->memory_bytes + 1));
  choose_own_windows(p);
  choose_ahead(p, p->memory_bytes - fixed_bytes(p));
  p->piece_rows = most(1, BLOCK_MOST / most(p->file_row_bytes, 1));
  p->piece_least = SCRATCH_SMALL / most(p->file_row_bytes, 1);
  p->drop_bytes = p->memory_bytes / (16 * (uint64_t)p->readers * p->parts);
  p->planned_bytes = fixed_bytes(p) + plan_buffers(p) * batch_bytes(p);
  return STOW_OK;
}

static void begin(plan *p) {
  p->scratch_bytes = p->memory_bytes >= LARGE_BUDGET ? SCRATCH_LARGE : SCRATCH_SMALL;
  bool grouped = !p->shuffle || one_by_one(p);
  for (uint32_t i = 0; i < p->parts; i++) grouped = grouped && !plan_room(p, i);
  p->stage_bytes = grouped && batch_bytes(p) <= p->scratch_bytes / 2 ? p->scratch_bytes : 0;
  if (!p->drop_cache)
    p->bounce_bytes = 0;
  else if (p->memory_bytes >= 2 * LARGE_BUDGET)
    p->bounce_bytes = HUGE_PAGE_BYTES;
  else
    p->bounce_bytes = p->scratch_bytes + 2 * SOURCE_DIRECT_UNIT;
  p->block_rows = p->window_rows = p->windows = 0;
  p->own_windows = false;
  choose_readers(p);
}

stow_status plan_make(plan *p) {
  begin(p);
  /* Uses the readers' maximum instead of what this machine's readers take: windows are the same
   * everywhere. */
  uint64_t left = p->memory_bytes - p->memory_bytes / READERS_SHARE - p->memory_bytes / ORDER_SHARE;
  left = left > p->outside_bytes ? left - p->outside_bytes : 0;
  if (p->shuffle) choose_window(p, left);
  if (p->shuffle && p->window_rows == 0 && p->file_row_bytes >= PLAN_LARGE_ROW) {
    p->chunk_rows = 0; /* no window fits: read each row separately and unpack its chunk each time */
    begin(p);
    choose_window(p, left);
  }
  return finish(p);
}

stow_status plan_adopt(plan *p, uint64_t block_rows, uint64_t window_rows, uint64_t batch_rows) {
  begin(p);
  p->block_rows = block_rows;
  p->window_rows = window_rows;
  bool one_window = p->shares <= 1 && window_rows >= p->share_rows;
  p->windows = window_rows == 0 || one_window ? 1 : 2;
  uint64_t bytes;
  if (window_rows > UINT32_MAX || !checked_mul(&bytes, window_rows, 2 * window_row_bytes(p)) ||
      (window_rows > 0 && window_rows < p->share_rows && window_rows % batch_rows != 0) ||
      (block_rows > 0 && p->rows / block_rows >= UINT32_MAX))
    return stow_fail(STOW_ERR_INVALID,
                     "the state has blocks of %" PRIu64 " rows and a window of %" PRIu64
                     ", which no plan makes",
                     block_rows, window_rows);
  return finish(p);
}
