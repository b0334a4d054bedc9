/* The readers that context.c asks in order. */
#ifndef ADVISE_CONTEXT_PARTS_H
#define ADVISE_CONTEXT_PARTS_H

#include "advise/context.h"

/* Sets the traits of the program, and what grows. The user's own line must be set. */
void context_read_traits(context *c, scan_text text, scan_text raw);

#endif
