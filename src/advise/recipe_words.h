/* Abbreviations for the tables of recipes; included only by recipes_*.c. */
#ifndef ADVISE_RECIPE_WORDS_H
#define ADVISE_RECIPE_WORDS_H

#include "advise/causes.h"
#include "advise/message.h"
#include "advise/recipes.h"

#define C(name) (UINT32_C(1) << CAUSE_##name)
#define K(name) (UINT32_C(1) << MESSAGE_##name)
#define H(name) (UINT32_C(1) << HOST_##name)
#define M(name) CONTEXT_BIT(name)
#define D(name) DERIVED_##name
#define T(name) TRAIT_##name
#define P(name) PROGRAM_##name
/* programs whose settings decide: no general change applies to them */
#define OWN_PROGRAMS (P(HASHCAT) | P(ISAAC) | P(DYNAMICS) | P(WGPU) | P(CANDLE) | P(CUDA_CALL))
#define TORCHY       (K(TORCH) | K(CUDA))
#define FULL         (C(BATCH_TOO_BIG) | C(UNKNOWN))
#define NOT_ROOM     (D(ROOM) | D(ABSURD) | D(INIT))
/* a language other than Python */
#define LANGUAGES (M(R) | M(MATLAB) | M(JULIA) | M(NATIVE))
/* Longer than SAME_WORDS, so that only one of the rows for Windows and for others is shown. */
#define LESS_WEBUI "let the web interface use less memory: "
#define JETSON_SWAP                                                                                \
  "swap on the disk instead of zram, for what the CPU holds (the GPU cannot use it): sudo "        \
  "systemctl disable nvzramconfig; sudo fallocate -l 8G /swapfile; sudo chmod 600 /swapfile; "     \
  "sudo mkswap /swapfile; sudo swapon /swapfile"
#define ANY_DEVICE (~(K(HOST) | K(FOREIGN) | K(NONE)))

#endif
