/* Recipes for a model that does not fit: weights, the optimizer's state, one huge tensor, results
 * that pile up. */
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
     .need = M(SAVING) | M(GATHERING),
     .never = M(DEEPSPEED),
     .change = "with torch.distributed.checkpoint (PyTorch 2.2+): dcp.save({\"model\": "
               "get_model_state_dict(model)}, checkpoint_id=path), which gathers nothing",
     .cost = "a checkpoint of several files"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(SAVING) | M(GATHERING),
     .change = "give back what is cached before saving: torch.cuda.empty_cache(), and after the "
               "step, when no gradients are held: optimizer.zero_grad(set_to_none=True)",
     .cost = "a pause"},
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
     .program = P(OFFLOADS),
     .other = P(SEQUENCES),
     .change = "offload layer by layer instead of one whole model after the other: "
               "pipe.enable_sequential_cpu_offload() in place of the call in the script",
     .cost = "much slower: every layer crosses the bus at every step"},
    {.causes = C(WEIGHTS_TOO_BIG) | FULL,
     .kinds = TORCHY,
     .need = M(DIFFUSERS),
     .never = M(COMFY) | M(WEBUI) | M(APPLE),
     .program = P(SEQUENCES),
     .change = "a smaller picture: height=1024, width=1024 or less, one at a time "
               "(num_images_per_prompt=1); pipe.enable_vae_tiling() for the decoder",
     .cost = "smaller results"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(DIFFUSERS),
     .never = M(COMFY) | M(WEBUI) | M(APPLE) | M(QUANTIZED),
     .change =
         "load the large models of the pipeline in 4 bits: from_pretrained(…, "
         "quantization_config=PipelineQuantizationConfig(quant_backend=\"bitsandbytes_4bit\", "
         "quant_kwargs={\"load_in_4bit\": True}))",
     .cost = "a little quality"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(DIFFUSERS),
     .never = M(COMFY) | M(WEBUI) | M(APPLE),
     .other = P(OFFLOADS),
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
     .without = T(OLD_SPEED),
     .change =
         "keep the weights in RAM and gather less at once: \"offload_param\": {\"device\": "
         "\"cpu\"}, \"stage3_max_live_parameters\": 1e8, \"stage3_prefetch_bucket_size\": 1e7",
     .cost = "slower"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(GATHERING),
     .never = M(SAVING),
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
     .never = M(APPLE) | M(QUANTIZED) | M(DIFFUSERS),
     .without = T(FSDP) | T(AXOLOTL),
     .change = "load in 4 bits: from_pretrained(…, quantization_config=BitsAndBytesConfig("
               "load_in_4bit=True))",
     .cost = "a little quality"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(TRANSFORMERS) | M(HALF),
     .other = P(OFFLOADS),
     .without = T(FSDP) | T(AXOLOTL),
     .change = "let layers that do not fit run from RAM: from_pretrained(…, device_map=\"auto\") "
               "instead of .to(\"cuda\")",
     .cost = "slower: those layers cross the bus at every pass"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .never = M(TRANSFORMERS) | M(COMFY) | M(WEBUI),
     .with = T(WEIGHTS_FILE),
     .change = "keep in RAM what is not computed with: the program's own option (--offload), or "
               "load_file(path, device=\"cpu\") and one model on the device at a time",
     .cost = "slower: the models cross the bus"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(WHISPER),
     .never = M(TRANSFORMERS) | M(DIFFUSERS) | M(COMFY),
     .change =
         "a smaller model: whisper.load_model(\"small\") needs about 2 GB (medium 5, large 10; "
         "turbo 6)",
     .cost = "more errors in the text"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(WHISPER),
     .never = M(TRANSFORMERS) | M(DIFFUSERS) | M(COMFY),
     .change = "the same model in 8 bits with faster-whisper: WhisperModel(\"large-v3\", "
               "device=\"cuda\", compute_type=\"int8\")",
     .cost = "another package; a little quality"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .need = M(WHISPER),
     .never = M(TRANSFORMERS) | M(DIFFUSERS) | M(COMFY),
     .change = "half the weights' memory: make it 16-bit in RAM, then move it: "
               "whisper.load_model(name, device=\"cpu\").half().to(\"cuda\")",
     .cost = "16-bit arithmetic"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .without = T(WEIGHTS_FILE) | T(KOHYA),
     .never = M(WHISPER) | M(INTEL) | M(SAVING) | M(TRANSFORMERS) | M(DIFFUSERS) | M(COMFY) |
              M(WEBUI) | M(HALF),
     .change = "put the weights on the device in 16 bits: model.half() before .to(\"cuda\")",
     .cost = "16-bit arithmetic: half the memory of float32 weights"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY,
     .without = T(WEIGHTS_FILE) | T(KOHYA),
     .need = M(INTEL),
     .never = M(SAVING) | M(TRANSFORMERS) | M(DIFFUSERS) | M(COMFY) | M(WEBUI) | M(HALF),
     .change = "put the weights on the device in 16 bits: model.half() before .to(\"xpu\")",
     .cost = "16-bit arithmetic: half the memory of float32 weights"},
    {.causes = C(WEIGHTS_TOO_BIG),
     .kinds = TORCHY | K(DIRECTML) | K(PADDLE) | K(TENSORFLOW),
     .without = T(KOHYA),
     .never = M(SAVING),
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
     .with = T(MEGATRON),
     .change = "share weights and state among more ranks: --use-distributed-optimizer with more "
               "data-parallel ranks, a larger --tensor-model-parallel-size or "
               "--pipeline-model-parallel-size",
     .cost = "more devices, or more exchange between them"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .with = T(MEGATRON),
     .change = "keep the state in RAM: --optimizer-cpu-offload --optimizer-offload-fraction 1.0 "
               "--use-precision-aware-optimizer (Megatron Core of 2025 and newer)",
     .cost = "slower steps"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .with = T(MEGATRON),
     .change = "smaller state: --use-precision-aware-optimizer --exp-avg-dtype fp8 "
               "--exp-avg-sq-dtype fp8, gradients in 16 bits (--main-grads-dtype bf16)",
     .cost = "slightly different training"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .with = T(OLD_SPEED),
     .change = "update DeepSpeed (this one is older than 0.3 and cannot offload), then "
               "\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": "
               "\"cpu\"}}; until then more devices, which share the state",
     .cost = "slower steps"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .with = T(OLD_SPEED),
     .change = "train fewer weights: freeze layers (p.requires_grad = False), or a smaller model",
     .cost = "less of the model learns"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .need = M(DEEPSPEED),
     .without = T(OLD_SPEED),
     .change = "keep the state in RAM and spread it over the ranks: \"zero_optimization\": "
               "{\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}",
     .cost = "slower steps"},
    {.causes = C(OPTIMIZER_STATE),
     .need = M(TRAINER),
     .without = T(MEGATRON) | T(STATE_8BIT) | T(AXOLOTL),
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
     .without = T(MEGATRON) | T(STATE_8BIT) | T(AXOLOTL) | T(OLD_SPEED),
     .change = "an 8-bit optimizer: import bitsandbytes as bnb; optimizer = "
               "bnb.optim.AdamW8bit(model.parameters(), lr=…)",
     .cost = "slightly different training"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .need = M(AMD),
     .without = T(MEGATRON),
     .change = "an optimizer with less state: Adafactor, or torch.optim.SGD with momentum",
     .cost = "different training"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .with = T(FSDP),
     .without = T(MEGATRON),
     .change =
         "keep weights and state in RAM: FSDP(…, cpu_offload=CPUOffload(offload_params=True)) "
         "(FSDP2: fully_shard(…, offload_policy=CPUOffloadPolicy()); Accelerate: "
         "fsdp_offload_params: true)",
     .cost = "slower steps"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .never = M(TRAINER),
     .without = T(MEGATRON) | T(STATE) | T(AXOLOTL),
     .from = 113,
     .change = "without copies of all tensors in the step (PyTorch 1.13+): torch.optim.AdamW(…, "
               "foreach=False), or "
               "fused=True",
     .cost = "foreach=False is slower"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .without = T(MEGATRON) | T(OLD_SPEED),
     .change = "train fewer weights: LoRA (peft.get_peft_model), or freeze layers "
               "(p.requires_grad = False)",
     .cost = "less of the model learns"},
    {.causes = C(OPTIMIZER_STATE),
     .kinds = TORCHY,
     .never = M(DEEPSPEED),
     .without = T(MEGATRON) | T(FSDP),
     .change =
         "move the state off the device: DeepSpeed ZeRO with \"offload_optimizer\": {\"device\": "
         "\"cpu\"}",
     .cost = "slower steps"},

    /* ---- one huge request ---- */
    {.causes = C(LIMIT),
     .kinds = K(TORCH),
     .need = M(INTEL),
     .never = M(COMFY) | M(WEBUI),
     .change =
         "split the tensor into parts below 4 GiB (for part in x.split(n)), or a smaller batch",
     .cost = "a loop over the parts"},
    {.causes = C(LIMIT),
     .kinds = K(TORCH),
     .need = M(INTEL),
     .change = "allow larger blocks: UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1 before the program "
               "starts",
     .cost = "kernels for such blocks are slower"},
    {.causes = C(ONE_SPIKE),
     .need = M(INTEL),
     .mustnot = D(LARGER),
     .change = "Intel devices give at most 4 GiB at once: split the tensor, or allow more with "
               "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1",
     .cost = "kernels for such blocks are slower"},
    {.causes = C(ONE_SPIKE) | C(LIMIT),
     .kinds = K(TENSORRT),
     .mustnot = D(POOL),
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
    {.causes = C(ONE_SPIKE) | C(LIMIT),
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
     .need = M(COMFY),
     .change = "attention in parts: start with python main.py --use-split-cross-attention (or "
               "--use-pytorch-cross-attention, where it has a kernel without the whole matrix)",
     .cost = "slower"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .need = M(COMFY),
     .change = "fewer frames at once: a shorter video, or context windows (a node of the model's "
               "extension); a smaller width and height",
     .cost = "smaller results"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .never = M(COMFY) | M(WEBUI),
     .change =
         "make that one tensor smaller: a shorter sequence, a lower resolution, a smaller batch; "
         "check its shape (a wrong one often multiplies)",
     .cost = "smaller inputs"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .never = M(COMFY) | M(WEBUI),
     .change = "work in parts, so that it never exists as a whole: for part in x.split(1024): …",
     .cost = "a loop over the parts"},
    {.causes = C(ONE_SPIKE),
     .kinds = TORCHY,
     .without = T(AUTOCAST),
     .never = M(COMFY) | M(WEBUI),
     .other = P(INTEGERS),
     .from = 113,
     .change = "in 16 bits it is half as large: x.half(), or torch.autocast(x.device.type)",
     .cost = "slightly less precise numbers"},
    {.causes = C(ONE_SPIKE),
     .kinds = K(XLA),
     .change =
         "a smaller batch, jax.checkpoint around the blocks, or jax.lax.map over parts of the "
         "input",
     .cost = "more, smaller steps; or a part is computed twice"},
    {.causes = C(ONE_SPIKE),
     .kinds = K(MLX),
     .change = "a shorter prompt or context, with which such an array grows: mlx_lm --max-kv-size "
               "4096; LM Studio: Context Length; smaller or fewer pictures",
     .cost = "less of a long conversation is seen"},
    {.causes = C(ONE_SPIKE),
     .kinds = ANY_DEVICE & ~(TORCHY | K(TENSORRT)),
     .without = T(LMSTUDIO),
     .change =
         "work in parts, so that it never exists as a whole: a smaller batch, or a loop over the "
         "parts",
     .cost = "a loop over the parts"},

    /* ---- results that pile up ---- */
    {.causes = C(LEAK),
     .kinds = TORCHY,
     .program = P(RETAINS),
     .change = "drop retain_graph=True where no second backward() uses the same graph; where one "
               "does (GradNorm), only the last of them runs without it, and frees the graph",
     .cost = "none"},
    {.causes = C(LEAK),
     .kinds = TORCHY,
     .program = P(RETAINS),
     .change = "keep numbers from step to step, not tensors with their graph: loss.item(), "
               "initial_loss = loss.detach(), hidden = hidden.detach()",
     .cost = "none"},
    {.causes = C(LEAK),
     .kinds = TORCHY,
     .program = P(RETAINS),
     .change =
         "check it: print(torch.cuda.memory_allocated()) after each step; the number must stop "
         "growing after the first few",
     .cost = "none"},
    {.causes = C(LEAK),
     .kinds = TORCHY,
     .need = M(LIGHTNING),
     .change = "keep numbers and copies in validation_step: self.out.append(out.detach().cpu()), "
               "loss.item(); clear the list in on_validation_epoch_end",
     .cost = "none"},
    {.causes = C(LEAK),
     .kinds = TORCHY,
     .need = M(LIGHTNING),
     .change =
         "reset metrics after each epoch (torchmetrics: metric.reset(), compute_on_cpu=True), "
         "above all those that keep every prediction (AUROC, PR curves)",
     .cost = "none"},
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

    {.causes = C(GRAPH_KEPT),
     .kinds = TORCHY,
     .change = "look for more such lines: lists, sums and attributes (self.…) that keep a tensor "
               "of "
               "every pass; keep .item() or .detach().cpu() there",
     .cost = "none"},
    {.causes = C(GRAPH_KEPT),
     .kinds = TORCHY,
     .change = "check it: print(torch.cuda.memory_allocated()) after each pass; the number must "
               "stop growing after the first few",
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
    {.causes = C(EVAL_BATCH_BIGGER),
     .need = M(LIGHTNING),
     .change = "a smaller batch in validation: DataLoader(val_set, batch_size=1) in "
               "val_dataloader(); large volumes or pictures in patches (MONAI: "
               "sliding_window_inference(x, (96, 96, 96), 1, self.net))",
     .cost = "slower validation"},
    {.causes = C(EVAL_BATCH_BIGGER),
     .need = M(LIGHTNING),
     .change = "keep no outputs on the device between its batches: .detach().cpu() on what "
               "validation_step collects, and metrics that are reset after each epoch",
     .cost = "none"},
    {.causes = C(EVAL_BATCH_BIGGER),
     .need = M(LIGHTNING),
     .without = T(AUTOCAST),
     .change = "16-bit arithmetic, also in validation: Trainer(precision=\"bf16-mixed\") "
               "(\"16-mixed\" on T4, V100 and older)",
     .cost = "slightly less precise numbers"},
    {.causes = C(EVAL_BATCH_BIGGER),
     .need = M(TRAINER),
     .never = M(LIGHTNING),
     .change = "a smaller batch in evaluation: TrainingArguments(per_device_eval_batch_size=1), "
               "and shorter inputs; it is 8 if it is not set, whatever training has",
     .cost = "slower evaluation"},
    {.causes = C(EVAL_BATCH_BIGGER),
     .need = M(TRAINER),
     .never = M(LIGHTNING),
     .change = "keep less of it on the device: TrainingArguments(eval_accumulation_steps=8), and "
               "prediction_loss_only=True where no metric needs the logits",
     .cost = "a copy after every eighth batch"},
    {.causes = C(EVAL_BATCH_BIGGER),
     .need = M(TRAINER),
     .never = M(LIGHTNING) | M(APPLE),
     .change = "16-bit arithmetic in evaluation: TrainingArguments(bf16_full_eval=True) "
               "(fp16_full_eval=True on T4, V100 and older)",
     .cost = "slightly less precise numbers"},
    {.causes = C(NO_GRAD_MISSING) | C(EVAL_BATCH_BIGGER),
     .other = P(EVALUATES),
     .never = M(YOLO),
     .mustnot = D(OWNED),
     .change = "put the evaluation under no_grad: model.eval(); with torch.no_grad(): …",
     .cost = "none: no backward pass runs there"},
    {.causes = C(NO_GRAD_MISSING) | C(EVAL_BATCH_BIGGER),
     .other = P(FAIRSEQ),
     .never = M(YOLO) | M(LIGHTNING) | M(TRAINER),
     .change = "a smaller batch for the evaluation's DataLoader, and results moved off the device: "
               "out.detach().cpu()",
     .cost = "more, smaller steps"},
    {.causes = C(NO_GRAD_MISSING) | C(EVAL_BATCH_BIGGER),
     .other = P(EVALUATES),
     .never = M(YOLO),
     .mustnot = D(OWNED),
     .change = "keep numbers, not tensors: total += loss.item()",
     .cost = "none"},
};
const recipe_table recipes_model = {rows, sizeof rows / sizeof *rows};
