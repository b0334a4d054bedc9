/* The public explanation (stowage/explain.h): a copy of what explain.h found, in texts that stay.
 */
#include <stowage/explain.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "advise/explain.h"
#include "advise/explain_run.h"
#include "base/growing.h"
#include "recordings/recording_api.h"
#include "run/folder.h"

/* Lines, each ended with a zero byte in one block of text. */
typedef struct lines {
  char *text;
  const char **list; /* terminated by NULL */
  uint32_t count;
} lines;

struct stow_explanation {
  stow_explanation_info info;
  buffer text, json, line;
  char *headline;
  lines notes;
  stow_cause *causes;
  lines *evidence; /* for each cause */
  char **cause_headlines;
  fixes fixes;
};

static stow_status no_memory(void) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "explain: no host memory for the answer");
}

static stow_status lines_copy(lines *to, const buffer *from) {
  uint32_t count = 0;
  to->text = strdup(from->data != NULL ? from->data : "");
  if (to->text == NULL) return no_memory();
  for (const char *at = to->text; *at != '\0'; at++) count += *at == '\n' || at[1] == '\0';
  to->list = calloc((size_t)count + 1, sizeof *to->list);
  if (to->list == NULL) return no_memory();
  char *at = to->text;
  while (*at != '\0') {
    char *end = strchr(at, '\n');
    to->list[to->count++] = at;
    if (end == NULL) break;
    *end = '\0';
    at = end + 1;
  }
  return STOW_OK;
}

static void lines_free(lines *l) {
  free(l->text);
  free(l->list);
}

static stow_status copy_text(char **to, const buffer *from) {
  *to = strdup(from->data != NULL ? from->data : "");
  return *to != NULL ? STOW_OK : no_memory();
}

static stow_status copy_causes(stow_explanation *x, const findings *f) {
  x->causes = calloc((size_t)f->count + 1, sizeof *x->causes);
  x->evidence = calloc((size_t)f->count + 1, sizeof *x->evidence);
  x->cause_headlines = calloc((size_t)f->count + 1, sizeof *x->cause_headlines);
  if (x->causes == NULL || x->evidence == NULL || x->cause_headlines == NULL) return no_memory();
  for (uint32_t i = 0; i < f->count; i++) {
    const cause *c = &f->list[i];
    x->info.cause_count = i + 1;
    STOW_TRY(copy_text(&x->cause_headlines[i], &c->headline));
    STOW_TRY(lines_copy(&x->evidence[i], &c->evidence));
    x->causes[i] = (stow_cause){.struct_bytes = sizeof(stow_cause),
                                .evidence_count = x->evidence[i].count,
                                .id = cause_name(c->id),
                                .headline = x->cause_headlines[i],
                                .confidence = c->confidence,
                                .evidence = x->evidence[i].list};
  }
  return STOW_OK;
}

_Static_assert(STOW_BYTES_UNKNOWN == MESSAGE_UNKNOWN, "what is not known is the same number");

static stow_status fill(stow_explanation *x, const explanation *from, bool out_of_memory) {
  const numbers *n = &from->evidence.n;
  x->info = (stow_explanation_info){
      .struct_bytes = sizeof x->info,
      .out_of_memory = out_of_memory,
      .requested_bytes = n->asked_bytes == SCAN_HUGE ? MESSAGE_UNKNOWN : n->asked_bytes,
      .live_bytes = n->live_bytes,
      .cached_bytes = n->cached_bytes,
      .largest_hole_bytes = n->largest_hole_bytes,
      .other_process_bytes = n->other_process_bytes,
      .outside_framework_bytes = n->outside_framework_bytes,
      .free_bytes = n->free_bytes,
      .limit_bytes = n->limit_bytes,
      .device_bytes = n->device_bytes,
      .unknown_bytes = n->unknown_bytes,
  };
  x->text = x->json = x->line = BUFFER_INIT;
  STOW_TRY(copy_text(&x->headline, &from->headline));
  x->info.headline = x->headline;
  STOW_TRY(copy_causes(x, &from->findings));
  STOW_TRY(lines_copy(&x->notes, &from->notes));
  x->info.note_count = x->notes.count;
  x->fixes = from->fixes;
  x->info.fix_count = x->fixes.count;
  STOW_TRY(explanation_text(from, &x->text, false));
  STOW_TRY(explanation_json(from, &x->json));
  return explanation_short(from, &x->line);
}

static stow_status publish(stow_explanation **out, const explanation *from, bool out_of_memory) {
  stow_explanation *x = calloc(1, sizeof *x);
  if (x == NULL) return no_memory();
  stow_status status = fill(x, from, out_of_memory);
  if (status != STOW_OK) {
    stow_explanation_close(x);
    return status;
  }
  *out = x;
  return STOW_OK;
}

stow_status stow_explain_recording(stow_explanation **out, const stow_recording *of,
                                   const stow_explain_options *given) {
  if (out == NULL) return stow_fail(STOW_ERR_INVALID, "stow_explain_recording: x is NULL");
  *out = NULL;
  if (of == NULL) return stow_fail(STOW_ERR_INVALID, "stow_explain_recording: recording is NULL");
  stow_explain_options options = STOW_EXPLAIN_OPTIONS_INIT;
  STOW_TRY(growing_read(&options, sizeof options, given, "stow_explain_options"));
  explain_options inner = {.device = options.device_name,
                           .message = options.message,
                           .message_bytes = options.message != NULL ? options.message_bytes : 0,
                           .device_bytes = options.device_bytes};
  explanation found = {0};
  stow_status status = explain_recording(&found, &of->data, &inner);
  if (status == STOW_OK) status = publish(out, &found, found.evidence.failed);
  explanation_free(&found);
  return status;
}

stow_status stow_explain_message(stow_explanation **out, const char *text, uint64_t bytes) {
  if (out == NULL) return stow_fail(STOW_ERR_INVALID, "stow_explain_message: x is NULL");
  *out = NULL;
  if (text == NULL) return stow_fail(STOW_ERR_INVALID, "stow_explain_message: text is NULL");
  explanation found = {0};
  stow_status status = explain_message(&found, text, bytes);
  if (status == STOW_OK) status = publish(out, &found, found.evidence.message.kind != MESSAGE_NONE);
  explanation_free(&found);
  return status;
}

stow_status stow_explain_run(stow_explanation **out, const char *folder) {
  char last[PATH_MAX];
  if (out == NULL) return stow_fail(STOW_ERR_INVALID, "stow_explain_run: x is NULL");
  *out = NULL;
  if (folder == NULL) STOW_TRY(run_folder_last(last));
  run_explanation *story = calloc(1, sizeof *story); /* too large for the stack of a small thread */
  if (story == NULL) return no_memory();
  stow_status status = run_explanation_read(story, folder != NULL ? folder : last);
  if (status == STOW_OK) status = publish(out, &story->says, story->out_of_memory);
  run_explanation_free(story);
  free(story);
  return status;
}

void stow_explanation_close(stow_explanation *x) {
  if (x == NULL) return;
  for (uint32_t i = 0; i < x->info.cause_count; i++) {
    free(x->cause_headlines[i]);
    lines_free(&x->evidence[i]);
  }
  free(x->causes);
  free(x->evidence);
  free(x->cause_headlines);
  lines_free(&x->notes);
  free(x->headline);
  buffer_free(&x->text);
  buffer_free(&x->json);
  buffer_free(&x->line);
  free(x);
}

stow_status stow_explanation_get_info(const stow_explanation *x, stow_explanation_info *info) {
  if (x == NULL) return stow_fail(STOW_ERR_INVALID, "stow_explanation_get_info: x is NULL");
  return growing_write(info, &x->info, sizeof x->info, "stow_explanation_info");
}

stow_status stow_explanation_get_cause(const stow_explanation *x, uint32_t index, stow_cause *to) {
  if (x == NULL) return stow_fail(STOW_ERR_INVALID, "stow_explanation_get_cause: x is NULL");
  if (index >= x->info.cause_count)
    return stow_fail(STOW_ERR_NOT_FOUND, "stow_explanation_get_cause: no cause %u; there are %u",
                     index, x->info.cause_count);
  return growing_write(to, &x->causes[index], sizeof x->causes[index], "stow_cause");
}

stow_status stow_explanation_get_fix(const stow_explanation *x, uint32_t index, stow_fix *to) {
  if (x == NULL) return stow_fail(STOW_ERR_INVALID, "stow_explanation_get_fix: x is NULL");
  if (index >= x->info.fix_count)
    return stow_fail(STOW_ERR_NOT_FOUND, "stow_explanation_get_fix: no fix %u; there are %u", index,
                     x->info.fix_count);
  const fix *f = &x->fixes.list[index];
  stow_fix full = {.struct_bytes = sizeof full,
                   .replayed = f->replayed,
                   .fits = f->fits,
                   .change = f->change,
                   .cost = f->cost,
                   .saves_bytes = f->saves_bytes};
  return growing_write(to, &full, sizeof full, "stow_fix");
}

const char *stow_explanation_note(const stow_explanation *x, uint32_t index) {
  return x != NULL && index < x->notes.count ? x->notes.list[index] : NULL;
}

const char *stow_explanation_text(const stow_explanation *x) {
  return x != NULL && x->text.data != NULL ? x->text.data : "";
}

const char *stow_explanation_json(const stow_explanation *x) {
  return x != NULL && x->json.data != NULL ? x->json.data : "";
}

const char *stow_explanation_line(const stow_explanation *x) {
  return x != NULL && x->line.data != NULL ? x->line.data : "";
}
