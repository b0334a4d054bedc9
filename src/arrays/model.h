/* Model: the tensors of a model, wherever they are: one file, or several with an index, or a folder
 * as Hugging Face lays it out.
 *
 *   model m; model_open(&m, "Llama-3-8B/", 16 << 20); … m.list[i] … model_close(&m);
 *
 * Formats: safetensors, GGUF, and PyTorch's .pt and .bin. The header of every file is read and
 * checked; values are not. An index must name every tensor of its files, in the file where it is.
 */
#ifndef ARRAYS_MODEL_H
#define ARRAYS_MODEL_H

#include "arrays/tensors.h"
#include "files/source.h"

typedef enum model_format { MODEL_SAFETENSORS, MODEL_GGUF, MODEL_TORCH } model_format;

typedef struct model_file {
  char *path, *name; /* the name is the path's last part */
  source from;
  bool open;
  tensors header;
} model_file;

typedef struct model_tensor {
  const tensor *facts;
  uint32_t file;
} model_tensor;

typedef struct model {
  model_format format;
  char *folder; /* the folder that was named, or that of the index; NULL: a file was named */
  char *index;  /* the name of the index that lists the files; NULL: none */
  model_file *files;
  size_t file_count, file_capacity;
  model_tensor *list; /* file by file, each in the order of its header */
  size_t count, capacity;
  uint64_t bytes; /* size of all tensors */
} model;

/* Opens a model. `path` is a file, an index.json or a folder. Uses at most `max_bytes` of memory
 * for the lists. STOW_ERR_FORMAT: the message names the file; STOW_ERR_UNSUPPORTED: not a model,
 * and the message says what it is. */
stow_status model_open(model *m, const char *path, uint64_t max_bytes);
void model_close(model *m);
/* Returns STOW_ERR_INVALID if only one of several files was named ("model-00001-of-00003"). */
stow_status model_check_whole(const model *m);
/* Returns STOW_ERR_IO if a file has changed since it was opened. */
stow_status model_check(const model *m);
/* Returns true if the path looks like a model: a folder, or a file that begins like one. */
bool model_is(const char *path);
/* Returns true for a small JSON file in a model's folder, such as config.json: model_open says to
 * name the folder. */
bool model_is_beside(const char *path);
/* Returns true for a file of pickle.dump, which model_open refuses: it is no model, and no array
 * either. */
bool model_is_pickle(const char *path);
const char *model_format_name(model_format f);
/* Returns the tensor of that name, or NULL. */
const model_tensor *model_find(const model *m, const char *name);
/* Reads a small text file whole (an index, a config); the caller frees it. */
stow_status model_read_text(char **text, size_t *length, const char *path, uint64_t max_bytes);

#endif
