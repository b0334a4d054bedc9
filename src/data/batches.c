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
#include "data/plan.h"
#include "data/prefetch.h"
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
  plan plan;
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
  for (uint32_t i = 0; i < o->file_count; i++)
    if (o->files[i] == NULL) return stow_fail(STOW_ERR_INVALID, "batches: files[%u] is NULL", i);
  return o->device != NULL ? device_check(o->device) : STOW_OK;
}

static stow_status open_files(stow_batches *b, const stow_array_options *const *files) {
  for (uint32_t i = 0; i < b->options.file_count; i++) {
    STOW_TRY(origin_open(&b->origins[i], files[i]));
    b->origins[i].spec.budget_bytes = b->options.memory_bytes / b->options.file_count;
    STOW_TRY(rows_open(&b->first[i], &b->origins[i]));
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

/* Collects the input of the plan. */
static stow_status measure(stow_batches *b) {
  const stow_batches_options *o = &b->options;
  plan *p = &b->plan;
  uint64_t end, bytes, cached = 0;
  *p = (plan){.parts = o->file_count,
              .rows = b->first[0].count,
              .batch_rows = o->batch_rows,
              .shuffle = o->shuffle,
              .readers_wanted = o->readers,
              .foreign = o->memory.allocate != NULL,
              .memory_bytes = o->memory_bytes};
  /* A batch larger than the file needs no more memory than the file. */
  if (p->batch_rows > p->rows) p->batch_rows = p->rows > 0 ? p->rows : 1;
  shard_range(&b->shard, p->rows, &p->first_place, &end);
  p->rank_rows = end - p->first_place;
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
  /* With whole batches only, all ranks have as many as the rank with the fewest rows. */
  p->batch_count = o->drop_last
                       ? p->rows / b->shard.world / o->batch_rows
                       : p->rank_rows / o->batch_rows + (p->rank_rows % o->batch_rows != 0);
  return STOW_OK;
}

/* Inflates a member to disk, once. A shuffle reads at random, but inflating is sequential, so this
 * is needed for a member that does not fit in a window. */
static stow_status spool_deflated(stow_batches *b) {
  plan *p = &b->plan;
  for (uint32_t i = 0; i < p->parts; i++) {
    if (!rows_forward_only(&b->first[i])) continue;
    STOW_TRY(spool_make(&b->spools[i], &b->first[i].from));
    rows_close(&b->first[i]);
    STOW_TRY(spool_origin(&b->spools[i], &b->origins[i]));
    STOW_TRY(rows_open(&b->first[i], &b->origins[i]));
  }
  p->one_reader = false;
  for (uint32_t i = 0; i < p->parts; i++) p->one_reader |= rows_one_reader(&b->first[i]);
  return plan_make(p);
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
  STOW_TRY(prefetch_open(&b->ahead, &b->plan, b->origins, b->first, b->buffers));
  return prefetch_begin(b->ahead, b->options.seed, b->epoch, b->next_batch);
}

static stow_status open_batches(stow_batches *b, const stow_array_options *const *files) {
  b->shard = (shard){b->options.rank, b->options.world};
  STOW_TRY(b->options.world == 0 ? shard_find(&b->shard) : shard_check(&b->shard));
  if (b->options.memory_bytes == 0) b->options.memory_bytes = budget_default();
  STOW_TRY(budget_check(b->options.memory_bytes));
  STOW_TRY(open_files(b, files));
  STOW_TRY(measure(b));
  STOW_TRY(plan_make(&b->plan));
  if (b->plan.shuffle && b->plan.one_reader && b->plan.block_rows > 0) STOW_TRY(spool_deflated(b));
  return start(b);
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
  b->owner = getpid();
  for (uint32_t i = 0; i < STOW_BATCHES_FILES_MAX; i++) b->spools[i].fd = -1;
  stow_status status = open_batches(b, options.files);
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

stow_status stow_batches_set_epoch(stow_batches *b, uint64_t epoch) {
  return go_to(b, epoch, 0);
}

/* ---- state ---- */

static stow_batches_state state_of(const stow_batches *b) {
  return (stow_batches_state){.struct_bytes = sizeof(stow_batches_state),
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
                              .window_rows = b->plan.window_rows};
}

stow_status stow_batches_get_state(stow_batches *b, stow_batches_state *s) {
  stow_batches_state full = state_of(b);
  return growing_write(s, &full, sizeof full, "stow_batches_state");
}

static stow_status check_state(stow_batches *b, const stow_batches_state *s) {
  stow_batches_state now = state_of(b);
  const struct {
    const char *name;
    uint64_t state, here;
  } same[] = {{"rows", s->rows, now.rows},          {"batch_rows", s->batch_rows, now.batch_rows},
              {"rank", s->rank, now.rank},          {"world", s->world, now.world},
              {"shuffle", s->shuffle, now.shuffle}, {"drop_last", s->drop_last, now.drop_last}};
  for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
    if (same[i].state != same[i].here)
      return stow_fail(STOW_ERR_INVALID,
                       "the state has %s %" PRIu64 ", these batches have %" PRIu64
                       ": open them with the same options",
                       same[i].name, same[i].state, same[i].here);
  if (s->next_batch > b->plan.batch_count)
    return stow_fail(STOW_ERR_INVALID, "the state is at batch %" PRIu64 " of %" PRIu64,
                     s->next_batch, b->plan.batch_count);
  return STOW_OK;
}

/* Makes another plan, with other blocks or another window, for the same files. */
static stow_status replan(stow_batches *b, const plan *other) {
  rows first[STOW_BATCHES_FILES_MAX] = {0};
  prefetch *ahead = NULL;
  stow_status status = STOW_OK;
  for (uint32_t i = 0; i < b->plan.parts && status == STOW_OK; i++)
    status = rows_open(&first[i], &b->origins[i]);
  if (status == STOW_OK) {
    prefetch_close(b->ahead); /* frees its windows before the new ones are allocated */
    b->ahead = NULL;
    b->plan = *other;
    status = prefetch_open(&ahead, &b->plan, b->origins, first, b->buffers);
    b->ahead = ahead;
  }
  for (uint32_t i = 0; i < STOW_BATCHES_FILES_MAX; i++)
    if (first[i].opened_from != NULL) rows_close(&first[i]);
  return status;
}

stow_status stow_batches_set_state(stow_batches *b, const stow_batches_state *given) {
  stow_batches_state full = STOW_BATCHES_STATE_INIT;
  const stow_batches_state *s = &full;
  STOW_TRY(check_open(b));
  if (given == NULL) return stow_fail(STOW_ERR_INVALID, "stow_batches_set_state: state is NULL");
  STOW_TRY(growing_read(&full, sizeof full, given, "stow_batches_state"));
  STOW_TRY(check_state(b, s));
  if (s->block_rows != b->plan.block_rows || s->window_rows != b->plan.window_rows) {
    plan other = b->plan;
    STOW_TRY(plan_adopt(&other, s->block_rows, s->window_rows));
    STOW_TRY(replan(b, &other));
  }
  b->options.seed = s->seed;
  return go_to(b, s->epoch, s->next_batch);
}

/* ---- facts ---- */

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
                            .drops_cache = p->drop_cache};
  return growing_write(info, &full, sizeof full, "stow_batches_info");
}

stow_status stow_batches_get_file(stow_batches *b, uint32_t file, stow_array_info *info) {
  if (file >= b->plan.parts)
    return stow_fail(STOW_ERR_INVALID, "no file %u; these batches have %u", file, b->plan.parts);
  return growing_write(info, &b->infos[file], sizeof b->infos[file], "stow_array_info");
}
