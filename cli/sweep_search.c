/* SPDX-License-Identifier: Apache-2.0 — hdo sweep: searching, rung by rung. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_sweep.h"
#include "hdo/lab/paper.h"
#include "pool.h"

typedef struct sweep_ctx {
    const hdo_config *base;
    const hdo_sweep *s;
    const int *point;
    const int64_t *seed;
} sweep_ctx;

static bool larger_is_better(const char *metric) {
    return strstr(metric, "acc") != NULL;
}

static hdo_status job_config(void *ctx, int k, hdo_config *c, hdo_error *e) {
    const sweep_ctx *x = ctx;
    *c = *x->base;
    c->seed = x->seed[k];
    return hdo_sweep_apply(x->s, x->point[k], c, e);
}

static void point_dir(const char *dir, int point, char *buf, size_t cap) {
    snprintf(buf, cap, "%.400s/point-%04d", dir, point);
}

typedef struct rung { /* jobs of one rung, with the point and the seed of each */
    cli_job *job;
    int *point;
    int64_t *seed;
    int n;
} rung;

/* Adds the run of a point and seed, unless it is done. */
static hdo_status add_job(rung *r, const sweep_ctx *ctx, hdo_config *c, int64_t until, const char *dir, hdo_error *e) {
    char folder[HDO_PATH_MAX];
    cli_job *j = &r->job[r->n];
    int k = r->n;
    hdo_status st = job_config((void *)(uintptr_t)ctx, k, c, e);
    if (st == HDO_OK) st = hdo_config_check(c, e);
    if (st != HDO_OK) return st;
    point_dir(dir, r->point[k], folder, sizeof folder);
    snprintf(j->dir, sizeof j->dir, "%.440s/seed-%lld", folder, (long long)r->seed[k]);
    snprintf(j->label, sizeof j->label, "point %d", r->point[k]);
    hdo_stored have = hdo_run_stored(j->dir, c);
    if (have == HDO_STORED_DONE) return HDO_OK;
    j->resume = have == HDO_STORED_PART;
    j->force = have != HDO_STORED_NOTHING;
    j->until = until;
    j->cost = hdo_paper_cost(c);
    r->n++;
    return HDO_OK;
}

static int score(const sweep_options *o, hdo_sweep *s, const int *chosen, int keep, const char *dir) {
    for (int i = 0; i < keep; i++) {
        char folder[HDO_PATH_MAX];
        hdo_error e = {0};
        int p = chosen[i];
        point_dir(dir, p, folder, sizeof folder);
        if (hdo_sweep_score(folder, o->metric, &s->score[p], &s->se[p], &s->steps[p], &e) != HDO_OK)
            return cli_fail(&e);
    }
    return 0;
}

/* One rung: the chosen points up to `until` (0: to the end), then their scores. */
static int run_rung(const sweep_options *o, const hdo_config *base, hdo_sweep *s, const int *chosen, int keep,
                    int64_t until, const char *dir) {
    int seeds = (int)(o->seeds.last - o->seeds.first + 1), most = keep * seeds;
    rung r = {.job = calloc((size_t)most, sizeof *r.job),
              .point = calloc((size_t)most, sizeof *r.point),
              .seed = calloc((size_t)most, sizeof *r.seed)};
    hdo_config *c = malloc(sizeof *c);
    hdo_error e = {.code = HDO_E_MEMORY};
    hdo_status st = r.job == NULL || r.point == NULL || r.seed == NULL || c == NULL ? HDO_E_MEMORY : HDO_OK;
    sweep_ctx ctx = {base, s, r.point, r.seed};
    for (int i = 0; i < most && st == HDO_OK; i++) {
        r.point[r.n] = chosen[i / seeds];
        r.seed[r.n] = o->seeds.first + i % seeds;
        st = add_job(&r, &ctx, c, until, dir, &e);
    }
    int code = st == HDO_OK ? 0 : cli_fail(&e);
    cli_pool pool = {
        .label = "sweep", .workers = (int)o->jobs, .command_line = o->command_line, .ctx = &ctx, .config = job_config};
    if (code == 0 && r.n > 0) code = cli_pool_run(&pool, r.job, r.n);
    if (code == EXIT_DIVERGED) code = 0;
    if (code == 0) code = score(o, s, chosen, keep, dir);
    free(r.job);
    free(r.point);
    free(r.seed);
    free(c);
    return code;
}

static void print_table(const hdo_sweep *s, const sweep_options *o, const int *order) {
    int shown = s->n_points < 12 ? s->n_points : 12;
    printf("  %4s %6s %12s %9s", "rank", "steps", o->metric, "+-");
    for (int k = 0; k < s->n_axes; k++) printf("  %s", s->axis[k].key);
    printf("\n");
    for (int r = 0; r < shown; r++) {
        int p = order[r];
        printf("  %4d %6lld ", r + 1, (long long)s->steps[p]);
        if (isnan(s->score[p])) {
            printf("%12s %9s", "diverged", "");
        } else {
            char se[32] = "";
            if (isfinite(s->se[p])) snprintf(se, sizeof se, "%.2g", s->se[p]);
            printf("%12.5g %9s", s->score[p], se);
        }
        for (int k = 0; k < s->n_axes; k++) printf("  %*s", (int)strlen(s->axis[k].key), s->value[p][k]);
        printf("\n");
    }
    if (shown < s->n_points) printf("  ... %d more in sweep.csv\n", s->n_points - shown);
}

int sweep_search(const sweep_options *o, const hdo_config *base, const hdo_sweep_axis *axis, int n_axes,
                 const char *dir, hdo_config *best) {
    hdo_error e = {0};
    hdo_sweep *s = NULL;
    bool larger = larger_is_better(o->metric);
    if (hdo_sweep_create(&s, axis, n_axes, (int)o->random, (uint64_t)base->seed, &e) != HDO_OK) return cli_fail(&e);
    int64_t total = base->steps + base->warmup, least = base->eval.every > 0 ? base->eval.every : 1;
    hdo_sweep_rung step[HDO_SWEEP_RUNGS] = {{total, s->n_points}};
    int rungs = o->halving ? hdo_sweep_rungs(s->n_points, total, least, step) : 1, code = 0;
    int *order = malloc((size_t)s->n_points * sizeof *order);
    for (int p = 0; p < s->n_points && order != NULL; p++) order[p] = p;
    for (int r = 0; r < rungs && code == 0 && order != NULL; r++) {
        cli_note("%s: %d of %d points up to step %lld", dir, step[r].keep, s->n_points, (long long)step[r].until);
        code = run_rung(o, base, s, order, step[r].keep, step[r].until < total ? step[r].until : 0, dir);
        hdo_sweep_order(s, larger, order);
    }
    if (code == 0 && order != NULL) {
        hdo_status st = hdo_sweep_write(s, o->metric, larger, dir, &e);
        if (st != HDO_OK) cli_fail(&e); /* without gnuplot the table is there */
        print_table(s, o, order);
        if (isnan(s->score[order[0]])) {
            fprintf(stderr, "hdo: error: every point diverged\n");
            code = EXIT_DIVERGED;
        } else if (hdo_sweep_apply(s, order[0], best, &e) != HDO_OK) {
            code = cli_fail(&e);
        }
    }
    free(order);
    hdo_sweep_destroy(s);
    return code;
}

int sweep_classes(const sweep_options *o, const hdo_config *base, hdo_config *best) {
    hdo_config *one = malloc(sizeof *one);
    int code = one == NULL ? 1 : 0;
    for (int k = 0; k < base->n_classes && code == 0; k++) {
        const char *name = base->population[k].name;
        char prefix[HDO_NAME_MAX + 16], population[HDO_NAME_MAX + 4], dir[HDO_PATH_MAX];
        hdo_sweep_axis *axis = calloc(HDO_SWEEP_AXES, sizeof *axis);
        int n = 0;
        hdo_error e = {0};
        if (axis == NULL) return 1;
        snprintf(prefix, sizeof prefix, "population.%s.", name);
        for (int i = 0; i < o->n_axes; i++) {
            if (strncmp(o->axis[i].key, prefix, strlen(prefix)) == 0) axis[n++] = o->axis[i];
        }
        *one = *base;
        snprintf(population, sizeof population, "1%s", name);
        snprintf(dir, sizeof dir, "%.400s/%s", o->output, name);
        if (n == 0) {
            cli_note("class '%s': nothing to search", name);
        } else if (hdo_config_population(one, population, &e) != HDO_OK) {
            code = cli_fail(&e);
        } else {
            printf("class %s, one node\n", name);
            code = sweep_search(o, one, axis, n, dir, best);
        }
        free(axis);
    }
    free(one);
    return code;
}
