/* Run launcher: up the line of parents, to the first that has no rank itself. Between it and us may
 * be a shell or a script, which has our rank in its environment too. */
#include "cli/run_launcher.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rank.h"

#define GENERATIONS_MAX 16

/* Was a process started with a variable of that name? One that may not be read has none for us:
 * the launchers of Slurm are root's. */
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

/* Of /proc/PID/stat, fields 4 and 22. */
static bool read_process(pid_t pid, pid_t *parent, uint64_t *start) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) return false;
  size_t got = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[got] = '\0';
  /* The name in brackets may hold anything, brackets too: count from its end. */
  const char *at = strrchr(text, ')');
  int number;
  /* NOLINTNEXTLINE(cert-err34-c): the kernel's own numbers */
  bool whole = at != NULL && sscanf(at + 1,
                                    " %*c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                                    "%*s %*s %*s %*s %" SCNu64,
                                    &number, start) == 2;
  *parent = whole ? number : 0;
  return whole;
}

bool run_launcher_find(run_launcher *found) {
  const rank_names *names = rank_find(true);
  pid_t pid = getppid(), parent;
  if (names == NULL || !rank_of_many() || rank_text()[0] == '\0') return false;
  for (int i = 0; i < GENERATIONS_MAX && pid > 1; i++, pid = parent) {
    if (!read_process(pid, &parent, &found->start)) return false;
    found->pid = pid;
    if (!started_with(pid, names->rank)) return true;
  }
  return false;
}
