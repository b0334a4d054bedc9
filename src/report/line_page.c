/* Line page: the lines of a profile beside their source, for the viewer (line_profile.h).
 *
 *   {"processes": n, "period": bytes, "hostPeak": bytes, "devicePeak": bytes, "device": bool,
 *    "dropped": samples, "leftOut": lines, "other": [amounts], empty if none,
 *    "files": [{"file": path, "text": "same" | "changed" | "missing",
 *               "lines": [[number, text or null, function, amounts…], [number, text], …]}]}
 *
 * The seven amounts are in bytes: host at the peak, kept, allocated and its error; device at the
 * peak, kept, allocated. Lines of two elements are only context. Files come largest first, lines in
 * order. A path comes from the program or from a folder that someone sent, so text is read only
 * from regular files that end in .py. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "report/line_profile.h"

#define LINES_MAX      2000 /* lines with amounts in a page; the smallest are left out */
#define CONTEXT        3    /* lines of source shown before and after such a line */
#define TEXT_MAX       300  /* bytes of a line */
#define FILE_BYTES_MAX ((off_t)4 << 20)

typedef struct source {
  char *text;      /* the whole file; NULL: not there */
  uint32_t *start; /* where each line starts; line n is start[n - 1] */
  uint32_t count;
  bool changed; /* after the run began */
} source;

static void source_free(source *s) {
  free(s->text);
  free(s->start);
}

/* Finds the lines of s->text. */
static stow_status source_split(source *s, size_t length) {
  s->count = 1;
  for (size_t i = 0; i < length; i++) s->count += s->text[i] == '\n';
  s->start = malloc((s->count + 1) * sizeof *s->start);
  if (s->start == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "report: no host memory");
  uint32_t at = 0;
  s->start[at++] = 0;
  for (size_t i = 0; i < length; i++)
    if (s->text[i] == '\n') s->start[at++] = (uint32_t)i + 1;
  s->start[s->count] = (uint32_t)length + 1;
  if (s->start[s->count - 1] == length) s->count--; /* nothing follows the last newline */
  return STOW_OK;
}

/* Reads a file; one that cannot be read leaves the source without text. */
static stow_status source_read(source *s, const char *path, uint64_t started_ns) {
  *s = (source){0};
  size_t length = strlen(path);
  if (path[0] != '/' || length < 3 || strcmp(path + length - 3, ".py") != 0) return STOW_OK;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return STOW_OK;
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > FILE_BYTES_MAX) {
    close(fd);
    return STOW_OK;
  }
  size_t most = (size_t)info.st_size, got = 0;
  s->text = malloc(most + 1);
  if (s->text == NULL) {
    close(fd);
    return stow_fail(STOW_ERR_HOST_MEMORY, "report: no host memory");
  }
  for (ssize_t more = 1; got < most && more > 0; got += more > 0 ? (size_t)more : 0) do
      more = read(fd, s->text + got, most - got);
    while (more < 0 && errno == EINTR);
  close(fd);
  uint64_t written_ns =
      (uint64_t)info.st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)info.st_mtim.tv_nsec;
  s->changed = started_ns != 0 && written_ns > started_ns;
  return source_split(s, got);
}

/* Writes line `number`, or null if the source does not have it. */
static void put_text(json *j, const source *s, uint32_t number) {
  if (s->text == NULL || number == 0 || number > s->count) {
    json_null(j);
    return;
  }
  const char *text = s->text + s->start[number - 1];
  size_t length = s->start[number] - s->start[number - 1] - 1;
  if (length > 0 && text[length - 1] == '\r') length--;
  if (length > TEXT_MAX) {
    for (length = TEXT_MAX; length > 0 && (text[length] & 0xc0) == 0x80;) length--;
  }
  json_text_n(j, text, length);
}

static void put_amounts(json *j, const line_place *p) {
  for (int kind = 0; kind < PROFILE_KINDS; kind++) {
    json_u64(j, line_profile_bytes(p->at_peak[kind].bytes));
    json_u64(j, line_profile_bytes(p->held[kind].bytes));
    json_u64(j, line_profile_bytes(p->allocated[kind].bytes));
    if (kind == PROFILE_HOST) json_u64(j, line_profile_error(p->allocated[kind]));
  }
}

/* ---- the lines of one file ---- */

static int by_number(const void *a, const void *b) {
  const line_place *x = *(const line_place *const *)a, *y = *(const line_place *const *)b;
  return (x->line > y->line) - (x->line < y->line);
}

/* Writes the lines from `from` to `to` without amounts, each once: `*next` is the first that was
 * not written yet. */
static void put_context(json *j, const source *s, uint32_t from, uint32_t to, uint32_t *next) {
  if (s->text == NULL) return;
  for (uint32_t n = from > *next ? from : *next; n <= to && n <= s->count; n++) {
    json_begin_array(j);
    json_u64(j, n), put_text(j, s, n);
    json_end_array(j);
    *next = n + 1;
  }
}

/* `lines` are those of one file in order. Places on the same line (a comprehension is a function of
 * its own) are added. */
static void put_lines(json *j, const source *s, const line_place *const *lines, size_t count) {
  uint32_t next = 1;
  for (size_t i = 0; i < count;) {
    line_place sum = *lines[i];
    uint32_t at = sum.line;
    for (i++; i < count && lines[i]->line == at; i++) line_place_add(&sum, lines[i]);
    if (at > 0) put_context(j, s, at > CONTEXT ? at - CONTEXT : 1, at - 1, &next);
    json_begin_array(j);
    json_u64(j, at), put_text(j, s, at), json_text(j, sum.function), put_amounts(j, &sum);
    json_end_array(j);
    next = at + 1;
    uint32_t until =
        i < count && lines[i]->line <= at + CONTEXT ? lines[i]->line - 1 : at + CONTEXT;
    put_context(j, s, at + 1, until, &next);
  }
}

static stow_status put_file(json *j, const line_place **lines, size_t count, uint64_t started_ns) {
  source s;
  stow_status status = source_read(&s, lines[0]->file, started_ns);
  if (status == STOW_OK) {
    qsort(lines, count, sizeof *lines, by_number);
    json_begin_object(j);
    json_key(j, "file"), json_text(j, lines[0]->file);
    json_key(j, "text"), json_text(j, s.text == NULL ? "missing" : s.changed ? "changed" : "same");
    json_key(j, "lines");
    json_begin_array(j);
    put_lines(j, &s, lines, count);
    json_end_array(j);
    json_end_object(j);
  }
  source_free(&s);
  return status;
}

/* ---- all files ---- */

/* Writes the files of `all`, which come largest line first; takes the lines of a file out of it. */
static stow_status put_files(json *j, const line_place **all, size_t count, uint64_t started_ns) {
  const line_place **of_file = malloc((count + 1) * sizeof *of_file);
  if (of_file == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "report: no host memory");
  stow_status status = STOW_OK;
  for (size_t i = 0; i < count && status == STOW_OK; i++) {
    if (all[i] == NULL) continue;
    const char *file = all[i]->file;
    size_t found = 0;
    for (size_t k = i; k < count; k++)
      if (all[k] != NULL && strcmp(all[k]->file, file) == 0) {
        of_file[found++] = all[k];
        all[k] = NULL;
      }
    status = put_file(j, of_file, found, started_ns);
  }
  free(of_file);
  return status;
}

stow_status line_profile_page(const line_profile *p, uint64_t started_ns, buffer *out) {
  const line_place **all = malloc((p->lines.count + 1) * sizeof *all), *other = NULL;
  if (all == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "report: no host memory");
  size_t count = 0, left_out = 0;
  for (size_t i = 0; i < p->lines.count; i++) {
    const line_place *each = &p->lines.list[i];
    if (each->file[0] == '\0')
      other = each;
    else if (count < LINES_MAX)
      all[count++] = each;
    else
      left_out++;
  }
  json j = JSON_COMPACT(out);
  json_begin_object(&j);
  json_number(&j, "processes", (uint64_t)p->processes);
  json_number(&j, "period", p->period);
  json_number(&j, "hostPeak", line_profile_bytes(p->peak[PROFILE_HOST]));
  json_number(&j, "devicePeak", line_profile_bytes(p->peak[PROFILE_DEVICE]));
  json_key(&j, "device"), json_bool(&j, p->device);
  json_number(&j, "dropped", p->dropped);
  json_number(&j, "leftOut", left_out);
  json_key(&j, "other");
  json_begin_array(&j);
  if (other != NULL) put_amounts(&j, other);
  json_end_array(&j);
  json_key(&j, "files");
  json_begin_array(&j);
  stow_status status = put_files(&j, all, count, started_ns);
  json_end_array(&j);
  json_end_object(&j);
  free(all);
  return status != STOW_OK ? status : out->status;
}
