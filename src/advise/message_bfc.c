/* The dump of TensorFlow's and XLA's BFC allocator: every chunk of every region, in use or free.
 *
 *   InUse at 7f3c00000000 of size 1280 next 1        (older: "Chunk at 0x… of size 1280")
 *   Free  at 7f3c00000500 of size 256 next 4
 *   Bin (256): Total Chunks: 13, Chunks in use: 13. 3.2KiB allocated for chunks. 3.2KiB in use …
 *   Limit: 15703241728     InUse: 3580000000
 *
 * The allocator merges adjacent free chunks, so the largest free chunk is the largest possible
 * request. */

#include "advise/clean.h"
#include "advise/message_parts.h"

static void chunk_line(message_chunks *c, scan_text line) {
  const char *size = scan_find(line, " of size ");
  if (size == NULL) return;
  bool used = scan_find(line, "InUse at ") != NULL || scan_find(line, "Chunk at ") != NULL;
  bool free = scan_find(line, "Free at ") != NULL || scan_find(line, "Free  at ") != NULL;
  uint64_t bytes = scan_size(line, size);
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

/* Parses a bin's line, which is used only if there are no chunk lines. */
static void bin_line(message_chunks *bins, scan_text line) {
  const char *at = scan_find(line, "Total Chunks: ");
  const char *used = at != NULL ? scan_find(scan_from(line, at), "in use: ") : NULL;
  const char *dot = used != NULL ? scan_find(scan_from(line, used), ". ") : NULL;
  if (dot == NULL || scan_find(line, "Bin (") == NULL) return;
  uint64_t total = scan_size(line, dot);
  const char *next = scan_find(scan_from(line, dot), "allocated for chunks. ");
  uint64_t held = scan_size(line, next);
  if (total == MESSAGE_UNKNOWN || held == MESSAGE_UNKNOWN || held > total) return;
  bins->found = bins->from_bins = true;
  bins->used_bytes += held;
  bins->free_bytes += total - held;
}

/* Parses "Limit: 503270604" and "InUse: 503061248" at the start of a line, or after a logger's "]
 * ". The driver's pool writes the first on the line of its head: "Stats: Limit: 503270604". */
static void stats_line(message *m, scan_text line) {
  if (!scan_has(line, "Limit:") && !scan_has(line, "InUse:") && !scan_has(line, "in pool: ") &&
      !scan_has(line, "memory_limit_: "))
    return;
  line = clean_line(line);
  const char *bracket = scan_find(line, "] ");
  scan_text rest = bracket != NULL ? scan_from(line, bracket) : line;
  while (rest.at < rest.end && (*rest.at == ' ' || *rest.at == '\t')) rest.at++;
  if (scan_starts(rest, "Stats: Limit:")) rest.at = scan_find(rest, "Stats: ");
  if (scan_starts(rest, "Limit:")) m->limit_bytes = scan_size_after(rest, "Limit:");
  if (scan_starts(rest, "InUse:")) m->live_bytes = scan_size_after(rest, "InUse:");
  if (scan_starts(rest, "Total bytes in pool: "))
    m->reserved_bytes = scan_size_after(rest, "Total bytes in pool: ");
  if (scan_has(rest, "memory_limit_: ")) {
    m->limit_bytes = scan_size_after(rest, "memory_limit_: ");
    uint64_t region = scan_size_after(rest, "total_region_allocated_bytes_: ");
    if (region != MESSAGE_UNKNOWN) m->reserved_bytes = region;
  }
}

void message_bfc(message *m, scan_text raw) {
  message_chunks bins = {0};
  scan_text line;
  while (scan_next_line(&raw, &line)) {
    chunk_line(&m->chunks, line);
    bin_line(&bins, line);
    stats_line(m, line);
  }
  if (!m->chunks.found) m->chunks = bins;
}
