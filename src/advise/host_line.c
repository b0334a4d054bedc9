/* Host line: read from the frames of the main thread and from the text of the program's own line; a
 * function of C has no frame, and then only the line shows it. */
#include "advise/host_line.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool is_library(const char *file) {
  return file[0] == '<' || strstr(file, "/site-packages/") != NULL ||
         strstr(file, "/dist-packages/") != NULL || strstr(file, "/lib/python") != NULL;
}

bool host_line_is_own(const host_frame *f) {
  return !is_library(f->file);
}

void host_line_place(const host_record *r, char *place, size_t size) {
  place[0] = '\0';
  for (size_t i = 0; i < r->frame_count && place[0] == '\0'; i++)
    if (!is_library(r->frames[i].file) && r->frames[i].line > 0)
      snprintf(place, size, "%s:%u in %s", r->frames[i].file, r->frames[i].line, r->frames[i].name);
}

void host_line_say(const host_frame *f, char *out, size_t size) {
  const char *slash = strrchr(f->file, '/');
  snprintf(out, size, "line %u of %.140s", f->line, slash != NULL ? slash + 1 : f->file);
}

void host_line_where(const host_record *r, char *out, size_t size) {
  out[0] = '\0';
  for (size_t i = 0; i < r->frame_count && out[0] == '\0'; i++)
    if (!is_library(r->frames[i].file)) host_line_say(&r->frames[i], out, size);
}

bool host_line_calls(const char *source, const char *name) {
  size_t length = strlen(name);
  for (const char *at = source; (at = strstr(at, name)) != NULL; at += length)
    if (at[length] == '(' && (name[0] == '.' || at == source || strchr(" .=(,[{", at[-1]) != NULL))
      return true;
  return false;
}

/* Returns whether the main thread is inside a function with one of these names, called by the
 * program's own line. A C function has no frame: then only the line shows it. */
static const char *inside_of(const host_record *r, const char *const *names,
                             const char *const *called) {
  for (size_t i = 0; i < r->frame_count; i++) {
    bool library = is_library(r->frames[i].file);
    const char *const *list = library ? names : called;
    for (size_t n = 0; list[n] != NULL; n++)
      if (library ? strcmp(r->frames[i].name, list[n]) == 0
                  : host_line_calls(r->frames[i].source, list[n]))
        return list[n];
    if (!library) break;
  }
  return NULL;
}

/* Excludes the append of a list, which copies nothing large. */
static const char *const COPYING_CALLED[] = {
    "np.append", "numpy.append", "concatenate", "concat",      "vstack",    "hstack", "astype",
    "np.copy",   "tile",         "repeat",      "deepcopy",    "torch.cat", "stack",  ".float",
    ".double",   ".half",        ".clone",      ".contiguous", ".copy",     NULL};
static const char *const READING_CALLED[] = {
    "np.load",    "numpy.load", "read_csv",     "loadtxt",    "fromfile",  "read_text",
    "read_bytes", "read",       "read_parquet", "readlines",  "json.load", "pickle.load",
    "read_table", "read_excel", "read_feather", "genfromtxt", NULL};
static const char *const COPYING[] = {"append", "concatenate", "concat", "vstack", "hstack",
                                      "stack",  "astype",      "copy",   "tile",   "repeat",
                                      "merge",  "insert",      "pad",    NULL};
static const char *const READING[] = {
    "load",        "read_csv",     "loadtxt",    "genfromtxt", "read",       "read_parquet",
    "read_pickle", "read_json",    "readlines",  "fromfile",   "read_excel", "read_table",
    "_read",       "read_feather", "read_array", "read_text",  "read_bytes", NULL};

const char *host_line_copies(const host_record *r) {
  return inside_of(r, COPYING, COPYING_CALLED);
}

const char *host_line_reads(const host_record *r) {
  return inside_of(r, READING, READING_CALLED);
}

bool host_line_has(const char *text, const char *word) {
  size_t length = strlen(word);
  for (const char *at = text; (at = strstr(at, word)) != NULL; at += length) {
    bool before = at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_' || at[-1] == '.');
    bool after = isalnum((unsigned char)at[length]) || at[length] == '_';
    if (!before && !after) return true;
  }
  return false;
}

/* Calls whose result has another size than what goes in: a product of every row with every other, a
 * transform, a table of distances. It is needed and is not a copy. */
static const char *const PRODUCTS[] = {
    "dot",   "matmul", "einsum", "outer", "kron", "tensordot", "inner",       "cov", "corrcoef",
    "fft",   "ifft",   "rfft",   "irfft", "fft2", "fftn",      "rfftn",       "bmm", "mm",
    "cdist", "pdist",  "solve",  "inv",   "svd",  "eigh",      "histogramdd", NULL};

const char *host_line_own(const host_record *r) {
  for (size_t i = 0; i < r->frame_count; i++)
    if (!is_library(r->frames[i].file)) return r->frames[i].source;
  return NULL;
}

/* Returns the "=" of an assignment, "+=" included; NULL if there is none outside of brackets. */
static const char *assignment(const char *source) {
  int depth = 0;
  for (const char *at = source; *at != '\0'; at++) {
    if (strchr("([{", *at) != NULL) depth++;
    if (strchr(")]}", *at) != NULL) depth--;
    if (*at == '=' && depth == 0)
      return at > source && at[1] != '=' && strchr("<>!=", at[-1]) == NULL ? at : NULL;
    if (strchr("\"'#", *at) != NULL && depth == 0) return NULL;
  }
  return NULL;
}

void host_line_target(const char *source, char *out, size_t size) {
  const char *equal = source != NULL ? assignment(source) : NULL;
  out[0] = '\0';
  if (equal == NULL) return;
  while (equal > source && strchr(" +-*/%@&|^", equal[-1]) != NULL) equal--;
  size_t length = (size_t)(equal - source), colon = strcspn(source, ":");
  if (colon < length && memchr(source, '[', colon) == NULL) length = colon; /* "x: int = 1" */
  if (length < size && length <= 40) snprintf(out, size, "%.*s", (int)length, source);
}

void host_line_result(const host_record *r, const char *source, char *out, size_t size) {
  host_line_target(source, out, size);
  if (source == NULL || strncmp(source, "return ", 7) != 0) return;
  bool below = false; /* … the frame of that line */
  for (size_t i = 0; i < r->frame_count && out[0] == '\0'; i++) {
    if (is_library(r->frames[i].file)) continue;
    const char *line = r->frames[i].source;
    if (below && strncmp(line, "return ", 7) != 0) {
      if (strchr(line, '(') != NULL && host_line_target_is_new(line))
        host_line_target(line, out, size);
      return;
    }
    below = below || strcmp(line, source) == 0;
  }
}

bool host_line_target_is_new(const char *source) {
  const char *equal = assignment(source);
  if (equal == NULL) return strncmp(source, "return ", 7) == 0 || strchr(source, '(') != NULL;
  return strchr("+-*/%@&|^", equal[-1]) == NULL;
}

bool host_line_makes_temporaries(const char *source) {
  static const char *const reductions[] = {".sum()",  ".mean()",  ".max()",     ".min()",
                                           ".std()",  ".var()",   ".any()",     ".all()",
                                           ".item()", ".count()", ".nunique()", ".shape[0]"};
  if (source == NULL || source[0] == '\0') return false;
  if (!host_line_target_is_new(source)) return true;
  size_t length = strlen(source);
  for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++) {
    size_t end = strlen(reductions[i]);
    if (length > end && strcmp(source + length - end, reductions[i]) == 0) return true;
  }
  return false;
}

/* Returns whether a line sets a column: df["key"] = …, which makes a column and not a table. */
static bool sets_column(const char *source, const char *name) {
  size_t length = strlen(name);
  const char *equal = strchr(source, '=');
  while (*source == ' ') source++;
  return equal != NULL && strncmp(source, name, length) == 0 && source[length] == '[' &&
         (source[length + 1] == '"' || source[length + 1] == '\'');
}

host_making host_line_makes_another(const host_record *r, const char *name) {
  const char *source = host_line_own(r);
  if (source == NULL || !host_line_has(source, name) || sets_column(source, name))
    return HOST_MAKES_NOTHING;
  const char *equal = strchr(source, '=');
  bool in_place = equal != NULL && equal > source && strchr("+-*/%@&|^", equal[-1]) != NULL;
  const char *value = equal != NULL ? equal : source;
  if (in_place || strchr(value, '@') != NULL) return HOST_MAKES_NOTHING;
  for (size_t i = 0; PRODUCTS[i] != NULL; i++)
    if (host_line_calls(value, PRODUCTS[i])) return HOST_MAKES_NOTHING;
  if (strpbrk(value, "+-*/%&|^") != NULL) return HOST_MAKES_BY_OPERATOR;
  return strchr(value, '(') != NULL ? HOST_MAKES_BY_CALL : HOST_MAKES_NOTHING;
}

bool host_line_joins(const host_record *r, const char *name) {
  const char *source = host_line_own(r);
  return source != NULL && host_line_has(source, name) && strchr(source, '+') != NULL &&
         strchr(source, '=') != NULL;
}
