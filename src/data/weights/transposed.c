/* Transposed: see transposed.h. */
#include "data/weights/transposed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"

#define TRIES_MAX      4 /* layers of one name to look at: they are alike */
#define NAME_MAX_BYTES 1024

/* Finds "c_attn" in "h.0.attn.c_attn.weight"; false if the name does not end in ".weight". */
static bool leaf_of(const char *name, const char **leaf, size_t *length) {
  static const char end[] = ".weight";
  size_t all = strlen(name);
  if (all < sizeof end || strcmp(name + all - (sizeof end - 1), end) != 0) return false;
  *length = all - (sizeof end - 1);
  *leaf = name + *length;
  while (*leaf > name && (*leaf)[-1] != '.') (*leaf)--;
  *length -= (size_t)(*leaf - name);
  return true;
}

static transposed_leaf *find_leaf(const transposed *t, const char *leaf, size_t length) {
  for (size_t i = 0; i < t->count; i++)
    if (t->list[i].length == length && memcmp(t->list[i].name, leaf, length) == 0)
      return &t->list[i];
  return NULL;
}

static transposed_kind judge(const model *m, const tensor *t) {
  char name[NAME_MAX_BYTES];
  size_t length = strlen(t->name) - strlen("weight");
  if (length + sizeof "bias" > sizeof name) return TRANSPOSED_UNKNOWN;
  snprintf(name, sizeof name, "%.*sbias", (int)length, t->name);
  const model_tensor *bias = model_find(m, name);
  if (bias == NULL || bias->facts->dims != 1) return TRANSPOSED_UNKNOWN;
  if (bias->facts->count == t->shape[1]) return TRANSPOSED_YES;
  return bias->facts->count == t->shape[0] ? TRANSPOSED_NO : TRANSPOSED_UNKNOWN;
}

stow_status transposed_find(transposed *t, const model *m) {
  for (size_t i = 0; i < m->count; i++) {
    const tensor *one = m->list[i].facts;
    const char *leaf;
    size_t length;
    if (one->dims != 2 || one->shape[0] == one->shape[1] || !leaf_of(one->name, &leaf, &length))
      continue;
    transposed_leaf *known = find_leaf(t, leaf, length);
    if (known == NULL) {
      STOW_TRY(LIST_ROOM(t->list, t->count, t->capacity, 32, "layers"));
      known = &t->list[t->count++];
      *known = (transposed_leaf){.name = leaf, .length = length};
    }
    if (known->kind != TRANSPOSED_UNKNOWN || known->tries == TRIES_MAX) continue;
    known->tries++;
    known->kind = judge(m, one);
  }
  return STOW_OK;
}

transposed_kind transposed_of(const transposed *t, const char *name) {
  const char *leaf;
  size_t length;
  if (!leaf_of(name, &leaf, &length)) return TRANSPOSED_UNKNOWN;
  const transposed_leaf *known = find_leaf(t, leaf, length);
  return known != NULL ? known->kind : TRANSPOSED_UNKNOWN;
}

void transposed_free(transposed *t) {
  free(t->list);
  *t = (transposed){0};
}
