/* Folder: see folder.h. */
#include "data/weights/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/newfile.h"
#include "base/text.h"
#include "data/weights/config.h"
#include "files/json_tree.h"

#define DEPTH_MAX   4 /* folders inside a model's folder: 1_Pooling, onnx, … */
#define COPY_BYTES  (256 << 10)
#define MODULES_MAX (UINT64_C(1) << 20)

bool folder_used(const char *path) {
  DIR *d = opendir(path);
  bool used = d == NULL;
  for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL && !used; e = readdir(d))
    used = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
  if (d != NULL) closedir(d);
  return used;
}

bool folder_inside(const char *path, const char *folder) {
  char up[PATH_MAX], outer[PATH_MAX];
  if (realpath(folder, outer) == NULL || snprintf(up, sizeof up, "%s", path) >= PATH_MAX)
    return false;
  size_t length = strlen(outer);
  /* The output does not exist yet: look from the nearest folder above that does. */
  for (;;) {
    char real[PATH_MAX];
    if (realpath(up[0] != '\0' ? up : ".", real) != NULL)
      return strncmp(real, outer, length) == 0 && (real[length] == '\0' || real[length] == '/');
    char *slash = strrchr(up, '/');
    if (slash == up) return false;
    if (slash == NULL)
      up[0] = '\0';
    else
      *slash = '\0';
  }
}

/* Removes what is in the folder, never through a link. */
static void empty(int folder, int depth) {
  DIR *d = fdopendir(folder);
  if (d == NULL) {
    close(folder);
    return;
  }
  for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
    if (unlinkat(dirfd(d), e->d_name, 0) == 0 || depth == 0) continue;
    int inner = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner >= 0) empty(inner, depth - 1);
    unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
  }
  closedir(d);
}

static bool ours(const char *path) {
  struct stat st;
  return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

stow_status folder_make(const char *path, bool keep) {
  if (mkdir(path, 0777) == 0) return STOW_OK;
  if (errno != EEXIST)
    return stow_fail(STOW_ERR_IO, "%s: cannot create the folder: %s", path, strerror(errno));
  if (!ours(path))
    return stow_fail(STOW_ERR_IO,
                     "%s: exists and is not a folder of this user; name another output", path);
  int folder = keep ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder >= 0) empty(folder, DEPTH_MAX);
  return STOW_OK;
}

void folder_remove(const char *path) {
  if (!ours(path)) return;
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder >= 0) empty(folder, DEPTH_MAX);
  rmdir(path);
}

void folder_narrow(const char *path, const char *from) {
  struct stat now, st;
  if (lstat(path, &now) == 0 && S_ISDIR(now.st_mode) && stat(from, &st) == 0 &&
      (now.st_mode & 0777 & ~(st.st_mode | 0700)) != 0)
    (void)!chmod(path, now.st_mode & 0777 & (st.st_mode | 0700));
}

stow_status folder_write(const char *path, const void *bytes, size_t count, mode_t most) {
  outfile out;
  STOW_TRY(outfile_open(&out, path));
  outfile_narrow(&out, most);
  stow_status status = outfile_write(&out, bytes, count);
  if (status == STOW_OK) return outfile_commit(&out);
  outfile_abandon(&out);
  return status;
}

/* ---- carrying files over ---- */

/* ---- the modules of sentence-transformers ---- */

/* modules.json of such a folder lists models of their own, each in its folder. */
typedef struct modules {
  json_tree t;
  char *text;
  bool read;
} modules;

static void modules_read(modules *m, const char *folder) {
  char path[PATH_MAX];
  size_t length;
  if (snprintf(path, sizeof path, "%s/modules.json", folder) >= PATH_MAX ||
      access(path, F_OK) != 0 || model_read_text(&m->text, &length, path, MODULES_MAX) != STOW_OK)
    return;
  m->read = json_tree_read(&m->t, m->text, length, path, 8 * MODULES_MAX) == STOW_OK;
}

static void modules_free(modules *m) {
  if (m->read) json_tree_free(&m->t);
  free(m->text);
}

/* Returns whether a folder, named from the model's folder on, is that of a module or inside. */
static bool is_module(const modules *m, const char *name) {
  const json_node *root = m->read ? json_root(&m->t) : NULL;
  if (root == NULL || root->kind != JSON_ARRAY) return false;
  for (const json_node *n = json_first(&m->t, root); n != NULL; n = json_next(&m->t, n)) {
    const char *path =
        n->kind == JSON_OBJECT ? json_string(&m->t, json_member(&m->t, n, "path")) : NULL;
    size_t length = path != NULL ? strlen(path) : 0;
    if (length > 0 && strncmp(name, path, length) == 0 &&
        (name[length] == '\0' || name[length] == '/'))
      return true;
  }
  return false;
}

/* Files that hold the weights, in this or another format. */
static bool is_weights(const char *name) {
  static const char *const endings[] = {
      ".safetensors", ".bin",  ".pt",        ".pth",        ".ckpt",   ".gguf", ".h5",
      ".msgpack",     ".onnx", ".onnx_data", ".index.json", ".tflite", ".npz",  ".ot"};
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
    if (text_ends(name, endings[i])) return true;
  return false;
}

static stow_status copy_file(const char *from_path, const char *to_path) {
  source from;
  outfile out;
  struct stat st;
  STOW_TRY(source_open_file(&from, from_path));
  char *bytes = malloc(COPY_BYTES);
  stow_status status = bytes != NULL ? outfile_open(&out, to_path)
                                     : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  if (status == STOW_OK) {
    if (fstat(from.fd, &st) == 0) outfile_narrow(&out, st.st_mode | 0600);
    out.no_sync = true; /* small, and the folder takes its name after them */
    for (uint64_t at = 0; at < from.bytes && status == STOW_OK;) {
      size_t part = from.bytes - at < COPY_BYTES ? (size_t)(from.bytes - at) : COPY_BYTES;
      status = source_read(&from, at, bytes, part);
      if (status == STOW_OK) status = outfile_write(&out, bytes, part);
      at += part;
    }
    if (status == STOW_OK)
      status = outfile_commit(&out);
    else
      outfile_abandon(&out);
  }
  free(bytes);
  source_close(&from);
  return status;
}

static stow_status carry_config(const weights_job *j, const char *in, const char *out,
                                mode_t mode) {
  buffer text = BUFFER_INIT;
  stow_status status = config_edit(&text, j, in);
  if (status == STOW_OK) status = folder_write(out, text.data, text.length, mode | 0600);
  buffer_free(&text);
  return status;
}

static bool is_own(const weights_job *j, const char *name) {
  for (size_t i = 0; i < j->r->in.file_count; i++)
    if (strcmp(j->r->in.files[i].name, name) == 0) return true;
  return text_ends(name, ".safetensors.index.json") || text_ends(name, ".bin.index.json");
}

/* A walk through the folder of the input. */
typedef struct carrying {
  weights_job *j;
  modules modules;
} carrying;

static stow_status carry_folder(carrying *c, const char *from, const char *to, int depth);

static stow_status carry_one(carrying *c, const char *from, const char *to, const char *name,
                             int depth) {
  weights_job *j = c->j;
  char in[PATH_MAX], out[PATH_MAX];
  struct stat own, st;
  if (snprintf(in, sizeof in, "%s/%s", from, name) >= PATH_MAX ||
      snprintf(out, sizeof out, "%s/%s", to, name) >= PATH_MAX - OUTFILE_ENDING_MAX)
    return stow_fail(STOW_ERR_INVALID, "%.100s…/%.100s: the path is too long", from, name);
  if (lstat(in, &own) != 0 || stat(in, &st) != 0) {
    if (errno == ENOENT || errno == ELOOP) return STOW_OK; /* a link to nothing */
    return stow_fail(STOW_ERR_IO, "%s: cannot stat: %s", in, strerror(errno));
  }
  /* A linked folder may be any folder of the disk, or one above itself. Linked files are those of a
   * cache, as that of Hugging Face. */
  if (S_ISDIR(st.st_mode) && S_ISLNK(own.st_mode)) {
    j->r->linked_folders++;
    return STOW_OK;
  }
  if (S_ISDIR(st.st_mode)) return depth > 0 ? carry_folder(c, in, out, depth - 1) : STOW_OK;
  if (!S_ISREG(st.st_mode)) return STOW_OK;
  size_t above = strlen(j->r->in.folder) + 1;
  bool module = depth < DEPTH_MAX && is_module(&c->modules, from + above);
  if (is_weights(name) && !module) {
    if (depth < DEPTH_MAX || !is_own(j, name)) j->r->left_out++;
    return STOW_OK;
  }
  j->r->carried++;
  if (depth == DEPTH_MAX && strcmp(name, "config.json") == 0)
    return carry_config(j, in, out, st.st_mode);
  return copy_file(in, out);
}

static stow_status carry_folder(carrying *c, const char *from, const char *to, int depth) {
  DIR *d = opendir(from);
  if (d == NULL) return stow_fail(STOW_ERR_IO, "%s: cannot be listed: %s", from, strerror(errno));
  stow_status status = STOW_OK;
  bool made = depth == DEPTH_MAX;
  for (struct dirent *e; (e = next_entry(d, from, &status)) != NULL;) {
    if (e->d_name[0] == '.') continue;
    if (!made) status = folder_make(to, true);
    if (!made) folder_narrow(to, from);
    made = true;
    if (status == STOW_OK) status = carry_one(c, from, to, e->d_name, depth);
  }
  closedir(d);
  return status;
}

stow_status folder_carry(weights_job *j) {
  carrying c = {.j = j};
  modules_read(&c.modules, j->r->in.folder);
  stow_status status = carry_folder(&c, j->r->in.folder, j->target, DEPTH_MAX);
  modules_free(&c.modules);
  return status;
}
