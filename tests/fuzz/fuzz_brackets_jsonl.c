/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: Brackets as JSON lines. */
#include "data/data_impl.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    hdo_tokens t;
    const int positions = 12;
    hdo_status st = hdo__brackets_parse(&t, (const char *)data, size, positions, "fuzz", &e);
    require_sentence(st, &e);
    for (int64_t i = 0; i < t.count; i++) {
        require(t.label[i] <= 1 && t.token[i * positions] == HDO_TOK_START, "label or start");
        int stops = 0;
        for (int p = 0; p < positions; p++) {
            require(t.token[i * positions + p] < HDO_TOK_COUNT, "a token that is none");
            stops += t.token[i * positions + p] == HDO_TOK_STOP;
        }
        require(stops == 1, "not exactly one stop");
    }
    hdo__tokens_clear(&t);
    return 0;
}
