/* Checkpoint: see checkpoint.h. The file: magic, key, then each step's number, place and state,
 * then a sum of it all. */
#include "data/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/hash.h"

#define MAGIC    UINT64_C(0x31656d7573657220) /* " resume1" */
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
  *s = (checkpoint_step){.step = head[0], .place = head[1], .bytes = head[2]};
  s->state = malloc(s->bytes + 1);
  return s->state != NULL && take(file, s->state, s->bytes, sum);
}

static void forget(checkpoint *c) {
  for (size_t i = 0; i < CHECKPOINT_STEPS_MAX; i++) {
    free(c->steps[i].state);
    c->steps[i] = (checkpoint_step){0};
  }
}

/* Anything unlike what was written, and it is as if there were none. */
static bool load(checkpoint *c) {
  uint64_t magic = 0, key[8], sum = 0, ignored = 0, expected = 1;
  FILE *file = fopen(c->path, "rbe");
  if (file == NULL) return false;
  bool fine = take(file, &magic, sizeof magic, &sum) && magic == MAGIC &&
              take(file, key, sizeof key, &sum) && memcmp(key, c->key, sizeof key) == 0;
  for (size_t i = 0; i < CHECKPOINT_STEPS_MAX && fine; i++)
    fine = take_step(file, &c->steps[i], &sum);
  fine = fine && take(file, &expected, sizeof expected, &ignored) && expected == sum;
  fclose(file);
  if (!fine) forget(c);
  return fine;
}

stow_status checkpoint_open(checkpoint *c, const char *out, const uint64_t key[8], bool resume) {
  *c = (checkpoint){.file = -1, .every_ns = EVERY_NS, .saved_ns = clock_ns()};
  size_t length = strlen(out);
  c->path = malloc(length + 16);
  if (c->path == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", out);
  snprintf(c->path, length + 16, "%s.resume", out);
  memcpy(c->key, key, sizeof c->key);
  const char *every = getenv("STOWAGE_CHECKPOINT_MS"); /* for tests */
  if (every != NULL) c->every_ns = strtoull(every, NULL, 10) * 1000000;
  c->resumed = resume && load(c);
  return STOW_OK;
}

void checkpoint_close(checkpoint *c, bool done) {
  if (done && c->path != NULL) unlink(c->path);
  free(c->path);
  forget(c);
  *c = (checkpoint){.file = -1};
}

bool checkpoint_find(const checkpoint *c, uint64_t step, uint64_t *place, void *state,
                     size_t bytes) {
  for (size_t i = 0; c != NULL && i < CHECKPOINT_STEPS_MAX; i++) {
    const checkpoint_step *s = &c->steps[i];
    if (s->step != step || s->bytes != bytes) continue;
    *place = s->place;
    memcpy(state, s->state, bytes);
    return true;
  }
  return false;
}

/* ---- writing ---- */

static stow_status write_file(const checkpoint *c, const buffer *b) {
  char temporary[4096];
  snprintf(temporary, sizeof temporary, "%s~", c->path);
  int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  bool fine = fd >= 0 && write(fd, b->data, b->length) == (ssize_t)b->length && fsync(fd) == 0;
  if (fd >= 0) fine = close(fd) == 0 && fine;
  fine = fine && rename(temporary, c->path) == 0;
  if (fine) return STOW_OK;
  int why = errno;
  unlink(temporary);
  return stow_fail(STOW_ERR_IO, "%s: cannot be written: %s", c->path, strerror(why));
}

static void put(buffer *b, const void *bytes, size_t count, uint64_t *sum) {
  buffer_append(b, bytes, count);
  *sum = hash_bytes(bytes, count, *sum);
}

static stow_status save(checkpoint *c) {
  if (c->file >= 0 && fdatasync(c->file) != 0)
    return stow_fail(STOW_ERR_IO, "%s: what it speaks of cannot be brought to the disk: %s",
                     c->path, strerror(errno));
  buffer b = BUFFER_INIT;
  uint64_t magic = MAGIC, sum = 0;
  put(&b, &magic, sizeof magic, &sum);
  put(&b, c->key, sizeof c->key, &sum);
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
  /* For tests: the worst that can happen, at a chosen moment. */
  const char *die = getenv("STOWAGE_DIE_AT_CHECKPOINT");
  if (status == STOW_OK && die != NULL && strtoull(die, NULL, 10) == c->count) raise(SIGKILL);
  return status;
}

bool checkpoint_due(const checkpoint *c) {
  return c != NULL && clock_ns() - c->saved_ns >= c->every_ns;
}

stow_status checkpoint_note(checkpoint *c, uint64_t step, uint64_t place, const void *state,
                            size_t bytes) {
  checkpoint_step *to = NULL;
  if (c == NULL) return STOW_OK;
  for (size_t i = 0; i < CHECKPOINT_STEPS_MAX && (to == NULL || to->step != step); i++)
    if (c->steps[i].step == step || (c->steps[i].step == 0 && to == NULL)) to = &c->steps[i];
  char *copy = bytes <= CHECKPOINT_STATE_MAX ? malloc(bytes + 1) : NULL;
  if (to == NULL || copy == NULL) {
    free(copy);
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no room for another step", c->path);
  }
  memcpy(copy, state, bytes);
  free(to->state);
  *to = (checkpoint_step){.step = step, .place = place, .bytes = bytes, .state = copy};
  return checkpoint_due(c) ? save(c) : STOW_OK;
}

stow_status checkpoint_drop(checkpoint *c) {
  if (c == NULL) return STOW_OK;
  bool there = c->resumed || c->count > 0;
  forget(c);
  c->resumed = false;
  return there ? save(c) : STOW_OK;
}
