/* Request: a shared word through which `stowage run` asks a process of the run for a report.
 *
 * The command creates the file and posts requests; libstowage-host.so in the processes waits on a
 * futex in it. A waiting process maps the file read-only and holds no lock, so one that dies leaves
 * nothing behind. The answer is the file PID.objects (protocol.h). */
#ifndef RUN_REQUEST_H
#define RUN_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

typedef struct request {
  _Atomic uint32_t serial;  /* a futex: incremented by each request */
  _Atomic int32_t pid;      /* the process that should answer */
  _Atomic int32_t thorough; /* 1: the answer may take half a second; 0: a part of its time so far */
} request;

/* Creates the file and maps it. STOW_ERR_IO if it cannot be created. */
stow_status request_create(request **out, const char *path);
/* Unmaps the file. Accepts NULL. */
void request_close(request *r);
/* Asks process `pid` for a report. Returns the number of the request. Does not check whether the
 * process listens. `thorough`: memory is short, so the search may take half a second. */
uint32_t request_post(request *r, pid_t pid, bool thorough);

/* Maps the file for waiting, read-only. Returns NULL if it cannot be opened or is too short. */
request *request_open(const char *path);
/* Sleeps until there is a request newer than `*seen` for this process, and updates `*seen`. */
void request_wait(request *r, uint32_t *seen);

#endif
