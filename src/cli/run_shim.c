/* Run shim: the location of the library, and the environment that loads it. */
#include "cli/run_shim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/variables.h"
#include "device/cuda_path.h"

#define SHIM    "libstowage-shim.so"
#define ALIAS   "libstowage-shim-alias.so"
#define HOST    "libstowage-host.so"
#define PROFILE "libstowage-profile.so"
#define NVML    "libstowage-shim-nvml.so"

/* Relative to the command's own folder: in the build folder, then as installed. */
static const char *const PLACES[] = {SHIM, "../" STOW_LIBDIR "/stowage/" SHIM,
                                     "../lib/stowage/" SHIM, "../lib64/stowage/" SHIM};

stow_status run_shim_find(char path[PATH_MAX]) {
  const char *named = getenv(ENV_SHIM);
  if (named != NULL && named[0] != '\0') {
    if (realpath(named, path) != NULL) return STOW_OK;
    return stow_fail(STOW_ERR_NOT_FOUND, ENV_SHIM " names \"%.200s\": %s", named, strerror(errno));
  }
  char self[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0)
    return stow_fail(STOW_ERR_IO,
                     "/proc/self/exe cannot be read; set " ENV_SHIM " to where " SHIM " is");
  self[length] = '\0';
  *strrchr(self, '/') = '\0';
  for (size_t i = 0; i < sizeof PLACES / sizeof PLACES[0]; i++) {
    char place[2 * PATH_MAX];
    snprintf(place, sizeof place, "%s/%s", self, PLACES[i]);
    if (realpath(place, path) != NULL) return STOW_OK;
  }
  return stow_fail(STOW_ERR_NOT_FOUND,
                   "no " SHIM " beside %.200s nor in ../" STOW_LIBDIR
                   "/stowage; install Stowage whole, or set " ENV_SHIM,
                   self);
}

static bool keep_first(void *user, const char *path) {
  snprintf(user, PATH_MAX, "%s", path);
  return true;
}

static bool has_nvml(void) {
  char path[PATH_MAX];
  const char *named = getenv(ENV_LIBNVML);
  return (named != NULL && named[0] != '\0') ||
         cuda_path_beside("libnvidia-ml.so.1", keep_first, path);
}

/* Adds a library from the shim's folder, if it exists. */
static void add_beside(buffer *list, const char *shim, const char *name) {
  char path[2 * PATH_MAX];
  snprintf(path, sizeof path, "%.*s/%s", (int)(strrchr(shim, '/') - shim), shim, name);
  if (access(path, R_OK) == 0) buffer_printf(list, ":%s", path);
}

stow_status run_shim_preload(const char *path, bool nvml) {
  /* The loader splits LD_PRELOAD at both characters and has no way to quote them. */
  if (strpbrk(path, ": \t") != NULL)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "the shim's path \"%.200s\" has a space or a colon in it, which LD_PRELOAD "
                     "does not allow; install Stowage in another folder",
                     path);
  const char *before = getenv("LD_PRELOAD");
  buffer list = BUFFER_INIT;
  buffer_text(&list, path);
  add_beside(&list, path, ALIAS);
  if (nvml && has_nvml()) add_beside(&list, path, NVML);
  if (before != NULL && before[0] != '\0') buffer_printf(&list, ":%s", before);
  stow_status status = list.status;
  if (status == STOW_OK && setenv("LD_PRELOAD", list.data, 1) != 0)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the environment");
  buffer_free(&list);
  return status;
}

/* Appends a library from the shim's folder to LD_PRELOAD. */
static bool preload_beside(const char *name) {
  char shim[PATH_MAX];
  const char *before = getenv("LD_PRELOAD");
  buffer list = BUFFER_INIT;
  if (run_shim_find(shim) != STOW_OK || strpbrk(shim, ": \t") != NULL) return false;
  if (before != NULL) buffer_text(&list, before);
  size_t length = list.length;
  add_beside(&list, shim, name);
  bool added = list.status == STOW_OK && list.length > length &&
               setenv("LD_PRELOAD", list.data + (list.data[0] == ':'), 1) ==
                   0 /* add_beside begins with a colon */;
  buffer_free(&list);
  return added;
}

void run_shim_preload_host(void) {
  preload_beside(HOST);
}

stow_status run_shim_preload_profile(void) {
  if (preload_beside(PROFILE)) return STOW_OK;
  return stow_fail(STOW_ERR_NOT_FOUND,
                   "--profile: " PROFILE " is not beside the shim; install Stowage again");
}

/* ---- other libraries ---- */

/* Libraries known to intercept the driver by preloading. */
static const char *const RIVALS[] = {"libvgpu.so", "libcuda-control.so", "libgpushare"};

static const char *rival_in(const char *list) {
  for (size_t i = 0; list != NULL && i < sizeof RIVALS / sizeof RIVALS[0]; i++)
    if (strstr(list, RIVALS[i]) != NULL) return RIVALS[i];
  return NULL;
}

const char *run_shim_rival(void) {
  const char *found = rival_in(getenv("LD_PRELOAD"));
  if (found != NULL) return found;
  char text[4096] = "";
  FILE *file = fopen("/etc/ld.so.preload", "re");
  if (file == NULL) return NULL;
  size_t got = fread(text, 1, sizeof text - 1, file);
  text[got] = '\0';
  fclose(file);
  return rival_in(text);
}

const char *run_shim_driver(void) {
  static char path[PATH_MAX];
  path[0] = '\0';
  cuda_path_each(keep_first, path);
  return path;
}
