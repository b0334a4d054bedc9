/* Explain: evidence, causes, fixes, and the sentence on top. */
#include "advise/explain.h"

#include <stdio.h>
#include <string.h>

#include "advise/diagnosis.h"
#include "advise/elsewhere.h"
#include "advise/host.h"

#define WORKSPACES_MOST 16 /* most allocations live at the end that are examined one by one */

static void add_note(explanation *x, const char *text) {
  buffer_text(&x->notes, text);
  buffer_char(&x->notes, '\n');
}

/* No failure in it: how close it came. */
/* Returns whether it is a cuBLAS workspace, which cuBLAS allocates at its first product and keeps.
 * The sizes are those that PyTorch 2.11 sets for a handle on devices before and from compute
 * capability 9, and for cuBLASLt. A tensor of exactly that size would be allocated more than once
 * from its line. */
static bool is_workspace(const timeline *t, uint32_t number) {
  const lifetime *l = &t->lifetimes[number];
  if (l->bytes != 8519680 && l->bytes != 33554432 && l->bytes != 1048576) return false;
  for (uint32_t i = 0; i < t->lifetime_count; i++)
    if (i != number && t->lifetimes[i].bytes == l->bytes && t->lifetimes[i].stack_id == l->stack_id)
      return false;
  return !l->before;
}

static void say_kept(explanation *x) {
  const timeline *t = &x->evidence.time;
  uint64_t kept = 0, workspaces = 0;
  uint32_t open = 0;
  for (uint32_t i = 0; i < t->lifetime_count; i++) {
    if (t->lifetimes[i].end != TIMELINE_OPEN) continue;
    bool workspace = open++ < WORKSPACES_MOST && is_workspace(t, i);
    *(workspace ? &workspaces : &kept) += t->lifetimes[i].bytes;
  }
  if (t->tick_count == 0) return;
  if (kept == 0 && workspaces == 0)
    add_note(x, "nothing was kept: everything allocated was freed by the end");
  else if (kept == 0)
    buffer_printf(&x->notes,
                  "nothing was kept: everything allocated was freed by the end, except %s of "
                  "workspaces that cuBLAS makes once\n",
                  cause_size(workspaces));
  else
    buffer_printf(&x->notes, "%s was still live at the end\n", cause_size(kept + workspaces));
}

static void say_no_failure(explanation *x) {
  const evidence *e = &x->evidence;
  uint64_t capacity = evidence_capacity(e);
  if (e->message.kind == MESSAGE_HOST) {
    buffer_printf(&x->headline,
                  "The device did not run out of memory in this recording; the error is "
                  "about host memory");
    return;
  }
  buffer_printf(&x->headline, "Did not run out: at most %s was live and %s held by the allocator",
                cause_size(e->peak_live_bytes),
                e->time.reserved_known ? cause_size(e->peak_reserved_bytes) : "an unknown amount");
  if (capacity > 0) buffer_printf(&x->headline, ", of %s", cause_size(capacity));
  if (e->n.cached_bytes != MESSAGE_UNKNOWN && e->n.cached_bytes > e->n.live_bytes)
    buffer_printf(&x->notes,
                  "at the peak %s was cached and not in use: torch.cuda.empty_cache() gives it to "
                  "others\n",
                  cause_size(e->n.cached_bytes));
  say_kept(x);
}

static void say_limits(explanation *x) {
  const evidence *e = &x->evidence;
  if (!e->has_stacks && e->time.lifetime_count > 0)
    add_note(x, "no stacks were recorded: lines are not known and the cause is less sure "
                "(record with context=\"all\")");
  if (e->failed && e->message.kind == MESSAGE_NONE && e->n.device_bytes == MESSAGE_UNKNOWN)
    add_note(x, "the recording has no error text, so the size of the device and its other users "
                "are not known: add the text with --message");
  if (e->survived) add_note(x, "the program continued after this failure");
  if (e->source->skipped_events > 0)
    add_note(x, "some entries of the file could not be read; the rest was used");
  if (e->time.bad_sizes + e->time.bad_extents + e->source->bad_values > 0)
    add_note(x, "some entries of the file have impossible values and were skipped");
  /* The free of an allocation that was skipped looks like one from before the recording. */
  if (e->time.before_count > e->time.bad_sizes && e->time.before_count * 4 > e->time.lifetime_count)
    add_note(x, "the recording began late: much of the live memory was allocated before it");
}

/* Returns the name of the device. PyTorch's snapshots do not contain it. Only a T4 has this size:
 * 16 GB minus error correction, 14.6 to 14.8 GiB as the driver reports it. */
static const char *device_name(const evidence *e, const explain_options *options) {
  const char *name = recording_text(e->source, e->source->device_name_id);
  if (name[0] != '\0') return name;
  if (options != NULL && options->device != NULL) return options->device;
  double gib = e->n.device_bytes != MESSAGE_UNKNOWN ? (double)e->n.device_bytes / 0x1p30 : 0;
  return gib > 14.4 && gib < 14.85 ? "T4" : "";
}

static stow_status find_answer(explanation *x, const explain_options *options) {
  STOW_TRY(causes_find(&x->findings, &x->evidence));
  STOW_TRY(fixes_find(&x->fixes, &x->evidence, &x->findings, device_name(&x->evidence, options)));
  explanation_head(x);
  return STOW_OK;
}

/* Explains the failure on another device, or how well the program fits there. */
static stow_status explain_elsewhere(explanation *x, elsewhere *w, const explain_options *options) {
  char before[64];
  if (w->fits) {
    elsewhere_say_fits(x, w, options->device_bytes);
    return STOW_OK;
  }
  evidence_free(&x->evidence);
  STOW_TRY(evidence_gather(&x->evidence, &w->view, &w->given));
  STOW_TRY(find_answer(x, options));
  buffer said = x->headline;
  x->headline = BUFFER_INIT;
  snprintf(before, sizeof before, "On a device of %s it fails", cause_size(options->device_bytes));
  buffer_printf(&x->headline, "%s: %s", before, said.data != NULL ? said.data : "");
  buffer_free(&said);
  buffer_printf(&x->notes, "by replay: the device leaves %s to the allocator\n",
                cause_size(w->given.limit_bytes));
  x->evidence.source = NULL; /* the view and the whole go with `w` */
  x->evidence.whole = NULL;
  return x->headline.status;
}

stow_status explain_recording(explanation *x, const recording *r, const explain_options *options) {
  if (host_recording_is(r)) return explain_host_recording(x, r);
  *x = (explanation){.headline = BUFFER_INIT, .notes = BUFFER_INIT};
  evidence_given given = {0};
  if (options != NULL)
    given = (evidence_given){.text = options->message, .text_bytes = options->message_bytes};
  STOW_TRY(evidence_gather(&x->evidence, r, &given));
  if (options != NULL && options->device_bytes > 0) {
    elsewhere w;
    stow_status status = elsewhere_open(&w, &x->evidence, options->device_bytes);
    if (status == STOW_OK) status = explain_elsewhere(x, &w, options);
    elsewhere_close(&w);
    return status == STOW_OK ? explanation_status(x) : status;
  }
  STOW_TRY(find_answer(x, options));
  if (x->headline.length == 0) {
    say_no_failure(x);
    if (!x->evidence.failed && x->evidence.message.kind != MESSAGE_HOST)
      STOW_TRY(elsewhere_say_waste(x));
  }
  say_limits(x);
  return explanation_status(x);
}

stow_status explain_message(explanation *x, const char *text, size_t count) {
  *x = (explanation){.from_message = true, .headline = BUFFER_INIT, .notes = BUFFER_INIT};
  message_read(&x->evidence.message, text, count);
  diagnosis_explain(x);
  return explanation_status(x);
}

_Static_assert(MESSAGE_UNKNOWN == UINT64_MAX, "all bits of a number that is not known are set");
