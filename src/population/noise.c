/* SPDX-License-Identifier: Apache-2.0
 *
 * Measured noise of a class of nodes, a = E|G - E G|^2 of one estimate, for `lr: balanced` and `average: noise`.
 *
 * docs/theory.md 3.8: with step sizes in the ratio eta0/eta1 = a1/a0 zeroth-order nodes always lower the noise of the
 * mean model. The noise is measured twice, at the start and at the end of the warm-up, from pairs of independent
 * estimates at the same model, a = E|G - G'|^2 / 2: no mean vector is needed. Batches and directions are addressed far
 * beyond the steps of the run, so measuring changes nothing else.
 */
#include <math.h>

#include "base/vec.h"
#include "population/population.h"

enum { NODES = 4, PAIRS = 8 }; /* of each class: 32 differences, about 25% standard error in the worst case d = 1 */
enum { SLOTS = 2 * NODES };
#define ROUNDING 1e-11 /* of |G|^2: less is the rounding of a batch in another order, not noise */
#define FAR_STEP                                                                                                       \
    INT64_C(0xF0000000) /* steps of a run stay below 2^32; config check keeps them below this when needed */

bool hdo__population_uses_noise(const hdo_population *p) {
    bool uses = p->problem->config->mixing.average.id == HDO_AVERAGE_NOISE;
    for (int k = 0; k < p->n_classes; k++) uses = uses || p->classes[k].balanced;
    return uses;
}

bool hdo__population_wants_noise(const hdo_population *p, int64_t step) {
    return hdo__population_uses_noise(p) && (step == 0 || step == p->problem->config->warmup);
}

bool hdo__population_has_auto(const hdo_population *p) {
    const hdo_mixing_config *m = &p->problem->config->mixing;
    bool any = m->average.id == HDO_AVERAGE_AUTO || m->partners.id == HDO_PARTNERS_AUTO;
    for (int k = 0; k < p->n_classes; k++) any = any || p->classes[k].chosen;
    return any;
}

enum { NEWEST = 4 };             /* steps that |G|^2 is a mean over, about */
static const double ALARM = 3.0; /* |G|^2 beyond that many times what was expected: look again */
static const double GROWN = 1.2; /* but not because of what was seen there */

/* Steps 0, W, and a geometric grid from both ends: curvature and noise change by orders of magnitude early, and towards
 * the end noise is no longer forgotten. */
static bool on_the_grid(const hdo_population *p, int64_t step) {
    const hdo_config *c = p->problem->config;
    int64_t left = c->warmup + c->steps - step;
    bool early = (step & (step - 1)) == 0;
    bool late = left == c->steps / 4 || left == c->steps / 8 || left == c->steps / 16;
    return step == c->warmup || early || (late && c->steps >= 64);
}

bool hdo__population_wants_tuning(const hdo_population *p, int64_t step) {
    if (!hdo__population_has_auto(p)) return false;
    bool alarm = false;
    for (int k = 0; k < p->n_classes && step % 2 == 0; k++)
        alarm = alarm || (p->classes[k].g2_expected > 0.0 && p->classes[k].g2 > ALARM * p->classes[k].g2_expected &&
                          p->classes[k].g2 > GROWN * p->classes[k].g2_seen);
    return on_the_grid(p, step) || alarm;
}

int64_t hdo__population_next_tuning(const hdo_population *p, int64_t step) {
    int64_t end = p->problem->config->warmup + p->problem->config->steps;
    for (step++; step < end && !on_the_grid(p, step);) step++;
    return step;
}

void hdo__population_follow_g2(hdo_population *p) {
    if (!hdo__population_has_auto(p)) return;
    double pace = 0.0, W = 0.0;
    for (int k = 0; k < p->n_classes; k++) {
        double weight = p->classes[k].count * hdo__population_weight(p, k);
        pace += weight * p->lr[k];
        W += weight;
    }
    p->tuned.way += pace / W * (p->mixer.ops->all_step ? 1.0 : 2.0 / p->n);
    for (int k = 0; k < p->n_classes; k++) {
        double sum = 0.0, n = 0.0;
        for (int i = p->classes[k].first; i < p->classes[k].first + p->classes[k].count; i++) {
            if (p->result[i].g2 == HDO_NO_ESTIMATE) continue;
            sum += p->result[i].g2;
            n += 1.0;
        }
        double *mean = &p->classes[k].g2;
        if (n > 0.0) *mean = *mean > 0.0 ? *mean + (sum / n - *mean) / NEWEST : sum / n;
    }
}

static hdo_status estimate(hdo_population *p, const hdo_class *c, int k, int node, int64_t number, hdo_work *w,
                           float *g) {
    size_t mark = hdo__arena_mark(w->arena);
    hdo_batch b = hdo__problem_batch(p->problem, node, c->batch, FAR_STEP + number, FAR_STEP + number, w->arena);
    hdo_request q = {.batch = &b,
                     .x = hdo__population_model(p, node),
                     .seed = (uint64_t)p->problem->config->seed,
                     .node = (uint32_t)node,
                     .step = FAR_STEP + number,
                     .eta = p->lr[k] > 0.0 ? p->lr[k] : c->schedule.lr,
                     .hurry = p->hurry,
                     .hurry_ctx = p->hurry_ctx};
    hdo_estimate_info info = {0};
    hdo_status st = b.status;
    if (st == HDO_OK) st = hdo__estimate(&c->estimator, p->problem->objective, &q, w, g, &info);
    hdo__arena_rewind(w->arena, mark);
    return st;
}

/* One slot per class and measured node, and one more for |G|^2; the others stay zero, so that a sum over ranks is
 * exact. */
static hdo_status measure(hdo_population *p, double sum[HDO_CLASSES_MAX][SLOTS]) {
    hdo_work w = {&p->team->arena[0], p->team, 0};
    size_t mark = hdo__arena_mark(w.arena);
    float *g = hdo__arena_floats(w.arena, p->problem->objective->d + p->problem->objective->n_buf);
    float *h = hdo__arena_floats(w.arena, p->problem->objective->d + p->problem->objective->n_buf);
    hdo_status st = HDO_OK;
    for (int k = 0; k < p->n_classes; k++) {
        const hdo_class *c = &p->classes[k];
        for (int i = 0; i < NODES && i < c->count; i++) {
            int node = c->first + i;
            if (!hdo__population_has(p, node)) continue;
            for (int j = 0; j < PAIRS && st == HDO_OK; j++) {
                st = estimate(p, c, k, node, 2 * j, &w, g);
                if (st == HDO_OK) st = estimate(p, c, k, node, 2 * j + 1, &w, h);
                sum[k][i] += 0.5 * hdo__distsq(p->problem->objective->d, g, h) / PAIRS;
                sum[k][NODES + i] += hdo__dot(p->problem->objective->d, g, g) / PAIRS;
            }
        }
    }
    hdo__arena_rewind(w.arena, mark);
    return st;
}

/* Every measured node is on one rank: sums over ranks are exact. */
static void add_own(void *ctx, void *v, size_t first, size_t count) {
    const double *own = ctx;
    for (size_t i = first; i < first + count; i++) ((double *)v)[i] += own[i];
}

hdo_status hdo__population_measure_noise(hdo_population *p, int64_t step, hdo_error *e) {
    double own[HDO_CLASSES_MAX][SLOTS] = {{0}}, sum[HDO_CLASSES_MAX][SLOTS] = {{0}};
    hdo_status st = measure(p, own);
    if (st != HDO_OK) hdo__problem_fail(p->problem, st, e, "the noise of the classes could not be measured");
    st = p->transport->ops->agree(p->transport, st, &(unsigned){0}, NULL, 0, e);
    if (st == HDO_OK) {
        st = p->transport->ops->relay(p->transport, sum, sizeof(double), HDO_CLASSES_MAX * SLOTS, add_own, own, e);
    }
    if (st != HDO_OK) return st;
    int reference = -1; /* the first class with a rate of its own */
    for (int k = 0; k < p->n_classes; k++) {
        hdo_class *c = &p->classes[k];
        int nodes = c->count < NODES ? c->count : NODES;
        double a = 0.0, size = 0.0;
        for (int i = 0; i < nodes; i++) {
            a += sum[k][i] / nodes;
            size += sum[k][NODES + i] / nodes;
        }
        if (!isfinite(a) || !(a > ROUNDING * size)) {
            return hdo__fail(e, HDO_E_UNSUPPORTED,
                             "class '%s' has no measurable noise (%g): `balanced` rates and `noise` weights need some",
                             p->problem->config->population[k].name, a);
        }
        c->noise = a;
        if (reference < 0 && !c->balanced) reference = k;
    }
    for (int k = 0; k < p->n_classes; k++) {
        hdo_class *c = &p->classes[k];
        if (!c->balanced) continue;
        const hdo_class *ref = &p->classes[reference];
        c->schedule.lr = ref->schedule.lr * ref->noise / c->noise;
        hdo__log(p->log, HDO_LOG_INFO, "balanced: noise of '%s' is %.4g times that of '%s'; its lr is %.4g (step %lld)",
                 p->problem->config->population[k].name, c->noise / ref->noise,
                 p->problem->config->population[reference].name, c->schedule.lr, (long long)step);
    }
    return HDO_OK;
}
