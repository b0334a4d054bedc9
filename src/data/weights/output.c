/* Output: the files of the output (weights.h).
 *
 * One file is written as OUT.partial and renamed. A folder is written as OUT.partial/ and renamed
 * as a whole, so it appears complete or not at all. */
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

#include "arrays/tensors_write.h"
#include "base/list.h"
#include "base/text.h"
#include "data/weights/folder.h"
#include "data/weights/parts.h"

/* ---- which files ---- */

static stow_status add_file(weights_result *r, const char *name) {
  STOW_TRY(LIST_ROOM(r->files, r->file_count, r->file_capacity, 4, "files"));
  r->files[r->file_count] = (weights_file){.name = strdup(name)};
  if (r->files[r->file_count].name == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  r->file_count++;
  return STOW_OK;
}

static const char part_of_pipeline[] = "diffusion_pytorch_model";

/* Returns what the names of the output's files begin with: diffusers looks for other names than
 * transformers. */
static const char *stem(const weights_result *r) {
  bool named = r->in.file_count > 0 &&
               strncmp(r->in.files[0].name, part_of_pipeline, sizeof part_of_pipeline - 1) == 0;
  return named || r->diffusers ? part_of_pipeline : "model";
}

/* Cuts the parts into files of at most shard_bytes, in order. A tensor's parts stay together. */
static stow_status cut_shards(weights_result *r, uint64_t shard_bytes) {
  uint32_t file = 0;
  uint64_t used = 0;
  for (size_t i = 0; i < r->item_count; i++) {
    const weights_item *item = &r->items[i];
    if (used > 0 && used + item->bytes_after > shard_bytes) file++, used = 0;
    used += item->bytes_after;
    for (uint32_t k = 0; k < item->part_count; k++) r->parts[item->first_part + k].file = file;
  }
  uint32_t count = file + 1;
  for (uint32_t i = 0; i < count; i++) {
    char name[96];
    if (count == 1)
      snprintf(name, sizeof name, "%s.safetensors", stem(r));
    else
      snprintf(name, sizeof name, "%s-%05u-of-%05u.safetensors", stem(r), i + 1, count);
    STOW_TRY(add_file(r, name));
  }
  return STOW_OK;
}

/* Writes one file for each file of the input, with the same name; PyTorch files get safetensors
 * names. */
static stow_status keep_files(weights_result *r) {
  size_t count = r->home_count;
  for (size_t i = 0; i < count; i++) {
    char name[NAME_MAX + 32];
    if (r->in.format == MODEL_TORCH && count > 1)
      snprintf(name, sizeof name, "%s-%05zu-of-%05zu.safetensors", stem(r), i + 1, count);
    else if (r->in.format == MODEL_TORCH)
      snprintf(name, sizeof name, "%s.safetensors", stem(r));
    else
      snprintf(name, sizeof name, "%s", r->in.files[i].name);
    STOW_TRY(add_file(r, name));
  }
  for (size_t i = 0; i < r->item_count; i++)
    for (uint32_t k = 0; k < r->items[i].part_count; k++)
      r->parts[r->items[i].first_part + k].file = r->items[i].home;
  return STOW_OK;
}

/* Returns whether the name is that of a file in a format that no model is written in. */
static bool names_other_file(const char *out) {
  static const char *const endings[] = {".pt",  ".pth", ".bin",        ".ckpt", ".npz",
                                        ".npy", ".st",  ".safetensor", ".h5",   ".onnx"};
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
    if (text_ends(out, endings[i])) return true;
  return false;
}

/* A folder of that name is emptied, unless it holds files of somebody else. */
static stow_status check_partial(const char *out) {
  char path[PATH_MAX];
  size_t length = strlen(out);
  struct stat st;
  while (length > 1 && out[length - 1] == '/') length--;
  snprintf(path, sizeof path, "%.*s.partial", (int)length, out);
  if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) || !folder_used(path) || journal_exists(out))
    return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "%s: the folder already exists, and no run that was stopped left it; its files "
                   "would be lost: move or remove it, or name another output",
                   path);
}

stow_status weights_check_output(weights_result *r, const weights_options *o, const char *in,
                                 const char *out) {
  struct stat st;
  r->to_folder = !text_ends(out, ".safetensors") && !text_ends(out, ".gguf");
  if (r->unnamed) return STOW_OK;
  STOW_TRY(outfile_check_folder(out));
  if (!r->to_folder) {
    if (o->shard_bytes > 0)
      return stow_fail(STOW_ERR_INVALID,
                       "%s: --shard writes several files: name a folder, without .safetensors",
                       out);
    STOW_TRY(outfile_check(out));
    for (size_t i = 0; i < r->in.file_count; i++) STOW_TRY(writer_check(out, &r->in.files[i].from));
    return STOW_OK;
  }
  const char *dot = strrchr(out, '.'), *slash = strrchr(out, '/');
  bool single = !r->in.folder && o->shard_bytes == 0 && r->in.file_count == 1;
  if ((single && dot != NULL && (slash == NULL || dot > slash) && dot[1] != '\0') ||
      names_other_file(out))
    return stow_fail(STOW_ERR_INVALID,
                     "%s: a model is written as .safetensors or .gguf, or into a "
                     "folder",
                     out);
  bool there = stat(out, &st) == 0;
  if (there && !S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) return outfile_check(out);
  if (there && S_ISREG(st.st_mode))
    return stow_fail(STOW_ERR_INVALID,
                     "%s: is a file; name a new folder, or a file that ends with .safetensors or "
                     ".gguf",
                     out);
  if (lstat(out, &st) == 0 && (!S_ISDIR(st.st_mode) || folder_used(out)))
    return stow_fail(
        STOW_ERR_INVALID,
        "%s: the folder already exists; name a new one, so that old and new files do not mix", out);
  if (r->in.folder != NULL && folder_inside(out, r->in.folder))
    return stow_fail(STOW_ERR_INVALID, "%s: is inside the folder being read (%s); name another",
                     out, in);
  if (strlen(out) + OUTFILE_ENDING_MAX + 128 >= PATH_MAX)
    return stow_fail(STOW_ERR_INVALID, "%.100s…: the path is too long", out);
  return check_partial(out);
}

stow_status weights_name_output(weights_result *r, const weights_options *o, const char *out) {
  const char *slash = strrchr(out, '/');
  if (!r->to_folder) return add_file(r, slash != NULL ? slash + 1 : out);
  if (o->join) return cut_shards(r, UINT64_MAX);
  if (o->shard_bytes > 0) return cut_shards(r, o->shard_bytes);
  return keep_files(r);
}

/* ---- headers ---- */

/* The values of general.file_type for types that are written (llama.h, enum llama_ftype). */
static const struct {
  tensor_type type;
  uint32_t file_type;
} file_types[] = {{TENSOR_F32, 0},  {TENSOR_F16, 1},   {TENSOR_BF16, 32}, {TENSOR_Q4_0, 2},
                  {TENSOR_Q8_0, 7}, {TENSOR_Q4_K, 14}, {TENSOR_Q6_K, 18}};

/* Returns the type of most bytes of the output or, with `before`, of the input. */
static tensor_type main_type(const weights_result *r, bool before) {
  uint64_t bytes[TENSOR_TYPES] = {0};
  tensor_type most = TENSOR_NONE;
  for (size_t i = 0; i < r->item_count; i++) {
    const tensor *t = r->items[i].from.facts;
    tensor_type type = before ? t->stored : r->items[i].to;
    bytes[type] += tensor_type_bytes(type, t->count);
  }
  for (size_t k = 0; k < TENSOR_TYPES; k++)
    if (bytes[k] > bytes[most]) most = (tensor_type)k;
  return most;
}

/* Returns what changes in the metadata. A type that stays keeps its value of general.file_type,
 * which may name a variant of it (Q4_K_M). */
static gguf_change change_of(const weights_job *j) {
  gguf_change c = {.quantization_version = j->o->quantize != WEIGHTS_NO_QUANT};
  tensor_type now = main_type(j->r, false);
  for (size_t i = 0; i < sizeof file_types / sizeof file_types[0]; i++)
    if (file_types[i].type == now && main_type(j->r, true) != now) {
      c.file_type_known = true;
      c.file_type = file_types[i].file_type;
    }
  return c;
}

static stow_status make_header(weights_job *j, uint32_t file, buffer *header) {
  weights_result *r = j->r;
  size_t count = 0;
  tensor **list = calloc(r->part_count + 1, sizeof *list);
  if (list == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  for (size_t i = 0; i < r->part_count; i++)
    if (r->parts[i].file == file) {
      list[count++] = &r->parts[i].facts;
      r->files[file].data_bytes += r->parts[i].facts.bytes;
    }
  model_file *first = &r->in.files[r->home_count == r->file_count ? file : 0];
  stow_status status;
  if (r->in.format == MODEL_GGUF) {
    gguf_change change = change_of(j);
    status = gguf_header(header, list, count, &first->header, &first->from, &change,
                         &r->files[file].bytes);
  } else {
    const char *metadata = first->header.metadata;
    if (metadata == NULL) metadata = "{\"format\":\"pt\"}"; /* transformers requires it */
    status = safetensors_header(header, list, count, metadata, &r->files[file].bytes);
  }
  free(list);
  return status;
}

static stow_status file_path(const weights_job *j, uint32_t file, char path[PATH_MAX]) {
  int length = j->r->to_folder
                   ? snprintf(path, PATH_MAX, "%s/%s", j->target, j->r->files[file].name)
                   : snprintf(path, PATH_MAX, "%s", j->target);
  if (length >= PATH_MAX - OUTFILE_ENDING_MAX)
    return stow_fail(STOW_ERR_INVALID, "%.100s…: the path is too long", path);
  return STOW_OK;
}

/* Returns the permissions that all files of the input have. */
static mode_t input_mode(const weights_result *r) {
  mode_t mode = 0777;
  struct stat st;
  for (size_t i = 0; i < r->in.file_count; i++)
    if (r->in.files[i].from.fd >= 0 && fstat(r->in.files[i].from.fd, &st) == 0) mode &= st.st_mode;
  return mode | 0600;
}

/* Gaps between tensors (GGUF's padding) are written as zeros by making the file longer. */
static stow_status open_file(weights_job *j, uint32_t file, bool keep) {
  char path[PATH_MAX];
  buffer header = BUFFER_INIT;
  writer *w = &j->writers[file];
  stow_status status = make_header(j, file, &header);
  if (status == STOW_OK) status = file_path(j, file, path);
  if (status == STOW_OK)
    status = writer_open_partial(w, path, NULL, j->r->files[file].bytes, keep, false);
  if (status == STOW_OK) {
    outfile_narrow(&w->out, input_mode(j->r));
    w->no_sync = j->o->no_sync;
    status = writer_end(w, j->r->files[file].bytes);
    if (status == STOW_OK) status = writer_put(w, 0, header.data, header.length);
  }
  buffer_free(&header);
  return status;
}

stow_status weights_open_output(weights_job *j, bool resume) {
  weights_result *r = j->r;
  size_t length = strlen(j->out);
  j->target = malloc(length + OUTFILE_ENDING_MAX);
  j->writers = calloc(r->file_count + 1, sizeof *j->writers);
  if (j->target == NULL || j->writers == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  for (size_t i = 0; i < r->file_count; i++) j->writers[i].fd = -1;
  snprintf(j->target, length + OUTFILE_ENDING_MAX, "%s", j->out);
  if (r->to_folder) {
    while (length > 1 && j->target[length - 1] == '/') j->target[--length] = '\0';
    strcat(j->target, ".partial");
    STOW_TRY(folder_make(j->target, resume));
    if (r->in.folder != NULL) folder_narrow(j->target, r->in.folder);
  }
  for (size_t i = 0; i < r->file_count; i++) STOW_TRY(open_file(j, (uint32_t)i, resume));
  return STOW_OK;
}

/* Computes only the sizes, for a dry run. */
static stow_status count_bytes(weights_job *j) {
  for (size_t i = 0; i < j->r->file_count; i++) {
    buffer header = BUFFER_INIT;
    stow_status status = make_header(j, (uint32_t)i, &header);
    buffer_free(&header);
    STOW_TRY(status);
  }
  return STOW_OK;
}

stow_status weights_measure_output(weights_job *j) {
  STOW_TRY(count_bytes(j));
  for (size_t i = 0; i < j->r->file_count; i++) j->r->file_bytes += j->r->files[i].bytes;
  return STOW_OK;
}

/* ---- the end ---- */

/* Returns whether the files keep their names, and so that of their index. */
static bool keeps_index(const weights_job *j) {
  return j->o->shard_bytes == 0 && !j->o->join && j->r->in.format == MODEL_SAFETENSORS &&
         j->r->in.index != NULL;
}

static stow_status write_index(weights_job *j) {
  char path[PATH_MAX];
  const weights_result *r = j->r;
  buffer text = BUFFER_INIT;
  json out = JSON_PRETTY(&text);
  json_begin_object(&out);
  json_key(&out, "metadata");
  json_begin_object(&out);
  json_number(&out, "total_size", r->bytes_after);
  json_end_object(&out);
  json_key(&out, "weight_map");
  json_begin_object(&out);
  for (size_t i = 0; i < r->part_count; i++) {
    json_key(&out, r->parts[i].facts.name);
    json_text(&out, r->files[r->parts[i].file].name);
  }
  json_end_object(&out);
  json_end_object(&out);
  buffer_char(&text, '\n');
  if (keeps_index(j))
    snprintf(path, sizeof path, "%s/%s", j->target, r->in.index);
  else
    snprintf(path, sizeof path, "%s/%s.safetensors.index.json", j->target, stem(r));
  stow_status status = text.status;
  if (status == STOW_OK) status = folder_write(path, text.data, text.length, input_mode(r));
  buffer_free(&text);
  return status;
}

stow_status weights_commit_output(weights_job *j) {
  weights_result *r = j->r;
  for (size_t i = 0; i < r->file_count; i++) {
    r->file_bytes += r->files[i].bytes;
    STOW_TRY(writer_commit(&j->writers[i]));
  }
  if (!r->to_folder) return STOW_OK;
  if (r->file_count > 1 || keeps_index(j)) STOW_TRY(write_index(j));
  if (r->in.folder != NULL) STOW_TRY(folder_carry(j));
  char out[PATH_MAX];
  snprintf(out, sizeof out, "%s", j->target);
  out[strlen(out) - strlen(".partial")] = '\0';
  if (rename(j->target, out) != 0)
    return stow_fail(STOW_ERR_IO, "%s: cannot be renamed from %s: %s", out, j->target,
                     strerror(errno));
  return STOW_OK;
}

void weights_abandon_output(weights_job *j, bool keep) {
  for (size_t i = 0; j->writers != NULL && i < j->r->file_count; i++) {
    if (keep && j->writers[i].out.temporary != NULL) j->writers[i].out.temporary[0] = '\0';
    writer_abandon(&j->writers[i]);
  }
  if (!keep && j->target != NULL && j->r->to_folder) folder_remove(j->target);
}
