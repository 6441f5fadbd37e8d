/* SPDX-License-Identifier: Apache-2.0 — what a callback said when it failed, kept until it is reported. */
#include "config/own_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool earlier(const hdo_call *a, const hdo_sentence *b) {
    if (!b->any) return true;
    return a->step != b->step ? a->step < b->step : a->node < b->node;
}

/* One line without control characters, whatever the callback wrote. */
static void clean(char *text) {
    for (char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < ' ' || *p == 127) *p = ' ';
}

hdo_status hdo__call_failed(hdo_caller *k, int result, hdo_complaint *c) {
    hdo_status st = result > 0 ? HDO_E_SKIPPED : HDO_E_OBJECTIVE;
    if (c == NULL) return st;
    k->message[sizeof k->message - 1] = '\0';
    pthread_mutex_lock(&c->lock);
    hdo_sentence *s = result > 0 ? &c->skip : &c->stop;
    if (earlier(&k->call, s)) {
        *s = (hdo_sentence){.any = true, .node = k->call.node, .step = k->call.step};
        if (k->message[0] != '\0')
            snprintf(s->text, sizeof s->text, "%s: %s", k->table->name, k->message);
        else
            snprintf(s->text, sizeof s->text, "%s: a callback returned %d and no sentence", k->table->name, result);
        clean(s->text);
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

hdo_complaint *hdo__complaint_new(void) {
    hdo_complaint *c = calloc(1, sizeof *c);
    if (c != NULL) pthread_mutex_init(&c->lock, NULL);
    return c;
}

void hdo__complaint_free(hdo_complaint *c) {
    if (c == NULL) return;
    pthread_mutex_destroy(&c->lock);
    free(c);
}

bool hdo__complaint_say(hdo_complaint *c, hdo_status st, hdo_error *e) {
    if (c == NULL || (st != HDO_E_OBJECTIVE && st != HDO_E_SKIPPED)) return false;
    pthread_mutex_lock(&c->lock);
    const hdo_sentence *s = st == HDO_E_SKIPPED ? &c->skip : &c->stop;
    bool any = s->any;
    if (any) hdo__fail(e, st, "%s", s->text);
    pthread_mutex_unlock(&c->lock);
    return any;
}
