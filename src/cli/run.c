/* stowage run: starts a command with the shim beneath it. This file reads the options and says what
 * there is to say; the parts are run_program (what will run), run_shim (the library), run_child
 * (starting it, signals, its end). */
#include <stdarg.h>
#include <stdio.h>

#include "base/status.h"
#include "cli/run_child.h"
#include "cli/run_program.h"
#include "cli/run_shim.h"
#include "cli/verb.h"

/* A word to the person, beside what the command itself prints. */
static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("stowage run: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
}

static int fail(int code) {
  note("%s", stow_status_message());
  return code;
}

/* Preloads the shim for the command to come, or says why it cannot be beneath it. */
static stow_status put_beneath(const program *p) {
  char shim[PATH_MAX];
  STOW_TRY(run_shim_find(shim));
  if (p->reach != PROGRAM_REACHED) {
    note("%s %s: it runs as without Stowage; programs it starts are reached if they can be",
         p->binary, program_reach_text(p->reach));
    /* Neither of these two would take no notice of it: they would fail to start. */
    if (p->reach == PROGRAM_OTHER_LOADER || p->reach == PROGRAM_OTHER_MACHINE) return STOW_OK;
  }
  const char *rival = run_shim_rival();
  if (rival != NULL)
    note("%s is preloaded too and also stands before the driver: the stricter limit of the two "
         "holds, and what it takes is not seen here",
         rival);
  return run_shim_preload(shim);
}

static int run(verb_call *call) {
  program p;
  int code = program_find(&p, call->operands[0]);
  if (code != 0) return fail(code);
  /* Without a driver the shim could only pretend that there is one. */
  if (run_shim_driver()[0] != '\0' && put_beneath(&p) != STOW_OK) return fail(PROGRAM_NOT_RUN);
  pid_t child;
  code = child_start(&child, call->operands);
  if (code != 0) return fail(code);
  int how = 0;
  child_wait(child, &how, 0, NULL, NULL);
  return child_end(how);
}

const verb verb_run = {
    .name = "run",
    .summary = "run a command with Stowage beneath it",
    .example = "stowage run -- python train.py",
    .operands = "COMMAND [WORDS…]",
    .operands_min = 1,
    .operands_max = VERB_ANY_NUMBER,
    .flags = VERB_FIRST_WORD,
    .exits = "125  Stowage itself failed; the command was not started\n"
             "126  the command was found but cannot be executed\n"
             "127  the command was not found\n",
    .run = run,
};
