/* SPDX-License-Identifier: Apache-2.0 — hdo run: a single run, new or taken up; or, with --dry-run, what it would be.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd_run.h"
#include "drive.h"
#include "run_text.h"
#include "hdo/lab/predict.h"

typedef struct run_view { /* what the hooks need */
    cli_progress progress;
    char label[HDO_NAME_MAX + 32];
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
    if (i.d_total > i.d)
        printf("# trained: %lld of the %lld numbers of the model; the others are %.1f MB, once for all nodes\n",
               (long long)i.d, (long long)i.d_total, (double)i.frozen_bytes / 1e6);
    for (int k = 0; k < c->n_classes; k++)
        printf("# a node of class %s: parameters %.2f MB, momentum %.2f MB, estimate %.2f MB, activations %.2f MB, "
               "directions %.2f MB\n",
               c->population[k].name, (double)i.node[k].parameters / 1e6, (double)i.node[k].momentum / 1e6,
               (double)i.node[k].estimate / 1e6, (double)i.node[k].activations / 1e6,
               (double)i.node[k].directions / 1e6);
    if (i.train_samples > 0)
        printf("# data: %lld training, %lld validation samples\n", (long long)i.train_samples,
               (long long)i.val_samples);
}

static void on_step(void *ctx, const hdo_run *r) {
    cli_progress_step(&((run_view *)ctx)->progress, hdo_run_step(r), hdo_run_last_row(r));
}

static void start_progress(run_view *v, const hdo_config *c) {
    snprintf(v->label, sizeof v->label, "%s seed %lld", c->name, (long long)c->seed);
    cli_progress_start(&v->progress, v->label, c->steps + c->warmup);
}

/* Drives a run to its end and tells of it. Takes r. */
static int finish_run(const run_options *o, hdo_run *r, run_view *v, const char *dir, hdo_row *final) {
    hdo_error e = {0};
    hdo_stop why = HDO_RUNNING;
    hdo_run_limit_time(r, o->max_time_s);
    hdo_status st = cli_drive(r, 0, on_step, v, &why, &e);
    cli_progress_end(&v->progress);
    if (st == HDO_OK && dir != NULL) st = hdo_run_write_summary(r, &e);
    bool print = final == NULL && hdo_run_rank(r) == 0;
    if (st != HDO_OK) {
        hdo_run_destroy(r);
        return cli_fail(&e);
    }
    if (final != NULL) *final = *hdo_run_last_row(r);
    if (print && o->common.json) {
        cli_print(hdo_run_summary(r), "\n");
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
    return cli_stop_code(why);
}

int run_resumed(const run_options *o) {
    hdo_error e = {0};
    hdo_setting set[CLI_LIST_MAX];
    hdo_resume how = {.threads = o->common.threads, .n_set = run_resume_settings(o, set), .set = set};
    run_view v = {.taking_up = true};
    hdo_hooks hooks = {
        .ctx = &v, .log = on_log, .row = on_row, .asked = cli_asked, .hurry = cli_hurry, .tune = hdo_auto_tune};
    hdo_run *r = NULL;
    if (hdo_run_resume_how(&r, o->resume, &how, &hooks, &e) != HDO_OK) return cli_fail(&e);
    v.taking_up = false;
    const hdo_config *c = hdo_run_config(r);
    start_progress(&v, c);
    cli_note("resuming %s at step %lld of %lld", o->resume, (long long)hdo_run_step(r),
             (long long)(c->steps + c->warmup));
    return finish_run(o, r, &v, o->resume, NULL);
}

int run_once(const run_options *o, const hdo_config *c, const char *dir, hdo_row *final) {
    hdo_error e = {0};
    run_view v = {.taking_up = false};
    hdo_hooks hooks = {
        .ctx = &v, .log = on_log, .row = on_row, .asked = cli_asked, .hurry = cli_hurry, .tune = hdo_auto_tune};
    start_progress(&v, c);
    hdo_run *r = NULL;
    hdo_status st = hdo_run_create(&r, c, &hooks, &e);
    if (st == HDO_OK && o->dry_run) {
        if (hdo_run_rank(r) == 0) print_plan(c, r, o->common.json);
        hdo_run_destroy(r);
        return 0;
    }
    if (st == HDO_OK && dir != NULL) st = hdo_run_attach_dir(r, dir, o->common.force, o->command_line, &e);
    if (st != HDO_OK) {
        hdo_run_destroy(r);
        return cli_fail(&e);
    }
    return finish_run(o, r, &v, dir, final);
}
