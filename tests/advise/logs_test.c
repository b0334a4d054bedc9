/* Logs with several failures: which one is explained, and how many are counted. All texts were
 * written for this test. */
#include <time.h>

#include "sample.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

#define TORCH(asked)                                                                               \
  "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " asked                           \
  ". GPU 0 has a total capacity of 31.73 GiB of which 75.00 MiB is free. Including non-PyTorch "   \
  "memory, this process has 31.60 GiB memory in use. Of the allocated memory 30.90 GiB is "        \
  "allocated by PyTorch, and 90.00 MiB is reserved by PyTorch but unallocated.\n"
#define FAILED(file, asked)                                                                        \
  "Traceback (most recent call last):\n  File \"" file "\", line 20, in <module>\n"                \
  "    main()\n  File \"" file "\", line 12, in main\n    loss.backward()\n" TORCH(asked)

static message read_text(const char *text) {
  message m;
  message_read(&m, text, strlen(text));
  return m;
}

/* Checks the first failure and the number of failures of each log. */
typedef struct log_sample {
  message_kind kind;
  message_host host;
  uint32_t failures;
  const char *text;
} log_sample;

static void check_logs(const log_sample *all, size_t count) {
  for (size_t i = 0; i < count; i++) {
    message m = read_text(all[i].text);
    bool right = m.kind == all[i].kind && m.host == all[i].host && m.failures == all[i].failures;
    if (!right)
      fprintf(stderr, "%s----\nkind %d, host %d, %u failures\n", all[i].text, (int)m.kind,
              (int)m.host, m.failures);
    CHECK(right);
  }
}
#define CHECK_LOGS(all) check_logs(all, sizeof(all) / sizeof *(all))

TEST(a_kill_of_another_program_is_a_failure_of_its_own)
{
  static const log_sample all[] = {
      {MESSAGE_TORCH, HOST_NONE, 2, FAILED("fit.py", "310.00 MiB") "$ python export.py\nKilled\n"},
      {MESSAGE_TORCH, HOST_NONE, 2,
       FAILED("fit.py", "310.00 MiB") "+ python export.py\njob.sh: line 9: 811 Killed  python "
                                      "export.py\n"},
      {MESSAGE_TORCH, HOST_NONE, 2,
       FAILED("fit.py", "310.00 MiB") "job.sh: line 9: 811 Killed  python export.py\n"},
      {MESSAGE_TORCH, HOST_NONE, 2,
       FAILED("fit.py", "310.00 MiB") "PS D:\\work> python export.py\n"
                                      "Process finished with exit code: 137\n"},
      {MESSAGE_TORCH, HOST_NONE, 2,
       FAILED("fit.py", "310.00 MiB") "ann@box:~$ python export.py\nKilled\nann@box:~$ sudo dmesg "
                                      "| tail\nOut of memory: Killed process 811 (python) "
                                      "total-vm:9000000kB, anon-rss:7000000kB\n"},
      {MESSAGE_HOST, HOST_KILLED, 2,
       "$ python export.py\nKilled\n$ python export.py --parts 8\n" FAILED("export.py",
                                                                           "1.00 GiB")},
      {MESSAGE_HOST, HOST_NUMPY, 2,
       "Traceback (most recent call last):\n  File \"pairs.py\", line 8, in <module>\n"
       "    d = np.zeros((n, n))\nnumpy.core._exceptions._ArrayMemoryError: Unable to allocate "
       "18.6 GiB for an array with shape (50000, 50000) and data type float64\n"
       "step 2\nslurmstepd: error: Detected 1 oom_kill event in StepId=88.1.\n"},
  };
  CHECK_LOGS(all);
}

/* A loop that starts the same script again, with other arguments. */
TEST(a_kill_of_the_script_with_other_arguments_is_a_failure_of_its_own)
{
  static const char first[] =
      "[loop] try 1: python fit.py --size 64\n" FAILED("fit.py", "500.00 MiB") "[loop] exit 1\n";
  char text[4096];
  snprintf(text, sizeof text,
           "%s[loop] try 2: python fit.py --size 32 --keep\n"
           "./loop.sh: line 9: 4711 Killed                  python fit.py --size 32 --keep\n",
           first);
  CHECK_U64(read_text(text).failures, 2);
  snprintf(text, sizeof text,
           "%s./loop.sh: line 9: 4711 Killed                  python fit.py --size 64\n", first);
  CHECK_U64(read_text(text).failures, 1);
}

/* A launcher ends the other ranks after a failure, and its command is the one that failed. */
TEST(a_kill_by_a_launcher_is_a_consequence)
{
  static const log_sample all[] = {
      {MESSAGE_TORCH, HOST_NONE, 1,
       FAILED("fit.py", "310.00 MiB") "[launch.py:319:sigkill_handler] Killing subprocess 811\n"
                                      "exits with return code = -9\n"},
      {MESSAGE_TORCH, HOST_NONE, 1,
       "$ torchrun --nproc_per_node 2 fit.py\n" FAILED(
           "fit.py",
           "310.00 MiB") "Sending process 812 closing signal SIGTERM\n  exitcode  : -9 (pid: 812)\n"
                         "  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID "
                         "812\n"},
      {MESSAGE_TORCH, HOST_NONE, 1,
       FAILED("fit.py", "310.00 MiB") "\nrun.sh: line 4: 811 Killed  python fit.py\n"},
      {MESSAGE_TORCH, HOST_NONE, 1,
       FAILED("fit.py", "310.00 MiB") "srun: error: node7: task 3: Killed\n"},
      {MESSAGE_TORCH, HOST_NONE, 1,
       FAILED("fit.py",
              "310.00 MiB") "RuntimeError: DataLoader worker (pid 7) is killed by signal: "
                            "Aborted.\n"},
      {MESSAGE_HOST, HOST_KERNEL, 1,
       "$ python export.py\nKilled\n$ dmesg | tail -1\nOut of memory: Killed process 811 (python) "
       "total-vm:9000000kB, anon-rss:7000000kB\n"},
  };
  CHECK_LOGS(all);
}

TEST(a_failure_after_a_command_is_another_one)
{
  static const char text[] =
      "$ vllm serve m --gpu-memory-utilization 0.80\n"
      "ValueError: To serve at least one request with the models's max seq len (32768), (4.00 GiB "
      "KV cache is needed, which is larger than the available KV cache memory (2.50 GiB). Based on "
      "the available memory, the estimated maximum model length is 20480.\n"
      "$ vllm serve m --gpu-memory-utilization 0.98\n"
      "  File \"/x/site-packages/vllm/model_executor/layers/sampler.py\", line 3, in "
      "forward\n" TORCH("250.00 MiB");
  message m = read_text(text);
  CHECK_U64(m.kind, MESSAGE_VLLM);
  CHECK_U64(m.failures, 2);
  CHECK_U64(m.asked_bytes, 4 * GIB);
  CHECK_U64(m.next_bytes, 250 * MIB);
  CHECK(m.share > 0.79 && m.share < 0.81);
  /* The same command with the same failure is the same one. */
  m = read_text("$ python fit.py\n" FAILED("fit.py", "310.00 MiB") "$ python fit.py\n" FAILED(
      "fit.py", "310.00 MiB"));
  CHECK_U64(m.failures, 1);
}

#define HANDLING "\nDuring handling of the above exception, another exception occurred:\n\n"

TEST(a_failure_in_a_handler_is_another_one_unless_it_is_raised_again)
{
  static const char status[] =
      "Traceback (most recent call last):\n  File \"fit.py\", line 20, in <module>\n    main()\n"
      "  File \"fit.py\", line 14, in main\n    out = net(x)\n"
      "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n";
  static const char host[] =
      "Traceback (most recent call last):\n  File \"fit.py\", line 20, in <module>\n    main()\n"
      "  File \"fit.py\", line 16, in main\n    out = net.cpu()(x.cpu())\nMemoryError\n";
  static const char again[] =
      "Traceback (most recent call last):\n  File \"fit.py\", line 20, in <module>\n    main()\n"
      "  File \"fit.py\", line 18, in main\n    raise RuntimeError(\"CUDA out of memory: use a "
      "smaller batch\") from None\nRuntimeError: CUDA out of memory: use a smaller batch\n";
  char text[4000];
  snprintf(text, sizeof text, "%s" HANDLING "%s", status, FAILED("fit.py", "90.00 MiB"));
  message m = read_text(text);
  CHECK(m.kind == MESSAGE_CUDA && (m.details & MESSAGE_STATUS) != 0 && m.failures == 2);
  CHECK_U64(m.next_bytes, 90 * MIB);
  snprintf(text, sizeof text, "%s" HANDLING "%s", FAILED("fit.py", "90.00 MiB"), host);
  m = read_text(text);
  CHECK(m.kind == MESSAGE_TORCH && m.failures == 2 && m.asked_bytes == 90 * MIB);
  snprintf(text, sizeof text, "%s" HANDLING "%s", FAILED("fit.py", "90.00 MiB"), again);
  m = read_text(text);
  CHECK(m.kind == MESSAGE_TORCH && m.failures == 1 && m.asked_bytes == 90 * MIB);
}

TEST(failures_of_a_log_without_empty_lines_are_separated)
{
  static const char text[] =
      TORCH("384.00 MiB") "[2/3] speed test\n"
                          "bfc_arena.cc:342 onnxruntime::BFCArena::AllocateRawInternal Failed to "
                          "allocate memory for "
                          "requested buffer of size 2415919104\n[3/3] table\n  File \"table.py\", "
                          "line 3, in <module>\n"
                          "    d = np.zeros((90000, "
                          "90000))\nnumpy.core._exceptions._ArrayMemoryError: Unable to "
                          "allocate 60.3 GiB for an array with shape (90000, 90000) and data type "
                          "float64\n";
  message m = read_text(text);
  CHECK(m.kind == MESSAGE_TORCH && m.failures == 3);
  /* The frames before an error belong to it, also where no line introduces them. */
  explanation x;
  static const char ray[] =
      "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
      "ray.exceptions.RayTaskError(OutOfMemoryError): ray::fit() (pid=12, ip=10.0.0.1)\n"
      "  File \"/u/tune.py\", line 6, in fit\n    loss.backward()\n" TORCH("96.00 MiB");
  CHECK_OK(explain_message(&x, ray, sizeof ray - 1));
  CHECK_U64(x.evidence.message.failures, 2);
  CHECK(strstr(x.findings.list[0].evidence.data, "tune.py") == NULL);
  CHECK(strstr(x.findings.list[0].evidence.data, "RayTaskError") == NULL);
  explanation_free(&x);
}

TEST(a_batch_that_failed_too_is_not_advised)
{
  static const char text[] =
      "batch_size=32\n" FAILED("sweep.py", "2.00 GiB") "retrying with batch_size=16\n" FAILED(
          "sweep.py", "1.00 GiB") "retrying with batch_size=12\n" FAILED("sweep.py", "900.00 MiB");
  explanation x;
  CHECK_OK(explain_message(&x, text, sizeof text - 1));
  CHECK_U64(x.evidence.message.failures, 3);
  CHECK(strstr(x.fixes.list[0].change, "batch_size=6 instead of 32 (12 failed too)") != NULL);
  explanation_free(&x);
  static const char worked[] = "batch_size=32 val_batch_size=4\n" FAILED(
      "sweep.py",
      "2.00 GiB") "try batch_size=16\n" FAILED("sweep.py",
                                               "1.00 GiB") "out of memory again, "
                                                           "batch_size=8\nepoch 1 done\n";
  CHECK_OK(explain_message(&x, worked, sizeof worked - 1));
  CHECK(strstr(x.fixes.list[0].change, "batch_size=8 instead of 32 (16 failed too)") != NULL);
  explanation_free(&x);
}

TEST(a_warning_of_tensorflow_s_allocator_is_no_request)
{
  message m = read_text(
      "W tensorflow/core/common_runtime/bfc_allocator.cc:290] Allocator (GPU_0_bfc) ran out of "
      "memory trying to allocate 1.13GiB with freed_by_count=0. The caller indicates that this is "
      "not a failure, but may mean that there could be performance gains if more memory were "
      "available.\nResourceExhaustedError: OOM when allocating tensor with shape[64,256,128,128] "
      "and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n");
  CHECK_U64(m.kind, MESSAGE_TENSORFLOW);
  CHECK_U64(m.asked_bytes, GIB);
  CHECK_U64(m.failures, 1);
}

/* Kills, handlers and commands that repeat do not make reading slow. */
TEST(long_logs_of_repeated_failures_are_read_quickly)
{
  static const char *const turns[] = {
      "$ python fit.py\n" TORCH("310.00 MiB"),
      "$ python fit.py\nKilled\n",
      "During handling of the above exception, another exception occurred:\n" TORCH("1.00 GiB"),
      "ValueError: x\n  File \"a.py\", line 3, in f\n    x()\n",
      "$ python fit.py\nValueError: x\n" HANDLING,
      "job.sh: line 1: 12 Killed  python b.py\n\n",
      "web_1 exited with code 137\ndb_1 exited with code 137\n\n",
      "memory allocation of 4096 bytes failed\nOutOfMemoryError()\n",
  };
  for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
    buffer text = BUFFER_INIT;
    buffer_text(&text, FAILED("first.py", "2.00 GiB"));
    for (size_t bytes = text.length; bytes < (1 << 20); bytes += strlen(turns[i]))
      buffer_text(&text, turns[i]);
    clock_t start = clock();
    message m;
    message_read(&m, text.data, text.length);
    CHECK(m.kind == MESSAGE_TORCH && m.asked_bytes == 2 * GIB);
    CHECK(clock() - start < 15 * CLOCKS_PER_SEC); /* under 1 s */
    buffer_free(&text);
  }
}

TEST(a_failure_that_ended_the_program_comes_before_those_it_caught)
{
  static const struct {
    const char *text;
    uint64_t asked_mib;
    uint32_t failures, caught;
  } all[] = {
      {"WARNING: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 15.78 GiB total capacity; "
       "12.00 GiB already allocated; 0.90 GiB free; 13.80 GiB reserved in total by PyTorch)\n"
       "skipping batch 119 (out of memory)\nstep 120 loss 2.2\n"
       "RuntimeError: CUDA out of memory. Tried to allocate 148.00 MiB (GPU 0; 15.78 GiB total "
       "capacity; 14.22 GiB already allocated; 100.75 MiB free; 14.50 GiB reserved in total by "
       "PyTorch)\n",
       148, 2, 1},
      {"OOM: CUDA out of memory. Tried to allocate 3.00 GiB, retrying with batch_size=32\n"
       "OOM: CUDA out of memory. Tried to allocate 2.00 GiB, retrying with batch_size=16\n"
       "step 40 loss 0.5\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 "
       "MiB. GPU 0 has a "
       "total "
       "capacity of 23.64 GiB of which 410.00 MiB is free.\n",
       512, 3, 2},
      /* it went on to the end */
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total "
       "capacity of 23.64 GiB of which 410.00 MiB is free.\nretrying with batch_size=32\n"
       "step 10 loss 0.7\n",
       3072, 1, 0},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    message m;
    message_read(&m, all[i].text, strlen(all[i].text));
    CHECK_U64(m.asked_bytes, all[i].asked_mib << 20);
    CHECK_U64(m.failures, all[i].failures);
    CHECK_U64(m.caught, all[i].caught);
  }
}

TEST_MAIN
