/* Resident: beginning, launches, and the thread that copies. See resident.h. */
#include "shim/resident.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "shim/capture.h"
#include "shim/gate.h"
#include "shim/graph.h"
#include "shim/launch.h"
#include "shim/live_blocks.h"
#include "shim/resident_parts.h"
#include "shim/streams.h"
#include "shim/torch_block.h"

#define UNIT_MOST ((uint64_t)256 << 20)
/* How long the device may take to become idle: with the gate open, and once it is closed. It was
 * idle just before that, so work that takes longer waits for something that is held back. In the
 * first case it may wait for the launching thread itself; then nothing is moved for a while. */
#define REST_MAX_NS  ((uint64_t)5 * 1000 * 1000 * 1000)
#define IDLE_MAX_NS  ((uint64_t)500 * 1000 * 1000)
#define AWAIT_MAX_NS ((uint64_t)300 * 1000 * 1000)
#define GIVEN_UP_NS  ((uint64_t)60 * 1000 * 1000 * 1000)
/* How often the copying thread checks, and how often after a second without copies. */
#define LOOK_NS          50000
#define BUS_BYTES_PER_US 50000
#define LINGER_NS        2000000
/* Launches until pages that are too small to move are tried again. */
#define SMALL_AGAIN 256
/* New vram pages per exchange: creating one takes up to half a millisecond. */
#define TAKEN_AT_ONCE 4
/* The device number of a call that names none of ours. */
#define NO_DEVICE 255u

static resident all[LEDGER_DEVICES_MAX]; /* guarded by pages_lock */
static _Atomic bool on[LEDGER_DEVICES_MAX];
static bool failed[LEDGER_DEVICES_MAX]; /* guarded by pages_lock: do not try again */
static uint64_t low = UINT64_MAX, high; /* all units of all devices; guarded by pages_lock */
static launch latest;                   /* guarded by pages_lock */
static resident *latest_of;             /* whose launch it was */
/* For the log: how often and how long launches waited for the lock, and how long the copying thread
 * held it. Guarded by it. */
static uint64_t lock_waits, lock_wait_ns, copier_ns;

bool resident_on(unsigned device) {
  return device < LEDGER_DEVICES_MAX && atomic_load_explicit(&on[device], memory_order_acquire);
}

bool resident_anywhere(void) {
  for (unsigned d = 0; d < LEDGER_DEVICES_MAX; d++)
    if (resident_on(d)) return true;
  return false;
}

/* Returns the state of a device; NULL if it has no engine. */
static resident *with_engine(unsigned device) {
  ASSERT(lock_held(&pages_lock));
  return device < LEDGER_DEVICES_MAX && all[device].engine != NULL ? &all[device] : NULL;
}

void resident_lend(unsigned device, uint64_t bytes) {
  resident *r = with_engine(device);
  if (r != NULL) r->lend = bytes;
}

void resident_small_on_host(unsigned device, uint64_t bytes) {
  resident *r = with_engine(device);
  if (r == NULL) return;
  r->small_bytes += bytes;
  r->small_at = 0;
}

uint64_t resident_give_hosts(unsigned device, uint64_t bytes) {
  resident *r = with_engine(device);
  return r != NULL ? resident_give(r, bytes) : 0;
}

uint64_t resident_kept_hosts(unsigned device) {
  uint64_t bytes = 0;
  lock_acquire(&pages_lock);
  const resident *r = with_engine(device);
  for (uint32_t i = 0; r != NULL && i < r->unit_capacity; i++)
    if (resident_keeps_host(r, i)) bytes += r->class->bytes;
  lock_release(&pages_lock);
  return bytes;
}

cu_addr resident_take_host(unsigned device, uint64_t *bytes) {
  ASSERT(bytes != NULL);
  page *p = NULL;
  page_enter();
  const resident *r = with_engine(device);
  if (r != NULL && page_free_spare(r->class, TIER_HOST) > 0)
    p = resident_unused(r->class, TIER_HOST);
  cu_addr at = p != NULL ? p->stage : 0;
  if (p != NULL) *bytes = r->class->bytes;
  free(p); /* the driver's page stays mapped there, and counted as a host page without a token */
  page_leave();
  return at;
}

uint64_t resident_idle_hosts(unsigned device) {
  lock_acquire(&pages_lock);
  const resident *r = with_engine(device);
  uint64_t bytes = r == NULL ? 0 : page_free_spare(r->class, TIER_HOST) * r->class->bytes;
  lock_release(&pages_lock);
  return bytes;
}

/* ---- units ---- */

static bool grow(resident *r, uint32_t unit) {
  ASSERT(r->units != NULL || r->unit_capacity == 0);
  if (unit < r->unit_capacity) return true;
  uint32_t capacity = r->unit_capacity < 1024 ? 1024 : 2 * r->unit_capacity;
  resident_unit *units = realloc(r->units, capacity * sizeof *units);
  if (units == NULL) return false;
  memset(units + r->unit_capacity, 0, (capacity - r->unit_capacity) * sizeof *units);
  r->units = units;
  r->unit_capacity = capacity;
  return unit < capacity;
}

void resident_add(token *t) {
  resident *r = with_engine(t->class->device);
  uint32_t unit;
  if (r == NULL || r->class != t->class || t->pinned || t->addr == 0 || t->page == NULL ||
      t->page->rest != 0)
    return;
  if (residency_unit_add(r->engine, t->addr, t->class->bytes, t->page->tier == TIER_VRAM, &unit) !=
      STOW_OK)
    return;
  if (!grow(r, unit)) {
    residency_unit_remove(r->engine, t->addr);
    return;
  }
  r->units[unit] = (resident_unit){.token = t};
  if (t->page->tier == TIER_HOST) {
    r->units[unit].host = t->page;
    if (page_stage(t->page) != CU_OK) shim_log("a host page has no second address");
  }
  t->unit = unit + 1;
  if (r->low == 0 || t->addr < r->low) r->low = t->addr;
  if (t->addr + t->class->bytes > r->high) r->high = t->addr + t->class->bytes;
  if (r->low < low) low = r->low;
  if (r->high > high) high = r->high;
  if (t->reported) return;
  /* Its contents are not reported, so all of it is one block. A buffer may continue in the next
   * page, which no word names: it is not copied beside kernels. */
  residency_hidden_write(r->engine, unit);
  if (residency_block_add(r->engine, t->addr, t->class->bytes) != STOW_OK) resident_remove(t);
}

/* Gives a parked address its own page. Nothing is live there, so nothing is lost or waited for. */
static bool unpark(resident *r, resident_unit *u) {
  ASSERT(u->token->page->borrowed);
  token *t = u->token;
  page *spare = t->page, *to = resident_host_page(r, u);
  if (to == NULL) to = resident_frame(r);
  if (to == NULL || page_unmap(spare) != CU_OK) return false;
  if (page_map_at(to, t->addr) != CU_OK || page_grant(to) != CU_OK) {
    shim_log("the page of an address was lost while it was exchanged");
    return false;
  }
  spare->owner = NULL;
  token_exchange(t, to);
  return true;
}

void resident_remove(token *t) {
  ASSERT(lock_held(&pages_lock));
  if (t->unit == 0) return;
  resident *r = &all[t->class->device];
  uint32_t unit = t->unit - 1;
  t->unit = 0;
  if (r->engine == NULL || unit >= r->unit_capacity) return;
  resident_unit *u = &r->units[unit];
  resident_finish_unit(r, unit);
  if (t->page->borrowed) unpark(r, u);
  if (!t->reported) residency_block_remove(r->engine, t->addr);
  residency_unit_remove(r->engine, t->addr);
  if (u->frame != NULL) page_free_put(u->frame);
  if (u->host != NULL && u->host != t->page) page_free_put(u->host);
  if (u->spare != NULL && u->spare != t->page) free(u->spare);
  *u = (resident_unit){.token = NULL};
}

/* Stops moving pages of a device and releases what that uses. Every address keeps a page with its
 * contents. `gone`: the context has ended, with its streams and events. */
static void end(resident *r, bool gone) {
  ASSERT(lock_held(&pages_lock));
  bool parked = false;
  uint64_t name, value;
  atomic_store(&on[r->device], false);
  for (int i = 0; i < COPIES_MAX; i++) {
    if (gone) r->copies[i].state = COPY_NONE;
    if (r->copies[i].state != COPY_NONE) resident_finish_unit(r, r->copies[i].unit);
  }
  for (size_t at = 0; map_next(&tokens, &at, &name, &value);) {
    token *t = (token *)(uintptr_t)value;
    if (t->class != r->class) continue;
    resident_remove(t);
    parked |= t->page != NULL && t->page->borrowed;
  }
  for (int i = 0; i < SNAPSHOTS; i++)
    if (r->snapshots[i] != NULL) page_free_put(r->snapshots[i]);
  if (r->spare != NULL && !parked) page_free_put(r->spare);
  residency_close(r->engine);
  free(r->units);
  r->class->tokens--;
  *r = (resident){.engine = NULL};
  if (latest_of == r) latest_of = NULL;
  low = UINT64_MAX, high = 0;
  for (unsigned d = 0; d < LEDGER_DEVICES_MAX; d++) {
    if (all[d].engine == NULL || all[d].high == 0) continue;
    if (all[d].low < low) low = all[d].low;
    if (all[d].high > high) high = all[d].high;
  }
}

/* ---- waiting until the device is idle ---- */

/* Waits for the whole context, for work in unknown streams. */
static cu_result wait_for_context(const resident *r) {
  const cuda_driver *driver = shim_driver();
  if (driver->cuCtxRecordEvent == NULL) return driver->cuCtxSynchronize();
  cu_result code = driver->cuCtxRecordEvent(r->context, r->own_done);
  return code == CU_OK ? driver->cuEventSynchronize(r->own_done) : code;
}

static cu_result wait_for_rest(resident *r, uint64_t most_ns, bool closed) {
  if (streams_lost()) {
    cu_result code = wait_for_context(r);
    if (code != CU_OK) return code;
    /* A call that was not shown to us may be on its way while the gate is open. */
    if (closed) streams_found();
  }
  uint64_t start = clock_ns(), mark = streams_mark();
  if (mark == 0) return CU_ERROR_UNKNOWN;
  cu_result code;
  while ((code = streams_passed(mark)) == CU_ERROR_NOT_READY) {
    if (clock_ns() - start > most_ns) break;
    resident_pump(r);
    sched_yield();
  }
  return code;
}

/* Waits until all submitted work is done and closes the gate. Returns whether that succeeded. */
static bool quiet(resident *r) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(r->number > 0);
  if (r->given_up_ns != 0 && clock_ns() - r->given_up_ns < GIVEN_UP_NS) return false;
  r->given_up_ns = 0;
  /* First with the gate open, so that work that waits for other threads' work can finish. */
  cu_result code = wait_for_rest(r, REST_MAX_NS, false);
  if (code == CU_ERROR_NOT_READY) r->given_up_ns = clock_ns();
  if (code == CU_OK) {
    if (!gate_close()) return false;
    code = wait_for_rest(r, IDLE_MAX_NS, true);
    if (code == CU_OK) {
      r->passed = r->number - 1; /* the calling thread's own launch has not started yet */
      r->mark_first = r->mark_end;
      return true;
    }
    gate_open();
  }
  shim_log("pages are not moved: the device does not become idle (%d)", code);
  return false;
}

/* Notes what the program needs at once, once it repeats itself: before, most of what it holds may
 * not have been named yet. */
static void note_need(const resident *r) {
  residency_stats s;
  if (torch_block_seen()) return; /* PyTorch knows better */
  residency_get_stats(r->engine, &s);
  if (s.forecast_hits <= s.launches / 2) return;
  ledger_note_need(account_ledger(), r->device, s.needed_bytes, 0);
}

static void set_capacity(resident *r) {
  ASSERT(r->class != NULL);
  residency_stats stats;
  residency_get_stats(r->engine, &stats);
  uint64_t bytes = stats.vram_bytes + stats.staged_bytes +
                   page_free_spare(r->class, TIER_VRAM) * r->class->bytes;
  residency_set_capacity(r->engine, bytes > r->lend ? bytes - r->lend : 0);
}

/* Releases free pages for what is to be lent. */
static void release_lent(resident *r) {
  uint64_t given = r->lend > 0 ? page_free_trim(r->device, TIER_VRAM, r->lend, NULL) : 0;
  r->lend -= given < r->lend ? given : r->lend;
}

/* Takes vram that nobody uses. A run of pages leaves an eighth for libraries (page_run.c). When
 * pages move, libraries have had time to take what they need, and what is reserved for them stays
 * free. */
static void take_rest(resident *r) {
  for (int i = 0; i < TAKEN_AT_ONCE && page_make(r->class, TIER_VRAM) == CU_OK; i++) continue;
}

/* Gives parked addresses with a live block their host pages, without waiting for the device:
 * nothing was live there, so no running work can use them. */
static void ground(resident *r) {
  residency_plan_list plan = residency_plan(r->engine);
  for (uint32_t i = 0; i < plan.out_count + plan.in_count; i++) {
    const residency_move *m = i < plan.out_count ? &plan.out[i] : &plan.in[i - plan.out_count];
    resident_unit *u = &r->units[m->unit];
    if (u->token->page->borrowed && unpark(r, u)) residency_grounded(r->engine, m->unit);
  }
}

static void exchange_here(resident *r) {
  ASSERT(r->engine != NULL);
  uint64_t start = clock_ns();
  if (!quiet(r)) {
    if (residency_must_exchange(r->engine)) ground(r);
    r->waited_ns += clock_ns() - start;
    return;
  }
  uint64_t rested = clock_ns();
  resident_finish(r);
  if (r->lend == 0) take_rest(r);
  set_capacity(r);
  residency_plan_list plan = residency_plan(r->engine);
  uint64_t moved = 0;
  for (uint32_t i = 0; i < plan.in_count; i++) moved += plan.in[i].bytes;
  resident_carry_out(r, &plan);
  release_lent(r);
  r->lend = 0; /* more cannot be given up now */
  if (r->small_now) resident_small_home(r);
  resident_take_frames(r);
  set_capacity(r);
  gate_open();
  resident_pump(r);
  uint64_t now = clock_ns();
  r->exchanges++;
  r->rest_ns += rested - start;
  r->exchange_ns += now - rested;
  residency_exchange_took(r->engine, moved, now - rested);
  r->waited_ns += now - start;
  ledger *l = account_ledger();
  note_need(r);
  atomic_fetch_add(&l->header->exchanges, 1);
  atomic_fetch_add(&l->header->moving_ns, now - rested);
}

static void exchange(resident *r) {
  if (r->lend > 0) set_capacity(r);
  residency_plan_list plan = residency_plan(r->engine);
  if (plan.out_count + plan.in_count == 0 && !r->small_now) return;
  cu_context here = NULL, old;
  if (shim_driver()->cuCtxGetCurrent(&here) != CU_OK || here != r->context) {
    if (shim_driver()->cuCtxPushCurrent_v2(r->context) != CU_OK) return;
    exchange_here(r);
    shim_driver()->cuCtxPopCurrent_v2(&old);
  } else
    exchange_here(r);
}

/* ---- times of launches ---- */

/* Times the launch that is about to start, if the engine asks for it and a timer is free. */
static void sample_begins(resident *r, const launch *l) {
  residency_timing timing;
  if (!l->timed || l->opaque || !residency_sample(r->engine, &timing)) return;
  if (!timing.urgent && !timing.wait && sampler_busy(&r->samples) > SAMPLES_MAX / 2) return;
  int i = sampler_begin(&r->samples, l->stream);
  if (i < 0) return;
  r->timings[i] = timing;
  r->sampled++;
  if (timing.wait) r->awaited = i;
}

static void look_at_samples(resident *r) {
  uint64_t ns;
  if (capture_on()) return;
  for (int i; (i = sampler_take(&r->samples, &ns)) >= 0;)
    residency_sampled(r->engine, &r->timings[i], ns);
}

/* Waits for a launch whose time decides how others of the same function are treated. It may depend
 * on work that this thread has yet to submit, so the wait is short. */
static void await_sample(resident *r) {
  uint64_t start = clock_ns();
  bool began;
  if (!sampler_wait(&r->samples, r->awaited, AWAIT_MAX_NS, &began))
    residency_sample_late(r->engine, &r->timings[r->awaited], began);
  r->awaited = -1;
  look_at_samples(r);
  r->waited_ns += clock_ns() - start;
}

/* ---- launches ---- */

static bool block_lost; /* guarded by pages_lock, as the engines are */

static void change(const block_change *c) {
  ASSERT(c->addr != 0);
  const resident *r = with_engine(c->device);
  if (r == NULL) return;
  residency *engine = r->engine;
  if (c->bytes == 0)
    residency_block_remove(engine, c->addr);
  else
    block_lost |= residency_block_add(engine, c->addr, c->bytes) != STOW_OK;
}

/* Passes the changes of blocks to the engines. Returns false if one was lost: the contents of pages
 * are then unknown. */
static bool hand_over_blocks(void) {
  block_lost = false;
  return live_blocks_changes(change) && !block_lost;
}

static void follow_blocks(void) {
  if (hand_over_blocks()) return;
  shim_log("pages are no longer moved: there is no host memory to follow the program's blocks");
  for (unsigned d = 0; d < LEDGER_DEVICES_MAX; d++) {
    if (all[d].engine == NULL) continue;
    end(&all[d], false);
    failed[d] = true;
  }
}

uint64_t resident_cost_us(unsigned device) {
  ASSERT(device < LEDGER_DEVICES_MAX);
  uint64_t us = 0;
  lock_acquire(&pages_lock);
  const resident *r = &all[device];
  if (r->engine != NULL) {
    residency_stats s;
    residency_get_stats(r->engine, &s);
    us = r->exchange_ns / 1000 + s.read_bytes / BUS_BYTES_PER_US;
  }
  lock_release(&pages_lock);
  return us;
}

static resident *engine_of(const launch *l) {
  for (uint32_t i = 0; i < l->count && i < 4; i++)
    for (unsigned d = 0; d < LEDGER_DEVICES_MAX; d++)
      if (all[d].engine != NULL && l->words[i] >= all[d].low && l->words[i] < all[d].high)
        return &all[d];
  return latest_of;
}

static void log_round(resident *r) {
  residency_stats s;
  residency_get_stats(r->engine, &s);
  shim_log("%llu launches, %llu forecast, %llu exchanges: %llu us resting, %llu us; in %llu MiB "
           "(%llu copied, %llu early), out %llu MiB (%llu copied, %llu unneeded), moving %d, vram "
           "%llu MiB, "
           "staged %llu MiB; near %.0f far %.0f host %.0f calls %.0f ms; %llu timed; in place %llu "
           "MiB; %llu asked for an exchange, %llu named host pages",
           (unsigned long long)s.launches, (unsigned long long)s.forecast_hits,
           (unsigned long long)r->exchanges, (unsigned long long)(r->rest_ns / 1000),
           (unsigned long long)(r->exchange_ns / 1000), (unsigned long long)(s.in_bytes >> 20),
           (unsigned long long)(r->copied_in >> 20), (unsigned long long)(r->early >> 20),
           (unsigned long long)(s.out_bytes >> 20), (unsigned long long)(r->copied_out >> 20),
           (unsigned long long)(r->unneeded >> 20), s.moving,
           (unsigned long long)(s.vram_bytes >> 20), (unsigned long long)(s.staged_bytes >> 20),
           s.near_ns / 1e6, s.far_ns / 1e6, s.host_ns / 1e6, s.calls_ns / 1e6,
           (unsigned long long)r->sampled, (unsigned long long)(s.in_place_bytes >> 20),
           (unsigned long long)r->asked, (unsigned long long)s.far_launches);
  char parts[256];
  size_t length = 0;
  for (int i = 0; i < RESIDENT_PHASES && length < sizeof parts; i++)
    length += (size_t)snprintf(parts + length, sizeof parts - length, " %llu",
                               (unsigned long long)(r->phase_ns[i] / 1000));
  shim_log(
      "exchanges in us: wait, print, save, hosts, out, park, fetch, in, arrive:%s; %u pages in "
      "%u runs; %llu launches waited %llu us for the lock, the copying thread held it %llu us",
      parts, r->remaps, r->runs, (unsigned long long)lock_waits,
      (unsigned long long)(lock_wait_ns / 1000), (unsigned long long)(copier_ns / 1000));
}

static page_class *_Atomic waiting; /* for the program's first work */

static void visit(unsigned symbol, const uint64_t *registers, const uint64_t *stack) {
  /* Nothing is moved then. Work in other streams still runs: it is waited for later, and what it
   * names counts as changed. */
  bool captures = capture_on();
  if (!lock_try(&pages_lock)) {
    uint64_t since = clock_ns();
    lock_acquire(&pages_lock);
    lock_waits++;
    lock_wait_ns += clock_ns() - since;
  }
  if (atomic_load_explicit(&waiting, memory_order_relaxed) != NULL)
    resident_begin(atomic_exchange(&waiting, NULL));
  if (high == 0 || !launch_read(&latest, symbol, registers, stack, low, high)) {
    if (high == 0) streams_lose();
    lock_release(&pages_lock);
    return;
  }
  if (latest.graph != NULL) graph_name(&latest, low, high);
  gate_number(NO_DEVICE, 1); /* before the stream is marked, because the call has not started yet */
  streams_used(latest.stream);
  if (live_blocks_changed()) follow_blocks();
  resident *r = engine_of(&latest);
  if (r != NULL && r->engine != NULL) {
    latest_of = r;
    if (r->awaited >= 0 && !captures) await_sample(r);
    uint64_t now = clock_ns();
    gate_number(r->device, ++r->number);
    residency_launch_info info = {.function = latest.function,
                                  .size = latest.kernel ? latest.work : 0,
                                  .words = latest.words,
                                  .word_count = latest.count,
                                  .host_ns = now - r->last_ns - r->waited_ns,
                                  .once = !latest.kernel && !latest.opaque && latest.graph == NULL,
                                  .to = latest.to,
                                  .to_bytes = latest.to_bytes,
                                  .now_ns = now};
    r->last_ns = now;
    r->waited_ns = 0;
    bool asked = residency_launch(r->engine, &info) == RESIDENCY_EXCHANGE;
    r->asked += asked;
    if (latest.opaque) {
      static bool said[SYMBOL_COUNT];
      if (!said[symbol]) shim_log("%s may touch anything", shim_symbol_name((shim_symbol)symbol));
      said[symbol] = true;
      r->opaque = r->number;
      residency_opaque(r->engine);
    }
    for (uint32_t i = 0; i < latest.hidden_count; i++) {
      uint32_t unit = residency_find(r->engine, latest.hidden[i]);
      if (unit != UINT32_MAX) residency_hidden_write(r->engine, unit);
    }
    r->small_now = !captures && r->small_bytes > 0 && r->number >= r->small_at;
    if (r->small_now) {
      r->lend += r->small_bytes;
      r->small_at = r->number + SMALL_AGAIN; /* if the device does not become idle */
    }
    if (!captures) release_lent(r);
    if ((asked || r->small_now || r->lend > 0) && !captures)
      exchange(r);
    else if (asked && residency_must_exchange(r->engine))
      ground(r);
    if (!captures && r->number % MARK_EVERY == 0) resident_mark(r);
    if (!captures) sample_begins(r, &latest);
    if (r->number % 4096 == 0 || (r->number & (r->number - 1)) == 0) {
      log_round(r);
      note_need(r);
    }
  }
  lock_release(&pages_lock);
}

/* ---- the thread ---- */

static _Atomic bool stop;
static pthread_t thread;
static bool started;

static void *copier(void *nothing) {
  (void)nothing;
  prctl(PR_SET_NAME, "stowage-copy");
  prctl(PR_SET_TIMERSLACK, 1000);
  uint64_t busy_ns = clock_ns();
  while (!atomic_load(&stop)) {
    lock_acquire(&pages_lock);
    uint64_t since = clock_ns();
    for (unsigned d = 0; d < LEDGER_DEVICES_MAX; d++) {
      resident *r = &all[d];
      cu_context old;
      if (r->engine == NULL || shim_driver()->cuCtxPushCurrent_v2(r->context) != CU_OK) continue;
      resident_pump(r);
      look_at_samples(r);
      for (int i = 0; i < COPIES_MAX; i++)
        if (r->copies[i].state != COPY_NONE) busy_ns = clock_ns();
      shim_driver()->cuCtxPopCurrent_v2(&old);
    }
    copier_ns += clock_ns() - since;
    lock_release(&pages_lock);
    bool lingers = clock_ns() - busy_ns > UINT64_C(1000000000);
    nanosleep(&(struct timespec){.tv_nsec = lingers ? LINGER_NS : LOOK_NS}, NULL);
  }
  return NULL;
}

static void stop_copier(void) {
  if (!started || atomic_exchange(&stop, true)) return;
  pthread_join(thread, NULL);
}

static bool start_copier(void) {
  sigset_t every, before;
  if (started) return true;
  sigfillset(&every);
  pthread_sigmask(SIG_BLOCK, &every, &before);
  started = pthread_create(&thread, NULL, copier, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (started) atexit(stop_copier);
  return started;
}

/* ---- beginning and ending ---- */

static bool open_device(resident *r) {
  const cuda_driver *driver = shim_driver();
  cu_context context;
  if (driver->cuCtxGetCurrent(&context) != CU_OK || context == NULL ||
      driver->cuStreamCreate(&r->own, CU_STREAM_NON_BLOCKING_FLAG) != CU_OK ||
      driver->cuStreamCreate(&r->copy_in, CU_STREAM_NON_BLOCKING_FLAG) != CU_OK ||
      driver->cuStreamCreate(&r->copy_out, CU_STREAM_NON_BLOCKING_FLAG) != CU_OK ||
      driver->cuEventCreate(&r->own_done, CU_EVENT_NO_TIMING) != CU_OK)
    return false;
  r->context = context;
  for (int i = 0; i < COPIES_MAX; i++)
    if (driver->cuEventCreate(&r->copies[i].done, CU_EVENT_NO_TIMING) != CU_OK) return false;
  for (int i = 0; i < 2 * PIECES; i++)
    if (driver->cuEventCreate(&r->pieces[i % 2].done[i / 2], CU_EVENT_NO_TIMING) != CU_OK)
      return false;
  return fingerprint_open(&r->prints);
}

static bool begin(resident *r, page_class *class) {
  ASSERT(r->engine == NULL);
  ASSERT(class->bytes % SHIM_GRANULE == 0);
  unsigned here;
  cu_context context;
  cu_device ordinal;
  if (!account_here(&here, &context, &ordinal) || here != class->device) return false;
  *r = (resident){.class = class, .device = class->device, .awaited = -1};
  residency_options options = {.capacity_bytes = 0};
  if (!open_device(r) || residency_open(&r->engine, &options) != STOW_OK) return false;
  class->tokens++; /* its entry in the table must not go to another class meanwhile */
  r->last_ns = clock_ns();
  streams_lose();
  uint64_t name, value;
  for (size_t at = 0; map_next(&tokens, &at, &name, &value);) {
    token *t = (token *)(uintptr_t)value;
    t->unit = 0;
    resident_add(t);
  }
  set_capacity(r);
  if (!live_blocks_follow() || !hand_over_blocks()) return false;
  /* Blocks that live now hold something: launches that were not seen have written to them. */
  residency_launch(r->engine, &(residency_launch_info){.now_ns = r->last_ns});
  r->number = r->passed = 1;
  r->small_bytes = resident_small_bytes(r);
  return start_copier();
}

bool resident_begin(page_class *class) {
  ASSERT(lock_held(&pages_lock));
  if (class->device >= LEDGER_DEVICES_MAX) return false;
  resident *r = &all[class->device];
  if (r->engine != NULL) return r->class == class;
  if (failed[class->device] || class->bytes < PAGE_MOVES_LEAST || class->bytes > UNIT_MOST ||
      !gate_here() || capture_on() || !launch_known())
    return false;
  if (!gate_used()) { /* it may submit work another way */
    atomic_store(&waiting, class);
    gate_set_visitor(visit);
    return false;
  }
  if (!begin(r, class)) {
    if (r->engine != NULL) end(r, false);
    failed[class->device] = true;
    shim_log("pages are not moved: the driver lacks the functions needed");
    return false;
  }
  atomic_store(&on[class->device], true);
  ledger_header *header = account_ledger()->header;
  atomic_store(&header->xla_part, xla_settings_part());
  if (xla_settings_off()) atomic_store(&header->xla_graphs_off, 1);
  gate_set_visitor(visit);
  shim_log("pages of %llu MiB are moved as launches need them",
           (unsigned long long)(class->bytes >> 20));
  return true;
}

/* Returns the device whose unit contains the address, or NULL. */
static const resident *device_at(uint64_t addr, uint32_t *unit) {
  ASSERT(lock_held(&pages_lock));
  for (unsigned d = 0; d < LEDGER_DEVICES_MAX; d++) {
    *unit = all[d].engine != NULL ? residency_find(all[d].engine, addr) : UINT32_MAX;
    if (*unit != UINT32_MAX) return &all[d];
  }
  return NULL;
}

static uint64_t unit_end(const resident *r, uint32_t unit) {
  ASSERT(unit < r->unit_capacity);
  ASSERT(r->units[unit].token != NULL);
  return r->units[unit].token->addr + r->class->bytes;
}

uint64_t resident_host_bytes(uint64_t addr, uint64_t bytes) {
  uint64_t found = 0, next;
  lock_acquire(&pages_lock);
  for (uint64_t at = addr, end = addr + bytes; at < end; at = next) {
    uint32_t unit;
    const resident *r = device_at(at, &unit);
    next = r != NULL ? unit_end(r, unit) : (at / SHIM_GRANULE + 1) * SHIM_GRANULE;
    if (r != NULL && r->units[unit].token->page->tier == TIER_HOST)
      found += (next < end ? next : end) - at;
  }
  lock_release(&pages_lock);
  return found;
}

uint64_t resident_run(uint64_t addr, uint64_t bytes, bool *on_host) {
  ASSERT(bytes > 0);
  ASSERT(on_host != NULL);
  uint64_t end = addr + bytes, at = addr;
  int tier = -1; /* of the pages so far */
  lock_acquire(&pages_lock);
  while (at < end && (at > addr || (at >= low && at < high))) {
    uint32_t unit;
    const resident *r = device_at(at, &unit);
    int here = r != NULL ? r->units[unit].token->page->tier : TIER_COUNT;
    if (tier >= 0 && here != tier) break;
    tier = here;
    at = r != NULL ? unit_end(r, unit) : (at / SHIM_GRANULE + 1) * SHIM_GRANULE;
    if (r == NULL) break; /* a page of another kind may follow */
  }
  lock_release(&pages_lock);
  *on_host = tier == TIER_HOST;
  return tier < 0 || at > end ? bytes : at - addr;
}

void resident_passed(uint64_t addr, uint64_t bytes) {
  uint32_t unit;
  lock_acquire(&pages_lock);
  const resident *r = device_at(addr, &unit);
  if (r != NULL) residency_passed(r->engine, addr, bytes);
  lock_release(&pages_lock);
}

uint64_t resident_written(uint64_t addr, uint64_t bytes) {
  uint64_t last = 0;
  lock_acquire(&pages_lock);
  for (uint64_t at = addr; at < addr + bytes && last != UINT64_MAX;) {
    uint32_t unit;
    const resident *r = device_at(at, &unit);
    uint64_t written = r != NULL ? residency_written(r->engine, unit, addr) : UINT64_MAX;
    if (r != NULL && r->opaque > written) written = r->opaque;
    if (r == NULL || written > r->passed) written = UINT64_MAX;
    if (written > last) last = written;
    if (r != NULL) at = unit_end(r, unit);
  }
  lock_release(&pages_lock);
  return last == UINT64_MAX ? 0 : last + 1;
}

void resident_stream_destroyed(cu_stream stream) {
  lock_acquire(&pages_lock);
  streams_destroyed(stream);
  lock_release(&pages_lock);
}

void resident_functions_gone(void) {
  lock_acquire(&pages_lock);
  launch_forget();
  lock_release(&pages_lock);
}

void resident_capture_begins(void) {
  /* A thread that holds the lock now checked for captures before this one was counted. */
  lock_acquire(&pages_lock);
  lock_release(&pages_lock);
}

void resident_context_ended(unsigned device, cu_context context) {
  ASSERT(lock_held(&pages_lock));
  streams_context_ended(context);
  if (device >= LEDGER_DEVICES_MAX) return;
  resident *r = &all[device];
  if (r->engine != NULL && (context == NULL || r->context == context)) end(r, true);
}

static void after_fork(void) {
  memset(all, 0, sizeof all);
  for (unsigned d = 0; d < LEDGER_DEVICES_MAX; d++) atomic_store(&on[d], false);
  latest_of = NULL;
  started = false;
  low = UINT64_MAX;
  high = 0;
}
SHIM_AFTER_FORK(after_fork);
