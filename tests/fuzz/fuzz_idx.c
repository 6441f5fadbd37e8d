/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: IDX files, raw or gzip, and pairs of images and labels.
 *
 * Any bytes may be refused, but only with a sentence; what is accepted must be consistent. Build: clang
 * -fsanitize=fuzzer,address,undefined with src/data, src/config, src/base, then -ljansson -lpng -lz -lyaml -lm.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Replaced by the library's own when that is linked in. */
__attribute__((weak)) const char *const *hdo_names(const char *kind) {
    (void)kind;
    return NULL;
}

static void require(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* Every number finite, every label a class. */
static void check_rows(const hdo_table *r) {
    require(r->count > 0 && r->n_in > 0 && r->classes > 0, "accepted, but empty");
    require((r->bytes != NULL) != (r->reals != NULL), "accepted, but neither bytes nor reals");
    require(r->n_in == r->shape[0] * r->shape[1] * r->shape[2], "shape and n_in differ");
    for (int64_t i = 0; i < r->count; i++) require(r->label[i] >= 0 && r->label[i] < r->classes, "label out of range");
    double sum = 0;
    for (int64_t i = 0; i < r->count * r->n_in; i++) sum += r->bytes != NULL ? r->bytes[i] : (double)r->reals[i];
    require(sum == sum, "a number that is none");
}

/* First byte: where to cut the rest into images and labels. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    if (size < 1) return 0;
    uint8_t *copy = malloc(size);
    if (copy == NULL) return 0;
    memcpy(copy, data, size);
    hdo_blob b = {.p = copy, .len = size};
    hdo_idx x;
    if (hdo__blob_gunzip(&b, 1 << 20, "fuzz", &e) == HDO_OK) (void)hdo__idx_parse(&x, b.p, b.len, "fuzz", &e);
    hdo__blob_close(&b);
    const size_t cut = 1 + (size_t)data[0] % size;
    hdo_table r;
    hdo_status st = hdo__idx_parse_pair(&r, data + 1, cut - 1, data + cut, size - cut, "images", "labels", &e);
    require(st == HDO_OK || (e.code == st && e.msg[0] != 0), "failed without a sentence");
    if (st == HDO_OK) check_rows(&r);
    hdo__table_clear(&r);
    return 0;
}
