/* Options: parses the command line with a verb's table. --name VALUE and --name=VALUE; "--" ends
 * options; --help and -h work everywhere. Reports every error, with the nearest known word. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/nearest.h"
#include "base/status.h"
#include "cli/verb.h"

#define OPTIONS_MAX 64                  /* most options in one verb's table */
#define UNIT_LEAST  (UINT64_C(1) << 20) /* a smaller number needs a unit */

const char *verb_nearest(const char *word, const char *const *names) {
  const char *found = NULL;
  nearest n = nearest_begin(word);
  for (size_t i = 0; names[i] != NULL; i++)
    if (nearest_try(&n, names[i])) found = names[i];
  return found;
}

static const verb_option *option_find(const verb *which, const char *name, size_t length) {
  for (const verb_option *o = which->options; o != NULL && o->name != NULL; o++)
    if (strlen(o->name) == length && memcmp(o->name, name, length) == 0) return o;
  return NULL;
}

static int unknown_option(const verb_call *call, const char *word) {
  const char *names[OPTIONS_MAX + 2];
  size_t count = 0;
  for (const verb_option *o = call->verb->options; o != NULL && o->name != NULL; o++)
    if (count < OPTIONS_MAX) names[count++] = o->name;
  names[count++] = "help";
  names[count] = NULL;
  char bare[64];
  snprintf(bare, sizeof bare, "%.*s", (int)strcspn(word + strspn(word, "-"), "="),
           word + strspn(word, "-"));
  const char *near = verb_nearest(bare, names);
  if (near != NULL)
    return verb_usage(call, "unknown option \"%.64s\"; did you mean --%s?", word, near);
  return verb_usage(call, "unknown option \"%.64s\"; \"stowage %s --help\" lists the options", word,
                    call->verb->name);
}

/* Returns whether `value` is one of "a|b|c". A value name without a bar allows everything. */
static bool value_allowed(const char *words, const char *value) {
  if (strchr(words, '|') == NULL) return true;
  size_t length = strlen(value);
  for (const char *at = words;; at++) {
    size_t word = strcspn(at, "|");
    if (word == length && memcmp(at, value, length) == 0) return true;
    at += word;
    if (*at == '\0') return false;
  }
}

/* Returns whether an option, or "--", is in the place of a value: "--record -- python train.py". */
static bool value_missing(const verb *which, const char *word) {
  return strncmp(word, "--", 2) == 0 &&
         (word[2] == '\0' || option_find(which, word + 2, strcspn(word + 2, "=")) != NULL);
}

/* Parses the option at argv[*at] and advances *at over its value. */
static int parse_option(verb_call *call, int argc, char **argv, int *at) {
  /* The only short option: -o is --output, as in other tools. */
  const char *word = strcmp(argv[*at], "-o") == 0 ? "--output" : argv[*at];
  if (word[1] != '-') return unknown_option(call, word);
  size_t length = strcspn(word + 2, "=");
  const verb_option *option = option_find(call->verb, word + 2, length);
  if (option == NULL) return unknown_option(call, word);
  const char *value = word[2 + length] == '=' ? word + 2 + length + 1 : NULL;
  if (option->value == NULL && value != NULL)
    return verb_usage(call, "--%s takes no value, but was given \"%.64s\"", option->name, value);
  if (option->value != NULL && value == NULL) {
    if (*at + 1 >= argc || value_missing(call->verb, argv[*at + 1]))
      return verb_usage(call, "--%s needs a value: --%s %s", option->name, option->name,
                        option->value);
    value = argv[++*at];
  }
  if (option->value != NULL && !value_allowed(option->value, value))
    return verb_usage(call, "--%s \"%.64s\": must be one of %s", option->name, value,
                      option->value);
  call->given[call->given_count++] = (verb_given){option, value};
  return EXIT_DONE;
}

static int check_operands(const verb_call *call) {
  const verb *which = call->verb;
  if (call->operand_count < which->operands_min)
    return verb_usage(call, "needs %s; for example: %.*s", which->operands,
                      (int)strcspn(which->example, "\n"), which->example);
  if (which->operands_max != VERB_ANY_NUMBER && call->operand_count > which->operands_max)
    return verb_usage(call, "unexpected argument \"%.64s\"; \"stowage %s --help\" shows its usage",
                      call->operands[which->operands_max], which->name);
  return EXIT_DONE;
}

/* An option without effect is a mistake in the command line: it must not pass silently. */
static int check_rules(const verb_call *call) {
  for (const verb_rule *r = call->verb->rules; r != NULL && r->option != NULL; r++) {
    const char *given = NULL;
    size_t i = 0;
    if (!verb_flag(call, r->option)) continue;
    for (; r->others[i] != NULL && given == NULL; i++)
      if (verb_flag(call, r->others[i])) given = r->others[i];
    if (r->relation == VERB_EXCLUDES && given != NULL)
      return verb_usage(call, "--%s and --%s exclude each other", r->option, given);
    if (r->relation == VERB_NEEDS && given == NULL)
      return verb_usage(call, "--%s has no effect without --%s%s%s%s", r->option, r->others[0],
                        i > 1 ? " or --" : "", i > 1 ? r->others[1] : "", i > 2 ? ", …" : "");
  }
  return EXIT_DONE;
}

int options_parse(verb_call *call, const verb *which, int argc, char **argv, bool *help) {
  *help = false;
  *call = (verb_call){.verb = which};
  call->given = calloc((size_t)argc + 1, sizeof *call->given);
  call->operands = calloc((size_t)argc + 1, sizeof *call->operands);
  if (call->given == NULL || call->operands == NULL)
    return verb_fail(call, stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %d words", argc));
  bool options = true;
  for (int i = 0; i < argc; i++) {
    if (options && strcmp(argv[i], "--") == 0) {
      options = false;
    } else if (options && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
      *help = true;
      return EXIT_DONE;
    } else if (options && argv[i][0] == '-' && argv[i][1] != '\0') {
      int code = parse_option(call, argc, argv, &i);
      if (code != EXIT_DONE) return code;
    } else {
      call->operands[call->operand_count++] = argv[i];
      if (which->flags & VERB_FIRST_WORD) options = false;
    }
  }
  int code = check_operands(call);
  return code == EXIT_DONE ? check_rules(call) : code;
}

void options_free(verb_call *call) {
  free(call->given);
  free(call->operands);
}

const char *verb_value(const verb_call *call, const char *name) {
  const char *value = NULL;
  for (size_t g = 0; g < call->given_count; g++)
    if (strcmp(call->given[g].option->name, name) == 0) value = call->given[g].value;
  return value;
}

bool verb_flag(const verb_call *call, const char *name) {
  for (size_t g = 0; g < call->given_count; g++)
    if (strcmp(call->given[g].option->name, name) == 0) return true;
  return false;
}

stow_status verb_memory_parse(uint64_t *bytes, const char *text) {
  uint64_t got;
  STOW_TRY(stow_size_parse(&got, text));
  if (got > 0 && got < UNIT_LEAST && text[strspn(text, "0123456789 ")] == '\0')
    return stow_fail(STOW_ERR_INVALID,
                     "size \"%.20s\" has no unit, so it is %" PRIu64 " bytes; write %" PRIu64
                     "G, or %" PRIu64 "B if you mean bytes",
                     text, got, got, got);
  *bytes = got;
  return STOW_OK;
}

stow_status verb_memory(const verb_call *call, const char *name, uint64_t *bytes) {
  const char *text = verb_value(call, name);
  if (text == NULL) return STOW_OK;
  stow_status status = verb_memory_parse(bytes, text);
  return status == STOW_OK ? STOW_OK : stow_fail(status, "--%s: %s", name, stow_status_message());
}

stow_status verb_number(const verb_call *call, const char *name, uint64_t least, uint64_t most,
                        uint64_t *number) {
  const char *text = verb_value(call, name);
  if (text == NULL) return STOW_OK;
  bool digits = text[0] != '\0' && strspn(text, "0123456789") == strlen(text);
  errno = 0;
  uint64_t value = digits ? strtoull(text, NULL, 10) : 0;
  if (!digits || errno != 0 || value < least || value > most)
    return stow_fail(STOW_ERR_INVALID,
                     "--%s \"%.40s\": must be a whole number from %" PRIu64 " to %" PRIu64, name,
                     text, least, most);
  *number = value;
  return STOW_OK;
}
