/* Run request: asking a Python process of a run what it holds, and reading its answers. Used by
 * run_ram.
 *
 * An answer takes milliseconds (1 to 20 measured, whatever the number of objects), but the
 * interpreter's lock may be held for seconds by a collection or a call of C, and a process may be
 * killed before it has it. So it is asked early, once what is left is no more than what it holds,
 * and again with each tenth more: whenever it dies, an answer is there that is hardly older than
 * that. Answers say what the process held when they were given. Asking takes at most a fifth of a
 * process's time, and a process far from the limit is never asked. */
#ifndef CLI_RUN_REQUEST_H
#define CLI_RUN_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "run/host_record.h"
#include "run/request.h"

typedef struct run_request {
  request *word;   /* NULL: nobody can be asked */
  pid_t pid;       /* asked last; 0: nobody yet */
  uint32_t serial; /* of that question */
  bool whole;      /* it is answered */
  uint64_t bytes;  /* what the process held then */
  uint64_t asked_ns, took_ns;
  uint64_t spent_ns; /* what the last answer cost the process */
} run_request;

/* Makes folder/watch, by which processes are asked. */
stow_status run_request_open(run_request *a, const char *folder);
void run_request_close(run_request *a);

/* Does it have a thread of ours that listens? */
bool run_request_hears(pid_t pid);

/* Asks the largest process of `h` if it is time to; `left_bytes` may still be taken. */
void run_request_soon(run_request *a, const host_record *h, uint64_t left_bytes, uint64_t now_ns);
/* Asks the largest process when it has grown by a quarter, for at most one part in `part` of its
 * time; with 25 and less, when it has changed by a fiftieth. */
void run_request_rise(run_request *a, const host_record *h, unsigned part, uint64_t now_ns);
/* Asks it in any case. */
void run_request_now(run_request *a, const host_record *h, uint64_t now_ns);
/* It gave back so much that what it takes next may be another thing. */
void run_request_forget(run_request *a);

/* Reads the newest answer into `h`; true if it is the whole one to the last question. */
bool run_request_read(run_request *a, host_record *h, const char *folder, uint64_t now_ns);

#endif
