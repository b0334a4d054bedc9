/* Views of a source: values at strides are read as if they followed one another. */
#include "files/source_view.h"

#include <stdlib.h>

#include "files/source.h"
#include "harness.h"

enum { BYTES = 4 << 20 };

static uint64_t state = 7;

static uint64_t below(uint64_t bound) {
  state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (state >> 33) % bound;
}

/* Writes the whole view, value by value. */
static void expand(const source_view *v, uint32_t dim, const uint8_t *from, uint8_t **to) {
  if (dim == v->dims) {
    memcpy(*to, from, v->width);
    *to += v->width;
    return;
  }
  for (uint64_t i = 0; i < v->shape[dim]; i++)
    expand(v, dim + 1, from + i * v->stride[dim] * v->width, to);
}

static source_view random_view(uint64_t *bytes) {
  for (;;) {
    source_view v = {.dims = (uint32_t)below(5), .width = 1u << below(4), .offset = below(64)};
    uint64_t last = 0;
    *bytes = v.width;
    for (uint32_t i = 0; i < v.dims; i++) {
      v.shape[i] = 1 + below(below(8) == 0 ? 400 : 12);
      v.stride[i] = below(6) == 0 ? 0 : below(5) == 0 ? below(20000) : below(40);
      last += (v.shape[i] - 1) * v.stride[i];
      *bytes *= v.shape[i];
    }
    if (v.offset + (last + 1) * v.width <= BYTES && *bytes <= BYTES) return v;
  }
}

TEST(any_part_of_a_view_is_what_its_values_give)
{
  uint8_t *file = malloc(BYTES), *all = malloc(BYTES), *part = malloc(BYTES);
  CHECK(file != NULL && all != NULL && part != NULL);
  for (size_t i = 0; i < BYTES; i++) file[i] = (uint8_t)(i * 31 + i / 255);
  source s;
  source_open_memory(&s, file, BYTES, "views");
  for (int i = 0; i < 300; i++) {
    uint64_t bytes, at;
    source_view v = random_view(&bytes);
    uint8_t *end = all;
    expand(&v, 0, file + v.offset, &end);
    CHECK_OK(source_add_view(&s, &v, &at));
    CHECK_U64(source_end(&s), at + bytes);
    CHECK_OK(source_read(&s, at, part, (size_t)bytes));
    CHECK(memcmp(part, all, (size_t)bytes) == 0);
    for (int k = 0; k < 4; k++) { /* also from the middle of a value */
      uint64_t first = below(bytes), count = 1 + below(bytes - first);
      CHECK_OK(source_read(&s, at + first, part, (size_t)count));
      CHECK(memcmp(part, all + first, (size_t)count) == 0);
    }
    CHECK_STATUS(source_read(&s, at + bytes - 1, part, 2), STOW_ERR_FORMAT);
  }
  source_close(&s);
  free(file), free(all), free(part);
}

TEST(a_view_past_the_file_or_of_endless_repeats_is_refused)
{
  static const uint8_t file[64];
  source s;
  uint64_t at;
  source_open_memory(&s, file, sizeof file, "views");
  source_view fits = {.width = 4, .dims = 1, .shape = {4}, .stride = {5}};
  CHECK_OK(source_add_view(&s, &fits, &at));
  source_view past = {.width = 4, .dims = 1, .shape = {5}, .stride = {4}};
  CHECK_STATUS(source_add_view(&s, &past, &at), STOW_ERR_FORMAT);
  source_view wraps = {.width = 4, .dims = 2, .shape = {3, 3}, .stride = {UINT64_MAX / 2, 1}};
  CHECK_STATUS(source_add_view(&s, &wraps, &at), STOW_ERR_FORMAT);
  source_view endless = {.width = 4, .dims = 1, .shape = {UINT64_C(1) << 40}, .stride = {0}};
  CHECK_STATUS(source_add_view(&s, &endless, &at), STOW_ERR_UNSUPPORTED);
  source_close(&s);
}

TEST_MAIN
