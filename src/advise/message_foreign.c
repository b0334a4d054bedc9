/* Errors that look like a shortage of memory, or come with one, and are something else: named, with
 * one line of help. */
#include <string.h>

#include "advise/message_parts.h"

#define QUOTA "a service refused the call, because its quota is used up"
#define QUOTA_HELP                                                                                 \
  "it is not memory: wait and try again more slowly, ask the service for a higher quota, or "      \
  "check "                                                                                         \
  "the plan and its billing"

#define FILES_NAME "too many files are open"
#define FILES_HELP "ulimit -n 65536, or torch.multiprocessing.set_sharing_strategy('file_system')"

static const struct {
  const char *words, *name, *help;
} table[] = {
    {"java.lang.OutOfMemoryError", "Java's own heap is full",
     "raise it: java -Xmx8g …; for Spark: spark-submit --driver-memory 8g --executor-memory 8g"},
    {"Java heap space", "Java's own heap is full",
     "raise it: java -Xmx8g …; for Spark: spark-submit --driver-memory 8g --executor-memory 8g"},
    {"GC overhead limit exceeded", "Java's own heap is full", "raise it: java -Xmx8g …"},
    {"JavaScript heap out of memory", "Node.js's own heap is full",
     "raise it: NODE_OPTIONS=--max-old-space-size=8192 (MiB) before the command"},
    {"Allowed memory size of", "PHP's memory_limit is reached",
     "raise it: php -d memory_limit=1G …"},
    {"System.OutOfMemoryException", ".NET's own heap could not grow",
     "run a 64-bit process, and hold less at once"},
    {"JVM heap space", "the heap of Gradle's Java process is full",
     "raise it: org.gradle.jvmargs=-Xmx4g in gradle.properties, and kotlin.daemon.jvmargs=-Xmx2g"},
    {"exceeded your current quota", QUOTA, QUOTA_HELP},
    {"QuotaFailure", QUOTA, QUOTA_HELP},
    {"insufficient_quota", QUOTA, QUOTA_HELP},
    {"Quota exceeded for quota metric", QUOTA, QUOTA_HELP},
    {"Resource has been exhausted (e.g. check quota)", QUOTA, QUOTA_HELP},
    {"Disk quota exceeded", "the quota of the disk is used up",
     "free space in that folder, or choose another one: quota -s, du -sh DIRECTORY"},
    {"OOM command not allowed", "Redis has reached its maxmemory",
     "raise maxmemory in redis.conf, or set an eviction policy"},
    {"illegal memory access", "a GPU program read or wrote a wrong address",
     "it is a bug, not a shortage: run once with CUDA_LAUNCH_BLOCKING=1, or under "
     "compute-sanitizer"},
    {"CUDA_ERROR_ILLEGAL_ADDRESS", "a GPU program read or wrote a wrong address",
     "it is a bug, not a shortage: run once with CUDA_LAUNCH_BLOCKING=1, or under "
     "compute-sanitizer"},
    {"Memory access fault by GPU node", "a GPU program read or wrote a wrong address",
     "it is a bug, not a shortage: update ROCm, or run once with AMD_SERIALIZE_KERNEL=3"},
    {"misaligned address", "a GPU program used a misaligned address",
     "it is a bug, not a shortage: run under compute-sanitizer"},
    {"< n_classes` failed", "a label is out of range (an assertion on the GPU failed)",
     "labels must be 0 to n_classes - 1: print labels.min(), labels.max() and the size of the last "
     "layer; run once with CUDA_LAUNCH_BLOCKING=1"},
    {"srcIndex < srcSelectDimSize", "an index is out of range (an assertion on the GPU failed)",
     "most often a token or position beyond an embedding's size: compare ids.max() with "
     "num_embeddings; run once with CUDA_LAUNCH_BLOCKING=1"},
    {"index out of bounds\"` failed", "an index is out of range (an assertion on the GPU failed)",
     "run once with CUDA_LAUNCH_BLOCKING=1, or on the CPU, which names the line"},
    {"device-side assert triggered", "an assertion on the GPU failed",
     "most often an index or a label out of range: run once with CUDA_LAUNCH_BLOCKING=1"},
    {"unspecified launch failure", "a GPU program crashed",
     "it is a bug, not a shortage: run under compute-sanitizer"},
    {"CUDA_ERROR_LAUNCH_FAILED", "a GPU program crashed",
     "it is a bug, not a shortage: run under compute-sanitizer"},
    {"kIOGPUCommandBufferCallbackErrorImpactingInteractivity",
     "macOS stopped a GPU program that held up the screen",
     "it is not a shortage: smaller steps (a lower resolution, fewer frames or tokens at once)"},
    {"kIOGPUCommandBufferCallbackErrorTimeout", "macOS stopped a GPU program that took too long",
     "it is not a shortage: smaller steps (a lower resolution, fewer frames or tokens at once)"},
    {"out of resource: shared memory",
     "a GPU program asks for more on-chip shared memory than this GPU has",
     "it is not the device's memory: smaller block sizes or num_stages in the Triton kernel, or a "
     "version of the library for this GPU"},
    {"too many resources requested for launch", "a GPU program asks for too many registers",
     "use fewer threads a block, or a build for this device"},
    {"no kernel image is available", "the library was not built for this GPU",
     "install a build for this device's compute capability"},
    {"driver version is insufficient", "the NVIDIA driver is too old for this CUDA version",
     "update the driver, or install a build for an older CUDA"},
    {"forward compatibility was attempted", "the NVIDIA driver does not match the CUDA version",
     "update the driver, or install a build for an older CUDA"},
    {"invalid device ordinal", "a GPU was named that is not there",
     "nvidia-smi -L lists the GPUs; check CUDA_VISIBLE_DEVICES"},
    {"invalid resource handle", "a GPU handle was used on the wrong device",
     "it is not a shortage: check which device each tensor and stream is on"},
    {"uncorrectable ECC error", "the GPU's memory has a hardware error",
     "nvidia-smi -q -d ECC shows it; reset the GPU or have it replaced"},
    {"has fallen off the bus", "the GPU is gone from the bus",
     "a hardware or power problem: nvidia-smi -q, dmesg | grep -i xid"},
    {"Torch not compiled with CUDA enabled", "this PyTorch has no CUDA",
     "install the CUDA build of PyTorch"},
    {"Expected all tensors to be on the same device", "tensors are on different devices",
     "move them to one: x.to(model.device)"},
    {"not enough space: expected", "a buffer of the wrong size was given to ONNX Runtime",
     "it is not a shortage: check the model's output shapes"},
    {"Received message larger than max", "a gRPC message is larger than its limit",
     "raise grpc.max_receive_message_length, or send less at once"},
    {"Quota exceeded", "a cloud quota is used up", "it is not memory: wait, or ask for more quota"},
    {"check quota", "a cloud quota is used up", "it is not memory: wait, or ask for more quota"},
    {"received 0 items of ancdata", FILES_NAME, FILES_HELP},
    {"Too many open files", FILES_NAME, FILES_HELP},
    {"No space left on device", "a disk is full",
     "df -h shows which; TMPDIR and the cache folders can be moved"},
    {"Disk quota exceeded", "a disk quota is used up", "quota -s, du -sh ~/.cache"},
    {"maximum recursion depth exceeded", "Python's recursion limit is reached",
     "it is not a shortage of memory: look for a function that calls itself without end"},
    {"CUBLAS_STATUS_EXECUTION_FAILED", "a cuBLAS call failed for another reason than memory",
     "run once with CUDA_LAUNCH_BLOCKING=1: the first error is often an index out of range"},
    {"CUBLAS_STATUS_INVALID_VALUE", "cuBLAS was called with wrong sizes",
     "two cuBLAS versions may be loaded: unset LD_LIBRARY_PATH"},
    {"CUDNN_STATUS_EXECUTION_FAILED", "a cuDNN call failed for another reason than memory",
     "check that cuDNN, CUDA and the driver fit each other"},
    {"CUDNN_STATUS_NOT_SUPPORTED", "cuDNN does not support this operation",
     "x.contiguous() before it, or torch.backends.cudnn.enabled = False"},
    {"CUDNN_STATUS_BAD_PARAM", "cuDNN was called with wrong sizes", "check the shapes and types"},
    {"CUDNN_STATUS_MAPPING_ERROR", "a cuDNN call failed for another reason than memory",
     "run once with CUDA_LAUNCH_BLOCKING=1"},
    {"ncclUnhandledCudaError", "NCCL failed for another reason than memory",
     "run with NCCL_DEBUG=INFO: the first WARN line has the reason"},
    {"ncclSystemError", "NCCL failed for another reason than memory",
     "run with NCCL_DEBUG=INFO: the first WARN line has the reason"},
    {"ncclInvalidUsage", "NCCL was called wrongly",
     "run with NCCL_DEBUG=INFO; two ranks on one GPU are a frequent reason"},
    {"NCCL error", "NCCL failed for another reason than memory",
     "run with NCCL_DEBUG=INFO: the first WARN line has the reason"},
    {"Segmentation fault", "the program crashed on a wrong address",
     "it is a bug, not a shortage: python -X faulthandler shows the line"},
    {"SIGSEGV", "the program crashed on a wrong address",
     "it is a bug, not a shortage: python -X faulthandler shows the line"},
    {"double free or corruption", "the program corrupted its heap",
     "it is a bug, not a shortage: run it under valgrind or with AddressSanitizer"},
    {"size mismatch for", "a checkpoint does not fit the model's shapes",
     "build the model with the sizes it was saved with"},
};

/* Reads PostgreSQL's request and what it was for: "Failed on request of size 147849216 in memory
 * context …", then "CONTEXT: automatic vacuum of table …". */
static void read_postgres(message *m, scan_text t) {
  static const struct {
    const char *words, *name, *help;
  } uses[] = {
      {"automatic vacuum of table", "PostgreSQL could not get memory for autovacuum",
       "lower autovacuum_work_mem (or maintenance_work_mem, which it uses by default) and "
       "autovacuum_max_workers, each of which takes that much; or more RAM for the server"},
      {"automatic analyze of table", "PostgreSQL could not get memory for autovacuum",
       "lower autovacuum_work_mem (or maintenance_work_mem, which it uses by default), and the "
       "column's statistics target; or more RAM for the server"},
      {"CREATE INDEX", "PostgreSQL could not get memory to build an index",
       "lower maintenance_work_mem and max_parallel_maintenance_workers; or more RAM for the "
       "server"},
      {"REINDEX", "PostgreSQL could not get memory to build an index",
       "lower maintenance_work_mem and max_parallel_maintenance_workers; or more RAM for the "
       "server"},
      {"VACUUM", "PostgreSQL could not get memory for VACUUM",
       "lower maintenance_work_mem and the number of parallel workers; or more RAM for the server"},
  };
  const char *at = scan_find(t, "Failed on request of size");
  m->asked_bytes = scan_size(t, at);
  for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
    if (scan_has(scan_from(t, at), uses[i].words)) {
      m->name = uses[i].name;
      m->help = uses[i].help;
      return;
    }
}

/* Tensors that processes share are files: the limit on open files looks like a full /dev/shm, or
 * ends a worker. */
static bool is_out_of_files(scan_text t) {
  message m = message_blank();
  if (!scan_has(t, "Too many open files") && !scan_has(t, "received 0 items of ancdata"))
    return false;
  if (!message_host_memory(&m, t, true, NULL)) return false; /* message_foreign names it */
  return m.host == HOST_SHARED || m.host == HOST_MAPS ||
         (m.host == HOST_WORKER && (m.details & (MESSAGE_NO_SIGN | MESSAGE_UNSURE)) != 0);
}

/* Words that only look like a shortage, or are one of a program with its own heap. */
bool message_lookalike(message *m, scan_text t) {
  static const struct {
    const char *words, *without, *name, *help;
    uint32_t details;
  } alike[] = {
      {"AndroidRuntime: java.lang.OutOfMemoryError", NULL, "the heap of an Android app is full",
       "smaller bitmaps (BitmapFactory.Options.inSampleSize), and only those that are shown; the "
       "Memory Profiler names what leaks; android:largeHeap=\"true\" only helps for a while",
       0},
      {"Failed on request of size", NULL, "PostgreSQL could not get memory for a query",
       "lower work_mem and hash_mem_multiplier (each sort and hash of a query takes that much), "
       "fewer connections; or more RAM for the server, of which shared_buffers takes a quarter",
       MESSAGE_SERVER},
      {"allocate memory for the buffer pool", NULL, "MySQL could not get its buffer pool",
       "a smaller innodb_buffer_pool_size (70% of the server's free RAM at most), or more RAM for "
       "it",
       MESSAGE_SERVER},
      {"command not allowed when used memory >", NULL, "Redis has reached its maxmemory",
       "raise maxmemory in redis.conf, or set an eviction policy", MESSAGE_SERVER},
      {"MEMORY_LIMIT_EXCEEDED", NULL, "ClickHouse reached its limit for a query or for the server",
       "SET max_memory_usage higher, or max_bytes_before_external_group_by and "
       "max_bytes_before_external_sort, which spill to disk",
       MESSAGE_SERVER},
      {"insufficient system memory in resource pool", NULL, "SQL Server reached its memory limit",
       "raise max server memory, or give the query less at once", MESSAGE_SERVER},
      {"circuit_breaking_exception", NULL, "Elasticsearch's heap is nearly full",
       "smaller requests and aggregations, or a larger heap: ES_JAVA_OPTS=\"-Xms4g -Xmx4g\"",
       MESSAGE_SERVER},
      {"static TLS block", NULL, "a library was loaded too late for its thread-local storage",
       "import it first, or LD_PRELOAD the library that the message names", 0},
      {"exit codes of the workers are {SIGSEGV", "SIGKILL",
       "a worker process crashed on a wrong "
       "address",
       "it is a bug, not a shortage: run it with n_jobs=1 under python -X faulthandler, which "
       "shows "
       "the line; update the library that it names",
       0},
      {"exit codes of the workers are {SIGABRT", "bad_alloc",
       "a worker process ended itself (abort)",
       "most often a failed check in a library: run it with n_jobs=1, which shows the message", 0},
      {"exit codes of the workers are {SIGILL", "SIGKILL",
       "a worker process used an instruction that this CPU does not have",
       "install a build of the library for this CPU", 0},
      {"is killed by signal: Segmentation fault", "killed by signal: Killed",
       "a DataLoader worker crashed on a wrong address",
       "it is a bug, not a shortage: python -X faulthandler, with DataLoader(num_workers=0), shows "
       "the line",
       0},
  };
  if (is_out_of_files(t)) {
    m->kind = MESSAGE_FOREIGN;
    m->name = FILES_NAME;
    m->help = FILES_HELP;
    return true;
  }
  for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
    if (!scan_has(t, alike[i].words) || (alike[i].without != NULL && scan_has(t, alike[i].without)))
      continue;
    m->kind = MESSAGE_FOREIGN;
    m->name = alike[i].name;
    m->help = alike[i].help;
    m->details |= alike[i].details;
    if (scan_starts((scan_text){alike[i].words, alike[i].words + strlen(alike[i].words)},
                    "Failed on request"))
      read_postgres(m, t);
    return true;
  }
  return false;
}

bool message_other(message *m, scan_text t) {
  static const struct {
    const char *words, *name, *help;
  } others[] = {
      {"Watchdog caught collective operation timeout", "NCCL waited too long for the other ranks",
       "one rank is late, hangs or ended: look at the first error of every rank; "
       "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 records the calls; init_process_group(timeout=…) waits "
       "longer"},
      {"DUE TO TIME LIMIT", "the job reached its time limit",
       "ask for more time: #SBATCH --time=24:00:00, and save checkpoints to go on from"},
      {"PBS: job killed: walltime", "the job reached its time limit",
       "ask for more time: #PBS -l walltime=24:00:00, and save checkpoints to go on from"},
      {"TERM_RUNLIMIT", "the job reached its time limit",
       "ask for more time: #BSUB -W 24:00, and save checkpoints to go on from"},
      {"river/library version mismatch", "the NVIDIA driver was updated while its old one runs",
       "restart the machine (or unload and load the nvidia modules: sudo rmmod nvidia_uvm nvidia)"},
      {"NVIDIA-SMI has failed because it couldn't communicate", "the NVIDIA driver does not run",
       "install the driver for this kernel again, and restart: dkms status, dmesg | grep -i "
       "nvidia"},
      {"file descriptors: ", FILES_NAME,
       "raise the limit before the program starts: ulimit -n 65536; a fence or semaphore of Vulkan "
       "needs a file descriptor, and OUT_OF_HOST_MEMORY is what it reports then"},
      {"DO NOT MATCH THE HASHES", "a downloaded package is not the one that was expected",
       "pip cache purge and try again; if it stays, update the hashes in the requirements file"},
      {"No matching distribution found", "pip found no package for this Python or system",
       "check the name, the version and python --version; wheels exist only for some of them"},
      {"CUDA initialization: ", "CUDA could not start",
       "nvidia-smi shows whether the driver works; its version must fit PyTorch's CUDA"},
  };
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (!scan_has(t, others[i].words)) continue;
    m->kind = MESSAGE_FOREIGN;
    m->name = others[i].name;
    m->help = others[i].help;
    return true;
  }
  return false;
}

bool message_foreign(message *m, scan_text t, const char **where) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (scan_find_at(t, table[i].words, where) == NULL) continue;
    m->kind = MESSAGE_FOREIGN;
    m->name = table[i].name;
    m->help = table[i].help;
    return true;
  }
  return false;
}
