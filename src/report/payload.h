/* Payload: a report as the bytes the viewer unpacks (web/data.js is its reader).
 *
 *   u32 LE   length of the JSON
 *   JSON     {"version":1,"runs":[{…, "sections":{"kinds":[offset,bytes], …}}]}
 *   bytes    the sections, struct of arrays; offsets count from here
 *
 * Sections hold unsigned LEB128 numbers unless said otherwise. Every allocation is in it, so the
 * viewer can zoom to any single one:
 *
 *   kinds    one byte a tick: event_kind, or kind | 0x40 for an alloc or free that has no lifetime
 *   times    zigzag differences, in units of "timeUnit" nanoseconds
 *   ages     for each free with a lifetime: lifetimes so far minus its number
 *   over     pairs (tick difference, lifetime) of lifetimes ended by a second alloc of their
 * address sizes, addrs, stacks, tags, streams   dictionaries; addrs ascending as differences
 *   life.size, life.addr, life.stack, life.tag, life.stream   an index into them for each lifetime;
 *            the last three are absent where the dictionary has one entry
 *   node.up, node.frame   the tree of stacks, root first: number minus parent's number, frame
 *   stacks.node, stacks.site   for each entry of `stacks`: its leaf (0 the root) and its site
 *   extents  addr, bytes, start, end + 1 (0 open), stream index, flags (1 mapped)
 *   marks    tick difference, name, 1 for an end */
#ifndef REPORT_PAYLOAD_H
#define REPORT_PAYLOAD_H

#include "report/report.h"

/* Appends the payload, not compressed. */
stow_status payload_write(buffer *out, const report *all, size_t count);

#endif
