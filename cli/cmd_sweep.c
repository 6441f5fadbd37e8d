/* SPDX-License-Identifier: Apache-2.0 — hdo sweep: grid and random search, with early stopping of hopeless runs. */
#include "cmd_sweep.h"

#include <stdlib.h>
#include <string.h>

#include "hdo/lab/paper.h"

#define AT(member) offsetof(sweep_options, member)
static const cli_option options[] = {
    {"grid", 0, CLI_LIST, "KEY=A,B,C", "all combinations of the lists given", .target = AT(grid)},
    {"random", 0, CLI_INT, "N",
     "N random points; then KEY=LO:HI, KEY=LO:HI:log (even in the logarithm) or KEY=A,B,C as words",
     .target = AT(random), .lo = 1, .hi = HDO_SWEEP_POINTS},
    {"paper", 0, CLI_FLAG, NULL,
     "the search intervals of the paper's tables, for e1 ... e7: rates, batches, momentum, rv; 16 random points unless "
     "--random says more",
     .target = AT(paper)},
    {"per-class", 0, CLI_FLAG, NULL,
     "tune every class on a single node of it, as the paper's authors did, then put them together",
     .target = AT(per_class)},
    {"halving", 0, CLI_FLAG, NULL,
     "successive halving: all points for a ninth of the steps, the best third for a third, the best of those to the "
     "end",
     .target = AT(halving)},
    {"metric", 0, CLI_TEXT, "METRIC",
     "what to optimise (default: val/loss_mean); accuracies are maximised, all else is minimised",
     .target = AT(metric)},
    {"seeds", 0, CLI_SEEDS, "A-B", "several seeds a point, their mean counts (default: the seed of the configuration)",
     .target = AT(seeds)},
    {"max-steps", 0, CLI_KEY, "N", "same as --set steps=N", .target = AT(common.set), .key = "steps"},
    {"output", 'o', CLI_TEXT, "DIR", "default: sweep", .target = AT(output)},
    CLI_JOBS(AT(jobs)),
    {.name = NULL},
};

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

/* What is searched: --grid, then the words after the configuration, then the paper's. */
static int collect_axes(sweep_options *o) {
    int code = 0;
    for (int i = 0; i < o->grid.n && code == 0; i++) code = add_axis(o, o->grid.item[i]);
    for (int i = 1; i < o->common.n_words && code == 0; i++) code = add_axis(o, o->common.word[i]);
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

static int sweep(sweep_options *o, hdo_config *base, hdo_config *best) {
    hdo_error e = {0};
    o->source = o->common.word[0];
    int code = collect_axes(o);
    if (code == 0 && cli_config(base, o->source, &o->common, &e) != HDO_OK) code = cli_fail(&e);
    if (code != 0) return code;
    base->checkpoint.keep = 1;
    if (o->seeds.first < 0) o->seeds.first = o->seeds.last = base->seed;
    *best = *base;
    cli_catch_signals();
    code = o->per_class ? sweep_classes(o, base, best) : sweep_search(o, base, o->axis, o->n_axes, o->output, best);
    return code == 0 ? write_best(best, o->output) : code;
}

static int run_sweep(int argc, char **argv) {
    char command_line[CLI_LINE_MAX];
    sweep_options *o = calloc(1, sizeof *o);
    hdo_config *base = malloc(sizeof *base), *best = malloc(sizeof *best);
    int code = 1;
    if (o != NULL && base != NULL && best != NULL) {
        o->metric = "val/loss_mean";
        o->output = "sweep";
        o->seeds = (cli_seeds){-1, -1};
        o->command_line = command_line;
        cli_join(argc, argv, command_line);
        code = cli_parse(&cmd_sweep, argc, argv, o);
        if (code < 0) code = sweep(o, base, best);
    }
    free(o);
    free(base);
    free(best);
    return code;
}

const cli_command cmd_sweep = {
    .name = "sweep",
    .summary = "grid and random search over settings, with early stopping",
    .run = run_sweep,
    .usage = "CONFIG|PRESET --grid KEY=A,B,C [--grid ...] [OPTIONS]\n"
             "CONFIG|PRESET --random N KEY=LO:HI[:log] ... [OPTIONS]\n"
             "eN --paper [--random N] [--per-class]",
    .about =
        "Searches over any settings and writes a table, a heat map (two lists) and the best configuration. Points that "
        "are done are not repeated; interrupted ones go on. The best configuration is DIR/best.yaml.",
    .options = options,
    .common = CLI_CONFIG | CLI_TALK,
    .examples =
        "hdo sweep e2 --grid population.fo.lr=0.003,0.01,0.03 --grid population.zo.lr=0.003,0.01,0.03 --max-steps "
        "100",
    .exit_codes =
        "0 ok, 1 failed, 2 usage or configuration, 3 data missing or damaged, 4 every point diverged, 7 a process "
        "was killed, 130 and 143 after a signal with everything saved.",
    .presets = true,
    .least = 1,
    .most = -1,
    .missing = "which configuration? Give a YAML file or a preset",
    .size = sizeof(sweep_options),
};
