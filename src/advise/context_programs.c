/* Programs: which program the text is of, if it has settings of its own, by words that only it
 * writes. */
#include <ctype.h>
#include <string.h>

#include "advise/context_parts.h"

#define YEAR_FLOW_2 2020 /* logs of TensorFlow before this year are of version 1 */

static const struct {
  const char *words;
  uint64_t programs;
} table[] = {
    {"wgpu error", PROGRAM_WGPU},
    {"wgpu::", PROGRAM_WGPU},
    {"/wgpu-", PROGRAM_WGPU},
    {"candle_core", PROGRAM_CANDLE},
    {"candle_transformers", PROGRAM_CANDLE},
    {"candle_nn", PROGRAM_CANDLE},
    {"Internal torch error", PROGRAM_TCH},
    {"TchError", PROGRAM_TCH},
    {"Tch tensor error", PROGRAM_TCH},
    {"tch::", PROGRAM_TCH},
    {"[Fooocus", PROGRAM_FOOOCUS},
    {"Fooocus/", PROGRAM_FOOOCUS},
    {"Fooocus\\", PROGRAM_FOOOCUS},
    {"entry_with_update.py", PROGRAM_FOOOCUS},
    {"fairseq", PROGRAM_FAIRSEQ},
    {"WARNING: ran out of memory with exception", PROGRAM_FAIRSEQ},
    {"OOM in forward/backward pass", PROGRAM_FAIRSEQ},
    {" wps=", PROGRAM_FAIRSEQ},
    {"mxnet", PROGRAM_MXNET},
    {"[Taichi]", PROGRAM_TAICHI},
    {"[taichi/", PROGRAM_TAICHI},
    {"taichi.lang", PROGRAM_TAICHI},
    {"device_memory_GB", PROGRAM_TAICHI_SIZE},
    {"TI_DEVICE_MEMORY_GB", PROGRAM_TAICHI_SIZE},
    {"map_batches(", PROGRAM_RAY_DATA},
    {"ray::MapBatches", PROGRAM_RAY_DATA},
    {"sparse->dense coercion", PROGRAM_SPARSE},
    {"trainer.valid_step(", PROGRAM_EVALUATES}, /* fairseq */
    {"mmengine/runner/loops.py", PROGRAM_EVALUATES},
    {"detectron2/evaluation/", PROGRAM_EVALUATES},
    {"espnet2/train/trainer.py", PROGRAM_EVALUATES},
    {"onmt/trainer.py", PROGRAM_EVALUATES},
    {"monai/engines/evaluator.py", PROGRAM_EVALUATES},
    {"ptimizer.load_state_dict(", PROGRAM_RELOADS},
    {"ptim.load_state_dict(", PROGRAM_RELOADS},
    {"text_generation_server", PROGRAM_TGI},
    {"text_generation_launcher", PROGRAM_TGI},
    {"text_generation_router", PROGRAM_TGI},
    {"text-generation-launcher", PROGRAM_TGI},
    {"hashcat", PROGRAM_HASHCAT},
    {"carb.graphics", PROGRAM_ISAAC},
    {"omni.isaac", PROGRAM_ISAAC},
    {"isaaclab", PROGRAM_ISAAC},
    {"IsaacLab", PROGRAM_ISAAC},
    {"Isaac Sim", PROGRAM_ISAAC},
    {"isaac-sim", PROGRAM_ISAAC},
    {"isaacgym", PROGRAM_ISAAC},
    {"OpenMMException", PROGRAM_DYNAMICS},
    {"openmm/", PROGRAM_DYNAMICS},
    {"gmx mdrun", PROGRAM_DYNAMICS},
    {"GROMACS", PROGRAM_DYNAMICS},
    {"pmemd.cuda", PROGRAM_DYNAMICS},
    {"LAMMPS", PROGRAM_DYNAMICS},
    {"vl_nnconv", PROGRAM_MATCONVNET},
    {"vl_simplenn", PROGRAM_MATCONVNET},
    {"matconvnet", PROGRAM_MATCONVNET},
    {"polars", PROGRAM_POLARS},
    {"pl.read_", PROGRAM_POLARS},
    {"pl.scan_", PROGRAM_POLARS},
    {"pl.DataFrame(", PROGRAM_POLARS},
    {"torch_allocator.pyx", PROGRAM_RMM_TORCH},
    {"rmm_torch_allocator", PROGRAM_RMM_TORCH},
    {"CUFFT_", PROGRAM_FFT},
    {"cuFFT", PROGRAM_FFT},
    {"CUFFTError", PROGRAM_FFT},
    {"dtype=torch.int", PROGRAM_INTEGERS},
    {"dtype=torch.long", PROGRAM_INTEGERS},
    {"TF_GPU_ALLOCATOR=cuda_malloc_async", PROGRAM_FLOW_ASYNC},
    {"pipeline parallelism enabled", PROGRAM_PIPELINE},
    {"maximum array size preference", PROGRAM_ARRAY_MOST},
    {"enable_model_cpu_offload()", PROGRAM_OFFLOADS},
    {"enable_sequential_cpu_offload()", PROGRAM_OFFLOADS | PROGRAM_SEQUENCES},
    {"retain_graph=True", PROGRAM_RETAINS},
    {"\"cudaMalloc", PROGRAM_CUDA_CALL},
    {"'cudaMalloc", PROGRAM_CUDA_CALL},
    {"cudaMalloc(&", PROGRAM_CUDA_CALL},
    {"cudaMalloc((void", PROGRAM_CUDA_CALL},
    {"memory leak", PROGRAM_LEAKS},
    {"leaking memory", PROGRAM_LEAKS},
    {"dlib", PROGRAM_DLIB},
    {"unsloth", PROGRAM_UNSLOTH},
    {"Unsloth", PROGRAM_UNSLOTH},
    {"\\automatic\\", PROGRAM_SDNEXT}, /* its repository's name */
    {"/automatic/", PROGRAM_SDNEXT},
    {"SD.Next", PROGRAM_SDNEXT},
    {"sdnext", PROGRAM_SDNEXT},
    {"csrc/pythonInterface.c", PROGRAM_MANAGED},
    {"replay_ratio", PROGRAM_REPLAYS},
    {"replay_buffer", PROGRAM_REPLAYS},
    {"ReplayBuffer", PROGRAM_REPLAYS},
    {"replay buffer", PROGRAM_REPLAYS},
    {"replay.size", PROGRAM_REPLAYS},
    {"IMAGE_SIZE", PROGRAM_SIDES},
    {"IMG_SIZE", PROGRAM_SIDES},
    {"image_size", PROGRAM_SIDES},
    {"img_size", PROGRAM_SIDES},
    {"target_size=", PROGRAM_SIDES},
    {"vector memory exhausted", PROGRAM_R_LIMIT},
    {"vector memory limit of", PROGRAM_R_LIMIT | PROGRAM_R_SET},
    {"--embedding", PROGRAM_EMBEDS},
    {"--embeddings", PROGRAM_EMBEDS},
    {"-embed", PROGRAM_EMBEDS}, /* "nomic-embed-text.gguf" */
    {"embedding-", PROGRAM_EMBEDS},
};

/* Returns whether the program is in Rust: its frames and its panics name Rust's files. */
static bool is_rust(scan_text t) {
  static const char *const signs[] = {"panicked at", ".rs:", "candle_core::", "Tch tensor error",
                                      "/.cargo/registry/"};
  static const char *const python[] = {"Traceback (most", ".py", ">>> ", "Cell In["};
  return scan_has_any(t, signs, sizeof signs / sizeof *signs) &&
         !scan_has_any(t, python, sizeof python / sizeof *python);
}

/* Returns whether the log begins its lines with a time of before TensorFlow 2: "2019-09-30
 * 08:59:59.987: W tensorflow/core/…". */
static bool is_old_flow(scan_text t) {
  const char *start = NULL;
  for (const char *at; (at = scan_find_at(t, "tensorflow/core/", &start)) != NULL; t.at = at) {
    scan_text line = scan_line((scan_text){t.at, t.end}, start);
    uint64_t year = line.end - line.at > 10 && line.at[4] == '-' ? scan_number(line, line.at) : 0;
    if (year > 2014 && year < YEAR_FLOW_2) return true;
    if (year >= YEAR_FLOW_2 && year < 2100) return false;
  }
  return false;
}

/* Reads how many tokens llama.cpp computes in one step. */
static void read_step(context *c, scan_text t) {
  static const char *const words[] = {"-ub ", "--ubatch-size ", "n_ubatch = ", "n_ubatch="};
  for (size_t i = 0; i < sizeof words / sizeof *words && c->llama_step == 0; i++) {
    const char *at = scan_find(t, words[i]);
    while (at != NULL && at < t.end && *at == ' ') at++;
    uint64_t number = scan_number(t, at);
    if (number > 0 && number < 1 << 20) c->llama_step = (uint32_t)number;
  }
}

/* Reads the devices of NCCL's lines: "box:118822:119914 [3] include/alloc.h:228 NCCL WARN …". */
static void read_nccl(context *c, scan_text t) {
  static const char *const words[] = {" NCCL WARN ", " NCCL INFO "};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    for (const char *start, *at; (at = scan_find_at(t, words[i], &start)) != NULL; t.at = at) {
      uint64_t device = scan_number_after(scan_line(t, start), " [");
      if (device > 0 && device < UINT32_MAX) c->programs |= PROGRAM_NCCL_DEVICES;
    }
}

/* Reads how many workers a command, a setting or the environment gives a loader. */
static void read_workers(context *c, scan_text t) {
  static const char *const words[] = {"num_workers=",   "num_workers = ", "num_workers: ",
                                      "--num-workers ", "--num-workers=", "--num_workers ",
                                      "--num_workers=", "NUM_WORKERS=",   "NUM_WORKERS: "};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const char *at = scan_find(t, words[i]);
    while (at != NULL && at < t.end && *at == ' ') at++;
    uint64_t number = scan_number(t, at);
    if (number > 1 && number < 1024) c->programs |= PROGRAM_WORKERS;
  }
}

/* Recognizes a line that sets every row against every other: "x[:, None, :] - x[None, :, :]". */
static void read_pairs(context *c) {
  static const char *const rows[] = {"[:, None", "[:, np.newaxis", "[:, jnp.newaxis", "[:,None",
                                     ".unsqueeze(1)"};
  static const char *const columns[] = {"[None", "[np.newaxis", "[jnp.newaxis", ".unsqueeze(0)"};
  scan_text code = {c->code, c->code + strlen(c->code)};
  if (scan_has_any(code, rows, sizeof rows / sizeof *rows) &&
      scan_has_any(code, columns, sizeof columns / sizeof *columns))
    c->programs |= PROGRAM_PAIRS;
}

#define RANKS_MOST 1024 /* devices that share one model */

/* Reads over how many devices a server spreads one model already: its option, or the ranks that its
 * lines name ("[2026-03-02 10:11:07 TP1]"). */
static void read_parallel(context *c, scan_text t) {
  static const char *const words[] = {"--tp ",
                                      "--tp=",
                                      "--tp-size ",
                                      "--tp-size=",
                                      "--tp_size ",
                                      "tp_size=",
                                      "tp_size': ",
                                      "tp_size\": ",
                                      "-tp ",
                                      "tensor-parallel-size ",
                                      "--num-shard ",
                                      "tensor-parallel-size=",
                                      "--num-shard=",
                                      "tensor_parallel_size=",
                                      "num_shard: Some(",
                                      "tensor_parallel_size': ",
                                      "tensor_parallel_size: ",
                                      "tensor_parallel_size\": "};
  uint64_t most = 0;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    uint64_t number = scan_number_after(t, words[i]);
    if (number > most && number <= RANKS_MOST) most = number;
  }
  if (context_any(c, CONTEXT_BIT(SGLANG)))
    for (const char *at; (at = scan_find(t, " TP")) != NULL; t.at = at) {
      uint64_t number = scan_number(t, at);
      while (at < t.end && isdigit((unsigned char)*at)) at++;
      bool rank = number < RANKS_MOST && at < t.end && (*at == ']' || *at == ' ');
      if (rank && number + 1 > most) most = number + 1;
    }
  c->parallel = (uint32_t)most;
}

/* Finds a line that adds to a list directly before the line of an error: "frames.append(frame)". */
static void read_appends(context *c, scan_text t) {
  static const char *const calls[] = {".append(", ".extend(", ".append_row("};
  scan_text line, before = {t.at, t.at};
  while (scan_next_line(&t, &line)) {
    if (line.end - line.at > 400) line.end = line.at + 400;
    bool error = scan_has(line, "rror:") || scan_has(line, "MemoryError");
    if (error && scan_has_any(before, calls, sizeof calls / sizeof *calls)) {
      c->programs |= PROGRAM_APPENDS;
      while (before.at < before.end && *before.at == ' ') before.at++;
      if (c->code[0] == '\0') scan_copy(c->code, sizeof c->code, before, before.at, "");
      return;
    }
    if (line.at < line.end) before = line;
  }
}

void context_read_programs(context *c, scan_text raw) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if ((c->programs & table[i].programs) == 0 && scan_has(raw, table[i].words))
      c->programs |= table[i].programs;
  read_step(c, raw);
  read_appends(c, raw);
  read_nccl(c, raw);
  read_workers(c, raw);
  read_parallel(c, raw);
  read_pairs(c);
  if (scan_has(raw, "ptimizer.step(")) c->programs &= ~PROGRAM_RELOADS;
  if (is_rust(raw)) c->seen |= CONTEXT_BIT(NATIVE);
  if (is_old_flow(raw)) c->traits |= TRAIT_TF1;
  static const char *const python[] = {"Traceback (most", ".py",  "torch",
                                       "xgboost",         "cupy", "dlib"};
  if (scan_has_any(raw, python, sizeof python / sizeof *python)) c->programs &= ~PROGRAM_CUDA_CALL;
  /* The weights of a pipeline are loaded in 16 bits. */
  static const char *const half[] = {"torch_dtype=torch.bfloat16", "torch_dtype=torch.float16"};
  if ((c->programs & PROGRAM_OFFLOADS) != 0 && scan_has_any(raw, half, 2))
    c->seen |= CONTEXT_BIT(HALF);
  /* "read_csv" of polars is not pandas'. */
  bool pandas = scan_has(raw, "pandas") || scan_has(raw, "pd.");
  if ((c->programs & PROGRAM_POLARS) != 0 && !pandas) c->seen &= ~CONTEXT_BIT(PANDAS);
  /* Fooocus has other options than the web interface whose signs it shares. */
  bool webui = scan_has(raw, "webui") || scan_has(raw, "COMMANDLINE_ARGS");
  if ((c->programs & PROGRAM_FOOOCUS) != 0 && !webui) c->seen &= ~CONTEXT_BIT(WEBUI);
}
