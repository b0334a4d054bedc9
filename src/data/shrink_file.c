/* Shrink: chooses the type of each array, and writes npy and npz files. */
#include "data/shrink.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/version.h>

#include "base/hash.h"
#include "data/checkpoint.h"
#include "data/shards.h"
#include "data/shrink_parts.h"
#include "data/shrink_table.h"
#include "data/sparse.h"
#include "data/table_team.h"
#include "data/team.h"
#include "files/zip.h"

enum { COPY_BYTES = 32 << 10 };
#define DIRECTORY_SHARE 4 /* fraction of the budget for an archive's directory */

static bool ends_with(const char *text, const char *end) {
  size_t a = strlen(text), b = strlen(end);
  return a > b && strcmp(text + a - b, end) == 0;
}

static bool is_float(dtype type) {
  return type != DTYPE_NONE && dtype_kind(type) == CLASS_FLOAT;
}

/* ---- the arrays of the input ---- */

typedef struct arrays {
  zip archive; /* if the input is one */
  bool zipped;
  hdf5 *datasets; /* if it is HDF5 */
  source values;  /* values of the open array */
} arrays;

static void close_nth(arrays *all, array *a) {
  array_close(a);
  if (all->datasets != NULL) source_close(&all->values);
}

static stow_status open_nth(job *j, arrays *all, size_t i, array *a) {
  if (all->datasets != NULL) {
    all->values = (source){.fd = -1};
    stow_status status = array_open_hdf5(a, &all->values, all->datasets, i, false);
    if (status != STOW_OK) source_close(&all->values);
    return status;
  }
  const char *kind;
  if (all->zipped && j->result->facts.arrays[i].opaque)
    return array_open_other(a, j->from, &all->archive.entries[i], &kind);
  if (all->zipped) return array_open_member(a, j->from, &all->archive.entries[i]);
  return strcmp(j->result->facts.format, "raw") == 0
             ? array_open_raw(a, j->from, &j->options->in.raw)
             : array_open_npy(a, j->from);
}

static stow_status plan_sparse(job *j, const zip *z) {
  const array_facts *f = &j->result->facts.arrays[0];
  shrink_item *item = &j->result->items[0];
  array a;
  if (!f->scanned)
    return stow_fail(
        STOW_ERR_UNSUPPORTED,
        "%s: a sparse matrix of %s cannot be shrunk; only real numbers of up to 64 bits", j->in,
        f->type_name);
  STOW_TRY(array_open_member(&a, j->from, zip_find(z, "data.npy")));
  stow_status status = STOW_OK;
  if (!f->repeats)
    status = shrink_choose(j, f, &a, item);
  else if (j->options->type != DTYPE_NONE && j->options->type != f->type)
    status = stow_fail(STOW_ERR_INVALID,
                       "%s: a position may occur twice in it, and %s may not hold the sum; call "
                       ".sum_duplicates() and save it again, or omit --dtype",
                       j->in, dtype_name(j->options->type));
  else
    *item = (shrink_item){.bytes = f->bytes, .to = f->type};
  array_close(&a);
  STOW_TRY(status);
  if (j->options->type == DTYPE_F16)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: SciPy's sparse matrices do not support float16; use float32", j->in);
  item->sparse = true;
  item->to = sparse_value_type(item->to);
  item->bytes_after = f->values.count * dtype_bytes(item->to) + f->places_bytes;
  return STOW_OK;
}

/* Rejects a requested type if there are no numbers. Text among numbers is copied unchanged. */
static stow_status refuse_no_numbers(const job *j) {
  const file_facts *facts = &j->result->facts;
  if (j->options->type == DTYPE_NONE || facts->array_count == 0) return STOW_OK;
  for (size_t i = 0; i < facts->array_count; i++)
    if (facts->arrays[i].scanned) return STOW_OK;
  return stow_fail(
      STOW_ERR_UNSUPPORTED,
      "%s: %s cannot be converted to %s, only real numbers can; omit --dtype to copy it", j->in,
      facts->arrays[0].type_name, dtype_name(j->options->type));
}

/* Decisions of an interrupted run are not made again. */
static stow_status plan_array(job *j, arrays *all, size_t i) {
  checkpoint *c = j->budget->checkpoint;
  shrink_item *item = &j->result->items[i];
  array a;
  uint64_t count;
  size_t bytes;
  const shrink_item *chosen = checkpoint_get(c, STEP_PLAN, &count, &bytes);
  if (i < count) return *item = chosen[i], STOW_OK;
  const array_facts *f = &j->result->facts.arrays[i];
  if (f->opaque || f->left_out) { /* a member is copied unchanged */
    *item = (shrink_item){.bytes = f->bytes, .bytes_after = f->bytes_after, .skipped = f->left_out};
    return j->to_npz ? checkpoint_append(c, STEP_PLAN, item, sizeof *item) : STOW_OK;
  }
  STOW_TRY(open_nth(j, all, i, &a));
  j->item = i;
  stow_status status = shrink_choose(j, &j->result->facts.arrays[i], &a, item);
  close_nth(all, &a);
  if (status != STOW_OK || !j->to_npz) return status;
  for (dtype to = DTYPE_NONE; to < DTYPE_COUNT; to++) shrink_measured(j, to);
  return checkpoint_append(c, STEP_PLAN, item, sizeof *item);
}

static stow_status plan_arrays(job *j, arrays *all) {
  file_facts *facts = &j->result->facts;
  STOW_TRY(refuse_no_numbers(j));
  if (facts->array_count == 1 && facts->arrays[0].sparse) return plan_sparse(j, &all->archive);
  for (size_t i = 0; i < facts->array_count; i++) {
    STOW_TRY(plan_array(j, all, i));
    if (j->kept != NULL) shrink_choose_sparse(j, &facts->arrays[i], &j->result->items[i]);
  }
  return STOW_OK;
}

/* ---- writing ---- */

static stow_status copy_bytes(job *j, array *a, sink *s) {
  char bytes[COPY_BYTES];
  uint64_t at = sink_behind(s);
  sink_pass(s, at);
  while (at < a->bytes) {
    size_t count = a->bytes - at < COPY_BYTES ? (size_t)(a->bytes - at) : COPY_BYTES;
    STOW_TRY(array_read_bytes(a, at, bytes, count));
    STOW_TRY(sink_write(s, bytes, count));
    at += count;
    j->done += count;
    STOW_TRY(budget_report(j->budget, j->done, j->total));
  }
  return STOW_OK;
}

static stow_status write_dense(job *j, array *a, dtype to, sink *s) {
  return to == DTYPE_NONE ? copy_bytes(j, a, s) : shrink_values(j, a, to, s, NULL, NULL);
}

/* Writes the name of array `i` in the archive. An HDF5 path keeps its slashes; characters that no
 * archive may have in a name become '_'. */
static void member_name(char *name, size_t size, const job *j, const arrays *all, size_t i) {
  const array_facts *f = &j->result->facts.arrays[i];
  if (f->opaque) {
    snprintf(name, size, "%s", all->archive.entries[i].name);
    return;
  }
  snprintf(name, size, "%s.npy", f->name[0] != '\0' ? f->name : "arr_0");
  if (all->datasets == NULL) return;
  for (char *at = name; *at != '\0'; at++)
    if (*at == '\\' || (at == name && *at == '/') || zip_name_leads_out(name, at)) *at = '_';
}

static stow_status write_npy(job *j, arrays *all, writer *w) {
  const shrink_item *item = &j->result->items[0];
  array a;
  sink s = {.file = w};
  STOW_TRY(open_nth(j, all, 0, &a));
  stow_status status = shrink_header(&s, item->to != DTYPE_NONE ? npy_descr(item->to) : a.descr,
                                     a.fortran_order, a.shape, a.dims);
  if (status == STOW_OK) status = write_dense(j, &a, item->to, &s);
  close_nth(all, &a);
  return status;
}

static stow_status write_member(job *j, arrays *all, archive *z, size_t i) {
  const array_facts *f = &j->result->facts.arrays[i];
  const shrink_item *item = &j->result->items[i];
  array a;
  sink s;
  char name[ZIP_NAME_MAX + 8];
  if (item->skipped) return STOW_OK;
  member_name(name, sizeof name, j, all, i);
  STOW_TRY(open_nth(j, all, i, &a));
  stow_status status;
  if (item->sparse) {
    status = shrink_write_kept(j, j->kept, f, item->to, z);
  } else {
    bool deflate = all->zipped && all->archive.entries[i].method == ZIP_DEFLATED;
    status =
        f->opaque
            ? shrink_bytes(z, &s, name, a.bytes, deflate)
            : shrink_member(z, &s, name, item->to != DTYPE_NONE ? npy_descr(item->to) : a.descr,
                            a.fortran_order, a.shape, a.dims,
                            item->to != DTYPE_NONE ? dtype_bytes(item->to) : a.item_bytes, deflate);
    if (status == STOW_OK) status = write_dense(j, &a, item->to, &s);
  }
  close_nth(all, &a);
  return status;
}

static stow_status write_npz(job *j, arrays *all, writer *w) {
  archive z;
  archive_begin(&z, w, j->budget->checkpoint);
  stow_status status = STOW_OK;
  const file_facts *facts = &j->result->facts;
  if (facts->array_count == 1 && facts->arrays[0].sparse)
    status = shrink_sparse(j, &all->archive, j->result->items[0].to, &z);
  else
    for (size_t i = 0; i < facts->array_count && status == STOW_OK; i++)
      status = write_member(j, all, &z, i);
  return archive_end(&z, status);
}

static stow_status write_arrays(job *j, arrays *all, bool to_npz) {
  writer w;
  j->done = 0;
  /* Deflated members are smaller than this, so the disk may turn out to be full only while
   * writing. */
  uint64_t expected = all->zipped ? 0 : j->result->bytes_after;
  STOW_TRY(shrink_open(j, &w, expected));
  return shrink_finish(j, &w, to_npz ? write_npz(j, all, &w) : write_npy(j, all, &w));
}

static void add_up(shrink_result *r) {
  r->bytes = r->bytes_after = 0;
  for (size_t i = 0; i < r->item_count; i++) {
    r->bytes += r->items[i].bytes;
    r->bytes_after += r->items[i].bytes_after;
  }
}

static stow_status make_items(shrink_result *r, size_t count) {
  r->items = calloc(count + 1, sizeof *r->items);
  if (r->items == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  r->item_count = count;
  return STOW_OK;
}

/* Datasets that are not numbers are left out; a file of nothing else is an error. */
static stow_status refuse_no_datasets(const job *j) {
  const file_facts *facts = &j->result->facts;
  for (size_t i = 0; i < facts->array_count; i++)
    if (facts->arrays[i].scanned) return STOW_OK;
  if (facts->array_count == 0)
    return stow_fail(STOW_ERR_INVALID, "%s: it holds no datasets", j->in);
  return stow_fail(STOW_ERR_UNSUPPORTED, "%s: dataset %.200s is %s: %s%s", j->in,
                   facts->arrays[0].name, facts->arrays[0].type_name,
                   hdf5_reason(facts->arrays[0].type_name),
                   facts->array_count > 1 ? " (no other dataset of the file is read either)" : "");
}

static stow_status shrink_arrays(job *j, bool to_npz) {
  file_facts *facts = &j->result->facts;
  arrays all = {.zipped = strstr(facts->format, "npz") != NULL};
  if (strcmp(facts->format, "safetensors") == 0 || strcmp(facts->format, "gguf") == 0)
    return stow_fail(
        STOW_ERR_INVALID,
        "%s: a model file is shrunk as a whole; omit the name after the colon, and write a "
        ".safetensors or .gguf file",
        j->in);
  if (!to_npz && (facts->array_count != 1 || facts->arrays[0].opaque || facts->arrays[0].sparse))
    return stow_fail(STOW_ERR_INVALID, "%s: an npy file holds one dense array; use .npz", j->out);
  if (strcmp(facts->format, "hdf5") == 0) {
    STOW_TRY(refuse_no_datasets(j));
    STOW_TRY(hdf5_open(&all.datasets, j->in, j->options->in.member, j->budget->bytes));
    if (hdf5_count(all.datasets) != facts->array_count) {
      hdf5_close(all.datasets);
      return stow_fail(
          STOW_ERR_IO,
          "%s: was modified while it was read; wait for its writer, then run this again", j->in);
    }
  }
  if (all.zipped) STOW_TRY(zip_open(&all.archive, j->from, j->budget->bytes / DIRECTORY_SHARE));
  stow_status status = STOW_OK;
  if (all.zipped && j->options->in.member != NULL)
    status = array_keep_member(&all.archive, j->options->in.member);
  if (status == STOW_OK) status = make_items(j->result, facts->array_count);
  j->total = facts->bytes;
  if (status == STOW_OK) status = plan_arrays(j, &all);
  if (status == STOW_OK) add_up(j->result);
  if (status == STOW_OK && !j->options->dry_run) status = write_arrays(j, &all, to_npz);
  zip_close(&all.archive);
  hdf5_close(all.datasets);
  return status;
}

/* ---- a requested type, one array to one npy: read once ---- */

/* Casts between floats; the cast itself proves that nothing is lost. Searches for another type only
 * if something would be lost. */
static stow_status forced_floats(job *j, array *a, sink *s) {
  array_facts *f = &j->result->facts.arrays[0];
  loss l = {.exactly = true};
  STOW_TRY(shrink_values(j, a, j->options->type, s, NULL, &l));
  if (l.exceeded) {
    budget again = *j->budget;
    again.checkpoint = NULL;
    j->done = 0;
    STOW_TRY(inspect_array(f, a, &again, &j->done, j->total));
    return shrink_refuse_type(j, f, NULL);
  }
  f->scanned = true;
  f->values.count = a->count;
  shrink_take_type(&j->result->items[0], f, j->options->type, NULL);
  return STOW_OK;
}

static stow_status forced_pass(job *j, array *a, writer *w) {
  array_facts *f = &j->result->facts.arrays[0];
  shrink_item *item = &j->result->items[0];
  dtype to = j->options->type;
  sink s = {.file = w};
  loss l = {.tolerance = j->options->tolerance, .relative = j->options->relative};
  bool floats = is_float(to) && is_float(a->type), rounding = j->options->tolerance > 0 && floats;
  item->bytes = f->bytes;
  STOW_TRY(scan_begin(&f->values, a->type));
  STOW_TRY(shrink_header(&s, npy_descr(to), a->fortran_order, a->shape, a->dims));
  if (floats && !rounding) return forced_floats(j, a, &s);
  STOW_TRY(shrink_values(j, a, to, &s, &f->values, rounding ? &l : NULL));
  inspect_conclude(f, j->budget->purpose);
  bool exact = scan_fits(&f->values, to);
  if (!exact && (!rounding || l.exceeded)) return shrink_refuse_type(j, f, rounding ? &l : NULL);
  shrink_take_type(item, f, to, exact ? NULL : &l);
  return STOW_OK;
}

static stow_status shrink_forced(job *j, array *a, const char *format) {
  shrink_result *r = j->result;
  writer w;
  r->facts =
      (file_facts){.format = format, .purpose = j->budget->purpose, .file_bytes = j->from->bytes};
  r->facts.arrays = calloc(1, sizeof *r->facts.arrays);
  if (r->facts.arrays == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  r->facts.array_count = 1;
  STOW_TRY(make_items(r, 1));
  inspect_begin(&r->facts.arrays[0], a);
  j->total = a->bytes;
  STOW_TRY(shrink_open(j, &w, a->count * dtype_bytes(j->options->type)));
  stow_status status = shrink_finish(j, &w, forced_pass(j, a, &w));
  add_up(r);
  return status;
}

/* Returns true if it was done this way (or failed). */
static bool try_forced(job *j, bool to_npz, stow_status *status) {
  const shrink_options *o = j->options;
  array a;
  uint8_t start[6] = {0};
  if (o->type == DTYPE_NONE || o->dry_run || to_npz || j->from->bytes < sizeof start) return false;
  bool raw = o->in.raw.type != DTYPE_NONE;
  if (source_read(j->from, 0, start, sizeof start) != STOW_OK) return false;
  if (!raw && memcmp(start, "\x93NUMPY", 6) != 0) return false;
  *status = raw ? array_open_raw(&a, j->from, &o->in.raw) : array_open_npy(&a, j->from);
  if (*status != STOW_OK) return true;
  if (a.type == DTYPE_NONE) return array_close(&a), false;
  *status = shrink_forced(j, &a, raw ? "raw" : "npy");
  array_close(&a);
  return true;
}

/* ---- a file ---- */

static stow_status check_output(const job *j, bool *to_npz) {
  *to_npz = ends_with(j->out, ".npz");
  if (!*to_npz && !ends_with(j->out, ".npy"))
    return stow_fail(
        STOW_ERR_INVALID,
        "%s: the name must end with .npy or .npz; of a table also with .parquet, .feather, .arrow "
        "or .jsonl",
        j->out);
  if (j->options->type != DTYPE_NONE && npy_descr(j->options->type) == NULL)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: npy and npz files cannot hold %s; use float16 or float32", j->out,
                     dtype_name(j->options->type));
  return STOW_OK;
}

/* Reads one array that may become a sparse matrix once, including its facts. */
static stow_status keep_sparse(job *j, const char *format) {
  array a;
  file_facts *f = &j->result->facts;
  bool raw = strcmp(format, "raw") == 0;
  if (!raw && strcmp(format, "npy") != 0) return STOW_OK;
  STOW_TRY(raw ? array_open_raw(&a, j->from, &j->options->in.raw) : array_open_npy(&a, j->from));
  array_facts *facts = calloc(1, sizeof *facts);
  if (facts == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", j->in);
  inspect_begin(facts, &a);
  j->total = a.bytes;
  stow_status status = shrink_keep(j, &a, facts, &j->kept);
  array_close(&a);
  if (status != STOW_OK || j->kept == NULL) {
    free(facts);
    return status;
  }
  inspect_conclude(facts, j->budget->purpose);
  *f = (file_facts){.format = format,
                    .purpose = j->budget->purpose,
                    .file_bytes = j->from->bytes,
                    .arrays = facts,
                    .array_count = 1,
                    .bytes = facts->bytes,
                    .bytes_after = facts->bytes_after};
  return STOW_OK;
}

static stow_status shrink_source(job *j, bool to_npz) {
  stow_status status;
  const char *format;
  if (j->options->in.member == NULL && try_forced(j, to_npz, &status)) return status;
  STOW_TRY(inspect_format(&format, j->from, &j->options->in));
  if (strcmp(format, "csv") == 0) {
    j->result->facts =
        (file_facts){.format = format, .purpose = j->budget->purpose, .file_bytes = j->file_bytes};
    status = shrink_agree(j, shrink_table_columns(j));
    if (status == STOW_OK) status = to_npz ? shrink_table_npz(j) : shrink_table_npy(j);
    free(j->skip);
    j->skip = NULL;
    if (j->budget->checkpoint != NULL) j->budget->checkpoint->scratch = -1; /* it is closed */
    return status;
  }
  if (to_npz && j->options->in.member == NULL) STOW_TRY(keep_sparse(j, format));
  if (j->kept == NULL)
    STOW_TRY(inspect_file(&j->result->facts, j->path, &j->options->in, j->budget));
  return shrink_arrays(j, to_npz);
}

static uint64_t hash_csv(const csv_options *o) {
  struct {
    int64_t delimiter, decimal, comment, encoding, has_na;
    uint64_t skip;
  } said = {o->delimiter, o->decimal, o->comment, o->encoding, o->na != NULL, o->skip};
  uint64_t hash = hash_bytes(&said, sizeof said, 0);
  for (size_t i = 0; i < o->na_count; i++) hash = hash_bytes(o->na[i], strlen(o->na[i]), hash + 1);
  for (size_t i = 0; i < o->rule_count; i++) {
    const csv_rule *r = &o->rules[i];
    double of[] = {r->numbers, r->text, r->times, (double)r->type, r->tolerance, r->relative};
    hash = hash_bytes(of, sizeof of, hash_bytes(r->name, strlen(r->name), hash + 1));
  }
  return hash;
}

/* Computes the key that identifies this job's checkpoints. */
static void key_of(uint64_t key[7], const job *j) {
  const shrink_options *o = j->options;
  struct {
    int64_t type, relative, raw, header, dims, has_shape, purpose;
    double tolerance;
    uint64_t columns, drop, csv;
    uint64_t shape[ARRAY_DIMS_MAX];
  } said = {.type = o->type,
            .relative = o->relative,
            .raw = o->in.raw.type,
            .header = o->in.header,
            .dims = o->in.raw.dims,
            .has_shape = o->in.raw.has_shape,
            .purpose = j->budget->purpose,
            .tolerance = o->tolerance};
  said.csv = hash_csv(&o->in.csv) + j->others;
  memcpy(said.shape, o->in.raw.shape, sizeof said.shape);
  if (o->in.member != NULL) said.columns = hash_bytes(o->in.member, strlen(o->in.member), 1);
  for (size_t i = 0; i < o->column_count; i++)
    said.columns = hash_bytes(o->columns[i], strlen(o->columns[i]), said.columns + 1);
  for (size_t i = 0; i < o->drop_count; i++)
    said.drop = hash_bytes(o->drop[i], strlen(o->drop[i]), said.drop + 1);
  uint64_t all[7] = {j->from->bytes,
                     j->from->changed_ns,
                     j->from->inode,
                     j->from->device,
                     hash_bytes(&said, sizeof said, 0),
                     hash_bytes(STOW_VERSION_TEXT, strlen(STOW_VERSION_TEXT), sizeof(scan)),
                     sizeof(loss)};
  memcpy(key, all, sizeof all);
}

static stow_status shrink_kept_safe(job *j, budget *b) {
  checkpoint c;
  uint64_t key[7];
  if (j->options->dry_run) return team_agree(b->team, shrink_source(j, j->to_npz));
  key_of(key, j);
  STOW_TRY(checkpoint_open(&c, j->out, key, b->team, j->options->resume));
  b->checkpoint = &c;
  stow_status status = team_agree(b->team, shrink_source(j, j->to_npz));
  /* After any other failure the output is removed, and its checkpoint too. The files of another run
   * (STOW_ERR_STATE) are left alone. */
  j->result->resumed = c.resumed;
  bool keeps = shrink_keeps(j, status);
  checkpoint_close(&c, status != STOW_ERR_STATE && !keeps);
  if (keeps) {
    char why[STATUS_MESSAGE_MAX - 128];
    snprintf(why, sizeof why, "%s", stow_status_message());
    status = stow_fail(
        STOW_ERR_IO, "%s; what is done is kept: make room, then run the same command with --resume",
        why);
  }
  b->checkpoint = NULL;
  return status;
}

/* Lets the first rank do what cannot be split; the others wait for its result. */
static stow_status lead_alone(job *j, budget *b) {
  bool leads = team_leads(b->team);
  b->team = NULL;
  return leads ? shrink_kept_safe(j, b) : STOW_OK;
}

/* Reads a table with all ranks. If that fails, one process reads it again in order, so that the
 * error is the same as with a single process. */
static stow_status share_table(job *j, budget *b) {
  team *t = b->team;
  stow_status status = shrink_kept_safe(j, b);
  if (status == STOW_OK) return STOW_OK;
  t->broken = false;
  shrink_free(j->result);
  return lead_alone(j, b);
}

static stow_status shrink_by_ranks(job *j, budget *b) {
  const char *format;
  if (j->path != j->in || j->others != 0) return lead_alone(j, b); /* several files */
  if (team_alone(b->team) || inspect_format(&format, j->from, &j->options->in) != STOW_OK)
    return lead_alone(j, b);
  if (strcmp(format, "csv") == 0 && table_can_share(j->from, &j->options->in.csv))
    return share_table(j, b);
  bool plain = strcmp(format, "npy") == 0 || strcmp(format, "raw") == 0;
  return plain && !j->to_npz ? shrink_kept_safe(j, b) : lead_alone(j, b);
}

/* Rejects an output that is one of the inputs. Records the inputs for the checkpoint. */
static stow_status check_files(job *j, const shards *s) {
  if (s->count == 1) return writer_check(j->out, j->from);
  for (size_t i = 0; i < s->count; i++) {
    char file[PATH_MAX];
    const char *member, *path = s->paths[i];
    source one;
    if (array_split(path, file, sizeof file, &member)) path = file;
    STOW_TRY(source_open(&one, path));
    stow_status status = writer_check(j->out, &one);
    uint64_t is[] = {one.bytes, one.changed_ns, one.inode, one.device};
    j->others = hash_bytes(is, sizeof is, j->others + 1);
    source_close(&one);
    STOW_TRY(status);
  }
  return STOW_OK;
}

stow_status shrink_file(shrink_result *r, const char *in, const char *out, const shrink_options *o,
                        const budget *given) {
  *r = (shrink_result){0};
  source from;
  shards several;
  budget b = *given;
  shrink_options own = *o;
  job j = {.options = &own, .budget = &b, .result = r, .from = &from, .in = in, .out = out};
  STOW_TRY(check_output(&j, &j.to_npz));
  stow_status status = shards_find(&several, in);
  if (status == STOW_OK) status = inspect_open(&from, &several, &own.in, &j.file_bytes);
  if (status == STOW_OK) {
    j.in = from.name;
    j.path = several.count == 1 ? from.name : in;
    status = check_files(&j, &several);
    if (status == STOW_OK) status = shrink_by_ranks(&j, &b);
    if (several.count == 1) status = inspect_blame(&from, own.in.member, status);
    shrink_forget(j.kept);
    source_close(&from);
  }
  shards_free(&several);
  if (status != STOW_OK) shrink_free(r);
  return status;
}

void shrink_free(shrink_result *r) {
  inspect_free(&r->facts);
  for (size_t i = 0; i < r->item_count; i++) free(r->items[i].member);
  free(r->items);
  *r = (shrink_result){0};
}
