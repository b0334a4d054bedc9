/* The public recording (stowage/recording.h) as the rest of the library sees it. */
#ifndef RECORDINGS_RECORDING_API_H
#define RECORDINGS_RECORDING_API_H

#include <stowage/recording.h>

#include "recordings/recording.h"

struct stow_recording {
  recording data;
  char *path;
};

#endif
