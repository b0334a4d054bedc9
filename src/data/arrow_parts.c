/* Arrow: see arrow_parts.h. */
#include "data/arrow_parts.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  char format[2];
  dtype type;
} types[] = {
    {"c", DTYPE_I8},  {"C", DTYPE_U8},  {"s", DTYPE_I16}, {"S", DTYPE_U16},
    {"i", DTYPE_I32}, {"I", DTYPE_U32}, {"l", DTYPE_I64}, {"L", DTYPE_U64},
    {"e", DTYPE_F16}, {"f", DTYPE_F32}, {"g", DTYPE_F64}, {"b", DTYPE_BOOL},
};
enum { TYPES = sizeof types / sizeof *types };

dtype arrow_type(const char *format) {
  for (size_t i = 0; i < TYPES; i++)
    if (strcmp(types[i].format, format) == 0 && types[i].type != DTYPE_BOOL) return types[i].type;
  return DTYPE_NONE;
}

const char *arrow_format(dtype type) {
  for (size_t i = 0; i < TYPES; i++)
    if (types[i].type == type) return types[i].format;
  return NULL;
}

static stow_status no_memory(void) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for an Arrow array");
}

/* ---- schemas ---- */

static void schema_free(struct ArrowSchema *s) {
  for (int64_t i = 0; s->children != NULL && i < s->n_children; i++) {
    if (s->children[i] != NULL) arrow_schema_release(s->children[i]);
    free(s->children[i]);
  }
  if (s->dictionary != NULL) arrow_schema_release(s->dictionary);
  free(s->dictionary);
  free(s->children);
  free((char *)(uintptr_t)s->format);
  free((char *)(uintptr_t)s->name);
  free((char *)(uintptr_t)s->metadata);
  s->release = NULL;
}

stow_status arrow_schema_make(struct ArrowSchema *s, const char *format, const char *name,
                              int64_t flags, size_t children) {
  *s = (struct ArrowSchema){.flags = flags, .release = schema_free};
  s->format = strdup(format);
  s->name = strdup(name != NULL ? name : "");
  s->children = children > 0 ? calloc(children, sizeof *s->children) : NULL;
  bool made = s->format != NULL && s->name != NULL && (children == 0 || s->children != NULL);
  for (size_t i = 0; made && i < children; i++) {
    s->children[i] = calloc(1, sizeof *s->children[i]);
    made = s->children[i] != NULL;
    s->n_children = (int64_t)i + 1;
  }
  if (made) return STOW_OK;
  schema_free(s);
  return no_memory();
}

stow_status arrow_schema_dictionary(struct ArrowSchema *s) {
  s->dictionary = calloc(1, sizeof *s->dictionary);
  return s->dictionary != NULL ? STOW_OK : no_memory();
}

/* Returns the size of metadata: an int32 count, then for each pair an int32 length and bytes,
 * twice. */
static size_t metadata_bytes(const char *metadata) {
  int32_t count, length;
  size_t at = sizeof count;
  memcpy(&count, metadata, sizeof count);
  for (int32_t i = 0; i < 2 * count; i++) {
    memcpy(&length, metadata + at, sizeof length);
    at += sizeof length + (size_t)length;
  }
  return at;
}

stow_status arrow_schema_copy(struct ArrowSchema *to, const struct ArrowSchema *from) {
  STOW_TRY(arrow_schema_make(to, from->format, from->name, from->flags, (size_t)from->n_children));
  stow_status status = STOW_OK;
  if (from->metadata != NULL) {
    size_t bytes = metadata_bytes(from->metadata);
    char *copy = malloc(bytes);
    if (copy != NULL) memcpy(copy, from->metadata, bytes);
    to->metadata = copy;
    if (copy == NULL) status = no_memory();
  }
  for (int64_t i = 0; status == STOW_OK && i < from->n_children; i++)
    status = arrow_schema_copy(to->children[i], from->children[i]);
  if (status == STOW_OK && from->dictionary != NULL) status = arrow_schema_dictionary(to);
  if (status == STOW_OK && from->dictionary != NULL)
    status = arrow_schema_copy(to->dictionary, from->dictionary);
  if (status != STOW_OK) schema_free(to);
  return status;
}

/* ---- arrays ---- */

static void array_free(struct ArrowArray *a) {
  for (int64_t i = 0; a->children != NULL && i < a->n_children; i++) {
    if (a->children[i] != NULL) arrow_array_release(a->children[i]);
    free(a->children[i]);
  }
  if (a->dictionary != NULL) arrow_array_release(a->dictionary);
  free(a->dictionary);
  free(a->children);
  for (int64_t i = 0; a->buffers != NULL && i < a->n_buffers; i++)
    free((void *)(uintptr_t)a->buffers[i]);
  free(a->buffers);
  a->release = NULL;
}

stow_status arrow_array_make(struct ArrowArray *a, int64_t length, size_t buffers,
                             size_t children) {
  *a = (struct ArrowArray){.length = length, .release = array_free};
  a->buffers = calloc(buffers, sizeof *a->buffers);
  a->children = children > 0 ? calloc(children, sizeof *a->children) : NULL;
  bool made = a->buffers != NULL && (children == 0 || a->children != NULL);
  a->n_buffers = made ? (int64_t)buffers : 0;
  for (size_t i = 0; made && i < children; i++) {
    a->children[i] = calloc(1, sizeof *a->children[i]);
    made = a->children[i] != NULL;
    a->n_children = (int64_t)i + 1;
  }
  if (made) return STOW_OK;
  array_free(a);
  return no_memory();
}

stow_status arrow_array_dictionary(struct ArrowArray *a) {
  a->dictionary = calloc(1, sizeof *a->dictionary);
  return a->dictionary != NULL ? STOW_OK : no_memory();
}

/* Allocates a buffer, aligned to the 64 bytes that Arrow recommends and never NULL, because some
 * readers fail on NULL. */
void *arrow_buffer(struct ArrowArray *a, size_t number, size_t bytes) {
  void *made = NULL;
  if (posix_memalign(&made, 64, bytes > 0 ? bytes : 1) != 0) made = NULL;
  if (made == NULL) no_memory();
  a->buffers[number] = made;
  return made;
}

void arrow_schema_release(struct ArrowSchema *s) {
  if (s->release != NULL) s->release(s);
}

void arrow_array_release(struct ArrowArray *a) {
  if (a->release != NULL) a->release(a);
}

void arrow_stream_release(struct ArrowArrayStream *s) {
  if (s->release != NULL) s->release(s);
}

int arrow_errno(stow_status status) {
  switch (status) {
  case STOW_OK: return 0;
  case STOW_ERR_HOST_MEMORY: return ENOMEM;
  case STOW_ERR_IO: return EIO;
  case STOW_ERR_UNSUPPORTED: return ENOSYS;
  default: return EINVAL;
  }
}

/* The destructor runs while Python may have an exception set, when no Python code may run: so it is
 * C. The function is looked up because the library does not link with Python. */
void stow_arrow_capsule_free(void *capsule) {
  void *(*get)(void *, const char *) = NULL;
  void *found = dlsym(RTLD_DEFAULT, "PyCapsule_GetPointer");
  memcpy(&get, &found, sizeof get);
  struct ArrowArrayStream *stream =
      get != NULL && capsule != NULL ? get(capsule, "arrow_array_stream") : NULL;
  if (stream == NULL) return;
  arrow_stream_release(stream);
  free(stream);
}
