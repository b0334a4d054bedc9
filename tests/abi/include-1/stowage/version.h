/* Version: the library's version at compile time, and that of the loaded library. */
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

/* Returns the version of the loaded library: "0.1.0". */
STOW_API const char *stow_version(void);

#ifdef __cplusplus
}
#endif
#endif
