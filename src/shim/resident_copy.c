/* Resident: copies ahead, beside the program's kernels. See resident.h. */
#include "base/assert.h"
#include "base/clock.h"
#include "shim/capture.h"
#include "shim/gate.h"
#include "shim/resident_parts.h"
#include "shim/streams.h"

page *resident_frame(resident *r) {
  ASSERT(lock_held(&pages_lock));
  if (page_free_spare(r->class, TIER_VRAM) == 0 && page_make(r->class, TIER_VRAM) != CU_OK)
    return NULL;
  page *p = page_free_take(r->class, TIER_VRAM, 0);
  if (p == NULL) return NULL;
  if ((p->at == 0 || page_unmap(p) == CU_OK) && page_stage(p) == CU_OK) return p;
  page_free_put(p);
  return NULL;
}

page *resident_host_page(resident *r, resident_unit *u) {
  ASSERT(lock_held(&pages_lock));
  if (u->host != NULL) return u->host;
  if (page_free_spare(r->class, TIER_HOST) == 0 && page_make(r->class, TIER_HOST) != CU_OK)
    return NULL;
  page *p = page_free_take(r->class, TIER_HOST, 0);
  if (p == NULL) return NULL;
  if ((p->at == 0 || page_unmap(p) == CU_OK) && page_stage(p) == CU_OK) {
    u->host = p;
    u->printed = false;
    return p;
  }
  page_free_put(p);
  return NULL;
}

/* ---- which launches have ended ---- */

static void mark(resident *r) {
  if (r->mark_pending || r->passed == r->number || streams_lost()) return;
  uint64_t oldest = gate_oldest(r->device);
  uint64_t submitted = oldest <= r->number ? oldest - 1 : r->number;
  if (submitted <= r->passed || !streams_mark()) return;
  r->marked = submitted;
  r->mark_pending = true;
}

static void look_at_mark(resident *r) {
  if (!r->mark_pending || streams_passed() != CU_OK) return;
  r->passed = r->marked;
  r->mark_pending = false;
}

/* ---- one copy ---- */

static uint32_t slot_of(const resident *r, const resident_copy *c) {
  return (uint32_t)(c - r->copies);
}

static void end_copy(resident *r, resident_copy *c, bool done) {
  resident_unit *u = &r->units[c->unit];
  if (c->direction == RESIDENCY_OUT) r->snapshot_taken[c->snapshot] = false;
  if (c->direction == RESIDENCY_IN && !done && u->frame != NULL) {
    page_free_put(u->frame);
    u->frame = NULL;
  }
  if (done) {
    u->print = fingerprint_read(&r->prints, slot_of(r, c));
    u->printed = true;
  } else if (c->direction == RESIDENCY_OUT)
    u->printed = false;
  c->state = COPY_NONE;
  residency_copied(r->engine, c->unit, c->direction, done);
}

/* A fingerprint of what is at `addr`, for this copy. */
static cu_result take_print(resident *r, const resident_copy *c, cu_addr addr, cu_stream stream) {
  r->prints.addresses[slot_of(r, c)] = addr;
  return fingerprint_start(&r->prints, slot_of(r, c), 1, r->class->bytes, stream);
}

static cu_result send_snapshot(resident *r, const resident_copy *c) {
  const cuda_driver *driver = shim_driver();
  r->copied_out += r->class->bytes;
  cu_result code =
      driver->cuMemcpyAsync(r->units[c->unit].host->stage, r->snapshots[c->snapshot]->stage,
                            r->class->bytes, r->copy_out);
  return code == CU_OK ? driver->cuEventRecord(c->done, r->copy_out) : code;
}

static cu_result start_out(resident *r, resident_copy *c) {
  const cuda_driver *driver = shim_driver();
  const resident_unit *u = &r->units[c->unit];
  cu_addr snapshot = r->snapshots[c->snapshot]->stage;
  cu_result code = driver->cuMemcpyAsync(snapshot, u->token->addr, r->class->bytes, r->copy_out);
  if (code == CU_OK) code = take_print(r, c, snapshot, r->copy_out);
  if (code != CU_OK) return code;
  bool check = c->check && u->printed;
  c->state = check ? COPY_CHECKS : COPY_RUNS;
  return check ? driver->cuEventRecord(c->done, r->copy_out) : send_snapshot(r, c);
}

static cu_result start_in(resident *r, resident_copy *c) {
  const cuda_driver *driver = shim_driver();
  const resident_unit *u = &r->units[c->unit];
  cu_result code =
      driver->cuMemcpyAsync(u->frame->stage, u->host->stage, r->class->bytes, r->copy_in);
  if (code == CU_OK) code = take_print(r, c, u->frame->stage, r->copy_in);
  if (code == CU_OK) code = driver->cuEventRecord(c->done, r->copy_in);
  c->state = COPY_RUNS;
  r->copied_in += r->class->bytes;
  return code;
}

static void start(resident *r, resident_copy *c) {
  ASSERT(c->state == COPY_WAITS);
  cu_result code = c->direction == RESIDENCY_IN ? start_in(r, c) : start_out(r, c);
  if (code == CU_OK) return;
  shim_log("copying a page ahead: CUDA error %d", code);
  end_copy(r, c, false);
}

/* The next state of one that is under way. `wait`: for its event. */
static void look_at(resident *r, resident_copy *c, bool wait) {
  const cuda_driver *driver = shim_driver();
  if (c->state != COPY_CHECKS && c->state != COPY_RUNS) return;
  cu_result code = wait ? driver->cuEventSynchronize(c->done) : driver->cuEventQuery(c->done);
  if (code == CU_ERROR_NOT_READY) return;
  if (code != CU_OK || c->state == COPY_RUNS) {
    end_copy(r, c, code == CU_OK);
    return;
  }
  const resident_unit *u = &r->units[c->unit];
  fingerprint found = fingerprint_read(&r->prints, slot_of(r, c));
  if (u->printed && found.a == u->print.a && found.b == u->print.b) {
    r->unneeded += r->class->bytes;
    end_copy(r, c, true);
    return;
  }
  c->state = COPY_RUNS;
  if (send_snapshot(r, c) != CU_OK)
    end_copy(r, c, false);
  else
    look_at(r, c, wait);
}

void resident_finish_unit(resident *r, uint32_t unit) {
  for (int i = 0; i < COPIES_MAX; i++) {
    resident_copy *c = &r->copies[i];
    if (c->state == COPY_NONE || c->unit != unit) continue;
    if (c->state == COPY_WAITS)
      end_copy(r, c, false); /* not begun */
    else
      look_at(r, c, true);
    ASSERT(c->state == COPY_NONE);
  }
}

void resident_finish(resident *r) {
  for (int i = 0; i < COPIES_MAX; i++) look_at(r, &r->copies[i], false);
}

/* ---- the next copies ---- */

static int free_snapshot(const resident *r) {
  for (int i = 0; i < SNAPSHOTS; i++)
    if (r->snapshots[i] != NULL && !r->snapshot_taken[i]) return i;
  return -1;
}

/* Makes a copy of the engine's wish. */
static void take(resident *r, resident_copy *c, residency_direction direction,
                 const residency_move *m) {
  resident_unit *u = &r->units[m->unit];
  ASSERT(u->token != NULL);
  cu_event done = c->done;
  *c = (resident_copy){.state = COPY_WAITS,
                       .direction = direction,
                       .check = m->check,
                       .unit = m->unit,
                       .after = m->after,
                       .done = done};
  if (direction == RESIDENCY_OUT) {
    c->snapshot = free_snapshot(r);
    r->snapshot_taken[c->snapshot] = true;
  } else
    u->frame = resident_frame(r);
  if (resident_host_page(r, u) == NULL || (direction == RESIDENCY_IN && u->frame == NULL))
    end_copy(r, c, false);
}

void resident_pump(resident *r) {
  ASSERT(lock_held(&pages_lock));
  if (r->engine == NULL || capture_on()) return;
  resident_finish(r);
  look_at_mark(r);
  for (int i = 0; i < COPIES_MAX; i++) {
    resident_copy *c = &r->copies[i];
    residency_direction direction = i < COPIES_IN ? RESIDENCY_IN : RESIDENCY_OUT;
    residency_move m;
    if (c->state != COPY_NONE || (direction == RESIDENCY_IN && r->opaque) ||
        (direction == RESIDENCY_OUT && free_snapshot(r) < 0) ||
        !residency_copy_next(r->engine, direction, &m))
      continue;
    take(r, c, direction, &m);
  }
  bool waits = false;
  for (int i = 0; i < COPIES_MAX; i++) {
    resident_copy *c = &r->copies[i];
    if (c->state == COPY_WAITS && c->after <= r->passed) start(r, c);
    waits |= c->state == COPY_WAITS;
  }
  if (waits) mark(r);
}
