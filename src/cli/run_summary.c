/* Run summary: read from the ledger when the command has ended. */
#include "cli/run_summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <stowage/size.h>

#include "advise/host_peak.h"
#include "advise/spill_advice.h"
#include "base/text.h"
#include "cli/output.h"

static void device_line(const ledger *l, unsigned device, uint64_t *crossed) {
  char vram[STOW_SIZE_TEXT_MAX], limit[STOW_SIZE_TEXT_MAX], host[STOW_SIZE_TEXT_MAX];
  uint64_t peak = atomic_load(&l->header->peak_vram_bytes[device]);
  uint64_t spilled = atomic_load(&l->header->peak_spilled_bytes[device]);
  uint64_t most = ledger_limit(l, device);
  if (peak == 0 && spilled == 0) return;
  output_error("stowage run: device %u: at the peak %s in vram", device,
               stow_size_format(vram, peak));
  if (most != LEDGER_UNLIMITED) output_error(" of %s allowed", stow_size_format(limit, most));
  /* Every request of the command is subject to the limit. */
  if (most != LEDGER_UNLIMITED && peak > most)
    output_error(" (%s more by the driver itself: contexts, code, reserves of pools and graphs)",
                 stow_size_format(limit, peak - most));
  if (ledger_spill_limit(l) > 0)
    output_error(", %s in host memory", stow_size_format(host, spilled));
  /* The sum over all devices: reported once. */
  if (spilled > 0 && *crossed > 0) {
    output_error("; about %s went over the bus meanwhile", stow_size_format(host, *crossed));
    *crossed = 0;
  }
  output_error("\n");
}

/* Reports what Stowage itself sent over the bus. What kernels read and write on the host crosses it
 * too and is not counted. */
static void bus_line(const ledger *l) {
  char out[STOW_SIZE_TEXT_MAX], back[STOW_SIZE_TEXT_MAX];
  uint64_t moved_out = atomic_load(&l->header->moved_out_bytes);
  uint64_t moved_home = atomic_load(&l->header->moved_home_bytes);
  if (moved_out == 0 && moved_home == 0) return;
  output_error("stowage run: moved between vram and the host: %s out, %s back",
               stow_size_format(out, moved_out), stow_size_format(back, moved_home));
  uint64_t exchanges = atomic_load(&l->header->exchanges);
  if (exchanges > 0)
    output_error(" in %" PRIu64 " exchange%s, for which the program waited %.1f s", exchanges,
                 text_s(exchanges), (double)atomic_load(&l->header->moving_ns) / 1e9);
  output_error("; memory that its kernels read on the host is not counted\n");
}

/* Reports what spilling cost. The first steps learn the program, so the fastest step is what later
 * steps approach. */
static void steps_line(const ledger *l) {
  uint64_t count[2], ns[2];
  for (int i = 0; i < 2; i++) {
    count[i] = atomic_load(&l->header->steps[i]);
    ns[i] = atomic_load(&l->header->steps_ns[i]);
  }
  if (count[1] == 0) return;
  output_error("stowage run: %" PRIu64 " of %" PRIu64 " timed steps spilled, %.0f ms each",
               count[1], count[0] + count[1], (double)ns[1] / 1e6 / (double)count[1]);
  uint64_t best = atomic_load(&l->header->steps_best_ns);
  if (count[1] > 2 && best > 0) output_error(", the fastest %.0f ms", (double)best / 1e6);
  uint64_t moving = atomic_load(&l->header->moving_ns);
  if (moving > 0)
    output_error("; %.0f ms of each went into moving pages",
                 (double)moving / 1e6 / (double)(count[0] + count[1]));
  if (count[0] > 0)
    output_error("; the others took %.0f ms", (double)ns[0] / 1e6 / (double)count[0]);
  output_error("\n");
}

static void advice_line(const ledger *l) {
  buffer text = BUFFER_INIT;
  spill_advice(&text, l);
  if (text.length > 0) output_error("stowage run: %s\n", output_name(text.data));
  buffer_free(&text);
}

/* Explains that the driver's own memory alone exceeds the limit. */
static void explain_context(const ledger_refusal *r) {
  char held[STOW_SIZE_TEXT_MAX], limit[STOW_SIZE_TEXT_MAX], asked[STOW_SIZE_TEXT_MAX];
  output_error(
      "stowage run: out of memory: the limit of %s is less than the %s the driver itself holds "
      "for the command (its context, its code), so nothing could be allocated on device %" PRIu64
      "; raise --vram-limit by at least %s\n",
      stow_size_format(limit, r->limit_bytes), stow_size_format(held, r->context_bytes), r->device,
      stow_size_format(asked, r->asked_bytes));
}

static void explain(const ledger *l, const ledger_refusal *r) {
  char asked[STOW_SIZE_TEXT_MAX], held[STOW_SIZE_TEXT_MAX], limit[STOW_SIZE_TEXT_MAX];
  char spilled[STOW_SIZE_TEXT_MAX], budget[STOW_SIZE_TEXT_MAX];
  output_error("stowage run: out of memory: process %" PRIu64 " requested %s on device %" PRIu64,
               r->pid, stow_size_format(asked, r->asked_bytes), r->device);
  if (r->limit_bytes != LEDGER_UNLIMITED)
    output_error(" while %s of the %s limit was held", stow_size_format(held, r->held_bytes),
                 stow_size_format(limit, r->limit_bytes));
  else
    output_error(" and the device was full; %s of it was held here",
                 stow_size_format(held, r->held_bytes));
  if (r->spill_limit_bytes > 0)
    output_error(", and %s of the %s that may be spilled",
                 stow_size_format(spilled, r->spilled_bytes),
                 stow_size_format(budget, r->spill_limit_bytes));
  if (r->spill_limit_bytes > 0 && r->fixed_bytes > 0)
    output_error("; %s belongs to graphs and to pools made for sharing, which cannot spill",
                 stow_size_format(held, r->fixed_bytes));
  uint64_t path = atomic_load(&l->header->host_path);
  if (r->spill_limit_bytes > 0 && path == LEDGER_PATH_NONE)
    output_error("%s", "; this driver cannot put pages on the host (see stowage doctor)");
  else if (r->spill_limit_bytes > 0 && r->spilled_bytes + r->asked_bytes <= r->spill_limit_bytes)
    output_error("%s", "; arrays and managed memory cannot spill, and spilling stops where host "
                       "memory runs out: raise --vram-limit");
  else if (r->spill_limit_bytes > 0)
    output_error("%s", "; raise --spill or --vram-limit");
  else
    output_error("%s", r->limit_bytes != LEDGER_UNLIMITED
                           ? "; raise --vram-limit, or add --spill auto to continue in host memory"
                           : "; add --spill auto to continue in host memory");
  output_error("\n");
}

/* Reports processes that the ledger could not count. */
static void away_line(const ledger *l, bool limited) {
  uint64_t count = atomic_load(&l->header->turned_away);
  if (count == 0) return;
  output_error("stowage run: %" PRIu64 " process%s found all %d places of the ledger taken: %s\n",
               count, count == 1 ? "" : "es", LEDGER_SLOTS_MAX,
               limited ? "no device memory for more; run fewer at once" : "not counted");
}

void run_summary(const ledger *l, const run_limits *limits, bool failed, bool quiet,
                 uint64_t crossed_bytes) {
  away_line(l, limits->vram_from != NULL || limits->spill_bytes > 0);
  if (quiet) return;
  if (limits->vram_from != NULL || limits->spill_bytes > 0)
    for (unsigned i = 0; i < LEDGER_DEVICES_MAX; i++) device_line(l, i, &crossed_bytes);
  bus_line(l);
  steps_line(l);
  advice_line(l);
  ledger_refusal refusal;
  if (!failed || !ledger_ran_out(l) || !ledger_last_refusal(l, &refusal)) return;
  if (refusal.limit_bytes != LEDGER_UNLIMITED && refusal.context_bytes >= refusal.limit_bytes)
    explain_context(&refusal);
  else
    explain(l, &refusal);
}

/* A command that held less than this gets no line about memory. */
#define PEAK_LEAST ((uint64_t)16 << 20)

/* How close to its own limit a process must have come, in parts of the limit, for a request above
 * it to have failed: an array may be as large. */
#define SPACE_PART 8

/* Reports a limit that was reached by a command that ended by itself: it was faster than the watch,
 * or it caught the MemoryError. */
static void limit_line(const host_record *h) {
  char held[STOW_SIZE_TEXT_MAX], limit[STOW_SIZE_TEXT_MAX];
  char passed[240];
  if (host_peak_say_limit(passed, sizeof passed, h)) output_error("stowage run: %s\n", passed);
  uint64_t most = h->space_limit_bytes;
  if (most > 0 && h->space_peak_bytes >= most - most / SPACE_PART)
    output_error("stowage run: the process used %s of its own limit of %s on address space (ulimit "
                 "-v, RLIMIT_AS): a request above it fails\n",
                 stow_size_format(held, h->space_peak_bytes), stow_size_format(limit, most));
}

void run_summary_peak(const ledger *l, const run_limits *limits, host_record *h, bool explained,
                      bool always) {
  char size[STOW_SIZE_TEXT_MAX];
  h->copies_bytes = l->header != NULL ? atomic_load(&l->header->copies_bytes) : 0;
  bool device = false, reported = limits->vram_from != NULL || limits->spill_bytes > 0;
  for (unsigned i = 0; l->header != NULL && !reported && i < LEDGER_DEVICES_MAX; i++)
    device = device || atomic_load(&l->header->peak_vram_bytes[i]) > 0;
  if (h->peak_bytes < PEAK_LEAST && !device && !always) return;
  output_error("stowage run: at the peak %s of host memory", stow_size_format(size, h->peak_bytes));
  for (unsigned i = 0; device && i < LEDGER_DEVICES_MAX; i++) {
    uint64_t peak = atomic_load(&l->header->peak_vram_bytes[i]);
    if (peak > 0) output_error(", %s on device %u", stow_size_format(size, peak), i);
  }
  host_peak p = {0};
  if (!explained) host_peak_find(&p, h);
  if (p.seen_bytes > 0)
    output_error(" for a moment (stowage run --profile names the line); %s when the process was "
                 "asked",
                 stow_size_format(size, p.seen_bytes));
  if (p.holder[0] != '\0')
    output_error("%s: %s", p.seen_bytes > 0 ? ", largest then" : "; largest",
                 output_name(p.holder));
  if (h->copies_bytes > 0)
    output_error("; copies of what did not fit in vram take %s of it",
                 stow_size_format(size, h->copies_bytes));
  output_error("\n");
  limit_line(h);
  /* The program does not control how much memory is spilled to the host. */
  for (unsigned i = 0; l->header != NULL && i < LEDGER_DEVICES_MAX; i++)
    if (atomic_load(&l->header->peak_spilled_bytes[i]) > 0) return;
  if (p.cause[0] == '\0') {
    if (p.fix[0] != '\0') output_error("stowage run: to use less: %s\n", output_name(p.fix));
    return;
  }
  /* What a line was making when the process was asked may have grown since. */
  output_error("stowage run: wasted: %s %s: %s\n",
               strstr(p.cause, " so far") != NULL ? "at least" : "about",
               stow_size_format(size, p.wasted_bytes), output_name(p.cause));
  output_error("stowage run: hint: %s\n", output_name(p.fix));
}
