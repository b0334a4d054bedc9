/* Stand-in libcuda: streams as queues.
 *
 * With STANDIN_ASYNC=SEED every stream is a queue that worker threads run, with delays and an
 * interleaving drawn from the seed. Without it an operation runs when it is submitted. Stream order
 * is the driver's: the default stream waits for the streams that are not CU_STREAM_NON_BLOCKING and
 * they for it; events are reached when their stream gets there.
 *
 * What would fault on a device, or may not be done to one, ends the process with code 86 and a
 * line: an operation that reaches an address without a mapping or without access, and unmapping or
 * freeing what a queued or running operation uses. What a kernel reaches counts, not its
 * parameters.
 *
 * All functions are called with standin_mutex held, except where it says otherwise. */
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
  /* What it reaches, at most RANGES_MAX. `list` is false while it is queued: then what only a table
   * on the device names is left out. The table itself is checked before it is read. */
  int (*ranges)(const uint64_t *arguments, unsigned grid_x, unsigned grid_y, bool list,
                standin_range *out);
} standin_kernel;

typedef struct standin_event { /* lives while its handle or an operation refers to it */
  int users;
  uint64_t recorded, reached; /* numbers of records; reached < recorded: pending */
  uint64_t ns;
} standin_event;

typedef struct standin_queue standin_queue;

extern pthread_mutex_t standin_mutex;

/* ---- queue.c ---- */

/* STANDIN_ASYNC; starts the workers. */
void queue_start(void);
bool queue_async(void);

standin_queue *queue_new(cu_context context, bool blocking);
/* The stream is destroyed: its work goes on. */
void queue_destroy(standin_queue *q);
/* The queue of a stream handle in the current context; NULL: no such stream. */
standin_queue *queue_of(cu_stream stream, bool per_thread);

void queue_kernel(standin_queue *q, const standin_kernel *kernel, const uint64_t *arguments,
                  unsigned grid_x, unsigned grid_y);
/* Host memory that is not pinned is read at once, and written before it returns. */
void queue_copy(standin_queue *q, uint64_t to, uint64_t from, uint64_t bytes);
void queue_set(standin_queue *q, uint64_t to, unsigned char value, uint64_t bytes);
void queue_record(standin_queue *q, standin_event *event);
/* Behind everything that was submitted to a context. */
void queue_record_all(cu_context context, standin_event *event);
void queue_wait_event(standin_queue *q, standin_event *event);

/* Wait, with the mutex given up meanwhile. NULL: for every queue. */
void queue_sync(const standin_queue *q);
void queue_sync_context(cu_context context);
void queue_sync_event(const standin_event *event);
void queue_wake(void);

/* Ends the process if a queued or running operation uses a part of it. */
void queue_check_unused(const char *call, uint64_t addr, uint64_t bytes);

standin_event *event_new(void);
void event_drop(standin_event *event);

/* Copies of memory that others may write to at the same time, word by word. Needs no lock. */
void standin_move_words(void *to, const void *from, uint64_t bytes);

/* ---- captures: what is submitted goes to a graph ---- */

typedef struct standin_graph standin_graph;
standin_graph *graph_new(void);
/* NULL: the stream is not captured any more. */
void queue_capture(standin_queue *q, standin_graph *graph);
void graph_launch(standin_queue *q, const standin_graph *graph);
/* The operations of a graph, in `nodes` if it is not NULL; returns how many. */
int graph_nodes(standin_graph *graph, void **nodes);
/* What a node is: its kernel (NULL: a copy or a fill), its arguments and addresses. */
const standin_kernel *graph_node(void *node, uint64_t **arguments, uint64_t *to, uint64_t *from);

/* ---- what cuda_standin.c and more.c tell ---- */

/* Whether an address is one that a device can reach: 1 yes, 0 it is host memory, -1 it would fault.
 * `end` gets where this place ends. */
int standin_place(uint64_t addr, uint64_t *end);
/* The file of a mapped page and the offset in it; -1: it has none. */
int standin_file(uint64_t addr, uint64_t *offset, uint64_t *left);
bool standin_held(void);
cu_context standin_context(void);
standin_queue *standin_stream_queue(cu_stream stream);
/* Counts a call; what it must answer instead of working, or 0. */
int standin_begin(const char *name, int needs_context);
/* Spoils a capture in the global mode, which allows no such call of any thread; 900, or 0. Needs no
 * lock. */
int standin_unsafe(void);

#endif
