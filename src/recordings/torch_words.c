/* Torch words: the texts of the numbers. */
#include "recordings/torch_words.h"

#include <string.h>

#include "recordings/recording.h"

static const struct word {
  const char *text;
  uint8_t code;
} words[] = {
    {"action", KEY_ACTION},
    {"addr", KEY_ADDR},
    {"size", KEY_SIZE},
    {"stream", KEY_STREAM},
    {"time_us", KEY_TIME_US},
    {"frames", KEY_FRAMES},
    {"compile_context", KEY_COMPILE_CONTEXT},
    {"user_metadata", KEY_USER_METADATA},
    {"device_free", KEY_DEVICE_FREE},
    {"name", KEY_NAME},
    {"filename", KEY_FILENAME},
    {"line", KEY_LINE},
    {"device", KEY_DEVICE},
    {"address", KEY_ADDRESS},
    {"total_size", KEY_TOTAL_SIZE},
    {"allocated_size", KEY_ALLOCATED_SIZE},
    {"active_size", KEY_ACTIVE_SIZE},
    {"requested_size", KEY_REQUESTED_SIZE},
    {"segment_type", KEY_SEGMENT_TYPE},
    {"segment_pool_id", KEY_SEGMENT_POOL_ID},
    {"is_expandable", KEY_IS_EXPANDABLE},
    {"blocks", KEY_BLOCKS},
    {"state", KEY_STATE},
    {"history", KEY_HISTORY},
    {"real_size", KEY_REAL_SIZE},
    {"stage", KEY_STAGE},
    {"segments", KEY_SEGMENTS},
    {"device_traces", KEY_DEVICE_TRACES},
    {"allocator_settings", KEY_ALLOCATOR_SETTINGS},
    {"external_annotations", KEY_EXTERNAL_ANNOTATIONS},
    {"error", KEY_ERROR},
    {"stowage_program", KEY_PROGRAM},
    {"N/A", WORD_NOT_APPLICABLE},
    {"", WORD_NOT_APPLICABLE},
    {"large", WORD_LARGE},
    {"small", WORD_SMALL},
    {"START", WORD_START},
    {"END", WORD_END},
    {"active_allocated", WORD_LIVE},
    {"active_pending_free", WORD_PENDING},
    {"active_awaiting_free", WORD_PENDING},
    {"inactive", WORD_INACTIVE},
    {"alloc", WORD_ACTION + EVENT_ALLOC},
    {"free_requested", WORD_ACTION + EVENT_FREE_REQUESTED},
    {"free_completed", WORD_ACTION + EVENT_FREE},
    {"free", WORD_ACTION + EVENT_FREE},
    {"oom", WORD_ACTION + EVENT_FAIL},
    {"segment_alloc", WORD_ACTION + EVENT_SEGMENT_ALLOC},
    {"segment_free", WORD_ACTION + EVENT_SEGMENT_FREE},
    {"segment_map", WORD_ACTION + EVENT_SEGMENT_MAP},
    {"segment_unmap", WORD_ACTION + EVENT_SEGMENT_UNMAP},
    {"snapshot", WORD_ACTION + EVENT_SNAPSHOT},
};

uint8_t torch_word(void *context, const char *text, size_t count) {
  (void)context;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strlen(words[i].text) == count && memcmp(words[i].text, text, count) == 0)
      return words[i].code;
  return KEY_NONE;
}
