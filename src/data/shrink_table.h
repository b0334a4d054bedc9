/* Shrink of tables: parts shared by shrink_table*.c and called by shrink_file.c. */
#ifndef DATA_SHRINK_TABLE_H
#define DATA_SHRINK_TABLE_H

#include "data/scratch.h"
#include "data/shrink_parts.h"
#include "data/table.h"

/* How the plan measures the error of a cast. */
typedef struct table_plan {
  bool to_npy;
  /* Measures the error of one column's values; SIZE_MAX: of all columns. */
  stow_status (*measure)(void *context, size_t column, dtype to, loss *l);
  void *context;
} table_plan;

/* Chooses the type of each column, after the table was read. */
stow_status shrink_table_plan(job *j, const table_plan *p);
/* Returns STOW_ERR_INVALID: an npy holds only numbers. */
stow_status shrink_table_refuse_text(const job *j, size_t column);

/* Returns whether the column is omitted from the output. */
bool shrink_skips(const job *j, size_t column);
/* Returns STOW_ERR_BUDGET if the output would be larger than the table, without --force. */
stow_status shrink_table_check_size(const job *j);

/* Opens the file for the values until the types are known; not for a dry run that needs none. */
stow_status shrink_table_scratch(const job *j, scratch *s);

/* The two kinds of output, from the input to the finished file. */
/* Decides which columns are written, by the names in the first row (j->skip). */
stow_status shrink_table_columns(job *j);
stow_status shrink_table_npy(job *j);
stow_status shrink_table_npz(job *j);

#endif
