/* Host record: writes and reads its lines. */
#include "run/host_record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/newfile.h"
#include "base/text.h"
#include "run/protocol.h"

#define WORDS_MAX 19

const char *tree_map_name(tree_map_kind kind) {
  ASSERT((unsigned)kind < TREE_MAP_KINDS);
  static const char *const NAMES[TREE_MAP_KINDS] = {"heap", "anonymous", "shared", "file"};
  return NAMES[kind];
}

bool tree_map_is_driver(const tree_map *m) {
  return strstr(m->path, "/libcuda.so") != NULL || strncmp(m->path, "/dev/nvidia", 11) == 0;
}

/* ---- writing ---- */

/* Replaces tabs and line ends, which separate our fields. */
static const char *clean(char *text) {
  text[text_clean(text, strlen(text), false)] = '\0';
  return text;
}

static void write_lines(buffer *out, host_record *r) {
  buffer_printf(out, "started\t%" PRIu64 "\n", r->started_wall_ns);
  buffer_printf(out, "limit\t%" PRIu64 "\t%s\n", r->limit_bytes, r->limit_from);
  buffer_printf(out, "host\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n", r->total_bytes,
                r->usable_bytes, r->cache_bytes);
  buffer_printf(out, "held\t%" PRIu64 "\t%" PRIu64 "\t%" PRId64 "\t%" PRIu64 "\n", r->held_bytes,
                r->peak_bytes, r->growth_bytes_s, r->largest_bytes);
  buffer_printf(out, "ended\t%s\n", r->ended);
  for (size_t i = 0; i < r->sample_count; i++)
    buffer_printf(out, "sample\t%" PRIu64 "\t%" PRIu64 "\n", r->samples[i].time_ms,
                  r->samples[i].bytes);
  for (size_t i = 0; i < r->process_count; i++) {
    tree_process *p = &r->processes[i];
    buffer_printf(out,
                  "process\t%d\t%d\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64
                  "\t%s\n",
                  (int)p->pid, (int)p->parent, p->held_bytes, p->anonymous_bytes, p->shared_bytes,
                  p->file_bytes, p->read_bytes, clean(p->name));
  }
  for (int k = 0; k < TREE_MAP_KINDS; k++)
    buffer_printf(out, "kind\t%s\t%" PRIu64 "\n", tree_map_name((tree_map_kind)k), r->kinds[k]);
  for (size_t i = 0; i < r->map_count; i++)
    buffer_printf(out, "map\t%s\t%" PRIu64 "\t%s\n", tree_map_name(r->maps[i].kind),
                  r->maps[i].bytes, clean(r->maps[i].path));
  for (size_t i = 0; i < r->file_count; i++)
    buffer_printf(out, "file\t%" PRIu64 "\t%" PRIu64 "\t%s\n", r->files[i].bytes,
                  r->files[i].read_bytes, clean(r->files[i].path));
}

stow_status host_record_write(const host_record *r, const char *folder) {
  ASSERT(r != NULL && folder != NULL);
  ASSERT(r->process_count <= HOST_PROCESSES_MAX);
  char path[PATH_MAX];
  buffer out = BUFFER_INIT;
  host_record *copy = malloc(sizeof *copy);
  if (copy == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a host record");
  *copy = *r;
  write_lines(&out, copy);
  free(copy);
  stow_status status = out.status;
  if (status == STOW_OK && !run_path(path, folder, RUN_HOST))
    status = stow_fail(STOW_ERR_IO, "the path of the run's folder is too long: %.200s", folder);
  if (status == STOW_OK && !newfile_write(path, out.data, out.length))
    status = stow_fail(STOW_ERR_IO, "cannot write %s: %s", path, strerror(errno));
  buffer_free(&out);
  return status;
}

/* ---- reading ---- */

typedef struct words {
  char *list[WORDS_MAX];
  size_t count;
} words;

static void cut(words *w, char *line) {
  ASSERT(w != NULL && line != NULL);
  w->count = 0;
  line[strcspn(line, "\n")] = '\0';
  for (char *at = line; at != NULL && w->count < WORDS_MAX; w->count++) {
    w->list[w->count] = at;
    at = strchr(at, '\t');
    if (at != NULL) *at++ = '\0';
  }
}

static uint64_t number(const words *w, size_t i) {
  return i < w->count ? strtoull(w->list[i], NULL, 10) : 0;
}

static void text(char *to, size_t size, const words *w, size_t i) {
  snprintf(to, size, "%s", i < w->count ? w->list[i] : "");
}

static tree_map_kind map_kind(const char *name) {
  for (int k = 0; k < TREE_MAP_KINDS; k++)
    if (strcmp(name, tree_map_name((tree_map_kind)k)) == 0) return (tree_map_kind)k;
  return TREE_ANONYMOUS;
}

static void read_process(host_record *r, const words *w) {
  if (r->process_count == HOST_PROCESSES_MAX) return;
  tree_process *p = &r->processes[r->process_count++];
  *p = (tree_process){.pid = (pid_t)number(w, 1),
                      .parent = (pid_t)number(w, 2),
                      .held_bytes = number(w, 3),
                      .anonymous_bytes = number(w, 4),
                      .shared_bytes = number(w, 5),
                      .file_bytes = number(w, 6),
                      .read_bytes = number(w, 7)};
  text(p->name, sizeof p->name, w, 8);
}

static void read_object(host_record *r, const words *w) {
  if (r->object_count == HOST_OBJECTS_MAX) return;
  host_object *o = &r->objects[r->object_count++];
  *o = (host_object){.bytes = number(w, 1), .count = number(w, 2), .element_bytes = number(w, 8)};
  text(o->name, sizeof o->name, w, 3);
  text(o->where, sizeof o->where, w, 4);
  text(o->type, sizeof o->type, w, 5);
  text(o->of, sizeof o->of, w, 6);
  text(o->shape, sizeof o->shape, w, 7);
  text(o->place, sizeof o->place, w, 9);
  o->grows = number(w, 10) != 0;
  text(o->mark, sizeof o->mark, w, 11);
  o->graphs = number(w, 12);
  o->text_bytes = number(w, 13);
  text(o->words, sizeof o->words, w, 14);
  o->objects = number(w, 15);
  text(o->source, sizeof o->source, w, 16);
  text(o->values, sizeof o->values, w, 17);
}

static void read_frame(host_record *r, const words *w) {
  if (r->frame_count == HOST_FRAMES_MAX) return;
  host_frame *f = &r->frames[r->frame_count++];
  f->line = (uint32_t)number(w, 2);
  text(f->file, sizeof f->file, w, 1);
  text(f->name, sizeof f->name, w, 3);
  text(f->source, sizeof f->source, w, 4);
}

static void read_line(host_record *r, const words *w) {
  const char *kind = w->list[0];
  if (strcmp(kind, "started") == 0) {
    r->started_wall_ns = number(w, 1);
  } else if (strcmp(kind, "limit") == 0) {
    r->limit_bytes = number(w, 1);
    text(r->limit_from, sizeof r->limit_from, w, 2);
  } else if (strcmp(kind, "host") == 0) {
    r->total_bytes = number(w, 1);
    r->usable_bytes = number(w, 2);
    r->cache_bytes = number(w, 3);
  } else if (strcmp(kind, "held") == 0) {
    r->held_bytes = number(w, 1);
    r->peak_bytes = number(w, 2);
    r->growth_bytes_s = w->count > 3 ? strtoll(w->list[3], NULL, 10) : 0;
    r->largest_bytes = number(w, 4);
  } else if (strcmp(kind, "ended") == 0)
    text(r->ended, sizeof r->ended, w, 1);
  else if (strcmp(kind, "sample") == 0 && r->sample_count < HOST_SAMPLES_MAX)
    r->samples[r->sample_count++] = (host_sample){number(w, 1), number(w, 2)};
  else if (strcmp(kind, "process") == 0)
    read_process(r, w);
  else if (strcmp(kind, "kind") == 0 && w->count > 2)
    r->kinds[map_kind(w->list[1])] = number(w, 2);
  else if (strcmp(kind, "map") == 0 && w->count > 2 && r->map_count < HOST_MAPS_MAX) {
    tree_map *m = &r->maps[r->map_count++];
    *m = (tree_map){.kind = map_kind(w->list[1]), .bytes = number(w, 2)};
    text(m->path, sizeof m->path, w, 3);
  } else if (strcmp(kind, "file") == 0 && r->file_count < HOST_FILES_MAX) {
    tree_file *f = &r->files[r->file_count++];
    *f = (tree_file){.bytes = number(w, 1), .read_bytes = number(w, 2)};
    text(f->path, sizeof f->path, w, 3);
  } else if (strcmp(kind, RUN_LINE_OBJECT) == 0)
    read_object(r, w);
  else if (strcmp(kind, RUN_LINE_FRAME) == 0)
    read_frame(r, w);
  else if (strcmp(kind, RUN_LINE_ASKED) == 0) {
    r->inside_serial = (uint32_t)number(w, 1);
    r->inside_bytes = number(w, 2);
    r->inside_whole = number(w, 3) != 0;
    r->inside_ns = number(w, 4) * 1000;
    r->inside_turns = (uint32_t)number(w, 5);
    r->inside_modules = (uint32_t)number(w, 6);
  } else if (strcmp(kind, RUN_LINE_TENSORS) == 0) {
    r->tensors = (uint32_t)number(w, 1);
    r->tensors_graph = (uint32_t)number(w, 2);
  } else if (strcmp(kind, RUN_LINE_SPACE) == 0) {
    r->space_limit_bytes = number(w, 1);
    r->space_peak_bytes = number(w, 2);
  }
}

/* Opens a regular file: opening a pipe would wait for a writer. STOW_ERR_NOT_FOUND: there is no
 * such file; report any other failure. */
static stow_status open_lines(FILE **file, const char *path) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  *file = NULL;
  if (fd < 0)
    return stow_fail(errno == ENOENT ? STOW_ERR_NOT_FOUND : STOW_ERR_IO, "%.400s: %s", path,
                     strerror(errno));
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return stow_fail(STOW_ERR_FORMAT, "%.400s: not a regular file; remove it", path);
  }
  *file = fdopen(fd, "r");
  if (*file != NULL) return STOW_OK;
  close(fd);
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to read %.400s", path);
}

static stow_status close_lines(FILE *file, const char *path) {
  bool failed = ferror(file) != 0;
  int error = errno;
  fclose(file);
  if (failed) return stow_fail(STOW_ERR_IO, "%.400s: cannot read: %s", path, strerror(error));
  return STOW_OK;
}

static stow_status read_file(host_record *r, const char *path) {
  char line[4096]; /* names of 1000 characters, four bytes each */
  FILE *file;
  STOW_TRY(open_lines(&file, path));
  while (fgets(line, sizeof line, file) != NULL) {
    words w;
    cut(&w, line);
    read_line(r, &w);
  }
  return close_lines(file, path);
}

/* Drops values that a line was making when the objects were reported: the program is at another
 * line now. Counts of small objects, whose line is a guess, stay. */
static void drop_made(host_record *r) {
  size_t kept = 0;
  for (size_t i = 0; i < r->object_count; i++)
    if (strncmp(r->objects[i].name, "what line ", 10) != 0 ||
        strcmp(r->objects[i].mark, "nameless") == 0 ||
        strcmp(r->objects[i].mark, "uncollected") == 0)
      r->objects[kept++] = r->objects[i];
  r->object_count = kept;
}

/* Reads PID.frames: newer frames of a process that does not answer. */
static stow_status read_late(host_record *r, const char *path) {
  char line[4096];
  words w;
  FILE *file;
  stow_status status = open_lines(&file, path);
  if (status != STOW_OK) return status == STOW_ERR_NOT_FOUND ? STOW_OK : status;
  if (fgets(line, sizeof line, file) != NULL)
    cut(&w, line);
  else
    w.count = 0;
  uint32_t serial = (uint32_t)number(&w, 1);
  bool newer = w.count > 1 && strcmp(w.list[0], RUN_LINE_SILENT) == 0 &&
               (serial > r->inside_serial || (serial == r->inside_serial && !r->inside_whole));
  if (newer) {
    r->late = true;
    r->frame_count = 0;
    drop_made(r);
  }
  while (newer && fgets(line, sizeof line, file) != NULL) {
    cut(&w, line);
    if (strcmp(w.list[0], RUN_LINE_FRAME) == 0) read_frame(r, &w);
  }
  return close_lines(file, path);
}

static stow_status read_inside(host_record *r, const char *folder, pid_t pid) {
  char path[PATH_MAX], process[16];
  r->object_count = r->frame_count = 0;
  r->inside_serial = 0;
  r->inside_bytes = 0;
  r->inside_whole = false;
  r->late = false;
  snprintf(process, sizeof process, "%d", (int)pid);
  stow_status status = run_process_path(path, folder, process, RUN_OBJECTS)
                           ? read_file(r, path)
                           : stow_fail(STOW_ERR_NOT_FOUND, "%.200s: the path is too long", folder);
  if ((status == STOW_OK || status == STOW_ERR_NOT_FOUND) &&
      run_process_path(path, folder, process, RUN_FRAMES)) {
    stow_status late = read_late(r, path);
    if (late != STOW_OK || r->late) status = late;
  }
  r->from_inside = status == STOW_OK;
  r->inside_pid = pid;
  /* An estimate from samples may exceed what the process holds. */
  for (size_t i = 0; i < r->object_count; i++)
    if (r->objects[i].bytes > r->peak_bytes && r->peak_bytes > 0)
      r->objects[i].bytes = r->peak_bytes;
  return status;
}

bool host_record_read_inside(host_record *r, const char *folder, pid_t pid) {
  ASSERT(pid > 0);
  return read_inside(r, folder, pid) == STOW_OK;
}

/* Reads the answer of the process that held most, of all processes of the run: the machine was so
 * busy that no sample saw it. */
static void read_unseen(host_record *r, const char *folder) {
  ASSERT(!r->from_inside);
  DIR *names = opendir(folder);
  pid_t largest = 0;
  uint64_t most = 0;
  for (const struct dirent *e; names != NULL && (e = readdir(names)) != NULL;) {
    char *end;
    long pid = strtol(e->d_name, &end, 10);
    if (pid <= 0 || pid > INT_MAX || strcmp(end, RUN_OBJECTS) != 0) continue;
    if (read_inside(r, folder, (pid_t)pid) != STOW_OK || r->inside_bytes <= most) continue;
    largest = (pid_t)pid;
    most = r->inside_bytes;
  }
  if (names != NULL) closedir(names);
  if (largest > 0 && read_inside(r, folder, largest) == STOW_OK &&
      r->process_count < HOST_PROCESSES_MAX)
    r->processes[r->process_count++] = (tree_process){.pid = largest, .held_bytes = most};
}

stow_status host_record_read(host_record *r, const char *folder) {
  ASSERT(r != NULL && folder != NULL);
  char path[PATH_MAX];
  *r = (host_record){0};
  stow_status status = run_path(path, folder, RUN_HOST) ? read_file(r, path) : STOW_ERR_NOT_FOUND;
  if (status == STOW_ERR_NOT_FOUND)
    return stow_fail(STOW_ERR_NOT_FOUND, "%s: the run has no record of host memory", folder);
  STOW_TRY(status);
  for (size_t i = 0; i < r->process_count && !r->from_inside; i++) {
    status = read_inside(r, folder, r->processes[i].pid);
    if (status != STOW_OK && status != STOW_ERR_NOT_FOUND) return status;
  }
  if (!r->from_inside) read_unseen(r, folder);
  return STOW_OK;
}
