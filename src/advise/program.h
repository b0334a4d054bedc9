/* Program: what a PyTorch program was doing when it ran out of memory, as it reported itself.
 *
 * python/stowage/_program.py writes the text inside the process; it is stored as the fact "program"
 * of the recording. Each line is a key and its values; unknown lines are ignored, a line that
 * cannot be read leaves its fields unknown. The text is not trusted: every number and every name is
 * checked and limited. */
#ifndef ADVISE_PROGRAM_H
#define ADVISE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRAM_INPUTS_MAX 4
#define PROGRAM_DIMS_MAX   8
#define PROGRAM_ADVICE_MAX 4
/* The largest size in it; larger ones are ignored. */
#define PROGRAM_BYTES_MAX (UINT64_C(1) << 50)

typedef enum program_step {
  PROGRAM_UNKNOWN = 0,
  PROGRAM_BUILDING, /* a module is created, or moved to the device */
  PROGRAM_LOADING,
  PROGRAM_FORWARD,
  PROGRAM_BACKWARD,
  PROGRAM_OPTIMIZER,
  PROGRAM_OTHER, /* a line of the program itself */
} program_step;

/* Options of an optimizer that affect what it holds. */
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

/* What the program's source shows about what it keeps, in bits. */
typedef enum program_advice_kind {
  ADVICE_KEPT = 1 << 0,    /* values with graphs that no backward pass uses */
  ADVICE_CARRIED = 1 << 1, /* a state that each turn of a loop makes from the one before */
  ADVICE_SUMMED = 1 << 2,  /* terms that one backward pass is run on */
  ADVICE_NEEDED = 1 << 3,  /* graphs that a backward pass needs */
  ADVICE_WITHOUT = 1 << 4, /* a loop without a backward pass */
  ADVICE_VALUES = 1 << 5,  /* tensors without graphs */
} program_advice_kind;

typedef struct program_advice {
  program_advice_kind kind;
  uint32_t graphs;     /* how many are kept; 0: unknown */
  uint64_t held_bytes; /* of the tensors that are kept on a device, about; 0: unknown */
  char change[400], cost[160];
} program_advice;

typedef struct program_facts {
  bool known; /* a text of a known version was present */
  program_step step;
  bool grad_known, grad;         /* gradients are recorded */
  bool training_known, training; /* model.train() rather than model.eval() */
  bool autocast;
  char module[64], within[64], path[64]; /* the module called; the innermost one; its name in the
                                          * model */
  uint64_t parameter_numbers, parameter_bytes;
  uint64_t trained_numbers, trained_bytes; /* parameters that require gradients */
  uint64_t device_bytes;                   /* parameters on a device */
  uint64_t narrow_bytes;                   /* parameters in 16 bits or fewer */
  uint64_t gradient_bytes;
  uint32_t modules; /* modules with weights of their own */
  uint32_t passed;  /* how many of them come before the innermost one, if passed_known */
  bool passed_known;
  uint64_t head;      /* outputs of the last linear layer */
  char optimizer[64]; /* class of the optimizer with the most weights; "": none was found */
  uint64_t optimizer_numbers, optimizer_bytes, state_bytes; /* sums over all optimizers */
  uint32_t optimizer_flags;
  program_input inputs[PROGRAM_INPUTS_MAX];
  uint32_t input_count;
  uint64_t batch;   /* samples; 0: unknown */
  bool batch_named; /* from a variable or a DataLoader; otherwise it is the first dimension */
  program_advice advice[PROGRAM_ADVICE_MAX];
  uint32_t advice_count;
} program_facts;

/* Parses `count` bytes, which need not end with a zero byte. */
void program_read(program_facts *p, const char *text, size_t count);

/* Returns the first advice of one of the kinds, NULL if there is none. */
const program_advice *program_advice_of(const program_facts *p, uint32_t kinds);
/* Returns whether it trains: there is an optimizer, a gradient or a backward pass. */
bool program_trains(const program_facts *p);
/* Returns whether it runs without training, as far as the program reported. False if unknown. */
bool program_infers(const program_facts *p);
/* Returns whether gradients are recorded although the model is in eval() mode and nothing trains
 * it. */
bool program_needs_no_graph(const program_facts *p);
/* Returns whether the weights are already in 16 bits or fewer. */
bool program_is_narrow(const program_facts *p);
/* Returns "images", "sequences" or "samples", by the shape of the first input. */
const char *program_samples(const program_facts *p);

#endif
