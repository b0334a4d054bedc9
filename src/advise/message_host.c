/* Host memory: every wording is a row of a table, and a few kinds have numbers to read.
 *
 * Sure rows can mean nothing but host memory. The others ("Killed", exit code 137) are checked only
 * after everything else: a launcher writes them after any failure. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "advise/language.h"
#include "advise/message_parts.h"

enum { SURE = 1, WORD = 2 }; /* WORD: not a part of a longer word */

static const struct row {
  const char *words;
  message_host host;
  int flags;
} table[] = {
    {"DefaultCPUAllocator", HOST_TORCH, SURE},
    {"Fail to alloc memory of ", HOST_TORCH, SURE}, /* Paddle */
    {"posix_memalign(&data, gAlignment, nbytes)", HOST_TORCH, SURE},
    {"[enforce fail at alloc_cpu.cpp", HOST_TORCH, SURE},
    {"not enough memory: you tried to allocate", HOST_TORCH, SURE},
    {"[enforce fail at CPUAllocator.cpp", HOST_TORCH, SURE},
    {"Unable to allocate ", HOST_NUMPY, SURE},
    {"_ArrayMemoryError", HOST_NUMPY, SURE},
    {"session crashed after using all available RAM", HOST_NOTEBOOK, SURE},
    {"tried to allocate more memory than is available", HOST_NOTEBOOK, SURE}, /* Kaggle's */
    {"Your notebook was stopped because it used too much memory", HOST_NOTEBOOK, SURE},
    {"toute la mémoire RAM disponible", HOST_NOTEBOOK, SURE}, /* Colab's, in other languages */
    {"toute la RAM disponible", HOST_NOTEBOOK, SURE},
    {"toda la memoria RAM disponible", HOST_NOTEBOOK, SURE},
    {"toda la RAM disponible", HOST_NOTEBOOK, SURE},
    {"toda a RAM disponível", HOST_NOTEBOOK, SURE},
    {"tutta la RAM disponibile", HOST_NOTEBOOK, SURE},
    {"gesamte verfügbare RAM", HOST_NOTEBOOK, SURE},
    {"gesamten verfügbaren RAM", HOST_NOTEBOOK, SURE},
    {"oom_kill event", HOST_JOB, SURE},
    {"oom-kill event", HOST_JOB, SURE},
    {"Exceeded job memory limit", HOST_JOB, SURE},
    {"xceeded step memory limit", HOST_JOB, SURE},
    {"exceeded memory limit (", HOST_JOB, SURE},
    {"OUT_OF_MEMORY by SLURM", HOST_JOB, SURE},
    {"State: OUT_OF_MEMORY", HOST_JOB, SURE},
    {"OUT_OF_ME+", HOST_JOB, SURE},
    {"task 0: Out Of Memory", HOST_JOB, SURE},
    {": Out Of Memory", HOST_JOB, SURE},
    {"PBS: job killed: mem", HOST_JOB, SURE},
    {"PBS: job killed: vmem", HOST_JOB, SURE},
    {"kb exceeded limit", HOST_JOB, SURE},
    {"TERM_MEMLIMIT", HOST_JOB, SURE},
    {"Job has gone over memory limit", HOST_JOB, SURE}, /* HTCondor */
    {"Job has gone over cgroup memory limit", HOST_JOB, SURE},
    {"SIGKILL, possible container OOM", HOST_SPARK, SURE}, /* on Kubernetes */
    {"OOMKilled\": true", HOST_CONTAINER, SURE},
    {"OOMKilled\":true", HOST_CONTAINER, SURE},
    {"Reason: OOMKilled", HOST_CONTAINER, SURE},
    {"reason: OOMKilled", HOST_CONTAINER, SURE},
    {"OOMKilled (exit code", HOST_CONTAINER, SURE},
    {"low on resource: memory", HOST_EVICTED, SURE},
    {"cgroups enforced memory limit", HOST_JOB, SURE},              /* Grid Engine */
    {"Container killed due to memory usage", HOST_CONTAINER, SURE}, /* Amazon ECS */
    {"Memory limit of ", HOST_CONTAINER, SURE}, /* services that run containers */
    {"ard memory limit of ", HOST_CONTAINER, SURE},
    {"oft memory limit of ", HOST_CONTAINER, SURE},
    {"Memory quota exceeded", HOST_CONTAINER, SURE},
    {"Memory quota vastly exceeded", HOST_CONTAINER, SURE},
    {"Max Memory Used: ", HOST_CONTAINER, 0},
    {"ray.exceptions.OutOfMemoryError", HOST_RAY, SURE},
    {"RayOutOfMemoryError", HOST_RAY, SURE},
    {"node running low on memory", HOST_RAY, SURE},
    {"killed due to memory pressure (OOM)", HOST_RAY, SURE},
    {"ObjectStoreFullError", HOST_RAY, SURE},
    {"memory budget. Restarting", HOST_DASK, SURE},
    {"% memory budget", HOST_DASK, SURE},
    {"KilledWorker", HOST_DASK, SURE},
    {"Unmanaged memory use is high", HOST_DASK, SURE},
    {"killed by YARN for exceeding", HOST_SPARK, SURE},
    {"is running beyond physical memory limits", HOST_SPARK, SURE},
    {"killed by signal: Bus error", HOST_SHARED, SURE},
    {"workers are out of shared memory", HOST_SHARED, SURE},
    {"insufficient shared memory", HOST_SHARED, SURE},
    {"unable to allocate shared memory", HOST_SHARED, SURE},
    {"unable to write to file </torch_", HOST_SHARED, SURE},
    {"unable to open shared memory object", HOST_SHARED, SURE},
    {"unable to resize file </torch_", HOST_SHARED, SURE},
    {"Error while creating shared memory segment", HOST_SHARED, SURE}, /* NCCL */
    {"/dev/shm: No space left", HOST_SHARED, SURE},
    {"No space left on device: '/dev/shm", HOST_SHARED, SURE},
    {"No space left on device: '/psm_", HOST_SHARED, SURE},
    {"unable to mmap ", HOST_MAPS, SURE},
    {"WinError 1455", HOST_PAGEFILE, SURE},
    {"failed with errno=1455", HOST_PAGEFILE, SURE}, /* Go */
    {"paging file is too small", HOST_PAGEFILE, SURE},
    {"页面文件太小", HOST_PAGEFILE, SURE},
    {"頁面檔太小", HOST_PAGEFILE, SURE},
    {"Auslagerungsdatei ist zu klein", HOST_PAGEFILE, SURE},
    {"fichier de pagination est insuffisant", HOST_PAGEFILE, SURE},
    {"archivo de paginación es demasiado pequeño", HOST_PAGEFILE, SURE},
    {"arquivo de paginação é pequeno demais", HOST_PAGEFILE, SURE},
    {"arquivo de paginação é muito pequeno", HOST_PAGEFILE, SURE},
    {"file di paging è insufficiente", HOST_PAGEFILE, SURE},
    {"ページング ファイルが小さすぎる", HOST_PAGEFILE, SURE},
    {"페이징 파일이 너무 작", HOST_PAGEFILE, SURE},
    {"Файл подкачки слишком мал", HOST_PAGEFILE, SURE},
    {"WinError 8]", HOST_PAGEFILE, SURE},
    {"WinError 14]", HOST_PAGEFILE, SURE},
    {"Not enough memory resources are available", HOST_PAGEFILE, SURE},
    {"Insufficient quota to complete the requested service", HOST_PAGEFILE, SURE},
    /* error 8 in other languages, older wordings and newer ones; what a process ends with */
    {"Not enough storage is available to process this command", HOST_PAGEFILE, SURE},
    {"recursos de memória suficientes", HOST_PAGEFILE, SURE},
    {"suficientes recursos de memoria", HOST_PAGEFILE, SURE},
    {"armazenamento insuficiente para processar este comando", HOST_PAGEFILE, SURE},
    {"almacenamiento insuficiente para procesar este comando", HOST_PAGEFILE, SURE},
    {"Ressources mémoire insuffisantes", HOST_PAGEFILE, SURE},
    {"Mémoire insuffisante pour traiter cette commande", HOST_PAGEFILE, SURE},
    {"Espace insuffisant pour traiter cette commande", HOST_PAGEFILE, SURE},
    {"Für diesen Befehl ist nicht genügend Speicher verfügbar", HOST_PAGEFILE, SURE},
    {"nicht genügend Arbeitsspeicherressourcen verfügbar", HOST_PAGEFILE, SURE},
    {"Nicht genügend Arbeitsspeicherressourcen verfügbar", HOST_PAGEFILE, SURE},
    {"Risorse di memoria insufficienti", HOST_PAGEFILE, SURE},
    {"Spazio insufficiente per elaborare il comando", HOST_PAGEFILE, SURE},
    {"Недостаточно памяти для обработки команды", HOST_PAGEFILE, SURE},
    {"Недостаточно ресурсов памяти", HOST_PAGEFILE, SURE},
    {"内存资源不足，无法处理此命令", HOST_PAGEFILE, SURE},
    {"存储空间不足，无法处理此命令", HOST_PAGEFILE, SURE},
    {"記憶體資源不足，無法處理此命令", HOST_PAGEFILE, SURE},
    {"コマンドを実行するのに十分な記憶域がありません", HOST_PAGEFILE, SURE},
    {"メモリ リソースが不足しているため", HOST_PAGEFILE, SURE},
    {"이 명령을 처리하기에 저장 공간이 부족", HOST_PAGEFILE, SURE},
    {"0xC0000017", HOST_PAGEFILE, SURE}, /* STATUS_NO_MEMORY */
    {"0xc0000017", HOST_PAGEFILE, SURE},
    {"0xC000012D", HOST_PAGEFILE, SURE}, /* STATUS_COMMITMENT_LIMIT */
    {"0xc000012d", HOST_PAGEFILE, SURE},
    {"-1073741801", HOST_PAGEFILE, SURE},
    {"3221225495", HOST_PAGEFILE, SURE},
    /* after what may have ended a worker */
    {"DataLoader worker (pid", HOST_WORKER, SURE},
    {"A process in the process pool was terminated abruptly", HOST_WORKER, SURE},
    {"TerminatedWorkerError", HOST_WORKER, SURE},
    {"BrokenProcessPool", HOST_WORKER, SURE},
    {"was terminated abruptly", HOST_WORKER, SURE},
    {"worker process was unexpectedly terminated", HOST_WORKER, SURE},
    {"background workers are no longer alive", HOST_WORKER, SURE}, /* batchgenerators, nnU-Net */
    {"ackground workers died", HOST_WORKER, SURE},
    {"ackground worker is 6 feet under", HOST_WORKER, SURE},
    {"by an excessive memory usage causing the Operating System to kill", HOST_WORKER, SURE},
    {"Killed signal terminated program ", HOST_COMPILER, SURE},
    {"internal compiler error: Killed", HOST_COMPILER, SURE},
    {"ld terminated with signal 9", HOST_COMPILER, SURE},       /* gcc's collect2 */
    {"unable to execute command: Killed", HOST_COMPILER, SURE}, /* clang */
    {"died due to signal 9", HOST_COMPILER, SURE},              /* nvcc: cicc, ptxas */
    {"pack-objects died of signal 9", HOST_GIT, SURE},
    {"index-pack died of signal 9", HOST_GIT, SURE},
    {"virtual memory exhausted: Cannot allocate memory", HOST_COMPILER, SURE},
    {"cc1plus: out of memory allocating", HOST_COMPILER, SURE},
    {"cc1: out of memory allocating", HOST_COMPILER, SURE},
    {"LLVM ERROR: out of memory", HOST_COMPILER, SURE},
    {"compiler is out of heap space", HOST_COMPILER, SURE}, /* MSVC; by number in other languages */
    {" C1060: ", HOST_COMPILER, SURE},
    {" C1002: ", HOST_COMPILER, SURE},
    {" LNK1102: ", HOST_COMPILER, SURE},
    {"ut of memory: Kill", HOST_KERNEL, SURE}, /* "Memory cgroup out of memory: Killed process" */
    {"oom-kill:", HOST_KERNEL, SURE},
    {"invoked oom-killer", HOST_KERNEL, SURE},
    {"oom_reaper: reaped process", HOST_KERNEL, SURE},
    {"due to memory used (", HOST_KERNEL, SURE}, /* systemd-oomd's, without its name */
    {"due to memory pressure for /", HOST_KERNEL, SURE},
    {"systemd-oomd", HOST_KERNEL, SURE},
    {"earlyoom", HOST_KERNEL, SURE},
    {"Failed with result 'oom-kill'", HOST_KERNEL, SURE},
    {"for the Java Runtime Environment to continue", HOST_JAVA, SURE},
    {"warning: INFO: os::commit_memory(", HOST_JAVA, SURE},
    {"os.fork() OSError: [Errno 12]", HOST_FORK, SURE},
    {"fork: Cannot allocate memory", HOST_FORK, SURE},
    {"fork: retry: Resource temporarily", HOST_FORK, SURE},
    {"C error: out of memory", HOST_PYTHON, SURE},
    {"ArrowMemoryError", HOST_PYTHON, SURE},
    {"memory allocation of ", HOST_PYTHON, SURE}, /* Rust: polars, tokenizers, safetensors */
    {"alloc::handle_alloc_error", HOST_PYTHON, SURE},
    {"malloc of size ", HOST_PYTHON, SURE},   /* Arrow */
    {"mach_vm_map(size=", HOST_PYTHON, SURE}, /* macOS */
    {"malloc: *** mmap(size=", HOST_PYTHON, SURE},
    {"cannot allocate vector of size", HOST_PYTHON, SURE},
    {"vector memory exhausted (limit reached?)", HOST_PYTHON, SURE},
    {"vector memory limit of", HOST_PYTHON, SURE},
    {"exceeds maximum array size preference", HOST_PYTHON, SURE},
    {"Type \"help memory\" for your options", HOST_PYTHON, SURE},
    {"insufficient virtual memory", HOST_PYTHON, SURE},
    {"Allocation would exceed memory limit", HOST_PYTHON, SURE},
    {"runtime: out of memory", HOST_PYTHON, SURE}, /* Go */
    {"runtime: cannot allocate memory", HOST_PYTHON, SURE},
    {"Out of Memory Error: could not allocate", HOST_DATABASE, SURE}, /* DuckDB */
    {"Out of Memory Error: failed to", HOST_DATABASE, SURE},
    {"Out of Memory Error: Failed to", HOST_DATABASE, SURE},
    {"tried to allocate too many memory regions", HOST_PYTHON, SURE}, /* OpenBLAS */
    {"Memory allocation still failed after", HOST_PYTHON, SURE},
    {"OpenBLAS error: Memory allocation", HOST_PYTHON, SURE},
    {"MemoryError", HOST_PYTHON, SURE | WORD},
    {"HostMemoryError", HOST_PYTHON, SURE},    /* of stowage.enable() */
    {"OutOfMemoryError()", HOST_PYTHON, SURE}, /* Julia */
    {"std::bad_alloc", HOST_PYTHON, SURE},
    {"bad_alloc", HOST_PYTHON, SURE},
    {"bad allocation", HOST_PYTHON, SURE},
    {"Out of host memory", HOST_PYTHON, SURE},
    {"[Fatal] Out of Host Memory", HOST_PYTHON, SURE}, /* LightGBM, of OpenCL … */
    {"LightGBMError: Out of Host Memory", HOST_PYTHON, SURE},
    {"CL_OUT_OF_HOST_MEMORY", HOST_PYTHON, SURE},
    {"Insufficient memory", HOST_PYTHON, 0},
    {"not enough memory", HOST_PYTHON, 0},
    {"Not enough memory", HOST_PYTHON, 0},
    {"annot allocate memory", HOST_PYTHON, SURE},
    {"malloc: can't allocate region", HOST_PYTHON, SURE}, /* macOS */
    {"failed to allocate memory", HOST_PYTHON, 0},
    {"tcmalloc: large alloc ", HOST_LARGE, 0},
    {"ailed to allocate ", HOST_PYTHON, 0},
    {"The kernel appears to have died", HOST_DIED, 0},
    {"he Kernel crashed while executing code", HOST_DIED, 0},
    {"kernel died", HOST_DIED, 0},
    {"Kernel died", HOST_DIED, 0},
    {"Kernel Restarting", HOST_DIED, 0},
    {"kernel has died", HOST_DIED, 0},
    {"Canceled future for execute_request", HOST_DIED, 0},
    {"Your session crashed for an unknown reason", HOST_DIED, 0},
    {"Python kernel is unresponsive", HOST_DIED, 0},
    {"DeadKernelError", HOST_DIED, 0},
    {"kernel restarting", HOST_DIED, 0},
    {"restarting kernel", HOST_DIED, 0},
    {"Restarting kernel", HOST_DIED, 0},
    {"kernel restarted", HOST_DIED, 0},
    {"Bus error", HOST_SHARED, 0},
    {"OOMKilled\": false", HOST_KILLED, 0}, /* not by its own limit */
    {"OOMKilled\":false", HOST_KILLED, 0},
    {"OOMKilled", HOST_CONTAINER, 0},
    {"Exit Code: 137", HOST_CONTAINER, 0},
    {"exitCode: 137", HOST_CONTAINER, 0},
    {"exited with code 137", HOST_CONTAINER, 0},
    {"Exited (137)", HOST_CONTAINER, 0},
    {"code 137", HOST_KILLED, 0},
    {"code: 137", HOST_KILLED, 0},
    {"code=137", HOST_KILLED, 0},
    {"status 137", HOST_KILLED, 0},
    {"status: 137", HOST_KILLED, 0},
    {"Error 137", HOST_KILLED, 0},
    {"exitcode: -9", HOST_KILLED, 0},
    {"exitcode : -9", HOST_KILLED, 0},
    {"exit code -9", HOST_KILLED, 0},
    {"exit code: -9", HOST_KILLED, 0},
    {"exit status -9", HOST_KILLED, 0},
    {"return code = -9", HOST_KILLED, 0},
    {"return code -9", HOST_KILLED, 0},
    {"returncode=-9", HOST_KILLED, 0},
    {"signal 9", HOST_KILLED, WORD},
    {"signal: 9", HOST_KILLED, WORD},
    {"SIGKILL", HOST_KILLED, WORD},
    {"killed by the operating system", HOST_KILLED, 0},
    {"runner has received a shutdown signal", HOST_KILLED, 0}, /* GitHub Actions */
    {"runner lost communication with the server", HOST_KILLED, 0},
    {"Killed", HOST_KILLED, WORD},
    {"killed", HOST_KILLED, WORD},
    {"已杀死", HOST_KILLED, 0},
    {"已砍掉", HOST_KILLED, 0},
    {"Getötet", HOST_KILLED, 0},
    {"Processus arrêté", HOST_KILLED, 0},
    {"Tué", HOST_KILLED, WORD},
    {"Terminado (killed)", HOST_KILLED, 0},
    {"Matado", HOST_KILLED, WORD},
    {"Morto", HOST_KILLED, WORD},
    {"Ucciso", HOST_KILLED, WORD},
    {"強制終了", HOST_KILLED, 0},
    {"죽었음", HOST_KILLED, 0},
    {"Убито", HOST_KILLED, 0},
    {"Вбито", HOST_KILLED, 0},
    {"Unicestwiony", HOST_KILLED, 0},
    {"Geëlimineerd", HOST_KILLED, 0},
    {"Dödad", HOST_KILLED, 0},
    {"Zabit", HOST_KILLED, WORD},
    {"Süreç durduruldu", HOST_KILLED, 0},
};

/* ---- numbers ---- */

/* "(9681, 9681) and data type float64": the bytes of such an array. */
static uint64_t array_bytes(scan_text t, const char *shape) {
  static const struct {
    const char *type;
    double width;
  } widths[] = {{"data type complex128", 16}, {"data type float64", 8}, {"data type int64", 8},
                {"data type uint64", 8},      {"data type object", 8},  {"data type complex64", 8},
                {"data type float32", 4},     {"data type int32", 4},   {"data type uint32", 4},
                {"data type float16", 2},     {"data type int16", 2},   {"data type uint16", 2},
                {"data type int8", 1},        {"data type uint8", 1},   {"data type bool", 1}};
  double bytes = 0;
  scan_text line = scan_line(t, shape);
  for (size_t i = 0; i < sizeof widths / sizeof *widths && bytes == 0; i++)
    if (scan_has(line, widths[i].type)) bytes = widths[i].width;
  int dims = 0;
  for (const char *p = shape; p < line.end && *p != ')';) {
    if (!isdigit((unsigned char)*p)) {
      p++;
      continue;
    }
    double dim = 0;
    for (; p < line.end && isdigit((unsigned char)*p); p++) dim = dim * 10 + (*p - '0');
    bytes *= dim;
    dims++;
  }
  return dims > 0 && bytes > 0 && bytes < 0x1p62 ? (uint64_t)bytes : MESSAGE_UNKNOWN;
}

static void read_numpy(message *m, scan_text t) {
  const char *at = scan_find(t, "Unable to allocate ");
  const char *shape = at != NULL ? scan_find(scan_from(t, at), "array with ") : NULL;
  m->asked_bytes = scan_size(t, at);
  if (shape == NULL) return;
  scan_copy(m->what, sizeof m->what, t, shape, "\"\n");
  const char *open = scan_find(scan_from(t, shape), "(");
  if (m->asked_bytes == MESSAGE_UNKNOWN && open != NULL) m->asked_bytes = array_bytes(t, open);
}

/* "Killed process 8123 (python3) total-vm:21474836kB, anon-rss:8123456kB, …" */
static void read_killed(message *m, scan_text t) {
  m->process_bytes = scan_size_after(t, "anon-rss:");
  m->grouped = message_kill_in_group(t);
  const char *process = scan_find(t, "Killed process ");
  if (process == NULL) process = scan_find(t, "Kill process ");
  const char *name = process != NULL ? scan_find(scan_from(t, process), "(") : NULL;
  if (name != NULL && name - process < 16) scan_copy(m->what, sizeof m->what, t, name, ")");
  /* systemd-oomd: "Killed /user.slice/…/app-code-41.scope due to memory used" */
  const char *unit = process == NULL ? scan_find(t, "Killed /") : NULL;
  if (unit == NULL) return;
  for (const char *p = unit; p < t.end && !isspace((unsigned char)*p); p++)
    if (*p == '/') unit = p + 1;
  scan_copy(m->what, sizeof m->what, t, unit, " \n");
}

/* systemd-oomd: "due to memory used (15905321984) / total (16537751552) and swap used (…) / total
 * (…)": the machine's, not the killed unit's. */
static void read_machine(message *m, scan_text t) {
  if (scan_has(t, "systemd-oomd") || scan_has(t, "due to memory pressure for /"))
    m->details |= MESSAGE_OOMD;
  const char *at = scan_find(t, "due to memory used (");
  uint64_t used = scan_size(t, at);
  uint64_t total = at != NULL ? scan_size_after(scan_line(t, at), "/ total (") : MESSAGE_UNKNOWN;
  if (used == MESSAGE_UNKNOWN || total == MESSAGE_UNKNOWN || used > total) return;
  m->device_bytes = total;
  m->free_bytes = total - used;
  m->details |= MESSAGE_MACHINE;
}

/* A DataLoader reports every end of a worker with the same words: an exception in the dataset, a
 * crash, a kill. Only a kill or a word about memory indicates memory. */
static void read_worker(message *m, scan_text t) {
  static const char *const signs[] = {"killed by signal: Killed",
                                      "SIGKILL",
                                      "code 137",
                                      "code: 137",
                                      "code -9",
                                      "code: -9",
                                      "OOM",
                                      "oom-kill",
                                      "oom_kill",
                                      "Killed process",
                                      "out of memory",
                                      "emory usage",
                                      "MemoryError",
                                      "bad_alloc",
                                      "shared memory"};
  if (!scan_has(t, "DataLoader worker (pid")) {
    m->details |= MESSAGE_EXECUTOR;
    if (scan_has(t, "ackground worker")) m->details |= MESSAGE_UNSURE;
    return;
  }
  for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
    if (scan_has(t, signs[i])) return;
  m->details |= MESSAGE_NO_SIGN;
}

/* "failed to allocate data of size 256.0 MiB (260.3 MiB/476.8 MiB used)", "could not allocate block
 * of 262144 bytes" */
static void read_database(message *m, scan_text rest) {
  static const char *const sizes[] = {"of size ", "block of ", "limit to "};
  scan_text line = scan_line(rest, rest.at);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes && m->asked_bytes == MESSAGE_UNKNOWN; i++)
    m->asked_bytes = scan_size_after(line, sizes[i]);
  m->process_bytes = scan_size_after(line, " (");
  const char *slash = scan_find(line, "B/");
  if (slash != NULL && scan_has(line, " used)")) m->limit_bytes = scan_size(line, slash);
}

/* "tcmalloc: large alloc 10066329600 bytes == 0x…", one line for each large request, failed or not:
 * the largest counts. */
static void read_large(message *m, scan_text t) {
  const char *at;
  for (; (at = scan_find(t, "tcmalloc: large alloc ")) != NULL; t = scan_from(t, at)) {
    uint64_t bytes = scan_size(t, at);
    bool first = m->asked_bytes == MESSAGE_UNKNOWN;
    if (bytes != MESSAGE_UNKNOWN && (first || bytes > m->asked_bytes)) m->asked_bytes = bytes;
  }
}

/* "Native memory allocation (mmap) failed to map 3221225472 bytes for committing reserved memory.",
 * "os::commit_memory(0x0000000700000000, 3221225472, 0) failed" */
static void read_java(message *m, scan_text t) {
  m->asked_bytes = scan_size_after(t, "failed to map ");
  if (m->asked_bytes == MESSAGE_UNKNOWN) m->asked_bytes = scan_size_after(t, "failed to allocate ");
  const char *at = scan_find(t, "os::commit_memory(");
  if (at != NULL && m->asked_bytes == MESSAGE_UNKNOWN)
    m->asked_bytes = scan_size_after(scan_line(t, at), ", ");
}

/* A watchdog kills a process that does not answer in time, and some guess "out of memory" then. */
static void read_timeout(message *m, scan_text t) {
  static const char *const signs[] = {"WORKER TIMEOUT", "DUE TO TIME LIMIT",
                                      "Watchdog caught collective"};
  static const char *const probes[] = {"iveness probe failed", "failed liveness probe",
                                       "tartup probe failed", "failed startup probe"};
  bool probe = scan_has_any(t, probes, sizeof probes / sizeof *probes);
  if (probe) m->details |= MESSAGE_PROBE;
  if (probe || scan_has_any(t, signs, sizeof signs / sizeof *signs)) m->details |= MESSAGE_TIMEOUT;
}

static void read_numbers(message *m, scan_text t, const char *at) {
  scan_text rest = scan_from(t, at);
  const char *second = m->host == HOST_KERNEL ? message_second_kill(t) : NULL;
  if (second != NULL && second > at) t.end = second; /* what follows is of the next one */
  switch (m->host) {
  case HOST_NUMPY: read_numpy(m, t); break;
  case HOST_TORCH: m->asked_bytes = scan_size_after(t, "you tried to allocate "); break;
  case HOST_KILLED: read_timeout(m, t); /* fall through */
  case HOST_KERNEL:
    read_killed(m, t);
    read_machine(m, t);
    break;
  case HOST_CONTAINER:
    if (!scan_has(t, "OOMKilled")) read_timeout(m, t); /* else the reason is known */
    if (scan_has(t, "137")) snprintf(m->what, sizeof m->what, "exit code 137");
    break;
  case HOST_JAVA: read_java(m, t); break;
  case HOST_MAPS: m->asked_bytes = scan_size(t, at); break;
  case HOST_PAGEFILE: m->asked_bytes = scan_size_after(t, "VirtualAlloc of "); break;
  case HOST_WORKER: read_worker(m, t); break;
  case HOST_DASK:
    if (scan_has(t, "KilledWorker") && !scan_has(t, "emory budget") &&
        !scan_has(t, "emory limit") && !scan_has(t, "memory use is high"))
      m->details |= MESSAGE_UNSURE;
    break;
  case HOST_JOB: m->limit_bytes = scan_size_after(t, "exceeded limit "); break;
  case HOST_DATABASE: read_database(m, rest); break;
  case HOST_NOTEBOOK:
  case HOST_DIED:
  case HOST_LARGE: read_large(m, t); break;
  case HOST_PYTHON:
    if (scan_has((scan_text){t.at, at}, "vector memory limit of")) { /* R's, not the request */
      m->limit_bytes = scan_size(t, at);
      break;
    }
    m->asked_bytes = scan_size(t, at);
    if (m->asked_bytes == MESSAGE_UNKNOWN)
      m->asked_bytes = scan_size_after(rest, "malloc of size ");
    if (m->asked_bytes == MESSAGE_UNKNOWN) m->asked_bytes = scan_size_after(rest, "block of size ");
    if (m->asked_bytes == MESSAGE_UNKNOWN) /* OpenCV */
      m->asked_bytes = scan_size_after(scan_line(t, at), "Failed to allocate ");
    break;
  default: break;
  }
  message_limits(m, t);
  /* The Python package's own line: "host memory in all: 2.0 GiB, the limit of
   * stowage.limit(ram=…); the machine has 24.0 GiB" */
  m->host_bytes = scan_size_after(t, "host memory in all: ");
  uint64_t machine = scan_size_after(t, ", the limit of stowage.limit(ram=…); the machine has ");
  if (m->host_bytes != MESSAGE_UNKNOWN && machine != MESSAGE_UNKNOWN) {
    m->details |= MESSAGE_ENABLED;
    if (m->asked_bytes < machine / 10 * 9) m->details |= MESSAGE_BEYOND;
  }
  /* report.py's own line, after the error of a program that stowage run watched */
  uint64_t own = scan_size_after(t, " of the process is limited to ");
  if (own == MESSAGE_UNKNOWN) return;
  m->limit_bytes = own;
  m->details |= MESSAGE_RLIMIT;
}

/* Returns whether the line of a kill names a compiler, as cargo's does: "process didn't exit
 * successfully: `rustc --crate-name x` (signal: 9, SIGKILL: kill)". */
static bool is_compiler(scan_text line) {
  static const char *const names[] = {"rustc ", "cc1plus", "nvcc ", "swiftc ", "ghc "};
  return scan_has_any(line, names, sizeof names / sizeof *names);
}

/* Returns whether the text is of a build whose compilers run at once under ninja or make: a bare
 * "Killed" there is a compiler's. */
static bool is_build(scan_text t) {
  static const char *const signs[] = {"ninja: build stopped", "Failed building wheel",
                                      "Could not build wheels",
                                      "Error compiling objects for extension"};
  static const char *const tools[] = {"nvcc", "g++", "gcc", "c++ ", "clang", "cicc", "FAILED: "};
  return scan_has_any(t, signs, sizeof signs / sizeof *signs) &&
         scan_has_any(t, tools, sizeof tools / sizeof *tools);
}

bool message_names_kill(scan_text line) {
  static const char *const words[] = {"Killed", "signal 9", "signal: 9"};
  return scan_has_any(line, words, sizeof words / sizeof *words);
}

/* R's message in the language of its user; the English one is in the table. */
static bool read_r(message *m, scan_text t, const char **where) {
  const char *start = NULL;
  uint64_t bytes = language_r_vector(t, &start);
  if (bytes == SCAN_UNKNOWN) return false;
  m->kind = MESSAGE_HOST;
  m->host = HOST_PYTHON;
  m->failures = 1;
  m->asked_bytes = bytes;
  if (where != NULL) *where = start;
  return true;
}

bool message_host_memory(message *m, scan_text t, bool sure, const char **where) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const struct row *r = &table[i];
    const char *start = NULL, *after;
    if (((r->flags & SURE) != 0) != sure) continue;
    after = (r->flags & WORD) != 0 ? scan_find_word(t, r->words, &start)
                                   : scan_find_at(t, r->words, &start);
    if (after == NULL) continue;
    m->kind = MESSAGE_HOST;
    m->host = r->host;
    m->failures = r->host == HOST_KERNEL ? message_killed_processes(t)
                  : r->host == HOST_CONTAINER && (r->flags & SURE) == 0
                      ? message_killed_containers(t)
                      : 1;
    if (where != NULL) *where = start;
    if (r->host == HOST_COMPILER && !message_names_kill(scan_line(t, start)))
      m->details |= MESSAGE_RAN_OUT;
    if ((r->host == HOST_CONTAINER || r->host == HOST_KILLED) && (r->flags & SURE) == 0 &&
        message_container_spared(t)) {
      m->host = HOST_KILLED;
      m->failures = 1;
      m->details |= MESSAGE_SPARED;
    }
    if (r->host == HOST_KILLED && (is_compiler(scan_line(t, start)) || is_build(t)))
      m->host = HOST_COMPILER;
    read_numbers(m, t, after);
    return true;
  }
  return sure && read_r(m, t, where);
}

const char *message_kill_in(scan_text t) {
  const char *first = NULL;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const struct row *r = &table[i];
    const char *start = NULL, *after = NULL;
    bool kill = r->host == HOST_KILLED || r->host == HOST_CONTAINER || r->host == HOST_DIED;
    if (kill && (r->flags & SURE) == 0)
      after = (r->flags & WORD) != 0 ? scan_find_word(t, r->words, &start)
                                     : scan_find_at(t, r->words, &start);
    if (after == NULL) continue;
    first = start;
    t.end = start; /* only an earlier one counts */
  }
  return first;
}

bool message_only_word(message_host host) {
  return host == HOST_PYTHON || host == HOST_NUMPY || host == HOST_TORCH || host == HOST_COMPILER;
}
