/* Watcher: lets `stowage run` ask a Python process what fills its host memory.
 *
 * libstowage-host.so is preloaded by `stowage run`. In a process without CPython it does nothing.
 * In one with CPython, a thread sleeps until the run asks this process, takes the interpreter's
 * lock like any Python thread, and runs report.py. It holds no other lock, so nothing can wait for
 * it.
 *
 * If a call of C code holds that lock, the answer has to wait. After SILENT_MS a second thread,
 * made at the first request, writes where the main thread is (peek.h), without the lock.
 *
 * System calls that the script needs are made here with the interpreter's lock held: Python's own
 * calls release it, and a program that fills memory in Python would then run for a time slice (5
 * ms, and as much again for the processor) at each one. So such a program pauses while it
 * answers. */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/newfile.h"
#include "base/text.h"
#include "base/variables.h"
#include "run/protocol.h"
#include "run/request.h"
#include "shim/host/peek.h"
#include "shim/host/report_code.h"
#include "shim/python.h"
#include "shim/shim.h"

#define SOURCE_BYTES ((size_t)2 << 20)  /* limit for one of the program's own files */
#define PROC_BYTES   ((size_t)16 << 10) /* a file of /proc, whose size is 0 */
/* How long an answer may take before the main thread is looked at. An answer takes 1 to 50 ms. */
#define SILENT_MS 100
/* How long the end of the interpreter waits for a report, which searches for half a second. */
#define END_MS   3000
#define ARM_FILE "<stowage arm>"

/* report.py, made at build time. */
static const char TEXT[] = {
#include <shim-report.inc>
    , '\0'};

static request *question;
static char folder[PATH_MAX];      /* folder of the run */
static _Atomic uint32_t answering; /* the serial of the question that is answered */
static _Atomic uint32_t answered;  /* … and of the last one that was */
static _Atomic int peeker;         /* the process that has the second thread */
static _Atomic bool armed;         /* the interpreter reports its forks */
static _Atomic int listener;       /* the process that has our thread */
static _Atomic bool ending;        /* the interpreter runs its exit functions */

/* Runs at the start of every Python process, so it is short: compiling report.py takes 10 ms, which
 * only a process that is asked, or ends with much memory, has to pay. */
static const char ARM[] = "import atexit, os, sys\n"
                          "def on_exit():\n"
                          "    if isinstance(getattr(sys, 'last_value', None), MemoryError) or "
                          "shim_state()[1] >= 64 << 20:\n"
                          "        shim_exit()\n"
                          "    shim_end()\n"
                          "def arm():\n"
                          "    atexit.register(on_exit)\n"
                          "    os.register_at_fork(after_in_child=shim_forked)\n"
                          "    check()\n"
                          "    return False\n"
                          "def check():\n"
                          "    shim_peek()\n";

static void start(void *unarmed);

/* ---- what the script calls ---- */

/* shim_state(): returns the serial of the request, the bytes this process holds that the kernel
 * cannot drop, without shared memory, whether the process is ending, and whether a search may take
 * long because memory is short. */
static python_object *state(python_object *self, python_object *arguments) {
  char text[128] = "";
  unsigned long long resident = 0, shared = 0, page = (unsigned long long)sysconf(_SC_PAGESIZE);
  (void)self;
  (void)arguments;
  int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
  if (fd >= 0) close(fd);
  /* NOLINTNEXTLINE(cert-err34-c): the kernel's numbers */
  if (got > 0 && sscanf(text, "%*u %llu %llu", &resident, &shared) != 2) resident = shared = 0;
  return python_build("IKii", (unsigned)atomic_load(&answering), (resident - shared) * page,
                      (int)atomic_load(&ending),
                      question != NULL ? (int)atomic_load(&question->thorough) : 1);
}

/* shim_keep(bytes): stores the answer, completely or not at all. */
static python_object *keep(python_object *self, python_object *arguments) {
  char path[PATH_MAX], pid[16];
  const char *text;
  (void)self;
  if (!python_parse(arguments, "y", &text)) return NULL;
  snprintf(pid, sizeof pid, "%d", (int)getpid());
  if (!run_process_path(path, folder, pid, RUN_OBJECTS)) return python_none();
  if (!newfile_write(path, text, strlen(text))) shim_log("report: %s cannot be written", path);
  return python_none();
}

/* shim_text(path): returns the first SOURCE_BYTES bytes of a file, b"" if it cannot be read. */
static python_object *text_of(python_object *self, python_object *arguments) {
  const char *path;
  (void)self;
  if (!python_parse(arguments, "y", &path)) return NULL;
  FILE *file = fopen(path, "re");
  struct stat info;
  size_t size = SOURCE_BYTES; /* no more than is needed: the process may be out of memory */
  if (file != NULL && fstat(fileno(file), &info) == 0 && info.st_size < (off_t)SOURCE_BYTES - 1)
    size = info.st_size > 0 ? (size_t)info.st_size + 1 : PROC_BYTES;
  char *text = file != NULL ? malloc(size) : NULL;
  size_t got = text != NULL ? fread(text, 1, size - 1, file) : 0;
  if (file != NULL) fclose(file);
  if (text != NULL) text[got] = '\0';
  python_object *answer = python_build("y", text != NULL ? text : ""); /* up to a zero byte */
  free(text);
  return answer;
}

/* shim_share(): lets other threads run again while this one does. */
static python_object *share(python_object *self, python_object *arguments) {
  (void)self;
  (void)arguments;
  python_share();
  return python_none();
}

/* shim_exit(): makes a last report, after one that is in progress: that began before the end. */
static python_object *leave(python_object *self, python_object *arguments);

/* shim_end(): waits until no report is in progress in our thread, and lets none begin. */
static python_object *end_reports(python_object *self, python_object *arguments);

/* shim_forked(): called when the interpreter of a child of fork is usable again. */
static python_object *forked(python_object *self, python_object *arguments);

/* shim_peek(): checks that frames can be read without the lock. */
static python_object *check_peek(python_object *self, python_object *arguments) {
  (void)self;
  (void)arguments;
  peek_check(ARM_FILE);
  return python_none();
}

static python_method methods[] = {
    PYTHON_METHOD("shim_peek", check_peek), PYTHON_METHOD("shim_log", python_log),
    PYTHON_METHOD("shim_state", state),     PYTHON_METHOD("shim_keep", keep),
    PYTHON_METHOD("shim_text", text_of),    PYTHON_METHOD("shim_share", share),
    PYTHON_METHOD("shim_forked", forked),   PYTHON_METHOD("shim_exit", leave),
    PYTHON_METHOD("shim_end", end_reports), {NULL, NULL, 0, NULL},
};

static python_script script = {.file = "<stowage report.py>",
                               .text = TEXT,
                               .entry = "report",
                               .methods = methods,
                               .word_name = "shim_rank",
                               .word = "",
                               .store = &report_code_store};

static python_script arming = {.file = ARM_FILE,
                               .text = ARM,
                               .entry = "arm",
                               .methods = methods,
                               .word_name = "shim_rank",
                               .word = ""};

static python_object *leave(python_object *self, python_object *arguments) {
  (void)self;
  (void)arguments;
  atomic_store(&ending, true);
  python_script_run_next(&script, END_MS);
  return python_none();
}

static python_object *end_reports(python_object *self, python_object *arguments) {
  (void)self;
  (void)arguments;
  python_script_end(&script, END_MS);
  return python_none();
}

/* A child inherits what the script has loaded, but not a report that was in progress in the
 * parent. */
static python_object *forked(python_object *self, python_object *arguments) {
  (void)self;
  (void)arguments;
  atomic_store(&script.state, 0);
  python_share();
  peek_forked();
  start(NULL);
  return python_none();
}

/* ---- the second thread ---- */

/* Appends one line of a source file, without the spaces before it. */
static void add_source(buffer *out, const char *path, uint32_t wanted) {
  char line[160];
  FILE *file = path[0] == '/' || strchr(path, '<') == NULL ? fopen(path, "re") : NULL;
  bool begins = true; /* of a line: fgets cuts long ones */
  for (uint32_t at = 1; file != NULL && at <= wanted && fgets(line, sizeof line, file) != NULL;) {
    size_t length = strcspn(line, "\n");
    bool ends = line[length] == '\n';
    line[length] = '\0';
    if (begins && at == wanted) {
      char *text = line + strspn(line, " \t");
      text[text_clean(text, strlen(text), false)] = '\0';
      buffer_printf(out, "%.120s", text);
      break;
    }
    begins = ends;
    at += ends;
  }
  if (file != NULL) fclose(file);
}

/* Writes PID.frames: which request has no answer, and where the main thread is. */
static void keep_frames(uint32_t serial) {
  static peek_frame frames[PEEK_FRAMES_MAX];
  char path[PATH_MAX], pid[16];
  buffer out = BUFFER_INIT;
  size_t count = peek_main(frames);
  if (count == 0) return;
  buffer_printf(&out, RUN_LINE_SILENT "\t%u\n", (unsigned)serial);
  for (size_t i = 0; i < count; i++) {
    peek_frame *f = &frames[i];
    f->file[text_clean(f->file, strlen(f->file), false)] = '\0';
    f->name[text_clean(f->name, strlen(f->name), false)] = '\0';
    buffer_printf(&out, RUN_LINE_FRAME "\t%s\t%u\t%s\t", f->file, (unsigned)f->line, f->name);
    add_source(&out, f->file, f->line);
    buffer_char(&out, '\n');
  }
  snprintf(pid, sizeof pid, "%d", (int)getpid());
  if (out.status == STOW_OK && run_process_path(path, folder, pid, RUN_FRAMES) &&
      !newfile_write(path, out.data, out.length))
    shim_log("peek: %s cannot be written", path);
  buffer_free(&out);
}

static void *look_when_silent(void *first) {
  uint32_t seen = (uint32_t)(uintptr_t)first;
  for (;;) {
    usleep(SILENT_MS * 1000);
    if ((int32_t)(seen - atomic_load(&answered)) > 0) keep_frames(seen);
    request_wait(question, &seen);
  }
  return NULL;
}

/* ---- the thread ---- */

/* Makes a thread that receives no signal: signals are the program's. A report needs a stack as
 * Python's own threads have. */
static bool make_thread(pthread_t *thread, void *(*run)(void *), void *argument, const char *name) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool made = pthread_create(thread, NULL, run, argument) == 0;
  if (made) pthread_setname_np(*thread, name);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return made;
}

static void make_detached(void *(*run)(void *), void *argument, const char *name) {
  pthread_t thread;
  if (make_thread(&thread, run, argument, name)) pthread_detach(thread);
}

/* Makes the second thread, once in a process. */
static void start_peeker(uint32_t serial) {
  int here = (int)getpid();
  if (atomic_exchange(&peeker, here) != here)
    make_detached(look_when_silent, (void *)(uintptr_t)serial, "stowage-peek");
}

/* Waits for the interpreter, which starts after us. If it takes longer, its last exception is not
 * reported. */
static void *arm(void *unused) {
  for (int turn = 0; turn < 2500 && !python_here(); turn++) usleep(2000);
  python_script_run(&arming);
  atomic_store(&armed, arming.names != NULL);
  return unused;
}

/* A thread of its own sets up the interpreter: a program may hold the interpreter's lock for good a
 * few milliseconds after its start, and a request must then still start the second thread. */
static void *wait_for_questions(void *unarmed) {
  /* A request that arrives during setup is answered afterwards. */
  uint32_t seen = atomic_load(&question->serial);
  pthread_t armer;
  /* Wait in a child that was forked before Python could report it: its interpreter re-initializes
   * its threads after us, and taking its lock before that is fatal. */
  if (unarmed != NULL) sleep(1);
  bool arms = !atomic_load(&armed) && make_thread(&armer, arm, NULL, "stowage-arm");
  if (!arms && !atomic_load(&armed)) arm(NULL);
  for (;;) {
    request_wait(question, &seen);
    atomic_store(&answering, seen);
    start_peeker(seen);
    if (arms) pthread_join(armer, NULL);
    arms = false;
    python_script_run_alone(&script);
    atomic_store(&answered, seen);
  }
  return NULL;
}

static void start(void *unarmed) {
  int here = (int)getpid();
  /* The run recognizes by its name that a thread listens (cli/run_request.c). */
  if (atomic_exchange(&listener, here) != here)
    make_detached(wait_for_questions, unarmed, RUN_LISTENER);
}

/* A child of fork has only its own thread. Once set up, Python reports when the child can have our
 * thread again, which it does not if the child only executes another program. No Python code may
 * run here or before the fork: the fork holds the import lock, for which our thread may wait with
 * another lock. */
static void after_fork(void) {
  if (atomic_load(&armed)) return;
  python_share();
  atomic_store(&script.state, 0);
  atomic_store(&arming.state, 0);
  start(&script);
}

__attribute__((constructor)) static void begin(void) {
  const char *path = secure_getenv(ENV_WATCH);
  if (path == NULL || path[0] != '/' || python_symbol("Py_IsInitialized") == NULL) return;
  int length = (int)(strrchr(path, '/') - path);
  if (snprintf(folder, sizeof folder, "%.*s", length, path) >= (int)sizeof folder) return;
  question = request_open(path);
  if (question == NULL) return;
  pthread_atfork(NULL, NULL, after_fork);
  start(NULL);
}
