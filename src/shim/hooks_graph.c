/* Hooks of executable graphs: where work passes the gate, what their nodes name is read (graph.h).
 */

#include "shim/gate.h"
#include "shim/graph.h"
#include "shim/hooks.h"
#include "shim/page_table.h"

/* After the program's call succeeded. */
#define NOTE(call)                                                                                 \
  do {                                                                                             \
    if (!gate_here()) break;                                                                       \
    lock_acquire(&pages_lock);                                                                     \
    call;                                                                                          \
    lock_release(&pages_lock);                                                                     \
  } while (0)

#define MAKE(name, ...)                                                                            \
  __typeof__(&name) real = REAL(name);                                                             \
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(executable, __VA_ARGS__);          \
  if (code == CU_OK) NOTE(graph_made(*executable, graph));                                         \
  return code

cu_result cuGraphInstantiate(void **executable, void *graph, void **node, char *text,
                             size_t bytes) {
  MAKE(cuGraphInstantiate, graph, node, text, bytes);
}
cu_result cuGraphInstantiate_v2(void **executable, void *graph, void **node, char *text,
                                size_t bytes) {
  MAKE(cuGraphInstantiate_v2, graph, node, text, bytes);
}
cu_result cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
  MAKE(cuGraphInstantiateWithFlags, graph, flags);
}
cu_result cuGraphInstantiateWithParams(void **executable, void *graph, void *params) {
  MAKE(cuGraphInstantiateWithParams, graph, params);
}
cu_result cuGraphInstantiateWithParams_ptsz(void **executable, void *graph, void *params) {
  MAKE(cuGraphInstantiateWithParams_ptsz, graph, params);
}

#define CHANGE(name, note, ...)                                                                    \
  __typeof__(&name) real = REAL(name);                                                             \
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(executable, __VA_ARGS__);          \
  if (code == CU_OK) NOTE(note);                                                                   \
  return code

cu_result cuGraphExecUpdate(void *executable, void *graph, void **node, int *result) {
  CHANGE(cuGraphExecUpdate, graph_made(executable, graph), graph, node, result);
}
cu_result cuGraphExecUpdate_v2(void *executable, void *graph, void *result) {
  CHANGE(cuGraphExecUpdate_v2, graph_made(executable, graph), graph, result);
}
cu_result cuGraphExecKernelNodeSetParams(void *executable, void *node, const void *params) {
  CHANGE(cuGraphExecKernelNodeSetParams, graph_kernel_set(executable, node, params, false), node,
         params);
}
cu_result cuGraphExecKernelNodeSetParams_v2(void *executable, void *node, const void *params) {
  CHANGE(cuGraphExecKernelNodeSetParams_v2, graph_kernel_set(executable, node, params, true), node,
         params);
}
cu_result cuGraphExecMemcpyNodeSetParams(void *executable, void *node, const void *params,
                                         cu_context context) {
  CHANGE(cuGraphExecMemcpyNodeSetParams, graph_copy_set(executable, node, params), node, params,
         context);
}
cu_result cuGraphExecMemsetNodeSetParams(void *executable, void *node, const void *params,
                                         cu_context context) {
  CHANGE(cuGraphExecMemsetNodeSetParams, graph_fill_set(executable, node, params), node, params,
         context);
}
cu_result cuGraphExecChildGraphNodeSetParams(void *executable, void *node, void *graph) {
  CHANGE(cuGraphExecChildGraphNodeSetParams, graph_child_set(executable, node, graph), node, graph);
}
cu_result cuGraphExecNodeSetParams(void *executable, void *node, void *params) {
  CHANGE(cuGraphExecNodeSetParams, graph_node_set(executable, node, params), node, params);
}

/* Forget it first: another graph may get its handle at once. */
cu_result cuGraphExecDestroy(void *executable) {
  __typeof__(&cuGraphExecDestroy) real = REAL(cuGraphExecDestroy);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  NOTE(graph_gone(executable));
  return real(executable);
}
