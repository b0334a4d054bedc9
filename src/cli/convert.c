/* stowage convert: converts a recording from one format to another, and reports what was read. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <stowage/size.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/losses.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "files/outfile.h"
#include "recordings/recording_file.h"
#include "recordings/recording_write.h"

typedef struct conversion {
  const char *from_path, *to_path;
  recording_kind from, to; /* given or detected */
  recording r;
  uint64_t by_kind[EVENT_KIND_COUNT];
  uint64_t left_out, written_bytes;
} conversion;

static const char *source_words(recording_source source) {
  switch (source) {
  case SOURCE_TORCH: return "PyTorch snapshot";
  case SOURCE_STOW: return "Stowage trace";
  case SOURCE_RMM: return "RMM log";
  case SOURCE_MINIMALLOC: return "minimalloc problem";
  default: return "recording";
  }
}

static stow_status count(conversion *c) {
  for (size_t i = 0; i < c->r.event_count; i++) c->by_kind[c->r.events[i].kind]++;
  struct stat file;
  if (strcmp(c->to_path, "-") == 0) return STOW_OK;
  if (stat(c->to_path, &file) != 0)
    return stow_fail(STOW_ERR_IO, "%s was written, but cannot stat it: %s", c->to_path,
                     strerror(errno));
  c->written_bytes = (uint64_t)file.st_size;
  return STOW_OK;
}

/* ---- for people ---- */

static stow_status describe(const conversion *c) {
  const recording *r = &c->r;
  buffer b = BUFFER_INIT;
  char size[STOW_SIZE_TEXT_MAX];
  buffer_printf(&b, "%s: %s, %zu event%s", output_name(c->from_path), source_words(r->source),
                r->event_count, text_s(r->event_count));
  if (r->stack_count > 0)
    buffer_printf(&b, ", %zu call stack%s", r->stack_count, text_s(r->stack_count));
  if (r->segment_count > 0)
    buffer_printf(&b, ", %zu segment%s with %zu block%s at the end", r->segment_count,
                  text_s(r->segment_count), r->block_count, text_s(r->block_count));
  buffer_char(&b, '\n');
  losses_describe(r, c->left_out, &b);
  if (strcmp(c->to_path, "-") != 0)
    buffer_printf(&b, "%s: %s, %s\n", output_name(c->to_path), recording_kind_name(c->to),
                  stow_size_format(size, c->written_bytes));
  if (strcmp(c->to_path, "-") != 0) return output_buffer(&b);
  if (b.length > 0) output_error("%s", b.data); /* standard output carries the recording */
  buffer_free(&b);
  return STOW_OK;
}

/* ---- for programs ---- */

static void json_input(json *j, const conversion *c) {
  const recording *r = &c->r;
  json_key(j, "input");
  json_begin_object(j);
  json_key(j, "path"), json_text(j, output_name(c->from_path));
  json_key(j, "source"), json_text(j, source_words(r->source));
  json_number(j, "events", r->event_count);
  json_key(j, "events_by_kind");
  json_begin_object(j);
  for (int kind = 0; kind < EVENT_KIND_COUNT; kind++)
    if (c->by_kind[kind] > 0) json_number(j, event_kind_name(kind), c->by_kind[kind]);
  json_end_object(j);
  json_number(j, "names", r->names.count);
  json_number(j, "frames", r->frame_count);
  json_number(j, "stacks", r->stack_count);
  json_number(j, "segments", r->segment_count);
  json_number(j, "blocks", r->block_count);
  json_number(j, "settings", r->setting_count);
  json_number(j, "skipped_events", r->skipped_events);
  json_number(j, "unknown_fields", r->unknown_fields);
  json_number(j, "unknown_frees", r->unknown_frees);
  json_number(j, "bad_values", r->bad_values);
  json_number(j, "damaged_chunks", r->damaged_chunks);
  json_number(j, "torn_bytes", r->torn_bytes);
  json_key(j, "ended"), json_bool(j, r->ended);
  json_key(j, "error"), json_text(j, r->error_id != 0 ? recording_text(r, r->error_id) : NULL);
  json_end_object(j);
}

static stow_status print_json(const conversion *c) {
  buffer b = BUFFER_INIT;
  json j = JSON_PRETTY(&b);
  json_begin_object(&j);
  json_input(&j, c);
  json_key(&j, "output");
  json_begin_object(&j);
  json_key(&j, "path"), json_text(&j, output_name(c->to_path));
  json_key(&j, "format"), json_text(&j, recording_kind_name(c->to));
  json_number(&j, "bytes", c->written_bytes);
  json_number(&j, "left_out_events", c->left_out);
  json_end_object(&j);
  json_end_object(&j);
  return output_buffer(&b);
}

/* ---- the verb ---- */

static int run(verb_call *call) {
  conversion c = {.from_path = call->operands[0], .to_path = call->operands[1]};
  const char *from = verb_value(call, "from"), *to = verb_value(call, "to");
  bool as_json = verb_flag(call, "json"), to_stdout = strcmp(c.to_path, "-") == 0;
  c.from = from != NULL ? recording_kind_named(from) : KIND_AUTO;
  c.to = to != NULL ? recording_kind_named(to) : recording_kind_of_path(c.to_path);
  if (to_stdout && as_json)
    return verb_usage(call, "--json and an OUT of - would both go to standard output; name a file");
  if (to_stdout && to == NULL)
    return verb_usage(call,
                      "standard output has no file name to choose a format by; add --to FORMAT");
  recording_init(&c.r, 0);
  stow_status status = outfile_check_input(c.to_path, c.from_path);
  if (status == STOW_OK) status = recording_read(&c.r, c.from_path, c.from, NULL);
  if (status == STOW_OK) status = recording_write(&c.r, c.to_path, c.to, &c.left_out);
  if (status == STOW_OK) status = count(&c);
  if (status == STOW_OK) status = as_json ? print_json(&c) : describe(&c);
  recording_free(&c.r);
  return status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
}

static const verb_option options[] = {
    {"from", "stow|snapshot|rmm|minimalloc", "the format of IN; default: detect it"},
    {"to", "stow|snapshot|perfetto|pftrace|tensorboard|csv",
     "the format of OUT; default: by its name"},
    VERB_OPTION_JSON,
    VERB_OPTIONS_END,
};

const verb verb_convert = {
    .name = "convert",
    .summary = "convert a recording to another format",
    .example = "stowage convert snapshot.pickle trace.stow\n"
               "stowage convert trace.stow memory.pftrace\n"
               "stowage convert --to csv trace.stow - | head",
    .operands = "IN OUT",
    .operands_min = 2,
    .operands_max = 2,
    .options = options,
    .run = run,
};
