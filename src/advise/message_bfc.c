/* The dump of TensorFlow's and XLA's BFC allocator: every chunk of every region, in use or free.
 *
 *   InUse at 7f3c00000000 of size 1280 next 1        (older: "Chunk at 0x… of size 1280")
 *   Free  at 7f3c00000500 of size 256 next 4
 *   Bin (256): Total Chunks: 13, Chunks in use: 13. 3.2KiB allocated for chunks. 3.2KiB in use …
 *   Limit: 15703241728     InUse: 3580000000
 *
 * Free chunks beside each other are one hole already (the allocator merges them), so the largest
 * free chunk is what one request can have. */
#include <string.h>

#include "advise/message.h"

static bool starts(message_text t, const char *at, const char *words) {
  size_t length = strlen(words);
  return (size_t)(t.end - at) >= length && memcmp(at, words, length) == 0;
}

/* The last place on the line where `words` stand, past them; log prefixes come before. */
static const char *on_line(message_text line, const char *words) {
  return message_find(line, words);
}

static void chunk_line(message_chunks *c, message_text line) {
  const char *size = on_line(line, " of size ");
  if (size == NULL) return;
  bool used = on_line(line, "InUse at ") != NULL || on_line(line, "Chunk at ") != NULL;
  bool free = on_line(line, "Free at ") != NULL || on_line(line, "Free  at ") != NULL;
  uint64_t bytes = message_size(line, size);
  if (used == free || bytes == MESSAGE_UNKNOWN) return;
  c->found = true;
  if (used) {
    c->used_bytes += bytes;
    c->used_count++;
    return;
  }
  c->free_bytes += bytes;
  c->free_count++;
  if (bytes > c->largest_free_bytes) c->largest_free_bytes = bytes;
}

/* A bin's line: only looked at where there are no chunk lines. */
static void bin_line(message_chunks *bins, message_text line) {
  const char *at = on_line(line, "Total Chunks: ");
  const char *used = at != NULL ? message_find((message_text){at, line.end}, "in use: ") : NULL;
  const char *dot = used != NULL ? message_find((message_text){used, line.end}, ". ") : NULL;
  if (dot == NULL || on_line(line, "Bin (") == NULL) return;
  uint64_t total = message_size(line, dot);
  const char *next = message_find((message_text){dot, line.end}, "allocated for chunks. ");
  uint64_t held = message_size(line, next);
  if (total == MESSAGE_UNKNOWN || held == MESSAGE_UNKNOWN || held > total) return;
  bins->found = bins->from_bins = true;
  bins->used_bytes += held;
  bins->free_bytes += total - held;
}

static void stats_line(message *m, message_text line) {
  const char *p = line.at;
  while (p < line.end && (*p == ' ' || *p == '\t')) p++;
  message_text rest = {p, line.end};
  if (starts(rest, p, "Limit:")) m->limit_bytes = message_size_after(rest, "Limit:");
  if (starts(rest, p, "InUse:")) m->live_bytes = message_size_after(rest, "InUse:");
  if (message_find(rest, "memory_limit_: ") != NULL) {
    m->limit_bytes = message_size_after(rest, "memory_limit_: ");
    m->reserved_bytes = message_size_after(rest, "total_region_allocated_bytes_: ");
  }
}

void message_bfc(message *m, message_text t) {
  message_chunks bins = {0};
  for (const char *at = t.at; at < t.end;) {
    const char *newline = memchr(at, '\n', (size_t)(t.end - at));
    message_text line = {at, newline != NULL ? newline : t.end};
    chunk_line(&m->chunks, line);
    bin_line(&bins, line);
    stats_line(m, line);
    at = line.end + 1;
  }
  if (!m->chunks.found) m->chunks = bins;
  if (m->chunks.found && m->live_bytes == MESSAGE_UNKNOWN) m->live_bytes = m->chunks.used_bytes;
  if (m->chunks.found) m->cached_bytes = m->chunks.free_bytes;
}
