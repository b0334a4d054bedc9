/* Data options: see data_options.h. */
#include "cli/data_options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/status.h"
#include "base/text.h"
#include "cli/output.h"
#include "data/workers.h"
#include "files/remote.h"

#define GIVE_BACK_BYTES (1 << 20)

static stow_status show_progress(void *context, uint64_t done, uint64_t total) {
  progress *bar = context;
  bar->total = total;
  progress_at(bar, done);
  return STOW_OK;
}

static stow_status read_threads(const verb_call *call, unsigned *threads) {
  const char *text = verb_value(call, "threads");
  *threads = workers_default();
  if (text == NULL) return STOW_OK;
  char *end;
  errno = 0;
  unsigned long count = strtoul(text, &end, 10);
  if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || count < 1 ||
      count > WORKERS_MAX)
    return stow_fail(STOW_ERR_INVALID, "--threads \"%.40s\": must be a whole number from 1 to %d",
                     text, WORKERS_MAX);
  *threads = (unsigned)count;
  return STOW_OK;
}

static stow_status take_headers(const verb_call *call) {
  enum { LINES_MAX = 32 };
  static const char *lines[LINES_MAX + 1]; /* valid for as long as the command runs */
  size_t count = 0;
  for (size_t i = 0; i < call->given_count; i++) {
    if (strcmp(call->given[i].option->name, "header") != 0) continue;
    if (count == LINES_MAX) return stow_fail(STOW_ERR_INVALID, "more than %d --header", LINES_MAX);
    lines[count++] = call->given[i].value;
  }
  /* Credentials belong to one host; sending them to several would disclose them. */
  const char *first = NULL;
  for (int i = 0; i < call->operand_count && count > 0; i++) {
    const char *url = call->operands[i];
    if (!text_is_url(url)) continue;
    if (first != NULL && !text_same_origin(first, url))
      return stow_fail(STOW_ERR_INVALID,
                       "--header goes to one host, and %s and %s are on two; run them one by one",
                       output_name(first), output_name(url));
    first = url;
  }
  remote_set_default_headers(lines);
  return STOW_OK;
}

static stow_status take_rate(const verb_call *call) {
  const char *text = verb_value(call, "min-rate");
  uint64_t bytes;
  if (text == NULL) return STOW_OK;
  stow_status status = stow_size_parse(&bytes, text);
  if (status != STOW_OK) return stow_fail(status, "--min-rate: %s", stow_status_message());
  remote_set_rate(bytes);
  return STOW_OK;
}

/* Makes malloc return freed memory to the system. The budget is for resident memory, but the C
 * library keeps freed blocks, separately for each thread, once it has seen large blocks come and
 * go. */
static void give_back_what_is_freed(void) {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, GIVE_BACK_BYTES);
  mallopt(M_TRIM_THRESHOLD,
          4 * GIVE_BACK_BYTES); /* otherwise every small block at the end would be returned */
#endif
}

stow_status data_budget(const verb_call *call, budget *b, progress *bar, const char *what) {
  give_back_what_is_freed();
  *b = (budget){.progress = show_progress, .context = bar};
  progress_begin(bar, what, 0, true);
  STOW_TRY(take_headers(call));
  STOW_TRY(take_rate(call));
  STOW_TRY(verb_memory(call, "memory", &b->bytes));
  if (verb_value(call, "memory") == NULL) b->bytes = budget_default();
  STOW_TRY(read_threads(call, &b->threads));
  const char *purpose = verb_value(call, "for");
  for (int i = 0; purpose != NULL && i < SCAN_PURPOSES; i++)
    if (strcmp(purpose, scan_purpose_name((scan_purpose)i)) == 0) b->purpose = (scan_purpose)i;
  return budget_check(b->bytes);
}

table_header data_header(const verb_call *call) {
  const char *word = verb_value(call, "names");
  if (word == NULL || strcmp(word, "auto") == 0) return HEADER_AUTO;
  return strcmp(word, "yes") == 0 ? HEADER_YES : HEADER_NO;
}

/* Lists every value of a repeatable option, ended by NULL; NULL if it was not given. `named`: only
 * the values with a '='. */
static stow_status read_all(const verb_call *call, const char *name, bool named,
                            const char *const **list) {
  size_t count = 0;
  *list = NULL;
  if (verb_value(call, name) == NULL) return STOW_OK;
  const char **made = calloc(call->given_count + 1, sizeof *made);
  if (made == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "--%s: no host memory", name);
  for (size_t i = 0; i < call->given_count; i++)
    if (strcmp(call->given[i].option->name, name) == 0 &&
        (!named || strchr(call->given[i].value, '=') != NULL))
      made[count++] = call->given[i].value;
  *list = made;
  return STOW_OK;
}

stow_status data_table(const verb_call *call, table_options *t) {
  stow_table_options o = STOW_TABLE_OPTIONS_INIT;
  const char *skip = verb_value(call, "skip");
  o.delimiter = verb_value(call, "delimiter");
  o.decimal = verb_value(call, "decimal");
  o.comment = verb_value(call, "comment");
  o.encoding = verb_value(call, "encoding");
  if (skip != NULL) {
    char *end;
    errno = 0;
    o.skip = strtoull(skip, &end, 10);
    if (!isdigit((unsigned char)skip[0]) || *end != '\0' || errno != 0)
      return stow_fail(STOW_ERR_INVALID, "--skip \"%.40s\": must be a number of lines", skip);
  }
  *t = (table_options){0};
  stow_status status = read_all(call, "na", false, &o.na);
  if (status == STOW_OK) status = read_all(call, "type", false, &o.types);
  if (status == STOW_OK) status = read_all(call, "tolerance", true, &o.tolerances);
  if (status == STOW_OK) status = table_options_read(t, &o);
  free((void *)(uintptr_t)o.na);
  free((void *)(uintptr_t)o.types);
  free((void *)(uintptr_t)o.tolerances);
  return status;
}

stow_status data_shape(const char *text, array_spec *spec) {
  const char *at = text;
  bool bracket = *at == '(';
  if (bracket) at++;
  spec->has_shape = true;
  while (*at != '\0' && *at != ')') {
    char *end;
    errno = 0;
    if (spec->dims == ARRAY_DIMS_MAX || !isdigit((unsigned char)*at)) break;
    spec->shape[spec->dims++] = strtoull(at, &end, 10);
    if (errno != 0 || spec->shape[spec->dims - 1] > INT64_MAX) break;
    at = end;
    if (*at == ',') at++;
    while (*at == ' ') at++;
  }
  if (bracket && *at == ')') at++;
  if (*at != '\0' || text[0] == '\0')
    return stow_fail(
        STOW_ERR_INVALID,
        "--shape \"%.60s\": must be whole numbers with commas, as 1000,64 (at most %d)", text,
        ARRAY_DIMS_MAX);
  return STOW_OK;
}

stow_status data_print(const verb_call *call, buffer *text, stow_status status, const budget *b) {
  char peak[STOW_SIZE_TEXT_MAX], most[STOW_SIZE_TEXT_MAX];
  if (status == STOW_OK && !verb_flag(call, "json"))
    status = buffer_printf(text, "peak memory %s, budget %s\n",
                           stow_size_format(peak, budget_peak()), stow_size_format(most, b->bytes));
  if (status == STOW_OK) return output_buffer(text);
  buffer_free(text);
  return status;
}
