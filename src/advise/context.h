/* Context: the circumstances of a failure, as far as a pasted text shows them.
 *
 * Tables of words (context.c) determine the library, the platform and the phase of the program.
 * Frames of a traceback give the user's own line. The causes and the fixes of a text are chosen by
 * these marks; a mark that is not set means "not seen", never "not so". */
#ifndef ADVISE_CONTEXT_H
#define ADVISE_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "advise/scan.h"

/* Marks: each is one bit of context.seen. */
enum {
  /* platform */
  CONTEXT_INDEX_WINDOWS,
  CONTEXT_INDEX_LINUX,
  CONTEXT_INDEX_MAC,
  CONTEXT_INDEX_COLAB,
  CONTEXT_INDEX_KAGGLE,
  CONTEXT_INDEX_NOTEBOOK,
  CONTEXT_INDEX_CONTAINER,
  CONTEXT_INDEX_WSL,
  /* device */
  CONTEXT_INDEX_NVIDIA,
  CONTEXT_INDEX_AMD,
  CONTEXT_INDEX_INTEL,
  CONTEXT_INDEX_APPLE,
  CONTEXT_INDEX_TPU,
  CONTEXT_INDEX_NPU,        /* Ascend */
  CONTEXT_INDEX_ANY_VENDOR, /* DirectML, Vulkan: any vendor's device */
  /* phase */
  CONTEXT_INDEX_LOADING,
  CONTEXT_INDEX_PLACING,
  CONTEXT_INDEX_FORWARD,
  CONTEXT_INDEX_BACKWARD,
  CONTEXT_INDEX_OPTIMIZER,
  CONTEXT_INDEX_EVALUATING,
  CONTEXT_INDEX_GENERATING,
  CONTEXT_INDEX_TRAINING,
  CONTEXT_INDEX_ATTENTION,
  CONTEXT_INDEX_GATHERING,
  CONTEXT_INDEX_NO_GRAD,
  CONTEXT_INDEX_FORKING,  /* a worker, a copy of this process, was being started … */
  CONTEXT_INDEX_STARTING, /* … or another program */
  CONTEXT_INDEX_READING,
  CONTEXT_INDEX_SAVING,
  CONTEXT_INDEX_COPYING,
  CONTEXT_INDEX_LISTING,
  CONTEXT_INDEX_DECODING,
  CONTEXT_INDEX_COLLECTING, /* results of an evaluation, batch after batch */
  /* library */
  CONTEXT_INDEX_TORCH,
  CONTEXT_INDEX_TRANSFORMERS,
  CONTEXT_INDEX_TRAINER,
  CONTEXT_INDEX_LIGHTNING,
  CONTEXT_INDEX_DEEPSPEED,
  CONTEXT_INDEX_COMFY,
  CONTEXT_INDEX_WEBUI,
  CONTEXT_INDEX_DIFFUSERS,
  CONTEXT_INDEX_YOLO,
  CONTEXT_INDEX_WHISPER,
  CONTEXT_INDEX_OLLAMA,
  CONTEXT_INDEX_KERAS,
  CONTEXT_INDEX_PANDAS,
  CONTEXT_INDEX_DASK,
  CONTEXT_INDEX_ONNX, /* ONNX Runtime */
  CONTEXT_INDEX_RAPIDS,
  CONTEXT_INDEX_EXPANDABLE,
  CONTEXT_INDEX_LORA,
  CONTEXT_INDEX_JAX,
  CONTEXT_INDEX_VLLM,
  CONTEXT_INDEX_SGLANG,
  CONTEXT_INDEX_MINDSPORE,
  CONTEXT_INDEX_RANKS, /* torchrun or another launcher of several processes */
  /* language */
  CONTEXT_INDEX_R,
  CONTEXT_INDEX_MATLAB,
  CONTEXT_INDEX_JULIA,
  CONTEXT_INDEX_NATIVE,  /* C++, Rust or Go, and no sign of Python */
  CONTEXT_INDEX_BITS_32, /* the program is a 32-bit one */
  /* the user's own line loads weights in … */
  CONTEXT_INDEX_HALF,      /* … 16 bits or fewer */
  CONTEXT_INDEX_QUANTIZED, /* … 8 bits or fewer */
  CONTEXT_INDEX_COUNT
};
_Static_assert(CONTEXT_INDEX_COUNT <= 64, "the marks fit one number");

/* Traits: what the program already does, and how it was started. Each is one bit of
 * context.traits. */
enum {
  TRAIT_AUTOCAST = 1 << 0,     /* arithmetic is in 16 bits already */
  TRAIT_FUSED = 1 << 1,        /* attention is called that need not make the whole matrix */
  TRAIT_FSDP = 1 << 2,         /* weights are sharded by PyTorch's FSDP */
  TRAIT_STATE = 1 << 3,        /* the optimizer's state was being made */
  TRAIT_GROWS = 1 << 4,        /* a memory figure in the log grows evenly with the steps */
  TRAIT_TINY = 1 << 5,         /* the user's own line makes a tensor of a few elements */
  TRAIT_NCCL = 1 << 6,         /* NCCL's own request failed */
  TRAIT_GO = 1 << 7,           /* a Go program */
  TRAIT_TEST_WORKERS = 1 << 8, /* tests run in several processes (pytest-xdist) */
  TRAIT_CI = 1 << 9,           /* on a hosted runner */
  TRAIT_SEARCH = 1 << 10,      /* cuDNN found no algorithm for a convolution */
  TRAIT_LINKER = 1 << 11,      /* a linker is named */
  TRAIT_CARGO = 1 << 12,       /* Rust's build tool */
  TRAIT_BUILD = 1 << 13,       /* a build, and no sign of Python */
  TRAIT_NODE = 1 << 14,        /* … of a JavaScript program */
  TRAIT_FFMPEG = 1 << 15,
  TRAIT_JETSON = 1 << 16,  /* a Jetson: CPU and GPU share one memory */
  TRAIT_RESTORE = 1 << 17, /* torch.load was reading a checkpoint */
  TRAIT_FOLDS = 1 << 18,   /* GROWS, from one fold or trial to the next */
  /* programs with settings of their own */
  TRAIT_SPLAT = 1 << 19,   /* Gaussian splatting */
  TRAIT_XGBOOST = 1 << 20, /* … XGBoost's own request failed */
  TRAIT_LIGHTGBM = 1 << 21,
  TRAIT_FAISS = 1 << 22,   /* Faiss on a GPU */
  TRAIT_ENCODER = 1 << 23, /* a video encoder of the GPU refused a session */
  TRAIT_GAME = 1 << 24,    /* a game, or an engine of games */
  TRAIT_RENDER = 1 << 25,  /* a renderer */
  TRAIT_OCR = 1 << 26,     /* PaddleOCR */
  TRAIT_AXOLOTL = 1 << 27,
  TRAIT_FASTAI = 1 << 28,
  TRAIT_GRPO = 1 << 29,     /* TRL's trainer that generates its own data */
  TRAIT_WORKFLOW = 1 << 30, /* Snakemake */
};
/* Not in the enum: an int has no more bits. */
#define TRAIT_NEXTFLOW     (UINT64_C(1) << 31)
#define TRAIT_PYTHON       (UINT64_C(1) << 32) /* a sign of Python */
#define TRAIT_RECOMPUTES   (UINT64_C(1) << 33) /* activations are recomputed already */
#define TRAIT_BATCHES      (UINT64_C(1) << 34) /* the text mentions a batch or a loader */
#define TRAIT_ROCM         (UINT64_C(1) << 35) /* AMD's software or its driver on Linux */
#define TRAIT_TESTS        (UINT64_C(1) << 36) /* pytest */
#define TRAIT_STATE_8BIT   (UINT64_C(1) << 38) /* the optimizer's state is in 8 bits already */
#define TRAIT_TORCH_FIT    (UINT64_C(1) << 37) /* Keras 3; with PyTorch's error its backend */
#define TRAIT_TF1          (UINT64_C(1) << 39) /* TensorFlow 1 */
#define TRAIT_LMSTUDIO     (UINT64_C(1) << 40) /* front ends of llama.cpp … */
#define TRAIT_LLAMA_CPP    (UINT64_C(1) << 41) /* … llama-cpp-python */
#define TRAIT_KOBOLD       (UINT64_C(1) << 42) /* … KoboldCpp */
#define TRAIT_KOHYA        (UINT64_C(1) << 43) /* kohya's sd-scripts, which train image models */
#define TRAIT_FINETUNES    (UINT64_C(1) << 44) /* … all weights, not a LoRA */
#define TRAIT_GRAPHS       (UINT64_C(1) << 45) /* CUDA graphs were being captured */
#define TRAIT_MEGATRON     (UINT64_C(1) << 46)
#define TRAIT_OLD_SPEED    (UINT64_C(1) << 47) /* DeepSpeed before 0.3 */
#define TRAIT_ROLLOUT      (UINT64_C(1) << 48) /* training and a server of rollouts share a device */
#define TRAIT_INDUCTOR     (UINT64_C(1) << 49) /* torch.compile's code */
#define TRAIT_NCCL_FILE    (UINT64_C(1) << 50) /* NCCL's own file in /dev/shm */
#define TRAIT_CMAKE        (UINT64_C(1) << 51) /* cmake --build */
#define TRAIT_LOGITS       (UINT64_C(1) << 53) /* … made a wide matrix: probably logits */
#define TRAIT_POOL_START   (UINT64_C(1) << 54) /* RMM's pool was being made */
#define TRAIT_PIP          (UINT64_C(1) << 52) /* a Python package is being built */
#define TRAIT_OPENCL       (UINT64_C(1) << 55)
#define TRAIT_EDITOR       (UINT64_C(1) << 56) /* a program that edits video or pictures */
#define TRAIT_NNUNET       (UINT64_C(1) << 57)
#define TRAIT_WEIGHTS_FILE (UINT64_C(1) << 58) /* safetensors was reading a file */
#define TRAIT_EXLLAMA      (UINT64_C(1) << 59) /* ExLlamaV2 and V3, TabbyAPI */
#define TRAIT_SPARK        (UINT64_C(1) << 60) /* Spark with RAPIDS */
#define TRAIT_INVOKE       (UINT64_C(1) << 61) /* InvokeAI */
#define TRAIT_NVCC         (UINT64_C(1) << 62) /* an extension for CUDA is being built */
#define TRAIT_PDIST        (UINT64_C(1) << 63) /* SciPy's distances of all pairs, in float64 */

/* Programs with settings of their own, and what of them the text shows. Each is one bit of
 * context.programs. */
enum {
  PROGRAM_WGPU = 1 << 0,   /* Rust on WebGPU: burn, wonnx */
  PROGRAM_CANDLE = 1 << 1, /* Rust's candle */
  PROGRAM_TCH = 1 << 2,    /* libtorch from Rust */
  PROGRAM_FOOOCUS = 1 << 3,
  PROGRAM_FAIRSEQ = 1 << 4,
  PROGRAM_HASHCAT = 1 << 5,
  PROGRAM_ISAAC = 1 << 6,    /* Isaac Sim, Isaac Lab */
  PROGRAM_DYNAMICS = 1 << 7, /* molecular dynamics: OpenMM, GROMACS, Amber, LAMMPS */
  PROGRAM_MATCONVNET = 1 << 8,
  PROGRAM_POLARS = 1 << 9,
  PROGRAM_RMM_TORCH = 1 << 10,  /* PyTorch on RMM's pool */
  PROGRAM_FFT = 1 << 11,        /* cuFFT refused */
  PROGRAM_INTEGERS = 1 << 12,   /* a tensor of integers is made */
  PROGRAM_FLOW_ASYNC = 1 << 13, /* TensorFlow's text names its other allocator */
  PROGRAM_PIPELINE = 1 << 14,   /* llama.cpp copies its buffers for a pipeline */
  PROGRAM_EMBEDS = 1 << 15,     /* llama.cpp serves embeddings */
  PROGRAM_APPENDS = 1 << 16,    /* the line that failed adds to a list */
  PROGRAM_R_LIMIT = 1 << 17,    /* R reached its own limit on vectors … */
  PROGRAM_R_SET = 1 << 18,      /* … which mem.maxVSize() sets: R 4.2 and newer */
  PROGRAM_ARRAY_MOST = 1 << 19, /* MATLAB's preference for the size of one array */
  PROGRAM_OFFLOADS = 1 << 20,   /* Diffusers moves models between RAM and the device already … */
  PROGRAM_SEQUENCES = 1 << 21,  /* … each layer by itself */
  PROGRAM_RETAINS = 1 << 22,    /* backward(retain_graph=True) */
  PROGRAM_CUDA_CALL = 1 << 23,  /* the text quotes a call of the CUDA runtime: a program in C */
  PROGRAM_REPLAYS = 1 << 24,    /* reinforcement learning with a replay buffer */
  PROGRAM_SIDES = 1 << 25,      /* the text names the size of the images */
  PROGRAM_LEAKS = 1 << 26,      /* the text speaks of a leak */
  PROGRAM_DLIB = 1 << 27,
  PROGRAM_NCCL_DEVICES = 1 << 28, /* NCCL's lines name a second device: each rank has its own */
  PROGRAM_UNSLOTH = 1 << 29,
  PROGRAM_SDNEXT = 1 << 30,
};
/* Not in the enum: an int has no more bits. */
#define PROGRAM_TGI     (UINT64_C(1) << 33) /* text-generation-inference */
#define PROGRAM_RELOADS (UINT64_C(1) << 34) /* an optimizer's saved state was being loaded */
/* A trainer that evaluates without gradients. */
#define PROGRAM_EVALUATES   (UINT64_C(1) << 35)
#define PROGRAM_MXNET       (UINT64_C(1) << 36)
#define PROGRAM_TAICHI      (UINT64_C(1) << 37) /* a simulation on Taichi … */
#define PROGRAM_TAICHI_SIZE (UINT64_C(1) << 38) /* … whose text names the size that it takes */
#define PROGRAM_RAY_DATA    (UINT64_C(1) << 39)
#define PROGRAM_SPARSE      (UINT64_C(1) << 40) /* R made a sparse matrix dense */
#define PROGRAM_PAIRS       (UINT64_C(1) << 41) /* the line makes a table of all pairs of rows */
#define PROGRAM_WORKERS     (UINT64_C(1) << 32) /* the text names several workers of a loader */
#define PROGRAM_MANAGED     (UINT64_C(1) << 31) /* bitsandbytes asked for managed memory */

/* What limits host memory: each has its own way to raise the limit. */
typedef enum context_service {
  SERVICE_NONE = 0,
  /* batch systems */
  SERVICE_SLURM,
  SERVICE_PBS,
  SERVICE_LSF,
  SERVICE_SGE, /* Grid Engine */
  SERVICE_CONDOR,
  /* containers, and services that run them */
  SERVICE_KUBERNETES,
  SERVICE_DOCKER,
  SERVICE_PODMAN,
  SERVICE_LXC, /* Proxmox, LXD, Incus */
  SERVICE_SYSTEMD,
  SERVICE_LAMBDA,
  SERVICE_ECS, /* Amazon ECS or AWS Batch */
  SERVICE_CLOUD_RUN,
  SERVICE_APP_ENGINE,
  SERVICE_HEROKU,
  SERVICE_COUNT
} context_service;

/* From this build of llama.cpp on, -fa takes a value: on, off or auto (August 2025). */
#define LLAMA_FA_VALUE 6325

/* What a line of a loop adds to a list or a sum, with the graph that made it. */
typedef enum context_kept {
  KEPT_NONE = 0,
  KEPT_RESULT, /* "feats.append(model(x))" */
  KEPT_LOSS,   /* "losses.append(loss)" … */
  KEPT_SUM,    /* … and "total_loss += loss" */
} context_kept;

#define CONTEXT_BIT(name) (UINT64_C(1) << CONTEXT_INDEX_##name)

typedef struct context {
  uint64_t seen;                 /* CONTEXT_BIT(…) */
  uint64_t traits;               /* TRAIT_… */
  uint64_t programs;             /* PROGRAM_… */
  uint16_t torch_from, torch_to; /* 104 for 1.4, 201 for 2.1; 0 and UINT16_MAX: unknown */
  char line[160];                /* the user's own line: "train.py:157 in evaluate"; "": unknown */
  char code[160];                /* its text, "" unknown */
  char script[64];               /* the file of the outermost frame, "" unknown */
  context_service scheduler;     /* the batch system that the text shows … */
  context_service container;     /* … and what runs its container */
  char unit[64];                 /* the container or unit whose limit was reached; "": unknown */
  char growth[80];               /* what grows: "mem_gb from 8.1 to 37 in 5 lines" */
  uint32_t batch;                /* a batch size that the text names; 0: unknown */
  uint32_t parallel;             /* devices that share one model already; 0: unknown */
  uint32_t llama_build;          /* the number of llama.cpp's build; 0: unknown */
  uint32_t llama_step;           /* the tokens of one of its steps (-ub); 0: unknown */
  context_kept kept;             /* a line that keeps the graph of every pass … */
  char kept_code[160];           /* … its text … */
  char kept_line[160];           /* … and its place, "": unknown */
} context;

/* Fills `c` from `text`, a cleaned text; `raw` is the text before that. */
void context_read(context *c, scan_text text, scan_text raw);
/* Adds what the source of a notebook's cell shows: a batch, no_grad, a line that keeps graphs. */
void context_read_source(context *c, scan_text source);
/* Returns the smallest batch size below `batch` that the text names, or 0 if it names none. */
uint32_t context_smaller_batch(scan_text t, uint32_t batch);
static inline bool context_has(const context *c, uint64_t marks) {
  return (c->seen & marks) == marks;
}
static inline bool context_any(const context *c, uint64_t marks) {
  return (c->seen & marks) != 0;
}
/* Returns "in the backward pass", …; "" if the phase is unknown. */
const char *context_phase(const context *c);

#endif
