/* Ask: a word in a small file by which one process asks a thing of another, which sleeps until
 * then.
 *
 * `stowage run` makes it and asks; libstowage-host.so in the processes of the run waits. Whoever
 * waits cannot write, and one that dies leaves nothing behind. */
#ifndef RUN_ASK_H
#define RUN_ASK_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

typedef struct ask {
  _Atomic uint32_t serial; /* a futex: one more with each question */
  _Atomic int32_t pid;     /* whom it is for */
} ask;

/* The name of the thread that waits, where a process has one. */
#define ASK_LISTENER "stowage-host"

/* Makes the file and maps it; unmaps it. */
stow_status ask_create(ask **a, const char *path);
void ask_close(ask *a);
/* Asks the process `pid`, and gives the serial of the question; whether anybody hears it is not
 * told. */
uint32_t ask_post(ask *a, pid_t pid);

/* Maps it for waiting; NULL if it is none. */
ask *ask_open(const char *path);
/* Sleeps until something was asked of this process after `*seen`, which is brought up to date. */
void ask_wait(ask *a, uint32_t *seen);

#endif
