/* Spill: the scripts inside PyTorch in simulated time (spill_scripts.h). */
#include "replay/spill_scripts.h"

#include <stdlib.h>

#include "replay/spill_roles.h"
#include "replay/spill_saved.h"

/* As in states.py and weights.py. */
#define PART_BYTES (UINT64_C(64) << 20)
enum { AHEAD = 2, AHEAD_PART = 12 };
/* As in activations.py, class Armed: parts of the limit. */
enum { MARGIN_PART = 24, MARGIN_MOST_PART = 4, WORK_PART = 8, PASSING_WORK_PART = 16 };

/* The host's time in the scripts, per weight, saved tensor and first use of one: Python alone, with
 * the driver's calls replaced by nothing (Python 3.11, one core, 2026-11-19, least of 30 runs). */
#define WEIGHT_HOST_NS 17e3
#define SAVED_HOST_NS  7e3
#define USED_HOST_NS   9.5e3

enum { STEPS_LEAST = 8, STEPS_MAX = 40 };
#define TEMPORARY                                                                                  \
  (ROLE_NO_BLOCK - 1) /* the number of a block that an update allocated for itself */

typedef struct script_model {
  const spill_program *p;
  spill_roles roles;
  spill_clock clock;
  saved_policy *policy;
  uint32_t *numbers; /* per block: its number in the policy */
  double *came;      /* per use of a weight: when its copy is there */
  int64_t limit, other, capacity, margin, target;
  int64_t updated_bytes; /* allocated after the last launch, an update's as a rule */
  int64_t table_bytes;   /* on the host */
  double host_part;      /* of the weights' bytes */
  size_t next_use, next_update;
  uint64_t ahead; /* uses of weights whose copies were started, over all steps */
  uint64_t past;  /* uses of weights in the steps before */
  bool home, home_fails, full;
  uint64_t step_ns;
  spill_scripted now;
  double state_wait, weight_wait;
} script_model;

static int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* ---- weights ---- */

static const role_block *weight_of(const script_model *m, uint64_t use) {
  return &m->roles.blocks[m->roles.uses[use % m->roles.use_count].block];
}

/* Starts the copy of the next weight: its bytes on the host cross the bus. The others are copied
 * within vram meanwhile. */
static void copy_weight(script_model *m) {
  const role_block *b = weight_of(m, m->ahead);
  double far = (double)b->bytes * m->host_part;
  clock_allocate(&m->clock, (int64_t)b->bytes);
  m->came[m->ahead % m->roles.use_count] =
      clock_copy(&m->clock, CLOCK_IN, (uint64_t)far, clock_mark(&m->clock));
  m->now.weight_bytes += (uint64_t)far;
  m->ahead++;
}

/* Gives the launch copies of the weights that it uses, and starts those of the next ones. Returns
 * the bytes of copies that are free after the launch. */
static int64_t use_weights(script_model *m) {
  int64_t used = 0;
  const spill_roles *r = &m->roles;
  while (m->next_use < r->use_count && r->uses[m->next_use].launch == m->clock.launch) {
    uint64_t use = m->past + m->next_use++;
    m->clock.host_ns += WEIGHT_HOST_NS;
    if (m->ahead <= use) m->ahead = use, copy_weight(m);
    clock_wait(&m->clock, m->came[use % r->use_count], &m->weight_wait);
    used += (int64_t)weight_of(m, use)->bytes;
    int64_t bytes = 0;
    for (uint64_t i = use + 1; i <= use + AHEAD && i < use + r->use_count; i++) {
      bytes += (int64_t)weight_of(m, i)->bytes;
      if (bytes > m->limit / AHEAD_PART) break;
      if (m->ahead == i) copy_weight(m);
    }
  }
  return used;
}

/* Sets which part of the weights is on the host: tables go there first. Without one, copies made
 * ahead are dropped. */
static void set_host_part(script_model *m, int64_t host_bytes) {
  m->table_bytes = most(0, least(host_bytes, (int64_t)m->roles.table_bytes));
  host_bytes -= m->table_bytes;
  m->host_part = 0;
  if (m->roles.weight_bytes > 0 && host_bytes > 0)
    m->host_part = (double)host_bytes / (double)m->roles.weight_bytes;
  if (m->host_part > 0) return;
  for (; m->ahead > m->past; m->ahead--)
    clock_allocate(&m->clock, -(int64_t)weight_of(m, m->ahead - 1)->bytes);
}

/* ---- state ---- */

/* What the launches of an update do together. */
typedef struct update_work {
  uint64_t gap_ns, device_ns;
  int64_t kept_bytes, moment_bytes; /* allocated for longer; the most of temporary blocks */
} update_work;

/* Runs an update in parts: the state of a part comes in, is used and is copied back, while the next
 * one comes in. Temporary blocks are as large as a part needs. */
static void update(script_model *m, const role_update *u, const update_work *work) {
  spill_clock *c = &m->clock;
  uint64_t bytes = u->trained_bytes > 0 ? u->trained_bytes : u->state_bytes / 2;
  uint64_t parts = (bytes + PART_BYTES - 1) / PART_BYTES;
  if (parts == 0) parts = 1;
  uint64_t part = u->state_bytes / parts;
  int64_t moment = work->moment_bytes / (int64_t)parts;
  double came = clock_copy(c, CLOCK_IN, part, clock_mark(c)), left = 0;
  clock_allocate(c, (int64_t)part + moment);
  for (uint64_t i = 0; i < parts; i++) {
    double next = 0;
    if (i + 1 < parts) {
      next = clock_copy(c, CLOCK_IN, part, clock_mark(c));
      clock_allocate(c, (int64_t)part);
    }
    clock_wait(c, came, &m->state_wait);
    clock_launch(c, work->gap_ns / parts, work->device_ns / parts);
    double leaves = clock_copy(c, CLOCK_OUT, part, clock_mark(c));
    if (i > 0) { /* all parts but the last one that left are waited for */
      clock_wait(c, left, &m->state_wait);
      clock_allocate(c, -(int64_t)part);
    }
    left = leaves;
    came = next;
  }
  clock_wait(c, left, &m->state_wait);
  clock_allocate(c, work->kept_bytes - moment - (int64_t)part);
  m->now.state_bytes += parts * part;
}

/* ---- blocks ---- */

/* Ends a block that is not counted as allocated here: the policy has it, or an update had it.
 * Returns whether it did. */
static bool remove_saved(script_model *m, uint32_t id) {
  if (id == ROLE_NO_BLOCK || m->numbers[id] == ROLE_NO_BLOCK) return false;
  if (m->numbers[id] != TEMPORARY) saved_remove(m->policy, m->numbers[id]);
  m->numbers[id] = ROLE_NO_BLOCK;
  return true;
}

/* Returns the bytes that an allocation or a free adds to what is allocated. */
static int64_t change_of(script_model *m, size_t at) {
  const spill_op *op = &m->p->ops[at];
  if (op->kind == SPILL_ALLOC) return (int64_t)op->bytes;
  return remove_saved(m, m->roles.op_block[at]) ? 0 : -(int64_t)op->bytes;
}

/* Counts an allocation or a free within an update. What it allocates for itself may be freed after
 * it. */
static void change_within(script_model *m, size_t at, const role_update *u, update_work *work,
                          int64_t *temporary) {
  const spill_op *op = &m->p->ops[at];
  uint32_t id = m->roles.op_block[at];
  bool own = op->kind == SPILL_ALLOC && m->roles.blocks[id].last <= u->end;
  if (own) m->numbers[id] = TEMPORARY;
  if (own)
    *temporary += (int64_t)op->bytes;
  else if (id != ROLE_NO_BLOCK && m->numbers[id] == TEMPORARY)
    *temporary -= (int64_t)op->bytes;
  else
    work->kept_bytes += change_of(m, at);
  work->moment_bytes = most(work->moment_bytes, *temporary);
}

/* Runs the update that begins with the launch of operation `at`. Returns its last operation. */
static size_t run_update(script_model *m, size_t at) {
  const role_update *u = &m->roles.updates[m->next_update++];
  update_work work = {0};
  int64_t temporary = 0;
  size_t i = at;
  for (;; i++) {
    const spill_op *op = &m->p->ops[i];
    if (op->kind == SPILL_LAUNCH) {
      m->clock.launch += i > at;
      work.gap_ns += op->gap_ns;
      work.device_ns += op->device_ns;
      if (m->clock.launch == u->end) break;
      continue;
    }
    change_within(m, i, u, &work, &temporary);
  }
  update(m, u, &work);
  m->updated_bytes = m->clock.live_bytes;
  return i;
}

/* ---- launches ---- */

/* Has the backward pass use what the launch touches again. */
static void use_saved(script_model *m, const spill_op *op) {
  for (size_t w = op->first_word; w < op->first_word + op->word_count; w++) {
    uint32_t id = m->roles.word_block[w];
    if (id == ROLE_NO_BLOCK || m->numbers[id] >= TEMPORARY) continue;
    uint32_t back = m->roles.blocks[id].back;
    if (m->clock.launch == back) m->clock.host_ns += USED_HOST_NS;
    if (m->clock.launch >= back) saved_use(m->policy, m->numbers[id]);
  }
}

/* Saves what the launch touches first: an operation saves what it returns or reads. */
static void save(script_model *m, const spill_op *op) {
  for (size_t w = op->first_word; w < op->first_word + op->word_count; w++) {
    uint32_t id = m->roles.word_block[w];
    if (id == ROLE_NO_BLOCK || m->roles.blocks[id].role != ROLE_SAVED) continue;
    const role_block *b = &m->roles.blocks[id];
    if (b->first != m->clock.launch || m->numbers[id] != ROLE_NO_BLOCK) continue;
    m->clock.host_ns += SAVED_HOST_NS;
    m->numbers[id] = saved_add(m->policy, b->bytes, b->leave);
  }
}

/* Runs the launch of operation `at`, or the update that begins there. Returns the last operation
 * that ran. */
static size_t launch(script_model *m, size_t at) {
  const spill_op *op = &m->p->ops[at];
  const spill_roles *r = &m->roles;
  m->clock.launch++;
  bool begins =
      m->next_update < r->update_count && r->updates[m->next_update].begin == m->clock.launch;
  if (begins && !m->home) return run_update(m, at);
  use_saved(m, op);
  int64_t copies = m->host_part > 0 ? use_weights(m) : 0;
  clock_launch(&m->clock, op->gap_ns, op->device_ns);
  clock_allocate(&m->clock, -copies);
  save(m, op);
  if (begins) m->next_update++;
  m->updated_bytes = m->clock.live_bytes;
  return at;
}

/* ---- steps ---- */

/* Sets the target of the next step (class Armed): a step whose memory did not fit leaves more free.
 */
static void aim(script_model *m) {
  int64_t base = saved_base_bytes(m->policy), excess = m->clock.peak_bytes - m->capacity;
  int64_t held = m->clock.live_bytes;
  int64_t space = m->limit / (m->roles.weight_bytes > 0 ? PASSING_WORK_PART : WORK_PART);
  if (base < 0 || base > held) base = held;
  bool fewer = excess > 0 && m->roles.weight_bytes == 0;
  if (fewer && m->home)
    m->home_fails = true;
  else if (fewer && !m->full && m->now.saved_out_bytes > 0 &&
           m->margin < m->limit / MARGIN_MOST_PART)
    m->margin += least(excess, m->limit / WORK_PART);
  m->target = most(base + space, m->limit - m->other - m->margin);
  m->full = m->target == base + space;
  saved_set_target(m->policy, m->target);
  set_host_part(m, excess);
}

/* Decides whether the state of optimizers stays in vram in the next step. */
static void settle_state(script_model *m) {
  const spill_roles *r = &m->roles;
  int64_t trained = 0, state = (int64_t)r->state_bytes;
  for (size_t i = 0; i < r->update_count; i++) trained += (int64_t)r->updates[i].trained_bytes;
  int64_t held = m->updated_bytes + (m->home ? 0 : state);
  int64_t beside = most(m->limit / WORK_PART, saved_other_bytes(m->policy));
  bool home = !m->full && !m->home_fails && held + trained + beside <= m->target;
  if (home != m->home) m->clock.live_bytes += home ? state : -state;
  m->home = home;
}

static void run_step(script_model *m) {
  spill_clock *c = &m->clock;
  double begin = clock_idle(c);
  m->now = (spill_scripted){0};
  m->state_wait = m->weight_wait = 0;
  m->next_use = m->next_update = 0;
  c->launch = 0;
  c->peak_bytes = c->most_bytes = c->live_bytes;
  saved_begin_step(m->policy);
  for (size_t i = 0; i < m->roles.block_count; i++) m->numbers[i] = ROLE_NO_BLOCK;
  for (size_t i = 0; i < m->p->op_count; i++) {
    if (m->p->ops[i].kind == SPILL_LAUNCH)
      i = launch(m, i);
    else
      clock_allocate(c, change_of(m, i));
  }
  m->past += m->roles.use_count;
  m->step_ns = (uint64_t)(clock_idle(c) - begin);
  saved_figures figures = saved_get_figures(m->policy);
  m->now.saved_out_bytes = figures.out_bytes;
  m->now.saved_in_bytes = figures.in_bytes;
  m->now.saved_wait_ns = (uint64_t)(figures.wait_out_ns + figures.wait_in_ns);
  m->now.state_wait_ns = (uint64_t)m->state_wait;
  m->now.weight_wait_ns = (uint64_t)m->weight_wait;
  saved_end_step(m->policy);
}

static bool near(uint64_t a, uint64_t b) {
  uint64_t high = a > b ? a : b, low = a > b ? b : a;
  return high - low <= high / 500;
}

/* Repeats the step until three in a row take the same time within 0.2%. Returns whether what is
 * allocated then fits. */
static bool run_steady(script_model *m, uint32_t *steps) {
  uint64_t last[2] = {0};
  bool fits, steady = false;
  for (*steps = 0; *steps < STEPS_MAX && !steady;) {
    bool home = m->home;
    double part = m->host_part;
    double far = part * (double)m->roles.weight_bytes + (double)m->table_bytes;
    run_step(m);
    ++*steps;
    fits = part <= 1 && m->clock.peak_bytes - (int64_t)far <= m->capacity;
    steady = *steps >= STEPS_LEAST && near(m->step_ns, last[0]) && near(m->step_ns, last[1]);
    last[1] = last[0];
    last[0] = m->step_ns;
    aim(m);
    settle_state(m);
    steady = steady && home == m->home;
  }
  return fits;
}

static stow_status open_model(script_model *m) {
  STOW_TRY(spill_roles_find(&m->roles, m->p));
  const spill_roles *r = &m->roles;
  m->numbers = malloc((r->block_count + 1) * sizeof *m->numbers);
  m->came = calloc(r->use_count + 1, sizeof *m->came);
  if (m->numbers == NULL || m->came == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu blocks", r->block_count);
  STOW_TRY(saved_open(&m->policy, &m->clock, (uint32_t)r->saved_count));
  for (size_t i = 0; i < m->p->initial_count; i++)
    m->clock.live_bytes += (int64_t)m->p->initial[i].bytes;
  m->clock.live_bytes -= (int64_t)r->state_bytes;
  m->target = m->limit - m->other - m->margin;
  saved_set_target(m->policy, m->target);
  saved_begin_step(m->policy);
  return STOW_OK;
}

static bool any_role(const spill_roles *r) {
  return r->saved_bytes + r->state_bytes + r->weight_bytes > 0;
}

static void report(const script_model *m, spill_scripted *out, spill_times *times) {
  saved_figures saved = saved_get_figures(m->policy);
  *out = m->now;
  out->used = true;
  *times = (spill_times){.step_ns = m->step_ns};
  times->in_bytes = times->in_copied_bytes =
      out->saved_in_bytes + out->state_bytes + out->weight_bytes;
  times->out_bytes = times->out_copied_bytes = out->saved_out_bytes + out->state_bytes;
  times->wait_in_ns = (uint64_t)saved.wait_in_ns + out->state_wait_ns + out->weight_wait_ns;
  times->wait_out_ns = (uint64_t)saved.wait_out_ns;
}

stow_status spill_scripts_run(spill_scripted *out, spill_times *times, uint32_t *steps,
                              const spill_program *p, const spill_options *o,
                              uint64_t capacity_bytes) {
  *out = (spill_scripted){0};
  script_model *m = calloc(1, sizeof *m);
  if (m == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a simulated device");
  m->p = p;
  m->clock.cost = &residency_costs_h200;
  m->limit = (int64_t)o->vram_bytes;
  m->other = (int64_t)o->context_bytes;
  m->capacity = (int64_t)capacity_bytes;
  m->margin = m->limit / MARGIN_PART;
  stow_status status = open_model(m);
  if (status == STOW_OK && any_role(&m->roles)) {
    bool fits = run_steady(m, steps);
    if (fits) report(m, out, times);
  }
  saved_close(m->policy);
  free(m->numbers);
  free(m->came);
  spill_roles_free(&m->roles);
  free(m);
  return status;
}
