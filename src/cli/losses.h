/* Losses: describes what a reader skipped. `convert` reports all of it; the other verbs warn on
 * standard error if the recording is damaged, and continue with the rest. */
#ifndef CLI_LOSSES_H
#define CLI_LOSSES_H

#include "base/buffer.h"
#include "recordings/recording.h"

/* A line each, indented; nothing where nothing was. `left_out`: by the writer. */
void losses_describe(const recording *r, uint64_t left_out, buffer *out);

/* What is wrong with the file itself; nothing where it is whole. */
void losses_warn(const recording *r, const char *path);

#endif
