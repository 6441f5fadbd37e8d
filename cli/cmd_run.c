/* SPDX-License-Identifier: Apache-2.0 — hdo run: its options, and what they make of it: one run, seeds, ranks. */
#include "cmd_run.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "seeds.h"

enum { ARGS_MAX = 256 };

#define AT(member) offsetof(run_options, member)
static const cli_option options[] = {
    {"output", 'o', CLI_TEXT, "DIR",
     "folder for the results (default: runs/NAME-DATE-HASH, under $HDO_RUNS_DIR if set)", .target = AT(output)},
    {"config", 'c', CLI_TEXT, "FILE", "the configuration, instead of the first word", .target = AT(source)},
    {"seed", 0, CLI_KEY, "N", "the seed (default: from the configuration)", .target = AT(common.set), .key = "seed"},
    {"seeds", 0, CLI_SEEDS, "A-B", "one run per seed into DIR/seed-N, a process each, then mean and standard error",
     .target = AT(seeds)},
    {"init", 0, CLI_KEY, "FILE", "start from the weights in a safetensors file (same as --set model.weights=FILE)",
     .target = AT(common.set), .key = "model.weights"},
    {"max-steps", 0, CLI_KEY, "N", "same as --set steps=N", .target = AT(common.set), .key = "steps"},
    {"max-time", 0, CLI_DURATION, "S",
     "stop after S seconds (or 15m, 2h), with a checkpoint; of this session only, not stored", .target = AT(max_time_s),
     .lo = CLI_POSITIVE, .hi = HUGE_VAL, .takes = "a number of seconds, or 15m, 2h"},
    {"eval-every", 0, CLI_KEY, "N", "same as --set eval.every=N", .target = AT(common.set), .key = "eval.every"},
    {"resume", 0, CLI_TEXT, "DIR",
     "continue the run stored in DIR from its newest whole checkpoint, or all runs of --seeds in it; with --set: "
     "steps, "
     "eval.every, checkpoint.*, stop.*; with --seeds A-B: more seeds",
     .target = AT(resume)},
    {"engine", 0, CLI_KEY, "sim|mpi",
     "all nodes in this process (default), or spread over the ranks of an MPI job: the same bits",
     .target = AT(common.set), .key = "engine", .words = "sim|mpi"},
    {"np", 0, CLI_INT, "N", "with --engine mpi: start N ranks (not needed under mpirun or srun)", .target = AT(np),
     .lo = 1, .hi = 1000000, .takes = "a number of ranks"},
    {"hostfile", 0, CLI_TEXT, "FILE", "with --np: the machines to start them on", .target = AT(hostfile)},
    {"roles", 0, CLI_KEY, "R", "which ranks or hosts may back-propagate: 0:fo,1-3:zo (same as --set mpi.roles=R)",
     .target = AT(common.set), .key = "mpi.roles"},
    {"async", 0, CLI_KEY, NULL, "with --engine mpi: every rank at its own pace", .target = AT(common.set),
     .key = "mpi.async"},
    {"dry-run", 0, CLI_FLAG, NULL, "print the resolved plan (size, memory, traffic) and stop", .target = AT(dry_run)},
    {"fetch", 0, CLI_FLAG, NULL, "obtain the data set first if it is not here (hdo data get)", .target = AT(fetch)},
    {.name = NULL},
};

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

/* The value of the last --engine or --set engine=; NULL: none. */
static const char *typed_engine(const cli_list *set) {
    const char *engine = NULL;
    for (int k = 0; k < set->n; k++) {
        if (strncmp(set->item[k], "engine=", 7) == 0) engine = set->item[k] + 7;
    }
    return engine;
}

/* Returns -1 to go on, otherwise the exit code. */
static int parse(int argc, char **argv, run_options *o) {
    int code = cli_parse(&cmd_run, argc, argv, o);
    if (code >= 0) return code;
    const cli_common *common = &o->common;
    o->engine = typed_engine(&common->set);
    if (o->resume != NULL) {
        bool alone = common->n_words == 0 && o->source == NULL && o->output == NULL && common->population == NULL &&
                     !common->piecewise && !common->force && !o->dry_run;
        return alone ? -1
                     : cli_usage_error("run",
                                       "--resume continues a stored run: --set, --max-steps, --max-time, "
                                       "--eval-every, --seeds, --threads, --engine, --np, --json and -q go with it");
    }
    if (o->source != NULL && common->n_words > 0)
        return cli_usage_error("run", "one configuration at a time, but got '%s' too", common->word[0]);
    if (o->source == NULL && common->n_words > 0) o->source = common->word[0];
    if (o->source == NULL)
        return cli_usage_error("run", "which configuration? Give a YAML file or a preset, for example: hdo run demo");
    return -1;
}

typedef struct run_job { /* this process among others */
    const run_options *o;
    int rank, ranks; /* of an MPI job */
    bool launched;   /* by mpirun or the like */
    int argc;
    char *argv[ARGS_MAX]; /* the command line as it was */
} run_job;

static int launch(const run_options *o, run_job *j, const char *dir, double deadline_s) {
    cli_launch l = {.np = o->np, .hostfile = o->hostfile, .dir = dir, .deadline_s = deadline_s};
    if (o->np == 0) return cli_usage_error("run", "engine mpi: how many ranks? Give --np N, or start under mpirun");
    return cli_launch_mpi(&l, j->argc, j->argv);
}

static int resume(const run_options *o, run_job *j) {
    bool mpi = o->engine != NULL && strcmp(o->engine, "mpi") == 0;
    if (!j->launched && (mpi || o->np > 0)) return launch(o, j, o->resume, stored_deadline(o->resume));
    if (j->rank > 0) cli_set_silent();
    cli_catch_signals();
    return !j->launched && cli_seeds_folder(o->resume) ? run_resumed_seeds(o) : run_resumed(o);
}

static int run_here(const run_options *o, hdo_config *c) {
    char dir[HDO_PATH_MAX];
    if (o->output != NULL) {
        snprintf(dir, sizeof dir, "%s", o->output);
    } else {
        default_dir(c, dir, sizeof dir);
    }
    cli_catch_signals();
    if (o->seeds.first < 0 || o->dry_run) return run_once(o, c, dir, NULL);
    return c->engine.id == HDO_ENGINE_MPI ? run_seeds_in_turn(o, c, dir) : run_seeds(o, c, dir);
}

/* A new run, here or on ranks that are yet to be started. */
static int begin(void *job, hdo_config *c) {
    run_job *j = job;
    const run_options *o = j->o;
    hdo_error e = {0};
    bool mpi = c->engine.id == HDO_ENGINE_MPI;
    if ((mpi || j->ranks > 1) && j->rank > 0) cli_set_silent();
    if (!mpi && j->ranks > 1) /* each of them would be a whole run, in the same folder */
        return cli_usage_error("run",
                               "an MPI launcher has started %d ranks, but engine is 'sim': add --engine mpi, or start "
                               "hdo without the launcher",
                               j->ranks);
    if (mpi && !j->launched) {
        if (strcmp(o->source, "-") == 0)
            return cli_usage_error("run", "engine mpi cannot read its configuration from standard input");
        return launch(o, j, o->output, c->mpi.deadline_s);
    }
    if (!mpi && o->np > 0) return cli_usage_error("run", "--np goes with --engine mpi");
    if (o->fetch && j->rank == 0 && cli_fetch_data(c, &e) != HDO_OK) return cli_fail(&e);
    return run_here(o, c);
}

static int run_run(int argc, char **argv) {
    char command_line[CLI_LINE_MAX];
    run_options o = {.seeds = {-1, -1}, .command_line = command_line};
    run_job j = {.o = &o, .argc = argc < ARGS_MAX ? argc : ARGS_MAX};
    cli_join(argc, argv, command_line);
    memcpy(j.argv, argv, (size_t)j.argc * sizeof *argv);
    j.launched = hdo_mpi_launched(&j.rank, &j.ranks);
    if (j.rank > 0 && mentions_mpi(argc, argv)) cli_set_silent();
    int code = parse(argc, argv, &o);
    if (code >= 0) return code;
    if (o.resume != NULL) return resume(&o, &j);
    return cli_with_config(o.source, &o.common, begin, &j);
}

const cli_command cmd_run = {
    .name = "run",
    .summary = "run a population described by a configuration or preset",
    .run = run_run,
    .usage = "CONFIG|PRESET [OPTIONS]\n--resume DIR [OPTIONS]",
    .about = "Runs a population. CONFIG is a YAML file ('-' reads standard input), PRESET a name from the list below.",
    .options = options,
    .common = CLI_CONFIG | CLI_PIECEWISE | CLI_THREADS | CLI_FORCE | CLI_JSON | CLI_TALK,
    .notes =
        "Ctrl-C finishes the step, evaluates, saves and exits with 130; a second Ctrl-C stops at once. Every key with "
        "its meaning: hdo config help.",
    .examples = "hdo run demo --population 8fo+24zo --seeds 0-4 -o runs/hybrid",
    .exit_codes =
        "0 ok, 1 failed, 2 usage or configuration, 3 data missing or damaged, 4 diverged, 5 engine, 6 objective, 7 "
        "a process of --seeds was killed, 130 and 143 after a signal with everything saved.",
    .presets = true,
    .most = 1,
    .single = "one configuration at a time",
    .size = sizeof(run_options),
};
