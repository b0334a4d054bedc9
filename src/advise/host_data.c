/* Host data: arrays and tables that exist twice, and files read at once. */
#include <stdio.h>
#include <string.h>

#include "advise/host_case.h"
#include "advise/host_line.h"
#include "advise/host_read.h"
#include "advise/host_way.h"

/* Two arrays of the same shape, except for a few rows, or of about the same number of bytes. */
static bool look_alike(const host_object *a, const host_object *b) {
  if (!host_is_array(a) || !host_is_array(b)) return false;
  const char *rest = strchr(a->shape, ','), *other = strchr(b->shape, ',');
  uint64_t rows = a->count > b->count ? a->count : b->count;
  uint64_t fewer = a->count > b->count ? b->count : a->count;
  if (rest != NULL && other != NULL && strcmp(rest, other) == 0 && rows - fewer < rows / 4)
    return true;
  uint64_t more = a->bytes > b->bytes ? a->bytes : b->bytes;
  uint64_t less = a->bytes > b->bytes ? b->bytes : a->bytes;
  return more - less < more / 10;
}

/* Returns true if one was made from the other, or may have been: a line that is not known. */
static bool derived(const host_object *a, const host_object *b) {
  if (a->source[0] == '\0' && b->source[0] == '\0') return true;
  return host_line_has(a->source, b->name) || host_line_has(b->source, a->name);
}

/* Returns whether the numbers of both are known. */
static bool has_values(const host_object *a, const host_object *b) {
  return a->values[0] != '\0' && b->values[0] != '\0';
}

static bool has_same_values(const host_object *a, const host_object *b) {
  return has_values(a, b) && a->values[0] != '-' && strcmp(a->values, b->values) == 0;
}

/* Returns true if more than the shape shows that they are copies: equal numbers, or a line that
 * makes one from the other. A weather model has many arrays of one shape too, and there are
 * identifiers of one type and scores of another. */
static bool surely_copies(const host_record *r, const host_object *a, const host_object *b) {
  if (has_same_values(a, b)) return true;
  return (!has_values(a, b) && strcmp(a->of, b->of) != 0 && strcmp(a->shape, b->shape) == 0) ||
         host_line_makes_another(r, a->name) != HOST_MAKES_NOTHING ||
         host_line_makes_another(r, b->name) != HOST_MAKES_NOTHING;
}

/* Returns whether two arrays may hold the same data: two with different numbers do only if one was
 * made from the other. */
static bool may_be_copies(const host_object *a, const host_object *b) {
  if (!look_alike(a, b)) return false;
  if (!has_values(a, b))
    return strcmp(a->of, b->of) == 0 || strcmp(a->shape, b->shape) == 0 || derived(a, b);
  return has_same_values(a, b) || (strcmp(a->source, b->source) != 0 && derived(a, b));
}

/* Returns the memory without a name, as a multiple of an object: a value that a line is making has
 * no name yet. Measured against what was held when the limit was exceeded, because the value may
 * exist only between two bytecodes, when Python cannot report. */
static double unnamed_part(const host_case *c, const host_object *o) {
  uint64_t made = host_made_bytes(c);
  if (c->main_bytes > c->reported_bytes) made += c->main_bytes - c->reported_bytes;
  return evidence_share(made, o->bytes);
}

/* Returns whether a file seems to be read in parts, and not to its end yet. */
static bool reads_on(const host_record *r, const host_object *o) {
  for (size_t i = 0; i < r->file_count; i++) {
    uint64_t read = r->files[i].read_bytes;
    if (read < r->files[i].bytes / 20 * 19 && read >= o->bytes / 10 * 8 &&
        read <= o->bytes / 10 * 13)
      return true;
  }
  return false;
}

/* A text or bytes that grows by "+": neither can be added to, so each step makes a new one while
 * the old one is still there. */
static bool find_joined(host_case *c) {
  const host_record *r = c->r;
  const host_object *o = &r->objects[0];
  if (r->object_count == 0 || (strcmp(o->type, "bytes") != 0 && strcmp(o->type, "str") != 0) ||
      evidence_share(o->bytes, c->reported_bytes) < MUCH || unnamed_part(c, o) < 0.8 ||
      (!host_line_joins(r, o->name) && !(host_line_reads(r) != NULL && reads_on(r, o))))
    return false;
  char place[160];
  host_place(place, sizeof place, o);
  if (place[0] == '\0') host_line_where(r, place, sizeof place);
  cause *to = host_add(c, CAUSE_HOST_COPIES, 0.8);
  cause_head(to,
             "%s (%s) is made again with each part that is joined to it%s%s, while the old one is "
             "still there",
             o->name, cause_size(o->bytes), place[0] != '\0' ? " at " : "", place);
  host_say_object(to, o);
  cause_say(to, "the same amount is held by objects without a name");
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  host_add_fix(c, o->bytes,
               "keep the parts in a bytearray (extend) or a list and join once at the end, or work "
               "on each part as it arrives",
               "while the parts are joined, they take twice the memory");
  return true;
}

/* ---- a line that makes arrays from arrays ---- */

/* Returns the bytes of a number of a narrow type; 0 for others. */
static unsigned narrow(const char *of) {
  static const struct {
    const char *of;
    unsigned bytes;
  } types[] = {{"uint8", 1}, {"int8", 1},    {"bool", 1},        {"uint16", 2},
               {"int16", 2}, {"float16", 2}, {"torch.uint8", 1}, {"torch.int8", 1}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(of, types[i].of) == 0) return types[i].bytes;
  return 0;
}

/* "images / 255.0": the result has eight bytes for each number, images one; four if the line names
 * float32. */
static bool find_widened(host_case *c) {
  const host_record *r = c->r;
  const char *source = host_line_own(r);
  uint64_t made = host_made_bytes(c);
  const host_object *o = NULL;
  for (size_t i = 0; i < r->object_count && o == NULL; i++)
    if (host_is_array(&r->objects[i]) && narrow(r->objects[i].of) > 0 && r->objects[i].bytes > 0 &&
        host_line_makes_another(r, r->objects[i].name) == HOST_MAKES_BY_OPERATOR)
      o = &r->objects[i];
  if (o == NULL || !r->from_inside || evidence_share(made, c->reported_bytes) < MUCH ||
      made < o->bytes)
    return false;
  char change[400];
  cause *to = host_add(c, CAUSE_HOST_COPIES, 0.9);
  host_say_making(c, to, made);
  bool half = strstr(source, "float32") != NULL; /* the line converts it */
  buffer_printf(&to->headline, ": %s takes %u times as much as %.20s of %.60s",
                half ? "float32" : "float64", (half ? 4 : 8) / narrow(o->of), o->of, o->name);
  cause_say(to, "the line: %s", source);
  host_say_object(to, o);
  snprintf(change, sizeof change,
           "keep %s as %s and convert one batch at a time, to float32: %s[i:i + 64].astype("
           "np.float32)%s",
           o->name, o->of, o->name,
           half ? "" : "; the whole in float32 takes half (x / np.float32(255))");
  host_add_fix(c, made - made / 4, change, "a loop over the batches");
  return true;
}

/* A line with several steps over several arrays: each step makes an array that is freed later. */
static bool find_steps(host_case *c, const host_object *o) {
  const host_record *r = c->r;
  uint64_t made = host_made_bytes(c);
  if (!r->from_inside || host_line_makes_another(r, o->name) != HOST_MAKES_BY_OPERATOR ||
      evidence_share(made, o->bytes) < 0.8)
    return false;
  cause *to = host_add(c, CAUSE_HOST_COPIES, 0.86);
  host_say_making(c, to, made);
  buffer_printf(&to->headline, ": each step makes a new array as large as %.60s (%s)", o->name,
                cause_size(o->bytes));
  cause_say(to, "the line: %s", host_line_own(r));
  host_say_object(to, o);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  bool narrow = host_is_narrow(r, host_line_own(r));
  host_add_fix(
      c, made / 2,
      narrow
          ? "compute step by step in place (t = a - b; t *= t; np.sqrt(t, out=t)), or a block of "
            "rows at a time; numexpr.evaluate(…) makes no temporary arrays"
          : "compute step by step in place (t = a - b; t *= t; np.sqrt(t, out=t)), or a block of "
            "rows at a time; numexpr.evaluate(…) makes no temporary arrays; float32 halves "
            "everything",
      "longer code; or a loop over the blocks");
  return true;
}

/* Writes what to do instead of a call that makes a new array or table in every iteration. */
static void join_once(char *out, size_t size, const char *copying, const host_object *o) {
  static const char *const joins[] = {"concat", "append", "np.append",   "numpy.append", "vstack",
                                      "hstack", "stack",  "concatenate", "torch.cat",    NULL};
  bool table = strncmp(o->type, "pandas.", 7) == 0, joined = false;
  for (size_t i = 0; joins[i] != NULL && copying != NULL; i++)
    joined = joined || strcmp(copying, joins[i]) == 0;
  if (joined && table)
    snprintf(out, size,
             "reduce each part as it arrives (groupby, sum) and keep the results, or write it to a "
             "file (part.to_parquet); if the whole is needed, fill columns of its full size: a = "
             "numpy.empty(n), a[i:j] = part[\"a\"], pandas.DataFrame({\"a\": a}, copy=False); one "
             "concat of a list of all parts takes twice their size for a moment");
  else if (joined)
    snprintf(
        out, size,
        "make %s once at its full size (numpy.empty) and fill it part by part: %s[i:j] = part; "
        "if all of it does not fit, in a file: numpy.lib.format.open_memmap(path, \"w+\", dtype, "
        "shape); a list of the parts, joined once, takes twice their size for a moment",
        o->name, o->name);
  else
    snprintf(out, size,
             "make it once at its full size and fill it part by part (out=, a[i:j] = …), convert "
             "in parts, and drop the old name (del) before the next step");
}

/* Writes how a line that makes a new array from one can do without it. "a = np.sqrt(a + 1)"
 * replaces it, so the values may go into its own memory. Another name may need the old values
 * later. */
static void write_in_place(char *out, size_t size, const host_record *r, const host_object *o) {
  char target[64];
  const char *source = host_line_own(r);
  bool wide = strstr(o->of, "64") != NULL || strstr(o->of, "128") != NULL;
  host_line_target(source, target, sizeof target);
  if (host_is_table(o))
    snprintf(
        out, size,
        "keep only the columns of %s that the line needs (select them when it is read or made), "
        "work on a block of rows at a time and add up the results, and del %s after its last "
        "use",
        o->name, o->name);
  else if (strcmp(target, o->name) == 0 && strstr(o->of, "float") != NULL)
    snprintf(out, size,
             "work in place, in the memory of %.24s: np.add(%.24s, 1, out=%.24s), np.sqrt(%.24s, "
             "out=%.24s), %.24s *= 2; or a block of rows at a time%s",
             o->name, o->name, o->name, o->name, o->name, o->name,
             wide ? "; float32 takes half" : "");
  else
    snprintf(out, size,
             "work in place if the old values are not needed (out=%s, %s /= 255), or on a block of "
             "rows at a time%s",
             o->name, o->name,
             wide ? "; and in the smallest type that is enough (float32 instead of float64)" : "");
}

/* The line that fills an array joins parts to it, as the array in a loop of concatenate: each
 * iteration makes a new one. The program may be at another line by the time it is asked. */
static const char *joined_elsewhere(const host_case *c, const host_object *o) {
  static const char *const joins[] = {"concatenate", "vstack", "hstack", "np.append",
                                      "torch.cat",   "concat", "stack",  NULL};
  double part = unnamed_part(c, o);
  if (!o->grows || part < 0.6 || part > 1.6) return NULL;
  for (size_t i = 0; joins[i] != NULL; i++)
    if (host_line_calls(o->source, joins[i])) return joins[i];
  return NULL;
}

void host_find_copies(host_case *c) {
  const host_record *r = c->r;
  uint64_t sum = 0;
  unsigned alike = 0;
  bool sure = false;
  const host_object *first = NULL, *second = NULL, *like = NULL;
  for (size_t i = 0; i < r->object_count; i++) {
    const host_object *o = &r->objects[i];
    if (!host_is_array(o) || evidence_share(o->bytes, c->reported_bytes) < 0.08 ||
        host_is_unnamed(o))
      continue;
    if (first == NULL) {
      first = o;
      sum = o->bytes;
      continue;
    }
    if (like == NULL && look_alike(first, o)) like = o;
    if (may_be_copies(first, o)) {
      if (second == NULL) second = o;
      sure = sure || surely_copies(r, first, o);
      alike++;
      sum += o->bytes;
    }
  }
  if (find_widened(c)) return;
  if (first == NULL) {
    c->joined = find_joined(c);
    return;
  }
  const char *copying = host_line_copies(r);
  const char *elsewhere = copying == NULL ? joined_elsewhere(c, first) : NULL;
  if (elsewhere != NULL) copying = elsewhere;
  if (copying == NULL && like != NULL && strcmp(first->of, like->of) == 0 &&
      (second == NULL || !derived(first, like)) && (find_steps(c, first) || find_steps(c, like)))
    return;
  /* A copy that is being made has no name yet; a line of several steps makes more than one. */
  host_making making = host_line_makes_another(r, first->name);
  double part = evidence_share(first->bytes, c->reported_bytes);
  bool made = second == NULL && copying == NULL &&
              (part >= MOST ? making != HOST_MAKES_NOTHING && unnamed_part(c, first) >= 0.2
                            : part >= MUCH - 0.05 && making == HOST_MAKES_BY_OPERATOR &&
                                  unnamed_part(c, first) >= 0.8); /* an array and two steps of it */
  double share = evidence_share(copying != NULL || made ? (second == NULL ? 2 : 1) * sum : sum,
                                c->reported_bytes);
  if ((second == NULL && copying == NULL && !made) || share < MUCH) return;
  sure = sure || copying != NULL;
  if (second != NULL && !sure && alike >= 2) return;
  cause *to = host_add(c, CAUSE_HOST_COPIES,
                       elsewhere != NULL                          ? 0.93
                       : second != NULL && sure && share >= MOST  ? 0.9
                       : copying != NULL                          ? 0.85
                       : made && making == HOST_MAKES_BY_OPERATOR ? 0.8
                       : made                                     ? 0.65
                                                                  : 0.5);
  char where[160], change[400], in_place[400];
  host_line_where(r, where, sizeof where);
  if (elsewhere != NULL) host_place(where, sizeof where, first);
  if (second != NULL && elsewhere == NULL)
    cause_head(to, "%s and %s hold the same data twice: %s and %s%s%s", first->name, second->name,
               cause_size(first->bytes), cause_size(second->bytes),
               where[0] != '\0' ? "; the program was at " : "", where);
  else
    cause_head(to, "%s makes a new copy of %s (%s)%s%s while the old one is still there",
               made ? "the line" : copying, first->name, cause_size(first->bytes),
               where[0] != '\0' ? " at " : "", where);
  for (size_t i = 0; i < r->object_count; i++)
    if (&r->objects[i] == first || (look_alike(first, &r->objects[i]) && !host_is_unnamed(first)))
      host_say_object(to, &r->objects[i]);
  if (copying != NULL && elsewhere == NULL) cause_say(to, "the program was inside %s", copying);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  join_once(change, sizeof change, copying, first);
  const host_way *inside = made ? host_way_of_library(r) : NULL; /* what a library makes of it */
  write_in_place(in_place, sizeof in_place, r, first);
  host_add_fix(c, second != NULL ? sum - first->bytes : first->bytes,
               inside != NULL ? inside->change
               : made         ? in_place
                              : change,
               inside != NULL ? inside->cost
               : made         ? "the old values are gone"
                              : "the full size must be known in advance");
}

/* ---- files ---- */

static bool is_packed(const char *path) {
  static const char *const endings[] = {".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".npz"};
  size_t length = strlen(path);
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    size_t end = strlen(endings[i]);
    if (length > end && strcmp(path + length - end, endings[i]) == 0) return true;
  }
  return false;
}

/* Returns the file that the memory comes from. The kernel counts bytes when a read returns. Text of
 * short numbers is several times as large in memory as in its file, and compressed data can have
 * any ratio. */
static const tree_file *find_file(const host_case *c, bool reading) {
  const host_record *r = c->r;
  for (size_t i = 0; i < r->file_count; i++)
    if ((r->files[i].read_bytes > 0 || reading) &&
        evidence_share(r->files[i].bytes, c->main_bytes) >= (reading ? LITTLE : MUCH))
      return &r->files[i];
  for (size_t i = 0; i < r->file_count && reading; i++)
    if (is_packed(r->files[i].path)) return &r->files[i];
  return NULL;
}

/* There is no report from inside, and one mapping is being filled that is no larger than an open
 * file, which is a large part of everything: a library reads with the interpreter's lock held, in
 * one read that is counted when it returns (HDF5 does). */
static const tree_file *find_filling(const host_case *c) {
  const host_record *r = c->r;
  const tree_map *filled = &r->maps[0];
  uint64_t all = r->kinds[TREE_HEAP] + r->kinds[TREE_ANONYMOUS]; /* of the same look */
  if (r->from_inside || r->map_count == 0 || filled->kind != TREE_ANONYMOUS ||
      evidence_share(filled->bytes, all) < MOST)
    return NULL;
  for (size_t i = 0; i < r->file_count; i++) {
    double part = evidence_share(r->files[i].bytes, c->main_bytes);
    if (r->files[i].bytes >= filled->bytes && part >= MUCH && part < 4) return &r->files[i];
  }
  return NULL;
}

/* A worker may have read the bytes from its parent through a pipe, and the parent from the worker.
 */
static bool has_relatives(const host_case *c) {
  for (size_t i = 0; i < c->r->process_count; i++)
    if (c->r->processes[i].pid == c->main->parent || c->r->processes[i].parent == c->main->pid)
      return true;
  return false;
}

/* The whole output of a command that the program started, captured in memory. */
static bool find_output(host_case *c) {
  const host_record *r = c->r;
  bool inside = false;
  for (size_t i = 0; i < r->frame_count; i++)
    inside = inside || (strstr(r->frames[i].file, "/subprocess.py") != NULL &&
                        strcmp(r->frames[i].name, "_execute_child") != 0);
  /* Its parts, the parts joined, and their text: what was read is a third of that. */
  if (!inside || evidence_share(c->main->read_bytes, c->main_bytes) < MUCH / 2) return false;
  char where[160];
  host_line_where(r, where, sizeof where);
  cause *to = host_add(c, CAUSE_HOST_DATASET_WHOLE, 0.93);
  cause_head(to, "The output of a command is captured whole at %s: %s was read so far",
             where[0] != '\0' ? where : "one line", cause_size(c->main->read_bytes));
  to->names_line = where[0] != '\0';
  const char *source = host_line_own(r);
  if (source != NULL && source[0] != '\0') cause_say(to, "the line: %s", source);
  cause_say(to, "the parts are kept and joined at the end, and decoded once more as text");
  host_add_fix(c, c->main->read_bytes,
               "read it line by line: p = subprocess.Popen(…, stdout=subprocess.PIPE, text=True); "
               "for line in p.stdout: …; or write it to a file: stdout=open(path, \"wb\")",
               "a loop over the lines");
  return true;
}

void host_find_dataset(host_case *c) {
  const host_record *r = c->r;
  uint64_t largest = 0, named = host_named_bytes(r);
  const char *reading = host_line_reads(r);
  const tree_file *file = find_file(c, reading != NULL);
  bool filling = file == NULL && reading == NULL && (file = find_filling(c)) != NULL;
  for (size_t i = 0; i < r->object_count && largest == 0; i++)
    if (!host_is_container(&r->objects[i])) largest = r->objects[i].bytes;
  double read = evidence_share(c->main->read_bytes, c->main_bytes);
  if (find_output(c)) return;
  if (file == NULL && reading == NULL && (read < MUCH || has_relatives(c))) return;
  /* Data that is being read has no name yet: it is the memory that no variable holds. */
  bool unnamed =
      reading != NULL && r->from_inside && evidence_share(named, c->reported_bytes) < LITTLE;
  if (read < MUCH && reading != NULL && evidence_share(largest, c->reported_bytes) < MUCH &&
      file == NULL && !unnamed)
    return;
  double sure = read >= 0.7 || (file != NULL && reading != NULL) ? 0.93
                : read >= MOST || unnamed                        ? 0.8
                                                                 : 0.5;
  /* A small part of what the command holds does not explain the rest. */
  if (evidence_share(c->main_bytes, r->held_bytes) < MOST && sure > 0.5) sure = 0.5;
  if (filling && sure < 0.6) sure = 0.6;
  /* Parts come from a pipe or a socket, and a container keeps them. */
  const host_object *o = &r->objects[0];
  if (file == NULL && sure > 0.6 && r->object_count > 0 && o->grows && host_is_container(o) &&
      !host_is_unnamed(o) && evidence_share(o->bytes, c->reported_bytes) >= MOST)
    sure = 0.6;
  if (c->joined && sure > 0.5) sure = 0.5; /* it is read in parts, and kept by joining them */
  char where[260] = "", line[160], target[64] = "";
  host_line_where(r, line, sizeof line);
  if (reading != NULL) host_line_target(host_line_own(r), target, sizeof target);
  if (reading != NULL && line[0] != '\0')
    snprintf(where, sizeof where, "%s%s at %s", target[0] != '\0' ? " into " : "", target, line);
  cause *to = host_add(c, CAUSE_HOST_DATASET_WHOLE, sure);
  if (file != NULL && is_packed(file->path) && file->bytes < c->main_bytes / 2)
    cause_head(to, "%s is unpacked whole%s: %s of file, %s held", file->path, where,
               cause_size(file->bytes), cause_size(c->main_bytes));
  else if (file != NULL)
    cause_head(to, "%s is read whole%s: %s of file, %s held", file->path, where,
               cause_size(file->bytes), cause_size(c->main_bytes));
  else
    cause_head(to, "A file is read whole%s: %s was read and %s is held", where,
               cause_size(c->main->read_bytes), cause_size(c->main_bytes));
  to->names_line = where[0] != '\0';
  cause_say(to, "%s read by the process that holds %s", cause_size(c->main->read_bytes),
            cause_size(c->main_bytes));
  if (reading != NULL) cause_say(to, "the program was inside %s", reading);
  if (filling)
    cause_say(to,
              "the file is open, and one block of memory, no larger than the file, is being filled "
              "(%s so far)",
              cause_size(r->maps[0].bytes));
  for (size_t i = 0; i < r->object_count && i < 3; i++) host_say_object(to, &r->objects[i]);
  if (c->place[0] != '\0') cause_say(to, "the program was at %s", c->place);
  char change[400];
  const char *made = r->object_count > 0 && !r->objects[0].grows ? r->objects[0].source : NULL;
  host_read_in_parts(change, sizeof change, r, file != NULL ? file->path : "",
                     reading != NULL ? host_line_own(r) : made);
  uint64_t whole = file != NULL ? file->bytes : c->main->read_bytes;
  if (unnamed && whole < c->main_bytes / 2) whole = c->main_bytes;
  host_add_fix(c, whole > ((uint64_t)64 << 20) ? whole - ((uint64_t)64 << 20) : whole / 2, change,
               "a loop over the parts");
  if (file != NULL && !host_read_inspected(file->path)) return;
  host_add_fix(c, MESSAGE_UNKNOWN,
               "stowage inspect FILE: the smallest types that hold it exactly; stowage shrink "
               "writes it in them",
               "one pass over the file");
}
