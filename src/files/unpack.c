/* Unpack: see unpack.h. */
#include "files/unpack.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "files/lzma.h"

enum { PACKED_BYTES = 64 << 10 };

struct unpack {
  const char *name;
  unpack_read read;
  void *user; /* of `read`, in this call */
  ZSTD_DCtx *zstd;
  const lzma *xz; /* NULL: it is zstd */
  lzma_stream stream;
  uint8_t packed[PACKED_BYTES];
  size_t at, have; /* of packed: next byte, bytes read */
  bool read_all;
  bool between; /* zstd: after a frame, where the stream may end */
  bool ended;
  uint64_t packed_bytes; /* read in all */
};

const char *unpack_knows(const uint8_t *start, size_t count) {
  static const uint8_t xz[] = {0xfd, '7', 'z', 'X', 'Z', 0};
  static const uint8_t zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
  if (count >= sizeof xz && memcmp(start, xz, sizeof xz) == 0) return "xz";
  if (count >= sizeof zstd && memcmp(start, zstd, sizeof zstd) == 0) return "zstd";
  /* A skippable frame, which pzstd writes first. */
  if (count >= 4 && (start[0] & 0xf0) == 0x50 && memcmp(start + 1, "\x2a\x4d\x18", 3) == 0)
    return "zstd";
  return NULL;
}

static stow_status begin_xz(unpack *u) {
  STOW_TRY(lzma_load(&u->xz));
  int code = u->xz->stream_decoder(&u->stream, UNPACK_XZ_MEMORY, LZMA_CONCATENATED);
  if (code == LZMA_OK) return STOW_OK;
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: liblzma cannot start (error %d)", u->name, code);
}

stow_status unpack_open(unpack **made, const char *name, const uint8_t *start, size_t count,
                        unpack_read read) {
  unpack *u = calloc(1, sizeof *u);
  *made = NULL;
  if (u == NULL || count > sizeof u->packed) {
    free(u);
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory to decompress it", name);
  }
  u->name = name;
  u->read = read;
  memcpy(u->packed, start, count);
  u->have = u->packed_bytes = count;
  u->between = true;
  stow_status status = STOW_OK;
  if (strcmp(unpack_knows(start, count), "xz") == 0) {
    status = begin_xz(u);
  } else {
    u->zstd = ZSTD_createDCtx();
    if (u->zstd == NULL)
      status = stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory to decompress it", name);
  }
  if (status != STOW_OK) {
    unpack_close(u);
    return status;
  }
  *made = u;
  return STOW_OK;
}

void unpack_close(unpack *u) {
  if (u == NULL) return;
  if (u->xz != NULL && u->xz->end != NULL) u->xz->end(&u->stream);
  ZSTD_freeDCtx(u->zstd);
  free(u);
}

static stow_status fill(unpack *u) {
  if (u->at < u->have || u->read_all) return STOW_OK;
  u->at = u->have = 0;
  STOW_TRY(u->read(u->user, u->packed, sizeof u->packed, &u->have));
  u->packed_bytes += u->have;
  u->read_all = u->have == 0;
  return STOW_OK;
}

static stow_status corrupt(const unpack *u, const char *why) {
  return stow_fail(STOW_ERR_FORMAT,
                   "%s: the %s stream is corrupt near stored byte %llu: %s; copy the file again",
                   u->name, u->xz != NULL ? "xz" : "zstd",
                   (unsigned long long)(u->packed_bytes - (u->have - u->at)), why);
}

static stow_status truncated(const unpack *u) {
  return stow_fail(STOW_ERR_FORMAT,
                   "%s: the %s stream is truncated after %llu stored bytes; copy the file again",
                   u->name, u->xz != NULL ? "xz" : "zstd", (unsigned long long)u->packed_bytes);
}

static stow_status some_zstd(unpack *u, uint8_t *to, size_t room, size_t *got) {
  ZSTD_outBuffer out = {to, room, 0};
  while (out.pos == 0) {
    STOW_TRY(fill(u));
    if (u->have == u->at && u->read_all) {
      if (!u->between) return truncated(u);
      u->ended = true;
      break;
    }
    ZSTD_inBuffer in = {u->packed, u->have, u->at};
    size_t left = ZSTD_decompressStream(u->zstd, &out, &in);
    u->at = in.pos;
    if (ZSTD_isError(left)) return corrupt(u, ZSTD_getErrorName(left));
    u->between = left == 0;
  }
  *got = out.pos;
  return STOW_OK;
}

static const char *xz_why(int code) {
  if (code == LZMA_MEM) return "no host memory";
  if (code == LZMA_MEM_LIMIT) return "it needs more than 256 MiB to decompress (use unxz)";
  return "bad data";
}

static stow_status some_xz(unpack *u, uint8_t *to, size_t room, size_t *got) {
  lzma_stream *s = &u->stream;
  s->next_out = to;
  s->avail_out = room;
  while (s->avail_out == room) {
    STOW_TRY(fill(u));
    s->next_in = u->packed + u->at;
    s->avail_in = u->have - u->at;
    int code = u->xz->code(s, u->read_all ? LZMA_FINISH : LZMA_RUN);
    u->at = u->have - s->avail_in;
    if (code == LZMA_STREAM_END) {
      u->ended = true;
      break;
    }
    if (code == LZMA_BUF && u->read_all) return truncated(u);
    if (code != LZMA_OK && code != LZMA_BUF) return corrupt(u, xz_why(code));
  }
  *got = room - s->avail_out;
  return STOW_OK;
}

stow_status unpack_some(unpack *u, void *user, uint8_t *to, size_t room, size_t *got) {
  *got = 0;
  u->user = user;
  if (u->ended) return STOW_OK;
  return u->xz != NULL ? some_xz(u, to, room, got) : some_zstd(u, to, room, got);
}
