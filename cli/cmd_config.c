/* SPDX-License-Identifier: Apache-2.0 — hdo config show | check | schema | help. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const char help_text[] =
    "Usage: hdo config show  [CONFIG|PRESET] [--population P] [--set KEY=VALUE]... [--origin]\n"
    "       hdo config check CONFIG|PRESET   [--population P] [--set KEY=VALUE]...\n"
    "       hdo config schema\n"
    "       hdo config help [SECTION|KEY]\n\n"
    "show    the complete configuration, defaults included, as YAML; --origin says where each value was set\n"
    "check   is it valid? Says nothing and exits with 0, or says what is wrong, where, and what would be right\n"
    "schema  JSON Schema, for editors and programs\n"
    "help    every key with its default, bounds and meaning; SECTION is model, data, population, mixing, ...;\n"
    "        KEY is one of them, such as data.split or population.zo.rv\n\n"
    "A setting that has no effect is an error: [needs ...] in the help says what it takes. Not so a preset's, those of "
    "the\n"
    "file in HDO_CONFIG, a file's that --set puts out of use, and a file's that repeats the default.\n\n"
    "Example: hdo config show demo --set population.zo.rv=16 --origin\n";

static int print_text(char *text) {
    if (text == NULL) {
        hdo_error e = {HDO_E_MEMORY, "out of memory"};
        return cli_fail(&e);
    }
    fputs(text, stdout);
    free(text);
    return 0;
}

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
    return st != HDO_OK ? cli_fail(&e) : print_text(text);
}

int cmd_config(int argc, char **argv) {
    enum { POPULATION = 256, SET, ORIGIN };
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"population", required_argument, NULL, POPULATION},
                                          {"set", required_argument, NULL, SET},
                                          {"origin", no_argument, NULL, ORIGIN},
                                          {NULL, 0, NULL, 0}};
    const char *population = NULL;
    bool origin = false;
    char *set[64];
    int n_set = 0;
    for (int o; (o = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        switch (o) {
        case 'h': fputs(help_text, stdout); return 0;
        case POPULATION: population = optarg; break;
        case ORIGIN: origin = true; break;
        case SET:
            if (n_set == 64) return cli_usage_error("config", "more than 64 --set");
            set[n_set++] = optarg;
            break;
        default: return cli_usage_error("config", "unknown option");
        }
    }
    if (optind >= argc) return cli_usage_error("config", "say what to do: show, check, schema or help");
    const char *verb = argv[optind], *source = optind + 1 < argc ? argv[optind + 1] : NULL;
    if (strcmp(verb, "schema") == 0) return print_text(hdo_config_schema());
    if (strcmp(verb, "help") == 0) return help(source);
    bool show = strcmp(verb, "show") == 0;
    if (!show && strcmp(verb, "check") != 0)
        return cli_usage_error("config", "'%s' is not show, check, schema or help", verb);
    hdo_error e = {0};
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return 1;
    hdo_status st = cli_config(c, source, population, n_set, set, &e);
    if (st == HDO_OK) st = hdo_config_check(c, &e);
    int code = st != HDO_OK ? cli_fail(&e) : show ? print_text(hdo_config_dump(c, origin)) : 0;
    free(c);
    return code;
}
