/* PiSSA: what this initialization subtracted from the base, computed again from the base.
 *
 * With W = U S V^T, PEFT starts with the part of the r largest singular values as B and A, and
 * leaves the rest of W as the base. It repeats that when it loads an adapter, with a float32
 * decomposition of the whole W. Here it is float64: a Lanczos iteration finds the first r columns
 * of V, which are eigenvectors of W^T W, with one pass over W for each step and no whole W in
 * memory. The part is then (W V) V^T. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/hash.h"
#include "data/weights/layers.h"

#define STEP_ROWS   ((size_t)16)
#define FIRST_STEPS ((size_t)32) /* of the basis; then half as many again */
/* The part that is subtracted is right to this share of the largest singular value: a hundredth of
 * what float32 can show. */
#define PRECISION 1e-11
/* Singular values r and r + 1 that are closer than this: which of their vectors belongs to the part
 * depends on rounding. */
#define EQUAL     1e-7
#define TURNS_MAX 60 /* for one eigenvalue of the tridiagonal matrix; it takes two or three */

typedef struct krylov {
  weights_job *j;
  const weights_item *item;
  size_t rows, columns;
  uint8_t *bytes;
  double *values;       /* STEP_ROWS rows */
  double *basis;        /* count + 1 vectors of `columns` values */
  double *alpha, *beta; /* the tridiagonal matrix; beta[i] is between i and i + 1 */
  size_t count, capacity;
  bool whole;          /* the basis has all of W: the next vector would be 0 */
  const double *found; /* vectors to stay orthogonal to */
  size_t found_count;
} krylov;

static double dot(const double *a, const double *b, size_t count) {
  double sum[8] = {0};
  size_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (size_t k = 0; k < 8; k++) sum[k] += a[i + k] * b[i + k];
  for (; i < count; i++) sum[0] += a[i] * b[i];
  return (sum[0] + sum[4]) + (sum[1] + sum[5]) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

static void add(double *to, double factor, const double *from, size_t count) {
  for (size_t i = 0; i < count; i++) to[i] += factor * from[i];
}

/* Reads W once. With `left`, writes W times the `rank` vectors at x to it; otherwise sets y to
 * W^T W x. */
static stow_status pass(const krylov *s, const double *x, size_t rank, double *left, double *y) {
  size_t columns = s->columns;
  if (left == NULL) memset(y, 0, columns * sizeof *y);
  for (size_t row = 0; row < s->rows; row += STEP_ROWS) {
    size_t rows = s->rows - row < STEP_ROWS ? s->rows - row : STEP_ROWS;
    STOW_TRY(layers_read_rows(s->j, s->item, row, rows, s->bytes, s->values));
    for (size_t i = 0; i < rows; i++) {
      const double *w = s->values + i * columns;
      for (size_t k = 0; k < rank && left != NULL; k++)
        left[(row + i) * rank + k] = dot(w, x + k * columns, columns);
      if (left == NULL) add(y, dot(w, x, columns), w, columns);
    }
  }
  return STOW_OK;
}

/* ---- the basis ---- */

/* Makes a vector orthogonal to the basis and to what was found, twice, which is enough for the last
 * bits. */
static void orthogonalize(const krylov *s, double *v) {
  for (int turn = 0; turn < 2; turn++) {
    for (size_t i = 0; i < s->found_count; i++) {
      const double *other = s->found + i * s->columns;
      add(v, -dot(other, v, s->columns), other, s->columns);
    }
    for (size_t i = 0; i < s->count; i++) {
      const double *other = s->basis + i * s->columns;
      add(v, -dot(other, v, s->columns), other, s->columns);
    }
  }
}

static bool make_unit(double *v, size_t count, double length) {
  for (size_t i = 0; i < count; i++) v[i] /= length;
  return length > 0;
}

static stow_status grow(krylov *s, size_t capacity, uint64_t max_bytes) {
  uint64_t need = ((uint64_t)(capacity + 1) * s->columns + 2 * (uint64_t)capacity * capacity) * 8;
  if (need > max_bytes) {
    char have[STOW_SIZE_TEXT_MAX], wants[STOW_SIZE_TEXT_MAX];
    return stow_fail(STOW_ERR_BUDGET,
                     "tensor %.200s: to repeat what PiSSA did to it needs a budget of %s, not %s; "
                     "raise --memory",
                     s->item->from.facts->name, stow_size_format(wants, need * 4),
                     stow_size_format(have, max_bytes * 4));
  }
  double *basis = realloc(s->basis, (capacity + 1) * s->columns * sizeof *basis);
  if (basis != NULL) s->basis = basis;
  double *alpha = realloc(s->alpha, capacity * sizeof *alpha);
  if (alpha != NULL) s->alpha = alpha;
  double *beta = realloc(s->beta, capacity * sizeof *beta);
  if (beta != NULL) s->beta = beta;
  if (basis == NULL || alpha == NULL || beta == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %.200s", s->item->from.facts->name);
  s->capacity = capacity;
  return STOW_OK;
}

static void krylov_free(krylov *s) {
  free(s->bytes);
  free(s->values);
  free(s->basis);
  free(s->alpha);
  free(s->beta);
}

/* Starts with a vector that has a part of every direction: fixed random numbers. */
static stow_status krylov_start(krylov *s, size_t capacity, uint64_t max_bytes) {
  s->bytes = malloc(STEP_ROWS * s->columns * dtype_bytes(s->item->from.facts->type));
  s->values = malloc(STEP_ROWS * s->columns * sizeof *s->values);
  if (s->bytes == NULL || s->values == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %.200s", s->item->from.facts->name);
  STOW_TRY(grow(s, capacity, max_bytes));
  for (size_t i = 0; i < s->columns; i++)
    s->basis[i] = (double)(hash_u64(i, 1) >> 11) * 0x1p-52 - 1;
  orthogonalize(s, s->basis);
  double length = sqrt(dot(s->basis, s->basis, s->columns));
  s->whole = !(length > 0x1p-20); /* nothing is left beside what was found */
  make_unit(s->basis, s->columns, length);
  return STOW_OK;
}

/* Adds steps until there are `count`. */
static stow_status krylov_step(krylov *s, size_t count) {
  double largest = 0;
  for (size_t i = 0; i < s->count; i++) largest = fmax(largest, fabs(s->alpha[i]));
  while (s->count < count && !s->whole) {
    double *now = s->basis + s->count * s->columns, *next = now + s->columns;
    STOW_TRY(pass(s, now, 0, NULL, next));
    s->alpha[s->count] = dot(now, next, s->columns);
    largest = fmax(largest, fabs(s->alpha[s->count]));
    s->count++;
    orthogonalize(s, next);
    double length = sqrt(dot(next, next, s->columns));
    s->beta[s->count - 1] = length;
    s->whole = s->count + s->found_count == s->columns ||
               !(length > (double)s->columns * DBL_EPSILON * largest);
    if (!s->whole) make_unit(next, s->columns, length);
  }
  return STOW_OK;
}

/* ---- the tridiagonal matrix ---- */

/* Turns z[i] and z[i + 1], vectors of `length` values. */
static void turn(double *z, size_t length, size_t i, double s, double c) {
  double *a = z + i * length, *b = a + length;
  for (size_t k = 0; k < length; k++) {
    double old = b[k];
    b[k] = s * a[k] + c * old;
    a[k] = c * a[k] - s * old;
  }
}

/* One step of QL with implicit shifts on the block from `first` to `last`. */
static void ql_step(double *d, double *e, size_t first, size_t last, double *z, size_t length) {
  double g = (d[first + 1] - d[first]) / (2 * e[first]), r = hypot(g, 1);
  double s = 1, c = 1, p = 0;
  g = d[last] - d[first] + e[first] / (g + copysign(r, g));
  for (size_t i = last; i-- > first;) {
    double f = s * e[i], b = c * e[i];
    e[i + 1] = r = hypot(f, g);
    if (r == 0) {
      d[i + 1] -= p;
      e[last] = 0;
      return;
    }
    s = f / r;
    c = g / r;
    g = d[i + 1] - p;
    r = (d[i] - g) * s + 2 * c * b;
    p = s * r;
    d[i + 1] = g + p;
    g = c * r - b;
    turn(z, length, i, s, c);
  }
  d[first] -= p;
  e[first] = g;
  e[last] = 0;
}

/* Finds the eigenvalues of a symmetric tridiagonal matrix: d is its diagonal, e the one beside it,
 * with space for `count`. z[i], of `length` values, becomes the part of eigenvector i in the
 * `length` rows whose unit vectors z held. */
static bool find_eigenvalues(double *d, double *e, size_t count, double *z, size_t length) {
  e[count - 1] = 0;
  for (size_t first = 0; first < count; first++)
    for (int turns = 0;; turns++) {
      size_t last = first;
      while (last + 1 < count && fabs(e[last]) > DBL_EPSILON * (fabs(d[last]) + fabs(d[last + 1])))
        last++;
      if (last == first) break;
      if (turns == TURNS_MAX) return false;
      ql_step(d, e, first, last, z, length);
    }
  return true;
}

/* Writes the numbers of the `count` largest values to `order`, largest first. */
static void find_largest(const double *d, size_t all, size_t *order, size_t count) {
  for (size_t i = 0; i < count; i++) {
    size_t best = SIZE_MAX;
    for (size_t k = 0; k < all; k++) {
      bool taken = false;
      for (size_t n = 0; n < i && !taken; n++) taken = order[n] == k;
      if (!taken && (best == SIZE_MAX || d[k] > d[best])) best = k;
    }
    order[i] = best;
  }
}

typedef struct spectrum {
  double *d, *e, *z;
  size_t *order;
} spectrum;

static void spectrum_free(spectrum *v) {
  free(v->d);
  free(v->e);
  free(v->z);
  free(v->order);
}

/* Finds the eigenvalues of the steps so far, and of the eigenvectors the last row, or all rows. */
static stow_status find_spectrum(const krylov *s, spectrum *v, size_t rank, bool all) {
  size_t count = s->count, length = all ? count : 1;
  *v = (spectrum){.d = malloc(count * sizeof *v->d),
                  .e = malloc(count * sizeof *v->e),
                  .z = calloc(count * length, sizeof *v->z),
                  .order = malloc(rank * sizeof *v->order)};
  if (v->d == NULL || v->e == NULL || v->z == NULL || v->order == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %.200s", s->item->from.facts->name);
  memcpy(v->d, s->alpha, count * sizeof *v->d);
  memcpy(v->e, s->beta, count * sizeof *v->e);
  for (size_t i = 0; i < count && all; i++) v->z[i * length + i] = 1;
  if (!all) v->z[count - 1] = 1;
  if (!find_eigenvalues(v->d, v->e, count, v->z, length))
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "tensor %.200s: its singular values cannot be found; save the adapter with "
                     "PEFT's path_initial_model_for_weight_conversion and merge that",
                     s->item->from.facts->name);
  find_largest(v->d, count, v->order, rank < count ? rank : count);
  return STOW_OK;
}

static stow_status equal_values(const krylov *s, size_t rank) {
  return stow_fail(
      STOW_ERR_UNSUPPORTED,
      "tensor %.200s: its singular values %zu and %zu are equal or nearly so, and what "
      "PiSSA did to it depends on rounding; save the adapter with PEFT's "
      "path_initial_model_for_weight_conversion and merge that",
      s->item->from.facts->name, rank, rank + 1);
}

/* Decides whether the `rank` largest eigenvectors are known; *least is the smallest of their
 * eigenvalues. */
static stow_status judge(const krylov *s, size_t rank, bool *known, double *least) {
  spectrum v;
  *known = false;
  size_t count = s->count, wanted = rank + 1;
  stow_status status = find_spectrum(s, &v, wanted, false);
  if (status == STOW_OK && (count >= wanted || s->whole)) {
    double rest = s->whole ? 0 : s->beta[count - 1], error = 0;
    double first = fmax(v.d[v.order[0]], 0);
    double last = count >= rank ? fmax(v.d[v.order[rank - 1]], 0) : 0, after = 0, after_error = 0;
    if (count >= wanted) {
      after = fmax(v.d[v.order[rank]], 0);
      after_error = rest * fabs(v.z[v.order[rank]]);
    }
    for (size_t i = 0; i < rank && i < count; i++)
      error = fmax(error, rest * fabs(v.z[v.order[i]]));
    double gap = last - after - after_error, weight = sqrt(last * first);
    bool settled = error <= 1e-15 * first && after_error <= 1e-9 * weight;
    *least = last;
    if (gap >= EQUAL * weight)
      *known = error * weight <= PRECISION * gap * first || error <= 1e-15 * first;
    else if (settled)
      status = equal_values(s, rank);
  }
  spectrum_free(&v);
  return status;
}

/* Adds steps until the `rank` largest eigenvectors are known. */
static stow_status iterate(krylov *s, size_t rank, uint64_t max_bytes, double *least) {
  bool known = false;
  for (size_t count = s->capacity; !known; count += count / 2) {
    if (count > s->columns) count = s->columns;
    if (count > s->capacity) STOW_TRY(grow(s, count, max_bytes));
    STOW_TRY(krylov_step(s, count));
    if (s->count > 0) STOW_TRY(judge(s, rank, &known, least));
    if (s->whole && !known && s->count > 0) return equal_values(s, rank);
    if (s->count == 0) return STOW_OK;
  }
  return STOW_OK;
}

/* Writes the eigenvectors, `rank` of them or as many as there are; the others stay 0. */
static stow_status combine(const krylov *s, size_t rank, double *to) {
  spectrum v;
  stow_status status = find_spectrum(s, &v, rank, true);
  for (size_t i = 0; i < rank && i < s->count && status == STOW_OK; i++)
    for (size_t k = 0; k < s->count; k++)
      add(to + i * s->columns, v.z[v.order[i] * s->count + k], s->basis + k * s->columns,
          s->columns);
  spectrum_free(&v);
  return status;
}

/* A vector of the basis has one direction for all equal eigenvalues. Looks for another one that is
 * as large as those found. */
static stow_status check_others(const krylov *of, size_t rank, const double *found, double least,
                                uint64_t max_bytes) {
  krylov s = {.j = of->j,
              .item = of->item,
              .rows = of->rows,
              .columns = of->columns,
              .found = found,
              .found_count = rank};
  spectrum v = {0};
  if (of->whole && of->count == of->columns) return STOW_OK;
  size_t count =
      2 * rank + FIRST_STEPS < s.columns - rank ? 2 * rank + FIRST_STEPS : s.columns - rank;
  stow_status status = count > 0 ? krylov_start(&s, count, max_bytes) : STOW_OK;
  if (status == STOW_OK) status = krylov_step(&s, count);
  if (status == STOW_OK && s.count > 0) status = find_spectrum(&s, &v, 1, false);
  if (status == STOW_OK && s.count > 0 && v.d[v.order[0]] > least * (1 - EQUAL) && least > 0)
    status = equal_values(&s, rank);
  spectrum_free(&v);
  krylov_free(&s);
  return status;
}

stow_status layer_load_pissa(weights_job *j, layer *l, uint64_t max_bytes) {
  const weights_item *item = &j->r->items[l->item];
  const tensor *w = item->from.facts;
  krylov s = {.j = j, .item = item, .rows = (size_t)w->shape[0], .columns = (size_t)item->row};
  size_t steps = l->rank + 1 + FIRST_STEPS < s.columns ? l->rank + 1 + FIRST_STEPS : s.columns;
  double least = 0;
  l->left = malloc(s.rows * l->rank * sizeof *l->left);
  l->right = calloc(l->rank * s.columns, sizeof *l->right);
  stow_status status = l->left != NULL && l->right != NULL
                           ? STOW_OK
                           : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %.200s", w->name);
  if (status == STOW_OK) status = krylov_start(&s, steps, max_bytes);
  if (status == STOW_OK) status = iterate(&s, l->rank, max_bytes, &least);
  if (status == STOW_OK) status = combine(&s, l->rank, l->right);
  if (status == STOW_OK) status = check_others(&s, l->rank, l->right, least, max_bytes);
  if (status == STOW_OK) status = pass(&s, l->right, l->rank, l->left, NULL);
  krylov_free(&s);
  return status;
}
