/* SPDX-License-Identifier: Apache-2.0 — hdo verify: does a stored run come out the same when it is made again? */
#include <getopt.h>
#include <stdlib.h>

#include "cli.h"
#include "hdo/lab/verify.h"

static const char help_text[] =
    "Usage: hdo verify RUN... [--threads N] [--json]\n\n"
    "Runs the stored configuration again, in memory, and compares: the fingerprint of all models (params_sha256), the\n"
    "final figures and every row. A RUN is a run folder, or a folder of runs that differ in the seed. It takes as "
    "long\n"
    "as the runs took; nothing is written.\n\n"
    "A difference need not be an error: it says which version and commit made the run, which laws changed since that\n"
    "concern it, and whether compiler, vector unit, kernels or data are others. With the same of all of them the bits\n"
    "must be the same.\n\n"
    "  --threads N  instead of the stored number: the result does not depend on it\n"
    "  --json       one JSON document\n"
    "  -q, --quiet  no notes\n\n"
    "Exit codes: 0 all are the same, 1 one is different, 3 one is missing, has not ended or lacks its data.\n\n"
    "Example: hdo verify runs/paper/e2-text/24fo\n";

typedef struct verify_ctx {
    bool json, first;
    int same, different, failed, code;
} verify_ctx;

static void print_text(const hdo_verified *v) {
    cli_style s = cli_style_for(stdout);
    printf("%s: %s%s%s", v->dir, v->verdict == HDO_SAME ? s.green : s.red, hdo_same_text(v->verdict), s.off);
    if (v->verdict == HDO_SAME) printf(" (%d rows, params_sha256 %.12s)", v->rows, v->sha);
    printf("%s%s\n", v->difference[0] != '\0' ? ": " : "", v->difference);
    if (v->other_build)
        printf("  made by %s, commit %s; this is %s, commit %s\n",
               v->version[0] != '\0' ? v->version : "an unknown version", v->commit[0] != '\0' ? v->commit : "unknown",
               hdo_version(), hdo_commit());
    for (int i = 0; i < v->n_changes; i++)
        printf("  changed since: %s %s, revision %d: %s\n", v->change[i]->kind, v->change[i]->name,
               v->change[i]->number, v->change[i]->what);
    if (v->machine[0] != '\0') printf("  not as it was: %s\n", v->machine);
}

static void on_verified(void *p, const hdo_verified *v) {
    verify_ctx *c = p;
    c->same += v->verdict == HDO_SAME;
    c->different += v->verdict == HDO_DIFFERENT;
    c->failed += v->verdict == HDO_NOT_VERIFIED;
    if (v->verdict == HDO_NOT_VERIFIED && c->code == 0) c->code = hdo_status_exit_code(v->status);
    if (c->json) {
        char *text = hdo_verified_json(v);
        printf("%s%s", c->first ? "" : ",\n", text != NULL ? text : "null");
        c->first = false;
        free(text);
    } else {
        print_text(v);
    }
}

static int verify_all(int n, char **dirs, int64_t threads, verify_ctx *c) {
    hdo_hooks hooks = {.ctx = c, .asked = cli_asked};
    for (int k = 0; k < n && cli_signal() == 0; k++) {
        hdo_error e = {0};
        cli_note("making %s again", dirs[k]);
        hdo_status st = hdo_verify(dirs[k], threads, &hooks, on_verified, c, &e);
        if (st == HDO_OK) continue;
        c->failed++;
        int code = cli_fail(&e);
        if (c->code == 0) c->code = code;
    }
    return c->different > 0 ? 1 : c->code;
}

int cmd_verify(int argc, char **argv) {
    enum { THREADS = 256, JSON };
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"threads", required_argument, NULL, THREADS},
                                          {"json", no_argument, NULL, JSON},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {NULL, 0, NULL, 0}};
    int64_t threads = 0;
    verify_ctx c = {.first = true};
    for (int o; (o = getopt_long(argc, argv, "hq", longs, NULL)) != -1;) {
        switch (o) {
        case 'h': fputs(help_text, stdout); return 0;
        case 'q': cli_set_quiet(true); break;
        case THREADS:
            if (!cli_int(optarg, 1, 4096, &threads))
                return cli_usage_error("verify", "--threads takes 1 to 4096; got '%s'", optarg);
            break;
        case JSON: c.json = true; break;
        default: return cli_usage_error("verify", "the options are not right");
        }
    }
    if (optind == argc) return cli_usage_error("verify", "which runs? Give one or more run folders");
    cli_catch_signals();
    if (c.json) printf("{\"schema_version\": 1, \"runs\": [\n");
    int code = verify_all(argc - optind, argv + optind, threads, &c);
    if (c.json) printf("\n], \"same\": %d, \"different\": %d, \"not_verified\": %d}\n", c.same, c.different, c.failed);
    if (cli_signal() != 0) return cli_signal() == 15 ? EXIT_SIGTERM : EXIT_SIGINT;
    return code;
}
