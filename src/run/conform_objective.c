/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite of objectives. The table is called as a run calls it, with samples of a problem that is opened
 * for it; points lie between numbers that are not finite, so that reading or writing too far is seen.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "base/vec.h"
#include "config/own.h"
#include "objective/own_objective.h"
#include "problem/problem.h"
#include "run/conform.h"

enum { POINTS = 8, GAP = 16, SAMPLES = 4, NODES = 2, THREADS = 4, ROUNDS = 25, SIZES = 4 };

typedef struct suite {
    const hdo_objective_def *d;
    void *user;
    hdo_verdicts *v;
    hdo_samples s;
    size_t dim, ld;
    float *x;     /* (POINTS, ld): the start and points around it, GAP not-a-numbers behind each */
    float *keep;  /* a copy */
    float *u;     /* (POINTS, ld) directions, likewise */
    float *g, *h; /* (ld) */
    double f[POINTS];
    int64_t node, step; /* of the next calls */
    char message[512];
} suite;

static hdo_call call_of(suite *t) {
    t->message[0] = '\0';
    return (hdo_call){.struct_size = sizeof(hdo_call),
                      .node = t->node,
                      .step = t->step,
                      .seed = 1,
                      .message = t->message,
                      .message_cap = sizeof t->message};
}

static float *point(const suite *t, int k) {
    return t->x + (size_t)k * t->ld;
}

static int loss_at(suite *t, const float *x, double *out) {
    hdo_call c = call_of(t);
    *out = (double)NAN;
    return t->d->loss != NULL ? t->d->loss(t->user, &c, &t->s, x, out)
                              : t->d->losses(t->user, &c, &t->s, x, t->ld, 1, out);
}

static void untouched(suite *t, const char *what) {
    bool same = memcmp(t->x, t->keep, (size_t)POINTS * t->ld * sizeof(float)) == 0;
    hdo__verdict(t->v, same, "x is const", "%s wrote to the points it was given", what);
    memcpy(t->x, t->keep, (size_t)POINTS * t->ld * sizeof(float));
}

/* ---- the start, and points around it ---- */

static bool try_start(suite *t) {
    bool finite = true, same = true;
    int result = 0;
    for (int k = 0; k < 2 && t->d->start != NULL; k++) {
        t->node = t->step = -1;
        hdo_call c = call_of(t);
        result = t->d->start(t->user, &c, k == 0 ? t->x : t->g);
        if (result != 0) break;
    }
    for (size_t j = 0; j < t->dim; j++) {
        finite = finite && isfinite((double)t->x[j]) != 0;
        same = same && (t->d->start == NULL || memcmp(&t->x[j], &t->g[j], sizeof(float)) == 0);
    }
    hdo__verdict(t->v, result == 0, "start", "returned %d: %s", result, t->message);
    hdo__verdict(t->v, finite && same, "start", "is not finite, or not the same every time");
    return result == 0 && finite;
}

static void lay_out(suite *t) {
    double size = 0.0;
    for (size_t j = 0; j < t->dim; j++) size = fmax(size, fabs((double)t->x[j]));
    for (int k = 0; k < POINTS; k++) {
        float *x = point(t, k), *u = t->u + (size_t)k * t->ld;
        hdo__rng_normal(hdo__stream(5, HDO_RNG_PROBLEM, (uint32_t)k, 0, 0), 0, t->dim, u);
        for (size_t j = 0; j < t->dim; j++) x[j] = t->x[j] + (float)(k > 0 ? 0.1 * (0.1 + size) : 0.0) * u[j];
        for (size_t j = t->dim; j < t->ld; j++) x[j] = u[j] = NAN;
    }
    memcpy(t->keep, t->x, (size_t)POINTS * t->ld * sizeof(float));
}

/* ---- losses ---- */

static bool try_loss(suite *t) {
    bool finite = true, same = true;
    int result = 0;
    for (int k = 0; k < POINTS && result == 0; k++) {
        result = loss_at(t, point(t, k), &t->f[k]);
        finite = finite && isfinite(t->f[k]) != 0;
    }
    hdo__verdict(t->v, result == 0, "loss", "returned %d: %s", result, t->message);
    if (result != 0) return false;
    hdo__verdict(t->v, finite, "loss", "is not finite at the start or near it, or x is read beyond dim");
    for (int k = POINTS - 1; k >= 0; k--) { /* another order, with others in between */
        double again, other;
        t->node = 1, t->step = 9;
        (void)loss_at(t, point(t, (k + 3) % POINTS), &other);
        t->node = t->step = 0;
        same = loss_at(t, point(t, k), &again) == 0 && again == t->f[k] && same;
    }
    hdo__verdict(t->v, same, "pure", "the loss at the same x, samples, seed, node and step is not the same every time");
    untouched(t, "loss");
    return finite && same;
}

static void try_losses(suite *t) {
    static const int sizes[SIZES] = {1, 2, 3, POINTS};
    if (t->d->losses == NULL) return;
    bool same = true;
    for (int i = 0; i < SIZES; i++) {
        for (int first = 0; first < POINTS; first += sizes[i]) {
            double f[POINTS + 1];
            int n = POINTS - first < sizes[i] ? POINTS - first : sizes[i];
            f[n] = 42.0;
            hdo_call c = call_of(t);
            same = t->d->losses(t->user, &c, &t->s, point(t, first), t->ld, n, f) == 0 && f[n] == 42.0 && same;
            for (int k = 0; k < n; k++) same = same && f[k] == t->f[first + k];
        }
    }
    hdo__verdict(t->v, same, "losses", "points in groups of 1, 2, 3 and %d do not all give the bits of single ones",
                 POINTS);
    untouched(t, "losses");
}

/* ---- derivatives ---- */

/* The smallest error of central differences over some steps, in units of a typical slope |g|. */
static double difference_error(suite *t, const float *x, const float *u, double slope, double scale) {
    double best = (double)INFINITY;
    for (double h = 1.0; h > 1e-5; h *= 0.1) {
        double up, down, taken = 0.0;
        float far = (float)h;
        for (size_t j = 0; j < t->dim; j++) t->h[j] = x[j] + far * u[j];
        bool fine = loss_at(t, t->h, &up) == 0;
        for (size_t j = 0; j < t->dim; j++) t->h[j] = x[j] - far * u[j];
        fine = loss_at(t, t->h, &down) == 0 && fine;
        taken = 2.0 * (double)far;
        if (fine) best = fmin(best, fabs((up - down) / taken - slope));
    }
    return best / scale;
}

static void try_gradient(suite *t) {
    if (t->d->gradient == NULL) return;
    bool loss = true, same = true, finite = true;
    double worst = 0.0;
    for (int k = 0; k < POINTS; k++) {
        const float *x = point(t, k), *u = t->u + (size_t)k * t->ld;
        double f = (double)NAN, again;
        hdo_call c = call_of(t);
        loss =
            t->d->gradient(t->user, &c, &t->s, x, &f, t->g) == 0 && fabs(f - t->f[k]) <= 1e-6 * (1.0 + fabs(f)) && loss;
        memset(t->h, 0x5a, t->ld * sizeof(float));
        c = call_of(t);
        same = t->d->gradient(t->user, &c, &t->s, x, &again, t->h) == 0 && same;
        same = same && memcmp(t->g, t->h, t->dim * sizeof(float)) == 0;
        double size = sqrt(hdo__dot(t->dim, t->g, t->g));
        finite = finite && isfinite(size) != 0;
        worst = fmax(worst, difference_error(t, x, u, hdo__dot(t->dim, t->g, u), fmax(size, 1e-12)));
    }
    hdo__verdict(t->v, loss, "gradient's loss", "is not that of loss");
    hdo__verdict(t->v, same && finite, "gradient", "is not finite, or not the same every time");
    hdo__verdict(t->v, worst < 2e-2, "gradient against differences",
                 "slopes differ from those of central differences by up to %.2g of |gradient|", worst);
    untouched(t, "gradient");
}

static void try_slopes(suite *t) {
    if (t->d->slopes == NULL) return;
    bool fine = true, grouped = true;
    double worst = 0.0;
    for (int k = 0; k < POINTS; k++) {
        const float *x = point(t, k);
        double f = (double)NAN, all[POINTS], one = 0.0, size = 0.0;
        hdo_call c = call_of(t);
        fine = t->d->slopes(t->user, &c, &t->s, x, t->u, t->ld, POINTS, &f, all) == 0 && fine;
        fine = fine && fabs(f - t->f[k]) <= 1e-6 * (1.0 + fabs(f));
        c = call_of(t);
        (void)t->d->slopes(t->user, &c, &t->s, x, t->u + (size_t)k * t->ld, t->ld, 1, &f, &one);
        for (int i = 0; i < POINTS; i++) size += all[i] * all[i] / POINTS;
        grouped = grouped && fabs(one - all[k]) <= 1e-5 * sqrt(size) + 1e-300;
        worst = fmax(worst, difference_error(t, x, t->u + (size_t)k * t->ld, all[k], fmax(sqrt(size), 1e-12)));
    }
    hdo__verdict(t->v, fine, "slopes", "failed, or their loss is not that of loss");
    hdo__verdict(t->v, grouped, "slopes in groups", "a direction by itself has another slope than among others");
    hdo__verdict(t->v, worst < 2e-2, "slopes against differences",
                 "they differ from central differences by up to %.2g of a typical slope", worst);
    untouched(t, "slopes");
}

static void try_metrics(suite *t) {
    if (t->d->metrics == NULL) return;
    hdo_samples train = t->s;
    double f = 0.0, sum = 0.0;
    int64_t correct = 0;
    t->node = t->step = -1;
    t->s.train = 0;
    if (t->s.index == NULL) t->s.count = 0;
    hdo_call c = call_of(t);
    int result = t->d->metrics(t->user, &c, &t->s, t->x, &sum, &correct);
    bool fine = result == 0 && loss_at(t, t->x, &f) == 0;
    double want = f * (double)(t->s.count > 0 ? t->s.count : 1);
    hdo__verdict(t->v, fine && fabs(sum - want) <= 1e-5 * (1.0 + fabs(want)), "metrics",
                 "the sum of losses is %.9g, but loss times samples is %.9g", sum, want);
    hdo__verdict(t->v, correct >= 0 && correct <= (t->s.count > 0 ? t->s.count : 0), "metrics",
                 "%lld correct answers of %d samples", (long long)correct, t->s.count);
    t->s = train;
    t->node = t->step = 0;
}

/* ---- threads ---- */

typedef struct worker {
    suite t; /* a copy with room of its own */
    bool same;
} worker;

static void *work_often(void *p) {
    worker *w = p;
    w->same = true;
    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < POINTS; k++) {
            double f;
            w->same = loss_at(&w->t, point(&w->t, k), &f) == 0 && f == w->t.f[k] && w->same;
        }
    return NULL;
}

static void try_threads(suite *t) {
    worker *w = calloc(THREADS, sizeof *w);
    pthread_t id[THREADS];
    bool same = w != NULL;
    int n = 0;
    for (; w != NULL && n < THREADS; n++) {
        w[n].t = *t;
        if (pthread_create(&id[n], NULL, work_often, &w[n]) != 0) break;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(id[i], NULL);
        same = same && w[i].same;
    }
    free(w);
    hdo__verdict(t->v, same, "threads", "four threads at once get other losses than one; HDO_ANY_THREAD does not hold");
}

/* ---- all of it ---- */

static void run_suite(suite *t) {
    if (!try_start(t)) return;
    lay_out(t);
    t->node = t->step = 0;
    if (!try_loss(t)) return;
    try_losses(t);
    try_gradient(t);
    try_slopes(t);
    try_metrics(t);
    if ((t->d->flags & (unsigned)HDO_ANY_THREAD) != 0) try_threads(t);
}

/* The problem of a configuration with this table, and a batch of it. */
static hdo_status with_problem(suite *t, hdo_config *c, hdo_error *e) {
    hdo_problem p = {0};
    hdo_arena a = {0};
    hdo_status st = hdo__problem_open(&p, c, e);
    if (st == HDO_OK && hdo__arena_init(&a, hdo__problem_batch_bytes(&p, SAMPLES) + 4096) != HDO_OK)
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory for a batch");
    float *room = st == HDO_OK ? calloc((3 * POINTS + 2) * t->ld, sizeof *room) : NULL;
    if (st == HDO_OK && room == NULL) st = hdo__fail(e, HDO_E_MEMORY, "out of memory for points");
    if (st == HDO_OK) {
        hdo_batch b = hdo__problem_batch(&p, 0, SAMPLES, 0, 0, &a);
        t->s = hdo__own_samples(&b);
        t->x = room;
        t->keep = room + (size_t)POINTS * t->ld;
        t->u = room + 2 * (size_t)POINTS * t->ld;
        t->g = room + 3 * (size_t)POINTS * t->ld;
        t->h = t->g + t->ld;
        run_suite(t);
    }
    free(room);
    hdo__arena_clear(&a);
    hdo__problem_close(&p);
    return st;
}

hdo_status hdo_test_objective(const hdo_objective_def *def, void *user, const hdo_config *c, char **report,
                              hdo_error *e) {
    if (report != NULL) *report = NULL;
    if (def == NULL) return hdo__misuse(e, "hdo_test_objective", "a table");
    hdo_config *own = c != NULL ? hdo_config_copy(c) : hdo_config_new(NULL, e);
    hdo_verdicts *v = calloc(1, sizeof *v);
    suite *t = calloc(1, sizeof *t);
    hdo_objective_def d = {0};
    memcpy(&d, def, def->struct_size < sizeof d ? def->struct_size : sizeof d);
    d.destroy = NULL;
    hdo_status st = own == NULL || v == NULL || t == NULL ? hdo__fail(e, HDO_E_MEMORY, "out of memory")
                                                          : hdo_config_use_objective(own, &d, user, e);
    if (st == HDO_OK) {
        *t = (suite){.d = &d, .user = user, .v = v, .dim = d.dim, .ld = d.dim + GAP};
        st = with_problem(t, own, e);
    }
    if (st == HDO_OK) st = hdo__verdicts_end(v, d.name, report, e);
    free(t);
    free(v);
    hdo_config_free(own);
    return st;
}
