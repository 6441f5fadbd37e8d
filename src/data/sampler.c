/* SPDX-License-Identifier: Apache-2.0
 *
 * Which samples now: batch t of a node is a window of an endless sequence of shuffled passes over its shard. Pass e is
 * the keyed bijection addressed by (seed, node, e), evaluated only where the batch looks: O(batch), no arrays, any t.
 * A batch that crosses the end of a pass takes the rest of it and the beginning of the next: nothing is dropped. In a
 * fixed order every pass is pass 0.
 */
#include <assert.h>

#include "data/data_impl.h"

static hdo_perm order_of(const hdo_shards *s, uint64_t seed, int node, int64_t epoch) {
    uint64_t pass = hdo__shards_order_fixed(s) ? 0 : (uint64_t)epoch;
    return hdo__perm(hdo__stream(seed, HDO_RNG_SAMPLER, (uint32_t)node, pass, 0), (uint64_t)hdo__shard_count(s, node));
}

void hdo__sampler_batch(const hdo_shards *s, uint64_t seed, int node, int64_t t, int batch, int64_t *idx) {
    const int64_t count = hdo__shard_count(s, node);
    assert(count >= 1 && t >= 0 && batch >= 1);
    int64_t at = t * batch, epoch = at / count, place = at % count;
    hdo_perm perm = order_of(s, seed, node, epoch);
    for (int k = 0; k < batch; k++) {
        idx[k] = hdo__shard_at(s, node, (int64_t)hdo__perm_at(&perm, (uint64_t)place));
        if (++place == count && k + 1 < batch) {
            place = 0;
            perm = order_of(s, seed, node, ++epoch);
        }
    }
}
