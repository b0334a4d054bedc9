/* Text layout: see text_layout.h. */
#include "data/text_layout.h"

static dtype code_type(uint64_t codes) {
  return codes <= 256 ? DTYPE_U8 : codes <= 65536 ? DTYPE_U16 : DTYPE_U32;
}

dtype text_offset_type(const text_extent *texts) {
  if (texts->fixed) return DTYPE_NONE;
  return texts->bytes <= INT32_MAX ? DTYPE_I32 : DTYPE_I64;
}

uint64_t text_extent_bytes(const text_extent *texts) {
  dtype offsets = text_offset_type(texts);
  uint64_t each = offsets != DTYPE_NONE ? dtype_bytes(offsets) : 0;
  return each * (texts->count + 1) + texts->bytes;
}

text_layout text_layout_choose(const text_extent *rows, const text_extent *words) {
  text_layout plain = {.texts = *rows, .bytes = text_extent_bytes(rows)};
  if (words == NULL) return plain;
  text_layout coded = {.dictionary = true, .codes = code_type(words->count), .texts = *words};
  coded.bytes = rows->count * dtype_bytes(coded.codes) + text_extent_bytes(words);
  return coded.bytes < plain.bytes ? coded : plain;
}

const char *text_layout_name(const text_layout *l) {
  return l->dictionary ? "dictionary" : l->texts.fixed ? "fixed" : "offsets";
}
