/* Shrink of tables: what each column becomes. The values are read once, into a file in eight bytes
 * each (shrink_table_npy.c, shrink_table_npz.c); the types are known then, and the cast is all that
 * is left to do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/shrink_table.h"

static stow_status refuse_column(const job *j, const column_facts *c, const char *why) {
  return stow_fail(STOW_ERR_INVALID, "%s: column \"%.100s\" %s", j->in, c->name, why);
}

static bool all_fit(const file_facts *f, dtype type) {
  for (size_t i = 0; i < f->column_count; i++)
    if (!scan_fits(&f->columns[i].values, type)) return false;
  return true;
}

/* The smallest type that holds every column. Beside fractions 64-bit integers are left out: values
 * pass through doubles then. */
static stow_status common_type(const job *j, dtype *type) {
  static const dtype integers[] = {DTYPE_BOOL, DTYPE_U8,  DTYPE_I8,  DTYPE_U16, DTYPE_I16,
                                   DTYPE_U32,  DTYPE_I32, DTYPE_I64, DTYPE_U64, DTYPE_F64};
  static const dtype mixed[] = {DTYPE_U8,  DTYPE_I8,  DTYPE_F16, DTYPE_U16, DTYPE_I16,
                                DTYPE_F32, DTYPE_U32, DTYPE_I32, DTYPE_F64};
  const file_facts *f = &j->result->facts;
  bool fractions = false, bools = true;
  for (size_t i = 0; i < f->column_count; i++) {
    dtype t = table_column_type(&f->columns[i]);
    if (t == DTYPE_NONE) return shrink_table_refuse_text(j, i);
    fractions = fractions || t == DTYPE_F64;
    bools = bools && t == DTYPE_BOOL;
  }
  const dtype *list = fractions ? mixed : integers;
  size_t count = fractions ? sizeof mixed / sizeof mixed[0] : sizeof integers / sizeof integers[0];
  for (size_t i = 0; i < count; i++) {
    if (list[i] == DTYPE_BOOL && !bools) continue;
    if (all_fit(f, list[i])) return *type = list[i], STOW_OK;
  }
  return stow_fail(STOW_ERR_INVALID,
                   "%s: no one type holds all its columns exactly; end the output with .npz, where "
                   "each has its own",
                   j->in);
}

static bool is_float(dtype type) {
  return dtype_kind(type) == CLASS_FLOAT;
}

static void round_to(shrink_item *item, dtype to, const loss *l) {
  item->to = to;
  item->rounded = l->worst > 0;
  item->error = l->worst;
}

/* The narrower floats, where every value stays within the tolerance. `column` SIZE_MAX: of all. */
static stow_status try_rounding(const job *j, const table_plan *p, size_t column, dtype exact,
                                shrink_item *item) {
  static const dtype narrower[] = {DTYPE_F16, DTYPE_F32};
  if (j->options->tolerance <= 0 || !is_float(exact)) return STOW_OK;
  for (size_t i = 0; i < 2; i++) {
    loss l = {.tolerance = j->options->tolerance, .relative = j->options->relative};
    if (dtype_bytes(narrower[i]) >= dtype_bytes(exact)) continue;
    STOW_TRY(p->measure(p->context, column, narrower[i], &l));
    if (l.exceeded) continue;
    round_to(item, narrower[i], &l);
    break;
  }
  return STOW_OK;
}

static stow_status refuse_values(const job *j, const column_facts *c, dtype to, const loss *l) {
  char why[192], rounding[96] = "";
  if (l != NULL)
    snprintf(rounding, sizeof rounding, " (it would be off by %.3g, the tolerance is %.3g)",
             l->worst, l->tolerance);
  snprintf(why, sizeof why, "has values that %s does not hold exactly%s; %s does", dtype_name(to),
           rounding, dtype_name(c->smallest));
  return refuse_column(j, c, why);
}

/* A type asked for by name holds every value, exactly or within the tolerance. */
static stow_status plan_forced(const job *j, const table_plan *p, size_t i, shrink_item *item) {
  const column_facts *c = &j->result->facts.columns[i];
  dtype to = j->options->type;
  item->to = to;
  if (scan_fits(&c->values, to)) return STOW_OK;
  if (j->options->tolerance <= 0 || !is_float(to) || !is_float(c->values.type))
    return refuse_values(j, c, to, NULL);
  loss l = {.tolerance = j->options->tolerance, .relative = j->options->relative};
  STOW_TRY(p->measure(p->context, i, to, &l));
  if (l.exceeded) return refuse_values(j, c, to, &l);
  round_to(item, to, &l);
  return STOW_OK;
}

static stow_status plan_column(job *j, const table_plan *p, size_t i, const shrink_item *common) {
  const column_facts *c = &j->result->facts.columns[i];
  uint64_t rows = j->result->facts.rows;
  shrink_item *item = &j->result->items[i];
  *item = (shrink_item){.bytes = c->bytes, .to = c->smallest, .bytes_after = c->bytes_after};
  if (c->text) {
    /* The values are as wide as the longest, four bytes a letter; those not counted come on top. */
    if (!c->distinct_known) item->to = DTYPE_U32;
    uint64_t words = c->distinct_known ? c->distinct + (c->missing > 0) : 0;
    item->bytes_after = rows * dtype_bytes(item->to) + words * c->longest * 4;
    return STOW_OK;
  }
  if (j->options->type != DTYPE_NONE) {
    STOW_TRY(plan_forced(j, p, i, item));
  } else if (common != NULL) {
    item->to = common->to;
    item->rounded = common->rounded;
    item->error = common->error;
  } else {
    STOW_TRY(try_rounding(j, p, i, item->to, item));
  }
  item->bytes_after = rows * dtype_bytes(item->to);
  return STOW_OK;
}

stow_status shrink_table_plan(job *j, const table_plan *p) {
  shrink_result *r = j->result;
  shrink_item common = {0};
  r->item_count = r->facts.column_count;
  free(r->items);
  r->items = calloc(r->item_count + 1, sizeof *r->items);
  if (r->items == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", j->in);
  if (p->to_npy && j->options->type == DTYPE_NONE) {
    STOW_TRY(common_type(j, &common.to));
    STOW_TRY(try_rounding(j, p, SIZE_MAX, common.to, &common));
  }
  r->bytes = r->bytes_after = 0;
  for (size_t i = 0; i < r->item_count; i++) {
    STOW_TRY(plan_column(j, p, i, common.to != DTYPE_NONE ? &common : NULL));
    r->bytes += r->items[i].bytes;
    r->bytes_after += r->items[i].bytes_after;
  }
  return STOW_OK;
}

stow_status shrink_table_refuse_text(const job *j, size_t column) {
  return refuse_column(j, &j->result->facts.columns[column],
                       "is text, which an npy of numbers cannot hold; end the output with .npz");
}

stow_status shrink_table_scratch(const job *j, scratch *s) {
  checkpoint *c = j->budget->checkpoint;
  if (j->options->dry_run && j->options->tolerance <= 0) return STOW_OK;
  if (c == NULL) return scratch_open(s, j->out);
  STOW_TRY(scratch_open_named(s, c->scratch_path, c->resumed));
  c->scratch = s->fd;
  return STOW_OK;
}
