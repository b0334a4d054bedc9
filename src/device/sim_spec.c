/* Parses "16G,host=32G,paper,costs,no-vmm" into the options of a simulated device.
 *
 * Called by stow_device_open. The first word is the size of vram. Sizes are rounded down to whole 2
 * MiB, so that "15.9G" works. Without host= the host tier is twice the vram; host=0 removes it. */
#include "device/sim_state.h"

#include <stdio.h>
#include <string.h>

#include <stowage/size.h>

#include "base/checked.h"

#define PAGE     (UINT64_C(2) << 20)
#define WORD_MAX 64

static stow_status bad_spec(const char *spec, const char *word, const char *what) {
  return stow_fail(
      STOW_ERR_INVALID,
      "device \"sim%s\": \"%s\" %s; write it like sim:16G or sim:16G,host=32G,paper,costs,no-vmm",
      spec, word, what);
}

static stow_status parse_size(uint64_t *bytes, const char *spec, const char *word,
                              const char *text) {
  uint64_t requested;
  if (stow_size_parse(&requested, text) != STOW_OK)
    return bad_spec(spec, word, "has no valid size suffix (K, M, G or T)");
  *bytes = round_down(requested, PAGE);
  if (*bytes == 0 && requested != 0) return bad_spec(spec, word, "is less than one page of 2 MiB");
  return STOW_OK;
}

static stow_status parse_word(stow_sim_options *options, bool *has_host, const char *spec,
                              const char *word) {
  if (strncmp(word, "host=", 5) == 0) {
    if (*has_host) return bad_spec(spec, word, "sets the host tier a second time");
    *has_host = true;
    return parse_size(&options->host_bytes, spec, word, word + 5);
  }
  if (strcmp(word, "paper") == 0)
    options->paper = true;
  else if (strcmp(word, "costs") == 0)
    options->costs = true;
  else if (strcmp(word, "no-vmm") == 0)
    options->no_vmm = true;
  else
    return bad_spec(spec, word, "is not an option of the simulated device");
  return STOW_OK;
}

stow_status sim_open_spec(stow_device **device, const char *spec) {
  stow_sim_options options = STOW_SIM_OPTIONS_INIT;
  bool has_host = false;
  *device = NULL;
  const char *at = spec[0] == ':' ? spec + 1 : spec;
  for (bool first = true;; first = false) {
    size_t length = strcspn(at, ",");
    char word[WORD_MAX];
    if (length >= sizeof word) return bad_spec(spec, at, "is too long for an option");
    memcpy(word, at, length);
    word[length] = '\0';
    if (first) {
      STOW_TRY(parse_size(&options.vram_bytes, spec, word, word));
      if (options.vram_bytes == 0) return bad_spec(spec, word, "is a device without memory");
    } else {
      STOW_TRY(parse_word(&options, &has_host, spec, word));
    }
    if (at[length] == '\0') break;
    at += length + 1;
  }
  if (!has_host && !checked_mul(&options.host_bytes, options.vram_bytes, 2))
    options.host_bytes = options.vram_bytes;
  return stow_sim_open(device, &options);
}
