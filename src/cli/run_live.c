/* Run live: samples the ledger and the bus. See run_live.h.
 *
 * NVML reports the bytes over a device's bus during the last twenty milliseconds, per direction.
 * The total extrapolates these samples over the time between them, so it is about right for a
 * steady load and printed as "about". It includes all traffic of the device: the command's own
 * copies and those of other programs, which NVML does not separate. */
#include "cli/run_live.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/variables.h"
#include "cli/output.h"
#include "cli/run_child.h"
#include "run/protocol.h"

#define STOP_SECONDS 10
#define KILL_NS      (10 * UINT64_C(1000000000))

stow_status run_live_init(run_live *r, ledger *l, const char *stop) {
  *r = (run_live){.l = l, .terminal = isatty(STDERR_FILENO) == 1};
  if (stop != NULL) {
    char text[32];
    size_t length = strlen(stop);
    if (length > 2 && strcmp(stop + length - 2, "/s") == 0) length -= 2;
    snprintf(text, sizeof text, "%.*s", (int)length, stop);
    if (length >= sizeof text || stow_size_parse(&r->stop_bytes_s, text) != STOW_OK ||
        r->stop_bytes_s == 0)
      return stow_fail(STOW_ERR_INVALID,
                       "--spill-stop \"%.40s\": must be a rate in bytes per second, such as 20G",
                       stop);
  }
  /* The variable shortens the wait for tests. */
  const char *seconds = secure_getenv(ENV_SPILL_STOP_SECONDS);
  r->stop_ns = (seconds != NULL ? strtoull(seconds, NULL, 10) : STOP_SECONDS) * 1000000000;
  return STOW_OK;
}

/* Returns the bytes per second over the buses of the run's devices; negative if NVML reports none.
 */
static double bus_rate(run_live *r) {
  if (!r->asked && nvml_open(&r->n) != STOW_OK) r->n = NULL;
  r->asked = true;
  double sum = -1;
  for (unsigned i = 0; r->n != NULL && i < LEDGER_DEVICES_MAX; i++) {
    uint64_t rate;
    int index;
    if (r->l->header->uuids[i][0] == '\0' ||
        nvml_find(r->n, r->l->header->uuids[i], &index) != STOW_OK ||
        nvml_bus_rate(r->n, index, &rate) != STOW_OK)
      continue;
    sum = (sum < 0 ? 0 : sum) + (double)rate;
  }
  return sum;
}

static void show(run_live *r, uint64_t spilled) {
  char bytes[STOW_SIZE_TEXT_MAX];
  output_erase();
  output_error("stowage run: %s on the host", stow_size_format(bytes, spilled));
  if (r->measured) output_error(", %.1f GB/s over the bus", r->rate_bytes_s / 1e9);
  fflush(stderr);
  r->shown = true;
}

static void stop(run_live *r, uint64_t now, uint64_t spilled) {
  char bytes[STOW_SIZE_TEXT_MAX];
  if (r->stopped_ns != 0) {
    if (now - r->stopped_ns > KILL_NS) child_signal_all(r->child, SIGKILL);
    return;
  }
  run_live_end(r);
  output_error("stowage run: stopped: with %s on the host the bus carried %.1f GB/s for %" PRIu64
               " s, as much as --spill-stop allows (%.1f GB/s); raise --vram-limit, or reduce what "
               "the program needs (stowage explain --last)\n",
               stow_size_format(bytes, spilled), r->mean_bytes_s / 1e9,
               (uint64_t)(r->stop_ns / 1000000000), (double)r->stop_bytes_s / 1e9);
  r->stopped_ns = now;
  /* Signal all processes: a shell that ends would leave its children running. */
  child_signal_all(r->child, SIGTERM);
}

/* Reports how host memory is reached as soon as that is known, before memory runs out. */
static void report_path(run_live *r) {
  uint64_t path = atomic_load(&r->l->header->host_path);
  if (!r->reported_whole && atomic_load(&r->l->header->torch_whole) != 0) {
    r->reported_whole = true;
    output_error(
        "stowage run: --spill: PyTorch does not use expandable segments (because of its version or "
        "a setting of the program): whole segments go to the host and stay there until they are "
        "freed\n");
  }
  if (!r->reported_xla && atomic_load(&r->l->header->xla_graphs_off) != 0) {
    r->reported_xla = true;
    output_error("%s", "stowage run: --spill: JAX runs without command buffers "
                       "(XLA_FLAGS=" RUN_XLA_FLAG "), because pages cannot move inside one\n");
  }
  uint64_t part = r->reported_part ? 0 : atomic_load(&r->l->header->xla_part);
  if (part > 0) {
    r->reported_part = true;
    output_error("stowage run: --spill: JAX recomputes what vram cannot keep "
                 "(XLA_FLAGS=" RUN_XLA_PART "%" PRIu64 "); results may differ in the last digits\n",
                 part);
  }
  if (r->reported || path == LEDGER_PATH_UNKNOWN) return;
  r->reported = true;
  if (path == LEDGER_PATH_NONE)
    output_error("stowage run: --spill: spilling does not work here: %.255s\n",
                 r->l->header->host_reason);
  if (path == LEDGER_PATH_PINNED)
    output_error("stowage run: --spill: only whole allocations can be spilled, not pages (so not "
                 "PyTorch's expandable segments): %.255s\n",
                 r->l->header->host_reason);
}

void run_live_look(void *user) {
  run_live *r = user;
  uint64_t now = clock_ns();
  if (now < r->next_ns) return;
  r->next_ns = now + RUN_LIVE_BEAT_MS * UINT64_C(900000); /* beats are not exactly on time */
  report_path(r);
  ledger_reap(r->l);
  uint64_t spilled = ledger_spilled(r->l);
  if (spilled == 0) {
    run_live_end(r);
    r->looked_ns = r->over_ns = 0;
    return;
  }
  bool first = !r->asked;
  double rate = bus_rate(r);
  r->measured = rate >= 0;
  if (first && !r->measured && r->stop_bytes_s > 0)
    output_error(
        "stowage run: --spill-stop: NVML does not report the PCIe rate of this device, so nothing "
        "will be stopped\n");
  if (r->measured && r->looked_ns != 0)
    r->crossed_bytes += (uint64_t)(rate * (double)(now - r->looked_ns) / 1e9);
  r->rate_bytes_s = rate;
  r->looked_ns = now;
  if (r->terminal) show(r, spilled);
  if (r->stop_bytes_s == 0 || !r->measured) return;
  if (rate < (double)r->stop_bytes_s) {
    if (r->stopped_ns == 0) r->over_ns = 0;
  } else if (r->over_ns == 0) {
    r->over_ns = now;
    r->mean_bytes_s = rate;
  } else
    r->mean_bytes_s += (rate - r->mean_bytes_s) / 8;
  if (r->stopped_ns != 0 || (r->over_ns != 0 && now - r->over_ns >= r->stop_ns))
    stop(r, now, spilled);
}

void run_live_end(run_live *r) {
  if (r->on) report_path(r);
  if (r->shown) output_erase();
  r->shown = false;
}
