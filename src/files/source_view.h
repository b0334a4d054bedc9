/* Source view: values of a file that do not follow one another, read as if they did.
 *
 * A tensor may be stored transposed, with gaps or repeated: its values lie at strides. A view gives
 * such a tensor offsets behind the end of the file, and source_read collects the values. So the
 * readers of tensors need not know.
 *
 *   |------------ file ------------|-- view 0 --|-- view 1 --|
 *   0                           bytes                  source_end
 *
 * Filled by torch_file.c. Guarantees: every value lies within the file; memory for a read is
 * SOURCE_VIEW_BYTES, whatever the strides are. */
#ifndef FILES_SOURCE_VIEW_H
#define FILES_SOURCE_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define SOURCE_VIEW_DIMS  16
#define SOURCE_VIEW_BYTES (UINT64_C(1) << 20)

typedef struct source_view {
  uint64_t offset; /* of its first value in the file */
  uint32_t width;  /* bytes of a value: at most 16 */
  uint32_t dims;
  uint64_t shape[SOURCE_VIEW_DIMS], stride[SOURCE_VIEW_DIMS]; /* stride in values */
  uint64_t at, bytes; /* set by source_view_add: where it is read, and its size */
} source_view;

typedef struct source_views source_views;

/* The file that the views are of. `read` reads its bytes. */
typedef struct source_viewed {
  const char *name; /* for messages */
  uint64_t bytes;
  stow_status (*read)(void *user, uint64_t offset, void *to, size_t count);
  void *user;
} source_viewed;

/* Adds a view to *views, which is NULL at first, and sets *at to its offset. STOW_ERR_FORMAT if a
 * value lies outside the file; STOW_ERR_UNSUPPORTED if the views repeat so much that they are far
 * larger than the file. */
stow_status source_view_add(source_views **views, const source_viewed *of, const source_view *view,
                            uint64_t *at);
/* Reads bytes of one view. */
stow_status source_view_read(const source_views *views, const source_viewed *of, uint64_t offset,
                             void *to, size_t count);
/* Returns the end of the last view; `bytes` if there is none. */
uint64_t source_view_end(const source_views *views, uint64_t bytes);
/* Frees the views; NULL is allowed. */
void source_view_free(source_views *views);

#endif
