/* Ring: the last N MiB of events in a shared mapping, readable by another process even if the
 * writer was killed at any instruction. record.c writes it, ring_read.c reads it. Nothing ever
 * needs repair: a reader cannot mistake a partial record for a complete one.
 *
 *   ring_header | control words, one per chunk | texts (append-only) | chunks
 *
 * A chunk belongs to one thread while it is open. The thread writes a record, then stores the
 * chunk's count with release: only records below the count are complete. A record's check word
 * covers its content, its chunk's ticket and its position. It detects a record from an earlier use
 * of the chunk and one that a stray pointer overwrote. Tickets increase by one with each opening,
 * so the chunk opened longest ago is overwritten next.
 *
 * States of a chunk (control word = ticket << 2 | state):
 *   FREE → OPEN      by the thread that takes it (compare and swap)
 *   OPEN → SEALED    by that thread, when full or at its end, if a file is written
 *   SEALED → FREE    by the writer of the file, once its records are in the file
 *   OPEN → FREE      by that thread, if no file is written
 * A FREE chunk keeps its records until it is opened again.
 *
 * Texts (names, frames, stacks, facts) are never overwritten: entries are appended under the
 * trace's lock, then the length is stored with release. */
#ifndef TRACE_RING_H
#define TRACE_RING_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/descriptor.h"
#include "base/hash.h"
#include "base/status.h"

#define RING_MAGIC      UINT64_C(0x31474e4952574f54) /* "TOWRING1" */
#define RING_VERSION    1
#define RING_BYTE_ORDER UINT32_C(0x01020304) /* in the byte order of the writer's machine */

enum {
  RING_CHUNK_BYTES = 16384,
  RING_CHUNK_HEADER = 64,
  RING_RECORD_WORDS = 6,
  RING_RECORD_BYTES = 48,
  RING_CHUNK_RECORDS = (RING_CHUNK_BYTES - RING_CHUNK_HEADER) / RING_RECORD_BYTES,
  RING_PAGE = 4096,
};
#define RING_BYTES_MIN UINT64_C(65536)
#define RING_BYTES_MAX (UINT64_C(64) << 30)
#define TEXT_BYTES_MIN UINT64_C(65536)
#define TEXT_BYTES_MAX (UINT64_C(1) << 30)

enum { CHUNK_FREE = 0, CHUNK_OPEN = 1, CHUNK_SEALED = 2 };

/* Written once at creation, except for the atomics. */
typedef struct ring_header {
  uint64_t magic;
  uint32_t version, byte_order;
  uint64_t total_bytes, control_offset, text_offset, text_max, chunks_offset, chunk_count;
  uint64_t id[2]; /* random; the .stow file of the same trace carries it too */
  uint64_t pid;
  uint64_t start_ns, start_wall_ns; /* the same moment on two clocks */
  _Atomic uint64_t next_ticket;     /* the first ticket is 1 */
  _Atomic uint64_t text_length;     /* bytes of complete entries */
  _Atomic uint64_t skipped_events;  /* events that were lost */
  _Atomic uint64_t closed;          /* 1: the trace was closed normally */
} ring_header;
_Static_assert(sizeof(ring_header) <= RING_PAGE, "the header is one page");

typedef struct ring_chunk {
  _Atomic uint64_t ticket;    /* 0: being opened; the contents are not valid */
  _Atomic uint64_t first_seq; /* number of the first event in this chunk among the thread's
                               * events */
  _Atomic uint32_t thread;    /* number of the thread in this trace, from 1 */
  _Atomic uint32_t count;     /* complete records */
  uint64_t unused[5];
  _Atomic uint64_t words[RING_CHUNK_RECORDS * RING_RECORD_WORDS];
} ring_chunk;
_Static_assert(offsetof(ring_chunk, words) == RING_CHUNK_HEADER, "records start a cache line");

/* A copy of a record in ordinary memory. */
typedef struct ring_record {
  uint64_t time_ns, addr, bytes, stream;
  uint32_t stack, tag;
  uint16_t device;
  uint8_t kind, tier;
  uint32_t check;
} ring_record;
_Static_assert(sizeof(ring_record) == RING_RECORD_BYTES, "six words");

/* Returns the check word of a record at position `place` of the chunk opened with `ticket`. The
 * upper half of w[5] is not covered: it holds the check word. */
static inline uint32_t ring_check(const uint64_t w[RING_RECORD_WORDS], uint64_t ticket,
                                  uint32_t place) {
  uint64_t h = w[0] * UINT64_C(0x9e3779b97f4a7c15) + w[1] * UINT64_C(0xbf58476d1ce4e5b9) +
               w[2] * UINT64_C(0x94d049bb133111eb) + w[3] * UINT64_C(0xd6e8feb86659fd93) +
               w[4] * UINT64_C(0xa0761d6478bd642f) + (uint32_t)w[5] * UINT64_C(0xe7037ed1a0b428db) +
               ((ticket << 16) + place + 1) * UINT64_C(0x8ebc6af09c88c6e3);
  h ^= h >> 32;
  h *= UINT64_C(0x589965cc75374cc3);
  return (uint32_t)(h >> 32);
}

typedef enum text_kind {
  TEXT_NAME = 1, /* bytes; numbered from 1 in order of appearance */
  TEXT_FRAME,    /* u32 name, file, line; numbered in the same way */
  TEXT_STACK,    /* u32 frames, innermost first; numbered in the same way */
  TEXT_FACT,     /* key, a zero byte, value */
} text_kind;

/* Header of each entry; the payload that follows is padded to 8 bytes. */
typedef struct text_entry {
  uint32_t kind;
  uint32_t length; /* length of the payload without padding */
  uint64_t check;  /* check word of the payload, seeded with kind and offset */
} text_entry;
uint64_t text_check(const text_entry *entry, uint64_t offset, const void *payload);

/* A ring that this process writes. */
typedef struct ring {
  ring_header *header;
  _Atomic uint64_t *control;
  char *texts;
  ring_chunk *chunks;
  uint64_t chunk_count, text_max;
  uint64_t text_backed; /* bytes of the texts for which disk space is allocated; guarded by the
                         * trace's lock */
  uint64_t mapped_bytes;
  descriptor file;
} ring;

/* Blocks SIGXFSZ between the two calls: growing a file beyond RLIMIT_FSIZE raises it and would end
 * the program. The failing write is then only an error. */
typedef struct ring_quiet {
  sigset_t before, pending;
} ring_quiet;
void ring_quiet_begin(ring_quiet *q);
void ring_quiet_end(const ring_quiet *q);

/* Creates the file (NULL: a memfd) and maps it. Allocates all space for events now, so that a full
 * disk is an error here and not a SIGBUS later. */
stow_status ring_create(ring *r, const char *path, uint64_t ring_bytes, uint64_t text_bytes);
/* Replaces the mapping with plain memory, so that a thread that still writes does no harm, and
 * closes the file. The addresses stay reserved. */
void ring_detach(ring *r);

/* Takes a chunk for `thread`. Returns NULL if every chunk is open or waits for the file.
 * `may_take_sealed`: no file is being written, so sealed chunks are free too. */
ring_chunk *ring_take(ring *r, uint32_t thread, uint64_t first_seq, bool may_take_sealed,
                      uint64_t *ticket);
/* Releases a chunk as SEALED or FREE. Only its owner may call it. */
void ring_seal(ring *r, ring_chunk *c, uint64_t ticket, bool for_file);

/* Appends one entry; the caller holds the trace's lock. STOW_ERR_BUDGET: the texts are full. */
stow_status ring_text(ring *r, text_kind kind, const void *payload, uint32_t length);

/* Writes the record at position `place` and then commits it. */
static inline void ring_put(ring_chunk *c, uint64_t ticket, uint32_t place,
                            uint64_t w[RING_RECORD_WORDS]) {
  w[5] = (uint32_t)w[5] | (uint64_t)ring_check(w, ticket, place) << 32;
  _Atomic uint64_t *to = c->words + (size_t)place * RING_RECORD_WORDS;
  for (int i = 0; i < RING_RECORD_WORDS; i++)
    atomic_store_explicit(&to[i], w[i], memory_order_relaxed);
  atomic_store_explicit(&c->count, place + 1, memory_order_release);
}

/* Reads a record back. Returns false if its check word is wrong. */
static inline bool ring_get(const ring_chunk *c, uint64_t ticket, uint32_t place,
                            ring_record *out) {
  uint64_t w[RING_RECORD_WORDS];
  const _Atomic uint64_t *from = c->words + (size_t)place * RING_RECORD_WORDS;
  for (int i = 0; i < RING_RECORD_WORDS; i++)
    w[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
  *out = (ring_record){w[0],
                       w[1],
                       w[2],
                       w[3],
                       (uint32_t)w[4],
                       (uint32_t)(w[4] >> 32),
                       (uint16_t)w[5],
                       (uint8_t)(w[5] >> 16),
                       (uint8_t)(w[5] >> 24),
                       (uint32_t)(w[5] >> 32)};
  return out->check == ring_check(w, ticket, place);
}

#endif
