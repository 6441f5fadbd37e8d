/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: IDX files, raw or gzip, and pairs of images and labels. */
#include "data/data_impl.h"
#include "fuzz.h"

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
    hdo_status st =
        hdo__idx_parse_pair(&r, &(hdo_file_pair){data + 1, cut - 1, data + cut, size - cut, "images", "labels"}, &e);
    require_sentence(st, &e);
    if (st == HDO_OK) check_rows(&r);
    hdo__table_clear(&r);
    return 0;
}
