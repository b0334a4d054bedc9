/* Profile: estimates without bias and within the bound, peaks by line, and files that are damaged.
 */
#include "run/profile.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/newfile.h"
#include "harness.h"

#define KIB UINT64_C(1024)

static uint64_t state = 12345;

static double uniform(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (double)(state >> 11) * 0x1p-53;
}

TEST(a_block_represents_its_bytes_over_its_chance)
{
  /* 1 - exp(-1) for a block of one period */
  profile_amount one = profile_block(512 * KIB, 512 * KIB);
  double chance = 512. * 1024 / one.bytes;
  CHECK(chance > 0.6321205588 && chance < 0.6321205589);
  profile_amount large = profile_block(64 * 1024 * KIB, 512 * KIB);
  CHECK(large.bytes == 64. * 1024 * 1024 && large.variance == 0);
  CHECK(profile_block(0, 512 * KIB).bytes == 0);
}

/* The estimated variance of a block never exceeds bytes * period, so neither does that of a sum. */
TEST(the_variance_is_within_the_stated_bound)
{
  for (uint64_t bytes = 1; bytes < UINT64_C(1) << 40; bytes += bytes / 3 + 1) {
    profile_amount a = profile_block(bytes, PROFILE_PERIOD);
    CHECK(a.bytes >= (double)bytes * (1 - 1e-9));
    CHECK(a.variance <= a.bytes * (double)PROFILE_PERIOD * (1 + 1e-9));
  }
}

/* Sums of sampled blocks are right on average: 2000 rounds, so the mean's error is 1/45 of one. */
TEST(sums_are_unbiased)
{
  double sum = 0, true_bytes = 200. * 64 * 1024;
  for (int round = 0; round < 2000; round++)
    for (int i = 0; i < 200; i++) {
      profile_amount a = profile_block(64 * KIB, 512 * KIB);
      if (uniform() < 64. * 1024 / a.bytes) sum += a.bytes;
    }
  double bound = 5 * true_bytes * 0.2 / 44.7; /* the error of one sum is 20%: sqrt(512/64/200) */
  CHECK(sum / 2000 > true_bytes - bound && sum / 2000 < true_bytes + bound);
}

TEST(the_peak_of_each_line_is_what_it_held_at_the_peak_of_all)
{
  static profile_file f;
  profile_site *a = &f.sites[0], *b = &f.sites[1];
  profile_amount ten = {10, 0}, thirty = {30, 0};
  f.site_count = 2;
  profile_add(&f, a, ten);
  profile_add(&f, a, ten);
  profile_remove(&f, a, ten);
  profile_add(&f, b, thirty); /* the peak: 10 and 30 */
  profile_remove(&f, b, thirty);
  profile_add(&f, a, ten);
  profile_add(&f, a, ten); /* 30 in total: no peak */
  CHECK(f.held_peak == 40 && f.held == 30);
  CHECK(profile_at_peak(&f, a).bytes == 10 && profile_at_peak(&f, b).bytes == 30);
  CHECK(a->held.bytes == 30 && b->held.bytes == 0);
  CHECK(a->allocated.bytes == 40 && a->samples == 4);
}

TEST(libraries_are_not_the_programs_own)
{
  CHECK(profile_is_own("/data/me/train.py") && profile_is_own("train.py"));
  CHECK(profile_is_own("<string>") && profile_is_own("<ipython-input-1-abc>"));
  CHECK(!profile_is_own("") && !profile_is_own("<frozen importlib._bootstrap>"));
  CHECK(!profile_is_own("/x/lib/python3.11/site-packages/numpy/core.py"));
  CHECK(!profile_is_own("/usr/lib/python3.11/json/decoder.py"));
}

TEST(a_damaged_profile_is_refused)
{
  char path[600];
  profile_file *f = calloc(1, sizeof *f), *got = calloc(1, sizeof *f);
  CHECK(f != NULL && got != NULL);
  snprintf(path, sizeof path, "%s/1.profile", harness_folder());
  *f = (profile_file){.magic = PROFILE_MAGIC, .period = PROFILE_PERIOD, .site_count = 1};
  memset(f->sites[0].file, 'x', sizeof f->sites[0].file);
  CHECK(newfile_write(path, f, sizeof *f));
  CHECK_OK(profile_read(got, path));
  CHECK(strlen(got->sites[0].file) == sizeof got->sites[0].file - 1);
  f->sites[0].held.bytes = -1;
  CHECK(newfile_write(path, f, sizeof *f));
  CHECK(profile_read(got, path) == STOW_ERR_FORMAT);
  f->sites[0].held.bytes = 0;
  f->site_count = PROFILE_SITES_MAX + 1;
  CHECK(newfile_write(path, f, sizeof *f));
  CHECK(profile_read(got, path) == STOW_ERR_FORMAT);
  CHECK(newfile_write(path, f, 100));
  CHECK(profile_read(got, path) == STOW_ERR_FORMAT);
  CHECK(profile_read(got, "/nonexistent") == STOW_ERR_IO);
  free(f);
  free(got);
}

TEST_MAIN
