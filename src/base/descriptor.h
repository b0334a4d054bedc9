/* Descriptor: a file that stays open inside the user's program. The program may close every
 * descriptor it did not open, as daemons do, and then get our number for its own file. This type
 * detects that, so that our data never goes to a file of the program. Used by code that writes from
 * inside a program: the trace (trace/ring, record/drain) and the shim's log. */
#ifndef BASE_DESCRIPTOR_H
#define BASE_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>

typedef struct descriptor {
  int fd; /* -1: none */
  uint64_t device, inode;
} descriptor;

#define DESCRIPTOR_NONE ((descriptor){.fd = -1})

/* Takes ownership of `fd` and moves it to a high number if possible. */
descriptor descriptor_keep(int fd);
/* Returns true if the descriptor is open and still refers to the same file. */
bool descriptor_ours(const descriptor *d);
/* Closes the descriptor if it is still ours. Returns 0, or -1 with errno as close(2). */
int descriptor_close(descriptor *d);

#endif
