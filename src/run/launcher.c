/* Run launcher: walks up the parents to the first one that has no rank itself. A shell or a script
 * in between has our rank in its environment too. */
#include "run/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/process.h"
#include "base/rank.h"

#define GENERATIONS_MAX 16

/* Returns whether the process was started with a variable of that name. Returns false if its
 * environment cannot be read: Slurm's launchers belong to root. */
static bool started_with(pid_t pid, const char *name) {
  char path[64], *text = NULL;
  size_t capacity = 0, length = strlen(name);
  bool found = false;
  snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) return false;
  while (!found && getdelim(&text, &capacity, '\0', file) > 0)
    found = strncmp(text, name, length) == 0 && text[length] == '=';
  free(text);
  fclose(file);
  return found;
}

bool run_launcher_find(run_launcher *found) {
  ASSERT(found != NULL);
  const rank_names *names = rank_find(true);
  pid_t pid = getppid();
  process one;
  if (names == NULL || !rank_of_many() || rank_text()[0] == '\0') return false;
  for (int i = 0; i < GENERATIONS_MAX && pid > 1; i++, pid = one.parent) {
    if (process_read(&one, pid) != PROCESS_LIVES) return false;
    found->pid = pid;
    found->start = one.start;
    if (!started_with(pid, names->rank)) return true;
  }
  return false;
}
