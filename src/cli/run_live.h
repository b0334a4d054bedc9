/* Run live: a run that spills, while it runs: how much is on the host and how fast the bus carries
 * it, a line on the terminal, and the end of a run that would crawl (--spill-stop). Used by
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
  uint64_t stop_bytes_s; /* 0: never */
  uint64_t stop_ns;      /* how long the bus has to be that busy */
  bool terminal;         /* the line is shown */
  bool shown;            /* there is one now */
  nvml *n;               /* opened when the first byte is spilled */
  bool reported, reported_whole,
      reported_xla;       /* whether spilling works, by pages, without graphs */
  bool asked, measured;   /* NVML was asked for the PCIe rate; it answered */
  uint64_t looked_ns;     /* the last look; 0: none */
  uint64_t next_ns;       /* when to look again */
  uint64_t over_ns;       /* since when the bus has been that busy; 0: it is not */
  uint64_t stopped_ns;    /* when the command was signalled to end; 0: not yet */
  uint64_t crossed_bytes; /* over the bus while anything was spilled, as sampled */
  double rate_bytes_s, mean_bytes_s;
} run_live;

/* `stop`: a rate such as "20G" (bytes a second), NULL: none. STOW_ERR_INVALID says what is wrong.
 */
stow_status run_live_init(run_live *r, ledger *l, const char *stop);

/* Looks when it is time to. A child_wait beat. */
void run_live_look(void *r);

/* Takes the line away. */
void run_live_end(run_live *r);

#endif
