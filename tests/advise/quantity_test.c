/* Sizes that are read by the words around them, and sentences that are quoted. All texts were
 * written for this test. */
#include <stdlib.h>

#include "sample.h"

#define KIB  (UINT64_C(1) << 10)
#define MIB  (UINT64_C(1) << 20)
#define GIB  (UINT64_C(1) << 30)
#define NONE MESSAGE_UNKNOWN

typedef struct quantities {
  const char *text;
  uint64_t asked, free, live, limit, device;
} quantities;

static bool near(uint64_t is, uint64_t expected) {
  if (expected == NONE || is == NONE) return is == expected;
  return is < expected ? expected - is <= expected / 100 : is - expected <= expected / 100;
}

static void check_quantities(const quantities *all, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const quantities *q = &all[i];
    message m;
    message_read(&m, q->text, strlen(q->text));
    uint64_t live = m.kind == MESSAGE_HOST ? m.process_bytes : m.live_bytes;
    bool right = m.kind != MESSAGE_NONE && near(m.asked_bytes, q->asked) &&
                 near(m.free_bytes, q->free) && near(live, q->live) &&
                 near(m.limit_bytes, q->limit) && near(m.device_bytes, q->device);
    if (!right)
      printf("%s\n  asked %llu free %llu live %llu limit %llu device %llu\n", q->text,
             (unsigned long long)m.asked_bytes, (unsigned long long)m.free_bytes,
             (unsigned long long)live, (unsigned long long)m.limit_bytes,
             (unsigned long long)m.device_bytes);
    CHECK(right);
  }
}
#define CHECK_QUANTITIES(all) check_quantities(all, sizeof(all) / sizeof *(all))

TEST(programs_nobody_knows_state_sizes_by_their_words)
{
  static const quantities all[] = {
      {"error: not enough VRAM: the scene needs 11.0 GiB but only 6.5 GiB is available on the GPU",
       11 * GIB, 13 * GIB / 2, NONE, NONE, NONE},
      {"Fatal: GPU out of memory (2.0 GiB free of 6.0 GiB total)", NONE, 2 * GIB, NONE, NONE,
       6 * GIB},
      {"AllocationError: requested 5 GiB exceeds the configured memory limit of 3 GiB", 5 * GIB,
       NONE, NONE, 3 * GIB, NONE},
      {"render failed: out of VRAM. used: 7.0 GiB, total: 8 GiB, requested: 640 MiB", 640 * MIB,
       NONE, 7 * GIB, NONE, 8 * GIB},
      {"insufficient memory: 20480 MB required, 8192 MB maximum", 20 * GIB, NONE, NONE, 8 * GIB,
       NONE},
      {"this job was killed: memory usage 33.0 GiB exceeded the requested 32 GiB", NONE, NONE,
       33 * GIB, 32 * GIB, NONE},
      {"Available memory of 209715200 is smaller than requested bytes of 314572800", 300 * MIB,
       200 * MIB, NONE, NONE, NONE},
      {"cannot reserve memory: 40.0 MiB left,\nwhile 96 MiB was requested", 96 * MIB, 40 * MIB,
       NONE, NONE, NONE},
  };
  CHECK_QUANTITIES(all);
}

TEST(a_size_belongs_to_one_word)
{
  static const quantities all[] = {
      /* the largest buffer is not what is free, and the excess is no size of its own */
      {"[GPU] Exceeded max size of memory object allocation: requested 6442450944 bytes, but max "
       "alloc size supported by device is 4294967296 bytes.",
       6 * GIB, NONE, NONE, 4 * GIB, NONE},
      {"[GPU] Exceeded max size of memory allocation: Required 6442450944 bytes, already occupied "
       ": 0 bytes, but available memory size is 4294967296 bytes",
       6 * GIB, 4 * GIB, 0, NONE, NONE},
      {"ggml_metal_add_buffer: buffer 'data' size 4294967296 is larger than buffer maximum of "
       "3221225472\nggml_metal_add_buffer: error: failed to allocate buffer",
       4 * GIB, NONE, NONE, 3 * GIB, NONE},
      /* swap and files are not memory of the program */
      {"earlyoom[9]: mem avail:   256 of 16384 MiB ( 1.56%), swap free:    0 of 2048 MiB\n"
       "earlyoom[9]: sending SIGTERM to process 77 uid 1000 \"python\": badness 900, VmRSS 12288 "
       "MiB",
       NONE, 256 * MIB, 12 * GIB, NONE, 16 * GIB},
      /* what was free before the model was loaded says nothing of a buffer that would fit */
      {"using device CUDA0 (NVIDIA GeForce RTX 4070) - 11000 MiB free\n"
       "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512.00 MiB on device 0: cudaMalloc "
       "failed: out of memory",
       512 * MIB, NONE, NONE, NONE, NONE},
      {"using device CUDA0 (NVIDIA GeForce RTX 4070) - 11000 MiB free\n"
       "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 14000.00 MiB on device 0: "
       "cudaMalloc failed: out of memory",
       14000 * MIB, 11000 * MIB, NONE, NONE, NONE},
  };
  CHECK_QUANTITIES(all);
}

TEST(services_and_batch_systems_state_use_and_limit)
{
  static const quantities all[] = {
      {"Memory limit of 512 MiB exceeded with 530 MiB used. Consider increasing the memory limit",
       NONE, NONE, 530 * MIB, 512 * MIB, NONE},
      {"Exceeded hard memory limit of 256 MB with 261 MB after servicing 3 requests total.", NONE,
       NONE, 261 * MIB, 256 * MIB, NONE},
      {"Error: Runtime exited with error: signal: killed\nREPORT\tDuration: 900.00 ms\tMemory "
       "Size: 1024 MB\tMax Memory Used: 1024 MB",
       NONE, NONE, GIB, GIB, NONE},
      {"web.1: Process running mem=600M(117.2%)\nweb.1: Error R14 (Memory quota exceeded)", NONE,
       NONE, 600 * MIB, 512 * MIB, NONE},
      {"The node was low on resource: memory. Threshold quantity: 100Mi, available: 51200Ki. "
       "Container main was using 6291456Ki, request is 2Gi, has larger consumption of memory.",
       NONE, 50 * MIB, 6 * GIB, NONE, NONE},
      {"The node was low on resource: memory. Container notebook was using 7412208Ki, which "
       "exceeds "
       "its request of 2Gi.",
       NONE, NONE, UINT64_C(7412208) * KIB, NONE, NONE},
      {"CONTAINER ID  NAME  CPU %  MEM USAGE / LIMIT  MEM %\nab12  web  9.0%  1.9GiB / 2GiB  "
       "95.0%\n\"OOMKilled\": true,",
       NONE, NONE, 19 * GIB / 10, 2 * GIB, NONE},
      {"=>> PBS: job killed: mem 16824780kb exceeded limit 16777216kb", NONE, NONE,
       UINT64_C(16824780) * KIB, 16 * GIB, NONE},
      {"Job has gone over memory limit of 2048 megabytes. Peak usage: 2100 megabytes.", NONE, NONE,
       2100 * MIB, 2 * GIB, NONE},
      {"TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\n    Max Memory : 4000 "
       "MB\n    Total Requested Memory : 4096.00 MB",
       NONE, NONE, 4000 * MIB, 4 * GIB, NONE},
      {"   TRES=cpu=8,mem=32G,node=1\nslurmstepd: error: Detected 1 oom_kill event in "
       "StepId=77.0. Some of the step tasks have been OOM Killed.",
       NONE, NONE, NONE, 32 * GIB, NONE},
      {"#SBATCH --cpus-per-task=4\n#SBATCH --mem-per-cpu=3G\nslurmstepd: error: Detected 1 "
       "oom_kill event in StepId=77.0.",
       NONE, NONE, NONE, 12 * GIB, NONE},
      {"Container killed by YARN for exceeding memory limits. 5.5 GB of 5.5 GB physical memory "
       "used.",
       NONE, NONE, 11 * GIB / 2, 11 * GIB / 2, NONE},
      {"systemd-oomd[7]: Killed /user.slice/x.scope due to memory used (15.0G) / total (16.0G) and "
       "swap used (7.5G) / total (8.0G) being more than 90.00%",
       NONE, GIB, NONE, NONE, 16 * GIB},
  };
  CHECK_QUANTITIES(all);
}

TEST(libraries_state_sizes_in_their_own_words)
{
  static const quantities all[] = {
      {"time=2026-01-01T10:00:00.000Z level=WARN msg=\"model request too large for system\" "
       "requested=\"20.0 GiB\" available=\"14.0 GiB\" total=\"15.5 GiB\" free=\"13.9 GiB\"",
       20 * GIB, 14 * GIB, NONE, NONE, 31 * GIB / 2},
      {"ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other "
       "processes. min_per_gpu_memory=6.00, local_gpu_memory=24.00, local_gpu_memory * 0.9=21.6",
       NONE, 6 * GIB, NONE, NONE, 24 * GIB},
      {"RuntimeError: Invalid buffer size: 24.00 GiB", 24 * GIB, NONE, NONE, NONE, NONE},
      {"ResourceExhaustedError: Fail to alloc memory of 4294967296 size, error code is 12. (at "
       "/paddle/paddle/fluid/memory/allocation/system_allocator.cc:62)",
       4 * GIB, NONE, NONE, NONE, NONE},
      {"[TRT] [E] 2: [executionContext.cpp::allocate::619] Error Code 2: OutOfMemory (Requested "
       "size was 12884901888 bytes.)",
       12 * GIB, NONE, NONE, NONE, NONE},
      {"XGBoostError: bad_alloc: cudaErrorMemoryAllocation: out of memory\n- Free memory: 12GB\n- "
       "Requested memory: 16GB",
       16 * GIB, 12 * GIB, NONE, NONE, NONE},
      {"runtime: out of memory: cannot allocate 4194304-byte block (8589934592 in use)", 4 * MIB,
       NONE, 8 * GIB, NONE, NONE},
      {"RuntimeError: CUDA out of memory. Tried to allocate 20,00 MiB (GPU 0; 12,00 GiB total "
       "capacity; 11,00 GiB already allocated; 5,00 MiB free; 11,50 GiB reserved in total by "
       "PyTorch)",
       20 * MIB, 5 * MIB, 11 * GIB, NONE, 12 * GIB},
  };
  CHECK_QUANTITIES(all);
}

TEST(counts_and_other_records_are_no_sizes)
{
  static const quantities all[] = {
      {"map.cu:17 Valid size: 10267625\nCUDA error 2 [parallel_for.h, 143]: out of memory", NONE,
       NONE, NONE, NONE, NONE},
      /* of another failure */
      {"CUDA error 2 [parallel_for.h, 143]: out of memory\n\nused: 12.0 GiB, total: 48 GiB", NONE,
       NONE, NONE, NONE, NONE},
      {"context: KV self size  = 2196.00 MiB, c^KV (f16): 2196.00 MiB, kv^T: not used\n"
       "context:  CUDA_Host  output buffer size =     0.99 MiB\n"
       "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8900.00 MiB on device 0: cudaMalloc "
       "failed: out of memory",
       8900 * MIB, NONE, NONE, NONE, NONE},
  };
  CHECK_QUANTITIES(all);
}

/* Paddle raises a MemoryError without a message, and the message follows after another traceback.
 */
TEST(paddle_message_after_its_own_traceback)
{
  message m;
  static const char text[] =
      "Traceback (most recent call last):\n  File \"fit.py\", line 4, in <module>\n"
      "    y = net(x)\nMemoryError: \n\n--------------------------------------\n"
      "C++ Traceback (most recent call last):\n--------------------------------------\n"
      "0   paddle::memory::allocation::AllocateImpl(unsigned long)\n\n"
      "Error Message Summary:\nResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot "
      "allocate 2.000000GB memory on GPU 0, 14.000000GB memory has been allocated and available "
      "memory is only 512.000000MB.\n";
  message_read(&m, text, strlen(text));
  CHECK(m.kind == MESSAGE_PADDLE);
  CHECK_U64(m.failures, 1);
  CHECK(near(m.asked_bytes, 2 * GIB) && near(m.live_bytes, 14 * GIB) &&
        near(m.free_bytes, 512 * MIB));
}

TEST(numbers_of_the_driver_s_own_pool_are_read)
{
  static const quantities all[] = {
      {"E gpu_cudamallocasync_allocator.cc:297] gpu_async_0 cuMemAllocAsync failed to allocate "
       "1610612736 bytes: CUDA error: out of memory (CUDA_ERROR_OUT_OF_MEMORY)\n Reported by CUDA: "
       "Free memory/Total memory: 411828224/25757220864\n"
       "E gpu_cudamallocasync_allocator.cc:302] Stats: Limit:                     23134371840\n"
       "InUse:                     22231369216\nMaxInUse:                  22651369216\n",
       1610612736, 411828224, 22231369216, 23134371840, 25757220864},
      {"torch.OutOfMemoryError: Allocation on device 1 would exceed allowed memory. (out of "
       "memory)\nCurrently allocated     : 10.50 GiB\nRequested               : 512.00 MiB\n"
       "Device limit            : 14.75 GiB\nFree (according to CUDA): 12.00 MiB\n"
       "PyTorch limit (set by user-supplied memory fraction)\n                        : 11.00 GiB",
       512 * MIB, 12 * MIB, 10 * GIB + GIB / 2, 11 * GIB, 14 * GIB + 3 * GIB / 4},
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0. Allocated "
       "so "
       "far: 20.00 GiB (backend:cudaMallocAsync)",
       2 * GIB, NONE, 20 * GIB, NONE, NONE},
  };
  CHECK_QUANTITIES(all);
}

/* A number near the failure that has no field is in a sentence that the answer repeats. */
TEST(numbers_without_a_field_are_quoted)
{
  static const struct {
    const char *text, *said, *unsaid;
  } all[] = {
      {"Model loading took 14.2500 GiB and 5.1 seconds\nAvailable KV cache memory: -1.25 GiB\n"
       "ValueError: No available memory for the cache blocks. Try increasing "
       "`gpu_memory_utilization` when initializing the engine.",
       "Available KV cache memory: -1.25 GiB", "the text says: ValueError"},
      {"load_tensors: CUDA0 model buffer size =  7605.33 MiB\n"
       "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 560.00 MiB on device 0: cudaMalloc "
       "failed: out of memory",
       "CUDA0 model buffer size = 7605.33 MiB", "the text says: ggml"},
      {"[ERROR] failed (exitcode: -9) local_rank: 3 (pid: 4242) of binary: python", "exitcode: -9",
       NULL},
      {"OSError: [WinError 1455] The paging file is too small. Please reduce the batch size.",
       "WinError 1455", "reduce the batch"},
      {"memory allocation of 4096 bytes failed\nAborted (core dumped)", NULL, "the text says"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    explanation x;
    buffer out = BUFFER_INIT;
    CHECK_OK(explain_message(&x, all[i].text, strlen(all[i].text)));
    CHECK_OK(explanation_text(&x, &out, false));
    bool right = (all[i].said == NULL || strstr(out.data, all[i].said) != NULL) &&
                 (all[i].unsaid == NULL || strstr(out.data, all[i].unsaid) == NULL);
    if (!right) printf("%s\n----\n%s\n", all[i].text, out.data);
    CHECK(right);
    buffer_free(&out);
    explanation_free(&x);
  }
}

/* The quote begins with the text itself: nothing before it is read. */
TEST(a_quote_of_exactly_the_room_stays_inside_of_the_text)
{
  for (size_t length = 120; length < 200; length++) {
    char *text = malloc(length); /* without a byte before or after it, for ASan */
    CHECK(text != NULL);
    memset(text, 'x', length);
    static const char tail[] = " RESOURCE_EXHAUSTED: Out of memory 77 MiB";
    memcpy(text + length - (sizeof tail - 1), tail, sizeof tail - 1);
    message m;
    message_read(&m, text, length);
    free(text);
  }
}

TEST(the_next_failure_and_what_is_reserved_are_named)
{
  static const char text[] =
      "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 11.00 GiB total "
      "capacity; 8.00 GiB already allocated; 1.00 GiB free; 9.50 GiB reserved in total by "
      "PyTorch)\nRuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 11.00 GiB "
      "total capacity; 9.00 GiB already allocated; 0 bytes free; 10.10 GiB reserved in total by "
      "PyTorch)\n";
  explanation x;
  buffer out = BUFFER_INIT;
  CHECK_OK(explain_message(&x, text, strlen(text)));
  CHECK_OK(explanation_text(&x, &out, false));
  CHECK(strstr(out.data, "9.5 GiB with live") != NULL);
  CHECK(strstr(out.data, "the next requested 512.0 MiB") != NULL);
  buffer_free(&out);
  explanation_free(&x);
}

TEST_MAIN
