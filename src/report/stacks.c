/* The tree of stacks: prefixes, outermost frame first, shared. */
#include "report/stacks.h"

#include <stdlib.h>

static stow_status no_memory(uint64_t count) {
  return stow_fail(STOW_ERR_HOST_MEMORY,
                   "no host memory for the stacks of the report (%llu frames)",
                   (unsigned long long)count);
}

static stow_status node_add(stack_tree *tree, uint32_t parent, uint32_t number) {
  if (tree->count == tree->capacity) {
    uint32_t wanted = tree->capacity == 0 ? 1024 : tree->capacity * 2;
    uint32_t *parents = realloc(tree->parents, wanted * sizeof *parents);
    if (parents != NULL) tree->parents = parents;
    uint32_t *frames = realloc(tree->frames, wanted * sizeof *frames);
    if (frames != NULL) tree->frames = frames;
    if (parents == NULL || frames == NULL) return no_memory(wanted);
    tree->capacity = wanted;
  }
  tree->parents[tree->count] = parent;
  tree->frames[tree->count++] = number;
  return STOW_OK;
}

static uint32_t frame_number(stack_tree *tree, uint32_t frame_id) {
  if (tree->number_of_frame[frame_id] == 0) {
    tree->number_of_frame[frame_id] = tree->frame_count;
    tree->frame_ids[tree->frame_count++] = frame_id;
  }
  return tree->number_of_frame[frame_id];
}

static stow_status add_stack(stack_tree *tree, map *children, const recording *r, uint32_t id) {
  const stack *s = &r->stacks[id - 1];
  uint32_t node = 0;
  for (uint32_t i = s->count; i-- > 0;) {
    uint32_t frame_id = r->stack_frames[s->first + i];
    if (frame_id == 0 || frame_id > r->frame_count) continue;
    uint32_t number = frame_number(tree, frame_id);
    uint64_t key = (uint64_t)node << 32 | number, *have = map_get(children, key);
    if (have != NULL) {
      node = (uint32_t)*have;
      continue;
    }
    STOW_TRY(map_put(children, key, tree->count));
    STOW_TRY(node_add(tree, node, number));
    node = tree->count - 1;
  }
  tree->leaf_of_stack[id] = node;
  return STOW_OK;
}

stow_status stack_tree_build(stack_tree *tree, const timeline *t) {
  const recording *r = t->source;
  *tree = (stack_tree){.frame_count = 1};
  tree->leaf_of_stack = calloc(r->stack_count + 1, sizeof *tree->leaf_of_stack);
  tree->number_of_frame = calloc(r->frame_count + 1, sizeof *tree->number_of_frame);
  tree->frame_ids = calloc(r->frame_count + 1, sizeof *tree->frame_ids);
  uint8_t *seen = calloc(r->stack_count + 1, 1);
  map children = {0};
  stow_status status = STOW_OK;
  if (tree->leaf_of_stack == NULL || tree->number_of_frame == NULL || tree->frame_ids == NULL ||
      seen == NULL)
    status = no_memory(r->stack_frame_count);
  if (status == STOW_OK) status = node_add(tree, 0, 0);
  for (uint32_t i = 0; i < t->lifetime_count && status == STOW_OK; i++) {
    uint32_t id = t->lifetimes[i].stack_id;
    if (id == 0 || seen[id]) continue;
    seen[id] = 1;
    status = add_stack(tree, &children, r, id);
  }
  /* The stacks of requests that failed. */
  for (uint32_t tick = 0; tick < t->tick_count && status == STOW_OK; tick++) {
    const event *e = timeline_event(t, tick);
    if (e->kind != EVENT_FAIL || e->stack_id == 0 || e->stack_id > r->stack_count) continue;
    if (!seen[e->stack_id]) status = add_stack(tree, &children, r, e->stack_id);
    seen[e->stack_id] = 1;
  }
  map_free(&children);
  free(seen);
  return status;
}

void stack_tree_free(stack_tree *tree) {
  free(tree->parents);
  free(tree->frames);
  free(tree->leaf_of_stack);
  free(tree->number_of_frame);
  free(tree->frame_ids);
  *tree = (stack_tree){0};
}

stow_status text_table_init(text_table *t, const recording *r) {
  *t = (text_table){.names = r->names.count, .count = 1};
  t->number_of = calloc((size_t)r->names.count + 1, sizeof *t->number_of);
  t->ids = calloc((size_t)r->names.count + 1, sizeof *t->ids);
  return t->number_of != NULL && t->ids != NULL ? STOW_OK : no_memory(r->names.count);
}

uint32_t text_number(text_table *t, uint32_t name_id) {
  if (name_id == 0 || name_id > t->names) return 0;
  if (t->number_of[name_id] == 0) {
    t->number_of[name_id] = t->count;
    t->ids[t->count++] = name_id;
  }
  return t->number_of[name_id];
}

void text_table_free(text_table *t) {
  free(t->number_of);
  free(t->ids);
  *t = (text_table){0};
}
