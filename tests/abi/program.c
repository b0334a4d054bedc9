/* A program of edition 1: compiled with the headers in include-1, run with the libraries of today.
 *
 *   program RECORDING FOLDER
 *
 * Calls every family of functions and checks what they return. Never changed once edition 1 is out;
 * an edition 2 has its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/stowage.h>
#include <stowage/sys/device.h>

static const char *family = "";

static void fail(int line, const char *what) {
  printf("FAIL %s: line %d: %s (%s)\n", family, line, what, stow_status_message());
  exit(1);
}
#define CHECK(so) ((so) ? (void)0 : fail(__LINE__, #so))
#define OK(call)  CHECK((call) == STOW_OK)

static void begin(const char *name) {
  family = name;
}
static void done(void) {
  printf("ok edition_1_%s\n", family);
}

static void base(void) {
  uint64_t bytes = 0;
  char text[STOW_SIZE_TEXT_MAX];
  begin("size_status_version");
  OK(stow_size_parse(&bytes, "1.5G"));
  CHECK(bytes == UINT64_C(3) << 29);
  CHECK(strcmp(stow_size_format(text, bytes), "1.5 GiB") == 0);
  CHECK(stow_size_parse(&bytes, "x") == STOW_ERR_INVALID && stow_status_message()[0] != '\0');
  CHECK(stow_status_name(STOW_ERR_BUDGET)[0] != '\0');
  CHECK(strchr(stow_version(), '.') != NULL);
  done();
}

static uint64_t sink(void *user, const stow_heap_event *event) {
  CHECK(event->struct_bytes >= sizeof *event);
  ++((uint64_t *)user)[event->kind];
  return 0;
}

static bool visit(void *user, const stow_heap_entry *entry) {
  CHECK(entry->struct_bytes >= sizeof *entry && entry->bytes > 0);
  *(uint32_t *)user = entry->tag;
  return true;
}

static stow_device *open_device(void) {
  stow_device *device;
  stow_sim_options options = STOW_SIM_OPTIONS_INIT;
  options.vram_bytes = UINT64_C(64) << 20, options.host_bytes = UINT64_C(64) << 20;
  OK(stow_sim_open(&device, &options));
  return device;
}

static void device_and_fault(void) {
  stow_device *device = open_device(), *faulty;
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  stow_sim_counts counts = STOW_SIM_COUNTS_INIT;
  uint64_t free_bytes, total_bytes, calls, failed;
  int count;
  begin("device");
  OK(stow_device_count(&count));
  OK(stow_device_get_props(device, &props));
  CHECK(strcmp(props.kind, "sim") == 0 && props.has_vmm == 1 && props.page_bytes == 2 << 20);
  CHECK(props.vram_bytes == UINT64_C(64) << 20 && props.host_backing == STOW_HOST_SIMULATED);
  OK(stow_device_memory(device, STOW_TIER_VRAM, &free_bytes, &total_bytes));
  CHECK(free_bytes == total_bytes && total_bytes == props.vram_bytes);
  CHECK(strcmp(stow_tier_name(STOW_TIER_DISK), "disk") == 0);
  OK(stow_sim_advance(device, 1));
  OK(stow_sim_get_counts(device, &counts));
  CHECK(counts.now_ns == 1000 && counts.vram_used_bytes == 0);
  OK(stow_fault_open(&faulty, device));
  OK(stow_fault_arm(faulty, STOW_FAULT_PAGE_CREATE, 1, false, STOW_ERR_OUT_OF_MEMORY));
  CHECK(faulty->ops->struct_bytes >= sizeof(stow_device_ops));
  stow_page page;
  CHECK(faulty->ops->page_create(faulty, &page, 2 << 20, STOW_TIER_VRAM) == STOW_ERR_OUT_OF_MEMORY);
  OK(stow_fault_count(faulty, STOW_FAULT_PAGE_CREATE, &calls, &failed));
  CHECK(calls == 1 && failed == 1);
  OK(stow_device_close(faulty));
  done();
}

static void heap_and_trace(const char *path) {
  stow_device *device = open_device();
  stow_heap *heap;
  stow_heap_options options = STOW_HEAP_OPTIONS_INIT;
  stow_heap_stats stats = STOW_HEAP_STATS_INIT;
  stow_heap_failure failure = STOW_HEAP_FAILURE_INIT;
  stow_trace *trace;
  stow_trace_options to = STOW_TRACE_OPTIONS_INIT;
  stow_trace_stats recorded = STOW_TRACE_STATS_INIT;
  uint64_t seen[STOW_EVENT_COUNT + 32] = {0}, ptr, more, released;
  uint32_t tag = 0, number, stack;
  begin("heap_and_trace");
  options.device = device, options.background = 0;
  OK(stow_heap_open(&heap, &options));
  CHECK(stow_heap_device(heap) == device);
  to.record_path = path;
  OK(stow_trace_open(&trace, &to));
  OK(stow_trace_add_heap(trace, heap));
  OK(stow_heap_add_sink(heap, sink, seen, STOW_EVENT_ALL));
  OK(stow_tag_push("weights"));
  OK(stow_heap_alloc(&ptr, heap, 1000, NULL));
  OK(stow_heap_each(heap, visit, &tag));
  CHECK(strcmp(stow_tag_name(tag), "weights") == 0);
  OK(stow_tag_pop());
  OK(stow_heap_alloc_aligned(&more, heap, 1 << 20, 4096, NULL));
  OK(stow_heap_record_stream(heap, more, NULL));
  OK(stow_heap_set_heat(heap, more, STOW_HEAT_COLD));
  OK(stow_heap_get_stats(heap, &stats));
  CHECK(stats.live_count == 2 && stats.tier[STOW_TIER_VRAM].live_bytes == 1024 + (1 << 20));
  CHECK(stow_heap_alloc(&released, heap, UINT64_C(1) << 40, NULL) == STOW_ERR_OUT_OF_MEMORY);
  OK(stow_heap_last_failure(heap, &failure));
  CHECK(failure.asked_bytes == UINT64_C(1) << 40 && failure.live_count == 2);
  OK(stow_heap_free(heap, more, NULL));
  OK(stow_heap_free(heap, ptr, NULL));
  OK(stow_heap_trim(heap, 0, &released));
  OK(stow_heap_set_limit(heap, STOW_TIER_VRAM, UINT64_C(32) << 20));
  OK(stow_heap_check(heap));
  CHECK(seen[STOW_EVENT_ALLOC] == 2 && seen[STOW_EVENT_FREE] == 2 && seen[STOW_EVENT_FAIL] == 1);
  OK(stow_trace_mark_begin(trace, "step"));
  OK(stow_trace_tag(trace, "mine", &number));
  stow_trace_frame frame = {"main", "a.py", 7, 0, NULL};
  OK(stow_trace_stack(trace, 5, &frame, 1, &stack));
  CHECK(stow_trace_stack_find(trace, 5) == stack);
  stow_trace_record record = {.addr = 64, .bytes = 512, .stack = stack, .tag = number};
  stow_trace_event(trace, &record);
  OK(stow_trace_fact(trace, "key", "value"));
  OK(stow_trace_mark_end(trace, "step"));
  OK(stow_trace_flush(trace));
  OK(stow_trace_get_stats(trace, &recorded));
  CHECK(recorded.written_events >= 5 && recorded.recording == 1 && recorded.threads == 1);
  OK(stow_heap_remove_sink(heap, sink, seen));
  OK(stow_trace_remove_heap(trace, heap));
  OK(stow_trace_close(trace));
  OK(stow_heap_close(heap));
  OK(stow_device_close(device));
  done();
}

static void watch_and_log(void) {
  stow_watch *watch;
  stow_watch_host host = STOW_WATCH_HOST_INIT;
  stow_watch_device device = STOW_WATCH_DEVICE_INIT;
  begin("watch_and_log");
  stow_log_set(NULL, NULL, STOW_LOG_ERROR);
  OK(stow_watch_open(&watch));
  OK(stow_watch_read_host(watch, &host));
  CHECK(host.total_bytes > host.held_bytes && host.held_bytes > 0);
  CHECK(stow_watch_read_device(watch, 1000, &device) == STOW_ERR_NOT_FOUND);
  OK(stow_watch_close(watch));
  done();
}

static void analysis(const char *path, const char *written, const char *page) {
  stow_recording *recording;
  stow_recording_info info = STOW_RECORDING_INFO_INIT;
  begin("recording");
  OK(stow_recording_open(&recording, written, NULL));
  OK(stow_recording_get_info(recording, &info));
  CHECK(info.complete == 1 && info.events > 0 && info.failures == 1);
  stow_recording_close(recording);
  OK(stow_recording_open(&recording, path, NULL));
  done();

  begin("replay");
  stow_replay *replay;
  stow_replay_result result = STOW_REPLAY_RESULT_INIT;
  OK(stow_replay_open(&replay, recording, NULL));
  OK(stow_replay_run(replay, stow_replay_policy(0), STOW_REPLAY_CHECK, &result));
  CHECK(result.finishes == 1 && result.checked == 1 && result.address_mismatches == 0);
  stow_replay_close(replay);
  done();

  begin("tune");
  stow_tune *tune;
  stow_tune_info tuned = STOW_TUNE_INFO_INIT;
  stow_tune_setting setting = STOW_TUNE_SETTING_INIT;
  OK(stow_tune_open(&tune, recording, NULL));
  OK(stow_tune_get_info(tune, &tuned));
  OK(stow_tune_get_setting(tune, tuned.best, &setting));
  CHECK(setting.finishes == 1 && setting.min_limit_bytes > 0 && setting.settings != NULL);
  stow_tune_close(tune);
  done();

  begin("explain");
  stow_explanation *x;
  stow_explanation_info why = STOW_EXPLANATION_INFO_INIT;
  stow_cause cause = STOW_CAUSE_INIT;
  stow_fix fix = STOW_FIX_INIT;
  OK(stow_explain_recording(&x, recording, NULL));
  OK(stow_explanation_get_info(x, &why));
  CHECK(why.out_of_memory == 1 && why.cause_count > 0 && why.fix_count > 0);
  OK(stow_explanation_get_cause(x, 0, &cause));
  OK(stow_explanation_get_fix(x, 0, &fix));
  CHECK(cause.id[0] != '\0' && cause.evidence_count > 0 && fix.change[0] != '\0');
  CHECK(stow_explanation_note(x, why.note_count) == NULL);
  CHECK(stow_explanation_text(x)[0] && stow_explanation_json(x)[0] && stow_explanation_line(x)[0]);
  stow_explanation_close(x);
  OK(stow_explain_message(&x, "CUDA out of memory", 18));
  stow_explanation_close(x);
  CHECK(stow_explain_run(&x, "/nowhere") == STOW_ERR_NOT_FOUND);
  done();

  begin("report");
  stow_report *report;
  const char *text;
  OK(stow_report_open(&report, recording, NULL));
  OK(stow_report_text(report, &text));
  OK(stow_report_json(report, &text));
  OK(stow_report_html(report, &text));
  OK(stow_report_save(report, page));
  stow_report_close(report);
  stow_recording_close(recording);
  done();
}

static int progress(void *user, uint64_t finished, uint64_t total) {
  ++*(int *)user;
  return finished <= total ? STOW_OK : STOW_ERR_INTERRUPTED;
}

static void data(const char *raw, const char *small) {
  enum { COUNT = 1000 };
  double numbers[COUNT];
  float narrow[COUNT];
  FILE *file = fopen(raw, "wb");
  begin("values");
  stow_values *values;
  stow_values_facts facts = STOW_VALUES_FACTS_INIT;
  bool fits;
  double worst;
  for (int i = 0; i < COUNT; i++) numbers[i] = i % 100;
  CHECK(file != NULL && fwrite(numbers, sizeof numbers, 1, file) == 1 && fclose(file) == 0);
  OK(stow_values_open(&values, "float64"));
  OK(stow_values_add(values, numbers, COUNT));
  OK(stow_values_get(values, &facts));
  CHECK(facts.count == COUNT && facts.whole == 1 && strcmp(facts.smallest, "uint8") == 0);
  OK(stow_values_fit(values, "float32", &fits));
  CHECK(fits);
  OK(stow_values_close(values));
  OK(stow_values_cast(narrow, "float32", numbers, "float64", COUNT));
  OK(stow_values_error(&worst, true, narrow, "float32", numbers, "float64", COUNT));
  CHECK(worst == 0 && narrow[COUNT - 1] == 99);
  done();

  begin("inspect_and_shrink");
  int calls = 0;
  stow_inspection *inspection;
  stow_inspect_options look = STOW_INSPECT_OPTIONS_INIT;
  stow_inspection_info all = STOW_INSPECTION_INFO_INIT;
  stow_inspection_item item = STOW_INSPECTION_ITEM_INIT;
  look.raw_dtype = "float64", look.progress = progress, look.progress_user = &calls;
  OK(stow_inspect_file(&inspection, raw, &look));
  OK(stow_inspection_get_info(inspection, &all));
  OK(stow_inspection_get_item(inspection, 0, &item));
  CHECK(all.bytes == sizeof numbers && all.bytes_after == COUNT && item.dims == 1 &&
        item.most == 99);
  CHECK(stow_inspection_text(inspection)[0] && stow_inspection_json(inspection)[0] && calls > 0);
  stow_inspection_close(inspection);
  stow_shrink *shrink;
  stow_shrink_options how = STOW_SHRINK_OPTIONS_INIT;
  stow_shrink_info did = STOW_SHRINK_INFO_INIT;
  stow_shrink_item one = STOW_SHRINK_ITEM_INIT;
  how.raw_dtype = "float64", how.flags = STOW_SHRINK_NO_SYNC;
  OK(stow_shrink_file(&shrink, raw, small, &how));
  OK(stow_shrink_get_info(shrink, &did));
  OK(stow_shrink_get_item(shrink, 0, &one));
  CHECK(did.bytes_after == COUNT && one.exact == 1 && strcmp(one.to_dtype, "int8") == 0);
  CHECK(stow_shrink_text(shrink)[0] && stow_shrink_json(shrink)[0]);
  stow_shrink_close(shrink);
  done();

  begin("array_and_batches");
  stow_array *array;
  stow_array_options from = STOW_ARRAY_OPTIONS_INIT;
  stow_array_info info = STOW_ARRAY_INFO_INIT;
  uint8_t row;
  from.path = small;
  OK(stow_array_open(&array, &from));
  OK(stow_array_get_info(array, &info));
  CHECK(info.rows == COUNT && info.dims == 1 && strcmp(info.dtype, "int8") == 0);
  OK(stow_array_read(array, 42, 1, 1, 0, 0, &row));
  CHECK(row == 42);
  stow_array_close(array);
  const stow_array_options *files[1] = {&from};
  stow_batches *batches;
  stow_batches_options options = STOW_BATCHES_OPTIONS_INIT;
  stow_batches_state state = STOW_BATCHES_STATE_INIT;
  stow_batches_info facts_of = STOW_BATCHES_INFO_INIT;
  void *rows;
  uint64_t count;
  options.files = files, options.file_count = 1, options.batch_rows = 100, options.world = 1;
  OK(stow_batches_open(&batches, &options));
  OK(stow_batches_get_info(batches, &facts_of));
  OK(stow_batches_get_file(batches, 0, &info));
  CHECK(facts_of.rows == COUNT && facts_of.batch_count == 10);
  while (stow_batches_wait(batches, 1000000) != STOW_OK) {
  }
  OK(stow_batches_next(batches, &rows, &count));
  CHECK(count == 100 && ((uint8_t *)rows)[7] == 7);
  OK(stow_batches_release(rows));
  OK(stow_batches_get_state(batches, &state));
  CHECK(state.next_batch == 1 && state.rows == COUNT);
  OK(stow_batches_set_epoch(batches, 3));
  OK(stow_batches_set_state(batches, &state));
  CHECK(stow_batches_send(batches, NULL, NULL, &count) != STOW_OK); /* it has no device */
  stow_batches_close(batches);
  done();
}

int main(int argc, char **argv) {
  char trace[512], page[512], raw[512], small[512];
  if (argc < 3) return 2;
  snprintf(trace, sizeof trace, "%s/trace.stow", argv[2]);
  snprintf(page, sizeof page, "%s/page.html", argv[2]);
  snprintf(raw, sizeof raw, "%s/raw.bin", argv[2]);
  snprintf(small, sizeof small, "%s/small.npy", argv[2]);
  base();
  device_and_fault();
  heap_and_trace(trace);
  watch_and_log();
  analysis(argv[1], trace, page);
  data(raw, small);
  return 0;
}
