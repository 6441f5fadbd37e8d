/* SPDX-License-Identifier: Apache-2.0
 *
 * Models in chunks: those that arrive are put together, those that leave are cut up. Room is made once, at the start; a
 * message without room is dropped and counted, which the exchange can live with.
 */
#ifndef HDO_FLEET_POST_H
#define HDO_FLEET_POST_H

#include "fleet/bus.h"
#include "fleet/codec.h"

typedef struct hdo_post hdo_post;

/* rooms: models that can be put together at once, and models that can wait to leave. */
hdo_status hdo__post_create(hdo_post **out, hdo_bus *bus, size_t model_bytes, int rooms, hdo_error *e);
void hdo__post_destroy(hdo_post *p);

/* A chunk of a model has come. NULL: there is more to come (or *drop says why not); otherwise the numbers, good until
 * the next call. */
const float *hdo__post_take(hdo_post *p, const hdo_fleet_msg *m, int64_t now_us, hdo_fleet_drop *drop);

/* Sends m, its whole body at m->data (m->len = m->total bytes), under the subject; what is longer than a chunk is
 * copied and leaves with hdo__post_work. False: no room, or the bus did not take it. */
bool hdo__post_send(hdo_post *p, const char *subject, const hdo_fleet_msg *m);
/* At most `chunks` of what waits. True: there is more. */
bool hdo__post_work(hdo_post *p, int chunks);
/* Is an offer of that node and number on its way: are its chunks still coming, or (leaving) still here? A question
 * about it would be too early. */
bool hdo__post_coming(const hdo_post *p, uint64_t from, uint64_t seq, int64_t now_us);
bool hdo__post_leaving(const hdo_post *p, uint64_t from, uint64_t to, uint64_t seq);
bool hdo__post_busy(const hdo_post *p);      /* something waits to leave */
uint64_t hdo__post_bytes(const hdo_post *p); /* sent so far */

#endif
