/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: the layer language. The first byte says what the input is. */
#include "base/arena.h"
#include "fuzz.h"
#include "kernels/kernels.h"
#include "nn/nn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    if (size < 1) return 0;
    const hdo_kernels *k = hdo__kernels(HDO_KERNELS_REF);
    hdo_net *net = data[0] % 3 == 0   ? hdo__net_create(k, 1, 1, 7, 0, 3)
                   : data[0] % 3 == 1 ? hdo__net_create(k, 2, 9, 8, 0, 3)
                                      : hdo__net_create(k, 1, 1, 6, 5, 2);
    if (net == NULL) return 0;
    char *text = text_of(data + 1, size - 1);
    hdo_net_words words = {.classes = data[0] % 3 == 2 ? 2 : 3, .dropout = 0.1};
    hdo_status st = hdo__net_parse(net, text, &words, &e);
    require_sentence(st, &e);
    if (st == HDO_OK) {
        hdo__net_plan(net);
        size_t d = 0;
        for (int i = 0; i < net->params.n; i++) d += hdo__param(net, i)->len;
        require(d == net->params.total, "tensors do not add up");
    }
    free(text);
    hdo__free(net);
    return 0;
}
