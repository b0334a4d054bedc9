/* Report code: reads and writes the file. */
#include "shim/host/report_code.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cache.h"
#include "base/hash.h"
#include "base/newfile.h"

#define BYTES_MAX       ((off_t)4 << 20)
#define MARSHAL_VERSION 4 /* of Python 3.4 and later */

typedef struct head {
  uint64_t script, code; /* hashes */
} head;

static bool find(void *to, const char *name) {
  void *symbol = python_symbol(name);
  memcpy(to, &symbol, sizeof symbol);
  return symbol != NULL;
}

static bool file_path(char path[PATH_MAX], int version, bool make) {
  char leaf[64];
  snprintf(leaf, sizeof leaf, "python-report-%d", version);
  return cache_path(path, leaf, make);
}

static uint64_t script_hash(const char *text) {
  const char *(*version)(void); /* names the compiler and the build too */
  uint64_t seed = 1;
  if (find(&version, "Py_GetVersion")) seed = hash_bytes(version(), strlen(version()), seed);
  return hash_bytes(text, strlen(text), seed);
}

/* Reads a plain file of this user that nobody else can write. Returns NULL if there is none. */
static char *read_own(const char *path, size_t *bytes) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return NULL;
  bool good = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
              (info.st_mode & 022) == 0 && info.st_nlink == 1 &&
              info.st_size > (off_t)sizeof(head) && info.st_size <= BYTES_MAX;
  char *data = good ? malloc((size_t)info.st_size) : NULL;
  *bytes = 0;
  while (data != NULL && *bytes < (size_t)info.st_size) {
    ssize_t got = read(fd, data + *bytes, (size_t)info.st_size - *bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      free(data);
      data = NULL;
      break;
    }
    *bytes += (size_t)got;
  }
  close(fd);
  return data;
}

static python_object *read_code(int version, const char *text) {
  python_object *(*load)(const char *, ssize_t);
  char path[PATH_MAX];
  size_t bytes;
  head h;
  if (!find(&load, "PyMarshal_ReadObjectFromString") || !file_path(path, version, false))
    return NULL;
  char *data = read_own(path, &bytes);
  if (data == NULL) return NULL;
  memcpy(&h, data, sizeof h);
  const char *code = data + sizeof h;
  size_t length = bytes - sizeof h;
  python_object *object = NULL;
  if (h.script == script_hash(text) && h.code == hash_bytes(code, length, h.script))
    object = load(code, (ssize_t)length);
  free(data);
  return object;
}

static void keep_code(int version, const char *text, python_object *code) {
  python_object *(*dump)(python_object *, int);
  int (*bytes_of)(python_object *, char **, ssize_t *);
  void (*release)(python_object *);
  char path[PATH_MAX], *bytes;
  ssize_t length;
  if (!find(&dump, "PyMarshal_WriteObjectToString") ||
      !find(&bytes_of, "PyBytes_AsStringAndSize") || !find(&release, "Py_DecRef") ||
      !file_path(path, version, true))
    return;
  python_object *object = dump(code, MARSHAL_VERSION);
  if (object == NULL) return;
  char *data = bytes_of(object, &bytes, &length) == 0 && length > 0
                   ? malloc(sizeof(head) + (size_t)length)
                   : NULL;
  if (data != NULL) {
    head h = {.script = script_hash(text)};
    h.code = hash_bytes(bytes, (size_t)length, h.script);
    memcpy(data, &h, sizeof h);
    memcpy(data + sizeof h, bytes, (size_t)length);
    (void)newfile_write(path, data, sizeof h + (size_t)length);
    free(data);
  }
  release(object);
}

const python_store report_code_store = {.read = read_code, .keep = keep_code};
