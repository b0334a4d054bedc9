/* Window memory: where the rows of a shuffle's window are.
 *
 * Rows of a file are read into it. Blocks of a scratch file that the page cache holds are mapped
 * instead: copying them first takes as long as reading a file in order. Only pages of the window
 * are mapped, so no more memory is resident than if the rows were read. Called by prefetch. */
#ifndef DATA_WINDOW_MEMORY_H
#define DATA_WINDOW_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct window_memory {
  char *bytes;         /* begins at a page */
  size_t mapped_bytes; /* 0: allocated, not mapped */
} window_memory;

/* Reserves memory. `maps`: for window_memory_map. Returns false if there is none. */
bool window_memory_open(window_memory *m, uint64_t bytes, bool maps);
void window_memory_close(window_memory *m);

/* Maps bytes of a file at `to`, in memory that was opened for it. Returns false if the bytes must
 * be read instead: they share a page with others, which `begins` and `ends` rule out at the two
 * ends of a window; the kernel is older than 5.14; or the file cannot be read. */
bool window_memory_map(char *to, int fd, uint64_t offset, uint64_t bytes, bool begins, bool ends);

/* Returns the size of a page: rows are mapped if a block has whole pages. */
uint64_t window_memory_page(void);

#endif
