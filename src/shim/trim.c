/* Trim: the functions that trim.py calls, and when it runs. */
#include "shim/trim.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "shim/account.h"
#include "shim/capture.h"
#include "shim/page_step.h"
#include "shim/page_table.h"
#include "shim/pinned.h"
#include "shim/python.h"
#include "shim/resident.h"
#include "shim/retry.h"
#include "shim/shim.h"
#include "shim/torch_block.h"

/* lanes.py, activations.py, states.py, weights.py and trim.py, made at build time. */
static const char TEXT[] = {
#include <shim-trim.inc>
    , '\0'};

static python_object *step_ended(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  page_step_ended();
  return python_none();
}

static python_object *resident(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  return python_build("i", resident_anywhere() ? 1 : 0);
}

static python_object *on_host(python_object *self, python_object *arguments) {
  unsigned long long addr, bytes;
  (void)self;
  if (!python_parse(arguments, "KK", &addr, &bytes)) return NULL;
  return python_build("K", (unsigned long long)resident_host_bytes(addr, bytes));
}

static python_object *written(python_object *self, python_object *arguments) {
  unsigned long long addr, bytes;
  (void)self;
  if (!python_parse(arguments, "KK", &addr, &bytes)) return NULL;
  return python_build("K", (unsigned long long)resident_written(addr, bytes));
}

static python_object *passed(python_object *self, python_object *arguments) {
  unsigned long long addr, bytes;
  (void)self;
  if (!python_parse(arguments, "KK", &addr, &bytes)) return NULL;
  resident_passed(addr, bytes);
  return python_none();
}

#ifdef SHIM_GATE
cu_result cuMemcpyAsync(cu_addr to, cu_addr from, size_t bytes, cu_stream stream); /* the gate's */
#else
#define cuMemcpyAsync(to, from, bytes, stream) CU_ERROR_NOT_SUPPORTED
#endif

enum { CLEARED_BYTES = 32 << 10 };

/* Kernels that work on lists of tensors get a struct of addresses by value, and PyTorch leaves its
 * unused entries as the stack was. An address that a copy left there looks like one that the kernel
 * uses: a kernel of 5 us then named a tensor of 200 MiB, which was moved for it. */
__attribute__((noinline)) static void clear_stack(void) {
  char area[CLEARED_BYTES];
  memset(area, 0, sizeof area);
  __asm__ volatile("" : : "r"(area) : "memory");
}

/* Copies one tier after another: pages may be in either. Pinned memory is in none. Copies within
 * vram go to the stream `near`, so that the bus does not wait for them. Returns the driver's code.
 */
static python_object *copy(python_object *self, python_object *arguments) {
  ASSERT(arguments != NULL);
  unsigned long long to, from, bytes, stream, near;
  (void)self;
  if (!python_parse(arguments, "KKKKK", &to, &from, &bytes, &stream, &near)) return NULL;
  cu_result code = CU_OK;
  void *state = python_leave();
  bool to_pinned = pinned_holds(to), from_pinned = pinned_holds(from);
  while (bytes > 0 && code == CU_OK) {
    bool to_host = to_pinned, from_host = from_pinned;
    uint64_t piece = to_pinned ? bytes : resident_run(to, bytes, &to_host);
    if (!from_pinned) piece = resident_run(from, piece, &from_host);
    unsigned long long lane = to_host || from_host ? stream : near;
    code = cuMemcpyAsync(to, from, piece, (cu_stream)(uintptr_t)lane);
    to += piece, from += piece, bytes -= piece;
  }
  clear_stack();
  python_enter(state);
  return python_build("i", (int)code);
}

/* ---- lanes.py ---- */

/* Returns a new event of the current context; 0: the driver refused. */
static python_object *event(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  cu_event made = NULL;
  cu_result code = shim_driver()->cuEventCreate(&made, CU_EVENT_NO_TIMING);
  return python_build("K", code == CU_OK ? (unsigned long long)(uintptr_t)made : 0ULL);
}

/* Both return the driver's code. */
static python_object *record(python_object *self, python_object *arguments) {
  unsigned long long which, stream;
  (void)self;
  if (!python_parse(arguments, "KK", &which, &stream)) return NULL;
  return python_build("i", (int)shim_driver()->cuEventRecord((cu_event)(uintptr_t)which,
                                                             (cu_stream)(uintptr_t)stream));
}

static python_object *wait_for(python_object *self, python_object *arguments) {
  unsigned long long which, stream;
  (void)self;
  if (!python_parse(arguments, "KK", &stream, &which)) return NULL;
  return python_build("i", (int)shim_driver()->cuStreamWaitEvent((cu_stream)(uintptr_t)stream,
                                                                 (cu_event)(uintptr_t)which, 0));
}

static python_object *capturing(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  return python_build("i", capture_on() ? 1 : 0);
}

static unsigned device_here(void) {
  unsigned device = LEDGER_DEVICES_MAX;
  cu_context context;
  cu_device handle;
  return account_here(&device, &context, &handle) ? device : LEDGER_DEVICES_MAX;
}

/* Returns (address, bytes) of pinned memory; the address is 0 if there is none. */
static python_object *pinned(python_object *self, python_object *arguments) {
  unsigned long long wanted, most;
  (void)self;
  if (!python_parse(arguments, "KK", &wanted, &most)) return NULL;
  uint64_t bytes = wanted;
  void *state = python_leave();
  uint64_t made = bytes > 0 ? pinned_take(device_here(), &bytes, most) : 0;
  python_enter(state);
  return python_build("(KK)", (unsigned long long)made, (unsigned long long)bytes);
}

static python_object *prepare(python_object *self, python_object *arguments) {
  unsigned long long bytes;
  (void)self;
  if (!python_parse(arguments, "K", &bytes)) return NULL;
  void *state = python_leave();
  pinned_prepare(device_here(), bytes);
  python_enter(state);
  return python_none();
}

static python_object *trim_wanted(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  return python_build("i", page_trim_wanted() ? 1 : 0);
}

static python_object *trimming(python_object *self, python_object *arguments) {
  int begins;
  (void)self;
  if (!python_parse(arguments, "i", &begins)) return NULL;
  void *state = python_leave();
  page_trimming(begins != 0);
  python_enter(state);
  return python_none();
}

static python_object *private_pool(python_object *self, python_object *arguments) {
  int begins;
  (void)self;
  if (!python_parse(arguments, "i", &begins)) return NULL;
  spill_private_pool(begins != 0 ? 1 : -1);
  return python_none();
}

/* Returns (limit of the current device, bytes of it that are not pages of this process, what is
 * left of the spill budget, microseconds that pages on the host have cost so far). Idle host pages
 * use up the budget: they are pinned. */
static python_object *room(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  const ledger *l = account_ledger();
  unsigned device = 0;
  cu_context context;
  cu_device handle;
  if (l->header == NULL || !account_here(&device, &context, &handle))
    return python_build("(iiii)", 0, 0, 0, 0);
  ledger_totals totals;
  ledger_sum(l, device, &totals);
  uint64_t own = ledger_own(l, device, LEDGER_PAGES), spilled = totals.bytes[LEDGER_SPILLED];
  uint64_t limit = ledger_limit(l, device), budget = ledger_spill_limit(l);
  return python_build("(KKKK)", (unsigned long long)limit,
                      (unsigned long long)(totals.vram_bytes > own ? totals.vram_bytes - own : 0),
                      (unsigned long long)(budget > spilled ? budget - spilled : 0),
                      (unsigned long long)resident_cost_us(device));
}

/* Returns what PyTorch has allocated on a device; -1: unknown. */
static python_object *live(python_object *self, python_object *arguments) {
  int device;
  uint64_t bytes;
  (void)self;
  if (!python_parse(arguments, "i", &device)) return NULL;
  return python_build("L", torch_block_live(device, &bytes) ? (long long)bytes : -1LL);
}

/* Returns the same, and the most since the last call. */
static python_object *levels(python_object *self, python_object *arguments) {
  int device;
  uint64_t bytes, highest;
  (void)self;
  if (!python_parse(arguments, "i", &device)) return NULL;
  if (!torch_block_highest(device, &bytes, &highest)) return python_build("(LL)", -1LL, -1LL);
  return python_build("(LL)", (long long)bytes, (long long)highest);
}

static python_object *moved(python_object *self, python_object *arguments) {
  unsigned long long out, home, need, lasting;
  (void)self;
  if (!python_parse(arguments, "KKKK", &out, &home, &need, &lasting)) return NULL;
  ledger_count_saved(account_ledger(), out, home);
  ledger_note_need(account_ledger(), device_here(), need, lasting);
  return python_none();
}

/* Notes what a training loop holds, for the advice at the end (advise/spill_advice.h). */
static python_object *sizes(python_object *self, python_object *arguments) {
  const char *name;
  unsigned long long weights, gradients, state;
  (void)self;
  if (!python_parse(arguments, "sKKK", &name, &weights, &gradients, &state)) return NULL;
  ledger *l = account_ledger();
  if (l->header != NULL) {
    atomic_store(&l->header->weight_bytes, weights);
    atomic_store(&l->header->gradient_bytes, gradients);
    atomic_store(&l->header->state_bytes, state);
    snprintf(l->header->optimizer, sizeof l->header->optimizer, "%s", name);
  }
  return python_none();
}

static python_method methods[] = {
    PYTHON_METHOD("shim_room", room),
    PYTHON_METHOD("shim_live", live),
    PYTHON_METHOD("shim_levels", levels),
    PYTHON_METHOD("shim_sizes", sizes),
    PYTHON_METHOD("shim_moved", moved),
    PYTHON_METHOD("shim_resident", resident),
    PYTHON_METHOD("shim_on_host", on_host),
    PYTHON_METHOD("shim_written", written),
    PYTHON_METHOD("shim_passed", passed),
    PYTHON_METHOD("shim_copy", copy),
    PYTHON_METHOD("shim_event", event),
    PYTHON_METHOD("shim_record", record),
    PYTHON_METHOD("shim_wait", wait_for),
    PYTHON_METHOD("shim_capturing", capturing),
    PYTHON_METHOD("shim_pinned", pinned),
    PYTHON_METHOD("shim_prepare", prepare),
    PYTHON_METHOD("shim_step_ended", step_ended),
    PYTHON_METHOD("shim_trim_wanted", trim_wanted),
    PYTHON_METHOD("shim_trimming", trimming),
    PYTHON_METHOD("shim_private_pool", private_pool),
    PYTHON_METHOD("shim_log", python_log),
    {NULL, NULL, 0, NULL},
};

static python_script script = {.file = "<stowage trim.py>",
                               .text = TEXT,
                               .entry = "arm",
                               .methods = methods,
                               .word_name = "shim_word",
                               .word = ""};
static _Atomic uint32_t asked;

void trim_schedule(void) {
  /* The first time, and then at growing intervals, because a framework may be imported later. */
  uint32_t turn = atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
  if ((turn & (turn - 1)) == 0) python_script_schedule(&script);
}
