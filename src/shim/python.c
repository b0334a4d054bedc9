/* Python: finding the interpreter, and running inside.py on its main thread. */
#include "shim/python.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/python_stack.h"
#include "shim/record.h"
#include "shim/shim.h"

/* inside.py, made at build time. */
static const char INSIDE[] = {
#include <shim-inside.inc>
    , '\0'};

/* Of CPython's stable interface: the same in every version since 3.2. */
typedef struct py_object py_object;
typedef py_object *(*py_function)(py_object *self, py_object *arguments);
typedef struct py_method {
  const char *name;
  py_function function;
  int flags;
  const char *help;
} py_method;
enum { PY_FILE_INPUT = 257, PY_VARIABLE_ARGUMENTS = 1 };

static struct {
  int (*is_initialized)(void);
  int (*is_finalizing)(void); /* may be missing */
  const char *(*version)(void);
  int (*add_pending)(int (*call)(void *), void *user);
  void *(*thread_of_lock)(void); /* the thread that runs Python now, in this thread's eyes */
  void *(*thread_here)(void);    /* this thread's own */
  py_object *(*dict_new)(void);
  int (*dict_set)(py_object *, const char *, py_object *);
  py_object *(*dict_get)(py_object *, const char *); /* borrowed */
  py_object *(*builtins)(void);                      /* borrowed */
  py_object *(*function_new)(py_method *, py_object *, py_object *);
  py_object *(*compile)(const char *, const char *, int);
  py_object *(*evaluate)(py_object *, py_object *, py_object *);
  py_object *(*call)(py_object *, py_object *);
  int (*is_true)(py_object *);
  int (*parse)(py_object *, const char *, ...);
  py_object *(*build)(const char *, ...);
  void (*release)(py_object *);
  int (*error_matches)(py_object *);
  py_object *(*error)(void); /* borrowed */
  void (*error_clear)(void);
  py_object **interrupt; /* PyExc_KeyboardInterrupt */
} api;

enum { UNKNOWN = 0, NONE = 1, FOUND = 2 };
static _Atomic int state;
static int version;              /* set before `state` is FOUND */
static _Atomic int arming;       /* 1: a call is on its way or running, 2: nothing is left to do */
static py_object *names;         /* inside.py's own; with the interpreter's lock */
static _Atomic uint32_t asked;   /* calls of python_schedule */
static void (*step_ended)(void); /* set once, early */

/* ---- finding it ---- */

void *python_symbol(const char *name) {
  return dlsym(RTLD_DEFAULT, name);
}

static bool find(void *to, const char *name) {
  void *symbol = python_symbol(name);
  memcpy(to, &symbol, sizeof symbol);
  return symbol != NULL;
}

static bool find_all(void) {
  if (!find(&api.is_finalizing, "Py_IsFinalizing")) find(&api.is_finalizing, "_Py_IsFinalizing");
  return find(&api.version, "Py_GetVersion") && find(&api.add_pending, "Py_AddPendingCall") &&
         (find(&api.thread_of_lock, "PyThreadState_GetUnchecked") ||
          find(&api.thread_of_lock, "_PyThreadState_UncheckedGet")) &&
         find(&api.thread_here, "PyGILState_GetThisThreadState") &&
         find(&api.dict_new, "PyDict_New") && find(&api.dict_set, "PyDict_SetItemString") &&
         find(&api.dict_get, "PyDict_GetItemString") && find(&api.builtins, "PyEval_GetBuiltins") &&
         find(&api.function_new, "PyCFunction_NewEx") && find(&api.compile, "Py_CompileString") &&
         find(&api.evaluate, "PyEval_EvalCode") && find(&api.call, "PyObject_CallObject") &&
         find(&api.is_true, "PyObject_IsTrue") && find(&api.parse, "PyArg_ParseTuple") &&
         find(&api.build, "Py_BuildValue") && find(&api.release, "Py_DecRef") &&
         find(&api.error_matches, "PyErr_ExceptionMatches") && find(&api.error, "PyErr_Occurred") &&
         find(&api.error_clear, "PyErr_Clear") && find(&api.interrupt, "PyExc_KeyboardInterrupt");
}

static void look(void) {
  const char *wanted = secure_getenv("STOWAGE_PYTHON");
  int found = NONE;
  if ((wanted == NULL || strcmp(wanted, "off") != 0) &&
      find(&api.is_initialized, "Py_IsInitialized") && find_all()) {
    int major = 0, minor = 0;
    if (sscanf(api.version(), "%d.%d", &major, &minor) == 2) version = major * 100 + minor;
    if (version >= 308) found = FOUND;
  }
  shim_log("python: %d", found == FOUND ? version : 0);
  atomic_store_explicit(&state, found, memory_order_release);
}

bool python_here(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  int now = atomic_load_explicit(&state, memory_order_acquire);
  if (now == UNKNOWN) {
    pthread_once(&once, look);
    now = atomic_load_explicit(&state, memory_order_acquire);
  }
  return now == FOUND && api.is_initialized() &&
         (api.is_finalizing == NULL || !api.is_finalizing());
}

int python_version(void) {
  return python_here() ? version : 0;
}

/* PyGILState_Check answers yes to everybody once there is a second interpreter; comparing the two
 * errs on the other side, for threads of such interpreters. */
bool python_held(void) {
  if (!python_here()) return false;
  const void *running = api.thread_of_lock();
  return running != NULL && running == api.thread_here();
}

/* ---- what inside.py calls ---- */

void python_on_step(void (*ended)(void)) {
  step_ended = ended;
}

static py_object *none(void) {
  return api.build("");
}

static py_object *call_mark(py_object *self, py_object *arguments) {
  const char *name;
  int begins;
  (void)self;
  if (!api.parse(arguments, "si", &name, &begins)) return NULL;
  record_mark(name, begins != 0);
  return none();
}

static py_object *call_fact(py_object *self, py_object *arguments) {
  const char *key, *value;
  (void)self;
  if (!api.parse(arguments, "ss", &key, &value)) return NULL;
  record_fact(key, value);
  return none();
}

static py_object *call_check_stacks(py_object *self, py_object *arguments) {
  (void)self, (void)arguments;
  return api.build("i", python_stack_check() ? 1 : 0);
}

static py_object *call_step_ended(py_object *self, py_object *arguments) {
  (void)self, (void)arguments;
  if (step_ended != NULL) step_ended();
  return none();
}

static py_object *call_log(py_object *self, py_object *arguments) {
  const char *text;
  (void)self;
  if (!api.parse(arguments, "s", &text)) return NULL;
  shim_log("inside: %s", text);
  return none();
}

static py_method methods[] = {
    {"shim_mark", call_mark, PY_VARIABLE_ARGUMENTS, NULL},
    {"shim_fact", call_fact, PY_VARIABLE_ARGUMENTS, NULL},
    {"shim_check_stacks", call_check_stacks, PY_VARIABLE_ARGUMENTS, NULL},
    {"shim_step_ended", call_step_ended, PY_VARIABLE_ARGUMENTS, NULL},
    {"shim_log", call_log, PY_VARIABLE_ARGUMENTS, NULL},
};

/* ---- running it ---- */

static bool set_and_release(py_object *dict, const char *name, py_object *value) {
  bool set = value != NULL && api.dict_set(dict, name, value) == 0;
  if (value != NULL) api.release(value);
  return set;
}

/* Executes inside.py in a namespace of its own, which lives as long as the process. */
static bool load(void) {
  py_object *dict = api.dict_new();
  if (dict == NULL) return false;
  bool good = api.dict_set(dict, "__builtins__", api.builtins()) == 0 &&
              set_and_release(dict, "__name__", api.build("s", "stowage_inside"));
  good = good && set_and_release(dict, "shim_rank", api.build("s", record_rank()));
  for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
    good =
        good && set_and_release(dict, methods[i].name, api.function_new(&methods[i], NULL, NULL));
  py_object *code = good ? api.compile(INSIDE, "<stowage inside.py>", PY_FILE_INPUT) : NULL;
  py_object *result = code != NULL ? api.evaluate(code, dict, dict) : NULL;
  if (code != NULL) api.release(code);
  if (result == NULL) {
    api.release(dict);
    return false;
  }
  api.release(result);
  names = dict;
  return true;
}

/* True: there is nothing more to do. */
static bool arm(void) {
  if (names == NULL && !load()) return true;
  py_object *function = api.dict_get(names, "arm");
  py_object *result = function != NULL ? api.call(function, NULL) : NULL;
  if (result == NULL) return true;
  bool done = api.is_true(result) == 1;
  api.release(result);
  return done;
}

/* On the main thread, with the interpreter's lock. */
static int pending(void *user) {
  (void)user;
  bool done = arm();
  int code = 0;
  if (api.error() != NULL) {
    shim_log("python: inside.py failed");
    if (api.error_matches(*api.interrupt))
      code = -1; /* the user's own, which came while this ran: it goes on up */
    else
      api.error_clear();
  }
  atomic_store(&arming, done ? 2 : 0);
  return code;
}

void python_schedule(void) {
  int free_state = 0;
  /* The first call, and then ever more seldom. */
  uint32_t turn = atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
  if ((turn & (turn - 1)) != 0 || atomic_load_explicit(&arming, memory_order_relaxed) != 0) return;
  if (!python_here() || !atomic_compare_exchange_strong(&arming, &free_state, 1)) return;
  if (api.add_pending(pending, NULL) != 0) atomic_store(&arming, 0); /* its queue is full */
}
