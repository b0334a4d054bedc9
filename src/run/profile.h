/* Profile: what libstowage-profile.so keeps about the host memory of a process, and `stowage run
 * --profile` reads.
 *
 * The library samples allocations: on average one in PROFILE_PERIOD bytes, with exponential
 * distances. A block of s bytes is sampled with probability p = 1 - exp(-s / period), and then
 * stands for s / p bytes, so every sum is unbiased. Its variance is at most bytes * period
 * (s^2 / (exp(s / period) - 1) <= s * period for each block): the standard error of a line is at
 * most sqrt(bytes * period), and far less where the blocks are larger than the period.
 *
 * The file PID.profile is this struct, mapped and shared: a process that is killed leaves it
 * complete. One process writes it; the command reads it when the process has ended, and trusts
 * nothing in it. */
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

/* A line of the program that allocates: the innermost one that is not a library's. */
typedef struct profile_site {
  char file[256], function[96]; /* both "": no Python line */
  uint32_t line;
  uint32_t unused;
  uint64_t samples;
  profile_amount allocated; /* all of it */
  profile_amount held;      /* not freed */
  profile_amount at_peak;   /* not freed when the process held most; valid if peak is current */
  uint64_t peak;            /* number of the peak that at_peak belongs to */
} profile_site;

typedef struct profile_file {
  uint64_t magic, period;
  uint64_t peak;               /* number of the highest peak so far */
  double held, held_peak;      /* bytes of all sites */
  uint64_t dropped;            /* samples without a site: the table was full */
  uint32_t site_count, frozen; /* frozen: the interpreter is exiting, nothing more is counted */
  profile_site sites[PROFILE_SITES_MAX];
} profile_file;

/* Returns what a sampled block of `bytes` bytes stands for. */
profile_amount profile_block(uint64_t bytes, uint64_t period);

/* Counts a sampled block at a site, and the end of one. */
void profile_add(profile_file *f, profile_site *s, profile_amount block);
void profile_remove(profile_file *f, profile_site *s, profile_amount block);
/* Returns what the site held when the process held most. */
profile_amount profile_at_peak(const profile_file *f, const profile_site *s);

/* Returns whether a Python file is the program's own: neither a library's nor the interpreter's. */
bool profile_is_own(const char *file);

/* Reads folder/name. Bounds the counts and ends the texts. STOW_ERR_FORMAT: not a profile. */
stow_status profile_read(profile_file *f, const char *path);

#endif
