/* Missing: the error for a file that cannot be opened, with the next step. */
#ifndef FILES_MISSING_H
#define FILES_MISSING_H

#include "base/status.h"

/* Fails with STOW_ERR_NOT_FOUND or STOW_ERR_IO for `path`, which open(2) refused with `error`. For
 * a file that does not exist, the message names the missing folder, or a file with a similar name.
 * An address that Stowage does not read (s3://…) is STOW_ERR_UNSUPPORTED.
 */
stow_status missing_fail(const char *path, int error);

#endif
