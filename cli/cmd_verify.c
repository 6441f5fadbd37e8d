/* SPDX-License-Identifier: Apache-2.0 — hdo verify: does a stored run come out the same when it is made again? */
#include <stdlib.h>

#include "drive.h"
#include "hdo/lab/verify.h"

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

static int run_verify(int argc, char **argv) {
    cli_common o = {0};
    int code = cli_parse(&cmd_verify, argc, argv, &o);
    if (code >= 0) return code;
    verify_ctx c = {.json = o.json, .first = true};
    cli_catch_signals();
    if (c.json) printf("{\"schema_version\": 1, \"runs\": [\n");
    code = verify_all(o.n_words, o.word, o.threads, &c);
    if (c.json) printf("\n], \"same\": %d, \"different\": %d, \"not_verified\": %d}\n", c.same, c.different, c.failed);
    return cli_signal() != 0 ? cli_stop_code(HDO_STOPPED) : code;
}

const cli_command cmd_verify = {
    .name = "verify",
    .summary = "make stored runs again and compare them, bit for bit",
    .run = run_verify,
    .usage = "RUN... [--threads N] [--json]",
    .about =
        "Runs the stored configuration again, in memory, and compares: the fingerprint of all models (params_sha256), "
        "the final figures and every row. A RUN is a run folder, or a folder of runs that differ in the seed. It takes "
        "as long as the runs took; nothing is written. --threads replaces the stored number: the result does not "
        "depend on it.",
    .common = CLI_THREADS | CLI_JSON | CLI_TALK,
    .notes =
        "A difference need not be an error: it says which version and commit made the run, which laws changed since "
        "that concern it, and whether compiler, vector unit, kernels or data are others. With the same of all of them "
        "the bits must be the same.",
    .examples = "hdo verify runs/paper/e2-text/24fo",
    .exit_codes = "0 all are the same, 1 one is different, 3 one is missing, has not ended or lacks its data.",
    .least = 1,
    .most = -1,
    .missing = "which runs? Give one or more run folders",
    .size = sizeof(cli_common),
};
