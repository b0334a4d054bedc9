/* RMM logs and minimalloc problems: what is read, and the errors for wrong lines. */
#include "recordings/csv_trace.h"

#include "harness.h"
#include "recordings/recording_file.h"

static stow_status read_text(recording *r, const char *text) {
  input in;
  recording_init(r, 0);
  CHECK_OK(input_open_memory(&in, text, strlen(text), "log.csv", NULL));
  stow_status status = recording_read_input(r, &in, KIND_AUTO, 0);
  input_close(&in);
  if (status != STOW_OK) recording_free(r);
  return status;
}

#define RMM_HEAD "Thread,Time,Action,Pointer,Size,Stream\n"

TEST(an_rmm_log_is_read)
{
  recording r;
  CHECK_OK(read_text(&r, RMM_HEAD "4711,10:00:01.5,allocate,0x7f0000000000,1024,0x2\r\n"
                                  "4711,10:00:01.500001,allocate failure,0x0,99999,0\n"
                                  "4712,10:00:02:250000,free,0x7f0000000000,1024,0x2\n"));
  CHECK(r.source == SOURCE_RMM);
  CHECK_U64(r.event_count, 3);
  CHECK(r.events[0].kind == EVENT_ALLOC);
  CHECK_U64(r.events[0].addr, UINT64_C(0x7f0000000000));
  CHECK_U64(r.events[0].bytes, 1024);
  CHECK_U64(event_origin(&r, &r.events[0])->stream, 2);
  CHECK_U64(event_origin(&r, &r.events[0])->thread, 4711);
  CHECK_U64(r.events[1].time_ns - r.events[0].time_ns, 1000);
  CHECK(r.events[1].kind == EVENT_FAIL);
  CHECK_U64(r.events[1].bytes, 99999);
  CHECK(r.events[2].kind == EVENT_FREE);
  CHECK_U64(r.events[2].time_ns - r.events[0].time_ns, 750000000);
  CHECK_U64(r.skipped_events + r.bad_values + r.unknown_frees, 0);
  recording_free(&r);
}

TEST(an_rmm_log_in_seconds_and_over_midnight_is_read)
{
  recording r;
  CHECK_OK(read_text(&r, RMM_HEAD "1,1634567890.123456,allocate,0x100,8,0\n"
                                  "1,1634567890.123457,deallocate,0x100,8,0\n"));
  CHECK_U64(r.events[1].time_ns, UINT64_C(1634567890123457000));
  recording_free(&r);
  CHECK_OK(
      read_text(&r, RMM_HEAD "1,23:59:59.9,allocate,0x100,8,0\n1,00:00:00.1,free,0x100,8,0\n"));
  CHECK_U64(r.events[1].time_ns - r.events[0].time_ns, 200000000);
  recording_free(&r);
}

TEST(rows_of_an_rmm_log_that_cannot_be_are_counted)
{
  recording r;
  CHECK_OK(read_text(&r, RMM_HEAD "1,00:00:01,free,0x500,8,0\n"      /* never allocated */
                                  "1,00:00:02,allocate,0x600,-8,0\n" /* negative */
                                  "1,noon,allocate,0x600,8,0\n"      /* not a time */
                                  "1,00:00:03,borrow,0x600,8,0\n"    /* not an action */
                                  "1,00:00:04,allocate,0x600,8,0\n"
                                  "1,00:00:05,allocate,0x600,8,0\n")); /* a second time */
  CHECK_U64(r.event_count, 3);
  CHECK_U64(r.unknown_frees, 1);
  CHECK_U64(r.skipped_events, 3);
  CHECK_U64(r.bad_values, 3);
  recording_free(&r);
}

TEST(a_ragged_rmm_row_names_its_line)
{
  recording r;
  CHECK_STATUS(read_text(&r, RMM_HEAD "\n1,00:00:01,free,0x500\n"), STOW_ERR_FORMAT);
  CHECK_MESSAGE("line 3 has 4 fields and no Size");
  CHECK_STATUS(read_text(&r, "Action,Pointer\nfree,0x1\n"), STOW_ERR_FORMAT);
  CHECK_MESSAGE("no column \"Thread\"");
}

TEST(a_minimalloc_problem_becomes_events_in_order)
{
  recording r;
  CHECK_OK(
      read_text(&r, "\xef\xbb\xbfid,lower,upper,size\n\"b, 1\",3,9,100\nb2,0,3,50\nb3,3,4,7\n"));
  CHECK(r.source == SOURCE_MINIMALLOC);
  CHECK_U64(r.event_count, 6);
  static const struct {
    uint64_t time;
    uint8_t kind;
    const char *tag;
  } expected[] = {{0, EVENT_ALLOC, "b2"}, {3, EVENT_FREE, "b2"}, {3, EVENT_ALLOC, "b, 1"},
                  {3, EVENT_ALLOC, "b3"}, {4, EVENT_FREE, "b3"}, {9, EVENT_FREE, "b, 1"}};
  for (size_t i = 0; i < 6; i++) {
    CHECK_U64(r.events[i].time_ns, expected[i].time);
    CHECK_U64(r.events[i].kind, expected[i].kind);
    CHECK_TEXT(recording_text(&r, event_origin(&r, &r.events[i])->tag_id), expected[i].tag);
    CHECK_U64(event_origin(&r, &r.events[i])->stream, 0);
  }
  CHECK_U64(r.events[2].addr, r.events[5].addr);
  CHECK(r.events[2].addr != r.events[3].addr);
  recording_free(&r);
  CHECK_OK(read_text(&r, "id,lower,upper,size,offset\n1,0,1,5,4096\n"));
  CHECK_U64(r.events[0].addr, 4096);
  recording_free(&r);
}

TEST(a_wrong_minimalloc_row_names_its_line)
{
  recording r;
  static const struct {
    const char *text, *words;
  } bads[] = {
      {"id,lower,upper,size\n1,0,5,-3\n", "line 2: size is not a whole number: \"-3\""},
      {"id,lower,upper,size\n1,0,5,3\n2,5,5,3\n", "line 3: ends before it begins"},
      {"id,lower,upper,size\n1,x,5,3\n", "line 2: lower"},
      {"id,lower,upper,size\n1,0,99999999999999999999,3\n", "line 2: upper"},
      {"id,lower,upper\n1,0,5\n", "no column \"size\""},
      {"id,lower,upper,size\n1,0,5\n", "line 2: size"},
      {"id,lower,upper,size\n1,0,5,18446744073709551615\n", "2^64"},
  };
  for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
    CHECK_STATUS(read_text(&r, bads[i].text), STOW_ERR_FORMAT);
    CHECK_MESSAGE(bads[i].words);
  }
}

TEST_MAIN
