/* Recording files: chooses the reader for a file. */
#include "recordings/recording_file.h"

#include <string.h>
#include <strings.h>

#include "recordings/csv_trace.h"
#include "recordings/recording_write.h"
#include "recordings/stow_recording.h"
#include "recordings/torch_snapshot.h"

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
    [KIND_PFTRACE] = {"pftrace", {".pftrace", ".perfetto-trace"}},
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

/* Returns whether the first line has this heading. */
static bool has_heading(const char *line, size_t count, const char *heading) {
  size_t length = strlen(heading);
  for (size_t i = 0; i + length <= count; i++)
    if (strncasecmp(line + i, heading, length) == 0) return true;
  return false;
}

/* Detects the kind from the first bytes. */
static recording_kind sniff(const input *in) {
  const char *text = (const char *)in->at;
  size_t count = input_left(in) < 512 ? input_left(in) : 512;
  if (count >= 8 && memcmp(text, STOWFILE_MAGIC, 8) == 0) return KIND_STOW;
  if (in->at[0] == 0x80 || in->at[0] == '}' || in->at[0] == ']') return KIND_SNAPSHOT;
  const char *end = memchr(text, '\n', count);
  if (end != NULL) count = (size_t)(end - text);
  if (has_heading(text, count, "action") && has_heading(text, count, "pointer")) return KIND_RMM;
  if (has_heading(text, count, "lower") && has_heading(text, count, "upper"))
    return KIND_MINIMALLOC;
  return KIND_AUTO;
}

stow_status recording_sniff(recording_kind *kind, input *in) {
  *kind = KIND_AUTO;
  STOW_TRY(input_fill(in, 512));
  if (input_left(in) > 0) *kind = sniff(in);
  return STOW_OK;
}

stow_status recording_read_input(recording *r, input *in, recording_kind kind,
                                 uint64_t max_work_bytes) {
  if (max_work_bytes == 0) max_work_bytes = MAX_WORK_DEF;
  STOW_TRY(input_fill(in, 512));
  if (input_left(in) == 0) return stow_fail(STOW_ERR_FORMAT, "%s: the file is empty", in->name);
  if (kind == KIND_AUTO) kind = sniff(in);
  r->ended = true;
  switch (kind) {
  case KIND_STOW: return recording_read_stow(r, in, max_work_bytes);
  case KIND_SNAPSHOT: return torch_snapshot_read(r, in, max_work_bytes);
  case KIND_RMM: return rmm_log_read(r, in, max_work_bytes);
  case KIND_MINIMALLOC: return minimalloc_read(r, in, max_work_bytes);
  case KIND_AUTO:
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: begins with 0x%02x: not a .stow trace, PyTorch snapshot pickle, RMM log "
                     "or minimalloc CSV; `stowage run --record FILE -- COMMAND` records a trace",
                     in->name, in->at[0]);
  default:
    return stow_fail(STOW_ERR_UNSUPPORTED, "%s: %s can be written but not read", in->name,
                     recording_kind_name(kind));
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

static stow_status write_kind(const recording *r, outfile *out, recording_kind kind,
                              uint64_t *left_out) {
  switch (kind) {
  case KIND_STOW: return recording_write_stow(r, outfile_sink, out);
  case KIND_SNAPSHOT: return torch_snapshot_write(r, out, left_out);
  case KIND_PERFETTO: return perfetto_write(r, out, left_out);
  case KIND_PFTRACE: return pftrace_write(r, out, left_out);
  case KIND_TENSORBOARD: return tensorboard_write(r, out, left_out);
  case KIND_CSV: return csv_trace_write(r, out, left_out);
  default:
    return stow_fail(STOW_ERR_UNSUPPORTED, "%s can be read but not written",
                     recording_kind_name(kind));
  }
}

stow_status recording_write(const recording *r, const char *path, recording_kind kind,
                            uint64_t *left_out) {
  outfile out;
  if (left_out != NULL) *left_out = 0;
  if (kind == KIND_AUTO) kind = recording_kind_of_path(path);
  if (kind == KIND_AUTO)
    return stow_fail(
        STOW_ERR_INVALID,
        "%s: unknown ending; use .stow, .pickle, .json, .tfevents or .csv, or give --to", path);
  STOW_TRY(outfile_open(&out, path));
  stow_status status = write_kind(r, &out, kind, left_out);
  if (status == STOW_OK) return outfile_commit(&out);
  outfile_abandon(&out);
  return status;
}
