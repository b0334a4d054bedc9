/* Tag: a name that allocations carry ("optimizer", "batch 7").
 *
 * Each thread has a stack of tags; an allocation carries the top tag. A tag can pin its allocations
 * to a tier.
 *
 * Threads: each has its own stack. Fork: a child keeps the tags of the thread that forked. */
#ifndef STOWAGE_TAG_H
#define STOWAGE_TAG_H

#include <stdint.h>

#include <stowage/device.h>
#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STOW_TAG_DEPTH_MAX 64
#define STOW_TAG_COUNT_MAX 65535

/* Gives this thread's allocations the tag `name` until the matching pop. Copies the name; equal
 * names are the same tag. STOW_ERR_OVERFLOW: the stack is deeper than 64, or there are more than
 * 65535 names. */
STOW_API stow_status stow_tag_push(const char *name);
/* Pushes a tag whose allocations stay on `tier` (vram or host). */
STOW_API stow_status stow_tag_push_tier(const char *name, stow_tier tier);
/* Removes the top tag. STOW_ERR_STATE: the stack is empty. */
STOW_API stow_status stow_tag_pop(void);

/* Returns the name of a tag number; "" for 0 (no tag) and for unknown numbers. Never NULL;
 * constant.
 */
STOW_API const char *stow_tag_name(uint32_t tag);

#ifdef __cplusplus
}
#endif
#endif
