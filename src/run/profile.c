/* Profile: estimates and peaks, and the reader. */
#include "run/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* Returns 1 - exp(-x) without libm: a series for a small fraction of x, doubled with 1 - exp(-2x) =
 * 2p - p^2. This loses no digits. */
static double chance(double x) {
  int doublings = 0;
  if (x > 40) return 1;
  for (; x > 1e-3; x /= 2) doublings++;
  double p = x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4)));
  for (; doublings > 0; doublings--) p = p * (2 - p);
  return p;
}

profile_amount profile_block(uint64_t bytes, uint64_t period) {
  if (bytes == 0) return (profile_amount){0};
  double p = chance((double)bytes / (double)period);
  double stands_for = (double)bytes / p;
  return (profile_amount){stands_for, stands_for * stands_for * (1 - p)};
}

static void add(profile_amount *to, profile_amount block, double sign) {
  to->bytes += sign * block.bytes;
  to->variance += sign * block.variance;
  if (to->bytes < 0.5) *to = (profile_amount){0}; /* only rounding errors are left */
  if (to->variance < 0) to->variance = 0;
}

/* Saves what a site held at the peak. A peak is one number for all sites; each site saves its bytes
 * when it first changes after the peak, so a new peak does not have to visit all sites. */
static void keep_peak(const profile_file *f, profile_site *s) {
  if (s->peak == f->peak) return;
  s->at_peak = s->held;
  s->peak = f->peak;
}

void profile_add(profile_file *f, profile_site *s, profile_amount block) {
  keep_peak(f, s);
  s->samples++;
  add(&s->allocated, block, 1);
  add(&s->held, block, 1);
  f->held += block.bytes;
  if (f->held > f->held_peak) {
    f->held_peak = f->held;
    f->peak++;
  }
}

void profile_remove(profile_file *f, profile_site *s, profile_amount block) {
  keep_peak(f, s);
  add(&s->held, block, -1);
  f->held -= block.bytes;
}

profile_amount profile_at_peak(const profile_file *f, const profile_site *s) {
  return s->peak == f->peak ? s->at_peak : s->held;
}

bool profile_is_own(const char *file) {
  static const char *const LIBRARIES[] = {"/site-packages/", "/dist-packages/", "/lib/python3",
                                          "/lib64/python3"};
  if (file[0] == '\0') return false;
  for (size_t i = 0; i < sizeof LIBRARIES / sizeof LIBRARIES[0]; i++)
    if (strstr(file, LIBRARIES[i]) != NULL) return false;
  /* Excludes "<frozen …>", "<stowage …>", "<__array_function__ internals>"; code that people type
   * is their own. */
  return file[0] != '<' || strcmp(file, "<string>") == 0 || strcmp(file, "<stdin>") == 0 ||
         strncmp(file, "<ipython-input", 14) == 0;
}

static bool is_amount(profile_amount a) {
  return a.bytes >= 0 && a.bytes < 0x1p63 && a.variance >= 0 && isfinite(a.variance);
}

stow_status profile_read(profile_file *f, const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return stow_fail(STOW_ERR_IO, "%.400s: cannot be opened: %s", path, strerror(errno));
  size_t got = 0;
  for (ssize_t more = 1; more > 0 && got<sizeof *f; got += more> 0 ? (size_t)more : 0)
    more = read(fd, (char *)f + got, sizeof *f - got);
  close(fd);
  bool good = got == sizeof *f && f->magic == PROFILE_MAGIC && f->period > 0 &&
              f->site_count <= PROFILE_SITES_MAX;
  for (uint32_t i = 0; good && i < f->site_count; i++) {
    profile_site *s = &f->sites[i];
    s->file[sizeof s->file - 1] = s->function[sizeof s->function - 1] = '\0';
    good = is_amount(s->allocated) && is_amount(s->held) && is_amount(s->at_peak);
  }
  if (!good) return stow_fail(STOW_ERR_FORMAT, "%.400s: not a profile of this version", path);
  return STOW_OK;
}
