/* Evidence frames: queries about the stacks and lines of a recording. */
#include <stdio.h>
#include <string.h>

#include "advise/evidence.h"
#include "base/text.h"

bool evidence_passes(const evidence *e, uint32_t stack_id, const char *name, const char *file) {
  const recording *r = e->source;
  if (stack_id == 0 || stack_id > r->stack_count) return false;
  const stack *s = &r->stacks[stack_id - 1];
  for (uint32_t i = 0; i < s->count; i++) {
    uint32_t id = r->stack_frames[s->first + i];
    if (id == 0 || id > r->frame_count) continue;
    const frame *f = &r->frames[id - 1];
    if (strncmp(recording_text(r, f->name_id), name, strlen(name)) == 0 &&
        strstr(recording_text(r, f->file_id), file) != NULL)
      return true;
  }
  return false;
}

const char *evidence_place(const evidence *e, char *text, size_t size, uint32_t frame_id) {
  const recording *r = e->source;
  if (frame_id == 0 || frame_id > r->frame_count) {
    snprintf(text, size, "a line that was not recorded");
    return text;
  }
  const frame *f = &r->frames[frame_id - 1];
  const char *file = recording_text(r, f->file_id), *tail = strstr(file, "-packages/");
  const char *name = recording_text(r, f->name_id);
  snprintf(text, size, "%s:%u%s%s", tail != NULL ? tail + strlen("-packages/") : file, f->line,
           name[0] != '\0' && name[0] != '<' ? " in " : "", name[0] != '<' ? name : "");
  text[text_clean(text, strlen(text), false)] = '\0';
  return text;
}
