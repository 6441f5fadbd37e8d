/* SPDX-License-Identifier: Apache-2.0 — hdo run: one run, or one per seed, into run folders. */
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

static const char help_text[] =
    "Usage: hdo run CONFIG|PRESET [OPTIONS]\n\n"
    "Runs a population. CONFIG is a YAML file ('-' reads standard input), PRESET a name from the list below.\n\n"
    "  --population P       counts by class, for example 24fo+256zo; classes not named are left out\n"
    "  --set KEY=VALUE      any configuration key, repeatable: --set population.zo.rv=64 --set mixing.kind=pairwise\n"
    "  -o, --output DIR     folder for the results (default: runs/NAME-DATE-HASH, under $HDO_RUNS_DIR if set)\n"
    "  --seed N             the seed (default: from the configuration)\n"
    "  --seeds A-B          one run per seed into DIR/seed-N, then mean and standard error\n"
    "  --threads N          threads (default: all CPUs this process may use); results do not depend on it\n"
    "  --max-steps N        same as --set steps=N\n"
    "  --max-time S         stop after S seconds\n"
    "  --eval-every N       same as --set eval.every=N\n"
    "  --json               print the summary as one JSON document\n"
    "  --dry-run            print the resolved plan (size, memory, traffic) and stop\n"
    "  --force              replace a run that is already in DIR\n"
    "  -q, --quiet          no progress and no notes;  --color auto|always|never\n\n"
    "Ctrl-C finishes the step, evaluates, saves and exits with 130; a second Ctrl-C stops at once.\n"
    "Every key with its meaning: hdo config help.\n\n"
    "Example: hdo run demo --population 8fo+24zo --seeds 0-4 -o runs/hybrid\n\nPresets:";

typedef struct run_options {
    const char *source, *population, *output;
    char *set[64];
    int n_set;
    int64_t seed_first, seed_last; /* -1: from the configuration */
    bool json, dry_run, force;
    const char *command_line;
} run_options;

typedef struct run_view { /* what the row hook needs */
    cli_progress progress;
} run_view;

static void on_row(void *ctx, const hdo_row *row) { cli_progress_row(&((run_view *)ctx)->progress, row); }

static void on_log(void *ctx, hdo_log_level level, const char *message) {
    (void)ctx;
    if (level >= HDO_LOG_INFO) cli_note("%s%s", level == HDO_LOG_WARN ? "warning: " : "", message);
}

static void print_group(const char *name, const hdo_group *g) {
    printf("  %-10s %10.4f %10.4f %10.4f %10.4f", name, g->loss_mean, g->loss_std, g->loss_min, g->loss_max);
    if (isfinite(g->acc_mean)) printf(" %9.2f%%", 100.0 * g->acc_mean);
    printf("\n");
}

static void print_result(const hdo_config *c, const hdo_run *r, hdo_stop why, const char *dir) {
    const hdo_row *row = hdo_run_last_row(r);
    cli_style s = cli_style_for(stdout);
    printf("%s%s%s after %lld steps, %.1f s (steps %.1f s, evaluation %.1f s)\n", s.bold, hdo_stop_name(why), s.off,
           (long long)row->step, row->wall_s, row->step_s, row->eval_s);
    printf("  %-10s %10s %10s %10s %10s %10s\n", "nodes", "loss", "std", "min", "max", "accuracy");
    print_group("all", &row->all);
    for (int k = 0; k < c->n_classes && c->n_classes > 1; k++) print_group(c->population[k].name, &row->cls[k]);
    if (isfinite(row->mu_loss)) {
        printf("  %-10s %10.4f %43s", "mean model", row->mu_loss, "");
        if (isfinite(row->mu_acc)) printf("%9.2f%%", 100.0 * row->mu_acc);
        printf("\n");
    }
    printf("  consensus distance Gamma %.4g; oracle calls: %lld forward, %lld backward, %lld jvp; %.1f MB exchanged\n",
           row->gamma, (long long)row->forward, (long long)row->backward, (long long)row->jvp, (double)row->bytes / 1e6);
    if (dir != NULL) printf("  results in %s\n", dir);
}

static void print_plan(const hdo_config *c, const hdo_run *r, bool json) {
    hdo_run_info i;
    hdo_run_describe(r, &i);
    if (json) {
        printf("{\"schema_version\": 1, \"dry_run\": true, \"model\": \"%s\", \"d\": %lld, \"n\": %lld, \"total_steps\": %lld, "
               "\"threads\": %d, \"state_bytes\": %zu, \"scratch_bytes\": %zu, \"bytes_per_step\": %lld}\n",
               c->model.name, (long long)i.d, (long long)i.n, (long long)i.total_steps, i.threads, i.state_bytes,
               i.scratch_bytes, (long long)i.bytes_per_step);
        return;
    }
    char *yaml = hdo_config_dump(c, true);
    if (yaml != NULL) fputs(yaml, stdout);
    free(yaml);
    printf("\n# d = %lld numbers a model, %lld nodes, %lld steps, %d threads\n", (long long)i.d, (long long)i.n,
           (long long)i.total_steps, i.threads);
    printf("# memory: models %.1f MB, scratch %.1f MB; exchanged a step: %.2f MB\n", (double)i.state_bytes / 1e6,
           (double)i.scratch_bytes / 1e6, (double)i.bytes_per_step / 1e6);
    if (i.train_samples > 0) printf("# data: %lld training, %lld validation samples\n", (long long)i.train_samples, (long long)i.val_samples);
}

/* runs/NAME-20261231-235959-1a2b3c: readable, sortable, and different for two runs of one second. */
static void default_dir(const hdo_config *c, char *buf, size_t cap) {
    const char *root = getenv("HDO_RUNS_DIR");
    char stamp[32];
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &tm);
    unsigned hash = (unsigned)now.tv_nsec * 2654435761u ^ (unsigned)getpid() * 40503u ^ (unsigned)c->seed;
    snprintf(buf, cap, "%s/%s-%s-%06x", root != NULL && root[0] != '\0' ? root : "runs", c->name, stamp, hash & 0xffffffu);
}

/* Advances to the end, or to the end of the step in which a signal came. */
static hdo_status drive(hdo_run *r, run_view *v, hdo_stop *why, hdo_error *e) {
    hdo_status st = HDO_OK;
    *why = HDO_RUNNING;
    while (*why == HDO_RUNNING && st == HDO_OK) {
        st = hdo_run_advance(r, 1, why, e);
        cli_progress_step(&v->progress, hdo_run_step(r), hdo_run_last_row(r));
        if (st == HDO_OK && *why == HDO_RUNNING && cli_signal() != 0) {
            *why = HDO_STOPPED;
            st = hdo_run_stop(r, e);
        }
    }
    cli_progress_end(&v->progress);
    return st;
}

static int exit_code(hdo_stop why) {
    if (why == HDO_DIVERGED) return EXIT_DIVERGED;
    if (why == HDO_STOPPED) return cli_signal() == SIGTERM ? EXIT_SIGTERM : EXIT_SIGINT;
    return 0;
}

/* One run into dir (NULL: none). final, if not NULL, receives the last row. */
static int run_once(const run_options *o, const hdo_config *c, const char *dir, bool print, hdo_row *final) {
    hdo_error e = {0};
    run_view v;
    hdo_hooks hooks = {.ctx = &v, .log = on_log, .row = on_row};
    char label[HDO_NAME_MAX + 32];
    snprintf(label, sizeof label, "%s seed %lld", c->name, (long long)c->seed);
    cli_progress_start(&v.progress, label, c->steps + c->warmup);
    hdo_run *r = NULL;
    hdo_stop why = HDO_RUNNING;
    hdo_status st = hdo_run_create(&r, c, &hooks, &e);
    if (st == HDO_OK && o->dry_run) {
        print_plan(c, r, o->json);
        hdo_run_destroy(r);
        return 0;
    }
    if (st == HDO_OK && dir != NULL) st = hdo_run_attach_dir(r, dir, o->force, o->command_line, &e);
    if (st == HDO_OK) st = drive(r, &v, &why, &e);
    if (st == HDO_OK && dir != NULL) st = hdo_run_write_summary(r, &e);
    if (st != HDO_OK) {
        hdo_run_destroy(r);
        return cli_fail(&e);
    }
    if (final != NULL) *final = *hdo_run_last_row(r);
    if (print && o->json) {
        char *text = hdo_run_summary(r);
        if (text != NULL) puts(text);
        free(text);
    } else if (print) {
        print_result(c, r, why, dir);
    }
    if (why == HDO_DIVERGED) {
        cli_note("hdo: the run diverged after %lld steps (a loss is no longer finite, or above stop.diverged); "
                 "a smaller lr or a larger rv for the zeroth-order class is the usual cure", (long long)hdo_run_step(r));
    }
    hdo_run_destroy(r);
    return exit_code(why);
}

typedef struct moments {
    int n;
    double sum, sum2;
} moments;
static void add(moments *m, double v) {
    m->n++;
    m->sum += v;
    m->sum2 += v * v;
}
static double mean(const moments *m) { return m->sum / m->n; }
static double standard_error(const moments *m) {
    double var = (m->sum2 - m->sum * m->sum / m->n) / (m->n - 1);
    return m->n > 1 && var > 0.0 ? sqrt(var / m->n) : 0.0;
}

static int run_seeds(const run_options *o, hdo_config *c, const char *dir) {
    moments loss = {0}, acc = {0}, mu = {0};
    int worst = 0;
    for (int64_t seed = o->seed_first; seed <= o->seed_last && cli_signal() == 0; seed++) {
        char sub[HDO_PATH_MAX + 64];
        hdo_row row;
        snprintf(sub, sizeof sub, "%s/seed-%lld", dir, (long long)seed);
        c->seed = seed;
        int code = run_once(o, c, sub, false, &row);
        if (code != 0 && code != EXIT_DIVERGED) return code;
        if (code != 0) worst = code;
        add(&loss, row.all.loss_mean);
        add(&acc, row.all.acc_mean);
        add(&mu, row.mu_loss);
    }
    if (o->json) {
        printf("{\"schema_version\": 1, \"seeds\": %d, \"dir\": \"%s\", \"val_loss_mean\": %.9g, \"val_loss_se\": %.9g, "
               "\"val_loss_mu\": %.9g, \"val_loss_mu_se\": %.9g",
               loss.n, dir, mean(&loss), standard_error(&loss), mean(&mu), standard_error(&mu));
        if (isfinite(mean(&acc))) printf(", \"val_acc_mean\": %.9g, \"val_acc_se\": %.9g", mean(&acc), standard_error(&acc));
        printf("}\n");
    } else {
        printf("%d seeds: loss %.4f +- %.4f (mean over nodes), %.4f +- %.4f (mean model)", loss.n, mean(&loss),
               standard_error(&loss), mean(&mu), standard_error(&mu));
        if (isfinite(mean(&acc))) printf(", accuracy %.2f%% +- %.2f%%", 100.0 * mean(&acc), 100.0 * standard_error(&acc));
        printf("\n  results in %s/seed-*\n", dir);
    }
    return worst;
}

static bool parse_seeds(const char *text, run_options *o) {
    char first[32];
    const char *dash = strchr(text, '-');
    size_t len = dash != NULL ? (size_t)(dash - text) : strlen(text);
    if (len == 0 || len >= sizeof first) return false;
    memcpy(first, text, len);
    first[len] = '\0';
    return cli_int(first, 0, INT64_MAX, &o->seed_first) &&
           cli_int(dash != NULL ? dash + 1 : first, o->seed_first, INT64_MAX, &o->seed_last) &&
           o->seed_last - o->seed_first < 100000;
}

static bool add_set(run_options *o, char *text) {
    if (o->n_set == (int)(sizeof o->set / sizeof o->set[0])) return false;
    o->set[o->n_set++] = text;
    return true;
}

/* --max-steps 100 is --set steps=100: one mechanism, a few short names. The strings live as long as the process. */
static bool add_short(run_options *o, const char *key, const char *value) {
    size_t cap = strlen(key) + strlen(value) + 2;
    char *text = malloc(cap);
    if (text == NULL) return false;
    snprintf(text, cap, "%s=%s", key, value);
    return add_set(o, text);
}

static void join(int argc, char **argv, char *buf, size_t cap) {
    size_t len = (size_t)snprintf(buf, cap, "hdo");
    for (int i = 0; i < argc && len + 1 < cap; i++) len += (size_t)snprintf(buf + len, cap - len, " %s", argv[i]);
}

/* Returns -1 to go on, otherwise the exit code. */
static int parse(int argc, char **argv, run_options *o) {
    enum { POPULATION = 256, SET, SEED, SEEDS, THREADS, STEPS, TIME, EVAL, JSON, DRY, FORCE, COLOUR };
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"population", required_argument, NULL, POPULATION},
                                          {"set", required_argument, NULL, SET},
                                          {"output", required_argument, NULL, 'o'},
                                          {"config", required_argument, NULL, 'c'},
                                          {"seed", required_argument, NULL, SEED},
                                          {"seeds", required_argument, NULL, SEEDS},
                                          {"threads", required_argument, NULL, THREADS},
                                          {"max-steps", required_argument, NULL, STEPS},
                                          {"max-time", required_argument, NULL, TIME},
                                          {"eval-every", required_argument, NULL, EVAL},
                                          {"json", no_argument, NULL, JSON},
                                          {"dry-run", no_argument, NULL, DRY},
                                          {"force", no_argument, NULL, FORCE},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {"color", required_argument, NULL, COLOUR},
                                          {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "ho:c:q", longs, NULL)) != -1;) {
        bool ok = true;
        switch (c) {
        case 'h':
            fputs(help_text, stdout);
            for (const char *const *p = hdo_preset_names(); *p != NULL; p++) printf(" %s", *p);
            printf("\n");
            return 0;
        case POPULATION: o->population = optarg; break;
        case SET: ok = add_set(o, optarg); break;
        case 'o': o->output = optarg; break;
        case 'c': o->source = optarg; break;
        case SEED:
            ok = add_short(o, "seed", optarg);
            break;
        case SEEDS:
            if (!parse_seeds(optarg, o)) return cli_usage_error("run", "--seeds takes A-B with A <= B, for example 0-4; got '%s'", optarg);
            break;
        case THREADS: ok = add_short(o, "threads", optarg); break;
        case STEPS: ok = add_short(o, "steps", optarg); break;
        case TIME: ok = add_short(o, "stop.time_s", optarg); break;
        case EVAL: ok = add_short(o, "eval.every", optarg); break;
        case JSON: o->json = true; break;
        case DRY: o->dry_run = true; break;
        case FORCE: o->force = true; break;
        case 'q': cli_set_quiet(true); break;
        case COLOUR: cli_colour(optarg); break;
        default: return cli_usage_error("run", "the options are not right");
        }
        if (!ok) return cli_usage_error("run", "too many settings on the command line (64 at most); write a file");
    }
    if (o->source == NULL && optind < argc) o->source = argv[optind++];
    if (optind < argc) return cli_usage_error("run", "one configuration at a time, but got '%s' too", argv[optind]);
    if (o->source == NULL) return cli_usage_error("run", "which configuration? Give a YAML file or a preset, for example: hdo run demo");
    return -1;
}

int cmd_run(int argc, char **argv) {
    char command_line[2048], dir[HDO_PATH_MAX];
    run_options o = {.seed_first = -1};
    join(argc, argv, command_line, sizeof command_line); /* before getopt reorders the words */
    o.command_line = command_line;
    int code = parse(argc, argv, &o);
    if (code >= 0) return code;
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return 1;
    hdo_error e = {0};
    if (cli_config(c, o.source, o.population, o.n_set, o.set, &e) != HDO_OK) {
        free(c);
        return cli_fail(&e);
    }
    if (o.output != NULL) {
        snprintf(dir, sizeof dir, "%s", o.output);
    } else {
        default_dir(c, dir, sizeof dir);
    }
    cli_catch_signals();
    code = o.seed_first >= 0 && !o.dry_run ? run_seeds(&o, c, dir) : run_once(&o, c, dir, true, NULL);
    free(c);
    return code;
}
