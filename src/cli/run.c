/* stowage run: starts a command with the shim preloaded. This file reads the options and prints
 * messages. The parts: run_program (which file runs), run_shim (the library), run_limits and
 * run/folder (the ledger), run_environment (settings of frameworks), run_child (starting, signals,
 * the end) and run_summary (the final report). */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stowage/size.h>

#include "advise/explain_run.h"
#include "base/status.h"
#include "base/text.h"
#include "base/variables.h"
#include "cli/output.h"
#include "cli/run_child.h"
#include "cli/run_environment.h"
#include "cli/run_limits.h"
#include "cli/run_live.h"
#include "cli/run_profile.h"
#include "cli/run_program.h"
#include "cli/run_ram.h"
#include "cli/run_record.h"
#include "cli/run_shim.h"
#include "cli/run_summary.h"
#include "cli/verb.h"
#include "run/folder.h"
#include "run/protocol.h"

/* Prints a message on standard error, beside the command's own output. */
static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...) {
  va_list args;
  va_start(args, format);
  output_error("%s", "stowage run: ");
  output_verror(format, args);
  output_error("\n");
  va_end(args);
}

static int fail(int code) {
  note("%s", stow_status_message());
  return code;
}

/* Preloads the shim for the command, or reports why that is impossible. */
static stow_status preload_shim(const program *p, const run_limits *limits, bool record) {
  char shim[PATH_MAX];
  STOW_TRY(run_shim_find(shim));
  if (p->reach != PROGRAM_REACHED) {
    note("%s %s: it runs without Stowage; programs that it starts use Stowage if they can",
         p->binary, program_reach_text(p->reach));
    /* With the shim preloaded, both would fail to start. */
    if (p->reach == PROGRAM_OTHER_LOADER || p->reach == PROGRAM_OTHER_MACHINE) return STOW_OK;
  }
  const char *rival = run_shim_rival();
  if (rival != NULL)
    note("%s is also preloaded and also intercepts the driver: the lower limit of the two applies, "
         "and memory that it allocates is not counted here",
         rival);
  /* NVTX passes named ranges to the shim, unless another tool is injected. */
  if (record) setenv("NVTX_INJECTION64_PATH", shim, 0);
  return run_shim_preload(shim, limits->vram_from != NULL || limits->spill_bytes > 0);
}

/* Creates the run's folder and its ledger, and sets the variables that point the command to
 * them. */
static stow_status open_run(ledger *l, const run_limits *limits, char folder[PATH_MAX], bool record,
                            bool fast_malloc) {
  char path[PATH_MAX];
  STOW_TRY(run_folder_make(folder));
  if (!run_path(path, folder, RUN_LEDGER))
    return stow_fail(STOW_ERR_IO, "the path of the run's folder is too long: %.200s", folder);
  STOW_TRY(ledger_create(l, path));
  ledger_guard(l); /* before the command starts, because it may truncate the file */
  run_limits_apply(limits, l);
  char self[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  /* The shim starts this command to probe the host tier. */
  if (length > 0) {
    self[length] = '\0';
    setenv(ENV_COMMAND, self, 0);
  }
  if (setenv(ENV_LEDGER, path, 1) != 0 || setenv(ENV_RUN, folder, 1) != 0 ||
      setenv(ENV_RECORD, record ? "1" : "0", 1) != 0 ||
      setenv(ENV_FAST_MALLOC, fast_malloc ? "1" : "0", 1) != 0)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the environment");
  if (limits->spill_bytes == 0) return STOW_OK;
  STOW_TRY(run_environment_torch());
  return run_environment_xla();
}

static stow_status read_touches(const verb_call *call, const run_limits *limits) {
  bool on = verb_flag(call, "touches");
  if (on && verb_value(call, "record") == NULL)
    return stow_fail(STOW_ERR_INVALID, "--touches needs --record FILE");
  if (on && limits->spill_bytes > 0)
    return stow_fail(STOW_ERR_INVALID,
                     "--touches records the program without a spill; omit --spill; to see what it "
                     "would cost, use `stowage replay FILE --vram SIZE --spill auto`");
  return run_environment_touches(on);
}

/* Does everything before the command starts. Returns 0, or the exit code to end with. */
static int prepare(const verb_call *call, const program *p, ledger *l, run_limits *limits,
                   char folder[PATH_MAX]) {
  uint64_t threads = 0;
  stow_status status = run_limits_read(limits, call);
  if (status == STOW_OK) status = verb_number(call, "threads", 1, 65536, &threads);
  if (status == STOW_OK) status = run_environment_stacks(verb_value(call, "stacks"));
  const char *record = verb_value(call, "record");
  if (status == STOW_OK) status = read_touches(call, limits);
  if (status != STOW_OK) return verb_fail(call, status);
  if (record != NULL && run_record_check(record) != STOW_OK) return fail(PROGRAM_NOT_RUN);
  if (verb_value(call, "spill-stop") != NULL && limits->spill_bytes == 0)
    note("--spill-stop: nothing is spilled without --spill, so nothing will be stopped");
  if (threads > 0 && run_environment_threads(threads) != STOW_OK) return fail(PROGRAM_NOT_RUN);
  if (run_environment_sanitizer() != STOW_OK) return fail(PROGRAM_NOT_RUN);
  /* Without a driver the shim would have nothing to forward to. */
  if (run_shim_driver()[0] == '\0') {
    if (limits->vram_from != NULL || limits->spill_bytes > 0)
      note("no CUDA driver was found, so the limits have no effect");
    return 0;
  }
  run_limits_within(limits);
  /* The lines that hold device memory come from a recording. */
  bool traced = record != NULL || verb_flag(call, "profile");
  if (preload_shim(p, limits, traced) != STOW_OK ||
      open_run(l, limits, folder, traced, verb_flag(call, "fast-malloc")) != STOW_OK)
    return fail(PROGRAM_NOT_RUN);
  return 0;
}

static void report_unwritten(const char *name, const char *folder) {
  char why[512];
  snprintf(why, sizeof why, "%s", stow_status_message());
  note("--record: process %s: %s; what was recorded is in %s", name, why, folder);
}

/* Reports processes that could not start recording, and why. */
static void report_unrecorded(const ledger *l, uint64_t count) {
  char list[LEDGER_UNRECORDED_MAX * 22] = "";
  size_t length = 0;
  for (uint64_t i = 0; i < count && i < LEDGER_UNRECORDED_MAX; i++) {
    int more = snprintf(list + length, sizeof list - length, "%s%" PRIu64, i > 0 ? ", " : "",
                        atomic_load(&l->header->unrecorded_pids[i]));
    length += more > 0 ? (size_t)more : 0;
  }
  note("--record: nothing of process %s%s was recorded: %.159s", list,
       count > LEDGER_UNRECORDED_MAX ? ", …" : "", l->header->unrecorded_reason);
}

/* Writes the recording to the path of --record; without one, to the run's folder if `keep`. Returns
 * whether device memory was recorded. */
static bool gather(const verb_call *call, const char *folder, const ledger *l, pid_t child,
                   bool keep) {
  run_gathered all;
  const char *path = verb_value(call, "record");
  run_record_gather(&all, folder, path, (int)child, keep, report_unwritten);
  if (path == NULL) return true;
  uint64_t unrecorded = atomic_load(&l->header->unrecorded);
  uint64_t lost = unrecorded + (uint64_t)all.failed;
  if (verb_flag(call, "touches") && atomic_load(&l->header->xla_graphs_off) != 0)
    note("%s", "--touches: JAX ran without command buffers (XLA_FLAGS=" RUN_XLA_FLAG
               "), because the kernels inside one are not recorded");
  if (unrecorded > 0) report_unrecorded(l, unrecorded);
  if (lost > 0)
    note("--record: of %" PRIu64
         " processes that used the device, %d were recorded completely and %" PRIu64 " were not",
         lost + (uint64_t)all.written, all.written, lost);
  return lost > 0 || all.kept[0] != '\0';
}

/* Keeps the recording of host memory if the command used no device memory. */
static void keep_host_trace(const verb_call *call, run_ram *r, bool device) {
  const char *path = verb_value(call, "record");
  if (path == NULL) return;
  bool empty = r->record.sample_count == 0;
  stow_status status = run_host_trace_close(r->trace, device || empty ? NULL : path);
  bool had = r->trace != NULL;
  r->trace = NULL;
  if (device) return;
  if (status != STOW_OK)
    note("--record: %s", stow_status_message());
  else if (empty || !had)
    note("--record: nothing was recorded: the command used no device memory, and ended before its "
         "host memory was read");
  else
    note("--record: the command used no device memory; its host memory is in %s", path);
}

/* Prints the variables that enable Stowage in a program, one per line, for callers that start the
 * program themselves. */
static int print_environment(verb_call *call) {
  static const char *const NAMES[] = {"LD_PRELOAD",
                                      ENV_LEDGER,
                                      ENV_RUN,
                                      ENV_RECORD,
                                      ENV_STACKS,
                                      ENV_TOUCHES,
                                      "NVTX_INJECTION64_PATH",
                                      ENV_FAST_MALLOC,
                                      ENV_COMMAND,
                                      ENV_TORCH_CONF,
                                      ENV_TORCH_CONF_OLD,
                                      ENV_TORCH_SET,
                                      ENV_XLA_FLAGS,
                                      ENV_XLA_SET,
                                      "ASAN_OPTIONS"};
  program p = {.reach = PROGRAM_REACHED};
  char folder[PATH_MAX] = "";
  ledger l = {0};
  run_limits limits;
  int code = prepare(call, &p, &l, &limits, folder);
  if (l.header != NULL) run_limits_look(&limits, &l);
  if (l.header != NULL) run_folder_tidy(folder);
  for (size_t i = 0; code == 0 && l.header != NULL && i < sizeof NAMES / sizeof NAMES[0]; i++)
    if (getenv(NAMES[i]) != NULL)
      output_exact(NAMES[i]), output_exact("="), output_exact(getenv(NAMES[i])), output_exact("\n");
  ledger_close(&l);
  return code;
}

static void write_end(const verb_call *call, const char *folder, int how, bool by_kernel) {
  run_end end = {.code = WIFSIGNALED(how) ? 0 : WEXITSTATUS(how),
                 .signal_number = WIFSIGNALED(how) ? WTERMSIG(how) : 0,
                 .by_kernel = by_kernel};
  char words[4096];
  size_t length = 0;
  for (int i = 0; i < call->operand_count;
       i++) { /* whole words only: half a URL could show a password */
    size_t count = strlen(call->operands[i]);
    if (count + 1 >= sizeof words - length) break;
    memcpy(words + length, call->operands[i], count + 1);
    length += count + 1;
  }
  words[length] = '\0';
  text_hide_command(words, &length);
  for (size_t i = 0; i + 1 < length; i++)
    if (words[i] == '\0') words[i] = ' ';
  text_show(end.command, sizeof end.command, words);
  run_folder_write_end(folder, &end);
}

/* Explains the failure if memory was the cause. Returns whether the holders of memory need no
 * further line: the explanation names them, or is about the device. */
static bool explain(const char *folder) {
  static run_explanation s; /* 70 KB: too much for a small stack */
  bool named = false;
  if (run_explanation_read(&s, folder) == STOW_OK && s.out_of_memory) {
    const explanation *x = &s.says;
    char size[STOW_SIZE_TEXT_MAX];
    if (x->headline.data != NULL) note("why: %s", x->headline.data);
    if (x->fixes.count > 0) {
      const fix *f = &x->fixes.list[0];
      if (f->saves_bytes != MESSAGE_UNKNOWN)
        note("fix: %s (saves %s, %s)", f->change, stow_size_format(size, f->saves_bytes),
             f->replayed ? "replayed" : "estimated");
      else
        note("fix: %s", f->change);
    }
    note("for details: stowage explain --last");
    named = !s.by_text;
  }
  run_explanation_free(&s);
  return named;
}

/* What is checked regularly while the command runs. */
typedef struct beats {
  run_ram ram;
  run_live live;
} beats;

static int beat(void *user) {
  beats *b = user;
  int next_ms = RUN_LIVE_BEAT_MS;
  if (b->ram.on) next_ms = run_ram_look(&b->ram);
  if (b->live.on) run_live_look(&b->live);
  return b->live.on && next_ms > RUN_LIVE_BEAT_MS ? RUN_LIVE_BEAT_MS : next_ms;
}

/* Waits for the command: does what can be done in parallel, and then prints the reports. */
static int see_through(const verb_call *call, const char *folder, ledger *l,
                       const run_limits *limits, beats *b, pid_t child) {
  b->live.child = child;
  b->live.on = l->header != NULL && limits->spill_bytes > 0;
  if (l->header != NULL) run_limits_look_aside(limits, l);
  run_ram_started(&b->ram);
  if (folder[0] != '\0') run_folder_tidy(folder);
  int how = 0;
  int beat_ms = b->ram.on ? RUN_RAM_BEAT_MS : b->live.on ? RUN_LIVE_BEAT_MS : 0;
  child_wait(child, &how, beat_ms, beat, b);
  run_live_end(&b->live);
  run_ram_end(&b->ram, how);
  bool looked = true, device = false, quiet = verb_flag(call, "quiet") && how == 0;
  if (l->header != NULL) {
    looked = run_limits_looked();
    char path[PATH_MAX];
    if (run_path(path, folder, RUN_LEDGER) && ledger_lost(l, path))
      note("%s was truncated while the command ran: what the command held is unknown, and "
           "processes with a limit got no more memory from then on; those that started later had "
           "no limit",
           path);
    else
      run_summary(l, limits, how != 0, quiet, b->live.crossed_bytes);
    device = gather(call, folder, l, child, how != 0 || verb_flag(call, "profile"));
  }
  keep_host_trace(call, &b->ram, device);
  if (folder[0] != '\0') {
    write_end(call, folder, how, b->ram.by_kernel);
    bool explained = how != 0 && explain(folder);
    bool lost = b->ram.on && b->ram.lost[0] != '\0';
    if (lost) note("%s; stowage explain --last lacks what was seen last", b->ram.lost);
    /* The file also has what the processes reported; but it may be older than the record here. */
    if (b->ram.on && !quiet &&
        (explained || lost || host_record_read(&b->ram.record, folder) == STOW_OK))
      run_summary_peak(l, limits, &b->ram.record, explained, !b->ram.plain);
    if (verb_flag(call, "profile") &&
        run_profile_end(folder, verb_value(call, "profile-json")) != STOW_OK)
      note("--profile: %s", stow_status_message());
  }
  int code = child_end(how);
  if (!looked) {
    /* NVML is still starting on another thread, so exit without its cleanup. */
    fflush(NULL);
    _exit(code);
  }
  ledger_close(l);
  return code;
}

static int run(verb_call *call) {
  program p;
  char folder[PATH_MAX] = "";
  ledger l = {0};
  run_limits limits;
  static beats b; /* 260 KB: too much for a small stack */
  if (verb_flag(call, "environment")) {
    if (call->operand_count > 0) return verb_usage(call, "--environment starts no command");
    return print_environment(call);
  }
  if (verb_value(call, "profile-json") != NULL && !verb_flag(call, "profile"))
    return verb_usage(call, "--profile-json needs --profile");
  child_prepare();
  /* Line buffering: other ranks and the command write to the same terminal. */
  static char line[1024];
  setvbuf(stderr, line, _IOLBF, sizeof line);
  if (call->operand_count == 0)
    return verb_usage(call, "needs COMMAND [WORDS…]; for example: stowage run -- python train.py");
  int code = program_find(&p, call->operands[0]);
  if (code != 0) return fail(code);
  stow_status status = run_ram_init(&b.ram, verb_value(call, "ram-limit"));
  if (status == STOW_OK) status = run_live_init(&b.live, &l, verb_value(call, "spill-stop"));
  if (status != STOW_OK) return verb_fail(call, status);
  code = prepare(call, &p, &l, &limits, folder);
  if (code != 0) return code;
  /* Make a folder even if nothing was preloaded; otherwise `last` would point to an earlier run. */
  if (folder[0] == '\0' && run_folder_make(folder) != STOW_OK) {
    if (!b.ram.plain || verb_flag(call, "profile")) return fail(PROGRAM_NOT_RUN);
    b.ram.on = false;
  }
  if (verb_flag(call, "profile") && run_profile_begin(folder) != STOW_OK)
    return fail(PROGRAM_NOT_RUN);
  if (run_ram_open(&b.ram, folder, verb_value(call, "record") != NULL) != STOW_OK)
    return fail(PROGRAM_NOT_RUN);
  pid_t child;
  code = child_start(&child, call->operands);
  if (code != 0) return fail(code);
  return see_through(call, folder, &l, &limits, &b, child);
}

static const verb_option options[] = {
    {"vram-limit", "SIZE",
     "limit the device memory of the command and its children: 8G, or by device 0=8G,1=4G"},
    {"spill", "SIZE",
     "continue in host memory when the device or the limit is full: auto, off or 12G"},
    {"spill-stop", "RATE", "end the command if the bus carries this much per second: 20G"},
    {"fast-malloc", NULL, "serve cudaMalloc and cudaFree from a Stowage heap"},
    {"record", "FILE", "record device memory requests (without any, host memory) to a .stow file"},
    {"touches", NULL,
     "with --record: also record every kernel launch, its device time and its pointer arguments"},
    {"profile", NULL,
     "at the end, show host and device memory by line and function of the Python program"},
    {"profile-json", "FILE", "also write the profile to a JSON file"},
    {"stacks", "WHICH", "record Python lines: auto or off"},
    {"ram-limit", "SIZE",
     "limit the host memory of the command and its children, and explain failures: auto or 8G"},
    {"quiet", NULL, "print nothing at the end of a command that succeeds"},
    {"threads", "N", "number of worker threads of OpenMP and BLAS libraries"},
    {"environment", NULL, "print the environment variables that enable Stowage; start nothing"},
    VERB_OPTIONS_END,
};

const verb verb_run = {
    .name = "run",
    .summary = "run a command under Stowage: limits, spilling, recording",
    .example = "stowage run -- python train.py\n"
               "stowage run --vram-limit 8G --spill auto -- python train.py",
    .operands = "COMMAND [WORDS…]",
    .operands_min = 0,
    .operands_max = VERB_ANY_NUMBER,
    .flags = VERB_FIRST_WORD,
    .options = options,
    .exits = "125  Stowage itself failed; the command was not started\n"
             "126  the command was found but cannot be executed\n"
             "127  the command was not found\n",
    .run = run,
};
