/* SPDX-License-Identifier: Apache-2.0 — hdo eval: loss, accuracy and confusion of a stored model. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "hdo/lab/eval.h"

static const char help_text[] =
    "Usage: hdo eval RUN|CHECKPOINT|WEIGHTS.safetensors [--model M] [--data D] [OPTIONS]\n\n"
    "Loss and accuracy of a stored model. A run folder or checkpoint knows its model and data; for foreign weights "
    "(tensors\n"
    "by their PyTorch names) say which model they are of. --model and --data also override what a run knows.\n\n"
    "  --model M          logistic, mlp, cnn2, cnn3, resnet18, transformer\n"
    "  --data D           mnist, cifar10, brackets, synthetic, or your own data (with --set data.path=...)\n"
    "  --set KEY=VALUE    any other configuration key, repeatable\n"
    "  --split val|train  which samples (default: val)\n"
    "  --limit N          only the first N of them\n"
    "  --node K|mean      of a run: node K, from 0, or the mean model (default)\n"
    "  --no-confusion     accuracies only: one pass over the data instead of one for each class\n"
    "  --threads N        default: all CPUs this process may use\n"
    "  --json             one JSON document\n\n"
    "Example: hdo eval runs/a --node 0\n"
    "         hdo eval resnet18.safetensors --model resnet18 --data cifar10 --limit 1000 --json\n";

static int print_json(const hdo_evaluation *v, const hdo_config *c, const char *source, const char *split) {
    hdo_json j;
    hdo__json_init(&j, true);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", 1);
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

int cmd_eval(int argc, char **argv) {
    enum { MODEL = 256, DATA, SET, SPLIT, LIMIT, NODE, NO_CONFUSION, THREADS, JSON };
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"model", required_argument, NULL, MODEL},
                                          {"data", required_argument, NULL, DATA},
                                          {"set", required_argument, NULL, SET},
                                          {"split", required_argument, NULL, SPLIT},
                                          {"limit", required_argument, NULL, LIMIT},
                                          {"node", required_argument, NULL, NODE},
                                          {"no-confusion", no_argument, NULL, NO_CONFUSION},
                                          {"threads", required_argument, NULL, THREADS},
                                          {"json", no_argument, NULL, JSON},
                                          {NULL, 0, NULL, 0}};
    const char *model = NULL, *data = NULL, *split = "val";
    char *set[64];
    int n_set = 0;
    int64_t threads = 0;
    hdo_eval_options o = {.node = HDO_EVAL_MEAN};
    bool json = false;
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        switch (c) {
        case 'h': fputs(help_text, stdout); return 0;
        case MODEL: model = optarg; break;
        case DATA: data = optarg; break;
        case SET:
            if (n_set == 64) return cli_usage_error("eval", "at most 64 settings");
            set[n_set++] = optarg;
            break;
        case SPLIT:
            split = optarg;
            o.train = strcmp(optarg, "train") == 0;
            if (!o.train && strcmp(optarg, "val") != 0)
                return cli_usage_error("eval", "--split is val or train; got '%s'", optarg);
            break;
        case LIMIT:
            if (!cli_int(optarg, 1, INT64_MAX, &o.limit))
                return cli_usage_error("eval", "--limit takes a positive number; got '%s'", optarg);
            break;
        case NODE:
            if (strcmp(optarg, "mean") != 0 && !cli_int(optarg, 0, INT32_MAX, &o.node)) {
                return cli_usage_error("eval", "--node takes a number from 0, or mean; got '%s'", optarg);
            }
            break;
        case NO_CONFUSION: o.no_confusion = true; break;
        case THREADS:
            if (!cli_int(optarg, 1, 4096, &threads))
                return cli_usage_error("eval", "--threads takes a positive number; got '%s'", optarg);
            break;
        case JSON: json = true; break;
        default: return cli_usage_error("eval", "the options are not right");
        }
    }
    if (optind + 1 != argc)
        return cli_usage_error("eval", "what is to be evaluated? Give a run, a checkpoint or a weights file");
    const char *source = argv[optind];
    o.threads = (int)threads;
    hdo_error e = {0};
    hdo_config *c = malloc(sizeof *c);
    hdo_evaluation v = {.confusion = NULL};
    if (c == NULL) return 1;
    hdo_status st = hdo_stored_config(source, c, &e);
    if (st == HDO_E_DATA && model != NULL) { /* foreign weights */
        hdo_config_default(c);
        st = HDO_OK;
    } else if (st == HDO_E_DATA) {
        free(c);
        return cli_usage_error("eval", "%s; say with --model (and --data) what the weights are of", e.msg);
    }
    if (st == HDO_OK && model != NULL) st = hdo_config_set(c, "model.name", model, HDO_FROM_FLAG, &e);
    if (st == HDO_OK && data != NULL) st = hdo_config_set(c, "data.name", data, HDO_FROM_FLAG, &e);
    if (st == HDO_OK) st = cli_apply_sets(c, n_set, set, &e);
    if (st == HDO_OK) st = hdo_evaluate(c, source, &o, &v, &e);
    if (st == HDO_OK && v.note[0] != '\0') cli_note("%s", v.note);
    int code = 0;
    if (st == HDO_OK && json) code = print_json(&v, c, source, split);
    if (st == HDO_OK && !json) print_text(&v, c);
    hdo_evaluation_clear(&v);
    free(c);
    return st == HDO_OK ? code : cli_fail(&e);
}
