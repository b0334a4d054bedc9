/* What calls cost on the simulated device: base/driver_cost.h, plus measurements on the same
 * machine for runs of calls, busy streams, host pages and copies.
 *
 * Called at the end of every entry that has a cost. With costs on, the simulated clock advances by
 * it. */
#include "base/driver_cost.h"
#include "device/sim_state.h"

#define GIB (UINT64_C(1) << 30)

/* 1 GiB as 512 pages of 2 MiB took: create 7.8 ms, map 0.8 ms (one call per page), set-access 18.5
 * ms, unmap 11 ms (one call for all). So a create or map within a run, and each page after the
 * first of one set-access or unmap, costs this many thousandths of a single call in the table. The
 * same proportion is assumed for other page sizes. */
#define RUN_CREATE 1424 /* 7800/512 us versus 10.7 */
#define RUN_MAP    1563 /* 800/512 us versus 1.0 */
#define RUN_ACCESS 1470 /* (18500 - 24.6)/511 us versus 24.6 */
#define RUN_UNMAP  1257 /* (11000 - 17.1)/511 us versus 17.1 */

/* While a stream was busy, a 2 MiB page took: create 7.5 ms, map and set-access together 90 us,
 * unmap 85 us; none waited for the stream. Modelled as a surcharge per call, independent of size:
 * only 2 MiB was measured. */
#define BUSY_CREATE_NS (7500000 - 10700)
#define BUSY_ACCESS_NS (90000 - 1000 - 24600)
#define BUSY_UNMAP_NS  (85000 - 17100)

/* Host pages (HOST_NUMA), 1 GiB: create 214 to 316 ms (the middle is used); set-access 8 ms.
 * cuMemHostAlloc of 1 GiB 346 ms, its free 91 ms. Assumed proportional to size. Unmap and release
 * of host pages were not measured and use the figures for vram. */
#define HOST_CREATE_NS_PER_GIB UINT64_C(265000000)
#define HOST_ACCESS_NS_PER_GIB UINT64_C(8000000)
#define HOST_ALLOC_NS_PER_GIB  UINT64_C(346000000)
#define HOST_FREE_NS_PER_GIB   UINT64_C(91000000)

/* Copies between host and device: 55 GB/s in both directions, measured. Within the device: 2 TB/s,
 * an estimate (read and write share the 4.8 TB/s of the H200's data sheet). */
#define BUS_BYTES_PER_US  UINT64_C(55000)
#define VRAM_BYTES_PER_US UINT64_C(2000000)

static uint64_t per_gib(uint64_t bytes, uint64_t ns) {
  return (bytes >> 10) * ns / (GIB >> 10);
}

uint64_t sim_cost_ns(const sim *s, driver_call call, uint64_t bytes, stow_tier tier, uint64_t nth) {
  if (!s->options.costs) return 0;
  uint64_t ns = driver_cost_ns(call, bytes);
  if (tier == STOW_TIER_HOST) {
    if (call == DRIVER_CREATE) return ns + per_gib(bytes, HOST_CREATE_NS_PER_GIB);
    if (call == DRIVER_ACCESS) return ns + per_gib(bytes, HOST_ACCESS_NS_PER_GIB);
    if (call == DRIVER_ALLOC) return ns + per_gib(bytes, HOST_ALLOC_NS_PER_GIB);
    if (call == DRIVER_FREE) return ns + per_gib(bytes, HOST_FREE_NS_PER_GIB);
  }
  bool in_run = s->last_call == call;
  if (call == DRIVER_CREATE && in_run) return ns * RUN_CREATE / 1000;
  if (call == DRIVER_MAP && in_run) return ns * RUN_MAP / 1000;
  if (call == DRIVER_ACCESS && nth > 0) return ns * RUN_ACCESS / 1000;
  if (call == DRIVER_UNMAP && nth > 0) return ns * RUN_UNMAP / 1000;
  return ns;
}

uint64_t sim_cost_busy_ns(const sim *s, driver_call call) {
  if (!s->options.costs || s->busy_ns <= s->counts.now_ns) return 0;
  switch (call) {
  case DRIVER_CREATE: return BUSY_CREATE_NS;
  case DRIVER_ACCESS: return BUSY_ACCESS_NS;
  case DRIVER_UNMAP: return BUSY_UNMAP_NS;
  default: return 0;
  }
}

void sim_cost_charge(sim *s, driver_call call, uint64_t ns) {
  if (!s->options.costs) return;
  s->last_call = call;
  s->counts.call_ns += ns;
  s->counts.now_ns += ns;
}

static uint64_t move_ns(uint64_t bytes, uint64_t per_us) {
  return bytes / per_us * 1000 + (bytes % per_us * 1000 + per_us - 1) / per_us;
}

uint64_t sim_cost_move_ns(uint64_t bus_bytes, uint64_t vram_bytes) {
  return move_ns(bus_bytes, BUS_BYTES_PER_US) + move_ns(vram_bytes, VRAM_BYTES_PER_US);
}
