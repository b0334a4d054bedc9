/* The public model (stowage/model.h): tensors read in pieces by any number of threads. */
#include <stowage/model.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/model.h"
#include "base/growing.h"
#include "data/weights/parts.h"
#include "numbers/cast.h"

#define LISTS_BYTES (UINT64_C(64) << 20) /* 70B models list under a thousand tensors: 300 KiB */
/* A conversion goes through buffers of this many values, a multiple of every block: 64 KiB of
 * float32 stay in the second cache. */
#define RUN_VALUES 16384

struct stow_model {
  model in;
  packed_layers packed; /* which layers have scales beside them */
  pthread_mutex_t lock; /* guards sources that are not files: a server answers one reader at a
                         * time */
};

stow_status stow_model_open(stow_model **out, const char *path, const stow_model_options *given) {
  if (out == NULL || path == NULL)
    return stow_fail(STOW_ERR_INVALID, "stow_model_open: model or path is NULL");
  *out = NULL;
  stow_model_options o = STOW_MODEL_OPTIONS_INIT;
  STOW_TRY(growing_read(&o, sizeof o, given, "stow_model_options"));
  stow_model *m = calloc(1, sizeof *m);
  if (m == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a model");
  stow_status status = model_open(&m->in, path, o.memory_bytes > 0 ? o.memory_bytes : LISTS_BYTES);
  if (status != STOW_OK) {
    free(m);
    return status;
  }
  status = packed_find(&m->packed, &m->in);
  if (status != STOW_OK) {
    packed_free(&m->packed);
    model_close(&m->in);
    free(m);
    return status;
  }
  pthread_mutex_init(&m->lock, NULL);
  *out = m;
  return STOW_OK;
}

void stow_model_close(stow_model *m) {
  if (m == NULL) return;
  packed_free(&m->packed);
  model_close(&m->in);
  pthread_mutex_destroy(&m->lock);
  free(m);
}

stow_status stow_model_get_info(const stow_model *m, stow_model_info *info) {
  stow_model_info full = STOW_MODEL_INFO_INIT;
  full.file_count = (uint32_t)m->in.file_count;
  full.format = model_format_name(m->in.format);
  full.tensor_count = m->in.count;
  full.bytes = m->in.bytes;
  full.metadata = m->in.file_count == 1 ? m->in.files[0].header.metadata : NULL;
  return growing_write(info, &full, sizeof full, "stow_model_info");
}

static stow_status find(const stow_model *m, uint64_t index, const model_tensor **found) {
  if (index >= m->in.count)
    return stow_fail(STOW_ERR_NOT_FOUND, "no tensor %" PRIu64 "; the model has %zu", index,
                     m->in.count);
  *found = &m->in.list[index];
  return STOW_OK;
}

static bool can_convert(tensor_type t) {
  return tensor_type_get(t)->type != DTYPE_NONE || weights_can_decode(t);
}

stow_status stow_model_get_tensor(const stow_model *m, uint64_t index, stow_model_tensor *to) {
  const model_tensor *found = NULL;
  STOW_TRY(find(m, index, &found));
  const tensor *t = found->facts;
  const tensor_type_info *type = tensor_type_get(t->stored);
  stow_model_tensor full = STOW_MODEL_TENSOR_INIT;
  full.dims = t->dims;
  full.name = t->name;
  full.dtype = t->type_name;
  full.shape = t->shape;
  full.count = t->count;
  full.bytes = t->bytes;
  full.block_values = type->block;
  full.block_bytes = type->bytes;
  full.convertible = can_convert(t->stored);
  full.file = found->file;
  full.offset = t->offset;
  full.path = m->in.files[found->file].path;
  full.quantized = packed_holds(&m->packed, t);
  return growing_write(to, &full, sizeof full, "stow_model_tensor");
}

/* ---- reading ---- */

/* One call's view of the file: its own position, the model's descriptor. */
typedef struct reading {
  stow_model *m;
  const tensor *t;
  source from;
  uint8_t *stored;  /* RUN_VALUES as stored */
  float *values;    /* decoded values */
  uint8_t *results; /* values in the requested type, if only a part of a block is wanted */
  dtype to;
  bool allow_nan;
} reading;

static stow_status read_stored(reading *r, uint64_t first, uint64_t count, void *to) {
  const tensor *t = r->t;
  uint64_t at = t->offset + tensor_type_bytes(t->stored, first);
  size_t bytes = (size_t)tensor_type_bytes(t->stored, count);
  if (r->from.fd >= 0) return source_read(&r->from, at, to, bytes);
  pthread_mutex_lock(&r->m->lock);
  stow_status status = source_read(&r->from, at, to, bytes);
  pthread_mutex_unlock(&r->m->lock);
  return status;
}

/* Refuses values that were finite and are not after a conversion. Most results are finite, so one
 * pass over them is the usual cost. */
static stow_status check_range(const reading *r, const void *from, dtype from_type, const void *to,
                               size_t count) {
  if (r->allow_nan) return STOW_OK;
  size_t after = cast_count_not_finite(to, r->to, count), before = 0;
  if (after > 0) before = cast_count_not_finite(from, from_type, count);
  if (after <= before) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "tensor %.200s: %zu value%s too large for %s and would become infinite; load it "
                   "as %s, or set allow_nan",
                   r->t->name, after - before, after - before == 1 ? " is" : "s are",
                   dtype_name(r->to), r->to == DTYPE_F16 ? "bfloat16 or float32" : "stored");
}

static stow_status convert(const reading *r, const void *stored, size_t count, void *to) {
  tensor_type from = r->t->stored;
  bool halves = from == TENSOR_F16 || from == TENSOR_BF16; /* through float32, which has vector
                                                            * code */
  if (tensor_type_get(from)->type != DTYPE_NONE && !(halves && dtype_bytes(r->to) == 2)) {
    (void)cast_values(to, r->to, stored, tensor_type_get(from)->type, count);
    return check_range(r, stored, tensor_type_get(from)->type, to, count);
  }
  weights_decode(from, stored, count, r->values);
  (void)cast_values(to, r->to, r->values, DTYPE_F32, count);
  return check_range(r, r->values, DTYPE_F32, to, count);
}

/* Reads values at any position: reads whole blocks and drops what was not requested. */
static stow_status read_converted(reading *r, uint64_t first, uint64_t count, uint8_t *to) {
  uint64_t block = tensor_type_get(r->t->stored)->block, end = first + count;
  size_t width = dtype_bytes(r->to);
  for (uint64_t at = first - first % block; at < end; at += RUN_VALUES) {
    uint64_t stop = at + RUN_VALUES;
    if (stop > end) stop = end + (block - end % block) % block;
    uint64_t from = at < first ? first : at, until = stop < end ? stop : end;
    bool all = from == at && until == stop;
    STOW_TRY(read_stored(r, at, stop - at, r->stored));
    STOW_TRY(convert(r, r->stored, (size_t)(stop - at), all ? to : r->results));
    size_t bytes = (size_t)(until - from) * width;
    if (!all) memcpy(to, r->results + (from - at) * width, bytes);
    to += bytes;
  }
  return STOW_OK;
}

static stow_status read_runs(reading *r, const stow_model_piece *p) {
  uint8_t *to = p->to;
  for (uint64_t i = 0; i < p->runs; i++) {
    uint64_t first = p->first + i * p->step;
    source_expect(&r->from, r->t->offset + tensor_type_bytes(r->t->stored, first),
                  tensor_type_bytes(r->t->stored, p->count));
    if (r->to == DTYPE_NONE) {
      STOW_TRY(read_stored(r, first, p->count, to));
      to += tensor_type_bytes(r->t->stored, p->count);
    } else {
      STOW_TRY(read_converted(r, first, p->count, to));
      to += p->count * dtype_bytes(r->to);
    }
  }
  return STOW_OK;
}

static stow_status check_piece(const tensor *t, stow_model_piece *p, dtype *to) {
  if (p->runs == 0) p->runs = 1;
  if (p->to == NULL && p->count > 0)
    return stow_fail(STOW_ERR_INVALID, "stow_model_piece: to is NULL");
  if (p->count > t->count || p->first > t->count - p->count ||
      (p->step > 0 && p->runs - 1 > (t->count - p->count - p->first) / p->step))
    return stow_fail(STOW_ERR_INVALID,
                     "tensor %.200s: %" PRIu64 " times %" PRIu64 " values from %" PRIu64
                     " in steps of %" PRIu64 " requested, but it has %" PRIu64,
                     t->name, p->runs, p->count, p->first, p->step, t->count);
  uint64_t block = tensor_type_get(t->stored)->block;
  *to = DTYPE_NONE;
  if (p->dtype == NULL) {
    if (p->first % block == 0 && p->count % block == 0 && p->step % block == 0) return STOW_OK;
    return stow_fail(STOW_ERR_INVALID,
                     "tensor %.200s: %s comes in blocks of %" PRIu64
                     " values; read whole blocks, or give a dtype",
                     t->name, t->type_name, block);
  }
  STOW_TRY(dtype_parse(to, p->dtype));
  if (!can_convert(t->stored))
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "tensor %.200s: values of type %s cannot be converted; read them as stored",
                     t->name, t->type_name);
  if (*to == tensor_type_get(t->stored)->type) *to = DTYPE_NONE;
  return STOW_OK;
}

stow_status stow_model_read(stow_model *m, uint64_t index, const stow_model_piece *given) {
  const model_tensor *found = NULL;
  stow_model_piece p = STOW_MODEL_PIECE_INIT;
  if (given == NULL) return stow_fail(STOW_ERR_INVALID, "stow_model_read: piece is NULL");
  STOW_TRY(growing_read(&p, sizeof p, given, "stow_model_piece"));
  STOW_TRY(find(m, index, &found));
  reading r = {.m = m,
               .t = found->facts,
               .from = m->in.files[found->file].from,
               .allow_nan = p.allow_nan != 0};
  STOW_TRY(check_piece(r.t, &p, &r.to));
  if (p.count == 0) return STOW_OK;
  if (r.to == DTYPE_NONE) return read_runs(&r, &p);
  uint8_t *memory = aligned_alloc(64, RUN_VALUES * (8 + 4 + 8));
  if (memory == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to convert values");
  r.results = memory;
  r.stored = memory + RUN_VALUES * 8;
  r.values = (float *)(void *)(memory + RUN_VALUES * 16);
  stow_status status = read_runs(&r, &p);
  free(memory);
  return status;
}

stow_status stow_model_check(const stow_model *m) {
  return model_check(&m->in);
}
