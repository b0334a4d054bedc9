/* Run profile: memory by line and by function, as tables and JSON. */
#include "cli/run_profile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/json.h"
#include "base/newfile.h"
#include "base/table.h"
#include "base/text.h"
#include "base/variables.h"
#include "cli/output.h"
#include "cli/run_shim.h"
#include "report/line_profile.h"
#include "run/profile.h"

#define LINES_SHOWN     16
#define FUNCTIONS_SHOWN 8
#define SHOWN_LEAST     ((double)(UINT64_C(1) << 20)) /* less is not worth a line */

stow_status run_profile_begin(const char *folder) {
  if (setenv(ENV_PROFILE, folder, 1) != 0)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the environment");
  return run_shim_preload_profile();
}

/* ---- tables ---- */

/* Returns a path for people: relative to the current folder if it is below it. */
static const char *shown_file(const char *file) {
  static char here[PATH_MAX];
  if (here[0] == '\0' && getcwd(here, sizeof here - 1) == NULL) here[0] = '?';
  size_t length = strlen(here);
  bool below = strncmp(file, here, length) == 0 && file[length] == '/';
  return output_name(below ? file + length + 1 : file);
}

static void cell(table *t, profile_amount a) {
  if (line_profile_bytes(a.bytes) == 0)
    table_cell(t, "-");
  else
    table_size(t, line_profile_bytes(a.bytes));
}

static void print_table(const line_profile *p, const line_places *of, size_t most,
                        const char *what) {
  table t = TABLE_INIT(p->device ? 8 : 5, p->device ? 0x7f : 0xf);
  static const char *const HEADS[] = {"peak", "kept", "allocated", "±"};
  static const char *const DEVICE_HEADS[] = {"gpu peak", "gpu kept", "gpu alloc."};
  for (int i = 0; i < 4; i++) table_cell(&t, HEADS[i]);
  for (int i = 0; i < 3 && p->device; i++) table_cell(&t, DEVICE_HEADS[i]);
  table_cell(&t, what);
  size_t shown = 0, left = 0;
  for (size_t i = 0; i < of->count; i++) {
    const line_place *each = &of->list[i];
    bool large = line_place_weight(each) >= SHOWN_LEAST ||
                 each->allocated[PROFILE_DEVICE].bytes > 0 ||
                 each->allocated[PROFILE_HOST].bytes >= 16 * SHOWN_LEAST;
    if (!large || shown == most) {
      left += large;
      continue;
    }
    shown++;
    cell(&t, each->at_peak[PROFILE_HOST]);
    cell(&t, each->held[PROFILE_HOST]);
    cell(&t, each->allocated[PROFILE_HOST]);
    cell(&t, (profile_amount){.bytes = (double)line_profile_error(each->allocated[PROFILE_HOST])});
    if (p->device) {
      cell(&t, each->at_peak[PROFILE_DEVICE]);
      cell(&t, each->held[PROFILE_DEVICE]);
      cell(&t, each->allocated[PROFILE_DEVICE]);
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

static void print(const line_profile *p) {
  char host[STOW_SIZE_TEXT_MAX], device[STOW_SIZE_TEXT_MAX], period[STOW_SIZE_TEXT_MAX];
  if (p->processes == 0 && !p->device) {
    output_error("stowage run: --profile: nothing was sampled: the command ran no Python, or "
                 "allocated less than %s\n",
                 stow_size_format(period, PROFILE_PERIOD));
    return;
  }
  output_error("stowage run: profile: peak %s of host memory",
               stow_size_format(host, line_profile_bytes(p->peak[PROFILE_HOST])));
  if (p->device)
    output_error(", %s of device memory",
                 stow_size_format(device, line_profile_bytes(p->peak[PROFILE_DEVICE])));
  if (p->processes > 1) output_error("; sums of %d processes", p->processes);
  output_error("\n");
  print_table(p, &p->lines, LINES_SHOWN, "line");
  print_table(p, &p->functions, FUNCTIONS_SHOWN, "function");
  output_error("  peak: held when the process held most. kept: held at the end. Host memory is "
               "sampled every "
               "%s;\n  ±: standard error of allocated.%s\n",
               stow_size_format(period, p->period != 0 ? p->period : PROFILE_PERIOD),
               p->device ? " Device memory is exact." : "");
  output_error("  Beside the source: stowage report --last\n");
  if (p->dropped > 0)
    output_error("  %" PRIu64 " sample%s dropped: more than %d lines allocated\n", p->dropped,
                 text_s(p->dropped), PROFILE_SITES_MAX);
}

/* ---- JSON ---- */

static void write_amount(json *j, const char *key, const line_place *p, int kind) {
  json_key(j, key);
  json_begin_object(j);
  json_number(j, "peak_bytes", line_profile_bytes(p->at_peak[kind].bytes));
  json_number(j, "kept_bytes", line_profile_bytes(p->held[kind].bytes));
  json_number(j, "allocated_bytes", line_profile_bytes(p->allocated[kind].bytes));
  if (kind == PROFILE_HOST) {
    json_number(j, "peak_error_bytes", line_profile_error(p->at_peak[kind]));
    json_number(j, "kept_error_bytes", line_profile_error(p->held[kind]));
    json_number(j, "allocated_error_bytes", line_profile_error(p->allocated[kind]));
  }
  json_end_object(j);
}

static void write_places(json *j, const char *key, const line_places *of) {
  json_key(j, key);
  json_begin_array(j);
  for (size_t i = 0; i < of->count; i++) {
    const line_place *p = &of->list[i];
    json_begin_object(j);
    json_key(j, "file");
    json_text(j, p->file[0] != '\0' ? p->file : NULL);
    if (p->line > 0) json_number(j, "line", p->line);
    json_key(j, "function");
    json_text(j, p->file[0] != '\0' ? p->function : NULL);
    write_amount(j, "host", p, PROFILE_HOST);
    write_amount(j, "device", p, PROFILE_DEVICE);
    json_end_object(j);
  }
  json_end_array(j);
}

static stow_status write_json(const line_profile *p, const char *path) {
  buffer out = BUFFER_INIT;
  json j = JSON_PRETTY(&out);
  json_begin_object(&j);
  json_number(&j, "period_bytes", p->period != 0 ? p->period : PROFILE_PERIOD);
  json_number(&j, "processes", (uint64_t)p->processes);
  json_number(&j, "host_peak_bytes", line_profile_bytes(p->peak[PROFILE_HOST]));
  json_number(&j, "device_peak_bytes", line_profile_bytes(p->peak[PROFILE_DEVICE]));
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
  line_profile p;
  stow_status status = line_profile_read(&p, folder);
  if (status == STOW_OK) print(&p);
  if (status == STOW_OK && json_path != NULL) status = write_json(&p, json_path);
  line_profile_free(&p);
  return status;
}
