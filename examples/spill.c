/* Fills a simulated device of 4 GiB past its size, with spill on, and prints what happened.
 *
 *   cc spill.c -lstowage && ./a.out          (or `make`, then build/release/examples/spill)
 *
 * The same program runs on a real device if its name is given: spill 0 */
#include <inttypes.h>
#include <stdio.h>

#include <stowage/stowage.h>

#define MIB   (UINT64_C(1) << 20)
#define GIB   (UINT64_C(1) << 30)
#define COUNT 64

static int stop(const char *what) {
  fprintf(stderr, "%s: %s\n", what, stow_status_message());
  return 1;
}

static uint64_t on_migrate(void *user, const stow_heap_event *event) {
  (void)user;
  char bytes[STOW_SIZE_TEXT_MAX];
  if (event->kind == STOW_EVENT_MIGRATE)
    printf("  moved %s to %s\n", stow_size_format(bytes, event->bytes),
           stow_tier_name(event->tier));
  return 0;
}

static void show(stow_heap *heap, const char *when) {
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  char vram[STOW_SIZE_TEXT_MAX], host[STOW_SIZE_TEXT_MAX];
  if (stow_heap_get_stats(heap, &s) != STOW_OK) return;
  printf("%-28s %" PRIu64 " live: %s on the device, %s on the host\n", when, s.live_count,
         stow_size_format(vram, s.tier[STOW_TIER_VRAM].live_bytes),
         stow_size_format(host, s.tier[STOW_TIER_HOST].live_bytes));
}

int main(int argc, char **argv) {
  stow_heap *heap;
  stow_heap_options options = STOW_HEAP_OPTIONS_INIT;
  options.device_name = argc > 1 ? argv[1] : "sim:4G,host=8G,paper";
  options.vram_limit_bytes = 4 * GIB;
  options.host_limit_bytes = 4 * GIB;
  options.background = false; /* so that every run prints the same */
  if (stow_heap_open(&heap, &options) != STOW_OK) return stop("opening");
  if (stow_heap_add_sink(heap, on_migrate, NULL, STOW_EVENT_BIT(STOW_EVENT_MIGRATE)) != STOW_OK)
    return stop("listening");

  /* 100 MiB at a time: the first forty fit on the device, the rest goes to the host. */
  uint64_t blocks[COUNT];
  int count = 0;
  if (stow_tag_push("activations") != STOW_OK) return stop("tagging");
  while (count < COUNT && stow_heap_alloc(&blocks[count], heap, 100 * MIB, NULL) == STOW_OK)
    count++;
  stow_tag_pop();
  show(heap, "filled past the device:");

  /* A request that exceeds both tiers fails with a message. */
  uint64_t huge;
  if (stow_heap_alloc(&huge, heap, 8 * GIB, NULL) != STOW_OK)
    printf("8 GiB more: %s\n", stow_status_message());

  /* Free half of the memory on the device: the holes have 100 MiB each, yet 1.5 GiB still fits. */
  for (int i = 0; i < 40; i += 2)
    if (stow_heap_free(heap, blocks[i], NULL) != STOW_OK) return stop("freeing");
  show(heap, "every second one freed:");
  uint64_t big;
  if (stow_heap_alloc(&big, heap, 1536 * MIB, NULL) != STOW_OK) return stop("1.5 GiB in one piece");
  show(heap, "1.5 GiB in one piece:");
  if (stow_heap_free(heap, big, NULL) != STOW_OK) return stop("freeing");

  /* Three of the spilled ones are needed soon: hot ones come back first. */
  for (int i = count - 3; i < count; i++) stow_heap_set_heat(heap, blocks[i], STOW_HEAT_HOT);
  for (int i = 40; i < count - 3; i++) stow_heap_set_heat(heap, blocks[i], STOW_HEAT_COLD);
  if (stow_heap_trim(heap, 0, NULL) != STOW_OK) return stop("trimming");
  if (stow_heap_bring_back(heap, NULL) != STOW_OK) return stop("bringing back");

  for (int i = 0; i < count; i++)
    if (i >= 40 || i % 2 == 1) stow_heap_free(heap, blocks[i], NULL);
  show(heap, "all freed:");
  return stow_heap_close(heap) == STOW_OK ? 0 : stop("closing");
}
