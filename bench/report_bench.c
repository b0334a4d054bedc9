/* Report: the time from one million events in memory to the whole page, and the page's size.
 *
 *   case=report_1m ours=… unit=s peer=none …
 *
 * The events are harder than a real loop's: half are allocations (no events that only announce a
 * free), sizes come from 2000 values and stacks from 5000, and what is freed is chosen at random,
 * so that neither repeats in a way that compresses well. PyTorch's own page (memory_viz trace_plot)
 * is the snapshot itself beside a script that is loaded from the network and draws at most the
 * largest events: it aggregates nothing, so there is no like for like to time here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "report/report.h"

#define EVENTS 1000000u
#define STACKS 5000u
#define SIZES  2000u
#define LIVE   4000u

static uint64_t state = 42;

static uint64_t draw(uint64_t below) {
  uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (z ^ (z >> 31)) % below;
}

static stow_status add_stacks(recording *r) {
  for (uint32_t s = 0; s < STACKS; s++) {
    uint32_t frames[12], id;
    for (uint32_t f = 0; f < 12; f++) {
      char text[64];
      uint32_t name_id, file_id;
      /* Outer frames are shared, inner ones differ: stacks form a tree. */
      uint64_t which = f == 0 ? s : s / (1u << (f < 12 ? f : 11));
      int length = snprintf(text, sizeof text, "function_%u_%llu", f, (unsigned long long)which);
      STOW_TRY(recording_name(r, &name_id, text, (size_t)length));
      length =
          snprintf(text, sizeof text, "/project/module_%llu.py", (unsigned long long)which % 97);
      STOW_TRY(recording_name(r, &file_id, text, (size_t)length));
      STOW_TRY(recording_frame(r, &frames[f], name_id, file_id, (uint32_t)(which % 500) + 1));
    }
    STOW_TRY(recording_stack(r, &id, frames, 12));
  }
  return STOW_OK;
}

/* Addresses as a caching allocator returns them: by size, most recently freed first. */
typedef struct bin {
  uint64_t free[LIVE];
  uint32_t count;
} bin;

static uint64_t take(bin *b, uint64_t bytes) {
  static uint64_t next = UINT64_C(1) << 30;
  if (b->count > 0) return b->free[--b->count];
  uint64_t addr = next;
  next += bytes;
  return addr;
}

/* Fills a recording. A stack requests one of three sizes, as a line of a program does; one of the
 * 64 youngest blocks is freed. */
static stow_status fill_recording(recording *r) {
  static event live[LIVE];
  bin *bins = calloc(SIZES, sizeof *bins);
  if (bins == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the bench");
  uint64_t time_ns = 1000;
  uint32_t count = 0;
  stow_status status = add_stacks(r);
  event base = {.kind = EVENT_SEGMENT_ALLOC, .addr = 1 << 30, .bytes = UINT64_C(64) << 30};
  if (status == STOW_OK) status = recording_add_event(r, &base, &(origin){0});
  while (r->event_count < EVENTS && status == STOW_OK) {
    time_ns += 1000 * (1 + draw(200));
    event e;
    if (count == LIVE || (count > 0 && draw(2) == 0)) {
      uint32_t at = count - 1 - (uint32_t)draw(count < 64 ? count : 64);
      e = live[at];
      memmove(live + at, live + at + 1, (--count - at) * sizeof *live);
      e.kind = EVENT_FREE;
      bin *b = &bins[e.bytes / 4096 % SIZES];
      b->free[b->count++] = e.addr;
    } else {
      uint32_t stack_id = 1 + (uint32_t)draw(STACKS);
      uint64_t size = (stack_id * 7919u + draw(3) * 104729u) % SIZES,
               bytes = 4096 * (size == 0 ? SIZES : size);
      e = (event){.kind = EVENT_ALLOC,
                  .bytes = bytes,
                  .addr = take(&bins[size], bytes),
                  .stack_id = stack_id};
      live[count++] = e;
    }
    e.time_ns = time_ns;
    status = recording_add_event(r, &e, &(origin){0});
  }
  free(bins);
  return status;
}

static stow_status one_report(const recording *r, double *build_s, double *replay_s, double *page_s,
                              size_t *bytes) {
  report made;
  buffer page = BUFFER_INIT;
  uint64_t t0 = clock_ns();
  stow_status status = report_build(&made, r, "one million events", 0);
  uint64_t t1 = clock_ns();
  if (status == STOW_OK) status = report_replay(&made);
  uint64_t t2 = clock_ns();
  if (status == STOW_OK) status = report_html(&made, 1, &page);
  uint64_t t3 = clock_ns();
  *build_s = (double)(t1 - t0) / 1e9;
  *replay_s = (double)(t2 - t1) / 1e9;
  *page_s = (double)(t3 - t2) / 1e9;
  *bytes = page.length;
  buffer_free(&page);
  report_free(&made);
  return status;
}

int main(void) {
  recording r;
  recording_init(&r, 0);
  stow_status status = fill_recording(&r);
  double best = 1e9, build = 0, replay = 0, page = 0;
  size_t bytes = 0;
  for (int turn = 0; turn < 3 && status == STOW_OK; turn++) {
    double b, p, w;
    status = one_report(&r, &b, &p, &w, &bytes);
    if (b + p + w < best) {
      best = b + p + w;
      build = b;
      replay = p;
      page = w;
    }
  }
  recording_free(&r);
  if (status != STOW_OK) {
    fprintf(stderr, "report_bench: %s\n", stow_status_message());
    return 1;
  }
  printf("case=report_1m ours=%.3f unit=s peer=none build=%.3f replay=%.3f page=%.3f\n", best,
         build, replay, page);
  printf("case=report_1m_page ours=%.2f unit=MB peer=none bound=5\n", (double)bytes / 1e6);
  return 0;
}
