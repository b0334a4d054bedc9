/* Diagnosis limit: how to raise a limit on host memory, in the words of what set it: the batch
 * system, the container's runtime, the service; and the settings of a program that was killed. */
#include <stdio.h>
#include <string.h>

#include "advise/diagnosis_parts.h"

#define SIZE_MOST  (UINT64_C(1) << 50) /* larger limits are errors of reading */
#define LAMBDA_MIB 10240               /* the most that a function of AWS Lambda can have */
#define JOB_GIB    64                  /* named if the text gives no number … */
#define OTHER_GIB  16

/* The sentences of a service. @G and @M stand for the new limit in GiB and MiB, @U for the name of
 * the container or unit, @J for the number of the job. */
typedef struct words {
  const char *raise, *cost;
  const char *check; /* shows what was used or why it ended; NULL: nothing does */
} words;

#define LONGER "the job may wait longer"
#define LESS   "less is left for others on the machine"
#define PRICE  "it costs more"

static const words services[SERVICE_COUNT] = {
    [SERVICE_SLURM] = {"ask for more memory: #SBATCH --mem=@GG (or --mem-per-cpu)", LONGER,
                       "see what it used: seff @J (or sacct -j @J --format=MaxRSS,ReqMem)"},
    [SERVICE_PBS] = {"ask for more memory: #PBS -l mem=@Ggb (with chunks: -l select=1:mem=@Ggb)",
                     LONGER, "see what it used: qstat -fx @J (resources_used.mem)"},
    [SERVICE_LSF] = {"ask for more memory: #BSUB -M @GGB -R \"rusage[mem=@GGB]\" (before 10.1.0.2 "
                     "a number in the unit of LSF_UNIT_FOR_LIMITS)",
                     LONGER, "see what it used: bjobs -l @J (MAX MEM)"},
    [SERVICE_SGE] = {"ask for more memory: #$ -l h_vmem=@GG for each slot (Univa or Altair Grid "
                     "Engine with control groups: -l m_mem_free=@GG)",
                     LONGER, "see what it used: qacct -j @J (maxvmem)"},
    [SERVICE_CONDOR] = {"ask for more memory in the submit file: request_memory = @M (MB); a held "
                        "job: condor_qedit @J RequestMemory @M, then condor_release @J",
                        LONGER,
                        "see what it used: condor_history @J -limit 1 -af MemoryUsage "
                        "RequestMemory"},
    [SERVICE_KUBERNETES] = {"raise the container's limit: resources: limits: memory: @GGi "
                            "(Kubernetes)",
                            LESS,
                            "check that it was memory: kubectl describe pod NAME (OOMKilled; or a "
                            "failed liveness probe)"},
    [SERVICE_DOCKER] = {"raise the container's limit: docker run --memory=@Gg (Compose: mem_limit: "
                        "@Gg)",
                        LESS,
                        "check that it was memory: docker inspect --format "
                        "'{{.State.OOMKilled}}' NAME"},
    [SERVICE_PODMAN] = {"raise the container's limit: podman run --memory=@Gg", LESS,
                        "check that it was memory: podman inspect --format "
                        "'{{.State.OOMKilled}}' NAME"},
    [SERVICE_LXC] = {"raise the container's limit: pct set @U --memory @M (Proxmox), lxc config "
                     "set @U limits.memory @GGiB (LXD; Incus: incus config set)",
                     LESS, NULL},
    [SERVICE_SYSTEMD] = {"raise the unit's limit: sudo systemctl set-property @U MemoryMax=@GG",
                         LESS, NULL},
    [SERVICE_LAMBDA] = {"give the function more memory: aws lambda update-function-configuration "
                        "--function-name NAME --memory-size @M",
                        PRICE, NULL},
    [SERVICE_ECS] = {"give the container more memory: \"memory\": @M in the task definition (ECS); "
                     "{\"type\": \"MEMORY\", \"value\": \"@M\"} under resourceRequirements in the "
                     "job definition (AWS Batch)",
                     PRICE, NULL},
    [SERVICE_CLOUD_RUN] = {"give the service more memory: gcloud run services update NAME "
                           "--memory=@GGi (a function: gcloud functions deploy NAME "
                           "--memory=@GGi)",
                           PRICE, NULL},
    [SERVICE_APP_ENGINE] = {"a larger instance class in app.yaml: instance_class: F4 (B4 with "
                            "basic or manual scaling); flexible environment: resources: "
                            "memory_gb: @G",
                            PRICE, NULL},
    [SERVICE_HEROKU] = {"a larger dyno: heroku ps:type web=standard-2x (1 GB; performance-m: 2.5 "
                        "GB, performance-l: 14 GB)",
                        PRICE, NULL},
};

/* For a limit of PBS on virtual memory: -l mem does not raise it. */
static const words virtual_job = {"ask for more virtual memory, and the RAM with it: #PBS -l "
                                  "vmem=@Ggb,mem=@Ggb",
                                  LONGER, "see what it used: qstat -fx @J (resources_used.vmem)"};
/* For a text that does not show the service. */
static const words any_job = {
    "ask for more memory: #SBATCH --mem=@GG (PBS: -l mem=@Ggb; LSF: -M @GGB; Grid Engine: -l "
    "h_vmem=@GG; HTCondor: request_memory = @M)",
    LONGER,
    "see what it used: seff @J or sacct -j @J (Slurm), qstat -fx @J (PBS), bjobs -l @J (LSF)"};
static const words any_container = {
    "raise the container's limit: resources: limits: memory: @GGi (Kubernetes), docker run "
    "--memory=@Gg",
    LESS,
    "check that it was memory: kubectl describe pod NAME (OOMKilled; or a failed liveness probe), "
    "docker inspect --format '{{.State.OOMKilled}}' NAME"};

context_service diagnosis_service(const message *m) {
  const context *c = &m->context;
  if (m->host == HOST_JOB) return c->scheduler;
  return m->host == HOST_CONTAINER || m->host == HOST_KERNEL ? c->container : SERVICE_NONE;
}

/* Writes a sentence with its numbers and names in place. */
static void fill(char *out, size_t size, const char *sentence, const message *m, uint64_t gib,
                 uint64_t mib) {
  size_t used = 0;
  const char *unit = m->context.unit[0] != '\0' ? m->context.unit : "NAME";
  for (const char *p = sentence; *p != '\0' && used + 1 < size; p++) {
    char part[80] = {*p, '\0'};
    if (*p == '@') {
      p++;
      if (*p == 'G') snprintf(part, sizeof part, "%llu", (unsigned long long)gib);
      if (*p == 'M') snprintf(part, sizeof part, "%llu", (unsigned long long)mib);
      if (*p == 'U') snprintf(part, sizeof part, "%s", unit);
      if (*p == 'J' && m->job != 0)
        snprintf(part, sizeof part, "%llu", (unsigned long long)m->job);
      else if (*p == 'J')
        snprintf(part, sizeof part, "JOBID");
    }
    used += (size_t)snprintf(out + used, size - used, "%s", part);
  }
}

/* Names 1.5 times the limit that was reached, in whole GiB, or 1.5 times what was used. */
static void add_limit(explanation *x, const words *w, context_service service) {
  const message *m = &x->evidence.message;
  char text[400] = "";
  uint64_t from = known(m->limit_bytes)     ? m->limit_bytes
                  : known(m->process_bytes) ? m->process_bytes
                                            : MESSAGE_UNKNOWN;
  /* A limit on addresses may be far below what was asked for when it was reached. */
  if ((m->details & MESSAGE_ADDRESSES) != 0 && known(m->process_bytes) && m->process_bytes > from)
    from = m->process_bytes;
  bool sized = from < SIZE_MOST;
  uint64_t gib = sized                 ? (from + from / 2 + (1 << 30) - 1) >> 30
                 : m->host == HOST_JOB ? JOB_GIB
                                       : OTHER_GIB;
  if (gib == 0) gib = 1;
  if (service == SERVICE_LAMBDA && gib << 10 > LAMBDA_MIB) {
    if (sized && from >> 20 >= LAMBDA_MIB) {
      diagnosis_add_fix(x,
                        "a service with more memory: a function of AWS Lambda has at most 10240 "
                        "MB; ECS and AWS Batch give more",
                        "a change of the deployment");
      return;
    }
    gib = LAMBDA_MIB >> 10;
  }
  fill(text, sizeof text, w->raise, m, gib, gib << 10);
  size_t used = strlen(text);
  /* A number that the text does not give is a proposal; a dyno's size is none of ours. */
  if (known(m->limit_bytes) && sized && service != SERVICE_HEROKU && service != SERVICE_APP_ENGINE)
    snprintf(text + used, sizeof text - used, "; it was %s", cause_size(m->limit_bytes));
  diagnosis_add_fix(x, text, w->cost);
}

/* ---- the settings of a program that was killed ---- */

static const struct {
  const char *names; /* of programs, each with spaces around it */
  const char *change;
} programs[] = {
    {" mysqld mariadbd mariadb ",
     "give the server less: innodb_buffer_pool_size (half of the limit), a lower max_connections"},
    {" postgres postmaster ",
     "give the server less: shared_buffers (a quarter of the limit), work_mem, max_connections"},
    {" mongod ", "give the server less: storage.wiredTiger.engineConfig.cacheSizeGB"},
    {" redis-server valkey-server ",
     "give the server less: maxmemory (half of the limit: a save needs a copy), maxmemory-policy "
     "allkeys-lru for a cache"},
    {" clickhouse-serv clickhouse ", "give the server less: max_server_memory_usage_to_ram_ratio, "
                                     "and max_memory_usage for a query"},
    {" java ",
     "a smaller Java heap: -Xmx at most three quarters of the limit (-XX:MaxRAMPercentage=75); the "
     "rest is threads, metaspace and direct buffers"},
    {" node npm next-server ",
     "a smaller heap of Node.js: NODE_OPTIONS=--max-old-space-size=2048 (MiB), below the limit"},
    {" chrome chromium firefox brave msedge Isolated Web Co Web Content ",
     "fewer tabs and extensions in the browser, or one that puts idle tabs to sleep"},
    {" llama-server llama-cli llama-bench llamafile ollama ollama_llama_se llama-box koboldcpp "
     "koboldcpp_linux ktransformers local-ai lmstudio LM Studio mistralrs-serve sd sd-cli "
     "sd-server whisper-server whisper-cli ",
     "a smaller quantization of the model (Q4_K_M, Q3_K_S) or a smaller model, a shorter context, "
     "and weights that are mapped, not copied into RAM (llama.cpp: no --no-mmap, no --mlock)"},
    {" php-fpm php-fpm8.1 php-fpm8.2 php-fpm8.3 php ",
     "fewer workers of PHP: pm.max_children, and pm.max_requests=500 against leaks"},
};

bool diagnosis_killed_program(explanation *x) {
  const message *m = &x->evidence.message;
  char name[100];
  if (m->host != HOST_KERNEL || m->what[0] == '\0') return false;
  snprintf(name, sizeof name, " %.90s ", m->what);
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    if (strstr(programs[i].names, name) == NULL) continue;
    diagnosis_add_fix(x, programs[i].change, "slower, or less at once");
    return true;
  }
  return false;
}

#define R_GIB 100 /* proposed if the text gives no number */

/* R's own limit on vectors: twice what it was. */
static void add_r_limit(explanation *x) {
  const message *m = &x->evidence.message;
  static const char cost[] = "beyond the RAM the system swaps, or ends R";
  char text[200];
  bool sized = known(m->limit_bytes) && m->limit_bytes < SIZE_MOST;
  unsigned long long gib = sized ? (m->limit_bytes + (UINT64_C(1) << 28)) >> 29 : R_GIB;
  if ((m->context.programs & PROGRAM_R_SET) != 0) {
    snprintf(text, sizeof text,
             "raise R's limit in this session: mem.maxVSize(vsize = %llu * 1024) (MiB)", gib);
    diagnosis_add_fix(x, text, cost);
  }
  snprintf(text, sizeof text,
           "raise R's limit for every session: R_MAX_VSIZE=%lluGb in ~/.Renviron "
           "(usethis::edit_r_environ() opens it), then restart R",
           gib);
  diagnosis_add_fix(x, text, cost);
}

void diagnosis_limit_fixes(explanation *x) {
  const message *m = &x->evidence.message;
  if (m->host == HOST_PYTHON && (m->context.programs & PROGRAM_R_LIMIT) != 0) add_r_limit(x);
  bool job = m->host == HOST_JOB;
  bool group = m->host == HOST_KERNEL && m->grouped;
  if (!job && !group && m->host != HOST_CONTAINER) return;
  if ((m->details & MESSAGE_TIMEOUT) != 0 && !job) return; /* memory was not the reason */
  context_service service = diagnosis_service(m);
  if (group && service == SERVICE_NONE) service = m->context.scheduler;
  const words *w = service != SERVICE_NONE ? &services[service] : job ? &any_job : &any_container;
  if (job && (m->details & MESSAGE_ADDRESSES) != 0) w = &virtual_job;
  /* A workflow's own setting comes first: it asks the batch system for the memory. */
  bool workflow = (m->context.traits & (TRAIT_WORKFLOW | TRAIT_NEXTFLOW)) != 0;
  char text[300];
  if (workflow && !known(m->limit_bytes)) return;
  add_limit(x, w, service);
  if (service == SERVICE_HEROKU)
    diagnosis_add_fix(x, "fewer processes in a dyno: heroku config:set WEB_CONCURRENCY=1",
                      "fewer requests at once");
  if (w->check == NULL || m->grouped || workflow) return;
  fill(text, sizeof text, w->check, m, 0, 0);
  diagnosis_add_fix(x, text, "none");
}
