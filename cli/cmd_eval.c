/* SPDX-License-Identifier: Apache-2.0 — hdo eval: loss, accuracy and confusion of a stored model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "hdo/lab/eval.h"

typedef struct eval_options {
    cli_common common;
    const char *model, *data, *split;
    hdo_eval_options how;
} eval_options;

#define AT(member) offsetof(eval_options, member)
static const cli_option options[] = {
    {"model", 0, CLI_TEXT, "M", "logistic, mlp, cnn2, cnn3, resnet18, transformer", .target = AT(model),
     .words = "logistic|mlp|cnn2|cnn3|resnet18|transformer"},
    {"data", 0, CLI_TEXT, "D", "mnist, cifar10, brackets, synthetic, or your own data (with --set data.path=...)",
     .target = AT(data), .words = "mnist|cifar10|brackets|synthetic"},
    {"split", 0, CLI_CHOICE, "val|train", "which samples (default: val)", .target = AT(split), .words = "val|train"},
    {"limit", 0, CLI_INT, "N", "only the first N of them", .target = AT(how.limit), .lo = 1, .hi = HUGE_VAL,
     .takes = "a positive number"},
    {"node", 0, CLI_INT, "K|mean", "of a run: node K, from 0, or the mean model (default)", .target = AT(how.node),
     .lo = 0, .hi = INT32_MAX, .words = "mean", .takes = "a number from 0, or mean"},
    {"no-confusion", 0, CLI_FLAG, NULL, "accuracies only: one pass over the data instead of one for each class",
     .target = AT(how.no_confusion)},
    {.name = NULL},
};

static int print_json(const hdo_evaluation *v, const hdo_config *c, const char *source, const char *split) {
    hdo_json j;
    hdo__json_begin(&j, true, 1);
    hdo__json_text(&j, "source", source);
    hdo__json_text(&j, "kind", v->kind);
    hdo__json_text(&j, "model", c->model.name);
    hdo__json_text(&j, "data", c->data.name);
    hdo__json_text(&j, "split", split);
    hdo__json_int(&j, "d", (int64_t)v->d);
    hdo__json_int(&j, "samples", v->samples);
    hdo__json_real(&j, "loss", v->loss);
    hdo__json_real(&j, "accuracy", v->accuracy);
    if (v->step >= 0) {
        hdo__json_int(&j, "step", v->step);
        hdo__json_int(&j, "nodes", v->n);
    }
    hdo__json_array(&j, "classes");
    for (int k = 0; k < v->classes; k++) {
        hdo__json_object(&j, NULL);
        hdo__json_int(&j, "class", k);
        hdo__json_int(&j, "samples", v->count[k]);
        hdo__json_int(&j, "correct", v->correct[k]);
        hdo__json_end(&j, '}');
    }
    hdo__json_end(&j, ']');
    if (v->confusion != NULL) {
        hdo__json_array(&j, "confusion");
        for (int i = 0; i < v->classes; i++) {
            hdo__json_array(&j, NULL);
            for (int k = 0; k < v->classes; k++) hdo__json_int(&j, NULL, v->confusion[i * v->classes + k]);
            hdo__json_end(&j, ']');
        }
        hdo__json_end(&j, ']');
    }
    hdo__json_end(&j, '}');
    return cli_json(&j);
}

static void print_text(const hdo_evaluation *v, const hdo_config *c) {
    cli_style s = cli_style_for(stdout);
    printf("%s%s%s, d = %lld", s.bold, c->model.name, s.off, (long long)v->d);
    if (v->step >= 0) printf(", %lld nodes, step %lld", (long long)v->n, (long long)v->step);
    printf("\n  loss %.6f", v->loss);
    if (isfinite(v->accuracy)) printf("   accuracy %.2f%%", 100.0 * v->accuracy);
    printf("   %lld samples of %s\n", (long long)v->samples, c->data.name);
    if (!isfinite(v->accuracy)) return;
    printf("\n  %-12s %8s %9s", "class", "samples", "accuracy");
    if (v->confusion != NULL) printf("   taken for (columns: 0, 1, ...)");
    printf("\n");
    for (int i = 0; i < v->classes; i++) {
        const char *name = hdo_data_class_name(c->data.name, i);
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        printf("  %-12s %8lld %8.2f%%  ", name != NULL ? name : number, (long long)v->count[i],
               v->count[i] > 0 ? 100.0 * (double)v->correct[i] / (double)v->count[i] : 0.0);
        for (int j = 0; j < v->classes && v->confusion != NULL; j++) {
            printf("%s%6lld%s", i == j ? s.bold : "", (long long)v->confusion[i * v->classes + j], i == j ? s.off : "");
        }
        printf("\n");
    }
}

/* The configuration of what is stored there, or, with --model, one for foreign weights. */
static hdo_status load(const eval_options *o, const char *source, hdo_config *c, hdo_error *e) {
    hdo_status st = hdo_stored_config(source, c, e);
    if (st == HDO_E_DATA && o->model != NULL) {
        hdo_config_default(c);
        st = HDO_OK;
    }
    if (st == HDO_OK && o->model != NULL) st = hdo_config_set_from(c, "model.name", o->model, HDO_FROM_FLAG, e);
    if (st == HDO_OK && o->data != NULL) st = hdo_config_set_from(c, "data.name", o->data, HDO_FROM_FLAG, e);
    return st == HDO_OK ? cli_apply_sets(c, &o->common.set, e) : st;
}

static int evaluate(const eval_options *o, const char *source, hdo_config *c) {
    hdo_error e = {0};
    hdo_evaluation v = {.confusion = NULL};
    hdo_status st = load(o, source, c, &e);
    if (st == HDO_E_DATA && o->model == NULL)
        return cli_usage_error("eval", "%s; say with --model (and --data) what the weights are of", e.msg);
    if (st == HDO_OK) st = hdo_evaluate(c, source, &o->how, &v, &e);
    if (st == HDO_OK && v.note[0] != '\0') cli_note("%s", v.note);
    int code = 0;
    if (st == HDO_OK && o->common.json) code = print_json(&v, c, source, o->split);
    if (st == HDO_OK && !o->common.json) print_text(&v, c);
    hdo_evaluation_clear(&v);
    return st == HDO_OK ? code : cli_fail(&e);
}

static int run_eval(int argc, char **argv) {
    eval_options o = {.split = "val", .how = {.node = HDO_EVAL_MEAN}};
    int code = cli_parse(&cmd_eval, argc, argv, &o);
    if (code >= 0) return code;
    o.how.train = strcmp(o.split, "train") == 0;
    o.how.threads = (int)o.common.threads;
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return 1;
    code = evaluate(&o, o.common.word[0], c);
    free(c);
    return code;
}

const cli_command cmd_eval = {
    .name = "eval",
    .summary = "loss, accuracy and confusion of a stored model or weights",
    .run = run_eval,
    .usage = "RUN|CHECKPOINT|WEIGHTS.safetensors [--model M] [--data D] [OPTIONS]",
    .about = "Loss and accuracy of a stored model. A run folder or checkpoint knows its model and data; for foreign "
             "weights (tensors by their PyTorch names) say which model they are of. --model and --data also override "
             "what a run knows.",
    .options = options,
    .common = CLI_SET | CLI_THREADS | CLI_JSON | CLI_TALK,
    .examples = "hdo eval runs/a --node 0\n"
                "hdo eval resnet18.safetensors --model resnet18 --data cifar10 --limit 1000 --json",
    .least = 1,
    .most = 1,
    .missing = "what is to be evaluated? Give a run, a checkpoint or a weights file",
    .single = "one model at a time",
    .size = sizeof(eval_options),
};
