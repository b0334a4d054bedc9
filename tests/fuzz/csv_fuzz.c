/* Fuzzes the reader of tables, and the types its columns get. */
#include <stdlib.h>

#include "data/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  csv c;
  file_facts f = {0};
  budget b = {.bytes = BUDGET_LEAST};
  /* Compressed ones may be of any length; the fuzzer's time is not. */
  if (size > 2 && data[0] == 0x1f && data[1] == 0x8b) return 0;
  if (csv_open_memory(&c, data, size, "fuzz", table_row_max(&b)) != STOW_OK) return 0;
  if (table_scan(&f, &c, HEADER_AUTO, &b) == STOW_OK) {
    if (f.rows > size || f.column_count > size + 1) abort();
    for (size_t i = 0; i < f.column_count; i++)
      if (f.columns[i].text_bytes > size || f.columns[i].missing > f.rows) abort();
  }
  inspect_free(&f);
  csv_close(&c);
  return 0;
}
