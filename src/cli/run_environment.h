/* Run environment: the variables that frameworks read, set for the command to come. Used by
 * `stowage run`. */
#ifndef CLI_RUN_ENVIRONMENT_H
#define CLI_RUN_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#include <stowage/status.h>

/* PyTorch's expandable segments in PYTORCH_ALLOC_CONF and its older name PYTORCH_CUDA_ALLOC_CONF,
 * each kept with what it says already, unless one of them says something about them or chooses
 * another allocator. */
stow_status run_environment_torch(void);

/* XLA_FLAGS exists, so that the shim can add to it when a JAX is loaded that knows the flag
 * (shim/xla_settings.c). */
stow_status run_environment_xla(void);

/* Whether launches are recorded. */
stow_status run_environment_touches(bool on);

/* The worker threads of OpenMP and of the BLAS libraries. */
stow_status run_environment_threads(uint64_t threads);

/* How much of Python's lines is recorded: "auto" (NULL), "off" or "python"; STOW_ERR_INVALID for
 * anything else. */
stow_status run_environment_stacks(const char *which);

#endif
