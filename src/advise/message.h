/* Message: parses an out-of-memory report as people paste it.
 *
 * The input is a text of any size: one error line, a traceback, a log of eight ranks, the output of
 * dmesg. The result names the library that wrote the error (kind), the numbers it gives, and the
 * circumstances (context.h): phase, platform, version, the user's own line. explain calls it with
 * the text that came with a recording, or with a text alone.
 *
 *   decode.c   makes UTF-16 and Unicode's spaces plain text
 *   clean.c    removes timestamps, colours and rank prefixes, joins wrapped lines
 *   message_torch.c    PyTorch's allocator texts, 1.0 to 2.11
 *   message_xla.c      JAX, XLA and TensorFlow; message_bfc.c reads the allocator's dump
 *   message_serve.c    servers and runtimes with numbers of their own: vLLM, TensorRT, Paddle, …
 *   message_llama.c    … and llama.cpp with the programs around it
 *   message_device.c     errors that only name a status, by a table
 *   message_host.c     host memory, by a table; message_limits.c reads limits that were set
 *   message_foreign.c  errors that are about something else, by a table
 *   message_warning.c  refused requests without which the program went on
 *   message_hint.c     texts in no table: words for memory and for failure in one line
 *   message_quantity.c reads sizes by the words around them; message_said.c quotes the others
 *   message_mention.c  prose and source code that only mention a failure
 *   message_kill.c     reads which program was killed
 *   message_caught.c   finds failures after which the program went on
 *   message_first.c    cuts a log with several failures down to the first one;
 *                      message_segment.c finds where one may end
 *   message.c calls them in order
 *
 * Every number in the result was in the text; other numbers are MESSAGE_UNKNOWN. */
#ifndef ADVISE_MESSAGE_H
#define ADVISE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "advise/context.h"

#define MESSAGE_UNKNOWN       UINT64_MAX
#define MESSAGE_PROCESSES_MAX 32
#define MESSAGE_SAID_MAX      3

/* Returns whether the text gave the number. */
static inline bool known(uint64_t bytes) {
  return bytes != MESSAGE_UNKNOWN;
}

typedef enum message_kind {
  MESSAGE_NONE = 0, /* no known out-of-memory error */
  MESSAGE_TORCH,
  MESSAGE_XLA, /* JAX, and TensorFlow's newer allocator texts */
  MESSAGE_TENSORFLOW,
  MESSAGE_CUPY,
  MESSAGE_CUDA, /* the driver, the runtime or one of its libraries */
  MESSAGE_ONNX, /* ONNX Runtime's arena; the text does not say whether it is on a device or the
                 * host */
  MESSAGE_NUMBA,
  MESSAGE_RMM, /* RAPIDS: cuDF, cuML, RMM, thrust */
  MESSAGE_PADDLE,
  MESSAGE_TENSORRT,
  MESSAGE_CTRANSLATE, /* CTranslate2, faster-whisper */
  MESSAGE_LLAMA,      /* llama.cpp, Ollama, LM Studio */
  MESSAGE_VLLM,
  MESSAGE_SGLANG,
  MESSAGE_TGI, /* text-generation-inference */
  MESSAGE_MLX,
  MESSAGE_DIRECTML,
  MESSAGE_JULIA,
  MESSAGE_DISPATCH, /* Transformers: the weights do not fit on the device */
  MESSAGE_HOST,     /* host memory, not a device's */
  MESSAGE_FOREIGN,  /* a known error that is not about memory that Stowage manages */
  MESSAGE_KIND_COUNT
} message_kind;

typedef enum message_host {
  HOST_NONE = 0,
  HOST_PYTHON,    /* MemoryError, and its equivalents in other languages */
  HOST_NUMPY,     /* NumPy's "Unable to allocate …" */
  HOST_KILLED,    /* killed; memory is the usual reason, but not the only one */
  HOST_KERNEL,    /* killed, and the kernel's log says that memory was the reason */
  HOST_NOTEBOOK,  /* "Your session crashed after using all available RAM" */
  HOST_DIED,      /* a notebook's kernel died; memory is the usual reason, but not the only one */
  HOST_WORKER,    /* a worker process was killed */
  HOST_SHARED,    /* /dev/shm is full, or a bus error while writing to it */
  HOST_MAPS,      /* mmap of a small file failed: too many mappings */
  HOST_TORCH,     /* a framework's CPU allocator */
  HOST_JOB,       /* a batch system's memory limit: Slurm, PBS, LSF */
  HOST_CONTAINER, /* a container's memory limit: Kubernetes, Docker */
  HOST_RAY,       /* Ray's memory monitor */
  HOST_DASK,      /* Dask's worker limit */
  HOST_SPARK,     /* an executor's container limit */
  HOST_PAGEFILE,  /* Windows: the paging file is too small */
  HOST_FORK,      /* fork failed */
  HOST_COMPILER,  /* a compiler was killed, or ran out */
  HOST_PINNED,    /* a framework's pool of pinned host memory */
  HOST_MODEL,     /* a model file that is larger than the host's memory */
  HOST_DATABASE,  /* DuckDB's own limit */
  HOST_LARGE,     /* a report of a large request, which may have succeeded */
  HOST_GIT,       /* git's pack-objects was killed */
  HOST_EVICTED,   /* Kubernetes: the node was low on memory */
  HOST_JAVA,      /* the system refused memory for Java's heap, stacks or code */
  HOST_PINNING,   /* the driver did not pin host memory for PyTorch; it reports a device's error */
  HOST_KIND_COUNT
} message_host;

/* Details of a text that decide between causes and fixes. */
enum {
  MESSAGE_WEIGHTS = 1 << 0,    /* the failed request was for a model's weights */
  MESSAGE_COMPUTE = 1 << 1,    /* the failed request was for a context, a KV cache or a compute
                                * buffer */
  MESSAGE_KV_CACHE = 1 << 2,   /* no space for the KV cache beside the weights */
  MESSAGE_START = 1 << 3,      /* refused at start, because too little of the device is free */
  MESSAGE_INIT = 1 << 4,       /* the driver itself could not start */
  MESSAGE_POOL = 1 << 5,       /* a pool reached its own maximum */
  MESSAGE_MIG = 1 << 6,        /* PyTorch could not query NVML: a MIG slice */
  MESSAGE_STATUS = 1 << 7,     /* a library's status that may have a reason other than memory */
  MESSAGE_ONE_BUFFER = 1 << 8, /* larger than one buffer may be */
  MESSAGE_WORKSPACE = 1 << 9,
  MESSAGE_NO_SIGN = 1 << 10,   /* a worker ended, and nothing in the text mentions memory */
  MESSAGE_EXECUTOR = 1 << 11,  /* a worker of joblib or of a process pool, not of a DataLoader */
  MESSAGE_ENABLED = 1 << 12,   /* host_bytes is a limit that stowage.limit(ram=…) set … */
  MESSAGE_BEYOND = 1 << 13,    /* … and the machine has enough for the request */
  MESSAGE_WARNING = 1 << 14,   /* the library goes on without it */
  MESSAGE_ABOUT = 1 << 15,     /* cache_tokens is estimated from the sizes */
  MESSAGE_INPUT = 1 << 16,     /* TensorFlow copied a whole array of the program to the device */
  MESSAGE_RLIMIT = 1 << 17,    /* limit_bytes is of ulimit -v or setrlimit */
  MESSAGE_TIMEOUT = 1 << 18,   /* killed after a timeout */
  MESSAGE_SERVER = 1 << 19,    /* foreign: a database's memory, on its own machine */
  MESSAGE_MACHINE = 1 << 20,   /* the numbers are the machine's, not a process's */
  MESSAGE_PROBE = 1 << 21,     /* killed after a failed probe: TIMEOUT is set too */
  MESSAGE_RAN_OUT = 1 << 22,   /* a compiler that reported it itself, and was not killed */
  MESSAGE_UNNAMED = 1 << 24,   /* the text does not name the interface of the device */
  MESSAGE_OOMD = 1 << 25,      /* systemd-oomd killed a whole unit */
  MESSAGE_UNSURE = 1 << 23,    /* a worker ended; memory is the most frequent reason */
  MESSAGE_MISCOUNT = 1 << 26,  /* the text's count of what is in use cannot be */
  MESSAGE_ADDRESSES = 1 << 27, /* the limit is on virtual memory: addresses, not RAM */
  MESSAGE_SKIPPED = 1 << 28,   /* the program dropped this batch and went on */
  MESSAGE_CLEAN = 1 << 29,     /* a notebook none of whose cells ended with an error */
  MESSAGE_SPARED = 1 << 30,    /* a container was killed, but not by its own limit */
};

typedef struct message_process {
  uint32_t pid;
  uint64_t bytes;
} message_process;

/* The chunks in the dump of a BFC allocator (TensorFlow, XLA), counted. */
typedef struct message_chunks {
  bool found;
  uint64_t used_bytes, free_bytes, largest_free_bytes;
  uint64_t used_count, free_count;
  bool from_bins; /* there are no chunk lines: the sums come from the bins */
} message_chunks;

typedef struct message {
  message_kind kind;
  message_host host;
  uint32_t details; /* MESSAGE_WEIGHTS, … */
  uint64_t asked_bytes;
  uint64_t device_bytes;   /* total capacity */
  uint64_t free_bytes;     /* free on the device, as the driver reports */
  uint64_t before_bytes;   /* … and before a server measured what it needs */
  uint64_t process_bytes;  /* everything that this process holds */
  uint64_t limit_bytes;    /* what the framework was allowed to use */
  uint64_t host_bytes;     /* total host memory, as the Python package reports */
  uint64_t live_bytes;     /* allocated by the framework */
  uint64_t cached_bytes;   /* reserved by the framework, not allocated */
  uint64_t reserved_bytes; /* allocated and cached, if reported as one number */
  uint64_t graph_bytes;    /* of the live ones: in private pools, most often of CUDA graphs */
  uint64_t outside_bytes;  /* outside the framework in this process or others, as the framework
                            * counts (MPS) */
  uint32_t device;         /* GPU index; UINT32_MAX: unknown */
  message_process processes[MESSAGE_PROCESSES_MAX];
  uint32_t process_count;
  uint64_t shape_bytes;     /* of a tensor whose shape the text names */
  uint64_t temporary_bytes; /* XLA: what one compiled program needs besides what goes in and out */
  uint64_t given_bytes;     /* XLA: what goes into it and comes out: weights, state, the batch */
  uint64_t out_bytes;       /* XLA: of that what comes out */
  uint64_t whole_bytes;     /* XLA: all of it */
  uint32_t first_dim, rank; /* of that shape; 0: unknown */
  uint64_t largest_bytes;   /* XLA: of its largest buffer; `what` names its operation and line */
  uint64_t wanted_tokens, cache_tokens; /* a server's context, and what its KV cache can hold */
  bool total;               /* the tokens are those of all requests, not of one prompt */
  double share;             /* of the device that a server may take, as its text says; 0: unknown */
  double share_needed;      /* the smallest one that is enough, as its text says; 0: unknown */
  uint64_t job;             /* a batch system's number of the job; 0: unknown */
  uint64_t requested_bytes; /* what an evicted container requested of its node; 0: unknown */
  uint64_t next_bytes;      /* what the second failure requested */
  message_kind next_kind;   /* … and what it is; MESSAGE_NONE: unknown */
  message_host next_host;
  uint64_t falling_bytes; /* XLA: the first of requests for its pool, each smaller … */
  uint64_t least_bytes;   /* … and the last of them */
  uint32_t falling_count; /* how many there are */
  uint32_t failures;      /* different failures in the text; the first one is read */
  uint32_t caught;        /* of them, the ones before it that the program caught */
  uint32_t passed_batch;  /* a smaller batch with which the program went on after it; 0: none */
  uint64_t held_bytes;    /* what was live when that one failed */
  uint32_t failed_batch;  /* a smaller batch than the first failure's that failed too; 0: none */
  bool grouped;           /* the kernel's: a control group's limit, not the machine's */
  bool async;             /* the framework uses the driver's pool, not its own allocator */
  bool no_history;        /* a device whose allocations PyTorch cannot record */
  char what[96];          /* the tensor, operation or call named in it */
  char said[MESSAGE_SAID_MAX][160]; /* sentences with numbers that are in no field */
  uint32_t said_count;
  const char *name; /* what kind of foreign error, or NULL */
  const char *help; /* one line of help for it, or NULL */
  message_chunks chunks;
  context context;
} message;

/* Parses `count` bytes of text, which need not end with a zero byte and may contain anything. */
void message_read(message *m, const char *text, size_t count);

/* Returns whether more is held than the reported size of the device. Then that size is a limit (for
 * example of stowage run), and memory of others is not part of it. */
bool message_device_is_limit(const message *m);
/* Returns "PyTorch", "JAX or XLA", … for people. */
const char *message_kind_name(message_kind kind);
/* Returns the same for what reported the error; a driver is named by its device. */
const char *message_reporter(const message *m);
/* Returns whether it is an error about device memory. */
bool message_is_device(message_kind kind);

#endif
