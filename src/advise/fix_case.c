/* Fix case: adds one fix and fills in what it saves. */
#include "advise/fix_case.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

fix *fix_add(fix_case *m, const char *cost, const char *format, ...) {
  if (m->out->count == FIXES_MAX) return NULL;
  fix *x = &m->out->list[m->out->count++];
  *x = (fix){0};
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(x->change, sizeof x->change, format, arguments);
  va_end(arguments);
  x->change[text_clean(x->change, strlen(x->change), false)] = '\0';
  snprintf(x->cost, sizeof x->cost, "%s", cost);
  return x;
}

void fix_also(fix *x, const char *format, ...) {
  if (x == NULL) return;
  size_t length = strlen(x->change);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(x->change + length, sizeof x->change - length, format, arguments);
  va_end(arguments);
  x->change[text_clean(x->change, strlen(x->change), false)] = '\0';
}

stow_status fix_replay(fix_case *m, fix *x, bool expandable) {
  if (x == NULL) return STOW_OK;
  whatif_result r;
  uint64_t capacity = evidence_capacity(m->e);
  STOW_TRY(whatif_run(&m->w, &r, expandable, capacity));
  x->fits = r.finishes;
  STOW_TRY(whatif_run(&m->w, &r, expandable, 0));
  uint64_t before = expandable ? m->base.peak_reserved_bytes : m->base.failure_bytes;
  uint64_t after = expandable ? r.peak_reserved_bytes : r.failure_bytes;
  x->saves_bytes = before > after ? before - after : 0;
  x->replayed = true;
  return STOW_OK;
}

void fix_estimate(fix *x, uint64_t bytes, bool fits) {
  if (x == NULL) return;
  x->saves_bytes = bytes;
  x->fits = fits;
}

const char *fix_place(const fix_case *m, char text[256], uint32_t frame_id) {
  if (frame_id == 0) {
    snprintf(text, 256, "the loop");
    return text;
  }
  return evidence_place(m->e, text, 256, frame_id);
}
