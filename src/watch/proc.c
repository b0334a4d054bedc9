/* Proc: reads small files completely, within a size limit. */
#include "watch/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cpu.h"

#define FILE_MAX (1u << 20)

stow_status proc_read(buffer *text, const char *root, const char *path) {
  char whole[PATH_MAX];
  buffer_clear(text);
  snprintf(whole, sizeof whole, "%s%s", root, path);
  int fd = open(whole, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return stow_fail(errno == ENOENT || errno == ENOTDIR ? STOW_ERR_NOT_FOUND : STOW_ERR_IO,
                     "%s: %s", whole, strerror(errno));
  char part[4096];
  ssize_t got;
  while ((got = read(fd, part, sizeof part)) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || text->length + (size_t)got > FILE_MAX) {
      int why = got < 0 ? errno : EFBIG;
      close(fd);
      return stow_fail(STOW_ERR_IO, "%s: %s", whole, strerror(why));
    }
    buffer_append(text, part, (size_t)got);
  }
  close(fd);
  if (text->data == NULL) buffer_append(text, "", 0); /* an empty file is an empty text */
  return text->status;
}

stow_status proc_number(uint64_t *number, const char *root, const char *path) {
  buffer text = BUFFER_INIT;
  stow_status status = proc_read(&text, root, path);
  if (status == STOW_OK) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text.data, &end, 10);
    if (end == text.data || text.data[0] == '-' || errno != 0)
      status = stow_fail(STOW_ERR_FORMAT, "%s%s: \"%.40s\" is not a number", root, path, text.data);
    else
      *number = value;
  }
  buffer_free(&text);
  return status;
}

/* Parses "MemTotal:       24625580 kB" to bytes; 0 if there is no such line. */
static uint64_t meminfo_bytes(const char *text, const char *name) {
  size_t length = strlen(name);
  for (const char *line = text; line != NULL && *line != '\0';) {
    if (strncmp(line, name, length) == 0 && line[length] == ':')
      return strtoull(line + length + 1, NULL, 10) * 1024;
    line = strchr(line, '\n');
    if (line != NULL) line++;
  }
  return 0;
}

/* Counts a CPU list: "0-1,4" is 3. */
static int list_count(const char *list) {
  int count = 0;
  while (*list >= '0' && *list <= '9') {
    char *end;
    long first = strtol(list, &end, 10), last = first;
    if (*end == '-') last = strtol(end + 1, &end, 10);
    if (last < first || last - first > 65535) return 0;
    count += (int)(last - first) + 1;
    list = *end == ',' ? end + 1 : end;
  }
  return count;
}

void host_read(host_facts *facts, const char *root) {
  *facts = (host_facts){0};
  struct utsname name;
  if (uname(&name) == 0) {
    snprintf(facts->system, sizeof facts->system, "%.16s %.60s", name.sysname, name.release);
    snprintf(facts->machine, sizeof facts->machine, "%.31s", name.machine);
  }
  facts->cpus = cpu_count();
  buffer text = BUFFER_INIT;
  if (proc_read(&text, root, "/sys/devices/system/node/has_memory") == STOW_OK)
    facts->numa_nodes = list_count(text.data);
  if (proc_read(&text, root, "/proc/meminfo") == STOW_OK) {
    facts->swap_bytes = meminfo_bytes(text.data, "SwapTotal");
    facts->swap_free_bytes = meminfo_bytes(text.data, "SwapFree");
  }
  buffer_free(&text);
}
