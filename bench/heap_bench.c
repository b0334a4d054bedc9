/* Heap bench: the cost of the heap's hot path, and of peers in the same run.
 *
 * Peers are libraries of this machine; a missing one is reported as "not found". mimalloc, the
 * distance to the floor, is a package (libmimalloc2.0). TLSF is Matthew Conte's, repository
 * mattconte/tlsf; tools/setup.sh bench clones and builds it in build/peers/ if it can. Otherwise
 * put its two files there, or set STOWAGE_PEER_TLSF to the path of a libtlsf.so. It is measured
 * unchanged, that is, for one thread and without streams, tags, limits or checks, and also with a
 * mutex.
 *
 * Lines: case=… ours=… peer=NAME:… ratio=… unit=…; ratio is peer / ours. Each figure is the best of
 * many short rounds. The rounds of the peers alternate with ours, so that other load affects all
 * equally. heap_bench [peers|threads|events|many [FROM [TO]]] runs one part alone. */
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <stowage/stowage.h>
#include <stowage/sys/device.h>

#include "base/clock.h"
#include "memory/heap.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static void must(stow_status status) {
  if (status == STOW_OK) return;
  fprintf(stderr, "heap_bench: %s: %s\n", stow_status_name(status), stow_status_message());
  exit(1);
}

static stow_device *device;

static stow_heap *heap_on(uint64_t vram) {
  stow_sim_options so = STOW_SIM_OPTIONS_INIT;
  so.vram_bytes = vram;
  so.host_bytes = 0;
  so.paper = true;
  must(stow_sim_open(&device, &so));
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = device;
  o.background = false;
  stow_heap *h;
  must(stow_heap_open(&h, &o));
  return h;
}

static void heap_off(stow_heap *h) {
  must(stow_heap_close(h));
  must(stow_device_close(device));
}

static uint64_t next(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  return z ^ (z >> 31);
}

/* ---- allocators behind one interface ---- */

typedef struct subject {
  const char *name;
  uint64_t (*take)(void *self, uint64_t bytes);
  void (*give)(void *self, uint64_t ptr);
  void *self;
} subject;

static uint64_t ours_take(void *self, uint64_t bytes) {
  uint64_t p;
  must(stow_heap_alloc(&p, self, bytes, NULL));
  return p;
}
static void ours_give(void *self, uint64_t p) {
  must(stow_heap_free(self, p, NULL));
}

static struct {
  void *pool;
  void *(*malloc)(void *pool, size_t bytes);
  void (*free)(void *pool, void *p);
} tlsf;
static pthread_mutex_t tlsf_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t tlsf_take_locked(void *self, uint64_t bytes) {
  pthread_mutex_lock(&tlsf_lock);
  void *p = tlsf.malloc(self, bytes);
  pthread_mutex_unlock(&tlsf_lock);
  return (uint64_t)(uintptr_t)p;
}
static void tlsf_give_locked(void *self, uint64_t p) {
  pthread_mutex_lock(&tlsf_lock);
  tlsf.free(self, (void *)(uintptr_t)p);
  pthread_mutex_unlock(&tlsf_lock);
}
static uint64_t tlsf_take(void *self, uint64_t bytes) {
  return (uint64_t)(uintptr_t)tlsf.malloc(self, bytes);
}
static void tlsf_give(void *self, uint64_t p) {
  tlsf.free(self, (void *)(uintptr_t)p);
}

static struct {
  void *(*malloc)(size_t bytes);
  void (*free)(void *p);
} mi;
static uint64_t mi_take(void *self, uint64_t bytes) {
  (void)self;
  return (uint64_t)(uintptr_t)mi.malloc(bytes);
}
static void mi_give(void *self, uint64_t p) {
  (void)self;
  mi.free((void *)(uintptr_t)p);
}

static bool tlsf_open(subject *s) {
  const char *path = getenv("STOWAGE_PEER_TLSF");
  void *lib = dlopen(path ? path : "libtlsf.so", RTLD_NOW);
  if (!lib) return false;
  void *(*create)(void *, size_t) = (void *(*)(void *, size_t))dlsym(lib, "tlsf_create_with_pool");
  tlsf.malloc = (void *(*)(void *, size_t))dlsym(lib, "tlsf_malloc");
  tlsf.free = (void (*)(void *, void *))dlsym(lib, "tlsf_free");
  uint64_t bytes = 3 * GIB; /* TLSF's own limit is 4 GiB less a block */
  void *memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!create || !tlsf.malloc || !tlsf.free || memory == MAP_FAILED) return false;
  *s = (subject){"tlsf", tlsf_take, tlsf_give, create(memory, bytes)};
  return s->self != NULL;
}

static bool mi_open(subject *s) {
  void *lib = dlopen("libmimalloc.so.2", RTLD_NOW);
  if (!lib) lib = dlopen("libmimalloc.so.2.0", RTLD_NOW);
  if (!lib) lib = dlopen("libmimalloc.so", RTLD_NOW);
  if (!lib) return false;
  mi.malloc = (void *(*)(size_t))dlsym(lib, "mi_malloc");
  mi.free = (void (*)(void *))dlsym(lib, "mi_free");
  *s = (subject){"mimalloc", mi_take, mi_give, NULL};
  return mi.malloc && mi.free;
}

/* ---- measuring ---- */

#define SUBJECTS  4 /* ours first */
#define ROUNDS    300
#define BUDGET_NS 400000000u /* for one subject and case: mimalloc takes 15 us for 32 MiB */

/* Measures the best ns per pair of each subject that is present, in alternating rounds. */
static void compete(const subject *subjects, const bool *here, double *best, int pairs,
                    double (*round)(const subject *s, int k, int pairs, uint64_t arg),
                    uint64_t arg) {
  uint64_t spent[SUBJECTS] = {0};
  for (int k = 0; k < SUBJECTS; k++) best[k] = 1e30;
  for (int i = 0; i < ROUNDS; i++)
    for (int k = 0; k < SUBJECTS; k++) {
      if (!here[k] || spent[k] > BUDGET_NS) continue;
      uint64_t t = clock_ns();
      double ns = round(&subjects[k], k, pairs, arg);
      if (ns < best[k]) best[k] = ns;
      spent[k] += clock_ns() - t;
    }
}

static double pair_round(const subject *s, int k, int pairs, uint64_t bytes) {
  (void)k;
  uint64_t t = clock_ns();
  for (int i = 0; i < pairs; i++) s->give(s->self, s->take(s->self, bytes));
  return (double)(clock_ns() - t) / pairs;
}

/* Keeps LIVE random blocks of 2^9..2^most bytes; frees one and allocates one at a time. */
enum { LIVE = 2000 };
static uint64_t live_blocks[SUBJECTS][LIVE];
static uint64_t live_seed[SUBJECTS];

static double churn_round(const subject *s, int k, int pairs, uint64_t most) {
  uint64_t *live = live_blocks[k], *seed = &live_seed[k];
  uint64_t t = clock_ns();
  for (int i = 0; i < pairs; i++) {
    uint64_t r = next(seed);
    s->give(s->self, live[r % LIVE]);
    live[r % LIVE] = s->take(s->self, UINT64_C(1) << (9 + (r >> 32) % (most - 8)));
  }
  return (double)(clock_ns() - t) / pairs;
}

static void churn_fill(const subject *s, int k, uint64_t most) {
  live_seed[k] = 11;
  for (int i = 0; i < LIVE; i++)
    live_blocks[k][i] = s->take(s->self, UINT64_C(1) << (9 + next(&live_seed[k]) % (most - 8)));
}
static void churn_empty(const subject *s, int k) {
  for (int i = 0; i < LIVE; i++) s->give(s->self, live_blocks[k][i]);
}

static void lines(const char *name, const subject *subjects, const bool *here, const double *best,
                  const char *unit) {
  for (int k = 1; k < SUBJECTS; k++)
    if (!subjects[k].name)
      continue; /* not in this case */
    else if (here[k])
      printf("case=%s ours=%.1f peer=%s:%.1f ratio=%.2f unit=%s\n", name, best[0], subjects[k].name,
             best[k], best[k] / best[0], unit);
    else
      printf("case=%s ours=%.1f peer=%s:not-found ratio=- unit=%s\n", name, best[0],
             subjects[k].name, unit);
}

static void against_peers(void) {
  stow_heap *h = heap_on(192 * GIB);
  subject s[SUBJECTS] = {{"stowage", ours_take, ours_give, h},
                         {.name = "tlsf"},
                         {.name = "tlsf+mutex"},
                         {.name = "mimalloc"}};
  bool here[SUBJECTS] = {true, tlsf_open(&s[1]), false, mi_open(&s[3])};
  if (here[1]) {
    s[2] = (subject){"tlsf+mutex", tlsf_take_locked, tlsf_give_locked, s[1].self};
    here[2] = true;
  }
  double best[SUBJECTS], worst_ours = 0, worst_ratio = 1e30;
  uint64_t around[SUBJECTS][64], seed = 5;
  for (int i = 0; i < 64; i++) {
    uint64_t bytes = 512 + next(&seed) % (256 * 1024);
    for (int k = 0; k < SUBJECTS; k++)
      if (here[k]) around[k][i] = s[k].take(s[k].self, bytes);
  }
  for (uint64_t bytes = 512; bytes <= 64 * MIB; bytes *= 2) {
    char name[64], text[STOW_SIZE_TEXT_MAX];
    stow_size_format(text, bytes);
    snprintf(name, sizeof name, "hot_pair_%s", text);
    for (char *c = name; *c; c++)
      if (*c == ' ') *c = '_';
    compete(s, here, best, 1000, pair_round, bytes);
    lines(name, s, here, best, "ns");
    if (best[0] > worst_ours) worst_ours = best[0];
    if (here[1] && best[1] / best[0] < worst_ratio) worst_ratio = best[1] / best[0];
  }
  printf("case=hot_pair_worst ours=%.1f unit=ns (of 60)", worst_ours);
  if (here[1]) printf(" worst_ratio_to_tlsf=%.2f (of 1)", worst_ratio);
  printf("\n");
  for (int k = 0; k < SUBJECTS; k++)
    for (int i = 0; here[k] && i < 64; i++) s[k].give(s[k].self, around[k][i]);
  /* Up to 2^20 for the peers that really touch or hold host memory; up to 2^26 as on a GPU. */
  for (int k = 0; k < SUBJECTS; k++)
    if (here[k] && k != 2) churn_fill(&s[k], k, 20);
  here[2] = false; /* uses the same pool as tlsf */
  s[2].name = NULL;
  compete(s, here, best, 2000, churn_round, 20);
  lines("churn_2000_live_to_1_MiB", s, here, best, "ns");
  for (int k = 0; k < SUBJECTS; k++)
    if (here[k]) churn_empty(&s[k], k);
  here[1] = here[3] = false;
  churn_fill(&s[0], 0, 26);
  compete(s, here, best, 2000, churn_round, 26);
  churn_empty(&s[0], 0);
  printf("case=churn_2000_live_to_64_MiB ours=%.1f unit=ns\n", best[0]);
  heap_off(h);
}

/* ---- threads ---- */

typedef struct runner {
  stow_heap *heap;
  stow_stream stream;
  double ns;
} runner;
static pthread_barrier_t start;

static void *run_thread(void *user) {
  runner *r = user;
  uint64_t seed = (uint64_t)(uintptr_t)r->stream, live[256] = {0};
  r->ns = 1e30;
  pthread_barrier_wait(&start);
  for (int round = 0; round < 200; round++) {
    int count = 5000;
    uint64_t t = clock_ns();
    for (int i = 0; i < count; i++) {
      uint64_t x = next(&seed), *slot = &live[x % 256];
      if (*slot) must(stow_heap_free(r->heap, *slot, r->stream));
      must(stow_heap_alloc(slot, r->heap, UINT64_C(1) << (9 + (x >> 32) % 14), r->stream));
    }
    double ns = (double)(clock_ns() - t) / count;
    if (round > 20 && ns < r->ns) r->ns = ns;
  }
  for (int i = 0; i < 256; i++)
    if (live[i]) must(stow_heap_free(r->heap, live[i], r->stream));
  return NULL;
}

static double throughput(int threads) {
  stow_heap *h = heap_on(16 * GIB);
  runner r[8];
  pthread_t t[8];
  pthread_barrier_init(&start, NULL, (unsigned)threads);
  for (int i = 0; i < threads; i++) {
    r[i] = (runner){.heap = h};
    must(device->ops->stream_create(device, &r[i].stream));
    pthread_create(&t[i], NULL, run_thread, &r[i]);
  }
  double sum = 0;
  for (int i = 0; i < threads; i++) {
    pthread_join(t[i], NULL);
    sum += 1e3 / r[i].ns;
  }
  pthread_barrier_destroy(&start);
  must(stow_heap_trim(h, 0, NULL));
  must(stow_heap_close(h));
  for (int i = 0; i < threads; i++) must(device->ops->stream_destroy(device, r[i].stream));
  must(stow_device_close(device));
  return sum;
}

static void threads(void) {
  double one = 0, two = 0;
  for (int i = 0; i < 3; i++) {
    double a = throughput(1), b = throughput(2);
    if (a > one) one = a;
    if (b > two) two = b;
  }
  printf("case=two_threads ours=%.2f peer=one_thread:%.2f ratio=%.2f unit=Mpairs/s\n", two, one,
         two / one);
}

/* ---- many live at once ---- */

static int by_value(const void *x, const void *y) {
  uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
  return a < b ? -1 : a > b;
}

static long switches(void) {
  struct rusage u;
  getrusage(RUSAGE_THREAD, &u);
  return u.ru_nivcsw;
}

/* Memory in huge pages, so that the bench's own data disturbs little. */
static void *roomy(uint64_t bytes) {
  void *p = aligned_alloc(2 * MIB, (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
  if (!p) exit(1);
  (void)madvise(p, bytes, MADV_HUGEPAGE);
  return p;
}

/* Returns the memory latency: mean ns, by the same clock, of one access to a random line of a table
 * with a line per slab of n blocks (about 28 blocks each). This is the least cost of freeing a
 * block that is not in the cache. */
static double distance(uint64_t n) {
  enum { LOOKS = 200000 };
  uint64_t lines = n / 28 + 1, seed = n, sum = 0, seen = 0;
  volatile uint64_t *table = roomy(lines * 64);
  for (uint64_t i = 0; i < lines; i++) table[i * 8] = i;
  for (int i = 0; i < LOOKS; i++) {
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): one line at least */
    volatile uint64_t *line = &table[next(&seed) % lines * 8];
    uint64_t t = clock_ns();
    seen += *line;
    uint64_t ns = clock_ns() - t;
    sum += ns < 20000 ? ns : 0; /* the thread was not running */
  }
  free((void *)(uintptr_t)table);
  return seen ? (double)sum / LOOKS : 0;
}

/* Measures mean, median and p99.99 of single operations without page calls, with n blocks live. The
 * figure includes two readings of the clock. Rounds of a thousand in which another program
 * interrupted the thread (involuntary switches, as the kernel counts them) are dropped and counted,
 * because the heap does not cause them. Everything else is included: cache and TLB misses, page
 * faults of our own tables, interrupts. The work does not grow with n; the distance to memory
 * does. */
static void many(uint64_t n) {
  enum { ROUND = 1000, TURNS = 600 };
  stow_heap *h = heap_on(64 * GIB);
  double far = distance(n);
  uint64_t *live = roomy(n * sizeof *live), seed = n, count = 0, sum = 0, left_out = 0;
  uint32_t *took = malloc((size_t)ROUND * TURNS * 2 * sizeof *took);
  for (uint64_t i = 0; i < n; i++) {
    uint64_t bytes = 512 + next(&seed) % 8 * 512;
    if (i % 64 == 0) bytes = 16896 + next(&seed) % 65536; /* one in 64 has a span of its own */
    must(stow_heap_alloc(&live[i], h, bytes, NULL));
  }
  stow_heap_stats s = STOW_HEAP_STATS_INIT;
  must(stow_heap_get_stats(h, &s));
  double per =
      ((double)s.metadata_bytes - (double)s.tier[0].held_bytes / 1000 - (double)MIB) / (double)n;
  stow_sim_counts before = STOW_SIM_COUNTS_INIT, after = STOW_SIM_COUNTS_INIT;
  must(stow_sim_get_counts(device, &before));
  for (int round = 0; round < TURNS; round++) {
    uint64_t first = count;
    long turns = switches();
    for (int i = 0; i < ROUND; i++) {
      uint64_t x = next(&seed), *p = &live[x % n], ptr = *p, t0 = clock_ns();
      must(stow_heap_free(h, ptr, NULL));
      uint64_t t1 = clock_ns();
      must(stow_heap_alloc(p, h, 512 + (x >> 32) % 8 * 512, NULL));
      uint64_t t2 = clock_ns();
      must(stow_sim_get_counts(device, &after));
      took[count++] = (uint32_t)(t1 - t0);
      if (after.map == before.map && after.unmap == before.unmap)
        took[count++] = (uint32_t)(t2 - t1);
      before = after;
    }
    if (switches() != turns) count = first, left_out++;
  }
  for (uint64_t i = 0; i < count; i++) sum += took[i];
  if (count == 0) {
    printf("case=live_%" PRIu64 ": every round was disturbed by other programs\n", n);
    exit(1);
  }
  qsort(took, count, sizeof *took, by_value);
  uint32_t median = took[count / 2], rare = took[count - count / 10000 - 1];
  printf("case=live_%" PRIu64 " ours=%.0f unit=ns distance=%.0f p50_ns=%u p50/log2n=%.1f "
         "p99.99_ns=%u (of 10000) ops=%" PRIu64
         " metadata_bytes_per_block=%.1f (of 24, over 0.1%% of held and 1 MiB; %" PRIu64
         " of %d rounds disturbed)\n",
         n, (double)sum / (double)count, far, median, (double)median / log2((double)n), rare, count,
         per, left_out, TURNS);
  for (uint64_t i = 0; i < n; i++) must(stow_heap_free(h, live[i], NULL));
  free(live);
  free(took);
  heap_off(h);
}

/* ---- events ---- */

static uint64_t silent(void *user, const stow_heap_event *event) {
  (void)event;
  ++*(uint64_t *)user;
  return 0;
}

/* Measures the cost of events: the check alone, as in alloc and free; and a pair with a listener
 * for other kinds, and for these kinds. */
static void events(void) {
  stow_heap *h = heap_on(GIB);
  heap *inner = atomic_load(&h->inner);
  subject s = {"stowage", ours_take, ours_give, h};
  double ask = 1e30, pair[3] = {1e30, 1e30, 1e30};
  uint64_t heard = 0;
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t t = clock_ns();
    for (int i = 0; i < 1000; i++) {
      heard += heap_has_listener(inner, STOW_EVENT_ALLOC);
      __asm__ volatile("" ::: "memory");
    }
    double ns = (double)(clock_ns() - t) / 1000;
    if (ns < ask) ask = ns;
  }
  static const uint32_t masks[3] = {0, STOW_EVENT_BIT(STOW_EVENT_FAIL),
                                    STOW_EVENT_BIT(STOW_EVENT_ALLOC) |
                                        STOW_EVENT_BIT(STOW_EVENT_FREE)};
  for (int k = 0; k < 3; k++) {
    if (masks[k]) must(stow_heap_add_sink(h, silent, &heard, masks[k]));
    for (int round = 0; round < ROUNDS; round++) {
      double ns = pair_round(&s, 0, 1000, 4096);
      if (ns < pair[k]) pair[k] = ns;
    }
    if (masks[k]) must(stow_heap_remove_sink(h, silent, &heard));
  }
  printf("case=event_nobody_hears ours=%.2f unit=ns (of 10)\n", ask);
  printf("case=event_pair ours=%.1f unit=ns other_kinds_heard=%.1f heard=%.1f\n", pair[0], pair[1],
         pair[2]);
  heap_off(h);
}

int main(int argc, char **argv) {
  const char *only = argc > 1 ? argv[1] : "";
  if (!*only || strcmp(only, "peers") == 0) against_peers();
  if (!*only || strcmp(only, "events") == 0) events();
  if (!*only || strcmp(only, "threads") == 0) threads();
  if (!*only || strcmp(only, "many") == 0)
    for (uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000,
                  most = argc > 3 ? strtoull(argv[3], NULL, 10) : 10000000;
         n > 0 && n <= most; n *= 10)
      many(n);
  return 0;
}
