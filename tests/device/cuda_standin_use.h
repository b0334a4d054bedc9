/* Opens a device of the stand-in driver in a test: its environment and its controls. */
#ifndef CUDA_STANDIN_USE_H
#define CUDA_STANDIN_USE_H

#include <dlfcn.h>
#include <stdlib.h>

#include "device/device.h"
#include "harness.h"

#define STANDIN_CUDA    STOW_BUILD_DIR "/tests/standin/libcuda.so.1"
#define STANDIN_COMMAND STOW_BUILD_DIR "/tests/standin/probe_command"
#define MIB             (UINT64_C(1) << 20)
#define PAGE            (2 * MIB)

/* Makes the stand-in the driver of this process; its probe results are cached in a folder of the
 * test. */
static inline void standin_use(void) {
  setenv("STOWAGE_LIBCUDA", STANDIN_CUDA, 1);
  setenv("STOWAGE_COMMAND", STANDIN_COMMAND, 1);
  setenv("XDG_CACHE_HOME", harness_folder(), 1);
}

static inline stow_device *standin_open(const char *name) {
  stow_device *d;
  standin_use();
  CHECK_OK(cuda_open(&d, name));
  return d;
}

static inline void *standin_symbol(const char *name) {
  void *library = dlopen(STANDIN_CUDA, RTLD_NOW | RTLD_NOLOAD);
  if (library == NULL) library = dlopen(STANDIN_CUDA, RTLD_NOW);
  if (library == NULL) FAIL("no stand-in: %s", dlerror());
  void *symbol = dlsym(library, name);
  if (symbol == NULL) FAIL("the stand-in has no %s", name);
  return symbol;
}

/* Calls one of the knobs of cuda_standin.h. */
#define KNOB(type, name, arguments) ((type)(uintptr_t)standin_symbol(name)) arguments
#define STANDIN_DEPTH()             KNOB(int (*)(void), "standin_depth", ())
#define STANDIN_CAPTURE()           KNOB(int (*)(void), "standin_capture_mode", ())
#define STANDIN_LIVE()              KNOB(int (*)(void), "standin_live", ())
#define STANDIN_CALLS(name)         KNOB(int (*)(const char *), "standin_calls", (name))
#define STANDIN_HOLD(on)            KNOB(void (*)(int), "standin_hold", (on))
#define STANDIN_FAIL(f, c, n)       KNOB(void (*)(const char *, int, int), "standin_fail", (f, c, n))

#endif
