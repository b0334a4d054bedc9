/* Path: a program that reaches the driver by one path and says what it found.
 *
 *   path PATH names            every driver function by that path: does it arrive where it should?
 *   path PATH where NAME…      the library each of these functions is in
 *   path PATH which NAME…      the function each of them is, and its library
 *   path PATH alloc BYTES      allocates memory, prints what the driver reports, frees it
 *   path PATH async BYTES      the same, stream-ordered
 *   path default race          many threads call first, a child is forked meanwhile
 *   path default together      the same without the child
 *   path default storm         threads start threads while they look functions up
 *   path dlopen close          the library is closed as often as it is opened
 *   path PATH vfork BYTES      takes memory, and so does a program that it starts by vfork
 *   path default runpath FILE  a library opens another that only its own search path finds
 *
 * PATH: linked, dlopen, alias (libcuda.so), path:FILE (the driver by that path), default, next,
 * proc1, proc2, proc-old (asked as CUDA 3.2 would), proc-new (as a CUDA to come); with +pt after
 * it, for per-thread streams. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda_driver.h"
#include "standin/cuda_standin.h"

static const char *path;
static int per_thread;
static void *library;

static void *open_as(const char *name) {
  void *found = dlopen(name, RTLD_NOW);
  if (found == NULL) {
    printf("dlopen %s: %s\n", name, dlerror());
    exit(3);
  }
  return found;
}

#ifdef PATH_LINKED
extern cu_result cuInit(unsigned flags);
extern cu_result cuMemAlloc_v2(cu_addr *addr, size_t bytes);
#endif

typedef cu_result (*resolver)(const char *, void **, int, unsigned long long);
typedef cu_result (*resolver2)(const char *, void **, int, unsigned long long, int *);

static void *by_resolver(const char *name) {
  /* Like cudart: the name without version and stream form. */
  char base[128];
  snprintf(base, sizeof base, "%s", name);
  char *mark = strchr(base, '_');
  if (mark != NULL) *mark = '\0';
  void *found = NULL;
  int how = 0, version = strcmp(path, "proc-old") == 0   ? 3020
                         : strcmp(path, "proc-new") == 0 ? 99000
                                                         : 13000;
  unsigned long long flags = per_thread ? 2 : 0;
  if (strcmp(path, "proc1") == 0) {
    resolver ask = (resolver)(uintptr_t)dlsym(library, "cuGetProcAddress");
    return ask(base, &found, version, flags) == CU_OK ? found : NULL;
  }
  resolver2 ask = (resolver2)(uintptr_t)dlsym(library, "cuGetProcAddress_v2");
  if (ask == NULL) return NULL;
  return ask(base, &found, version, flags, &how) == CU_OK && how == 0 ? found : NULL;
}

static void *find(const char *name) {
#ifdef PATH_LINKED
  if (strcmp(name, "cuInit") == 0) return (void *)(uintptr_t)cuInit;
  if (strcmp(name, "cuMemAlloc_v2") == 0) return (void *)(uintptr_t)cuMemAlloc_v2;
#endif
  if (strcmp(path, "default") == 0 || strcmp(path, "linked") == 0) return dlsym(RTLD_DEFAULT, name);
  if (strcmp(path, "next") == 0) return dlsym(RTLD_NEXT, name);
  if (strncmp(path, "proc", 4) == 0) return by_resolver(name);
  return dlsym(library, name);
}

/* Finds a function that takes a stream, as a program built for per-thread streams would. */
static void *find_stream(const char *name) {
  char form[128];
  snprintf(form, sizeof form, "%s%s", name,
           per_thread && strncmp(path, "proc", 4) != 0 ? "_ptsz" : "");
  return find(form);
}

/* Returns the file name of the library that contains an address. */
static const char *place(void *pointer) {
  Dl_info info;
  if (pointer == NULL) return "none";
  if (dladdr(pointer, &info) == 0) return "unknown";
  const char *slash = strrchr(info.dli_fname, '/');
  return slash != NULL ? slash + 1 : info.dli_fname;
}

/* Calls every name directly: a stub must pass ten words and eight numbers to the function of the
 * same name. */
static int check_names(void) {
  /* The first lookup decides whether there is a gate. */
  if (getenv("PATH_ASKS") != NULL) by_resolver("cuInit");
  void *(*past)(const char *) =
      (void *(*)(const char *))(uintptr_t)dlsym(RTLD_DEFAULT, "stow_shim_real");
  if (past == NULL) return 2;
  int (*number)(const char *) = (int (*)(const char *))(uintptr_t)past("standin_number");
  const standin_words *(*last)(void) =
      (const standin_words *(*)(void))(uintptr_t)past("standin_last");
  FILE *list = fopen(getenv("STANDIN_NAMES"), "re");
  const char *real = getenv("STANDIN_REAL"); /* names with a space on either side */
  char name[128];
  int arrived = 0, wrong = 0;
  if (real == NULL) return 2;
  while (list != NULL && fscanf(list, "%127s", name) == 1) {
    void *function = find(name), *own = past(name);
    if (function == NULL || own == NULL) {
      wrong += function == NULL;
      continue;
    }
    /* Only functions that return their number may be called with arbitrary arguments. */
    const standin_words *words = last();
    standin_words cleared = {{0}, {0}};
    memcpy((void *)(uintptr_t)words, &cleared, sizeof cleared);
    char word[132];
    snprintf(word, sizeof word, " %s ", name);
    if (strstr(real, word) != NULL) continue;
    typedef int (*any)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                       uint64_t, uint64_t, uint64_t, double, double, double, double, double, double,
                       double, double);
    int answer = ((any)(uintptr_t)function)(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8);
    int whole = answer == number(name);
    for (int i = 0; i < 10; i++) whole = whole && words->words[i] == (unsigned)i + 1;
    for (int i = 0; i < 8; i++) whole = whole && words->numbers[i] == i + 1;
    arrived += whole;
    wrong += !whole;
    if (!whole) printf("%s answered %d\n", name, answer);
  }
  printf("%d arrived, %d wrong\n", arrived, wrong);
  return wrong != 0;
}

/* Starts the driver by this path, in the first device's primary context. */
static cu_result start(void) {
  cu_result (*init)(unsigned) = (cu_result(*)(unsigned))(uintptr_t)find("cuInit");
  cu_result (*retain)(cu_context *, cu_device) =
      (cu_result(*)(cu_context *, cu_device))(uintptr_t)find("cuDevicePrimaryCtxRetain");
  cu_result (*set)(cu_context) = (cu_result(*)(cu_context))(uintptr_t)find("cuCtxSetCurrent");
  cu_context context;
  cu_result code = init(0);
  if (code == CU_OK) code = retain(&context, 0);
  return code == CU_OK ? set(context) : code;
}

static cu_result tell(cu_result code) {
  cu_result (*ask)(size_t *, size_t *) =
      (cu_result(*)(size_t *, size_t *))(uintptr_t)find("cuMemGetInfo_v2");
  size_t left = 0, total = 0;
  if (code == CU_OK) code = ask(&left, &total);
  printf("code %d free %zu total %zu\n", code, left, total);
  return code;
}

static int allocate(size_t bytes) {
  cu_result (*take)(cu_addr *, size_t) =
      (cu_result(*)(cu_addr *, size_t))(uintptr_t)find("cuMemAlloc_v2");
  cu_result (*give)(cu_addr) = (cu_result(*)(cu_addr))(uintptr_t)find("cuMemFree_v2");
  cu_addr addr = 0;
  cu_result code = start();
  if (code == CU_OK) code = take(&addr, bytes);
  tell(code);
  return addr != 0 && give(addr) != CU_OK;
}

static int allocate_async(size_t bytes) {
  cu_result (*take)(cu_addr *, size_t, cu_stream) =
      (cu_result(*)(cu_addr *, size_t, cu_stream))(uintptr_t)find_stream("cuMemAllocAsync");
  cu_result (*give)(cu_addr, cu_stream) =
      (cu_result(*)(cu_addr, cu_stream))(uintptr_t)find_stream("cuMemFreeAsync");
  cu_addr addr = 0;
  cu_result code = start();
  if (code == CU_OK) code = take(&addr, bytes, NULL);
  tell(code);
  return addr != 0 && give(addr, NULL) != CU_OK;
}

/* Starts a program with vfork. The child shares our memory until it executes, so it must not change
 * it. */
static int start_by_vfork(char **argv) {
  static char word[] = "alloc";
  char *words[] = {argv[0], argv[1], word, argv[3], NULL};
  int code = allocate(strtoull(argv[3], NULL, 10)), how = 1;
  fflush(stdout);
  pid_t child = vfork(); /* NOLINT: the test is about vfork */
  if (child == 0) {
    execv("/proc/self/exe", words);
    _exit(9);
  }
  waitpid(child, &how, 0);
  return code != 0 || how != 0 || allocate(strtoull(argv[3], NULL, 10)) != 0;
}

static int close_often(void) {
  int good = 0;
  for (int i = 0; i < 100; i++) {
    void *own = open_as("libcuda.so.1");
    cu_result (*version)(int *) = (cu_result(*)(int *))(uintptr_t)dlsym(own, "cuDriverGetVersion");
    int number = 0;
    good += version != NULL && version(&number) == CU_OK && number > 0;
    dlclose(own);
    dlclose(own);
  }
  printf("%d\n", good);
  return 0;
}

/* Sixteen threads make their first driver call at the same moment; a child is forked meanwhile, and
 * the library is closed as often as it is opened. */
static pthread_barrier_t barrier;

static long call_first(void) {
  void *own = dlopen("libcuda.so.1", RTLD_NOW);
  cu_result (*version)(int *) = (cu_result(*)(int *))(uintptr_t)dlsym(own, "cuDriverGetVersion");
  int number = 0;
  long good = version != NULL && version(&number) == CU_OK && number > 0;
  dlclose(own);
  return good;
}

static void *first_call(void *user) {
  (void)user;
  pthread_barrier_wait(&barrier);
  return (void *)call_first();
}

static int race(bool with_child) {
  enum { THREADS = 16 };
  pthread_t threads[THREADS];
  pthread_barrier_init(&barrier, NULL, THREADS + 1);
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, first_call, NULL);
  pthread_barrier_wait(&barrier);
  pid_t child = with_child ? fork() : -1;
  if (child == 0) {
    alarm(10);
    _exit(call_first() != 0 ? 0 : 1);
  }
  long good = 0;
  for (int i = 0; i < THREADS; i++) {
    void *answer;
    pthread_join(threads[i], &answer);
    good += (long)answer;
  }
  int how = 1;
  if (!with_child) {
    printf("%ld threads\n", good);
    return 0;
  }
  waitpid(child, &how, 0);
  printf("%ld threads, child %d\n", good, how);
  return 0;
}

/* Looks up functions and starts another thread, a few deep, while the main thread makes the first
 * call. */
static void *look_up_and_start(void *user) {
  static const char *const NAMES[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuInit",
                                      "malloc",        "printf",       "cuNoSuchThing"};
  intptr_t depth = (intptr_t)user, good = 0;
  pthread_t next;
  int started = depth > 0 &&
                pthread_create(&next, NULL, look_up_and_start, (void *)(uintptr_t)(depth - 1)) == 0;
  for (int i = 0; i < 200; i++) good += dlsym(RTLD_DEFAULT, NAMES[i % 6]) != NULL;
  void *answer = NULL;
  if (started) pthread_join(next, &answer);
  return (void *)(good + (intptr_t)answer);
}

static int storm(void) {
  enum { THREADS = 8, DEPTH = 3 };
  pthread_t threads[THREADS];
  intptr_t good = 0;
  for (int i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, look_up_and_start, (void *)(uintptr_t)DEPTH);
  cu_result code = start();
  for (int i = 0; i < THREADS; i++) {
    void *answer;
    pthread_join(threads[i], &answer);
    good += (intptr_t)answer;
  }
  printf("code %d, %ld found\n", code, (long)good);
  return 0;
}

static int open_through(const char *file) {
  void *opener = open_as(file);
  int (*opens)(void) = (int (*)(void))(uintptr_t)dlsym(opener, "opener_opens");
  printf("%s\n", opens != NULL && opens() ? "found" : "lost");
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  char *mark = strstr(argv[1], "+pt");
  per_thread = mark != NULL;
  path = strndup(argv[1], mark != NULL ? (size_t)(mark - argv[1]) : strlen(argv[1]));
  if (strcmp(path, "dlopen") == 0 || strncmp(path, "proc", 4) == 0)
    library = open_as("libcuda.so.1");
  else if (strcmp(path, "alias") == 0)
    library = open_as("libcuda.so");
  else if (strncmp(path, "path:", 5) == 0)
    library = open_as(path + 5);
  if (strcmp(argv[2], "race") == 0) return race(true);
  if (strcmp(argv[2], "together") == 0) return race(false);
  if (strcmp(argv[2], "names") == 0) return check_names();
  if (strcmp(argv[2], "alloc") == 0) return allocate(strtoull(argv[3], NULL, 10));
  if (strcmp(argv[2], "async") == 0) return allocate_async(strtoull(argv[3], NULL, 10));
  if (strcmp(argv[2], "vfork") == 0) return start_by_vfork(argv);
  if (strcmp(argv[2], "close") == 0) return close_often();
  if (strcmp(argv[2], "storm") == 0) return storm();
  if (strcmp(argv[2], "runpath") == 0) return open_through(argv[3]);
  for (int i = 3; i < argc; i++) {
    Dl_info info = {0};
    void *found = find(argv[i]);
    int named = strcmp(argv[2], "which") == 0 && found != NULL && dladdr(found, &info) != 0 &&
                info.dli_sname != NULL;
    printf("%s %s\n", named ? info.dli_sname : argv[i], place(found));
  }
  return 0;
}
