/* Texts in the style of forum posts and logs, from files of tests/samples/texts. All were written
 * for these tests, and labelled before explain read them. */
#include <stdlib.h>

#include "sample.h"

#define LABEL "=== "

/* One text of a file, and the line of labels before it. */
typedef struct written {
  char label[256];
  const char *text;
  size_t count;
} written;

/* Returns the file's content, ended with a zero byte; the caller frees it. */
static char *read_texts(const char *name) {
  char path[300];
  snprintf(path, sizeof path, "texts/%s", name);
  FILE *file = fopen(harness_data(path), "rb");
  CHECK(file != NULL);
  CHECK(fseek(file, 0, SEEK_END) == 0);
  long size = ftell(file);
  rewind(file);
  char *all = malloc((size_t)size + 1);
  CHECK(all != NULL && fread(all, 1, (size_t)size, file) == (size_t)size);
  all[size] = '\0';
  fclose(file);
  return all;
}

/* Removes the next text from *at. Returns false at the end. */
static bool next_text(const char **at, written *w) {
  if (strncmp(*at, LABEL, strlen(LABEL)) != 0) return false;
  const char *label = *at + strlen(LABEL), *line = strchr(label, '\n');
  CHECK(line != NULL && (size_t)(line - label) < sizeof w->label);
  snprintf(w->label, sizeof w->label, "%.*s", (int)(line - label), label);
  w->text = line + 1;
  const char *next = strstr(line, "\n" LABEL);
  *at = next != NULL ? next + 1 : line + strlen(line);
  w->count = (size_t)(*at - w->text);
  return true;
}

/* ---- logs with several failures: "=== FAILURES FIRST | title" ---- */

static const struct {
  const char *name;
  message_kind kind;
  message_host host;
} firsts[] = {
    {"torch", MESSAGE_TORCH, HOST_NONE},           {"jax", MESSAGE_XLA, HOST_NONE},
    {"llama", MESSAGE_LLAMA, HOST_NONE},           {"vllm", MESSAGE_VLLM, HOST_NONE},
    {"tensorflow", MESSAGE_TENSORFLOW, HOST_NONE}, {"numpy", MESSAGE_HOST, HOST_NUMPY},
    {"compiler", MESSAGE_HOST, HOST_COMPILER},     {"container", MESSAGE_HOST, HOST_CONTAINER},
    {"kernel", MESSAGE_HOST, HOST_KERNEL},         {"spark", MESSAGE_HOST, HOST_SPARK},
    {"language", MESSAGE_HOST, HOST_PYTHON},       {"database", MESSAGE_HOST, HOST_DATABASE},
    {"status", MESSAGE_CUDA, HOST_NONE},
};

TEST(the_first_failure_of_a_log_is_read_and_all_are_counted)
{
  char *all = read_texts("mixed_logs.txt");
  const char *at = all;
  written w;
  unsigned logs = 0, wrong = 0;
  for (; next_text(&at, &w); logs++) {
    unsigned failures;
    char first[32];
    CHECK(sscanf(w.label, "%u %31s |", &failures, first) == 2);
    message m;
    message_read(&m, w.text, w.count);
    size_t i = 0;
    while (i < sizeof firsts / sizeof *firsts && strcmp(firsts[i].name, first) != 0) i++;
    CHECK(i < sizeof firsts / sizeof *firsts);
    if (m.failures == failures && m.kind == firsts[i].kind && m.host == firsts[i].host) continue;
    fprintf(stderr, "%s: %u failures, kind %d, host %d\n", w.label, m.failures, (int)m.kind,
            (int)m.host);
    wrong++;
  }
  CHECK(logs >= 30);
  CHECK_U64(wrong, 0);
  free(all);
}

/* ---- texts with one failure: "=== CAUSES ; FIX|OR ; UNSAID | title" ---- */

static void trim(char *text) {
  for (size_t end = strlen(text); end > 0 && text[end - 1] == ' ';) text[--end] = '\0';
}

/* Returns whether one of the alternatives "a|b" occurs in the text. */
static bool has_one_of(const char *text, char *alternatives) {
  char *rest = alternatives;
  for (char *one; (one = strsep(&rest, "|")) != NULL;)
    if (strstr(text, one) != NULL) return true;
  return false;
}

/* Returns whether a list "a,b" has the name. */
static bool lists(char *names, const char *name) {
  char *rest = names;
  for (char *one; (one = strsep(&rest, ",")) != NULL;)
    if (strcmp(one, name) == 0) return true;
  return false;
}

/* Checks the first cause ("none": named, and not about memory of this program), a fix among the
 * first three, and words ("-": none) that the answer must not have. */
static bool is_right(const written *w) {
  char causes[80], wanted[120], unsaid[40];
  CHECK(sscanf(w->label, "%79[^;] ; %119[^;] ; %39[^|]", causes, wanted, unsaid) == 3);
  trim(causes);
  trim(wanted);
  trim(unsaid);
  explanation x;
  buffer out = BUFFER_INIT, advice = BUFFER_INIT;
  CHECK_OK(explain_message(&x, w->text, w->count));
  CHECK_OK(explanation_text(&x, &out, false));
  for (uint32_t i = 0; i < x.fixes.count && i < 3; i++)
    buffer_printf(&advice, "%s\n", x.fixes.list[i].change);
  if (x.findings.count == 0) buffer_printf(&advice, "%s", x.notes.data);
  bool said = strcmp(unsaid, "-") != 0 && strstr(out.data, unsaid) != NULL;
  const char *first = x.findings.count > 0 ? cause_name(x.findings.list[0].id) : "none";
  bool named = x.findings.count > 0 || x.evidence.message.kind == MESSAGE_FOREIGN;
  bool right = lists(causes, first) && advice.data != NULL && has_one_of(advice.data, wanted) &&
               !said && named;
  if (!right) fprintf(stderr, "%s\n%s\n", w->label, out.data);
  buffer_free(&out);
  buffer_free(&advice);
  explanation_free(&x);
  return right;
}

/* Checks every text of a file. Returns how many it has. */
static unsigned check_texts(const char *name) {
  char *all = read_texts(name);
  const char *at = all;
  written w;
  unsigned texts = 0, wrong = 0;
  for (; next_text(&at, &w); texts++) wrong += !is_right(&w);
  CHECK_U64(wrong, 0);
  free(all);
  return texts;
}

TEST(texts_of_newer_programs_get_their_cause_and_a_fitting_fix)
{ CHECK(check_texts("texts_2026.txt") >= 40); }

TEST(programs_with_settings_of_their_own_get_no_others)
{ CHECK(check_texts("texts_owners.txt") >= 15); }

TEST(kinds_of_reports_that_were_answered_wrongly_are_right)
{ CHECK(check_texts("texts_reports.txt") >= 50); }

TEST(kinds_that_an_outside_author_found_wrong_are_right)
{ CHECK(check_texts("texts_kinds.txt") >= 45); }

TEST(texts_as_people_paste_them_get_their_cause_and_a_fitting_fix)
{ CHECK(check_texts("texts_pasted.txt") >= 37); }

TEST(a_number_that_a_terminal_wrapped_is_read_as_one)
{
  static const char text[] = "duckdb.duckdb.OutOfMemoryException: Out of Memory Error: failed to "
                             "allocate data of size 4.0 "
                             "MiB (95.1 MiB/9\n5.3 MiB used)\n";
  message m;
  message_read(&m, text, sizeof text - 1);
  CHECK(m.limit_bytes / 1024 == (uint64_t)(95.3 * 1024));
  CHECK(m.process_bytes / 1024 == (uint64_t)(95.1 * 1024));
}

TEST(the_second_failure_of_a_log_is_named)
{
  static const char text[] =
      "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.\n$ python fit.py\n"
      "RuntimeError: unable to write to file </torch_12_34_5>: No space left on device (28)\n";
  explanation x;
  CHECK_OK(explain_message(&x, text, sizeof text - 1));
  CHECK(x.findings.count > 0);
  CHECK(strstr(x.findings.list[0].evidence.data, "the next: shared memory") != NULL);
  explanation_free(&x);
}

/* "loaded partially 7003.11 MB" is in place; it was not requested. */
TEST(what_is_loaded_already_is_no_request)
{
  static const char text[] = "got prompt\nRequested to load Painter7\nloaded partially 7003.11 MB "
                             "7003.10 MB offloaded 1200 MB\n!!! Exception during processing !!! "
                             "Allocation on device\n";
  message m;
  message_read(&m, text, sizeof text - 1);
  CHECK(m.kind == MESSAGE_CUDA);
  CHECK_U64(m.asked_bytes, MESSAGE_UNKNOWN);
}

TEST_MAIN
