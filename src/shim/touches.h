/* Touches: with `stowage run --record FILE --touches`, every launch, copy and fill and the
 * addresses it names go into the recording, with device times sampled by events. */
#ifndef SHIM_TOUCHES_H
#define SHIM_TOUCHES_H

#include <stdint.h>

/* The program has device memory there; a launch that names an address in it is recorded with it.
 * The first call begins the recording of launches if the run wants it. Cheap if not. */
void touches_range(uint64_t addr, uint64_t bytes);

#endif
