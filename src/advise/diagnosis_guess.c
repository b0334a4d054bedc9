/* Guesses about the device: what the phase and the library suggest where numbers do not decide. */
#include <stdio.h>
#include <string.h>

#include "advise/diagnosis_parts.h"

/* Writes "14.8 GiB of the device's 15.7 GiB are in use", or less, as far as the numbers are
 * known. */
static const char *usage(const explanation *x, char text[160]) {
  const numbers *n = &x->evidence.n;
  const message *m = &x->evidence.message;
  bool apple = has(x, CONTEXT_BIT(APPLE));
  const char *whole = !apple                     ? "of the device"
                      : m->kind == MESSAGE_TORCH ? "that PyTorch may use"
                                                 : "that macOS recommends for the GPU";
  if (known(n->asked_bytes) && known(n->device_bytes) && n->asked_bytes > n->device_bytes)
    snprintf(text, 160, "one request asks for %s, more than the device's %s",
             cause_size(n->asked_bytes), cause_size(n->device_bytes));
  else if (known(n->live_bytes) && known(n->limit_bytes) && n->live_bytes > n->limit_bytes && apple)
    snprintf(text, 160, "this program needs %s, more than the %s %s", cause_size(n->live_bytes),
             cause_size(n->limit_bytes), whole);
  else if (n->live_bytes == 0 && known(n->asked_bytes))
    snprintf(text, 160, "one request of %s failed, while this program holds nothing%s%s",
             cause_size(n->asked_bytes), known(n->device_bytes) ? " of the device's " : "",
             known(n->device_bytes) ? cause_size(n->device_bytes) : "");
  else if (known(n->live_bytes) && known(n->device_bytes))
    snprintf(text, 160, "this program's data fills %s of the device's %s",
             cause_size(n->live_bytes), cause_size(n->device_bytes));
  else if (known(n->live_bytes) && known(n->limit_bytes))
    snprintf(text, 160, "this program's data fills %s of the %s %s", cause_size(n->live_bytes),
             cause_size(n->limit_bytes), whole);
  else if (has(x, CONTEXT_BIT(TPU)) && known(m->whole_bytes) && known(n->device_bytes) &&
           m->whole_bytes > n->device_bytes)
    snprintf(text, 160, "the program needs %s of the device's %s, %s too much",
             cause_size(m->whole_bytes), cause_size(n->device_bytes),
             cause_size(m->whole_bytes - n->device_bytes));
  else if (known(n->live_bytes))
    snprintf(text, 160, "this program's data already fills %s", cause_size(n->live_bytes));
  else if (known(n->asked_bytes) && known(n->free_bytes) && n->free_bytes < n->asked_bytes &&
           n->asked_bytes - n->free_bytes < n->asked_bytes / 16) /* rounded they may be the same */
    snprintf(text, 160, "%s could not get %s on the device, %s more than is free",
             message_reporter(m), cause_size(n->asked_bytes),
             cause_size(n->asked_bytes - n->free_bytes));
  else if (known(n->asked_bytes) && known(n->free_bytes) && n->free_bytes < n->asked_bytes)
    snprintf(text, 160, "%s could not get %s on the device, where %s is free", message_reporter(m),
             cause_size(n->asked_bytes), cause_size(n->free_bytes));
  else
    snprintf(text, 160, "%s could not get %s%s", message_reporter(m),
             known(n->asked_bytes) ? cause_size(n->asked_bytes) : "the memory it asked for",
             m->kind == MESSAGE_CUDA || known(n->asked_bytes) ? " on the device" : "");
  return text;
}

typedef struct guess {
  cause_id id;
  double confidence;
  const char *words; /* after the usage */
} guess;

#define MARK(name)  CONTEXT_BIT(name)
#define PAIRS_LEAST (UINT64_C(1) << 30) /* a smaller table is seldom what fills a device */

/* Guesses for programs with settings of their own. Returns false for others. */
static bool by_program(const explanation *x, guess *g) {
  uint64_t own = diagnosis_own(&x->evidence.message);
  static const struct {
    uint64_t trait;
    guess g;
  } all[] = {
      {TRAIT_SPLAT,
       {CAUSE_BATCH_TOO_BIG, 0.5,
        "the Gaussians, their gradients and the optimizer's state fill it; densification adds "
        "Gaussians while it trains"}},
      {TRAIT_EXLLAMA,
       {CAUSE_WEIGHTS_TOO_BIG, 0.6,
        "the weights and the cache (memory for the tokens of its context) together do not fit"}},
      {TRAIT_INVOKE,
       {CAUSE_BATCH_TOO_BIG, 0.5,
        "the models that InvokeAI keeps in VRAM leave too little for this step"}},
      {TRAIT_SPARK,
       {CAUSE_BATCH_TOO_BIG, 0.55,
        "the tasks that run on the GPU at the same time, each with its own batches, do not fit"}},
      {TRAIT_LIGHTGBM,
       {CAUSE_ONE_SPIKE, 0.45,
        "OpenCL gives only a part of the device (often a quarter) as one buffer; the features or "
        "histograms need more"}},
      {TRAIT_FAISS,
       {CAUSE_UNKNOWN, 0.35,
        "the index and Faiss's scratch space do not fit in what is free; the text does not say "
        "what fills the device"}},
      {TRAIT_ENCODER,
       {CAUSE_LIMIT, 0.5,
        "the driver refused one more encoder session: probably its limit on sessions is reached, "
        "or it is too old for this program"}},
      {TRAIT_GAME,
       {CAUSE_UNKNOWN, 0.35,
        "textures and render targets do not fit in what is free: the settings are too high, "
        "another program uses the GPU, or the driver failed"}},
      {TRAIT_RENDER,
       {CAUSE_WEIGHTS_TOO_BIG, 0.45, "the scene (geometry, textures) does not fit on the device"}},
      {TRAIT_EDITOR,
       {CAUSE_UNKNOWN, 0.4,
        "the frames of the timeline and its effects do not fit beside what else uses the GPU"}},
      {TRAIT_OPENCL,
       {CAUSE_UNKNOWN, 0.35,
        "one buffer may be larger than OpenCL gives (often a quarter of the device), or the device "
        "is full"}},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if ((own & all[i].trait) != 0) {
      *g = all[i].g;
      /* The distances between the points are computed once, before training. */
      if (all[i].trait == TRAIT_SPLAT && strstr(x->evidence.message.context.code, "distCUDA2"))
        g->words = "it failed at the start, with the points of the cloud and the images: probably "
                   "they are too many, or another program holds the device";
      if (all[i].trait == TRAIT_INVOKE && has(x, MARK(LOADING)) && !has(x, MARK(FORWARD)))
        *g = (guess){CAUSE_WEIGHTS_TOO_BIG, 0.6,
                     "the model does not fit beside what InvokeAI keeps in VRAM"};
      return true;
    }
  return false;
}

/* Guesses by phase; `bare`: for errors without numbers, where another process is as likely. */
static guess by_phase(const explanation *x) {
  const message *m = &x->evidence.message;
  const numbers *n = &x->evidence.n;
  bool bare = !known(n->live_bytes) && !known(n->device_bytes);
  if (does(x, TRAIT_GROWS) && (m->kind == MESSAGE_TORCH || m->kind == MESSAGE_CUDA) &&
      has(x, MARK(TORCH)) && !has(x, MARK(LOADING)))
    return (guess){
        CAUSE_LEAK, 0.6,
        does(x, TRAIT_FOLDS)
            ? "the log shows that every fold or trial added to it: the models, "
              "optimizers and loaders of earlier ones are still alive"
            : "the log shows that every step added to it: something keeps tensors of each "
              "step (a list, or a sum of losses with their graphs)"};
  if ((m->context.programs & PROGRAM_RETAINS) != 0 && has(x, MARK(TRAINING) | MARK(BACKWARD)) &&
      !has(x, MARK(LOADING) | MARK(OPTIMIZER)))
    return (guess){CAUSE_LEAK, 0.5,
                   "backward(retain_graph=True) keeps the graph of a pass: probably graphs of "
                   "earlier steps are still alive"};
  bool arrays = m->kind == MESSAGE_TORCH || m->kind == MESSAGE_XLA || m->kind == MESSAGE_CUPY;
  if (arrays && (m->context.programs & PROGRAM_PAIRS) != 0 && known(n->asked_bytes) &&
      n->asked_bytes >= PAIRS_LEAST)
    return (guess){CAUSE_ONE_SPIKE, 0.55,
                   "its line makes a table of all pairs of rows, which grows with their square"};
  if (has(x, MARK(OPTIMIZER)))
    return (guess){CAUSE_OPTIMIZER_STATE, bare ? 0.55 : 0.7,
                   "the optimizer needs its own copies of the weights (Adam: two more)"};
  if (has(x, MARK(GATHERING)) && has(x, MARK(SAVING)))
    return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.55,
                   "to save the model, its weights are gathered as a whole on every device"};
  if (has(x, MARK(GATHERING)))
    return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.5, "each rank gathers whole layers of the weights"};
  if (has(x, MARK(COPYING)) && has(x, MARK(TORCH)) && !has(x, MARK(FORWARD)) &&
      !has(x, MARK(BACKWARD)))
    return (guess){CAUSE_LOADED_TWICE, 0.45,
                   "a second copy of the weights was being made (deepcopy)"};
  if (has(x, MARK(BACKWARD)))
    return (guess){CAUSE_BATCH_TOO_BIG, bare ? 0.45 : 0.55,
                   "probably the batch is too big for training on this device"};
  if (has(x, MARK(COLLECTING)) && !has(x, MARK(FORWARD)))
    return (guess){CAUSE_LEAK, 0.55,
                   "it failed while the results of all batches were put together on the device: "
                   "probably they are what fills it"};
  bool torch = m->kind == MESSAGE_TORCH || m->kind == MESSAGE_CUDA || m->kind == MESSAGE_DIRECTML;
  bool trains = has(x, MARK(TRAINING)) || has(x, MARK(COLLECTING));
  if (torch && has(x, MARK(YOLO)) && has(x, MARK(EVALUATING)) && trains)
    return (guess){CAUSE_EVAL_BATCH_BIGGER, 0.5,
                   "it failed during validation, for which ultralytics takes twice the batch of "
                   "training"};
  if (torch && has(x, MARK(EVALUATING)) && has(x, MARK(LIGHTNING)) &&
      (m->context.programs & PROGRAM_LEAKS) != 0)
    return (guess){CAUSE_LEAK, 0.45,
                   "it failed during validation, which Lightning runs without gradients: probably "
                   "results or metrics of earlier batches are still alive"};
  if (torch && has(x, MARK(EVALUATING)) && diagnosis_owned(m) && !has(x, MARK(LOADING)))
    return (guess){CAUSE_EVAL_BATCH_BIGGER, 0.45,
                   "it failed during evaluation, which the trainer runs without gradients: "
                   "probably its batch or its inputs are larger than those of training"};
  if (torch && has(x, MARK(EVALUATING)) && (m->context.programs & PROGRAM_EVALUATES) != 0)
    return (guess){CAUSE_EVAL_BATCH_BIGGER, 0.45,
                   "it failed during evaluation, which this trainer runs without gradients: "
                   "probably its batch or its inputs are larger than those of training"};
  if (torch && has(x, MARK(EVALUATING)) && trains && !has(x, MARK(NO_GRAD)) &&
      !has(x, MARK(LOADING)))
    return (guess){CAUSE_NO_GRAD_MISSING, 0.45,
                   "it failed during evaluation: probably torch.no_grad() is missing there, or the "
                   "evaluation's batch is larger"};
  if (bare && does(x, TRAIT_JETSON) && !known(n->asked_bytes))
    return (guess){CAUSE_UNKNOWN, 0.4,
                   "CPU and GPU of a Jetson share one memory, and it is full: the desktop, other "
                   "programs and this one together"};
  if (has(x, MARK(LOADING)) && bare && m->kind == MESSAGE_CUDA && does(x, TRAIT_FSDP))
    return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.45,
                   "it failed while FSDP placed the weights: probably a rank's part of them does "
                   "not fit, or another process holds the device"};
  if (has(x, MARK(LOADING)) && bare && (m->context.programs & PROGRAM_CANDLE) != 0)
    return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.5,
                   "it failed while weights were loaded: probably they do not fit on the device"};
  if (has(x, MARK(LOADING)) && bare && has(x, MARK(INTEL)))
    return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.45,
                   "it failed while the model's weights were moved to the device: probably they do "
                   "not fit"};
  if (has(x, MARK(LOADING)))
    return bare && m->kind == MESSAGE_CUDA && !has(x, MARK(COMFY))
               ? (guess){CAUSE_OTHER_PROCESS, 0.4,
                         "it failed while weights were loaded: probably another process holds the "
                         "device, or the weights do not fit"}
               : (guess){CAUSE_WEIGHTS_TOO_BIG, 0.65,
                         "the model's weights do not fit on the device"};
  if (bare && m->kind == MESSAGE_CUDA && does(x, TRAIT_TINY))
    return (guess){CAUSE_OTHER_PROCESS, 0.45,
                   "even a tensor of a few bytes did not fit: probably another process holds the "
                   "device, or it is not the device that was meant"};
  if (bare && m->kind == MESSAGE_CUDA && has(x, MARK(PLACING)) && !has(x, MARK(FORWARD)))
    return (guess){CAUSE_OTHER_PROCESS, 0.4,
                   "the first copy to the device failed: probably another process holds it"};
  if (has(x, MARK(FORWARD)) || has(x, MARK(GENERATING)) || has(x, MARK(TRAINING)) ||
      has(x, MARK(COMFY)) || has(x, MARK(WEBUI)))
    return (guess){CAUSE_BATCH_TOO_BIG, bare ? 0.4 : 0.5,
                   "probably what is computed at once (batch, resolution or length) is too big"};
  if (bare && m->kind == MESSAGE_CUDA && (m->details & MESSAGE_MIG) == 0)
    return (guess){CAUSE_UNKNOWN, DIAGNOSIS_BELIEVED,
                   "the text does not say whether this program or another one fills the device"};
  return (guess){CAUSE_BATCH_TOO_BIG, 0.45,
                 "the device is simply full: probably the batch or the model is too big for it"};
}

static guess by_kind(const explanation *x) {
  const message *m = &x->evidence.message;
  guess own;
  bool weights = (m->details & MESSAGE_WEIGHTS) != 0, compute = (m->details & MESSAGE_COMPUTE) != 0;
  if ((m->details & MESSAGE_INIT) != 0)
    return (guess){CAUSE_UNKNOWN, DIAGNOSIS_BELIEVED,
                   "the driver itself could not start: this program had nothing on the device yet"};
  if (by_program(x, &own)) return own;
  if (weights && (m->details & MESSAGE_KV_CACHE) != 0 && m->kind == MESSAGE_CUDA)
    return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.6,
                   "the weights and the cache together do not fit: the loader adds them up before "
                   "it starts"};
  if ((m->context.programs & PROGRAM_HASHCAT) != 0 && known(m->limit_bytes))
    return (guess){CAUSE_LIMIT, 0.5,
                   "one of its buffers is larger than the driver gives at once (the part that is "
                   "allocatable)"};
  bool nccl = does(x, TRAIT_NCCL) || strstr(m->what, "Cuda failure ") != NULL;
  if (nccl && m->kind == MESSAGE_CUDA && has(x, MARK(OPTIMIZER)) &&
      (m->context.programs & PROGRAM_RELOADS) != 0)
    return (guess){CAUSE_OPTIMIZER_STATE, 0.5,
                   "it failed while the optimizer's saved state was loaded (Adam: two more copies "
                   "of the weights); NCCL found nothing left"};
  if (nccl && m->kind == MESSAGE_CUDA && (m->context.programs & PROGRAM_NCCL_DEVICES) != 0)
    return (guess){CAUSE_CACHE_HELD, 0.45,
                   "NCCL allocates outside PyTorch's pool, which keeps what it has cached: "
                   "probably pool and data together leave nothing for NCCL"};
  if (does(x, TRAIT_NCCL) && m->kind == MESSAGE_CUDA)
    return (guess){CAUSE_OTHER_PROCESS, 0.4,
                   "NCCL needs memory of its own: probably two ranks share one device, or the "
                   "program's data leaves nothing for it"};
  switch (m->kind) {
  case MESSAGE_LLAMA:
    if ((m->details & MESSAGE_ONE_BUFFER) != 0 && !weights && !has(x, MARK(APPLE)))
      return (guess){CAUSE_ONE_SPIKE, 0.6,
                     "one buffer is larger than the driver gives at once, however much is free"};
    if (compute && (m->details & MESSAGE_KV_CACHE) != 0)
      return (guess){
          CAUSE_BATCH_TOO_BIG, 0.6,
          "the model is loaded; the KV cache (memory for the tokens of its context) does "
          "not fit beside it"};
    if (compute)
      return (guess){CAUSE_BATCH_TOO_BIG, 0.5,
                     "the model is loaded; its context (KV cache and compute buffer) does not fit"};
    return (guess){CAUSE_WEIGHTS_TOO_BIG, weights ? 0.65 : 0.45,
                   weights ? "the model's weights do not fit on the device"
                           : "probably the model with its context does not fit on the device"};
  case MESSAGE_TGI:
    if (compute)
      return (guess){CAUSE_BATCH_TOO_BIG, 0.5,
                     "the model is loaded; so many tokens at once (at its start the server tries "
                     "the most that its limits allow) do not fit beside it"};
    if (weights)
      return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.65, "the model's weights do not fit on the device"};
    return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.5,
                   "the weights leave too little of the device for so many tokens at once"};
  case MESSAGE_VLLM:
  case MESSAGE_SGLANG:
    if (weights)
      return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.65, "the model's weights do not fit on the device"};
    return compute ? (guess){CAUSE_BATCH_TOO_BIG, 0.5,
                             "the server takes a fixed share of the device for weights and KV "
                             "cache, and what is left is too little for so many requests at once"}
                   : (guess){CAUSE_WEIGHTS_TOO_BIG, 0.5,
                             "the weights leave too little of the device for the KV cache (the "
                             "memory a server keeps for the tokens of its requests)"};
  case MESSAGE_TENSORFLOW:
    if ((m->details & MESSAGE_STATUS) != 0)
      return (guess){CAUSE_UNKNOWN, DIAGNOSIS_BELIEVED,
                     "TensorFlow takes nearly all of the device at its start; the text does not "
                     "say whether that or another program left too little for this library"};
    if (weights && !has(x, MARK(OPTIMIZER)))
      return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.45,
                     "a variable of the model did not fit: probably another process holds the "
                     "device, or the model is too big for it"};
    if ((m->details & MESSAGE_INPUT) != 0)
      return (guess){CAUSE_BATCH_TOO_BIG, 0.5,
                     "a whole array of the program is copied to the device as one tensor: probably "
                     "all the data, or another process holds the device"};
    /* TensorFlow takes what is free when it starts; it could not. */
    if ((m->details & MESSAGE_POOL) != 0 && !weights && !known(m->live_bytes) &&
        !known(m->limit_bytes) && !has(x, MARK(TRAINING) | MARK(FORWARD)))
      return (guess){CAUSE_OTHER_PROCESS, 0.45,
                     "TensorFlow takes a device's free memory for its own pool: probably another "
                     "process holds it already"};
    break;
  case MESSAGE_XLA:
    if ((m->details & MESSAGE_STATUS) != 0)
      return (guess){
          CAUSE_UNKNOWN, 0.35,
          "JAX takes three quarters of the device at its start; probably that, or another "
          "program, left too little for this library"};
    if (known(m->asked_bytes) && m->asked_bytes < DIAGNOSIS_TINY && !has(x, MARK(TPU)))
      return (guess){CAUSE_OTHER_PROCESS, 0.45,
                     "even so little did not fit: probably another process holds the device, or "
                     "arrays of this program that are no longer needed"};
    break;
  case MESSAGE_CTRANSLATE:
    if (has(x, MARK(GENERATING)) && !has(x, MARK(LOADING)))
      return (guess){
          CAUSE_BATCH_TOO_BIG, 0.4,
          "the model is loaded; probably what is decoded at once (batch, beams) does not "
          "fit beside it, or another program holds the device"};
    return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.4,
                   "probably the model is larger than the device's free memory"};
  case MESSAGE_DISPATCH:
    return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.8, "the model's weights do not fit on the device"};
  case MESSAGE_TORCH:
    if ((m->details & MESSAGE_ONE_BUFFER) != 0)
      return (guess){has(x, MARK(APPLE)) ? CAUSE_ONE_SPIKE : CAUSE_LIMIT, 0.6,
                     has(x, MARK(APPLE))
                         ? known(m->limit_bytes)
                               ? "one tensor is larger than the 4 GiB that Metal allows for one"
                               : "one tensor is larger than one buffer may be on this Mac"
                         : "one tensor is larger than the 4 GiB that Intel's driver gives at once"};
    break;
  case MESSAGE_MLX:
    if ((m->details & MESSAGE_WEIGHTS) != 0)
      return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.7,
                     "the model is larger than what macOS gives the GPU on this Mac"};
    if ((m->details & MESSAGE_ONE_BUFFER) != 0)
      return (guess){CAUSE_ONE_SPIKE, 0.6,
                     "one array is larger than one buffer may be on this Mac"};
    break;
  case MESSAGE_TENSORRT:
    if (weights)
      return (guess){CAUSE_WEIGHTS_TOO_BIG, 0.6,
                     "it failed while the engine was loaded: its weights do not fit on the device"};
    if ((m->details & MESSAGE_KV_CACHE) != 0)
      return (guess){CAUSE_BATCH_TOO_BIG, 0.5,
                     "the KV cache (memory for the tokens of the requests) and the buffers for so "
                     "many requests do not fit beside the weights"};
    if ((m->details & MESSAGE_WARNING) != 0)
      return (guess){CAUSE_LIMIT, 0.4,
                     "the kernels that it tried want a larger workspace than is free: a warning, "
                     "the engine is built without them unless an error follows"};
    if ((m->details & MESSAGE_POOL) != 0)
      return (guess){CAUSE_ONE_SPIKE, 0.5,
                     "every kernel for one layer needs a larger workspace than it may use, so no "
                     "engine was built: the limit on the workspace is too low, or the device too "
                     "small"};
    if ((m->details & MESSAGE_WORKSPACE) != 0)
      return (guess){CAUSE_ONE_SPIKE, 0.5,
                     "the requested workspace is larger than the free memory"};
    break;
  case MESSAGE_RMM:
    if ((m->details & MESSAGE_POOL) != 0)
      return (guess){
          CAUSE_LIMIT, 0.5,
          does(x, TRAIT_POOL_START)
              ? "RMM's pool has reached its maximum, or the device has no memory for "
                "the pool's first block"
              : "RMM's pool has reached its maximum, and no free piece in it is large enough"};
    if (strstr(m->context.code, ".merge(") != NULL || strstr(m->context.code, ".join(") != NULL)
      return (guess){CAUSE_ONE_SPIKE, 0.45,
                     "a join makes a row for every pair of equal keys: probably its result is "
                     "larger than the device's free memory"};
    if (!has(x, MARK(READING)))
      return (guess){CAUSE_UNKNOWN, 0.35, "the text does not say what fills the device"};
    return (guess){CAUSE_BATCH_TOO_BIG, 0.45,
                   "probably the table and its copies are larger than the device's free memory"};
  case MESSAGE_NUMBA:
    return (guess){CAUSE_UNKNOWN, 0.35, "the text does not say what fills the device"};
  default: break;
  }
  return by_phase(x);
}

void diagnosis_guess(explanation *x) {
  const message *m = &x->evidence.message;
  char text[160];
  guess g = by_kind(x);
  cause *c = diagnosis_cause(x, g.id, g.confidence);
  usage(x, text);
  /* vLLM and llama.cpp are written like that. */
  bool name = strncmp(text, message_reporter(m), strlen(message_reporter(m))) == 0;
  if (text[0] >= 'a' && text[0] <= 'z' && !name) text[0] = (char)(text[0] - 'a' + 'A');
  cause_head(c, "%s; %s%s", text, g.words,
             (m->details & MESSAGE_SKIPPED) != 0 ? " for this one batch, which was skipped" : "");
  /* What is printed alike may differ by a few MiB. */
  if (m->kind == MESSAGE_TORCH && known(x->evidence.n.free_bytes) &&
      known(x->evidence.n.asked_bytes) && x->evidence.n.free_bytes >= x->evidence.n.asked_bytes)
    cause_say(c, "as much is free as was requested: the driver keeps a little of it, and gives it "
                 "only in whole pieces");
  if (m->kind == MESSAGE_TORCH && has(x, CONTEXT_BIT(WINDOWS)) && known(x->evidence.n.live_bytes) &&
      known(x->evidence.n.device_bytes) && x->evidence.n.live_bytes > x->evidence.n.device_bytes)
    cause_say(c, "what is beyond the device's size is RAM that Windows lends it (shared GPU "
                 "memory), and that is full too");
  if (m->wanted_tokens != MESSAGE_UNKNOWN && m->cache_tokens != MESSAGE_UNKNOWN)
    cause_say(c, "a request may have %llu tokens, the cache holds %s%llu",
              (unsigned long long)m->wanted_tokens,
              (m->details & MESSAGE_ABOUT) != 0 ? "about " : "",
              (unsigned long long)m->cache_tokens);
  else if (m->kind == MESSAGE_VLLM && m->wanted_tokens != MESSAGE_UNKNOWN)
    cause_say(c, "a request may have %llu tokens", (unsigned long long)m->wanted_tokens);
  if (m->kind == MESSAGE_TENSORFLOW && m->rank > 1 && m->what[0] != '\0')
    cause_say(c, "a tensor of shape %s did not fit", m->what);
  if ((m->details & MESSAGE_MIG) != 0 && does(x, TRAIT_JETSON))
    cause_say(c, "PyTorch reported a shortage in other words: it asks NVML for the free memory, "
                 "which "
                 "a Jetson does not have");
  else if ((m->details & MESSAGE_MIG) != 0)
    cause_say(c, "PyTorch could not query NVML (usual on a MIG slice) while it reported an "
                 "out-of-memory error");
  if (m->kind == MESSAGE_LLAMA && m->device > 0 && m->device != UINT32_MAX)
    cause_say(c, "it failed on device %u: others may have free memory", m->device);
  if (m->kind == MESSAGE_LLAMA && m->wanted_tokens != MESSAGE_UNKNOWN)
    cause_say(c, "its context has %llu tokens (n_ctx)", (unsigned long long)m->wanted_tokens);
  if (does(x, TRAIT_JETSON))
    cause_say(c, "a Jetson has no memory of the GPU alone; error 12 of NvMap is ENOMEM");
  if (g.id == CAUSE_LEAK && m->context.growth[0] != '\0')
    cause_say(c, "the log: %s", m->context.growth);
  if (g.id == CAUSE_LEAK && m->context.code[0] != '\0')
    cause_say(c, "the line: %s", m->context.code);
  if ((m->context.programs & PROGRAM_MANAGED) != 0)
    cause_say(c,
              "there bitsandbytes asks for managed memory, which RAM and device share: the state "
              "of a paged optimizer");
  if (does(x, TRAIT_SEARCH)) {
    cause_say(c, "cuDNN found no way to run a convolution: probably no workspace fits beside the "
                 "tensors; a type or size that it does not support ends with the same error");
    return;
  }
  if ((m->details & MESSAGE_STATUS) != 0 && m->kind == MESSAGE_DIRECTML) {
    cause_say(c,
              "8007000E is E_OUTOFMEMORY of DirectML's allocator: the device and the RAM that it "
              "may use beside it are full");
    return;
  }
  if ((m->details & MESSAGE_STATUS) != 0 && !has(x, CONTEXT_BIT(NVIDIA) | CONTEXT_BIT(AMD)) &&
      m->kind == MESSAGE_CUDA) {
    cause_say(c,
              "%.60s: the driver's word for anything that it ran out of, most often the device's "
              "memory",
              m->what);
    return;
  }
  if ((m->details & MESSAGE_STATUS) != 0 && has(x, CONTEXT_BIT(NVIDIA)) &&
      m->kind != MESSAGE_TENSORFLOW && m->kind != MESSAGE_XLA &&
      (m->context.programs & PROGRAM_FFT) == 0)
    cause_say(c,
              "a label or an index out of range (a class number of n or more) ends with the same "
              "error");
  if ((m->details & MESSAGE_STATUS) != 0 && (m->context.programs & PROGRAM_FFT) != 0)
    cause_say(
        c,
        "%.60s: a plan of cuFFT has a work area outside PyTorch's pool; what PyTorch caches is "
        "not free for it",
        m->what);
  else if ((m->details & MESSAGE_STATUS) != 0)
    cause_say(c,
              "%.60s: this library starts late and needs memory in addition to the framework's; "
              "mismatched versions give the same error",
              m->what);
}
