/* Error texts as people paste them: kind, first cause, numbers and fixes. All texts were written
 * for this test in the wording of the libraries. */
#include <stdlib.h>
#include <time.h>

#include "advise/clean.h"
#include "advise/notebook.h"
#include "sample.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

TEST(a_full_card_gets_changes_for_its_phase)
{
  static const sample all[] = {
      {MESSAGE_TORCH, C(OPTIMIZER_STATE), "8bit", NULL,
       "Traceback (most recent call last):\n  File \"run.py\", line 40, in main\n"
       "    optimizer.step()\n  File \"/x/site-packages/torch/optim/adamw.py\", line 9, in step\n"
       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total "
       "capacity of 23.50 GiB of which 10.00 MiB is free. Including non-PyTorch memory, this "
       "process "
       "has 23.40 GiB memory in use. Of the allocated memory 22.90 GiB is allocated by PyTorch, "
       "and "
       "90.00 MiB is reserved by PyTorch but unallocated."},
      {MESSAGE_TORCH, C(WEIGHTS_TOO_BIG), "load_in_4bit", "expandable",
       "  File \"C:\\tools\\chat.py\", line 3, in <module>\n"
       "    model = AutoModelForCausalLM.from_pretrained(name).cuda()\n"
       "  File \"C:\\py\\lib\\site-packages\\torch\\nn\\modules\\module.py\", line 9, in convert\n"
       "    return t.to(device, dtype if t.is_floating_point() or t.is_complex() else None)\n"
       "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB (GPU 0; 6.00 "
       "GiB total capacity; 5.20 GiB already allocated; 0 bytes free; 5.28 GiB reserved in total "
       "by "
       "PyTorch)"},
      {MESSAGE_TORCH, C(NO_GRAD_MISSING), "no_grad", NULL,
       "Traceback (most recent call last):\n  File \"train.py\", line 90, in main\n"
       "    acc = validate(net, val)\n  File \"train.py\", line 60, in validate\n"
       "    out = net(x)\n  File \"/x/site-packages/torch/nn/modules/module.py\", line 1, in "
       "_call_impl\nRuntimeError: CUDA out of memory. Tried to allocate 98.00 MiB (GPU 0; 10.76 "
       "GiB "
       "total capacity; 9.60 GiB already allocated; 40.00 MiB free; 9.70 GiB reserved in total by "
       "PyTorch)"},
      {MESSAGE_TORCH, C(BATCH_TOO_BIG), "per_device_train_batch_size", NULL,
       "  File \"/x/site-packages/transformers/trainer.py\", line 3, in training_step\n"
       "    loss.backward()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 "
       "GiB. "
       "GPU 3 has a total capacity of 39.39 GiB of which 600.00 MiB is free. Including non-PyTorch "
       "memory, this process has 38.80 GiB memory in use. Of the allocated memory 37.60 GiB is "
       "allocated by PyTorch, and 400.00 MiB is reserved by PyTorch but unallocated."},
      {MESSAGE_TORCH, C(BATCH_TOO_BIG) | C(LIMIT), "WATERMARK", "stowage run --spill",
       "RuntimeError: MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 64.00 "
       "MB, max allowed: 18.13 GB). Tried to allocate 2.00 GB on private pool."},
      {MESSAGE_CUDA, C(BATCH_TOO_BIG), "--lowvram", NULL,
       "Error occurred when executing KSampler:\nAllocation on device 0 would exceed allowed "
       "memory."},
  };
  CHECK_SAMPLES(all);
}

TEST(numbers_of_the_card_come_before_the_phase)
{
  static const sample all[] = {
      /* the text accounts for only 7 of 16 GiB, although it failed in backward */
      {MESSAGE_TORCH, C(OTHER_PROCESS), "nvidia-smi", NULL,
       "    loss.backward()\nRuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; "
       "15.90 GiB total capacity; 6.10 GiB already allocated; 15.00 MiB free; 6.40 GiB reserved in "
       "total by PyTorch)"},
      /* more memory is free than requested: the device is not full */
      {MESSAGE_TORCH, C(UNKNOWN), "page file", "smaller batch",
       "  File \"D:\\a\\b.py\", line 3, in f\nRuntimeError: CUDA out of memory. Tried to allocate "
       "500.00 MiB (GPU 0; 8.00 GiB total capacity; 1.00 GiB already allocated; 5.10 GiB free; "
       "1.10 "
       "GiB reserved in total by PyTorch)"},
      {MESSAGE_TORCH, C(ONE_SPIKE), "smaller", NULL,
       "RuntimeError: CUDA out of memory. Tried to allocate 90.00 GiB (GPU 0; 8.00 GiB total "
       "capacity; 1.00 GiB already allocated; 6.10 GiB free; 1.10 GiB reserved in total by "
       "PyTorch)"},
      {MESSAGE_TORCH, C(BATCH_TOO_BIG), "batch", "Another process",
       "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 23.43 GiB of "
       "which 210.06 MiB is free. Including non-PyTorch memory, this process has 0 bytes memory in "
       "use. Of the allocated memory 22.41 GiB is allocated by PyTorch, and 206.09 MiB is reserved "
       "by "
       "PyTorch but unallocated."},
      {MESSAGE_ONNX, C(UNKNOWN), "shape", NULL,
       "bfc_arena.cc:376 onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for "
       "requested buffer of size 4323455642275676160"},
      {MESSAGE_HOST, C(HOST_COPIES), "on the CPU", "nvidia-smi",
       "bfc_arena.cc:376 onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for "
       "requested buffer of size 12582912000\nproviders=['CPUExecutionProvider']"},
      {MESSAGE_TENSORFLOW, C(OTHER_PROCESS), "nvidia-smi", NULL,
       "I gpu_device.cc:1] Found device 0 with properties:\ntotalMemory: 11.00GiB freeMemory: "
       "300.00MiB\nE cuda_driver.cc:936] failed to allocate 300.00M (314572800 bytes) from device: "
       "CUDA_ERROR_OUT_OF_MEMORY: out of memory"},
  };
  CHECK_SAMPLES(all);
}

/* No fix is suggested that the version or the platform does not support. */
TEST(fixes_fit_version_and_platform)
{
  static const char old[] =
      "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 15.90 GiB total "
      "capacity; 8.00 GiB already allocated; 100.00 MiB free; 14.50 GiB reserved in total by "
      "PyTorch)";
  static const char fresh[] =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total "
      "capacity of 15.90 GiB of which 100.00 MiB is free. Of the allocated memory 8.00 GiB is "
      "allocated by PyTorch, and 6.50 GiB is reserved by PyTorch but unallocated.%s";
  static const char first[] = "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU "
                              "0; 7.93 GiB total capacity; "
                              "7.10 GiB already allocated; 10.00 MiB free; 40.00 MiB cached)";
  static const struct {
    const char *text, *more;
    bool expandable, autocast;
  } all[] = {{old, "", false, true},
             {fresh, "", true, true},
             {fresh, "\n  File \"C:\\x\\train.py\", line 1, in f", false, true},
             {first, "", false, false}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    char text[800];
    snprintf(text, sizeof text, all[i].text, all[i].more);
    explanation x;
    buffer out = BUFFER_INIT;
    CHECK_OK(explain_message(&x, text, strlen(text)));
    CHECK_OK(explanation_text(&x, &out, false));
    CHECK((strstr(out.data, "expandable_segments") != NULL) == all[i].expandable);
    CHECK(all[i].autocast || strstr(out.data, "autocast") == NULL);
    buffer_free(&out);
    explanation_free(&x);
  }
}

TEST(servers_get_flags_with_their_numbers)
{
  static const sample all[] = {
      {MESSAGE_VLLM, C(OTHER_PROCESS), "--gpu-memory-utilization 0.48", NULL,
       "ValueError: Free memory on device (40.00/79.32 GiB) on startup is less than desired GPU "
       "memory utilization (0.9, 71.39 GiB)."},
      {MESSAGE_VLLM, C(OTHER_PROCESS), "one after another", "--max-model-len",
       "AssertionError: Error in memory profiling. Initial free memory 39.20 GiB, current free "
       "memory 41.50 GiB. This happens when other processes release GPU memory."},
      {MESSAGE_VLLM, C(UNKNOWN), "pip install -U vllm", "--gpu-memory-utilization",
       "AssertionError: Error in memory profiling. Initial free memory 25000000000, current free "
       "memory 25000000000. This happens when the GPU memory was not properly cleaned up."},
      {MESSAGE_VLLM, C(WEIGHTS_TOO_BIG) | C(LIMIT), "--max-model-len 5120", NULL,
       "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens "
       "that "
       "can be stored in KV cache (5120)."},
      {MESSAGE_VLLM, C(WEIGHTS_TOO_BIG) | C(LIMIT), "--gpu-memory-utilization", NULL,
       "To serve at least one request with the models's max seq len (32768), (4.00 GiB KV cache is "
       "needed, which is larger than the available KV cache memory (1.62 GiB)."},
      {MESSAGE_SGLANG, C(WEIGHTS_TOO_BIG), "--mem-fraction-static", NULL,
       "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."},
      {MESSAGE_LLAMA, C(WEIGHTS_TOO_BIG), "-ngl", NULL,
       "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 20000.00 MiB on device 0: "
       "cudaMalloc "
       "failed: out of memory\nllama_model_load: error loading model: unable to allocate CUDA0 "
       "buffer"},
      {MESSAGE_LLAMA, C(WEIGHTS_TOO_BIG), "num_gpu", NULL,
       "Jan 01 10:00:00 box ollama[12]: alloc_tensor_range: failed to allocate ROCm0 buffer of "
       "size "
       "99\nJan 01 10:00:00 box ollama[12]: llama_model_load: error loading model"},
      {MESSAGE_HOST, C(HOST_LIMIT), "smaller model", NULL,
       "Error: model requires more system memory (19.2 GiB) than is available (11.0 GiB)"},
      {MESSAGE_PADDLE, C(BATCH_TOO_BIG), "batch", NULL,
       "Out of memory error on GPU 0. Cannot allocate 1.500000GB memory on GPU 0, 9.000000GB "
       "memory "
       "has been allocated and available memory is only 100.000000MB."},
      {MESSAGE_TENSORRT, C(ONE_SPIKE), "workspace", NULL,
       "[TRT] Requested amount of GPU memory (8589934592 bytes) could not be allocated.\n[TRT] "
       "Skipping tactic 3 due to insufficient memory on requested size of 8589934592"},
      {MESSAGE_MLX, C(ONE_SPIKE), "smaller", NULL,
       "RuntimeError: [metal::malloc] Attempting to allocate 40000000000 bytes which is greater "
       "than "
       "the maximum allowed buffer size of 17179869184 bytes."},
      {MESSAGE_DISPATCH, C(WEIGHTS_TOO_BIG), "4bit", NULL,
       "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough "
       "GPU "
       "RAM to fit the quantized model."},
      {MESSAGE_JULIA, C(BATCH_TOO_BIG), "reclaim", NULL,
       "Out of GPU memory trying to allocate 1.000 GiB\nEffective GPU memory usage: 97.29% (7.6 "
       "GiB/7.8 GiB)\nMemory pool usage: 7.1 GiB (7.2 GiB reserved)"},
      {MESSAGE_RMM, C(UNKNOWN) | C(BATCH_TOO_BIG), "nvidia-smi", "num_workers",
       "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /x/rmm/cuda_async_view.hpp"},
      {MESSAGE_NUMBA, C(UNKNOWN), "nvidia-smi", "smaller batch",
       "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuInit results in "
       "CUDA_ERROR_OUT_OF_MEMORY"},
      {MESSAGE_MLX, C(BATCH_TOO_BIG), "smaller", NULL,
       "[METAL] Command buffer execution failed: Insufficient Memory "
       "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"},
      {MESSAGE_LLAMA, C(WEIGHTS_TOO_BIG), "num_gpu", NULL,
       "Error: llama runner process has terminated: cudaMalloc failed: out of memory"},
      {MESSAGE_XLA, C(BATCH_TOO_BIG), "batch", NULL,
       "RuntimeError: Resource exhausted: Failed to allocate request for 12.00MiB (12582912B) on "
       "device "
       "ordinal 0"},
      {MESSAGE_XLA, C(BATCH_TOO_BIG), "batch", NULL,
       "Ran out of memory in memory space hbm. Used 16.20G of 15.48G hbm. Exceeded hbm capacity by "
       "740.00M."},
  };
  CHECK_SAMPLES(all);
}

TEST(host_memory_in_its_spellings)
{
  static const sample all[] = {
      {MESSAGE_HOST, C(HOST_LIMIT), "low_cpu_mem_usage", NULL,
       "Loading checkpoint shards:  50%|#####     | 1/2 [00:10<00:10]Killed"},
      {MESSAGE_HOST, C(HOST_LIMIT), "RAM", NULL, "已杀死"},
      {MESSAGE_HOST, C(HOST_LIMIT), "RAM", NULL,
       "./lauf.sh: Zeile 3: 4711 Getötet   python lauf.py"},
      {MESSAGE_HOST, C(HOST_LIMIT), "RAM", NULL, "[1]    26478 killed     python test.py"},
      {MESSAGE_HOST, C(HOST_LIMIT), "RAM", NULL, "failed (exitcode: -9) local_rank: 0 (pid: 99)"},
      {MESSAGE_HOST, C(HOST_LIMIT), "--mem", NULL,
       "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have "
       "been "
       "OOM Killed."},
      {MESSAGE_HOST, C(HOST_LIMIT), "-l mem=48gb", "SBATCH",
       "=>> PBS: job killed: mem 41943040kb exceeded limit 33554432kb"},
      {MESSAGE_HOST, C(HOST_LIMIT), "limits: memory", NULL,
       "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137"},
      {MESSAGE_HOST, C(HOST_WORKERS), "--shm-size", NULL,
       "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
       "shared "
       "memory (shm)."},
      {MESSAGE_HOST, C(HOST_WORKERS), "--shm-size", NULL,
       "RuntimeError: unable to write to file </torch_1_2_3>: No space left on device (28)"},
      {MESSAGE_HOST, C(HOST_WORKERS), "max_map_count", NULL,
       "RuntimeError: unable to mmap 4096 bytes from file </torch_1_2_3>: Cannot allocate memory "
       "(12)"},
      {MESSAGE_HOST, C(HOST_WORKERS), "num_workers", NULL,
       "    self.pid = os.fork()\nOSError: [Errno 12] Cannot allocate memory"},
      {MESSAGE_HOST, C(HOST_WORKERS), "memory_limit", NULL,
       "distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting"},
      {MESSAGE_HOST, C(HOST_LIMIT), "num_cpus", NULL,
       "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."},
      {MESSAGE_HOST, C(HOST_LIMIT), "page file", NULL,
       "OSError: [WinError 1455] The paging file is too small for this operation to complete."},
      {MESSAGE_HOST, C(HOST_LIMIT), "page file", NULL,
       "OSError: [WinError 1455] 页面文件太小，无法完成操作。"},
      {MESSAGE_HOST, C(HOST_DATASET_WHOLE), "chunksize", NULL,
       "    df = pd.read_csv('big.csv')\npandas.errors.ParserError: Error tokenizing data. C "
       "error: "
       "out of memory"},
      {MESSAGE_HOST, C(HOST_COPIES), "save in parts", NULL,
       "    pickle.dump(all_rows, f)\nMemoryError"},
      {MESSAGE_HOST, C(HOST_LIMIT), "RAM", NULL, "memory allocation of 4294967296 bytes failed"},
      {MESSAGE_HOST, C(HOST_LIMIT), "RAM", NULL, "Error: cannot allocate vector of size 4.5 Gb"},
      {MESSAGE_HOST, C(HOST_LIMIT), "MAX_JOBS", NULL,
       "c++: fatal error: Killed signal terminated program cc1plus"},
      {MESSAGE_HOST, C(HOST_LIMIT), "TF_CUDA_HOST_MEM_LIMIT", NULL,
       "W bfc_allocator.cc:273] Allocator (cuda_host_bfc) ran out of memory trying to allocate "
       "3.72GiB."},
  };
  CHECK_SAMPLES(all);
}

/* Wordings that are in no table. */
TEST(unknown_wordings_are_recognised_by_their_words)
{
  static const sample all[] = {
      {MESSAGE_CUDA, C(UNKNOWN) | C(BATCH_TOO_BIG), "nvidia-smi", NULL,
       "foo::opencl_error: Memory Object Allocation Failure"},
      {MESSAGE_CUDA, C(UNKNOWN) | C(BATCH_TOO_BIG), "nvidia-smi", NULL,
       "renderer: VRAM exhausted while allocating the frame"},
      {MESSAGE_HOST, C(HOST_LIMIT), "RAM", NULL, "engine: Unable To Reserve Memory for table"},
      {MESSAGE_HOST, C(HOST_LIMIT), "RAM", NULL, "step ended, exitcode '137'"},
      {MESSAGE_HOST, C(HOST_LIMIT), "RAM", NULL, "Error R14 (Memory quota exceeded)"},
      {MESSAGE_HOST, C(HOST_LIMIT), "RAM", NULL, "task done with exit code (137)"},
      {MESSAGE_HOST, C(HOST_WORKERS), "workers", NULL,
       "BrokenProcessPool: A process in the executor was terminated abruptly"}};
  CHECK_SAMPLES(all);
  message bytes;
  static const char sized[] = "pool: cudaMalloc error out of memory for scratch 1048576 bytes";
  message_read(&bytes, sized, sizeof sized - 1);
  CHECK_U64(bytes.asked_bytes, MIB);
  static const char *const none[] = {"all 137 tests passed", "memory usage: 3 GiB", "loss 0.137"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    message m;
    message_read(&m, none[i], strlen(none[i]));
    CHECK(m.kind == MESSAGE_NONE);
  }
}

TEST(what_is_not_ours_is_named_and_has_no_cause)
{
  static const char *const all[] = {
      "java.lang.OutOfMemoryError: Java heap space",
      "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
      "RuntimeError: CUDA error: an illegal memory access was encountered",
      "RuntimeError: CUDA error: device-side assert triggered",
      "OSError: [Errno 28] No space left on device",
      "onnx runtime error 2: not enough space: expected 270080, got 261760",
      "Segmentation fault (core dumped)",
      "status = RESOURCE_EXHAUSTED details = \"Received message larger than max (5 vs. 4)\"",
      "libgomp.so.1: cannot allocate memory in static TLS block",
      "PHP Fatal error:  Allowed memory size of 134217728 bytes exhausted"};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    explanation x;
    CHECK_OK(explain_message(&x, all[i], strlen(all[i])));
    CHECK(x.evidence.message.kind == MESSAGE_FOREIGN);
    CHECK_U64(x.findings.count, 0);
    CHECK(x.notes.length > 0);
    explanation_free(&x);
  }
}

TEST(wrapped_and_decorated_lines_are_read)
{
  static const struct {
    const char *text;
    uint64_t asked;
  } all[] = {{"\x1b[31m[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to\r\n"
              "[rank3]: allocate 3.00 GiB. GPU 3 has a total capacity of 4.00 GiB of which 0 bytes "
              "is free.",
              3 * GIB},
             {"E external/x.cc:672] Execution of replica 0 failed: Resource exhausted: Out \nof "
              "memory while "
              "trying to allocate 1073741824 bytes.",
              GIB},
             {"api-1  | ERROR 11-18 18:07:28 engine.py:366] torch.OutOfMemoryError: CUDA out of "
              "memory. Tried "
              "to allocate 64.00 MiB. GPU 0 has a total capacity of 4.00 GiB",
              64 * MIB},
             {"2025-11-14T08:52:38.3746210Z > CUDA out of memory. Tried to allocate 64.00 MiB (GPU "
              "0; 4.00 GiB "
              "total capacity; 3.9 GiB already allocated)",
              64 * MIB}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    message m;
    message_read(&m, all[i].text, strlen(all[i].text));
    CHECK_U64(m.asked_bytes, all[i].asked);
  }
}

/* A terminal of 72 columns wrapped inside words. */
TEST(a_terminal_s_wrapping_is_undone)
{
  static const char text[] =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB"
      ". GPU 0 has a total capacity of 15.77 GiB of which 98.00 MiB is free. In"
      "cluding non-PyTorch memory, this process has 15.60 GiB memory in use. Of"
      " the allocated memory 15.00 GiB is allocated by PyTorch, and 200.00 MiB "
      "is reserved by PyTorch but unallocated.";
  char wrapped[600];
  size_t out = 0;
  for (size_t i = 0; i < sizeof text - 1; i++) {
    if (i > 0 && i % 72 == 0) wrapped[out++] = '\n';
    wrapped[out++] = text[i];
  }
  message m;
  message_read(&m, wrapped, out);
  CHECK_U64(m.asked_bytes, 512 * MIB);
  CHECK_U64(m.process_bytes >> 20, 15974);
  CHECK_U64(m.cached_bytes, 200 * MIB);
}

/* Records of equal length are not a wrapped line; early lines of a long log without information are
 * dropped. */
TEST(a_long_log_stays_lines)
{
  buffer log = BUFFER_INIT, out = BUFFER_INIT;
  buffer_text(&log,
              "CUDA out of memory. Tried to allocate 7.00 MiB (GPU 0; 1.00 GiB total capacity)\n");
  for (int i = 0; i < 30000; i++)
    buffer_printf(
        &log, "2025-01-01 00:00:00 INFO step %06d loss 0.25, a line of the same length as others\n",
        i);
  CHECK_OK(clean_text(&out, (scan_text){log.data, log.data + log.length}));
  CHECK(out.length < log.length / 3 * 2);
  CHECK(strncmp(out.data, "CUDA out of memory", 18) == 0);
  const char *last = strstr(out.data, "step 029999");
  CHECK(last != NULL && strchr(last, '\n') != NULL && strchr(last, '\n') - last < 100);
  message m;
  message_read(&m, log.data, log.length);
  CHECK_U64(m.asked_bytes, 7 * MIB);
  buffer_free(&log);
  buffer_free(&out);
}

/* Without a logger's prefix, records of equal length look like lines wrapped by a terminal. Every
 * line mentions memory, so only their number can be reduced. */
TEST(a_long_log_of_equal_lines_is_cut_and_not_joined)
{
  buffer log = BUFFER_INIT, out = BUFFER_INIT;
  for (int i = 0; i < 30000; i++)
    buffer_printf(&log,
                  "Epoch 1 step %06d loss 0.25 memory in use 3.%03d GiB of the first device\n", i,
                  i % 1000);
  buffer_text(&log, "Killed\n");
  CHECK_OK(clean_text(&out, (scan_text){log.data, log.data + log.length}));
  CHECK(out.length < (1 << 20) + 200000);
  CHECK(strstr(out.data, "\nKilled\n") != NULL);
  message m;
  message_read(&m, log.data, log.length);
  CHECK(m.kind == MESSAGE_HOST && m.host == HOST_KILLED);
  buffer_free(&log);
  buffer_free(&out);
}

/* A DataLoader prints the same sentence whenever a worker dies. */
TEST(a_worker_s_end_is_memory_only_with_a_sign_of_it)
{
  static const struct {
    const char *text;
    bool memory;
  } ends[] = {
      {"RuntimeError: DataLoader worker (pid(s) 3411, 3412) exited unexpectedly", false},
      {"  File \"data.py\", line 137, in __getitem__\nRuntimeError: DataLoader worker (pid 3411) "
       "exited unexpectedly with exit code 1. Details are lost due to multiprocessing. Rerunning "
       "with num_workers=0 may give better error trace.",
       false},
      {"RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.", true},
      {"RuntimeError: DataLoader worker (pid(s) 9) exited unexpectedly\n"
       "kernel: Out of memory: Killed process 9 (python3)",
       true},
  };
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    explanation x;
    CHECK_OK(explain_message(&x, ends[i].text, strlen(ends[i].text)));
    CHECK(x.findings.count > 0);
    CHECK((x.findings.list[0].confidence >= 0.5) == ends[i].memory);
    CHECK((x.findings.list[0].id == CAUSE_UNKNOWN) == !ends[i].memory);
    if (!ends[i].memory) CHECK(strstr(x.fixes.list[0].change, "num_workers=0") != NULL);
    explanation_free(&x);
  }
}

TEST(the_first_of_several_failures_is_read)
{
  static const char text[] =
      "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has "
      "a "
      "total capacity of 23.00 GiB of which 90.00 MiB is free. Of the allocated memory 22.00 GiB "
      "is "
      "allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n"
      "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has "
      "a "
      "total capacity of 47.00 GiB of which 20.00 MiB is free. Of the allocated memory 46.00 GiB "
      "is "
      "allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated.\n"
      "[INFO] [launch.py:315:sigkill_handler] Killing subprocess 953850\n";
  message m;
  message_read(&m, text, sizeof text - 1);
  CHECK_U64(m.failures, 2);
  CHECK_U64(m.asked_bytes, GIB);
  CHECK_U64(m.device_bytes, 23 * GIB);
  CHECK_U64(m.device, 0);
}

TEST(the_traceback_gives_line_phase_version_and_platform)
{
  static const char text[] =
      "PyTorch Version: 1.13.1\nTraceback (most recent call last):\n"
      "  File \"/usr/app/fit.py\", line 12, in main\n    step(batch)\n"
      "  File \"/usr/lib/python3/dist-packages/torch/_tensor.py\", line 396, in backward\n"
      "RuntimeError: CUDA out of memory. Tried to allocate 2.00 MiB (GPU 0; 4.00 GiB total "
      "capacity)";
  message m;
  message_read(&m, text, sizeof text - 1);
  CHECK_TEXT(m.context.line, "fit.py:12 in main");
  CHECK_U64(m.context.torch_from, 113);
  CHECK(context_has(&m.context, CONTEXT_BIT(BACKWARD) | CONTEXT_BIT(LINUX) | CONTEXT_BIT(NVIDIA)));
  /* A closure inside the optimizer's step runs forward. */
  static const char closure[] =
      "Traceback (most recent call last):\n  File \"a.py\", line 1, in fit\n    "
      "optimizer.step(closure)\n"
      "  File \"b.py\", line 2, in closure\n    out = model(x)\n  File \"c.py\", line 3, in "
      "forward\n"
      "    return self.act(x)\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 MiB";
  message_read(&m, closure, sizeof closure - 1);
  CHECK(context_any(&m.context, CONTEXT_BIT(FORWARD)));
  CHECK(!context_any(&m.context, CONTEXT_BIT(OPTIMIZER)));
}

TEST(a_notebook_s_outputs_are_read_and_its_source_is_not)
{
  static const char text[] =
      "{\"cells\": [{\"source\": [\"raise X('CUDA out of memory. Tried to allocate 9.00 GiB')\"],\n"
      "\"outputs\": [{\"output_type\": \"error\", \"traceback\": [\"\\u001b[0;31mOutOfMemoryError"
      "\\u001b[0m\", \"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity "
      "of "
      "14.74 GiB of which 1.00 GiB is free.\\u4e2d\"]}]}], \"nbformat\": 4}";
  message m;
  message_read(&m, text, sizeof text - 1);
  CHECK_U64(m.asked_bytes, 2 * GIB);
  CHECK_U64(m.failures, 1);
  buffer out = BUFFER_INIT;
  CHECK_OK(notebook_outputs(&out, (scan_text){text, text + sizeof text - 1}));
  CHECK(strstr(out.data, "free.\xe4\xb8\xad\n") != NULL && strstr(out.data, "raise") == NULL);
  buffer_free(&out);
}

TEST(a_notebook_s_traceback_has_what_its_value_lacks)
{
  static const char text[] =
      "{\"cells\": [{\"outputs\": [{\"ename\": \"OutOfMemoryError\", \"evalue\": \"CUDA out of "
      "memory. "
      "Tried to allocate 2.00 GiB. GPU 0 has a total capa\", \"output_type\": \"error\", "
      "\"traceback\": [\"OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 "
      "has a "
      "total capacity of 14.74 GiB of which 1.00 GiB is free.\"]}]}]}";
  message m;
  message_read(&m, text, sizeof text - 1);
  CHECK_U64(m.asked_bytes, 2 * GIB);
  CHECK_U64(m.free_bytes, GIB);
}

/* Every answer about memory has a fix, and one with an unknown cause ends with a command. */
TEST(every_kind_ends_with_a_fix_and_unknown_with_a_command)
{
  static const char *const all[] = {
      "CUDA error: out of memory",
      "hipErrorOutOfMemory",
      "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
      "Failed to allocate CL_MEM_OBJECT_ALLOCATION_FAILURE",
      "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8 bytes",
      "rmm.rmm.RMMError: RMM_ERROR_OUT_OF_MEMORY",
      "The kernel appears to have died. It will restart automatically.",
      "ran out of memory somewhere: out of memory",
      "MemoryError",
      "Process finished with exit code 137"};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    explanation x;
    CHECK_OK(explain_message(&x, all[i], strlen(all[i])));
    CHECK(x.findings.count > 0 && x.fixes.count > 0);
    CHECK(x.notes.data != NULL && strstr(x.notes.data, "to find out: ") != NULL);
    for (uint32_t f = 0; f < x.fixes.count; f++)
      CHECK_U64(x.fixes.list[f].saves_bytes, MESSAGE_UNKNOWN);
    explanation_free(&x);
  }
}

/* The KV cache of a context is no weight, whatever is said of the model afterwards. */
TEST(a_context_that_does_not_fit_is_shortened)
{
  static const sample all[] = {
      {MESSAGE_LLAMA, C(BATCH_TOO_BIG), "-c 4096", "weights do not fit",
       "llama_new_context_with_model: n_ctx      = 40960\n"
       "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5120.00 MiB on device 0: cudaMalloc "
       "failed: out of memory\n"
       "llama_kv_cache_init: failed to allocate buffer for kv cache\n"
       "llama_new_context_with_model: llama_kv_cache_init() failed for self-attention cache\n"
       "main: error: unable to load model\n"},
      {MESSAGE_LLAMA, C(WEIGHTS_TOO_BIG), "-ngl", NULL,
       "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 15360.00 MiB on device 0: "
       "cudaMalloc "
       "failed: out of memory\nalloc_tensor_range: failed to allocate CUDA0 buffer of size "
       "16106127360\nllama_model_load: error loading model: unable to allocate CUDA0 buffer\n"}};
  check_samples(all, sizeof all / sizeof *all);
  explanation x;
  CHECK_OK(explain_message(&x, all[0].text, strlen(all[0].text)));
  CHECK(strncmp(x.fixes.list[0].change, "a shorter context: -c ", 22) == 0);
  explanation_free(&x);
}

TEST(more_than_the_limit_is_asked_for)
{
  static const sample all[] = {
      {MESSAGE_HOST, C(HOST_LIMIT), "--mem=72G", "--mem=64G",
       "JobID  State      ReqMem  MaxRSS\n91     OUT_OF_ME+    48G\n91.0   OUT_OF_ME+     "
       "50331000K\n"},
      {MESSAGE_HOST, C(HOST_LIMIT), "memory: 3Gi", "16Gi",
       "      Reason:       OOMKilled\n    Limits:\n      memory:  2Gi\n"},
      {MESSAGE_HOST, C(HOST_LIMIT), "--memory=6g", "16g",
       "memory: usage 4194304kB, limit 4194304kB, failcnt 12\nMemory cgroup out of memory: Killed "
       "process 812 (python3) total-vm:9000000kB, anon-rss:4000000kB\n"}};
  check_samples(all, sizeof all / sizeof *all);
}

TEST(the_call_on_the_users_line_names_the_first_fix)
{
  static const struct {
    const char *line, *change;
  } lines[] = {{"both = a.merge(b, on=\"city\")", "validate="},
               {"x = counts.toarray()", "keep it sparse"},
               {"d = scipy.spatial.distance.cdist(p, p)", "block of rows"}};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    char text[600];
    explanation x;
    snprintf(
        text, sizeof text,
        "Traceback (most recent call last):\n  File \"/data/fit.py\", line 21, in <module>\n"
        "    %s\n  File \"/usr/lib/python3/dist-packages/numpy/a.py\", line 9, in f\n"
        "    return empty(n)\nnumpy.core._exceptions._ArrayMemoryError: Unable to allocate 55.0 "
        "GiB for an array with shape (7381975040,) and data type int64\n",
        lines[i].line);
    CHECK_OK(explain_message(&x, text, strlen(text)));
    if (strstr(x.fixes.list[0].change, lines[i].change) == NULL)
      FAIL("%s: %s", lines[i].line, x.fixes.list[0].change);
    explanation_free(&x);
  }
}

TEST(a_wrong_label_is_no_shortage)
{
  static const char text[] =
      "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward: block: [0,0,0], thread: [1,0,0] "
      "Assertion `t >= 0 && t < n_classes` failed.\nRuntimeError: CUDA error: "
      "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n";
  message m;
  message_read(&m, text, sizeof text - 1);
  CHECK(m.kind == MESSAGE_FOREIGN && strstr(m.help, "labels") != NULL);
  /* without the assertion both are possible, and both are named */
  explanation x;
  buffer out = BUFFER_INIT;
  const char *bare = strstr(text, "RuntimeError");
  CHECK_OK(explain_message(&x, bare, strlen(bare)));
  CHECK_OK(explanation_text(&x, &out, false));
  CHECK(x.evidence.message.kind == MESSAGE_CUDA &&
        strstr(out.data, "a label or an index") != NULL &&
        strstr(out.data, "CUDA_LAUNCH_BLOCKING=1") != NULL);
  buffer_free(&out);
  explanation_free(&x);
}

/* More comes out than goes in: a result, not weights. */
TEST(a_result_of_jax_is_no_weight)
{
  static const sample all[] = {
      {MESSAGE_XLA, C(ONE_SPIKE), "batch", "donate",
       "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
       "allocate 8589934592 bytes.\nBufferAssignment stats:\n  parameter allocation: 2.00GiB\n"
       "  maybe_live_out allocation: 8.00GiB\n  preallocated temp allocation: 8.00GiB\n"
       "  total allocation: 18.00GiB\n"},
      {MESSAGE_XLA, C(WEIGHTS_TOO_BIG), "16 bits", NULL,
       "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
       "allocate 8589934592 bytes.\nBufferAssignment stats:\n  parameter allocation: 20.00GiB\n"
       "  maybe_live_out allocation: 4.00GiB\n  preallocated temp allocation: 2.00GiB\n"}};
  check_samples(all, sizeof all / sizeof *all);
}

/* Wraps a text at `width` columns, as a terminal does. */
static void wrap_at(buffer *out, const char *text, size_t width) {
  size_t column = 0;
  for (; *text != '\0'; text++) {
    if (*text == '\n') column = 0;
    if (column == width) {
      buffer_char(out, '\n');
      column = 0;
    }
    buffer_char(out, *text);
    column += *text != '\n';
  }
}

TEST(a_text_wrapped_at_any_width_keeps_its_numbers)
{
  static const char text[] =
      "  File \"/srv/jobs/fit.py\", line 31, in main\n"
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 48.00 MiB. GPU 0 has a total "
      "capacity of 31.70 GiB of which 20.00 MiB is free. Process 501 has 20.50 GiB memory in use. "
      "Including non-PyTorch memory, this process has 11.00 GiB memory in use. Of the allocated "
      "memory 10.25 GiB is allocated by PyTorch, and 64.00 MiB is reserved by PyTorch but "
      "unallocated. If reserved but unallocated memory is large try setting "
      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n";
  for (size_t width = 62; width <= 120; width++) {
    buffer wrapped = BUFFER_INIT;
    message m;
    wrap_at(&wrapped, text, width);
    message_read(&m, wrapped.data, wrapped.length);
    CHECK_U64(m.asked_bytes, 48 * MIB);
    CHECK_U64(m.free_bytes, 20 * MIB);
    CHECK_U64(m.process_bytes, 11 * GIB);
    CHECK_U64(m.process_count, 1);
    CHECK_U64(m.processes[0].bytes, 20 * GIB + 512 * MIB);
    CHECK_U64(m.live_bytes, 10 * GIB + 256 * MIB);
    buffer_free(&wrapped);
  }
}

TEST(a_container_log_gives_the_users_line)
{
  static const char text[] =
      "2026-03-01T10:00:00.123456789Z stderr F Traceback (most recent call last):\n"
      "2026-03-01T10:00:00.123456800Z stderr F   File \"/app/main.py\", line 12, in start\n"
      "2026-03-01T10:00:00.123456900Z stderr F     net.to(\"cuda\")\n"
      "2026-03-01T10:00:00.123457000Z stderr F RuntimeError: CUDA error: out of memory\n";
  message m;
  message_read(&m, text, strlen(text));
  CHECK_TEXT(m.context.line, "main.py:12 in start");
}

TEST(tools_are_those_of_the_device)
{
  static const sample all[] = {
      {MESSAGE_MLX, C(BATCH_TOO_BIG) | C(UNKNOWN), "quantized", "nvidia-smi",
       "std::runtime_error: [METAL] Command buffer execution failed: Insufficient Memory "
       "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"},
      {MESSAGE_LLAMA, C(WEIGHTS_TOO_BIG) | C(BATCH_TOO_BIG) | C(UNKNOWN), "context", "nvidia-smi",
       "ggml_metal_graph_compute: command buffer 0 failed with status 5\n"
       "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"},
      {MESSAGE_TORCH, C(BATCH_TOO_BIG), "autocast(\"xpu\"", "nvidia-smi",
       "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total "
       "capacity of 11.80 GiB. Of the allocated memory 11.00 GiB is allocated by PyTorch, and "
       "200.00 MiB is reserved by PyTorch but unallocated."},
      {MESSAGE_TORCH, C(BATCH_TOO_BIG), "batch", "autocast(\"cuda\"",
       "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total "
       "capacity of 11.80 GiB. Of the allocated memory 11.00 GiB is allocated by PyTorch, and "
       "200.00 MiB is reserved by PyTorch but unallocated."},
  };
  CHECK_SAMPLES(all);
}

TEST(a_warning_of_a_shortage_is_none)
{
  static const char *const all[] = {
      "step 10 done\nTo avoid out of memory errors lower the batch size.\n",
      "hint: large inputs may run out of memory\nfinished\n",
      "If you run out of memory, use --small. Saved model.bin\n",
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    message m;
    message_read(&m, all[i], strlen(all[i]));
    CHECK_U64(m.kind, MESSAGE_NONE);
  }
  static const char failed[] = "solver: out of memory. To avoid this, use fewer cells.\n";
  message m;
  message_read(&m, failed, strlen(failed));
  CHECK_U64(m.kind, MESSAGE_HOST);
}

TEST(the_same_size_on_another_device_is_another_failure)
{
#define ONE(device)                                                                                \
  "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU " device            \
  " has a total capacity of 79.10 GiB of which 1.00 GiB is free. Of the allocated memory 76.00 "   \
  "GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n"
  static const char text[] =
      "[rank1]: " ONE("1") "[rank3]: " ONE("3") "[rank1]: " ONE("1") "[rank3]: " ONE("3");
  message m;
  message_read(&m, text, strlen(text));
  CHECK_U64(m.failures, 2);
  CHECK_U64(m.device, 1);
#undef ONE
}

TEST(a_saving_of_nothing_is_not_shown)
{
  /* The card is 9 GiB fuller than this process explains, and no other process is listed. */
  static const char text[] =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total "
      "capacity of 23.64 GiB of which 61.31 MiB is free. Including non-PyTorch memory, this "
      "process has 8.86 GiB memory in use. Of the allocated memory 8.40 GiB is allocated by "
      "PyTorch, and 88.12 MiB is reserved by PyTorch but unallocated.";
  explanation x;
  CHECK_OK(explain_message(&x, text, strlen(text)));
  CHECK(x.fixes.count > 0);
  for (uint32_t i = 0; i < x.fixes.count; i++) CHECK(x.fixes.list[i].saves_bytes != 0);
  explanation_free(&x);
}

TEST(a_length_that_fits_is_read_from_a_broken_line)
{
  static const char text[] =
      "ValueError: To serve at least one request with the models's max seq len (8192), (2.00 GiB "
      "KV "
      "ca\nche is needed, which is larger than the available KV cache memory (1.00 GiB). Based on "
      "the available memory, the estimated\n maximum model length is 4080. Try increasing "
      "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.";
  message m;
  message_read(&m, text, strlen(text));
  CHECK_U64(m.kind, MESSAGE_VLLM);
  CHECK_U64(m.cache_tokens, 4080);
}

/* Both forms of IPython: the line of code is the one with the arrow. */
TEST(a_notebook_s_arrow_gives_line_and_call)
{
  static const char *const heads[] = {"Cell In[8], line 3\n", "<ipython-input-8-2f1> in <module>\n",
                                      "Input In [8], in <cell line: 3>()\n"};
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
    buffer text = BUFFER_INIT;
    buffer_printf(
        &text,
        "MemoryError          Traceback (most recent call last)\n%s"
        "      1 model = fit(x)\n      2 x = model.features(x)\n"
        "----> 3 full = x.toarray()\n      4 print(full.shape)\n\n"
        "File ~/env/lib/python3.11/site-packages/scipy/sparse/_base.py:90, in toarray(self)\n"
        "     89 order = self._swap()\n---> 90 out = self._process(order)\n\n"
        "MemoryError: Unable to allocate 12.0 GiB for an array with shape (40000, 40000) "
        "and data type float64\n",
        heads[i]);
    explanation x;
    CHECK_OK(explain_message(&x, text.data, text.length));
    CHECK_TEXT(x.evidence.message.context.code, "full = x.toarray()");
    CHECK(strncmp(x.evidence.message.context.line, "cell In[8]:3", 12) == 0);
    CHECK(strstr(x.fixes.list[0].change, "keep it sparse") != NULL);
    explanation_free(&x);
    buffer_free(&text);
  }
}

#define SIDE "\xe2\x94\x82"
TEST(a_traceback_in_a_box_gives_the_users_line)
{
  static const char text[] =
      SIDE " /data/ada/runs/fit.py:42 in main                          " SIDE "\n" SIDE
           "                                                           " SIDE "\n" SIDE
           "   41 " SIDE "   loader = make()                                  " SIDE "\n" SIDE
           " \xe2\x9d\xb1 42 " SIDE "   trainer.fit(model, loader)                       " SIDE
           "\n" SIDE " /data/ada/env/lib/python3.11/site-packages/torch/optim.py " SIDE "\n" SIDE
           " :93 in step                                               " SIDE "\n" SIDE
           " \xe2\x9d\xb1 93 " SIDE "   self.optimizer.step(closure)                     " SIDE "\n"
           "OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total "
           "capacity of 23.50 GiB of which 10.00 MiB is free. Including non-PyTorch memory, this "
           "process has 23.40 GiB memory in use. Of the allocated memory 22.90 GiB is allocated by "
           "PyTorch, and 90.00 MiB is reserved by PyTorch but unallocated.\n";
  message m;
  message_read(&m, text, strlen(text));
  CHECK_TEXT(m.context.line, "fit.py:42 in main");
  CHECK_TEXT(m.context.code, "trainer.fit(model, loader)");
  CHECK(context_any(&m.context, CONTEXT_BIT(OPTIMIZER)));
}

TEST(what_follows_a_refused_request_is_not_the_cause)
{
  static const sample all[] = {
      {MESSAGE_CUDA, C(UNKNOWN) | C(BATCH_TOO_BIG), "", NULL,
       "engine: CUDA scratch alloc failed (96.00 MiB): out of memory\n"
       "engine: matmul failed: status 14\n"
       "engine: synchronize failed: an illegal memory access was encountered\n"},
  };
  CHECK_SAMPLES(all);
  message m;
  message_read(&m, all[0].text, strlen(all[0].text));
  CHECK(m.asked_bytes == 96 * MIB);
  static const char crash[] = "step 4: memory in use 12 GB\n"
                              "CUDA error: an illegal memory access was encountered\n";
  message_read(&m, crash, sizeof crash - 1);
  CHECK(m.kind == MESSAGE_FOREIGN);
}

TEST(a_device_that_is_hardly_used_is_not_full)
{
  static const sample all[] = {
      {MESSAGE_TORCH, C(UNKNOWN), "RELAXED_ALLOCATION_LIMITS", "smaller batch (half",
       "RuntimeError: XPU out of memory. Tried to allocate 1.25 GiB (GPU 0; 11.33 GiB total "
       "capacity; 96.00 MiB already allocated; 128.00 MiB reserved in total by PyTorch)"},
      {MESSAGE_TORCH, C(LIMIT), "parts below 4 GiB", "nvidia-smi",
       "RuntimeError: Current platform can NOT allocate memory block with size larger than 4GB! "
       "Tried to allocate 5.50 GiB (GPU  0; 11.33 GiB total capacity; 0 bytes already allocated; 0 "
       "bytes reserved in total by PyTorch)"},
      {MESSAGE_TORCH, C(BATCH_TOO_BIG), "batch", NULL,
       "RuntimeError: XPU out of memory. Tried to allocate 1.25 GiB (GPU 0; 11.33 GiB total "
       "capacity; 10.50 GiB already allocated; 10.75 GiB reserved in total by PyTorch)"},
  };
  CHECK_SAMPLES(all);
}

TEST(more_than_the_device_has_is_windows)
{
  static const sample all[] = {
      {MESSAGE_TORCH, C(WEIGHTS_TOO_BIG), "16 bits", "expandable_segments:True",
       "    return t.to(device, dtype if t.is_floating_point() else None)\n"
       "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a "
       "total capacity of 6.00 GiB of which 0 bytes is free. Of the allocated memory 9.25 GiB is "
       "allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated. If reserved "
       "but unallocated memory is large try setting "
       "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."},
  };
  CHECK_SAMPLES(all);
  message m;
  message_read(&m, all[0].text, strlen(all[0].text));
  CHECK(context_any(&m.context, CONTEXT_BIT(WINDOWS)));
}

TEST(results_that_are_collected_are_moved_off_the_device)
{
  static const char FULL[] =
      "OutOfMemoryError: CUDA out of memory. Tried to allocate 7.50 GiB (GPU 0; 39.56 GiB total "
      "capacity; 30.10 GiB already allocated; 2.10 GiB free; 36.20 GiB reserved in total by "
      "PyTorch)";
  char text[1200];
  snprintf(text, sizeof text,
           "[/usr/lib/python3.10/dist-packages/transformers/trainer_pt_utils.py](https://"
           "localhost:8080/#) in nested_concat(tensors, new_tensors)\n"
           "     80 \n---> 81     result = tensor1.new_full(shape, -100)\n     82 \n%s",
           FULL);
  const sample colab[] = {{MESSAGE_TORCH, C(LEAK), "eval_accumulation_steps", "--spill", text}};
  CHECK_SAMPLES(colab);
  char own[1200];
  snprintf(own, sizeof own,
           "Traceback (most recent call last):\n  File \"score.py\", line 31, in evaluate\n"
           "    logits = torch.cat(all_logits)\n%s",
           FULL);
  const sample script[] = {{MESSAGE_TORCH, C(LEAK), ".cpu()", NULL, own}};
  CHECK_SAMPLES(script);
}

TEST(a_library_or_a_database_has_a_limit_of_its_own)
{
  static const sample all[] = {
      {MESSAGE_CUDA, C(UNKNOWN) | C(BATCH_TOO_BIG), "nvidia-smi", NULL,
       "CUFFTError(code 2, cuFFT failed to allocate GPU or CPU memory)"},
      {MESSAGE_HOST, C(HOST_LIMIT), "preserve_insertion_order", "batch",
       "duckdb.OutOfMemoryException: Out of Memory Error: failed to allocate data of size 64.0 MiB "
       "(3.6 GiB/3.7 GiB used)"},
      {MESSAGE_HOST, C(HOST_LIMIT), "temp_directory", "batch",
       "Error: Out of Memory Error: could not allocate block of 524288 bytes"},
  };
  CHECK_SAMPLES(all);
  message m;
  message_read(&m, all[1].text, strlen(all[1].text));
  CHECK(m.asked_bytes == 64 * MIB);
  CHECK(m.limit_bytes > 3 * GIB && m.limit_bytes < 4 * GIB);
  message_read(&m, all[2].text, strlen(all[2].text));
  CHECK(m.asked_bytes == 524288);
}

TEST(a_device_of_any_vendor_gets_no_vendor_s_tool)
{
  static const sample all[] = {
      {MESSAGE_DIRECTML, C(BATCH_TOO_BIG) | C(WEIGHTS_TOO_BIG) | C(UNKNOWN), "", "nvidia-smi",
       "RuntimeError: Could not allocate tensor with 104857600 bytes. There is not enough GPU "
       "video "
       "memory available!"},
      {MESSAGE_TENSORFLOW, C(BATCH_TOO_BIG), "batch", "nvidia-smi",
       "Resource exhausted: OOM when allocating tensor with shape[32,64,112,112] and type float on "
       "/job:localhost/replica:0/task:0/device:DML:0 by allocator DmlAllocator"},
      {MESSAGE_LLAMA, C(WEIGHTS_TOO_BIG), "-ngl", "nvidia-smi",
       "ggml_vulkan: Device memory allocation of size 2147483648 failed.\n"
       "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n"},
      {MESSAGE_TENSORFLOW, C(OTHER_PROCESS) | C(BATCH_TOO_BIG) | C(LIMIT) | C(UNKNOWN), "",
       "nvidia-smi",
       "2021-04-02 09:11:05.001: E tensorflow/stream_executor/rocm/rocm_driver.cc:600] failed to "
       "allocate 7.50G (8053063680 bytes) from device: HIP_ERROR_OutOfMemory"},
  };
  CHECK_SAMPLES(all);
}

TEST(numbers_of_opencv_and_tensorrt_are_read)
{
  message m;
  static const char cv[] =
      "cv2.error: OpenCV(4.8.0) /io/alloc.cpp:73: error: (-4:Insufficient memory) "
      "Failed to allocate 1228800 bytes in function 'OutOfMemoryError'";
  message_read(&m, cv, sizeof cv - 1);
  CHECK(m.kind == MESSAGE_HOST && m.asked_bytes == 1228800);
  static const char trt[] =
      "[TensorRT] ERROR: Requested amount of memory (67108864 bytes) could not be allocated.";
  message_read(&m, trt, sizeof trt - 1);
  CHECK(m.kind == MESSAGE_TENSORRT && m.asked_bytes == 64 * MIB);
}

TEST(a_size_below_zero_is_a_bug)
{
  static const sample all[] = {
      {MESSAGE_HOST, C(UNKNOWN), "bug", "RAM",
       "memory allocation of 18446744073709551600 bytes failed\nAborted (core dumped)"},
      {MESSAGE_CUDA, C(UNKNOWN) | C(BATCH_TOO_BIG), "", NULL,
       "Error: System is out of GPU and shared host memory"},
  };
  CHECK_SAMPLES(all);
}

TEST(a_kernel_s_shape_is_no_batch_and_an_update_is_the_optimizer_s)
{
  static const sample all[] = {
      {MESSAGE_TENSORFLOW, C(BATCH_TOO_BIG), "batch", "instead of 5",
       "ResourceExhaustedError: OOM when allocating tensor with shape[5,5,256,512] and type float "
       "on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Sub]"},
      {MESSAGE_TENSORFLOW, C(BATCH_TOO_BIG), "batch_size=8 instead of 16", NULL,
       "ResourceExhaustedError: OOM when allocating tensor with shape[16,64,224,224] and type "
       "float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Relu]"},
      {MESSAGE_TENSORFLOW, C(OPTIMIZER_STATE), "SGD", NULL,
       "OOM when allocating tensor with shape[90000,400]\n\t [[Node: training/Adam/mul_7 = "
       "Mul[T=DT_FLOAT](Adam/beta_1/read, training/Adam/Variable_4/read)]]"},
      {MESSAGE_TENSORFLOW, C(BATCH_TOO_BIG), "batch", "SGD",
       "OOM when allocating tensor with shape[64,112,112,64]\n\t [[Node: "
       "training/Adam/gradients/conv_2/Conv2D_grad/Conv2DBackpropInput = Conv2D[T=DT_FLOAT]()]]"},
      {MESSAGE_TENSORFLOW, C(UNKNOWN) | C(BATCH_TOO_BIG), "TF_FORCE_GPU_ALLOW_GROWTH", NULL,
       "E tensorflow/stream_executor/cuda/cuda_blas.cc:226] failed to create cublas handle: "
       "CUBLAS_STATUS_ALLOC_FAILED"},
  };
  CHECK_SAMPLES(all);
}

TEST(servers_runners_and_libraries_say_what_would_do)
{
  static const sample all[] = {
      {MESSAGE_SGLANG, C(WEIGHTS_TOO_BIG), "--mem-fraction-static 0.94 instead of 0.85", NULL,
       "ValueError: Loaded weights leave no GPU memory for the KV cache under "
       "--mem-fraction-static=0.85. Raise --mem-fraction-static to at least 0.93."},
      {MESSAGE_HOST, C(HOST_LIMIT), "smaller quantization", "read_csv",
       "Error: llama runner process has terminated: signal: killed"},
      {MESSAGE_CUDA, C(UNKNOWN) | C(BATCH_TOO_BIG), "nvidia-smi", "read_csv",
       "Error out of memory at line 121 in file /src/bitsandbytes/csrc/ops.cu"},
      {MESSAGE_HOST, C(HOST_COPIES),
       "open_memmap(\"x.npy\", mode=\"w+\", dtype=np.uint8, shape=(40000, 300, 300, 3))", NULL,
       "MemoryError: Unable to allocate 10.1 GiB for an array with shape (40000, 300, 300, 3) and "
       "data type uint8"},
  };
  CHECK_SAMPLES(all);
}

TEST(servers_name_their_cache_and_their_slots)
{
  static const sample all[] = {
      {MESSAGE_TENSORRT, C(BATCH_TOO_BIG), "--kv_cache_free_gpu_memory_fraction", "workspace",
       "[02/03/2026-10:00:01] [TRT-LLM] [RANK 0] [E] Failed to initialize executor on rank 0: "
       "Executor creation failed due to insufficient GPU memory.\n\nThe following component could "
       "not be created: KV cache\nTotal GPU memory (GiB): 79.25\nFree GPU memory before component "
       "creation attempt (GiB): 9.50\n"},
      {MESSAGE_TENSORRT, C(BATCH_TOO_BIG), "--max_batch_size", NULL,
       "[TensorRT-LLM][ERROR] CUDA runtime error in cudaMallocAsync(ptr, n, mPool): out of memory"},
      {MESSAGE_SGLANG, C(BATCH_TOO_BIG), "--max-running-requests", "nvidia-smi; stop",
       "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for "
       "`--max-running-requests`. available_size()=0, num_reqs=3"},
      {MESSAGE_SGLANG, C(WEIGHTS_TOO_BIG), "--mem-fraction-static", NULL,
       "[2026-01-02 03:04:05 TP0] Load weight end. type=A, dtype=torch.bfloat16, avail mem=3.50 "
       "GB, mem usage=20.25 GB.\nRuntimeError: Not enough memory. Please try to increase "
       "--mem-fraction-static."},
  };
  CHECK_SAMPLES(all);
  message m;
  message_read(&m, all[0].text, strlen(all[0].text));
  CHECK_U64(m.device_bytes, 79 * GIB + GIB / 4);
  CHECK_U64(m.free_bytes, 9 * GIB + GIB / 2);
  message_read(&m, all[3].text, strlen(all[3].text));
  CHECK_U64(m.live_bytes, 20 * GIB + GIB / 4);
  CHECK_U64(m.free_bytes, 3 * GIB + GIB / 2);
}

TEST(a_cache_s_length_follows_from_its_sizes)
{
  static const sample all[] = {
      {MESSAGE_VLLM, C(WEIGHTS_TOO_BIG), "--max-model-len 15872", NULL,
       "ValueError: To serve at least one request with the models's max seq len (65536), (8.00 GiB "
       "KV cache is needed, which is larger than the available KV cache memory (2.00 GiB). Try "
       "increasing `gpu_memory_utilization` or decreasing `max_model_len`"},
      {MESSAGE_VLLM, C(BATCH_TOO_BIG), "--max-num-seqs", "this program's data",
       "vllm serve a/b -tp 2\nRuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; "
       "60.00 GiB total capacity; 58.00 GiB already allocated; 1.00 GiB free; 58.10 GiB reserved "
       "in total by PyTorch)"},
      {MESSAGE_CUDA, C(UNKNOWN) | C(BATCH_TOO_BIG), "nvidia-smi", NULL,
       "[saver.cpp] CUresult error  result=2 file=saver.cpp func=cu_mem_create line=9"},
  };
  CHECK_SAMPLES(all);
  explanation x;
  buffer out = BUFFER_INIT;
  CHECK_OK(explain_message(&x, all[0].text, strlen(all[0].text)));
  CHECK_OK(explanation_text(&x, &out, false));
  CHECK(strstr(out.data, "the cache holds about 15872") != NULL);
  buffer_free(&out);
  explanation_free(&x);
}

TEST(an_npu_is_not_an_nvidia_device)
{
  static const sample all[] = {
      {MESSAGE_CUDA, C(UNKNOWN) | C(BATCH_TOO_BIG), "npu-smi", "nvidia",
       "ERROR 01-02 03:04:05 [PID: 7] Memory_Allocation_Failure(EL0004): Failed to allocate memory "
       "requested by GE module.\n  Call rtMalloc fail, purpose: page caching, type = 2, "
       "size:1073741824, device_id:0"},
      {MESSAGE_CUDA, C(BATCH_TOO_BIG), "mindspore.float16", "nvidia",
       "[ERROR] mindspore/ccsrc/x.cc:9] Alloc] TotalUsedMemStatistics : 15032385536 plus "
       "TotalUsedByEventMemStatistics : 0 and plus alloc size : 1073741824 is more than total mem "
       "size : 16106127360.\n  File \"run.py\", line 3, in <module>\n    out = "
       "model.generate(ids)"},
  };
  CHECK_SAMPLES(all);
  message m;
  message_read(&m, all[0].text, strlen(all[0].text));
  CHECK_U64(m.asked_bytes, GIB);
  message_read(&m, all[1].text, strlen(all[1].text));
  CHECK(m.asked_bytes == GIB && m.live_bytes == 14 * GIB && m.limit_bytes == 15 * GIB);
}

TEST(saving_gathers_and_loading_moves_whole_models)
{
  static const sample all[] = {
      {MESSAGE_CUDA, C(WEIGHTS_TOO_BIG), "SHARDED_STATE_DICT", NULL,
       "[rank3]:   File \"/srv/x/save.py\", line 5, in keep\n[rank3]:     state = "
       "ema.state_dict()\n[rank3]:   File "
       "\"/x/site-packages/torch/distributed/fsdp/_state_dict_utils.py\", line 9, in "
       "_full_pre_state_dict_hook\n[rank3]: torch.OutOfMemoryError: CUDA out of memory."},
      {MESSAGE_TORCH, C(WEIGHTS_TOO_BIG), "rank0_only", NULL,
       "UserWarning: Failed to clone() tensor with name a.b.weight on rank 0. Error: CUDA out of "
       "memory. Tried to allocate 64.00 MiB (GPU 0; 39.59 GiB total capacity; 38.00 GiB already "
       "allocated; 20.00 MiB free; 38.40 GiB reserved in total by PyTorch)"},
      {MESSAGE_CUDA, C(WEIGHTS_TOO_BIG), "--lowvram", "model.half()",
       "  File \"D:\\ComfyUI\\comfy\\model_patcher.py\", line 4, in load\n    "
       "self.patch_weight_to_device(key, device_to=device_to)\n  File "
       "\"D:\\ComfyUI\\comfy\\model_management.py\", line 7, in cast_to\n    return "
       "x.to(device, copy=True)\ntorch.OutOfMemoryError: Allocation on device"},
      {MESSAGE_TORCH, C(WEIGHTS_TOO_BIG), "enable_model_cpu_offload", NULL,
       "  File \"/srv/x/web.py\", line 8, in infer\n    pipe.to(device)\n"
       "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 72.00 MiB. GPU 0 has a total "
       "capacity of 15.98 GiB of which 50.00 MiB is free. Of the allocated memory 15.30 GiB is "
       "allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated."},
  };
  CHECK_SAMPLES(all);
}

TEST(boosting_libraries_that_ran_out_of_host_memory_get_their_own_settings)
{
  static const sample all[] = {
      {MESSAGE_HOST, C(HOST_LIMIT), "two_round", "nvidia-smi",
       "[LightGBM] [Fatal] Out of host memory"},
      {MESSAGE_HOST, C(HOST_LIMIT), "two_round", "nvidia-smi",
       "[LightGBM] [Fatal] bad allocation\nTraceback (most recent call last):\n  File "
       "\"train.py\", line 12, in <module>\n    model = lgb.train(params, "
       "data)\nlightgbm.basic.LightGBMError: bad allocation"},
      {MESSAGE_HOST, C(HOST_LIMIT), "QuantileDMatrix", "nvidia-smi",
       "xgboost.core.XGBoostError: std::bad_alloc"},
  };
  CHECK_SAMPLES(all);
}

TEST(advice_belongs_to_the_library_and_the_system_of_the_text)
{
  static const sample all[] = {
      /* Keras's own frames name validation data; the first dimension is no multiple of the batch */
      {MESSAGE_TENSORFLOW, C(BATCH_TOO_BIG), "batch_size=4 instead of 8", "torch",
       "Resource exhausted: OOM when allocating tensor with shape[90001,400]\nTraceback (most "
       "recent call last):\n  File \"fit.py\", line 9, in <module>\n    model.fit(x, y, "
       "batch_size=8, validation_data=(a, b))\n  File \"/x/site-packages/keras/models.py\", line "
       "3, in fit\n    validation_steps=validation_steps)"},
      {MESSAGE_HOST, C(HOST_COPIES) | C(HOST_LIMIT), "in RAM", "CUDA",
       "Non-zero status code returned while running Conv node. Name:'12_nchwc' Status Message: "
       "bfc_arena.cc:330 AllocateRawInternal Failed to allocate memory for requested buffer of "
       "size 314572800"},
      {MESSAGE_TORCH, C(UNKNOWN), ".wslconfig", NULL,
       "RuntimeError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 24.00 GiB total "
       "capacity; 2.00 GiB already allocated; 20.00 GiB free; 2.10 GiB reserved in total by "
       "PyTorch)\nme@PC:/mnt/c/Users/me$"},
      {MESSAGE_TORCH, C(UNKNOWN), "page file", "2 different failures",
       "system: Windows\nCUDA out of memory. Tried to allocate 300.00 MiB (GPU 0; 24.00 GiB total "
       "capacity; 2.00 GiB already allocated; 20.00 GiB free; 2.10 GiB reserved in total by "
       "PyTorch)\n20 GB free, and it says out of memory. Tried to allocate 300.00 MB ?!"},
      /* the end of the traceback is cut off */
      {MESSAGE_CUDA, C(BATCH_TOO_BIG), "LoRA", NULL,
       "Batch size per device = 1 | Gradient accumulation steps = 4\n"
       "OutOfMemoryError                          Traceback (most recent call last)\n"
       "----> 1 trainer.train()\n\n/usr/lib/python3/dist-packages/transformers/trainer.py in "
       "train(self)\n"},
  };
  CHECK_SAMPLES(all);
}

TEST(a_java_heap_and_a_crashed_worker_are_named)
{
  static const struct {
    const char *text, *help;
  } all[] = {
      {"java.lang.OutOfMemoryError: Java heap space", "-Xmx"},
      {"RuntimeError: DataLoader worker (pid 9) is killed by signal: Segmentation fault.",
       "num_workers=0"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    message m;
    message_read(&m, all[i].text, strlen(all[i].text));
    CHECK(m.kind == MESSAGE_FOREIGN);
    CHECK(strstr(m.help, all[i].help) != NULL);
  }
}

/* Texts whose words exclude the usual cause or the usual advice. */
TEST(advice_does_not_contradict_the_text)
{
  static const struct {
    const char *text, *has, *lacks;
  } all[] = {
      {"runtime: VirtualAlloc of 402653184 bytes failed with errno=1455\nfatal error: out of "
       "memory\n\nruntime stack:\nruntime.throw({0x1?, 0x2?})\n",
       "a larger page file", "read_csv"},
      {"\"State\": {\n  \"Status\": \"exited\",\n  \"OOMKilled\": false,\n  \"ExitCode\": "
       "137,\n  \"Error\": \"\"\n}\n",
       "dmesg", "its memory limit"},
      {"Traceback (most recent call last):\n  File \"talk.py\", line 8, in <module>\n    for s in "
       "segments:\n  File \"/x/site-packages/faster_whisper/transcribe.py\", line 9, in "
       "generate_with_fallback\n    result = self.model.generate(\nRuntimeError: CUDA failed with "
       "error out of memory\n",
       "the model is loaded", "BitsAndBytesConfig"},
      {"Traceback (most recent call last):\n  File \"cap.py\", line 8, in <module>\n    m = "
       "AutoModelForCausalLM.from_pretrained(p, device_map=\"auto\")\n  File "
       "\"/x/site-packages/transformers/quantizers/quantizer_bnb_4bit.py\", line 9, in "
       "validate_environment\n    raise ValueError(\nValueError: Some modules are dispatched on "
       "the "
       "CPU or the disk. Make sure you have enough GPU RAM to fit the quantized model.\n",
       "a smaller model", "load_in_"},
      {"numpy.core._exceptions._ArrayMemoryError: Unable to allocate 44.7 GiB for an array with "
       "shape (154919, 154919) and data type uint16\n",
       "check the shape (154919, 154919)", "toarray"},
      {"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 96.00 MiB on device 3: cudaMalloc "
       "failed: out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA3 buffer of size "
       "100663296\nllama_new_context_with_model: failed to allocate compute buffers\n",
       "on device 3", "empty_cache"},
      {"InternalError: Failed copying input tensor from /job:localhost/device:CPU:0 to "
       "/job:localhost/device:GPU:0 in order to run _EagerConst: Dst tensor is not initialized.\n",
       "from_tensor_slices", "mixed precision"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    explanation x;
    CHECK_OK(explain_message(&x, all[i].text, strlen(all[i].text)));
    buffer text = BUFFER_INIT;
    CHECK_OK(explanation_text(&x, &text, false));
    if (strstr(text.data, all[i].has) == NULL || strstr(text.data, all[i].lacks) != NULL)
      FAIL("%s", text.data);
    buffer_free(&text);
    explanation_free(&x);
  }
}

/* A log with failures of two libraries: the answer is that of the first one alone, and the second
 * one is counted. */
TEST(the_first_of_two_failures_is_explained_with_its_own_numbers)
{
  static const char *const all[] = {
      "Traceback (most recent call last):\n  File \"fit.py\", line 31, in <module>\n"
      "    loss.backward()\n  File \"/x/site-packages/torch/_tensor.py\", line 5, in backward\n"
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 310.00 MiB. GPU 0 has a total "
      "capacity of 11.76 GiB of which 88.00 MiB is free. Including non-PyTorch memory, this "
      "process "
      "has 11.60 GiB memory in use. Of the allocated memory 11.20 GiB is allocated by PyTorch, and "
      "60.00 MiB is reserved by PyTorch but unallocated.\n",
      "Traceback (most recent call last):\n  File \"/mnt/u/solve.py\", line 12, in <module>\n"
      "    y = jnp.matmul(a, b)\n"
      "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
      "allocate 6442450944 bytes.\n",
      "Traceback (most recent call last):\n  File \"fft.py\", line 7, in <module>\n"
      "    z = cp.zeros((50000, 50000))\n  File \"cupy/cuda/memory.pyx\", line 742, in "
      "cupy.cuda.memory.alloc\n"
      "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 20,000,000,000 bytes (allocated "
      "so far: 1,600,000,000 bytes).\n",
      "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5120.00 MiB on device 0: cudaMalloc "
      "failed: out of memory\nalloc_tensor_range: failed to allocate CUDA0 buffer of size "
      "5368709120\nllama_model_load: error loading model: unable to allocate CUDA0 buffer\n",
      "$ vllm serve some/model\nTraceback (most recent call last):\n"
      "  File \"/x/site-packages/vllm/v1/core/kv_cache_utils.py\", line 9, in check\n"
      "ValueError: To serve at least one request with the models's max seq len (32768), (4.00 GiB "
      "KV cache is needed, which is larger than the available KV cache memory (2.50 GiB). Based on "
      "the available memory, the estimated maximum model length is 20480.\n",
      "$ python -m sglang.launch_server --model-path m --mem-fraction-static 0.7\n"
      "Load weight end. type=M, avail mem=3.10 GB, mem usage=18.40 GB.\n"
      "Traceback (most recent call last):\n"
      "  File \"/x/site-packages/sglang/srt/model_executor/model_runner.py\", line 9, in init\n"
      "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n",
      "Traceback (most recent call last):\n  File \"table.py\", line 4, in <module>\n"
      "    d = np.zeros((90000, 90000))\nnumpy.core._exceptions._ArrayMemoryError: Unable to "
      "allocate 60.3 GiB for an array with shape (90000, 90000) and data type float64\n",
      "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  "
      "std::bad_alloc\nAborted (core dumped)\n",
      "Traceback (most recent call last):\n  File \"show.py\", line 22, in <module>\n"
      "    frame = image.cuda()\nRuntimeError: CUDA error: out of memory\n",
      "Traceback (most recent call last):\n  File \"pack.py\", line 29, in <module>\n"
      "    pickle.dump(rows, file)\nMemoryError\n",
  };
  static const char *const between[] = {"", "\n", "\nretrying on the other machine\n\n"};
  enum { COUNT = sizeof all / sizeof *all };
  for (size_t i = 0; i < COUNT * COUNT * 3; i++) {
    size_t first = i / 3 / COUNT, second = i / 3 % COUNT;
    if (first == second) continue;
    /* A bare status after an error without a traceback may be the same failure, seen by Python. */
    if (second >= COUNT - 2 && strstr(all[first], "Traceback") == NULL) continue;
    char text[3000];
    snprintf(text, sizeof text, "%s%s%s", all[first], between[i % 3], all[second]);
    explanation alone, both;
    CHECK_OK(explain_message(&alone, all[first], strlen(all[first])));
    CHECK_OK(explain_message(&both, text, strlen(text)));
    const message *m = &both.evidence.message;
    bool same = strcmp(alone.headline.data, both.headline.data) == 0 &&
                m->kind == alone.evidence.message.kind && m->failures == 2 &&
                memcmp(&alone.evidence.n, &both.evidence.n, sizeof alone.evidence.n) == 0 &&
                alone.fixes.count == both.fixes.count;
    for (uint32_t f = 0; same && f < alone.fixes.count; f++)
      same = strcmp(alone.fixes.list[f].change, both.fixes.list[f].change) == 0;
    if (!same)
      fprintf(stderr, "%s----\n%s (%u failures)\nalone: %s\n", text, both.headline.data,
              m->failures, alone.headline.data);
    CHECK(same);
    CHECK(strstr(both.findings.list[0].evidence.data, "2 different failures; this is the first") !=
          NULL);
    explanation_free(&alone);
    explanation_free(&both);
  }
}

/* The same for two programs of one library, and for a rank that repeats the first one's error. */
TEST(two_failures_of_one_library_keep_their_circumstances)
{
  static const char text[] =
      "Traceback (most recent call last):\n  File \"fit.py\", line 31, in <module>\n"
      "    loss.backward()\nRuntimeError: CUDA out of memory. Tried to allocate 310.00 MiB (GPU 0; "
      "11.76 GiB total capacity; 11.20 GiB already allocated; 88.00 MiB free; 11.30 GiB reserved "
      "in "
      "total by PyTorch)\n\nTraceback (most recent call last):\n  File \"chat.py\", line 5, in "
      "<module>\n    net = AutoModel.from_pretrained(name).cuda()\nRuntimeError: CUDA out of "
      "memory. Tried to allocate 64.00 MiB (GPU 0; 8.00 GiB total capacity; 7.20 GiB already "
      "allocated; 8.00 MiB free; 7.30 GiB reserved in total by PyTorch)\n";
  explanation x;
  CHECK_OK(explain_message(&x, text, sizeof text - 1));
  CHECK_U64(x.evidence.message.failures, 2);
  CHECK_U64(x.evidence.n.asked_bytes, 310 * MIB);
  CHECK(strstr(x.findings.list[0].evidence.data, "fit.py:31") != NULL);
  CHECK_U64(x.findings.list[0].id, CAUSE_BATCH_TOO_BIG);
  explanation_free(&x);
}

/* A program of C++, Rust or Go gets no advice for Python; a library in Python that is written in
 * one of them does. */
TEST(a_native_program_gets_no_advice_for_python)
{
  static const char *const native[] = {
      "memory allocation of 51539607552 bytes failed\nAborted (core dumped)",
      "thread 'main' panicked at library/alloc/src/raw_vec.rs:24\n   4: alloc::alloc::"
      "handle_alloc_error\n   5: mesh::grid::Grid::new\n             at ./src/grid.rs:88",
      "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
      "./render.sh: line 3: 777 Aborted (core dumped) ./render --scene big.obj",
      "libc++abi: terminating due to uncaught exception of type std::bad_alloc: std::bad_alloc",
      "fatal error: runtime: out of memory\n\ngoroutine 1 [running]:\nmain.load(0xc000)",
  };
  static const char *const unsaid[] = {"python", "pd.",      "pandas",
                                       "np.",    "stowage.", "from_pretrained"};
  for (size_t i = 0; i < sizeof native / sizeof *native; i++) {
    const sample one[] = {
        {MESSAGE_HOST, C(HOST_LIMIT), "work on the input in parts", NULL, native[i]}};
    CHECK_SAMPLES(one);
    explanation x;
    buffer out = BUFFER_INIT;
    CHECK_OK(explain_message(&x, native[i], strlen(native[i])));
    CHECK_OK(explanation_text(&x, &out, false));
    for (size_t k = 0; k < sizeof unsaid / sizeof *unsaid; k++)
      CHECK(strstr(out.data, unsaid[k]) == NULL);
    CHECK(strstr(out.data, "PROGRAM") != NULL);
    buffer_free(&out);
    explanation_free(&x);
  }
  static const sample python[] = {
      {MESSAGE_HOST, C(HOST_LIMIT) | C(HOST_DATASET_WHOLE), "chunksize", "PROGRAM",
       "$ python load.py\nterminate called after throwing an instance of 'std::bad_alloc'\n"
       "  what():  std::bad_alloc"},
      {MESSAGE_HOST, C(HOST_LIMIT), "scan_csv", "PROGRAM",
       "polars: memory allocation of 4294967296 bytes failed"},
  };
  CHECK_SAMPLES(python);
}

/* Sizes that a text gives in its own words, or as a shape on the user's own line. */
TEST(numbers_of_pools_models_and_shapes_are_read)
{
  static const struct {
    const char *text;
    uint64_t asked, limit;
  } all[] = {
      {"[WARNING] Generating with a model that requires 24576 MB which is close to the maximum "
       "recommended size of 21845 MB.\nRuntimeError: [METAL] Command buffer execution failed: "
       "Insufficient Memory",
       24576 * MIB, 21845 * MIB},
      {"RuntimeError: [metal::malloc] Attempting to allocate 21474836480 bytes which is greater "
       "than "
       "the maximum allowed buffer size of 14302248960 bytes.",
       20 * GIB, UINT64_C(14302248960)},
      {"MemoryError: std::bad_alloc: out_of_memory: RMM failure at:pool_memory_resource.hpp:264: "
       "Maximum pool size exceeded (failed to allocate 12.5 GiB): Not enough room to grow, "
       "current/max/try size = 4.0 GiB, 8.0 GiB, 12.5 GiB",
       GIB * 25 / 2, 8 * GIB},
      {"  File \"grid.py\", line 5, in <module>\n    d = cuda.device_array((30000, 20000, 4), "
       "dtype=np.float32)\nnumba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results "
       "in CUDA_ERROR_OUT_OF_MEMORY",
       UINT64_C(30000) * 20000 * 4 * 4, MESSAGE_UNKNOWN},
      {"  File \"grid.py\", line 5, in <module>\n    d = cuda.device_array((n, 20000))\n"
       "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in "
       "CUDA_ERROR_OUT_OF_MEMORY",
       MESSAGE_UNKNOWN, MESSAGE_UNKNOWN},
      {"Your session crashed after using all available RAM.\ntcmalloc: large alloc 7200000000 "
       "bytes "
       "== 0x7b2a @ 0x7b2f",
       UINT64_C(7200000000), MESSAGE_UNKNOWN},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    message m;
    message_read(&m, all[i].text, strlen(all[i].text));
    CHECK_U64(m.asked_bytes, all[i].asked);
    CHECK_U64(m.limit_bytes, all[i].limit);
  }
  const sample said[] = {
      {MESSAGE_MLX, C(WEIGHTS_TOO_BIG), "4 bits", "nvidia-smi", all[0].text},
      {MESSAGE_MLX, C(ONE_SPIKE), "smaller", "nvidia-smi", all[1].text},
      {MESSAGE_RMM, C(ONE_SPIKE), "duplicate keys", "swap", all[2].text},
  };
  CHECK_SAMPLES(said);
}

/* A loop over evaluation data that keeps results on the device, whatever its names are; one that
 * moves them off the device, and one over training data, is not meant. */
TEST(an_evaluation_loop_that_keeps_its_results_is_recognized)
{
  static const struct {
    const char *code;
    uint64_t marks;
  } all[] = {
      {"for inputs, target in test_loader:\n    y = net(inputs)\n    kept.append(y)\n",
       CONTEXT_BIT(COLLECTING)},
      {"     3 for b in tqdm(valid_set):\n     4     guess = model(b)\n     5     "
       "everything.extend(guess)\n",
       CONTEXT_BIT(COLLECTING)},
      {"for v in values:\n    kept.append(net(v))\n", 0},
      {"for image in latest:\n    kept.append(net(image))\n", 0},
      {"for x, y in self.valloader:\n    kept.append(net(x))\n", CONTEXT_BIT(COLLECTING)},
      {"for x, y in eval_data:\n    total_loss += criterion(net(x), y)\n", CONTEXT_BIT(COLLECTING)},
      {"    val_running_loss += criterion(out, y)\n", CONTEXT_BIT(COLLECTING)},
      {"    return torch.cat(self.predictions)\n", CONTEXT_BIT(COLLECTING)},
      {"for x in test_loader:\n    kept.append(net(x).cpu())\n", 0},
      {"for x in train_loader:\n    losses.append(loss.item())\n    hs.append(h)\n", 0},
      {"    x = torch.cat([features, skip], 1)\n", 0},
      {"batches = list(valid_loader)\n", CONTEXT_BIT(LISTING)},
      {"ys = [b[1] for b in my_loader]\n", CONTEXT_BIT(LISTING)},
      {"print(len(train_loader))\n", 0},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    context c;
    scan_text t = {all[i].code, all[i].code + strlen(all[i].code)};
    context_read(&c, t, t);
    uint64_t marks = c.seen & (CONTEXT_BIT(COLLECTING) | CONTEXT_BIT(LISTING));
    if (marks != all[i].marks) printf("%s\n", all[i].code);
    CHECK_U64(marks, all[i].marks);
  }
}

/* Two libraries that take turns in a log without empty lines do not make reading slow. */
TEST(a_long_log_of_two_libraries_is_read_quickly)
{
  static const char turn[] =
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 310.00 MiB. GPU 0 has a total "
      "capacity of 11.76 GiB of which 88.00 MiB is free.\n"
      "alloc_tensor_range: failed to allocate CUDA0 buffer of size 5368709120\n";
  buffer text = BUFFER_INIT;
  for (int i = 0; i < 2000; i++) buffer_text(&text, turn);
  clock_t start = clock();
  message m;
  message_read(&m, text.data, text.length);
  CHECK(m.kind == MESSAGE_TORCH && m.asked_bytes == 310 * MIB && m.failures > 2);
  CHECK(clock() - start < 15 * CLOCKS_PER_SEC); /* about 1 s; without bounds a minute */
  buffer_free(&text);
}

/* A kill after a timeout, a refusal while memory was free, and a model that is being made. */
TEST(the_text_rules_out_the_usual_reason)
{
  static const sample all[] = {
      {MESSAGE_CUDA, C(BATCH_TOO_BIG), "smaller batch", "another process",
       "render on Radeon failed: out of VRAM. used: 15.0 GiB, total: 16 GiB, requested: 4 GiB"},
      {MESSAGE_HOST, C(UNKNOWN), "--timeout", "add swap",
       "[2026-01-01 10:00:30 +0000] [7] [CRITICAL] WORKER TIMEOUT (pid:12)\n[2026-01-01 10:00:31 "
       "+0000] [7] [ERROR] Worker (pid:12) was sent SIGKILL! Perhaps out of memory?"},
      {MESSAGE_HOST, C(HOST_LIMIT), "page file", "already full",
       "RuntimeError: [enforce fail at ..\\c10\\core\\impl\\alloc_cpu.cpp:72] data. "
       "DefaultCPUAllocator: not enough memory: you tried to allocate 104857600 bytes.\n"
       "The machine has 12 GiB of RAM free."},
      {MESSAGE_CTRANSLATE, C(WEIGHTS_TOO_BIG), "int8", "is loaded",
       "Traceback (most recent call last):\n"
       "  File \"app/speech.py\", line 50, in transcribe_file\n"
       "  File \"faster_whisper/transcribe.py\", line 9, in __init__\n"
       "RuntimeError: CUDA failed with error out of memory\n\n"
       "During handling of the above exception, another exception occurred:\n\n"
       "Traceback (most recent call last):\n  File \"app/main.py\", line 7, in transcribe\n"
       "AttributeError: 'NoneType' object has no attribute 'write'"},
  };
  CHECK_SAMPLES(all);
}

TEST_MAIN
