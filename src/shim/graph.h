/* Graph: the addresses that an executable graph refers to.
 *
 * The nodes are read when a program instantiates or updates a graph: the parameters of kernels, the
 * addresses of copies and fills, and the same of child graphs. A launch of the graph then names all
 * of them at once. A graph with a node that cannot be read may touch anything; so may a graph that
 * was created before Stowage watched.
 *
 * All functions require pages_lock. */
#ifndef SHIM_GRAPH_H
#define SHIM_GRAPH_H

#include "shim/launch.h"

/* Called when `executable` was created from `graph`, or updated to it. */
void graph_made(void *executable, void *graph);
/* Called when the program changes a node of an executable graph: a kernel (CUDA_KERNEL_NODE_PARAMS;
 * `wide`: its second form, which can name a library's kernel), a copy (CUDA_MEMCPY3D), a fill
 * (CUDA_MEMSET_NODE_PARAMS), a child graph, or any of them (CUgraphNodeParams). */
void graph_kernel_set(void *executable, void *node, const void *parameters, bool wide);
void graph_copy_set(void *executable, void *node, const void *parameters);
void graph_fill_set(void *executable, void *node, const void *parameters);
void graph_child_set(void *executable, void *node, void *child);
void graph_node_set(void *executable, void *node, const void *parameters);
/* Called when it was destroyed. */
void graph_gone(void *executable);

/* Fills in a launch of a graph (launch.graph) with the addresses in [low, high). Leaves it opaque
 * if they are not known. */
void graph_name(launch *l, uint64_t low, uint64_t high);

#endif
