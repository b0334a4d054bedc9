/* Log: one callback for the process. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/lock.h"
#include "base/text.h"

static lock log_lock = LOCK_INIT(LOCK_LOG);
static stow_log_fn log_fn; /* guarded by log_lock */
static void *log_user;     /* guarded by log_lock */
static _Atomic int log_most = -1;

void stow_log_set(stow_log_fn fn, void *user, stow_log_level most) {
  lock_acquire(&log_lock);
  log_fn = fn;
  log_user = user;
  lock_release(&log_lock);
  atomic_store(&log_most, fn == NULL ? -1 : (int)most);
}

void stow_log_line(stow_log_level level, const char *format, ...) {
  if ((int)level > atomic_load_explicit(&log_most, memory_order_relaxed)) return;
  char line[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  text_line(line);
  lock_acquire(&log_lock);
  stow_log_fn fn = log_fn;
  void *user = log_user;
  lock_release(&log_lock);
  if (fn != NULL) fn(user, level, line);
}
