/* Run limits: reads memory limits from the options and the conventional variables and writes them
 * to the run's ledger. Used by `stowage run`. */
#ifndef CLI_RUN_LIMITS_H
#define CLI_RUN_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/verb.h"
#include "run/ledger.h"

typedef struct run_limits {
  uint64_t vram_bytes[LEDGER_DEVICES_MAX]; /* LEDGER_UNLIMITED: no limit */
  const char *vram_from;                   /* the option or variable that set them; NULL: none */
  uint32_t named;                          /* one bit for each device that was named */
  uint64_t spill_bytes;                    /* 0: no spill */
  bool spill_auto;
} run_limits;

/* Reads the options, or else CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, NVIDIA_GPU_MEMORY_LIMIT,
 * CUDA_DEVICE_MEMORY_LIMIT and CUDA_DEVICE_MEMORY_LIMIT_i. */
stow_status run_limits_read(run_limits *limits, const verb_call *call);

/* Inside another run, lowers the limits to that run's, and reports it if more was requested. Each
 * run counts separately. */
void run_limits_within(run_limits *limits);

/* Writes the limits to the ledger, and warns on standard error about limits that cannot work. */
void run_limits_apply(const run_limits *limits, ledger *l);

/* Reads from NVML what other programs hold on the devices, writes it to the ledger, and warns if a
 * limit is larger than its device or its device is missing. Takes as long as NVML takes to start,
 * so `stowage run` does it while the command starts. */
void run_limits_look(const run_limits *limits, ledger *l);

/* Does the same on a separate thread, which polls until the run holds memory on a device.
 * run_limits_looked ends the thread. If the command joined the ledger, it first waits for the first
 * poll; other commands do not use devices and need not wait. Returns false if the thread still
 * runs: the process must then exit without cleaning up. Both arguments must outlive the thread. */
void run_limits_look_aside(const run_limits *limits, ledger *l);
bool run_limits_looked(void);

#endif
