/* Deck: see deck.h. */
#include "data/deck.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/hash.h"
#include "base/newfile.h"
#include "base/status.h"
#include "data/deck_share.h"
#include "data/huge_alloc.h"
#include "data/shuffle.h"
#include "data/workers.h"

enum { HANDS = 2 };                      /* dealt at the same time: one reads, one writes */
#define PIECE_BYTES (UINT64_C(64) << 10) /* at most */
#define PIECES_WANTED                                                                              \
  10000 /* of a hand, divided by its blocks: rows of one block are then 1 in 10,000 of a window */
#define BLOCKS_WANTED  16                   /* of a hand */
#define BLOCK_LEAST    (UINT64_C(64) << 10) /* smaller reads are slow */
#define SYNC_BYTES     (UINT64_C(256) << 20)
#define PERMUTED_BYTES sizeof(uint32_t)

struct deck {
  deck_options options;
  const char *folder;
  rows first[STOW_BATCHES_FILES_MAX]; /* of the first member; closed when the deck is built */
  uint64_t row_bytes[STOW_BATCHES_FILES_MAX];
  uint64_t rows, hands, stripes;
  bool forward;       /* a part can only be read from front to back */
  uint32_t members;   /* threads that deal */
  sequence order;     /* of the files' blocks */
  atomic_ullong next; /* hand */
  atomic_bool cancelled, failed;
  int fds[STOW_BATCHES_FILES_MAX];
  origin origins[STOW_BATCHES_FILES_MAX];
  void *bounce;      /* of the first member, which the sources in `first` use */
  deck_share *share; /* NULL: not shared */
  bool built;
};

/* ---- sizes ---- */

static uint64_t all_row_bytes(const rows *files, uint32_t parts) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < parts; i++) bytes += files[i].file_row_bytes;
  return bytes;
}

static uint32_t members_for(const rows *files, uint32_t parts) {
  for (uint32_t i = 0; i < parts; i++)
    if (rows_one_reader(&files[i])) return 1;
  return HANDS;
}

static uint64_t held_bytes(const rows *files, uint32_t parts) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < parts; i++) bytes += files[i].from.held_bytes;
  return bytes;
}

/* A quarter of the budget is left for pieces and direct reads. Depends on nothing that may differ
 * between runs: the order follows from it. */
uint64_t deck_rows_for(uint64_t memory_bytes, const rows *files, uint32_t parts,
                       uint64_t unit_rows) {
  uint64_t usable = memory_bytes / 4 * 3, held = held_bytes(files, parts);
  if (usable <= held) return 0;
  uint64_t row = all_row_bytes(files, parts) + PERMUTED_BYTES;
  uint64_t hand = (usable - held) / members_for(files, parts) / row;
  if (hand > UINT32_MAX) hand = UINT32_MAX;
  return hand >= unit_rows ? hand / unit_rows * unit_rows : hand;
}

static uint64_t hand_rows(const deck *d, uint64_t hand) {
  uint64_t first = hand * d->options.deck_rows, left = d->rows - first;
  return left < d->options.deck_rows ? left : d->options.deck_rows;
}

/* Returns the rows of a hand of `count` rows that come before piece `piece`. */
static uint64_t piece_first(const deck *d, uint64_t count, uint64_t piece) {
  return (uint64_t)((unsigned __int128)count * piece / d->stripes);
}

/* Returns the place of a hand within each stripe. Hands of a file that is read from front to back
 * are neighbours in the file, so they are spread. The last hand, which may be short, is last. */
static uint64_t hand_place(const deck *d, uint64_t hand) {
  uint64_t full = d->hands - 1;
  if (!d->forward || hand == full || full < 3) return hand;
  uint64_t step = full * 5 / 8;
  for (;; step++) {
    uint64_t a = step, b = full;
    while (b != 0) {
      uint64_t rest = a % b;
      a = b, b = rest;
    }
    if (a == 1) return (uint64_t)((unsigned __int128)hand * step % full);
  }
}

/* Returns the row of the scratch file at which that piece of the hand begins. */
static uint64_t piece_row(const deck *d, uint64_t hand, uint64_t piece) {
  uint64_t full = d->options.deck_rows, last = hand_rows(d, d->hands - 1);
  uint64_t before = piece_first(d, full, piece);
  uint64_t width = piece_first(d, full, piece + 1) - before;
  return (d->hands - 1) * before + piece_first(d, last, piece) + hand_place(d, hand) * width;
}

uint64_t deck_bytes(const deck *d) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < d->options.parts; i++) bytes += d->rows * d->row_bytes[i];
  return bytes;
}

double deck_places(const deck *d, uint64_t window_rows, uint64_t block_rows, uint64_t *run_rows) {
  double hand = (double)d->options.deck_rows, piece = hand / (double)d->stripes;
  if (piece > (double)block_rows) piece = (double)block_rows;
  *run_rows = d->forward ? d->options.deck_rows : d->options.block_rows;
  return (double)window_rows / piece * (hand / (double)*run_rows);
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

/* A small hand takes smaller blocks of the files, so that it has rows of many places; but whole
 * chunks. Follows from the hand alone, so that a state with another hand deals the same. */
static uint64_t choose_block(const deck_options *o, uint64_t row_bytes) {
  uint64_t block = o->deck_rows / BLOCKS_WANTED, small = BLOCK_LEAST / (row_bytes + 1);
  if (block < small) block = small;
  if (o->chunked || block > o->block_rows) return o->block_rows;
  return block < 1 ? 1 : block;
}

/* Hands that are neighbours in the file, and those of few blocks, need more pieces. */
static uint64_t count_stripes(const deck *d, uint64_t row_bytes) {
  uint64_t hand = d->options.deck_rows, blocks = d->forward ? 1 : hand / d->options.block_rows;
  uint64_t stripes = hand * row_bytes / PIECE_BYTES, wanted = PIECES_WANTED / (blocks + 1);
  if (stripes < wanted) stripes = wanted;
  return stripes < 1 ? 1 : stripes > hand ? hand : stripes;
}

stow_status deck_open(deck **out, const deck_options *options, rows *first) {
  deck *d = calloc(1, sizeof *d);
  if (d == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a shuffle on disk");
  d->options = *options;
  d->options.block_rows = choose_block(options, all_row_bytes(first, options->parts));
  d->rows = first[0].count;
  for (uint32_t i = 0; i < options->parts; i++) {
    d->fds[i] = -1;
    d->row_bytes[i] = first[i].file_row_bytes;
    d->forward = d->forward || rows_forward_only(&first[i]);
    d->options.shared = d->options.shared && first[i].from.from->fd >= 0;
  }
  d->members = members_for(first, options->parts);
  d->hands = (d->rows + options->deck_rows - 1) / options->deck_rows;
  d->stripes = count_stripes(d, all_row_bytes(first, options->parts));
  memcpy(d->first, first, options->parts * sizeof *first);
  memset(first, 0, options->parts * sizeof *first);
  d->folder = copy_text(options->folder != NULL ? options->folder : default_folder());
  stow_status status =
      d->folder != NULL ? sequence_open(&d->order, d->rows, d->forward ? 0 : d->options.block_rows)
                        : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  if (status == STOW_OK) {
    sequence_draw(&d->order, shuffle_key(options->seed, UINT64_MAX, 0));
    *out = d;
  } else {
    deck_close(d);
  }
  return status;
}

static void close_files(deck *d) {
  for (uint32_t i = 0; i < d->options.parts; i++) {
    if (d->fds[i] >= 0) close(d->fds[i]);
    d->fds[i] = -1;
  }
  deck_share_close(d->share, d->options.parts);
  d->share = NULL;
}

void deck_close(deck *d) {
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

void deck_cancel(deck *d, bool cancel) {
  atomic_store(&d->cancelled, cancel);
}

const origin *deck_origin(const deck *d, uint32_t part) {
  return &d->origins[part];
}

/* ---- dealing ---- */

/* What one thread needs. */
typedef struct dealer {
  rows *parts;                        /* d->first, or `own` */
  rows own[STOW_BATCHES_FILES_MAX];   /* opened by this thread */
  char *hand[STOW_BATCHES_FILES_MAX]; /* its rows */
  uint32_t *permutation;
  char *piece;
  void *bounce;
} dealer;

static stow_status refuse(const deck *d, const char *what) {
  char bytes[STOW_SIZE_TEXT_MAX];
  return stow_fail(STOW_ERR_IO,
                   "shuffling on disk needs %s in %s, which %s: %s; set TMPDIR (in Python: "
                   "scratch=) to another folder, or shuffle within windows",
                   stow_size_format(bytes, deck_bytes(d)), d->folder, what, newfile_reason(errno));
}

static stow_status open_dealer(deck *d, dealer *w, unsigned member) {
  uint64_t count = d->options.deck_rows < d->rows ? d->options.deck_rows : d->rows, widest = 0;
  w->parts = member == 0 ? d->first : w->own;
  w->permutation = huge_alloc(count * sizeof *w->permutation);
  bool there = w->permutation != NULL;
  uint64_t piece = d->options.deck_rows / d->stripes + 1;
  for (uint32_t i = 0; i < d->options.parts; i++) {
    w->hand[i] = huge_alloc(count * d->row_bytes[i]);
    there = there && w->hand[i] != NULL;
    if (d->row_bytes[i] > widest) widest = d->row_bytes[i];
  }
  w->piece = malloc(piece * widest + 1);
  if (d->options.bounce_bytes > 0) w->bounce = huge_alloc(d->options.bounce_bytes);
  if (!there || w->piece == NULL || (d->options.bounce_bytes > 0 && w->bounce == NULL))
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to shuffle %" PRIu64 " rows", count);
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

static void close_dealer(deck *d, dealer *w) {
  for (uint32_t i = 0; i < d->options.parts; i++) {
    if (w->parts == w->own && w->own[i].opened_from != NULL) rows_close(&w->own[i]);
    free(w->hand[i]);
  }
  if (w->parts == d->first)
    d->bounce = w->bounce;
  else
    free(w->bounce);
  free(w->permutation);
  free(w->piece);
}

static stow_status read_hand(deck *d, dealer *w, uint64_t first, uint64_t count) {
  for (uint32_t i = 0; i < d->options.parts; i++)
    for (uint64_t done = 0; done < count;) {
      uint64_t row, run = sequence_run(&d->order, first + done, &row);
      if (run > count - done) run = count - done;
      if (atomic_load(&d->cancelled) || atomic_load(&d->failed))
        return stow_fail(STOW_ERR_INTERRUPTED, "the shuffle on disk was stopped");
      /* As in the file: the copy is converted when it is read. */
      STOW_TRY(array_read_rows(&w->parts[i].from, row, run, w->hand[i] + done * d->row_bytes[i]));
      done += run;
    }
  return STOW_OK;
}

static stow_status write_piece(const deck *d, uint32_t part, const char *bytes, uint64_t count,
                               uint64_t offset) {
  while (count > 0) {
    ssize_t put = pwrite(d->fds[part], bytes, (size_t)count, (off_t)offset);
    if (put < 0 && errno == EINTR) continue;
    if (put == 0) errno = ENOSPC;
    if (put <= 0) return refuse(d, "cannot be written");
    bytes += put, offset += (uint64_t)put, count -= (uint64_t)put;
  }
  return STOW_OK;
}

static stow_status write_hand(const deck *d, dealer *w, uint64_t hand, uint64_t count) {
  shuffle_draw(w->permutation, (uint32_t)count, shuffle_key(d->options.seed, UINT64_MAX, hand + 1));
  for (uint64_t piece = 0; piece < d->stripes; piece++) {
    uint64_t first = piece_first(d, count, piece), end = piece_first(d, count, piece + 1);
    uint64_t row = piece_row(d, hand, piece);
    for (uint32_t i = 0; i < d->options.parts; i++) {
      size_t bytes = (size_t)d->row_bytes[i];
      shuffle_gather(w->piece, w->hand[i], w->permutation + first, end - first, bytes);
      STOW_TRY(write_piece(d, i, w->piece, (end - first) * bytes, row * bytes));
    }
  }
  /* In a small container, pages must reach the disk before they can be reclaimed. Not more often:
   * the pieces of neighbouring hands are neighbours, and are written together. */
  uint64_t every = SYNC_BYTES / (d->options.deck_rows * all_row_bytes(w->parts, d->options.parts));
  for (uint32_t i = 0; i < d->options.parts && d->options.bounce_bytes > 0; i++)
    if (every == 0 || hand % every == 0) sync_file_range(d->fds[i], 0, 0, SYNC_FILE_RANGE_WRITE);
  return STOW_OK;
}

static stow_status deal(void *context, unsigned member) {
  deck *d = context;
  dealer w = {0};
  stow_status status = open_dealer(d, &w, member);
  while (status == STOW_OK) {
    uint64_t hand = atomic_fetch_add(&d->next, 1);
    if (hand >= d->hands) break;
    uint64_t count = hand_rows(d, hand);
    status = read_hand(d, &w, hand * d->options.deck_rows, count);
    if (status == STOW_OK) status = write_hand(d, &w, hand, count);
  }
  for (uint32_t i = 0; i < d->options.parts && status == STOW_OK; i++)
    status = rows_check(&w.parts[i]);
  if (status != STOW_OK) atomic_store(&d->failed, true);
  close_dealer(d, &w);
  return status;
}

/* ---- the scratch file ---- */

static stow_status make_files(deck *d) {
  for (uint32_t i = 0; i < d->options.parts; i++) {
    d->fds[i] = d->share != NULL ? deck_share_file(d->share, i, true) : newfile_unnamed(d->folder);
    if (d->fds[i] < 0) return refuse(d, "cannot be written");
    uint64_t bytes = d->rows * d->row_bytes[i];
    /* Reserves the space: fails now and not at the end, and keeps neighbours together on disk. */
    if (bytes > 0 && fallocate(d->fds[i], 0, 0, (off_t)bytes) != 0 && errno == ENOSPC)
      return refuse(d, "has no space for it");
    if (ftruncate(d->fds[i], (off_t)bytes) != 0) return refuse(d, "has no space for it");
  }
  return STOW_OK;
}

/* Identifies what the deck holds: the files as they are now, and the order. */
static uint64_t identity(const deck *d) {
  uint64_t key = shuffle_key(d->options.seed, d->options.deck_rows, d->options.block_rows);
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
static bool open_built(deck *d) {
  bool there = true;
  for (uint32_t i = 0; i < d->options.parts && there; i++) {
    struct stat found;
    d->fds[i] = deck_share_file(d->share, i, false);
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
static stow_status make_origins(deck *d) {
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
static stow_status open_again(deck *d) {
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

static void close_first(deck *d) {
  for (uint32_t i = 0; i < d->options.parts; i++)
    if (d->first[i].opened_from != NULL) rows_close(&d->first[i]);
  free(d->bounce);
  d->bounce = NULL;
}

static stow_status build(deck *d) {
  STOW_TRY(open_again(d));
  if (d->options.shared) {
    STOW_TRY(deck_share_open(&d->share, d->folder, identity(d), &d->cancelled));
    if (deck_share_complete(d->share) && open_built(d)) {
      STOW_TRY(make_origins(d));
      return deck_share_ready(d->share);
    }
  }
  STOW_TRY(make_files(d));
  STOW_TRY(make_origins(d));
  atomic_store(&d->next, 0);
  atomic_store(&d->failed, false);
  STOW_TRY(workers_run(d->members, deal, d));
  return d->share != NULL ? deck_share_ready(d->share) : STOW_OK;
}

stow_status deck_build(deck *d) {
  if (d->built) return STOW_OK;
  stow_status status = build(d);
  close_first(d);
  if (status == STOW_OK)
    d->built = true;
  else
    close_files(d);
  return status;
}
