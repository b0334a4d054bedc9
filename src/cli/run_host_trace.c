/* Run host trace: records pieces of host memory as events of a trace. */
#include "cli/run_host_trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "recordings/recording_file.h"
#include "run/protocol.h"

#define HOLDERS_MAX      64
#define PIECES_MAX       1024
#define PIECE_LEAST      ((uint64_t)256 << 10) /* smaller changes are collected first */
#define TRACE_BYTES_MAX  ((uint64_t)4 << 30)
#define FILE_NAME        "host" RUN_STOW
#define STOW_TIER_NUMBER 1 /* the host tier, as in docs/trace-format.md */

typedef struct piece {
  uint64_t addr, bytes;
} piece;

/* One object, or (with an empty name) the rest. */
typedef struct holder {
  char name[64], place[200];
  uint64_t bytes;
  piece *pieces; /* oldest first */
  size_t count;
  uint64_t target; /* the bytes it should have */
} holder;

struct run_host_trace {
  stow_trace *trace;
  char file[PATH_MAX];
  holder holders[HOLDERS_MAX];
  size_t count;
  uint64_t next_addr;
  uint32_t serial; /* number of the last answer used */
  uint64_t answered_bytes;
};

stow_status run_host_trace_open(run_host_trace **out, const char *folder,
                                const host_record *first) {
  char text[32];
  run_host_trace *t = calloc(1, sizeof *t);
  *out = t;
  if (t == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a recording");
  if (!run_path(t->file, folder, FILE_NAME))
    return stow_fail(STOW_ERR_IO, "the path of the run's folder is too long: %.200s", folder);
  t->next_addr = UINT64_C(1) << 32;
  stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
  options.record_path = t->file;
  STOW_TRY(stow_trace_open(&t->trace, &options));
  snprintf(text, sizeof text, "%" PRIu64, first->total_bytes);
  stow_trace_fact(t->trace, "memory", "host");
  stow_trace_fact(t->trace, "device_name", "host memory");
  stow_trace_fact(t->trace, "device_bytes", text);
  return STOW_OK;
}

static void record(run_host_trace *t, stow_trace_kind kind, const holder *h, const piece *p) {
  stow_trace_record e = {
      .addr = p->addr, .bytes = p->bytes, .kind = (uint8_t)kind, .tier = STOW_TIER_NUMBER};
  const char *name = h->name[0] != '\0' ? h->name : "other";
  stow_trace_tag(t->trace, name, &e.tag);
  char file[200];
  snprintf(file, sizeof file, "%s", h->place);
  char *colon = strrchr(file, ':');
  if (colon != NULL) {
    *colon = '\0';
    stow_trace_frame line = {
        .name = name, .file = file, .line = (uint32_t)strtoul(colon + 1, NULL, 10)};
    stow_trace_stack(t->trace, 0, &line, 1, &e.stack);
  }
  stow_trace_event(t->trace, &e);
}

static void push(run_host_trace *t, holder *h, uint64_t bytes) {
  if (h->pieces == NULL) h->pieces = calloc(PIECES_MAX, sizeof *h->pieces);
  if (h->pieces == NULL) return;
  if (h->count == PIECES_MAX) { /* merge the two newest */
    piece *last = &h->pieces[--h->count];
    record(t, STOW_TRACE_FREE, h, last);
    bytes += last->bytes;
  }
  piece *p = &h->pieces[h->count++];
  *p = (piece){t->next_addr, bytes};
  t->next_addr += (bytes + 4095) / 4096 * 4096;
  record(t, STOW_TRACE_ALLOC, h, p);
}

static void set(run_host_trace *t, holder *h, uint64_t bytes) {
  uint64_t change = bytes > h->bytes ? bytes - h->bytes : h->bytes - bytes;
  if (change < PIECE_LEAST && bytes > 0) return;
  if (bytes > h->bytes)
    push(t, h, bytes - h->bytes);
  else
    while (change > 0 && h->count > 0) {
      piece last = h->pieces[--h->count];
      record(t, STOW_TRACE_FREE, h, &last);
      if (last.bytes > change) push(t, h, last.bytes - change);
      change -= last.bytes < change ? last.bytes : change;
    }
  h->bytes = bytes;
}

static holder *find(run_host_trace *t, const char *name) {
  for (size_t i = 0; i < t->count; i++)
    if (strcmp(t->holders[i].name, name) == 0) return &t->holders[i];
  if (t->count == HOLDERS_MAX) return NULL;
  holder *h = &t->holders[t->count++];
  snprintf(h->name, sizeof h->name, "%s", name);
  return h;
}

/* Sets targets from the objects of a new answer; objects that are no longer in it get the target
 * 0. */
static void aim_at_objects(run_host_trace *t, const host_record *h) {
  for (size_t i = 0; i < t->count; i++) t->holders[i].target = 0;
  for (size_t i = 0; i < h->object_count; i++) {
    const host_object *o = &h->objects[i];
    holder *to = o->name[0] != '\0' ? find(t, o->name) : NULL;
    if (to == NULL || to->target > 0) continue;
    to->target = o->bytes;
    snprintf(to->place, sizeof to->place, "%s", o->place);
  }
}

static void place_rest(holder *rest, const host_record *h) {
  rest->place[0] = '\0';
  for (size_t i = 0; i < h->frame_count && rest->place[0] == '\0'; i++)
    if (strstr(h->frames[i].file, "/lib/python") == NULL && h->frames[i].file[0] != '<' &&
        strstr(h->frames[i].file, "-packages/") == NULL)
      snprintf(rest->place, sizeof rest->place, "%.180s:%u", h->frames[i].file, h->frames[i].line);
}

void run_host_trace_look(run_host_trace *t, const host_record *h) {
  if (t == NULL || t->trace == NULL) return;
  holder *rest = find(t, "");
  if (rest == NULL) return;
  if (h->from_inside && h->inside_whole &&
      (h->inside_serial != t->serial || h->inside_bytes != t->answered_bytes)) {
    t->serial = h->inside_serial;
    t->answered_bytes = h->inside_bytes;
    aim_at_objects(t, h);
  }
  uint64_t named = 0;
  for (size_t i = 0; i < t->count; i++)
    if (&t->holders[i] != rest) named += t->holders[i].target;
  /* Less is held than the objects had at the last answer, so the latest of them are gone. */
  for (size_t i = t->count; i > 0 && named > h->held_bytes; i--) {
    if (&t->holders[i - 1] == rest) continue;
    uint64_t *target = &t->holders[i - 1].target;
    uint64_t over = named - h->held_bytes, less = over < *target ? over : *target;
    named -= less;
    *target -= less;
  }
  rest->target = h->held_bytes > named ? h->held_bytes - named : 0;
  place_rest(rest, h);
  /* Shrink first, so that the sum never exceeds what is held. */
  for (size_t i = 0; i < t->count; i++)
    if (t->holders[i].target < t->holders[i].bytes) set(t, &t->holders[i], t->holders[i].target);
  for (size_t i = 0; i < t->count; i++)
    if (t->holders[i].target > t->holders[i].bytes) set(t, &t->holders[i], t->holders[i].target);
}

static stow_status move(const char *from, const char *to) {
  recording r;
  recording_init(&r, TRACE_BYTES_MAX);
  stow_status status = recording_read(&r, from, KIND_STOW, NULL);
  if (status == STOW_OK) status = recording_write(&r, to, KIND_STOW, NULL);
  recording_free(&r);
  return status;
}

stow_status run_host_trace_close(run_host_trace *t, const char *path) {
  if (t == NULL) return STOW_OK;
  stow_status status = stow_trace_close(t->trace);
  if (status == STOW_OK && path != NULL) status = move(t->file, path);
  if (t->file[0] != '\0') unlink(t->file);
  for (size_t i = 0; i < t->count; i++) free(t->holders[i].pieces);
  free(t);
  return status;
}
