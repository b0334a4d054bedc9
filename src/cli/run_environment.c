/* Run environment: adds to the user's settings and never overrides them. */
#include "cli/run_environment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/variables.h"
#include "run/protocol.h"

static const char *const TORCH_NAMES[] = {ENV_TORCH_CONF, ENV_TORCH_CONF_OLD};

static stow_status set(const char *name, const char *value) {
  if (setenv(name, value, 1) == 0) return STOW_OK;
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the environment");
}

stow_status run_environment_torch(void) {
  const char *said = NULL;
  for (int i = 0; i < 2; i++) {
    const char *text = getenv(TORCH_NAMES[i]);
    if (text == NULL || text[0] == '\0') continue;
    if (strstr(text, "expandable_segments") != NULL || strstr(text, "backend:") != NULL)
      return STOW_OK;
    if (said == NULL) said = text;
  }
  /* A PyTorch version may read only one of the two variables, so both get the same value. */
  buffer merged = BUFFER_INIT;
  if (said != NULL) buffer_printf(&merged, "%s,", said);
  buffer_text(&merged, RUN_TORCH_SETTING);
  stow_status status = merged.status;
  for (int i = 0; i < 2 && status == STOW_OK; i++) status = set(TORCH_NAMES[i], merged.data);
  /* A version that does not know the setting would fail; the shim removes it there. */
  if (status == STOW_OK) status = set(ENV_TORCH_SET, "1");
  buffer_free(&merged);
  return status;
}

stow_status run_environment_xla(void) {
  if (setenv(ENV_XLA_FLAGS, "", 0) != 0)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the environment");
  return set(ENV_XLA_SET, "1");
}

stow_status run_environment_sanitizer(void) {
  const char *said = getenv("ASAN_OPTIONS");
  buffer merged = BUFFER_INIT;
  buffer_text(&merged, "verify_asan_link_order=0");
  if (said != NULL && said[0] != '\0') buffer_printf(&merged, ":%s", said);
  stow_status status = merged.status;
  if (status == STOW_OK) status = set("ASAN_OPTIONS", merged.data);
  buffer_free(&merged);
  return status;
}

stow_status run_environment_touches(bool on) {
  if (on) STOW_TRY(run_environment_xla());
  return set(ENV_TOUCHES, on ? "1" : "0");
}

stow_status run_environment_stacks(const char *which) {
  if (which == NULL) which = "auto";
  if (strcmp(which, "auto") != 0 && strcmp(which, "off") != 0)
    return stow_fail(STOW_ERR_INVALID, "--stacks \"%.40s\": must be auto or off", which);
  return set(ENV_STACKS, which);
}

stow_status run_environment_threads(uint64_t threads) {
  static const char *const NAMES[] = {
      "OMP_NUM_THREADS",     "MKL_NUM_THREADS",        "OPENBLAS_NUM_THREADS",
      "BLIS_NUM_THREADS",    "VECLIB_MAXIMUM_THREADS", "NUMEXPR_MAX_THREADS",
      "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS",      "RAYON_NUM_THREADS",
      "POLARS_MAX_THREADS",  "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"};
  char number[24];
  snprintf(number, sizeof number, "%" PRIu64, threads);
  for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) STOW_TRY(set(NAMES[i], number));
  return STOW_OK;
}
