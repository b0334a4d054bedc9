/* Growth use: what the causes need to know about a growth once it is found: its members, its
 * certainty, its lines of evidence. */
#include "advise/causes.h"
#include <stdlib.h>
#include <string.h>

bool growth_has(const growth *g, const evidence *e, uint32_t i) {
  const lifetime *l = &e->time.lifetimes[i];
  if (g->swollen_bytes > 0) return l->bytes == g->swollen_bytes && evidence_live(e, l);
  phase p = e->phase_of[i];
  return l->start >= e->loop.list[0].start && l->start < e->loop.list[g->whole].start &&
         evidence_live(e, l) && p != PHASE_OPTIMIZER && p != PHASE_BUILD && p != PHASE_LOAD &&
         p != PHASE_COPY && (!e->has_stacks || g->of_stack[l->stack_id]);
}

/* Returns how certain the growth itself is. */
double growth_weight(const evidence *e, const growth *g) {
  double weight = g->whole >= 3 ? 1 : 0.88;
  if (!e->has_stacks) weight *= 0.8; /* iterations are a guess, and so is what runs backward */
  double share = (double)g->total / (double)e->n.live_bytes;
  return share >= 0.15 ? weight : weight * 0.75;
}

void growth_say(cause *c, const evidence *e, const growth *g) {
  char place[256];
  if (g->swells) {
    cause_say(
        c, "each of %u loop iterations makes it again, larger each time: %s was added, of %s live",
        g->whole, cause_size(g->total), cause_size(e->n.live_bytes));
    cause_say(c, "while the new one is made, the old one is still there");
    return;
  }
  cause_say(c, "%s stays from each of %u loop iterations, %s so far, of %s live",
            cause_size(g->per_iteration), g->whole, cause_size(g->total),
            cause_size(e->n.live_bytes));
  if (g->stack_id != 0)
    cause_say(c, "most from %s: %u allocations, %s",
              evidence_place(e, place, sizeof place, e->user_of_stack[g->stack_id]), g->stack_count,
              cause_size(g->stack_bytes));
  else if (!e->has_stacks)
    cause_say(c, "no stacks were recorded, so the line is not known");
  if (e->helped_of_stack[g->stack_id] != 0)
    cause_say(c, "it is called at %s",
              evidence_place(e, place, sizeof place, e->helped_of_stack[g->stack_id]));
}
