/* Digest: SHA-256 and base64, for the page's content policy and payload. */
#ifndef REPORT_DIGEST_H
#define REPORT_DIGEST_H

#include "base/buffer.h"

#define DIGEST_BYTES 32

/* Computes SHA-256 (FIPS 180-4). */
void digest_sha256(uint8_t digest[DIGEST_BYTES], const void *bytes, size_t count);
/* Encodes base64 (RFC 4648), padded, without line breaks. */
stow_status digest_base64(buffer *out, const void *bytes, size_t count);

#endif
