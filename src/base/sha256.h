/* SPDX-License-Identifier: Apache-2.0 — SHA-256 (FIPS 180-4), for data checksums and for the fingerprint of a run. */
#ifndef HDO_BASE_SHA256_H
#define HDO_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct hdo_sha256 {
    uint32_t h[8];
    uint64_t bytes;
    unsigned char block[64];
} hdo_sha256;

void hdo__sha256_init(hdo_sha256 *c);
void hdo__sha256_update(hdo_sha256 *c, const void *data, size_t len);
void hdo__sha256_final(hdo_sha256 *c, unsigned char out[32]);
void hdo__sha256_hex(const unsigned char digest[32], char hex[65]);
void hdo__sha256_bytes(const void *p, size_t len, char hex[65]);
hdo_status hdo__sha256_file(const char *path, char hex[65], hdo_error *e);

#endif
