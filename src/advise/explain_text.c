/* The explanation for a terminal, as one line, and as JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "advise/explain.h"
#include "base/json.h"

#define SHOWN_LEAST   0.3                 /* the text omits less likely causes … */
#define UNKNOWN_LEAST (UINT64_C(1) << 20) /* less is rounding */
#define ABSURD_LEAST  (UINT64_C(1) << 50) /* no machine has as much: the number is an error */
#define PROVED_LEAST  0.5                 /* … and their evidence; JSON has both */

static void heading(buffer *out, const char *text, bool bold) {
  buffer_printf(out, bold ? "\n\033[1m%s\033[0m\n" : "\n%s\n", text);
}

/* ---- text ---- */

static void row(buffer *out, const char *name, uint64_t bytes, const char *note) {
  if (known(bytes))
    buffer_printf(out, "  %-28s %10s%s%s\n", name, cause_size(bytes), note[0] ? "  " : "", note);
}

/* `reserved`: live and cached together, as the text says; MESSAGE_UNKNOWN if it does not. */
static void numbers_text(const numbers *n, uint64_t reserved, bool device, bool elsewhere,
                         buffer *out) {
  char cached[80] = "what the framework keeps for reuse";
  if (known(reserved))
    snprintf(cached, sizeof cached, "what the framework keeps for reuse, %s with live",
             cause_size(reserved));
  if (n->asked_bytes < ABSURD_LEAST) row(out, "requested", n->asked_bytes, "");
  row(out, "live", n->live_bytes, device ? "what your data holds" : "what the process held");
  row(out, "cached, not live", n->cached_bytes, cached);
  row(out, "  largest hole in it", n->largest_hole_bytes, "the largest request it can serve");
  row(out, "outside the framework", n->outside_framework_bytes, "the driver, other libraries");
  row(out, "other processes", n->other_process_bytes, "");
  row(out, device ? "free on the device" : "free", n->free_bytes, "");
  if (known(n->unknown_bytes) && n->unknown_bytes >= UNKNOWN_LEAST)
    row(out, "not accounted for", n->unknown_bytes, "the driver, or processes that are not listed");
  row(out, device ? "the device" : "the machine", n->device_bytes, "");
  row(out, elsewhere ? "what that device leaves" : "the limit set", n->limit_bytes, "");
  if (device && !known(n->device_bytes) && !elsewhere)
    buffer_text(out, "  the device's size is not known\n");
}

static void lines_text(const buffer *lines, const char *before, buffer *out) {
  for (const char *at = lines->data; at != NULL && *at != '\0';) {
    const char *end = strchr(at, '\n');
    size_t length = end != NULL ? (size_t)(end - at) : strlen(at);
    buffer_text(out, before);
    buffer_append(out, at, length);
    buffer_char(out, '\n');
    at += length + (end != NULL);
  }
}

/* Writes it in green if the request fits with this change alone, in red if it does not. */
static void replayed_text(const fix *f, buffer *out, bool color) {
  buffer_printf(out, "; %s%s%s",
                !color    ? ""
                : f->fits ? "\033[32m"
                          : "\033[31m",
                f->fits ? "gets past the failure" : "not enough alone", color ? "\033[0m" : "");
}

/* Writes what a fix saves and costs. */
static void effect_text(const fix *f, const char *before, buffer *out, bool color) {
  buffer_text(out, before);
  if (known(f->saves_bytes)) {
    buffer_printf(out, "saves %s (%s", cause_size(f->saves_bytes),
                  f->replayed ? "replayed" : "estimated");
    if (f->replayed) replayed_text(f, out, color);
    buffer_text(out, "); ");
  }
  buffer_printf(out, "costs: %s\n", f->cost);
}

/* Writes the fixes after the first one, which is above. */
static void fixes_text(const fixes *all, buffer *out, bool color) {
  for (uint32_t i = 1; i < all->count; i++) {
    buffer_printf(out, "  %" PRIu32 ". %s\n", i + 1, all->list[i].change);
    effect_text(&all->list[i], "     ", out, color);
  }
}

stow_status explanation_text(const explanation *x, buffer *out, bool bold) {
  STOW_TRY(explanation_status(x));
  buffer_printf(out, bold ? "\033[1m%s.\033[0m\n" : "%s.\n",
                x->headline.data != NULL ? x->headline.data : "");
  if (x->fixes.count > 0) {
    buffer_printf(out, "Try first: %s\n", x->fixes.list[0].change);
    effect_text(&x->fixes.list[0], "  ", out, bold);
  }
  const numbers *n = &x->evidence.n;
  if (x->memory.length > 0) {
    heading(out, "Memory", bold);
    buffer_append(out, x->memory.data, x->memory.length);
  } else if (x->from_message && x->findings.count == 0) {
    /* A warning, or an error that is not about memory: its numbers are in the sentence. */
  } else if (!x->from_message || n->asked_bytes < ABSURD_LEAST || known(n->live_bytes) ||
             known(n->limit_bytes) || known(n->device_bytes)) {
    heading(out, "Memory", bold);
    numbers_text(n, x->from_message ? x->evidence.message.reserved_bytes : MESSAGE_UNKNOWN,
                 x->evidence.message.kind != MESSAGE_HOST, x->evidence.elsewhere, out);
  }
  if (x->findings.count > 0) heading(out, "Causes", bold);
  for (uint32_t i = 0; i < x->findings.count; i++) {
    const cause *c = &x->findings.list[i];
    if (i > 0 && c->confidence < SHOWN_LEAST && c->id != CAUSE_LIMIT) continue;
    buffer_printf(out, "  %s: %s, confidence %.2f%s%s\n", cause_title(c->id), cause_name(c->id),
                  c->confidence, i > 0 ? ": " : "",
                  i > 0 && c->headline.data != NULL ? c->headline.data : "");
    if (i == 0 || c->confidence >= PROVED_LEAST) lines_text(&c->evidence, "    - ", out);
  }
  if (x->fixes.count > 1) heading(out, "Other fixes", bold);
  fixes_text(&x->fixes, out, bold);
  if (x->notes.length > 0) {
    heading(out, "Notes", bold);
    lines_text(&x->notes, "  ", out);
  }
  return out->status;
}

stow_status explanation_short(const explanation *x, buffer *out) {
  STOW_TRY(explanation_status(x));
  const findings *f = &x->findings;
  if (f->count > 0)
    buffer_printf(out, "%s (%.2f): ", cause_name(f->list[0].id), f->list[0].confidence);
  buffer_text(out, x->headline.data != NULL ? x->headline.data : "");
  if (x->fixes.count > 0) buffer_printf(out, "; %s", x->fixes.list[0].change);
  buffer_char(out, '\n');
  return out->status;
}

/* ---- JSON ---- */

static void json_bytes(json *j, const char *key, uint64_t bytes) {
  json_number_or_null(j, key, known(bytes), bytes);
}

static void numbers_json(const numbers *n, json *j) {
  json_key(j, "numbers");
  json_begin_object(j);
  json_bytes(j, "asked_bytes", n->asked_bytes == SCAN_HUGE ? MESSAGE_UNKNOWN : n->asked_bytes);
  json_bytes(j, "live_bytes", n->live_bytes);
  json_bytes(j, "cached_bytes", n->cached_bytes);
  json_bytes(j, "largest_hole_bytes", n->largest_hole_bytes);
  json_bytes(j, "other_process_bytes", n->other_process_bytes);
  json_bytes(j, "outside_framework_bytes", n->outside_framework_bytes);
  json_bytes(j, "free_bytes", n->free_bytes);
  json_bytes(j, "limit_bytes", n->limit_bytes);
  json_bytes(j, "card_bytes", n->device_bytes);
  json_bytes(j, "unknown_bytes", n->unknown_bytes);
  json_end_object(j);
}

static void lines_json(const buffer *lines, json *j) {
  json_begin_array(j);
  for (const char *at = lines->data; at != NULL && *at != '\0';) {
    const char *end = strchr(at, '\n');
    size_t length = end != NULL ? (size_t)(end - at) : strlen(at);
    json_text_n(j, at, length);
    at += length + (end != NULL);
  }
  json_end_array(j);
}

/* Rounds a confidence to two digits, which is all its precision. */
static double two_digits(double value) {
  return (double)(int)(value * 100 + 0.5) / 100;
}

stow_status explanation_json(const explanation *x, buffer *out) {
  STOW_TRY(explanation_status(x));
  json j = JSON_PRETTY(out);
  json_begin_object(&j);
  json_key(&j, "headline");
  json_text(&j, x->headline.data != NULL ? x->headline.data : "");
  numbers_json(&x->evidence.n, &j);
  json_key(&j, "causes");
  json_begin_array(&j);
  for (uint32_t i = 0; i < x->findings.count; i++) {
    const cause *c = &x->findings.list[i];
    json_begin_object(&j);
    json_key(&j, "id");
    json_text(&j, cause_name(c->id));
    json_key(&j, "title");
    json_text(&j, cause_title(c->id));
    json_key(&j, "confidence");
    json_double(&j, two_digits(c->confidence));
    json_key(&j, "evidence");
    lines_json(&c->evidence, &j);
    json_end_object(&j);
  }
  json_end_array(&j);
  json_key(&j, "fixes");
  json_begin_array(&j);
  for (uint32_t i = 0; i < x->fixes.count; i++) {
    const fix *f = &x->fixes.list[i];
    json_begin_object(&j);
    json_key(&j, "change");
    json_text(&j, f->change);
    json_bytes(&j, "saves_bytes", f->saves_bytes);
    json_key(&j, "basis");
    json_text(&j, f->replayed ? "replayed" : "estimated");
    json_key(&j, "cost");
    json_text(&j, f->cost);
    json_end_object(&j);
  }
  json_end_array(&j);
  json_key(&j, "notes");
  lines_json(&x->notes, &j);
  json_end_object(&j);
  return out->status;
}
