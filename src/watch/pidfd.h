/* Pidfd: checks whether one process may take a file descriptor from another. Frameworks that share
 * pages of device memory between processes need this; containers and the Yama module can forbid it.
 */
#ifndef WATCH_PIDFD_H
#define WATCH_PIDFD_H

typedef struct pidfd_answer {
  int from_child;  /* a parent taking from its child: 0 if it works, else errno */
  int from_parent; /* a child taking from its parent, as between siblings */
} pidfd_answer;

/* Tries both ways with a short-lived forked child; call it before a driver is loaded. If fork
 * fails, both results are its errno. */
void pidfd_try(pidfd_answer *answer);

#endif
