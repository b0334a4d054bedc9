/* Arrow: makes and releases the structs of the Arrow C data interface (stowage/arrow.h).
 *
 * Every struct made here owns its buffers and can be moved out of its parent, as the specification
 * allows: each child has its own private data. */
#ifndef DATA_ARROW_PARTS_H
#define DATA_ARROW_PARTS_H

#include <stowage/arrow.h>

#include "base/dtype.h"
#include "base/status.h"

/* Returns the number type of an Arrow format ("l": int64); DTYPE_NONE if it is not a number. bool
 * is packed in bits and counts as not a number. */
dtype arrow_type(const char *format);
/* Returns the Arrow format of a number type; NULL if Arrow has none (bfloat16). */
const char *arrow_format(dtype type);

/* Makes a schema with `children` empty children, which the caller fills. Copies the texts. */
stow_status arrow_schema_make(struct ArrowSchema *s, const char *format, const char *name,
                              int64_t flags, size_t children);
/* Copies a schema with all of its children, dictionary and metadata. */
stow_status arrow_schema_copy(struct ArrowSchema *to, const struct ArrowSchema *from);
/* Gives `s` a dictionary, which the caller fills. */
stow_status arrow_schema_dictionary(struct ArrowSchema *s);

/* Makes an array with `buffers` NULL buffers, which the caller sets with malloc'ed memory that the
 * array then owns, and `children` empty children. */
stow_status arrow_array_make(struct ArrowArray *a, int64_t length, size_t buffers, size_t children);
stow_status arrow_array_dictionary(struct ArrowArray *a);
/* Allocates buffer `number` of `bytes` bytes and returns it; NULL: no memory (the message is set).
 */
void *arrow_buffer(struct ArrowArray *a, size_t number, size_t bytes);

void arrow_schema_release(struct ArrowSchema *s);
void arrow_array_release(struct ArrowArray *a);
void arrow_stream_release(struct ArrowArrayStream *s);

/* Returns the errno that a stream's callback returns for a status. */
int arrow_errno(stow_status status);

#endif
