/* Run profile: sums over the processes of a run, by line and by function, printed as tables and
 * JSON. */
#include "cli/run_profile.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/list.h"
#include "base/newfile.h"
#include "base/table.h"
#include "base/variables.h"
#include "cli/output.h"
#include "cli/run_shim.h"
#include "recordings/recording_file.h"
#include "run/profile.h"
#include "run/protocol.h"

#define LINES_SHOWN     16
#define FUNCTIONS_SHOWN 8
#define TRACE_BYTES_MAX ((uint64_t)4 << 30)
#define SHOWN_LEAST     ((double)(UINT64_C(1) << 20)) /* smaller amounts are not listed */

enum { HOST, DEVICE, KINDS };

/* A line of the program, or all lines of one function. */
typedef struct place {
  char *file, *function;
  uint32_t line; /* 0 for a function */
  profile_amount allocated[KINDS], held[KINDS], at_peak[KINDS];
} place;

typedef struct places {
  place *list;
  size_t count, capacity;
} places;

typedef struct profile {
  places lines, functions;
  double peak[KINDS]; /* over all processes, each at its own peak */
  uint64_t period, dropped;
  int processes; /* processes whose host memory was sampled */
  bool device;   /* device memory was recorded */
} profile;

stow_status run_profile_begin(const char *folder) {
  if (setenv(ENV_PROFILE, folder, 1) != 0)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the environment");
  return run_shim_preload_profile();
}

/* ---- places ---- */

static stow_status place_of(places *p, place **out, const char *file, const char *function,
                            uint32_t line) {
  for (size_t i = 0; i < p->count; i++) {
    place *each = &p->list[i];
    *out = each;
    if (each->line == line && strcmp(each->file, file) == 0 &&
        strcmp(each->function, function) == 0)
      return STOW_OK;
  }
  STOW_TRY(LIST_ROOM(p->list, p->count, p->capacity, 64, "lines"));
  place fresh = {.file = strdup(file), .function = strdup(function), .line = line};
  if (fresh.file == NULL || fresh.function == NULL) {
    free(fresh.file);
    free(fresh.function);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the profile");
  }
  p->list[p->count] = fresh;
  *out = &p->list[p->count++];
  return STOW_OK;
}

static void places_free(places *p) {
  for (size_t i = 0; i < p->count; i++) {
    free(p->list[i].file);
    free(p->list[i].function);
  }
  free(p->list);
}

static void add(profile_amount *to, profile_amount more) {
  to->bytes += more.bytes;
  to->variance += more.variance;
}

static void add_place(place *to, const place *from) {
  for (int kind = 0; kind < KINDS; kind++) {
    add(&to->allocated[kind], from->allocated[kind]);
    add(&to->held[kind], from->held[kind]);
    add(&to->at_peak[kind], from->at_peak[kind]);
  }
}

static double weight(const place *p) {
  return p->at_peak[HOST].bytes + p->at_peak[DEVICE].bytes;
}

static int heavier(const void *a, const void *b) {
  const place *x = a, *y = b;
  double by_peak = weight(y) - weight(x);
  double by_all = y->allocated[HOST].bytes + y->allocated[DEVICE].bytes - x->allocated[HOST].bytes -
                  x->allocated[DEVICE].bytes;
  if (by_peak != 0) return by_peak > 0 ? 1 : -1;
  if (by_all != 0) return by_all > 0 ? 1 : -1;
  int order = strcmp(x->file, y->file);
  return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

/* ---- host memory ---- */

static stow_status add_host(profile *p, profile_file *f, const char *path) {
  STOW_TRY(profile_read(f, path));
  for (uint32_t i = 0; i < f->site_count; i++) {
    const profile_site *s = &f->sites[i];
    place *to, more = {.allocated[HOST] = s->allocated, .held[HOST] = s->held};
    more.at_peak[HOST] = profile_at_peak(f, s);
    STOW_TRY(place_of(&p->lines, &to, s->file, s->function, s->line));
    add_place(to, &more);
  }
  p->peak[HOST] += f->held_peak;
  p->period = f->period;
  p->dropped += f->dropped;
  p->processes++;
  return STOW_OK;
}

/* ---- device memory ---- */

/* Returns the place of a stack: its innermost line outside libraries. */
static stow_status place_of_stack(profile *p, place **out, const recording *r, uint32_t stack_id) {
  const frame *f = NULL;
  if (stack_id > 0 && stack_id <= r->stack_count) {
    const stack *s = &r->stacks[stack_id - 1];
    for (uint32_t i = 0; i < s->count && f == NULL; i++) {
      const frame *each = &r->frames[r->stack_frames[s->first + i] - 1];
      if (profile_is_own(recording_text(r, each->file_id))) f = each;
    }
    if (f == NULL && s->count > 0) f = &r->frames[r->stack_frames[s->first] - 1];
  }
  if (f == NULL) return place_of(&p->lines, out, "", "", 0);
  return place_of(&p->lines, out, recording_text(r, f->file_id), recording_text(r, f->name_id),
                  f->line);
}

/* Finds the peak over all devices, as the number of events up to it. */
static stow_status find_peak(const recording *r, size_t *until, uint64_t *peak) {
  map live = {0};
  uint64_t held = 0, bytes = 0;
  stow_status status = STOW_OK;
  *until = 0;
  *peak = 0;
  for (size_t i = 0; i < r->event_count && status == STOW_OK; i++) {
    const event *e = &r->events[i];
    if (e->kind == EVENT_ALLOC) {
      if (map_remove(&live, e->addr, &bytes)) held -= bytes;
      status = map_put(&live, e->addr, e->bytes);
      held += e->bytes;
    } else if (e->kind == EVENT_FREE && map_remove(&live, e->addr, &bytes))
      held -= bytes;
    if (held > *peak) {
      *peak = held;
      *until = i + 1;
    }
  }
  map_free(&live);
  return status;
}

/* Adds what the blocks in `live` (address → event) hold, at the peak or at the end. */
static stow_status add_live(profile *p, const recording *r, const map *live, bool at_peak) {
  size_t at = 0;
  uint64_t address, number;
  while (map_next(live, &at, &address, &number)) {
    const event *e = &r->events[number];
    place *to;
    STOW_TRY(place_of_stack(p, &to, r, e->stack_id));
    (at_peak ? to->at_peak : to->held)[DEVICE].bytes += (double)e->bytes;
  }
  return STOW_OK;
}

static stow_status add_events(profile *p, const recording *r, map *live, size_t until) {
  for (size_t i = 0; i < r->event_count; i++) {
    const event *e = &r->events[i];
    place *to;
    if (e->kind == EVENT_ALLOC) {
      STOW_TRY(place_of_stack(p, &to, r, e->stack_id));
      to->allocated[DEVICE].bytes += (double)e->bytes;
      STOW_TRY(map_put(live, e->addr, i));
      p->device = true;
    } else if (e->kind == EVENT_FREE)
      map_remove(live, e->addr, NULL);
    if (i + 1 == until) STOW_TRY(add_live(p, r, live, true));
  }
  return add_live(p, r, live, false);
}

static stow_status add_device(profile *p, const char *path) {
  recording r;
  map live = {0};
  size_t until = 0;
  uint64_t peak = 0;
  recording_init(&r, TRACE_BYTES_MAX);
  stow_status status = recording_read(&r, path, KIND_STOW, NULL);
  const char *of = status == STOW_OK ? recording_fact(&r, "memory") : NULL;
  if (status == STOW_OK && (of == NULL || strcmp(of, "host") != 0)) {
    status = find_peak(&r, &until, &peak);
    if (status == STOW_OK) status = add_events(p, &r, &live, until);
    p->peak[DEVICE] += (double)peak;
  }
  map_free(&live);
  recording_free(&r);
  return status;
}

/* ---- reading a run ---- */

static stow_status read_all(profile *p, const char *folder) {
  struct dirent **entries;
  profile_file *f = malloc(sizeof *f);
  stow_status status =
      f != NULL ? STOW_OK : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the profile");
  int count = scandir(folder, &entries, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    char path[PATH_MAX];
    const char *name = entries[i]->d_name;
    if (status == STOW_OK && run_path(path, folder, name)) {
      if (run_has_ending(name, RUN_PROFILE)) status = add_host(p, f, path);
      if (run_has_ending(name, RUN_STOW)) status = add_device(p, path);
    }
    free(entries[i]);
  }
  if (count >= 0) free(entries);
  free(f);
  for (size_t i = 0; i < p->lines.count && status == STOW_OK; i++) {
    const place *line = &p->lines.list[i];
    place *to;
    status = place_of(&p->functions, &to, line->file, line->function, 0);
    if (status == STOW_OK) add_place(to, line);
  }
  if (p->lines.count > 0) qsort(p->lines.list, p->lines.count, sizeof(place), heavier);
  if (p->functions.count > 0) qsort(p->functions.list, p->functions.count, sizeof(place), heavier);
  return status;
}

/* ---- tables ---- */

static double square_root(double x) { /* Newton's method, because libm is not linked */
  double root = x > 1 ? x : 1;
  if (x <= 0) return 0;
  for (int i = 0; i < 600 && root * root > x * (1 + 1e-12); i++) root = (root + x / root) / 2;
  return root;
}

static uint64_t whole(double bytes) {
  return bytes > 0 ? (uint64_t)(bytes + 0.5) : 0;
}

/* Returns a path as it is shown: relative if it is below the current folder. */
static const char *shown_file(const char *file) {
  static char here[PATH_MAX];
  if (here[0] == '\0' && getcwd(here, sizeof here - 1) == NULL) here[0] = '?';
  size_t length = strlen(here);
  bool below = strncmp(file, here, length) == 0 && file[length] == '/';
  return output_name(below ? file + length + 1 : file);
}

static void cell(table *t, profile_amount a) {
  if (whole(a.bytes) == 0)
    table_cell(t, "-");
  else
    table_size(t, whole(a.bytes));
}

static void print_table(const profile *p, const places *of, size_t most, const char *what) {
  table t = TABLE_INIT(p->device ? 8 : 5, p->device ? 0x7f : 0xf);
  static const char *const HEADS[] = {"peak", "kept", "allocated", "±"};
  static const char *const DEVICE_HEADS[] = {"gpu peak", "gpu kept", "gpu alloc."};
  for (int i = 0; i < 4; i++) table_cell(&t, HEADS[i]);
  for (int i = 0; i < 3 && p->device; i++) table_cell(&t, DEVICE_HEADS[i]);
  table_cell(&t, what);
  size_t shown = 0, left = 0;
  for (size_t i = 0; i < of->count; i++) {
    const place *each = &of->list[i];
    bool large = weight(each) >= SHOWN_LEAST || each->allocated[DEVICE].bytes > 0 ||
                 each->allocated[HOST].bytes >= 16 * SHOWN_LEAST;
    if (!large || shown == most) {
      left += large;
      continue;
    }
    shown++;
    cell(&t, each->at_peak[HOST]);
    cell(&t, each->held[HOST]);
    cell(&t, each->allocated[HOST]);
    cell(&t, (profile_amount){.bytes = square_root(each->allocated[HOST].variance)});
    if (p->device) {
      cell(&t, each->at_peak[DEVICE]);
      cell(&t, each->held[DEVICE]);
      cell(&t, each->allocated[DEVICE]);
    }
    if (each->file[0] == '\0')
      table_cell(&t, "no line of the program (start, native threads)");
    else if (each->line == 0)
      table_printf(&t, "%s in %s", output_name(each->function), shown_file(each->file));
    else
      table_printf(&t, "%s:%" PRIu32 " %s", shown_file(each->file), each->line,
                   output_name(each->function));
  }
  buffer out = BUFFER_INIT;
  table_write(&t, &out, 2, false);
  if (out.status == STOW_OK && out.data != NULL && shown > 0) output_error("%s", out.data);
  if (left > 0) output_error("  and %zu more\n", left);
  buffer_free(&out);
}

static void print(const profile *p) {
  char host[STOW_SIZE_TEXT_MAX], device[STOW_SIZE_TEXT_MAX], period[STOW_SIZE_TEXT_MAX];
  if (p->processes == 0 && !p->device) {
    output_error("stowage run: --profile: nothing was sampled: the command ran no Python, or "
                 "allocated less than %s\n",
                 stow_size_format(period, PROFILE_PERIOD));
    return;
  }
  output_error("stowage run: profile: peak %s of host memory",
               stow_size_format(host, whole(p->peak[HOST])));
  if (p->device)
    output_error(", %s of device memory", stow_size_format(device, whole(p->peak[DEVICE])));
  if (p->processes > 1) output_error("; sums of %d processes", p->processes);
  output_error("\n");
  print_table(p, &p->lines, LINES_SHOWN, "line");
  print_table(p, &p->functions, FUNCTIONS_SHOWN, "function");
  output_error("  peak: held when the process held most. kept: held at the end. Host memory is "
               "sampled every "
               "%s;\n  ±: standard error of allocated.%s\n",
               stow_size_format(period, p->period != 0 ? p->period : PROFILE_PERIOD),
               p->device ? " Device memory is exact." : "");
  if (p->dropped > 0)
    output_error("  %" PRIu64 " samples were dropped: more than %d lines allocated\n", p->dropped,
                 PROFILE_SITES_MAX);
}

/* ---- JSON ---- */

static void write_amount(json *j, const char *key, const place *p, int kind) {
  json_key(j, key);
  json_begin_object(j);
  json_number(j, "peak_bytes", whole(p->at_peak[kind].bytes));
  json_number(j, "kept_bytes", whole(p->held[kind].bytes));
  json_number(j, "allocated_bytes", whole(p->allocated[kind].bytes));
  if (kind == HOST) {
    json_number(j, "peak_error_bytes", whole(square_root(p->at_peak[kind].variance)));
    json_number(j, "kept_error_bytes", whole(square_root(p->held[kind].variance)));
    json_number(j, "allocated_error_bytes", whole(square_root(p->allocated[kind].variance)));
  }
  json_end_object(j);
}

static void write_places(json *j, const char *key, const places *of) {
  json_key(j, key);
  json_begin_array(j);
  for (size_t i = 0; i < of->count; i++) {
    const place *p = &of->list[i];
    json_begin_object(j);
    json_key(j, "file");
    json_text(j, p->file[0] != '\0' ? p->file : NULL);
    if (p->line > 0) json_number(j, "line", p->line);
    json_key(j, "function");
    json_text(j, p->file[0] != '\0' ? p->function : NULL);
    write_amount(j, "host", p, HOST);
    write_amount(j, "device", p, DEVICE);
    json_end_object(j);
  }
  json_end_array(j);
}

static stow_status write_json(const profile *p, const char *path) {
  buffer out = BUFFER_INIT;
  json j = JSON_PRETTY(&out);
  json_begin_object(&j);
  json_number(&j, "period_bytes", p->period != 0 ? p->period : PROFILE_PERIOD);
  json_number(&j, "processes", (uint64_t)p->processes);
  json_number(&j, "host_peak_bytes", whole(p->peak[HOST]));
  json_number(&j, "device_peak_bytes", whole(p->peak[DEVICE]));
  json_number(&j, "samples_left_out", p->dropped);
  write_places(&j, "lines", &p->lines);
  write_places(&j, "functions", &p->functions);
  json_end_object(&j);
  buffer_char(&out, '\n');
  stow_status status = out.status;
  if (status == STOW_OK && !newfile_write(path, out.data, out.length))
    status = stow_fail(STOW_ERR_IO, "--profile-json %.400s: cannot write the file", path);
  buffer_free(&out);
  return status;
}

stow_status run_profile_end(const char *folder, const char *json_path) {
  profile p = {0};
  stow_status status = read_all(&p, folder);
  if (status == STOW_OK) print(&p);
  if (status == STOW_OK && json_path != NULL) status = write_json(&p, json_path);
  places_free(&p.lines);
  places_free(&p.functions);
  return status;
}
