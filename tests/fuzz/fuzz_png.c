/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: CIFAR-10 PNG sheets.
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    const uint8_t label[4] = {1, 2, 3, 4};
    uint8_t out[4 * HDO_CIFAR_ROW];
    for (int rows = 1; rows <= 4; rows++) {
        hdo_status st = hdo__cifar_sheet_decode(data, size, label, rows, out, "fuzz", &e);
        require(st == HDO_OK || (e.code == st && e.msg[0] != 0), "failed without a sentence");
        if (st == HDO_OK) require(out[0] == 1, "the label is not in its place");
    }
    return 0;
}
