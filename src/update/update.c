/* SPDX-License-Identifier: Apache-2.0 — schedules, momentum, the step. */
#include "update/update.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/vec.h"

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
    if (s->kind == HDO_SCHEDULE_COSINE && s->steps > 0) {
        double pi = 3.14159265358979323846;
        return s->lr * 0.5 * (1.0 + cos(pi * (double)(t - s->warmup) / (double)s->steps));
    }
    return s->lr;
}

hdo_status hdo__schedule_load(hdo_schedule *s, const char *path, hdo_error *e) {
    enum { POINTS_MAX = 100000 };
    FILE *f = fopen(path, "r");
    if (f == NULL) return hdo__fail(e, HDO_E_CONFIG, "cannot read the schedule file '%s': %s", path, strerror(errno));
    s->point = hdo__alloc(2 * POINTS_MAX * sizeof(double));
    if (s->point == NULL) {
        fclose(f);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the schedule '%s'", path);
    }
    char text[256];
    hdo_status st = HDO_OK;
    for (int line = 1; st == HDO_OK && fgets(text, sizeof text, f) != NULL; line++) {
        double step, rate, *p = s->point + 2 * s->n_points;
        char rest;
        text[strcspn(text, "#\n")] = '\0';
        if (text[strspn(text, " \t\r")] == '\0') continue;
        if (sscanf(text, "%lf %lf %c", &step, &rate, &rest) != 2 || !isfinite(step) || !isfinite(rate)) {
            st = hdo__fail(e, HDO_E_CONFIG, "%s:%d: expected \"step rate\", got '%.60s'", path, line, text);
        } else if (step < 0.0 || rate < 0.0 || (s->n_points > 0 && step <= p[-2])) {
            st = hdo__fail(e, HDO_E_CONFIG, "%s:%d: steps must rise from 0 and rates must not be negative", path, line);
        } else if (s->n_points == POINTS_MAX) {
            st = hdo__fail(e, HDO_E_CONFIG, "%s: more than %d lines", path, POINTS_MAX);
        } else {
            p[0] = step;
            p[1] = rate;
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

void hdo__update_apply(const hdo_update *u, size_t d, double lr, float *x, float *G, float *mom) {
    if (u->weight_decay > 0.0) hdo__axpy(d, (float)u->weight_decay, x, G);
    if (mom != NULL) {
        double gain = u->momentum_kind == HDO_MOMENTUM_EMA ? 1.0 - u->momentum : 1.0;
        hdo__axpby(d, (float)gain, G, (float)u->momentum, mom); /* mom = gain G + m mom */
        G = mom;
    }
    hdo__axpy(d, (float)-lr, G, x);
}
