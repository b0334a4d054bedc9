/* Tests the engine with a device that holds bytes: nothing is lost, whatever is moved or written.
 *
 * The device has pages of 8 bytes that represent units. The driver here is as careless as a real
 * one may be: copies end late, plans are carried out partly, and writes go to units that no launch
 * names.
 * */
#include <stdlib.h>

#include "harness.h"
#include "residency/engine.h"

#define UNIT (UINT64_C(2) << 20)
#define BASE (UINT64_C(1) << 40)

enum { UNITS_MAX = 96, COPIES = 2, LAUNCHES_MAX = 60 };

typedef enum maps { MAPS_HOST, MAPS_VRAM, MAPS_SPARE } maps;

typedef struct model {
  residency *engine;
  uint64_t seed;
  uint32_t units, capacity;
  maps maps[UNITS_MAX];
  uint64_t host[UNITS_MAX], vram[UNITS_MAX], truth[UNITS_MAX];
  bool live[UNITS_MAX], staged[UNITS_MAX], pointer[UNITS_MAX]; /* pointer: no launch names it */
  bool in_flight[2][UNITS_MAX];
  uint64_t snapshot[UNITS_MAX]; /* contents at the start of a copy out */
  uint32_t flights[2];
  uint64_t pages; /* vram pages in use */
  uint64_t exchanges, hidden, copies, parked;
  bool must_fail; /* plans are sometimes carried out only partly */
  bool arena;     /* all units are one block, in which a launch writes where it likes */
} model;

static uint64_t draw(model *m, uint64_t below) {
  return harness_random(&m->seed) % below;
}

static uint64_t *at(model *m, uint32_t unit) {
  CHECK(m->maps[unit] != MAPS_SPARE); /* a live block is never on the shared page */
  return m->maps[unit] == MAPS_VRAM ? &m->vram[unit] : &m->host[unit];
}

static uint32_t unit_of(uint64_t addr) {
  return (uint32_t)((addr - BASE) / UNIT);
}

static void check_books(const model *m) {
  CHECK(residency_valid(m->engine));
  CHECK(m->pages <= m->capacity);
  residency_stats s;
  residency_get_stats(m->engine, &s);
  CHECK_U64(s.vram_bytes + s.staged_bytes, m->pages * UNIT);
}

/* ---- copies ahead ---- */

static void start_copies(model *m) {
  for (int d = 0; d < 2; d++) {
    residency_move c;
    while (m->flights[d] < COPIES && residency_copy_next(m->engine, (residency_direction)d, &c)) {
      uint32_t unit = unit_of(c.addr);
      m->flights[d]++;
      m->in_flight[d][unit] = true;
      m->copies++;
      CHECK(!m->pointer[unit]);
      if (d == RESIDENCY_IN) {
        CHECK(m->maps[unit] == MAPS_HOST);
        m->staged[unit] = true;
        m->pages++;
        m->vram[unit] = m->host[unit];
      } else {
        CHECK(m->maps[unit] == MAPS_VRAM);
        m->snapshot[unit] = m->vram[unit];
      }
      check_books(m);
    }
  }
}

static void end_copy(model *m, int d, uint32_t unit) {
  if (!m->in_flight[d][unit]) return;
  m->in_flight[d][unit] = false;
  m->flights[d]--;
  bool done = !m->must_fail || draw(m, 10) > 0;
  if (d == RESIDENCY_OUT && done) m->host[unit] = m->snapshot[unit];
  if (d == RESIDENCY_IN && !done) {
    m->staged[unit] = false;
    m->pages--;
  }
  residency_copied(m->engine, unit, (residency_direction)d, done);
}

static void end_some(model *m) {
  for (int d = 0; d < 2; d++)
    for (uint32_t unit = 0; unit < m->units; unit++)
      if (draw(m, 3) == 0) end_copy(m, d, unit);
}

/* ---- exchanges ---- */

static void carry_out(model *m, const residency_move *c) {
  uint32_t unit = unit_of(c->addr);
  if (c->ground) {
    CHECK(m->maps[unit] == MAPS_SPARE);
    m->maps[unit] = MAPS_HOST;
    return;
  }
  CHECK(m->maps[unit] == MAPS_VRAM);
  if (c->wait) { /* the copy ends here, successfully or not */
    CHECK(m->in_flight[RESIDENCY_OUT][unit]);
    m->in_flight[RESIDENCY_OUT][unit] = false;
    m->flights[RESIDENCY_OUT]--;
    m->host[unit] = m->snapshot[unit];
    residency_copied(m->engine, unit, RESIDENCY_OUT, true);
  }
  if (c->copy)
    m->host[unit] = m->vram[unit];
  else if (c->check && m->host[unit] != m->vram[unit]) {
    m->host[unit] = m->vram[unit]; /* the gate is closed */
    if (!c->wait) residency_hidden_write(m->engine, unit);
    m->hidden++;
  }
  if (c->park) CHECK(!m->live[unit]);
  m->parked += c->park;
  m->maps[unit] = c->park ? MAPS_SPARE : MAPS_HOST;
  m->pages--;
}

static void carry_in(model *m, const residency_move *c) {
  uint32_t unit = unit_of(c->addr);
  CHECK((m->maps[unit] == MAPS_SPARE) == c->park);
  CHECK(m->maps[unit] != MAPS_VRAM);
  if (c->wait) {
    CHECK(m->in_flight[RESIDENCY_IN][unit]);
    m->in_flight[RESIDENCY_IN][unit] = false;
    m->flights[RESIDENCY_IN]--;
    residency_copied(m->engine, unit, RESIDENCY_IN, true);
  }
  if (!m->staged[unit]) m->pages++;
  m->staged[unit] = false;
  if (c->copy) m->vram[unit] = m->host[unit];
  m->maps[unit] = MAPS_VRAM;
  CHECK(m->pages <= m->capacity);
}

static void exchange(model *m, const uint32_t *named, size_t count) {
  if (draw(m, 2) == 0) end_some(m);
  do {
    residency_plan_list plan = residency_plan(m->engine);
    for (uint32_t i = 0; i < plan.out_count; i++)
      for (size_t k = 0; k < count; k++) /* units that the launch names stay */
        CHECK(plan.out[i].ground || unit_of(plan.out[i].addr) != named[k]);
    uint32_t outs = plan.out_count, ins = plan.in_count;
    if (m->must_fail && draw(m, 4) == 0) {
      outs = (uint32_t)draw(m, outs + 1);
      ins = outs < plan.out_count ? 0 : (uint32_t)draw(m, ins + 1);
    }
    for (uint32_t i = 0; i < outs; i++) carry_out(m, &plan.out[i]);
    for (uint32_t i = 0; i < ins; i++) carry_in(m, &plan.in[i]);
    residency_exchanged(m->engine, outs, ins);
    m->exchanges += outs + ins > 0;
    check_books(m);
  } while (residency_must_exchange(m->engine));
}

/* ---- the program ---- */

typedef struct program_launch {
  uint64_t function;
  uint32_t units[8], count;
  bool writes[8];
  bool copies;            /* it copies the second unit to the first */
  uint32_t frees, allocs; /* units freed and allocated before it; UNITS_MAX: none */
} program_launch;

static void set_live(model *m, uint32_t unit, bool live) {
  if (m->live[unit] == live) return;
  m->live[unit] = live;
  if (live)
    CHECK_OK(residency_block_add(m->engine, BASE + unit * UNIT, UNIT));
  else
    residency_block_remove(m->engine, BASE + unit * UNIT);
  m->truth[unit] = 0; /* undefined until written */
}

/* Makes a write that no launch names. Leaves out the case that the documentation excludes: a page
 * that is being copied in and is not in the block of a word of the launch. */
static void hidden_write(model *m) {
  uint32_t unit = (uint32_t)draw(m, m->units);
  if (!m->live[unit] || m->truth[unit] == 0 || (m->staged[unit] && !m->arena)) return;
  *at(m, unit) = m->truth[unit] = harness_random(&m->seed) | 1;
}

static void run_launch(model *m, const program_launch *l, uint64_t now_ns) {
  if (l->frees < m->units) set_live(m, l->frees, false);
  if (l->allocs < m->units) set_live(m, l->allocs, true);
  uint64_t words[8];
  uint32_t named[8], count = 0;
  for (uint32_t i = 0; i < l->count; i++)
    if (m->live[l->units[i]]) {
      words[count] = BASE + l->units[i] * UNIT + 8 * (i % 2);
      named[count++] = l->units[i];
    }
  residency_launch_info info = {.function = l->function,
                                .words = words,
                                .word_count = count,
                                .device_ns = 50000,
                                .host_ns = 10000,
                                .now_ns = now_ns};
  bool copies = l->copies && count == 2 && named[0] != named[1] && m->truth[named[1]] != 0;
  if (copies) {
    info.once = true;
    info.to = words[0];
    info.to_bytes = UNIT - 16;
  }
  if (residency_launch(m->engine, &info) == RESIDENCY_EXCHANGE) exchange(m, named, count);
  CHECK(!residency_must_exchange(m->engine));
  if (copies) {
    CHECK_U64(*at(m, named[1]), m->truth[named[1]]);
    *at(m, named[0]) = m->truth[named[0]] = m->truth[named[1]];
    count = 0;
  }
  for (uint32_t i = 0; i < count; i++) {
    uint64_t *bytes = at(m, named[i]);
    if (m->truth[named[i]] != 0) CHECK_U64(*bytes, m->truth[named[i]]);
    if (l->writes[i] || m->truth[named[i]] == 0)
      *bytes = m->truth[named[i]] = harness_random(&m->seed) | 1;
  }
  if (draw(m, 4) == 0) hidden_write(m);
  end_some(m);
  start_copies(m);
}

static void make_program(model *m, program_launch *p, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    p[i] = (program_launch){.function = draw(m, 5),
                            .count = 1 + (uint32_t)draw(m, 6),
                            .frees = UNITS_MAX,
                            .allocs = UNITS_MAX};
    for (uint32_t k = 0; k < p[i].count; k++) {
      uint32_t unit = (i * m->units / count + (uint32_t)draw(m, 6)) % m->units;
      if (m->pointer[unit]) unit = (unit + 1) % m->units;
      if (m->pointer[unit]) unit = 0;
      p[i].units[k] = unit;
      p[i].writes[k] = draw(m, 2) == 0;
    }
    if (draw(m, 4) == 0) {
      p[i].copies = true;
      p[i].count = 2;
      p[i].writes[1] = false;
    }
    if (m->arena) continue;
    if (draw(m, 3) == 0) p[i].frees = (uint32_t)draw(m, m->units);
    if (draw(m, 3) == 0) p[i].allocs = (uint32_t)draw(m, m->units);
  }
}

static void run_schedule(uint64_t seed, model *totals) {
  model m = {.seed = seed};
  m.units = 16 + (uint32_t)draw(&m, UNITS_MAX - 16);
  m.capacity = m.units / 3 + (uint32_t)draw(&m, m.units / 2);
  if (m.capacity < 10) m.capacity = 10;
  m.must_fail = draw(&m, 3) == 0;
  m.arena = m.units * UNIT > (UINT64_C(64) << 20) && draw(&m, 3) == 0;
  residency_options o = {.capacity_bytes = m.capacity * UNIT,
                         .stage_bytes = (1 + draw(&m, 4)) * UNIT,
                         .log_launches = 256,
                         .log_touches = 2048};
  CHECK_OK(residency_open(&m.engine, &o));
  for (uint32_t i = 0; i < m.units; i++) {
    uint32_t unit;
    bool in = m.pages < m.capacity;
    CHECK_OK(residency_unit_add(m.engine, BASE + i * UNIT, UNIT, in, &unit));
    CHECK_U64(unit, i);
    m.maps[i] = in ? MAPS_VRAM : MAPS_HOST;
    m.pages += in;
    m.pointer[i] = !m.arena && i > 0 && draw(&m, 12) == 0;
    m.live[i] = m.arena;
    if (m.arena) continue;
    if (m.pointer[i] || draw(&m, 2) == 0) set_live(&m, i, true);
    if (m.pointer[i]) *at(&m, i) = m.truth[i] = draw(&m, 1000) + 1;
  }
  if (m.arena) CHECK_OK(residency_block_add(m.engine, BASE, m.units * UNIT));
  program_launch program[LAUNCHES_MAX];
  uint32_t count = 20 + (uint32_t)draw(&m, LAUNCHES_MAX - 20);
  make_program(&m, program, count);
  uint64_t now = 0;
  for (int step = 0; step < 14; step++) {
    if (step == 9 && draw(&m, 2) == 0) make_program(&m, program, count); /* another phase */
    for (uint32_t i = 0; i < count; i++) run_launch(&m, &program[i], now += 60000);
  }
  for (uint32_t i = 0; i < m.units; i++) /* compare everything, byte by byte */
    if (m.live[i] && m.truth[i] != 0) CHECK_U64(*at(&m, i), m.truth[i]);
  residency_close(m.engine);
  totals->exchanges += m.exchanges;
  totals->hidden += m.hidden;
  totals->copies += m.copies;
  totals->parked += m.parked;
}

TEST(no_write_is_lost_in_thousands_of_schedules)
{
  model totals = {0};
  uint64_t schedules = harness_rounds(2000, 400);
  for (uint64_t seed = 1; seed <= schedules; seed++) run_schedule(seed, &totals);
  harness_note("%" PRIu64 " exchanges, %" PRIu64 " copies ahead, %" PRIu64
               " hidden writes found by checks, %" PRIu64 " parked",
               totals.exchanges, totals.copies, totals.hidden, totals.parked);
  CHECK(totals.exchanges > 5 * schedules && totals.copies > 5 * schedules);
  CHECK(totals.hidden > schedules / 20 && totals.parked > schedules / 2);
}

/* ---- memory ---- */

TEST(memory_stays_the_same_however_long_it_runs)
{
  model m = {.seed = 4, .units = 64, .capacity = 30};
  residency_options o = {.capacity_bytes = m.capacity * UNIT, .log_launches = 512};
  CHECK_OK(residency_open(&m.engine, &o));
  for (uint32_t i = 0; i < m.units; i++) {
    uint32_t unit;
    bool in = m.pages < m.capacity;
    CHECK_OK(residency_unit_add(m.engine, BASE + i * UNIT, UNIT, in, &unit));
    m.maps[i] = in ? MAPS_VRAM : MAPS_HOST;
    m.pages += in;
    set_live(&m, i, true);
  }
  program_launch program[LAUNCHES_MAX];
  make_program(&m, program, LAUNCHES_MAX);
  residency_stats before = {0}, after;
  for (int step = 0; step < 400; step++) {
    for (uint32_t i = 0; i < LAUNCHES_MAX; i++) run_launch(&m, &program[i], 0);
    if (step == 20) residency_get_stats(m.engine, &before);
  }
  residency_get_stats(m.engine, &after);
  CHECK_U64(after.held_bytes, before.held_bytes);
  CHECK(after.held_bytes < 4 << 20);
  residency_close(m.engine);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
/* Makes every allocation of the engine fail once. */
static long fail_at;
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
static bool fails(void) {
  return fail_at > 0 && --fail_at == 0;
}
void *malloc(size_t bytes) {
  return fails() ? NULL : __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  return fails() ? NULL : __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes) {
  return fails() ? NULL : __libc_realloc(old, bytes);
}

static stow_status build_large(residency **out) {
  residency_options o = {.capacity_bytes = 100 * UNIT, .log_launches = 256};
  stow_status status = residency_open(out, &o);
  uint32_t unit;
  for (uint64_t i = 0; i < 1200 && status == STOW_OK; i++) {
    status = residency_unit_add(*out, BASE + i * UNIT, UNIT, i < 100, &unit);
    if (status == STOW_OK) status = residency_block_add(*out, BASE + i * UNIT, UNIT);
  }
  return status;
}

TEST(any_allocation_may_fail)
{
  for (long n = 1;; n++) {
    residency *engine = NULL;
    fail_at = n;
    stow_status status = build_large(&engine);
    bool failed = fail_at == 0;
    fail_at = 0;
    if (engine != NULL) {
      CHECK(residency_valid(engine));
      uint64_t word = BASE; /* it continues with what it has */
      residency_launch_info l = {.function = 1, .words = &word, .word_count = 1};
      for (int i = 0; i < 40; i++)
        if (residency_launch(engine, &l) == RESIDENCY_EXCHANGE) {
          residency_plan_list plan = residency_plan(engine);
          residency_exchanged(engine, plan.out_count, plan.in_count);
        }
      CHECK(residency_valid(engine));
    }
    residency_close(engine);
    if (!failed) {
      CHECK_OK(status);
      harness_note("%ld allocations", n - 1);
      return;
    }
    CHECK_STATUS(status, STOW_ERR_HOST_MEMORY);
  }
}
#endif

/* ---- words ---- */

/* Resolves words as those of a kernel of its own. */
static uint32_t resolve(space *s, const uint64_t *words, size_t count, uint64_t stamp,
                        uint32_t *units) {
  space_launch l = {.stamp = stamp, .shape = stamp, .words = words, .count = count};
  return space_resolve(s, &l, units, 64);
}

TEST(words_name_the_units_of_their_blocks)
{
  space s = {0};
  uint32_t unit, named[64];
  for (uint64_t i = 0; i < 64; i++) CHECK_OK(space_add(&s, BASE + i * UNIT, UNIT, &unit));
  CHECK_STATUS(space_add(&s, BASE, UNIT, &unit), STOW_ERR_INVALID);
  CHECK_STATUS(space_add(&s, BASE + 100, UNIT, &unit), STOW_ERR_INVALID);
  CHECK_OK(space_block_add(&s, BASE + UNIT / 2, 3 * UNIT, NULL, NULL)); /* units 0 to 3 */
  CHECK_OK(space_block_add(&s, BASE + 4 * UNIT, 4096, NULL, NULL));     /* small */
  CHECK_OK(space_block_add(&s, BASE + 5 * UNIT, UNIT, NULL, NULL));
  const uint64_t words[] = {7, BASE + 2 * UNIT + 5, BASE + 4 * UNIT, BASE + 5 * UNIT, UINT64_MAX};
  CHECK_U64(resolve(&s, words, 5, 1, named), 5);
  for (uint32_t i = 0; i < 4; i++) CHECK_U64(named[i], i);
  CHECK_U64(named[4], 5);
  CHECK_U64(s.small_count, 1);
  CHECK_U64(s.small[0].unit, 4);
  CHECK_U64(s.units[3].live, 1);
  space_block_remove(&s, BASE + UNIT / 2, NULL, NULL);
  CHECK_U64(s.units[3].live, 0);
  CHECK_U64(resolve(&s, &words[1], 1, 2, named), 1);
  CHECK_U64(space_remove(&s, BASE + 2 * UNIT), 2);
  CHECK_U64(resolve(&s, &words[1], 1, 3, named), 0);
  CHECK_OK(space_add(&s, BASE + 2 * UNIT, UNIT, &unit));
  CHECK_U64(unit, 2);
  space_free(&s);
}

/* A copy from or to pinned memory has such words, and it uses another buffer in each step. */
TEST(words_that_name_nothing_do_not_change_the_key)
{
  space s = {0};
  uint32_t unit, named[64];
  for (uint64_t i = 0; i < 8; i += 2) CHECK_OK(space_add(&s, BASE + i * UNIT, UNIT, &unit));
  const uint64_t words[] = {BASE + UNIT, BASE, BASE + 3 * UNIT, BASE + 6 * UNIT};
  const uint64_t others[] = {BASE, BASE + 5 * UNIT + 8, BASE + 6 * UNIT};
  CHECK_U64(resolve(&s, words, 4, 1, named), 2);
  uint64_t key = s.key;
  CHECK_U64(resolve(&s, others, 3, 2, named), 2);
  CHECK_U64(s.key, key);
  CHECK_U64(resolve(&s, others, 1, 3, named), 1);
  CHECK(s.key != key);
  space_free(&s);
}

TEST(a_unit_counts_the_blocks_that_were_there_before_it)
{
  residency *r;
  uint32_t unit;
  CHECK_OK(residency_open(&r, &(residency_options){.capacity_bytes = 4 * UNIT}));
  CHECK_OK(residency_block_add(r, BASE + UNIT / 2, UNIT));
  CHECK_OK(residency_unit_add(r, BASE + UNIT, UNIT, true, &unit));
  CHECK_U64(r->space.units[unit].live, 1);
  CHECK(!unit_is_empty(r, unit));
  const uint64_t word = BASE + UNIT;
  residency_launch(r, &(residency_launch_info){.words = &word, .word_count = 1});
  CHECK(!unit_is_empty(r, unit)); /* the earlier contents of the block are not lost */
  residency_block_remove(r, BASE + UNIT / 2);
  CHECK(unit_is_empty(r, unit));
  residency_close(r);
}

TEST(a_large_block_with_many_words_is_taken_apart)
{
  space s = {0};
  uint32_t unit, named[64];
  for (uint64_t i = 0; i < 64; i++) CHECK_OK(space_add(&s, BASE + i * UNIT, UNIT, &unit));
  CHECK_OK(space_block_add(&s, BASE, 60 * UNIT, NULL, NULL));
  uint64_t word = BASE;
  CHECK_U64(resolve(&s, &word, 1, 1, named), 60);
  for (uint64_t i = 1; i < 12; i++) { /* twelve parts of five units */
    word = BASE + i * 5 * UNIT;
    resolve(&s, &word, 1, 1 + i, named);
  }
  for (uint64_t i = 0; i < 12; i++) {
    word = BASE + i * 5 * UNIT;
    CHECK_U64(resolve(&s, &word, 1, 100 + i, named), 5);
    CHECK_U64(named[0], 5 * i);
  }
  space_free(&s);
}

static uint32_t name_one(space *s, uint64_t part, uint64_t stamp) {
  uint32_t named[64];
  return resolve(s, &(uint64_t){BASE + part * UNIT}, 1, stamp, named);
}

/* In a pool, what lies behind the last word is mostly free, and words of buffers that are gone are
 * never seen again. */
TEST(words_of_a_pool_name_their_buffers)
{
  enum { BUFFERS = 12, ROUND = 200 };
  space s = {0};
  uint32_t unit;
  uint64_t stamp = 0;
  for (uint64_t i = 0; i < 64; i++) CHECK_OK(space_add(&s, BASE + i * UNIT, UNIT, &unit));
  CHECK_OK(space_block_add(&s, BASE, 64 * UNIT, NULL, NULL));
  for (uint64_t i = 0; i < 20; i++) name_one(&s, 2 * i, ++stamp); /* buffers of the start */
  for (int round = 0; round < 6; round++, stamp += ROUND)
    for (uint64_t i = 0; i < BUFFERS; i++) {
      uint32_t count = name_one(&s, 3 * i, ++stamp);
      if (round == 5) CHECK_U64(count, 3);
    }
  space_free(&s);
}

/* A buffer that is copied in many pieces is still one buffer: a kernel names all of it. In a pool a
 * copy names the bytes that it copies, and cuts no buffer. */
TEST(pieces_of_copies_are_not_buffers)
{
  space s = {0};
  uint32_t unit, units[64];
  uint64_t stamp = 0;
  for (uint64_t i = 0; i < 64; i++) CHECK_OK(space_add(&s, BASE + i * UNIT, UNIT, &unit));
  CHECK_OK(space_block_add(&s, BASE, 64 * UNIT, NULL, NULL));
  for (uint64_t i = 0; i < 64; i++) {
    uint64_t word = BASE + i * UNIT;
    space_launch l = {.stamp = ++stamp, .words = &word, .count = 1, .copied = true};
    CHECK_U64(space_resolve(&s, &l, units, 64), 64); /* its bytes are not known */
    l.stamp = ++stamp;
    l.copied_bytes = UNIT;
    CHECK_U64(space_resolve(&s, &l, units, 64), 1);
    l.stamp = ++stamp;
    l.fills = true;
    CHECK_U64(space_resolve(&s, &l, units, 64), 64);
  }
  CHECK_U64(name_one(&s, 0, ++stamp), 64);
  for (int round = 0; round < 3; round++)
    for (uint64_t i = 0; i < 16; i++) name_one(&s, 4 * i, ++stamp); /* now it is a pool */
  uint64_t middle = BASE + 2 * UNIT;
  space_launch copy = {
      .words = &middle, .stamp = ++stamp, .count = 1, .copied = true, .copied_bytes = 3 * UNIT};
  CHECK_U64(space_resolve(&s, &copy, units, 64), 3);
  copy.stamp = ++stamp;
  copy.copied_bytes = 0; /* not known: up to the next buffer */
  CHECK_U64(space_resolve(&s, &copy, units, 64), 2);
  CHECK_U64(name_one(&s, 0, ++stamp), 4);
  space_free(&s);
}

/* Words that are seen once in a round stay, however often others are seen meanwhile. */
TEST(words_of_an_outer_loop_stay)
{
  space s = {0};
  uint32_t unit;
  uint64_t stamp = 0;
  for (uint64_t i = 0; i < 64; i++) CHECK_OK(space_add(&s, BASE + i * UNIT, UNIT, &unit));
  CHECK_OK(space_block_add(&s, BASE, 64 * UNIT, NULL, NULL));
  for (int round = 0; round < 4; round++) {
    for (uint64_t i = 0; i < 10; i++) name_one(&s, 4 * i, ++stamp);
    for (int inner = 0; inner < 500; inner++) {
      uint32_t count = name_one(&s, 0, ++stamp);
      if (round > 1) CHECK_U64(count, 4);
    }
  }
  space_free(&s);
}

/* A program sets up its buffers a little beside where its steps have them, and one word of that
 * time came back late. The steps still name whole buffers from the fourth on. */
TEST(words_of_an_earlier_phase_are_forgotten)
{
  enum { BUFFERS = 14, SETUP = 1300, STEP = 200 };
  space s = {0};
  uint32_t unit, units[64];
  uint64_t stamp = 0;
  for (uint64_t i = 0; i < 64; i++) CHECK_OK(space_add(&s, BASE + i * UNIT, UNIT, &unit));
  CHECK_OK(space_block_add(&s, BASE, 64 * UNIT, NULL, NULL));
  const uint64_t late = BASE + 60 * UNIT;
  for (uint64_t i = 0; i < SETUP; i++) {
    uint64_t word = BASE + (4 * (i % BUFFERS)) * UNIT + 20000;
    if (i == 0 || i == SETUP - 1) word = late;
    resolve(&s, &word, 1, ++stamp, units);
  }
  for (int step = 0; step < 8; step++)
    for (uint64_t i = 0; i < STEP; i++) {
      uint64_t word = BASE + (4 * (i % BUFFERS)) * UNIT + 7000;
      uint32_t count = resolve(&s, &word, 1, ++stamp, units);
      if (step >= 3) CHECK_U64(count, i % BUFFERS < BUFFERS - 1 ? 4 : count);
    }
  space_free(&s);
}

/* A step that repeats is recognized by its words. A unit that was removed in the meantime is no
 * longer named by them, nor is another unit that got its number. */
TEST(a_removed_unit_is_not_named)
{
  enum { COUNT = 12 };
  const uint64_t unit_bytes = UINT64_C(8) << 20, base = UINT64_C(1) << 40;
  residency *r;
  uint32_t unit, removed = 0, count;
  residency_options o = {.capacity_bytes = 4 * unit_bytes};
  CHECK(residency_open(&r, &o) == STOW_OK);
  for (uint64_t i = 0; i < COUNT; i++) {
    CHECK(residency_unit_add(r, base + i * unit_bytes, unit_bytes, i < 4, &unit) == STOW_OK);
    CHECK(residency_block_add(r, base + i * unit_bytes, unit_bytes) == STOW_OK);
    if (i == 5) removed = unit;
  }
  for (uint64_t n = 1; n <= 20 * COUNT; n++) {
    uint64_t i = n % COUNT, word = base + i * unit_bytes;
    if (n == 10 * COUNT) {
      residency_block_remove(r, base + 5 * unit_bytes);
      residency_unit_remove(r, base + 5 * unit_bytes);
    }
    residency_answer answer = residency_launch(r, &(residency_launch_info){.function = i + 1,
                                                                           .words = &word,
                                                                           .word_count = 1,
                                                                           .device_ns = 1000,
                                                                           .host_ns = 100,
                                                                           .now_ns = n * 1000});
    if (n < 10 * COUNT) continue;
    const uint32_t *named = residency_named(r, &count);
    CHECK(count == (i != 5));
    if (count > 0) CHECK(named[0] != removed);
    if (answer != RESIDENCY_EXCHANGE) continue;
    residency_plan_list plan = residency_plan(r);
    for (uint32_t k = 0; k < plan.in_count; k++) CHECK(plan.in[k].unit != removed);
    for (uint32_t k = 0; k < plan.out_count; k++) CHECK(plan.out[k].unit != removed);
    residency_exchanged(r, plan.out_count, plan.in_count);
  }
  residency_close(r);
}

/* One block of 1 GiB on the host, of which every launch names 128 MiB by one word. */
TEST(a_launch_that_names_much_of_an_arena_is_timed_in_place_first)
{
  const uint64_t unit_bytes = UINT64_C(32) << 20, base = UINT64_C(1) << 40;
  residency *r;
  CHECK_OK(residency_open(&r, &(residency_options){.capacity_bytes = UINT64_C(512) << 20}));
  uint32_t unit;
  for (uint64_t i = 0; i < 32; i++)
    CHECK_OK(residency_unit_add(r, base + i * unit_bytes, unit_bytes, false, &unit));
  CHECK_OK(residency_block_add(r, base, 32 * unit_bytes));
  residency_launch(r, &(residency_launch_info){.now_ns = 1}); /* the block holds something */
  residency_timing t;
  /* More words than 8: the block is an arena. All are known after the first round. */
  for (int round = 0; round < 2; round++)
    for (uint64_t i = 0; i < 16; i++) {
      uint64_t word = base + i / 2 * 4 * unit_bytes + i % 2 * 16;
      residency_launch(r, &(residency_launch_info){.function = 7, .words = &word, .word_count = 1});
    }
  uint64_t slow = base + 16, quick = base + 4 * unit_bytes + 16;
  residency_launch_info a = {.function = 7, .words = &slow, .word_count = 1};
  residency_launch_info b = {.function = 8, .words = &quick, .word_count = 1};
  CHECK(residency_launch(r, &a) == RESIDENCY_GO);
  CHECK(residency_sample(r, &t));
  CHECK(t.far_bytes == 4 * unit_bytes);
  residency_sampled(r, &t, 200 * 1000 * 1000);
  CHECK(residency_launch(r, &b) == RESIDENCY_GO);
  CHECK(residency_sample(r, &t));
  residency_sampled(r, &t, 50 * 1000);
  CHECK(residency_launch(r, &a) == RESIDENCY_EXCHANGE);
  CHECK(residency_launch(r, &b) == RESIDENCY_GO);
  b.function = 7; /* of this one it is known that it uses what it names */
  CHECK(residency_launch(r, &b) == RESIDENCY_EXCHANGE);
  residency_close(r);
}

/* A matrix product in place can take a second. If the launches after it do not wait for its time,
 * they must not all run in place too. */
TEST(a_time_that_comes_late_is_not_waited_for_again)
{
  const uint64_t unit_bytes = UINT64_C(32) << 20, base = UINT64_C(1) << 40;
  residency *r;
  CHECK_OK(residency_open(&r, &(residency_options){.capacity_bytes = UINT64_C(512) << 20}));
  uint32_t unit;
  for (uint64_t i = 0; i < 32; i++)
    CHECK_OK(residency_unit_add(r, base + i * unit_bytes, unit_bytes, false, &unit));
  CHECK_OK(residency_block_add(r, base, 32 * unit_bytes));
  residency_launch(r, &(residency_launch_info){.now_ns = 1}); /* the block holds something */
  for (int round = 0; round < 2; round++)                     /* an arena: many words */
    for (uint64_t i = 0; i < 16; i++) {
      uint64_t word = base + i / 2 * 4 * unit_bytes + i % 2 * 16;
      residency_launch(r, &(residency_launch_info){.function = 7, .words = &word, .word_count = 1});
    }
  uint64_t word = base + 16;
  residency_launch_info a = {.function = 100, .words = &word, .word_count = 1};
  residency_timing t;
  CHECK(residency_launch(r, &a) == RESIDENCY_GO);
  CHECK(residency_sample(r, &t) && t.wait);
  residency_sample_late(r, &t, true);
  CHECK(residency_launch(r, &a) == RESIDENCY_EXCHANGE); /* it uses what it names */
  int waits = 1;
  for (a.function = 101; a.function < 130; a.function++) {
    residency_answer answer = residency_launch(r, &a);
    if (answer == RESIDENCY_EXCHANGE) break;
    CHECK(residency_sample(r, &t) && t.wait);
    residency_sample_late(r, &t, false); /* it had not begun: nothing is known about it */
    waits++;
  }
  CHECK(waits == 8);
  CHECK(residency_sample(r, &t) && !t.wait);
  residency_close(r);
}

/* Weights are in vram and only copied from; what every kernel uses is on the host. Moving it in
 * every round would not pay, because the host is slower than the device; moving it once does. */
TEST(what_kernels_use_gets_the_vram_of_what_is_only_copied)
{
  enum { WEIGHTS = 8, ROUNDS = 60 };
  const uint64_t unit_bytes = UINT64_C(32) << 20, base = UINT64_C(1) << 40;
  residency *r;
  CHECK_OK(residency_open(&r, &(residency_options){.capacity_bytes = WEIGHTS * unit_bytes}));
  uint32_t unit;
  for (uint64_t i = 0; i < WEIGHTS + 2; i++) {
    CHECK_OK(residency_unit_add(r, base + i * unit_bytes, unit_bytes, i < WEIGHTS, &unit));
    CHECK_OK(residency_block_add(r, base + i * unit_bytes, unit_bytes));
  }
  uint64_t now = 0, exchanges = 0;
  residency_launch(r, &(residency_launch_info){.now_ns = ++now});
  for (uint64_t n = 0; n < ROUNDS * 16 * WEIGHTS; n++) {
    uint64_t weight = base + n / 16 % WEIGHTS * unit_bytes;
    /* The kernels use one unit first and then the other one. */
    uint64_t hot = base + (WEIGHTS + (n > ROUNDS * 4 * WEIGHTS)) * unit_bytes;
    bool copy = n % 16 == 0;
    residency_answer answer =
        residency_launch(r, &(residency_launch_info){.function = 1 + n % (16 * WEIGHTS),
                                                     .words = copy ? &weight : &hot,
                                                     .word_count = copy || n % 16 == 8,
                                                     .device_ns = 1000,
                                                     .host_ns = 100000,
                                                     .once = copy,
                                                     .to = copy ? 1 : 0,
                                                     .to_bytes = copy ? unit_bytes : 0,
                                                     .now_ns = now += 100000});
    if (answer != RESIDENCY_EXCHANGE) continue;
    residency_plan_list plan = residency_plan(r);
    residency_exchanged(r, plan.out_count, plan.in_count);
    exchanges++;
  }
  CHECK(residency_in_vram(r, unit));
  CHECK(exchanges > 0 && exchanges < 8);
  residency_close(r);
}

/* Where blocks are somewhere else in each step, no launch has words that were timed before. Others
 * of the same function and size show how long it takes. */
TEST(a_launch_takes_as_long_as_others_of_its_size)
{
  const uint64_t base = UINT64_C(1) << 40;
  residency *r;
  residency_timing t;
  residency_stats before, after;
  uint32_t unit;
  CHECK_OK(residency_open(&r, &(residency_options){.capacity_bytes = 4 * UNIT}));
  for (uint64_t i = 0; i < 4; i++) {
    CHECK_OK(residency_unit_add(r, base + i * UNIT, UNIT, true, &unit));
    CHECK_OK(residency_block_add(r, base + i * UNIT, UNIT));
  }
  residency_launch(r, &(residency_launch_info){.now_ns = 1});
  uint64_t word = base;
  residency_launch_info l = {.function = 7, .size = 64, .words = &word, .word_count = 1};
  residency_launch(r, &l);
  CHECK(residency_sample(r, &t));
  residency_sampled(r, &t, 3000000);
  for (int i = 0; i < 3; i++) {
    residency_get_stats(r, &before);
    word = base + UNIT * (uint64_t)(i + 1);
    l.size = i < 1 ? 64 : i < 2 ? 65 : 0;
    residency_launch(r, &l);
    residency_get_stats(r, &after);
    CHECK(i < 1 ? after.near_ns - before.near_ns > 2.9e6 : after.near_ns <= before.near_ns);
  }
  residency_close(r);
}

/* Weights are copied for each use, some from the host; the last one is twice as large as the
 * others. A kernel that reads rows of a table takes far less than reading all of it. So the table
 * goes to the host, the large weight comes to vram for it, and then nothing moves. */
TEST(a_table_makes_space_for_weights_that_are_copied)
{
  enum { WEIGHTS = 12, HERE = 6, TABLE = 4, LARGE = WEIGHTS - 4, HOT = WEIGHTS + TABLE };
  enum { COUNT = HOT + 1, FIT = HERE + TABLE + 1, ROUNDS = 80, EACH = 16 };
  const uint64_t unit_bytes = UINT64_C(32) << 20, base = UINT64_C(1) << 40;
  residency *r;
  CHECK_OK(residency_open(&r, &(residency_options){.capacity_bytes = FIT * unit_bytes}));
  uint32_t units[COUNT];
  for (uint64_t i = 0; i < COUNT; i++) {
    bool there = i < HERE || (i >= WEIGHTS && i < HOT);
    CHECK_OK(residency_unit_add(r, base + i * unit_bytes, unit_bytes, there, &units[i]));
  }
  for (uint64_t i = 0; i < WEIGHTS; i += i < LARGE ? 2 : 4)
    CHECK_OK(residency_block_add(r, base + i * unit_bytes, (i < LARGE ? 2 : 4) * unit_bytes));
  CHECK_OK(residency_block_add(r, base + WEIGHTS * unit_bytes, TABLE * unit_bytes));
  CHECK_OK(residency_block_add(r, base + HOT * unit_bytes, unit_bytes));
  uint64_t now = 0, exchanges = 0, last = 0;
  const uint64_t table = base + WEIGHTS * unit_bytes, hot = base + HOT * unit_bytes;
  residency_launch(r, &(residency_launch_info){.now_ns = ++now});
  for (uint64_t n = 0; n < UINT64_C(1) * ROUNDS * EACH * WEIGHTS; n++) {
    uint64_t i = n / EACH % WEIGHTS, parts = i < LARGE ? 2 : 4;
    uint64_t weight = base + i * unit_bytes, size = parts * unit_bytes;
    bool copy = n % EACH == 0 && i % parts == 0, look = n % (EACH * WEIGHTS) == 8;
    bool here = true;
    for (uint64_t at = weight; copy && at < weight + size; at += unit_bytes)
      here = here && residency_in_vram(r, residency_find(r, at));
    if (copy && !here) residency_passed(r, weight, size);
    residency_launch_info l = {.function = 1 + n % (EACH * WEIGHTS),
                               .words = look   ? &table
                                        : copy ? &weight
                                               : &hot,
                               .word_count = copy || look || n % EACH == 4,
                               .device_ns = 5000,
                               .host_ns = 100000,
                               .once = copy && !here,
                               .to = 1,
                               .to_bytes = copy && !here ? size : 0,
                               .now_ns = now += 100000};
    if (residency_launch(r, &l) != RESIDENCY_EXCHANGE) continue;
    residency_plan_list plan = residency_plan(r);
    residency_exchanged(r, plan.out_count, plan.in_count);
    exchanges++;
    last = n;
  }
  residency_stats stats;
  residency_get_stats(r, &stats);
  CHECK(!stats.moving && residency_valid(r));
  for (uint64_t i = 0; i < COUNT; i++)
    CHECK(residency_in_vram(r, units[i]) == (i < HERE || (i >= LARGE && i < WEIGHTS) || i == HOT));
  CHECK(exchanges < 8 && last < UINT64_C(40) * EACH * WEIGHTS);
  residency_close(r);
}

/* Nothing moves, because the host is slower than the device. One kernel then names 1 GiB on the
 * host, which nothing hides. */
TEST(a_launch_that_reads_much_in_place_is_not_left_there)
{
  enum { COUNT = 40, LARGE = 32 };
  const uint64_t unit_bytes = UINT64_C(32) << 20, base = UINT64_C(1) << 40;
  residency *r;
  residency_stats stats;
  CHECK_OK(residency_open(&r, &(residency_options){.capacity_bytes = COUNT * unit_bytes}));
  uint32_t unit;
  for (uint64_t i = 0; i < COUNT; i++)
    CHECK_OK(residency_unit_add(r, base + i * unit_bytes, unit_bytes, false, &unit));
  CHECK_OK(residency_block_add(r, base, LARGE * unit_bytes));
  CHECK_OK(residency_block_add(r, base + LARGE * unit_bytes, unit_bytes));
  uint64_t now = 0, small = base + LARGE * unit_bytes;
  residency_launch(r, &(residency_launch_info){.now_ns = ++now});
  for (uint64_t n = 0; n < 1000; n++)
    residency_launch(r, &(residency_launch_info){.function = 1 + n % 4,
                                                 .words = &small,
                                                 .word_count = n % 16 == 0,
                                                 .device_ns = 1000,
                                                 .host_ns = 200000,
                                                 .now_ns = now += 200000});
  residency_get_stats(r, &stats);
  CHECK(!stats.moving);
  uint64_t read = stats.read_bytes;
  residency_launch_info l = {
      .function = 9, .words = &small, .word_count = 1, .host_ns = 200000, .now_ns = ++now};
  CHECK(residency_launch(r, &l) == RESIDENCY_GO);
  residency_get_stats(r, &stats);
  CHECK_U64(stats.read_bytes, read + unit_bytes);
  l.words = &base;
  CHECK(residency_launch(r, &l) == RESIDENCY_EXCHANGE);
  residency_get_stats(r, &stats);
  CHECK_U64(stats.read_bytes, read + unit_bytes);
  residency_close(r);
}

/* The first piece of a copy into a new block names all of it, so that all comes to vram at once,
 * also if the block begins in a unit with an older one. Later pieces name their own bytes. */
TEST(a_copy_into_a_new_block_names_all_of_it)
{
  const uint64_t base = UINT64_C(1) << 40, bytes = 4 * UNIT;
  residency *r;
  uint32_t unit, count;
  CHECK_OK(residency_open(&r, &(residency_options){.capacity_bytes = 8 * UNIT}));
  for (uint64_t i = 0; i < 8; i++)
    CHECK_OK(residency_unit_add(r, base + i * UNIT, UNIT, true, &unit));
  CHECK_OK(residency_block_add(r, base, UNIT / 2));
  residency_launch(r, &(residency_launch_info){.now_ns = 1});
  uint64_t to = base + UNIT / 2;
  CHECK_OK(residency_block_add(r, to, bytes));
  const uint32_t wanted[] = {5, 1, 1};
  for (int i = 0; i < 3; i++, to += UNIT) {
    residency_launch_info copy = {
        .function = 1, .words = &to, .word_count = 1, .once = true, .to = to, .to_bytes = UNIT / 2};
    residency_launch(r, &copy);
    residency_named(r, &count);
    CHECK_U64(count, wanted[i]);
  }
  residency_close(r);
}

/* Kernels use more than fits, so some of it stays on the host for good. In each phase they use
 * other units, of which some are on the host: those come in, in place of what is then only copied.
 */
TEST(what_stays_on_the_host_is_chosen_again)
{
  enum { COUNT = 32, USED = 26, FIT = 24, PHASES = 6, LAUNCHES = 40 * 4 * COUNT };
  const uint64_t unit_bytes = UINT64_C(32) << 20, base = UINT64_C(1) << 40;
  residency *r;
  CHECK_OK(residency_open(&r, &(residency_options){.capacity_bytes = FIT * unit_bytes}));
  uint32_t units[COUNT];
  for (uint64_t i = 0; i < COUNT; i++) {
    CHECK_OK(residency_unit_add(r, base + i * unit_bytes, unit_bytes, i < FIT, &units[i]));
    CHECK_OK(residency_block_add(r, base + i * unit_bytes, unit_bytes));
  }
  uint64_t now = 0, exchanges = 0;
  residency_launch(r, &(residency_launch_info){.now_ns = ++now});
  for (uint64_t n = 0; n < UINT64_C(1) * PHASES * LAUNCHES; n++) {
    uint64_t first = n / LAUNCHES * (COUNT - USED); /* of those that kernels use */
    uint64_t i = n / 4 % COUNT, word = base + (first + i) % COUNT * unit_bytes;
    residency_answer answer =
        residency_launch(r, &(residency_launch_info){.function = 1 + n % (4 * COUNT),
                                                     .words = &word,
                                                     .word_count = n % 4 == 0,
                                                     .device_ns = 1000,
                                                     .host_ns = 100000,
                                                     .once = i >= USED,
                                                     .now_ns = now += 100000});
    if (answer == RESIDENCY_EXCHANGE) {
      residency_plan_list plan = residency_plan(r);
      residency_exchanged(r, plan.out_count, plan.in_count);
      exchanges++;
    }
    if ((n + 1) % LAUNCHES > 0) continue;
    uint32_t there = 0;
    for (i = 0; i < USED; i++) there += residency_in_vram(r, units[(first + i) % COUNT]);
    CHECK_U64(there, FIT);
  }
  CHECK(exchanges < PHASES * COUNT);
  residency_close(r);
}

TEST_MAIN
