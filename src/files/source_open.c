/* Source open: chooses between a file and a server by the form of the path. */
#include "files/remote.h"

stow_status source_open(source *s, const char *path) {
  return remote_is(path) ? remote_open(s, path) : source_open_file(s, path);
}
