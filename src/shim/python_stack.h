/* Python stack: the Python lines the calling thread is at, read without the interpreter's lock.
 *
 * A thread's frames cannot change while it is in a call of its own, whoever runs Python meanwhile;
 * so they can be read as they lie, and nothing in them is counted or changed. PyTorch calls the
 * driver without the lock nearly always: asking for it there is what could wait for ever. How they
 * lie differs by version; python_stack_check compares it with what the interpreter itself says, and
 * before it has agreed nothing is read. */
#ifndef SHIM_PYTHON_STACK_H
#define SHIM_PYTHON_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stowage/trace.h>

#define PYTHON_STACK_MAX 96 /* the innermost are kept */

typedef struct python_place {
  const char *code; /* a code object, alive as long as the call that was hooked */
  int at;           /* byte of the instruction in it */
} python_place;

typedef struct python_stack {
  uint64_t key; /* stands for all of it; never 0 */
  size_t count;
  python_place places[PYTHON_STACK_MAX];
} python_stack;

/* Called by a Python function, with the interpreter's lock, before anything else here. False:
 * frames of this version are not known, or do not lie as they should. */
bool python_stack_check(void);

/* Where the calling thread is. False if it runs no Python. */
bool python_stack_walk(python_stack *s);

/* The same in words, innermost first, for stow_trace_stack; the texts are in `text`. */
#define PYTHON_STACK_TEXT ((size_t)48 << 10)
size_t python_stack_frames(const python_stack *s, stow_trace_frame frames[PYTHON_STACK_MAX],
                           char text[PYTHON_STACK_TEXT]);

#endif
