/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: a range of seeds, as --seeds and seeds.txt have it.
 *
 * What is taken is a range that a pool can hold, and means the same when it is written again.
 */
#include "../../cli/pool.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = text_of(data, size), again[64];
    int64_t first = -1, last = -1, a = -1, b = -1;
    if (cli_seed_range(text, &first, &last)) {
        require(first >= 0 && last >= first && last - first < 100000, "no range");
        snprintf(again, sizeof again, "%lld-%lld", (long long)first, (long long)last);
        require(cli_seed_range(again, &a, &b) && a == first && b == last, "another range when it is written again");
    }
    free(text);
    return 0;
}
