/* Worth: decides whether moving pays now, and what stays on the host if it does not.
 *
 * Every launch that names units on the host can be served in two ways: the units come to vram (page
 * calls, for which host and device wait), or the kernel reads them in place over the bus. Weighted
 * sums over the last few thousand launches show what each would have cost:
 *
 *   near   time of the kernels with everything in vram
 *   far    what reading in place adds to it
 *   host   time between the launches
 *   calls  page calls, if every missing unit is exchanged
 *
 * If the host is slower than the device, reading in place is hidden. So moving pays if max(near +
 * far - host, …) exceeds the calls: no trial is needed, and a program that changes its phase is
 * re-evaluated within a step. Times come from the driver, which samples the launches that
 * residency_sample selects. Function and words identify a launch. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "residency/engine.h"

#define WINDOW      2048.0
#define HOST_MAX_NS 300000 /* a longer gap is a wait for the device */
/* How often a kernel that was never timed is assumed to read each byte. */
#define UNTIMED_READS 3
#define MEASURED_MOST 2.5
#define VISIT_MOST    16 /* launches that are counted for one exchange, at most */
/* A launch that names as much of arenas may use only a small part of it; with more than the second
 * figure, that the function used what it named elsewhere is no proof. */
#define WIDE_BYTES      (UINT64_C(64) << 20)
#define WIDE_BYTES_MOST (UINT64_C(256) << 20)
/* Reading in place that takes as long in one launch, and twice as long as the exchange: the host's
 * work cannot hide it. The logits of a language model, in a step that is larger than those before.
 */
#define HEAVY_NS 10e6
/* Launches that are timed: so many, and one of so many others. */
enum { SAMPLES_LEAST = 4096, SAMPLES_PART = 32 };
/* While the words of an arena are not all known, a launch may read the host although all that it
 * names is in vram: the least of so many times counts. */
#define NEARS 4
/* A function that was never timed in place is read in place once, if it names as much on the host:
 * the launches after it wait for its time. */
#define WAIT_BYTES (UINT64_C(8) << 20)
#define AGAIN      64 /* now and then it is timed again */
#define LATES_MAX  8  /* after so many waits that were too long there are no more */

/* ---- times of launches ---- */

static launch_time *time_of(const residency *r, uint64_t id) {
  return &r->times[(id ^ id >> 32) & (TIMES - 1)];
}

/* Returns the id of all launches of the function in the size, whatever their words are; 0: the size
 * is not known. */
static uint64_t shape_id(const residency *r) {
  if (r->shape == r->function) return 0;
  return (r->shape * UINT64_C(0x9e3779b97f4a7c15)) ^ UINT64_C(0x2545f4914f6cdd1d);
}

static function_time *function_of(const residency *r, uint64_t function) {
  return &r->functions[hash_u64(function, 0) % FUNCTIONS];
}

/* Returns the bytes of units that this launch's exchange left on the host. */
static uint64_t still_far(const residency *r) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < r->named_count; i++)
    if (r->units[r->named[i]].place != PLACE_VRAM) bytes += r->space.units[r->named[i]].bytes;
  return bytes;
}

/* Returns whether the launch was timed when it named much more of an arena than it does now. */
static bool is_outdated(const residency *r, const launch_time *t) {
  return r->space.arena_named && r->far_bytes < t->far_bytes / 2;
}

/* ---- launches that use more than they name ---- */

/* A trial begins if a good part of the launches took at least this long, and as long as reading a
 * quarter of what they may use unseen over the bus. It succeeds if launches then take less than
 * this part of the least of these times. */
#define TRIAL_LEAST_NS 1000000
#define TRIAL_GAIN     0.6
enum { TRIAL_SAMPLES = 3, TRIAL_PART = 4 };
/* At least so many of the launches that may use more than they name are timed. */
#define TRIAL_TIMED 24

/* Makes another trial of launches that have a large range beyond their words. */
#define LARGE UINT64_C(0x2545f4914f6cdd1d)

/* Identifies the trial that the launch last resolved belongs to. */
static uint64_t trial_now(const residency *r) {
  return r->space.beyond_large ? r->shape ^ LARGE : r->shape;
}

static wide_trial *trial_of(const residency *r, uint64_t trial) {
  return &r->trials[hash_u64(trial, 1) % WIDE_TRIALS];
}

static bool is_wide(const residency *r, uint64_t trial) {
  const wide_trial *t = trial_of(r, trial);
  return t->trial == trial && (t->state == WIDE_TRIED || t->state == WIDE_YES);
}

space_width worth_width(const residency *r, uint64_t shape) {
  if (is_wide(r, shape ^ LARGE)) return SPACE_WIDEST;
  return is_wide(r, shape) ? SPACE_WIDE : SPACE_NARROW;
}

/* Returns whether it is not yet known whether these launches use more than they name. */
static bool trial_open(const residency *r, uint64_t trial) {
  const wide_trial *t = trial_of(r, trial);
  return t->trial != trial || t->state == WIDE_UNKNOWN || t->state == WIDE_TRIED;
}

/* Returns whether too few of these launches were timed to tell. */
static bool trial_needs_times(const residency *r, uint64_t trial) {
  const wide_trial *t = trial_of(r, trial);
  return t->trial == trial && t->state != WIDE_NO && t->state != WIDE_YES && t->timed < TRIAL_TIMED;
}

/* Returns the bytes of the ranges beyond what the launch names; 0 if none of them is on the host.
 */
static uint64_t beyond_bytes(const residency *r) {
  uint64_t sum = 0;
  bool far = false;
  for (uint32_t i = 0; i < r->space.beyond_count; i++) {
    uint32_t unit;
    uint64_t to = r->space.beyond[i].to;
    for (uint64_t at = r->space.beyond[i].from, end; at < to; at = end) {
      end = space_step(&r->space, at, &unit);
      if (unit == SPACE_NO_UNIT) continue;
      far |= r->units[unit].place != PLACE_VRAM;
      sum += (end < to ? end : to) - at;
    }
  }
  return far ? sum : 0;
}

/* Counts a launch that may use more than it names. */
static void trial_launch(residency *r) {
  ASSERT(r->space.beyond_count > 0);
  uint64_t trial = trial_now(r);
  wide_trial *t = trial_of(r, trial);
  if (t->trial != trial) {
    if (t->state == WIDE_TRIED || t->state == WIDE_YES) return; /* the entry is in use */
    *t = (wide_trial){.trial = trial};
  }
  t->launches++;
}

/* Evaluates a time with all, or nearly all, that the launch names in vram. */
static void trial_sampled(residency *r, const residency_timing *sample, uint32_t ns) {
  ASSERT(ns > 0);
  wide_trial *t = trial_of(r, sample->trial);
  if (t->trial != sample->trial) return;
  if (t->timed < UINT8_MAX) t->timed++;
  if (t->state == WIDE_UNKNOWN && !sample->wide) {
    double least = (double)sample->beyond_bytes * r->cost.in_place_ns_per_byte / 4;
    if (ns < TRIAL_LEAST_NS || ns < least) return;
    if (t->slow == 0 || ns < t->narrow_ns) t->narrow_ns = ns;
    if (t->slow < UINT8_MAX) t->slow++;
    if (t->slow < TRIAL_SAMPLES || t->slow < t->launches / TRIAL_PART) return;
    t->state = WIDE_TRIED;
    t->slow = t->timed = 0;
  } else if (t->state == WIDE_TRIED && sample->wide) {
    uint8_t *count = ns < TRIAL_GAIN * t->narrow_ns ? &t->fast : &t->slow;
    if (++*count >= TRIAL_SAMPLES) t->state = count == &t->slow ? WIDE_NO : WIDE_YES;
  }
}

/* ---- samples ---- */

bool residency_sample(const residency *r, residency_timing *t) {
  ASSERT(t != NULL);
  const launch_time *known = time_of(r, r->id);
  uint64_t trial = trial_now(r);
  bool same = known->id == r->id;
  bool slow =
      same && r->space.arena_named && known->last_ns >= TRIAL_LEAST_NS && trial_open(r, trial);
  bool beyond = r->space.beyond_count > 0;
  bool needed = beyond && trial_needs_times(r, trial);
  /* Where addresses change from step to step, launches look new forever; timing one takes as long
   * as reporting several. */
  if (r->named_count == 0 ||
      (!slow && !needed && r->samples > SAMPLES_LEAST + r->seq / SAMPLES_PART))
    return false;
  uint64_t far = still_far(r);
  bool urgent = !same || slow, wanted = urgent || needed;
  /* If only a small part of a launch is on the host, its time does not show the time with all of it
   * there. In an arena it may name less than before, because more words are known. */
  if (far > 0)
    wanted |= far > 2 * known->far_bytes || is_outdated(r, known);
  else if (!r->space.arena_named)
    wanted |= known->near_ns == 0;
  else
    wanted |= known->nears < NEARS || r->seq % AGAIN == 0;
  if (!wanted) return false;
  bool wide = beyond && is_wide(r, trial);
  *t = (residency_timing){.id = r->id,
                          .function = r->function,
                          .shape = shape_id(r),
                          .trial = trial,
                          .far_bytes = far,
                          .beyond_bytes = beyond && !wide ? beyond_bytes(r) : 0,
                          .wide = wide,
                          .urgent = urgent};
  bool first = far >= WAIT_BYTES && function_of(r, r->function)->function != r->function;
  t->wait = r->waits < FUNCTIONS && r->lates < LATES_MAX &&
            (first || (slow && (wide || t->beyond_bytes > 0)));
  return true;
}

/* Returns whether a launch that was timed in place used what it named. */
static bool uses(const residency *r, const launch_time *t) {
  ASSERT(t->far_bytes > 0);
  double least = (double)t->far_bytes * r->cost.in_place_ns_per_byte / 2;
  return t->far_ns > t->near_ns && t->far_ns - t->near_ns > least;
}

void residency_sampled(residency *r, const residency_timing *sample, uint64_t device_ns) {
  ASSERT(sample != NULL);
  launch_time *t = time_of(r, sample->id);
  r->samples++;
  r->waits += sample->wait;
  if (t->id != sample->id) *t = (launch_time){.id = sample->id};
  uint32_t ns = device_ns < UINT32_MAX ? (uint32_t)device_ns : UINT32_MAX;
  if (ns == 0) ns = 1;
  t->last_ns = ns;
  if (sample->wide ? sample->far_bytes == 0 : sample->far_bytes < sample->beyond_bytes / 4)
    trial_sampled(r, sample, ns);
  if (sample->far_bytes == 0) {
    t->near_ns = t->nears++ == 0 || ns < t->near_ns ? ns : t->near_ns;
    if (sample->shape != 0)
      *time_of(r, sample->shape) = (launch_time){.id = sample->shape, .near_ns = ns};
    return;
  }
  t->far_ns = ns;
  t->far_bytes = sample->far_bytes;
  *function_of(r, sample->function) = (function_time){sample->function, uses(r, t)};
}

void residency_sample_late(residency *r, const residency_timing *sample, bool began) {
  ASSERT(sample->wait);
  r->lates++;
  if (began && sample->far_bytes > 0)
    *function_of(r, sample->function) = (function_time){sample->function, true};
}

/* Returns the time of the last launch in vram; 0: unknown. Where blocks are somewhere else in each
 * step, its words were never seen: the last time of a launch of the function in this size counts.
 */
uint64_t worth_near_ns(residency *r) {
  const launch_time *t = time_of(r, r->id);
  if (t->id == r->id && t->near_ns > 0) return t->near_ns;
  uint64_t shape = shape_id(r);
  t = time_of(r, shape);
  return shape != 0 && t->id == shape ? t->near_ns : 0;
}

/* Returns how much longer the launch takes if `far` of `all` bytes are read in place. */
double worth_far_ns(residency *r, uint64_t id, uint64_t near_ns, uint64_t far, uint64_t all) {
  const launch_time *t = time_of(r, id);
  if (t->id == id && t->far_ns > 0)
    return t->far_ns > near_ns ? (double)(t->far_ns - near_ns) * (double)far / (double)t->far_bytes
                               : 0;
  if (near_ns == 0) return (double)far * r->cost.in_place_ns_per_byte * UNTIMED_READS;
  return residency_in_place_ns(&r->cost, far, all, near_ns);
}

double worth_calls_ns(const residency *r, uint64_t bytes) {
  residency_bytes moved = {.in = bytes, .out = bytes};
  double calls = residency_exchange_ns(r->unit_bytes, &moved, 0);
  double measured = r->exchange_ns_per_byte * (double)bytes;
  /* The first exchanges also create host pages, so their time is not typical. */
  if (measured > calls) calls = measured < MEASURED_MOST * calls ? measured : MEASURED_MOST * calls;
  /* Without a forecast nothing is copied ahead. */
  if (r->history.cursor == HISTORY_NEVER) calls += 2 * (double)bytes * r->cost.copy_ns_per_byte;
  return calls + r->cost.point_ns / 8;
}

void residency_exchange_took(residency *r, uint64_t moved_bytes, uint64_t ns) {
  if (moved_bytes == 0 || r->history.cursor == HISTORY_NEVER) return;
  double now = (double)ns / (double)moved_bytes;
  r->exchange_ns_per_byte =
      r->exchange_ns_per_byte > 0 ? r->exchange_ns_per_byte * 0.95 + now * 0.05 : now;
}

/* ---- what stays on the host ---- */

static void drop_in_place(residency *r) {
  if (r->in_place_bytes == 0) return;
  for (uint32_t i = 0; i < r->space.count; i++) r->units[i].in_place = r->units[i].kept = false;
  r->in_place_bytes = 0;
  r->spread_left = 0;
  forecast_reset(r);
}

/* Of what is only copied, pages that are in vram now cost a little more to leave on the host: they
 * would have to go there. The largest copy costs twice as much: it also needs as much vram. */
#define HERE_MORE 0.25

/* Adds what each unit costs per round if it is copied for kernels from the host. A few rounds show
 * only roughly how often each is copied, so all count as often as the mean. */
static void price_copies(residency *r) {
  ASSERT(r->seq >= r->passed_since);
  uint64_t round = r->history.end - r->history.cursor, largest = 0;
  double rounds = (double)(r->seq - r->passed_since) / (double)(round > 0 ? round : 1);
  double passed = 0, bytes = 0;
  for (uint32_t i = 0; i < r->space.count; i++) {
    if (r->units[i].passed == 0) continue;
    if (r->units[i].whole > largest) largest = r->units[i].whole;
    passed += (double)r->units[i].passed;
    bytes += (double)r->space.units[i].bytes;
  }
  if (passed == 0) return;
  double times = passed / bytes / (rounds > 1 ? rounds : 1);
  for (uint32_t i = 0; i < r->space.count; i++) {
    const unit_state *u = &r->units[i];
    double part = (double)u->whole / (double)largest;
    double more = 1 + part * part + (u->place == PLACE_VRAM ? HERE_MORE : 0);
    if (u->passed > 0)
      r->costs[i] += (double)r->space.units[i].bytes * r->cost.copy_ns_per_byte *
                     (times > 1 ? times : 1) * more;
  }
}

/* Begins to count copies anew. */
static void forget_copies(residency *r) {
  for (uint32_t i = 0; i < r->space.count; i++) r->units[i].passed = r->units[i].whole = 0;
  r->passed_since = r->seq;
}

/* Computes what each unit costs per round if it stays on the host. */
static void price(residency *r) {
  ASSERT(r->history.cursor != HISTORY_NEVER);
  history *h = &r->history;
  for (uint32_t i = 0; i < r->space.count; i++) r->costs[i] = 0;
  price_copies(r);
  for (uint64_t at = h->cursor; at < h->end; at++) {
    const history_launch *l = history_at(h, at);
    uint64_t all = 0;
    for (uint32_t i = 0; i < l->count; i++)
      all += r->space.units[history_entry_at(h, l->first + i)->unit].bytes;
    for (uint32_t i = 0; i < l->count; i++) {
      uint32_t unit = history_entry_at(h, l->first + i)->unit;
      r->costs[unit] +=
          residency_in_place_ns(&r->cost, r->space.units[unit].bytes, all, l->device_ns);
    }
  }
}

/* Units whose cost per byte is the same in 1/512 ns cost the same. The lowest bit says that they
 * are copied. */
static uint64_t price_of(const residency *r, uint32_t unit) {
  ASSERT(r->space.units[unit].bytes > 0);
  uint64_t price = (uint64_t)(r->costs[unit] / (double)r->space.units[unit].bytes * 512);
  return price << 1 | (r->units[unit].passed > 0);
}

static int cheapest_first(const void *a, const void *b) {
  const victim *x = a, *y = b;
  if (x->next_use != y->next_use) return x->next_use < y->next_use ? -1 : 1;
  return x->unit < y->unit ? -1 : x->unit > y->unit;
}

/* Chooses the units that are cheapest on the host until the rest fits, beside those chosen before.
 * Of units that cost the same, the chosen ones are spread over the round, so that the host's work
 * between launches hides them, unless they are copied. The rest comes to vram, in place of what no
 * kernel uses. Returns how much of it is not there. */
static uint64_t choose_in_place(residency *r) {
  ASSERT(r->history.cursor != HISTORY_NEVER);
  uint64_t lacking = 0, leaving = 0;
  price(r);
  uint64_t used = 0, n = 0;
  for (uint32_t i = 0; i < r->space.count; i++)
    if (r->costs[i] > 0 && !r->units[i].in_place) used += r->space.units[i].bytes;
  for (uint32_t i = 0; i < r->space.count; i++) {
    uint64_t bytes = r->space.units[i].bytes;
    if (r->units[i].in_place && (r->costs[i] == 0 || used + bytes <= r->capacity_bytes)) {
      used += r->costs[i] > 0 ? bytes : 0;
      r->units[i].in_place = false;
      r->in_place_bytes -= bytes;
    }
    r->units[i].kept = false;
    if (r->costs[i] == 0 || r->units[i].in_place) continue;
    r->victims[n++] = (victim){price_of(r, i), i};
  }
  r->victim_count = 0; /* the list was reused here */
  qsort(r->victims, n, sizeof *r->victims, cheapest_first);
  for (uint64_t first = 0; first < n && used > r->capacity_bytes;) {
    uint64_t end = first, bytes = 0;
    for (; end < n && r->victims[end].next_use == r->victims[first].next_use; end++)
      bytes += r->space.units[r->victims[end].unit].bytes;
    double part = (double)(used - r->capacity_bytes) / (double)bytes, sum = 0;
    if ((r->victims[first].next_use & 1) != 0) part = 1;
    for (uint64_t i = first; i < end && used > r->capacity_bytes; i++) {
      sum += part < 1 ? part : 1;
      if (sum < 0.999 && part < 1) continue;
      sum -= 1;
      uint32_t unit = r->victims[i].unit;
      r->units[unit].in_place = true;
      used -= r->space.units[unit].bytes;
      r->in_place_bytes += r->space.units[unit].bytes;
      if (r->units[unit].place == PLACE_VRAM) leaving += r->space.units[unit].bytes;
    }
    first = end;
  }
  for (uint32_t i = 0; i < r->space.count; i++) {
    if (r->costs[i] == 0 || r->units[i].in_place) continue;
    r->units[i].kept = r->units[i].passed > 0;
    if (r->units[i].place != PLACE_VRAM) lacking += r->space.units[i].bytes;
  }
  forget_copies(r);
  r->spread_left = 2 * (uint32_t)((leaving + lacking) / (r->unit_bytes > 0 ? r->unit_bytes : 1));
  forecast_reset(r);
  return lacking;
}

/* ---- the decision ---- */

/* Returns by how many launches a unit of an arena is named while it is used. */
static double launches_per_visit(const worth_sums *s) {
  if (s->visits < 1 || s->names <= s->visits) return 1;
  double n = s->names / s->visits;
  return n < VISIT_MOST ? n : VISIT_MOST;
}

/* If units move, only the first launch of a visit finds its units on the host, and both sums count
 * it alone; the others would read in place too. If nothing moves, both count all of them, although
 * one exchange would serve them. */
static void judge(residency *r) {
  const worth_sums *s = &r->sums;
  double slack = s->host > s->near ? s->host - s->near : 0, several = launches_per_visit(s);
  double far = r->moving ? s->far * several : s->far;
  double calls = r->moving ? s->calls : s->calls / several;
  double extra = far > slack ? far - slack : 0;
  if (r->moving && extra < 0.8 * calls) {
    r->moving = false;
    r->still_since = r->seq;
    r->chosen_at = 0;
    forecast_reset(r);
  } else if (!r->moving && extra > 1.2 * calls) {
    r->moving = true;
    drop_in_place(r);
  }
}

/* Returns whether the launch should be read in place once to be timed. The figures cannot
 * distinguish a matrix product that reads each byte ten times from a streaming kernel. */
static bool unexplored(const residency *r, const residency_launch_info *l) {
  const launch_time *t = time_of(r, r->id);
  bool timed = t->id == r->id && t->near_ns > 0;
  return l->device_ns == 0 && timed && r->parked_live == 0 && r->lates < LATES_MAX &&
         function_of(r, l->function)->function != l->function;
}

/* Returns whether the launch is better read in place: it names much of an arena, whose words are
 * not all known yet, and uses little of it. Its time in place shows that; while that is unknown, it
 * is measured. A step of an LSTM, whose state is one block of 5.5 GiB, moved 100 GiB before. */
static bool names_too_much(residency *r, const residency_launch_info *l) {
  if (!r->space.arena_named || r->far_bytes < WIDE_BYTES || l->device_ns > 0 || r->parked_live > 0)
    return false;
  const launch_time *t = time_of(r, r->id);
  if (r->space.beyond_count > 0 && is_wide(r, trial_now(r))) return false; /* timed before */
  if (t->id == r->id && t->far_ns > 0 && !is_outdated(r, t)) return !uses(r, t);
  const function_time *f = function_of(r, l->function);
  if (r->far_bytes > WIDE_BYTES_MOST) return true;
  /* Without a wait, the launches after it would all run in place before its time is known. */
  return f->function == l->function ? !f->uses : r->lates < LATES_MAX;
}

bool worth_launch(residency *r, const residency_launch_info *l, bool missing) {
  const history *h = &r->history;
  uint64_t near_ns = l->device_ns > 0 ? l->device_ns : worth_near_ns(r);
  double far = 0, calls = 0;
  /* Of a launch that names more than fits, most is not used: its words are not known yet. */
  if (r->far_bytes > 0 && !l->once && r->all_bytes <= r->capacity_bytes) {
    far = worth_far_ns(r, r->id, near_ns, r->far_bytes, r->all_bytes);
    calls = worth_calls_ns(r, r->far_bytes);
  }
  if (r->space.beyond_count > 0) trial_launch(r);
  worth_sums *s = &r->sums;
  const double keep = 1 - 1 / WINDOW;
  double host = l->host_ns < HOST_MAX_NS ? (double)l->host_ns : HOST_MAX_NS;
  s->near = s->near * keep + (double)near_ns;
  s->far = s->far * keep + far;
  s->host = s->host * keep + host;
  s->calls = s->calls * keep + calls;
  s->bus *= keep;
  s->names = s->names * keep + (r->space.arena_named && !l->once ? r->named_count : 0);
  s->visits = s->visits * keep + (double)r->visits;
  if (r->seq % 64 == 0 && s->calls > 0) judge(r);
  /* Do not move for a launch that uses little of a large range: random rows of a table. */
  bool little = far < calls / 4 && r->far_bytes > r->capacity_bytes / 4;
  little |= missing && names_too_much(r, l);
  bool heavy = far > HEAVY_NS && far > 2 * calls;
  if (r->moving || heavy) return missing && !little && !unexplored(r, l);
  /* If nothing moves for a round, redistribute once what stays on the host, and again if kernels
   * then use other host pages: the program's temporary blocks have moved. */
  uint64_t reach = h->cursor == HISTORY_NEVER ? 0 : h->end - h->cursor;
  uint64_t last = r->chosen_at > r->still_since ? r->chosen_at : r->still_since;
  r->missed += missing && !l->once && r->spread_left == 0;
  if ((r->in_place_bytes == 0 || r->missed > 0) && h->matched >= 64 && reach >= 64 &&
      r->seq > last + reach && s->far > 0) {
    /* If there is nothing to choose, try again much later. */
    r->chosen_at = r->seq + (choose_in_place(r) > 0 ? 2 : 15) * reach;
    r->missed = 0;
  }
  if (!missing || r->spread_left == 0) return false;
  r->spread_left--;
  return true;
}
