/* Resident copy: copies ahead while the program's kernels run. See resident.h. */
#include "base/assert.h"
#include "base/clock.h"
#include "shim/capture.h"
#include "shim/gate.h"
#include "shim/resident_parts.h"
#include "shim/streams.h"

page *resident_unused(page_class *class, int tier) {
  ASSERT(lock_held(&pages_lock));
  if (page_free_spare(class, tier) == 0 && page_make(class, tier) != CU_OK) return NULL;
  page *p = page_free_take(class, tier, 0);
  if (p == NULL) return NULL;
  if ((p->at == 0 || page_unmap(p) == CU_OK) && page_stage(p) == CU_OK) return p;
  page_free_put(p);
  return NULL;
}

page *resident_frame(resident *r) {
  return resident_unused(r->class, TIER_VRAM);
}

page *resident_host_page(resident *r, resident_unit *u) {
  ASSERT(lock_held(&pages_lock));
  if (u->host != NULL) return u->host;
  u->host = resident_unused(r->class, TIER_HOST);
  u->printed = false;
  return u->host;
}

static bool is_copied(const resident *r, uint32_t unit) {
  for (int i = 0; i < COPIES_MAX; i++)
    if (r->copies[i].state != COPY_NONE && r->copies[i].unit == unit) return true;
  return false;
}

bool resident_keeps_host(const resident *r, uint32_t unit) {
  ASSERT(unit < r->unit_capacity);
  const resident_unit *u = &r->units[unit];
  return u->token != NULL && u->host != NULL && u->host != u->token->page && !u->leaving &&
         !is_copied(r, unit);
}

uint64_t resident_give(resident *r, uint64_t bytes) {
  ASSERT(lock_held(&pages_lock));
  uint64_t given = 0;
  for (int valid = 0; valid < 2; valid++) /* first those without contents */
    for (uint32_t i = 0; i < r->unit_capacity && given < bytes; i++) {
      resident_unit *u = &r->units[i];
      if (!resident_keeps_host(r, i) || residency_host_valid(r->engine, i) != valid) continue;
      page_free_put(u->host);
      u->host = NULL;
      u->printed = false;
      residency_host_lost(r->engine, i);
      given += r->class->bytes;
    }
  return given;
}

/* ---- which launches have ended ---- */

void resident_mark(resident *r) {
  uint64_t last =
      r->mark_end > r->mark_first ? r->marks[(r->mark_end - 1) % RESIDENT_MARKS].number : r->passed;
  ASSERT(last <= r->number);
  if (last == r->number || r->mark_end - r->mark_first == RESIDENT_MARKS || streams_lost()) return;
  uint64_t oldest = gate_oldest(r->device);
  uint64_t submitted = oldest <= r->number ? oldest - 1 : r->number;
  uint64_t mark = submitted > last ? streams_mark() : 0;
  if (mark == 0) return;
  uint64_t at = r->mark_end++ % RESIDENT_MARKS;
  r->marks[at].mark = mark;
  r->marks[at].number = submitted;
}

static void look_at_marks(resident *r) {
  if (r->mark_first == r->mark_end) return;
  uint64_t reached = streams_last_passed();
  while (r->mark_first < r->mark_end && r->marks[r->mark_first % RESIDENT_MARKS].mark <= reached)
    r->passed = r->marks[r->mark_first++ % RESIDENT_MARKS].number;
}

/* ---- one copy ---- */

static uint32_t slot_of(const resident *r, const resident_copy *c) {
  return (uint32_t)(c - r->copies);
}

static void end_copy(resident *r, resident_copy *c, bool done) {
  ASSERT(c->state != COPY_NONE);
  ASSERT(c->unit < r->unit_capacity);
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

/* Starts a fingerprint of what is at `addr`, for this copy. */
static cu_result take_print(resident *r, const resident_copy *c, cu_addr addr, cu_stream stream) {
  r->prints.addresses[slot_of(r, c)] = addr;
  return fingerprint_start(&r->prints, slot_of(r, c), 1, r->class->bytes, stream);
}

/* ---- pieces ---- */

static cu_stream stream_of(const resident *r, residency_direction direction) {
  return direction == RESIDENCY_IN ? r->copy_in : r->copy_out;
}

static cu_result send_piece(resident *r, resident_copy *c) {
  ASSERT(c->state == COPY_RUNS && !c->ending);
  ASSERT(r->pieces[c->direction].end >= r->pieces[c->direction].first);
  const cuda_driver *driver = shim_driver();
  const resident_unit *u = &r->units[c->unit];
  bool in = c->direction == RESIDENCY_IN;
  cu_addr to = in ? u->frame->stage : u->host->stage;
  cu_addr from = in ? u->host->stage : r->snapshots[c->snapshot]->stage;
  cu_stream stream = stream_of(r, c->direction);
  uint64_t left = r->class->bytes - c->sent, bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
  cu_result code = driver->cuMemcpyAsync(to + c->sent, from + c->sent, bytes, stream);
  c->sent += bytes;
  *(in ? &r->copied_in : &r->copied_out) += bytes;
  if (code == CU_OK) {
    uint64_t at = r->pieces[c->direction].end++ % PIECES;
    code = driver->cuEventRecord(r->pieces[c->direction].done[at], stream);
  }
  if (code != CU_OK || c->sent < r->class->bytes) return code;
  if (in) code = take_print(r, c, u->frame->stage, stream);
  if (code == CU_OK) code = driver->cuEventRecord(c->done, stream);
  c->ending = true;
  return code;
}

/* Ends a copy after a call that failed: waits, because pieces of it may be in flight into pages
 * that others get. */
static void give_up(resident *r, resident_copy *c) {
  shim_driver()->cuStreamSynchronize(stream_of(r, c->direction));
  end_copy(r, c, false);
}

/* Returns the copy in this direction that was started first and is not completely submitted. */
static resident_copy *unsent(resident *r, residency_direction direction) {
  resident_copy *first = NULL;
  for (int i = 0; i < COPIES_MAX; i++) {
    resident_copy *c = &r->copies[i];
    if (c->state != COPY_RUNS || c->direction != direction || c->ending) continue;
    if (first == NULL || c->sent > first->sent ||
        (c->sent == first->sent && c->order < first->order))
      first = c;
  }
  return first;
}

static void send_pieces(resident *r, residency_direction direction) {
  const cuda_driver *driver = shim_driver();
  while (r->pieces[direction].first < r->pieces[direction].end &&
         driver->cuEventQuery(r->pieces[direction].done[r->pieces[direction].first % PIECES]) ==
             CU_OK)
    r->pieces[direction].first++;
  resident_copy *c;
  while (r->pieces[direction].end - r->pieces[direction].first < PIECES &&
         (c = unsent(r, direction)) != NULL)
    if (send_piece(r, c) != CU_OK) give_up(r, c);
}

void resident_pause(resident *r) {
  ASSERT(lock_held(&pages_lock));
  for (int d = 0; d < 2; d++)
    for (; r->pieces[d].first < r->pieces[d].end; r->pieces[d].first++)
      shim_driver()->cuEventSynchronize(r->pieces[d].done[r->pieces[d].first % PIECES]);
}

/* ---- beginning and ending ---- */

static cu_result start_out(resident *r, resident_copy *c) {
  ASSERT(r->snapshots[c->snapshot] != NULL && r->snapshot_taken[c->snapshot]);
  const cuda_driver *driver = shim_driver();
  const resident_unit *u = &r->units[c->unit];
  cu_addr snapshot = r->snapshots[c->snapshot]->stage;
  cu_result code = driver->cuMemcpyAsync(snapshot, u->token->addr, r->class->bytes, r->copy_out);
  if (code == CU_OK) code = take_print(r, c, snapshot, r->copy_out);
  if (code != CU_OK) return code;
  bool check = c->check && u->printed;
  c->state = check ? COPY_CHECKS : COPY_RUNS;
  return check ? driver->cuEventRecord(c->done, r->copy_out) : CU_OK;
}

static cu_result start_in(resident *r, resident_copy *c) {
  (void)r;
  c->state = COPY_RUNS;
  return CU_OK;
}

static void start(resident *r, resident_copy *c) {
  ASSERT(c->state == COPY_WAITS);
  cu_result code = c->direction == RESIDENCY_IN ? start_in(r, c) : start_out(r, c);
  if (code == CU_OK) return;
  shim_log("copying a page ahead: CUDA error %d", code);
  give_up(r, c);
}

/* Advances the state of a running copy. `wait`: until it has ended. */
static void look_at(resident *r, resident_copy *c, bool wait) {
  const cuda_driver *driver = shim_driver();
  if (c->state == COPY_CHECKS) {
    cu_result code = wait ? driver->cuEventSynchronize(c->done) : driver->cuEventQuery(c->done);
    if (code == CU_ERROR_NOT_READY) return;
    const resident_unit *u = &r->units[c->unit];
    fingerprint found = fingerprint_read(&r->prints, slot_of(r, c));
    bool same = u->printed && found.a == u->print.a && found.b == u->print.b;
    if (code == CU_OK && same) r->unneeded += r->class->bytes;
    if (code != CU_OK || same) {
      end_copy(r, c, code == CU_OK);
      return;
    }
    c->state = COPY_RUNS;
  }
  if (c->state != COPY_RUNS) return;
  while (wait && !c->ending) {
    if (send_piece(r, c) == CU_OK) continue;
    give_up(r, c);
    return;
  }
  if (!c->ending) return;
  cu_result code = wait ? driver->cuEventSynchronize(c->done) : driver->cuEventQuery(c->done);
  if (code != CU_ERROR_NOT_READY) end_copy(r, c, code == CU_OK);
}

void resident_finish_unit(resident *r, uint32_t unit) {
  for (int i = 0; i < COPIES_MAX; i++) {
    resident_copy *c = &r->copies[i];
    if (c->state == COPY_NONE || c->unit != unit) continue;
    if (c->state == COPY_WAITS)
      end_copy(r, c, false); /* not started */
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

/* Starts a copy that the engine asked for. */
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
                       .order = r->copy_order++,
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
  look_at_marks(r);
  for (int i = 0; i < COPIES_MAX; i++) {
    resident_copy *c = &r->copies[i];
    residency_direction direction = i < COPIES_IN ? RESIDENCY_IN : RESIDENCY_OUT;
    residency_move m;
    if (c->state != COPY_NONE ||
        (direction == RESIDENCY_IN &&
         (r->opaque > r->passed || page_free_spare(r->class, TIER_VRAM) <= r->reserved)) ||
        (direction == RESIDENCY_OUT && free_snapshot(r) < 0) ||
        !residency_copy_next(r->engine, direction, &m))
      continue;
    take(r, c, direction, &m);
  }
  bool waits = r->opaque > r->passed;
  for (int i = 0; i < COPIES_MAX; i++) {
    resident_copy *c = &r->copies[i];
    if (c->state == COPY_WAITS && c->after <= r->passed) start(r, c);
    waits |= c->state == COPY_WAITS;
  }
  send_pieces(r, RESIDENCY_IN);
  send_pieces(r, RESIDENCY_OUT);
  if (waits) resident_mark(r);
}
