/* Samples of error texts, and a check of what explain says about them. */
#ifndef TESTS_ADVISE_SAMPLE_H
#define TESTS_ADVISE_SAMPLE_H

#include "advise/explain.h"
#include "harness.h"

#define C(name) (UINT32_C(1) << CAUSE_##name)

typedef struct sample {
  message_kind kind;
  uint32_t causes;    /* any of these may be first */
  const char *fix;    /* words that one of the first three fixes must contain */
  const char *unsaid; /* words that no fix or note may contain; NULL: none */
  const char *text;
} sample;

/* Returns whether one of the first three fixes contains `words`. */
static inline bool advises(const explanation *x, const char *words) {
  for (uint32_t i = 0; i < x->fixes.count && i < 3; i++)
    if (strstr(x->fixes.list[i].change, words) != NULL) return true;
  return false;
}

static inline void check_samples(const sample *all, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const sample *s = &all[i];
    explanation x;
    buffer out = BUFFER_INIT;
    CHECK_OK(explain_message(&x, s->text, strlen(s->text)));
    CHECK_OK(explanation_text(&x, &out, false));
    bool right = x.evidence.message.kind == s->kind && x.findings.count > 0 &&
                 (s->causes & UINT32_C(1) << x.findings.list[0].id) != 0 && advises(&x, s->fix) &&
                 (s->unsaid == NULL || strstr(out.data, s->unsaid) == NULL);
    if (!right) printf("%s\n----\n%s\n", s->text, out.data);
    CHECK(right);
    size_t lines = 0;
    for (const char *at = out.data; *at != '\0'; at++) lines += *at == '\n';
    CHECK(lines <= 40);
    buffer_free(&out);
    explanation_free(&x);
  }
}
#define CHECK_SAMPLES(all) check_samples(all, sizeof(all) / sizeof *(all))

#endif
