/* Policy settings: reads PYTORCH_ALLOC_CONF. */
#include "replay/policies/policy.h"

#include <stdlib.h>
#include <string.h>

static bool is_word(const char *text, size_t length, const char *word) {
  return strlen(word) == length && strncmp(text, word, length) == 0;
}

static stow_status read_megabytes(uint64_t *bytes, const char *text, size_t length) {
  char *end;
  unsigned long long number = length > 0 && *text != '-' ? strtoull(text, &end, 10) : 0;
  if (length == 0 || *text == '-' || end != text + length || number >= (UINT64_C(1) << 40))
    return stow_fail(STOW_ERR_INVALID, "setting %.*s: give a whole number of MiB", (int)length,
                     text);
  *bytes = (uint64_t)number << 20;
  return STOW_OK;
}

static stow_status read_divisions_number(uint32_t *divisions, const char *text, size_t length) {
  char *end;
  unsigned long number = length > 0 ? strtoul(text, &end, 10) : 0;
  bool power = (number & (number - 1)) == 0;
  if (length == 0 || *text == '-' || end != text + length || number > 64 || !power)
    return stow_fail(STOW_ERR_INVALID,
                     "roundup_power2_divisions:%.*s: give a power of two from 1 to 64 (0: off)",
                     (int)length, text);
  *divisions = (uint32_t)number;
  return STOW_OK;
}

/* Parses one number for all sizes, or [256:1,512:2,>:8] by MiB, each valid up to the next. */
static stow_status read_divisions(policy_settings *s, const char *text, size_t length) {
  if (length < 2 || text[0] != '[') {
    uint32_t all;
    STOW_TRY(read_divisions_number(&all, text, length));
    for (int i = 0; i < POLICY_DIVISIONS; i++) s->divisions[i] = all;
    return STOW_OK;
  }
  const char *at = text + 1, *end = text + length - 1;
  int from = 0;
  uint32_t last = 0;
  while (at < end) {
    const char *colon = memchr(at, ':', (size_t)(end - at));
    const char *comma = colon != NULL ? memchr(colon, ',', (size_t)(end - colon)) : NULL;
    if (colon == NULL)
      return stow_fail(STOW_ERR_INVALID,
                       "roundup_power2_divisions:%.*s: give pairs, as in [256:1,512:2,>:8]",
                       (int)length, text);
    if (comma == NULL) comma = end;
    STOW_TRY(read_divisions_number(&last, colon + 1, (size_t)(comma - colon - 1)));
    int upto = POLICY_DIVISIONS;
    if (*at != '>') {
      uint64_t bytes;
      STOW_TRY(read_megabytes(&bytes, at, (size_t)(colon - at)));
      upto = 0;
      for (uint64_t mib = bytes >> 20; mib > 1 && upto < POLICY_DIVISIONS - 1; mib >>= 1) upto++;
      upto++;
      if (from == 0) /* the first pair also applies to everything smaller */
        for (int i = 0; i < upto; i++) s->divisions[i] = last;
      if (upto - 1 >= from) from = upto - 1;
    }
    for (int i = from; i < upto; i++) s->divisions[i] = last;
    from = upto;
    at = comma + 1;
  }
  for (int i = from; i < POLICY_DIVISIONS; i++) s->divisions[i] = last;
  return STOW_OK;
}

static stow_status read_fraction(double *fraction, const char *text, size_t length) {
  char copy[32], *end;
  if (length == 0 || length >= sizeof copy)
    return stow_fail(STOW_ERR_INVALID, "setting %.*s: give a fraction such as 0.8", (int)length,
                     text);
  memcpy(copy, text, length);
  copy[length] = '\0';
  double number = strtod(copy, &end);
  if (*end != '\0' || !(number >= 0 && number < 1))
    return stow_fail(STOW_ERR_INVALID, "setting %s: give a fraction from 0 up to 1", copy);
  *fraction = number;
  return STOW_OK;
}

static stow_status read_pair(policy_settings *s, const char *key, size_t key_length,
                             const char *value, size_t length) {
  if (is_word(key, key_length, "max_split_size_mb")) {
    STOW_TRY(read_megabytes(&s->max_split_bytes, value, length));
    if (s->max_split_bytes <= (UINT64_C(20) << 20))
      return stow_fail(STOW_ERR_INVALID, "max_split_size_mb:%.*s: PyTorch requires more than 20",
                       (int)length, value);
    return STOW_OK;
  }
  if (is_word(key, key_length, "max_non_split_rounding_mb"))
    return read_megabytes(&s->max_rounding_bytes, value, length);
  if (is_word(key, key_length, "roundup_power2_divisions")) return read_divisions(s, value, length);
  if (is_word(key, key_length, "garbage_collection_threshold"))
    return read_fraction(&s->gc_threshold, value, length);
  if (is_word(key, key_length, "preallocate")) {
    s->preallocate = is_word(value, length, "True") || is_word(value, length, "true");
    return STOW_OK;
  }
  static const char *const no_matter[] = {"expandable_segments",
                                          "backend",
                                          "release_lock_on_cudamalloc",
                                          "pinned_use_cuda_host_register",
                                          "pinned_num_register_threads",
                                          "pinned_use_background_threads",
                                          "pinned_reserve_segment_size_mb",
                                          "graph_capture_record_stream_reuse",
                                          "per_process_memory_fraction"};
  for (size_t i = 0; i < sizeof no_matter / sizeof no_matter[0]; i++)
    if (is_word(key, key_length, no_matter[i])) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "unknown setting %.*s; known: max_split_size_mb, roundup_power2_divisions, "
                   "garbage_collection_threshold, max_non_split_rounding_mb, preallocate",
                   (int)key_length, key);
}

stow_status policy_settings_parse(policy_settings *s, const char *text) {
  policy_settings read = *s;
  for (const char *at = text; *at != '\0';) {
    if (*at == ',' || *at == ' ') {
      at++;
      continue;
    }
    const char *colon = strchr(at, ':');
    if (colon == NULL)
      return stow_fail(STOW_ERR_INVALID, "setting %s: give NAME:VALUE, separated by commas", at);
    const char *end = colon + 1;
    for (int depth = 0; *end != '\0' && (depth > 0 || *end != ','); end++)
      depth += (*end == '[') - (*end == ']');
    STOW_TRY(read_pair(&read, at, (size_t)(colon - at), colon + 1, (size_t)(end - colon - 1)));
    at = end;
  }
  *s = read;
  return STOW_OK;
}
