/* Inside: the functions inside.py calls, and when it runs. */
#include "shim/inside.h"

#include <stdint.h>

#include "base/rank.h"
#include "shim/host_tier.h"
#include "shim/python.h"
#include "shim/python_stack.h"
#include "shim/recorder.h"
#include "shim/shim.h"

/* inside.py, made at build time. */
static const char TEXT[] = {
#include <shim-inside.inc>
    , '\0'};

static python_object *mark(python_object *self, python_object *arguments) {
  const char *name;
  int begins;
  (void)self;
  if (!python_parse(arguments, "si", &name, &begins)) return NULL;
  recorder_mark(name, begins != 0);
  return python_none();
}

static python_object *fact(python_object *self, python_object *arguments) {
  const char *key, *value;
  (void)self;
  if (!python_parse(arguments, "ss", &key, &value)) return NULL;
  recorder_fact(key, value);
  return python_none();
}

static python_object *snapshot(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  if (recorder_on()) recorder_event(&(stow_trace_record){.kind = STOW_TRACE_SNAPSHOT});
  return python_none();
}

static python_object *check_stacks(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  return python_build("i", python_stack_check() ? 1 : 0);
}

static python_object *spills(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  return python_build("i", host_tier_on() ? 1 : 0);
}

static python_object *segments_are_whole(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  const ledger *l = account_ledger();
  if (l->header != NULL) atomic_store(&l->header->torch_whole, 1);
  return python_none();
}

static python_method methods[] = {
    PYTHON_METHOD("shim_mark", mark),
    PYTHON_METHOD("shim_fact", fact),
    PYTHON_METHOD("shim_snapshot", snapshot),
    PYTHON_METHOD("shim_check_stacks", check_stacks),
    PYTHON_METHOD("shim_spills", spills),
    PYTHON_METHOD("shim_segments_are_whole", segments_are_whole),
    PYTHON_METHOD("shim_log", python_log),
    {NULL, NULL, 0, NULL},
};

static python_script script = {.file = "<stowage inside.py>",
                               .text = TEXT,
                               .entry = "arm",
                               .methods = methods,
                               .word_name = "shim_rank"};
static _Atomic uint32_t asked;

void inside_schedule(void) {
  if (python_script_done(&script)) return;
  uint32_t turn = atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
  if ((turn & (turn - 1)) != 0 && !atomic_load_explicit(&script.delayed, memory_order_relaxed))
    return;
  if (turn == 0) script.word = rank_text();
  python_script_schedule(&script);
}
