/* Shrink: chooses the type of one array: the smallest that holds every value, a requested one, or
 * one within the tolerance; dense or sparse. */
#include <stdio.h>

#include "arrays/npy.h"
#include "data/shrink_parts.h"
#include "data/sparse.h"

static bool is_float(dtype type) {
  return type != DTYPE_NONE && dtype_kind(type) == CLASS_FLOAT;
}

stow_status shrink_refuse_type(const job *j, const array_facts *f, const loss *l) {
  char rounding[96] = "";
  if (l != NULL)
    snprintf(rounding, sizeof rounding, " (the error would be %.3g, the tolerance is %.3g)",
             l->worst, l->tolerance);
  return stow_fail(STOW_ERR_INVALID,
                   "%s%s%s: %s does not hold all of its values%s; use %s, or omit --dtype", j->in,
                   f->name[0] != '\0' ? ":" : "", f->name, dtype_name(j->options->type), rounding,
                   dtype_name(f->smallest));
}

/* Checks whether casting stays within the tolerance. Reads every value. */
static stow_status measure(job *j, array *a, dtype to, loss *l) {
  *l = (loss){.tolerance = j->options->tolerance, .relative = j->options->relative};
  return shrink_values(j, a, to, NULL, NULL, l);
}

void shrink_take_type(shrink_item *item, const array_facts *f, dtype to, const loss *l) {
  item->to = to;
  item->bytes_after = f->values.count * dtype_bytes(to);
  item->rounded = l != NULL && l->worst > 0;
  item->error = l != NULL ? l->worst : 0;
}

static stow_status choose_forced(job *j, const array_facts *f, array *a, shrink_item *item) {
  dtype wanted = j->options->type;
  loss l;
  if (scan_fits(&f->values, wanted)) return shrink_take_type(item, f, wanted, NULL), STOW_OK;
  if (j->options->tolerance <= 0 || !is_float(wanted) || !is_float(f->type))
    return shrink_refuse_type(j, f, NULL);
  STOW_TRY(measure(j, a, wanted, &l));
  if (l.exceeded) return shrink_refuse_type(j, f, &l);
  return shrink_take_type(item, f, wanted, &l), STOW_OK;
}

/* Returns the smallest type that npy files have a name for: they have no bfloat16. */
static dtype smallest_npy(const array_facts *f) {
  if (npy_descr(f->smallest) != NULL) return f->smallest;
  return scan_fits(&f->values, DTYPE_F16) ? DTYPE_F16 : DTYPE_F32;
}

stow_status shrink_choose(job *j, const array_facts *f, array *a, shrink_item *item) {
  *item = (shrink_item){.bytes = f->bytes, .bytes_after = f->bytes};
  if (!f->scanned) return STOW_OK;
  if (j->options->type != DTYPE_NONE) return choose_forced(j, f, a, item);
  shrink_take_type(item, f, smallest_npy(f), NULL);
  if (j->options->tolerance <= 0 || !is_float(f->type)) return STOW_OK;
  static const dtype narrower[] = {DTYPE_F16, DTYPE_F32};
  for (size_t i = 0; i < 2; i++) {
    loss l;
    if (dtype_bytes(narrower[i]) >= dtype_bytes(item->to)) continue;
    if (!scan_allows(j->budget->purpose, narrower[i])) continue;
    STOW_TRY(measure(j, a, narrower[i], &l));
    if (l.exceeded) continue;
    shrink_take_type(item, f, narrower[i], &l);
    break;
  }
  return STOW_OK;
}

/* Decides whether to write a sparse matrix. SciPy has no float16: if it is requested, the array
 * stays dense. */
void shrink_choose_sparse(const job *j, const array_facts *f, shrink_item *item) {
  if (f->sparse_bytes == 0 || item->to == DTYPE_NONE || j->options->type == DTYPE_F16) return;
  uint64_t major = f->shape[f->fortran_order ? 1 : 0], minor = f->shape[f->fortran_order ? 0 : 1];
  uint64_t bytes = sparse_bytes(major, minor, f->count - f->zeros, item->to);
  if (bytes >= item->bytes_after) return;
  item->sparse = true;
  item->to = sparse_value_type(item->to);
  item->bytes_after = bytes;
}
