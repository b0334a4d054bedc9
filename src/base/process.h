/* Process: what the kernel says of one process, in /proc/PID/stat. Read by whoever asks who lives
 * (run/ledger), who is whose child (watch/tree) or who started a run (run/launcher). Takes
 * no memory from the heap. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

typedef enum process_fate {
  PROCESS_LIVES,
  PROCESS_DEAD,   /* gone, or only its entry is left: its parent has not looked yet */
  PROCESS_UNKNOWN /* it may not be read */
} process_fate;

typedef struct process {
  pid_t parent;   /* 0: not known */
  uint64_t start; /* in the kernel's ticks since it started: with the number, the one process */
} process;

/* Fills `p` as far as it is known, with zeros elsewhere. */
process_fate process_read(process *p, pid_t pid);

#endif
