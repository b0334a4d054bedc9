/* Opener: a library that opens another one by its bare name, which only its own search path finds,
 * as a Python module does with bundled libraries. */
#include <dlfcn.h>
#include <stddef.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

__attribute__((visibility("default"))) int opener_opens(void) {
  return dlopen("libshim_sibling.so", RTLD_NOW) != NULL;
}
