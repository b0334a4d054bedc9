/* Recording: growable tables within one budget. */
#include "recordings/recording.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"

void recording_init(recording *r, uint64_t max_bytes) {
  *r = (recording){.max_bytes = max_bytes, .seed = hash_u64(clock_ns(), (uintptr_t)r)};
  r->names.max_bytes = max_bytes;
}

void recording_free(recording *r) {
  free(r->events);
  free(r->origins);
  free(r->frames);
  free(r->stacks);
  free(r->stack_frames);
  free(r->segments);
  free(r->blocks);
  free(r->settings);
  free(r->facts);
  intern_free(&r->names);
  map_free(&r->origin_index);
  map_free(&r->frame_index);
  map_free(&r->stack_index);
  recording_init(r, r->max_bytes);
}

/* Makes room for `more` elements of `size` bytes in one table and charges the growth to the
 * budget. */
static stow_status grow(recording *r, void **table, size_t *capacity, size_t count, size_t more,
                        size_t size) {
  if (count + more <= *capacity) return STOW_OK;
  size_t wanted = *capacity == 0 ? 64 : *capacity + *capacity / 2;
  if (wanted < count + more) wanted = count + more;
  uint64_t bytes;
  if (!checked_mul(&bytes, wanted, size))
    return stow_fail(STOW_ERR_OVERFLOW, "a recording of %zu entries is too large", wanted);
  uint64_t held = r->held_bytes + bytes - (uint64_t)*capacity * size;
  if (r->max_bytes != 0 && held > r->max_bytes)
    return stow_fail(STOW_ERR_BUDGET, "the recording needs more than its budget of %llu MiB",
                     (unsigned long long)(r->max_bytes >> 20));
  void *bigger = realloc(*table, (size_t)bytes);
  if (bigger == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a recording table of %llu MiB",
                     (unsigned long long)(bytes >> 20));
  *table = bigger;
  *capacity = wanted;
  r->held_bytes = held;
  return STOW_OK;
}

#define GROW(r, table, more)                                                                       \
  grow((r), (void **)&(r)->table##s, &(r)->table##_capacity, (r)->table##_count, (more),           \
       sizeof *(r)->table##s)

stow_status recording_add_event(recording *r, const event *e, const origin *of) {
  uint32_t id = e->origin_id;
  if (of != NULL) STOW_TRY(recording_origin(r, &id, of));
  STOW_TRY(GROW(r, event, 1));
  event *added = &r->events[r->event_count++];
  *added = *e;
  added->origin_id = id;
  return STOW_OK;
}

stow_status recording_add_segment(recording *r, const segment *s) {
  STOW_TRY(GROW(r, segment, 1));
  r->segments[r->segment_count++] = *s;
  return STOW_OK;
}

stow_status recording_add_block(recording *r, const block *b) {
  STOW_TRY(GROW(r, block, 1));
  r->blocks[r->block_count++] = *b;
  return STOW_OK;
}

stow_status recording_name(recording *r, uint32_t *id, const char *bytes, size_t count) {
  uint32_t number;
  STOW_TRY(intern_add(&r->names, &number, bytes, count));
  *id = number + 1;
  return STOW_OK;
}

static stow_status text_pair(recording *r, setting *pair, const char *key, const char *value) {
  STOW_TRY(recording_name(r, &pair->key_id, key, strlen(key)));
  return recording_name(r, &pair->value_id, value, strlen(value));
}

stow_status recording_add_setting(recording *r, const char *key, const char *value) {
  setting pair;
  STOW_TRY(text_pair(r, &pair, key, value));
  STOW_TRY(GROW(r, setting, 1));
  r->settings[r->setting_count++] = pair;
  return STOW_OK;
}

stow_status recording_add_fact(recording *r, const char *key, const char *value) {
  setting pair;
  STOW_TRY(text_pair(r, &pair, key, value));
  STOW_TRY(GROW(r, fact, 1));
  r->facts[r->fact_count++] = pair;
  return STOW_OK;
}

static bool same_origin(const origin *a, const origin *b) {
  return a->stream == b->stream && a->thread == b->thread && a->tag_id == b->tag_id &&
         a->device == b->device && a->tier == b->tier;
}

stow_status recording_origin(recording *r, uint32_t *id, const origin *of) {
  if (r->origin_last != 0 && same_origin(&r->origins[r->origin_last - 1], of)) {
    *id = r->origin_last;
    return STOW_OK;
  }
  /* The members without the structure's padding. */
  uint64_t key[3] = {of->stream, (uint64_t)of->thread << 32 | of->tag_id,
                     (uint64_t)of->device << 8 | of->tier};
  uint64_t hash = hash_bytes(key, sizeof key, r->seed);
  /* Same probing as for frames below. */
  for (uint64_t *have; (have = map_get(&r->origin_index, hash)) != NULL; hash++) {
    if (same_origin(&r->origins[*have - 1], of)) {
      *id = r->origin_last = (uint32_t)*have;
      return STOW_OK;
    }
  }
  if (r->origin_count == ORIGINS_MAX)
    return stow_fail(STOW_ERR_OVERFLOW,
                     "more than %u different streams, threads and tags in one recording",
                     ORIGINS_MAX);
  STOW_TRY(GROW(r, origin, 1));
  STOW_TRY(map_put(&r->origin_index, hash, r->origin_count + 1));
  r->origins[r->origin_count++] = *of;
  *id = r->origin_last = (uint32_t)r->origin_count;
  return STOW_OK;
}

stow_status recording_frame(recording *r, uint32_t *id, uint32_t name_id, uint32_t file_id,
                            uint32_t line) {
  frame f = {name_id, file_id, line};
  uint64_t hash = hash_bytes(&f, sizeof f, r->seed);
  /* If the hashes of different frames are equal, the next key is tried; the chain ends at an empty
   * one. */
  for (uint64_t *have; (have = map_get(&r->frame_index, hash)) != NULL; hash++) {
    if (memcmp(&r->frames[*have - 1], &f, sizeof f) == 0) {
      *id = (uint32_t)*have;
      return STOW_OK;
    }
  }
  STOW_TRY(GROW(r, frame, 1));
  STOW_TRY(map_put(&r->frame_index, hash, r->frame_count + 1));
  r->frames[r->frame_count++] = f;
  *id = (uint32_t)r->frame_count;
  return STOW_OK;
}

stow_status recording_stack(recording *r, uint32_t *id, const uint32_t *frame_ids, uint32_t count) {
  uint64_t hash = hash_bytes(frame_ids, count * sizeof *frame_ids, r->seed);
  for (uint64_t *have; (have = map_get(&r->stack_index, hash)) != NULL; hash++) {
    const stack *s = &r->stacks[*have - 1];
    if (s->count == count && (count == 0 || memcmp(r->stack_frames + s->first, frame_ids,
                                                   count * sizeof *frame_ids) == 0)) {
      *id = (uint32_t)*have;
      return STOW_OK;
    }
  }
  STOW_TRY(GROW(r, stack, 1));
  STOW_TRY(GROW(r, stack_frame, count));
  STOW_TRY(map_put(&r->stack_index, hash, r->stack_count + 1));
  r->stacks[r->stack_count++] = (stack){r->stack_frame_count, count};
  if (count > 0)
    memcpy(r->stack_frames + r->stack_frame_count, frame_ids, count * sizeof *frame_ids);
  r->stack_frame_count += count;
  *id = (uint32_t)r->stack_count;
  return STOW_OK;
}

static int by_time(const void *a, const void *b, void *of) {
  const event *x = a, *y = b;
  if (x->time_ns != y->time_ns) return x->time_ns < y->time_ns ? -1 : 1;
  uint32_t first = event_origin(of, x)->thread, second = event_origin(of, y)->thread;
  return first < second ? -1 : first > second;
}

void recording_sort(recording *r) {
  for (size_t i = 1; i < r->event_count; i++) {
    if (by_time(&r->events[i - 1], &r->events[i], r) <= 0) continue;
    qsort_r(r->events, r->event_count, sizeof *r->events, by_time, r);
    return;
  }
}

const char *recording_text(const recording *r, uint32_t name_id) {
  return name_id == 0 ? "" : intern_get(&r->names, name_id - 1, NULL);
}

static const char *find_pair(const recording *r, const setting *pairs, size_t count,
                             const char *key) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(recording_text(r, pairs[i].key_id), key) == 0)
      return recording_text(r, pairs[i].value_id);
  return NULL;
}

const char *recording_setting(const recording *r, const char *key) {
  return find_pair(r, r->settings, r->setting_count, key);
}

uint32_t recording_fact_id(const recording *r, const char *key) {
  for (size_t i = r->fact_count; i > 0; i--)
    if (strcmp(recording_text(r, r->facts[i - 1].key_id), key) == 0)
      return r->facts[i - 1].value_id;
  return 0;
}

const char *recording_fact(const recording *r, const char *key) {
  return find_pair(r, r->facts, r->fact_count, key);
}
