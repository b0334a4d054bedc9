/* Process: the state of one process, from /proc/PID/stat. Used to find out whether a process is
 * alive (run/ledger), its children (watch/tree) and the launcher of a run (run/launcher). Does
 * not allocate. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

typedef enum process_fate {
  PROCESS_LIVES,
  PROCESS_DEAD,   /* gone, or a zombie */
  PROCESS_UNKNOWN /* it may not be read */
} process_fate;

typedef struct process {
  pid_t parent;   /* 0: not known */
  uint64_t start; /* start time in kernel ticks, the same in every time namespace; with the pid it
                     identifies the process */
} process;

/* Fills in `p`; unknown fields are 0. */
process_fate process_read(process *p, pid_t pid);

#endif
