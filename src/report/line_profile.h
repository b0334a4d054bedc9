/* Line profile: host and device memory by line and by function of a program, summed over the
 * processes of a run of `stowage run --profile`.
 *
 * Host memory is sampled in each Python process by libstowage-profile.so (run/profile.h). Device
 * memory is exact: from the traces that the shim wrote. `stowage run` prints the tables, the report
 * shows the figures beside the source. */
#ifndef REPORT_LINE_PROFILE_H
#define REPORT_LINE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"
#include "run/profile.h"

enum { PROFILE_HOST, PROFILE_DEVICE, PROFILE_KINDS };

/* A line of the program, or all lines of a function. */
typedef struct line_place {
  char *file, *function; /* both "": no line of the program */
  uint32_t line;         /* 0 for a function */
  profile_amount allocated[PROFILE_KINDS], held[PROFILE_KINDS], at_peak[PROFILE_KINDS];
} line_place;

typedef struct line_places {
  line_place *list; /* the largest at the peak first */
  size_t count, capacity;
} line_places;

typedef struct line_profile {
  line_places lines, functions;
  double peak[PROFILE_KINDS]; /* of all processes, each at its own time */
  uint64_t period, dropped; /* dropped: samples without a line, because there were too many lines */
  int processes;            /* whose host memory was sampled */
  bool device;              /* there is device memory */
} line_profile;

/* Reads the profiles and traces in the folder of a run. A folder without profiles gives no lines
 * and processes == 0. Free in any case. */
stow_status line_profile_read(line_profile *p, const char *folder);
void line_profile_free(line_profile *p);

/* Adds the amounts of `from`. */
void line_place_add(line_place *to, const line_place *from);
/* Returns the bytes of a line at the peak, host and device. */
double line_place_weight(const line_place *p);
/* Returns estimated bytes as a whole number. */
uint64_t line_profile_bytes(double bytes);
/* Returns the standard error of an amount in bytes. */
uint64_t line_profile_error(profile_amount a);

/* Appends what the report shows, as one JSON object: the files with their lines and the lines
 * around them. Source text is read now, from files ending in .py; a file that is newer than
 * `started_ns` (since 1970; 0: not known) is marked as changed. */
stow_status line_profile_page(const line_profile *p, uint64_t started_ns, buffer *out);

#endif
