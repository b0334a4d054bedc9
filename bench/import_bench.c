/* Import bench: reading PyTorch snapshots, compared with Python's pickle.load on the same file.
 *
 *   import_bench [MEGABYTES [PEER_MEGABYTES]]      default 1000 and 100
 *
 * The files are made here, in the shape Python's pickler gives our own recordings: protocol 4,
 * every dict, list and string memoised, stacks of about twenty frames as dicts of their own
 * ("stacks"), or none ("plain"). Each reading runs in a separate process, to measure its own peak
 * memory. The peer gets a smaller file: pickle.load needs ten times the file and more. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "recordings/recording_file.h"

/* ---- making a snapshot ---- */

enum { FRAMES = 71, STACKS = 35, BATCH = 1000 };

typedef struct maker {
  FILE *file;
  buffer b;
  uint64_t written, memo_count;
  uint32_t memo_of[64]; /* words */
  uint32_t word_count;
  const char *words[64];
  uint32_t frame_names[FRAMES], frame_files[FRAMES];
} maker;

static void put(maker *m, const void *bytes, size_t count) {
  buffer_append(&m->b, bytes, count);
  m->written += count;
  if (m->b.length < 1 << 20) return;
  if (fwrite(m->b.data, 1, m->b.length, m->file) != m->b.length) abort();
  buffer_clear(&m->b);
}

static void put_number(maker *m, uint64_t value) {
  uint8_t op[10] = {'K', (uint8_t)value};
  if (value < 256) {
    put(m, op, 2);
  } else if (value < 65536) {
    op[0] = 'M';
    op[2] = (uint8_t)(value >> 8);
    put(m, op, 3);
  } else {
    uint8_t count = 0;
    op[0] = 0x8a;
    for (; value > 0 || (op[1 + count] & 0x80); value >>= 8) op[2 + count++] = (uint8_t)value;
    op[1] = count;
    put(m, op, 2u + count);
  }
}

static uint32_t memoize(maker *m) {
  put(m, "\x94", 1);
  return (uint32_t)m->memo_count++;
}

static uint32_t put_text(maker *m, const char *text) {
  uint8_t op[2] = {0x8c, (uint8_t)strlen(text)};
  put(m, op, 2);
  put(m, text, strlen(text));
  return memoize(m);
}

static void put_get(maker *m, uint32_t memo) {
  uint8_t op[5] = {memo < 256 ? 'h' : 'j', (uint8_t)memo, (uint8_t)(memo >> 8),
                   (uint8_t)(memo >> 16), (uint8_t)(memo >> 24)};
  put(m, op, memo < 256 ? 2 : 5);
}

static void put_word(maker *m, const char *text) {
  for (uint32_t i = 0; i < m->word_count; i++) {
    if (strcmp(m->words[i], text) == 0) {
      put_get(m, m->memo_of[i]);
      return;
    }
  }
  m->words[m->word_count] = text;
  m->memo_of[m->word_count++] = put_text(m, text);
}

static void open_dict(maker *m) {
  put(m, "}", 1);
  memoize(m);
  put(m, "(", 1);
}

static void put_frame(maker *m, uint32_t number) {
  char text[64];
  open_dict(m);
  put_word(m, "name");
  if (m->frame_names[number] == 0) {
    snprintf(text, sizeof text, "function_%" PRIu32, number);
    m->frame_names[number] = put_text(m, text);
  } else {
    put_get(m, m->frame_names[number]);
  }
  put_word(m, "filename");
  if (m->frame_files[number] == 0) {
    snprintf(text, sizeof text, "site-packages/torch/nn/modules/file_%" PRIu32 ".py", number);
    m->frame_files[number] = put_text(m, text);
  } else {
    put_get(m, m->frame_files[number]);
  }
  put_word(m, "line");
  put_number(m, 300 + 17 * number);
  put(m, "u", 1);
}

static void put_event(maker *m, uint64_t number, bool stacks) {
  static const char *const actions[] = {"alloc", "free_requested", "free_completed"};
  uint64_t mixed = number / 3 * UINT64_C(2654435761);
  open_dict(m);
  put_word(m, "action"), put_word(m, actions[number % 3]);
  put_word(m, "addr"), put_number(m, UINT64_C(0x7f0000000000) + (mixed % 65536) * 512);
  put_word(m, "size"), put_number(m, mixed % 4096 * 512 + 512);
  put_word(m, "stream"), put_number(m, 0);
  put_word(m, "time_us"), put_number(m, UINT64_C(1794705809960121) + number * 31);
  put_word(m, "compile_context"), put_word(m, "N/A");
  put_word(m, "user_metadata"), put_word(m, "");
  if (stacks) {
    put_word(m, "frames");
    put(m, "]", 1);
    memoize(m);
    put(m, "(", 1);
    uint32_t which = (uint32_t)(mixed % STACKS);
    for (uint32_t i = 0; i < 16 + which % 9; i++) put_frame(m, (which + i * 3) % FRAMES);
    put(m, "e", 1);
  }
  put(m, "u", 1);
}

/* Writes a snapshot of about `bytes`. Returns its size. */
static uint64_t make(const char *path, uint64_t bytes, bool stacks) {
  maker m = {.file = fopen(path, "wb"), .b = BUFFER_INIT};
  if (m.file == NULL) {
    perror(path);
    exit(1);
  }
  put(&m, "\x80\x04", 2);
  open_dict(&m);
  put_text(&m, "segments");
  put(&m, "]", 1), memoize(&m);
  put_text(&m, "device_traces");
  put(&m, "]", 1), memoize(&m);
  put(&m, "]", 1), memoize(&m);
  for (uint64_t i = 0; m.written < bytes || i % BATCH != 0; i++) {
    if (i % BATCH == 0) put(&m, "(", 1);
    put_event(&m, i, stacks);
    if (i % BATCH == BATCH - 1) put(&m, "e", 1);
  }
  put(&m, "au.", 3);
  if (fwrite(m.b.data, 1, m.b.length, m.file) != m.b.length || fclose(m.file) != 0) abort();
  buffer_free(&m.b);
  return m.written;
}

/* ---- reading it ---- */

typedef struct result {
  double seconds, cpu_seconds;
  uint64_t peak_bytes, recording_bytes, events;
} result;

static result import_here(const char *path) {
  recording r;
  recording_init(&r, 0);
  uint64_t start = clock_ns();
  if (recording_read(&r, path, KIND_AUTO, NULL) != STOW_OK) {
    fprintf(stderr, "%s\n", stow_status_message());
    exit(1);
  }
  result out = {.seconds = (double)(clock_ns() - start) / 1e9, .events = r.event_count};
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  out.peak_bytes = (uint64_t)usage.ru_maxrss << 10;
  out.cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                    (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
  out.recording_bytes = r.event_count * sizeof *r.events + r.frame_count * sizeof *r.frames +
                        r.stack_frame_count * sizeof *r.stack_frames + r.names.length;
  recording_free(&r);
  return out;
}

/* Runs `what` in a child, which writes its result to a pipe. */
static bool in_child(result *out, const char *path, bool python) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    if (!python) {
      result mine = import_here(path);
      _exit(write(ends[1], &mine, sizeof mine) == sizeof mine ? 0 : 1);
    }
    dup2(ends[1], STDOUT_FILENO);
    execlp("python3", "python3", "-c",
           "import pickle, resource, sys, time\n"
           "f = open(sys.argv[1], 'rb')\n"
           "t = time.perf_counter(); d = pickle.load(f); t = time.perf_counter() - t\n"
           "print(t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,"
           " sum(map(len, d['device_traces'])), flush=True)\n"
           "import os; os._exit(0)\n",
           path, (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  bool good;
  *out = (result){0};
  if (python) {
    FILE *lines = fdopen(ends[0], "r");
    /* NOLINTNEXTLINE(cert-err34-c): our own numbers */
    good = lines != NULL && fscanf(lines, "%lf %" SCNu64 " %" SCNu64, &out->seconds,
                                   &out->peak_bytes, &out->events) == 3;
    if (lines != NULL) fclose(lines);
  } else {
    good = read(ends[0], out, sizeof *out) == sizeof *out;
    close(ends[0]);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return good && status == 0;
}

/* Keeps the fastest of several runs: other load only adds time. */
static bool best_of(int turns, result *out, const char *path, bool python) {
  if (!in_child(out, path, python)) return false;
  for (result again; --turns > 0;) {
    if (!in_child(&again, path, python)) return false;
    if (again.seconds < out->seconds) *out = again;
  }
  return true;
}

static void bench(const char *folder, const char *name, bool stacks, uint64_t bytes,
                  uint64_t peer_bytes) {
  char path[4096];
  result ours, small, peer;
  snprintf(path, sizeof path, "%s/%s.pickle", folder, name);
  uint64_t size = make(path, bytes, stacks);
  if (in_child(&ours, path, false)) {
    printf("case=import_%s size=%.0f_MB events=%" PRIu64
           " ours=%.2f unit=s cpu=%.2f rate=%.0f_MB/s\n",
           name, (double)size / 1e6, ours.events, ours.seconds, ours.cpu_seconds,
           (double)size / 1e6 / ours.seconds);
    uint64_t beyond =
        ours.peak_bytes > ours.recording_bytes ? ours.peak_bytes - ours.recording_bytes : 0;
    printf("case=import_%s_memory ours=%.0f recording=%.0f beyond_it=%.0f unit=MB\n", name,
           (double)ours.peak_bytes / 1e6, (double)ours.recording_bytes / 1e6, (double)beyond / 1e6);
  }
  size = make(path, peer_bytes, stacks);
  bool have_small = best_of(3, &small, path, false);
  if (have_small && best_of(3, &peer, path, true) && peer.events == small.events) {
    printf("case=import_%s_peer size=%.0f_MB ours=%.3f peer=pickle.load:%.3f ratio=%.1f unit=s\n",
           name, (double)size / 1e6, small.seconds, peer.seconds, peer.seconds / small.seconds);
    printf("case=import_%s_peer_memory size=%.0f_MB ours=%.0f peer=pickle.load:%.0f ratio=%.1f "
           "unit=MB\n",
           name, (double)size / 1e6, (double)small.peak_bytes / 1e6, (double)peer.peak_bytes / 1e6,
           (double)peer.peak_bytes / (double)small.peak_bytes);
  } else {
    printf("case=import_%s_peer skipped: no python3 that reads it here\n", name);
  }
  unlink(path);
}

int main(int argc, char **argv) {
  uint64_t megabytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
  uint64_t peer = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
  const char *base = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
  char folder[4096];
  snprintf(folder, sizeof folder, "%s/import_bench.XXXXXX", base);
  if (mkdtemp(folder) == NULL) {
    perror(folder);
    return 1;
  }
  bench(folder, "stacks", true, megabytes * 1000000, peer * 1000000);
  bench(folder, "plain", false, megabytes * 1000000, peer * 1000000);
  rmdir(folder);
  return 0;
}
