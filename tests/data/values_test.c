/* Values: the smallest type over parts, and wrong use. */
#include <stowage/values.h>

#include <math.h>
#include <stdint.h>

#include "harness.h"

TEST(the_smallest_type_is_proved_over_all_parts)
{
  stow_values *values;
  stow_values_facts facts = STOW_VALUES_FACTS_INIT;
  bool fits = true;
  const double first[] = {1, 2.5, -0.125}, second[] = {1024.0625, 0, NAN};
  CHECK_OK(stow_values_open(&values, "float64"));
  CHECK_OK(stow_values_add(values, first, 3));
  CHECK_OK(stow_values_get(values, &facts));
  CHECK_TEXT(facts.smallest, "float16");
  CHECK_OK(stow_values_add(values, second, 3));
  CHECK_OK(stow_values_get(values, &facts));
  CHECK_TEXT(facts.smallest, "float32");
  CHECK_OK(stow_values_fit(values, "f16", &fits));
  CHECK(!fits);
  CHECK_U64(facts.count, 6);
  CHECK_U64(facts.nans, 1);
  CHECK_U64(facts.zeros, 1);
  CHECK_OK(stow_values_close(values));
}

TEST(a_cast_reports_how_far_it_rounded)
{
  const double from[] = {0.1, 1, 3};
  float to[3];
  double worst = -1;
  CHECK_OK(stow_values_cast(to, "float32", from, "float64", 3));
  CHECK(to[1] == 1 && to[0] == 0.1F);
  CHECK_OK(stow_values_error(&worst, false, to, "float32", from, "float64", 3));
  CHECK(worst > 0 && worst < 1e-8);
  CHECK_OK(stow_values_error(&worst, true, to + 1, "float32", from + 1, "float64", 2));
  CHECK(worst == 0);
}

TEST(wrong_use_is_reported)
{
  stow_values *values;
  CHECK_STATUS(stow_values_open(&values, "complex64"), STOW_ERR_INVALID);
  CHECK(values == NULL);
  CHECK_STATUS(stow_values_open(&values, NULL), STOW_ERR_INVALID);
  CHECK_OK(stow_values_open(&values, "i8"));
  CHECK_STATUS(stow_values_add(values, NULL, 3), STOW_ERR_INVALID);
  CHECK_STATUS(stow_values_add(values, "", UINT64_MAX), STOW_ERR_INVALID);
  CHECK_OK(stow_values_add(values, NULL, 0));
  CHECK_STATUS(stow_values_fit(values, "f8", NULL), STOW_ERR_INVALID);
  CHECK_OK(stow_values_close(values));
  CHECK_OK(stow_values_close(NULL));
}

TEST_MAIN
