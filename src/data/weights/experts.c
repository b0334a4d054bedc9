/* Experts: layers of adapters on parameters (PEFT's target_parameters), most often the experts of a
 * mixture, which are stacked in one parameter of three dimensions.
 *
 *   PEFT's A   experts * rank x in      the ranks of one expert after the other
 *   PEFT's B   out x rank * experts     column k * experts + e is rank k of expert e
 *
 * The base has such a parameter as one tensor (GPT-OSS, Llama 4), or as one or two matrices for
 * each expert, as most checkpoints do (transformers joins them while loading). An adapter does not
 * say which parameter of a module its matrices belong to, nor whether the experts are out x in or
 * in x out: the shapes decide, and what they leave open is refused. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "data/weights/layers.h"
#include "data/weights/lookup.h"

#define NAME_MAX_BYTES 1024
#define PARTS_MAX      2
#define NESTED_MAX     8    /* parameters of one module */
#define WRAPPERS_MAX   4096 /* modules with such parameters: each is compared with each */

typedef enum fit { FIT_NO = 0, FIT_PLAIN = 1, FIT_TURNED = 2, FIT_BOTH = 3 } fit;

/* How the base stores a parameter. */
typedef struct stack {
  bool found;
  size_t experts, rows, columns; /* a parameter of two dimensions is one expert */
  bool turns;                    /* may be in x out */
  /* part_count is 0: all of it is the tensor `item`. Otherwise the rows of an expert's matrix are
   * those of its parts, one below the other; items has the parts of one expert after the other. */
  size_t item, part_count, *items;
  size_t part_rows[PARTS_MAX];
} stack;

/* The parts of a parameter of stacked experts, as the checkpoints of transformers name them. */
static const struct {
  const char *parameter;
  const char *parts[PARTS_MAX];
} part_names[] = {
    {"gate_up_proj", {"gate_proj", "up_proj"}},
    {"gate_up_proj", {"w1", "w3"}},
    {"down_proj", {"down_proj", NULL}},
    {"down_proj", {"w2", NULL}},
    {"up_proj", {"up_proj", NULL}},
    {"gate_proj", {"gate_proj", NULL}},
};

/* ---- the base ---- */

static bool is_matrix(const weights_result *r, size_t item) {
  return r->in.list[item].facts->dims == 2;
}

/* Finds a tensor by its whole name. The search begins at *from, where the last one was found:
 * neighbours lie close. */
static bool find_exact(const weights_result *r, const char *name, size_t *from) {
  for (size_t n = 0; n < r->item_count; n++) {
    size_t i = (*from + n) % r->item_count;
    if (strcmp(r->in.list[i].facts->name, name) == 0) return *from = i, true;
  }
  return false;
}

/* Finds the only tensor with this name that is stored as a whole. */
static bool find_whole(const weights_result *r, const char *name, size_t *item) {
  base_place at;
  if (lookup_find(r, name, &at) != 1 || at.parts != 1) return false;
  *item = at.item;
  return true;
}

/* Adds the parts of one expert; false if the base does not have all of them in the same shapes. */
static bool add_expert(const weights_result *r, stack *s, const char *prefix,
                       const char *const *parts, size_t *capacity, stow_status *status) {
  size_t at = s->experts > 0 ? s->items[s->experts * s->part_count - 1] : 0, found[PARTS_MAX];
  for (size_t k = 0; k < s->part_count; k++) {
    char name[NAME_MAX_BYTES + 64];
    snprintf(name, sizeof name, "%s.%zu.%s.weight", prefix, s->experts, parts[k]);
    if (!find_exact(r, name, &at) || !is_matrix(r, at)) return false;
    const tensor *w = r->in.list[at].facts;
    if (s->experts == 0) s->part_rows[k] = (size_t)w->shape[0];
    if (s->experts == 0 && k == 0) s->columns = (size_t)w->shape[1];
    if (w->shape[0] != s->part_rows[k] || w->shape[1] != s->columns) return false;
    found[k] = at;
  }
  for (size_t k = 0; k < s->part_count; k++) {
    *status = LIST_ROOM(s->items, s->experts * s->part_count + k, *capacity, 64, "experts");
    if (*status != STOW_OK) return false;
    s->items[s->experts * s->part_count + k] = found[k];
  }
  s->experts++;
  return true;
}

/* Finds the matrices of the experts of `module`, whose names in the base may have other words in
 * front. */
static stow_status find_parts(const weights_result *r, const char *module, const char *const *parts,
                              stack *s) {
  char name[NAME_MAX_BYTES], prefix[NAME_MAX_BYTES];
  size_t first = 0, capacity = 0;
  stow_status status = STOW_OK;
  if (snprintf(name, sizeof name, "%s.0.%s.weight", module, parts[0]) >= (int)sizeof name ||
      !find_whole(r, name, &first))
    return STOW_OK;
  const char *real = r->in.list[first].facts->name;
  size_t length = strlen(real), cut = strlen(parts[0]) + strlen(".0..weight");
  if (length <= cut || length - cut >= sizeof prefix) return STOW_OK;
  snprintf(prefix, sizeof prefix, "%.*s", (int)(length - cut), real);
  *s = (stack){.part_count = parts[1] != NULL ? 2 : 1, .turns = true};
  while (add_expert(r, s, prefix, parts, &capacity, &status)) {
  }
  s->rows = s->part_rows[0] + s->part_rows[1];
  s->found = s->experts > 0;
  return status;
}

/* Finds a parameter as separate matrices. Mixtral's checkpoints call the module by another name. */
static stow_status find_split(const weights_result *r, const char *name, stack *s) {
  char module[NAME_MAX_BYTES], other[NAME_MAX_BYTES];
  const char *dot = strrchr(name, '.');
  if (dot == NULL ||
      snprintf(module, sizeof module, "%.*s", (int)(dot - name), name) >= (int)sizeof module)
    return STOW_OK;
  const char *mlp = strstr(module, ".mlp.experts");
  if (mlp == NULL || snprintf(other, sizeof other, "%.*s.block_sparse_moe%s", (int)(mlp - module),
                              module, mlp + strlen(".mlp")) >= (int)sizeof other)
    other[0] = '\0';
  for (size_t i = 0; i < sizeof part_names / sizeof part_names[0] && !s->found; i++) {
    if (strcmp(dot + 1, part_names[i].parameter) != 0) continue;
    STOW_TRY(find_parts(r, module, part_names[i].parts, s));
    if (!s->found && other[0] != '\0') STOW_TRY(find_parts(r, other, part_names[i].parts, s));
  }
  return STOW_OK;
}

static stow_status find_stack(const weights_result *r, const char *name, stack *s) {
  *s = (stack){0};
  if (!find_whole(r, name, &s->item)) return find_split(r, name, s);
  const tensor *w = r->in.list[s->item].facts;
  if (w->dims != 2 && w->dims != 3) return STOW_OK;
  s->found = true;
  s->turns = w->dims == 3;
  s->experts = w->dims == 3 ? (size_t)w->shape[0] : 1;
  s->rows = (size_t)w->shape[w->dims - 2];
  s->columns = (size_t)w->shape[w->dims - 1];
  return STOW_OK;
}

/* ---- which parameter ---- */

static fit fit_of(const stack *s, const adapter_module *m, const adapter_parameter *p) {
  const tensor *a = m->a->facts, *b = m->b->facts;
  if (!s->found || s->rows == 0 || s->columns == 0 || !(p->rank >= 1) ||
      p->rank != floor(p->rank) || a->dims != 2 || b->dims != 2 || m->magnitude != NULL ||
      m->bias != NULL || (double)a->shape[0] != p->rank * (double)s->experts)
    return FIT_NO;
  int fits = FIT_NO;
  if (a->shape[1] == s->columns && b->shape[0] == s->rows) fits |= FIT_PLAIN;
  if (s->turns && a->shape[1] == s->rows && b->shape[0] == s->columns) fits |= FIT_TURNED;
  return (fit)fits;
}

/* The wrappers of one module, and the parameters they may belong to. */
typedef struct nest {
  const adapter_module *modules[NESTED_MAX];
  size_t count;
  stack stacks[NESTED_MAX];
  size_t stack_count;
  size_t chosen[NESTED_MAX]; /* for each module, its stack */
  fit fits[NESTED_MAX];      /* and how it fits */
} nest;

static void nest_free(nest *n) {
  for (size_t i = 0; i < n->stack_count; i++) free(n->stacks[i].items);
}

/* Counts the ways to give each module from `at` on a stack of its own, and keeps the last. */
static size_t count_ways(nest *n, size_t at, size_t *taken, size_t *now) {
  size_t ways = 0;
  if (at == n->count) return memcpy(n->chosen, now, n->count * sizeof *now), 1;
  for (size_t i = 0; i < n->stack_count; i++) {
    if (taken[i] || fit_of(&n->stacks[i], n->modules[at], &n->modules[at]->parameters[i]) == FIT_NO)
      continue;
    taken[i] = 1;
    now[at] = i;
    ways += count_ways(n, at + 1, taken, now);
    taken[i] = 0;
  }
  return ways;
}

static stow_status choose(nest *n) {
  size_t taken[NESTED_MAX] = {0}, now[NESTED_MAX] = {0};
  size_t ways = count_ways(n, 0, taken, now);
  const adapter_module *m = n->modules[0];
  if (ways != 1)
    return stow_fail(ways == 0 ? STOW_ERR_INVALID : STOW_ERR_UNSUPPORTED,
                     "the adapter's module %.200s (%" PRIu64 " x %" PRIu64 ") fits %s parameter%s "
                     "of the base; %s",
                     m->name, m->b->facts->shape[0], m->a->facts->shape[1],
                     ways == 0 ? "no" : "more than one", ways == 0 ? "" : "s",
                     ways == 0 ? "is this the model that the adapter was trained for?"
                               : "use PEFT's merge_and_unload");
  for (size_t i = 0; i < n->count; i++)
    n->fits[i] =
        fit_of(&n->stacks[n->chosen[i]], n->modules[i], &n->modules[i]->parameters[n->chosen[i]]);
  return STOW_OK;
}

static size_t plain_length(const char *name) {
  static const char wrapper[] = ".base_layer";
  size_t length = strlen(name), cut = sizeof wrapper - 1;
  while (length > cut && strncmp(name + length - cut, wrapper, cut) == 0) length -= cut;
  return length;
}

/* Collects the wrappers of the module that a->modules[first] is the first of. */
static stow_status collect(nest *n, const weights_result *r, const adapter *a, size_t first) {
  const adapter_module *m = &a->modules[first];
  size_t length = plain_length(m->name);
  *n = (nest){0};
  for (size_t i = first; i < a->count; i++) {
    const char *name = a->modules[i].name;
    if (a->modules[i].parameter_count == 0 || plain_length(name) != length ||
        strncmp(name, m->name, length) != 0)
      continue;
    if (n->count == NESTED_MAX || m->parameter_count > NESTED_MAX)
      return stow_fail(STOW_ERR_UNSUPPORTED,
                       "%.200s: more than %d parameters of one module are not merged here; use "
                       "PEFT's merge_and_unload",
                       m->name, NESTED_MAX);
    n->modules[n->count++] = &a->modules[i];
  }
  for (; n->stack_count < m->parameter_count; n->stack_count++)
    STOW_TRY(find_stack(r, m->parameters[n->stack_count].name, &n->stacks[n->stack_count]));
  return STOW_OK;
}

static bool any_found(const nest *n) {
  for (size_t i = 0; i < n->stack_count; i++)
    if (n->stacks[i].found) return true;
  return false;
}

/* ---- layers ---- */

static stow_status check_type(const weights_result *r, size_t item) {
  const tensor *w = r->items[item].from.facts;
  if (tensor_type_is_float(w->stored)) return STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "tensor %.200s of the base is %s: a quantized base cannot be merged exactly; "
                   "merge into the original model and quantize the result",
                   w->name, w->type_name);
}

static stow_status add_stack(layer_list *l, weights_result *r, const stack *s, layer added) {
  added.experts = s->experts;
  if (s->part_count == 0) {
    added.item = s->item;
    added.block_count = s->experts;
    added.block_rows = s->rows;
    STOW_TRY(check_type(r, added.item));
    return layers_add(l, r, &added, s->columns);
  }
  added.block_count = 1;
  added.shared = calloc(1, sizeof *added.shared);
  if (added.shared == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for experts");
  added.shared->in_use = &l->shared_bytes;
  stow_status status = STOW_OK;
  for (size_t e = 0; e < s->experts; e++)
    for (size_t k = 0; k < s->part_count && status == STOW_OK; k++) {
      added.item = s->items[e * s->part_count + k];
      added.expert = e;
      added.block_rows = s->part_rows[k];
      added.first_row = k > 0 ? s->part_rows[0] : 0;
      status = check_type(r, added.item);
      if (status == STOW_OK) status = layers_add(l, r, &added, s->columns);
      added.shared->uses += status == STOW_OK;
    }
  if (added.shared->uses == 0) free(added.shared);
  return status;
}

/* Adds the layers of a module's wrappers. `others` is how other experts of the adapter are stored,
 * which decides for square ones. */
static stow_status add_nest(layer_list *l, weights_result *r, const adapter *a, uint32_t file_base,
                            const nest *n, fit others) {
  for (size_t i = 0; i < n->count; i++) {
    const adapter_module *m = n->modules[i];
    const adapter_parameter *p = &m->parameters[n->chosen[i]];
    fit how = n->fits[i] == FIT_BOTH ? others : n->fits[i];
    if (how != FIT_PLAIN && how != FIT_TURNED)
      return stow_fail(STOW_ERR_UNSUPPORTED,
                       "parameter %.200s is square: nothing shows whether its rows are inputs or "
                       "outputs; use PEFT's merge_and_unload",
                       p->name);
    layer added = {.kind = LAYER_LORA,
                   .of = a,
                   .module = m,
                   .file_base = file_base,
                   .transposed = how == FIT_TURNED,
                   .scale = p->scale,
                   .rank = (size_t)p->rank};
    STOW_TRY(add_stack(l, r, &n->stacks[n->chosen[i]], added));
  }
  return STOW_OK;
}

/* The base has no such parameter: target_parameters named it for other modules, and this one is an
 * ordinary layer. */
static stow_status without_parameters(const weights_result *r, const adapter *a,
                                      adapter_module *m) {
  if (plain_length(m->name) != strlen(m->name) || (double)m->a->facts->shape[0] != m->rank)
    return lookup_not_found(r, a, m->parameters[0].name, 0);
  while (m->parameter_count > 0) free(m->parameters[--m->parameter_count].name);
  return STOW_OK;
}

/* Returns whether modules[i] is the first of its wrappers. */
static bool is_first(const adapter *a, size_t i) {
  size_t length = plain_length(a->modules[i].name);
  for (size_t k = 0; k < i; k++)
    if (a->modules[k].parameter_count > 0 && plain_length(a->modules[k].name) == length &&
        strncmp(a->modules[k].name, a->modules[i].name, length) == 0)
      return false;
  return true;
}

stow_status layers_add_parameters(layer_list *l, weights_result *r, adapter *a,
                                  uint32_t file_base) {
  int seen = FIT_NO;
  size_t wrappers = 0;
  for (size_t i = 0; i < a->count; i++) wrappers += a->modules[i].parameter_count > 0;
  if (wrappers > WRAPPERS_MAX)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "target_parameters: %zu modules are not merged here, at most %d; use PEFT's "
                     "merge_and_unload",
                     wrappers, WRAPPERS_MAX);
  /* The first turn looks at the shapes that show how the experts are stored, the second adds. */
  for (int turn = 0; turn < 2; turn++)
    for (size_t i = 0; i < a->count; i++) {
      nest n;
      if (a->modules[i].parameter_count == 0 || !is_first(a, i)) continue;
      stow_status status = collect(&n, r, a, i);
      if (status == STOW_OK && !any_found(&n)) {
        status = without_parameters(r, a, &a->modules[i]);
        n.count = 0;
      } else if (status == STOW_OK) {
        status = choose(&n);
      }
      for (size_t k = 0; k < n.count && status == STOW_OK && turn == 0; k++)
        if (n.fits[k] != FIT_BOTH && n.stacks[n.chosen[k]].turns) seen |= n.fits[k];
      if (status == STOW_OK && turn == 1) status = add_nest(l, r, a, file_base, &n, (fit)seen);
      nest_free(&n);
      STOW_TRY(status);
    }
  return STOW_OK;
}
