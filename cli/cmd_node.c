/* SPDX-License-Identifier: Apache-2.0 — hdo node: a member of a fleet (docs/fleet.md). */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cmd_fleet.h"
#include "drive.h"

typedef struct args {
    cli_common common;
    fleet_link_options link;
    const char *url, *role, *name, *config, *data, *data_val, *output;
    int64_t nodes, place;
    double pace_s, slow, max_time_s, patience_s;
    char command_line[CLI_LINE_MAX];
} args;

#define AT(member) offsetof(args, member)
static const cli_option options[] = {
    {"join", 0, CLI_TEXT, "URL", "the bus: nats://host:4222, or tls://host:4222", .target = AT(url)},
    {"role", 0, CLI_TEXT, "zo|fo|CLASS",
     "what this member is: zo only runs the model forward, fo back-propagates, or a class of the run (default: its "
     "first "
     "class)",
     .target = AT(role)},
    {"config", 'c', CLI_TEXT, "FILE", "the configuration, if nobody may be there yet (default: the run's)",
     .target = AT(config)},
    {"data", 0, CLI_TEXT, "FILE",
     "own training data, which never leave this member (default: its shard of the run's data)", .target = AT(data)},
    {"data-val", 0, CLI_TEXT, "FILE", "own validation data (default: a part of --data)", .target = AT(data_val)},
    {"output", 'o', CLI_TEXT, "DIR", "folder for curves and checkpoints; one that holds an earlier life is taken up",
     .target = AT(output)},
    {"name", 0, CLI_TEXT, "NAME", "of this member (default: the user of --credentials, or drawn at random)",
     .target = AT(name)},
    {"nodes", 0, CLI_INT, "N", "nodes of this member (default 1)", .target = AT(nodes), .lo = 1, .hi = 256},
    {"place", 0, CLI_INT, "N", "number of its first node in the population, from 1 (default: a free one of its class)",
     .target = AT(place), .lo = 1, .hi = 16000000},
    FLEET_LINK(AT(link)),
    {"max-time", 0, CLI_DURATION, "S", "leave after S seconds (or 15m, 2h), with a checkpoint",
     .target = AT(max_time_s), .lo = CLI_POSITIVE, .hi = HUGE_VAL, .takes = "a number of seconds, or 15m, 2h"},
    {"patience", 0, CLI_DURATION, "S", "how long to try to reach the bus (default 10)", .target = AT(patience_s),
     .hi = HUGE_VAL, .takes = "a number of seconds, or 15m, 2h"},
    {"pace", 0, CLI_REAL, "S", "a step takes at least S seconds", .target = AT(pace_s), .hi = 3600},
    {"slow", 0, CLI_REAL, "F", "local steps take F times as long, to study stragglers", .target = AT(slow), .lo = 1,
     .hi = 1e6},
    {.name = NULL},
};

hdo_fleet_link fleet_link(const char *url, const fleet_link_options *o) {
    return (hdo_fleet_link){
        .url = url, .credentials = o->credentials, .tls_ca = o->tls_ca, .tls_cert = o->tls_cert, .tls_key = o->tls_key};
}

typedef struct view {
    cli_progress progress;
    char label[80];
} view;

static void on_row(void *ctx, const hdo_row *row) {
    cli_progress_row(&((view *)ctx)->progress, row);
}

static void on_log(void *ctx, hdo_log_level level, const char *message) {
    (void)ctx;
    if (level == HDO_LOG_WARN) cli_warn(message);
    if (level == HDO_LOG_INFO) cli_note("%s", message);
}

static void on_step(void *ctx, const hdo_run *r) {
    cli_progress_step(&((view *)ctx)->progress, hdo_run_step(r), hdo_run_last_row(r));
}

static void tell_joined(const hdo_run *r, view *v) {
    hdo_node_info i;
    hdo_node_describe(r, &i);
    snprintf(v->label, sizeof v->label, "%s/%s", i.run, i.name);
    if (i.started) {
        cli_note("%s: nobody is there yet; this member starts the run, as %s, place %d", v->label, i.role, i.place);
    } else {
        cli_note("%s: joined %d members as %s, place %d, at step %lld", v->label, i.members, i.role, i.place,
                 (long long)hdo_run_step(r));
    }
}

static void print_result(const args *a, const hdo_run *r, hdo_stop why) {
    hdo_node_info i;
    struct rusage use;
    hdo_node_describe(r, &i);
    if (a->common.json) {
        cli_print(hdo_run_summary(r), "\n");
        return;
    }
    const hdo_row *row = hdo_run_last_row(r);
    getrusage(RUSAGE_SELF, &use);
    printf("%s/%s: %s after %lld steps; %lld exchanges, %.1f MB sent; loss %.4g; peak memory %.1f MB\n", i.run, i.name,
           i.stopped ? "stopped with the run" : hdo_stop_name(why), (long long)hdo_run_step(r),
           (long long)(row != NULL ? row->interactions : 0), row != NULL ? 1e-6 * (double)row->bytes : 0.0,
           row != NULL ? row->all.loss_mean : (double)NAN, 1e-3 * (double)use.ru_maxrss);
}

static int drive(args *a, const hdo_config *c) {
    hdo_error e = {0};
    view v = {.label = "node"};
    hdo_run *r = NULL;
    hdo_stop why = HDO_RUNNING;
    hdo_hooks hooks = {.ctx = &v, .log = on_log, .row = on_row, .asked = cli_asked, .hurry = cli_hurry};
    hdo_node_options o = {.link = fleet_link(a->url, &a->link),
                          .run = a->link.run,
                          .name = a->name,
                          .role = a->role,
                          .data = a->data,
                          .data_val = a->data_val,
                          .dir = a->output,
                          .command_line = a->command_line,
                          .nodes = (int)a->nodes,
                          .place = (int)a->place,
                          .pace_s = a->pace_s,
                          .slow = a->slow,
                          .threads = a->common.threads};
    o.link.patience_s = a->patience_s;
    if (hdo_node_create(&r, c, &o, &hooks, &e) != HDO_OK) return cli_fail(&e);
    tell_joined(r, &v);
    const hdo_config *own = hdo_run_config(r);
    cli_progress_start(&v.progress, v.label, own->steps + own->warmup);
    hdo_run_limit_time(r, a->max_time_s);
    hdo_status st = cli_drive(r, 0, on_step, &v, &why, &e);
    cli_progress_end(&v.progress);
    if (st == HDO_OK && a->output != NULL) st = hdo_run_write_summary(r, &e);
    if (st == HDO_OK) print_result(a, r, why);
    hdo_node_info i;
    hdo_node_describe(r, &i);
    hdo_run_destroy(r);
    if (st != HDO_OK) return cli_fail(&e);
    return i.stopped ? 0 : cli_stop_code(why);
}

static int with_config(void *ctx, hdo_config *c) {
    hdo_error e = {0};
    if (hdo_config_set_from(c, "engine", "fleet", HDO_FROM_FLAG, &e) != HDO_OK || hdo_config_check(c, &e) != HDO_OK)
        return cli_fail(&e);
    return drive(ctx, c);
}

static int run_node(int argc, char **argv) {
    args a = {.nodes = 1, .slow = 1.0, .patience_s = 10.0};
    cli_join(argc, argv, a.command_line);
    int code = cli_parse(&cmd_node, argc, argv, &a);
    if (code >= 0) return code;
    if (a.url == NULL)
        return cli_usage_error("node", "where is the bus? Give --join URL, for example nats://host:4222");
    if (a.config == NULL && (a.common.set.n > 0 || a.common.population != NULL))
        return cli_usage_error("node",
                               "--set and --population go with --config: without it the configuration is the run's");
    cli_catch_signals();
    return a.config != NULL ? cli_with_config(a.config, &a.common, with_config, &a) : drive(&a, NULL);
}

const cli_command cmd_node = {
    .name = "node",
    .summary = "be a member of a fleet: train with others over a network",
    .run = run_node,
    .usage = "--join URL [--role zo|fo|CLASS] [--config FILE] [--data FILE] [-o DIR] [OPTIONS]",
    .about =
        "Joins the run on a message bus (NATS), or starts it if nobody is there and --config says what it is. Nobody "
        "waits "
        "for anybody: a member steps at its own pace, averages with partners drawn from who is there, and may leave "
        "or die at any time. Started again with the same -o DIR it goes on from its checkpoint.",
    .options = options,
    .common = CLI_CONFIG | CLI_THREADS | CLI_JSON | CLI_TALK,
    .notes =
        "Ctrl-C leaves: the step is finished, open exchanges are settled, the state is saved. See also hdo fleet, and "
        "docs/fleet.md.",
    .examples = "hdo node --join nats://lab:4222 --config fleet.yaml --role fo -o runs/first\n"
                "hdo node --join nats://lab:4222 --role zo --data mine.csv",
    .most = 0,
    .single = "hdo node takes options only",
    .size = sizeof(args),
};
