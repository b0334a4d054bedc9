/* Data options: what inspect and shrink share: the budget, what raw bytes are, the progress bar. */
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
  { "memory", "SIZE", "hold at most this much; default a quarter of what is free" }

#define VERB_OPTION_FOR                                                                            \
  {                                                                                                \
    "for", "arithmetic|training|storage",                                                          \
        "which types may be chosen: arithmetic (default) takes no float16 and no unsigned type"    \
  }

#define VERB_OPTION_THREADS                                                                        \
  { "threads", "N", "use N threads; default one for each processor" }

#define VERB_OPTION_NAMES                                                                          \
  { "names", "yes|no|auto", "whether a table's first row names its columns; default auto" }

/* How a text table is written. */
#define VERB_OPTIONS_TABLE                                                                          \
  {"delimiter", "C",                                                                                \
   "of a table: what separates its fields, a character or tab; default detected"},                  \
      {"decimal", ".|,", "of a table: the decimal point; default ."},                               \
      {"comment", "C", "of a table: lines that begin with this character are no rows"},             \
      {"skip", "N", "of a table: leave out so many lines at the top"},                              \
      {"encoding", "NAME", "of a table: utf-8 (default), latin-1, cp1252 or utf-16"}, {             \
    "na", "WORD,WORD", "of a table: words for missing values, instead of NA, null, …; repeatable" \
  }

#define VERB_OPTION_HEADER                                                                         \
  {                                                                                                \
    "header", "LINE",                                                                              \
        "send this to the host of the URL, as \"Authorization: Bearer …\"; repeatable"           \
  }

#define VERB_OPTION_MIN_RATE                                                                       \
  { "min-rate", "SIZE", "give up on a server that sends less in a second; default 1K, 0: never" }

table_header data_header(const verb_call *call);
/* --delimiter, --decimal, --comment, --skip, --encoding and --na. The caller frees them with
 * table_options_free. */
stow_status data_table(const verb_call *call, table_options *t);
/* --memory, and a bar called `what` behind b->progress; --header, for every URL opened from now on.
 */
stow_status data_budget(const verb_call *call, budget *b, progress *bar, const char *what);
/* "3,4" or "(3, 4)" or "()". */
stow_status data_shape(const char *text, array_spec *spec);

/* Prints what was done, and frees it. Below text (not JSON) is the memory it took. `status`: of
 * making the text. */
stow_status data_print(const verb_call *call, buffer *text, stow_status status, const budget *b);

#endif
