/* stowage replay --spill: shows how long a step takes if the device is smaller than the program. */
#include "cli/replay_spill.h"

#include <inttypes.h>
#include <string.h>

#include <stowage/size.h>

#include "base/json.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/losses.h"
#include "cli/output.h"
#include "cli/replay_input.h"
#include "recordings/recording_file.h"
#include "replay/spill.h"
#include "replay/steps.h"

#define RECORD_BYTES_MAX (UINT64_C(16) << 30)

static double ms(uint64_t ns) {
  return (double)ns / 1e6;
}

static const char *size_of(uint64_t bytes) {
  static char texts[8][STOW_SIZE_TEXT_MAX];
  static unsigned next;
  return stow_size_format(texts[next++ % 8], bytes);
}

static void print_waits(buffer *out, const spill_times *t) {
  buffer_printf(out,
                "waiting, per step: copies in %.1f ms, copies out %.1f ms, exchanges of pages "
                "%.1f ms, host pages read in place %.1f ms\n",
                ms(t->wait_in_ns), ms(t->wait_out_ns), ms(t->exchange_ns), ms(t->in_place_ns));
  buffer_printf(out,
                "moved, per step: %s in (%s copied), %s out (%s copied), %" PRIu64 " exchange%s\n",
                size_of(t->in_bytes), size_of(t->in_copied_bytes), size_of(t->out_bytes),
                size_of(t->out_copied_bytes), t->exchanges, text_s(t->exchanges));
}

/* What the scripts inside PyTorch copied. */
static void print_scripts(buffer *out, const spill_scripted *s) {
  buffer_printf(out, "PyTorch's scripts, per step:");
  if (s->saved_out_bytes + s->saved_in_bytes > 0)
    buffer_printf(out, " saved tensors %s out, %s in, waiting %.1f ms;",
                  size_of(s->saved_out_bytes), size_of(s->saved_in_bytes), ms(s->saved_wait_ns));
  if (s->state_bytes > 0)
    buffer_printf(out, " optimizer state %s in and out, waiting %.1f ms;", size_of(s->state_bytes),
                  ms(s->state_wait_ns));
  if (s->weight_bytes > 0)
    buffer_printf(out, " weights %s in, waiting %.1f ms;", size_of(s->weight_bytes),
                  ms(s->weight_wait_ns));
  buffer_printf(out, " no page moves\n");
}

static const char *chosen(const spill_program *p, const spill_result *r) {
  if (r->scripts.used) return "the scripts inside PyTorch";
  if (!r->engine.moving) return "read in place";
  return p->torch ? "pages move; the scripts inside PyTorch are not enough and were left out"
                  : "pages move";
}

static stow_status print_text(const char *path, const spill_program *p, const spill_result *r,
                              uint64_t vram) {
  static const char *const how[] = {[SPILL_STEP_MARKS] = "the last marked step",
                                    [SPILL_STEP_PERIOD] = "the last launches that repeat",
                                    [SPILL_STEP_WHOLE] =
                                        "the whole recording: no step repeats in it"};
  const spill_times *t = &r->steady;
  buffer out = BUFFER_INIT;
  const char *name = strrchr(path, '/');
  buffer_printf(&out, "%s: %zu launch%s, %s; at most %s live at once\n",
                name != NULL ? name + 1 : path, p->launch_count, p->launch_count == 1 ? "" : "es",
                how[p->how], size_of(p->peak_live_bytes));
  if (p->unused_bytes > 0)
    buffer_printf(&out, "of its pools, %s is never used and was left out\n",
                  size_of(p->unused_bytes));
  buffer_printf(&out, "a device of %s leaves %s for pages\n", size_of(vram),
                size_of(r->capacity_bytes));
  if (r->fits) {
    buffer_printf(&out, "everything fits: a step takes %.1f ms\n", ms(r->bare_ns));
    return output_buffer(&out);
  }
  buffer_printf(&out, "\nat %s a step would take %.1f ms, %.1fx the %.1f ms without spilling\n",
                size_of(vram), ms(t->step_ns), (double)t->step_ns / (double)r->bare_ns,
                ms(r->bare_ns));
  buffer_printf(
      &out, "floor: %.1f ms (%s does not fit, %d time%s over the bus, no overlap); this is %.2fx\n",
      ms(r->floor_ns), size_of(r->excess_bytes), p->crossings, text_s((uint64_t)p->crossings),
      (double)t->step_ns / (double)r->floor_ns);
  buffer_printf(&out, "nothing moved: %.1f ms; chosen: %s\n", ms(r->stay_ns), chosen(p, r));
  print_waits(&out, t);
  if (r->scripts.used) print_scripts(&out, &r->scripts);
  buffer_printf(&out, "Belady's bound: no plan for these pages brings in less than %s\n",
                size_of(r->bound_in_bytes));
  return output_buffer(&out);
}

static stow_status print_json(const spill_program *p, const spill_result *r, uint64_t vram) {
  const spill_times *t = &r->steady;
  buffer out = BUFFER_INIT;
  json j = JSON_PRETTY(&out);
  json_begin_object(&j);
  json_number(&j, "vram_bytes", vram);
  json_number(&j, "capacity_bytes", r->capacity_bytes);
  json_number(&j, "launches", p->launch_count);
  json_number(&j, "peak_live_bytes", p->peak_live_bytes);
  json_number(&j, "unused_bytes", p->unused_bytes);
  json_number(&j, "excess_bytes", r->excess_bytes);
  json_key(&j, "fits"), json_bool(&j, r->fits);
  json_number(&j, "bare_ns", r->bare_ns);
  json_number(&j, "step_ns", t->step_ns);
  json_number(&j, "floor_ns", r->floor_ns);
  json_number(&j, "stay_ns", r->stay_ns);
  json_key(&j, "moving");
  json_bool(&j, r->engine.moving);
  json_number(&j, "steps", r->steps);
  json_number(&j, "exchanges", t->exchanges);
  json_number(&j, "in_bytes", t->in_bytes);
  json_number(&j, "in_copied_bytes", t->in_copied_bytes);
  json_number(&j, "out_bytes", t->out_bytes);
  json_number(&j, "out_copied_bytes", t->out_copied_bytes);
  json_number(&j, "wait_in_ns", t->wait_in_ns);
  json_number(&j, "wait_out_ns", t->wait_out_ns);
  json_number(&j, "exchange_ns", t->exchange_ns);
  json_number(&j, "in_place_ns", t->in_place_ns);
  json_key(&j, "scripts"), json_bool(&j, r->scripts.used);
  json_number(&j, "saved_out_bytes", r->scripts.saved_out_bytes);
  json_number(&j, "saved_in_bytes", r->scripts.saved_in_bytes);
  json_number(&j, "saved_wait_ns", r->scripts.saved_wait_ns);
  json_number(&j, "state_bytes", r->scripts.state_bytes);
  json_number(&j, "state_wait_ns", r->scripts.state_wait_ns);
  json_number(&j, "weight_bytes", r->scripts.weight_bytes);
  json_number(&j, "weight_wait_ns", r->scripts.weight_wait_ns);
  json_number(&j, "bound_in_bytes", r->bound_in_bytes);
  json_number(&j, "bound_copied_bytes", r->bound_copied_bytes);
  json_end_object(&j);
  return output_buffer(&out);
}

static stow_status run_spill(const verb_call *call, recording *record, spill_program *p) {
  const char *path = call->operands[0];
  uint64_t vram = 0;
  if (strcmp(verb_value(call, "spill"), "auto") != 0)
    return stow_fail(STOW_ERR_INVALID, "--spill %s: only auto is known; write --spill auto",
                     verb_value(call, "spill"));
  static const char *const others[] = {"policy", "vram-limit", "settings", "min-limit", "check"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (i < 3 ? verb_value(call, others[i]) != NULL : verb_flag(call, others[i]))
      return stow_fail(STOW_ERR_INVALID,
                       "--spill simulates pages, not allocators: leave out --%s, or --spill",
                       others[i]);
  STOW_TRY(verb_memory(call, "vram", &vram));
  if (vram == 0)
    return stow_fail(STOW_ERR_INVALID, "--spill needs the size of the device: add --vram SIZE");
  STOW_TRY(recording_read(record, path, KIND_AUTO, NULL));
  losses_warn(record, path);
  stow_status status = spill_program_build(p, record, steps_main_device(record));
  if (status == STOW_ERR_NOT_FOUND)
    return stow_fail(STOW_ERR_INVALID,
                     "%s has no launches with touches, so what a kernel uses is not known; record "
                     "it with stowage run --record FILE --touches",
                     path);
  STOW_TRY(status);
  spill_result result;
  spill_options options = {.vram_bytes = vram, .context_bytes = REPLAY_CONTEXT_BYTES};
  STOW_TRY(spill_run(&result, p, &options));
  return verb_flag(call, "json") ? print_json(p, &result, vram)
                                 : print_text(path, p, &result, vram);
}

int replay_spill(verb_call *call) {
  recording record;
  spill_program p = {0};
  recording_init(&record, RECORD_BYTES_MAX);
  stow_status status = run_spill(call, &record, &p);
  int code = status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
  spill_program_free(&p);
  recording_free(&record);
  return code;
}
