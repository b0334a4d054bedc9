/* Python stack: the Python stack of the calling thread, read without the interpreter's lock.
 *
 * A thread's frames cannot change while it is inside a call, even if other threads run Python. So
 * they can be read directly, and nothing in them is counted or changed. PyTorch nearly always calls
 * the driver without the lock; taking it there could deadlock. The layout of frames depends on the
 * version: python_stack_check compares it with what the interpreter reports, and until they agree
 * nothing is read. */
#ifndef SHIM_PYTHON_STACK_H
#define SHIM_PYTHON_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stowage/trace.h>

#define PYTHON_STACK_MAX 96 /* the innermost are kept */

typedef struct python_place {
  const char *code; /* a code object, alive as long as the hooked call */
  int at;           /* offset of the instruction in it */
} python_place;

typedef struct python_stack {
  uint64_t key; /* identifies the whole stack; never 0 */
  size_t count;
  python_place places[PYTHON_STACK_MAX];
} python_stack;

/* Called by a Python function, with the interpreter's lock, before anything else here. Returns
 * false if the frames of this version are unknown, or do not have the expected layout. */
bool python_stack_check(void);

/* Reads the stack of the calling thread. Returns false if it runs no Python. */
bool python_stack_walk(python_stack *s);

/* Returns the stack as texts, innermost first, for stow_trace_stack; the texts are in `text`. */
#define PYTHON_STACK_TEXT ((size_t)48 << 10)
#define PYTHON_STACK_FILE 2049 /* a file name: 512 characters */
size_t python_stack_frames(const python_stack *s, stow_trace_frame frames[PYTHON_STACK_MAX],
                           char text[PYTHON_STACK_TEXT]);

/* Returns the file of one place, in `text`; NULL before python_stack_check. Far cheaper than its
 * line. */
const char *python_stack_file(const python_place *p, char text[PYTHON_STACK_FILE]);

#endif
