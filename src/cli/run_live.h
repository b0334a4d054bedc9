/* Run live: watches a run that spills: how much is on the host and how fast the bus carries it.
 * Shows a line on the terminal, and ends a run that would be too slow (--spill-stop). Used by
 * `stowage run`; reads the run's ledger and NVML, never the command. */
#ifndef CLI_RUN_LIVE_H
#define CLI_RUN_LIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "run/ledger.h"
#include "watch/nvml.h"

#define RUN_LIVE_BEAT_MS 500

typedef struct run_live {
  bool on;
  ledger *l;
  pid_t child;
  uint64_t stop_bytes_s;         /* 0: never stop */
  uint64_t stop_ns;              /* how long the bus must be that busy */
  bool terminal;                 /* true: the line is shown */
  bool shown;                    /* true: the line is on the screen now */
  nvml *n;                       /* opened when the first byte is spilled */
  bool reported, reported_whole; /* it was reported how spilling works, and that only whole segments
                                  * are spilled */
  bool reported_xla, reported_part; /* … that JAX runs without graphs, and that it recomputes */
  bool asked, measured;             /* NVML was asked for the PCIe rate; NVML answered */
  uint64_t looked_ns;               /* time of the last sample; 0: none */
  uint64_t next_ns;                 /* time of the next sample */
  uint64_t over_ns;                 /* since when the bus has been that busy; 0: it is not */
  uint64_t stopped_ns;              /* when the command was signalled to stop; 0: not yet */
  uint64_t crossed_bytes;           /* sampled bytes over the bus while memory was spilled */
  double rate_bytes_s, mean_bytes_s;
} run_live;

/* `stop` is a rate such as "20G" (bytes per second); NULL: none. STOW_ERR_INVALID: not a rate. */
stow_status run_live_init(run_live *r, ledger *l, const char *stop);

/* Takes a sample when one is due. Called as a beat of child_wait. */
void run_live_look(void *r);

/* Removes the line. */
void run_live_end(run_live *r);

#endif
