/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank holds which nodes, and whether they fit there. Blocks of consecutive nodes of about equal cost; with
 * mpi.roles a rank or a host may be `fo` (only nodes that back-propagate) or `zo` (never one of those: it has no room
 * for it). Every rank computes this for itself.
 *
 * The cost of a node's step, in forward passes of one sample: a gradient 3, a forward-mode derivative 2, a complex
 * forward pass 4, times the batch; and 4 for every random direction of d numbers that is drawn. Rough, and good enough:
 * the exchange waits for the slowest rank, so an error of 20% in the cost is at most 20% of a step.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "population/population.h"

enum { ANY = 0, FO = 1, ZO = 2, UNKNOWN_COORDS = 1000 };
static const char *const role_names[] = {"any", "fo", "zo"};

static bool reverse_mode(const hdo_config *config, const hdo_class_config *c) {
    const hdo_estimator_ops *ops = hdo__estimator_of(config, c->estimator);
    return ops != NULL && (ops->needs & HDO_CAN_GRAD) != 0;
}

static double node_cost(const hdo_config *config, const hdo_class_config *c) {
    const hdo_estimator_ops *ops = hdo__estimator_of(config, c->estimator);
    double rv = (double)c->rv, passes, draws = rv;
    if (ops == NULL) return 1.0;
    if ((ops->needs & HDO_CAN_GRAD) != 0) {
        passes = 3.0;
        draws = !ops->zeroth ? 0.0 : ops->gaussian ? 1.0 : rv;
    } else if ((ops->needs & HDO_CAN_SPAN) != 0) {
        passes = 2.0;
        draws = 1.0;
    } else if ((ops->needs & HDO_CAN_JVP) != 0) {
        passes = 2.0 * rv;
    } else if ((ops->needs & HDO_CAN_COMPLEX) != 0) {
        passes = 4.0 * rv;
    } else if (ops->axes) {
        passes = c->coords > 0 ? (double)c->coords : UNKNOWN_COORDS;
        draws = 0.0;
    } else {
        passes = (strcmp(ops->name, "fd") == 0 ? 1.0 : 2.0) * rv + 1.0;
    }
    return passes * (double)c->batch + 4.0 * draws;
}

/* ---- roles ---- */

static int role_of(const char *word) {
    for (int k = 0; k < 3; k++) {
        if (strcmp(word, role_names[k]) == 0) return k;
    }
    return -1;
}

/* One entry "2:zo", "1-3:zo" or "host:fo". */
static hdo_status read_entry(const hdo_transport *t, char *entry, int *role, hdo_error *e) {
    char *colon = strrchr(entry, ':');
    int kind = colon != NULL ? role_of(colon + 1) : -1;
    if (kind < 0) {
        return hdo__fail(
            e, HDO_E_CONFIG,
            "mpi.roles has '%s', but an entry is RANK:ROLE, FIRST-LAST:ROLE or HOST:ROLE with ROLE fo, zo or any",
            entry);
    }
    *colon = '\0';
    if (isdigit((unsigned char)entry[0]) && strspn(entry, "0123456789-") == strlen(entry)) {
        char *rest;
        long first = strtol(entry, &rest, 10), last = *rest == '-' ? strtol(rest + 1, &rest, 10) : first;
        if (*rest != '\0' || first > last || last >= t->ranks) {
            return hdo__fail(e, HDO_E_CONFIG, "mpi.roles names rank %s, but the ranks are 0 to %d", entry,
                             t->ranks - 1);
        }
        for (long r = first; r <= last; r++) role[r] = kind;
        return HDO_OK;
    }
    bool found = false;
    for (int r = 0; r < t->ranks; r++) {
        const char *host = t->host(t, r);
        size_t len = strlen(entry); /* a short name fits a long one */
        if (strncmp(host, entry, len) != 0 || (host[len] != '\0' && host[len] != '.')) continue;
        role[r] = kind;
        found = true;
    }
    return found ? HDO_OK
                 : hdo__fail(e, HDO_E_CONFIG, "mpi.roles names host '%s', but no rank runs there (rank 0 is on %s)",
                             entry, t->host(t, 0));
}

static hdo_status read_roles(const hdo_config *c, const hdo_transport *t, int *role, hdo_error *e) {
    char text[HDO_SPEC_MAX], *save = NULL;
    snprintf(text, sizeof text, "%s", c->mpi.roles);
    hdo_status st = HDO_OK;
    for (char *p = strtok_r(text, ", ", &save); p != NULL && st == HDO_OK; p = strtok_r(NULL, ", ", &save)) {
        st = read_entry(t, p, role, e);
    }
    return st;
}

/* ---- blocks ---- */

typedef struct plan {
    const hdo_config *c;
    const hdo_transport *t;
    int n;
    double *before;           /* (n + 1): cost of all nodes before node i */
    int *role, *start, *held; /* (ranks) */
} plan;

static double cost_between(const plan *p, int a, int b) {
    return p->before[b] - p->before[a];
}

/* Nodes [a, b) over the ranks with that role, in rank order, at least one each. */
static void cut(plan *p, int role, int ranks, int a, int b) {
    int done = 0, node = a;
    for (int r = 0; r < p->t->ranks; r++) {
        if (p->role[r] != role) continue;
        double target = p->before[a] + cost_between(p, a, b) * (double)(done + 1) / (double)ranks;
        int first = node++, left = ranks - done - 1;
        while (node < b - left && 0.5 * (p->before[node] + p->before[node + 1]) <= target) node++;
        if (left == 0) node = b;
        p->start[r] = first;
        p->held[r] = node - first;
        done++;
    }
}

/* How many nodes of [a, b), counted from its front (or back), `ranks` ranks take when the rest is others' too. */
static int share(const plan *p, int a, int b, double each, int ranks, bool front) {
    int k = 0;
    while (ranks > 0 && k < b - a &&
           (front ? cost_between(p, a, a + k + 1) : cost_between(p, b - k - 1, b)) <= each * (double)ranks)
        k++;
    return k < ranks && ranks <= b - a ? ranks : k;
}

static hdo_status refuse(const plan *p, int count[3], hdo_error *e) {
    const hdo_config *c = p->c;
    for (int k = 0; k < c->n_classes; k++) {
        const hdo_class_config *cc = &c->population[k];
        if (cc->count == 0 || !reverse_mode(c, cc) || strcmp(cc->estimator, "fo") == 0 || count[ZO] == 0) continue;
        return hdo__fail(
            e, HDO_E_UNSUPPORTED,
            "class '%s' uses '%s', whose oracle is reverse mode, so a zo rank cannot hold it; a forward-only "
            "device uses fd, fd-central, debiased, forward or complex-step",
            cc->name, cc->estimator);
    }
    return hdo__fail(
        e, HDO_E_UNSUPPORTED,
        "mpi.roles '%s' cannot be kept: %d ranks for fo, %d for zo, %d for any; every rank needs a node and "
        "every node a rank that may hold it",
        c->mpi.roles, count[FO], count[ZO], count[ANY]);
}

/* The axis of nodes is one run of one kind, or two runs; ranks of the first kind, then any, then of the second. */
static hdo_status cut_by_role(plan *p, int count[3], hdo_error *e) {
    int runs = 0, kind[2] = {0, 0}, middle = p->n, node = 0;
    for (int k = 0; k < p->c->n_classes; node += (int)p->c->population[k].count, k++) {
        if (p->c->population[k].count == 0) continue;
        int here = reverse_mode(p->c, &p->c->population[k]) ? FO : ZO;
        if (runs > 0 && here == kind[runs - 1]) continue;
        if (runs == 2) {
            return hdo__fail(e, HDO_E_UNSUPPORTED,
                             "with mpi.roles the classes that back-propagate must stand together in the population");
        }
        if (runs == 1) middle = node;
        kind[runs++] = here;
    }
    if (runs == 1) kind[1] = kind[0] == FO ? ZO : FO;
    int g1 = count[kind[0]], g2 = count[kind[1]], ga = count[ANY];
    double each = p->before[p->n] / (double)p->t->ranks;
    int a = ga > 0 ? share(p, 0, middle, each, g1, true) : g1 > 0 ? middle : 0;
    int b = p->n - (ga > 0 ? share(p, middle, p->n, each, g2, false) : g2 > 0 ? p->n - middle : 0);
    while (b - a < ga && a > g1) a--;
    while (b - a < ga && p->n - b > g2) b++;
    bool fits = a >= g1 && p->n - b >= g2 && b - a >= ga && (ga > 0 || a == b) && a <= middle && b >= middle &&
                (g1 > 0 || a == 0) && (g2 > 0 || b == p->n);
    if (!fits) return refuse(p, count, e);
    cut(p, kind[0], g1, 0, a);
    cut(p, ANY, ga, a, b);
    cut(p, kind[1], g2, b, p->n);
    return HDO_OK;
}

static hdo_status spread(plan *p, hdo_error *e) {
    hdo_status st = read_roles(p->c, p->t, p->role, e);
    if (st != HDO_OK) return st;
    int node = 0, count[3] = {0, 0, 0};
    for (int k = 0; k < p->c->n_classes; k++) {
        double cost = node_cost(p->c, &p->c->population[k]);
        for (int64_t i = 0; i < p->c->population[k].count; i++, node++) p->before[node + 1] = p->before[node] + cost;
    }
    for (int r = 0; r < p->t->ranks; r++) count[p->role[r]]++;
    if (count[ANY] < p->t->ranks) return cut_by_role(p, count, e);
    cut(p, ANY, p->t->ranks, 0, p->n);
    return HDO_OK;
}

hdo_status hdo__population_spread(const hdo_config *c, hdo_transport *t, hdo_error *e) {
    int n = 0;
    for (int k = 0; k < c->n_classes; k++) n += (int)c->population[k].count;
    if (t->ranks > n) {
        return hdo__fail(e, HDO_E_CONFIG, "there are %d ranks but only %d nodes; start at most %d ranks", t->ranks, n,
                         n);
    }
    plan p = {.c = c, .t = t, .n = n};
    p.before = hdo__alloc((size_t)(n + 1) * sizeof(double));
    p.role = hdo__alloc(3 * (size_t)t->ranks * sizeof(int));
    hdo_status st = HDO_E_MEMORY;
    if (p.before != NULL && p.role != NULL) {
        p.start = p.role + t->ranks;
        p.held = p.start + t->ranks;
        st = spread(&p, e);
        if (st == HDO_OK) hdo__transport_assign(t, n, p.start, p.held);
    } else {
        hdo__fail(e, st, "out of memory for the places of %d nodes", n);
    }
    hdo__free(p.before);
    hdo__free(p.role);
    return st;
}

/* ---- memory ---- */

hdo_status hdo__population_fits(const hdo_population *p, size_t state_bytes, size_t scratch_bytes, hdo_error *e) {
    const hdo_transport *t = p->transport;
    const hdo_config *c = p->problem->config;
    if (c->engine.id != HDO_ENGINE_MPI) return HDO_OK;
    double limit = c->mpi.memory, need = (double)state_bytes + (double)scratch_bytes;
    if (!(limit > 0.0)) limit = hdo__free_memory() / (double)t->host_ranks;
    if (need <= limit || !(limit > 0.0)) return HDO_OK;
    int back = 0;
    for (int i = t->first; i < t->first + t->count; i++)
        back += reverse_mode(c, &c->population[hdo__population_class(p, i)]);
    return hdo__fail(
        e, HDO_E_MEMORY,
        "rank %d (host %s) needs %.1f MB for its %d nodes, %d of which back-propagate (models %.1f, scratch "
        "%.1f), but may use %.1f MB; give it fewer nodes, or none that back-propagate (mpi.roles %d:zo)",
        t->rank, t->host(t, t->rank), need / 1e6, t->count, back, (double)state_bytes / 1e6,
        (double)scratch_bytes / 1e6, limit / 1e6, t->rank);
}
