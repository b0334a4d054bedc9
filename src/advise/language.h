/* Language: R's words for a vector that could not be allocated, in the languages that R speaks. */
#ifndef ADVISE_LANGUAGE_H
#define ADVISE_LANGUAGE_H

#include "advise/scan.h"

/* Returns the size that R could not allocate, SCAN_UNKNOWN if the text has no such message. *start
 * (may be NULL) receives the place of its words. R's Gb, GB and Go are powers of 1024. */
uint64_t language_r_vector(scan_text t, const char **start);

#endif
