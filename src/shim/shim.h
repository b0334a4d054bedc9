/* Shim: the preloaded library, which acts as libcuda.so.1 in its process.
 *
 * Programs call stubs.S and the hooks; real.c opens the driver behind them, and route.c makes
 * cuGetProcAddress return the hooks. Everything starts with the program's first call: nothing runs
 * when the library is loaded, so a program that never calls CUDA is not affected.
 *
 * Guarantees: never prints (except to the file that STOWAGE_SHIM_LOG names, and what a user must
 * know at once, account_say), never ends the process, holds no lock while it waits for the loader
 * (load.c), and works in a child of fork. Locks are held across driver calls in three places: the
 * heap of plain requests (plain.h), the pages (page_table.h), and the probe of the host tier, which
 * starts child processes (host_tier.c).
 *
 * The files form layers; a file calls only files of its own line and the lines above:
 *
 *   the process   log, load, driver_path, torch_settings, xla_settings, real, open
 *   Python        python, python_stack
 *   the state     capture, retrying, account, holdings, counted, measure, host_tier,
 *                 xla_part
 *   the gate      gate
 *   launches      launch, graph, streams, sampler, live_blocks, fingerprint
 *   the trace     recorder, inside, touches, record, refusal, nvtx, torch_block
 *   the policy    retry
 *   pages         page_table, token, page_make, page_split, page_step, page_room, trim,
 *                 resident_copy, resident_exchange, resident
 *   allocations   device, plain, spill, room, page, page_run, page_parts, placed
 *   the hooks     hooks_*, route, adopt, exports
 *
 * No two files call each other, not even through others. */
#ifndef SHIM_SHIM_H
#define SHIM_SHIM_H

#include <stdbool.h>
#include <stddef.h>

#include "device/cuda_driver.h"

/* Marks a function that programs may find under its driver name. */
#define SHIM_HOOK __attribute__((visibility("default")))

/* A number for each function of the driver, by ELF name. */
typedef enum shim_symbol {
#define SYMBOL(name) SYMBOL_##name,
#include <shim-symbols.inc>
#undef SYMBOL
  SYMBOL_COUNT
} shim_symbol;

/* The driver's rounding: memory comes in blocks of 2 MiB, and requests of at most half a block
 * share one with others (seen on an H200, driver 580). */
#define SHIM_GRANULE ((uint64_t)2 << 20)

/* Registers a function of the file that runs in a child of fork, which has no other thread
 * (account.c calls all of them, in no particular order). */
typedef void shim_forked(void);
/* `retain` where the compiler has it: lld, which links the wheels, drops a section that only
 * __start_ and __stop_ names refer to. */
#if defined(__has_attribute)
#if __has_attribute(retain)
#define SHIM_RETAINED , retain
#endif
#endif
#ifndef SHIM_RETAINED
#define SHIM_RETAINED
#endif
#define SHIM_AFTER_FORK(function)                                                                  \
  static shim_forked *const forked_in_child                                                        \
      __attribute__((used, section("shim_forked") SHIM_RETAINED)) = function

/* ---- load.c ---- */

/* Opens a library for the shim's own use. The caller holds no lock. */
void *shim_load(const char *path);

/* ---- real.c: the driver behind the shim ---- */

/* Returns the driver's own function; NULL if this driver lacks it, or if there is no driver. */
void *shim_real(shim_symbol symbol);
const char *shim_symbol_name(shim_symbol symbol);
/* Returns a function by ELF name, for device/ (a cuda_resolve). */
void *shim_resolve(void *user, const char *name);
/* Returns whether an address is one of the driver's exports. Expensive: compares with all of
 * them. */
bool shim_is_export(const void *pointer);
/* Uses the driver that is already loaded in this process, by its path; NULL if it is not loaded, or
 * if another driver is in use. Must be the first call. */
void *shim_open_loaded(const char *path);
/* Called by stubs.S. */
void *shim_stub_resolve(unsigned symbol);

/* The driver for Stowage's own calls; never NULL. A member is NULL if this driver lacks it, there
 * is no driver, or STOWAGE_DRIVER_LEVEL hides it. Opens the driver at the first call; cheap after.
 */
const cuda_driver *shim_driver(void);
/* Returns the driver for forwarding a program's call: nothing is hidden. */
const cuda_driver *shim_program_driver(void);

/* ---- driver_path.c: which driver it is ---- */

/* Returns the path of the driver that was opened; "" if none was. */
const char *shim_driver_path(void);
void shim_driver_path_set(const char *path);
/* Returns whether the calling thread is opening the driver now. */
bool shim_opening(void);
void shim_opening_set(bool opening);

/* ---- torch_settings.c ---- */

/* Removes our setting from the environment if this PyTorch does not know it. Called when the driver
 * is opened. */
void torch_settings_take_back(void);

/* ---- xla_settings.c ---- */

/* Adds our flags to XLA_FLAGS if `path`, which holds a slash, is a library of a JAX that knows
 * them. Called before the library is opened. */
void xla_settings_put(const char *path);
/* Sets the function that returns the percentage to give to XLA; 0: none. */
void xla_settings_ask(unsigned (*part)(void));
/* Returns whether command buffers were switched off. */
bool xla_settings_off(void);
/* Returns the percentage that was given to XLA; 0: none. */
unsigned xla_settings_part(void);

/* ---- log.c ---- */

/* Writes one line to the file that STOWAGE_SHIM_LOG names; does nothing without it. */
void shim_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
