/* Table team: one table read by all ranks of a team, each the rows of its part of the file.
 *
 * Called by shrink. A row may hold line ends between quotes, so where one begins cannot be seen
 * from the middle of a file: each rank guesses, reads, and says where its rows began and ended. The
 * first rank begins with the table, so its end is right; a rank that began where the one before it
 * ended is right too, and so on. One that did not reads again, from there. Then the ranks join what
 * they saw, in the order of the file: the types, and the distinct texts as they first came. */
#ifndef DATA_TABLE_TEAM_H
#define DATA_TABLE_TEAM_H

#include "data/table.h"
#include "files/source.h"

typedef struct table_shared {
  uint64_t rows, rows_before; /* of this rank; of those before it */
  uint32_t **codes; /* of each column's texts: this rank's number to that of all; NULL where
                     * it is the same */
  size_t count;
} table_shared;

/* Who takes a rank's values: as table_taker says, and again from the start where `again` was
 * called. */
typedef struct table_reader {
  table_taker taker; /* its range and text are set here */
  void (*again)(void *context);
} table_reader;

/* Every rank calls it and gets the facts of the whole table; `state` has the tallies and texts of
 * all, and this rank's values went to its taker, its codes being its own. `text`: as table_taker
 * has it. Anything but STOW_OK in one rank is a failure in all, and the team is not broken by it.
 */
stow_status table_read_shared(table_shared *own, file_facts *f, source *from, table_header header,
                              const budget *b, const table_reader *to, const bool *text,
                              table_state *state);
void table_shared_free(table_shared *s);

/* Can its rows be found from the middle? Not in a gz, nor behind a server. */
bool table_can_share(source *from);

#endif
