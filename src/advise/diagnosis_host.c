/* Causes in host memory. A text alone rarely shows what filled it, so the sentences say "probably".
 * A limit that was set is named. */
#include <stdio.h>
#include <string.h>

#include "advise/diagnosis_parts.h"
#include "advise/host_way.h"

#define MACHINE_MOST (UINT64_C(256) << 30) /* few machines have more */
#define SMALL_ARRAY  (UINT64_C(256) << 20) /* refused only if nearly all of RAM is in use */

/* The process has its own limit, and the request does not exceed it. */
static bool detect_own_limit(explanation *x) {
  const message *m = &x->evidence.message;
  bool own = m->host == HOST_NUMPY || m->host == HOST_PYTHON || m->host == HOST_TORCH;
  if (m->host == HOST_PYTHON && (m->context.programs & PROGRAM_R_LIMIT) != 0) {
    cause *vectors = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.7);
    cause_head(vectors, "R reached its own limit on the memory of vectors%s%s, not the machine's",
               known(m->limit_bytes) ? ", " : "",
               known(m->limit_bytes) ? cause_size(m->limit_bytes) : "");
    cause_say(vectors, "R_MAX_VSIZE sets it; on macOS it is the RAM, at least 16 GB, if nobody set "
                       "it");
    return true;
  }
  if (m->host == HOST_PYTHON && (m->context.programs & PROGRAM_ARRAY_MOST) != 0 &&
      !known(m->limit_bytes)) {
    cause *array = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.7);
    cause_head(array, "One array%s%s is larger than MATLAB's preference for one array allows",
               known(m->asked_bytes) ? " of " : "",
               known(m->asked_bytes) ? cause_size(m->asked_bytes) : "");
    cause_say(array, "the preference is the machine's RAM if nobody changed it; the RAM itself is "
                     "not used up");
    return true;
  }
  if (!own || !known(m->limit_bytes)) return false;
  if (has(x, CONTEXT_BIT(MATLAB)) && known(m->asked_bytes)) {
    cause *array = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.8);
    cause_head(array, "One array of %s is larger than MATLAB's preference allows: %s",
               cause_size(m->asked_bytes), cause_size(m->limit_bytes));
    cause_say(array, "the preference is the machine's RAM if nobody changed it; the RAM itself is "
                     "not used up");
    return true;
  }
  if (known(m->asked_bytes) && m->asked_bytes / 2 > m->limit_bytes) return false;
  cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.8);
  cause_head(c, "The process has its own limit of %s, and requested %s%s",
             cause_size(m->limit_bytes), known(m->asked_bytes) ? cause_size(m->asked_bytes) : "",
             known(m->asked_bytes) ? " more" : "more");
  if (m->what[0] != '\0') cause_say(c, "for an array with %s", m->what);
  if ((m->details & MESSAGE_RLIMIT) != 0)
    cause_say(c, "ulimit -v or resource.setrlimit sets it; the machine may have more memory");
  else
    cause_say(c, "the text names the limit; the machine may have more memory");
  return true;
}

/* A program of 32 bits: its addresses are the limit, and the machine may have more memory. */
static bool detect_addresses(explanation *x) {
  const message *m = &x->evidence.message;
  bool own = m->host == HOST_NUMPY || m->host == HOST_PYTHON || m->host == HOST_TORCH;
  if (!own || !has(x, CONTEXT_BIT(BITS_32))) return false;
  cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.85);
  cause_head(c, "This is a 32-bit program, which can use at most 2 to 4 GiB, however much host "
                "memory (RAM) the machine has");
  if (m->what[0] != '\0') cause_say(c, "it requested an array with %s", m->what);
  cause_say(c, "what it holds must also leave one free range of addresses that is large enough");
  return true;
}

/* Detects a request that is larger than all host memory, or than the limit of this process. Returns
 * false if it is not, or if that is unknown. */
static bool detect_larger_than_host(explanation *x) {
  const message *m = &x->evidence.message;
  if (!known(m->asked_bytes) || !known(m->host_bytes) || m->asked_bytes <= m->host_bytes)
    return false;
  cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.95);
  cause_head(c, "One request for %s is larger than %s, %s", cause_size(m->asked_bytes),
             (m->details & MESSAGE_ENABLED) != 0 ? "the limit of this process" : "all host memory",
             cause_size(m->host_bytes));
  if (m->what[0] != '\0') cause_say(c, "an array with %s", m->what);
  cause_say(c, "freeing other memory cannot make room for it");
  return true;
}

/* Detects a request that is larger than the memory of nearly any machine, which the text does not
 * give. */
static bool detect_larger_than_machines(explanation *x) {
  const message *m = &x->evidence.message;
  if (m->host != HOST_PYTHON || !known(m->asked_bytes) || m->asked_bytes < MACHINE_MOST)
    return false;
  cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.6);
  cause_head(c,
             "One request for %s of host memory (RAM) is more than nearly any machine has: the "
             "operation must change",
             cause_size(m->asked_bytes));
  return true;
}

/* TensorFlow's texts give a shape alone. */
static void say_array(cause *c, const message *m) {
  if (m->what[0] == '\0') return;
  cause_say(c, m->host == HOST_TORCH ? "a tensor of shape %s" : "an array with %s", m->what);
}

/* One array or tensor that could not be allocated. */
static void detect_one_array(explanation *x) {
  const message *m = &x->evidence.message;
  bool reading = has(x, CONTEXT_BIT(READING));
  const host_way *way = host_way_of(m->context.code);
  if (diagnosis_had_room(&x->evidence.n)) {
    cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.45);
    cause_head(c,
               "%s was refused although %s of host memory (RAM) was free: probably a limit is "
               "reached, not the RAM",
               cause_size(m->asked_bytes), cause_size(m->free_bytes));
    say_array(c, m);
    cause_say(c, "on Windows the limit is RAM and page file together, and what programs reserve "
                 "counts; elsewhere ulimit -v or a container's limit");
    return;
  }
  if (known(m->asked_bytes) && m->asked_bytes < SMALL_ARRAY && !reading && way == NULL) {
    cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.45);
    cause_head(c, "Host memory (RAM) was already full: even %s more for one array did not fit",
               cause_size(m->asked_bytes));
    say_array(c, m);
    cause_say(c, "the text does not show what filled it (a whole file, copies, a list that grows)");
    return;
  }
  if (diagnosis_absurd(&x->evidence.n)) {
    cause *c = diagnosis_cause(x, CAUSE_ONE_SPIKE, 0.6);
    cause_head(c,
               "One array of %s is larger than any machine's memory: probably its shape is wrong",
               cause_size(m->asked_bytes));
    say_array(c, m);
    cause_say(c, "a column (n, 1) combined with a row (n,) makes a table of n times n");
    return;
  }
  bool whole = reading || (way != NULL && way->id == CAUSE_HOST_DATASET_WHOLE);
  cause *c =
      diagnosis_cause(x, whole ? CAUSE_HOST_DATASET_WHOLE : CAUSE_HOST_COPIES, whole ? 0.45 : 0.4);
  cause_head(c, "The host could not allocate %s for one array%s",
             known(m->asked_bytes) ? cause_size(m->asked_bytes) : "the memory asked for",
             reading ? ", while a whole file was read" : "");
  say_array(c, m);
  if (way != NULL) {
    cause_say(c, "the line: %s", m->context.code);
    cause_say(c, "%s", way->what);
    if ((m->context.traits & TRAIT_PDIST) != 0)
      cause_say(c, "SciPy computes these distances in float64: a smaller type of the input "
                   "does not help");
    return;
  }
  cause_say(c, "the text does not show whether it is a copy, a whole file, or simply too large");
}

/* A watchdog or a probe ended the program. */
static bool detect_late(explanation *x) {
  const message *m = &x->evidence.message;
  if ((m->details & MESSAGE_TIMEOUT) == 0) return false;
  cause *late = diagnosis_cause(x, CAUSE_UNKNOWN, 0.5);
  if ((m->details & MESSAGE_PROBE) != 0) {
    cause_head(late, "Kubernetes ended the container because its probe failed: the program did not "
                     "answer in time; the text shows no shortage of memory");
    cause_say(late, "exit code 137 is any kill; Reason: OOMKilled would show that it was memory");
  } else {
    cause_head(late, "The program was killed after a timeout: probably it took too long to answer; "
                     "the text shows no shortage of memory");
  }
  cause_say(late, "a machine that swaps is slow too: then host memory (RAM) is the reason");
  return true;
}

/* The state of the container says that its own limit was not reached. */
static bool detect_spared(explanation *x) {
  if ((x->evidence.message.details & MESSAGE_SPARED) == 0) return false;
  cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.35);
  cause_head(c, "The container was killed, but not at its own memory limit: probably the host's "
                "memory (RAM) ran out, or something stopped it (docker stop, a health check)");
  cause_say(c, "the text says so: OOMKilled is false; the kernel's log shows a kill by the host");
  return true;
}

static void detect_killed(explanation *x) {
  const message *m = &x->evidence.message;
  bool kernel = m->host == HOST_KERNEL;
  if (detect_late(x) || detect_spared(x)) return;
  cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, !kernel ? 0.4 : m->grouped ? 0.6 : 0.55);
  char held[64] = "", who[112] = "the program", group[112];
  snprintf(group, sizeof group, ": its container or control group had reached its limit%s%s",
           known(m->limit_bytes) ? " of " : "",
           known(m->limit_bytes) ? cause_size(m->limit_bytes) : "");
  if (known(m->process_bytes))
    snprintf(held, sizeof held, "; it held %s", cause_size(m->process_bytes));
  if ((m->details & MESSAGE_MACHINE) != 0) /* of which the text gives no part to the program */
    snprintf(held, sizeof held, ": %s of the machine's %s was in use",
             cause_size(m->device_bytes - m->free_bytes), cause_size(m->device_bytes));
  if (m->what[0] != '\0') snprintf(who, sizeof who, "%s", m->what);
  bool pressure = (m->details & MESSAGE_OOMD) != 0 && (m->details & MESSAGE_MACHINE) == 0;
  if (pressure)
    cause_head(
        c,
        "systemd-oomd ended %s: its memory pressure (the time that programs wait for RAM) was "
        "above the limit%s",
        who, held);
  else if (kernel)
    cause_head(c, "The system killed %s because host memory (RAM) ran out%s%s", who,
               m->grouped ? group : "", held);
  else
    cause_head(c, "%s was killed from outside%s: probably because host memory (RAM) ran out",
               who[0] == 't' ? "The program" : who,
               has(x, CONTEXT_BIT(LOADING)) ? " while the model's weights were read" : "");
  if (!kernel)
    cause_say(c,
              "the text does not give the reason for the kill (signal 9: exit code 137 or -9); a "
              "user, a time limit or a failed probe can also be the reason");
  if ((m->details & MESSAGE_OOMD) != 0)
    cause_say(c, "systemd-oomd kills a whole unit: a terminal's or a session's unit holds every "
                 "program that was started in it");
  if (has(x, CONTEXT_BIT(LOADING)))
    cause_say(c,
              "a checkpoint passes through RAM before it reaches the device: up to twice its size");
}

#define RAN_OUT                                                                                    \
  "A compiler or linker ran out of host memory (RAM): probably too many ran at once, or it is a "  \
  "32-bit one"

/* Kinds whose sentence does not depend on anything else. */
static const struct {
  message_host host;
  cause_id id;
  double confidence;
  const char *words, *why;
} table[] = {
    {HOST_SHARED, CAUSE_HOST_WORKERS, 0.7,
     "Shared memory (/dev/shm) is full: the DataLoader's workers pass their batches through it",
     "containers get 64 MiB of it by default"},
    {HOST_MAPS, CAUSE_HOST_WORKERS, 0.5,
     "Too many shared-memory mappings: probably the system's limit on mappings or files is reached",
     "every tensor passed between processes is one mapping (vm.max_map_count)"},
    {HOST_WORKER, CAUSE_HOST_WORKERS, 0.6,
     "A worker process was killed: probably the workers together used up host memory (RAM)",
     "each worker holds its own copy of the parts of the dataset that it touches"},
    {HOST_DASK, CAUSE_HOST_WORKERS, 0.55,
     "A Dask worker used up its share of host memory (RAM), and was restarted",
     "a worker is restarted at 95% of its part of the RAM; one partition with its copies must fit "
     "in it"},
    {HOST_FORK, CAUSE_HOST_WORKERS, 0.55,
     "A process could not be started: host memory (RAM) was too full to fork",
     "every DataLoader worker is a fork of the program"},
    {HOST_RAY, CAUSE_HOST_LIMIT, 0.6,
     "Ray ended a worker because the machine's host memory (RAM) was nearly full",
     "every task and actor is a process with its own memory"},
    {HOST_SPARK, CAUSE_HOST_LIMIT, 0.6,
     "The cluster ended an executor: it used more host memory (RAM) than its container may hold",
     "Python workers count in addition to the Java heap"},
    {HOST_PAGEFILE, CAUSE_HOST_LIMIT, 0.6,
     "Windows could not commit more memory: RAM and page file together are used up",
     "Windows counts what programs reserve: every process that imports PyTorch with CUDA reserves "
     "several GiB"},
    {HOST_COMPILER, CAUSE_HOST_LIMIT, 0.55,
     "A compiler or linker was killed: probably too many ran at once for the host's memory (RAM)",
     NULL},
    {HOST_GIT, CAUSE_HOST_LIMIT, 0.6,
     "git was killed while it packed objects: probably they took more host memory (RAM) than there "
     "was",
     "each of its threads holds a window of whole objects"},
    {HOST_DATABASE, CAUSE_HOST_LIMIT, 0.6,
     "DuckDB reached its own limit on host memory (RAM), memory_limit",
     "it cannot spill everything to disk: each thread needs its part, and so does the order of "
     "rows"},
    {HOST_PINNED, CAUSE_HOST_LIMIT, 0.6,
     "TensorFlow's pool of pinned host memory (RAM) is full, not the device", NULL},
    {HOST_PINNING, CAUSE_HOST_LIMIT, 0.55,
     "The driver could not pin host memory (RAM): the line that failed asks for page-locked RAM, "
     "although the error is written as the device's",
     "RAM is nearly full, or the system limits what may be pinned (ulimit -l, a container's "
     "memory; under WSL about half of its RAM)"},
    {HOST_NOTEBOOK, CAUSE_HOST_LIMIT, 0.5,
     "The notebook used all host memory (RAM) and was restarted",
     "the text does not show what filled it (a whole file, copies, a list that grows)"},
    {HOST_DIED, CAUSE_HOST_LIMIT, 0.3,
     "The notebook's kernel died, and the text does not say why: probably host memory (RAM) ran "
     "out, or a library crashed",
     "the log of Jupyter says more (VS Code: Output > Jupyter): a signal 9 is a kill for memory, a "
     "signal 11 a crash"},
};

/* A limit that was set for a job or a container. */
static void detect_limit(explanation *x) {
  const message *m = &x->evidence.message;
  bool job = m->host == HOST_JOB;
  char limit[64] = "", used[64] = "";
  if (known(m->limit_bytes)) snprintf(limit, sizeof limit, " of %s", cause_size(m->limit_bytes));
  if (known(m->process_bytes))
    snprintf(used, sizeof used, "; it used %s", cause_size(m->process_bytes));
  context_service service = diagnosis_service(m);
  bool stated = service == SERVICE_ECS || service == SERVICE_CLOUD_RUN ||
                service == SERVICE_APP_ENGINE || service == SERVICE_HEROKU;
  bool proven = m->grouped || stated ||
                (known(m->process_bytes) && known(m->limit_bytes) &&
                 m->process_bytes >= m->limit_bytes / 100 * 98);
  cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, job ? 0.75 : proven ? 0.6 : 0.5);
  if (job && (m->details & MESSAGE_ADDRESSES) != 0) {
    cause_head(c, "The batch system ended the job: it reached its limit on virtual memory%s%s",
               limit, used);
    cause_say(c,
              "virtual memory is all that a program has addresses for, also files and libraries: "
              "more than the RAM it uses; a larger -l mem does not raise it");
    return;
  }
  if (job && known(m->limit_bytes))
    cause_head(c,
               "The batch system ended the job: it reached the %s of host memory (RAM) that it "
               "asked for%s",
               limit + 4, used);
  else if (job)
    cause_head(c,
               "The batch system ended the job: it used more host memory (RAM) than the job asked "
               "for%s",
               used);
  else if (service == SERVICE_HEROKU)
    cause_head(c, "The dyno used more memory (RAM) than its quota%s%s", limit, used);
  else
    cause_head(c, "The %s was killed%s because it reached its memory limit%s (RAM)%s",
               service == SERVICE_LAMBDA ? "function" : "container",
               stated || (proven && known(m->limit_bytes)) ? "" : ": probably", limit, used);
  if (!job && m->grouped)
    cause_say(c, "the text says so: OOMKilled");
  else if (!job && !proven)
    cause_say(c, "exit code 137 alone can be any kill, such as a failed probe; the state OOMKilled "
                 "would show that it was memory");
}

/* Kubernetes ends pods of a node that runs short, those first that use more than they requested. */
static void detect_evicted(explanation *x) {
  const message *m = &x->evidence.message;
  char used[96] = "";
  if (known(m->process_bytes) && m->requested_bytes > 0)
    snprintf(used, sizeof used, "; it used %s and had requested %s", cause_size(m->process_bytes),
             cause_size(m->requested_bytes));
  else if (known(m->process_bytes))
    snprintf(used, sizeof used, "; it used %s", cause_size(m->process_bytes));
  cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.75);
  cause_head(c, "Kubernetes evicted the pod because its node was low on memory (RAM)%s", used);
  cause_say(c, "this is not the container's own limit: pods that use more than they requested go "
               "first");
}

/* Java reserves its heap at the start, and asks the system for parts of it later. */
static void detect_java(explanation *x) {
  const message *m = &x->evidence.message;
  cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.6);
  cause_head(
      c,
      "The system refused Java %s of host memory (RAM): RAM and swap are used up, or a limit "
      "is reached",
      known(m->asked_bytes) ? cause_size(m->asked_bytes) : "a part");
  cause_say(c, "its heap, set by -Xms and -Xmx, is larger than what the machine or container has "
               "free; threads and libraries come on top");
}

/* Dask gives a task up after several workers that ran it ended: the scheduler does not know why. */
static bool detect_dask(explanation *x) {
  const message *m = &x->evidence.message;
  if (m->host != HOST_DASK || (m->details & MESSAGE_UNSURE) == 0) return false;
  cause *c = diagnosis_cause(x, CAUSE_HOST_WORKERS, 0.45);
  cause_head(c,
             "Dask gave a task up, because every worker that ran it ended: probably they used up "
             "their share of host memory (RAM)");
  cause_say(c,
            "the text does not say why: a crash of a library ends a worker too; the workers' own "
            "logs do (\"95%% memory budget. Restarting\", or a signal)");
  return true;
}

/* A program that is no Python: a shell, or a server that saves from a copy of itself. */
static void detect_fork(explanation *x) {
  cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.55);
  cause_head(c,
             "A process could not be started: the system did not promise enough host memory (RAM) "
             "for a copy of the program");
  cause_say(c, "fork counts all of the program's memory again, although the copy shares it: with "
               "vm.overcommit_memory=0 a large program is refused");
}

/* A library's sentence about its background workers names no reason. */
static bool detect_unsure(explanation *x) {
  if ((x->evidence.message.details & MESSAGE_UNSURE) == 0) return false;
  cause *c = diagnosis_cause(x, CAUSE_HOST_WORKERS, 0.4);
  cause_head(c,
             "A background worker ended: probably the workers together used up host memory (RAM)");
  cause_say(c, "the text does not say why; if an error is printed above, that is the reason");
  return true;
}

static void detect_rest(explanation *x) {
  const message *m = &x->evidence.message;
  if ((m->details & MESSAGE_NO_SIGN) != 0) {
    cause *c = diagnosis_cause(x, CAUSE_UNKNOWN, 0.3);
    cause_head(c, "A DataLoader worker ended, and the text does not say why: probably an error in "
                  "the dataset's own code; memory is possible");
    cause_say(c, "it mentions neither a kill nor memory");
    return;
  }
  if (m->host == HOST_SHARED && (m->context.traits & TRAIT_NCCL_FILE) != 0) {
    cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.75);
    cause_head(c, "Shared memory (/dev/shm) is full: NCCL makes a file there for every pair of "
                  "ranks on a machine");
    cause_say(c, "containers get 64 MiB of it by default");
    return;
  }
  if (detect_dask(x) || detect_unsure(x)) return;
  if (m->host == HOST_FORK && !diagnosis_python(m)) {
    detect_fork(x);
    return;
  }
  if (m->host == HOST_PINNED && m->what[0] == '\0') {
    cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.55);
    cause_head(c,
               "The driver could not pin %s of host memory (RAM) for TensorFlow; the device is "
               "not full",
               known(m->asked_bytes) ? cause_size(m->asked_bytes) : "a block");
    cause_say(c, "RAM is nearly full, or the system limits what may be pinned (under WSL a part of "
                 "half the machine's RAM)");
    return;
  }
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (table[i].host != m->host) continue;
    cause *c = diagnosis_cause(x, table[i].id, table[i].confidence);
    bool database = m->host == HOST_DATABASE;
    bool ran_out = (m->details & MESSAGE_RAN_OUT) != 0;
    cause_head(c, "%s%s%s", ran_out ? RAN_OUT : table[i].words,
               !database               ? ""
               : known(m->limit_bytes) ? " of "
                                       : ": 80% of the RAM, if it is not set",
               database && known(m->limit_bytes) ? cause_size(m->limit_bytes) : "");
    if (known(m->limit_bytes) && known(m->process_bytes) && m->host != HOST_RAY)
      cause_say(c, "%s used of %s", cause_size(m->process_bytes), cause_size(m->limit_bytes));
    if (known(m->device_bytes) && known(m->free_bytes) && m->host == HOST_RAY &&
        m->free_bytes <= m->device_bytes)
      cause_say(c, "%s of the node's %s was used", cause_size(m->device_bytes - m->free_bytes),
                cause_size(m->device_bytes));
    if (m->host == HOST_RAY && m->what[0] != '\0') cause_say(c, "the largest process: %s", m->what);
    bool pages = m->host == HOST_PAGEFILE && !diagnosis_python(m);
    if (pages)
      cause_say(c, "Windows counts what programs reserve, also what they never use");
    else if (table[i].why != NULL)
      cause_say(c, "%s", table[i].why);
    return;
  }
  if (m->host == HOST_MODEL && (m->details & MESSAGE_WEIGHTS) != 0) {
    cause *c = diagnosis_cause(x, CAUSE_WEIGHTS_TOO_BIG, 0.65);
    cause_head(c,
               "LM Studio did not load the model: with its context it needs about %s, more than "
               "the memory that its guardrail leaves to models",
               known(m->asked_bytes) ? cause_size(m->asked_bytes) : "too much");
    cause_say(c, "LM Studio adds up RAM and VRAM before it loads: nothing ran out yet");
    return;
  }
  if (m->host == HOST_MODEL) {
    cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, known(m->asked_bytes) ? 0.7 : 0.5);
    if (known(m->asked_bytes))
      cause_head(c, "The model needs %s of host memory (RAM)%s%s", cause_size(m->asked_bytes),
                 known(m->free_bytes) ? ", and there are " : "",
                 known(m->free_bytes) ? cause_size(m->free_bytes) : "");
    else
      cause_head(c, "The program that runs the model was killed: probably the model with its "
                    "context is larger than host memory (RAM)");
    return;
  }
  if (m->host == HOST_EVICTED) {
    detect_evicted(x);
    return;
  }
  if (m->host == HOST_JOB || m->host == HOST_CONTAINER) {
    if (!detect_late(x)) detect_limit(x);
    return;
  }
  if (m->host == HOST_JAVA) {
    detect_java(x);
    return;
  }

  if (m->host == HOST_LARGE) {
    cause *c = diagnosis_cause(x, CAUSE_HOST_LIMIT, 0.35);
    cause_head(c,
               "The program asked for %s of host memory (RAM) at once: probably this request, or "
               "one after it, was more than there was",
               known(m->asked_bytes) ? cause_size(m->asked_bytes) : "much");
    cause_say(c, "tcmalloc reports every large request, also those that succeed");
    return;
  }
  /* A request that failed: MemoryError, bad_alloc and the like. */
  bool forking = has(x, CONTEXT_BIT(FORKING)), saving = has(x, CONTEXT_BIT(SAVING)),
       reading = has(x, CONTEXT_BIT(READING));
  cause *c = diagnosis_cause(x,
                             forking   ? CAUSE_HOST_WORKERS
                             : saving  ? CAUSE_HOST_COPIES
                             : reading ? CAUSE_HOST_DATASET_WHOLE
                                       : CAUSE_HOST_LIMIT,
                             forking || saving || reading ? 0.45 : 0.4);
  bool appends = (m->context.programs & PROGRAM_APPENDS) != 0;
  cause_head(c, "The program asked for more host memory (RAM) than there was%s",
             appends ? ", while a list grew: every pass of the loop adds to it"
             : forking || has(x, CONTEXT_BIT(STARTING)) ? ", while a process was started"
             : saving  ? ": writing a whole object makes a second copy of it"
             : reading ? ": probably a whole file was read"
                       : "");
  if (appends) {
    cause_say(c, "the line: %s", m->context.code);
    return;
  }
  bool python =
      !has(x, CONTEXT_BIT(R) | CONTEXT_BIT(MATLAB) | CONTEXT_BIT(JULIA) | CONTEXT_BIT(NATIVE)) &&
      (m->context.traits & (TRAIT_BUILD | TRAIT_FFMPEG)) == 0;
  cause_say(c, "the text does not show what filled it (a whole file, copies, a leak%s)",
            python ? ", Python objects" : "");
}

/* Detects a size that is an error by itself, in a text that gives no shape. */
static bool detect_absurd(explanation *x) {
  const message *m = &x->evidence.message;
  if (!diagnosis_absurd(&x->evidence.n) || m->host == HOST_NUMPY) return false;
  cause *c = diagnosis_cause(x, CAUSE_UNKNOWN, 0.5);
  cause_head(c, "The program asked for more memory than any machine has: the size itself is wrong "
                "(a number below zero, an overflow or a corrupt file), not the host");
  return true;
}

void diagnosis_host(explanation *x) {
  const message *m = &x->evidence.message;
  if (detect_absurd(x)) return;
  if (detect_addresses(x) || detect_own_limit(x) || detect_larger_than_host(x) ||
      detect_larger_than_machines(x))
    return;
  if (m->host == HOST_NUMPY || m->host == HOST_TORCH)
    detect_one_array(x);
  else if (m->host == HOST_KILLED || m->host == HOST_KERNEL)
    detect_killed(x);
  else
    detect_rest(x);
}
