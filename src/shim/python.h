/* Python: the interpreter of this process, where it has one, through its C interface found with
 * dlsym: no headers, nothing linked, CPython 3.8 and later. inside.c (of the shim) and
 * host/watcher.c run scripts by it.
 *
 * A hook never takes the interpreter's lock: PyTorch holds locks of its own while it calls the
 * driver, and other threads wait for those with the interpreter's lock held. Scripts run as a
 * pending call on the main thread, or on a thread of ours that holds nothing. STOWAGE_PYTHON=off
 * keeps all of it out.
 *
 * Guarantees: does nothing in a process without CPython or while it starts or ends, prints nothing,
 * and lets no exception out but the user's own interrupt. */
#ifndef SHIM_PYTHON_H
#define SHIM_PYTHON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* An interpreter is here, started, and not ending. Cheap after the first call. */
bool python_here(void);
/* Its version, 311 for 3.11; 0 where there is none. */
int python_version(void);
/* A symbol of the interpreter's C interface, NULL where it has none. */
void *python_symbol(const char *name);

/* ---- functions that a script may call ---- */

typedef struct python_object python_object;
typedef python_object *(*python_function)(python_object *self, python_object *arguments);
typedef struct python_method { /* PyMethodDef, the same in every version */
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
/* shim_log(text): a line in the log of the shim. */
python_object *python_log(python_object *self, python_object *arguments);

/* ---- scripts ---- */

typedef struct python_script {
  const char *file; /* as tracebacks name it */
  const char *text; /* executed once, in a namespace of its own that lives as long as the process */
  const char *entry; /* a function of it, called with no arguments; True: never call it again */
  python_method *methods;       /* given to it as globals; ended by one without a name */
  const char *word_name, *word; /* and one text */
  _Atomic int state;            /* 0 idle, 1 on its way or running, 2 never again */
  python_object *names;         /* with the interpreter's lock */
} python_script;

/* It will never be called again. */
static inline bool python_script_done(const python_script *s) {
  return atomic_load_explicit(&s->state, memory_order_relaxed) == 2;
}
/* Has the main thread call it soon. From any thread, with or without the lock; does nothing while
 * it is on its way. */
void python_script_schedule(python_script *s);
/* Takes the interpreter's lock and calls it: for a thread of ours that holds no lock. */
void python_script_run(python_script *s);

#endif
