/* Table options: see table_options.h. */
#include "data/table_options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"

/* Reads one character; "tab", "\\t", "space" and "spaces" are names. */
static stow_status read_character(const char *name, const char *text, char *to) {
  if (text == NULL) return STOW_OK;
  if (strcmp(text, "tab") == 0 || strcmp(text, "\\t") == 0) return *to = '\t', STOW_OK;
  if (strcmp(text, "space") == 0 || strcmp(text, "spaces") == 0) return *to = ' ', STOW_OK;
  bool fine = strlen(text) == 1 && text[0] != '"' && text[0] != '\n' && text[0] != '\r';
  if (!fine)
    return stow_fail(STOW_ERR_INVALID,
                     "%s \"%.40s\": must be one ASCII character other than a quote, tab, space%s",
                     name, text, strcmp(name, "delimiter") == 0 ? ", spaces or ::" : " or spaces");
  *to = text[0];
  return STOW_OK;
}

/* Splits each word at commas. The empty word is always a missing value. */
static stow_status read_words(table_options *t, const char *const *na) {
  size_t count = 0;
  for (size_t i = 0; na[i] != NULL; i++)
    for (const char *at = na[i]; at != NULL; at = strchr(at + 1, ',')) count++;
  t->words = calloc(count + 1, sizeof *t->words);
  if (t->words == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "na: no host memory");
  t->csv.na = (const char *const *)t->words;
  for (size_t i = 0; na[i] != NULL; i++) {
    for (const char *at = na[i], *comma = at; comma != NULL; at = comma + 1) {
      comma = strchr(at, ',');
      size_t length = comma != NULL ? (size_t)(comma - at) : strlen(at);
      if (length == 0) continue;
      char *word = strndup(at, length);
      if (word == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "na: no host memory");
      t->words[t->csv.na_count++] = word;
    }
  }
  return STOW_OK;
}

/* ---- single columns ---- */

stow_status tolerance_parse(double *tolerance, bool *relative, const char *text) {
  const char *number = text;
  *relative = strncmp(text, "abs:", 4) != 0;
  if (strncmp(text, "abs:", 4) == 0 || strncmp(text, "rel:", 4) == 0) number += 4;
  char *end;
  errno = 0;
  *tolerance = strtod(number, &end);
  if (end == number || *end != '\0' || !isfinite(*tolerance) || *tolerance <= 0)
    return stow_fail(STOW_ERR_INVALID,
                     "tolerance \"%.40s\": must be a number above 0, as 1e-3 (of each value), or "
                     "abs:0.01 (an amount)",
                     text);
  return STOW_OK;
}

/* Splits "NAME=VALUE" at the last '=', and finds or adds the column's rule. */
static stow_status find_rule(table_options *t, const char *option, const char *text,
                             csv_rule **rule, const char **value) {
  const char *equal = strrchr(text, '=');
  if (equal == NULL || equal == text || equal[1] == '\0')
    return stow_fail(STOW_ERR_INVALID, "%s \"%.60s\": must be NAME=VALUE", option, text);
  size_t length = (size_t)(equal - text);
  *value = equal + 1;
  for (size_t i = 0; i < t->csv.rule_count; i++) {
    *rule = &t->rules[i];
    if (strlen((*rule)->name) == length && memcmp((*rule)->name, text, length) == 0) return STOW_OK;
  }
  char *name = strndup(text, length);
  if (name == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", option);
  *rule = &t->rules[t->csv.rule_count++];
  (*rule)->name = name;
  return STOW_OK;
}

static stow_status read_type(csv_rule *rule, const char *type) {
  rule->text = strcmp(type, "text") == 0 || strcmp(type, "str") == 0;
  rule->times = strcmp(type, "datetime") == 0;
  rule->numbers = !rule->text && !rule->times;
  if (!rule->numbers) return STOW_OK;
  if (dtype_parse(&rule->type, type) == STOW_OK) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "type \"%.100s=%.32s\": unknown type; use text, datetime, bool, int8 to int64, "
                   "uint8 to uint64, float16, bfloat16, float32 or float64",
                   rule->name, type);
}

static stow_status read_rules(table_options *t, const stow_table_options *o) {
  size_t count = 0;
  for (size_t i = 0; o->types != NULL && o->types[i] != NULL; i++) count++;
  for (size_t i = 0; o->tolerances != NULL && o->tolerances[i] != NULL; i++) count++;
  t->csv.rules = t->rules = calloc(count + 1, sizeof *t->rules);
  if (t->rules == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "types: no host memory");
  csv_rule *rule = NULL;
  const char *value;
  for (size_t i = 0; o->types != NULL && o->types[i] != NULL; i++) {
    STOW_TRY(find_rule(t, "type", o->types[i], &rule, &value));
    STOW_TRY(read_type(rule, value));
  }
  for (size_t i = 0; o->tolerances != NULL && o->tolerances[i] != NULL; i++) {
    STOW_TRY(find_rule(t, "tolerance", o->tolerances[i], &rule, &value));
    STOW_TRY(tolerance_parse(&rule->tolerance, &rule->relative, value));
  }
  return STOW_OK;
}

stow_status table_options_read(table_options *t, const stow_table_options *given) {
  stow_table_options o = STOW_TABLE_OPTIONS_INIT;
  *t = (table_options){0};
  STOW_TRY(growing_read(&o, sizeof o, given, "stow_table_options"));
  csv_options *c = &t->csv;
  c->colons = o.delimiter != NULL && strcmp(o.delimiter, "::") == 0;
  if (c->colons)
    c->delimiter = CSV_COLONS;
  else
    STOW_TRY(read_character("delimiter", o.delimiter, &c->delimiter));
  c->spaces = o.delimiter != NULL && strcmp(o.delimiter, "spaces") == 0;
  STOW_TRY(read_character("comment", o.comment, &c->comment));
  STOW_TRY(read_character("decimal", o.decimal, &c->decimal));
  if (c->decimal != '\0' && c->decimal != '.' && c->decimal != ',')
    return stow_fail(STOW_ERR_INVALID, "decimal \"%.40s\": must be . or ,", o.decimal);
  if (c->decimal != '\0' && c->decimal == c->delimiter)
    return stow_fail(STOW_ERR_INVALID, "decimal and delimiter are both \"%c\"", c->decimal);
  if (o.encoding != NULL) STOW_TRY(csv_encoding_parse(&c->encoding, o.encoding));
  c->skip = o.skip;
  if (o.na != NULL) STOW_TRY(read_words(t, o.na));
  return read_rules(t, &o);
}

void table_options_free(table_options *t) {
  for (size_t i = 0; i < t->csv.na_count; i++) free(t->words[i]);
  free(t->words);
  for (size_t i = 0; i < t->csv.rule_count; i++) free((void *)(uintptr_t)t->rules[i].name);
  free(t->rules);
  *t = (table_options){0};
}
