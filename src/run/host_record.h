/* Host record: the host memory of a run at its peak and at its end, kept in the run's folder.
 *
 * `stowage run` writes `host` from outside while it watches and at the end. A Python process of the
 * run writes PID.objects on request (host/report.py); a notebook writes both about itself
 * (python/stowage/_host.py). explain reads them. The files have lines of tab-separated words. A
 * reader skips lines it does not understand and limits every count. */
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

/* ---- what watch/tree.h reads about processes ---- */

typedef struct tree_process {
  pid_t pid, parent;
  char name[32];
  uint64_t held_bytes;                                /* its share of the memory it maps */
  uint64_t anonymous_bytes, shared_bytes, file_bytes; /* resident, shared pages counted in full */
  uint64_t read_bytes;                                /* total bytes read with read() and similar
                                                       * calls */
} tree_process;

typedef enum tree_map_kind {
  TREE_HEAP,      /* heap that brk manages */
  TREE_ANONYMOUS, /* mappings without a file */
  TREE_SHARED,    /* shared memory: /dev/shm, memfd */
  TREE_FILE,      /* mapped files; the kernel can drop pages that were not written */
  TREE_MAP_KINDS
} tree_map_kind;
const char *tree_map_name(tree_map_kind kind);

typedef struct tree_map {
  tree_map_kind kind;
  uint64_t bytes; /* resident */
  char path[200]; /* "" if the mapping has no file */
} tree_map;
/* Returns whether it belongs to the driver of an NVIDIA GPU: then the process uses CUDA. */
bool tree_map_is_driver(const tree_map *m);

typedef struct tree_file {
  uint64_t bytes, read_bytes; /* size of the file, and how much of it was read */
  char path[200];
} tree_file;

/* ---- the record ---- */

typedef struct host_sample {
  uint64_t time_ms, bytes; /* time since the start; bytes held by all processes */
} host_sample;

/* A large object that a Python variable holds. */
typedef struct host_object {
  uint64_t bytes;         /* estimated size, including everything it holds */
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
                             0 bytes), "view" (small parts of large arrays), "nameless" (only a
                             number is known), "database" (a connection; its size is not known),
                             "library" (C code called through ctypes; its size is not known),
                             "tree" (elements that keep more than the container lists), "garbage"
                             (in cycles, not used any more), "collected" (found before, freed
                             since), "uncollected" (the collector is off), "linked" (found only from each
                             other; words: the references), "cells" (columns of lists and other
                             objects), "error" (exceptions, which keep the variables of their
                             functions), "carried" (a tensor whose graph goes through many
                             iterations), "fetched" (a cache that a dataset fills while it is read),
                             "keys" (`of` is the type of a dict's keys), "nested" (containers of
                             one type in each other, as a trie of dicts), "" */
  uint64_t graphs;        /* autograd graphs it keeps */
  uint64_t text_bytes;    /* of it in columns of Python strings */
  char words[104];        /* those columns, the largest first; the references of a cycle */
  uint64_t objects;       /* Python objects in it; 0: not known */
  char source[128];       /* text of the line at `place`, "" if not known */
  char values[40];        /* a summary of its numbers, the same for an equal array of another type;
                             "-" if they are all the same; "" if not known */
} host_object;

typedef struct host_frame {
  char file[200], name[64];
  char source[128]; /* text of the line; "" if unknown */
  uint32_t line;
} host_frame;

typedef struct host_record {
  uint64_t started_wall_ns; /* wall clock time at sample time 0, since 1970; 0: unknown */
  uint64_t limit_bytes;
  char limit_from[16];                /* where the limit comes from: "given", "cgroup", "machine" */
  uint64_t total_bytes, usable_bytes; /* host memory in total, and what was available at the last
                                       * reading */
  uint64_t cache_bytes;               /* file cache that counts against the limit of the cgroup */
  uint64_t held_bytes, peak_bytes;
  uint64_t largest_bytes; /* the peak of the largest process alone, as far as the kernel and the
                           * samples show it */
  uint64_t copies_bytes; /* of those, copies of what did not fit in vram, as the ledger counts them;
                          * not in the file */
  int64_t growth_bytes_s;
  char ended[16]; /* "limit": killed by us; "kernel"; "killed": by another process; "": still
                     running */
  host_sample samples[HOST_SAMPLES_MAX];
  size_t sample_count;
  tree_process processes[HOST_PROCESSES_MAX]; /* the largest first */
  size_t process_count;
  uint64_t kinds[TREE_MAP_KINDS]; /* bytes by kind of mapping in the largest process */
  tree_map maps[HOST_MAPS_MAX];
  size_t map_count;
  tree_file files[HOST_FILES_MAX];
  size_t file_count;
  /* reported by the process itself */
  bool from_inside;
  pid_t inside_pid;        /* that process; not in the file */
  uint32_t inside_serial;  /* number of the request that this answers */
  uint64_t inside_bytes;   /* bytes the process held, without shared memory; 0: unknown */
  bool inside_whole;       /* complete; false: a partial answer that was written early */
  uint64_t inside_ns;      /* how long the process took to answer */
  bool late;               /* the process did not answer later requests: `frames` are newer than
                            * `objects`, read from outside of Python */
  uint32_t inside_turns;   /* how often the program continued while unattributed memory grew */
  uint32_t inside_modules; /* modules that it has imported */
  uint32_t tensors, tensors_graph; /* tensors of PyTorch among the variables of the functions that
                                    * run, and those of them that are in an autograd graph */
  uint64_t space_limit_bytes, space_peak_bytes; /* the process's own limit on its address space, 0
                                                 * for none, and the most of it that it used */
  host_object objects[HOST_OBJECTS_MAX];        /* the largest first */
  size_t object_count;
  host_frame frames[HOST_FRAMES_MAX]; /* stack of the main thread, innermost frame first */
  size_t frame_count;
} host_record;

/* Writes folder/host completely or not at all. */
stow_status host_record_write(const host_record *r, const char *folder);
/* Reads the record and the report of the largest process. STOW_ERR_NOT_FOUND: there is no
 * record. */
stow_status host_record_read(host_record *r, const char *folder);
/* Reads only folder/PID.objects. Returns whether the file exists. */
bool host_record_read_inside(host_record *r, const char *folder, pid_t pid);

#endif
