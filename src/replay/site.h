/* Sites: the program line of a stack, and the groups by which a report counts bytes.
 *
 * A site is the innermost frame outside the framework: outside torch, the standard library and
 * unnamed native code. If every frame is the framework's, it is the innermost frame. Stack id 0
 * (none) has site 0. */
#ifndef REPLAY_SITE_H
#define REPLAY_SITE_H

#include "recordings/framework.h"
#include "recordings/recording.h"

typedef struct site_table {
  uint32_t *of_stack; /* stack id → site; [0] is 0 */
  uint32_t *frames;   /* site → frame id; [0] is 0 */
  uint32_t count;     /* sites, site 0 included */
} site_table;

stow_status site_table_build(site_table *s, const recording *r);
void site_table_free(site_table *s);

/* Returns whether this file belongs to a framework or the language, not to the program. */
static inline bool site_is_framework(const char *file) {
  return framework_has_file(file);
}

/* What to group by. */
typedef enum group_by { GROUP_SITE, GROUP_TAG, GROUP_SIZE } group_by;

/* Returns the size class of an allocation, 0 to GROUP_SIZE_COUNT - 1, and its name ("1 MiB to 10
 * MiB"). */
#define GROUP_SIZE_COUNT 7
uint32_t group_size_class(uint64_t bytes);
const char *group_size_name(uint32_t size_class);

/* Writes "forward  train.py:15" for a frame ID, "no stack recorded" for 0. Returns `text`. */
const char *site_text(char *text, size_t size, const recording *r, uint32_t frame_id);

#endif
