/* SPDX-License-Identifier: Apache-2.0 — hdo paper: the seven experiments, their figures and what became of the claims.
 */
#include "cmd_paper.h"

#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(paper_options, member)
static const cli_option options[] = {
    {"quick", 0, CLI_FLAG, NULL,
     "fewer steps, seeds and validation samples: to see that everything works, not to judge claims",
     .target = AT(k.quick)},
    {"seeds", 0, CLI_SEEDS, "A-B", "seeds (default: as many as the table says, from 0)", .target = AT(seeds)},
    {"reading", 0, CLI_TEXT, "R", "how the paper is read: text, authors, or one of the others in hdo paper list",
     .target = AT(reading), .words = "text|authors|stand-in"},
    {"init", 0, CLI_TEXT, "FILE", "start from these weights (E3: a torchvision ResNet-18 saved as safetensors)",
     .target = AT(k.weights)},
    {"only", 0, CLI_TEXT, "TEXT", "only variants whose name contains TEXT", .target = AT(only)},
    {"output", 'o', CLI_TEXT, "DIR", "folder of all results (default: runs/paper, or paper under $HDO_RUNS_DIR)",
     .target = AT(output)},
    CLI_JOBS(AT(jobs)),
    {"x", 0, CLI_TEXT, "METRIC", "axis of the figures: step, interactions, cost, bytes_exchanged, sim_time, time/wall",
     .target = AT(x), .words = CLI_AXES},
    {"fetch", 0, CLI_FLAG, NULL, "obtain missing data sets first", .target = AT(fetch)},
    {"dry-run", 0, CLI_FLAG, NULL, "only say what would be run", .target = AT(dry_run)},
    {"html", 0, CLI_TEXT, "FILE", "report: the page (default: DIR/report.html)", .target = AT(html)},
    {"markdown", 0, CLI_TEXT, "FILE", "report: as Markdown too", .target = AT(markdown)},
    {"figures", 0, CLI_TEXT, "DIR", "report: copies the svg files there", .target = AT(figures)},
    {.name = NULL},
};

static const cli_verb verbs[] = {
    {"list", NULL, "the experiments, their populations, the readings"},
    {"e1", "[OPTIONS]", "all populations and seeds of E1, then its figures and the table of claims; likewise e2 to e7"},
    {"e2", "[OPTIONS]", NULL},
    {"e3", "[OPTIONS]", NULL},
    {"e4", "[OPTIONS]", NULL},
    {"e5", "[OPTIONS]", NULL},
    {"e6", "[OPTIONS]", NULL},
    {"e7", "[OPTIONS]", NULL},
    {"all", "[OPTIONS]", "E1 ... E7 one after the other (a night; with --quick under twenty minutes)"},
    {"report", "[-o DIR] [--html FILE] [--markdown FILE] [--figures DIR]",
     "one self-contained page of everything that was run"},
    {NULL, NULL, NULL},
};

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

static int write_report(const paper_options *o) {
    char html[HDO_PATH_MAX + 32];
    hdo_error e = {0};
    snprintf(html, sizeof html, "%s/report.html", o->root);
    const char *path = o->html != NULL ? o->html : html;
    if (hdo_paper_report(o->root, path, o->markdown, o->figures, &e) != HDO_OK) return cli_fail(&e);
    printf("%s%s%s\n", path, o->markdown != NULL ? " " : "", o->markdown != NULL ? o->markdown : "");
    return 0;
}

static int run_all(paper_options *o, bool own_seeds) {
    int code = 0;
    for (int i = 0; hdo_paper_at(i) != NULL && cli_signal() == 0; i++) {
        if (o->k.reading->start != NULL && !paper_from_weights(hdo_paper_at(i))) continue;
        int one = paper_experiment(o, hdo_paper_at(i), own_seeds);
        if (one != 0) code = one;
        if (one == EXIT_DATA) continue; /* the others may have their data */
        if (one != 0) break;
    }
    if (o->dry_run || cli_signal() != 0) return code;
    int page = write_report(o);
    return code != 0 ? code : page;
}

/* Where everything is, and how the paper is read. Returns -1 to go on, otherwise the exit code. */
static int settle(paper_options *o) {
    const char *runs = getenv("HDO_RUNS_DIR");
    o->k.reading = hdo_paper_reading_find(o->reading);
    if (o->k.reading == NULL)
        return cli_usage_error("paper", "there is no reading '%s'; hdo paper list shows them", o->reading);
    if (o->output != NULL) {
        snprintf(o->root, sizeof o->root, "%s", o->output);
    } else {
        snprintf(o->root, sizeof o->root, "%s/paper", runs != NULL && runs[0] != '\0' ? runs : "runs");
    }
    o->k.root = o->root;
    return -1;
}

static int run_paper(int argc, char **argv) {
    char command_line[CLI_LINE_MAX];
    paper_options o = {.x = "step", .reading = "text", .seeds = {-1, -1}, .command_line = command_line};
    cli_join(argc, argv, command_line);
    int code = cli_parse(&cmd_paper, argc, argv, &o);
    if (code < 0) code = settle(&o);
    if (code >= 0) return code;
    const char *what = o.common.word[0];
    if (strcmp(what, "list") == 0) return list();
    if (strcmp(what, "report") == 0) return write_report(&o);
    cli_catch_signals();
    if (strcmp(what, "all") == 0) return run_all(&o, o.seeds.first < 0);
    const hdo_paper_experiment *x = hdo_paper_find(what);
    if (x == NULL) return cli_usage_error("paper", "there is no experiment '%s'; hdo paper list shows them", what);
    if (o.k.reading->start != NULL && !paper_from_weights(x))
        return cli_usage_error("paper", "reading '%s' concerns the start of e3 only", o.k.reading->name);
    return paper_experiment(&o, x, o.seeds.first < 0);
}

const cli_command cmd_paper = {
    .name = "paper",
    .summary = "the paper's seven experiments, their figures and claims",
    .run = run_paper,
    .verbs = verbs,
    .about =
        "Makes the experiments of the paper again. Runs that are done are not repeated; interrupted ones go on where "
        "they were. Change a setting and only what it concerns is run again. A claim holds or does not hold at 95 % "
        "confidence over seeds, otherwise it is undecided. E3 with --reading stand-in makes its start first, without "
        "labels, as ImageNet cannot be had.",
    .options = options,
    .common = CLI_TALK,
    .examples = "hdo paper e2 --reading authors --seeds 0-4 && hdo paper report",
    .exit_codes =
        "0 ok, whatever became of the claims, 1 failed, 2 usage or configuration, 3 data missing or damaged, 7 a "
        "process was killed, 130 and 143 after a signal with everything saved.",
    .least = 1,
    .most = 1,
    .missing = "which experiment? Give list, e1 ... e7, all or report",
    .single = "one experiment at a time",
    .size = sizeof(paper_options),
};
