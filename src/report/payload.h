/* Payload: a report as the bytes the viewer unpacks (web/data.js is its reader).
 *
 *   u32 LE   length of the JSON
 *   JSON     {"version":1,"runs":[{…, "sections":{"kinds":[offset,bytes], …}}]}
 *   bytes    the sections, struct of arrays; offsets count from here
 *
 * Sections hold unsigned LEB128 numbers unless said otherwise. Every allocation is in it, so the
 * viewer can zoom to any single one; above the limits the smallest are combined (replay/thin.h):
 *
 *   kinds    one byte per tick: event_kind, or kind | 0x40 for an alloc or free that has no
 * lifetime times    zigzag differences, in units of "timeUnit" nanoseconds ages     for each free
 * with a lifetime: lifetimes so far minus its number over     tick difference, lifetime: those
 * ended by a second alloc of their address sizes, addrs, tags, streams   dictionaries; addrs
 * ascending, as differences life.stack, life.tag, life.stream   a number for each lifetime; absent
 * if there is only one stacks.sizes, life.size, life.addr   see columns.h stacks.node, stacks.site
 * for each stack: its leaf (0 the root) and its site node.up, node.frame   the tree of stacks, root
 * first: number minus parent's number, frame extents  addr, bytes, start, end + 1 (0 open), 1 if
 * mapped marks    tick difference, name, 1 for an end rests    lifetimes that each represent many,
 * as differences */
#ifndef REPORT_PAYLOAD_H
#define REPORT_PAYLOAD_H

#include "report/report.h"

/* Per run. */
typedef struct payload_limits {
  uint32_t lives_max, extents_max, iterations_max;
  uint32_t marks_max;    /* at least 2 */
  uint64_t time_unit_ns; /* resolution of times */
} payload_limits;

/* Appends the payload, not compressed. */
stow_status payload_write(buffer *out, const report *all, size_t count,
                          const payload_limits *limits);

#endif
