/* What moving memory costs on a card: the one table of figures that the engine, the simulated
 * device of `stowage replay --spill` and the documents use. */
#ifndef RESIDENCY_COST_H
#define RESIDENCY_COST_H

#include <stdbool.h>
#include <stdint.h>

typedef struct residency_card {
  double copy_ns_per_byte;     /* one direction alone */
  double both_ns_per_byte;     /* each direction while both are busy */
  double in_place_ns_per_byte; /* a kernel that reads each byte of a host page once */
  double in_place_reuse; /* times that a kernel with reuse (a matrix product) reads a host byte */
  double reuse_bytes_per_ns; /* a kernel that touches bytes more slowly than this has reuse … */
  double reuse_bytes;        /* … if it touches up to this much; see residency_in_place_ns */
  double check_ns_per_byte;  /* comparing a page with its host copy by a hash on the device */
  double point_ns;           /* closing and opening the gate, and the pipeline that runs dry */
} residency_card;

/* An H200 on PCIe 5, driver 580. */
extern const residency_card residency_card_h200;

/* Nanoseconds that `far` host bytes add to a kernel that touches `all` bytes and takes `device_ns`
 * with everything in vram. A matrix product reads its operands several times, a streaming kernel
 * once; parameters do not say which. A product with larger operands does more arithmetic per byte,
 * so the rate below which a kernel counts as a product falls with the root of its size. */
double residency_in_place_ns(const residency_card *card, uint64_t far, uint64_t all,
                             uint64_t device_ns);

/* What an exchange remaps. Parked: units without live blocks, whose addresses all map one spare
 * vram page; no host page is granted for them. */
typedef struct residency_bytes {
  uint64_t in, out;      /* host page to vram page, and back */
  uint64_t unpark, park; /* spare page to vram page, and back */
} residency_bytes;

/* Nanoseconds of page calls to exchange units of `page_bytes`. `busy`: directions of the bus in
 * which copies run meanwhile, 0 to 2. */
double residency_exchange_ns(uint64_t page_bytes, const residency_bytes *bytes, int busy);

#endif
