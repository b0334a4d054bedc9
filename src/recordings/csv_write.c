/* CSV: one event per row.
 *
 *   event,time_ns,kind,device,stream,thread,address,bytes,tier,tag,stack
 *
 * The stack is "function@file:line" from the innermost frame out, separated by " < ". Quoting
 * follows RFC 4180. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "recordings/recording_write.h"

enum { FLUSH_BYTES = 1 << 16 };

static const char *const kind_names[EVENT_KIND_COUNT] = {
    "alloc",        "free_requested", "free_completed", "oom",      "segment_alloc",
    "segment_free", "segment_map",    "segment_unmap",  "snapshot", "mark_begin",
    "mark_end",     "migrate",        "spill",          "launch",   "touch",
};

const char *event_kind_name(uint8_t kind) {
  return kind < EVENT_KIND_COUNT ? kind_names[kind] : "unknown";
}

/* Quotes the field if needed and doubles quotes inside it. */
static void put_quoted(buffer *b, const char *text) {
  if (strpbrk(text, ",\"\r\n") == NULL) {
    buffer_text(b, text);
    return;
  }
  buffer_char(b, '"');
  for (; *text != '\0'; text++) {
    if (*text == '"') buffer_char(b, '"');
    buffer_char(b, *text);
  }
  buffer_char(b, '"');
}

static void put_stack(buffer *b, buffer *scratch, const recording *r, uint32_t stack_id) {
  if (stack_id == 0) return;
  const stack *s = &r->stacks[stack_id - 1];
  buffer_clear(scratch);
  for (uint32_t i = 0; i < s->count; i++) {
    uint32_t id = r->stack_frames[s->first + i];
    if (id == 0) continue;
    const frame *f = &r->frames[id - 1];
    buffer_printf(scratch, "%s%s@%s:%" PRIu32, i > 0 ? " < " : "", recording_text(r, f->name_id),
                  recording_text(r, f->file_id), f->line);
  }
  if (scratch->status != STOW_OK)
    buffer_join(b, scratch);
  else if (scratch->length > 0)
    put_quoted(b, scratch->data);
}

stow_status csv_trace_write(const recording *r, outfile *out, uint64_t *left_out) {
  static const char *const tiers[] = {"vram", "host", "disk"};
  buffer b = BUFFER_INIT, scratch = BUFFER_INIT;
  buffer_text(&b, "event,time_ns,kind,device,stream,thread,address,bytes,tier,tag,stack\n");
  for (size_t i = 0; i < r->event_count && out->status == STOW_OK; i++) {
    const event *e = &r->events[i];
    const origin *of = event_origin(r, e);
    buffer_printf(&b, "%zu,%" PRIu64 ",%s,%u,%" PRIu64 ",%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%s,",
                  i, e->time_ns, event_kind_name(e->kind), of->device, of->stream, of->thread,
                  e->addr, e->bytes, of->tier < 3 ? tiers[of->tier] : "");
    put_quoted(&b, recording_text(r, of->tag_id));
    buffer_char(&b, ',');
    put_stack(&b, &scratch, r, e->stack_id);
    buffer_char(&b, '\n');
    if (b.status != STOW_OK && out->status == STOW_OK) out->status = b.status;
    if (b.length < FLUSH_BYTES) continue;
    outfile_write(out, b.data, b.length);
    buffer_clear(&b);
  }
  if (b.length > 0) outfile_write(out, b.data, b.length);
  buffer_free(&b);
  buffer_free(&scratch);
  if (left_out != NULL) *left_out = 0;
  return out->status;
}
