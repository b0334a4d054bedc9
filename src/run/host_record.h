/* Host record: the host memory of a run at its peak and at its end, kept in the run's folder.
 *
 * `stowage run` writes `host` from outside while it watches and at the end. A Python process of the
 * run writes PID.objects when it is asked (host/report.py); a notebook writes both about itself
 * (python/stowage/_host.py). explain reads them. The files have lines of words between tabs. A
 * reader skips lines it does not understand, and bounds every count. */
#ifndef RUN_HOST_RECORD_H
#define RUN_HOST_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/status.h"

enum {
  HOST_SAMPLES_MAX = 256,
  HOST_PROCESSES_MAX = 64,
  HOST_MAPS_MAX = 16,
  HOST_FILES_MAX = 8,
  HOST_OBJECTS_MAX = 32,
  HOST_FRAMES_MAX = 48,
};

/* ---- what watch/tree.h reads of processes ---- */

typedef struct tree_process {
  pid_t pid, parent;
  char name[32];
  uint64_t held_bytes;                                /* its share */
  uint64_t anonymous_bytes, shared_bytes, file_bytes; /* resident, whole */
  uint64_t read_bytes;                                /* ever, by read and its kin */
} tree_process;

typedef enum tree_map_kind {
  TREE_HEAP,      /* what brk gave */
  TREE_ANONYMOUS, /* mappings of no file */
  TREE_SHARED,    /* shared memory: /dev/shm, memfd */
  TREE_FILE,      /* files mapped; the kernel can drop what is not written */
  TREE_MAP_KINDS
} tree_map_kind;
const char *tree_map_name(tree_map_kind kind);

typedef struct tree_map {
  tree_map_kind kind;
  uint64_t bytes; /* resident */
  char path[200]; /* "" where there is none */
} tree_map;

typedef struct tree_file {
  uint64_t bytes, read_bytes; /* its size, and how far it was read */
  char path[200];
} tree_file;

/* ---- the record ---- */

typedef struct host_sample {
  uint64_t time_ms, bytes; /* since the start; held by all */
} host_sample;

/* Something large that a variable of Python's holds. */
typedef struct host_object {
  uint64_t bytes;         /* with all it holds, as estimated */
  uint64_t count;         /* elements */
  char name[64];          /* the variable */
  char where[160];        /* "load at train.py:12", "module train" */
  char type[64];          /* "list", "numpy.ndarray" */
  char of[64];            /* what it is made of: "dict", "float64" */
  char shape[64];         /* "(1000, 20)", "" where it has none */
  uint64_t element_bytes; /* on average */
  char place[160];        /* "train.py:7": the line that fills it or makes it; "" if not known */
  bool grows;             /* …fills it, a part at a time */
  char mark[16];          /* "graph", "pinned", "shared", "text", "mapped" (an array over a file:
                             0 bytes), "nameless" (only a number is known), "" */
  uint64_t graphs;        /* autograd graphs it keeps */
  uint64_t text_bytes;    /* of it in columns of Python strings */
  char words[104];        /* those columns, the largest first */
  uint64_t objects;       /* Python objects in it; 0: not known */
  char source[128];       /* text of the line at `place`, "" if not known */
} host_object;

typedef struct host_frame {
  char file[200], name[64];
  char source[128]; /* the line's text, "" where it is not known */
  uint32_t line;
} host_frame;

typedef struct host_record {
  uint64_t started_wall_ns; /* when the samples' time began, since 1970; 0: not known */
  uint64_t limit_bytes;
  char limit_from[16];                /* "given", "cgroup", "machine" */
  uint64_t total_bytes, usable_bytes; /* of the host, for all; left at the last look */
  uint64_t cache_bytes; /* file cache that counts against the limit of the control group */
  uint64_t held_bytes, peak_bytes;
  int64_t growth_bytes_s;
  char ended[16]; /* "limit" by us, "kernel", "killed" by anybody; "" while it runs */
  host_sample samples[HOST_SAMPLES_MAX];
  size_t sample_count;
  tree_process processes[HOST_PROCESSES_MAX]; /* the largest first */
  size_t process_count;
  uint64_t kinds[TREE_MAP_KINDS]; /* of the largest */
  tree_map maps[HOST_MAPS_MAX];
  size_t map_count;
  tree_file files[HOST_FILES_MAX];
  size_t file_count;
  /* from inside */
  bool from_inside;
  uint32_t inside_serial; /* of the question that is answered */
  uint64_t inside_bytes;  /* what the process held then, but for shared memory; 0: not known */
  bool inside_whole;      /* not a part of an answer, written on the way to it */
  uint64_t inside_ns;     /* how long the process looked */
  uint32_t inside_turns;  /* how often the program went on while memory without a name grew */
  host_object objects[HOST_OBJECTS_MAX]; /* the largest first */
  size_t object_count;
  host_frame frames[HOST_FRAMES_MAX]; /* of the main thread, innermost first */
  size_t frame_count;
} host_record;

/* Writes folder/host, whole or not at all. */
stow_status host_record_write(const host_record *r, const char *folder);
/* Reads it, and what the largest process wrote from inside. STOW_ERR_NOT_FOUND: there is none. */
stow_status host_record_read(host_record *r, const char *folder);
/* Only folder/PID.objects; true if it is there. */
bool host_record_read_inside(host_record *r, const char *folder, pid_t pid);

#endif
