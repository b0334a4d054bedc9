/* Values: finds the smallest type that holds numbers exactly, and casts to it.
 *
 *   stow_values *values;
 *   stow_values_open(&values, "float64");
 *   stow_values_add(values, numbers, count);               as often as there are parts
 *   stow_values_facts facts = STOW_VALUES_FACTS_INIT;
 *   stow_values_get(values, &facts);                       facts.smallest is "float32"
 *   stow_values_close(values);
 *   stow_values_cast(small, "float32", numbers, "float64", count);
 *
 * Types have NumPy names or short names ("f32"). Checks every value, never samples.
 *
 * Threads: a stow_values is for one thread at a time; cast and error keep no state. Fork: a child
 * may use its copy. Link with -lstowage-data. */
#ifndef STOWAGE_VALUES_H
#define STOWAGE_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_values stow_values;

typedef struct stow_values_facts {
  uint32_t struct_bytes; /* sizeof(stow_values_facts), set by the caller */
  uint32_t whole;        /* 1: all values are integers that fit in 64 bits */
  uint64_t count, nans, infs;
  uint64_t zeros;     /* values that are +0, which a sparse form may leave out */
  double least, most; /* the range without NaN; least > most if there are only NaN */
  char smallest[16];  /* the type of fewest bytes that holds every value exactly */
} stow_values_facts;
#define STOW_VALUES_FACTS_INIT                                                                     \
  { sizeof(stow_values_facts), 0, 0, 0, 0, 0, 0, 0, "" }

/* Starts with no values. STOW_ERR_INVALID: unknown number type. */
STOW_API stow_status stow_values_open(stow_values **values, const char *type);
/* Checks `count` more values, which need no alignment, in this machine's byte order. */
STOW_API stow_status stow_values_add(stow_values *values, const void *from, uint64_t count);
STOW_API stow_status stow_values_get(const stow_values *values, stow_values_facts *facts);
/* Finds out whether `type` can hold every value exactly. */
STOW_API stow_status stow_values_fit(const stow_values *values, const char *type, bool *fits);
/* Closes it; NULL is allowed. */
STOW_API stow_status stow_values_close(stow_values *values);

/* Converts `count` values; the buffers must not overlap. Floats are rounded once, to nearest.
 * Floats become integers by rounding towards zero, clamped to the range. Integers keep their low
 * bits in narrower integers. */
STOW_API stow_status stow_values_cast(void *to, const char *to_type, const void *from,
                                      const char *from_type, uint64_t count);
/* Returns the largest error of a cast: an amount, or (`relative`) a fraction of a value. Infinite
 * if a finite value became infinite. */
STOW_API stow_status stow_values_error(double *worst, bool relative, const void *to,
                                       const char *to_type, const void *from, const char *from_type,
                                       uint64_t count);

#ifdef __cplusplus
}
#endif
#endif
