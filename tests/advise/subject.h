/* A recording of tests/samples and its explanation: shared by the tests of causes and of fixes. */
#ifndef TESTS_ADVISE_SUBJECT_H
#define TESTS_ADVISE_SUBJECT_H

#include "advise/explain.h"
#include "harness.h"
#include "recordings/recording_file.h"

typedef struct subject {
  recording r;
  explanation x;
} subject;

static inline void open_subject(subject *s, const char *path, const char *text) {
  recording_init(&s->r, UINT64_C(1) << 30);
  CHECK_OK(recording_read(&s->r, path, KIND_AUTO, NULL));
  explain_options options = {.message = text, .message_bytes = text != NULL ? strlen(text) : 0};
  CHECK_OK(explain_recording(&s->x, &s->r, &options));
}

static inline void close_subject(subject *s) {
  explanation_free(&s->x);
  recording_free(&s->r);
}

/* Calls visit for each recording of a set (samples/causes/SETS) whose name contains `part`. */
static inline void each_of_set(const char *set, const char *part,
                               void (*visit)(void *user, const char *name, subject *s),
                               void *user) {
  FILE *list = fopen(harness_data("causes/SETS"), "r");
  CHECK(list != NULL);
  char of[32], name[200], path[300];
  while (fscanf(list, "%31s %199s", of, name) == 2) {
    if (strcmp(of, set) != 0 || strstr(name, part) == NULL) continue;
    snprintf(path, sizeof path, "causes/%s", name);
    subject s;
    open_subject(&s, harness_data(path), NULL);
    visit(user, name, &s);
    close_subject(&s);
  }
  fclose(list);
}

static inline const char *first_cause(const subject *s) {
  return s->x.findings.count > 0 ? cause_name(s->x.findings.list[0].id) : "nothing";
}

#endif
