/* SPDX-License-Identifier: Apache-2.0 — hdo weights: what is in a weights file, and models of runs as weights files. */
#include <string.h>

#include "cli.h"
#include "hdo/lab/eval.h"
#include "hdo/experimental/weights.h"

typedef struct weights_options {
    cli_common common;
    const char *output;
    int64_t node;
    bool trained;
} weights_options;

#define AT(member) offsetof(weights_options, member)
static const cli_option options[] = {
    {"output", 'o', CLI_TEXT, "FILE", "convert: where to", .target = AT(output)},
    {"node", 0, CLI_INT, "N|mean", "convert: the model of node N, from 0, or the mean of all (default)",
     .target = AT(node), .lo = 0, .hi = (1 << 24) - 1, .words = "mean", .takes = "the number of a node or 'mean'"},
    {"trained", 0, CLI_FLAG, NULL,
     "convert: only what the run trains (model.train), named as adapters are, instead of the whole model",
     .target = AT(trained)},
    {.name = NULL},
};

enum { INFO, CONVERT };
static const cli_verb verbs[] = {
    {"info", "FILE [--json]", "names, types and shapes of the tensors in a safetensors file"},
    {"convert", "RUN|CHECKPOINT [-o FILE] [--node N|mean] [--trained]",
     "writes the model of one node, or the mean of all nodes (the default), as a safetensors file with PyTorch's "
     "tensor "
     "names. Start a run from it with hdo run ... --init FILE, or load it in PyTorch."},
    {NULL, NULL, NULL},
};

static int info_json(const hdo_tensors *t) {
    hdo_json j;
    uint64_t total = 0;
    hdo__json_begin(&j, false, 1);
    hdo__json_array(&j, "tensors");
    for (int i = 0; i < hdo_tensors_count(t); i++) {
        const hdo_tensor_info *r = hdo_tensors_at(t, i);
        total += r->count;
        hdo__json_object(&j, NULL);
        hdo__json_text(&j, "name", r->name);
        hdo__json_text(&j, "dtype", r->dtype);
        hdo__json_array(&j, "shape");
        for (int k = 0; k < r->n_dim; k++) hdo__json_int(&j, NULL, r->dim[k]);
        hdo__json_end(&j, ']');
        hdo__json_end(&j, '}');
    }
    hdo__json_end(&j, ']');
    hdo__json_int(&j, "numbers", (int64_t)total);
    hdo__json_end(&j, '}');
    return cli_json(&j);
}

static void info_text(const hdo_tensors *t) {
    uint64_t total = 0;
    int n = hdo_tensors_count(t);
    for (int i = 0; i < n; i++) {
        const hdo_tensor_info *r = hdo_tensors_at(t, i);
        total += r->count;
        printf("  ");
        hdo__quote_plain(stdout, r->name);
        for (size_t k = strlen(r->name); k < 44; k++) putchar(' ');
        printf(" %-5s (", r->dtype);
        for (int k = 0; k < r->n_dim; k++) printf("%s%lld", k > 0 ? ", " : "", (long long)r->dim[k]);
        printf(")\n");
    }
    printf("%d tensors, %llu numbers\n", n, (unsigned long long)total);
    const char *key, *value;
    for (int i = 0; hdo_tensors_note_at(t, i, &key, &value) != 0; i++) {
        printf("  ");
        hdo__quote_plain(stdout, key);
        printf(": ");
        hdo__quote_plain(stdout, value);
        printf("\n");
    }
}

static int info(const char *path, bool json) {
    hdo_error e = {0};
    hdo_tensors *t = NULL;
    if (hdo_tensors_open(&t, path, &e) != HDO_OK) return cli_fail(&e);
    int code = 0;
    if (json) {
        code = info_json(t);
    } else {
        info_text(t);
    }
    hdo_tensors_close(t);
    return code;
}

static int convert(const char *source, int64_t node, bool trained, const char *out) {
    hdo_error e = {0};
    hdo_status st = (trained ? hdo_export_trained : hdo_export_weights)(source, node, out, &e);
    if (st != HDO_OK) return cli_fail(&e);
    printf("%s\n", out);
    return 0;
}

static int run_weights(int argc, char **argv) {
    weights_options o = {.node = HDO_EVAL_MEAN};
    int code = cli_parse(&cmd_weights, argc, argv, &o);
    if (code >= 0) return code;
    if (o.common.verb == INFO) return info(o.common.word[1], o.common.json);
    if (o.output == NULL) return cli_usage_error("weights", "where to? Give -o FILE");
    return convert(o.common.word[1], o.node, o.trained, o.output);
}

const cli_command cmd_weights = {
    .name = "weights",
    .summary = "what is in a weights file; models of runs as weights files",
    .run = run_weights,
    .verbs = verbs,
    .about = "Weights files: what is in them, and models of runs as such files.",
    .options = options,
    .common = CLI_JSON,
    .notes = "PyTorch checkpoints become safetensors files with tools/pth2safetensors.py IN.pth OUT.safetensors.",
    .examples = "hdo weights convert runs/hybrid --node mean -o hybrid.safetensors",
    .least = 2,
    .most = 2,
    .missing = "say what to do and with which file: info FILE, or convert RUN -o FILE",
    .single = "one file at a time",
    .size = sizeof(weights_options),
};
