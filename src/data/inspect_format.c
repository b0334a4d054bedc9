/* Inspect: detects the kind of a file from its first bytes.
 *
 * A file that another program must convert first is rejected with what it is and what to do. Text
 * that is no table (JSON, HTML, Matrix Market) would otherwise be read as one, with wrong columns.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "arrays/csv.h"
#include "base/text.h"
#include "data/inspect.h"
#include "files/input.h"
#include "files/unpack.h"
#include "files/zip.h"

#define DIRECTORY_BYTES_MAX (UINT64_C(4) << 20) /* of an archive that may hold a table */
#define PACKED_BYTES        ((size_t)64 << 10)  /* of a compressed file, to see what it holds */

/* Returns how many bytes come before the first control character that is no line end, tab or
 * delimiter. */
static size_t text_length(const uint8_t *start, size_t count, char delimiter) {
  for (size_t i = 0; i < count; i++)
    if (start[i] < 0x20 && start[i] != '\n' && start[i] != '\r' && start[i] != '\t' &&
        (delimiter == '\0' || start[i] != (uint8_t)delimiter))
      return i;
  return count;
}

static bool is_text(const uint8_t *start, size_t count, char delimiter) {
  return count > 0 && text_length(start, count, delimiter) == count;
}

static const char *format_of(const uint8_t *start, size_t count, uint64_t file_bytes,
                             char delimiter) {
  if (count >= 6 && memcmp(start, "\x93NUMPY", 6) == 0) return "npy";
  if (count >= 4 && (memcmp(start, "PK\x03\x04", 4) == 0 || memcmp(start, "PK\x05\x06", 4) == 0))
    return "npz";
  if (count >= 4 && memcmp(start, "GGUF", 4) == 0) return "gguf";
  if (count >= 9 && start[8] == '{' &&
      (source_u64(start) <= file_bytes - 8 || !is_text(start, 8, delimiter)))
    return "safetensors";
  if (count >= 2 && (memcmp(start, "\xff\xfe", 2) == 0 || memcmp(start, "\xfe\xff", 2) == 0))
    return "csv"; /* text in UTF-16 */
  if (count >= 2 && start[0] == 0x1f && start[1] == 0x8b) return "csv";
  if (unpack_knows(start, count) != NULL) return "csv";
  return is_text(start, count, delimiter) ? "csv" : NULL;
}

typedef struct kind {
  const char *begins, *is;
  size_t length;
} kind;

/* A few letters may also begin a table: a column may be called ORCID. */
enum { LETTERS_MIN = 5 };

static const char *find_kind(const kind *kinds, size_t kind_count, const uint8_t *start,
                             size_t count) {
  bool text = is_text(start, count, '\0');
  for (size_t i = 0; i < kind_count; i++)
    if (count > kinds[i].length && (!text || kinds[i].length >= LETTERS_MIN) &&
        strncasecmp((const char *)start, kinds[i].begins, kinds[i].length) == 0)
      return kinds[i].is;
  return NULL;
}

#define PICKLE                                                                                     \
  "a pickle, which could run code; save its arrays with numpy.save; a memory snapshot of PyTorch " \
  "is shown by stowage report"

#define IMAGE "an image; read images as records, with stowage.records(FOLDER) in Python"
#define SOUND "a sound; read sounds as records, with stowage.records(FOLDER) in Python"

/* Returns whether text is UTF-16 without a byte order mark: every second byte of it is zero. */
static bool is_utf16(const uint8_t *start, size_t count, size_t zero_at) {
  size_t zeros = 0, pairs = count / 2;
  for (size_t i = 0; i < pairs; i++) {
    zeros += start[2 * i + zero_at] == 0;
    uint8_t c = start[2 * i + 1 - zero_at];
    if (c < 0x20 && c != '\n' && c != '\r' && c != '\t') return false;
  }
  return pairs >= 2 && zeros >= pairs - pairs / 8;
}

static const char *utf16_kind(const uint8_t *start, size_t count) {
  if (is_utf16(start, count, 1))
    return "text in UTF-16 without a byte order mark; give --encoding utf-16-le";
  if (is_utf16(start, count, 0))
    return "text in UTF-16 without a byte order mark; give --encoding utf-16-be";
  return NULL;
}

/* Returns whether it is a stream of Arrow messages: a marker, and a length of a few KiB. */
static bool is_arrow_stream(const uint8_t *start, size_t count) {
  return count >= 16 && memcmp(start, "\xff\xff\xff\xff", 4) == 0 && start[7] == 0 &&
         start[6] == 0 && (start[4] | start[5]) != 0;
}

/* Returns what another common kind of binary file is and what to do; NULL if unknown. */
static const char *other_kind(const uint8_t *start, size_t count) {
  if (count >= 262 && memcmp(start + 257, "ustar", 5) == 0)
    return "a tar archive; unpack it first; read samples of a tar as records, with "
           "stowage.records(FILE) in Python";
  if (count >= 6 && (memcmp(start, "X\n\0\0\0", 5) == 0 || memcmp(start, "RDX", 3) == 0) &&
      !is_text(start, count, '\0'))
    return "a file of R; save its table as CSV first (write.csv)";
  if (is_arrow_stream(start, count))
    return "a stream of Arrow; give it a name that ends with .arrow";
  static const kind kinds[] = {
      {"\x89STOW", "a recording of memory; stowage report shows it", 5},
      {"BZh", "compressed with bzip2; decompress it first (bunzip2)", 3},
      {"PAR1", "a Parquet file; give it a name that ends with .parquet", 4},
      {"ARROW1", "an Arrow file; give it a name that ends with .arrow", 6},
      {"\x80\x04", PICKLE, 2},
      {"\x80\x05", PICKLE, 2},
      {"MATLAB 5.0", "a MATLAB file; save its arrays from scipy.io.loadmat with numpy.savez", 10},
      {"\xd0\xcf\x11\xe0", "a spreadsheet (.xls); save it as CSV first", 4},
      {"ORC", "an ORC file; convert it with pyarrow.orc to .parquet first", 3},
      {"Obj\x01", "an Avro file; convert it to .parquet first, for example with DuckDB", 4},
      {"$FL2", "an SPSS file; save it from pandas.read_spss with to_parquet first", 4},
      {"<stata_dta>", "a Stata file; save it from pandas.read_stata with to_parquet first", 11},
      {"%PDF-", "a PDF document; save its tables as CSV first, for example with pdfplumber", 5},
      {"\x89PNG", IMAGE, 4},
      {"\xff\xd8\xff", IMAGE, 3},
      {"GIF87a", IMAGE, 6},
      {"GIF89a", IMAGE, 6},
      {"RIFF",
       "a RIFF file (WebP, WAV, AVI); read such files as records, with stowage.records(FOLDER) in "
       "Python",
       4},
      {"II*\0", IMAGE, 4},
      {"MM\0*", IMAGE, 4},
      {"OggS", SOUND, 4},
      {"fLaC", SOUND, 4},
      {"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it first", 6},
      {"Rar!\x1a\x07", "a RAR archive; unpack it first", 6},
      {"\x7f\x45LF", "a program, not data", 4},
      {"SQLite format 3", "an SQLite database; export a table of it as CSV first", 15},
  };
  return find_kind(kinds, sizeof kinds / sizeof *kinds, start, count);
}

/* Returns whether text begins as JSON does: `{"`, `[{` or `[[`, with any blanks between. */
static bool is_json(const uint8_t *start, size_t count) {
  char found[2];
  size_t have = 0;
  for (size_t i = 0; i < count && have < 2; i++)
    if (!isspace(start[i])) found[have++] = (char)start[i];
  if (have < 2) return false;
  return (found[0] == '{' && found[1] == '"') ||
         (found[0] == '[' && (found[1] == '{' || found[1] == '['));
}

/* Returns what text is if it is not a table, and what to do; NULL if it may be one. */
static const char *other_text(const uint8_t *start, size_t count) {
  static const kind kinds[] = {
      {"version https://git-lfs", "a pointer of Git LFS, not the file itself; run git lfs pull",
       23},
      {"<!DOCTYPE html", "a web page, not a table; download the file itself", 14},
      {"<?xml", "XML, not a table; save it from pandas.read_xml with to_parquet first", 5},
      {"<html", "a web page, not a table; download the file itself", 5},
      {"%%MatrixMarket",
       "a Matrix Market file; save it from scipy.io.mmread with "
       "scipy.sparse.save_npz first",
       14},
      {"@relation",
       "an ARFF file; give --names no, and --skip with the number of lines up to and "
       "including @data",
       9},
      {"HEADER RECORD*******",
       "a SAS transport file; save it from pandas.read_sas with to_parquet "
       "first",
       20},
  };
  if (count >= 3 && memcmp(start, "\xef\xbb\xbf", 3) == 0) start += 3, count -= 3;
  if (is_json(start, count))
    return "JSON; give it a name that ends with .jsonl or .json (.gz may follow)";
  return find_kind(kinds, sizeof kinds / sizeof *kinds, start, count);
}

typedef enum contents { HOLDS_ARRAYS, HOLDS_TABLE, HOLDS_SHEETS, HOLDS_OTHERS } contents;

/* Returns whether an archive has arrays, or is called so: numpy.savez of nothing writes an empty
 * one. */
static bool is_npz(const zip *z, const char *name) {
  for (size_t i = 0; i < z->count; i++) {
    const char *member = z->entries[i].name;
    if (text_ends_case(member, strlen(member), ".npy")) return true;
    if (text_ends_case(member, strlen(member), "data.pkl")) return true; /* of torch.save */
  }
  return text_ends_case(name, strlen(name), ".npz");
}

/* Finds what a zip archive holds. The first name decides for most archives: an npz begins with a
 * member that ends with .npy. */
static stow_status look_into(source *from, const uint8_t *start, size_t count, contents *holds) {
  size_t length = count > 30 ? source_u16(start + 26) : 0;
  const char *end = (const char *)start + 30 + length - 4;
  *holds = HOLDS_ARRAYS;
  if (length > 4 && 30 + length <= count && memcmp(end, ".npy", 4) == 0) return STOW_OK;
  zip z;
  stow_status status = zip_open(&z, from, DIRECTORY_BYTES_MAX);
  if (status == STOW_ERR_HOST_MEMORY || status == STOW_ERR_IO) return status;
  if (status != STOW_OK) return STOW_OK; /* a damaged archive is reported when it is read */
  if (csv_zip_is(&z)) *holds = HOLDS_TABLE;
  if (zip_find(&z, "xl/workbook.xml") != NULL || zip_find(&z, "xl/workbook.bin") != NULL ||
      (zip_find(&z, "mimetype") != NULL && zip_find(&z, "content.xml") != NULL))
    *holds = HOLDS_SHEETS;
  if (*holds == HOLDS_ARRAYS && !is_npz(&z, from->name)) *holds = HOLDS_OTHERS;
  zip_close(&z);
  return STOW_OK;
}

/* Returns what the file is if it cannot be read, and what to do; NULL if it may be read. */
static const char *reason_against(const char *format, const inspect_options *o, contents holds,
                                  const uint8_t *start, size_t count) {
  if (holds == HOLDS_SHEETS) return "a spreadsheet; save the sheet as CSV first";
  if (holds == HOLDS_OTHERS)
    return "a zip archive without arrays (.npy) or tables (.csv, .tsv, .txt); unpack it first";
  if (format == NULL) {
    const char *other = other_kind(start, count);
    return other != NULL ? other : utf16_kind(start, count);
  }
  bool described = o->csv.delimiter != '\0' || o->csv.skip > 0 || o->csv.comment != '\0';
  return strcmp(format, "csv") == 0 && !described ? other_text(start, count) : NULL;
}

/* Rejects a file of no known kind. Where a line of text comes first, one byte is in the way. */
static stow_status reject_unknown(const source *from, const uint8_t *start, size_t count) {
  size_t length = text_length(start, count, '\0');
  if (memchr(start, '\n', length) == NULL)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: not an npy, npz, csv, HDF5, safetensors or GGUF file; for raw bytes give "
                     "--dtype and perhaps --shape",
                     from->name);
  size_t line = 1;
  for (size_t i = 0; i < length; i++) line += start[i] == '\n';
  return stow_fail(STOW_ERR_FORMAT,
                   "%s: line %zu has a byte that is not text: 0x%02x, at byte %zu of the file; "
                   "remove such bytes (tr -d '\\%03o' < FILE > NEW)",
                   from->name, line, start[length], length, (unsigned)start[length]);
}

/* Replaces the first bytes of a compressed file by those it holds. Leaves them if that fails: the
 * reader reports a damaged stream. */
static stow_status look_inside(source *from, uint8_t *start, size_t *count, size_t capacity) {
  if (!(*count >= 2 && start[0] == 0x1f && start[1] == 0x8b) && unpack_knows(start, *count) == NULL)
    return STOW_OK;
  size_t have = from->bytes < PACKED_BYTES ? (size_t)from->bytes : PACKED_BYTES;
  uint8_t *packed = malloc(have);
  input in;
  if (packed == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: out of host memory", from->name);
  stow_status status = source_read(from, 0, packed, have);
  if (status == STOW_OK && input_open_memory(&in, packed, have, from->name, NULL) == STOW_OK) {
    if (input_fill(&in, capacity) == STOW_OK) {
      *count = (size_t)(in.end - in.at) < capacity ? (size_t)(in.end - in.at) : capacity;
      memcpy(start, in.at, *count);
    }
    input_close(&in);
  }
  free(packed);
  return status;
}

/* Rejects a name after the colon if the file has no members. Columns of a table are none. */
static stow_status refuse_member(const char *format, contents holds, const source *from,
                                 const char *member, const uint8_t *start, size_t count) {
  bool text = format != NULL && strcmp(format, "csv") == 0 && holds != HOLDS_TABLE;
  bool table = text || (format == NULL && count > 6 &&
                        (memcmp(start, "PAR1", 4) == 0 || memcmp(start, "ARROW1", 6) == 0));
  if (table)
    return stow_fail(
        STOW_ERR_INVALID,
        "%s: no member %.200s: a table has columns and no members; omit the name after "
        "the colon, and write one column with: stowage shrink --columns %.200s "
        "(columns= in Python)",
        from->name, member, member);
  if (format == NULL || (strcmp(format, "raw") != 0 && strcmp(format, "npy") != 0)) return STOW_OK;
  return stow_fail(
      STOW_ERR_INVALID,
      "%s: no member %.200s: this format has no members; omit the name after the colon", from->name,
      member);
}

stow_status inspect_blame(const source *from, const char *member, stow_status status) {
  if (status != STOW_ERR_FORMAT || from->fd < 0) return status;
  char why[STATUS_MESSAGE_MAX];
  snprintf(why, sizeof why, "%s", stow_status_message());
  return csv_unpack(from->name, member) == STOW_ERR_FORMAT ? STOW_ERR_FORMAT
                                                           : stow_fail(status, "%s", why);
}

stow_status inspect_format(const char **format, source *from, const inspect_options *o) {
  uint8_t start[512];
  size_t count = from->bytes < sizeof start ? (size_t)from->bytes : sizeof start;
  contents holds = HOLDS_ARRAYS;
  STOW_TRY(source_read(from, 0, start, count));
  *format = format_of(start, count, from->bytes, o->csv.delimiter);
  if (*format != NULL && strcmp(*format, "npz") == 0)
    STOW_TRY(look_into(from, start, count, &holds));
  if (holds == HOLDS_TABLE) *format = "csv";
  if (*format == NULL && o->csv.encoding >= CSV_UTF16) *format = "csv";
  bool is_hdf5 = false;
  if (*format == NULL) STOW_TRY(hdf5_find(&is_hdf5, from));
  if (is_hdf5) *format = "hdf5";
  bool described = o->raw.type != DTYPE_NONE || o->raw.has_shape;
  if (described && *format != NULL && strcmp(*format, "csv") != 0)
    return stow_fail(STOW_ERR_INVALID,
                     "%s: an %s file stores its own type and shape; omit --dtype and --shape",
                     from->name, *format);
  if (described) *format = "raw";
  if (*format == NULL && from->bytes == 0)
    return stow_fail(STOW_ERR_FORMAT, "%s: the file is empty", from->name);
  if (o->member != NULL) STOW_TRY(refuse_member(*format, holds, from, o->member, start, count));
  const char *reason = NULL;
  if (*format != NULL && strcmp(*format, "csv") == 0 && holds != HOLDS_TABLE) {
    STOW_TRY(look_inside(from, start, &count, sizeof start));
    reason = other_kind(start, count);
  }
  if (reason == NULL) reason = reason_against(*format, o, holds, start, count);
  if (reason != NULL) return stow_fail(STOW_ERR_FORMAT, "%s: %s", from->name, reason);
  return *format != NULL ? STOW_OK : reject_unknown(from, start, count);
}
