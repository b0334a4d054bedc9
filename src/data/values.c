/* Values: the public interface to numbers/scan and numbers/cast, for programs that have their
 * numbers in memory. Types are passed by name, so that our type numbers are not part of the
 * interface. */
#include <stowage/values.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "base/growing.h"
#include "data/shrink_parts.h"
#include "numbers/cast.h"
#include "numbers/scan.h"

struct stow_values {
  scan seen;
};

static stow_status read_type(dtype *type, const char *name) {
  if (name == NULL)
    return stow_fail(STOW_ERR_INVALID, "values: the type is NULL; name one, such as float32");
  return dtype_parse(type, name);
}

/* Rejects impossible counts, whose bytes exceed any memory. */
static stow_status check_run(const void *values, dtype type, uint64_t count) {
  if (count == 0 || (values != NULL && count <= SIZE_MAX / 2 / dtype_bytes(type))) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID, "values: %llu of %s %s", (unsigned long long)count,
                   dtype_name(type),
                   values == NULL ? "at a NULL address" : "exceed the address space");
}

stow_status stow_values_open(stow_values **values, const char *type) {
  dtype t;
  if (values == NULL) return stow_fail(STOW_ERR_INVALID, "values: the result pointer is NULL");
  *values = NULL;
  STOW_TRY(read_type(&t, type));
  stow_values *v = malloc(sizeof *v);
  if (v == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to scan values");
  stow_status status = scan_begin(&v->seen, t);
  if (status != STOW_OK) {
    free(v);
    return status;
  }
  *values = v;
  return STOW_OK;
}

stow_status stow_values_add(stow_values *values, const void *from, uint64_t count) {
  if (values == NULL) return stow_fail(STOW_ERR_INVALID, "values: not open");
  STOW_TRY(check_run(from, values->seen.type, count));
  if (count > 0) scan_add(&values->seen, from, (size_t)count);
  return STOW_OK;
}

stow_status stow_values_get(const stow_values *values, stow_values_facts *facts) {
  if (values == NULL || facts == NULL) return stow_fail(STOW_ERR_INVALID, "values: not open");
  const scan *s = &values->seen;
  stow_values_facts full = {.struct_bytes = sizeof full,
                            .count = s->count,
                            .nans = s->nans,
                            .infs = s->infs,
                            .zeros = s->zeros,
                            .least = s->least,
                            .most = s->most,
                            .whole = s->whole};
  snprintf(full.smallest, sizeof full.smallest, "%s", dtype_name(scan_smallest(s, false)));
  return growing_write(facts, &full, sizeof full, "stow_values_facts");
}

stow_status stow_values_fit(const stow_values *values, const char *type, bool *fits) {
  dtype t;
  if (values == NULL || fits == NULL) return stow_fail(STOW_ERR_INVALID, "values: not open");
  STOW_TRY(read_type(&t, type));
  *fits = scan_fits(&values->seen, t);
  return STOW_OK;
}

stow_status stow_values_close(stow_values *values) {
  free(values);
  return STOW_OK;
}

stow_status stow_values_cast(void *to, const char *to_type, const void *from, const char *from_type,
                             uint64_t count) {
  dtype t, f;
  STOW_TRY(read_type(&t, to_type));
  STOW_TRY(read_type(&f, from_type));
  STOW_TRY(check_run(to, t, count));
  STOW_TRY(check_run(from, f, count));
  return count == 0 ? STOW_OK : cast_values(to, t, from, f, (size_t)count);
}

stow_status stow_values_error(double *worst, bool relative, const void *to, const char *to_type,
                              const void *from, const char *from_type, uint64_t count) {
  dtype t, f;
  if (worst == NULL) return stow_fail(STOW_ERR_INVALID, "values: the result pointer is NULL");
  STOW_TRY(read_type(&t, to_type));
  STOW_TRY(read_type(&f, from_type));
  STOW_TRY(check_run(to, t, count));
  STOW_TRY(check_run(from, f, count));
  loss l = {.relative = relative};
  if (count > 0) loss_add(&l, from, f, to, t, (size_t)count);
  *worst = l.worst;
  return STOW_OK;
}
