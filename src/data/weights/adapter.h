/* Adapter: a LoRA adapter as PEFT saves it: adapter_config.json and adapter_model.safetensors (or
 * .bin). */
#ifndef DATA_WEIGHTS_ADAPTER_H
#define DATA_WEIGHTS_ADAPTER_H

#include "arrays/model.h"
#include "base/hash.h"

/* A parameter that a module may change (target_parameters), if the base has it. */
typedef struct adapter_parameter {
  char *name; /* of its tensor */
  double rank, scale;
} adapter_parameter;

/* One module of the base that an adapter changes. */
typedef struct adapter_module {
  char *name;                    /* without "base_model.model." and without ".weight" */
  const model_tensor *a, *b;     /* rank x in, out x rank */
  const model_tensor *magnitude; /* DoRA; NULL: plain LoRA */
  const model_tensor *bias;      /* of b (lora_bias); NULL: none */
  const model_tensor *saved; /* a whole tensor that replaces the base's; then a and b are NULL */
  bool saved_base; /* `saved` is what the adapter of an embedding or output layer adds to */
  bool tied;       /* `saved` is that of the embedding, and the base has only that one: tied.h */
  const model_tensor *tokens; /* rows that replace those of the base; then a and b are NULL */
  uint64_t *rows;             /* which rows: one number for each row of `tokens` */
  bool embedding;
  double rank, scale;
  /* Which tensor of the base is changed is known only from the shapes. PEFT nests the parameters of
   * one module: `name` ends in ".base_layer" for each parameter outside of this one. */
  adapter_parameter *parameters;
  size_t parameter_count;
} adapter_module;

/* An initialization that changed the base, which PEFT repeats when it loads the adapter. */
typedef enum adapter_start { START_PLAIN, START_OLORA, START_PISSA } adapter_start;

typedef struct adapter_range {
  uint32_t start, end; /* `end` is the first one after the range */
} adapter_range;

typedef struct adapter {
  model weights;
  bool fan_in_fan_out;
  char unknown[128]; /* settings of the config that are not known here, with commas */
  adapter_start start;
  adapter_range *replication; /* layer_replication: the layers of the base, one range after the
                               * other; NULL: all of them once */
  size_t replication_count;
  adapter_module *modules;
  size_t count, capacity;
  intern names; /* of the modules, by their number */
} adapter;

/* Returns whether a model is an adapter: it has matrices of LoRA. */
bool adapter_of_model(const model *m);

/* Reads the config and the list of tensors. STOW_ERR_UNSUPPORTED for what cannot be merged exactly,
 * with the reason; a tensor of the adapter is never dropped silently. */
stow_status adapter_open(adapter *a, const char *path, uint64_t max_bytes);
void adapter_close(adapter *a);

#endif
