/* Payload: packs the numbers of every allocation. */
#include "report/payload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "replay/thin.h"
#include "report/columns.h"
#include "report/stacks.h"

#define KIND_WITHOUT_LIFETIME 0x40

/* ---- numbers ---- */

static void put_signed(buffer *b, int64_t value) {
  columns_put(b, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

/* ---- a run being packed ---- */

typedef struct packer {
  const report *r;
  const timeline *t; /* the report's, or a thinned one */
  const payload_limits *limits;
  buffer *bytes; /* all sections */
  json *j;
  size_t began;
} packer;

static void section_begin(packer *p) {
  p->began = p->bytes->length;
}

static void section_end(packer *p, const char *name) {
  json_key(p->j, name);
  json_begin_array(p->j);
  json_u64(p->j, p->began);
  json_u64(p->j, p->bytes->length - p->began);
  json_end_array(p->j);
}

static void pack_kinds(packer *p) {
  const timeline *t = p->t;
  section_begin(p);
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    uint8_t kind = timeline_event(t, tick)->kind;
    bool paired = kind == EVENT_ALLOC || kind == EVENT_FREE;
    if (paired && t->lifetime[tick] == TIMELINE_NONE) kind |= KIND_WITHOUT_LIFETIME;
    buffer_char(p->bytes, (char)kind);
  }
  section_end(p, "kinds");
}

/* Returns 1000 if every time is in whole microseconds, as in PyTorch's traces; else 1. */
static uint64_t time_unit(const timeline *t) {
  for (uint32_t tick = 0; tick < t->tick_count; tick++)
    if (timeline_event(t, tick)->time_ns % 1000 != 0) return 1;
  return 1000;
}

static void pack_times(packer *p, uint64_t unit) {
  const timeline *t = p->t;
  section_begin(p);
  uint64_t before = 0;
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    uint64_t now = timeline_time_ns(t, tick) / unit;
    put_signed(p->bytes, (int64_t)(now - before));
    before = now;
  }
  section_end(p, "times");
}

static void pack_ends(packer *p) {
  const timeline *t = p->t;
  uint32_t seen = t->before_count;
  section_begin(p);
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    uint32_t n = t->lifetime[tick];
    if (n == TIMELINE_NONE) continue;
    if (timeline_event(t, tick)->kind == EVENT_ALLOC)
      seen++;
    else
      columns_put(p->bytes, seen - n);
  }
  section_end(p, "ages");
  section_begin(p);
  uint32_t last = 0;
  for (uint32_t tick = 0; tick < t->tick_count && t->superseded.count > 0; tick++) {
    uint64_t *n = map_get(&t->superseded, tick);
    if (n == NULL) continue;
    columns_put(p->bytes, tick - last);
    columns_put(p->bytes, *n);
    last = tick;
  }
  section_end(p, "over");
}

static void pack_extents(packer *p) {
  const timeline *t = p->t;
  section_begin(p);
  for (uint32_t i = 0; i < t->extent_count; i++) {
    const extent *e = &t->extents[i];
    columns_put(p->bytes, e->addr);
    columns_put(p->bytes, e->bytes);
    columns_put(p->bytes, e->start);
    columns_put(p->bytes, e->end == EXTENT_OPEN ? 0 : (uint64_t)e->end + 1);
    columns_put(p->bytes, e->mapped);
  }
  section_end(p, "extents");
}

static uint64_t mark_count(const timeline *t) {
  uint64_t count = 0;
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    uint8_t kind = timeline_event(t, tick)->kind;
    count += kind == EVENT_MARK_BEGIN || kind == EVENT_MARK_END;
  }
  return count;
}

/* Names of marks are numbered after those of tags and frames: see pack_texts. If there are too many
 * marks, keeps two of every N: mostly a begin and its end. */
static void pack_marks(packer *p, text_table *texts) {
  const timeline *t = p->t;
  uint64_t every = mark_count(t) / p->limits->marks_max + 1, seen = 0;
  uint32_t last = 0;
  section_begin(p);
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    const event *e = timeline_event(t, tick);
    if (e->kind != EVENT_MARK_BEGIN && e->kind != EVENT_MARK_END) continue;
    if (seen++ / 2 % every != 0) continue;
    columns_put(p->bytes, tick - last);
    columns_put(p->bytes, text_number(texts, timeline_origin(t, e)->tag_id));
    columns_put(p->bytes, e->kind == EVENT_MARK_END);
    last = tick;
  }
  section_end(p, "marks");
}

static void pack_rests(packer *p, const thinned *thin) {
  section_begin(p);
  for (uint32_t i = 0; i < thin->rest_count; i++)
    columns_put(p->bytes, thin->rests[i] - (i > 0 ? thin->rests[i - 1] : 0));
  section_end(p, "rests");
}

static void pack_stacks(packer *p, const dictionary *stacks, const stack_tree *tree) {
  section_begin(p);
  for (uint32_t i = 0; i < stacks->count; i++)
    columns_put(p->bytes, tree->leaf_of_stack[stacks->values[i]]);
  section_end(p, "stacks.node");
  section_begin(p);
  for (uint32_t i = 0; i < stacks->count; i++)
    columns_put(p->bytes, p->r->sites.of_stack[stacks->values[i]]);
  section_end(p, "stacks.site");
  section_begin(p);
  for (uint32_t n = 1; n < tree->count; n++) columns_put(p->bytes, n - tree->parents[n]);
  section_end(p, "node.up");
  section_begin(p);
  for (uint32_t n = 1; n < tree->count; n++) columns_put(p->bytes, tree->frames[n]);
  section_end(p, "node.frame");
}

/* Writes the values of a dictionary; ascending ones as differences. */
static void pack_values(packer *p, const dictionary *d, bool ascending, const char *name) {
  section_begin(p);
  for (uint32_t i = 0; i < d->count; i++)
    columns_put(p->bytes, d->values[i] - (ascending && i > 0 ? d->values[i - 1] : 0));
  section_end(p, name);
}

/* Packs an index for each lifetime; a dictionary of one entry needs none. */
static void pack_indexes(packer *p, const dictionary *d, const char *name) {
  if (d->count <= 1) return;
  section_begin(p);
  for (uint32_t i = 0; i < p->t->lifetime_count; i++) columns_put(p->bytes, d->of[i]);
  section_end(p, name);
}

static stow_status pack_lifetimes(packer *p, const columns *c, text_table *texts) {
  const dictionary *tags = &c->all[COLUMN_TAG];
  pack_values(p, &c->all[COLUMN_SIZE], false, "sizes");
  pack_values(p, &c->all[COLUMN_ADDR], true, "addrs");
  pack_values(p, &c->all[COLUMN_STREAM], false, "streams");
  section_begin(p);
  for (uint32_t i = 0; i < tags->count; i++)
    columns_put(p->bytes, text_number(texts, (uint32_t)tags->values[i]));
  section_end(p, "tags");
  pack_indexes(p, &c->all[COLUMN_STACK], "life.stack");
  pack_indexes(p, tags, "life.tag");
  pack_indexes(p, &c->all[COLUMN_STREAM], "life.stream");
  buffer lists = BUFFER_INIT;
  section_begin(p);
  stow_status status = columns_put_sizes(&lists, p->bytes, c);
  section_end(p, "life.size");
  section_begin(p);
  if (lists.length > 0) buffer_append(p->bytes, lists.data, lists.length);
  section_end(p, "stacks.sizes");
  if (status == STOW_OK) status = lists.status;
  buffer_free(&lists);
  STOW_TRY(status);
  section_begin(p);
  STOW_TRY(columns_put_addresses(p->bytes, c));
  section_end(p, "life.addr");
  return STOW_OK;
}

static stow_status pack_sections(packer *p, text_table *texts, const stack_tree *tree,
                                 const thinned *thin) {
  columns c;
  stow_status status = columns_build(&c, p->t);
  uint64_t unit = time_unit(p->t);
  if (unit < p->limits->time_unit_ns) unit = p->limits->time_unit_ns;
  json_key(p->j, "timeUnit"), json_u64(p->j, unit);
  json_key(p->j, "sections");
  json_begin_object(p->j);
  if (status == STOW_OK) {
    pack_kinds(p);
    pack_times(p, unit);
    pack_ends(p);
    status = pack_lifetimes(p, &c, texts);
  }
  if (status == STOW_OK) {
    pack_extents(p);
    pack_stacks(p, &c.all[COLUMN_STACK], tree);
    pack_marks(p, texts);
    pack_rests(p, thin);
  }
  json_end_object(p->j);
  columns_free(&c);
  return status != STOW_OK ? status : p->bytes->status;
}

/* ---- the JSON beside the sections ---- */

#define TEXT_MAX  400   /* bytes of a name: longer names are cut at the end, paths at the start */
#define ERROR_MAX 20000 /* longest error text kept */

static void put_text(json *j, const char *text, size_t most) {
  size_t length = strlen(text);
  if (length <= most) {
    json_text_n(j, text, length);
    return;
  }
  char cut[ERROR_MAX + 8];
  bool path = text[0] == '/' && most == TEXT_MAX;
  size_t from = path ? length - most : 0;
  /* Never within a character: bytes 10xxxxxx continue one. */
  while (path && (text[from] & 0xc0) == 0x80) from++;
  while (!path && most > 0 && (text[most] & 0xc0) == 0x80) most--;
  int count = path ? snprintf(cut, sizeof cut, "\u2026%s", text + from)
                   : snprintf(cut, sizeof cut, "%.*s\u2026", (int)most, text);
  json_text_n(j, cut, (size_t)count);
}

/* Packs the iterations; if there are too many, the last ones. */
static void pack_iterations(json *j, const iterations *all, text_table *texts, uint32_t most) {
  static const char *const how[] = {"none", "marks", "guessed"};
  json_key(j, "iterations");
  json_begin_object(j);
  json_key(j, "how"), json_text(j, how[all->how]);
  json_number(j, "name", text_number(texts, all->name_id));
  json_number(j, "guessBytes", all->guess_bytes);
  json_key(j, "setup"), json_bool(j, all->first_is_setup && all->count <= most);
  json_number(j, "first", all->count > most ? all->count - most : 0);
  json_key(j, "partial"), json_bool(j, all->last_is_partial);
  json_key(j, "growth"), json_i64(j, all->growth_bytes);
  json_key(j, "list");
  json_begin_array(j);
  for (uint32_t i = all->count > most ? all->count - most : 0; i < all->count; i++) {
    const iteration *it = &all->list[i];
    json_begin_array(j);
    json_u64(j, it->start), json_u64(j, it->end), json_u64(j, it->allocs);
    json_u64(j, it->peak_bytes), json_u64(j, it->end_bytes);
    json_end_array(j);
  }
  json_end_array(j);
  json_end_object(j);
}

static void pack_failures(json *j, const report *r, const stack_tree *tree) {
  json_number(j, "failureCount", r->failure_count);
  json_key(j, "failures");
  json_begin_array(j);
  for (uint32_t i = 0; i < r->failures_kept; i++) {
    const failure *f = &r->failures[i];
    json_begin_array(j);
    json_u64(j, f->tick), json_u64(j, f->asked_bytes), json_u64(j, f->device_free_bytes);
    uint32_t stack_id = timeline_event(&r->time, f->tick)->stack_id;
    json_u64(j, stack_id <= r->time.source->stack_count ? tree->leaf_of_stack[stack_id] : 0);
    json_end_array(j);
  }
  json_end_array(j);
}

static void pack_facts(json *j, const report *r, const thinned *thin, const timeline *t) {
  const recording *source = t->source;
  static const char *const sources[] = {"", "PyTorch snapshot", "Stowage trace", "RMM log",
                                        "minimalloc problem"};
  json_key(j, "file"), json_text(j, r->file);
  json_number(j, "device", t->device);
  json_key(j, "deviceName");
  put_text(j, recording_text(source, source->device_name_id), TEXT_MAX);
  json_number(j, "deviceBytes", source->device_bytes);
  json_key(j, "source"), json_text(j, sources[source->source]);
  json_key(j, "error"), put_text(j, recording_text(source, source->error_id), ERROR_MAX);
  json_number(j, "ticks", t->tick_count);
  json_number(j, "lifetimes", t->lifetime_count);
  json_number(j, "before", t->before_count);
  json_number(j, "extentCount", t->extent_count);
  json_key(j, "reservedKnown"), json_bool(j, t->reserved_known);
  json_number(j, "wallStartMs", report_wall_start_ns(r) / 1000000);
  json_number(j, "peakTick", r->peak.tick);
  json_number(j, "peakBytes", r->peak.live_bytes);
  json_number(j, "peakReservedBytes", r->peak_reserved_bytes);
  json_number(j, "peakReservedTick", r->peak_reserved_tick);
  json_key(j, "notes");
  json_begin_object(j);
  json_number(j, "unknownFrees", t->unknown_frees + source->unknown_frees);
  json_number(j, "doubledAllocs", t->doubled_allocs);
  json_number(j, "badSizes", t->bad_sizes + source->bad_values);
  json_number(j, "badSegments", t->bad_extents);
  json_number(j, "skippedEvents", source->skipped_events);
  json_number(j, "together", thin->left_out);
  json_number(j, "leftOutSegments", thin->left_out_extents);
  json_end_object(j);
  json_key(j, "settings");
  json_begin_array(j);
  for (size_t i = 0; i < source->setting_count; i++) {
    json_begin_array(j);
    put_text(j, recording_text(source, source->settings[i].key_id), TEXT_MAX);
    put_text(j, recording_text(source, source->settings[i].value_id), TEXT_MAX);
    json_end_array(j);
  }
  json_end_array(j);
}

static void pack_policies(json *j, const report *r) {
  if (r->policy_count == 0) return;
  json_key(j, "policies");
  json_begin_array(j);
  for (uint32_t i = 0; i < r->policy_count; i++) {
    const replay_result *p = &r->policies[i];
    json_begin_object(j);
    json_key(j, "policy"), json_text(j, p->policy->name);
    json_key(j, "about"), json_text(j, p->policy->about);
    json_key(j, "finishes"), json_bool(j, p->finishes);
    json_number(j, "live", p->peak_live_bytes);
    json_number(j, "reserved", p->stats.peak_reserved_bytes);
    json_number(j, "hole", p->stats.largest_hole_bytes);
    json_number(j, "calls", p->stats.page_calls);
    json_number(j, "callsNs", p->stats.page_time_ns);
    json_number(j, "minLimit", p->min_limit_bytes);
    json_number(j, "failedBytes", p->failed_bytes);
    json_end_object(j);
  }
  json_end_array(j);
}

/* Times are milliseconds from the device's first event; samples before it are negative. */
static void pack_host(json *j, const report *r) {
  const host_curve *h = r->host;
  uint64_t start = report_wall_start_ns(r);
  if (h == NULL || h->count == 0 || start == 0) return;
  json_key(j, "host");
  json_begin_object(j);
  json_number(j, "limit", h->limit_bytes);
  json_number(j, "peak", h->peak_bytes);
  json_key(j, "points");
  json_begin_array(j);
  for (size_t i = 0; i < h->count; i++) {
    json_i64(j, (int64_t)(h->points[i].wall_ns - start) / 1000000);
    json_u64(j, h->points[i].bytes);
  }
  json_end_array(j);
  json_end_object(j);
}

static void pack_why(json *j, const report *r) {
  if (r->why == NULL || r->why->length == 0) return;
  json_key(j, "why");
  json_raw(j, r->why->data, r->why->length);
}

static void pack_profile(json *j, const report *r) {
  if (r->profile == NULL || r->profile->length == 0) return;
  json_key(j, "profile");
  json_raw(j, r->profile->data, r->profile->length);
}

/* Texts and frames come last, because only then it is known which are used. */
static void pack_texts(json *j, const report *r, text_table *texts, const stack_tree *tree) {
  const recording *source = r->time.source;
  json_key(j, "frames"); /* name, file, line of each frame in turn; frame 0 is none */
  json_begin_array(j);
  for (uint32_t i = 1; i < tree->frame_count; i++) {
    const frame *f = &source->frames[tree->frame_ids[i] - 1];
    json_u64(j, text_number(texts, f->name_id));
    json_u64(j, text_number(texts, f->file_id));
    json_u64(j, f->line);
  }
  json_end_array(j);
  json_key(j, "sites"); /* site → frame */
  json_begin_array(j);
  for (uint32_t i = 0; i < r->sites.count; i++)
    json_u64(j, tree->number_of_frame[r->sites.frames[i]]);
  json_end_array(j);
  json_key(j, "texts");
  json_begin_array(j);
  for (uint32_t i = 0; i < texts->count; i++)
    put_text(j, recording_text(source, texts->ids[i]), TEXT_MAX);
  json_end_array(j);
}

static stow_status pack_run(buffer *bytes, json *j, const report *r, const payload_limits *limits) {
  packer p = {.r = r, .t = &r->time, .limits = limits, .bytes = bytes, .j = j};
  text_table texts;
  stack_tree tree = {0};
  thinned thin = {0};
  stow_status status = text_table_init(&texts, r->time.source);
  if (status == STOW_OK &&
      (r->time.lifetime_count > limits->lives_max || r->time.extent_count > limits->extents_max)) {
    status = timeline_thin(&thin, &r->time, limits->lives_max, limits->extents_max);
    p.t = &thin.time;
  }
  if (status == STOW_OK) status = stack_tree_build(&tree, p.t);
  if (status == STOW_OK) {
    json_begin_object(j);
    pack_facts(j, r, &thin, p.t);
    pack_iterations(j, &r->iterations, &texts, limits->iterations_max);
    pack_failures(j, r, &tree);
    pack_policies(j, r);
    pack_host(j, r);
    pack_profile(j, r);
    pack_why(j, r);
    status = pack_sections(&p, &texts, &tree, &thin);
    pack_texts(j, r, &texts, &tree);
    json_end_object(j);
  }
  stack_tree_free(&tree);
  text_table_free(&texts);
  thinned_free(&thin);
  return status;
}

stow_status payload_write(buffer *out, const report *all, size_t count,
                          const payload_limits *limits) {
  buffer bytes = BUFFER_INIT, head = BUFFER_INIT;
  json j = JSON_COMPACT(&head);
  json_begin_object(&j);
  json_key(&j, "version"), json_u64(&j, 1);
  json_key(&j, "runs");
  json_begin_array(&j);
  stow_status status = STOW_OK;
  for (size_t i = 0; i < count && status == STOW_OK; i++)
    status = pack_run(&bytes, &j, &all[i], limits);
  json_end_array(&j);
  json_end_object(&j);
  if (status == STOW_OK) status = head.status;
  if (status == STOW_OK && head.length > UINT32_MAX)
    status = stow_fail(STOW_ERR_OVERFLOW, "the names of this trace need more than 4 GiB");
  if (status == STOW_OK) {
    uint8_t length[4];
    for (int i = 0; i < 4; i++) length[i] = (uint8_t)(head.length >> (8 * i));
    buffer_append(out, length, sizeof length);
    buffer_append(out, head.data, head.length);
    buffer_append(out, bytes.data, bytes.length);
    status = out->status;
  }
  buffer_free(&head);
  buffer_free(&bytes);
  return status;
}
