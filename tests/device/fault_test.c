/* The fault device: armed calls fail, others do not, and a sweep over every call of a job that uses
 * every entry leaves nothing behind. */
#include "base/status.h"
#include "device/sim_test.h"
#include "sweep.h"

static stow_device *open_fault(void) {
  stow_device *device = NULL;
  CHECK_OK(stow_fault_open(&device, open_device("sim:64M,paper")));
  return device;
}

static uint64_t failed_of(stow_device *d, stow_fault_kind kind) {
  uint64_t failed = 0;
  CHECK_OK(stow_fault_count(d, kind, NULL, &failed));
  return failed;
}

/* ---- arming ---- */

TEST(the_nth_call_of_a_kind_fails_and_no_other)
{
  stow_device *d = open_fault();
  stow_page page[4];
  stow_addr addr;
  CHECK_OK(device_page_create(d, &page[0], PAGE, STOW_TIER_VRAM));
  CHECK_OK(stow_fault_arm(d, STOW_FAULT_PAGE_CREATE, 2, false, STOW_ERR_OUT_OF_MEMORY));
  CHECK_OK(device_page_create(d, &page[1], PAGE, STOW_TIER_VRAM));
  CHECK_OK(device_reserve(d, &addr, PAGE, 0)); /* another kind does not count */
  CHECK_STATUS(device_page_create(d, &page[2], PAGE, STOW_TIER_VRAM), STOW_ERR_OUT_OF_MEMORY);
  CHECK_MESSAGE("page create call 3 was failed on purpose");
  CHECK_OK(device_page_create(d, &page[3], PAGE, STOW_TIER_VRAM));
  uint64_t calls = 0, failed = 0;
  CHECK_OK(stow_fault_count(d, STOW_FAULT_PAGE_CREATE, &calls, &failed));
  CHECK_U64(calls, 4);
  CHECK_U64(failed, 1);
  CHECK_OK(stow_fault_count(d, STOW_FAULT_ANY, &calls, &failed));
  CHECK_U64(calls, 5);
  CHECK_U64(failed, 1);
  CHECK_U64(counts_of(d).page_create, 3); /* the failed one never reached the device */
  CHECK_OK(device_page_release(d, page[0]));
  CHECK_OK(device_page_release(d, page[1]));
  CHECK_OK(device_page_release(d, page[3]));
  CHECK_OK(device_unreserve(d, addr, PAGE));
  CHECK_OK(stow_device_close(d));
}

TEST(with_every_all_calls_from_the_nth_fail_until_disarmed)
{
  stow_device *d = open_fault();
  stow_addr addr = 0;
  CHECK_OK(stow_fault_arm(d, STOW_FAULT_RESERVE, 3, true, STOW_ERR_DEVICE));
  for (int i = 1; i <= 6; i++) {
    stow_status status = device_reserve(d, &addr, PAGE, 0);
    CHECK_STATUS(status, i < 3 ? STOW_OK : STOW_ERR_DEVICE);
    if (status == STOW_OK) CHECK_OK(device_unreserve(d, addr, PAGE));
  }
  CHECK_U64(failed_of(d, STOW_FAULT_RESERVE), 4);
  CHECK_OK(stow_fault_arm(d, STOW_FAULT_RESERVE, 0, false, STOW_OK));
  CHECK_OK(device_reserve(d, &addr, PAGE, 0));
  CHECK_OK(device_unreserve(d, addr, PAGE));
  CHECK_OK(stow_device_close(d));
}

TEST(arming_what_is_not_there_is_refused)
{
  stow_device *d = open_fault(), *plain = open_device("sim:2M"), *none;
  CHECK_STATUS(stow_fault_arm(plain, STOW_FAULT_ANY, 1, false, STOW_ERR_DEVICE), STOW_ERR_INVALID);
  CHECK_MESSAGE("stow_fault_open");
  CHECK_STATUS(stow_fault_arm(NULL, STOW_FAULT_ANY, 1, false, STOW_ERR_DEVICE), STOW_ERR_INVALID);
  CHECK_STATUS(stow_fault_arm(d, STOW_FAULT_KIND_COUNT, 1, false, STOW_ERR_DEVICE),
               STOW_ERR_INVALID);
  CHECK_STATUS(stow_fault_arm(d, (stow_fault_kind)-1, 1, false, STOW_ERR_DEVICE), STOW_ERR_INVALID);
  CHECK_STATUS(stow_fault_arm(d, STOW_FAULT_ANY, 1, false, STOW_OK), STOW_ERR_INVALID);
  CHECK_STATUS(stow_fault_count(plain, STOW_FAULT_ANY, NULL, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(stow_fault_open(&none, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(stow_fault_open(NULL, plain), STOW_ERR_INVALID);
  CHECK_OK(stow_device_close(plain));
  CHECK_OK(stow_device_close(d));
}

TEST(closing_it_closes_the_inner_device_and_reports_its_leaks)
{
  stow_device *d = open_fault();
  stow_page page;
  CHECK_OK(device_page_create(d, &page, PAGE, STOW_TIER_VRAM));
  CHECK_STATUS(stow_device_close(d), STOW_ERR_STATE);
  CHECK_MESSAGE("1 pages");
}

/* ---- the sweep: a job that uses every entry, and cleans up whatever fails ---- */

typedef struct job {
  stow_device *d;
  stow_addr range, plain[2];
  stow_page page[2];
  bool mapped[2];
  stow_stream stream;
  stow_event event;
} job;

static stow_status job_work(job *j, unsigned char *bytes) {
  stow_device *d = j->d;
  stow_addr host = (stow_addr)(uintptr_t)bytes;
  STOW_TRY(device_fill(d, j->range, 7, 2 * PAGE, j->stream));
  STOW_TRY(device_copy(d, j->plain[0], j->range, PAGE, j->stream));
  STOW_TRY(device_event_record(d, j->event, j->stream));
  STOW_TRY(device_stream_wait(d, NULL, j->event));
  STOW_TRY(device_copy(d, j->plain[1], j->plain[0], PAGE, NULL));
  STOW_TRY(device_copy(d, host, j->plain[1], 64, NULL));
  stow_status query = device_event_query(d, j->event);
  if (query != STOW_OK && query != STOW_ERR_NOT_READY) return query;
  STOW_TRY(device_event_wait(d, j->event));
  return device_stream_sync(d, NULL);
}

static stow_status job_run(job *j, unsigned char *bytes) {
  stow_device *d = j->d;
  STOW_TRY(device_memory(d, STOW_TIER_VRAM, NULL, NULL));
  STOW_TRY(device_stream_create(d, &j->stream));
  STOW_TRY(device_event_create(d, &j->event));
  STOW_TRY(device_reserve(d, &j->range, 4 * PAGE, 0));
  for (int i = 0; i < 2; i++) {
    STOW_TRY(device_page_create(d, &j->page[i], PAGE, (stow_tier)i));
    STOW_TRY(device_map(d, j->range + (uint64_t)i * PAGE, PAGE, j->page[i]));
    j->mapped[i] = true;
    STOW_TRY(device_plain_alloc(d, &j->plain[i], PAGE, (stow_tier)i));
  }
  STOW_TRY(device_access(d, j->range, 2 * PAGE));
  return job_work(j, bytes);
}

/* Keeps the first failure of the cleanup. A call that failed is repeated: a single fault has passed
 * by then. */
static void again(sweep_result *first, stow_status (*call)(job *, int), job *j, int i) {
  sweep_result got = sweep_result_of(call(j, i));
  if (got.status == STOW_OK) return;
  if (first->status == STOW_OK) *first = got;
  call(j, i);
}

static stow_status end_sync(job *j, int i) {
  return device_stream_sync(j->d, i == 0 ? j->stream : NULL);
}
static stow_status end_unmap(job *j, int i) {
  return device_unmap(j->d, j->range + (uint64_t)i * PAGE, PAGE);
}
static stow_status end_release(job *j, int i) {
  return device_page_release(j->d, j->page[i]);
}
static stow_status end_plain(job *j, int i) {
  return device_plain_free(j->d, j->plain[i]);
}
static stow_status end_unreserve(job *j, int i) {
  (void)i;
  return device_unreserve(j->d, j->range, 4 * PAGE);
}
static stow_status end_event(job *j, int i) {
  (void)i;
  return device_event_destroy(j->d, j->event);
}
static stow_status end_stream(job *j, int i) {
  (void)i;
  return device_stream_destroy(j->d, j->stream);
}

static sweep_result every_entry(stow_device *d, unsigned char *bytes) {
  job j = {.d = d};
  sweep_result first = sweep_result_of(job_run(&j, bytes));
  if (j.stream != NULL) again(&first, end_sync, &j, 0);
  again(&first, end_sync, &j, 1);
  for (int i = 0; i < 2; i++) {
    if (j.mapped[i]) again(&first, end_unmap, &j, i);
    if (j.page[i] != 0) again(&first, end_release, &j, i);
    if (j.plain[i] != 0) again(&first, end_plain, &j, i);
  }
  if (j.range != 0) again(&first, end_unreserve, &j, 0);
  if (j.event != NULL) again(&first, end_event, &j, 0);
  if (j.stream != NULL) again(&first, end_stream, &j, 0);
  return first;
}

static sweep_result on_paper(stow_device *d) {
  unsigned char bytes[64];
  return every_entry(d, bytes);
}

static sweep_result with_bytes(stow_device *d) {
  unsigned char bytes[64] = {0}, want[64];
  memset(want, 7, sizeof want);
  sweep_result result = every_entry(d, bytes);
  if (result.status == STOW_OK && memcmp(bytes, want, sizeof want) != 0)
    FAIL("the job says it is done, but the bytes did not arrive");
  return result;
}

TEST(every_call_in_turn_may_fail_on_paper)
{
  uint64_t faults = sweep_run(&(sweep){.scenario = on_paper});
  harness_note("%" PRIu64 " faults swept", faults);
}

TEST(every_call_in_turn_may_fail_with_real_bytes)
{
  uint64_t faults = sweep_run(&(sweep){.device = "sim:64M,host=64M", .scenario = with_bytes});
  harness_note("%" PRIu64 " faults swept", faults);
}

TEST(every_kind_of_call_may_fail_from_any_point_on)
{
  uint64_t faults = 0;
  for (int kind = STOW_FAULT_RESERVE; kind < STOW_FAULT_KIND_COUNT; kind++)
    faults +=
        sweep_run(&(sweep){.scenario = on_paper, .kind = (stow_fault_kind)kind, .every = true});
  harness_note("%" PRIu64 " faults swept", faults);
}

TEST_MAIN
