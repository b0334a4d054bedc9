/* The readers that context.c asks in order. */
#ifndef ADVISE_CONTEXT_PARTS_H
#define ADVISE_CONTEXT_PARTS_H

#include "advise/context.h"

/* Reads frames and the lines of code after them. Without any frame every line counts as code,
 * because people paste only the last lines. */
void context_read_traceback(context *c, scan_text text);
/* Sets the traits of the program, and what grows. The user's own line must be set. */
void context_read_traits(context *c, scan_text text, scan_text raw);
/* Sets between which versions of PyTorch the program's is. */
void context_read_version(context *c, scan_text text, scan_text raw);
/* Sets the batch system, what runs the container, and the unit whose limit was reached. */
void context_read_service(context *c, scan_text raw);
/* Sets the program and what follows from it. Called after the marks and traits are set. */
void context_read_programs(context *c, scan_text raw);
/* Finds the first line that keeps the graph of every pass of a loop. */
void context_read_kept(context *c, scan_text text);
/* Returns whether the text has the words with no letter or digit before them. */
bool context_has_begin(scan_text t, const char *words);

#endif
