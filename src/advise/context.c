/* Context: finds marks with tables of words, and the phase by the position of its words in the
 * traceback. */
#include "advise/context.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "advise/clean.h"
#include "advise/context_parts.h"
#include "advise/language.h"

#define BATCH_MOST (1u << 20) /* larger numbers after such a word are something else */

/* Words anywhere in the text. Those of `raw` are searched before prefixes are removed. */
static const struct {
  const char *words;
  uint64_t marks;
} everywhere[] = {
    {"WinError", CONTEXT_BIT(WINDOWS)},
    {"File \"torch\\", CONTEXT_BIT(WINDOWS)}, /* a program that PyInstaller packed */
    {"File \"whisper\\", CONTEXT_BIT(WINDOWS)},
    {"\\lib\\site-packages\\", CONTEXT_BIT(WINDOWS)},
    {"\\Lib\\site-packages\\", CONTEXT_BIT(WINDOWS)},
    {".dll", CONTEXT_BIT(WINDOWS)},
    {"\\site-packages\\", CONTEXT_BIT(WINDOWS)},
    {"Press any key to continue", CONTEXT_BIT(WINDOWS)},
    {"ask manager", CONTEXT_BIT(WINDOWS)},
    {"ask Manager", CONTEXT_BIT(WINDOWS)},
    {"c10\\core\\", CONTEXT_BIT(WINDOWS)},
    {"..\\\\aten\\\\", CONTEXT_BIT(WINDOWS)},
    {"[MSC v.", CONTEXT_BIT(WINDOWS)}, /* of Python's own banner */
    {"set COMMANDLINE_ARGS=", CONTEXT_BIT(WINDOWS)},
    {"/mnt/c/", CONTEXT_BIT(WSL)},
    {"WSL2", CONTEXT_BIT(WSL)},
    {"/Users/", CONTEXT_BIT(MAC)},
    {"/Applications/", CONTEXT_BIT(MAC)},
    {"MacBook", CONTEXT_BIT(MAC)},
    {"Mac mini", CONTEXT_BIT(MAC)},
    {"Mac Studio", CONTEXT_BIT(MAC)},
    {"/opt/homebrew/", CONTEXT_BIT(MAC)},
    {"Killed: 9", CONTEXT_BIT(MAC)},
    {"/home/", CONTEXT_BIT(LINUX)},
    {"/usr/", CONTEXT_BIT(LINUX)},
    {"/opt/conda", CONTEXT_BIT(LINUX)},
    {"/root", CONTEXT_BIT(LINUX)},
    {"/mnt/", CONTEXT_BIT(LINUX)},
    {"/data", CONTEXT_BIT(LINUX)},
    {"/workspace/", CONTEXT_BIT(LINUX) | CONTEXT_BIT(CONTAINER)},
    {"slurm", CONTEXT_BIT(LINUX)},
    {"cgroup", CONTEXT_BIT(LINUX)},
    {"/content/", CONTEXT_BIT(LINUX) | CONTEXT_BIT(COLAB) | CONTEXT_BIT(NOTEBOOK)},
    {"Colab", CONTEXT_BIT(LINUX) | CONTEXT_BIT(COLAB) | CONTEXT_BIT(NOTEBOOK)},
    {"Kaggle", CONTEXT_BIT(LINUX) | CONTEXT_BIT(KAGGLE) | CONTEXT_BIT(NOTEBOOK)},
    {"Your session crashed after using all", CONTEXT_BIT(LINUX) | CONTEXT_BIT(COLAB)},
    {"/kaggle/", CONTEXT_BIT(LINUX) | CONTEXT_BIT(KAGGLE) | CONTEXT_BIT(NOTEBOOK)},
    {"<ipython-input", CONTEXT_BIT(NOTEBOOK)},
    {"ipykernel", CONTEXT_BIT(NOTEBOOK)},
    {"Cell In[", CONTEXT_BIT(NOTEBOOK)},
    {"Your notebook", CONTEXT_BIT(NOTEBOOK)},
    {"Your session", CONTEXT_BIT(NOTEBOOK)},
    {"kernel appears to have died", CONTEXT_BIT(NOTEBOOK)},
    {"docker", CONTEXT_BIT(CONTAINER)},
    {"/app/", CONTEXT_BIT(CONTAINER)},
    {"DmlAllocato", CONTEXT_BIT(ANY_VENDOR) | CONTEXT_BIT(WINDOWS)},
    {"device:DML", CONTEXT_BIT(ANY_VENDOR) | CONTEXT_BIT(WINDOWS)},
    {"directml", CONTEXT_BIT(ANY_VENDOR) | CONTEXT_BIT(WINDOWS)},
    {"not enough GPU video memory available", CONTEXT_BIT(ANY_VENDOR) | CONTEXT_BIT(WINDOWS)},
    {"ggml_vulkan", CONTEXT_BIT(ANY_VENDOR)},
    {"vk::Device", CONTEXT_BIT(ANY_VENDOR)},
    {"VK_ERROR", CONTEXT_BIT(ANY_VENDOR)},
    {"vkAllocateMemory", CONTEXT_BIT(ANY_VENDOR)},
    {"vkQueueSubmit", CONTEXT_BIT(ANY_VENDOR)},
    {"ncnn-vulkan", CONTEXT_BIT(ANY_VENDOR)},
    {"anv_device.c", CONTEXT_BIT(INTEL)},
    {"ggml-sycl", CONTEXT_BIT(INTEL)},
    {"ggml_sycl", CONTEXT_BIT(INTEL)},
    {"radv", CONTEXT_BIT(AMD)},
    {"HIP_ERROR", CONTEXT_BIT(AMD)},
    {"rocm", CONTEXT_BIT(AMD)},
    {"ROCm", CONTEXT_BIT(AMD)},
    {"Radeon", CONTEXT_BIT(AMD)},
    {"Advanced Micro Devices", CONTEXT_BIT(AMD)},
    {"hipMalloc", CONTEXT_BIT(AMD)},
    {"torch", CONTEXT_BIT(TORCH)},
    {"PyTorch", CONTEXT_BIT(TORCH)},
    {"RuntimeError: CUDA error", CONTEXT_BIT(TORCH)},
    {"THCudaCheck", CONTEXT_BIT(TORCH)},
    {"CUDA kernel errors might be", CONTEXT_BIT(TORCH)},
    {"loss.backward()", CONTEXT_BIT(TORCH)},
    {"KSampler", CONTEXT_BIT(TORCH)},
    {"transformers", CONTEXT_BIT(TRANSFORMERS)},
    {"onnxruntime", CONTEXT_BIT(ONNX)},
    {"ONNXRuntimeError", CONTEXT_BIT(ONNX)},
    {"Transformers", CONTEXT_BIT(TRANSFORMERS)},
    {"AutoModel", CONTEXT_BIT(TRANSFORMERS)},
    {"from_pretrained", CONTEXT_BIT(TRANSFORMERS)},
    {"transformers/trainer.py", CONTEXT_BIT(TRAINER) | CONTEXT_BIT(TRAINING)},
    {"in _inner_training_loop", CONTEXT_BIT(TRAINER) | CONTEXT_BIT(TRAINING)},
    {"transformers\\trainer.py", CONTEXT_BIT(TRAINER) | CONTEXT_BIT(TRAINING)},
    {"trainer_pt_utils.py", CONTEXT_BIT(TRAINER) | CONTEXT_BIT(TRANSFORMERS)},
    {"SFTTrainer", CONTEXT_BIT(TRAINER) | CONTEXT_BIT(TRAINING)},
    {"GRPOTrainer", CONTEXT_BIT(TRAINER) | CONTEXT_BIT(TRAINING)},
    {"DPOTrainer", CONTEXT_BIT(TRAINER) | CONTEXT_BIT(TRAINING)},
    {"Seq2SeqTrainer", CONTEXT_BIT(TRAINER) | CONTEXT_BIT(TRAINING)},
    {"trl/trainer", CONTEXT_BIT(TRAINER) | CONTEXT_BIT(TRAINING)},
    {"unsloth", CONTEXT_BIT(TRANSFORMERS) | CONTEXT_BIT(LORA)},
    {"peft", CONTEXT_BIT(LORA)},
    {"lora", CONTEXT_BIT(LORA)},
    {"lightning", CONTEXT_BIT(LIGHTNING)},
    {"Validation DataLoader 0:", CONTEXT_BIT(LIGHTNING)},
    {", v_num=", CONTEXT_BIT(LIGHTNING)},
    {"deepspeed", CONTEXT_BIT(DEEPSPEED)},
    {"DeepSpeed", CONTEXT_BIT(DEEPSPEED)},
    {"zero3", CONTEXT_BIT(DEEPSPEED)},
    {"param_coordinator", CONTEXT_BIT(DEEPSPEED)},
    {"comfy", CONTEXT_BIT(COMFY)},
    {"ComfyUI", CONTEXT_BIT(COMFY)},
    {"KSampler", CONTEXT_BIT(COMFY)},
    {"common_ksampler", CONTEXT_BIT(COMFY)},
    {"in get_output_data", CONTEXT_BIT(COMFY)},
    {"!!! Exception during processing !!!", CONTEXT_BIT(COMFY)},
    {"Prompt executed in", CONTEXT_BIT(COMFY)},
    {"Triton Error [CUDA]", CONTEXT_BIT(TORCH)},
    {"triton/runtime/", CONTEXT_BIT(TORCH)},
    {"stable-diffusion-webui", CONTEXT_BIT(WEBUI)},
    {"hires.fix", CONTEXT_BIT(WEBUI)},
    {"ires. fix", CONTEXT_BIT(WEBUI)},
    {"sd-webui", CONTEXT_BIT(WEBUI)},
    {"sd.webui", CONTEXT_BIT(WEBUI)},
    {"webui-user", CONTEXT_BIT(WEBUI)},
    {"webui_forge", CONTEXT_BIT(WEBUI)},
    {"modules_forge", CONTEXT_BIT(WEBUI)},
    {"modules/processing.py", CONTEXT_BIT(WEBUI)},
    {"modules\\processing.py", CONTEXT_BIT(WEBUI)},
    {"modules/call_queue.py", CONTEXT_BIT(WEBUI)},
    {"modules\\call_queue.py", CONTEXT_BIT(WEBUI)},
    {"modules/sd_hijack", CONTEXT_BIT(WEBUI)},
    {"modules\\sd_hijack", CONTEXT_BIT(WEBUI)},
    {"modules/sd_models.py", CONTEXT_BIT(WEBUI)},
    {"modules\\sd_models.py", CONTEXT_BIT(WEBUI)},
    {"COMMANDLINE_ARGS", CONTEXT_BIT(WEBUI)},
    {"AUTOMATIC1111", CONTEXT_BIT(WEBUI)},
    {"utomatic1111", CONTEXT_BIT(WEBUI)},
    {"A1111", CONTEXT_BIT(WEBUI)},
    {"a1111", CONTEXT_BIT(WEBUI)},
    {"Stable diffusion model failed", CONTEXT_BIT(WEBUI)},
    {"Time taken:", CONTEXT_BIT(WEBUI)},
    {"Fooocus", CONTEXT_BIT(WEBUI)},
    {"diffusers", CONTEXT_BIT(DIFFUSERS)},
    {"ldm/", CONTEXT_BIT(DIFFUSERS)},
    {"pipe.to(", CONTEXT_BIT(DIFFUSERS)},
    {"DiffusionPipeline", CONTEXT_BIT(DIFFUSERS)},
    {"yolo", CONTEXT_BIT(YOLO)},
    {"enable_model_cpu_offload(", CONTEXT_BIT(DIFFUSERS)},
    {"enable_sequential_cpu_offload(", CONTEXT_BIT(DIFFUSERS)},
    {"ultralytics", CONTEXT_BIT(YOLO)},
    {"AutoBatch: ", CONTEXT_BIT(YOLO)},
    {"imgsz=", CONTEXT_BIT(YOLO)},
    {"whisper", CONTEXT_BIT(WHISPER)},
    {"ollama", CONTEXT_BIT(OLLAMA)},
    {"llama runner", CONTEXT_BIT(OLLAMA)},
    {"keras", CONTEXT_BIT(KERAS)},
    {"pandas", CONTEXT_BIT(PANDAS)},
    {"read_csv", CONTEXT_BIT(PANDAS) | CONTEXT_BIT(READING)},
    {"cudf", CONTEXT_BIT(RAPIDS)},
    {"distributed.nanny", CONTEXT_BIT(DASK)},
    {"distributed.worker", CONTEXT_BIT(DASK)},
    {"dask", CONTEXT_BIT(DASK)},
    {"expandable_segments=True", CONTEXT_BIT(EXPANDABLE)},
    {"Loading checkpoint shards", CONTEXT_BIT(LOADING) | CONTEXT_BIT(TRANSFORMERS)},
    {"Downloading shards", CONTEXT_BIT(LOADING) | CONTEXT_BIT(TRANSFORMERS)},
    {"Loading safetensors", CONTEXT_BIT(LOADING)},
    {"model failed to load", CONTEXT_BIT(LOADING)},
    {"Loading weights", CONTEXT_BIT(LOADING)},
    {"load_model", CONTEXT_BIT(LOADING)},
    {"torch.no_grad", CONTEXT_BIT(NO_GRAD)},
    {"decorate_context", CONTEXT_BIT(NO_GRAD)},
    {"inference_mode", CONTEXT_BIT(NO_GRAD)},
    {"os.fork()", CONTEXT_BIT(FORKING)},
    {"_execute_child", CONTEXT_BIT(STARTING)},
    {"popen_fork", CONTEXT_BIT(FORKING)},
    {"pickler.dump", CONTEXT_BIT(SAVING)},
    {"pickle.dump", CONTEXT_BIT(SAVING)},
    {"torch.save(", CONTEXT_BIT(SAVING)},
    {"np.load(", CONTEXT_BIT(READING)},
    {"loadtxt", CONTEXT_BIT(READING)},
    {"json.load", CONTEXT_BIT(READING)},
    {".read()", CONTEXT_BIT(READING)},
    {"read_parquet", CONTEXT_BIT(PANDAS) | CONTEXT_BIT(READING)},
    {"read_excel", CONTEXT_BIT(PANDAS) | CONTEXT_BIT(READING)},
    {"DMatrix(", CONTEXT_BIT(READING)},
    {"np.concatenate", CONTEXT_BIT(COPYING)},
    {"pd.concat", CONTEXT_BIT(COPYING) | CONTEXT_BIT(PANDAS)},
    {".astype(", CONTEXT_BIT(COPYING)},
    {"copy.deepcopy", CONTEXT_BIT(COPYING)},
    {"to_numpy", CONTEXT_BIT(COPYING)},
    {"Failed to clone() tensor with name", CONTEXT_BIT(SAVING) | CONTEXT_BIT(GATHERING)}, /* FSDP */
    {"jax", CONTEXT_BIT(JAX)},
    {"mindspore", CONTEXT_BIT(MINDSPORE)},
    {"MindSpore", CONTEXT_BIT(MINDSPORE)},
    {"vllm/", CONTEXT_BIT(VLLM)},
    {"vllm\\", CONTEXT_BIT(VLLM)},
    {"vllm serve", CONTEXT_BIT(VLLM)},
    {"vllm.entrypoints", CONTEXT_BIT(VLLM)},
    {"sglang/", CONTEXT_BIT(SGLANG)},
    {"sglang.launch_server", CONTEXT_BIT(SGLANG)},
    {"--mem-fraction-static", CONTEXT_BIT(SGLANG)},
    {"torch.distributed.elastic", CONTEXT_BIT(RANKS)},
    {"torch.distributed.run", CONTEXT_BIT(RANKS)},
    {"torchrun", CONTEXT_BIT(RANKS)},
    {"[rank", CONTEXT_BIT(RANKS)},
    {"[RANK ", CONTEXT_BIT(RANKS)},
    {"[Rank ", CONTEXT_BIT(RANKS)},
    {"_HBM0)", CONTEXT_BIT(TPU)},
    {"at the bottom of memory", CONTEXT_BIT(TPU)},
    {"cannot allocate vector of size", CONTEXT_BIT(R)},
    {"vector memory exhausted", CONTEXT_BIT(R)},
    {"vector memory limit of", CONTEXT_BIT(R)},
    {"Execution halted", CONTEXT_BIT(R)},
    {"Rscript", CONTEXT_BIT(R)},
    {"Reached total allocation of", CONTEXT_BIT(R) | CONTEXT_BIT(WINDOWS)},
    {"(32-bit)", CONTEXT_BIT(BITS_32)},
    {" 32 bit (Intel)", CONTEXT_BIT(BITS_32)}, /* Python on Windows */
    {"i386-w64", CONTEXT_BIT(BITS_32)},
    {"i386-pc-", CONTEXT_BIT(BITS_32)},
    {"i686-pc-", CONTEXT_BIT(BITS_32)},
    {"Reached total allocation of 1535Mb", CONTEXT_BIT(BITS_32)}, /* R's limits on 32-bit Windows */
    {"Reached total allocation of 2047Mb", CONTEXT_BIT(BITS_32)},
    {"Reached total allocation of 3583Mb", CONTEXT_BIT(BITS_32)},
    {"Reached total allocation of 4095Mb", CONTEXT_BIT(BITS_32)},
    {"Process R:", CONTEXT_BIT(R)},
    {"library(dplyr)", CONTEXT_BIT(R)},
    {"data.table::", CONTEXT_BIT(R)},
    {"arrow::read_", CONTEXT_BIT(R)},
    {"arrow::open_", CONTEXT_BIT(R)},
    {"MATLAB", CONTEXT_BIT(MATLAB)},
    {"gpuDevice(", CONTEXT_BIT(MATLAB)},
    {"gpuArray", CONTEXT_BIT(MATLAB)},
    {"vl_nnconv", CONTEXT_BIT(MATLAB)},
    {"vl_simplenn", CONTEXT_BIT(MATLAB)},
    {"Maximum variable size allowed on the device", CONTEXT_BIT(MATLAB)},
    {"Type \"help memory\" for your options", CONTEXT_BIT(MATLAB)},
    {"maximum array size preference", CONTEXT_BIT(MATLAB)},
    {"OutOfMemoryError()", CONTEXT_BIT(JULIA)},
    {"julia> ", CONTEXT_BIT(JULIA)},
    {"boot.jl:", CONTEXT_BIT(JULIA)},
    {".jl:", CONTEXT_BIT(JULIA)},   /* a frame of Julia's */
    {"do.call ->", CONTEXT_BIT(R)}, /* R's list of calls */
    {"call_c_function", CONTEXT_BIT(R)},
    {"cpp_torch_", CONTEXT_BIT(R)}, /* torch for R */
    {"luz::", CONTEXT_BIT(R)},
    {"library(torch)", CONTEXT_BIT(R)},
    {"library(luz)", CONTEXT_BIT(R)},
    {"Chiamate: ", CONTEXT_BIT(R)},
};

/* ---- progress, batch and precision ---- */

/* Returns whether a line is a progress bar's, or a logger's line for one step. */
static bool is_progress(scan_text line) {
  return scan_has(line, "it/s") || scan_has(line, "s/it") || scan_has(line, "%|");
}

/* Sets the phase that the last progress bar before the end names: "Epoch (valid):   3% 1/32". */
static void read_progress(context *c, scan_text t) {
  static const char *const words[] = {
      "(valid)", "(val)", "Valid", "valid:", "val:",
      "Eval",    "eval:", "Test:", "(test)", "Class Images Instances"};
  bool evaluating = false, trains = false, loaded = false, later = false;
  bool tunes = scan_has(t, "trainable params");
  scan_text line;
  while (scan_next_line(&t, &line)) {
    if (line.end - line.at > 400) line.end = line.at + 400;
    if (!is_progress(line)) continue;
    if (scan_has(line, "oading ") || scan_has(line, "ownloading "))
      loaded = scan_has(line, "100%");
    else
      later = later || loaded; /* the weights are there, and the steps have begun */
    evaluating = false;
    trains = trains || scan_has(line, "rain");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
      evaluating = evaluating || scan_has(line, words[i]);
  }
  if (evaluating) c->seen |= CONTEXT_BIT(EVALUATING) | (trains ? CONTEXT_BIT(TRAINING) : 0);
  if (later) c->seen &= ~CONTEXT_BIT(LOADING);
  if (later && (tunes || trains)) c->seen |= CONTEXT_BIT(TRAINING);
}

/* ---- the user's own loops ---- */

#define LOOP_LINES 12 /* lines after the head of a loop that are taken for its body */

/* Returns whether a name in the text begins with a word for evaluation: "val_dl", "testloader",
 * "self.valid_set". "values" and "latest" are other words. */
static bool names_evaluation(scan_text t) {
  static const char *const names[] = {"val",     "valid", "validation", "test",
                                      "testing", "eval",  "evaluation", "dev"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    scan_text left = t;
    for (const char *start, *end; (end = scan_find_at(left, names[i], &start)) != NULL;
         left.at = end) {
      bool begins = start == t.at || !scan_is_word(start[-1]);
      scan_text rest = {end, t.end};
      bool ends = end == t.end || !isalpha((unsigned char)*end) || scan_starts(rest, "loader") ||
                  scan_starts(rest, "data") || scan_starts(rest, "set");
      if (begins && ends) return true;
    }
  }
  return false;
}

/* Returns whether the line is the head of a loop over evaluation data: "for x, y in val_dl:". */
static bool begins_evaluation(scan_text line) {
  const char *at = scan_starts(line, "for ") ? line.at : scan_find(line, " for ");
  const char *in = at != NULL ? scan_find(scan_from(line, at), " in ") : NULL;
  return in != NULL && line.end[-1] == ':' && names_evaluation(scan_from(line, in));
}

/* Returns whether the line keeps a result beyond its batch, on the device: "preds.append(out)",
 * "total_loss += loss". `loop`: in a loop over evaluation data; elsewhere the name must say it. */
static bool keeps_result(scan_text line, bool loop) {
  static const char *const calls[] = {".append(", ".extend(", "loss += "};
  static const char *const copies[] = {".cpu(",   ".item(",   ".detach(",
                                       ".numpy(", ".tolist(", "float("};
  const char *start = NULL;
  for (size_t i = 0; i < sizeof calls / sizeof *calls && start == NULL; i++)
    scan_find_at(line, calls[i], &start);
  if (start == NULL || scan_has_any(line, copies, sizeof copies / sizeof *copies)) return false;
  return loop || names_evaluation((scan_text){line.at, start});
}

/* Returns whether the line holds every batch of a loader at once: "list(train_loader)", "[x for x
 * in val_loader]". */
static bool lists_loader(scan_text line) {
  static const char *const ends[] = {"loader)", "loader]", "_dl)", "_dl]"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    const char *start = NULL;
    if (scan_find_at(line, ends[i], &start) == NULL) continue;
    while (start > line.at && scan_is_word(start[-1])) start--;
    scan_text before = {line.at, start};
    bool list = before.end - before.at >= 5 && memcmp(before.end - 5, "list(", 5) == 0;
    bool loop = before.end - before.at >= 4 && memcmp(before.end - 4, " in ", 4) == 0;
    if (list || (loop && scan_has(before, "[") && scan_has(before, " for "))) return true;
  }
  return false;
}

/* Reads loops that the text shows: a notebook prints the lines around the one that failed. */
static void read_loops(context *c, scan_text t) {
  int left = 0;
  scan_text line;
  while (scan_next_line(&t, &line)) {
    if (line.end - line.at > 400) line.end = line.at + 400;
    while (line.end > line.at && isspace((unsigned char)line.end[-1])) line.end--;
    if (line.at == line.end) {
      left = 0;
      continue;
    }
    if (lists_loader(line)) c->seen |= CONTEXT_BIT(LISTING);
    if (begins_evaluation(line)) {
      left = LOOP_LINES;
      continue;
    }
    /* IPython's arrow: the line that failed is in the loop. */
    if (left > 0 && scan_starts(line, "--") && scan_has(line, "-> "))
      c->seen |= CONTEXT_BIT(EVALUATING);
    if (keeps_result(line, left > 0)) c->seen |= CONTEXT_BIT(COLLECTING) | CONTEXT_BIT(EVALUATING);
    if (left > 0) left--;
  }
}

/* Words before a batch size that a command, a configuration or a sentence names. */
static const char *const batch_words[] = {"batch_size=",
                                          "batch_size = ",
                                          "batch_size: ",
                                          "batch_size\": ",
                                          "--batch-size ",
                                          "--batch-size=",
                                          "--batch_size ",
                                          "--batch_size=",
                                          "Minibatch-size: ",
                                          "Batch size: ",
                                          "batch size: ",
                                          "batch size = ",
                                          "batch size of ",
                                          "Batch size = ",
                                          "batch size is ",
                                          "--batch ",
                                          "batchsize: ",
                                          "samples_per_gpu=",
                                          "imgs_per_gpu=",
                                          "micro_batch_size=",
                                          "--micro-batch-size ",
                                          "Batch size per device = ",
                                          "batchsize=",
                                          "batchsize = ",
                                          "Using batch-size ",
                                          ", batch=",
                                          "(batch=",
                                          " batch=",
                                          "batchSize = ",
                                          "batchSize=",
                                          "MiniBatchSize=",
                                          "MiniBatchSize = ",
                                          "MiniBatchSize', ",
                                          "MiniBatchSize',",
                                          "BatchSize\", ",
                                          "BatchSize\",",
                                          "batch size per device = "};

static void read_batch(context *c, scan_text t) {
  const char *best = NULL;
  for (size_t i = 0; i < sizeof batch_words / sizeof *batch_words; i++) {
    const char *at = scan_find(t, batch_words[i]);
    uint64_t number = scan_number(t, at);
    if (number == 0 || number > BATCH_MOST || (best != NULL && at >= best)) continue;
    best = at;
    c->batch = (uint32_t)number;
  }
}

/* Returns whether the name that ends at `at` is of another batch: "eval_batch_size=8". */
static bool is_evaluation_batch(scan_text t, const char *at) {
  const char *start = at;
  while (start > t.at && scan_is_word(start[-1]) && at - start < 40) start--;
  scan_text name = {start, at};
  return scan_has(name, "val_") || scan_has(name, "test_");
}

uint32_t context_smaller_batch(scan_text t, uint32_t batch) {
  uint64_t least = batch;
  for (size_t i = 0; i < sizeof batch_words / sizeof *batch_words; i++) {
    const char *at = NULL, *start = NULL;
    for (scan_text rest = t; (at = scan_find_at(rest, batch_words[i], &start)) != NULL;
         rest.at = at) {
      uint64_t number = scan_number(t, at);
      if (number > 0 && number < least && !is_evaluation_batch(t, start)) least = number;
    }
  }
  return least < batch ? (uint32_t)least : 0;
}

/* Recognizes weights that the user's own line, or the library in the traceback, already makes
 * small. */
static void read_precision(context *c, scan_text text) {
  static const struct {
    const char *words;
    uint64_t marks;
  } table[] = {{".half()", CONTEXT_BIT(HALF)},
               {".bfloat16()", CONTEXT_BIT(HALF)},
               {"dtype=torch.float16", CONTEXT_BIT(HALF)},
               {"dtype=torch.bfloat16", CONTEXT_BIT(HALF)},
               {"dtype=torch.half", CONTEXT_BIT(HALF)},
               {"dtype=\"float16\"", CONTEXT_BIT(HALF)},
               {"dtype=\"bfloat16\"", CONTEXT_BIT(HALF)},
               {"load_in_8bit=True", CONTEXT_BIT(HALF) | CONTEXT_BIT(QUANTIZED)},
               {"load_in_4bit=True", CONTEXT_BIT(HALF) | CONTEXT_BIT(QUANTIZED)}};
  scan_text code = {c->code, c->code + strlen(c->code)};
  if (scan_has(text, "quantizer_bnb_4bit.py") || scan_has(text, "Params4bit"))
    c->seen |= CONTEXT_BIT(HALF) | CONTEXT_BIT(QUANTIZED);
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (scan_has(code, table[i].words)) c->seen |= table[i].marks;
  if (context_has(c, CONTEXT_BIT(WSL))) c->seen &= ~CONTEXT_BIT(MAC); /* "/mnt/c/Users/ann" */
}

/* Recognizes a program of C++, Rust or Go by the words that its own runtime writes. A library in
 * Python writes them too, so any sign of Python excludes it. */
static bool is_native(scan_text t) {
  static const char *const native[] = {"terminate called after throwing", "std::bad_alloc",
                                       "libc++abi: terminating",          "handle_alloc_error",
                                       "memory allocation of ",           "runtime: out of memory",
                                       "runtime: cannot allocate memory", "goroutine ",
                                       "runtime: VirtualAlloc of "};
  static const char *const python[] = {
      ".py",         "ython",       "Traceback (most", "pandas", "numpy",      "torch",    "polars",
      "tokenizers",  "xgboost",     "lightgbm",        "onnx",   "Jupyter",    "jupyter",  "conda",
      "MemoryError", "pip install", "import ",         "keras",  "tensorflow", "Cell In[", ">>> "};
  return scan_has_any(t, native, sizeof native / sizeof *native) &&
         !scan_has_any(t, python, sizeof python / sizeof *python);
}

/* Returns whether a line is R's head of an error, in the languages of its messages: "Error in f(x)
 * : …". MATLAB writes "Error in f (line 7)". */
static bool is_r(scan_text t) {
  static const char *const heads[] = {"Error in ",    "Errore in ", "Fehler in ",
                                      "Erreur dans ", "Error en ",  "Erro em ",
                                      "Fel i ",       "Fout in ",   "Ошибка в "};
  scan_text line;
  while (scan_next_line(&t, &line)) {
    if (line.end - line.at > 400) line.end = line.at + 400;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
      if (scan_starts(line, heads[i]) && (scan_has(line, ") :") || scan_has(line, ")  :")))
        return true;
  }
  return false;
}

/* Returns whether the text names Windows, with a small letter too: "windows 11", "Windows-10-" of
 * Python's platform module, "OS: Microsoft Windows". Windows of an attention layer have no version.
 */
static bool names_windows(scan_text t) {
  static const char *const after[] = {" 7", " 8",      " 10",     " 11", "-10", "-11",      "10",
                                      "11", " Server", " server", " NT", "_NT", "_portable"};
  static const char *const before[] = {
      "icrosoft ", "OS: ", "os: ", "ystem: ", "latform: ", " on W", "OS Name: "};
  const char *start = NULL;
  for (const char *at; (at = scan_find_at(t, "indows", &start)) != NULL; t.at = at) {
    if (start == t.at || (start[-1] != 'w' && start[-1] != 'W')) continue;
    scan_text rest = {at, t.end}, lead = {start - t.at > 13 ? start - 13 : t.at, start};
    for (size_t i = 0; i < sizeof after / sizeof *after; i++)
      if (scan_starts(rest, after[i])) return true;
    if (scan_has_any(lead, before, sizeof before / sizeof *before)) return true;
  }
  return false;
}

/* Returns whether the text has a path with a drive: "d:\\work". */
static bool has_drive(scan_text t) {
  for (const char *at = t.at; (at = scan_find(scan_from(t, at), ":\\")) != NULL;) {
    const char *drive = at - 3;
    if (drive >= t.at && isalpha((unsigned char)*drive) &&
        (drive == t.at || !isalnum((unsigned char)drive[-1])))
      return true;
  }
  return false;
}

/* Sets the mark of Intel's devices by their names. A machine with an Intel device may also have an
 * NVIDIA one, and then the text has a word of CUDA. */
static void read_intel(context *c, scan_text t) {
  static const char *const signs[] = {
      "+xpu",       "torch.xpu",  "xpu:0",     "device=xpu",   "device='xpu'",      "device xpu",
      "DEVICE=xpu", "intel-arc",  "Intel Arc", "Intel(R) Arc", "Intel\xc2\xae Arc", "Arc(TM)",
      "level_zero", "Level Zero", "oneAPI",    "xpu_worker"};
  static const char *const others[] = {"CUDA", "cuda", "NVIDIA", "nvidia", "GeForce", "HIP"};
  if (scan_has_any(t, signs, sizeof signs / sizeof *signs) &&
      !scan_has_any(t, others, sizeof others / sizeof *others))
    c->seen |= CONTEXT_BIT(INTEL);
}

void context_read(context *c, scan_text text, scan_text raw) {
  *c = (context){.torch_to = UINT16_MAX};
  for (size_t i = 0; i < sizeof everywhere / sizeof *everywhere; i++)
    if (scan_has(raw, everywhere[i].words)) c->seen |= everywhere[i].marks;
  if (has_drive(raw) || names_windows(raw)) c->seen |= CONTEXT_BIT(WINDOWS);
  if (is_native(raw)) c->seen |= CONTEXT_BIT(NATIVE);
  if (is_r(raw) || language_r_vector(text, NULL) != SCAN_UNKNOWN) c->seen |= CONTEXT_BIT(R);
  read_intel(c, raw);
  if (context_any(c, CONTEXT_BIT(WINDOWS))) c->seen &= ~(CONTEXT_BIT(LINUX) | CONTEXT_BIT(MAC));
  if (context_any(c, CONTEXT_BIT(MAC))) c->seen &= ~CONTEXT_BIT(LINUX);
  context_read_traceback(c, text);
  read_progress(c, text);
  read_loops(c, text);
  read_batch(c, text);
  read_precision(c, text);
  context_read_version(c, text, raw);
  context_read_traits(c, text, raw);
  context_read_service(c, raw);
  context_read_programs(c, raw);
  context_read_kept(c, text);
}

void context_read_source(context *c, scan_text source) {
  static const char *const no_grad[] = {"no_grad", "inference_mode"};
  static const char *const narrow[] = {"autocast", "GradScaler"};
  if (scan_has_any(source, no_grad, sizeof no_grad / sizeof *no_grad))
    c->seen |= CONTEXT_BIT(NO_GRAD);
  if (scan_has_any(source, narrow, sizeof narrow / sizeof *narrow)) c->traits |= TRAIT_AUTOCAST;
  if (scan_has(source, ".backward(")) c->seen |= CONTEXT_BIT(TRAINING);
  read_loops(c, source);
  if (c->batch == 0) read_batch(c, source);
  if (c->kept == KEPT_NONE) context_read_kept(c, source);
}

const char *context_phase(const context *c) {
  static const struct {
    uint64_t mark;
    const char *words;
  } phases[] = {{CONTEXT_BIT(OPTIMIZER), "in the optimizer's step"},
                {CONTEXT_BIT(BACKWARD), "in the backward pass"},
                {CONTEXT_BIT(GATHERING), "while weights were gathered from the other ranks"},
                {CONTEXT_BIT(EVALUATING), "during evaluation"},
                {CONTEXT_BIT(DECODING), "while the image was decoded"},
                {CONTEXT_BIT(LOADING), "while the model was loaded"},
                {CONTEXT_BIT(GENERATING), "during inference"},
                {CONTEXT_BIT(FORWARD), "in the forward pass"},
                {CONTEXT_BIT(PLACING), "while data was copied to the device"}};
  if (context_any(c, CONTEXT_BIT(OPTIMIZER)) && (c->programs & PROGRAM_RELOADS) != 0)
    return "while the optimizer's saved state was loaded";
  for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
    if (context_any(c, phases[i].mark)) return phases[i].words;
  return "";
}
