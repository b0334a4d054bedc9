/* Sampler: distances, the table of sampled blocks, and the lines they belong to. */
#include "shim/profile/sampler.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/newfile.h"
#include "base/variables.h"
#include "run/profile.h"
#include "run/protocol.h"
#include "shim/python.h"
#include "shim/python_stack.h"
#include "shim/shim.h"

/* Until frames can be read, the sampler checks this often whether the interpreter has started. */
#define EARLY_BYTES 4096
/* While nothing is sampled, a thread checks this often whether that has changed. */
#define OFF_BYTES (64 << 10)

__thread sampler_thread sampler_here;
_Atomic uint8_t sampler_filter[SAMPLER_FILTER];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folder[PATH_MAX];
static _Atomic bool on;    /* a process with Python in a profiled run */
static _Atomic bool ready; /* Python frames can be read */
/* Guarded by lock: */
static profile_file *file; /* NULL until the first sample */
static bool broken;        /* the file cannot be made */
static sampler_block *blocks;
static size_t block_count, block_capacity;    /* a power of two */
static uint16_t sites[2 * PROFILE_SITES_MAX]; /* number of the site + 1, by hash */
static char text[PYTHON_STACK_TEXT];
static python_stack stack;
/* Where the program's own innermost frame is in the stacks that were sampled last. A training loop
 * allocates from the same stacks in every step, below many frames of libraries. The frame itself is
 * read each time, because new code may have the address of old code. */
#define DEPTHS_MAX 4096
static struct {
  uint64_t key; /* of a python_stack; 0: empty */
  size_t depth;
} depths[DEPTHS_MAX];

/* ---- distances ---- */

/* Returns -log(u) for u in (0, 1), without libm: u = m * 2^-e with m in [0.75, 1.5), and the series
 * of atanh for m. */
static double minus_log(double u) {
  ASSERT(u > 0 && u < 1);
  int e = 0;
  for (; u < 0.75; u *= 2) e++;
  double s = (u - 1) / (u + 1), q = s * s;
  double series = 1 + q * (1. / 3 + q * (1. / 5 + q * (1. / 7 + q * (1. / 9 + q / 11))));
  return (double)e * 0.69314718055994531 - 2 * s * series;
}

static int64_t draw(sampler_thread *t) {
  if (t->random == 0) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    t->random =
        (uint64_t)(uintptr_t)t ^ (uint64_t)now.tv_nsec << 32 ^ (uint64_t)getpid() ^ 0x9e3779b9;
    if (t->random == 0) t->random = 1;
    for (int i = 0; i < 8; i++) draw(t);
  }
  t->random ^= t->random << 13; /* xorshift64 */
  t->random ^= t->random >> 7;
  t->random ^= t->random << 17;
  double u = ((double)(t->random >> 11) + 0.5) * 0x1p-53;
  return (int64_t)(minus_log(u) * (double)PROFILE_PERIOD) + 1;
}

static void begin_chunk(sampler_thread *t) {
  ASSERT(t->distance >= 0);
  bool early = !atomic_load_explicit(&ready, memory_order_relaxed);
  t->chunk = early && t->distance > EARLY_BYTES ? EARLY_BYTES : t->distance;
  t->left = t->chunk;
}

/* ---- sampled blocks: open addressing, deletion by moving back ---- */

static size_t home(uintptr_t address) {
  ASSERT(block_capacity > 0);
  return (size_t)((uint64_t)(address >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20) &
         (block_capacity - 1);
}

static void put(const sampler_block *b) {
  ASSERT(b->address != 0);
  ASSERT(block_count < block_capacity); /* otherwise the search below never ends */
  size_t at = home(b->address);
  while (blocks[at].address != 0) at = (at + 1) & (block_capacity - 1);
  blocks[at] = *b;
  block_count++;
}

static bool grow(void) {
  size_t before = block_capacity, capacity = before == 0 ? 1 << 12 : before * 2;
  sampler_block *old = blocks;
  void *fresh = mmap(NULL, capacity * sizeof *blocks, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return false;
  ASSERT((capacity & (capacity - 1)) == 0);
  blocks = fresh;
  block_capacity = capacity;
  block_count = 0;
  for (size_t i = 0; i < before; i++)
    if (old[i].address != 0) put(&old[i]);
  if (old != NULL) munmap(old, before * sizeof *old);
  return true;
}

static bool keep(const sampler_block *b) {
  if (2 * (block_count + 1) > block_capacity && !grow()) return false;
  ASSERT(2 * (block_count + 1) <= block_capacity);
  put(b);
  _Atomic uint8_t *count = &sampler_filter[sampler_slot((void *)b->address)];
  if (atomic_load(count) < UINT8_MAX) atomic_fetch_add(count, 1); /* a full one stays full */
  return true;
}

static bool take(uintptr_t address, sampler_block *kept) {
  if (block_count == 0 || address == 0) return false; /* free(NULL); 0 marks an empty place */
  size_t mask = block_capacity - 1, at = home(address);
  while (blocks[at].address != address)
    if (blocks[at].address == 0)
      return false;
    else
      at = (at + 1) & mask;
  *kept = blocks[at];
  ASSERT(kept->address == address);
  for (size_t next = (at + 1) & mask; blocks[next].address != 0; next = (next + 1) & mask) {
    size_t from = home(blocks[next].address);
    if (((next - from) & mask) < ((next - at) & mask)) continue;
    blocks[at] = blocks[next];
    at = next;
  }
  blocks[at].address = 0;
  block_count--;
  _Atomic uint8_t *count = &sampler_filter[sampler_slot((void *)address)];
  if (atomic_load(count) < UINT8_MAX) atomic_fetch_sub(count, 1);
  return true;
}

/* ---- lines ---- */

static bool open_file(void) {
  char path[PATH_MAX], name[RUN_PROCESS_MAX];
  if (file != NULL || broken) return file != NULL;
  broken = true;
  run_process_name(name);
  if (!run_process_path(path, folder, name, RUN_PROFILE)) return false;
  int fd = newfile_own(AT_FDCWD, path, 0, 0600);
  if (fd < 0 || ftruncate(fd, 0) != 0 || ftruncate(fd, sizeof *file) != 0) {
    shim_log("profile: %s cannot be written", path);
    if (fd >= 0) close(fd);
    return false;
  }
  void *mapped = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return false;
  file = mapped;
  *file = (profile_file){.magic = PROFILE_MAGIC, .period = PROFILE_PERIOD};
  broken = false;
  return true;
}

/* Copies a text that fits, or its end. */
static void copy_end(char *to, size_t size, const char *from) {
  ASSERT(size > 0);
  size_t length = strlen(from);
  const char *begin = length < size ? from : from + (length - size + 1);
  while (((unsigned char)*begin & 0xc0) == 0x80) begin++; /* not in the middle of a character */
  snprintf(to, size, "%s", begin);
}

/* Returns the site of a line, a new one if needed; NULL: the table is full. */
static profile_site *find_site(const char *path, const char *function, uint32_t line) {
  ASSERT(file != NULL);
  ASSERT(file->site_count <= PROFILE_SITES_MAX);
  profile_site wanted = {.line = line};
  copy_end(wanted.file, sizeof wanted.file, path);
  snprintf(wanted.function, sizeof wanted.function, "%s", function);
  uint64_t hash = line;
  for (const char *c = wanted.file; *c != '\0'; c++) hash = (hash ^ (uint8_t)*c) * 0x100000001b3;
  for (const char *c = wanted.function; *c != '\0'; c++)
    hash = (hash ^ (uint8_t)*c) * 0x100000001b3;
  size_t mask = sizeof sites / sizeof sites[0] - 1, at = (size_t)(hash ^ hash >> 32) & mask;
  for (; sites[at] != 0; at = (at + 1) & mask) {
    profile_site *s = &file->sites[sites[at] - 1];
    if (s->line == line && strcmp(s->file, wanted.file) == 0 &&
        strcmp(s->function, wanted.function) == 0)
      return s;
  }
  if (file->site_count == PROFILE_SITES_MAX) return NULL;
  profile_site *s = &file->sites[file->site_count];
  wanted.peak = file->peak; /* it held nothing then */
  *s = wanted;
  sites[at] = (uint16_t)++file->site_count;
  return s;
}

/* Reads the place `at` of the stack; the texts stay until the next call. */
static bool read_place(size_t at, stow_trace_frame *out) {
  static python_stack one;
  ASSERT(at < PYTHON_STACK_MAX);
  stow_trace_frame frames[PYTHON_STACK_MAX];
  one.count = 1;
  one.places[0] = stack.places[at];
  if (python_stack_frames(&one, frames, text) != 1) return false;
  *out = frames[0];
  return true;
}

/* Returns whether it is startup code: code that site.py runs for a .pth file is "<string>", like
 * python -c, but does not belong to the program. */
static bool is_startup(size_t from) {
  ASSERT(from <= stack.count);
  static char name[PYTHON_STACK_FILE];
  for (size_t i = from; i < stack.count; i++) {
    const char *path = python_stack_file(&stack.places[i], name);
    if (path != NULL && (strcmp(path, "<frozen site>") == 0 || run_has_ending(path, "/site.py")))
      return true;
  }
  return false;
}

/* Returns the innermost line of the program itself; the line of a library if nothing of the program
 * runs. */
static profile_site *site_here(void) {
  stow_trace_frame f;
  if (!atomic_load(&ready) || !python_stack_walk(&stack)) return find_site("", "", 0);
  size_t at = (size_t)(stack.key ^ stack.key >> 32) & (DEPTHS_MAX - 1);
  for (size_t i = depths[at].key == stack.key ? depths[at].depth : 0; i < stack.count; i++) {
    static char name[PYTHON_STACK_FILE];
    const char *path = python_stack_file(&stack.places[i], name);
    if (path == NULL) continue;
    if (strncmp(path, "<stowage ", 9) == 0) return find_site("", "", 0); /* our own scripts */
    if (!profile_is_own(path)) continue;
    if (path[0] == '<' && is_startup(i + 1)) break;
    if (!read_place(i, &f)) continue;
    depths[at].key = stack.key;
    depths[at].depth = i;
    return find_site(f.file, f.name, f.line);
  }
  if (is_startup(0) || !read_place(0, &f)) return find_site("", "", 0);
  return find_site(f.file, f.name, f.line);
}

static void sample(void *block, size_t bytes) {
  ASSERT(block != NULL);
  if (!open_file() || file->frozen) return;
  profile_site *s = site_here();
  if (s == NULL) {
    file->dropped++;
    return;
  }
  ASSERT(s >= file->sites && s < file->sites + PROFILE_SITES_MAX);
  sampler_block b = {(uintptr_t)block, bytes, (uint32_t)(s - file->sites)};
  profile_add(file, s, profile_block(bytes, PROFILE_PERIOD));
  if (!keep(&b)) profile_remove(file, s, profile_block(bytes, PROFILE_PERIOD));
}

/* ---- Python ---- */

static python_object *check(python_object *self, python_object *arguments) {
  (void)self;
  (void)arguments;
  if (python_stack_check()) atomic_store(&ready, true);
  return python_none();
}

/* Freezes the profile. The interpreter frees nearly everything as it exits, so the final figures
 * are those before that. */
static python_object *freeze(python_object *self, python_object *arguments) {
  (void)self;
  (void)arguments;
  sampler_here.busy = true;
  pthread_mutex_lock(&lock);
  if (file != NULL) file->frozen = 1;
  pthread_mutex_unlock(&lock);
  sampler_here.busy = false;
  return python_none();
}

static python_method methods[] = {
    PYTHON_METHOD("shim_check", check),
    PYTHON_METHOD("shim_freeze", freeze),
    {NULL, NULL, 0, NULL},
};

/* Exit functions run in reverse order, so ours, the first, is the last. python_stack_check expects
 * this file name. */
static python_script script = {.file = "<stowage inside.py>",
                               .text = "import atexit\n"
                                       "def begin():\n"
                                       "    shim_check()\n"
                                       "    atexit.register(shim_freeze)\n"
                                       "    return True\n",
                               .entry = "begin",
                               .methods = methods,
                               .word_name = "shim_rank",
                               .word = ""};

/* ---- what the hooks call ---- */

void sampler_note(void *block, size_t bytes) {
  sampler_thread *t = &sampler_here;
  if (t->busy || !atomic_load_explicit(&on, memory_order_relaxed)) {
    if (t->busy)
      t->left += (int64_t)bytes;
    else
      t->left = t->chunk = OFF_BYTES;
    return;
  }
  t->busy = true;
  if (t->random == 0) { /* the thread's first request: `left` began at 0 */
    t->distance = draw(t);
    t->chunk = 0;
  }
  t->distance -= t->chunk - t->left;
  if (t->distance < 0) {
    pthread_mutex_lock(&lock);
    if (block != NULL) sample(block, bytes);
    pthread_mutex_unlock(&lock);
    t->distance = draw(t);
  }
  if (!atomic_load_explicit(&ready, memory_order_relaxed)) python_script_schedule(&script);
  begin_chunk(t);
  t->busy = false;
}

bool sampler_forget(const void *block, sampler_block *kept) {
  ASSERT(kept != NULL);
  sampler_thread *t = &sampler_here;
  if (t->busy) return false;
  t->busy = true;
  pthread_mutex_lock(&lock);
  bool found = take((uintptr_t)block, kept);
  ASSERT(!found || kept->site < PROFILE_SITES_MAX);
  if (found && file != NULL && !file->frozen)
    profile_remove(file, &file->sites[kept->site], profile_block(kept->bytes, PROFILE_PERIOD));
  pthread_mutex_unlock(&lock);
  t->busy = false;
  return found;
}

void sampler_restore(const sampler_block *kept) {
  ASSERT(kept->address != 0);
  ASSERT(kept->site < PROFILE_SITES_MAX);
  sampler_here.busy = true;
  pthread_mutex_lock(&lock);
  if (file != NULL && !file->frozen) {
    profile_site *s = &file->sites[kept->site];
    profile_amount allocated = s->allocated;
    profile_add(file, s, profile_block(kept->bytes, PROFILE_PERIOD));
    s->allocated = allocated;
    ASSERT(s->samples > 0);
    s->samples--;
  }
  keep(kept);
  pthread_mutex_unlock(&lock);
  sampler_here.busy = false;
}

/* ---- start and fork ---- */

static void before_fork(void) {
  pthread_mutex_lock(&lock);
}

static void in_parent(void) {
  pthread_mutex_unlock(&lock);
}

static void forget_all(void) {
  if (file != NULL) munmap(file, sizeof *file);
  file = NULL;
  broken = false;
  if (blocks != NULL) memset(blocks, 0, block_capacity * sizeof *blocks);
  block_count = 0;
  memset(sites, 0, sizeof sites);
  for (size_t i = 0; i < SAMPLER_FILTER; i++)
    if (atomic_load_explicit(&sampler_filter[i], memory_order_relaxed) != 0)
      atomic_store_explicit(&sampler_filter[i], 0, memory_order_relaxed);
}

/* Starts a new file in a child: what its parent allocated counts for the parent. */
static void in_child(void) {
  pthread_mutex_init(&lock, NULL);
  forget_all();
  sampler_here.random = 0;
  sampler_here.left = 0;
}

bool sampler_start(const char *path) {
  static bool once;
  ASSERT(path != NULL);
  if (atomic_load(&on) || strlen(path) >= sizeof folder) return false;
  snprintf(folder, sizeof folder, "%s", path);
  if (!once) pthread_atfork(before_fork, in_parent, in_child);
  once = true;
  python_script_run(&script); /* checks the frames, the first time */
  atomic_store(&on, true);
  return true;
}

void sampler_stop(void) {
  sampler_here.busy = true;
  pthread_mutex_lock(&lock);
  atomic_store(&on, false);
  forget_all();
  pthread_mutex_unlock(&lock);
  sampler_here.busy = false;
}

__attribute__((constructor)) static void begin(void) {
  const char *path = secure_getenv(ENV_PROFILE);
  if (path == NULL || path[0] != '/' || python_symbol("Py_IsInitialized") == NULL) return;
  if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder) return;
  sampler_here.busy = true;
  (void)python_here(); /* finds the interpreter's functions here, where nothing is locked */
  pthread_atfork(before_fork, in_parent, in_child);
  sampler_here.busy = false;
  sampler_here.left = 0;
  atomic_store(&on, true);
}
