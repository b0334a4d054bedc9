/* Disk shuffle: see disk_shuffle.h. */
#include "data/disk_shuffle.h"

#include <errno.h>
#include <fcntl.h>
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
#include "data/disk_shuffle_parts.h"

#define WRITERS 4 /* threads: as many direct reads and writes keep a disk busy */

disk_shuffle_layout disk_shuffle_layout_of(const disk_shuffle *d) {
  return d->layout;
}

/* ---- opening ---- */

static char *copy_text(const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = malloc(bytes);
  return copy != NULL ? memcpy(copy, text, bytes) : NULL;
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
  d->members = disk_shuffle_groups_for(first, options->parts);
  if (d->members > 1 && options->bounce_bytes > 0) d->members = WRITERS;
  d->groups = (d->rows + options->group_rows - 1) / options->group_rows;
  d->step_rows = disk_shuffle_step_rows(d, first);
  memcpy(d->first, first, options->parts * sizeof *first);
  memset(first, 0, options->parts * sizeof *first);
  d->folder = copy_text(options->folder != NULL ? options->folder : newfile_folder());
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
    if (d->fds[i] < 0) return disk_shuffle_refuse(d, "cannot be written");
    uint64_t bytes = d->rows * d->row_bytes[i];
    /* Reserves the space: fails now and not at the end, and keeps neighbours together on disk. */
    if (bytes > 0 && fallocate(d->fds[i], 0, 0, (off_t)bytes) != 0 && errno == ENOSPC)
      return disk_shuffle_refuse(d, "has no space for it");
    if (ftruncate(d->fds[i], (off_t)bytes) != 0)
      return disk_shuffle_refuse(d, "has no space for it");
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
    d->origins[i].copy_of = from->options.path;
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
  STOW_TRY(disk_shuffle_fill(d));
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
