/* SPDX-License-Identifier: Apache-2.0 — hdo config show | check | schema | help. */
#include <stdlib.h>

#include "cli.h"

typedef struct config_options {
    cli_common common;
    bool origin;
} config_options;

static const cli_option options[] = {
    {"origin", 0, CLI_FLAG, NULL, "show: says where each value was set", .target = offsetof(config_options, origin)},
    {.name = NULL},
};

enum { SHOW, CHECK, SCHEMA, HELP };
static const cli_verb verbs[] = {
    {"show", "[CONFIG|PRESET] [--population P] [--set KEY=VALUE]... [--threads N] [--origin]",
     "the complete configuration, defaults included, as YAML"},
    {"check", "CONFIG|PRESET [--population P] [--set KEY=VALUE]... [--threads N]",
     "is it valid? Says nothing and exits with 0, or says what is wrong, where, and what would be right"},
    {"schema", NULL, "JSON Schema, for editors and programs"},
    {"help", "[SECTION|KEY]",
     "every key with its default, bounds and meaning; SECTION is model, data, population, mixing, ...; KEY is one of "
     "them, such as data.split or population.zo.rv"},
    {NULL, NULL, NULL},
};

static int help(const char *what) {
    hdo_error e = {0};
    char value[HDO_PATH_MAX];
    char *text = hdo_config_help(what);
    hdo_config *c = text == NULL && what != NULL ? malloc(sizeof *c) : NULL;
    hdo_status st = HDO_OK;
    if (c != NULL) {
        hdo_config_default(c);
        st = hdo_config_get(c, what, value, sizeof value, &e);
        free(c);
    }
    return st != HDO_OK ? cli_fail(&e) : cli_print(text, "");
}

static int show_or_check(void *ctx, hdo_config *c) {
    const config_options *o = ctx;
    hdo_error e = {0};
    if (hdo_config_check(c, &e) != HDO_OK) return cli_fail(&e);
    return o->common.verb == SHOW ? cli_print(hdo_config_dump(c, o->origin), "") : 0;
}

static int run_config(int argc, char **argv) {
    config_options o = {.origin = false};
    int code = cli_parse(&cmd_config, argc, argv, &o);
    if (code >= 0) return code;
    const char *what = o.common.n_words > 1 ? o.common.word[1] : NULL;
    if (o.common.verb == SCHEMA) return cli_print(hdo_config_schema(), "");
    if (o.common.verb == HELP) return help(what);
    return cli_with_config(what, &o.common, show_or_check, &o);
}

const cli_command cmd_config = {
    .name = "config",
    .summary = "show, check or describe configurations",
    .run = run_config,
    .verbs = verbs,
    .about = "Configurations before they run: what they say, whether they are valid, what can be said in them.",
    .options = options,
    .common = CLI_CONFIG | CLI_THREADS,
    .notes =
        "A setting that has no effect is an error: [needs ...] in the help says what it takes. Not so a preset's, "
        "those of the file in HDO_CONFIG, a file's that --set puts out of use, and a file's that repeats the default.",
    .examples = "hdo config show demo --set population.zo.rv=16 --origin",
    .presets = true,
    .least = 1,
    .most = 2,
    .missing = "say what to do: show, check, schema or help",
    .single = "one configuration or key at a time",
    .size = sizeof(config_options),
};
