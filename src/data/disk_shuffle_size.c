/* Disk shuffle, sizes: of groups, blocks and pieces, and of the scratch file. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include <stowage/size.h>

#include "base/newfile.h"
#include "base/status.h"
#include "data/disk_shuffle_parts.h"
#include "files/source.h"

#define PIECE_BYTES (UINT64_C(256) << 10) /* at most */
#define PIECES_WANTED                                                                              \
  10000 /* of a group, divided by its blocks: rows of one block are then 1 in 10,000 of a window   \
         */
#define BLOCKS_WANTED  400                   /* of a group: the fewer, the smaller the pieces */
#define BLOCKS_FEW     100                   /* enough, where more make slow reads */
#define BLOCK_SLOW     (UINT64_C(144) << 10) /* smaller reads are slower: they are not direct */
#define BLOCK_LEAST    (UINT64_C(64) << 10)  /* smaller ones are too slow */
#define STEP_BYTES     (UINT64_C(64) << 10)  /* the page cache then holds a piece in large pages */
#define PERMUTED_BYTES sizeof(uint32_t)

static uint64_t all_row_bytes(const rows *files, uint32_t parts) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < parts; i++) bytes += files[i].file_row_bytes;
  return bytes;
}

uint32_t disk_shuffle_groups_for(const rows *files, uint32_t parts) {
  for (uint32_t i = 0; i < parts; i++)
    if (rows_one_reader(&files[i])) return 1;
  return DISK_SHUFFLE_GROUPS;
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
  uint64_t group = (usable - held) / disk_shuffle_groups_for(files, parts) / row;
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

uint64_t disk_shuffle_step_rows(const disk_shuffle *d, const rows *files) {
  uint64_t widest = widest_row(files, d->options.parts);
  uint64_t step = source_whole_rows(1, PIECE_BYTES, widest);
  uint64_t piece = d->options.group_rows / d->layout.stripes;
  while (step * widest < STEP_BYTES && step <= piece / 8) step *= 2;
  return step <= piece / 4 ? step : 1;
}

double disk_shuffle_places(const disk_shuffle_layout *l, uint64_t block_rows) {
  double group = (double)l->group_rows, piece = group / (double)l->stripes;
  if (piece > (double)block_rows) piece = (double)block_rows;
  return group / (double)l->run_rows / piece;
}

uint64_t disk_shuffle_bytes(const disk_shuffle *d) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < d->options.parts; i++) bytes += d->rows * d->row_bytes[i];
  return bytes;
}

stow_status disk_shuffle_refuse(const disk_shuffle *d, const char *what) {
  char bytes[STOW_SIZE_TEXT_MAX];
  return stow_fail(STOW_ERR_IO,
                   "shuffling on disk needs %s in %s, which %s: %s; set TMPDIR (in Python: "
                   "scratch=) to another folder, or shuffle within windows",
                   stow_size_format(bytes, disk_shuffle_bytes(d)), d->folder, what,
                   newfile_reason(errno));
}
