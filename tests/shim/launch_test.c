/* Launch: which words and which stream are read from each form of a call. */
#include "shim/launch.h"

#include "harness.h"
#include "shim/shim.h"

#if defined(__x86_64__)
enum { REGISTERS = 6 };
#else
enum { REGISTERS = 8 };
#endif
#define LOW  UINT64_C(0x7f0000000000)
#define HIGH UINT64_C(0x7f0100000000)

/* Function 0x100: (pointer, int, struct of 32 bytes, pointer). 0x200 is a library's kernel with one
 * pointer. 0x300 has 40 pointers. */
static int asked;
static cu_result function_info(void *function, size_t index, size_t *offset, size_t *bytes) {
  static const size_t sizes[] = {8, 4, 32, 8};
  uintptr_t f = (uintptr_t)function;
  asked++;
  *offset = 0;
  if (f == 0x300 && index < 40) return *bytes = 8, CU_OK;
  if (f != 0x100 || index >= 4) return CU_ERROR_INVALID_VALUE;
  *bytes = sizes[index];
  return CU_OK;
}
static cu_result kernel_info(void *function, size_t index, size_t *offset, size_t *bytes) {
  asked++;
  *offset = 0, *bytes = 8;
  return (uintptr_t)function == 0x200 && index < 1 ? CU_OK : CU_ERROR_INVALID_HANDLE;
}
static cuda_driver driver;
const cuda_driver *shim_driver(void) {
  driver.cuFuncGetParamInfo = function_info;
  driver.cuKernelGetParamInfo = kernel_info;
  return &driver;
}

static launch l;
static bool read_call(unsigned symbol, const uint64_t *arguments) {
  return launch_read(&l, symbol, arguments, arguments + REGISTERS, LOW, HIGH);
}
#define READ(symbol, ...) read_call(SYMBOL_##symbol, (const uint64_t[16]){__VA_ARGS__})
#define AT(pointer)       ((uint64_t)(uintptr_t)(pointer))

static uint64_t a = LOW, b = LOW + 4096, inside[4] = {7, HIGH - 1, HIGH, LOW - 1};
static int number = 5;
static void *parameters[] = {&a, &number, inside, &b};

TEST(a_kernel_names_the_words_of_its_parameters)
{
  CHECK(launch_known());
  CHECK(READ(cuLaunchKernel, 0x100, 1, 1, 1, 1, 1, 1, 0, 0x40, AT(parameters), 0));
  CHECK(l.count == 3 && l.words[0] == LOW && l.words[1] == HIGH - 1 && l.words[2] == LOW + 4096);
  CHECK(l.function == 0x100 && l.kernel && !l.opaque && AT(l.stream) == 0x40);
  CHECK(l.hidden_count == 0);
  int before = asked;
  CHECK(READ(cuLaunchKernel, 0x100, 1, 1, 1, 1, 1, 1, 0, 0, AT(parameters), 0));
  CHECK(asked == before && l.count == 3 && l.stream == NULL && l.kernel);
  launch_forget();
  CHECK(READ(cuLaunchKernel, 0x100, 1, 1, 1, 1, 1, 1, 0, 0, AT(parameters), 0));
  CHECK(asked > before && l.count == 3);
}

TEST(streams_of_the_thread_stand_for_the_default_one)
{
  CHECK(READ(cuLaunchKernel_ptsz, 0x100, 1, 1, 1, 1, 1, 1, 0, 0, AT(parameters), 0));
  CHECK(l.count == 3 && l.stream == NULL && !l.timed); /* not exactly that stream */
  CHECK(READ(cuLaunchKernel, 0x100, 1, 1, 1, 1, 1, 1, 0, 2, AT(parameters), 0));
  CHECK(l.stream == NULL && !l.timed);
  CHECK(READ(cuLaunchKernel, 0x100, 1, 1, 1, 1, 1, 1, 0, 1, AT(parameters), 0));
  CHECK(l.stream == NULL && l.kernel);
  CHECK(READ(cuLaunchKernel_ptsz, 0x100, 1, 1, 1, 1, 1, 1, 0, 0x80, AT(parameters), 0));
  CHECK(AT(l.stream) == 0x80 && l.kernel);
}

TEST(parameters_in_a_buffer)
{
  uint64_t buffer[3] = {LOW + 8, 3, LOW + 16};
  size_t bytes = sizeof buffer;
  void *extra[] = {(void *)1, buffer, (void *)2, &bytes, NULL};
  CHECK(READ(cuLaunchKernel, 0x100, 1, 1, 1, 1, 1, 1, 0, 0x40, 0, AT(extra)));
  CHECK(l.count == 2 && l.words[0] == LOW + 8 && l.words[1] == LOW + 16 && AT(l.stream) == 0x40);
  void *turned[] = {(void *)2, &bytes, (void *)1, buffer, NULL};
  CHECK(READ(cuLaunchKernel_ptsz, 0x100, 1, 1, 1, 1, 1, 1, 0, 0x40, 0, AT(turned)));
  CHECK(l.count == 2);
  CHECK(READ(cuLaunchKernel, 0x100, 1, 1, 1, 1, 1, 1, 0, 0x40, 0, 0));
  CHECK(l.count == 0); /* a kernel without parameters */
}

TEST(a_kernel_of_a_library)
{
  void *one[] = {&b};
  CHECK(READ(cuLaunchKernel, 0x200, 1, 1, 1, 1, 1, 1, 0, 0x40, AT(one), 0));
  CHECK(l.count == 1 && l.words[0] == b && !l.opaque);
}

TEST(cooperative_and_extended_launches)
{
  CHECK(READ(cuLaunchCooperativeKernel, 0x100, 1, 1, 1, 1, 1, 1, 0, 0x40, AT(parameters)));
  CHECK(l.count == 3 && AT(l.stream) == 0x40 && l.kernel);
  CHECK(READ(cuLaunchCooperativeKernel_ptsz, 0x100, 1, 1, 1, 1, 1, 1, 0, 0, AT(parameters)));
  CHECK(l.count == 3 && l.stream == NULL && !l.timed);
  struct {
    unsigned sizes[7];
    uint64_t stream;
    void *attributes;
    unsigned count;
  } config = {{1, 1, 1, 1, 1, 1, 0}, 0x80, NULL, 0};
  CHECK(READ(cuLaunchKernelEx, AT(&config), 0x100, AT(parameters), 0));
  CHECK(l.count == 3 && AT(l.stream) == 0x80 && l.kernel && l.function == 0x100);
  uint64_t buffer[1] = {LOW};
  size_t bytes = sizeof buffer;
  void *extra[] = {(void *)1, buffer, (void *)2, &bytes, NULL};
  CHECK(READ(cuLaunchKernelEx_ptsz, AT(&config), 0x100, 0, AT(extra)));
  CHECK(l.count == 1 && AT(l.stream) == 0x80);
  CHECK(!READ(cuLaunchKernelEx, 0, 0x100, AT(parameters), 0)); /* the driver refuses it */
}

TEST(many_parameters)
{
  uint64_t values[40];
  void *list[40];
  for (int i = 0; i < 40; i++) values[i] = LOW + (uint64_t)i * 8, list[i] = &values[i];
  CHECK(READ(cuLaunchKernel, 0x300, 1, 1, 1, 1, 1, 1, 0, 0, AT(list), 0));
  CHECK(l.count == 40 && l.words[39] == LOW + 39 * 8);
}

TEST(copies_name_both_ends)
{
  CHECK(READ(cuMemcpyAsync, a, b, 64, 0x40));
  CHECK(l.count == 2 && l.words[0] == a && l.words[1] == b && AT(l.stream) == 0x40 && !l.kernel);
  CHECK(READ(cuMemcpyDtoDAsync_v2_ptsz, a, b, 64, 0x40) && l.count == 2);
  CHECK(READ(cuMemcpyDtoH_v2, 0x1000, b, 64) && l.count == 1 && l.words[0] == b);
  CHECK(READ(cuMemcpyDtoHAsync_v2, 0x1000, b, 64, 0x40) && l.count == 1 && AT(l.stream) == 0x40);
  CHECK(READ(cuMemcpyPeerAsync, a, 1, b, 2, 64, 0x80));
  CHECK(l.count == 2 && AT(l.stream) == 0x80);
  CHECK(READ(cuMemcpyPeer, a, 1, b, 2, 64) && l.count == 2 && l.stream == NULL);
}

TEST(addresses_inside_copied_data_are_seen)
{
  uint64_t table[3] = {LOW + 1, 5, HIGH - 8};
  CHECK(READ(cuMemcpyHtoDAsync_v2, a, AT(table), sizeof table, 0x40));
  CHECK(l.count == 1 && l.words[0] == a && AT(l.stream) == 0x40);
  CHECK(l.hidden_count == 2 && l.hidden[0] == LOW + 1 && l.hidden[1] == HIGH - 8);
  CHECK(READ(cuMemcpyHtoD_v2, a, AT(table), 15) && l.hidden_count == 1);
  CHECK(READ(cuMemcpyHtoD_v2, a, 0, 64) && l.hidden_count == 0);
}

/* CUDA_MEMCPY2D and CUDA_MEMCPY3D as the driver declares them. */
typedef struct end_2d {
  size_t x, y;
  unsigned memory;
  const void *host;
  cu_addr device;
  void *array;
  size_t pitch;
} end_2d;
typedef struct end_3d {
  size_t x, y, z, level;
  unsigned memory;
  const void *host;
  cu_addr device;
  void *array, *reserved;
  size_t pitch, height;
} end_3d;

TEST(copies_of_planes_and_boxes)
{
  struct {
    end_2d from, to;
    size_t width, height;
  } plane = {.from = {.device = a}, .to = {.device = b}, .width = 1, .height = 1};
  CHECK(READ(cuMemcpy2DAsync_v2, AT(&plane), 0x40));
  CHECK(l.count == 2 && l.words[0] == a && l.words[1] == b && AT(l.stream) == 0x40);
  CHECK(READ(cuMemcpy2D_v2, AT(&plane)) && l.count == 2 && l.stream == NULL);
  CHECK(READ(cuMemcpy2DUnaligned_v2_ptds, AT(&plane)) && l.count == 2);
  CHECK(!READ(cuMemcpy2D_v2, 0));
  struct {
    end_3d from, to;
    size_t width, height, depth;
  } box = {.from = {.device = a}, .to = {.device = b}, .width = 1, .height = 1, .depth = 1};
  CHECK(sizeof box == 25 * sizeof(uint64_t));
  CHECK(READ(cuMemcpy3DAsync_v2_ptsz, AT(&box), 0x40));
  CHECK(l.count == 2 && l.words[0] == a && l.words[1] == b && AT(l.stream) == 0x40);
  CHECK(READ(cuMemcpy3D_v2, AT(&box)) && l.count == 2);
  CHECK(READ(cuMemcpy3DPeerAsync, AT(&box), 0x80) && l.count == 2 && AT(l.stream) == 0x80);
}

TEST(fills_name_their_page)
{
  CHECK(READ(cuMemsetD8Async, a, 0, 64, 0x40) && l.count == 1 && AT(l.stream) == 0x40);
  CHECK(READ(cuMemsetD16Async_ptsz, a, 0, 64, 0x40) && l.count == 1);
  CHECK(READ(cuMemsetD32_v2, a, 0, 64) && l.count == 1 && l.stream == NULL);
  CHECK(READ(cuMemsetD2D32Async, a, 512, 0, 4, 4, 0x80));
  CHECK(l.count == 1 && l.words[0] == a && AT(l.stream) == 0x80);
}

TEST(what_is_not_known_may_touch_anything)
{
  CHECK(READ(cuGraphLaunch, 0x9000, 0x40) && l.opaque && AT(l.stream) == 0x40 && !l.kernel);
  CHECK(AT(l.graph) == 0x9000);
  CHECK(READ(cuMemcpyWithAttributesAsync, a, b, 64, 0, 0x40) && l.count == 2 && l.work == 64);
  CHECK(AT(l.stream) == 0x40 && READ(cuMemcpy3DWithAttributesAsync, 0x10, 0, 0x40) && l.opaque);
  CHECK(READ(cuMemcpyBatchAsync, 0, 0, 0, 0, 0, 0, 0, 0, 0x40) && l.opaque);
  CHECK(AT(l.stream) == 0x40);
  CHECK(READ(cuLaunchGrid, 0x100, 1, 1) && l.opaque);
  CHECK(READ(cuLaunchHostFunc, 0x40, 0, 0) && !l.opaque && l.count == 0 && AT(l.stream) == 0x40);
}

TEST_MAIN
