/* Cost: measured costs of page calls and copies. */
#include "residency/cost.h"

#include <stddef.h>

#include "base/assert.h"

/* Measured on an H200 (PCIe 5 x16, driver 580, CUDA 13, 2026-11-16):
 *
 * - Copies: 1 GiB of pinned memory takes 19.4 ms alone, 21.4 ms with the other direction busy.
 * - In place: 7B decode reads 3.6 GiB of weights on the host at 36 GB/s. A prompt of 512 tokens
 *   reads the same pages at 3.8 GB/s: a matrix product with many rows reads each byte ten times.
 * - Reuse: most of decode touches 2.5 to 5 TB/s, the products of the prompt 1.7 to 1.8 TB/s.
 * - Check: a hash runs at memory speed, 3 TB/s.
 * - Point: an idle cuCtxSynchronize takes 0.3 us; refilling the launch queue takes the rest. */
const residency_costs residency_costs_h200 = {
    .copy_ns_per_byte = 19.4e6 / 0x1p30,
    .both_ns_per_byte = 21.4e6 / 0x1p30,
    .in_place_ns_per_byte = 1 / 36.0,
    .in_place_reuse = 9.5,
    .reuse_bytes_per_ns = 1850,
    .reuse_bytes = 256 * 0x1p20,
    .vram_bytes_per_ns = 4800,
    .check_ns_per_byte = 1 / 3000.0,
    .point_ns = 50e3,
};

/* Milliseconds per GiB for contiguous ranges, granted and unmapped with one call each, with a
 * permanent alias mapping of every page present. In: unmap the host page, map and grant vram. Out:
 * the reverse. Park: unmap vram, map and grant the spare vram page; unparking costs the same (1.9
 * ms at 20 MiB, 1.2 at 32, 0.6 at 64, measured as such). Same GPU and day. */
/* While copies of 32 MiB run in one direction (to the device), two queued. */
#define PARK_BESIDE_ONE  1.55
#define PARK_BESIDE_BOTH 18.0 /* while copies run in both directions */
static const struct {
  double page_bytes, in, out, in_beside, out_beside, park;
} calls[] = {
    {0x1p21, 28.4, 34.3, 42.8, 46.9, 20.7},     {20 * 0x1p20, 4.5, 11.4, 10.2, 18.5, 2.1},
    {64 * 0x1p20, 3.0, 9.4, 7.7, 14.8, 0.84},   {256 * 0x1p20, 2.3, 8.2, 6.8, 13.5, 0.48},
    {1024 * 0x1p20, 2.1, 7.8, 6.5, 12.4, 0.18},
};

double residency_exchange_ns(uint64_t page_bytes, const residency_bytes *b, int busy) {
  ASSERT(page_bytes > 0);
  ASSERT(busy >= 0 && busy <= 2);
  const size_t last = sizeof calls / sizeof *calls - 1;
  size_t i = 0;
  while (i < last - 1 && (double)page_bytes > calls[i + 1].page_bytes) i++;
  /* Most of a call's time is per page: interpolate over pages per byte. */
  double from = 1 / calls[i].page_bytes, to = 1 / calls[i + 1].page_bytes;
  double at = (1 / (double)page_bytes - from) / (to - from);
  at = at < 0 ? 0 : at > 1 ? 1 : at;
  double cost[2];
  for (size_t k = 0; k < 2; k++) {
    double in = busy > 0 ? calls[i + k].in_beside : calls[i + k].in;
    double out = busy > 0 ? calls[i + k].out_beside : calls[i + k].out;
    double park = calls[i + k].park * (busy == 0   ? 1
                                       : busy == 1 ? PARK_BESIDE_ONE
                                                   : PARK_BESIDE_BOTH);
    cost[k] = (double)b->in * in + (double)b->out * out + (double)(b->park + b->unpark) * park;
  }
  return (cost[0] + (cost[1] - cost[0]) * at) * 1e6 / 0x1p30;
}

#define RATE_BYTES (UINT64_C(4) << 20) /* the rate of a smaller launch is not meaningful */

/* A kernel that would have to read so many times faster than vram allows reads only a part. Less
 * than that may be an error of its time. */
#define SURELY 4

double residency_in_place_ns(const residency_costs *c, uint64_t far, uint64_t all,
                             uint64_t device_ns) {
  double size = (double)all / c->reuse_bytes, limit = c->reuse_bytes_per_ns * (double)device_ns;
  /* Compares squares, which avoids a square root. */
  bool reuse = all >= RATE_BYTES && device_ns > 0 &&
               (double)all * (double)all * (size > 1 ? size : 1) < limit * limit;
  double most = c->vram_bytes_per_ns * (double)device_ns;
  double part = device_ns > 0 && (double)all > SURELY * most ? most / (double)all : 1;
  return (double)far * c->in_place_ns_per_byte * (reuse ? c->in_place_reuse : part);
}
