/* Renames: see renames.h. */
#include "data/weights/renames.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct rule {
  const char *from, *to;
} rule;

/* Moves at the front of a name: models of text and images have one prefix for each of their parts.
 */
static const rule fronts[] = {
    {"language_model.model.", "model.language_model."},
    {"language_model.lm_head", "lm_head"},
    {"vision_tower.vision_model.", "model.vision_tower."},
    {"vision_tower.", "model.vision_tower."},
    {"vision_model.", "model.vision_model."},
    {"audio_tower.", "model.audio_tower."},
    {"multi_modal_projector.", "model.multi_modal_projector."},
    {"visual.", "model.visual."},
    {"model.layers.", "model.language_model.layers."},
    {"model.embed_tokens.", "model.language_model.embed_tokens."},
    {"model.norm.", "model.language_model.norm."},
};

/* Words inside: vision transformers (ViTModel and those with its names). Each rule applies to what
 * the ones before it left. */
static const rule vision[] = {
    {"attention.attention.query", "attention.q_proj"},
    {"attention.attention.key", "attention.k_proj"},
    {"attention.attention.value", "attention.v_proj"},
    {"attention.output.dense", "attention.o_proj"},
    {"intermediate.dense", "mlp.fc1"},
    {"output.dense", "mlp.fc2"},
};

/* And mixtures: Mixtral and Phi-MoE, whose router has another name. */
static const rule mixtures[] = {
    {".block_sparse_moe.gate", ".mlp.router"},
    {".block_sparse_moe.", ".mlp."},
};

/* Writes `name` with the first `from` replaced; false if it has none. `to` may not be `name`. */
static bool replace(char to[RENAMES_NAME_MAX], const char *name, const rule *r, bool front) {
  const char *at =
      front ? (strncmp(name, r->from, strlen(r->from)) == 0 ? name : NULL) : strstr(name, r->from);
  return at != NULL && snprintf(to, RENAMES_NAME_MAX, "%.*s%s%s", (int)(at - name), name, r->to,
                                at + strlen(r->from)) < RENAMES_NAME_MAX;
}

static void add(renames *r, const char *name) {
  if (r->count < RENAMES_MAX) snprintf(r->list[r->count++], RENAMES_NAME_MAX, "%s", name);
}

void renames_of(renames *to, const char *name) {
  static const rule layers = {"encoder.layer.", "layers."};
  char made[RENAMES_NAME_MAX], other[RENAMES_NAME_MAX];
  to->count = 0;
  for (size_t i = 0; i < sizeof fronts / sizeof fronts[0]; i++)
    if (replace(made, name, &fronts[i], true)) add(to, made);
  for (size_t i = 0; i < sizeof mixtures / sizeof mixtures[0]; i++)
    if (replace(made, name, &mixtures[i], false)) add(to, made);
  for (size_t i = 0; i < sizeof vision / sizeof vision[0]; i++) {
    if (!replace(made, name, &vision[i], false)) continue;
    add(to, made);
    if (replace(other, made, &layers, false)) add(to, other);
    return;
  }
  if (replace(made, name, &layers, false)) add(to, made);
}
