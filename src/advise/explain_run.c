/* Explain run: chooses the best evidence among the files that the processes of a run left.
 *
 * If host memory ran out, it is the host record. For the device, PyTorch's own view is best
 * (PID.pickle, written when it ran out of memory), with the trace of its process if that has
 * PyTorch's blocks. Next comes the trace of a process that was refused memory (PID.stow, or its
 * ring if the run was killed), then the error text alone (PID.error). */
#include "advise/explain_run.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stowage/size.h>

#include "advise/host.h"
#include "advise/host_peak.h"
#include "base/entries.h"
#include "base/process.h"
#include "base/status.h"
#include "recordings/recording_file.h"
#include "recordings/run_trace.h"
#include "run/folder.h"
#include "run/ledger.h"
#include "run/protocol.h"

#define RECORDING_BYTES (UINT64_C(8) << 30)
#define ERROR_BYTES     ((size_t)1 << 20)
#define TRACES_MAX      64 /* examined for a failure */

/* ---- what is there ---- */

/* Returns the newest file with that ending; "" if there is none. */
static stow_status newest(const char *folder, const char *ending, char path[PATH_MAX]) {
  DIR *open = opendir(folder);
  struct timespec best = {0, 0};
  path[0] = '\0';
  if (open == NULL)
    return stow_fail(STOW_ERR_IO, "reading the folder %.400s: %s", folder, strerror(errno));
  stow_status status = STOW_OK;
  for (struct dirent *entry; (entry = next_entry(open, folder, &status)) != NULL;) {
    char at[PATH_MAX];
    struct stat info;
    if (!run_has_ending(entry->d_name, ending) ||
        snprintf(at, sizeof at, "%s/%s", folder, entry->d_name) >= (int)sizeof at)
      continue;
    if (stat(at, &info) != 0) {
      if (errno != ENOENT)
        status = stow_fail(STOW_ERR_IO, "%.400s: cannot stat: %s", at, strerror(errno));
      continue;
    }
    if (!S_ISREG(info.st_mode)) continue; /* opening a pipe would wait for a writer */
    bool later = info.st_mtim.tv_sec > best.tv_sec ||
                 (info.st_mtim.tv_sec == best.tv_sec && info.st_mtim.tv_nsec > best.tv_nsec);
    if (path[0] != '\0' && !later) continue;
    best = info.st_mtim;
    snprintf(path, PATH_MAX, "%s", at);
  }
  closedir(open);
  return status;
}

/* Reads the text of a file, up to a limit; empty if there is no file. */
static stow_status read_error(buffer *text, const char *path) {
  if (path[0] == '\0') return STOW_OK;
  FILE *file = fopen(path, "re");
  char part[4096];
  if (file == NULL) return stow_fail(STOW_ERR_IO, "%s: %s", path, strerror(errno));
  for (size_t got; text->length < ERROR_BYTES && (got = fread(part, 1, sizeof part, file)) > 0;)
    if (buffer_append(text, part, got) != STOW_OK) break;
  bool failed = ferror(file) != 0;
  int error = errno;
  fclose(file);
  if (failed) return stow_fail(STOW_ERR_IO, "%s: cannot read: %s", path, strerror(error));
  return text->status;
}

/* Adds the size of the host's memory, as the Python package writes it (message_host.c). */
static void add_host(run_explanation *s) {
  char size[STOW_SIZE_TEXT_MAX];
  if (s->host.total_bytes > 0 && strstr(s->error.data, "host memory in all: ") == NULL)
    buffer_printf(&s->error, "\nhost memory in all: %s\n",
                  stow_size_format(size, s->host.total_bytes));
}

/* Adds the largest object of the host, which an error text does not name. */
static void note_holder(run_explanation *s) {
  host_peak p;
  char size[STOW_SIZE_TEXT_MAX];
  if (s->host.object_count == 0 || host_peak_find(&p, &s->host) != STOW_OK || p.holder[0] == '\0')
    return;
  buffer_printf(&s->says.notes, "at the peak %s of host memory; largest: %s\n",
                stow_size_format(size, s->host.peak_bytes), p.holder);
}

static bool is_host(const explanation *x) {
  return x->findings.count > 0 && x->findings.list[0].id >= CAUSE_HOST_DATASET_WHOLE &&
         x->findings.list[0].id <= CAUSE_HOST_LIMIT;
}

/* ---- the sources ---- */

/* A damaged or missing file counts as absent. A file that could not be read (no host memory, an I/O
 * error) is a failure: it could change the answer. */
static stow_status unless_unread(stow_status status) {
  return status == STOW_ERR_HOST_MEMORY || status == STOW_ERR_IO ? status : STOW_OK;
}

/* Opens the run's ledger. Without one, or with one of another version, l->header stays NULL. */
static stow_status open_ledger(ledger *l, const char *folder) {
  char path[PATH_MAX];
  *l = (ledger){0};
  if (!run_path(path, folder, RUN_LEDGER) || (access(path, F_OK) != 0 && errno == ENOENT))
    return STOW_OK;
  return unless_unread(ledger_open(l, path));
}

/* A snapshot does not contain the run's limit; the ledger does. */
static stow_status add_limit(recording *r, const char *folder) {
  char text[32];
  ledger l;
  stow_status status = STOW_OK;
  if (recording_fact(r, "limit_bytes") != NULL) return STOW_OK;
  STOW_TRY(open_ledger(&l, folder));
  if (l.header == NULL) return STOW_OK;
  uint64_t limit = ledger_limit(&l, 0);
  snprintf(text, sizeof text, "%" PRIu64, limit);
  if (limit != LEDGER_UNLIMITED) status = recording_add_fact(r, "limit_bytes", text);
  ledger_close(&l);
  return status;
}

/* The process's own recording of its blocks shows what PyTorch's final view cannot: how memory
 * filled up. If PyTorch kept a history itself, that is as good. */
static stow_status add_trace(recording *view, const char *folder, const char *path) {
  char name[NAME_MAX + 1];
  const char *slash = strrchr(path, '/');
  recording trace;
  bool joined = false;
  for (size_t i = 0; i < view->event_count; i++)
    if (view->events[i].kind == EVENT_ALLOC) return STOW_OK;
  snprintf(name, sizeof name, "%.*s", (int)(strlen(slash + 1) - strlen(RUN_PICKLE)), slash + 1);
  recording_init(&trace, RECORDING_BYTES);
  stow_status status = run_trace_read(&trace, folder, name);
  if (status == STOW_OK)
    status = run_trace_join(&trace, view, &joined);
  else
    status = unless_unread(status);
  if (joined) {
    recording before = *view;
    *view = trace;
    trace = before;
  }
  recording_free(&trace);
  return status;
}

/* `with_error`: uses the error text too. Our own trace has its numbers already. */
static stow_status from_recording(run_explanation *s, bool with_error, bool *found) {
  explain_options options = {.message = with_error && s->error.length > 0 ? s->error.data : NULL,
                             .message_bytes = s->error.length};
  explanation_free(&s->says);
  STOW_TRY(explain_recording(&s->says, &s->record, &options));
  const findings *f = &s->says.findings;
  bool known = f->count > 0 && f->list[0].id != CAUSE_UNKNOWN;
  *found = s->says.evidence.failed || (s->says.evidence.refused && known);
  return STOW_OK;
}

static bool has_failure(const recording *r) {
  for (size_t i = r->event_count; i > 0; i--)
    if (r->events[i - 1].kind == EVENT_FAIL) return true;
  return false;
}

/* *may is false if the ledger shows that every refused request was served in the end. */
static stow_status may_have_run_out(const char *folder, bool *may) {
  ledger l;
  *may = true;
  STOW_TRY(open_ledger(&l, folder));
  if (l.header == NULL) return STOW_OK;
  *may = ledger_ran_out(&l);
  ledger_close(&l);
  return STOW_OK;
}

/* Returns whether a process had blocks of PyTorch. Then the error text shows whether the refused
 * request was PyTorch's. */
static bool has_framework(const recording *r) {
  bool blocks = false, segments = false;
  for (size_t i = 0; i < r->event_count && !(blocks && segments); i++) {
    blocks = blocks || r->events[i].kind == EVENT_ALLOC;
    segments = segments || r->events[i].kind == EVENT_SEGMENT_ALLOC ||
               r->events[i].kind == EVENT_SEGMENT_MAP;
  }
  return blocks && segments;
}

/* Returns the first trace of the folder that contains a failure. */
static stow_status from_traces(run_explanation *s, const char *folder, bool *found) {
  struct dirent **entries;
  int count = scandir(folder, &entries, NULL, alphasort);
  stow_status status =
      count >= 0 ? STOW_OK
                 : stow_fail(STOW_ERR_IO, "reading the folder %.400s: %s", folder, strerror(errno));
  for (int i = 0, looked = 0; i < count; i++) {
    const char *name = entries[i]->d_name;
    bool ring = run_has_ending(name, RUN_RING), trace = run_has_ending(name, RUN_STOW);
    if (!*found && status == STOW_OK && (ring || trace) && looked++ < TRACES_MAX) {
      char stem[NAME_MAX + 1];
      snprintf(stem, sizeof stem, "%.*s", (int)(strlen(name) - strlen(ring ? RUN_RING : RUN_STOW)),
               name);
      recording_free(&s->record);
      recording_init(&s->record, RECORDING_BYTES);
      status = run_trace_read(&s->record, folder, stem);
      if (status != STOW_OK)
        status = unless_unread(status);
      else if (has_failure(&s->record))
        status = from_recording(s, has_framework(&s->record), found);
    }
    free(entries[i]);
  }
  if (count >= 0) free(entries);
  return status;
}

/* ---- a run that did not run out ---- */

static void note_unwatched(explanation *x, const char *folder) {
  char path[PATH_MAX];
  if (run_path(path, folder, RUN_WATCH) && access(path, F_OK) != 0)
    buffer_text(&x->notes,
                "host memory was not watched: stowage run --ram-limit auto watches it\n");
}

/* Notes that the command passed a limit that was given before anything could end it. */
static void note_passed(explanation *x, const char *folder) {
  host_record *h = calloc(1, sizeof *h);
  char text[240];
  if (h != NULL && host_record_read(h, folder) == STOW_OK &&
      host_peak_say_limit(text, sizeof text, h))
    buffer_printf(&x->notes, "%s\n", text);
  free(h);
}

static stow_status say_none(run_explanation *s, const char *folder, bool known,
                            const run_end *end) {
  explanation *x = &s->says;
  char size[STOW_SIZE_TEXT_MAX], command[256] = "";
  ledger l;
  explanation_free(x);
  explanation_blank(x);
  if (known) snprintf(command, sizeof command, " (%s)", end->command);
  if (!known)
    buffer_printf(&x->headline, "The end of the run was not recorded: nothing shows that "
                                "it ran out of memory");
  else if (end->signal_number != 0)
    buffer_printf(&x->headline,
                  "The run%s was ended by signal %d; there is no sign that memory ran out", command,
                  end->signal_number);
  else if (end->code != 0)
    buffer_printf(&x->headline,
                  "The run%s ended with code %d; there is no sign that memory ran out", command,
                  end->code);
  else
    buffer_printf(&x->headline, "The run%s ended with code %d and did not run out of memory",
                  command, end->code);
  note_unwatched(x, folder);
  note_passed(x, folder);
  STOW_TRY(open_ledger(&l, folder));
  if (l.header == NULL) return STOW_OK;
  for (unsigned i = 0; i < LEDGER_DEVICES_MAX; i++) {
    uint64_t peak = atomic_load(&l.header->peak_vram_bytes[i]);
    if (peak > 0)
      buffer_printf(&x->notes, "device %u: at the peak %s\n", i, stow_size_format(size, peak));
  }
  ledger_close(&l);
  return STOW_OK;
}

static bool is_run(const char *folder) {
  static const char *const MARKS[] = {RUN_LEDGER, RUN_END, RUN_WATCH};
  bool here = false;
  for (size_t i = 0; i < sizeof MARKS / sizeof MARKS[0]; i++) {
    char path[PATH_MAX];
    here = here || (run_path(path, folder, MARKS[i]) && access(path, F_OK) == 0);
  }
  return here;
}

/* Returns whether host memory ran out. The kernel may have killed `stowage run` together with the
 * command, as it does with a whole control group: then there is no record of how it ended, and no
 * process is alive. */
static bool ran_out(const host_record *h, bool ended) {
  process p;
  /* A process of the Python package writes one when it runs out (python/stowage/_host.py). */
  if (strcmp(h->ended, "kernel") == 0 || strcmp(h->limit_from, "python") == 0) return true;
  bool cut = h->ended[0] == '\0' && !ended;
  for (size_t i = 0; cut && i < h->process_count; i++)
    cut = process_read(&p, h->processes[i].pid) == PROCESS_DEAD;
  return (cut || h->ended[0] != '\0') &&
         (h->peak_bytes >= h->limit_bytes / 10 * 8 || h->usable_bytes < h->limit_bytes / 10);
}

/* A trace without stacks does not show whether one huge request is a weight or a temporary. If the
 * traceback of the error shows that the model was being loaded, its text is explained instead. */
static stow_status prefer_traceback(run_explanation *s) {
  const explanation *x = &s->says;
  if (s->error.length == 0 || x->evidence.has_stacks || x->findings.count == 0 ||
      x->findings.list[0].id != CAUSE_ONE_SPIKE)
    return STOW_OK;
  message *m = malloc(sizeof *m);
  if (m == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "explain: no host memory");
  message_read(m, s->error.data, s->error.length);
  bool loading = message_is_device(m->kind) && context_has(&m->context, CONTEXT_BIT(LOADING));
  free(m);
  if (!loading) return STOW_OK;
  explanation_free(&s->says);
  return explain_message(&s->says, s->error.data, s->error.length);
}

static stow_status read_one(run_explanation *s, const char *folder) {
  *s = (run_explanation){.error = BUFFER_INIT};
  recording_init(&s->record, RECORDING_BYTES);
  if (!is_run(folder))
    return stow_fail(STOW_ERR_NOT_FOUND,
                     "%s: not the folder of a `stowage run`; name one, or use --last", folder);
  char path[PATH_MAX];
  stow_status status = host_record_read(&s->host, folder);
  if (status != STOW_OK && status != STOW_ERR_NOT_FOUND) return status;
  run_end end;
  bool known;
  STOW_TRY(run_folder_read_end(folder, &end, &known));
  if (status == STOW_OK && ran_out(&s->host, known)) {
    s->out_of_memory = true;
    ledger l;
    STOW_TRY(open_ledger(&l, folder));
    if (l.header != NULL) s->host.copies_bytes = atomic_load(&l.header->copies_bytes);
    ledger_close(&l);
    return explain_host(&s->says, &s->host);
  }
  STOW_TRY(newest(folder, RUN_ERROR, path));
  STOW_TRY(read_error(&s->error, path));
  bool has_error = s->error.length > 0;
  if (has_error) add_host(s);
  STOW_TRY(newest(folder, RUN_PICKLE, path));
  bool found = false;
  if (path[0] != '\0') {
    STOW_TRY(run_trace_file(&s->record, path, KIND_AUTO));
    STOW_TRY(add_trace(&s->record, folder, path));
    STOW_TRY(add_limit(&s->record, folder));
    STOW_TRY(from_recording(s, true, &found));
  }
  bool may = false;
  if (!found) STOW_TRY(may_have_run_out(folder, &may));
  if (may) STOW_TRY(from_traces(s, folder, &found));
  if (found) STOW_TRY(prefer_traceback(s));
  if (!found && has_error) {
    explanation_free(&s->says);
    STOW_TRY(explain_message(&s->says, s->error.data, s->error.length));
    found = true;
    s->by_text = is_host(&s->says);
  }
  if (!found && known && end.by_kernel) {
    static const char KILLED[] = "Out of memory: Killed\n"; /* as the kernel logs it */
    explanation_free(&s->says);
    STOW_TRY(explain_message(&s->says, KILLED, sizeof KILLED - 1));
    note_unwatched(&s->says, folder);
    found = true;
  }
  s->out_of_memory = found;
  if (!found)
    STOW_TRY(say_none(s, folder, known, &end));
  else if (known && end.code == 0 && end.signal_number == 0)
    buffer_text(&s->says.notes, "the run continued after that and succeeded\n");
  if (!found || s->by_text) note_holder(s);
  return STOW_OK;
}

stow_status run_explanation_read(run_explanation *s, const char *folder) {
  char path[PATH_MAX], rank[32];
  bool shared = snprintf(path, sizeof path, "%s", folder) < (int)sizeof path && !is_run(path) &&
                run_folder_rank(path, rank);
  STOW_TRY(read_one(s, shared ? path : folder));
  if (shared) buffer_printf(&s->says.notes, "this is rank %s of the run\n", rank);
  return STOW_OK;
}

void run_explanation_free(run_explanation *s) {
  explanation_free(&s->says);
  recording_free(&s->record);
  buffer_free(&s->error);
}
