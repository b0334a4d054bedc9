/* Table team: reads one table with all ranks of a team, each the rows of its part of the file.
 *
 * Called by shrink. A row may contain line ends between quotes, so its start cannot be recognized
 * from the middle of a file. Each rank guesses, reads, and reports where its rows began and ended.
 * The first rank begins with the table, so its end is correct; a rank that began where the previous
 * one ended is correct too, and so on. One that did not reads again from there. Then the ranks
 * merge what they read in file order: the types, and the distinct texts as they first occurred. */
#ifndef DATA_TABLE_TEAM_H
#define DATA_TABLE_TEAM_H

#include "data/table.h"
#include "files/source.h"

typedef struct table_shared {
  uint64_t rows, rows_before; /* rows of this rank; rows of the earlier ranks */
  uint32_t **codes; /* per column: maps this rank's text numbers to the common ones; NULL if
                     * equal */
  size_t count;
} table_shared;

/* Takes a rank's values like table_taker, and starts over when `again` is called. */
typedef struct table_reader {
  table_taker taker; /* its range and text are set here */
  void (*again)(void *context);
} table_reader;

/* Every rank calls it and gets the facts of the whole table. `state` has the stats and texts of all
 * ranks; this rank's values went to its taker, with its own codes. `text` is as in table_taker. Any
 * failure in one rank fails all; the team stays usable. */
stow_status table_read_shared(table_shared *own, file_facts *f, source *from, table_header header,
                              const budget *b, const table_reader *to, const bool *text,
                              table_state *state);
void table_shared_free(table_shared *s);

/* Returns whether its rows can be read from the middle: not for gzip, a remote file or lines that
 * end with CR alone. */
bool table_can_share(source *from, const csv_options *o);

#endif
