/* Recipes for host memory. */
#include "advise/recipe_words.h"

#define HOLD_LESS                                                                                  \
  "hold less in RAM: read data in parts (pd.read_csv(f, chunksize=100000), np.load(f, "            \
  "mmap_mode=\"r\"), stowage.batches(f)), in the smallest type (stowage inspect f)"

/* Of a program that holds tables. */
#define TABLE_HOSTS                                                                                \
  (H(NUMPY) | H(KILLED) | H(KERNEL) | H(NOTEBOOK) | H(DIED) | H(PYTHON) | H(RAY) | H(CONTAINER) |  \
   H(JOB) | H(LARGE) | H(EVICTED) | H(DASK))

/* For a text that does not show the program's language. */
#define HOLD_LESS_ANY                                                                              \
  "less in RAM at once: work on the input in parts (blocks, chunks, a stream), with fewer "        \
  "threads "                                                                                       \
  "or processes at once"

#define LESS_PIP                                                                                     \
  "fewer compilers at once: MAX_JOBS=2 CMAKE_BUILD_PARALLEL_LEVEL=2 pip install … (make -j2), or " \
  "add swap"
#define WHEEL "install a ready-built wheel instead"

static const recipe rows[] = {
    /* ---- reinforcement learning ---- */
    {.hosts = H(KILLED) | H(KERNEL) | H(CONTAINER) | H(PYTHON) | H(NUMPY),
     .program = P(REPLAYS),
     .mustnot = D(ABSURD) | D(OTHER),
     .change = "a smaller replay buffer (half of its size until it fits), with images as uint8; it "
               "grows until it is full, so watch the RAM for the first hours",
     .cost = "older experience is forgotten earlier"},
    {.hosts = H(KILLED) | H(KERNEL) | H(CONTAINER) | H(PYTHON) | H(NUMPY),
     .program = P(REPLAYS),
     .mustnot = D(ABSURD) | D(OTHER),
     .change = "fewer environments at once: each is a process with memory of its own",
     .cost = "slower learning"},
    /* ---- a container that was not killed at its own limit ---- */
    {.hosts = H(KILLED),
     .must = D(SPARED),
     .change = "see whether the host ran out: sudo dmesg -T | grep -i 'killed process', on the "
               "machine that runs the container",
     .cost = "none"},
    {.hosts = H(KILLED),
     .must = D(SPARED),
     .change = "see what stopped it: docker events --since 24h --filter event=kill --filter "
               "event=die (docker stop, a health check, an orchestrator)",
     .cost = "none"},
    {.hosts = H(KILLED),
     .must = D(SPARED),
     .change = "if it was the host: give the container a limit below the host's RAM (docker run "
               "--memory=8g), and start fewer containers at once",
     .cost = "less is left for the container"},
    {.hosts = H(JOB) | H(KILLED) | H(KERNEL) | H(CONTAINER),
     .with = T(WORKFLOW),
     .change = "more memory for the rule: resources: mem_mb=32000 in the Snakefile, or "
               "--set-resources RULE:mem_mb=32000; it is passed to the batch system",
     .cost = "the job may wait longer"},
    {.hosts = H(JOB) | H(KILLED) | H(KERNEL) | H(CONTAINER),
     .with = T(WORKFLOW),
     .change = "fewer threads of the rule, or fewer jobs at once on one machine: "
               "snakemake --jobs 2 --resources mem_mb=64000",
     .cost = "slower"},
    {.hosts = H(JOB) | H(KILLED) | H(KERNEL) | H(CONTAINER),
     .with = T(NEXTFLOW),
     .change = "more memory for the process: memory = { 16.GB * task.attempt }, errorStrategy = "
               "'retry' in nextflow.config (withName: 'PROCESS')",
     .cost = "the job may wait longer"},
    {.hosts = H(KILLED) | H(KERNEL) | H(CONTAINER),
     .need = M(VLLM),
     .mustnot = D(OTHER),
     .change = "less RAM for the server: --swap-space 1, no --cpu-offload-gb, weights as "
               "safetensors, a smaller or quantized model",
     .cost = "less of it can wait in RAM"},
    {.hosts = H(PYTHON),
     .with = T(LIGHTGBM),
     .change =
         "let LightGBM read the file itself: lgb.Dataset(\"train.csv\", params={\"two_round\": "
         "True, \"max_bin\": 63}), or give it float32, and free_raw_data=True; it keeps one "
         "byte for each value then",
     .cost = "slightly coarser splits"},
    {.hosts = H(PYTHON),
     .with = T(LIGHTGBM),
     .change = "smaller histograms: histogram_pool_size=1024 (MB), num_leaves=31, max_bin=63, and "
               "fewer threads (num_threads=4), which have their own",
     .cost = "slower, slightly coarser splits"},
    {.hosts = H(PYTHON),
     .with = T(XGBOOST),
     .change = "less for each value: xgboost.QuantileDMatrix(X, y, max_bin=64) instead of DMatrix, "
               "float32 and sparse input, and tree_method=\"hist\"",
     .cost = "slightly coarser splits"},
    {.hosts = H(PYTHON),
     .with = T(XGBOOST),
     .change =
         "read the data part by part: a DataIter with xgboost.ExtMemQuantileDMatrix(iterator, "
         "max_bin=64)",
     .cost = "slower: the parts are read from disk"},
    {.hosts = H(PYTHON),
     .need = M(R),
     .must = D(HUGE),
     .change = "change the operation: keep matrices sparse (Matrix, no as.matrix()), work on a "
               "sample or a sketch, or on a matrix on disk (BPCells, HDF5Array, bigstatsr)",
     .cost = "a change of the script"},
    {.hosts = H(PYTHON) | H(NUMPY) | H(TORCH),
     .never = M(R),
     .must = D(HUGE),
     .mustnot = D(ABSURD),
     .change =
         "change the operation: no machine holds this result as a whole; keep it sparse, make "
         "it in parts (blocks of rows), or use a method that does not need all pairs",
     .cost = "a change of the program"},
    {.hosts = H(NUMPY) | H(PYTHON) | H(TORCH),
     .must = D(BEYOND),
     .change =
         "raise the limit of this process: stowage.limit(ram=…); the machine has enough memory",
     .cost = "less is left for others on the host"},
    {.hosts = H(PYTHON),
     .need = M(MATLAB),
     .program = P(ARRAY_MOST),
     .change =
         "build it in blocks, or sparse: sparse(i, j, v) for mostly zeros; matfile(f) or tall "
         "arrays for what is larger than RAM",
     .cost = "a change of the program"},
    {.hosts = H(PYTHON),
     .need = M(MATLAB),
     .program = P(ARRAY_MOST),
     .change = "check the sizes: zeros(n) has n rows and n columns; zeros(n, 1) is a column",
     .cost = "none"},
    {.hosts = H(PYTHON),
     .need = M(MATLAB),
     .program = P(ARRAY_MOST),
     .change = "only if the machine has the RAM: HOME > Preferences > MATLAB > Workspace: MATLAB "
               "array size limit",
     .cost = "the machine may become slow"},
    {.hosts = H(PYTHON),
     .program = P(R_LIMIT),
     .change = "less at once: keep matrices sparse (Matrix, no as.matrix()), read only the columns "
               "that are used (data.table::fread(f, select = …)), rm(x); gc()",
     .cost = "a change of the script"},
    {.hosts = H(PYTHON),
     .must = D(OWN_LIMIT),
     .other = P(R_LIMIT),
     .need = M(R) | M(WINDOWS),
     .change =
         "raise R's limit, if the page file is large enough: memory.limit(size = 32000) (MiB); "
         "R 4.2 and newer has none",
     .cost = "the page file is slow"},
    {.hosts = H(NUMPY) | H(PYTHON) | H(TORCH),
     .must = D(OWN_LIMIT),
     .never = M(MATLAB) | M(WINDOWS),
     .other = P(R_LIMIT),
     .change = "raise it: ulimit -v unlimited, or the program's resource.setrlimit(RLIMIT_AS, …)",
     .cost = "less is left for others on the host"},
    {.hosts = H(PYTHON) | H(TORCH),
     .causes = C(UNKNOWN),
     .must = D(ABSURD),
     .change =
         "a bug, not a shortage: check the arguments and the input file of that call, and update "
         "the program",
     .cost = "none"},
    {.hosts = H(DATABASE),
     .change =
         "fewer threads, and rows in any order: SET threads = 2; SET preserve_insertion_order = "
         "false;",
     .cost = "slower; the order of rows changes"},
    {.hosts = H(DATABASE),
     .change =
         "let it spill to disk: open a database file instead of memory, and SET temp_directory "
         "= '/path/with/space';",
     .cost = "slower: disk"},
    {.hosts = H(DATABASE),
     .change = "a higher limit, if the machine has the RAM: SET memory_limit = '12GB';",
     .cost = "less is left for others on the machine"},
    /* ---- host memory ---- */
    {.hosts = H(SHARED),
     .change =
         "a larger /dev/shm: docker run --shm-size=8g (or --ipc=host); Kubernetes: an emptyDir "
         "with medium: Memory at /dev/shm",
     .cost = "it counts as RAM"},
    {.hosts = H(SHARED),
     .with = T(NCCL_FILE),
     .change = "without shared memory between the ranks: NCCL_SHM_DISABLE=1 (they then use peer "
               "access or sockets)",
     .cost = "slower between the devices"},
    {.hosts = H(SHARED),
     .with = T(NCCL_FILE),
     .change = "remove what killed runs left there, when none runs: rm /dev/shm/nccl-*",
     .cost = "none"},
    {.hosts = H(SHARED),
     .without = T(NCCL_FILE),
     .change = "less of it: DataLoader(num_workers=2, prefetch_factor=2), or num_workers=0",
     .cost = "slower loading"},
    {.hosts = H(MAPS),
     .change = "share through files: torch.multiprocessing.set_sharing_strategy(\"file_system\")",
     .cost = "none"},
    {.hosts = H(MAPS),
     .change = "allow more mappings: sudo sysctl vm.max_map_count=1048576, and ulimit -n 65536",
     .cost = "none"},
    {.hosts = H(MAPS),
     .change = "fewer, larger shared tensors instead of many small ones",
     .cost = "a change of the program"},
    {.hosts = H(WORKER),
     .with = T(NNUNET),
     .change = "fewer workers: nnUNet_n_proc_DA=2 nnUNetv2_train … (0 shows the real error); -np 2 "
               "of the preprocessing, -npp 1 -nps 1 of the prediction",
     .cost = "slower loading"},
    {.hosts = H(WORKER),
     .must = D(NO_SIGN),
     .change = "see the real error: DataLoader(num_workers=0) runs the dataset in this process",
     .cost = "slower loading, for one run"},
    {.hosts = H(WORKER),
     .must = D(NO_SIGN),
     .change = "see whether it was a kill: sudo dmesg -T | grep -i 'killed process'",
     .cost = "none"},
    {.hosts = H(WORKER),
     .need = M(LISTING),
     .change = "do not collect the loader in a list: iterate over it; each batch then goes free",
     .cost = "none"},
    {.hosts = H(WORKER),
     .must = D(EXECUTOR),
     .without = T(NNUNET),
     .change = "fewer workers, each needs its own RAM: n_jobs=2 (joblib, scikit-learn), "
               "max_workers=2 (ProcessPoolExecutor), Pool(2)",
     .cost = "less runs in parallel"},
    {.hosts = H(WORKER),
     .must = D(EXECUTOR),
     .change = "give each worker its part, not the whole data: pass a file name or an index, and "
               "np.load(f, mmap_mode=\"r\") in the worker",
     .cost = "a change of the worker's function"},
    {.hosts = H(WORKER),
     .must = D(EXECUTOR),
     .change = "see the real error with one process: n_jobs=1, or a plain loop",
     .cost = "slower, for one run"},
    {.hosts = H(FORK),
     .mustnot = D(PYTHON),
     .change = "allow forks of large processes: sudo sysctl vm.overcommit_memory=1",
     .cost = "a later failure is harder"},
    {.hosts = H(FORK),
     .mustnot = D(PYTHON),
     .change = "more room for it: add swap (sudo fallocate -l 16G /swapfile; sudo chmod 600 "
               "/swapfile; sudo mkswap /swapfile; sudo swapon /swapfile), or close other programs",
     .cost = "swap is slow"},
    {.hosts = H(FORK),
     .mustnot = D(PYTHON),
     .change = "let the program hold less (Redis: maxmemory with an eviction policy), or raise its "
               "limits: ulimit -v, a container's memory",
     .cost = "a change of its settings"},
    {.hosts = H(JAVA),
     .change =
         "a smaller heap: -Xmx half as large, and -Xms below it (a game's launcher has both in "
         "its settings)",
     .cost = "the heap is full sooner"},
    {.hosts = H(JAVA),
     .change =
         "more memory for it: close other programs, add swap (Linux) or enlarge the page file "
         "(Windows), raise the container's limit",
     .cost = "swap is slow"},
    {.hosts = H(JAVA),
     .change = "look for a limit: ulimit -v, and a 32-bit Java (java -version), which gets 2 to 4 "
               "GiB; many threads: a smaller stack each, -Xss512k",
     .cost = "none"},
    {.hosts = H(WORKER) | H(FORK),
     .must = D(PYTHON),
     .mustnot = D(EXECUTOR),
     .change = "fewer workers: DataLoader(num_workers=2), or num_workers=0 to see the real error",
     .cost = "slower loading"},
    {.hosts = H(WORKER) | H(FORK),
     .must = D(PYTHON),
     .mustnot = D(EXECUTOR),
     .change =
         "hold the dataset in arrays (numpy, Arrow, memory-mapped files) instead of lists and "
         "dicts: workers copy Python objects they touch",
     .cost = "a change of the dataset"},
    {.hosts = H(WORKER),
     .need = M(CONTAINER),
     .mustnot = D(EXECUTOR),
     .change = "in a container a larger /dev/shm: docker run --shm-size=8g",
     .cost = "it counts as RAM"},
    {.hosts = H(FORK),
     .must = D(PYTHON),
     .change = "allow forks of large processes: sudo sysctl vm.overcommit_memory=1, or add swap",
     .cost = "a later failure is harder"},
    {.hosts = H(PYTHON),
     .need = M(FORKING),
     .change = "fewer workers (num_workers), started before the data is loaded; or sudo sysctl "
               "vm.overcommit_memory=1",
     .cost = "slower loading"},
    {.hosts = H(PYTHON),
     .need = M(STARTING),
     .change = "start other programs before the data is loaded, or allow it: sudo sysctl "
               "vm.overcommit_memory=1 (starting one reserves a copy of this process in RAM)",
     .cost = "a later failure is harder"},
    {.hosts = H(EVICTED),
     .change = "see what fills the node: kubectl top pods -A --sort-by=memory, kubectl describe "
               "node NAME",
     .cost = "none"},
    {.hosts = H(RAY),
     .other = P(RAY_DATA),
     .change = "fewer tasks at once: @ray.remote(num_cpus=4), or memory=4*1024**3 for each",
     .cost = "less runs in parallel"},
    {.hosts = H(RAY),
     .change = "more RAM on the node, or a higher threshold: RAY_memory_usage_threshold=0.98",
     .cost = "the system may kill something else"},
    {.hosts = H(DASK),
     .change = "fewer workers with more RAM each: Client(n_workers=2, threads_per_worker=2, "
               "memory_limit=\"auto\"), which gives each half of the machine's RAM",
     .cost = "less runs in parallel"},
    {.hosts = H(DASK),
     .change = "smaller partitions: df.repartition(partition_size=\"100MB\"), blocksize=\"64MB\"",
     .cost = "more tasks"},
    {.hosts = H(SPARK),
     .change = "--conf spark.executor.memoryOverhead=4g (PySpark: spark.executor.pyspark.memory), "
               "fewer cores an executor",
     .cost = "fewer executors fit the cluster's RAM"},
    {.hosts = H(SPARK),
     .change = "more, smaller partitions: df.repartition(400)",
     .cost = "more tasks"},
    {.hosts = H(PAGEFILE),
     .change =
         "a larger page file: System > Advanced > Performance > Virtual memory: 1.5 times the "
         "RAM, on a drive with free space; then restart",
     .cost = "disk space"},
    {.hosts = H(PAGEFILE) | H(PYTHON) | H(TORCH),
     .need = M(COMFY) | M(WINDOWS),
     .mustnot = D(ABSURD),
     .change =
         "a larger page file: System > Advanced > Performance > Virtual memory: 1.5 times the "
         "RAM, on a drive with free space, then restart; and close other programs",
     .cost = "disk space"},
    {.hosts = H(PYTHON) | H(TORCH),
     .need = M(WEBUI) | M(WINDOWS),
     .mustnot = D(ABSURD),
     .change =
         "a larger page file: System > Advanced > Performance > Virtual memory: 1.5 times the "
         "RAM, on a drive with free space, then restart; and close other programs",
     .cost = "disk space"},
    {.hosts = H(PYTHON) | H(TORCH),
     .need = M(WEBUI),
     .mustnot = D(ABSURD),
     .change = "keep fewer models in RAM: Settings > System > maximum number of checkpoints loaded "
               "at once: 1, and a smaller picture or batch",
     .cost = "a change of model takes longer"},
    {.hosts = H(PAGEFILE) | H(PYTHON) | H(TORCH) | H(KILLED) | H(KERNEL),
     .need = M(COMFY),
     .mustnot = D(ABSURD) | D(OTHER),
     .change = "smaller models in the workflow: fp8 or GGUF versions of the model and of the text "
               "encoder",
     .cost = "a little quality"},
    {.hosts = H(PAGEFILE) | H(PYTHON) | H(TORCH) | H(KILLED) | H(KERNEL),
     .need = M(COMFY),
     .mustnot = D(ABSURD) | D(OTHER),
     .change = "keep less between runs: start ComfyUI with --cache-none (or --cache-lru 1) and, in "
               "versions from the end of 2025 on, --disable-pinned-memory",
     .cost = "models are loaded again for each run"},
    {.hosts = H(PAGEFILE),
     .never = LANGUAGES | M(COMFY) | M(WEBUI),
     .must = D(PYTHON),
     .change = "fewer processes: DataLoader(num_workers=0), and close other programs",
     .cost = "slower loading"},
    {.hosts = H(PAGEFILE),
     .with = T(GO),
     .change = "let the collector run earlier: GOMEMLIMIT=3GiB (a little below the RAM), GOGC=50",
     .cost = "more time in the collector"},
    {.hosts = H(PAGEFILE),
     .mustnot = D(PYTHON),
     .change = "close other programs, or give it a smaller input",
     .cost = "none"},
    {.hosts = H(COMPILER) | H(GIT) | H(KILLED) | H(KERNEL) | H(PYTHON) | H(NUMPY) | H(TORCH),
     .need = M(WSL),
     .mustnot = D(ABSURD),
     .change = "give WSL more RAM (it has half of the machine's): memory=24GB and swap=16GB under "
               "[wsl2] in %UserProfile%\\.wslconfig, then wsl --shutdown",
     .cost = "less RAM for Windows"},
    {.hosts = H(COMPILER),
     .with = T(CARGO),
     .change =
         "fewer jobs and less debug information: CARGO_BUILD_JOBS=1 CARGO_PROFILE_DEV_DEBUG=0 "
         "cargo build (release: lto = \"thin\", codegen-units = 16)",
     .cost = "slower building; no lines in a debugger"},
    {.hosts = H(COMPILER),
     .with = T(LINKER),
     .without = T(CARGO),
     .change = "one link at a time: ninja -j1, or cmake -DCMAKE_JOB_POOLS=link=1 "
               "-DCMAKE_JOB_POOL_LINK=link; make -j1",
     .cost = "slower building"},
    {.hosts = H(COMPILER),
     .with = T(LINKER),
     .change = "a linker that needs less memory, and less for it to read: -fuse-ld=lld or mold; "
               "-gsplit-dwarf (Rust: split-debuginfo = \"unpacked\"), or a build without -g",
     .cost = "another linker"},
    {.hosts = H(COMPILER),
     .need = M(WINDOWS),
     .change = "fewer compilers at once: set MAX_JOBS=2 (cmake --build . -j 2), and a larger page "
               "file: System > Advanced > Performance > Virtual memory",
     .cost = "slower building"},
    {.hosts = H(COMPILER),
     .need = M(WINDOWS),
     .change = "the 64-bit compiler: cmake -T host=x64, or the \"x64 Native Tools\" prompt",
     .cost = "none"},
    {.hosts = H(COMPILER),
     .never = M(WINDOWS),
     .with = T(NVCC),
     .without = T(LINKER) | T(CARGO) | T(CMAKE),
     .change = "fewer compilers at once: export MAX_JOBS=2 NVCC_THREADS=1, then the same command "
               "again "
               "(one job for each 8 GiB of RAM)",
     .cost = "slower building"},
    {.hosts = H(COMPILER),
     .never = M(WINDOWS),
     .with = T(NVCC),
     .without = T(LINKER) | T(CARGO) | T(CMAKE),
     .change = "a ready-built wheel: the project's releases have one for each version of PyTorch, "
               "CUDA "
               "and Python (flash-attn: cu12, torch2.x, cp3xx in the name)",
     .cost = "none"},
    {.hosts = H(COMPILER),
     .with = T(PIP),
     .without = T(LINKER) | T(CARGO) | T(NVCC),
     .change = LESS_PIP,
     .cost = "slower building"},
    {.hosts = H(COMPILER),
     .with = T(CMAKE),
     .without = T(LINKER) | T(CARGO) | T(PIP),
     .change =
         "fewer compilers at once: cmake --build build -j 2 (or CMAKE_BUILD_PARALLEL_LEVEL=2)",
     .cost = "slower building"},
    {.hosts = H(COMPILER),
     .with = T(BUILD),
     .without = T(LINKER) | T(CARGO) | T(PIP) | T(CMAKE) | T(NVCC),
     .change = "fewer compilers at once: make -j2, ninja -j2",
     .cost = "slower building"},
    {.hosts = H(COMPILER),
     .without = T(LINKER) | T(CARGO) | T(PIP) | T(CMAKE) | T(BUILD) | T(NVCC),
     .change = LESS_PIP,
     .cost = "slower building"},
    {.hosts = H(COMPILER),
     .with = T(PIP),
     .without = T(LINKER) | T(CARGO) | T(NVCC),
     .change = WHEEL,
     .cost = "none"},
    {.hosts = H(COMPILER),
     .without = T(LINKER) | T(CARGO) | T(PIP) | T(CMAKE) | T(BUILD) | T(NVCC),
     .never = M(NATIVE),
     .change = WHEEL,
     .cost = "none"},
    {.hosts = H(COMPILER),
     .with = T(CI),
     .change = "a runner with more memory: runs-on (GitHub), resource_class: large (CircleCI), "
               "tags (GitLab)",
     .cost = "it costs more"},
    {.hosts = H(GIT),
     .change = "pack with less memory: git config pack.windowMemory 100m; git config pack.threads "
               "1; git config pack.packSizeLimit 512m",
     .cost = "slower, and larger packs"},
    {.hosts = H(GIT),
     .change = "keep large files out of the history: git lfs migrate import --above=50MB",
     .cost = "the history is rewritten"},
    {.hosts = H(COMPILER) | H(GIT),
     .never = M(WINDOWS) | M(MAC),
     .change = "add swap: sudo fallocate -l 16G /swapfile; sudo chmod 600 /swapfile; sudo mkswap "
               "/swapfile; sudo swapon /swapfile",
     .cost = "swap is slow"},
    {.hosts = H(KILLED) | H(KERNEL) | H(CONTAINER),
     .with = T(NODE),
     .change =
         "keep Node.js's heap below the memory of the machine or container: "
         "NODE_OPTIONS=--max-old-space-size=2048 (MiB); npm ci --no-audit --no-fund needs less "
         "than npm install",
     .cost = "more time in the collector"},
    {.hosts = H(KILLED) | H(KERNEL) | H(CONTAINER),
     .with = T(BUILD),
     .change = "fewer jobs at once: make -j2, ninja -j2, cargo build -j 2, gradle --max-workers=2",
     .cost = "slower building"},
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(CONTAINER),
     .with = T(FFMPEG),
     .change = "less at once: a lower resolution (-vf scale=1280:-2), fewer threads (-threads 2), "
               "-preset veryfast; x265: -x265-params pools=2:rc-lookahead=10",
     .cost = "slower, or a larger file"},
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(CONTAINER),
     .with = T(FFMPEG),
     .change = "split the work: one output per command, and no filter that holds the "
               "whole video (reverse, a long tpad, palettegen on all of it)",
     .cost = "more commands"},
    {.hosts = H(PINNED),
     .change = "feed smaller batches, and do not hold the whole dataset as one tensor (tf.data)",
     .cost = "more, smaller steps"},
    {.hosts = H(PINNED),
     .need = M(WSL),
     .change = "give WSL more RAM (it has half of the machine's): memory=24GB under [wsl2] in "
               "%UserProfile%\\.wslconfig, then wsl --shutdown",
     .cost = "less RAM for Windows"},
    {.hosts = H(PINNED),
     .never = M(WSL),
     .change = "fewer prefetched batches: dataset.prefetch(1) and map(…, num_parallel_calls=2) "
               "instead of tf.data.AUTOTUNE",
     .cost = "slower loading"},
    {.hosts = H(PINNING),
     .need = M(DEEPSPEED),
     .change = "do not pin what is offloaded: \"pin_memory\": false in offload_optimizer and "
               "offload_param of the DeepSpeed configuration",
     .cost = "slower copies to the device"},
    {.hosts = H(PINNING),
     .never = M(DEEPSPEED),
     .change = "do not pin it: DataLoader(…, pin_memory=False), or x.to(\"cuda\") without "
               "x.pin_memory()",
     .cost = "slower copies to the device"},
    {.hosts = H(PINNING),
     .never = M(WINDOWS) | M(WSL),
     .change = "let it pin more: ulimit -l unlimited in the job's script, more RAM for the job or "
               "container (docker run --ulimit memlock=-1 --memory=…); free -h shows what is left",
     .cost = "less is left for others on the host"},
    {.hosts = H(PINNING),
     .need = M(WSL),
     .change = "give WSL more RAM (it has half of the machine's): memory=24GB under [wsl2] in "
               "%UserProfile%\\.wslconfig, then wsl --shutdown",
     .cost = "less RAM for Windows"},
    {.hosts = H(PINNING),
     .need = M(DEEPSPEED),
     .change = "keep less in RAM: offload only the optimizer, or offload to a disk: \"device\": "
               "\"nvme\", \"nvme_path\": \"/local/disk\"; or more devices, which share the state",
     .cost = "slower: disk"},
    {.hosts = H(PINNING),
     .never = M(DEEPSPEED),
     .change = "hold less in RAM: DataLoader(num_workers=2, prefetch_factor=2), smaller batches",
     .cost = "slower loading"},
    {.hosts = H(PINNING),
     .change = "more free RAM: close other programs, or pin smaller buffers",
     .cost = "more, smaller copies"},
    {.hosts = H(DIED),
     .never = M(WINDOWS) | M(MAC) | M(COLAB) | M(KAGGLE),
     .change = "see why: sudo dmesg -T | grep -i 'killed process' shows a kill for memory; the log "
               "of Jupyter (VS Code: Output > Jupyter) an error of a library",
     .cost = "none"},
    {.hosts = H(PYTHON) | H(NUMPY) | H(TORCH),
     .never = LANGUAGES,
     .program = P(APPENDS),
     .mustnot = D(ABSURD),
     .change =
         "do not keep everything in the list: use each item as it is made (write it to a file, "
         "or add up what is needed of it), or keep every tenth, smaller, as uint8",
     .cost = "a change of the loop"},
    {.hosts = H(KILLED) | H(LARGE),
     .never = LANGUAGES,
     .must = D(TENSOR) | D(PYTHON),
     .mustnot = D(ABSURD) | D(TIMEOUT),
     .change = "make that one array smaller, or in parts: print its shape first (a wrong one often "
               "multiplies), feed batches (tf.data, DataLoader) in place of all data, 16 bits or "
               "uint8",
     .cost = "a loop over the parts"},
    {.hosts = H(NOTEBOOK) | H(DIED) | H(LARGE),
     .need = M(COLAB),
     .change = "Runtime > Change runtime type > High-RAM, or restart and run fewer cells",
     .cost = "Colab Pro"},
    {.hosts = H(NUMPY),
     .must = D(ABSURD),
     .change = "print the shapes before that line: one is probably (n, 1) where (n,) is meant "
               "(x.ravel()), or a whole table where one column is",
     .cost = "none"},
    {.hosts = H(NUMPY),
     .must = D(ABSURD),
     .change =
         "if the shape is meant: scipy.sparse for mostly zeros, or one part of the rows after "
         "the other",
     .cost = "a change of the program"},
    {.hosts = H(KILLED) | H(CONTAINER),
     .must = D(TIMEOUT),
     .change = "raise the timeout (gunicorn --timeout 300; a job's --time; a probe's "
               "timeoutSeconds and initialDelaySeconds)",
     .cost = "a program that hangs is found later"},
    {.hosts = H(KILLED) | H(CONTAINER),
     .must = D(TIMEOUT),
     .change = "do less before it answers: load the model once, before the workers start (gunicorn "
               "--preload), fewer workers at once",
     .cost = "a change of the program"},
    {.hosts = H(KILLED) | H(KERNEL) | H(PYTHON),
     .with = T(TEST_WORKERS),
     .change = "fewer test workers: pytest -n 2 instead of -n auto (each worker loads the program "
               "and its data again)",
     .cost = "slower tests"},
    {.hosts = H(KILLED) | H(KERNEL) | H(PYTHON),
     .with = T(TEST_WORKERS),
     .change = "free what tests leave behind: fixtures of a smaller scope, smaller test data; "
               "--maxprocesses and --dist loadfile keep the tests of a file in one worker",
     .cost = "a change of the tests"},
    {.hosts = H(KILLED) | H(NOTEBOOK) | H(DIED) | H(TORCH) | H(PYTHON) | H(KERNEL) | H(NUMPY) |
              H(LARGE) | H(CONTAINER),
     .with = T(CI),
     .mustnot = D(ABSURD) | D(TIMEOUT),
     .change = "a larger runner: runs-on: a larger one (GitHub), resource_class: large (CircleCI), "
               "other tags (GitLab), or fewer jobs at once on one machine",
     .cost = "it costs more"},
    {.hosts = H(KILLED) | H(KERNEL),
     .need = M(DEEPSPEED),
     .change =
         "keep less in RAM: fewer or streamed datasets (load_dataset(…, streaming=True)); if "
         "weights "
         "or state are offloaded to it, to a disk instead: \"offload_optimizer\": {\"device\": "
         "\"nvme\", \"nvme_path\": \"/local/disk\"}, \"pin_memory\": false",
     .cost = "slower: disk"},
    {.hosts = H(KILLED) | H(KERNEL),
     .need = M(RANKS),
     .change = "every rank holds its own copy of data and weights in RAM: fewer ranks on the "
               "machine (--nproc_per_node), DataLoader(num_workers=1), "
               "from_pretrained(…, low_cpu_mem_usage=True)",
     .cost = "slower"},
    {.hosts = H(KILLED) | H(KERNEL) | H(NOTEBOOK) | H(DIED) | H(PYTHON) | H(TORCH),
     .need = M(LOADING),
     .never = LANGUAGES | M(VLLM) | M(SGLANG) | M(COMFY) | M(WEBUI),
     .change = "load the weights with less RAM: from_pretrained(…, torch_dtype=torch.float16, "
               "low_cpu_mem_usage=True, device_map=\"auto\"), safetensors files",
     .cost = "none"},
    {.hosts = H(KILLED) | H(KERNEL) | H(CONTAINER) | H(JOB),
     .program = P(WORKERS),
     .mustnot = D(TIMEOUT) | D(OTHER),
     .change = "fewer workers of the loader: num_workers=2 (NUM_WORKERS in the environment); each "
               "has its own copy of what it touches of the dataset, and batches that wait",
     .cost = "slower loading"},
    {.hosts = TABLE_HOSTS,
     .need = M(PANDAS),
     .never = LANGUAGES,
     .mustnot = D(ABSURD) | D(TIMEOUT),
     .change = "read tables in parts: pd.read_csv(f, chunksize=100000, dtype=…, usecols=[…]), or "
               "stowage.batches",
     .cost = "a loop over the parts"},
    {.hosts = TABLE_HOSTS,
     .need = M(PANDAS),
     .never = LANGUAGES,
     .mustnot = D(ABSURD) | D(TIMEOUT),
     .change =
         "fewer bytes for each value: text as astype(\"category\"), numbers as float32 or "
         "int32 (stowage inspect f shows the smallest type that fits), Parquet instead of CSV",
     .cost = "a change of the types"},
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(NOTEBOOK) | H(DIED) | H(CONTAINER) | H(JOB),
     .program = P(POLARS),
     .never = M(NATIVE),
     .mustnot = D(ABSURD),
     .change =
         "read lazily, in parts: pl.scan_csv(f).select(…).filter(…).collect("
         "engine=\"streaming\") (before 1.23: collect(streaming=True)); scan_parquet is faster",
     .cost = "a change of the query"},
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(NOTEBOOK) | H(DIED) | H(CONTAINER) | H(JOB),
     .program = P(POLARS),
     .never = M(NATIVE),
     .mustnot = D(ABSURD),
     .change = "only what is used, in small types: pl.read_csv(f, columns=[…], low_memory=True, "
               "schema_overrides={\"a\": pl.Float32}), or pl.read_csv_batched(f)",
     .cost = "other columns cannot be used later"},
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(NOTEBOOK) | H(DIED) | H(CONTAINER) | H(JOB),
     .program = P(POLARS),
     .never = M(NATIVE),
     .mustnot = D(ABSURD),
     .change = "write a large result to a file as it is made: "
               "pl.scan_csv(f).filter(…).sink_parquet(\"out.parquet\")",
     .cost = "disk"},
    {.hosts = H(PYTHON),
     .need = M(SAVING),
     .change = "save in parts (a file for each 100000 items), or with a format that streams (HDF5, "
               "Parquet, np.memmap): pickling makes a second copy in RAM",
     .cost = "a change of the format"},
    {.causes = ~C(HOST_DATASET_WHOLE),
     .hosts = H(TORCH),
     .never = M(COMFY) | M(WEBUI),
     .change = "a smaller batch or input (fewer frames, a lower resolution): this tensor is on the "
               "CPU, in "
               "RAM; print its shape first; 16-bit or part by part",
     .cost = "more, smaller steps"},
    {.causes = ~C(HOST_DATASET_WHOLE),
     .hosts = H(TORCH),
     .must = D(TENSOR),
     .change =
         "work on it in tiles or clips, and write each result away: the program's own options "
         "(--tile, --tile_overlap, --chunk), or for part in x.split(n)",
     .cost = "a loop over the parts"},
    {.hosts = H(TORCH) | H(PYTHON),
     .need = M(ONNX),
     .change = "give memory back after each call: options = onnxruntime.SessionOptions(); "
               "options.enable_cpu_mem_arena = False; options.enable_mem_pattern = False; "
               "InferenceSession(path, options)",
     .cost = "a little slower"},
    {.hosts = H(PYTHON),
     .need = M(R) | M(BITS_32),
     .change = "install 64-bit R (from 4.2 on there is no other on Windows); in RStudio: Tools > "
               "Global Options > R version",
     .cost = "packages must be installed again"},
    {.hosts = H(PYTHON) | H(NUMPY) | H(TORCH),
     .need = M(BITS_32),
     .never = M(R),
     .change = "install the 64-bit version; for Python: python -c \"import struct; "
               "print(struct.calcsize('P') * 8)\" then prints 64",
     .cost = "packages must be installed again"},
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(JOB) | H(CONTAINER),
     .need = M(R),
     .change = "read only what is used: data.table::fread(f, select = c(\"a\", \"b\")), or "
               "arrow::open_dataset(f) with dplyr verbs, which reads the file in parts",
     .cost = "a change of the script"},
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(JOB) | H(CONTAINER),
     .need = M(R),
     .change = "drop what is no longer used: rm(x); gc(). R copies an object when it is changed",
     .cost = "none"},
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(JOB) | H(CONTAINER),
     .need = M(MATLAB),
     .mustnot = D(OWN_LIMIT),
     .change = "smaller numbers and fewer copies: single(x) instead of double, clear x when it is "
               "no longer used",
     .cost = "less precise numbers"},
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(JOB) | H(CONTAINER),
     .need = M(MATLAB),
     .mustnot = D(OWN_LIMIT),
     .change = "files larger than RAM in parts: tall(datastore(f)), matfile(f)",
     .cost = "a change of the program"},
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(JOB) | H(CONTAINER),
     .need = M(JULIA),
     .change = "smaller numbers, and files in parts: Float32 instead of Float64, Mmap.mmap(f, …), "
               "CSV.Rows(f)",
     .cost = "a change of the program"},
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(JOB) | H(CONTAINER),
     .need = M(JULIA),
     .change = "drop what is no longer used: x = nothing; GC.gc()",
     .cost = "none"},
    {.hosts = H(PYTHON),
     .need = M(NATIVE),
     .mustnot = D(ABSURD),
     .change = "hold less in RAM at once: work on the input in parts (blocks, tiles, a stream), or "
               "map the file (mmap) instead of reading it whole",
     .cost = "a change of the program"},
    {.hosts = H(PYTHON),
     .need = M(NATIVE),
     .with = T(GO),
     .mustnot = D(ABSURD),
     .change = "let the collector run earlier: GOMEMLIMIT=3GiB (a little below the RAM or the "
               "container's limit), GOGC=50",
     .cost = "more time in the collector"},
    {.hosts = H(PYTHON),
     .need = M(NATIVE),
     .with = T(GO),
     .mustnot = D(ABSURD),
     .change = "find what the heap holds: go tool pprof -inuse_space; often maps and slices that "
               "are never emptied, a small slice of a large array, or goroutines that never end",
     .cost = "none"},
    {.hosts = H(PYTHON),
     .need = M(NATIVE),
     .without = T(GO),
     .mustnot = D(ABSURD),
     .change =
         "smaller elements and fewer copies: float instead of double, 32-bit indices, "
         "references instead of copies, reserve() before a vector grows (it holds the old and "
         "the new block while it moves)",
     .cost = "a change of the program"},
    {.hosts = H(KERNEL),
     .must = D(OOMD),
     .change = "more swap, which delays the kill: sudo fallocate -l 16G /swapfile; sudo chmod 600 "
               "/swapfile; sudo mkswap /swapfile; sudo swapon /swapfile",
     .cost = "swap is slow"},
    {.hosts = H(KERNEL),
     .must = D(OTHER),
     .mustnot = D(NAMED),
     .never = LANGUAGES,
     .change =
         "let that program need less: its own settings (caches, buffers, threads and workers at "
         "once), or a smaller input, or the input in parts",
     .cost = "it is slower"},
    {.hosts = H(KILLED) | H(KERNEL) | H(PYTHON),
     .never = LANGUAGES | M(COMFY) | M(WEBUI) | M(PANDAS),
     .without = T(TEST_WORKERS) | T(BUILD) | T(FFMPEG) | T(WORKFLOW) | T(NEXTFLOW),
     .must = D(PYTHON),
     .mustnot = D(ABSURD) | D(TIMEOUT) | D(TENSOR) | D(OTHER),
     .change = HOLD_LESS,
     .cost = "a loop over the parts"},
    {.hosts = H(NUMPY) | H(NOTEBOOK) | H(DIED) | H(CONTAINER) | H(JOB) | H(RAY) | H(TORCH) |
              H(DASK) | H(SPARK) | H(LARGE) | H(EVICTED),
     .never = LANGUAGES | M(COMFY) | M(WEBUI) | M(PANDAS),
     .without = T(BUILD) | T(FFMPEG) | T(WORKFLOW) | T(NEXTFLOW),
     .must = D(PYTHON),
     .mustnot = D(ABSURD) | D(TIMEOUT) | D(TENSOR),
     .change = HOLD_LESS,
     .cost = "a loop over the parts"},
    {.hosts = H(KILLED) | H(KERNEL) | H(PYTHON) | H(CONTAINER) | H(JOB) | H(SPARK) | H(LARGE) |
              H(EVICTED),
     .never = LANGUAGES | M(VLLM) | M(SGLANG),
     .without = T(TEST_WORKERS) | T(BUILD) | T(FFMPEG),
     .mustnot = D(ABSURD) | D(TIMEOUT) | D(OTHER) | D(PYTHON) | D(HUGE),
     .change = HOLD_LESS_ANY,
     .cost = "a loop over the parts"},
    {.hosts = H(KERNEL),
     .must = D(OOMD),
     .mustnot = D(SERVICE),
     .change = "a later kill: sudo systemctl edit user@.service, with [Service] and "
               "ManagedOOMMemoryPressureLimit=80% below it; then log in again",
     .cost = "the machine may stand still before"},
    {.hosts =
         H(KILLED) | H(NOTEBOOK) | H(DIED) | H(TORCH) | H(PYTHON) | H(KERNEL) | H(NUMPY) | H(LARGE),
     .without = T(CI),
     .never = M(COLAB) | M(KAGGLE) | M(WINDOWS) | M(MAC) | M(BITS_32),
     .mustnot = D(OOMD) | D(GROUPED) | D(ABSURD) | D(ENABLED) | D(TIMEOUT) | D(NO_SWAP) | D(VAST),
     .change =
         "close other programs, or add swap to the RAM (Linux: sudo fallocate -l 16G /swapfile; "
         "sudo chmod 600 /swapfile; sudo mkswap /swapfile; sudo swapon /swapfile)",
     .cost = "swap is slow"},
    {.hosts = H(KERNEL),
     .must = D(VAST),
     .mustnot = D(GROUPED),
     .change = "a machine with more RAM: beside so much, a swap file of usual size changes little",
     .cost = "another machine"},
    {.hosts = H(KILLED) | H(NOTEBOOK) | H(DIED) | H(TORCH) | H(PYTHON) | H(KERNEL) | H(NUMPY),
     .need = M(WINDOWS),
     .never = M(COMFY),
     .mustnot = D(ABSURD),
     .change = "close other programs, or enlarge the page file beside the RAM: System > Advanced > "
               "Performance > Virtual memory; then restart",
     .cost = "the page file is slow"},
    {.hosts = H(KILLED) | H(NOTEBOOK) | H(DIED) | H(TORCH) | H(PYTHON) | H(KERNEL) | H(NUMPY),
     .need = M(MAC),
     .mustnot = D(ABSURD),
     .change = "close other programs: Activity Monitor > Memory shows who holds the RAM",
     .cost = "none"},
    {.hosts =
         H(KILLED) | H(NOTEBOOK) | H(DIED) | H(TORCH) | H(PYTHON) | H(KERNEL) | H(NUMPY) | H(LARGE),
     .never = M(BITS_32),
     .must = D(NO_SWAP),
     .mustnot = D(ABSURD) | D(HUGE) | D(TIMEOUT),
     .change = "a machine with more RAM for so large a request, or less of it at once",
     .cost = "another machine"},
};
const recipe_table recipes_host = {rows, sizeof rows / sizeof *rows};
