/* SPDX-License-Identifier: Apache-2.0 — hdo run --seeds: one run per seed into one folder, new or taken up. */
#include <stdlib.h>
#include <string.h>

#include "cmd_run.h"
#include "pool.h"
#include "run_text.h"
#include "seeds.h"

int run_resume_settings(const run_options *o, hdo_setting out[CLI_LIST_MAX]) {
    int n = 0;
    for (int k = 0; k < o->common.set.n; k++) {
        char *text = o->common.set.item[k], *eq = strchr(text, '=');
        if (eq == NULL || strncmp(text, "engine=", 7) == 0 || strncmp(text, "threads=", 8) == 0) continue;
        *eq = '\0';
        out[n++] = (hdo_setting){text, eq + 1};
    }
    return n;
}

int run_seeds_in_turn(const run_options *o, hdo_config *c, const char *dir) {
    char sub[HDO_PATH_MAX + 64];
    run_group g = {0};
    int rank, ranks;
    hdo_mpi_launched(&rank, &ranks);
    for (c->seed = o->seeds.first; c->seed <= o->seeds.last && (g.code == 0 || g.code == EXIT_DIVERGED); c->seed++) {
        hdo_row row;
        snprintf(sub, sizeof sub, "%s/seed-%lld", dir, (long long)c->seed);
        int code = run_once(o, c, sub, &row);
        if (code == 0 || code == EXIT_DIVERGED) run_collect(&g, &row, code);
        if (code != 0) g.code = code;
    }
    if (g.seeds > 0 && rank == 0) run_print_seeds(&g, dir, o->common.json);
    return g.code;
}

typedef struct seeds_ctx {
    const hdo_config *config;
    const int64_t *seed; /* of job k */
} seeds_ctx;

static hdo_status seed_config(void *ctx, int k, hdo_config *c, hdo_error *e) {
    const seeds_ctx *s = ctx;
    (void)e;
    *c = *s->config;
    c->seed = s->seed[k];
    return HDO_OK;
}

/* Runs the jobs on `workers` processes, and tells of them together. */
static int run_jobs(const run_options *o, const hdo_config *c, int64_t workers, const hdo_resume *how,
                    cli_seed_set *seeds, const char *dir) {
    seeds_ctx ctx = {c, seeds->seed};
    cli_pool pool = {.label = c->name,
                     .workers = (int)workers,
                     .command_line = o->command_line,
                     .max_time_s = o->max_time_s,
                     .n_set = how->n_set,
                     .set = how->set,
                     .ctx = &ctx,
                     .config = seed_config};
    int code = cli_pool_run(&pool, seeds->job, seeds->n);
    run_group g = {0};
    for (int k = 0; k < seeds->n; k++) {
        if (seeds->job[k].done) run_collect(&g, &seeds->job[k].row, seeds->job[k].code);
    }
    if (g.seeds > 0) run_print_seeds(&g, dir, o->common.json);
    return code;
}

int run_seeds(const run_options *o, const hdo_config *c, const char *dir) {
    cli_seed_set seeds = {0};
    hdo_error e = {0};
    for (int64_t seed = o->seeds.first; seed <= o->seeds.last; seed++) {
        if (!cli_seeds_add(&seeds, dir, seed, &e)) return cli_fail(&e);
        seeds.job[seeds.n - 1].force = o->common.force;
    }
    if (!cli_seeds_note(dir, &seeds, &e)) {
        cli_seeds_clear(&seeds);
        return cli_fail(&e);
    }
    hdo_resume fresh = {.n_set = 0};
    int code = run_jobs(o, c, c->threads, &fresh, &seeds, dir);
    cli_seeds_clear(&seeds);
    return code;
}

int run_resumed_seeds(const run_options *o) {
    cli_seed_set seeds = {0};
    hdo_error e = {0};
    hdo_setting set[CLI_LIST_MAX];
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return 1;
    bool ok = cli_seeds_find(o->resume, &seeds, c, &e);
    for (int64_t seed = o->seeds.first; ok && seed >= 0 && seed <= o->seeds.last; seed++)
        ok = cli_seeds_add(&seeds, o->resume, seed, &e);
    hdo_resume how = {.n_set = run_resume_settings(o, set), .set = set};
    for (int k = 0; ok && k < how.n_set; k++) /* for seeds that are new */
        ok = hdo_config_set_from(c, set[k].key, set[k].value, HDO_FROM_FLAG, &e) == HDO_OK;
    if (ok) ok = cli_seeds_note(o->resume, &seeds, &e);
    int code = ok ? 0 : cli_fail(&e);
    if (ok) code = run_jobs(o, c, o->common.threads, &how, &seeds, o->resume);
    cli_seeds_clear(&seeds);
    free(c);
    return code;
}
