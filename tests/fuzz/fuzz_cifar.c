/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: CIFAR-10 binary batches and JSON lists of labels.
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
    int32_t label[64];
    uint8_t small[16];
    if (size / HDO_CIFAR_ROW < 64) {
        hdo_status st = hdo__cifar_check(data, size, label, "fuzz", &e);
        require(st == HDO_OK || (e.code == st && e.msg[0] != 0), "failed without a sentence");
        for (size_t i = 0; st == HDO_OK && i < size / HDO_CIFAR_ROW; i++)
            require(label[i] >= 0 && label[i] < 10, "label");
    }
    for (size_t n = 1; n <= sizeof small; n++) {
        if (hdo__cifar_labels_parse((const char *)data, size, small, n, "fuzz", &e) != HDO_OK) continue;
        for (size_t i = 0; i < n; i++) require(small[i] < 10, "label out of range");
    }
    return 0;
}
