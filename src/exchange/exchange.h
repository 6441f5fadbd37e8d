/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange of two nodes that do not wait for each other, over a network that loses, repeats, delays and reorders
 * messages, between members that come and go. A pure state machine: an event goes in, messages come out; no clock, no
 * I/O, no allocation after the start. A bus drives it in production, the fault simulator (tests/fault_exchange.c) in
 * tests: the same code.
 *
 *   i: offer (id; x_i, w_i)                                     -> j      id = i's name, i's epoch, a rising number
 *   j: D = x_i - x_j, remembers (id, D), x_j += w_i/(w_i+w_j) D -> answer (id; D, w_j)        or refuses
 *   i: x_i -= w_j/(w_i+w_j) D                                   -> ack (id): j forgets
 *
 * What is promised. Let S be the (weighted) sum of the models of all living members, and count an exchange whose
 * partner has applied its half while the offerer has not as applied by both. Then S changes by local steps and by what
 * dies with a member, and by nothing else but `expired` exchanges, which are counted:
 *
 *   1. No id is applied twice on either side. A repeated offer or question gets the remembered answer again.
 *   2. An offerer gives up only when its partner cannot have applied (`refuse`, `unknown`), is a new epoch (it died),
 * or was silent for forget_us.  An id answered with `refuse` or `unknown` is never applied later: the partner keeps the
 * highest number it has seen of every other member (a watermark).
 *   3. A partner forgets an answer only after an ack, when the offerer is a new epoch, or after forget_us of silence.
 *      A sign of life after a silence longer than wait_max_us makes both sides ask at once.
 *   4. At most one offer is out; a node with an offer out refuses those of others (two that offer to each other would
 *      swap). An offer that gets no answer in time becomes a doubt, which is asked about now and then and stands in
 *      nobody's way.
 *   5. Memory is what hdo__exchange_bytes said; nobody waits: between two calls a node steps as it likes.
 *
 * forget_us must be longer than a message can be under way. Messages of another epoch are ignored and counted.
 */
#ifndef HDO_EXCHANGE_EXCHANGE_H
#define HDO_EXCHANGE_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum hdo_xmsg_kind {
    HDO_XMSG_OFFER = 1, /* of the offerer: shall we? with its model */
    HDO_XMSG_ASK,       /*                 what became of it? */
    HDO_XMSG_ACK,       /*                 done, forget it */
    HDO_XMSG_ANSWER,    /* of the partner: applied, with the difference */
    HDO_XMSG_REFUSE,    /*                 not now, and never this one */
    HDO_XMSG_UNKNOWN,   /*                 never seen, and never to be applied */
    HDO_XMSG_EXPIRED,   /*                 applied, and forgotten since */
    HDO_XMSG_PROBE,     /*                 are you done with it? */
    HDO_XMSG_KINDS
} hdo_xmsg_kind;

typedef struct hdo_xmsg {
    hdo_xmsg_kind kind;
    uint64_t from, to; /* members */
    uint32_t from_epoch, to_epoch;
    uint64_t seq; /* of the offerer, from 1 */
    float weight; /* offer and answer: of the sender */
    const float *data;
    size_t len; /* numbers at data: offer and answer only */
} hdo_xmsg;

typedef enum hdo_xevent_kind {
    HDO_XEVENT_OFFER = 1, /* meet `member` (epoch as heard from it) */
    HDO_XEVENT_MESSAGE,   /* one has come */
    HDO_XEVENT_PEER,      /* a sign of life of `member`, with its epoch */
    HDO_XEVENT_TICK       /* time has passed */
} hdo_xevent_kind;

typedef struct hdo_xevent {
    hdo_xevent_kind kind;
    int64_t now_us; /* never falls */
    uint64_t member;
    uint32_t epoch;
    const hdo_xmsg *msg;
    float *x; /* (len) this node's model: read for offers, changed by offers and answers that come */
} hdo_xevent;

/* What one event makes others hear. data points at x or into the machine: good until the next event. */
enum { HDO_XOUT_MAX = 8 };
typedef struct hdo_xout {
    int n;
    hdo_xmsg msg[HDO_XOUT_MAX];
    bool moved; /* x was changed */
} hdo_xout;

typedef struct hdo_exchange_setup {
    uint64_t self;  /* name of this member, not 0 */
    uint32_t epoch; /* rises with every restart, from 1 */
    size_t len;     /* numbers of a model, buffers included */
    float weight;   /* 1: plain averages */
    double clip;    /* models farther away than this multiple of the usual distance are refused; 0: none are */
    int slots;      /* answers that are remembered at once, each of len numbers */
    int doubts;     /* offers whose fate is open */
    int peers;      /* members whose watermark is kept */
    int64_t wait_min_us, wait_max_us; /* for an answer; in between it follows the round trips seen */
    int64_t forget_us;
} hdo_exchange_setup;

typedef struct hdo_exchange_stats {
    int64_t offers, answers; /* made by this node */
    int64_t applied;         /* halves applied: own offers that were answered, answers given */
    int64_t refused;         /* own offers refused */
    int64_t unknown;         /* own offers that never arrived */
    int64_t asked, probed;   /* questions sent */
    int64_t died;            /* exchanges that ended with the partner's epoch */
    int64_t expired;         /* exchanges of which one half may be lost: silence of forget_us */
    int64_t declined;        /* offers of others refused: busy, no room */
    int64_t far;             /* offers or answers not averaged in: not finite, beyond clip */
    int64_t stale;           /* messages dropped: epoch, length, addressee, unknown kind or id */
} hdo_exchange_stats;

typedef struct hdo_exchange hdo_exchange;

/* Bytes for a machine; 0: the setup makes no sense. */
size_t hdo__exchange_bytes(const hdo_exchange_setup *s);
/* Starts in `memory` (aligned for double), which the caller owns. */
hdo_exchange *hdo__exchange_start(void *memory, const hdo_exchange_setup *s);
void hdo__exchange_step(hdo_exchange *m, const hdo_xevent *e, hdo_xout *out);
/* When a tick is due; INT64_MAX: no need. */
int64_t hdo__exchange_due_us(const hdo_exchange *m);
bool hdo__exchange_can_offer(const hdo_exchange *m); /* nothing is out, and there is room for a doubt */
const hdo_exchange_stats *hdo__exchange_stats(const hdo_exchange *m);
double hdo__exchange_wait_us(const hdo_exchange *m); /* present patience for an answer */

#endif
