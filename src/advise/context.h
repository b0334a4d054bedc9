/* Context: the circumstances of a failure, as far as a pasted text shows them.
 *
 * Tables of words (context.c) say which library, which platform, which phase of the program. Frames
 * of a traceback give the user's own line. The causes and the fixes of a text are chosen by these
 * marks; a mark that is not set means "not seen", never "not so". */
#ifndef ADVISE_CONTEXT_H
#define ADVISE_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "advise/scan.h"

/* Marks. Each is one bit of context.seen. */
#define CONTEXT_MARKS(X)                                                                           \
  X(WINDOWS)                                                                                       \
  X(LINUX)                                                                                         \
  X(MAC) X(COLAB) X(KAGGLE) X(NOTEBOOK) X(CONTAINER) X(NVIDIA) X(AMD) X(INTEL) X(APPLE) X(TPU)     \
      X(LOADING) X(PLACING) X(FORWARD) X(BACKWARD) X(OPTIMIZER) X(EVALUATING) X(GENERATING)        \
          X(TRAINING) X(ATTENTION) X(GATHERING) X(NO_GRAD) X(FORKING) X(READING) X(SAVING)         \
              X(COPYING) X(LISTING) X(DECODING) X(TRANSFORMERS) X(TRAINER) X(LIGHTNING)            \
                  X(DEEPSPEED) X(COMFY) X(WEBUI) X(DIFFUSERS) X(YOLO) X(WHISPER) X(OLLAMA)         \
                      X(KERAS) X(PANDAS) X(DASK) X(RAPIDS) X(EXPANDABLE) X(LORA) X(JAX)

enum {
#define CONTEXT_INDEX(name) CONTEXT_INDEX_##name,
  CONTEXT_MARKS(CONTEXT_INDEX)
#undef CONTEXT_INDEX
      CONTEXT_INDEX_COUNT
};
_Static_assert(CONTEXT_INDEX_COUNT <= 60, "the marks fit one number");

#define CONTEXT_BIT(name) (UINT64_C(1) << CONTEXT_INDEX_##name)

typedef struct context {
  uint64_t seen;                 /* CONTEXT_BIT(…) */
  uint16_t torch_from, torch_to; /* 104 for 1.4, 201 for 2.1; 0 and UINT16_MAX not known */
  char line[160];                /* the user's own line: "train.py:157 in evaluate"; "" unknown */
} context;

/* Fills `c` from `text`, a cleaned text; `raw` is the text before that. */
void context_read(context *c, scan_text text, scan_text raw);
static inline bool context_has(const context *c, uint64_t marks) {
  return (c->seen & marks) == marks;
}
static inline bool context_any(const context *c, uint64_t marks) {
  return (c->seen & marks) != 0;
}
/* "in the backward pass", …; "" if the phase is not known. */
const char *context_phase(const context *c);

#endif
