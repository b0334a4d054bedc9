/* Advice belongs to the batch system, the container's host, the language and the version that a
 * text shows. All texts were written for this test in the wording of the programs. */
#include "sample.h"

TEST(each_batch_system_gets_its_own_words)
{
  static const sample all[] = {
      {MESSAGE_HOST, C(HOST_LIMIT), "#SBATCH --mem=24G", "qstat",
       "#SBATCH --mem=16G\nslurmstepd: error: Detected 1 oom_kill event in StepId=812.0. Some of "
       "the step tasks have been OOM Killed."},
      {MESSAGE_HOST, C(HOST_LIMIT), "seff 812", "qstat",
       "slurmstepd: error: Detected 1 oom_kill event in StepId=812.0. Some of the step tasks have "
       "been OOM Killed."},
      {MESSAGE_HOST, C(HOST_LIMIT), "#PBS -l mem=12gb", "SBATCH",
       "=>> PBS: job killed: mem 8400000kb exceeded limit 8388608kb"},
      {MESSAGE_HOST, C(HOST_LIMIT), "qstat -fx", "seff",
       "=>> PBS: job killed: vmem 8400000kb exceeded limit 8388608kb"},
      {MESSAGE_HOST, C(HOST_LIMIT), "#BSUB -M 12GB", "SBATCH",
       "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\n    Max Memory : 8200 "
       "MB\n    Total Requested Memory : 8192.00 MB"},
      {MESSAGE_HOST, C(HOST_LIMIT), "h_vmem=24G", "the limit set",
       "failed       52  : cgroups enforced memory limit\nexit_status  137\nmaxvmem      16.000G"},
      {MESSAGE_HOST, C(HOST_LIMIT), "qacct -j", "SBATCH",
       "failed       52  : cgroups enforced memory limit"},
      {MESSAGE_HOST, C(HOST_LIMIT), "request_memory = 3072", "SBATCH",
       "012 (77.000.000) Job was held.\n\tError from slot1_1@n3: Job has gone over memory limit of "
       "2048 megabytes. Peak usage: 2101 megabytes.\n\tCode 34 Subcode 0"},
      {MESSAGE_HOST, C(HOST_LIMIT), "condor_release", "SBATCH",
       "Job has gone over cgroup memory limit of 1024 megabytes. Last measured usage: 1010 "
       "megabytes."},
      {MESSAGE_HOST, C(HOST_LIMIT), "Grid Engine: -l h_vmem", NULL,
       "starter: Exceeded job memory limit"},
  };
  CHECK_SAMPLES(all);
}

TEST(each_host_of_containers_gets_its_own_words)
{
  static const sample all[] = {
      {MESSAGE_HOST, C(HOST_LIMIT), "--memory-size 2048", "Kubernetes",
       "Error: Runtime exited with error: signal: killed\nREPORT RequestId: 1-2-3\tDuration: "
       "812.00 "
       "ms\tMemory Size: 1024 MB\tMax Memory Used: 1024 MB"},
      {MESSAGE_HOST, C(HOST_LIMIT), "at most 10240", "Kubernetes",
       "Error: Runtime exited with error: signal: killed\nREPORT RequestId: 1-2-3\tDuration: "
       "812.00 "
       "ms\tMemory Size: 10240 MB\tMax Memory Used: 10240 MB"},
      {MESSAGE_HOST, C(HOST_LIMIT), "gcloud run services update", "kubectl",
       "Memory limit of 1024 MiB exceeded with 1030 MiB used. Consider increasing the memory "
       "limit"},
      {MESSAGE_HOST, C(HOST_LIMIT), "instance_class", "kubectl",
       "Exceeded hard memory limit of 256 MB with 263 MB after servicing 8 requests total."},
      {MESSAGE_HOST, C(HOST_LIMIT), "heroku ps:type", "Kubernetes",
       "heroku[worker.1]: Process running mem=1540M(150.4%)\nheroku[worker.1]: Error R14 (Memory "
       "quota exceeded)"},
      {MESSAGE_HOST, C(HOST_LIMIT), "resourceRequirements", "probably",
       "\"reason\": \"OutOfMemoryError: Container killed due to memory usage\", \"exitCode\": 137"},
      {MESSAGE_HOST, C(HOST_LIMIT), "limits: memory: 6Gi", "docker",
       "      Reason:       OOMKilled\n      Exit Code:    137\n    Limits:\n      memory:  4Gi\n"
       "kubectl describe pod web-0"},
      {MESSAGE_HOST, C(HOST_LIMIT), "docker run --memory=3g", "kubectl",
       "$ docker run --memory=2g worker\n$ docker inspect w | grep OOM\n\"OOMKilled\": true,"},
      {MESSAGE_HOST, C(HOST_LIMIT), "docker inspect", "kubectl", "web-1 exited with code 137"},
      {MESSAGE_HOST, C(HOST_LIMIT), "podman run --memory", "kubectl",
       "$ podman run --memory=2g worker\n$ podman inspect w | grep OOM\n\"OOMKilled\": true,"},
      {MESSAGE_HOST, C(HOST_LIMIT), "pct set 212 --memory 3072", "Kubernetes",
       "memory: usage 2097152kB, limit 2097152kB, failcnt 9\noom-kill:constraint=CONSTRAINT_MEMCG,"
       "oom_memcg=/lxc/212,task_memcg=/lxc/212/ns,task=indexer,pid=9,uid=0\nMemory cgroup out of "
       "memory: Killed process 9 (indexer) total-vm:2999999kB, anon-rss:2000000kB"},
      {MESSAGE_HOST, C(HOST_LIMIT), "set-property web.service MemoryMax=3G", "Kubernetes",
       "memory: usage 2097152kB, limit 2097152kB, failcnt 9\noom-kill:constraint=CONSTRAINT_MEMCG,"
       "oom_memcg=/system.slice/web.service,task_memcg=/system.slice/"
       "web.service,task=indexer,pid=9,"
       "uid=0\nMemory cgroup out of memory: Killed process 9 (indexer) total-vm:2999999kB, "
       "anon-rss:2000000kB"},
      {MESSAGE_HOST, C(HOST_LIMIT), "innodb_buffer_pool_size", "tabs",
       "Out of memory: Killed process 31 (mariadbd) total-vm:9999999kB, anon-rss:7000000kB"},
      {MESSAGE_HOST, C(HOST_LIMIT), "MaxRAMPercentage", "tabs",
       "Out of memory: Killed process 31 (java) total-vm:9999999kB, anon-rss:7000000kB"},
  };
  CHECK_SAMPLES(all);
}

/* "OOMKilled" is named only where the text has it, or where it would decide. */
TEST(the_state_of_a_container_is_evidence_where_the_text_has_it)
{
  static const struct {
    const char *text;
    bool named;
  } all[] = {
      {"Reason: OOMKilled\nExit Code: 137", true},
      {"worker-1 exited with code 137", true},
      {"REPORT RequestId: 1 Memory Size: 512 MB Max Memory Used: 512 MB\nsignal: killed", false},
      {"OutOfMemoryError: Container killed due to memory usage", false},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    explanation x;
    CHECK_OK(explain_message(&x, all[i].text, strlen(all[i].text)));
    const char *said = x.findings.list[0].evidence.data;
    bool named = said != NULL && strstr(said, "OOMKilled") != NULL;
    if (named != all[i].named) printf("%s\n", all[i].text);
    CHECK(named == all[i].named);
    explanation_free(&x);
  }
}

TEST(other_languages_get_no_code_of_python)
{
  static const char full[] = "CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 6.00 GiB "
                             "total capacity; 5.10 GiB already allocated; 0 bytes free; 5.20 GiB "
                             "reserved in total by PyTorch)\n";
  static const struct {
    const char *head;
  } r[] = {{"Fehler in (function (x, w)  : \n  "},
           {"Error in (function (self, other)  : \n  "},
           {"Erreur dans (function (input, weight)  : \n  "}};
  for (size_t i = 0; i < sizeof r / sizeof *r; i++) {
    char text[400];
    snprintf(text, sizeof text, "%s%sexception raised from malloc", r[i].head, full);
    const sample one[] = {{MESSAGE_TORCH, C(BATCH_TOO_BIG), "dataloader(ds", "torch.", text},
                          {MESSAGE_TORCH, C(BATCH_TOO_BIG), "gc()", "model.half", text},
                          {MESSAGE_TORCH, C(BATCH_TOO_BIG), "with_autocast", "python", text}};
    CHECK_SAMPLES(one);
  }
  static const sample all[] = {
      {MESSAGE_CUDA, C(UNKNOWN) | C(BATCH_TOO_BIG), "CUDA.reclaim()", "torch",
       "ERROR: Out of GPU memory\nStacktrace:\n  [1] throw_api_error(res::CUDA.cudaError_enum)\n   "
       " "
       "@ CUDA ~/.julia/packages/CUDA/x/lib/cudadrv/libcuda.jl:28"},
      {MESSAGE_HOST, C(HOST_LIMIT), "GOMEMLIMIT", "DataLoader",
       "runtime: VirtualAlloc of 67108864 bytes failed with errno=1455\nfatal error: out of "
       "memory\n\ngoroutine 1 [running]:\nmain.main()"},
      {MESSAGE_HOST, C(HOST_LIMIT), "Workspace", "setrlimit",
       "Requested 90000x90000 (60.3GB) array exceeds maximum array size preference (15.9GB). This "
       "might cause MATLAB to become unresponsive.\n\nError in grid (line 3)"},
      {MESSAGE_HOST, C(HOST_LIMIT), "sparse", "swap",
       "Requested 50000x50000 (18.6GB) array exceeds maximum array size preference (15.9GB)."},
  };
  CHECK_SAMPLES(all);
}

TEST(tensorflow_1_gets_its_own_interfaces)
{
  static const sample all[] = {
      {MESSAGE_TENSORFLOW, C(BATCH_TOO_BIG), "enable_mixed_precision_graph_rewrite",
       "set_global_policy",
       "  File \"/usr/lib/python2.7/dist-packages/keras/models.py\", line 9, in fit\n"
       "ResourceExhaustedError: OOM when allocating tensor with shape[64,512,28,28]\n\t [[Node: "
       "conv1/Conv2D = Conv2D[T=DT_FLOAT]]]"},
      {MESSAGE_TENSORFLOW, C(BATCH_TOO_BIG), "gpu_options.allow_growth", "TF_FORCE_GPU",
       "    with tf.Session(config=config) as sess:\nResourceExhaustedError: OOM when allocating "
       "tensor with shape[64,512,28,28] and type float on /job:localhost/replica:0/task:0/device:"
       "GPU:0 by allocator GPU_0_bfc"},
      {MESSAGE_TENSORFLOW, C(BATCH_TOO_BIG), "smaller inputs", "mixed_",
       "OP_REQUIRES failed at dml_kernel_context.cc:174 : Resource exhausted: OOM when allocating "
       "tensor with shape[8,256,64,64] and type float on /job:localhost/replica:0/task:0/device:"
       "DML:0"},
      {MESSAGE_TENSORFLOW, C(BATCH_TOO_BIG), "set_global_policy", "graph_rewrite",
       "tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution "
       "error:\nOOM "
       "when allocating tensor with shape[64,512,28,28] and type float on /job:localhost/replica:0/"
       "task:0/device:GPU:0 by allocator GPU_0_bfc [Op:__inference_train_function_9]"},
  };
  CHECK_SAMPLES(all);
}

TEST(front_ends_and_trainers_get_their_own_settings)
{
  static const char llama[] =
      "ggml_vulkan: Device memory allocation of size 2147483648 failed.\n"
      "alloc_tensor_range: failed to allocate Vulkan0 buffer of size "
      "2147483648\nllama_model_load: error loading model: unable to allocate "
      "Vulkan0 buffer\n";
  static const struct {
    const char *more, *fix, *unsaid;
  } all[] = {{"[LM Studio] Failed to load the model", "GPU Offload", "-ngl"},
             {"  File \"/x/site-packages/llama_cpp/llama.py\", line 4, in __init__",
              "n_gpu_layers=20", "-ngl"},
             {"Starting koboldcpp", "--gpulayers 20", "-ngl"},
             {"main: exiting", "-ngl 20", "GPU Offload"}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    char text[600];
    snprintf(text, sizeof text, "%s%s", llama, all[i].more);
    const sample one[] = {{MESSAGE_LLAMA, C(WEIGHTS_TOO_BIG), all[i].fix, all[i].unsaid, text}};
    CHECK_SAMPLES(one);
  }
  static const sample others[] = {
      {MESSAGE_TORCH, C(WEIGHTS_TOO_BIG), "sdxl_train_network.py", "model.half()",
       "  File \"D:\\sd-scripts\\sdxl_train.py\", line 300, in train\n    unet.to(device)\n"
       "  File \"D:\\py\\lib\\site-packages\\torch\\nn\\modules\\module.py\", line 1, in convert\n"
       "    return t.to(device, dtype if t.is_floating_point() or t.is_complex() else None)\n"
       "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 "
       "GiB total capacity; 7.10 GiB already allocated; 0 bytes free; 7.20 GiB reserved in total "
       "by "
       "PyTorch)"},
      {MESSAGE_TORCH, C(OPTIMIZER_STATE), "update DeepSpeed", "\"stage\": 3",
       "  File \"/x/lib/python3.6/site-packages/deepspeed/pt/deepspeed_light.py\", line 1, in "
       "step\n"
       "    self.initialize_optimizer_states()\nRuntimeError: CUDA out of memory. Tried to "
       "allocate "
       "4.00 GiB (GPU 0; 31.72 GiB total capacity; 29.00 GiB already allocated; 1.10 GiB free; "
       "20.00 MiB cached)"},
      {MESSAGE_CUDA, C(UNKNOWN) | C(OTHER_PROCESS), "rollout.gpu_memory_utilization", "checkpoint",
       "[torch_memory_saver.cpp] cuMemCreate CUDA_ERROR_OUT_OF_MEMORY"},
      {MESSAGE_HOST, C(HOST_LIMIT), "--cache-none", "from_pretrained",
       "  File \"D:\\ComfyUI\\comfy\\sd.py\", line 9, in load_checkpoint\nRuntimeError: [enforce "
       "fail "
       "at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: you tried to allocate "
       "90000000 bytes."},
      {MESSAGE_HOST, C(HOST_LIMIT), "NCCL_SHM_DISABLE", "DataLoader",
       "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a1B2c3 (size 9637888)"},
      {MESSAGE_RMM, C(LIMIT), "maximum_pool_size", "initial_pool_size",
       " 12%|#  | 90/700\nMemoryError: std::bad_alloc: out_of_memory: RMM failure "
       "at:/x/include/rmm/"
       "mr/device/pool_memory_resource.hpp:196: Maximum pool size exceeded"},
      {MESSAGE_CUPY, C(LIMIT), "free_all_blocks", NULL,
       "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 805,306,368 bytes (allocated "
       "so "
       "far: 536,870,912 bytes, limit set to: 1,073,741,824 bytes)."},
      {MESSAGE_HOST, C(HOST_COPIES), "category", "float32",
       "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 3.00 GiB for an array with "
       "shape (5, 80530636) and data type object"},
      {MESSAGE_HOST, C(HOST_LIMIT), "cmake --build build -j 2", "pip install",
       "+ cmake --build out -j 64\nc++: fatal error: Killed signal terminated program cc1plus"},
      {MESSAGE_HOST, C(HOST_DATASET_WHOLE), "for line in file", "ijson",
       "Traceback (most recent call last):\n  File \"load.py\", line 4, in <module>\n"
       "    rows = [json.loads(line) for line in open(\"events.jsonl\")]\nMemoryError"},
      {MESSAGE_TORCH, C(BATCH_TOO_BIG), "VAE Decode (Tiled)", "stowage run --spill",
       "  File \"/srv/ComfyUI/nodes.py\", line 3, in decode\n    images = vae.decode(samples)\n"
       "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total "
       "capacity of 15.98 GiB of which 1.50 GiB is free. Of the allocated memory 13.40 GiB is "
       "allocated by PyTorch, and 500.00 MiB is reserved by PyTorch but unallocated."},
  };
  CHECK_SAMPLES(others);
}

TEST(graphs_that_hold_the_device_and_wide_logits_are_named)
{
  static const sample all[] = {
      {MESSAGE_TORCH, C(CACHE_HELD), "--cuda-graph-impl none", "autocast",
       "  File \"/w/Megatron-LM/megatron/core/transformer/cuda_graphs.py\", line 7, in capture\n"
       "    graphs = make_graphed_callables(layers, args)\ntorch.OutOfMemoryError: CUDA out of "
       "memory. Tried to allocate 512.00 MiB. GPU 1 has a total capacity of 79.20 GiB of which "
       "200.00 MiB is free. Of the allocated memory 74.00 GiB is allocated by PyTorch, with 50.00 "
       "GiB allocated in private pools (e.g., CUDA Graphs), and 1.50 GiB is reserved by PyTorch "
       "but "
       "unallocated."},
      {MESSAGE_TORCH, C(BATCH_TOO_BIG), "Liger", "autocast",
       "  File \"/tmp/torchinductor_ann/ab/cab.py\", line 900, in call\n    buf9 = "
       "empty_strided_cuda((32768, 50304), (50304, 1), torch.bfloat16)\ntorch.OutOfMemoryError: "
       "CUDA "
       "out of memory. Tried to allocate 3.07 GiB. GPU 0 has a total capacity of 79.19 GiB of "
       "which "
       "2.00 GiB is free. Of the allocated memory 75.00 GiB is allocated by PyTorch, and 1.00 GiB "
       "is reserved by PyTorch but unallocated."},
  };
  CHECK_SAMPLES(all);
}

/* Training and running are two cases with two fixes, where the text shows neither. */
TEST(training_and_inference_are_not_mixed_in_one_fix)
{
  static const char text[] =
      "  File \"C:\\x\\site-packages\\torch\\nn\\functional.py\", line 840, in "
      "threshold\nRuntimeError: "
      "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 15.90 GiB total capacity; 14.60 GiB "
      "already allocated; 600.00 MiB free; 11.00 MiB cached)";
  static const sample all[] = {{MESSAGE_TORCH, C(BATCH_TOO_BIG), "if it trains", NULL, text},
                               {MESSAGE_TORCH, C(BATCH_TOO_BIG), "if it only runs", NULL, text}};
  CHECK_SAMPLES(all);
  explanation x;
  CHECK_OK(explain_message(&x, text, strlen(text)));
  for (uint32_t i = 0; i < x.fixes.count; i++)
    CHECK(strstr(x.fixes.list[i].change, "recompute") == NULL ||
          strstr(x.fixes.list[i].change, "no_grad") == NULL);
  explanation_free(&x);
}

TEST_MAIN
