/* Profile: the host memory of a process by line, written by libstowage-profile.so and read by
 * `stowage run --profile`.
 *
 * The library samples allocations: on average one in PROFILE_PERIOD bytes, with exponential
 * distances. A block of s bytes is sampled with probability p = 1 - exp(-s / period), and then
 * stands for s / p bytes, so every sum is unbiased. Its variance is at most bytes * period (s^2 /
 * (exp(s / period) - 1) <= s * period for each block): the standard error of a line is at most
 * sqrt(bytes * period), and far less where the blocks are larger than the period.
 *
 * The file PID.profile is this struct, mapped and shared: a process that is killed leaves it
 * complete. One process writes it; the command reads it when the process has ended, and validates
 * everything in it. */
#ifndef RUN_PROFILE_H
#define RUN_PROFILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define PROFILE_MAGIC     UINT64_C(0x31666f7270777473) /* "stwprof1" */
#define PROFILE_PERIOD    (UINT64_C(512) << 10)
#define PROFILE_SITES_MAX 8192

/* Estimated bytes and the variance of the estimate. */
typedef struct profile_amount {
  double bytes, variance;
} profile_amount;

/* A source line that allocates: the innermost one outside libraries. */
typedef struct profile_site {
  char file[256], function[96]; /* both "": no Python line */
  uint32_t line;
  uint32_t unused;
  uint64_t samples;
  profile_amount allocated; /* all allocations */
  profile_amount held;      /* allocations that were not freed */
  profile_amount at_peak;   /* bytes not freed at the peak of the process; valid if `peak` is the
                             * current peak */
  uint64_t peak;            /* number of the peak that at_peak belongs to */
} profile_site;

typedef struct profile_file {
  uint64_t magic, period;
  uint64_t peak;               /* number of the highest peak so far */
  double held, held_peak;      /* bytes of all sites */
  uint64_t dropped;            /* samples lost because the table was full */
  uint32_t site_count, frozen; /* frozen: the interpreter is exiting and nothing more is counted */
  profile_site sites[PROFILE_SITES_MAX];
} profile_file;

/* Returns the estimate that a sampled block of `bytes` bytes represents. */
profile_amount profile_block(uint64_t bytes, uint64_t period);

/* Count the allocation and the free of a sampled block at a site. */
void profile_add(profile_file *f, profile_site *s, profile_amount block);
void profile_remove(profile_file *f, profile_site *s, profile_amount block);
/* Returns what the site held at the peak of the process. */
profile_amount profile_at_peak(const profile_file *f, const profile_site *s);

/* Returns whether a Python file belongs to the program rather than to a library or the
 * interpreter. */
bool profile_is_own(const char *file);

/* Reads folder/name. Limits the counts and terminates the texts. STOW_ERR_FORMAT: not a profile. */
stow_status profile_read(profile_file *f, const char *path);

#endif
