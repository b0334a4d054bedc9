/* Shared by the parts of diagnosis: adds a cause, and judges the numbers. */
#include "advise/diagnosis_parts.h"

#include <stdio.h>
#include <string.h>

#define ROOM_LEAST   (UINT64_C(128) << 20) /* drivers and pools keep less than this in reserve */
#define CARVED_MOST  (UINT64_C(5) << 29)   /* 2.5 GiB; ROCm's cards have 4 and more */
#define ABSURD_LEAST (UINT64_C(64) << 40)  /* an address is often taken for a size */

#define NO_KERNEL ", or restart a notebook's kernel"

cause *diagnosis_cause(explanation *x, cause_id id, double confidence) {
  cause *c = &x->findings.list[x->findings.count++];
  *c =
      (cause){.id = id, .confidence = confidence, .headline = BUFFER_INIT, .evidence = BUFFER_INIT};
  return c;
}

void diagnosis_add_fix(explanation *x, const char *change, const char *cost) {
  diagnosis_add(x, &(recipe){.change = change, .cost = cost}, MESSAGE_UNKNOWN);
}

void diagnosis_write_words(char *out, size_t size, const char *words, const message *m) {
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
  const char *at = command[0] != '\0' ? strstr(words, DIAGNOSIS_SCRIPT) : NULL;
  const char *kernel = strstr(words, NO_KERNEL);
  bool other =
      context_any(c, CONTEXT_BIT(NATIVE) | CONTEXT_BIT(R) | CONTEXT_BIT(MATLAB)) ||
      (c->programs & (PROGRAM_HASHCAT | PROGRAM_ISAAC | PROGRAM_DYNAMICS | PROGRAM_CUDA_CALL)) != 0;
  if (kernel != NULL && other && strlen(kernel) == strlen(NO_KERNEL))
    snprintf(out, size, "%.*s", (int)(kernel - words), words);
  else if (at == NULL)
    snprintf(out, size, "%s", words);
  else
    snprintf(out, size, "%.*s%s%s", (int)(at - words), words, command,
             at + strlen(DIAGNOSIS_SCRIPT));
}

/* Doubles the number of devices that a change names if the program has that many already. */
static void write_parallel(char *change, size_t size, const context *c) {
  static const char *const options[] = {"--tensor-parallel-size 2", "--tp-size 2", "--num-shard 2",
                                        "--tp_size 2"};
  if (c->parallel < 2) return;
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    char *at = strstr(change, options[i]);
    if (at == NULL) continue;
    char rest[400];
    at += strlen(options[i]);
    snprintf(rest, sizeof rest, "%s", at);
    snprintf(at - 1, size - (size_t)(at - 1 - change), "%u instead of %u%s", 2 * c->parallel,
             c->parallel, rest);
  }
}

void diagnosis_add(explanation *x, const recipe *r, uint64_t bytes) {
  if (x->fixes.count == FIXES_MAX) return;
  fix *f = &x->fixes.list[x->fixes.count++];
  *f = (fix){.saves_bytes = bytes};
  diagnosis_write_words(f->change, sizeof f->change, r->change, &x->evidence.message);
  write_parallel(f->change, sizeof f->change, &x->evidence.message.context);
  snprintf(f->cost, sizeof f->cost, "%s", r->cost);
}

bool diagnosis_had_room(const numbers *n) {
  if (!known(n->free_bytes) || !known(n->asked_bytes)) return false;
  uint64_t spare = ROOM_LEAST;
  if (known(n->device_bytes) && n->device_bytes / 50 > spare) spare = n->device_bytes / 50;
  return n->free_bytes > n->asked_bytes && n->free_bytes - n->asked_bytes >= spare;
}

bool diagnosis_unused(const numbers *n) {
  if (known(n->free_bytes) || !known(n->device_bytes) || !known(n->asked_bytes) ||
      !known(n->live_bytes) || known(n->limit_bytes))
    return false;
  uint64_t half = n->device_bytes / 2;
  /* Not every text gives what is reserved. */
  uint64_t held = n->reserved_bytes > n->live_bytes ? n->reserved_bytes : n->live_bytes;
  return held < half && n->asked_bytes < half && held + 2 * n->asked_bytes < n->device_bytes;
}

bool diagnosis_carved(const explanation *x) {
  const numbers *n = &x->evidence.n;
  return context_any(&x->evidence.message.context, CONTEXT_BIT(AMD)) && known(n->device_bytes) &&
         n->device_bytes <= CARVED_MOST;
}

bool diagnosis_absurd(const numbers *n) {
  return known(n->asked_bytes) && n->asked_bytes >= ABSURD_LEAST;
}

uint64_t diagnosis_own(const message *m) {
  const context *c = &m->context;
  bool torch = m->kind == MESSAGE_TORCH || m->kind == MESSAGE_CUDA;
  bool cuda = m->kind == MESSAGE_CUDA || m->kind == MESSAGE_RMM;
  uint64_t own = torch ? TRAIT_SPLAT | TRAIT_INVOKE : 0;
  bool server = context_any(c, CONTEXT_BIT(VLLM) | CONTEXT_BIT(SGLANG));
  bool trains = context_any(c, CONTEXT_BIT(BACKWARD) | CONTEXT_BIT(OPTIMIZER));
  if (torch && !server && !trains) own |= TRAIT_EXLLAMA;
  if (cuda) own |= TRAIT_SPARK | TRAIT_XGBOOST | TRAIT_LIGHTGBM | TRAIT_FAISS | TRAIT_ENCODER;
  if (cuda && !context_any(c, CONTEXT_BIT(TORCH)))
    own |= TRAIT_GAME | TRAIT_RENDER | TRAIT_EDITOR | TRAIT_OPENCL;
  return c->traits & own;
}

bool diagnosis_python(const message *m) {
  const context *c = &m->context;
  static const uint32_t kinds = UINT32_C(1) << MESSAGE_TORCH | UINT32_C(1) << MESSAGE_XLA |
                                UINT32_C(1) << MESSAGE_TENSORFLOW | UINT32_C(1) << MESSAGE_CUPY |
                                UINT32_C(1) << MESSAGE_NUMBA | UINT32_C(1) << MESSAGE_DISPATCH;
  static const uint32_t hosts =
      UINT32_C(1) << HOST_NUMPY | UINT32_C(1) << HOST_TORCH | UINT32_C(1) << HOST_WORKER |
      UINT32_C(1) << HOST_NOTEBOOK | UINT32_C(1) << HOST_DIED | UINT32_C(1) << HOST_RAY |
      UINT32_C(1) << HOST_DASK | UINT32_C(1) << HOST_SHARED | UINT32_C(1) << HOST_PINNING;
  bool server = context_any(c, CONTEXT_BIT(VLLM) | CONTEXT_BIT(SGLANG));
  if (m->kind == MESSAGE_HOST && (hosts >> m->host & 1) != 0) return true;
  if (m->kind != MESSAGE_HOST && (kinds >> m->kind & 1) != 0) return true;
  if (context_any(c, CONTEXT_BIT(FORKING))) return true; /* frames of Python's own library */
  return !server && ((c->traits & TRAIT_PYTHON) != 0 || context_any(c, CONTEXT_BIT(TORCH)));
}
