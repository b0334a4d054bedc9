/* Kills: which program was killed, by the names that shells, containers and the kernel print.
 * Called by message_host.c and message_first.c.
 *
 * Launchers kill the other ranks after a failure, so a kill beside another failure counts only if
 * its line names another program. Names that differ in digits alone are ranks or replicas of one
 * program: "worker_1" and "worker_2". */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "advise/message_parts.h"

#define EXITED     "exited with code "
#define NAMES_MOST 16 /* different programs that are counted */
#define PIDS_MOST  64 /* killed processes that are counted */

static bool is_name(char c) {
  return scan_is_word(c) || c == '-' || c == '.';
}

/* Copies a name without its digits. */
static void copy_name(char out[64], scan_text name) {
  size_t length = 0;
  for (const char *p = name.at; p < name.end && length < 63; p++)
    if (!isdigit((unsigned char)*p)) out[length++] = *p;
  out[length] = '\0';
}

/* Finds "indexer_1 exited with code 137" of docker compose. Returns the place before the number, or
 * NULL; `name` receives "indexer_", *code the number. */
static const char *next_exit(scan_text t, char name[64], uint64_t *code) {
  const char *start = NULL, *after = NULL;
  while ((after = scan_find_at(t, EXITED, &start)) != NULL) {
    if (start > t.at && start[-1] == ' ') start--;
    scan_text who = {start, start};
    while (who.at > t.at && is_name(who.at[-1])) who.at--;
    copy_name(name, who);
    *code = scan_number(t, after);
    if (name[0] != '\0' && *code != SCAN_UNKNOWN) return after;
    t.at = after;
  }
  return NULL;
}

/* Returns the part of the text before something stopped the containers on purpose: what ends after
 * it was not out of memory. */
static scan_text before_stop(scan_text t) {
  static const char *const signs[] = {"Aborting on container exit", "Gracefully stopping",
                                      "Gracefully Stopping"};
  for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) scan_find_at(t, signs[i], &t.end);
  return t;
}

/* Returns whether the line is the end of a container, and another one failed in `before`. */
static bool ends_other_container(scan_text line, scan_text before) {
  char name[64], other[64];
  uint64_t code;
  if (next_exit(line, name, &code) == NULL || code != 137) return false;
  bool differs = false;
  const char *at;
  scan_text rest = before;
  for (; (at = next_exit(rest, other, &code)) != NULL; rest.at = at) {
    if (code != 0 && strcmp(name, other) == 0) return false;
    differs = differs || code != 0;
  }
  return differs && before_stop(before).end == before.end;
}

/* Returns whether the line names a script that `before` does not name, and `before` names another:
 * "run.sh: line 31: 2398 Killed  python merge.py". Or the same script, which `before` starts with
 * other arguments. */
static bool ends_other_script(scan_text line, const char *at, scan_text before) {
  const char *end = NULL, *script = NULL;
  scan_text command = {at, line.end};
  if (scan_find_at(command, ".py", &end) == NULL || !scan_has(before, ".py")) return false;
  for (script = end; script > at && (scan_is_word(script[-1]) || script[-1] == '-');) script--;
  char name[64], started[80], whole[200];
  scan_copy(name, sizeof name, (scan_text){script, end}, script, "");
  if (name[0] == '\0') return false;
  if (!scan_has(before, name)) return true;
  snprintf(started, sizeof started, "%s.py -", name);
  scan_copy(whole, sizeof whole, (scan_text){script, line.end}, script, "");
  return scan_has(before, started) && !scan_has(before, whole);
}

bool message_ends_container(scan_text t) {
  char name[64];
  uint64_t code;
  for (const char *at; (at = next_exit(t, name, &code)) != NULL; t.at = at)
    if (code == 137) return true;
  return false;
}

/* `line` is after `before` in the same text. */
bool message_kills_other(scan_text line, const char *at, scan_text before) {
  scan_text all = {before.at, line.at}; /* the end of the first one is printed after its failure */
  return ends_other_script(line, at, before) || ends_other_container(line, all);
}

/* Adds a name unless the list has it, or is full. */
static void add_name(char names[NAMES_MOST][64], uint32_t *count, const char *name) {
  for (uint32_t i = 0; i < *count; i++)
    if (strcmp(names[i], name) == 0) return;
  if (*count < NAMES_MOST) memcpy(names[(*count)++], name, 64);
}

uint32_t message_killed_containers(scan_text t) {
  char names[NAMES_MOST][64], name[64];
  uint32_t count = 0;
  uint64_t code;
  scan_text rest = before_stop(t);
  for (const char *at; (at = next_exit(rest, name, &code)) != NULL; rest.at = at)
    if (code == 137) add_name(names, &count, name);
  return count > 0 ? count : 1;
}

/* Returns whether a value of that name begins at `at`, after a quote, a colon or an equals sign. */
static bool is_value(scan_text t, const char *at, const char *value) {
  while (at < t.end && (*at == '"' || *at == '\'' || *at == ':' || *at == '=' || *at == ' ')) at++;
  size_t length = strlen(value);
  return (size_t)(t.end - at) >= length && memcmp(at, value, length) == 0;
}

bool message_container_spared(scan_text t) {
  static const char name[] = "OOMKilled";
  bool spared = false;
  for (const char *at; (at = scan_find(t, name)) != NULL; t.at = at) {
    if (is_value(t, at, "true")) return false;
    spared = spared || is_value(t, at, "false");
    /* docker inspect --format '{{.State.OOMKilled}} …' prints the value in the next line. */
    scan_text line = scan_line(t, at), rest = {line.end, t.end}, next;
    if (!scan_has((scan_text){at, line.end}, "}}") || !scan_next_line(&rest, &next)) continue;
    if (next.at == next.end && !scan_next_line(&rest, &next)) continue;
    if (scan_has(next, "true")) return false;
    spared = spared || scan_has(next, "false");
  }
  return spared;
}

const char *message_second_kill(scan_text t) {
  static const char words[] = "Killed process ";
  /* The kernel writes these before its line of a kill. */
  static const char *const heads[] = {"invoked oom-killer", "memory: usage ",
                                      "oom-kill:constraint="};
  const char *at = scan_find(t, words), *start = NULL, *second = NULL, *head = NULL;
  if (at == NULL) return NULL;
  uint64_t first = scan_number(t, at);
  scan_text rest = {scan_line(t, at).end, t.end};
  for (t.at = at; second == NULL && (at = scan_find_at(t, words, &start)) != NULL; t.at = at)
    if (scan_number(t, at) != first) second = start;
  if (second == NULL || second < rest.at) return second != NULL ? scan_line(t, second).at : NULL;
  rest.end = second;
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    if (scan_find_at(rest, heads[i], &head) != NULL) rest.end = head;
  return scan_line((scan_text){rest.at, second}, rest.end).at;
}

bool message_kill_in_group(scan_text t) {
  static const char *const groups[] = {"Memory cgroup out of memory", "CONSTRAINT_MEMCG"};
  /* The machine's own shortage: a capital letter begins its sentence. */
  static const char *const machines[] = {"Out of memory: Kill", "CONSTRAINT_NONE", "global_oom"};
  const char *group = t.end, *machine = t.end, *start = NULL;
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
    if (scan_find_at(t, groups[i], &start) != NULL && start < group) group = start;
  for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
    if (scan_find_at(t, machines[i], &start) != NULL && start < machine) machine = start;
  return group < machine;
}

/* Returns how many processes a control group's limit killed. A container that is started again and
 * again has a process of the same name each time, so their numbers decide. */
static uint32_t killed_in_groups(scan_text t) {
  static const char words[] = "Memory cgroup out of memory: Killed process ";
  uint64_t pids[PIDS_MOST];
  uint32_t count = 0;
  bool together = scan_has(t, "memory.oom.group set"); /* all of a group are killed at once */
  for (const char *at; !together && count < PIDS_MOST && (at = scan_find(t, words)) != NULL;
       t.at = at) {
    uint64_t pid = scan_number(t, at);
    bool same = pid == SCAN_UNKNOWN;
    for (uint32_t i = 0; i < count && !same; i++) same = pids[i] == pid;
    if (!same) pids[count++] = pid;
  }
  return count;
}

uint32_t message_killed_processes(scan_text t) {
  scan_text whole = t;
  char names[NAMES_MOST][64], name[64];
  uint32_t count = 0;
  for (const char *at; (at = scan_find(t, "Killed process ")) != NULL; t.at = at) {
    scan_text rest = {at, scan_line(t, at).end};
    const char *open = scan_find(rest, "("), *close = NULL;
    if (open == NULL || scan_find_at(scan_from(rest, open), ")", &close) == NULL) continue;
    copy_name(name, (scan_text){open, close});
    add_name(names, &count, name);
  }
  uint32_t grouped = killed_in_groups(whole);
  if (grouped > count) count = grouped;
  return count > 0 ? count : 1;
}
