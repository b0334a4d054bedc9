/* Program: reads the lines of python/stowage/_program.py. */
#include "advise/program.h"

#include <stdio.h>
#include <string.h>

#include "advise/scan.h"

#define VERSION 1

/* Parses a number of at most PROGRAM_BYTES_MAX at *at, and advances *at past it and a space; 0 if
 * there is none. */
static uint64_t take_number(scan_text line, const char **at) {
  uint64_t value = scan_number(line, *at);
  while (*at < line.end && **at != ' ') ++*at;
  while (*at < line.end && **at == ' ') ++*at;
  return value <= PROGRAM_BYTES_MAX ? value : 0;
}

static void take_word(char *out, size_t size, scan_text line, const char **at) {
  scan_copy(out, size, line, *at, " ");
  while (*at < line.end && **at != ' ') ++*at;
  while (*at < line.end && **at == ' ') ++*at;
}

static program_step step_of(scan_text line, const char *at) {
  static const struct {
    const char *name;
    program_step step;
  } steps[] = {{"building", PROGRAM_BUILDING},   {"loading", PROGRAM_LOADING},
               {"forward", PROGRAM_FORWARD},     {"backward", PROGRAM_BACKWARD},
               {"optimizer", PROGRAM_OPTIMIZER}, {"other", PROGRAM_OTHER}};
  char name[16];
  take_word(name, sizeof name, line, &at);
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    if (strcmp(name, steps[i].name) == 0) return steps[i].step;
  return PROGRAM_UNKNOWN;
}

/* Parses "float16 1024", and counts types that 16-bit weights would not make smaller. */
static void read_dtype(program_facts *p, scan_text line, const char *at) {
  static const char *const wide[] = {"float32", "float64", "complex64", "complex128", "int64"};
  char name[24];
  take_word(name, sizeof name, line, &at);
  for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
    if (strcmp(name, wide[i]) == 0) return;
  uint64_t bytes = take_number(line, &at);
  if (p->narrow_bytes <= PROGRAM_BYTES_MAX) p->narrow_bytes += bytes;
}

/* Parses "AdamW 124439808 497759232 0 fused": numbers, bytes of the weights, bytes of state so
 * far. */
static void read_optimizer(program_facts *p, scan_text line, const char *at) {
  static const struct {
    const char *name;
    uint32_t flag;
  } flags[] = {{"fused", PROGRAM_FUSED},
               {"single", PROGRAM_SINGLE},
               {"amsgrad", PROGRAM_AMSGRAD},
               {"momentum", PROGRAM_MOMENTUM},
               {"centered", PROGRAM_CENTERED}};
  char name[64], flag[24];
  uint32_t set = 0;
  take_word(name, sizeof name, line, &at);
  uint64_t numbers = take_number(line, &at), bytes = take_number(line, &at);
  uint64_t state = take_number(line, &at);
  while (at < line.end) {
    take_word(flag, sizeof flag, line, &at);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
      if (strcmp(flag, flags[i].name) == 0) set |= flags[i].flag;
  }
  if (p->optimizer[0] == '\0' || bytes > p->optimizer_bytes) {
    snprintf(p->optimizer, sizeof p->optimizer, "%s", name);
    p->optimizer_flags = set;
  }
  if (p->optimizer_bytes > PROGRAM_BYTES_MAX) return;
  p->optimizer_numbers += numbers;
  p->optimizer_bytes += bytes;
  p->state_bytes += state;
}

/* Parses "float32 8x3x224x224". */
static void read_input(program_facts *p, scan_text line, const char *at) {
  if (p->input_count == PROGRAM_INPUTS_MAX) return;
  program_input *in = &p->inputs[p->input_count++];
  take_word(in->dtype, sizeof in->dtype, line, &at);
  while (at < line.end && in->rank < PROGRAM_DIMS_MAX) {
    uint64_t dim = scan_number(line, at);
    if (dim > PROGRAM_BYTES_MAX) return;
    in->dims[in->rank++] = dim;
    while (at < line.end && *at != 'x') at++;
    if (at < line.end) at++;
  }
}

static void read_pair(uint64_t *a, uint64_t *b, scan_text line, const char *at) {
  *a = take_number(line, &at);
  *b = take_number(line, &at);
}

static uint32_t count_of(uint64_t number) {
  return number < 1000000 ? (uint32_t)number : 0;
}

/* Parses "kept 12 4096\tCHANGE\tCOST". */
static void read_advice(program_facts *p, scan_text line, const char *at) {
  static const struct {
    const char *name;
    program_advice_kind kind;
  } kinds[] = {{"kept", ADVICE_KEPT},     {"carried", ADVICE_CARRIED}, {"summed", ADVICE_SUMMED},
               {"needed", ADVICE_NEEDED}, {"without", ADVICE_WITHOUT}, {"values", ADVICE_VALUES}};
  char name[16];
  program_advice a = {.kind = 0};
  take_word(name, sizeof name, line, &at);
  uint64_t graphs = take_number(line, &at);
  a.held_bytes = scan_number(line, at) <= PROGRAM_BYTES_MAX ? scan_number(line, at) : 0;
  const char *change = scan_find(scan_from(line, at), "\t");
  const char *cost = change != NULL ? scan_find(scan_from(line, change), "\t") : NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(name, kinds[i].name) == 0) a.kind = kinds[i].kind;
  if (a.kind == 0 || cost == NULL || p->advice_count == PROGRAM_ADVICE_MAX) return;
  /* A change that is cut would be wrong. */
  if ((size_t)(cost - 1 - change) >= sizeof a.change) return;
  scan_copy(a.change, sizeof a.change, line, change, "\t");
  scan_copy(a.cost, sizeof a.cost, line, cost, "\t");
  a.graphs = graphs < 1000000 ? (uint32_t)graphs : 0;
  if (a.change[0] != '\0') p->advice[p->advice_count++] = a;
}

static void read_line(program_facts *p, scan_text line) {
  char key[24];
  uint64_t a = 0, b = 0;
  const char *at = line.at;
  take_word(key, sizeof key, line, &at);
  if (strcmp(key, "step") == 0) p->step = step_of(line, at);
  if (strcmp(key, "grad") == 0) {
    p->grad_known = true;
    p->grad = take_number(line, &at) != 0;
  }
  if (strcmp(key, "training") == 0) {
    p->training_known = true;
    p->training = take_number(line, &at) != 0;
  }
  if (strcmp(key, "autocast") == 0) p->autocast = !scan_starts(scan_from(line, at), "off");
  if (strcmp(key, "module") == 0) take_word(p->module, sizeof p->module, line, &at);
  if (strcmp(key, "within") == 0) take_word(p->within, sizeof p->within, line, &at);
  if (strcmp(key, "path") == 0) take_word(p->path, sizeof p->path, line, &at);
  if (strcmp(key, "parameters") == 0)
    read_pair(&p->parameter_numbers, &p->parameter_bytes, line, at);
  if (strcmp(key, "trained") == 0) read_pair(&p->trained_numbers, &p->trained_bytes, line, at);
  if (strcmp(key, "on_device") == 0) p->device_bytes = take_number(line, &at);
  if (strcmp(key, "gradients") == 0) p->gradient_bytes = take_number(line, &at);
  if (strcmp(key, "dtype") == 0) read_dtype(p, line, at);
  if (strcmp(key, "advice") == 0) read_advice(p, line, at);
  if (strcmp(key, "head") == 0) p->head = take_number(line, &at);
  if (strcmp(key, "optimizer") == 0) read_optimizer(p, line, at);
  if (strcmp(key, "input") == 0) read_input(p, line, at);
  if (strcmp(key, "passed") == 0) {
    read_pair(&a, &b, line, at);
    p->passed = count_of(a);
    p->modules = count_of(b);
    p->passed_known = p->modules > 0;
  }
  if (strcmp(key, "modules") == 0) p->modules = count_of(take_number(line, &at));
  if (strcmp(key, "batch") == 0) {
    p->batch = take_number(line, &at);
    p->batch_named = scan_starts(scan_from(line, at), "named");
  }
}

void program_read(program_facts *p, const char *text, size_t count) {
  scan_text rest = {text, text + count}, line;
  *p = (program_facts){0};
  if (!scan_next_line(&rest, &line) || !scan_starts(line, "program ")) return;
  if (scan_number(line, line.at + strlen("program ")) != VERSION) return;
  p->known = true;
  while (scan_next_line(&rest, &line)) read_line(p, line);
}

const program_advice *program_advice_of(const program_facts *p, uint32_t kinds) {
  for (uint32_t i = 0; i < p->advice_count; i++)
    if ((p->advice[i].kind & kinds) != 0) return &p->advice[i];
  return NULL;
}

bool program_trains(const program_facts *p) {
  if (!p->known) return false;
  return p->optimizer[0] != '\0' || p->gradient_bytes > 0 || p->step == PROGRAM_BACKWARD ||
         p->step == PROGRAM_OPTIMIZER;
}

bool program_infers(const program_facts *p) {
  if (!p->known || program_trains(p)) return false;
  return (p->grad_known && !p->grad) || (p->training_known && !p->training);
}

bool program_needs_no_graph(const program_facts *p) {
  return p->known && !program_trains(p) && p->grad_known && p->grad && p->training_known &&
         !p->training;
}

bool program_is_narrow(const program_facts *p) {
  return p->known && p->parameter_bytes > 0 && p->narrow_bytes >= p->parameter_bytes / 2;
}

const char *program_samples(const program_facts *p) {
  const program_input *in = &p->inputs[0];
  if (p->input_count == 0) return "samples";
  bool whole = strncmp(in->dtype, "int", 3) == 0;
  if (whole && in->rank == 2) return "sequences";
  return in->rank == 4 ? "images" : in->rank == 5 ? "clips" : "samples";
}
