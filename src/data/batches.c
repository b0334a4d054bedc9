/* Batches: the public functions: opens and checks the files, makes the plan, tracks the position in
 * an epoch. prefetch reads, plan divides the budget, buffer_pool holds the buffers. */
#include <stowage/batches.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/growing.h"
#include "base/status.h"
#include "data/budget.h"
#include "data/disk_shuffle.h"
#include "data/plan.h"
#include "data/prefetch.h"
#include "data/rank_order.h"
#include "data/shard.h"
#include "data/spool.h"
#include "data/staging.h"
#include "device/device.h"
#include "files/remote.h"

struct stow_batches {
  stow_batches_options options; /* without the caller's pointers */
  origin origins[STOW_BATCHES_FILES_MAX];
  stow_array_info infos[STOW_BATCHES_FILES_MAX];
  spool spools[STOW_BATCHES_FILES_MAX];
  rows first[STOW_BATCHES_FILES_MAX]; /* until prefetch takes them over */
  shard shard;
  rank_order rank_order;
  uint32_t earlier_count; /* worlds that read before this one in this epoch */
  stow_batches_earlier earlier[STOW_BATCHES_EARLIER_MAX];
  plan plan;
  plan own;            /* as made for these options; a state may bring other blocks and windows */
  disk_shuffle *disk;  /* the shuffle on disk; NULL: none */
  char *scratch;       /* its folder; NULL: the default */
  uint64_t group_rows; /* 0: no shuffle on disk */
  uint64_t own_group_rows, group_rows_most, disk_block_rows, disk_bounce_bytes;
  bool disk_chunked;
  plan from_files, from_disk; /* inputs of a plan: to read the files; to read the scratch file */
  buffer_pool *buffers;
  prefetch *ahead;
  staging *copies;                      /* NULL: no device */
  void *unsent[STOW_BATCHES_FILES_MAX]; /* batches that were taken but whose copy failed; the next
                                         * call sends them */
  uint64_t unsent_rows;                 /* 0: none */
  uint64_t epoch, next_batch;
  pid_t owner;
};

/* ---- opening ---- */

static stow_status check_options(const stow_batches_options *o) {
  if (o->files == NULL || o->file_count == 0 || o->file_count > STOW_BATCHES_FILES_MAX)
    return stow_fail(STOW_ERR_INVALID, "file_count %u: must be 1 to %d", o->file_count,
                     STOW_BATCHES_FILES_MAX);
  if (o->batch_rows == 0) return stow_fail(STOW_ERR_INVALID, "batch_rows 0: must be at least 1");
  if (o->memory.allocate != NULL && o->memory.release == NULL)
    return stow_fail(STOW_ERR_INVALID, "memory.allocate without memory.release");
  if (o->memory.allocate != NULL && o->device != NULL)
    return stow_fail(STOW_ERR_INVALID,
                     "memory.allocate and a device cannot be combined; choose one for the buffers");
  if (o->shuffle > STOW_BATCHES_SHUFFLE_DISK)
    return stow_fail(STOW_ERR_INVALID, "shuffle %u: must be 0, 1 (in windows) or 2 (on disk)",
                     o->shuffle);
  for (uint32_t i = 0; i < o->file_count; i++)
    if (o->files[i] == NULL) return stow_fail(STOW_ERR_INVALID, "batches: files[%u] is NULL", i);
  return o->device != NULL ? device_check(o->device) : STOW_OK;
}

static stow_status open_files(stow_batches *b, const stow_array_options *const *files) {
  for (uint32_t i = 0; i < b->options.file_count; i++) {
    STOW_TRY(origin_open(&b->origins[i], files[i]));
    b->origins[i].spec.budget_bytes = b->options.memory_bytes / b->options.file_count;
    STOW_TRY(rows_open(&b->first[i], &b->origins[i]));
    if (b->shard.world == 1) STOW_TRY(origin_sum(&b->origins[i], &b->first[i])); /* reads all */
    const array *a = &b->first[i].from;
    rows_info(&b->first[i], &b->infos[i]);
    if (a->dims == 0)
      return stow_fail(STOW_ERR_INVALID, "%s: a 0-d array has no rows for batches", a->name);
    if (i > 0 && b->first[i].count != b->first[0].count)
      return stow_fail(STOW_ERR_INVALID,
                       "%s has %" PRIu64 " rows, %s has %" PRIu64
                       ": files read together must have the same number of rows",
                       b->first[0].from.name, b->first[0].count, a->name, b->first[i].count);
  }
  return STOW_OK;
}

/* Sets what the plan has of the rank's order. */
static void follow(const stow_batches *b, plan *p, const rank_order *c) {
  p->rank_rows = c->rows;
  p->shares = c->count;
  p->share_rows = c->share_rows;
  /* With whole batches only, all ranks have as many as the rank with the fewest rows. */
  p->batch_count = b->options.drop_last
                       ? c->total / b->shard.world / b->options.batch_rows
                       : c->rows / b->options.batch_rows + (c->rows % b->options.batch_rows != 0);
}

/* Collects the input of the plan. */
static stow_status measure(stow_batches *b) {
  const stow_batches_options *o = &b->options;
  plan *p = &b->plan;
  uint64_t bytes, cached = 0;
  *p = (plan){.parts = o->file_count,
              .rows = b->first[0].count,
              .ranks = b->shard.world,
              .batch_rows = o->batch_rows,
              .shuffle = o->shuffle != 0,
              .readers_wanted = o->readers,
              .foreign = o->memory.allocate != NULL,
              .memory_bytes = o->memory_bytes};
  /* A batch larger than the file needs no more memory than the file. */
  if (p->batch_rows > p->rows) p->batch_rows = p->rows > 0 ? p->rows : 1;
  STOW_TRY(rank_order_make(&b->rank_order, p->rows, &b->shard, NULL, 0));
  follow(b, p, &b->rank_order);
  for (uint32_t i = 0; i < p->parts; i++) {
    const rows *r = &b->first[i];
    p->row_bytes[i] = r->row_bytes;
    p->file_row_bytes += r->file_row_bytes;
    p->scratch_least[i] = rows_scratch_least(r);
    p->one_reader |= rows_one_reader(r);
    if (r->from.chunk_rows > p->chunk_rows) p->chunk_rows = r->from.chunk_rows;
    p->outside_bytes += r->from.held_bytes;
    p->remote |= rows_remote(r);
    if (b->origins[i].options.read == NULL && remote_is(b->origins[i].options.path))
      p->cache_bytes += REMOTE_CACHE_BYTES;
    if (r->from.from->fd >= 0) cached += r->from.bytes;
    if (!checked_mul(&bytes, p->batch_rows, r->row_bytes + sizeof(uint32_t)) ||
        bytes > INT64_MAX / STOW_BATCHES_FILES_MAX)
      return stow_fail(STOW_ERR_OVERFLOW,
                       "%s: the size of a batch of %" PRIu64 " rows exceeds 63 bits", r->from.name,
                       o->batch_rows);
  }
  p->drop_cache = source_too_large_to_cache(cached);
  return STOW_OK;
}

/* A shuffle on disk reads a file of its own, which any number of readers can read in any order. */
static void plan_for_copy(plan *p, const rows *files) {
  p->one_reader = p->remote = false;
  p->chunk_rows = p->outside_bytes = p->cache_bytes = 0;
  for (uint32_t i = 0; i < p->parts; i++)
    p->scratch_least[i] = files[i].cast && files[i].items > 0 ? files[i].from.item_bytes : 0;
  p->drop_cache = source_too_large_to_cache(p->rows * p->file_row_bytes);
}

static disk_shuffle_options disk_options(const stow_batches *b) {
  return (disk_shuffle_options){.parts = b->plan.parts,
                                .origins = b->origins,
                                .folder = b->scratch,
                                .group_rows = b->group_rows,
                                .block_rows = b->disk_block_rows,
                                .chunked = b->disk_chunked,
                                .seed = b->options.seed,
                                .bounce_bytes = b->disk_bounce_bytes,
                                .shared = b->shard.world > 1};
}

/* Plans a shuffle on disk, unless every order is equally likely without one. */
static stow_status plan_disk_shuffle(stow_batches *b) {
  plan *p = &b->plan;
  b->from_files = b->from_disk = *p;
  if (b->options.shuffle != STOW_BATCHES_SHUFFLE_DISK) return STOW_OK;
  plan_for_copy(&b->from_disk, b->first);
  b->disk_block_rows = plan_block(p, false);
  b->disk_bounce_bytes = p->bounce_bytes;
  b->disk_chunked = p->chunk_rows > 1;
  b->group_rows_most = disk_shuffle_group_rows(p->memory_bytes, b->first, p->parts,
                                               b->disk_chunked ? b->disk_block_rows : 1);
  if (plan_uniform(p)) return STOW_OK;
  if (b->group_rows_most == 0)
    return stow_fail(
        STOW_ERR_BUDGET,
        "%s: one row does not fit in the budget for a shuffle on disk; give more memory",
        b->first[0].from.name);
  b->group_rows = b->group_rows_most;
  disk_shuffle_options options = disk_options(b);
  disk_shuffle_layout layout = disk_shuffle_lay_out(&options, b->first);
  b->from_disk.places_per_row = disk_shuffle_places(&layout, plan_share_block(&b->from_disk, true));
  *p = b->from_disk;
  return plan_make(p);
}

static stow_status make_disk_shuffle(stow_batches *b, rows *first) {
  if (b->group_rows == 0) return STOW_OK;
  disk_shuffle_options options = disk_options(b);
  return disk_shuffle_open(&b->disk, &options, first);
}

/* Copies a file to disk, once, and reads the copy from then on. */
static stow_status spool_one(stow_batches *b, uint32_t i) {
  STOW_TRY(spool_make(&b->spools[i], &b->first[i].from));
  rows_close(&b->first[i]);
  STOW_TRY(spool_origin(&b->spools[i], &b->origins[i]));
  return rows_open(&b->first[i], &b->origins[i]);
}

/* Inflates a member to disk. A shuffle reads at random, but inflating is sequential, so this is
 * needed for a member that does not fit in a window. */
static stow_status spool_deflated(stow_batches *b) {
  plan *p = &b->plan;
  for (uint32_t i = 0; i < p->parts; i++)
    if (rows_forward_only(&b->first[i])) STOW_TRY(spool_one(b, i));
  p->one_reader = false;
  for (uint32_t i = 0; i < p->parts; i++) p->one_reader |= rows_one_reader(&b->first[i]);
  b->from_files.one_reader = p->one_reader;
  return plan_make(p);
}

#define SPOOLED_MOST (UINT64_C(64) << 20)

/* Copies small files whose reads are slow to disk where ranks share them in small blocks: from a
 * server each block would be a request, and in HDF5 its chunk would be unpacked for each. */
static stow_status spool_shared(stow_batches *b) {
  if (b->shard.world < 2 || b->options.shuffle == 0) return STOW_OK;
  for (uint32_t i = 0; i < b->options.file_count; i++) {
    const rows *r = &b->first[i];
    const array *a = &r->from;
    bool slow = a->held_bytes > 0 || (a->from->fd < 0 && a->from->memory == NULL);
    if (slow && a->bytes <= SPOOLED_MOST && r->file_row_bytes < PLAN_LARGE_ROW && spool_can(a))
      STOW_TRY(spool_one(b, i));
  }
  return STOW_OK;
}

static stow_status start(stow_batches *b) {
  const plan *p = &b->plan;
  buffer_pool_options buffers = {.kinds = p->parts,
                                 .planned = plan_buffers(p),
                                 .memory = b->options.memory,
                                 .singly = p->foreign};
  for (uint32_t i = 0; i < p->parts; i++) {
    buffers.bytes[i] = p->batch_rows * p->row_bytes[i];
    buffers.room[i] = plan_room(p, i);
  }
  if (b->options.device != NULL) {
    buffers.memory = staging_memory(b->options.device);
    STOW_TRY(staging_open(&b->copies, b->options.device, p->parts));
  }
  STOW_TRY(buffer_pool_open(&b->buffers, &buffers));
  STOW_TRY(make_disk_shuffle(b, b->first));
  b->own = b->plan;
  b->own_group_rows = b->group_rows;
  rank_order_divide(&b->rank_order, p->window_rows);
  STOW_TRY(prefetch_open(&b->ahead, &b->plan, &b->rank_order, b->disk, b->origins, b->first,
                         b->buffers));
  return prefetch_begin(b->ahead, b->options.seed, b->epoch, b->next_batch);
}

static stow_status open_batches(stow_batches *b, const stow_array_options *const *files) {
  b->shard = (shard){b->options.rank, b->options.world};
  STOW_TRY(b->options.world == 0 ? shard_find(&b->shard) : shard_check(&b->shard));
  if (b->options.memory_bytes == 0) b->options.memory_bytes = budget_default();
  STOW_TRY(budget_check(b->options.memory_bytes));
  STOW_TRY(open_files(b, files));
  STOW_TRY(spool_shared(b));
  STOW_TRY(measure(b));
  STOW_TRY(plan_make(&b->plan));
  STOW_TRY(plan_disk_shuffle(b));
  if (b->plan.shuffle && b->plan.one_reader && b->plan.block_rows > 0) STOW_TRY(spool_deflated(b));
  return start(b);
}

static stow_status keep_folder(stow_batches *b, const char *folder) {
  if (folder == NULL || folder[0] == '\0') return STOW_OK;
  size_t bytes = strlen(folder) + 1;
  b->scratch = malloc(bytes);
  if (b->scratch == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for batches");
  memcpy(b->scratch, folder, bytes);
  return STOW_OK;
}

stow_status stow_batches_open(stow_batches **batches, const stow_batches_options *given) {
  if (batches == NULL) return stow_fail(STOW_ERR_INVALID, "stow_batches_open: batches is NULL");
  *batches = NULL;
  stow_batches_options options = STOW_BATCHES_OPTIONS_INIT;
  STOW_TRY(growing_read(&options, sizeof options, given, "stow_batches_options"));
  STOW_TRY(check_options(&options));
  stow_batches *b = calloc(1, sizeof *b);
  if (b == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for batches");
  b->options = options;
  b->options.files = NULL;
  b->options.scratch = NULL;
  b->owner = getpid();
  for (uint32_t i = 0; i < STOW_BATCHES_FILES_MAX; i++) b->spools[i].fd = -1;
  stow_status status = keep_folder(b, options.scratch);
  if (status == STOW_OK) status = open_batches(b, options.files);
  if (status == STOW_OK)
    *batches = b;
  else
    stow_batches_close(b);
  return status;
}

static void put_unsent(stow_batches *b) {
  for (uint32_t i = 0; b->unsent_rows > 0 && i < b->plan.parts; i++) buffer_pool_put(b->unsent[i]);
  b->unsent_rows = 0;
}

void stow_batches_close(stow_batches *b) {
  if (b == NULL) return;
  /* In a forked child the readers do not exist: they cannot be joined, and their locks may be
   * held. */
  if (b->owner != getpid()) return;
  put_unsent(b);
  staging_close(b->copies);
  prefetch_close(b->ahead);
  disk_shuffle_close(b->disk);
  rank_order_free(&b->rank_order);
  free(b->scratch);
  buffer_pool_close(b->buffers);
  for (uint32_t i = 0; i < STOW_BATCHES_FILES_MAX; i++) {
    if (b->first[i].opened_from != NULL) rows_close(&b->first[i]);
    spool_close(&b->spools[i]);
    origin_close(&b->origins[i]);
  }
  free(b);
}

/* ---- batches ---- */

static stow_status check_open(const stow_batches *b) {
  if (b->ahead == NULL)
    return stow_fail(STOW_ERR_STATE, "loading a state failed halfway; open the batches again");
  if (b->owner == getpid()) return STOW_OK;
  return stow_fail(STOW_ERR_STATE,
                   "these batches were opened in process %ld, and its readers do not exist in this "
                   "one (%ld); open them again here",
                   (long)b->owner, (long)getpid());
}

stow_status stow_batches_wait(stow_batches *b, uint64_t wait_us) {
  STOW_TRY(check_open(b));
  if (b->unsent_rows > 0 || b->next_batch >= b->plan.batch_count ||
      prefetch_wait(b->ahead, wait_us))
    return STOW_OK;
  return stow_fail(STOW_ERR_NOT_READY, "the next batch is still being read");
}

stow_status stow_batches_next(stow_batches *b, void **data, uint64_t *count) {
  *count = 0;
  STOW_TRY(check_open(b));
  if (b->unsent_rows > 0) {
    memcpy(data, b->unsent, b->plan.parts * sizeof *data);
    *count = b->unsent_rows;
    b->unsent_rows = 0;
    return STOW_OK;
  }
  if (b->next_batch >= b->plan.batch_count) return prefetch_check(b->ahead);
  STOW_TRY(prefetch_take(b->ahead, data));
  uint64_t done = b->next_batch++ * b->plan.batch_rows, left = b->plan.rank_rows - done;
  *count = left < b->plan.batch_rows ? left : b->plan.batch_rows;
  return STOW_OK;
}

stow_status stow_batches_send(stow_batches *b, const uint64_t *to, stow_stream stream,
                              uint64_t *count) {
  uint64_t bytes[STOW_BATCHES_FILES_MAX], taken;
  void *data[STOW_BATCHES_FILES_MAX];
  *count = 0;
  if (b->copies == NULL)
    return stow_fail(STOW_ERR_INVALID,
                     "these batches were opened without a device to send them to");
  STOW_TRY(check_open(b));
  STOW_TRY(staging_wait(b->copies)); /* the buffers of its copies may be the next to be filled */
  stow_status status = stow_batches_next(b, data, &taken);
  if (status == STOW_ERR_HOST_MEMORY) { /* batches in transit may hold all the memory there is */
    STOW_TRY(staging_finish(b->copies));
    status = stow_batches_next(b, data, &taken);
  }
  if (status != STOW_OK || taken == 0) return status;
  for (uint32_t i = 0; i < b->plan.parts; i++) bytes[i] = taken * b->plan.row_bytes[i];
  status = staging_send(b->copies, data, bytes, to, stream);
  if (status == STOW_OK) {
    *count = taken;
  } else {
    memcpy(b->unsent, data, sizeof data);
    b->unsent_rows = taken;
  }
  return status;
}

stow_status stow_batches_release(void *data) {
  if (data == NULL) return STOW_OK;
  return buffer_pool_put(data);
}

static stow_status go_to(stow_batches *b, uint64_t epoch, uint64_t batch) {
  STOW_TRY(check_open(b));
  put_unsent(b);
  STOW_TRY(prefetch_begin(b->ahead, b->options.seed, epoch, batch));
  b->epoch = epoch;
  b->next_batch = batch;
  return STOW_OK;
}

/* ---- state ---- */

static stow_batches_state state_of(const stow_batches *b) {
  stow_batches_state s = {.struct_bytes = sizeof(stow_batches_state),
                          .rows = b->plan.rows,
                          .batch_rows = b->options.batch_rows,
                          .seed = b->options.seed,
                          .epoch = b->epoch,
                          .next_batch = b->next_batch - (b->unsent_rows > 0),
                          .rank = b->shard.rank,
                          .world = b->shard.world,
                          .shuffle = b->options.shuffle,
                          .drop_last = b->options.drop_last,
                          .block_rows = b->plan.block_rows,
                          .window_rows = b->plan.window_rows,
                          .deck_rows = b->group_rows,
                          .earlier_count = b->earlier_count};
  memcpy(s.earlier, b->earlier, sizeof s.earlier);
  return s;
}

stow_status stow_batches_get_state(stow_batches *b, stow_batches_state *s) {
  stow_batches_state full = state_of(b);
  return growing_write(s, &full, sizeof full, "stow_batches_state");
}

static stow_status check_state(stow_batches *b, const stow_batches_state *s) {
  stow_batches_state now = state_of(b);
  bool same_world = s->world == now.world;
  const struct {
    const char *name;
    uint64_t state, here;
  } same[] = {{"rows", s->rows, now.rows},
              {"batch_rows", same_world ? s->batch_rows : now.batch_rows, now.batch_rows},
              {"rank", same_world ? s->rank : now.rank, now.rank},
              {"shuffle", s->shuffle, now.shuffle},
              {"drop_last", s->drop_last, now.drop_last}};
  for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
    if (same[i].state != same[i].here)
      return stow_fail(STOW_ERR_INVALID,
                       "the state has %s %" PRIu64 ", these batches have %" PRIu64
                       ": open them with the same options",
                       same[i].name, same[i].state, same[i].here);
  if (s->earlier_count + !same_world > STOW_BATCHES_EARLIER_MAX)
    return stow_fail(STOW_ERR_INVALID,
                     "the state continues %" PRIu64 " other worlds in one epoch, at most %d are "
                     "possible: begin the next epoch",
                     s->earlier_count + !same_world, STOW_BATCHES_EARLIER_MAX);
  if (s->deck_rows > 0 && s->shuffle != STOW_BATCHES_SHUFFLE_DISK)
    return stow_fail(STOW_ERR_INVALID,
                     "the state has a shuffle on disk of %" PRIu64
                     " rows, but does not shuffle on disk",
                     s->deck_rows);
  if (s->deck_rows > b->group_rows_most)
    return stow_fail(STOW_ERR_BUDGET,
                     "the state shuffled %" PRIu64
                     " rows at a time on disk, the budget allows %" PRIu64 ": give more memory",
                     s->deck_rows, b->group_rows_most);
  return STOW_OK;
}

/* What set_state and set_epoch change together. */
typedef struct change {
  plan plan;
  rank_order rank_order;
  uint64_t group_rows, seed;
} change;

/* Reads in another order, with other blocks, windows or scratch file. Takes the order over. */
static stow_status replan(stow_batches *b, change *to) {
  rows first[STOW_BATCHES_FILES_MAX] = {0};
  stow_status status = STOW_OK;
  bool rebuild =
      to->group_rows != b->group_rows || (b->disk != NULL && to->seed != b->options.seed);
  bool files = rebuild || to->group_rows == 0;
  for (uint32_t i = 0; files && i < b->plan.parts && status == STOW_OK; i++)
    status = rows_open(&first[i], &b->origins[i]);
  if (status == STOW_OK) {
    prefetch_close(b->ahead); /* frees its windows before the new ones are allocated */
    b->ahead = NULL;
    b->plan = to->plan;
    rank_order_free(&b->rank_order);
    b->rank_order = to->rank_order;
    to->rank_order = (rank_order){0};
    rank_order_divide(&b->rank_order, b->plan.window_rows);
    b->group_rows = to->group_rows;
    b->options.seed = to->seed;
    if (rebuild) {
      disk_shuffle_close(b->disk);
      b->disk = NULL;
      status = make_disk_shuffle(b, first);
    }
  }
  if (status == STOW_OK)
    status =
        prefetch_open(&b->ahead, &b->plan, &b->rank_order, b->disk, b->origins, first, b->buffers);
  for (uint32_t i = 0; i < STOW_BATCHES_FILES_MAX; i++)
    if (first[i].opened_from != NULL) rows_close(&first[i]);
  return status;
}

/* Fills in the order and the plan of a state, after `earlier`. */
static stow_status plan_state(stow_batches *b, change *to, const stow_batches_state *s,
                              const stow_batches_earlier *earlier, uint32_t earlier_count) {
  STOW_TRY(rank_order_make(&to->rank_order, b->plan.rows, &b->shard, earlier, earlier_count));
  follow(b, &to->plan, &to->rank_order);
  uint64_t batch_rows = earlier_count > 0 ? earlier[0].batch_rows : s->batch_rows;
  if (batch_rows > b->plan.rows) batch_rows = b->plan.rows > 0 ? b->plan.rows : 1;
  return plan_adopt(&to->plan, s->block_rows, s->window_rows, batch_rows);
}

stow_status stow_batches_set_state(stow_batches *b, const stow_batches_state *given) {
  stow_batches_state full = STOW_BATCHES_STATE_INIT;
  const stow_batches_state *s = &full;
  stow_batches_earlier earlier[STOW_BATCHES_EARLIER_MAX] = {{0}};
  STOW_TRY(check_open(b));
  if (given == NULL) return stow_fail(STOW_ERR_INVALID, "stow_batches_set_state: state is NULL");
  STOW_TRY(growing_read(&full, sizeof full, given, "stow_batches_state"));
  STOW_TRY(check_state(b, s));
  uint32_t count = (uint32_t)s->earlier_count;
  memcpy(earlier, s->earlier, count * sizeof *earlier);
  bool same_world = s->world == b->shard.world;
  if (!same_world)
    earlier[count++] = (stow_batches_earlier){s->world, s->batch_rows, s->next_batch};
  change to = {.plan = s->deck_rows > 0 ? b->from_disk : b->from_files,
               .group_rows = s->deck_rows,
               .seed = s->seed};
  stow_status status = plan_state(b, &to, s, earlier, count);
  uint64_t next = same_world ? s->next_batch : 0;
  if (status == STOW_OK && next > to.plan.batch_count)
    status = stow_fail(STOW_ERR_INVALID, "the state is at batch %" PRIu64 " of %" PRIu64, next,
                       to.plan.batch_count);
  bool as_now = count == 0 && b->earlier_count == 0 && s->block_rows == b->plan.block_rows &&
                s->window_rows == b->plan.window_rows && s->deck_rows == b->group_rows &&
                (b->disk == NULL || s->seed == b->options.seed);
  if (status == STOW_OK && !as_now) {
    put_unsent(b);
    status = replan(b, &to);
  }
  rank_order_free(&to.rank_order);
  STOW_TRY(status);
  b->options.seed = s->seed;
  b->earlier_count = count;
  memcpy(b->earlier, earlier, sizeof earlier);
  return go_to(b, s->epoch, next);
}

stow_status stow_batches_set_epoch(stow_batches *b, uint64_t epoch) {
  STOW_TRY(check_open(b));
  /* Ranks that loaded a state of an earlier version have its blocks, of a whole share perhaps. */
  bool old = b->shard.world > 1 && b->plan.block_rows != b->own.block_rows;
  if (b->earlier_count > 0 || old) { /* a new epoch is this world's alone */
    change to = {.plan = b->own, .group_rows = b->own_group_rows, .seed = b->options.seed};
    STOW_TRY(rank_order_make(&to.rank_order, b->plan.rows, &b->shard, NULL, 0));
    put_unsent(b);
    stow_status status = replan(b, &to);
    rank_order_free(&to.rank_order);
    STOW_TRY(status);
    b->earlier_count = 0;
    memset(b->earlier, 0, sizeof b->earlier);
  }
  return go_to(b, epoch, 0);
}

/* ---- facts ---- */

enum { CLASSES = 1000, BATCH = 256, OFFSETS = 32 }; /* of shuffle_quality */

/* Returns the probability that none of a batch's rows has a property that a row has with
 * probability `each`. */
static double none_of_batch(double each) {
  double none = 1;
  for (int i = 0; i < BATCH; i++) none *= 1 - (each < 1 ? each : 1);
  return none;
}

/* Returns how many runs of neighbours of one class a batch has rows of, on average. Its window has
 * `places` runs of neighbours, each `width` classes long, which begin anywhere in a class. */
static double runs_in_batch(double places, double width) {
  double runs = 0, all = width * places, of_class = 1 - none_of_batch(1 / all);
  for (int i = 0; i < OFFSETS; i++) {
    double first = 1 - (i + 0.5) / OFFSETS; /* what is left of the class where it begins */
    if (first > width) first = width;
    double whole = (double)(uint64_t)(width - first), last = width - first - whole;
    runs += 1 - none_of_batch(first / all) + whole * of_class + 1 - none_of_batch(last / all);
  }
  return places * runs / OFFSETS;
}

/* Returns how many classes that many rows of different runs have, on average. */
static double classes_of(double runs) {
  double missing = 1, whole = (double)(int)runs;
  for (int i = 0; i < (int)runs; i++) missing *= 1 - 1.0 / CLASSES;
  return CLASSES * (1 - missing * (1 - (runs - whole) / CLASSES));
}

static double quality_of(const stow_batches *b) {
  const plan *p = &b->plan;
  if (!p->shuffle) return 0;
  if (plan_uniform(p)) return 1;
  /* A share that is smaller than a window is all that its batches mix. */
  uint64_t held = p->share_rows < p->window_rows ? p->share_rows : p->window_rows;
  uint64_t run_rows = p->block_rows;
  double places = (double)held / (double)p->block_rows;
  if (b->disk != NULL) {
    disk_shuffle_layout layout = disk_shuffle_layout_of(b->disk);
    places = (double)held * disk_shuffle_places(&layout, p->block_rows);
    run_rows = layout.run_rows;
  }
  double width = (double)run_rows * CLASSES / (double)p->rows;
  double quality = classes_of(runs_in_batch(places, width)) / classes_of(BATCH);
  return quality < 1 ? quality : 1;
}

stow_status stow_batches_get_info(stow_batches *b, stow_batches_info *info) {
  const plan *p = &b->plan;
  stow_batches_info full = {.struct_bytes = sizeof full,
                            .rows = p->rows,
                            .rank_rows = p->rank_rows,
                            .batch_count = p->batch_count,
                            .rank = b->shard.rank,
                            .world = b->shard.world,
                            .readers = p->readers,
                            .memory_bytes = p->memory_bytes,
                            .planned_bytes = p->planned_bytes,
                            .block_rows = p->block_rows,
                            .window_rows = p->window_rows,
                            .drops_cache = p->drop_cache,
                            .scratch_bytes = b->disk != NULL ? disk_shuffle_bytes(b->disk) : 0,
                            .shuffle_quality = quality_of(b)};
  return growing_write(info, &full, sizeof full, "stow_batches_info");
}

stow_status stow_batches_get_file(stow_batches *b, uint32_t file, stow_array_info *info) {
  if (file >= b->plan.parts)
    return stow_fail(STOW_ERR_INVALID, "no file %u; these batches have %u", file, b->plan.parts);
  return growing_write(info, &b->infos[file], sizeof b->infos[file], "stow_array_info");
}
