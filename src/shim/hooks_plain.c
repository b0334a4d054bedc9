/* Hooks of individual allocations: plain, pitched, managed, opened from another process, and host
 * memory that the program pins. */
#include "shim/counted.h"
#include "shim/hooks.h"
#include "shim/measure.h"
#include "shim/placed.h"
#include "shim/plain.h"
#include "shim/record.h"
#include "shim/refusal.h"
#include "shim/retry.h"
#include "shim/room.h"
#include "shim/spill.h"

/* Returns what the driver really uses for a request (see SHIM_GRANULE). */
static uint64_t driver_bytes(uint64_t bytes) {
  uint64_t unit = bytes > SHIM_GRANULE / 2 ? SHIM_GRANULE : 512;
  return bytes > UINT64_MAX - unit ? bytes : (bytes + unit - 1) / unit * unit;
}

static void note(cu_addr addr, uint64_t bytes, ledger_kind kind, unsigned device,
                 cu_context context) {
  if (!holdings_add(HOLDING_ADDRESS, addr, &(holding){bytes, kind, device, context, 0, 1, false}))
    shim_log("no host memory to note an allocation");
}

/* The thread's context and device for a request. */
typedef struct requester {
  unsigned device;
  cu_context context;
  cu_device ordinal;
} requester;

/* Allocates the driver's own block, counted. Out of memory if the limit or the device is full. */
static cu_result take_from_driver(const requester *who, cu_addr *addr, size_t bytes) {
  counted count = {who->device, LEDGER_PLAIN};
  physical maker = {shim_program_driver(), &ROOM_ACCOUNT, &count};
  uint64_t size = driver_bytes(bytes);
  cu_result code = physical_plain_alloc(&maker, addr, bytes, size);
  if (code != CU_OK) return code;
  note(*addr, size, LEDGER_PLAIN, who->device, who->context);
  record_taken(*addr, bytes, NULL, who->device, LEDGER_PLAIN);
  return CU_OK;
}

static cu_result take_from_heap(const requester *who, cu_addr *addr, size_t bytes, bool host) {
  ledger_kind kind;
  cu_result code = plain_alloc(addr, bytes, host, &kind, who->device, who->ordinal, who->context);
  if (code == CU_OK) record_taken(*addr, bytes, NULL, who->device, kind);
  return code;
}

/* Allocates a plain block from any source. */
static cu_result take(const requester *who, cu_addr *addr, size_t bytes) {
  cu_result code = CU_ERROR_NOT_SUPPORTED;
  spill_note_request();
  if (placed_wanted(who->device, bytes))
    code = placed_alloc(addr, bytes, who->device, who->ordinal, who->context);
  if (code == CU_OK) {
    record_taken(*addr, bytes, NULL, who->device, LEDGER_PAGES);
    spill_served();
    return CU_OK;
  }
  code = CU_ERROR_NOT_SUPPORTED;
  if (plain_serves(who->device)) code = take_from_heap(who, addr, bytes, false);
  if (code == CU_ERROR_NOT_SUPPORTED) code = take_from_driver(who, addr, bytes);
  if (code == CU_ERROR_OUT_OF_MEMORY && spill_wanted(who->device, who->ordinal, bytes)) {
    code = take_from_heap(who, addr, bytes, true);
    /* A driver without pages on the host can still spill whole blocks. */
    if (code != CU_OK) code = spill_plain(addr, bytes, who->device, who->ordinal, who->context);
  }
  if (code == CU_OK) spill_served();
  return code;
}

cu_result cuMemAlloc_v2(cu_addr *addr, size_t bytes) {
  __typeof__(&cuMemAlloc_v2) real = REAL(cuMemAlloc_v2);
  requester who;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (addr == NULL || bytes == 0 || !account_here(&who.device, &who.context, &who.ordinal))
    return real(addr, bytes);
  return take(&who, addr, bytes);
}

/* What the driver's own rows are rounded to (seen on an H200, driver 580). */
#define PITCH_UNIT ((size_t)512)

/* Allocates a pitched block from the heap; CU_ERROR_NOT_SUPPORTED: call the driver. */
static cu_result pitch_from_heap(const requester *who, cu_addr *addr, size_t *pitch, size_t width,
                                 size_t height, unsigned element) {
  size_t row, bytes;
  if (width == 0 || height == 0 || (element != 4 && element != 8 && element != 16) ||
      __builtin_add_overflow(width, PITCH_UNIT - 1, &row))
    return CU_ERROR_NOT_SUPPORTED;
  row = row / PITCH_UNIT * PITCH_UNIT;
  if (__builtin_mul_overflow(row, height, &bytes)) return CU_ERROR_NOT_SUPPORTED;
  cu_result code = take(who, addr, bytes);
  if (code == CU_OK) *pitch = row;
  return code;
}

cu_result cuMemAllocPitch_v2(cu_addr *addr, size_t *pitch, size_t width, size_t height,
                             unsigned element) {
  __typeof__(&cuMemAllocPitch_v2) real = REAL(cuMemAllocPitch_v2);
  requester who;
  uint64_t least;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (addr == NULL || pitch == NULL || __builtin_mul_overflow(width, height, &least) ||
      !account_here(&who.device, &who.context, &who.ordinal))
    return real(addr, pitch, width, height, element);
  if (plain_serves(who.device)) {
    cu_result code = pitch_from_heap(&who, addr, pitch, width, height, element);
    if (code != CU_ERROR_NOT_SUPPORTED) return code;
  }
  least = driver_bytes(least);
  if (!room_charge(who.device, LEDGER_PLAIN, least)) {
    refusal_note(who.device, least);
    return CU_ERROR_OUT_OF_MEMORY;
  }
  cu_result code = real(addr, pitch, width, height, element);
  if (code == CU_ERROR_OUT_OF_MEMORY && room_trim(who.device, least))
    code = real(addr, pitch, width, height, element);
  if (code != CU_OK) {
    ledger_uncharge(account_ledger(), who.device, LEDGER_PLAIN, least);
    return code;
  }
  /* The length of a row is known only now. */
  uint64_t size = driver_bytes(*pitch * height);
  if (size > least) ledger_add(account_ledger(), who.device, LEDGER_PLAIN, size - least);
  note(*addr, size > least ? size : least, LEDGER_PLAIN, who.device, who.context);
  record_taken(*addr, *pitch * height, NULL, who.device, LEDGER_PLAIN);
  return CU_OK;
}

cu_result cuMemAllocManaged(cu_addr *addr, size_t bytes, unsigned flags) {
  __typeof__(&cuMemAllocManaged) real = REAL(cuMemAllocManaged);
  unsigned device;
  cu_context context;
  cu_device ordinal;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (addr == NULL || !account_here(&device, &context, &ordinal)) return real(addr, bytes, flags);
  uint64_t size = driver_bytes(bytes);
  if (!room_charge(device, LEDGER_MANAGED, size)) {
    refusal_note(device, size);
    return CU_ERROR_OUT_OF_MEMORY;
  }
  cu_result code = real(addr, bytes, flags);
  if (code == CU_OK) {
    note(*addr, size, LEDGER_MANAGED, device, context);
    record_taken(*addr, bytes, NULL, device, LEDGER_MANAGED);
  } else
    ledger_uncharge(account_ledger(), device, LEDGER_MANAGED, size);
  return code;
}

cu_result cuMemFree_v2(cu_addr addr) {
  __typeof__(&cuMemFree_v2) real = REAL(cuMemFree_v2);
  holding gone;
  uint64_t bytes;
  unsigned device;
  ledger_kind kind;
  bool in_heap;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (plain_free(addr, &in_heap, &bytes, &device, &kind)) {
    record_given(addr, bytes, NULL, device, kind);
    return CU_OK;
  }
  if (in_heap)
    return CU_ERROR_INVALID_VALUE; /* as the driver returns for an address that is not
                                    * live */
  placed_block placed;
  cu_result freed;
  if (placed_free(addr, &placed, &freed)) {
    if (freed == CU_OK) record_given(addr, placed.bytes, NULL, placed.device, LEDGER_PAGES);
    return freed;
  }
  if (!holdings_remove(HOLDING_ADDRESS, addr, &gone)) {
    pool_block block = measure_block(addr);
    cu_result code = real(addr);
    if (code == CU_OK && block.pool != NULL) measure_block_gone(&block);
    return code;
  }
  bool ours = gone.kind == LEDGER_SPILLED;
  /* Before the driver may give the address out again. */
  record_given(addr, gone.bytes, NULL, gone.device, gone.kind);
  cu_result code = ours ? spill_plain_free(addr, &gone) : real(addr);
  if (code != CU_OK)
    holdings_add(HOLDING_ADDRESS, addr, &gone);
  else if (!ours)
    account_uncharge(gone.device, gone.kind, gone.bytes);
  return code;
}

/* ---- of other processes ---- */

/* Sharing memory between processes or devices needs the driver's own blocks (plain.h). */
cu_result cuIpcGetMemHandle(cu_ipc_handle *handle, cu_addr addr) {
  __typeof__(&cuIpcGetMemHandle) real = REAL(cuIpcGetMemHandle);
  plain_pass("cuIpcGetMemHandle");
  return real == NULL ? CU_ERROR_NOT_SUPPORTED : real(handle, addr);
}

cu_result cuCtxEnablePeerAccess(cu_context peer, unsigned flags) {
  __typeof__(&cuCtxEnablePeerAccess) real = REAL(cuCtxEnablePeerAccess);
  plain_pass("cuCtxEnablePeerAccess");
  return real == NULL ? CU_ERROR_NOT_SUPPORTED : real(peer, flags);
}

static void note_opened(cu_addr addr) {
  unsigned device;
  cu_context context;
  cu_device ordinal;
  cu_addr base = 0;
  size_t bytes = 0;
  const cuda_driver *driver = shim_driver();
  plain_pass("cuIpcOpenMemHandle");
  if (!account_here(&device, &context, &ordinal)) return;
  if (driver->cuMemGetAddressRange_v2 == NULL ||
      driver->cuMemGetAddressRange_v2(&base, &bytes, addr) != CU_OK)
    bytes = 0;
  ledger_add(account_ledger(), device, LEDGER_IPC, bytes);
  note(addr, bytes, LEDGER_IPC, device, context);
}

cu_result cuIpcOpenMemHandle(cu_addr *addr, cu_ipc_handle handle, unsigned flags) {
  __typeof__(&cuIpcOpenMemHandle) real = REAL(cuIpcOpenMemHandle);
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(addr, handle, flags);
  if (code == CU_OK) note_opened(*addr);
  return code;
}

cu_result cuIpcOpenMemHandle_v2(cu_addr *addr, cu_ipc_handle handle, unsigned flags) {
  __typeof__(&cuIpcOpenMemHandle_v2) real = REAL(cuIpcOpenMemHandle_v2);
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(addr, handle, flags);
  if (code == CU_OK) note_opened(*addr);
  return code;
}

cu_result cuIpcCloseMemHandle(cu_addr addr) {
  __typeof__(&cuIpcCloseMemHandle) real = REAL(cuIpcCloseMemHandle);
  holding gone;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  bool known = holdings_remove(HOLDING_ADDRESS, addr, &gone);
  cu_result code = real(addr);
  if (known && code != CU_OK) holdings_add(HOLDING_ADDRESS, addr, &gone);
  if (known && code == CU_OK) account_uncharge(gone.device, gone.kind, gone.bytes);
  return code;
}

/* ---- pinned host memory ---- */

static cu_result note_pinned(cu_result code, const void *pointer, uint64_t bytes) {
  unsigned device = 0;
  cu_context context = NULL;
  cu_device ordinal;
  if (code != CU_OK) return code;
  if (!account_here(&device, &context, &ordinal)) device = 0;
  ledger_add(account_ledger(), device, LEDGER_PINNED, bytes);
  holdings_add(HOLDING_HOST, (uintptr_t)pointer,
               &(holding){bytes, LEDGER_PINNED, device, context, 0, 1, false});
  return code;
}

cu_result cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  __typeof__(&cuMemHostAlloc) real = REAL(cuMemHostAlloc);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  cu_result code = real(pointer, bytes, flags);
  return note_pinned(code, code == CU_OK ? *pointer : NULL, bytes);
}

cu_result cuMemAllocHost_v2(void **pointer, size_t bytes) {
  __typeof__(&cuMemAllocHost_v2) real = REAL(cuMemAllocHost_v2);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  cu_result code = real(pointer, bytes);
  return note_pinned(code, code == CU_OK ? *pointer : NULL, bytes);
}

cu_result cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags) {
  __typeof__(&cuMemHostRegister_v2) real = REAL(cuMemHostRegister_v2);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  return note_pinned(real(pointer, bytes, flags), pointer, bytes);
}

static cu_result unpin(cu_result (*real)(void *), void *pointer) {
  holding gone;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  bool known = holdings_remove(HOLDING_HOST, (uintptr_t)pointer, &gone);
  cu_result code = real(pointer);
  if (known && code != CU_OK) holdings_add(HOLDING_HOST, (uintptr_t)pointer, &gone);
  if (known && code == CU_OK) account_uncharge(gone.device, gone.kind, gone.bytes);
  return code;
}

cu_result cuMemFreeHost(void *pointer) {
  return unpin(REAL(cuMemFreeHost), pointer);
}

cu_result cuMemHostUnregister(void *pointer) {
  return unpin(REAL(cuMemHostUnregister), pointer);
}
