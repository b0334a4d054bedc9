/* Installed: checks whether this installation is complete, and whether another program called
 * stowage shadows it.
 *
 * PyPI has a package `stowage` that is not this one (it links dotfiles, and brings a command of the
 * same name). This project's distribution is `stowage-memory`. */
#ifndef CLI_INSTALLED_H
#define CLI_INSTALLED_H

#include <limits.h>

typedef struct installed {
  char own_folder[PATH_MAX];      /* the folder of this command */
  char foreign_command[PATH_MAX]; /* a foreign command of the same name earlier on PATH; "" if
                                   * none */
  char foreign_package[PATH_MAX]; /* the metadata of the other Python package; "" if none */
  char missing[64];               /* a library that is missing beside the shim; "" if none */
} installed;

void installed_look(installed *answer);

#endif
