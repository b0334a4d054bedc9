/* Pidfd: may one process take a file descriptor from another here? Frameworks that share device
 * memory made of pages between processes need it; containers and the Yama module may refuse. */
#ifndef WATCH_PIDFD_H
#define WATCH_PIDFD_H

typedef struct pidfd_answer {
  int from_child;  /* a parent taking from its child: 0 works, else errno */
  int from_parent; /* a child taking from its parent, as between siblings */
} pidfd_answer;

/* Tries both ways with a short-lived forked child; call it before a driver is loaded. A child that
 * cannot be made is told as its errno in both. */
void pidfd_try(pidfd_answer *answer);

#endif
