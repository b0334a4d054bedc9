/* Installed: is this installation complete, and does another program called stowage get in its way?
 *
 * PyPI has a package `stowage` that is not this one (it links dotfiles, and brings a command of the
 * same name). This project's distribution is `stowage-memory`. */
#ifndef CLI_INSTALLED_H
#define CLI_INSTALLED_H

#include <limits.h>

typedef struct installed {
  char own_folder[PATH_MAX];      /* the folder of this command */
  char foreign_command[PATH_MAX]; /* a command of that name earlier on PATH that is not ours; "" if
                                     none */
  char foreign_package[PATH_MAX]; /* the metadata of the other Python package; "" if none */
  char missing[64]; /* a library that should lie beside the shim; "" if none is missing */
} installed;

void installed_look(installed *answer);

#endif
