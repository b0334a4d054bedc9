/* Late: makes short pauses long, as on a machine with more work than processors. Preloaded by
 * host.sh, so that a thread that waits for the start of the interpreter comes after it. */
#include <time.h>
#include <unistd.h>

int usleep(useconds_t us) {
  struct timespec pause = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
  if (us < 10000) pause = (struct timespec){.tv_sec = 3};
  return nanosleep(&pause, NULL);
}
