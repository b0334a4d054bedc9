/* Explain: why a program ran out of memory, and what to change.
 *
 *   stow_explanation *x;
 *   stow_explain_recording(&x, recording, NULL);     or stow_explain_message, stow_explain_run
 *   stow_explanation_info info = STOW_EXPLANATION_INFO_INIT;
 *   stow_explanation_get_info(x, &info);
 *   for (uint32_t i = 0; i < info.fix_count; i++) {
 *     stow_fix fix = STOW_FIX_INIT;
 *     stow_explanation_get_fix(x, i, &fix);
 *     puts(fix.change);
 *   }
 *   stow_explanation_close(x);
 *
 * An explanation has everything it needs: the recording may be closed. Its texts are UTF-8 and stay
 * valid until it is closed.
 *
 * Threads: an explanation does not change; any number may read it. Fork: a child may use its copy.
 * Link with -lstowage-analysis. */
#ifndef STOWAGE_EXPLAIN_H
#define STOWAGE_EXPLAIN_H

#include <stdint.h>

#include <stowage/recording.h>
#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_explanation stow_explanation;

typedef struct stow_explain_options {
  uint32_t struct_bytes;   /* sizeof(stow_explain_options) */
  uint32_t reserved;       /* 0 */
  const char *message;     /* the program's error text, if the recording lacks it; NULL: none */
  uint64_t message_bytes;  /* length of message */
  const char *device_name; /* "Tesla T4", used if the recording does not name the device; NULL:
                            * unknown */
  uint64_t device_bytes;   /* explain as on a device of this size, by replay; 0: the recorded
                            * device */
} stow_explain_options;
#define STOW_EXPLAIN_OPTIONS_INIT                                                                  \
  { sizeof(stow_explain_options), 0, NULL, 0, NULL, 0 }

/* Explains a recording; NULL options are the defaults. A recording without a failure gives an
 * explanation that says so. `*x` is NULL on failure, here and below. */
STOW_API stow_status stow_explain_recording(stow_explanation **x, const stow_recording *recording,
                                            const stow_explain_options *options);
/* Explains an error message alone, without a recording. */
STOW_API stow_status stow_explain_message(stow_explanation **x, const char *text, uint64_t bytes);
/* Explains a run of `stowage run` from its folder; NULL: the last run. STOW_ERR_NOT_FOUND: it is
 * not the folder of a run, or there was no run. */
STOW_API stow_status stow_explain_run(stow_explanation **x, const char *folder);
/* Closes an explanation; NULL is allowed. */
STOW_API void stow_explanation_close(stow_explanation *x);

#define STOW_BYTES_UNKNOWN UINT64_MAX

typedef struct stow_explanation_info {
  uint32_t struct_bytes;  /* sizeof(stow_explanation_info), set by the caller */
  uint32_t out_of_memory; /* 1: the program ran out of memory */
  uint32_t cause_count, fix_count, note_count;
  uint32_t reserved;
  const char *headline; /* one sentence, without its full stop */
  /* At the failure, or at the peak if there was none; STOW_BYTES_UNKNOWN: not known. */
  uint64_t requested_bytes;         /* size of the request that failed */
  uint64_t live_bytes;              /* in use by the program */
  uint64_t cached_bytes;            /* kept by the allocator for reuse */
  uint64_t largest_hole_bytes;      /* the largest free block in the cache */
  uint64_t other_process_bytes;     /* held by other processes */
  uint64_t outside_framework_bytes; /* held by this process outside the allocator */
  uint64_t free_bytes;              /* free on the device */
  uint64_t limit_bytes;             /* a limit that was set */
  uint64_t device_bytes;            /* the size of the device */
  uint64_t unknown_bytes;           /* memory of the device that none of the above accounts for */
} stow_explanation_info;
#define STOW_EXPLANATION_INFO_INIT                                                                 \
  { sizeof(stow_explanation_info), 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
STOW_API stow_status stow_explanation_get_info(const stow_explanation *x,
                                               stow_explanation_info *info);

typedef struct stow_cause {
  uint32_t struct_bytes;       /* sizeof(stow_cause), set by the caller */
  uint32_t evidence_count;     /* number of evidence lines */
  const char *id;              /* "fragmentation", "no_grad_missing", … (docs/explain.md) */
  const char *headline;        /* one sentence, without its full stop */
  double confidence;           /* 0 to 1 */
  const char *const *evidence; /* lines that support the cause */
} stow_cause;
#define STOW_CAUSE_INIT                                                                            \
  { sizeof(stow_cause), 0, NULL, NULL, 0, NULL }
/* Returns a cause; number 0 is the most likely. STOW_ERR_NOT_FOUND: there is no such cause. */
STOW_API stow_status stow_explanation_get_cause(const stow_explanation *x, uint32_t index,
                                                stow_cause *cause);

typedef struct stow_fix {
  uint32_t struct_bytes; /* sizeof(stow_fix), set by the caller */
  uint32_t replayed;     /* 1: saves_bytes was found by replay; 0: it is estimated */
  uint32_t fits;         /* 1: with this change alone the failed request fits */
  uint32_t reserved;
  const char *change;   /* the line or the setting to change */
  const char *cost;     /* what it costs */
  uint64_t saves_bytes; /* STOW_BYTES_UNKNOWN: not known */
} stow_fix;
#define STOW_FIX_INIT                                                                              \
  { sizeof(stow_fix), 0, 0, 0, NULL, NULL, 0 }
/* Returns a fix; number 0 is the best. STOW_ERR_NOT_FOUND: there is no such fix. */
STOW_API stow_status stow_explanation_get_fix(const stow_explanation *x, uint32_t index,
                                              stow_fix *fix);

/* Returns a note on what is missing or makes the answer less certain; NULL after the last note. */
STOW_API const char *stow_explanation_note(const stow_explanation *x, uint32_t index);

/* Return the whole answer: as `stowage explain` prints it, as JSON, and as one line. */
STOW_API const char *stow_explanation_text(const stow_explanation *x);
STOW_API const char *stow_explanation_json(const stow_explanation *x);
STOW_API const char *stow_explanation_line(const stow_explanation *x);

#ifdef __cplusplus
}
#endif
#endif
