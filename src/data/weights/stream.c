/* Stream: threads take chunks of tensors, convert them and write them (weights.h).
 *
 * A chunk is at most chunk_values values: whole rows where the conversion needs rows, otherwise a
 * multiple of WEIGHTS_BLOCK. Threads take the next chunk of the next tensor under one lock; reads,
 * conversion and writes run without it. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/crc32.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/weights/text.h"
#include "data/weights/walk.h"
#include "data/workers.h"

#define CHUNK_MOST UINT64_C(262144) /* 1 MiB of float32: a chunk's buffers stay in the caches */

bool weights_by_rows(const weights_job *j, const weights_item *item) {
  return (j->change != NULL && item->action != ACTION_COPY) || item->pruned ||
         item->action >= ACTION_INT8;
}

/* Returns the least that a chunk has, and the name of the tensor that decides it. */
static uint64_t least_values(const weights_job *j, const char **name) {
  uint64_t row = WEIGHTS_BLOCK;
  *name = "";
  for (size_t i = 0; i < j->r->item_count; i++)
    if (weights_by_rows(j, &j->r->items[i]) && j->r->items[i].row > row) {
      row = j->r->items[i].row;
      *name = j->r->items[i].from.facts->name;
    }
  return row;
}

void weights_take_chunks(weights_job *j, size_t bytes_per_value, uint64_t chunk_values) {
  const char *name;
  uint64_t all = j->b->bytes / 2 / bytes_per_value, least = least_values(j, &name);
  if (chunk_values < least || chunk_values > all) return;
  if (chunk_values > CHUNK_MOST && chunk_values != least) return; /* none that was ever written */
  j->chunk_values = chunk_values;
  if (j->threads > all / chunk_values) j->threads = (unsigned)(all / chunk_values);
}

stow_status weights_size_chunks(weights_job *j, size_t bytes_per_value) {
  const char *name;
  uint64_t row = least_values(j, &name);
  /* Half of the budget is for the lists of tensors, headers and what the system keeps. */
  uint64_t each = j->b->bytes / 2 / bytes_per_value;
  if (each < row) {
    char have[STOW_SIZE_TEXT_MAX], need[STOW_SIZE_TEXT_MAX];
    return stow_fail(STOW_ERR_BUDGET,
                     "%s: a row of %" PRIu64 " values needs a budget of %s, not %s; "
                     "raise --memory",
                     name, row, stow_size_format(need, 2 * row * bytes_per_value),
                     stow_size_format(have, j->b->bytes));
  }
  j->threads = j->b->threads > 0 ? j->b->threads : 1;
  for (size_t i = 0; i < j->r->in.file_count; i++)
    if (j->r->in.files[i].from.fd < 0) j->threads = 1; /* a server's bytes come one by one */
  while (j->threads > 1 && each / j->threads < row) j->threads--;
  j->chunk_values = each / j->threads;
  if (j->chunk_values > CHUNK_MOST) j->chunk_values = CHUNK_MOST;
  if (j->chunk_values < row) j->chunk_values = row;
  j->chunk_values -= j->chunk_values % WEIGHTS_BLOCK != 0 && j->chunk_values > WEIGHTS_BLOCK &&
                             j->chunk_values - j->chunk_values % WEIGHTS_BLOCK >= row
                         ? j->chunk_values % WEIGHTS_BLOCK
                         : 0;
  return STOW_OK;
}

/* ---- walking over chunks ---- */

typedef struct walk {
  weights_job *j;
  const walk_task *task;
  pthread_mutex_t lock;
  size_t item;    /* guarded by lock, as are the next three */
  uint64_t first; /* the next value of that item */
  uint64_t done_values;
  uint64_t *left; /* values of each item that are not done */
  uint64_t total_values;
  atomic_bool stop;
} walk;

uint64_t weights_chunk_length(const weights_job *j, const weights_item *item) {
  if (!weights_by_rows(j, item)) return j->chunk_values - j->chunk_values % WEIGHTS_BLOCK;
  return item->row > 0 ? j->chunk_values / item->row * item->row : j->chunk_values;
}

/* Takes the next chunk; *count is 0 at the end. */
static stow_status next_chunk(walk *w, size_t *item, uint64_t *first, size_t *count) {
  weights_job *j = w->j;
  stow_status status = STOW_OK;
  pthread_mutex_lock(&w->lock);
  *count = 0;
  for (; w->item < w->task->end && status == STOW_OK; w->item++, w->first = 0) {
    const weights_item *it = &j->r->items[w->item];
    uint64_t values = it->from.facts->count;
    if (w->first >= values || (w->first == 0 && !w->task->wanted(j, w->item))) continue;
    if (w->first == 0 && w->task->begin != NULL) status = w->task->begin(j, w->item);
    if (status != STOW_OK) {
      w->item = w->task->end; /* no other thread begins it again */
      break;
    }
    uint64_t length = weights_chunk_length(j, it), rest = values - w->first;
    *item = w->item;
    *first = w->first;
    *count = (size_t)(rest < length ? rest : length);
    w->first += *count;
    break;
  }
  pthread_mutex_unlock(&w->lock);
  return status;
}

static stow_status finish_chunk(walk *w, size_t item, size_t count, unsigned member) {
  stow_status status = STOW_OK;
  pthread_mutex_lock(&w->lock);
  w->left[item] -= count;
  w->done_values += count;
  if (w->left[item] == 0 && w->task->end_item != NULL) status = w->task->end_item(w->j, item);
  uint64_t done = w->done_values;
  pthread_mutex_unlock(&w->lock);
  if (status == STOW_OK && member == 0)
    status = budget_report(w->j->b, done * 2, w->total_values * 2);
  return status;
}

static stow_status walk_member(void *context, unsigned member) {
  walk *w = context;
  weights_job *j = w->j;
  size_t item = 0, count = 0, file = SIZE_MAX;
  uint64_t first = 0;
  source mine = {.fd = -1};
  uint8_t *bytes = malloc(j->chunk_values * 8);
  stow_status status =
      bytes != NULL ? STOW_OK : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a chunk");
  while (status == STOW_OK && !atomic_load(&w->stop)) {
    status = next_chunk(w, &item, &first, &count);
    if (status != STOW_OK || count == 0) break;
    const weights_item *it = &j->r->items[item];
    const tensor *t = it->from.facts;
    if (it->from.file != file) {
      file = it->from.file;
      mine = j->r->in.files[file].from; /* its own place in the file, the same descriptor */
    }
    uint64_t at = t->offset + tensor_type_bytes(t->stored, first);
    size_t stored = (size_t)tensor_type_bytes(t->stored, count);
    source_expect(&mine, at, stored);
    status = source_read(&mine, at, bytes, stored);
    if (status == STOW_OK) status = w->task->run(j, member, item, first, count, bytes);
    if (status == STOW_OK) status = finish_chunk(w, item, count, member);
  }
  free(bytes);
  if (status != STOW_OK) atomic_store(&w->stop, true);
  return status;
}

stow_status weights_walk(weights_job *j, const walk_task *task) {
  walk w = {.j = j, .task = task, .lock = PTHREAD_MUTEX_INITIALIZER, .item = task->start};
  w.left = calloc(j->r->item_count + 1, sizeof *w.left);
  if (w.left == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  for (size_t i = task->start; i < task->end; i++) {
    w.left[i] = j->r->items[i].from.facts->count;
    if (task->wanted(j, i)) w.total_values += w.left[i];
  }
  stow_status status = workers_run(j->threads, walk_member, &w);
  free(w.left);
  pthread_mutex_destroy(&w.lock);
  return status;
}

/* ---- converting ---- */

typedef struct stream {
  weights_job *j;
  pthread_mutex_t lock; /* guards the items' results */
  chunk_buffers buffers[WORKERS_MAX];
} stream;

uint64_t weights_chunk_digest(const void *bytes, size_t count, uint32_t part, uint64_t at) {
  uint64_t place = at << 8 | (part & 0xff);
  return hash_u64((uint64_t)crc32_add(0, bytes, count) << 32 | (uint32_t)count, place);
}

/* The position of a chunk in one of an item's parts. */
typedef struct span {
  uint64_t at;
  size_t bytes;
} span;

/* Returns where a chunk's kept values begin among those of its item: starts[0] is the chunk's own.
 */
static const uint64_t *starts_of(const weights_job *j, const weights_item *item, uint64_t first) {
  return &item->starts[first / weights_chunk_length(j, item)];
}

static span span_of(const weights_job *j, const weights_item *item, const weights_part *part,
                    uint64_t first, size_t count) {
  const tensor *to = &part->facts;
  const uint64_t *starts;
  uint64_t row_bytes;
  switch (part->role) {
  case ROLE_ROWS:
    row_bytes = to->bytes / item->from.facts->shape[0];
    return (span){row_bytes * (first / item->row), (size_t)(row_bytes * (count / item->row))};
  case ROLE_KEPT:
    starts = starts_of(j, item, first);
    return (span){tensor_type_bytes(to->stored, starts[0]),
                  (size_t)tensor_type_bytes(to->stored, starts[1] - starts[0])};
  case ROLE_SHAPE: return (span){0, first == 0 ? (size_t)to->bytes : 0};
  default:
    return (span){tensor_type_bytes(to->stored, first),
                  (size_t)tensor_type_bytes(to->stored, count)};
  }
}

static stow_status write_part(weights_job *j, const weights_item *item, uint32_t which,
                              uint64_t first, size_t count, const void *bytes, uint64_t *digest) {
  const weights_part *part = &j->r->parts[item->first_part + which];
  span s = span_of(j, item, part, first, count);
  if (s.bytes == 0) return STOW_OK;
  *digest += weights_chunk_digest(bytes, s.bytes, which, s.at);
  if (j->writers == NULL) return STOW_OK;
  return writer_put(&j->writers[part->file], part->facts.offset + s.at, bytes, s.bytes);
}

static stow_status write_chunk(weights_job *j, const weights_item *item, uint64_t first,
                               size_t count, const chunk_buffers *c, const void *main,
                               uint64_t *digest) {
  uint8_t shape[16];
  for (int i = 0; i < 16; i++)
    shape[i] = (uint8_t)(item->from.facts->shape[i / 8] >> (8 * (i % 8)));
  STOW_TRY(write_part(j, item, 0, first, count, main, digest));
  if (item->part_count > 1) STOW_TRY(write_part(j, item, 1, first, count, c->codes, digest));
  if (item->part_count > 3) STOW_TRY(write_part(j, item, 2, first, count, c->offsets, digest));
  if (item->part_count > 2)
    STOW_TRY(write_part(j, item, item->part_count - 1, first, count, shape, digest));
  return STOW_OK;
}

static void add_error(quant_error *to, const quant_error *from) {
  to->sum_squares += from->sum_squares;
  to->sum_error_squares += from->sum_error_squares;
  if (from->max_error > to->max_error) to->max_error = from->max_error;
  to->values += from->values;
  to->clipped += from->clipped;
  to->not_finite += from->not_finite;
}

/* Returns what helps if values of a tensor are too large for its new type. */
static const char *wider(const weights_job *j, const weights_item *item) {
  bool cast = item->action == ACTION_CAST || item->action >= ACTION_BITMASK;
  if (j->change != NULL)
    return item->to == TENSOR_F32 || item->to == TENSOR_F64
               ? "use "
               : "write the base in float32 first (shrink --dtype f32), or use ";
  if (cast && item->to == TENSOR_F16 && j->r->in.format != MODEL_GGUF)
    return "use --dtype bf16 or f32, leave the tensor as it is with --exclude, or use ";
  if (cast && item->to != TENSOR_F32 && item->from.facts->stored != TENSOR_F64)
    return "use --dtype f32, leave the tensor as it is with --exclude, or use ";
  return "leave the tensor as it is with --exclude, or use ";
}

static stow_status refuse_not_finite(const weights_job *j, const weights_item *item) {
  const char *name = item->from.facts->name;
  if (j->o->allow_nan || (item->error.not_finite == 0 && item->error.clipped == 0)) return STOW_OK;
  if (item->error.clipped == 0 && item->from.facts->dims == 0)
    return STOW_OK; /* a limit, as -inf */
  if (item->error.clipped > 0)
    return stow_fail(STOW_ERR_INVALID,
                     "tensor %.200s: %" PRIu64 " value%s too large for %s and would %s; "
                     "%s--allow-nan to write %s anyway",
                     name, item->error.clipped, item->error.clipped == 1 ? " is" : "s are",
                     weights_becomes(item),
                     item->action == ACTION_BLOCKS ? "be lost" : "become infinite", wider(j, item),
                     item->error.clipped == 1 ? "it" : "them");
  return stow_fail(STOW_ERR_INVALID,
                   "tensor %.200s: %" PRIu64 " value%s NaN or infinite: a damaged or diverged "
                   "model; use --allow-nan to write it anyway",
                   name, item->error.not_finite, item->error.not_finite == 1 ? " is" : "s are");
}

static stow_status convert_chunk(weights_job *j, unsigned member, size_t index, uint64_t first,
                                 size_t count, const uint8_t *bytes) {
  stream *s = j->user;
  weights_item *item = &j->r->items[index];
  chunk_buffers *c = &s->buffers[member];
  quant_error error = {0};
  uint64_t zeros = 0, digest = 0;
  const void *main = bytes;
  if (j->change != NULL && item->action != ACTION_COPY) {
    c->bytes = bytes;
    STOW_TRY(j->change(j, index, first, count, c, &error));
    main = c->out;
  } else if (item->action != ACTION_COPY) {
    c->bytes = bytes;
    STOW_TRY(weights_encode(j, item, first, count, c, &error, &zeros));
    main = c->out;
  }
  if (item->action == ACTION_BITMASK)
    for (size_t i = 0; i < count / item->row; i++) c->offsets[i] += *starts_of(j, item, first);
  STOW_TRY(write_chunk(j, item, first, count, c, main, &digest));
  pthread_mutex_lock(&s->lock);
  add_error(&item->error, &error);
  item->zeros += zeros;
  item->digest += digest;
  stow_status status = refuse_not_finite(j, item);
  pthread_mutex_unlock(&s->lock);
  return status;
}

/* Returns whether an item is still to be done. A dry run does not read tensors that would only be
 * copied. */
static bool not_done(const weights_job *j, size_t item) {
  const weights_item *it = &j->r->items[item];
  return !it->done && !(j->writers == NULL && it->action == ACTION_COPY);
}

static stow_status item_done(weights_job *j, size_t item) {
  if (j->end != NULL) j->end(j, item);
  j->r->items[item].done = true;
  return j->journal != NULL ? journal_add(j->journal, j, item) : STOW_OK;
}

static stow_status item_begins(weights_job *j, size_t item) {
  return j->begin != NULL ? j->begin(j, item) : STOW_OK;
}

stow_status weights_make_buffers(const weights_job *j, chunk_buffers *c) {
  size_t values = (size_t)j->chunk_values;
  *c = (chunk_buffers){.before = aligned_alloc(64, values * 4),
                       .after = aligned_alloc(64, values * 4),
                       .out = aligned_alloc(64, values * 8),
                       .codes = aligned_alloc(64, values * 8)};
  if (c->before != NULL && c->after != NULL && c->out != NULL && c->codes != NULL) return STOW_OK;
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for chunks of %zu values", values);
}

void weights_free_buffers(chunk_buffers *c) {
  free(c->before);
  free(c->after);
  free(c->out);
  free(c->codes);
}

stow_status weights_stream(weights_job *j) {
  stream s = {.j = j, .lock = PTHREAD_MUTEX_INITIALIZER};
  stow_status status = STOW_OK;
  for (unsigned i = 0; i < j->threads && status == STOW_OK; i++)
    status = weights_make_buffers(j, &s.buffers[i]);
  walk_task task = {.end = j->r->item_count,
                    .wanted = not_done,
                    .begin = item_begins,
                    .end_item = item_done,
                    .run = convert_chunk};
  j->user = &s;
  if (status == STOW_OK) status = weights_walk(j, &task);
  for (unsigned i = 0; i < WORKERS_MAX; i++) weights_free_buffers(&s.buffers[i]);
  j->user = NULL;
  for (size_t i = 0; i < j->r->item_count; i++)
    if (j->r->items[i].action != ACTION_COPY) add_error(&j->r->error, &j->r->items[i].error);
  return status;
}

/* ---- reading the output back ---- */

static stow_status check_chunks(weights_job *j, const weights_item *item, uint8_t *bytes) {
  uint64_t digest = 0, length = weights_chunk_length(j, item), values = item->from.facts->count;
  for (uint64_t first = 0; first < values; first += length) {
    size_t count = (size_t)(values - first < length ? values - first : length);
    for (uint32_t k = 0; k < item->part_count; k++) {
      const weights_part *part = &j->r->parts[item->first_part + k];
      span s = span_of(j, item, part, first, count);
      source from = {.fd = j->writers[part->file].fd,
                     .name = j->r->files[part->file].name,
                     .bytes = j->r->files[part->file].bytes,
                     .direct_fd = -1};
      if (s.bytes == 0) continue;
      STOW_TRY(source_read(&from, part->facts.offset + s.at, bytes, s.bytes));
      digest += weights_chunk_digest(bytes, s.bytes, k, s.at);
    }
  }
  if (digest == item->digest) return STOW_OK;
  return stow_fail(STOW_ERR_IO,
                   "%s: tensor %.200s reads back other bytes than were written: the disk or its "
                   "memory is faulty",
                   j->out, item->from.facts->name);
}

stow_status weights_verify(weights_job *j) {
  uint8_t *bytes = malloc(j->chunk_values * 8);
  stow_status status =
      bytes != NULL ? STOW_OK : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to verify");
  for (size_t i = 0; i < j->r->item_count && status == STOW_OK; i++)
    status = check_chunks(j, &j->r->items[i], bytes);
  free(bytes);
  j->r->verified = status == STOW_OK;
  return status;
}
