/* SPDX-License-Identifier: Apache-2.0 — a population as the calculus sees it: paces, noises, meetings, limits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/predict/predict_internal.h"

static hdo_status make_class(const hdo_config *c, int k, int64_t samples, hdo_crowd_class *o, hdo_error *e) {
    const hdo_class_config *q = &c->population[k];
    const hdo_estimator_ops *ops = hdo__estimator_of(c, q->estimator);
    if (ops == NULL) return hdo__fail(e, HDO_E_CONFIG, "estimator '%s' does not exist", q->estimator);
    if (q->lr.id == HDO_LR_THEOREM) {
        return hdo__fail(e, HDO_E_CONFIG, "population.%s.lr is 'theorem': give the rate as a number to predict with",
                         q->name);
    }
    *o = (hdo_crowd_class){.count = (int)q->count,
                           .batch = (double)q->batch,
                           .zeroth = ops->zeroth && !(ops->axes && q->coords == 0),
                           .blocks = q->directions.id == HDO_DIRECTIONS_PER_TENSOR,
                           .shared = q->streams.id == HDO_STREAMS_SHARED,
                           .rv = (double)(ops->axes ? q->coords : q->rv),
                           .weight = 1.0,
                           .momentum = q->momentum,
                           .lr = q->lr};
    snprintf(o->name, sizeof o->name, "%s", q->name);
    o->gain = q->momentum_kind.id == HDO_MOMENTUM_HEAVY_BALL ? 1.0 / (1.0 - q->momentum) : 1.0;
    int64_t nodes = c->data.split.id == HDO_SPLIT_SHARED ? 1 : q->count;
    if (c->data.split.id == HDO_SPLIT_SINGLE) {
        nodes = 0;
        for (int i = 0; i < c->n_classes; i++) nodes += c->population[i].count;
    }
    o->shard = nodes > 0 ? (double)samples / (double)nodes : (double)samples;
    o->schedule = (hdo_schedule){.kind = q->schedule.id, .lr = q->lr.arg, .warmup = c->warmup, .steps = c->steps};
    return q->schedule.id == HDO_SCHEDULE_FILE ? hdo__schedule_load(&o->schedule, q->schedule_file, e) : HDO_OK;
}

hdo_status hdo__crowd_make(const hdo_config *c, int64_t horizon, int64_t samples, hdo_crowd *out, hdo_error *e) {
    *out = (hdo_crowd){.n_classes = c->n_classes, .part = 1.0, .period = c->mixing.period, .warmup = c->warmup};
    out->total = c->warmup + (horizon > 0 ? horizon : c->steps);
    hdo_status st = HDO_OK;
    for (int k = 0; k < c->n_classes && st == HDO_OK; k++) {
        st = make_class(c, k, samples, &out->cls[k], e);
        out->n += out->cls[k].count;
    }
    hdo_mixer m = {0};
    hdo_spectrum s = {0};
    if (st == HDO_OK) st = hdo__mixer_init_config(&m, c, out->n, e);
    int first[HDO_CLASSES_MAX] = {0};
    for (int k = 1; k < c->n_classes; k++) first[k] = first[k - 1] + out->cls[k - 1].count;
    if (st == HDO_OK && c->mixing.partners.id == HDO_PARTNERS_OWN && c->n_classes > 1)
        hdo__mixer_classes(&m, c->n_classes, first, c->mixing.partners.arg);
    if (st == HDO_OK) {
        if (out->n > 1 && hdo__mixer_spectrum(&m, &s) != HDO_OK)
            st = hdo__fail(e, HDO_E_MEMORY, "out of memory for the contraction of the mixing");
        out->lambda = out->n == 1 ? 0.0 : isfinite(s.lambda) ? s.lambda : 1.0;
        if (!m.ops->all_step) out->part = 2.0 / out->n;
        hdo__mixer_clear(&m);
    }
    if (st != HDO_OK) hdo__crowd_clear(out);
    return st;
}

static double entry(const hdo_crowd *w, int k, bool spread, int64_t t) {
    const hdo_crowd_class *c = &w->cls[k];
    double one = spread ? hdo__crowd_rate(w, k, t) : hdo__crowd_speed(w, k, t);
    if (!spread) return w->part * c->count * one * one;
    double m = c->momentum, l = w->lambda, memory = (1.0 - m) / (1.0 + m) * (1.0 + l * m) / (1.0 - l * m);
    double share = c->count / (double)w->n * (1.0 - 1.0 / w->n);
    /* a pair that steps and averages at once has half of both noises left, and is 2 of n */
    return share * one * one * memory * (w->part < 1.0 ? 1.0 / (w->n * fmax(l, 1e-12)) : 1.0);
}

hdo_status hdo__crowd_enter(hdo_crowd *w, hdo_error *e) {
    for (int k = 0; k < w->n_classes; k++) {
        for (int s = 0; s < 2; s++) {
            hdo__free(w->enter[k][s]);
            w->enter[k][s] = hdo__alloc((size_t)w->total * sizeof(double));
            if (w->enter[k][s] == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a prediction");
            for (int64_t t = 0; t < w->total; t++) w->enter[k][s][t] = entry(w, k, s == 1, t);
        }
    }
    return HDO_OK;
}

void hdo__crowd_clear(hdo_crowd *w) {
    for (int k = 0; k < w->n_classes; k++) {
        for (int s = 0; s < 2; s++) hdo__free(w->enter[k][s]);
    }
    for (int k = 0; k < w->n_classes; k++) hdo__schedule_clear(&w->cls[k].schedule);
}

double hdo__crowd_rate(const hdo_crowd *w, int k, int64_t t) {
    return hdo__schedule_lr(&w->cls[k].schedule, t) * w->cls[k].gain;
}

double hdo__crowd_speed(const hdo_crowd *w, int k, int64_t t) {
    double W = 0.0;
    for (int i = 0; i < w->n_classes; i++) W += w->cls[i].count * w->cls[i].weight;
    return w->cls[k].weight * hdo__crowd_rate(w, k, t) / W;
}

double hdo__crowd_pace(const hdo_crowd *w, int64_t t) {
    double sum = 0.0;
    for (int k = 0; k < w->n_classes; k++) sum += w->cls[k].count * hdo__crowd_speed(w, k, t);
    return w->part * sum;
}

bool hdo__crowd_meets(const hdo_crowd *w, int64_t t) {
    return t >= w->warmup && (t + 1) % (w->period > 0 ? w->period : 1) == 0;
}

double hdo__crowd_noise(const hdo_crowd_class *c, int k, const hdo_local *p, hdo_spectral_fn f, const void *ctx) {
    double left = c->batch < c->shard ? (c->shard - c->batch) / fmax(1.0, c->shard - 1.0) : 0.0; /* no replacement */
    if (!(c->shard > 0.0)) left = 1.0;                                                           /* no data at all */
    double data = hdo__local_noise(p, f, ctx) * left / c->batch;
    if (!c->zeroth) return data;
    double along = hdo__local_grad(p, f, ctx) + data, around = 0.0, gb2 = p->g2 + p->c2 * left / c->batch;
    if (c->blocks) {
        around = hdo__local_block(p, k, f, ctx);
    } else {
        around = gb2 * hdo__local_trace(p, f, ctx);
    }
    return data + (around + along) / c->rv;
}

/* ---- what diverges ---- */

/* Noise of directions is proportional to the batch gradient squared, which grows with the distance from the minimum: it
 * feeds on itself. A move d away from where the gradient is small adds d' E H_b^2 d to E|g_b|^2, with E H_b^2 =
 * H^2 + (E H_1^2 - H^2) / batch, and is forgotten by meeting others (the node) and by descent (the mean model). The
 * loop closes at the rate where one unit of noise makes one unit of noise. */
typedef struct loop {
    double rate, lambda, nodes, steps;
    bool twice; /* times l^2 */
} loop;

static double memory(const void *ctx, double l) {
    const loop *o = ctx;
    double keep = fmin(1.0, (1.0 - o->rate * l) * (1.0 - o->rate * l));
    double own = o->lambda * keep < 1.0 ? o->lambda / (1.0 - o->lambda * keep) : o->steps;
    double common = keep < 1.0 - 1e-12 ? (1.0 - pow(keep, o->steps)) / (1.0 - keep) : o->steps;
    return (fmin(own, o->steps) + common / o->nodes) * (o->twice ? l * l : 1.0);
}

static double unit(const void *ctx, double l) {
    (void)ctx;
    (void)l;
    return 1.0;
}
static double square(const void *ctx, double l) {
    (void)ctx;
    return l * l;
}

static double gain(const hdo_crowd_class *c, const hdo_local *p, double growth, loop o) {
    double one = hdo__local_change(p, memory, &o) / c->batch, rest = 1.0 - 1.0 / fmax(1.0, c->batch);
    double seen = hdo__local_change(p, unit, NULL) / c->batch + rest * hdo__local_trace(p, square, NULL);
    o.twice = true;
    double sum = one + rest * hdo__local_trace(p, memory, &o);
    if (growth > seen && seen > 0.0) sum *= growth / seen; /* kinks and higher orders, at the size of real steps */
    return o.rate * o.rate / c->rv * sum;
}

static loop loop_at(const hdo_crowd *w, const hdo_local *p, double rate) {
    bool alone = p->step < w->warmup; /* nobody meets; rates rise, so a third of the squares counts */
    return (loop){.rate = rate,
                  .lambda = alone ? 1.0 : pow(w->lambda, 1.0 / (double)(w->period > 0 ? w->period : 1)),
                  .nodes = alone ? HUGE_VAL : (double)w->n,
                  .steps = alone ? (double)w->warmup / 3.0 : (double)(w->total - w->warmup)};
}

double hdo__crowd_gain(const hdo_crowd *w, int k, int measured, const hdo_local *p, int64_t t) {
    const hdo_crowd_class *c = &w->cls[k];
    if (!c->zeroth || p->step < w->warmup) return 0.0;
    return gain(c, p, p->growth[measured], loop_at(w, p, hdo__crowd_rate(w, k, t)));
}

/* Batches bend differently: a step from d away of the minimum goes off by e (H_b - H) d, of squared length e^2 d' (E
 * H_1^2
 * - H^2) d / batch. Along the sharpest direction, with E H_1^2 about kappa H, the distance shrinks while
 * (1 - e l)^2 + e^2 l (kappa - l) / batch is below 1 (the node alone, or the mean of n with batch n times as large), or
 * below 1 / lambda (the node among others, which draw it back). */
static double batch_limit(const hdo_crowd *w, const hdo_crowd_class *c, const hdo_local *p) {
    double kappa = p->trace > 0.0 ? hdo__local_change(p, unit, NULL) / p->trace : 0.0, l = p->l_max;
    double more = fmax(0.0, kappa - l) / c->batch;
    bool alone = p->step < w->warmup || !(w->lambda < 1.0) || w->n == 1;
    if (alone) return 2.0 / (l + more);
    double lambda = pow(w->lambda, 1.0 / (double)(w->period > 0 ? w->period : 1));
    double a = l * (l + more), room = fmin(1.0 / fmax(lambda, 1e-3), 4.0) - 1.0; /* a e^2 - 2 l e - room < 0 */
    return fmin(2.0 / (l + more / w->n), (l + sqrt(l * l + a * room)) / a);
}

double hdo__crowd_limit(const hdo_crowd *w, int k, int measured, const hdo_local *p) {
    const hdo_crowd_class *c = &w->cls[k];
    double slower = (1.0 - c->momentum) / (1.0 + c->momentum);
    double top = p->l_max * slower * (c->zeroth ? 1.0 + 1.0 / c->rv : 1.0);
    double high = fmin(2.0 / top, batch_limit(w, c, p) / slower), low = 0.0;
    if (c->zeroth && p->l_max > 0.0) {
        loop o = loop_at(w, p, 0.0);
        for (int i = 0; i < 60; i++) {
            o.rate = 0.5 * (low + high);
            if (gain(c, p, p->growth[measured], o) < 1.0) {
                low = o.rate;
            } else {
                high = o.rate;
            }
        }
    }
    return high / c->gain;
}
