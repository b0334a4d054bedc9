/* Fix place: fixes for holes, caches, other processes and a limit. */
#include <inttypes.h>
#include <stdio.h>

#include "advise/fix_case.h"

static stow_status fix_with_expandable(fix_case *m) {
  if (m->e->expandable) return STOW_OK;
  fix *x =
      fix_add(m, "page calls while it grows; sharing by CUDA IPC needs more rights",
              "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (PYTORCH_ALLOC_CONF in new "
              "versions) before the program starts");
  return fix_replay(m, x, true);
}

/* Suggests max_split_size_mb: large blocks that small requests may not split stay whole and can be
 * returned to the driver. The largest value that replays changes the least. */
static stow_status fix_with_max_split(fix_case *m) {
  static const uint64_t tried[] = {512, 256, 128, 64, 32};
  policy_settings settings;
  steps_settings(&settings, m->e->source);
  uint64_t capacity = evidence_capacity(m->e);
  if (m->e->expandable || capacity == 0 || settings.max_split_bytes < POLICY_NO_LIMIT)
    return STOW_OK;
  for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
    whatif_result r;
    m->w.max_split_bytes = tried[i] << 20;
    STOW_TRY(whatif_run(&m->w, &r, false, capacity));
    if (!r.finishes) continue;
    fix *x = fix_add(m, "larger blocks are not split, and are requested from the driver again",
                     "set PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:%" PRIu64
                     " (PYTORCH_ALLOC_CONF in new versions) before the program starts",
                     tried[i]);
    STOW_TRY(fix_replay(m, x, false));
    uint64_t needed = m->e->n.reserved_bytes + evidence_requested_bytes(m->e);
    if (x != NULL) x->saves_bytes = needed > capacity ? needed - capacity : 0;
    break;
  }
  return STOW_OK;
}

stow_status fix_fragments(fix_case *m) {
  whatif_reset(&m->w);
  uint32_t before = m->out->count;
  STOW_TRY(fix_with_expandable(m));
  if (m->out->count > before && m->out->list[before].fits) return STOW_OK;
  STOW_TRY(fix_with_max_split(m));
  whatif_reset(&m->w);
  return STOW_OK;
}

stow_status fix_cache(fix_case *m) {
  fix_estimate(fix_add(m, "the next PyTorch allocations ask the driver again",
                       "call torch.cuda.empty_cache() before the part that failed runs"),
               m->e->n.cached_bytes, true);
  uint64_t asked = evidence_requested_bytes(m->e);
  fix_estimate(
      fix_add(m, "PyTorch drops its cache when it reaches the limit",
              "leave room for the others: torch.cuda.set_per_process_memory_fraction(…) at "
              "the start"),
      asked < m->e->n.cached_bytes ? asked : m->e->n.cached_bytes, true);
  return STOW_OK;
}

stow_status fix_others(fix_case *m) {
  const message *t = &m->e->message;
  char who[64] = "the other process";
  if (t->process_count > 0) snprintf(who, sizeof who, "process %u", t->processes[0].pid);
  fix_estimate(fix_add(m, "it ends, or waits",
                       "end %s, or choose another device: CUDA_VISIBLE_DEVICES=…", who),
               m->e->n.other_process_bytes, true);
  return STOW_OK;
}

stow_status fix_outside(fix_case *m) {
  fix_estimate(fix_add(m, "that library has less for itself",
                       "bound what else allocates in this process: "
                       "XLA_PYTHON_CLIENT_PREALLOCATE=false (JAX), "
                       "cupy.get_default_memory_pool().set_limit(…), "
                       "TF_FORCE_GPU_ALLOW_GROWTH=true; free direct cudaMalloc buffers"),
               m->e->n.outside_framework_bytes, true);
  return STOW_OK;
}

stow_status fix_limit(fix_case *m) {
  uint64_t wanted = m->base.peak_reserved_bytes;
  if (m->e->peak_reserved_bytes > wanted) wanted = m->e->peak_reserved_bytes;
  if (m->e->n.device_bytes == MESSAGE_UNKNOWN || wanted > m->e->n.device_bytes) return STOW_OK;
  /* A limit of stowage run, which also counts what other libraries and the driver hold. */
  if (recording_fact(m->e->source, "limit_bytes") != NULL) {
    uint64_t more = wanted > m->e->n.limit_bytes ? wanted - m->e->n.limit_bytes
                                                 : evidence_requested_bytes(m->e);
    fix_estimate(fix_add(m, "less is left for others on the device; or time on the bus",
                         "raise --vram-limit (in Python: stowage.limit) to %s or more, or continue "
                         "in host memory with --spill auto",
                         cause_size(m->e->n.limit_bytes + more)),
                 more, true);
    return STOW_OK;
  }
  fix_estimate(
      fix_add(m, "less is left for others on the device",
              "raise the limit to %s or more: torch.cuda.set_per_process_memory_fraction(%.4f)",
              cause_size(wanted), (double)wanted * 1.05 / (double)m->e->n.device_bytes + 0.00005),
      wanted > m->e->n.limit_bytes ? wanted - m->e->n.limit_bytes : 0, true);
  return STOW_OK;
}
