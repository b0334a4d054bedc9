/* Staging: see staging.h. */
#include "data/staging.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "data/buffer_pool.h"
#include "device/device.h"

typedef struct transfer {
  stow_event done; /* created at first use */
  bool on_the_way;
  void *data[STOW_BATCHES_FILES_MAX];
} transfer;

struct staging {
  stow_device *device;
  uint32_t parts;
  uint32_t next; /* the oldest transfer, and the next to begin */
  transfer transfers[STAGING_COPIES];
};

/* ---- pinned memory ---- */

static void *pinned_allocate(void *user, size_t bytes) {
  stow_addr at;
  /* With unified addressing, which every 64-bit driver has, both sides use the same address. */
  return device_plain_alloc(user, &at, bytes, STOW_TIER_HOST) == STOW_OK ? (void *)(uintptr_t)at
                                                                         : NULL;
}

static void pinned_release(void *user, void *memory, size_t bytes) {
  (void)bytes;
  (void)device_plain_free(user, (stow_addr)(uintptr_t)memory);
}

stow_batches_memory staging_memory(stow_device *device) {
  return (stow_batches_memory){
      .allocate = pinned_allocate, .release = pinned_release, .user = device};
}

/* ---- copies ---- */

stow_status staging_open(staging **out, stow_device *device, uint32_t parts) {
  staging *s = calloc(1, sizeof *s);
  if (s == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for batches");
  s->device = device;
  s->parts = parts;
  *out = s;
  return STOW_OK;
}

static void end_transfer(staging *s, transfer *j) {
  for (uint32_t i = 0; i < s->parts; i++) buffer_pool_put(j->data[i]);
  j->on_the_way = false;
}

stow_status staging_wait(staging *s) {
  for (uint32_t i = 0; i < STAGING_COPIES; i++) {
    transfer *j = &s->transfers[(s->next + i) % STAGING_COPIES];
    if (!j->on_the_way) continue;
    stow_status status =
        i == 0 ? device_event_wait(s->device, j->done) : device_event_query(s->device, j->done);
    if (status == STOW_ERR_NOT_READY) return STOW_OK;
    if (status != STOW_OK) return status;
    end_transfer(s, j);
  }
  return STOW_OK;
}

stow_status staging_finish(staging *s) {
  for (uint32_t i = 0; i < STAGING_COPIES; i++) {
    transfer *j = &s->transfers[i];
    if (!j->on_the_way) continue;
    STOW_TRY(device_event_wait(s->device, j->done));
    end_transfer(s, j);
  }
  return STOW_OK;
}

static stow_status begin_transfer(staging *s, transfer *j, const uint64_t *bytes,
                                  const uint64_t *to, stow_stream stream) {
  if (j->done == NULL) STOW_TRY(device_event_create(s->device, &j->done));
  for (uint32_t i = 0; i < s->parts; i++)
    if (bytes[i] > 0)
      STOW_TRY(device_copy(s->device, to[i], (stow_addr)(uintptr_t)j->data[i], bytes[i], stream));
  return device_event_record(s->device, j->done, stream);
}

stow_status staging_send(staging *s, void *const *data, const uint64_t *bytes, const uint64_t *to,
                         stow_stream stream) {
  STOW_TRY(staging_wait(s));
  transfer *j = &s->transfers[s->next];
  for (uint32_t i = 0; i < s->parts; i++) j->data[i] = data[i];
  stow_status status = begin_transfer(s, j, bytes, to, stream);
  if (status != STOW_OK) {
    char why[STATUS_MESSAGE_MAX];
    snprintf(why, sizeof why, "%s", stow_status_message());
    (void)device_stream_sync(s->device, stream); /* some of it may be running */
    return stow_fail(status, "%s", why);
  }
  j->on_the_way = true;
  s->next = (s->next + 1) % STAGING_COPIES;
  return STOW_OK;
}

void staging_close(staging *s) {
  if (s == NULL) return;
  for (uint32_t i = 0; i < STAGING_COPIES; i++) {
    transfer *j = &s->transfers[(s->next + i) % STAGING_COPIES];
    /* Ignores the result: a lost device copies nothing any more. */
    if (j->on_the_way) {
      (void)device_event_wait(s->device, j->done);
      end_transfer(s, j);
    }
    if (j->done != NULL) (void)device_event_destroy(s->device, j->done);
  }
  free(s);
}
