/* Message: an out-of-memory error text, read for its numbers.
 *
 * Knows the wordings of PyTorch (1.x to 2.11), JAX and XLA, TensorFlow, CuPy, the CUDA driver and
 * runtime, and of the host (MemoryError, the kernel's kill, a notebook's crash line). explain calls
 * it with the text that came with a recording, or with a file of its own. It guarantees that a
 * number it gives was in the text; what was not is MESSAGE_UNKNOWN. */
#ifndef ADVISE_MESSAGE_H
#define ADVISE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MESSAGE_UNKNOWN       UINT64_MAX
#define MESSAGE_PROCESSES_MAX 32

typedef enum message_kind {
  MESSAGE_NONE = 0, /* no out-of-memory in it that is known here */
  MESSAGE_TORCH,
  MESSAGE_XLA, /* JAX, and TensorFlow's newer allocator texts */
  MESSAGE_TENSORFLOW,
  MESSAGE_CUPY,
  MESSAGE_CUDA, /* the driver or runtime itself, by whatever library */
  MESSAGE_ONNX, /* ONNX Runtime's arena; the text does not say whether a card's or the host's */
  MESSAGE_HOST, /* host memory, not a card's */
} message_kind;

typedef enum message_host {
  HOST_NONE = 0,
  HOST_PYTHON,   /* MemoryError */
  HOST_NUMPY,    /* numpy's "Unable to allocate …" */
  HOST_KILLED,   /* the kernel ended it */
  HOST_NOTEBOOK, /* "Your session crashed after using all available RAM" */
  HOST_DIED,     /* a notebook's kernel died: memory is the usual reason, not the only one */
  HOST_WORKER,   /* a DataLoader worker was killed, or /dev/shm is full */
  HOST_TORCH,    /* DefaultCPUAllocator */
} message_host;

typedef struct message_process {
  uint32_t pid;
  uint64_t bytes;
} message_process;

/* A BFC allocator's dump (TensorFlow, XLA): its chunks, counted. */
typedef struct message_chunks {
  bool found;
  uint64_t used_bytes, free_bytes, largest_free_bytes;
  uint64_t used_count, free_count;
  bool from_bins; /* no chunk lines: the sums are those of the bins */
} message_chunks;

typedef struct message {
  message_kind kind;
  message_host host;
  uint64_t asked_bytes;
  uint64_t card_bytes;     /* total capacity */
  uint64_t free_bytes;     /* on the card, by the driver */
  uint64_t process_bytes;  /* this process, everything */
  uint64_t limit_bytes;    /* what the framework was allowed */
  uint64_t host_bytes;     /* all the host memory there is, by the Python package */
  uint64_t live_bytes;     /* allocated by the framework */
  uint64_t cached_bytes;   /* reserved by it, not allocated */
  uint64_t reserved_bytes; /* both, where told as one number */
  uint32_t device;         /* GPU index; UINT32_MAX not told */
  message_process processes[MESSAGE_PROCESSES_MAX];
  uint32_t process_count;
  uint64_t shape_bytes;     /* of a tensor whose shape the text names */
  uint64_t temporary_bytes; /* XLA: what one compiled program needs besides what goes in and out */
  uint64_t given_bytes;     /* XLA: what goes into it and comes out: weights, state, the batch */
  uint32_t first_dim, rank; /* of that shape; 0 not told */
  uint64_t largest_bytes;   /* XLA: of its largest buffer; `what` names its operation and line */
  bool grouped;             /* the kernel's: a control group's limit, not the machine's */
  bool no_history;          /* a device whose allocations PyTorch cannot record */
  char what[96];            /* the tensor, operation or call named in it */
  message_chunks chunks;
} message;

/* Reads `count` bytes of text; it need not end with a zero and may hold anything. */
void message_read(message *m, const char *text, size_t count);

/* Is more held than the card is said to have? Then its size is a limit (of stowage run, for one),
 * and what others hold is beside it. */
bool message_card_is_limit(const message *m);
/* "PyTorch", "JAX or XLA", … for people. */
const char *message_kind_name(message_kind kind);

/* ---- for message_bfc.c ---- */

/* The text between the two ends; words are found within it only. */
typedef struct message_text {
  const char *at, *end;
} message_text;

/* Just after the first `words` (letter case must match), NULL if they are not there. */
const char *message_find(message_text t, const char *words);
/* A size as people write it ("260.00 MiB", "6.25GiB", "1,234 bytes", "20971520"), or
 * MESSAGE_UNKNOWN. A bare number counts as bytes. */
uint64_t message_size(message_text t, const char *at);
/* The size after `words`. */
uint64_t message_size_after(message_text t, const char *words);
void message_bfc(message *m, message_text t);

#endif
