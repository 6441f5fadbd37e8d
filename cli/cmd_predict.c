/* SPDX-License-Identifier: Apache-2.0 — hdo predict: what populations will reach, said before they run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_theory.h"
#include "hdo/lab/predict.h"
#include "hdo/lab/report.h"

enum { ROWS = 4096 };

typedef struct predict_options {
    cli_common common;
    const char *output;
    cli_list population;
    bool run;
    int64_t seeds;
    hdo_predict_options how;
} predict_options;

#define AT(member) offsetof(predict_options, member)
static const cli_option options[] = {
    {"population", 0, CLI_LIST, "P", "24fo+256zo; several times for several populations (default: the configuration's)",
     .target = AT(population)},
    {"horizon", 0, CLI_INT, "T", "steps after the warm-up (default: steps of the configuration)",
     .target = AT(how.horizon), .lo = 1, .hi = 1 << 30},
    {"run", 0, CLI_FLAG, NULL, "run them too, and print the measured losses beside the predicted ones",
     .target = AT(run)},
    {"seeds", 0, CLI_INT, "N", "with --run: this many seeds (default 1)", .target = AT(seeds), .lo = 1, .hi = 10000},
    {"output", 'o', CLI_TEXT, "BASE",
     "a figure: predicted bands (mean model to mean over nodes), with --run the measured curves", .target = AT(output)},
    {"samples", 0, CLI_INT, "N", "training samples that curvature is measured on (default: by size)",
     .target = AT(how.samples), .lo = 2, .hi = 1e12},
    {"products", 0, CLI_INT32, "N", "products with the Hessian for one start vector (default: by size)",
     .target = AT(how.products), .lo = 1, .hi = 96},
    {.name = NULL},
};

typedef struct measured { /* of one population, means over seeds */
    int n, seeds, diverged;
    double step[ROWS], mu[ROWS], mean[ROWS];
    double last_mu, last_mean, se_mu;
    int at; /* row of the present run */
} measured;

static void keep_row(void *ctx, const hdo_row *row) {
    measured *m = ctx;
    if (m->at >= ROWS) return;
    m->step[m->at] = (double)row->step;
    m->mu[m->at] += row->mu_loss;
    m->mean[m->at] += row->all.loss_mean;
    m->at++;
}

static unsigned asked(void *ctx) {
    (void)ctx;
    return cli_signal() != 0 ? HDO_ASK_STOP : 0;
}

static hdo_status run_one(hdo_config *c, const predict_options *o, measured *m, hdo_error *e) {
    double sum = 0.0, sum2 = 0.0;
    int64_t seed = c->seed;
    hdo_status st = HDO_OK;
    c->eval.mean_model = true;
    if (o->how.horizon > 0) c->steps = o->how.horizon;
    for (int s = 0; s < o->seeds && st == HDO_OK && cli_signal() == 0; s++) {
        hdo_run *r = NULL;
        hdo_stop why = HDO_RUNNING;
        hdo_hooks hooks = {.ctx = m, .row = keep_row, .asked = asked};
        c->seed = seed + s;
        m->at = 0;
        st = hdo_run_create(&r, c, &hooks, e);
        while (st == HDO_OK && why == HDO_RUNNING) st = hdo_run_advance(r, 100, &why, e);
        if (st == HDO_OK && why == HDO_COMPLETED) {
            const hdo_row *row = hdo_run_last_row(r);
            sum += row->mu_loss;
            sum2 += row->mu_loss * row->mu_loss;
            m->last_mean += row->all.loss_mean;
            m->seeds++;
            m->n = m->at;
        } else if (why == HDO_DIVERGED) {
            m->diverged++;
        }
        hdo_run_destroy(r);
    }
    double n = m->seeds;
    m->last_mu = n > 0.0 ? sum / n : (double)NAN;
    m->last_mean = n > 0.0 ? m->last_mean / n : (double)NAN;
    m->se_mu = n > 1.0 ? sqrt(fmax(0.0, (sum2 - sum * sum / n) / (n - 1.0) / n)) : (double)NAN;
    for (int i = 0; i < m->n; i++) {
        m->mu[i] /= m->seeds + m->diverged;
        m->mean[i] /= m->seeds + m->diverged;
    }
    c->seed = seed;
    return st;
}

static void print_all(const hdo_config *c, const hdo_prediction *p, const measured *m, int n) {
    cli_style s = cli_style_for(stdout);
    printf("%sProblem%s   %s, %lld steps; loss of descent without noise %.5g\n\n", s.bold, s.off, c->model.name,
           (long long)p->horizon, p->val_loss_free);
    printf("  %-20s %10s %10s %10s %10s%s\n", "population", "mean model", "noise", "nodes", "spread",
           m != NULL ? "   measured: mean model, nodes" : "");
    for (int i = 0; i < n; i++) {
        printf("  %-20s %10.5g %10.3g %10.5g %10.3g", p[i].population, p[i].val_loss_mu, p[i].noise_mu,
               p[i].val_loss_mean, p[i].spread);
        if (m != NULL && m[i].seeds > 0) {
            printf("   %10.5g", m[i].last_mu);
            if (isfinite(m[i].se_mu)) printf(" +- %.2g", m[i].se_mu);
            printf(" %10.5g", m[i].last_mean);
        }
        if (m != NULL && m[i].diverged > 0) printf("   %d of the runs diverged", m[i].diverged);
        printf("%s\n", p[i].stable ? "" : "   NOT STABLE");
    }
    printf("\n  %-20s %-8s %6s %10s %10s %10s %10s %11s %8s\n", "", "class", "nodes", "lr", "lr best", "lr max",
           "noise", "dimension", "share");
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < p[i].n_classes; k++) {
            const hdo_predicted_class *q = &p[i].cls[k];
            printf("  %-20s %-8s %6d %10.3g %10.3g %10.3g %10.3g %11.1f %7.1f%%\n", k == 0 ? p[i].population : "",
                   q->name, q->count, q->lr, q->lr_best, q->lr_max, q->noise_ratio, q->effective_dim, 100.0 * q->share);
        }
    }
    printf(
        "\n(noise: of one node beside a first-order node, where it has been learnt; share: of the class in the noise\n"
        "of the mean model; lr best: least noise at the same pace. A local model, not a bound: docs/prediction.md.)\n");
}

static hdo_status draw(const predict_options *o, hdo_prediction *p, measured *m, int n, hdo_error *e) {
    hdo_curve *c = calloc((size_t)(2 * n), sizeof *c);
    double *block = calloc((size_t)n * (2 * HDO_PREDICT_POINTS + ROWS), sizeof *block), *zero = block;
    if (c == NULL || block == NULL) {
        free(c);
        free(block);
        *e = (hdo_error){.code = HDO_E_MEMORY, .msg = "out of memory for a figure"};
        return HDO_E_MEMORY;
    }
    zero += (size_t)n * 2 * HDO_PREDICT_POINTS; /* standard errors of measured curves: not drawn */
    int count = 0;
    for (int i = 0; i < n; i++) {
        double *mid = block + (size_t)i * 2 * HDO_PREDICT_POINTS, *half = mid + HDO_PREDICT_POINTS;
        for (int k = 0; k < p[i].n_points; k++) {
            mid[k] = 0.5 * (p[i].mu[k] + p[i].mean[k]);
            half[k] = 0.5 * (p[i].mean[k] - p[i].mu[k]);
        }
        c[count] = (hdo_curve){.n_runs = 2, .n_points = p[i].n_points, .x = p[i].step, .mean = mid, .se = half};
        snprintf(c[count++].label, HDO_LABEL_MAX, "%.40s, predicted", p[i].population);
        if (m == NULL || m[i].n == 0) continue;
        c[count] = (hdo_curve){.n_runs = 1, .n_points = m[i].n, .x = m[i].step, .mean = m[i].mu, .se = zero};
        snprintf(c[count++].label, HDO_LABEL_MAX, "%.40s, mean model", p[i].population);
    }
    hdo_figure f = {.title = "predicted, and measured",
                    .x_label = "steps",
                    .y_label = "validation loss",
                    .log_y = true,
                    .curves = c,
                    .n_curves = count};
    hdo_status st = hdo_figure_write(&f, o->output, HDO_FORMAT_SVG | HDO_FORMAT_PNG | HDO_FORMAT_PDF, e);
    free(c);
    free(block);
    return st;
}

/* The document of the library, and what was measured behind it. */
static void print_json(const hdo_prediction *p, const measured *m, int n) {
    char *text = hdo_predictions_json(p, n), *end = text != NULL ? strrchr(text, '}') : NULL;
    if (end == NULL) return;
    if (m == NULL) {
        puts(text);
    } else {
        *end = '\0';
        while (end > text && (end[-1] == '\n' || end[-1] == ' ')) *--end = '\0';
        printf("%s,\n  \"measured\": [", text);
        for (int i = 0; i < n; i++) {
            char b[3][HDO_NUMBER_MAX];
            printf("%s\n    {\"population\": \"%s\", \"seeds\": %d, \"diverged\": %d, \"val_loss_mu\": %s, "
                   "\"val_loss_mu_se\": %s, \"val_loss_mean\": %s}",
                   i > 0 ? "," : "", p[i].population, m[i].seeds, m[i].diverged, hdo_json_number(m[i].last_mu, b[0]),
                   hdo_json_number(m[i].se_mu, b[1]), hdo_json_number(m[i].last_mean, b[2]));
        }
        printf("\n  ]\n}\n");
    }
    free(text);
}

static hdo_status work(const predict_options *o, const hdo_config *base, hdo_config *c, hdo_prediction *p, measured *m,
                       int n, hdo_error *e) {
    cli_study_progress progress = {0};
    hdo_study_hooks hooks = {.ctx = &progress, .tick = cli_study_tick};
    hdo_predictor *q = NULL;
    hdo_status st = hdo_predictor_create(&q, base, &o->how, &hooks, e);
    for (int i = 0; i < n && st == HDO_OK; i++) {
        *c = *base;
        if (o->population.n > 0) st = hdo_config_population(c, o->population.item[i], e);
        if (st == HDO_OK) st = hdo_predict(q, c, &p[i], e);
        if (st == HDO_OK && m != NULL) st = run_one(c, o, &m[i], e);
    }
    cli_study_end(&progress);
    hdo_predictor_destroy(q);
    return st;
}

static int predict(void *ctx, hdo_config *base) {
    const predict_options *o = ctx;
    int n = o->population.n > 0 ? o->population.n : 1;
    hdo_config *c = malloc(sizeof *c);
    hdo_prediction *p = calloc((size_t)n, sizeof *p);
    measured *m = o->run ? calloc((size_t)n, sizeof *m) : NULL;
    hdo_error e = {.code = HDO_E_MEMORY, .msg = "out of memory for a prediction"};
    hdo_status st = HDO_E_MEMORY;
    cli_catch_signals();
    if (c != NULL && p != NULL && (m != NULL || !o->run)) st = work(o, base, c, p, m, n, &e);
    if (st == HDO_OK && o->common.json) print_json(p, m, n);
    if (st == HDO_OK && !o->common.json) print_all(base, p, m, n);
    if (st == HDO_OK && o->output != NULL) st = draw(o, p, m, n, &e);
    free(c);
    free(p);
    free(m);
    return st == HDO_OK ? 0 : cli_study_fail(&e);
}

static int run_predict(int argc, char **argv) {
    predict_options o = {0};
    int code = cli_parse(&cmd_predict, argc, argv, &o);
    if (code >= 0) return code;
    if (o.seeds > 0 && !o.run) return cli_usage_error("predict", "--seeds is for --run, which was not asked for");
    if (o.seeds == 0) o.seeds = 1;
    return cli_with_config(o.common.word[0], &o.common, predict, &o);
}

const cli_command cmd_predict = {
    .name = "predict",
    .summary = "what populations will reach, said before they run",
    .run = run_predict,
    .usage = "CONFIG|PRESET [--population P]... [OPTIONS]",
    .about =
        "Predicts the loss that populations will reach: of their mean model, of the mean over the nodes, the noise "
        "ratio and the largest stable rate of every class. One descent without noise is made for every pace, "
        "curvature and noise are measured along it. A local model, not a bound: docs/prediction.md says how good "
        "it is, and where it fails.",
    .options = options,
    .common = CLI_SET | CLI_THREADS | CLI_JSON | CLI_TALK,
    .examples = "hdo predict e2 --population 24fo --population 256zo --population 24fo+256zo",
    .presets = true,
    .least = 1,
    .most = 1,
    .missing = "which problem? Give a YAML file or a preset, for example: hdo predict e2",
    .single = "one configuration at a time",
    .size = sizeof(predict_options),
};
