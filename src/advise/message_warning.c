/* Warnings: lines that report a refused request without which the program went on. They are no
 * failure if the log shows that it went on, or if nothing else in the text failed. */
#include <string.h>

#include "advise/message_parts.h"

/* Words of a failure, whichever the warning is. */
static const char *const failures[] = {
    "Traceback", "rror:",   "rror Code", "Killed", "killed",   "FAILED",    "ailed to",
    "Aborted",   "aborted", "bad_alloc", "137",    "SIGKILL",  "xhausted",  "XHAUSTED",
    "ERROR",     "died",    "crash",     "[E]",    "core dum", "terminated"};

#define BUILT  "Engine built|Engine generation completed|PASSED"
#define SERVES "server is listening|slots are idle|model loaded"
#define WORKSPACE                                                                                  \
  "nothing must be changed; a larger workspace (trtexec --memPoolSize=workspace:8192, in MiB; "    \
  "before 8.4 --workspace=8192), if the device has it, lets TensorRT try such kernels"

static const struct {
  const char *words;  /* of the warning */
  const char *with;   /* … of which the text must also have one, between bars, or NULL */
  const char *passed; /* words of success after it, between bars; NULL: none are needed */
  const char *size;   /* the request follows these words */
  const char *name, *help;
  bool again; /* it tries in another way: what failed before the warning is the first try */
} table[] = {
    {"Skipping tactic", "insufficient memory|insuficient memory", BUILT, "requested size of ",
     "TensorRT left out a kernel that needs more memory, and built the engine", WORKSPACE, false},
    {"Some tactics do not have sufficient workspace memory", NULL, BUILT, NULL,
     "TensorRT left out kernels that need more memory, and built the engine", WORKSPACE, false},
    {"compute buffer allocation failed, retrying without pipeline parallelism", NULL, SERVES,
     "alloc_buffer: allocating ",
     "llama.cpp tried copies of its buffers for a pipeline of devices, and went on without them",
     "nothing must be changed; a shorter context (-c) or smaller steps (-ub 256) leave enough for "
     "them, and long prompts are then a little faster",
     true},
    {"exceeds 10% of", "Allocation of ", NULL, "Allocation of ",
     "TensorFlow reports every large request for host memory (RAM), also those that it gets",
     "nothing must be changed; a smaller batch, or tf.data in place of one large array, keeps the "
     "requests smaller; TF_CPP_MIN_LOG_LEVEL=2 hides such lines",
     false},
};

static bool has_one_of(scan_text t, const char *alternatives) {
  char one[80];
  while (*alternatives != '\0') {
    size_t length = strcspn(alternatives, "|");
    if (length < sizeof one) {
      memcpy(one, alternatives, length);
      one[length] = '\0';
      if (scan_has(t, one)) return true;
    }
    alternatives += length + (alternatives[length] == '|');
  }
  return false;
}

/* Returns whether a line other than the warnings themselves reports a failure. */
static bool fails(scan_text t, const char *words) {
  scan_text line;
  /* A hosted notebook prints ^C when it ends a program that took all of the RAM. */
  if (scan_has(t, "tcmalloc: large alloc") && scan_has(t, "^C")) return true;
  while (scan_next_line(&t, &line))
    if (!scan_has(line, words) && scan_has_any(line, failures, sizeof failures / sizeof *failures))
      return true;
  return false;
}

bool message_warning(message *m, scan_text t) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const char *at = scan_find(t, table[i].words);
    if (at == NULL || (table[i].with != NULL && !has_one_of(t, table[i].with))) continue;
    if (table[i].passed != NULL && !has_one_of(scan_from(t, at), table[i].passed)) continue;
    if (fails(table[i].again ? scan_from(t, at) : t, table[i].words)) continue;
    m->kind = MESSAGE_FOREIGN;
    m->host = HOST_NONE;
    m->details = MESSAGE_WARNING;
    m->name = table[i].name;
    m->help = table[i].help;
    m->asked_bytes = table[i].size != NULL ? scan_size_after(t, table[i].size) : MESSAGE_UNKNOWN;
    m->failures = 0;
    return true;
  }
  return false;
}
