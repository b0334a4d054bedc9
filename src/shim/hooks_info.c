/* Hooks of the memory figures that programs size themselves by, of contexts (which release their
 * memory when they end), and of captures. */
#include "shim/capture.h"
#include "shim/holdings.h"
#include "shim/hooks.h"
#include "shim/host_tier.h"
#include "shim/measure.h"
#include "shim/page.h"
#include "shim/placed.h"
#include "shim/plain.h"
#include "shim/resident.h"
#include "shim/spill.h"
#include "shim/trim.h"

cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  __typeof__(&cuMemGetInfo_v2) real = REAL(cuMemGetInfo_v2);
  unsigned device;
  cu_context context;
  cu_device ordinal;
  size_t ignored; /* the driver accepts NULL for values that are not wanted */
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (free_bytes == NULL && total_bytes == NULL) return real(free_bytes, total_bytes);
  if (free_bytes == NULL) free_bytes = &ignored;
  if (total_bytes == NULL) total_bytes = &ignored;
  ledger *l = account_ledger();
  bool known = l->header != NULL && account_here(&device, &context, &ordinal);
  /* What was freed is free: for this program, and for the others of the run. */
  if (known) plain_trim(device, true);
  cu_result code = real(free_bytes, total_bytes);
  if (code != CU_OK || !known) return code;
  measure_device(device, ordinal);
  uint64_t left = *free_bytes, total = *total_bytes;
  ledger_report_memory(l, device, host_tier_budget(ordinal), &left, &total);
  *free_bytes = left;
  *total_bytes = total;
  return code;
}

cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device ordinal) {
  __typeof__(&cuDeviceTotalMem_v2) real = REAL(cuDeviceTotalMem_v2);
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(bytes, ordinal);
  ledger *l = account_ledger();
  /* A framework that queries the devices is starting; act before it gets a pool. */
  if (host_tier_on()) trim_schedule();
  if (code == CU_OK && l->header != NULL) {
    uint64_t left = 0, total = *bytes;
    ledger_report_memory(l, account_device(ordinal), host_tier_budget(ordinal), &left, &total);
    *bytes = total;
  }
  return code;
}

/* ---- contexts ---- */

/* Called before a first context: waits until the memory of others is known, and whether spilling
 * works. */
static void before_context(cu_device ordinal) {
  static _Atomic bool asked;
  account_wait_devices();
  measure_context_begins(account_device(ordinal));
  if (!atomic_exchange(&asked, true)) host_tier_budget(ordinal);
  if (host_tier_on()) trim_schedule();
}

static cu_result after_context(const cu_context *context, cu_device ordinal, cu_result code) {
  unsigned device = account_device(ordinal);
  if (code == CU_OK)
    holdings_add(HOLDING_CONTEXT, (uintptr_t)*context,
                 &(holding){0, LEDGER_CONTEXT, device, *context, 0, 1, false});
  measure_context_made(device, code == CU_OK);
  return code;
}

/* The primary context of each device while it exists: the first retain creates it; the last
 * release, or a reset, destroys it. */
static _Atomic(cu_context) primary[LEDGER_DEVICES_MAX];

static void after_fork(void) {
  for (int i = 0; i < LEDGER_DEVICES_MAX; i++) atomic_store(&primary[i], NULL);
}
SHIM_AFTER_FORK(after_fork);

cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device ordinal) {
  __typeof__(&cuDevicePrimaryCtxRetain) real = REAL(cuDevicePrimaryCtxRetain);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if ((unsigned)ordinal >= LEDGER_DEVICES_MAX) return real(context, ordinal);
  bool known = primary[ordinal] != NULL && measure_primary_active(ordinal);
  if (!known) before_context(ordinal);
  cu_result code = real(context, ordinal);
  if (known) return code;
  /* If several threads get here at the same time, only the first reports it. */
  if (code == CU_OK && atomic_exchange(&primary[ordinal], *context) != NULL) return code;
  measure_context_made(account_device(ordinal), code == CU_OK);
  return code;
}

cu_result cuCtxCreate_v2(cu_context *context, unsigned flags, cu_device ordinal) {
  __typeof__(&cuCtxCreate_v2) real = REAL(cuCtxCreate_v2);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  before_context(ordinal);
  return after_context(context, ordinal, real(context, flags, ordinal));
}

cu_result cuCtxCreate_v3(cu_context *context, void *params, int count, unsigned flags,
                         cu_device ordinal) {
  __typeof__(&cuCtxCreate_v3) real = REAL(cuCtxCreate_v3);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  before_context(ordinal);
  return after_context(context, ordinal, real(context, params, count, flags, ordinal));
}

cu_result cuCtxCreate_v4(cu_context *context, void *params, unsigned flags, cu_device ordinal) {
  __typeof__(&cuCtxCreate_v4) real = REAL(cuCtxCreate_v4);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  before_context(ordinal);
  return after_context(context, ordinal, real(context, params, flags, ordinal));
}

/* Called when a primary context ended with all it held. A context from before the shim is not known
 * by its handle. */
static void primary_ended(cu_device ordinal) {
  unsigned device = account_device(ordinal);
  cu_context gone =
      (unsigned)ordinal < LEDGER_DEVICES_MAX ? atomic_exchange(&primary[ordinal], NULL) : NULL;
  plain_end(ordinal);
  holdings_drop(device, gone, spill_plain_drop);
  placed_context_ended(device, gone);
  page_context_ended(device, gone);
  measure_context_ended(device);
}

static cu_result reset(cu_result (*real)(cu_device), cu_device ordinal) {
  bool active = measure_primary_active(ordinal);
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(ordinal);
  if (code == CU_OK && active) primary_ended(ordinal);
  return code;
}

cu_result cuDevicePrimaryCtxReset(cu_device ordinal) {
  return reset(REAL(cuDevicePrimaryCtxReset), ordinal);
}

cu_result cuDevicePrimaryCtxReset_v2(cu_device ordinal) {
  return reset(REAL(cuDevicePrimaryCtxReset_v2), ordinal);
}

/* Releases the context; the last release destroys it. */
static cu_result release(cu_result (*real)(cu_device), cu_device ordinal) {
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(ordinal);
  if (code == CU_OK && !measure_primary_active(ordinal)) primary_ended(ordinal);
  return code;
}

cu_result cuDevicePrimaryCtxRelease(cu_device ordinal) {
  return release(REAL(cuDevicePrimaryCtxRelease), ordinal);
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device ordinal) {
  return release(REAL(cuDevicePrimaryCtxRelease_v2), ordinal);
}

cu_result cuCtxDestroy_v2(cu_context context) {
  __typeof__(&cuCtxDestroy_v2) real = REAL(cuCtxDestroy_v2);
  holding gone;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  /* Its handle may be reused at once. */
  bool known = holdings_remove(HOLDING_CONTEXT, (uintptr_t)context, &gone);
  cu_result code = real(context);
  if (!known) return code;
  if (code != CU_OK) {
    holdings_add(HOLDING_CONTEXT, (uintptr_t)context, &gone);
    return code;
  }
  holdings_drop(gone.device, context, spill_plain_drop);
  placed_context_ended(gone.device, context);
  page_context_ended(gone.device, context);
  measure_context_ended(gone.device);
  return code;
}

/* ---- captures ---- */

/* Counted before it begins: from then on no other thread may make calls that would invalidate it.
 */
#define BEGIN(name, ...)                                                                           \
  __typeof__(&name) real = REAL(name);                                                             \
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;                                                 \
  capture_add(1);                                                                                  \
  if (resident_anywhere()) resident_capture_begins();                                              \
  cu_result code = real(__VA_ARGS__);                                                              \
  if (code != CU_OK) capture_add(-1);                                                              \
  return code

cu_result cuStreamBeginCapture(cu_stream stream) {
  BEGIN(cuStreamBeginCapture, stream);
}
cu_result cuStreamBeginCapture_ptsz(cu_stream stream) {
  BEGIN(cuStreamBeginCapture_ptsz, stream);
}
cu_result cuStreamBeginCapture_v2(cu_stream stream, int mode) {
  BEGIN(cuStreamBeginCapture_v2, stream, mode);
}
cu_result cuStreamBeginCapture_v2_ptsz(cu_stream stream, int mode) {
  BEGIN(cuStreamBeginCapture_v2_ptsz, stream, mode);
}
cu_result cuStreamBeginCaptureToGraph(cu_stream stream, void *graph, const void *nodes,
                                      const void *edges, size_t count, int mode) {
  BEGIN(cuStreamBeginCaptureToGraph, stream, graph, nodes, edges, count, mode);
}
cu_result cuStreamBeginCaptureToGraph_ptsz(cu_stream stream, void *graph, const void *nodes,
                                           const void *edges, size_t count, int mode) {
  BEGIN(cuStreamBeginCaptureToGraph_ptsz, stream, graph, nodes, edges, count, mode);
}

typedef cu_result capture_status(cu_stream stream, int *status);

static bool captured(capture_status *ask, cu_stream stream) {
  int status = 0; /* CU_STREAM_CAPTURE_STATUS_NONE */
  return ask != NULL && ask(stream, &status) == CU_OK && status != 0;
}

/* Ends a capture. This call also abandons a failed capture, but not one of another stream, or on a
 * thread that may not end it. */
static cu_result ended(__typeof__(&cuStreamEndCapture) real, capture_status *ask, cu_stream stream,
                       void **graph) {
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  bool was = captured(ask, stream);
  cu_result code = real(stream, graph);
  if (code == CU_OK || (was && !captured(ask, stream))) capture_add(-1);
  return code;
}

cu_result cuStreamEndCapture(cu_stream stream, void **graph) {
  return ended(REAL(cuStreamEndCapture), shim_driver()->cuStreamIsCapturing, stream, graph);
}
cu_result cuStreamEndCapture_ptsz(cu_stream stream, void **graph) {
  return ended(REAL(cuStreamEndCapture_ptsz), shim_driver()->cuStreamIsCapturing_ptsz, stream,
               graph);
}
