/* Fuzzes sizes: a text is refused with a message, or parsed to a number that prints and parses
 * again to the same value, except for rounding. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  if (text == NULL) return 0;
  memcpy(text, data, size);
  text[size] = '\0';
  uint64_t bytes = 77, again;
  stow_status status = stow_size_parse(&bytes, text);
  if (status != STOW_OK) {
    if (bytes != 77 || stow_status_message()[0] == '\0') abort();
  } else {
    char printed[STOW_SIZE_TEXT_MAX];
    stow_size_format(printed, bytes);
    uint64_t unit = 1;
    while (bytes / unit >= 1024) unit *= 1024;
    /* EiB is printed, but too large to be parsed. */
    if (strstr(printed, "EiB") == NULL) {
      if (stow_size_parse(&again, printed) != STOW_OK) abort();
      if ((again > bytes ? again - bytes : bytes - again) > unit / 19 + 1) abort();
    }
  }
  free(text);
  return 0;
}
