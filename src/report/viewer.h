/* Viewer: the files of web/, inside the library. */
#ifndef REPORT_VIEWER_H
#define REPORT_VIEWER_H

#include <stddef.h>

typedef struct viewer_file {
  const char *text;
  size_t length;
} viewer_file;

/* Returns the page with the placeholders {{policy}}, {{style}}, {{script}} and {{data}}. */
viewer_file viewer_page(void);
viewer_file viewer_style(void);
/* Returns module i in dependency order; text is NULL after the last. */
viewer_file viewer_module(size_t i);

#endif
