/* Text layout: how a text column is stored in an npz, and its size.
 *
 *   dictionary   NAME.codes, and the distinct texts as NAME.words.offsets and NAME.words.bytes
 *   offsets      NAME.offsets (rows + 1 of them, int32 or int64), NAME.bytes: text i is
 *                bytes[offsets[i]:offsets[i + 1]], UTF-8
 *   fixed        only NAME.bytes, rows x width: every text has the same number of bytes
 *
 * Texts of a dictionary that all have the same number of bytes have no offsets either. The smallest
 * layout wins. inspect reports this size, and shrink writes it. Offsets are signed as in Arrow, so
 * that both members are buffers of an Arrow array. */
#ifndef DATA_TEXT_LAYOUT_H
#define DATA_TEXT_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

/* Some texts: their number and their bytes. */
typedef struct text_extent {
  uint64_t count, bytes;
  bool fixed;     /* all have the same number of bytes … */
  uint64_t width; /* … which is this one */
} text_extent;

typedef struct text_layout {
  bool dictionary;
  dtype codes;       /* type of the codes of a dictionary; DTYPE_NONE otherwise */
  text_extent texts; /* stored: those of the dictionary, or one per row */
  uint64_t bytes;    /* size of all members without their headers */
} text_layout;

/* Chooses the layout. `words` NULL: the distinct texts are unknown. */
text_layout text_layout_choose(const text_extent *rows, const text_extent *words);

/* Returns the type of the offsets; DTYPE_NONE if there are none. */
dtype text_offset_type(const text_extent *texts);
/* Returns the bytes of the offsets and the texts. */
uint64_t text_extent_bytes(const text_extent *texts);

/* Returns "dictionary", "offsets" or "fixed". */
const char *text_layout_name(const text_layout *l);

#endif
