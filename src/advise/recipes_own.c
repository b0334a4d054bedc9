/* Recipes for programs with settings of their own: renderers, games, encoders, libraries that
 * allocate by themselves, trainers that own the loop. The last table has what a platform adds. */
#include "advise/recipe_words.h"

#define OWN     (~(C(FRAGMENTATION) | C(OUTSIDE_FRAMEWORK)))
#define GPU     (TORCHY | K(RMM))
#define TRAINED (C(BATCH_TOO_BIG) | C(UNKNOWN) | C(ONE_SPIKE) | C(OPTIMIZER_STATE))
#define LOOK                                                                                       \
  "see who else is on the device: nvidia-smi; stop the other process, or choose another device: "  \
  "CUDA_VISIBLE_DEVICES=1"

static const recipe rows[] = {
    /* ---- a web interface, and one huge request of attention ---- */
    {.causes = C(BATCH_TOO_BIG) | C(UNKNOWN) | C(ONE_SPIKE) | C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY | K(DIRECTML),
     .program = P(SDNEXT),
     .mustnot = NOT_ROOM,
     .change = LESS_WEBUI "start SD.Next with webui.bat --medvram (Linux: ./webui.sh --medvram; "
                          "--lowvram up to 4 GB)",
     .cost = "slower: parts of the model move between RAM and the device"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .need = M(WEBUI),
     .change = "attention in parts: COMMANDLINE_ARGS with --xformers, --opt-sdp-attention (PyTorch "
               "2) or --opt-sub-quad-attention",
     .cost = "none"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .need = M(WEBUI),
     .change = "a smaller resolution: a lower upscale factor of hires.fix, or enlarge the finished "
               "picture in tiles (Extras, Ultimate SD Upscale, Tiled Diffusion with Tiled VAE)",
     .cost = "less detail, or seams"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .need = M(WEBUI),
     .change = "one picture at a time: batch size 1, and --medvram",
     .cost = "slower"},
    /* ---- YOLO, with its memory in pieces ---- */
    {.causes = C(FRAGMENTATION),
     .kinds = TORCHY,
     .need = M(YOLO),
     .mustnot = NOT_ROOM,
     .change =
         "smaller pictures, which need smaller pieces: imgsz=512 (640 if it is not set), or a "
         "smaller model (yolov8n, yolo11n)",
     .cost = "small objects may be missed"},
    {.kinds = K(CUDA),
     .with = T(EDITOR),
     .change =
         "a lower timeline resolution, proxies or optimized media, fewer effects that hold many "
         "frames (noise reduction, Fusion, speed ramps)",
     .cost = "less sharp while editing; render in full at the end"},
    {.kinds = K(CUDA),
     .with = T(EDITOR),
     .change =
         "close other programs that use the GPU (browsers, games), and let this one use all of "
         "it: Preferences > Memory and GPU",
     .cost = "none"},
    {.kinds = K(CUDA),
     .with = T(EDITOR),
     .change = "a newer driver (NVIDIA: the Studio driver), and a newer version of the program",
     .cost = "an update"},
    {.kinds = K(CUDA),
     .with = T(OPENCL),
     .without = T(LIGHTGBM),
     .change =
         "smaller buffers: one may have at most CL_DEVICE_MAX_MEM_ALLOC_SIZE bytes (pyopencl: "
         "device.max_mem_alloc_size); work on parts of the data",
     .cost = "a loop over the parts"},
    {.kinds = K(CUDA),
     .with = T(OPENCL),
     .without = T(LIGHTGBM),
     .change = "release buffers that are no longer needed (pyopencl: buffer.release()), and close "
               "other programs that use the device",
     .cost = "none"},
    /* ---- Gaussian splatting: the number of Gaussians decides, a step is one image ---- */
    {.causes = OWN & ~C(ONE_SPIKE),
     .kinds = TORCHY,
     .with = T(SPLAT),
     .mustnot = D(ROOM),
     .change = "fewer Gaussians: a higher --densify_grad_threshold (0.0004) and an earlier "
               "--densify_until_iter (10000); gsplat: strategy MCMC with cap_max=1000000; "
               "splatfacto: --pipeline.model.densify-grad-thresh 0.0012",
     .cost = "less detail"},
    {.causes = OWN,
     .kinds = TORCHY,
     .with = T(SPLAT),
     .mustnot = D(ROOM),
     .change = "smaller images, kept in RAM: --resolution 2 (half the width) --data_device cpu; "
               "gsplat: --data_factor 2; splatfacto: --pipeline.datamanager.cache-images cpu",
     .cost = "less detail; each step copies an image"},
    {.causes = OWN,
     .kinds = TORCHY,
     .with = T(SPLAT),
     .mustnot = D(ROOM),
     .change = "start with fewer points: --sh_degree 2 instead of 3, and a sparser point cloud "
               "(COLMAP's points3D, every second one)",
     .cost = "less detail"},

    /* ---- XGBoost ---- */
    {.causes = OWN,
     .kinds = GPU,
     .with = T(XGBOOST),
     .must = D(POOL),
     .change = "without a pool of fixed size: rmm.mr.CudaAsyncMemoryResource() instead of an arena "
               "or a pool; or a larger maximum for it",
     .cost = "another allocator"},
    {.causes = OWN,
     .kinds = GPU,
     .with = T(XGBOOST),
     .change = "less for each value: xgboost.QuantileDMatrix(X, y, max_bin=64) instead of DMatrix, "
               "float32 and sparse input; max_bin=64 in the parameters too",
     .cost = "slightly coarser splits"},
    {.causes = OWN,
     .kinds = GPU,
     .with = T(XGBOOST),
     .change = "fewer rows for each tree: subsample=0.3, sampling_method=\"gradient_based\"; and a "
               "smaller max_depth",
     .cost = "slightly different trees"},
    {.causes = OWN,
     .kinds = GPU,
     .with = T(XGBOOST),
     .change = "data in host memory, part by part (XGBoost 3): xgboost.ExtMemQuantileDMatrix("
               "iterator, max_bin=64), with smaller parts from the iterator",
     .cost = "slower: the parts cross the bus"},
    {.causes = OWN, .kinds = GPU, .with = T(XGBOOST), .change = LOOK, .cost = "it ends, or waits"},

    /* ---- LightGBM ---- */
    {.causes = OWN,
     .kinds = GPU,
     .with = T(LIGHTGBM),
     .change = "smaller histograms: max_bin=63 (15 if that is not enough), gpu_use_dp=false",
     .cost = "slightly coarser splits"},
    {.causes = OWN,
     .kinds = GPU,
     .never = M(AMD) | M(INTEL),
     .with = T(LIGHTGBM),
     .change = "device_type=cuda instead of gpu (a build with USE_CUDA): OpenCL limits the size of "
               "one buffer, CUDA does not; or device_type=cpu",
     .cost = "another build; the CPU is slower"},
    {.causes = OWN,
     .kinds = GPU,
     .with = T(LIGHTGBM),
     .change = "fewer columns or rows: drop those that no tree uses (feature_importance), sparse "
               "columns (enable_bundle=true), bagging_fraction=0.5 with bagging_freq=1",
     .cost = "slightly different trees"},
    {.causes = OWN,
     .kinds = GPU,
     .with = T(LIGHTGBM),
     .change = "train on the CPU: device_type=cpu, which has all of the RAM",
     .cost = "slower"},

    /* ---- Faiss ---- */
    {.causes = OWN,
     .kinds = GPU,
     .with = T(FAISS),
     .change = "a smaller scratch space (1.5 GiB by default on a large device): res = "
               "faiss.StandardGpuResources(); res.setTempMemory(256 << 20), or res.noTempMemory()",
     .cost = "slower searches"},
    {.causes = OWN,
     .kinds = GPU,
     .with = T(FAISS),
     .change =
         "a smaller index: options.useFloat16 = True (GpuClonerOptions), product quantization "
         "(IVF…,PQ…), or one part on each device: GpuMultipleClonerOptions().shard = True",
     .cost = "slightly less precise results"},
    {.causes = OWN, .kinds = GPU, .with = T(FAISS), .change = LOOK, .cost = "it ends, or waits"},

    /* ---- video encoders ---- */
    {.causes = OWN,
     .kinds = GPU,
     .with = T(ENCODER),
     .change = "fewer encoder sessions at once: end other programs that encode (nvidia-smi "
               "encodersessions lists them), or encode one stream after the other",
     .cost = "they end, or wait"},
    {.causes = OWN,
     .kinds = GPU,
     .with = T(ENCODER),
     .change = "update the NVIDIA driver: GeForce cards may open 2 or 3 sessions with old drivers "
               "and 8 or more with new ones, and ffmpeg needs the driver that its headers are for",
     .cost = "a restart"},
    {.causes = OWN,
     .kinds = GPU,
     .with = T(ENCODER),
     .change = "encode on the CPU (-c:v libx264 or libx265), or at a lower resolution",
     .cost = "slower"},

    /* ---- games and renderers ---- */
    {.causes = OWN,
     .kinds = K(CUDA),
     .with = T(GAME),
     .change = "lower settings in the game or project: texture quality and resolution first, then "
               "ray tracing and shadows (Unreal: r.Streaming.PoolSize to the device's size)",
     .cost = "a plainer picture"},
    {.causes = OWN,
     .kinds = K(CUDA),
     .with = T(GAME),
     .change = "close other programs that use the GPU: browsers, recording, a second game",
     .cost = "none"},
    {.causes = OWN,
     .kinds = K(CUDA),
     .with = T(GAME),
     .change = "if it fails with low settings too, memory is not the reason: install the graphics "
               "driver anew, check the game's files, and update the BIOS (Intel's 13th and 14th "
               "generation need its microcode fix; they report this error without a shortage)",
     .cost = "a restart"},
    {.causes = OWN,
     .kinds = K(CUDA),
     .with = T(RENDER),
     .change = "a smaller scene: smaller textures, fewer subdivisions, instances instead of copies "
               "(Blender: Render > Simplify: Texture Limit 2048, Max Subdivision 2)",
     .cost = "less detail"},
    {.causes = OWN,
     .kinds = K(CUDA),
     .with = T(RENDER),
     .change =
         "less at once: a lower resolution or smaller tiles (Blender: Performance > Tile Size "
         "512), no persistent data; render layers one after the other",
     .cost = "slower"},
    {.causes = OWN,
     .kinds = K(CUDA),
     .with = T(RENDER),
     .change = "render on the CPU (Blender: --cycles-device CPU), which has all of the RAM",
     .cost = "slower"},
    /* ---- loaders that plan weights and cache together ---- */
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = K(CUDA),
     .must = D(WEIGHTS) | D(KV_CACHE),
     .change = "a smaller cache, which the loader adds to the weights: max_seq_len and cache_size "
               "8192, cache_mode Q4 or Q8",
     .cost = "shorter conversations; a little quality"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = K(CUDA),
     .must = D(WEIGHTS) | D(KV_CACHE),
     .change = "fewer bits per weight (bpw) of the same model, or a smaller model",
     .cost = "a little quality"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = K(CUDA),
     .must = D(WEIGHTS) | D(KV_CACHE),
     .change = "more of each device: gpu_split with the GiB that are free on it (nvidia-smi), a "
               "smaller autosplit_reserve, or one more device",
     .cost = "less is left for others on the device"},

    {.causes = OWN,
     .kinds = TORCHY,
     .with = T(EXLLAMA),
     .change = "a smaller cache: cache_mode: Q8 (half of FP16) or Q4 (a quarter), max_seq_len: "
               "16384 "
               "and cache_size: 16384 (TabbyAPI's config.yml; in Python ExLlamaV2Cache_Q4(model, "
               "max_seq_len=16384))",
     .cost = "shorter conversations; a little quality"},
    {.causes = OWN,
     .kinds = TORCHY,
     .with = T(EXLLAMA),
     .change = "with several devices: gpu_split_auto: true, or gpu_split: [18, 22] with less (GB) "
               "for "
               "the device that failed: the cache comes on top (in Python model.load([18, 22]), "
               "on the "
               "command line -gs 18,22)",
     .cost = "none"},
    {.causes = OWN,
     .kinds = TORCHY,
     .with = T(EXLLAMA),
     .change = "fewer bits per weight (bpw) of the same model, or a smaller model; chunk_size: "
               "1024 "
               "for shorter steps of the prompt",
     .cost = "a little quality"},
    {.causes = OWN,
     .kinds = TORCHY,
     .with = T(EXLLAMA),
     .change = LOOK,
     .cost = "it ends, or waits"},

    /* ---- InvokeAI ---- */
    {.causes = OWN,
     .kinds = TORCHY,
     .with = T(INVOKE),
     .change = "low-VRAM mode: enable_partial_loading: true in invokeai.yaml (InvokeAI 5.6 and "
               "newer; "
               "before: lazy_offload: true and vram: 0.25), then restart it",
     .cost = "slower: parts of the model move between RAM and the device"},
    {.causes = OWN,
     .kinds = TORCHY,
     .with = T(INVOKE),
     .change = "leave more for computing: device_working_mem_gb: 4 (3 if it is not set) in "
               "invokeai.yaml, and max_cache_vram_gb lower, or not set at all",
     .cost = "models are moved to the device more often"},
    {.causes = OWN,
     .kinds = TORCHY,
     .with = T(INVOKE),
     .change = "a quantized model (FLUX: GGUF or NF4, with the 8-bit T5 encoder), smaller "
               "pictures, and "
               "force_tiled_decode: true for the VAE",
     .cost = "a little quality"},
    {.causes = OWN,
     .kinds = TORCHY,
     .with = T(INVOKE),
     .change = LOOK,
     .cost = "it ends, or waits"},

    /* ---- Spark with RAPIDS ---- */
    {.causes = OWN,
     .kinds = K(RMM) | K(CUDA),
     .with = T(SPARK),
     .change = "fewer tasks on the GPU at once: --conf spark.rapids.sql.concurrentGpuTasks=1",
     .cost = "slower if one task does not fill the GPU"},
    {.causes = OWN,
     .kinds = K(RMM) | K(CUDA),
     .with = T(SPARK),
     .change = "smaller batches and partitions: --conf spark.rapids.sql.batchSizeBytes=268435456 "
               "--conf spark.sql.files.maxPartitionBytes=256m --conf "
               "spark.sql.shuffle.partitions=800",
     .cost = "more tasks"},
    {.causes = OWN,
     .kinds = K(RMM) | K(CUDA),
     .with = T(SPARK),
     .change = "split keys with many rows: --conf spark.sql.adaptive.skewJoin.enabled=true, and "
               "aggregate before a join; a batch of one key cannot be split",
     .cost = "a change of the query"},
    {.causes = OWN,
     .kinds = K(RMM) | K(CUDA),
     .with = T(SPARK),
     .change = "more to spill to: --conf spark.rapids.memory.host.spillStorageSize=16g --conf "
               "spark.rapids.memory.gpu.pool=ASYNC (at the start of the executors)",
     .cost = "RAM of the executors"},

    /* ---- LightGBM in host memory ---- */
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(CONTAINER),
     .with = T(LIGHTGBM),
     .mustnot = D(ABSURD),
     .change = "a smaller dataset in memory: max_bin=63, float32 or sparse input; in Python drop "
               "the "
               "array (del X) after lightgbm.Dataset(X, y).construct()",
     .cost = "slightly coarser splits"},
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(CONTAINER),
     .with = T(LIGHTGBM),
     .mustnot = D(ABSURD),
     .change = "read the file in two passes instead of whole: two_round=true with a file name "
               "(Python: lightgbm.Dataset(\"train.csv\", params={\"two_round\": True}))",
     .cost = "slower loading"},
    {.hosts = H(PYTHON) | H(KILLED) | H(KERNEL) | H(CONTAINER),
     .with = T(LIGHTGBM),
     .mustnot = D(ABSURD),
     .change = "smaller histograms: histogram_pool_size=1024 (MB; unlimited if it is not set), "
               "num_leaves=31, num_threads=4",
     .cost = "slower training"},

    /* ---- Fooocus ---- */
    {.causes = OWN,
     .kinds = TORCHY,
     .program = P(FOOOCUS),
     .never = M(APPLE),
     .mustnot = NOT_ROOM,
     .change = "keep less on the device: python entry_with_update.py --always-low-vram "
               "(--always-no-vram needs least)",
     .cost = "slower: parts of the model move between RAM and the device"},
    {.causes = OWN,
     .kinds = TORCHY,
     .program = P(FOOOCUS),
     .need = M(APPLE),
     .mustnot = NOT_ROOM,
     .change = "close other programs (the Mac's memory is shared), then raise the limit: "
               "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 python entry_with_update.py",
     .cost = "the Mac may become slow, or the program be killed"},
    {.causes = OWN,
     .kinds = TORCHY,
     .program = P(FOOOCUS),
     .mustnot = NOT_ROOM,
     .change = "a smaller picture: a smaller aspect ratio (Advanced > Aspect Ratios), image number "
               "1, no upscale, no refiner and fewer LoRAs",
     .cost = "smaller results"},
    {.causes = OWN,
     .kinds = TORCHY,
     .program = P(FOOOCUS),
     .need = M(APPLE),
     .mustnot = NOT_ROOM,
     .change = "compute where the RAM is: python entry_with_update.py --always-cpu",
     .cost = "much slower"},

    /* ---- a program in CUDA C ---- */
    {.kinds = K(CUDA),
     .program = P(CUDA_CALL),
     .change = "see what is free before the call: cudaMemGetInfo(&free, &total); nvidia-smi lists "
               "other processes on the device",
     .cost = "none"},
    {.kinds = K(CUDA),
     .program = P(CUDA_CALL),
     .change = "smaller arrays: a smaller grid or problem, float instead of double, or parts one "
               "after the other; check that the product of the sizes does not overflow an int",
     .cost = "a loop over the parts"},
    {.kinds = K(CUDA),
     .program = P(CUDA_CALL),
     .change = "free what is no longer used: cudaFree for each cudaMalloc; compute-sanitizer "
               "--leak-check full PROGRAM lists what was not freed",
     .cost = "none"},

    /* ---- dlib ---- */
    {.causes = FULL,
     .kinds = K(CUDA),
     .program = P(DLIB),
     .mustnot = NOT_ROOM,
     .change = "a smaller mini-batch: trainer.set_mini_batch_size(…), or fewer crops for each "
               "train_one_step(); smaller crops (set_chip_dims)",
     .cost = "more, smaller steps"},

    /* ---- hashcat ---- */
    {.kinds = K(CUDA),
     .program = P(HASHCAT),
     .change =
         "less work at once: hashcat -w 1 -n 1 -u 1 (workload, kernel accel and loops); raise "
         "them until it fails",
     .cost = "slower"},
    {.kinds = K(CUDA),
     .program = P(HASHCAT),
     .change = "smaller tables: fewer rules (-r), a split wordlist, fewer hashes in the file, and "
               "-O if the passwords are short",
     .cost = "several runs"},
    {.kinds = K(CUDA),
     .program = P(HASHCAT),
     .change = "another device: -D 1 computes on the CPU, which has all of the RAM; -d 2 chooses a "
               "card (hashcat -I lists them)",
     .cost = "slower"},

    /* ---- Isaac Sim, Isaac Lab ---- */
    {.kinds = ANY_DEVICE,
     .program = P(ISAAC),
     .change = "fewer environments: --num_envs 512, half of yours until it starts",
     .cost = "slower learning"},
    {.kinds = ANY_DEVICE,
     .program = P(ISAAC),
     .change = "less to render: --headless, fewer and smaller cameras (TiledCameraCfg(width=64, "
               "height=64)), no --enable_cameras if none is used",
     .cost = "no window; less detail"},
    {.kinds = ANY_DEVICE,
     .program = P(ISAAC),
     .change =
         "a smaller scene (textures, meshes, buffers of PhysX: gpu_max_rigid_patch_count), and "
         "no other programs on the device",
     .cost = "less detail"},

    /* ---- molecular dynamics ---- */
    {.kinds = K(CUDA),
     .program = P(DYNAMICS),
     .change = "see who else is on the device (a simulation alone needs little): nvidia-smi; stop "
               "the other process, or choose another device: CUDA_VISIBLE_DEVICES=1",
     .cost = "it ends, or waits"},
    {.kinds = K(CUDA),
     .program = P(DYNAMICS),
     .change =
         "a smaller system: less water (a smaller padding or box), a shorter cutoff; single or "
         "mixed precision instead of double (OpenMM: {\"Precision\": \"mixed\"})",
     .cost = "a change of the model"},
    {.kinds = K(CUDA),
     .program = P(DYNAMICS),
     .change =
         "one simulation at a time, and del of the Context (Simulation) before the next one is "
         "made",
     .cost = "slower"},

    /* ---- Rust on WebGPU, candle ---- */
    {.kinds = K(CUDA),
     .program = P(WGPU),
     .change =
         "less at once: a smaller batch or input; f16 in place of f32 where the backend has it "
         "(burn: Wgpu<f16, i32>)",
     .cost = "more, smaller steps"},
    {.kinds = K(CUDA),
     .program = P(WGPU),
     .change = "a smaller or quantized model, and close other programs that use the GPU: browsers, "
               "games",
     .cost = "a little quality"},
    {.kinds = K(CUDA),
     .program = P(WGPU),
     .change = "another adapter, if the machine has a larger card: WgpuDevice::DiscreteGpu(0); "
               "WgpuDevice::Cpu has all of the RAM",
     .cost = "the CPU is slower"},
    {.kinds = TORCHY,
     .program = P(CANDLE),
     .change =
         "a quantized model (GGUF): candle's examples quantized and quantized-*, a quarter of "
         "the weights in 16 bits; or a smaller variant of the model",
     .cost = "a little quality"},
    {.kinds = TORCHY,
     .program = P(CANDLE),
     .change =
         "weights in 16 bits: --dtype f16 or bf16; VarBuilder::from_mmaped_safetensors(&files, "
         "DType::BF16, &device)",
     .cost = "16-bit arithmetic: half the memory of float32 weights"},
    {.kinds = TORCHY,
     .program = P(CANDLE),
     .change = "see who else is on the device: nvidia-smi; or run it on the CPU: --cpu "
               "(Device::Cpu)",
     .cost = "the CPU is slower"},

    /* ---- libtorch from Rust ---- */
    {.kinds = K(TORCH),
     .program = P(TCH),
     .mustnot = NOT_ROOM,
     .causes = FULL | C(WEIGHTS_TOO_BIG),
     .change = "less at once: a smaller batch, or shorter inputs (rust-bert: max_length, "
               "num_beams: 1)",
     .cost = "more, smaller steps"},
    {.kinds = K(TORCH),
     .program = P(TCH),
     .mustnot = NOT_ROOM,
     .causes = FULL | C(WEIGHTS_TOO_BIG),
     .change = "weights in 16 bits: vs.half() on the VarStore, and a smaller model (DistilBERT in "
               "place of BERT large)",
     .cost = "slightly less precise numbers"},
    {.kinds = K(TORCH),
     .program = P(TCH),
     .mustnot = NOT_ROOM,
     .causes = FULL | C(WEIGHTS_TOO_BIG),
     .change = "if it only runs the model: tch::no_grad(|| …), and one model on the device at a "
               "time (drop(model))",
     .cost = "none: no backward pass runs there"},

    /* ---- MatConvNet ---- */
    {.kinds = K(CUDA),
     .program = P(MATCONVNET),
     .change = "free what earlier runs left: reset(gpuDevice) before training; gpuDevice shows "
               "AvailableMemory",
     .cost = "variables on the GPU are lost"},
    {.kinds = K(CUDA),
     .program = P(MATCONVNET),
     .mustnot = D(BATCH) | D(ONE),
     .change = "a smaller batch: half of opts.batchSize (opts.numSubBatches = 4 keeps the training "
               "step)",
     .cost = "more, smaller steps"},
    {.kinds = K(CUDA),
     .program = P(MATCONVNET),
     .change = "keep fewer results of the layers: vl_simplenn(…, 'conserveMemory', true); single "
               "instead of double",
     .cost = "they cannot be looked at afterwards"},

    /* ---- kohya's sd-scripts ---- */
    {.causes = TRAINED | C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .with = T(KOHYA) | T(FINETUNES),
     .mustnot = NOT_ROOM,
     .change = "train a LoRA instead of all weights: sdxl_train_network.py --network_module "
               "networks.lora --network_train_unet_only (flux_train_network.py for FLUX)",
     .cost = "only the adapter learns"},
    {.causes = TRAINED | C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .with = T(KOHYA) | T(FINETUNES),
     .mustnot = NOT_ROOM,
     .change = "the settings that need least: --full_bf16 --mixed_precision bf16 "
               "--gradient_checkpointing --optimizer_type adafactor --fused_backward_pass (from "
               "0.9 on), batch 1",
     .cost = "slower; slightly less precise training"},
    {.causes = TRAINED | C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .with = T(KOHYA),
     .without = T(FINETUNES),
     .mustnot = NOT_ROOM,
     .change = "the settings that need least: --network_train_unet_only --gradient_checkpointing "
               "--mixed_precision bf16 --train_batch_size 1 --optimizer_type AdamW8bit; FLUX: "
               "--fp8_base",
     .cost = "slower; the text encoder does not learn"},
    {.causes = TRAINED | C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .with = T(KOHYA),
     .mustnot = NOT_ROOM,
     .change = "compute once and keep on disk: --cache_latents_to_disk, and SDXL's and FLUX's "
               "--cache_text_encoder_outputs_to_disk; or a smaller --resolution",
     .cost = "captions are not shuffled; less detail"},

    /* ---- CUDA graphs ---- */
    {.causes = C(CACHE_HELD),
     .kinds = K(TORCH),
     .with = T(MEGATRON),
     .change = "capture less: --cuda-graph-impl none, or a smaller scope of it (old versions: "
               "without --enable-cuda-graph and --external-cuda-graph)",
     .cost = "more time between kernels"},
    {.causes = C(CACHE_HELD),
     .kinds = K(TORCH),
     .without = T(MEGATRON),
     .change = "capture less: no graphs (vLLM: --enforce-eager; SGLang: --disable-cuda-graph; "
               "torch.compile without mode=\"reduce-overhead\"), or fewer sizes of them",
     .cost = "more time between kernels"},
    {.causes = C(CACHE_HELD),
     .kinds = K(TORCH),
     .without = T(MEGATRON),
     .change = "one pool for all graphs: torch.cuda.graph(g, pool=first.pool()); a graph keeps "
               "what its own pool holds until it is deleted",
     .cost = "such graphs must be replayed in the order of their capture"},
    {.causes = C(CACHE_HELD),
     .kinds = K(TORCH),
     .change = "half the batch (the micro batch): each captured graph then holds half as much",
     .cost = "more, smaller steps"},

    /* ---- training beside a server of rollouts ---- */
    {.causes = FULL | C(OTHER_PROCESS) | C(LIMIT),
     .kinds = TORCHY | K(VLLM) | K(SGLANG),
     .with = T(ROLLOUT),
     .mustnot = NOT_ROOM,
     .change =
         "leave more for training: verl: actor_rollout_ref.rollout.gpu_memory_utilization=0.5 "
         "and free_cache_engine=True (SGLang: mem_fraction_static=0.5)",
     .cost = "a smaller KV cache: slower rollouts"},
    {.causes = FULL | C(OTHER_PROCESS) | C(LIMIT),
     .kinds = TORCHY | K(VLLM) | K(SGLANG),
     .with = T(ROLLOUT),
     .mustnot = NOT_ROOM,
     .change = "free more before the server wakes up: keep weights and optimizer in RAM while it "
               "runs (verl: actor.fsdp_config.param_offload=True, optimizer_offload=True), and "
               "torch.cuda.empty_cache()",
     .cost = "slower steps"},

    /* ---- trainers that own the loop ---- */
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .with = T(FSDP),
     .never = M(GATHERING),
     .mustnot = NOT_ROOM,
     .change = "keep sharded weights in RAM: fsdp_offload_params: true with "
               "fsdp_cpu_ram_efficient_loading: true and fsdp_sync_module_states: true "
               "(PyTorch: CPUOffload(offload_params=True), sync_module_states=True)",
     .cost = "slower steps"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .with = T(FSDP),
     .never = M(QUANTIZED) | M(GATHERING),
     .mustnot = NOT_ROOM,
     .change = "weights in 4 bits with LoRA: load_in_4bit: true, adapter: qlora "
               "(BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16))",
     .cost = "a little quality; only the adapter learns"},
    {.causes = TRAINED,
     .kinds = TORCHY,
     .with = T(AXOLOTL),
     .mustnot = NOT_ROOM | D(ONE) | D(BATCH),
     .change = "in the configuration: micro_batch_size: 1, gradient_accumulation_steps: 8, and a "
               "shorter sequence_len",
     .cost = "slower; longer samples are cut"},
    {.causes = TRAINED,
     .kinds = TORCHY,
     .with = T(AXOLOTL),
     .without = T(RECOMPUTES),
     .mustnot = NOT_ROOM,
     .change = "recompute instead of keeping: gradient_checkpointing: true",
     .cost = "about a third more time"},
    {.causes = TRAINED,
     .kinds = TORCHY,
     .with = T(AXOLOTL),
     .mustnot = NOT_ROOM,
     .change = "spread or move the state: deepspeed: deepspeed_configs/zero3_bf16.json, optimizer: "
               "adamw_8bit, or load_in_4bit: true with adapter: qlora",
     .cost = "slower steps, or a little quality"},
    {.causes = TRAINED,
     .kinds = TORCHY,
     .with = T(GRPO),
     .mustnot = NOT_ROOM,
     .change = "shorter and fewer completions: GRPOConfig(max_completion_length=512, "
               "num_generations=4, per_device_train_batch_size=4, gradient_accumulation_steps=8)",
     .cost = "longer answers are cut; noisier rewards"},
    {.causes = TRAINED,
     .kinds = TORCHY,
     .with = T(GRPO),
     .mustnot = NOT_ROOM,
     .other = P(UNSLOTH),
     .change = "a loss that does not make all logits at once: GRPOConfig(use_liger_loss=True) "
               "(use_liger_kernel=True in newer versions of TRL)",
     .cost = "needs liger-kernel"},
    {.causes = TRAINED,
     .kinds = TORCHY,
     .need = M(TORCH),
     .with = T(TORCH_FIT),
     .mustnot = NOT_ROOM | D(ONE) | D(BATCH),
     .change = "a smaller batch: model.fit(…, batch_size=…), half of it until it fits",
     .cost = "more, smaller steps"},
    {.causes = TRAINED,
     .kinds = TORCHY,
     .need = M(TORCH),
     .with = T(TORCH_FIT),
     .without = T(AUTOCAST),
     .mustnot = NOT_ROOM,
     .change = "16-bit arithmetic: keras.mixed_precision.set_global_policy(\"mixed_float16\") "
               "before the model is made",
     .cost = "slightly less precise numbers"},
    {.causes = TRAINED,
     .kinds = TORCHY,
     .need = M(TORCH),
     .with = T(TORCH_FIT),
     .mustnot = NOT_ROOM,
     .change = "the same training step from smaller batches: the optimizer's "
               "gradient_accumulation_steps=2 (Keras 3)",
     .cost = "slower"},
    {.causes = TRAINED,
     .kinds = TORCHY,
     .with = T(FASTAI),
     .mustnot = NOT_ROOM | D(ONE) | D(BATCH),
     .change = "a smaller batch: dataloaders(…, bs=8), with the callback GradientAccumulation(64) "
               "for the same training step",
     .cost = "slower"},
    {.causes = TRAINED,
     .kinds = TORCHY,
     .with = T(FASTAI),
     .mustnot = NOT_ROOM,
     .change = "16-bit arithmetic and smaller pictures: learn.to_fp16(), item_tfms=Resize(224)",
     .cost = "slightly less precise numbers; less detail"},
};
const recipe_table recipes_own = {rows, sizeof rows / sizeof *rows};

static const recipe platform[] = {
    {.causes = C(OTHER_PROCESS) | FULL | C(WEIGHTS_TOO_BIG) | C(ONE_SPIKE),
     .kinds = ANY_DEVICE & ~TORCHY,
     .with = T(JETSON),
     .change = "free the memory that CPU and GPU share: stop the desktop (sudo systemctl isolate "
               "multi-user.target) and other programs; tegrastats shows how much is used",
     .cost = "no desktop until: sudo systemctl isolate graphical.target"},
    {.causes = C(OTHER_PROCESS) | FULL | C(WEIGHTS_TOO_BIG) | C(ONE_SPIKE),
     .kinds = ANY_DEVICE & ~TORCHY,
     .with = T(JETSON),
     .change = JETSON_SWAP,
     .cost = "swap is slow"},
};
const recipe_table recipes_platform = {platform, sizeof platform / sizeof *platform};
