/* SPDX-License-Identifier: Apache-2.0 — hdo sweep: grid and random search, with early stopping of hopeless runs. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/lab/paper.h"
#include "hdo/lab/sweep.h"
#include "pool.h"

static const char help_text[] =
    "Usage: hdo sweep CONFIG|PRESET --grid KEY=A,B,C [--grid ...] [OPTIONS]\n"
    "       hdo sweep CONFIG|PRESET --random N KEY=LO:HI[:log] ... [OPTIONS]\n"
    "       hdo sweep eN --paper [--random N] [--per-class]\n\n"
    "Searches over any settings and writes a table, a heat map (two lists) and the best configuration.\n\n"
    "  --grid KEY=A,B,C     all combinations of the lists given\n"
    "  --random N           N random points; then KEY=LO:HI, KEY=LO:HI:log (even in the logarithm) or KEY=A,B,C as "
    "words\n"
    "  --paper              the search intervals of the paper's tables, for e1 ... e7: rates, batches, momentum, rv; "
    "16\n"
    "                       random points unless --random says more\n"
    "  --per-class          tune every class on a single node of it, as the paper's authors did, then put them "
    "together\n"
    "  --halving            successive halving: all points for a ninth of the steps, the best third for a third, the "
    "best\n"
    "                       of those to the end\n"
    "  --metric METRIC      what to optimise (default: val/loss_mean); accuracies are maximised, all else is "
    "minimised\n"
    "  --seeds A-B          several seeds a point, their mean counts (default: the seed of the configuration)\n"
    "  --population P, --set KEY=VALUE   as in hdo run\n"
    "  -o, --output DIR     default: sweep;  --jobs N: processes at once (default: one for each CPU);  -q, --quiet\n\n"
    "Points that are done are not repeated; interrupted ones go on. The best configuration is DIR/best.yaml.\n\n"
    "Example: hdo sweep e2 --grid population.fo.lr=0.003,0.01,0.03 --grid population.zo.lr=0.003,0.01,0.03 --max-steps "
    "100\n";

typedef struct sweep_options {
    const char *source, *population, *metric, *output, *command_line;
    char *set[64];
    int n_set;
    hdo_sweep_axis axis[HDO_SWEEP_AXES];
    int n_axes;
    int64_t random, jobs, first, last;
    bool halving, paper, per_class;
} sweep_options;

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

/* One rung: the chosen points up to `until`. */
static int run_rung(const sweep_options *o, const hdo_config *base, hdo_sweep *s, const int *chosen, int keep,
                    int64_t until, int64_t total, const char *dir) {
    int seeds = (int)(o->last - o->first + 1), n = 0, most = keep * seeds;
    cli_job *jobs = calloc((size_t)most, sizeof *jobs);
    int *point = calloc((size_t)most, sizeof *point);
    int64_t *seed = calloc((size_t)most, sizeof *seed);
    hdo_config *c = malloc(sizeof *c);
    hdo_error e = {0};
    hdo_status st = jobs == NULL || point == NULL || seed == NULL || c == NULL ? HDO_E_MEMORY : HDO_OK;
    for (int i = 0; i < most && st == HDO_OK; i++) {
        point[n] = chosen[i / seeds];
        seed[n] = o->first + i % seeds;
        sweep_ctx one = {base, s, point, seed};
        st = job_config(&one, n, c, &e);
        if (st == HDO_OK) st = hdo_config_check(c, &e);
        if (st != HDO_OK) break;
        char folder[HDO_PATH_MAX];
        cli_job *j = &jobs[n];
        point_dir(dir, point[n], folder, sizeof folder);
        snprintf(j->dir, sizeof j->dir, "%.440s/seed-%lld", folder, (long long)seed[n]);
        snprintf(j->label, sizeof j->label, "point %d", point[n]);
        hdo_stored have = hdo_run_stored(j->dir, c);
        if (have == HDO_STORED_DONE) continue;
        j->resume = have == HDO_STORED_PART;
        j->force = have != HDO_STORED_NOTHING;
        j->until = until < total ? until : 0;
        j->cost = hdo_paper_cost(c);
        n++;
    }
    int code = st == HDO_OK ? 0 : cli_fail(&e);
    if (n > 0 && st == HDO_OK) {
        sweep_ctx ctx = {base, s, point, seed};
        cli_pool pool = {.label = "sweep",
                         .workers = (int)o->jobs,
                         .command_line = o->command_line,
                         .ctx = &ctx,
                         .config = job_config};
        code = cli_pool_run(&pool, jobs, n);
        if (code == EXIT_DIVERGED) code = 0;
    }
    for (int i = 0; i < keep && code == 0; i++) {
        char folder[HDO_PATH_MAX];
        int p = chosen[i];
        point_dir(dir, p, folder, sizeof folder);
        if (hdo_sweep_score(folder, o->metric, &s->score[p], &s->se[p], &s->steps[p], &e) != HDO_OK)
            code = cli_fail(&e);
    }
    free(jobs);
    free(point);
    free(seed);
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

/* One search; base receives the best settings. */
static int search(const sweep_options *o, hdo_config *base, const hdo_sweep_axis *axis, int n_axes, const char *dir,
                  hdo_config *best) {
    hdo_error e = {0};
    hdo_sweep *s = NULL;
    bool larger = larger_is_better(o->metric);
    if (hdo_sweep_create(&s, axis, n_axes, (int)o->random, (uint64_t)base->seed, &e) != HDO_OK) return cli_fail(&e);
    int64_t total = base->steps + base->warmup, least = base->eval.every > 0 ? base->eval.every : 1;
    hdo_sweep_rung rung[HDO_SWEEP_RUNGS] = {{total, s->n_points}};
    int rungs = o->halving ? hdo_sweep_rungs(s->n_points, total, least, rung) : 1, code = 0;
    int *order = malloc((size_t)s->n_points * sizeof *order);
    for (int p = 0; p < s->n_points && order != NULL; p++) order[p] = p;
    for (int r = 0; r < rungs && code == 0 && order != NULL; r++) {
        cli_note("%s: %d of %d points up to step %lld", dir, rung[r].keep, s->n_points, (long long)rung[r].until);
        code = run_rung(o, base, s, order, rung[r].keep, rung[r].until, total, dir);
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

/* A single node of every class, with the axes that concern it. */
static int search_classes(const sweep_options *o, const hdo_config *base, hdo_config *best) {
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
            code = search(o, one, axis, n, dir, best);
        }
        free(axis);
    }
    free(one);
    return code;
}

static int add_axis(sweep_options *o, const char *text) {
    hdo_error e = {0};
    if (o->n_axes == HDO_SWEEP_AXES)
        return cli_usage_error("sweep", "at most %d settings are searched at once", HDO_SWEEP_AXES);
    return hdo_sweep_axis_parse(text, &o->axis[o->n_axes++], &e) == HDO_OK ? 0 : cli_fail(&e);
}

static int add_paper_axes(sweep_options *o) {
    char id[8] = "";
    snprintf(id, sizeof id, "%.2s", o->source);
    const hdo_paper_experiment *x = hdo_paper_find(id);
    if (x == NULL) return cli_usage_error("sweep", "--paper goes with e1 ... e7, not with '%s'", o->source);
    for (int i = 0; i < HDO_PAPER_AXES && x->search[i] != NULL; i++) {
        int code = add_axis(o, x->search[i]);
        if (code != 0) return code;
    }
    if (o->random == 0) o->random = 16;
    return 0;
}

static int parse(int argc, char **argv, sweep_options *o) {
    enum { GRID = 256, RANDOM, PAPER, PER_CLASS, HALVING, METRIC, SEEDS, POPULATION, SET, STEPS, JOBS };
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"grid", required_argument, NULL, GRID},
                                          {"random", required_argument, NULL, RANDOM},
                                          {"paper", no_argument, NULL, PAPER},
                                          {"per-class", no_argument, NULL, PER_CLASS},
                                          {"halving", no_argument, NULL, HALVING},
                                          {"metric", required_argument, NULL, METRIC},
                                          {"seeds", required_argument, NULL, SEEDS},
                                          {"population", required_argument, NULL, POPULATION},
                                          {"set", required_argument, NULL, SET},
                                          {"max-steps", required_argument, NULL, STEPS},
                                          {"jobs", required_argument, NULL, JOBS},
                                          {"output", required_argument, NULL, 'o'},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {NULL, 0, NULL, 0}};
    static char steps[64];
    int code = 0;
    for (int c; code == 0 && (c = getopt_long(argc, argv, "ho:q", longs, NULL)) != -1;) {
        switch (c) {
        case 'h': fputs(help_text, stdout); exit(cli_finish(0));
        case 'o': o->output = optarg; break;
        case 'q': cli_set_quiet(true); break;
        case GRID: code = add_axis(o, optarg); break;
        case RANDOM:
            if (!cli_int(optarg, 1, HDO_SWEEP_POINTS, &o->random))
                code = cli_usage_error("sweep", "--random takes 1 to %d; got '%s'", HDO_SWEEP_POINTS, optarg);
            break;
        case PAPER: o->paper = true; break;
        case PER_CLASS: o->per_class = true; break;
        case HALVING: o->halving = true; break;
        case METRIC: o->metric = optarg; break;
        case SEEDS:
            if (!cli_seed_range(optarg, &o->first, &o->last))
                code = cli_usage_error("sweep", "--seeds takes A-B; got '%s'", optarg);
            break;
        case POPULATION: o->population = optarg; break;
        case STEPS: snprintf(steps, sizeof steps, "steps=%.50s", optarg); /* fall through */
        case SET:
            if (o->n_set == 64) return cli_usage_error("sweep", "at most 64 settings");
            o->set[o->n_set++] = c == STEPS ? steps : optarg;
            break;
        case JOBS:
            if (!cli_int(optarg, 1, 256, &o->jobs))
                code = cli_usage_error("sweep", "--jobs takes 1 to 256; got '%s'", optarg);
            break;
        default: code = cli_usage_error("sweep", "the options are not right");
        }
    }
    if (code != 0) return code;
    if (optind == argc) return cli_usage_error("sweep", "which configuration? Give a YAML file or a preset");
    o->source = argv[optind++];
    for (; optind < argc && code == 0; optind++) code = add_axis(o, argv[optind]);
    if (code == 0 && o->paper) code = add_paper_axes(o);
    if (code == 0 && o->n_axes == 0)
        code = cli_usage_error("sweep", "nothing to search: give --grid, --random or --paper");
    return code;
}

static int write_best(const hdo_config *best, const char *dir) {
    char path[HDO_PATH_MAX + 16];
    char *text = hdo_config_dump(best, false);
    snprintf(path, sizeof path, "%.500s/best.yaml", dir);
    FILE *f = text != NULL ? fopen(path, "w") : NULL;
    bool ok = f != NULL && fputs(text, f) >= 0;
    ok = f != NULL && fclose(f) == 0 && ok;
    free(text);
    if (!ok) {
        fprintf(stderr, "hdo: error: cannot write '%s'\n", path);
        return 1;
    }
    printf("best configuration: %s\n", path);
    return 0;
}

int cmd_sweep(int argc, char **argv) {
    char command_line[2048];
    sweep_options *o = calloc(1, sizeof *o);
    hdo_config *base = malloc(sizeof *base), *best = malloc(sizeof *best);
    hdo_error e = {0};
    int code = o == NULL || base == NULL || best == NULL ? 1 : 0;
    if (code == 0) {
        *o = (sweep_options){
            .metric = "val/loss_mean", .output = "sweep", .first = -1, .last = -1, .command_line = command_line};
        cli_join(argc, argv, command_line, sizeof command_line);
        code = parse(argc, argv, o);
    }
    if (code == 0 && cli_config(base, o->source, o->population, o->n_set, o->set, &e) != HDO_OK) code = cli_fail(&e);
    if (code == 0) {
        base->checkpoint.keep = 1;
        if (o->first < 0) o->first = o->last = base->seed;
        *best = *base;
        cli_catch_signals();
        code = o->per_class ? search_classes(o, base, best) : search(o, base, o->axis, o->n_axes, o->output, best);
    }
    if (code == 0) code = write_best(best, o->output);
    free(o);
    free(base);
    free(best);
    return code;
}
