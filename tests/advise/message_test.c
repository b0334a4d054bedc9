/* Reads the numbers in error texts of each framework. */
#include <stdlib.h>

#include "advise/explain.h"
#include "harness.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static message read_text(const char *text) {
  message m;
  message_read(&m, text, strlen(text));
  return m;
}

static bool near(uint64_t bytes, double gib) {
  double off = (double)bytes / (double)GIB - gib;
  return bytes != MESSAGE_UNKNOWN && off < 0.006 && off > -0.006;
}

TEST(torch_text_of_today)
{
  message m = read_text("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 "
                        "has a total capacity of "
                        "139.80 GiB of which 1.12 GiB is free. Including non-PyTorch memory, this "
                        "process has 18.16 GiB "
                        "memory in use. Process 728 has 120.51 GiB memory in use. Process 91 has "
                        "512.00 MiB memory in "
                        "use. Of the allocated memory 17.38 GiB is allocated by PyTorch, and 54.58 "
                        "MiB is reserved by "
                        "PyTorch but unallocated.");
  CHECK(m.kind == MESSAGE_TORCH);
  CHECK_U64(m.asked_bytes, 2 * GIB);
  CHECK(near(m.device_bytes, 139.80) && near(m.free_bytes, 1.12) && near(m.process_bytes, 18.16));
  CHECK_U64(m.process_count, 2);
  CHECK_U64(m.processes[0].pid, 728);
  CHECK(near(m.processes[0].bytes, 120.51));
  CHECK_U64(m.processes[1].bytes, 512 * MIB);
  CHECK(near(m.live_bytes, 17.38));
  CHECK_U64(m.limit_bytes, MESSAGE_UNKNOWN);
  CHECK_U64(m.device, 0);
}

TEST(torch_limit_stands_before_its_word)
{
  message m =
      read_text("CUDA out of memory. Tried to allocate 64.00 MiB. GPU 1 has a total capacity of "
                "139.80 GiB of which 135.77 GiB is free. Including non-PyTorch memory, this "
                "process has 4.02 GiB memory in use. 3.30 GiB allowed; Of the allocated memory "
                "3.27 GiB is allocated by PyTorch, and 31.15 MiB is reserved by PyTorch but "
                "unallocated.");
  CHECK(near(m.limit_bytes, 3.30));
  CHECK_U64(m.device, 1);
  m = read_text(
      "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139.80 GiB "
      "of which 138.50 GiB is free. Including non-PyTorch memory, this process has 1.20 GiB "
      "memory in use. 480.62 MiB allowed; Of the allocated memory 400.00 MiB is allocated by "
      "PyTorch, and 0 bytes is reserved by PyTorch but unallocated.");
  CHECK_U64(m.limit_bytes >> 20, 480);
  CHECK_U64(m.cached_bytes, 0);
}

TEST(torch_text_of_old)
{
  message m = read_text(
      "RuntimeError: CUDA out of memory. Tried to allocate 26.00 MiB (GPU 0; 15.78 GiB total "
      "capacity; 14.21 GiB already allocated; 24.75 MiB free; 14.42 GiB reserved in "
      "total by PyTorch) If reserved memory is >> allocated memory try setting "
      "max_split_size_mb");
  CHECK(m.kind == MESSAGE_TORCH);
  CHECK_U64(m.asked_bytes, 26 * MIB);
  CHECK(near(m.device_bytes, 15.78) && near(m.live_bytes, 14.21) && near(m.reserved_bytes, 14.42));
  CHECK_U64(m.free_bytes, 24 * MIB + 3 * MIB / 4);
  CHECK(near(m.cached_bytes, 0.21));
}

/* Before 1.4 the last number was what is cached and not allocated. */
TEST(torch_text_of_first_versions)
{
  message m = read_text("RuntimeError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 1; "
                        "10.92 GiB total capacity; 10.12 GiB already allocated; 18.94 MiB free; "
                        "225.85 MiB cached)");
  CHECK(near(m.live_bytes, 10.12) && near(m.cached_bytes, 0.2206));
  CHECK_U64(m.reserved_bytes, MESSAGE_UNKNOWN);
}

/* 2.0 to 2.2 misspell the word; in a container the process itself is listed among the others. */
TEST(torch_own_process_is_not_another)
{
  static const char text[] =
      "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a "
      "total capacty of 23.69 GiB of which 340.06 MiB is free. Process 41213 has 14.20 GiB memory "
      "in use. Process 50877 has 9.14 GiB memory in use. Of the allocated memory 8.43 GiB is "
      "allocated by PyTorch, and 122.31 MiB is reserved by PyTorch but unallocated.";
  message m = read_text(text);
  CHECK(near(m.device_bytes, 23.69) && near(m.process_bytes, 9.14));
  CHECK_U64(m.process_count, 1);
  CHECK_U64(m.processes[0].pid, 41213);
  explanation x;
  CHECK_U64((uint64_t)explain_message(&x, text, strlen(text)), STOW_OK);
  CHECK(x.findings.list[0].id == CAUSE_OTHER_PROCESS);
  CHECK(near(x.evidence.n.other_process_bytes, 14.20));
  explanation_free(&x);
}

TEST(a_device_smaller_than_what_is_held_on_it_is_a_limit)
{
  static const char text[] =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total "
      "capacity of 4.00 GiB of which 120.00 MiB is free. Process 4711 has 30.00 GiB memory in use. "
      "Including non-PyTorch memory, this process has 3.88 GiB memory in use. Of the allocated "
      "memory 3.20 GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but "
      "unallocated.";
  explanation x;
  CHECK_OK(explain_message(&x, text, strlen(text)));
  for (size_t i = 0; i < x.findings.count; i++) CHECK(x.findings.list[i].id != CAUSE_OTHER_PROCESS);
  CHECK(near(x.evidence.n.limit_bytes, 4.00));
  CHECK_U64(x.evidence.n.device_bytes, MESSAGE_UNKNOWN);
  explanation_free(&x);
}

TEST(torch_text_of_apple)
{
  message m =
      read_text("RuntimeError: MPS backend out of memory (MPS allocated: 17.21 GiB, other "
                "allocations: 412.33 "
                "MiB, max allowed: 18.13 GiB). Tried to allocate 1.22 GiB on private pool.");
  CHECK(m.kind == MESSAGE_TORCH && m.no_history);
  CHECK(near(m.live_bytes, 17.21) && near(m.limit_bytes, 18.13) && near(m.asked_bytes, 1.22));
}

TEST(xla_buffers_name_the_line)
{
  message m = read_text(
      "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967424 bytes.\n"
      "BufferAssignment OOM Debugging.\n"
      "     preallocated temp allocation:    4.00GiB\n"
      "Peak buffers:\n\tBuffer 1:\n\t\tSize: 2.00GiB\n"
      "\t\tOperator: op_name=\"jit(attend)/dot_general\" source_file=\"attend.py\" source_line=17\n"
      "\tBuffer 2:\n\t\tSize: 1.00GiB\n\t\tOperator: op_name=\"jit(attend)/add\"\n");
  CHECK(m.kind == MESSAGE_XLA);
  CHECK_U64(m.temporary_bytes, 4 * GIB);
  CHECK_U64(m.largest_bytes, 2 * GIB);
  CHECK_TEXT(m.what, "jit(attend)/dot_general at attend.py:17");
}

TEST(cupy_spike_is_distinguished_from_a_full_pool)
{
  static const struct {
    const char *text;
    cause_id id;
  } texts[] = {{"cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 40,000,000,000 bytes "
                "(allocated so far: 1,073,741,824 bytes).",
                CAUSE_ONE_SPIKE},
               {"cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000,000,000 bytes "
                "(allocated so far: 9,600,001,024 bytes, limit set to: 12,000,000,000 bytes).",
                CAUSE_LIMIT}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    explanation x;
    CHECK_U64((uint64_t)explain_message(&x, texts[i].text, strlen(texts[i].text)), STOW_OK);
    CHECK(x.findings.list[0].id == texts[i].id);
    explanation_free(&x);
  }
}

TEST(texts_that_look_like_others_are_distinguished)
{
  message m = read_text(
      "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 23.65 GiB of "
      "which 512.00 MiB is free. Of the allocated memory 20.12 GiB is allocated by PyTorch, with "
      "512.00 MiB allocated in private pools (e.g., CUDA Graphs), and 1.50 GiB is reserved by "
      "PyTorch but unallocated.");
  CHECK_U64(m.cached_bytes, UINT64_C(3) << 29);
  m = read_text(
      "[E:onnxruntime:, sequential_executor.cc:514] bfc_arena.cc:376 "
      "onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for requested "
      "buffer of size 536870912");
  CHECK(m.kind == MESSAGE_ONNX);
  CHECK_U64(m.asked_bytes, UINT64_C(1) << 29);
  m = read_text("external/xla/tensorflow/tsl/framework/bfc_allocator.cc:497] jaxlib: "
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1024 bytes.");
  CHECK(m.kind == MESSAGE_XLA);
  m = read_text(
      "tensorflow/tsl/framework/bfc_allocator.cc:485] Allocator (GPU_0_bfc) ran out of memory "
      "trying to allocate 1.53GiB (rounded to 1644167168)requested by op Relu");
  CHECK_U64(m.asked_bytes, 1644167168);
  m = read_text("Your notebook tried to allocate more memory than is available. It has restarted.");
  CHECK(m.kind == MESSAGE_HOST && m.host == HOST_NOTEBOOK);
}

/* Causes from a text without enough numbers: the confidence stays below 0.8. */
TEST(first_cause_of_a_text_is_what_it_says_most_about)
{
  static const struct {
    const char *text;
    cause_id id;
  } texts[] = {
      {"RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12884901888 bytes.\n"
       "parameter allocation: 3.00GiB\nmaybe_live_out allocation: 1.50GiB\n"
       "preallocated temp allocation: 12.00GiB\nPeak buffers:\nBuffer 1:\nSize: 8.00GiB\n"
       "Operator: op_name=\"jit(step)/dot_general\" source_file=\"vit.py\" source_line=77\n"
       "Buffer 2:\nSize: 3.00GiB\n",
       CAUSE_ONE_SPIKE},
      {"RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes.\n"
       "parameter allocation: 14.00GiB\npreallocated temp allocation: 2.00GiB\n",
       CAUSE_WEIGHTS_TOO_BIG},
      {"ResourceExhaustedError: OOM when allocating tensor with shape[512,256,56,56] and type "
       "float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
       CAUSE_BATCH_TOO_BIG},
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a "
       "total capacity of 79.25 GiB of which 66.81 GiB is free. Including non-PyTorch memory, this "
       "process has 12.43 GiB memory in use. 11.89 GiB allowed; Of the allocated memory 11.42 GiB "
       "is allocated by PyTorch, and 77.31 MiB is reserved by PyTorch but unallocated.",
       CAUSE_LIMIT}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    explanation x;
    CHECK_OK(explain_message(&x, texts[i].text, strlen(texts[i].text)));
    CHECK(x.findings.list[0].id == texts[i].id);
    CHECK(x.findings.list[0].confidence < 0.8);
    explanation_free(&x);
  }
}

TEST(kernel_kills_are_read)
{
  message m =
      read_text("Memory cgroup out of memory: Killed process 8123 (python3) total-vm:21474836kB, "
                "anon-rss:8388608kB, file-rss:12kB, shmem-rss:0kB");
  CHECK(m.host == HOST_KERNEL && m.grouped);
  CHECK_U64(m.process_bytes, 8 * GIB);
  CHECK_TEXT(m.what, "python3");
  m = read_text("Out of memory: Killed process 2211 (python) total-vm:70123456kB, "
                "anon-rss:1048576kB");
  CHECK(m.host == HOST_KERNEL && !m.grouped);
  CHECK_U64(m.process_bytes, GIB);
}

TEST(limit_of_the_process_itself_is_first)
{
  static const char text[] =
      "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 488. MiB for an array with "
      "shape (8000, 8000) and data type float64\nthe address space of the process is limited to "
      "734003200 bytes\n";
  explanation x;
  CHECK_U64((uint64_t)explain_message(&x, text, strlen(text)), STOW_OK);
  CHECK(x.findings.list[0].id == CAUSE_HOST_LIMIT);
  CHECK_U64(x.evidence.n.limit_bytes, 700 * MIB);
  CHECK(strstr(x.fixes.list[0].change, "ulimit -v") != NULL);
  explanation_free(&x);
}

TEST(libraries_of_cuda_and_cpp_are_known)
{
  CHECK(read_text("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
            .kind == MESSAGE_CUDA);
  CHECK(read_text("terminate called after throwing an instance of 'std::bad_alloc'").host ==
        HOST_PYTHON);
  CHECK(read_text("The kernel appears to have died. It will restart automatically.").host ==
        HOST_DIED);
}

TEST(jax_text)
{
  message m = read_text(
      "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying "
      "to allocate 17179869184 bytes.");
  CHECK(m.kind == MESSAGE_XLA);
  CHECK_U64(m.asked_bytes, 16 * GIB);
}

TEST(tensorflow_shape_gives_the_bytes)
{
  message m = read_text(
      "ResourceExhaustedError: OOM when allocating tensor with shape[1000,1000,1000] and type "
      "float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc");
  CHECK(m.kind == MESSAGE_TENSORFLOW);
  CHECK_U64(m.asked_bytes, UINT64_C(4000000000));
  CHECK_TEXT(m.what, "1000,1000,1000");
  m = read_text(
      "OOM when allocating tensor with shape[4,8] and type double on GPU:0 ResourceExhaustedError");
  CHECK_U64(m.asked_bytes, 256);
}

/* Counts chunks and computes holes: 3 MiB free in two pieces, the larger 2 MiB. */
TEST(bfc_dump_is_counted)
{
  message m = read_text(
      "W bfc_allocator.cc:482] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.50MiB "
      "(rounded to 2621440)requested by op MatMul\n"
      "I bfc_allocator.cc:1046] Bin (256): \tTotal Chunks: 13, Chunks in use: 13. 3.2KiB allocated "
      "for chunks. 3.2KiB in use in bin. 104B client-requested in use in bin.\n"
      "I bfc_allocator.cc:1075] Next region of size 8388608\n"
      "I bfc_allocator.cc:1095] InUse at 7f3c00000000 of size 4194304 next 1\n"
      "I bfc_allocator.cc:1095] Free  at 7f3c00400000 of size 2097152 next 2\n"
      "I bfc_allocator.cc:1095] InUse at 7f3c00600000 of size 1048576 next 3\n"
      "I bfc_allocator.cc:1095] Free  at 7f3c00700000 of size 1048576 next 18446744073709551615\n"
      "I bfc_allocator.cc:1107] Sum Total of in-use chunks: 5.00MiB\n"
      "I bfc_allocator.cc:1114] Stats: \n"
      "Limit:                         8388608\n"
      "InUse:                         5242880\n");
  CHECK_U64(m.asked_bytes, 2621440);
  CHECK(m.chunks.found && !m.chunks.from_bins);
  CHECK_U64(m.chunks.used_bytes, 5 * MIB);
  CHECK_U64(m.chunks.free_bytes, 3 * MIB);
  CHECK_U64(m.chunks.largest_free_bytes, 2 * MIB);
  CHECK_U64(m.limit_bytes, 8 * MIB);
  CHECK_U64(m.live_bytes, 5 * MIB);
}

TEST(bfc_dump_is_fragmentation_when_the_pieces_would_do)
{
  const char *text = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2621440 bytes.\n"
                     "InUse at 7f3c00000000 of size 4194304 next 1\n"
                     "Free  at 7f3c00400000 of size 2097152 next 2\n"
                     "Free  at 7f3c00700000 of size 1048576 next 3\n";
  explanation x;
  CHECK_OK(explain_message(&x, text, strlen(text)));
  CHECK_U64(x.findings.list[0].id, CAUSE_FRAGMENTATION);
  CHECK_U64(x.evidence.n.largest_hole_bytes, 2 * MIB);
  CHECK(x.fixes.count > 0 && strstr(x.fixes.list[0].change, "XLA_PYTHON_CLIENT_ALLOCATOR") != NULL);
  explanation_free(&x);
}

TEST(cupy_text)
{
  message m =
      read_text("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes "
                "(allocated so far: 4,294,967,296 bytes, limit set to: 10,737,418,240 bytes).");
  CHECK(m.kind == MESSAGE_CUPY);
  CHECK_U64(m.asked_bytes, 8 * GIB);
  CHECK_U64(m.reserved_bytes, 4 * GIB);
  CHECK_U64(m.limit_bytes, 10 * GIB);
}

TEST(xla_and_tensorflow_on_the_processor_are_the_hosts)
{
  message m = read_text("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating "
                        "35184372088832 bytes.");
  CHECK(m.kind == MESSAGE_HOST);
  CHECK_U64(m.asked_bytes, 32768 * GIB);
  m = read_text("tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node "
                "__wrapped__Fill}} OOM when allocating tensor with shape[1048576,1048576,8] and "
                "type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator mklcpu");
  CHECK(m.kind == MESSAGE_HOST);
  CHECK_U64(m.asked_bytes, 32768 * GIB);
}

TEST(cuda_texts)
{
  CHECK(read_text("RuntimeError: CUDA error: out of memory").kind == MESSAGE_CUDA);
  CHECK(read_text("CUDA_ERROR_OUT_OF_MEMORY: out of memory").kind == MESSAGE_CUDA);
  message m = read_text("RuntimeError: cuMemAlloc of 20.00 GiB outside PyTorch failed with 2");
  CHECK(m.kind == MESSAGE_CUDA);
  CHECK_U64(m.asked_bytes, 20 * GIB);
}

TEST(host_texts)
{
  message m = read_text(
      "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with "
      "shape (100000, 10000) and data type float64");
  CHECK(m.kind == MESSAGE_HOST && m.host == HOST_NUMPY);
  CHECK(near(m.asked_bytes, 7.45));
  CHECK_TEXT(m.what, "shape (100000, 10000) and data type float64");
  m = read_text(
      "MemoryError: Unable to allocate 745. GiB for an array with shape (100000, 1000000)");
  CHECK(near(m.asked_bytes, 745));
  CHECK(read_text("MemoryError").host == HOST_PYTHON);
  CHECK(read_text("Killed\n").host == HOST_KILLED);
  CHECK(read_text("Your session crashed after using all available RAM.").host == HOST_NOTEBOOK);
  CHECK(read_text("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.").host ==
        HOST_WORKER);
  m = read_text(
      "RuntimeError: [enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: can't allocate "
      "memory: you tried to allocate 80000000000 bytes. Error code 12 (Cannot allocate memory)");
  CHECK(m.host == HOST_TORCH);
  CHECK_U64(m.asked_bytes, UINT64_C(80000000000));
}

TEST(a_text_without_an_error_is_reported_as_such)
{
  explanation x;
  CHECK_OK(explain_message(&x, "loss 0.31\nloss 0.30\n", 20));
  CHECK_U64(x.findings.count, 0);
  CHECK(strstr(x.headline.data, "no known out-of-memory") != NULL);
  explanation_free(&x);
  CHECK_OK(explain_message(&x, "", 0));
  explanation_free(&x);
}

/* Any bytes: no crash, and no number that is not in the text. */
TEST(hostile_texts_are_only_read)
{
  static const char *const words[] = {"CUDA out of memory. Tried to allocate ",
                                      "GPU ",
                                      " allowed; Of the",
                                      "Process ",
                                      " has ",
                                      "99999999999999999999 GiB",
                                      ".",
                                      "; ",
                                      "(GPU 0; ",
                                      "tensor with shape[",
                                      "]",
                                      "1.5.5",
                                      "\n",
                                      "Free  at ",
                                      " of size ",
                                      "Limit:",
                                      "Bin (",
                                      "Total Chunks: ",
                                      "in use: ",
                                      ". ",
                                      "-1",
                                      "BFC",
                                      "RESOURCE_EXHAUSTED",
                                      "\xff\xfe",
                                      "9",
                                      "Of the allocated memory "};
  uint64_t seed = 6;
  for (uint64_t number = 0; number < harness_rounds(20000, 4000); number++) {
    char *text = malloc(4096);
    size_t length = 0;
    for (int i = (int)(harness_random(&seed) % 24); i > 0; i--) {
      const char *word = words[harness_random(&seed) % (sizeof words / sizeof *words)];
      memcpy(text + length, word, strlen(word));
      length += strlen(word);
    }
    char *exact = malloc(length > 0 ? length : 1); /* an exact copy, so that a sanitizer detects a
                                                    * read past the end */
    memcpy(exact, text, length);
    explanation x;
    CHECK_OK(explain_message(&x, exact, length));
    explanation_free(&x);
    free(exact);
    free(text);
  }
}

/* ---- limits that somebody set ---- */

TEST(slurm_tables_are_read_by_their_columns)
{
  static const char *const texts[] = {
      "JobID             State     ReqMem     MaxRSS\n"
      "------------ ---------- ---------- ----------\n"
      "815           OUT_OF_ME+        24G           \n"
      "815.batch    OUT_OF_ME+             25165824K \n",
      "JobID|State|ReqMem|MaxRSS|\n815|OUT_OF_MEMORY|24G||\n815.batch|OUT_OF_ME+||25165824K|\n",
      "JobID State ReqMem MaxRSS\n815 OUT_OF_ME+ 24Gn\n815.batch OUT_OF_ME+ 25165824K\n",
      ("State: OUT_OF_MEMORY (exit code 0)\nMemory Utilized: 24.00 GB\n"
       "Memory Efficiency: 100.00% of 24.00 GB\n"), /* else clang suspects a comma */
      "slurmstepd: error: Step 815.0 exceeded memory limit (25165824 > 25165824), being killed\n"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    message m = read_text(texts[i]);
    CHECK(m.host == HOST_JOB);
    CHECK_U64(m.limit_bytes, 24 * GIB);
    CHECK_U64(m.process_bytes, 24 * GIB);
  }
}

TEST(a_pods_limit_is_read_and_not_its_request)
{
  static const char *const texts[] = {
      "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"
      "    Limits:\n      cpu:     2\n      memory:  3Gi\n    Requests:\n      memory:  1Gi\n",
      "status: OOMKilled\nresources:\n  requests:\n    memory: \"512Mi\"\n  limits:\n"
      "    memory: \"3Gi\"\n",
      "\"OOMKilled\": true\n$ docker run --memory=3g trainer\n"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    message m = read_text(texts[i]);
    CHECK(m.host == HOST_CONTAINER);
    CHECK_U64(m.limit_bytes, 3 * GIB);
  }
  /* only a request: no limit is known */
  message m =
      read_text("Reason: OOMKilled\n    Limits:\n      cpu: 2\n    Requests:\n      memory: 1Gi\n");
  CHECK_U64(m.limit_bytes, MESSAGE_UNKNOWN);
}

TEST(limits_of_groups_nodes_and_workers_are_read)
{
  message m = read_text("memory: usage 4194304kB, limit 4194304kB, failcnt 12\n"
                        "Memory cgroup out of memory: Killed process 812 (python3) "
                        "total-vm:9000000kB, anon-rss:4000000kB\n");
  CHECK_U64(m.limit_bytes, 4 * GIB);
  m = read_text("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on "
                "memory.\nMemory on the node where the task (name=f, pid=1, memory used=2.00GB) "
                "was running was 15.00GB / 16.00GB (0.93), which exceeds the threshold");
  CHECK_U64(m.device_bytes, 16 * GIB); /* Ray divides by 1024 and writes GB */
  CHECK_U64(m.free_bytes, GIB);
  CHECK_U64(m.process_bytes, 2 * GIB);
  m = read_text("ray.exceptions.OutOfMemoryError: 1 worker(s) were killed due to the node running "
                "low on memory. Memory on the node (IP: 10.0.0.7) was 30.50GB /\n32.00GB (0.953), "
                "which exceeds the memory usage threshold of 0.95.");
  CHECK_U64(m.device_bytes, 32 * GIB);
  CHECK_U64(m.limit_bytes >> 20, 32 * 1024 * 95 / 100); /* the threshold's part of the node's */
  CHECK_U64(m.free_bytes, GIB + GIB / 2);
  m = read_text(
      "MemoryError: Unable to allocate 2.00 GiB for an array with shape (1,) and data type "
      "uint8\nhost memory in all: 1.0 GiB, the limit of stowage.limit(ram=…); the machine "
      "has 8.0 GiB");
  CHECK_U64(m.host_bytes, GIB);
  CHECK(m.details == (MESSAGE_ENABLED | MESSAGE_BEYOND));
  m = read_text("ray.memory_monitor.RayOutOfMemoryError: More than 95% of the memory on node n1 is "
                "used (15.2 / 16.0 GB). The top 10 memory consumers are:");
  CHECK_U64(m.device_bytes, 16 * GIB);
  m = read_text("distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting\n"
                "Unmanaged memory use is high. -- Unmanaged memory: 1.50 GiB -- Worker memory "
                "limit: 2.00 GiB");
  CHECK_U64(m.limit_bytes, 2 * GIB);
  CHECK_U64(m.process_bytes, 3 * GIB / 2);
}

TEST(what_a_compiled_program_needs_in_all_is_read)
{
  message m = read_text("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 "
                        "bytes.\nBufferAssignment stats:\n   parameter allocation: 2.00GiB\n"
                        "   maybe_live_out allocation: 8.00GiB\n"
                        "   preallocated temp allocation: 8.00GiB\n"
                        "   total allocation: 18.00GiB\n");
  CHECK_U64(m.whole_bytes, 18 * GIB);
  CHECK_U64(m.out_bytes, 8 * GIB);
}

TEST(the_users_line_is_a_file_of_the_users)
{
  message m =
      read_text("Traceback (most recent call last):\n"
                "  File \"/data/fit.py\", line 21, in <module>\n"
                "    full = left.merge(right, on=\"k\")\n"
                "  File \"cupy/_core/core.pyx\", line 137, in cupy._core.core.ndarray.__new__\n"
                "  File \"cupy/cuda/memory.pyx\", line 738, in cupy.cuda.memory.alloc\n"
                "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,024 bytes "
                "(allocated so far: 4,096 bytes).");
  CHECK_TEXT(m.context.line, "fit.py:21 in <module>");
  CHECK_TEXT(m.context.code, "full = left.merge(right, on=\"k\")");
}

TEST(a_comma_may_begin_a_fraction)
{
  message m = read_text("ggml_cuda_host_malloc: failed to allocate 2048,50 MiB of pinned memory: "
                        "invalid argument");
  CHECK_U64(m.asked_bytes, 2048 * MIB + MIB / 2);
  m = read_text("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 25,600,000 bytes "
                "(allocated so far: 3,000,512 bytes).");
  CHECK_U64(m.asked_bytes, 25600000);
  CHECK_U64(m.live_bytes, 3000512);
}

TEST(reports_of_large_requests_give_the_largest)
{
  message m = read_text("tcmalloc: large alloc 2147483648 bytes == 0x5581 @ 0x7f01 0x7f02\n"
                        "tcmalloc: large alloc 6442450944 bytes == 0x5582 @ 0x7f01 0x7f02\n"
                        "tcmalloc: large alloc 4294967296 bytes == 0x5583 @ 0x7f01 0x7f02\n");
  CHECK(m.kind == MESSAGE_HOST && m.host == HOST_LARGE);
  CHECK_U64(m.asked_bytes, 6 * GIB);
  m = read_text("python(77,0x1f0) malloc: *** mach_vm_map(size=8589934592) failed (error code=3)\n"
                "*** error: can't allocate region\n");
  CHECK(m.kind == MESSAGE_HOST && m.host == HOST_PYTHON);
  CHECK_U64(m.asked_bytes, 8 * GIB);
}

TEST_MAIN
