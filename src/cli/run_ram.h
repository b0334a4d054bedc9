/* Run ram: watching the host memory of a command and everything it starts. Used by `stowage run`
 * with --ram-limit; it warns and remembers, and ends nothing. */
#ifndef CLI_RUN_RAM_H
#define CLI_RUN_RAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <stowage/status.h>

#define RUN_RAM_BEAT_MS 500

typedef struct run_ram {
  bool on;
  bool automatic;       /* against what the machine and its control groups allow */
  uint64_t limit_bytes; /* of the command and its descendants */
  bool warned;
  uint64_t held_bytes, peak_bytes; /* anonymous and shared memory, at the last look and ever */
  uint64_t usable_bytes;           /* what the host had left at the last look */
  double growth_bytes_s;           /* over the last seconds */
  uint64_t looked_ns;
  pid_t largest; /* the process that held most at the last look */
  uint64_t largest_bytes;
  char largest_name[32];
} run_ram;

/* "auto" or a size; NULL: off. */
stow_status run_ram_init(run_ram *r, const char *text);

/* Looks once, and says so on standard error when nine tenths are reached. A child_wait beat. */
void run_ram_look(void *r);

/* The last words: the peak, and, where the command was killed, what it held when it was. */
void run_ram_end(const run_ram *r, int how);

#endif
