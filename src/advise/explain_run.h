/* Explain run: why a run of `stowage run` ended, from what is in its folder. Used by `explain` with
 * --last or a folder, and by `run` itself when its command failed. */
#ifndef ADVISE_EXPLAIN_RUN_H
#define ADVISE_EXPLAIN_RUN_H

#include "advise/explain.h"
#include "run/host_record.h"

typedef struct run_explanation {
  recording record; /* the input that is explained */
  host_record host;
  explanation says;
  buffer error;       /* the program's last error text; "" if it was not about memory */
  bool out_of_memory; /* it ran out of memory, and `says` explains that */
  bool by_text;       /* host memory ran out, and `says` explains the error text, not the holders */
} run_explanation;

/* Reads the folder and explains. STOW_ERR_NOT_FOUND: it is not the folder of a run. If the run did
 * not run out of memory, the story says so. Free it in any case. */
stow_status run_explanation_read(run_explanation *s, const char *folder);
void run_explanation_free(run_explanation *s);

#endif
