/* Run request: asks a Python process of a run for a report of what it holds, and reads the answers.
 * Used by run_ram.
 *
 * An answer takes milliseconds (1 to 20 measured, whatever the number of objects), but a garbage
 * collection or a call into C may hold the interpreter's lock for seconds, and the process may be
 * killed before it answers. So it is asked early, once no more memory is left than it holds, and
 * again after each further tenth. Whenever it dies, there is a recent answer. An answer states what
 * the process held at that time. Asking takes at most a fifth of a process's time, and a process
 * far from the limit is never asked. */
#ifndef CLI_RUN_REQUEST_H
#define CLI_RUN_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "run/host_record.h"
#include "run/request.h"

typedef struct run_request {
  request *word;       /* NULL: requests are not possible */
  pid_t pid;           /* the process asked last; 0: none */
  uint32_t serial;     /* number of that request */
  bool whole;          /* a complete answer has arrived */
  uint64_t bytes;      /* bytes the process held at that time */
  uint64_t most_bytes; /* … and the most it held at any request */
  uint32_t missed;     /* answers that came when most of that was freed */
  uint64_t asked_ns, took_ns;
  uint64_t spent_ns;  /* how long the process took for the last answer */
  uint64_t waited_ns; /* how long it had waited for a CPU when it was asked */
} run_request;

/* Creates folder/watch, through which processes receive requests. */
stow_status run_request_open(run_request *a, const char *folder);
void run_request_close(run_request *a);

/* Returns whether a process has a thread of ours that listens. */
bool run_request_has_listener(pid_t pid);

/* Asks the largest process of `h` if that is due; `left_bytes` may still be allocated. */
void run_request_soon(run_request *a, const host_record *h, uint64_t left_bytes, uint64_t now_ns);
/* Asks the largest process when it has grown by a quarter, for at most one part in `part` of its
 * time, without the time it waited for a CPU; with 25 and less, when it has changed by a fiftieth.
 * Also asks it when it holds twice as much as at any request before, or as an answer that came too
 * late. */
void run_request_rise(run_request *a, const host_record *h, unsigned part, uint64_t now_ns);
/* Returns whether a process that holds `bytes` and does not grow any more is to be asked again,
 * because the last answer covers less. Such an answer is worth more of its time: it is about the
 * peak. */
bool run_request_lacks(const run_request *a, pid_t pid, uint64_t bytes, uint64_t now_ns);
/* Asks the largest process if run_request_lacks() says so. */
void run_request_settled(run_request *a, const host_record *h, uint64_t now_ns);
/* Asks the largest process immediately. */
void run_request_now(run_request *a, const host_record *h, uint64_t now_ns);
/* Forgets the last answer, because the process freed so much that new allocations may be of another
 * kind. */
void run_request_forget(run_request *a);

/* Reads the newest answer into `h`. Returns true if it is the complete answer to the last
 * request. */
bool run_request_read(run_request *a, host_record *h, const char *folder, uint64_t now_ns);

#endif
