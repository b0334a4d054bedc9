/* Cost: what moving memory costs on a device. The engine, the simulated device of `stowage replay
 * --spill` and the documentation all use this table. */
#ifndef RESIDENCY_COST_H
#define RESIDENCY_COST_H

#include <stdbool.h>
#include <stdint.h>

typedef struct residency_costs {
  double copy_ns_per_byte;     /* copying in one direction while the other is idle */
  double both_ns_per_byte;     /* each direction while both are busy */
  double in_place_ns_per_byte; /* reading each byte of a host page once */
  double in_place_reuse; /* how often a kernel with reuse (a matrix product) reads a host byte */
  double reuse_bytes_per_ns; /* a kernel that touches bytes more slowly than this has reuse … */
  double reuse_bytes;        /* … if it touches at most this much; see residency_in_place_ns */
  double vram_bytes_per_ns;  /* the most that a kernel reads from vram */
  double check_ns_per_byte;  /* comparing a page with its host copy by a hash on the device */
  double point_ns;           /* closing and opening the gate, including the idle time of the
                              * device */
} residency_costs;

/* An H200 on PCIe 5, driver 580. */
extern const residency_costs residency_costs_h200;

/* Returns the nanoseconds that `far` host bytes add to a kernel that touches `all` bytes and takes
 * `device_ns` with everything in vram. A matrix product reads its operands several times, a
 * streaming kernel once; the parameters do not show which it is. A product with larger operands
 * does more arithmetic per byte, so the rate below which a kernel counts as a product falls with
 * the square root of its size. One that is much faster than vram allows reads only a part of what
 * it touches, such as some rows of a table. */
double residency_in_place_ns(const residency_costs *c, uint64_t far, uint64_t all,
                             uint64_t device_ns);

/* The bytes that an exchange remaps. Parked: units without live blocks, whose addresses all map one
 * spare vram page; no host page is granted for them. */
typedef struct residency_bytes {
  uint64_t in, out;      /* from host page to vram page, and back */
  uint64_t unpark, park; /* from spare page to vram page, and back */
} residency_bytes;

/* Returns the nanoseconds of page calls that exchange units of `page_bytes`. `busy`: in how many
 * directions of the bus copies run at the same time, 0 to 2. */
double residency_exchange_ns(uint64_t page_bytes, const residency_bytes *bytes, int busy);

#endif
