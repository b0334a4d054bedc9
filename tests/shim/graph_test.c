/* Graph: what a launch of an executable graph names, after it was made, updated, set and destroyed.
 */
#include "shim/graph.h"

#include <string.h>

#include "harness.h"
#include "shim/shim.h"

#define LOW  UINT64_C(0x7f0000000000)
#define HIGH UINT64_C(0x7f0100000000)

/* A driver with graphs of up to four nodes. Every function has two parameters of eight bytes. */
typedef struct node {
  int type;
  uint64_t words[25];
  void *child;
} node;
typedef struct graph {
  size_t count;
  node nodes[4];
} graph;
typedef struct kernel_params {
  void *function;
  unsigned sizes[7];
  void **parameters, **extra;
  void *kernel, *context;
} kernel_params;

enum { KERNEL, COPY, FILL, HOST, CHILD, EMPTY, CONDITIONAL = 13 };

static cu_result info(void *function, size_t index, size_t *offset, size_t *bytes) {
  (void)function;
  *offset = index * 8, *bytes = 8;
  return index < 2 ? CU_OK : CU_ERROR_INVALID_VALUE;
}
static cu_result get_nodes(void *from, void **nodes, size_t *count) {
  graph *g = from;
  for (size_t i = 0; nodes != NULL && i < g->count; i++) nodes[i] = &g->nodes[i];
  *count = g->count;
  return CU_OK;
}
static cu_result get_type(void *of, int *type) {
  *type = ((node *)of)->type;
  return CU_OK;
}
static void *places[2];
static cu_result get_kernel(void *of, void *params) {
  node *n = of;
  places[0] = &n->words[0], places[1] = &n->words[1];
  kernel_params k = {.kernel = (void *)0x100, .parameters = places};
  memcpy(params, &k, sizeof k);
  return CU_OK;
}
static cu_result get_words(void *of, void *params) {
  memcpy(params, ((node *)of)->words, sizeof(uint64_t[25]));
  return CU_OK;
}
static cu_result get_child(void *of, void **child) {
  *child = ((node *)of)->child;
  return CU_OK;
}
static cuda_driver driver;
const cuda_driver *shim_driver(void) {
  driver.cuFuncGetParamInfo = info;
  driver.cuGraphGetNodes = get_nodes;
  driver.cuGraphNodeGetType = get_type;
  driver.cuGraphKernelNodeGetParams_v2 = get_kernel;
  driver.cuGraphMemcpyNodeGetParams = get_words;
  driver.cuGraphMemsetNodeGetParams = get_words;
  driver.cuGraphChildGraphNodeGetGraph = get_child;
  return &driver;
}
void shim_log(const char *format, ...) {
  (void)format;
}

static launch l;
static void *const EXECUTABLE = (void *)0x5000;

static bool named(uint64_t word) {
  for (uint32_t i = 0; i < l.count; i++)
    if (l.words[i] == word) return true;
  return false;
}

/* Launches it; false: it may touch anything. */
static bool launches(void *executable) {
  l = (launch){.graph = executable, .opaque = true};
  graph_name(&l, LOW, HIGH);
  return !l.opaque;
}

TEST(a_launch_names_what_its_nodes_name_each_once)
{
  graph child = {1, {{KERNEL, {LOW + 64, LOW + 128}, NULL}}};
  graph g = {4,
             {{KERNEL, {LOW + 8, LOW + 16}, NULL},
              {COPY, {[6] = LOW + 8, [17] = LOW + 32}, NULL},
              {FILL, {LOW + 40, 1, 0, HIGH}, NULL},
              {CHILD, {0}, &child}}};
  CHECK(!launches(EXECUTABLE)); /* made before anyone looked */
  graph_made(EXECUTABLE, &g);
  CHECK(launches(EXECUTABLE));
  CHECK(l.count == 6 && l.kernel && l.function == (uintptr_t)EXECUTABLE);
  for (int i = 0; i < 6; i++) CHECK(named(LOW + (uint64_t[]){8, 16, 32, 40, 64, 128}[i]));
  CHECK(!launches((void *)0x6000));
  graph_gone(EXECUTABLE);
  CHECK(!launches(EXECUTABLE));
}

TEST(nodes_that_are_set_name_something_else)
{
  graph g = {
      3, {{KERNEL, {LOW + 8, LOW + 16}, NULL}, {COPY, {[6] = LOW + 24}, NULL}, {FILL, {0}, NULL}}};
  graph_made(EXECUTABLE, &g);
  CHECK(launches(EXECUTABLE) && l.count == 3);
  uint64_t words[2] = {LOW + 800, 3};
  void *list[2] = {&words[0], &words[1]};
  kernel_params k = {.function = (void *)0x100, .parameters = list};
  graph_kernel_set(EXECUTABLE, &g.nodes[0], &k, false);
  CHECK(launches(EXECUTABLE) && l.count == 2 && named(LOW + 800) && named(LOW + 24));
  words[1] = LOW + 808;
  graph_kernel_set(EXECUTABLE, &g.nodes[0], &k, true);
  CHECK(launches(EXECUTABLE) && l.count == 3 && named(LOW + 808));
  uint64_t copy[25] = {[6] = LOW + 900}, fill[5] = {LOW + 908};
  graph_copy_set(EXECUTABLE, &g.nodes[1], copy);
  graph_fill_set(EXECUTABLE, &g.nodes[2], fill);
  CHECK(launches(EXECUTABLE) && l.count == 4 && named(LOW + 900) && named(LOW + 908));
  CHECK(!named(LOW + 24));
  graph child = {2, {{KERNEL, {LOW + 64, LOW + 128}, NULL}, {EMPTY, {0}, NULL}}};
  graph_child_set(EXECUTABLE, &g.nodes[0], &child);
  CHECK(launches(EXECUTABLE) && l.count == 4 && named(LOW + 128) && !named(LOW + 800));
  /* The form for every type: the type, then what belongs to it. */
  uint64_t any[32] = {FILL, 0, LOW + 1000};
  graph_node_set(EXECUTABLE, &g.nodes[2], any);
  any[0] = COPY, any[2] = 0, any[4 + 6] = LOW + 1008;
  graph_node_set(EXECUTABLE, &g.nodes[1], any);
  CHECK(launches(EXECUTABLE) && l.count == 4 && named(LOW + 1000) && named(LOW + 1008));
  graph_gone(EXECUTABLE);
}

TEST(an_update_replaces_all_of_it)
{
  graph first = {1, {{KERNEL, {LOW + 8, LOW + 16}, NULL}}},
        second = {1, {{FILL, {LOW + 24}, NULL}}};
  graph_made(EXECUTABLE, &first);
  graph_made(EXECUTABLE, &second);
  CHECK(launches(EXECUTABLE) && l.count == 1 && named(LOW + 24));
  graph_gone(EXECUTABLE);
}

TEST(a_node_that_cannot_be_read_makes_it_touch_anything)
{
  graph inner = {1, {{CONDITIONAL, {0}, NULL}}};
  graph plain = {2, {{KERNEL, {LOW + 8}, NULL}, {CONDITIONAL, {0}, NULL}}};
  graph nested = {1, {{CHILD, {0}, &inner}}}, endless = {1, {{CHILD, {0}, NULL}}};
  endless.nodes[0].child = &endless;
  graph_made(EXECUTABLE, &plain);
  CHECK(!launches(EXECUTABLE));
  graph_made(EXECUTABLE, &nested);
  CHECK(!launches(EXECUTABLE));
  graph_made(EXECUTABLE, &endless);
  CHECK(!launches(EXECUTABLE));
  plain.count = 1;
  graph_made(EXECUTABLE, &plain);
  CHECK(launches(EXECUTABLE) && l.count == 1);
  kernel_params library = {.kernel = (void *)0x200}; /* which the first form does not have */
  graph_kernel_set(EXECUTABLE, &plain.nodes[0], &library, false);
  CHECK(!launches(EXECUTABLE));
  graph_gone(EXECUTABLE);
}

TEST(only_addresses_of_interest_are_named)
{
  graph g = {1, {{KERNEL, {HIGH + 8, LOW + 8}, NULL}}};
  graph_made(EXECUTABLE, &g);
  CHECK(launches(EXECUTABLE) && l.count == 1 && named(LOW + 8));
  l = (launch){.graph = EXECUTABLE, .opaque = true};
  graph_name(&l, HIGH, HIGH + 4096); /* the pages have grown since */
  CHECK(!l.opaque && l.count == 1 && named(HIGH + 8));
  graph_gone(EXECUTABLE);
}

TEST_MAIN
