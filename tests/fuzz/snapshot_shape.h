/* Builds a PyTorch snapshot from a fuzzer's bytes: every byte is one decision (how many, which
 * word, which size), so a mutation changes what the snapshot says and rarely breaks the pickle.
 * Zeros, and the end of the bytes, decide for what PyTorch writes. */
#ifndef SNAPSHOT_SHAPE_H
#define SNAPSHOT_SHAPE_H

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"

typedef struct shape {
  const uint8_t *at, *end;
  buffer out;
  uint64_t live_addr[16], live_bytes[16]; /* what events allocated, to be freed by others */
  uint32_t live_count;
  uint64_t next_addr;
  int64_t time_us;
} shape;

enum { SHAPE_ODD = 240, SHAPE_BASE_BITS = 40 };

static inline unsigned shape_take(shape *s) {
  return s->at < s->end ? *s->at++ : 0;
}

static inline void shape_put(shape *s, const void *bytes, size_t count) {
  if (buffer_append(&s->out, bytes, count) != STOW_OK) abort();
}

static inline void shape_code(shape *s, char code) {
  shape_put(s, &code, 1);
}

static inline void shape_text(shape *s, const char *text) {
  uint32_t length = (uint32_t)strlen(text);
  shape_code(s, 'X');
  shape_put(s, &length, 4);
  shape_put(s, text, length);
}

/* As LONG1: any integer of 64 bits, signed; nine bytes where it needs them. */
static inline void shape_integer(shape *s, uint64_t value, bool negative) {
  uint8_t bytes[11] = {0x8a, 9};
  memcpy(bytes + 2, &value, 8);
  bytes[10] = negative ? 0xff : 0;
  shape_put(s, bytes, sizeof bytes);
}

/* A value of another kind, or a number at an edge. */
static inline void shape_odd(shape *s, unsigned which) {
  static const uint64_t edges[] = {0,
                                   1,
                                   511,
                                   512,
                                   UINT64_C(1) << 31,
                                   UINT64_C(1) << 32,
                                   UINT64_C(1) << 47,
                                   UINT64_C(1) << 60,
                                   INT64_MAX,
                                   UINT64_C(1) << 63,
                                   UINT64_MAX};
  switch (which % 16) {
  case 0: shape_code(s, 'N'); break;
  case 1: shape_code(s, '\x88'); break;
  case 2: shape_text(s, "7"); break;
  case 3: shape_put(s, "G\x7f\xf8\0\0\0\0\0\0", 9); break; /* nan */
  case 4: shape_put(s, "]", 1); break;
  case 5: shape_put(s, "}", 1); break;
  case 6: shape_put(s, "K\1K\2\x86", 5); break;      /* a pair */
  case 7: shape_integer(s, UINT64_MAX, true); break; /* -1 */
  case 8: shape_integer(s, UINT64_C(1) << 63, true); break;
  default: shape_integer(s, edges[shape_take(s) % (sizeof edges / sizeof edges[0])], false);
  }
}

static inline void shape_number(shape *s, const char *key, uint64_t value) {
  unsigned odd = shape_take(s);
  if (odd == 255) return; /* the key is missing */
  shape_text(s, key);
  if (odd >= SHAPE_ODD)
    shape_odd(s, odd);
  else
    shape_integer(s, value, false);
}

static inline void shape_word(shape *s, const char *key, const char *const *words, size_t count) {
  unsigned which = shape_take(s);
  if (which == 255) return;
  shape_text(s, key);
  if (which >= SHAPE_ODD)
    shape_odd(s, which);
  else
    shape_text(s, words[which % count]);
}
#define SHAPE_WORDS(s, key, words) shape_word(s, key, words, sizeof(words) / sizeof(words)[0])

static inline uint64_t shape_bytes(shape *s) {
  unsigned size = shape_take(s);
  return (uint64_t)(1 + size % 16) << (9 + size / 16 % 16);
}

static inline void shape_frames(shape *s) {
  static const char *const files[] = {
      "train.py", "model.py", "torch/optim/adam.py", "torch/utils/checkpoint.py",
      "??",       "<frozen>", "\x1b[31m.py"};
  static const char *const names[] = {"forward",  "backward", "step",    "loss",
                                      "__init__", "evaluate", "collate", "at::native::add(long)"};
  shape_text(s, "frames");
  shape_put(s, "](", 2);
  for (unsigned count = shape_take(s) % 4; count > 0; count--) {
    shape_put(s, "}(", 2);
    SHAPE_WORDS(s, "filename", files);
    SHAPE_WORDS(s, "name", names);
    shape_number(s, "line", shape_take(s));
    shape_code(s, 'u');
  }
  shape_code(s, 'e');
}

static inline void shape_segment(shape *s) {
  static const char *const states[] = {"active_allocated", "inactive", "active_pending_free",
                                       "active_awaiting_free", "other"};
  static const char *const types[] = {"large", "small", "other"};
  uint64_t addr = s->next_addr, total = 0;
  unsigned count = shape_take(s) % 8, expandable = shape_take(s);
  shape_put(s, "}(", 2);
  shape_number(s, "device", shape_take(s) % 3);
  shape_number(s, "address", addr);
  shape_number(s, "stream", shape_take(s) % 2);
  SHAPE_WORDS(s, "segment_type", types);
  shape_text(s, "is_expandable");
  shape_code(s, expandable & 1 ? '\x88' : '\x89');
  shape_frames(s);
  shape_text(s, "blocks");
  shape_put(s, "](", 2);
  for (unsigned i = 0; i < count; i++) {
    uint64_t bytes = shape_bytes(s);
    shape_put(s, "}(", 2);
    shape_number(s, "address", addr + total);
    shape_number(s, "size", bytes);
    shape_number(s, "requested_size", bytes - shape_take(s) % 256);
    SHAPE_WORDS(s, "state", states);
    shape_frames(s);
    shape_code(s, 'u');
    if (s->live_count < 16) {
      s->live_addr[s->live_count] = addr + total;
      s->live_bytes[s->live_count++] = bytes;
    }
    total += bytes;
  }
  shape_code(s, 'e');
  shape_number(s, "total_size", total);
  shape_number(s, "allocated_size", total / 2);
  shape_number(s, "active_size", total / 2);
  shape_code(s, 'u');
  s->next_addr += total + ((uint64_t)shape_take(s) << 21);
}

static inline void shape_event(shape *s) {
  static const char *const actions[] = {
      "alloc",        "free_requested", "free_completed", "segment_alloc",
      "segment_free", "segment_map",    "segment_unmap",  "oom",
      "snapshot",     "user_defined",   "other"};
  unsigned action = shape_take(s), which = shape_take(s);
  uint64_t addr = s->next_addr, bytes = shape_bytes(s);
  if (which % 4 != 0 && s->live_count > 0) { /* one that is known */
    addr = s->live_addr[which / 4 % s->live_count];
    bytes = s->live_bytes[which / 4 % s->live_count];
  } else {
    if (s->live_count < 16) {
      s->live_addr[s->live_count] = addr;
      s->live_bytes[s->live_count++] = bytes;
    }
    s->next_addr += bytes;
  }
  shape_put(s, "}(", 2);
  shape_text(s, "action");
  shape_text(s, actions[action % (sizeof actions / sizeof actions[0])]);
  shape_number(s, "addr", addr);
  shape_number(s, "size", bytes);
  shape_number(s, "stream", shape_take(s) % 2);
  s->time_us += 1 + (int64_t)shape_take(s);
  shape_number(s, "time_us", (uint64_t)s->time_us);
  if (action % (sizeof actions / sizeof actions[0]) == 7)
    shape_number(s, "device_free", (uint64_t)shape_take(s) << 20);
  shape_frames(s);
  shape_code(s, 'u');
}

static inline void shape_settings(shape *s) {
  static const char *const conf[] = {"", "expandable_segments:True",
                                     "max_split_size_mb:32,garbage_collection_threshold:0.8",
                                     "x:y,,:", "roundup_power2_divisions:[256:1,512:2,>:4]"};
  shape_text(s, "allocator_settings");
  shape_put(s, "}(", 2);
  SHAPE_WORDS(s, "PYTORCH_CUDA_ALLOC_CONF", conf);
  shape_number(s, "max_split_size", shape_bytes(s));
  shape_number(s, "garbage_collection_threshold", 0);
  shape_number(s, "expandable_segments", 1);
  shape_code(s, 'u');
}

/* The snapshot that the bytes decide for; buffer_free frees it. */
static inline buffer snapshot_shape(const uint8_t *data, size_t size) {
  shape s = {.at = data,
             .end = data + size,
             .out = BUFFER_INIT,
             .next_addr = UINT64_C(0x7f) << SHAPE_BASE_BITS};
  unsigned segments = 1 + shape_take(&s) % 4, devices = 1 + shape_take(&s) % 3,
           events = shape_take(&s) % 64, settings = shape_take(&s);
  shape_put(&s, "\x80\x02}(", 4);
  shape_text(&s, "segments");
  shape_put(&s, "](", 2);
  while (segments-- > 0) shape_segment(&s);
  shape_code(&s, 'e');
  shape_text(&s, "device_traces");
  shape_put(&s, "](", 2);
  for (unsigned device = 0; device < devices; device++) {
    shape_put(&s, "](", 2);
    for (unsigned i = 0; i < events && s.at < s.end; i++) shape_event(&s);
    shape_code(&s, 'e');
  }
  shape_code(&s, 'e');
  if (settings % 2 != 0) shape_settings(&s);
  shape_put(&s, "u.", 2);
  return s.out;
}

#endif
