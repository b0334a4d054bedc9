/* Status: one message per thread, in thread-local storage, so that setting one never allocates and
 * never fails. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <stowage/text.h>
#include <stowage/version.h>

#include "base/text.h"

static _Thread_local char message[STATUS_MESSAGE_MAX];

const char *stow_status_message(void) {
  return message;
}

const char *stow_version(void) {
  return STOW_VERSION_TEXT;
}

/* In brackets because lint sees it as a macro (status.h). */
stow_status(stow_fail)(stow_status status, const char *format, ...) {
  /* Format into a copy first: an argument may be the current message itself. */
  char text[STATUS_MESSAGE_MAX];
  va_list args;
  va_start(args, format);
  int length = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (length < 0) text[0] = '\0';
  if (length >= (int)sizeof text) memcpy(text + sizeof text - 4, "...", 4);
  /* A message is one line and safe to print, with any name or URL in it. */
  text_line(text);
  memcpy(message, text, strlen(text) + 1);
  return status;
}

const char *stow_status_name(stow_status status) {
  switch (status) {
  case STOW_OK: return "ok";
  case STOW_ERR_INVALID: return "invalid argument";
  case STOW_ERR_HOST_MEMORY: return "no host memory";
  case STOW_ERR_OUT_OF_MEMORY: return "out of memory";
  case STOW_ERR_NOT_FOUND: return "not found";
  case STOW_ERR_UNSUPPORTED: return "unsupported";
  case STOW_ERR_NOT_READY: return "not ready";
  case STOW_ERR_STATE: return "wrong state";
  case STOW_ERR_OVERFLOW: return "overflow";
  case STOW_ERR_IO: return "input or output failed";
  case STOW_ERR_FORMAT: return "bad format";
  case STOW_ERR_DEVICE: return "device error";
  case STOW_ERR_DEVICE_LOST: return "device lost";
  case STOW_ERR_VIOLATION: return "violation";
  case STOW_ERR_BUDGET: return "over budget";
  case STOW_ERR_INTERRUPTED: return "interrupted";
  }
  return "unknown status";
}

char *stow_text_show(char *to, size_t size, const char *text) {
  return text_show(to, size, text);
}
