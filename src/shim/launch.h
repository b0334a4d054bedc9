/* Launch: the addresses that a call with device work refers to.
 *
 * Kernels: the words of their parameters, by the layout the driver knows of each function (CUDA
 * 12.4), or the buffer they are passed in. Copies and fills: their addresses. Words outside the
 * ranges of interest are left out. Parameters show what a kernel may touch, but not pointers stored
 * in device memory, so they may be used for speed and never for safety. */
#ifndef SHIM_LAUNCH_H
#define SHIM_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda_driver.h"

#define LAUNCH_WORDS_MAX  8192
#define LAUNCH_HIDDEN_MAX 64

typedef struct launch {
  uint64_t function; /* names the function, or the kind of copy */
  cu_stream stream;  /* NULL: the default one */
  uint64_t work;     /* of a kernel: its grid; of a copy or fill: its bytes; 0: not known */
  void *graph;       /* it launches this executable graph; graph_name (graph.h) knows its words */
  bool opaque;       /* it may touch anything */
  bool kernel;       /* it is a kernel */
  bool timed;        /* a kernel or graph in exactly that stream, so events can time it */
  uint32_t count;
  uint32_t hidden_count;
  uint64_t to, to_bytes; /* what a copy or fill writes; 0 bytes: not known, or not one of them */
  uint64_t hidden[LAUNCH_HIDDEN_MAX]; /* addresses inside data that is copied to the device */
  uint64_t words[LAUNCH_WORDS_MAX];
} launch;

/* Returns whether this driver reports the layout of parameters. */
bool launch_known(void);

/* Reads a call of the gate (gate_visit). Keeps words in [low, high). Returns false if the driver
 * will refuse the call. One thread at a time. */
bool launch_read(launch *l, unsigned symbol, const uint64_t *registers, const uint64_t *stack,
                 uint64_t low, uint64_t high);

/* Add the words of a kernel's parameters, or of a description in host memory, to a launch. */
void launch_add_kernel(launch *l, void *function, void *const *parameters, void *const *extra,
                       uint64_t low, uint64_t high);
void launch_add_words(launch *l, const void *from, size_t bytes, uint64_t low, uint64_t high);

/* Forgets functions, because a module was unloaded. One thread at a time, as above. */
void launch_forget(void);

#endif
