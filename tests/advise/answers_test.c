/* Answers use what the text says: its numbers, its platform, its own line, its library's names. All
 * texts were written for this test in the wording of the libraries. */
#include "sample.h"

#define TORCH_FULL                                                                                 \
  "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total "    \
  "capacity of 15.60 GiB of which 40.00 MiB is free. Including non-PyTorch memory, this process "  \
  "has 15.50 GiB memory in use. Of the allocated memory 15.10 GiB is allocated by PyTorch, and "   \
  "12.00 MiB is reserved by PyTorch but unallocated.\n"

/* Returns the first fix for a text; the caller frees `x`. */
static const char *first_fix(explanation *x, const char *text) {
  CHECK_OK(explain_message(x, text, strlen(text)));
  return x->fixes.count > 0 ? x->fixes.list[0].change : "";
}

static void check_first(const char *text, const char *words) {
  explanation x;
  const char *first = first_fix(&x, text);
  if (strstr(first, words) == NULL) printf("%s\n----\n%s\n", text, first);
  CHECK(strstr(first, words) != NULL);
  explanation_free(&x);
}

/* Checks that the first sentence contains `words`. */
static void check_headline(const char *text, const char *words) {
  explanation x;
  first_fix(&x, text);
  if (strstr(x.findings.list[0].headline.data, words) == NULL) printf("%s\n", text);
  CHECK(strstr(x.findings.list[0].headline.data, words) != NULL);
  explanation_free(&x);
}

TEST(weights_that_are_small_already_are_not_made_16_bit)
{
  static const sample all[] = {
      {MESSAGE_TORCH, C(WEIGHTS_TOO_BIG), "4 bits", "in 16 bits",
       "Traceback (most recent call last):\n  File \"talk.py\", line 4, in <module>\n"
       "    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float16).cuda()\n"
       "  File \"/x/site-packages/torch/nn/modules/module.py\", line 905, in _apply\n" TORCH_FULL},
      {MESSAGE_TORCH, C(WEIGHTS_TOO_BIG), "device_map", "load_in_4bit",
       "Traceback (most recent call last):\n  File \"talk.py\", line 4, in <module>\n"
       "    model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)\n" TORCH_FULL},
      {MESSAGE_TORCH, C(WEIGHTS_TOO_BIG), "in 16 bits", NULL,
       "Traceback (most recent call last):\n  File \"talk.py\", line 4, in <module>\n"
       "    model = AutoModelForCausalLM.from_pretrained(name).cuda()\n" TORCH_FULL},
  };
  CHECK_SAMPLES(all);
}

TEST(a_batch_that_the_text_names_is_halved)
{
  check_first("python fit.py --batch-size 48 --lr 0.1\nTraceback (most recent call last):\n"
              "  File \"fit.py\", line 9, in step\n    loss.backward()\n" TORCH_FULL,
              "batch_size=24 instead of 48");
  check_first("# Minibatch-size: 20\nException in main training loop: out of memory to allocate "
              "163840000 bytes (total 11673061376 bytes)\n",
              "10 instead of 20");
  check_first("OOM when allocating tensor with shape[36,64,96,96] and type float on "
              "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n",
              "18 instead of 36");
}

TEST(a_batch_of_one_is_not_halved)
{
  static const sample all[] = {{MESSAGE_TORCH, C(BATCH_TOO_BIG), "batch is 1 already",
                                "half the batch", "I use a batch size of 1.\n" TORCH_FULL}};
  CHECK_SAMPLES(all);
}

TEST(a_variable_of_tensorflow_has_no_batch)
{
  static const sample all[] = {
      {MESSAGE_TENSORFLOW, C(WEIGHTS_TOO_BIG), "nvidia-smi", "smaller batch",
       "ResourceExhaustedError: OOM when allocating tensor with shape[30000,4096] and type float "
       "on "
       "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n\t [[Node: "
       "net/fc1/kernel/Initializer/random_uniform/RandomUniform = RandomUniform[T=DT_INT32]]]"},
      {MESSAGE_TENSORFLOW, C(OPTIMIZER_STATE), "SGD", "bitsandbytes",
       "ResourceExhaustedError: OOM when allocating tensor of shape [400000,256] and type float\n"
       "\t [[Node: words/Adam/Initializer/zeros = Const[dtype=DT_FLOAT]]]"},
  };
  CHECK_SAMPLES(all);
}

TEST(tensorflow_and_jax_without_memory_point_to_other_processes)
{
  static const sample all[] = {
      {MESSAGE_TENSORFLOW, C(OTHER_PROCESS), "nvidia-smi", NULL,
       "failed to allocate 9.20G (9878424781 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of "
       "memory"},
      {MESSAGE_XLA, C(OTHER_PROCESS), "nvidia-smi", NULL,
       "RuntimeError: Resource exhausted: Out of memory while trying to allocate 256 bytes."},
      {MESSAGE_XLA, C(BATCH_TOO_BIG) | C(UNKNOWN) | C(OTHER_PROCESS), "nvidia-smi", "RAM ran out",
       "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to allocate 88080384 bytes for new "
       "constant"},
  };
  CHECK_SAMPLES(all);
}

TEST(a_pool_of_another_language_gets_its_own_words)
{
  static const sample all[] = {
      {MESSAGE_JULIA, C(LIMIT), "JULIA_CUDA", NULL,
       "ERROR: Out of GPU memory trying to allocate 16.000 MiB\nEffective GPU memory usage: 90.10% "
       "(14.220 GiB/15.782 GiB)\nCUDA allocator usage: 12.984 GiB (capped at 13.000 GiB)\n"},
      {MESSAGE_JULIA, C(FRAGMENTATION), "CUDA.reclaim()", "XLA_",
       "ERROR: Out of GPU memory trying to allocate 1.100 GiB\nEffective GPU memory usage: 99.10% "
       "(11.640 GiB/11.741 GiB)\nMemory pool usage: 7.900 GiB (10.400 GiB reserved)\n"},
      {MESSAGE_CUPY, C(BATCH_TOO_BIG), "malloc_managed", "free_all_blocks",
       "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 512 bytes (allocated so far: "
       "8,435,267,072 bytes).\n"},
  };
  CHECK_SAMPLES(all);
}

TEST(a_share_of_the_device_is_computed_or_not_named)
{
  static const sample all[] = {
      {MESSAGE_VLLM, C(OTHER_PROCESS), "nvidia-smi", "--gpu-memory-utilization",
       "ValueError: Free memory on device (1.20/23.60 GiB) on startup is less than desired GPU "
       "memory utilization (0.9, 21.24 GiB)."},
      {MESSAGE_VLLM, C(OTHER_PROCESS), "--gpu-memory-utilization 0.52", NULL,
       "ValueError: Free memory on device (12.80/23.60 GiB) on startup is less than desired GPU "
       "memory utilization (0.9, 21.24 GiB)."},
      {MESSAGE_SGLANG, C(WEIGHTS_TOO_BIG), "0.90 instead of 0.40", NULL,
       "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current "
       "value: self.server_args.mem_fraction_static=0.4"},
      {MESSAGE_LLAMA, C(WEIGHTS_TOO_BIG), "num_gpu", NULL,
       "Error: llama runner exited, you may not have enough available memory to run this model"},
  };
  CHECK_SAMPLES(all);
}

TEST(processes_and_jobs_are_named_by_number)
{
  check_first(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 90.00 MiB. GPU 0 has a "
      "total capacity of 23.60 GiB of which 20.00 MiB is free. Process 4711 has 9.10 GiB "
      "memory in use. Process 4712 has 10.20 GiB memory in use. Including non-PyTorch "
      "memory, this process has 4.20 GiB memory in use. Of the allocated memory 3.60 GiB is "
      "allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.",
      "kill 4712 4711");
  static const sample all[] = {
      {MESSAGE_HOST, C(HOST_LIMIT), "requests: memory: 16Gi", "raise the container's limit",
       "Reason: Evicted\nMessage: The node was low on resource: memory. Container trainer was "
       "using "
       "14876Mi, request is 8Gi, has larger consumption of memory.\n"},
      {MESSAGE_HOST, C(HOST_LIMIT), "requests: memory: 4Gi", "memory: 1Gi",
       "The node was low on resource: memory. Container proxy was using 41Mi, which exceeds its "
       "request of 0. Container notebook was using 3105Mi, which exceeds its request of 512Mi."},
      {MESSAGE_HOST, C(HOST_LIMIT), "seff 90817", "JOBID",
       "slurmstepd: error: Detected 1 oom_kill event in StepId=90817.batch. Some of the step tasks "
       "have been OOM Killed."}};
  CHECK_SAMPLES(all);
}

TEST(a_paddle_that_fills_the_device_gets_a_smaller_batch_first)
{
  check_first("Out of memory error on GPU 0. Cannot allocate 90.000000MB memory on GPU 0, "
              "10.100000GB memory has been allocated and available memory is only 60.000000MB.",
              "smaller batch");
  check_first("Out of memory error on GPU 0. Cannot allocate 90.000000MB memory on GPU 0, "
              "available memory is only 60.000000MB.",
              "nvidia-smi");
  static const sample all[] = {
      {MESSAGE_PADDLE, C(WEIGHTS_TOO_BIG), "set_device(\"cpu\")", NULL,
       "  File \"serve.py\", line 3, in <module>\n    state = paddle.load(path)\nOut of memory "
       "error "
       "on GPU 0. Cannot allocate 90.000000MB memory on GPU 0, 10.100000GB memory has been "
       "allocated and available memory is only 60.000000MB."}};
  CHECK_SAMPLES(all);
}

TEST(arrays_get_a_type_that_is_smaller_than_theirs)
{
  static const sample all[] = {
      {MESSAGE_HOST, C(HOST_COPIES), "np.float32 takes 10.0 GiB instead of 20.0 GiB", NULL,
       "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 20.0 GiB for an array with "
       "shape (51200, 52429) and data type float64"},
      {MESSAGE_HOST, C(HOST_COPIES), "np.float16 takes", "np.float32 takes",
       "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 20.0 GiB for an array with "
       "shape (51200, 104858) and data type float32"},
      {MESSAGE_HOST, C(HOST_LIMIT), "hold less in RAM", "a smaller type:",
       "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 23.7 MiB for an array with "
       "shape (1080, 1920, 3) and data type float32"},
  };
  CHECK_SAMPLES(all);
}

TEST(a_pool_of_processes_is_no_dataloader)
{
  static const sample all[] = {
      {MESSAGE_HOST, C(HOST_WORKERS), "n_jobs=2", "DataLoader",
       "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by "
       "the executor was unexpectedly terminated.\nThe exit codes of the workers are "
       "{SIGKILL(-9)}"},
      {MESSAGE_HOST, C(HOST_WORKERS), "DataLoader(num_workers=2)", "n_jobs",
       "RuntimeError: DataLoader worker (pid 21) is killed by signal: Killed."},
  };
  CHECK_SAMPLES(all);
}

TEST(tags_progress_and_drives_are_read)
{
  explanation x;
  static const char tagged[] = "[1,0]<stderr>:Traceback (most recent call last):\n"
                               "[1,0]<stderr>:  File \"pre.py\", line 31, in work\n"
                               "[1,0]<stderr>:    loss.backward()\n[1,0]<stderr>:" TORCH_FULL;
  CHECK_OK(explain_message(&x, tagged, sizeof tagged - 1));
  CHECK(context_any(&x.evidence.message.context, CONTEXT_BIT(BACKWARD)));
  explanation_free(&x);
  static const sample all[] = {
      {MESSAGE_CUDA, C(NO_GRAD_MISSING), "no_grad", NULL,
       "Epoch 3 (train): 100% 90/90 [00:41<00:00,  2.39s/it]\n"
       "Epoch 3 (valid):   3% 1/32 [00:01<00:46,  1.50s/it]\nRuntimeError: CUDA error: out of "
       "memory"},
      {MESSAGE_TENSORFLOW, C(UNKNOWN), "nvidia-smi", "stowage run",
       "E c:\\ci\\build\\cuda_blas.cc:372] failed to create cublas handle: "
       "CUBLAS_STATUS_ALLOC_FAILED"},
  };
  CHECK_SAMPLES(all);
}

TEST(a_command_names_the_users_own_script)
{
  static const sample all[] = {
      {MESSAGE_CUDA, C(OTHER_PROCESS) | C(UNKNOWN) | C(BATCH_TOO_BIG),
       "stowage run --spill auto -- python segment.py", "train.py",
       "Traceback (most recent call last):\n  File \"/data/segment.py\", line 8, in <module>\n"
       "    x = x.cuda()\nRuntimeError: CUDA error: out of memory"},
  };
  CHECK_SAMPLES(all);
}

TEST(a_size_that_no_machine_has_is_not_printed)
{
  static const char *const texts[] = {
      "memory allocation of 18446744073709551615 bytes failed\nAborted (core dumped)",
      "bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory "
      "for requested buffer of size 4585490524328388608"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    explanation x;
    buffer out = BUFFER_INIT, json = BUFFER_INIT;
    CHECK_OK(explain_message(&x, texts[i], strlen(texts[i])));
    CHECK_OK(explanation_text(&x, &out, false));
    CHECK_OK(explanation_json(&x, &json));
    CHECK(strstr(out.data, "EiB") == NULL && strstr(out.data, "requested ") == NULL);
    CHECK(i > 0 || strstr(json.data, "\"asked_bytes\": null") != NULL);
    buffer_free(&out);
    buffer_free(&json);
    explanation_free(&x);
  }
}

/* Whether the arena is the device's or the host's, if the text names it or not. */
TEST(an_arena_of_onnx_runtime_gets_its_own_advice)
{
  static const char *const texts[] = {
      "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running "
      "MatMul node. bfc_arena.cc:376 Failed to allocate memory for requested buffer of size 99328",
      "[E:onnxruntime:, sequential_executor.cc:494] (CPUExecutionProvider) bfc_arena.cc:376 Failed "
      "to allocate memory for requested buffer of size 2147483648",
      "[E:onnxruntime:, sequential_executor.cc:494] while running Conv node: std::bad_alloc"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    explanation x;
    bool arena = false;
    CHECK_OK(explain_message(&x, texts[i], strlen(texts[i])));
    for (uint32_t k = 0; k < x.fixes.count && k < 3; k++)
      arena = arena || strstr(x.fixes.list[k].change, "enable_cpu_mem_arena = False") != NULL;
    if (!arena) FAIL("%s", texts[i]);
    explanation_free(&x);
  }
}

TEST(the_text_of_the_async_backend_is_read)
{
  static const char text[] =
      "Allocation on device 0 would exceed allowed memory. (out of memory)\n"
      "Currently allocated     : 13.10 GiB\nRequested               : 300.00 MiB\n"
      "Device limit            : 15.60 GiB\nFree (according to CUDA): 0 bytes\n"
      "PyTorch limit (set by user-supplied memory fraction)\n"
      "                        : 17179869184.00 GiB\n";
  message m;
  message_read(&m, text, sizeof text - 1);
  CHECK(m.kind == MESSAGE_TORCH && m.asked_bytes == UINT64_C(300) << 20 && m.free_bytes == 0);
  CHECK(m.live_bytes > UINT64_C(13) << 30 && m.device_bytes > UINT64_C(15) << 30);
  CHECK(m.limit_bytes == MESSAGE_UNKNOWN);
  static const sample all[] = {{MESSAGE_TORCH, C(BATCH_TOO_BIG), "smaller", "ALLOC_CONF", text}};
  CHECK_SAMPLES(all);
}

TEST(tools_and_settings_are_those_of_the_program)
{
  static const sample all[] = {
      {MESSAGE_TORCH, C(OPTIMIZER_STATE), "offload_optimizer", NULL,
       "  File \"/x/site-packages/deepspeed/runtime/engine.py\", line 82, in _configure_optimizer\n"
       "    self.optimizer = self._configure_zero_optimizer(basic)\n" TORCH_FULL},
      {MESSAGE_TENSORFLOW, C(UNKNOWN), "shapes", "nvidia-smi",
       "E tensorflow/compiler/xla/stream_executor/rocm/rocm_driver.cc:606] failed to allocate "
       "115.19TiB (126656857505792 bytes) from device: HIP_ERROR_OutOfMemory"},
      {MESSAGE_LLAMA, C(WEIGHTS_TOO_BIG), "-ngl", "nvidia-smi",
       "Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)\n"
       "Exception caught at file:ggml/src/ggml-sycl/ggml-sycl.cpp, line:383"},
      {MESSAGE_LLAMA, C(BATCH_TOO_BIG), "-c 4096", "nvidia-smi",
       "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc "
       "failed: out of memory\nggml_gallocr_reserve_n: failed to allocate ROCm0 buffer of size "
       "9437184000\ngraph_reserve: failed to allocate compute buffers"},
      {MESSAGE_HOST, C(HOST_LIMIT), "overcommit_memory", "num_workers",
       "  File \"/usr/lib/python3.11/subprocess.py\", line 1955, in _execute_child\n"
       "OSError: [Errno 12] Cannot allocate memory"},
  };
  CHECK_SAMPLES(all);
}

#define NPU_USED                                                                                   \
  "RuntimeError: NPU out of memory. Tried to allocate 30.00 MiB (NPU 0; 60.90 GiB total "          \
  "capacity; 9.20 GiB already allocated; 9.20 GiB current active; 11.00 MiB free; 9.60 GiB "       \
  "reserved in total by PyTorch)"

TEST(servers_and_devices_of_other_makers_get_their_own_tools)
{
  static const sample all[] = {
      {MESSAGE_TORCH, C(OTHER_PROCESS), "npu-smi info", "nvidia-smi", NPU_USED},
      {MESSAGE_TGI, C(WEIGHTS_TOO_BIG), "--max-batch-prefill-tokens 3072 instead of 6144", "RAM",
       "RuntimeError: Not enough memory to handle 6144 prefill tokens. You need to decrease "
       "`--max-batch-prefill-tokens`"},
      {MESSAGE_TGI, C(WEIGHTS_TOO_BIG), "--max-batch-total-tokens 10000 instead of 20000", NULL,
       "Not enough memory to handle 20000 total tokens with 2048 prefill tokens. You need to "
       "decrease `--max-batch-total-tokens` or `--max-batch-prefill-tokens`"},
      {MESSAGE_TORCH, C(UNKNOWN), "shapes", "EiB",
       "RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory."},
      {MESSAGE_TENSORFLOW, C(BATCH_TOO_BIG), "smaller batch", NULL,
       "W tensorflow/tsl/framework/bfc_allocator.cc:485] Allocator (GPU_0_bfc) ran out of memory "
       "trying to allocate 2.15GiB (rounded to 2308544922)requested by op model/lstm/Call"},
  };
  CHECK_SAMPLES(all);
}

/* A server's flags, not a training loop's changes, decide what its PyTorch may hold. */
TEST(pytorch_inside_a_server_gets_the_servers_flags)
{
  static const sample all[] = {
      {MESSAGE_SGLANG, C(BATCH_TOO_BIG), "--mem-fraction-static", "autocast",
       "  File \"/w/sglang/python/sglang/srt/model_executor/cuda_graph_runner.py\", line 37, in "
       "capture\n    out = self.capture_one_batch_size(bs, forward)\n" TORCH_FULL},
      {MESSAGE_VLLM, C(BATCH_TOO_BIG), "--enforce-eager", "--gpu-memory-utilization 0.95",
       "  File \"/x/site-packages/vllm/v1/worker/gpu_model_runner.py\", line 2, in _dummy_run\n"
       "    out = self.model(ids)\n" TORCH_FULL},
      {MESSAGE_VLLM, C(WEIGHTS_TOO_BIG), "--cpu-offload-gb", "--max-num-seqs",
       "  File \"/x/site-packages/vllm/model_executor/layers/linear.py\", line 9, in "
       "create_weights\n" TORCH_FULL},
      {MESSAGE_VLLM, C(WEIGHTS_TOO_BIG), "0.95 instead of 0.60", NULL,
       "INFO worker.py:267] the current vLLM instance can use total_gpu_memory (12.00GiB) x "
       "gpu_memory_utilization (0.60) = 7.20GiB\nValueError: No available memory for the cache "
       "blocks. Try increasing `gpu_memory_utilization` when initializing the engine."},
      /* The share that the command gives, not a default. */
      {MESSAGE_VLLM, C(BATCH_TOO_BIG), "0.55 instead of 0.60", "0.85",
       "$ vllm serve org/model --gpu-memory-utilization 0.6\n"
       "  File \"/x/site-packages/vllm/v1/worker/gpu_model_runner.py\", line 2, in _dummy_run\n"
       "    out = self.model(ids)\n" TORCH_FULL},
      /* A training loop that generates with a server's library still trains. */
      {MESSAGE_TORCH, C(BATCH_TOO_BIG), "half the batch", "--max-num-seqs",
       "  File \"/x/site-packages/vllm/worker.py\", line 2, in f\n  File \"tune.py\", line 9, in "
       "<module>\n    loss.backward()\n" TORCH_FULL},
  };
  CHECK_SAMPLES(all);
}

TEST(people_who_start_a_launcher_get_its_flags)
{
  static const sample all[] = {
      {MESSAGE_TORCH, C(BATCH_TOO_BIG), "--medvram", "train.py",
       "  File \"D:\\sd\\modules\\call_queue.py\", line 57, in f\n"
       "    res = list(func(*args, **kwargs))\n" TORCH_FULL},
      {MESSAGE_TORCH, C(BATCH_TOO_BIG), "--medvram", "train.py",
       "  File \"/x/forge/modules_forge/main_thread.py\", line 30, in work\n" TORCH_FULL},
      {MESSAGE_TORCH, C(BATCH_TOO_BIG), "--lowvram", "train.py",
       "  File \"C:\\tools\\nodes.py\", line 1429, in sample\n"
       "    return common_ksampler(model, seed, steps, cfg)\n" TORCH_FULL},
  };
  CHECK_SAMPLES(all);
}

TEST(circumstances_in_the_traceback_decide)
{
  static const sample all[] = {
      /* Each line begins with the machine's name. */
      {MESSAGE_TORCH, C(OPTIMIZER_STATE), "8-bit", NULL,
       "node-3: Traceback (most recent call last):\n"
       "node-3:   File \"/x/site-packages/deepspeed/ops/adam/fused_adam.py\", line 131, in step\n"
       "node-3:     state['exp_avg_sq'] = torch.zeros_like(p.data)\n"
       "node-3: " TORCH_FULL},
      /* A validation loop that keeps what the model returns. */
      {MESSAGE_TORCH, C(NO_GRAD_MISSING), "no_grad", NULL,
       "      8     x, y = x.to(device), y.to(device)\n----> 9     out = net(x)\n"
       "     10     preds.append(out)\n     11     val_loss += criterion(out, y)\n\n"
       "File ~/x/site-packages/torch/nn/modules/conv.py:459, in Conv2d.forward(self, input)\n"
       "--> 459     return F.conv2d(input, weight)\n\n" TORCH_FULL},
      /* The process's own limit, beside a device with room. */
      {MESSAGE_TORCH, C(LIMIT), "set_per_process_memory_fraction", NULL,
       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 768.00 MiB. GPU 0 has a "
       "total "
       "capacity of 21.99 GiB of which 12.07 GiB is free. 7.70 GiB allowed; Including non-PyTorch "
       "memory, this process has 7.52 GiB memory in use. Of the allocated memory 6.93 GiB is "
       "allocated by PyTorch, and 301.22 MiB is reserved by PyTorch but unallocated."},
  };
  CHECK_SAMPLES(all);
}

TEST(a_program_of_32_bits_reaches_the_end_of_its_addresses)
{
  static const sample all[] = {
      {MESSAGE_HOST, C(HOST_LIMIT), "install 64-bit R", "add swap",
       "R version 3.4.1\nPlatform: i386-w64-mingw32/i386 (32-bit)\n"
       "Error: cannot allocate vector of size 1.5 Gb\n"},
      {MESSAGE_HOST, C(HOST_LIMIT), "install 64-bit R", "add swap",
       "Error: cannot allocate vector of size 381.5 Mb\nIn addition: Warning messages:\n"
       "1: In rnorm(2e+08) : Reached total allocation of 3583Mb: see help(memory.size)\n"},
      {MESSAGE_HOST, C(HOST_LIMIT), "install the 64-bit version", "add swap",
       "Python 3.7.3 (v3.7.3:ef4ec6ed12) [MSC v.1916 32 bit (Intel)] on win32\n"
       "numpy.core._exceptions.MemoryError: Unable to allocate 763. MiB for an array with shape "
       "(100000000,) and data type float64\n"},
  };
  check_headline(all[0].text, "This is a 32-bit program");
  CHECK_SAMPLES(all);
}

TEST(warnings_of_tensorrt_are_called_warnings)
{
  static const sample all[] = {
      {MESSAGE_TENSORRT, C(LIMIT), "smaller workspace", "larger than the free memory",
       "[TRT] [W] Tactic Device request: 700MB Available: 210MB. Device memory is insufficient to "
       "use tactic.\n[TRT] [W] Skipping tactic 3 due to insuficient memory on requested size of "
       "700 detected for tactic 4.\n"},
  };
  message m;
  message_read(&m, all[0].text, strlen(all[0].text));
  CHECK(m.asked_bytes == UINT64_C(700) << 20 && m.free_bytes == UINT64_C(210) << 20);
  check_headline(all[0].text, "a warning");
  CHECK_SAMPLES(all);
}

TEST(a_tensor_on_the_cpu_is_in_ram)
{
  static const sample all[] = {
      {MESSAGE_HOST, C(HOST_LIMIT), "on the CPU, in RAM", "nvidia-smi",
       "ResourceExhaustedError: OOM when allocating tensor with shape[1000,200]\n\t [[Node: "
       "average/sub = Sub[T=DT_FLOAT, _device=\"/job:localhost/replica:0/task:0/cpu:0\"](a, b)]]"},
      {MESSAGE_TENSORFLOW, C(BATCH_TOO_BIG), "smaller batch", NULL,
       "ResourceExhaustedError: OOM when allocating tensor with shape[1000,200]\n\t [[Node: "
       "average/sub = Sub[T=DT_FLOAT, _device=\"/job:localhost/replica:0/task:0/gpu:0\"](a, b)]]"},
  };
  CHECK_SAMPLES(all);
}

TEST(other_languages_get_their_own_words)
{
  static const sample all[] = {
      {MESSAGE_HOST, C(HOST_LIMIT), "gc()", "pd.read_csv",
       "Error: cannot allocate vector of size 3.1 Gb\nExecution halted"},
      {MESSAGE_HOST, C(HOST_LIMIT), "clear x", "pd.read_csv",
       "Out of memory. Type \"help memory\" for your options."},
      {MESSAGE_HOST, C(HOST_LIMIT), "GC.gc()", "pd.read_csv",
       "ERROR: LoadError: OutOfMemoryError()\nStacktrace:\n [1] Array @ ./boot.jl:448"},
      {MESSAGE_HOST, C(HOST_DATASET_WHOLE), "open_dataset", "pd.read_csv",
       "x <- arrow::read_csv_arrow(\"a.csv\")\nOut of memory: malloc of size 65536 failed"},
  };
  CHECK_SAMPLES(all);
}

TEST(drivers_and_platforms_are_named_as_what_they_are)
{
  static const sample all[] = {
      {MESSAGE_CUDA, C(UNKNOWN), "smaller batch", "CUDA",
       "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"},
      {MESSAGE_CUDA, C(UNKNOWN), "rocm-smi", "CUDA could", "hipErrorOutOfMemory: out of memory"},
      {MESSAGE_DIRECTML, C(BATCH_TOO_BIG), "--medvram", "mx.clear_cache",
       "  File \"C:\\sd\\stable-diffusion-webui-directml\\modules\\a.py\", line 1, in f\n"
       "RuntimeError: Could not allocate tensor with 1048576 bytes. There is not enough GPU video "
       "memory available!"},
      {MESSAGE_MLX, C(ONE_SPIKE), "work in parts", "whole device",
       "RuntimeError: [metal::malloc] Attempting to allocate 40000000000 bytes which is greater "
       "than the maximum allowed buffer size of 30000000000 bytes."},
      {MESSAGE_MLX, C(BATCH_TOO_BIG), "mx.clear_cache", "pd.read_csv",
       "RuntimeError: [malloc_or_wait] Unable to allocate 67108864 bytes."},
      {MESSAGE_CUDA, C(UNKNOWN), "smaller tiles", "nvidia-smi",
       "vkAllocateMemory failed -2\nvkQueueSubmit failed -4\n"},
      {MESSAGE_CUDA, C(UNKNOWN), "rocm-smi", "RAM ran out",
       "radv/amdgpu: Failed to allocate a buffer:\nradv/amdgpu:    size      : 21410541568 bytes\n"
       "radv/amdgpu:    alignment : 262144 bytes"},
      {MESSAGE_TORCH, C(WEIGHTS_TOO_BIG), "enable_model_cpu_offload", "smaller batch",
       "  File \"draw.py\", line 5, in <module>\n    pipe.to(device)\n  File "
       "\"/x/site-packages/diffusers/pipelines/pipeline_utils.py\", line 4, in to\n" TORCH_FULL},
  };
  CHECK_SAMPLES(all);
}

TEST(a_shape_that_no_machine_holds_is_a_mistake_with_a_fix)
{
  static const sample all[] = {
      {MESSAGE_HOST, C(ONE_SPIKE), "print the shapes", "copy",
       "MemoryError: Unable to allocate 71.0 PiB for an array with shape (100000000, 100000000) "
       "and data type float64"},
      {MESSAGE_HOST, C(HOST_COPIES), "sparse (no .toarray()", "dtype=np.",
       "numpy.core._exceptions.MemoryError: Unable to allocate 815. GiB for an array with shape "
       "(6000000, 36460) and data type float32"},
      {MESSAGE_HOST, C(HOST_COPIES), "dtype=np.float32 takes", "as a whole",
       "numpy.core._exceptions.MemoryError: Unable to allocate 36.5 GiB for an array with shape "
       "(70000, 70000) and data type float64"},
      {MESSAGE_HOST, C(HOST_LIMIT), "as a whole", "dtype=np.",
       "MemoryError: Unable to allocate 74.5 GiB for an array with shape (100000, 100000) and data "
       "type float64\nhost memory in all: 24.0 GiB"},
      {MESSAGE_HOST, C(HOST_LIMIT), "dtype=np.float32 takes 18.6 GiB", "as a whole",
       "MemoryError: Unable to allocate 37.3 GiB for an array with shape (50000, 100000) and data "
       "type float64\nhost memory in all: 24.0 GiB"},
      {MESSAGE_HOST, C(HOST_LIMIT), "stowage.limit(ram=", "dtype=np.",
       "MemoryError: Unable to allocate 480. MiB for an array with shape (62914560,) and data type "
       "float64\nhost memory in all: 400.0 MiB, the limit of stowage.limit(ram=…); the machine has "
       "24.0 GiB"},
      {MESSAGE_HOST, C(HOST_LIMIT), "nvme", NULL,
       "[launch.py:321:sigkill_handler] ['python', 'main.py', '--deepspeed'] exits with return "
       "code = -9"},
      {MESSAGE_HOST, C(HOST_LIMIT), "nproc_per_node", NULL,
       "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 1"},
  };
  CHECK_SAMPLES(all);
  message m;
  static const char text[] = "triton.runtime.errors.OutOfResources: out of resource: shared "
                             "memory, Required: 170000, Hardware limit: 101376.";
  message_read(&m, text, sizeof text - 1);
  CHECK(m.kind == MESSAGE_FOREIGN && strstr(m.name, "on-chip") != NULL);
}

TEST(a_device_and_a_host_failure_in_one_log_are_two)
{
  static const char text[] = "RuntimeError: CUDA error: out of memory\n"
                             "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.\n";
  message m;
  message_read(&m, text, sizeof text - 1);
  CHECK(m.kind == MESSAGE_CUDA && m.failures == 2);
}

#define FULL_CARD                                                                                  \
  "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 210.00 MiB. GPU 0 has a total "   \
  "capacity of 31.73 GiB of which 75.00 MiB is free. Including non-PyTorch memory, this process "  \
  "has 31.60 GiB memory in use. Of the allocated memory 30.90 GiB is allocated by PyTorch, and "   \
  "90.00 MiB is reserved by PyTorch but unallocated.\n"
#define HUGE_REQUEST                                                                               \
  "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 GiB. GPU 0 has a total "    \
  "capacity of 31.73 GiB of which 25.00 GiB is free. Including non-PyTorch memory, this process "  \
  "has 6.60 GiB memory in use. Of the allocated memory 5.90 GiB is allocated by PyTorch, and "     \
  "90.00 MiB is reserved by PyTorch but unallocated.\n"

TEST(a_figure_that_grows_with_every_step_is_a_leak)
{
  static const char line[] = "  File \"/u/net.py\", line 9, in training_step\n"
                             "    self.kept.append(self.loss(out, y))\n" FULL_CARD;
  static const struct {
    const char *log;
    bool grows;
  } all[] = {
      {"step 10 loss=2.1 mem=5.0\nstep 20 loss=1.9 mem=11.2\nstep 30 loss=1.8 mem=17.1\n"
       "step 40 loss=1.7 mem=23.3\n",
       true},
      /* it stays the same, jumps once, shrinks, or is of loading */
      {"step 10 mem=25.0\nstep 20 mem=25.1\nstep 30 mem=25.2\nstep 40 mem=25.3\n", false},
      {"step 10 mem=5.0\nstep 20 mem=5.1\nstep 30 mem=5.2\nstep 40 mem=23.3\n", false},
      {"step 10 mem=5.0\nstep 20 mem=11.0\nstep 30 mem=17.0\nstep 40 mem=6.0\n", false},
      {"Loading step 1 mem=5.0\nLoading step 2 mem=11.2\nLoading step 3 mem=17.1\nLoading step 4 "
       "mem=23.3\n",
       false},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    char text[2000];
    snprintf(text, sizeof text, "%s%s", all[i].log, line);
    explanation x;
    CHECK_OK(explain_message(&x, text, strlen(text)));
    CHECK((x.findings.list[0].id == CAUSE_LEAK) == all[i].grows);
    CHECK(advises(&x, ".item()") == all[i].grows);
    if (all[i].grows)
      CHECK(strstr(x.findings.list[0].evidence.data, "mem from 5 to 23.3 in 4 lines") != NULL);
    explanation_free(&x);
  }
}

/* What the text shows in use is not advised. */
TEST(nothing_is_advised_that_the_program_already_does)
{
  static const sample all[] = {
      {MESSAGE_TORCH, C(BATCH_TOO_BIG), "batch", "autocast",
       "  File \"fit.py\", line 9, in main\n    scaler.scale(loss).backward()\n" FULL_CARD},
      {MESSAGE_TORCH, C(BATCH_TOO_BIG), "autocast", NULL,
       "  File \"fit.py\", line 9, in main\n    loss.backward()\n" FULL_CARD},
      {MESSAGE_TORCH, C(ONE_SPIKE), "attn_mask", "attn_implementation",
       "  File \"block.py\", line 9, in attention\n"
       "    x = F.scaled_dot_product_attention(q, k, v, attn_mask=m)\n" HUGE_REQUEST},
      {MESSAGE_TORCH, C(ONE_SPIKE), "attn_implementation", NULL,
       "  File \"block.py\", line 9, in attention\n    x = q @ k.mT\n" HUGE_REQUEST},
      {MESSAGE_TORCH, C(ONE_SPIKE), "enable_attention_slicing", "RELAXED",
       "  File \"/x/site-packages/diffusers/models/attention_processor.py\", line 9, in __call__\n"
       "    x = F.scaled_dot_product_attention(q, k, v)\n"
       "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 30.00 GiB. GPU 0 has a total "
       "capacity of 15.00 GiB. Of the allocated memory 5.00 GiB is allocated by PyTorch, and 90.00 "
       "MiB is reserved by PyTorch but unallocated."},
      {MESSAGE_TORCH, C(ONE_SPIKE), "RELAXED", NULL,
       "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total "
       "capacity of 15.00 GiB. Of the allocated memory 5.00 GiB is allocated by PyTorch, and 90.00 "
       "MiB is reserved by PyTorch but unallocated."},
      {MESSAGE_TORCH, C(OPTIMIZER_STATE), "CPUOffload", "DeepSpeed",
       "  File \"/x/site-packages/torch/optim/adamw.py\", line 9, in _init_group\n"
       "    state[\"exp_avg\"] = torch.zeros_like(p)\n" FULL_CARD "FSDP rank 1 failed\n"},
      {MESSAGE_TORCH, C(OPTIMIZER_STATE), "8bit", "foreach",
       "  File \"/x/site-packages/torch/optim/adamw.py\", line 9, in _init_group\n"
       "    state[\"exp_avg\"] = torch.zeros_like(p)\n" FULL_CARD},
      {MESSAGE_TORCH, C(OPTIMIZER_STATE), "foreach", NULL,
       "  File \"/x/site-packages/torch/optim/adamw.py\", line 9, in _multi_tensor_adamw\n"
       "    denom = torch._foreach_sqrt(v)\n" FULL_CARD},
  };
  CHECK_SAMPLES(all);
}

TEST(libraries_beside_the_framework_and_a_first_request)
{
  static const sample all[] = {
      {MESSAGE_CUDA, C(OTHER_PROCESS), "LOCAL_RANK", "not a shortage",
       "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, unhandled cuda "
       "error\n"
       "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
       "Failed to CUDA calloc async 2432 bytes"},
      {MESSAGE_CUDA, C(BATCH_TOO_BIG), "batch", "label",
       "  File \"fit.py\", line 9, in main\n    loss.backward()\n"
       "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution"},
      {MESSAGE_CUDA, C(OTHER_PROCESS), "nvidia-smi", "batch",
       "  File \"/u/try.py\", line 2, in <module>\n    x = torch.ones((2, 2), device='cuda')\n"
       "RuntimeError: CUDA error: out of memory"},
      {MESSAGE_CUDA, C(UNKNOWN) | C(BATCH_TOO_BIG), "batch", NULL,
       "  File \"/u/try.py\", line 2, in <module>\n    x = torch.ones(2, n, device='cuda')\n"
       "RuntimeError: CUDA error: out of memory"},
      {MESSAGE_VLLM, C(BATCH_TOO_BIG), "--max-num-seqs", "utilization 0.95",
       "RuntimeError: CUDA out of memory occurred when warming up sampler with 512 dummy requests. "
       "Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the "
       "engine."},
      {MESSAGE_CUDA, C(BATCH_TOO_BIG) | C(UNKNOWN), "MiniBatchSize", "autocast",
       "Error using trainnet\nOut of memory on device. To view more detail about available memory "
       "on the GPU, use 'gpuDevice()'."},
  };
  CHECK_SAMPLES(all);
  message m;
  message_read(&m, all[0].text, strlen(all[0].text));
  CHECK_U64(m.asked_bytes, 2432);
}

TEST(programs_on_the_host_get_advice_of_their_own)
{
  static const sample all[] = {
      {MESSAGE_HOST, C(HOST_LIMIT), "-n 2", "read_csv",
       "$ pytest -n 8 tests\nbuild.sh: line 3: 70 Killed  pytest -n 8 tests\n"
       "##[error]Process completed with exit code 137."},
      {MESSAGE_HOST, C(HOST_LIMIT), "GOMEMLIMIT", "heaptrack",
       "fatal error: runtime: out of memory\n\ngoroutine 1 [running]:\nmain.load()\n"
       "exit status 2"},
      {MESSAGE_HOST, C(HOST_LIMIT), "page file", "swapfile",
       "PS C:\\Users\\u> ollama run big\nError: model requires more system memory (20.0 GiB) than "
       "is available (9.0 GiB)"},
      {MESSAGE_HOST, C(HOST_LIMIT), "High-RAM", NULL,
       "Votre session a plant\xc3\xa9 apr\xc3\xa8s avoir utilis\xc3\xa9 toute la m\xc3\xa9moire "
       "RAM disponible. Vous pouvez passer \xc3\xa0 Colab Pro."},
  };
  CHECK_SAMPLES(all);
}

/* Addresses are no memory, the machine is not the process, and old lines are not the last one. */
TEST(a_size_belongs_to_what_its_line_is_about)
{
  message m;
  static const char group[] =
      "Memory cgroup out of memory: Killed process 7 (python) total-vm:14000000kB, "
      "anon-rss:8000000kB, file-rss:10kB";
  message_read(&m, group, sizeof group - 1);
  CHECK_U64(m.process_bytes, UINT64_C(8000000) * 1024);
  CHECK_U64(m.device_bytes, MESSAGE_UNKNOWN);
  static const char machine[] = "CPU Virtual Memory: used = 180.0 GB, percent = 71.0%\n"
                                "worker exits with return code = -9\n";
  message_read(&m, machine, sizeof machine - 1);
  CHECK_U64(m.process_bytes, MESSAGE_UNKNOWN);
  static const char older[] = "step 1: rss 10.0 GiB\nstep 2: rss 20.0 GiB\nstep 3: rss 30.0 GiB\n"
                              "worker exits with return code = -9\n";
  message_read(&m, older, sizeof older - 1);
  CHECK_U64(m.process_bytes, UINT64_C(30) << 30);
  static const char server[] =
      "[TensorRT-LLM][INFO] Loaded engine size: 7000 MiB\n"
      "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: "
      "24.00 GiB, available: 6.00 GiB\n"
      "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 5.00 GiB for max tokens in paged KV cache\n"
      "[TensorRT-LLM][ERROR] CUDA runtime error in cudaMallocAsync: out of memory\n";
  message_read(&m, server, sizeof server - 1);
  CHECK_U64(m.kind, MESSAGE_TENSORRT);
  CHECK_U64(m.asked_bytes, MESSAGE_UNKNOWN);
  CHECK_U64(m.live_bytes, MESSAGE_UNKNOWN);
  CHECK_U64(m.device_bytes, UINT64_C(24) << 30);
  CHECK_U64(m.free_bytes, UINT64_C(1) << 30);
}

TEST(files_of_a_library_or_of_a_window_are_not_the_users_line)
{
  message m;
  static const char spark[] =
      "Traceback (most recent call last):\n  File \"/mnt/u/score.py\", line 4, in <module>\n"
      "    df.write.parquet(out)\n  File \"/usr/lib/spark/python/lib/py4j-0.10.9-src.zip/py4j/"
      "java_gateway.py\", line 1321, in __call__\nMemoryError\n";
  message_read(&m, spark, sizeof spark - 1);
  CHECK(strstr(m.context.line, "score.py:4") == m.context.line);
  static const char window[] =
      "  File \"D:\\stable-diffusion-webui\\modules\\txt2img.py\", line 55, in txt2img\n"
      "    processed = process(p)\n" FULL_CARD;
  message_read(&m, window, sizeof window - 1);
  CHECK(m.context.line[0] == '\0');
}

TEST_MAIN
