/* SPDX-License-Identifier: Apache-2.0 — hdo explain: what became of a run, and why. */
#include "cli.h"
#include "hdo/lab/explain.h"

typedef struct explain_options {
    cli_common common;
    bool check;
} explain_options;

static const cli_option options[] = {
    {"check", 0, CLI_FLAG, NULL,
     "look at the stored configuration as hdo check does (seconds; needs the data), and say which rates it allows",
     .target = offsetof(explain_options, check)},
    {.name = NULL},
};

static int run_explain(int argc, char **argv) {
    explain_options o = {.check = false};
    int code = cli_parse(&cmd_explain, argc, argv, &o);
    if (code >= 0) return code;
    for (int i = 0; i < o.common.n_words; i++) {
        hdo_error e = {0};
        char *text = NULL;
        const char *dir = o.common.word[i];
        if (hdo_explain(dir, o.common.json, o.check, &text, &e) != HDO_OK) return cli_fail(&e);
        if (o.common.n_words > 1 && !o.common.json) printf("%s%s\n", i > 0 ? "\n" : "", dir);
        cli_print(text, o.common.json ? "\n" : "");
    }
    return 0;
}

const cli_command cmd_explain = {
    .name = "explain",
    .summary = "what became of a run: who went first when it diverged, and why",
    .run = run_explain,
    .usage = "RUN... [--check] [--json]",
    .about =
        "Says in plain sentences what became of a stored run. One that diverged: which class, node and step went "
        "first, whether others took its model by averaging, and why. One that ended well: from where to where, and "
        "how far apart its nodes are. With --json, one document a run, with the sentences and the figures behind "
        "them.",
    .options = options,
    .common = CLI_JSON,
    .examples = "hdo explain runs/mine",
    .exit_codes = "0 whatever became of the run, 3 when there is none in the folder.",
    .least = 1,
    .most = -1,
    .missing = "which run? Give its folder, for example: hdo explain runs/mine",
    .size = sizeof(explain_options),
};
