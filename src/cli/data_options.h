/* Data options: options that inspect and shrink share: the budget, the type of raw bytes, the
 * progress bar. */
#ifndef CLI_DATA_OPTIONS_H
#define CLI_DATA_OPTIONS_H

#include "base/buffer.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/verb.h"
#include "data/array.h"
#include "data/budget.h"
#include "data/inspect.h"

#define VERB_OPTION_MEMORY                                                                         \
  { "memory", "SIZE", "use at most this much memory; default a quarter of free memory" }

#define VERB_OPTION_FOR                                                                            \
  {                                                                                                \
    "for", "arithmetic|training|storage",                                                          \
        "purpose, which decides the types: arithmetic (default) avoids float16 and unsigned types" \
  }

#define VERB_OPTION_THREADS                                                                        \
  { "threads", "N", "number of threads; default one per processor" }

#define VERB_OPTION_NAMES                                                                          \
  { "names", "yes|no|auto", "whether a table's first row names its columns; default auto" }

#define VERB_OPTION_HEADER                                                                         \
  {                                                                                                \
    "header", "LINE",                                                                              \
        "HTTP header for the host of the URL, such as \"Authorization: Bearer …\"; repeatable"   \
  }

#define VERB_OPTION_MIN_RATE                                                                       \
  { "min-rate", "SIZE", "give up on a server that sends less per second; default 1K, 0: never" }

table_header data_header(const verb_call *call);
/* Reads --memory into the budget, shows a bar called `what` for b->progress, and applies --header
 * to every URL opened from now on. */
stow_status data_budget(const verb_call *call, budget *b, progress *bar, const char *what);
/* Parses "3,4" or "(3, 4)" or "()". */
stow_status data_shape(const char *text, array_spec *spec);

/* Prints the result and frees it. With text output (not JSON), adds the memory used. `status`: the
 * status of making the text. */
stow_status data_print(const verb_call *call, buffer *text, stow_status status, const budget *b);

#endif
