/* Traits: what the program already does and how it was started, by words anywhere in the text; a
 * logged memory figure that grows with every step; a first request that is tiny. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "advise/context_parts.h"

#define LINE_MOST     400                 /* characters of one line that are examined */
#define FIGURES_LEAST 3                   /* figures that show a growth */
#define GROWTH_LEAST  1.5                 /* the last one is as many times the first one */
#define ELEMENTS_TINY (UINT64_C(1) << 20) /* a request that every free device can serve */

static const struct {
  const char *words;
  uint64_t traits;
} table[] = {
    {"autocast", TRAIT_AUTOCAST},
    {"GradScaler", TRAIT_AUTOCAST},
    {"scaler.scale(", TRAIT_AUTOCAST},
    {"scaler.step(", TRAIT_AUTOCAST},
    {"bf16-mixed", TRAIT_AUTOCAST},
    {"16-mixed", TRAIT_AUTOCAST},
    {"precision=16", TRAIT_AUTOCAST},
    {"mixed_precision=fp16", TRAIT_AUTOCAST},
    {"mixed_precision=bf16", TRAIT_AUTOCAST},
    {"AMP: checks passed", TRAIT_AUTOCAST},
    {"16bit Automatic Mixed Precision", TRAIT_AUTOCAST},
    {"scaled_dot_product_attention", TRAIT_FUSED},
    {"sdpa_attention", TRAIT_FUSED},
    {"flash_attn_func", TRAIT_FUSED},
    {"flash_attn_interface", TRAIT_FUSED},
    {"flash_attention_forward", TRAIT_FUSED},
    {"xformers/ops", TRAIT_FUSED},
    {"xformers\\ops", TRAIT_FUSED},
    {"memory_efficient_attention", TRAIT_FUSED},
    {"FullyShardedDataParallel", TRAIT_FSDP},
    {"fully_shard", TRAIT_FSDP},
    {"fsdp", TRAIT_FSDP},
    {"FSDP", TRAIT_FSDP},
    {"in _init_group", TRAIT_STATE},
    {"state[\"exp_avg", TRAIT_STATE},
    {"state['exp_avg", TRAIT_STATE},
    {"initialize_optimizer_states", TRAIT_STATE},
    {"Failed to CUDA calloc", TRAIT_NCCL},
    {"Unable to find a valid cuDNN algorithm", TRAIT_SEARCH},
    {"unable to find an engine to execute", TRAIT_SEARCH},
    {"runtime: out of memory", TRAIT_GO},
    {"runtime: cannot allocate memory", TRAIT_GO},
    {"runtime: VirtualAlloc of ", TRAIT_GO},
    {"goroutine ", TRAIT_GO},
    {"pytest -n ", TRAIT_TEST_WORKERS},
    {"py.test -n ", TRAIT_TEST_WORKERS},
    {"pytest-xdist", TRAIT_TEST_WORKERS},
    {"plugins: xdist", TRAIT_TEST_WORKERS},
    {"[gw0]", TRAIT_TEST_WORKERS},
    {"##[group]", TRAIT_CI},
    {"##[error]", TRAIT_CI},
    {"/runner/w", TRAIT_CI}, /* the folder that GitHub checks out into, on Linux and macOS */
    {"GitHub Actions", TRAIT_CI},
    {"ERROR: Job failed: ", TRAIT_CI},
    {"gitlab-runner", TRAIT_CI},
    {"circleci", TRAIT_CI},
    {"collect2:", TRAIT_LINKER},
    {"ld terminated with signal", TRAIT_LINKER},
    {"linking with `", TRAIT_LINKER},
    {"linker command failed", TRAIT_LINKER},
    {"Linking CXX", TRAIT_LINKER},
    {"cargo ", TRAIT_CARGO},
    {"rustc ", TRAIT_CARGO},
    {"could not compile `", TRAIT_CARGO},
    {"npm ERR!", TRAIT_BUILD | TRAIT_NODE},
    {"npm error", TRAIT_BUILD | TRAIT_NODE},
    {"npm install", TRAIT_BUILD | TRAIT_NODE},
    {"npm ci", TRAIT_BUILD | TRAIT_NODE},
    {"npm run build", TRAIT_BUILD | TRAIT_NODE},
    {"yarn install", TRAIT_BUILD | TRAIT_NODE},
    {"yarn build", TRAIT_BUILD | TRAIT_NODE},
    {"pnpm ", TRAIT_BUILD | TRAIT_NODE},
    {"next build", TRAIT_BUILD | TRAIT_NODE},
    {"vite build", TRAIT_BUILD | TRAIT_NODE},
    {"webpack", TRAIT_BUILD | TRAIT_NODE},
    {"ninja: build stopped", TRAIT_BUILD},
    {"make: ***", TRAIT_BUILD},
    {"make[1]: ***", TRAIT_BUILD},
    {"gradlew", TRAIT_BUILD},
    {"bazel build", TRAIT_BUILD},
    {"cargo build", TRAIT_BUILD},
    {"ffmpeg", TRAIT_FFMPEG},
    {"libx264", TRAIT_FFMPEG},
    {"libx265", TRAIT_FFMPEG},
    {"NvMapMem", TRAIT_JETSON},
    {"JetPack", TRAIT_JETSON},
    {"torch.load(", TRAIT_RESTORE},
    {"torch/serialization.py", TRAIT_RESTORE},
    {"bf16=True", TRAIT_AUTOCAST},
    {"fp16=True", TRAIT_AUTOCAST},
    {"bf16: true", TRAIT_AUTOCAST},
    {"fp16: true", TRAIT_AUTOCAST},
    {"bf16: auto", TRAIT_AUTOCAST},
    {"--bf16", TRAIT_AUTOCAST},
    {"--fp16", TRAIT_AUTOCAST},
    {"mixed_float16", TRAIT_AUTOCAST},
    {"mixed_bfloat16", TRAIT_AUTOCAST},
    {"incompatible with gradient checkpointing", TRAIT_RECOMPUTES},
    {"unsloth", TRAIT_RECOMPUTES | TRAIT_AUTOCAST}, /* unless its user turned them off */
    {"gradient_checkpointing=True", TRAIT_RECOMPUTES},
    {"gradient_checkpointing: true", TRAIT_RECOMPUTES},
    {"gradient_checkpointing True", TRAIT_RECOMPUTES},
    {"gradient_checkpointing_enable()", TRAIT_RECOMPUTES},
    {"torch/utils/checkpoint.py", TRAIT_RECOMPUTES},
    {"torch\\utils\\checkpoint.py", TRAIT_RECOMPUTES},
    {"activation_checkpointing", TRAIT_RECOMPUTES},
    {"AdamW8bit", TRAIT_STATE_8BIT},
    {"Adam8bit", TRAIT_STATE_8BIT},
    {"adamw_8bit", TRAIT_STATE_8BIT},
    {"adamw_bnb_8bit", TRAIT_STATE_8BIT},
    {"paged_adamw", TRAIT_STATE_8BIT},
    {"rasterize_gaussians", TRAIT_SPLAT},
    {"diff_gaussian_raster", TRAIT_SPLAT},
    {"gaussian_renderer", TRAIT_SPLAT},
    {"gaussian-splatting", TRAIT_SPLAT},
    {"splatfacto", TRAIT_SPLAT},
    {"gsplat", TRAIT_SPLAT},
    {"XGBoostError", TRAIT_XGBOOST},
    {"libxgboost", TRAIT_XGBOOST},
    {"Exception in gpu_hist", TRAIT_XGBOOST},
    {"[LightGBM]", TRAIT_LIGHTGBM},
    {"LightGBMError", TRAIT_LIGHTGBM},
    {"faiss::gpu", TRAIT_FAISS},
    {"faiss/gpu", TRAIT_FAISS},
    {"OpenEncodeSessionEx", TRAIT_ENCODER},
    {"NV_ENC_ERR_OUT_OF_MEMORY", TRAIT_ENCODER},
    {"Out of video memory trying to allocate", TRAIT_GAME}, /* Unreal */
    {"safetensors/torch.py", TRAIT_WEIGHTS_FILE},
    {"safetensors\\torch.py", TRAIT_WEIGHTS_FILE},
    {"pyopencl", TRAIT_OPENCL},
    {"MEM_OBJECT_ALLOCATION_FAILURE", TRAIT_OPENCL},
    {"CL_OUT_OF_RESOURCES", TRAIT_OPENCL},
    {"clEnqueue", TRAIT_OPENCL},
    {"exllama", TRAIT_EXLLAMA},
    {"ExLlama", TRAIT_EXLLAMA},
    {"Exllama", TRAIT_EXLLAMA},
    {"abbyAPI", TRAIT_EXLLAMA},
    {"com.nvidia.spark.rapids", TRAIT_SPARK},
    {"spark.rapids.", TRAIT_SPARK},
    {"rapids-4-spark", TRAIT_SPARK},
    {"InvokeAI", TRAIT_INVOKE},
    {"invokeai", TRAIT_INVOKE},
    {"/bin/nvcc", TRAIT_NVCC},
    {"nvcc error", TRAIT_NVCC},
    {"flash-attn", TRAIT_NVCC},
    {"flash_attn", TRAIT_NVCC},
    {"cicc", TRAIT_NVCC},
    {"ptxas", TRAIT_NVCC},
    {"pdist(", TRAIT_PDIST},
    {"linkage(", TRAIT_PDIST},
    {"scipy/spatial/distance.py", TRAIT_PDIST},
    {"scipy\\spatial\\distance.py", TRAIT_PDIST},
    {"scipy/cluster/hierarchy.py", TRAIT_PDIST},
    {"scipy\\cluster\\hierarchy.py", TRAIT_PDIST},
    {"timeline resolution", TRAIT_EDITOR},
    {"DaVinci", TRAIT_EDITOR},
    {"Premiere", TRAIT_EDITOR},
    {"After Effects", TRAIT_EDITOR},
    {"simple_knn", TRAIT_SPLAT},
    {"distCUDA2", TRAIT_SPLAT},
    {"nnUNet", TRAIT_NNUNET},
    {"nnunet", TRAIT_NNUNET},
    {"UnityPlayer", TRAIT_GAME},
    {"GameUserSettings", TRAIT_GAME},
    {"steamapps", TRAIT_GAME},
    {"D3D11RHI", TRAIT_GAME},
    {"D3D12RHI", TRAIT_GAME},
    {"VulkanRHI", TRAIT_GAME},
    {"DXGI_ERROR", TRAIT_GAME},
    {"D3D12", TRAIT_GAME},
    {"D3D11", TRAIT_GAME},
    {"vkd3d", TRAIT_GAME},
    {"dxvk", TRAIT_GAME},
    {"DXVK", TRAIT_GAME},
    {"intern/cycles/", TRAIT_RENDER},
    {"ViewLayer", TRAIT_RENDER},
    {"blender", TRAIT_RENDER},
    {"Blender", TRAIT_RENDER},
    {"Cycles", TRAIT_RENDER},
    {"CYCLES", TRAIT_RENDER},
    {"V-Ray", TRAIT_RENDER},
    {"Redshift", TRAIT_RENDER},
    {"OctaneRender", TRAIT_RENDER},
    {"PaddleOCR", TRAIT_OCR},
    {"paddleocr", TRAIT_OCR},
    {"RapidOCR", TRAIT_OCR},
    {"PP-OCR", TRAIT_OCR},
    {"PP-LCNet", TRAIT_OCR},
    {"PP-Structure", TRAIT_OCR},
    {"PP-DocLayout", TRAIT_OCR},
    {"axolotl", TRAIT_AXOLOTL},
    {"keras/src/", TRAIT_TORCH_FIT},
    {"keras\\src\\", TRAIT_TORCH_FIT},
    {"KERAS_BACKEND=torch", TRAIT_TORCH_FIT},
    {"fastai/", TRAIT_FASTAI},
    {"fastai\\", TRAIT_FASTAI},
    {"fit_one_cycle(", TRAIT_FASTAI},
    {"grpo_trainer", TRAIT_GRPO},
    {"GRPOTrainer", TRAIT_GRPO},
    {"GRPOConfig", TRAIT_GRPO},
    {"snakemake", TRAIT_WORKFLOW},
    {"Error in rule ", TRAIT_WORKFLOW},
    {"N E X T F L O W", TRAIT_NEXTFLOW},
    {"nextflow", TRAIT_NEXTFLOW},
    {"Caused by: Process `", TRAIT_NEXTFLOW},
    {"LM Studio", TRAIT_LMSTUDIO},
    {"LM STUDIO", TRAIT_LMSTUDIO},
    {"lmstudio", TRAIT_LMSTUDIO},
    {"LMSInternal", TRAIT_LMSTUDIO},
    {"lms load", TRAIT_LMSTUDIO},
    {"llama_cpp", TRAIT_LLAMA_CPP},
    {"LlamaCpp(", TRAIT_LLAMA_CPP},
    {"for LlamaCpp", TRAIT_LLAMA_CPP},
    {"llama-cpp-python", TRAIT_LLAMA_CPP},
    {"koboldcpp", TRAIT_KOBOLD},
    {"KoboldCpp", TRAIT_KOBOLD},
    {"kohya", TRAIT_KOHYA},
    {"sd-scripts", TRAIT_KOHYA},
    {"sdxl_train", TRAIT_KOHYA},
    {"flux_train", TRAIT_KOHYA},
    {"train_network.py", TRAIT_KOHYA},
    {"sdxl_train.py", TRAIT_FINETUNES},
    {"flux_train.py", TRAIT_FINETUNES},
    {"sd3_train.py", TRAIT_FINETUNES},
    {"fine_tune.py", TRAIT_FINETUNES},
    {"make_graphed_callables", TRAIT_GRAPHS},
    {"capture_model", TRAIT_GRAPHS},
    {"torch/cuda/graphs.py", TRAIT_GRAPHS},
    {"create_cudagraphs", TRAIT_GRAPHS},
    {"cuda_graph_runner", TRAIT_GRAPHS},
    {"egatron", TRAIT_MEGATRON},
    {"deepspeed/pt/", TRAIT_OLD_SPEED},
    {"deepspeed_light", TRAIT_OLD_SPEED},
    {"torch_memory_saver", TRAIT_ROLLOUT},
    {"verl/", TRAIT_ROLLOUT},
    {"actor_rollout", TRAIT_ROLLOUT},
    {"torchinductor", TRAIT_INDUCTOR},
    {"torch/_inductor", TRAIT_INDUCTOR},
    {"empty_strided_cuda(", TRAIT_INDUCTOR},
    {"rmm.reinitialize(", TRAIT_POOL_START},
    {"PoolMemoryResource.__cinit__", TRAIT_POOL_START},
    {"PoolMemoryResource(", TRAIT_POOL_START},
    {"rmm_pool_size", TRAIT_POOL_START},
    {"/dev/shm/nccl-", TRAIT_NCCL_FILE},
    {"cmake --build", TRAIT_CMAKE},
    {"pip install", TRAIT_PIP},
    {"setup.py", TRAIT_PIP},
    {"build_ext", TRAIT_PIP},
    {"bdist_wheel", TRAIT_PIP},
    {"Building wheel", TRAIT_PIP},
    {"building wheel", TRAIT_PIP},
    {"Could not build wheels", TRAIT_PIP},
    {"uv pip", TRAIT_PIP},
    {"torch/utils/cpp_extension", TRAIT_PIP},
    /* TensorFlow 1: names and messages that 2 no longer has */
    {"[[Node: ", TRAIT_TF1},
    {"python2.7/", TRAIT_TF1},
    {"device:DML", TRAIT_TF1}, /* tensorflow-directml is 1.15 */
    {"tf.Session(", TRAIT_TF1},
    {"sess.run(", TRAIT_TF1},
    {"tf.ConfigProto(", TRAIT_TF1},
    {"tf.contrib", TRAIT_TF1},
    {"tensorflow/contrib", TRAIT_TF1},
    {"tensorflow==1.", TRAIT_TF1},
    {"tensorflow-gpu==1.", TRAIT_TF1},
    {"TensorFlow 1.", TRAIT_TF1},
    {"tensor2tensor", TRAIT_TF1},
    {"batch", TRAIT_BATCHES},
    {"Batch", TRAIT_BATCHES},
    {"oader", TRAIT_BATCHES},
    {"per_gpu=", TRAIT_BATCHES},
    {"rocm", TRAIT_ROCM},
    {"ROCm", TRAIT_ROCM},
    {"HIP", TRAIT_ROCM},
    {"hipMalloc", TRAIT_ROCM},
    {"hipError", TRAIT_ROCM},
    {"libamdhip", TRAIT_ROCM},
    {"amdgpu", TRAIT_ROCM},
    {"radv", TRAIT_ROCM},
    {"short test summary info", TRAIT_TESTS},
    {"test session starts", TRAIT_TESTS},
    {"pytest", TRAIT_TESTS},
    {"Traceback (most", TRAIT_PYTHON},
    {">>> ", TRAIT_PYTHON},
    {".py\"", TRAIT_PYTHON},
    {".py:", TRAIT_PYTHON},
    {".py ", TRAIT_PYTHON},
    {".ipynb", TRAIT_PYTHON},
    {"ython3", TRAIT_PYTHON},
    {"ython ", TRAIT_PYTHON},
    {"(python", TRAIT_PYTHON},
    {"pip install", TRAIT_PYTHON},
    {"ipython", TRAIT_PYTHON},
    {"pytest", TRAIT_PYTHON},
    {"upyter", TRAIT_PYTHON},
    {"Cell In[", TRAIT_PYTHON},
    {"pandas", TRAIT_PYTHON},
    {"numpy", TRAIT_PYTHON},
    {"torch", TRAIT_PYTHON},
    {"gunicorn", TRAIT_PYTHON},
    {"DataLoader", TRAIT_PYTHON},
    {"transformers", TRAIT_PYTHON},
    {"polars", TRAIT_PYTHON},
    {"tokenizers", TRAIT_PYTHON},
    {"safetensors", TRAIT_PYTHON},
    {"xgboost", TRAIT_PYTHON},
    {"lightgbm", TRAIT_PYTHON},
    {"sklearn", TRAIT_PYTHON},
    {"tensorflow", TRAIT_PYTHON},
    {"keras", TRAIT_PYTHON},
    {"jaxlib", TRAIT_PYTHON},
    {"Loading checkpoint shards", TRAIT_PYTHON},
};

/* Words that count only where they begin: "integrator" is no Tegra. */
static const struct {
  const char *words;
  uint64_t traits;
} begins[] = {
    {"jetson", TRAIT_JETSON},      {"Jetson", TRAIT_JETSON}, {"JETSON", TRAIT_JETSON},
    {"tegra", TRAIT_JETSON},       {"Tegra", TRAIT_JETSON},  {"L4T", TRAIT_JETSON},
    {"n_pts=", TRAIT_SPLAT},       {"UE4", TRAIT_GAME},      {"UE5", TRAIT_GAME},
    {"MemoryError", TRAIT_PYTHON},
};

bool context_has_begin(scan_text t, const char *words) {
  for (const char *start = NULL, *after; (after = scan_find_at(t, words, &start)) != NULL;
       t.at = after)
    if (start == t.at || !isalnum((unsigned char)start[-1])) return true;
  return false;
}

/* ---- a figure that grows ---- */

/* A figure in a line of a log: "mem_gb=15.3", "gpu_mem: 8.1G". */
typedef struct figure {
  scan_text name;
  double value;
} figure;

static bool is_of_another_amount(scan_text name) {
  static const char *const others[] = {"peak", "max", "total", "free", "avail", "Max", "Peak"};
  return scan_has_any(name, others, sizeof others / sizeof *others);
}

/* Reads a plain number with a fraction at `at`. */
static bool read_value(scan_text t, const char *at, double *value) {
  double scale = 0;
  *value = 0;
  if (at >= t.end || !isdigit((unsigned char)*at)) return false;
  for (; at < t.end && (isdigit((unsigned char)*at) || (*at == '.' && scale == 0)); at++) {
    if (*at == '.')
      scale = 1;
    else
      *value = *value * 10 + (*at - '0'), scale *= 10;
  }
  if (scale > 1) *value /= scale;
  return true;
}

/* Finds the first name of a memory figure in the line of a step. */
static bool find_figure(scan_text line, figure *f) {
  static const char *const names[] = {"mem", "Mem", "MEM", "llocated", "VRAM", "vram", "rss"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *start = NULL;
    const char *at = scan_find_at(line, names[i], &start);
    if (at == NULL) continue;
    while (start > line.at && scan_is_word(start[-1])) start--;
    while (at < line.end && scan_is_word(*at)) at++;
    f->name = (scan_text){start, at};
    while (at < line.end && (*at == '=' || *at == ':' || *at == ' ')) at++;
    if (at > f->name.end && !is_of_another_amount(f->name) && read_value(line, at, &f->value))
      return true;
  }
  return false;
}

/* Returns whether a line reports a step of a loop, not of loading. */
static bool is_step(scan_text line) {
  static const char *const words[] = {"it/s", "s/it",  "%|",    "step", "Step", "iter",  "Iter",
                                      "poch", "batch", "Batch", "fold", "Fold", "trial", "Trial"};
  return scan_has_any(line, words, sizeof words / sizeof *words) && !scan_has(line, "oading");
}

/* Returns whether a line reports one of several trainings. */
static bool is_fold(scan_text line) {
  static const char *const words[] = {"fold", "Fold", "trial", "Trial"};
  return scan_has_any(line, words, sizeof words / sizeof *words);
}

/* Sets the trait if one figure grows evenly: each step adds between half and twice the mean. The
 * first figures may be those of a cache that fills, so the series may begin anew. */
static void read_growth(context *c, scan_text t) {
  figure first = {.value = 0}, last = first, now;
  double least = 0, most = 0;
  uint32_t count = 0;
  bool folds = false;
  scan_text line;
  while (scan_next_line(&t, &line)) {
    if (line.end - line.at > LINE_MOST) line.end = line.at + LINE_MOST;
    if (!is_step(line) || !find_figure(line, &now)) continue;
    size_t length = (size_t)(now.name.end - now.name.at);
    bool same = count > 0 && length == (size_t)(last.name.end - last.name.at) &&
                memcmp(now.name.at, last.name.at, length) == 0;
    double added = same ? now.value - last.value : 0;
    if (!same || added <= 0) {
      first = last = now;
      least = most = 0;
      count = 1;
      continue;
    }
    least = count == 1 || added < least ? added : least;
    most = added > most ? added : most;
    last = now;
    folds = is_fold(line);
    count++;
  }
  if (count < FIGURES_LEAST || last.value < first.value * GROWTH_LEAST || most > 3 * least) return;
  c->traits |= TRAIT_GROWS | (folds ? TRAIT_FOLDS : 0);
  snprintf(c->growth, sizeof c->growth, "%.*s from %.4g to %.4g in %u lines",
           (int)(last.name.end - last.name.at < 24 ? last.name.end - last.name.at : 24),
           last.name.at, first.value, last.value, count);
}

/* ---- a tiny request ---- */

/* Returns whether the user's own line makes a tensor of a few elements: "torch.zeros(1, …)",
 * "torch.ones((2, 3), …)". */
static bool is_tiny(scan_text code) {
  static const char *const calls[] = {"torch.zeros(", "torch.ones(",  "torch.empty(",
                                      "torch.rand(",  "torch.randn(", "torch.full("};
  const char *at = NULL;
  for (size_t i = 0; i < sizeof calls / sizeof *calls && at == NULL; i++)
    at = scan_find(code, calls[i]);
  if (at == NULL) return false;
  while (at < code.end && (*at == '(' || *at == '[')) at++;
  uint64_t elements = 1;
  const char *first = at;
  while (at < code.end && isdigit((unsigned char)*at)) {
    uint64_t dim = scan_number(code, at);
    if (dim == 0 || dim > ELEMENTS_TINY) return false;
    elements *= dim;
    if (elements > ELEMENTS_TINY) return false;
    while (at < code.end && isdigit((unsigned char)*at)) at++;
    bool operation = at < code.end && *at != ',' && *at != ')' && *at != ']';
    if (operation) return false; /* "8 * n" */
    while (at < code.end && (*at == ',' || *at == ' ')) at++;
  }
  /* The arguments after the sizes are named. A plain name is another size. */
  const char *name = at;
  while (name < code.end && scan_is_word(*name)) name++;
  return at > first && (name == at || (name < code.end && *name == '='));
}

#define WORDS_LEAST  30000               /* a vocabulary; few other matrices are as wide … */
#define LOGITS_LEAST (UINT64_C(1) << 26) /* … and have so many elements */

/* Returns whether torch.compile's code was making a matrix with a column for every word of a
 * vocabulary: "buf7 = empty_strided_cuda((8192, 50304), (50304, 1), torch.bfloat16)". */
static bool makes_logits(scan_text t) {
  const char *at = NULL;
  for (const char *next = t.at;
       (next = scan_find(scan_from(t, next), "empty_strided_cuda((")) != NULL;)
    at = next;
  uint64_t elements = 1, last = 0;
  while (at != NULL && at < t.end && *at != ')') {
    if (!isdigit((unsigned char)*at)) {
      at++;
      continue;
    }
    last = scan_number(t, at);
    if (last == 0 || last > UINT32_MAX || elements > UINT64_C(1) << 40) return false;
    elements *= last;
    while (at < t.end && isdigit((unsigned char)*at)) at++;
  }
  return last >= WORDS_LEAST && elements >= LOGITS_LEAST && elements > last;
}

/* Reads the build of llama.cpp: "build: 6730 (e4f8a6cc)", "build = 3906 (7eee341b)", or how it
 * writes the setting of flash attention. */
static void read_llama_build(context *c, scan_text t) {
  static const char *const numbers[] = {"build: ", "build = ", "version: "};
  static const char *const newer[] = {"flash_attn = auto", "flash_attn = enabled",
                                      "flash_attn = disabled", "[on|off|auto]"};
  static const char *const older[] = {"flash_attn = 0", "flash_attn = 1",
                                      "llama_new_context_with_model"};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers && c->llama_build == 0; i++) {
    const char *at = scan_find(t, numbers[i]), *end = at;
    uint64_t number = scan_number(t, at);
    while (end != NULL && end < t.end && isdigit((unsigned char)*end)) end++;
    bool hash = end != NULL && scan_starts((scan_text){end, t.end}, " (");
    if (hash && number > 500 && number < 1000000) c->llama_build = (uint32_t)number;
  }
  if (c->llama_build != 0) return;
  if (scan_has_any(t, newer, sizeof newer / sizeof *newer))
    c->llama_build = LLAMA_FA_VALUE;
  else if (scan_has_any(t, older, sizeof older / sizeof *older))
    c->llama_build = LLAMA_FA_VALUE - 1;
}

void context_read_traits(context *c, scan_text text, scan_text raw) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if ((c->traits & table[i].traits) != table[i].traits && scan_has(raw, table[i].words))
      c->traits |= table[i].traits;
  for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
    if ((c->traits & begins[i].traits) == 0 && context_has_begin(raw, begins[i].words))
      c->traits |= begins[i].traits;
  static const char *const python[] = {"Traceback (most", ".py", "python ", "(python"};
  if (scan_has_any(raw, python, sizeof python / sizeof *python))
    c->traits &= ~(uint64_t)(TRAIT_BUILD | TRAIT_NODE | TRAIT_FFMPEG);
  read_growth(c, text);
  read_llama_build(c, text);
  scan_text code = {c->code, c->code + strlen(c->code)};
  if (is_tiny(code)) c->traits |= TRAIT_TINY;
  if (makes_logits(text)) c->traits |= TRAIT_LOGITS;
  /* The line that failed makes a tensor in 16 bits. */
  static const char *const narrow[] = {"torch.bfloat16", "torch.float16"};
  bool makes = (c->traits & TRAIT_INDUCTOR) != 0;
  if (makes && scan_has_any(text, narrow, sizeof narrow / sizeof *narrow))
    c->traits |= TRAIT_AUTOCAST;
}
