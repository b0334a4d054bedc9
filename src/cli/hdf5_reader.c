/* stowage hdf5-reader: runs libhdf5 for a process that reads an HDF5 file. Started by the data
 * library with its descriptors in place (arrays/hdf5_wire.h). Not for users. */
#include <stdlib.h>

#include "arrays/hdf5_wire.h"
#include "cli/verb.h"

static int run(verb_call *call) {
  return hdf5_worker_main(call->operands[2], strtoull(call->operands[0], NULL, 10),
                          strtoull(call->operands[1], NULL, 10));
}

const verb verb_hdf5_reader = {
    .name = HDF5_WORKER_WORD,
    .summary = "read an HDF5 file for another process; the data library starts this",
    .example = "stowage " HDF5_WORKER_WORD " 67108864 16777216 x.h5",
    .operands = "HEAP SHARED FILE",
    .operands_min = 3,
    .operands_max = 3,
    .flags = VERB_HIDDEN,
    .run = run,
};
