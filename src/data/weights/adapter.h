/* Adapter: a LoRA adapter as PEFT saves it: adapter_config.json and adapter_model.safetensors (or
 * .bin). */
#ifndef DATA_WEIGHTS_ADAPTER_H
#define DATA_WEIGHTS_ADAPTER_H

#include "arrays/model.h"

/* One module of the base that an adapter changes. */
typedef struct adapter_module {
  char *name;                    /* without "base_model.model." and without ".weight" */
  const model_tensor *a, *b;     /* rank x in, out x rank */
  const model_tensor *magnitude; /* DoRA; NULL: plain LoRA */
  const model_tensor *bias;      /* of b (lora_bias); NULL: none */
  const model_tensor *saved; /* a whole tensor that replaces the base's; then a and b are NULL */
  bool embedding;
  double scale;
} adapter_module;

typedef struct adapter {
  model weights;
  bool fan_in_fan_out;
  adapter_module *modules;
  size_t count, capacity;
} adapter;

/* Reads the config and the list of tensors. STOW_ERR_UNSUPPORTED for what cannot be merged exactly,
 * with the reason; a tensor of the adapter is never dropped silently. */
stow_status adapter_open(adapter *a, const char *path, uint64_t max_bytes);
void adapter_close(adapter *a);

#endif
