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
#include "data/table_options.h"

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
  { "names", "yes|no|auto", "whether a table's first row has the column names; default auto" }

/* How a text table is written. */
#define VERB_OPTIONS_TABLE                                                                         \
  {"delimiter", "C", "table: the field separator, a character or tab; default detected"},          \
      {"decimal", ".|,", "table: the decimal point; default ."},                                   \
      {"comment", "C", "table: skip lines that begin with this character"},                        \
      {"skip", "N", "table: skip this many lines at the top"},                                     \
      {"encoding", "NAME", "table: utf-8 (default), latin-1, cp1252 or utf-16"}, {                 \
    "na", "WORD,WORD", "table: words for missing values, instead of NA, null, …; repeatable"     \
  }

#define VERB_OPTION_HEADER                                                                         \
  {                                                                                                \
    "header", "LINE",                                                                              \
        "HTTP header for the host of the URL, such as \"Authorization: Bearer …\"; repeatable"   \
  }

#define VERB_OPTION_RESUME                                                                         \
  { "resume", NULL, "continue an interrupted run" }

#define VERB_OPTION_NO_SYNC                                                                        \
  { "no-sync", NULL, "do not wait until the output is on disk: as fast as cp, but less safe" }

#define VERB_OPTION_MIN_RATE                                                                       \
  { "min-rate", "SIZE", "give up on a server that sends less per second; default 1K, 0: never" }

table_header data_header(const verb_call *call);
/* --delimiter, --decimal, --comment, --skip, --encoding and --na. The caller frees them with
 * table_options_free. */
stow_status data_table(const verb_call *call, table_options *t);
/* Reads --memory into the budget, shows a bar called `what` for b->progress, and applies --header
 * to every URL opened from now on. */
stow_status data_budget(const verb_call *call, budget *b, progress *bar, const char *what);
/* Parses "3,4" or "(3, 4)" or "()". */
stow_status data_shape(const char *text, array_spec *spec);

/* Prints the result and frees it. With text output (not JSON), adds the memory used. `status`: the
 * status of making the text. */
stow_status data_print(const verb_call *call, buffer *text, stow_status status, const budget *b);

#endif
