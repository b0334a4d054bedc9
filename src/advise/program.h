/* Program: what a PyTorch program was doing when it ran out, as it said itself.
 *
 * python/stowage/_program.py writes the text inside the process; it travels as the fact "program"
 * of the recording. Each line is a key and its values; unknown lines are ignored, a line that
 * cannot be read leaves its fields unknown. The text may come from anywhere: nothing in it is
 * trusted, every number and every name is bounded. */
#ifndef ADVISE_PROGRAM_H
#define ADVISE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRAM_INPUTS_MAX 4
#define PROGRAM_DIMS_MAX   8
#define PROGRAM_BYTES_MAX                                                                          \
  (UINT64_C(1) << 50) /* of any size in it: larger ones are not believed                           \
                       */

typedef enum program_step {
  PROGRAM_UNTOLD = 0,
  PROGRAM_BUILDING, /* a module is made, or moved to the device */
  PROGRAM_LOADING,
  PROGRAM_FORWARD,
  PROGRAM_BACKWARD,
  PROGRAM_OPTIMIZER,
  PROGRAM_OTHER, /* a line of the program itself */
} program_step;

/* Options of an optimizer that change what it holds. */
enum {
  PROGRAM_FUSED = 1 << 0,
  PROGRAM_SINGLE = 1 << 1, /* foreach=False */
  PROGRAM_AMSGRAD = 1 << 2,
  PROGRAM_MOMENTUM = 1 << 3,
  PROGRAM_CENTERED = 1 << 4,
};

typedef struct program_input {
  char dtype[16];
  uint32_t rank;
  uint64_t dims[PROGRAM_DIMS_MAX];
} program_input;

typedef struct program_facts {
  bool known; /* a text of a version that can be read was there */
  program_step step;
  bool grad_known, grad;         /* gradients are recorded */
  bool training_known, training; /* model.train(), not model.eval() */
  bool autocast;
  char module[64], within[64], path[64]; /* called; innermost one; its name in the model */
  uint64_t parameter_numbers, parameter_bytes;
  uint64_t trained_numbers, trained_bytes; /* require gradients */
  uint64_t device_bytes;                   /* of the parameters, on a device */
  uint64_t narrow_bytes;                   /* of the parameters, in 16 bits or fewer */
  uint64_t gradient_bytes;
  uint32_t modules; /* with weights of their own */
  uint32_t passed;  /* of them, before the innermost one; if passed_known */
  bool passed_known;
  uint64_t head;      /* outputs of the last linear layer */
  char optimizer[64]; /* the class of the one with the most weights; "" none was found */
  uint64_t optimizer_numbers, optimizer_bytes, state_bytes; /* sums over all optimizers */
  uint32_t optimizer_flags;
  program_input inputs[PROGRAM_INPUTS_MAX];
  uint32_t input_count;
  uint64_t batch;   /* samples; 0 not known */
  bool batch_named; /* a variable or a DataLoader says so; otherwise it is the first dimension */
} program_facts;

/* Reads `count` bytes, which need not end with a zero. */
void program_read(program_facts *p, const char *text, size_t count);

/* Does it train: is there an optimizer, a gradient, a backward pass? */
bool program_trains(const program_facts *p);
/* Does it run without training, as far as the program says? False where it is not known. */
bool program_infers(const program_facts *p);
/* Are the weights in 16 bits or fewer already? */
bool program_is_narrow(const program_facts *p);
/* "images", "sequences", "samples": by the shape of the first input. */
const char *program_samples(const program_facts *p);

#endif
