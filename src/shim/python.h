/* Python: the interpreter of this process, if there is one, used through its C API found with
 * dlsym: no headers, nothing linked, CPython 3.8 and later. inside.c (of the shim) and
 * host/watcher.c run scripts with it.
 *
 * A hook never takes the interpreter's lock: PyTorch holds its own locks while it calls the driver,
 * and other threads wait for those with the interpreter's lock held. Scripts run as a pending call
 * on the main thread, or on our own thread that holds no lock. STOWAGE_PYTHON=off disables all of
 * it.
 *
 * Guarantees: does nothing in a process without CPython or while it starts or ends, prints nothing,
 * and lets no exception escape except the user's own interrupt. */
#ifndef SHIM_PYTHON_H
#define SHIM_PYTHON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns whether an interpreter exists, has started and is not ending. Cheap after the first
 * call. */
bool python_here(void);
/* Returns its version, 311 for 3.11; 0 if there is none. */
int python_version(void);
/* Releases the interpreter's lock for a call that may wait, for the device or another thread; the
 * result goes to python_enter. Call it with the lock held. */
void *python_leave(void);
void python_enter(void *outside);
/* Returns a symbol of the interpreter's C API; NULL if there is none. */
void *python_symbol(const char *name);

/* ---- functions that a script may call ---- */

typedef struct python_object python_object;
typedef python_object *(*python_function)(python_object *self, python_object *arguments);
typedef struct python_method { /* PyMethodDef, which is the same in every version */
  const char *name;
  python_function function;
  int flags;
  const char *help;
} python_method;
#define PYTHON_METHOD(name, function)                                                              \
  { name, function, 1 /* METH_VARARGS */, NULL }

/* PyArg_ParseTuple and Py_BuildValue; python_none is None. */
extern int (*python_parse)(python_object *arguments, const char *format, ...);
extern python_object *(*python_build)(const char *format, ...);
static inline python_object *python_none(void) {
  return python_build("");
}
/* shim_log(text): writes a line to the shim's log. */
python_object *python_log(python_object *self, python_object *arguments);

/* ---- scripts ---- */

/* Where compiled scripts are kept (host/report_code.h). Both functions may set a Python exception.
 */
typedef struct python_store {
  /* Returns the compiled form of `text` (a new reference), or NULL. */
  python_object *(*read)(int version, const char *text);
  void (*keep)(int version, const char *text, python_object *code);
} python_store;

typedef struct python_script {
  const char *file;  /* the file name in tracebacks */
  const char *text;  /* executed once, in its own namespace that exists as long as the process */
  const char *entry; /* one of its functions, called without arguments; if it returns True it is
                      * never called again */
  python_method *methods;       /* passed as globals; terminated by an entry without a name */
  const char *word_name, *word; /* the name and value of one more text */
  const python_store *store;    /* NULL: compiled in every process */
  _Atomic int state;            /* 0: idle, 1: scheduled or running, 2: never again */
  python_object *names;         /* guarded by the interpreter's lock */
  _Atomic bool delayed;         /* scheduled while the thread was importing: did not run */
} python_script;

/* Returns whether it will never be called again. */
static inline bool python_script_done(const python_script *s) {
  return atomic_load_explicit(&s->state, memory_order_relaxed) == 2;
}
/* Makes the main thread call the script soon. Any thread may call this, with or without the lock;
 * does nothing while it is scheduled. */
void python_script_schedule(python_script *s);
/* Takes the interpreter's lock and calls the script, on our own thread that holds no lock. */
void python_script_run(python_script *s);
/* The same, while the main thread stands still and others wait longer for the lock, at most a
 * second or so: what the script refers to would otherwise live on when the program lets go of it.
 */
void python_script_run_alone(python_script *s);
/* Ends that wait: before the script releases the lock, and in a child of fork. */
void python_share(void);
/* The same as python_script_run after a run that is in progress has ended, if that takes at most
 * `most_ms`; the caller holds the interpreter's lock. */
void python_script_run_next(python_script *s, unsigned most_ms);
/* Waits until the script no longer runs in another thread, at most `most_ms`, and lets none run it
 * again. The caller holds the interpreter's lock. A thread that is in the interpreter when it ends
 * is ended too, and a library may not survive that: a destructor of C++ ends the process. */
void python_script_end(python_script *s, unsigned most_ms);

#endif
