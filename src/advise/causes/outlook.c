/* What a recording shows after the moment at which a smaller device refuses a request. */
#include "advise/causes.h"

#define WAITS_SURE   0.93 /* passes of one step wait for its backward pass */
#define UNUSED_SURE  0.97 /* above a copy that may be in use */
#define UNUSED_LEAST 0.08 /* least fraction of the capacity that is worth a line */
#define UNUSED_PART  0.7
#define AHEAD_SURE   0.9 /* without the growth everything fits */
#define AHEAD_PART   0.6 /* it is half of what is missing */
#define BESIDE_IT    0.6 /* what general causes count beside one of these */

static void lower(cause *all, double factor) {
  static const cause_id general[] = {CAUSE_BATCH_TOO_BIG, CAUSE_ONE_SPIKE, CAUSE_FRAGMENTATION,
                                     CAUSE_WEIGHTS_TOO_BIG};
  for (size_t i = 0; i < sizeof general / sizeof *general; i++)
    all[general[i]].confidence *= factor;
}

static void passes_wait(cause *all, const evidence *e, const outlook *o) {
  cause *c = &all[CAUSE_GRAPH_KEPT];
  char place[256];
  if (o->waits_for == 0) return;
  c->confidence = WAITS_SURE;
  cause_head(c, "The graphs of %u passes at %s are held until one backward pass: %s so far",
             o->waits_for,
             evidence_place(e, place, sizeof place, e->caller_of_stack[e->fail_stack_id]),
             cause_size(o->waiting_bytes));
  cause_say(c, "it failed after %u of %u passes; the recording then runs backward once for all",
            o->waiting, o->waits_for);
  cause_say(c, "no pass uses what another one made, so each can have a backward pass of its own");
  all[CAUSE_NO_GRAD_MISSING].confidence = 0;
}

static void copy_is_unused(cause *all, const evidence *e, const outlook *o) {
  cause *c = &all[CAUSE_LOADED_TWICE];
  char place[256];
  if (o->unused_bytes == 0 || evidence_share(o->unused_bytes, evidence_capacity(e)) < UNUSED_LEAST)
    return;
  c->confidence = o->unused_enough || c->confidence >= UNUSED_PART ? UNUSED_SURE : UNUSED_PART;
  cause_head(c, "What %s makes is never used again: %s",
             evidence_place(e, place, sizeof place, e->user_of_stack[o->unused_stack_id]),
             cause_size(o->unused_bytes));
  cause_say(c, "no kernel of the recording reads it once the first pass begins, and it stays");
  if (o->unused_enough) lower(all, BESIDE_IT);
}

/* Judges the growth by the whole recording, where all of its iterations are complete. */
static void growth_ahead(cause *all, const evidence *e, const findings *f) {
  const outlook *o = &f->outlook;
  uint64_t capacity = evidence_capacity(e), most = e->whole->peak_live_bytes;
  uint64_t missing = most > capacity ? most - capacity : 0;
  if (!o->ahead.found) return;
  if (!o->ahead_most && o->ahead.total * 2 < missing) return;
  findings later = {.growth = o->ahead};
  static const cause_id growing[] = {CAUSE_GRAPH_KEPT, CAUSE_NO_GRAD_MISSING, CAUSE_LEAK};
  for (size_t i = 0; i < sizeof growing / sizeof *growing; i++) {
    cause *c = &all[growing[i]];
    if (c->confidence >= AHEAD_SURE) continue;
    buffer_free(&c->evidence);
    c->evidence = BUFFER_INIT;
    if (growing[i] == CAUSE_GRAPH_KEPT) cause_graph_kept(c, e->whole, &later);
    if (growing[i] == CAUSE_NO_GRAD_MISSING) cause_no_grad_missing(c, e->whole, &later);
    if (growing[i] == CAUSE_LEAK) cause_leak(c, e->whole, &later);
    if (c->confidence == 0) continue;
    if (!o->ahead_most && c->confidence > AHEAD_PART) c->confidence = AHEAD_PART;
    cause_say(c, "these are the %u steps of the whole recording%s", o->ahead.whole,
              o->ahead_enough ? "; without the growth all of it fits"
              : o->ahead_most ? "; without the growth what is live fits"
                              : "");
  }
  if (o->ahead_most) lower(all, BESIDE_IT);
  /* A cache inside the model is held to the end of a pass, as a graph is. */
  if (o->ahead.swells && e->phase_of_stack[o->ahead.stack_id] == PHASE_FORWARD)
    all[CAUSE_NO_GRAD_MISSING].confidence = 0;
}

void cause_of_outlook(cause *all, const evidence *e, const findings *f) {
  const outlook *o = &f->outlook;
  if (e->whole == NULL) return;
  growth_ahead(all, e, f);
  passes_wait(all, e, o);
  copy_is_unused(all, e, o);
  if (o->data)
    cause_say(&all[CAUSE_ONE_SPIKE],
              "it is made before the first pass, kept to the end, and used in parts: a data set");
}
