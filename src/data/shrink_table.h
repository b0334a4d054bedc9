/* Shrink of tables: its parts, shared by shrink_table*.c and called by shrink_file.c. */
#ifndef DATA_SHRINK_TABLE_H
#define DATA_SHRINK_TABLE_H

#include "data/scratch.h"
#include "data/shrink_parts.h"
#include "data/table.h"

/* How the plan asks for the error of a cast. */
typedef struct table_plan {
  bool to_npy;
  /* Of the values of one column; SIZE_MAX: of all. */
  stow_status (*measure)(void *context, size_t column, dtype to, loss *l);
  void *context;
} table_plan;

/* Chooses what each column becomes, when the table was read. */
stow_status shrink_table_plan(job *j, const table_plan *p);
/* STOW_ERR_INVALID: an npy holds numbers alone. */
stow_status shrink_table_refuse_text(const job *j, size_t column);

/* Is the column left out of the output? */
bool shrink_skips(const job *j, size_t column);
/* STOW_ERR_BUDGET: the output would take more bytes than the table, and nobody said --force. */
stow_status shrink_table_check_size(const job *j);

/* Where the values wait until the types are known; not opened for a dry run that needs none. */
stow_status shrink_table_scratch(const job *j, scratch *s);

/* The two outputs, from the input to the file under its name. */
/* Decides which columns are written, by the names in the first row (j->skip). */
stow_status shrink_table_columns(job *j);
stow_status shrink_table_npy(job *j);
stow_status shrink_table_npz(job *j);

#endif
