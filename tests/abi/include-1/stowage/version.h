/* Version of the library: the numbers compiled against, and those of what is loaded. */
#ifndef STOWAGE_VERSION_H
#define STOWAGE_VERSION_H

#include <stowage/status.h>

#define STOW_VERSION_MAJOR 0
#define STOW_VERSION_MINOR 1
#define STOW_VERSION_PATCH 0
#define STOW_VERSION_TEXT  "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0": the version of the library that was loaded. */
STOW_API const char *stow_version(void);

#ifdef __cplusplus
}
#endif
#endif
