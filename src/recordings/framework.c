/* Framework: by the folder of a file (framework.h). */
#include "recordings/framework.h"

#include <string.h>

bool framework_has_file(const char *file) {
  /* Folders of PyTorch and Python, and names that mean "no file". */
  static const char *const parts[] = {"site-packages/torch/",
                                      "dist-packages/torch/",
                                      "/torch/csrc/",
                                      "/aten/src/",
                                      "/c10/",
                                      "libtorch",
                                      "libc10",
                                      "<frozen "};
  if (file[0] == '\0' || strcmp(file, "??") == 0 || strncmp(file, "torch/", 6) == 0) return true;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (strstr(file, parts[i]) != NULL) return true;
  /* The standard library: lib/python3.12/contextlib.py, but not …/site-packages/…. */
  return strstr(file, "lib/python3") != NULL && strstr(file, "-packages/") == NULL;
}

uint32_t framework_site(const recording *r, uint32_t stack_id) {
  if (stack_id == 0 || stack_id > r->stack_count) return 0;
  const stack *s = &r->stacks[stack_id - 1];
  for (uint32_t i = 0; i < s->count; i++) {
    uint32_t id = r->stack_frames[s->first + i];
    if (id != 0 && id <= r->frame_count &&
        !framework_has_file(recording_text(r, r->frames[id - 1].file_id)))
      return id;
  }
  uint32_t inner = s->count > 0 ? r->stack_frames[s->first] : 0;
  return inner <= r->frame_count ? inner : 0;
}
