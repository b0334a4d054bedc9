/* Torch words: the keys of a PyTorch memory snapshot, and the words used as values, as numbers.
 *
 * torch_snapshot.c recognizes dicts by them. Old and new names of the same thing share a number. */
#ifndef RECORDINGS_TORCH_WORDS_H
#define RECORDINGS_TORCH_WORDS_H

#include <stddef.h>
#include <stdint.h>

enum torch_word {
  KEY_NONE = 0,
  KEY_ACTION,
  KEY_ADDR,
  KEY_SIZE,
  KEY_STREAM,
  KEY_TIME_US,
  KEY_FRAMES,
  KEY_COMPILE_CONTEXT,
  KEY_USER_METADATA,
  KEY_DEVICE_FREE,
  KEY_NAME,
  KEY_FILENAME,
  KEY_LINE,
  KEY_DEVICE,
  KEY_ADDRESS,
  KEY_TOTAL_SIZE,
  KEY_ALLOCATED_SIZE,
  KEY_ACTIVE_SIZE,
  KEY_REQUESTED_SIZE,
  KEY_SEGMENT_TYPE,
  KEY_SEGMENT_POOL_ID,
  KEY_IS_EXPANDABLE,
  KEY_BLOCKS,
  KEY_STATE,
  KEY_HISTORY,
  KEY_REAL_SIZE,
  KEY_STAGE,
  KEY_SEGMENTS,
  KEY_DEVICE_TRACES,
  KEY_ALLOCATOR_SETTINGS,
  KEY_EXTERNAL_ANNOTATIONS,
  KEY_ERROR,
  KEY_PROGRAM,
  KEY_COUNT, /* below: words used as values */
  WORD_NOT_APPLICABLE = KEY_COUNT,
  WORD_LARGE,
  WORD_SMALL,
  WORD_START,
  WORD_END,
  WORD_LIVE,
  WORD_PENDING,
  WORD_INACTIVE,
  WORD_ACTION, /* and up: WORD_ACTION + event_kind */
};

/* For a pickle_sink: returns the number of a text, KEY_NONE if unknown. */
uint8_t torch_word(void *context, const char *text, size_t count);

#endif
