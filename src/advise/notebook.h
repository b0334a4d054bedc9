/* Notebook: the outputs of a Jupyter notebook file (.ipynb) as one text.
 *
 * An error is stored in the cell's outputs: a traceback line by line, or what the cell printed. The
 * source of the cells is not part of it: code that mentions an error is not one. */
#ifndef ADVISE_NOTEBOOK_H
#define ADVISE_NOTEBOOK_H

#include <stdbool.h>

#include "advise/scan.h"
#include "base/buffer.h"

/* Returns whether the text looks like a notebook file. */
bool notebook_is(scan_text text);
/* Appends what the cells printed and raised, in order. */
stow_status notebook_outputs(buffer *out, scan_text text);
/* Appends the source of the last cell that ended with an error; *failed receives whether one did.
 */
stow_status notebook_source(buffer *out, scan_text text, bool *failed);

#endif
