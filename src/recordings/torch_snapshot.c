/* PyTorch memory snapshot: runs the pickle machine with torch_rows.c and torch_lists.c as its sink;
 * and the tables they share. */
#include "recordings/torch_snapshot.h"

#include "recordings/torch_reader.h"

#include <stdlib.h>
#include <string.h>

#include "recordings/torch_words.h"

static stow_status read_all(torch_reader *t, input *in, uint64_t max_work_bytes) {
  const uint32_t forget = 1u << TORCH_EVENT | 1u << TORCH_EVENTS | 1u << TORCH_TRACES |
                          1u << TORCH_BLOCK | 1u << TORCH_BLOCKS | 1u << TORCH_SEGMENT |
                          1u << TORCH_SEGMENTS | 1u << TORCH_NOTE | 1u << TORCH_NOTES |
                          1u << TORCH_HISTORY | 1u << TORCH_ROOT;
  const pickle_sink sink = {t,     torch_word, torch_take_dict, torch_take_list, torch_take_tuple,
                            forget};
  pickle_value root;
  STOW_TRY(pickle_run(&t->machine, in, &sink, max_work_bytes, &root));
  STOW_TRY(input_fill(in, input_left(in) + 1)); /* to the end, where gzip's checksum is */
  if (root.tag == TORCH_SEGMENTS) {             /* torch.cuda.memory_snapshot(): segments only */
    t->segments = root.v;
    t->has_root = true;
  }
  if (!t->has_root || (root.tag != TORCH_ROOT && root.tag != TORCH_SEGMENTS))
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: a pickle of %s, not a memory snapshot, which is a dict with \"segments\" "
                     "and \"device_traces\"",
                     in->name,
                     root.tag == TORCH_SETTINGS ? "another dict" : pickle_tag_name(root.tag));
  return torch_finish(t);
}

stow_status torch_snapshot_read(recording *r, input *in, uint64_t max_work_bytes) {
  torch_reader *t = calloc(1, sizeof *t);
  if (t == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to read a snapshot");
  t->r = r;
  r->source = SOURCE_TORCH;
  stow_status status = read_all(t, in, max_work_bytes);
  pickle_free(&t->machine);
  free(t->traces.data);
  free(t->notes.data);
  free(t->pairs.data);
  free(t->histories.data);
  free(t->names.data);
  free(t);
  return status;
}
