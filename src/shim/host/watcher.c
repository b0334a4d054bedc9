/* Watcher: how `stowage run` asks a Python process what fills its host memory.
 *
 * libstowage-host.so is preloaded with --ram-limit only. In a process without CPython it does
 * nothing. In one with it, a thread sleeps until the run asks for this process, takes the
 * interpreter's lock as any thread of Python's does, and runs report.py. It holds no lock of its
 * own, so nobody can wait for it. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/ask.h"
#include "shim/python.h"
#include "shim/shim.h"

/* report.py, made at build time. */
static const char TEXT[] = {
#include <shim-report.inc>
    , '\0'};

static ask *question;

static python_method methods[] = {
    PYTHON_METHOD("shim_log", python_log),
    {NULL, NULL, 0, NULL},
};

static python_script script = {.file = "<stowage report.py>",
                               .text = TEXT,
                               .entry = "report",
                               .methods = methods,
                               .word_name = "shim_rank",
                               .word = ""};

/* The interpreter starts after us; one that takes longer is told of no exception at its end. */
static void arm(void) {
  for (int turn = 0; turn < 200 && !python_here(); turn++) usleep(25000);
  script.entry = "arm";
  python_script_run(&script);
  script.entry = "report";
}

static void *wait_for_questions(void *forked) {
  /* A child of fork is left alone at first: its interpreter puts its threads in order after us, and
   * one that asks for its lock meanwhile is fatal to it. What was armed in the parent is armed. */
  if (forked != NULL)
    sleep(1);
  else
    arm();
  for (uint32_t seen = atomic_load(&question->serial);;) {
    ask_wait(question, &seen);
    python_script_run(&script);
  }
  return NULL;
}

static void start(void *forked) {
  pthread_t thread;
  pthread_attr_t attributes;
  sigset_t all, before;
  if (pthread_attr_init(&attributes) != 0) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  /* Signals are the program's; a report needs a stack as Python's own threads have. */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (pthread_create(&thread, &attributes, wait_for_questions, forked) == 0)
    pthread_setname_np(thread, "stowage");
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
}

/* A child of fork has no thread but its own. What its script had loaded is its as well; a report
 * that was being made in the parent is not. */
static void after_fork(void) {
  atomic_store(&script.state, 0);
  script.entry = "report";
  start(&script);
}

__attribute__((constructor)) static void begin(void) {
  const char *path = secure_getenv("STOWAGE_WATCH");
  if (path == NULL || path[0] != '/' || python_symbol("Py_IsInitialized") == NULL) return;
  question = ask_open(path);
  if (question == NULL) return;
  pthread_atfork(NULL, NULL, after_fork);
  start(NULL);
}
