/* Protocol: paths in a run's folder. */
#include "run/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/rank.h"

bool run_path(char path[PATH_MAX], const char *folder, const char *name) {
  ASSERT(folder != NULL && name != NULL);
  return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

bool run_process_path(char path[PATH_MAX], const char *folder, const char *process,
                      const char *ending) {
  ASSERT(folder != NULL && process != NULL);
  ASSERT(ending[0] == '.');
  return snprintf(path, PATH_MAX, "%s/%s%s", folder, process, ending) < PATH_MAX;
}

void run_process_name(char name[RUN_PROCESS_MAX]) {
  const char *rank = rank_text();
  if (rank[0] != '\0')
    snprintf(name, RUN_PROCESS_MAX, RUN_RANK "%s-%d", rank, (int)getpid());
  else
    snprintf(name, RUN_PROCESS_MAX, "%d", (int)getpid());
}

int run_process_pid(const char *name) {
  const char *dash = strrchr(name, '-');
  return (int)strtol(dash != NULL ? dash + 1 : name, NULL, 10);
}

bool run_has_ending(const char *name, const char *ending) {
  ASSERT(ending[0] == '.');
  size_t length = strlen(name), tail = strlen(ending);
  return length > tail && strcmp(name + length - tail, ending) == 0;
}
