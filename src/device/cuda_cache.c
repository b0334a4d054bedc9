/* Cuda cache: reads and writes the cached probe results. */
#include "device/cuda_cache.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cache.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/newfile.h"
#include "base/variables.h"
#include "device/cuda_device_id.h"

#define HEAD      "stowage host-tier 1\n"
#define FILE_MAX  (64u << 10)
#define LINES_MAX 64 /* keeps the newest */
#define DAY_S     UINT64_C(86400)
#define NAME      "host-tier"

/* ---- the key ---- */

static void add_file(buffer *text, const char *path, const char *only_line) {
  FILE *in = fopen(path, "re");
  if (in == NULL) return;
  char line[1024];
  for (int i = 0; i < 128 && fgets(line, sizeof line, in) != NULL; i++)
    if (only_line == NULL || strncmp(line, only_line, strlen(only_line)) == 0)
      buffer_text(text, line);
  fclose(in);
}

void cuda_cache_key(char key[CUDA_CACHE_KEY_MAX], const cuda_driver *driver, cu_device device) {
  buffer text = BUFFER_BOUNDED(FILE_MAX);
  char uuid[CUDA_UUID_MAX], host[256] = "";
  cuda_device_uuid(uuid, driver, device);
  gethostname(host, sizeof host - 1);
  const char *library = secure_getenv(ENV_LIBCUDA);
  buffer_printf(&text, "driver %d %s\n", driver->version, library != NULL ? library : "");
  add_file(&text, "/sys/module/nvidia/version",
           NULL); /* 580.95.05: changes within one CUDA version */
  buffer_printf(&text, "card %s\nhost %s\n", uuid, host);
  /* The container's permissions: a profile or missing rights can block memory calls. */
  add_file(&text, "/proc/self/cgroup", NULL);
  add_file(&text, "/proc/self/status", "CapEff:");
  add_file(&text, "/proc/self/status", "Seccomp:");
  const char *bytes = text.data != NULL ? text.data : "";
  snprintf(key, CUDA_CACHE_KEY_MAX, "%016" PRIx64 "%016" PRIx64,
           hash_bytes(bytes, text.length, UINT64_C(0x73746f7761676531)),
           hash_bytes(bytes, text.length, UINT64_C(0x686f737474696572)));
  buffer_free(&text);
}

/* ---- the file ---- */

static bool read_file(buffer *text, const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  struct stat info;
  bool good = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
              info.st_size > 0 && info.st_size <= (off_t)FILE_MAX;
  if (good) {
    size_t size = (size_t)info.st_size;
    char *to = buffer_extend(text, size);
    good = to != NULL && read(fd, to, size) == (ssize_t)size && memchr(to, '\0', size) == NULL;
  }
  close(fd);
  return good && strncmp(text->data, HEAD, strlen(HEAD)) == 0;
}

/* Parses one line into a result; false if any part is invalid. */
static bool read_line(cuda_probe *probe, const char *line, size_t length, const char *key) {
  char text[CUDA_PROBE_REASON_MAX + 128];
  size_t key_length = strlen(key);
  if (length <= key_length + 1 || length >= sizeof text) return false;
  if (memcmp(line, key, key_length) != 0 || line[key_length] != ' ') return false;
  memcpy(text, line, length);
  text[length] = '\0';
  char *seconds_text = text + key_length + 1, *backing, *node_text, *reason;
  uint64_t seconds = strtoull(seconds_text, &backing, 10);
  if (backing == seconds_text || *backing != ' ') return false;
  node_text = strchr(++backing, ' ');
  if (node_text == NULL) return false;
  *node_text++ = '\0';
  long node = strtol(node_text, &reason, 10);
  if (reason == node_text || *reason != ' ' || node < -1 || node > 4096) return false;
  stow_host_backing which = STOW_HOST_NONE;
  while (which <= STOW_HOST_NUMA && strcmp(backing, cuda_backing_name(which)) != 0) which++;
  if (which > STOW_HOST_NUMA || (which == STOW_HOST_NUMA) != (node >= 0)) return false;
  *probe =
      (cuda_probe){.backing = which, .numa_node = (int)node, .from_cache = true, .certain = true};
  snprintf(probe->reason, sizeof probe->reason, "%s", reason + 1);
  uint64_t now = clock_wall_ns() / 1000000000;
  return which >= STOW_HOST_LOCATION || (seconds <= now && now - seconds < DAY_S);
}

bool cuda_cache_read(cuda_probe *probe, const char *key) {
  char path[PATH_MAX];
  buffer text = BUFFER_BOUNDED(FILE_MAX);
  bool found = false;
  if (cache_path(path, NAME, false) && read_file(&text, path)) {
    for (const char *line = text.data + strlen(HEAD); *line != '\0' && !found;) {
      const char *end = strchrnul(line, '\n');
      /* A last line without a line end was truncated: ignored. */
      found = *end == '\n' && read_line(probe, line, (size_t)(end - line), key);
      line = *end == '\n' ? end + 1 : end;
    }
  }
  buffer_free(&text);
  return found;
}

/* Writes the new line first, then the old ones with other keys, as many as fit. */
static void compose(buffer *out, const cuda_probe *probe, const char *key, const buffer *old) {
  buffer_printf(out, HEAD "%s %" PRIu64 " %s %d ", key, clock_wall_ns() / 1000000000,
                cuda_backing_name(probe->backing), probe->numa_node);
  for (const char *at = probe->reason; *at != '\0'; at++)
    buffer_char(out, (unsigned char)*at < ' ' ? ' ' : *at);
  buffer_char(out, '\n');
  if (old->data == NULL) return;
  int lines = 1;
  for (const char *line = old->data + strlen(HEAD); *line != '\0' && lines < LINES_MAX;) {
    const char *end = strchr(line, '\n');
    if (end == NULL) return;
    if (strncmp(line, key, strlen(key)) != 0 &&
        out->length + (size_t)(end + 1 - line) <= FILE_MAX) {
      buffer_append(out, line, (size_t)(end + 1 - line));
      lines++;
    }
    line = end + 1;
  }
}

void cuda_cache_write(const cuda_probe *probe, const char *key) {
  char path[PATH_MAX];
  if (!cache_path(path, NAME, true)) return;
  buffer old = BUFFER_BOUNDED(FILE_MAX), text = BUFFER_BOUNDED(2 * FILE_MAX);
  if (!read_file(&old, path)) buffer_free(&old);
  compose(&text, probe, key, &old);
  if (text.status == STOW_OK) (void)newfile_write(path, text.data, text.length);
  buffer_free(&old);
  buffer_free(&text);
}
