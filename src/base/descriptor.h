/* Descriptor: a file kept open inside somebody else's program. The program may close every number
 * it did not open itself, as daemons do, and then be given ours for a file of its own: what is
 * meant for our file must not go there. Used by what writes from within a program: the trace
 * (trace/ring, trace/drain) and the shim's log. */
#ifndef BASE_DESCRIPTOR_H
#define BASE_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>

typedef struct descriptor {
  int fd; /* -1: none */
  uint64_t device, inode;
} descriptor;

#define DESCRIPTOR_NONE ((descriptor){.fd = -1})

/* Takes `fd` over, under a number out of the program's way where there is one. */
descriptor descriptor_keep(int fd);
/* Is it still open, and still that file? */
bool descriptor_ours(const descriptor *d);
/* Closes it if it is; 0, or -1 and errno as close(2). */
int descriptor_close(descriptor *d);

#endif
