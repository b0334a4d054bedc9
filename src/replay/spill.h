/* Spill: runs a recorded program through the residency engine on a simulated device with less vram.
 *
 * Called by `stowage replay --spill`. The recording must have launches and touches
 * (docs/trace-format.md). The program's last step is repeated until its time is steady. The same
 * recording and options always give the same result. */
#ifndef REPLAY_SPILL_H
#define REPLAY_SPILL_H

#include "recordings/recording.h"
#include "residency/residency.h"

/* ---- the program ---- */

typedef enum spill_op_kind { SPILL_ALLOC, SPILL_FREE, SPILL_LAUNCH } spill_op_kind;

typedef struct spill_op {
  uint8_t kind;
  uint32_t word_count;
  uint64_t addr, bytes; /* address and size of a block */
  uint64_t function;
  uint64_t device_ns, gap_ns; /* gap: host time since the previous launch */
  size_t first_word;
} spill_op;

typedef struct spill_block {
  uint64_t addr, bytes;
} spill_block;

typedef enum spill_step { SPILL_STEP_MARKS, SPILL_STEP_PERIOD, SPILL_STEP_WHOLE } spill_step;

/* One step, ready to repeat: its last operations restore the blocks it began with. */
typedef struct spill_program {
  spill_op *ops;
  size_t op_count, op_capacity, launch_count;
  uint64_t *words;
  spill_block *word_blocks; /* the block that contains each word */
  size_t word_count, word_capacity;
  spill_block *initial; /* live at the start */
  size_t initial_count, initial_capacity;
  uint64_t peak_live_bytes;
  uint64_t unused_bytes;            /* of pools: never used, and not live */
  uint64_t bare_ns;                 /* from the recording; 0 if unknown */
  int crossings;                    /* 1: blocks that outlive the step are read only */
  spill_step how;                   /* how the step was detected */
  bool torch;                       /* a program of PyTorch: its scripts help (spill_scripts.h) */
  const struct spill_program *next; /* what the next step runs, in a ring; NULL: the same */
} spill_program;

/* Builds the program. STOW_ERR_NOT_FOUND: the recording has no launches with touches. */
stow_status spill_program_build(spill_program *p, const recording *r, uint16_t device);
void spill_program_free(spill_program *p);

/* ---- the run ---- */

typedef struct spill_options {
  uint64_t vram_bytes;    /* vram of the device */
  uint64_t context_bytes; /* used by the CUDA context and code */
  uint64_t unit_bytes;    /* 0: 20 MiB, PyTorch's page */
  uint64_t stage_bytes;   /* 0: chosen by the engine */
  bool stay;              /* move nothing */
  bool pages_only;        /* leave out the scripts inside PyTorch */
} spill_options;

/* Vram left to libraries that cannot spill (docs/spill.md). */
#define SPILL_RESERVE_BYTES (UINT64_C(128) << 20)

typedef struct spill_times { /* times of one step */
  uint64_t step_ns;
  uint64_t wait_in_ns, wait_out_ns; /* the device waits for copies */
  uint64_t exchange_ns;             /* page calls, checks, the gate */
  uint64_t in_place_ns;             /* kernels reading host pages */
  uint64_t in_bytes, out_bytes;     /* exchanged */
  uint64_t in_copied_bytes, out_copied_bytes;
  uint64_t exchanges;
} spill_times;

/* What the scripts inside PyTorch copy in one step, and how long the device waits for each. */
typedef struct spill_scripted {
  bool used; /* with them no page has to move; false: the pages were simulated without them */
  uint64_t saved_out_bytes, saved_in_bytes, saved_wait_ns;
  uint64_t state_bytes, state_wait_ns; /* bytes in each direction */
  uint64_t weight_bytes, weight_wait_ns;
} spill_scripted;

typedef struct spill_result {
  uint64_t bare_ns;  /* time of the same model with enough vram for everything */
  uint64_t floor_ns; /* bare + crossings x excess / bus */
  uint64_t excess_bytes, capacity_bytes;
  spill_times steady;
  uint64_t stay_ns;                            /* a step that moves nothing */
  uint32_t steps;                              /* until it was steady */
  bool fits;                                   /* everything fits: nothing was simulated */
  uint64_t bound_in_bytes, bound_copied_bytes; /* Belady's bound: no plan copies in less */
  spill_scripted scripts;
  residency_stats engine; /* empty if the scripts are enough */
} spill_result;

stow_status spill_run(spill_result *out, const spill_program *p, const spill_options *options);

/* Computes the fewest bytes that any plan copies into `capacity_bytes` per step, once steady. */
stow_status spill_bound(const spill_program *p, uint64_t capacity_bytes, uint64_t unit_bytes,
                        uint64_t *in_bytes, uint64_t *copied_bytes);

#endif
