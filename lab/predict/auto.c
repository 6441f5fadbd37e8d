/* SPDX-License-Identifier: Apache-2.0
 *
 * Rates, weights and partners while a run goes on. The problem is looked at where the mean model is; rates.c has the
 * choice. Three things keep a class from going too fast:
 *
 *   what the curvature allows     half of 2 / l_max for the mean model, half of the class's own limit (crowd.c)
 *   what is to come               l_max is asked for again at the end of some steps of descent at the chosen pace
 *   what the run shows            noise that makes noise: with gain q the nodes' |G|^2 are 1 / (1 - q) times what the
 * mean model says, and q grows like the square of the rate
 *
 * Everything follows from the mean model, the nodes' |G|^2 and the configuration by sums of fixed order: every rank
 * finds the same numbers, and a checkpoint holds what is carried from one look to the next.
 */
#include <math.h>
#include <string.h>

#include "lab/predict/predict_internal.h"

static const double SAFE_MEAN = 0.75;          /* of 2 / l_max: the pace of the mean model */
static const double SAFE_NODE[2] = {1.0, 0.5}; /* of the largest stable rate of a node: first order, zeroth order */
static const double KINKS = 0.2;               /* of its limit, for a zeroth-order class: not less because of kinks */
static const double EARLY = 0.25;              /* of the run */
static const double HOPE = 0.5;                /* of the loss, when the way grows e-fold */
static const double LEAST = 0.05;
static const double FIRST = 0.25; /* of the pace that the curvature at the start allows */
static const double FASTER = 2.0; /* at most, from one look to the next */
static const double WORSE = 1.05; /* times the loss at the last look: too fast */
static const double SEEN = 0.3;   /* a smaller gain is not seen beside the scatter */
static const double PLAIN = 0.6;  /* a larger one is not to be argued with */
static const double OWN = 0.25;   /* of its limit: a slower class has its large |G| from others */
enum { SAMPLES_AUTO = 256, SAMPLES_LARGE = 128, PRODUCTS_AUTO = 6, AHEAD = 8, PRODUCTS_AHEAD = 4, LARGE = 20000 };

static double unit(const void *ctx, double l) {
    (void)ctx;
    (void)l;
    return 1.0;
}

/* E|G|^2 of a node at the mean model. */
static double expected(const hdo_crowd_class *c, int k, const hdo_local *p) {
    double gb2 = p->g2 + p->c2 / c->batch;
    if (!c->zeroth) return gb2;
    double around = c->blocks ? hdo__local_block(p, k, unit, NULL) : gb2 * (double)p->live;
    return gb2 + (around + gb2) / c->rv;
}

/* Kinks: a step of a zeroth-order node crosses many, and bends more than any product with H shows. Its limit by the
 * descent of one step, 2 / (l_max + |g_b|^2 / |g|^2 tr(H) / rv), with the trace that a step of this size sees. */
static hdo_status kink_limit(hdo_lens *l, const hdo_crowd_class *c, hdo_local *p, double *limit, hdo_error *e) {
    double gb2 = p->g2 + p->c2 / c->batch, rate = *limit, most = *limit;
    hdo_status st = HDO_OK;
    for (int i = 0; i < 3 && st == HDO_OK; i++) { /* a smaller step sees fewer kinks */
        double bends = 0.0, s = rate * sqrt(gb2 / c->rv);
        st = hdo__lens_bend(l, p, s, &bends, e);
        if (!isfinite(bends)) bends = HUGE_VAL;
        double all = 2.0 / (p->l_max + gb2 / p->g2 * fmax(p->trace, bends) / c->rv) / c->gain;
        most = fmin(*limit, fmax(KINKS * *limit, all)); /* but not for the part that the data leave for good */
        if (i == 2) p->bulk = fmax(p->bulk, fmax(0.0, fmin(bends, 1e6 * p->trace) - p->trace));
        rate = sqrt(rate * fmax(most, 1e-6 * rate));
    }
    *limit = most;
    return st;
}

/* Rate of class k at which one unit of noise makes one unit of noise, or descent overshoots. */
static hdo_status limit_of(hdo_lens *l, const hdo_crowd *w, int k, hdo_local *p, double *out, hdo_error *e) {
    const hdo_run *r = l->run;
    const hdo_crowd_class *c = &w->cls[k];
    const hdo_class *q = &r->population.classes[k];
    double limit = hdo__crowd_limit(w, k, k, p);
    hdo_status st = HDO_OK;
    if (c->zeroth && c->count > 0 && r->problem.objective->kink != NULL) st = kink_limit(l, c, p, &limit, e);
    double rate = r->population.lr[k], seen = q->g2 > 0.0 ? q->g2 / expected(c, k, p) : 0.0;
    double gain = seen > 1.0 ? 1.0 - 1.0 / seen : 0.0;
    if (gain > SEEN && (rate > OWN * limit || gain > PLAIN)) /* the gain grows like the square of the rate */
        limit = fmin(limit, rate / sqrt(gain));
    *out = limit;
    return st;
}

/* l_max after some steps of descent at that pace. */
static hdo_status ahead(hdo_lens *l, double *x, double pace, int64_t steps, double *l_max, hdo_error *e) {
    size_t d = l->run->problem.objective->d;
    double *y = hdo__alloc(2 * d * sizeof *y), *g = y + d;
    hdo_quadrature *q = hdo__alloc(sizeof *q);
    hdo_status st = y == NULL || q == NULL ? hdo__fail(e, HDO_E_MEMORY, "out of memory for `auto`") : HDO_OK;
    *l_max = 0.0;
    if (st == HDO_OK) memcpy(y, x, d * sizeof *y);
    for (int64_t t = 0; t < steps && t < AHEAD && st == HDO_OK; t++) {
        st = hdo__lens_grad(l, l->idx, l->n, y, g, NULL, e);
        for (size_t j = 0; j < d && st == HDO_OK; j++) y[j] -= pace * g[j];
    }
    if (st == HDO_OK) st = hdo__lens_top(l, y, PRODUCTS_AHEAD, q, e);
    if (st == HDO_OK && q->n > 0) *l_max = q->node[q->n - 1];
    if (st == HDO_E_FAILED) { /* not finite: far too fast */
        *l_max = HUGE_VAL;
        st = HDO_OK;
    }
    hdo__free(y);
    hdo__free(q);
    return st;
}

/* Steps of full rate from `from` on, before `to`. */
static double full_steps(const hdo_run *r, int64_t from, int64_t to) {
    hdo_schedule s = r->population.classes[0].schedule;
    double sum = 0.0;
    s.lr = 1.0;
    for (int64_t t = from; t < to; t++) sum += s.n_points > 0 ? 1.0 : hdo__schedule_lr(&s, t);
    return fmax(1e-3, sum);
}

static void set_partners(hdo_run *r, const hdo_crowd *w, const hdo_local *p, const hdo_rates *best) {
    hdo_meeting m = {.n_classes = w->n_classes};
    double pace = hdo__rates_pace(w, best), gain, slope;
    hdo_horizon all = {0};
    slope = sqrt(fmax(0.0, hdo__local_grad(p, hdo__itself, &all)));
    for (int k = 0; k < w->n_classes; k++) {
        const hdo_crowd_class *c = &w->cls[k];
        double e = best->rate[k];
        m.count[k] = c->count;
        m.weight[k] = best->weight[k];
        m.speed[k] = best->weight[k] * e;
        m.noise[k] = c->count > 0 ? e * e * hdo__crowd_noise(c, k, p, hdo__itself, &all) : 0.0;
        if (c->zeroth) m.noise[k] += e * e * p->bulk * (p->g2 + p->c2 / c->batch) / c->rv;
        m.drift[k] = (pace - e) * slope;
    }
    r->population.mixer.own = hdo__meet_share(&m, &gain);
    hdo__log(&r->log, HDO_LOG_INFO, "auto: %.3g of the meetings inside the classes: spread %.3g times (step %lld)",
             r->population.mixer.own, gain, (long long)r->progress.step);
}

static void put(hdo_run *r, const hdo_auto *a, const hdo_local *p, const hdo_rates *best) {
    for (int k = 0; k < a->crowd->n_classes; k++) {
        hdo_class *c = &r->population.classes[k];
        const hdo_crowd_class *q = &a->crowd->cls[k];
        if (q->count == 0) continue;
        if (c->chosen) c->schedule.lr = best->rate[k] / q->gain;
        if (a->weights) c->noise = 1.0 / best->weight[k];
        c->g2_expected = expected(q, k, p);
        c->g2_seen = c->g2;
        hdo__log(&r->log, HDO_LOG_INFO,
                 "auto: '%s' has lr %.4g (at most %.4g), weight %.4g, noise %.4g, |G|^2 %.3g of what the mean "
                 "model says (step %lld)",
                 q->name, c->schedule.lr, a->limit[k] / q->gain, best->weight[k], a->noise[k] / a->noise[0],
                 c->g2 > 0.0 ? c->g2 / c->g2_expected : 1.0, (long long)r->progress.step);
    }
    if (r->config.mixing.partners.id == HDO_PARTNERS_AUTO) set_partners(r, a->crowd, p, best);
}

/* How the loss falls with the way, from this look and the last one. Early in a run a great deal is hoped for. */
static void learning_curve(const hdo_run *r, double loss, hdo_auto *a) {
    const hdo_tuned *t = &r->population.tuned;
    a->way = fmax(t->way, 1e-6 * a->top);
    double longer = t->seen_way > 0.0 ? log(a->way / t->seen_way) : 0.0;
    double slope = longer > 0.0 ? (t->seen_loss - loss) / longer : 0.0;
    if (t->slope > 0.0) { /* longer pieces tell more */
        double share = 0.5 * fmin(1.0, longer / log(2.0));
        slope = share * slope + (1.0 - share) * t->slope;
    }
    a->slope = fmax(slope, (a->early ? HOPE : LEAST) * fabs(loss));
}

static hdo_status prepare(hdo_lens *l, hdo_auto *a, hdo_local *p, hdo_error *e) {
    const hdo_crowd *w = a->crowd;
    const hdo_run *r = l->run;
    int64_t now = r->progress.step, end = r->config.warmup + r->config.steps,
            next = hdo__population_next_tuning(&r->population, now);
    if (!(p->l_max > 0.0))
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "the loss has no curvature here: `auto` has nothing to go by, give numbers");
    a->ahead = (next < end ? next : end) - now;
    a->steps = full_steps(r, now, end);
    a->so_far = now > 0 ? full_steps(r, 0, now) : 0.0;
    a->weights = r->config.mixing.average.id == HDO_AVERAGE_AUTO;
    a->top = 2.0 * SAFE_MEAN / p->l_max;
    a->early = (double)now < EARLY * (double)end;
    for (int k = 0; k < w->n_classes; k++) {
        a->before.rate[k] = r->population.classes[k].schedule.lr * w->cls[k].gain;
        a->before.weight[k] = hdo__population_weight(&r->population, k);
    }
    double pace = hdo__rates_pace(w, &a->before);
    const hdo_tuned *t = &r->population.tuned;
    if (a->early) a->top = fmin(a->top, now == 0 ? FIRST * a->top : FASTER * pace);
    if (now > 0 && p->loss > WORSE * t->seen_loss) a->top = fmin(a->top, pace / FASTER);
    learning_curve(r, p->loss, a);
    hdo_horizon h = {a->top, a->steps};
    for (int k = 0; k < w->n_classes; k++) {
        const hdo_class *c = &r->population.classes[k];
        a->given[k] = c->chosen ? 0.0 : c->schedule.lr * w->cls[k].gain;
        a->noise[k] = hdo__crowd_noise(&w->cls[k], k, p, hdo__learnt, &h);
        hdo_status st = limit_of(l, w, k, p, &a->stable[k], e);
        if (st != HDO_OK) return st;
        a->stable[k] *= w->cls[k].gain;
        a->limit[k] = SAFE_NODE[w->cls[k].zeroth] * a->stable[k];
        if (now > 0) a->limit[k] = fmin(a->limit[k], FASTER * a->before.rate[k]);
        if (w->cls[k].count > 0 && !(isfinite(a->noise[k]) && a->noise[k] > 0.0))
            return hdo__fail(e, HDO_E_UNSUPPORTED,
                             "class '%s' has no measurable noise: `auto` rates and weights need some", w->cls[k].name);
    }
    return HDO_OK;
}

static hdo_status choose(hdo_run *r, hdo_lens *l, hdo_crowd *w, hdo_local *p, double *x, hdo_error *e) {
    hdo_auto a = {.crowd = w};
    hdo_rates best;
    double l_max;
    if (r->progress.step > 0 && !(p->l_max > 0.0)) { /* flat: nothing to go by, so more slowly */
        for (int k = 0; k < w->n_classes; k++) {
            if (r->population.classes[k].chosen) r->population.classes[k].schedule.lr /= FASTER;
        }
        hdo__log(&r->log, HDO_LOG_INFO, "auto: the loss has no curvature here: half the rates (step %lld)",
                 (long long)r->progress.step);
        return HDO_OK;
    }
    hdo_status st = prepare(l, &a, p, e);
    if (st != HDO_OK) return st;
    for (int round = 0; round < 3; round++) { /* again while the curvature to come is larger than thought */
        hdo__rates_best(&a, p, &best);
        double pace = hdo__rates_pace(w, &best);
        if (!a.early) break;
        st = ahead(l, x, pace, a.ahead, &l_max, e);
        if (st != HDO_OK || !(pace * l_max > 2.0 * SAFE_MEAN)) break;
        double less = fmax(0.125, 2.0 * SAFE_MEAN / (pace * l_max));
        a.top = pace * less;
        for (int k = 0; k < w->n_classes; k++) a.limit[k] = fmin(a.limit[k], fmax(a.top, a.limit[k] * less));
    }
    if (st == HDO_OK) put(r, &a, p, &best);
    r->population.tuned = (hdo_tuned){r->population.tuned.way, a.way, p->loss, a.slope};
    return st;
}

hdo_status hdo_auto_tune(hdo_run *r, hdo_error *e) {
    size_t d = r->problem.objective->d;
    hdo_predict_options opt = {.samples = d > LARGE ? SAMPLES_LARGE : SAMPLES_AUTO, .products = PRODUCTS_AUTO};
    hdo_lens lens = {0};
    hdo_crowd w = {0};
    hdo_local *p = hdo__alloc(sizeof *p);
    double *x = hdo__alloc(d * sizeof *x);
    hdo_status st = p == NULL || x == NULL ? hdo__fail(e, HDO_E_MEMORY, "out of memory for `auto`") : HDO_OK;
    if (st == HDO_OK) st = hdo__population_mean(&r->population, NULL, e); /* the mean model */
    if (st == HDO_OK) st = hdo__lens_init(&lens, r, &opt, NULL, e);
    if (st == HDO_OK) {
        lens.quick = lens.still = true;
        lens.probes = lens.noises = d > LARGE ? 1 : 2;
        for (size_t j = 0; j < d; j++) x[j] = (double)r->population.mean.model[j];
        st = hdo__lens_look(&lens, x, p, e);
        p->step = r->progress.step;
    }
    if (st == HDO_OK && !p->gradient)
        st = hdo__fail(e, HDO_E_UNSUPPORTED, "`auto` needs gradients, and this model has none");
    if (st == HDO_OK)
        st = hdo__crowd_make(&r->config, 0, r->problem.train != NULL ? r->problem.train->count : 0, &w, e);
    if (st == HDO_OK) {
        for (int k = 0; k < w.n_classes; k++) w.cls[k].schedule.lr = r->population.classes[k].schedule.lr;
        st = choose(r, &lens, &w, p, x, e);
        hdo__crowd_clear(&w);
    }
    if (lens.run != NULL) hdo__lens_clear(&lens);
    hdo__free(p);
    hdo__free(x);
    return st;
}
