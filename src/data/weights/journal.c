/* Journal: which tensors are complete in the output, for --resume.
 *
 * OUT.resume: a header with a key (what the job is), then one record for each complete tensor. A
 * record is written after the bytes it describes are on disk, at most every five seconds. It is
 * used only if the input, the options, the build and the partial files are the same. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stowage/version.h>

#include "base/clock.h"
#include "base/crc32.h"
#include "base/hash.h"
#include "base/newfile.h"
#include "data/weights/parts.h"

#define EVERY_NS UINT64_C(5000000000)

typedef struct start {
  char magic[8];
  uint64_t key;
  uint64_t chunk_values; /* the digests are sums over chunks of this length */
} start;

_Static_assert(sizeof(start) == WEIGHTS_JOURNAL_EMPTY, "the size that the command knows");

typedef struct record {
  uint64_t item, zeros, digest;
  quant_error error;
  uint64_t check; /* checksum of the fields before it */
} record;

struct journal {
  char path[PATH_MAX];
  int fd;
  uint64_t at; /* where the next record goes */
  buffer pending;
  uint64_t written_ns;
};

static uint64_t mix(uint64_t key, const void *bytes, size_t count) {
  return hash_bytes(bytes, count, key + 1);
}

static uint64_t mix_list(uint64_t key, const char *const *list, size_t count) {
  for (size_t i = 0; i < count; i++) key = mix(key, list[i], strlen(list[i]) + 1);
  return mix(key, &count, sizeof count);
}

static uint64_t key_of(const weights_job *j) {
  const weights_options *o = j->o;
  struct {
    uint64_t type, quantize, two_of_four, model, sparse, shard, join, allow;
    double prune;
  } said = {o->type,        o->quantize, o->prune_2_4, o->prune_model, o->sparse,
            o->shard_bytes, o->join,     o->allow_nan, o->prune};
  uint64_t key = mix(0, STOW_VERSION_TEXT, strlen(STOW_VERSION_TEXT));
  key = mix(key, &said, sizeof said);
  key = mix_list(key, o->include, o->include_count);
  key = mix_list(key, o->exclude, o->exclude_count);
  for (size_t i = 0; i < j->r->in.file_count; i++) {
    const source *s = &j->r->in.files[i].from;
    uint64_t file[] = {s->bytes, s->changed_ns, s->inode, s->device};
    key = mix(key, file, sizeof file);
  }
  for (size_t i = 0; i < j->r->file_count; i++)
    key = mix(key, j->r->files[i].name, strlen(j->r->files[i].name) + 1);
  return mix(key, &j->key, sizeof j->key);
}

/* Returns whether all partial files exist and have the right size. */
static bool partials_there(const weights_job *j) {
  for (size_t i = 0; i < j->r->file_count; i++) {
    char path[PATH_MAX];
    struct stat st;
    size_t length = strlen(j->out);
    while (length > 1 && j->out[length - 1] == '/') length--;
    int got = j->r->to_folder ? snprintf(path, sizeof path, "%.*s.partial/%s.partial", (int)length,
                                         j->out, j->r->files[i].name)
                              : snprintf(path, sizeof path, "%s.partial", j->out);
    if (got >= PATH_MAX || lstat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size != j->r->files[i].bytes)
      return false;
  }
  return true;
}

static bool read_records(journal *l, weights_job *j, uint64_t key) {
  start s;
  record one;
  if (pread(l->fd, &s, sizeof s, 0) != sizeof s || memcmp(s.magic, "STOWWGT1", 8) != 0 ||
      s.key != key || s.chunk_values != j->chunk_values || !partials_there(j))
    return false;
  l->at = sizeof s;
  while (pread(l->fd, &one, sizeof one, (off_t)l->at) == sizeof one) {
    if (one.check != crc32_add(0, &one, offsetof(record, check)) || one.item >= j->r->item_count)
      break;
    weights_item *item = &j->r->items[one.item];
    item->done = true;
    item->zeros = one.zeros;
    item->digest = one.digest;
    item->error = one.error;
    l->at += sizeof one;
  }
  return l->at > sizeof s;
}

static void path_of(char path[PATH_MAX], const char *out) {
  size_t length = strlen(out);
  while (length > 1 && out[length - 1] == '/') length--;
  snprintf(path, PATH_MAX, "%.*s.resume", (int)length, out);
}

bool journal_exists(const char *out) {
  char path[PATH_MAX];
  char magic[8];
  path_of(path, out);
  int fd = newfile_find(AT_FDCWD, path);
  bool is = fd >= 0 && pread(fd, magic, sizeof magic, 0) == sizeof magic &&
            memcmp(magic, "STOWWGT1", sizeof magic) == 0;
  if (fd >= 0) close(fd);
  return is;
}

uint64_t journal_chunk_values(const char *out) {
  char path[PATH_MAX];
  start s;
  path_of(path, out);
  int fd = newfile_find(AT_FDCWD, path);
  bool is = fd >= 0 && pread(fd, &s, sizeof s, 0) == sizeof s &&
            memcmp(s.magic, "STOWWGT1", sizeof s.magic) == 0;
  if (fd >= 0) close(fd);
  return is ? s.chunk_values : 0;
}

stow_status journal_open(journal **made, weights_job *j) {
  bool taken = false;
  journal *l = calloc(1, sizeof *l);
  *made = NULL;
  if (l == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  l->pending = BUFFER_INIT;
  path_of(l->path, j->out);
  l->fd = outfile_open_alone(l->path, j->o->resume, &taken);
  if (l->fd < 0) {
    stow_status status =
        taken ? stow_fail(STOW_ERR_STATE, "%s: another run is writing it (%s)", j->out, l->path)
              : stow_fail(STOW_ERR_IO, "%s: cannot be written: %s", l->path, strerror(errno));
    free(l);
    return status;
  }
  start s = {.magic = "STOWWGT1", .key = key_of(j), .chunk_values = j->chunk_values};
  j->r->resumed = j->o->resume && read_records(l, j, s.key);
  if (!j->r->resumed) {
    l->at = sizeof s;
    (void)!ftruncate(l->fd, 0);
    if (pwrite(l->fd, &s, sizeof s, 0) != sizeof s) {
      stow_status status =
          stow_fail(STOW_ERR_IO, "%s: cannot be written: %s", l->path, strerror(errno));
      journal_close(l, true);
      return status;
    }
  }
  l->written_ns = clock_ns();
  *made = l;
  return STOW_OK;
}

static stow_status write_pending(journal *l, const weights_job *j) {
  l->written_ns = clock_ns();
  if (l->pending.length == 0) return STOW_OK;
  for (size_t i = 0; i < j->r->file_count && !j->o->no_sync; i++)
    if (j->writers[i].fd >= 0 && fdatasync(j->writers[i].fd) != 0)
      return stow_fail(STOW_ERR_IO, "%s: cannot be written: %s", j->out, strerror(errno));
  ssize_t put = pwrite(l->fd, l->pending.data, l->pending.length, (off_t)l->at);
  if (put != (ssize_t)l->pending.length)
    return stow_fail(STOW_ERR_IO, "%s: cannot be written: %s", l->path, strerror(errno));
  l->at += l->pending.length;
  buffer_clear(&l->pending);
  return STOW_OK;
}

stow_status journal_add(journal *l, const weights_job *j, size_t index) {
  const weights_item *item = &j->r->items[index];
  record one = {.item = index, .zeros = item->zeros, .digest = item->digest, .error = item->error};
  one.check = crc32_add(0, &one, offsetof(record, check));
  STOW_TRY(buffer_append(&l->pending, &one, sizeof one));
  return clock_ns() - l->written_ns >= EVERY_NS ? write_pending(l, j) : STOW_OK;
}

stow_status journal_flush(journal *l, const weights_job *j) {
  return write_pending(l, j);
}

void journal_close(journal *l, bool done) {
  if (l == NULL) return;
  if (done) unlink(l->path);
  close(l->fd);
  buffer_free(&l->pending);
  free(l);
}
