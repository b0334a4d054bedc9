/* Zip: the directory. Layout (APPNOTE.TXT 6.3, sections 4.3 and 4.5):
 *
 *   local header | member | … | central entries | [zip64 end | locator] | end record | comment */
#include "files/zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define END_BYTES     22
#define LOCATOR_BYTES 20
#define END64_BYTES   56
#define CENTRAL_BYTES 46
#define LOCAL_BYTES   30
#define COMMENT_MAX   65535

typedef struct directory {
  uint64_t count, bytes, offset;
  uint64_t end; /* start of the end records: the directory must not extend past it */
} directory;

static stow_status refuse(const source *s, uint64_t offset, const char *why) {
  return stow_fail(STOW_ERR_FORMAT, "%s: at byte %" PRIu64 " of the zip file: %s", s->name, offset,
                   why);
}

static stow_status find_end64(source *s, uint64_t end_at, directory *d, bool *found) {
  uint8_t locator[LOCATOR_BYTES], record[END64_BYTES];
  *found = false;
  if (end_at < LOCATOR_BYTES) return STOW_OK;
  STOW_TRY(source_read(s, end_at - LOCATOR_BYTES, locator, sizeof locator));
  if (source_u32(locator) != 0x07064b50) return STOW_OK;
  uint64_t at = source_u64(locator + 8);
  if (source_u32(locator + 4) != 0 || source_u32(locator + 16) > 1)
    return refuse(s, end_at - LOCATOR_BYTES, "multi-disk archives are not supported");
  if (at > end_at - LOCATOR_BYTES || end_at - LOCATOR_BYTES - at < END64_BYTES)
    return refuse(s, end_at - LOCATOR_BYTES, "the zip64 end record is not where its locator says");
  STOW_TRY(source_read(s, at, record, sizeof record));
  if (source_u32(record) != 0x06064b50) return refuse(s, at, "no zip64 end record");
  if (source_u32(record + 16) != 0 || source_u32(record + 20) != 0 ||
      source_u64(record + 24) != source_u64(record + 32))
    return refuse(s, at, "multi-disk archives are not supported");
  d->count = source_u64(record + 32);
  d->bytes = source_u64(record + 40);
  d->offset = source_u64(record + 48);
  d->end = at;
  *found = true;
  return STOW_OK;
}

/* Finds the end record: the last one whose comment extends exactly to the end of the file. */
static stow_status find_end(source *s, directory *d) {
  static const char none[] = "no end record: not a zip file, or truncated; copy or write it again";
  if (s->bytes < END_BYTES) return refuse(s, s->bytes, none);
  size_t count = s->bytes < END_BYTES + COMMENT_MAX ? (size_t)s->bytes : END_BYTES + COMMENT_MAX;
  uint8_t *tail = malloc(count);
  if (tail == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", s->name);
  stow_status status = source_read(s, s->bytes - count, tail, count);
  uint8_t end[END_BYTES];
  bool found = false;
  uint64_t end_at = 0;
  for (size_t i = count - END_BYTES + 1; status == STOW_OK && i-- > 0 && !found;) {
    if (source_u32(tail + i) != 0x06054b50) continue;
    if (i + END_BYTES + source_u16(tail + i + 20) != count) continue;
    memcpy(end, tail + i, sizeof end);
    end_at = s->bytes - count + i;
    found = true;
  }
  free(tail);
  STOW_TRY(status);
  if (!found) return refuse(s, s->bytes, none);
  if (source_u16(end + 4) != 0 || source_u16(end + 6) != 0 ||
      source_u16(end + 8) != source_u16(end + 10))
    return refuse(s, end_at, "multi-disk archives are not supported");
  *d = (directory){source_u16(end + 10), source_u32(end + 12), source_u32(end + 16), end_at};
  bool wide = false;
  STOW_TRY(find_end64(s, end_at, d, &wide));
  if (!wide && (d->count == 0xffff || d->bytes == UINT32_MAX || d->offset == UINT32_MAX))
    return refuse(s, end_at, "the zip64 end record is missing");
  uint64_t stop;
  if (!checked_add(&stop, d->offset, d->bytes) || stop > d->end)
    return refuse(s, end_at, "the directory extends past the end of the file");
  if (stop != d->end) return refuse(s, end_at, "bytes between the directory and its end record");
  if (d->count > d->bytes / CENTRAL_BYTES)
    return refuse(s, end_at, "more members than fit in the directory");
  return STOW_OK;
}

/* Reads the zip64 extra field. It holds, in this order, the fields that are all ones in the
 * entry. */
static stow_status read_extra64(const source *s, uint64_t place, const uint8_t *extra, size_t count,
                                uint64_t *fields[], size_t wanted) {
  while (count >= 4) {
    size_t id = source_u16(extra), length = source_u16(extra + 2);
    if (length > count - 4) return refuse(s, place, "an extra field extends past its entry");
    if (id == 1) {
      if (length < wanted * 8) return refuse(s, place, "a zip64 field is too short");
      for (size_t i = 0; i < wanted; i++) *fields[i] = source_u64(extra + 4 + 8 * i);
      return STOW_OK;
    }
    extra += 4 + length;
    count -= 4 + length;
  }
  return wanted == 0 ? STOW_OK : refuse(s, place, "a zip64 field is missing");
}

bool zip_name_leads_out(const char *name, const char *at) {
  return (at == name || at[-1] == '/') && at[0] == '.' && at[1] == '.' &&
         (at[2] == '/' || at[2] == '\0');
}

static stow_status check_name(const source *s, uint64_t place, const char *name, size_t length) {
  if (length == 0) return refuse(s, place, "a member without a name");
  if (length >= ZIP_NAME_MAX) return refuse(s, place, "a member's name is too long");
  if (memchr(name, '\0', length) != NULL) return refuse(s, place, "a name contains a NUL");
  if (name[0] == '/') return refuse(s, place, "an absolute name");
  if (memchr(name, '\\', length) != NULL) return refuse(s, place, "a name contains a backslash");
  char copy[ZIP_NAME_MAX];
  memcpy(copy, name, length);
  copy[length] = '\0';
  for (const char *at = copy; *at != '\0'; at++)
    if (zip_name_leads_out(copy, at))
      return refuse(s, place, "a name leads out of its folder (..)");
  return STOW_OK;
}

/* Parses the central entry at `at`; *used is its length. */
static stow_status read_entry(const zip *z, zip_entry *e, char **names, const uint8_t *at,
                              size_t left, uint64_t place, size_t *used) {
  const source *s = z->from;
  if (left < CENTRAL_BYTES || source_u32(at) != 0x02014b50)
    return refuse(s, place, "no directory entry where one is expected");
  size_t name = source_u16(at + 28), extra = source_u16(at + 30), comment = source_u16(at + 32);
  *used = CENTRAL_BYTES + name + extra + comment;
  if (*used > left) return refuse(s, place, "a directory entry extends past the directory");
  if (source_u16(at + 8) & 1) return refuse(s, place, "encrypted members are not supported");
  if (source_u16(at + 34) != 0 && source_u16(at + 34) != 0xffff)
    return refuse(s, place, "multi-disk archives are not supported");
  *e = (zip_entry){.name = *names,
                   .method = source_u16(at + 10),
                   .crc = source_u32(at + 16),
                   .stored_bytes = source_u32(at + 20),
                   .bytes = source_u32(at + 24),
                   .header_offset = source_u32(at + 42)};
  if (e->method != ZIP_STORED && e->method != ZIP_DEFLATED)
    return refuse(s, place, "unsupported compression (only deflate); save it again with NumPy");
  STOW_TRY(check_name(s, place, (const char *)at + CENTRAL_BYTES, name));
  uint64_t *fields[3];
  size_t wanted = 0;
  if (e->bytes == UINT32_MAX) fields[wanted++] = &e->bytes;
  if (e->stored_bytes == UINT32_MAX) fields[wanted++] = &e->stored_bytes;
  if (e->header_offset == UINT32_MAX) fields[wanted++] = &e->header_offset;
  STOW_TRY(read_extra64(s, place, at + CENTRAL_BYTES + name, extra, fields, wanted));
  if (e->method == ZIP_STORED && e->bytes != e->stored_bytes)
    return refuse(s, place, "a stored member has two different sizes");
  memcpy(*names, at + CENTRAL_BYTES, name);
  *names += name;
  *(*names)++ = '\0';
  return STOW_OK;
}

/* Checks the local header: it must have the same name and method. Its sizes may be missing (bit 3)
 * or in a zip64 field; if present, they must be the same. */
static stow_status check_local(source *s, zip_entry *e, uint64_t directory_at) {
  uint8_t head[LOCAL_BYTES];
  char name[ZIP_NAME_MAX];
  if (e->header_offset > directory_at || directory_at - e->header_offset < LOCAL_BYTES)
    return refuse(s, e->header_offset, "a member extends past the end of the file");
  STOW_TRY(source_read(s, e->header_offset, head, sizeof head));
  size_t length = strlen(e->name);
  if (source_u32(head) != 0x04034b50)
    return refuse(s, e->header_offset, "no member at the offset in the directory");
  if (source_u16(head + 6) & 1)
    return refuse(s, e->header_offset, "encrypted members are not supported");
  if (source_u16(head + 8) != e->method || source_u16(head + 26) != length)
    return refuse(s, e->header_offset, "a local header differs from its directory entry");
  STOW_TRY(source_read(s, e->header_offset + LOCAL_BYTES, name, length));
  if (memcmp(name, e->name, length) != 0)
    return refuse(s, e->header_offset, "a local header's name differs from its directory entry");
  bool sizes_follow = (source_u16(head + 6) & 8) != 0;
  uint32_t stored = source_u32(head + 18), bytes = source_u32(head + 22);
  if (!sizes_follow &&
      ((stored != UINT32_MAX && stored != e->stored_bytes) ||
       (bytes != UINT32_MAX && bytes != e->bytes) || source_u32(head + 14) != e->crc))
    return refuse(s, e->header_offset,
                  "a local header's size or checksum differs from its directory entry");
  e->offset = e->header_offset + LOCAL_BYTES + length + source_u16(head + 28);
  if (e->offset > directory_at || e->stored_bytes > directory_at - e->offset)
    return refuse(s, e->header_offset, "a member extends past the end of the file");
  return STOW_OK;
}

static int by_offset(const void *a, const void *b) {
  const zip_entry *x = *(const zip_entry *const *)a, *y = *(const zip_entry *const *)b;
  return x->header_offset < y->header_offset ? -1 : x->header_offset > y->header_offset;
}

static int by_name(const void *a, const void *b) {
  return strcmp((*(const zip_entry *const *)a)->name, (*(const zip_entry *const *)b)->name);
}

/* Checks that no two members overlap or have the same name, and keeps them sorted by name. */
static stow_status check_apart(zip *z) {
  const zip_entry **order = calloc(z->count + 1, sizeof *order);
  if (order == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", z->from->name);
  z->by_name = order;
  z->all = z->count;
  for (size_t i = 0; i < z->count; i++) order[i] = &z->entries[i];
  qsort(order, z->count, sizeof *order, by_offset);
  for (size_t i = 1; i < z->count; i++)
    if (order[i]->header_offset < order[i - 1]->offset + order[i - 1]->stored_bytes)
      return refuse(z->from, order[i]->header_offset, "two members that overlap");
  qsort(order, z->count, sizeof *order, by_name);
  for (size_t i = 1; i < z->count; i++)
    if (strcmp(order[i]->name, order[i - 1]->name) == 0)
      return refuse(z->from, order[i]->header_offset, "two members have the same name");
  return STOW_OK;
}

static stow_status read_directory(zip *z, const directory *d, uint8_t *bytes) {
  STOW_TRY(source_read(z->from, d->offset, bytes, (size_t)d->bytes));
  char *names = z->names;
  size_t at = 0;
  for (uint64_t i = 0; i < d->count; i++) {
    size_t used = 0;
    STOW_TRY(read_entry(z, &z->entries[z->count], &names, bytes + at, (size_t)d->bytes - at,
                        d->offset + at, &used));
    STOW_TRY(check_local(z->from, &z->entries[z->count], d->offset));
    at += used;
    /* A folder, as `zip -r` adds: a name that ends with a slash, and no bytes. */
    const zip_entry *e = &z->entries[z->count];
    if (e->bytes > 0 || e->name[strlen(e->name) - 1] != '/') z->count++;
  }
  if (at != d->bytes)
    return refuse(z->from, d->offset + at, "the directory is longer than its members");
  return check_apart(z);
}

stow_status zip_open(zip *z, source *from, uint64_t max_bytes) {
  *z = (zip){.from = from};
  directory d = {0};
  STOW_TRY(find_end(from, &d));
  /* Each name takes its length and a terminator, bounded by the directory's own size. */
  uint64_t needed = 2 * d.bytes + d.count * (sizeof(zip_entry) + sizeof(zip_entry *) + 1);
  if (d.bytes > INT64_MAX / 4 || needed > max_bytes)
    return stow_fail(STOW_ERR_BUDGET,
                     "%s: its directory of %" PRIu64 " members needs %" PRIu64
                     " KiB of memory; raise --memory",
                     from->name, d.count, needed >> 10);
  uint8_t *bytes = malloc((size_t)d.bytes + 1);
  z->entries = calloc((size_t)d.count + 1, sizeof *z->entries);
  z->names = malloc((size_t)(d.bytes + d.count) + 1);
  stow_status status = bytes != NULL && z->entries != NULL && z->names != NULL
                           ? read_directory(z, &d, bytes)
                           : stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", from->name);
  free(bytes);
  if (status != STOW_OK) zip_close(z);
  return status;
}

void zip_close(zip *z) {
  free(z->entries);
  free(z->names);
  free((void *)z->by_name);
  *z = (zip){0};
}

const zip_entry *zip_find(const zip *z, const char *name) {
  zip_entry wanted = {.name = name};
  const zip_entry *key = &wanted;
  const zip_entry *const *found =
      z->all > 0 ? bsearch(&key, z->by_name, z->all, sizeof *z->by_name, by_name) : NULL;
  return found != NULL ? *found : NULL;
}
