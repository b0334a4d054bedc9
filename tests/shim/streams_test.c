/* Streams: which work is waited for. The driver is a table of functions that record their calls. */
#include "shim/streams.h"

#include "harness.h"
#include "shim/gate.h"
#include "shim/shim.h"

enum { EVENTS = 256 };

static cu_context here = (cu_context)(uintptr_t)16;
static struct {
  cu_stream stream;
  int records;
  bool reached, ended;
} events[EVENTS];
static int event_count, records;
static cu_result record_answer, create_answer;
static bool at_gate;

bool gate_pending(void) {
  return at_gate;
}

static cu_result get_current(cu_context *context) {
  *context = here;
  return CU_OK;
}
static cu_result push(cu_context context) {
  here = context;
  return CU_OK;
}
static cu_result pop(cu_context *context) {
  *context = here;
  here = (cu_context)(uintptr_t)16;
  return CU_OK;
}
static cu_result create(cu_event *event, unsigned flags) {
  (void)flags;
  if (create_answer != CU_OK) return create_answer;
  *event = (cu_event)(uintptr_t)(++event_count);
  return CU_OK;
}
static cu_result record(cu_event event, cu_stream stream) {
  if (record_answer != CU_OK) return record_answer;
  events[(uintptr_t)event].stream = stream;
  events[(uintptr_t)event].records++;
  events[(uintptr_t)event].reached = false;
  records++;
  return CU_OK;
}
static cu_result query(cu_event event) {
  return events[(uintptr_t)event].reached ? CU_OK : CU_ERROR_NOT_READY;
}
static cu_result destroy(cu_event event) {
  events[(uintptr_t)event].ended = true;
  return CU_OK;
}

static cuda_driver driver;
const cuda_driver *shim_driver(void) {
  driver.cuCtxGetCurrent = get_current;
  driver.cuCtxPushCurrent_v2 = push;
  driver.cuCtxPopCurrent_v2 = pop;
  driver.cuEventCreate = create;
  driver.cuEventRecord = record;
  driver.cuEventQuery = query;
  driver.cuEventDestroy_v2 = destroy;
  return &driver;
}

static cu_stream stream(unsigned n) {
  return (cu_stream)(uintptr_t)(n * 64);
}
static void reach_all(void) {
  for (int i = 0; i < EVENTS; i++) events[i].reached = true;
}

static uint64_t last = 1;
static bool mark(void) {
  last = streams_mark();
  return last != 0;
}
/* Returns whether all work before the last mark is done. */
static cu_result passed(void) {
  return streams_passed(last);
}

TEST(work_is_waited_for_until_its_event)
{
  streams_used(stream(1));
  CHECK(passed() == CU_OK); /* nothing is marked */
  CHECK(mark() && records == 1);
  CHECK(passed() == CU_ERROR_NOT_READY);
  reach_all();
  CHECK(passed() == CU_OK);
  CHECK(mark() && records == 1); /* no work since then */
  streams_used(stream(1));
  CHECK(mark() && records == 2 && event_count == 1);
}

TEST(marks_are_reached_one_after_another)
{
  uint64_t marks[3];
  for (int i = 0; i < 3; i++) {
    streams_used(stream(1));
    if (i == 1) streams_used(stream(2));
    marks[i] = streams_mark();
    CHECK(marks[i] != 0 && (i == 0 || marks[i] > marks[i - 1]));
  }
  CHECK(records == 4 && event_count >= 4);
  for (int i = 1; i <= event_count; i++)
    if (events[i].stream == stream(1)) events[i].reached = true;
  /* The second stream has not reached the second mark, so the third does not count either. */
  CHECK(streams_last_passed() == marks[0]);
  CHECK(streams_passed(marks[0]) == CU_OK && streams_passed(marks[1]) == CU_ERROR_NOT_READY);
  reach_all();
  CHECK(streams_last_passed() == marks[2]);
}

TEST(the_last_mark_moves_if_too_many_are_pending)
{
  uint64_t marks[80];
  for (int i = 0; i < 80; i++) {
    streams_used(stream(1));
    marks[i] = streams_mark();
    CHECK(marks[i] != 0);
  }
  CHECK(marks[79] == marks[63] && marks[62] == marks[63] - 1 && event_count == 64);
  /* Its event was recorded again, so the mark is later now. */
  for (int i = 1; i <= event_count; i++) events[i].reached = events[i].records == 1;
  CHECK(streams_last_passed() == marks[62] && streams_passed(marks[63]) == CU_ERROR_NOT_READY);
  reach_all();
  CHECK(streams_passed(marks[79]) == CU_OK);
  streams_used(stream(1)); /* the events are used again */
  CHECK(streams_mark() == marks[79] + 1 && event_count == 64);
}

TEST(each_stream_and_each_default_one_has_its_event)
{
  streams_used(stream(1));
  streams_used(stream(2));
  streams_used(NULL);
  here = (cu_context)(uintptr_t)32;
  streams_used(NULL);
  streams_used(stream(2));
  here = (cu_context)(uintptr_t)16;
  CHECK(mark() && records == 4 && event_count == 4);
  for (int i = 1; i <= 3; i++) events[i].reached = true;
  CHECK(passed() == CU_ERROR_NOT_READY);
  reach_all();
  CHECK(passed() == CU_OK);
}

/* A call was reported to us, and the mark comes before it reaches the driver. */
TEST(a_call_at_the_gate_keeps_its_stream_in_use)
{
  streams_used(stream(1));
  at_gate = true;
  CHECK(mark() && records == 1);
  reach_all();
  CHECK(passed() == CU_OK);
  at_gate = false; /* it has reached the driver, after the event */
  CHECK(mark() && records == 2);
  CHECK(passed() == CU_ERROR_NOT_READY);
}

TEST(a_destroyed_stream_is_waited_for_once)
{
  streams_used(stream(1));
  streams_destroyed(stream(1));
  CHECK(mark() && records == 1 && passed() == CU_ERROR_NOT_READY);
  streams_used(stream(1)); /* another with the same handle */
  CHECK(mark() && records == 2 && event_count == 3);
  reach_all();
  CHECK(passed() == CU_OK && events[1].ended && !events[2].ended && !events[3].ended);
  streams_destroyed(stream(1));
  CHECK(records == 2 && events[2].ended && events[3].ended);
  streams_destroyed(stream(9));
  streams_destroyed(NULL);
}

TEST(what_cannot_be_followed_is_lost)
{
  CHECK(streams_lost()); /* earlier work is unknown */
  streams_found();
  CHECK(!streams_lost());
  create_answer = CU_ERROR_OUT_OF_MEMORY;
  streams_used(stream(1));
  CHECK(streams_lost());
  streams_found();
  create_answer = CU_OK;
  for (unsigned i = 1; i <= 64; i++) streams_used(stream(i));
  CHECK(!streams_lost());
  streams_used(stream(65));
  CHECK(streams_lost());
  streams_found();
  record_answer = CU_ERROR_UNKNOWN;
  CHECK(!mark());
  streams_destroyed(stream(3));
  CHECK(streams_lost());
}

TEST(a_context_that_ended_is_not_asked)
{
  streams_used(stream(1));
  streams_used(NULL);
  CHECK(mark() && records == 2);
  streams_context_ended(here);
  CHECK(passed() == CU_OK);
  CHECK(mark() && records == 2);
  streams_used(stream(1));
  CHECK(mark() && records == 3);
  streams_context_ended(NULL);
  CHECK(passed() == CU_OK);
}

TEST_MAIN
