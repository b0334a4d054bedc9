/* Spill advice: what would have avoided a spill, from the figures of a ledger. */
#include "advise/spill_advice.h"

#include <stdio.h>
#include <string.h>

#include "harness.h"

#define GIB (UINT64_C(1) << 30)

static char text[512];

static uint64_t need, other, lasting;
static bool moves = true;

static void advise(uint64_t vram, uint64_t spilled, uint64_t weights, uint64_t gradients,
                   uint64_t state, const char *optimizer) {
  ledger l;
  CHECK_OK(ledger_create(&l, NULL));
  atomic_store(&l.header->peak_vram_bytes[1], vram);
  atomic_store(&l.header->peak_excess_bytes[1], spilled);
  atomic_store(&l.header->peak_need_bytes[1], need);
  atomic_store(&l.header->peak_other_bytes[1], other);
  atomic_store(&l.header->lasting_bytes, lasting);
  atomic_store(&l.header->weight_bytes, weights);
  atomic_store(&l.header->gradient_bytes, gradients);
  atomic_store(&l.header->state_bytes, state);
  atomic_store(&l.header->moved_out_bytes, moves && spilled > 0 ? 20 * GIB : 0);
  atomic_store(&l.header->moved_home_bytes, moves ? 20 * GIB : 0);
  atomic_store(&l.header->steps[1], 10);
  snprintf(l.header->optimizer, sizeof l.header->optimizer, "%s", optimizer);
  buffer out = BUFFER_INIT;
  spill_advice(&out, &l);
  snprintf(text, sizeof text, "%s", out.data != NULL ? out.data : "");
  buffer_free(&out);
  ledger_close(&l);
}

static bool says(const char *part) {
  if (strstr(text, part) != NULL) return true;
  printf("%s\n", text);
  return false;
}

TEST(nothing_is_reported_for_a_run_that_fits)
{
  advise(10 * GIB, 0, GIB, GIB, 2 * GIB, "AdamW");
  CHECK(text[0] == '\0');
}

TEST(state_that_moves_is_made_smaller)
{
  advise(10 * GIB, 4 * GIB, 3 * GIB, 3 * GIB, 6 * GIB, "AdamW");
  CHECK(says("4.0 GiB did not fit") && says("4.0 GiB is moved in each step"));
  CHECK(says("state of AdamW is 6.0 GiB") && says("which avoids it"));
  CHECK(says("4.0 GiB more vram would avoid it"));
  advise(10 * GIB, 6 * GIB, 3 * GIB, 3 * GIB, 6 * GIB, "AdamW");
  CHECK(says("saves 4.5 GiB of it") && strstr(text, "which avoids it") == NULL);
}

TEST(nothing_smaller_than_8_bit_is_offered)
{
  advise(10 * GIB, 4 * GIB, 6 * GIB, 6 * GIB, 2 * GIB, "AdamW8bit");
  CHECK(strstr(text, "8-bit") == NULL && says("weights 6.0 GiB"));
  advise(10 * GIB, 4 * GIB, 6 * GIB, 6 * GIB, 2 * GIB, "SGD");
  CHECK(strstr(text, "8-bit") == NULL);
}

TEST(activations_are_named_with_a_batch_that_fits)
{
  advise(6 * GIB, 4 * GIB, GIB, GIB, 0, "SGD");
  CHECK(says("8.0 GiB is activations") && says("a batch of 50% of this one"));
}

TEST(a_program_without_an_optimizer_needs_more_vram)
{
  advise(6 * GIB, 4 * GIB, 0, 0, 0, "");
  CHECK(says("4.0 GiB did not fit") && says("4.0 GiB more vram would avoid it"));
  CHECK(strstr(text, "activations") == NULL && strstr(text, "weights") == NULL);
}

TEST(what_pytorch_needed_counts_not_its_cache)
{
  need = 33 * GIB, other = GIB,
  lasting = 2 * GIB; /* 14 GiB of pages on the host, most of them unused */
  advise(24 * GIB, 14 * GIB, GIB / 2, GIB / 2, GIB, "AdamW");
  CHECK(says("10.0 GiB did not fit") && says("31.0 GiB is activations"));
  CHECK(says("a batch of 67% of this one") && says("10.0 GiB more vram would avoid it"));
}

TEST(an_unused_part_of_a_pool_needs_no_vram)
{
  need = 4 * GIB, other = GIB, lasting = 0;
  moves = false;
  advise(10 * GIB, 90 * GIB, 0, 0, 0, "");
  moves = true;
  CHECK(says("90.0 GiB is on the host") && says("what is used at once (4.0 GiB) fits"));
  CHECK(strstr(text, "more vram") == NULL);
}

TEST(frozen_weights_are_not_activations)
{
  need = 6 * GIB, other = GIB, lasting = 5 * GIB;
  advise(4 * GIB, 3 * GIB, GIB / 64, GIB / 64, GIB / 32, "AdamW");
  CHECK(says("3.0 GiB did not fit") && says("5.0 GiB stays on the device between steps"));
  CHECK(says("not trained: frozen weights in 8 or 4 bits") && strstr(text, "activations") == NULL);
}

TEST_MAIN
