/* SPDX-License-Identifier: Apache-2.0 — a fleet as seen from outside: who is there, the mean model, the end; and the
 * configuration of a server for it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "fleet/join.h"
#include "hdo/experimental/fleet.h"
#include "objective/weights.h"
#include "problem/problem.h"
#include "run/link.h"

#define MODEL_S 5.0 /* for a member's model */

struct hdo_fleet_view {
    hdo_bus *bus;
    hdo_join join;
    int64_t then_us;              /* when the looking ended */
    int shown[HDO_ROSTER_MAX], n; /* entries of the roster that are members */
};

static hdo_status operator_name(const hdo_link *link, char name[HDO_FLEET_NAME], hdo_error *e) {
    char hex[9];
    if (link->user[0] != '\0') {
        if (!hdo__fleet_name_ok(link->user))
            return hdo__fail(e, HDO_E_CONFIG, "the user '%s' cannot be a name in a run", link->user);
        memcpy(name, link->user, strlen(link->user) + 1);
        return HDO_OK;
    }
    if (!hdo__random_hex(hex, 8)) return hdo__fail(e, HDO_E_FAILED, "no random numbers from the system");
    snprintf(name, HDO_FLEET_NAME, "operator-%s", hex);
    return HDO_OK;
}

static int by_place(const void *a, const void *b) {
    const hdo_roster_entry *x = a, *y = b;
    if (x->beat.place != y->beat.place) return x->beat.place < y->beat.place ? -1 : 1;
    return strcmp(x->beat.name, y->beat.name);
}

hdo_status hdo_fleet_look(hdo_fleet_view **out, const hdo_fleet_link *given, const char *run, double wait_s,
                          hdo_error *e) {
    char name[HDO_FLEET_NAME], found[HDO_FLEET_NAME] = "";
    hdo_link link;
    hdo_fleet_view *v = *out = hdo__alloc(sizeof *v);
    if (v == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory");
    hdo_status st = HDO_OK;
    if (run != NULL && !hdo__fleet_name_ok(run))
        st = hdo__fail(e, HDO_E_CONFIG, "'%s' cannot be the name of a run", run);
    if (st == HDO_OK) st = hdo__link_read(&link, given, e);
    if (st == HDO_OK) st = operator_name(&link, name, e);
    if (st == HDO_OK) st = hdo__link_open(&v->bus, &link, name, e);
    if (st == HDO_OK && run == NULL) st = hdo__join_find_run(v->bus, 3.0, found, e);
    if (st == HDO_OK) st = hdo__join_open(&v->join, v->bus, run != NULL ? run : found, name, e);
    if (st == HDO_OK) hdo__join_listen(&v->join, wait_s, 2.0 * wait_s, true);
    if (st == HDO_OK) st = hdo__join_verdict(&v->join, e);
    if (st != HDO_OK) {
        hdo_fleet_close(v);
        *out = NULL;
        return st;
    }
    v->then_us = v->join.now_us;
    qsort(v->join.roster.entry, (size_t)v->join.roster.used, sizeof *v->join.roster.entry, by_place);
    for (int k = 0; k < v->join.roster.used; k++) v->shown[v->n++] = k;
    return HDO_OK;
}

void hdo_fleet_close(hdo_fleet_view *v) {
    if (v == NULL) return;
    hdo__join_close(&v->join);
    if (v->bus != NULL) v->bus->ops->destroy(v->bus);
    hdo__free(v);
}

const char *hdo_fleet_run(const hdo_fleet_view *v) {
    return v->join.run;
}
int hdo_fleet_count(const hdo_fleet_view *v) {
    return v->n;
}

void hdo_fleet_at(const hdo_fleet_view *v, int i, hdo_fleet_row *row) {
    const hdo_roster_entry *p = &v->join.roster.entry[v->shown[i]];
    const hdo_fleet_beat *b = &p->beat;
    *row = (hdo_fleet_row){.id = p->member,
                           .epoch = p->epoch,
                           .class_id = (int)p->class_id,
                           .place = (int)b->place + 1,
                           .nodes = (int)b->nodes,
                           .heard = (int)b->heard,
                           .leaving = b->leaving != 0,
                           .step = (int64_t)p->step,
                           .exchanges = (int64_t)b->exchanges,
                           .expired = (int64_t)b->expired,
                           .far = (int64_t)b->far,
                           .missed = (int64_t)b->missed,
                           .bytes = (int64_t)b->bytes,
                           .rss = (int64_t)b->rss,
                           .loss = b->evaluated != 0 ? b->loss : (double)NAN,
                           .accuracy = b->evaluated != 0 ? b->accuracy : (double)NAN,
                           .steps_per_s = b->steps_per_s,
                           .silent_s = 1e-6 * (double)(v->then_us - p->heard_us)};
    for (int k = 1; k < HDO_DROPS; k++) row->drops += (int64_t)b->drops[k];
    memcpy(row->name, b->name, sizeof row->name);
    memcpy(row->role, b->role, sizeof row->role);
    memcpy(row->version, b->version, sizeof row->version);
}

int64_t hdo_fleet_dropped(const hdo_fleet_view *v, const char *reason) {
    int64_t sum = 0;
    for (int k = 1; k < HDO_DROPS; k++) {
        if (strcmp(reason, hdo__fleet_drop_names[k]) != 0) continue;
        for (int i = 0; i < v->n; i++) sum += (int64_t)v->join.roster.entry[v->shown[i]].beat.drops[k];
        return sum;
    }
    return -1;
}

/* ---- the mean model ---- */

/* The shapes of the model follow from the configuration of the run. */
static hdo_status open_problem(hdo_fleet_view *v, hdo_config *c, hdo_problem *p, hdo_error *e) {
    hdo_status st = v->join.text != NULL ? HDO_OK : hdo__join_ask_config(&v->join, MODEL_S, e);
    if (st != HDO_OK) return st;
    hdo_config_default(c);
    st = hdo_config_load_bytes(c, "the configuration of the run", v->join.text, strlen(v->join.text), e);
    if (st == HDO_OK) st = hdo__problem_open_whole(p, c, e);
    if (st != HDO_OK) hdo__error_prefix(e, "the names of the tensors follow from the data, too");
    return st;
}

static hdo_status collect(hdo_fleet_view *v, size_t len, double *sum, float *x, double *weight, int *models,
                          hdo_error *e) {
    uint64_t step;
    *weight = 0.0;
    *models = 0;
    for (int i = 0; i < v->n; i++) {
        const hdo_roster_entry *p = &v->join.roster.entry[v->shown[i]];
        if (p->beat.leaving != 0) continue;
        if (hdo__join_ask_model(&v->join, p->member, len, MODEL_S, x, &step, e) != HDO_OK)
            continue; /* gone meanwhile */
        double w = (double)p->beat.nodes;
        for (size_t k = 0; k < len; k++) sum[k] += w * (double)x[k];
        *weight += w;
        ++*models;
    }
    return *models > 0 ? HDO_OK : hdo__fail(e, HDO_E_ENGINE, "no member of run '%s' sent its model", v->join.run);
}

hdo_status hdo_fleet_save_mean(hdo_fleet_view *v, const char *path, int *models, hdo_error *e) {
    hdo_problem p = {0};
    hdo_config *c = hdo__alloc(sizeof *c);
    hdo_status st = c != NULL ? open_problem(v, c, &p, e) : hdo__fail(e, HDO_E_MEMORY, "out of memory");
    float *x = NULL;
    double *sum = NULL, weight;
    if (st == HDO_OK) {
        const hdo_objective *f = p.objective;
        size_t len = f->d + (c->model.buffers.id == HDO_BUFFERS_PRIVATE ? 0 : f->n_buf);
        x = hdo__alloc((f->d + f->n_buf) * sizeof(float));
        sum = hdo__alloc(len * sizeof(double));
        st =
            x != NULL && sum != NULL ? hdo__problem_start(&p, x, NULL, e) : hdo__fail(e, HDO_E_MEMORY, "out of memory");
        if (st == HDO_OK) st = collect(v, len, sum, x, &weight, models, e);
        for (size_t k = 0; k < len && st == HDO_OK; k++) x[k] = (float)(sum[k] / weight);
    }
    const char *const notes[] = {"format", "pt",   "model", c != NULL ? c->model.name : "", "run", v->join.run,
                                 "node",   "mean", NULL};
    if (st == HDO_OK) st = hdo__weights_save(p.objective, x, notes, path, e);
    hdo__free(x);
    hdo__free(sum);
    hdo__problem_close(&p);
    hdo__free(c);
    return st;
}

hdo_status hdo_fleet_stop(hdo_fleet_view *v, hdo_error *e) {
    bool said = false;
    struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    for (int k = 0; k < 3; k++) {
        said = hdo__join_say(&v->join, "stop", HDO_FLEET_STOP, 0, NULL, 0) || said;
        nanosleep(&pause, NULL);
    }
    hdo_bus_state s;
    v->bus->ops->state(v->bus, &s);
    if (said && !s.refused) return HDO_OK;
    return hdo__fail(e, HDO_E_ENGINE, "the end of run '%s' could not be said: %s", v->join.run,
                     s.refused ? s.why : "there is no connection");
}

/* ---- the configuration of a server ---- */

static void put_user(FILE *f, const char *run, const char *name, const char *secret, bool may_stop) {
    fprintf(f,
            "    { user: \"%s\", password: \"%s\", permissions: {\n"
            "        publish: { allow: [\"hdo.%s.%s.beat\", \"hdo.%s.%s.hello\", \"hdo.%s.%s.to.*\"%s%s%s] }\n"
            "        subscribe: { allow: [\"hdo.*.*.beat\", \"hdo.%s.*.hello\", \"hdo.%s.*.stop\", \"hdo.%s.*.to.%s\"] "
            "} } }\n",
            name, secret, run, name, run, name, run, name, may_stop ? ", \"hdo." : "", may_stop ? run : "",
            may_stop ? ".operator.stop\"" : "", run, run, run, name);
}

char *hdo_fleet_server_config(const char *run, const char *const *name, const char *const *secret, int n,
                              const char *listen, const char *tls) {
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (f == NULL) return NULL;
    fprintf(f, "# nats-server -c THIS: the bus of run '%s'. A member publishes under its own name alone.\n", run);
    fprintf(f, "listen: \"%s\"\nmax_payload: 1048576\nmax_pending: 268435456\n", listen);
    if (tls != NULL)
        fprintf(f,
                "tls { cert_file: \"%s/server.pem\", key_file: \"%s/server-key.pem\", ca_file: \"%s/ca.pem\", timeout: "
                "5 }\n",
                tls, tls, tls);
    fprintf(f, "authorization {\n  users = [\n");
    for (int k = 0; k < n; k++) put_user(f, run, name[k], secret[k], false);
    put_user(f, run, "operator", secret[n], true);
    fprintf(f, "  ]\n}\n");
    if (fclose(f) == 0) return text;
    free(text);
    return NULL;
}
