/* Hostmem: /proc/meminfo and the memory controller of cgroup v1 or v2.
 *
 * /proc/self/cgroup names the group of the process; /proc/self/mountinfo shows where that tree is
 * mounted. Any level can have a limit, so each level from the process's own group up to the mount
 * point is read; the one with the least memory left counts. */
#include "base/hostmem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"

/* Mountinfo of a machine with thousands of containers is under 1 MiB. */
#define FILE_MAX (4u << 20)
#define KEEP_MAX (UINT64_C(1) << 30)

/* The file names of cgroup v1 or v2. */
typedef struct controller {
  int version;
  const char *limit, *usage;
  const char *cache; /* key in memory.stat for file cache that is reclaimed first */
  const char *kills; /* file that counts killed processes */
} controller;

static const controller CONTROLLERS[2] = {
    {1, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
     "memory.oom_control"},
    {2, "memory.max", "memory.current", "inactive_file ", "memory.events"},
};

/* Returns the bytes to reserve for the kernel and other programs: a sixteenth of `total_bytes`, at
 * most 1 GiB. Pinned pages can be neither swapped nor moved; filling a machine to the last byte
 * with them triggers the OOM killer. */
static uint64_t left_alone(uint64_t total_bytes) {
  uint64_t part = total_bytes / 16;
  return part < KEEP_MAX ? part : KEEP_MAX;
}

/* Reads a small file as text. */
static bool read_text(buffer *out, const char *path) {
  buffer_clear(out);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t got;
  char chunk[4096];
  while ((got = read(fd, chunk, sizeof chunk)) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || buffer_append(out, chunk, (size_t)got) != STOW_OK) break;
  }
  close(fd);
  return got == 0 && out->length > 0;
}

/* Finds the line that begins with `word` and returns the number after it. */
static bool find_number(const buffer *text, const char *word, uint64_t *value) {
  size_t length = strlen(word);
  for (const char *line = text->data; line != NULL && *line != '\0';) {
    if (strncmp(line, word, length) == 0) {
      char *end;
      errno = 0;
      unsigned long long n = strtoull(line + length, &end, 10);
      if (end == line + length || errno != 0) return false;
      *value = n;
      return true;
    }
    line = strchr(line, '\n');
    if (line != NULL) line++;
  }
  return false;
}

static bool read_meminfo(hostmem *m, buffer *text, const char *root) {
  char path[HOSTMEM_CGROUP_MAX];
  snprintf(path, sizeof path, "%s/proc/meminfo", root);
  uint64_t total_kib, available_kib;
  if (!read_text(text, path) || !find_number(text, "MemTotal:", &total_kib)) return false;
  if (!find_number(text, "MemAvailable:", &available_kib) &&
      !find_number(text, "MemFree:", &available_kib)) /* kernels before 3.14 */
    return false;
  if (total_kib > UINT64_MAX / 1024) return false;
  if (available_kib > total_kib) available_kib = total_kib;
  m->machine_total_bytes = total_kib * 1024;
  m->machine_available_bytes = available_kib * 1024;
  return true;
}

/* Returns true if `list` (words between commas) contains `word`. */
static bool list_holds(const char *list, size_t length, const char *word) {
  size_t want = strlen(word);
  for (const char *end = list + length; list < end;) {
    const char *comma = memchr(list, ',', (size_t)(end - list));
    size_t size = (size_t)((comma != NULL ? comma : end) - list);
    if (size == want && memcmp(list, word, want) == 0) return true;
    list += size + 1;
  }
  return false;
}

/* Finds the process's group in the v1 memory hierarchy ("4:memory:/a/b") or in the unified one
 * ("0::/a/b"). If both exist (hybrid), v1 controls memory if it lists the memory controller. */
static int find_group(const buffer *text, char group[HOSTMEM_CGROUP_MAX]) {
  int version = 0;
  for (const char *line = text->data; line != NULL && *line != '\0';) {
    const char *end = strchrnul(line, '\n');
    const char *list = memchr(line, ':', (size_t)(end - line));
    const char *path = list == NULL ? NULL : memchr(list + 1, ':', (size_t)(end - list - 1));
    if (path != NULL) {
      size_t words = (size_t)(path - list - 1), length = (size_t)(end - path - 1);
      bool v1 = list_holds(list + 1, words, "memory");
      if ((v1 || (words == 0 && version == 0)) && length < HOSTMEM_CGROUP_MAX) {
        memcpy(group, path + 1, length);
        group[length] = '\0';
        version = v1 ? 1 : 2;
      }
    }
    line = *end == '\0' ? NULL : end + 1;
  }
  return version;
}

/* Decodes the octal escapes of mountinfo ("\040" for a space) in place. */
static void unescape(char *text) {
  char *to = text;
  for (const char *at = text; *at != '\0'; to++) {
    if (at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' && at[2] <= '7' &&
        at[3] >= '0' && at[3] <= '7') {
      *to = (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0'));
      at += 4;
    } else
      *to = *at++;
  }
  *to = '\0';
}

/* Parses one line of mountinfo: "36 35 98:0 /root /where rw,noatime shared:1 - cgroup2 cgroup
 * rw,memory".
 */
static bool mount_matches(char *line, int version, char **root, char **where) {
  char *dash = strstr(line, " - ");
  if (dash == NULL) return false;
  *dash = '\0';
  char *save = NULL, *fields[5] = {NULL};
  char *word = strtok_r(line, " ", &save);
  for (int i = 0; i < 5 && word != NULL; i++, word = strtok_r(NULL, " ", &save)) fields[i] = word;
  char *kind = strtok_r(dash + 3, " ", &save);
  char *source = strtok_r(NULL, " ", &save), *options = strtok_r(NULL, " ", &save);
  if (fields[4] == NULL || kind == NULL || source == NULL) return false;
  bool right = version == 2 ? strcmp(kind, "cgroup2") == 0
                            : strcmp(kind, "cgroup") == 0 && options != NULL &&
                                  list_holds(options, strlen(options), "memory");
  if (!right) return false;
  unescape(fields[3]);
  unescape(fields[4]);
  *root = fields[3];
  *where = fields[4];
  return true;
}

/* Finds the folder of the process's group, and the folder above it at which to stop. A container
 * often sees only its own group, mounted as the root: then the mount point is the group.
 */
static bool find_folder(buffer *mounts, int version, const char *group, const char *prefix,
                        char folder[HOSTMEM_CGROUP_MAX * 2], size_t *stop) {
  char *save = NULL;
  for (char *line = strtok_r(mounts->data, "\n", &save); line != NULL;
       line = strtok_r(NULL, "\n", &save)) {
    char *root, *where;
    if (!mount_matches(line, version, &root, &where)) continue;
    size_t size = strcmp(root, "/") == 0 ? 0 : strlen(root);
    const char *rest = "";
    if (strncmp(group, root, size) == 0 && (group[size] == '/' || group[size] == '\0') &&
        strstr(group, "/..") == NULL)
      rest = strcmp(group + size, "/") == 0 ? "" : group + size;
    int start = snprintf(folder, HOSTMEM_CGROUP_MAX * 2, "%s%s", prefix, where);
    if (start < 0 || (size_t)start + strlen(rest) >= HOSTMEM_CGROUP_MAX * 2) return false;
    *stop = (size_t)start;
    memcpy(folder + start, rest, strlen(rest) + 1);
    return true;
  }
  return false;
}

static bool read_file_number(buffer *text, const char *folder, const char *name, uint64_t *value) {
  char path[HOSTMEM_CGROUP_MAX * 3];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return read_text(text, path) && find_number(text, "", value);
}

/* Reads one level. Keeps its limit if it leaves less memory than the levels before. */
static void read_level(hostmem *m, buffer *text, const controller *c, const char *folder) {
  uint64_t limit, used, cache = 0;
  /* "max" (v2) is not a number, so there is no limit; v1 writes a huge number instead. */
  if (!read_file_number(text, folder, c->limit, &limit) || limit >= m->machine_total_bytes) return;
  if (!read_file_number(text, folder, c->usage, &used)) used = 0;
  char path[HOSTMEM_CGROUP_MAX * 3];
  snprintf(path, sizeof path, "%s/memory.stat", folder);
  if (read_text(text, path) && find_number(text, c->cache, &cache))
    used = used > cache ? used - cache : 0;
  uint64_t left = limit > used ? limit - used : 0;
  uint64_t least =
      m->limited && m->limit_bytes > m->limit_used_bytes ? m->limit_bytes - m->limit_used_bytes : 0;
  if (limit < m->total_bytes) m->total_bytes = limit;
  if (m->limited && left >= least) return;
  m->limited = true;
  m->limit_bytes = limit;
  m->limit_used_bytes = used;
  m->limit_cache_bytes = cache;
  snprintf(m->limited_by, sizeof m->limited_by, "%.*s", HOSTMEM_CGROUP_MAX - 1, folder);
}

/* Returns the process's own group and its folder, from find_folder; NULL if none can be read. */
static const controller *own_group(buffer *text, const char *prefix, char group[HOSTMEM_CGROUP_MAX],
                                   char folder[HOSTMEM_CGROUP_MAX * 2], size_t *stop) {
  char path[HOSTMEM_CGROUP_MAX];
  snprintf(path, sizeof path, "%s/proc/self/cgroup", prefix);
  int version = read_text(text, path) ? find_group(text, group) : 0;
  if (version == 0) return NULL;
  snprintf(path, sizeof path, "%s/proc/self/mountinfo", prefix);
  if (!read_text(text, path) || !find_folder(text, version, group, prefix, folder, stop))
    return NULL;
  return &CONTROLLERS[version - 1];
}

static void read_cgroup(hostmem *m, buffer *text, const char *prefix) {
  char folder[HOSTMEM_CGROUP_MAX * 2];
  size_t stop;
  const controller *c = own_group(text, prefix, m->cgroup, folder, &stop);
  if (c == NULL) return;
  m->cgroup_version = c->version;
  for (;;) {
    read_level(m, text, c, folder);
    char *slash = strrchr(folder, '/');
    if (slash == NULL || slash < folder + stop) return;
    *slash = '\0';
  }
}

stow_status hostmem_read_under(hostmem *m, const char *root) {
  *m = (hostmem){0};
  buffer text = BUFFER_BOUNDED(FILE_MAX);
  if (!read_meminfo(m, &text, root)) {
    buffer_free(&text);
    return stow_fail(STOW_ERR_IO,
                     "host memory: cannot read %s/proc/meminfo, so free memory is unknown; is "
                     "/proc mounted?",
                     root);
  }
  m->total_bytes = m->machine_total_bytes;
  read_cgroup(m, &text, root);
  buffer_free(&text);
  uint64_t left = m->machine_available_bytes;
  if (m->limited) {
    uint64_t under =
        m->limit_bytes > m->limit_used_bytes ? m->limit_bytes - m->limit_used_bytes : 0;
    if (under < left) left = under;
  }
  uint64_t keep = left_alone(m->total_bytes);
  m->usable_bytes = left > keep ? left - keep : 0;
  return STOW_OK;
}

stow_status hostmem_read(hostmem *m) {
  return hostmem_read_under(m, "");
}

uint64_t hostmem_kills_under(const char *root) {
  buffer text = BUFFER_BOUNDED(FILE_MAX);
  char group[HOSTMEM_CGROUP_MAX], folder[HOSTMEM_CGROUP_MAX * 2], path[HOSTMEM_CGROUP_MAX * 3];
  size_t stop;
  uint64_t kills = 0;
  const controller *c = own_group(&text, root, group, folder, &stop);
  if (c != NULL) snprintf(path, sizeof path, "%s/%s", folder, c->kills);
  /* The root group has no such count, and kernels before 4.13 have none at all. */
  if (c == NULL || !read_text(&text, path) || !find_number(&text, "oom_kill ", &kills)) {
    snprintf(path, sizeof path, "%s/proc/vmstat", root);
    if (!read_text(&text, path) || !find_number(&text, "oom_kill ", &kills)) kills = 0;
  }
  buffer_free(&text);
  return kills;
}

uint64_t hostmem_kills(void) {
  return hostmem_kills_under("");
}
