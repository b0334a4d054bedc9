/* Shrink of tables: chooses the type of each column. The values are read once, into a file with
 * eight bytes each (shrink_table_npy.c, shrink_table_npz.c); then the types are known, and only the
 * cast remains. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "data/shrink_table.h"

static stow_status refuse_column(const job *j, const column_facts *c, const char *why) {
  return stow_fail(STOW_ERR_INVALID, "%s: column \"%.100s\" %s", j->in, c->name, why);
}

static bool all_fit(const job *j, dtype type) {
  const file_facts *f = &j->result->facts;
  for (size_t i = 0; i < f->column_count; i++)
    if (!shrink_skips(j, i) && !scan_fits(&f->columns[i].values, type)) return false;
  return true;
}

/* Returns the smallest type that holds every column. With fractions, 64-bit integers are excluded,
 * because values pass through doubles then; for arithmetic, all integers are. */
static stow_status common_type(const job *j, dtype *type) {
  static const dtype integers[] = {DTYPE_BOOL, DTYPE_U8,  DTYPE_I8,  DTYPE_U16, DTYPE_I16,
                                   DTYPE_U32,  DTYPE_I32, DTYPE_I64, DTYPE_U64, DTYPE_F64};
  static const dtype mixed[] = {DTYPE_U8,  DTYPE_I8,  DTYPE_F16, DTYPE_U16, DTYPE_I16,
                                DTYPE_F32, DTYPE_U32, DTYPE_I32, DTYPE_F64};
  const file_facts *f = &j->result->facts;
  bool fractions = false, bools = true;
  for (size_t i = 0; i < f->column_count; i++) {
    dtype t = table_column_type(&f->columns[i]);
    if (shrink_skips(j, i)) continue;
    if (t == DTYPE_NONE) return shrink_table_refuse_text(j, i);
    fractions = fractions || t == DTYPE_F64;
    bools = bools && t == DTYPE_BOOL;
  }
  const dtype *list = fractions ? mixed : integers;
  bool floats = fractions && j->budget->purpose == SCAN_FOR_ARITHMETIC;
  size_t count = fractions ? sizeof mixed / sizeof mixed[0] : sizeof integers / sizeof integers[0];
  for (size_t i = 0; i < count; i++) {
    if (list[i] == DTYPE_BOOL && !bools) continue;
    if (list[i] != DTYPE_U64 && !scan_allows(j->budget->purpose, list[i])) continue;
    if (floats && dtype_kind(list[i]) != CLASS_FLOAT) continue;
    if (all_fit(j, list[i])) return *type = list[i], STOW_OK;
  }
  return stow_fail(
      STOW_ERR_INVALID,
      "%s: no single type holds all its columns exactly; use .npz, where each column has its own",
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

static const csv_rule *rule_of(const job *j, size_t column) {
  if (column == SIZE_MAX) return NULL;
  return table_rule(&j->options->in.csv, j->result->facts.columns[column].name);
}

/* Returns how far a column may round: its own tolerance, or that for all columns. */
static loss tolerance_of(const job *j, size_t column) {
  const csv_rule *rule = rule_of(j, column);
  if (rule != NULL && rule->tolerance > 0)
    return (loss){.tolerance = rule->tolerance, .relative = rule->relative};
  return (loss){.tolerance = j->options->tolerance, .relative = j->options->relative};
}

/* Tries the narrower floats with which every value stays within the tolerance. `column` SIZE_MAX:
 * all columns. */
static stow_status try_rounding(const job *j, const table_plan *p, size_t column, dtype exact,
                                shrink_item *item) {
  static const dtype narrower[] = {DTYPE_F16, DTYPE_F32};
  loss allowed = tolerance_of(j, column);
  if (allowed.tolerance <= 0 || !is_float(exact)) return STOW_OK;
  for (size_t i = 0; i < 2; i++) {
    loss l = allowed;
    if (dtype_bytes(narrower[i]) >= dtype_bytes(exact)) continue;
    if (!scan_allows(j->budget->purpose, narrower[i])) continue;
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
    snprintf(rounding, sizeof rounding, " (the error would be %.3g, the tolerance is %.3g)",
             l->worst, l->tolerance);
  snprintf(why, sizeof why, "has values that %s does not hold exactly%s; use %s", dtype_name(to),
           rounding, dtype_name(c->smallest));
  return refuse_column(j, c, why);
}

/* Checks that the requested type holds every value, exactly or within the tolerance. */
static stow_status plan_forced(const job *j, const table_plan *p, size_t i, dtype to,
                               shrink_item *item) {
  const column_facts *c = &j->result->facts.columns[i];
  loss l = tolerance_of(j, i);
  item->to = to;
  if (scan_fits(&c->values, to)) return STOW_OK;
  if (l.tolerance <= 0 || !is_float(to) || !is_float(c->values.type))
    return refuse_values(j, c, to, NULL);
  STOW_TRY(p->measure(p->context, i, to, &l));
  if (l.exceeded) return refuse_values(j, c, to, &l);
  round_to(item, to, &l);
  return STOW_OK;
}

/* The column is not what its --type says. */
static stow_status refuse_rule(const job *j, const column_facts *c, const csv_rule *rule) {
  char why[192], line[64] = "";
  if (c->first_text_line > 0)
    snprintf(line, sizeof line, "; the first text is in line %" PRIu64, c->first_text_line);
  snprintf(why, sizeof why, "is %s, not %s%s", c->type_name,
           rule->times ? "datetime (ISO 8601)" : "numbers", line);
  return refuse_column(j, c, why);
}

stow_status shrink_table_check_rules(const job *j) {
  for (size_t i = 0; i < j->result->facts.column_count; i++) {
    const csv_rule *rule = rule_of(j, i);
    const column_facts *c = &j->result->facts.columns[i];
    if (rule != NULL && rule->numbers && c->text && !shrink_skips(j, i))
      return refuse_rule(j, c, rule);
  }
  return STOW_OK;
}

static stow_status plan_column(job *j, const table_plan *p, size_t i, const shrink_item *common) {
  const column_facts *c = &j->result->facts.columns[i];
  uint64_t rows = j->result->facts.rows;
  shrink_item *item = &j->result->items[i];
  *item = (shrink_item){.bytes = c->bytes, .to = c->smallest, .bytes_after = c->bytes_after};
  if (shrink_skips(j, i)) {
    *item = (shrink_item){.skipped = true};
    return STOW_OK;
  }
  const csv_rule *rule = rule_of(j, i);
  if (rule != NULL && rule->times && !c->time) return refuse_rule(j, c, rule);
  if (c->text) return STOW_OK;
  if (rule != NULL && rule->type != DTYPE_NONE) {
    STOW_TRY(plan_forced(j, p, i, rule->type, item));
  } else if (j->options->type != DTYPE_NONE) {
    STOW_TRY(plan_forced(j, p, i, j->options->type, item));
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

/* An npy has one type for all columns. */
static stow_status refuse_types(const job *j) {
  const csv_options *o = &j->options->in.csv;
  for (size_t i = 0; i < o->rule_count; i++)
    if (o->rules[i].type != DTYPE_NONE || o->rules[i].tolerance > 0)
      return stow_fail(STOW_ERR_INVALID,
                       "%s: an npy has one type for all columns (--dtype, --tolerance); a type or "
                       "tolerance of column \"%.100s\" needs .npz",
                       j->out, o->rules[i].name);
  return STOW_OK;
}

stow_status shrink_table_plan(job *j, const table_plan *p) {
  shrink_result *r = j->result;
  shrink_item common = {0};
  for (size_t i = 0; i < r->item_count; i++) free(r->items[i].member);
  free(r->items);
  r->item_count = 0;
  r->items = calloc(r->facts.column_count + 1, sizeof *r->items);
  if (r->items == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", j->in);
  r->item_count = r->facts.column_count;
  if (p->to_npy) STOW_TRY(refuse_types(j));
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

bool shrink_skips(const job *j, size_t column) {
  return j->skip != NULL && j->skip[column];
}

/* A difference below this is no more than a header or two. */
#define HEADERS_BYTES 512

stow_status shrink_table_check_size(const job *j) {
  const shrink_result *r = j->result;
  /* A gzipped table counts with its uncompressed size: the output is not compressed. */
  uint64_t table = r->facts.file_bytes;
  if (r->facts.stream_bytes > table) table = r->facts.stream_bytes;
  if (j->options->force || j->options->type != DTYPE_NONE) return STOW_OK;
  if (r->bytes_after <= table + HEADERS_BYTES) return STOW_OK;
  char after[STOW_SIZE_TEXT_MAX], before[STOW_SIZE_TEXT_MAX];
  return stow_fail(STOW_ERR_BUDGET,
                   "%s: would take %s (%" PRIu64 " bytes), more than the %s (%" PRIu64
                   " bytes) of %s; omit columns (--drop NAME), allow rounding (--tolerance 1e-3), "
                   "or write it with --force",
                   j->out, stow_size_format(after, r->bytes_after), r->bytes_after,
                   stow_size_format(before, table), table, j->in);
}

/* ---- omitted columns ---- */

/* Returns whether the comma-separated list, or all of it as one name, contains the name. */
static bool list_has(const char *list, const char *name) {
  size_t length = strlen(name);
  if (strcmp(list, name) == 0) return true;
  for (const char *at = list; at != NULL; at = strchr(at, ',')) {
    at += *at == ',';
    if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) return true;
  }
  return false;
}

static bool lists_have(const char *const *lists, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++)
    if (list_has(lists[i], name)) return true;
  return false;
}

static stow_status refuse_name(const job *j, const file_facts *f, const char *option,
                               const char *name, size_t length) {
  char names[256] = "";
  for (size_t i = 0; i < f->column_count && strlen(names) < 180; i++)
    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.60s", i > 0 ? ", " : "",
             f->columns[i].name);
  return stow_fail(STOW_ERR_INVALID, "%s: %s: unknown column \"%.*s\"; the columns are: %s", j->in,
                   option, (int)(length < 100 ? length : 100), name, names);
}

/* Checks that every name of the list is a column. */
static stow_status check_list(const job *j, const file_facts *f, const char *option,
                              const char *list) {
  for (size_t i = 0; i < f->column_count; i++)
    if (strcmp(list, f->columns[i].name) == 0) return STOW_OK;
  for (const char *at = list; at != NULL;) {
    const char *comma = strchr(at, ',');
    size_t length = comma != NULL ? (size_t)(comma - at) : strlen(at);
    bool found = false;
    for (size_t i = 0; i < f->column_count && !found; i++)
      found = strlen(f->columns[i].name) == length && memcmp(f->columns[i].name, at, length) == 0;
    if (!found) return refuse_name(j, f, option, at, length);
    at = comma != NULL ? comma + 1 : NULL;
  }
  return STOW_OK;
}

static stow_status choose_columns(job *j, const file_facts *f) {
  const shrink_options *o = j->options;
  size_t kept = 0;
  for (size_t i = 0; i < o->column_count; i++)
    STOW_TRY(check_list(j, f, "--columns", o->columns[i]));
  for (size_t i = 0; i < o->drop_count; i++) STOW_TRY(check_list(j, f, "--drop", o->drop[i]));
  j->skip = calloc(f->column_count + 1, sizeof *j->skip);
  if (j->skip == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", j->in);
  for (size_t i = 0; i < f->column_count; i++) {
    const char *name = f->columns[i].name;
    bool wanted = o->column_count == 0 || lists_have(o->columns, o->column_count, name);
    j->skip[i] = !wanted || lists_have(o->drop, o->drop_count, name);
    kept += !j->skip[i];
  }
  if (kept > 0) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID, "%s: no column is left; give fewer in --drop", j->in);
}

stow_status shrink_table_columns(job *j) {
  if (j->options->column_count + j->options->drop_count == 0) return STOW_OK;
  csv c;
  file_facts f = {0};
  STOW_TRY(csv_open(&c, j->in, table_row_max(j->budget), &j->options->in.csv));
  stow_status status = table_look(&f, &c, j->options->in.header);
  csv_close(&c);
  if (status == STOW_OK) status = choose_columns(j, &f);
  inspect_free(&f);
  return status;
}

stow_status shrink_table_refuse_text(const job *j, size_t column) {
  bool time = j->result->facts.columns[column].time;
  return refuse_column(j, &j->result->facts.columns[column],
                       time ? "holds times, which an npy of numbers cannot hold; use .npz"
                            : "is text, which an npy of numbers cannot hold; use .npz");
}

stow_status shrink_table_scratch(const job *j, scratch *s) {
  checkpoint *c = j->budget->checkpoint;
  if (j->options->dry_run && j->options->tolerance <= 0) return STOW_OK;
  if (c == NULL) return scratch_open(s, j->out);
  STOW_TRY(scratch_open_named(s, c->scratch_path, c->resumed));
  c->scratch = s->fd;
  return STOW_OK;
}
