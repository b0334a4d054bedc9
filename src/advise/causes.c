/* Causes: calls the function of each cause, ranks general causes below specific ones. */
#include "advise/causes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/census.h"

#define HOLDERS_SHOWN 3

#define SHOWN_LEAST 0.1 /* below this a cause is not worth a line */
#define BELIEVED    0.3 /* below this the answer is "unknown" */
#define SURE        0.8
/* Iterations after which a growth ranks above causes that only take a part of the memory. */
#define ITERATIONS_SURE 3
/* The most confidence of a second cause beside one that explains the failure. */
#define BESIDE_FIRST  0.75
#define BESIDE_GROWTH 0.6 /* general causes count this much while live bytes keep growing */

const char *cause_name(cause_id id) {
  static const char *const names[CAUSE_COUNT] = {[CAUSE_OTHER_PROCESS] = "other_process",
                                                 [CAUSE_OUTSIDE_FRAMEWORK] = "outside_framework",
                                                 [CAUSE_CACHE_HELD] = "cache_held",
                                                 [CAUSE_LIMIT] = "limit",
                                                 [CAUSE_FRAGMENTATION] = "fragmentation",
                                                 [CAUSE_GRAPH_KEPT] = "graph_kept",
                                                 [CAUSE_NO_GRAD_MISSING] = "no_grad_missing",
                                                 [CAUSE_LEAK] = "leak",
                                                 [CAUSE_LOADED_TWICE] = "loaded_twice",
                                                 [CAUSE_EVAL_BATCH_BIGGER] = "eval_batch_bigger",
                                                 [CAUSE_ONE_SPIKE] = "one_spike",
                                                 [CAUSE_WEIGHTS_TOO_BIG] = "weights_too_big",
                                                 [CAUSE_OPTIMIZER_STATE] = "optimizer_state",
                                                 [CAUSE_BATCH_TOO_BIG] = "batch_too_big",
                                                 [CAUSE_HOST_DATASET_WHOLE] = "host_dataset_whole",
                                                 [CAUSE_HOST_LEAK] = "host_leak",
                                                 [CAUSE_HOST_OBJECTS] = "host_objects",
                                                 [CAUSE_HOST_COPIES] = "host_copies",
                                                 [CAUSE_HOST_WORKERS] = "host_workers",
                                                 [CAUSE_HOST_SHARED] = "host_shared",
                                                 [CAUSE_HOST_PINNED] = "host_pinned",
                                                 [CAUSE_HOST_NATIVE] = "host_native",
                                                 [CAUSE_HOST_LIMIT] = "host_limit",
                                                 [CAUSE_UNKNOWN] = "unknown"};
  return id < CAUSE_COUNT ? names[id] : "unknown";
}

const char *cause_title(cause_id id) {
  static const char *const titles[CAUSE_COUNT] = {
      [CAUSE_OTHER_PROCESS] = "Another process uses the device",
      [CAUSE_OUTSIDE_FRAMEWORK] = "Memory outside the framework",
      [CAUSE_CACHE_HELD] = "A cache that is not released",
      [CAUSE_LIMIT] = "A limit is set",
      [CAUSE_FRAGMENTATION] = "Free memory in pieces that are too small",
      [CAUSE_GRAPH_KEPT] = "The graph of every step is kept",
      [CAUSE_NO_GRAD_MISSING] = "Evaluation without no_grad",
      [CAUSE_LEAK] = "Something grows with every step",
      [CAUSE_LOADED_TWICE] = "The model is loaded twice",
      [CAUSE_EVAL_BATCH_BIGGER] = "A larger batch in evaluation",
      [CAUSE_ONE_SPIKE] = "One huge request",
      [CAUSE_WEIGHTS_TOO_BIG] = "Loaded data does not fit",
      [CAUSE_OPTIMIZER_STATE] = "The optimizer's own memory",
      [CAUSE_BATCH_TOO_BIG] = "Too much at once",
      [CAUSE_HOST_DATASET_WHOLE] = "A file read whole",
      [CAUSE_HOST_LEAK] = "Something grows in host memory",
      [CAUSE_HOST_OBJECTS] = "Many small Python objects",
      [CAUSE_HOST_COPIES] = "Copies in host memory",
      [CAUSE_HOST_WORKERS] = "Worker processes",
      [CAUSE_HOST_SHARED] = "Shared memory (/dev/shm)",
      [CAUSE_HOST_PINNED] = "Pinned memory",
      [CAUSE_HOST_NATIVE] = "Memory of C code",
      [CAUSE_HOST_LIMIT] = "Host memory ran out",
      [CAUSE_UNKNOWN] = "Not known"};
  return id < CAUSE_COUNT ? titles[id] : "Not known";
}

void findings_rank(findings *f) {
  for (uint32_t i = 1; i < f->count; i++)
    for (uint32_t j = i; j > 0 && f->list[j].confidence > f->list[j - 1].confidence; j--) {
      cause swap = f->list[j];
      f->list[j] = f->list[j - 1];
      f->list[j - 1] = swap;
    }
}

/* Returns whether so much is in holes that the live memory and the request would fit without them.
 * Then the live memory is not the problem, however it grew. */
static bool holes_are_most(const cause *all, const evidence *e, const findings *f) {
  if (f->growth.swells) return false; /* each new one leaves the hole of the last behind */
  return all[CAUSE_FRAGMENTATION].confidence > 0 && e->n.hole_bytes != MESSAGE_UNKNOWN &&
         (double)e->n.hole_bytes >= CAUSE_HOLES * (double)e->n.reserved_bytes;
}

static void lower_general(cause *all, const evidence *e, const findings *f) {
  if (!f->growth.found) return;
  if (holes_are_most(all, e, f)) {
    static const cause_id growing[] = {CAUSE_GRAPH_KEPT, CAUSE_NO_GRAD_MISSING, CAUSE_LEAK};
    for (size_t i = 0; i < sizeof growing / sizeof *growing; i++)
      all[growing[i]].confidence *= BESIDE_GROWTH;
    return;
  }
  static const cause_id general[] = {CAUSE_BATCH_TOO_BIG, CAUSE_OPTIMIZER_STATE,
                                     CAUSE_WEIGHTS_TOO_BIG, CAUSE_ONE_SPIKE, CAUSE_FRAGMENTATION};
  for (size_t i = 0; i < sizeof general / sizeof *general; i++)
    all[general[i]].confidence *= BESIDE_GROWTH;
}

/* Ranks growth first. Memory that grows every iteration fills any device; other causes only make
 * that happen sooner, and fixing them alone does not help. A copy that is made piece by piece looks
 * like growth, but is not. */
static void growth_first(cause *all, const findings *f) {
  static const cause_id growing[] = {CAUSE_GRAPH_KEPT, CAUSE_NO_GRAD_MISSING, CAUSE_LEAK},
                        beside[] = {CAUSE_LOADED_TWICE, CAUSE_OTHER_PROCESS,
                                    CAUSE_OUTSIDE_FRAMEWORK, CAUSE_CACHE_HELD};
  double most = 0;
  if (f->growth.whole < ITERATIONS_SURE) return;
  if (f->copies.copy_bytes > 0 && f->growth.stack_id == f->copies.stack_id) return;
  for (size_t i = 0; i < sizeof growing / sizeof *growing; i++)
    if (all[growing[i]].confidence > most) most = all[growing[i]].confidence;
  for (size_t i = 0; i < sizeof beside / sizeof *beside && most >= SURE; i++)
    if (all[beside[i]].confidence > BESIDE_FIRST) all[beside[i]].confidence = BESIDE_FIRST;
}

/* The device itself was full and its other users are unknown: this program may not be the cause. */
static void lower_unlisted(cause *all, const evidence *e) {
  if (!e->failed || e->n.free_bytes == MESSAGE_UNKNOWN || e->n.device_bytes != MESSAGE_UNKNOWN ||
      e->n.free_bytes >= e->n.asked_bytes)
    return;
  for (int i = 0; i < CAUSE_COUNT; i++)
    if (i != CAUSE_FRAGMENTATION) all[i].confidence *= 0.8;
}

static void say_unknown(cause *c, const evidence *e) {
  c->confidence = BELIEVED;
  cause_head(c, "The recording does not show why");
  if (!e->has_stacks)
    cause_say(
        c, "it has no stacks: record with torch.cuda.memory._record_memory_history(context='all') "
           "to get the line of each allocation");
  if (e->time.before_count > e->time.lifetime_count / 4)
    cause_say(c,
              "%u of %u allocations were made before it began: start recording earlier, or with a "
              "larger max_entries",
              e->time.before_count, e->time.lifetime_count);
  if (e->message.kind == MESSAGE_NONE)
    cause_say(c, "the error text is missing: add it with --message to see the device's side");
}

/* Drops growth that a replay shows only because it stops in the middle of a recording: what is
 * freed later did not stay. */
static void forget_passing_growth(findings *f, const evidence *e) {
  uint64_t all = 0, stays = 0;
  if (!e->elsewhere || !f->growth.found) return;
  for (uint32_t i = e->time.before_count; i < e->time.lifetime_count; i++) {
    if (!growth_has(&f->growth, e, i)) continue;
    all += e->time.lifetimes[i].bytes;
    stays += e->time.lifetimes[i].end == TIMELINE_OPEN ? e->time.lifetimes[i].bytes : 0;
  }
  if (stays * 2 >= all) return;
  free(f->growth.of_stack);
  f->growth = (growth){0};
}

/* Drops growth if no layer was called twice: what looks like iterations of a loop are the layers of
 * one pass. */
static void forget_layers_growth(findings *f, const evidence *e) {
  const program_facts *p = &e->program;
  if (!f->growth.found || !e->has_stacks || p->step != PROGRAM_FORWARD || p->modules == 0) return;
  if (need_layer_calls(e) > p->modules) return;
  free(f->growth.of_stack);
  f->growth = (growth){0};
}

static stow_status find_all(findings *f, const evidence *e, cause *all) {
  STOW_TRY(growth_find(&f->growth, e));
  forget_passing_growth(f, e);
  forget_layers_growth(f, e);
  need_find(&f->need, e);
  STOW_TRY(outlook_find(&f->outlook, e, &f->growth));
  if (!f->growth.found)
    STOW_TRY(evidence_held_to_end(e->whole != NULL ? e->whole : e, &f->held_to_end));
  STOW_TRY(copies_find(&f->copies, e));
  STOW_TRY(batch_find(f, e));
  STOW_TRY(fragmentation_find(f, e));
  cause_other_process(&all[CAUSE_OTHER_PROCESS], e);
  cause_outside_framework(&all[CAUSE_OUTSIDE_FRAMEWORK], e);
  cause_cache_held(&all[CAUSE_CACHE_HELD], e);
  cause_limit(&all[CAUSE_LIMIT], e);
  cause_fragmentation(&all[CAUSE_FRAGMENTATION], e, f);
  cause_graph_kept(&all[CAUSE_GRAPH_KEPT], e, f);
  cause_leak(&all[CAUSE_LEAK], e, f);
  cause_loaded_twice(&all[CAUSE_LOADED_TWICE], e, f);
  STOW_TRY(cause_eval_batch_bigger(&all[CAUSE_EVAL_BATCH_BIGGER], e, f));
  cause_no_grad_missing(&all[CAUSE_NO_GRAD_MISSING], e, f);
  cause_one_spike(&all[CAUSE_ONE_SPIKE], e, f);
  cause_weights_too_big(&all[CAUSE_WEIGHTS_TOO_BIG], e, f);
  cause_optimizer_state(&all[CAUSE_OPTIMIZER_STATE], e, f);
  cause_batch_too_big(&all[CAUSE_BATCH_TOO_BIG], e, f);
  cause_of_program(all, e, f);
  cause_of_outlook(all, e, f);
  lower_general(all, e, f);
  growth_first(all, f);
  lower_unlisted(all, e);
  return STOW_OK;
}

static void say_by_line(cause *c, const evidence *e, const site_table *sites, const census *all) {
  char text[400] = "", place[256];
  size_t length = 0;
  uint32_t shown = all->holder_count < HOLDERS_SHOWN ? all->holder_count : HOLDERS_SHOWN;
  for (uint32_t i = 0; i < shown && length < sizeof text; i++) {
    const holder *h = &all->holders[i];
    uint32_t frame_id = h->key < sites->count ? sites->frames[h->key] : 0;
    int added = snprintf(text + length, sizeof text - length, "%s%s from %s", i > 0 ? ", " : "",
                         cause_size(h->bytes),
                         frame_id == 0 ? "no recorded line (autograd, or earlier)"
                                       : evidence_place(e, place, sizeof place, frame_id));
    length += added > 0 ? (size_t)added : 0;
  }
  if (shown > 0) cause_say(c, "largest holders: %s", text);
}

static void say_by_tag(cause *c, const evidence *e, const census *all) {
  for (uint32_t i = 0; i < all->holder_count && i < HOLDERS_SHOWN; i++) {
    const char *tag = recording_text(e->source, all->holders[i].key);
    if (all->holders[i].key == 0 || tag[0] == '\0') continue;
    cause_say(c, "%s of live memory has the tag \"%s\"", cause_size(all->holders[i].bytes), tag);
    return;
  }
}

/* Lists what holds the live memory, for every cause: by line, and by tag if there are tags. */
static stow_status say_holders(cause *c, const evidence *e) {
  site_table sites = {0};
  census by_line = {0}, by_tag = {0};
  stow_status status = STOW_OK;
  if (e->n.live_bytes == 0) return STOW_OK;
  if (e->has_stacks) {
    status = site_table_build(&sites, e->source);
    if (status == STOW_OK)
      status = census_take(&by_line, &e->time, &sites, GROUP_SITE, e->fail_tick);
    if (status == STOW_OK) say_by_line(c, e, &sites, &by_line);
  }
  if (status == STOW_OK) status = census_take(&by_tag, &e->time, &sites, GROUP_TAG, e->fail_tick);
  if (status == STOW_OK) say_by_tag(c, e, &by_tag);
  census_free(&by_line);
  census_free(&by_tag);
  site_table_free(&sites);
  return status;
}

stow_status causes_find(findings *f, const evidence *e) {
  *f = (findings){0};
  if (!e->failed && !e->foreign) return STOW_OK;
  for (int i = 0; i < CAUSE_COUNT; i++)
    f->list[i] = (cause){.id = (cause_id)i, .headline = BUFFER_INIT, .evidence = BUFFER_INIT};
  f->count = CAUSE_COUNT;
  STOW_TRY(find_all(f, e, f->list));
  double best = 0;
  for (int i = 0; i < CAUSE_COUNT; i++)
    if (f->list[i].id != CAUSE_LIMIT && f->list[i].confidence > best) best = f->list[i].confidence;
  if (best < BELIEVED && f->list[CAUSE_LIMIT].confidence < BELIEVED)
    say_unknown(&f->list[CAUSE_UNKNOWN], e);
  STOW_TRY(findings_status(f)); /* before any of them is dropped */
  findings_rank(f);
  for (uint32_t i = 1; i < f->count && f->list[0].confidence >= BESIDE_FIRST; i++)
    if (f->list[i].confidence > BESIDE_FIRST) f->list[i].confidence = BESIDE_FIRST;
  while (f->count > 0 && f->list[f->count - 1].confidence < SHOWN_LEAST) {
    cause *last = &f->list[--f->count];
    buffer_free(&last->headline);
    buffer_free(&last->evidence);
  }
  if (f->count > 0) STOW_TRY(say_holders(&f->list[0], e));
  return findings_status(f);
}

void findings_free(findings *f) {
  for (uint32_t i = 0; i < f->count; i++) {
    buffer_free(&f->list[i].headline);
    buffer_free(&f->list[i].evidence);
  }
  f->count = 0;
  free(f->growth.of_stack);
  f->growth.of_stack = NULL;
  free(f->copies.list);
  f->copies.list = NULL;
  outlook_free(&f->outlook);
}
