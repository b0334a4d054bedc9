/* Spill: the simulated device, and the driver that executes the engine's plans.
 *
 * The host starts launches at the recorded intervals, the device runs them in order, and each
 * direction of the bus carries one copy at a time. All clocks are nanoseconds since the start of
 * the run. Costs are those of residency/cost.h. */
#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "replay/spill.h"
#include "replay/spill_scripts.h"
#include "residency/space.h"

enum {
  UNDER_WAY = 2,    /* copies per direction */
  QUEUE_MAX = 1024, /* launches the host may be ahead of the device (CUDA's queue) */
  STEPS_MAX = 40,
};
#define UNIT_BYTES (UINT64_C(32) << 20)

typedef struct copy {
  uint32_t unit;
  double end_ns;
} copy;

typedef struct device_model {
  const spill_program *p;
  residency *engine;
  const residency_costs *cost;
  uint64_t unit_bytes;
  double host_ns, device_ns;
  bool held[2];     /* no copy may start in this direction */
  double bus_ns[2]; /* when each direction is free */
  copy under_way[2][UNDER_WAY];
  uint32_t under_way_count[2];
  double queue[QUEUE_MAX]; /* when the last launches end */
  uint64_t launches;
  double *ends;     /* per unit: when the last launch that named it ends */
  uint32_t *writes; /* per unit: live blocks that do not outlive the step */
  bool *dirty;      /* per unit: written since it was copied in */
  uint32_t unit_count;
  uint64_t *unit_addr;
  uint64_t capacity_bytes;
  spill_times now;
} device_model;

/* ---- copies ---- */

static double copy_ns(const device_model *c, int direction, uint64_t bytes, double at) {
  bool both = c->bus_ns[!direction] > at;
  return (double)bytes * (both ? c->cost->both_ns_per_byte : c->cost->copy_ns_per_byte);
}

/* Finds the next copy to end; false if none is running. */
static bool first_end(const device_model *c, int *direction, double *at) {
  bool any = false;
  for (int d = 0; d < 2; d++)
    if (c->under_way_count[d] > 0 && (!any || c->under_way[d][0].end_ns < *at)) {
      *direction = d;
      *at = c->under_way[d][0].end_ns;
      any = true;
    }
  return any;
}

static void end_first(device_model *c, int direction) {
  copy done = c->under_way[direction][0];
  c->under_way[direction][0] = c->under_way[direction][1];
  c->under_way_count[direction]--;
  residency_copied(c->engine, done.unit, (residency_direction)direction, true);
}

static void start_copies(device_model *c, double at) {
  for (int d = 0; d < 2; d++) {
    residency_move m;
    if (c->held[d]) continue;
    while (c->under_way_count[d] < UNDER_WAY &&
           residency_copy_next(c->engine, (residency_direction)d, &m)) {
      double from = c->bus_ns[d] > at ? c->bus_ns[d] : at;
      double takes = copy_ns(c, d, m.bytes, from);
      if (d == RESIDENCY_OUT) {
        if (c->ends[m.unit] > from) from = c->ends[m.unit];
        if (m.check && !c->dirty[m.unit])
          takes = (double)m.bytes * c->cost->check_ns_per_byte;
        else
          c->now.out_copied_bytes += m.bytes;
      } else {
        c->now.in_copied_bytes += m.bytes;
      }
      c->bus_ns[d] = from + takes;
      c->under_way[d][c->under_way_count[d]++] = (copy){m.unit, c->bus_ns[d]};
    }
  }
}

/* Ends and starts copies up to `at`. */
static void advance(device_model *c, double at) {
  int d = 0;
  double end = 0;
  while (first_end(c, &d, &end) && end <= at) {
    end_first(c, d);
    start_copies(c, end);
  }
  start_copies(c, at);
}

/* ---- exchanges ---- */

/* The driver copies in pieces of 4 MiB and can pause between two: PIECE_NS. A paused copy ends
 * later by the length of the pause. */
#define PIECE_NS 80e3
#define FAR_NS   1e15

static void hold_copies(device_model *c, bool hold, double later) {
  for (int d = 0; d < 2; d++) {
    c->held[d] = hold;
    c->bus_ns[d] += later;
    for (uint32_t i = 0; i < c->under_way_count[d]; i++) c->under_way[d][i].end_ns += later;
  }
}

/* Runs page calls that begin at `at`; they take longer while copies run. Returns when they end. */
static double page_calls(device_model *c, const residency_bytes *moved, double at, bool hold,
                         bool pause) {
  double left = 1; /* fraction of the work */
  if (moved->in + moved->out + moved->park + moved->unpark == 0) return at;
  if (hold) hold_copies(c, true, pause ? FAR_NS : 0);
  if (pause) at += PIECE_NS;
  double begin = at;
  while (left > 0) {
    advance(c, at);
    double until = 0;
    int busy = 0;
    for (int d = 0; d < 2; d++) {
      if (c->under_way_count[d] == 0 || pause) continue;
      busy++;
      double end = c->under_way[d][0].end_ns;
      if (until == 0 || end < until) until = end;
    }
    double takes = residency_exchange_ns(c->unit_bytes, moved, busy);
    if (busy == 0 || at + left * takes <= until) {
      at += left * takes;
      break;
    }
    left -= (until - at) / takes;
    at = until;
  }
  advance(c, at);
  if (hold) hold_copies(c, false, pause ? at - begin - FAR_NS : 0);
  return at;
}

static void exchange(device_model *c) {
  double at = c->host_ns > c->device_ns ? c->host_ns : c->device_ns;
  advance(c, at);
  residency_plan_list plan = residency_plan(c->engine);
  if (plan.in_count + plan.out_count == 0) return;
  residency_bytes moved = {0};
  uint64_t checked = 0;
  residency_stats before;
  residency_get_stats(c->engine, &before);
  uint64_t used = before.vram_bytes + before.staged_bytes;
  uint64_t free = c->capacity_bytes > used ? c->capacity_bytes - used : 0;
  double begin = at;
  /* No copy starts while the plan is executed: the plan determines which pages are free. */
  for (uint32_t i = 0; i < plan.out_count; i++) {
    const residency_move *m = &plan.out[i];
    *(m->park ? &moved.park : &moved.out) += m->bytes;
    if (m->check) checked += m->bytes;
    if (m->wait)
      for (uint32_t k = 0; k < c->under_way_count[RESIDENCY_OUT]; k++)
        if (c->under_way[RESIDENCY_OUT][k].unit == m->unit &&
            c->under_way[RESIDENCY_OUT][k].end_ns > at)
          at = c->under_way[RESIDENCY_OUT][k].end_ns;
    if (m->copy && !c->dirty[m->unit]) residency_unwritten(c->engine, m->unit);
    if (m->copy && c->dirty[m->unit]) {
      double from = c->bus_ns[RESIDENCY_OUT] > begin ? c->bus_ns[RESIDENCY_OUT] : begin;
      c->bus_ns[RESIDENCY_OUT] = from + copy_ns(c, RESIDENCY_OUT, m->bytes, from);
      if (c->bus_ns[RESIDENCY_OUT] > at) at = c->bus_ns[RESIDENCY_OUT];
      c->now.out_copied_bytes += m->bytes;
    }
  }
  c->now.wait_out_ns += (uint64_t)(at - begin);
  double outs = at;
  for (uint32_t i = 0; i < plan.in_count; i++) {
    const residency_move *m = &plan.in[i];
    *(m->park ? &moved.unpark : &moved.in) += m->bytes;
    if (m->wait)
      for (uint32_t k = 0; k < c->under_way_count[RESIDENCY_IN]; k++)
        if (c->under_way[RESIDENCY_IN][k].unit == m->unit &&
            c->under_way[RESIDENCY_IN][k].end_ns > at)
          at = c->under_way[RESIDENCY_IN][k].end_ns;
    if (m->copy) {
      /* What free pages can hold need not wait for the pages that leave. */
      bool early = !m->wait && free >= m->bytes;
      double first = early ? begin : outs;
      free -= early ? m->bytes : 0;
      double from = c->bus_ns[RESIDENCY_IN] > first ? c->bus_ns[RESIDENCY_IN] : first;
      c->bus_ns[RESIDENCY_IN] = from + copy_ns(c, RESIDENCY_IN, m->bytes, from);
      if (c->bus_ns[RESIDENCY_IN] > at) at = c->bus_ns[RESIDENCY_IN];
      c->now.in_copied_bytes += m->bytes;
    }
    c->dirty[m->unit] = false;
  }
  c->now.wait_in_ns += (uint64_t)(at - outs);
  /* The copies that the plan waited for have ended. */
  for (int d = 0; d < 2; d++)
    while (c->under_way_count[d] > 0 && c->under_way[d][0].end_ns <= at) end_first(c, d);
  residency_exchanged(c->engine, plan.out_count, plan.in_count);
  double from = at;
  residency_bytes parks = {.park = moved.park, .unpark = moved.unpark};
  residency_bytes hosts = {.in = moved.in, .out = moved.out};
  at += c->cost->point_ns + (double)checked * c->cost->check_ns_per_byte;
  at = page_calls(c, &parks, at, true, true);
  at = page_calls(c, &hosts, at, plan.hold, false);
  c->now.exchange_ns += (uint64_t)(at - from);
  c->now.in_bytes += moved.in + moved.unpark;
  c->now.out_bytes += moved.out + moved.park;
  c->now.exchanges++;
  advance(c, at);
  c->host_ns = c->device_ns = at;
}

/* ---- the program ---- */

/* Returns the bytes of the launch's blocks that lie in a unit. */
static uint64_t bytes_in(const device_model *c, const spill_op *op, uint64_t addr) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < op->word_count; i++) {
    const spill_block *b = &c->p->word_blocks[op->first_word + i];
    uint64_t low = b->addr > addr ? b->addr : addr;
    uint64_t high =
        b->addr + b->bytes < addr + c->unit_bytes ? b->addr + b->bytes : addr + c->unit_bytes;
    if (high > low) sum += high - low;
  }
  return sum < c->unit_bytes ? sum : c->unit_bytes;
}

/* Returns how long the launch waits for host pages that it reads in place. */
static double far_ns(const device_model *c, const spill_op *op, const uint32_t *named,
                     uint32_t count) {
  uint64_t far = 0, all = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t bytes = bytes_in(c, op, c->unit_addr[named[i]]);
    all += bytes;
    if (!residency_in_vram(c->engine, named[i])) far += bytes;
  }
  uint32_t small_count;
  const space_small *small = residency_named_small(c->engine, &small_count);
  uint64_t little = 0;
  for (uint32_t i = 0; i < small_count; i++)
    if (!residency_in_vram(c->engine, small[i].unit)) little += small[i].bytes;
  if (far + little == 0) return 0;
  far += little;
  return residency_in_place_ns(c->cost, far, all + little, op->device_ns);
}

static void mark_use(device_model *c, uint32_t unit) {
  c->ends[unit] = c->device_ns;
  if (c->p->crossings == 2 || c->writes[unit] > 0) c->dirty[unit] = true;
}

static void launch(device_model *c, const spill_op *op) {
  c->host_ns += (double)op->gap_ns;
  double room = c->queue[c->launches % QUEUE_MAX];
  if (room > c->host_ns) c->host_ns = room;
  if (c->engine != NULL) {
    residency_launch_info l = {.function = op->function,
                               .words = c->p->words + op->first_word,
                               .word_count = op->word_count,
                               .device_ns = op->device_ns,
                               .host_ns = op->gap_ns,
                               .now_ns = (uint64_t)c->host_ns};
    if (residency_launch(c->engine, &l) == RESIDENCY_EXCHANGE) exchange(c);
    advance(c, c->host_ns);
  }
  double takes = (double)op->device_ns;
  uint32_t count = 0;
  const uint32_t *named = c->engine != NULL ? residency_named(c->engine, &count) : NULL;
  if (c->engine != NULL) {
    double slow = far_ns(c, op, named, count);
    c->now.in_place_ns += (uint64_t)slow;
    takes += slow;
  }
  c->device_ns = (c->device_ns > c->host_ns ? c->device_ns : c->host_ns) + takes;
  c->queue[c->launches++ % QUEUE_MAX] = c->device_ns;
  for (uint32_t i = 0; i < count; i++) mark_use(c, named[i]);
  if (c->engine == NULL) return;
  const space_small *small = residency_named_small(c->engine, &count);
  for (uint32_t i = 0; i < count; i++) mark_use(c, small[i].unit);
}

static void count_writes(device_model *c, const spill_op *op, int by) {
  uint64_t first = op->addr / c->unit_bytes, last = (op->addr + op->bytes - 1) / c->unit_bytes;
  size_t at = 0;
  for (uint64_t n = first; n <= last; n++) {
    while (at < c->unit_count && c->unit_addr[at] < n * c->unit_bytes) at++;
    if (at < c->unit_count && c->unit_addr[at] == n * c->unit_bytes) c->writes[at] += (uint32_t)by;
  }
}

static stow_status run_step(device_model *c) {
  c->now = (spill_times){0};
  double begin = c->host_ns > c->device_ns ? c->host_ns : c->device_ns;
  c->host_ns = begin;
  for (size_t i = 0; i < c->p->op_count; i++) {
    const spill_op *op = &c->p->ops[i];
    if (op->kind == SPILL_LAUNCH) {
      launch(c, op);
    } else if (c->engine != NULL) {
      if (c->p->crossings == 1) count_writes(c, op, op->kind == SPILL_ALLOC ? 1 : -1);
      if (op->kind == SPILL_ALLOC)
        STOW_TRY(residency_block_add(c->engine, op->addr, op->bytes));
      else
        residency_block_remove(c->engine, op->addr);
    }
  }
  double end = c->host_ns > c->device_ns ? c->host_ns : c->device_ns;
  c->host_ns = c->device_ns = end;
  c->now.step_ns = (uint64_t)(end - begin);
  if (c->p->next != NULL) c->p = c->p->next;
  return STOW_OK;
}

/* ---- units ---- */

/* Adds the units of one step's blocks after the first `n`, if there is room for them. Returns how
 * many there are then. */
static size_t units_of(device_model *c, const spill_program *p, size_t n) {
  for (size_t i = 0; i < p->initial_count + p->op_count; i++) {
    const spill_op *op = i < p->initial_count ? NULL : &p->ops[i - p->initial_count];
    if (op != NULL && op->kind != SPILL_ALLOC) continue;
    uint64_t addr = op != NULL ? op->addr : p->initial[i].addr;
    uint64_t bytes = op != NULL ? op->bytes : p->initial[i].bytes;
    if (bytes == 0) continue;
    for (uint64_t k = addr / c->unit_bytes; k <= (addr + bytes - 1) / c->unit_bytes; k++) {
      if (c->unit_addr != NULL) c->unit_addr[n] = k * c->unit_bytes;
      n++;
    }
  }
  return n;
}

static stow_status collect_units(device_model *c) {
  size_t count = 0, n = 0;
  for (int pass = 0; pass < 2; pass++) {
    const spill_program *p = c->p;
    do {
      n = units_of(c, p, n);
      p = p->next;
    } while (p != NULL && p != c->p);
    if (pass == 0) {
      c->unit_addr = malloc((n + 1) * sizeof *c->unit_addr);
      if (c->unit_addr == NULL)
        return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu units", n);
      count = n;
      n = 0;
    }
  }
  qsort(c->unit_addr, count, sizeof *c->unit_addr, compare_u64);
  for (size_t i = 0; i < count; i++)
    if (c->unit_count == 0 || c->unit_addr[c->unit_count - 1] != c->unit_addr[i])
      c->unit_addr[c->unit_count++] = c->unit_addr[i];
  c->ends = calloc(c->unit_count + 1, sizeof *c->ends);
  c->writes = calloc(c->unit_count + 1, sizeof *c->writes);
  c->dirty = calloc(c->unit_count + 1, sizeof *c->dirty);
  if (c->ends == NULL || c->writes == NULL || c->dirty == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u units", c->unit_count);
  return STOW_OK;
}

static stow_status fill_engine(device_model *c, uint64_t capacity) {
  uint64_t used = 0;
  for (uint32_t i = 0; i < c->unit_count; i++) {
    uint32_t unit;
    bool in = used + c->unit_bytes <= capacity;
    STOW_TRY(residency_unit_add(c->engine, c->unit_addr[i], c->unit_bytes, in, &unit));
    if (in) used += c->unit_bytes;
  }
  for (size_t i = 0; i < c->p->initial_count; i++)
    STOW_TRY(residency_block_add(c->engine, c->p->initial[i].addr, c->p->initial[i].bytes));
  return STOW_OK;
}

static void model_reset(device_model *c) {
  c->host_ns = c->device_ns = c->bus_ns[0] = c->bus_ns[1] = 0;
  c->under_way_count[0] = c->under_way_count[1] = 0;
  c->launches = 0;
  memset(c->queue, 0, sizeof c->queue);
}

static bool near(uint64_t a, uint64_t b) {
  uint64_t most = a > b ? a : b, least = a > b ? b : a;
  return most - least <= most / 500;
}

/* Repeats the step until three in a row take the same time within 0.2%. */
static stow_status run_steady(device_model *c, spill_times *steady, uint32_t *steps) {
  uint64_t last[3] = {0};
  *steps = 0;
  do {
    STOW_TRY(run_step(c));
    last[2] = last[1];
    last[1] = last[0];
    last[0] = c->now.step_ns;
    ++*steps;
  } while (*steps < STEPS_MAX &&
           (*steps < 20 || !near(last[0], last[1]) || !near(last[0], last[2])));
  *steady = c->now;
  return STOW_OK;
}

static stow_status run_engine(device_model *c, const spill_options *o, uint64_t capacity, bool stay,
                              spill_times *steady, uint32_t *steps, residency_stats *stats) {
  residency_options options = {.capacity_bytes = capacity,
                               .stage_bytes = o->stage_bytes,
                               .log_launches = (uint32_t)(3 * c->p->launch_count + 1024),
                               .stay = stay};
  model_reset(c);
  STOW_TRY(residency_open(&c->engine, &options));
  c->capacity_bytes = capacity;
  stow_status status = fill_engine(c, capacity);
  if (status == STOW_OK) status = run_steady(c, steady, steps);
  if (status == STOW_OK) residency_get_stats(c->engine, stats);
  residency_close(c->engine);
  c->engine = NULL;
  return status;
}

/* Returns whether the scripts inside PyTorch run: they begin when the device is short of memory. */
static bool scripts_help(const spill_program *p, uint64_t capacity) {
  return p->torch && p->next == NULL && p->peak_live_bytes > capacity;
}

static stow_status run_all(device_model *c, spill_result *out, const spill_options *o) {
  STOW_TRY(run_step(c)); /* without an engine */
  out->bare_ns = c->now.step_ns;
  uint64_t taken = o->context_bytes + SPILL_RESERVE_BYTES;
  if (o->vram_bytes <= taken + 4 * c->unit_bytes)
    return stow_fail(STOW_ERR_INVALID,
                     "a device of %llu MiB leaves no memory for pages: the CUDA context and the "
                     "reserve take %llu MiB; give a larger size",
                     (unsigned long long)(o->vram_bytes >> 20), (unsigned long long)(taken >> 20));
  out->capacity_bytes = o->vram_bytes - taken;
  uint64_t need = c->p->peak_live_bytes + o->context_bytes;
  out->excess_bytes = need > o->vram_bytes ? need - o->vram_bytes : 0;
  out->floor_ns = out->bare_ns + (uint64_t)((double)c->p->crossings * (double)out->excess_bytes *
                                            c->cost->copy_ns_per_byte);
  STOW_TRY(collect_units(c));
  out->fits = (uint64_t)c->unit_count * c->unit_bytes <= out->capacity_bytes;
  spill_times stay;
  uint32_t steps;
  STOW_TRY(run_engine(c, o, out->capacity_bytes, true, &stay, &steps, &out->engine));
  out->stay_ns = stay.step_ns;
  if (!o->stay && !o->pages_only && scripts_help(c->p, out->capacity_bytes))
    STOW_TRY(
        spill_scripts_run(&out->scripts, &out->steady, &out->steps, c->p, o, out->capacity_bytes));
  if (o->stay)
    out->steady = stay, out->steps = steps;
  else if (out->scripts.used)
    out->engine = (residency_stats){0};
  else
    STOW_TRY(run_engine(c, o, out->capacity_bytes, false, &out->steady, &out->steps, &out->engine));
  return spill_bound(c->p, out->capacity_bytes, c->unit_bytes, &out->bound_in_bytes,
                     &out->bound_copied_bytes);
}

stow_status spill_run(spill_result *out, const spill_program *p, const spill_options *o) {
  *out = (spill_result){0};
  device_model c = {.p = p,
                    .cost = &residency_costs_h200,
                    .unit_bytes = o->unit_bytes != 0 ? o->unit_bytes : UNIT_BYTES};
  stow_status status = run_all(&c, out, o);
  free(c.ends);
  free(c.writes);
  free(c.dirty);
  free(c.unit_addr);
  return status;
}
