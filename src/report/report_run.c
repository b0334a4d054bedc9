/* Report run: the traces in the folder of a run (report_set.h).
 *
 * Each process left PID.stow, PID.ring or both; a PyTorch that ran out of memory also left
 * PID.pickle, its own view. A folder that ranks share has one folder of these for each. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advise/explain_run.h"
#include "base/status.h"
#include "recordings/recording_file.h"
#include "recordings/run_trace.h"
#include "report/line_profile.h"
#include "report/report_set.h"
#include "run/folder.h"
#include "run/protocol.h"

#define RECORDING_BYTES (UINT64_C(8) << 30) /* limit in memory for each */

static const char *const ENDINGS[] = {RUN_STOW, RUN_RING, RUN_PICKLE};

/* Returns the length of the process's name in a trace's file name; 0: it is not a trace. */
static size_t stem_length(const char *name) {
  for (size_t i = 0; i < sizeof ENDINGS / sizeof *ENDINGS; i++)
    if (run_has_ending(name, ENDINGS[i])) return strlen(name) - strlen(ENDINGS[i]);
  return 0;
}

static int is_trace(const struct dirent *entry) {
  return stem_length(entry->d_name) > 0;
}

static int is_rank(const struct dirent *entry) {
  size_t prefix = strlen(RUN_RANK);
  return strncmp(entry->d_name, RUN_RANK, prefix) == 0 && entry->d_name[prefix] != '\0' &&
         strspn(entry->d_name + prefix, "0123456789") == strlen(entry->d_name + prefix);
}

static void free_entries(struct dirent **entries, int count) {
  for (int i = 0; i < count; i++) free(entries[i]);
  if (count >= 0) free(entries);
}

/* Reads the trace of a process; if it has none, PyTorch's view of its end. */
static stow_status read_process(recording *r, const char *folder, const char *process) {
  char ring[PATH_MAX], file[PATH_MAX], view[PATH_MAX];
  bool traced = (run_process_path(ring, folder, process, RUN_RING) && access(ring, R_OK) == 0) ||
                (run_process_path(file, folder, process, RUN_STOW) && access(file, R_OK) == 0);
  recording_init(r, RECORDING_BYTES);
  if (traced) return run_trace_read(r, folder, process);
  if (!run_process_path(view, folder, process, RUN_PICKLE))
    return stow_fail(STOW_ERR_IO, "the path of the run's folder is too long: %.200s", folder);
  return run_trace_file(r, view, KIND_AUTO);
}

static bool has_allocation(const recording *r) {
  for (size_t i = 0; i < r->event_count; i++)
    if (r->events[i].kind == EVENT_ALLOC || r->events[i].kind == EVENT_SEGMENT_ALLOC) return true;
  return r->segment_count > 0;
}

/* ---- what is beside the traces ---- */

static stow_status read_host(host_curve *out, const host_record *h) {
  *out = (host_curve){.limit_bytes = h->limit_bytes, .peak_bytes = h->peak_bytes};
  if (h->started_wall_ns == 0 || (h->sample_count == 0 && h->peak_bytes == 0)) return STOW_OK;
  out->points = malloc((h->sample_count + 1) * sizeof *out->points);
  if (out->points == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "report: no host memory");
  /* A run that ended before its first sample has only the kernel's figure for its peak. */
  if (h->sample_count == 0)
    out->points[out->count++] = (host_point){h->started_wall_ns, h->peak_bytes};
  for (size_t i = 0; i < h->sample_count; i++)
    out->points[out->count++] =
        (host_point){h->started_wall_ns + h->samples[i].time_ms * 1000000, h->samples[i].bytes};
  return STOW_OK;
}

/* Fills the memory by line, if the run was one of --profile. */
static stow_status read_profile(buffer *out, const char *folder, const host_record *h) {
  line_profile p;
  stow_status status = line_profile_read(&p, folder);
  if (status == STOW_OK && p.processes > 0) status = line_profile_page(&p, h->started_wall_ns, out);
  line_profile_free(&p);
  return status;
}

/* Fills the explanation, the host memory and the memory by line of the run. */
static stow_status read_beside(report_source *more, const char *folder, const char *name) {
  *more = (report_source){
      .name = strdup(name), .why = BUFFER_INIT, .headline = BUFFER_INIT, .profile = BUFFER_INIT};
  run_explanation *story = calloc(1, sizeof *story);
  if (more->name == NULL || story == NULL) {
    free(story);
    return stow_fail(STOW_ERR_HOST_MEMORY, "report: no host memory");
  }
  stow_status status = run_explanation_read(story, folder);
  if (status == STOW_OK) status = explanation_json(&story->says, &more->why);
  if (status == STOW_OK && story->says.headline.data != NULL) {
    buffer_text(&more->headline, story->says.headline.data);
    status = more->headline.status;
  }
  if (status == STOW_OK) status = read_host(&more->host, &story->host);
  if (status == STOW_OK) status = read_profile(&more->profile, folder, &story->host);
  run_explanation_free(story);
  free(story);
  return status;
}

/* Adds one event for each sample of a run without a trace, so that the samples have a time axis. */
static stow_status make_times(recording *r, const host_curve *host) {
  stow_status status = recording_add_fact(r, "clock", "wall");
  for (size_t i = 0; i < host->count && status == STOW_OK; i++) {
    event e = {.kind = EVENT_SNAPSHOT, .time_ns = host->points[i].wall_ns};
    status = recording_add_event(r, &e, &(origin){0});
  }
  return status;
}

static stow_status add_host_only(report_set *s, const char *folder, const char *name) {
  report_source more;
  stow_status status = read_beside(&more, folder, name);
  if (status == STOW_OK && more.host.count == 0)
    status = stow_fail(STOW_ERR_NOT_FOUND,
                       "%s: the run left no trace; record one with: stowage run --record run.stow "
                       "-- COMMAND",
                       folder);
  if (status == STOW_OK && (more.own = calloc(1, sizeof *more.own)) == NULL)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "report: no host memory");
  if (status == STOW_OK) {
    recording_init(more.own, RECORDING_BYTES);
    status = make_times(more.own, &more.host);
  }
  if (status == STOW_OK) return report_set_put(s, more.own, &more);
  report_source_free(&more);
  return status;
}

/* ---- the folder ---- */

static stow_status add_process(report_set *s, const char *folder, const char *process,
                               const char *name) {
  recording *own = calloc(1, sizeof *own);
  report_source more = {0};
  if (own == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "report: no host memory");
  stow_status status = read_process(own, folder, process);
  bool empty = status == STOW_OK && !has_allocation(own);
  if (status == STOW_OK && !empty) status = read_beside(&more, folder, name);
  more.own = own;
  if (status == STOW_OK && !empty) return report_set_put(s, own, &more);
  report_source_free(&more);
  return status;
}

/* Adds the processes of one folder; `rank` is its number, "" outside of a job. */
static stow_status add_folder(report_set *s, const char *folder, const char *rank) {
  struct dirent **entries;
  run_end end;
  bool ended;
  STOW_TRY(run_folder_read_end(folder, &end, &ended));
  ended = ended && end.command[0] != '\0';
  size_t before = s->recording_count;
  int count = scandir(folder, &entries, is_trace, versionsort);
  if (count < 0) return stow_fail(STOW_ERR_NOT_FOUND, "%.400s: %s", folder, strerror(errno));
  stow_status status = STOW_OK;
  char done[NAME_MAX + 1] = "";
  for (int i = 0; i < count && status == STOW_OK; i++) {
    char process[NAME_MAX + 1], name[NAME_MAX + sizeof end.command + 8];
    snprintf(process, sizeof process, "%.*s", (int)stem_length(entries[i]->d_name),
             entries[i]->d_name);
    if (strcmp(process, done) == 0) continue; /* its file and its ring are one trace */
    memcpy(done, process, sizeof done);
    if (s->recording_count == REPORT_SET_RECORDINGS_MAX) {
      s->traces_left_out++;
      continue;
    }
    if (rank[0] != '\0')
      snprintf(name, sizeof name, "rank %s", rank);
    else if (strncmp(process, RUN_RANK, strlen(RUN_RANK)) == 0)
      snprintf(name, sizeof name, "rank %s", process + strlen(RUN_RANK));
    else if (ended)
      snprintf(name, sizeof name, "%s (%s)", end.command, process);
    else
      snprintf(name, sizeof name, "process %s", process);
    status = add_process(s, folder, process, name);
    /* A process that was killed early can leave a trace without a first chunk. */
    if (status == STOW_ERR_FORMAT) status = STOW_OK;
  }
  free_entries(entries, count);
  if (status == STOW_ERR_NOT_FOUND) /* traces, but nothing that `stowage run` writes */
    return stow_fail(
        STOW_ERR_NOT_FOUND,
        "%.400s: not the folder of a `stowage run`; name the recordings in it: stowage "
        "report %.400s/*",
        folder, folder);
  if (status != STOW_OK || s->recording_count > before) return status;
  char name[sizeof end.command];
  if (rank[0] != '\0')
    snprintf(name, sizeof name, "rank %.40s", rank);
  else
    snprintf(name, sizeof name, "%s", ended ? end.command : "the run");
  return add_host_only(s, folder, name);
}

stow_status report_set_add_run(report_set *s, const char *folder) {
  struct dirent **ranks;
  int count = scandir(folder, &ranks, is_rank, versionsort);
  if (count < 0) return stow_fail(STOW_ERR_NOT_FOUND, "%.400s: %s", folder, strerror(errno));
  if (count == 0) {
    free_entries(ranks, count);
    return add_folder(s, folder, "");
  }
  stow_status status = STOW_OK;
  for (int i = 0; i < count && status == STOW_OK; i++) {
    char path[PATH_MAX];
    if (s->recording_count == REPORT_SET_RECORDINGS_MAX)
      s->traces_left_out++;
    else if (run_path(path, folder, ranks[i]->d_name)) {
      status = add_folder(s, path, ranks[i]->d_name + strlen(RUN_RANK));
      if (status == STOW_ERR_NOT_FOUND) status = STOW_OK; /* a rank without a trace */
    }
  }
  free_entries(ranks, count);
  if (status == STOW_OK && s->count == 0)
    status = stow_fail(STOW_ERR_NOT_FOUND,
                       "%s: no rank of the run left a trace; record with: stowage run --record "
                       "run.stow -- COMMAND",
                       folder);
  return status;
}
