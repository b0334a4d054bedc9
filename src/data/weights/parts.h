/* Parts: definitions that the files of this folder share (weights.h lists the files). */
#ifndef DATA_WEIGHTS_PARTS_H
#define DATA_WEIGHTS_PARTS_H

#include "data/weights/weights.h"
#include "files/writer.h"

/* Chunks begin at multiples of this, so that the output does not depend on the budget or the
 * threads: ties of a pruned tensor are shared out block by block. */
#define WEIGHTS_BLOCK UINT64_C(65536)

typedef struct chunk_buffers {
  const uint8_t *bytes; /* as read */
  float *before, *after;
  uint8_t *out;      /* the values of the first part */
  uint8_t *codes;    /* of the second part: scales, or bits */
  uint64_t *offsets; /* behind the bits in codes: kept values before each row */
} chunk_buffers;

typedef struct weights_job {
  weights_result *r;
  const weights_options *o;
  const budget *b;
  const char *in, *out;
  char *target;    /* where files are written: OUT, or OUT.partial for a folder */
  writer *writers; /* one for each file of the output; NULL on a dry run */
  struct journal *journal;
  uint64_t chunk_values; /* the most that one chunk has */
  unsigned threads;
  /* Set by merge. `change` converts a chunk instead of weights_encode: c->bytes to c->out, with
   * c->before, c->after and c->codes (8 bytes for each value) as scratch. `begin` and `end` are
   * called before an item's first chunk and after its last, never twice at once. */
  stow_status (*change)(struct weights_job *j, size_t item, uint64_t first, size_t count,
                        chunk_buffers *c, quant_error *error);
  stow_status (*begin)(struct weights_job *j, size_t item);
  void (*end)(struct weights_job *j, size_t item);
  void *user;    /* the walk's */
  void *context; /* context of change, begin and end */
  uint64_t key;  /* what else decides the output: a journal of another key is not believed */
} weights_job;

/* plan.c */
stow_status weights_plan(weights_result *r, const weights_options *o, const char *out);
/* Appends how many chosen tensors stay as they are, by reason; false if there are none. */
bool weights_skipped(const weights_result *r, buffer *to);
/* Returns why a tensor that was chosen stays as it is, as "already that small". */
const char *weights_skip_text(const weights_result *r, const weights_item *item);
/* Adds a tensor to the output. The name is copied if `name` is not that of the input's tensor. */
stow_status weights_add_part(weights_result *r, size_t item, const char *name, weights_role role,
                             tensor_type stored, uint32_t dims, const uint64_t *shape);
/* Adds the tensors that an item becomes, and its bytes to the sums. */
stow_status weights_add_parts(weights_result *r, size_t item);
/* Returns the bytes of the model's tensors after a shrink with these options; with `gguf`, of a
 * GGUF file made from it. */
uint64_t weights_bytes_as(const model *m, const weights_options *o, bool gguf);
/* packed.c: Returns whether a tensor of a model that is quantized holds scales, by its name. */
bool weights_is_scale(const tensor *t);

/* names.c */
/* Returns for what the default choice of --quantize and --prune leaves a tensor out, as "named
 * lm_head"; NULL if it takes it. Equal reasons are the same string. */
const char *weights_left_by(model_format format, const tensor *t);
/* Returns whether a module's name is that of an embedding. */
bool weights_is_embedding(const char *module, size_t length);
/* Returns whether readers take the matrix for something else than a linear layer: an embedding, or
 * the router of a mixture. */
bool weights_is_lookup(const tensor *t);
/* The output layers of transformers, which may be tied to the embedding; ended by NULL. */
extern const char *const weights_heads[];
bool weights_named(const char *name, const char *const *patterns, size_t count);

/* Sets the thresholds of the items that are not done (prune.c). */
stow_status weights_find_thresholds(weights_job *j);

/* sparse.c: Counts what each ACTION_BITMASK item keeps, and adds its parts. An item that would not
 * become smaller is stored dense. */
stow_status weights_count_kept(weights_job *j);

/* bitmask.c: Moves the kept values of a chunk to the front of c->out, and writes the bits and the
 * offsets of its rows, counted from the chunk's first value. c->after holds the values as they are
 * stored. Returns the number kept. */
size_t weights_compact(const weights_item *item, size_t count, chunk_buffers *c);

/* encode.c: one chunk of an item, read into `bytes`. The outputs are one for each part. */
stow_status weights_encode(const weights_job *j, const weights_item *item, uint64_t first,
                           size_t count, chunk_buffers *c, quant_error *error, uint64_t *zeros);
/* Prunes and casts a chunk. c->out holds the values as they are stored, c->after as float32. */
void weights_prune_and_cast(const weights_job *j, const weights_item *item, uint64_t first,
                            size_t count, chunk_buffers *c, quant_error *error, uint64_t *zeros);
/* Decodes values of any type that can be decoded; false if this type cannot. */
bool weights_can_decode(tensor_type t);
bool weights_is_float8(tensor_type t);
void weights_decode(tensor_type t, const void *bytes, size_t count, float *values);
/* Sets the smallest values of whole rows to 0. `first` is the first value's place in the tensor. */
uint64_t weights_prune_chunk(const weights_item *item, uint64_t first, float *values, size_t count,
                             bool two_of_four);

/* stream.c */
stow_status weights_stream(weights_job *j);
/* Returns the values of one chunk of the item; the last chunk may have fewer. */
uint64_t weights_chunk_length(const weights_job *j, const weights_item *item);
stow_status weights_make_buffers(const weights_job *j, chunk_buffers *c);
void weights_free_buffers(chunk_buffers *c);
/* Sets chunk_values and threads from the budget. */
stow_status weights_size_chunks(weights_job *j, size_t bytes_per_value);
/* Takes the chunks of a run that was stopped, with fewer threads if the budget asks for it: the
 * number of threads does not decide whether a run can be resumed. Changes nothing if not even one
 * thread fits the budget. */
void weights_take_chunks(weights_job *j, size_t bytes_per_value, uint64_t chunk_values);
stow_status weights_verify(weights_job *j);
uint64_t weights_chunk_digest(const void *bytes, size_t count, uint32_t part, uint64_t at);

/* output.c */
/* Checks that the output can be written there. */
stow_status weights_check_output(weights_result *r, const weights_options *o, const char *in,
                                 const char *out);
/* Assigns the parts to files. */
stow_status weights_name_output(weights_result *r, const weights_options *o, const char *out);
stow_status weights_open_output(weights_job *j, bool resume);
stow_status weights_commit_output(weights_job *j);
/* Removes what was written; with `keep`, leaves it for --resume. */
void weights_abandon_output(weights_job *j, bool keep);
/* Computes the sizes of the files, for a dry run. */
stow_status weights_measure_output(weights_job *j);

/* Produces the output of a plan (shrink.c). */
stow_status weights_run(weights_job *j);

/* journal.c */
typedef struct journal journal;
/* Returns whether a run that was stopped left its journal for this output, or another one runs. */
bool journal_exists(const char *out);
/* Returns the length of the chunks of the run that was stopped; 0: there is none. Not checked: any
 * number may be in the file. */
uint64_t journal_chunk_values(const char *out);
stow_status journal_open(journal **made, weights_job *j);
stow_status journal_add(journal *l, const weights_job *j, size_t item);
/* Writes what was added, after the output's bytes are on the disk. */
stow_status journal_flush(journal *l, const weights_job *j);
/* Closes the journal; with `done`, removes the file. */
void journal_close(journal *l, bool done);

#endif
