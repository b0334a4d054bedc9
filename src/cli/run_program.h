/* Run program: which file a command runs, and whether a library can be preloaded into it. Used by
 * `stowage run` before it starts the command. */
#ifndef CLI_RUN_PROGRAM_H
#define CLI_RUN_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

typedef enum program_reach {
  PROGRAM_REACHED,      /* a preloaded library is loaded into it */
  PROGRAM_STATIC,       /* no dynamic loader: nothing can be preloaded */
  PROGRAM_SETUID,       /* the loader ignores LD_PRELOAD for programs with more privileges than the
                         * caller */
  PROGRAM_OTHER_LOADER, /* musl or another C library: our library would break it */
  PROGRAM_OTHER_MACHINE /* another word size or processor */
} program_reach;

typedef struct program {
  char path[PATH_MAX];   /* path of the file that the command names */
  char binary[PATH_MAX]; /* path of what really runs: the same file, or a script's interpreter */
  program_reach reach;
} program;

/* Exit codes of a command that could not be started, as in shells and env(1). */
enum { PROGRAM_NOT_RUN = 125, PROGRAM_NOT_EXECUTABLE = 126, PROGRAM_NOT_FOUND = 127 };

/* Finds `command` as execvp would. Returns 0, or one of the codes above with the thread's message
 * set. */
int program_find(program *p, const char *command);

/* Returns why nothing can be preloaded, for people; "" if it can. */
const char *program_reach_text(program_reach reach);

#endif
