/* Host read: how a program reads less of a file at a time. */
#include "advise/host_read.h"

#include <stdio.h>
#include <string.h>

#include "advise/host_line.h"
#include "base/text.h"

/* Ways to read less, by the call that reads: "%s" stands for the file's name in quotes, or "path".
 * The first row that matches counts. */
static const struct {
  const char *call, *change;
} readers[] = {
    {"pl.read_csv", "let polars read only what the query uses: pl.scan_csv(%s), then filter, "
                    "group_by and .collect(); or pl.read_csv(…, columns=[…])"},
    {"polars.read_csv", "let polars read only what the query uses: polars.scan_csv(%s), then "
                        "filter, group_by and .collect(); or polars.read_csv(…, columns=[…])"},
    {"pl.read_parquet", "let polars read only what the query uses: pl.scan_parquet(%s), then "
                        "filter, group_by and .collect(); or pl.read_parquet(…, columns=[…])"},
    {"pl.read_ndjson", "let polars read only what the query uses: pl.scan_ndjson(%s), then filter, "
                       "group_by and .collect()"},
    {"read_parquet", "read only the columns that are used: read_parquet(%s, columns=[…]); or in "
                     "parts: for part in pyarrow.parquet.ParquetFile(%s).iter_batches()"},
    {"read_excel", "read only the columns that are used: read_excel(%s, usecols=[…], nrows=…); or "
                   "save it as CSV once and read that in parts (chunksize=…)"},
    {"genfromtxt",
     "read only the columns that are used, in a smaller type: numpy.loadtxt(%s, "
     "usecols=[…], dtype=numpy.float32); or a part at a time (skiprows=…, max_rows=…)"},
    {"loadtxt", "read only the columns that are used, in a smaller type: numpy.loadtxt(%s, "
                "usecols=[…], dtype=numpy.float32); or a part at a time (skiprows=…, max_rows=…)"},
    {"read_csv", "read it in parts: for part in pandas.read_csv(%s, chunksize=100_000), and add up "
                 "the result of each; or only the columns that are used: usecols=[…], text as "
                 "dtype=\"category\""},
    {"pq.read_table", "read only the columns and rows that are used: read_table(%s, columns=[…], "
                      "filters=[…]); or in "
                      "parts: for part in pyarrow.parquet.ParquetFile(%s).iter_batches()"},
    {"parquet.read_table", "read only the columns and rows that are used: read_table(%s, "
                           "columns=[…], filters=[…]); or in "
                           "parts: for part in pyarrow.parquet.ParquetFile(%s).iter_batches()"},
    {"read_table",
     "read it in parts: for part in pandas.read_table(%s, chunksize=100_000), and add "
     "up the result of each; or only the columns that are used: usecols=[…]"},
    {"ET.parse", "one element at a time: for _, x in ET.iterparse(%s): if x.tag == \"…\": use(x); "
                 "x.clear()"},
    {"ElementTree.parse", "one element at a time: for _, x in ElementTree.iterparse(%s): if x.tag "
                          "== \"…\": use(x); x.clear()"},
    {"etree.parse", "one element at a time: for _, x in etree.iterparse(%s, tag=\"…\"): use(x); "
                    "x.clear()"},
    {"torch.load", "torch.load(%s, mmap=True): tensors are read when they are used"},
    {"np.load", "read it in parts: numpy.load(%s, mmap_mode=\"r\")[a:b], or for part in "
                "stowage.batches(%s, …)"},
    {"numpy.load", "read it in parts: numpy.load(%s, mmap_mode=\"r\")[a:b], or for part in "
                   "stowage.batches(%s, …)"},
};

/* … by the end of a file's name, where the call is not known. */
static const struct {
  const char *endings, *change;
} ways[] = {
    {".csv .tsv", "read it in parts: for part in pandas.read_csv(%s, chunksize=100_000); or only "
                  "the columns that are used (usecols=[…] of pandas, columns=[…] of polars); or "
                  "once stowage shrink, then stowage.batches"},
    {".parquet .pq",
     "read it in parts: for part in pyarrow.parquet.ParquetFile(%s).iter_batches(), "
     "or only the columns that are used (columns=[…])"},
    {".xml", "one element at a time: for _, x in xml.etree.ElementTree.iterparse(%s): if x.tag == "
             "\"…\": use(x); x.clear()"},
    {".txt .log .jsonl .ndjson", "read it in parts: for line in open(%s): …"},
    {".npy .npz", "read it in parts: for part in stowage.batches(%s, …), or numpy.load(%s, "
                  "mmap_mode=\"r\")[a:b]"},
    {".bin .raw .dat", "read it in parts: for part in stowage.batches(%s, raw_dtype=…, "
                       "raw_shape=…), or numpy.memmap"},
    {".pkl .pickle",
     "save the arrays of %s once with numpy.save, then read them in parts: for part "
     "in stowage.batches(…), or numpy.load(…, mmap_mode=\"r\")"},
    {".pt .pth", "torch.load(%s, mmap=True)"},
    {".zip", "read it in parts: for name in names: for line in zipfile.ZipFile(%s).open(name): … "
             "(one file at a time; keep only its result)"},
    {".gz", "read it in parts: for line in gzip.open(%s, \"rt\")"},
    {".bz2", "read it in parts: for line in bz2.open(%s, \"rt\")"},
    {".xz", "read it in parts: for line in lzma.open(%s, \"rt\")"},
};

/* Writes a change with the file's name in place of each "%s". */
static void write_change(char *out, size_t size, const char *change, const char *path) {
  size_t length = 0;
  for (const char *at = change; *at != '\0' && length + 1 < size;) {
    if (strncmp(at, "%s", 2) == 0) {
      const char *quote = path[0] != '\0' ? "\"" : "";
      int got = snprintf(out + length, size - length, "%s%.120s%s", quote,
                         path[0] != '\0' ? path : "path", quote);
      length += got > 0 ? (size_t)got : 0;
      at += 2;
    } else
      out[length++] = *at++;
  }
  out[length < size ? length : size - 1] = '\0';
}

/* Returns the key of the list that a record shows in a value of json.load: "events" of an object
 * named data['events']; "" if the list is the value itself or is not known. */
static void list_key(const host_record *r, char *out, size_t size) {
  out[0] = '\0';
  for (size_t i = 0; i < r->object_count && i < 3 && out[0] == '\0'; i++) {
    const char *open = strstr(r->objects[i].name, "['");
    const char *close = open != NULL ? strstr(open, "']") : NULL;
    if (strcmp(r->objects[i].type, "list") == 0 && close != NULL && close[2] == '\0')
      snprintf(out, size, "%.*s", (int)(close - open - 2), open + 2);
  }
}

void host_read_json(char *out, size_t size, const host_record *r, const char *path) {
  char key[40], text[320];
  list_key(r, key, sizeof key);
  snprintf(text, sizeof text,
           "read one record at a time: for record in ijson.items(open(%%s, \"rb\"), \"%s%sitem\") "
           "(pip install ijson%s); or write it as JSON Lines once, and json.loads each line",
           key, key[0] != '\0' ? "." : "",
           key[0] != '\0' ? "" : "; \"KEY.item\" if the list is under a key of the file");
  write_change(out, size, text, path);
}

void host_read_in_parts(char *out, size_t size, const host_record *r, const char *path,
                        const char *source) {
  const char *dot = strrchr(path, '.');
  bool json = (dot != NULL && strcmp(dot, ".json") == 0) ||
              (source != NULL &&
               (host_line_calls(source, "json.load") || host_line_calls(source, "json.loads")));
  for (size_t i = 0; source != NULL && i < sizeof readers / sizeof *readers; i++)
    if (host_line_calls(source, readers[i].call) ||
        (strchr(readers[i].call, '.') == NULL && strstr(source, readers[i].call) != NULL)) {
      write_change(out, size, readers[i].change, path);
      return;
    }
  if (json) {
    host_read_json(out, size, r, path);
    return;
  }
  if (source != NULL &&
      (host_line_calls(source, "readlines") || strstr(source, "read().split") != NULL ||
       strstr(source, "list(open(") != NULL)) {
    write_change(out, size,
                 "read it in parts: for line in open(%s): … (a line at a time, nothing is kept)",
                 path);
    return;
  }
  for (size_t i = 0; i < sizeof ways / sizeof *ways && dot != NULL && dot[1] != '\0'; i++)
    if (text_lists(ways[i].endings, dot, strlen(dot))) {
      write_change(out, size, ways[i].change, path);
      return;
    }
  write_change(out, size,
               "read it in parts and keep only the result of each; of a table only the columns and "
               "rows that are used; map an array: numpy.load(path, mmap_mode=\"r\"), "
               "numpy.memmap",
               path);
}

bool host_read_is_known(const char *source) {
  for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
    if (host_line_calls(source, readers[i].call) ||
        (strchr(readers[i].call, '.') == NULL && strstr(source, readers[i].call) != NULL))
      return true;
  return false;
}

bool host_read_inspected(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot != NULL &&
         text_lists(".npy .npz .csv .tsv .parquet .feather .arrow .jsonl .h5 .hdf5 .bin "
                    ".raw .dat .safetensors",
                    dot, strlen(dot));
}
