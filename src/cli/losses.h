/* Losses: describes what a reader skipped. `convert` reports all of it; the other verbs warn on
 * standard error if the recording is damaged, and continue with the rest. */
#ifndef CLI_LOSSES_H
#define CLI_LOSSES_H

#include "base/buffer.h"
#include "recordings/recording.h"

/* Describes what was skipped, one indented line each; writes nothing if nothing was. `left_out`
 * counts what the writer omitted. */
void losses_describe(const recording *r, uint64_t left_out, buffer *out);

/* Warns about damage in the file; prints nothing if it is intact. */
void losses_warn(const recording *r, const char *path);

#endif
