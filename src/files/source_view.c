/* Source view: cuts what is read into boxes of values that lie close to one another. */
#include "files/source_view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/list.h"

/* Repeated values may make views larger than the file: up to this, and this many times its size. */
#define REPEATED_BYTES (UINT64_C(1) << 30)
#define REPEATED_TIMES 16
/* A read of more than this is worth it if one byte in SPARSE is wanted. */
#define NEAR_BYTES (UINT64_C(16) << 10)
#define SPARSE     16

struct source_views {
  source_view *list;
  size_t count, capacity;
};

/* What one read needs. */
typedef struct collecting {
  const source_viewed *of;
  const source_view *view;
  uint8_t *near; /* SOURCE_VIEW_BYTES */
} collecting;

/* Values of the view: `size` of them in each dimension. */
typedef struct box {
  uint64_t offset; /* of the first one in the file */
  uint64_t size[SOURCE_VIEW_DIMS];
  uint64_t step[SOURCE_VIEW_DIMS]; /* in the destination, in values */
  uint8_t *to;
} box;

uint64_t source_view_end(const source_views *views, uint64_t bytes) {
  if (views == NULL || views->count == 0) return bytes;
  const source_view *last = &views->list[views->count - 1];
  return last->at + last->bytes;
}

void source_view_free(source_views *views) {
  if (views != NULL) free(views->list);
  free(views);
}

/* ---- adding ---- */

static stow_status measure(const source_viewed *s, source_view *v) {
  uint64_t last = 0, count = 1, reach, end;
  bool fits = v->dims <= SOURCE_VIEW_DIMS && v->width > 0 && v->width <= 16;
  for (uint32_t i = 0; fits && i < v->dims; i++) {
    if (v->shape[i] == 0) return stow_fail(STOW_ERR_INVALID, "%s: an empty view", s->name);
    fits = checked_mul(&count, count, v->shape[i]) &&
           checked_mul(&reach, v->shape[i] - 1, v->stride[i]) && checked_add(&last, last, reach);
  }
  fits = fits && checked_mul(&v->bytes, count, v->width) && checked_add(&end, last, 1) &&
         checked_mul(&end, end, v->width) && checked_add(&end, end, v->offset) && end <= s->bytes;
  if (fits) return STOW_OK;
  return stow_fail(STOW_ERR_FORMAT, "%s: a tensor with strides reaches past the end of the file",
                   s->name);
}

stow_status source_view_add(source_views **views, const source_viewed *of, const source_view *view,
                            uint64_t *at) {
  source_view made = *view;
  STOW_TRY(measure(of, &made));
  made.at = source_view_end(*views, of->bytes);
  uint64_t most = REPEATED_BYTES, end;
  if (of->bytes > (UINT64_MAX - most) / (REPEATED_TIMES + 1) ||
      !checked_add(&end, made.at, made.bytes) || end > most + (REPEATED_TIMES + 1) * of->bytes)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: an expanded tensor of %" PRIu64 " bytes in a file of %" PRIu64
                     "; save the tensor that it repeats",
                     of->name, made.bytes, of->bytes);
  if (*views == NULL) *views = calloc(1, sizeof **views);
  source_views *v = *views;
  if (v == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", of->name);
  STOW_TRY(LIST_ROOM(v->list, v->count, v->capacity, 16, "views"));
  v->list[v->count++] = made;
  *at = made.at;
  return STOW_OK;
}

/* ---- reading ---- */

static void copy_values(uint8_t *to, uint64_t step, const uint8_t *from, uint64_t stride,
                        uint64_t count, uint32_t width) {
#define COPY(bytes)                                                                                \
  for (uint64_t i = 0; i < count; i++)                                                             \
  memcpy(to + i * step * (bytes), from + i * stride * (bytes), (bytes))
  switch (width) {
  case 1: COPY(1); break;
  case 2: COPY(2); break;
  case 4: COPY(4); break;
  case 8: COPY(8); break;
  default: COPY(width); break;
  }
#undef COPY
}

static void copy_box(const source_view *v, const box *b, uint32_t dim, uint8_t *to,
                     const uint8_t *from) {
  if (dim >= v->dims) {
    memcpy(to, from, v->width);
    return;
  }
  if (dim + 1 == v->dims) {
    copy_values(to, b->step[dim], from, v->stride[dim], b->size[dim], v->width);
    return;
  }
  for (uint64_t i = 0; i < b->size[dim]; i++)
    copy_box(v, b, dim + 1, to + i * b->step[dim] * v->width, from + i * v->stride[dim] * v->width);
}

/* Reads the range that holds the box at once, or cuts the box where it is longest. Each cut halves
 * a dimension, so the depth is at most 64 times the dimensions. */
static stow_status read_box(const collecting *c, const box *b) {
  const source_view *v = c->view;
  uint64_t span = 1, count = 1, longest = 0;
  uint32_t cut = 0;
  for (uint32_t i = 0; i < v->dims; i++) {
    uint64_t reach = (b->size[i] - 1) * v->stride[i];
    span += reach;
    count *= b->size[i];
    if (reach > longest) longest = reach, cut = i;
  }
  span *= v->width;
  bool dense = span <= NEAR_BYTES || count * v->width >= span / SPARSE;
  if (span <= SOURCE_VIEW_BYTES && dense) {
    STOW_TRY(c->of->read(c->of->user, b->offset, c->near, (size_t)span));
    copy_box(v, b, 0, b->to, c->near);
    return STOW_OK;
  }
  box half = *b;
  half.size[cut] = b->size[cut] / 2;
  STOW_TRY(read_box(c, &half));
  half.offset += half.size[cut] * v->stride[cut] * v->width;
  half.to += half.size[cut] * b->step[cut] * v->width;
  half.size[cut] = b->size[cut] - half.size[cut];
  return read_box(c, &half);
}

/* Reads values `first` to `first` + `count` of the view from dimension `dim` on; `offset` is where
 * its first value is. The middle is one box; the ends are parts of one step. */
static stow_status read_range(const collecting *c, uint32_t dim, uint64_t offset, uint64_t first,
                              uint64_t count, uint8_t *to) {
  const source_view *v = c->view;
  uint64_t inner = 1;
  if (count == 0) return STOW_OK;
  for (uint32_t i = dim + 1; i < v->dims; i++) inner *= v->shape[i];
  uint64_t row = first / inner, skip = first % inner;
  if (skip > 0 || count < inner) {
    uint64_t part = count < inner - skip ? count : inner - skip;
    STOW_TRY(read_range(c, dim + 1, offset + row * v->stride[dim] * v->width, skip, part, to));
    return read_range(c, dim, offset, first + part, count - part, to + part * v->width);
  }
  box b = {.to = to, .offset = offset};
  for (uint32_t i = 0; i < v->dims; i++) b.size[i] = i < dim ? 1 : v->shape[i];
  if (v->dims > 0) {
    b.offset += row * v->stride[dim] * v->width;
    b.size[dim] = count / inner;
  }
  uint64_t step = 1;
  for (uint32_t i = v->dims; i-- > 0;) {
    b.step[i] = step;
    if (i >= dim) step *= b.size[i];
  }
  STOW_TRY(read_box(c, &b));
  uint64_t done = count / inner * inner;
  return read_range(c, dim, offset, first + done, count - done, to + done * v->width);
}

static stow_status read_values(const collecting *c, uint64_t first, uint64_t count, uint8_t *to) {
  return read_range(c, 0, c->view->offset, first, count, to);
}

/* Reads bytes of one view; the first and the last value may be in part. */
static stow_status read_view(const collecting *c, uint64_t at, uint8_t *to, uint64_t count) {
  uint32_t width = c->view->width;
  while (count > 0) {
    uint64_t within = at % width, done = count / width * width;
    if (within == 0 && done > 0) {
      STOW_TRY(read_values(c, at / width, done / width, to));
    } else {
      uint8_t value[16];
      done = count < width - within ? count : width - within;
      STOW_TRY(read_values(c, at / width, 1, value));
      memcpy(to, value + within, (size_t)done);
    }
    at += done, to += done, count -= done;
  }
  return STOW_OK;
}

stow_status source_view_read(const source_views *views, const source_viewed *of, uint64_t offset,
                             void *to, size_t count) {
  size_t low = 0, high = views->count;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (views->list[middle].at <= offset)
      low = middle;
    else
      high = middle;
  }
  const source_view *v = &views->list[low];
  if (high == 0 || offset < v->at || count > v->bytes || offset - v->at > v->bytes - count)
    return stow_fail(STOW_ERR_FORMAT, "%s: requested %zu bytes past the end of a tensor", of->name,
                     count);
  collecting c = {.of = of, .view = v, .near = malloc(SOURCE_VIEW_BYTES)};
  if (c.near == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", of->name);
  stow_status status = read_view(&c, offset - v->at, to, count);
  free(c.near);
  return status;
}
