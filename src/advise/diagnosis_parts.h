/* Diagnosis parts: what diagnosis.c calls in order, and what these parts share.
 *
 *   diagnosis_device.c   causes in device memory that the numbers prove
 *   diagnosis_guess.c    causes in device memory that the phase and the library suggest
 *   diagnosis_host.c     causes in host memory
 *   diagnosis_limit.c    fixes that raise a limit on host memory, in the words of what set it
 *   diagnosis_numbers.c  fixes for device memory, made of the text's own numbers and lines
 *   diagnosis_array.c    fixes for host memory, made of them
 *   diagnosis_fix.c      fixes by cause, library, version, platform and phase (recipes.h) */
#ifndef ADVISE_DIAGNOSIS_PARTS_H
#define ADVISE_DIAGNOSIS_PARTS_H

#include "advise/explanation.h"
#include "advise/recipes.h"

#define DIAGNOSIS_BELIEVED 0.3 /* a confidence below this leaves the cause open */
/* A device with a batch in it has as much free. */
#define DIAGNOSIS_TINY (UINT64_C(1) << 20)

/* Adds a cause; the caller writes its sentence. */
cause *diagnosis_cause(explanation *x, cause_id id, double confidence);
/* Returns whether the text has one of the marks. */
static inline bool has(const explanation *x, uint64_t marks) {
  return context_any(&x->evidence.message.context, marks);
}
/* Returns whether the text has one of the traits. */
static inline bool does(const explanation *x, uint64_t traits) {
  return (x->evidence.message.context.traits & traits) != 0;
}
/* Returns true if so much more was free than requested that the device was not full. */
bool diagnosis_had_room(const numbers *n);
/* Returns true if the text does not say what is free, and this program holds so little of the
 * device that twice the request would fit beside it. */
bool diagnosis_unused(const numbers *n);
/* Returns true if the device is an integrated GPU of AMD: its part of the RAM, set in the BIOS, is
 * smaller than any card. */
bool diagnosis_carved(const explanation *x);
/* Returns true if the request is larger than any machine's memory. */
bool diagnosis_absurd(const numbers *n);

/* ---- the parts ---- */
void diagnosis_device(explanation *x);
/* Adds the likeliest cause in device memory, where the numbers do not decide. */
void diagnosis_guess(explanation *x);
void diagnosis_host(explanation *x);
/* Adds the fixes for the first cause, and the command that finds out more. */
void diagnosis_fixes(explanation *x);

/* Adds one fix that the tables do not have. */
void diagnosis_add_fix(explanation *x, const char *change, const char *cost);
#define DIAGNOSIS_SCRIPT "python train.py" /* stands for the user's own command in the tables */
/* Writes `words` with the user's own command in place of it, as far as the text shows it. */
void diagnosis_write_words(char *out, size_t size, const char *words, const message *m);
/* Adds a fix in the words of a recipe, with the user's own command in it. Nothing is added to
 * FIXES_MAX fixes. */
void diagnosis_add(explanation *x, const recipe *r, uint64_t bytes);
/* Returns what the first fix for a cause saves. */
uint64_t diagnosis_saving(const explanation *x, cause_id id);
/* Adds fixes with numbers that a server's text gives. */
void diagnosis_server_fixes(explanation *x);
/* Adds fixes with the limit of a pool, and the processes that hold the device. */
void diagnosis_device_fixes(explanation *x);
/* Names the line that keeps a graph, and what it must keep instead. */
void diagnosis_kept_fix(explanation *x);
/* Adds half of the batch that the text or a shape names. Returns whether it did. `derived`: flags
 * of recipes.h. */
bool diagnosis_batch_fix(explanation *x, uint64_t derived);
/* Adds fixes for arrays, pinned memory, containers and units. Returns whether they are those of a
 * killed program that the kernel's log names. */
bool diagnosis_host_fixes(explanation *x);
/* Protects a service of the system from systemd-oomd, or gives a program a unit of its own. */
void diagnosis_unit_fix(explanation *x);
/* Returns whether systemd-oomd killed a service of the system, not a terminal or a session. */
bool diagnosis_is_service(const message *m);
/* Adds fixes that raise the limit of a job or a container, and show what it used. */
void diagnosis_limit_fixes(explanation *x);
/* Adds the settings of the killed program that the kernel's log names. Returns whether it did. */
bool diagnosis_killed_program(explanation *x);
/* Returns what set the limit that this failure is about. */
context_service diagnosis_service(const message *m);

/* Returns the traits of the program whose settings decide, 0 if it is a program of the user's own.
 * A trait counts only if the failure is of a kind that such a program reports. */
uint64_t diagnosis_own(const message *m);
/* Returns whether a trainer owns the loop: its settings decide, not lines of the user's. */
bool diagnosis_owned(const message *m);
/* Returns whether the text shows that the program is written in Python. */
bool diagnosis_python(const message *m);

#endif
