/* Python: finding the interpreter, and running scripts in it. */
#include "shim/python.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/variables.h"
#include "shim/shim.h"

enum { FILE_INPUT = 257 }; /* Py_file_input */

int (*python_parse)(python_object *arguments, const char *format, ...);
python_object *(*python_build)(const char *format, ...);

python_object *python_log(python_object *self, python_object *arguments) {
  const char *text;
  (void)self;
  if (!python_parse(arguments, "s", &text)) return NULL;
  shim_log("inside: %s", text);
  return python_none();
}

static struct python_api {
  int (*is_initialized)(void);
  int (*is_finalizing)(void); /* may be missing */
  const char *(*version)(void);
  int (*add_pending)(int (*call)(void *), void *user);
  python_object *(*dict_new)(void);
  int (*dict_set)(python_object *, const char *, python_object *);
  python_object *(*dict_get)(python_object *, const char *); /* borrowed */
  python_object *(*builtins)(void);                          /* borrowed */
  python_object *(*function_new)(python_method *, python_object *, python_object *);
  python_object *(*compile)(const char *, const char *, int);
  python_object *(*evaluate)(python_object *, python_object *, python_object *);
  python_object *(*call)(python_object *, python_object *);
  int (*is_true)(python_object *);
  int (*lock_acquire)(void); /* PyGILState_Ensure; its result goes to PyGILState_Release */
  void (*lock_release)(int);
  void (*release)(python_object *);
  python_object *(*frame)(void); /* borrowed */
  python_object *(*attribute)(python_object *, const char *);
  const char *(*utf8)(python_object *);
  int (*error_matches)(python_object *);
  python_object *(*error)(void); /* borrowed */
  void (*error_clear)(void);
  python_object **interrupt;       /* PyExc_KeyboardInterrupt */
  unsigned long (*interval)(void); /* these two may be missing */
  void (*set_interval)(unsigned long);
  __typeof__(python_parse) parse;
  __typeof__(python_build) build;
} api; /* set before `state` is FOUND, as the two below */

enum { UNKNOWN = 0, NONE = 1, FOUND = 2, KEEPING = 3 };
static _Atomic int state;
static int version;

/* ---- finding it ---- */

void *python_symbol(const char *name) {
  return dlsym(RTLD_DEFAULT, name);
}

static bool find(void *to, const char *name) {
  void *symbol = python_symbol(name);
  memcpy(to, &symbol, sizeof symbol);
  return symbol != NULL;
}

static bool find_all(struct python_api *a) {
  if (!find(&a->is_finalizing, "Py_IsFinalizing")) find(&a->is_finalizing, "_Py_IsFinalizing");
  (void)find(&a->interval, "_PyEval_GetSwitchInterval");
  (void)find(&a->set_interval, "_PyEval_SetSwitchInterval");
  return find(&a->version, "Py_GetVersion") && find(&a->add_pending, "Py_AddPendingCall") &&
         find(&a->dict_new, "PyDict_New") && find(&a->dict_set, "PyDict_SetItemString") &&
         find(&a->dict_get, "PyDict_GetItemString") && find(&a->builtins, "PyEval_GetBuiltins") &&
         find(&a->function_new, "PyCFunction_NewEx") && find(&a->compile, "Py_CompileString") &&
         find(&a->evaluate, "PyEval_EvalCode") && find(&a->call, "PyObject_CallObject") &&
         find(&a->is_true, "PyObject_IsTrue") && find(&a->parse, "PyArg_ParseTuple") &&
         find(&a->build, "Py_BuildValue") && find(&a->release, "Py_DecRef") &&
         find(&a->frame, "PyEval_GetFrame") && find(&a->attribute, "PyObject_GetAttrString") &&
         find(&a->utf8, "PyUnicode_AsUTF8") && find(&a->error_matches, "PyErr_ExceptionMatches") &&
         find(&a->error, "PyErr_Occurred") && find(&a->error_clear, "PyErr_Clear") &&
         find(&a->lock_acquire, "PyGILState_Ensure") &&
         find(&a->lock_release, "PyGILState_Release") &&
         find(&a->interrupt, "PyExc_KeyboardInterrupt");
}

/* Looks up the functions. No thread waits for another one here, because that one may wait for the
 * loader's lock (load.c): threads that arrive at the same time find the same functions, and one of
 * them stores them. */
static void look(void) {
  struct python_api a = {0};
  const char *wanted = secure_getenv(ENV_PYTHON);
  int found = NONE, major = 0, minor = 0, unknown = UNKNOWN;
  if ((wanted == NULL || strcmp(wanted, "off") != 0) &&
      find(&a.is_initialized, "Py_IsInitialized") && find_all(&a) &&
      /* NOLINTNEXTLINE(cert-err34-c): Python's own version */
      sscanf(a.version(), "%d.%d", &major, &minor) == 2 && major * 100 + minor >= 308)
    found = FOUND;
  if (!atomic_compare_exchange_strong(&state, &unknown, KEEPING)) return;
  api = a;
  python_parse = a.parse;
  python_build = a.build;
  version = major * 100 + minor;
  atomic_store_explicit(&state, found, memory_order_release);
  shim_log("python: %d", found == FOUND ? version : 0);
}

bool python_here(void) {
  int now = atomic_load_explicit(&state, memory_order_acquire);
  if (now == UNKNOWN) {
    look();
    now = atomic_load_explicit(&state, memory_order_acquire);
  }
  return now == FOUND && api.is_initialized() &&
         (api.is_finalizing == NULL || !api.is_finalizing());
}

int python_version(void) {
  return python_here() ? version : 0;
}

static void *(*_Atomic save_thread)(void);
static void (*_Atomic restore_thread)(void *);

void *python_leave(void) {
  if (restore_thread == NULL) {
    save_thread = (void *(*)(void))(uintptr_t)python_symbol("PyEval_SaveThread");
    restore_thread = (void (*)(void *))(uintptr_t)python_symbol("PyEval_RestoreThread");
  }
  return save_thread != NULL && restore_thread != NULL ? save_thread() : NULL;
}

void python_enter(void *outside) {
  if (outside != NULL) restore_thread(outside);
}

/* ---- scripts ---- */

static bool set_and_release(python_object *dict, const char *name, python_object *value) {
  bool set = value != NULL && api.dict_set(dict, name, value) == 0;
  if (value != NULL) api.release(value);
  return set;
}

/* Returns the compiled script: from its store, or compiled and then kept there. */
static python_object *code_of(const python_script *s) {
  python_object *code = s->store != NULL ? s->store->read(version, s->text) : NULL;
  if (code != NULL) return code;
  api.error_clear();
  code = api.compile(s->text, s->file, FILE_INPUT);
  if (code == NULL || s->store == NULL) return code;
  shim_log("python: compiled %s", s->file);
  s->store->keep(version, s->text, code);
  api.error_clear();
  return code;
}

static bool load(python_script *s) {
  python_object *dict = api.dict_new();
  if (dict == NULL) return false;
  bool good = api.dict_set(dict, "__builtins__", api.builtins()) == 0 &&
              set_and_release(dict, "__name__", python_build("s", "stowage_inside")) &&
              set_and_release(dict, s->word_name, python_build("s", s->word));
  for (python_method *m = s->methods; good && m->name != NULL; m++)
    good = set_and_release(dict, m->name, api.function_new(m, NULL, NULL));
  python_object *code = good ? code_of(s) : NULL;
  python_object *result = code != NULL ? api.evaluate(code, dict, dict) : NULL;
  if (code != NULL) api.release(code);
  if (result == NULL) {
    api.release(dict);
    return false;
  }
  api.release(result);
  s->names = dict;
  return true;
}

/* Calls the script. Returns true if it need not be called again. */
static bool call(python_script *s) {
  ASSERT(s->entry != NULL);
  if (s->names == NULL && !load(s)) return true;
  python_object *function = api.dict_get(s->names, s->entry);
  python_object *result = function != NULL ? api.call(function, NULL) : NULL;
  if (result == NULL) return true;
  bool done = api.is_true(result) == 1;
  api.release(result);
  return done;
}

/* Runs the script with the interpreter's lock. Returns -1 if the user's own interrupt arrived,
 * which is passed on. */
static int run(void *user) {
  python_script *s = user;
  bool done = call(s);
  int code = 0;
  if (api.error() != NULL) {
    shim_log("python: %s failed", s->file);
    if (api.error_matches(*api.interrupt))
      code = -1;
    else
      api.error_clear();
  }
  atomic_store(&s->state, done ? 2 : 0);
  return code;
}

/* Returns whether the attribute of a code object is a text that begins with `start`. */
static bool begins(python_object *code, const char *name, const char *start) {
  python_object *text = code != NULL ? api.attribute(code, name) : NULL;
  const char *bytes = text != NULL ? api.utf8(text) : NULL;
  bool same = bytes != NULL && strncmp(bytes, start, strlen(start)) == 0;
  if (text != NULL) api.release(text);
  return same;
}

/* Returns whether the calling thread is inside Python's import functions, and not in the code of
 * the module that is imported. Up to Python 3.11 a second import at that moment fails the first
 * one: KeyError in _ModuleLock.acquire. */
static bool is_importing(void) {
  python_object *own = NULL, *frame = api.frame();
  bool importing = false, module = false;
  while (frame != NULL && !importing && !module) {
    python_object *code = api.attribute(frame, "f_code");
    importing = begins(code, "co_filename", "<frozen importlib");
    module = begins(code, "co_name", "<module>");
    python_object *back = code != NULL ? api.attribute(frame, "f_back") : NULL;
    if (code != NULL) api.release(code);
    if (own != NULL) api.release(own);
    own = frame = back; /* None, the last, has no code */
  }
  if (own != NULL) api.release(own);
  api.error_clear();
  return importing;
}

/* Runs the script in a thread of the program, between two instructions. */
static int run_between(void *user) {
  python_script *s = user;
  bool importing = is_importing();
  atomic_store(&s->delayed, importing);
  if (!importing) return run(s);
  atomic_store(&s->state, 0); /* the caller schedules it again */
  return 0;
}

static bool begin(python_script *s) {
  int idle = 0;
  return atomic_load_explicit(&s->state, memory_order_relaxed) == 0 && python_here() &&
         atomic_compare_exchange_strong(&s->state, &idle, 1);
}

void python_script_schedule(python_script *s) {
  ASSERT(s->text != NULL && s->entry != NULL);
  /* The queue is full: try again later. */
  if (begin(s) && api.add_pending(run_between, s) != 0) atomic_store(&s->state, 0);
}

void python_script_run(python_script *s) {
  if (!begin(s)) return;
  int before = api.lock_acquire();
  if (run(s) != 0) api.error_clear(); /* nobody interrupts our own thread */
  api.lock_release(before);
}

/* ---- alone ---- */

/* While a script runs, the main thread waits in pause_between, without the interpreter's lock and
 * between two instructions, so that no code of the program runs in it. Other threads wait longer
 * than usual before they ask for the lock. */
#define ALONE_US  1000000u /* … as long as this: it counts from the beginning of a wait */
#define ARRIVE_US 10000u   /* for a main thread that is in a long call */
#define LOOK_US   200u
static _Atomic bool alone, paused, queued; /* queued: a call of pause_between is to come */
static _Atomic unsigned long shared_us;    /* the program's own interval; 0: not changed */

static int pause_between(void *unused) {
  (void)unused;
  atomic_store(&queued, false);
  if (!atomic_load(&alone)) return 0;
  void *outside = python_leave();
  atomic_store(&paused, true);
  for (unsigned us = 0; atomic_load(&alone) && us < ALONE_US; us += LOOK_US) usleep(LOOK_US);
  python_enter(outside);
  return 0;
}

static void keep_lock(void) {
  if (api.interval == NULL || api.set_interval == NULL) return;
  unsigned long now = api.interval();
  if (now == 0 || now >= ALONE_US) return;
  atomic_store(&shared_us, now);
  api.set_interval(ALONE_US);
}

void python_share(void) {
  atomic_store(&alone, false);
  unsigned long before = atomic_exchange(&shared_us, 0);
  if (before != 0 && api.interval() == ALONE_US) api.set_interval(before);
}

void python_script_run_alone(python_script *s) {
  if (!begin(s)) return;
  atomic_store(&paused, false);
  atomic_store(&alone, true);
  /* The queue is short and for all: a main thread that never comes back gets one call. */
  bool asked = atomic_exchange(&queued, true) || api.add_pending(pause_between, NULL) == 0;
  if (!asked) atomic_store(&queued, false);
  for (unsigned us = 0; asked && !atomic_load(&paused) && us < ARRIVE_US; us += LOOK_US)
    usleep(LOOK_US);
  int before = api.lock_acquire();
  keep_lock();
  if (run(s) != 0) api.error_clear(); /* nobody interrupts our own thread */
  python_share();
  api.lock_release(before);
}

/* Waits until the script does not run, with the interpreter's lock free meanwhile. Returns false if
 * it runs for longer. */
static bool wait_for(python_script *s, unsigned most_ms) {
  for (unsigned waited = 0; atomic_load(&s->state) == 1; waited++) {
    if (waited > most_ms) {
      shim_log("python: %s does not end", s->file);
      return false;
    }
    void *outside = python_leave();
    usleep(1000);
    python_enter(outside);
  }
  return true;
}

void python_script_run_next(python_script *s, unsigned most_ms) {
  if (wait_for(s, most_ms)) python_script_run(s);
}

void python_script_end(python_script *s, unsigned most_ms) {
  int idle;
  do {
    idle = 0;
    if (atomic_compare_exchange_strong(&s->state, &idle, 2) || idle == 2) return;
  } while (wait_for(s, most_ms));
}
