/* Recording files: which reader a file is for. */
#include "formats/recording_file.h"

#include <string.h>

#include "formats/stow_file.h"
#include "formats/torch_snapshot.h"

#define MAX_WORK_DEF (UINT64_C(512) << 20)

static const struct kind {
  const char *name;
  const char *endings[4];
} kinds[KIND_COUNT] = {
    [KIND_AUTO] = {"auto", {NULL}},
    [KIND_STOW] = {"stow", {".stow"}},
    [KIND_SNAPSHOT] = {"snapshot", {".pickle", ".pkl"}},
    [KIND_RMM] = {"rmm", {NULL}},
    [KIND_MINIMALLOC] = {"minimalloc", {NULL}},
    [KIND_PERFETTO] = {"perfetto", {".json", ".perfetto"}},
    [KIND_TENSORBOARD] = {"tensorboard", {".tfevents"}},
    [KIND_CSV] = {"csv", {".csv"}},
};

const char *recording_kind_name(recording_kind kind) {
  return kind < KIND_COUNT ? kinds[kind].name : "?";
}

recording_kind recording_kind_named(const char *name) {
  recording_kind kind = KIND_AUTO;
  while (kind < KIND_COUNT && strcmp(kinds[kind].name, name) != 0) kind++;
  return kind;
}

recording_kind recording_kind_of_path(const char *path) {
  const char *base = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
  size_t length = strlen(base);
  if (length > 3 && strcmp(base + length - 3, ".gz") == 0) length -= 3;
  if (strstr(base, ".tfevents.") != NULL) return KIND_TENSORBOARD;
  for (int kind = KIND_STOW; kind < KIND_COUNT; kind++) {
    for (int i = 0; i < 4 && kinds[kind].endings[i] != NULL; i++) {
      size_t ending = strlen(kinds[kind].endings[i]);
      if (length > ending && memcmp(base + length - ending, kinds[kind].endings[i], ending) == 0)
        return (recording_kind)kind;
    }
  }
  return KIND_AUTO;
}

/* What the first bytes say. */
static recording_kind sniff(const input *in) {
  if (input_left(in) >= 8 && memcmp(in->at, STOWFILE_MAGIC, 8) == 0) return KIND_STOW;
  return input_left(in) > 0 && in->at[0] == 0x80 ? KIND_SNAPSHOT : KIND_AUTO;
}

stow_status recording_read_input(recording *r, input *in, recording_kind kind,
                                 uint64_t max_work_bytes) {
  if (max_work_bytes == 0) max_work_bytes = MAX_WORK_DEF;
  STOW_TRY(input_fill(in, 512));
  if (input_left(in) == 0) return stow_fail(STOW_ERR_FORMAT, "%s: the file is empty", in->name);
  if (kind == KIND_AUTO) kind = sniff(in);
  r->ended = true;
  switch (kind) {
  case KIND_STOW: return stowfile_read(r, in, max_work_bytes);
  case KIND_SNAPSHOT: return torch_snapshot_read(r, in, max_work_bytes);
  default:
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: begins with 0x%02x: neither a PyTorch snapshot pickle nor any other "
                     "recording known here; say which with --from",
                     in->name, in->at[0]);
  }
}

stow_status recording_read(recording *r, const char *path, recording_kind kind,
                           const recording_limits *limits) {
  input in;
  STOW_TRY(input_open(&in, path, limits != NULL ? &limits->input : NULL));
  stow_status status =
      recording_read_input(r, &in, kind, limits != NULL ? limits->max_work_bytes : 0);
  input_close(&in);
  if (status != STOW_OK) recording_free(r);
  return status;
}
