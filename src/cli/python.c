/* Python: see python.h. */
#include "cli/python.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "base/variables.h"
#include "cli/output.h"

enum { NAME_MAX_BYTES = 48 };

/* Imports the package before anything else, so that a Python without it gets a message and not a
 * traceback. */
static const char start[] =
    "import importlib, sys\n"
    "try:\n"
    "    main = importlib.import_module('stowage.' + sys.argv[1]).main\n"
    "except ImportError as reason:\n"
    "    sys.stderr.write('stowage ' + sys.argv[2] + ': ' + sys.executable + ' cannot import the "
    "package stowage (' + str(reason) + '): pip install stowage-memory, or name another Python "
    "with "
    "' + sys.argv[3] + '\\n')\n"
    "    sys.exit(2)\n"
    "except KeyboardInterrupt:\n"
    "    sys.stderr.write('stowage ' + sys.argv[2] + ': interrupted\\n')\n"
    "    sys.exit(130)\n"
    "main(sys.argv[4:])\n";

static bool takes(const verb_call *call, const char *name) {
  for (const verb_option *o = call->verb->options; o->name != NULL; o++)
    if (strcmp(o->name, name) == 0) return true;
  return false;
}

int python_become(verb_call *call, const char *python, const char *module) {
  if (python == NULL) python = getenv(ENV_INTERPRETER);
  if (python == NULL || python[0] == '\0') python = "python3";
  size_t most = 2 * call->given_count + (size_t)call->operand_count + 10, count = 0;
  const char **words = calloc(most, sizeof *words);
  char(*names)[NAME_MAX_BYTES] = calloc(call->given_count + 1, sizeof *names);
  if (words == NULL || names == NULL) {
    free(words);
    free(names);
    return verb_fail(call, stow_fail(STOW_ERR_HOST_MEMORY, "no host memory"));
  }
  const char *other = takes(call, "python") ? "--python" : ENV_INTERPRETER;
  const char *first[] = {python, "-c", start, module, call->verb->name, other};
  for (size_t i = 0; i < sizeof first / sizeof *first; i++) words[count++] = first[i];
  for (size_t i = 0; i < call->given_count; i++) {
    const verb_given *one = &call->given[i];
    if (strcmp(one->option->name, "python") == 0) continue;
    snprintf(names[i], sizeof names[i], "--%s", one->option->name);
    words[count++] = names[i];
    if (one->value != NULL) words[count++] = one->value;
  }
  words[count++] = "--";
  for (int i = 0; i < call->operand_count; i++) words[count++] = call->operands[i];
  execvp(python, (char *const *)words); /* execvp does not modify them; its type lacks const */
  int error = errno;
  free(words);
  free(names);
  output_error(
      "stowage %s: %s: cannot start this Python: %s; install Python 3, or name it with %s\n",
      call->verb->name, output_name(python), strerror(error), other);
  return EXIT_USAGE;
}

bool python_reads(const char *path) {
  static const char *const endings[] = {".parquet", ".pq",    ".feather", ".arrow",
                                        ".ipc",     ".jsonl", ".ndjson",  ".json"};
  static const char *const packed[] = {".gz", ".bz2", ".xz", ".zst"};
  enum { JSON = 5 }; /* the first of the endings that may be compressed */
  size_t length = path != NULL ? strlen(path) : 0, first = 0;
  for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
    if (text_ends_case(path, length, packed[i])) length -= strlen(packed[i]), first = JSON;
  if (text_ends_case(path, length, ".index.json")) return false; /* of a model */
  for (size_t i = first; i < sizeof endings / sizeof *endings; i++)
    if (text_ends_case(path, length, endings[i])) return true;
  return false;
}
