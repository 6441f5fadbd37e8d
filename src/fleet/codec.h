/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of a fleet as bytes. One header for all of them, little-endian, then a body, which may come in chunks. The
 * reader believes nothing: it takes a message whose run, version, lengths, class, epoch and sender are right, and says
 * of any other why it is dropped. It allocates nothing.
 *
 *   offset  bytes
 *        0      4  "HDOF"
 *        4      2  version of this protocol
 *        6      1  type
 *        7      1  kind: hdo_xmsg_kind of an exchange, reason of a refusal
 *        8     16  run
 *       24     16  hash of the configuration; zero: the sender has none yet
 *       40      8  sender (a member, or a node of it)
 *       48      8  addressee; 0: everybody
 *       56      4  epoch of the sender
 *       60      4  epoch of the addressee; 0: any
 *       64      8  number of the message
 *       72      8  step of the sender
 *       80      4  class of the sender; HDO_FLEET_NO_CLASS: none yet
 *       84      4  weight (float)
 *       88      8  bytes of the whole body
 *       96      8  where in the body this chunk begins
 *      104      4  bytes of this chunk
 *      108      4  zero
 *      112         the chunk
 */
#ifndef HDO_FLEET_CODEC_H
#define HDO_FLEET_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "exchange/exchange.h"

enum {
    HDO_FLEET_PROTOCOL = 1,
    HDO_FLEET_HEAD = 112, /* bytes */
    HDO_FLEET_ID = 16,
    HDO_FLEET_NAME = 32, /* of a run or a member, with its end */
    HDO_FLEET_TEXT_MAX = 1 << 16,
    HDO_FLEET_CHUNK = 256 * 1024, /* of a model: a server takes messages of at most 1 MiB unless told otherwise */
    HDO_FLEET_NODES_MAX = 256     /* of one member: a node's name is its member's with its number in the last byte */
};
#define HDO_FLEET_NO_CLASS UINT32_MAX

typedef enum hdo_fleet_type {
    HDO_FLEET_BEAT = 1,   /* I am here: to everybody */
    HDO_FLEET_HELLO,      /* I would like to join: to everybody */
    HDO_FLEET_REFUSE,     /* you cannot, because kind */
    HDO_FLEET_ASK_CONFIG, /* what is the configuration? */
    HDO_FLEET_CONFIG,     /* a text */
    HDO_FLEET_ASK_MODEL,  /* where are you? */
    HDO_FLEET_MODEL,      /* numbers */
    HDO_FLEET_EXCHANGE,   /* kind says which */
    HDO_FLEET_STOP,       /* the run is over: to everybody */
    HDO_FLEET_TYPES
} hdo_fleet_type;

typedef enum hdo_fleet_drop { /* why a message is dropped; also reasons of a refusal */
                              HDO_DROP_NONE,
                              HDO_DROP_LENGTH, /* too short, too long, lengths that do not fit, no message of a fleet at
                                                  all */
                              HDO_DROP_VERSION,
                              HDO_DROP_RUN,
                              HDO_DROP_CONFIG,
                              HDO_DROP_CLASS,
                              HDO_DROP_EPOCH,
                              HDO_DROP_SENDER, /* says it is somebody else than the bus says */
                              HDO_DROP_NOT_FINITE,
                              HDO_DROP_ROOM, /* no place to put it together */
                              HDO_DROPS
} hdo_fleet_drop;
extern const char *const hdo__fleet_drop_names[HDO_DROPS];

typedef struct hdo_fleet_msg {
    hdo_fleet_type type;
    unsigned kind;
    unsigned char run[HDO_FLEET_ID], config[HDO_FLEET_ID];
    uint64_t from, to;
    uint32_t from_epoch, to_epoch;
    uint64_t seq, step;
    uint32_t class_id;
    float weight;
    uint64_t total, offset; /* bytes of the body; where `data` belongs */
    const unsigned char *data;
    size_t len;
} hdo_fleet_msg;

typedef struct hdo_fleet_expect {
    const unsigned char *run;    /* (HDO_FLEET_ID); NULL: any, for who looks for a run */
    const unsigned char *config; /* (HDO_FLEET_ID); NULL: any */
    uint64_t self;               /* addressed to this member, any node of it, or to everybody */
    uint32_t epoch;              /* own; 0: any */
    uint64_t sender;             /* who it comes from by its subject; 0: not known */
    int classes;                 /* how many there are; 0: not known yet */
    size_t model_bytes;          /* of a model; 0: not known yet, models are dropped */
} hdo_fleet_expect;

/* Member of a node: names differ in the last byte alone. */
static inline uint64_t hdo__fleet_member(uint64_t node) {
    return node & ~(uint64_t)(HDO_FLEET_NODES_MAX - 1);
}
uint64_t hdo__fleet_id(const char *name);                                 /* of a member, by its name; never 0 */
void hdo__fleet_run_id(const char *name, unsigned char id[HDO_FLEET_ID]); /* of a run */
bool hdo__fleet_name_ok(const char *name); /* letters, digits, - and _: it becomes part of subjects */

/* The header of m, whose data are to follow it. */
void hdo__fleet_put_head(const hdo_fleet_msg *m, unsigned char head[HDO_FLEET_HEAD]);
/* HDO_DROP_NONE: *m is sound; its data point into `bytes`. Otherwise type, run, from and what else could be read is
 * there as far as it could be, for a refusal. */
hdo_fleet_drop hdo__fleet_read(const void *bytes, size_t len, const hdo_fleet_expect *x, hdo_fleet_msg *m);

/* ---- bodies ---- */

enum { HDO_LEAVING = 1, HDO_LEAVING_TARGET = 2 };

typedef struct hdo_fleet_beat {
    char name[HDO_FLEET_NAME], version[HDO_FLEET_NAME], role[HDO_FLEET_NAME];
    uint32_t nodes, place, beat_ms;
    uint32_t leaving;   /* HDO_LEAVING: no more offers please; HDO_LEAVING_TARGET: the run has reached its target */
    uint32_t evaluated; /* 1: loss is there */
    uint32_t heard;     /* members it hears */
    double loss, accuracy, steps_per_s;
    uint64_t exchanges, expired, far, missed, bytes, rss;
    uint64_t drops[HDO_DROPS];
} hdo_fleet_beat;
enum { HDO_FLEET_BEAT_BYTES = 3 * HDO_FLEET_NAME + 6 * 4 + 3 * 8 + 6 * 8 + 8 * HDO_DROPS };

void hdo__fleet_put_beat(const hdo_fleet_beat *b, unsigned char out[HDO_FLEET_BEAT_BYTES]);
bool hdo__fleet_read_beat(const unsigned char *data, size_t len, hdo_fleet_beat *b); /* false: not sound */

#endif
