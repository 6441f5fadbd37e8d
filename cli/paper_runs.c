/* SPDX-License-Identifier: Apache-2.0 — hdo paper: the runs of an experiment, those that are missing; and its claims.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd_paper.h"
#include "hdo/lab/eval.h"
#include "pool.h"

typedef struct paper_ctx {
    const paper_options *o;
    const cli_job *jobs;
    struct place {
        int variant;
        int64_t seed;
    } * place; /* of every job */
    int n_jobs, ended;
} paper_ctx;

static hdo_status job_config(void *ctx, int j, hdo_config *c, hdo_error *e) {
    const paper_ctx *p = ctx;
    return hdo_paper_config(&p->o->k, p->place[j].variant, p->place[j].seed, c, e);
}

static void job_ended(void *ctx, int j, const cli_job *job) {
    paper_ctx *p = ctx;
    (void)j;
    p->ended++;
    if (job->done) {
        cli_note("%d/%d %s: %s, loss %.4g after %lld steps (%.0f s)", p->ended, p->n_jobs, job->label,
                 hdo_stop_name(job->why), job->row.all.loss_mean, (long long)job->row.step, job->seconds);
    }
}

static void print_part(const hdo_claim_result *r, const cli_style *s) {
    const hdo_difference *d = &r->d;
    const char *colour = r->verdict == HDO_HOLDS ? s->green : r->verdict == HDO_FAILS ? s->red : s->dim;
    printf("  %s%-13s%s %s", colour, hdo_verdict_text(r->verdict), s->off, r->text);
    if (d->n_a > 0) {
        printf(": %.4g +- %.2g against %.4g +- %.2g", d->a, d->a_se, d->b, d->b_se);
        if (isfinite(d->t)) printf(", t = %.1f", d->t);
        printf(" (%s)", r->quantity);
    }
    printf("%s%s\n", r->note[0] != '\0' ? "; " : "", r->note);
}

static void print_claims(const hdo_paper_case *k) {
    hdo_claim_result r[HDO_CLAIM_PARTS_MAX];
    hdo_error e = {0};
    cli_style s = cli_style_for(stdout);
    int n = 0;
    if (hdo_paper_claims(k, r, &n, &e) != HDO_OK) {
        cli_fail(&e);
        return;
    }
    printf("\n%s%s, reading '%s'%s%s\n", s.bold, k->x->title, k->reading->name,
           k->quick ? " (quick: too short to judge)" : "", s.off);
    for (int i = 0, claim = -1; i < n; i++) {
        if (r[i].claim == 0 && r[i].claim != claim) {
            printf("other figures, which count towards no claim\n");
        } else if (r[i].claim != claim) {
            printf("claim %d %s%s%s: %s\n", r[i].claim, s.bold, hdo_verdict_text(hdo_claim_verdict(r, n, r[i].claim)),
                   s.off, hdo_claim_text(r[i].claim));
        }
        claim = r[i].claim;
        print_part(&r[i], &s);
    }
}

/* Which runs are missing, and what they start from. Returns how many; -1 after an error. */
static int plan_jobs(const paper_options *o, cli_job *jobs, struct place *place) {
    hdo_error e = {0};
    hdo_config *c = malloc(sizeof *c);
    int n = 0, done = 0;
    hdo_status st = c == NULL ? HDO_E_MEMORY : HDO_OK;
    for (int64_t seed = o->seeds.first; seed <= o->seeds.last && st == HDO_OK;
         seed++) { /* seeds outside: all curves grow alike */
        for (int v = 0; v < o->k.x->n_variants && st == HDO_OK; v++) {
            const char *label = o->k.x->variant[v].label;
            if (o->only != NULL && strstr(label, o->only) == NULL) continue;
            st = hdo_paper_config(&o->k, v, seed, c, &e);
            if (st == HDO_OK) st = hdo_config_check(c, &e);
            cli_job *j = &jobs[n];
            *j = (cli_job){.cost = 0.0};
            if (st != HDO_OK || !hdo_paper_dir(&o->k, v, seed, j->dir, sizeof j->dir)) break;
            hdo_stored have = hdo_run_stored(j->dir, c);
            if (have == HDO_STORED_DONE) {
                done++;
                continue;
            }
            j->resume = have == HDO_STORED_PART;
            j->force = have != HDO_STORED_NOTHING;
            j->cost = hdo_paper_cost(c);
            snprintf(j->label, sizeof j->label, "%s %s seed %lld", o->k.x->id, label, (long long)seed);
            place[n++] = (struct place){v, seed};
        }
    }
    if (st == HDO_OK && o->fetch && n > 0) st = cli_fetch_data(c, &e);
    free(c);
    if (st != HDO_OK) {
        if (e.code != HDO_OK) cli_fail(&e);
        return -1;
    }
    cli_note("%s, reading '%s'%s: %d runs to do, %d done before", o->k.x->title, o->k.reading->name,
             o->k.quick ? ", quick" : "", n, done);
    return n;
}

static int run_case(const paper_options *o) {
    int most = o->k.x->n_variants * (int)(o->seeds.last - o->seeds.first + 1);
    cli_job *jobs = calloc((size_t)most, sizeof *jobs);
    struct place *place = calloc((size_t)most, sizeof *place);
    int n = jobs != NULL && place != NULL ? plan_jobs(o, jobs, place) : -1, code = n < 0 ? 1 : 0;
    for (int j = 0; j < n && o->dry_run; j++) printf("%s%s\n", jobs[j].dir, jobs[j].resume ? " (resume)" : "");
    if (n > 0 && !o->dry_run) {
        char label[HDO_NAME_MAX];
        snprintf(label, sizeof label, "%s-%s", o->k.x->id, o->k.reading->name);
        paper_ctx ctx = {o, jobs, place, n, 0};
        cli_pool pool = {.label = label,
                         .workers = (int)o->jobs,
                         .command_line = o->command_line,
                         .ctx = &ctx,
                         .config = job_config,
                         .ended = job_ended};
        code = cli_pool_run(&pool, jobs, n);
        if (code == EXIT_DIVERGED) code = 0; /* an outcome like any other here: the tables tell */
    }
    free(jobs);
    free(place);
    if (code != 0 || o->dry_run) return code;
    hdo_error e = {0};
    if (hdo_paper_tables(&o->k, &e) != HDO_OK) return cli_fail(&e);
    if (hdo_paper_figures(&o->k, o->x, HDO_FORMAT_SVG | HDO_FORMAT_PNG | HDO_FORMAT_PDF, &e) != HDO_OK) cli_fail(&e);
    char dir[HDO_PATH_MAX];
    print_claims(&o->k);
    if (hdo_paper_dir(&o->k, -1, -1, dir, sizeof dir)) printf("figures and tables: %s\n", dir);
    return 0;
}

static hdo_status start_config(void *ctx, int j, hdo_config *c, hdo_error *e) {
    (void)j;
    return hdo_paper_start_config(ctx, c, e);
}

/* The mean model of the run in dir, unless it was written before. */
static int export_start(const char *dir, const char *path) {
    hdo_error e = {0};
    if (access(path, R_OK) == 0) return 0;
    return hdo_export_weights(dir, HDO_EVAL_MEAN, path, &e) == HDO_OK ? 0 : cli_fail(&e);
}

/* A reading with a start of its own: makes it unless it is there, and writes its name to path. */
static int make_start(const paper_options *o, char path[HDO_PATH_MAX]) {
    cli_job job = {.cost = 1.0};
    hdo_error e = {0};
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return 1;
    hdo_status st = hdo_paper_start_config(&o->k, c, &e);
    hdo_stored have = HDO_STORED_NOTHING;
    if (st == HDO_OK && hdo_paper_start_dir(&o->k, job.dir, sizeof job.dir)) have = hdo_run_stored(job.dir, c);
    if (st == HDO_OK && o->fetch && have != HDO_STORED_DONE) st = cli_fetch_data(c, &e);
    int code = st != HDO_OK ? cli_fail(&e) : 0;
    free(c);
    if (code != 0) return code;
    if (snprintf(path, HDO_PATH_MAX, "%s/mean.safetensors", job.dir) >= HDO_PATH_MAX)
        return cli_usage_error("paper", "the folder name '%.100s...' is too long", job.dir);
    if (o->dry_run) return 0;
    if (have == HDO_STORED_DONE) return export_start(job.dir, path);
    cli_note("%s: first its start, kept in %s", o->k.x->title, job.dir);
    job.resume = have == HDO_STORED_PART;
    job.force = have != HDO_STORED_NOTHING;
    snprintf(job.label, sizeof job.label, "%s", o->k.reading->start);
    cli_pool pool = {.label = o->k.reading->start,
                     .command_line = o->command_line,
                     .ctx = (void *)(uintptr_t)&o->k,
                     .config = start_config};
    code = cli_pool_run(&pool, &job, 1);
    return code != 0 ? code : export_start(job.dir, path);
}

bool paper_from_weights(const hdo_paper_experiment *x) {
    return strcmp(x->id, "e3") == 0;
}

int paper_experiment(paper_options *o, const hdo_paper_experiment *x, bool own_seeds) {
    o->k.x = x;
    if (own_seeds) {
        o->seeds.first = 0;
        o->seeds.last = (o->k.quick ? x->quick_seeds : x->seeds) - 1;
    }
    char start[HDO_PATH_MAX];
    const char *weights = o->k.weights;
    if (!paper_from_weights(x)) o->k.weights = NULL;
    int code = o->k.reading->start != NULL ? make_start(o, start) : 0;
    if (o->k.reading->start != NULL) o->k.weights = start;
    if (code == 0) code = run_case(o);
    o->k.weights = weights;
    return code;
}
