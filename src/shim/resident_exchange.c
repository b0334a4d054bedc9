/* Resident exchange: carries out exchanges, with the gate closed and the device idle. See
 * resident.h. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/variables.h"
#include "shim/resident_parts.h"

/* One address that gets another page. */
typedef struct remap {
  uint32_t unit;
  page *to;
  bool staged; /* in: `to` already had the contents */
  bool early;  /* in: the copy began before the pages that leave had left */
} remap;

/* ---- the driver's calls ---- */

/* Unmaps pages at neighbouring addresses, in one call if the driver accepts that. */
static cu_result unmap_run(const resident *r, cu_addr addr, size_t count) {
  const cuda_driver *driver = shim_driver();
  cu_result code = driver->cuMemUnmap(addr, count * r->class->bytes);
  if (code == CU_OK || count == 1) return code;
  for (size_t i = 0; i < count; i++) {
    code = driver->cuMemUnmap(addr + i * r->class->bytes, r->class->bytes);
    if (code != CU_OK) return code; /* the caller maps the old pages again */
  }
  return CU_OK;
}

void resident_lose(cu_addr addr, cu_result code) {
  account_say("stowage: the driver refused to map a page again at 0x%llx (CUDA error %d). The "
              "program cannot continue.\nstowage: run it with " ENV_MOVE
              "=off, which moves no pages.\n",
              (unsigned long long)addr, code);
  _exit(70);
}

static page *page_of(const resident *r, const remap *m) {
  return r->units[m->unit].token->page;
}

/* Maps the old pages of a run again, of which any part may be unmapped or changed. */
static void restore(const resident *r, const remap *list, size_t count) {
  ASSERT(count > 0);
  const cuda_driver *driver = shim_driver();
  cu_access grant = {r->class->prop.location, CU_ACCESS_READ_WRITE};
  for (size_t i = 0; i < count; i++) {
    cu_addr addr = r->units[list[i].unit].token->addr;
    driver->cuMemUnmap(addr, r->class->bytes); /* refused if nothing is mapped */
    cu_result code = driver->cuMemMap(addr, r->class->bytes, 0, page_of(r, &list[i])->real, 0);
    if (code == CU_OK) code = driver->cuMemSetAccess(addr, r->class->bytes, &grant, 1);
    if (code != CU_OK) resident_lose(addr, code);
  }
}

/* Changes what is behind `count` neighbouring addresses: all of them, or none. */
static bool remap_run(resident *r, const remap *list, size_t count) {
  ASSERT(count > 0);
  ASSERT(lock_held(&pages_lock));
  const cuda_driver *driver = shim_driver();
  cu_access grant = {r->class->prop.location, CU_ACCESS_READ_WRITE};
  cu_addr addr = r->units[list[0].unit].token->addr;
  r->runs++;
  r->remaps += (uint32_t)count;
  cu_result code = unmap_run(r, addr, count);
  for (size_t i = 0; i < count && code == CU_OK; i++)
    code = driver->cuMemMap(addr + i * r->class->bytes, r->class->bytes, 0, list[i].to->real, 0);
  if (code == CU_OK) code = driver->cuMemSetAccess(addr, count * r->class->bytes, &grant, 1);
  if (code != CU_OK) {
    shim_log("exchanging pages: CUDA error %d", code);
    restore(r, list, count);
    return false;
  }
  for (size_t i = 0; i < count; i++) {
    token *t = r->units[list[i].unit].token;
    page *from = t->page, *to = list[i].to;
    uint64_t *at = map_get(&pages_at, t->addr);
    ASSERT(at != NULL && to->at == 0);
    if (at != NULL) *at = (uintptr_t)to;
    from->at = 0;
    from->owner = NULL;
    from->granted = false;
    to->at = t->addr;
    to->granted = true;
    token_exchange(t, to);
    /* A unit keeps its host page and the object for the shared page. */
    if (from->tier == TIER_VRAM && !from->borrowed) page_free_put(from);
  }
  return true;
}

/* Returns whether a remap parks or unparks: it maps only vram, which takes 18 times as long beside
 * copies in both directions. */
static bool is_parking(const resident *r, const remap *m) {
  return m->to->borrowed || page_of(r, m)->borrowed;
}

/* Pages of one run: enough to share calls, and few enough that copies continue in between. */
enum { RUN_MAX = 16 };

/* Remaps in order as many as the driver accepts. Returns how many. Copies pause for parks and
 * continue beside the rest. */
static uint32_t remap_all(resident *r, const remap *list, uint32_t count) {
  uint32_t done = 0;
  uint64_t since = clock_ns();
  while (done < count) {
    uint32_t end = done + 1;
    bool parking = is_parking(r, &list[done]);
    cu_addr next = r->units[list[done].unit].token->addr + r->class->bytes;
    while (end < count && (parking || end - done < RUN_MAX) &&
           r->units[list[end].unit].token->addr == next && is_parking(r, &list[end]) == parking) {
      next += r->class->bytes;
      end++;
    }
    if (parking)
      resident_pause(r);
    else if (!r->hold)
      resident_pump(r);
    since = clock_ns();
    if (!remap_run(r, list + done, end - done)) break;
    if (parking) r->phase_ns[PHASE_PARK] += clock_ns() - since;
    done = end;
  }
  return done;
}

/* ---- what leaves ---- */

static bool same(const fingerprint *a, const fingerprint *b) {
  return a->a == b->a && a->b == b->b;
}

/* Waits by an event or, if that fails, by the stream: its copies may still be running. */
static cu_result wait_own(resident *r) {
  const cuda_driver *driver = shim_driver();
  cu_result code = driver->cuEventRecord(r->own_done, r->own);
  if (code == CU_OK) code = driver->cuEventSynchronize(r->own_done);
  return code == CU_OK ? CU_OK : driver->cuStreamSynchronize(r->own);
}

/* Computes fingerprints of up to BATCH_MAX pages that leave, from list[first]. Returns false if the
 * driver refused. */
static bool print_batch(resident *r, const residency_move *list, uint32_t first, uint32_t count) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < count; i++)
    if (list[first + i].check)
      r->prints.addresses[COPIES_MAX + n++] = r->units[list[first + i].unit].token->addr;
  if (n == 0) return true;
  return fingerprint_start(&r->prints, COPIES_MAX, n, r->class->bytes, r->own) == CU_OK &&
         wait_own(r) == CU_OK;
}

/* Returns the host page of a unit that leaves; NULL: the host is full. Units in vram keep pages
 * that they may not need again. */
static page *host_page(resident *r, resident_unit *u) {
  page *p = resident_host_page(r, u);
  if (p == NULL && resident_give(r, r->class->bytes) > 0) p = resident_host_page(r, u);
  r->host_full |= p == NULL;
  return p;
}

/* Ensures that the host pages of a batch hold what leaves. Returns how many do, in order. */
static uint32_t save_batch(resident *r, const residency_move *list, uint32_t first,
                           uint32_t count) {
  ASSERT(count <= BATCH_MAX);
  const cuda_driver *driver = shim_driver();
  uint32_t n = 0, good = 0;
  bool copies = false;
  for (; good < count; good++) {
    const residency_move *m = &list[first + good];
    resident_unit *u = &r->units[m->unit];
    if (!m->check) continue; /* it holds nothing */
    fingerprint found = fingerprint_read(&r->prints, COPIES_MAX + n++);
    if (u->host != NULL && u->printed && same(&found, &u->print)) {
      if (m->copy) {
        r->unneeded += m->bytes;
        residency_unwritten(r->engine, m->unit);
      }
      continue;
    }
    if (!m->copy && !m->wait) residency_hidden_write(r->engine, m->unit);
    if (host_page(r, u) == NULL ||
        driver->cuMemcpyAsync(u->host->stage, u->token->addr, m->bytes, r->own) != CU_OK)
      break;
    u->print = found;
    u->printed = true;
    r->copied_out += m->bytes;
    copies = true;
  }
  if (copies && wait_own(r) != CU_OK) {
    for (uint32_t i = 0; i < count; i++) r->units[list[first + i].unit].printed = false;
    return 0;
  }
  return good;
}

static page *parked_page(resident *r, resident_unit *u) {
  if (r->spare == NULL) return NULL;
  if (u->spare == NULL) {
    u->spare = page_new(r->class, r->spare->real, TIER_VRAM);
    if (u->spare != NULL) u->spare->borrowed = true;
  }
  return u->spare;
}

static void phase(resident *r, int which, uint64_t *since) {
  uint64_t now = clock_ns();
  r->phase_ns[which] += now - *since;
  *since = now;
}

/* Saves what leaves and finds pages for its addresses. Returns for how many of the plan's outs that
 * succeeded. */
static uint32_t save_all(resident *r, const residency_plan_list *plan, remap *list) {
  uint32_t ready = 0;
  uint64_t since = clock_ns();
  for (uint32_t i = 0; i < plan->out_count; i++)
    if (plan->out[i].wait) resident_finish_unit(r, plan->out[i].unit);
  phase(r, PHASE_WAIT_OUT, &since);
  while (ready < plan->out_count) {
    uint32_t n = plan->out_count - ready < BATCH_MAX ? plan->out_count - ready : BATCH_MAX;
    if (!print_batch(r, plan->out, ready, n)) break;
    phase(r, PHASE_PRINT, &since);
    uint32_t saved = save_batch(r, plan->out, ready, n);
    phase(r, PHASE_SAVE, &since);
    ready += saved;
    if (saved < n) break;
  }
  for (uint32_t i = 0; i < ready; i++) {
    const residency_move *m = &plan->out[i];
    resident_unit *u = &r->units[m->unit];
    page *to = m->park ? parked_page(r, u) : NULL;
    if (to == NULL) to = host_page(r, u);
    if (to == NULL) {
      ready = i;
      break;
    }
    if (!m->check) u->printed = false;
    list[i] = (remap){.unit = m->unit, .to = to};
  }
  phase(r, PHASE_HOSTS, &since);
  return ready;
}

/* ---- what comes in ---- */

/* Starts copying in the contents that are still missing. Returns false if the driver refused. */
static bool fetch(resident *r, const residency_move *m, const remap *to) {
  const resident_unit *u = &r->units[m->unit];
  if (!m->copy) return true;
  r->copied_in += m->bytes;
  return u->host != NULL &&
         shim_driver()->cuMemcpyAsync(to->to->stage, u->host->stage, m->bytes, r->own) == CU_OK;
}

/* Computes fingerprints of what was fetched, so that it can leave without a copy if nothing writes
 * to it. */
static void print_fetched(resident *r, const remap *list, uint32_t count) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < count && n < BATCH_MAX; i++)
    if (r->units[list[i].unit].fetched) r->prints.addresses[COPIES_MAX + n++] = list[i].to->stage;
  if (fingerprint_start(&r->prints, COPIES_MAX, n, r->class->bytes, r->own) == CU_OK) return;
  for (uint32_t i = 0; i < count; i++) r->units[list[i].unit].fetched = false;
}

static void read_fetched(resident *r, const remap *list, uint32_t count) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < count; i++) {
    resident_unit *u = &r->units[list[i].unit];
    if (u->fetched && n < BATCH_MAX) {
      u->print = fingerprint_read(&r->prints, COPIES_MAX + n++);
      u->printed = true;
    }
    u->fetched = false;
  }
}

/* Releases the pages of what does not come in. What is staged stays so. */
static void drop(remap *list, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (list[i].to != NULL && !list[i].staged) page_free_put(list[i].to);
    list[i] = (remap){.unit = list[i].unit};
  }
}

/* Begins to copy in what the free vram pages can hold, so that both directions of the bus are used
 * while other pages leave. Returns whether there is anything. */
static bool fetch_early(resident *r, const residency_plan_list *plan, remap *list) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(plan->in_count <= r->unit_capacity);
  bool any = false;
  for (uint32_t i = 0; i < plan->in_count; i++) {
    const residency_move *m = &plan->in[i];
    const resident_unit *u = &r->units[m->unit];
    list[i] = (remap){.unit = m->unit};
    if (!m->copy || m->wait || u->frame != NULL || u->host == NULL) continue;
    page *to = page_free_spare(r->class, TIER_VRAM) > 0 ? resident_frame(r) : NULL;
    if (to == NULL) continue;
    if (shim_driver()->cuMemcpyAsync(to->stage, u->host->stage, m->bytes, r->copy_in) != CU_OK) {
      page_free_put(to); /* fetched later, as if it had not been tried */
      continue;
    }
    list[i].to = to;
    list[i].early = any = true;
    r->copied_in += m->bytes;
    r->early += m->bytes;
  }
  return any;
}

/* Waits for these copies: page calls take twice as long beside them. */
static void await_early(resident *r, remap *list, uint32_t count) {
  ASSERT(count <= r->unit_capacity);
  uint64_t since = clock_ns();
  cu_result code = shim_driver()->cuStreamSynchronize(r->copy_in);
  if (code != CU_OK) code = shim_driver()->cuStreamSynchronize(r->copy_in);
  /* Pages into which copies may still run are lost. The contents are fetched into others. */
  for (uint32_t i = 0; i < count && code != CU_OK; i++) list[i] = (remap){.unit = list[i].unit};
  phase(r, PHASE_ARRIVE, &since);
}

static uint32_t move_in(resident *r, const residency_plan_list *plan, remap *list) {
  uint32_t count = 0, copied = 0;
  uint64_t since = clock_ns();
  for (; count < plan->in_count; count++) {
    const residency_move *m = &plan->in[count];
    resident_unit *u = &r->units[m->unit];
    if (m->wait) resident_finish_unit(r, m->unit);
    /* A copy ahead that failed released its page; then its contents are still missing. */
    bool missing = m->wait && u->frame == NULL;
    bool staged = u->frame != NULL;
    bool early = list[count].early;
    page *to = staged ? u->frame : early ? list[count].to : resident_frame(r);
    if (to == NULL) break;
    list[count] = (remap){m->unit, to, staged, early};
    residency_move fetched = *m;
    fetched.copy |= missing;
    if (!early && !fetch(r, &fetched, &list[count])) {
      if (!staged) page_free_put(to);
      list[count].to = NULL;
      break;
    }
    if (!staged) u->printed = false; /* its host page may have been written to since */
    if (fetched.copy) {
      copied++;
      u->printed = false;
      u->fetched = true;
    }
  }
  if (copied > 0) print_fetched(r, list, count);
  phase(r, PHASE_FETCH, &since);
  uint32_t done = remap_all(r, list, count);
  phase(r, PHASE_IN, &since);
  if (copied > 0 && wait_own(r) != CU_OK) resident_lose(r->units[list[0].unit].token->addr, 0);
  if (copied > 0) read_fetched(r, list, count);
  phase(r, PHASE_ARRIVE, &since);
  for (uint32_t i = 0; i < done; i++) r->units[list[i].unit].frame = NULL;
  drop(list + done, plan->in_count - done);
  return done;
}

/* ---- both ---- */

void resident_take_frames(resident *r) {
  for (int i = 0; i < SNAPSHOTS; i++)
    if (r->snapshots[i] == NULL) r->snapshots[i] = resident_frame(r);
  if (r->spare == NULL) r->spare = resident_frame(r);
}

/* Moves out and in by turns if the host is full: what comes in frees the host pages of what leaves
 * next. Otherwise everything leaves before anything comes in. */
static void move_both(resident *r, const residency_plan_list *plan, remap *list, uint32_t *outs,
                      uint32_t *ins) {
  residency_plan_list left = *plan;
  remap *in_list = list + plan->out_count;
  bool early = fetch_early(r, plan, in_list);
  for (bool any = true; any; early = false) {
    r->host_full = false;
    uint32_t ready = save_all(r, &left, list), in = 0;
    if (early) await_early(r, in_list, left.in_count);
    uint64_t since = clock_ns();
    uint32_t out = remap_all(r, list, ready);
    phase(r, PHASE_OUT, &since);
    left.out += out;
    left.out_count -= out;
    if (left.out_count == 0 || r->host_full)
      in = move_in(r, &left, in_list);
    else
      drop(in_list, left.in_count);
    left.in += in;
    left.in_count -= in;
    in_list += in;
    any = r->host_full && out + in > 0;
  }
  *outs = plan->out_count - left.out_count;
  *ins = plan->in_count - left.in_count;
}

void resident_carry_out(resident *r, const residency_plan_list *plan) {
  ASSERT(lock_held(&pages_lock));
  uint32_t outs, ins;
  remap *list = malloc((plan->out_count + plan->in_count + 1) * sizeof *list); /* outs, then ins */
  if (list == NULL) return;
  r->reserved = 0;
  r->hold = plan->hold;
  for (uint32_t i = 0; i < plan->in_count; i++)
    r->reserved += r->units[plan->in[i].unit].frame == NULL;
  for (uint32_t i = 0; i < plan->out_count; i++) r->units[plan->out[i].unit].leaving = true;
  move_both(r, plan, list, &outs, &ins);
  for (uint32_t i = 0; i < plan->out_count; i++) r->units[plan->out[i].unit].leaving = false;
  ledger_header *header = account_ledger()->header;
  for (uint32_t i = 0; i < outs; i++)
    if (!plan->out[i].park) atomic_fetch_add(&header->moved_out_bytes, plan->out[i].bytes);
  for (uint32_t i = 0; i < ins; i++)
    if (!plan->in[i].park) atomic_fetch_add(&header->moved_home_bytes, plan->in[i].bytes);
  r->reserved = 0;
  residency_exchanged(r->engine, outs, ins);
  for (uint32_t i = 0; i < ins; i++) /* the plan is the engine's, and still there */
    if (r->units[plan->in[i].unit].host == NULL) residency_host_lost(r->engine, plan->in[i].unit);
  free(list);
}
