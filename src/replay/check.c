/* Check: compares a replay with the recording's own segments and addresses.
 *
 * The recording plays the driver. Between two steps it shows which segments were allocated, mapped,
 * freed and unmapped. A policy that requests a segment gets the next recorded one at its address;
 * the request is refused if the recording shows memory being freed first (the driver had refused)
 * or the request failing. Every difference between the policy's calls and the recorded ones is a
 * mismatch. */
#include "replay/replay.h"

typedef struct check {
  const steps *s;
  replay_result *out;
  size_t cursor, bound; /* the next event to examine, and the event of this step */
  bool by_limit;        /* the policy has a limit and decides by itself */
  bool failing;         /* the recorded run was refused this step */
  uint64_t next_addr;   /* made up if the recording has none */
} check;

static bool is_segment_event(const event *e) {
  return e->kind >= EVENT_SEGMENT_ALLOC && e->kind <= EVENT_SEGMENT_UNMAP;
}

/* Returns the next segment event before this step's event; NULL if none. */
static const event *peek(check *c) {
  for (; c->cursor < c->bound; c->cursor++) {
    const event *e = &c->s->source->events[c->cursor];
    if (is_segment_event(e) && event_origin(c->s->source, e)->device == c->s->device) return e;
  }
  return NULL;
}

static void compare(check *c, bool same) {
  c->out->segments_checked++;
  c->out->segment_mismatches += !same;
}

static uint64_t invent(check *c, uint64_t bytes) {
  c->next_addr -= bytes < c->next_addr / 2 ? bytes : c->next_addr / 2;
  return c->next_addr;
}

/* Answers a request for memory. `kind` is the event that the recording should show. */
static bool answer(check *c, event_kind kind, uint64_t bytes, const event **shown) {
  const event *e = *shown = peek(c);
  if (e != NULL && e->kind == kind) {
    c->cursor++;
    compare(c, e->bytes == bytes);
    return true;
  }
  bool refused = e != NULL || c->failing;
  *shown = NULL;
  if (refused && !c->by_limit) return false;
  compare(c, false);
  return true;
}

static bool check_take(void *user, uint64_t bytes, uint64_t *addr) {
  check *c = user;
  const event *e;
  if (!answer(c, EVENT_SEGMENT_ALLOC, bytes, &e)) return false;
  *addr = e != NULL ? e->addr : invent(c, bytes);
  return true;
}

static void gave(check *c, event_kind kind, uint64_t addr, uint64_t bytes) {
  const event *e = peek(c);
  bool shown = e != NULL && e->kind == kind;
  if (shown) c->cursor++;
  compare(c, shown && e->addr == addr && e->bytes == bytes);
}

static void check_give(void *user, uint64_t addr, uint64_t bytes) {
  gave(user, EVENT_SEGMENT_FREE, addr, bytes);
}

static void check_unmap(void *user, uint64_t addr, uint64_t bytes) {
  gave(user, EVENT_SEGMENT_UNMAP, addr, bytes);
}

/* Refuses if the recording shows memory being freed next, or nothing for a failed request. */
static bool check_allows(void *user) {
  check *c = user;
  const event *e = peek(c);
  bool refused = e != NULL ? e->kind != EVENT_SEGMENT_MAP : c->failing;
  return !refused || c->by_limit;
}

/* Answers a reservation. A range begins where its first page is mapped. */
static uint64_t check_reserve(void *user, uint64_t bytes) {
  check *c = user;
  const event *e = peek(c);
  return e != NULL && e->kind == EVENT_SEGMENT_MAP ? e->addr : invent(c, bytes);
}

static bool check_map(void *user, uint64_t addr, uint64_t bytes) {
  check *c = user;
  const event *e;
  if (!answer(c, EVENT_SEGMENT_MAP, bytes, &e)) return false;
  if (e != NULL && e->addr != addr && e->bytes == bytes) c->out->segment_mismatches++;
  return true;
}

static policy_answer check_step(check *c, policy *p, const policy_ops *ops, const step *at) {
  c->bound = at->event + (at->kind == STEP_TRIM);
  c->failing = at->kind == STEP_FAIL;
  policy_answer answer = POLICY_DONE;
  switch (at->kind) {
  case STEP_FREE: answer = ops->release(p, at->id); break;
  case STEP_PEND: answer = ops->pend(p, at->id); break;
  case STEP_TRIM: answer = ops->trim(p); break;
  default: answer = ops->alloc(p, at->id, at->bytes, at->lane);
  }
  if (at->kind == STEP_ALLOC) {
    c->out->addresses_checked++;
    if (answer != POLICY_DONE || ops->address(p, at->id) != c->s->source->events[at->event].addr)
      c->out->address_mismatches++;
  }
  if (at->kind == STEP_FAIL) {
    compare(c, answer != POLICY_DONE);
    if (answer == POLICY_DONE) answer = ops->release(p, at->id);
  }
  for (; peek(c) != NULL; c->cursor++) compare(c, false); /* recorded, but not done */
  if (answer == POLICY_FULL && c->out->finishes) {
    c->out->finishes = false;
    c->out->failed_at_event = at->event;
    c->out->failed_bytes = at->bytes;
  }
  return answer == POLICY_FULL ? POLICY_DONE : answer;
}

stow_status replay_check(replay_result *out, const steps *s, const policy_ops *which,
                         const replay_options *options) {
  *out = (replay_result){.policy = which,
                         .finishes = true,
                         .failed_at_event = REPLAY_NO_EVENT,
                         .peak_live_bytes = s->peak_live_bytes,
                         .checked = true};
  check c = {.s = s,
             .out = out,
             .by_limit = options->limit_bytes != POLICY_NO_LIMIT,
             .next_addr = UINT64_C(1) << 62};
  policy_driver driver = {.user = &c,
                          .take = check_take,
                          .give = check_give,
                          .allows = check_allows,
                          .reserve = check_reserve,
                          .map = check_map,
                          .unmap = check_unmap};
  policy_options o = {.limit_bytes = options->limit_bytes,
                      .limit_in_framework = options->limit_in_framework,
                      .settings = options->settings,
                      .lanes = s->lanes,
                      .lane_count = s->lane_count,
                      .id_count = s->id_count,
                      .driver = &driver};
  policy *p;
  STOW_TRY(which->open(&p, &o));
  policy_answer answer = POLICY_DONE;
  for (size_t i = 0; i < s->count && answer == POLICY_DONE; i++)
    answer = check_step(&c, p, which, &s->list[i]);
  c.bound = s->source->event_count;
  for (; peek(&c) != NULL; c.cursor++) compare(&c, false);
  which->stats(p, &out->stats);
  which->close(p);
  return answer == POLICY_DONE ? STOW_OK : STOW_ERR_STATE;
}
