/* Tables: quoting, line ends, ragged rows, and the types of columns. */
#include "data/table.h"

#include <stdlib.h>

#include "harness.h"

static const budget small = {.bytes = BUDGET_LEAST, .purpose = SCAN_FOR_STORAGE};
static file_facts facts;

static stow_status read_table(const char *text, size_t length, table_header header) {
  csv c;
  inspect_free(&facts);
  STOW_TRY(csv_open_memory(&c, text, length, "t.csv", table_row_max(&small), NULL));
  stow_status status = table_scan(&facts, &c, header, &small);
  csv_close(&c);
  return status;
}

static stow_status read_text(const char *text) {
  return read_table(text, strlen(text), HEADER_AUTO);
}

static void check_column(size_t i, const char *type, const char *smallest) {
  CHECK(i < facts.column_count);
  CHECK_TEXT(facts.columns[i].type_name, type);
  CHECK_TEXT(dtype_name(facts.columns[i].smallest), smallest);
}

TEST(columns_get_the_type_of_all_their_values)
{
  CHECK_OK(read_text("i,f,m,b,t,u,n\n"
                     "1,0.5,3,true,x,18446744073709551615,\n"
                     "-2,1e3,,False,y,1,nan\n"
                     "300,-0,7,TRUE,x,0,-inf\n"));
  CHECK(facts.has_header);
  CHECK_U64(facts.rows, 3);
  check_column(0, "int64", "int16");
  check_column(1, "float64", "float16");
  check_column(2, "float64", "float16");
  CHECK_U64(facts.columns[2].missing, 1);
  check_column(3, "bool", "bool");
  check_column(4, "text", "none"); /* three texts of one byte: codes are not smaller */
  CHECK_TEXT(text_layout_name(&facts.columns[4].layout), "fixed");
  CHECK_U64(facts.columns[4].bytes_after, 3);
  CHECK_U64(facts.columns[4].distinct, 2);
  check_column(5, "uint64", "uint64");
  check_column(6, "float64", "float16");
  CHECK_U64(facts.columns[6].values.infs, 1);
}

TEST(quotes_line_ends_and_marks_are_understood)
{
  CHECK_OK(read_text("\xef\xbb\xbf\"a,1\",\"b \"\"x\"\"\"\r\n\"1\",\"two\nlines, one field\"\r\n"
                     "\r\n 2 ,5\" pipe\r\n3,\"\""));
  CHECK_U64(facts.column_count, 2);
  CHECK_TEXT(facts.columns[0].name, "a,1");
  CHECK_TEXT(facts.columns[1].name, "b \"x\"");
  CHECK_U64(facts.rows, 3);
  check_column(0, "int64", "uint8");
  CHECK_U64(facts.columns[1].distinct, 2);
  CHECK_U64(facts.columns[1].missing, 1);
  CHECK_OK(read_text("1\t2\n3\t4\n"));
  CHECK_TEXT(facts.format, "tsv");
  CHECK(!facts.has_header);
  CHECK_U64(facts.rows, 2);
  CHECK_OK(read_text("a;b\n1,5;2\n"));
  CHECK_U64(facts.column_count, 2);
}

TEST(what_is_wrong_names_its_line)
{
  CHECK_STATUS(read_text("a,b\n1,2\n\"x\ny\",3\n4,5,6\n"), STOW_ERR_FORMAT);
  CHECK_MESSAGE("line 5: 3 fields, but the lines before it have 2");
  CHECK_STATUS(read_text("a,b\n1,\"x\"y\n"), STOW_ERR_FORMAT);
  CHECK_MESSAGE("line 2: text after a closing quote");
  CHECK_STATUS(read_text("a,b\n1,\"x\n"), STOW_ERR_FORMAT);
  CHECK_MESSAGE("line 2: unclosed quote");
  CHECK_STATUS(read_table("a,b\n1,x\0y\n", 10, HEADER_AUTO), STOW_ERR_FORMAT);
  CHECK_MESSAGE("line 2: a NUL byte");
  CHECK_OK(read_table("\xff\xfe\x61\0", 4, HEADER_AUTO));
  CHECK_STATUS(read_table("\xff\xfe\x61\0\n", 5, HEADER_AUTO), STOW_ERR_FORMAT);
  CHECK_MESSAGE("UTF-16");
  CHECK_STATUS(read_text(""), STOW_ERR_FORMAT);
  CHECK_MESSAGE("empty");
}

TEST(a_row_that_ends_early_lacks_its_last_values)
{
  CHECK_OK(read_text("a,b,c\n1,2,x\n\n3\n4,5\n6,7,\n"));
  CHECK_U64(facts.rows, 4);
  CHECK_U64(facts.short_rows, 2); /* an empty last field is no short row */
  CHECK_U64(facts.columns[0].missing, 0);
  CHECK_U64(facts.columns[1].missing, 1);
  CHECK_U64(facts.columns[2].missing, 3);
  check_column(0, "int64", "uint8");
  CHECK_TEXT(facts.columns[2].type_name, "text");
  CHECK_OK(read_text("a,b\n1,2\n"));
  CHECK_U64(facts.short_rows, 0);
}

TEST(row_names_without_a_name_are_an_index)
{
  CHECK_OK(
      read_text("\"x\" \"my name\"\n\"1\" 0.5 \"a b\"\n\"2\" NA \"c\"\n")); /* R's write.table */
  CHECK_U64(facts.column_count, 3);
  CHECK_TEXT(facts.columns[0].name, "index");
  CHECK_TEXT(facts.columns[2].name, "my name");
  CHECK_U64(facts.rows, 2);
  CHECK_U64(facts.columns[1].missing, 1);
  CHECK_OK(read_text("x,y\nr1,1,2\nr2,3,4\n"));
  CHECK(facts.column_count == 3 && facts.has_header);
  CHECK_STATUS(read_text("x,y\nr1,1,2\nr2,3\n"), STOW_ERR_FORMAT); /* not in every row */
  CHECK_STATUS(read_text("1,2\n3,4,5\n"), STOW_ERR_FORMAT);        /* numbers are no names */
  CHECK_OK(read_text("x y\n1.5 2\n3 4\n")); /* savetxt with a header and comments="" */
  CHECK_U64(facts.column_count, 2);
  CHECK_OK(read_text("city\nNew York\nLos Angeles\n"));
  CHECK_U64(facts.column_count, 1);
}

TEST(booleans_with_gaps_are_numbers)
{
  CHECK_OK(read_text("a,b,c\nTRUE,true,True\nFALSE,,0\nNA,false,False\n"));
  check_column(0, "float64", "float16");
  check_column(1, "float64", "float16");
  CHECK_U64(facts.columns[0].missing, 1);
  CHECK_TEXT(facts.columns[2].type_name, "text"); /* beside numbers */
}

TEST(a_row_longer_than_the_budget_is_refused)
{
  size_t length = (size_t)BUDGET_LEAST;
  char *text = malloc(length);
  CHECK(text != NULL);
  memset(text, 'x', length);
  CHECK_STATUS(read_table(text, length, HEADER_AUTO), STOW_ERR_BUDGET);
  CHECK_MESSAGE("--memory");
  memset(text, ',', length);
  CHECK_STATUS(read_table(text, length, HEADER_AUTO), STOW_ERR_BUDGET);
  free(text);
}

TEST(values_no_number_type_holds_together_are_text)
{
  CHECK_OK(read_text("a,b,c,d,e\n-1,9007199254740993,true,1,18446744073709551616\n"
                     "9223372036854775808,0.5,2,x,1\n"));
  for (size_t i = 0; i < 4; i++) CHECK_TEXT(facts.columns[i].type_name, "text");
  CHECK(facts.columns[0].mixed && !facts.columns[0].distinct_known);
  CHECK_U64(facts.columns[3].first_text_line, 3);
  CHECK_TEXT(facts.columns[4].type_name, "text");
  CHECK(facts.columns[0].rounds && facts.columns[1].rounds);
  for (size_t i = 2; i < 5; i++) CHECK(!facts.columns[i].rounds);
  CHECK_OK(read_text("id,n\n9007199254740993,1\n,2\n"));
  CHECK(facts.columns[0].text && facts.columns[0].rounds && !facts.columns[1].text);
}

TEST(more_distinct_text_than_the_budget_is_not_counted)
{
  buffer b = BUFFER_INIT;
  buffer_text(&b, "name\n");
  for (int i = 0; i < 60000; i++) buffer_printf(&b, "somebody%d\n", i);
  CHECK_OK(b.status);
  CHECK_OK(read_table(b.data, b.length, HEADER_AUTO));
  CHECK(!facts.columns[0].distinct_known && !facts.columns[0].mixed);
  buffer_free(&b);
}

static bool has_header(const char *text) {
  CHECK_OK(read_text(text));
  return facts.has_header;
}

TEST(numbers_may_be_names)
{
  CHECK(has_header(",0,1,2,3\n0,0.5,1,2,3\n1,0.25,5,6,7\n"));
  CHECK_TEXT(facts.columns[0].name, "index");
  CHECK(facts.pandas_index);
  CHECK_U64(facts.rows, 2);
  CHECK(has_header(",0.25,0.5\n0,1,2\n1,3,4\n"));
  CHECK(has_header(",0,1\n7,0.5,1\n9,0.25,5\n") && !facts.pandas_index);
  CHECK(has_header(",0,1\n"));
  CHECK(has_header(",a,b\nx,1,2\ny,3,4\n") && !facts.pandas_index);
  CHECK_TEXT(facts.columns[0].name, "index");
  CHECK(has_header(",2019,2020\n2024-01-01,0.5,1\n2024-01-02,0.25,5\n"));
  CHECK(has_header(",2020,2019\nUS,1,1\nUK,2,5\n"));
  CHECK(has_header(",0.5,1,1.5\n2024-01-01,5,1,2\n2024-01-02,3,5,4\n"));
  CHECK(has_header(",,2019,2020\nUS,m,1,2\nUK,f,3,4\n"));
  CHECK(has_header(",3,9\n4,0.5,1.5\n8,0.25,5\n"));
  CHECK(has_header("country,2019,2020\nUS,1.5,2\nUK,3,4\n"));
  CHECK(has_header("country,2019,2020\nUS,2019,2020\nUS,2019,2020\n"));
  CHECK(has_header("id,inf,x\n1,2,3\n"));
  CHECK(has_header("name,inf\nanna,0.5\nbob,1\n"));
  CHECK(has_header("0,1\na,b\nc,d\n"));
  CHECK(has_header("0,1,2\n0.5,1,2\n"));
  CHECK(has_header("a,1.5,NA\n1,2,3\n"));
}

TEST(rows_of_data_are_no_names)
{
  CHECK(!has_header("1,2,3\n4,5,6\n"));
  CHECK(!has_header("0,1,2\n3,4,5\n"));
  CHECK(!has_header("0\n0.5\n"));
  CHECK(!has_header("1.5 , 2\n3,4\n"));
  CHECK(!has_header("nan,inf\n1,2\n"));
  CHECK(!has_header(",2.5,3\n7,5,6\n"));
  CHECK(!has_header(",4,3\n7,5,6\n"));
  CHECK(!has_header(",4,3\n7,5,6\n8,1,2\n"));
  CHECK(!has_header(",4.5,3\nUS,5,6\nUK,1,2\n"));
  CHECK(!has_header(",4,3\nUS,5,6\n,1,2\n"));
  CHECK(!has_header(",7,7\nUS,5,6\nUK,1,2\n"));
  CHECK(!has_header("2019,2020\n1.5,2.5\n"));
  CHECK(!has_header("5.1,3.5,setosa\n4.9,3.0,virginica\n"));
  CHECK(!has_header("39,State-gov,77516\n50,Private,83311\n38,State-gov,215646\n"));
  CHECK(!has_header("1,anna\n2,bob\n3,carl\n"));
  CHECK(!has_header("?,1.5,3\n2,2.5,4\n"));
  CHECK(!has_header("7,7,x\n8,9,y\n"));
}

TEST(the_header_can_be_given)
{
  CHECK_OK(read_table("1,2\n3,4\n", 8, HEADER_YES));
  CHECK_TEXT(facts.columns[1].name, "2");
  CHECK_U64(facts.rows, 1);
  CHECK_OK(read_table("a,b\nc,d\n", 8, HEADER_NO));
  CHECK_U64(facts.rows, 2);
  CHECK_TEXT(facts.columns[1].name, "1");
}

TEST_MAIN
