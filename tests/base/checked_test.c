/* Checked arithmetic: correct results, and false exactly if 64 bits do not hold the result.
 */
#include "base/checked.h"

#include "harness.h"

TEST(sums_and_products_agree_with_128_bits)
{
  uint64_t random = 11;
  for (int i = 0; i < 200000; i++) {
    uint64_t a = harness_random(&random) >> (harness_random(&random) % 64);
    uint64_t b = harness_random(&random) >> (harness_random(&random) % 64);
    uint64_t out;
    unsigned __int128 sum = (unsigned __int128)a + b, product = (unsigned __int128)a * b;
    CHECK(checked_add(&out, a, b) == (sum <= UINT64_MAX));
    CHECK_U64(out, (uint64_t)sum);
    CHECK(checked_mul(&out, a, b) == (product <= UINT64_MAX));
    CHECK_U64(out, (uint64_t)product);
  }
}

TEST(rounding_is_to_the_next_multiple_and_refuses_to_wrap)
{
  uint64_t out, random = 12;
  for (int i = 0; i < 200000; i++) {
    uint64_t unit = UINT64_C(1) << (harness_random(&random) % 40);
    uint64_t n = harness_random(&random) >> (harness_random(&random) % 64);
    bool fits = n <= UINT64_MAX - (unit - 1);
    CHECK(checked_round_up(&out, n, unit) == fits);
    if (!fits) continue;
    CHECK(out % unit == 0 && out >= n && out - n < unit);
    CHECK_U64(round_up(n, unit), out);
    CHECK(round_down(n, unit) % unit == 0 && n - round_down(n, unit) < unit);
  }
  CHECK(!checked_round_up(&out, UINT64_MAX, 2));
  CHECK(checked_round_up(&out, 0, 4096) && out == 0);
}

TEST(powers_of_two_are_known)
{
  CHECK(!is_power_of_two(0));
  for (int i = 0; i < 64; i++) {
    CHECK(is_power_of_two(UINT64_C(1) << i));
    if (i > 1) CHECK(!is_power_of_two((UINT64_C(1) << i) - 1));
  }
}

TEST_MAIN
