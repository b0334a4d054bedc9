/* Run program: finds the file that a command name runs, and what the dynamic loader will do with
 * it. */
#include "cli/run_program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/status.h"

#define SCRIPTS_MAX 4 /* the kernel's own limit for nested interpreters */
#define NEXT_MAX    300

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#endif

/* Returns 0 if `path` is a file that we may execute, otherwise errno. */
static int executable(const char *path) {
  struct stat info;
  if (stat(path, &info) != 0) return errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  return access(path, X_OK) == 0 ? 0 : EACCES;
}

/* Searches PATH. Returns the most specific error if nothing is found. */
static int look_up(char path[PATH_MAX], const char *command) {
  if (strchr(command, '/') != NULL) {
    snprintf(path, PATH_MAX, "%s", command);
    return executable(path);
  }
  const char *list = getenv("PATH");
  if (list == NULL) list = "/bin:/usr/bin"; /* confstr(_CS_PATH), as in execvp */
  int error = ENOENT;
  for (;; list++) {
    size_t length = strcspn(list, ":");
    int size = length == 0 ? snprintf(path, PATH_MAX, "./%s", command)
                           : snprintf(path, PATH_MAX, "%.*s/%s", (int)length, list, command);
    int now = size < PATH_MAX ? executable(path) : ENAMETOOLONG;
    if (now == 0) return 0;
    if (now == EACCES) error = EACCES;
    list += length;
    if (*list == '\0') return error;
  }
}

/* Writes the interpreter of a "#!" line to `binary`; for env(1), the program that env looks for. */
static bool script_interpreter(char binary[PATH_MAX], char *line) {
  line[strcspn(line, "\n")] = '\0';
  char *rest = NULL;
  const char *word = strtok_r(line + 2, " \t", &rest);
  if (word == NULL) return false;
  const char *name = strrchr(word, '/') != NULL ? strrchr(word, '/') + 1 : word;
  if (strcmp(name, "env") == 0) {
    const char *next = strtok_r(NULL, " \t", &rest);
    while (next != NULL && (next[0] == '-' || strchr(next, '=') != NULL))
      next = strtok_r(NULL, " \t", &rest);
    if (next != NULL) return look_up(binary, next) == 0;
  }
  snprintf(binary, PATH_MAX, "%s", word);
  return true;
}

/* Returns what the loader named by PT_INTERP does with LD_PRELOAD. */
static program_reach loader_reach(int fd, const Elf64_Phdr *segment) {
  char loader[256] = "";
  size_t size = segment->p_filesz < sizeof loader ? segment->p_filesz : sizeof loader - 1;
  if (pread(fd, loader, size, (off_t)segment->p_offset) < 0) return PROGRAM_REACHED;
  loader[sizeof loader - 1] = '\0';
  /* glibc's loader is ld-linux-x86-64.so.2 or ld-linux-aarch64.so.1; Nix and others keep the
   * name. */
  return strstr(loader, "ld-linux") != NULL ? PROGRAM_REACHED : PROGRAM_OTHER_LOADER;
}

static program_reach elf_reach(int fd, const Elf64_Ehdr *header) {
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != MACHINE)
    return PROGRAM_OTHER_MACHINE;
  if (header->e_phentsize != sizeof(Elf64_Phdr)) return PROGRAM_REACHED;
  program_reach reach = PROGRAM_STATIC;
  for (unsigned i = 0; i < header->e_phnum; i++) {
    Elf64_Phdr segment;
    off_t at = (off_t)(header->e_phoff + i * sizeof segment);
    if (pread(fd, &segment, sizeof segment, at) != (ssize_t)sizeof segment) break;
    if (segment.p_type == PT_INTERP) reach = loader_reach(fd, &segment);
  }
  return reach;
}

/* Returns whether the program gets more rights than the caller has. The loader then ignores
 * LD_PRELOAD paths. */
static bool gains_rights(const char *path) {
  struct stat info;
  if (stat(path, &info) != 0) return false;
  return ((info.st_mode & S_ISUID) && info.st_uid != geteuid()) ||
         ((info.st_mode & S_ISGID) && info.st_gid != getegid()) ||
         (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0);
}

static void judge(program *p, int depth) {
  int fd = open(p->binary, O_RDONLY | O_CLOEXEC);
  union {
    Elf64_Ehdr elf;
    char text[256];
  } head = {.text = ""};
  p->reach = gains_rights(p->binary) ? PROGRAM_SETUID : PROGRAM_REACHED;
  if (fd < 0) return; /* executable but not readable: assume an ordinary program */
  ssize_t got = pread(fd, head.text, sizeof head.text - 1, 0);
  if (got > 2 && memcmp(head.text, "#!", 2) == 0) {
    if (depth < SCRIPTS_MAX && script_interpreter(p->binary, head.text)) judge(p, depth + 1);
  } else if (got >= (ssize_t)sizeof head.elf && memcmp(head.text, ELFMAG, SELFMAG) == 0 &&
             p->reach == PROGRAM_REACHED) {
    p->reach = elf_reach(fd, &head.elf);
    /* glibc's loader, started by name, is linked statically, but preloads into the program it
     * loads. */
    if (p->reach == PROGRAM_STATIC && strstr(p->binary, "/ld-linux") != NULL)
      p->reach = PROGRAM_REACHED;
  }
  close(fd);
}

static bool is_python(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot != NULL && strcmp(dot, ".py") == 0;
}

/* Returns what to do about a command that was not found or cannot be executed: "; …". */
static const char *next_step(char text[NEXT_MAX], const char *command, int error) {
  char path[PATH_MAX];
  bool script = error != EISDIR && is_python(command) && access(command, R_OK) == 0;
  if (script)
    snprintf(text, NEXT_MAX, "; to run this script: stowage run -- python3 %.200s", command);
  else if (error == EISDIR)
    snprintf(text, NEXT_MAX, "; name a program in it");
  else if (error == EACCES)
    snprintf(text, NEXT_MAX, "; make it executable with chmod +x, or name its interpreter first");
  else if (strcmp(command, "python") == 0 && look_up(path, "python3") == 0)
    snprintf(text, NEXT_MAX, "; use python3: stowage run -- python3 …");
  else if (strchr(command, '/') == NULL && executable(command) == 0)
    snprintf(text, NEXT_MAX, "; the one in this folder is ./%.200s", command);
  else
    snprintf(text, NEXT_MAX, "; check the name, or install it");
  return text;
}

int program_find(program *p, const char *command) {
  char next[NEXT_MAX];
  int error = command[0] == '\0' ? ENOENT : look_up(p->path, command);
  if (error == ENOENT || error == ENOTDIR) {
    stow_fail(STOW_ERR_NOT_FOUND, "%.200s: no such command%s%s", command,
              strchr(command, '/') != NULL ? "" : " on PATH", next_step(next, command, error));
    return PROGRAM_NOT_FOUND;
  }
  if (error != 0) {
    stow_fail(STOW_ERR_INVALID, "%.200s: cannot be executed: %s%s", command, strerror(error),
              next_step(next, command, error));
    return PROGRAM_NOT_EXECUTABLE;
  }
  snprintf(p->binary, sizeof p->binary, "%s", p->path);
  judge(p, 0);
  return 0;
}

const char *program_reach_text(program_reach reach) {
  switch (reach) {
  case PROGRAM_STATIC: return "is linked statically, so no library can be preloaded into it";
  case PROGRAM_SETUID:
    return "runs with more privileges than yours (setuid, setgid or capabilities), so the loader "
           "preloads nothing into it";
  case PROGRAM_OTHER_LOADER:
    return "uses another C library than glibc, into which the shim cannot be loaded";
  case PROGRAM_OTHER_MACHINE: return "is built for another processor or word size";
  case PROGRAM_REACHED: break;
  }
  return "";
}
