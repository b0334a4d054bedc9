/* Run ram: watches the host memory of a command and everything it starts. Used by `stowage run`.
 *
 * Without --ram-limit it only watches (`plain`): it samples what is held, asks a Python process
 * what it holds as it grows, for at most 1% of that process's time, and keeps the record of the
 * peak.
 *
 * With --ram-limit, from about half of the limit on it asks a Python process what it holds
 * (run_request.h) and keeps a record in the folder of the run, so that whoever is killed leaves
 * one; at nine tenths it says so. A size given as the limit is a limit: when it is passed the
 * process is asked once more, and all that the command started is ended when it has answered, or
 * would take too much meanwhile. Against `auto` nothing is ended: the kernel does that. */
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
/* While it would all be filled within half a second. */
#define RUN_RAM_SOON_MS 10

typedef struct run_ram {
  bool on;
  bool plain;     /* without --ram-limit */
  bool automatic; /* against what the machine and its control groups allow */
  bool warned, reported, ended;
  bool by_kernel;        /* the kernel killed a process for want of memory while the command ran */
  uint64_t kills;        /* how many it had killed when the command started */
  char folder[PATH_MAX]; /* of the run */
  run_request request;
  run_host_trace *trace;  /* NULL: none */
  uint32_t warned_serial; /* the question that came with the warning */
  double growth_bytes_s;  /* over the last looks */
  uint64_t start_ns, looked_ns, next_ns;
  uint64_t detail_ns;  /* not looked at in detail again before */
  uint64_t kept_bytes; /* what was held when the record was written */
  host_record record;
  host_record top;           /* as it was when the most was held */
  host_record full;          /* as it was when the command was last whole, at `full_ns` */
  uint64_t full_ns, over_ns; /* and when it was last over nine tenths */
} run_ram;

/* `text` is "auto" or a size; NULL: only watch. STOW_ERR_INVALID: it is neither. */
stow_status run_ram_init(run_ram *r, const char *text);
/* Before the command starts: the folder of the run is there. `record`: also record a trace. */
stow_status run_ram_open(run_ram *r, const char *folder, bool record);

/* After it, watched or not: asking the kernel what it has killed so far takes 0.2 ms, and nothing
 * that has just started was killed for memory. */
void run_ram_started(run_ram *r);

/* Looks if it is time to. In how many milliseconds it is again. */
int run_ram_look(run_ram *r);

/* The command has ended: reports how it was killed, if it was, and keeps the record of its peak.
 */
void run_ram_end(run_ram *r, int how);

#endif
