/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: Brackets as JSON lines.
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
    hdo_tokens t;
    const int positions = 12;
    hdo_status st = hdo__brackets_parse(&t, (const char *)data, size, positions, "fuzz", &e);
    require(st == HDO_OK || (e.code == st && e.msg[0] != 0), "failed without a sentence");
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
