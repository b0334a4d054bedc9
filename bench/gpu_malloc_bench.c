/* Malloc bench: cuMemAlloc and cuMemFree on a GPU, bare and under `stowage run --fast-malloc`.
 *
 *   gpu_malloc_bench          both, and how they compare
 *   gpu_malloc_bench pairs    as this process has it: "idle BYTES NS" and "busy BYTES NS" lines
 *   gpu_malloc_bench check    work on a stream writes into memory freed meanwhile; it must not
 * reach the block that is allocated next. "check ROUNDS wrong N"
 *
 * `pairs` and `check` use only the driver, like any program. */
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/cuda_driver.h"

#define MIB ((size_t)1 << 20)

/* Waits `ns` on the device, then writes `value` to `words` words at `at`. */
static const char *const PTX =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry late(.param .u64 ns, .param .u64 at, .param .u64 words, .param .u32 value) {\n"
    " .reg .u64 %rd<8>; .reg .u32 %r<2>; .reg .pred %p<3>;\n"
    " ld.param.u64 %rd1, [ns]; ld.param.u64 %rd5, [at]; ld.param.u64 %rd6, [words];\n"
    " ld.param.u32 %r1, [value];\n"
    " mov.u64 %rd2, %globaltimer; add.u64 %rd3, %rd2, %rd1;\n"
    "WAIT: mov.u64 %rd4, %globaltimer; setp.lt.u64 %p1, %rd4, %rd3; @%p1 bra WAIT;\n"
    "NEXT: setp.eq.u64 %p2, %rd6, 0; @%p2 bra DONE;\n"
    " st.global.u32 [%rd5], %r1; add.u64 %rd5, %rd5, 4; sub.u64 %rd6, %rd6, 1; bra NEXT;\n"
    "DONE: ret; }\n";

typedef struct CUfunc_st *cu_function;
typedef struct CUmod_st *cu_module;

static struct {
  cu_result (*init)(unsigned);
  cu_result (*retain)(cu_context *, cu_device);
  cu_result (*set)(cu_context);
  cu_result (*alloc)(cu_addr *, size_t);
  cu_result (*free)(cu_addr);
  cu_result (*load)(cu_module *, const void *);
  cu_result (*get)(cu_function *, cu_module, const char *);
  cu_result (*launch)(cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, cu_stream, void **, void **);
  cu_result (*stream)(cu_stream *, unsigned);
  cu_result (*sync)(void);
  cu_result (*fill)(cu_addr, unsigned, size_t);
  cu_result (*copy)(void *, cu_addr, size_t);
} cu;
static cu_function late;
static cu_stream side;

static void must(cu_result code, const char *what) {
  if (code == CU_OK) return;
  fprintf(stderr, "gpu_malloc_bench: %s: CUDA error %d\n", what, code);
  exit(1);
}

static bool start(void) {
  static const char *const NAMES[] = {
      "cuInit",         "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent",     "cuMemAlloc_v2",
      "cuMemFree_v2",   "cuModuleLoadData",         "cuModuleGetFunction", "cuLaunchKernel",
      "cuStreamCreate", "cuCtxSynchronize",         "cuMemsetD32_v2",      "cuMemcpyDtoH_v2"};
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  for (size_t i = 0; library != NULL && i < sizeof NAMES / sizeof NAMES[0]; i++) {
    void *found = dlsym(library, NAMES[i]);
    memcpy((char *)&cu + i * sizeof found, &found, sizeof found);
  }
  cu_context context;
  cu_module module;
  if (library == NULL || cu.init(0) != CU_OK) return false;
  must(cu.retain(&context, 0), "context");
  must(cu.set(context), "context");
  must(cu.load(&module, PTX), "module");
  must(cu.get(&late, module, "late"), "kernel");
  must(cu.stream(&side, CU_STREAM_NON_BLOCKING_FLAG), "stream");
  return true;
}

static void submit(uint64_t ns, cu_addr at, uint64_t words, unsigned value) {
  void *arguments[] = {&ns, &at, &words, &value};
  must(cu.launch(late, 1, 1, 1, 1, 1, 1, 0, side, arguments, NULL), "launch");
}

static double pair_ns(size_t bytes, int count) {
  uint64_t begin = clock_ns();
  for (int i = 0; i < count; i++) {
    cu_addr at;
    must(cu.alloc(&at, bytes), "alloc");
    must(cu.free(at), "free");
  }
  return (double)(clock_ns() - begin) / count;
}

static void pairs(void) {
  static const size_t SIZES[] = {4096, 2 * MIB, 64 * MIB, 1024 * MIB};
  for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
    double best = 1e30;
    for (int round = 0; round < 20; round++) {
      double now = pair_ns(SIZES[i], SIZES[i] > 64 * MIB ? 20 : 200);
      if (round > 0 && now < best) best = now;
    }
    printf("idle %zu %.1f\n", SIZES[i], best);
    /* Two milliseconds of work on another stream before each pair. */
    double sum = 0;
    for (int round = 0; round < 20; round++) {
      submit(2000000, 0, 0, 0);
      double now = pair_ns(SIZES[i], 1);
      if (round >= 10) sum += now;
    }
    must(cu.sync(), "sync");
    printf("busy %zu %.1f\n", SIZES[i], sum / 10);
  }
}

static void check(void) {
  enum { ROUNDS = 200, WORDS = 1024 };
  static unsigned seen[WORDS];
  int wrong = 0;
  for (int round = 0; round < ROUNDS; round++) {
    size_t bytes = (size_t)(round % 4 + 1) * MIB;
    cu_addr first, second;
    must(cu.alloc(&first, bytes), "alloc");
    submit(500000, first, WORDS, 7);
    must(cu.free(first), "free");
    must(cu.alloc(&second, bytes), "alloc");
    must(cu.fill(second, 0, WORDS), "fill");
    must(cu.sync(), "sync");
    must(cu.copy(seen, second, sizeof seen), "copy");
    for (int i = 0; i < WORDS; i++) wrong += seen[i] != 0;
    must(cu.free(second), "free");
  }
  printf("check %d wrong %d\n", ROUNDS, wrong);
}

typedef struct figures {
  double ns[2][8];
  size_t bytes[8];
  int count;
} figures;

static bool ask(const char *command, figures *f) {
  FILE *out = popen(command, "re"); /* NOLINT(cert-env33-c): our own path */
  char word[8];
  size_t bytes;
  double ns;
  *f = (figures){0};
  /* NOLINTNEXTLINE(cert-err34-c): our own numbers */
  while (out != NULL && fscanf(out, "%7s %zu %lf", word, &bytes, &ns) == 3) {
    int busy = strcmp(word, "busy") == 0;
    if (!busy && f->count < 8) f->bytes[f->count++] = bytes;
    if (f->count > 0) f->ns[busy][f->count - 1] = ns;
  }
  return out != NULL && pclose(out) == 0 && f->count > 0;
}

static int compare(void) {
  char self[PATH_MAX], command[2 * PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return 1;
  self[length] = '\0';
  figures bare, ours;
  snprintf(command, sizeof command, "'%s' pairs", self);
  if (!ask(command, &bare)) {
    puts("case=gpu_plain_pair peer=bare:not-run (no device)");
    return 0;
  }
  const char *slash = strstr(self, "/bench/");
  snprintf(command, sizeof command, "'%.*s/stowage' run --fast-malloc -- '%s' pairs",
           slash != NULL ? (int)(slash - self) : 0, self, self);
  if (!ask(command, &ours)) return 1;
  for (int busy = 0; busy < 2; busy++)
    for (int i = 0; i < bare.count && i < ours.count; i++)
      printf("case=gpu_plain_pair_%s_%zu ours=%.1f peer=bare:%.1f ratio=%.1f unit=ns\n",
             busy ? "busy" : "idle", bare.bytes[i], ours.ns[busy][i], bare.ns[busy][i],
             bare.ns[busy][i] / ours.ns[busy][i]);
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 2) return compare();
  if (!start()) {
    fprintf(stderr, "gpu_malloc_bench: no device\n");
    return 3;
  }
  if (strcmp(argv[1], "check") == 0)
    check();
  else
    pairs();
  return 0;
}
