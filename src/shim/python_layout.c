/* Python layout: the table. */
#include "shim/python_layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "shim/python.h"

static const python_layout LAYOUTS[] = {
    {308, 24, -1, 32, 24, 104, 0, 0, 104, 112, 40, 0, 1, 48, 72, 120},
    {309, 24, -1, 32, 24, 104, 0, 0, 104, 112, 40, 0, 1, 48, 72, 120},
    {310, 24, -1, 32, 24, 96, 0, 0, 104, 112, 40, 0, 2, 48, 72, 120},
    {311, 56, 8, 32, 48, 56, 69, 24, 112, 120, 72, 184, 0, 48, 72, 136},
    {312, 56, 0, 0, 8, 56, 70, 24, 112, 120, 68, 192, 0, 40, 56, 136},
    {313, 72, -1, 0, 8, 56, 70, 24, 112, 120, 68, 200, 0, 40, 56, 136},
};

/* Returns whether the interpreter's code objects have the size that they have in this layout. A
 * type stores it after its head and its name. */
static bool same_size(const python_layout *l) {
  const char *type = python_symbol("PyCode_Type");
  ptrdiff_t bytes;
  if (type == NULL) return false;
  memcpy(&bytes, type + 32, sizeof bytes);
  return bytes == (l->instructions != 0 ? l->instructions : 176);
}

const python_layout *python_layout_here(void) {
  const char *(*text)(void) = (const char *(*)(void))(uintptr_t)python_symbol("Py_GetVersion");
  if (sizeof(void *) != 8 || text == NULL || strstr(text(), "free-threading") != NULL) return NULL;
  for (size_t i = 0; i < sizeof LAYOUTS / sizeof LAYOUTS[0]; i++)
    if (LAYOUTS[i].version == python_version() && same_size(&LAYOUTS[i])) return &LAYOUTS[i];
  return NULL;
}
