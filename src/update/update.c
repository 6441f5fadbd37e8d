/* SPDX-License-Identifier: Apache-2.0 — schedules, momentum, the step. */
#include "update/update.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/explog.h"
#include "base/vec.h"
#include "hdo/experimental/formulas.h"

/* Linear between the points of the file, constant before the first and after the last. */
static double from_points(const hdo_schedule *s, double t) {
    const double *p = s->point;
    int k = 0;
    while (k + 1 < s->n_points && p[2 * (k + 1)] <= t) k++;
    if (t <= p[2 * k] || k + 1 == s->n_points) return p[2 * k + 1];
    double f = (t - p[2 * k]) / (p[2 * k + 2] - p[2 * k]);
    return p[2 * k + 1] + f * (p[2 * k + 3] - p[2 * k + 1]);
}

double hdo__schedule_lr(const hdo_schedule *s, int64_t t) {
    if (t < s->warmup) return s->lr * (double)(t + 1) / (double)s->warmup;
    if (s->n_points > 0) return from_points(s, (double)(t - s->warmup));
    bool ahead = s->kind == HDO_SCHEDULE_COSINE_AUTHORS; /* their scheduler has moved on once before step W */
    if ((s->kind == HDO_SCHEDULE_COSINE || ahead) && s->steps > 0) {
        double pi = 3.14159265358979323846;
        return s->lr * 0.5 * (1.0 + hdo__cos(pi * (double)(t - s->warmup + ahead) / (double)s->steps));
    }
    return s->lr;
}

/* Room for one more point. */
static bool reserve(hdo_schedule *s, int *cap) {
    if (s->n_points < *cap) return true;
    int more = *cap == 0 ? 16 : 2 * *cap;
    double *p = hdo__alloc(2 * (size_t)more * sizeof(double));
    if (p == NULL) return false;
    if (s->n_points > 0) memcpy(p, s->point, 2 * (size_t)s->n_points * sizeof(double));
    hdo__free(s->point);
    s->point = p;
    *cap = more;
    return true;
}

hdo_status hdo__schedule_load(hdo_schedule *s, const char *path, hdo_error *e) {
    enum { POINTS_MAX = 100000 };
    FILE *f = fopen(path, "r");
    if (f == NULL) return hdo__fail(e, HDO_E_CONFIG, "cannot read the schedule file '%s': %s", path, strerror(errno));
    char text[256];
    int cap = 0;
    hdo_status st = HDO_OK;
    for (int line = 1; st == HDO_OK && fgets(text, sizeof text, f) != NULL; line++) {
        double step, rate;
        char rest;
        text[strcspn(text, "#\n")] = '\0';
        if (text[strspn(text, " \t\r")] == '\0') continue;
        double last = s->n_points > 0 ? s->point[2 * s->n_points - 2] : -1.0;
        if (sscanf(text, "%lf %lf %c", &step, &rate, &rest) != 2 || !isfinite(step) || !isfinite(rate)) {
            st = hdo__fail(e, HDO_E_CONFIG, "%s:%d: expected \"step rate\", got '%.60s'", path, line, text);
        } else if (step < 0.0 || rate < 0.0 || step <= last) {
            st = hdo__fail(e, HDO_E_CONFIG, "%s:%d: steps must rise from 0 and rates must not be negative", path, line);
        } else if (s->n_points == POINTS_MAX) {
            st = hdo__fail(e, HDO_E_CONFIG, "%s: more than %d lines", path, POINTS_MAX);
        } else if (!reserve(s, &cap)) {
            st = hdo__fail(e, HDO_E_MEMORY, "out of memory for the schedule '%s'", path);
        } else {
            s->point[2 * s->n_points] = step;
            s->point[2 * s->n_points + 1] = rate;
            s->n_points++;
        }
    }
    fclose(f);
    if (st == HDO_OK && s->n_points == 0) st = hdo__fail(e, HDO_E_CONFIG, "the schedule file '%s' has no points", path);
    if (st == HDO_OK) s->lr = s->point[1]; /* what the warm-up rises to */
    return st;
}

void hdo__schedule_clear(hdo_schedule *s) {
    hdo__free(s->point);
    s->point = NULL;
    s->n_points = 0;
}

/* ---- the step: one walk over memory, tile by tile, in pieces that are the tasks of the team ---- */

enum { PIECE = 32768, TILE = 2048 }; /* floats; G, mom and x of a tile meet in the first-level cache */

typedef struct update_job {
    const hdo_update *u;
    size_t d;
    hdo_ranges zero;
    float lr, gain;
    float *x, *G, *mom;
    double *norm2; /* per piece */
} update_job;

static size_t piece_count(size_t d) {
    return (d + PIECE - 1) / PIECE;
}

size_t hdo__update_work_bytes(size_t d) {
    return hdo__arena_round(piece_count(d) * sizeof(double));
}

static void update_task(void *ctx, int task, hdo_work *w) {
    const update_job *j = ctx;
    size_t off = (size_t)task * PIECE, end = j->d - off < PIECE ? j->d : off + PIECE;
    double norm2 = 0.0;
    (void)w;
    for (size_t n; (n = hdo__outside(j->zero, &off, end, TILE)) > 0; off += n) {
        float *x = j->x + off, *g = j->G + off;
        norm2 += hdo__sumsq(n, g);
        if (j->u->weight_decay > 0.0) hdo__axpy(n, (float)j->u->weight_decay, x, g);
        if (j->mom != NULL) {
            hdo__axpby(n, j->gain, g, (float)j->u->momentum, j->mom + off); /* mom = gain G + m mom */
            g = j->mom + off;
        }
        hdo__axpy(n, -j->lr, g, x);
    }
    j->norm2[task] = norm2;
}

double hdo__update_apply(const hdo_update *u, double lr, const hdo_move *m, hdo_work *w) {
    size_t mark = hdo__arena_mark(w->arena), pieces = piece_count(m->d);
    double gain = u->momentum_kind == HDO_MOMENTUM_EMA ? 1.0 - u->momentum : 1.0, norm2 = 0.0;
    update_job j = {.u = u, .d = m->d, .zero = m->zero, .lr = (float)lr, .gain = (float)gain};
    j.x = m->x;
    j.G = m->G;
    j.mom = m->momentum;
    if (u->weight_decay > 0.0) {
        hdo__ranges_clear(m->zero, 0, m->d, m->G);
        j.zero.n = 0;
    }
    if (pieces == 1) { /* very many small models: no more than the walk itself */
        j.norm2 = &norm2;
        update_task(&j, 0, w);
        return norm2;
    }
    j.norm2 = hdo__arena_doubles(w->arena, pieces);
    hdo__team_run(w->team, (int)pieces, update_task, &j);
    for (size_t k = 0; k < pieces; k++) norm2 += j.norm2[k];
    hdo__arena_rewind(w->arena, mark);
    return norm2;
}

double hdo_theorem_rate(bool pairs, double n, double T, double ell) {
    return (pairs ? 4.0 * n : 8.0) * hdo__log(T) / (T * ell);
}

double hdo__newest_weight(double rate, double t) {
    return rate < 1.0 ? -rate / hdo__expm1(t * hdo__log1p(-rate)) : 1.0;
}
