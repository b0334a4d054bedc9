/* Verb: one word after `stowage`, its options, and what runs.
 *
 * A verb is one file that defines `const verb verb_NAME` and one line in verbs.def. Options are
 * parsed, help is printed and shell completion is generated from this table alone, so a verb never
 * looks at argv itself. */
#ifndef CLI_VERB_H
#define CLI_VERB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stowage/status.h>

/* Exit codes, the same for every verb (a verb with more names them in `exits`). */
enum {
  EXIT_DONE = 0,   /* it worked; the answer is yes */
  EXIT_FAILED = 1, /* the job failed, or the answer is no */
  EXIT_USAGE = 2,  /* the command line or the input cannot be right */
};

typedef struct verb_option {
  const char *name;  /* long name without the dashes; NULL ends a table */
  const char *value; /* what its value is called: "SIZE", "FILE", "FOLDER", or the only words
                        allowed, as "csv|json"; NULL: it takes none */
  const char *help;  /* one line, no full stop */
} verb_option;

/* Options that many verbs have are spelled and explained once. */
#define VERB_OPTION_DEVICE                                                                         \
  { "device", "NAME", "a device by index or UUID, or a simulated one: sim:16G, sim:16G,host=32G" }
#define VERB_OPTION_JSON                                                                           \
  { "json", NULL, "print JSON instead of text" }
#define VERB_OPTIONS_END                                                                           \
  { NULL, NULL, NULL }

enum {
  VERB_HIDDEN = 1,     /* not in help or completion: the command calls it itself */
  VERB_FIRST_WORD = 2, /* options end at the first operand: what follows belongs to a program */
};
#define VERB_ANY_NUMBER (-1)

typedef struct verb_call verb_call;

typedef struct verb {
  const char *name;
  const char *summary;  /* one line, no full stop */
  const char *example;  /* shown first: one or more lines, each a command */
  const char *operands; /* as usage shows them: "FILE…", "[BATCH]"; NULL: none are taken */
  int operands_min;
  int operands_max; /* VERB_ANY_NUMBER: no bound */
  unsigned flags;
  const verb_option *options;  /* ended by VERB_OPTIONS_END; NULL: none */
  const char *exits;           /* further exit codes, one a line, "125  the shim is not there\n" */
  int (*run)(verb_call *call); /* returns an exit code */
} verb;

/* One option as it was given. */
typedef struct verb_given {
  const verb_option *option;
  const char *value; /* NULL for one that takes none */
} verb_given;

/* A verb being run: what the command line said. */
struct verb_call {
  const verb *verb;
  const verb *const *all; /* every verb, ended by NULL */
  int operand_count;
  char **operands; /* ended by NULL */
  verb_given *given;
  size_t given_count;
};

/* ---- the table (verbs.c) ---- */

/* The verb of that name, NULL if there is none. */
const verb *verb_find(const char *name);
/* All of them in the order help shows them, ended by NULL. */
const verb *const *verb_all(void);
/* Verb number i in that order, NULL past the last. */
const verb *verb_at(size_t i);
/* The one of `names` (ended by NULL; nearest.c) that `word` most likely meant, NULL if none is
 * near. */
const char *verb_nearest(const char *word, const char *const *names);

/* ---- the command line (options.c) ---- */

/* Reads argv (after the verb) into `call`. EXIT_DONE: go on. Otherwise the exit code, everything
 * being said already; *help is set if help was asked for. Undo with options_free. */
int options_parse(verb_call *call, const verb *which, int argc, char **argv, bool *help);
void options_free(verb_call *call);

/* Was it given? `name` must be in the verb's table. */
bool verb_flag(const verb_call *call, const char *name);
/* The value it was given last, NULL if it was not. */
const char *verb_value(const verb_call *call, const char *name);
/* A size ("8G"), written only if given. On a bad one the message names the option. */
stow_status verb_size(const verb_call *call, const char *name, uint64_t *bytes);
/* A whole number within [least, most], written only if given. */
stow_status verb_number(const verb_call *call, const char *name, uint64_t least, uint64_t most,
                        uint64_t *number);

/* ---- words (help.c) ---- */

/* `stowage --help`: the verbs, one line each. */
void help_all(void);
/* `stowage VERB --help`: an example, the options, the exit codes. */
void help_verb(const verb *which);

/* ---- errors (output.c; more in cli/output.h) ---- */

/* Says "stowage VERB: …" on standard error and returns EXIT_USAGE. */
int verb_usage(const verb_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Says the thread's message the same way and returns the exit code `status` means: EXIT_USAGE for
 * input that cannot be right, EXIT_FAILED for the rest. */
int verb_fail(const verb_call *call, stow_status status);
/* That code alone. */
int verb_exit_code(stow_status status);

#endif
