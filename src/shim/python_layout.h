/* Python layout: where CPython keeps the frames of a thread, by version. Used by python_stack.c for
 * the calling thread and by host/peek.c for another one. */
#ifndef SHIM_PYTHON_LAYOUT_H
#define SHIM_PYTHON_LAYOUT_H

#include <stdint.h>

/* Offsets in bytes, of CPython built for 64 bits in the ordinary way (offsetof, by the headers of
 * 3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1 and 3.13.0). Later versions are unknown. */
typedef struct python_layout {
  int version;
  uint8_t thread_frame;     /* in a thread's state: offset of its frame … */
  int8_t inner_frame;       /* … or what holds the frame at this offset; -1: itself */
  uint8_t code, back;       /* offsets in a frame */
  uint8_t at;               /* in a frame: offset of its position */
  uint8_t owner;            /* offset in a frame; 0: every frame is a Python frame */
  uint8_t object_frame;     /* in a frame object: offset of its frame; 0: the object is the frame */
  uint8_t file, name, line; /* offsets in a code object */
  uint8_t instructions;     /* in a code object: where its instructions begin; 0: `at` is an
                             * index … */
  uint8_t unit;             /* … in units of this many bytes */
  uint8_t ascii, wide;      /* where the characters of a text begin */
  uint8_t table;            /* in a code object: offset of its table of lines */
} python_layout;

enum { PYTHON_OWNER_C = 3 }; /* a frame that represents C code */

/* Returns the layout of the interpreter in this process, or NULL if it is unknown: a later version,
 * 32 bits, other code objects, or a build without the interpreter's lock. */
const python_layout *python_layout_here(void);

#endif
