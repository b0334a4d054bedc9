/* Diagnosis fix: fixes for a text, from the tables of recipes.h, the cheapest change for each cause
 * first.
 *
 * A row applies if its cause, library, platform, phase and version fit what the text shows. The
 * first FIXES_SHOWN rows that apply are the fixes, so none is offered that the version or the
 * platform does not support. recipes_find ensures that every answer has a fix. */
#include <stdio.h>
#include <string.h>

#include "advise/diagnosis_parts.h"

#define FIXES_SHOWN 4
#define HELD_LEAST  (UINT64_C(1) << 30)   /* data from here on fills a device by itself */
#define DEVICE_MOST (UINT64_C(192) << 30) /* few devices have more */
#define REST_OWN    (UINT64_C(1) << 30)   /* a process needs as much besides its tensors */
#define SWAP_MOST   (UINT64_C(24) << 30)  /* the swap file that the tables name has 16 GiB */
#define VAST_LEAST  (UINT64_C(96) << 30)  /* six times that file */
#define HUGE_LEAST  (UINT64_C(256) << 30) /* more than a machine has by this is hopeless */
#define SLACK_PART  16                    /* less than this part of the request is no help */
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

/* Returns whether the request is for far more host memory than the machine, or any usual one, has.
 */
static bool is_huge(const message *m) {
  if (m->kind != MESSAGE_HOST || !known(m->asked_bytes)) return false;
  uint64_t host = known(m->host_bytes) ? m->host_bytes : 0;
  return m->asked_bytes >= HUGE_LEAST && m->asked_bytes - HUGE_LEAST >= host;
}

bool diagnosis_owned(const message *m) {
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
  set |= (m->details & MESSAGE_SPARED) != 0 ? DERIVED_SPARED : 0;
  set |= m->async ? DERIVED_ASYNC : 0;
  set |= m->cache_tokens != MESSAGE_UNKNOWN && m->cache_tokens > 0 ? DERIVED_TOKENS : 0;
  bool far = m->host == HOST_MODEL && known(m->asked_bytes) && known(m->free_bytes) &&
             m->asked_bytes / 4 > m->free_bytes;
  set |= far ? DERIVED_FAR : 0;
  set |= context_any(c, CONTEXT_BIT(COMFY) | CONTEXT_BIT(WEBUI)) ? DERIVED_DRAWS : 0;
  set |= c->llama_build >= LLAMA_FA_VALUE ? DERIVED_FA_VALUE : 0;
  set |= c->llama_build > 0 && c->llama_build < LLAMA_FA_VALUE ? DERIVED_FA_BARE : 0;
  set |= (m->details & MESSAGE_OOMD) != 0 ? DERIVED_OOMD : 0;
  set |= diagnosis_is_service(m) ? DERIVED_SERVICE : 0;
  bool room = m->kind != MESSAGE_HOST && diagnosis_had_room(&x->evidence.n);
  bool unused = m->kind == MESSAGE_TORCH && diagnosis_unused(&x->evidence.n);
  set |= room || unused ? DERIVED_ROOM : 0;
  set |= diagnosis_absurd(&x->evidence.n) ? DERIVED_ABSURD : 0;
  set |= m->grouped ? DERIVED_GROUPED : 0;
  set |= m->process_count > 0 ? DERIVED_LISTED : 0;
  set |= m->kind == MESSAGE_HOST && known(m->limit_bytes) ? DERIVED_OWN_LIMIT : 0;
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
  set |= known(m->live_bytes) && m->live_bytes >= HELD_LEAST ? DERIVED_HOLDS : 0;
  set |= m->share > 0 || m->share_needed > 0 ? DERIVED_SHARE : 0;
  set |= is_other_program(m) ? DERIVED_OTHER : 0;
  set |= known(m->before_bytes) ? DERIVED_MEASURED : 0;
  bool sized = known(m->asked_bytes) && known(m->device_bytes);
  bool larger = sized && m->asked_bytes > m->device_bytes, huge = is_huge(m);
  bool one_buffer = (m->details & MESSAGE_ONE_BUFFER) != 0 && known(m->asked_bytes) &&
                    known(m->limit_bytes) && m->asked_bytes > m->limit_bytes;
  set |= larger ? DERIVED_LARGER : 0;
  set |= huge ? DERIVED_HUGE : 0;
  /* MATLAB compares an array with its preference, not with what is free. */
  bool preference = m->kind == MESSAGE_HOST && (c->programs & PROGRAM_ARRAY_MOST) != 0;
  bool result = m->kind == MESSAGE_XLA && known(m->out_bytes) && m->out_bytes >= DEVICE_MOST;
  set |= larger || huge || one_buffer || preference || result ? DERIVED_HOPELESS : 0;
  const numbers *n = &x->evidence.n;
  bool both = known(n->asked_bytes) && known(n->free_bytes) && known(n->cached_bytes) &&
              n->cached_bytes >= n->asked_bytes / 4 && n->free_bytes < SCAN_HUGE &&
              n->cached_bytes < SCAN_HUGE &&
              n->free_bytes + n->cached_bytes >= n->asked_bytes + n->asked_bytes / SLACK_PART;
  /* Another process, or a state that every weight needs, takes more than the pieces have. */
  cause_id first = x->findings.list[0].id;
  both = both && first != CAUSE_OPTIMIZER_STATE && first != CAUSE_OTHER_PROCESS;
  bool grows = (set & DERIVED_EXPANDS) != 0 && m->kind == MESSAGE_TORCH &&
               !context_any(c, CONTEXT_BIT(AMD) | CONTEXT_BIT(INTEL) | CONTEXT_BIT(NPU) |
                                   CONTEXT_BIT(APPLE) | CONTEXT_BIT(EXPANDABLE));
  set |= both && grows && (set & DERIVED_ROOM) == 0 ? DERIVED_TOGETHER : 0;
  bool rest = known(n->unknown_bytes) && known(n->device_bytes) && n->unknown_bytes > REST_OWN &&
              n->unknown_bytes - REST_OWN > n->device_bytes / 16;
  set |= rest ? DERIVED_REST : 0;
  set |= diagnosis_carved(x) ? DERIVED_CARVED : 0;
  bool host = m->kind == MESSAGE_HOST && known(m->asked_bytes);
  set |= host && m->asked_bytes >= SWAP_MOST ? DERIVED_NO_SWAP : 0;
  bool killed = m->host == HOST_KERNEL && known(m->process_bytes);
  set |= killed && m->process_bytes >= VAST_LEAST ? DERIVED_VAST : 0;
  bool tensor = m->host == HOST_TORCH || m->host == HOST_KILLED || m->host == HOST_LARGE;
  set |= host && tensor && m->asked_bytes >= HELD_LEAST ? DERIVED_TENSOR : 0;
  set |= diagnosis_python(m) ? DERIVED_PYTHON : 0;
  set |= diagnosis_owned(m) ? DERIVED_OWNED : 0;
  bool within = known(m->asked_bytes) && known(m->limit_bytes) && m->asked_bytes <= m->limit_bytes;
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
  bool own = (r->need & languages) != 0 || r->kinds == UINT32_C(1) << MESSAGE_JULIA;
  if (!context_any(c, languages) || own) return false;
  if (scan_has(change, DIAGNOSIS_SCRIPT) && context_any(c, CONTEXT_BIT(NATIVE))) return false;
  return scan_has_any(change, python, sizeof python / sizeof *python);
}

/* Returns whether a change only makes more memory free, which does not help a request that is too
 * large whatever is free. */
static bool frees_only(const recipe *r) {
  static const char *const words[] = {"other program", "other process", "who else", "swap",
                                      "page file",     "larger runner", "add RAM",  "MEM_FRACTION"};
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

/* Returns whether a fix that begins with the same words is there already. */
static bool is_given(const explanation *x, const recipe *r) {
  for (uint32_t i = 0; i < x->fixes.count; i++)
    if (strncmp(x->fixes.list[i].change, r->change, SAME_WORDS) == 0) return true;
  return false;
}

static void add_from(explanation *x, const recipe_table *t, cause_id id, uint64_t derived,
                     uint32_t most) {
  uint64_t bytes = x->fixes.count == 0 ? diagnosis_saving(x, id) : MESSAGE_UNKNOWN;
  /* Settings of a program do not change what the allocator or another library does. */
  bool around = id == CAUSE_FRAGMENTATION || id == CAUSE_OUTSIDE_FRAMEWORK;
  uint64_t own = around ? 0 : diagnosis_own(&x->evidence.message);
  for (size_t i = 0; i < t->count && x->fixes.count < most; i++) {
    /* The settings of such a program; others' changes do not apply to it. */
    if (own != 0 && (t->rows[i].with & own) == 0) continue;
    if (!applies(&t->rows[i], &x->evidence.message, id, derived)) continue;
    if (is_given(x, &t->rows[i])) continue;
    diagnosis_add(x, &t->rows[i], bytes);
    bytes = MESSAGE_UNKNOWN;
  }
}

static void add_all(explanation *x, cause_id id, uint64_t derived, uint32_t most) {
  static const recipe_table *const tables[] = {&recipes_tools,    &recipes_own,   &recipes_place,
                                               &recipes_serve,    &recipes_model, &recipes_full,
                                               &recipes_platform, &recipes_host};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
    add_from(x, tables[i], id, derived, most);
}

void diagnosis_fixes(explanation *x) {
  const message *m = &x->evidence.message;
  uint64_t derived = derive(x);
  const findings *f = &x->findings;
  diagnosis_server_fixes(x);
  if (m->kind == MESSAGE_HOST && diagnosis_host_fixes(x)) derived |= DERIVED_NAMED;
  if (message_is_device(m->kind)) diagnosis_device_fixes(x);
  bool graph = f->list[0].id == CAUSE_GRAPH_KEPT || f->list[0].id == CAUSE_NO_GRAD_MISSING;
  if (graph && m->context.kept != KEPT_NONE) diagnosis_kept_fix(x);
  /* A program whose own text gives its batch gets a number, also where the cause is not sure. */
  bool numbered =
      f->list[0].id == CAUSE_BATCH_TOO_BIG ||
      (f->list[0].id == CAUSE_UNKNOWN && context_any(&m->context, CONTEXT_BIT(MATLAB))) ||
      (f->list[0].id == CAUSE_FRAGMENTATION && context_any(&m->context, CONTEXT_BIT(YOLO)));
  if (numbered && diagnosis_own(m) == 0 && diagnosis_batch_fix(x, derived))
    derived |= DERIVED_BATCH;
  bool second = f->count > 1 && f->list[1].confidence >= 0.4 && f->list[1].id != f->list[0].id;
  /* One place for what the platform adds to a program's own settings. */
  bool platform = (m->context.traits & TRAIT_JETSON) != 0 && m->kind != MESSAGE_HOST;
  if (platform && !second) {
    add_all(x, f->list[0].id, derived, FIXES_SHOWN - 1);
    add_from(x, &recipes_platform, f->list[0].id, derived, FIXES_SHOWN);
  }
  if (diagnosis_is_service(m)) {
    add_all(x, f->list[0].id, derived, FIXES_SHOWN - 2);
    diagnosis_unit_fix(x);
  }
  /* After the first change: it costs nothing, and may not be enough. */
  if ((derived & DERIVED_TOGETHER) != 0 && f->list[0].id != CAUSE_FRAGMENTATION) {
    if (x->fixes.count == 0) add_all(x, f->list[0].id, derived, 1);
    static const recipe together = {
        .change = "let PyTorch join what is free with what it has cached, which together are more "
                  "than the request: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        .cost = "page calls while it grows"};
    diagnosis_add(x, &together, MESSAGE_UNKNOWN);
  }
  add_all(x, f->list[0].id, derived, second ? FIXES_SHOWN - 1 : FIXES_SHOWN);
  if (second) add_all(x, f->list[1].id, derived, FIXES_SHOWN);
  if (x->fixes.count < 2) add_from(x, &recipes_find, f->list[0].id, derived, FIXES_SHOWN);
  if (f->list[0].confidence >= 0.6 && f->list[0].id != CAUSE_UNKNOWN) return;
  for (size_t i = 0; i < recipes_questions.count; i++) {
    if (!applies(&recipes_questions.rows[i], m, f->list[0].id, derived)) continue;
    char words[300];
    diagnosis_write_words(words, sizeof words, recipes_questions.rows[i].change, m);
    buffer_printf(&x->notes, "to find out: %s\n", words);
    return;
  }
}
