/* Diagnosis numbers: fixes for device memory that a text's own numbers and lines make: shares and
 * tokens of servers, the processes that hold the device, limits of pools, batches, and lines that
 * keep a graph. */
#include <stdio.h>
#include <string.h>

#include "advise/diagnosis_parts.h"

#define PIDS_NAMED  4
#define SHARE_STEP  0.05
#define PINNED_MOST (UINT64_C(1) << 45) /* larger limits are errors of reading */

/* Returns whether the other processes may be ranks of this program, which load a checkpoint. */
static bool are_ranks(const message *m) {
  return (m->context.traits & TRAIT_RESTORE) != 0 && context_any(&m->context, CONTEXT_BIT(RANKS));
}

/* Returns whether the other processes may be workers of the same test run (pytest-xdist). */
static bool are_workers(const message *m) {
  return (m->context.traits & (TRAIT_TESTS | TRAIT_TEST_WORKERS)) != 0 && m->process_count > 1;
}

/* Ending another process or library frees what it holds; other savings are unknown. */
uint64_t diagnosis_saving(const explanation *x, cause_id id) {
  const numbers *n = &x->evidence.n;
  if (id == CAUSE_OTHER_PROCESS && known(n->other_process_bytes) && n->other_process_bytes > 0 &&
      !are_ranks(&x->evidence.message))
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
    diagnosis_add(x, &r, MESSAGE_UNKNOWN);
  }
  if ((m->details & MESSAGE_START) == 0 || !known(n->free_bytes) || !known(n->device_bytes) ||
      n->device_bytes == 0)
    return;
  double share = (double)n->free_bytes / (double)n->device_bytes - 0.02;
  if (share < 0.1 || share > 1) return; /* no numbers, or impossible ones */
  snprintf(text, sizeof text, "take only what is free: --gpu-memory-utilization %.2f",
           (double)(int)(share * 100) / 100);
  r.cost = "a smaller KV cache: fewer or shorter requests at once";
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
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
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
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
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
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
  char was[32] = "";
  if (m->share > 0) snprintf(was, sizeof was, " instead of %.2f", m->share);
  bool cache = (m->details & MESSAGE_KV_CACHE) != 0 && (m->details & MESSAGE_COMPUTE) == 0;
  if (!cache || more > 0.96) return; /* the share limits the cache alone */
  if (m->kind == MESSAGE_VLLM)
    snprintf(text, sizeof text,
             "give the server more of the device: --gpu-memory-utilization %.2f%s", more, was);
  else
    snprintf(text, sizeof text,
             "give the KV cache more: --mem-fraction-static %.2f%s, and 0.02 more until the server "
             "starts",
             more, was);
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
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
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
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
    diagnosis_add(x, &r, diagnosis_saving(x, id));
    return;
  }
  if (context_any(&m->context, CONTEXT_BIT(RANKS)) && !amd) {
    r.change = "one device for each rank: torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"])) "
               "before the first tensor; nvidia-smi shows whether the other processes are ranks of "
               "this run; end those that are not";
    r.cost = "none";
    diagnosis_add(x, &r, diagnosis_saving(x, id));
    return;
  }
  size_t length = 0;
  uint64_t named_bytes = 0;
  for (uint32_t i = 0; i < m->process_count && i < PIDS_NAMED; i++) {
    named_bytes += m->processes[i].bytes;
    length += (size_t)snprintf(pids + length, sizeof pids - length, "%s%u",
                               i == 0    ? ""
                               : windows ? " /PID "
                                         : " ",
                               m->processes[i].pid);
  }
  bool more = m->process_count > PIDS_NAMED;
  snprintf(text, sizeof text,
           "end %s (%s shows what %s): %s %s; or choose another device: %s_VISIBLE_DEVICES=1",
           more                   ? "the largest"
           : m->process_count > 1 ? "them"
                                  : "it",
           amd ? "rocm-smi --showpids" : "nvidia-smi", m->process_count > 1 ? "they are" : "it is",
           windows ? "taskkill /PID" : "kill", pids, amd ? "HIP" : "CUDA");
  diagnosis_add(x, &r, more ? named_bytes : diagnosis_saving(x, id));
}

/* Raises the limit of CuPy's pool to what it held and the request together. */
static void add_pool_limit(explanation *x) {
  const message *m = &x->evidence.message;
  char text[320];
  recipe r = {.change = text, .cost = "less is left for others on the device"};
  if (m->kind != MESSAGE_CUPY || x->findings.list[0].id != CAUSE_LIMIT || !known(m->limit_bytes) ||
      m->limit_bytes > PINNED_MOST)
    return;
  uint64_t held = known(m->live_bytes) ? m->live_bytes : m->limit_bytes;
  uint64_t asked = known(m->asked_bytes) ? m->asked_bytes : 0;
  if (held > PINNED_MOST || asked > PINNED_MOST) return;
  uint64_t sum = held + asked > m->limit_bytes ? held + asked : m->limit_bytes + 1;
  unsigned long long gib = (sum + sum / 20 + (1 << 30) - 1) >> 30;
  snprintf(text, sizeof text,
           "raise the limit of %s, if the device has more: "
           "cupy.get_default_memory_pool().set_limit(size=%llu * 1024**3), or export "
           "CUPY_GPU_MEMORY_LIMIT=%llu",
           cause_size(m->limit_bytes), gib, gib << 30);
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
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

void diagnosis_kept_fix(explanation *x) {
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
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
}

/* Returns the name of the batch size in the settings of the trainer that owns the loop. */
static const char *batch_name(const context *c, bool owned) {
  if (context_any(c, CONTEXT_BIT(YOLO))) return "batch";
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

#define SAMPLE_LARGE (UINT64_C(512) << 20) /* of one tensor: then the images are what is large */

/* TensorFlow: one image alone makes a large tensor, so no batch fits well. */
static void add_smaller_images(explanation *x) {
  const message *m = &x->evidence.message;
  char text[240];
  recipe r = {.change = text, .cost = "less detail, or a loop over the crops"};
  bool image = m->kind == MESSAGE_TENSORFLOW && m->rank == 4 && m->first_dim > 0 &&
               (m->context.programs & PROGRAM_SIDES) != 0 && known(m->asked_bytes);
  uint64_t one = image ? m->asked_bytes / m->first_dim : 0;
  if (one < SAMPLE_LARGE) return;
  snprintf(text, sizeof text,
           "smaller images, or crops of them: target_size=(512, 512); one image takes %s in this "
           "tensor alone, and half of each side needs a quarter",
           cause_size(one));
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
}

/* A smaller batch needs less: what was live beyond the first try is left of the failed ones. */
static void add_tries(explanation *x) {
  const message *m = &x->evidence.message;
  char text[320];
  recipe r = {.change = text, .cost = "none"};
  if (!known(m->held_bytes) || !known(m->live_bytes) ||
      m->held_bytes < m->live_bytes + m->live_bytes / 50)
    return;
  snprintf(text, sizeof text,
           "free a failed try before the next one: leave the except block first (its traceback "
           "keeps the tensors), del batch, output and loss, "
           "optimizer.zero_grad(set_to_none=True), gc.collect(), torch.cuda.empty_cache()");
  cause_say(&x->findings.list[0],
            "%s was live when the batch of %u failed, %s more than at the first try: what the "
            "failed tries made is still held",
            cause_size(m->held_bytes), m->failed_batch, cause_size(m->held_bytes - m->live_bytes));
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
}

bool diagnosis_batch_fix(explanation *x, uint64_t derived) {
  const message *m = &x->evidence.message;
  add_smaller_images(x);
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
  bool accumulates = m->kind == MESSAGE_TORCH && (derived & DERIVED_TRAINS) != 0 && !owned &&
                     !context_any(&m->context, CONTEXT_BIT(YOLO));
  bool matlab = context_any(&m->context, CONTEXT_BIT(MATLAB));
  const char *name = m->kind == MESSAGE_JULIA                          ? "batchsize"
                     : (m->context.programs & PROGRAM_MATCONVNET) != 0 ? "opts.batchSize"
                     : matlab                                          ? "MiniBatchSize"
                              : batch_name(&m->context, owned);
  if (failed < batch) snprintf(also, sizeof also, " (%u failed too)", failed);
  if (m->passed_batch > 0) {
    snprintf(text, sizeof text,
             "start with the batch that went through in the end: %s=%u instead of %u%s", name,
             m->passed_batch, batch, also);
    r.cost = "none";
    diagnosis_add(x, &r, MESSAGE_UNKNOWN);
    return true;
  }
  snprintf(text, sizeof text,
           "a smaller batch: %s=%u instead of %u%s%s, and half again until it fits%s", name,
           failed / 2, batch, also, m->context.batch > 1 ? "" : " (the first number of that shape)",
           accumulates ? "; for the same training step every second time: (loss / 2).backward(); "
                         "if i % 2: optimizer.step(); optimizer.zero_grad()"
           : owned     ? accumulation(&m->context)
                       : "");
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
  add_tries(x);
  return true;
}

/* TensorRT: a workspace in which the kernel that was skipped fits, in whole GiB. */
static void add_workspace(explanation *x) {
  const message *m = &x->evidence.message;
  char text[320];
  recipe r = {.change = text, .cost = "less of the device is left for others while it builds"};
  if ((m->details & MESSAGE_POOL) == 0) return;
  bool sized = known(m->asked_bytes) && m->asked_bytes < PINNED_MOST;
  unsigned long long gib = sized ? (m->asked_bytes >> 30) + 1 : 4;
  snprintf(text, sizeof text,
           "a larger workspace, if the device has it: trtexec --memPoolSize=workspace:%llu (MiB; "
           "before TensorRT 8.4: --workspace=%llu), in Python "
           "config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, %llu << 30)",
           gib << 10, gib << 10, gib);
  diagnosis_add(x, &r, MESSAGE_UNKNOWN);
}

void diagnosis_server_fixes(explanation *x) {
  const message *m = &x->evidence.message;
  if (m->kind == MESSAGE_TENSORRT) add_workspace(x);
  if (m->kind == MESSAGE_VLLM) add_numbers(x);
  if (m->share > 0) add_less_share(x);
  if (m->share > 0 || m->share_needed > 0) add_share(x);
  if (m->kind == MESSAGE_TGI) add_tokens(x);
  if (m->kind == MESSAGE_LLAMA) add_step(x);
}

void diagnosis_device_fixes(explanation *x) {
  add_pool_limit(x);
  add_processes(x, x->findings.list[0].id);
}
