/* Loaded: a library that calls the driver while it is loaded, with the loader's lock held, as some
 * libraries with C++ objects do. loading.c decides which function it calls. */
#include <stdint.h>
#include <stdlib.h>

__attribute__((constructor)) static void call(void) {
  const char *where = getenv("LOADING_CALL");
  if (where != NULL) ((void (*)(void))(uintptr_t)strtoull(where, NULL, 16))();
}
