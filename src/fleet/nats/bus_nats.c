/* SPDX-License-Identifier: Apache-2.0
 *
 * The bus over NATS. Messages come on threads of the client library and lie in a ring of bounded length until they are
 * polled; what finds no room is dropped and counted. The client reconnects by itself, for ever; while there is no
 * connection nothing is sent.
 */
#include <nats/nats.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "fleet/bus.h"

enum { RING = 4096, SUBSCRIPTIONS_MAX = 16, RECONNECT_MS = 250, BUFFER = 1 << 20 };
#define RING_BYTES ((size_t)192 << 20)

typedef struct nats_bus {
    hdo_bus base;
    natsConnection *nc;
    natsSubscription *sub[SUBSCRIPTIONS_MAX];
    int n_subs;
    pthread_mutex_t lock;
    pthread_cond_t news;
    natsMsg *ring[RING];
    int first, count;
    size_t bytes;
    natsMsg *shown;
    bool woken;
    hdo_bus_state st;
} nats_bus;

/* ---- what the client library calls ---- */

static void arrived(natsConnection *nc, natsSubscription *sub, natsMsg *msg, void *ctx) {
    nats_bus *b = ctx;
    size_t len = (size_t)natsMsg_GetDataLength(msg);
    (void)nc;
    (void)sub;
    pthread_mutex_lock(&b->lock);
    bool room = b->count < RING && b->bytes + len <= RING_BYTES;
    if (room) {
        b->ring[(b->first + b->count++) % RING] = msg;
        b->bytes += len;
        pthread_cond_signal(&b->news);
    } else {
        b->st.lost++;
    }
    pthread_mutex_unlock(&b->lock);
    if (!room) natsMsg_Destroy(msg);
}

static void trouble(natsConnection *nc, natsSubscription *sub, natsStatus err, void *ctx) {
    nats_bus *b = ctx;
    const char *last = NULL;
    (void)sub;
    pthread_mutex_lock(&b->lock);
    if (err == NATS_SLOW_CONSUMER) {
        b->st.lost++;
    } else {
        if (err == NATS_NOT_PERMITTED) b->st.refused = true;
        bool more = nc != NULL && natsConnection_GetLastError(nc, &last) != NATS_OK && last != NULL;
        snprintf(b->st.why, sizeof b->st.why, "%s", more ? last : natsStatus_GetText(err));
    }
    pthread_mutex_unlock(&b->lock);
}

static void reconnected(natsConnection *nc, void *ctx) {
    nats_bus *b = ctx;
    (void)nc;
    pthread_mutex_lock(&b->lock);
    b->st.reconnects++;
    pthread_mutex_unlock(&b->lock);
}

static void closed(natsConnection *nc, void *ctx) { /* not by us: the server will not have us any more */
    nats_bus *b = ctx;
    const char *last = NULL;
    pthread_mutex_lock(&b->lock);
    b->st.refused = true;
    if (natsConnection_GetLastError(nc, &last) != NATS_OK && last != NULL)
        snprintf(b->st.why, sizeof b->st.why, "%s", last);
    pthread_cond_signal(&b->news);
    pthread_mutex_unlock(&b->lock);
}

/* ---- the bus ---- */

static hdo_status nats_subscribe(hdo_bus *base, const char *subject, hdo_error *e) {
    nats_bus *b = (nats_bus *)base;
    if (b->n_subs == SUBSCRIPTIONS_MAX) return hdo__fail(e, HDO_E_FAILED, "too many subscriptions");
    natsStatus s = natsConnection_Subscribe(&b->sub[b->n_subs], b->nc, subject, arrived, b);
    if (s != NATS_OK) return hdo__fail(e, HDO_E_ENGINE, "cannot subscribe to '%s': %s", subject, natsStatus_GetText(s));
    natsSubscription_SetPendingLimits(b->sub[b->n_subs++], RING, (int)(RING_BYTES / 2));
    return HDO_OK;
}

static void nats_forget(hdo_bus *base) {
    nats_bus *b = (nats_bus *)base;
    for (int k = 0; k < b->n_subs; k++) {
        natsSubscription_Unsubscribe(b->sub[k]);
        natsSubscription_Destroy(b->sub[k]);
    }
    b->n_subs = 0;
    pthread_mutex_lock(&b->lock);
    for (; b->count > 0; b->count--, b->first = (b->first + 1) % RING) natsMsg_Destroy(b->ring[b->first]);
    b->bytes = 0;
    pthread_mutex_unlock(&b->lock);
}

static bool nats_publish(hdo_bus *base, const char *subject, const void *data, size_t len) {
    nats_bus *b = (nats_bus *)base;
    bool ok = natsConnection_Status(b->nc) == NATS_CONN_STATUS_CONNECTED &&
              natsConnection_Publish(b->nc, subject, data, (int)len) == NATS_OK;
    if (!ok) {
        pthread_mutex_lock(&b->lock);
        b->st.lost++;
        pthread_mutex_unlock(&b->lock);
    }
    return ok;
}

static bool nats_poll(hdo_bus *base, double wait_s, hdo_bus_message *m) {
    nats_bus *b = (nats_bus *)base;
    struct timespec until;
    if (b->shown != NULL) natsMsg_Destroy(b->shown);
    b->shown = NULL;
    pthread_mutex_lock(&b->lock);
    if (b->count == 0 && wait_s > 0.0) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        int64_t ns = until.tv_nsec + (int64_t)(1e9 * wait_s);
        until.tv_sec += (time_t)(ns / 1000000000);
        until.tv_nsec = (long)(ns % 1000000000);
        while (b->count == 0 && !b->woken) {
            if (pthread_cond_timedwait(&b->news, &b->lock, &until) != 0) break;
        }
    }
    b->woken = false;
    if (b->count > 0) {
        b->shown = b->ring[b->first];
        b->first = (b->first + 1) % RING;
        b->count--;
        b->bytes -= (size_t)natsMsg_GetDataLength(b->shown);
    }
    pthread_mutex_unlock(&b->lock);
    if (b->shown == NULL) return false;
    *m = (hdo_bus_message){.subject = natsMsg_GetSubject(b->shown),
                           .data = (const unsigned char *)natsMsg_GetData(b->shown),
                           .len = (size_t)natsMsg_GetDataLength(b->shown)};
    return true;
}

static void nats_wake(hdo_bus *base) {
    nats_bus *b = (nats_bus *)base;
    pthread_mutex_lock(&b->lock);
    b->woken = true;
    pthread_cond_signal(&b->news);
    pthread_mutex_unlock(&b->lock);
}

static void nats_state(hdo_bus *base, hdo_bus_state *s) {
    nats_bus *b = (nats_bus *)base;
    pthread_mutex_lock(&b->lock);
    *s = b->st;
    pthread_mutex_unlock(&b->lock);
    s->connected = natsConnection_Status(b->nc) == NATS_CONN_STATUS_CONNECTED;
}

static void nats_destroy(hdo_bus *base) {
    nats_bus *b = (nats_bus *)base;
    natsConnection_FlushTimeout(b->nc, 1000);
    if (b->shown != NULL) natsMsg_Destroy(b->shown); /* messages go before the library does */
    nats_forget(base);
    natsConnection_Destroy(b->nc);
    nats_CloseAndWait(2000); /* no callback after this: b may go */
    hdo__free(b);
}

static const hdo_bus_ops nats_ops = {.name = "nats",
                                     .destroy = nats_destroy,
                                     .subscribe = nats_subscribe,
                                     .forget = nats_forget,
                                     .publish = nats_publish,
                                     .poll = nats_poll,
                                     .wake = nats_wake,
                                     .state = nats_state};

/* ---- opening ---- */

static natsStatus set_security(natsOptions *o, const hdo_bus_setup *s) {
    natsStatus st = NATS_OK;
    if (s->user != NULL) st = natsOptions_SetUserInfo(o, s->user, s->password != NULL ? s->password : "");
    if (st == NATS_OK && s->credentials != NULL) st = natsOptions_SetUserCredentialsFromFiles(o, s->credentials, NULL);
    bool tls = s->tls_ca != NULL || s->tls_cert != NULL || strncmp(s->url, "tls://", 6) == 0;
    if (st == NATS_OK && tls) st = natsOptions_SetSecure(o, true);
    if (st == NATS_OK && s->tls_ca != NULL) st = natsOptions_LoadCATrustedCertificates(o, s->tls_ca);
    if (st == NATS_OK && s->tls_cert != NULL) st = natsOptions_LoadCertificatesChain(o, s->tls_cert, s->tls_key);
    return st;
}

static natsStatus set_options(natsOptions *o, nats_bus *b, const hdo_bus_setup *s) {
    natsStatus st = natsOptions_SetURL(o, s->url);
    if (st == NATS_OK) st = natsOptions_SetName(o, s->name);
    if (st == NATS_OK) st = natsOptions_SetNoEcho(o, true);
    if (st == NATS_OK) st = natsOptions_SetTimeout(o, 2000);
    if (st == NATS_OK) st = natsOptions_SetAllowReconnect(o, true);
    if (st == NATS_OK) st = natsOptions_SetMaxReconnect(o, -1);
    if (st == NATS_OK) st = natsOptions_SetReconnectWait(o, RECONNECT_MS);
    if (st == NATS_OK) st = natsOptions_SetReconnectBufSize(o, BUFFER);
    if (st == NATS_OK) st = natsOptions_SetPingInterval(o, 5000);
    if (st == NATS_OK) st = natsOptions_SetMaxPingsOut(o, 3);
    if (st == NATS_OK) st = natsOptions_SetSendAsap(o, true);
    if (st == NATS_OK) st = natsOptions_SetErrorHandler(o, trouble, b);
    if (st == NATS_OK) st = natsOptions_SetReconnectedCB(o, reconnected, b);
    if (st == NATS_OK) st = natsOptions_SetClosedCB(o, closed, b);
    return st == NATS_OK ? set_security(o, s) : st;
}

static hdo_status refuse(natsStatus st, const hdo_bus_setup *s, hdo_error *e) {
    const char *more = nats_GetLastError(NULL);
    if (st == NATS_CONNECTION_AUTH_FAILED || st == NATS_NOT_PERMITTED)
        return hdo__fail(e, HDO_E_ENGINE,
                         "the server at %s does not let '%s' in: wrong user or password (--credentials)", s->url,
                         s->user != NULL ? s->user : s->name);
    if (st == NATS_SSL_ERROR || st == NATS_SECURE_CONNECTION_REQUIRED || st == NATS_SECURE_CONNECTION_WANTED)
        return hdo__fail(e, HDO_E_ENGINE,
                         "no secure connection to %s: %s; look at --tls-ca, --tls-cert and --tls-key, and whether the "
                         "server speaks TLS at all",
                         s->url, more != NULL ? more : natsStatus_GetText(st));
    return hdo__fail(e, HDO_E_ENGINE, "no connection to the bus at %s: %s; is nats-server running there?", s->url,
                     natsStatus_GetText(st));
}

HDO_API hdo_status hdo_bus_open(int abi, const char *version, const hdo_bus_setup *s, hdo_bus **out, hdo_error *e);
hdo_status hdo_bus_open(int abi, const char *version, const hdo_bus_setup *s, hdo_bus **out, hdo_error *e) {
    *out = NULL;
    if (abi != HDO_BUS_ABI || strcmp(version, HDO_VERSION) != 0)
        return hdo__fail(e, HDO_E_ENGINE, "libhdo-nats.so is of version %s, but hdo is %s: build both again",
                         HDO_VERSION, version);
    nats_bus *b = hdo__alloc(sizeof *b);
    natsOptions *o = NULL;
    if (b == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the bus");
    b->base.ops = &nats_ops;
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&b->news, &monotonic);
    natsStatus st = natsOptions_Create(&o);
    if (st == NATS_OK) st = set_options(o, b, s);
    struct timespec pause = {.tv_nsec = 200 * 1000 * 1000};
    for (double waited = 0.0; st == NATS_OK; waited += 0.2) { /* the server may be just starting */
        st = natsConnection_Connect(&b->nc, o);
        if (st != NATS_NO_SERVER || waited >= s->patience_s) break;
        nanosleep(&pause, NULL);
        st = NATS_OK;
    }
    natsOptions_Destroy(o);
    if (st != NATS_OK) {
        hdo_status failed = refuse(st, s, e);
        hdo__free(b);
        return failed;
    }
    *out = &b->base;
    return HDO_OK;
}
