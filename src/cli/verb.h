/* Verb: the word after `stowage`, its options, and the function that runs.
 *
 * A verb is one file that defines `const verb verb_NAME` and one line in verbs.def. Options are
 * parsed, help is printed and shell completion is generated from this table alone, so a verb never
 * reads argv itself. */
#ifndef CLI_VERB_H
#define CLI_VERB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stowage/status.h>

/* Exit codes, the same for every verb (further codes of a verb are listed in `exits`). */
enum {
  EXIT_DONE = 0,   /* success; the answer is yes */
  EXIT_FAILED = 1, /* the job failed, or the answer is no */
  EXIT_USAGE = 2,  /* the command line or the input is invalid */
};

typedef struct verb_option {
  const char *name;  /* long name without the dashes; NULL marks the end of a table */
  const char *value; /* name of its value: "SIZE", "FILE", "FOLDER", or the allowed words, such as
                      * "csv|json"; NULL: it has no value */
  const char *help;  /* one line, no full stop */
} verb_option;

/* Options that many verbs share are defined once. */
#define VERB_OPTION_DEVICE                                                                         \
  { "device", "NAME", "a device by index or UUID, or a simulated one: sim:16G, sim:16G,host=32G" }
#define VERB_OPTION_JSON                                                                           \
  { "json", NULL, "print JSON instead of text" }
#define VERB_OPTIONS_END                                                                           \
  { NULL, NULL, NULL }

/* Two options that belong together, or exclude each other. Checked for every call. */
typedef struct verb_rule {
  const char *option; /* NULL marks the end of a table */
  enum { VERB_NEEDS, VERB_EXCLUDES } relation;
  const char *others[6]; /* VERB_NEEDS: at least one of them; VERB_EXCLUDES: none of them */
} verb_rule;
#define VERB_RULES_END                                                                             \
  {                                                                                                \
    NULL, VERB_NEEDS, {                                                                            \
      NULL                                                                                         \
    }                                                                                              \
  }

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
  const char *operands; /* as shown in the usage line: "FILE…", "[BATCH]"; NULL: no operands */
  const char *operand_words; /* the allowed operands, "bash|zsh|fish"; NULL: files */
  int operands_min;
  int operands_max; /* VERB_ANY_NUMBER: no limit */
  unsigned flags;
  const verb_option *options;  /* terminated by VERB_OPTIONS_END; NULL: none */
  const verb_rule *rules;      /* terminated by VERB_RULES_END; NULL: none */
  const char *exits;           /* further exit codes, one per line, "125  the shim is missing\n" */
  int (*run)(verb_call *call); /* returns an exit code */
} verb;

/* One option of the command line. */
typedef struct verb_given {
  const verb_option *option;
  const char *value; /* NULL if the option has no value */
} verb_given;

/* One call of a verb: the parsed command line. */
struct verb_call {
  const verb *verb;
  const verb *const *all; /* all verbs, terminated by NULL */
  int operand_count;
  char **operands; /* terminated by NULL */
  verb_given *given;
  size_t given_count;
};

/* ---- the table (verbs.c) ---- */

/* Returns the verb of that name, or NULL. */
const verb *verb_find(const char *name);
/* Returns all verbs in the order of the help, terminated by NULL. */
const verb *const *verb_all(void);
/* Returns verb number i in that order; NULL after the last. */
const verb *verb_at(size_t i);
/* Returns the one of `names` (terminated by NULL) that `word` most likely meant; NULL if none is
 * close (options.c). */
const char *verb_nearest(const char *word, const char *const *names);

/* ---- the command line (options.c) ---- */

/* Parses argv (after the verb) into `call`. EXIT_DONE: continue. Otherwise returns the exit code,
 * with all messages printed; *help is set if help was requested. Undo with options_free. */
int options_parse(verb_call *call, const verb *which, int argc, char **argv, bool *help);
void options_free(verb_call *call);

/* Returns whether the option was given. `name` must be in the verb's table. */
bool verb_flag(const verb_call *call, const char *name);
/* Returns the value that was given last; NULL if none was. */
const char *verb_value(const verb_call *call, const char *name);
/* Parses an amount of memory ("8G"). Rejects a small number without a unit: whoever writes 16 means
 * 16G, and not 16 bytes. */
stow_status verb_memory_parse(uint64_t *bytes, const char *text);
/* Reads the amount of memory in an option; unchanged if the option was not given. The message of an
 * error names the option. */
stow_status verb_memory(const verb_call *call, const char *name, uint64_t *bytes);
/* Reads a whole number within [least, most]; unchanged if the option was not given. */
stow_status verb_number(const verb_call *call, const char *name, uint64_t least, uint64_t most,
                        uint64_t *number);

/* ---- help (help.c) ---- */

/* Prints `stowage --help`: the verbs, one line each. */
void help_all(void);
/* Prints `stowage VERB --help`: an example, the options, the exit codes. */
void help_verb(const verb *which);

/* ---- errors (output.c; more in cli/output.h) ---- */

/* Prints "stowage VERB: …" on standard error and returns EXIT_USAGE. */
int verb_usage(const verb_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints the thread's message in the same way. Returns EXIT_USAGE for invalid input, EXIT_FAILED
 * for other errors. */
int verb_fail(const verb_call *call, stow_status status);
/* Returns that exit code without printing. */
int verb_exit_code(stow_status status);

#endif
