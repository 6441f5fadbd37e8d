/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: the reader of a fleet's messages.
 *
 * Any bytes may be dropped; what is taken is within its bounds, fits what was expected, and means the same when it is
 * written again.
 */
#include "fleet/codec.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { MODEL = 40 };
    unsigned char run[HDO_FLEET_ID], config[HDO_FLEET_ID], head[HDO_FLEET_HEAD];
    hdo_fleet_expect want = {.run = run, .config = config, .self = 256, .epoch = 1, .classes = 2, .model_bytes = MODEL};
    hdo_fleet_msg m;
    hdo_fleet_beat b;
    memset(run, 1, sizeof run);
    memset(config, 2, sizeof config);
    bool any = size > 0 && (data[size - 1] & 1) != 0; /* as one who looks for a run reads it */
    if (any) want = (hdo_fleet_expect){.model_bytes = MODEL, .self = 256};
    hdo_fleet_drop drop = hdo__fleet_read(data, size, &want, &m);
    require(drop < HDO_DROPS, "no such reason");
    if (drop != HDO_DROP_NONE) return 0;
    require(m.data >= data && m.data + m.len == data + size, "the body is elsewhere");
    require(m.offset <= m.total && m.len <= m.total - m.offset, "a chunk beyond its body");
    require(m.total <= HDO_FLEET_TEXT_MAX, "a body nobody expects");
    if (m.type == HDO_FLEET_MODEL || m.type == HDO_FLEET_EXCHANGE)
        require(m.total == 0 || m.total == MODEL, "no model");
    if (m.type == HDO_FLEET_BEAT && hdo__fleet_read_beat(m.data, m.len, &b)) {
        unsigned char again[HDO_FLEET_BEAT_BYTES];
        hdo_fleet_beat back;
        hdo__fleet_put_beat(&b, again);
        require(hdo__fleet_read_beat(again, sizeof again, &back),
                "a sign of life that is none when it is written again");
        require(strlen(b.name) < HDO_FLEET_NAME && hdo__fleet_name_ok(b.name), "a name that is none");
    }
    hdo__fleet_put_head(&m, head);
    require(memcmp(head, data, HDO_FLEET_HEAD) == 0, "another header when it is written again");
    return 0;
}
