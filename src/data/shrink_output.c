/* Shrink output: opens the output of a job and renames it to its final name. */
#include "data/shrink_parts.h"
#include "data/team.h"

stow_status shrink_open(job *j, writer *w, uint64_t expected_bytes) {
  team *t = j->budget->team;
  checkpoint *c = j->budget->checkpoint;
  stow_status status = STOW_OK;
  *w = (writer){.fd = -1};
  if (team_leads(t))
    status =
        writer_open_partial(w, j->out, j->from, expected_bytes, c != NULL && c->resumed, false);
  STOW_TRY(team_agree(t, status)); /* the file exists now */
  if (!team_leads(t)) status = writer_open_partial(w, j->out, j->from, 0, true, true);
  status = team_agree(t, status); /* on all ranks */
  if (status != STOW_OK) return writer_abandon(w), status;
  w->no_sync = j->options->no_sync;
  if (c != NULL) c->file = w->fd;
  return STOW_OK;
}

stow_status shrink_finish(job *j, writer *w, stow_status status) {
  if (status == STOW_OK) {
    status = source_check(j->from);
    j->changed = status != STOW_OK;
  }
  if (j->budget->checkpoint != NULL) j->budget->checkpoint->file = -1;
  status = team_agree(j->budget->team, status); /* all ranks have written their part */
  if (status == STOW_OK) {
    j->result->file_bytes = w->bytes;
    return writer_commit(w);
  }
  if (shrink_keeps(j, status))
    writer_keep(w);
  else
    writer_abandon(w);
  return status;
}

bool shrink_keeps(const job *j, stow_status status) {
  return status == STOW_ERR_IO && !j->changed && checkpoint_held(j->budget->checkpoint);
}
