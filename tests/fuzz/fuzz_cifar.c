/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: CIFAR-10 binary batches and JSON lists of labels. */
#include "data/data_impl.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    int32_t label[64];
    uint8_t small[16];
    if (size / HDO_CIFAR_ROW < 64) {
        hdo_status st = hdo__cifar_check(data, size, label, "fuzz", &e);
        require_sentence(st, &e);
        for (size_t i = 0; st == HDO_OK && i < size / HDO_CIFAR_ROW; i++)
            require(label[i] >= 0 && label[i] < 10, "label");
    }
    for (size_t n = 1; n <= sizeof small; n++) {
        if (hdo__cifar_labels_parse((const char *)data, size, small, n, "fuzz", &e) != HDO_OK) continue;
        for (size_t i = 0; i < n; i++) require(small[i] < 10, "label out of range");
    }
    return 0;
}
