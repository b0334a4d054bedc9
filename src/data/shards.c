/* Shards: see shards.h. Finds the files that a path names. */
#include "data/shards.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "files/remote.h"

static stow_status no_memory(void) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the names of files");
}

/* Returns whether it names one file, or one array of a file. */
static bool is_one(const char *path) {
  struct stat st;
  const char *member;
  char file[4096];
  if (remote_is(path) || stat(path, &st) == 0) return true;
  if (strchr(path, '\n') != NULL) return false;
  return array_split(path, file, sizeof file, &member);
}

bool shards_are(const char *path) {
  return strpbrk(path, "*?[\n") != NULL && !is_one(path);
}

static stow_status add_path(shards *s, const char *path, const char *member) {
  char **more = realloc(s->paths, (s->count + 1) * sizeof *more), *made = NULL;
  if (more == NULL) return no_memory();
  s->paths = more;
  if (asprintf(&made, "%s%s", path, member) < 0) return no_memory();
  s->paths[s->count++] = made;
  return STOW_OK;
}

/* Adds the files that match, sorted by name. */
static stow_status add_matches(shards *s, const char *pattern, const char *member, size_t *found) {
  glob_t matches;
  *found = 0;
  int code = glob(pattern, 0, NULL, &matches);
  if (code == GLOB_NOMATCH) return STOW_OK;
  if (code != 0) return stow_fail(STOW_ERR_IO, "%s: cannot list the files that match", pattern);
  stow_status status = STOW_OK;
  for (size_t i = 0; i < matches.gl_pathc && status == STOW_OK; i++)
    status = add_path(s, matches.gl_pathv[i], member);
  *found = matches.gl_pathc;
  globfree(&matches);
  return status;
}

static stow_status add_pattern(shards *s, const char *pattern) {
  size_t found;
  STOW_TRY(add_matches(s, pattern, "", &found));
  const char *colon = strrchr(pattern, ':'); /* "part-*.npz:x" */
  if (found == 0 && colon != NULL) {
    char *file = strndup(pattern, (size_t)(colon - pattern));
    if (file == NULL) return no_memory();
    stow_status status = add_matches(s, file, colon, &found);
    free(file);
    STOW_TRY(status);
  }
  if (found > 0) return STOW_OK;
  return stow_fail(STOW_ERR_NOT_FOUND, "%s: no file matches this pattern", pattern);
}

stow_status shards_find(shards *s, const char *path) {
  *s = (shards){0};
  if (!shards_are(path)) return add_path(s, path, "");
  stow_status status = STOW_OK;
  for (const char *at = path; at != NULL && status == STOW_OK;) {
    const char *end = strchr(at, '\n');
    char *one = strndup(at, end != NULL ? (size_t)(end - at) : strlen(at));
    at = end != NULL ? end + 1 : NULL;
    if (one == NULL) return no_memory();
    bool pattern = strpbrk(one, "*?[") != NULL && !is_one(one);
    if (one[0] != '\0') status = pattern ? add_pattern(s, one) : add_path(s, one, "");
    free(one);
  }
  if (status == STOW_OK && s->count == 0) status = stow_fail(STOW_ERR_INVALID, "no file is named");
  return status;
}

void shards_free(shards *s) {
  for (size_t i = 0; i < s->count; i++) free(s->paths[i]);
  free(s->paths);
  *s = (shards){0};
}

const char *shards_title(const char *path, char *text, size_t size) {
  size_t more = 0, length = strcspn(path, "\n");
  for (const char *at = path + length; *at != '\0'; at++) more += *at == '\n';
  snprintf(text, size, "%.*s", (int)length, path);
  size_t used = strlen(text);
  if (more > 0) snprintf(text + used, size - used, " and %zu more file%s", more, text_s(more));
  return text;
}

const char *shards_name(const shards *s, char *text, size_t size) {
  if (s->count == 1)
    snprintf(text, size, "%s", s->paths[0]);
  else
    snprintf(text, size, "%s and %zu more file%s", s->paths[0], s->count - 1,
             s->count == 2 ? "" : "s");
  return text;
}
