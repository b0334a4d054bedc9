/* Peek: where the main thread of a Python process is, read from another thread without the
 * interpreter's lock.
 *
 * A call of C code (json.load, sorted, a NumPy call) may hold that lock until it returns. A report
 * in Python then has to wait for it, and the process may be killed first. Its frames do not change
 * during the call, so they can be read.
 *
 * Every read goes through /proc/self/mem, so a pointer that has become wrong because the thread
 * went on is an error and not a crash. Nothing is written and no reference is counted. What was
 * read while the thread went on may be wrong: two equal readings are required. */
#ifndef SHIM_HOST_PEEK_H
#define SHIM_HOST_PEEK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEEK_FRAMES_MAX 48

typedef struct peek_frame {
  char file[200], name[64];
  uint32_t line; /* 0: unknown */
} peek_frame;

/* Called by a Python function of the file `file`, itself called by a function of that file, with
 * the interpreter's lock. Finds the main thread and compares the layout of frames with what the
 * interpreter reports. Returns false if they differ; peek_main then finds nothing. Before it is
 * called, peek_main relies on the version and the types of the objects. */
bool peek_check(const char *file);
/* Makes the calling thread the main thread: in a child of fork, with the interpreter's lock. */
void peek_forked(void);

/* Reads the frames of the main thread, innermost first. Any thread may call this; not two at a
 * time. Returns their number; 0 if they are unknown or the thread went on meanwhile. */
size_t peek_main(peek_frame frames[PEEK_FRAMES_MAX]);

#endif
