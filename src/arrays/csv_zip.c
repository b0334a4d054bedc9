/* Csv zip: the table in a zip archive as an input, as pandas and spreadsheets write them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/csv.h"
#include "base/text.h"
#include "files/zip.h"

#define DIRECTORY_BYTES_MAX (UINT64_C(4) << 20)

typedef struct csv_zip {
  char *path;
  source from;
  zip archive;
  zip_member member;
  uint64_t at;
  char *name; /* "file.zip:member.csv" */
} csv_zip;

static bool ends_with(const char *name, const char *end) {
  return text_ends_case(name, strlen(name), end);
}

/* Folders, and what macOS adds beside each file. */
static bool is_table(const zip_entry *e) {
  if (strncmp(e->name, "__MACOSX/", 9) == 0) return false;
  return ends_with(e->name, ".csv") || ends_with(e->name, ".tsv") || ends_with(e->name, ".tab") ||
         ends_with(e->name, ".txt");
}

bool csv_zip_is(const zip *z) {
  bool any = false;
  for (size_t i = 0; i < z->count; i++) {
    if (ends_with(z->entries[i].name, ".npy")) return false;
    any = any || is_table(&z->entries[i]);
  }
  return any;
}

static stow_status find_table(const csv_zip *z, const char *member, const zip_entry **found) {
  char names[256] = "";
  size_t count = 0;
  for (size_t i = 0; i < z->archive.count; i++) {
    const zip_entry *e = &z->archive.entries[i];
    bool wanted = member != NULL ? strcmp(e->name, member) == 0 : is_table(e);
    if (is_table(e) && strlen(names) < 180)
      snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.60s",
               names[0] != '\0' ? ", " : "", e->name);
    if (!wanted) continue;
    *found = e;
    count++;
  }
  if (count == 1) return STOW_OK;
  if (member != NULL)
    return stow_fail(STOW_ERR_NOT_FOUND, "%s: no table %.200s in it; it has: %s", z->path, member,
                     names);
  return stow_fail(STOW_ERR_INVALID, "%s: it holds %zu tables; name one after a colon: %s", z->path,
                   count, names);
}

static stow_status read_zip(void *user, uint8_t *to, size_t room, size_t *got) {
  csv_zip *z = user;
  uint64_t left = z->member.entry->bytes - z->at;
  *got = left < room ? (size_t)left : room;
  STOW_TRY(zip_member_read(&z->member, z->at, to, *got));
  z->at += *got;
  return STOW_OK;
}

static uint64_t raw_bytes(void *user) {
  const csv_zip *z = user;
  return z->member.inflater != NULL ? z->member.window_at : z->at;
}

static void close_zip(void *user) {
  csv_zip *z = user;
  zip_member_close(&z->member);
  zip_close(&z->archive);
  source_close(&z->from);
  free(z->name);
  free(z->path);
  free(z);
}

static stow_status open_member(csv_zip *z, const char *member) {
  const zip_entry *e = NULL;
  STOW_TRY(zip_open(&z->archive, &z->from, DIRECTORY_BYTES_MAX));
  STOW_TRY(find_table(z, member, &e));
  if (asprintf(&z->name, "%s:%s", z->from.name, e->name) < 0) {
    z->name = NULL;
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", z->path);
  }
  return zip_member_open(&z->member, &z->from, e);
}

stow_status csv_zip_open(input *in, const char *path, const char *member) {
  static const input_limits no_limits = {.max_bytes = UINT64_MAX, .max_ratio = UINT64_MAX};
  csv_zip *z = calloc(1, sizeof *z);
  *in = (input){.name = path};
  if (z == NULL || (z->path = strdup(path)) == NULL) {
    free(z);
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
  }
  stow_status status = source_open(&z->from, z->path);
  if (status != STOW_OK) {
    free(z->path);
    free(z);
    return status;
  }
  status = open_member(z, member);
  if (status != STOW_OK) {
    close_zip(z);
    return status;
  }
  input_reader reader = {.read = read_zip, .raw_bytes = raw_bytes, .close = close_zip, .user = z};
  return input_open_reader(in, &reader, z->name, &no_limits);
}
