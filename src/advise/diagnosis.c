/* Diagnosis: numbers first, then causes, then fixes. An error that is not about memory is only
 * named. */
#include "advise/diagnosis.h"

#include <stdio.h>

#include "advise/diagnosis_parts.h"

static void fill_numbers(explanation *x) {
  const message *m = &x->evidence.message;
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
                 .outside_framework_bytes = m->outside_bytes,
                 .limit_bytes = m->limit_bytes,
                 .device_bytes = m->device_bytes,
                 .free_bytes = m->free_bytes,
                 .unknown_bytes = MESSAGE_UNKNOWN,
                 .reserved_bytes = known(reserved) ? reserved : 0};
  if (host && known(m->process_bytes)) n->live_bytes = m->process_bytes;
  uint64_t listed = 0;
  for (uint32_t i = 0; i < m->process_count; i++) listed += m->processes[i].bytes;
  if (known(m->process_bytes) && known(reserved) && !host)
    n->outside_framework_bytes = m->process_bytes > reserved ? m->process_bytes - reserved : 0;
  if (message_device_is_limit(m)) {
    n->limit_bytes = n->device_bytes;
    n->device_bytes = n->free_bytes = MESSAGE_UNKNOWN;
    return;
  }
  if (m->process_count > 0 || (known(m->process_bytes) && !host)) n->other_process_bytes = listed;
  if (!known(n->device_bytes) || !known(reserved)) return;
  uint64_t sum = reserved + (known(n->free_bytes) ? n->free_bytes : 0) +
                 (known(n->outside_framework_bytes) ? n->outside_framework_bytes : 0) +
                 (known(n->other_process_bytes) ? n->other_process_bytes : 0);
  if (known(n->free_bytes)) n->unknown_bytes = n->device_bytes > sum ? n->device_bytes - sum : 0;
}

static void refuse(explanation *x) {
  const message *m = &x->evidence.message;
  if (m->kind == MESSAGE_FOREIGN) {
    bool server = (m->details & MESSAGE_SERVER) != 0;
    bool warning = (m->details & MESSAGE_WARNING) != 0;
    buffer_printf(&x->headline, "%s: %s",
                  warning  ? "This is a warning, not a failure"
                  : server ? "This is the memory of another program"
                           : "This is not a shortage of GPU or host memory",
                  m->name);
    if (known(m->asked_bytes)) buffer_printf(&x->headline, ": %s", cause_size(m->asked_bytes));
    buffer_printf(&x->notes, "%s\n", m->help);
    return;
  }
  if ((m->details & MESSAGE_CLEAN) != 0) {
    buffer_text(&x->headline, "No cell of this notebook ended with an error");
    buffer_text(&x->notes, "if its kernel died: it says so in Jupyter's own log, not in the file; "
                           "sudo dmesg -T | grep -i 'killed process' shows whether memory was the "
                           "reason\n");
    return;
  }
  buffer_text(&x->headline, "This text has no known out-of-memory error");
  buffer_text(
      &x->notes,
      "known are the errors of PyTorch, JAX, TensorFlow, CuPy, Numba, RAPIDS, vLLM, SGLang, "
      "llama.cpp, Ollama, ONNX Runtime, TensorRT, Paddle, CUDA and ROCm, and of the host "
      "(MemoryError, Killed, Slurm, Kubernetes, Ray, Dask)\n"
      "if it ran out of memory anyway: stowage run -- COMMAND records the next run\n");
}

/* Writes ", the next: …" of a text with several failures. */
static void write_next(char *out, size_t size, const message *m) {
  static const struct {
    message_host host;
    const char *words;
  } hosts[] = {{HOST_SHARED, "shared memory (/dev/shm) is full"},
               {HOST_KILLED, "a program was killed"},
               {HOST_KERNEL, "the system killed a program"},
               {HOST_CONTAINER, "a container was killed"},
               {HOST_JOB, "a job reached its limit on RAM"},
               {HOST_WORKER, "a worker was killed"},
               {HOST_COMPILER, "a compiler was killed"},
               {HOST_NOTEBOOK, "a notebook used all RAM"}};
  const char *words = "host memory (RAM)";
  out[0] = '\0';
  bool device = message_is_device(m->next_kind);
  if (device) words = message_kind_name(m->next_kind);
  for (size_t i = 0; i < sizeof hosts / sizeof *hosts && !device; i++)
    if (hosts[i].host == m->next_host) words = hosts[i].words;
  bool other = m->next_kind != m->kind || m->next_host != m->host;
  bool named = other && (device || m->next_kind == MESSAGE_HOST);
  if (!named && !known(m->next_bytes)) return;
  snprintf(out, size, ", the next%s%s%s%s", named ? ": " : "", named ? words : "",
           !known(m->next_bytes) ? ""
           : named               ? ", which requested "
                                 : " requested ",
           known(m->next_bytes) ? cause_size(m->next_bytes) : "");
}

/* Reports where it happened, and how many failures the text contains. */
static void say_circumstances(explanation *x) {
  const message *m = &x->evidence.message;
  const char *during = context_phase(&m->context);
  cause *c = &x->findings.list[0];
  if (m->context.line[0] != '\0')
    cause_say(c, "your own line in the traceback: %s%s%s", m->context.line,
              during[0] != '\0' ? ", " : "", during);
  else if (during[0] != '\0' && m->kind != MESSAGE_HOST &&
           (m->context.programs & PROGRAM_OFFLOADS) == 0) /* its script both loads and runs */
    cause_say(c, "it failed %s", during);
  for (uint32_t i = 0; i < m->said_count; i++) cause_say(c, "the text says: %s", m->said[i]);
  if ((m->details & MESSAGE_SKIPPED) != 0)
    cause_say(c, "the program skipped this batch and went on: the data in it is not learned");
  if (m->passed_batch > 0)
    cause_say(c, "after it the program went on with a batch of %u: that fits", m->passed_batch);
  if (m->caught > 0)
    cause_say(
        c,
        "the text contains %u failures; this one ended the program, which caught %u before it "
        "and went on",
        m->failures, m->caught);
  else if (m->failures > 1) {
    char next[120];
    write_next(next, sizeof next, m);
    cause_say(c, "the text contains %u different failures; this is the first%s", m->failures, next);
  }
}

void diagnosis_explain(explanation *x) {
  const message *m = &x->evidence.message;
  fill_numbers(x);
  if (m->kind == MESSAGE_NONE || m->kind == MESSAGE_FOREIGN) {
    refuse(x);
    return;
  }
  if (m->kind == MESSAGE_HOST)
    diagnosis_host(x);
  else
    diagnosis_device(x);
  findings_rank(&x->findings);
  if (x->findings.count == 0) return;
  say_circumstances(x);
  diagnosis_fixes(x);
  buffer_join(&x->headline, &x->findings.list[0].headline);
}
