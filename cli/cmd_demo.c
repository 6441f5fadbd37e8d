/* SPDX-License-Identifier: Apache-2.0
 *
 * hdo demo: a hybrid population against its mono-type parts, over several seeds, on data it generates itself; with the
 * reason why the theory expects the hybrid to win here, and an honest verdict on whether it did.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "hdo/lab/report.h"
#include "hdo/lab/theory.h"

enum { PARTS = 3, SEEDS_MAX = 64 };

typedef struct demo_options {
    cli_common common;
    const char *output;
    int64_t seeds;
} demo_options;

#define AT(member) offsetof(demo_options, member)
static const cli_option options[] = {
    {"output", 'o', CLI_TEXT, "DIR", "folder for runs and figure (default: demo)", .target = AT(output)},
    {"seeds", 0, CLI_INT, "N", "seeds per population (default: 8)", .target = AT(seeds), .lo = 2, .hi = SEEDS_MAX},
    {.name = NULL},
};

typedef struct part {
    const char *population, *what;
    double loss[SEEDS_MAX], acc;
    double mean, se, noise; /* noise: of the mean model, in units of one first-order node; from theory */
} part;

static hdo_status run_one(const hdo_config *c, const char *dir, cli_progress *progress, part *p, int seed,
                          hdo_error *e) {
    hdo_run *r = NULL;
    hdo_stop why = HDO_RUNNING;
    hdo_status st = hdo_run_create(&r, c, NULL, e);
    if (st == HDO_OK) st = hdo_run_attach_dir(r, dir, true, "hdo demo", e);
    while (st == HDO_OK && why == HDO_RUNNING && cli_signal() == 0) {
        st = hdo_run_advance(r, 25, &why, e);
        if (st == HDO_OK) cli_progress_step(progress, hdo_run_step(r), hdo_run_last_row(r));
    }
    if (st == HDO_OK && why == HDO_RUNNING) st = hdo_run_stop(r, e);
    if (st == HDO_OK) st = hdo_run_write_summary(r, e);
    if (st == HDO_OK) {
        p->loss[seed] = hdo_run_last_row(r)->mu_loss;
        p->acc += hdo_run_last_row(r)->mu_acc;
    }
    hdo_run_destroy(r);
    return st;
}

static void summarise(part *p, int seeds) {
    double var = 0.0;
    for (int s = 0; s < seeds; s++) p->mean += p->loss[s] / seeds;
    for (int s = 0; s < seeds; s++) var += (p->loss[s] - p->mean) * (p->loss[s] - p->mean);
    p->se = seeds > 1 ? sqrt(var / (seeds - 1) / seeds) : 0.0;
    p->acc /= seeds;
}

/* Paired over seeds: the populations of one seed share their start and their data. */
static double paired_z(const part *a, const part *b, int seeds) {
    double mean = 0.0, var = 0.0;
    for (int s = 0; s < seeds; s++) mean += (b->loss[s] - a->loss[s]) / seeds;
    for (int s = 0; s < seeds; s++) var += (b->loss[s] - a->loss[s] - mean) * (b->loss[s] - a->loss[s] - mean);
    return seeds > 1 && var > 0.0 ? mean / sqrt(var / (seeds - 1) / seeds) : 0.0;
}

static void explain(const hdo_config *c, size_t d, part *p) {
    double n1 = (double)c->population[0].count, n0 = (double)c->population[1].count, n = n0 + n1;
    double a0 = 1.0 + ((double)d + 1.0) / (double)c->population[1].rv; /* noise of a ZO node, in units of a FO node's */
    hdo_zo_help h = hdo_theory_zo_help((int)n0, (int)n1, a0, 1.0, 0.0, 0.0, false);
    p[0].noise = 1.0 / n1;
    p[1].noise = a0 / n0;
    p[2].noise = (n0 * a0 + n1) / (n * n);
    printf(
        "\nWhy: a zeroth-order node with rv = %lld random vectors in d = %zu dimensions is %.2f times as noisy as a\n"
        "first-order node. Adding %g of them to %g first-order nodes lowers the noise of the average model as long as\n"
        "that ratio is below 2 + n0/n1 = %.2f, i.e. rv > (d+1) n1/n = %.1f. Predicted noise, one first-order node = "
        "1:\n"
        "%.3f for the hybrid, %.3f and %.3f for its parts.\n",
        (long long)c->population[1].rv, d, h.noise_ratio, n0, n1, h.threshold,
        hdo_theory_zo_rv(d, (int)n0, (int)n1, 1.0, 1.0, 0.0, 2.0), p[2].noise, p[0].noise, p[1].noise);
}

static void verdict(const part *p, int seeds) {
    double za = paired_z(&p[2], &p[0], seeds), zb = paired_z(&p[2], &p[1], seeds);
    cli_style s = cli_style_for(stdout);
    if (za > 2.0 && zb > 2.0) {
        printf(
            "\n%sThe hybrid beats both parts%s (paired over %d seeds: z = %.1f against first order alone, %.1f against "
            "zeroth order alone).\n",
            s.green, s.off, seeds, za, zb);
    } else {
        printf(
            "\nNot decided here: paired over %d seeds the hybrid is ahead with z = %.1f (first order alone) and %.1f "
            "(zeroth order alone); z > 2 in both would settle it.\n",
            seeds, za, zb);
    }
}

/* The first steps look the same for everybody and would squeeze the rest: the figure starts after them. */
static void skip_descent(hdo_curve *c, double from) {
    int k = 0;
    while (k < c->n_points && c->x[k] < from) k++;
    for (int i = k; i < c->n_points; i++) {
        c->x[i - k] = c->x[i];
        c->mean[i - k] = c->mean[i];
        c->se[i - k] = c->se[i];
    }
    c->n_points -= k;
}

static int draw(const char *dir, const part *p) {
    hdo_curve curves[PARTS];
    hdo_error e = {0};
    hdo_status st = HDO_OK;
    int n = 0;
    for (; n < PARTS && st == HDO_OK; n++) {
        char sub[HDO_PATH_MAX + 64];
        snprintf(sub, sizeof sub, "%s/%s", dir, p[n].population);
        st = hdo_curve_load(&curves[n], sub, "step", "val/loss_mu", &e);
        if (st == HDO_OK) skip_descent(&curves[n], 60.0);
    }
    char base[HDO_PATH_MAX + 64];
    snprintf(base, sizeof base, "%s/figure", dir);
    hdo_figure f = {.title = "Hybrid population against its parts",
                    .x_label = "step (from 60 on)",
                    .y_label = "validation loss of the mean model",
                    .curves = curves,
                    .n_curves = PARTS};
    if (st == HDO_OK) {
        char *text = hdo_figure_text(&f, 78, 22);
        if (text != NULL) fputs(text, stdout);
        free(text);
        st = hdo_figure_write(&f, base, HDO_FORMAT_SVG | HDO_FORMAT_PNG | HDO_FORMAT_PDF, &e);
    }
    for (int k = 0; k < n; k++) hdo_curve_clear(&curves[k]);
    if (st != HDO_OK) return cli_fail(&e);
    printf("\nFigure: %s.svg (.png, .pdf; data in .csv, drawing in .gp). Runs: %s/*/seed-*\n", base, dir);
    return 0;
}

static int run_all(const demo_options *o, part *p, hdo_config *first, size_t *d) {
    int seeds = (int)o->seeds;
    for (int k = 0; k < PARTS; k++) {
        for (int s = 0; s < seeds && cli_signal() == 0; s++) {
            hdo_error e = {0};
            hdo_config c;
            char sub[HDO_PATH_MAX + 64], label[96];
            cli_common common = {.population = p[k].population, .threads = o->common.threads};
            hdo_status st = cli_config(&c, "demo", &common, &e);
            if (k == PARTS - 1 && s == 0) *first = c;
            c.seed = s;
            snprintf(sub, sizeof sub, "%s/%s/seed-%d", o->output, p[k].population, s);
            snprintf(label, sizeof label, "%-9s seed %d/%d  step", p[k].population, s + 1, seeds);
            cli_progress progress;
            cli_progress_start(&progress, label, c.steps + c.warmup);
            if (st == HDO_OK) st = run_one(&c, sub, &progress, &p[k], s, &e);
            cli_progress_end(&progress);
            if (st != HDO_OK) return cli_fail(&e);
        }
        if (cli_signal() != 0) return 128 + cli_signal();
        summarise(&p[k], seeds);
    }
    *d = (size_t)(first->data.classes * (first->data.features + 1));
    return 0;
}

static int run_demo(int argc, char **argv) {
    demo_options o = {.output = "demo", .seeds = 8};
    int code = cli_parse(&cmd_demo, argc, argv, &o);
    if (code >= 0) return code;
    if (strlen(o.output) > HDO_PATH_MAX - 64) return cli_usage_error("demo", "the folder name is too long");
    part p[PARTS] = {{.population = "8fo", .what = "8 first-order nodes"},
                     {.population = "24zo", .what = "24 zeroth-order nodes"},
                     {.population = "8fo+24zo", .what = "hybrid: both together"}};
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return 1;
    size_t d = 0;
    cli_catch_signals();
    cli_note("Three populations, %d seeds each, softmax regression on generated data.", (int)o.seeds);
    code = run_all(&o, p, c, &d);
    if (code == 0) {
        printf("%-26s %-10s %22s %10s\n", "", "population", "loss of the mean model", "accuracy");
        for (int k = 0; k < PARTS; k++) {
            printf("%-26s %-10s %12.5f +- %.5f %9.2f%%\n", p[k].what, p[k].population, p[k].mean, p[k].se,
                   100.0 * p[k].acc);
        }
        explain(c, d, p);
        verdict(p, (int)o.seeds);
        code = draw(o.output, p);
    }
    free(c);
    return code;
}

const cli_command cmd_demo = {
    .name = "demo",
    .summary = "a hybrid population against its parts, on generated data, in a minute",
    .run = run_demo,
    .usage = "[-o DIR] [--seeds N] [OPTIONS]",
    .about =
        "Trains softmax regression on generated data with three populations: first-order nodes alone, zeroth-order "
        "nodes alone, and both together. Prints a table with standard errors over seeds, says what the theory "
        "predicts and whether it came true, and draws the curves.",
    .options = options,
    .common = CLI_THREADS | CLI_TALK,
    .examples = "hdo demo -o runs/demo",
    .size = sizeof(demo_options),
};
