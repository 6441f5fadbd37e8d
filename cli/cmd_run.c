/* SPDX-License-Identifier: Apache-2.0 — hdo run: one run, or one per seed, into run folders. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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
    "  --seeds A-B          one run per seed into DIR/seed-N, a process each, then mean and standard error\n"
    "  --threads N          threads (default: all CPUs this process may use); results do not depend on it\n"
    "  --max-steps N        same as --set steps=N\n"
    "  --max-time S         stop after S seconds\n"
    "  --eval-every N       same as --set eval.every=N\n"
    "  --resume DIR         continue the run stored in DIR from its newest checkpoint (no CONFIG, no other settings)\n"
    "  --json               print the summary as one JSON document\n"
    "  --dry-run            print the resolved plan (size, memory, traffic) and stop\n"
    "  --fetch              obtain the data set first if it is not here (hdo data get)\n"
    "  --force              replace a run that is already in DIR\n"
    "  -q, --quiet          no progress and no notes;  --color auto|always|never\n\n"
    "Ctrl-C finishes the step, evaluates, saves and exits with 130; a second Ctrl-C stops at once.\n"
    "Every key with its meaning: hdo config help.\n\n"
    "Example: hdo run demo --population 8fo+24zo --seeds 0-4 -o runs/hybrid\n\nPresets:";

typedef struct run_options {
    const char *source, *population, *output, *resume;
    int64_t threads; /* for --resume; 0: as stored */
    char *set[64];
    int n_set;
    int64_t seed_first, seed_last; /* -1: from the configuration */
    bool json, dry_run, force, fetch;
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
        if (st == HDO_OK && *why == HDO_RUNNING && cli_take_checkpoint()) st = hdo_run_save(r, e);
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

/* Drives a run to its end and tells of it. Takes r. */
static int finish_run(const run_options *o, hdo_run *r, run_view *v, bool print, const char *dir, hdo_row *final) {
    hdo_error e = {0};
    hdo_stop why = HDO_RUNNING;
    hdo_status st = drive(r, v, &why, &e);
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
        print_result(hdo_run_config(r), r, why, dir);
    }
    if (why == HDO_DIVERGED) {
        cli_note("hdo: the run diverged after %lld steps (a loss is no longer finite, or above stop.diverged); "
                 "a smaller lr or a larger rv for the zeroth-order class is the usual cure", (long long)hdo_run_step(r));
    }
    hdo_run_destroy(r);
    return exit_code(why);
}

static int run_resumed(const run_options *o) {
    hdo_error e = {0};
    run_view v;
    hdo_hooks hooks = {.ctx = &v, .log = on_log, .row = on_row};
    hdo_run *r = NULL;
    if (hdo_run_resume(&r, o->resume, o->threads, &hooks, &e) != HDO_OK) return cli_fail(&e);
    const hdo_config *c = hdo_run_config(r);
    char label[HDO_NAME_MAX + 32];
    snprintf(label, sizeof label, "%s seed %lld", c->name, (long long)c->seed);
    cli_progress_start(&v.progress, label, c->steps + c->warmup);
    cli_note("resuming %s at step %lld of %lld", o->resume, (long long)hdo_run_step(r), (long long)(c->steps + c->warmup));
    return finish_run(o, r, &v, true, o->resume, NULL);
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
    hdo_status st = hdo_run_create(&r, c, &hooks, &e);
    if (st == HDO_OK && o->dry_run) {
        print_plan(c, r, o->json);
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

/* ---- one process per seed, as many at once as there are threads: seeds need no synchronisation ---- */

typedef struct worker {
    pid_t pid; /* 0: free */
    int fd;    /* the last row comes through here */
    int64_t seed;
} worker;

enum { WORKERS_MAX = 256 };

static bool read_all(int fd, void *buf, size_t len) {
    for (char *p = buf; len > 0;) {
        ssize_t n = read(fd, p, len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static bool start_worker(worker *w, const run_options *o, hdo_config *c, const char *dir, int64_t seed) {
    int fds[2];
    if (pipe(fds) != 0) return false;
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        close(fds[0]);
        close(fds[1]);
        return false;
    }
    if (pid == 0) {
        char sub[HDO_PATH_MAX + 64];
        hdo_row row;
        close(fds[0]);
        cli_set_quiet(true);
        snprintf(sub, sizeof sub, "%s/seed-%lld", dir, (long long)seed);
        c->seed = seed;
        c->threads = 1;
        int code = run_once(o, c, sub, false, &row);
        bool ok = (code == 0 || code == EXIT_DIVERGED) && write(fds[1], &row, sizeof row) == (ssize_t)sizeof row;
        _exit(ok || code != 0 ? code : 1);
    }
    close(fds[1]);
    *w = (worker){pid, fds[0], seed};
    return true;
}

/* Waits for one worker; true when its row arrived. */
static bool reap(worker *w, int n, hdo_row *row, int *code) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, 0)) < 0 && errno == EINTR) {
        for (int k = 0; k < n && cli_signal() != 0; k++) {
            if (w[k].pid != 0) kill(w[k].pid, cli_signal());
        }
    }
    for (int k = 0; k < n; k++) {
        if (w[k].pid != pid || pid <= 0) continue;
        *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        bool got = read_all(w[k].fd, row, sizeof *row);
        close(w[k].fd);
        w[k].pid = 0;
        return got;
    }
    *code = 1;
    return false;
}

typedef struct group {
    moments loss, acc, mu;
    int code; /* the worst exit code */
} group;

static void collect(group *g, const hdo_row *row, int code) {
    add(&g->loss, row->all.loss_mean);
    add(&g->acc, row->all.acc_mean);
    add(&g->mu, row->mu_loss);
    if (code != 0) g->code = code;
}

static void print_seeds(const group *g, const char *dir, bool json) {
    bool acc = isfinite(mean(&g->acc));
    if (json) {
        printf("{\"schema_version\": 1, \"seeds\": %d, \"dir\": \"%s\", \"val_loss_mean\": %.9g, \"val_loss_se\": %.9g, "
               "\"val_loss_mu\": %.9g, \"val_loss_mu_se\": %.9g",
               g->loss.n, dir, mean(&g->loss), standard_error(&g->loss), mean(&g->mu), standard_error(&g->mu));
        if (acc) printf(", \"val_acc_mean\": %.9g, \"val_acc_se\": %.9g", mean(&g->acc), standard_error(&g->acc));
        printf("}\n");
        return;
    }
    printf("%d seeds: loss %.4f +- %.4f (mean over nodes), %.4f +- %.4f (mean model)", g->loss.n, mean(&g->loss),
           standard_error(&g->loss), mean(&g->mu), standard_error(&g->mu));
    if (acc) printf(", accuracy %.2f%% +- %.2f%%", 100.0 * mean(&g->acc), 100.0 * standard_error(&g->acc));
    printf("\n  results in %s/seed-*\n", dir);
}

static int run_seeds(const run_options *o, hdo_config *c, const char *dir) {
    worker w[WORKERS_MAX] = {{0, 0, 0}};
    int slots = c->threads > 0 ? (int)c->threads : (int)sysconf(_SC_NPROCESSORS_ONLN), busy = 0;
    int64_t total = o->seed_last - o->seed_first + 1, next = o->seed_first, done = 0;
    group g = {0};
    if (slots > WORKERS_MAX) slots = WORKERS_MAX;
    if (slots < 1) slots = 1;
    while (next <= o->seed_last || busy > 0) {
        int k = 0;
        while (k < slots && w[k].pid != 0) k++;
        if (k < slots && next <= o->seed_last && cli_signal() == 0 && (g.code == 0 || g.code == EXIT_DIVERGED)) {
            if (!start_worker(&w[k], o, c, dir, next)) {
                fprintf(stderr, "hdo: error: cannot start a process for seed %lld: %s\n", (long long)next, strerror(errno));
                g.code = 1;
                next = o->seed_last + 1;
                continue;
            }
            next++;
            busy++;
            continue;
        }
        if (busy == 0) break;
        hdo_row row;
        int code = 0;
        if (reap(w, slots, &row, &code)) {
            collect(&g, &row, code);
        } else {
            g.code = code != 0 ? code : 1;
        }
        busy--;
        done++;
        if (!o->json) cli_note("%s: %lld of %lld seeds done", c->name, (long long)done, (long long)total);
    }
    if (g.loss.n > 0) print_seeds(&g, dir, o->json);
    return cli_signal() != 0 ? 128 + cli_signal() : g.code;
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
    enum { POPULATION = 256, RESUME, SET, SEED, SEEDS, THREADS, STEPS, TIME, EVAL, JSON, DRY, FETCH, FORCE, COLOUR };
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"population", required_argument, NULL, POPULATION},
                                          {"set", required_argument, NULL, SET},
                                          {"output", required_argument, NULL, 'o'},
                                          {"config", required_argument, NULL, 'c'},
                                          {"seed", required_argument, NULL, SEED},
                                          {"seeds", required_argument, NULL, SEEDS},
                                          {"resume", required_argument, NULL, RESUME},
                                          {"threads", required_argument, NULL, THREADS},
                                          {"max-steps", required_argument, NULL, STEPS},
                                          {"max-time", required_argument, NULL, TIME},
                                          {"eval-every", required_argument, NULL, EVAL},
                                          {"json", no_argument, NULL, JSON},
                                          {"dry-run", no_argument, NULL, DRY},
                                          {"fetch", no_argument, NULL, FETCH},
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
        case RESUME: o->resume = optarg; break;
        case THREADS:
            cli_int(optarg, 1, 4096, &o->threads);
            ok = add_short(o, "threads", optarg);
            break;
        case STEPS: ok = add_short(o, "steps", optarg); break;
        case TIME: ok = add_short(o, "stop.time_s", optarg); break;
        case EVAL: ok = add_short(o, "eval.every", optarg); break;
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
                     o->seed_first < 0 && o->n_set == (o->threads > 0 ? 1 : 0);
        return alone ? -1 : cli_usage_error("run", "--resume continues a run as it was: only --threads, --json and -q go with it");
    }
    if (o->source == NULL && optind < argc) o->source = argv[optind++];
    if (optind < argc) return cli_usage_error("run", "one configuration at a time, but got '%s' too", argv[optind]);
    if (o->source == NULL) return cli_usage_error("run", "which configuration? Give a YAML file or a preset, for example: hdo run demo");
    return -1;
}

/* Obtains the data set of the configuration if it is one with files of its own that are not here. */
static hdo_status fetch_data(const hdo_config *c, hdo_error *e) {
    hdo_data_info info;
    hdo_status st = hdo_data_find(c->data.name, &info, e);
    if (st != HDO_OK || (info.state != HDO_DATA_ABSENT && info.state != HDO_DATA_DAMAGED)) return st;
    return hdo_data_get(c->data.name, NULL, NULL, e);
}

int cmd_run(int argc, char **argv) {
    char command_line[2048], dir[HDO_PATH_MAX];
    run_options o = {.seed_first = -1};
    join(argc, argv, command_line, sizeof command_line); /* before getopt reorders the words */
    o.command_line = command_line;
    int code = parse(argc, argv, &o);
    if (code >= 0) return code;
    if (o.resume != NULL) {
        cli_catch_signals();
        return run_resumed(&o);
    }
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return 1;
    hdo_error e = {0};
    if (cli_config(c, o.source, o.population, o.n_set, o.set, &e) != HDO_OK) {
        free(c);
        return cli_fail(&e);
    }
    if (o.fetch && fetch_data(c, &e) != HDO_OK) {
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
