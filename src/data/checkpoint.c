/* Checkpoint: see checkpoint.h. The file: magic, key, the two files, then each step's number,
 * position and state, then a checksum. */
#include "data/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/newfile.h"
#include "base/variables.h"
#include "files/outfile.h"

#define MAGIC    UINT64_C(0x32656d7573657220) /* " resume2" */
#define EVERY_NS UINT64_C(2000000000)

/* ---- reading ---- */

static bool take(FILE *file, void *to, size_t bytes, uint64_t *sum) {
  if (bytes > 0 && fread(to, bytes, 1, file) != 1) return false;
  *sum = hash_bytes(to, bytes, *sum);
  return true;
}

static bool take_step(FILE *file, checkpoint_step *s, uint64_t *sum) {
  uint64_t head[3];
  if (!take(file, head, sizeof head, sum) || head[2] > CHECKPOINT_STATE_MAX) return false;
  *s = (checkpoint_step){.step = head[0], .place = head[1], .bytes = head[2], .capacity = head[2]};
  s->state = malloc(s->bytes + 1);
  return s->state != NULL && take(file, s->state, s->bytes, sum);
}

static void forget(checkpoint *c) {
  for (size_t i = 0; i < CHECKPOINT_STEPS_MAX; i++) {
    free(c->steps[i].state);
    c->steps[i] = (checkpoint_step){0};
  }
  memset(c->files, 0, sizeof c->files);
}

/* Returns whether that file is still there and has not shrunk. */
static bool still_there(const char *path, const checkpoint_file *was) {
  struct stat st;
  if (was->inode == 0) return true;
  return lstat(path, &st) == 0 && (uint64_t)st.st_ino == was->inode &&
         (uint64_t)st.st_size >= was->bytes;
}

/* Loads the checkpoint; any difference from what was written counts as none. */
static bool load(checkpoint *c) {
  uint64_t magic = 0, key[8], sum = 0, ignored = 0, expected = 1;
  char partial[PATH_MAX];
  snprintf(partial, sizeof partial, "%s.partial", c->out);
  int fd = newfile_find(AT_FDCWD, c->path); /* rejects a file that another user planted */
  FILE *file = fd >= 0 ? fdopen(fd, "rb") : NULL;
  if (file == NULL && fd >= 0) close(fd);
  if (file == NULL) return false;
  bool fine = take(file, &magic, sizeof magic, &sum) && magic == MAGIC &&
              take(file, key, sizeof key, &sum) && memcmp(key, c->key, sizeof key) == 0 &&
              take(file, c->files, sizeof c->files, &sum);
  for (size_t i = 0; i < CHECKPOINT_STEPS_MAX && fine; i++)
    fine = take_step(file, &c->steps[i], &sum);
  fine = fine && take(file, &expected, sizeof expected, &ignored) && expected == sum;
  fclose(file);
  fine = fine && still_there(partial, &c->files[0]) && still_there(c->scratch_path, &c->files[1]);
  if (!fine) forget(c);
  return fine;
}

/* ---- the files of all runs ---- */

/* Fails if another run writes one of the files next to the output, before anything is removed. */
static stow_status refuse_taken(const char *out) {
  static const char *const endings[] = {".partial", ".scratch", ".ranks/0.scratch"};
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", out, endings[i]);
    if (outfile_taken(path))
      return stow_fail(STOW_ERR_STATE, "%s: another run is writing to it (%s)", out, path);
  }
  return STOW_OK;
}

/* Returns false if the file still exists. */
static bool take_away(int folder, const char *name) {
  return unlinkat(folder, name, 0) == 0 || faccessat(folder, name, F_OK, 0) != 0;
}

/* Removes NUMBER.resume, NUMBER.resume~ and NUMBER.scratch in the folder of the ranks. */
static bool sweep_folder(const char *path, bool scratches) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
  if (folder == NULL && fd >= 0) close(fd);
  if (folder == NULL) return errno == ENOTDIR || access(path, F_OK) != 0;
  bool fine = true;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    const char *ending = entry->d_name + strspn(entry->d_name, "0123456789");
    if (strncmp(ending, ".resume", 7) == 0 || (scratches && strcmp(ending, ".scratch") == 0))
      fine = take_away(dirfd(folder), entry->d_name) && fine;
  }
  closedir(folder);
  if (scratches) rmdir(path);
  return fine;
}

/* Removes the checkpoints of every run to `out`, with any number of ranks, and their files. */
static bool sweep(const char *out, bool scratches) {
  static const char *const endings[] = {".resume", ".resume~", ".scratch"};
  char path[PATH_MAX];
  bool fine = true;
  for (int i = 0; i < 2 + scratches; i++) {
    snprintf(path, sizeof path, "%s%s", out, endings[i]);
    fine = take_away(AT_FDCWD, path) && fine;
  }
  snprintf(path, sizeof path, "%s.ranks", out);
  return sweep_folder(path, scratches) && fine;
}

/* ---- beginning and end ---- */

static stow_status name_files(checkpoint *c, const team *t) {
  size_t room = strlen(c->out) + 48;
  c->path = malloc(room);
  c->scratch_path = malloc(room);
  if (c->path == NULL || c->scratch_path == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", c->out);
  char rank[32] = "";
  if (!team_alone(t)) snprintf(rank, sizeof rank, ".ranks/%u", t->rank);
  snprintf(c->path, room, "%s%s.resume", c->out, rank);
  snprintf(c->scratch_path, room, "%s%s.scratch", c->out, rank);
  return STOW_OK;
}

/* Creates the folder of the ranks. If that fails for space or permissions, the first file written
 * into it reports it; a folder of another user, or a link to one, is rejected here. */
static stow_status make_folder(const char *out) {
  char path[PATH_MAX];
  struct stat st;
  snprintf(path, sizeof path, "%s.ranks", out);
  (void)!mkdir(path, 0777);
  if (lstat(path, &st) != 0 || (!S_ISLNK(st.st_mode) && st.st_uid == geteuid())) return STOW_OK;
  return stow_fail(STOW_ERR_IO, "%s: cannot write: %s is not a folder of this user; remove it", out,
                   path);
}

static stow_status begin(checkpoint *c, team *t, bool resume) {
  stow_status status = outfile_check(c->out); /* so that every name below fits its buffer */
  if (status == STOW_OK) status = name_files(c, t);
  if (status == STOW_OK && c->leads) status = refuse_taken(c->out);
  STOW_TRY(team_agree(t, status));
  bool mine = resume && load(c);
  c->resumed = !team_all(t, !mine);
  if (!c->resumed && c->leads && !sweep(c->out, false))
    status = stow_fail(
        STOW_ERR_IO,
        "%s: the checkpoint of an earlier run next to it (.resume, .ranks) cannot be removed",
        c->out);
  STOW_TRY(team_agree(t, status)); /* no rank writes a checkpoint before this */
  return team_alone(t) ? STOW_OK : team_agree(t, make_folder(c->out));
}

stow_status checkpoint_open(checkpoint *c, const char *out, const uint64_t key[7], team *t,
                            bool resume) {
  *c = (checkpoint){.out = out,
                    .leads = team_leads(t),
                    .file = -1,
                    .scratch = -1,
                    .every_ns = EVERY_NS,
                    .saved_ns = clock_ns()};
  memcpy(c->key, key, 7 * sizeof *key);
  c->key[7] = team_alone(t) ? 1 : t->size | (uint64_t)t->rank << 32;
  const char *every = getenv(ENV_CHECKPOINT_MS); /* for tests */
  if (every != NULL) c->every_ns = strtoull(every, NULL, 10) * 1000000;
  stow_status status = begin(c, t, resume);
  if (status != STOW_OK) checkpoint_close(c, false);
  return status;
}

void checkpoint_close(checkpoint *c, bool done) {
  if (done && c->leads) sweep(c->out, true);
  free(c->path);
  free(c->scratch_path);
  forget(c);
  *c = (checkpoint){.file = -1, .scratch = -1};
}

bool checkpoint_held(const checkpoint *c) {
  return c != NULL && (c->resumed || c->count > 0);
}

static checkpoint_step *find(const checkpoint *c, uint64_t step) {
  for (size_t i = 0; c != NULL && i < CHECKPOINT_STEPS_MAX; i++)
    if (c->steps[i].step == step) return (checkpoint_step *)(uintptr_t)&c->steps[i];
  return NULL;
}

const void *checkpoint_get(const checkpoint *c, uint64_t step, uint64_t *place, size_t *bytes) {
  const checkpoint_step *s = find(c, step);
  *place = s != NULL ? s->place : 0;
  *bytes = s != NULL ? (size_t)s->bytes : 0;
  return s != NULL ? s->state : NULL;
}

bool checkpoint_find(const checkpoint *c, uint64_t step, uint64_t *place, void *state,
                     size_t bytes) {
  uint64_t at;
  size_t had;
  const void *kept = checkpoint_get(c, step, &at, &had);
  if (kept == NULL || had != bytes) return false;
  *place = at;
  if (bytes > 0) memcpy(state, kept, bytes);
  return true;
}

/* ---- writing ---- */

static stow_status write_file(const checkpoint *c, const buffer *b) {
  char temporary[PATH_MAX];
  snprintf(temporary, sizeof temporary, "%s~", c->path);
  int fd = newfile_own(AT_FDCWD, temporary, 0, 0666);
  bool fine = fd >= 0 && ftruncate(fd, 0) == 0 &&
              write(fd, b->data, b->length) == (ssize_t)b->length && fsync(fd) == 0;
  if (fd >= 0) fine = close(fd) == 0 && fine;
  fine = fine && rename(temporary, c->path) == 0;
  if (fine) return STOW_OK;
  int why = errno;
  unlink(temporary);
  return stow_fail(STOW_ERR_IO, "%s: cannot write: %s", c->path, newfile_reason(why));
}

static void put(buffer *b, const void *bytes, size_t count, uint64_t *sum) {
  buffer_append(b, bytes, count);
  *sum = hash_bytes(bytes, count, *sum);
}

/* Flushes a file and records its length. A file that is not open yet stays as it was found. */
static stow_status bring_to_disk(const checkpoint *c, int fd, checkpoint_file *is) {
  struct stat st;
  if (fd < 0) return STOW_OK;
  if (fdatasync(fd) != 0 || fstat(fd, &st) != 0)
    return stow_fail(STOW_ERR_IO, "%s: cannot flush its files to disk: %s", c->path,
                     strerror(errno));
  *is = (checkpoint_file){(uint64_t)st.st_ino, (uint64_t)st.st_size};
  return STOW_OK;
}

stow_status checkpoint_save(checkpoint *c) {
  if (c == NULL) return STOW_OK;
  STOW_TRY(bring_to_disk(c, c->file, &c->files[0]));
  STOW_TRY(bring_to_disk(c, c->scratch, &c->files[1]));
  buffer b = BUFFER_INIT;
  uint64_t magic = MAGIC, sum = 0;
  put(&b, &magic, sizeof magic, &sum);
  put(&b, c->key, sizeof c->key, &sum);
  put(&b, c->files, sizeof c->files, &sum);
  for (size_t i = 0; i < CHECKPOINT_STEPS_MAX; i++) {
    const checkpoint_step *s = &c->steps[i];
    uint64_t head[3] = {s->step, s->place, s->bytes};
    put(&b, head, sizeof head, &sum);
    put(&b, s->state != NULL ? s->state : "", s->bytes, &sum);
  }
  buffer_append(&b, (const char *)&sum, sizeof sum);
  stow_status status = b.status != STOW_OK ? b.status : write_file(c, &b);
  buffer_free(&b);
  c->saved_ns = clock_ns();
  c->count++;
  return status;
}

bool checkpoint_due(const checkpoint *c) {
  return c != NULL && clock_ns() - c->saved_ns >= c->every_ns;
}

bool checkpoint_worth(const checkpoint *c) {
  return c != NULL && (c->resumed || c->count > 0 || clock_ns() - c->saved_ns >= c->every_ns / 4);
}

/* Returns the step's record, or a free one, with room for `bytes`; NULL if there is none. */
static checkpoint_step *room_for(checkpoint *c, uint64_t step, size_t bytes) {
  checkpoint_step *s = find(c, step);
  if (s == NULL) s = find(c, 0);
  if (s == NULL || bytes > CHECKPOINT_STATE_MAX) return NULL;
  if (bytes > s->capacity || s->state == NULL) {
    size_t capacity = s->capacity * 2 > bytes ? s->capacity * 2 : bytes;
    char *more = realloc(s->state, capacity + 1);
    if (more == NULL) return NULL;
    s->state = more;
    s->capacity = capacity;
  }
  if (s->step == 0) s->place = s->bytes = 0;
  s->step = step;
  return s;
}

stow_status checkpoint_note(checkpoint *c, uint64_t step, uint64_t place, const void *state,
                            size_t bytes) {
  if (c == NULL) return STOW_OK;
  checkpoint_step *s = room_for(c, step, bytes);
  if (s == NULL) return checkpoint_clear(c, step), STOW_OK;
  if (bytes > 0) memcpy(s->state, state, bytes);
  s->place = place;
  s->bytes = bytes;
  return checkpoint_due(c) ? checkpoint_save(c) : STOW_OK;
}

stow_status checkpoint_append(checkpoint *c, uint64_t step, const void *record, size_t bytes) {
  if (c == NULL) return STOW_OK;
  const checkpoint_step *had = find(c, step);
  checkpoint_step *s = room_for(c, step, (had != NULL ? had->bytes : 0) + bytes);
  if (s == NULL) return STOW_OK;
  memcpy(s->state + s->bytes, record, bytes);
  s->bytes += bytes;
  s->place++;
  return checkpoint_due(c) ? checkpoint_save(c) : STOW_OK;
}

void checkpoint_clear(checkpoint *c, uint64_t step) {
  checkpoint_step *s = find(c, step);
  if (s == NULL) return;
  free(s->state);
  *s = (checkpoint_step){0};
}

stow_status checkpoint_drop(checkpoint *c) {
  if (c == NULL) return STOW_OK;
  bool there = c->resumed || c->count > 0;
  forget(c);
  c->resumed = false;
  return there ? checkpoint_save(c) : STOW_OK;
}
