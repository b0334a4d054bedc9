/* Context service: which batch system, and what runs the container, by words that only it writes.
 * The kernel's name of a control group shows it too. */
#include <ctype.h>
#include <string.h>

#include "advise/context_parts.h"

typedef struct sign {
  const char *words;
  context_service service;
} sign;

/* The first row that a text has counts. */
static const sign schedulers[] = {
    {"Job has gone over ", SERVICE_CONDOR},
    {"HTCondor", SERVICE_CONDOR},
    {"condor_", SERVICE_CONDOR},
    {"request_memory", SERVICE_CONDOR},
    {"TERM_MEMLIMIT", SERVICE_LSF},
    {"LSF", SERVICE_LSF},
    {"#BSUB", SERVICE_LSF},
    {"cgroups enforced memory limit", SERVICE_SGE},
    {"maxvmem", SERVICE_SGE},
    {"h_vmem", SERVICE_SGE},
    {"h_rss", SERVICE_SGE},
    {"qacct", SERVICE_SGE},
    {"Grid Engine", SERVICE_SGE},
    {"PBS", SERVICE_PBS},
    {"kb exceeded limit", SERVICE_PBS},
    {"resources_used.mem", SERVICE_PBS},
    {"slurm", SERVICE_SLURM},
    {"Slurm", SERVICE_SLURM},
    {"SLURM", SERVICE_SLURM},
    {"sbatch", SERVICE_SLURM},
    {"srun: ", SERVICE_SLURM},
    {"StepId=", SERVICE_SLURM},
    {"OUT_OF_ME", SERVICE_SLURM},
    {"MaxRSS", SERVICE_SLURM},
};

static const sign containers[] = {
    {"Max Memory Used: ", SERVICE_LAMBDA},
    {"AWS_LAMBDA", SERVICE_LAMBDA},
    {"Container killed due to memory usage", SERVICE_ECS},
    {"Essential container in task exited", SERVICE_ECS},
    {"taskDefinition", SERVICE_ECS},
    {"jobDefinition", SERVICE_ECS},
    {"hard memory limit of ", SERVICE_APP_ENGINE},
    {"soft memory limit of ", SERVICE_APP_ENGINE},
    {"cloud.google.com/run", SERVICE_CLOUD_RUN},
    {"cloud.google.com/functions", SERVICE_CLOUD_RUN},
    {"run.googleapis.com", SERVICE_CLOUD_RUN},
    {"Cloud Run", SERVICE_CLOUD_RUN},
    {"Consider increasing the memory limit", SERVICE_CLOUD_RUN},
    {"heroku", SERVICE_HEROKU},
    {"Memory quota exceeded", SERVICE_HEROKU},
    {"Memory quota vastly exceeded", SERVICE_HEROKU},
    {"kubepods", SERVICE_KUBERNETES},
    {"kubectl", SERVICE_KUBERNETES},
    {"kubelet", SERVICE_KUBERNETES},
    {"kubernetes", SERVICE_KUBERNETES},
    {"Kubernetes", SERVICE_KUBERNETES},
    {"k8s", SERVICE_KUBERNETES},
    {"Last State: ", SERVICE_KUBERNETES},
    {"lastState", SERVICE_KUBERNETES},
    {"Reason: OOMKilled", SERVICE_KUBERNETES},
    {"reason: OOMKilled", SERVICE_KUBERNETES},
    {"CrashLoopBackOff", SERVICE_KUBERNETES},
    {"/lxc/", SERVICE_LXC},
    {"/lxc.payload", SERVICE_LXC},
    {"libpod", SERVICE_PODMAN},
    {"podman", SERVICE_PODMAN},
    {"docker", SERVICE_DOCKER},
    {"Docker", SERVICE_DOCKER},
    {"\"OOMKilled\"", SERVICE_DOCKER},
    {"MEM USAGE / LIMIT", SERVICE_DOCKER},
    {"mem_limit", SERVICE_DOCKER},
    {"Exited (137)", SERVICE_DOCKER},
    {"exited with code 137", SERVICE_DOCKER},
};

static context_service find(scan_text t, const sign *signs, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (context_has_begin(t, signs[i].words)) return signs[i].service;
  return SERVICE_NONE;
}

/* Copies the part of a control group's path from `at` on. */
static void take_unit(context *c, scan_text path, const char *at) {
  const char *end = at;
  while (end < path.end && *end != '/') end++;
  scan_copy(c->unit, sizeof c->unit, (scan_text){at, end}, at, "");
}

/* "oom_memcg=/lxc/104,task_memcg=…": the control group whose limit was reached. It decides: words
 * elsewhere in the log may be of another program. */
static void read_group(context *c, scan_text t) {
  static const struct {
    const char *words;
    context_service service;
  } parts[] = {{"kubepods", SERVICE_KUBERNETES}, {"docker", SERVICE_DOCKER},
               {"libpod", SERVICE_PODMAN},       {"/lxc/", SERVICE_LXC},
               {"/lxc.payload.", SERVICE_LXC},   {"slurm", SERVICE_SLURM},
               {".service", SERVICE_SYSTEMD},    {".slice", SERVICE_SYSTEMD}};
  const char *at = scan_find(t, "oom_memcg=");
  if (at == NULL) at = scan_find(t, "killed as a result of limit of ");
  if (at == NULL) return;
  scan_text path = {at, at};
  while (path.end < t.end && *path.end != ',' && !isspace((unsigned char)*path.end)) path.end++;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const char *start = NULL;
    const char *after = scan_find_at(path, parts[i].words, &start);
    if (after == NULL) continue;
    c->container = parts[i].service;
    if (parts[i].service == SERVICE_LXC) take_unit(c, path, after);
    if (parts[i].service != SERVICE_SYSTEMD) return;
    while (start > path.at && start[-1] != '/') start--;
    take_unit(c, path, start);
    return;
  }
}

void context_read_service(context *c, scan_text raw) {
  c->scheduler = find(raw, schedulers, sizeof schedulers / sizeof *schedulers);
  c->container = find(raw, containers, sizeof containers / sizeof *containers);
  read_group(c, raw);
}
