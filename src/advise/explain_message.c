/* An error text alone: what its numbers say, and no more.
 *
 * A text has no lines of code and no history, so only causes that show in the numbers can be named:
 * holes, a limit, other processes, memory outside the framework, one request beyond everything. The
 * rest is said to be unknown, with what to record. */
#include "advise/explain.h"

#include <stdio.h>

static bool known(uint64_t bytes) {
  return bytes != MESSAGE_UNKNOWN;
}

static cause *add_cause(explanation *x, cause_id id, double confidence) {
  cause *c = &x->findings.list[x->findings.count++];
  *c =
      (cause){.id = id, .confidence = confidence, .headline = BUFFER_INIT, .evidence = BUFFER_INIT};
  return c;
}

static void add_fix(explanation *x, const char *change, const char *cost, uint64_t bytes) {
  if (x->fixes.count == FIXES_MAX) return;
  fix *f = &x->fixes.list[x->fixes.count++];
  *f = (fix){.saves_bytes = bytes};
  snprintf(f->change, sizeof f->change, "%s", change);
  snprintf(f->cost, sizeof f->cost, "%s", cost);
}

static void fill_numbers(explanation *x) {
  const message *m = &x->evidence.told;
  numbers *n = &x->evidence.n;
  bool host = m->kind == MESSAGE_HOST;
  uint64_t reserved = m->reserved_bytes;
  if (!known(reserved) && known(m->live_bytes) && known(m->cached_bytes))
    reserved = m->live_bytes + m->cached_bytes;
  *n = (numbers){.asked_bytes = m->asked_bytes,
                 .live_bytes = m->live_bytes,
                 .cached_bytes = m->cached_bytes,
                 .hole_bytes = m->chunks.found ? m->chunks.free_bytes : MESSAGE_UNKNOWN,
                 .largest_hole_bytes = m->chunks.found && !m->chunks.from_bins
                                           ? m->chunks.largest_free_bytes
                                           : MESSAGE_UNKNOWN,
                 .other_process_bytes = MESSAGE_UNKNOWN,
                 .outside_framework_bytes = MESSAGE_UNKNOWN,
                 .limit_bytes = m->limit_bytes,
                 .card_bytes = host ? MESSAGE_UNKNOWN : m->card_bytes,
                 .free_bytes = m->free_bytes,
                 .unknown_bytes = MESSAGE_UNKNOWN,
                 .reserved_bytes = known(reserved) ? reserved : 0};
  if (host && known(m->process_bytes)) n->live_bytes = m->process_bytes;
  uint64_t listed = 0;
  for (uint32_t i = 0; i < m->process_count; i++) listed += m->processes[i].bytes;
  if (known(m->process_bytes) && known(reserved) && !host)
    n->outside_framework_bytes = m->process_bytes > reserved ? m->process_bytes - reserved : 0;
  if (message_card_is_limit(m)) {
    n->limit_bytes = n->card_bytes;
    n->card_bytes = n->free_bytes = MESSAGE_UNKNOWN;
    return;
  }
  if (m->process_count > 0 || (known(m->process_bytes) && !host)) n->other_process_bytes = listed;
  if (!known(n->card_bytes)) return;
  uint64_t sum = (known(reserved) ? reserved : 0) + (known(n->free_bytes) ? n->free_bytes : 0) +
                 (known(n->outside_framework_bytes) ? n->outside_framework_bytes : 0) +
                 (known(n->other_process_bytes) ? n->other_process_bytes : 0);
  n->unknown_bytes = n->card_bytes > sum ? n->card_bytes - sum : 0;
}

/* ---- the card ---- */

static void tell_holes(explanation *x) {
  const numbers *n = &x->evidence.n;
  const message *m = &x->evidence.told;
  if (!known(n->asked_bytes) || !known(n->cached_bytes)) return;
  bool pieces = known(n->largest_hole_bytes);
  bool enough = n->cached_bytes >= n->asked_bytes;
  if (!enough || (pieces && n->largest_hole_bytes >= n->asked_bytes)) return;
  /* Every allocator has some rest: only a good part of the whole makes it the cause. */
  double part = n->reserved_bytes > 0 ? (double)n->cached_bytes / (double)n->reserved_bytes : 1;
  double sure = part >= 0.15 ? (pieces ? 0.9 : 0.75) : part >= 0.05 ? 0.4 : 0.15;
  cause *c = add_cause(x, CAUSE_FRAGMENTATION, sure);
  cause_say(c, "%.0f%% of what the allocator holds is not in use", part * 100);
  if (pieces)
    cause_head(c,
               "The bytes are there, not in one piece: %s free inside the allocator, the largest "
               "piece %s, %s asked for",
               cause_size(n->cached_bytes), cause_size(n->largest_hole_bytes),
               cause_size(n->asked_bytes));
  else
    cause_head(c,
               "%s are reserved but not in use, more than the %s asked for: they must lie in "
               "pieces",
               cause_size(n->cached_bytes), cause_size(n->asked_bytes));
  if (m->chunks.found)
    cause_say(c, "%llu chunks in use and %llu free in the allocator's dump",
              (unsigned long long)m->chunks.used_count, (unsigned long long)m->chunks.free_count);
  if (sure < 0.3) return;
  if (m->kind == MESSAGE_TORCH)
    add_fix(x,
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the program starts, if "
            "it is not set",
            "page calls while it grows", n->cached_bytes);
  else if (m->kind == MESSAGE_TENSORFLOW)
    add_fix(x, "set TF_GPU_ALLOCATOR=cuda_malloc_async", "another allocator; a little slower",
            n->cached_bytes);
  else
    add_fix(x, "set XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async", "another allocator; a little slower",
            n->cached_bytes);
}

static void tell_others(explanation *x) {
  const numbers *n = &x->evidence.n;
  const message *m = &x->evidence.told;
  bool limited = known(n->limit_bytes) && known(n->free_bytes) && known(n->asked_bytes) &&
                 n->free_bytes >= n->asked_bytes;
  if (limited) {
    /* With room for several such requests, the limit is all that the text gives as a reason. */
    bool roomy = n->free_bytes / 4 >= n->asked_bytes;
    cause *c = add_cause(x, CAUSE_LIMIT, roomy ? 0.5 : 0.25);
    cause_head(c, "A limit of %s is set while the card has %s free", cause_size(n->limit_bytes),
               cause_size(n->free_bytes));
    cause_say(c, "whether the program fits without it is not in the text");
    if (roomy)
      add_fix(x, "raise it: torch.cuda.set_per_process_memory_fraction(…), if it is yours to raise",
              "less is left for others on the card", MESSAGE_UNKNOWN);
    return;
  }
  if (m->kind == MESSAGE_CUPY && known(n->limit_bytes)) {
    cause *c = add_cause(x, CAUSE_LIMIT, 0.35);
    cause_head(c, "CuPy's pool may hold %s and holds %s", cause_size(n->limit_bytes),
               known(n->live_bytes) ? cause_size(n->live_bytes) : "an unknown part of it");
    add_fix(x, "raise the pool's limit (set_limit, CUPY_GPU_MEMORY_LIMIT), if the card has more",
            "less is left for others on the card", MESSAGE_UNKNOWN);
  }
  if (!known(n->card_bytes)) return;
  if (known(n->other_process_bytes) && n->other_process_bytes > n->card_bytes / 10) {
    cause *c =
        add_cause(x, CAUSE_OTHER_PROCESS, n->other_process_bytes > n->card_bytes / 3 ? 0.93 : 0.7);
    if (m->process_count > 1)
      cause_head(c, "%u other processes hold %s of the card's %s", m->process_count,
                 cause_size(n->other_process_bytes), cause_size(n->card_bytes));
    else
      cause_head(c, "Another process holds %s of the card's %s", cause_size(n->other_process_bytes),
                 cause_size(n->card_bytes));
    for (uint32_t i = 0; i < m->process_count; i++)
      cause_say(c, "process %u holds %s", m->processes[i].pid, cause_size(m->processes[i].bytes));
    if (m->process_count > 1)
      add_fix(x, "end them, or choose another card: CUDA_VISIBLE_DEVICES=…", "they end, or wait",
              n->other_process_bytes);
    else
      add_fix(x, "end it, or choose another card: CUDA_VISIBLE_DEVICES=…", "it ends, or waits",
              n->other_process_bytes);
  }
  const uint64_t context = UINT64_C(1) << 30;
  if (known(n->outside_framework_bytes) && n->outside_framework_bytes > context &&
      n->outside_framework_bytes - context > n->card_bytes / 10) {
    cause *c = add_cause(x, CAUSE_OUTSIDE_FRAMEWORK,
                         n->outside_framework_bytes > n->card_bytes / 3 ? 0.93 : 0.7);
    cause_head(c, "%s of this process were taken outside PyTorch",
               cause_size(n->outside_framework_bytes));
    add_fix(x,
            "bound what else allocates in this process (JAX: "
            "XLA_PYTHON_CLIENT_PREALLOCATE=false; CuPy: its pool's set_limit)",
            "that library has less for itself", n->outside_framework_bytes);
  }
}

/* One request that is as much as all there is, or several times what is in use. */
static void tell_spike(explanation *x) {
  const numbers *n = &x->evidence.n;
  uint64_t capacity = known(n->limit_bytes) ? n->limit_bytes : n->card_bytes;
  if (!known(n->asked_bytes)) return;
  bool beside = known(n->live_bytes);
  bool dwarfs = beside && n->live_bytes > 0 && n->asked_bytes / 4 >= n->live_bytes;
  if (known(capacity) ? n->asked_bytes < capacity / 2 || (beside && n->live_bytes > n->asked_bytes)
                      : !dwarfs || n->asked_bytes < UINT64_C(1) << 30)
    return;
  cause *c =
      add_cause(x, CAUSE_ONE_SPIKE, known(capacity) && n->asked_bytes > capacity ? 0.8 : 0.6);
  if (known(capacity))
    cause_head(c, "One request of %s, where there is %s in all", cause_size(n->asked_bytes),
               cause_size(capacity));
  else
    cause_head(c, "One request of %s, where %s is in use", cause_size(n->asked_bytes),
               cause_size(n->live_bytes));
  if (x->evidence.told.what[0] != '\0')
    cause_say(c, "for a tensor of shape %s", x->evidence.told.what);
  add_fix(x, "work in parts, so that it is never made at once", "a loop over the parts",
          n->asked_bytes);
}

/* What XLA's text tells of a compiled program: the part of it that is most. */
static void tell_program(explanation *x) {
  const message *m = &x->evidence.told;
  if (!known(m->temporary_bytes)) return;
  bool one = known(m->largest_bytes) && m->largest_bytes >= m->temporary_bytes / 2;
  bool given = known(m->given_bytes) && m->given_bytes > m->temporary_bytes;
  cause *c = add_cause(x,
                       given ? CAUSE_WEIGHTS_TOO_BIG
                       : one ? CAUSE_ONE_SPIKE
                             : CAUSE_BATCH_TOO_BIG,
                       given || !one ? 0.45 : 0.6);
  if (given)
    cause_head(
        c, "What goes into the compiled program and comes out takes %s: weights, state, the batch",
        cause_size(m->given_bytes));
  else
    cause_head(c, "The compiled program needs %s for what it computes on the way%s%s",
               cause_size(m->temporary_bytes), one ? ", most of it one buffer of " : "",
               one ? cause_size(m->largest_bytes) : "");
  if (known(m->given_bytes))
    cause_say(c, "%s go in and come out, %s are made on the way", cause_size(m->given_bytes),
              cause_size(m->temporary_bytes));
  if (known(m->largest_bytes))
    cause_say(c, "its largest buffer has %s%s%s", cause_size(m->largest_bytes),
              m->what[0] != '\0' ? ": " : "", m->what);
  if (given)
    add_fix(x, "keep weights and state in 16 bits, or donate them (jax.jit(…, donate_argnums=…))",
            "16-bit arithmetic; what is donated cannot be used again", m->given_bytes / 2);
  else
    add_fix(x,
            "a smaller batch, jax.checkpoint around the blocks, or jax.lax.map over parts of what "
            "that line makes",
            "more, smaller steps; or a part is computed twice", m->temporary_bytes / 2);
}

/* "OOM when allocating tensor with shape[512,256,56,56]": the first of several is the batch. */
static void tell_shape(explanation *x) {
  const message *m = &x->evidence.told;
  if (m->rank < 3 || m->first_dim < 2) return;
  cause *c = add_cause(x, CAUSE_BATCH_TOO_BIG, 0.4);
  cause_head(c,
             "A tensor of shape %s did not fit; its first dimension, %u, is most often the batch",
             m->what, m->first_dim);
  if (known(m->shape_bytes)) cause_say(c, "it takes %s", cause_size(m->shape_bytes));
  add_fix(x, "a smaller batch_size", "more, smaller steps",
          known(m->shape_bytes) ? m->shape_bytes / 2 : MESSAGE_UNKNOWN);
}

/* ---- the host ---- */

static const char BATCHES[] =
    "read data in batches (stowage.batches), in the smallest type that holds it "
    "(stowage inspect FILE)";

/* The process has a limit of its own, and what was asked for is no more than that. */
static bool tell_own_limit(explanation *x) {
  const message *m = &x->evidence.told;
  if (!known(m->limit_bytes) || (known(m->asked_bytes) && m->asked_bytes / 2 > m->limit_bytes))
    return false;
  cause *c = add_cause(x, CAUSE_HOST_LIMIT, 0.8);
  cause_head(c, "The process may hold %s by a limit of its own, and asked for %s%s",
             cause_size(m->limit_bytes), known(m->asked_bytes) ? cause_size(m->asked_bytes) : "",
             known(m->asked_bytes) ? " more" : "more");
  if (m->what[0] != '\0') cause_say(c, "for an array with %s", m->what);
  cause_say(c, "it is set by ulimit -v or resource.setrlimit, not by the machine's memory");
  add_fix(x, "raise it: ulimit -v unlimited, or the program's resource.setrlimit(RLIMIT_AS, …)",
          "less is left for others on the host", 0);
  add_fix(x, BATCHES, "a loop over the parts", MESSAGE_UNKNOWN);
  return true;
}

static void tell_worker(explanation *x) {
  cause *c = add_cause(x, CAUSE_HOST_WORKERS, 0.7);
  cause_head(c, "A DataLoader worker ran out of host or shared memory");
  cause_say(c, "each worker holds its own copy of what it touches, and passes batches through "
               "/dev/shm");
  add_fix(x,
          "fewer workers (num_workers), a dataset of arrays instead of Python lists, a larger "
          "/dev/shm (docker --shm-size)",
          "slower loading", MESSAGE_UNKNOWN);
}

/* The request alone is larger than all the memory there is. Returns false if it is not, or unknown.
 */
static bool tell_larger_than_host(explanation *x) {
  const message *m = &x->evidence.told;
  if (!known(m->asked_bytes) || !known(m->host_bytes) || m->asked_bytes <= m->host_bytes)
    return false;
  cause *c = add_cause(x, CAUSE_HOST_LIMIT, 0.95);
  cause_head(c, "One request for %s is larger than all the host memory there is, %s",
             cause_size(m->asked_bytes), cause_size(m->host_bytes));
  if (m->what[0] != '\0') cause_say(c, "an array with %s", m->what);
  cause_say(c, "freeing other memory cannot make room for it");
  add_fix(x,
          "make it in parts (stowage.batches), in a file (numpy.memmap), in a smaller type, or "
          "sparse if most values are zero (scipy.sparse)",
          "a loop over the parts", m->asked_bytes);
  return true;
}

static void tell_one_array(explanation *x) {
  const message *m = &x->evidence.told;
  cause *c = add_cause(x, CAUSE_HOST_COPIES, 0.35);
  cause_head(c, "The host could not give %s for one array",
             known(m->asked_bytes) ? cause_size(m->asked_bytes) : "the memory asked for");
  if (m->what[0] != '\0') cause_say(c, "an array with %s", m->what);
  cause_say(c, "whether it is a copy, a whole file, or simply too large is not in the text");
  add_fix(x,
          "read or make it in batches (stowage.batches); use a smaller type "
          "(stowage inspect FILE)",
          "a loop over the parts", known(m->asked_bytes) ? m->asked_bytes : MESSAGE_UNKNOWN);
}

static void tell_killed(cause *c, const message *m) {
  char held[64] = "", who[112] = "the program";
  if (known(m->process_bytes))
    snprintf(held, sizeof held, "; it held %s", cause_size(m->process_bytes));
  if (m->what[0] != '\0') snprintf(who, sizeof who, "%s", m->what);
  cause_head(c, "The kernel ended %s for using too much host memory%s%s", who,
             m->grouped ? ": more than its container or control group may hold" : "", held);
}

static void tell_host(explanation *x) {
  const message *m = &x->evidence.told;
  if (m->host == HOST_WORKER) {
    tell_worker(x);
    return;
  }
  if (tell_own_limit(x) || tell_larger_than_host(x)) return;
  if (m->host == HOST_NUMPY || m->host == HOST_TORCH) {
    tell_one_array(x);
    return;
  }
  cause *c = add_cause(x, CAUSE_HOST_LIMIT, m->host == HOST_DIED ? 0.3 : m->grouped ? 0.6 : 0.4);
  if (m->host == HOST_KILLED)
    tell_killed(c, m);
  else
    cause_head(c, m->host == HOST_DIED
                      ? "The notebook's kernel died: most often because host memory ran out"
                      : "The host ran out of memory");
  cause_say(c, "what filled it (a file read whole, copies, a leak, Python objects) is not in the "
               "text");
  if (m->grouped)
    add_fix(x, "raise the container's limit (docker --memory, the job's --mem), if the host has it",
            "less is left for others on the host", MESSAGE_UNKNOWN);
  add_fix(x, BATCHES, "a loop over the parts", MESSAGE_UNKNOWN);
}

void explain_told(explanation *x) {
  const message *m = &x->evidence.told;
  fill_numbers(x);
  if (m->kind == MESSAGE_NONE) {
    buffer_text(&x->headline, "There is no out-of-memory error in this text that is known here");
    buffer_text(&x->notes,
                "known are PyTorch's, JAX's and XLA's, TensorFlow's, CuPy's, CUDA's own, "
                "and the host's (MemoryError, Killed)\n");
    return;
  }
  if (m->kind == MESSAGE_HOST) {
    tell_host(x);
  } else {
    tell_holes(x);
    tell_others(x);
    tell_spike(x);
    tell_program(x);
    findings_rank(&x->findings);
    if (x->findings.count == 0 || x->findings.list[0].confidence < 0.3) tell_shape(x);
    if (x->findings.count == 0 || x->findings.list[0].confidence < 0.3) {
      cause *c = add_cause(x, CAUSE_UNKNOWN, 0.3);
      if (known(m->asked_bytes) && known(m->live_bytes))
        cause_head(c,
                   "%s: %s were in use when %s more were asked for; a text alone does not say "
                   "what holds them",
                   message_kind_name(m->kind), cause_size(m->live_bytes),
                   cause_size(m->asked_bytes));
      else
        cause_head(c, "%s ran out of memory; a text alone does not say what holds it",
                   message_kind_name(m->kind));
      findings_rank(&x->findings);
    }
    if (m->kind == MESSAGE_TORCH && !m->no_history)
      buffer_text(
          &x->notes,
          "to know the cause, record: torch.cuda.memory._record_memory_history(), and after "
          "the failure torch.cuda.memory._dump_snapshot(\"oom.pickle\"); then stowage explain "
          "oom.pickle\n");
    else if (m->chunks.found)
      buffer_text(&x->notes, "an allocator's dump names sizes, not lines of code\n");
  }
  explanation_head(x);
}
