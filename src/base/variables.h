/* Variables: the name of every environment variable that Stowage sets or reads.
 *
 * This file is the only place in src/ and python/ that spells them (tests/guards/protocol.sh).
 * tools/run_names makes python/stowage/_run_names.py and the constants of the shim's scripts from
 * it, so keep one #define per line with a plain string. */
#ifndef BASE_VARIABLES_H
#define BASE_VARIABLES_H

/* Set by `stowage run` for the processes of the run. */
#define ENV_RUN         "STOWAGE_RUN"         /* the folder of the run */
#define ENV_LEDGER      "STOWAGE_LEDGER"      /* the run's ledger, a file in that folder */
#define ENV_RECORD      "STOWAGE_RECORD"      /* 1: write a .stow file, not only the ring */
#define ENV_TOUCHES     "STOWAGE_TOUCHES"     /* 1: record launches and what they name */
#define ENV_STACKS      "STOWAGE_STACKS"      /* off: record no Python stacks */
#define ENV_FAST_MALLOC "STOWAGE_FAST_MALLOC" /* 1: serve every plain request from the heap */
#define ENV_COMMAND     "STOWAGE_COMMAND"     /* the stowage command that probes the host tier */
#define ENV_PROFILE     "STOWAGE_PROFILE"     /* the folder of a run with --profile */
#define ENV_TORCH_SET   "STOWAGE_TORCH_SET"   /* 1: `stowage run` set PyTorch's allocator */
#define ENV_XLA_SET     "STOWAGE_XLA_SET"     /* 1: the shim may add to XLA_FLAGS */
#define ENV_WATCH       "STOWAGE_WATCH"       /* the request file of --ram-limit */

/* Settings of PyTorch's allocator and of XLA, which `stowage run --spill` adds to. */
#define ENV_TORCH_CONF     "PYTORCH_ALLOC_CONF"
#define ENV_TORCH_CONF_OLD "PYTORCH_CUDA_ALLOC_CONF" /* before PyTorch 2.9 */

#define ENV_XLA_FLAGS "XLA_FLAGS"

/* Where libraries and devices are found. */
#define ENV_DEVICE       "STOWAGE_DEVICE"      /* device that a NULL name opens */
#define ENV_LIBCUDA      "STOWAGE_LIBCUDA"     /* path of the CUDA driver */
#define ENV_LIBNVML      "STOWAGE_LIBNVML"     /* path of NVML */
#define ENV_LIBNCURSES   "STOWAGE_LIBNCURSES"  /* path of ncurses */
#define ENV_LIBLZMA      "STOWAGE_LIBLZMA"     /* path of liblzma */
#define ENV_LIBRARY      "STOWAGE_LIBRARY"     /* Python: path of libstowage.so */
#define ENV_SHIM         "STOWAGE_SHIM"        /* path of libstowage-shim.so */
#define ENV_INTERPRETER  "STOWAGE_INTERPRETER" /* the Python that some verbs start */
#define ENV_HDF5_LIBRARY "STOWAGE_HDF5_LIBRARY"
#define ENV_HDF5_SECONDS "STOWAGE_HDF5_SECONDS" /* CPU time that libhdf5 may take for one step */

/* Switches for tests and for finding faults. */
#define ENV_DRIVER_LEVEL       "STOWAGE_DRIVER_LEVEL" /* hide driver functions newer than 12.4 */
#define ENV_KERNELS            "STOWAGE_KERNELS"      /* instruction set of the kernels */
#define ENV_MOVE               "STOWAGE_MOVE"         /* off: never move pages between tiers */
#define ENV_PYTHON             "STOWAGE_PYTHON"       /* off: run no script inside Python */
#define ENV_RETRIES            "STOWAGE_RETRIES" /* 1: every caller retries after out of memory */
#define ENV_SHIM_LOG           "STOWAGE_SHIM_LOG"
#define ENV_SPILL_STOP_SECONDS "STOWAGE_SPILL_STOP_SECONDS"
#define ENV_CHECKPOINT_ITEMS   "STOWAGE_CHECKPOINT_ITEMS"
#define ENV_CHECKPOINT_MS      "STOWAGE_CHECKPOINT_MS"
#define ENV_TEST_WINDOW        "STOWAGE_TEST_WINDOW" /* bytes of an input window */

/* Remote files. */
#define ENV_CACHE         "STOWAGE_CACHE"
#define ENV_HTTP_TIMEOUT  "STOWAGE_HTTP_TIMEOUT"
#define ENV_HTTP_MIN_RATE "STOWAGE_HTTP_MIN_RATE" /* bytes a second that a server must keep */

/* Set by the Python package for itself, across a restart and in numba's plugin. */
#define ENV_PYTHON_LIMITS "STOWAGE_PYTHON_LIMITS"
#define ENV_PYTHON_RAM    "STOWAGE_PYTHON_RAM"
#define ENV_VRAM_LIMIT    "STOWAGE_VRAM_LIMIT"
#define ENV_SPILL         "STOWAGE_SPILL"

#endif
