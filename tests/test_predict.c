/* SPDX-License-Identifier: Apache-2.0 — predictions against runs of quadratics, where the calculus should be exact. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hdo/lab/predict.h"
#include "study_help.h"

enum { SEEDS = 12 };

/* Mean over seeds of the loss of the mean model and of the nodes, with the standard error of the first. */
static void run_seeds(const hdo_config *c, double *mu, double *nodes, double *se) {
    hdo_config *r = malloc(sizeof *r);
    double sum = 0.0, sum2 = 0.0;
    *nodes = 0.0;
    for (int s = 0; s < SEEDS; s++) {
        hdo_run *run = NULL;
        hdo_error e = {0};
        hdo_stop why = HDO_RUNNING;
        *r = *c;
        hdo_config_as_base(r);
        r->seed = 100 + s;
        r->eval = (hdo_eval_config){.mean_model = true};
        if (hdo_run_create(&run, r, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
        while (why == HDO_RUNNING) assert_int_equal(hdo_run_advance(run, 1000, &why, &e), HDO_OK);
        assert_int_equal(why, HDO_COMPLETED);
        double v = hdo_run_last_row(run)->mu_loss;
        sum += v;
        sum2 += v * v;
        *nodes += hdo_run_last_row(run)->all.loss_mean / SEEDS;
        hdo_run_destroy(run);
    }
    *mu = sum / SEEDS;
    *se = sqrt((sum2 / SEEDS - *mu * *mu) / (SEEDS - 1.0));
    free(r);
}

static void predict(const hdo_config *c, hdo_prediction *p) {
    hdo_predictor *q = NULL;
    hdo_error e = {0};
    if (hdo_predictor_create(&q, c, NULL, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    if (hdo_predict(q, c, p, &e) != HDO_OK) fail_msg("%s", e.msg);
    hdo_predictor_destroy(q);
}

/* Within 4 standard errors and 10% of the noise: the noise itself is measured with 3 random vectors. */
static void compare(const char *name, const hdo_config *c) {
    hdo_prediction p;
    double mu, nodes, se;
    predict(c, &p);
    run_seeds(c, &mu, &nodes, &se);
    if (fabs(p.val_loss_mu - mu) > 4.0 * se + 0.1 * p.noise_mu)
        fail_msg("%s: mean model %g predicted, %g +- %g measured", name, p.val_loss_mu, mu, se);
    if (fabs(p.spread - (nodes - mu)) > 0.15 * (nodes - mu) + 1e-9)
        fail_msg("%s: spread %g predicted, %g measured", name, p.spread, nodes - mu);
}

static void base(hdo_config *c, const char *mixing, int fo, int zo) {
    quad_config(c, &(quad_case){.mixing = mixing,
                                .estimator = "forward",
                                .fo = fo,
                                .zo = zo,
                                .rv = 8,
                                .lr = 0.05,
                                .ell = 1e-3,
                                .noise = 1.0,
                                .start = 0.3,
                                .steps = 400});
    c->model.dim = 60;
    c->threads = 1;
}

static void matching(void **state) {
    (void)state;
    hdo_config c;
    base(&c, "matching", 4, 12);
    compare("hybrid", &c);
    base(&c, "matching", 0, 12);
    compare("zeroth order", &c);
    base(&c, "matching", 8, 0);
    compare("first order", &c);
}

static void other_meetings(void **state) {
    (void)state;
    hdo_config c;
    base(&c, "matching", 4, 8);
    set(&c, "mixing.period", "4");
    compare("period 4", &c);
    base(&c, "pairwise", 4, 8);
    c.steps = 2400;
    compare("pairwise", &c);
    base(&c, "allreduce", 4, 8);
    compare("allreduce", &c);
}

static void other_rates(void **state) {
    (void)state;
    hdo_config c;
    base(&c, "matching", 4, 8);
    set(&c, "warmup", "40");
    set(&c, "population.zo.schedule", "cosine");
    set(&c, "population.fo.schedule", "cosine");
    set(&c, "population.zo.lr", "0.02");
    compare("warm-up, cosine, unequal rates", &c);
    base(&c, "matching", 4, 8);
    set(&c, "population.fo.momentum", "0.8");
    set(&c, "population.zo.momentum", "0.8");
    compare("momentum", &c);
}

static void ratios_and_limits(void **state) {
    (void)state;
    hdo_config c;
    hdo_prediction p;
    base(&c, "matching", 4, 12);
    predict(&c, &p);
    assert_string_equal(p.population, "4fo+12zo");
    assert_true(p.stable);
    assert_true(fabs(p.cls[0].noise_ratio - 1.0) < 1e-9);
    assert_true(p.cls[1].noise_ratio > 1.1);
    assert_true(fabs(p.cls[0].lr_max - 2.0) < 0.01); /* 2 / L */
    assert_true(p.cls[1].lr_max < p.cls[0].lr_max);
    assert_true(fabs(p.cls[0].share + p.cls[1].share - 1.0) < 1e-9);
    assert_true(p.cls[0].effective_dim > 1.0);
    assert_true(p.cls[0].effective_dim < 60.0);
}

/* The rates it calls best lower the noise as much as it says, at the same pace. */
static void best_rates(void **state) {
    (void)state;
    hdo_config c;
    hdo_prediction p, q;
    base(&c, "matching", 4, 12);
    predict(&c, &p);
    assert_true(p.noise_best < 0.98 * p.noise_mu);
    for (int k = 0; k < 2; k++) c.population[k].lr.arg = p.cls[k].lr_best;
    predict(&c, &q);
    assert_true(fabs(q.pace - p.pace) < 1e-9);
    assert_true(fabs(q.noise_mu - p.noise_best) < 0.02 * p.noise_best); /* second orders of the loop gain */
    compare("best rates", &c);
    char *text = hdo_predictions_json(&p, 1);
    assert_non_null(strstr(text, "\"predictions\": ["));
    assert_non_null(strstr(text, "\"population\": \"4fo+12zo\""));
    assert_null(strstr(text, "nan"));
    free(text);
}

/* Three times the limit of a class diverges, a third of it does not. */
static void the_limit_is_one(void **state) {
    (void)state;
    hdo_config c;
    hdo_prediction p;
    for (int fo = 0; fo < 2; fo++) {
        base(&c, "matching", fo ? 8 : 0, fo ? 0 : 8);
        c.population[fo ? 0 : c.n_classes - 1].rv = 2;
        predict(&c, &p);
        int k = fo ? 0 : p.n_classes - 1;
        double limit = p.cls[k].lr_max;
        for (int side = 0; side < 2; side++) {
            hdo_run *run = NULL;
            hdo_error e = {0};
            hdo_stop why = HDO_RUNNING;
            hdo_config r = c;
            hdo_config_as_base(&r);
            for (int i = 0; i < r.n_classes; i++) r.population[i].lr.arg = limit * (side ? 3.0 : 1.0 / 3.0);
            if (hdo_run_create(&run, &r, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
            while (why == HDO_RUNNING) assert_int_equal(hdo_run_advance(run, 1000, &why, &e), HDO_OK);
            if (why != (side ? HDO_DIVERGED : HDO_COMPLETED))
                fail_msg("fo %d: rate %g, limit %g: %s", fo, r.population[k].lr.arg, limit, hdo_stop_name(why));
            hdo_run_destroy(run);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(matching),         cmocka_unit_test(other_meetings),
                                       cmocka_unit_test(other_rates),      cmocka_unit_test(ratios_and_limits),
                                       cmocka_unit_test(the_limit_is_one), cmocka_unit_test(best_rates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
