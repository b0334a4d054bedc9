/* What a fuzz target does with an input that it has read. libFuzzer does one thing with each: that
 * leaves time for more inputs. The tests, which have few, do everything with each. */
#ifndef FUZZ_CHOICE_H
#define FUZZ_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether to do number `which` of `count` things. All bytes of the input have a say, so
 * each thing gets its share of the inputs. */
static inline bool fuzz_does(unsigned which, unsigned count, const uint8_t *data, size_t size) {
#ifdef FUZZ_DOES_ONE
  uint32_t sum = 2166136261; /* FNV-1a */
  for (size_t i = 0; i < size; i++) sum = (sum ^ data[i]) * 16777619;
  return (sum >> 8) % count == which;
#else
  (void)data;
  (void)size;
  return which < count;
#endif
}

#endif
