/* Table: columns line up, in characters and not in bytes; no line ends in spaces. */
#include "base/table.h"

#include "harness.h"

static void cells(table *t, const char *const *texts) {
  for (; *texts != NULL; texts++) table_cell(t, *texts);
}

TEST(columns_line_up_left_and_right)
{
  static const char *const texts[] = {"tier", "used", "by",  "vram", "1.5 GiB",
                                      "",     "host", "0 B", "numa", NULL};
  table t = TABLE_INIT(3, 1u << 1);
  buffer out = BUFFER_INIT;
  cells(&t, texts);
  table_write(&t, &out, 2, false);
  CHECK_TEXT(out.data, "  tier     used  by\n"
                       "  vram  1.5 GiB\n"
                       "  host      0 B  numa\n");
  buffer_free(&out);
}

TEST(width_is_counted_in_characters)
{
  static const char *const texts[] = {"n", "x", "\xc3\xa9\xc3\xa9", "y", "abc", "z", NULL};
  table t = TABLE_INIT(2, 0);
  buffer out = BUFFER_INIT;
  cells(&t, texts);
  table_write(&t, &out, 0, false);
  CHECK_TEXT(out.data, "n    x\n\xc3\xa9\xc3\xa9   y\nabc  z\n");
  buffer_free(&out);
}

TEST(a_last_row_that_is_short_is_filled)
{
  table t = TABLE_INIT(3, 0);
  buffer out = BUFFER_INIT;
  table_cell(&t, "a");
  table_printf(&t, "%d", 7);
  table_size(&t, UINT64_C(3) << 30);
  table_cell(&t, "b");
  table_write(&t, &out, 0, true);
  CHECK_TEXT(out.data, "\033[1ma  7  3.0 GiB\033[0m\nb\n");
  buffer_free(&out);
}

TEST(an_empty_table_is_no_lines)
{
  table t = TABLE_INIT(3, 0);
  buffer out = BUFFER_INIT;
  table_write(&t, &out, 0, true);
  CHECK_U64(out.length, 0);
  buffer_free(&out);
}

TEST(a_bound_that_is_passed_is_reported_in_the_output)
{
  table t = TABLE_INIT(1, 0);
  t.cells.max = 4;
  buffer out = BUFFER_INIT;
  table_cell(&t, "longer than four");
  table_write(&t, &out, 0, false);
  CHECK_STATUS(out.status, STOW_ERR_BUDGET);
  buffer_free(&out);
}

TEST_MAIN

TEST(on_a_narrow_screen_text_wraps_in_its_column)
{
  static const char *const texts[] = {
      "setting", "limit", "one_setting:4,another_setting:8", "1 GiB", "b", "2 GiB", NULL};
  table t = TABLE_INIT(2, 1u << 1);
  buffer out = BUFFER_INIT;
  cells(&t, texts);
  table_fit(30);
  table_write(&t, &out, 0, false);
  table_fit(0);
  CHECK_TEXT(out.data, "setting                  limit\n"
                       "one_setting:4,           1 GiB\n"
                       "another_setting:8\n"
                       "b                        2 GiB\n");
  buffer_free(&out);
}

TEST(on_a_narrower_one_numbers_are_left_out_and_named)
{
  static const char *const texts[] = {"policy",  "peak",    "hole", "calls", "torch_default",
                                      "3.0 GiB", "1.0 GiB", "12",   NULL};
  table t = TABLE_INIT(4, 14);
  buffer out = BUFFER_INIT;
  cells(&t, texts);
  table_fit(25);
  table_write(&t, &out, 0, false);
  table_fit(0);
  CHECK_TEXT(out.data, "policy            peak\n"
                       "torch_default  3.0 GiB\n"
                       "(a wider screen also shows: hole, calls)\n");
  buffer_free(&out);
}

TEST(cells_have_colours_only_where_colours_are_shown)
{
  for (int color = 0; color < 2; color++) {
    table t = TABLE_INIT(2, 0);
    buffer out = BUFFER_INIT;
    table_cell(&t, "a");
    table_cell(&t, "b");
    table_cell(&t, "x");
    table_cell(&t, "fails");
    table_color(&t, TABLE_BAD);
    table_write(&t, &out, 0, color == 1);
    CHECK_TEXT(out.data,
               color == 1 ? "\033[1ma  b\033[0m\nx  \033[31mfails\033[0m\n" : "a  b\nx  fails\n");
    buffer_free(&out);
  }
}
