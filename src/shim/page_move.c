/* Page move: moves pages from tier to tier; their addresses do not change.
 *
 * When a training step needs more than vram has, the data it wrote first is read last, in the
 * backward pass. So the lowest of the step's own addresses (a framework's range grows upwards) move
 * to the host, and new memory gets vram. Memory from before the step, weights and the optimizer's
 * state, stays; if some of it is on the host, it returns to vram when the step is over.
 *
 * While pages move, the gate is closed and the device is idle. Nothing moves while a graph is
 * captured, in processes that share pages with others, or if a program submits work by a path that
 * bypasses the gate. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "shim/capture.h"
#include "shim/gate.h"
#include "shim/page_table.h"

/* Bytes moved together: enough to justify waiting for the device (1 to 2 ms compared with 5 ms of
 * copying), and few enough not to move too much: at most a part of the limit. */
#define BATCH_BYTES ((uint64_t)256 << 20)
#define BATCH_PART  64
#define BATCH_PAGES 64
/* Copies on their way while a page is exchanged. To the host one: granting the device a page there
 * takes 0.27 ms, 0.40 ms while one copy of 20 MiB runs and 0.54 ms while a queue of them does, and
 * the copy itself 0.38 ms (H200, driver 580). A page in vram is granted in 0.03 ms. */
#define AHEAD_OUT 1
/* What a step's way back needs for itself: that part of the limit is left free when pages come home
 * within it. */
#define HOME_LEAVES_PART  12
#define HOME_LEAVES_BYTES ((uint64_t)2 << 30) /* if there is no limit */
/* How long the device may take to finish its work: while the gate is open, and once it is closed.
 * It was idle just before the gate was closed, so work that takes longer waits for something that
 * is held back. In the first case the work may wait for the very thread that would move pages; then
 * nothing is moved for a while. */
#define REST_MAX_NS ((uint64_t)5 * 1000 * 1000 * 1000)
#define IDLE_MAX_NS ((uint64_t)500 * 1000 * 1000)
#define GIVEN_UP_NS ((uint64_t)60 * 1000 * 1000 * 1000)
/* After this time the wait becomes less frequent: mostly it takes 1 to 2 ms. */
#define LEISURE_NS ((uint64_t)5 * 1000 * 1000)

/* One page that is being moved: the token keeps its address and gets another page. */
typedef struct transfer {
  token *token;
  page *to;
  cu_event done;
} transfer;

static struct {
  cu_context context; /* the two belong to */
  cu_stream stream;
  cu_event idle, done[BATCH_PAGES];
  uint64_t given_up_ns;      /* when the device did not become idle; 0: it did */
} tools[LEDGER_DEVICES_MAX]; /* guarded by pages_lock, as all here */

void page_move_context_ended(unsigned device, cu_context context) {
  if (device < LEDGER_DEVICES_MAX && (context == NULL || tools[device].context == context))
    tools[device].context = NULL;
}

static void after_fork(void) {
  for (unsigned i = 0; i < LEDGER_DEVICES_MAX; i++) page_move_context_ended(i, NULL);
}
SHIM_AFTER_FORK(after_fork);

static size_t batch_pages(const page_class *class, uint64_t limit_bytes) {
  ASSERT(class->bytes > 0);
  uint64_t limit = limit_bytes / BATCH_PART;
  uint64_t pages = (limit < BATCH_BYTES ? limit : BATCH_BYTES) / class->bytes;
  return pages < 1 ? 1 : pages > BATCH_PAGES ? BATCH_PAGES : (size_t)pages;
}

/* ---- getting ready ---- */

/* Creates a stream and events in the calling thread's context, which must be on the device. */
static bool have_tools(unsigned device) {
  ASSERT(lock_held(&pages_lock));
  unsigned here;
  cu_context context;
  cu_device ordinal;
  const cuda_driver *driver = shim_driver();
  if (device >= LEDGER_DEVICES_MAX || !account_here(&here, &context, &ordinal) || here != device)
    return false;
  if (tools[device].context == context) return true;
  if (driver->cuStreamCreate == NULL || driver->cuEventCreate == NULL ||
      driver->cuStreamCreate(&tools[device].stream, CU_STREAM_NON_BLOCKING_FLAG) != CU_OK ||
      driver->cuEventCreate(&tools[device].idle, CU_EVENT_NO_TIMING) != CU_OK)
    return false;
  for (int i = 0; i < BATCH_PAGES; i++)
    if (driver->cuEventCreate(&tools[device].done[i], CU_EVENT_NO_TIMING) != CU_OK) return false;
  tools[device].context = context;
  return true;
}

/* Waits until all work submitted so far is done, for a limited time. */
static cu_result wait_for_rest(unsigned device, uint64_t most_ns) {
  ASSERT(tools[device].context != NULL);
  const cuda_driver *driver = shim_driver();
  if (driver->cuCtxRecordEvent == NULL) return CU_ERROR_NOT_SUPPORTED;
  cu_result code = driver->cuCtxRecordEvent(tools[device].context, tools[device].idle);
  uint64_t start = clock_ns();
  while (code == CU_OK && (code = driver->cuEventQuery(tools[device].idle)) == CU_ERROR_NOT_READY) {
    uint64_t waited = clock_ns() - start;
    if (waited > most_ns) break;
    if (waited > LEISURE_NS)
      nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    else
      sched_yield();
    code = CU_OK;
  }
  return code;
}

/* Waits until all work on the device is done and closes the gate, so that no more comes. Returns
 * false, with the gate open, if that is not possible. */
static bool quiet_device(unsigned device) {
  ASSERT(lock_held(&pages_lock));
  uint64_t *given_up = &tools[device].given_up_ns;
  if (*given_up != 0 && clock_ns() - *given_up < GIVEN_UP_NS) return false;
  *given_up = 0;
  /* First with the gate open, so that work that waits for other threads' work can finish. */
  cu_result code = wait_for_rest(device, REST_MAX_NS);
  if (code == CU_ERROR_NOT_READY) *given_up = clock_ns();
  if (code == CU_OK) {
    if (!gate_close()) return false;
    code = wait_for_rest(device, IDLE_MAX_NS);
    if (code == CU_OK) return true;
    gate_open();
  }
  shim_log("pages are not moved: the device does not come to rest (%d)", code);
  return false;
}

/* ---- moving ---- */

/* Sends the bytes on their way, by the host page's own address of ours. */
static cu_result send(transfer *move, size_t i) {
  ASSERT(move->to->tier != move->token->page->tier);
  ASSERT(i < BATCH_PAGES);
  const cuda_driver *driver = shim_driver();
  const page_class *class = move->token->class;
  cu_stream stream = tools[class->device].stream;
  page *to = move->to;
  cu_result code = page_stage(to);
  if (code == CU_OK)
    code = driver->cuMemcpyAsync(to->stage, move->token->addr, class->bytes, stream);
  move->done = tools[class->device].done[i];
  return code == CU_OK ? driver->cuEventRecord(move->done, stream) : code;
}

/* Maps the page with the copied contents at the token's address. On failure the old page is mapped
 * again or, if the driver refuses even that, nothing. */
static cu_result exchange(transfer *move) {
  ASSERT(move->token->addr != 0);
  ASSERT(!move->token->pinned);
  const cuda_driver *driver = shim_driver();
  token *t = move->token;
  page *from = t->page, *to = move->to;
  cu_result code = driver->cuEventSynchronize(move->done);
  if (code == CU_OK && to->at != 0) code = page_unmap(to);
  if (code == CU_OK) code = page_unmap(from);
  if (code != CU_OK) return code;
  code = page_map_at(to, t->addr);
  if (code == CU_OK) code = page_grant(to);
  if (code == CU_OK) {
    token_exchange(t, to);
    page_free_put(from);
    return CU_OK;
  }
  if (to->at != 0) page_unmap(to);
  if (page_map_at(from, t->addr) != CU_OK || page_grant(from) != CU_OK)
    shim_log("an address was lost while its page was moved");
  return code;
}

/* Moves `count` tokens' pages, each to the page in `moves`. Returns how many were moved. Copies run
 * ahead of the exchanges. */
static size_t move_all(transfer *moves, size_t count) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(count > 0);
  size_t sent = 0, moved = 0;
  page_table_log("before moving");
  uint64_t asked = clock_ns();
  bool closed = quiet_device(moves[0].token->class->device), good = closed;
  bool out = moves[0].to->tier == TIER_HOST;
  size_t ahead = out ? AHEAD_OUT : BATCH_PAGES - 1;
  uint64_t start = clock_ns();
  for (size_t i = 0; good && i < count; i++) {
    while (good && sent < count && sent - i <= ahead) {
      good = send(&moves[sent], sent % BATCH_PAGES) == CU_OK;
      sent += good;
    }
    good = i < sent && exchange(&moves[i]) == CU_OK;
    moved += good;
  }
  for (size_t i = moved; i < count; i++) {
    if (i < sent) shim_driver()->cuEventSynchronize(moves[i].done);
    page_free_put(moves[i].to);
  }
  if (closed) gate_open();
  shim_log("moved %zu pages to %s in %llu us, after %llu us of waiting for the device", moved,
           out ? "the host" : "vram", (unsigned long long)((clock_ns() - start) / 1000),
           (unsigned long long)((start - asked) / 1000));
  return moved;
}

/* Takes free pages of a tier for the tokens, as many as there are. */
static size_t find_places(transfer *moves, size_t count, page_class *class, int tier) {
  ASSERT(count > 0);
  size_t found = 0;
  while (found < count) {
    if (page_free_spare(class, tier) == 0 && page_make(class, tier) != CU_OK) break;
    moves[found].to = page_free_take(class, tier, 0);
    if (moves[found].to == NULL) break;
    found++;
  }
  return found;
}

/* ---- what moves ---- */

static int by_address(const void *a, const void *b) {
  cu_addr one = ((const transfer *)a)->token->addr, other = ((const transfer *)b)->token->addr;
  return one < other ? -1 : one > other;
}

static int by_address_down(const void *a, const void *b) {
  return by_address(b, a);
}

/* Returns the tokens of a class that are mapped in a tier, without the settled ones, ordered by
 * address; NULL: none. */
static transfer *candidates(const page_class *class, int tier, bool settled_too, size_t *count,
                            int (*order)(const void *, const void *)) {
  ASSERT(lock_held(&pages_lock));
  uint64_t name, value;
  transfer *list = malloc((tokens.count + 1) * sizeof *list);
  *count = 0;
  for (size_t at = 0; list != NULL && map_next(&tokens, &at, &name, &value);) {
    token *t = (token *)(uintptr_t)value;
    if (t->class != class || t->addr == 0 || t->pinned || (t->settled && !settled_too) ||
        t->page->tier != tier || !t->page->granted)
      continue;
    list[(*count)++] = (transfer){.token = t};
  }
  if (*count > 1) qsort(list, *count, sizeof *list, order);
  return list;
}

static bool may_move(const page_class *class) {
  return gate_here() && gate_used() && !token_shared() && !capture_on() &&
         have_tools(class->device);
}

uint64_t page_move_out(page_class *class, uint64_t limit_bytes) {
  ASSERT(lock_held(&pages_lock));
  size_t count, moved = 0;
  if (!may_move(class)) return 0;
  transfer *list = candidates(class, TIER_VRAM, false, &count, by_address);
  if (count > batch_pages(class, limit_bytes)) count = batch_pages(class, limit_bytes);
  if (count > 0) count = find_places(list, count, class, TIER_HOST);
  if (count > 0) moved = move_all(list, count);
  free(list);
  return moved * class->bytes;
}

/* Returns how many of `count` pages may return to vram without using what the rest of a step will
 * need. */
static size_t room_for_home(page_class *class, size_t count, uint64_t limit_bytes, bool last) {
  ASSERT(count > 0);
  uint64_t leave =
      limit_bytes == LEDGER_UNLIMITED ? HOME_LEAVES_BYTES : limit_bytes / HOME_LEAVES_PART;
  size_t left = last ? 0 : (size_t)(leave / class->bytes);
  while (page_free_spare(class, TIER_VRAM) < count + left && page_make(class, TIER_VRAM) == CU_OK) {
  }
  size_t spare = page_free_spare(class, TIER_VRAM);
  size_t room = spare > left ? spare - left : 0;
  return room < count ? room : count;
}

uint64_t page_move_home(page_class *class, uint64_t limit_bytes, bool last) {
  ASSERT(lock_held(&pages_lock));
  size_t count, moved = 0;
  if (!may_move(class)) return 0;
  transfer *list = candidates(class, TIER_HOST, true, &count, by_address_down);
  if (count > 0) count = room_for_home(class, count, limit_bytes, last);
  if (count > 0) count = find_places(list, count, class, TIER_VRAM);
  if (count > 0) moved = move_all(list, count);
  free(list);
  return moved * class->bytes;
}
