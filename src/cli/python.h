/* Python: runs verbs that the Python package implements, by replacing this process with Python. */
#ifndef CLI_PYTHON_H
#define CLI_PYTHON_H

#include <stdbool.h>

#include "cli/verb.h"

/* Executes `python -c …` with the package's module `module`. Its main function receives the given
 * options (without --python) and the operands. `python` NULL: $STOWAGE_INTERPRETER, or python3.
 * Returns the exit code if Python cannot be started. */
int python_become(verb_call *call, const char *python, const char *module);

/* Returns whether the package reads and writes this file: Parquet, Arrow or JSON lines, by its
 * extension. */
bool python_reads(const char *path);

#endif
