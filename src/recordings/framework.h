/* Framework: which source files belong to a framework or to Python, not to the program. Used to
 * find the call site of a stack: its innermost frame of the program. */
#ifndef RECORDINGS_FRAMEWORK_H
#define RECORDINGS_FRAMEWORK_H

#include <stdbool.h>

#include "recordings/recording.h"

bool framework_has_file(const char *file);

/* Returns the frame id of the innermost frame outside the framework, else that of the innermost
 * frame; 0 if the stack is empty or unknown. */
uint32_t framework_site(const recording *r, uint32_t stack_id);

#endif
