/* SPDX-License-Identifier: Apache-2.0 — hdo paper: the seven experiments, their figures and what became of the claims.
 */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hdo/lab/eval.h"
#include "hdo/lab/paper.h"
#include "pool.h"

static const char help_text[] =
    "Usage: hdo paper list | eN | all | report [OPTIONS]\n\n"
    "  hdo paper list         the experiments, their populations, the readings\n"
    "  hdo paper e2           all populations and seeds of E2, then its figures and the table of claims\n"
    "  hdo paper all          E1 ... E7 one after the other (a night; with --quick under twenty minutes)\n"
    "  hdo paper e3 --reading stand-in   E3 from a start it learns first, without labels, as ImageNet cannot be had\n"
    "  hdo paper report       one self-contained page of everything that was run\n\n"
    "  --quick              fewer steps, seeds and validation samples: to see that everything works, not to judge "
    "claims\n"
    "  --seeds A-B          seeds (default: as many as the table says, from 0)\n"
    "  --reading R          how the paper is read: text, authors, or one of the others in `hdo paper list`\n"
    "  --init FILE          start from these weights (E3: a torchvision ResNet-18 saved as safetensors)\n"
    "  --only TEXT          only variants whose name contains TEXT\n"
    "  -o, --output DIR     folder of all results (default: runs/paper, or paper under $HDO_RUNS_DIR)\n"
    "  --jobs N             processes at once (default: one for each CPU)\n"
    "  --x METRIC           axis of the figures: step, interactions, cost, bytes_exchanged, sim_time, "
    "time/wall\n"
    "  --fetch              obtain missing data sets first\n"
    "  --dry-run            only say what would be run\n"
    "  -q, --quiet          no progress and no notes\n"
    "  report: --html FILE (default: DIR/report.html), --markdown FILE, --figures DIR (copies the svg files there)\n\n"
    "Runs that are done are not repeated; interrupted ones go on where they were. Change a setting and only what it\n"
    "concerns is run again. A claim holds or does not hold at 95 % confidence over seeds, otherwise it is "
    "undecided.\n\n"
    "Example: hdo paper e2 --reading authors --seeds 0-4 && hdo paper report\n";

typedef struct paper_options {
    const char *what, *output, *only, *x, *html, *markdown, *figures, *reading;
    hdo_paper_case k;
    int64_t first, last, jobs;
    bool dry_run, fetch;
    char root[HDO_PATH_MAX];
    const char *command_line;
} paper_options;

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

static int list(void) {
    for (int i = 0; hdo_paper_at(i) != NULL; i++) {
        const hdo_paper_experiment *x = hdo_paper_at(i);
        printf("%s  %s: %s; %d seeds (paper: %d)\n   ", x->id, x->title + 4, x->about, x->seeds, x->paper_seeds);
        for (int v = 0; v < x->n_variants; v++)
            printf(" %s%s", x->variant[v].label, v + 1 < x->n_variants ? "," : "\n");
    }
    printf("\nReadings:\n");
    for (int i = 0; hdo_paper_reading_at(i) != NULL; i++) {
        printf("  %-15s %s\n", hdo_paper_reading_at(i)->name, hdo_paper_reading_at(i)->about);
    }
    printf("\nClaims:\n");
    for (int i = 1; hdo_claim_text(i) != NULL; i++) printf("  (%d) %s\n", i, hdo_claim_text(i));
    return 0;
}

static int fetch_data(const hdo_config *c) {
    hdo_error e = {0};
    hdo_data_info info;
    hdo_status st = hdo_data_find(c->data.name, &info, &e);
    if (st == HDO_OK && (info.state == HDO_DATA_ABSENT || info.state == HDO_DATA_DAMAGED)) {
        st = hdo_data_get(c->data.name, NULL, NULL, &e);
    }
    return st == HDO_OK ? 0 : cli_fail(&e);
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
        if (r[i].claim != claim) {
            claim = r[i].claim;
            if (claim == 0) {
                printf("other figures, which count towards no claim\n");
            } else {
                printf("claim %d %s%s%s: %s\n", claim, s.bold, hdo_verdict_text(hdo_claim_verdict(r, n, claim)), s.off,
                       hdo_claim_text(claim));
            }
        }
        const hdo_difference *d = &r[i].d;
        printf("  %s%-13s%s %s",
               r[i].verdict == HDO_HOLDS   ? s.green
               : r[i].verdict == HDO_FAILS ? s.red
                                           : s.dim,
               hdo_verdict_text(r[i].verdict), s.off, r[i].text);
        if (d->n_a > 0) {
            printf(": %.4g +- %.2g against %.4g +- %.2g", d->a, d->a_se, d->b, d->b_se);
            if (isfinite(d->t)) printf(", t = %.1f", d->t);
            printf(" (%s)", r[i].quantity);
        }
        printf("%s%s\n", r[i].note[0] != '\0' ? "; " : "", r[i].note);
    }
}

/* Which runs are missing, and what they start from. Returns how many; -1 after an error. */
static int plan_jobs(const paper_options *o, cli_job *jobs, struct place *place) {
    hdo_error e = {0};
    hdo_config *c = malloc(sizeof *c);
    int n = 0, done = 0;
    hdo_status st = c == NULL ? HDO_E_MEMORY : HDO_OK;
    for (int64_t seed = o->first; seed <= o->last && st == HDO_OK; seed++) { /* seeds outside: all curves grow alike */
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
    if (st == HDO_OK && o->fetch && n > 0 && fetch_data(c) != 0) st = HDO_E_DATA;
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
    int most = o->k.x->n_variants * (int)(o->last - o->first + 1);
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
    int code = st != HDO_OK ? cli_fail(&e) : o->fetch && have != HDO_STORED_DONE ? fetch_data(c) : 0;
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

static bool from_weights(const hdo_paper_experiment *x) {
    return strcmp(x->id, "e3") == 0;
}

static int run_experiment(paper_options *o, const hdo_paper_experiment *x, bool own_seeds) {
    o->k.x = x;
    if (own_seeds) {
        o->first = 0;
        o->last = (o->k.quick ? x->quick_seeds : x->seeds) - 1;
    }
    char start[HDO_PATH_MAX];
    const char *weights = o->k.weights;
    if (!from_weights(x)) o->k.weights = NULL;
    int code = o->k.reading->start != NULL ? make_start(o, start) : 0;
    if (o->k.reading->start != NULL) o->k.weights = start;
    if (code == 0) code = run_case(o);
    o->k.weights = weights;
    return code;
}

static int write_report(const paper_options *o) {
    char html[HDO_PATH_MAX + 32];
    hdo_error e = {0};
    snprintf(html, sizeof html, "%s/report.html", o->root);
    const char *path = o->html != NULL ? o->html : html;
    if (hdo_paper_report(o->root, path, o->markdown, o->figures, &e) != HDO_OK) return cli_fail(&e);
    printf("%s%s%s\n", path, o->markdown != NULL ? " " : "", o->markdown != NULL ? o->markdown : "");
    return 0;
}

static int parse(int argc, char **argv, paper_options *o) {
    enum { QUICK = 256, SEEDS, READING, INIT, ONLY, JOBS, X, FETCH, DRY, HTML, MARKDOWN, FIGURES };
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"output", required_argument, NULL, 'o'},
                                          {"quick", no_argument, NULL, QUICK},
                                          {"seeds", required_argument, NULL, SEEDS},
                                          {"reading", required_argument, NULL, READING},
                                          {"init", required_argument, NULL, INIT},
                                          {"only", required_argument, NULL, ONLY},
                                          {"jobs", required_argument, NULL, JOBS},
                                          {"x", required_argument, NULL, X},
                                          {"fetch", no_argument, NULL, FETCH},
                                          {"dry-run", no_argument, NULL, DRY},
                                          {"html", required_argument, NULL, HTML},
                                          {"markdown", required_argument, NULL, MARKDOWN},
                                          {"figures", required_argument, NULL, FIGURES},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "ho:q", longs, NULL)) != -1;) {
        switch (c) {
        case 'h': fputs(help_text, stdout); return 0;
        case 'o': o->output = optarg; break;
        case 'q': cli_set_quiet(true); break;
        case QUICK: o->k.quick = true; break;
        case SEEDS:
            if (!cli_seed_range(optarg, &o->first, &o->last))
                return cli_usage_error("paper", "--seeds takes A-B, for example 0-4; got '%s'", optarg);
            break;
        case READING: o->reading = optarg; break;
        case INIT: o->k.weights = optarg; break;
        case ONLY: o->only = optarg; break;
        case JOBS:
            if (!cli_int(optarg, 1, 256, &o->jobs))
                return cli_usage_error("paper", "--jobs takes 1 to 256; got '%s'", optarg);
            break;
        case X: o->x = optarg; break;
        case FETCH: o->fetch = true; break;
        case DRY: o->dry_run = true; break;
        case HTML: o->html = optarg; break;
        case MARKDOWN: o->markdown = optarg; break;
        case FIGURES: o->figures = optarg; break;
        default: return cli_usage_error("paper", "the options are not right");
        }
    }
    if (optind + 1 != argc) return cli_usage_error("paper", "which experiment? Give list, e1 ... e7, all or report");
    o->what = argv[optind];
    o->k.reading = hdo_paper_reading_find(o->reading);
    if (o->k.reading == NULL)
        return cli_usage_error("paper", "there is no reading '%s'; hdo paper list shows them", o->reading);
    return -1;
}

int cmd_paper(int argc, char **argv) {
    char command_line[2048];
    paper_options o = {.x = "step", .reading = "text", .first = -1, .last = -1};
    cli_join(argc, argv, command_line, sizeof command_line);
    o.command_line = command_line;
    int code = parse(argc, argv, &o);
    if (code >= 0) return code;
    const char *runs = getenv("HDO_RUNS_DIR");
    if (o.output != NULL) {
        snprintf(o.root, sizeof o.root, "%s", o.output);
    } else {
        snprintf(o.root, sizeof o.root, "%s/paper", runs != NULL && runs[0] != '\0' ? runs : "runs");
    }
    o.k.root = o.root;
    if (strcmp(o.what, "list") == 0) return list();
    if (strcmp(o.what, "report") == 0) return write_report(&o);
    bool own_seeds = o.first < 0;
    cli_catch_signals();
    if (strcmp(o.what, "all") != 0) {
        const hdo_paper_experiment *x = hdo_paper_find(o.what);
        if (x == NULL)
            return cli_usage_error("paper", "there is no experiment '%s'; hdo paper list shows them", o.what);
        if (o.k.reading->start != NULL && !from_weights(x))
            return cli_usage_error("paper", "reading '%s' concerns the start of e3 only", o.k.reading->name);
        return run_experiment(&o, x, own_seeds);
    }
    for (int i = 0; hdo_paper_at(i) != NULL && cli_signal() == 0; i++) {
        if (o.k.reading->start != NULL && !from_weights(hdo_paper_at(i))) continue;
        int one = run_experiment(&o, hdo_paper_at(i), own_seeds);
        if (one != 0) code = one;
        if (one == EXIT_DATA) continue; /* the others may have their data */
        if (one != 0) break;
    }
    if (code < 0) code = 0;
    if (o.dry_run || cli_signal() != 0) return code;
    int page = write_report(&o);
    return code != 0 ? code : page;
}
