/* The tree of address ranges of the simulated device, by address. A lookup is logarithmic in the
 * number of ranges. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "device/sim_state.h"

/* The tree is a treap: random priorities determine its shape. */

/* Splits the tree: ranges below `addr` to *low, the others to *high. */
static void tree_split(sim_range *root, stow_addr addr, sim_range **low, sim_range **high) {
  if (root == NULL) {
    *low = *high = NULL;
  } else if (root->addr < addr) {
    tree_split(root->right, addr, &root->right, high);
    *low = root;
  } else {
    tree_split(root->left, addr, low, &root->left);
    *high = root;
  }
}

static sim_range *tree_merge(sim_range *low, sim_range *high) {
  if (low == NULL) return high;
  if (high == NULL) return low;
  if (low->priority > high->priority) {
    low->right = tree_merge(low->right, high);
    return low;
  }
  high->left = tree_merge(low, high->left);
  return high;
}

static void tree_add(sim *s, sim_range *range) {
  ASSERT(range->left == NULL && range->right == NULL);
  sim_range *low, *high;
  range->priority = hash_u64(s->random++, 0);
  tree_split(s->ranges, range->addr, &low, &high);
  s->ranges = tree_merge(tree_merge(low, range), high);
}

static void tree_remove(sim *s, sim_range *range) {
  ASSERT(s->ranges != NULL);
  sim_range **link = &s->ranges;
  while (*link != range) link = range->addr < (*link)->addr ? &(*link)->left : &(*link)->right;
  *link = tree_merge(range->left, range->right);
}

sim_range *sim_range_at(const sim *s, stow_addr addr) {
  sim_range *at = s->ranges;
  while (at != NULL) {
    if (addr < at->addr)
      at = at->left;
    else if (addr - at->addr < at->bytes)
      return at;
    else
      at = at->right;
  }
  return NULL;
}

sim_range *sim_range_after(const sim *s, stow_addr addr) {
  sim_range *at = s->ranges, *best = NULL;
  while (at != NULL) {
    if (at->addr >= addr) best = at;
    at = at->addr >= addr ? at->left : at->right;
  }
  return best;
}

static void tree_free(sim *s, sim_range *root) {
  if (root == NULL) return;
  tree_free(s, root->left);
  tree_free(s, root->right);
  sim_memory_unreserve(s, root->addr, root->bytes);
  free(root->slots);
  free(root);
}

void sim_range_free_all(sim *s) {
  tree_free(s, s->ranges);
  s->ranges = NULL;
}

/* Adds a range of `bytes` with its own addresses to the tree. Reserves the addresses first: an
 * impossible size must fail before the bookkeeping allocates memory for it. */
stow_status sim_range_add(sim *s, sim_range **out, uint64_t bytes, uint64_t align, uint64_t slots) {
  ASSERT(lock_held(&s->lock));
  ASSERT(out != NULL);
  stow_addr addr;
  STOW_TRY(sim_memory_reserve(s, &addr, bytes, align));
  sim_range *range = calloc(1, sizeof *range);
  if (range != NULL && slots > 0) range->slots = calloc(slots, sizeof *range->slots);
  if (range == NULL || (slots > 0 && range->slots == NULL)) {
    free(range);
    sim_memory_unreserve(s, addr, bytes);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to track a range of %llu bytes",
                     (unsigned long long)bytes);
  }
  range->addr = addr;
  range->bytes = bytes;
  s->reserved_bytes += bytes;
  tree_add(s, range);
  *out = range;
  return STOW_OK;
}

void sim_range_remove(sim *s, sim_range *range) {
  ASSERT(lock_held(&s->lock));
  ASSERT(range->mapped == 0);
  tree_remove(s, range);
  s->reserved_bytes -= range->bytes;
  sim_memory_unreserve(s, range->addr, range->bytes);
  free(range->slots);
  free(range);
}
