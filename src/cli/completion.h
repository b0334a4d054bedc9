/* Completion: the completion file of each shell, written from the table of verbs
 * (completion_write.c), and its place in the current user's home (completion.c). */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include "base/buffer.h"
#include "cli/verb.h"

/* Every file begins with a line that contains this text. It marks a file as ours to replace. */
#define COMPLETION_MARK "Generated from the table of verbs: stowage completion"

/* Each takes the list of all verbs, terminated by NULL. */
void completion_bash(buffer *b, const verb *const *all);
void completion_zsh(buffer *b, const verb *const *all);
void completion_fish(buffer *b, const verb *const *all);

#endif
