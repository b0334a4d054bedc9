/* Hdf5 wire: the messages between a process and its HDF5 worker.
 *
 * One message is one packet of a SOCK_SEQPACKET socket. The worker answers each request with one
 * reply; HDF5_LIST is answered by one reply per dataset, then one with `last` set. Values go
 * through shared memory, which both sides have mapped. Both sides are the same version of Stowage.
 * */
#ifndef ARRAYS_HDF5_WIRE_H
#define ARRAYS_HDF5_WIRE_H

#include <sys/types.h>

#include "arrays/hdf5_dataset.h"
#include "base/status.h"

#define HDF5_WORKER_WORD "hdf5-reader"

/* The worker's descriptors. */
enum { HDF5_FD_SOCKET = 3, HDF5_FD_FILE = 4, HDF5_FD_SHARED = 5 };

typedef enum hdf5_what {
  HDF5_LIST = 1, /* the datasets of the file */
  HDF5_FIND,     /* the dataset that a path leads to over soft links */
  HDF5_READ,     /* the values at start, count, into shared memory */
  HDF5_WRITTEN,  /* which rows of chunks were ever written; their numbers go to shared memory */
  HDF5_PLACES,   /* offsets of the chunks; they go to shared memory */
} hdf5_what;

typedef struct hdf5_request {
  uint32_t what;
  uint32_t dims;
  uint64_t bytes; /* maximum size of the answer in shared memory */
  char name[HDF5_NAME_MAX];
  uint64_t start[HDF5_DIMS_MAX], count[HDF5_DIMS_MAX];
} hdf5_request;

typedef struct hdf5_reply {
  int32_t status; /* stow_status */
  bool last;
  bool known;         /* HDF5_WRITTEN, HDF5_PLACES: the list is complete */
  uint64_t count;     /* and its length */
  uint8_t fill[8];    /* HDF5_WRITTEN: the value of what was never written … */
  uint64_t row_items; /* … and how many values of a row may be others */
  union {
    hdf5_dataset dataset; /* HDF5_LIST */
    char text[1024];      /* the message, where status is not STOW_OK */
  };
} hdf5_reply;

/* ---- this process's side (hdf5_child.c) ---- */

typedef struct hdf5_child {
  int file;         /* the HDF5 file, open */
  const char *path; /* for messages */
  uint64_t heap_bytes, shared_bytes;
  int socket;
  pid_t pid, owner; /* owner: the process that started the worker */
  char *shared;     /* shared_bytes of memory, read-only here */
} hdf5_child;

/* Sends `request` and receives the first reply; starts a worker if this process has none. */
stow_status hdf5_child_request(hdf5_child *c, const hdf5_request *request, hdf5_reply *reply);
/* Receives a further reply to the same request. */
stow_status hdf5_child_more(hdf5_child *c, hdf5_reply *reply);
/* Ends the worker. */
void hdf5_child_stop(hdf5_child *c);

/* ---- the worker's side ---- */

/* Serves requests for the file at descriptor HDF5_FD_FILE, called `path` in messages, until the
 * socket closes. Returns an exit code. */
int hdf5_worker_main(const char *path, uint64_t heap_bytes, uint64_t shared_bytes);

#endif
