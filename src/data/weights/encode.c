/* Encode: one chunk of values, converted and compared with what it was (weights.h). */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "data/weights/parts.h"
#include "numbers/cast.h"
#include "numbers/float8.h"

/* ---- decoding ---- */

static bool block_kind(tensor_type t, quant_kind *kind) {
  switch (t) {
  case TENSOR_Q8_0: *kind = QUANT_Q8_0; return true;
  case TENSOR_Q4_0: *kind = QUANT_Q4_0; return true;
  case TENSOR_Q4_K: *kind = QUANT_Q4_K; return true;
  case TENSOR_Q6_K: *kind = QUANT_Q6_K; return true;
  default: return false;
  }
}

static bool is_fnuz(tensor_type t) {
  return t == TENSOR_F8_E4M3FNUZ || t == TENSOR_F8_E5M2FNUZ;
}

/* fnuz: one more in the bias of the exponent than float8.h, no infinity, and the only NaN is -0. */
static void decode_fnuz(tensor_type t, const uint8_t *in, size_t count, float *values) {
  unsigned fraction = t == TENSOR_F8_E4M3FNUZ ? 3 : 2, bias = t == TENSOR_F8_E4M3FNUZ ? 8 : 16;
  for (size_t i = 0; i < count; i++) {
    unsigned bits = in[i] & 0x7f, exponent = bits >> fraction, low = bits & ((1U << fraction) - 1);
    unsigned whole = exponent > 0 ? low | 1U << fraction : low;
    int power = (int)(exponent > 0 ? exponent : 1) - (int)bias - (int)fraction;
    float size = ldexpf((float)whole, power);
    values[i] = in[i] == 0x80 ? NAN : in[i] & 0x80 ? -size : size;
  }
}

bool weights_is_float8(tensor_type t) {
  return t == TENSOR_F8_E4M3 || t == TENSOR_F8_E5M2 || is_fnuz(t);
}

bool weights_can_decode(tensor_type t) {
  quant_kind kind;
  return tensor_type_is_float(t) || weights_is_float8(t) || block_kind(t, &kind);
}

void weights_decode(tensor_type t, const void *bytes, size_t count, float *values) {
  quant_kind kind;
  if (block_kind(t, &kind))
    quant_decode(kind, bytes, count, values);
  else if (is_fnuz(t))
    decode_fnuz(t, bytes, count, values);
  else if (weights_is_float8(t))
    float8_to_floats(t == TENSOR_F8_E4M3 ? FLOAT8_E4M3 : FLOAT8_E5M2, bytes, count, values);
  else if (t == TENSOR_F32)
    memcpy(values, bytes, count * sizeof *values);
  else
    (void)cast_values(values, DTYPE_F32, bytes, tensor_type_get(t)->type, count);
}

/* ---- pruning ---- */

/* Clears the two smallest of four values; of equal ones the later stay. NaN counts as infinite.
 * Without branches, because which values stay cannot be predicted. */
static uint64_t prune_2_4(float *values, size_t count) {
  for (float *v = values; v < values + count; v += 4) {
    float m[4];
    for (size_t k = 0; k < 4; k++) m[k] = isnan(v[k]) ? INFINITY : fabsf(v[k]);
    /* bNK: value N is larger than the later value K. */
    unsigned b01 = m[0] > m[1], b02 = m[0] > m[2], b03 = m[0] > m[3];
    unsigned b12 = m[1] > m[2], b13 = m[1] > m[3], b23 = m[2] > m[3];
    const unsigned smaller[4] = {b01 + b02 + b03, 1 - b01 + b12 + b13, 2 - b02 - b12 + b23,
                                 3 - b03 - b13 - b23};
    for (size_t k = 0; k < 4; k++) v[k] = smaller[k] >= 2 ? v[k] : 0;
  }
  return count / 2;
}

static bool has_ties(float threshold, const float *values, size_t count) {
  unsigned ties = 0;
  for (size_t i = 0; i < count; i++) ties |= fabsf(values[i]) == threshold;
  return ties != 0;
}

/* Values equal to the threshold: as many become 0 in each row as their share of all is, with a
 * rounding that depends on the row alone, so that the result is the same for any chunks. */
static uint64_t prune_row_with_ties(const weights_item *item, uint64_t row, float *values,
                                    size_t count) {
  uint64_t zeros = 0;
  double sum = (double)(hash_u64(row, 1) >> 11) * 0x1p-53;
  for (size_t i = 0; i < count; i++) {
    float m = fabsf(values[i]);
    if (m > item->threshold || m != m) continue;
    if (m == item->threshold) {
      sum += item->tie_part;
      if (sum < 1) continue;
      sum -= 1;
    }
    values[i] = 0;
    zeros++;
  }
  return zeros;
}

static uint64_t prune_row(const weights_item *item, uint64_t row, float *values, size_t count) {
  float threshold = item->threshold;
  if (has_ties(threshold, values, count)) return prune_row_with_ties(item, row, values, count);
  uint32_t zeros = 0; /* a row has fewer than 2^32 values: it fits a chunk */
  for (size_t i = 0; i < count; i++) {
    bool gone = fabsf(values[i]) < threshold;
    values[i] = gone ? 0 : values[i];
    zeros += gone;
  }
  return zeros;
}

uint64_t weights_prune_chunk(const weights_item *item, uint64_t first, float *values, size_t count,
                             bool two_of_four) {
  if (two_of_four) return prune_2_4(values, count);
  uint64_t zeros = 0, row = item->row;
  for (size_t i = 0; i < count; i += row)
    zeros += prune_row(item, (first + i) / row, values + i, (size_t)row);
  return zeros;
}

/* ---- encoding ---- */

/* Adds the error of float64 values, which float32 could not show. */
static void add_error_f64(quant_error *e, const double *before, const float *after, size_t count) {
  e->values += count;
  for (size_t i = 0; i < count; i++) {
    double error = fabs(before[i] - (double)after[i]);
    if (!isfinite(before[i]) || !isfinite(after[i])) {
      *(isfinite(before[i]) ? &e->clipped : &e->not_finite) += 1;
      continue;
    }
    e->sum_squares += before[i] * before[i];
    e->sum_error_squares += error * error;
    if (error > e->max_error) e->max_error = error;
  }
}

/* A chunk is converted in runs that stay in the first cache: values are cast, cast back and
 * compared there. */
#define RUN_VALUES 4096

static void cast_run(const weights_item *item, size_t first, size_t count, chunk_buffers *c,
                     quant_error *error) {
  tensor_type from = item->from.facts->stored;
  dtype to = tensor_type_get(item->to)->type;
  const uint8_t *in = c->bytes + tensor_type_bytes(from, first);
  uint8_t *out = c->out + tensor_type_bytes(item->to, first);
  const float *before = c->before, *after = c->after;
  if (from == TENSOR_F32)
    before = (const float *)(const void *)in;
  else
    weights_decode(from, in, count, c->before);
  /* 16-bit floats are exact in float32, and the casts from there are vector code. */
  if (from == TENSOR_F64)
    (void)cast_values(out, to, in, tensor_type_get(from)->type, count);
  else
    (void)cast_values(out, to, before, DTYPE_F32, count);
  if (item->to == TENSOR_F32)
    after = (const float *)(const void *)out;
  else
    (void)cast_values(c->after, DTYPE_F32, out, to, count);
  if (from == TENSOR_F64)
    add_error_f64(error, (const double *)(const void *)in, after, count);
  else
    quant_error_add(error, before, after, count);
}

static void cast_chunk(const weights_item *item, size_t count, chunk_buffers *c,
                       quant_error *error) {
  for (size_t i = 0; i < count; i += RUN_VALUES)
    cast_run(item, i, count - i < RUN_VALUES ? count - i : RUN_VALUES, c, error);
}

/* Casts float64 values, of which float32 would lose digits, and clears those that were pruned. */
static void cast_pruned_f64(const weights_item *item, size_t count, chunk_buffers *c) {
  dtype to = tensor_type_get(item->to)->type;
  size_t width = dtype_bytes(to);
  (void)cast_values(c->out, to, c->bytes, DTYPE_F64, count);
  for (size_t i = 0; i < count; i++)
    if (c->after[i] == 0 && c->before[i] != 0) memset(c->out + i * width, 0, width);
}

void weights_prune_and_cast(const weights_job *j, const weights_item *item, uint64_t first,
                            size_t count, chunk_buffers *c, quant_error *error, uint64_t *zeros) {
  dtype to = tensor_type_get(item->to)->type;
  tensor_type from = item->from.facts->stored;
  weights_decode(from, c->bytes, count, c->before);
  memcpy(c->after, c->before, count * sizeof(float));
  if (item->pruned) *zeros += weights_prune_chunk(item, first, c->after, count, j->o->prune_2_4);
  if (from == TENSOR_F64)
    cast_pruned_f64(item, count, c);
  else
    (void)cast_values(c->out, to, c->after, DTYPE_F32, count);
  (void)cast_values(c->after, DTYPE_F32, c->out, to, count);
  if (from == TENSOR_F64)
    add_error_f64(error, (const double *)(const void *)c->bytes, c->after, count);
  else
    quant_error_add(error, c->before, c->after, count);
}

/* Counts the blocks that are too large for their type: their scale has no more than 65504, and some
 * become zeros instead of infinite. The largest value of any other block keeps more than half. */
static void count_lost_blocks(quant_kind kind, const float *before, const float *after,
                              size_t count, quant_error *error) {
  size_t block = quant_block_values(kind);
  if (!(error->max_error > 65504 / 2)) return;
  for (size_t i = 0; i < count; i += block) {
    size_t most = i;
    bool finite = true;
    for (size_t k = i; k < i + block; k++) {
      finite = finite && isfinite(before[k]) && isfinite(after[k]); /* counted already */
      if (fabsf(before[k]) > fabsf(before[most])) most = k;
    }
    if (finite && fabsf(before[most]) > 65504 && fabsf(after[most]) < fabsf(before[most]) / 2)
      error->clipped++;
  }
}

static void block_chunk(const weights_job *j, const weights_item *item, uint64_t first,
                        size_t count, chunk_buffers *c, quant_error *error, uint64_t *zeros) {
  quant_kind kind = QUANT_Q8_0;
  block_kind(item->to, &kind);
  weights_decode(item->from.facts->stored, c->bytes, count, c->before);
  const float *values = c->before;
  if (item->pruned) {
    float *pruned = (float *)(void *)c->codes;
    memcpy(pruned, c->before, count * sizeof(float));
    *zeros += weights_prune_chunk(item, first, pruned, count, j->o->prune_2_4);
    values = pruned;
  }
  quant_encode(kind, values, count, c->out);
  quant_decode(kind, c->out, count, c->after);
  quant_error_add(error, c->before, c->after, count);
  count_lost_blocks(kind, c->before, c->after, count, error);
}

/* Adds the error of a row with an infinity: its scale is infinite, so nothing of the row is left.
 * Only the values that were not finite count as a fault of the model. */
static void add_lost_row(quant_error *e, const float *before, size_t count) {
  e->values += count;
  for (size_t i = 0; i < count; i++) e->not_finite += !isfinite(before[i]);
}

/* Encodes each row with its own scale. The scale is rounded to the type it is stored in before the
 * values are divided by it, so that a reader gets the values for which the error was measured. */
static void channel_chunk(const weights_job *j, const weights_item *item, uint64_t first,
                          size_t count, chunk_buffers *c, quant_error *error, uint64_t *zeros) {
  const weights_part *scales = &j->r->parts[item->first_part + 1];
  dtype scale_type = tensor_type_get(scales->facts.stored)->type;
  size_t row = (size_t)item->row, width = dtype_bytes(scale_type);
  float *values = c->after;
  weights_decode(item->from.facts->stored, c->bytes, count, c->before);
  memcpy(values, c->before, count * sizeof(float));
  if (item->pruned) *zeros += weights_prune_chunk(item, first, values, count, j->o->prune_2_4);
  quant_channel kind = item->action == ACTION_INT8 ? QUANT_INT8 : QUANT_FP8;
  size_t known = 0; /* rows before this value are in *error */
  for (size_t i = 0, r = 0; i < count; i += row, r++) {
    float scale = quant_channel_scale(kind, quant_channel_most(0, values + i, row));
    (void)cast_values(c->codes + r * width, scale_type, &scale, DTYPE_F32, 1);
    (void)cast_values(&scale, DTYPE_F32, c->codes + r * width, scale_type, 1);
    if (!(scale > 0)) scale = 0x1p-14f; /* a row of zeros in float16 */
    (void)cast_values(c->codes + r * width, scale_type, &scale, DTYPE_F32, 1);
    quant_channel_encode(kind, scale, values + i, row, c->out + i);
    quant_channel_decode(kind, scale, c->out + i, row, values + i);
    if (isfinite(scale)) continue;
    quant_error_add(error, c->before + known, values + known, i - known);
    add_lost_row(error, c->before + i, row);
    known = i + row;
  }
  /* Packed words hold unsigned values, four to a word. */
  for (size_t i = 0; i < count && kind == QUANT_INT8; i++) c->out[i] ^= 0x80;
  quant_error_add(error, c->before + known, values + known, count - known);
}

stow_status weights_encode(const weights_job *j, const weights_item *item, uint64_t first,
                           size_t count, chunk_buffers *c, quant_error *error, uint64_t *zeros) {
  switch (item->action) {
  case ACTION_COPY: break;
  case ACTION_CAST:
    if (item->pruned)
      weights_prune_and_cast(j, item, first, count, c, error, zeros);
    else
      cast_chunk(item, count, c, error);
    break;
  case ACTION_BLOCKS: block_chunk(j, item, first, count, c, error, zeros); break;
  case ACTION_INT8:
  case ACTION_FP8: channel_chunk(j, item, first, count, c, error, zeros); break;
  case ACTION_BITMASK:
  case ACTION_BITMASK_24:
    weights_prune_and_cast(j, item, first, count, c, error, zeros);
    (void)weights_compact(item, count, c);
    break;
  }
  return STOW_OK;
}
