/* Page: the viewer, its content policy and the payload as one HTML file.
 *
 * Two measures prevent a hostile trace from running script. The page contains no text of the trace:
 * all names are inside the payload, deflated and base64-encoded, and the viewer shows them only as
 * text nodes. And the content policy allows only the one script and the one style whose hashes it
 * names. */
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "report/digest.h"
#include "report/payload.h"
#include "report/report.h"
#include "report/viewer.h"

/* Appends a module as part of one script: omits import lines, and "export " at the start of a line.
 * The modules share one scope, so their top-level names are all different. */
static void append_module(buffer *out, viewer_file file) {
  const char *at = file.text, *end = file.text + file.length;
  while (at < end) {
    const char *line_end = memchr(at, '\n', (size_t)(end - at));
    size_t length = line_end != NULL ? (size_t)(line_end - at) + 1 : (size_t)(end - at);
    bool import = length > 7 && memcmp(at, "import ", 7) == 0;
    size_t skip = length > 7 && memcmp(at, "export ", 7) == 0 ? 7 : 0;
    if (!import) buffer_append(out, at + skip, length - skip);
    at += length;
  }
}

static void append_hash(buffer *out, const char *directive, const buffer *content) {
  uint8_t digest[DIGEST_BYTES];
  digest_sha256(digest, content->data, content->length);
  buffer_printf(out, "%s 'sha256-", directive);
  digest_base64(out, digest, sizeof digest);
  buffer_text(out, "'; ");
}

/* Compresses in zlib's format; the browser decompresses it with DecompressionStream("deflate"). */
static stow_status deflate_payload(buffer *out, const buffer *payload) {
  uLong bound = compressBound((uLong)payload->length);
  uint8_t *to = malloc(bound);
  if (to == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to compress a report of %zu MiB",
                     payload->length >> 20);
  uLongf length = bound;
  int code = compress2(to, &length, (const Bytef *)payload->data, (uLong)payload->length, 6);
  stow_status status = code == Z_OK ? digest_base64(out, to, length)
                                    : stow_fail(STOW_ERR_HOST_MEMORY,
                                                "the report cannot be compressed (zlib %d)", code);
  free(to);
  return status;
}

/* ---- within a size ---- */

/* Browsers open that at once; a million typical events need less. */
#define PAGE_BYTES_MAX   5000000u
#define PAGE_EVENT_BYTES 5u /* allowed for each further event */
#define TURNS_MAX        6
#define HOPELESS         5   /* times the limit */
#define TICK_BYTES       0.5 /* approximate cost of an event without its allocation */

static size_t page_room(const report *all, size_t count) {
  size_t room = 0;
  for (size_t i = 0; i < count; i++) {
    size_t bytes = (size_t)all[i].time.tick_count * PAGE_EVENT_BYTES;
    room += bytes > PAGE_BYTES_MAX ? bytes : PAGE_BYTES_MAX;
  }
  return room;
}

static double sum_of_ticks(const report *all, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += all[i].time.tick_count;
  return sum;
}

static uint32_t most_lives(const report *all, size_t count) {
  uint32_t most = 0;
  for (size_t i = 0; i < count; i++)
    if (all[i].time.lifetime_count > most) most = all[i].time.lifetime_count;
  return most;
}

/* Reduces detail until the page fits: fewer separate allocations, then coarser times. */
static stow_status fit_payload(buffer *data, const report *all, size_t count, size_t room) {
  payload_limits limits = {.lives_max = UINT32_MAX,
                           .extents_max = 50000,
                           .iterations_max = 10000,
                           .marks_max = 20000,
                           .time_unit_ns = 1};
  for (int turn = 0;; turn++) {
    buffer payload = BUFFER_INIT;
    buffer_clear(data);
    stow_status status = payload_write(&payload, all, count, &limits);
    /* Do not compress a payload that is far too long. */
    bool hopeless = payload.length / HOPELESS > room && turn < TURNS_MAX;
    double length = (double)payload.length / 2;
    if (status == STOW_OK && !hopeless) {
      status = deflate_payload(data, &payload);
      length = (double)data->length;
    }
    buffer_free(&payload);
    if (status != STOW_OK || turn == TURNS_MAX || (!hopeless && data->length <= room))
      return status;
    double fixed = TICK_BYTES * sum_of_ticks(all, count);
    double share =
        length > fixed && (double)room > fixed ? ((double)room - fixed) / (length - fixed) : 0.5;
    if (limits.lives_max > most_lives(all, count)) limits.lives_max = most_lives(all, count);
    limits.lives_max = (uint32_t)(limits.lives_max * (share < 0.9 ? share : 0.9) * 0.9);
    if (turn > 0)
      limits.time_unit_ns = limits.time_unit_ns < 1000 ? 10000 : limits.time_unit_ns * 10;
  }
}

typedef struct place {
  const char *name;
  const buffer *content;
} place;

/* Writes the page with each {{name}} replaced by its content. */
static void fill_page(buffer *out, viewer_file page, const place *places, size_t count) {
  const char *at = page.text, *end = page.text + page.length;
  while (at < end) {
    const char *open = memmem(at, (size_t)(end - at), "{{", 2);
    const char *close = open != NULL ? memmem(open, (size_t)(end - open), "}}", 2) : NULL;
    if (close == NULL) break;
    buffer_append(out, at, (size_t)(open - at));
    size_t length = (size_t)(close - open) - 2;
    for (size_t i = 0; i < count; i++)
      if (strlen(places[i].name) == length && memcmp(places[i].name, open + 2, length) == 0)
        buffer_append(out, places[i].content->data, places[i].content->length);
    at = close + 2;
  }
  buffer_append(out, at, (size_t)(end - at));
}

stow_status report_html(const report *all, size_t count, buffer *out) {
  buffer data = BUFFER_INIT, content_policy = BUFFER_INIT, script = BUFFER_INIT,
         style = BUFFER_INIT;
  viewer_file file;
  /* The script begins right after the tag: the hash is over every byte between the tags. */
  for (size_t i = 0; (file = viewer_module(i)).text != NULL; i++) append_module(&script, file);
  file = viewer_style();
  buffer_append(&style, file.text, file.length);
  buffer_text(&content_policy, "default-src 'none'; ");
  append_hash(&content_policy, "script-src", &script);
  append_hash(&content_policy, "style-src", &style);
  buffer_text(&content_policy, "base-uri 'none'; form-action 'none'");
  size_t room = page_room(all, count),
         viewer = script.length + style.length + viewer_page().length + 1024;
  stow_status status = fit_payload(&data, all, count, room > viewer ? room - viewer : room);
  place places[] = {
      {"policy", &content_policy}, {"style", &style}, {"script", &script}, {"data", &data}};
  if (status == STOW_OK) {
    fill_page(out, viewer_page(), places, sizeof places / sizeof *places);
    for (size_t i = 0; i < 4 && status == STOW_OK; i++) status = places[i].content->status;
    if (status == STOW_OK) status = out->status;
  }
  buffer_free(&data);
  buffer_free(&content_policy);
  buffer_free(&script);
  buffer_free(&style);
  return status;
}
