/* Tune: the allocator settings with which a recorded program needs the least memory, and the
 * largest part of its batch that fits a smaller device, both found by replay.
 *
 *   stow_tune *tune;
 *   stow_tune_open(&tune, recording, NULL);
 *   stow_tune_info info = STOW_TUNE_INFO_INIT;
 *   stow_tune_setting setting = STOW_TUNE_SETTING_INIT;
 *   stow_tune_get_info(tune, &info);
 *   stow_tune_get_setting(tune, info.best, &setting);
 *   printf("PYTORCH_ALLOC_CONF=%s\n", setting.settings);
 *   stow_tune_close(tune);
 *
 * Threads: a result does not change; any number may read it. Fork: a child may use its copy. Link
 * with -lstowage-analysis. */
#ifndef STOWAGE_TUNE_H
#define STOWAGE_TUNE_H

#include <stdint.h>

#include <stowage/recording.h>
#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_tune stow_tune;

/* Called after each tested setting. Return 0 to continue, or a negative stow_status
 * (STOW_ERR_INTERRUPTED) to stop the search with that status. */
typedef int (*stow_tune_progress)(void *user, uint64_t done, uint64_t total);

typedef struct stow_tune_options {
  uint32_t struct_bytes; /* sizeof(stow_tune_options) */
  uint32_t reserved;     /* 0 */
  uint64_t device_bytes; /* for a device of this size minus the CUDA context; 0: no device size */
  uint64_t limit_bytes;  /* limit on what the allocator may reserve; 0: none. Not together with
                          * device_bytes */
  stow_tune_progress progress; /* NULL: none */
  void *progress_user;
} stow_tune_options;
#define STOW_TUNE_OPTIONS_INIT                                                                     \
  { sizeof(stow_tune_options), 0, 0, 0, NULL, NULL }

/* Replays the recording with each setting; NULL options are the defaults. Takes seconds for a large
 * recording. The recording may be closed afterwards. STOW_ERR_INVALID: as stow_replay_open. */
STOW_API stow_status stow_tune_open(stow_tune **tune, const stow_recording *recording,
                                    const stow_tune_options *options);
/* Closes a result; NULL is allowed. */
STOW_API void stow_tune_close(stow_tune *tune);

typedef struct stow_tune_info {
  uint32_t struct_bytes;  /* sizeof(stow_tune_info), set by the caller */
  uint32_t setting_count; /* tried, the best first */
  uint32_t best;          /* the one to use: needs no limit of its own to work */
  uint32_t fits;          /* STOW_TUNE_…; STOW_TUNE_UNKNOWN without a limit */
  uint64_t batch;         /* samples in the recorded batch; 0 if the recording does not have it */
  uint32_t batch_part;    /* STOW_TUNE_PART: so many of batch_whole fit */
  uint32_t batch_whole;
  uint32_t batch_setting;        /* the setting to use with it */
  uint32_t batch_until_failure;  /* 1: the recording ends with a failure; the rest is not known */
  uint64_t batch_reserved_bytes; /* what the allocator takes then, replayed */
} stow_tune_info;
#define STOW_TUNE_INFO_INIT                                                                        \
  { sizeof(stow_tune_info), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Does the recorded program fit the limit of the options? */
#define STOW_TUNE_UNKNOWN 0 /* no limit, or nothing in the recording grows with the batch */
#define STOW_TUNE_WHOLE   1 /* with the recorded batch */
#define STOW_TUNE_PART    2 /* with a smaller batch: batch_part of batch_whole */
#define STOW_TUNE_NONE    3 /* with no batch */

STOW_API stow_status stow_tune_get_info(const stow_tune *tune, stow_tune_info *info);

typedef struct stow_tune_setting {
  uint32_t struct_bytes;         /* sizeof(stow_tune_setting), set by the caller */
  uint32_t recorded_with;        /* 1: the recorded program used this setting */
  const char *settings;          /* as in PYTORCH_ALLOC_CONF; "": none. Constant text */
  uint64_t min_limit_bytes;      /* the smallest limit with which the replay finishes; 0: none was
                                  * found */
  int64_t min_limit_saved_bytes; /* compared with no settings; 0 if either has no such limit */
  uint64_t peak_reserved_bytes;
  int64_t peak_reserved_saved_bytes; /* compared with no settings; 0 if either fails */
  uint64_t page_time_us;             /* time of the driver calls, as measured on an H200 */
  uint32_t finishes;                 /* 1: finishes under the limit in the options */
  uint32_t min_limit_proved;         /* 1: the replay also finishes at every 2 MiB step above it */
} stow_tune_setting;
#define STOW_TUNE_SETTING_INIT                                                                     \
  { sizeof(stow_tune_setting), 0, NULL, 0, 0, 0, 0, 0, 0, 0 }
/* Returns one setting. STOW_ERR_NOT_FOUND: there is no such setting. */
STOW_API stow_status stow_tune_get_setting(const stow_tune *tune, uint32_t index,
                                           stow_tune_setting *setting);

#ifdef __cplusplus
}
#endif
#endif
