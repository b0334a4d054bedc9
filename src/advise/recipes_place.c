/* Recipes for what is around the program: free memory, other processes, limits, fragments. */
#include "advise/recipe_words.h"

static const recipe rows[] = {
    /* ---- a size that cannot be, room that was there, a driver that does not start ---- */
    {.causes = C(UNKNOWN),
     .must = D(ABSURD),
     .change =
         "look at the shapes that go in: the size is wrong or overflowed before it reached the "
         "allocator; run the failing input alone, and one process at a time",
     .cost = "none"},
    {.causes = C(UNKNOWN),
     .must = D(ABSURD),
     .kinds = K(ONNX),
     .change = "update onnxruntime, and do not share one session between processes",
     .cost = "none"},
    {.causes = C(UNKNOWN),
     .must = D(ROOM),
     .need = M(WINDOWS),
     .change = "enlarge the page file (System > Advanced > Performance > Virtual memory: 1.5 times "
               "the RAM), close other programs and restart: Windows backs GPU memory with RAM",
     .cost = "disk space"},
    {.causes = C(UNKNOWN),
     .must = D(ROOM),
     .need = M(INTEL),
     .change =
         "ask for smaller pieces (a smaller batch, the tensor in parts), or allow larger ones: "
         "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1 python …",
     .cost = "kernels for such blocks are slower"},
    {.causes = C(UNKNOWN),
     .must = D(ROOM),
     .need = M(INTEL),
     .change = "look who else uses the device while it runs: xpu-smi ps; stop the other process",
     .cost = "it ends, or waits"},
    {.causes = C(UNKNOWN),
     .must = D(ROOM),
     .need = M(WSL),
     .change =
         "give WSL more RAM, with which Windows backs GPU memory: memory=24GB under [wsl2] in "
         "%UserProfile%\\.wslconfig, then wsl --shutdown; and enlarge Windows's page file",
     .cost = "less RAM for Windows"},
    {.causes = C(UNKNOWN),
     .must = D(ROOM),
     .never = M(AMD) | M(INTEL) | M(NPU),
     .change =
         "check who else uses the device while it runs: nvidia-smi -l 1; another process may have "
         "held it at that moment: stop it",
     .cost = "none"},
    {.causes = C(UNKNOWN),
     .must = D(ROOM),
     .need = M(AMD),
     .change =
         "check who else uses the device while it runs: rocm-smi --showpids; and update the driver "
         "and ROCm: HIP refused although enough was free",
     .cost = "none"},
    {.causes = C(UNKNOWN),
     .must = D(ROOM),
     .never = M(WINDOWS) | M(LINUX) | M(MAC),
     .change = "on Windows enlarge the page file; in a container or on a cluster raise its memory "
               "limit: the driver could not back memory although enough was free",
     .cost = "none"},
    {.causes = C(UNKNOWN),
     .must = D(ROOM),
     .change = "restart the machine or the driver, and update the driver: a crashed process often "
               "leaves memory that looks free and cannot be allocated",
     .cost = "a restart"},
    {.must = D(INIT),
     .change =
         "look at the device: nvidia-smi; stop the other process that fills it, or choose another "
         "device: CUDA_VISIBLE_DEVICES=1",
     .cost = "it ends, or waits"},
    {.must = D(INIT),
     .change = "if the device is empty, the driver could not start: free RAM, raise ulimit -v, or "
               "restart the machine",
     .cost = "a restart"},

    /* ---- an integrated GPU of AMD ---- */
    {.causes = C(WEIGHTS_TOO_BIG),
     .must = D(CARVED),
     .change = "if the machine also has a graphics card, use that: HIP_VISIBLE_DEVICES=0 or 1 "
               "(rocminfo and rocm-smi list the devices in their order)",
     .cost = "none"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .must = D(CARVED),
     .change = "give the integrated GPU more of the RAM: in the BIOS, UMA Frame Buffer Size 8G or "
               "more (also: iGPU memory, VRAM size)",
     .cost = "less RAM for the rest"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .must = D(CARVED),
     .need = M(COMFY),
     .change = "compute where the RAM is: python main.py --cpu",
     .cost = "much slower"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .must = D(CARVED),
     .never = M(COMFY),
     .change = "compute where the RAM is: device=\"cpu\", without HIP",
     .cost = "much slower"},

    /* ---- other processes, other libraries, limits ---- */
    {.causes = C(OTHER_PROCESS) | C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(RANKS),
     .with = T(RESTORE),
     .change = "load to the CPU first: torch.load(path, map_location=\"cpu\") (or "
               "f\"cuda:{local_rank}\"), and torch.cuda.set_device(local_rank) at the start; "
               "otherwise every rank loads to the device of rank 0",
     .cost = "none"},
    {.causes = C(OTHER_PROCESS) | FULL | C(WEIGHTS_TOO_BIG) | C(ONE_SPIKE),
     .kinds = TORCHY,
     .with = T(JETSON),
     .change = "free the memory that CPU and GPU share: stop the desktop (sudo systemctl isolate "
               "multi-user.target) and other programs; tegrastats shows how much is used",
     .cost = "no desktop until: sudo systemctl isolate graphical.target"},
    {.causes = C(OTHER_PROCESS) | FULL | C(WEIGHTS_TOO_BIG) | C(ONE_SPIKE),
     .kinds = TORCHY,
     .with = T(JETSON),
     .change = "a smaller model or input: 16 bits or int8, a lower resolution, batch 1",
     .cost = "slightly less precise numbers"},
    {.causes = C(OTHER_PROCESS) | FULL | C(WEIGHTS_TOO_BIG) | C(ONE_SPIKE),
     .kinds = TORCHY,
     .with = T(JETSON),
     .change = JETSON_SWAP,
     .cost = "swap is slow"},
    {.kinds = K(VLLM),
     .must = D(WORKSPACE),
     .change = "a larger workspace: VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE=1073741824 before the "
               "server's command (vLLM of the end of 2025 and newer)",
     .cost = "1 GiB of the device"},
    {.kinds = K(VLLM),
     .must = D(WORKSPACE),
     .change = "fewer tokens and requests in one step: --max-num-batched-tokens 2048 "
               "--max-num-seqs 16",
     .cost = "fewer requests at once"},
    {.kinds = K(VLLM),
     .must = D(WORKSPACE),
     .change = "other attention: VLLM_ATTENTION_BACKEND=FLASH_ATTN, and a newer vLLM",
     .cost = "it may be slower"},
    {.kinds = K(VLLM),
     .must = D(MEASURED),
     .change = "start the server again when nothing else on the device starts or ends (nvidia-smi "
               "shows it); several servers one after another, each when the one before answers "
               "(curl localhost:8000/health)",
     .cost = "it ends, or waits"},
    {.kinds = K(VLLM),
     .must = D(MEASURED),
     .change = "give it a device of its own: CUDA_VISIBLE_DEVICES=1; end processes that an earlier "
               "start has left: nvidia-smi, kill PID",
     .cost = "another device"},
    {.kinds = K(VLLM),
     .must = D(MEASURED),
     .change = "a newer vLLM: pip install -U vllm (older ones also refuse if the free memory stays "
               "the same)",
     .cost = "an update"},
    {.causes = C(OTHER_PROCESS),
     .kinds = K(VLLM),
     .must = D(START),
     .change =
         "stop what holds the device: nvidia-smi shows the other process; the server starts when "
         "enough is free",
     .cost = "a smaller KV cache: fewer or shorter requests at once"},
    {.causes = C(OTHER_PROCESS),
     .kinds = K(TENSORFLOW),
     .change =
         "stop the other process on the device (nvidia-smi shows it), or choose another device: "
         "CUDA_VISIBLE_DEVICES=1",
     .cost = "it ends, or waits"},
    {.causes = C(OTHER_PROCESS),
     .kinds = K(TENSORFLOW),
     .with = T(TF1),
     .change = "share the device: config.gpu_options.allow_growth = True in tf.ConfigProto(), for "
               "each TensorFlow program on it",
     .cost = "a little fragmentation"},
    {.causes = C(OTHER_PROCESS),
     .kinds = K(TENSORFLOW),
     .without = T(TF1),
     .change = "share the device: TF_FORCE_GPU_ALLOW_GROWTH=true for each TensorFlow program on it "
               "(tf.config.experimental.set_memory_growth)",
     .cost = "a little fragmentation"},
    {.causes = C(OTHER_PROCESS),
     .kinds = K(CUDA),
     .with = T(NCCL),
     .change = "one GPU for each rank: torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"])) "
               "before init_process_group; nvidia-smi shows whether two ranks share one",
     .cost = "none"},
    {.causes = C(OTHER_PROCESS),
     .kinds = K(CUDA),
     .with = T(NCCL),
     .change = "leave memory for NCCL: a smaller batch, or "
               "torch.cuda.set_per_process_memory_fraction(0.95)",
     .cost = "more, smaller steps"},
    {.causes = C(OTHER_PROCESS),
     .need = M(AMD),
     .change =
         "see who else is on the device: rocm-smi --showpids; stop it, or choose another device: "
         "HIP_VISIBLE_DEVICES=1",
     .cost = "it ends, or waits"},
    {.causes = C(OTHER_PROCESS),
     .need = M(NPU),
     .change = "see who else is on the device: npu-smi info; stop the other process, or choose "
               "another device: ASCEND_RT_VISIBLE_DEVICES=1",
     .cost = "it ends, or waits"},
    {.causes = C(OTHER_PROCESS),
     .need = M(NOTEBOOK),
     .mustnot = D(LISTED),
     .change = "restart the kernel: an earlier cell, or another notebook, still holds the device "
               "(nvidia-smi shows the process)",
     .cost = "variables are lost"},
    {.causes = C(OTHER_PROCESS),
     .kinds = ANY_DEVICE & ~K(TENSORFLOW),
     .mustnot = D(LISTED),
     .never = M(AMD) | M(APPLE) | M(NPU),
     .change =
         "see who else is on the device: nvidia-smi; stop the other process, or choose another "
         "device: CUDA_VISIBLE_DEVICES=1",
     .cost = "it ends, or waits"},
    {.causes = C(OTHER_PROCESS),
     .kinds = TORCHY,
     .need = M(LOADING),
     .change =
         "load to the CPU first: torch.load(path, map_location=\"cpu\"), then move the model; "
         "otherwise tensors return to the device they were saved from",
     .cost = "none"},
    {.causes = C(OTHER_PROCESS),
     .kinds = K(CUDA),
     .with = T(TINY),
     .never = M(AMD),
     .change = "if nothing else is on it, check the device itself: nvidia-smi -q -d "
               "COMPUTE,MEMORY,ECC shows its mode, its free memory and errors; a reset or restart "
               "frees what a crashed process left",
     .cost = "a restart"},
    {.causes = C(OTHER_PROCESS),
     .kinds = K(TORCH) | K(CUDA),
     .must = D(SPILLS),
     .without = T(TINY) | T(NCCL),
     .change = "share the device with it: stowage run --spill auto -- python train.py",
     .cost = "slower: part of the data lives in the computer's RAM"},
    {.causes = C(OTHER_PROCESS),
     .kinds = K(TORCH),
     .change = "if all of it is yours: a smaller batch (half of it), or weights in 16 bits "
               "(model.half())",
     .cost = "more, smaller steps"},
    {.causes = C(OUTSIDE_FRAMEWORK),
     .need = M(APPLE),
     .change = "a smaller batch, smaller inputs, or weights in 16 bits: model.half()",
     .cost = "more, smaller steps"},
    {.causes = C(OUTSIDE_FRAMEWORK),
     .need = M(APPLE),
     .change =
         "fewer different shapes, because Metal compiles a graph for each (pad to one length); "
         "torch.mps.empty_cache() between phases",
     .cost = "a little slower"},
    {.causes = C(OUTSIDE_FRAMEWORK),
     .need = M(APPLE),
     .change = "raise the limit: PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 python …",
     .cost = "the Mac may become slow, or the program be killed"},
    {.causes = C(OUTSIDE_FRAMEWORK),
     .never = M(APPLE),
     .change =
         "bound what else allocates in this process (JAX: XLA_PYTHON_CLIENT_PREALLOCATE=false; "
         "CuPy: its pool's set_limit; TensorFlow: set_memory_growth)",
     .cost = "that library has less for itself"},
    {.causes = C(OUTSIDE_FRAMEWORK),
     .never = M(APPLE),
     .change = "a smaller batch or model, to leave memory for that library",
     .cost = "more, smaller steps"},
    {.causes = C(LIMIT),
     .kinds = K(TORCH),
     .never = M(INTEL),
     .change = "raise the limit: torch.cuda.set_per_process_memory_fraction(1.0) where the program "
               "sets it (also a test or a library before it)",
     .cost = "less is left for others on the device"},
    {.causes = C(LIMIT),
     .kinds = K(CUPY),
     .must = D(FREED),
     .change = "give free blocks back before that line: del of what is no longer used, then "
               "cupy.get_default_memory_pool().free_all_blocks(); blocks of another size count "
               "towards the limit",
     .cost = "the next allocations are slower"},
    {.causes = C(LIMIT),
     .kinds = K(JULIA),
     .change = "raise the limit that CUDA.jl was started with: JULIA_CUDA_HARD_MEMORY_LIMIT "
               "(JULIA_CUDA_MEMORY_LIMIT in old versions), if the device has more",
     .cost = "less is left for others on the device"},
    {.causes = C(ONE_SPIKE),
     .kinds = K(RMM),
     .change =
         "make the result smaller: before a merge drop duplicate keys or aggregate (groupby), "
         "join on more columns, and keep only the columns that are used",
     .cost = "a change of the program"},
    {.causes = C(ONE_SPIKE),
     .kinds = K(RMM),
     .change = "work in parts: dask_cudf (partitions), or one part of the rows after the other",
     .cost = "a loop over the parts"},
    {.causes = C(LIMIT),
     .kinds = K(RMM),
     .must = D(POOL),
     .without = T(POOL_START),
     .change = "a larger maximum for the pool (maximum_pool_size), or a pool over managed memory, "
               "which can exceed the device: rmm.mr.PoolMemoryResource("
               "rmm.mr.ManagedMemoryResource())",
     .cost = "less is left for others; managed memory is slower"},
    {.causes = C(LIMIT),
     .kinds = K(RMM),
     .must = D(POOL),
     .without = T(POOL_START),
     .change = "free what each iteration makes: del of its results at its end; what grows from one "
               "to the next fills any pool",
     .cost = "none"},
    {.causes = C(LIMIT),
     .kinds = K(RMM),
     .with = T(POOL_START),
     .change =
         "give RMM's pool a size that is free: rmm.reinitialize(pool_allocator=True, "
         "initial_pool_size=2**30), or no pool at all; nvidia-smi shows the device's free memory",
     .cost = "a smaller pool"},
    {.causes = C(LIMIT),
     .kinds = K(VLLM),
     .mustnot = D(WORKSPACE),
     .change =
         "take more of the device for the server: --gpu-memory-utilization 0.95, or less if it "
         "refused at start",
     .cost = "less is left for others on the device"},

    /* ---- fragmentation ---- */
    {.causes = C(FRAGMENTATION),
     .kinds = K(TORCH),
     .need = M(COMFY),
     .must = D(ASYNC),
     .change = "PyTorch's own allocator: start with python main.py --disable-cuda-malloc",
     .cost = "none"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(TORCH),
     .never = M(COMFY) | M(WINDOWS),
     .must = D(ASYNC),
     .change = "PyTorch's own allocator instead of backend:cudaMallocAsync: export "
               "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
     .cost = "none"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(TORCH),
     .need = M(WINDOWS),
     .never = M(COMFY),
     .must = D(ASYNC),
     .change = "PyTorch's own allocator instead of backend:cudaMallocAsync: set "
               "PYTORCH_CUDA_ALLOC_CONF= before the program starts",
     .cost = "none"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(TENSORFLOW),
     .must = D(ASYNC),
     .change = "TensorFlow's own allocator instead of cuda_malloc_async: unset TF_GPU_ALLOCATOR",
     .cost = "none"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(TORCH) | K(TENSORFLOW),
     .must = D(ASYNC),
     .change = "see who else is on the device: nvidia-smi; what this process holds beyond its live "
               "data is the pool's",
     .cost = "it ends, or waits"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(TORCH),
     .must = D(EXPANDS),
     .never = M(AMD) | M(EXPANDABLE) | M(NPU),
     .change = "before the program starts: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
     .cost = "page calls while it grows"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(TORCH),
     .must = D(EXPANDS),
     .need = M(AMD),
     .from = 212,
     .change = "before the program starts: export PYTORCH_HIP_ALLOC_CONF=expandable_segments:True "
               "(PyTorch 2.12+ with ROCm 7; older ones ignore it: max_split_size_mb:128)",
     .cost = "page calls while it grows"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(TORCH),
     .must = D(SPLITS),
     .need = M(AMD),
     .to = 211,
     .never = M(WINDOWS),
     .change = "before the program starts: export PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:128 "
               "(against fragmentation)",
     .cost = "a little slower"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(TORCH),
     .need = M(NPU),
     .change = "before the program starts: export PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:128 "
               "(against fragmentation)",
     .cost = "a little slower"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(TORCH),
     .must = D(SPLITS),
     .need = M(WINDOWS),
     .change = "before the program starts: set PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 "
               "(against fragmentation)",
     .cost = "a little slower"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(TORCH),
     .must = D(SPLITS),
     .never = M(WINDOWS) | M(AMD) | M(NPU),
     .change = "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 (against fragmentation)",
     .cost = "a little slower"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(TORCH),
     .change =
         "give unused blocks back between phases: torch.cuda.empty_cache(); and keep shapes the "
         "same from step to step (pad to one size)",
     .cost = "a little slower"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(TORCH),
     .change = "a smaller batch leaves larger pieces free",
     .cost = "more, smaller steps"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(TENSORFLOW),
     .without = T(TF1),
     .mustnot = D(ASYNC),
     .change = "set TF_GPU_ALLOCATOR=cuda_malloc_async",
     .cost = "another allocator; a little slower"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(XLA),
     .change = "before the program starts: export XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async",
     .cost = "another allocator; a little slower"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(CUPY),
     .change = "give free blocks back between phases: "
               "cupy.get_default_memory_pool().free_all_blocks()",
     .cost = "the next allocations are slower"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(JULIA),
     .change = "give unused blocks back between phases: x = nothing; GC.gc(); CUDA.reclaim()",
     .cost = "a pause"},
    {.causes = C(FRAGMENTATION),
     .kinds = K(XLA) | K(TENSORFLOW),
     .change = "a smaller batch leaves larger pieces free",
     .cost = "more, smaller steps"},
};
const recipe_table recipes_place = {rows, sizeof rows / sizeof *rows};
