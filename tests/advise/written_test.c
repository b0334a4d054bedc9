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
    {"language", MESSAGE_HOST, HOST_PYTHON},
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

TEST_MAIN
