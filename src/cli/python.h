/* Python: verbs whose work is done by the Python package become a Python process. */
#ifndef CLI_PYTHON_H
#define CLI_PYTHON_H

#include <stdbool.h>

#include "cli/verb.h"

/* Becomes `python -c …` with the package's module `module`, whose main receives the options given
 * (without --python) and the operands. `python` NULL: $STOWAGE_INTERPRETER, or python3. Returns the
 * exit code if Python cannot be started. */
int python_become(verb_call *call, const char *python, const char *module);

/* Is the file read and written by the package: Parquet, Arrow or JSON lines, by its ending? */
bool python_reads(const char *path);

#endif
