/* Lists that grow: keep their items, and stay unchanged if they cannot grow. */
#include "base/list.h"

#include <stdlib.h>

#include "harness.h"

TEST(a_list_grows_from_its_first_capacity_and_keeps_what_it_holds)
{
  uint16_t *list = NULL;
  size_t count = 0, capacity = 0, moves = 0;
  for (uint32_t i = 0; i < 10000; i++) {
    size_t before = capacity;
    CHECK_OK(LIST_ROOM(list, count, capacity, 3, "numbers"));
    CHECK(capacity == before || capacity == (before == 0 ? 3 : before * 2));
    moves += capacity != before;
    list[count++] = (uint16_t)i;
  }
  CHECK_U64(moves, 13); /* 3 · 2^12 is the first that holds them */
  for (uint32_t i = 0; i < 10000; i++) CHECK(list[i] == (uint16_t)i);
  free(list);
}

TEST(a_list_no_address_space_holds_is_refused_and_stays)
{
  static uint64_t one;
  uint64_t *list = &one;
  size_t capacity = SIZE_MAX / 8;
  CHECK_STATUS(list_grow(&list, &capacity, sizeof *list, 1, "numbers"), STOW_ERR_OVERFLOW);
  CHECK_MESSAGE("2305843009213693951 numbers");
  CHECK(list == &one && capacity == SIZE_MAX / 8);
}

TEST_MAIN
