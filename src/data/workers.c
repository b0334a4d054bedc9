/* Workers: see workers.h. */
#include "data/workers.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"

typedef struct member {
  worker_task work;
  void *context;
  unsigned number;
  bool started;
  pthread_t thread;
  stow_status status;
  char message[STATUS_MESSAGE_MAX];
} member;

static void *member_run(void *argument) {
  member *m = argument;
  m->status = m->work(m->context, m->number);
  if (m->status != STOW_OK) snprintf(m->message, sizeof m->message, "%s", stow_status_message());
  return NULL;
}

stow_status workers_run(unsigned members, worker_task work, void *context) {
  if (members > WORKERS_MAX) members = WORKERS_MAX;
  if (members <= 1) return work(context, 0);
  member *all = calloc(members, sizeof *all); /* 1 KB each: too much for a small stack */
  if (all == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u threads", members);
  for (unsigned i = 0; i < members; i++) {
    all[i] = (member){.work = work, .context = context, .number = i};
    if (i > 0) all[i].started = pthread_create(&all[i].thread, NULL, member_run, &all[i]) == 0;
  }
  for (unsigned i = 0; i < members; i++)
    if (!all[i].started) member_run(&all[i]);
  stow_status status = STOW_OK;
  for (unsigned i = 0; i < members; i++) {
    if (all[i].started) pthread_join(all[i].thread, NULL);
    /* A thread that stopped because another failed is not the cause. */
    if (all[i].status != STOW_OK && (status == STOW_OK || status == STOW_ERR_INTERRUPTED))
      status = stow_fail(all[i].status, "%s", all[i].message);
  }
  free(all);
  return status;
}

unsigned workers_default(void) {
  int count = cpu_count();
  return count < 1 ? 1 : count > WORKERS_MAX ? WORKERS_MAX : (unsigned)count;
}
