/* Status: the one result type of every call.
 *
 * 0 is success, a negative value is an error. Each error has a message for people, kept per thread:
 * what failed, the value, and what to do next. The library never prints, exits or aborts on input.
 */
#ifndef STOWAGE_STATUS_H
#define STOWAGE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define STOW_API __attribute__((visibility("default")))
#else
#define STOW_API
#endif

typedef enum stow_status {
  STOW_OK = 0,
  STOW_ERR_INVALID = -1,       /* an invalid argument */
  STOW_ERR_HOST_MEMORY = -2,   /* no host memory for the library itself */
  STOW_ERR_OUT_OF_MEMORY = -3, /* the tier or the limit is too small for the request */
  STOW_ERR_NOT_FOUND = -4,     /* no such device, file, name or allocation */
  STOW_ERR_UNSUPPORTED = -5,   /* this driver, machine or build cannot do it */
  STOW_ERR_NOT_READY = -6,     /* an event has not completed yet; not a fault */
  STOW_ERR_STATE = -7,    /* the right call at the wrong time: freed twice, closed, still in use */
  STOW_ERR_OVERFLOW = -8, /* a number exceeds its type or limit */
  STOW_ERR_IO = -9,       /* the operating system could not read or write */
  STOW_ERR_FORMAT = -10,  /* a file that does not match its format */
  STOW_ERR_DEVICE = -11,  /* the driver returned an error */
  STOW_ERR_DEVICE_LOST = -12, /* the device is gone; nothing on it can be used again */
  STOW_ERR_VIOLATION = -13,   /* the simulator caught a use that would corrupt memory on a GPU */
  STOW_ERR_BUDGET = -14,      /* would need more memory than the budget it was given */
  STOW_ERR_INTERRUPTED = -15  /* stopped on request */
} stow_status;

/* Returns the calling thread's message for its latest error; "" if there was none. Valid until the
 * thread's next failing call. */
STOW_API const char *stow_status_message(void);

/* Returns a short stable name ("out of memory") for any value; never NULL. */
STOW_API const char *stow_status_name(stow_status status);

#ifdef __cplusplus
}
#endif
#endif
