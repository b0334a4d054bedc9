/* Tree: reads /proc for a process and its descendants. */
#include "watch/tree.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/process.h"

#define PROCESSES_MAX 32768
/* Processes that hold more than this may share pages. */
#define MUCH ((uint64_t)16 << 20)

typedef struct pair {
  pid_t pid, parent;
  bool ours;
} pair;

static FILE *open_of(pid_t pid, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%.40s", (int)pid, name);
  return fopen(path, "re");
}

/* ---- listing processes ---- */

/* Returns the parent of a process; 0 if it is gone. */
static pid_t parent_of(pid_t pid) {
  process p;
  process_read(&p, pid);
  return p.parent;
}

/* Reads the children that each thread of a process lists: the cost depends on the family, not on
 * the machine. Kernels built without this file need a scan of all processes for their parents. */
static size_t list_children(pair *list, size_t count, pid_t pid) {
  char path[96];
  int child;
  snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
  DIR *folder = opendir(path);
  for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    if (!isdigit((unsigned char)entry->d_name[0])) continue;
    snprintf(path, sizeof path, "/proc/%d/task/%.16s/children", (int)pid, entry->d_name);
    FILE *file = fopen(path, "re");
    /* NOLINTNEXTLINE(cert-err34-c): the kernel's numbers */
    while (file != NULL && count < PROCESSES_MAX && fscanf(file, "%d", &child) == 1)
      list[count++] = (pair){child, pid, true};
    if (file != NULL) fclose(file);
  }
  if (folder != NULL) closedir(folder);
  return count;
}

static size_t list_family(pair *list, pid_t root) {
  size_t count = list_children(list, 0, root);
  for (size_t i = 0; i < count; i++) count = list_children(list, count, list[i].pid);
  return count;
}

static bool lists_children(pid_t pid) {
  char path[96];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  return access(path, R_OK) == 0;
}

static size_t list_all(pair *list) {
  DIR *folder = opendir("/proc");
  size_t count = 0;
  for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    if (!isdigit((unsigned char)entry->d_name[0]) || count == PROCESSES_MAX) continue;
    pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
    list[count++] = (pair){pid, parent_of(pid), false};
  }
  if (folder != NULL) closedir(folder);
  return count;
}

static int by_pid(const void *a, const void *b) {
  const pair *one = a, *other = b;
  return one->pid < other->pid ? -1 : one->pid > other->pid;
}

/* Marks every descendant of `root`. */
static void mark(pair *list, size_t count, pid_t root) {
  qsort(list, count, sizeof *list, by_pid);
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < count; i++) {
      if (list[i].ours) continue;
      pair key = {.pid = list[i].parent};
      const pair *parent = bsearch(&key, list, count, sizeof *list, by_pid);
      list[i].ours = list[i].parent == root || (parent != NULL && parent->ours);
      more = more || list[i].ours;
    }
  }
}

/* ---- what it holds ---- */

static uint64_t number_after(const char *line, const char *word) {
  return strncmp(line, word, strlen(word)) == 0 ? strtoull(line + strlen(word), NULL, 10)
                                                : UINT64_MAX;
}

static bool read_status(tree_process *p) {
  char line[256];
  uint64_t kib;
  FILE *file = open_of(p->pid, "status");
  if (file == NULL) return false;
  while (fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, "Name:\t", 6) == 0) {
      line[strcspn(line, "\n")] = '\0';
      snprintf(p->name, sizeof p->name, "%.31s", line + 6);
    } else if ((kib = number_after(line, "RssAnon:")) != UINT64_MAX)
      p->anonymous_bytes = kib * 1024;
    else if ((kib = number_after(line, "RssFile:")) != UINT64_MAX)
      p->file_bytes = kib * 1024;
    else if ((kib = number_after(line, "RssShmem:")) != UINT64_MAX)
      p->shared_bytes = kib * 1024;
  }
  fclose(file);
  p->held_bytes = p->anonymous_bytes + p->shared_bytes;
  return true;
}

uint64_t tree_anonymous_bytes(pid_t pid) {
  char path[64], text[128] = "";
  uint64_t resident = 0, others = 0;
  snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  /* NOLINTNEXTLINE(cert-err34-c): the kernel's numbers */
  if (got <= 0 || sscanf(text, "%*u %" SCNu64 " %" SCNu64, &resident, &others) != 2) return 0;
  return resident > others ? (resident - others) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

uint64_t tree_children_hash(pid_t pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t got = read(fd, text, sizeof text);
  close(fd);
  return got > 0 ? hash_bytes(text, (size_t)got, 0) : 1;
}

static void read_io(tree_process *p) {
  char line[128];
  uint64_t bytes;
  FILE *file = open_of(p->pid, "io");
  if (file == NULL) return;
  while (fgets(line, sizeof line, file) != NULL)
    if ((bytes = number_after(line, "rchar:")) != UINT64_MAX) p->read_bytes = bytes;
  fclose(file);
}

/* Returns the process's share of pages it shares with others; kernels before 5.4 do not report it.
 * A process that has ended leaves its share to the others. */
static void read_share(tree_process *p) {
  char line[256];
  uint64_t kib, sum = 0;
  bool found = false;
  process now;
  FILE *file = open_of(p->pid, "smaps_rollup");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if ((kib = number_after(line, "Pss_Anon:")) != UINT64_MAX ||
        (kib = number_after(line, "Pss_Shmem:")) != UINT64_MAX) {
      sum += kib * 1024;
      found = true;
    }
  if (file != NULL) fclose(file);
  if (found)
    p->held_bytes = sum;
  else if (process_read(&now, p->pid) == PROCESS_DEAD)
    p->held_bytes = 0;
}

static int by_held(const void *a, const void *b) {
  const tree_process *one = a, *other = b;
  return one->held_bytes > other->held_bytes ? -1 : one->held_bytes < other->held_bytes;
}

stow_status tree_read(tree *t, pid_t root) {
  *t = (tree){0};
  pair *all = malloc(PROCESSES_MAX * sizeof *all);
  size_t count = 0, ours = 0, much = 0;
  if (all != NULL && lists_children(root))
    count = list_family(all, root);
  else if (all != NULL) {
    count = list_all(all);
    mark(all, count, root);
  }
  for (size_t i = 0; i < count; i++) ours += all[i].ours;
  t->list = calloc(ours + 1, sizeof *t->list);
  if (all == NULL || t->list == NULL) {
    free(all);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to read the processes of the run");
  }
  for (size_t i = 0; i < count; i++) {
    tree_process p = {.pid = all[i].pid, .parent = all[i].parent};
    if (!all[i].ours || !read_status(&p)) continue;
    read_io(&p);
    much += p.held_bytes > MUCH;
    t->list[t->count++] = p;
  }
  free(all);
  for (size_t i = 0; i < t->count; i++) {
    if (much > 1 && t->list[i].held_bytes > MUCH) read_share(&t->list[i]);
    t->held_bytes += t->list[i].held_bytes;
  }
  qsort(t->list, t->count, sizeof *t->list, by_held);
  return STOW_OK;
}

void tree_free(tree *t) {
  free(t->list);
  *t = (tree){0};
}

/* ---- one process in detail ---- */

static tree_map_kind kind_of(const char *path) {
  if (strcmp(path, "[heap]") == 0) return TREE_HEAP;
  if (path[0] == '\0' || path[0] == '[') return TREE_ANONYMOUS;
  if (strncmp(path, "/dev/shm/", 9) == 0 || strncmp(path, "/memfd:", 7) == 0 ||
      strncmp(path, "/SYSV", 5) == 0 || strncmp(path, "/dev/zero", 9) == 0)
    return TREE_SHARED;
  return TREE_FILE;
}

/* Keeps the largest mappings, and one of CUDA's driver: it is small beside the libraries, and shows
 * that the process uses CUDA. Mappings of one file count as one. */
static size_t keep_map(tree_map *list, size_t count, size_t max, const tree_map *m) {
  for (size_t i = 0; i < count; i++)
    if (m->path[0] != '\0' && list[i].kind == m->kind && strcmp(list[i].path, m->path) == 0) {
      list[i].bytes += m->bytes;
      return count;
    }
  if (count < max) {
    list[count] = *m;
    return count + 1;
  }
  size_t least = count, driver = count; /* the largest mapping of the driver stays */
  for (size_t i = 0; i < count; i++)
    if (tree_map_is_driver(&list[i]) && (driver == count || list[i].bytes > list[driver].bytes))
      driver = i;
  for (size_t i = 0; i < count; i++)
    if (i != driver && (least == count || list[i].bytes < list[least].bytes)) least = i;
  bool first = driver == count && tree_map_is_driver(m);
  if (least < count && (first || list[least].bytes < m->bytes)) list[least] = *m;
  return count;
}

static int by_bytes(const void *a, const void *b) {
  const tree_map *one = a, *other = b;
  return one->bytes > other->bytes ? -1 : one->bytes < other->bytes;
}

/* Adds one mapping to the sums by kind and to the largest. */
static size_t count_map(uint64_t kinds[TREE_MAP_KINDS], tree_map *largest, size_t count, size_t max,
                        const tree_map *m) {
  if (m->bytes == 0) return count;
  kinds[m->kind] += m->bytes;
  return keep_map(largest, count, max, m);
}

/* A mapping that grows while it is read appears again, with the same start: the last one counts. */
size_t tree_maps_read(FILE *smaps, uint64_t kinds[TREE_MAP_KINDS], tree_map *largest, size_t max) {
  char line[512];
  size_t count = 0;
  unsigned long long start, begun = 0;
  tree_map now = {.kind = TREE_ANONYMOUS};
  for (int k = 0; k < TREE_MAP_KINDS; k++) kinds[k] = 0;
  while (fgets(line, sizeof line, smaps) != NULL) {
    uint64_t kib = number_after(line, "Rss:");
    int at = 0; /* "7f00-7f01 rw-p 00000000 08:01 1234   /path" */
    if (kib != UINT64_MAX) {
      now.bytes = kib * 1024;
    } else if (sscanf(line, "%llx-%*x %*s %*x %*x:%*x %*u %n", &start, &at) == 1 && at > 0) {
      if (start != begun) count = count_map(kinds, largest, count, max, &now);
      begun = start;
      line[strcspn(line, "\n")] = '\0';
      now = (tree_map){.kind = kind_of(line + at)};
      snprintf(now.path, sizeof now.path, "%.199s", line + at);
    }
  }
  count = count_map(kinds, largest, count, max, &now);
  qsort(largest, count, sizeof *largest, by_bytes);
  return count;
}

size_t tree_maps(pid_t pid, uint64_t kinds[TREE_MAP_KINDS], tree_map *largest, size_t max) {
  FILE *file = open_of(pid, "smaps");
  if (file == NULL) {
    for (int k = 0; k < TREE_MAP_KINDS; k++) kinds[k] = 0;
    return 0;
  }
  size_t count = tree_maps_read(file, kinds, largest, max);
  fclose(file);
  return count;
}

static uint64_t position_of(pid_t pid, const char *number) {
  char name[32], line[128];
  uint64_t position = 0, value;
  snprintf(name, sizeof name, "fdinfo/%.16s", number);
  FILE *file = open_of(pid, name);
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if ((value = number_after(line, "pos:")) != UINT64_MAX) position = value;
  if (file != NULL) fclose(file);
  return position;
}

size_t tree_files(pid_t pid, tree_file *largest, size_t max) {
  char path[300];
  size_t count = 0;
  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  DIR *folder = opendir(path);
  for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    struct stat info;
    tree_file f = {0};
    snprintf(path, sizeof path, "/proc/%d/fd/%.16s", (int)pid, entry->d_name);
    ssize_t length = readlink(path, f.path, sizeof f.path - 1);
    if (length <= 0 || f.path[0] != '/' || stat(path, &info) != 0 || !S_ISREG(info.st_mode))
      continue;
    f.bytes = (uint64_t)info.st_size;
    f.read_bytes = position_of(pid, entry->d_name);
    size_t place = count < max ? count++ : max;
    for (size_t i = 0; place == max && i < max; i++)
      if (largest[i].bytes < f.bytes) place = i;
    if (place < max) largest[place] = f;
  }
  if (folder != NULL) closedir(folder);
  for (size_t i = 1; i < count; i++)
    for (size_t j = i; j > 0 && largest[j].bytes > largest[j - 1].bytes; j--) {
      tree_file swap = largest[j];
      largest[j] = largest[j - 1];
      largest[j - 1] = swap;
    }
  return count;
}
