/* Evidence: finds the failure, does the arithmetic of the device, calls the parts. */
#include "advise/evidence.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "replay/census.h"
#include "replay/site.h"

/* Error texts round to two decimals: a number in GiB is known to about 5 MiB. */
#define ROUNDING (UINT64_C(16) << 20)

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* Returns whether a library with an allocator of its own wrote the error, beside PyTorch in the
 * same process. A server's error is its PyTorch's. */
static bool has_own_allocator(message_kind kind) {
  return kind == MESSAGE_CUPY || kind == MESSAGE_XLA || kind == MESSAGE_TENSORFLOW ||
         kind == MESSAGE_NUMBA || kind == MESSAGE_RMM || kind == MESSAGE_ONNX ||
         kind == MESSAGE_PADDLE || kind == MESSAGE_TENSORRT || kind == MESSAGE_CTRANSLATE ||
         kind == MESSAGE_LLAMA;
}

/* Finds the failure that the text describes: the last one of its size, or the last of all. Programs
 * survive refusals (cuDNN then requests a smaller workspace), so earlier ones mean little. The
 * driver also records the refusal of another library's request. */
static void find_failure(evidence *e) {
  const timeline *t = &e->time;
  message_kind kind = e->message.kind;
  uint32_t last = TIMELINE_NONE, named = TIMELINE_NONE;
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    const event *at = timeline_event(t, tick);
    if (at->kind != EVENT_FAIL) continue;
    last = tick;
    uint64_t asked = e->message.asked_bytes;
    uint64_t off = at->bytes > asked ? at->bytes - asked : asked - at->bytes;
    if (known(asked) && (off <= asked / 100 || off < 4096)) named = tick;
  }
  if (named != TIMELINE_NONE) last = named;
  bool framework = kind == MESSAGE_TORCH || kind == MESSAGE_VLLM || kind == MESSAGE_SGLANG;
  bool beside = has_own_allocator(kind) && t->reserved_known && t->lifetime_count > 0;
  e->foreign = message_is_device(kind) && !framework && (named == TIMELINE_NONE || beside);
  e->refused = e->foreign && beside && last != TIMELINE_NONE;
  e->failed = last != TIMELINE_NONE && !e->foreign;
  if (!e->failed && !e->refused) return;
  const event *at = timeline_event(t, last);
  e->fail_tick = last;
  e->fail_stack_id = at->stack_id <= e->source->stack_count ? at->stack_id : 0;
  e->n.asked_bytes = at->bytes;
  if (at->addr != 0) e->n.free_bytes = at->addr;
  if (kind != MESSAGE_NONE) return;
  uint32_t after = 0;
  for (uint32_t tick = last + 1; tick < t->tick_count; tick++)
    after += timeline_event(t, tick)->kind == EVENT_ALLOC;
  e->survived = after > 16;
}

/* Finds the most live and the most reserved bytes up to the failure. */
static void find_peaks(evidence *e) {
  const timeline *t = &e->time;
  uint64_t live = 0, reserved = 0;
  uint32_t peak_tick = 0;
  for (uint32_t i = 0; i < t->before_count; i++) live += t->lifetimes[i].bytes;
  for (uint32_t i = 0; i < t->extent_count; i++)
    if (t->extents[i].before) reserved += t->extents[i].bytes;
  e->peak_live_bytes = live;
  e->peak_reserved_bytes = reserved;
  bool known_tick = e->failed || e->refused;
  uint32_t until = known_tick ? e->fail_tick : t->tick_count;
  for (uint32_t tick = 0; tick < until; tick++) {
    const event *at = timeline_event(t, tick);
    live += (uint64_t)timeline_change(t, tick);
    if (live > e->peak_live_bytes) {
      e->peak_live_bytes = live;
      peak_tick = tick;
    }
    if (at->kind == EVENT_SEGMENT_ALLOC || at->kind == EVENT_SEGMENT_MAP) reserved += at->bytes;
    if (at->kind == EVENT_SEGMENT_FREE || at->kind == EVENT_SEGMENT_UNMAP)
      reserved -= least(reserved, at->bytes);
    if (reserved > e->peak_reserved_bytes) e->peak_reserved_bytes = reserved;
  }
  if (known_tick) return;
  /* Nothing failed: the state of interest is the peak; another's failure is seen at the end. */
  e->fail_tick = peak_tick;
  if (e->foreign && t->tick_count > 0) e->fail_tick = t->tick_count - 1;
}

/* Determines the device's other users from the text: processes by name, the rest by what is
 * missing. */
static void account_for_device(evidence *e) {
  numbers *n = &e->n;
  const message *m = &e->message;
  if (!known(n->free_bytes)) n->free_bytes = m->free_bytes;
  n->device_bytes = known(m->device_bytes) ? m->device_bytes
                                           : (e->source->device_bytes != 0 ? e->source->device_bytes
                                                                           : MESSAGE_UNKNOWN);
  n->limit_bytes = m->limit_bytes;
  const char *limit = recording_fact(e->source, "limit_bytes");
  if (!known(n->limit_bytes) && limit != NULL) {
    /* A run's limit: the reported free bytes are free within it. The device's own are unknown. */
    n->limit_bytes = strtoull(limit, NULL, 10);
    /* The driver's context and other libraries count in it: the allocator never gets their share.
     */
    if (m->kind == MESSAGE_TORCH && known(n->free_bytes) && e->time.reserved_known &&
        n->reserved_bytes + n->free_bytes < n->limit_bytes)
      e->beside_bytes = n->limit_bytes - n->reserved_bytes - n->free_bytes;
    n->free_bytes = MESSAGE_UNKNOWN;
    return;
  }
  if (message_device_is_limit(m)) {
    n->limit_bytes = m->device_bytes;
    n->device_bytes = n->free_bytes = MESSAGE_UNKNOWN;
    return;
  }
  uint64_t listed = 0;
  for (uint32_t i = 0; i < m->process_count; i++) listed += m->processes[i].bytes;
  if (known(m->process_bytes)) {
    n->outside_framework_bytes =
        m->process_bytes > n->reserved_bytes ? m->process_bytes - n->reserved_bytes : 0;
    n->other_process_bytes = listed;
    if (m->process_count == 0 && known(n->device_bytes) && known(n->free_bytes)) {
      uint64_t seen = n->free_bytes + m->process_bytes;
      n->other_process_bytes = n->device_bytes > seen + ROUNDING ? n->device_bytes - seen : 0;
    }
  } else if (m->process_count > 0) {
    n->other_process_bytes = listed;
  }
  if (!known(n->device_bytes)) return;
  uint64_t sum = n->reserved_bytes;
  if (known(n->free_bytes)) sum += n->free_bytes;
  if (known(n->other_process_bytes)) sum += n->other_process_bytes;
  if (known(n->outside_framework_bytes)) sum += n->outside_framework_bytes;
  n->unknown_bytes = n->device_bytes > sum ? n->device_bytes - sum : 0;
  /* A rest from rounding is not another user: it is added to the least exact number. */
  if (known(n->outside_framework_bytes) && known(n->free_bytes)) {
    uint64_t off = n->device_bytes > sum ? n->device_bytes - sum : sum - n->device_bytes;
    if (off > ROUNDING) return;
    n->outside_framework_bytes =
        n->device_bytes > sum ? n->outside_framework_bytes + off
                              : n->outside_framework_bytes - least(off, n->outside_framework_bytes);
    n->unknown_bytes = 0;
  }
}

static int by_addr(const void *a, const void *b) {
  const extent *x = *(const extent *const *)a, *y = *(const extent *const *)b;
  return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Returns the index of the last extent that begins at or below `addr`; `count` if there is none. */
static uint32_t extent_below(const extent *const *held, uint32_t count, uint64_t addr) {
  uint32_t low = 0, high = count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (held[middle]->addr <= addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low > 0 ? low - 1 : count;
}

/* Counts what another library holds: PyTorch requests a segment for a block, so a segment in which
 * no block ever was is not PyTorch's. Segments that are older than the recording count as its. */
static stow_status count_beside(evidence *e, uint64_t *bytes) {
  const timeline *t = &e->time;
  const extent **held = malloc((t->extent_count + 1u) * sizeof(*held));
  bool *used = calloc(t->extent_count + 1u, sizeof *used);
  uint32_t count = 0;
  *bytes = 0;
  if (held == NULL || used == NULL) {
    free(held);
    free(used);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u segments", t->extent_count);
  }
  for (uint32_t i = 0; i < t->extent_count; i++)
    if (extent_live(&t->extents[i], e->fail_tick)) held[count++] = &t->extents[i];
  qsort(held, count, sizeof *held, by_addr);
  for (uint32_t i = 0; i < t->lifetime_count; i++) {
    const lifetime *l = &t->lifetimes[i];
    uint32_t at = extent_below(held, count, l->addr);
    /* A block may reach into the next mapped pieces. */
    for (; at < count && l->addr + l->bytes > held[at]->addr; at++)
      used[at] |= l->end > held[at]->start;
  }
  for (uint32_t i = 0; i < count; i++)
    if (!used[i] && !held[i]->before) *bytes += held[i]->bytes;
  free(held);
  free(used);
  return STOW_OK;
}

static stow_status count_memory(evidence *e) {
  site_table sites = {0};
  census c = {0};
  stow_status status = site_table_build(&sites, e->source);
  if (status == STOW_OK) status = census_take(&c, &e->time, &sites, GROUP_SIZE, e->fail_tick);
  if (status == STOW_OK) {
    numbers *n = &e->n;
    n->live_bytes = c.live_bytes;
    if (e->time.reserved_known) {
      n->reserved_bytes = c.reserved_bytes;
      n->cached_bytes = c.reserved_bytes > c.live_bytes ? c.reserved_bytes - c.live_bytes : 0;
      n->hole_bytes = c.hole_bytes;
      n->largest_hole_bytes = c.largest_hole_bytes;
    } else if (known(e->message.cached_bytes)) {
      n->cached_bytes = e->message.cached_bytes;
      n->reserved_bytes = n->live_bytes + n->cached_bytes;
    } else {
      n->reserved_bytes = n->live_bytes;
    }
    if (!known(n->asked_bytes)) n->asked_bytes = e->message.asked_bytes;
    if (e->refused) status = count_beside(e, &e->other_library_bytes);
    n->reserved_bytes -= least(n->reserved_bytes, e->other_library_bytes);
    if (known(n->cached_bytes)) n->cached_bytes -= least(n->cached_bytes, e->other_library_bytes);
    account_for_device(e);
    if (e->other_library_bytes > 0 && !known(n->outside_framework_bytes))
      n->outside_framework_bytes = e->other_library_bytes;
  }
  census_free(&c);
  site_table_free(&sites);
  return status;
}

/* Uses a replay's numbers instead of the recording's, which are for another device. */
static void take_replay(evidence *e, const evidence_given *given) {
  numbers *n = &e->n;
  e->elsewhere = true;
  e->fits_part = given->part;
  e->fits_whole = given->of;
  e->fits_samples = given->samples;
  e->fits_expandable = given->expandable;
  e->survived = false;
  e->whole = given->whole;
  /* The rest describes another moment. */
  program_facts said = {.batch = e->program.batch, .input_count = e->program.input_count};
  memcpy(said.inputs, e->program.inputs, sizeof said.inputs);
  e->program = said;
  n->limit_bytes = given->limit_bytes;
  n->reserved_bytes = given->reserved_bytes;
  n->cached_bytes =
      given->reserved_bytes > n->live_bytes ? given->reserved_bytes - n->live_bytes : 0;
  n->hole_bytes = n->cached_bytes;
  n->largest_hole_bytes = given->largest_hole_bytes;
  n->device_bytes = n->free_bytes = n->unknown_bytes = MESSAGE_UNKNOWN;
  n->other_process_bytes = n->outside_framework_bytes = MESSAGE_UNKNOWN;
  e->peak_reserved_bytes = least(e->peak_reserved_bytes, given->limit_bytes);
}

stow_status evidence_gather(evidence *e, const recording *r, const evidence_given *given) {
  *e = (evidence){.source = r,
                  .n = {.asked_bytes = MESSAGE_UNKNOWN,
                        .cached_bytes = MESSAGE_UNKNOWN,
                        .hole_bytes = MESSAGE_UNKNOWN,
                        .largest_hole_bytes = MESSAGE_UNKNOWN,
                        .other_process_bytes = MESSAGE_UNKNOWN,
                        .outside_framework_bytes = MESSAGE_UNKNOWN,
                        .limit_bytes = MESSAGE_UNKNOWN,
                        .device_bytes = MESSAGE_UNKNOWN,
                        .free_bytes = MESSAGE_UNKNOWN,
                        .unknown_bytes = MESSAGE_UNKNOWN}};
  const char *error = recording_text(r, r->error_id);
  if (given->text != NULL && given->limit_bytes == 0)
    message_read(&e->message, given->text, given->text_bytes);
  else
    message_read(&e->message, error, strlen(error));
  const char *said = recording_text(r, recording_fact_id(r, RECORDING_PROGRAM));
  program_read(&e->program, said, strlen(said));
  e->expandable = steps_expandable(r);
  for (size_t i = 0; i < r->stack_count && !e->has_stacks; i++)
    e->has_stacks = r->stacks[i].count > 0;
  STOW_TRY(timeline_build(&e->time, r, steps_main_device(r)));
  find_failure(e);
  find_peaks(e);
  if (given->to_end && !e->failed && e->time.tick_count > 0) e->fail_tick = e->time.tick_count - 1;
  STOW_TRY(evidence_stacks(e));
  STOW_TRY(count_memory(e));
  if (given->limit_bytes > 0) take_replay(e, given);
  STOW_TRY(evidence_phases(e));
  STOW_TRY(evidence_loop(e));
  return evidence_saved(e);
}

void evidence_free(evidence *e) {
  timeline_free(&e->time);
  free(e->phase_of_stack);
  free(e->user_of_stack);
  free(e->helped_of_stack);
  free(e->caller_of_stack);
  free(e->inner_of_stack);
  free(e->outer_of_stack);
  free(e->purpose_of_stack);
  free(e->norm_of_stack);
  free(e->layer_of_stack);
  free(e->phase_of);
  loop_free(&e->loop);
  map_free(&e->passed);
  map_free(&e->saved);
  map_free(&e->ways);
  map_free(&e->trained);
  *e = (evidence){0};
}

bool evidence_may_train(const evidence *e) {
  const evidence *seen = e->whole != NULL ? e->whole : e;
  return !e->elsewhere || !e->has_stacks || seen->train_end_tick > 0;
}

bool evidence_limit_bound(const evidence *e) {
  if (!known(e->n.limit_bytes)) return false;
  return !known(e->n.free_bytes) || !known(e->n.asked_bytes) || e->n.free_bytes >= e->n.asked_bytes;
}

uint64_t evidence_capacity(const evidence *e) {
  if (evidence_limit_bound(e)) return e->n.limit_bytes - least(e->beside_bytes, e->n.limit_bytes);
  if (known(e->n.free_bytes)) return e->n.reserved_bytes + e->n.free_bytes;
  if (known(e->n.limit_bytes)) return e->n.limit_bytes;
  return known(e->n.device_bytes) ? e->n.device_bytes : 0;
}
