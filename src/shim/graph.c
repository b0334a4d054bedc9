/* Graph: the words of nodes, kept per executable graph. See graph.h. */
#include "shim/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/compare.h"
#include "base/hash.h"
#include "shim/shim.h"

/* More nodes than any framework creates, and the nesting of child graphs. */
enum { NODES_MAX = 1 << 20, DEPTH_MAX = 16 };
/* CUgraphNodeType. Types that are not listed read no memory of the program. */
enum { NODE_KERNEL, NODE_COPY, NODE_FILL, NODE_HOST, NODE_CHILD, NODE_BATCH = 12, NODE_IF = 13 };
/* The smallest and largest word that can be a device address. */
#define ADDRESS_LOW  (UINT64_C(1) << 21)
#define ADDRESS_HIGH (UINT64_C(1) << 57)

/* CUDA_KERNEL_NODE_PARAMS, whose second form has two more members. */
typedef struct kernel_node {
  void *function;
  unsigned grid[3], block[3], shared;
  void **parameters, **extra;
  void *kernel; /* a library's kernel, if `function` is NULL */
  void *context;
} kernel_node;

enum { COPY_WORDS = 25, FILL_WORDS = 5 };

typedef struct node_words {
  uint32_t first, count, room; /* range in graph_words.words */
} node_words;

typedef struct graph_words {
  bool unknown;
  uint64_t *words;
  size_t count, room;
  node_words *nodes;
  size_t node_count, node_room;
  map by_node; /* node to its index in `nodes` */
  /* The words in [low, high), each once, which launches name. */
  uint64_t low, high;
  uint64_t *named;
  size_t named_count;
} graph_words;

static map graphs;     /* executable to graph_words */
static launch scratch; /* for the node that is being read */

/* ---- lists ---- */

static bool reserve(void **list, size_t *room, size_t count, size_t each) {
  ASSERT(each > 0);
  if (count <= *room) return true;
  size_t more = *room < 64 ? 64 : 2 * *room;
  if (more < count) more = count;
  void *grown = realloc(*list, more * each);
  if (grown == NULL) return false;
  *list = grown;
  *room = more;
  return true;
}

static void forget_named(graph_words *g) {
  free(g->named);
  g->named = NULL;
  g->named_count = 0;
}

/* Stores what `scratch` holds as the new words of a node. */
static void keep(graph_words *g, uint64_t node) {
  ASSERT(scratch.count <= LAUNCH_WORDS_MAX);
  ASSERT(g->count <= g->room);
  const uint64_t *known = map_get(&g->by_node, node);
  forget_named(g);
  g->unknown |= scratch.opaque || scratch.count == LAUNCH_WORDS_MAX;
  node_words *n = known == NULL ? NULL : &g->nodes[*known];
  if (n == NULL) {
    if (!reserve((void **)&g->nodes, &g->node_room, g->node_count + 1, sizeof *g->nodes) ||
        map_put(&g->by_node, node, g->node_count) != STOW_OK) {
      g->unknown = true;
      return;
    }
    n = &g->nodes[g->node_count++];
    *n = (node_words){.count = 0};
  }
  if (scratch.count > n->room) {
    if (g->count > UINT32_MAX - LAUNCH_WORDS_MAX ||
        !reserve((void **)&g->words, &g->room, g->count + scratch.count, sizeof *g->words)) {
      n->count = 0;
      g->unknown = true;
      return;
    }
    n->first = (uint32_t)g->count;
    n->room = scratch.count;
    g->count += scratch.count;
  }
  n->count = scratch.count;
  if (n->count > 0) memcpy(g->words + n->first, scratch.words, n->count * sizeof *g->words);
}

/* ---- nodes ---- */

static void begin_node(void) {
  scratch.opaque = false;
  scratch.count = 0;
}

static void add_kernel(const kernel_node *k, bool wide) {
  void *function = k->function != NULL || !wide ? k->function : k->kernel;
  scratch.opaque |= function == NULL;
  if (function != NULL)
    launch_add_kernel(&scratch, function, k->parameters, k->extra, ADDRESS_LOW, ADDRESS_HIGH);
}

static void add_words(const void *parameters, size_t words) {
  launch_add_words(&scratch, parameters, words * sizeof(uint64_t), ADDRESS_LOW, ADDRESS_HIGH);
}

/* Visits all nodes of a graph. Returns false if they cannot be listed. */
static bool each_node(void *graph, void (*visit)(void *node, int depth, void *user), int depth,
                      void *user) {
  const cuda_driver *driver = shim_driver();
  size_t count = 0;
  if (driver->cuGraphGetNodes == NULL || driver->cuGraphGetNodes(graph, NULL, &count) != CU_OK ||
      count > NODES_MAX)
    return false;
  if (count == 0) return true;
  void **nodes = calloc(count, sizeof *nodes);
  size_t room = count;
  bool listed = nodes != NULL && driver->cuGraphGetNodes(graph, nodes, &count) == CU_OK;
  for (size_t i = 0; listed && i < count && i < room; i++) visit(nodes[i], depth, user);
  free(nodes);
  return listed;
}

/* Adds what a node names to `scratch`; for a child graph, what all of its nodes name. */
static void add_node(void *node, int depth, void *unused) {
  const cuda_driver *driver = shim_driver();
  kernel_node k = {.function = NULL};
  uint64_t words[64] = {0}; /* larger than either description */
  void *child = NULL;
  int type = -1;
  bool read =
      driver->cuGraphNodeGetType != NULL && driver->cuGraphNodeGetType(node, &type) == CU_OK;
  switch (read ? type : NODE_HOST) {
  case NODE_KERNEL:
    if (driver->cuGraphKernelNodeGetParams_v2 != NULL)
      read = driver->cuGraphKernelNodeGetParams_v2(node, &k) == CU_OK;
    else
      read = driver->cuGraphKernelNodeGetParams != NULL &&
             driver->cuGraphKernelNodeGetParams(node, &k) == CU_OK;
    if (read) add_kernel(&k, true);
    break;
  case NODE_COPY:
    read = driver->cuGraphMemcpyNodeGetParams != NULL &&
           driver->cuGraphMemcpyNodeGetParams(node, words) == CU_OK;
    if (read) add_words(words, COPY_WORDS);
    break;
  case NODE_FILL:
    read = driver->cuGraphMemsetNodeGetParams != NULL &&
           driver->cuGraphMemsetNodeGetParams(node, words) == CU_OK;
    if (read) add_words(words, FILL_WORDS);
    break;
  case NODE_CHILD:
    read = depth < DEPTH_MAX && driver->cuGraphChildGraphNodeGetGraph != NULL &&
           driver->cuGraphChildGraphNodeGetGraph(node, &child) == CU_OK &&
           each_node(child, add_node, depth + 1, unused);
    break;
  case NODE_BATCH:
  case NODE_IF: read = false; break;
  default: break;
  }
  scratch.opaque |= !read;
}

static void read_node(void *node, int depth, void *user) {
  begin_node();
  add_node(node, depth, NULL);
  keep(user, (uintptr_t)node);
}

/* ---- executable graphs ---- */

static void clear(graph_words *g) {
  forget_named(g);
  free(g->words);
  free(g->nodes);
  map_free(&g->by_node);
  *g = (graph_words){.unknown = false};
}

static graph_words *find(void *executable) {
  const uint64_t *found = map_get(&graphs, (uintptr_t)executable);
  return found == NULL ? NULL : (graph_words *)(uintptr_t)*found;
}

void graph_made(void *executable, void *graph) {
  ASSERT(executable != NULL);
  graph_words *g = find(executable);
  if (g != NULL)
    clear(g);
  else {
    g = calloc(1, sizeof *g);
    if (g == NULL) return; /* unknown: it may touch anything */
    if (map_put(&graphs, (uintptr_t)executable, (uintptr_t)g) != STOW_OK) {
      free(g);
      return;
    }
  }
  g->unknown |= !each_node(graph, read_node, 0, g);
  if (g->unknown) shim_log("a graph has a node that cannot be read");
}

static graph_words *begin_set(void *executable, const void *parameters) {
  graph_words *g = find(executable);
  begin_node();
  return g == NULL || g->unknown || parameters == NULL ? NULL : g;
}

void graph_kernel_set(void *executable, void *node, const void *parameters, bool wide) {
  graph_words *g = begin_set(executable, parameters);
  if (g == NULL) return;
  add_kernel(parameters, wide);
  keep(g, (uintptr_t)node);
}

void graph_copy_set(void *executable, void *node, const void *parameters) {
  graph_words *g = begin_set(executable, parameters);
  if (g == NULL) return;
  add_words(parameters, COPY_WORDS);
  keep(g, (uintptr_t)node);
}

void graph_fill_set(void *executable, void *node, const void *parameters) {
  graph_words *g = begin_set(executable, parameters);
  if (g == NULL) return;
  add_words(parameters, FILL_WORDS);
  keep(g, (uintptr_t)node);
}

void graph_child_set(void *executable, void *node, void *child) {
  graph_words *g = begin_set(executable, child);
  if (g == NULL) return;
  scratch.opaque |= !each_node(child, add_node, 1, NULL);
  keep(g, (uintptr_t)node);
}

/* Handles CUgraphNodeParams: its type in four words of 32 bits, then the data of the type. A copy
 * has a flag and a context before its description. */
void graph_node_set(void *executable, void *node, const void *parameters) {
  enum { DESCRIPTION = 16, COPY_DESCRIPTION = 32 };
  const char *at = parameters;
  void *child;
  int type = -1;
  if (at == NULL) return;
  memcpy(&type, at, sizeof type);
  switch (type) {
  case NODE_KERNEL: graph_kernel_set(executable, node, at + DESCRIPTION, true); break;
  case NODE_COPY: graph_copy_set(executable, node, at + COPY_DESCRIPTION); break;
  case NODE_FILL: graph_fill_set(executable, node, at + DESCRIPTION); break;
  case NODE_CHILD:
    memcpy(&child, at + DESCRIPTION, sizeof child);
    graph_child_set(executable, node, child);
    break;
  case NODE_BATCH:
  case NODE_IF: {
    graph_words *g = find(executable);
    if (g != NULL) g->unknown = true;
    break;
  }
  default: break;
  }
}

void graph_gone(void *executable) {
  graph_words *g = find(executable);
  if (g == NULL) return;
  map_remove(&graphs, (uintptr_t)executable, NULL);
  clear(g);
  free(g);
}

/* ---- launches ---- */

static bool find_named(graph_words *g, uint64_t low, uint64_t high) {
  ASSERT(!g->unknown);
  if (g->named != NULL && g->low == low && g->high == high) return true;
  size_t most = 0, count = 0, once = 0;
  forget_named(g);
  for (size_t i = 0; i < g->node_count; i++) most += g->nodes[i].count;
  g->named = malloc((most + 1) * sizeof *g->named);
  if (g->named == NULL) return false;
  for (size_t i = 0; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->nodes[i].count; k++) {
      uint64_t word = g->words[g->nodes[i].first + k];
      if (word - low < high - low) g->named[count++] = word;
    }
  qsort(g->named, count, sizeof *g->named, compare_u64);
  for (size_t i = 0; i < count; i++)
    if (i == 0 || g->named[i] != g->named[i - 1]) g->named[once++] = g->named[i];
  g->named_count = once;
  g->low = low, g->high = high;
  return true;
}

void graph_name(launch *l, uint64_t low, uint64_t high) {
  ASSERT(l->graph != NULL);
  ASSERT(low <= high);
  graph_words *g = find(l->graph);
  if (g == NULL || g->unknown || !find_named(g, low, high) || g->named_count > LAUNCH_WORDS_MAX)
    return;
  l->opaque = false;
  l->kernel = true;
  l->function = (uintptr_t)l->graph;
  l->count = (uint32_t)g->named_count;
  memcpy(l->words, g->named, g->named_count * sizeof *l->words);
}
