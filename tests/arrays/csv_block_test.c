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
  uint64_t lines;               /* read in all */
  uint64_t odd_rows, odd_lines; /* rows left to the caller, and the sum of their lines */
  const csv *from;
} block;

static uint64_t code(size_t column, const char *text, size_t length) {
  uint64_t made = column;
  for (size_t i = 0; i < length; i++) made = made * 31 + (unsigned char)text[i];
  return made;
}

static stow_status codes(void *context, size_t column, const char *const *texts,
                         const uint32_t *lengths, size_t count, uint64_t *to) {
  (void)context;
  for (size_t i = 0; i < count; i++) to[i] = code(column, texts[i], lengths[i]);
  return STOW_OK;
}

/* Stores a field as the table reader does. */
static void store(csv_column *to, size_t row, const csv_field *f) {
  to->numbers =
      to->numbers || f->kind == CSV_SIGNED || f->kind == CSV_UNSIGNED || f->kind == CSV_FLOAT;
  to->bools = to->bools || f->kind == CSV_BOOL;
  to->fractions = to->fractions || f->kind == CSV_FLOAT;
  switch (f->kind) {
  case CSV_SIGNED:
  case CSV_BOOL: csv_column_integer(to, row, f->value.i); break;
  case CSV_UNSIGNED: csv_column_wide(to, row, f->value.u); break;
  case CSV_FLOAT: csv_column_float(to, row, f->value.d); break;
  case CSV_MISSING: csv_column_float(to, row, (double)NAN); break;
  case CSV_TEXT: break;
  }
}

static stow_status add_row(void *context, csv *c) {
  block *k = context;
  k->odd_rows++;
  k->odd_lines += c->line;
  for (size_t i = 0; i < k->b.count; i++) {
    const csv_field *f = &c->fields[i];
    csv_column *to = &k->columns[i];
    bool text = to->form == CSV_CODES, word = !text && f->kind == CSV_MISSING && f->length > 0;
    to->text_bytes += f->length;
    if (f->length > to->longest) to->longest = f->length;
    if (f->length < to->shortest) to->shortest = f->length;
    to->missing += f->length == 0 || word;
    to->missing_words += word;
    if (text || f->kind == CSV_TEXT) {
      if (!text) memset(to->values, 0, k->b.rows * sizeof *to->values);
      to->form = CSV_CODES;
      to->values[k->b.rows] = code(i, f->text, f->length);
    } else {
      store(to, k->b.rows, f);
    }
  }
  return STOW_OK;
}

static csv_word add_word(void *context, size_t column, size_t row, const char *text,
                         size_t length) {
  block *k = context;
  csv_field f;
  csv_classify(k->from, &f, false, text, length);
  if (f.kind == CSV_TEXT) return CSV_WORD_TEXT;
  store(&k->columns[column], row, &f);
  return f.kind == CSV_MISSING ? CSV_WORD_MISSING : CSV_WORD_VALUE;
}

/* Reads every row with csv_next. */
static stow_status every_row(csv_block *b, csv *c) {
  for (bool more = true; more;) {
    STOW_TRY(csv_next(c, &more));
    if (!more) break;
    STOW_TRY(add_row(b->context, c));
    b->rows++;
  }
  return STOW_OK;
}

/* Parses `text` as `how` says, with only `front` readable bytes before it. */
static stow_status read_block_as(block *k, const csv *how, const char *text, size_t length,
                                 size_t front, size_t columns, csv_form form, const csv_loops *by) {
  uint8_t *window = malloc(front + length + INPUT_SLACK);
  memset(window, '7', front);
  memcpy(window + front, text, length);
  memset(window + front + length, 0, INPUT_SLACK);
  csv c = *how;
  c.columns = columns;
  c.row_max = 1 << 20;
  c.fields_max = 1 << 10;
  c.in = (input){.window = window,
                 .at = window + front,
                 .end = window + front + length,
                 .at_eof = true,
                 .name = "block"};
  size_t rows_max = csv_line_ends(text, length) + 1;
  memset(k, 0, sizeof *k);
  k->from = &c;
  k->values = calloc(rows_max * columns, sizeof *k->values);
  k->b = (csv_block){.columns = k->columns,
                     .count = columns,
                     .rows_max = rows_max,
                     .texts = codes,
                     .word = add_word,
                     .row = add_row,
                     .context = k};
  for (size_t i = 0; i < columns; i++) {
    k->columns[i].values = k->values + i * rows_max;
    k->columns[i].form = form;
    k->columns[i].shortest = UINT64_MAX;
  }
  stow_status status = by != NULL ? csv_block_fill_by(&k->b, &c, by) : every_row(&k->b, &c);
  k->lines = c.lines;
  free(c.fields);
  free(c.unescaped);
  free(window);
  return status;
}

static stow_status read_block(block *k, const char *text, size_t length, size_t front,
                              size_t columns, csv_form form, const csv_loops *by) {
  static const csv plain = {.delimiter = ','};
  return read_block_as(k, &plain, text, length, front, columns, form, by);
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
            k.columns[c].whole = first.columns[c].whole; /* only a hint */
            if (memcmp(&k.columns[c], &first.columns[c], sizeof k.columns[c]) != 0)
              FAIL("%s: \"%s\" in row %zu: column %zu is not what %s says", list[i]->name, odd[o],
                   at, c, list[0]->name);
          }
          free(k.values);
        }
        free(first.values);
      }
}

/* ---- words and quotes ---- */

/* Appends a text in quotes, its own quotes doubled. */
static size_t put_quoted(char *to, const char *text) {
  char *at = to;
  *at++ = '"';
  for (; *text != '\0'; text++) {
    if (*text == '"') *at++ = '"';
    *at++ = *text;
  }
  *at++ = '"';
  return (size_t)(at - to);
}

/* A field of a column of the given kind: 0 integers, 1 floats, 2 booleans, 3 and 4 texts. */
static size_t random_field(uint64_t *random, char *to, unsigned kind, unsigned odd) {
  static const char *const words[] = {"", "NA", "n/a", "null", "nan", "-inf", " 7", "TRUE", "12 "};
  static const char *const bools[] = {"true", "false", "True", "FALSE"};
  static const char *const texts[] = {"a",
                                      "some words",
                                      "",
                                      "x,y",
                                      "5 \" disk",
                                      "two\nlines",
                                      "\"",
                                      "\"\"",
                                      ("a long text that fills more than a block of 64 bytes, "
                                       "with a comma and \"quotes\" in it")};
  uint64_t r = harness_random(random);
  char plain[256];
  if (r % 1000 < odd && kind < 3) {
    strcpy(plain, words[r / 1000 % 9]);
  } else if (kind == 0) {
    sprintf(plain, "%d", (int)(r >> 40) % 1000 - 300);
  } else if (kind == 1) {
    sprintf(plain, r & 1 << 12 ? "%.3f" : "%.0f", (double)(r >> 32) / 0x1p16);
  } else if (kind == 2) {
    strcpy(plain, bools[(r >> 32) % 4]);
  } else {
    strcpy(plain, texts[(r >> 32) % (kind == 3 ? 4 : 9)]);
  }
  bool must = strpbrk(plain, ",\"\n") != NULL;
  if (must || (r >> 20) % 16 == 0) return put_quoted(to, plain);
  strcpy(to, plain);
  return strlen(plain);
}

/* Returns the length of a random table. It begins with a text in each column of text. */
static size_t random_table(char *to, size_t columns, uint64_t seed) {
  uint64_t random = seed;
  unsigned odd = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 20 : 300;
  size_t rows = 1 + harness_random(&random) % 700, length = 0;
  for (size_t row = 0; row < rows; row++) {
    for (size_t i = 0; i < columns; i++) {
      unsigned kind = (unsigned)((seed / 7 + i * 3) % 5);
      length += row == 0 && kind > 2 ? put_quoted(to + length, "first")
                                     : random_field(&random, to + length, kind, odd);
      if (i + 1 < columns) to[length++] = ',';
    }
    if (row + 1 == rows && seed % 4 == 1) break; /* no line end */
    if (seed % 5 == 2) to[length++] = '\r';
    to[length++] = '\n';
    if (odd > 0 && harness_random(&random) % 200 == 0) to[length++] = '\n';
  }
  return length;
}

/* Reads random tables with every loop and with csv_next. */
static void compare_tables(const csv *how, uint64_t seeds) {
  static char text[1 << 20];
  const csv_loops *list[CSV_LOOPS_MAX];
  size_t sets = csv_loops_here(list), fast = 0, all = 0;
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    size_t columns = 2 + seed % (COLUMNS_MAX - 1), length = random_table(text, columns, seed);
    block right, k;
    for (size_t i = 0; i < length && how->point == ','; i++)
      text[i] = text[i] == ',' ? ';' : text[i] == '.' && seed % 4 != 0 ? ',' : text[i];
    CHECK_OK(read_block_as(&right, how, text, length, seed % 70, columns, CSV_INTEGERS, NULL));
    for (size_t i = 0; i < sets; i++) {
      CHECK_OK(read_block_as(&k, how, text, length, seed % 70, columns, CSV_INTEGERS, list[i]));
      CHECK_U64(k.b.rows, right.b.rows);
      CHECK_U64(k.lines, right.lines);
      fast += k.b.rows - k.odd_rows, all += k.b.rows;
      for (size_t c = 0; c < columns; c++) {
        const csv_column *is = &k.columns[c], *should = &right.columns[c];
        if (memcmp(is->values, should->values, k.b.rows * 8) != 0 || is->form != should->form ||
            is->text_bytes != should->text_bytes || is->longest != should->longest ||
            is->shortest != should->shortest || is->missing != should->missing ||
            is->missing_words != should->missing_words || is->numbers != should->numbers ||
            is->bools != should->bools || is->negative != should->negative ||
            is->inexact != should->inexact)
          FAIL("%s, table %d: column %zu differs from what csv_next reads", list[i]->name,
               (int)seed, c);
      }
      free(k.values);
    }
    free(right.values);
  }
  /* The fast loop must take most rows, or it is not tested here. */
  CHECK(fast > all / 2);
  harness_note("%zu of %zu rows by the fast loops", fast, all);
}

TEST(words_and_quotes_are_read_as_csv_next_reads_them)
{ compare_tables(&(csv){.delimiter = ','}, 300); }

TEST(given_words_and_commas_in_numbers_are_read_as_csv_next_reads_them)
{
  static const char *const words[] = {"7", "-12",         "first", "true",
                                      "a", "five\" disk", "x;y",   "0.000"};
  csv_options options = {.na = words, .na_count = 8, .decimal = ','};
  csv given = {.delimiter = ',', .options = &options, .careful = true};
  for (size_t i = 0; i < options.na_count; i++) given.na_lengths |= UINT64_C(1) << strlen(words[i]);
  compare_tables(&given, 100);
  csv both = given;
  both.delimiter = ';';
  both.point = ',';
  compare_tables(&both, 100);
  csv_options no_words = {.decimal = ','};
  compare_tables(&(csv){.delimiter = ';', .point = ',', .options = &no_words, .careful = true},
                 100);
}

TEST(the_last_row_is_found_among_quotes)
{
  static char text[1 << 20];
  const csv_loops *list[CSV_LOOPS_MAX];
  size_t sets = csv_loops_here(list);
  for (uint64_t seed = 1; seed <= 60; seed++) {
    size_t columns = 2 + seed % (COLUMNS_MAX - 1), length = random_table(text, columns, seed);
    memset(text + length, 0, INPUT_SLACK);
    uint64_t random = seed;
    csv c = {.delimiter = ','};
    for (int cut = 0; cut < 20; cut++) {
      size_t count = harness_random(&random) % (length + 1);
      char *window = malloc(count + INPUT_SLACK); /* a copy: a sanitizer sees reads past its end */
      memcpy(window, text, count);
      memset(window + count, 0, INPUT_SLACK);
      const char *right = NULL;
      for (const char *row = window;
           row < window + count && (row = csv_row_end(&c, row, window + count)) != NULL;)
        right = ++row;
      for (size_t i = 0; i < sets; i++) {
        const char *last = csv_last_row_by(&c, window, window + count, list[i]);
        if (last != right)
          FAIL("%s, table %d cut at %zu: %td, expected %td", list[i]->name, (int)seed, count,
               last != NULL ? last - window : -1, right != NULL ? right - window : -1);
      }
      free(window);
    }
  }
}

TEST_MAIN
