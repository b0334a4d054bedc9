/* Causes on the device. The numbers come first: a size that no machine has, free memory, holes, a
 * limit, other processes, one huge request. If they do not decide, diagnosis_guess.c does. */
#include <stdio.h>
#include <string.h>

#include "advise/diagnosis_parts.h"

#define CONTEXT_MOST (UINT64_C(1) << 30) /* a CUDA context with its kernels takes up to this */
/* TensorFlow takes most of a free device: less means others. */
#define SMALL_POOL      (UINT64_C(1) << 30)
#define BLOCK_MOST      ((UINT64_C(4) << 30) - (UINT64_C(1) << 20)) /* of Intel's driver */
#define PROCESSES_SHOWN 6

/* Returns what a process needs on a device before its first tensor; small devices have smaller
 * contexts. */
static uint64_t context_bytes(uint64_t device) {
  return device / 5 < CONTEXT_MOST ? device / 5 : CONTEXT_MOST;
}

static void detect_holes(explanation *x) {
  const numbers *n = &x->evidence.n;
  const message *m = &x->evidence.message;
  if (!known(n->asked_bytes) || !known(n->cached_bytes)) return;
  bool pieces = known(n->largest_hole_bytes);
  if (n->cached_bytes < n->asked_bytes || (pieces && n->largest_hole_bytes >= n->asked_bytes))
    return;
  /* Every allocator has some unused memory: only a large part of the whole makes it the cause. */
  double part = n->reserved_bytes > 0 ? (double)n->cached_bytes / (double)n->reserved_bytes : 1;
  double sure = part >= 0.15 ? (pieces ? 0.9 : 0.75) : part >= 0.05 ? 0.4 : 0.15;
  if (!pieces && !known(n->live_bytes)) sure = 0.3; /* of how much is not known */
  cause *c = diagnosis_cause(x, CAUSE_FRAGMENTATION, sure);
  cause_say(c, "%.0f%% of what the allocator holds is not in use", part * 100);
  if (pieces)
    cause_head(c,
               "Enough memory is free, but not in one piece: %s free inside the allocator, the "
               "largest piece %s, %s requested",
               cause_size(n->cached_bytes), cause_size(n->largest_hole_bytes),
               cause_size(n->asked_bytes));
  else
    cause_head(c,
               "The device's free memory is in pieces: %s is reserved and not in use, more than "
               "the %s requested, but no piece is large enough",
               cause_size(n->cached_bytes), cause_size(n->asked_bytes));
  if (m->chunks.found)
    cause_say(c, "%llu chunks in use and %llu free in the allocator's dump",
              (unsigned long long)m->chunks.used_count, (unsigned long long)m->chunks.free_count);
}

static void detect_limit(explanation *x) {
  const numbers *n = &x->evidence.n;
  const message *m = &x->evidence.message;
  if (!known(n->limit_bytes)) return;
  bool room = known(n->free_bytes) && known(n->asked_bytes) && n->free_bytes >= n->asked_bytes;
  if (m->kind == MESSAGE_TORCH && room) {
    /* If several such requests would fit, the limit is the only reason that the text gives. */
    bool roomy = n->free_bytes / 4 >= n->asked_bytes;
    cause *c = diagnosis_cause(x, CAUSE_LIMIT, roomy ? 0.65 : 0.25);
    cause_head(c, "A limit of %s is set for this process while the device has %s free",
               cause_size(n->limit_bytes), cause_size(n->free_bytes));
    cause_say(c, "set_per_process_memory_fraction, or another program's setting, set it");
    return;
  }
  if (has(x, CONTEXT_BIT(APPLE)) && known(m->outside_bytes) &&
      m->outside_bytes > n->limit_bytes / 4) {
    /* In training, the batch decides how much of both there is. */
    bool trains = has(x, CONTEXT_BIT(BACKWARD) | CONTEXT_BIT(TRAINER) | CONTEXT_BIT(OPTIMIZER));
    cause *c = diagnosis_cause(x, CAUSE_OUTSIDE_FRAMEWORK, trains ? 0.4 : 0.5);
    cause_head(c,
               "%s of the %s that may be used is Metal memory of this process outside PyTorch's "
               "pool",
               cause_size(m->outside_bytes), cause_size(n->limit_bytes));
    cause_say(c, "compiled graphs and buffers of Metal: each new shape of the inputs adds some");
    return;
  }
  if (m->kind == MESSAGE_CUPY || m->kind == MESSAGE_JULIA) {
    cause *c = diagnosis_cause(x, CAUSE_LIMIT, m->kind == MESSAGE_CUPY ? 0.65 : 0.45);
    cause_head(c, "%s's pool is limited to %s and holds %s", message_kind_name(m->kind),
               cause_size(n->limit_bytes),
               known(n->live_bytes) ? cause_size(n->live_bytes) : "an unknown part of it");
    return;
  }
  if (m->kind == MESSAGE_TENSORFLOW && n->limit_bytes < SMALL_POOL) {
    cause *c = diagnosis_cause(x, CAUSE_OTHER_PROCESS, 0.55);
    cause_head(c,
               "TensorFlow got only %s of the device: probably another process held the rest when "
               "it started",
               cause_size(n->limit_bytes));
    cause_say(c, "TensorFlow takes nearly all free memory of a device when it starts");
  }
}

static void detect_processes(explanation *x) {
  const numbers *n = &x->evidence.n;
  const message *m = &x->evidence.message;
  if (!known(n->device_bytes)) return;
  if (known(n->other_process_bytes) && n->other_process_bytes > n->device_bytes / 10) {
    cause *c = diagnosis_cause(x, CAUSE_OTHER_PROCESS,
                               n->other_process_bytes > n->device_bytes / 3 ? 0.93 : 0.7);
    if (m->process_count > 1)
      cause_head(c, "%u other processes hold %s of the device's %s", m->process_count,
                 cause_size(n->other_process_bytes), cause_size(n->device_bytes));
    else
      cause_head(c, "Another process holds %s of the device's %s",
                 cause_size(n->other_process_bytes), cause_size(n->device_bytes));
    for (uint32_t i = 0; i < m->process_count && i < PROCESSES_SHOWN; i++)
      cause_say(c, "process %u holds %s", m->processes[i].pid, cause_size(m->processes[i].bytes));
    if (m->process_count > PROCESSES_SHOWN)
      cause_say(c, "and %u more", m->process_count - PROCESSES_SHOWN);
    if (does(x, TRAIT_TESTS | TRAIT_TEST_WORKERS) && m->process_count > 1)
      cause_say(c, "they may be workers of the same test run (pytest-xdist)");
    if (m->process_count > 1 && has(x, CONTEXT_BIT(RANKS)) && !does(x, TRAIT_RESTORE))
      cause_say(c, "the other ranks of this run may be among them: then all of them use this one "
                   "device");
    if (does(x, TRAIT_RESTORE) && has(x, CONTEXT_BIT(RANKS)))
      cause_say(c, "the other ranks may be among them: torch.load returns tensors to the device "
                   "that they were saved from, which is the same one for every rank");
  }
  if (known(n->outside_framework_bytes) && n->outside_framework_bytes > CONTEXT_MOST &&
      n->outside_framework_bytes - CONTEXT_MOST > n->device_bytes / 10) {
    cause *c = diagnosis_cause(x, CAUSE_OUTSIDE_FRAMEWORK,
                               n->outside_framework_bytes > n->device_bytes / 3 ? 0.93 : 0.7);
    cause_head(c, "%s of this process was allocated outside PyTorch",
               cause_size(n->outside_framework_bytes));
  }
}

/* Detects a pool of JAX or TensorFlow that asked for less and less at its start: others hold the
 * device. JAX takes 75% of it; a program that has nothing yet fills nothing. */
static void detect_falling(explanation *x) {
  const message *m = &x->evidence.message;
  bool xla = m->kind == MESSAGE_XLA || m->kind == MESSAGE_TENSORFLOW;
  if (!xla || m->falling_count < 2 || known(m->live_bytes) || m->falling_bytes < SMALL_POOL) return;
  cause *c = diagnosis_cause(x, CAUSE_OTHER_PROCESS, 0.65);
  cause_head(c,
             "%s asked for %s at its start, then for less and less: not even %s was free, so "
             "another process holds the device",
             m->kind == MESSAGE_XLA ? "JAX" : "TensorFlow", cause_size(m->falling_bytes),
             cause_size(m->least_bytes));
  cause_say(c, "%s takes %s of a device when it starts, before the program has any data",
            m->kind == MESSAGE_XLA ? "JAX" : "TensorFlow",
            m->kind == MESSAGE_XLA ? "three quarters" : "nearly all");
}

/* Detects a driver's pool of which a large part is neither live nor free: it keeps what was freed,
 * in pieces. */
static void detect_async(explanation *x) {
  const message *m = &x->evidence.message;
  const numbers *n = &x->evidence.n;
  if (!m->async || !known(n->device_bytes) || !known(n->live_bytes) || !known(n->free_bytes))
    return;
  uint64_t sum = n->live_bytes + n->free_bytes + context_bytes(n->device_bytes);
  if (n->live_bytes > n->device_bytes || sum >= n->device_bytes ||
      n->device_bytes - sum < n->device_bytes / 8)
    return;
  cause *c = diagnosis_cause(x, CAUSE_FRAGMENTATION, 0.5);
  cause_head(c,
             "%s of the device's %s is neither live nor free: the driver's pool (%s) keeps it in "
             "pieces, or another process holds it",
             cause_size(n->device_bytes - n->live_bytes - n->free_bytes),
             cause_size(n->device_bytes),
             m->kind == MESSAGE_TORCH ? "backend:cudaMallocAsync" : "cuda_malloc_async");
  cause_say(c, "%s live, %s free; a process needs up to %s besides", cause_size(n->live_bytes),
            cause_size(n->free_bytes), cause_size(context_bytes(n->device_bytes)));
}

/* Detects a device of which nothing is free for even a tiny request, while the text does not say
 * that this program holds it. */
static void detect_full(explanation *x) {
  const numbers *n = &x->evidence.n;
  const message *m = &x->evidence.message;
  if (!known(n->asked_bytes) || !known(n->free_bytes) || known(n->live_bytes)) return;
  if (n->asked_bytes >= DIAGNOSIS_TINY || n->free_bytes > n->asked_bytes) return;
  cause *c = diagnosis_cause(x, CAUSE_OTHER_PROCESS, 0.55);
  cause_head(c,
             "%s was refused and %s is free: probably another process holds the device, also one "
             "that an earlier run left",
             cause_size(n->asked_bytes), cause_size(n->free_bytes));
  if ((m->details & MESSAGE_MISCOUNT) != 0)
    cause_say(c, "the text's count of what is in use is more than any device has: it fell below "
                 "zero, as after a fork, and says nothing");
}

/* Detects a large part of the device that nothing in the text accounts for. */
static void detect_unaccounted(explanation *x) {
  const numbers *n = &x->evidence.n;
  const message *m = &x->evidence.message;
  if (!known(n->device_bytes)) return;
  if ((m->kind == MESSAGE_TENSORFLOW || m->kind == MESSAGE_XLA) && !m->async &&
      known(n->free_bytes) && n->free_bytes < n->device_bytes / 2) {
    cause *c = diagnosis_cause(x, CAUSE_OTHER_PROCESS, 0.8);
    cause_head(c, "Only %s of the device's %s was free when the program started",
               cause_size(n->free_bytes), cause_size(n->device_bytes));
    return;
  }
  if (!known(n->unknown_bytes)) return;
  uint64_t own = context_bytes(n->device_bytes);
  if (n->unknown_bytes < own || n->unknown_bytes - own < n->device_bytes / 8) return;
  double part = (double)n->unknown_bytes / (double)n->device_bytes;
  cause *c = diagnosis_cause(x, CAUSE_OTHER_PROCESS,
                             part >= 1.0 / 3 ? 0.85
                             : part >= 0.2   ? 0.65
                                             : 0.5);
  if ((m->context.traits & TRAIT_JETSON) != 0) {
    cause_head(c,
               "%s of the memory, %s in all, is held by the system and other programs: a Jetson's "
               "GPU uses the same memory as its CPU",
               cause_size(n->unknown_bytes), cause_size(n->device_bytes));
    return;
  }
  cause_head(
      c,
      "%s of the device's %s does not belong to this program: probably another process holds "
      "it, or another library in this process",
      cause_size(n->unknown_bytes), cause_size(n->device_bytes));
  cause_say(c, "a process needs up to %s in addition to its tensors; this is more",
            cause_size(own));
}

/* Detects a server that checks the device before it starts. */
static void detect_start(explanation *x) {
  const numbers *n = &x->evidence.n;
  if ((x->evidence.message.details & MESSAGE_START) == 0) return;
  bool taken = known(n->device_bytes) && known(n->free_bytes) &&
               n->device_bytes - n->free_bytes > n->device_bytes / 8;
  cause *c = diagnosis_cause(x, taken ? CAUSE_OTHER_PROCESS : CAUSE_LIMIT, taken ? 0.75 : 0.5);
  cause_head(c, "Only %s of the device's %s was free at start, and the server needs %s",
             known(n->free_bytes) ? cause_size(n->free_bytes) : "a part",
             known(n->device_bytes) ? cause_size(n->device_bytes) : "memory",
             known(n->asked_bytes) ? cause_size(n->asked_bytes) : "more");
  if (known(n->asked_bytes) && known(n->free_bytes) && n->asked_bytes > n->free_bytes)
    cause_say(c, "%s was missing", cause_size(n->asked_bytes - n->free_bytes));
  if (known(n->device_bytes) && known(n->free_bytes) && n->device_bytes > n->free_bytes)
    cause_say(c,
              "others held %s of it before the server started (nvidia-smi lists them; the driver "
              "keeps a little itself)",
              cause_size(n->device_bytes - n->free_bytes));
}

/* Detects a server that found more free memory after it measured its own use than before. */
static void detect_measured(explanation *x) {
  const message *m = &x->evidence.message;
  if (!known(m->before_bytes) || !known(m->free_bytes)) return;
  bool more = m->free_bytes > m->before_bytes;
  cause *c = diagnosis_cause(x, more ? CAUSE_OTHER_PROCESS : CAUSE_UNKNOWN, more ? 0.8 : 0.5);
  if (more)
    cause_head(c,
               "Another process freed %s of the device while the server measured what it needs: "
               "%s was free before, %s after; the device is not full",
               cause_size(m->free_bytes - m->before_bytes), cause_size(m->before_bytes),
               cause_size(m->free_bytes));
  else
    cause_head(c,
               "%s of the device was free before and %s after the server measured what it needs: "
               "either another process freed as much as it took, or it measured another device; "
               "the device is not full",
               cause_size(m->before_bytes), cause_size(m->free_bytes));
}

/* Detects a buffer or pool of fixed size, inside what the program has, that is full: the device is
 * not. */
static void detect_own_buffer(explanation *x) {
  const message *m = &x->evidence.message;
  bool server = m->kind == MESSAGE_SGLANG || m->kind == MESSAGE_VLLM || m->kind == MESSAGE_CUDA;
  if (server && (m->details & MESSAGE_WORKSPACE) != 0) {
    cause *c = diagnosis_cause(x, CAUSE_LIMIT, 0.6);
    cause_head(
        c,
        "FlashInfer's own workspace buffer is too small for this step%s%s: its size is fixed, "
        "however much of the device is free",
        known(m->asked_bytes) ? ", which needs " : "",
        known(m->asked_bytes) ? cause_size(m->asked_bytes) : "");
    cause_say(c, "what it needs grows with the tokens and requests of one step");
  }
  if (m->kind != MESSAGE_SGLANG || (m->details & MESSAGE_POOL) == 0) return;
  cause *c = diagnosis_cause(x, CAUSE_LIMIT, 0.5);
  if (m->wanted_tokens != MESSAGE_UNKNOWN && m->cache_tokens != MESSAGE_UNKNOWN)
    cause_head(
        c,
        "SGLang's KV cache is full: a step needs room for %llu tokens and %llu are free; it is "
        "this pool that ran out, not the device",
        (unsigned long long)m->wanted_tokens, (unsigned long long)m->cache_tokens);
  else
    cause_head(c, "SGLang's KV cache has no room for the tokens of one more step: it is this pool "
                  "that ran out, not the device");
  cause_say(c, "the requests that run hold the rest; some versions also count tokens wrongly");
}

/* Detects an integrated GPU of AMD. */
static void detect_integrated(explanation *x) {
  const numbers *n = &x->evidence.n;
  if (!diagnosis_carved(x)) return;
  cause *c = diagnosis_cause(x, CAUSE_WEIGHTS_TOO_BIG, 0.7);
  cause_head(c,
             "This device has only %s: it is an integrated GPU, whose memory is a part of the RAM "
             "that the BIOS sets aside, and models do not fit in it",
             cause_size(n->device_bytes));
  cause_say(c, "a graphics card in the same machine is another device: rocminfo lists both");
}

/* Detects a request that Intel's driver gives only if its limit of one block is relaxed. Returns
 * whether it is one. */
static bool detect_block(explanation *x) {
  const numbers *n = &x->evidence.n;
  const message *m = &x->evidence.message;
  if (!has(x, CONTEXT_BIT(INTEL)) || m->kind != MESSAGE_TORCH || !known(n->asked_bytes))
    return false;
  if (n->asked_bytes < BLOCK_MOST || !known(n->free_bytes) || n->free_bytes < n->asked_bytes)
    return false;
  /* New devices and drivers have no such limit; of all that is free the driver keeps a part. */
  bool all = n->free_bytes - n->asked_bytes < n->free_bytes / 16;
  cause *c = diagnosis_cause(x, CAUSE_LIMIT, all ? 0.5 : 0.65);
  cause_head(c,
             "%s was requested at once and %s is free: probably Intel's driver gives less than 4 "
             "GiB at once, unless its limit is relaxed%s",
             cause_size(n->asked_bytes), cause_size(n->free_bytes),
             all ? "; or it keeps a part of what is free" : "");
  return true;
}

/* Detects one request that is as large as the whole device, or several times what is in use. */
static void detect_spike(explanation *x) {
  const numbers *n = &x->evidence.n;
  const message *m = &x->evidence.message;
  uint64_t capacity = known(n->limit_bytes) ? n->limit_bytes : n->device_bytes;
  if (!known(n->asked_bytes) || (m->details & (MESSAGE_START | MESSAGE_WEIGHTS)) != 0) return;
  /* TensorFlow's first request is its pool, and a pool's limit is not the size of a device. */
  if (m->kind == MESSAGE_TENSORFLOW && !known(m->shape_bytes) && known(n->free_bytes)) return;
  bool pool =
      m->kind == MESSAGE_CUPY || (m->kind == MESSAGE_RMM && (m->details & MESSAGE_POOL) != 0);
  if (pool && known(n->limit_bytes) && n->asked_bytes <= n->limit_bytes) return;
  /* A weight cannot be made in parts, as a result can. */
  if (has(x, CONTEXT_BIT(LOADING)) && !has(x, CONTEXT_BIT(FORWARD))) return;
  bool beside = known(n->live_bytes);
  bool dwarfs = beside && n->live_bytes > 0 && n->asked_bytes / 4 >= n->live_bytes;
  if (known(capacity) ? n->asked_bytes < capacity / 2 || (beside && n->live_bytes > n->asked_bytes)
                      : !dwarfs || n->asked_bytes < UINT64_C(1) << 30)
    return;
  cause *c =
      diagnosis_cause(x, CAUSE_ONE_SPIKE, known(capacity) && n->asked_bytes > capacity ? 0.8 : 0.6);
  if (known(capacity) && n->asked_bytes > capacity && (m->details & MESSAGE_ONE_BUFFER) != 0)
    cause_head(c,
               "One request of %s is larger than the largest buffer that the system gives (%s), "
               "whatever is free: the array must be made in parts",
               cause_size(n->asked_bytes), cause_size(capacity));
  else if (known(capacity) && n->asked_bytes > capacity)
    cause_head(c,
               "One request of %s is larger than the whole %s (%s): a smaller batch helps only "
               "if it shrinks that one %s",
               cause_size(n->asked_bytes), (m->details & MESSAGE_POOL) != 0 ? "pool" : "device",
               cause_size(capacity), m->kind == MESSAGE_RMM ? "result" : "tensor");
  else if (known(capacity))
    cause_head(c, "One single request of %s, where the total is %s", cause_size(n->asked_bytes),
               cause_size(capacity));
  else
    cause_head(c, "One single request of %s, where %s is in use", cause_size(n->asked_bytes),
               cause_size(n->live_bytes));
  if (m->what[0] != '\0' && m->rank > 0) cause_say(c, "for a tensor of shape %s", m->what);
  if (has(x, CONTEXT_BIT(ATTENTION)))
    cause_say(c, "attention over a long sequence or a large image grows with its square");
}

/* Detects CUDA graphs, whose private pools keep what the captured work used. */
static void detect_graphs(explanation *x) {
  const message *m = &x->evidence.message;
  if (!known(m->graph_bytes) || !known(m->live_bytes) || m->graph_bytes < m->live_bytes / 4) return;
  bool most = m->graph_bytes >= m->live_bytes / 2;
  cause *c = diagnosis_cause(x, CAUSE_CACHE_HELD, most ? 0.65 : 0.5);
  cause_head(c,
             "%s of the %s that PyTorch holds is in private pools: captured CUDA graphs keep all "
             "that their work used",
             cause_size(m->graph_bytes), cause_size(m->live_bytes));
  if (does(x, TRAIT_GRAPHS)) cause_say(c, "it failed while a graph was captured");
}

/* Detects a line of the program that keeps the graph of every pass. A loop that holds most of the
 * device is full of them; a single request that large is something else. */
static void detect_kept(explanation *x) {
  const message *m = &x->evidence.message;
  const numbers *n = &x->evidence.n;
  const context *c = &m->context;
  bool torch = m->kind == MESSAGE_TORCH || (m->kind == MESSAGE_CUDA && has(x, CONTEXT_BIT(TORCH)));
  if (c->kept == KEPT_NONE || !torch || diagnosis_had_room(n)) return;
  if (known(n->device_bytes) && ((known(n->live_bytes) && n->live_bytes < n->device_bytes / 2) ||
                                 (known(n->asked_bytes) && n->asked_bytes > n->device_bytes / 4)))
    return;
  bool other = has(x, CONTEXT_BIT(OPTIMIZER) | CONTEXT_BIT(LOADING));
  /* An evaluation needs no graph at all. */
  cause_id id = has(x, CONTEXT_BIT(EVALUATING)) ? CAUSE_NO_GRAD_MISSING : CAUSE_GRAPH_KEPT;
  cause *found = diagnosis_cause(x, id, other ? 0.4 : 0.65);
  cause_head(found, "This line keeps %s with the graph that made it, so every pass adds %s: %s",
             c->kept == KEPT_RESULT ? "the result of every pass" : "the loss of every pass",
             c->kept == KEPT_RESULT ? "all that its forward pass saved" : "memory", c->kept_code);
  if (c->kept_line[0] != '\0' && strcmp(c->kept_line, c->line) != 0)
    cause_say(found, "the line is at %s", c->kept_line);
  cause_say(found, "%s",
            c->kept == KEPT_RESULT
                ? "the text shows no torch.no_grad(): the model builds a graph for a backward pass"
                : "a loss is a tensor: its number alone is loss.item()");
}

/* Uses what XLA reports about a compiled program: its largest part. */
static void detect_program(explanation *x) {
  const message *m = &x->evidence.message;
  if (!known(m->temporary_bytes)) return;
  uint64_t given_bytes = known(m->given_bytes) ? m->given_bytes : 0;
  if (m->temporary_bytes + given_bytes < UINT64_C(1) << 30) {
    cause *c = diagnosis_cause(x, CAUSE_UNKNOWN, 0.35);
    cause_head(c,
               "The program that failed needs only %s: the rest of the device is probably held by "
               "other arrays, or by another process",
               cause_size(m->temporary_bytes + given_bytes));
    return;
  }
  bool one = known(m->largest_bytes) && m->largest_bytes >= m->temporary_bytes / 2;
  /* More comes out than goes in: a result, not weights. */
  bool result = !one && known(m->out_bytes) && m->out_bytes > given_bytes / 2 &&
                m->out_bytes >= m->temporary_bytes / 2;
  bool given = given_bytes > m->temporary_bytes && !result;
  cause *c = diagnosis_cause(x,
                             given           ? CAUSE_WEIGHTS_TOO_BIG
                             : one || result ? CAUSE_ONE_SPIKE
                                             : CAUSE_BATCH_TOO_BIG,
                             given || !one ? 0.45 : 0.6);
  if (given)
    cause_head(c,
               "The inputs and outputs of the compiled program take %s: weights, state, the batch",
               cause_size(given_bytes));
  else
    cause_head(c, "The compiled program needs %s for temporaries%s%s",
               cause_size(m->temporary_bytes), one ? ", most of it one buffer of " : "",
               one ? cause_size(m->largest_bytes) : "");
  if (result && !given)
    cause_head(c, "The compiled program returns %s at once and needs %s for temporaries%s%s",
               cause_size(m->out_bytes), cause_size(m->temporary_bytes),
               known(m->whole_bytes) ? ": in all " : "",
               known(m->whole_bytes) ? cause_size(m->whole_bytes) : "");
  if (given_bytes > 0)
    cause_say(c, "%s of inputs and outputs, %s of temporaries", cause_size(given_bytes),
              cause_size(m->temporary_bytes));
  if (known(m->whole_bytes)) cause_say(c, "%s in all", cause_size(m->whole_bytes));
  if (known(m->largest_bytes))
    cause_say(c, "its largest buffer takes %s%s%s", cause_size(m->largest_bytes),
              m->what[0] != '\0' ? ": " : "", m->what);
}

/* Parses "OOM when allocating tensor with shape[512,256,56,56]": the first of several dimensions is
 * the batch. */
static void detect_shape(explanation *x) {
  const message *m = &x->evidence.message;
  if (m->rank < 2 || m->first_dim < 2 || (m->details & MESSAGE_WEIGHTS) != 0) return;
  /* The text names the batch, and this is another dimension. */
  if (m->context.batch > 1 && m->first_dim % m->context.batch != 0) return;
  cause *c = diagnosis_cause(x, CAUSE_BATCH_TOO_BIG, m->rank > 2 ? 0.45 : 0.4);
  cause_head(c,
             "A tensor of shape %s did not fit; its first dimension, %u, is most often the batch",
             m->what, m->first_dim);
  if (known(m->shape_bytes)) cause_say(c, "it takes %s", cause_size(m->shape_bytes));
}

/* Detects a device that this program has hardly used, in a text that does not say what is free. */
static bool detect_unused(explanation *x) {
  const numbers *n = &x->evidence.n;
  const message *m = &x->evidence.message;
  if (m->kind != MESSAGE_TORCH || (m->details & MESSAGE_ONE_BUFFER) != 0) return false;
  if (!diagnosis_unused(n)) return false;
  cause *c = diagnosis_cause(x, CAUSE_UNKNOWN, 0.5);
  cause_head(c,
             "This program holds %s of the device's %s, and %s more would fit: another process "
             "holds the rest, or the driver refused so large a request",
             cause_size(n->reserved_bytes), cause_size(n->device_bytes),
             cause_size(n->asked_bytes));
  if (has(x, CONTEXT_BIT(INTEL)))
    cause_say(c, "Intel's driver gives at most 4 GiB at once, under WSL often less");
  return true;
}

static void detect_room(explanation *x) {
  const numbers *n = &x->evidence.n;
  cause *c = diagnosis_cause(x, CAUSE_UNKNOWN, 0.5);
  cause_head(c,
             "%s was free on the device, more than the %s requested: the device was not full, so "
             "the cause is something else",
             cause_size(n->free_bytes), cause_size(n->asked_bytes));
  cause_say(c,
            "the driver refused: another process may have held the memory at that moment, or the "
            "system could not back it (on Windows: RAM and page file; in containers: a limit)");
}

void diagnosis_device(explanation *x) {
  const numbers *n = &x->evidence.n;
  if (diagnosis_absurd(n)) {
    cause *c = diagnosis_cause(x, CAUSE_UNKNOWN, 0.5);
    cause_head(c,
               "The program asked for more memory than any machine has: the size itself is wrong "
               "(an overflow, a corrupt shape or a race), not the device");
    return;
  }
  /* With free memory on the device a pool would have grown: its holes are not the reason. */
  detect_integrated(x);
  if (x->findings.count == 0 && !diagnosis_had_room(n)) detect_holes(x);
  detect_limit(x);
  detect_processes(x);
  detect_falling(x);
  detect_async(x);
  detect_full(x);
  detect_start(x);
  detect_measured(x);
  detect_own_buffer(x);
  if (!detect_block(x)) detect_spike(x);
  detect_graphs(x);
  detect_kept(x);
  findings_rank(&x->findings);
  bool open = x->findings.count == 0 || x->findings.list[0].confidence < 0.5;
  if (open && diagnosis_had_room(n) && x->evidence.message.kind != MESSAGE_VLLM &&
      !known(n->limit_bytes)) {
    detect_room(x);
    return;
  }
  if (open && detect_unused(x)) return;
  detect_unaccounted(x);
  findings_rank(&x->findings);
  open = x->findings.count == 0 || x->findings.list[0].confidence < 0.5;
  if (open) detect_program(x);
  findings_rank(&x->findings);
  if (x->findings.count == 0 || x->findings.list[0].confidence < DIAGNOSIS_BELIEVED)
    detect_shape(x);
  findings_rank(&x->findings);
  const cause *first = x->findings.count > 0 ? &x->findings.list[0] : NULL;
  if (first == NULL || (first->confidence < 0.45 && first->id != CAUSE_UNKNOWN)) diagnosis_guess(x);
}
