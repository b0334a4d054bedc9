/* stowage: the command. Finds the verb, parses its options and runs it. Each verb has its own file
 * (verbs.def). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

#include <stowage/version.h>

#include "base/table.h"
#include "cli/output.h"
#include "cli/verb.h"

static int unknown_verb(const char *word) {
  if (word[0] == '-') {
    output_error("stowage: the verb comes before \"%.64s\": stowage VERB %.64s; \"stowage --help\" "
                 "lists the verbs\n",
                 output_name(word), output_name(word));
    return EXIT_USAGE;
  }
  static const struct {
    const char *word, *instead;
  } others[] = {{"quantize", "shrink --quantize TYPE"}, {"prune", "shrink --prune PART"}};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (strcmp(word, others[i].word) == 0) {
      output_error("stowage: no verb \"%s\"; use stowage %s\n", word, others[i].instead);
      return EXIT_USAGE;
    }
  const char *names[64];
  size_t count = 0;
  for (size_t i = 0; verb_at(i) != NULL && count < 62; i++)
    if (!(verb_at(i)->flags & VERB_HIDDEN)) names[count++] = verb_at(i)->name;
  names[count++] = "help";
  names[count] = NULL;
  const char *near = verb_nearest(word, names);
  if (near != NULL)
    output_error("stowage: no verb \"%.64s\"; did you mean \"%s\"?\n", output_name(word), near);
  else
    output_error("stowage: no verb \"%.64s\"; \"stowage --help\" lists them\n", output_name(word));
  return EXIT_USAGE;
}

static int run_verb(const verb *which, int argc, char **argv) {
  verb_call call;
  bool help;
  int code = options_parse(&call, which, argc, argv, &help);
  call.all = verb_all();
  if (help)
    help_verb(which);
  else if (code == EXIT_DONE)
    code = which->run(&call);
  options_free(&call);
  return code;
}

static int run_help(int argc, char **argv) {
  if (argc == 0) {
    help_all();
    return EXIT_DONE;
  }
  const verb *which = verb_find(argv[0]);
  if (which == NULL) return unknown_verb(argv[0]);
  help_verb(which);
  return EXIT_DONE;
}

static int run(int argc, char **argv) {
  if (argc < 2) {
    output_error(
        "stowage: no verb given; try \"stowage info\", or \"stowage --help\" for a list\n");
    return EXIT_USAGE;
  }
  const char *word = argv[1];
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
    return run_help(argc - 2, argv + 2);
  if (strcmp(word, "--version") == 0) {
    output_printf("stowage %s\n", stow_version());
    return EXIT_DONE;
  }
  const verb *which = verb_find(word);
  if (which == NULL) return unknown_verb(word);
  return run_verb(which, argc - 2, argv + 2);
}

/* Opens /dev/null in place of a closed standard stream. Otherwise the next file that is opened
 * would get its number, and our output. Writing to it still fails, and a command that we start
 * finds it closed. */
static void hold_streams(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY | O_CLOEXEC) != fd) return;
}

/* A write beyond `ulimit -f` fails with a message instead of killing the command. `stowage run`
 * does the same later: it first saves the signal's setting, which its command inherits. */
static void hold_file_limit(int argc, char **argv) {
  if (argc < 2 || strcmp(argv[1], "run") != 0) signal(SIGXFSZ, SIG_IGN);
}

/* ---- the stack ---- */

/* Verbs use up to 150 KB of it themselves, and the libraries they load use more. */
#define STACK_BYTES ((size_t)1 << 20)

static struct {
  int argc, code;
  char **argv;
  ucontext_t here, there;
} moved;

static void run_there(void) {
  moved.code = run(moved.argc, moved.argv);
}

/* Gives threads that are created without a size as much as the verb has. */
static void set_thread_stack(void) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return;
  if (pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0)
    (void)pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

/* Runs the verb, on a stack of its own where the limit (ulimit -s) is too low. The limit itself
 * stays as it is: a command that we start inherits it. */
static int run_with_stack(int argc, char **argv) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_BYTES) return run(argc, argv);
  size_t guard = (size_t)sysconf(_SC_PAGESIZE);
  char *stack = mmap(NULL, guard + STACK_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED || mprotect(stack, guard, PROT_NONE) != 0 ||
      getcontext(&moved.there) != 0)
    return run(argc, argv);
  set_thread_stack();
  moved.argc = argc;
  moved.argv = argv;
  moved.there.uc_stack.ss_sp = stack + guard;
  moved.there.uc_stack.ss_size = STACK_BYTES;
  moved.there.uc_link = &moved.here;
  makecontext(&moved.there, run_there, 0);
  if (swapcontext(&moved.here, &moved.there) != 0) return run(argc, argv);
  return moved.code;
}

int main(int argc, char **argv) {
  hold_streams();
  hold_file_limit(argc, argv);
  table_fit(output_width());
  int code = run_with_stack(argc, argv);
  output_flush();
  /* Output that could not be written is a failure. */
  if (fflush(stdout) != 0 || ferror(stdout)) {
    output_error("stowage: cannot write the output: %s\n", strerror(errno));
    if (code == EXIT_DONE) code = EXIT_FAILED;
  }
  return code;
}
