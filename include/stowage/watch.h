/* Watch: memory in use now, from the kernel and NVIDIA's management library.
 *
 *   stow_watch *watch;
 *   stow_watch_open(&watch);
 *   stow_watch_read_host(watch, &host);
 *   for (int i = 0; i < stow_watch_card_count(watch); i++) stow_watch_read_card(watch, i, &card);
 *   stow_watch_close(watch);
 *
 * Opens no device and creates no CUDA context, so it uses no memory on a card and is cheap enough
 * to call many times a second. Only one thread at a time may use a watch. */
#ifndef STOWAGE_WATCH_H
#define STOWAGE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_watch stow_watch;

typedef struct stow_watch_host {
  uint64_t total_bytes;    /* the most this process could ever hold: the machine's or its group's */
  uint64_t usable_bytes;   /* what it can still allocate */
  uint64_t held_bytes;     /* by this process, not to be dropped by the kernel: anonymous, shared */
  uint64_t resident_bytes; /* by this process, files included */
  uint64_t peak_resident_bytes; /* since the start, or since the last reset in the kernel */
  uint64_t data_bytes;          /* what counts against RLIMIT_DATA: touched or not */
  uint64_t group_kills;         /* processes of its group killed for lack of memory */
} stow_watch_host;

typedef struct stow_watch_card {
  char uuid[48]; /* "GPU-…" */
  char name[64];
  uint64_t total_bytes, used_bytes; /* by all processes */
  bool own_known;
  uint64_t own_bytes; /* by this process; not known inside most containers */
} stow_watch_card;

/* Opens a watch. Without NVML there are no cards, which is not an error. */
STOW_API stow_status stow_watch_open(stow_watch **watch);
/* NULL is fine. */
STOW_API stow_status stow_watch_close(stow_watch *watch);

STOW_API stow_status stow_watch_read_host(stow_watch *watch, stow_watch_host *host);
/* Returns the number of cards of the machine; ignores CUDA_VISIBLE_DEVICES: match cards by UUID.
 * The first call loads NVML, which may load the CUDA driver; reading the host never does. */
STOW_API int stow_watch_card_count(stow_watch *watch);
/* STOW_ERR_NOT_FOUND: no such card; STOW_ERR_UNSUPPORTED: it does not report its memory. */
STOW_API stow_status stow_watch_read_card(stow_watch *watch, int index, stow_watch_card *card);

#ifdef __cplusplus
}
#endif
#endif
