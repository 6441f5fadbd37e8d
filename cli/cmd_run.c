/* SPDX-License-Identifier: Apache-2.0 — hdo run: one run, or one per seed, into run folders. */
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pool.h"
#include "run_text.h"
#include "seeds.h"

static const char help_text[] =
    "Usage: hdo run CONFIG|PRESET [OPTIONS]\n\n"
    "Runs a population. CONFIG is a YAML file ('-' reads standard input), PRESET a name from the list below.\n\n"
    "  --population P       counts by class, for example 24fo+256zo; classes not named are left out\n"
    "  --set KEY=VALUE      any configuration key, repeatable: --set population.zo.rv=64 --set mixing.kind=pairwise\n"
    "  -o, --output DIR     folder for the results (default: runs/NAME-DATE-HASH, under $HDO_RUNS_DIR if set)\n"
    "  --seed N             the seed (default: from the configuration)\n"
    "  --seeds A-B          one run per seed into DIR/seed-N, a process each, then mean and standard error\n"
    "  --threads N          threads (default: all CPUs this process may use); results do not depend on it\n"
    "  --init FILE          start from the weights in a safetensors file (same as --set model.weights=FILE)\n"
    "  --max-steps N        same as --set steps=N\n"
    "  --max-time S         stop after S seconds, with a checkpoint; of this session only, not stored\n"
    "  --eval-every N       same as --set eval.every=N\n"
    "  --allow-piecewise    complex-step accepts models with kinks: allow_piecewise=true for every class that uses it\n"
    "  --resume DIR         continue the run stored in DIR from its newest whole checkpoint, or all runs of --seeds in "
    "it;\n"
    "                       with --set: steps, eval.every, checkpoint.*, stop.*; with --seeds A-B: more seeds\n"
    "  --engine sim|mpi     all nodes in this process (default), or spread over the ranks of an MPI job: the same "
    "bits\n"
    "  --np N               with --engine mpi: start N ranks (not needed under mpirun or srun);  --hostfile FILE\n"
    "  --roles R            which ranks or hosts may back-propagate: 0:fo,1-3:zo (same as --set mpi.roles=R)\n"
    "  --async              with --engine mpi: every rank at its own pace\n"
    "  --json               print the summary as one JSON document\n"
    "  --dry-run            print the resolved plan (size, memory, traffic) and stop\n"
    "  --fetch              obtain the data set first if it is not here (hdo data get)\n"
    "  --force              replace a run that is already in DIR\n"
    "  -q, --quiet          no progress and no notes;  --color auto|always|never\n\n"
    "Ctrl-C finishes the step, evaluates, saves and exits with 130; a second Ctrl-C stops at once.\n"
    "Every key with its meaning: hdo config help.\n\n"
    "Example: hdo run demo --population 8fo+24zo --seeds 0-4 -o runs/hybrid\n\nPresets:";

enum { ARGS_MAX = 256, SETS_MAX = 64 };

typedef struct run_options {
    const char *source, *population, *output, *resume;
    int64_t threads;   /* for --resume; 0: as stored */
    double max_time_s; /* 0: no limit of this session */
    const char *engine;
    cli_launch launch;
    char *set[SETS_MAX];
    int n_set;
    int64_t seed_first, seed_last; /* -1: from the configuration */
    bool json, dry_run, force, fetch, piecewise;
    const char *command_line;
} run_options;

typedef struct run_view { /* what the hooks need */
    cli_progress progress;
    bool taking_up; /* a stored run: what is wrong with it is said even when quiet */
} run_view;

static void on_row(void *ctx, const hdo_row *row) {
    cli_progress_row(&((run_view *)ctx)->progress, row);
}

static void on_log(void *ctx, hdo_log_level level, const char *message) {
    const run_view *v = ctx;
    if (level == HDO_LOG_WARN && (v->taking_up || !cli_quiet())) cli_warn(message);
    if (level == HDO_LOG_INFO) cli_note("%s", message);
}

static void print_plan(const hdo_config *c, const hdo_run *r, bool json) {
    hdo_run_info i;
    hdo_run_describe(r, &i);
    if (json) {
        run_print_plan_json(c, &i);
        return;
    }
    char *yaml = hdo_config_dump(c, true);
    if (yaml != NULL) fputs(yaml, stdout);
    free(yaml);
    printf("\n# d = %lld numbers a model, %lld nodes, %lld steps, %d threads\n", (long long)i.d, (long long)i.n,
           (long long)i.total_steps, i.threads);
    printf("# memory: models %.1f MB, scratch %.1f MB; exchanged a step: at most %.2f MB\n",
           (double)i.state_bytes / 1e6, (double)i.scratch_bytes / 1e6, (double)i.bytes_per_step / 1e6);
    if (i.train_samples > 0)
        printf("# data: %lld training, %lld validation samples\n", (long long)i.train_samples,
               (long long)i.val_samples);
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
    snprintf(buf, cap, "%s/%s-%s-%06x", root != NULL && root[0] != '\0' ? root : "runs", c->name, stamp,
             hash & 0xffffffu);
}

static void on_step(void *ctx, const hdo_run *r) {
    cli_progress_step(&((run_view *)ctx)->progress, hdo_run_step(r), hdo_run_last_row(r));
}

static int exit_code(hdo_stop why) {
    if (why == HDO_DIVERGED) return EXIT_DIVERGED;
    if (why == HDO_STOPPED) return cli_signal() == SIGTERM ? EXIT_SIGTERM : EXIT_SIGINT;
    return 0;
}

/* Drives a run to its end and tells of it. Takes r. */
static int finish_run(const run_options *o, hdo_run *r, run_view *v, bool print, const char *dir, hdo_row *final) {
    hdo_error e = {0};
    hdo_stop why = HDO_RUNNING;
    hdo_run_limit_time(r, o->max_time_s);
    hdo_status st = cli_drive(r, 0, on_step, v, &why, &e);
    cli_progress_end(&v->progress);
    if (st == HDO_OK && dir != NULL) st = hdo_run_write_summary(r, &e);
    print = print && hdo_run_rank(r) == 0;
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
        run_print_result(hdo_run_config(r), r, why, dir);
    }
    if (why == HDO_DIVERGED) {
        cli_note("hdo: the run diverged after %lld steps (a loss is no longer finite, or beyond the limit of "
                 "stop.diverged)%s%s",
                 (long long)hdo_run_step(r), dir != NULL ? "; which node went first, and why: hdo explain " : "",
                 dir != NULL ? dir : "");
    }
    hdo_run_destroy(r);
    return exit_code(why);
}

/* The settings of the command line that a stored run is to go on with. They point into text, which is cut up. */
static int resume_settings(const run_options *o, hdo_setting *out) {
    int n = 0;
    for (int k = 0; k < o->n_set; k++) {
        char *eq = strchr(o->set[k], '=');
        if (eq == NULL || strncmp(o->set[k], "engine=", 7) == 0 || strncmp(o->set[k], "threads=", 8) == 0) continue;
        *eq = '\0';
        out[n++] = (hdo_setting){o->set[k], eq + 1};
    }
    return n;
}

static int run_resumed(const run_options *o) {
    hdo_error e = {0};
    hdo_setting set[SETS_MAX];
    hdo_resume how = {.threads = o->threads, .n_set = resume_settings(o, set), .set = set};
    run_view v = {.taking_up = true};
    hdo_hooks hooks = {.ctx = &v, .log = on_log, .row = on_row, .asked = cli_asked, .hurry = cli_hurry};
    hdo_run *r = NULL;
    if (hdo_run_resume(&r, o->resume, &how, &hooks, &e) != HDO_OK) return cli_fail(&e);
    v.taking_up = false;
    const hdo_config *c = hdo_run_config(r);
    char label[HDO_NAME_MAX + 32];
    snprintf(label, sizeof label, "%s seed %lld", c->name, (long long)c->seed);
    cli_progress_start(&v.progress, label, c->steps + c->warmup);
    cli_note("resuming %s at step %lld of %lld", o->resume, (long long)hdo_run_step(r),
             (long long)(c->steps + c->warmup));
    return finish_run(o, r, &v, true, o->resume, NULL);
}

/* One run into dir (NULL: none). final, if not NULL, receives the last row. */
static int run_once(const run_options *o, const hdo_config *c, const char *dir, bool print, hdo_row *final) {
    hdo_error e = {0};
    run_view v = {.taking_up = false};
    hdo_hooks hooks = {.ctx = &v, .log = on_log, .row = on_row, .asked = cli_asked, .hurry = cli_hurry};
    char label[HDO_NAME_MAX + 32];
    snprintf(label, sizeof label, "%s seed %lld", c->name, (long long)c->seed);
    cli_progress_start(&v.progress, label, c->steps + c->warmup);
    hdo_run *r = NULL;
    hdo_status st = hdo_run_create(&r, c, &hooks, &e);
    if (st == HDO_OK && o->dry_run) {
        if (hdo_run_rank(r) == 0) print_plan(c, r, o->json);
        hdo_run_destroy(r);
        return 0;
    }
    if (st == HDO_OK && dir != NULL) st = hdo_run_attach_dir(r, dir, o->force, o->command_line, &e);
    if (st != HDO_OK) {
        hdo_run_destroy(r);
        return cli_fail(&e);
    }
    return finish_run(o, r, &v, print, dir, final);
}

/* ---- one process per seed ---- */

/* Engine mpi: the ranks are the processes, so the seeds come one after the other. */
static int run_seeds_in_turn(const run_options *o, hdo_config *c, const char *dir) {
    char sub[HDO_PATH_MAX + 64];
    run_group g = {0};
    int rank, ranks;
    hdo_mpi_launched(&rank, &ranks);
    for (c->seed = o->seed_first; c->seed <= o->seed_last && (g.code == 0 || g.code == EXIT_DIVERGED); c->seed++) {
        hdo_row row;
        snprintf(sub, sizeof sub, "%s/seed-%lld", dir, (long long)c->seed);
        int code = run_once(o, c, sub, false, &row);
        if (code == 0 || code == EXIT_DIVERGED) run_collect(&g, &row, code);
        if (code != 0) g.code = code;
    }
    if (g.seeds > 0 && rank == 0) run_print_seeds(&g, dir, o->json);
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

/* Runs the jobs, and tells of them together. */
static int run_pool(const run_options *o, const cli_pool *pool, cli_job *jobs, int n, const char *dir) {
    int code = cli_pool_run(pool, jobs, n);
    run_group g = {0};
    for (int k = 0; k < n; k++) {
        if (jobs[k].done) run_collect(&g, &jobs[k].row, jobs[k].code);
    }
    if (g.seeds > 0) run_print_seeds(&g, dir, o->json);
    return code;
}

static int run_seeds(const run_options *o, hdo_config *c, const char *dir) {
    cli_seed_set seeds = {0};
    hdo_error e = {0};
    for (int64_t seed = o->seed_first; seed <= o->seed_last; seed++) {
        if (!cli_seeds_add(&seeds, dir, seed, &e)) return cli_fail(&e);
        seeds.job[seeds.n - 1].force = o->force;
    }
    if (!cli_seeds_note(dir, &seeds, &e)) {
        cli_seeds_clear(&seeds);
        return cli_fail(&e);
    }
    seeds_ctx ctx = {c, seeds.seed};
    cli_pool pool = {.label = c->name,
                     .workers = (int)c->threads,
                     .command_line = o->command_line,
                     .max_time_s = o->max_time_s,
                     .ctx = &ctx,
                     .config = seed_config};
    int code = run_pool(o, &pool, seeds.job, seeds.n, dir);
    cli_seeds_clear(&seeds);
    return code;
}

/* Takes up all runs of a folder of seeds; --seeds adds to them. */
static int resume_seeds(const run_options *o) {
    cli_seed_set seeds = {0};
    hdo_error e = {0};
    hdo_setting set[SETS_MAX];
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return 1;
    bool ok = cli_seeds_find(o->resume, &seeds, c, &e);
    for (int64_t seed = o->seed_first; ok && seed >= 0 && seed <= o->seed_last; seed++)
        ok = cli_seeds_add(&seeds, o->resume, seed, &e);
    hdo_resume how = {.n_set = resume_settings(o, set), .set = set};
    for (int k = 0; ok && k < how.n_set; k++) /* for seeds that are new */
        ok = hdo_config_set(c, set[k].key, set[k].value, HDO_FROM_FLAG, &e) == HDO_OK;
    if (ok) ok = cli_seeds_note(o->resume, &seeds, &e);
    int code = ok ? 0 : cli_fail(&e);
    if (ok) {
        seeds_ctx ctx = {c, seeds.seed};
        cli_pool pool = {.label = c->name,
                         .workers = (int)o->threads,
                         .command_line = o->command_line,
                         .max_time_s = o->max_time_s,
                         .n_set = how.n_set,
                         .set = set,
                         .ctx = &ctx,
                         .config = seed_config};
        code = run_pool(o, &pool, seeds.job, seeds.n, o->resume);
    }
    cli_seeds_clear(&seeds);
    free(c);
    return code;
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

/* Returns -1 to go on, otherwise the exit code. */
static int parse(int argc, char **argv, run_options *o) {
    enum {
        POPULATION = 256,
        RESUME,
        SET,
        SEED,
        SEEDS,
        THREADS,
        INIT,
        STEPS,
        TIME,
        EVAL,
        PIECEWISE,
        ENGINE,
        NP,
        HOSTFILE,
        ROLES,
        ASYNC,
        JSON,
        DRY,
        FETCH,
        FORCE,
        COLOUR
    };
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"population", required_argument, NULL, POPULATION},
                                          {"set", required_argument, NULL, SET},
                                          {"output", required_argument, NULL, 'o'},
                                          {"config", required_argument, NULL, 'c'},
                                          {"seed", required_argument, NULL, SEED},
                                          {"seeds", required_argument, NULL, SEEDS},
                                          {"resume", required_argument, NULL, RESUME},
                                          {"threads", required_argument, NULL, THREADS},
                                          {"init", required_argument, NULL, INIT},
                                          {"max-steps", required_argument, NULL, STEPS},
                                          {"max-time", required_argument, NULL, TIME},
                                          {"eval-every", required_argument, NULL, EVAL},
                                          {"allow-piecewise", no_argument, NULL, PIECEWISE},
                                          {"engine", required_argument, NULL, ENGINE},
                                          {"np", required_argument, NULL, NP},
                                          {"hostfile", required_argument, NULL, HOSTFILE},
                                          {"roles", required_argument, NULL, ROLES},
                                          {"async", no_argument, NULL, ASYNC},
                                          {"json", no_argument, NULL, JSON},
                                          {"dry-run", no_argument, NULL, DRY},
                                          {"fetch", no_argument, NULL, FETCH},
                                          {"force", no_argument, NULL, FORCE},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {"color", required_argument, NULL, COLOUR},
                                          {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "ho:c:q", longs, NULL)) != -1;) {
        bool ok = true;
        char *end;
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
        case SEED: ok = add_short(o, "seed", optarg); break;
        case SEEDS:
            if (!cli_seed_range(optarg, &o->seed_first, &o->seed_last))
                return cli_usage_error("run", "--seeds takes A-B with A <= B, for example 0-4; got '%s'", optarg);
            break;
        case RESUME: o->resume = optarg; break;
        case THREADS:
            cli_int(optarg, 1, 4096, &o->threads);
            ok = add_short(o, "threads", optarg);
            break;
        case INIT: ok = add_short(o, "model.weights", optarg); break;
        case STEPS: ok = add_short(o, "steps", optarg); break;
        case TIME:
            o->max_time_s = strtod(optarg, &end);
            if (end == optarg || *end != '\0' || !(o->max_time_s > 0.0) || !isfinite(o->max_time_s))
                return cli_usage_error("run", "--max-time takes a number of seconds; got '%s'", optarg);
            break;
        case EVAL: ok = add_short(o, "eval.every", optarg); break;
        case PIECEWISE: o->piecewise = true; break;
        case ENGINE:
            o->engine = optarg;
            ok = add_short(o, "engine", optarg);
            break;
        case NP:
            if (!cli_int(optarg, 1, 1000000, &o->launch.np))
                return cli_usage_error("run", "--np takes a number of ranks; got '%s'", optarg);
            break;
        case HOSTFILE: o->launch.hostfile = optarg; break;
        case ROLES: ok = add_short(o, "mpi.roles", optarg); break;
        case ASYNC: ok = add_short(o, "mpi.async", "true"); break;
        case JSON: o->json = true; break;
        case DRY: o->dry_run = true; break;
        case FETCH: o->fetch = true; break;
        case FORCE: o->force = true; break;
        case 'q': cli_set_quiet(true); break;
        case COLOUR: cli_colour(optarg); break;
        default: return cli_usage_error("run", "the options are not right");
        }
        if (!ok) return cli_usage_error("run", "too many settings on the command line (64 at most); write a file");
    }
    if (o->resume != NULL) {
        bool alone = optind == argc && o->source == NULL && o->output == NULL && o->population == NULL &&
                     !o->piecewise && !o->force && !o->dry_run;
        return alone ? -1
                     : cli_usage_error("run",
                                       "--resume continues a stored run: --set, --max-steps, --max-time, "
                                       "--eval-every, --seeds, --threads, --engine, --np, --json and -q go with it");
    }
    if (o->source == NULL && optind < argc) o->source = argv[optind++];
    if (optind < argc) return cli_usage_error("run", "one configuration at a time, but got '%s' too", argv[optind]);
    if (o->source == NULL)
        return cli_usage_error("run", "which configuration? Give a YAML file or a preset, for example: hdo run demo");
    return -1;
}

/* Obtains the data set of the configuration if it is one with files of its own that are not here. */
static hdo_status fetch_data(const hdo_config *c, hdo_error *e) {
    hdo_data_info info;
    hdo_status st = hdo_data_find(c->data.name, &info, e);
    if (st != HDO_OK || (info.state != HDO_DATA_ABSENT && info.state != HDO_DATA_DAMAGED)) return st;
    return hdo_data_get(c->data.name, NULL, NULL, e);
}

/* Before anything is parsed: is this a rank of an MPI run, that should leave the talking to the first? */
static bool mentions_mpi(int argc, char **argv) {
    bool yes = false;
    for (int i = 0; i < argc; i++) {
        const char *end = strlen(argv[i]) >= 3 ? argv[i] + strlen(argv[i]) - 3 : "";
        yes = yes || strcmp(end, "mpi") == 0;
    }
    return yes;
}

/* mpi.deadline_s of the run in dir; the default if it cannot be read: the ranks will say why. */
static double stored_deadline(const char *dir) {
    char path[HDO_PATH_MAX + 64];
    hdo_error e;
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return 0.0;
    hdo_config_default(c);
    double limit = c->mpi.deadline_s;
    snprintf(path, sizeof path, "%.*s/config.yaml", HDO_PATH_MAX, dir);
    if (hdo_config_load(c, path, &e) == HDO_OK) limit = c->mpi.deadline_s;
    free(c);
    return limit;
}

int cmd_run(int argc, char **argv) {
    char command_line[2048], dir[HDO_PATH_MAX];
    run_options o = {.seed_first = -1};
    cli_join(argc, argv, command_line, sizeof command_line); /* before getopt reorders the words */
    o.command_line = command_line;
    char *words[ARGS_MAX];
    int rank, ranks, n_words = argc < ARGS_MAX ? argc : ARGS_MAX;
    bool launched = hdo_mpi_launched(&rank, &ranks);
    memcpy(words, argv, (size_t)n_words * sizeof *words);
    if (rank > 0 && mentions_mpi(argc, argv)) cli_set_silent();
    int code = parse(argc, argv, &o);
    if (code >= 0) return code;
    if (o.resume != NULL) {
        bool mpi = o.engine != NULL && strcmp(o.engine, "mpi") == 0;
        o.launch.dir = o.resume;
        if (!launched && (mpi || o.launch.np > 0)) {
            if (o.launch.np == 0)
                return cli_usage_error("run", "engine mpi: how many ranks? Give --np N, or start under mpirun");
            o.launch.deadline_s = stored_deadline(o.resume);
            return cli_launch_mpi(&o.launch, n_words, words);
        }
        if (rank > 0) cli_set_silent();
        cli_catch_signals();
        return !launched && cli_seeds_folder(o.resume) ? resume_seeds(&o) : run_resumed(&o);
    }
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return 1;
    hdo_error e = {0};
    if (cli_config(c, o.source, o.population, o.n_set, o.set, &e) != HDO_OK ||
        (o.piecewise && cli_allow_piecewise(c, &e) != HDO_OK)) {
        free(c);
        return cli_fail(&e);
    }
    bool mpi = c->engine.id == HDO_ENGINE_MPI;
    if ((mpi || ranks > 1) && rank > 0) cli_set_silent();
    if (!mpi && ranks > 1) { /* each of them would be a whole run, in the same folder */
        free(c);
        return cli_usage_error("run",
                               "an MPI launcher has started %d ranks, but engine is 'sim': add --engine mpi, or start "
                               "hdo without the launcher",
                               ranks);
    }
    if (mpi && !launched) {
        o.launch.dir = o.output;
        o.launch.deadline_s = c->mpi.deadline_s;
        free(c);
        if (strcmp(o.source, "-") == 0)
            return cli_usage_error("run", "engine mpi cannot read its configuration from standard input");
        if (o.launch.np == 0)
            return cli_usage_error("run", "engine mpi: how many ranks? Give --np N, or start under mpirun");
        return cli_launch_mpi(&o.launch, n_words, words);
    }
    if (!mpi && o.launch.np > 0) {
        free(c);
        return cli_usage_error("run", "--np goes with --engine mpi");
    }
    if (o.fetch && rank == 0 && fetch_data(c, &e) != HDO_OK) {
        free(c);
        return cli_fail(&e);
    }
    if (o.output != NULL) {
        snprintf(dir, sizeof dir, "%s", o.output);
    } else {
        default_dir(c, dir, sizeof dir);
    }
    cli_catch_signals();
    code = o.seed_first >= 0 && !o.dry_run ? (mpi ? run_seeds_in_turn : run_seeds)(&o, c, dir)
                                           : run_once(&o, c, dir, true, NULL);
    free(c);
    return code;
}
