/* Library: which one is opened, and what is said of one that is missing or lacks a function. */
#include "base/library.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "harness.h"

#define VARIABLE "STOWAGE_LIBRARY_TEST"

TEST(the_first_name_that_loads_is_opened)
{
  char reason[LIBRARY_REASON_BYTES] = "";
  const char *const names[] = {"libnowhere-1.so", "libnowhere-2.so", "libc.so.6", NULL};
  void *library = library_open(NULL, names, false, reason);
  CHECK(library != NULL);
  int (*length)(const char *) = NULL;
  CHECK(library_find(library, "atoi", &length) && length("42") == 42);
  CHECK(!library_find(library, "no_such_function", &length) && length == NULL);
  dlclose(library);
}

TEST(the_reason_is_that_of_the_first_name)
{
  char reason[LIBRARY_REASON_BYTES] = "";
  const char *const names[] = {"libnowhere-1.so", "libnowhere-2.so", NULL};
  CHECK(library_open(NULL, names, false, reason) == NULL);
  CHECK(strstr(reason, "libnowhere-1.so") != NULL);
}

TEST(a_variable_names_the_only_one_that_is_tried)
{
  char reason[LIBRARY_REASON_BYTES] = "";
  const char *const names[] = {"libc.so.6", NULL};
  setenv(VARIABLE, "/nowhere/liblzma.so", 1);
  CHECK(library_open(VARIABLE, names, false, reason) == NULL);
  CHECK(strstr(reason, "/nowhere/liblzma.so") != NULL);
  setenv(VARIABLE, "", 1); /* as if it were not set */
  void *library = library_open(VARIABLE, names, false, reason);
  CHECK(library != NULL);
  dlclose(library);
}

TEST(a_missing_function_is_named)
{
  char reason[LIBRARY_REASON_BYTES] = "";
  const char *const names[] = {"libc.so.6", NULL};
  void *library = library_open(NULL, names, false, reason), *a, *b;
  CHECK(library != NULL);
  const library_symbol symbols[] = {{"atoi", &a}, {"no_such_function", &b}};
  CHECK(library_find_all(library, symbols, 1, reason));
  CHECK(!library_find_all(library, symbols, 2, reason));
  CHECK_TEXT(reason, "it has no no_such_function");
  dlclose(library);
}

TEST_MAIN
