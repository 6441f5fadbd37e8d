/* SPDX-License-Identifier: Apache-2.0
 *
 * A bus within this process, for tests: what is published lies in the queue of everybody who subscribed, in order. A
 * test may decide what becomes of each message.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "fleet/bus.h"

enum { SUBSCRIPTIONS_MAX = 16, WAITING_MAX = 4096 };

typedef struct letter {
    struct letter *next;
    size_t len;
    char subject[HDO_SUBJECT_MAX];
    unsigned char data[];
} letter;

typedef struct local_bus {
    hdo_bus base;
    struct local_bus *next;
    hdo_hub *hub;
    char subject[SUBSCRIPTIONS_MAX][HDO_SUBJECT_MAX];
    int n_subjects;
    letter *first, *last, *shown;
    int waiting;
    bool woken;
    int64_t lost;
} local_bus;

struct hdo_hub {
    pthread_mutex_t lock;
    pthread_cond_t news;
    local_bus *first;
    int (*fate)(void *ctx, const char *subject, size_t len);
    void *ctx;
};

/* ---- subjects ---- */

bool hdo__subject_fits(const char *pattern, const char *subject) {
    for (;;) {
        size_t p = strcspn(pattern, "."), s = strcspn(subject, ".");
        if (s == 0) return false;
        bool any = p == 1 && pattern[0] == '*';
        if (!any && (p != s || strncmp(pattern, subject, p) != 0)) return false;
        pattern += p;
        subject += s;
        if (*pattern == '\0' || *subject == '\0') return *pattern == *subject;
        pattern++;
        subject++;
    }
}

bool hdo__subject_word(const char *subject, int k, char *out, size_t cap) {
    for (; k > 0; k--) {
        subject += strcspn(subject, ".");
        if (*subject++ == '\0') return false;
    }
    size_t len = strcspn(subject, ".");
    if (len == 0 || len >= cap) return false;
    memcpy(out, subject, len);
    out[len] = '\0';
    return true;
}

/* ---- the bus ---- */

static bool push(local_bus *b, const char *subject, const void *data, size_t len) {
    letter *m = b->waiting < WAITING_MAX ? hdo__alloc(sizeof *m + len) : NULL;
    if (m == NULL) {
        b->lost++;
        return false;
    }
    m->len = len;
    memcpy(m->subject, subject, strlen(subject) + 1);
    if (len > 0) memcpy(m->data, data, len);
    if (b->last != NULL) {
        b->last->next = m;
    } else {
        b->first = m;
    }
    b->last = m;
    b->waiting++;
    return true;
}

static bool wanted(const local_bus *b, const char *subject) {
    for (int k = 0; k < b->n_subjects; k++) {
        if (hdo__subject_fits(b->subject[k], subject)) return true;
    }
    return false;
}

static bool local_publish(hdo_bus *base, const char *subject, const void *data, size_t len) {
    local_bus *from = (local_bus *)base;
    hdo_hub *h = from->hub;
    bool all = strlen(subject) < HDO_SUBJECT_MAX;
    pthread_mutex_lock(&h->lock);
    int copies = !all ? 0 : h->fate != NULL ? h->fate(h->ctx, subject, len) : 1;
    for (local_bus *b = h->first; b != NULL && copies > 0; b = b->next) {
        if (b == from || !wanted(b, subject)) continue;
        for (int k = 0; k < copies; k++) all = push(b, subject, data, len) && all;
    }
    pthread_cond_broadcast(&h->news);
    pthread_mutex_unlock(&h->lock);
    return all;
}

static hdo_status local_subscribe(hdo_bus *base, const char *subject, hdo_error *e) {
    local_bus *b = (local_bus *)base;
    if (b->n_subjects == SUBSCRIPTIONS_MAX || strlen(subject) >= HDO_SUBJECT_MAX)
        return hdo__fail(e, HDO_E_FAILED, "no room for the subscription '%s'", subject);
    pthread_mutex_lock(&b->hub->lock);
    memcpy(b->subject[b->n_subjects++], subject, strlen(subject) + 1);
    pthread_mutex_unlock(&b->hub->lock);
    return HDO_OK;
}

static void local_forget(hdo_bus *base) {
    local_bus *b = (local_bus *)base;
    pthread_mutex_lock(&b->hub->lock);
    for (letter *m = b->first, *next; m != NULL; m = next) {
        next = m->next;
        hdo__free(m);
    }
    b->first = b->last = NULL;
    b->waiting = b->n_subjects = 0;
    pthread_mutex_unlock(&b->hub->lock);
}

static bool local_poll(hdo_bus *base, double wait_s, hdo_bus_message *m) {
    local_bus *b = (local_bus *)base;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + (int64_t)(1e9 * wait_s);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&b->hub->lock);
    hdo__free(b->shown);
    b->shown = NULL;
    while (b->first == NULL && !b->woken && wait_s > 0.0) {
        if (pthread_cond_timedwait(&b->hub->news, &b->hub->lock, &until) != 0) break;
    }
    b->woken = false;
    letter *x = b->shown = b->first;
    if (x != NULL) {
        b->first = x->next;
        if (b->first == NULL) b->last = NULL;
        b->waiting--;
    }
    pthread_mutex_unlock(&b->hub->lock);
    if (x != NULL) *m = (hdo_bus_message){.subject = x->subject, .data = x->data, .len = x->len};
    return x != NULL;
}

static void local_wake(hdo_bus *base) {
    local_bus *b = (local_bus *)base;
    pthread_mutex_lock(&b->hub->lock);
    b->woken = true;
    pthread_cond_broadcast(&b->hub->news);
    pthread_mutex_unlock(&b->hub->lock);
}

static void local_state(hdo_bus *base, hdo_bus_state *s) {
    *s = (hdo_bus_state){.connected = true, .lost = ((local_bus *)base)->lost};
}

static void local_destroy(hdo_bus *base) {
    local_bus *b = (local_bus *)base, **at = &b->hub->first;
    local_forget(base);
    pthread_mutex_lock(&b->hub->lock);
    while (*at != b) at = &(*at)->next;
    *at = b->next;
    pthread_mutex_unlock(&b->hub->lock);
    hdo__free(b->shown);
    hdo__free(b);
}

static const hdo_bus_ops local_ops = {.name = "local",
                                      .destroy = local_destroy,
                                      .subscribe = local_subscribe,
                                      .forget = local_forget,
                                      .publish = local_publish,
                                      .poll = local_poll,
                                      .wake = local_wake,
                                      .state = local_state};

hdo_status hdo__hub_join(hdo_hub *h, hdo_bus **out, hdo_error *e) {
    local_bus *b = hdo__alloc(sizeof *b);
    *out = NULL;
    if (b == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the bus");
    b->base.ops = &local_ops;
    b->hub = h;
    pthread_mutex_lock(&h->lock);
    local_bus **at = &h->first; /* at the end: deliveries come in the order of joining */
    while (*at != NULL) at = &(*at)->next;
    *at = b;
    pthread_mutex_unlock(&h->lock);
    *out = &b->base;
    return HDO_OK;
}

hdo_status hdo__hub_create(hdo_hub **out, hdo_error *e) {
    hdo_hub *h = *out = hdo__alloc(sizeof *h);
    if (h == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the bus");
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->news, NULL);
    return HDO_OK;
}

void hdo__hub_fate(hdo_hub *h, int (*fate)(void *ctx, const char *subject, size_t len), void *ctx) {
    h->fate = fate;
    h->ctx = ctx;
}

void hdo__hub_destroy(hdo_hub *h) {
    if (h == NULL) return;
    pthread_cond_destroy(&h->news);
    pthread_mutex_destroy(&h->lock);
    hdo__free(h);
}
