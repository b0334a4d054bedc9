/* Callers older and newer than the library: each growable struct, shorter and longer than it knows.
 *
 *   callers RECORDING RAW_FILE
 *
 * Shorter: accepted, and nothing past struct_bytes is written. Longer: options are accepted while
 * the bytes the library does not know are 0, and refused with STOW_ERR_UNSUPPORTED if one is set;
 * results are accepted and the bytes set to 0. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/stowage.h>
#include <stowage/sys/device.h>

#define EXTRA 64

static int failed;

static void verdict(int good, const char *name, const char *what) {
  static const char *last_name, *last_what; /* one line for all bytes of a struct */
  if (good) return;
  if (last_name == name && last_what == what) return;
  last_name = name, last_what = what;
  printf("FAIL %s: %s (%s)\n", name, what, stow_status_message());
  failed = 1;
}

/* ---- options: `use` opens and closes something with them ---- */

typedef stow_status (*use_options)(const void *options);

static void options(const char *name, const void *init, size_t bytes, size_t least,
                    use_options use) {
  uint32_t size;
  uint8_t *given = malloc(bytes + EXTRA);
  memcpy(given, init, bytes);
  memset(given + bytes, 0, EXTRA);
  size = (uint32_t)(bytes + EXTRA), memcpy(given, &size, sizeof size);
  verdict(use(given) == STOW_OK, name, "a newer caller with nothing set is accepted");
  given[bytes + EXTRA - 1] = 1;
  verdict(use(given) == STOW_ERR_UNSUPPORTED, name, "a newer caller with more set is refused");
  size = (uint32_t)least, memcpy(given, &size, sizeof size);
  memset(given + least, 0xa5, bytes + EXTRA - least);
  verdict(use(given) == STOW_OK, name, "what an older caller does not have is not read");
  for (size = 0; size < 4; size++) {
    memcpy(given, &size, sizeof size);
    verdict(use(given) == STOW_ERR_INVALID, name, "a size that was never set is refused");
  }
  free(given);
}

/* ---- results: `get` fills one ---- */

typedef stow_status (*get_result)(void *result);

static void result(const char *name, size_t bytes, get_result get) {
  uint32_t size = (uint32_t)bytes;
  uint8_t *whole = calloc(1, bytes), *given = malloc(bytes + EXTRA);
  memcpy(whole, &size, sizeof size);
  verdict(get(whole) == STOW_OK, name, "a caller of today is served");
  size = (uint32_t)(bytes + EXTRA), memset(given, 0xa5, bytes + EXTRA);
  memcpy(given, &size, sizeof size);
  verdict(get(given) == STOW_OK, name, "a newer caller is served");
  for (size_t i = bytes; i < bytes + EXTRA; i++)
    verdict(given[i] == 0, name, "what the library does not know is 0");
  for (size = 8; size < bytes; size += 8) {
    memset(given, 0xa5, bytes), memcpy(given, &size, sizeof size);
    verdict(get(given) == STOW_OK, name, "an older caller is served");
    for (size_t i = size; i < bytes; i++)
      verdict(given[i] == 0xa5, name, "nothing past struct_bytes is written");
    memcpy(&size, given, sizeof size);
  }
  size = 0, memcpy(given, &size, sizeof size);
  verdict(get(given) == STOW_ERR_INVALID, name, "a size that was never set is refused");
  free(whole);
  free(given);
}

/* ---- what they are tried on ---- */

static const char *path, *raw;
static stow_device *device;
static stow_heap *heap;
static stow_trace *trace;
static stow_watch *watch;
static stow_recording *recording;
static stow_replay *replay;
static stow_explanation *x;
static stow_tune *tune;
static stow_values *values;
static stow_arrow_plan *plan;
static const char *npy;
static stow_array *array;
static stow_batches *batches;
static stow_inspection *inspection;
static stow_shrink *shrink;

static stow_status use_sim(const void *o) {
  stow_device *d = NULL;
  stow_status status = stow_sim_open(&d, o);
  stow_device_close(d);
  return status;
}
static stow_status use_heap(const void *o) {
  stow_heap *h = NULL;
  stow_status status = stow_heap_open(&h, o);
  stow_heap_close(h);
  return status;
}
static stow_status use_trace(const void *o) {
  stow_trace *t = NULL;
  stow_status status = stow_trace_open(&t, o);
  stow_trace_close(t);
  return status;
}
static stow_status use_recording(const void *o) {
  stow_recording *r = NULL;
  stow_status status = stow_recording_open(&r, path, o);
  stow_recording_close(r);
  return status;
}
static stow_status use_replay(const void *o) {
  stow_replay *r = NULL;
  stow_status status = stow_replay_open(&r, recording, o);
  stow_replay_close(r);
  return status;
}
static stow_status use_explain(const void *o) {
  stow_explanation *e = NULL;
  stow_status status = stow_explain_recording(&e, recording, o);
  stow_explanation_close(e);
  return status;
}
static stow_status use_tune(const void *o) {
  stow_tune *t = NULL;
  stow_status status = stow_tune_open(&t, recording, o);
  stow_tune_close(t);
  return status;
}
static stow_status use_array(const void *o) {
  stow_array *a = NULL;
  stow_status status = stow_array_open(&a, o);
  stow_array_close(a);
  return status;
}
static stow_status use_batches(const void *o) {
  stow_batches *b = NULL;
  stow_status status = stow_batches_open(&b, o);
  stow_batches_close(b);
  return status;
}
static stow_status use_state(const void *o) {
  return stow_batches_set_state(batches, o);
}
static stow_status use_inspect(const void *o) {
  stow_inspection *i = NULL;
  stow_status status = stow_inspect_file(&i, raw, o);
  stow_inspection_close(i);
  return status;
}
static stow_status use_plan(const void *o) {
  struct ArrowArrayStream stream;
  stow_arrow_plan *made;
  stow_status status = stow_arrow_open(&stream, npy, 0);
  if (status == STOW_OK) status = stow_arrow_plan_make(&made, &stream, o);
  if (status == STOW_OK) stow_arrow_plan_close(made);
  return status;
}
static stow_status use_shrink(const void *o) {
  stow_shrink *s = NULL;
  stow_status status = stow_shrink_file(&s, raw, "unused.npy", o);
  stow_shrink_close(s);
  return status;
}

static stow_status get_props(void *r) {
  return stow_device_get_props(device, r);
}
static stow_status get_counts(void *r) {
  return stow_sim_get_counts(device, r);
}
static stow_status get_stats(void *r) {
  return stow_heap_get_stats(heap, r);
}
static stow_status get_failure(void *r) {
  return stow_heap_last_failure(heap, r);
}
static stow_status get_trace(void *r) {
  return stow_trace_get_stats(trace, r);
}
static stow_status get_host(void *r) {
  return stow_watch_read_host(watch, r);
}
static stow_status get_recording(void *r) {
  return stow_recording_get_info(recording, r);
}
static stow_status get_replay(void *r) {
  return stow_replay_run(replay, "bfc", 0, r);
}
static stow_status get_explanation(void *r) {
  return stow_explanation_get_info(x, r);
}
static stow_status get_cause(void *r) {
  return stow_explanation_get_cause(x, 0, r);
}
static stow_status get_fix(void *r) {
  return stow_explanation_get_fix(x, 0, r);
}
static stow_status get_tune(void *r) {
  return stow_tune_get_info(tune, r);
}
static stow_status get_setting(void *r) {
  return stow_tune_get_setting(tune, 0, r);
}
static stow_status get_values(void *r) {
  return stow_values_get(values, r);
}
static stow_status get_column(void *r) {
  return stow_arrow_plan_get_column(plan, 0, r);
}
static stow_status get_array(void *r) {
  return stow_array_get_info(array, r);
}
static stow_status get_batches(void *r) {
  return stow_batches_get_info(batches, r);
}
static stow_status get_file(void *r) {
  return stow_batches_get_file(batches, 0, r);
}
static stow_status get_state(void *r) {
  return stow_batches_get_state(batches, r);
}
static stow_status get_inspection(void *r) {
  return stow_inspection_get_info(inspection, r);
}
static stow_status get_item(void *r) {
  return stow_inspection_get_item(inspection, 0, r);
}
static stow_status get_shrink(void *r) {
  return stow_shrink_get_info(shrink, r);
}
static stow_status get_shrunk(void *r) {
  return stow_shrink_get_item(shrink, 0, r);
}

#define NEED(call)                                                                                 \
  ((call) == STOW_OK ? (void)0 : (printf("FAIL %s: %s\n", #call, stow_status_message()), exit(1)))
/* `least`: the members up to and with the last one that is needed here. */
#define UP_TO(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))
#define OPTIONS(object, member, use)                                                               \
  options(#use, &(object), sizeof(object), UP_TO(__typeof__(object), member), use)
#define RESULT(type, get) result(#type, sizeof(type), get)

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  path = argv[1], raw = argv[2];
  char array_path[512];
  snprintf(array_path, sizeof array_path, "%s.npy", raw);
  npy = array_path;
  stow_shrink_options to_npy = STOW_SHRINK_OPTIONS_INIT;
  to_npy.raw_dtype = "f64";
  stow_sim_options sim = STOW_SIM_OPTIONS_INIT;
  stow_heap_options of_heap = STOW_HEAP_OPTIONS_INIT;
  stow_trace_options of_trace = STOW_TRACE_OPTIONS_INIT;
  stow_recording_options of_recording = STOW_RECORDING_OPTIONS_INIT;
  stow_replay_options of_replay = STOW_REPLAY_OPTIONS_INIT;
  stow_explain_options of_explain = STOW_EXPLAIN_OPTIONS_INIT;
  stow_tune_options of_tune = STOW_TUNE_OPTIONS_INIT;
  stow_array_options of_array = STOW_ARRAY_OPTIONS_INIT;
  stow_batches_options of_batches = STOW_BATCHES_OPTIONS_INIT;
  stow_batches_state state = STOW_BATCHES_STATE_INIT;
  stow_inspect_options of_inspect = STOW_INSPECT_OPTIONS_INIT;
  stow_shrink_options of_shrink = STOW_SHRINK_OPTIONS_INIT;
  stow_arrow_plan_options of_plan = STOW_ARROW_PLAN_OPTIONS_INIT;
  const stow_array_options *files[1] = {&of_array};
  double number = 1;
  NEED(stow_sim_open(&device, &sim));
  of_heap.device = device, of_heap.background = 0;
  NEED(stow_heap_open(&heap, &of_heap));
  NEED(stow_trace_open(&trace, NULL));
  NEED(stow_watch_open(&watch));
  NEED(stow_recording_open(&recording, path, NULL));
  NEED(stow_replay_open(&replay, recording, NULL));
  NEED(stow_explain_recording(&x, recording, NULL));
  NEED(stow_tune_open(&tune, recording, NULL));
  NEED(stow_values_open(&values, "f64"));
  NEED(stow_values_add(values, &number, 1));
  NEED(stow_shrink_file(&shrink, raw, npy, &to_npy));
  stow_shrink_close(shrink);
  struct ArrowArrayStream stream;
  NEED(stow_arrow_open(&stream, npy, 0));
  NEED(stow_arrow_plan_make(&plan, &stream, NULL));
  of_array.path = raw, of_array.raw_dtype = "f64";
  NEED(stow_array_open(&array, &of_array));
  of_batches.files = files, of_batches.file_count = 1, of_batches.world = 1;
  NEED(stow_batches_open(&batches, &of_batches));
  NEED(stow_batches_get_state(batches, &state));
  of_inspect.raw_dtype = of_shrink.raw_dtype = "f64", of_shrink.flags = STOW_SHRINK_DRY_RUN;
  NEED(stow_inspect_file(&inspection, raw, &of_inspect));
  NEED(stow_shrink_file(&shrink, raw, "unused.npy", &of_shrink));

  OPTIONS(sim, vram_bytes, use_sim);
  OPTIONS(of_heap, device, use_heap);
  OPTIONS(of_trace, reserved, use_trace);
  OPTIONS(of_recording, reserved, use_recording);
  OPTIONS(of_replay, reserved, use_replay);
  OPTIONS(of_explain, reserved, use_explain);
  OPTIONS(of_tune, reserved, use_tune);
  OPTIONS(of_array, raw_dtype, use_array);
  OPTIONS(of_batches, world, use_batches);
  OPTIONS(state, window_rows, use_state);
  OPTIONS(of_inspect, raw_dtype, use_inspect);
  OPTIONS(of_shrink, raw_dtype, use_shrink);
  OPTIONS(of_plan, reserved, use_plan);
  printf("%s", failed ? "" : "ok options_of_older_and_newer_callers\n");
  int before = failed;
  RESULT(stow_device_props, get_props);
  RESULT(stow_sim_counts, get_counts);
  RESULT(stow_heap_stats, get_stats);
  RESULT(stow_heap_failure, get_failure);
  RESULT(stow_trace_stats, get_trace);
  RESULT(stow_watch_host, get_host);
  RESULT(stow_recording_info, get_recording);
  RESULT(stow_replay_result, get_replay);
  RESULT(stow_explanation_info, get_explanation);
  RESULT(stow_cause, get_cause);
  RESULT(stow_fix, get_fix);
  RESULT(stow_tune_info, get_tune);
  RESULT(stow_tune_setting, get_setting);
  RESULT(stow_values_facts, get_values);
  RESULT(stow_arrow_column, get_column);
  RESULT(stow_array_info, get_array);
  RESULT(stow_array_info, get_file);
  RESULT(stow_batches_info, get_batches);
  RESULT(stow_batches_state, get_state);
  RESULT(stow_inspection_info, get_inspection);
  RESULT(stow_inspection_item, get_item);
  RESULT(stow_shrink_info, get_shrink);
  RESULT(stow_shrink_item, get_shrunk);
  printf("%s", failed > before ? "" : "ok results_for_older_and_newer_callers\n");

  stow_device_ops cut = *device->ops;
  stow_device other = {&cut};
  stow_device *wrapped;
  cut.struct_bytes = sizeof cut - sizeof(void *);
  verdict(stow_fault_open(&wrapped, &other) == STOW_ERR_INVALID, "stow_device_ops",
          "a table that lacks entries is refused");
  of_heap.device = &other;
  verdict(use_heap(&of_heap) == STOW_ERR_INVALID, "stow_device_ops", "by a heap too");
  printf("%s", failed > before ? "" : "ok a_backend_with_a_short_table_is_refused\n");
  stow_shrink_close(shrink);
  stow_inspection_close(inspection);
  stow_batches_close(batches);
  stow_array_close(array);
  stow_arrow_plan_close(plan);
  stow_values_close(values);
  stow_tune_close(tune);
  stow_explanation_close(x);
  stow_replay_close(replay);
  stow_recording_close(recording);
  stow_watch_close(watch);
  stow_trace_close(trace);
  stow_heap_close(heap);
  stow_device_close(device);
  return failed;
}
