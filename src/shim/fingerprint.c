/* Fingerprint: the kernel, as PTX, and the host's part. See fingerprint.h.
 *
 * Each 8-byte word is mixed with its position by steps that can be reversed, so that a change of
 * one word always changes the first sum; the two sums over all words are the fingerprint. */
#include "shim/fingerprint.h"

#include <string.h>

#include "base/assert.h"
#include "device/physical.h"
#include "shim/shim.h"

enum { BLOCKS = 64, THREADS = 256 }; /* for one page; the PTX uses 8 warps */

/* Mixes the bits of x, and adds the result to the sums a and b. */
#define ADD_MIXED                                                                                  \
  " shr.u64 y, x, 32;\n"                                                                           \
  " xor.b64 x, x, y;\n"                                                                            \
  " mul.lo.u64 x, x, 0xd6e8feb86659fd93;\n"                                                        \
  " shr.u64 y, x, 29;\n"                                                                           \
  " xor.b64 x, x, y;\n"                                                                            \
  " add.u64 a, a, x;\n"                                                                            \
  " mul.lo.u64 y, x, 0xff51afd7ed558ccd;\n"                                                        \
  " shr.u64 x, y, 32;\n"                                                                           \
  " xor.b64 y, y, x;\n"                                                                            \
  " add.u64 b, b, y;\n"

/* stowage_fingerprint(addresses, bytes, sums): block (x, y) adds up its part of page y. */
static const char PTX[] =
    ".version 6.4\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry stowage_fingerprint(.param .u64 list, .param .u64 bytes, .param .u64 out)\n"
    "{\n"
    " .reg .pred p;\n"
    " .reg .b32 tid, bid, nb, page, lane, warp, lo, hi, t;\n"
    " .reg .b64 base, n, i, step, at, w0, w1, k, kstep, x, y, a, b, o;\n"
    " .shared .align 8 .b8 parts[128];\n"
    " mov.u32 tid, %tid.x;\n"
    " mov.u32 bid, %ctaid.x;\n"
    " mov.u32 nb, %nctaid.x;\n"
    " mov.u32 page, %ctaid.y;\n"
    " ld.param.u64 base, [list];\n"
    " mul.wide.u32 o, page, 8;\n"
    " add.u64 base, base, o;\n"
    " ld.global.u64 base, [base];\n"
    " ld.param.u64 n, [bytes];\n"
    " shr.u64 n, n, 4;\n"
    " mad.lo.u32 t, bid, 256, tid;\n"
    " cvt.u64.u32 i, t;\n"
    " shl.b32 t, nb, 8;\n"
    " cvt.u64.u32 step, t;\n"
    " mul.lo.u64 k, i, 0x3c6ef372fe94f82a;\n" /* two words further: twice the golden ratio */
    " mul.lo.u64 kstep, step, 0x3c6ef372fe94f82a;\n"
    " mov.u64 a, 0;\n"
    " mov.u64 b, 0;\n"
    "LOOP:\n"
    " setp.ge.u64 p, i, n;\n"
    " @p bra DONE;\n"
    " shl.b64 at, i, 4;\n"
    " add.u64 at, at, base;\n"
    " ld.global.v2.u64 {w0, w1}, [at];\n"
    " xor.b64 x, w0, k;\n" ADD_MIXED " add.u64 y, k, 0x9e3779b97f4a7c15;\n"
    " xor.b64 x, w1, y;\n" ADD_MIXED " add.u64 i, i, step;\n"
    " add.u64 k, k, kstep;\n"
    " bra LOOP;\n"
    "DONE:\n"
#define FOLD(distance)                                                                             \
  " mov.b64 {lo, hi}, a;\n"                                                                        \
  " shfl.sync.down.b32 lo, lo, " distance ", 31, -1;\n"                                            \
  " shfl.sync.down.b32 hi, hi, " distance ", 31, -1;\n"                                            \
  " mov.b64 x, {lo, hi};\n"                                                                        \
  " add.u64 a, a, x;\n"                                                                            \
  " mov.b64 {lo, hi}, b;\n"                                                                        \
  " shfl.sync.down.b32 lo, lo, " distance ", 31, -1;\n"                                            \
  " shfl.sync.down.b32 hi, hi, " distance ", 31, -1;\n"                                            \
  " mov.b64 x, {lo, hi};\n"                                                                        \
  " add.u64 b, b, x;\n"
    FOLD("16") FOLD("8") FOLD("4") FOLD("2") FOLD("1")
#undef FOLD
        " and.b32 lane, tid, 31;\n"
        " shr.u32 warp, tid, 5;\n"
        " setp.ne.u32 p, lane, 0;\n"
        " mov.u64 at, parts;\n"
        " mul.wide.u32 o, warp, 16;\n"
        " add.u64 at, at, o;\n"
        " @p bra STORED;\n"
        " st.shared.u64 [at], a;\n"
        " st.shared.u64 [at+8], b;\n"
        "STORED:\n"
        " bar.sync 0;\n"
        " setp.ne.u32 p, tid, 0;\n"
        " @p bra END;\n"
        " mov.u64 at, parts;\n"
        " mov.u64 a, 0;\n"
        " mov.u64 b, 0;\n"
#define WARP(offset)                                                                               \
  " ld.shared.u64 x, [at+" offset "];\n"                                                           \
  " ld.shared.u64 y, [at+" offset "+8];\n"                                                         \
  " add.u64 a, a, x;\n"                                                                            \
  " add.u64 b, b, y;\n"
    WARP("0") WARP("16") WARP("32") WARP("48") WARP("64") WARP("80") WARP("96") WARP("112")
#undef WARP
        " mad.lo.u32 t, page, nb, bid;\n"
        " mul.wide.u32 o, t, 16;\n"
        " ld.param.u64 at, [out];\n"
        " add.u64 at, at, o;\n"
        " st.global.u64 [at], a;\n"
        " st.global.u64 [at+8], b;\n"
        "END:\n"
        " ret;\n"
        "}\n";

static bool pinned(void **host, cu_addr *device, size_t bytes) {
  physical maker = {shim_driver(), NULL, NULL}; /* our own, and small: not counted */
  if (physical_pinned_alloc(&maker, device, host, bytes) != CU_OK) return false;
  memset(*host, 0, bytes);
  return true;
}

bool fingerprint_open(fingerprinter *f) {
  const cuda_driver *driver = shim_driver();
  void *module, *addresses, *sums;
  if (driver->cuModuleLoadData == NULL || driver->cuModuleGetFunction == NULL ||
      driver->cuLaunchKernel == NULL)
    return false;
  cu_result code = driver->cuModuleLoadData(&module, PTX);
  if (code == CU_OK)
    code = driver->cuModuleGetFunction(&f->function, module, "stowage_fingerprint");
  if (code != CU_OK) {
    shim_log("fingerprints: CUDA error %d", code);
    return false;
  }
  if (!pinned(&addresses, &f->device_addresses, FINGERPRINT_PAGES_MAX * sizeof(uint64_t)) ||
      !pinned(&sums, &f->device_sums, sizeof(uint64_t[FINGERPRINT_PAGES_MAX * BLOCKS][2])))
    return false;
  f->addresses = addresses;
  f->sums = sums;
  return true;
}

cu_result fingerprint_start(const fingerprinter *f, uint32_t first, uint32_t count, uint64_t bytes,
                            cu_stream stream) {
  ASSERT(first + count <= FINGERPRINT_PAGES_MAX && count > 0);
  ASSERT(bytes % 16 == 0);
  uint64_t list = f->device_addresses + first * sizeof(uint64_t);
  uint64_t out = f->device_sums + (uint64_t)first * BLOCKS * sizeof(uint64_t[2]);
  void *parameters[] = {&list, &bytes, &out};
  return shim_driver()->cuLaunchKernel(f->function, BLOCKS, count, 1, THREADS, 1, 1, 0, stream,
                                       parameters, NULL);
}

fingerprint fingerprint_read(const fingerprinter *f, uint32_t page) {
  ASSERT(page < FINGERPRINT_PAGES_MAX);
  fingerprint sum = {0, 0};
  for (uint32_t i = 0; i < BLOCKS; i++) {
    sum.a += f->sums[(size_t)page * BLOCKS + i][0];
    sum.b += f->sums[(size_t)page * BLOCKS + i][1];
  }
  return sum;
}
