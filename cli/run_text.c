/* SPDX-License-Identifier: Apache-2.0 — hdo run: what it prints about results. */
#include "run_text.h"

#include <math.h>

/* A figure of a table; "-" where a diverged run has none. */
static void print_figure(double v) {
    if (isfinite(v)) {
        printf(fabs(v) < 1e5 ? " %10.4f" : " %10.3g", v);
    } else {
        printf(" %10s", "-");
    }
}

static void print_group(const char *name, const hdo_group *g) {
    const double v[] = {g->loss_mean, g->loss_std, g->loss_min, g->loss_max};
    printf("  %-10s", name);
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) print_figure(v[i]);
    if (isfinite(g->acc_mean)) printf(" %9.2f%%", 100.0 * g->acc_mean);
    printf("\n");
}

void run_print_result(const hdo_config *c, const hdo_run *r, hdo_stop why, const char *dir) {
    const hdo_row *row = hdo_run_last_row(r);
    cli_style s = cli_style_for(stdout);
    printf("%s%s%s after %lld steps, %.1f s (steps %.1f s, evaluation %.1f s)\n", s.bold, hdo_stop_name(why), s.off,
           (long long)row->step, row->wall_s, row->step_s, row->eval_s);
    printf("  %-10s %10s %10s %10s %10s %10s\n", "nodes", "loss", "std", "min", "max", "accuracy");
    if (isfinite(row->mu_loss)) {
        printf("  %s%-10s%s %10.4f %32s", s.bold, "mean model", s.off, row->mu_loss, "");
        if (isfinite(row->mu_acc)) printf(" %9.2f%%", 100.0 * row->mu_acc);
        printf("\n");
    }
    print_group("all", &row->all);
    for (int k = 0; k < c->n_classes && c->n_classes > 1; k++) print_group(c->population[k].name, &row->cls[k]);
    printf("  ");
    if (isfinite(row->gamma)) printf("consensus distance Gamma %.4g; ", row->gamma);
    printf("oracle calls: %lld forward, %lld backward, %lld jvp; %.1f MB exchanged\n", (long long)row->forward,
           (long long)row->backward, (long long)row->jvp, (double)row->bytes / 1e6);
    if (dir != NULL) printf("  results in %s\n", dir);
}

void run_print_plan_json(const hdo_config *c, const hdo_run_info *i) {
    hdo_json j;
    hdo__json_begin(&j, false, 1);
    hdo__json_bool(&j, "dry_run", true);
    hdo__json_text(&j, "model", c->model.name);
    HDO_JSON_INTS(&j, {"d", (int64_t)i->d}, {"d_total", i->d_total}, {"n", i->n}, {"total_steps", i->total_steps},
                  {"threads", i->threads}, {"state_bytes", (int64_t)i->state_bytes},
                  {"scratch_bytes", (int64_t)i->scratch_bytes}, {"bytes_per_step", i->bytes_per_step},
                  {"frozen_bytes", (int64_t)i->frozen_bytes});
    hdo__json_object(&j, "node_bytes");
    for (int k = 0; k < c->n_classes; k++) {
        const hdo_node_bytes *b = &i->node[k];
        hdo__json_object(&j, c->population[k].name);
        HDO_JSON_INTS(&j, {"parameters", (int64_t)b->parameters}, {"momentum", (int64_t)b->momentum},
                      {"estimate", (int64_t)b->estimate}, {"activations", (int64_t)b->activations},
                      {"directions", (int64_t)b->directions});
        hdo__json_end(&j, '}');
    }
    hdo__json_end(&j, '}');
    hdo__json_end(&j, '}');
    cli_json(&j);
}

/* ---- several seeds ---- */

static void add(moments *m, double v) {
    m->n++;
    m->sum += v;
    m->sum2 += v * v;
}
static double mean(const moments *m) {
    return m->sum / m->n;
}
static double standard_error(const moments *m) { /* NaN for one value: it has no spread */
    double var = m->n > 1 ? (m->sum2 - m->sum * m->sum / m->n) / (m->n - 1) : (double)NAN;
    return var < 0.0 ? 0.0 : sqrt(var / m->n);
}

void run_collect(run_group *g, const hdo_row *row, int code) {
    g->seeds++;
    if (code != 0) g->code = code;
    if (code == EXIT_DIVERGED) {
        g->diverged++;
        return;
    }
    add(&g->loss, row->all.loss_mean);
    add(&g->acc, row->all.acc_mean);
    add(&g->mu, row->mu_loss);
}

static void print_seeds_json(const run_group *g, const char *dir) {
    hdo_json j;
    hdo__json_begin(&j, false, 1);
    HDO_JSON_INTS(&j, {"seeds", g->seeds}, {"diverged", g->diverged});
    hdo__json_text(&j, "dir", dir);
    HDO_JSON_REALS(&j, {"val_loss_mu", mean(&g->mu)}, {"val_loss_mu_se", standard_error(&g->mu)},
                   {"val_loss_mean", mean(&g->loss)}, {"val_loss_se", standard_error(&g->loss)});
    if (isfinite(mean(&g->acc))) {
        HDO_JSON_REALS(&j, {"val_acc_mean", mean(&g->acc)}, {"val_acc_se", standard_error(&g->acc)});
    }
    hdo__json_end(&j, '}');
    cli_json(&j);
}

static void print_mean(const char *before, const moments *m, double scale, const char *unit, const char *after) {
    double v = scale * mean(m), se = scale * standard_error(m);
    if (!isfinite(v)) return;
    printf("%s%.*f%s", before, unit[0] != '\0' ? 2 : 4, v, unit);
    if (isfinite(se)) printf(" +- %.*f%s", unit[0] != '\0' ? 2 : 4, se, unit);
    printf("%s", after);
}

void run_print_seeds(const run_group *g, const char *dir, bool json) {
    if (json) {
        print_seeds_json(g, dir);
        return;
    }
    printf("%d seed%s", g->seeds, g->seeds > 1 ? "s" : "");
    if (g->diverged > 0) printf(", %d diverged", g->diverged);
    printf("%s", g->loss.n > 0 && g->diverged > 0 ? "; the others" : "");
    bool mu = isfinite(mean(&g->mu));
    print_mean(": loss ", &g->mu, 1.0, "", " (mean model)");
    print_mean(mu ? ", " : ": loss ", &g->loss, 1.0, "", " (mean over nodes)");
    print_mean(", accuracy ", &g->acc, 100.0, "%", "");
    printf("\n  results in %s/seed-*\n", dir);
}
