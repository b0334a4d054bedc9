/* Lookup: see lookup.h. */
#include "data/weights/lookup.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "data/weights/parts.h"
#include "data/weights/renames.h"

#define SEVERAL UINT64_MAX

/* ---- parts of models ---- */

/* Returns whether one of the first `length` bytes' words is that of a part for images or sound. */
static bool is_other_part(const char *name, size_t length) {
  static const char *const words[] = {"vision", "visual", "image",  "img",
                                      "audio",  "sound",  "speech", "video"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    const char *at = strstr(name, words[i]);
    if (at != NULL && (size_t)(at - name) < length) return true;
  }
  return false;
}

static bool is_text_embedding(const tensor *t) {
  size_t length = strlen(t->name), cut = strlen(".weight");
  return t->dims == 2 && text_ends(t->name, ".weight") &&
         weights_is_embedding(t->name, length - cut) && !is_other_part(t->name, length) &&
         strstr(t->name, "position") == NULL && strstr(t->name, "patch") == NULL;
}

/* ---- names after loading ---- */

static stow_status put(map *names, const char *name, uint64_t value) {
  uint64_t hash = hash_bytes(name, strlen(name), 0);
  const uint64_t *known = map_get(names, hash);
  return map_put(names, hash, known == NULL || *known == value ? value : SEVERAL);
}

/* Lists the names of transformers 5 that do not depend on the kind of the model. */
static stow_status list_renames(lookup *l, size_t item, const char *name) {
  renames others;
  renames_of(&others, name);
  for (size_t k = 0; k < others.count; k++) STOW_TRY(put(&l->renames, others.list[k], item));
  return STOW_OK;
}

/* Keeps the names that the rules of the model's kind give to a tensor, one after the other. */
static stow_status keep_loaded(lookup *l, size_t item, const loaded_name *names) {
  size_t length = 0;
  for (size_t k = 0; k < names->count; k++) length += strlen(names->list[k]) + 1;
  char *kept = malloc(length + 1);
  if (kept == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for names");
  l->names[item] = kept;
  for (size_t k = 0; k < names->count; k++) {
    length = strlen(names->list[k]) + 1;
    memcpy(kept, names->list[k], length);
    kept += length;
    STOW_TRY(put(&l->loaded, names->list[k], item * LOADED_PARTS_MAX + k));
  }
  *kept = '\0';
  return STOW_OK;
}

stow_status lookup_open(weights_result *r) {
  lookup *l = &r->lookup;
  loaded_kinds_read(&l->kinds, &r->in);
  l->names = calloc(r->item_count + 1, sizeof *l->names);
  if (l->names == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for names");
  for (; l->count < r->item_count; l->count++) {
    const char *name = r->in.list[l->count].facts->name;
    l->text = l->text || is_text_embedding(r->in.list[l->count].facts);
    loaded_name loaded;
    loaded_name_of(&loaded, &l->kinds, name);
    STOW_TRY(list_renames(l, l->count, name));
    if (loaded.count == 0 || (loaded.count == 1 && strcmp(loaded.list[0], name) == 0)) continue;
    STOW_TRY(keep_loaded(l, l->count, &loaded));
  }
  return STOW_OK;
}

void lookup_close(lookup *l) {
  for (size_t i = 0; i < l->count && l->names != NULL; i++) free(l->names[i]);
  free(l->names);
  map_free(&l->renames);
  map_free(&l->loaded);
  *l = (lookup){0};
}

/* Finds a tensor by the name that transformers 5 gives it, if only one has this name. */
static bool find_renamed(const weights_result *r, const char *name, base_place *at) {
  const uint64_t *known = map_get(&r->lookup.renames, hash_bytes(name, strlen(name), 0));
  if (known == NULL || *known == SEVERAL) return false;
  renames others;
  renames_of(&others, r->in.list[*known].facts->name);
  for (size_t k = 0; k < others.count; k++)
    if (strcmp(others.list[k], name) == 0) return *at = (base_place){(size_t)*known, 0, 1}, true;
  return false;
}

/* Returns whether another tensor than `item` may have this name in transformers 5. */
static bool is_renamed_to(const weights_result *r, const char *name, size_t item) {
  const uint64_t *known = map_get(&r->lookup.renames, hash_bytes(name, strlen(name), 0));
  return known != NULL && *known != item;
}

/* ---- all names ---- */

static bool ends_with_part(const char *text, const char *end) {
  size_t a = strlen(text), b = strlen(end);
  return a > b && text[a - b - 1] == '.' && strcmp(text + a - b, end) == 0;
}

static bool ends_alike(const char *a, const char *b) {
  return ends_with_part(a, b) || ends_with_part(b, a);
}

/* Returns whether a tensor of the base may have an adapter's name, with more or fewer words in
 * front. The part for images or sound of another model is no model of text. */
static bool fits_end(const weights_result *r, const char *own, const char *name) {
  if (!ends_alike(own, name)) return false;
  size_t a = strlen(own), b = strlen(name);
  return a >= b || !r->lookup.text || !is_other_part(name, b - a);
}

/* Finds a tensor by its name in the file. */
static size_t find_stored(const weights_result *r, const char *name, base_place *at) {
  size_t found = 0;
  for (size_t i = 0; i < r->item_count; i++)
    if (strcmp(r->in.list[i].facts->name, name) == 0) return *at = (base_place){i, 0, 1}, 1;
  for (size_t i = 0; i < r->item_count; i++) {
    if (!fits_end(r, r->in.list[i].facts->name, name)) continue;
    *at = (base_place){i, 0, 1};
    found++;
  }
  return found;
}

/* Returns the name of one part of an item after loading, and how many parts it has; NULL if no rule
 * changes the item's name. */
static const char *loaded_part(const weights_result *r, size_t item, size_t part, size_t *parts) {
  const char *names = r->lookup.names[item], *found = NULL;
  *parts = 0;
  for (const char *one = names; one != NULL && *one != '\0'; one += strlen(one) + 1)
    if ((*parts)++ == part) found = one;
  return found;
}

/* Finds the only tensor with exactly this name after loading. */
static bool find_loaded(const weights_result *r, const char *name, base_place *at) {
  const uint64_t *known = map_get(&r->lookup.loaded, hash_bytes(name, strlen(name), 0));
  if (known == NULL || *known == SEVERAL) return false;
  *at = (base_place){*known / LOADED_PARTS_MAX, *known % LOADED_PARTS_MAX, 1};
  const char *own = loaded_part(r, at->item, at->part, &at->parts);
  return own != NULL && strcmp(own, name) == 0;
}

/* Finds tensors whose names after loading have more or fewer words in front. */
static size_t find_loaded_end(const weights_result *r, const char *name, base_place *at) {
  size_t found = 0;
  for (size_t i = 0; i < r->lookup.count; i++) {
    size_t part = 0, parts;
    for (const char *own; (own = loaded_part(r, i, part, &parts)) != NULL; part++) {
      if (!fits_end(r, own, name)) continue;
      *at = (base_place){i, part, parts};
      found++;
    }
  }
  return found;
}

/* Finds tensors that have what a name of transformers 4 may become. */
static size_t find_later(const weights_result *r, const char *name, base_place *at) {
  renames others;
  base_place one;
  size_t found = 0;
  renames_of(&others, name);
  for (size_t k = 0; k < others.count; k++) {
    if (find_stored(r, others.list[k], &one) != 1 ||
        strcmp(r->in.list[one.item].facts->name, others.list[k]) != 0 ||
        (found > 0 && one.item == at->item))
      continue;
    *at = one;
    found++;
  }
  return found;
}

size_t lookup_find(const weights_result *r, const char *name, base_place *at) {
  base_place other;
  loaded_name later; /* the name itself, or what a name of transformers 4 becomes */
  size_t found = find_stored(r, name, at);
  loaded_name_of(&later, &r->lookup.kinds, name);
  if (later.count == 1) { /* otherwise: the base has the layer in parts */
    /* A whole name after loading says more than the end of a name in the file. The name of a tensor
     * in the file may also be that of another one after loading. */
    bool loaded = find_loaded(r, later.list[0], &other);
    bool whole = found == 1 && strcmp(r->in.list[at->item].facts->name, name) == 0;
    if (loaded && whole && other.item != at->item) return 2;
    if (loaded && !whole) return *at = other, 1;
    if (found == 0 && strcmp(later.list[0], name) != 0) found = find_stored(r, later.list[0], at);
    if (found == 0) found = find_loaded_end(r, later.list[0], at);
    if (found == 1 && !whole && is_renamed_to(r, name, at->item)) return 2;
  }
  if (found > 0) return found;
  return find_renamed(r, name, at) ? 1 : find_later(r, name, at);
}

bool lookup_renamed(const weights_result *r, const char *name, size_t item) {
  const char *other = r->in.list[item].facts->name;
  return strcmp(name, other) != 0 && !ends_alike(name, other);
}

stow_status lookup_not_found(const weights_result *r, const adapter *a, const char *name,
                             size_t found) {
  static const char *const quantized[] = {"_scale", "_scales", "_blocks", "_packed"};
  size_t length = strlen(name);
  if (found == 0 && packed_has_layer(&r->packed, name))
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "the base is quantized (%s) and has no plain %.200s: merge into the original "
                     "model and quantize the result",
                     packed_method(&r->packed), name);
  for (size_t i = 0; i < r->item_count && found == 0; i++) {
    const char *other = r->in.list[i].facts->name;
    if (strncmp(other, name, length) != 0) continue;
    for (size_t k = 0; k < sizeof quantized / sizeof quantized[0]; k++)
      if (strcmp(other + length, quantized[k]) == 0)
        return stow_fail(STOW_ERR_UNSUPPORTED,
                         "the base is quantized (it has %.200s): merge into the original model and "
                         "quantize the result",
                         other);
  }
  const char *path = a->weights.folder != NULL ? a->weights.folder : "the adapter";
  if (found > 0)
    return stow_fail(STOW_ERR_INVALID,
                     "%s: its tensor %.200s fits several of the base; is this the model that the "
                     "adapter was trained for?",
                     path, name);
  return stow_fail(STOW_ERR_INVALID,
                   "%s: its tensor %.200s is not in the base; is this the model that the adapter "
                   "was trained for? If it is, transformers renames its modules while it loads "
                   "them, in a way that is not known here: use PEFT's merge_and_unload. (A layer "
                   "tied to the embedding has no tensor of its own)",
                   path, name);
}
