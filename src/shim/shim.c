/* The shim: preloaded beneath a program, it answers for the functions named in hooks.def and passes
 * everything else by.
 *
 * The list is empty for now; what is here is the table made from it, so that a tool can ask a built
 * shim what it hooks. */
#include <stddef.h>

#include <stowage/status.h>

typedef struct shim_hook {
  const char *name;
} shim_hook;

static const shim_hook hooks[] = {
#define HOOK(name) {#name},
#include "shim/hooks.def"
#undef HOOK
    {NULL},
};

/* The name of hook `i`, NULL past the last. */
STOW_API const char *stow_shim_hook(size_t i);
const char *stow_shim_hook(size_t i) {
  return i < sizeof hooks / sizeof hooks[0] ? hooks[i].name : NULL;
}
