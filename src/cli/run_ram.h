/* Run ram: watches the host memory of a command and everything it starts. Used by `stowage run`.
 *
 * Without --ram-limit it only watches (`plain`): it samples what is held, requests a report from a
 * Python process as it grows (for at most 1% of that process's time), and keeps the record of the
 * peak.
 *
 * With --ram-limit, from about half of the limit on, it requests reports from a Python process
 * (run_request.h) and keeps a record in the folder of the run, so that a process that is killed
 * leaves one. At 90% it prints a warning. A size is enforced: when it is exceeded, the
 * process is asked once more, and everything the command started is ended once it has answered, or
 * earlier if it allocates too much. With `auto` nothing is ended: the kernel does that. */
#ifndef CLI_RUN_RAM_H
#define CLI_RUN_RAM_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <stowage/status.h>

#include "cli/run_host_trace.h"
#include "cli/run_request.h"
#include "run/host_record.h"

#define RUN_RAM_BEAT_MS 50
/* The interval while memory would be full within half a second. */
#define RUN_RAM_SOON_MS 10

typedef struct run_ram {
  bool on;
  bool plain;     /* no --ram-limit was given */
  bool automatic; /* the limit is what the machine and its cgroups allow */
  bool warned, reported, ended;
  bool by_kernel;        /* the kernel killed a process because memory ran out while the command
                          * ran */
  uint64_t kills;        /* the kernel's count of kills when the command started */
  char folder[PATH_MAX]; /* folder of the run */
  run_request request;
  run_host_trace *trace;  /* NULL: no trace */
  uint32_t warned_serial; /* number of the request that was sent with the warning */
  double growth_bytes_s;  /* growth over the last samples */
  uint64_t start_ns, looked_ns, next_ns;
  uint64_t pulse_bytes; /* of the largest process, since it changed by more than 1/SETTLED_PART */
  unsigned pulses;      /* how often it was read since then */
  uint64_t family_hash; /* children at the last sample */
  uint64_t family_ns, family_wait; /* last sample because of a new child; pause after it */
  uint64_t detail_ns;              /* earliest time of the next detailed sample */
  uint64_t kept_bytes;             /* bytes held when the record was written */
  char lost[512];                  /* why the last write of the record failed; "": it did not */
  host_record record;
  host_record top;           /* the record at the peak */
  host_record full;          /* the last record of the complete command, taken at `full_ns` */
  uint64_t full_ns, over_ns; /* over_ns: when it was last above 90% */
} run_ram;

/* Reads the limit. `text` is "auto" or a size; NULL: only watch. STOW_ERR_INVALID: neither. */
stow_status run_ram_init(run_ram *r, const char *text);
/* Prepares the watch before the command starts; the folder of the run exists. `record`: also record
 * a trace. */
stow_status run_ram_open(run_ram *r, const char *folder, bool record);

/* Called after the command has started: reading how many processes the kernel has killed takes 0.2
 * ms, and a process that has just started was not killed for memory. */
void run_ram_started(run_ram *r);

/* Takes a sample if one is due. Returns the milliseconds until the next one. */
int run_ram_look(run_ram *r);

/* Called when the command has ended: reports how it was killed, if it was, and keeps the record of
 * its peak. */
void run_ram_end(run_ram *r, int how);

#endif
