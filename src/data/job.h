/* Data job: shared by the public inspect and shrink: makes a budget from their options. */
#ifndef DATA_JOB_H
#define DATA_JOB_H

#include <stowage/inspect.h>

#include "data/budget.h"
#include "data/inspect.h"
#include "data/table_options.h"

typedef struct data_job {
  budget budget;
  inspect_options in;
  table_options table; /* what in.csv points to */
  stow_data_progress progress;
  void *progress_user;
} data_job;

/* Checks the options (struct_bytes is already checked) and fills `job`, which must not move while
 * it is used. */
stow_status data_job_fill(data_job *job, const stow_inspect_options *options);
/* Frees what it holds, also after a failure. */
void data_job_free(data_job *job);

#endif
