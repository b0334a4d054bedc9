/* Runs a fuzz target without libFuzzer: every file of the corpus, then mutations of them from a
 * fixed seed.
 *
 *   NAME_fuzz [--runs N] CORPUS…      (a folder or files; default 2000 mutations)
 *
 * Prints one ok line. A crash, a hang (deadline 120 s) or a sanitizer's report fails it. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct sample {
  uint8_t *data;
  size_t size;
} sample;

static sample *samples;
static size_t sample_count;

static void add_sample(uint8_t *data, size_t size) {
  samples = realloc(samples, (sample_count + 1) * sizeof *samples);
  if (samples == NULL) abort();
  samples[sample_count++] = (sample){data, size};
}

static void add_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) return;
  uint8_t *data = malloc(1 << 20);
  if (data == NULL) abort();
  add_sample(data, fread(data, 1, 1 << 20, file));
  fclose(file);
}

static void add_path(const char *path) {
  DIR *folder = opendir(path);
  if (folder == NULL) {
    add_file(path);
    return;
  }
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char inside[4096];
    snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
    if (entry->d_name[0] != '.') add_file(inside);
  }
  closedir(folder);
}

/* Flips, overwrites, deletes, repeats or cuts a few bytes. */
static size_t mutate(uint8_t *out, size_t room, const sample *from, uint64_t *random) {
  size_t size = from->size < room ? from->size : room;
  memcpy(out, from->data, size);
  for (uint64_t times = 1 + harness_random(random) % 6; times > 0; times--) {
    uint64_t r = harness_random(random);
    if (size == 0) break;
    size_t at = (size_t)(r >> 8) % size, count = 1 + (size_t)(r >> 40) % 16;
    if (count > size - at) count = size - at;
    switch (r % 6) {
    case 0: out[at] ^= (uint8_t)(1u << (r >> 60 & 7)); break;
    case 1: out[at] = (uint8_t)(r >> 52); break;
    case 2: memset(out + at, (r >> 50 & 1) ? 0xff : 0, count); break;
    case 3: memmove(out + at, out + at + count, size - at - count), size -= count; break;
    case 4:
      if (size + count <= room) memmove(out + at + count, out + at, size - at), size += count;
      break;
    case 5: size = at; break;
    }
  }
  return size;
}

int main(int argc, char **argv) {
  uint64_t runs = 2000, random = 1;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
      runs = strtoull(argv[++i], NULL, 10);
    else
      add_path(argv[i]);
  }
  const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
  const size_t count = sample_count; /* fixed from here on, whatever the target does */
  if (count == 0) {
    printf("FAIL %s: the corpus is empty\n", name);
    return 1;
  }
  harness_deadline(120);
  for (size_t i = 0; i < sample_count; i++)
    LLVMFuzzerTestOneInput(samples[i].data, samples[i].size);
  size_t room = (1 << 20) + 4096;
  uint8_t *work = malloc(room);
  if (work == NULL) abort();
  for (uint64_t i = 0; i < runs; i++) {
    const sample *from = &samples[harness_random(&random) % count];
    size_t size = mutate(work, room, from, &random);
    /* An exact copy, so that AddressSanitizer detects a read past the end. */
    uint8_t *exact = malloc(size + 1);
    if (exact == NULL) abort();
    memcpy(exact, work, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
  }
  printf("ok %s: %zu samples, %llu mutations\n", name, sample_count, (unsigned long long)runs);
  free(work);
  for (size_t i = 0; i < sample_count; i++) free(samples[i].data);
  free(samples);
  return 0;
}
