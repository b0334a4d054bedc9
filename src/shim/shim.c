/* What a built shim can be asked. */
#include "shim/shim.h"

#include <stowage/version.h>

#include "shim/hooks.h"

const char *stow_shim_version(void) {
  return STOW_VERSION_TEXT;
}
