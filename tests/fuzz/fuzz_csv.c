/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: CSV tables.
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

/* The input as training file, and a second time as validation file of the first: its first half, then all of it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    hdo_table train, val;
    hdo_status st = hdo__csv_parse(&train, (const char *)data, size / 2, NULL, 1 << 22, "train", &e);
    require(st == HDO_OK || (e.code == st && e.msg[0] != 0), "failed without a sentence");
    if (st == HDO_OK) {
        check_rows(&train);
        st = hdo__csv_parse(&val, (const char *)data + size / 2, size - size / 2, &train, 1 << 22, "val", &e);
        if (st == HDO_OK) {
            check_rows(&val);
            require(val.classes == train.classes && val.n_in >= train.n_in, "validation does not fit training");
        }
        hdo__table_clear(&val);
    }
    hdo__table_clear(&train);
    st = hdo__csv_parse(&train, (const char *)data, size, NULL, 1 << 22, "all", &e);
    if (st == HDO_OK) check_rows(&train);
    hdo__table_clear(&train);
    static const char *const label[] = {"last", "1", "2", "70000", "a", "label"};
    for (size_t k = 0; k < sizeof label / sizeof label[0]; k++) {
        e.msg[0] = 0;
        st = hdo__csv_parse_label(&train, (const char *)data, size, NULL, label[k], "labelled", &e);
        require(st == HDO_OK || (e.code == st && e.msg[0] != 0), "failed without a sentence");
        if (st == HDO_OK) check_rows(&train);
        hdo__table_clear(&train);
    }
    return 0;
}
