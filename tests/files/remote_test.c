/* Remote sources, with a scripted server on the loopback. python/tests/test_remote.py tests the
 * faults as a Python program sees them; this tests what sanitizers should see: buffers, retries,
 * closing in the middle. */
#include "files/remote.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/checked.h"
#include "harness.h"

enum { FILE_BYTES = 3 << 20, SCRIPT_MAX = 64 };

typedef enum fault {
  GOOD,
  DROP,
  CUT_HEADERS,     /* closes within the headers */
  ENDLESS_HEADERS, /* header lines until the client closes */
  BUSY,
  REFUSE,
  WHOLE,
  OTHER_MARK,
  OTHER_LENGTH,
  TOO_MUCH
} fault;

typedef struct server {
  int listener;
  char url[64];
  uint8_t *bytes;
  fault script[SCRIPT_MAX]; /* one per request; then no faults */
  int requests;
} server;

/* Returns false if the client closed. */
static bool send_all(int to, const void *bytes, size_t count) {
  for (const char *at = bytes; count > 0;) {
    ssize_t sent = send(to, at, count, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    count -= (size_t)sent;
  }
  return true;
}

static void answer(server *s, int to, uint64_t first, uint64_t last) {
  fault f = s->requests < SCRIPT_MAX ? s->script[s->requests] : GOOD;
  char head[512];
  s->requests++;
  if (last >= FILE_BYTES) last = FILE_BYTES - 1;
  uint64_t count = last + 1 - first;
  if (f == BUSY || f == REFUSE) {
    send_all(to, head,
             (size_t)snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n",
                              f == BUSY ? "503 Busy" : "403 Forbidden"));
    return;
  }
  if (f == CUT_HEADERS || f == ENDLESS_HEADERS) {
    static const char BEGIN[] = "HTTP/1.1 206 Partial\r\n";
    bool open = send_all(to, BEGIN, strlen(BEGIN));
    memset(head, 'a', sizeof head);
    memcpy(head, "X: ", 3);
    memcpy(head + sizeof head - 2, "\r\n", 2);
    while (f == ENDLESS_HEADERS && open) open = send_all(to, head, sizeof head);
    return;
  }
  if (f == WHOLE) {
    send_all(to, head,
             (size_t)snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n",
                              FILE_BYTES));
    send_all(to, s->bytes, FILE_BYTES);
    return;
  }
  uint64_t declared = f == TOO_MUCH ? count + 7 : count;
  int length = snprintf(head, sizeof head,
                        "HTTP/1.1 206 Partial\r\nContent-Range: bytes %llu-%llu/%d\r\n"
                        "ETag: \"%s\"\r\nContent-Length: %llu\r\n\r\n",
                        (unsigned long long)first, (unsigned long long)last,
                        f == OTHER_LENGTH ? 7 : FILE_BYTES, f == OTHER_MARK ? "two" : "one",
                        (unsigned long long)declared);
  send_all(to, head, (size_t)length);
  send_all(to, s->bytes + first, f == DROP ? (size_t)(count / 3) : (size_t)count);
  if (f == TOO_MUCH) send_all(to, "1234567", 7);
}

/* Serves one connection at a time with one request each, then closes it. */
static void *serve(void *argument) {
  server *s = argument;
  for (;;) {
    int to = accept(s->listener, NULL, NULL);
    if (to < 0) return NULL;
    char request[4096] = "";
    size_t have = 0;
    while (have < sizeof request - 1 && strstr(request, "\r\n\r\n") == NULL) {
      ssize_t got = recv(to, request + have, sizeof request - 1 - have, 0);
      if (got <= 0) break;
      have += (size_t)got;
      request[have] = '\0';
    }
    unsigned long long first, last;
    const char *range = strstr(request, "Range: bytes=");
    /* NOLINTNEXTLINE(cert-err34-c): our own request */
    if (range != NULL && sscanf(range, "Range: bytes=%llu-%llu", &first, &last) == 2)
      answer(s, to, first, last);
    shutdown(to, SHUT_RDWR);
    close(to);
  }
}

static server *start(void) {
  static server s;
  s.bytes = malloc(FILE_BYTES);
  uint64_t random = 1;
  for (int i = 0; i < FILE_BYTES; i++) s.bytes[i] = (uint8_t)(harness_random(&random) >> 7);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof at;
  s.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(s.listener >= 0 && bind(s.listener, (struct sockaddr *)&at, sizeof at) == 0);
  CHECK(listen(s.listener, 16) == 0);
  CHECK(getsockname(s.listener, (struct sockaddr *)&at, &length) == 0);
  snprintf(s.url, sizeof s.url, "http://127.0.0.1:%d/x", ntohs(at.sin_port));
  unsetenv("http_proxy");
  unsetenv("all_proxy");
  setenv("STOWAGE_HTTP_TIMEOUT", "5", 1);
  pthread_t thread; /* ends with the test process */
  CHECK(pthread_create(&thread, NULL, serve, &s) == 0 && pthread_detach(thread) == 0);
  source probe;
  if (source_open(&probe, s.url) == STOW_ERR_UNSUPPORTED) SKIP("%s", stow_status_message());
  source_close(&probe);
  s.requests = 0;
  return &s;
}

/* Compares reads of all sizes and offsets with the bytes. */
static void read_everywhere(server *s, source *from, int reads) {
  static uint8_t got[FILE_BYTES];
  uint64_t random = 7;
  for (int i = 0; i < reads; i++) {
    uint64_t size = (uint64_t)1 << harness_random(&random) % 22;
    uint64_t count = 1 + harness_random(&random) % size;
    uint64_t offset = harness_random(&random) % (FILE_BYTES - count + 1);
    CHECK_OK(source_read(from, offset, got, (size_t)count));
    CHECK(memcmp(got, s->bytes + offset, (size_t)count) == 0);
  }
  for (uint64_t offset = 0; offset < FILE_BYTES; offset += 100000) { /* and front to back */
    size_t count = FILE_BYTES - offset < 100000 ? (size_t)(FILE_BYTES - offset) : 100000;
    CHECK_OK(source_read(from, offset, got, count));
    CHECK(memcmp(got, s->bytes + offset, count) == 0);
  }
}

TEST(reads_of_all_sizes_are_the_files_bytes)
{
  server *s = start();
  source from;
  CHECK_OK(source_open(&from, s->url));
  CHECK_U64(from.bytes, FILE_BYTES);
  read_everywhere(s, &from, 60);
  CHECK_STATUS(source_read(&from, FILE_BYTES, &(char){0}, 1), STOW_ERR_FORMAT);
  source_close(&from);
}

TEST(drops_and_busy_answers_change_nothing)
{
  server *s = start();
  for (int i = 1; i < SCRIPT_MAX; i++)
    s->script[i] = i % 3 == 1 ? DROP : i % 9 == 2 ? BUSY : i % 9 == 3 ? CUT_HEADERS : GOOD;
  source from;
  CHECK_OK(source_open(&from, s->url));
  read_everywhere(s, &from, 20);
  source_close(&from);
}

TEST(permanent_failures_are_reported)
{
  server *s = start();
  static uint8_t got[1 << 20];
  static const struct {
    fault f;
    stow_status status;
    const char *words;
  } cases[] = {{REFUSE, STOW_ERR_IO, "403"},
               {WHOLE, STOW_ERR_UNSUPPORTED, "whole files only"},
               {OTHER_MARK, STOW_ERR_IO, "changed while being read"},
               {OTHER_LENGTH, STOW_ERR_IO, "and has 7 now"},
               {TOO_MUCH, STOW_ERR_IO, "more than the requested"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    source from;
    s->requests = 0;
    s->script[1] = GOOD;
    CHECK_OK(source_open(&from, s->url));
    s->script[1] = cases[i].f;
    CHECK_STATUS(source_read(&from, 1 << 20, got, sizeof got), cases[i].status);
    CHECK_MESSAGE(cases[i].words);
    CHECK_OK(source_read(&from, 1 << 20, got, sizeof got)); /* and works again */
    CHECK(memcmp(got, s->bytes + (1 << 20), sizeof got) == 0);
    source_close(&from);
  }
}

/* The first answer reports the length. One whose headers do not end is not one without a length. */
TEST(headers_that_do_not_end_are_retried)
{
  server *s = start();
  source from;
  s->script[0] = CUT_HEADERS;
  s->script[1] = ENDLESS_HEADERS;
  CHECK_OK(source_open(&from, s->url));
  CHECK_U64(from.bytes, FILE_BYTES);
  CHECK_U64((uint64_t)s->requests, 3);
  source_close(&from);
}

TEST(headers_are_checked_and_names_keep_secrets)
{
  server *s = start();
  source from;
  static const char *const broken[] = {"no colon", NULL}, *const split[] = {"A: b\r\nC: d", NULL};
  remote_set_headers(broken);
  CHECK_STATUS(source_open(&from, s->url), STOW_ERR_INVALID);
  remote_set_headers(split);
  CHECK_STATUS(source_open(&from, s->url), STOW_ERR_INVALID);
  remote_set_headers(NULL);
  char url[200];
  snprintf(url, sizeof url, "http://me:word@%s?key=hidden", s->url + 7);
  CHECK_OK(source_open(&from, url));
  CHECK_TEXT(from.name, s->url);
  source_close(&from);
}

TEST(a_cached_file_is_read_past_the_page_cache_alike)
{
  char path[300];
  snprintf(path, sizeof path, "%s/x", harness_folder());
  static uint8_t bytes[FILE_BYTES - 77], got[FILE_BYTES];
  uint64_t random = 3;
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(harness_random(&random) >> 9);
  FILE *f = fopen(path, "wb");
  CHECK(f != NULL && fwrite(bytes, 1, sizeof bytes, f) == sizeof bytes && fclose(f) == 0);
  source from;
  CHECK_OK(source_open(&from, path));
  from.drop = true;
  static _Alignas(SOURCE_DIRECT_UNIT) uint8_t bounce[1 << 20];
  source_go_direct(&from, bounce, sizeof bounce);
  if (from.bounce == NULL) SKIP("this file system reads through its cache only");
  for (int i = 0; i < 300; i++) {
    uint64_t count = 1 + harness_random(&random) % (1 << (i % 21));
    uint64_t offset = harness_random(&random) % (sizeof bytes - count + 1);
    if (i % 10 == 0) offset = sizeof bytes - count; /* up to the end, which is not a whole block */
    CHECK_OK(source_read(&from, offset, got, (size_t)count));
    CHECK(memcmp(got, bytes + offset, (size_t)count) == 0);
  }
  CHECK_OK(source_read(&from, 0, got, sizeof bytes));
  CHECK(memcmp(got, bytes, sizeof bytes) == 0);
  /* Reads straight into the caller's memory, if it has the same page alignment as the file
   * offset. */
  static _Alignas(SOURCE_DIRECT_UNIT) uint8_t around[FILE_BYTES + 3 * SOURCE_DIRECT_UNIT];
  from.room = true;
  for (int i = 0; i < 100; i++) {
    uint64_t count = SOURCE_DIRECT_LEAST + harness_random(&random) % (1 << 20);
    uint64_t offset = harness_random(&random) % (sizeof bytes - count + 1);
    if (i % 10 == 0) offset = sizeof bytes - count;
    uint8_t *to = around + SOURCE_DIRECT_UNIT + offset % SOURCE_DIRECT_UNIT;
    memset(around, 0xa5, sizeof around);
    memset(bounce, 0, sizeof bounce);
    CHECK_OK(source_read(&from, offset, to, (size_t)count));
    CHECK(memcmp(to, bytes + offset, (size_t)count) == 0);
    CHECK(bounce[0] == 0 && memcmp(bounce, bounce + 1, sizeof bounce - 1) == 0);
    uint8_t *last = around + round_up((uint64_t)(to + count - around), SOURCE_DIRECT_UNIT);
    CHECK(around[0] == 0xa5 && memcmp(around, around + 1, SOURCE_DIRECT_UNIT - 1) == 0);
    CHECK(last[0] == 0xa5 && memcmp(last, last + 1, SOURCE_DIRECT_UNIT - 1) == 0);
  }
  from.room = false;
  CHECK(truncate(path, 1 << 20) == 0);
  CHECK_STATUS(source_read(&from, 0, got, sizeof bytes), STOW_ERR_IO);
  CHECK_MESSAGE("truncated while being read");
  source_close(&from);
}

/* Returns the file's pages in the page cache. */
static size_t cached_pages(int fd, size_t bytes) {
  size_t pages = bytes / 4096, cached = 0;
  unsigned char *there = calloc(pages, 1);
  void *at = mmap(NULL, pages * 4096, PROT_READ, MAP_SHARED, fd, 0);
  CHECK(there != NULL && at != MAP_FAILED && mincore(at, pages * 4096, there) == 0);
  for (size_t i = 0; i < pages; i++) cached += there[i] & 1;
  munmap(at, pages * 4096);
  free(there);
  return cached;
}

TEST(direct_reads_at_odd_offsets_bring_nothing_into_the_page_cache)
{
  enum { PIECE = 1 << 20, PIECES = 8 };
  static _Alignas(SOURCE_DIRECT_UNIT) uint8_t bounce[PIECE + 2 * SOURCE_DIRECT_UNIT], got[PIECE];
  char path[300];
  snprintf(path, sizeof path, "%s/odd", harness_folder());
  FILE *f = fopen(path, "wb");
  CHECK(f != NULL);
  for (int i = 0; i < PIECES; i++) CHECK(fwrite(got, 1, PIECE, f) == PIECE);
  CHECK(fwrite(got, 1, 128, f) == 128 && fflush(f) == 0 && fsync(fileno(f)) == 0);
  source from;
  CHECK_OK(source_open(&from, path));
  source_go_direct(&from, bounce, sizeof bounce);
  if (from.bounce == NULL) SKIP("this file system reads through its cache only");
  posix_fadvise(from.fd, 0, 0, POSIX_FADV_DONTNEED);
  size_t before = cached_pages(from.fd, PIECE * PIECES);
  if (before > 0) SKIP("this file system does not drop its cache");
  for (uint64_t i = 0; i < PIECES; i++) CHECK_OK(source_read(&from, 128 + i * PIECE, got, PIECE));
  CHECK(cached_pages(from.fd, PIECE * PIECES) == 0);
  source_close(&from);
  CHECK(fclose(f) == 0);
}

TEST_MAIN
