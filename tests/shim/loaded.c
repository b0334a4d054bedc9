/* Loaded: a library that calls into the driver as it is loaded, with the loader's lock held, as
 * some with objects of C++ do. What it calls is loading.c's to say. */
#include <stdint.h>
#include <stdlib.h>

__attribute__((constructor)) static void call(void) {
  const char *where = getenv("LOADING_CALL");
  if (where != NULL) ((void (*)(void))(uintptr_t)strtoull(where, NULL, 16))();
}
