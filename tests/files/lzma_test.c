/* Lzma: which liblzma is loaded. */
#include "files/lzma.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/variables.h"
#include "harness.h"

enum { LOADED = 0, REFUSED = 3, NOT_SETUID = 4 };

/* What a copy of this program does: it loads liblzma, with the variable naming a file that is not
 * there. */
static int child(bool setuid) {
  const lzma *functions;
  if (setuid && getauxval(AT_SECURE) == 0) return NOT_SETUID;
  return lzma_load(&functions) == STOW_OK ? LOADED : REFUSED;
}

static int run_copy(const char *path, const char *how) {
  pid_t pid = fork();
  if (pid == 0) {
    setenv(ENV_LIBLZMA, "/nowhere/liblzma.so", 1);
    execl(path, path, how, (char *)NULL);
    _exit(127);
  }
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
  return WEXITSTATUS(status);
}

/* The caller of a setuid program must not choose what it loads. */
TEST(a_setuid_program_ignores_the_variable)
{
  const lzma *functions;
  if (geteuid() != 0) SKIP("only root can make a setuid program of another user");
  if (lzma_load(&functions) != STOW_OK) SKIP("no liblzma here: %s", stow_status_message());
  char path[512];
  const char *folder = harness_folder();
  CHECK(chmod(folder, 0755) == 0);
  snprintf(path, sizeof path, "%s/copy", folder);
  int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
  CHECK(from >= 0 && to >= 0);
  static char block[1 << 16];
  ssize_t got;
  while ((got = read(from, block, sizeof block)) > 0) CHECK(write(to, block, (size_t)got) == got);
  close(from);
  close(to);
  CHECK(run_copy(path, "--plain") == REFUSED);
  if (chown(path, 65534, 65534) != 0) SKIP("chown: %s", strerror(errno));
  CHECK(chmod(path, 04755) == 0);
  int code = run_copy(path, "--setuid");
  if (code == NOT_SETUID) SKIP("setuid programs have no effect in %s", folder);
  CHECK_U64(code, LOADED);
}

int main(int argc, char **argv) {
  /* _exit: the leak check of a sanitizer cannot look into a setuid program. */
  if (argc == 2 && strcmp(argv[1], "--plain") == 0) _exit(child(false));
  if (argc == 2 && strcmp(argv[1], "--setuid") == 0) _exit(child(true));
  return harness_main(argc, argv);
}
