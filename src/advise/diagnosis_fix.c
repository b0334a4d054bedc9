/* Diagnosis fix: fixes for a text, from the tables of recipes.h, the cheapest change for each cause
 * first.
 *
 * A row applies if its cause, library, platform, phase and version fit what the text shows. The
 * first FIXES_SHOWN rows that apply are the fixes, so none is offered that the version or the
 * platform does not support. recipes_find ensures that every answer has a fix. */
#include <stdio.h>
#include <string.h>

#include "advise/diagnosis_parts.h"
#include "advise/host_way.h"
#include "advise/recipes.h"

#define FIXES_SHOWN 4
#define PIDS_NAMED  4
#define HELD_LEAST  (UINT64_C(1) << 30)   /* data from here on fills a device by itself */
#define SHAPE_LEAST ((uint64_t)32 << 30)  /* an array of which few programs need the whole */
#define HALF_MOST   (UINT64_C(128) << 30) /* if the machine's RAM is not known: few have more */
#define SCRIPT      "python train.py"     /* stands for the user's own command in the tables */
#define NO_KERNEL   ", or restart a notebook's kernel"
#define REST_OWN    (UINT64_C(1) << 30)  /* a process needs as much besides its tensors */
#define SWAP_MOST   (UINT64_C(24) << 30) /* the swap file that the tables name has 16 GiB */
#define SHARE_STEP  0.05
#define HUGE_LEAST  (UINT64_C(256) << 30) /* more than a machine has by this is hopeless */
#define PINNED_MOST (UINT64_C(1) << 45)   /* larger limits are errors of reading */
#define SAME_WORDS  30                    /* characters with which fixes of the same kind begin */

/* Returns whether the system's log names the killed program, and it does not run Python. */
static bool is_other_program(const message *m) {
  static const char *const names[] = {"ython", "pt_",    "ray",      "upyter", "ipy",
                                      "dask",  "pytest", "gunicorn", "uvicorn"};
  scan_text what = {m->what, m->what + strlen(m->what)};
  if ((m->details & MESSAGE_OOMD) != 0) return false; /* it names a unit */
  return m->host == HOST_KERNEL && what.at < what.end && m->context.script[0] == '\0' &&
         !scan_has_any(what, names, sizeof names / sizeof *names);
}

/* Returns whether systemd-oomd killed a service of the system, not a terminal or a session. */
static bool is_service(const message *m) {
  size_t length = strlen(m->what), end = strlen(".service");
  return (m->details & MESSAGE_OOMD) != 0 && length > end && strncmp(m->what, "user@", 5) != 0 &&
         strcmp(m->what + length - end, ".service") == 0;
}

/* Returns whether the request is for far more host memory than the machine, or any usual one, has.
 */
static bool is_huge(const message *m) {
  if (m->kind != MESSAGE_HOST || !diagnosis_known(m->asked_bytes)) return false;
  uint64_t host = diagnosis_known(m->host_bytes) ? m->host_bytes : 0;
  return m->asked_bytes >= HUGE_LEAST && m->asked_bytes - HUGE_LEAST >= host;
}

/* Returns whether a trainer owns the loop: its settings decide, not lines of the user's. */
static bool is_owned(const message *m) {
  const context *c = &m->context;
  bool torch = m->kind == MESSAGE_TORCH || m->kind == MESSAGE_CUDA;
  return torch && (context_any(c, CONTEXT_BIT(TRAINER) | CONTEXT_BIT(LIGHTNING)) ||
                   (c->traits & (TRAIT_FASTAI | TRAIT_AXOLOTL | TRAIT_TORCH_FIT)) != 0);
}

/* Derives conditions from several marks. */
static uint64_t derive(const explanation *x) {
  const message *m = &x->evidence.message;
  const context *c = &m->context;
  bool nvidia = context_any(c, CONTEXT_BIT(NVIDIA));
  bool elsewhere = (c->traits & TRAIT_JETSON) != 0 ||
                   context_any(c, CONTEXT_BIT(WINDOWS) | CONTEXT_BIT(MAC) | CONTEXT_BIT(AMD) |
                                      CONTEXT_BIT(INTEL) | CONTEXT_BIT(APPLE) | CONTEXT_BIT(TPU) |
                                      CONTEXT_BIT(NPU));
  bool trains = context_any(c, CONTEXT_BIT(TRAINING) | CONTEXT_BIT(BACKWARD) |
                                   CONTEXT_BIT(OPTIMIZER) | CONTEXT_BIT(TRAINER));
  bool images = context_any(c, CONTEXT_BIT(COMFY) | CONTEXT_BIT(WEBUI) | CONTEXT_BIT(DIFFUSERS));
  bool infers = context_any(c, CONTEXT_BIT(GENERATING) | CONTEXT_BIT(DECODING) |
                                   CONTEXT_BIT(COMFY) | CONTEXT_BIT(WEBUI)) &&
                !context_any(c, CONTEXT_BIT(BACKWARD) | CONTEXT_BIT(OPTIMIZER));
  uint64_t set = 0;
  set |= trains && !infers ? DERIVED_TRAINS : 0;
  set |= infers ? DERIVED_INFERS : 0;
  set |= images ? DERIVED_IMAGES : 0;
  set |= nvidia && !elsewhere ? DERIVED_SPILLS : 0;
  bool own = !m->async; /* PyTorch's own allocator */
  set |= own && !context_any(c, CONTEXT_BIT(WINDOWS)) && c->torch_from >= 201 ? DERIVED_EXPANDS : 0;
  set |= own && c->torch_from >= 110 ? DERIVED_SPLITS : 0;
  set |= m->async ? DERIVED_ASYNC : 0;
  set |= c->llama_build >= LLAMA_FA_VALUE ? DERIVED_FA_VALUE : 0;
  set |= c->llama_build > 0 && c->llama_build < LLAMA_FA_VALUE ? DERIVED_FA_BARE : 0;
  set |= (m->details & MESSAGE_OOMD) != 0 ? DERIVED_OOMD : 0;
  set |= is_service(m) ? DERIVED_SERVICE : 0;
  bool room = m->kind != MESSAGE_HOST && diagnosis_had_room(&x->evidence.n);
  bool unused = m->kind == MESSAGE_TORCH && diagnosis_unused(&x->evidence.n);
  set |= room || unused ? DERIVED_ROOM : 0;
  set |= diagnosis_absurd(&x->evidence.n) ? DERIVED_ABSURD : 0;
  set |= m->grouped ? DERIVED_GROUPED : 0;
  set |= m->process_count > 0 ? DERIVED_LISTED : 0;
  set |= m->kind == MESSAGE_HOST && diagnosis_known(m->limit_bytes) ? DERIVED_OWN_LIMIT : 0;
  set |= (m->details & MESSAGE_START) != 0 ? DERIVED_START : 0;
  set |= (m->details & MESSAGE_KV_CACHE) != 0 ? DERIVED_KV_CACHE : 0;
  set |= (m->details & MESSAGE_COMPUTE) != 0 ? DERIVED_COMPUTE : 0;
  set |= (m->details & MESSAGE_INIT) != 0 ? DERIVED_INIT : 0;
  set |= (m->details & MESSAGE_WEIGHTS) != 0 ? DERIVED_WEIGHTS : 0;
  set |= (m->details & MESSAGE_INPUT) != 0 ? DERIVED_INPUT : 0;
  set |= (m->details & MESSAGE_TIMEOUT) != 0 ? DERIVED_TIMEOUT : 0;
  set |= (m->details & MESSAGE_POOL) != 0 ? DERIVED_POOL : 0;
  set |= (m->details & MESSAGE_MIG) != 0 ? DERIVED_MIG : 0;
  set |= (m->details & MESSAGE_STATUS) != 0 ? DERIVED_STATUS : 0;
  set |= (m->details & MESSAGE_WORKSPACE) != 0 ? DERIVED_WORKSPACE : 0;
  set |= (m->details & MESSAGE_NO_SIGN) != 0 ? DERIVED_NO_SIGN : 0;
  set |= (m->details & MESSAGE_EXECUTOR) != 0 ? DERIVED_EXECUTOR : 0;
  set |= (m->details & MESSAGE_ENABLED) != 0 ? DERIVED_ENABLED : 0;
  set |= (m->details & MESSAGE_BEYOND) != 0 ? DERIVED_BEYOND : 0;
  bool one = m->kind == MESSAGE_TENSORFLOW && m->rank > 2 && strncmp(m->what, "1,", 2) == 0;
  set |= c->batch == 1 || m->failed_batch == 1 || one ? DERIVED_ONE : 0;
  set |= diagnosis_known(m->live_bytes) && m->live_bytes >= HELD_LEAST ? DERIVED_HOLDS : 0;
  set |= m->share > 0 ? DERIVED_SHARE : 0;
  set |= is_other_program(m) ? DERIVED_OTHER : 0;
  set |= diagnosis_known(m->before_bytes) ? DERIVED_MEASURED : 0;
  bool sized = diagnosis_known(m->asked_bytes) && diagnosis_known(m->device_bytes);
  bool larger = sized && m->asked_bytes > m->device_bytes, huge = is_huge(m);
  bool one_buffer = (m->details & MESSAGE_ONE_BUFFER) != 0 && diagnosis_known(m->asked_bytes) &&
                    diagnosis_known(m->limit_bytes) && m->asked_bytes > m->limit_bytes;
  set |= larger ? DERIVED_LARGER : 0;
  set |= huge ? DERIVED_HUGE : 0;
  /* MATLAB compares an array with its preference, not with what is free. */
  bool preference = m->kind == MESSAGE_HOST && context_any(c, CONTEXT_BIT(MATLAB)) &&
                    diagnosis_known(m->limit_bytes);
  set |= larger || huge || one_buffer || preference ? DERIVED_HOPELESS : 0;
  const numbers *n = &x->evidence.n;
  bool both = diagnosis_known(n->asked_bytes) && diagnosis_known(n->free_bytes) &&
              diagnosis_known(n->cached_bytes) && n->cached_bytes < n->asked_bytes &&
              n->cached_bytes >= n->asked_bytes / 4 && n->free_bytes < SCAN_HUGE &&
              n->free_bytes + n->cached_bytes >= n->asked_bytes;
  bool grows = (set & DERIVED_EXPANDS) != 0 && m->kind == MESSAGE_TORCH &&
               !context_any(c, CONTEXT_BIT(AMD) | CONTEXT_BIT(INTEL) | CONTEXT_BIT(NPU) |
                                   CONTEXT_BIT(APPLE) | CONTEXT_BIT(EXPANDABLE));
  set |= both && grows && (set & DERIVED_ROOM) == 0 ? DERIVED_TOGETHER : 0;
  bool rest = diagnosis_known(n->unknown_bytes) && diagnosis_known(n->device_bytes) &&
              n->unknown_bytes > REST_OWN && n->unknown_bytes - REST_OWN > n->device_bytes / 16;
  set |= rest ? DERIVED_REST : 0;
  set |= diagnosis_carved(x) ? DERIVED_CARVED : 0;
  bool host = m->kind == MESSAGE_HOST && diagnosis_known(m->asked_bytes);
  set |= host && m->asked_bytes >= SWAP_MOST ? DERIVED_NO_SWAP : 0;
  bool tensor = m->host == HOST_TORCH || m->host == HOST_KILLED || m->host == HOST_LARGE;
  set |= host && tensor && m->asked_bytes >= HELD_LEAST ? DERIVED_TENSOR : 0;
  set |= diagnosis_python(m) ? DERIVED_PYTHON : 0;
  set |= is_owned(m) ? DERIVED_OWNED : 0;
  bool within = diagnosis_known(m->asked_bytes) && diagnosis_known(m->limit_bytes) &&
                m->asked_bytes <= m->limit_bytes;
  set |= within ? DERIVED_FREED : 0;
  context_service service = diagnosis_service(m);
  set |= service == SERVICE_DOCKER ? DERIVED_DOCKER : 0;
  set |= service == SERVICE_KUBERNETES || service == SERVICE_NONE ? DERIVED_PODS : 0;
  return set;
}

/* Returns whether a change names a tool that the device or the system in the text does not have. */
static bool wrong_tool(const recipe *r, const context *c) {
  static const char *const linux_tools[] = {"sudo ",  "dmesg",          "free -",  "nvtop",
                                            "ulimit", "/usr/bin/time ", "xpu-smi", "rocm-smi"};
  scan_text change = {r->change, r->change + strlen(r->change)};
  bool nvidia_smi = scan_has(change, "nvidia-smi"), rocm_smi = scan_has(change, "rocm-smi");
  /* A device of AMD may run on Vulkan or DirectX, without AMD's own software. */
  if (rocm_smi && !nvidia_smi && (c->traits & TRAIT_ROCM) == 0) return true;
  if (context_any(c, CONTEXT_BIT(WINDOWS)) && !nvidia_smi && !scan_has(change, "indows") &&
      scan_has_any(change, linux_tools, sizeof linux_tools / sizeof *linux_tools))
    return true;
  if ((c->traits & TRAIT_JETSON) != 0) return nvidia_smi;
  uint64_t others = CONTEXT_BIT(APPLE) | CONTEXT_BIT(AMD) | CONTEXT_BIT(INTEL) | CONTEXT_BIT(TPU) |
                    CONTEXT_BIT(NPU);
  if (!context_any(c, CONTEXT_BIT(NVIDIA))) others |= CONTEXT_BIT(ANY_VENDOR);
  if (!context_any(c, others) || !nvidia_smi) return false;
  return !context_any(c, CONTEXT_BIT(AMD)) || !rocm_smi;
}

/* Returns whether a change is code of Python, or a setting of a Python library, in a text that
 * shows a program in another language. */
static bool wrong_language(const recipe *r, const context *c) {
  static const uint64_t languages =
      CONTEXT_BIT(R) | CONTEXT_BIT(MATLAB) | CONTEXT_BIT(JULIA) | CONTEXT_BIT(NATIVE);
  static const char *const python[] = {"torch.",    "model.",   "DataLoader(", "python ",
                                       "pd.",       "np.",      "pip ",        "from_pretrained",
                                       "import ",   "tf.",      "keras",       "jax.",
                                       "optimizer", "PYTORCH_", "cupy.",       "stowage."};
  scan_text change = {r->change, r->change + strlen(r->change)};
  if (!context_any(c, languages) || (r->need & languages) != 0) return false;
  if (scan_has(change, SCRIPT) && context_any(c, CONTEXT_BIT(NATIVE))) return false;
  return scan_has_any(change, python, sizeof python / sizeof *python);
}

/* Returns whether a change only makes more memory free, which does not help a request that is too
 * large whatever is free. */
static bool frees_only(const recipe *r) {
  static const char *const words[] = {"other program", "other process", "who else", "swap",
                                      "page file",     "larger runner", "add RAM"};
  scan_text change = {r->change, r->change + strlen(r->change)};
  return scan_has_any(change, words, sizeof words / sizeof *words);
}

static bool applies(const recipe *r, const message *m, cause_id id, uint64_t derived) {
  const context *c = &m->context;
  if (r->causes != 0 && (r->causes & (UINT32_C(1) << id)) == 0) return false;
  if (r->kinds != 0 && (r->kinds & (UINT32_C(1) << m->kind)) == 0) return false;
  if (r->hosts != 0 && (r->hosts & (UINT32_C(1) << m->host)) == 0) return false;
  if (!context_has(c, r->need) || context_any(c, r->never) || wrong_tool(r, c)) return false;
  if (wrong_language(r, c)) return false;
  if ((c->traits & r->with) != r->with || (c->traits & r->without) != 0) return false;
  if (r->program != 0 && (c->programs & r->program) == 0) return false;
  if ((c->programs & r->other) != 0) return false;
  if ((derived & r->must) != r->must || (derived & r->mustnot) != 0) return false;
  if ((derived & DERIVED_HOPELESS) != 0 && frees_only(r)) return false;
  /* `from`: the version is not known to be older. `to`: it is known to be no newer. */
  return (r->from == 0 || c->torch_to >= r->from) && (r->to == 0 || c->torch_to <= r->to);
}

/* Writes `words` with the user's own command in place of train.py, as far as the text shows it. */
static void write_words(char *out, size_t size, const char *words, const message *m) {
  const context *c = &m->context;
  char command[80] = "";
  if (context_any(c, CONTEXT_BIT(VLLM)))
    snprintf(command, sizeof command, "vllm serve MODEL");
  else if (!diagnosis_python(m) || context_any(c, CONTEXT_BIT(NATIVE)))
    snprintf(command, sizeof command, "COMMAND");
  else if (context_any(c, CONTEXT_BIT(WEBUI)))
    snprintf(command, sizeof command, "./webui.sh");
  else if (context_any(c, CONTEXT_BIT(COMFY)))
    snprintf(command, sizeof command, "python main.py");
  else if (c->script[0] != '\0')
    snprintf(command, sizeof command, "python %s", c->script);
  else if ((c->traits & TRAIT_TESTS) != 0)
    snprintf(command, sizeof command, "python -m pytest");
  const char *at = command[0] != '\0' ? strstr(words, SCRIPT) : NULL;
  const char *kernel = strstr(words, NO_KERNEL);
  bool other = context_any(c, CONTEXT_BIT(NATIVE) | CONTEXT_BIT(R) | CONTEXT_BIT(MATLAB)) ||
               (c->programs & (PROGRAM_HASHCAT | PROGRAM_ISAAC | PROGRAM_DYNAMICS)) != 0;
  if (kernel != NULL && other && strlen(kernel) == strlen(NO_KERNEL))
    snprintf(out, size, "%.*s", (int)(kernel - words), words);
  else if (at == NULL)
    snprintf(out, size, "%s", words);
  else
    snprintf(out, size, "%.*s%s%s", (int)(at - words), words, command, at + strlen(SCRIPT));
}

static void add(explanation *x, const recipe *r, uint64_t bytes) {
  fix *f = &x->fixes.list[x->fixes.count++];
  *f = (fix){.saves_bytes = bytes};
  write_words(f->change, sizeof f->change, r->change, &x->evidence.message);
  snprintf(f->cost, sizeof f->cost, "%s", r->cost);
}

/* Returns whether the other processes may be ranks of this program, which load a checkpoint. */
static bool are_ranks(const message *m) {
  return (m->context.traits & TRAIT_RESTORE) != 0 && context_any(&m->context, CONTEXT_BIT(RANKS));
}

/* Returns whether the other processes may be workers of the same test run (pytest-xdist). */
static bool are_workers(const message *m) {
  return (m->context.traits & (TRAIT_TESTS | TRAIT_TEST_WORKERS)) != 0 && m->process_count > 1;
}

/* Returns the saving of a fix. Ending another process or library frees what it holds; other savings
 * are unknown. */
static uint64_t saving(const explanation *x, cause_id id) {
  const numbers *n = &x->evidence.n;
  if (id == CAUSE_OTHER_PROCESS && diagnosis_known(n->other_process_bytes) &&
      n->other_process_bytes > 0 && !are_ranks(&x->evidence.message))
    return n->other_process_bytes;
  bool apple = context_any(&x->evidence.message.context, CONTEXT_BIT(APPLE));
  if (id == CAUSE_OUTSIDE_FRAMEWORK && !apple) return n->outside_framework_bytes;
  return MESSAGE_UNKNOWN;
}

/* Numbers that a server's own text gives: the tokens that fit, the share of the device that is
 * free.
 */
static void add_numbers(explanation *x) {
  const message *m = &x->evidence.message;
  const numbers *n = &x->evidence.n;
  char text[200];
  recipe r = {.change = text};
  bool pool = (m->details & MESSAGE_POOL) != 0; /* free at that moment, not all that it can hold */
  if (m->cache_tokens != MESSAGE_UNKNOWN && m->cache_tokens > 0 && !pool) {
    snprintf(text, sizeof text,
             "allow shorter requests: --max-model-len %llu (max_model_len=%llu in Python)",
             (unsigned long long)m->cache_tokens, (unsigned long long)m->cache_tokens);
    r.cost = "longer prompts and answers are refused";
    add(x, &r, MESSAGE_UNKNOWN);
  }
  if ((m->details & MESSAGE_START) == 0 || !diagnosis_known(n->free_bytes) ||
      !diagnosis_known(n->device_bytes) || n->device_bytes == 0)
    return;
  double share = (double)n->free_bytes / (double)n->device_bytes - 0.02;
  if (share < 0.1 || share > 1) return; /* no numbers, or impossible ones */
  snprintf(text, sizeof text, "take only what is free: --gpu-memory-utilization %.2f",
           (double)(int)(share * 100) / 100);
  r.cost = "a smaller KV cache: fewer or shorter requests at once";
  add(x, &r, MESSAGE_UNKNOWN);
}

/* llama.cpp with an embedding model, whose steps must hold a whole input. */
static void add_step(explanation *x) {
  const context *c = &x->evidence.message.context;
  char text[240];
  recipe r = {.change = text, .cost = "longer inputs are refused"};
  bool compute = (x->evidence.message.details & MESSAGE_COMPUTE) != 0;
  if (!compute || (c->programs & PROGRAM_EMBEDS) == 0) return;
  unsigned half = c->llama_step >= 64 ? c->llama_step / 2 : 2048;
  snprintf(text, sizeof text,
           "smaller steps: -ub %u -b %u, and half again until it fits; an embedding model takes no "
           "input of more tokens than -ub, so not below your longest one",
           half, half);
  add(x, &r, MESSAGE_UNKNOWN);
}

/* A smaller share of the device than the server's text says it had: computing needs the rest. */
static void add_less_share(explanation *x) {
  const message *m = &x->evidence.message;
  char text[200];
  recipe r = {.change = text, .cost = "a smaller KV cache: fewer requests at once"};
  double less = m->share > 0.9 ? 0.85 : m->share - SHARE_STEP;
  if (m->kind != MESSAGE_VLLM || (m->details & MESSAGE_COMPUTE) == 0 ||
      (m->details & MESSAGE_START) != 0 || less < SHARE_STEP)
    return;
  snprintf(text, sizeof text,
           "leave more for computing: --gpu-memory-utilization %.2f instead of %.2f "
           "--max-num-seqs 16 --max-num-batched-tokens 2048",
           less, m->share);
  add(x, &r, MESSAGE_UNKNOWN);
}

/* A larger share of the device than the server's text says it had. */
static void add_share(explanation *x) {
  const message *m = &x->evidence.message;
  char text[200];
  recipe r = {.change = text, .cost = "less is left for computing: too high fails later"};
  double more = m->share < 0.85 ? 0.9 : m->share + 0.02;
  if (m->kind == MESSAGE_VLLM && m->share < 0.95) more = 0.95;
  /* A little above the smallest one: there the KV cache would have no tokens. */
  if (m->share_needed > m->share) more = m->share_needed + 0.01;
  bool cache = (m->details & MESSAGE_KV_CACHE) != 0 && (m->details & MESSAGE_COMPUTE) == 0;
  if (!cache || more > 0.96) return; /* the share limits the cache alone */
  if (m->kind == MESSAGE_VLLM)
    snprintf(text, sizeof text,
             "give the server more of the device: --gpu-memory-utilization %.2f instead of %.2f",
             more, m->share);
  else
    snprintf(
        text, sizeof text,
        "give the KV cache more: --mem-fraction-static %.2f instead of %.2f, and 0.02 more until "
        "the server starts",
        more, m->share);
  add(x, &r, MESSAGE_UNKNOWN);
}

/* Half the tokens that did not fit. */
static void add_tokens(explanation *x) {
  const message *m = &x->evidence.message;
  char text[200];
  recipe r = {.change = text, .cost = "shorter prompts, or fewer requests at once"};
  unsigned long long half = m->wanted_tokens / 2;
  if (m->wanted_tokens == MESSAGE_UNKNOWN || half == 0) return;
  snprintf(text, sizeof text, "fewer tokens at once: --max-batch-%s-tokens %llu instead of %llu%s",
           m->total ? "total" : "prefill", half, (unsigned long long)m->wanted_tokens,
           m->total ? "" : ", and --max-input-length below it");
  add(x, &r, MESSAGE_UNKNOWN);
}

/* Names what an evicted container should request: what it used and a tenth more, in whole GiB. 16
 * if that is unknown. */
static void add_request(explanation *x) {
  const message *m = &x->evidence.message;
  char text[240];
  recipe r = {.change = text, .cost = "the pod may wait for such a node"};
  if (m->host != HOST_EVICTED) return;
  unsigned long long gib = 16;
  if (diagnosis_known(m->process_bytes) && m->process_bytes < UINT64_C(1) << 50)
    gib = (m->process_bytes + m->process_bytes / 10 + (1 << 30) - 1) >> 30;
  snprintf(text, sizeof text,
           "request what it needs: resources: requests: memory: %lluGi, limits: memory: %lluGi; "
           "then it runs on a node that has as much, and others are evicted first",
           gib, gib);
  add(x, &r, MESSAGE_UNKNOWN);
}

/* Names the processes to end. */
static void add_processes(explanation *x, cause_id id) {
  const message *m = &x->evidence.message;
  char pids[PIDS_NAMED * 12] = "", text[240];
  recipe r = {.change = text, .cost = "they end, or wait"};
  bool amd = context_any(&m->context, CONTEXT_BIT(AMD));
  bool windows = context_any(&m->context, CONTEXT_BIT(WINDOWS));
  if (id != CAUSE_OTHER_PROCESS || m->process_count == 0 || are_ranks(m)) return;
  if (are_workers(m)) {
    r.change = "fewer test workers on one device: pytest -n 1 (or one device for each: set "
               "CUDA_VISIBLE_DEVICES by PYTEST_XDIST_WORKER); nvidia-smi shows whether the other "
               "processes are this run's";
    r.cost = "slower tests";
    add(x, &r, saving(x, id));
    return;
  }
  if (context_any(&m->context, CONTEXT_BIT(RANKS)) && !amd) {
    r.change = "one device for each rank: torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"])) "
               "before the first tensor; nvidia-smi shows whether the other processes are ranks of "
               "this run; end those that are not";
    r.cost = "none";
    add(x, &r, saving(x, id));
    return;
  }
  size_t length = 0;
  for (uint32_t i = 0; i < m->process_count && i < PIDS_NAMED; i++)
    length += (size_t)snprintf(pids + length, sizeof pids - length, "%s%u",
                               i == 0    ? ""
                               : windows ? " /PID "
                                         : " ",
                               m->processes[i].pid);
  snprintf(text, sizeof text,
           "end %s (%s shows what %s): %s %s; or choose another device: %s_VISIBLE_DEVICES=1",
           m->process_count > 1 ? "them" : "it", amd ? "rocm-smi --showpids" : "nvidia-smi",
           m->process_count > 1 ? "they are" : "it is", windows ? "taskkill /PID" : "kill", pids,
           amd ? "HIP" : "CUDA");
  add(x, &r, saving(x, id));
}

/* Raises the limit of CuPy's pool to what it held and the request together. */
static void add_pool_limit(explanation *x) {
  const message *m = &x->evidence.message;
  char text[320];
  recipe r = {.change = text, .cost = "less is left for others on the device"};
  if (m->kind != MESSAGE_CUPY || x->findings.list[0].id != CAUSE_LIMIT ||
      !diagnosis_known(m->limit_bytes) || m->limit_bytes > PINNED_MOST)
    return;
  uint64_t held = diagnosis_known(m->live_bytes) ? m->live_bytes : m->limit_bytes;
  uint64_t asked = diagnosis_known(m->asked_bytes) ? m->asked_bytes : 0;
  if (held > PINNED_MOST || asked > PINNED_MOST) return;
  uint64_t sum = held + asked > m->limit_bytes ? held + asked : m->limit_bytes + 1;
  unsigned long long gib = (sum + sum / 20 + (1 << 30) - 1) >> 30;
  snprintf(text, sizeof text,
           "raise the limit of %s, if the device has more: "
           "cupy.get_default_memory_pool().set_limit(size=%llu * 1024**3), or export "
           "CUPY_GPU_MEMORY_LIMIT=%llu",
           cause_size(m->limit_bytes), gib, gib << 30);
  add(x, &r, MESSAGE_UNKNOWN);
}

/* Doubles the limit of TensorFlow's pool of pinned host memory, in the variable of its version. */
static void add_pinned(explanation *x) {
  const message *m = &x->evidence.message;
  char text[240];
  recipe r = {.change = text, .cost = "RAM that cannot be paged out"};
  if (m->host != HOST_PINNED || m->what[0] == '\0') return;
  bool old = strcmp(m->what, "cuda_host_bfc") == 0, sized = m->limit_bytes < PINNED_MOST;
  unsigned long long limit = sized ? m->limit_bytes >> 20 : 0;
  snprintf(text, sizeof text,
           "raise its limit, if the host has the RAM: export TF_%s_HOST_MEM_LIMIT_IN_MB=%llu "
           "(MiB%s",
           old ? "CUDA" : "GPU", sized ? 2 * limit : 262144, sized ? "; it was " : ")");
  size_t used = strlen(text);
  if (sized) snprintf(text + used, sizeof text - used, "%llu)", limit);
  add(x, &r, MESSAGE_UNKNOWN);
}

/* "shape (87000, 227, 227, 3) and data type uint8": the same array in a file. `named` is the
 * type. */
static void add_file(explanation *x, const char *named) {
  const char *open = strchr(x->evidence.message.what, '(');
  const char *close = open != NULL ? strchr(open, ')') : NULL;
  char text[280];
  recipe r = {.change = text, .cost = "slower: disk"};
  if (close == NULL || close - open > 80) return;
  /* pandas makes the array itself. */
  if (context_any(&x->evidence.message.context, CONTEXT_BIT(PANDAS))) return;
  snprintf(text, sizeof text,
           "keep it in a file and fill it part by part: x = np.lib.format.open_memmap(\"x.npy\", "
           "mode=\"w+\", dtype=np.%.*s, shape=%.*s)",
           (int)strspn(named, "abcdefghijklmnopqrstuvwxyz0123456789"), named,
           (int)(close + 1 - open), open);
  add(x, &r, MESSAGE_UNKNOWN);
}

/* "data type float64": the type that needs half, and what the array then takes. An array of which
 * half is still more than a machine has must not exist as a whole. */
static void add_type(explanation *x) {
  static const struct {
    const char *from, *to;
    double part;
  } types[] = {{"float64", "float32", 0.5},
               {"int64", "int32", 0.5},
               {"complex128", "complex64", 0.5},
               {"float32", "float16", 0.5},
               {"int32", "int16", 0.5}};
  const message *m = &x->evidence.message;
  const char *named = strstr(m->what, "data type ");
  char text[240];
  recipe r = {.change = text, .cost = "less precision, or a smaller range"};
  if (m->host != HOST_NUMPY || named == NULL || !diagnosis_known(m->asked_bytes) ||
      diagnosis_absurd(&x->evidence.n))
    return;
  if (strncmp(named, "data type object", strlen("data type object")) == 0) {
    r.change = "columns of numbers or categories instead of Python objects: "
               "pd.to_numeric(df[c], downcast=\"float\"), df[c].astype(\"category\"), before they "
               "are joined; and only the columns that are used";
    r.cost = "a change of the program";
    add(x, &r, MESSAGE_UNKNOWN);
    return;
  }
  uint64_t most = diagnosis_known(m->host_bytes) ? m->host_bytes : HALF_MOST;
  named += strlen("data type ");
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (strncmp(named, types[i].from, strlen(types[i].from)) != 0) continue;
    if ((double)m->asked_bytes * types[i].part > (double)most) break;
    snprintf(text, sizeof text,
             "a smaller type: dtype=np.%s takes %s instead of %s (np.uint8 for pictures, "
             "scipy.sparse for mostly zeros)",
             types[i].to, cause_size((uint64_t)((double)m->asked_bytes * types[i].part)),
             cause_size(m->asked_bytes));
    add(x, &r, MESSAGE_UNKNOWN);
    return;
  }
  if (m->asked_bytes / 2 <= most) {
    add_file(x, named);
    return;
  }
  snprintf(text, sizeof text,
           "do not make it as a whole: keep mostly zeros sparse (no .toarray(), .todense() or "
           ".to_numpy()), or work on parts of the rows, written to a file (np.memmap)");
  r.cost = "a change of the program";
  add(x, &r, MESSAGE_UNKNOWN);
}

#define CHUNK_BYTES (UINT64_C(1) << 30) /* of distances at a time */

/* Returns of how many rows the array has a number for every pair: "(4999950000,)" of pdist,
 * "(100000, 100000)" of a square table. 0: of none. */
static uint64_t paired_rows(const message *m) {
  const char *open = strchr(m->what, '(');
  unsigned long long first = 0, second = 0;
  int count = open != NULL ? sscanf(open, "(%19llu, %19llu)", &first, &second) : 0;
  if (count == 2) return first == second ? first : 0;
  if (count != 1 || first < 3 || first > UINT64_C(1) << 60) return 0;
  uint64_t low = 1, high = UINT64_C(1) << 31; /* n (n - 1) / 2 = first */
  while (low < high) {
    uint64_t middle = (low + high) / 2;
    if (middle * (middle - 1) / 2 < first)
      low = middle + 1;
    else
      high = middle;
  }
  return low * (low - 1) / 2 == first ? low : 0;
}

/* Returns whether the user's own line makes a table of distances or similarities of all pairs. */
static bool calls_pairs(const context *c) {
  static const char *const calls[] = {"pdist(",
                                      "cdist(",
                                      "squareform(",
                                      "pairwise_distances(",
                                      "cosine_similarity(",
                                      "euclidean_distances(",
                                      "cosine_distances(",
                                      "manhattan_distances(",
                                      "rbf_kernel("};
  scan_text code = {c->code, c->code + strlen(c->code)};
  return scan_has_any(code, calls, sizeof calls / sizeof *calls);
}

/* Returns whether the array has 64 bits whatever the type of the input is. */
static bool is_always_double(const context *c) {
  scan_text code = {c->code, c->code + strlen(c->code)};
  return (c->traits & TRAIT_PDIST) != 0 || scan_has(code, "cdist(") ||
         scan_has(code, "squareform(");
}

/* Suggests to make the table in blocks of rows, or not at all. */
static void add_blocks(explanation *x, unsigned long long n) {
  const context *c = &x->evidence.message.context;
  char text[400];
  unsigned long long part = CHUNK_BYTES / (8 * n);
  recipe r = {.change = text, .cost = "a loop over the blocks"};
  scan_text code = {c->code, c->code + strlen(c->code)};
  if (part == 0) part = 1;
  snprintf(text, sizeof text,
           "1 GiB of it at a time, %llu of the %llu rows: for d in "
           "sklearn.metrics.pairwise_distances_chunked(X%s, working_memory=1024): use(d), and keep "
           "only what is needed (the nearest ten: d.argpartition(10)[:, :10])",
           part, n, scan_has(code, "cosine") ? ", metric=\"cosine\"" : "");
  add(x, &r, MESSAGE_UNKNOWN);
  snprintf(text, sizeof text,
           "only the neighbours: sklearn.neighbors.NearestNeighbors(n_neighbors=10).fit(X)"
           ".kneighbors(X) keeps 10 for each row: %s",
           cause_size(n * 10 * 16));
  r.cost = "no distances between rows that are far apart";
  add(x, &r, MESSAGE_UNKNOWN);
  if (!scan_has(code, "cosine_similarity(")) return;
  snprintf(text, sizeof text,
           "if the rows are sparse (TF-IDF): cosine_similarity(x[i:i + %llu], x, "
           "dense_output=False) for each block, which stays sparse",
           part);
  r.cost = "a loop over the blocks";
  add(x, &r, MESSAGE_UNKNOWN);
}

/* Suggests what to do about a number for every pair of rows. Returns whether it did. */
static bool add_pairs(explanation *x) {
  const message *m = &x->evidence.message;
  const context *c = &m->context;
  bool calls = calls_pairs(c), scipy = (c->traits & TRAIT_PDIST) != 0;
  unsigned long long n = m->host == HOST_NUMPY && (calls || scipy) ? paired_rows(m) : 0;
  char text[320];
  recipe r = {.change = text, .cost = "less exact"};
  if (n < 2 || !diagnosis_known(m->asked_bytes)) return false;
  if (calls) add_blocks(x, n);
  if (calls && !scipy) return true;
  snprintf(text, sizeof text, "fewer rows: half of the %llu rows (X[::2]) need a quarter, %s", n,
           cause_size(m->asked_bytes / 4));
  add(x, &r, MESSAGE_UNKNOWN);
  if (calls) return true;
  snprintf(text, sizeof text,
           "a method without such a table: AgglomerativeClustering(linkage=\"ward\", "
           "connectivity=sklearn.neighbors.kneighbors_graph(X, 10)), MiniBatchKMeans or HDBSCAN");
  r.cost = "other clusters";
  add(x, &r, MESSAGE_UNKNOWN);
  return true;
}

/* Protects a service of the system from systemd-oomd, or gives a program a unit of its own. */
static void add_unit(explanation *x) {
  const message *m = &x->evidence.message;
  char text[320];
  recipe r = {.change = text, .cost = "something else is killed"};
  if ((m->details & MESSAGE_OOMD) == 0) return;
  if (is_service(m)) {
    snprintf(text, sizeof text,
             "spare the service: sudo systemctl edit %.60s, with [Service] and "
             "ManagedOOMPreference=avoid below it; then sudo systemctl restart %.60s",
             m->what, m->what);
  } else {
    snprintf(text, sizeof text,
             "start it in a unit of its own with a limit, so that no other program is killed with "
             "it: systemd-run --user --scope -p MemoryMax=12G %s",
             diagnosis_python(m) ? "python train.py" : "COMMAND");
    r.cost = "it ends at that limit";
  }
  add(x, &r, MESSAGE_UNKNOWN);
}

/* A very large array is often a wrong bound, index or unit. */
static void add_shape(explanation *x) {
  const message *m = &x->evidence.message;
  const char *open = strchr(m->what, '('), *close = open != NULL ? strchr(open, ')') : NULL;
  char text[240];
  recipe r = {.change = text, .cost = "none"};
  if (m->host != HOST_NUMPY || close == NULL || close - open > 80 ||
      !diagnosis_known(m->asked_bytes) || m->asked_bytes < SHAPE_LEAST ||
      diagnosis_absurd(&x->evidence.n))
    return;
  snprintf(
      text, sizeof text,
      "check the shape %.*s: print what it is computed from; a wrong bound, index or unit often "
      "multiplies",
      (int)(close + 1 - open), open);
  add(x, &r, MESSAGE_UNKNOWN);
}

/* Suggests another way to do what the user's own line calls. */
static void add_way(explanation *x) {
  const message *m = &x->evidence.message;
  const host_way *way = host_way_of(m->context.code);
  bool request = m->host == HOST_NUMPY || m->host == HOST_TORCH || m->host == HOST_PYTHON;
  if (way == NULL || !request) return;
  recipe r = {.change = way->change, .cost = way->cost};
  add(x, &r, MESSAGE_UNKNOWN);
}

/* Writes the line that keeps a graph, without the graph: "losses.append(loss.item())". Returns
 * false if the line is not whole. */
static bool write_kept(char out[200], const context *c) {
  const char *code = c->kept_code, *drop = c->kept == KEPT_RESULT ? ".detach().cpu()" : ".item()";
  size_t length = strlen(code), at = length - 1;
  const char *plus = strstr(code, " += ");
  if (length == 0 || length + 1 >= sizeof c->kept_code) return false;
  if (c->kept == KEPT_SUM) {
    const char *loss = plus != NULL ? plus + 4 : strstr(code, " + ");
    if (loss == NULL) return false;
    if (plus == NULL) loss += 3;
    loss += strspn(loss, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");
    at = *loss == '(' ? length : (size_t)(loss - code);
  } else if (code[at] != ')' && code[at] != ']')
    return false;
  snprintf(out, 200, "%.*s%s%s", (int)at, code, drop, code + at);
  return true;
}

/* Names the line that keeps a graph, and what it must keep instead. */
static void add_kept(explanation *x) {
  const context *c = &x->evidence.message.context;
  char text[560], line[200] = "";
  bool result = c->kept == KEPT_RESULT, whole = write_kept(line, c);
  if (!whole) snprintf(line, sizeof line, "%s", result ? "out.detach().cpu()" : "loss.item()");
  if (result && !context_any(c, CONTEXT_BIT(BACKWARD)))
    snprintf(text, sizeof text, "build no graph: with torch.no_grad(): around the loop%s%s; and %s",
             c->kept_line[0] != '\0' ? " of " : "", c->kept_line, line);
  else
    snprintf(text, sizeof text, "keep %s without its graph%s%s: %s",
             result ? "the result" : "the loss", c->kept_line[0] != '\0' ? ", at " : "",
             c->kept_line, line);
  recipe r = {.change = text, .cost = result ? "none, if no backward pass uses them" : "none"};
  add(x, &r, MESSAGE_UNKNOWN);
}

/* Returns the name of the batch size in the settings of the trainer that owns the loop. */
static const char *batch_name(const context *c, bool owned) {
  if (!owned) return "batch_size";
  if ((c->traits & TRAIT_AXOLOTL) != 0) return "micro_batch_size";
  if (context_any(c, CONTEXT_BIT(TRAINER))) return "per_device_train_batch_size";
  return (c->traits & TRAIT_FASTAI) != 0 ? "bs" : "batch_size";
}

/* Returns the words for the trainer's own way to accumulate gradients; "" if it has none. */
static const char *accumulation(const context *c) {
  if ((c->traits & TRAIT_AXOLOTL) != 0 || context_any(c, CONTEXT_BIT(TRAINER)))
    return "; gradient_accumulation_steps=2 keeps the training step";
  if (context_any(c, CONTEXT_BIT(LIGHTNING)))
    return "; Trainer(accumulate_grad_batches=2) keeps the training step";
  return (c->traits & TRAIT_FASTAI) != 0 ? "; the callback GradientAccumulation keeps the step"
                                         : "";
}

/* Suggests half of the batch that the text or a shape names. Returns whether it did. */
static bool add_batch(explanation *x, uint64_t derived) {
  const message *m = &x->evidence.message;
  char text[320];
  recipe r = {.change = text, .cost = "more, smaller steps"};
  bool shape = m->kind == MESSAGE_TENSORFLOW && m->rank > 2 && m->first_dim > 1;
  uint32_t batch = m->context.batch > 1 ? m->context.batch : shape ? m->first_dim : 0;
  uint32_t failed = m->failed_batch > 0 ? m->failed_batch : batch;
  char also[48] = "";
  if (failed < 2 || (derived & (DERIVED_ROOM | DERIVED_ABSURD | DERIVED_INIT)) != 0 ||
      m->kind == MESSAGE_LLAMA || m->kind == MESSAGE_VLLM || m->kind == MESSAGE_SGLANG)
    return false;
  bool owned = (derived & DERIVED_OWNED) != 0;
  bool accumulates = m->kind == MESSAGE_TORCH && (derived & DERIVED_TRAINS) != 0 && !owned;
  const char *name = m->kind == MESSAGE_JULIA ? "batchsize" : batch_name(&m->context, owned);
  if (failed < batch) snprintf(also, sizeof also, " (%u failed too)", failed);
  if (m->passed_batch > 0) {
    snprintf(text, sizeof text,
             "start with the batch that went through in the end: %s=%u instead of %u%s", name,
             m->passed_batch, batch, also);
    r.cost = "none";
    add(x, &r, MESSAGE_UNKNOWN);
    return true;
  }
  snprintf(text, sizeof text,
           "a smaller batch: %s=%u instead of %u%s%s, and half again until it fits%s", name,
           failed / 2, batch, also, m->context.batch > 1 ? "" : " (the first number of that shape)",
           accumulates ? "; for the same training step every second time: (loss / 2).backward(); "
                         "if i % 2: optimizer.step(); optimizer.zero_grad()"
           : owned     ? accumulation(&m->context)
                       : "");
  add(x, &r, MESSAGE_UNKNOWN);
  return true;
}

/* Returns whether a fix that begins with the same words is there already. */
static bool is_given(const explanation *x, const recipe *r) {
  for (uint32_t i = 0; i < x->fixes.count; i++)
    if (strncmp(x->fixes.list[i].change, r->change, SAME_WORDS) == 0) return true;
  return false;
}

static void add_from(explanation *x, const recipe_table *t, cause_id id, uint64_t derived,
                     uint32_t most) {
  uint64_t bytes = x->fixes.count == 0 ? saving(x, id) : MESSAGE_UNKNOWN;
  /* Settings of a program do not change what the allocator or another library does. */
  bool around = id == CAUSE_FRAGMENTATION || id == CAUSE_OUTSIDE_FRAMEWORK;
  uint64_t own = around ? 0 : diagnosis_own(&x->evidence.message);
  for (size_t i = 0; i < t->count && x->fixes.count < most; i++) {
    /* The settings of such a program; others' changes do not apply to it. */
    if (own != 0 && (t->rows[i].with & own) == 0) continue;
    if (!applies(&t->rows[i], &x->evidence.message, id, derived)) continue;
    if (is_given(x, &t->rows[i])) continue;
    add(x, &t->rows[i], bytes);
    bytes = MESSAGE_UNKNOWN;
  }
}

static void add_all(explanation *x, cause_id id, uint64_t derived, uint32_t most) {
  static const recipe_table *const tables[] = {&recipes_own,  &recipes_place,    &recipes_model,
                                               &recipes_full, &recipes_platform, &recipes_host};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
    add_from(x, tables[i], id, derived, most);
}

void diagnosis_fixes(explanation *x) {
  const message *m = &x->evidence.message;
  uint64_t derived = derive(x);
  const findings *f = &x->findings;
  if (m->kind == MESSAGE_VLLM) add_numbers(x);
  if (m->share > 0) add_less_share(x);
  if (m->share > 0) add_share(x);
  if (m->kind == MESSAGE_TGI) add_tokens(x);
  if (m->kind == MESSAGE_LLAMA) add_step(x);
  if (m->kind == MESSAGE_HOST) {
    diagnosis_limit_fixes(x);
    add_request(x);
    add_pinned(x);
    if (diagnosis_killed_program(x)) derived |= DERIVED_NAMED;
    if (!is_service(m)) add_unit(x);
    bool pairs = add_pairs(x);
    if (!pairs) add_way(x);
    bool larger = diagnosis_known(m->asked_bytes) && diagnosis_known(m->host_bytes) &&
                  m->asked_bytes > m->host_bytes && (m->details & MESSAGE_BEYOND) == 0;
    if ((f->list[0].id != CAUSE_HOST_LIMIT || larger) && !is_always_double(&m->context))
      add_type(x);
    if (!pairs) add_shape(x);
  } else if (message_is_device(m->kind)) {
    add_pool_limit(x);
    add_processes(x, f->list[0].id);
  }
  bool graph = f->list[0].id == CAUSE_GRAPH_KEPT || f->list[0].id == CAUSE_NO_GRAD_MISSING;
  if (graph && m->context.kept != KEPT_NONE) add_kept(x);
  if (f->list[0].id == CAUSE_BATCH_TOO_BIG && diagnosis_own(m) == 0 && add_batch(x, derived))
    derived |= DERIVED_BATCH;
  bool second = f->count > 1 && f->list[1].confidence >= 0.4 && f->list[1].id != f->list[0].id;
  /* One place for what the platform adds to a program's own settings. */
  bool platform = (m->context.traits & TRAIT_JETSON) != 0 && m->kind != MESSAGE_HOST;
  if (platform && !second) {
    add_all(x, f->list[0].id, derived, FIXES_SHOWN - 1);
    add_from(x, &recipes_platform, f->list[0].id, derived, FIXES_SHOWN);
  }
  if (is_service(m)) {
    add_all(x, f->list[0].id, derived, FIXES_SHOWN - 2);
    add_unit(x);
  }
  /* After the first change: it costs nothing, and may not be enough. */
  if ((derived & DERIVED_TOGETHER) != 0 && f->list[0].id != CAUSE_FRAGMENTATION) {
    if (x->fixes.count == 0) add_all(x, f->list[0].id, derived, 1);
    static const recipe together = {
        .change = "let PyTorch join what is free with what it has cached, which together are more "
                  "than the request: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        .cost = "page calls while it grows"};
    add(x, &together, MESSAGE_UNKNOWN);
  }
  add_all(x, f->list[0].id, derived, second ? FIXES_SHOWN - 1 : FIXES_SHOWN);
  if (second) add_all(x, f->list[1].id, derived, FIXES_SHOWN);
  if (x->fixes.count < 2) add_from(x, &recipes_find, f->list[0].id, derived, FIXES_SHOWN);
  if (f->list[0].confidence >= 0.6 && f->list[0].id != CAUSE_UNKNOWN) return;
  for (size_t i = 0; i < recipes_questions.count; i++) {
    if (!applies(&recipes_questions.rows[i], m, f->list[0].id, derived)) continue;
    char words[300];
    write_words(words, sizeof words, recipes_questions.rows[i].change, m);
    buffer_printf(&x->notes, "to find out: %s\n", words);
    return;
  }
}
