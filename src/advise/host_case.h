/* Host case: the state while the causes of one host record are found; internal to the host_*.c
 * files.
 *
 * Each cause is one function that reads the record and adds the cause, with its fixes, if it
 * applies.
 */
#ifndef ADVISE_HOST_CASE_H
#define ADVISE_HOST_CASE_H

#include "advise/explanation.h"
#include "run/host_record.h"

/* Fractions of the memory held from which on something can be the cause. */
#define MOST          0.5
#define MUCH          0.3
#define LITTLE        0.1
#define SMALL_ELEMENT ((uint64_t)4 << 10) /* a plain Python object, not an array or a page */

typedef struct host_case {
  const host_record *r;
  explanation *x;
  const tree_process *main; /* the one that holds most */
  uint64_t main_bytes;
  uint64_t reported_bytes; /* what it held when it reported its objects */
  bool stale;      /* it has more than doubled since: most of it is missing from the report */
  bool pinned;     /* shared memory is pinned memory of the driver */
  bool joined;     /* a text or bytes is made again with each part that is joined to it */
  char place[300]; /* the program's own line, "" if it is not known */
  double sure[FIXES_MAX]; /* confidence of the cause that each fix belongs to */
  cause_id of[FIXES_MAX]; /* … and which cause it is */
} host_case;

/* ---- what an object is ---- */
bool host_is_container(const host_object *o);
bool host_is_array(const host_object *o);
/* An object of a class, with all it refers to. */
bool host_is_structure(const host_object *o);
/* A dict whose keys take more than its values. */
bool host_is_of_keys(const host_object *o);
/* Containers of one type in each other, four levels deep or more: a trie of dicts. */
bool host_is_nested(const host_object *o);
/* A dict of lists, sets or dicts, which grows by elements of those. */
bool host_is_grouped(const host_object *o);
/* A value that a line is making ("what line 7 makes"): no variable refers to it yet. */
bool host_is_unnamed(const host_object *o);
/* Writes its name; for a value without a name, the name that its line assigns it to. */
void host_name(char *out, size_t size, const host_object *o);

cause *host_add(host_case *c, cause_id id, double confidence);
/* For the cause added last. Returns NULL if the list is full. */
fix *host_add_fix(host_case *c, uint64_t saves_bytes, const char *change, const char *cost);
/* Writes "rows: a list of 3000000 dicts, 410.2 MiB, grows at line 7 of objects.py". */
void host_describe(char *out, size_t size, const host_object *o);
/* Writes what to change so that such an object takes less. */
void host_use_less(const host_record *r, char *out, size_t size, const host_object *o);
/* Adds it as evidence. */
void host_say_object(cause *to, const host_object *o);
/* Writes "line 7 of objects.py"; "" if the line is not known. */
void host_place(char *out, size_t size, const host_object *o);
/* Returns the bytes of all objects with a name. */
uint64_t host_named_bytes(const host_record *r);
/* Returns about what the modules that the process has imported take. */
uint64_t host_imported_bytes(const host_record *r);
/* Returns whether the arrays that a line names are known, and none has numbers of 64 bits: float32
 * would save nothing. */
bool host_is_narrow(const host_record *r, const char *source);
/* Returns whether it is a table: it has columns, and no operation in place. */
bool host_is_table(const host_object *o);
/* Returns the bytes of the values that the program's line is making: those without a name. */
uint64_t host_made_bytes(const host_case *c);
/* Makes the headline "Line 6 of a.py makes merged, 304.0 MiB so far". */
void host_say_making(host_case *c, cause *to, uint64_t bytes);

void host_find_made(host_case *c); /* host_way.c */
void host_find_text(host_case *c); /* host_growth.c */
void host_find_errors(host_case *c);
void host_find_objects(host_case *c);
void host_find_leak(host_case *c);
void host_find_tee(host_case *c);
void host_find_cycles(host_case *c);  /* host_cycles.c */
void host_find_workers(host_case *c); /* host_workers.c */
void host_find_copies(host_case *c);  /* host_data.c */
void host_find_dataset(host_case *c);
void host_find_graph(host_case *c); /* host_tensors.c */
void host_find_pinned(host_case *c);
void host_find_shared(host_case *c); /* host_native.c */
void host_find_native(host_case *c);

/* Returns whether the process uses CUDA, PyTorch, JAX, TensorFlow or CuPy, whose C code holds
 * memory (host_native.c). */
bool host_has_framework(const host_record *r);

#endif
