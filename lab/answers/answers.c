/* SPDX-License-Identifier: Apache-2.0 — questions of other languages: see <hdo/lab/answers.h>. */
#include "hdo/lab/answers.h"

#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/fail.h"
#include "hdo/lab/check.h"
#include "hdo/lab/predict.h"

static char *out_of_memory(hdo_error *e) {
    hdo__fail(e, HDO_E_MEMORY, "out of memory for an answer");
    return NULL;
}

char *hdo_lab_check(const hdo_config *c, hdo_error *e) {
    hdo_check_options how = hdo_check_default();
    hdo_check_result *r = malloc(sizeof *r);
    if (r == NULL) return out_of_memory(e);
    hdo_status st = hdo_check(c, &how, r, e);
    if (st == HDO_OK) st = hdo_check_horizon(c, r, e);
    if (st == HDO_OK) st = hdo_check_try(c, &how, r, e);
    char *text = st == HDO_OK ? hdo_check_json(r) : NULL;
    free(r);
    return st == HDO_OK && text == NULL ? out_of_memory(e) : text;
}

char *hdo_lab_predict(const hdo_config *base, const char *const *population, int64_t horizon, hdo_error *e) {
    int named = 0;
    while (population != NULL && population[named] != NULL) named++;
    int n = named > 0 ? named : 1;
    hdo_config *c = malloc(sizeof *c);
    hdo_prediction *p = calloc((size_t)n, sizeof *p);
    hdo_predictor *q = NULL;
    char *text = NULL;
    hdo_status st = c != NULL && p != NULL ? HDO_OK : HDO_E_MEMORY;
    if (st == HDO_OK) st = hdo_predictor_create(&q, base, &(hdo_predict_options){.horizon = horizon}, NULL, e);
    for (int i = 0; i < n && st == HDO_OK; i++) {
        *c = *base; /* borrows tables of one's own */
        if (named > 0) st = hdo_config_population(c, population[i], e);
        if (st == HDO_OK) st = hdo_predict(q, c, &p[i], e);
    }
    if (st == HDO_OK) text = hdo_predictions_json(p, n);
    hdo_predictor_destroy(q);
    if (c == NULL || p == NULL || (st == HDO_OK && text == NULL)) out_of_memory(e);
    free(c);
    free(p);
    return text;
}

/* ---- plans ---- */

#define AT(member) offsetof(hdo_fleet, member)
static const struct plan_word {
    const char *name;
    size_t at;
    char type; /* i: int, d: double */
    double unit;
} plan_words[] = {
    {"fo", AT(fo), 'i', 1},
    {"zo", AT(zo), 'i', 1},
    {"rv", AT(rv_max), 'i', 1},
    {"seeds", AT(sim_seeds), 'i', 1},
    {"fo-speed", AT(fo_speed), 'd', 1},
    {"zo-speed", AT(zo_speed), 'd', 1},
    {"memory", AT(memory), 'd', 1e6},
    {"bandwidth", AT(bandwidth), 'd', 1e6},
    {"latency", AT(latency), 'd', 1},
    {"time", AT(time), 'd', 1},
    {"fo-joules", AT(fo_joules), 'd', 1},
    {"zo-joules", AT(zo_joules), 'd', 1},
    {"traffic", AT(traffic), 'd', 1e6},
    {"energy", AT(energy), 'd', 1},
    {NULL, 0, 0, 0},
};

static hdo_status read_fleet(const char *const *option, hdo_fleet *f, hdo_error *e) {
    *f = (hdo_fleet){.rv_max = 256, .fo_speed = 1.0, .zo_speed = 3.0, .sim_seeds = 10};
    for (int i = 0; option != NULL && option[i] != NULL; i += 2) {
        const struct plan_word *w = plan_words;
        while (w->name != NULL && strcmp(w->name, option[i]) != 0) w++;
        if (w->name == NULL) return hdo__fail(e, HDO_E_CONFIG, "a plan has no option '%.64s'", option[i]);
        char *end = NULL;
        double v = option[i + 1] != NULL ? strtod(option[i + 1], &end) : 0.0;
        if (option[i + 1] == NULL || end == option[i + 1] || *end != '\0' || !(v >= 0.0 && v <= 1e18))
            return hdo__fail(e, HDO_E_CONFIG, "option '%s' of a plan takes a number, 0 or more", w->name);
        int whole = v < 1e9 ? (int)v : 1000000000;
        double real = v * w->unit;
        memcpy((char *)f + w->at, w->type == 'i' ? (const void *)&whole : (const void *)&real,
               w->type == 'i' ? sizeof whole : sizeof real);
    }
    if (f->fo < 1 || f->zo < 1 || f->rv_max < 1 || !(f->fo_speed > 0.0) || !(f->zo_speed > 0.0))
        return hdo__fail(e, HDO_E_CONFIG, "a plan needs fo and zo, 1 or more each; speeds and rv are above 0");
    return HDO_OK;
}

char *hdo_lab_plan(const hdo_config *c, const char *const *option, hdo_error *e) {
    hdo_fleet fleet;
    if (read_fleet(option, &fleet, e) != HDO_OK) return NULL;
    hdo_plan_answer *a = malloc(sizeof *a);
    if (a == NULL) return out_of_memory(e);
    hdo_status st = hdo_plan_answer_find(c, &fleet, NULL, a, e);
    char *text = st == HDO_OK ? hdo_plan_answer_json(a) : NULL;
    free(a);
    return st == HDO_OK && text == NULL ? out_of_memory(e) : text;
}

hdo_status hdo_lab_run_open(hdo_run **run, const hdo_config *c, const char *dir, hdo_error *e) {
    return hdo_run_open_tuned(run, c, dir, hdo_auto_tune, e);
}
