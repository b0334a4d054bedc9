/* Run environment: sets the variables that frameworks read, for the command to be started. Used by
 * `stowage run`. */
#ifndef CLI_RUN_ENVIRONMENT_H
#define CLI_RUN_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#include <stowage/status.h>

/* Adds expandable segments to PYTORCH_ALLOC_CONF and its older name PYTORCH_CUDA_ALLOC_CONF. Keeps
 * their other settings. Changes nothing if one of them already mentions expandable segments or
 * selects another allocator. */
stow_status run_environment_torch(void);

/* Sets XLA_FLAGS if it is unset, so that the shim can add to it when a JAX is loaded that knows our
 * flags (shim/xla_settings.c). */
stow_status run_environment_xla(void);

/* Lets programs start that were built with gcc's AddressSanitizer. Its runtime refuses to run if
 * another library is loaded first, and a preloaded library is. The user's own options win. */
stow_status run_environment_sanitizer(void);

/* Whether launches are recorded. */
stow_status run_environment_touches(bool on);

/* Sets the number of worker threads of OpenMP and the BLAS libraries. */
stow_status run_environment_threads(uint64_t threads);

/* Sets how much of Python's stacks is recorded: "auto" (NULL), "off" or "python". STOW_ERR_INVALID
 * for anything else. */
stow_status run_environment_stacks(const char *which);

#endif
