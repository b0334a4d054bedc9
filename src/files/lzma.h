/* Lzma: liblzma's stream decoder, found at run time. The struct and the numbers are liblzma's
 * public ABI (lzma/base.h, lzma/container.h), unchanged since version 5.0. */
#ifndef FILES_LZMA_H
#define FILES_LZMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { LZMA_OK = 0, LZMA_STREAM_END = 1, LZMA_MEM = 5, LZMA_MEM_LIMIT = 6, LZMA_BUF = 10 };
enum { LZMA_RUN = 0, LZMA_FINISH = 3 };
#define LZMA_CONCATENATED UINT32_C(8)

typedef struct lzma_stream {
  const uint8_t *next_in;
  size_t avail_in;
  uint64_t total_in;
  uint8_t *next_out;
  size_t avail_out;
  uint64_t total_out;
  const void *allocator;
  void *internal;
  void *reserved_pointers[4];
  uint64_t seek_position, reserved_number;
  size_t reserved_sizes[2];
  int reserved_enums[2];
} lzma_stream;

typedef struct lzma {
  int (*stream_decoder)(lzma_stream *s, uint64_t memory_max, uint32_t flags);
  int (*code)(lzma_stream *s, int action);
  void (*end)(lzma_stream *s);
} lzma;

/* Loads liblzma once. STOW_ERR_UNSUPPORTED says what to install. */
stow_status lzma_load(const lzma **functions);

#endif
