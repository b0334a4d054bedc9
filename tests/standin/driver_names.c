/* Stand-in libcuda, the rest of it: every name a real driver exports and the other files here do
 * not define.
 *
 * Such a function returns its own number (standin_number of its name) and stores its arguments, so
 * that a test can check that a call reached the right function with all arguments. */
#include <string.h>

#include "device/cuda_driver.h"
#include "standin/cuda_standin.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define FIRST_NUMBER 10000

static const char *const names[] = {
#define SYMBOL(name) #name,
#include <standin-symbols.inc>
#undef SYMBOL
};
enum {
#define SYMBOL(name) NUMBER_##name,
#include <standin-symbols.inc>
#undef SYMBOL
  NAME_COUNT
};

int standin_number(const char *name) {
  for (int i = 0; i < NAME_COUNT; i++)
    if (strcmp(names[i], name) == 0) return FIRST_NUMBER + i;
  return -1;
}

static _Thread_local standin_words last;

const standin_words *standin_last(void) {
  return &last;
}

/* Enough words to fill every argument register, and two on the stack. */
#define PARAMETERS                                                                                 \
  uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h,  \
      uint64_t i, uint64_t j, double s, double t, double u, double v, double w, double x,          \
      double y, double z
#define SYMBOL(name)                                                                               \
  __attribute__((weak, visibility("default"))) cu_result name(PARAMETERS) {                        \
    last = (standin_words){{a, b, c, d, e, f, g, h, i, j}, {s, t, u, v, w, x, y, z}};              \
    return FIRST_NUMBER + NUMBER_##name;                                                           \
  }
#include <standin-symbols.inc>
#undef SYMBOL
