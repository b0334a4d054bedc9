/* Doctor: findings about this machine, made by checks.c and shown by doctor.c. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

typedef enum finding_verdict {
  FINDING_OK,    /* works */
  FINDING_NOTE,  /* works, with a remark */
  FINDING_NONE,  /* absent, which is not a fault */
  FINDING_BROKEN /* present, but does not work */
} finding_verdict;

typedef struct finding {
  char name[40];
  finding_verdict verdict;
  char reason[640]; /* what was found */
  char next[320];   /* the next step; "" if none */
} finding;

#define FINDINGS_MAX 64

typedef struct findings {
  finding list[FINDINGS_MAX];
  size_t count;
} findings;

/* Runs all checks. `device` is a name as for opening; NULL: every device. `probe`: tries the paths
 * to host memory again instead of using the cached result. Fails only if the device's name is
 * invalid or unknown; everything else is a finding. */
stow_status checks_run(findings *into, const char *device, bool probe);

#endif
