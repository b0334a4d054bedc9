/* Blocks of a table with every instruction set of this machine: values compared with strtod, and
 * every set with the portable one. */
#include "arrays/csv_block.h"

#include <math.h>
#include <stdlib.h>

#include "arrays/csv_block_parts.h"
#include "harness.h"

enum { COLUMNS_MAX = 9, TEXT_MAX = 1 << 20 };

typedef struct block {
  csv_block b;
  csv_column columns[COLUMNS_MAX];
  uint64_t *values;
  uint64_t odd_rows, odd_lines; /* rows left to the caller, and the sum of their lines */
} block;

static stow_status code(void *context, size_t column, const char *text, size_t length,
                        uint64_t *to) {
  (void)context;
  *to = column;
  for (size_t i = 0; i < length; i++) *to = *to * 31 + (unsigned char)text[i];
  return STOW_OK;
}

/* Adds a row like the table reader, without its counting. */
static stow_status add_row(void *context, csv *c) {
  block *k = context;
  k->odd_rows++;
  k->odd_lines += c->line;
  for (size_t i = 0; i < k->b.count; i++) {
    const csv_field *f = &c->fields[i];
    csv_column *to = &k->columns[i];
    if (to->form == CSV_CODES) {
      code(k, i, f->text, f->length, &to->values[k->b.rows]);
      continue;
    }
    switch (f->kind) {
    case CSV_SIGNED:
    case CSV_BOOL: csv_column_integer(to, k->b.rows, f->value.i); break;
    case CSV_UNSIGNED: csv_column_wide(to, k->b.rows, f->value.u); break;
    case CSV_FLOAT: csv_column_float(to, k->b.rows, f->value.d); break;
    case CSV_MISSING: csv_column_float(to, k->b.rows, (double)NAN); break;
    case CSV_TEXT:
      to->form = CSV_CODES;
      memset(to->values, 0, k->b.rows * sizeof *to->values);
      code(k, i, f->text, f->length, &to->values[k->b.rows]);
      break;
    }
  }
  return STOW_OK;
}

/* Parses `text` with only `front` readable bytes before it. */
static stow_status read_block(block *k, const char *text, size_t length, size_t front,
                              size_t columns, csv_form form, const csv_loops *by) {
  uint8_t *window = malloc(front + length + INPUT_SLACK);
  memset(window, '7', front);
  memcpy(window + front, text, length);
  memset(window + front + length, 0, INPUT_SLACK);
  csv c = {.delimiter = ',', .columns = columns, .row_max = 1 << 20, .fields_max = 1 << 10};
  c.in = (input){.window = window,
                 .at = window + front,
                 .end = window + front + length,
                 .at_eof = true,
                 .name = "block"};
  size_t rows_max = by->line_ends(text, length) + 1;
  memset(k, 0, sizeof *k);
  k->values = calloc(rows_max * columns, sizeof *k->values);
  k->b = (csv_block){.columns = k->columns,
                     .count = columns,
                     .rows_max = rows_max,
                     .text = code,
                     .row = add_row,
                     .context = k};
  for (size_t i = 0; i < columns; i++) {
    k->columns[i].values = k->values + i * rows_max;
    k->columns[i].form = form;
  }
  stow_status status = csv_block_fill_by(&k->b, &c, by);
  free(c.fields);
  free(c.unescaped);
  free(window);
  return status;
}

static size_t random_digits(uint64_t *random, char *to, size_t most) {
  size_t count = harness_random(random) % (most + 1);
  for (size_t i = 0; i < count; i++) to[i] = (char)('0' + harness_random(random) % 10);
  return count;
}

/* Writes a number in one of many forms: those that programs print, and unusual ones. */
static size_t random_number(uint64_t *random, char *to) {
  uint64_t bits = harness_random(random);
  double near = (double)(int64_t)bits / 0x1p63 * (double)(1 + (bits & 0xff));
  switch (harness_random(random) % 8) {
  case 0: return (size_t)sprintf(to, "%.17g", near);
  case 1: return (size_t)sprintf(to, "%.*f", (int)(bits >> 8 & 15), near);
  case 2: return (size_t)sprintf(to, "%" PRId64, (int64_t)bits >> (bits & 63));
  case 3: return (size_t)sprintf(to, "%.1f", near);
  case 4: return (size_t)sprintf(to, "%.*e", (int)(bits & 31), near);
  default: break;
  }
  char *at = to;
  if (bits & 1) *at++ = '-';
  at += random_digits(random, at, 20);
  if (bits & 6) {
    *at++ = '.';
    at += random_digits(random, at, 20);
  } else { /* past 64 bits, or with zeros in front, it would be text */
    if (at - to > 18) at = to + 18;
    if (to[bits & 1] == '0') to[bits & 1] = '7';
  }
  if (at == to || at[-1] == '-' || at[-1] == '.') *at++ = '5';
  *at = '\0';
  return (size_t)(at - to);
}

static void check_numbers(const csv_loops *by, csv_form form, uint64_t seed) {
  static char text[TEXT_MAX + 4096];
  static double expected[TEXT_MAX / 2];
  size_t length = 0, count = 0, columns = 1 + seed % COLUMNS_MAX;
  uint64_t random = seed;
  while (length < TEXT_MAX / 8) {
    for (size_t i = 0; i < columns; i++) {
      char number[64] = {0};
      size_t letters = random_number(&random, number);
      expected[count++] = strtod(number, NULL);
      memcpy(text + length, number, letters);
      length += letters;
      text[length++] = i + 1 < columns ? ',' : '\n';
    }
  }
  block k;
  CHECK_OK(read_block(&k, text, length, seed % 40, columns, form, by));
  CHECK_U64(k.b.rows, count / columns);
  for (size_t i = 0; i < count; i++) {
    const csv_column *c = &k.columns[i % columns];
    double got;
    CHECK(c->form != CSV_CODES);
    memcpy(&got, &c->values[i / columns], sizeof got);
    if (c->form != CSV_FLOATS) got = (double)(int64_t)c->values[i / columns];
    if (memcmp(&got, &expected[i], sizeof got) != 0)
      FAIL("%s: row %zu, column %zu: %.17g, expected %.17g", by->name, i / columns, i % columns,
           got, expected[i]);
  }
  free(k.values);
}

TEST(every_instruction_set_reads_numbers_as_strtod_does)
{
  const csv_loops *list[CSV_LOOPS_MAX];
  size_t count = csv_loops_here(list);
  for (size_t i = 0; i < count; i++)
    for (uint64_t seed = 1; seed <= 60; seed++)
      check_numbers(list[i], seed % 3 == 0 ? CSV_INTEGERS : CSV_FLOATS, seed);
  harness_note("%zu sets, the widest %s", count, list[count - 1]->name);
}

/* "007" among plain numbers: in every lane of eight, in columns of integers and of floats. */
TEST(a_needless_zero_makes_text_in_every_set)
{
  const csv_loops *list[CSV_LOOPS_MAX];
  size_t sets = csv_loops_here(list);
  static const char *const padded[] = {"007", "00", "01", "-05"};
  static const char *const plain[] = {"0", "10", "-4", "100", "0.5", "00.5", "-0.25"};
  for (size_t i = 0; i < sets; i++)
    for (size_t lane = 0; lane < 48; lane++) {
      char text[48 * 8];
      size_t length = 0;
      for (size_t row = 0; row < 48; row++) {
        const char *word =
            row == lane ? padded[lane % 4] : plain[(row + lane) % (lane < 24 ? 4 : 7)];
        length += (size_t)sprintf(text + length, "%s\n", word);
      }
      block k;
      CHECK_OK(read_block(&k, text, length, 40, 1, CSV_INTEGERS, list[i]));
      CHECK_U64(k.b.rows, 48);
      CHECK(k.columns[0].form == CSV_CODES);
      free(k.values);
    }
}

/* Midpoints between two doubles, and their neighbours, which show a product with one bit too
 * few. */
TEST(halves_round_to_even_in_every_set)
{
  const csv_loops *list[CSV_LOOPS_MAX];
  size_t sets = csv_loops_here(list);
  static char text[1 << 16];
  double expected[1024];
  uint64_t random = 3;
  size_t length = 0, count = 0;
  while (count < 1024) {
    /* An odd multiple of half a unit in the last place, 53 bits and one more, in 19 digits. */
    uint64_t half = (UINT64_C(1) << 53) + (harness_random(&random) >> 11) * 2 + 1;
    unsigned point = harness_random(&random) % 5;
    static const unsigned powers[] = {1, 10, 100, 1000};
    uint64_t digits = point == 0 || half > UINT64_MAX / 1000 ? half : half * powers[point - 1];
    int off = (int)(harness_random(&random) % 3) - 1;
    char number[32];
    size_t letters = (size_t)sprintf(number, "%" PRIu64, digits + (uint64_t)off);
    if (letters > 19 || letters < 16) continue;
    size_t whole = letters - 1 - point;
    letters = (size_t)sprintf(text + length, "%.*s.%s", (int)whole, number, number + whole);
    expected[count++] = strtod(text + length, NULL);
    length += letters;
    text[length++] = '\n';
  }
  for (size_t i = 0; i < sets; i++) {
    block k;
    CHECK_OK(read_block(&k, text, length, 40, 1, CSV_FLOATS, list[i]));
    CHECK_U64(k.b.rows, count);
    CHECK(memcmp(k.values, expected, count * sizeof expected[0]) == 0);
    free(k.values);
  }
}

/* A column of uint64 cannot hold a negative value, so a sign must be detected. */
TEST(a_sign_among_integers_past_int64_is_noticed)
{
  const csv_loops *list[CSV_LOOPS_MAX];
  size_t sets = csv_loops_here(list);
  for (size_t i = 0; i < sets; i++)
    for (size_t at = 1; at < 20; at++) {
      char text[1024];
      size_t length = (size_t)sprintf(text, "18446744073709551615\n");
      for (size_t row = 1; row < 20; row++)
        length += (size_t)sprintf(text + length, row == at ? "-3\n" : "3\n");
      block k;
      CHECK_OK(read_block(&k, text, length, 40, 1, CSV_INTEGERS, list[i]));
      CHECK(k.columns[0].form == CSV_WIDES && k.columns[0].negative);
      free(k.values);
    }
}

/* One row differs from the others, at each position among eight. */
TEST(an_odd_row_is_found_at_its_line)
{
  static const char *const odd[] = {
      "x,1",       "1,x",       "\"2\",3",    "true,1",    "1,nan",
      ",1",        "1,",        "1e5,2",      "1.,2",      ".,1",
      "-,1",       "- 1,2",     "1..2,3",     "+1,2",      "18446744073709551615,1",
      "1 ,2",      "0x1,2",     "1_0,2",      "-0,1",      "1,999999999999999999999",
      "1\r,2",     "1:2,3",     "1/2,3",      "-.5,1",     "1.2.3,4",
      "1.5e+05,2", "1.5E-05,2", "1.5e+300,2", "1e+05,2",   "1.5e05,2",
      "e+05,1",    ".5e+05,1",  "1.5e+x5,2",  "1.5e-27,1", "9.5e+27,1"};
  const csv_loops *list[CSV_LOOPS_MAX];
  size_t sets = csv_loops_here(list);
  for (size_t o = 0; o < sizeof odd / sizeof odd[0]; o++)
    for (size_t at = 0; at < 20; at++)
      for (int form = CSV_INTEGERS; form <= CSV_FLOATS; form += 2) {
        char text[1024];
        size_t length = 0;
        for (size_t row = 0; row < 20; row++)
          length += (size_t)sprintf(text + length,
                                    row == at ? "%s\n"
                                    : form    ? "%.0s4.25,-6.5\n"
                                              : "%.0s4,-6\n",
                                    odd[o]);
        block first, k;
        CHECK_OK(read_block(&first, text, length, at, 2, (csv_form)form, list[0]));
        CHECK_U64(first.b.rows, 20);
        for (size_t i = 1; i < sets; i++) {
          CHECK_OK(read_block(&k, text, length, at, 2, (csv_form)form, list[i]));
          CHECK_U64(k.b.rows, first.b.rows);
          CHECK_U64(k.odd_rows, first.odd_rows);
          CHECK_U64(k.odd_lines, first.odd_lines);
          CHECK(memcmp(k.values, first.values, 2 * k.b.rows_max * sizeof *k.values) == 0);
          for (size_t c = 0; c < 2; c++) {
            k.columns[c].values = first.columns[c].values;
            if (memcmp(&k.columns[c], &first.columns[c], sizeof k.columns[c]) != 0)
              FAIL("%s: \"%s\" in row %zu: column %zu is not what %s says", list[i]->name, odd[o],
                   at, c, list[0]->name);
          }
          free(k.values);
        }
        free(first.values);
      }
}

TEST_MAIN
