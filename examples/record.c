/* Records what a heap does on a simulated device, by tag, and shows what the process holds.
 *
 *   cc record.c -lstowage && ./a.out trace.stow */
#include <inttypes.h>
#include <stdio.h>

#include <stowage/stowage.h>
#include <stowage/sys/device.h>

static int stop(const char *what) {
  fprintf(stderr, "%s: %s\n", what, stow_status_message());
  return 1;
}

static void say(void *user, stow_log_level level, const char *line) {
  (void)user, (void)level;
  fprintf(stderr, "stowage: %s\n", line);
}

static int record(stow_heap *heap, const char *path) {
  stow_trace *trace;
  stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
  stow_trace_stats stats = STOW_TRACE_STATS_INIT;
  uint64_t ptr, bytes;
  options.record_path = path;
  if (stow_trace_open(&trace, &options) != STOW_OK) return stop(path);
  if (stow_trace_add_heap(trace, heap) != STOW_OK) return stop("stow_trace_add_heap");
  stow_size_parse(&bytes, "64 MiB");
  stow_tag_push("weights");
  if (stow_heap_alloc(&ptr, heap, bytes, NULL) != STOW_OK) return stop("stow_heap_alloc");
  stow_tag_pop();
  stow_heap_free(heap, ptr, NULL);
  stow_trace_flush(trace);
  stow_trace_get_stats(trace, &stats);
  printf("%" PRIu64 " events written\n", stats.written_events);
  stow_trace_remove_heap(trace, heap);
  return stow_trace_close(trace) != STOW_OK ? stop(path) : 0;
}

static int look(void) {
  stow_watch *watch;
  stow_watch_host host = STOW_WATCH_HOST_INIT;
  char held[STOW_SIZE_TEXT_MAX], total[STOW_SIZE_TEXT_MAX];
  if (stow_watch_open(&watch) != STOW_OK) return stop("stow_watch_open");
  if (stow_watch_read_host(watch, &host) != STOW_OK) return stop("stow_watch_read_host");
  printf("this process holds %s of %s\n", stow_size_format(held, host.held_bytes),
         stow_size_format(total, host.total_bytes));
  stow_watch_close(watch);
  return 0;
}

int main(int argc, char **argv) {
  stow_device *device;
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  stow_sim_options sim = STOW_SIM_OPTIONS_INIT;
  stow_heap_options options = STOW_HEAP_OPTIONS_INIT;
  stow_heap *heap;
  if (argc < 2) return fprintf(stderr, "usage: record TRACE.stow\n"), 2;
  stow_log_set(say, NULL, STOW_LOG_WARNING);
  if (stow_sim_open(&device, &sim) != STOW_OK) return stop("stow_sim_open");
  stow_device_get_props(device, &props);
  printf("stowage %s on a %s\n", stow_version(), props.name);
  options.device = device;
  if (stow_heap_open(&heap, &options) != STOW_OK) return stop("stow_heap_open");
  int failed = record(heap, argv[1]) || look();
  stow_heap_close(heap);
  stow_device_close(device);
  return failed;
}
