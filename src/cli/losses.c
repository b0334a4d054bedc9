/* Losses: a table of messages for all verbs that read a recording. */
#include "cli/losses.h"

#include <stdio.h>

#include "cli/output.h"

typedef struct loss {
  uint64_t count;
  const char *words;
  bool damage; /* true: the file is damaged; false: an ordinary loss */
} loss;

#define LOSSES 7

static void losses_of(const recording *r, uint64_t left_out, loss all[LOSSES]) {
  const loss list[LOSSES] = {
      {r->skipped_events, "entries were skipped: unknown, or lost before they were written", true},
      {r->unknown_fields, "fields of a newer version were ignored", false},
      {r->unknown_frees, "frees were of blocks allocated before the recording began", false},
      {r->bad_values, "values were of the wrong type or out of range", true},
      {r->damaged_chunks, "damaged chunks were dropped", true},
      {r->torn_bytes, "bytes of an incomplete entry at the end were dropped", true},
      {left_out, "events cannot be expressed in the output format and were left out", false},
  };
  for (int i = 0; i < LOSSES; i++) all[i] = list[i];
}

void losses_describe(const recording *r, uint64_t left_out, buffer *out) {
  loss all[LOSSES];
  losses_of(r, left_out, all);
  for (int i = 0; i < LOSSES; i++)
    if (all[i].count > 0)
      buffer_printf(out, "  %llu %s\n", (unsigned long long)all[i].count, all[i].words);
  if (!r->ended)
    buffer_text(out, "  it has no end mark: its writer was stopped, or is still running\n");
}

void losses_warn(const recording *r, const char *path) {
  loss all[LOSSES];
  losses_of(r, 0, all);
  for (int i = 0; i < LOSSES; i++)
    if (all[i].damage && all[i].count > 0)
      output_error("%s: %llu %s; the rest is used\n", output_name(path),
                   (unsigned long long)all[i].count, all[i].words);
}
