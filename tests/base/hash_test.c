/* Map and intern: the same results as a simple model, through long random histories.
 */
#include "base/hash.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "harness.h"

/* The model: a plain array over a small key space, so that puts, hits, misses and removals of every
 * kind all happen often. */
enum { KEYS = 700 };

static uint64_t key_of(uint64_t i) {
  /* Some keys near one another, some far, zero and the largest among them. */
  return i == 0 ? UINT64_MAX : i % 3 == 0 ? i << 40 : i - 1;
}

TEST(a_map_agrees_with_a_model_through_200000_random_steps)
{
  for (uint64_t seed = 1; seed <= 4; seed++) {
    map m = {.seed = seed == 1 ? 0 : seed};
    bool there[KEYS] = {false};
    uint64_t value[KEYS] = {0}, random = seed, count = 0;
    for (int step = 0; step < 50000; step++) {
      uint64_t i = harness_random(&random) % KEYS, r = harness_random(&random);
      uint64_t got = 0;
      /* Phases of growth and of shrinking. */
      bool put = r % 100 < (step / 5000 % 2 == 0 ? 70u : 30u);
      if (put) {
        CHECK_OK(map_put(&m, key_of(i), r));
        count += there[i] ? 0 : 1;
        there[i] = true;
        value[i] = r;
      } else {
        bool removed = map_remove(&m, key_of(i), &got);
        CHECK(removed == there[i]);
        if (removed) CHECK_U64(got, value[i]);
        count -= removed ? 1 : 0;
        there[i] = false;
      }
      CHECK_U64(m.count, count);
      uint64_t look = harness_random(&random) % KEYS;
      uint64_t *at = map_get(&m, key_of(look));
      CHECK((at != NULL) == there[look]);
      if (at != NULL) CHECK_U64(*at, value[look]);
    }
    for (uint64_t i = 0; i < KEYS; i++) CHECK((map_get(&m, key_of(i)) != NULL) == there[i]);
    map_free(&m);
  }
}

TEST(walking_a_map_meets_every_entry_once)
{
  map m = {0};
  uint64_t sum = 0, count = 0, key, value;
  for (uint64_t i = 1; i <= 1000; i++) CHECK_OK(map_put(&m, i, i * 3));
  for (size_t at = 0; map_next(&m, &at, &key, &value); count++) {
    CHECK_U64(value, key * 3);
    sum += key;
  }
  CHECK_U64(count, 1000);
  CHECK_U64(sum, 1000 * 1001 / 2);
  map_free(&m);
  size_t at = 0;
  CHECK(!map_next(&m, &at, &key, &value));
}

TEST(an_empty_map_answers)
{
  map m = {0};
  CHECK(map_get(&m, 0) == NULL);
  CHECK(!map_remove(&m, 0, NULL));
  map_free(&m);
}

TEST(a_value_changed_through_its_pointer_stays_changed)
{
  map m = {0};
  CHECK_OK(map_put(&m, 9, 1));
  *map_get(&m, 9) += 41;
  CHECK_U64(*map_get(&m, 9), 42);
  CHECK_OK(map_put(&m, 9, 7));
  CHECK_U64(*map_get(&m, 9), 7);
  CHECK_U64(m.count, 1);
  map_free(&m);
}

TEST(hashes_depend_on_every_byte_the_length_and_the_seed)
{
  unsigned char bytes[40];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7);
  for (size_t length = 1; length <= sizeof bytes; length++) {
    uint64_t whole = hash_bytes(bytes, length, 1);
    CHECK(whole != hash_bytes(bytes, length - 1, 1));
    CHECK(whole != hash_bytes(bytes, length, 2));
    for (size_t i = 0; i < length; i++) {
      bytes[i] ^= 1;
      CHECK(whole != hash_bytes(bytes, length, 1));
      bytes[i] ^= 1;
    }
  }
}

/* Names of every length up to 40, many of them alike but for one byte. */
static size_t random_name(uint64_t *random, char *to) {
  uint64_t r = harness_random(random);
  size_t length = r % 41;
  for (size_t i = 0; i < length; i++)
    to[i] = (char)('a' + (i == r / 64 % (length + 1)) * (r >> 32) % 5);
  if (r >> 60 == 0) length = (size_t)sprintf(to, "%d", (int)(r >> 40 & 0xffff));
  return length;
}

TEST(many_names_get_the_numbers_that_they_get_one_by_one)
{
  enum { MANY = 300 };
  static char names[MANY][48];
  const char *texts[MANY];
  uint32_t lengths[MANY], number;
  uint64_t numbers[MANY], found[MANY], random = 5;
  intern one = {0}, many = {0};
  for (int round = 0; round < 200; round++) {
    size_t count = harness_random(&random) % MANY, known = 0;
    for (size_t i = 0; i < count; i++) {
      texts[i] = names[i];
      lengths[i] = (uint32_t)random_name(&random, names[i]);
    }
    size_t hits = intern_find_many(&many, texts, lengths, count, found);
    CHECK_OK(intern_add_many(&many, texts, lengths, count, numbers));
    for (size_t i = 0; i < count; i++) {
      bool has = intern_find(&one, &number, texts[i], lengths[i]);
      CHECK_U64(found[i], has ? number : INTERN_NONE);
      known += has;
    }
    CHECK_U64(hits, known);
    for (size_t i = 0; i < count; i++) {
      CHECK_OK(intern_add(&one, &number, texts[i], lengths[i]));
      CHECK_U64(numbers[i], number);
    }
  }
  CHECK_U64(one.count, many.count);
  CHECK(one.length == many.length && memcmp(one.bytes, many.bytes, one.length) == 0);
  intern_free(&one);
  intern_free(&many);
}

TEST(names_are_numbered_in_the_order_they_first_come)
{
  intern t = {0};
  uint32_t number;
  for (int round = 0; round < 3; round++) {
    for (uint32_t i = 0; i < 5000; i++) {
      char name[32];
      int length = snprintf(name, sizeof name, "name %u", i * 7919 % 5000);
      CHECK_OK(intern_add(&t, &number, name, (size_t)length));
      CHECK_U64(number, i);
    }
  }
  CHECK_U64(t.count, 5000);
  for (uint32_t i = 0; i < 5000; i++) {
    char name[32];
    size_t length;
    int expected = snprintf(name, sizeof name, "name %u", i * 7919 % 5000);
    CHECK_TEXT(intern_get(&t, i, &length), name);
    CHECK_U64(length, expected);
    CHECK(intern_find(&t, &number, name, length) && number == i);
  }
  CHECK(!intern_find(&t, &number, "absent", 6));
  CHECK_TEXT(intern_get(&t, 5000, NULL), "");
  intern_free(&t);
}

TEST(names_are_bytes_the_empty_one_and_those_with_nul_too)
{
  intern t = {0};
  uint32_t empty, zero, zeros, again;
  size_t length;
  CHECK_OK(intern_add(&t, &empty, "", 0));
  CHECK_OK(intern_add(&t, &zero, "\0", 1));
  CHECK_OK(intern_add(&t, &zeros, "\0\0", 2));
  CHECK(empty != zero && zero != zeros);
  CHECK_OK(intern_add(&t, &again, NULL, 0));
  CHECK_U64(again, empty);
  intern_get(&t, zeros, &length);
  CHECK_U64(length, 2);
  intern_free(&t);
}

/* Names that one thread adds while another finds them. */
enum { ADDED = 20000, NAME_BYTES = 16 };
typedef struct adding {
  intern t;
  _Atomic uint32_t added;
} adding;

static size_t name_of(char *name, uint32_t i) {
  return (size_t)snprintf(name, NAME_BYTES, "%u", i * UINT32_C(2654435761));
}

static void *find_added(void *argument) {
  adding *a = argument;
  char name[NAME_BYTES];
  for (uint32_t done = 0, seen; done < ADDED; done = seen) {
    seen = atomic_load_explicit(&a->added, memory_order_relaxed);
    for (uint32_t i = done; i < seen + 8 && i < ADDED; i++) {
      size_t length = name_of(name, i), found;
      const char *text = name;
      uint32_t bytes = (uint32_t)length;
      uint64_t number;
      if (intern_find_many(&a->t, &text, &bytes, 1, &number) == 0) continue; /* not added yet */
      CHECK_U64(number, i);
      CHECK(memcmp(intern_get(&a->t, i, &found), name, length) == 0 && found == length);
    }
  }
  return NULL;
}

TEST(names_with_room_are_found_while_another_thread_adds_more)
{
  static adding a;
  pthread_t finder;
  char name[NAME_BYTES];
  CHECK(!intern_has_room(&a.t, ADDED, ADDED * 10));
  CHECK_OK(intern_reserve(&a.t, ADDED, ADDED * 10));
  CHECK(intern_has_room(&a.t, ADDED, ADDED * 10));
  const char *bytes = a.t.bytes;
  const uint64_t *table = a.t.table;
  CHECK(pthread_create(&finder, NULL, find_added, &a) == 0);
  for (uint32_t i = 0; i < ADDED; i++) {
    uint32_t number;
    CHECK_OK(intern_add(&a.t, &number, name, name_of(name, i)));
    CHECK_U64(number, i);
    atomic_store_explicit(&a.added, i + 1, memory_order_relaxed);
  }
  CHECK(pthread_join(finder, NULL) == 0);
  CHECK(a.t.bytes == bytes && a.t.table == table);
  intern_free(&a.t);
}

TEST(names_stay_within_their_bound)
{
  intern t = {.max_bytes = 16};
  uint32_t number = 99;
  CHECK_OK(intern_add(&t, &number, "12345678", 8));
  CHECK_STATUS(intern_add(&t, &number, "abcdefgh", 8), STOW_ERR_BUDGET);
  CHECK_MESSAGE("limit of 16 bytes");
  CHECK_OK(intern_add(&t, &number, "abcdef", 6));
  CHECK_OK(intern_add(&t, &number, "12345678", 8));
  CHECK_U64(number, 0);
  CHECK_U64(t.count, 2);
  intern_free(&t);
}

TEST_MAIN
