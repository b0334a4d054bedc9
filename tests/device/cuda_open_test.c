/* The cuda backend with a stand-in driver: finding a device, contexts and threads, readable errors,
 * closing. */
#include <pthread.h>

#include "cuda_standin_use.h"
#include "device/cuda_driver.h"
#include "device/cuda_open.h"

TEST(no_driver_counts_no_devices_and_opening_says_why)
{
  int count = 7;
  stow_device *d;
  setenv("STOWAGE_LIBCUDA", "/nowhere/libcuda.so.1", 1);
  CHECK_OK(stow_device_count(&count));
  CHECK(count == 0);
  CHECK_STATUS(cuda_open(&d, "0"), STOW_ERR_NOT_FOUND);
  CHECK(d == NULL);
  CHECK_MESSAGE("/nowhere/libcuda.so.1");
  CHECK_MESSAGE("sim:16G");
}

TEST(a_driver_that_sees_no_device_counts_none)
{
  int count = 7;
  stow_device *d;
  standin_use();
  setenv("STANDIN_DEVICES", "0", 1);
  CHECK_OK(stow_device_count(&count));
  CHECK(count == 0);
  CHECK_STATUS(cuda_open(&d, "0"), STOW_ERR_NOT_FOUND);
  CHECK_MESSAGE("CUDA_VISIBLE_DEVICES");
}

TEST(a_driver_that_is_broken_is_an_error_not_an_empty_machine)
{
  int count;
  standin_use();
  setenv("STANDIN_FAIL", "cuInit:999", 1);
  CHECK_STATUS(stow_device_count(&count), STOW_ERR_DEVICE);
  CHECK_MESSAGE("CUDA_ERROR_UNKNOWN (999)");
  CHECK_MESSAGE("Xid");
}

TEST(devices_are_found_by_index_and_by_a_unique_uuid_prefix)
{
  stow_device *d;
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  setenv("STANDIN_DEVICES", "2", 1);
  d = standin_open("1");
  CHECK_OK(device_props(d, &props));
  CHECK(props.index == 1);
  CHECK_TEXT(props.uuid, "GPU-abababab-abab-abab-abab-ababababab01");
  CHECK_OK(stow_device_close(d));
  CHECK_OK(cuda_open(&d, "gpu-ABABABAB-abab-abab-abab-ababababab00"));
  CHECK_OK(device_props(d, &props));
  CHECK(props.index == 0);
  CHECK_OK(stow_device_close(d));
  CHECK_STATUS(cuda_open(&d, "GPU-abab"), STOW_ERR_NOT_FOUND);
  CHECK_MESSAGE("2 devices");
  CHECK_STATUS(cuda_open(&d, "GPU-cd"), STOW_ERR_NOT_FOUND);
  CHECK_STATUS(cuda_open(&d, "2"), STOW_ERR_NOT_FOUND);
  CHECK_MESSAGE("2 devices, 0 to 1");
  CHECK_STATUS(cuda_open(&d, "fastest"), STOW_ERR_NOT_FOUND);
  CHECK_MESSAGE("not a device index");
  CHECK_STATUS(cuda_open(&d, "-1"), STOW_ERR_NOT_FOUND);
}

TEST(properties_are_what_the_driver_reports)
{
  stow_device *d = standin_open("0");
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  CHECK_OK(device_props(d, &props));
  CHECK_TEXT(props.kind, "cuda");
  CHECK_TEXT(props.name, "Stand-in 0");
  CHECK(props.driver_version == 13000 && props.compute_major == 9 && props.has_vmm);
  CHECK_U64(props.page_bytes, PAGE);
  CHECK_U64(props.vram_bytes, UINT64_C(1) << 30);
  uint64_t free_bytes, total_bytes;
  CHECK_OK(stow_device_memory(d, STOW_TIER_VRAM, &free_bytes, &total_bytes));
  CHECK_U64(total_bytes, UINT64_C(1) << 30);
  CHECK_OK(stow_device_memory(d, STOW_TIER_HOST, &free_bytes, &total_bytes));
  CHECK(free_bytes <= total_bytes && total_bytes > 0);
  CHECK_STATUS(stow_device_memory(d, STOW_TIER_DISK, &free_bytes, NULL), STOW_ERR_UNSUPPORTED);
  CHECK_OK(stow_device_close(d));
}

TEST(opening_starts_no_child)
{
  stow_device *d;
  standin_use();
  setenv("STOWAGE_COMMAND", "/nowhere/stowage", 1); /* would be reported if it were used */
  CHECK_OK(cuda_open(&d, "0"));
  setenv("STOWAGE_COMMAND", STANDIN_COMMAND, 1);
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  CHECK_OK(device_props(d, &props));
  CHECK(props.host_backing == STOW_HOST_NUMA);
  CHECK_OK(stow_device_close(d));
}

/* ---- contexts and threads ---- */

TEST(the_programs_own_context_and_capture_mode_are_left_alone)
{
  setenv("STANDIN_DEVICES", "2", 1);
  stow_device *d = standin_open("1");
  CHECK(STANDIN_DEPTH() == 0);
  void *other;
  cu_result (*retain)(void **, int) =
      (cu_result(*)(void **, int))(uintptr_t)standin_symbol("cuDevicePrimaryCtxRetain");
  cu_result (*set)(void *) = (cu_result(*)(void *))(uintptr_t)standin_symbol("cuCtxSetCurrent");
  cu_result (*get)(void **) = (cu_result(*)(void **))(uintptr_t)standin_symbol("cuCtxGetCurrent");
  CHECK(retain(&other, 0) == 0 && set(other) == 0);
  stow_addr addr;
  CHECK_OK(device_plain_alloc(d, &addr, 4096, STOW_TIER_VRAM));
  CHECK_OK(device_fill(d, addr, 1, 4096, NULL));
  CHECK_STATUS(device_plain_free(d, addr + 1), STOW_ERR_STATE); /* errors do not change it either */
  STANDIN_FAIL("cuMemAlloc_v2", 2, 1);
  stow_addr none;
  CHECK_STATUS(device_plain_alloc(d, &none, 4096, STOW_TIER_VRAM), STOW_ERR_OUT_OF_MEMORY);
  STANDIN_FAIL(NULL, 0, 0);
  void *now;
  CHECK(get(&now) == 0 && now == other && STANDIN_DEPTH() == 1);
  CHECK(STANDIN_CAPTURE() == 0);
  CHECK_OK(device_plain_free(d, addr));
  CHECK_OK(stow_device_close(d));
  CHECK(get(&now) == 0 && now == other && STANDIN_DEPTH() == 1);
}

TEST(a_context_that_is_current_already_is_not_pushed)
{
  stow_device *d = standin_open("0");
  CHECK_OK(device_thread_enter(d));
  CHECK(STANDIN_CAPTURE() == CU_CAPTURE_RELAXED);
  int before = STANDIN_CALLS("cuCtxPushCurrent_v2");
  CHECK_OK(stow_device_memory(d, STOW_TIER_VRAM, NULL, NULL));
  CHECK(STANDIN_CALLS("cuCtxPushCurrent_v2") == before);
  CHECK(STANDIN_CAPTURE() == CU_CAPTURE_RELAXED);
  CHECK_OK(stow_device_close(d));
  CHECK(STANDIN_DEPTH() == 0 && STANDIN_LIVE() == 0);
}

static void *use_from_thread(void *argument) {
  stow_device *d = argument;
  uint64_t random = (uintptr_t)&random;
  for (int i = 0; i < 200; i++) {
    stow_page page;
    stow_addr addr;
    uint64_t bytes = PAGE * (1 + harness_random(&random) % 3);
    CHECK_OK(device_reserve(d, &addr, bytes, 0));
    CHECK_OK(device_page_create(d, &page, bytes, STOW_TIER_VRAM));
    CHECK_OK(device_map(d, addr, bytes, page));
    CHECK_OK(device_access(d, addr, bytes));
    CHECK_OK(device_fill(d, addr, 3, 64, NULL));
    CHECK_STATUS(device_page_release(d, page), STOW_ERR_STATE);
    CHECK_OK(device_unmap(d, addr, bytes));
    CHECK_OK(device_page_release(d, page));
    CHECK_OK(device_unreserve(d, addr, bytes));
  }
  return NULL;
}

TEST(many_threads_use_one_device)
{
  stow_device *d = standin_open("0");
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, use_from_thread, d) == 0);
  for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_OK(stow_device_close(d));
  CHECK(STANDIN_LIVE() == 0);
}

/* ---- errors ---- */

TEST(error_numbers_become_statuses)
{
  static const struct {
    int code;
    stow_status status;
  } CASES[] = {{0, STOW_OK},
               {1, STOW_ERR_INVALID},
               {2, STOW_ERR_OUT_OF_MEMORY},
               {3, STOW_ERR_STATE},
               {100, STOW_ERR_NOT_FOUND},
               {201, STOW_ERR_DEVICE_LOST},
               {304, STOW_ERR_DEVICE},
               {400, STOW_ERR_INVALID},
               {600, STOW_ERR_NOT_READY},
               {700, STOW_ERR_DEVICE_LOST},
               {701, STOW_ERR_DEVICE},
               {704, STOW_ERR_DEVICE},
               {712, STOW_ERR_DEVICE},
               {716, STOW_ERR_DEVICE_LOST},
               {719, STOW_ERR_DEVICE_LOST},
               {720, STOW_ERR_DEVICE},
               {801, STOW_ERR_UNSUPPORTED},
               {900, STOW_ERR_STATE},
               {999, STOW_ERR_DEVICE},
               {123456, STOW_ERR_DEVICE}};
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
    if (cuda_status_of(CASES[i].code) != CASES[i].status)
      FAIL("%d became %s", CASES[i].code, stow_status_name(cuda_status_of(CASES[i].code)));
}

TEST(out_of_memory_says_how_much_there_is)
{
  setenv("STANDIN_VRAM", "8388608", 1);
  stow_device *d = standin_open("0");
  stow_page page, none = 9;
  CHECK_OK(device_page_create(d, &page, 6 * MIB, STOW_TIER_VRAM));
  CHECK_STATUS(device_page_create(d, &none, 4 * MIB, STOW_TIER_VRAM), STOW_ERR_OUT_OF_MEMORY);
  CHECK(none == 0);
  CHECK_MESSAGE("4.0 MiB");
  CHECK_MESSAGE("2.0 MiB of 8.0 MiB free");
  CHECK_MESSAGE("CUDA_ERROR_OUT_OF_MEMORY");
  CHECK_OK(device_page_release(d, page));
  CHECK_OK(device_page_create(d, &page, 8 * MIB, STOW_TIER_VRAM)); /* the failure took nothing */
  CHECK_OK(device_page_release(d, page));
  CHECK_OK(stow_device_close(d));
}

TEST(a_device_fault_is_final_and_closing_still_works)
{
  stow_device *d = standin_open("0");
  stow_addr addr;
  CHECK_OK(device_plain_alloc(d, &addr, 4096, STOW_TIER_VRAM));
  STANDIN_FAIL("cuMemsetD8Async", 700, 1);
  CHECK_STATUS(device_fill(d, addr, 1, 16, NULL), STOW_ERR_DEVICE_LOST);
  CHECK_MESSAGE("CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access");
  int asked = STANDIN_CALLS("cuMemGetInfo_v2");
  CHECK_STATUS(stow_device_memory(d, STOW_TIER_VRAM, NULL, NULL), STOW_ERR_DEVICE_LOST);
  CHECK_MESSAGE("lost");
  CHECK(STANDIN_CALLS("cuMemGetInfo_v2") == asked);
  CHECK_STATUS(device_thread_enter(d), STOW_ERR_DEVICE_LOST);
  CHECK_STATUS(stow_device_close(d), STOW_ERR_STATE);
}

TEST(a_context_destroyed_by_the_program_is_a_lost_device)
{
  stow_device *d = standin_open("0");
  cu_result (*release)(int) =
      (cu_result(*)(int))(uintptr_t)standin_symbol("cuDevicePrimaryCtxRelease_v2");
  CHECK(release(0) == 0);
  CHECK_STATUS(stow_device_memory(d, STOW_TIER_VRAM, NULL, NULL), STOW_ERR_DEVICE_LOST);
  CHECK_MESSAGE("cudaDeviceReset");
  CHECK_OK(stow_device_close(d));
}

TEST(words_for_a_code_are_the_drivers)
{
  stow_device *d = standin_open("0");
  CHECK_TEXT(d->ops->error_text(d, 2), "out of memory");
  CHECK_TEXT(d->ops->error_text(d, 31337), "");
  CHECK_OK(stow_device_close(d));
}

/* ---- someone else's resolver ---- */

typedef struct withheld {
  const char *name;
  int asked;
} withheld;

static void *resolve_but(void *user, const char *name) {
  withheld *w = user;
  w->asked++;
  if (w->name != NULL && strcmp(name, w->name) == 0) return NULL;
  return dlsym(dlopen(STANDIN_CUDA, RTLD_NOW), name);
}

TEST(a_device_opens_through_pointers_handed_down)
{
  withheld w = {NULL, 0};
  stow_device *d;
  stow_addr addr;
  standin_use();
  setenv("STOWAGE_LIBCUDA", "/nowhere/libcuda.so.1", 1); /* only the pointers lead to a driver */
  CHECK_OK(cuda_open_with(&d, "0", resolve_but, &w));
  CHECK(w.asked > 30);
  CHECK_OK(device_plain_alloc(d, &addr, 4096, STOW_TIER_VRAM));
  CHECK_OK(device_plain_free(d, addr));
  CHECK_OK(stow_device_close(d));
}

TEST(a_needed_function_that_is_missing_is_named)
{
  withheld w = {"cuMemAlloc_v2", 0};
  stow_device *d;
  standin_use();
  CHECK_STATUS(cuda_open_with(&d, "0", resolve_but, &w), STOW_ERR_UNSUPPORTED);
  CHECK(d == NULL);
  CHECK_MESSAGE("cuMemAlloc_v2");
}

TEST(a_missing_page_function_leaves_plain_allocations)
{
  withheld w = {"cuMemUnmap", 0};
  stow_device *d;
  stow_addr addr;
  stow_page page;
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  standin_use();
  CHECK_OK(cuda_open_with(&d, "0", resolve_but, &w));
  CHECK_OK(device_props(d, &props));
  CHECK(!props.has_vmm);
  CHECK_STATUS(device_page_create(d, &page, PAGE, STOW_TIER_VRAM), STOW_ERR_UNSUPPORTED);
  CHECK_STATUS(device_reserve(d, &addr, PAGE, 0), STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("plain allocations work");
  CHECK_OK(device_plain_alloc(d, &addr, PAGE, STOW_TIER_VRAM));
  CHECK_OK(device_plain_free(d, addr));
  CHECK_OK(stow_device_close(d));
}

/* ---- closing ---- */

TEST(closing_gives_back_what_was_forgotten_and_counts_it)
{
  stow_device *d = standin_open("0");
  stow_addr addr, plain, host;
  stow_page page, lone;
  stow_stream stream;
  stow_event event;
  CHECK_OK(device_reserve(d, &addr, 8 * PAGE, 0));
  CHECK_OK(device_page_create(d, &page, 2 * PAGE, STOW_TIER_VRAM));
  CHECK_OK(device_page_create(d, &lone, PAGE, STOW_TIER_HOST));
  CHECK_OK(device_map(d, addr + PAGE, 2 * PAGE, page));
  CHECK_OK(device_map(d, addr + 5 * PAGE, 2 * PAGE, page));
  CHECK_OK(device_plain_alloc(d, &plain, 100, STOW_TIER_VRAM));
  CHECK_OK(device_plain_alloc(d, &host, 100, STOW_TIER_HOST));
  CHECK_OK(device_stream_create(d, &stream));
  CHECK_OK(device_event_create(d, &event));
  CHECK_STATUS(stow_device_close(d), STOW_ERR_STATE);
  CHECK_MESSAGE("2 pages (6.0 MiB), 1 ranges (2 mappings in them), 2 plain allocations, 1 streams, "
                "1 events");
  CHECK(STANDIN_LIVE() == 0);
}

TEST_MAIN
