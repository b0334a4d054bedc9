/* Parsing and formatting sizes. Exact: the fraction is multiplied in integers, so "1.5G" is exactly
 * 1610612736. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <stowage/size.h>

#include "base/checked.h"
#include "base/status.h"

#define HINT "write a size such as 8G, 512 MiB or 1.5GiB"

/* Returns the shift of a unit ("", "B", "K", "KB", "KiB", …), or -1. */
static int unit_shift(const char *unit) {
  static const char units[] = "KMGTP";
  if (unit[0] == '\0' || strcasecmp(unit, "B") == 0) return 0;
  const char *at = strchr(units, toupper((unsigned char)unit[0]));
  if (at == NULL || *at == '\0') return -1;
  if (unit[1] != '\0' && strcasecmp(unit + 1, "B") != 0 && strcasecmp(unit + 1, "iB") != 0)
    return -1;
  return 10 * (int)(at - units + 1);
}

/* Returns the fraction digits times 2^shift, rounded down to whole bytes: 0.1G is 107374182 B. */
static uint64_t fraction_bytes(const char *digits, size_t count, int shift) {
  /* Long division: value = 0.d1d2d3… * 2^shift. 18 digits are exact in 128 bits; later digits are
   * below one byte. */
  unsigned __int128 numerator = 0, denominator = 1;
  for (size_t i = 0; i < count && i < 18; i++) {
    numerator = numerator * 10 + (unsigned)(digits[i] - '0');
    denominator *= 10;
  }
  return (uint64_t)((numerator << shift) / denominator);
}

stow_status stow_size_parse(uint64_t *bytes, const char *text) {
  if (bytes == NULL || text == NULL) return stow_fail(STOW_ERR_INVALID, "size: no text; " HINT);
  const char *at = text;
  while (*at == ' ') at++;
  if (*at == '-' || *at == '+')
    return stow_fail(STOW_ERR_INVALID, "size \"%.40s\" has a sign; " HINT, text);

  uint64_t whole = 0;
  bool fits = true, any = false;
  for (; isdigit((unsigned char)*at); at++, any = true) {
    fits =
        fits && checked_mul(&whole, whole, 10) && checked_add(&whole, whole, (uint64_t)(*at - '0'));
  }
  const char *fraction = NULL;
  size_t fraction_count = 0;
  if (*at == '.') {
    fraction = ++at;
    while (isdigit((unsigned char)*at)) at++;
    fraction_count = (size_t)(at - fraction);
    any = any && fraction_count > 0;
  }
  if (!any) return stow_fail(STOW_ERR_INVALID, "size \"%.40s\" is not a number; " HINT, text);

  while (*at == ' ') at++;
  char unit[8] = "";
  size_t unit_length = strcspn(at, " ");
  if (unit_length < sizeof unit) memcpy(unit, at, unit_length);
  bool trailing = at[unit_length + strspn(at + unit_length, " ")] != '\0';
  int shift = unit_length < sizeof unit && !trailing ? unit_shift(unit) : -1;
  if (shift < 0)
    return stow_fail(STOW_ERR_INVALID, "size \"%.40s\" has no unit named \"%.16s\"; " HINT, text,
                     at);
  if (fraction != NULL && shift == 0)
    return stow_fail(STOW_ERR_INVALID, "size \"%.40s\" is a fraction of a byte; " HINT, text);

  uint64_t scaled = 0;
  fits = fits && checked_mul(&scaled, whole, UINT64_C(1) << shift);
  if (fits && fraction != NULL)
    fits = checked_add(&scaled, scaled, fraction_bytes(fraction, fraction_count, shift));
  if (!fits)
    return stow_fail(STOW_ERR_OVERFLOW, "size \"%.40s\" exceeds 2^64 - 1 bytes; " HINT, text);
  *bytes = scaled;
  return STOW_OK;
}

const char *stow_size_format(char text[STOW_SIZE_TEXT_MAX], uint64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    snprintf(text, STOW_SIZE_TEXT_MAX, "%" PRIu64 " B", bytes);
    return text;
  }
  int unit = 1;
  while (unit < 6 && bytes >> (10 * (unit + 1)) != 0) unit++;
  double value = (double)bytes / (double)(UINT64_C(1) << (10 * unit));
  /* 1023.96 KiB would print as 1024.0 KiB. */
  if (value >= 1023.95 && unit < 6) {
    value /= 1024;
    unit++;
  }
  snprintf(text, STOW_SIZE_TEXT_MAX, "%.1f %s", value, units[unit]);
  return text;
}
