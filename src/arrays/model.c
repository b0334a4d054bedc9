/* Model: which files a model consists of, and the list of their tensors (model.h). */
#include "arrays/model.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/entries.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/text.h"
#include "files/json_tree.h"

#define FILES_MAX 4096 /* the largest published models have some hundred */

static bool is_folder(const char *path) {
  struct stat st;
  return !text_is_url(path) && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A file that cannot be looked at counts as existing: opening it then fails with the reason. */
static bool exists(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 ? S_ISREG(st.st_mode) : errno != ENOENT && errno != ENOTDIR;
}

const char *model_format_name(model_format f) {
  return f == MODEL_GGUF ? "gguf" : f == MODEL_TORCH ? "pytorch" : "safetensors";
}

/* ---- what a file is ---- */

typedef enum start_kind {
  START_OTHER,
  START_SAFETENSORS,
  START_GGUF,
  START_ZIP,
  START_OLD_TORCH, /* torch.save before PyTorch 1.6: no zip */
  START_PICKLE,    /* of pickle.dump */
  START_LFS,       /* what a clone without Git LFS has instead of the file */
  START_PAGE       /* what a wrong address gives instead of the file */
} start_kind;

static bool begins(const uint8_t *start, size_t count, const char *text) {
  return count >= strlen(text) && strncasecmp((const char *)start, text, strlen(text)) == 0;
}

/* Returns whether a file begins and ends as pickle.dump writes it. */
static bool is_pickle(source *from, const uint8_t *start, size_t count) {
  uint8_t last = 0;
  return count > 2 && start[0] == 0x80 && start[1] >= 2 && start[1] <= 5 &&
         source_read(from, from->bytes - 1, &last, 1) == STOW_OK && last == '.';
}

static stow_status look_at_start(source *from, start_kind *kind) {
  uint8_t start[TORCH_FILE_START] = {0};
  size_t count = from->bytes < sizeof start ? (size_t)from->bytes : sizeof start;
  STOW_TRY(source_read(from, 0, start, count));
  *kind = START_OTHER;
  if (memcmp(start, "GGUF", 4) == 0)
    *kind = START_GGUF;
  else if (memcmp(start, "PK\x03\x04", 4) == 0)
    *kind = START_ZIP;
  else if (torch_file_is_old(start, count))
    *kind = START_OLD_TORCH;
  else if (begins(start, count, "version https://git-lfs"))
    *kind = START_LFS;
  else if (begins(start, count, "<!doctype html") || begins(start, count, "<html"))
    *kind = START_PAGE;
  else if (count >= 9 && start[8] == '{' && source_u64(start) <= from->bytes - 8)
    *kind = START_SAFETENSORS;
  else if (is_pickle(from, start, count))
    *kind = START_PICKLE;
  return STOW_OK;
}

/* ---- what is named instead of a model ---- */

static const char *last_part(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

/* Returns whether the name is that of a small file which every model's folder has. */
static bool is_beside_name(const char *path) {
  static const char *const names[] = {"config.json",           "generation_config.json",
                                      "tokenizer.json",        "adapter_config.json",
                                      "tokenizer_config.json", "preprocessor_config.json",
                                      "model_index.json",      "special_tokens_map.json"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(last_part(path), names[i]) == 0) return true;
  return false;
}

/* Returns whether a path that does not exist may be the name of a model on a hub:
 * "meta-llama/Llama-3-8B". */
static bool is_hub_name(const char *path) {
  const char *slash = strchr(path, '/'), *dot = strrchr(path, '.');
  char owner[NAME_MAX + 1];
  struct stat st;
  if (dot != NULL && isalpha((unsigned char)dot[1])) return false; /* a file's ending */
  if (slash == NULL || slash == path || slash[1] == '\0' || strchr(slash + 1, '/') != NULL ||
      path[0] == '.' || path[0] == '~' || text_is_url(path) || slash - path > NAME_MAX ||
      exists(path) || is_folder(path))
    return false;
  snprintf(owner, sizeof owner, "%.*s", (int)(slash - path), path);
  return stat(owner, &st) != 0 && errno == ENOENT;
}

static stow_status refuse_other_names(const char *path) {
  const char *name = last_part(path);
  if (is_hub_name(path))
    return stow_fail(STOW_ERR_NOT_FOUND,
                     "%s: does not exist; if it is a model on a hub, download it first: "
                     "hf download %s --local-dir %s",
                     path, path, name);
  if (!is_beside_name(path) || !exists(path)) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "%s: a file beside a model, not the model; name its folder: %.*s", path,
                   name > path ? (int)(name - path) : 1, name > path ? path : ".");
}

static bool has_model(const char *path);

bool model_is_beside(const char *path) {
  return is_beside_name(path) && has_model(path);
}

bool model_is(const char *path) {
  source from;
  start_kind kind = START_OTHER;
  if (is_hub_name(path) || model_is_beside(path)) return true;
  if (is_folder(path) || text_ends(path, ".safetensors") || text_ends(path, ".gguf") ||
      text_ends(path, ".index.json"))
    return true;
  if (text_is_url(path) || source_open_file(&from, path) != STOW_OK) return false;
  stow_status status = look_at_start(&from, &kind);
  source_close(&from);
  if (status != STOW_OK || kind == START_OTHER || kind == START_PICKLE) return false;
  /* A zip is an .npz, unless its name is that of a PyTorch file. */
  bool any = kind == START_ZIP || kind == START_LFS || kind == START_PAGE || kind == START_PICKLE;
  return !any || text_ends(path, ".pt") || text_ends(path, ".pth") || text_ends(path, ".bin") ||
         text_ends(path, ".ckpt");
}

bool model_is_pickle(const char *path) {
  source from;
  start_kind kind = START_OTHER;
  if (text_is_url(path) || source_open_file(&from, path) != STOW_OK) return false;
  (void)look_at_start(&from, &kind);
  source_close(&from);
  return kind == START_PICKLE;
}

/* ---- files ---- */

static stow_status read_header(model *m, model_file *f, uint64_t max_bytes) {
  start_kind kind = START_OTHER;
  STOW_TRY(look_at_start(&f->from, &kind));
  if (kind == START_LFS)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: a pointer of Git LFS, not the model itself; run git lfs pull", f->path);
  if (kind == START_PAGE)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: a web page, not a model; download the file itself (on a model hub, the "
                     "address with /resolve/ instead of /blob/)",
                     f->path);
  if (kind == START_PICKLE)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: a pickle that torch.save did not write: reading it could run code; load "
                     "it where you trust it, and save its tensors with safetensors",
                     f->path);
  model_format format = kind == START_GGUF                             ? MODEL_GGUF
                        : kind == START_ZIP || kind == START_OLD_TORCH ? MODEL_TORCH
                                                                       : MODEL_SAFETENSORS;
  if (kind == START_OTHER && !text_ends(f->name, ".safetensors"))
    return stow_fail(STOW_ERR_UNSUPPORTED, "%s: not a safetensors, GGUF or PyTorch (zip) file",
                     f->path);
  if (m->file_count > 1 && format != m->format)
    return stow_fail(STOW_ERR_FORMAT, "%s: a %s file among %s files", f->path,
                     model_format_name(format), model_format_name(m->format));
  m->format = format;
  if (format == MODEL_GGUF) return gguf_read(&f->header, &f->from, max_bytes);
  if (format == MODEL_TORCH) return torch_file_read(&f->header, &f->from, max_bytes);
  return safetensors_read(&f->header, &f->from, max_bytes);
}

static stow_status add_file(model *m, const char *path, uint64_t max_bytes) {
  if (m->file_count == FILES_MAX)
    return stow_fail(STOW_ERR_FORMAT, "%s: more than %d files in one model", path, FILES_MAX);
  STOW_TRY(LIST_ROOM(m->files, m->file_count, m->file_capacity, 4, "model files"));
  model_file *f = &m->files[m->file_count++];
  *f = (model_file){.path = strdup(path)};
  if (f->path == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
  char *slash = strrchr(f->path, '/');
  f->name = slash != NULL ? slash + 1 : f->path;
  STOW_TRY(source_open(&f->from, f->path));
  f->open = true;
  return read_header(m, f, max_bytes);
}

/* Bytes that the headers read so far hold. */
static uint64_t headers_bytes(const model *m) {
  uint64_t sum = 0;
  for (size_t i = 0; i < m->file_count; i++) sum += m->files[i].header.used_bytes;
  return sum;
}

static stow_status add_within(model *m, const char *path, uint64_t max_bytes) {
  uint64_t used = headers_bytes(m);
  return add_file(m, path, max_bytes > used ? max_bytes - used : 0);
}

static stow_status list_all(model *m) {
  map seen = {0};
  stow_status status = STOW_OK;
  for (size_t i = 0; i < m->file_count && status == STOW_OK; i++)
    for (size_t k = 0; k < m->files[i].header.count && status == STOW_OK; k++) {
      const tensor *one = &m->files[i].header.list[k];
      uint64_t hash = hash_bytes(one->name, strlen(one->name), 0);
      const uint64_t *other = map_get(&seen, hash);
      if (other != NULL && strcmp(m->list[*other].facts->name, one->name) == 0) {
        status = stow_fail(STOW_ERR_FORMAT, "%s: tensor %.200s is also in %s", m->files[i].path,
                           one->name, m->files[m->list[*other].file].name);
        break;
      }
      if (other == NULL) status = map_put(&seen, hash, m->count);
      if (status == STOW_OK) status = LIST_ROOM(m->list, m->count, m->capacity, 64, "tensors");
      if (status == STOW_OK) m->list[m->count++] = (model_tensor){one, (uint32_t)i};
      m->bytes += one->bytes;
    }
  map_free(&seen);
  return status;
}

/* ---- an index ---- */

stow_status model_read_text(char **text, size_t *length, const char *path, uint64_t max_bytes) {
  source from;
  *text = NULL;
  STOW_TRY(source_open_file(&from, path));
  stow_status status = STOW_OK;
  if (from.bytes > max_bytes)
    status =
        stow_fail(STOW_ERR_BUDGET,
                  "%s: %" PRIu64 " KiB is too large for an index or config file; raise --memory",
                  path, from.bytes >> 10);
  *length = (size_t)from.bytes;
  if (status == STOW_OK) *text = malloc(*length + 1);
  if (status == STOW_OK && *text == NULL)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
  if (status == STOW_OK) status = source_read(&from, 0, *text, *length);
  source_close(&from);
  if (status != STOW_OK) {
    free(*text);
    *text = NULL;
    return status;
  }
  (*text)[*length] = '\0';
  return STOW_OK;
}

static stow_status join_path(char to[PATH_MAX], const char *folder, const char *name) {
  if (snprintf(to, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
    return stow_fail(STOW_ERR_INVALID, "%.100s…/%.100s: the path is too long", folder, name);
  return STOW_OK;
}

/* Adds a file of an index. It must be a plain name: an index cannot point outside its folder. */
static stow_status add_indexed(model *m, const char *index, const char *folder, const char *name,
                               uint64_t max_bytes) {
  char path[PATH_MAX];
  if (name == NULL || name[0] == '\0' || strchr(name, '/') != NULL || strcmp(name, "..") == 0)
    return stow_fail(STOW_ERR_FORMAT, "%s: \"%.100s\" is not the name of a file in its folder",
                     index, name != NULL ? name : "");
  for (size_t i = 0; i < m->file_count; i++)
    if (strcmp(m->files[i].name, name) == 0) return STOW_OK;
  STOW_TRY(join_path(path, folder, name));
  if (!text_is_url(path) && !exists(path))
    return stow_fail(STOW_ERR_NOT_FOUND, "%s: is missing: %s lists it; download this file again",
                     path, last_part(index));
  return add_within(m, path, max_bytes);
}

static stow_status check_indexed(const model *m, const json_tree *t, const json_node *weights) {
  map places = {0};
  stow_status status = STOW_OK;
  for (size_t i = 0; i < m->count && status == STOW_OK; i++) {
    const char *name = m->list[i].facts->name;
    status = map_put(&places, hash_bytes(name, strlen(name), 0), i);
  }
  for (const json_node *n = json_first(t, weights); n != NULL && status == STOW_OK;
       n = json_next(t, n)) {
    const char *name = json_key_of(t, n);
    const uint64_t *at = map_get(&places, hash_bytes(name, strlen(name), 0));
    if (at == NULL || strcmp(m->list[*at].facts->name, name) != 0 ||
        strcmp(m->files[m->list[*at].file].name, json_string(t, n)) != 0)
      status = stow_fail(STOW_ERR_FORMAT, "%s: tensor %.200s is not in %s", t->name, name,
                         json_string(t, n));
  }
  map_free(&places);
  if (status == STOW_OK && weights->count != m->count)
    return stow_fail(STOW_ERR_FORMAT, "%s: lists %u tensors, the files have %zu", t->name,
                     weights->count, m->count);
  return status;
}

static stow_status read_index(model *m, const char *path, const json_tree *t, uint64_t max_bytes) {
  char folder[PATH_MAX];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash != NULL)
    *slash = '\0';
  else
    snprintf(folder, sizeof folder, ".");
  const json_node *weights = json_member(t, json_root(t), "weight_map");
  if (weights == NULL || weights->kind != JSON_OBJECT)
    return stow_fail(STOW_ERR_FORMAT, "%s: an index without \"weight_map\"", path);
  for (const json_node *n = json_first(t, weights); n != NULL; n = json_next(t, n))
    STOW_TRY(add_indexed(m, path, folder, json_string(t, n), max_bytes));
  STOW_TRY(list_all(m));
  return check_indexed(m, t, weights);
}

static stow_status open_index(model *m, const char *path, uint64_t max_bytes) {
  char *text;
  size_t length;
  json_tree t;
  STOW_TRY(model_read_text(&text, &length, path, max_bytes / 4));
  stow_status status = json_tree_read(&t, text, length, path, max_bytes / 2);
  if (status == STOW_OK) {
    m->index = strdup(last_part(path));
    status = m->index != NULL ? read_index(m, path, &t, max_bytes)
                              : stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
    json_tree_free(&t);
  }
  free(text);
  return status;
}

/* ---- the parts of a GGUF model ---- */

/* "-00001-of-00003.gguf", as llama.cpp names them */
#define PART_NAME   "-%05u-of-%05u.gguf"
#define PART_LENGTH 20

/* Writes the path of a part, from 0, whose first part is at `first`. Returns false if `first` is
 * not named as one of that many parts. */
static bool part_path(char to[PATH_MAX], const char *first, unsigned number, unsigned count) {
  char ending[32];
  size_t length = strlen(first);
  snprintf(ending, sizeof ending, PART_NAME, 1U, count);
  if (length < PART_LENGTH || length >= PATH_MAX || !text_ends(first, ending)) return false;
  memcpy(to, first, length + 1);
  snprintf(ending, sizeof ending, PART_NAME, number + 1, count);
  memcpy(to + length - PART_LENGTH, ending, PART_LENGTH);
  return true;
}

/* Returns whether the name is that of a part behind the first. */
static bool is_later_part(const char *name) {
  unsigned number, count;
  size_t length = strlen(name);
  return length > PART_LENGTH &&
         sscanf(name + length - PART_LENGTH, PART_NAME, &number, &count) == 2 && number > 1;
}

/* Adds a model of one file, or the first file of a GGUF model and its other parts. */
static stow_status add_parts(model *m, const char *path, uint64_t max_bytes) {
  char next[PATH_MAX];
  STOW_TRY(add_within(m, path, max_bytes));
  unsigned count = m->files[0].header.split_count, number = m->files[0].header.split_number;
  for (unsigned i = 0; i < count && count > 1; i++) {
    if (number > 0 || !part_path(next, path, i, count))
      return stow_fail(STOW_ERR_INVALID,
                       "%s: part %u of a model in %u files; name the first one, which ends with "
                       "-00001-of-%05u.gguf",
                       path, number + 1, count, count);
    if (i > 0 && !text_is_url(next) && !exists(next))
      return stow_fail(STOW_ERR_NOT_FOUND,
                       "%s: is missing: part %u of the %u files of a model; download it again",
                       next, i + 1, count);
    if (i > 0) STOW_TRY(add_within(m, next, max_bytes));
    const tensors *header = &m->files[i].header;
    if (header->split_number != i || header->split_count != count)
      return stow_fail(STOW_ERR_FORMAT, "%s: says that it is part %u of %u, not %u of %u", next,
                       header->split_number + 1U, header->split_count, i + 1, count);
  }
  return list_all(m);
}

/* ---- a folder ---- */

/* In the order of preference of the packages that load such folders. */
static const char *const known_names[] = {
    "model.safetensors.index.json",
    "model.safetensors",
    "diffusion_pytorch_model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors",
    "adapter_model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "adapter_model.bin",
};

/* Finds the only file with that extension, if there is exactly one; the parts of a GGUF model count
 * as one. */
static stow_status only_file(char path[PATH_MAX], const char *folder, const char *ending,
                             size_t *found) {
  DIR *d = opendir(folder);
  *found = 0;
  if (d == NULL) return stow_fail(STOW_ERR_IO, "%s: cannot be listed: %s", folder, strerror(errno));
  stow_status status = STOW_OK;
  for (struct dirent *e; (e = next_entry(d, folder, &status)) != NULL;)
    if (e->d_name[0] != '.' && text_ends(e->d_name, ending) && !is_later_part(e->d_name)) {
      status = join_path(path, folder, e->d_name);
      (*found)++;
    }
  closedir(d);
  return status;
}

static stow_status open_folder(model *m, const char *folder, uint64_t max_bytes) {
  char path[PATH_MAX];
  static const char *const endings[] = {".safetensors.index.json", ".safetensors", ".gguf"};
  m->folder = strdup(folder);
  if (m->folder == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", folder);
  for (size_t n = strlen(m->folder); n > 1 && m->folder[n - 1] == '/'; n--) m->folder[n - 1] = '\0';
  for (size_t i = 0; i < sizeof known_names / sizeof known_names[0]; i++) {
    STOW_TRY(join_path(path, m->folder, known_names[i]));
    if (!exists(path)) continue;
    if (text_ends(path, ".index.json")) return open_index(m, path, max_bytes);
    return add_parts(m, path, max_bytes);
  }
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
    size_t found = 0;
    STOW_TRY(only_file(path, m->folder, endings[i], &found));
    if (found > 1)
      return stow_fail(STOW_ERR_INVALID,
                       "%s: %zu files end with %s and no index lists them; name "
                       "one of them",
                       folder, found, endings[i]);
    if (found == 0) continue;
    if (text_ends(path, ".index.json")) return open_index(m, path, max_bytes);
    return add_parts(m, path, max_bytes);
  }
  STOW_TRY(join_path(path, m->folder, "model_index.json"));
  if (exists(path))
    return stow_fail(STOW_ERR_INVALID,
                     "%s: a pipeline of several models; name the folder of one of them, such as "
                     "%s/unet",
                     folder, m->folder);
  return stow_fail(
      STOW_ERR_NOT_FOUND,
      "%s: a folder without a model: no model.safetensors, no index.json, no .gguf "
      "and no pytorch_model.bin; name tables and arrays by a pattern (\"%s/*.csv\"), and "
      "read other files with stowage.records in Python",
      folder, folder);
}

/* Returns whether a model is in the folder of a file. */
static bool has_model(const char *path) {
  char folder[PATH_MAX], file[PATH_MAX];
  static const char *const endings[] = {".safetensors", ".gguf"};
  const char *name = last_part(path);
  bool found = false;
  if (snprintf(folder, sizeof folder, "%.*s", name > path ? (int)(name - path) : 1,
               name > path ? path : ".") >= (int)sizeof folder)
    return false;
  for (size_t i = 0; i < sizeof known_names / sizeof known_names[0] && !found; i++)
    found = join_path(file, folder, known_names[i]) == STOW_OK && exists(file);
  for (size_t i = 0; i < sizeof endings / sizeof endings[0] && !found; i++) {
    size_t count = 0;
    found = only_file(file, folder, endings[i], &count) == STOW_OK && count > 0;
  }
  return found;
}

/* Opens the model of an index, which stands for its folder. */
static stow_status open_indexed(model *m, const char *path, uint64_t max_bytes) {
  const char *name = last_part(path);
  if (!text_is_url(path)) {
    m->folder = name > path ? strndup(path, (size_t)(name - path)) : strdup(".");
    if (m->folder == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
    for (size_t n = strlen(m->folder); n > 1 && m->folder[n - 1] == '/'; n--)
      m->folder[n - 1] = '\0';
  }
  return open_index(m, path, max_bytes);
}

stow_status model_open(model *m, const char *path, uint64_t max_bytes) {
  *m = (model){0};
  stow_status status = refuse_other_names(path);
  if (status != STOW_OK) return status;
  if (is_folder(path))
    status = open_folder(m, path, max_bytes);
  else if (text_ends(path, ".index.json"))
    status = open_indexed(m, path, max_bytes);
  else
    status = add_parts(m, path, max_bytes);
  if (status != STOW_OK) model_close(m);
  return status;
}

void model_close(model *m) {
  for (size_t i = 0; i < m->file_count; i++) {
    tensors_free(&m->files[i].header);
    if (m->files[i].open) source_close(&m->files[i].from);
    free(m->files[i].path);
  }
  free(m->files);
  free(m->list);
  free(m->folder);
  free(m->index);
  *m = (model){0};
}

stow_status model_check_whole(const model *m) {
  unsigned number, count;
  if (m->folder != NULL || m->file_count != 1) return STOW_OK;
  const char *path = m->files[0].path, *name = last_part(path), *dash = strstr(name, "-of-");
  if (dash == NULL || dash - name < 5 || sscanf(dash - 5, "%5u-of-%5u.", &number, &count) != 2 ||
      count < 2 || number > count)
    return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "%s: file %u of %u of a model; name its folder, %.*s, or give this file another "
                   "name to take it alone",
                   path, number, count, name > path ? (int)(name - path) : 1,
                   name > path ? path : ".");
}

stow_status model_check(const model *m) {
  for (size_t i = 0; i < m->file_count; i++) STOW_TRY(source_check(&m->files[i].from));
  return STOW_OK;
}

const model_tensor *model_find(const model *m, const char *name) {
  for (size_t i = 0; i < m->count; i++)
    if (strcmp(m->list[i].facts->name, name) == 0) return &m->list[i];
  return NULL;
}
