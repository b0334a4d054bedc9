/* Trim: the functions trim.py calls, and when it runs. */
#include "shim/trim.h"

#include <stdatomic.h>
#include <stdint.h>

#include "shim/page_step.h"
#include "shim/python.h"
#include "shim/resident.h"
#include "shim/retry.h"
#include "shim/shim.h"

/* trim.py, made at build time. */
static const char TEXT[] = {
#include <shim-trim.inc>
    , '\0'};

static python_object *step_ended(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  page_step_ended();
  return python_none();
}

static python_object *resident(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  return python_build("i", resident_anywhere() ? 1 : 0);
}

static python_object *trim_wanted(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  return python_build("i", page_trim_wanted() ? 1 : 0);
}

static python_object *home_wanted(python_object *self, python_object *arguments) {
  (void)self, (void)arguments;
  return python_build("i", page_home_wanted() ? 1 : 0);
}

static python_object *trimming(python_object *self, python_object *arguments) {
  int begins;
  (void)self;
  if (!python_parse(arguments, "i", &begins)) return NULL;
  page_trimming(begins != 0);
  return python_none();
}

static python_object *come_home(python_object *self, python_object *arguments) {
  int last;
  (void)self;
  if (!python_parse(arguments, "i", &last)) return NULL;
  /* Without the interpreter's lock: the device is waited for, and may wait for a thread of Python.
   */
  void *(*release_gil)(void) = (void *(*)(void))(uintptr_t)python_symbol("PyEval_SaveThread");
  void (*take)(void *) = (void (*)(void *))(uintptr_t)python_symbol("PyEval_RestoreThread");
  if (release_gil == NULL || take == NULL) return python_none();
  void *state = release_gil();
  page_come_home(last != 0);
  take(state);
  return python_none();
}

static python_object *private_pool(python_object *self, python_object *arguments) {
  int begins;
  (void)self;
  if (!python_parse(arguments, "i", &begins)) return NULL;
  spill_private_pool(begins != 0 ? 1 : -1);
  return python_none();
}

static python_method methods[] = {
    PYTHON_METHOD("shim_resident", resident),
    PYTHON_METHOD("shim_step_ended", step_ended),
    PYTHON_METHOD("shim_trim_wanted", trim_wanted),
    PYTHON_METHOD("shim_home_wanted", home_wanted),
    PYTHON_METHOD("shim_trimming", trimming),
    PYTHON_METHOD("shim_come_home", come_home),
    PYTHON_METHOD("shim_private_pool", private_pool),
    PYTHON_METHOD("shim_log", python_log),
    {NULL, NULL, 0, NULL},
};

static python_script script = {.file = "<stowage trim.py>",
                               .text = TEXT,
                               .entry = "arm",
                               .methods = methods,
                               .word_name = "shim_word",
                               .word = ""};
static _Atomic uint32_t asked;

void trim_schedule(void) {
  /* The first time, and then ever more seldom: a framework may be imported later. */
  uint32_t turn = atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
  if ((turn & (turn - 1)) == 0) python_script_schedule(&script);
}
