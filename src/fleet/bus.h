/* SPDX-License-Identifier: Apache-2.0
 *
 * What carries the messages of a fleet: bytes under subjects, at most once, in no promised order, perhaps not at all.
 * A bus decides nothing about the method. Two of them: in this process, for tests (bus_local.c), and NATS, a shared
 * object of its own (nats/bus_nats.c), so that the library needs none of it.
 *
 * Subjects are words joined by dots; in a subscription `*` stands for any one word.
 *
 *   hdo.RUN.MEMBER.beat        signs of life          hdo.RUN.MEMBER.to.OTHER   for one member
 *   hdo.RUN.MEMBER.hello       newcomers              hdo.RUN.MEMBER.stop       the end of the run
 *
 * A member publishes under its own name alone, which a server can demand (hdo fleet serve-config).
 */
#ifndef HDO_FLEET_BUS_H
#define HDO_FLEET_BUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { HDO_SUBJECT_MAX = 160 };

typedef struct hdo_bus hdo_bus;

typedef struct hdo_bus_message { /* valid until the next poll */
    const char *subject;
    const unsigned char *data;
    size_t len;
} hdo_bus_message;

typedef struct hdo_bus_state {
    bool connected;
    bool refused;       /* the server does not let us: `why` says what */
    int64_t reconnects; /* since the start */
    int64_t lost;       /* messages that found no room here, or could not be sent */
    char why[256];      /* the last trouble; empty: none */
} hdo_bus_state;

typedef struct hdo_bus_ops {
    const char *name;
    void (*destroy)(hdo_bus *b); /* what was published before is sent, for a second at most */
    hdo_status (*subscribe)(hdo_bus *b, const char *subject, hdo_error *e);
    void (*forget)(hdo_bus *b); /* all subscriptions, and what has come by them */
    /* False: not sent, and counted. Never waits longer than the bus needs to take the bytes. */
    bool (*publish)(hdo_bus *b, const char *subject, const void *data, size_t len);
    bool (*poll)(hdo_bus *b, double wait_s, hdo_bus_message *m); /* false: none came in that time */
    void (*wake)(hdo_bus *b);                                    /* from any thread: a poll returns at once */
    void (*state)(hdo_bus *b, hdo_bus_state *s);
} hdo_bus_ops;

struct hdo_bus { /* first member of every implementation */
    const hdo_bus_ops *ops;
};

typedef struct hdo_bus_setup { /* NULL or 0: not given */
    const char *url, *name;
    const char *user, *password, *credentials; /* credentials: a NATS .creds file */
    const char *tls_ca, *tls_cert, *tls_key;
    double patience_s; /* for the first connection */
} hdo_bus_setup;

/* Does a subject fit a subscription? */
bool hdo__subject_fits(const char *pattern, const char *subject);
/* Word k of a subject (from 0) into out; false: there is none, or it is too long. */
bool hdo__subject_word(const char *subject, int k, char *out, size_t cap);

/* ---- in this process ---- */
typedef struct hdo_hub hdo_hub;
hdo_status hdo__hub_create(hdo_hub **out, hdo_error *e);
void hdo__hub_destroy(hdo_hub *h); /* after its buses */
hdo_status hdo__hub_join(hdo_hub *h, hdo_bus **out, hdo_error *e);
/* What becomes of a message: 0 lost, 1 delivered, 2 delivered twice. NULL: all are delivered once. */
void hdo__hub_fate(hdo_hub *h, int (*fate)(void *ctx, const char *subject, size_t len), void *ctx);

/* ---- NATS, if its plug-in is there ---- */
#define HDO_BUS_ABI 1
#define HDO_BUS_SYMBOL "hdo_bus_open"
typedef hdo_status (*hdo_bus_open_fn)(int abi, const char *version, const hdo_bus_setup *s, hdo_bus **out,
                                      hdo_error *e);
hdo_status hdo__bus_open(hdo_bus **out, const hdo_bus_setup *s, hdo_error *e);
bool hdo__bus_there(void); /* is the plug-in installed? */

#endif
