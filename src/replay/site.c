/* Sites and groups. */
#include "replay/site.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Returns the frame id that a stack counts under. */
static uint32_t stack_frame(const recording *r, const stack *s, const uint8_t *framework) {
  for (uint32_t i = 0; i < s->count; i++) {
    uint32_t id = r->stack_frames[s->first + i];
    if (id != 0 && id <= r->frame_count && !framework[id]) return id;
  }
  uint32_t inner = s->count > 0 ? r->stack_frames[s->first] : 0;
  return inner <= r->frame_count ? inner : 0;
}

stow_status site_table_build(site_table *s, const recording *r) {
  *s = (site_table){0};
  s->of_stack = calloc(r->stack_count + 1, sizeof *s->of_stack);
  s->frames = calloc(r->frame_count + 1, sizeof *s->frames);
  uint32_t *site_of_frame = calloc(r->frame_count + 1, sizeof *site_of_frame);
  uint8_t *framework = calloc(r->frame_count + 1, 1);
  stow_status status = STOW_OK;
  if (s->of_stack == NULL || s->frames == NULL || site_of_frame == NULL || framework == NULL) {
    status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the sites of %zu stacks",
                       r->stack_count);
    goto done;
  }
  for (size_t f = 1; f <= r->frame_count; f++)
    framework[f] = site_is_framework(recording_text(r, r->frames[f - 1].file_id));
  s->count = 1;
  for (size_t i = 1; i <= r->stack_count; i++) {
    uint32_t id = stack_frame(r, &r->stacks[i - 1], framework);
    if (id != 0 && site_of_frame[id] == 0) {
      s->frames[s->count] = id;
      site_of_frame[id] = s->count++;
    }
    s->of_stack[i] = id != 0 ? site_of_frame[id] : 0;
  }
done:
  free(site_of_frame);
  free(framework);
  return status;
}

void site_table_free(site_table *s) {
  free(s->of_stack);
  free(s->frames);
  *s = (site_table){0};
}

static const struct {
  uint64_t below; /* bytes */
  const char *name;
} size_classes[GROUP_SIZE_COUNT] = {
    {UINT64_C(1) << 12, "under 4 KiB"},
    {UINT64_C(1) << 16, "4 KiB to 64 KiB"},
    {UINT64_C(1) << 20, "64 KiB to 1 MiB"},
    {UINT64_C(10) << 20, "1 MiB to 10 MiB"},
    {UINT64_C(100) << 20, "10 MiB to 100 MiB"},
    {UINT64_C(1) << 30, "100 MiB to 1 GiB"},
    {UINT64_MAX, "1 GiB and more"},
};

uint32_t group_size_class(uint64_t bytes) {
  uint32_t i = 0;
  while (i < GROUP_SIZE_COUNT - 1 && bytes >= size_classes[i].below) i++;
  return i;
}

const char *group_size_name(uint32_t size_class) {
  return size_classes[size_class < GROUP_SIZE_COUNT ? size_class : GROUP_SIZE_COUNT - 1].name;
}

const char *site_text(char *text, size_t size, const recording *r, uint32_t frame_id) {
  if (frame_id == 0 || frame_id > r->frame_count) {
    snprintf(text, size, "no stack recorded");
    return text;
  }
  const frame *f = &r->frames[frame_id - 1];
  const char *file = recording_text(r, f->file_id), *tail = strstr(file, "-packages/");
  snprintf(text, size, "%s  %s:%u", recording_text(r, f->name_id),
           tail != NULL ? tail + strlen("-packages/") : file, f->line);
  text[text_clean(text, strlen(text), false)] = '\0';
  return text;
}
