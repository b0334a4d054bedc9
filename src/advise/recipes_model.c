/* Recipes for a model that does not fit: servers, weights, the optimizer's state, one huge tensor.
 */
#include "advise/recipe_words.h"

static const recipe rows[] = {
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = K(MLX),
     .change = "a smaller copy of the model: 4 bits instead of 8 or 16 (mlx_lm.convert -q "
               "--q-bits 4), or fewer parameters",
     .cost = "a little quality"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = K(MLX),
     .change = "if the Mac has more RAM than the limit, give the GPU more of it: sudo sysctl "
               "iogpu.wired_limit_mb=N (until the next restart)",
     .cost = "less is left for macOS"},
    {.causes = C(LOADED_TWICE),
     .kinds = TORCHY,
     .change = "keep one copy on the device: copy.deepcopy(model.cpu()), or hold the copy's "
               "state_dict on "
               "the CPU; del what is no longer used",
     .cost = "a copy to the CPU and back"},
    {.causes = C(LOADED_TWICE),
     .kinds = TORCHY,
     .change = "weights in 16 bits, or a smaller model: model.half()",
     .cost = "slightly less precise numbers"},
    /* ---- servers ---- */
    {.kinds = K(VLLM),
     .must = D(COMPUTE),
     .mustnot = D(START) | D(SHARE),
     .change = "leave more for computing: --gpu-memory-utilization 0.85 --max-num-seqs 16 "
               "--max-num-batched-tokens 2048",
     .cost = "a smaller KV cache: fewer requests at once"},
    {.kinds = K(VLLM),
     .must = D(COMPUTE),
     .change = "without CUDA graphs, which take memory of their own: --enforce-eager",
     .cost = "slower"},
    {.kinds = K(VLLM),
     .must = D(WEIGHTS),
     .change = "keep a part of the weights in RAM: --cpu-offload-gb 8",
     .cost = "slower: they cross the bus at every pass"},
    {.kinds = K(VLLM),
     .mustnot = D(START) | D(COMPUTE) | D(WEIGHTS) | D(SHARE) | D(MEASURED),
     .change = "give the server more of the device: --gpu-memory-utilization 0.95",
     .cost = "less is left for others on the device"},
    {.kinds = K(VLLM),
     .mustnot = D(START) | D(COMPUTE) | D(WEIGHTS) | D(MEASURED),
     .change = "allow shorter requests and fewer at once: --max-model-len 4096 --max-num-seqs 16",
     .cost = "longer prompts are refused"},
    {.kinds = K(VLLM),
     .mustnot = D(MEASURED),
     .change = "a smaller or quantized model (AWQ, GPTQ, FP8), or several devices: "
               "--tensor-parallel-size 2",
     .cost = "a little quality, or more devices"},
    {.kinds = K(VLLM),
     .mustnot = D(COMPUTE) | D(WEIGHTS) | D(MEASURED),
     .change = "--kv-cache-dtype fp8, or --enforce-eager",
     .cost = "a little quality; eager mode is slower"},
    {.kinds = K(TGI),
     .change = "a quantized model (--quantize awq, gptq or bitsandbytes-nf4), or several devices: "
               "--num-shard 2",
     .cost = "a little quality, or more devices"},
    {.kinds = K(TGI),
     .change = "see who else is on the device: nvidia-smi; and give the server more of it: "
               "--cuda-memory-fraction 0.95",
     .cost = "less is left for others on the device"},
    {.kinds = K(TENSORRT),
     .must = D(KV_CACHE),
     .change =
         "a smaller KV cache: trtllm-serve --kv_cache_free_gpu_memory_fraction 0.7 (Python: "
         "KvCacheConfig(free_gpu_memory_fraction=0.7); Triton: kv_cache_free_gpu_mem_fraction "
         "in config.pbtxt)",
     .cost = "fewer requests at once"},
    {.kinds = K(TENSORRT),
     .must = D(KV_CACHE),
     .change = "fewer and shorter requests at once: --max_batch_size 16 --max_num_tokens 4096 "
               "--max_seq_len 8192",
     .cost = "longer prompts are refused"},
    {.kinds = K(TENSORRT),
     .must = D(KV_CACHE),
     .change = "a quantized checkpoint (FP8, INT4 AWQ), or several devices: --tp_size 2",
     .cost = "a little quality, or more devices"},
    {.kinds = K(SGLANG),
     .must = D(COMPUTE),
     .change = "fewer requests at once: --max-running-requests 16 --chunked-prefill-size 2048, and "
               "--mem-fraction-static 0.8 (lower leaves more for computing)",
     .cost = "fewer requests at once"},
    {.kinds = K(SGLANG),
     .must = D(COMPUTE),
     .change = "fewer CUDA graphs: --cuda-graph-max-bs 16, or none: --disable-cuda-graph",
     .cost = "slower"},
    {.kinds = K(SGLANG),
     .mustnot = D(SHARE) | D(COMPUTE) | D(WEIGHTS),
     .change = "give the KV cache more: --mem-fraction-static 0.9, or 0.02 more until the server "
               "starts",
     .cost = "less is left for computing: too high fails later"},
    {.kinds = K(SGLANG),
     .change = "a shorter context (--context-length 4096), a smaller or quantized model, or "
               "--tp-size 2",
     .cost = "longer prompts are refused"},
    {.causes = C(WEIGHTS_TOO_BIG) | C(BATCH_TOO_BIG) | C(ONE_SPIKE),
     .kinds = K(LLAMA),
     .need = M(OLLAMA),
     .mustnot = D(COMPUTE),
     .change =
         "put fewer layers on the device: /set parameter num_gpu 20 in ollama run (or PARAMETER "
         "num_gpu 20 in the Modelfile); 0 is the CPU alone",
     .cost = "slower: the other layers run on the CPU"},
    {.causes = C(WEIGHTS_TOO_BIG) | C(BATCH_TOO_BIG) | C(ONE_SPIKE),
     .kinds = K(LLAMA),
     .need = M(OLLAMA),
     .change = "a shorter context: /set parameter num_ctx 2048, and OLLAMA_NUM_PARALLEL=1",
     .cost = "less of a long conversation is seen"},
    {.kinds = K(LLAMA),
     .never = M(OLLAMA),
     .must = D(COMPUTE) | D(KV_CACHE),
     .change =
         "a shorter context: -c 4096 (--ctx-size), and its cache in 8 bits: -ctk q8_0 -ctv q8_0 "
         "-fa",
     .cost = "less of a long conversation is seen"},
    {.kinds = K(LLAMA),
     .never = M(OLLAMA),
     .must = D(COMPUTE),
     .mustnot = D(KV_CACHE),
     .change =
         "a shorter context and smaller steps: -c 4096 -ub 256 -b 512, and flash attention: -fa",
     .cost = "less of a long conversation is seen"},
    {.kinds = K(LLAMA),
     .never = M(OLLAMA),
     .change = "put fewer layers on the device: -ngl 20 (--n-gpu-layers); lower until it loads",
     .cost = "slower: the other layers run on the CPU"},
    {.kinds = K(LLAMA),
     .never = M(OLLAMA),
     .mustnot = D(COMPUTE),
     .change = "a shorter context: -c 4096, and its cache in 8 bits: -ctk q8_0 -ctv q8_0 -fa",
     .cost = "less of a long conversation is seen"},
    {.kinds = K(LLAMA),
     .change = "a smaller model, or a smaller quantization of it (Q4_K_M, Q3_K_S)",
     .cost = "a little quality"},
    {.kinds = K(LLAMA),
     .never = M(AMD),
     .change = "see who else is on the device: nvidia-smi",
     .cost = "none"},
    {.kinds = K(LLAMA),
     .need = M(AMD),
     .change = "see who else is on the device: rocm-smi --showpids",
     .cost = "none"},
    {.hosts = H(MODEL),
     .change = "a smaller model, or a smaller quantization of it (Q4_K_M instead of Q8_0), or a "
               "shorter context (num_ctx 2048)",
     .cost = "a little quality"},
    {.hosts = H(MODEL),
     .need = M(WINDOWS),
     .change = "free RAM: close other programs, or enlarge the page file: System > Advanced > "
               "Performance > Virtual memory; then restart",
     .cost = "the page file is slow"},
    {.hosts = H(MODEL),
     .need = M(MAC),
     .change = "free RAM: close other programs: Activity Monitor > Memory shows who holds it",
     .cost = "none"},
    {.hosts = H(MODEL),
     .never = M(WINDOWS) | M(MAC),
     .change = "free RAM: close other programs, or add swap (Linux: sudo fallocate -l 16G "
               "/swapfile; sudo "
               "chmod 600 /swapfile; sudo mkswap /swapfile; sudo swapon /swapfile)",
     .cost = "swap is slow"},
    {.kinds = K(CTRANSLATE),
     .change = "weights in fewer bits: compute_type=\"int8\" (or \"int8_float16\"), or a smaller "
               "model",
     .cost = "a little quality"},
    {.kinds = K(DISPATCH),
     .never = M(QUANTIZED),
     .change = "a smaller model, or weights in fewer bits: BitsAndBytesConfig(load_in_4bit=True)",
     .cost = "a little quality"},
    {.kinds = K(DISPATCH),
     .change = "free the device first: other models of this program (del, load this one first), "
               "other programs (nvidia-smi shows them), a notebook's old kernel",
     .cost = "none"},
    {.kinds = K(DISPATCH),
     .need = M(QUANTIZED),
     .change = "a smaller model: one with fewer parameters",
     .cost = "a little quality"},
    {.kinds = K(DISPATCH),
     .change = "let part of the weights stay in RAM: BitsAndBytesConfig(…, "
               "llm_int8_enable_fp32_cpu_offload=True) and a device_map that names those layers: "
               "{\"model.layers.30\": \"cpu\", …}",
     .cost = "slower"},
    {.kinds = K(CTRANSLATE),
     .change =
         "fewer at once: batch_size=1, beam_size=1; nvidia-smi shows who else is on the device",
     .cost = "slower"},
    {.kinds = K(CTRANSLATE),
     .change = "try the other allocator: CT2_CUDA_ALLOCATOR=cub_caching",
     .cost = "none"},

    /* ---- the weights do not fit ---- */
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(SAVING) | M(GATHERING),
     .never = M(DEEPSPEED),
     .change = "save each rank's part: StateDictType.SHARDED_STATE_DICT (Accelerate: "
               "fsdp_state_dict_type: SHARDED_STATE_DICT), or gather in RAM on one rank: "
               "FullStateDictConfig(offload_to_cpu=True, rank0_only=True)",
     .cost = "a checkpoint of several files, or RAM for the whole model"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(SAVING) | M(GATHERING) | M(DEEPSPEED),
     .change = "save each rank's part: \"stage3_gather_16bit_weights_on_model_save\": false, and "
               "make one file of it later with zero_to_fp32.py",
     .cost = "a checkpoint of several files"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(WEBUI) | M(NVIDIA),
     .never = M(LINUX) | M(MAC),
     .change = LESS_WEBUI
     "in webui-user.bat: set COMMANDLINE_ARGS=--medvram --xformers (--lowvram up to 4 GB)",
     .cost = "slower: parts of the model move between RAM and the device"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(WEBUI) | M(NVIDIA),
     .never = M(WINDOWS),
     .change = LESS_WEBUI
     "in webui-user.sh: export COMMANDLINE_ARGS=\"--medvram --xformers\" (--lowvram up to 4 GB)",
     .cost = "slower: parts of the model move between RAM and the device"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY | K(DIRECTML),
     .need = M(WEBUI),
     .never = M(NVIDIA) | M(LINUX) | M(MAC),
     .change =
         LESS_WEBUI "in webui-user.bat: set COMMANDLINE_ARGS=--medvram --opt-sub-quad-attention "
                    "(--lowvram up to 4 GB)",
     .cost = "slower: parts of the model move between RAM and the device"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY | K(DIRECTML),
     .need = M(WEBUI),
     .never = M(NVIDIA) | M(WINDOWS),
     .change = LESS_WEBUI "in webui-user.sh: export COMMANDLINE_ARGS=\"--medvram "
                          "--opt-sub-quad-attention\" (--lowvram up to 4 GB)",
     .cost = "slower: parts of the model move between RAM and the device"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(DIFFUSERS),
     .never = M(COMFY) | M(WEBUI) | M(APPLE),
     .change = "instead of pipe.to(\"cuda\"): pipe.enable_model_cpu_offload(), or "
               "pipe.enable_sequential_cpu_offload(), which needs least",
     .cost = "slower: parts of the model move between RAM and the device"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(DIFFUSERS),
     .never = M(COMFY) | M(WEBUI) | M(HALF),
     .change = "load in 16 bits: from_pretrained(…, torch_dtype=torch.bfloat16) (float16 on "
               "devices before 2020)",
     .cost = "16-bit arithmetic: half the memory of float32 weights"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(COMFY),
     .change =
         "start with python main.py --lowvram (or --novram), and use an fp8 or GGUF version of "
         "the model (smaller)",
     .cost = "slower: parts of the model move between RAM and the device"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(DEEPSPEED),
     .change =
         "keep the weights in RAM and gather less at once: \"offload_param\": {\"device\": "
         "\"cpu\"}, \"stage3_max_live_parameters\": 1e8, \"stage3_prefetch_bucket_size\": 1e7",
     .cost = "slower"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(GATHERING),
     .change = "a smaller batch for each device, and CPU offload of the weights (FSDP: "
               "CPUOffload(offload_params=True); DeepSpeed: offload_param)",
     .cost = "slower"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(TRANSFORMERS),
     .never = M(HALF),
     .without = T(FSDP) | T(AXOLOTL),
     .change =
         "load in 16 bits: from_pretrained(…, torch_dtype=torch.float16, device_map=\"auto\")",
     .cost = "16-bit arithmetic; what does not fit runs from RAM"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(TRANSFORMERS),
     .never = M(APPLE) | M(QUANTIZED),
     .without = T(FSDP) | T(AXOLOTL),
     .change = "load in 4 bits: from_pretrained(…, quantization_config=BitsAndBytesConfig("
               "load_in_4bit=True))",
     .cost = "a little quality"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(TRANSFORMERS) | M(HALF),
     .without = T(FSDP) | T(AXOLOTL),
     .change = "let layers that do not fit run from RAM: from_pretrained(…, device_map=\"auto\") "
               "instead of .to(\"cuda\")",
     .cost = "slower: those layers cross the bus at every pass"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .never = M(TRANSFORMERS) | M(DIFFUSERS) | M(COMFY) | M(WEBUI) | M(HALF),
     .change = "put the weights on the device in 16 bits: model.half() before .to(\"cuda\")",
     .cost = "16-bit arithmetic: half the memory of float32 weights"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY | K(DIRECTML) | K(PADDLE) | K(TENSORFLOW),
     .change = "a smaller model, or a quantized one (8 or 4 bits)",
     .cost = "a little quality"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = K(DIRECTML),
     .never = M(HALF),
     .change = "put the weights on the device in 16 bits: model.half() before model.to(dml)",
     .cost = "16-bit arithmetic: half the memory of float32 weights"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = K(PADDLE),
     .change =
         "load to RAM first: paddle.set_device(\"cpu\") before paddle.load(…), then build the "
         "model on the GPU; otherwise the file and the model are both on the device",
     .cost = "none"},
    {.causes = C(WEIGHTS_TOO_BIG) | C(OPTIMIZER_STATE),
     .kinds = K(TENSORFLOW),
     .change = "see who else is on the device: nvidia-smi; another process may hold it (a variable "
               "does not depend on the batch)",
     .cost = "none"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .must = D(SPILLS),
     .change = "let the rest live in RAM: stowage run --spill auto -- python train.py (Linux)",
     .cost = "slower: part of the data lives in the computer's RAM"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = K(XLA),
     .need = M(TPU),
     .change = "spread the weights over all cores instead of one: jax.sharding, in Keras "
               "keras.distribution.set_distribution(keras.distribution.ModelParallel(…)) before "
               "the model is made",
     .cost = "cores exchange parts in every pass"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = K(XLA),
     .need = M(TPU),
     .change = "weights in 16 bits: jnp.bfloat16, in Keras "
               "keras.config.set_floatx(\"bfloat16\") before the model is made; or a smaller "
               "model",
     .cost = "slightly less precise numbers"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = K(XLA),
     .never = M(TPU),
     .change = "keep weights and state in 16 bits, or donate them (jax.jit(…, donate_argnums=…))",
     .cost = "16-bit arithmetic; what is donated cannot be used again"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = K(XLA),
     .never = M(TPU),
     .change = "a smaller batch, or the arrays split over several devices (jax.sharding)",
     .cost = "more, smaller steps"},

    /* ---- the optimizer's state ---- */
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .need = M(DEEPSPEED),
     .change = "keep the state in RAM and spread it over the ranks: \"zero_optimization\": "
               "{\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}",
     .cost = "slower steps"},
    {.causes = C(OPTIMIZER_STATE),
     .need = M(TRAINER),
     .without = T(STATE_8BIT) | T(AXOLOTL),
     .change = "an optimizer with less state: TrainingArguments(optim=\"adamw_bnb_8bit\"), or "
               "optim=\"adafactor\"",
     .cost = "slightly different training"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = K(TENSORFLOW),
     .change = "an optimizer with less state: tf.keras.optimizers.SGD(momentum=0.9) has one number "
               "for each weight, Adam two",
     .cost = "different training"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .never = M(TRAINER) | M(AMD) | M(APPLE),
     .without = T(STATE_8BIT) | T(AXOLOTL),
     .change = "an 8-bit optimizer: import bitsandbytes as bnb; optimizer = "
               "bnb.optim.AdamW8bit(model.parameters(), lr=…)",
     .cost = "slightly different training"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .need = M(AMD),
     .change = "an optimizer with less state: Adafactor, or torch.optim.SGD with momentum",
     .cost = "different training"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .with = T(FSDP),
     .change =
         "keep weights and state in RAM: FSDP(…, cpu_offload=CPUOffload(offload_params=True)) "
         "(FSDP2: fully_shard(…, offload_policy=CPUOffloadPolicy()); Accelerate: "
         "fsdp_offload_params: true)",
     .cost = "slower steps"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .never = M(TRAINER),
     .without = T(STATE) | T(AXOLOTL),
     .from = 113,
     .change = "without copies of all tensors in the step (PyTorch 1.13+): torch.optim.AdamW(…, "
               "foreach=False), or "
               "fused=True",
     .cost = "foreach=False is slower"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .change = "train fewer weights: LoRA (peft.get_peft_model), or freeze layers "
               "(p.requires_grad = False)",
     .cost = "less of the model learns"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .never = M(DEEPSPEED),
     .without = T(FSDP),
     .change =
         "move the state off the device: DeepSpeed ZeRO with \"offload_optimizer\": {\"device\": "
         "\"cpu\"}",
     .cost = "slower steps"},

    /* ---- one huge request ---- */
    {.causes = C(ONE_SPIKE),
     .need = M(INTEL),
     .mustnot = D(LARGER),
     .change = "Intel devices give at most 4 GiB at once: split the tensor, or allow more with "
               "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1",
     .cost = "none"},
    {.causes = C(ONE_SPIKE) | C(LIMIT),
     .kinds = K(TENSORRT),
     .change =
         "a smaller workspace: config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << "
         "30), or trtexec --memPoolSize=workspace:1024",
     .cost = "some faster kernels are not tried"},
    {.causes = C(ONE_SPIKE) | C(LIMIT) | C(BATCH_TOO_BIG) | C(UNKNOWN),
     .kinds = K(TENSORRT),
     .mustnot = D(KV_CACHE),
     .change = "build for a smaller maximum: a smaller batch or input size in the optimization "
               "profile, and --fp16",
     .cost = "larger inputs are refused; 16-bit arithmetic"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .need = M(WEBUI) | M(NVIDIA),
     .never = M(LINUX) | M(MAC),
     .change =
         LESS_WEBUI "in webui-user.bat: set COMMANDLINE_ARGS=--medvram --xformers, and a smaller "
                    "picture or upscale",
     .cost = "slower; smaller results"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .need = M(WEBUI) | M(NVIDIA),
     .never = M(WINDOWS),
     .change =
         LESS_WEBUI "in webui-user.sh: export COMMANDLINE_ARGS=\"--medvram --xformers\", and a "
                    "smaller picture or upscale",
     .cost = "slower; smaller results"},
    {.causes = C(ONE_SPIKE),
     .must = D(IMAGES),
     .change = "a smaller picture or video (width, height, frames); tiled decoding (ComfyUI: VAE "
               "Decode (Tiled); diffusers: pipe.enable_vae_tiling())",
     .cost = "smaller results, or slower"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .need = M(ATTENTION),
     .without = T(FUSED),
     .from = 200,
     .change =
         "attention without the whole matrix: torch.nn.functional.scaled_dot_product_attention "
         "(Transformers: attn_implementation=\"sdpa\")",
     .cost = "none"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .need = M(ATTENTION) | M(NVIDIA),
     .with = T(FUSED),
     .from = 200,
     .change =
         "let attention take a kernel that does not make the whole matrix: 16-bit inputs, and no "
         "attn_mask (is_causal=True instead); under with torch.nn.attention.sdpa_kernel("
         "SDPBackend.FLASH_ATTENTION): it says why it cannot",
     .cost = "16-bit arithmetic"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .need = M(ATTENTION) | M(DIFFUSERS),
     .never = M(COMFY) | M(WEBUI) | M(NVIDIA),
     .change = "attention in parts: pipe.enable_attention_slicing()",
     .cost = "slower"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .change =
         "make that one tensor smaller: a shorter sequence, a lower resolution, a smaller batch; "
         "check its shape (a wrong one often multiplies)",
     .cost = "smaller inputs"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .change = "work in parts, so that it never exists as a whole: for part in x.split(1024): …",
     .cost = "a loop over the parts"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .without = T(AUTOCAST),
     .from = 113,
     .change = "in 16 bits it is half as large: x.half(), or torch.autocast(x.device.type)",
     .cost = "slightly less precise numbers"},
    {.causes = C(ONE_SPIKE),
     .kinds = K(XLA),
     .change =
         "a smaller batch, jax.checkpoint around the blocks, or jax.lax.map over parts of what "
         "that line makes",
     .cost = "more, smaller steps; or a part is computed twice"},
    {.causes = C(ONE_SPIKE),
     .kinds = ANY_DEVICE & ~(TORCHY | K(TENSORRT)),
     .change =
         "work in parts, so that it never exists as a whole: a smaller batch, or a loop over the "
         "parts",
     .cost = "a loop over the parts"},

    /* ---- results that pile up ---- */
    {.causes = C(LEAK),
     .kinds = TORCHY,
     .with = T(FOLDS),
     .change = "drop what one fold or trial made before the next: del learn (model, optimizer, "
               "loaders); gc.collect(); torch.cuda.empty_cache()",
     .cost = "none"},
    {.causes = C(LEAK),
     .kinds = TORCHY,
     .with = T(FOLDS),
     .change = "run each fold or trial in a process of its own: a loop in the shell over python "
               "train.py --fold N; it frees all memory when it ends",
     .cost = "the program starts anew for each"},
    {.causes = C(LEAK),
     .kinds = TORCHY,
     .with = T(GROWS),
     .change =
         "keep numbers and copies, not tensors that carry their graph: "
         "losses.append(loss.item()), total += loss.item(), outputs.append(out.detach().cpu())",
     .cost = "none"},
    {.causes = C(LEAK),
     .kinds = TORCHY,
     .with = T(GROWS),
     .change = "empty what lives longer than one step: lists, dicts and attributes (self.…) that "
               "every step adds to; metrics that hold all batches (reset() after each epoch)",
     .cost = "none"},
    {.causes = C(LEAK),
     .need = M(TRAINER),
     .change =
         "move results to the CPU every few batches: TrainingArguments(eval_accumulation_steps="
         "8), with a smaller per_device_eval_batch_size",
     .cost = "a copy after every eighth batch"},
    {.causes = C(LEAK),
     .need = M(TRAINER),
     .change =
         "keep less of each batch: Trainer(preprocess_logits_for_metrics=lambda logits, labels: "
         "logits.argmax(-1)); without metrics prediction_loss_only=True",
     .cost = "the logits themselves are not returned"},
    {.causes = C(LEAK),
     .kinds = TORCHY,
     .need = M(COLLECTING),
     .change = "move each batch's results off the device: outputs.append(out.detach().cpu())",
     .cost = "a copy to the host per batch"},
    {.causes = C(LEAK),
     .kinds = TORCHY,
     .need = M(COLLECTING),
     .change = "keep what the metric needs, not all outputs: out.argmax(-1), or update the metric "
               "batch by batch",
     .cost = "none"},

    /* ---- evaluation ---- */
    {.causes = C(EVAL_BATCH_BIGGER),
     .need = M(YOLO),
     .change = "half the batch or a smaller imgsz in train(…): validation batches follow it; or "
               "train(…, val=False), then model.val(batch=4)",
     .cost = "more, smaller steps"},
    {.causes = C(EVAL_BATCH_BIGGER),
     .need = M(YOLO),
     .change = "fewer boxes in validation: val(…, conf=0.01, max_det=100), and no plots "
               "(plots=False)",
     .cost = "slightly different scores"},
    {.causes = C(NO_GRAD_MISSING) | C(EVAL_BATCH_BIGGER),
     .never = M(YOLO),
     .change = "put the evaluation under no_grad: model.eval(); with torch.no_grad(): …",
     .cost = "none: no backward pass runs there"},
    {.causes = C(NO_GRAD_MISSING) | C(EVAL_BATCH_BIGGER),
     .never = M(YOLO),
     .change = "a smaller batch for the evaluation's DataLoader, and results moved off the device: "
               "out.detach().cpu()",
     .cost = "more, smaller steps"},
    {.causes = C(NO_GRAD_MISSING) | C(EVAL_BATCH_BIGGER),
     .never = M(YOLO),
     .change = "keep numbers, not tensors: total += loss.item()",
     .cost = "none"},
};
const recipe_table recipes_model = {rows, sizeof rows / sizeof *rows};
