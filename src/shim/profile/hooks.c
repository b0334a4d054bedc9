/* Profile hooks: malloc and related functions, and CPython's allocator of small objects.
 *
 * libstowage-profile.so is preloaded by `stowage run --profile`. Every request goes unchanged to
 * the next allocator (RTLD_NEXT), and blocks get no header, so code that bypasses us may free them.
 * CPython serves requests of up to 512 bytes from its own arenas, which malloc never sees; hooks
 * set with PyMem_SetAllocator count them. Larger ones reach malloc. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/variables.h"
#include "shim/profile/patch.h"
#include "shim/profile/sampler.h"
#include "shim/python.h"

#define HOOK __attribute__((visibility("default")))

/* Called by python/stowage/_profile.py, with the interpreter's lock. Samples into a file of
 * `folder` until stowage_profile_stop; 0: this process is profiled already. */
int stowage_profile_start(const char *folder);
void stowage_profile_loaded(void); /* libraries were loaded since: counts their requests too */
void stowage_profile_stop(void);

static struct {
  void *(*malloc)(size_t);
  void *(*calloc)(size_t, size_t);
  void *(*realloc)(void *, size_t);
  void (*free)(void *);
  int (*posix_memalign)(void **, size_t, size_t);
  void *(*aligned_alloc)(size_t, size_t);
  void *(*memalign)(size_t, size_t);
} next;

/* ---- before the next allocator is known: dlsym itself may ask for memory ---- */

static _Alignas(16) char early[64 << 10];
static size_t early_used; /* one thread: the loader has started no other */

static bool is_early(const void *block) {
  return (const char *)block >= early && (const char *)block < early + sizeof early;
}

static void *early_take(size_t bytes) {
  size_t whole = (bytes + 31) & ~(size_t)15; /* its size before it */
  if (bytes > sizeof early || whole > sizeof early - early_used) return NULL;
  char *block = early + early_used + 16;
  memcpy(block - 16, &bytes, sizeof bytes);
  early_used += whole;
  return block;
}

static bool find(void *to, const char *name) {
  void *symbol = dlsym(RTLD_NEXT, name);
  memcpy(to, &symbol, sizeof symbol);
  return symbol != NULL;
}

static bool finding;

/* Finds the next allocator, once, at the first request of the process. */
static __attribute__((noinline)) bool find_next(void) {
  if (finding) return false;
  finding = true;
  find(&next.calloc, "calloc");
  find(&next.realloc, "realloc");
  find(&next.free, "free");
  find(&next.posix_memalign, "posix_memalign");
  find(&next.aligned_alloc, "aligned_alloc");
  find(&next.memalign, "memalign");
  bool found = find(&next.malloc, "malloc");
  finding = false;
  return found;
}

static inline bool known(void) {
  return __builtin_expect(next.malloc != NULL, 1) || find_next();
}

/* ---- malloc and its kin ---- */

/* The rare part of every hook, out of line, so that requests that are not sampled need no stack
 * frame. */
static __attribute__((noinline, cold)) void *note(void *block, size_t bytes) {
  int saved = errno;
  sampler_note(block, bytes);
  errno = saved;
  return block;
}

static __attribute__((noinline, cold)) void forget(void *block) {
  sampler_block kept;
  int saved = errno;
  sampler_forget(block, &kept);
  errno = saved;
}

/* The hooks have the names of the allocator's functions for the linker only: here those names mean
 * the functions that the C library declares. */
HOOK void *hook_malloc(size_t bytes) __asm__("malloc");
HOOK void *hook_calloc(size_t count, size_t bytes) __asm__("calloc");
HOOK void *hook_realloc(void *block, size_t bytes) __asm__("realloc");
HOOK void *hook_reallocarray(void *block, size_t count, size_t bytes) __asm__("reallocarray");
HOOK void hook_free(void *block) __asm__("free");
HOOK int hook_posix_memalign(void **out, size_t alignment, size_t bytes) __asm__("posix_memalign");
HOOK void *hook_aligned_alloc(size_t alignment, size_t bytes) __asm__("aligned_alloc");
HOOK void *hook_memalign(size_t alignment, size_t bytes) __asm__("memalign");

/* Counts a request before it is made, so that one that is not due is forwarded directly. */
#define COUNTED(bytes, request)                                                                    \
  (__builtin_expect(sampler_due(bytes), 0) ? note(request, bytes) : (request))

void *hook_malloc(size_t bytes) {
  if (!known()) return early_take(bytes);
  return COUNTED(bytes, next.malloc(bytes));
}

void *hook_calloc(size_t count, size_t bytes) {
  size_t all;
  if (__builtin_mul_overflow(count, bytes, &all)) {
    errno = ENOMEM;
    return NULL;
  }
  if (!known()) return early_take(all); /* still zero: nothing there is used twice */
  return COUNTED(all, next.calloc(count, bytes));
}

void hook_free(void *block) {
  if (block == NULL || is_early(block)) return;
  if (__builtin_expect(sampler_may_hold(block), 0)) forget(block);
  if (known()) next.free(block);
}

void *hook_realloc(void *block, size_t bytes) {
  sampler_block kept;
  if (block == NULL) return hook_malloc(bytes);
  if (is_early(block)) {
    size_t before;
    memcpy(&before, (char *)block - 16, sizeof before);
    void *moved = hook_malloc(bytes);
    if (moved != NULL) memcpy(moved, block, before < bytes ? before : bytes);
    return moved;
  }
  if (!known()) return NULL;
  /* Forget it first: another thread may get the address at once, and be sampled there. */
  bool held = sampler_may_hold(block) && sampler_forget(block, &kept);
  void *moved = next.realloc(block, bytes);
  if (moved == NULL && held && bytes > 0) sampler_restore(&kept);
  return COUNTED(bytes, moved);
}

void *hook_reallocarray(void *block, size_t count, size_t bytes) {
  size_t all;
  if (!__builtin_mul_overflow(count, bytes, &all)) return hook_realloc(block, all);
  errno = ENOMEM;
  return NULL;
}

int hook_posix_memalign(void **out, size_t alignment, size_t bytes) {
  if (!known()) return ENOMEM;
  int code = next.posix_memalign(out, alignment, bytes);
  if (sampler_due(bytes)) note(code == 0 ? *out : NULL, bytes);
  return code;
}

void *hook_aligned_alloc(size_t alignment, size_t bytes) {
  return known() ? COUNTED(bytes, next.aligned_alloc(alignment, bytes)) : NULL;
}

void *hook_memalign(size_t alignment, size_t bytes) {
  return known() ? COUNTED(bytes, next.memalign(alignment, bytes)) : NULL;
}

/* ---- CPython's small objects ---- */

#define SMALL_MAX 512 /* SMALL_REQUEST_THRESHOLD of Objects/obmalloc.c, 3.8 to 3.13 */

typedef struct python_allocator { /* PyMemAllocatorEx */
  void *user;
  void *(*malloc)(void *user, size_t bytes);
  void *(*calloc)(void *user, size_t count, size_t bytes);
  void *(*realloc)(void *user, void *block, size_t bytes);
  void (*free)(void *user, void *block);
} python_allocator;

enum { DOMAIN_MEM = 1, DOMAIN_OBJ = 2 };
static python_allocator real[3];

static void *python_malloc(void *user, size_t bytes) {
  python_allocator *a = user;
  if (bytes > SMALL_MAX) return a->malloc(a->user, bytes);
  return COUNTED(bytes, a->malloc(a->user, bytes));
}

static void *python_calloc(void *user, size_t count, size_t bytes) {
  python_allocator *a = user;
  size_t all;
  if (__builtin_mul_overflow(count, bytes, &all) || all > SMALL_MAX)
    return a->calloc(a->user, count, bytes);
  return COUNTED(all, a->calloc(a->user, count, bytes));
}

static void *python_realloc(void *user, void *block, size_t bytes) {
  python_allocator *a = user;
  sampler_block kept;
  /* A block from malloc is forgotten here too, because pymalloc passes it to realloc. */
  bool held = block != NULL && sampler_may_hold(block) && sampler_forget(block, &kept);
  void *moved = a->realloc(a->user, block, bytes);
  if (moved == NULL && held) sampler_restore(&kept);
  return bytes <= SMALL_MAX ? COUNTED(bytes, moved) : moved;
}

static void python_free(void *user, void *block) {
  python_allocator *a = user;
  if (__builtin_expect(sampler_may_hold(block), 0)) forget(block);
  a->free(a->user, block);
}

/* Installs the hooks in Python. Allocators may be set before the interpreter starts, and afterwards
 * if the new ones forward everything. With PYTHONMALLOC=malloc every request reaches malloc
 * anyway. */
static void hooks_python(void) {
  const char *which = getenv("PYTHONMALLOC");
  void (*get)(int, python_allocator *) =
      (void (*)(int, python_allocator *))(uintptr_t)python_symbol("PyMem_GetAllocator");
  void (*set)(int, python_allocator *) =
      (void (*)(int, python_allocator *))(uintptr_t)python_symbol("PyMem_SetAllocator");
  if (get == NULL || set == NULL || real[DOMAIN_MEM].malloc != NULL) return;
  if (which != NULL && strncmp(which, "malloc", 6) == 0) return;
  for (int domain = DOMAIN_MEM; domain <= DOMAIN_OBJ; domain++) {
    python_allocator ours = {&real[domain], python_malloc, python_calloc, python_realloc,
                             python_free};
    get(domain, &real[domain]);
    set(domain, &ours);
  }
}

__attribute__((constructor)) static void begin(void) {
  if (secure_getenv(ENV_PROFILE) != NULL) hooks_python();
}

/* ---- a process that runs ---- */

static void *hooks_find(const char *name) {
  static const struct {
    const char *name;
    void *hook;
  } HOOKS[] = {{"malloc", hook_malloc},
               {"calloc", hook_calloc},
               {"realloc", hook_realloc},
               {"reallocarray", hook_reallocarray},
               {"free", hook_free},
               {"posix_memalign", hook_posix_memalign},
               {"aligned_alloc", hook_aligned_alloc},
               {"memalign", hook_memalign}};
  for (size_t i = 0; i < sizeof HOOKS / sizeof HOOKS[0]; i++)
    if (strcmp(HOOKS[i].name, name) == 0) return HOOKS[i].hook;
  return NULL;
}

HOOK int stowage_profile_start(const char *folder) {
  if (!known() || !sampler_start(folder)) return 0;
  hooks_python();
  patch_all(hooks_find);
  return 1;
}

HOOK void stowage_profile_loaded(void) {
  patch_all(hooks_find);
}

HOOK void stowage_profile_stop(void) {
  sampler_stop();
}
