/* Stand-in libcuda: streams as queues.
 *
 * With STANDIN_ASYNC=SEED every stream is a queue that worker threads run, with delays and an
 * interleaving drawn from the seed. Without it an operation runs when it is submitted. Streams are
 * ordered as in the driver: the default stream and the streams that are not CU_STREAM_NON_BLOCKING
 * wait for each other; an event completes when its stream reaches it.
 *
 * Errors that would fault on a device end the process with code 86 and a line: an operation on an
 * address without a mapping or without access, and unmapping or freeing memory that a queued or
 * running operation uses. What a kernel accesses counts, not its parameters.
 *
 * All functions require standin_mutex unless they say otherwise. */
#ifndef STANDIN_QUEUE_H
#define STANDIN_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/cuda_driver.h"

enum { STANDIN_FAULT = 86, RANGES_MAX = 640 };

typedef struct standin_range {
  uint64_t addr;
  uint64_t bytes;
} standin_range;

typedef struct standin_kernel {
  const char *name;
  void (*run)(const uint64_t *arguments, unsigned grid_x, unsigned grid_y);
  /* Lists the ranges it accesses, at most RANGES_MAX. `list` is false while it is queued: then
   * ranges that only a table on the device names are left out. The table itself is checked before
   * it is read. */
  int (*ranges)(const uint64_t *arguments, unsigned grid_x, unsigned grid_y, bool list,
                standin_range *out);
} standin_kernel;

typedef struct standin_event { /* exists while its handle or an operation refers to it */
  int users;
  uint64_t recorded, reached; /* numbers of records; reached < recorded: pending */
  uint64_t ns;
} standin_event;

typedef struct standin_queue standin_queue;

extern pthread_mutex_t standin_mutex;

/* ---- queue.c ---- */

/* Reads STANDIN_ASYNC and starts the workers. */
void queue_start(void);
bool queue_async(void);

standin_queue *queue_new(cu_context context, bool blocking);
/* Destroys a stream; its work continues. */
void queue_destroy(standin_queue *q);
/* Returns the queue of a stream handle in the current context; NULL: no such stream. */
standin_queue *queue_of(cu_stream stream, bool per_thread);

void queue_kernel(standin_queue *q, const standin_kernel *kernel, const uint64_t *arguments,
                  unsigned grid_x, unsigned grid_y);
/* Submits a copy. Host memory that is not pinned is read at once, and written before the call
 * returns. */
void queue_copy(standin_queue *q, uint64_t to, uint64_t from, uint64_t bytes);
void queue_set(standin_queue *q, uint64_t to, unsigned char value, uint64_t bytes);
void queue_record(standin_queue *q, standin_event *event);
/* Records an event after everything that was submitted to a context. */
void queue_record_all(cu_context context, standin_event *event);
void queue_wait_event(standin_queue *q, standin_event *event);

/* Waits, and releases the mutex while it does. NULL: for every queue. */
void queue_sync(const standin_queue *q);
void queue_sync_context(cu_context context);
void queue_sync_event(const standin_event *event);
void queue_wake(void);

/* Ends the process if a queued or running operation uses a part of the range. */
void queue_check_unused(const char *call, uint64_t addr, uint64_t bytes);

standin_event *event_new(void);
void event_drop(standin_event *event);

/* Copies memory that others may write to at the same time, word by word. Needs no lock. */
void standin_move_words(void *to, const void *from, uint64_t bytes);

/* ---- captures: submitted operations go to a graph ---- */

typedef struct standin_graph standin_graph;
standin_graph *graph_new(void);
/* Starts a capture; graph NULL: ends it. */
void queue_capture(standin_queue *q, standin_graph *graph);
void graph_launch(standin_queue *q, const standin_graph *graph);
/* The operations of a graph, in `nodes` if it is not NULL; returns how many. */
int graph_nodes(standin_graph *graph, void **nodes);
/* What a node is: its kernel (NULL: a copy or a fill), its arguments and addresses. */
const standin_kernel *graph_node(void *node, uint64_t **arguments, uint64_t *to, uint64_t *from);

/* ---- provided by cuda_standin.c and more.c ---- */

/* Returns whether a device can access an address: 1 yes, 0 it is host memory, -1 it would fault.
 * `end` receives the end of that range. */
int standin_place(uint64_t addr, uint64_t *end);
/* Returns the file of a mapped page and the offset in it; -1: none. */
int standin_file(uint64_t addr, uint64_t *offset, uint64_t *left);
bool standin_held(void);
cu_context standin_context(void);
standin_queue *standin_stream_queue(cu_stream stream);
/* Counts a call. Returns the error it must return, or 0. */
int standin_begin(const char *name, int needs_context);
/* Invalidates a capture in the global mode, which forbids such calls on all threads. Returns 900,
 * or 0. Needs no lock. */
int standin_unsafe(void);

#endif
