/* Host tensors: autograd graphs that tensors on the CPU keep, and pinned memory. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "advise/host_case.h"

#define GRAPHS_LEAST 4 /* a step has the graph of its own loss, and of a few outputs */

/* A tensor that each iteration makes from the one before: its graph goes back through all. */
static bool is_carried(const host_object *o) {
  return strcmp(o->mark, "carried") == 0;
}

/* Returns the object that keeps the most graphs, or NULL. A container comes before a tensor that is
 * carried on: a layer that goes through a sequence uses its weights many times in one iteration. */
static const host_object *most_graphs(const host_record *r) {
  const host_object *most = NULL;
  for (size_t i = 0; i < r->object_count; i++) {
    const host_object *o = &r->objects[i];
    if ((strcmp(o->mark, "graph") == 0 || is_carried(o)) && o->graphs >= GRAPHS_LEAST &&
        (most == NULL ||
         (is_carried(o) == is_carried(most) ? o->graphs > most->graphs : is_carried(most))))
      most = o;
  }
  return most;
}

/* Saved activations have no name: what no variable holds is theirs, if a variable keeps graphs. */
void host_find_graph(host_case *c) {
  const host_record *r = c->r;
  const host_object *o = most_graphs(r);
  if (o == NULL) return;
  uint64_t named = host_named_bytes(r);
  uint64_t held = (c->reported_bytes > named ? c->reported_bytes - named : 0) + o->bytes;
  double share = evidence_share(held, c->reported_bytes);
  if (share < MUCH) return;
  char place[160], change[400];
  bool sum = !host_is_container(o);
  bool scalars = o->bytes / o->graphs <= 256; /* losses; outputs and predictions are larger */
  const char *part = strstr(o->type, "dict") != NULL ? "[…]" : "";
  host_place(place, sizeof place, o);
  /* A loss may need a state's whole history. */
  cause *to = host_add(c, CAUSE_GRAPH_KEPT, share >= MOST && !is_carried(o) ? 0.93 : 0.7);
  cause_head(to, "%s keeps the autograd graphs of %" PRIu64 " iterations, about %s%s%s%s", o->name,
             o->graphs, cause_size(held), place[0] != '\0' ? ", grows by " : "",
             place[0] != '\0' ? cause_size(held / o->graphs) : "",
             place[0] != '\0' ? " per iteration" : "");
  if (place[0] != '\0') buffer_printf(&to->headline, " at %s", place);
  host_say_object(to, o);
  cause_say(to, "a tensor with requires_grad keeps every activation that led to it");
  cause_say(to, "%s of the %s held has no name in Python: saved activations",
            cause_size(held - (o->bytes < held ? o->bytes : held)), cause_size(c->reported_bytes));
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  if (is_carried(o))
    snprintf(change, sizeof change,
             "cut the graph, at each iteration or every few: %s = %s.detach(); or loop under "
             "torch.no_grad() if nothing is trained",
             o->name, o->name);
  else
    snprintf(
        change, sizeof change,
        sum ? "add the number, not the tensor: %s%s += loss.item(); or loop under "
              "torch.no_grad() if nothing is trained"
        : scalars
            ? "keep the number, not the tensor: %s%s.append(loss.item()) (.detach() for larger "
              "results); or loop under torch.no_grad() if nothing is trained"
            : "loop under torch.no_grad() if nothing is trained; or keep the values without "
              "their graphs: %s%s.append(….detach())",
        o->name, part);
  host_add_fix(c, held - held / o->graphs, change, "no gradient flows through what is kept");
}

/* The driver maps what cudaHostAlloc returns as anonymous shared memory, which the kernel names
 * /dev/zero (driver 580 on an H200, 2026-11-16). Returns its bytes in a process that uses a device.
 */
static uint64_t pinned_mapped(const host_record *r) {
  uint64_t bytes = 0;
  bool device = false;
  for (size_t i = 0; i < r->map_count; i++) {
    device = device || strncmp(r->maps[i].path, "/dev/nvidia", 11) == 0;
    if (strncmp(r->maps[i].path, "/dev/zero", 9) == 0) bytes += r->maps[i].bytes;
  }
  return device ? bytes : 0;
}

void host_find_pinned(host_case *c) {
  const host_record *r = c->r;
  uint64_t sum = 0, mapped = pinned_mapped(r);
  const host_object *first = NULL;
  for (size_t i = 0; i < r->object_count; i++)
    if (strcmp(r->objects[i].mark, "pinned") == 0) {
      if (first == NULL) first = &r->objects[i];
      sum += r->objects[i].bytes;
    }
  if (mapped > sum) sum = mapped;
  double share = evidence_share(sum, c->main_bytes);
  if (sum == 0 || share < MUCH) return;
  char text[480] = "";
  if (first != NULL) host_describe(text, sizeof text, first);
  c->pinned = true;
  cause *to = host_add(c, CAUSE_HOST_PINNED, share >= MOST ? 0.95 : 0.6);
  cause_head(to, "%s of host memory is pinned (locked for copies to the device)%s%s",
             cause_size(sum), text[0] != '\0' ? ": " : "", text);
  cause_say(to, "pinned memory is rounded up to powers of two, cannot be swapped, and PyTorch "
                "keeps it after its tensors are freed");
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  host_add_fix(c, sum / 2,
               "pin only the batch that is copied (DataLoader(pin_memory=True) does), not the "
               "whole dataset; fewer prefetched batches: prefetch_factor=2, num_workers=2",
               "a copy of an unpinned tensor waits for the device");
}
