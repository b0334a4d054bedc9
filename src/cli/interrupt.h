/* Interrupt: says what is kept when Ctrl-C or SIGTERM ends a job that has checkpoints.
 *
 * Called by the verbs that write data files. The checkpoints of an output are in OUT.resume. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <stdint.h>

/* Watches for the signals until the process ends. OUT.resume has a checkpoint if it is larger than
 * `empty_bytes`. A signal that is ignored stays ignored (nohup, a background job). */
void interrupt_watch(const char *verb, const char *out, uint64_t empty_bytes);

#endif
